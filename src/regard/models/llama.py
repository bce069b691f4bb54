"""The Llama family: Llama, Mistral, Qwen2, Qwen3, SmolLM2.

Wiring and weight names; the mathematics is in `attention`, `nn` and `rotary`.
Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023; grouped heads
and sliding windows: Jiang et al., "Mistral 7B", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import nn
from ..elementwise import rotate
from ..predicates import Array
from ..rotary import Linear, Llama3, Scaling, YaRN, table
from .decoder import Attend, Decoder
from .loading import Source
from .settings import Settings
from .tensors import Tensors

__all__ = ["Llama"]

Turn = Any  # queries or keys at their positions
IGNORED = r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"  # of older files


class Layer(NamedTuple):
    """One layer; the norms of queries and keys are Qwen3's."""

    attention_norm: nn.RMSNorm
    attention: nn.MultiHeadAttention
    mlp_norm: nn.RMSNorm
    mlp: nn.GatedMLP
    query_norm: nn.RMSNorm | None
    key_norm: nn.RMSNorm | None

    def __call__(self, x: Array, turn: Turn, attend: Any) -> Array:
        """x (…, N, D) to the same."""

        def placed(q: Array, k: Array, v: Array, **_: Any) -> Any:
            q = q if self.query_norm is None else self.query_norm(q)
            k = k if self.key_norm is None else self.key_norm(k)
            return attend(turn(q), turn(k), v)

        x = x + self.attention(self.attention_norm(x), attend=placed)
        return x + self.mlp(self.mlp_norm(x))


class Llama(Decoder):
    """A decoder with rotary positions, grouped heads, root-mean-square norms and gated MLPs."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        settings, tensors = source.settings, source.tensors
        self.width = D = settings.size("hidden_size")
        self.words = settings.size("vocab_size")
        self.heads = H = settings.size("num_attention_heads")
        self.positions = settings.size("max_position_embeddings")
        self.head_size = settings.size("head_dim", default=D // H)
        self.windows = _windows(settings, tensors.is_gguf)
        self.base, self.scaling = _rotary(settings, tensors, self.head_size)
        self.pairing = _pairing(settings, tensors)
        self.embedding = nn.Embedding(tensors.held("model.embed_tokens.weight", (self.words, D)))
        self.layers = [_layer(settings, tensors, i) for i in range(len(self.windows))]
        epsilon = settings.number("rms_norm_eps", 1e-6)
        self.norm = nn.RMSNorm(tensors.take("model.norm.weight", (D,)), epsilon)
        if settings.flag("tie_word_embeddings", False):
            self.head = nn.Linear(self.embedding.weight)
        else:
            self.head = nn.Linear(tensors.held("lm_head.weight", (self.words, D)))
        tensors.refuse_others("lm_head.weight", IGNORED)

    def _hidden(self, ids: Array, at: int, attend: Attend) -> Array:
        places = np.arange(at, at + ids.shape[-1])
        angles = table(places, self.head_size, base=self.base, scaling=self.scaling)
        cosine, sine = (x.astype(np.float32) for x in angles)  # (N, head size / 2)

        def turn(x: Array) -> Array:
            return rotate(x, cosine, sine, pairing=self.pairing)

        x = self.embedding(ids)  # (…, N, D)
        for i, layer in enumerate(self.layers):
            x = layer(x, turn, partial(attend, i))
        return self.norm(x)

    def _logits(self, hidden: Array) -> Array:
        return self.head(hidden)


def _layer(settings: Settings, tensors: Tensors, i: int) -> Layer:
    name = f"model.layers.{i}"
    D, F = settings.size("hidden_size"), settings.size("intermediate_size")
    H = settings.size("num_attention_heads")
    Hkv = settings.size("num_key_value_heads", divides=H, default=H)
    head = settings.size("head_dim", default=D // H)
    epsilon = settings.number("rms_norm_eps", 1e-6)
    biased = settings.flag("attention_bias", False)
    q, k, v = _linears(
        tensors, f"{name}.self_attn.{{}}_proj", biased,
        q=(H * head, D), k=(Hkv * head, D), v=(Hkv * head, D),
    )  # fmt: skip
    (o,) = _linears(tensors, f"{name}.self_attn.{{}}_proj", biased, o=(D, H * head))
    biased = settings.flag("mlp_bias", False)
    gate, up = _linears(tensors, f"{name}.mlp.{{}}_proj", biased, gate=(F, D), up=(F, D))
    (down,) = _linears(tensors, f"{name}.mlp.{{}}_proj", biased, down=(D, F))
    activation = settings.choice("hidden_act", nn.ACTIVATIONS, "silu")
    norm = partial(_norm, tensors, epsilon=epsilon)
    return Layer(
        attention_norm=norm(f"{name}.input_layernorm", D),
        attention=nn.MultiHeadAttention(q, k, v, o, H, kv_heads=Hkv),
        mlp_norm=norm(f"{name}.post_attention_layernorm", D),
        mlp=nn.GatedMLP(gate, up, down, activation),
        query_norm=_norm_of_heads(settings, tensors, f"{name}.self_attn.q_norm", head),
        key_norm=_norm_of_heads(settings, tensors, f"{name}.self_attn.k_norm", head),
    )


def _linears(
    tensors: Tensors, name: str, biased: bool, **shapes: tuple[int, int]
) -> list[nn.Linear]:
    """Products that are stacked without a copy, by the parts of their names: (out, into)."""
    names = [name.format(part) for part in shapes]
    named = zip((f"{n}.weight" for n in names), shapes.values(), strict=True)
    weights = tensors.beside(dict(named))
    biases = [
        tensors.take(f"{n}.bias", shape[:1]) if biased or tensors.has(f"{n}.bias") else None
        for n, shape in zip(names, shapes.values(), strict=True)
    ]
    return [nn.Linear(weight, bias) for weight, bias in zip(weights, biases, strict=True)]


def _norm(tensors: Tensors, name: str, size: int, epsilon: float) -> nn.RMSNorm:
    return nn.RMSNorm(tensors.take(f"{name}.weight", (size,)), epsilon)


def _norm_of_heads(settings: Settings, tensors: Tensors, name: str, size: int) -> nn.RMSNorm | None:
    if settings.value("model_type") != "qwen3":
        return None
    return _norm(tensors, name, size, settings.number("rms_norm_eps", 1e-6))


def _windows(settings: Settings, is_gguf: bool) -> list[int | None]:
    """For each layer how many keys a query sees; None for all. GGUF files call Mistral Llama."""
    layers, kind = settings.size("num_hidden_layers"), settings.value("model_type")
    everywhere = kind == "mistral" or (kind == "llama" and is_gguf)
    sliding = everywhere or settings.flag("use_sliding_window", False)
    if not sliding or not settings.has("sliding_window"):
        return [None] * layers
    size = settings.size("sliding_window")
    first = 0 if everywhere else settings.size("max_window_layers", default=28)
    kinds = ["full_attention"] * min(first, layers) + ["sliding_attention"] * (layers - first)
    kinds = settings.value("layer_types", kinds)
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise settings.refuse("layer_types", f"must be a list of {layers}")
    if not set(kinds) <= {"full_attention", "sliding_attention"}:
        raise settings.refuse("layer_types", "must be full_attention or sliding_attention each")
    return [size if kind == "sliding_attention" else None for kind in kinds]


# ------------------------------------------------------------------------------- positions


@dataclass(frozen=True)
class Slowed:
    """Each pair turns slower by its own factor, as a GGUF file lists them."""

    factors: Array
    amplitude = 1.0

    def frequencies(self, base: float, D: int) -> Array:
        return base ** (-np.arange(0, D, 2) / D) / self.factors


def _pairing(settings: Settings, tensors: Tensors) -> str:
    """GGUF's converters reorder the rows of queries and keys for this kind alone."""
    return "interleaved" if tensors.is_gguf and settings.value("model_type") == "llama" else "half"


def _rotary(settings: Settings, tensors: Tensors, head: int) -> tuple[float, Scaling | None]:
    """Base and scaling; whatever else a file asks for is refused."""
    for name in ("value_dim", "rotary_dim"):
        if settings.has(name) and settings.size(name) != head:
            raise settings.refuse(name, f"must be the head size {head}")
    rope = settings.section(
        "rope_parameters" if settings.has("rope_parameters") else "rope_scaling"
    )
    for given in (settings, rope):
        if given.number("partial_rotary_factor", 1) != 1:
            raise given.refuse("partial_rotary_factor", "must be 1")
    rope.refuse_sections()  # one set of positions for each kind of layer
    base = rope.number("rope_theta", settings.number("rope_theta", 10000.0))
    if tensors.is_gguf and tensors.has("rope_freqs.weight"):
        return base, Slowed(tensors.take("rope_freqs.weight", (head // 2,)).astype(np.float64))
    older = "rope_type" if rope.has("rope_type") else "type"
    return base, rope.choice(older, SCALINGS, "default")(rope, settings)


def _llama3(rope: Settings, settings: Settings) -> Scaling:
    return Llama3(
        factor=rope.number("factor"), low=rope.number("low_freq_factor"),
        high=rope.number("high_freq_factor"),
        original=rope.size("original_max_position_embeddings"),
    )  # fmt: skip


def _yarn(rope: Settings, settings: Settings) -> Scaling:
    for name in ("mscale", "mscale_all_dim"):
        if rope.has(name):
            raise rope.refuse(name, "is not supported")
    return YaRN(
        factor=rope.number("factor"),
        original=rope.size(
            "original_max_position_embeddings", default=settings.size("max_position_embeddings")
        ),
        fast=rope.number("beta_fast", 32), slow=rope.number("beta_slow", 1),
        attention=rope.number("attention_factor") if rope.has("attention_factor") else None,
        whole=rope.flag("truncate", True),
    )  # fmt: skip


SCALINGS: dict[str, Any] = {
    "default": lambda rope, settings: None,
    "linear": lambda rope, settings: Linear(rope.number("factor")),
    "llama3": _llama3,
    "yarn": _yarn,
}
