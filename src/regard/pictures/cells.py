"""What pictures draw: the weights of a head, pooled to a size that fits, and what is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ..attention_map import AttentionMap
from ..predicates import Array
from ..problem import Index, Problem, check
from ..trace import Trace

__all__ = ["Cells", "Stack", "edges", "seen_in_blocks", "stack_of"]

ROWS = 128  # rows of a block that is looked at together


@dataclass(frozen=True)
class Cells:
    """One head as it is drawn: cell (r, c) stands for a block of queries and keys.

    Attributes
    ----------
    weights : (R, C) array
        The largest weight of each block.
    hidden : (R, C) array of bool
        Where no query of the block sees a key of it.
    rows, columns : (R + 1,), (C + 1,) arrays of int
        Where the blocks begin, and the end.
    """

    weights: Array
    hidden: Array
    rows: Array
    columns: Array

    @property
    def block(self) -> tuple[int, int]:
        """Queries and keys of the largest block: (1, 1) where each pair has a cell of its own."""
        tall, wide = (int(np.diff(e).max(initial=1)) for e in (self.rows, self.columns))
        return tall, wide


class Stack:
    """The weights (*lead, Nq, Nk) of whatever a picture takes, read head by head.

    Attributes
    ----------
    shape : tuple of int
    tokens : list of str or None
    axes : names of the axes of `lead`
    """

    def __init__(self, source: Any, shape: Index, axes: list[str]) -> None:
        self.shape = shape
        self.axes = axes
        self.tokens = source.tokens if isinstance(source, Trace) else None
        self._source = source
        self._given: Problem | None = None

    @property
    def lead(self) -> Index:
        return self.shape[:-2]

    def hide(self, visible: Any) -> None:
        """Take what each query sees from a mask that the caller gave."""
        query, key = (np.broadcast_to(np.float32(0), (*self.lead, n, 1)) for n in self.shape[-2:])
        self._given = check(query, key, key, mask=visible)

    def head(self, head: int | tuple[int, ...] | None) -> Index:
        """The index of one head, checked; where there is one only it need not be named."""
        if head is None and prod(self.lead) == 1:
            return (0,) * len(self.lead)
        index = () if head is None else head if isinstance(head, tuple) else (head,)
        whole = all(isinstance(i, (int, np.integer)) for i in index)
        if whole and len(index) == len(self.lead):
            pairs = list(zip(index, self.lead, strict=True))
            if all(-n <= i < n for i, n in pairs):
                return tuple(int(i) % n for i, n in pairs)
        names = ", ".join(self.axes)
        what = names if len(self.axes) == 1 else f"({names})"
        raise ValueError(f"head must be {what} within {self.lead}, got {head!r}")

    def rows(self, index: Index, rows: slice) -> Array:
        """Weights of some queries of a head, (rows, Nk)."""
        layer, index = self._place(index)
        weights = layer.weights if isinstance(layer, AttentionMap) else layer
        return np.asarray(weights[(*index, rows)])

    def cells(self, index: Index, most: int) -> Cells:
        """A head in at most `most` x `most` cells."""
        return self.all_cells([index], most)[0]

    def all_cells(self, places: Sequence[Index], most: int) -> list[Cells]:
        """Many heads; those of one map in one pass over its weights."""
        rows, columns = (edges(n, most) for n in self.shape[-2:])
        passed: dict[int, Array] = {}
        made = []
        for index in places:
            layer, inner = self._place(index)
            if isinstance(layer, AttentionMap) and (len(places) > 1 or _is_one_head(layer)):
                if id(layer) not in passed:
                    passed[id(layer)] = layer.pooled(len(rows) - 1, len(columns) - 1, "max")
                weights = passed[id(layer)][inner]
            else:
                weights = self._pooled(index, rows, columns)
            made.append(Cells(weights, self._hidden(index, rows, columns), rows, columns))
        return made

    def _pooled(self, index: Index, rows: Array, columns: Array) -> Array:
        """The largest weight of each block of one head, (R, C)."""
        weights = np.zeros((len(rows) - 1, len(columns) - 1))
        for r, (first, last) in enumerate(pairwise(rows)):
            for start in range(first, last, ROWS):
                block = self.rows(index, slice(start, min(start + ROWS, last)))
                np.maximum(weights[r], _largest(block, columns), out=weights[r])
        return weights

    def _hidden(self, index: Index, rows: Array, columns: Array) -> Array:
        """Of which blocks no pair is seen, (R, C)."""
        if self._given is not None:
            return ~seen_in_blocks(self._given, index or (0,), rows, columns)[0]
        layer, index = self._place(index)
        if isinstance(layer, AttentionMap):
            index = (*layer._bare, *index)
            if layer._problem is not None:
                return ~seen_in_blocks(layer._problem, index, rows, columns)[0]
            if layer._seen is not None:
                seen = layer._seen(index, np.arange(rows[-1]), np.arange(columns[-1]))
                by_row = np.logical_or.reduceat(seen, columns[:-1], axis=1)
                return ~np.logical_or.reduceat(by_row, rows[:-1], axis=0)
        return np.zeros((len(rows) - 1, len(columns) - 1), bool)

    def _place(self, index: Index) -> tuple[Any, Index]:
        """The layer of a trace, or the only thing there is; and the index within."""
        if isinstance(self._source, Trace):
            return self._source.layers[index[0]], index[1:]
        return self._source, index


def stack_of(source: Any, visible: Any = None) -> Stack:
    """The weights of an AttentionMap, a Trace, or an array (*lead, Nq, Nk).

    Parameters
    ----------
    source : AttentionMap, Trace, or array
    visible : bool array, or a mask of `regard.masks`
        What each query sees, where the source does not know it.
    """
    if isinstance(source, Trace):
        stack = _of_trace(source)
    elif isinstance(source, AttentionMap):
        shape = source.weights.shape
        stack = Stack(source, shape, ["batch"] * (len(shape) - 3) + ["head"] * (len(shape) > 2))
    else:
        stack = _of_array(source)
    if visible is not None:
        stack.hide(visible)
    return stack


def _of_trace(trace: Trace) -> Stack:
    if not trace.layers or not len(trace):
        raise ValueError("the trace has no layer or no token: there is nothing to draw")
    shapes = {layer.weights.shape for layer in trace.layers}
    if len(shapes) > 1:
        raise ValueError(f"all layers must have as many heads to be drawn together, got {shapes}")
    shape = (len(trace.layers), *shapes.pop())
    return Stack(trace, shape, ["layer", "head"])


def _of_array(source: Any) -> Stack:
    array = source if hasattr(source, "shape") else np.asarray(source)
    if not hasattr(array, "dtype") or array.dtype.kind not in "fiub":
        raise TypeError(
            "weights must be an AttentionMap, a Trace, or an array of numbers (*lead, Nq, Nk), got "
            f"{getattr(array, 'dtype', type(source).__name__)}"
        )
    if len(array.shape) < 2 or 0 in array.shape:
        raise ValueError(f"weights must be (*lead, Nq, Nk), nothing empty, got {array.shape}")
    lead = ["batch"] * (len(array.shape) - 4) + ["layer", "head"]
    return Stack(array, tuple(array.shape), lead[len(lead) - len(array.shape) + 2 :])


def _is_one_head(attended: AttentionMap) -> bool:
    return prod(attended.weights.shape[:-2]) == 1


def edges(n: int, most: int) -> Array:
    """Where at most `most` blocks of n begin, and the end; their sizes differ by one at most."""
    count = max(1, min(n, most))
    return np.arange(count + 1) * n // count


def _largest(block: Array, columns: Array) -> Array:
    """The largest of each block of columns over all rows, (C,)."""
    return np.maximum.reduceat(block, columns[:-1], axis=1).max(axis=0)


def seen_in_blocks(
    problem: Problem, index: Index, rows: Array, columns: Array
) -> tuple[Array, Array]:
    """Of each block of pairs, whether some pair is seen, and whether all are: (R, C) both.

    Parameters
    ----------
    problem : Problem
    index : tuple of int
        Batch row and head.
    rows, columns : (R + 1,), (C + 1,) arrays of int
        Where blocks begin, and the end.
    """
    shape = (len(rows) - 1, len(columns) - 1)
    some, every = np.zeros(shape, bool), np.ones(shape, bool)
    for r, (first, last) in enumerate(pairwise(rows)):
        for start in range(first, last, ROWS):
            part = slice(start, min(start + ROWS, last))
            by_pair = problem.array is not None or problem.bias is not None
            seen = _pairs_seen if by_pair else _intervals_seen
            any_of, all_of = seen(problem, index, part, columns)
            some[r] |= any_of
            every[r] &= all_of
    return some, every


def _intervals_seen(
    problem: Problem, index: Index, rows: slice, columns: Array
) -> tuple[Array, Array]:
    """From the intervals alone, without a look at the pairs."""
    if problem.lo is None or problem.hi is None:
        return np.ones(len(columns) - 1, bool), np.ones(len(columns) - 1, bool)
    lo, hi = problem.lo[index][rows, None], problem.hi[index][rows, None]
    begin, end = columns[:-1], columns[1:]
    some = (lo < hi) & (lo < end) & (hi > begin)
    every = (lo <= begin) & (hi >= end)
    return np.any(some, axis=0), np.all(every, axis=0)


def _pairs_seen(problem: Problem, index: Index, rows: slice, columns: Array) -> tuple[Array, Array]:
    """Pair by pair, where a bool array or a bias may hide any."""
    j = np.arange(problem.shape[-1])
    seen = np.ones((rows.stop - rows.start, len(j)), bool)
    if problem.lo is not None and problem.hi is not None:
        seen &= (j >= problem.lo[index][rows, None]) & (j < problem.hi[index][rows, None])
    if problem.array is not None:
        seen &= problem.array[index][rows]
    if problem.bias is not None:
        seen &= problem.bias[index][rows] != -np.inf
    some = np.logical_or.reduceat(seen, columns[:-1], axis=1)
    every = np.logical_and.reduceat(seen, columns[:-1], axis=1)
    return np.any(some, axis=0), np.all(every, axis=0)
