"""From layer to layer: what a value brings, what a token is made of, what changed."""

from __future__ import annotations

import numpy as np

from .attention_map import AttentionMap
from .predicates import Array
from .statistics import ROWS

__all__ = ["apart", "moved_by", "through"]


def through(attended: AttentionMap, rolled: Array) -> Array:
    """Rows of a rollout, (r, N), through one more layer downwards, block by block."""
    H, N, _ = attended.weights.shape
    every = np.arange(N)
    below = np.zeros_like(rolled)
    for start in range(0, N, ROWS):
        rows = every[start : start + ROWS]
        mean = np.zeros((len(rows), N))
        for h in range(H):
            mean += attended._weights_of((h,), rows, every) / H
        share = rolled[:, rows] / (mean.sum(axis=-1) + 1)  # of each row of A + I
        below += share.astype(np.float32) @ mean.astype(np.float32)
        below[:, rows] += share
    return below


def apart(a: AttentionMap, b: AttentionMap, head: int) -> float:
    """Half the sum of |a - b| of a row of one head, the mean over the rows."""
    N = a.weights.shape[-1]
    every, total = np.arange(N), 0.0
    for start in range(0, N, ROWS):
        rows = every[start : start + ROWS]
        apart = a._weights_of((head,), rows, every) - b._weights_of((head,), rows, every)
        total += float(np.abs(apart).sum(dtype=np.float64)) / 2
    return total / max(N, 1)


def moved_by(value: Array, projection: Array) -> Array:
    """Norms of what each value brings to a layer's output, (H, N).

    value (Hkv, N, HS); projection (D, H·HS), head after head along its columns. Query head h reads
    value head h // (H // Hkv).
    """
    Hkv, N, HS = value.shape
    H = projection.shape[1] // HS
    moved = np.empty((H, N), value.dtype)
    for h in range(H):
        brought = value[h // (H // Hkv)] @ projection[:, h * HS : (h + 1) * HS].T  # (N, D)
        moved[h] = np.linalg.norm(brought, axis=-1)
    return moved
