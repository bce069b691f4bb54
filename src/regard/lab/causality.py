"""causality: a token cannot hear what comes after it."""

from __future__ import annotations

from typing import Any

import numpy as np

import regard

from ..predicates import Array
from .drawing import matrix, panels
from .measure import check_sizes
from .result import Check, Result, Table, Verdict

QUESTION = "Change one token. Which rows of the output move?"
SIZES = (24,)
SIZES_ARE = "tokens N"
D = 8


def attend(q: Array, k: Array, v: Array, causal: bool, engine: str) -> Array:
    """The call that is put to the test."""
    return regard.attention(q, k, v, causal=causal, engine=engine)


def engines() -> list[str]:
    """Those that can do the call here; the first is the default one."""
    x = np.zeros((2, 2), np.float32)
    default = regard.explain(x, x, x).engine
    return list(dict.fromkeys([default, "tiled", "reference"]))


def moves(N: int, causal: bool, engine: str, seed: int) -> Array:
    """(N, N): entry (i, j) is how far row i of the output moves when token j is replaced."""
    rng = np.random.default_rng(seed)
    q, k, v, *new = list(rng.standard_normal((6, N, D), dtype=np.float32))
    was = attend(q, k, v, causal, engine)
    moved = np.empty((N, N))
    for j in range(N):
        at = np.arange(N)[:, None] == j
        a, b, c = (np.where(at, y, x) for x, y in zip((q, k, v), new, strict=True))
        moved[:, j] = abs(attend(a, b, c, causal, engine) - was).max(axis=1)
    return moved


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """Every token replaced in turn, on each engine, causal and not."""
    check_sizes(sizes, 1, 3)
    N = sizes[-1]
    names = engines()
    found = {name: moves(N, True, name, seed) for name in names}
    control = moves(N, False, names[0], seed)
    future = np.triu(np.ones((N, N), bool), 1)  # row i, a token j > i
    rows = [
        (name, "causal", float(m[future].max()), float(m[~future].min()))
        for name, m in found.items()
    ] + [(names[0], "not causal", float(control[future].max()), float(control[~future].min()))]
    first = found[names[0]][future].max()
    checks = [
        Check(f"{name}: a future token moves no earlier row" + ("" if i else ", not by a bit"),
              f"largest move {m[future].max():.1g}",
              bool(m[future].max() <= (1e-6 if i else 0)))
        for i, (name, m) in enumerate(found.items())
    ] + [
        Check("a token moves its own row and the later ones",
              f"smallest move {min(m[~future].min() for m in found.values()):.2g}",
              all(m[~future].min() > 0 for m in found.values())),
        Check("without causal=True the future is heard",
              f"largest move {control[future].max():.2f}", bool(control[future].max() > 1e-3)),
    ]  # fmt: skip

    def draw() -> Any:
        figure, axes = panels(["causal: how far row i moves", "not causal"], height=3.4)
        for axis, each in zip(axes, (found[names[0]], control), strict=True):
            matrix(figure, axis, each)
            axis.set_xlabel("replaced token j")
            axis.set_ylabel("output row i")
        return figure

    still = int((control[future] == 0).sum())
    bits = "to the bit" if first == 0 else f"to {first:.2g}"
    return Result(
        name="causality", question=QUESTION,
        table=Table(("engine", "", "earlier rows move at most", "later ones at least"), rows),
        verdict=Verdict(tuple(checks)),
        notes=(
            f"{names[0]} keeps the earlier rows {bits}. The tiled and the reference engine stand "
            "on NumPy's linear algebra library, which promises no bits: they are held to 1e-6.",
        ),
        exercise=f"Replace token {N - 1}, the last of {N}. How many rows move when causal, and "
        "how many when not?",
        answer=f"{np.count_nonzero(found[names[0]][:, -1])} and "
        f"{np.count_nonzero(control[:, -1])}; of the {future.sum()} pairs above the diagonal "
        f"{still} stand still when not causal.",
        draw=draw,
    )  # fmt: skip
