"""Word pieces as words: columns added, rows averaged, so that a row of words still sums to 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from .attention_map import AttentionMap
from .predicates import Array
from .problem import Index

__all__ = ["merge", "merged_map", "spelled", "starts_of_words"]


def starts_of_words(text: str, spans: Array, special: Array, words: Any = None) -> Array:
    """The first token of each word, (words,).

    `words` numbers the word of each token where the tokenizer tells. Where it does not, tokens that
    touch in the text with a letter or digit on both sides are of one word.
    """

    def begins(i: int) -> bool:
        if i == 0 or special[i] or special[i - 1]:
            return True
        if words is None:
            return not _one_word(text, spans[i - 1 : i + 1])
        return bool(words[i] != words[i - 1])

    starts = [begins(i) for i in range(len(spans))]
    return np.flatnonzero(starts)


def _one_word(text: str, spans: Array) -> bool:
    (first, seam), (start, last) = spans.tolist()
    whole = first < seam == start < last
    return whole and text[seam - 1].isalnum() and text[seam].isalnum()


def merge(weights: Array, starts: Array) -> Array:
    """Weights (…, N, N) of tokens as those of words, (…, words, words)."""
    sizes = np.diff([*starts, weights.shape[-1]])
    columns = np.add.reduceat(weights, starts, axis=-1)
    return np.add.reduceat(columns, starts, axis=-2) / sizes.astype(weights.dtype)[:, None]


def merged_map(attended: AttentionMap, starts: Array, N: int) -> AttentionMap:
    """The map of words of a map of tokens, computed on demand too."""
    ends = np.array([*starts[1:], N])

    def tokens_of(words: Array) -> tuple[Array, Array]:
        """The tokens of the words, and where each word begins among them."""
        sizes = ends[words] - starts[words]
        first = np.cumsum(sizes) - sizes
        return np.repeat(starts[words] - first, sizes) + np.arange(sizes.sum()), first

    def weights_of(index: Index, rows: Array, columns: Array) -> Array:
        if not (len(rows) and len(columns)):
            return np.zeros((len(rows), len(columns)), attended.weights.dtype)
        (i, row), (j, column) = tokens_of(rows), tokens_of(columns)
        summed = np.add.reduceat(attended._weights_of(index, i, j), column, axis=1)
        sizes = (ends - starts)[rows, None].astype(summed.dtype)
        return np.add.reduceat(summed, row, axis=0) / sizes

    def seen(index: Index, rows: Array, columns: Array) -> Array:
        if not (len(rows) and len(columns)):
            return np.zeros((len(rows), len(columns)), bool)
        (i, row), (j, column) = tokens_of(rows), tokens_of(columns)
        some = np.logical_or.reduceat(attended._visible(index, i, j), column, axis=1)
        return np.logical_or.reduceat(some, row, axis=0)

    *heads, _, _ = attended.weights.shape
    return AttentionMap._of(
        weights_of, (*heads, len(starts), len(starts)), attended.weights.dtype,
        start=np.zeros((), int), seen=seen,
    )  # fmt: skip


def spelled(tokens: list[str]) -> tuple[str, list[tuple[int, int]]]:
    """A text that the tokens may have come from, and where each stands in it.

    "##" continues a word; "Ġ" or "▁" begins one, and where a token has such a mark, those without
    continue. Else each token is a word.
    """
    marked = any(token[:1] in ("Ġ", "▁") for token in tokens)
    text, spans = "", []
    for token in tokens:
        glued = token.startswith("##") or (marked and token[:1] not in ("Ġ", "▁"))
        shown = token.removeprefix("##") if token.startswith("##") else token.lstrip("Ġ▁")
        text += "" if glued or not text else " "
        spans.append((len(text), len(text) + len(shown)))
        text += shown
    return text, spans
