"""What several test files share: the engines, random calls, and how two results are compared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard import reference
from regard.engines import ENGINES as ALL_ENGINES
from regard.engines.native import PAIRS

ENGINES = [name for name in ALL_ENGINES if name not in PAIRS]  # those that take every dtype
NATIVE = [name for name in ENGINES if name.startswith("native")]
DTYPES = ["float16", "bfloat16", "float32", "float64"]
KINDS = [(name, dtype) for name in NATIVE for dtype in DTYPES] + [
    (name, "bfloat16") for name in PAIRS
]
EPSILON = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}


def draw(seed, *shapes, dtype=np.float64, low=-2.0, high=2.0):
    """Uniform arrays of the shapes."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, shape).astype(dtype) for shape in shapes]


def draw_call(seed, *, lead=(2,), H=3, Hkv=None, Nq=7, Nk=7, D=5, Dv=11, dtype=np.float64):
    """Query, key and value of distinct prime sizes."""
    Hkv = H if Hkv is None else Hkv
    return draw(seed, (*lead, H, Nq, D), (*lead, Hkv, Nk, D), (*lead, Hkv, Nk, Dv), dtype=dtype)


def truth(query, key, value, **options) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Output, weights and lse in float64."""
    wide = (x.astype(np.float64) for x in (query, key, value))
    return reference.scaled_dot_product_attention(*wide, **options)


def assert_same_pattern(actual: Any, expected: Any) -> None:
    """NaN, +inf and -inf in the same places: compared before any number is."""
    for name, where in (("NaN", np.isnan), ("+inf", np.isposinf), ("-inf", np.isneginf)):
        np.testing.assert_array_equal(
            where(np.asarray(actual, np.float64)),
            where(np.asarray(expected, np.float64)),
            err_msg=f"places of {name}",
        )


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    """Patterns first, then the largest absolute difference of the finite numbers."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    assert_same_pattern(actual, expected)
    finite = np.isfinite(expected)
    difference = np.abs(actual[finite] - expected[finite]).max(initial=0)
    assert difference <= tolerance, f"differs by {difference}, tolerance {tolerance}"


def largest_score(query, key) -> float:
    """max |score|, for the accuracy rule."""
    with np.errstate(all="ignore"):
        group = query.shape[-3] // key.shape[-3]
        k = np.repeat(key.astype(np.float64), group, axis=-3)
        scores = query.astype(np.float64) @ k.swapaxes(-2, -1) / query.shape[-1] ** 0.5
    return float(np.abs(scores[np.isfinite(scores)]).max(initial=0))


def run_python(code: str, **environment: str) -> str:
    """What a program prints, run in a process of its own in which warnings are errors."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)], capture_output=True,
        text=True, timeout=300, env={**os.environ, **environment},
    )  # fmt: skip
    assert ran.returncode == 0, f"exit code {ran.returncode}: {ran.stderr[-3000:]}"
    return ran.stdout


def compile_c(folder: Path, source: str) -> str:
    """A shared library of some C, for what Python cannot ask of the system."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform == "win32":
        pytest.skip("a C compiler of a Unix system is not here")
    (folder / "helper.c").write_text(textwrap.dedent(source))
    library = folder / "helper.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", library, folder / "helper.c", "-ldl"]
    subprocess.run(command, check=True)
    return str(library)


def wait_for_ctrl_c(call: str, after: float) -> float:
    """Seconds from Ctrl-C, sent so long after a call began, to its KeyboardInterrupt."""
    return float(
        run_python(f"""
            import signal, threading, time
            import numpy as np, regard
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
            sent = []
            def interrupt():
                sent.append(time.perf_counter())
                signal.raise_signal(signal.SIGINT)
            threading.Timer({after}, interrupt).start()
            try:
                {call}
            except KeyboardInterrupt:
                print(time.perf_counter() - sent[0])
            y = np.ones((2, 3), np.float32)
            assert np.array_equal(regard.attention(y, y, y), y)  # the next call works
        """)
    )
