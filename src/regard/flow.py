"""From layer to layer: what a value brings, what a token is made of, what changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from .attention_map import AttentionMap
from .predicates import Array
from .statistics import ROWS

__all__ = ["Flow", "moved_by"]


class Flow:
    """Through the layers of a trace, and what changed in them: see `Trace`."""

    tokens: list[str]
    layers: list[AttentionMap]
    hidden: Array | None
    without: tuple[tuple[int, int], ...]
    plain: Flow | None

    def rollout(self, rows: Any = None, *, layer: int | None = None) -> Array:
        """What each token is made of, through all layers: attention rollout.

        (A + I) / 2 of each layer, A the mean over its heads, each row divided by its sum,
        multiplied through the layers. In float32.

        Parameters
        ----------
        rows : int or sequence of int, optional
            The queries asked for; the memory grows with N for each. Default: all.
        layer : int, optional
            The layer up to which, and with which, it goes. Default: the last.

        Returns
        -------
        (N, N) array of float32
            (len(rows), N) for a sequence, (N,) for an int. Rows sum to 1.

        References
        ----------
        Abnar and Zuidema, "Quantifying Attention Flow in Transformers", 2020.
        """
        N = len(self.tokens)
        asked = np.arange(N)[slice(None) if rows is None else rows]
        rolled = np.zeros((asked.size, N), np.float32)
        rolled[np.arange(asked.size), np.atleast_1d(asked)] = 1
        last = range(len(self.layers))[-1 if layer is None else layer]
        for attended in self.layers[last::-1]:
            rolled = _through(attended, rolled)
        return rolled.reshape(*asked.shape, N)

    def changes(self) -> list[dict[str, Any]]:
        """What switching heads off changed in the weights of each head.

        Returns
        -------
        list of dict
            layer, head, off (whether it was switched off), and changed: half the sum of
            |weight - weight with all heads| of a row, the mean over the rows; 0 nothing, 1 all.

        Raises
        ------
        ValueError
            If no head was switched off (`model.look(text, without=...)`).
        """
        return [
            {"layer": layer, "head": head, "off": (layer, head) in self.without,
             "changed": _apart(attended, self._other.layers[layer], head)}
            for layer, attended in enumerate(self.layers)
            for head in range(attended.weights.shape[0])
        ]  # fmt: skip

    def token_changes(self) -> Array:
        """How far switching heads off moved each token: (N,), ‖h - h with all‖ / ‖h with all‖.

        h is the last hidden state. Raises ValueError as `changes` does.
        """
        before, now = self._other.hidden, self.hidden
        if before is None or now is None:
            raise ValueError("the last hidden states of this trace are not known")
        norm = np.linalg.norm(before, axis=-1)
        return np.linalg.norm(now - before, axis=-1) / np.where(norm == 0, 1, norm)

    @property
    def _other(self) -> Flow:
        if self.plain is None:
            raise ValueError("no head was switched off: model.look(text, without=[(layer, head)])")
        return self.plain


def _through(attended: AttentionMap, rolled: Array) -> Array:
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


def _apart(a: AttentionMap, b: AttentionMap, head: int) -> float:
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
