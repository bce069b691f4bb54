"""Timing several functions beside each other, fairly, on a shared machine.

Each in its turn: a pause, so that the threads of whoever ran before go to sleep; a call to warm up;
then calls for a fifth of a second. Five rounds, and the median of all calls. A call that takes as
long as that warms up in the first round alone, and one of a second or more is made in three rounds.
Only the ratios within one run mean anything.
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
    long: float = 1.0  # a call of so many seconds is made in fewer rounds
    long_rounds: int = 3


FULL = Pace()
QUICK = Pace(rounds=2, spell=0.05, long=0.3, long_rounds=1)


def medians(functions: Mapping[str, Callable[[], object]], pace: Pace = FULL) -> dict[str, float]:
    """The median time of a call of each function, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    warm = dict.fromkeys(functions, 0.0)  # how long the call to warm up took
    for turn in range(pace.rounds):
        for name, function in functions.items():
            if warm[name] >= pace.long and turn >= pace.long_rounds:
                continue
            time.sleep(pace.pause)
            if turn == 0 or warm[name] < pace.spell:
                warm[name] = _time(function)
            times[name] += spell(function, pace.spell)
    return {name: statistics.median(each) for name, each in times.items()}


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
