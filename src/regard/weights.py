"""Weights indexed like an array, computed where they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from .predicates import Array
from .problem import Index

__all__ = ["Weights"]

POINTS_ROWS = 64  # scattered pairs are gathered over this many rows at a time
Block = Callable[[Index, Array, Array], Array]  # (lead and head, rows, columns) -> block


class Weights:
    """An array (*lead, H, Nq, Nk) of an `AttentionMap`: indexed like one, never formed whole.

    Integers, slices, arrays, None and an ellipsis mean what they mean for an array. `np.asarray`
    forms all of it, up to the map's `limit`.
    """

    def __init__(
        self, block: Block, shape: Index, dtype: Any, limit: int, what: str = "weights"
    ) -> None:
        self._block = block
        self._limit = limit
        self._what = what
        self.shape = shape
        self.dtype = np.dtype(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{self._what} {self.shape} {self.dtype}, computed where indexed>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError(f"{self._what} are computed, never a view: copy=False cannot be met")
        return self[...].astype(dtype or self.dtype, copy=False)

    def __getitem__(self, index: Any) -> Any:
        # An array of items without size costs nothing, and tells what NumPy makes of the index.
        shape = np.broadcast_to(np.zeros((), "V0"), self.shape)[index].shape
        self._refuse_beyond_limit(shape)
        parts = _one_for_each_axis(index, self.ndim)
        arrays = [part for part in parts if isinstance(part, np.ndarray)]
        if len(arrays) > 1 or any(array.ndim != 1 for array in arrays):
            return self._points(index, shape)
        return self._outer(parts)

    def _refuse_beyond_limit(self, shape: Index) -> None:
        size, limit = prod(shape) * self.dtype.itemsize, self._limit
        if size > limit:
            raise ValueError(
                f"this would form {shape} {self.dtype}, {size / 1e9:.2f} GB, over the limit of "
                f"{limit / 1e9:.2f} GB: take a slice of the {self._what}, or raise the map's .limit"
            )

    def _outer(self, parts: list[Any]) -> Any:
        """Whole rows and columns: the block that the index spans, then the index within it."""
        axes = [part for part in parts if part is not None]
        *leads, rows, columns = (
            np.atleast_1d(np.arange(n)[part]) for n, part in zip(self.shape, axes, strict=True)
        )
        block = np.empty([len(x) for x in (*leads, rows, columns)], self.dtype)
        for place in np.ndindex(block.shape[:-2]):
            head = tuple(int(lead[i]) for lead, i in zip(leads, place, strict=True))
            block[place] = self._block(head, rows, columns)
        return block[tuple(_within_block(part) for part in parts)]

    def _points(self, index: Any, shape: Index) -> Any:
        """Scattered pairs: their coordinates, gathered by head and by rows."""
        places = [
            np.broadcast_to(axis, self.shape)[index].ravel()
            for axis in np.ogrid[tuple(slice(n) for n in self.shape)]
        ]
        weights = np.empty(prod(shape), self.dtype)
        lead = (*self.shape[:-2], self.shape[-2] // POINTS_ROWS + 1)
        group = np.ravel_multi_index((*places[:-2], places[-2] // POINTS_ROWS), lead)
        for g in np.unique(group):
            at = np.flatnonzero(group == g)
            head = tuple(int(place[at[0]]) for place in places[:-2])
            rows, row = np.unique(places[-2][at], return_inverse=True)
            columns, column = np.unique(places[-1][at], return_inverse=True)
            weights[at] = self._block(head, rows, columns)[row, column]
        return weights.reshape(shape)


def _one_for_each_axis(index: Any, ndim: int) -> list[Any]:
    """An index that NumPy takes, as a list: an int, slice or array for each axis, and its Nones."""
    parts = [
        part if part is None or part is Ellipsis or isinstance(part, slice) else _int_or_array(part)
        for part in (index if isinstance(index, tuple) else (index,))
    ]
    used = sum(_axes_of(part) for part in parts)
    fill = [slice(None)] * (ndim - used)
    here = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
    return [*parts[:here], *fill, *parts[here + 1 :]]


def _int_or_array(part: Any) -> Any:
    array = np.asarray(part)
    if array.size == 0 and not isinstance(part, np.ndarray):
        array = array.astype(np.intp)  # an empty list
    return int(array) if array.ndim == 0 and array.dtype != bool else array


def _axes_of(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1


def _within_block(part: Any) -> Any:
    """The part of an index, once the block holds just what it takes along its axis."""
    if isinstance(part, int):
        return 0
    if isinstance(part, np.ndarray):  # an array still, so that NumPy orders the axes as it does
        return np.arange(np.count_nonzero(part) if part.dtype == bool else len(part))
    return part if part is None else slice(None)
