"""Exact attention in linear memory: the online softmax, tile by tile, in NumPy.

The score matrix is never formed. A block of queries walks along the keys in tiles and carries, for
each query, three things: the largest score so far m, the sum l of exp(score - m), and the sum of
the values weighted alike. When a tile brings a larger score, what was carried is scaled by
exp(m_old - m_new), and the result is that of the whole row. Tiles that no query of the block sees
are not visited, tiles that all see whole run bare, only those at an edge compare.

Sources: Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018; Rabe & Staats,
"Self-attention Does Not Need O(n²) Memory", 2021; Dao et al., "FlashAttention", 2022.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ..predicates import Array, narrow
from ..problem import Index, Problem, Result

TILE_BYTES = 2**19  # one tile of scores stays in a second-level cache
SHORT = 16  # OpenBLAS with AVX-512 adds rows of up to 8 in another order where none lie apart
BLOCK = 128  # queries that walk together


@np.errstate(all="ignore")
def run(problem: Problem, out: Array | None = None, tile: tuple[int, int] | None = None) -> Result:
    """The output, lse, and the weights on demand; `tile` is (queries, keys)."""
    block, width = tile or tile_shape(problem)
    output = np.empty(problem.output_shape, problem.query.dtype) if out is None else out
    maximum = np.empty(problem.shape[:-1], problem.dtype)  # (*lead, H, Nq)
    total = np.empty(problem.shape[:-1], problem.dtype)
    head = None
    for index in np.ndindex(problem.shape[:-2]):
        head = _Head(problem, index, head)
        for rows in _slices(0, problem.shape[-2], block):
            m, l, blended = _attend(head, rows, width)  # noqa: E741
            output[index][rows] = blended
            maximum[index][rows], total[index][rows] = m[:, 0], l[:, 0]
    reciprocal = np.where(total == 0, 0, 1 / total)

    @np.errstate(all="ignore")
    def lse_of() -> Array:
        return np.where(maximum == -np.inf, 0, maximum) + np.log(total)

    @np.errstate(all="ignore")
    def weights_of(index: Index, rows: Array, columns: Array) -> Array:
        m, r = maximum[index][rows, None], reciprocal[index][rows, None]
        return _weights(_Head(problem, index), rows, columns, m, r, (block, width))

    return Result(output, lse_of, weights_of)


def tile_shape(problem: Problem) -> tuple[int, int]:
    """(queries, keys) of a tile; few queries walk in wider tiles."""
    block = max(1, min(BLOCK, problem.shape[-2]))
    return block, TILE_BYTES // (block * problem.dtype.itemsize)


def memory(problem: Problem) -> int:
    """Bytes beside inputs and output at the peak, about: tiles, a head's copies, statistics."""
    block, width = tile_shape(problem)
    tiles = 2 * block * min(width, problem.shape[-1])
    copies = sum(
        prod(x.shape[-2:])
        for x in (problem.key, problem.value)
        if x.dtype != problem.dtype or not _is_dense(x)
    )
    statistics = 4 * prod(problem.shape[:-1])
    return (tiles + copies + statistics) * problem.dtype.itemsize


@np.errstate(all="ignore")
def scores_of(problem: Problem, index: Index, rows: Array, columns: Array) -> Array:
    """Scores of some rows and columns of one head, complete; a hidden pair is -inf."""
    scores = np.empty((len(rows), len(columns)), problem.dtype)
    if scores.size == 0:
        return scores
    head = _Head(problem, index)
    tile = slice(int(columns.min()), int(columns.max()) + 1)
    for block in np.unique(rows // BLOCK):
        at = np.flatnonzero(rows // BLOCK == block)
        inside = slice(int(rows[at].min()), int(rows[at].max()) + 1)
        tall = head.scores(inside, tile)
        scores[at] = tall[np.ix_(rows[at] - inside.start, columns - tile.start)]
    return scores


class _Head:
    """What one query head reads, ready for products, and the scores of any tile of it."""

    k: Array
    v: Array
    scratch: Array

    def __init__(self, problem: Problem, index: Index, before: _Head | None = None) -> None:
        *lead, h = index
        self.read = (*lead, h // (problem.query.shape[-3] // problem.key.shape[-3]))
        if before is not None and before.read == self.read:  # of one group: prepared already
            self.k, self.v, self.scratch = before.k, before.v, before.scratch
        else:
            self.k = _dense(problem.key[self.read], problem.dtype)  # (Nk, D)
            self.v = _dense(problem.value[self.read], problem.dtype)  # (Nk, Dv)
            self.scratch = np.empty(0, problem.dtype)
        self.q = problem.query[index]  # (Nq, D)
        self.scale = problem.dtype.type(problem.scale)
        self.softcap = problem.softcap and problem.dtype.type(problem.softcap)
        self.bias = None if problem.bias is None else problem.bias[index]
        self.slope = 0.0 if problem.alibi is None else problem.alibi.slopes[h]
        self.sink = -np.inf if problem.sinks is None else narrow(problem.sinks[h], problem.dtype)
        self.array = None if problem.array is None else problem.array[index]
        self.lo = None if problem.lo is None else problem.lo[index]
        self.hi = None if problem.hi is None else problem.hi[index]
        self.start = int(np.broadcast_to(problem.start, problem.lead)[tuple(lead)])

    def tiles(self, rows: slice, width: int) -> Iterator[slice]:
        """The tiles that some query of the block sees."""
        first, last = 0, len(self.k)
        if self.lo is not None and self.hi is not None:
            lo, hi = self.lo[rows], self.hi[rows]
            seeing = lo < hi
            first, last = lo.min(where=seeing, initial=last), hi.max(where=seeing, initial=0)
        return _slices(int(first), int(last), width)

    def scores(self, rows: slice, columns: slice) -> Array:
        """One tile: scale · q·kᵀ, soft cap, bias; a hidden pair is -inf."""
        n, w = rows.stop - rows.start, columns.stop - columns.start
        if self.scratch.size < n * w:
            self.scratch = np.empty(n * w, self.k.dtype)
        s: Array = self.scratch[: n * w].reshape(n, w)  # used again for each tile: no page is new
        np.matmul(self.q[rows] * self.scale, self.k[columns].T, out=s)
        if self.softcap:
            s = self.softcap * np.tanh(s / self.softcap)
        if self.bias is not None:
            bias = narrow(self.bias[rows, columns], s.dtype)
            s += bias
            np.copyto(s, -np.inf, where=bias == -np.inf)
        i = np.arange(rows.start, rows.stop)[:, None]
        j = np.arange(columns.start, columns.stop)
        if self.slope:
            s -= narrow(self.slope * abs(self.start + i - j), s.dtype)
        if self.array is not None:
            np.copyto(s, -np.inf, where=~self.array[rows, columns])
        if self.lo is not None and self.hi is not None:
            lo, hi = self.lo[rows, None], self.hi[rows, None]
            early = max(int(lo.max()) - columns.start, 0)  # before it, some query does not see yet
            late = max(int(hi.min()) - columns.start, 0)  # from it on, some query sees no more
            np.copyto(s[:, :early], -np.inf, where=j[:early] < lo)
            np.copyto(s[:, late:], -np.inf, where=j[late:] >= hi)
        return s


def _attend(head: _Head, rows: slice, width: int) -> tuple[Array, Array, Array]:
    """A block of queries: (maximum, sum, output).

    Where the output is not finite, a hidden value may be to blame, or a sum that overflowed: then
    the block walks again, with care.
    """
    m, l, blend = _walk(head, rows, width, head.v, None)  # noqa: E741
    output = _average(blend, l)
    if np.isfinite(output).all():
        return m, l, output
    finite = np.isfinite(head.v)
    shrink = head.k.dtype.type(2.0 ** -(len(head.v).bit_length() + 1))  # no sum can overflow
    _, _, blend = _walk(head, rows, width, head.v * shrink, finite)
    output = _average(blend, l)
    most = np.finfo(output.dtype).max * shrink  # an average is no larger than what it averages
    return m, l, np.where(np.isfinite(output), np.clip(output, -most, most), output) / shrink


def _average(blend: Array, l: Array) -> Array:  # noqa: E741
    """blend / l, and zeros where nothing was seen."""
    return np.where(l == 0, 0, blend / l)


def _walk(
    head: _Head, rows: slice, width: int, v: Array, finite: Array | None
) -> tuple[Array, Array, Array]:
    """Along the tiles: (maximum, sum, weighted values). `finite` tells the values that are."""
    n, dtype = rows.stop - rows.start, head.k.dtype
    m = np.full((n, 1), head.sink, dtype)  # a sink is a logit without a value
    l = np.full((n, 1), head.sink > -np.inf, dtype)  # noqa: E741
    blend = np.zeros((n, v.shape[1]), dtype)
    for columns in head.tiles(rows, width):
        s = head.scores(rows, columns)
        top = np.maximum(m, s.max(axis=1, keepdims=True))
        shift = np.where(top == -np.inf, 0, top)  # nothing seen yet: any shift will do
        carry = np.exp(m - shift)
        visible: Any = None if finite is None else s != -np.inf
        s -= shift
        p = np.exp(s, out=s)
        l = l * carry + p.sum(axis=1, keepdims=True)  # noqa: E741
        blend *= carry
        blend += (
            p @ v[columns] if finite is None else _weigh(p, v[columns], finite[columns], visible)
        )
        m = top
    return m, l, blend


def _weigh(p: Array, v: Array, finite: Array, visible: Array) -> Array:
    """p @ v, where a value that is not finite counts pair by pair, and not where it is hidden."""
    total: Array = p @ np.where(finite, v, 0)
    for j in np.flatnonzero(~finite.all(axis=1)):
        rest = np.where(finite[j], 0, p[:, j, None] * v[j])
        total += np.where(visible[:, j, None], rest, 0)
    return total


def _weights(
    head: _Head, rows: Array, columns: Array, m: Array, r: Array, tile: tuple[int, int]
) -> Array:
    """Weights of some rows and columns, from the very tiles that the output was computed in."""
    weights = np.zeros((len(rows), len(columns)), head.k.dtype)
    block, width = tile
    for first in np.unique(rows // block) * block:
        inside = slice(int(first), int(min(first + block, len(head.q))))
        at = np.flatnonzero((rows >= inside.start) & (rows < inside.stop))
        shift = np.where(m[at] == -np.inf, 0, m[at])
        for seen in head.tiles(inside, width):
            there = np.flatnonzero((columns >= seen.start) & (columns < seen.stop))
            if len(there):
                s = head.scores(inside, seen)[np.ix_(rows[at] - first, columns[there] - seen.start)]
                weights[np.ix_(at, there)] = np.where(s == -np.inf, 0, np.exp(s - shift) * r[at])
    return weights


def _dense(x: Array, dtype: np.dtype[Any]) -> Array:
    """x (N, D) as the linear algebra library takes it; copied only where it must be."""
    return x if x.dtype == dtype and _is_dense(x) else np.array(x, dtype, order="C")


def _is_dense(x: Array) -> bool:
    """Rows of numbers side by side, any distance apart where that changes no bit."""
    (row, column), length = x.strides[-2:], x.shape[-1] * x.itemsize
    if x.shape[-1] <= SHORT:
        return column == x.itemsize and row == length
    return column == x.itemsize and row >= length and row % x.itemsize == 0


def _slices(start: int, stop: int, step: int) -> Iterator[slice]:
    return (slice(i, min(i + step, stop)) for i in range(start, stop, step))
