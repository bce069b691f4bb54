"""Structured masks: in each of them a query sees one interval of the keys.

A mask is lazy. It knows no sizes until a call gives it the positions of the queries and the number
of keys; then `bounds` answers with the interval [lo, hi) of each query, and the engines know
nothing but intervals. `&` intersects: the larger lo, the smaller hi. A bool array (True = seen)
may be one side of `&`; it is kept beside the interval.

`sees` answers the same question pair by pair, for the reference: it is written apart from `bounds`
so that a wrong interval cannot pass its own test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import predicates
from .predicates import Array

__all__ = ["Mask", "causal", "documents", "interval", "lengths", "prefix", "window"]

Bounds = tuple[Any, Any]  # two int64 arrays or numbers that broadcast
REACH = 2**62  # more than the distance of any position from any key


class Mask(ABC):
    """A mask that `&` combines with others and with bool arrays."""

    __array_ufunc__ = None  # so that `array & mask` comes to __rand__
    counts_positions = True  # does it matter where query 0 sits?

    @abstractmethod
    def bounds(self, p: Array, Nk: int) -> Bounds:
        """[lo, hi) for queries at positions p (*lead, 1, Nq); broadcasts to (*lead, H, Nq)."""

    @abstractmethod
    def sees(self, p: Array, j: Array) -> Array:
        """Does the query at p (*lead, 1, Nq, 1) see key j (Nk,)? Broadcasts to all pairs."""

    def end(self, Nk: int) -> Array | None:
        """The length of each sequence, (*lead,), where the mask states one."""
        return None

    def __and__(self, other: Mask | Array) -> Mask:
        return _intersection(self, other)

    def __rand__(self, other: Array) -> Mask:
        return _intersection(self, other)


# ------------------------------------------------------------------------ the names for users


def causal() -> Mask:
    """The query at position p sees the keys up to p: `causal=True` as a mask.

    >>> import numpy as np, regard
    >>> q = k = v = np.eye(3)
    >>> np.asarray(regard.look(q, k, v, mask=regard.masks.causal()).weights) > 0
    array([[ True, False, False],
           [ True,  True, False],
           [ True,  True,  True]])
    """
    return _Causal()


def window(left: int | None, right: int | None) -> Mask:
    """The query at position p sees the keys p - left … p + right.

    Parameters
    ----------
    left, right : int or None
        How far to each side, 0 or more; None is unbounded.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q = k = v = np.eye(4)
    >>> np.asarray(regard.look(q, k, v, mask=regard.masks.window(1, 0)).weights) > 0
    array([[ True, False, False, False],
           [ True,  True, False, False],
           [False,  True,  True, False],
           [False, False,  True,  True]])
    """
    for name, reach in (("left", left), ("right", right)):
        if reach is not None and (not _is_int(reach) or reach < 0):
            raise ValueError(f"{name} must be an int of 0 or more, or None, got {reach!r}")
    return _Window(left, right)


def lengths(n: Any, start: Any = 0) -> Mask:
    """Only the keys start … n - 1 exist: padding on the right, or on the left with `start`.

    Parameters
    ----------
    n, start : int or (*lead,) array of int
        For each sequence of the batch; 0 ≤ n ≤ Nk.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q = k = v = np.ones((2, 1, 3, 1))  # a batch of two, one head, three tokens
    >>> weights = regard.look(q, k, v, mask=regard.masks.lengths([3, 1])).weights
    >>> weights[:, 0, 0]
    array([[0.33333333, 0.33333333, 0.33333333],
           [1.        , 0.        , 0.        ]])
    """
    n, start = _ints("n", n), _ints("start", start)
    if np.any(n < 0) or np.any(start < 0):
        got = f"got n {n.tolist()}, start {start.tolist()}"
        raise ValueError(f"n and start must be 0 or more, {got}")
    _check_together("n and start", n, start)
    return _Lengths(n, start)


def documents(ids: Any) -> Mask:
    """Documents packed in one row: the query at position p sees the keys with the id of key p.

    Parameters
    ----------
    ids : (*lead, Nk) array of int
        Equal ids lie together; an id that returns later is a ValueError.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q = k = v = np.eye(3)
    >>> np.asarray(regard.look(q, k, v, mask=regard.masks.documents([7, 7, 4])).weights) > 0
    array([[ True,  True, False],
           [ True,  True, False],
           [False, False,  True]])
    """
    ids = _ints("ids", ids)
    if ids.ndim == 0:
        raise ValueError("ids must have one id for each key, got a single number")
    runs = 1 + np.count_nonzero(ids[..., 1:] != ids[..., :-1], axis=-1)
    ordered = np.sort(ids, axis=-1)
    different = 1 + np.count_nonzero(ordered[..., 1:] != ordered[..., :-1], axis=-1)
    if np.any(runs != different):
        raise ValueError("equal ids must lie together, got an id that returns after another one")
    return _Documents(ids)


def prefix(n: Any) -> Mask:
    """Causal, but for a prefix that all see: the query at p sees the keys up to max(p, n - 1).

    Parameters
    ----------
    n : int or (*lead,) array of int
        Length of the prefix, 0 or more.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q = k = v = np.eye(3)
    >>> np.asarray(regard.look(q, k, v, mask=regard.masks.prefix(2)).weights) > 0
    array([[ True,  True, False],
           [ True,  True, False],
           [ True,  True,  True]])
    """
    n = _ints("n", n)
    if np.any(n < 0):
        raise ValueError(f"n must be 0 or more, got {n.tolist()}")
    return _Prefix(n)


def interval(lo: Any, hi: Any) -> Mask:
    """Query i sees the keys lo[i] … hi[i] - 1: what all masks here come down to.

    Parameters
    ----------
    lo, hi : int, or arrays of int that broadcast to (*lead, H, Nq)

    Examples
    --------
    >>> import numpy as np, regard
    >>> q = k = v = np.eye(3)
    >>> mask = regard.masks.interval([0, 0, 1], [1, 2, 2])
    >>> np.asarray(regard.look(q, k, v, mask=mask).weights) > 0
    array([[ True, False, False],
           [ True,  True, False],
           [False,  True, False]])
    """
    lo, hi = _ints("lo", lo), _ints("hi", hi)
    _check_together("lo and hi", lo, hi)
    return _Interval(lo, hi)


# -------------------------------------------------------------------------------- the masks


@dataclass(frozen=True, eq=False)
class _Causal(Mask):
    def bounds(self, p: Array, Nk: int) -> Bounds:
        return np.int64(0), p + 1

    def sees(self, p: Array, j: Array) -> Array:
        return predicates.causal_sees(p, j)


@dataclass(frozen=True, eq=False)
class _Window(Mask):
    left: int | None
    right: int | None

    def bounds(self, p: Array, Nk: int) -> Bounds:
        lo = np.int64(0) if self.left is None else p - min(int(self.left), REACH)
        hi = np.int64(Nk) if self.right is None else p + min(int(self.right), REACH) + 1
        return lo, hi

    def sees(self, p: Array, j: Array) -> Array:
        return predicates.window_sees(p, j, self.left, self.right)


@dataclass(frozen=True, eq=False)
class _Lengths(Mask):
    n: Array
    start: Array
    counts_positions = False

    def bounds(self, p: Array, Nk: int) -> Bounds:
        return self.start[..., None, None], self.end(Nk)[..., None, None]

    def sees(self, p: Array, j: Array) -> Array:
        n, start = self.n[..., None, None, None], self.start[..., None, None, None]
        return predicates.lengths_sees(j, n, start)

    def end(self, Nk: int) -> Array:
        if np.any(self.n > Nk):
            raise ValueError(f"lengths must be at most Nk = {Nk}, got {self.n.tolist()}")
        return self.n


@dataclass(frozen=True, eq=False)
class _Documents(Mask):
    ids: Array

    def bounds(self, p: Array, Nk: int) -> Bounds:
        if self.ids.shape[-1] != Nk:
            raise ValueError(f"ids must have one id for each of {Nk} keys, got {self.ids.shape}")
        if Nk == 0:
            return np.int64(0), np.int64(0)
        lo, hi = (b[..., None, :] for b in self._runs())  # (*lead, 1, Nk)
        inside = np.clip(p, 0, Nk - 1)
        lead = np.broadcast_shapes(lo.shape[:-1], p.shape[:-1])
        at = np.broadcast_to(inside, (*lead, p.shape[-1]))
        lo, hi = (np.take_along_axis(np.broadcast_to(b, (*lead, Nk)), at, -1) for b in (lo, hi))
        return lo, np.where(inside == p, hi, lo)  # beside the keys: nothing to see

    def _runs(self) -> Bounds:
        """First key, and one past the last, of each key's document: (*lead, Nk) both."""
        j = np.arange(self.ids.shape[-1])
        begins = np.ones(self.ids.shape, bool)
        begins[..., 1:] = self.ids[..., 1:] != self.ids[..., :-1]
        ends = np.roll(begins, -1, axis=-1)
        lo = np.maximum.accumulate(np.where(begins, j, 0), axis=-1)
        backwards = np.where(ends, j + 1, len(j))[..., ::-1]
        return lo, np.minimum.accumulate(backwards, axis=-1)[..., ::-1]

    def sees(self, p: Array, j: Array) -> Array:
        return predicates.documents_sees(p, j, self.ids[..., None, None, :])


@dataclass(frozen=True, eq=False)
class _Prefix(Mask):
    n: Array

    def bounds(self, p: Array, Nk: int) -> Bounds:
        return np.int64(0), np.maximum(p + 1, self.n[..., None, None])

    def sees(self, p: Array, j: Array) -> Array:
        return predicates.prefix_sees(p, j, self.n[..., None, None, None])


@dataclass(frozen=True, eq=False)
class _Interval(Mask):
    lo: Array
    hi: Array
    counts_positions = False

    def bounds(self, p: Array, Nk: int) -> Bounds:
        return self.lo, self.hi

    def sees(self, p: Array, j: Array) -> Array:
        return predicates.interval_sees(j, self.lo[..., None], self.hi[..., None])


@dataclass(frozen=True, eq=False)
class Intersection(Mask):
    """What `&` makes: masks, and at most one bool array."""

    parts: tuple[Mask, ...]
    array: Array | None

    @property
    def counts_positions(self) -> bool:  # type: ignore[override]
        return any(part.counts_positions for part in self.parts)

    def bounds(self, p: Array, Nk: int) -> Bounds:
        los, his = zip(*(part.bounds(p, Nk) for part in self.parts), strict=True)
        lo, hi = los[0], his[0]
        for other_lo, other_hi in zip(los[1:], his[1:], strict=True):
            lo, hi = np.maximum(lo, other_lo), np.minimum(hi, other_hi)
        return lo, hi

    def sees(self, p: Array, j: Array) -> Array:
        seen: Any = True if self.array is None else self.array
        for part in self.parts:
            seen = seen & part.sees(p, j)
        return seen

    def end(self, Nk: int) -> Array | None:
        ends = [end for part in self.parts if (end := part.end(Nk)) is not None]
        return np.minimum.reduce(np.broadcast_arrays(*ends)) if ends else None


def _intersection(*sides: Mask | Array) -> Mask:
    parts: list[Mask] = []
    array: Any = None
    for side in sides:
        more: Any = side
        if isinstance(side, Intersection):
            parts, more = [*parts, *side.parts], side.array
        elif isinstance(side, Mask):
            parts, more = [*parts, side], None
        elif not isinstance(side, np.ndarray) or side.dtype != bool:
            what = f"{side.dtype} array" if isinstance(side, np.ndarray) else type(side).__name__
            raise TypeError(f"& takes masks and bool arrays (True = seen), got {what}")
        if more is not None:
            if array is not None:
                _check_together("the arrays on both sides of &", array, more)
            array = more if array is None else array & more
    if {_Prefix, _Causal} <= {type(part) for part in parts}:
        raise ValueError(
            "prefix is causal but for its prefix, and causal would hide that prefix again: "
            "use prefix without causal, got both"
        )
    return Intersection(tuple(parts), array)


def _is_int(x: Any) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def _ints(name: str, x: Any) -> Array:
    try:
        array = np.asarray(x)
    except ValueError:
        raise ValueError(f"{name} must be an int or an array of int, got {x!r:.80}") from None
    if array.dtype.kind not in "iu" and not (array.size == 0 and array.dtype == float):
        raise TypeError(f"{name} must be an int or an array of int, got {array.dtype}")
    if np.any(array > REACH) or np.any(array < -REACH):
        raise ValueError(f"{name} must be within ±2**62, got {x!r}")
    return array.astype(np.int64)


def _check_together(names: str, a: Array, b: Array) -> None:
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ValueError(f"{names} must broadcast, got {a.shape} and {b.shape}") from None
