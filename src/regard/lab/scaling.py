"""scaling: what the division by √d is for."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import reference
from ..predicates import Array
from .drawing import lines, panels
from .measure import check_sizes, exponent
from .result import Check, Result, Table, Verdict

QUESTION = "Queries and keys have variance 1. What happens to the softmax without the 1/√d?"
SIZES = (16, 64, 256, 512, 1024)
SIZES_ARE = "head sizes d"
N = 64  # tokens
DRAWS = 20


def weights_of(q: Array, k: Array, scale: float | None) -> Array:
    """The weights (draws, N, N) of the reference; a scale of None is its own 1/√d."""
    return reference.scaled_dot_product_attention(q, k, k, scale=scale)[1]


def entropy(weights: Array) -> Array:
    """Of each row, in nats: 0 where one key has all the weight, ln N where all have the same."""
    return -(weights * np.log(np.where(weights > 0, weights, 1))).sum(axis=-1)


def jacobian_norm(weights: Array) -> Array:
    """‖diag(w) − w wᵀ‖ (Frobenius) of each row: how far the weights move when the scores do."""
    jacobian = weights[..., None] * (np.eye(weights.shape[-1]) - weights[..., None, :])
    return np.sqrt((jacobian**2).sum(axis=(-2, -1)))


def measure(d: int, scale: float | None, seed: int) -> tuple[float, float, float, float]:
    """Means over rows and draws: largest weight, entropy, norm of the Jacobian; its median."""
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((2, DRAWS, N, d))
    rows = weights_of(q, k, scale).reshape(-1, N)
    norms = jacobian_norm(rows)
    return (
        float(rows.max(axis=1).mean()), float(entropy(rows).mean()), float(norms.mean()),
        float(np.median(norms)),
    )  # fmt: skip


def variance_of_scores(d: int, seed: int) -> float:
    """Var(q·k) over 2,000 pairs."""
    q, k = np.random.default_rng(seed).standard_normal((2, 2000, d))
    return float((q * k).sum(axis=1).var())


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """Saturation of the softmax with growing head size, with the division and without."""
    check_sizes(sizes, 2, 2)
    scaled = {d: measure(d, None, seed) for d in sizes}
    unscaled = {d: measure(d, 1.0, seed) for d in sizes}
    variances = {d: variance_of_scores(d, seed) for d in sizes}
    columns = (
        "d", "largest weight, unscaled", "scaled", "entropy, unscaled", "scaled",
        "‖Jacobian‖, unscaled", "its median", "scaled", "Var(q·k)/d",
    )  # fmt: skip
    rows = [
        (d, *(f"{x:.3f}" for x in (
            unscaled[d][0], scaled[d][0], unscaled[d][1], scaled[d][1], unscaled[d][2])),
         unscaled[d][3], f"{scaled[d][2]:.3f}", f"{variances[d] / d:.3f}")
        for d in sizes
    ]  # fmt: skip
    first, last, most = sizes[0], sizes[-1], np.log(N)
    spread = np.ptp([scaled[d][1] for d in sizes])
    worst = max(abs(variances[d] / d - 1) for d in sizes)
    checks = (
        Check("the scores of unit-variance q and k have variance d",
              f"Var(q·k)/d is within {worst:.1%} of 1", worst < 0.15),
        Check("unscaled, the softmax saturates as d grows",
              f"largest weight {unscaled[first][0]:.3f} at d = {first}, {unscaled[last][0]:.3f} "
              f"at d = {last}", unscaled[last][0] > max(0.7, unscaled[first][0])),
        Check("scaled, it does not: the entropy stays near its most, ln N",
              f"{scaled[last][1]:.2f} of {most:.2f}", scaled[last][1] > 0.8 * most),
        Check("scaled, the weights' spread does not depend on d",
              f"entropies differ by {spread:.3f}", bool(spread < 0.1)),
        Check("unscaled, the gradient through the softmax shrinks with d",
              f"‖Jacobian‖ {unscaled[first][2]:.3f} → {unscaled[last][2]:.3f}; scaled "
              f"{scaled[first][2]:.3f} → {scaled[last][2]:.3f}",
              unscaled[last][2] < 0.9 * unscaled[first][2]
              and abs(scaled[last][2] / scaled[first][2] - 1) < 0.1),
    )  # fmt: skip

    def draw() -> Any:
        figure, (left, right) = panels(["entropy of a row (nats)", "‖Jacobian‖ of the softmax"])
        for axis, column in ((left, 1), (right, 2)):
            series = {
                "scaled": [scaled[d][column] for d in sizes],
                "unscaled": [unscaled[d][column] for d in sizes],
            }
            lines(axis, sizes, series, "head size d", "")
            axis.set_xscale("log", base=2)
            axis.set_xticks(list(sizes), [str(d) for d in sizes])
            axis.minorticks_off()
            axis.set_ylim(0)
        left.axhline(most, color="#8a8f98", linestyle=":")
        return figure

    above = [d for d in sizes if unscaled[d][2] > scaled[d][2]]
    power = exponent(sizes, [unscaled[d][2] for d in sizes])
    half = measure(last, last**-0.25, seed)
    return Result(
        name="scaling", question=QUESTION, table=Table(columns, rows), verdict=Verdict(checks),
        notes=(
            "“Gradients vanish” needs a size: unscaled, the mean norm of the Jacobian falls as "
            f"d to the power {power:.2f}, and the median row's much faster, but at small d it is "
            f"larger than the scaled one (d = {', '.join(map(str, above)) or 'none'}), for "
            "two keys in a tie move more than a flat row.",
        ),
        exercise=f"Divide by the fourth root of d instead, at d = {last}: what are the largest "
        "weight and the entropy?",
        answer=f"{half[0]:.3f} and {half[1]:.2f}: between the two. The scores then have variance "
        f"√d = {last**0.5:.1f}, and only 1/√d makes it 1 for every d.",
        draw=draw,
    )  # fmt: skip
