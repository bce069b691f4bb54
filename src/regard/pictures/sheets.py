"""What a page stores: weights in 8 bits, the strongest of each row exact.

A weight w is kept as the byte c = round(255·√w), which tells w within c / 255², about √w / 255. For
each row the strongest weight, its key and the row's sum are kept in float32 beside the bytes.
Contributions need no bytes of their own: they are weight · norm, and a norm belongs to a key.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..attention_map import AttentionMap
from ..predicates import Array
from ..trace import Trace
from ..words import starts_of_words
from .labels import visible

__all__ = ["Sheet", "block_of", "codes_of", "sheets_of"]

MOST_TOKENS = 1024  # whose pairs are shown; beyond, the whole text is pooled
MOST_PAIRS = 144 * 512 * 512  # of all heads together; beyond, likewise
POOLED, WINDOW = 128, 256  # blocks of a pooled picture; tokens of the window if none is asked for
ROWS = 128  # looked at together
SPACES = ("Ġ", "▁")  # what stands for a space at the beginning of a token
TOLERANCE = 1e-3  # by which rounding may carry a weight over 1


@dataclass(frozen=True)
class Sheet:
    """One square of weights for each head: all tokens, blocks of them, or a window of them.

    Attributes
    ----------
    trace : Trace
    name : {"all", "pooled", "window"}
    edges : (n + 1,) array of int
        Where its rows (and columns) begin among the tokens, and the end.
    causal : bool
        Whether only the lower triangle is stored; the rest counts as hidden.
    masked : bool
        Whether other pairs are hidden, so that a bit for each pair is stored.
    """

    trace: Trace
    name: str
    edges: Array
    causal: bool
    masked: bool = False

    @property
    def n(self) -> int:
        return len(self.edges) - 1

    @property
    def pooled(self) -> bool:
        return self.name == "pooled"

    @property
    def contributes(self) -> bool:
        return self.trace.moved is not None and not self.pooled

    @property
    def part(self) -> slice:
        return slice(int(self.edges[0]), int(self.edges[-1]))

    def about(self) -> dict[str, Any]:
        """What the page needs to know of it, as JSON."""
        starts = self.edges[:-1]
        return {
            "name": self.name,
            "n": self.n,
            "from": self.part.start,
            "to": self.part.stop,
            "causal": self.causal,
            "masked": self.masked,
            "contributions": self.contributes,
            "largestContribution": self._largest_contribution(),
            "tokens": [self._token(i) for i in range(self.n)],
            "starts": starts.tolist(),
            "special": [bool(x) and not self.pooled for x in self.trace.special[starts]],
            "first": bool(starts[0] == 0) and not self.pooled,
            **self._words(),
        }

    def _token(self, i: int) -> str:
        start, stop = int(self.edges[i]), int(self.edges[i + 1])
        shown = visible(_spelled(self.trace, start))
        return f"{shown} … {stop - 1}" if stop > start + 1 else shown

    def _words(self) -> dict[str, Any]:
        """The word that each token is of, and how a word of several pieces is spelled."""
        if self.pooled:
            return {"words": list(range(self.n)), "spelled": {}}
        trace = self.trace
        starts = starts_of_words(trace.text, trace.spans, trace.special, trace._words)
        word = np.searchsorted(starts, np.arange(len(trace)), side="right")
        ends = np.append(starts[1:], len(trace))
        spelled = {
            int(a): visible(trace.text[trace.spans[a, 0] : trace.spans[b - 1, 1]], 40)
            for a, b in zip(starts, ends, strict=True)
            if b > a + 1
        }
        here = {a - self.part.start: s for a, s in spelled.items() if a in range(*self._bounds())}
        return {"words": word[self.part].tolist(), "spelled": here}

    def _bounds(self) -> tuple[int, int]:
        return self.part.start, self.part.stop

    def _largest_contribution(self) -> float:
        """The end of the scale for contributions, over all heads."""
        if not self.contributes:
            return 1.0
        return (
            max(
                (float((self._weights(i) * norms[:, None]).max()) for i, norms in self._norms()),
                default=1.0,
            )
            or 1.0
        )

    def _norms(self) -> Iterator[tuple[int, Array]]:
        for i, norms in enumerate(self.trace.moved or []):
            yield i, np.asarray(norms, np.float32)[:, self.part]

    def blocks(self) -> Iterator[bytes]:
        """A deflated block for each layer."""
        norms = dict(self._norms()) if self.contributes else {}
        for i, layer in enumerate(self.trace.layers):
            hidden = ~np.asarray(layer.visible[:, self.part, self.part]) if self.masked else None
            yield block_of(self._weights(i), norms.get(i), causal=self.causal, hidden=hidden)

    def _weights(self, i: int) -> Array:
        """(H, n, n) of layer i: weights to a block are added, those from a block averaged."""
        layer = self.trace.layers[i]
        if self.pooled:
            w = layer.pooled(self.n, self.n) * np.diff(self.edges)
        else:
            w = np.asarray(layer.weights[:, self.part, self.part])
        fits = (w >= 0) & (w <= 1 + TOLERANCE)
        if not fits.all():
            raise ValueError(f"a page shows weights from 0 to 1, layer {i} has {w[~fits][0]:.6g}")
        return w.astype(np.float32)


def _spelled(trace: Trace, i: int) -> str:
    """The token; with the text's own letters where the tokenizer marks spaces and spells bytes."""
    token = trace.tokens[i]
    start, stop = trace.spans[i]
    if trace.special[i] or not any(each[:1] in SPACES for each in trace.tokens):
        return token
    letters = trace.text[start:stop].strip(" ") or token.lstrip("".join(SPACES))
    return " " * (token[:1] in SPACES) + letters


def codes_of(w: Array) -> Array:
    """Weights from 0 to 1 as bytes, in steps of the square root."""
    return np.rint(255 * np.sqrt(np.minimum(w, 1))).astype(np.uint8)


def block_of(
    w: Array, norms: Array | None = None, *, causal: bool = False, hidden: Array | None = None
) -> bytes:
    """A layer, deflated: numbers of its rows, then a byte for each pair, then a bit for each.

    Parameters
    ----------
    w : (H, n, n) array of float32
    norms : (H, n) array of float32, optional
        Of what each key's value brings, for contributions.
    causal : bool
        Keep the lower triangle alone, row by row.
    hidden : (H, n, n) array of bool, optional
    """
    parts = _strongest(w)
    if norms is not None:
        parts += [norms.astype("<f4"), *_strongest(w * norms[:, None])]
    codes = codes_of(w)
    parts.append(codes[:, *np.tril_indices(w.shape[-1])] if causal else codes)
    if hidden is not None:
        parts.append(np.packbits(hidden.ravel(), bitorder="little"))
    return zlib.compress(b"".join(part.tobytes() for part in parts), 6)


def _strongest(w: Array) -> list[Array]:
    """Of each row the strongest key, its weight and the row's sum, (H, n) each."""
    key = w.argmax(axis=-1)
    value = np.take_along_axis(w, key[..., None], axis=-1)
    total = w.sum(axis=-1, dtype=np.float64)
    return [key.astype("<u4"), value.astype("<f4"), total.astype("<f4")]


def sheets_of(trace: Trace, window: tuple[int, int] | None = None) -> list[Sheet]:
    """All tokens while they fit; else the whole text pooled, and a window of its tokens exactly."""
    n = len(trace)
    heads = len(trace.layers) * trace.layers[0].weights.shape[0]
    causal = all(map(_is_causal, trace.layers))
    pairs = heads * (n * (n + 1) // 2 if causal else n * n)
    if window is None and n <= MOST_TOKENS and pairs <= MOST_PAIRS:
        masked = not causal and any(map(_hides, trace.layers))
        return [Sheet(trace, "all", np.arange(n + 1), causal, masked)]
    start, stop = (0, min(n, WINDOW)) if window is None else window
    most = min(MOST_TOKENS, int((MOST_PAIRS // heads) ** 0.5))
    if not (0 <= start < stop <= n and stop - start <= most):
        raise ValueError(
            f"window must be (start, stop), at most {most} of the {n} tokens, got {window!r}"
        )
    blocks, part = min(n, POOLED), slice(start, stop)
    masked = not causal and not all(x.visible[:, part, part].all() for x in trace.layers)
    return [
        Sheet(trace, "pooled", np.arange(blocks + 1) * n // blocks, causal),
        Sheet(trace, "window", np.arange(start, stop + 1), causal, masked),
    ]


def _blocks(layer: AttentionMap) -> Iterator[tuple[int, int, slice]]:
    H, N, _ = layer.weights.shape
    for head in range(H):
        for row in range(0, N, ROWS):
            yield head, row, slice(row, row + ROWS)


def _is_causal(layer: AttentionMap) -> bool:
    """Whether no weight lies above the diagonal."""
    return not any(
        np.triu(layer.weights[head, rows], row + 1).any() for head, row, rows in _blocks(layer)
    )


def _hides(layer: AttentionMap) -> bool:
    """Whether some pair is hidden."""
    return not all(layer.visible[head, rows].all() for head, _, rows in _blocks(layer))
