"""What it costs to look: `python -m regard.bench.looking`.

The passes of the native engine beside a forward call, and 100,000 tokens in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np

from ..call import attention, look
from .turns import QUICK, medians

LONG = """
import resource, time
import numpy as np
import regard
q, k, v = np.random.default_rng(0).standard_normal((3, 100_000, 64), dtype=np.float32)
before = time.perf_counter()
attended = regard.look(q, k, v, causal=True)
between = time.perf_counter()
found = attended.summary("received", pooled=(512, 512))
after = time.perf_counter()
assert abs(found.received.sum() - 100_000) < 1 and found.pooled.shape == (512, 512)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
print(f"look {between - before:.1f} s, received and pooled(512, 512) {after - between:.1f} s, "
      f"peak {peak:.0f} MB")
"""


def measure(N: int, D: int = 64) -> dict[str, float]:
    """Milliseconds of a forward call and of each pass, one head, each query seeing all keys."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, N, D), dtype=np.float32)
    attended = look(q, k, v)
    functions: dict[str, Callable[[], object]] = {
        "forward": lambda: attention(q, k, v),
        "top(10)": lambda: attended.top(10),
        "received": attended.received,
        "entropy": attended.entropy,
        "pooled(512, 512)": lambda: attended.pooled(512, 512),
        "by_distance": attended.by_distance,
        "all in one": lambda: attended.summary(
            "received", "entropy", "by_distance", top=10, pooled=(512, 512)
        ),
    }
    np.testing.assert_allclose(attended.received().sum(), N, rtol=1e-4)
    return {name: 1e3 * seconds for name, seconds in medians(functions, QUICK).items()}


def main() -> None:
    print("| N | pass | ms | of a forward call |\n|---|---|---|---|")
    for N in (8192, 32768):
        times = measure(N)
        for name, ms in times.items():
            print(f"| {N} | {name} | {ms:.0f} | {ms / times['forward']:.2f} × |", flush=True)
    long = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=True)
    print(f"\n100,000 tokens, one head, D = 64, causal: {long.stdout.strip()}")


if __name__ == "__main__":
    main()
