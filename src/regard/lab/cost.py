"""cost: what grows with the square of the text, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import regard

from .. import reference
from ..predicates import Array
from .drawing import lines, panels
from .measure import check_sizes, exponent, medians, peak_bytes
from .result import Check, Result, Table, Verdict

QUESTION = "A text twice as long: what does attention cost in time and memory?"
SIZES = (256, 512, 1024, 2048, 4096, 8192)
SIZES_ARE = "tokens T"
LESSON_LIMIT = 2048  # the lesson's own loop goes so far
HS = 64


def lesson(T: int, rng: np.random.Generator) -> Array:
    """The lesson's loop: the weights are drawn inside of what is timed."""
    X = rng.standard_normal((T, 512))
    Wq, Wk, Wv = (rng.standard_normal((512, HS)) for _ in range(3))
    return reference.attention(X, Wq, Wk, Wv)[0]


def formed(q: Array, k: Array, v: Array) -> Array:
    """One head, causal, by the whole matrix of scores."""
    scores = q @ k.T * np.float32(HS**-0.5)
    scores = np.where(np.tri(len(q), dtype=bool), scores, np.float32(-np.inf))
    return reference.softmax(scores) @ v


def attend(q: Array, k: Array, v: Array, engine: str) -> Array:
    """The same by an engine."""
    return regard.attention(q, k, v, causal=True, engine=engine)


def engines() -> list[str]:
    """tiled, and the native one where there is one."""
    x = np.zeros((2, 2), np.float32)
    return list(dict.fromkeys(["tiled", regard.explain(x, x, x).engine]))


def memory(way: Callable[[], Array], q: Array, name: str) -> int:
    """Peak bytes that NumPy held, and those that the native engine says it holds beside them."""
    seen = peak_bytes(way)
    if name.startswith("native"):
        seen += regard.explain(q, q, q, causal=True, engine=name).memory
    return seen


def pairs(N: int) -> int:
    """Entries of one head's matrix of scores; nothing of that size is made."""
    x = np.broadcast_to(np.float32(0), (N, HS))
    return regard.explain(x, x, x).pairs


def gpt2_score_bytes(N: int) -> int:
    """Of all scores of GPT-2 small: 12 layers, 12 heads of 64, float32."""
    x = np.broadcast_to(np.float32(0), (12, N, HS))
    return 12 * regard.explain(x, x, x).formed


def measure(T: int, seed: int) -> tuple[dict[str, float], dict[str, int], float]:
    """Milliseconds and bytes of each way at a length; how far apart their outputs are."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((3, T, HS), dtype=np.float32)
    ways: dict[str, Callable[[], Array]] = {"formed": lambda: formed(q, k, v)}
    ways |= {name: partial(attend, q, k, v, name) for name in engines()}
    outputs = [way() for way in ways.values()]
    apart = max(float(abs(output - outputs[0]).max()) for output in outputs)
    held = {name: memory(way, q, name) for name, way in ways.items()}
    if T <= LESSON_LIMIT:
        ways["lesson"] = lambda: lesson(T, rng)
    return medians(ways), held, apart


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """Times and memory of the lesson's loop, the formed matrix and the engines."""
    check_sizes(sizes, 2, 16)
    found = {T: measure(T, seed) for T in sizes}
    names = ["formed", *engines()]
    columns = ("T", "entries of a head", "lesson, ms", *(f"{n}, ms" for n in names),
               *(f"{n}, MB" for n in names))  # fmt: skip
    rows = [
        (T, pairs(T), f"{ms['lesson']:.1f}" if "lesson" in ms else "",
         *(f"{ms[n]:.1f}" for n in names), *(f"{held[n] / 1e6:.2f}" for n in names))
        for T, (ms, held, _) in found.items()
    ]  # fmt: skip
    powers = {n: exponent(sizes, [found[T][1][n] for T in sizes]) for n in names}
    gpt2 = {N: gpt2_score_bytes(N) // 2**20 for N in (512, 1024, 2048, 4096)}
    worst = max(apart for _, _, apart in found.values())
    checks = (
        Check("the ways agree", f"{worst:.2g} apart at most", worst < 1e-5),
        Check("memory of the formed matrix grows with the square",
              f"exponent {powers['formed']:.2f}", powers["formed"] > 1.8),
        *(Check(f"memory of {n} grows no more than linearly", f"exponent {powers[n]:.2f}",
                powers[n] < 1.2) for n in names[1:]),
        Check("entries of a head: 10⁶ at T = 1,000 and 10¹⁰ at 100,000",
              f"{pairs(1000):,} and {pairs(100_000):,}",
              (pairs(1000), pairs(100_000)) == (10**6, 10**10)),
        Check("scores of GPT-2 small at 512, 1k, 2k, 4k take 144, 576, 2304, 9216 MiB",
              ", ".join(f"{mib}" for mib in gpt2.values()),
              list(gpt2.values()) == [144, 576, 2304, 9216]),
    )  # fmt: skip

    def draw() -> Any:
        figure, (left, right) = panels(["milliseconds (median)", "megabytes at the peak"])
        times = {n: [found[T][0][n] for T in sizes if n in found[T][0]] for n in ["lesson", *names]}
        times = {n: each for n, each in times.items() if each}
        lines(left, sizes, times, "tokens T", "", log=True)
        lines(right, sizes, {n: [found[T][1][n] / 1e6 for T in sizes] for n in names}, "tokens T",
              "", log=True)  # fmt: skip
        return figure

    x = np.empty((63246, HS), np.float32)  # never touched: a question needs no numbers
    told = regard.explain(x, x, x, causal=True, engine="tiled")
    return Result(
        name="cost", question=QUESTION, table=Table(columns, rows), verdict=Verdict(checks),
        notes=(
            "Exponents fitted to the times, on this machine and this once: "
            + ", ".join(_fitted(found, name) for name in ["lesson", *names])
            + ". The lesson's loop also projects, which is linear in T, so its exponent is below 2 "
            "until the matrix dominates. No verdict rests on a time.",
            "Each doubling multiplied the formed matrix's time by "
            + ", ".join(_ratios([found[T][0]["formed"] for T in sizes])) + ".",
            *_delayed(found[sizes[-1]][0]),
        ),
        exercise="At which T does the matrix of one float32 head outgrow 16 GB, and what does the "
        "tiled engine hold there?",
        answer=f"At √(16·10⁹ / 4) ≈ {int((16e9 / 4) ** 0.5):,}: {told.formed / 1e9:.1f} GB "
        f"formed, {told.memory / 1e6:.1f} MB held by tiles.",
        draw=draw,
    )  # fmt: skip


def _fitted(found: dict[int, Any], name: str) -> str:
    times = {T: ms[name] for T, (ms, _, _) in found.items() if name in ms}
    if len(times) < 2:
        return f"{name} -"
    return f"{name} {exponent(list(times), list(times.values())):.2f}"


def _delayed(ms: dict[str, float]) -> list[str]:
    """A note where the tiled engine was slower than the matrix, as on a machine that is busy."""
    if ms["tiled"] < ms["formed"]:
        return []
    slower = ms["tiled"] / ms["formed"]
    return [
        f"In this run tiled took {slower:.1f} times as long as the formed matrix. It makes many "
        "small products, at each of which the threads of NumPy's library wait for each other: "
        "where other work keeps the cores busy, that takes longer than the product."
    ]


def _ratios(times: list[float]) -> list[str]:
    return [f"{b / a:.1f}" for a, b in pairwise(times)]
