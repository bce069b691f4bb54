"""Statistics of weights that are never formed whole: block by block, each block seen once.

A part takes blocks of weights, (rows, columns) of one head, in any number, and gives what it made
of them. Sums are carried in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .predicates import Array
from .problem import Index
from .weights import Block

__all__ = ["ByDistance", "Summary", "head_records", "summarize"]

ROWS, COLUMNS = 128, 2**14  # of a block
Reach = Callable[[Index, slice], tuple[int, int]]  # the keys that some query of the rows sees


class ByDistance(NamedTuple):
    """Weight at each relative position of query and key.

    Attributes
    ----------
    distance : (Nq + Nk - 1,) array of int
        The query's position less the key's: 0 is the diagonal, 1 the key before the query's own.
        (*lead, 1, Nq + Nk - 1) where `align` gave each sequence a position of its own.
    mass : (*lead, H, Nq + Nk - 1) array
        Sum of the weights at that distance; over all distances the sum of all weights.
    pairs : (Nq + Nk - 1,) array of int
        How many pairs of the Nq x Nk lie there, hidden ones included.
    """

    distance: Array
    mass: Array
    pairs: Array

    @property
    def mean(self) -> Array:
        """Mean weight at each distance, (*lead, H, Nq + Nk - 1)."""
        return self.mass / self.pairs


class Summary(NamedTuple):
    """What `AttentionMap.summary` was asked for; None where it was not."""

    top: tuple[Array, Array] | None = None
    received: Array | None = None
    entropy: Array | None = None
    pooled: Array | None = None
    by_distance: ByDistance | None = None
    induction: Array | None = None


class Part(Protocol):
    """One statistic in the making."""

    def take(self, index: Index, rows: slice, columns: slice, w: Array) -> None: ...
    def arrays(self) -> dict[str, Any]: ...  # what an engine's own pass fills
    def result(self, dtype: Any) -> Any: ...


def summarize(
    block: Block, reach: Reach, shape: Index, dtype: Any, parts: Iterable[Part]
) -> list[Any]:
    """What each part makes of the weights (*lead, H, Nq, Nk), in one pass over them."""
    parts = list(parts)
    with np.errstate(all="ignore"):
        for index in np.ndindex(shape[:-2]):
            for rows in _slices(0, shape[-2], ROWS):
                i = np.arange(rows.start, rows.stop)
                for columns in _slices(*reach(index, rows), COLUMNS):
                    w = block(index, i, np.arange(columns.start, columns.stop))
                    for part in parts:
                        part.take(index, rows, columns, w)
        return [part.result(dtype) for part in parts]


def _slices(start: int, stop: int, step: int) -> Iterator[slice]:
    return (slice(i, min(i + step, stop)) for i in range(start, stop, step))


def looked(look: Callable[..., None], dtype: Any, parts: Iterable[Part]) -> list[Any]:
    """What each part makes of the weights, by the engine's own pass over them."""
    wanted: dict[str, Any] = {}
    for part in parts:
        wanted |= part.arrays()
    look(**wanted)
    with np.errstate(all="ignore"):
        return [part.result(dtype) for part in parts]


class Received:
    """Sum of each column: (*lead, H, Nk)."""

    def __init__(self, shape: Index) -> None:
        self.total = np.zeros((*shape[:-2], shape[-1]))

    def take(self, index: Index, rows: slice, columns: slice, w: Array) -> None:
        self.total[index][columns] += w.sum(axis=0, dtype=np.float64)

    def arrays(self) -> dict[str, Any]:
        return {"received": self.total}

    def result(self, dtype: Any) -> Array:
        return self.total.astype(dtype)


class Entropy:
    """-Σ w·ln w of each row: (*lead, H, Nq)."""

    def __init__(self, shape: Index) -> None:
        self.total = np.zeros(shape[:-1])

    def take(self, index: Index, rows: slice, columns: slice, w: Array) -> None:
        surprise = np.log(np.where(w > 0, w, 1))  # 0·ln 0 is 0; a NaN stays one
        surprise *= w
        self.total[index][rows] -= surprise.sum(axis=1, dtype=np.float64)

    def arrays(self) -> dict[str, Any]:
        return {"entropy": self.total}

    def result(self, dtype: Any) -> Array:
        return (self.total + 0).astype(dtype)  # + 0 makes -0 a 0


class Pooled:
    """Mean or maximum over blocks of the matrix: (*lead, H, rows, columns)."""

    def __init__(self, shape: Index, rows: int, columns: int, how: str) -> None:
        if how not in ("mean", "max"):
            raise ValueError(f"how must be 'mean' or 'max', got {how!r}")
        self.edges = [_edges(n, size) for n, size in ((rows, shape[-2]), (columns, shape[-1]))]
        self.add: Any = np.add if how == "mean" else np.maximum
        self.mean = how == "mean"
        counts = [len(edges) - 1 for edges in self.edges]
        self.total = np.zeros((*shape[:-2], *counts))

    def take(self, index: Index, rows: slice, columns: slice, w: Array) -> None:
        (i, first), (j, start) = map(_blocks_within, self.edges, (rows, columns))
        w = self.add.reduceat(w, start, axis=1, dtype=np.float64)
        w = self.add.reduceat(w, first, axis=0)
        place = self.total[index][i, j]
        self.add(place, w, out=place)

    def arrays(self) -> dict[str, Any]:
        return {"pooled": self.total, "most": not self.mean}

    def result(self, dtype: Any) -> Array:
        if self.mean:
            tall, wide = map(np.diff, self.edges)
            self.total /= tall[:, None] * wide
        return self.total.astype(dtype)


def _edges(n: int, size: int) -> Array:
    """Where n blocks of `size` begin, and the end; sizes differ by one at most."""
    n = min(_count("rows and columns", n), size)
    return np.arange(n + 1) * size // max(n, 1)


def _count(name: str, n: Any) -> int:
    if isinstance(n, (bool, np.bool_)) or not isinstance(n, (int, np.integer)):
        raise TypeError(f"{name} must be an int, got {n!r}")
    if n < 1:
        raise ValueError(f"{name} must be 1 or more, got {n}")
    return int(n)


def _blocks_within(edges: Array, part: slice) -> tuple[slice, Array]:
    """Which blocks a part of an axis touches, and where each begins, counted from the part."""
    first = int(np.searchsorted(edges, part.start, side="right")) - 1
    last = int(np.searchsorted(edges, part.stop, side="left"))
    return slice(first, last), np.maximum(edges[first:last] - part.start, 0)


class Distances:
    """Sum of each diagonal: (*lead, H, Nq + Nk - 1), from the first query and the last key on."""

    def __init__(self, shape: Index, start: Array) -> None:
        self.Nq, self.Nk = shape[-2:]
        self.start = start
        self.mass = np.zeros((*shape[:-2], max(self.Nq + self.Nk - 1, 0)))

    def take(self, index: Index, rows: slice, columns: slice, w: Array) -> None:
        r, c = w.shape
        skewed = np.zeros((r, c + r), w.dtype)  # each row one further to the right
        skewed[:, :c] = w[:, ::-1]
        skewed = skewed.ravel()[: r * (c + r - 1)].reshape(r, c + r - 1)
        first = rows.start - columns.stop + self.Nk
        self.mass[index][first : first + c + r - 1] += skewed.sum(axis=0, dtype=np.float64)

    def arrays(self) -> dict[str, Any]:
        return {"distances": self.mass}

    def result(self, dtype: Any) -> ByDistance:
        return by_distance(self.mass.astype(dtype), self.start, self.Nq, self.Nk)


def by_distance(mass: Array, start: Array, Nq: int, Nk: int) -> ByDistance:
    """The sums of the diagonals, beside their distances."""
    n = max(Nq + Nk - 1, 0)
    at = np.arange(n)
    pairs = np.minimum(np.minimum(at + 1, n - at), min(Nq, Nk))
    distance = at - (Nk - 1) + (start[..., None, None] if start.ndim else start)
    return ByDistance(distance, mass, pairs)


class Top:
    """The k largest of each row, the largest first: (*lead, H, Nq, k) weights and indices."""

    def __init__(self, shape: Index, k: int) -> None:
        self.k = min(_count("k", k), shape[-1])
        self.weights = np.zeros((*shape[:-1], self.k))
        self.indices = np.full((*shape[:-1], self.k), -1)

    def take(self, index: Index, rows: slice, columns: slice, w: Array) -> None:
        weights, indices = self.weights[index][rows], self.indices[index][rows]  # views
        here = np.broadcast_to(np.arange(columns.start, columns.stop), w.shape)
        w = np.concatenate([weights.astype(w.dtype), w], axis=1)
        best = _largest(np.where(np.isnan(w), np.inf, w), self.k)
        weights[:] = np.take_along_axis(w, best, axis=1)
        indices[:] = np.take_along_axis(np.concatenate([indices, here], axis=1), best, axis=1)

    def arrays(self) -> dict[str, Any]:
        return {"top": (self.weights, self.indices)}

    def result(self, dtype: Any) -> tuple[Array, Array]:
        self.indices[self.weights == 0] = -1
        return self.weights.astype(dtype), self.indices


def _largest(w: Array, k: int) -> Array:
    """Where the k largest of each row are, the largest first; of equals the first."""
    least = np.partition(w, -k, axis=1)[:, -k, None]
    above, equal = w > least, w == least
    room = k - above.sum(axis=1, keepdims=True)
    taken = above | (equal & (np.cumsum(equal, axis=1) <= room))
    at = np.nonzero(taken)[1].reshape(len(w), k)
    order = np.argsort(-np.take_along_axis(w, at, axis=1), axis=1, kind="stable")
    return np.take_along_axis(at, order, axis=1)


class Induction:
    """Weight to what followed an earlier occurrence of the query's token: (*lead, H).

    The mean over the queries whose token stands earlier and was followed by another than the query
    itself; NaN where none is.
    """

    def __init__(self, shape: Index, start: Array, tokens: Sequence[Any]) -> None:
        if len(tokens) != shape[-1]:
            raise ValueError(f"tokens must be one for each key, {shape[-1]}, got {len(tokens)}")
        numbers: dict[Any, int] = {}
        self.ids = np.array([numbers.setdefault(token, len(numbers)) for token in tokens], int)
        seen: dict[int, int] = {}
        first = np.array([seen.setdefault(int(t), i) for i, t in enumerate(self.ids)], int)
        self.repeats = first < np.arange(len(first)) - 1
        self.start = np.broadcast_to(start, shape[:-3])
        self.total, self.count = np.zeros(shape[:-2]), np.zeros((*shape[:-3], 1), int)
        for lead in np.ndindex(shape[:-3]):
            self.count[lead] = self._asked(lead, slice(0, shape[-2]))[0].sum()

    def _asked(self, lead: Index, rows: slice) -> tuple[Array, Array]:
        """Which of the queries have a token that stands earlier, and their positions."""
        p = self.start[lead] + np.arange(rows.start, rows.stop)
        asked = (p >= 0) & (p < len(self.ids))
        asked[asked] = self.repeats[p[asked]]
        return asked, p

    def arrays(self) -> dict[str, Any]:
        raise NotImplementedError  # no engine knows tokens

    def take(self, index: Index, rows: slice, columns: slice, w: Array) -> None:
        asked, p = self._asked(index[:-1], rows)
        if not asked.any():
            return
        j = np.arange(max(columns.start, 1), columns.stop)
        p = p[asked, None]
        follows = (self.ids[j - 1] == self.ids[p]) & (j < p)
        self.total[index] += w[asked][:, j - columns.start].sum(where=follows, dtype=np.float64)

    def result(self, dtype: Any) -> Array:
        return np.where(self.count, self.total / np.maximum(self.count, 1), np.nan).astype(dtype)


def head_records(
    summary: Summary, shape: Index, special: Array | None = None
) -> list[dict[str, Any]]:
    """One record a head, of received, entropy, by_distance and induction: see `heads`."""
    with np.errstate(all="ignore"):
        return [_record(summary, shape, index, special) for index in np.ndindex(shape[:-2])]


def _record(summary: Summary, shape: Index, index: Index, special: Array | None) -> dict[str, Any]:
    received: Any = summary.received
    entropy: Any = summary.entropy
    distances: Any = summary.by_distance
    *lead, _, Nq, _ = shape
    share = received[index] / Nq  # (Nk,) mean weight that each key gets
    mass = distances.mass[index]
    distance = np.broadcast_to(distances.distance, distances.mass.shape)[index]
    record: dict[str, Any] = {"batch": index[0] if len(lead) == 1 else index[:-1]} if lead else {}
    record["head"] = index[-1]
    for name, at in (("previous", 1), ("next", -1), ("diagonal", 0)):
        mean = distances.mean[index][distance == at]
        record[name] = float(mean[0]) if len(mean) else np.nan
    record["first"] = float(share[0]) if len(share) else np.nan
    if special is not None:
        record["separator"] = float(share[1:][special[1:]].sum())
    record["entropy"] = float(entropy[index].sum() / Nq)
    record["distance"] = float((mass * abs(distance)).sum() / mass.sum())
    repeated = summary.induction
    record["induction"] = np.nan if repeated is None else float(repeated[index])
    return record
