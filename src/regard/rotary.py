"""Rotary positions: queries and keys turned by their places, so that scores know the distance.

Each pair of numbers of a row is turned in its plane by position · frequency. A scaling changes the
frequencies, so that a model reaches further than it was trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, pi
from typing import Any, Protocol

import numpy as np

from .predicates import Array

__all__ = ["NTK", "Linear", "Llama3", "Scaling", "YaRN", "rotary", "rotate", "table"]

PAIRINGS = ("half", "interleaved")


class Scaling(Protocol):
    """Another set of frequencies, for more positions than a model was trained on."""

    @property
    def amplitude(self) -> float:
        """What turned rows are multiplied by."""

    def frequencies(self, base: float, D: int) -> Array:
        """(D/2,) float64: radians a position, of each pair."""


def rotary(
    x: Array,
    positions: Any,
    *,
    base: float = 10000.0,
    pairing: str = "half",
    scaling: Scaling | None = None,
) -> Array:
    """Rows turned by their positions, pair by pair.

    Parameters
    ----------
    x : (*lead, H, N, D) or (N, D) array
        Queries or keys, of any float dtype; D is even.
    positions : (N,) or (*lead, N) array of int
        The place of each row.
    base : float
        Pair i turns by base^(-2i/D) radians a position.
    pairing : {"half", "interleaved"}
        Pair i is the numbers i and i + D/2, as in most model files, or 2i and 2i + 1, as in the
        paper.
    scaling : `Linear`, `NTK`, `Llama3` or `YaRN` of `regard.rotary`, optional
        Changes the frequencies.

    Returns
    -------
    array of x's shape and dtype
        16-bit is turned in float32 and rounded once.

    Raises
    ------
    TypeError, ValueError
        That say what must hold and what was got.

    See Also
    --------
    regard.rotary.table, regard.rotary.rotate : the two halves of it, for many calls at one place.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q, k = np.random.default_rng(0).standard_normal((2, 1, 8))  # a query, a key
    >>> near = regard.rotary(q, [3]) @ regard.rotary(k, [1]).T
    >>> far = regard.rotary(q, [1003]) @ regard.rotary(k, [1001]).T  # as far apart
    >>> bool(np.allclose(near, far))
    True

    References
    ----------
    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
    """
    x = _checked(x)
    cosine, sine = table(positions, x.shape[-1], base=base, scaling=scaling)
    if cosine.shape[-2] != x.shape[-2]:
        raise ValueError(
            f"positions must hold one for each row of x {x.shape}, got {cosine.shape[:-1]}"
        )
    if cosine.ndim > 2:
        cosine, sine = cosine[..., None, :, :], sine[..., None, :, :]  # alike for each head
    return rotate(x, cosine, sine, pairing=pairing)


def table(
    positions: Any, D: int, *, base: float = 10000.0, scaling: Scaling | None = None
) -> tuple[Array, Array]:
    """Cosines and sines (*positions, D/2) of the angles, computed in float64, kept in it.

    >>> cosine, sine = table([0, 1], 4)
    >>> sine.round(4)
    array([[0.    , 0.    ],
           [0.8415, 0.01  ]])
    """
    places = np.asarray(positions)
    if places.dtype.kind not in "iu" or places.ndim == 0:
        raise TypeError(f"positions must be an array of int, got {places.dtype} {places.shape}")
    if D < 2 or D % 2:
        raise ValueError(f"D must be even, got {D}")
    if not 1 < base < float("inf"):
        raise ValueError(f"base must be finite and greater than 1, got {base}")
    scaling = Linear(1.0) if scaling is None else scaling
    angles = places[..., None] * scaling.frequencies(base, D)
    return scaling.amplitude * np.cos(angles), scaling.amplitude * np.sin(angles)


def rotate(x: Array, cosine: Array, sine: Array, *, pairing: str = "half") -> Array:
    """x (…, N, D) turned by angles whose cosines and sines broadcast to (…, N, D/2)."""
    if pairing not in PAIRINGS:
        raise ValueError(f"pairing must be one of {', '.join(PAIRINGS)}, got {pairing!r}")
    dtype = np.result_type(x.dtype, np.float32)
    c, s = cosine.astype(dtype, copy=False), sine.astype(dtype, copy=False)
    half = x.shape[-1] // 2
    if pairing == "half":
        first, second = (..., slice(half)), (..., slice(half, None))
    else:
        first, second = (..., slice(0, None, 2)), (..., slice(1, None, 2))
    turned = np.empty(x.shape, x.dtype)
    turned[first] = x[first] * c - x[second] * s
    turned[second] = x[second] * c + x[first] * s
    return turned


def _checked(x: Any) -> Array:
    if not isinstance(x, np.ndarray) or not x.dtype.name.startswith(("float", "bfloat")):
        raise TypeError(f"x must be an array of floats, got {getattr(x, 'dtype', type(x))}")
    if x.ndim < 2 or x.shape[-1] < 2 or x.shape[-1] % 2:
        raise ValueError(f"x must be (…, N, D) with D even, got {x.shape}")
    return x


# --------------------------------------------------------------------------------- scalings


def _unscaled(base: float, D: int) -> Array:
    return base ** (-np.arange(0, D, 2) / D)


def _positive(scaling: object, *names: str) -> None:
    for name in names:
        x = getattr(scaling, name)
        if not 0 < x < float("inf"):
            raise ValueError(f"{name} must be finite and greater than 0, got {x}")


@dataclass(frozen=True)
class Linear:
    """Every position divided by `factor`.

    References
    ----------
    Chen et al., "Extending Context Window of Large Language Models via Position Interpolation",
    2023.
    """

    factor: float
    amplitude = 1.0

    def __post_init__(self) -> None:
        _positive(self, "factor")

    def frequencies(self, base: float, D: int) -> Array:
        return _unscaled(base, D) / self.factor


@dataclass(frozen=True)
class NTK:
    """The base raised: the slowest pair turns `factor` times slower, the fastest as before.

    References
    ----------
    Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023,
    definition 1.
    """

    factor: float
    amplitude = 1.0

    def __post_init__(self) -> None:
        _positive(self, "factor")

    def frequencies(self, base: float, D: int) -> Array:
        if D < 4:
            raise ValueError(f"D must be 4 or more for NTK, got {D}")
        return _unscaled(base * self.factor ** (D / (D - 2)), D)


@dataclass(frozen=True)
class Llama3:
    """Pairs of long waves slowed by `factor`, those of short ones kept, a ramp between.

    A wave is short where more than `high` of them, and long where less than `low`, fit into the
    `original` number of positions.

    References
    ----------
    Grattafiori et al., "The Llama 3 Herd of Models", 2024; the rule is that of Llama 3.1's code.
    """

    factor: float
    low: float
    high: float
    original: int
    amplitude = 1.0

    def __post_init__(self) -> None:
        _positive(self, "factor", "low", "high", "original")
        if self.low >= self.high:
            raise ValueError(f"low must be less than high, got {self.low} and {self.high}")

    def frequencies(self, base: float, D: int) -> Array:
        plain = _unscaled(base, D)
        waves = self.original * plain / (2 * pi)  # that fit
        kept = np.clip((waves - self.low) / (self.high - self.low), 0, 1)
        return plain * kept + plain / self.factor * (1 - kept)


@dataclass(frozen=True)
class YaRN:
    """Pairs that turn often are kept, those that hardly turn are slowed by `factor`; rows grow.

    Parameters
    ----------
    factor : float
    original : int
        The positions that the model was trained on.
    fast, slow : float
        Turns within them, from which a pair is kept, and below which it is slowed in full.
    attention : float, optional
        What rows are multiplied by; default 0.1·ln(factor) + 1.
    whole : bool
        The ramp begins and ends at whole pairs.

    References
    ----------
    Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023.
    """

    factor: float
    original: int
    fast: float = 32.0
    slow: float = 1.0
    attention: float | None = None
    whole: bool = True

    def __post_init__(self) -> None:
        _positive(self, "factor", "original", "fast", "slow")
        if self.attention is not None:
            _positive(self, "attention")

    @property
    def amplitude(self) -> float:
        if self.attention is not None:
            return self.attention
        return 0.1 * log(self.factor) + 1 if self.factor > 1 else 1.0

    def frequencies(self, base: float, D: int) -> Array:
        plain = _unscaled(base, D)
        first, last = (self._pair(turns, base, D) for turns in (self.fast, self.slow))
        if self.whole:
            first, last = floor(first), ceil(last)
        first, last = max(first, 0), min(last, D - 1)
        ramp = (np.arange(D // 2) - first) / (last - first if last != first else 1e-3)
        slowed = np.clip(ramp, 0, 1)
        return plain / self.factor * slowed + plain * (1 - slowed)

    def _pair(self, turns: float, base: float, D: int) -> float:
        """The pair, a fraction allowed, that turns so often within the original positions."""
        return D * log(self.original / (turns * 2 * pi)) / (2 * log(base))
