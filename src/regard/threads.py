"""How many threads regard may use."""

from __future__ import annotations

import os

__all__ = ["get_num_threads", "set_num_threads"]

_chosen: int | None = None


def get_num_threads() -> int:
    """The number of threads that the native engine may use.

    What `set_num_threads` was given; else OMP_NUM_THREADS; else the cores this process may run on.
    The reference and tiled engines run on NumPy, whose linear algebra library has threads of its
    own: how many is its own setting (OMP_NUM_THREADS, read when NumPy is imported).

    >>> get_num_threads() >= 1
    True
    """
    return _chosen or _from_environment() or _cores()


def set_num_threads(n: int) -> None:
    """Set what `get_num_threads` answers, for the whole process.

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
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
