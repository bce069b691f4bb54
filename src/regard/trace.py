"""What a whole model attended to in one text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from . import trace_file
from .attention_map import AttentionMap
from .flow import Flow, moved_by
from .links import Link, Links
from .predicates import Array
from .words import merge, merged_map, spelled, starts_of_words

__all__ = ["Link", "Trace", "moved_by"]


class Trace(Links, Flow):
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
    moved : list of (H, N) array, or None
        For each layer, the norm of what a token's value brings to the output of the layer, through
        each head: ‖value · output projection‖. None where it is not known.
    hidden : (N, D) array or None
        The last hidden state; None where it is not known.
    without : tuple of (layer, head)
        The heads that were switched off.
    plain : Trace or None
        Where heads were switched off, the trace of the same text with all of them.
    """

    def __init__(
        self,
        text: str,
        tokens: list[str],
        spans: Any,
        special: Any,
        layers: list[AttentionMap],
        *,
        words: Sequence[int | None] | None = None,
        moved: Sequence[Array] | None = None,
        hidden: Array | None = None,
        without: Iterable[tuple[int, int]] = (),
        plain: Trace | None = None,
    ) -> None:
        self.text = text
        self.tokens = tokens
        self.spans: Array = np.asarray(spans, int).reshape(len(tokens), 2)
        self.special: Array = np.asarray(special, bool)
        self.layers = layers
        self.moved = None if moved is None else list(moved)
        self.hidden = hidden
        self.without = tuple(without)
        self.plain: Trace | None = plain
        self._words = words  # the number of each token's word, where the tokenizer tells
        self._pieces: tuple[Trace, Array] | None = (
            None  # of what this is the words, where they begin
        )

    @classmethod
    def from_arrays(
        cls,
        weights: Any,
        tokens: Sequence[str],
        *,
        text: str | None = None,
        spans: Any = None,
        special: Any = None,
        moved: Any = None,
    ) -> Trace:
        """A trace of weights from anywhere.

        Parameters
        ----------
        weights : (L, H, N, N) array of float, or a sequence of L arrays (H, N, N)
            A batch of one in each layer, (1, H, N, N), is taken too: what other libraries give.
        tokens : sequence of N str
        text : str, optional
            What the tokens came from. Default: spelled from them ("##", "Ġ" and "▁" understood).
        spans : (N, 2) array of int, optional
            Where each token stands in the text. Goes with `text`.
        special : (N,) array of bool, optional
            Default: none is.
        moved : (L, H, N) array of float, optional
            Norms of what each value brings to the layer's output, for `contribution`.

        Returns
        -------
        Trace

        Raises
        ------
        TypeError, ValueError
            If the shapes do not fit the tokens.

        Examples
        --------
        >>> trace = Trace.from_arrays(np.full((2, 3, 2, 2), 0.5), ["un", "##told"])
        >>> trace, trace.text
        (Trace(2 tokens, 2 layers of 3 heads), 'untold')
        """
        tokens, N = list(tokens), len(tokens)
        layers = [_one_layer(i, np.asanyarray(each), N) for i, each in enumerate(weights)]
        if (text is None) != (spans is None):
            raise ValueError("text and spans go together: where each token stands in the text")
        if text is None:
            text, spans = spelled(tokens)
        if np.shape(spans) != (N, 2) and N:
            raise ValueError(f"spans must be {(N, 2)}, got {np.shape(spans)}")
        special = np.zeros(N, bool) if special is None else np.asarray(special, bool)
        if special.shape != (N,):
            raise ValueError(f"special must be {(N,)}, got {special.shape}")
        if moved is not None:
            moved = [np.asarray(each) for each in moved]
            if [each.shape for each in moved] != [layer.weights.shape[:-1] for layer in layers]:
                shapes = [each.shape for each in moved]
                raise ValueError(f"moved must be (H, N) for each layer, got {shapes}")
        return cls(text, tokens, spans, special, layers, moved=moved)

    def __len__(self) -> int:
        return len(self.tokens)

    def _repr_html_(self) -> str:
        """What a notebook shows: a small picture of all heads, offline, in light and dark."""
        from .pictures.inline import trace_html

        return trace_html(self)

    def __repr__(self) -> str:
        heads = self.layers[0].weights.shape[0] if self.layers else 0
        off = (
            f", without {', '.join(f'L{la}H{h}' for la, h in self.without)}" if self.without else ""
        )
        return f"Trace({len(self)} tokens, {len(self.layers)} layers of {heads} heads{off})"

    def page(
        self, path: str | PathLike[str], *, head: tuple[int, int] | None = None,
        token: int | None = None, window: tuple[int, int] | None = None, title: str | None = None,
    ) -> Path:  # fmt: skip
        """Write one HTML file that shows every head, offline.

        Weights are stored in 8 bits, each known within √w / 255; the strongest of each row is
        exact. A text of over 1024 tokens, or of more pairs than 144 heads of 512 x 512 have, is
        pooled, and a window of its tokens stored as it is.

        Parameters
        ----------
        path : str or path
        head : (layer, head), optional
            Open at first. Default: that of the strongest link.
        token : int, optional
            Chosen at first. Default: none.
        window : (start, stop), optional
            Default: none, or the first 256 tokens where the text is too long.
        title : str, optional

        Raises
        ------
        ValueError
            If there is no such head, token or window, or a weight is not from 0 to 1.
        """
        from .pictures.page import page

        return page(self, path, head=head, token=token, window=window, title=title)

    # ------------------------------------------------------------------------------- weights

    def weights(self, layer: int) -> Array:
        """The weights of a layer, formed: (H, N, N). Refused beyond the map's limit."""
        return np.asarray(self.layers[layer].weights)

    def contribution(self, layer: int) -> Array:
        """How much each token really brings to each: (H, N, N), weight · ‖value · projection‖.

        A large weight on a small value moves little. Rows do not sum to 1. The value is that of
        the head, its bias included, through the head's part of the layer's output projection.

        Raises
        ------
        ValueError
            If the norms are not known (`moved`).

        References
        ----------
        Kobayashi et al., "Attention is Not Only a Weight: Analyzing Transformers with Vector
        Norms", 2020.
        """
        if self._pieces is not None:
            pieces, starts = self._pieces
            return merge(pieces.contribution(layer), starts)
        if self.moved is None:
            raise ValueError(
                "contributions need the norms of what the values bring (moved), which this trace "
                "does not know: model.look keeps them, Trace.from_arrays takes them"
            )
        return self.weights(layer) * self.moved[layer][:, None, :]

    # ----------------------------------------------------------------------------- statistics

    def heads(self) -> list[dict[str, Any]]:
        """Statistics of each head of each layer, as records that a data frame accepts.

        Returns
        -------
        list of dict
            `layer`, what `AttentionMap.heads` gives, and `separator`: the mean weight to special
            tokens after the first token.
        """
        return [
            {"layer": layer, **record}
            for layer, attended in enumerate(self.layers)
            for record in attended._records_and_summary(self.tokens, self.special)[0]
        ]

    # ---------------------------------------------------------------------------------- words

    def words(self, *wanted: str | int) -> Trace:
        """The trace with word pieces merged: columns added, rows averaged; rows still sum to 1.

        Parameters
        ----------
        *wanted : str or int
            Words as they stand in the text, or an index of a token: only these are merged. Default:
            every word.

        Returns
        -------
        Trace
            Its tokens are words; all that a trace can do, on demand as before.

        Examples
        --------
        >>> trace = Trace.from_arrays(np.full((1, 1, 3, 3), 1 / 3), ["un", "##told", "riches"])
        >>> trace.words().tokens
        ['untold', 'riches']
        >>> trace.words().weights(0).round(2)
        array([[[0.67, 0.33],
                [0.67, 0.33]]])
        """
        if self._pieces is not None:
            raise ValueError("these are words already")
        starts = starts_of_words(self.text, self.spans, self.special, self._words)
        if wanted:
            starts = self._starts_of(wanted, starts)
        ends = [*starts[1:], len(self)]
        places = [tuple(range(a, b)) for a, b in zip(starts, ends, strict=True)]
        merged = Trace(
            self.text, [self._word(place) for place in places],
            [(self.spans[place[0], 0], self.spans[place[-1], 1]) for place in places],
            self.special[starts],
            [merged_map(attended, starts, len(self)) for attended in self.layers],
            without=self.without, plain=self.plain and self.plain.words(*wanted),
        )  # fmt: skip
        merged._pieces = (self, starts)
        return merged

    def _starts_of(self, wanted: Iterable[str | int], words: Array) -> Array:
        """Where tokens begin, once only the wanted words are merged."""
        inside: set[int] = set()
        for word in wanted:
            for place in self._places(word):
                if isinstance(word, str):
                    inside |= set(place[1:])
                else:  # the word that the token is of
                    at = int(np.searchsorted(words, place[0], side="right"))
                    inside |= set(range(words[at - 1] + 1, [*words, len(self)][at]))
        return np.array([i for i in range(len(self)) if i not in inside], int)

    # ---------------------------------------------------------------------------------- files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the trace to one .npz file, its weights formed; what `load` reads.

        The file is written beside and renamed: it is whole, or what was there before.
        """
        arrays = {f"weights{i}": self.weights(i) for i in range(len(self.layers))}
        known = self._pieces is None and self.moved is not None
        contributed = self.moved if known else None
        arrays |= {f"moved{i}": each for i, each in enumerate(contributed or [])}
        arrays |= {"spans": self.spans, "special": self.special}
        if self.hidden is not None:
            arrays["hidden"] = self.hidden
        about = {"text": self.text, "tokens": self.tokens, "layers": len(self.layers),
                 "words": self._words, "without": self.without}  # fmt: skip
        trace_file.write(path, about, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Trace:
        """A trace from a file that `save` wrote. Nothing in the file is run.

        Raises
        ------
        FileNotFoundError
        ValueError
            If it is no such file: names it.
        """
        about, arrays = trace_file.read(path)
        try:
            L = range(about["layers"])
            trace = cls.from_arrays(
                [arrays[f"weights{i}"] for i in L], about["tokens"], text=about["text"],
                spans=arrays["spans"], special=arrays["special"],
                moved=[arrays[f"moved{i}"] for i in L] if "moved0" in arrays else None,
            )  # fmt: skip
            trace.hidden = arrays.get("hidden")
            trace._words = about["words"]
            trace.without = tuple((int(layer), int(head)) for layer, head in about["without"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a whole trace: {error!r}") from error
        return trace


def _one_layer(i: int, weights: Array, N: int) -> AttentionMap:
    if weights.ndim == 4 and len(weights) == 1:
        weights = weights[0]
    if weights.ndim != 3 or weights.shape[1:] != (N, N):
        raise ValueError(
            f"the weights of each layer must be (H, {N}, {N}) for {N} tokens, "
            f"got {weights.shape} in layer {i}"
        )
    return AttentionMap.from_weights(weights)
