"""Single weights of a trace: found by their words, or by their size."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from heapq import nlargest
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from .attention_map import AttentionMap
from .predicates import Array
from .statistics import ROWS

__all__ = ["Link", "Links"]


class Link(NamedTuple):
    """One weight: how much the query token attends to the key token in one head.

    Of a word of several pieces, `query` and `key` are the index of the first, and the token is the
    whole word.
    """

    weight: float
    layer: int
    head: int
    query: int
    key: int
    query_token: str
    key_token: str


class Links:
    """Finding the weights of a trace: see `Trace`."""

    text: str
    tokens: list[str]
    spans: Array
    special: Array
    layers: list[AttentionMap]

    def strongest(
        self, n: int = 10, *, special: bool = False, self_links: bool = False
    ) -> list[Link]:
        """The n largest weights over all layers and heads, the largest first.

        Parameters
        ----------
        n : int
        special : bool
            Whether links from and to special tokens count.
        self_links : bool
            Whether a token's links to itself count.
        """
        if n < 1:
            raise ValueError(f"n must be 1 or more, got {n}")
        found: list[tuple[float, int, int, int, int]] = []
        for layer, attended in enumerate(self.layers):
            for head in range(attended.weights.shape[0]):
                found += (
                    (weight, layer, head, i, j)
                    for weight, i, j in self._strongest_of(attended, head, n, special, self_links)
                )
                found = nlargest(n, found, key=itemgetter(0))
        return [self._link(weight, la, h, (i,), (j,)) for weight, la, h, i, j in found]

    def _strongest_of(
        self, attended: AttentionMap, head: int, n: int, special: bool, self_links: bool
    ) -> Iterator[tuple[float, int, int]]:
        """The n largest of each block of rows of a head: (weight, query, key)."""
        every = np.arange(len(self.tokens))
        for start in range(0, len(every), ROWS):
            rows = every[start : start + ROWS]
            left_out = (rows[:, None] == every) & (not self_links)
            if not special:
                left_out |= self.special | self.special[rows, None]
            weights = np.where(left_out, -1, attended._weights_of((head,), rows, every))
            best = np.argpartition(weights, -min(n, weights.size), axis=None)[-n:]
            for i, j in zip(*np.unravel_index(best, weights.shape), strict=True):
                if not left_out[i, j]:
                    yield float(weights[i, j]), start + int(i), int(j)

    def find(self, a: str | int, b: str | int) -> list[Link]:
        """All heads, ranked by the weight from `a` to `b`, the largest first.

        Parameters
        ----------
        a, b : str or int
            The attending and the attended token: an index, or a word as it stands in the text
            (in any case; every occurrence is found), or a token. Of a word of several pieces the
            weights to its pieces are added and those from its pieces averaged, so that a row of
            words still sums to 1.

        Raises
        ------
        ValueError
            If there is no such word; lists the tokens.
        """
        found = []
        queries, keys = self._places(a), self._places(b)
        for layer, attended in enumerate(self.layers):
            for rows in queries:
                weights = attended.weights[:, list(rows)]  # (H, r, N)
                for columns in keys:
                    each = weights[:, :, columns].sum(axis=-1).mean(axis=-1)  # (H,)
                    found += [
                        self._link(weight, layer, head, rows, columns)
                        for head, weight in enumerate(each)
                    ]
        return sorted(found, key=lambda link: -link.weight)

    def _places(self, wanted: str | int) -> list[tuple[int, ...]]:
        """The tokens of each occurrence of a word; those of one index."""
        if isinstance(wanted, (int, np.integer)):
            if not -len(self.tokens) <= wanted < len(self.tokens):
                raise ValueError(f"there are {len(self.tokens)} tokens, got index {wanted}")
            return [(int(wanted) % len(self.tokens),)]
        found: set[tuple[int, ...]] = {
            (i,) for i, token in enumerate(self.tokens) if token.casefold() == wanted.casefold()
        }
        found |= {place for span in _spans_of(wanted, self.text) if (place := self._whole(span))}
        if not found:
            listed = ", ".join(f"{i} {token}" for i, token in enumerate(self.tokens))
            raise ValueError(f"the text has no word {wanted!r}; its tokens are: {listed}")
        return sorted(found)

    def _whole(self, span: tuple[int, int]) -> tuple[int, ...]:
        """The tokens that fill a span of the text just so; none if it cuts through one."""
        starts, ends = self.spans[:, 0], self.spans[:, 1]
        inside = np.flatnonzero((starts < span[1]) & (ends > span[0]) & ~self.special)
        if not len(inside) or (starts[inside[0]], ends[inside[-1]]) != span:
            return ()
        return tuple(int(i) for i in inside)

    def _link(
        self, weight: float, layer: int, head: int, query: tuple[int, ...], key: tuple[int, ...]
    ) -> Link:
        return Link(
            float(weight), layer, head, int(query[0]), int(key[0]),
            self._word(query), self._word(key),
        )  # fmt: skip

    def _word(self, place: tuple[int, ...]) -> str:
        if len(place) == 1:
            return self.tokens[place[0]]
        return self.text[self.spans[place[0], 0] : self.spans[place[-1], 1]]


def _spans_of(wanted: str, text: str) -> Iterator[tuple[int, int]]:
    """Where a word stands in a text, in any case, white space and composition of its letters."""
    forms = {unicodedata.normalize(form, wanted.strip()) for form in ("NFC", "NFD")} - {""}
    for form in forms:
        pattern = r"\s+".join(map(re.escape, form.split()))
        yield from (match.span() for match in re.finditer(pattern, text, re.IGNORECASE))
