"""Which engine computes a call: the one asked for, or the best that can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import reference
from ..problem import Array, Index, Problem, Result
from . import tiled

__all__ = ["ENGINES", "Engine", "choose"]


class Engine(NamedTuple):
    """One rung of the ladder."""

    name: str
    about: str
    run: Callable[[Problem], Result]
    memory: Callable[[Problem], int]  # bytes beside inputs and output, at the peak


def choose(name: Any) -> tuple[Engine, str]:
    """The engine, and why it is this one."""
    if name is None:
        return ENGINES["tiled"], "the fastest engine here that does every call"
    if not isinstance(name, str) or name not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise ValueError(f"engine must be None or one of {known}, got {name!r}")
    return ENGINES[name], "asked for by name"


def _run_reference(problem: Problem) -> Result:
    p = problem
    output, weights, lse = reference.scaled_dot_product_attention(
        p.query, p.key, p.value, mask=p.mask, align=p.start, bias=p.alibi or p.bias,
        scale=p.scale, softcap=p.softcap, sinks=p.sinks,
    )  # fmt: skip

    def weights_of(head: Index, rows: Array, columns: Array) -> Array:
        return weights[head][np.ix_(rows, columns)]

    return Result(output, lse, weights_of)


def _reference_memory(problem: Problem) -> int:
    """Four matrices of the size of the scores, and the widened, repeated arrays."""
    widened = 4 * int(np.prod(problem.shape))
    return 4 * problem.dtype.itemsize * int(np.prod(problem.shape)) + widened


ENGINES = {
    "reference": Engine(
        "reference", "NumPy, the whole score matrix formed", _run_reference, _reference_memory
    ),
    "tiled": Engine("tiled", "NumPy, online softmax tile by tile", tiled.run, tiled.memory),
}
