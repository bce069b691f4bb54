"""The weights of one call, exact and on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import statistics
from .engines import tiled
from .predicates import Array, first_position
from .problem import Index, Problem, Result, is_float
from .statistics import ByDistance, Summary
from .steps import Row, steps_of
from .weights import Block, Weights

__all__ = ["AttentionMap"]

GIB = 2**30


class AttentionMap:
    """What one call of attention attended to: made by `regard.look`, or of any weights.

    Every statistic is computed block by block from the exact weights, in memory that grows with
    Nq + Nk, and counts a hidden pair as weight 0.

    Attributes
    ----------
    output : (*lead, H, Nq, Dv) array or None
        What `regard.attention` returns; None where `look` was given no value.
    lse : (*lead, H, Nq) array or None
        Natural logarithm of the softmax's denominator; None for weights from elsewhere.
    weights : Weights
        Array-like of shape (*lead, H, Nq, Nk), computed where it is indexed and never kept.
    visible : Weights
        Array-like of bool, alike: False where a pair is hidden.
    limit : int
        The most bytes that one indexing may form, 1 GiB at first; may be raised.

    Notes
    -----
    The arrays of the call are kept, not copied: do not change them while you look.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q = k = v = np.eye(3)
    >>> attended = regard.look(q, k, v, causal=True)
    >>> attended.weights[-1].round(3)
    array([0.264, 0.264, 0.471])
    >>> attended.received().round(3)  # what each key gets, over all queries
    array([1.624, 0.904, 0.471])
    """

    def __init__(self, problem: Problem, result: Result, has_output: bool) -> None:
        bare = (0,) if problem.bare else ()
        self.output: Array | None = result.output[bare] if has_output else None
        self.lse: Array | None = result.lse[bare]
        self.limit = GIB
        self._problem: Problem | None = problem
        self._weights_of: Block = result.weights_of
        self._bare = bare
        self._whole = problem.shape  # (*lead, H, Nq, Nk), with heads
        self._start = problem.start
        self._dtype = problem.dtype
        self._seen: Array | None = None

    @classmethod
    def from_weights(
        cls, weights: Any, *, align: Any = None, visible: Array | None = None
    ) -> AttentionMap:
        """A map of weights from anywhere: all that does not need queries and keys.

        Parameters
        ----------
        weights : (*lead, H, Nq, Nk) array of float
            Or (Nq, Nk), one head. Kept, not copied. 16-bit weights are widened where they are read.
        align : {"top-left", "bottom-right"}, int, or (*lead,) array of int
            The position of query 0 among the keys, as in `regard.attention`; default "top-left".
        visible : bool array
            Broadcasts to the weights; False = hidden, for pictures. Default: all are visible.

        Returns
        -------
        AttentionMap
            Its `output` and `lse` are None.

        Raises
        ------
        TypeError, ValueError
            If the weights are no floats, have fewer than two axes, or one is negative.

        Examples
        --------
        >>> AttentionMap.from_weights(np.array([[1.0, 0.0], [0.25, 0.75]])).top(1)[1]
        array([[0],
               [1]])
        """
        weights = np.asanyarray(weights)
        if not is_float(weights.dtype):
            raise TypeError(f"weights must be an array of float, got {weights.dtype}")
        if weights.ndim < 2:
            raise ValueError(f"weights must be (*lead, H, Nq, Nk), got {weights.shape}")
        if any((row < 0).any() for row in weights.reshape(-1, *weights.shape[-2:])):
            raise ValueError("weights must not be negative")
        dtype = np.result_type(weights.dtype, np.float32)
        made = cls.__new__(cls)
        made._bare = (0,) if weights.ndim == 2 else ()
        whole = weights[None] if made._bare else weights

        def weights_of(index: Index, rows: Array, columns: Array) -> Array:
            return whole[index][np.ix_(rows, columns)].astype(dtype)

        return made._of(weights_of, whole.shape, dtype, align, visible)

    def _of(
        self, weights_of: Block, whole: Index, dtype: Any, align: Any = None, visible: Any = None
    ) -> AttentionMap:
        self.output = self.lse = self._problem = None
        self.limit = GIB
        self._weights_of, self._whole, self._dtype = weights_of, whole, np.dtype(dtype)
        align = "top-left" if align is None else align
        self._start = first_position(align, whole[-2], whole[-1])
        self._seen = None if visible is None else np.broadcast_to(visible, whole)
        return self

    @property
    def weights(self) -> Weights:
        return Weights(self._block, self._shape, self._dtype, self.limit)

    @property
    def visible(self) -> Weights:
        return Weights(self._visible, self._shape, bool, self.limit, "visible pairs")

    @property
    def _shape(self) -> Index:
        return self._whole[len(self._bare) :]

    def __repr__(self) -> str:
        return f"AttentionMap(weights {self._shape}, {self._dtype})"

    def _block(self, head: Index, rows: Array, columns: Array) -> Array:
        return self._weights_of((*self._bare, *head), rows, columns)

    def _visible(self, head: Index, rows: Array, columns: Array) -> Array:
        index = (*self._bare, *head)
        if self._problem is not None:
            return tiled.scores_of(self._problem, index, rows, columns) != -np.inf
        if self._seen is None:
            return np.ones((len(rows), len(columns)), bool)
        return self._seen[index][np.ix_(rows, columns)]

    # ---------------------------------------------------------------------------- statistics

    def top(self, k: int) -> tuple[Array, Array]:
        """The k strongest keys of each query, the strongest first.

        Parameters
        ----------
        k : int
            Where there are fewer keys, as many as there are.

        Returns
        -------
        weights : (*lead, H, Nq, k) array
        indices : (*lead, H, Nq, k) array of int
            The keys; of equal weights the first. -1 where the weight is 0.
        """
        return _had(self.summary(top=k).top)

    def received(self) -> Array:
        """What each key gets over all queries, (*lead, H, Nk): the sums of the columns."""
        return _had(self.summary("received").received)

    def entropy(self) -> Array:
        """How spread each query's weights are, (*lead, H, Nq), in nats: -Σ w·ln w.

        0 for a query that sees one key alone, or none; ln n for n keys alike. What a sink takes is
        no key's and does not count.
        """
        return _had(self.summary("entropy").entropy)

    def pooled(self, rows: int, columns: int, how: str = "mean") -> Array:
        """Mean or maximum over blocks of the matrix, for a picture of any length.

        Parameters
        ----------
        rows, columns : int
            How many blocks; where there are fewer queries or keys, as many as those. Block i holds
            the indices from ⌊i·N / rows⌋ up to ⌊(i + 1)·N / rows⌋.
        how : {"mean", "max"}

        Returns
        -------
        (*lead, H, rows, columns) array
        """
        return _had(self.summary(pooled=(rows, columns), how=how).pooled)

    def by_distance(self) -> ByDistance:
        """Weight by the distance from key to query: (distance, mass, pairs), and their `mean`.

        Distance is the query's position less the key's; the query's position is its index, moved by
        `align`. The mass at a distance is the sum of that diagonal.
        """
        return _had(self.summary("by_distance").by_distance)

    def summary(
        self,
        *wanted: str,
        top: int | None = None,
        pooled: tuple[int, int] | None = None,
        how: str = "mean",
        tokens: Sequence[Any] | None = None,
    ) -> Summary:
        """Several statistics in one pass over the weights.

        Parameters
        ----------
        *wanted : {"received", "entropy", "by_distance"}
        top : int, optional
            As in `top`.
        pooled : (rows, columns), optional
        how : {"mean", "max"}
            As in `pooled`.
        tokens : sequence, optional
            One for each key, for induction: the mean, over the queries whose token stood earlier
            in the text, of the weight to what followed it there.

        Returns
        -------
        Summary
            A record of top, received, entropy, pooled, by_distance, induction; None where not
            wanted.

        Raises
        ------
        TypeError, ValueError
            That say what must hold and what was got.

        Examples
        --------
        >>> attended = AttentionMap.from_weights(np.full((4, 4), 0.25))
        >>> attended.summary("entropy", pooled=(2, 2)).pooled
        array([[0.25, 0.25],
               [0.25, 0.25]])
        """
        makers: dict[str, Any] = {
            "received": lambda: statistics.Received(self._whole),
            "entropy": lambda: statistics.Entropy(self._whole),
            "by_distance": lambda: statistics.Distances(self._whole, self._start),
        }
        for name in wanted:
            if name not in makers:
                raise ValueError(
                    f"wanted must be among {', '.join(map(repr, makers))} "
                    f"(others go by name: top=5, pooled=(64, 64), tokens=...), got {name!r}"
                )
        parts = {name: makers[name]() for name in wanted}
        if top is not None:
            parts["top"] = statistics.Top(self._whole, top)
        if pooled is not None:
            parts["pooled"] = statistics.Pooled(self._whole, *pooled, how)
        if tokens is not None:
            parts["induction"] = statistics.Induction(self._whole, self._start, tokens)
        made = statistics.summarize(
            self._weights_of, self._reach, self._whole, self._dtype, parts.values()
        )
        return Summary(
            **{name: self._without_heads(name, one) for name, one in zip(parts, made, strict=True)}
        )

    def _without_heads(self, name: str, made: Any) -> Any:
        """What was made, without the axis of heads that the caller's arrays did not have."""
        if name == "by_distance":
            return made._replace(mass=made.mass[self._bare])
        if name == "top":
            return tuple(x[self._bare] for x in made)
        return made[self._bare]

    def _reach(self, index: Index, rows: slice) -> tuple[int, int]:
        """The keys that some query of these rows sees, by their intervals."""
        p = self._problem
        if p is None or p.lo is None or p.hi is None:
            return 0, self._whole[-1]
        lo, hi = p.lo[index][rows], p.hi[index][rows]
        seeing = lo < hi
        return (
            int(lo.min(where=seeing, initial=self._whole[-1])),
            int(hi.max(where=seeing, initial=0)),
        )

    def heads(self, tokens: Sequence[Any] | None = None) -> list[dict[str, Any]]:
        """Statistics of each head, as records that a data frame accepts.

        Parameters
        ----------
        tokens : sequence, optional
            One for each key; where tokens repeat, the records' `induction` is a number.

        Returns
        -------
        list of dict
            One a head, with `batch` too where the call had axes before the heads:

            - previous, next, diagonal: mean weight to the key before the query's own position,
              after it, at it, over the queries that have such a key
            - first: mean weight to key 0
            - entropy: mean over the queries, in nats
            - distance: mean of |query's position - key's|, weighted by the weights
            - induction: mean weight to what followed an earlier occurrence of the query's token,
              over the queries that have one; NaN where none has

        References
        ----------
        Olsson et al., "In-context Learning and Induction Heads", 2022, for induction.

        Examples
        --------
        >>> previous = AttentionMap.from_weights(np.eye(5)[[0, 0, 1, 2, 3]])
        >>> previous.heads()[0]["previous"]
        1.0
        """
        return self._records(tokens, None)

    def _records(self, tokens: Sequence[Any] | None, special: Array | None) -> list[dict[str, Any]]:
        summary = self.summary("received", "entropy", "by_distance", tokens=tokens)
        if self._bare:
            whole = {
                name: made[None] for name in ("received", "entropy", "induction")
                if (made := getattr(summary, name)) is not None
            }  # fmt: skip
            distances = _had(summary.by_distance)
            summary = summary._replace(
                **whole, by_distance=distances._replace(mass=distances.mass[None])
            )
        return statistics.head_records(summary, self._whole, special)

    def row(self, *index: int) -> Row:
        """How the weights of one query come about, step by step; prints as a table.

        Parameters
        ----------
        *index : int
            Of the row: (*lead, head, query). Axes of length 1 at the front may be left out.

        Returns
        -------
        Row
            scores, shifted, exponentials and weights, (Nk,) each. Computed in NumPy: the engine's
            weights are these to rounding.

        Raises
        ------
        IndexError
            If there is no such row.
        ValueError
            If the map was made from weights, which do not tell the scores.

        Examples
        --------
        >>> q = k = np.eye(3)
        >>> print(regard.look(q, k, causal=True).row(1))
        query 1: the largest score is 0.5774, the sum of the exponentials 1.561
            key       score   - largest         exp       / sum
              0           0     -0.5774      0.5614      0.3595
              1      0.5774           0           1      0.6405
        and 1 hidden ones
        """
        if self._problem is None:
            raise ValueError("this map was made from weights: the scores behind them are not known")
        axes = self._whole[:-1]
        ones = len(axes) - len(index)
        if ones < 0 or any(n != 1 for n in axes[:ones]):
            raise IndexError(f"a row's index must be one int for each of {self._shape[:-1]}, "
                             f"got {index}")  # fmt: skip
        full = (*(0,) * ones, *index)
        for i, n in zip(full, axes, strict=True):
            if not -n <= i < n:
                raise IndexError(f"a row's index must lie within {self._shape[:-1]}, got {index}")
        *head, query = (int(i) % n for i, n in zip(full, axes, strict=True))
        return steps_of(self._problem, tuple(head), query)


def _had(made: Any) -> Any:
    assert made is not None
    return made
