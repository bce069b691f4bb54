"""Averages of many traces, kept as averages and named so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .predicates import Array
from .trace import Trace

__all__ = ["Averages", "average"]

WHERE = ("layer", "head")


class Averages:
    """Averages over the texts of a corpus, of no single text: made by `model.look([texts])`.

    Attributes
    ----------
    texts : int
        How many texts went in.
    tokens : int
        How many tokens, special ones included.
    distance : (M,) array of int
        Query less key, of `mass`; 0 is the diagonal.
    mass : (L, H, M) array
        Mean weight that a query gives to the key at each distance, over the queries of all texts
        that have a key there.
    """

    def __init__(
        self, texts: int, tokens: int, records: list[dict[str, Any]], distance: Array, mass: Array
    ) -> None:
        self.texts = texts
        self.tokens = tokens
        self.distance = distance
        self.mass = mass
        self._records = records

    def __repr__(self) -> str:
        return (
            f"Averages(over {self.texts} texts, {self.tokens} tokens; "
            f"{self.mass.shape[0]} layers of {self.mass.shape[1]} heads)"
        )

    def heads(self) -> list[dict[str, Any]]:
        """Statistics of each head, as `Trace.heads` gives them, averaged over the texts.

        Each text counts by its tokens; one without a value (induction where no token repeats)
        does not count there.

        Returns
        -------
        list of dict
            `averaged_over`, the number of texts, leads each record.
        """
        return [{"averaged_over": self.texts, **record} for record in self._records]


def average(traces: Iterable[Trace], progress: Callable[[int], object] | None = None) -> Averages:
    """The averages of traces of one model, taken one after another and not kept."""
    texts = tokens = 0
    totals: list[dict[str, Array]] = []  # of each head, by name: (sum, sum of what counted)
    places: list[dict[str, Any]] = []
    mass, pairs, shape = np.zeros((1, 1)), np.zeros(1), (0, 0)
    for trace in traces:
        N = len(trace)
        records, here = _of_one(trace)
        texts, tokens = texts + 1, tokens + N
        if not totals:
            places = [{name: record.pop(name) for name in WHERE} for record in records]
            totals = [{name: np.zeros(2) for name in record} for record in records]
            shape = here.shape[:2]
            mass = np.zeros((here[..., 0].size, 1))
        for total, record in zip(totals, records, strict=True):
            for name in total:
                if not np.isnan(record[name]):
                    total[name] += (record[name] * N, N)
        mass, pairs = _added(mass, here.reshape(len(mass), -1)), _added(pairs, _pairs(N))
        if progress is not None:
            progress(texts)
    if not texts:
        raise ValueError("there must be at least one text to average over, got none")
    with np.errstate(all="ignore"):
        means = [
            {**place, **{name: float(a / b) for name, (a, b) in total.items()}}
            for place, total in zip(places, totals, strict=True)
        ]
    half = len(pairs) // 2
    return Averages(
        texts, tokens, means, np.arange(-half, half + 1), (mass / pairs).reshape(*shape, -1)
    )


def _of_one(trace: Trace) -> tuple[list[dict[str, Any]], Array]:
    """The records of a trace, and the mass at each distance, (L, H, 2N - 1)."""
    records, mass = [], []
    for layer, attended in enumerate(trace.layers):
        each, summary = attended._records_and_summary(trace.tokens, trace.special)
        records += [{"layer": layer, **record} for record in each]
        assert summary.by_distance is not None
        mass.append(summary.by_distance.mass)
    return records, np.array(mass)


def _pairs(N: int) -> Array:
    return N - abs(np.arange(1.0 - N, N))


def _added(a: Array, b: Array) -> Array:
    """a + b along the last axis, the shorter of them in the middle of the longer."""
    if a.shape[-1] < b.shape[-1]:
        a, b = b, a
    side = (a.shape[-1] - b.shape[-1]) // 2
    a = a.copy()
    a[..., side : side + b.shape[-1]] += b
    return a
