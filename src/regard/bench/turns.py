"""Timing several functions beside each other, fairly, on a shared machine.

Each in its turn: a pause, so that the threads of whoever ran before go to sleep; a call to warm up;
then calls for a fifth of a second. Five rounds, and the median of all calls. A call that takes as
long as that warms up in the first round alone. Three rounds do for whoever takes a second, whose
first call counts too, or twice as long as the first function. Only the ratios within one run mean
anything.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Pace(NamedTuple):
    """How long is measured."""

    rounds: int = 5
    spell: float = 0.2  # seconds of calls, in each round
    pause: float = 0.05
    long: float = 1.0  # a call of so many seconds is slow
    slow_rounds: int = 3


FULL = Pace()
QUICK = Pace(rounds=2, spell=0.05, long=0.3, slow_rounds=1)


def medians(functions: Mapping[str, Callable[[], object]], pace: Pace = FULL) -> dict[str, float]:
    """The median time of a call of each function, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    warm = dict.fromkeys(functions, 0.0)  # how long the call to warm up took
    for turn in range(pace.rounds):
        slow = _slow(times, pace) if turn >= pace.slow_rounds else set()
        for name, function in functions.items():
            if name in slow:
                continue
            time.sleep(pace.pause)
            if turn == 0 or warm[name] < pace.spell:
                warm[name] = _time(function)
            if turn == 0 and warm[name] >= pace.long:
                times[name].append(warm[name])
            else:
                times[name] += spell(function, pace.spell)
    return {name: statistics.median(each) for name, each in times.items()}


def _slow(times: Mapping[str, list[float]], pace: Pace) -> set[str]:
    """Those that take a second, or twice as long as the first."""
    seconds = {name: statistics.median(each) for name, each in times.items()}
    first = next(iter(seconds.values()))
    return {name for name, t in seconds.items() if t >= pace.long or t > 2 * first}


def spell(function: Callable[[], object], seconds: float) -> list[float]:
    """The times of calls, one or more, for so many seconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        times.append(_time(function))
    return times


def _time(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
