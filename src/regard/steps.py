"""One row of weights, step by step, to read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .engines import tiled
from .predicates import Array, narrow
from .problem import Index, Problem

__all__ = ["Row", "steps_of"]

SHOWN = 12  # keys that a printed row shows


class Row(NamedTuple):
    """How the weights of one query come about.

    Attributes
    ----------
    query : int
        Which row it is.
    scores : (Nk,) array
        After scale, soft cap, bias and mask; a hidden pair is -inf.
    shifted : (Nk,) array
        Scores less the largest.
    exponentials : (Nk,) array
    weights : (Nk,) array
        Exponentials divided by their sum.
    maximum, total : float
        The largest score, and the sum of the exponentials; a head's sink counts in both.
    """

    query: int
    scores: Array
    shifted: Array
    exponentials: Array
    weights: Array
    maximum: float
    total: float

    def __str__(self) -> str:
        seen = np.flatnonzero(self.scores != -np.inf)
        strongest = seen[np.argsort(-self.weights[seen], kind="stable")[:SHOWN]]
        lines = [
            f"query {self.query}: the largest score is {self.maximum:.4g}, "
            f"the sum of the exponentials {self.total:.4g}",
            f"{'key':>7}{'score':>12}{'- largest':>12}{'exp':>12}{'/ sum':>12}",
        ]
        for j in np.sort(strongest):
            steps = (self.scores[j], self.shifted[j], self.exponentials[j], self.weights[j])
            lines.append(f"{j:>7}" + "".join(f"{x:>12.4g}" for x in steps))
        hidden = len(self.scores) - len(seen)
        rest = [f"{len(seen) - SHOWN} smaller ones"] if len(seen) > SHOWN else []
        rest += [f"{hidden} hidden ones"] if hidden else []
        return "\n".join(lines + ([f"and {' and '.join(rest)}"] if rest else []))


@np.errstate(all="ignore")
def steps_of(problem: Problem, index: Index, query: int) -> Row:
    """The row of one query of one head."""
    every = np.arange(problem.shape[-1])
    scores = tiled.scores_of(problem, index, np.array([query]), every)[0]
    sinks = problem.sinks
    sink = problem.dtype.type(-np.inf) if sinks is None else narrow(sinks[index[-1]], problem.dtype)
    maximum = np.maximum(scores.max(initial=-np.inf), sink)
    shift = 0 if maximum == -np.inf else maximum
    shifted = scores - shift
    exponentials = np.exp(shifted)
    total = exponentials.sum() + np.exp(sink - shift)
    weights = np.where(scores == -np.inf, 0, exponentials / total)
    return Row(query, scores, shifted, exponentials, weights, float(maximum), float(total))
