"""The native steps of a model beside attention, where they are built: each array made fit for them.

`SET` is the instruction set that is used, None where there is none; then NumPy's forms are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from .engines import native
from .predicates import Array
from .threads import get_num_threads

__all__ = ["HELD", "SET", "multiply", "norm", "rotate", "softmax", "step", "takes"]

SET: str | None = native.SETS[-1] if native.SETS else None
HELD = {"float16": 0, "bfloat16": 1, "float32": 2, "Q4_0": 3, "Q4_1": 4, "Q8_0": 5}
STEPS = {"gelu": 0, "gelu_tanh": 1, "silu": 2, "silu_gate": 3}
FLOAT = np.dtype(np.float32)


def takes(*arrays: Array | None) -> bool:
    """Whether there are kernels for such arrays: float32 as this machine has it."""
    return SET is not None and all(x is None or x.dtype == FLOAT for x in arrays)


def multiply(x: Array, weight: Array, held: int, bias: Array | None) -> Array:
    """x (…, in) · weightᵀ + bias; a row of `weight` lies side by side, as `held` of HELD says."""
    y = np.empty((*x.shape[:-1], len(weight)), FLOAT)
    x = np.ascontiguousarray(x)
    native._native.multiply(SET, x, weight, held, bias, y, get_num_threads)
    return y


def step(name: str, x: Array, other: Array | None, out: Array | None) -> Array:
    """An activation of each number of x; `other`, the second factor of a gate, has its shape."""
    rows, other = _rows(x), None if other is None else _rows(other)
    return _into(
        out, x.shape,
        lambda y: native._native.step(SET, STEPS[name], rows, other, y, get_num_threads),
    )  # fmt: skip


def softmax(x: Array, out: Array | None) -> Array:
    """Each row as weights."""
    rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
    return _into(
        out, x.shape,
        lambda y: native._native.softmax(SET, rows, y.reshape(rows.shape), get_num_threads),
    )  # fmt: skip


def norm(
    x: Array, residual: Array | None, weight: Array, bias: Array | None, epsilon: float,
    *, centred: bool,
) -> Array:  # fmt: skip
    """Layer norm where `centred`, else RMS norm, of each row of x + residual."""
    added = None if residual is None else np.ascontiguousarray(residual).reshape(x.shape)
    y = np.empty(x.shape, FLOAT)
    native._native.norm(
        SET, np.ascontiguousarray(x), added, np.ascontiguousarray(weight), bias, epsilon, centred,
        y, get_num_threads,
    )  # fmt: skip
    return y


def rotate(x: Array, cosine: Array, sine: Array, *, interleaved: bool) -> Array:
    """Rows of x (…, N, D) turned by angles (N, D/2)."""
    heads = x.reshape(prod(x.shape[:-2]), *x.shape[-2:])
    y = np.empty(x.shape, FLOAT)
    native._native.rotate(
        SET, _side_by_side(heads), np.ascontiguousarray(cosine), np.ascontiguousarray(sine),
        interleaved, y, get_num_threads,
    )  # fmt: skip
    return y


def _rows(x: Array) -> Array:
    """x as (rows, numbers that lie side by side), a view where it can be."""
    return _side_by_side(x.reshape(prod(x.shape[:-1]), x.shape[-1] if x.ndim else 1))


def _side_by_side(x: Array) -> Array:
    beside = x.strides[-1] == FLOAT.itemsize and not any(s % FLOAT.itemsize for s in x.strides)
    return x if beside else np.ascontiguousarray(x)


def _into(out: Array | None, shape: tuple[int, ...], run: Callable[[Array], Any]) -> Array:
    """What `run` fills: `out`, or what is copied to it where its numbers lie apart."""
    fits = out is not None and out.flags.c_contiguous and out.dtype == FLOAT
    place = out if out is not None and fits else np.empty(shape, FLOAT)
    run(place)
    if out is None or fits:
        return place
    out[...] = place
    return out
