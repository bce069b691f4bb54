"""What a GGUF file calls the settings and tensors of each family, from its authors' names to ours.

Ours are those of Hugging Face's config.json and safetensors files, so that a family is wired once.
Source: the GGUF specification's standardized names, and llama.cpp's converters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .gguf_file import GGUF
from .settings import Settings

__all__ = ["translate"]

LLAMA_SETTINGS = {
    "num_hidden_layers": "block_count", "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length", "value_dim": "attention.value_length",
    "rotary_dim": "rope.dimension_count", "rope_theta": "rope.freq_base",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "sliding_window": "attention.sliding_window", "vocab_size": "vocab_size",
}  # fmt: skip
GPT2_SETTINGS = {
    "n_layer": "block_count", "n_positions": "context_length", "n_embd": "embedding_length",
    "n_inner": "feed_forward_length", "n_head": "attention.head_count",
    "layer_norm_epsilon": "attention.layer_norm_epsilon", "vocab_size": "vocab_size",
}  # fmt: skip
SETTINGS = {
    "llama": LLAMA_SETTINGS, "qwen2": LLAMA_SETTINGS, "qwen3": LLAMA_SETTINGS,
    "gpt2": GPT2_SETTINGS,
}  # fmt: skip

LLAMA_TENSORS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "rope_freqs": "rope_freqs",
}  # fmt: skip
GPT2_TENSORS = {
    "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output",
    "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}  # fmt: skip
TENSORS = {
    "llama": LLAMA_TENSORS, "qwen2": LLAMA_TENSORS, "qwen3": LLAMA_TENSORS, "gpt2": GPT2_TENSORS,
}  # fmt: skip
SCALING = {
    "rope_type": "type", "factor": "factor",
    "original_max_position_embeddings": "original_context_length",
}  # fmt: skip
LAYER = re.compile(r"(?:model\.layers|h)\.(\d+)\.(.+)")


def translate(gguf: GGUF) -> tuple[Settings, Callable[[str], str]]:
    """The settings under our names, and a function from our name of a tensor to the file's."""
    kind = gguf.metadata.get("general.architecture")
    if not isinstance(kind, str) or kind not in SETTINGS:
        known = " or ".join(SETTINGS)
        raise ValueError(f"{gguf.file}: general.architecture must be {known}, got {kind!r:.80}")
    spelled = {ours: f"{kind}.{theirs}" for ours, theirs in SETTINGS[kind].items()}
    config: dict[str, Any] = {ours: gguf.metadata.get(name) for ours, name in spelled.items()}
    if config["vocab_size"] is None and isinstance(
        gguf.metadata.get("tokenizer.ggml.tokens"), list
    ):
        config["vocab_size"] = len(gguf.metadata["tokenizer.ggml.tokens"])
    scaling = {ours: gguf.metadata.get(f"{kind}.rope.scaling.{n}") for ours, n in SCALING.items()}
    if scaling["rope_type"] not in (None, "none"):
        config["rope_scaling"] = {ours: x for ours, x in scaling.items() if x is not None}
    config["tie_word_embeddings"] = "output.weight" not in gguf.tensors
    settings = Settings(gguf.file, {"model_type": kind, **config}, spelled)
    return settings, lambda name: _tensor(name, TENSORS[kind])


def _tensor(name: str, names: dict[str, str]) -> str:
    layer = LAYER.fullmatch(name)
    place = f"blk.{layer[1]}." if layer else ""
    ours, _, end = (layer[2] if layer else name).rpartition(".")
    return f"{place}{names.get(ours, ours)}.{end}"
