"""What a call holds beyond its inputs and its output: the growth of a fresh process at its peak."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from ..threads import get_num_threads
from .case import draw, ours
from .rows import Row

PROC = Path("/proc/self")


def megabytes_a_thread(row: Row) -> float | None:
    """Measured in a process of its own; None where the system does not tell (no Linux)."""
    if not (PROC / "clear_refs").exists():
        return None
    told = {**asdict(replace(row, floors=(), baseline=None)), "threads": get_num_threads()}
    command = [sys.executable, "-m", __name__, json.dumps(told)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(run.stdout) / get_num_threads()


def _grown(row: Row) -> float:
    """Megabytes that the process grows by during a call; threads and output were there before."""
    small = draw(replace(row, Nq=257, Nk=257))
    ours(small)()
    case = draw(row)
    call = ours(case, out=np.zeros_like(case.query))
    (PROC / "clear_refs").write_text("5")  # the peak counts from now
    before = _kilobytes("VmRSS")
    call()
    return (_kilobytes("VmHWM") - before) / 1e3


def _kilobytes(name: str) -> int:
    lines = (PROC / "status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    from ..threads import set_num_threads

    given = json.loads(sys.argv[1])
    set_num_threads(given.pop("threads"))
    print(_grown(Row(**{**given, "lengths": tuple(given["lengths"]), "floors": ()})))
