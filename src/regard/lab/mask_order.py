"""mask-order: why a mask goes in before the softmax, and why as −∞."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import reference
from ..predicates import Array
from .drawing import bars, panels
from .measure import check_sizes
from .result import Check, Result, Table, Verdict

QUESTION = "Hide the future with −∞ before the softmax, or set its weights to 0 after: same thing?"
SIZES = (8,)
SIZES_ARE = "tokens N"
D = 4
FINFO_MIN = float(np.finfo(np.float64).min)
Way = Callable[[Array, Array], Array]


def before(scores: Array, seen: Array) -> Array:
    """−∞ before the softmax, by the reference: the scores go in as a product with the identity."""
    one = np.eye(scores.shape[1])
    return reference.scaled_dot_product_attention(scores, one, one, scale=1.0, mask=seen)[1]


def zero_after(scores: Array, seen: Array) -> Array:
    """The softmax of everything, then 0 where the mask hides."""
    return np.where(seen, reference.softmax(scores), 0)


def zero_and_renormalise(scores: Array, seen: Array) -> Array:
    """The same, each row divided by what is left of it."""
    left = zero_after(scores, seen)
    with np.errstate(all="ignore"):
        return left / left.sum(axis=1, keepdims=True)


def add(amount: float) -> Way:
    """A large negative number, added to hidden scores before the softmax."""
    return lambda scores, seen: reference.softmax(scores + np.where(seen, 0.0, amount))


WAYS: dict[str, Way] = {
    "−∞ before": before, "0 after": zero_after, "0 after, renormalised": zero_and_renormalise,
    "−1e4 added": add(-1e4), "finfo.min added": add(FINFO_MIN),
}  # fmt: skip


def future_leaks(way: Way, scores: Array, seen: Array, raised: float) -> float:
    """How far earlier rows move when the scores of the last key are raised; NaN if they break."""
    changed = scores.copy()
    changed[:, -1] += raised
    moved = np.abs(way(changed, seen) - way(scores, seen))[:-1]  # the last row may see the last key
    return float(moved.max())


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """Five ways to hide, on the same scores: row sums, leaks, extreme scores, hidden rows."""
    check_sizes(sizes, 1, 3)
    N = sizes[-1]
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((N, D)) @ rng.standard_normal((D, N)) / np.sqrt(D)
    seen = np.tri(N, dtype=bool)
    nothing = np.where(np.arange(N)[:, None] == 1, False, seen)  # query 1 may see no key at all
    right = before(scores, seen)
    found = {}
    for name, way in WAYS.items():
        found[name] = (
            float(way(scores, seen).sum(axis=1).min()),
            float(abs(way(scores, seen) - right).max()),
            future_leaks(way, scores, seen, 3.0),
            future_leaks(way, scores, seen, 800.0),
            future_leaks(way, scores, seen, 2e4),
            float(way(scores, nothing)[1].sum()),
        )
    columns = ("way", "smallest row sum", "differs from −∞ before", "future key + 3: rows move",
               "+ 800", "+ 20,000", "sum of a row with all hidden")  # fmt: skip
    rows: list[tuple[Any, ...]] = [(name, *each) for name, each in found.items()]
    exact, zeroed, again = (found[n] for n in ("−∞ before", "0 after", "0 after, renormalised"))
    low, lowest = found["−1e4 added"], found["finfo.min added"]
    checks = (
        Check("−∞ before: rows sum to 1", f"smallest {exact[0]:.6f}", abs(exact[0] - 1) < 1e-12),
        Check("−∞ before: no future key moves an earlier row, and a row with all hidden is 0",
              f"moved {max(exact[2:5]):.1g}, sum {exact[5]:g}", not any(exact[2:])),
        Check("0 after: rows sum to less than 1", f"smallest {zeroed[0]:.3f}", zeroed[0] < 0.99),
        Check("0 after: the future leaks, through the denominator", f"rows move by {zeroed[2]:.3f}",
              zeroed[2] > 1e-3),
        Check("renormalised: agrees on ordinary scores", f"{again[1]:.1e}", again[1] < 1e-12),
        Check("renormalised: a future score of 800 makes 0/0", f"rows before it move by {again[3]}",
              bool(np.isnan(again[3]))),
        Check("−1e4 hides ordinary scores and not those beyond it",
              f"+ 800 moves rows by {low[3]:.1g}, + 20,000 by {low[4]:.2g}",
              low[3] == 0 and low[4] > 0.1),
        Check("with all hidden, −1e4 and finfo.min give weights to hidden keys",
              f"row sums {low[5]:g} and {lowest[5]:g}", low[5] > 0.99 and lowest[5] > 0.99),
    )  # fmt: skip

    def draw() -> Any:
        figure, (left, right_axis) = panels(
            ["smallest row sum (right: 1)", "earlier rows moved (right: 0)"]
        )
        bars(left, list(found), [each[0] for each in found.values()], "")
        bars(right_axis, list(found), [each[2] for each in found.values()], "")
        right_axis.set_yticklabels([])
        return figure

    nan_rows = int(np.isnan(zero_after(scores, seen)).any(axis=1).sum())
    exponentials = N * N
    return Result(
        name="mask-order", question=QUESTION, table=Table(columns, rows), verdict=Verdict(checks),
        notes=(
            "Renormalised zero-after is not wrong on ordinary scores: it agrees to rounding. It "
            "breaks where a hidden score is so large that all seen weights underflow.",
            "The lesson asks why the order matters, with four answers. Speed: refuted, both ways "
            f"take {exponentials} exponentials. The row's sum: confirmed, {zeroed[0]:.3f} against "
            f"1. A leak of the future: confirmed, an earlier row moves by {zeroed[2]:.3f}; the "
            "lesson's key calls this answer wrong, and for weights that are not renormalised it is "
            f"right. NaN from the zeros: refuted, {nan_rows} rows are NaN; only the "
            "renormalised form can be, by 0/0.",
        ),
        exercise="“Large negative values” are often written as −1e4. A query has every key hidden: "
        "what does its row become, exactly?",
        answer="The softmax of its scores as if nothing were hidden, since the same number was "
        "added to all: it differs from that by "
        f"{abs(add(-1e4)(scores, nothing)[1] - reference.softmax(scores)[1]).max():.0e}. With "
        "finfo.min all scores round to one number and the row is the mean: weights of "
        f"{add(FINFO_MIN)(scores, nothing)[1, 0]:.3f} = 1/{N}. Here the row is 0.",
        draw=draw,
    )  # fmt: skip
