"""What a whole model attended to in one text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .attention_map import AttentionMap
from .predicates import Array

__all__ = ["Link", "Trace"]


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


class Trace:
    """Tokens of a text, and one `AttentionMap` for each layer: made by `model.look`.

    Attributes
    ----------
    text : str
    tokens : list of str
        N of them, special ones included.
    spans : (N, 2) int array
        Where each token stands in the text; (0, 0) for a special one.
    special : (N,) bool array
        Which tokens the model's tokenizer added.
    layers : list of AttentionMap
        Weights (H, N, N) each, counted from 0.
    """

    def __init__(
        self, text: str, tokens: list[str], spans: Any, special: Any, layers: list[AttentionMap]
    ) -> None:
        self.text = text
        self.tokens = tokens
        self.spans: Array = np.asarray(spans, int).reshape(len(tokens), 2)
        self.special: Array = np.asarray(special, bool)
        self.layers = layers

    def __len__(self) -> int:
        return len(self.tokens)

    def _repr_html_(self) -> str:
        """What a notebook shows: a small picture of all heads, offline, in light and dark."""
        from .pictures.inline import trace_html

        return trace_html(self)

    def __repr__(self) -> str:
        heads = self.layers[0].weights.shape[0] if self.layers else 0
        return f"Trace({len(self)} tokens, {len(self.layers)} layers of {heads} heads)"

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
        hidden = np.eye(len(self), dtype=bool) & (not self_links)
        if not special:
            hidden |= self.special | self.special[:, None]
        found = []
        for layer, attended in enumerate(self.layers):
            weights = np.where(hidden, -1, np.asarray(attended.weights))  # (H, N, N)
            best = np.argpartition(weights, -min(n, weights.size), axis=None)[-n:]
            for head, i, j in zip(*np.unravel_index(best, weights.shape), strict=True):
                if not hidden[i, j]:
                    found.append(self._link(weights[head, i, j], layer, int(head), (i,), (j,)))
        return sorted(found, key=lambda link: -link.weight)[:n]

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
            weights = np.asarray(attended.weights)  # (H, N, N)
            for rows in queries:
                for columns in keys:
                    each = weights[:, rows][:, :, columns].sum(axis=-1).mean(axis=-1)  # (H,)
                    found += [
                        self._link(weight, layer, head, rows, columns)
                        for head, weight in enumerate(each)
                    ]
        return sorted(found, key=lambda link: -link.weight)

    def _places(self, wanted: str | int) -> list[tuple[int, ...]]:
        """The tokens of each occurrence of a word; those of one index."""
        if isinstance(wanted, (int, np.integer)):
            if not -len(self) <= wanted < len(self):
                raise ValueError(f"there are {len(self)} tokens, got index {wanted}")
            return [(int(wanted) % len(self),)]
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
