"""What is asked of the weights of a call as a whole: the methods that every map has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import statistics
from .predicates import Array
from .problem import Index, Problem
from .statistics import ByDistance, Summary
from .weights import Block

__all__ = ["Summaries"]


class Summaries:
    """Statistics of weights (*lead, H, Nq, Nk), in linear memory: see `AttentionMap`."""

    _problem: Problem | None
    _weights_of: Block
    _look: Callable[..., None] | None  # the engine's own pass
    _bare: Index  # (0,) where the caller's arrays had no axis of heads
    _whole: Index  # (*lead, H, Nq, Nk), with it
    _start: Array
    _dtype: np.dtype[Any]

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
        >>> attended = regard.AttentionMap.from_weights(np.full((4, 4), 0.25))
        >>> attended.summary("entropy", pooled=(2, 2)).pooled
        array([[0.25, 0.25],
               [0.25, 0.25]])
        """
        made = self._made(wanted, top, pooled, how, tokens)
        return Summary(**{name: self._without_heads(name, one) for name, one in made.items()})

    def _made(
        self,
        wanted: tuple[str, ...],
        top: int | None,
        pooled: tuple[int, int] | None,
        how: str,
        tokens: Sequence[Any] | None,
    ) -> dict[str, Any]:
        """What is wanted, by name, with the axis of heads."""
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
        made = dict(zip(parts, self._computed(list(parts.values())), strict=True))
        if tokens is not None:  # no engine knows tokens: a pass of its own
            part = statistics.Induction(self._whole, self._start, tokens)
            made["induction"] = self._block_by_block([part])[0]
        return made

    def _computed(self, parts: list[statistics.Part]) -> list[Any]:
        """What each part makes of the weights, in one pass: the engine's own, if it has one."""
        if self._look is not None and parts:
            return statistics.looked(self._look, self._dtype, parts)
        return self._block_by_block(parts)

    def _block_by_block(self, parts: list[statistics.Part]) -> list[Any]:
        return statistics.summarize(self._weights_of, self._reach, self._whole, self._dtype, parts)

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
        >>> previous = regard.AttentionMap.from_weights(np.eye(5)[[0, 0, 1, 2, 3]])
        >>> previous.heads()[0]["previous"]
        1.0
        """
        return self._records_and_summary(tokens, None)[0]

    def _records_and_summary(
        self, tokens: Sequence[Any] | None, special: Array | None
    ) -> tuple[list[dict[str, Any]], Summary]:
        made = self._made(("received", "entropy", "by_distance"), None, None, "mean", tokens)
        summary = Summary(**made)
        return statistics.head_records(summary, self._whole, special), summary


def _had(made: Any) -> Any:
    assert made is not None
    return made
