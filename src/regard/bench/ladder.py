"""The rungs of the ladder beside each other: `regard bench --ladder`.

Against the engines stands what a good NumPy programmer writes first: a few lines that form the
whole matrix, check nothing and know nothing but causal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..call import attention, explain
from ..engines.native import SETS
from ..predicates import Array
from .turns import medians

SHAPES = [
    (1, 12, 512, 64),
    (1, 12, 1024, 64),
    (1, 12, 2048, 64),
    (1, 1, 4096, 64),
    (1, 4, 4096, 64),
]


def a_few_lines(query: Array, key: Array, value: Array, causal: bool) -> Array:
    """Attention by forming the matrix, as plainly and as fast as NumPy has it."""
    scores = query @ key.swapaxes(-1, -2) * np.float32(query.shape[-1] ** -0.5)
    if causal:
        seen = np.tri(scores.shape[-1], dtype=np.bool_)
        scores = np.where(seen, scores, np.float32(-np.inf))
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    output: Array = scores @ value
    return output


def measure(shape: tuple[int, ...], causal: bool) -> dict[str, float]:
    """Milliseconds of each, once their answers agree."""
    q, k, v = np.random.default_rng(0).standard_normal((3, *shape), dtype=np.float32)
    functions: dict[str, Callable[[], Array]] = {
        "a few lines": lambda: a_few_lines(q, k, v, causal),
        "reference": lambda: attention(q, k, v, causal=causal, engine="reference"),
        "tiled": lambda: attention(q, k, v, causal=causal, engine="tiled"),
        **({"native": lambda: attention(q, k, v, causal=causal, engine="native")} if SETS else {}),
    }
    expected = functions["reference"]()
    for name, function in functions.items():
        np.testing.assert_allclose(function(), expected, rtol=0, atol=1e-5, err_msg=name)
    return {name: 1e3 * seconds for name, seconds in medians(functions).items()}


def row(shape: tuple[int, ...], causal: bool) -> str:
    """One line of the table."""
    ms = measure(shape, causal)
    q = np.empty(shape, np.float32)
    memory = [explain(q, q, q, causal=causal, engine=name) for name in ("tiled", *SETS[-1:])]
    cells = [
        str(shape),
        "causal" if causal else "full",
        *(f"{each:.1f}" for each in ms.values()),
        *(f"{ms['a few lines'] / ms[name]:.2f} ×" for name in ("tiled", "native") if name in ms),
        f"{memory[0].formed / 1e6:.0f} MB",
        *(f"{told.memory / 1e6:.1f} MB" for told in memory),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table in Markdown, a row as it is measured."""
    engines = ["tiled", *(["native"] if SETS else [])]
    heads = ["shape", "", *(f"{name}, ms" for name in ("a few lines", "reference", *engines))]
    heads += [f"{name} faster than a few lines" for name in engines]
    heads += ["memory: matrix", *engines]
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for shape in SHAPES:
        for causal in (False, True):
            print(row(shape, causal), flush=True)
