"""tiling: the exact softmax of a row that is never seen whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import reference
from ..predicates import Array
from .drawing import lines, panels
from .measure import check_sizes, exponent
from .result import Check, Result, Table, Verdict

QUESTION = (
    "Can the softmax of a row be had tile by tile, with nothing but a running maximum and sum?"
)
SIZES = (64, 128, 256, 512)
SIZES_ARE = "tokens N"
D = 16
BLOCK, TILE = 16, 16  # queries and keys of a tile, where sizes are counted
State = tuple[Any, Any, Any]  # maximum (n, 1), sum (n, 1), weighted values (n, Dv)


@dataclass
class Counts:
    """What a walk reads, holds and multiplies, in numbers (not bytes)."""

    read: int = 0  # of keys and values
    held: int = 0  # at once, beside inputs and output
    multiplied: int = 0


def step(state: State, scores: Array, values: Array) -> State:
    """One tile more: what was carried is scaled to the new maximum, and the tile is added."""
    m, l, blend = state  # noqa: E741
    top = np.maximum(m, scores.max(axis=1, keepdims=True))
    carry = np.exp(m - top)
    p = np.exp(scores - top)
    return top, l * carry + p.sum(axis=1, keepdims=True), blend * carry + p @ values


def start(n: int, Dv: int) -> State:
    """Nothing seen yet."""
    return np.full((n, 1), -np.inf), np.zeros((n, 1)), np.zeros((n, Dv))


def by_tiles(q: Array, k: Array, v: Array, block: int, tile: int) -> tuple[Array, Counts]:
    """softmax(q·kᵀ/√D)·v, a block of queries along tiles of keys; and what it took."""
    output, counts = np.empty((len(q), v.shape[1])), Counts()
    for i in range(0, len(q), block):
        rows = q[i : i + block]
        state = start(len(rows), v.shape[1])
        for j in range(0, len(k), tile):
            keys, values = k[j : j + tile], v[j : j + tile]
            scores = rows @ keys.T / np.sqrt(q.shape[1])
            state = step(state, scores, values)
            counts.read += keys.size + values.size
            counts.held = max(counts.held, 2 * scores.size + sum(x.size for x in state))
            counts.multiplied += scores.size * (q.shape[1] + v.shape[1])
        output[i : i + block] = state[2] / state[1]
    return output, counts


def counts_of(N: int, block: int) -> Counts:
    """What N tokens take; the values do not matter."""
    x = np.zeros((N, D))
    return by_tiles(x, x, x, block, TILE)[1]


def row_of_eight(seed: int) -> tuple[Array, list[tuple[Any, ...]]]:
    """Eight scores in tiles of two: what is carried after each, as rows of a table."""
    scores = np.random.default_rng(seed).integers(-10, 20, (1, 8)) / 10 + np.arange(8) / 2
    state, rows = start(1, 1), []
    for j in range(0, 8, 2):
        before = state[0].item()
        tile = scores[:, j : j + 2]
        state = step(state, tile, np.zeros((2, 1)))
        carry = np.exp(before - state[0].item())
        rows.append((j // 2 + 1, ", ".join(f"{s:.1f}" for s in tile[0]), f"{state[0].item():.1f}",
                     f"{carry:.4f}", f"{state[1].item():.4f}"))  # fmt: skip
    weights = np.exp(scores - state[0]) / state[1]
    return np.concatenate([scores, weights]), rows


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """A row of eight by hand; every tile size; and the counts as the text grows."""
    check_sizes(sizes, 2, 2)
    (scores, weights), rows = row_of_eight(seed)
    off = float(abs(weights - reference.softmax(scores)).max())
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((3, sizes[0], D)) * 3
    truth = reference.scaled_dot_product_attention(q, k, v)[0]
    tiles = [(b, t) for b in (1, 5, sizes[0]) for t in (1, 2, 7, 16, sizes[0])]
    apart = max(float(abs(by_tiles(q, k, v, b, t)[0] - truth).max()) for b, t in tiles)
    counts = {N: counts_of(N, BLOCK) for N in sizes}
    double = counts_of(sizes[-1], 2 * BLOCK)
    power = {
        name: exponent(sizes, [getattr(counts[N], name) for N in sizes])
        for name in ("read", "multiplied")
    }
    held = [counts[N].held for N in sizes]
    less = counts[sizes[-1]].read / double.read
    checks = (
        Check("the row of eight: weights as by the whole row", f"{off:.2g} apart", off < 1e-12),
        Check(f"{len(tiles)} sizes of tiles give one output", f"{apart:.2g} apart", apart < 1e-12),
        Check("what is held does not grow with N", f"{', '.join(map(str, held))} numbers",
              max(held) == min(held)),
        Check("what is read of keys and values stays quadratic", f"exponent {power['read']:.2f}",
              abs(power["read"] - 2) < 0.05),
        Check("twice the block, half the reading", f"divided by {less:.2f}", 1.9 < less < 2.1),
        Check("arithmetic stays quadratic", f"exponent {power['multiplied']:.2f}",
              abs(power["multiplied"] - 2) < 0.01),
    )  # fmt: skip

    def draw() -> Any:
        figure, (axis,) = panels(["numbers read, held, multiplied"])
        series = {
            "multiplied": [counts[N].multiplied for N in sizes],
            "read": [counts[N].read for N in sizes],
            "a formed matrix would hold": [N * N for N in sizes],
            "held": held,
        }
        lines(axis, sizes, series, "tokens N", "", log=True)
        figure.set_size_inches(6, 3.4)
        return figure

    small = row_of_eight(seed + 1)[1]
    changes = sum(float(row[3]) < 1 for row in small[1:])
    return Result(
        name="tiling", question=QUESTION,
        table=Table(
            ("tile", "its scores", "maximum so far", "carried sum times", "sum so far"), rows
        ),
        verdict=Verdict(checks),
        notes=(
            "Memory: the footprint becomes linear (inputs and output; what is held beside them is "
            "constant here). The lesson says that memory traffic became linear, which is loose: "
            "the keys and values read stay quadratic, divided by the queries of a block, and the "
            "arithmetic stays what it was.",
        ),
        exercise="In another row of eight scores (the next seed), how many of the three later "
        "tiles bring a new maximum, so that the carried sum is scaled down?",
        answer=f"{changes}. Its tiles: "
        + "; ".join(f"({row[1]}) maximum {row[2]}, times {row[3]}" for row in small) + ".",
        draw=draw,
    )  # fmt: skip
