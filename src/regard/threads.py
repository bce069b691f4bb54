"""How many threads regard may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from math import ceil

__all__ = ["get_num_threads", "set_num_threads"]

_chosen: int | None = None


def get_num_threads() -> int:
    """The number of threads that the native engine may use.

    What `set_num_threads` was given; else OMP_NUM_THREADS; else the cores this process may run on,
    or what the quota of its container comes to, rounded up, where that is less. The quota is read
    once, the cores each time.
    The reference and tiled engines run on NumPy, whose linear algebra library has threads of its
    own: how many is its own setting (OMP_NUM_THREADS, read when NumPy is imported).

    >>> get_num_threads() >= 1
    True
    """
    return _chosen or _from_environment() or _cores()


def set_num_threads(n: int) -> None:
    """Set what `get_num_threads` answers, for the whole process and at once.

    Calls that already run go on with the number they began with.

    Parameters
    ----------
    n : int
        1 or more.
    """
    global _chosen
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"n must be an int, got {n!r}")
    if not 1 <= n < 2**31:
        raise ValueError(f"n must be 1 or more, and less than 2**31, got {n}")
    _chosen = n


def _from_environment() -> int | None:
    """OMP_NUM_THREADS, of which a list ("4,2") states the outermost first; nonsense is ignored."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and 0 < int(first) < 2**31 else None


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, _granted())


@cache
def _granted(root: str = "") -> int:
    """The cores' worth of time that control groups grant this process, rounded up.

    A limit holds for all below it: the process's own group counts and each around it. A container
    often sees its own group as the top of the tree, while its path is told from the host's top:
    folders that are not there have no limit.
    """
    groups = (group for line in _lines(f"{root}/proc/self/cgroup") for group in _groups(root, line))
    return ceil(min(map(_limit, groups), default=2**31))


def _groups(root: str, line: str) -> Iterator[str]:
    """The folders of a line "number:controllers:path", from the group up; version 2 names none."""
    _, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if controllers and "cpu" not in controllers.split(","):
        return
    below = path.strip("/").split("/")
    for top in (controllers, "cpu" if controllers else "unified"):
        for n in range(len(below), -1, -1):
            yield "/".join((root, "sys/fs/cgroup", top, *below[:n]))


def _limit(group: str) -> float:
    """Quota by period in one group's folder, in microseconds both; 2**31 where there is none."""
    text = " ".join(_lines(f"{group}/cpu.max")) or " ".join(
        line for name in ("quota", "period") for line in _lines(f"{group}/cpu.cfs_{name}_us")
    )
    numbers = [int(word) for word in text.split() if word.isdecimal()]  # "max" and -1: no limit
    return numbers[0] / numbers[1] if len(numbers) == 2 and min(numbers) > 0 else 2**31


def _lines(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            return lines.read().splitlines()
    except OSError:
        return []
