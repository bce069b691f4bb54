"""Counting, fitting, and timing for the experiments. A verdict rests on counts, not on a clock."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence

import numpy as np

ROUNDS = 5
SPELL = 1.0  # seconds


def medians(functions: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds of a call of each, warmed up, in turns: the median of five, or of what fits."""
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    begin = time.perf_counter()
    for turn in range(ROUNDS):
        if turn and time.perf_counter() - begin > SPELL:
            break
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(each) for name, each in times.items()}


def check_sizes(sizes: Sequence[int], count: int = 1, least: int = 1) -> None:
    """A ValueError that says what the sizes of an experiment must be."""
    if len(sizes) < count or min(sizes) < least:
        raise ValueError(
            f"sizes must be {count} or more numbers, each at least {least}, got {tuple(sizes)}"
        )


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The power p of the law costs = c · sizes^p that fits best, on logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def peak_bytes(function: Callable[[], object]) -> int:
    """The most memory that Python and NumPy held at once during a call, beyond that before it."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
