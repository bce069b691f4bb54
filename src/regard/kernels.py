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

__all__ = ["HELD", "SET", "multiply", "norm", "softmax", "step", "takes"]

SET: str | None = native.SETS[-1] if native.SETS else None
HELD = {"float16": 0, "bfloat16": 1, "float32": 2, "Q4_0": 3, "Q4_1": 4, "Q8_0": 5}
STEPS = {"gelu": 0, "gelu_tanh": 1, "silu": 2, "silu_gate": 3}
MOST = 2**33  # multiplications of one call: a fraction of a second, so that Ctrl-C is heard


def takes(*arrays: Array | None) -> bool:
    """Whether there are kernels for such arrays: float32 as this machine has it."""
    return SET is not None and all(x is None or x.dtype == np.float32 for x in arrays)


def multiply(x: Array, weight: Array, held: str, bias: Array | None) -> Array:
    """x (M, in) · weightᵀ + bias; of `weight` each row lies side by side, as `held` says."""
    bits = weight.view(np.uint16) if held == "bfloat16" else weight
    x = np.ascontiguousarray(x)
    y = np.empty((len(x), len(weight)), np.float32)
    some = max(1, MOST // max(1, x.shape[1] * len(weight)))  # a row's bits are its own
    for i in range(0, len(x), some):
        part = slice(i, i + some)
        native._native.multiply(
            SET, x[part], bits, HELD[held], x.shape[1], bias, y[part], get_num_threads()
        )
    return y


def step(name: str, x: Array, other: Array | None, out: Array | None) -> Array:
    """An activation of each number."""
    other = None if other is None else np.ascontiguousarray(np.broadcast_to(other, x.shape))
    return _into(
        out, x.shape,
        lambda y: native._native.step(
            SET, STEPS[name], np.ascontiguousarray(x), other, y, get_num_threads()
        ),
    )  # fmt: skip


def softmax(x: Array, out: Array | None) -> Array:
    """Each row as weights."""
    rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
    return _into(
        out, x.shape,
        lambda y: native._native.softmax(SET, rows, y.reshape(rows.shape), get_num_threads()),
    )  # fmt: skip


def norm(
    x: Array, residual: Array | None, weight: Array, bias: Array | None, epsilon: float,
    *, centred: bool,
) -> Array:  # fmt: skip
    """Layer norm where `centred`, else RMS norm, of each row of x + residual."""
    shape = (prod(x.shape[:-1]), x.shape[-1])
    rows = np.ascontiguousarray(x).reshape(shape)
    added = None if residual is None else np.ascontiguousarray(residual).reshape(shape)
    y = np.empty(shape, np.float32)
    native._native.norm(
        SET, rows, added, np.ascontiguousarray(weight), bias, epsilon, centred, y,
        get_num_threads(),
    )  # fmt: skip
    return y.reshape(x.shape)


def _into(out: Array | None, shape: tuple[int, ...], run: Callable[[Array], Any]) -> Array:
    """What `run` fills: `out`, or what is copied to it where its numbers lie apart."""
    fits = out is not None and out.flags.c_contiguous and out.dtype == np.float32
    place = out if out is not None and fits else np.empty(shape, np.float32)
    run(place)
    if out is None or fits:
        return place
    out[...] = place
    return out
