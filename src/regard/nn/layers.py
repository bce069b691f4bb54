"""Embedding, norms, and the two kinds of MLP."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..elementwise import layer_norm, rms_norm, silu, silu_gate
from ..predicates import Array
from .linear import Linear, alike
from .weights import Weights, check_weights, rows_of

__all__ = ["MLP", "Embedding", "GatedMLP", "LayerNorm", "RMSNorm", "in_parts"]

TOGETHER = 512  # rows that go through an MLP together


class Embedding:
    """Rows of a table (words, D), as they are held; called with ids.

    >>> Embedding(np.eye(3, dtype=np.float16))(np.array([2, 0]))
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """

    def __init__(self, weight: Weights) -> None:
        check_weights("weight", weight)
        self.weight = weight

    @property
    def shape(self) -> tuple[int, int]:
        """(words, D)."""
        return self.weight.shape[0], self.weight.shape[1]

    def __repr__(self) -> str:
        return f"Embedding({self.shape[0]} words, D {self.shape[1]})"

    def __call__(self, ids: Any) -> Array:
        """ids (…) to (…, D) in float32 (float64 for float64)."""
        ids = np.asarray(ids)
        if ids.dtype.kind not in "iu":
            raise TypeError(f"ids must be an array of int, got {ids.dtype}")
        if ids.size and not (ids.min() >= 0 and ids.max() < self.shape[0]):
            raise ValueError(f"ids must be in [0, {self.shape[0]}), got {ids.min()} … {ids.max()}")
        return rows_of(self.weight, ids)


class LayerNorm(NamedTuple):
    """Each row with mean 0 and variance 1, times weight (D,), plus bias (D,) where there is one."""

    weight: Array
    bias: Array | None = None
    epsilon: float = 1e-5

    def __call__(self, x: Array, residual: Array | None = None) -> Array:
        """Of x (…, D), or of x + residual."""
        return layer_norm(x, self.weight, self.bias, self.epsilon, residual=residual)


class RMSNorm(NamedTuple):
    """Each row with mean square 1, times weight (D,)."""

    weight: Array
    epsilon: float = 1e-6

    def __call__(self, x: Array, residual: Array | None = None) -> Array:
        """Of x (…, D), or of x + residual."""
        return rms_norm(x, self.weight, self.epsilon, residual=residual)


def in_parts(layer: Callable[[Array], Array], x: Array) -> Array:
    """layer(x (…, D)), some rows at a time: what lies between its steps then stays in cache."""
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    if len(rows) <= TOGETHER:
        return layer(x)
    parts = [layer(rows[i : i + TOGETHER]) for i in range(0, len(rows), TOGETHER)]
    return np.concatenate(parts).reshape(*x.shape[:-1], -1)


class MLP(NamedTuple):
    """down(activation(up(x))); the activation is one of `nn.ACTIVATIONS`."""

    up: Linear
    down: Linear
    activation: Callable[..., Array]

    def __call__(self, x: Array) -> Array:
        """x (…, D) to (…, D)."""
        return in_parts(self._of_some, x)

    def _of_some(self, x: Array) -> Array:
        inner = self.up(x)  # (…, F)
        return self.down(self.activation(inner, out=inner))


class GatedMLP:
    """down(activation(gate(x)) · up(x)), as in Llama.

    References
    ----------
    Shazeer, "GLU Variants Improve Transformer", 2020.
    """

    def __init__(
        self, gate: Linear, up: Linear, down: Linear, activation: Callable[..., Array] = silu
    ) -> None:
        self.down, self.activation = down, activation
        # One product where the weights are held alike; the two are then parts of it.
        self.packed = Linear.stacked(gate, up) if alike(gate, up) else None
        if self.packed is not None:
            F = gate.shape[0]
            gate, up = self.packed.part(slice(F)), self.packed.part(slice(F, None))
        self.gate, self.up = gate, up

    def __repr__(self) -> str:
        return f"GatedMLP({self.gate}, {self.up}, {self.down})"

    def __call__(self, x: Array) -> Array:
        """x (…, D) to (…, D)."""
        return in_parts(self._of_some, x)

    def _of_some(self, x: Array) -> Array:
        if self.packed is not None:
            both, F = self.packed(x), self.gate.shape[0]  # (…, 2F)
            gate, up = both[..., :F], both[..., F:]
        else:
            gate, up = self.gate(x), self.up(x)  # (…, F) each
        if self.activation is silu:
            return self.down(silu_gate(gate, up))
        return self.down(self.activation(gate) * up)
