"""overflow: why the maximum is subtracted before the exponential."""

from __future__ import annotations

from typing import Any

import numpy as np

import regard

from .. import reference
from ..predicates import Array
from .drawing import lines, panels
from .measure import check_sizes
from .result import Check, Result, Table, Verdict

QUESTION = "exp of a large score is infinite. What does subtracting the row's maximum change?"
SIZES = (16, 64, 256)
SIZES_ARE = "scores in a row"
DTYPES = (np.float16, np.float32, np.float64)
LIMITS = {"float16": 11.09, "float32": 88.72, "float64": 709.78}


def naive_softmax(x: Array) -> Array:
    """The formula as it is written, without the maximum."""
    with np.errstate(all="ignore"):
        exponentials = np.exp(x)
        return exponentials / exponentials.sum(axis=-1, keepdims=True)


def largest_argument(dtype: Any) -> float:
    """The largest number of the dtype whose exponential is finite: by halving an interval."""
    low, high = dtype(0), dtype(1000)
    with np.errstate(over="ignore"):
        while (middle := dtype((low + high) / 2)) not in (low, high):
            low, high = (middle, high) if np.isfinite(np.exp(middle)) else (low, middle)
    return float(low)


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """Where exp overflows in each dtype, and the softmax on both sides of it."""
    check_sizes(sizes, 1, 2)
    rng = np.random.default_rng(seed)
    # Multiples of 1/4: x + 500 is exact even in float16, so that the true softmax stays the same.
    x = [rng.integers(-12, 12, n).astype(np.float64) / 4 for n in sizes]
    rows, checks = [], []
    for dtype in DTYPES:
        name, limit = dtype.__name__, largest_argument(dtype)
        ordinary = [row.astype(dtype) for row in x]
        high = [(row + 500 if dtype is np.float16 else row + 1000).astype(dtype) for row in x]
        ulp = float(np.finfo(dtype).eps)
        apart = max(
            float(abs(naive_softmax(a).astype(float) - reference.softmax(a)).max())
            for a in ordinary
        )
        broken = sum(int(np.isnan(naive_softmax(a)).any()) for a in high)
        with np.errstate(all="ignore"):
            moved = [abs(reference.softmax(a).astype(float) - reference.softmax(b).astype(float))
                     for a, b in zip(high, ordinary, strict=True)]  # fmt: skip
        shift = float(np.max([m.max() for m in moved]))
        rows.append((name, f"{limit:.2f}", apart, f"{broken} of {len(high)}", shift))
        checks += [
            Check(f"{name}: exp is infinite just above {LIMITS[name]}", f"{limit:.4f}",
                  abs(limit - LIMITS[name]) < 0.01),
            Check(f"{name}: with the maximum subtracted the result is the same to rounding",
                  f"{apart:.2g}", apart <= 4 * ulp),
            Check(f"{name}: rows near {500 if dtype is np.float16 else 1000} are NaN without it, "
                  "and with it equal to the ordinary ones", f"{broken} of {len(high)} rows "
                  f"are NaN; with it they differ by {shift:.2g}",
                  broken == len(high) and shift == 0),
        ]  # fmt: skip
    checks.append(_engines(seed))

    def draw() -> Any:
        figure, (axis,) = panels(["largest weight of the row (0, s), float32"])
        s = np.arange(0, 200, 2, dtype=np.float32)
        pairs = np.stack([np.zeros_like(s), s], axis=1)
        series = {"maximum subtracted": reference.softmax(pairs).max(axis=1).tolist(),
                  "as written": naive_softmax(pairs).max(axis=1).tolist()}  # fmt: skip
        lines(axis, s.tolist(), series, "score s", "weight")
        for line, width in zip(axis.get_lines(), (6, 2), strict=True):
            line.set(marker="", linewidth=width)
        axis.axvline(LIMITS["float32"], color="#8a8f98", linestyle=":")
        return figure

    alone = reference.softmax(np.array([100, 0, -100], np.float32))
    return Result(
        name="overflow", question=QUESTION,
        table=Table(("dtype", "exp overflows above", "ordinary rows differ by",
                     "high rows NaN as written", "moved with maximum subtracted"), rows),
        verdict=Verdict(tuple(checks)),
        notes=("float16 has only halves near 1000: its high rows are the ordinary ones + 500.",),
        exercise="The maximum is subtracted, so no exponential is above 1. Can one still go wrong "
        "below: what are the weights of the scores 100, 0, −100 in float32?",
        answer=f"{alone[0]:.3g}, {alone[1]:.3g}, {alone[2]:.3g}. The last one underflows to 0: "
        "what is lost is below the smallest number of the dtype, and nothing becomes NaN.",
        draw=draw,
    )  # fmt: skip


def _engines(seed: int) -> Check:
    """Every way to call attention, on scores near 1000."""
    q, k, v = np.random.default_rng(seed).standard_normal((3, 5, 7))
    q, k = 1000 * q / abs(q @ k.T).max(), k
    outputs = [regard.attention(q, k, v, scale=1.0, engine=e) for e in (None, "reference", "tiled")]
    apart = max(float(abs(out - outputs[0]).max()) for out in outputs)
    finite = all(np.isfinite(out).all() for out in outputs)
    return Check("attention with scores of 1000 is finite, on each engine the same",
                 f"{apart:.2g} apart", bool(finite) and apart < 1e-9)  # fmt: skip
