"""The native engine beside PyTorch in one process: `python -m regard.bench.peers`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib import import_module
from math import prod
from typing import Any

import numpy as np

from ..call import attention
from ..threads import get_num_threads
from .turns import medians

SHAPES = [(1, 12, 128, 64), (1, 12, 512, 64), (1, 12, 2048, 64), (1, 8, 4096, 128)]


def row(torch: Any, shape: tuple[int, ...], causal: bool) -> str:
    """One line of the table, once the answers agree."""
    q, k, v = np.random.default_rng(0).standard_normal((3, *shape), dtype=np.float32)
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    peer = torch.nn.functional.scaled_dot_product_attention
    functions: dict[str, Callable[[], Any]] = {
        "regard": lambda: attention(q, k, v, causal=causal),
        "PyTorch": lambda: peer(*tensors, is_causal=causal),
    }
    np.testing.assert_allclose(functions["regard"](), functions["PyTorch"]().numpy(), atol=1e-5)
    seconds = medians(functions)
    work = 4 * prod(shape) * shape[-2] * (0.5 if causal else 1)  # operations
    rates = " | ".join(f"{work / each / 1e9:.0f}" for each in seconds.values())
    times = " | ".join(f"{1e3 * each:.2f}" for each in seconds.values())
    ratio = seconds["PyTorch"] / seconds["regard"]
    return f"| {shape} | {'causal' if causal else 'full'} | {times} | {ratio:.2f} × | {rates} |"


def main() -> None:
    """Print a table in Markdown, and the rate of a large matrix product in the same run."""
    argparse.ArgumentParser(prog="python -m regard.bench.peers", description=__doc__).parse_args()
    os.environ["OMP_WAIT_POLICY"] = "passive"  # or idle threads take the next one's time
    torch = import_module("torch")
    torch.set_num_threads(get_num_threads())
    print("| shape | | regard, ms | PyTorch, ms | ratio | regard, GFLOP/s | PyTorch, GFLOP/s |")
    print("|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        for causal in (False, True):
            print(row(torch, shape, causal), flush=True)
    a = np.random.default_rng(0).standard_normal((2048, 2048), dtype=np.float32)
    seconds = medians({"product": lambda: a @ a})["product"]
    print(
        f"\nNumPy's product of two 2048 x 2048 matrices: {2 * 2048**3 / seconds / 1e9:.0f} GFLOP/s"
    )


if __name__ == "__main__":
    main()
