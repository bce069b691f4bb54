"""The GPT-2 family: learned positions, layer norms before each part, biases everywhere.

Wiring and weight names; the mathematics is in `attention` and `nn`.
Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import nn
from ..predicates import Array
from .decoder import Attend, Decoder
from .loading import Source
from .settings import Settings
from .tensors import Tensors

__all__ = ["GPT2"]

IGNORED = r"h\.\d+\.attn\.(masked_)?bias"  # the causal mask, in older files


class Layer(NamedTuple):
    """One layer."""

    attention_norm: nn.LayerNorm
    attention: nn.MultiHeadAttention
    mlp_norm: nn.LayerNorm
    mlp: nn.MLP
    scale: np.float32 | None  # of queries, where it is not that of attention alone

    def __call__(self, x: Array, attend: Any) -> Array:
        """x (…, N, D) to the same."""

        def scaled(q: Array, k: Array, v: Array, **_: Any) -> Any:
            return attend(q if self.scale is None else q * self.scale, k, v)

        x = x + self.attention(self.attention_norm(x), attend=scaled)
        return x + self.mlp(self.mlp_norm(x))


class GPT2(Decoder):
    """A decoder with learned positions."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        settings, tensors = source.settings, source.tensors.below("wte.weight")
        if settings.flag("add_cross_attention", False):
            raise settings.refuse("add_cross_attention", "must be false: there is no encoder")
        self.width = D = settings.size("n_embd")
        self.heads = settings.size("n_head", divides=D)
        self.words = settings.size("vocab_size")
        self.positions = settings.size("n_positions")
        self.windows = [None] * settings.size("n_layer")
        self.embedding = nn.Embedding(tensors.held("wte.weight", (self.words, D)))
        self.places = nn.Embedding(tensors.held("wpe.weight", (self.positions, D)))
        self.layers = [_layer(settings, tensors, i) for i in range(len(self.windows))]
        self.norm = _norm(settings, tensors, "ln_f")
        if settings.flag("tie_word_embeddings", True):
            self.head = nn.Linear(self.embedding.weight)
        else:
            self.head = nn.Linear(tensors.held("lm_head.weight", (self.words, D)))
        tensors.refuse_others("lm_head.weight", IGNORED)

    def _hidden(self, ids: Array, at: int, attend: Attend) -> Array:
        x = self.embedding(ids) + self.places(np.arange(at, at + ids.shape[-1]))  # (…, N, D)
        for i, layer in enumerate(self.layers):
            x = layer(x, partial(attend, i))
        return self.norm(x)

    def _logits(self, hidden: Array) -> Array:
        return self.head(hidden)


def _layer(settings: Settings, tensors: Tensors, i: int) -> Layer:
    name, D = f"h.{i}", settings.size("n_embd")
    F = settings.size("n_inner", default=4 * D)
    packed = _linear(tensors, f"{name}.attn.c_attn", 3 * D, D)
    q, k, v = (packed.part(slice(j * D, j * D + D)) for j in range(3))
    output = _linear(tensors, f"{name}.attn.c_proj", D, D)
    activation = settings.choice("activation_function", nn.ACTIVATIONS, "gelu_new")
    return Layer(
        attention_norm=_norm(settings, tensors, f"{name}.ln_1"),
        attention=nn.MultiHeadAttention(q, k, v, output, settings.size("n_head", divides=D)),
        mlp_norm=_norm(settings, tensors, f"{name}.ln_2"),
        mlp=nn.MLP(
            _linear(tensors, f"{name}.mlp.c_fc", F, D),
            _linear(tensors, f"{name}.mlp.c_proj", D, F),
            activation,
        ),
        scale=_scale(settings, i),
    )


def _scale(settings: Settings, i: int) -> np.float32 | None:
    """What queries are multiplied by, beside attention's own 1/√(head size)."""
    scale = 1.0
    if not settings.flag("scale_attn_weights", True):
        scale *= (settings.size("n_embd") // settings.size("n_head")) ** 0.5
    if settings.flag("scale_attn_by_inverse_layer_idx", False):
        scale /= i + 1
    return None if scale == 1 else np.float32(scale)


def _norm(settings: Settings, tensors: Tensors, name: str) -> nn.LayerNorm:
    D = settings.size("n_embd")
    weight, bias = (tensors.take(f"{name}.{part}", (D,)) for part in ("weight", "bias"))
    return nn.LayerNorm(weight, bias, settings.number("layer_norm_epsilon", 1e-5))


def _linear(tensors: Tensors, name: str, out: int, into: int) -> nn.Linear:
    """Safetensors files have these weights (in, out), GGUF files (out, in)."""
    if tensors.is_gguf:
        weight = tensors.held(f"{name}.weight", (out, into))
    else:
        weight = tensors.held(f"{name}.weight", (into, out)).T
    return nn.Linear(weight, tensors.take(f"{name}.bias", (out,)))
