"""Timing several functions beside each other, fairly, on a shared machine.

Each in its turn: a pause, so that the threads of whoever ran before go to sleep; a call to warm up;
then calls for a fifth of a second. Five rounds, and the median of all calls. Only the ratios
within one run mean anything.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

PAUSE = 0.05  # seconds
SPELL = 0.2
ROUNDS = 5


def medians(functions: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of a call of each function, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            time.sleep(PAUSE)
            function()
            times[name] += _spell(function)
    return {name: statistics.median(each) for name, each in times.items()}


def _spell(function: Callable[[], object]) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + SPELL
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return times
