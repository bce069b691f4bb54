"""What this machine is, and what it can do at most: multiply-adds, reading, a matrix product."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..engines import native
from ..predicates import Array
from ..threads import get_num_threads
from .turns import FULL, Pace, medians

__all__ = ["OWN_VERSIONS", "PRODUCT", "Limits", "describe", "limits", "product", "reading"]

OWN_VERSIONS = ("regard", "Python", "NumPy")  # of `describe`; after them come the peers'
STEPS = 2**20  # of the loop of multiply-adds: about 10 ms
SQUARE = 2048  # rows and columns of the matrices
PRODUCT = 2 * SQUARE**3  # operations of their product


@dataclass(frozen=True)
class Limits:
    """What the machine does at most, all threads together."""

    peak: dict[str, float] = field(default_factory=dict)  # dtype → GFLOP/s of multiply-adds
    read: float | None = None  # GB/s
    sgemm: float | None = None  # GFLOP/s of NumPy's product of two matrices


def limits(pace: Pace = FULL) -> Limits:
    """The limits, measured now."""
    loops = _loops()
    operations = {name: float(loop()) for name, loop in loops.items()}
    big = np.ones(2**26, np.float32)
    times = medians({**loops, "read": reading(big), "sgemm": product()}, pace)
    return Limits(
        peak={name: operations[name] / times[name] / 1e9 for name in loops},
        read=big.nbytes / times["read"] / 1e9,
        sgemm=PRODUCT / times["sgemm"] / 1e9,
    )


def _loops() -> dict[str, Callable[[], int]]:
    """Multiply-adds in registers, by the best instruction set; each returns its operations."""
    if not native.SETS:
        return {}
    kinds = [("float32", native.SETS[-1]), ("float64", native.SETS[-1])]
    kinds += [("bfloat16", name) for name in native.PAIRS]
    threads, run = get_num_threads(), _native().multiply_adds
    return {kind: partial(run, name, STEPS, kind == "float64", threads) for kind, name in kinds}


def _native() -> Any:
    return import_module("regard.engines._native")


def product() -> Callable[[], Array]:
    """NumPy's product of two square float32 matrices."""
    a, b = np.random.default_rng(0).standard_normal((2, SQUARE, SQUARE), dtype=np.float32)
    return lambda: a @ b


def reading(*arrays: Array) -> Callable[[], object]:
    """Every byte of contiguous arrays read once, by all threads, as fast as it is known how."""
    threads = get_num_threads()
    flat = [x.reshape(-1).view(np.uint8) for x in arrays]
    if native.SETS:
        module, name = _native(), native.SETS[-1]
        return lambda: [module.read(name, x, threads) for x in flat]
    parts = [part.view(np.float32) for x in flat for part in np.array_split(x, threads)]
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(np.sum, parts))


def describe(versions: dict[str, str]) -> dict[str, Any]:
    """The machine and what runs on it."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": get_num_threads(),
        "instruction_sets": [*native.SETS, *native.PAIRS],
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {
            "regard": __version__,
            "Python": platform.python_version(),
            "NumPy": f"{np.__version__} with {blas.get('name')} {blas.get('version')}",
            **versions,
        },
    }


def _cpu() -> str:
    """The processor's own name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
