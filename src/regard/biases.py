"""Biases that need no array of the size of the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import predicates
from .predicates import Array

__all__ = ["alibi"]


@dataclass(frozen=True, eq=False)
class Alibi:
    """-slope · distance, for each head its own slope: what `alibi` makes."""

    slopes: Array  # (H,)

    def of_pair(self, p: Array, j: Array) -> Array:
        """The bias of the query at p (*lead, 1, Nq, 1) and key j (Nk,): (*lead, H, Nq, Nk)."""
        return predicates.alibi_bias(p, j, self.slopes[:, None, None])


def alibi(slopes: Any) -> Alibi:
    """Attention with linear biases: the score falls by `slope` for each token of distance.

    Parameters
    ----------
    slopes : (H,) array of float
        One for each query head, in natural-log units a token. For a power of two of heads the
        paper takes 2 ** (-8 · h / H), h = 1 … H.

    Raises
    ------
    TypeError, ValueError
        If the slopes are no finite floats, one for each head.

    Examples
    --------
    >>> import numpy as np, regard
    >>> H = 2
    >>> near = regard.biases.alibi(2.0 ** (-8 * np.arange(1, H + 1) / H))
    >>> q = k = v = np.zeros((H, 3, 1))
    >>> regard.look(q, k, v, causal=True, bias=near).weights[0, 2].round(3)
    array([0.313, 0.333, 0.354])

    References
    ----------
    Press, Smith, Lewis, "Train Short, Test Long: Attention with Linear Biases", 2021.
    """
    array = np.asarray(slopes)
    if array.dtype.kind != "f":
        raise TypeError(f"slopes must be floats, got {array.dtype}")
    with np.errstate(over="ignore"):
        array = array.astype(np.float64)
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise ValueError(f"slopes must be finite, one for each head: (H,), got {array.shape}")
    return Alibi(array)
