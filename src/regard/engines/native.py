"""Exact attention in C++, in the vectors of this processor: the kernels are in native/.

Each set of instructions that the machine can run is an engine of its own ("native-avx2"); "native"
is the best of them for the call: "native-avx512-bf16", where the processor has dot products of
bfloat16, computes query, key and value of that dtype alone. Of each row the kernels keep the
maximum and the reciprocal of the sum, in units of their own, and compute weights by the code that
computed the output. A row's bits depend on that row alone: not on threads, batch, neighbours, or
how the queries are split.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from math import nan, prod
from typing import Any

import numpy as np

from ..predicates import Array, narrow
from ..problem import LARGEST, Index, Problem, Result
from ..threads import get_num_threads

try:
    _native: Any = import_module("._native", __package__)
    SETS: list[str] = _native.sets()  # the best last
    PAIRS: list[str] = _native.pair_sets()  # for bfloat16 alone
    WHY_NOT = ""
except ModuleNotFoundError:
    WHY_NOT = "the native engine is absent: no compiler worked where regard was built"
except ImportError as error:
    WHY_NOT = f"the native engine could not be loaded: {error}"
if WHY_NOT:
    SETS, PAIRS = [], []

MOST_LEAD = 8  # axes before the heads
CODES = {np.dtype(np.float32): 2, np.dtype(np.float64): 3, np.dtype(np.float16): 0}
BFLOAT16 = 1
PLAIN = tuple(CODES)
ORDINARY = 1e30  # scales below have room in every unit
NOT_SAID = nan  # a scale that the call leaves to the head size


def best(problem: Problem) -> str:
    """The set that computes the call fastest."""
    return [*SETS, *(name for name in PAIRS if not cannot(problem, name))][-1]


def cannot(problem: Problem, name: str) -> str:
    """What the set of that name lacks for the call; empty where it lacks nothing."""
    if len(problem.lead) > MOST_LEAD:
        return f"takes at most {MOST_LEAD} axes before the heads, got {problem.lead}"
    kinds = [x.dtype.name for x in (problem.query, problem.key, problem.value)]
    if name in PAIRS and kinds != ["bfloat16"] * 3:
        return f"takes query, key and value of bfloat16, got {', '.join(kinds)}"
    return ""


def run(problem: Problem, out: Array | None = None, *, name: str) -> Result:
    """The output, lse, and the weights on demand, by the instruction set of that name."""
    output = np.empty(problem.output_shape, problem.query.dtype) if out is None else out
    native = output.dtype.isnative and output.flags.aligned
    place = output if native else np.empty(output.shape, problem.query.dtype)
    call = call_of(problem, name)
    maximum, reciprocal = (np.empty(problem.shape[:-1], problem.dtype) for _ in range(2))
    *_, strange = call.run(_bits(place), maximum, reciprocal, get_num_threads())
    if strange:
        _mend_overflow(problem, place, name)
    if not native:
        output[...] = place

    def weights_of(index: Index, rows: Array, columns: Array) -> Array:
        weights = np.empty((len(rows), len(columns)), problem.dtype)
        b = int(np.ravel_multi_index(index[:-1], problem.lead)) if problem.lead else 0
        call.weights(b, int(index[-1]), _list(rows), _list(columns), weights)
        return weights

    def look(
        *, received: Array | None = None, entropy: Array | None = None,
        distances: Array | None = None, top: tuple[Array, Array] | None = None,
        pooled: Array | None = None, most: bool = False,
    ) -> None:  # fmt: skip
        strongest, keys = top or (None, None)
        call.look(received, entropy, distances, strongest, keys, pooled, most, get_num_threads())

    def lse_of() -> Array:
        return _lse(maximum, reciprocal, natural=_natural(problem))

    return Result(output, lse_of, weights_of, look)


def plain(query: Any, key: Any, value: Any, causal: Any, align: Any, scale: Any) -> Array | None:
    """The output of a call that is plain, as most are; None for all others.

    Plain are three arrays of one dtype and of shapes that fit, full or causal: checked in C++, in a
    microsecond. What is not, or would be an error, is left to the road on which everything is
    checked and named.
    """
    if not (SETS and type(query) is type(key) is type(value) is np.ndarray):
        return None
    dtype = query.dtype
    if dtype not in PLAIN or key.dtype is not dtype or value.dtype is not dtype:
        return None
    start = -1
    if align is not None:
        if query.ndim < 2 or key.ndim < 2:
            return None
        start = _start(align, query.shape[-2], key.shape[-2])
        if start < 0:
            return None
    if scale is None:
        scale = NOT_SAID
    elif not (type(scale) is float and abs(scale) < ORDINARY):
        return None
    output: Array | None = _native.plain(
        query, key, value, dtype, causal, start, scale, np.empty, get_num_threads
    )
    return output


def _start(align: Any, Nq: int, Nk: int) -> int:
    """The position of query 0 where it is said plainly and is not before key 0; else below 0."""
    if type(align) is str:
        return {"top-left": 0, "bottom-right": Nk - Nq}.get(align, -1)
    return align if type(align) is int and align <= Nk else -1


def _lse(maximum: Array, reciprocal: Array, natural: bool) -> Array:
    with np.errstate(divide="ignore"):  # a row with nothing to see: -inf
        sums = np.log(reciprocal.astype(np.float64))
    highest = maximum.astype(np.float64) * (1 if natural else np.log(2))
    return (highest - np.where(sums == -np.inf, 0, sums)).astype(maximum.dtype)


def call_of(problem: Problem, name: str) -> Any:
    """The call as the kernels take it, with `run(output, maximum, reciprocal, threads)`."""
    p = problem
    bias = p.bias
    if bias is not None and bias.dtype not in CODES and bias.dtype.name != "bfloat16":
        bias = narrow(bias, np.float64)
    return _native.Call(
        name, _bits(p.query), _bits(p.key), _bits(p.value), _code(p.query), _code(p.key),
        p.lo, p.hi, None if p.array is None else p.array.view(np.uint8),
        _bits(bias), 0 if bias is None else _code(bias),
        None if p.alibi is None else p.alibi.slopes, p.sinks,
        None if p.alibi is None else np.broadcast_to(p.start, p.lead), p.scale, p.softcap or 0.0,
        _natural(p),
    )  # fmt: skip


def _natural(p: Problem) -> bool:
    """Whether scores stay in natural units: what is added to them is, or base 2 has no room."""
    if p.bias is not None or p.alibi is not None or p.softcap is not None or p.sinks is not None:
        return True
    return abs(p.scale) > LARGEST[p.dtype] / 1.5  # log2(e) is less


@np.errstate(all="ignore")
def _mend_overflow(problem: Problem, output: Array, name: str) -> None:
    """Where finite values are so large that their sum overflowed, the average is computed anew."""
    dtype, Nk = problem.dtype, problem.shape[-1]
    shrink = dtype.type(2.0 ** -(Nk.bit_length() + 1))  # no sum can overflow
    most = np.finfo(dtype).max * shrink  # an average is no larger than what it averages
    value = _without_repeats(problem.value).astype(dtype)
    if not np.any(np.isfinite(value) & (np.abs(value) > most)):
        return
    small = np.broadcast_to((value * shrink).astype(problem.value.dtype), problem.value.shape)
    again = run(replace(problem, value=small), name=name).output.astype(dtype)
    mended = np.isfinite(again) & ~np.isfinite(output)
    output[mended] = (np.clip(again[mended], -most, most) / shrink).astype(output.dtype)


def _without_repeats(x: Array) -> Array:
    """x with one element along each axis that is broadcast."""
    return x[tuple(slice(1) if stride == 0 else slice(None) for stride in x.strides)]


def memory(problem: Problem) -> int:
    """Bytes beside inputs and output at the peak, about: threads' blocks, segments' sums, rows."""
    D, Dv, lanes = problem.key.shape[-1], problem.value.shape[-1], 128 // problem.dtype.itemsize
    Nk, each = problem.shape[-1], (D + 128 + 2 * Dv) * lanes
    blocks = prod(problem.key.shape[:-2]) * -(-prod(problem.shape[-3:-1]) // lanes)
    threads = min(get_num_threads(), blocks * -(-Nk // 2048))
    together = max(1, min(16, 2**19 // (each * problem.dtype.itemsize), blocks // 32))
    scratch = threads * (together * each + 128 * (D + Dv))
    sums = blocks * -(-Nk // 2048) * Dv * lanes if Nk > 2048 and blocks < threads else 0
    return (scratch + sums + 3 * prod(problem.shape[:-1])) * problem.dtype.itemsize


def _bits(x: Array | None) -> Any:
    """bfloat16 as the 16-bit numbers it is stored in, which other packages understand."""
    return x if x is None or x.dtype in CODES else x.view(np.uint16)


def _code(x: Array) -> int:
    return CODES.get(x.dtype, BFLOAT16)


def _list(indices: Array) -> Array:
    return np.ascontiguousarray(indices, np.int64)
