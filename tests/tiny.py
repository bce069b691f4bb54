"""Tiny language models with random weights, as folders and as GGUF files."""

import json

import numpy as np

# Bytes as byte-level BPE spells them, a few merges, and what ends a turn.
LETTERS = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))]
LETTERS += [chr(256 + i) for i in range(256 - len(LETTERS))]
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("l", "a"), ("la", "w"), ("Ġ", "law")]
TOKENS = ["<|end|>", "<|start|>", *LETTERS, *(a + b for a, b in MERGES)]
TEMPLATE = (
    "{% for message in messages %}{{ '<|start|>' + message['role'] + ' ' + message['content'] "
    "+ '<|end|>' }}{% endfor %}{% if add_generation_prompt %}<|start|>{% endif %}"
)
LLAMA = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 97,
    "vocab_size": len(TOKENS), "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": True, "eos_token_id": 0, "bos_token_id": 1,
}  # fmt: skip


def gguf_writer(file, arch="llama", alignment=None):
    import gguf

    writer = gguf.GGUFWriter(file, arch)
    if alignment:
        writer.add_custom_alignment(alignment)
    return writer


def add_tokenizer(writer, tokens=TOKENS, pre="smollm"):
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_token_merges([f"{a} {b}" for a, b in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_shapes(config=LLAMA):
    """The tensors of a Llama by the GGUF names, with the shapes of NumPy."""
    D, F, V = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = config.get("head_dim", D // config["num_attention_heads"])
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes = {"token_embd.weight": (V, D), "output_norm.weight": (D,)}
    for i in range(config["num_hidden_layers"]):
        for name, shape in (
            ("attn_norm", (D,)), ("attn_q", (q, D)), ("attn_k", (kv, D)), ("attn_v", (kv, D)),
            ("attn_output", (D, q)), ("ffn_norm", (D,)), ("ffn_gate", (F, D)), ("ffn_up", (F, D)),
            ("ffn_down", (D, F)),
        ):  # fmt: skip
            shapes[f"blk.{i}.{name}.weight"] = shape
    return shapes


def write_llama_gguf(file, kind="F32", config=LLAMA, **changes):
    """A GGUF file of a tiny Llama, its matrices quantised to a kind."""
    import gguf

    rng = np.random.default_rng(0)
    writer = gguf_writer(file)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    for name, value in changes.items():
        getattr(writer, name)(value)
    add_tokenizer(writer)
    for name, shape in llama_shapes(config).items():
        tensor = rng.standard_normal(shape).astype(np.float32) * np.float32(0.3)
        if len(shape) == 1:
            writer.add_tensor(name, 1 + tensor)
        else:
            qtype = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quantize(tensor, qtype), raw_dtype=qtype)
    close(writer)
    return file


def write_folder(folder, config, tensors):
    """A folder in Hugging Face layout, with a byte-level tokenizer."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(TOKENS)}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|start|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": TEMPLATE, "eos_token": "<|end|>"})
    )
