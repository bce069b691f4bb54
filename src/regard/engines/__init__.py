"""Which engine computes a call: the one asked for, or the best that can."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .. import reference
from ..predicates import Array
from ..problem import Index, Problem, Result
from . import native, tiled

__all__ = ["ENGINES", "Engine", "choose", "native"]

SMALL = 64  # up to so many queries and keys the tiled engine gains nothing from its tiles


class Engine(NamedTuple):
    """One rung of the ladder."""

    name: str
    about: str
    run: Callable[[Problem, Array | None], Result]  # the call, and what takes its output
    memory: Callable[[Problem], int]  # bytes beside inputs and output, at the peak


def choose(name: Any, problem: Problem) -> tuple[Engine, str]:
    """The engine, and why it is this one."""
    if name is None:
        return _best(problem)
    why = "asked for by name"
    if name == "native" and native.SETS:
        name, why = native.best(problem), f"{why}; the best set of this processor"
    if not isinstance(name, str) or name not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        absent = f" ({native.WHY_NOT})" if native.WHY_NOT else ""
        raise ValueError(f"engine must be None or one of {known}, got {name!r}{absent}")
    if name.startswith("native") and (lack := native.cannot(problem, name)):
        raise ValueError(f"{name} {lack}")
    return ENGINES[name], why


def _best(problem: Problem) -> tuple[Engine, str]:
    why = native.WHY_NOT or native.cannot(problem, native.SETS[-1])
    if not why:
        return ENGINES[native.best(problem)], "the best instruction set of this processor"
    if max(problem.shape[-2:]) <= SMALL:
        return ENGINES["reference"], f"{why}; sequences so short gain nothing from tiles"
    return ENGINES["tiled"], why


def _run_reference(problem: Problem, out: Array | None = None) -> Result:
    p = problem
    output, weights, lse = reference.scaled_dot_product_attention(
        p.query, p.key, p.value, mask=p.mask, align=p.start, bias=p.alibi or p.bias,
        scale=p.scale, softcap=p.softcap, sinks=p.sinks,
    )  # fmt: skip

    def weights_of(head: Index, rows: Array, columns: Array) -> Array:
        return weights[head][np.ix_(rows, columns)]

    if out is None:
        return Result(output, lambda: lse, weights_of)
    out[...] = output
    return Result(out, lambda: lse, weights_of)


def _reference_memory(problem: Problem) -> int:
    """About five matrices of the size of the scores, and four of their masks."""
    return (5 * problem.dtype.itemsize + 4) * prod(problem.shape)


_RUNGS = [
    Engine("reference", "NumPy, the whole score matrix formed", _run_reference, _reference_memory),
    Engine("tiled", "NumPy, online softmax tile by tile", tiled.run, tiled.memory),
    *(
        Engine(
            name,
            "C++, online softmax in vectors"
            + (", of bfloat16 alone" if name in native.PAIRS else ""),
            partial(native.run, name=name),
            native.memory,
        )
        for name in (*native.SETS, *native.PAIRS)
    ),
]
ENGINES = {engine.name: engine for engine in _RUNGS}
