"""A product with weights, as they are held."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import kernels
from ..predicates import Array
from .weights import Blocks, Weights, check_weights, in_rows, kind_of, part_of, rows_of, stack

__all__ = ["Linear", "alike"]

PIECE = 2**20  # weights that are widened together


class Linear:
    """x · weightᵀ + bias.

    Parameters
    ----------
    weight : (out, in) array, or `Blocks`
        float16, bfloat16, float32, float64, or quantised; kept as it is, in its memory, unless the
        numbers of a row lie apart: then a copy is.
    bias : (out,) array, optional

    Notes
    -----
    Where the native kernels are built they compute all but float64, at the speed of memory for few
    rows, and a row's bits are the same in any batch and on any number of threads. Elsewhere NumPy
    does, whose bits change with the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> Linear(np.array([[1, 2], [3, 4], [5, 6]], np.float16))(np.ones((7, 2), np.float32)).shape
    (7, 3)
    """

    def __init__(self, weight: Weights, bias: Array | None = None) -> None:
        check_weights("weight", weight)
        if bias is not None and np.shape(bias) != (weight.shape[0],):
            raise ValueError(f"bias must be ({weight.shape[0]},), got {np.shape(bias)}")
        self.weight = in_rows(weight)
        self.bias = None if bias is None else bias.astype(np.result_type(bias, np.float32))
        self._kind = kernels.HELD.get(kind_of(weight)) if kernels.takes(self.bias) else None
        raw = self.weight.raw if isinstance(self.weight, Blocks) else self.weight
        self._bits = raw.view(np.uint16) if raw.dtype.name == "bfloat16" else raw

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.weight.shape[0], self.weight.shape[1]

    def __repr__(self) -> str:
        return f"Linear({self.shape[1]} → {self.shape[0]}, {kind_of(self.weight)})"

    def __call__(self, x: Array) -> Array:
        """x (…, in) to (…, out), computed in float32 (float64 for float64)."""
        out, into = self.weight.shape
        if x.ndim < 1 or x.shape[-1] != into:
            raise ValueError(f"x must be (…, {into}), got {x.shape}")
        if x.dtype != np.float32:
            x = x.astype(np.result_type(x, np.float32), copy=False)
        if self._kind is not None and kernels.takes(x):
            return kernels.multiply(x, self._bits, self._kind, self.bias)
        y = _by_numpy(x.reshape(prod(x.shape[:-1]), into), self.weight)
        if self.bias is not None:
            y += self.bias
        return y.reshape(*x.shape[:-1], out)

    def wide(self) -> Array:
        """The weight (out, in) in float32 (float64 as it is)."""
        return rows_of(self.weight, slice(None))

    def part(self, rows: slice) -> Linear:
        """Some of the outputs, without a copy of the weights."""
        return Linear(part_of(self.weight, rows), None if self.bias is None else self.bias[rows])

    @classmethod
    def stacked(cls, *parts: Linear) -> Linear:
        """Their outputs side by side, by one product.

        Raises
        ------
        ValueError
            Where they are not `alike`.
        """
        if not alike(*parts):
            raise ValueError(f"layers must be held alike to be stacked, got {parts}")
        biases = [p.bias for p in parts if p.bias is not None]
        weight = stack(*(p.weight for p in parts))
        return cls(weight, np.concatenate(biases) if biases else None)


def alike(*parts: Linear) -> bool:
    """Whether all have one depth, one kind of weights, and a bias or none."""
    return len({(p.shape[1], kind_of(p.weight), p.bias is None) for p in parts}) == 1


def _by_numpy(x: Array, weight: Weights) -> Array:
    """The product, weights widened piece by piece where they are narrow."""
    if isinstance(weight, np.ndarray) and weight.dtype.itemsize >= 4:
        return x @ weight.T
    out, into = weight.shape
    y: Any = np.empty((len(x), out), x.dtype)
    step = max(1, PIECE // max(1, into))
    for begin in range(0, out, step):
        piece = slice(begin, begin + step)
        np.matmul(x, rows_of(weight, piece).T, out=y[:, piece])
    return y
