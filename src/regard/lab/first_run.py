"""first-run: the smallest attention there is, six tokens, looked at number by number."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import reference
from ..predicates import Array
from .drawing import matrix, panels
from .measure import check_sizes
from .result import Check, Result, Table, Verdict

QUESTION = "Six tokens with random weights: what does each attend to, and why is it so sure?"
SIZES = (8, 64)  # depths d of a token, at which the variance of a projection is measured
SIZES_ARE = "depths d of a token"
# The weights that the lesson prints for seed 0, to two decimals.
PRINTED = np.array([
    [1.00, 0.00, 0.00, 0.00, 0.00, 0.00],
    [1.00, 0.00, 0.00, 0.00, 0.00, 0.00],
    [0.99, 0.01, 0.00, 0.00, 0.00, 0.00],
    [0.60, 0.00, 0.38, 0.02, 0.00, 0.00],
    [0.10, 0.03, 0.16, 0.00, 0.71, 0.00],
    [0.00, 0.00, 0.00, 0.00, 0.00, 1.00],
])  # fmt: skip


def draw_call(seed: int) -> list[Array]:
    """X (6, 8), then Wq, Wk, Wv (8, 4), in the order in which the lesson draws them."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in [(6, 8), (8, 4), (8, 4), (8, 4)]]


def variance_of_a_projection(d: int, seed: int) -> float:
    """The variance of the entries of X @ W where those of X and W have variance 1."""
    rng = np.random.default_rng(seed)
    return float((rng.standard_normal((1000, d)) @ rng.standard_normal((d, 1000))).var())


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """The lesson's first run, with the division by √d and without."""
    check_sizes(sizes)
    X, Wq, Wk, Wv = draw_call(seed)
    _, weights = reference.attention(X, Wq, Wk, Wv)
    _, unscaled, _ = reference.scaled_dot_product_attention(
        X @ Wq, X @ Wk, X @ Wv, causal=True, scale=1.0
    )
    variances = {d: variance_of_a_projection(d, seed) for d in sizes}
    rows: list[tuple[Any, ...]] = [
        (i, *(f"{w:.2f}" for w in row), f"{row.max():.2f}", f"{unscaled[i].max():.2f}")
        for i, row in enumerate(weights)
    ]
    columns = ("query", *(f"key {j}" for j in range(6)), "largest", "largest without 1/√d")
    worst = max(abs(variance / d - 1) for d, variance in variances.items())
    checks = [
        Check("each row sums to 1", f"largest distance {abs(weights.sum(axis=1) - 1).max():.2g}",
              abs(weights.sum(axis=1) - 1).max() < 1e-12),
        Check("no weight on the future", f"{np.count_nonzero(np.triu(weights, 1))} entries above "
              "the diagonal", not np.triu(weights, 1).any()),
        Check("without the division no row is less sure",
              f"the mean largest weight is {unscaled.max(axis=1).mean():.2f} against "
              f"{weights.max(axis=1).mean():.2f}",
              bool((unscaled.max(axis=1) >= weights.max(axis=1) - 1e-12).all())),
        Check("an entry of X @ W has variance d, not 1",
              ", ".join(f"{variance:.1f} for d = {d}" for d, variance in variances.items()),
              worst < 0.1),
    ]  # fmt: skip
    if seed == 0:
        seen = abs(weights - PRINTED).max()
        checks.insert(0, Check("the matrix is the one that the lesson prints",
                               f"largest difference {seen:.4f}, printed to 0.01",
                               seen <= 0.005 + 1e-9))  # fmt: skip

    def draw() -> Any:
        figure, axes = panels(["with 1/√d", "without"], height=3.6)
        for axis, each in zip(axes, (weights, unscaled), strict=True):
            matrix(figure, axis, each, numbers=".2f", largest=1.0)
        return figure

    calmer = _first_run_of_unit_variance(X, Wq, Wk, Wv)
    return Result(
        name="first-run", question=QUESTION, table=Table(columns, rows),
        verdict=Verdict(tuple(checks)),
        notes=(
            "The rows are nearly one-hot although the scores are divided by √d: the division is "
            "meant for queries and keys of variance 1, and X @ W has a variance of d: see scaling.",
        ),
        exercise="What would the largest weights be if Wq and Wk were divided by √8, as a layer's "
        "weights are at the start of training?",
        answer="Calmer: " + ", ".join(f"{w:.2f}" for w in calmer.max(axis=1)) + ". The first row "
        "stays 1.00, for it sees itself alone.",
        draw=draw,
    )  # fmt: skip


def _first_run_of_unit_variance(X: Array, Wq: Array, Wk: Array, Wv: Array) -> Array:
    root = np.sqrt(X.shape[1])
    return reference.attention(X, Wq / root, Wk / root, Wv)[1]
