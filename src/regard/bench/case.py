"""A row with its arrays: the call that is measured, and the answer that it must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .. import masks, reference
from ..call import attention
from ..predicates import Array
from .rows import WINDOW, Row

__all__ = ["Case", "draw", "errors", "ours"]

# The largest difference of a right answer, for values of a standard normal distribution: they, and
# so the outputs of rows that see few keys, reach about 5.
TOLERANCE = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 5e-5, "float64": 1e-12}
DRAWN = 2**25 - 39  # a prime
SAMPLE = 31  # queries of each head that are computed in float64


@dataclass(frozen=True)
class Case:
    """The arrays of a row, as every contender is given them."""

    row: Row
    query: Array  # (B, H, Nq, D)
    key: Array  # (B, Hkv, Nk, D)
    value: Array  # (B, Hkv, Nk, D)
    mask: Array | None  # (Nq, Nk), True where the query sees the key
    bias: Array | None  # (H, Nq, Nk)

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.row.dtype]

    @property
    def padding(self) -> Array | None:
        """(B, Nk), True where a key exists, for rows of several lengths."""
        row = self.row
        return np.arange(row.Nk) < np.array(row.lengths)[:, None] if row.lengths else None

    @property
    def padding_matrix(self) -> Array:
        """The same for each query, (B, 1, Nq, Nk), for peers that take no less."""
        row, padding = self.row, np.asarray(self.padding)
        return np.broadcast_to(padding[:, None, None], (row.B, 1, row.Nq, row.Nk)).copy()


def draw(row: Row, seed: int = 0) -> Case:
    """Standard normal arrays of a row."""
    rng = np.random.default_rng(seed)
    dtype = _dtype(row.dtype)

    def normal(*shape: int) -> Array:
        """Beyond so many numbers they repeat, at no multiple of a row."""
        wide = np.float64 if row.dtype == "float64" else np.float32
        drawn = rng.standard_normal(min(prod(shape), DRAWN), wide).astype(dtype, copy=False)
        return np.resize(drawn, shape)

    mask = bias = None
    if row.sees == "mask":
        mask = rng.random((row.Nq, row.Nk), np.float32) < 0.5
    if row.sees == "bias":
        bias = normal(row.H, row.Nq, row.Nk)
    keys = (row.B, row.Hkv, row.Nk, row.D)
    return Case(row, normal(row.B, row.H, row.Nq, row.D), normal(*keys), normal(*keys), mask, bias)


def _dtype(name: str) -> Any:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    return ml_dtypes.bfloat16


def ours(case: Case, engine: str | None = None, out: Array | None = None) -> Callable[[], Array]:
    """The call of regard, as its users write it."""
    row, q, k, v = case.row, case.query, case.key, case.value
    options: dict[str, Any] = {"out": out} if out is not None else {}
    if engine:
        options["engine"] = engine
    if row.sees == "causal":
        options["causal"] = True
    elif row.sees == "window":
        options["mask"] = masks.window(WINDOW - 1, 0)
    elif row.sees == "lengths":
        options["mask"] = masks.lengths(np.array(row.lengths))
    elif row.sees == "mask":
        options["mask"] = case.mask
    elif row.sees == "bias":
        options["bias"] = case.bias
    return lambda: attention(q, k, v, **options)


def errors(case: Case, output: Array) -> float:
    """The largest difference from float64, over some queries of every head, the ends among them."""
    row = case.row
    drawn = np.random.default_rng(1).choice(row.Nq, min(SAMPLE, row.Nq), replace=False)
    queries = np.union1d(drawn, [0, row.Nq - 1])
    seen = row.seen(queries, case.mask)
    worst = 0.0
    for b, h in np.ndindex(row.B, row.H):
        g = h // (row.H // row.Hkv)
        wide = (case.query[b, h, queries], case.key[b, g], case.value[b, g])
        expected, _, _ = reference.scaled_dot_product_attention(
            *(x.astype(np.float64) for x in wide),
            mask=seen[b] if seen is not None and seen.ndim == 3 else seen,
            bias=None if case.bias is None else case.bias[h, queries].astype(np.float64),
        )
        worst = max(worst, difference(output[b, h, queries], expected))
    return worst


def difference(a: Array, b: Array) -> float:
    """The largest absolute difference; a NaN counts as infinitely far."""
    far = np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0)
    return float(np.nan_to_num(far, nan=np.inf))
