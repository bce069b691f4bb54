"""Which pairs are seen, asked pair by pair, and where the queries sit among the keys.

What the reference forms its masks from, and the few helpers that all rungs share. p is the
position of a query, j that of a key; they broadcast against each other. Intervals, which say the
same for the engines, are in `masks`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FARTHEST = 2**61  # no position is farther from key 0, so that sums with it stay within int64


def causal_sees(p: Array, j: Array) -> Array:
    return j <= p


def window_sees(p: Array, j: Array, left: int | None, right: int | None) -> Array:
    return ((left is None) | (p - j <= (left or 0))) & ((right is None) | (j - p <= (right or 0)))


def lengths_sees(j: Array, n: Array, start: Array) -> Array:
    return (start <= j) & (j < n)


def documents_sees(p: Array, j: Array, ids: Array) -> Array:
    """ids (*lead, 1, 1, Nk); a query that lies beside the keys has no document."""
    if ids.shape[-1] == 0:
        return np.zeros(np.broadcast_shapes(p.shape, ids.shape), bool)
    beside = (p < 0) | (p >= ids.shape[-1])
    lead = np.broadcast_shapes(p.shape[:-1], ids.shape[:-1])
    ids = np.broadcast_to(ids, (*lead, ids.shape[-1]))
    at = np.broadcast_to(np.where(beside, 0, p), (*lead, 1))
    return (np.take_along_axis(ids, at, axis=-1) == ids) & ~beside


def prefix_sees(p: Array, j: Array, n: Array) -> Array:
    return (j <= p) | (j < n)


def interval_sees(j: Array, lo: Array, hi: Array) -> Array:
    return (lo <= j) & (j < hi)


def alibi_bias(p: Array, j: Array, slopes: Array) -> Array:
    return -slopes * abs(p - j)


def first_position(align: Any, Nq: int, Nk: int, end: Array | None = None) -> Array:
    """Where query 0 sits among the keys. `end`: each sequence's own length, where it has one."""
    if align is None and Nq != Nk and Nq and Nk:
        raise ValueError(
            f"align must be given where positions matter and Nq != Nk, got Nq = {Nq}, Nk = {Nk}: "
            "'top-left' puts query 0 at key 0, 'bottom-right' the last query at the last key "
            f"(query 0 at {Nk - Nq}), an int p puts query 0 at key p (a cache of p keys)"
        )
    if align is None or (isinstance(align, str) and align == "top-left"):
        return np.zeros((), np.int64)
    if isinstance(align, str) and align == "bottom-right":
        return np.asarray(Nk if end is None else end, np.int64) - Nq
    try:
        position = np.asarray(align)
    except ValueError:  # ragged
        position = np.zeros(0)
    out = position.dtype.kind not in "iu" or np.any(abs(position.astype(float)) > FARTHEST)
    if out:
        raise ValueError(
            "align must be 'top-left', 'bottom-right', or the position of query 0 "
            f"(an int, or one for each batch row), got {align!r}"
        )
    return position.astype(np.int64)


def narrow(x: Any, dtype: Any) -> Array:
    """x in `dtype`: a finite value that is too large saturates and stays finite."""
    x = np.asarray(x)
    if x.dtype.itemsize <= np.dtype(dtype).itemsize:
        return x.astype(dtype)
    limit = np.finfo(dtype).max
    return np.where(np.isfinite(x), np.clip(x, -limit, limit), x).astype(dtype)
