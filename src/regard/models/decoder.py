"""What every causal language model does, once its family has wired the layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, overload

import numpy as np

from .. import call, masks
from ..cache import KVCache
from ..corpus import Averages
from ..nn.attention import token_by_token
from ..predicates import Array
from ..trace import Trace
from .generation import Generation, Prompt
from .loading import Source
from .looking import Heads, Watch, compared, heads_off
from .text import encode
from .tokens import shown

__all__ = ["Attend", "Decoder"]

Attend = Callable[[int, Array, Array, Array], Array]  # layer, query, key, value to heads

ROOM = 64  # tokens that a cache has room for at first
CHUNK = 1024  # tokens of a prompt that go through the layers together


class Decoder:
    """A causal language model on NumPy: made by `regard.models.load`.

    A family says how ids become hidden states (`_hidden`) and these become logits (`_logits`).

    Attributes
    ----------
    tokenizer : tokenizers.Tokenizer
        Neither cuts nor pads.
    positions : int
        The most tokens that the model can place.
    windows : list
        For each layer how many keys a query sees, its own among them; None for all.
    heads, width, words : int
        H; D, the length of a hidden state; V, the number of tokens.
    """

    heads: int
    width: int
    words: int
    positions: int
    windows: list[int | None]
    layers: list[Any]

    def __init__(self, source: Source) -> None:
        self.folder = source.folder
        self.tokenizer = source.tokenizer
        self.manner = source.manner

    def __repr__(self) -> str:
        layers = f"{len(self.windows)} layers of {self.heads} heads"
        return f"{type(self).__name__}({self.folder.name}: {layers}, D {self.width})"

    def __call__(self, ids: Any) -> Array:
        """The logits of the token after each.

        Parameters
        ----------
        ids : (N,) or (B, N) array of int
            Without padding: a text alone, or texts of one length.

        Returns
        -------
        (N, V) or (B, N, V) array of float32

        Raises
        ------
        TypeError, ValueError
            If the ids are no ints, not in the vocabulary, or more than the model can place.
        """
        with np.errstate(all="ignore"):
            return self._logits(self._hidden(self.check(ids), 0, self._attend))

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int | None = None,
    ) -> Generation:
        """Text that continues a prompt, piece by piece.

        Parameters
        ----------
        prompt : str, list of dict, or list of int
            A text; a conversation, messages with "role" and "content", put into the words of the
            model's chat template; or token ids.
        max_tokens : int
        temperature : float
            0 takes the likeliest token each time; more than 0 draws from softmax(logits /
            temperature).
        top_p : float
            Draws from the fewest tokens whose probabilities reach it, in (0, 1].
        seed : int, optional
            The same seed draws the same text.

        Returns
        -------
        Generation
            An iterator of str, each of whole characters. It ends at an end token, at `max_tokens`,
            or at the model's last position.

        Raises
        ------
        TypeError, ValueError
            If an argument is out of its range, or the prompt has no tokens or too many.

        References
        ----------
        Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020 (`top_p`).
        """
        return Generation(self, prompt, max_tokens, temperature, top_p, seed)

    @overload
    def look(
        self,
        text: str | Sequence[dict[str, str]] | Sequence[int],
        *,
        truncate: bool = ...,
        max_tokens: int = ...,
        without: Iterable[tuple[int, int]] = ...,
    ) -> Trace: ...
    @overload
    def look(
        self,
        text: list[str] | tuple[str, ...],
        *,
        truncate: bool = ...,
        max_tokens: int = ...,
        without: Iterable[tuple[int, int]] = ...,
    ) -> Averages: ...
    def look(
        self,
        text: Any,
        *,
        truncate: bool = False,
        max_tokens: int = 0,
        without: Iterable[tuple[int, int]] = (),
    ) -> Trace | Averages:
        """What each head of each layer attends to in a text, or on average in many.

        Parameters
        ----------
        text : str, list of dict, or list of int
            As in `generate`; or a list of str, several texts.
        truncate : bool
            Cut a text of more tokens than the model has positions, instead of refusing it.
        max_tokens : int
            Continue the text by at most so many tokens first, the likeliest each time.
        without : list of (layer, head)
            Heads that are switched off: what they would bring to the layer's output is 0. The
            trace's `changes` and `token_changes` tell what that changed. What is generated, all
            heads generate.

        Returns
        -------
        Trace
            Of the text and what was generated.
        Averages
            Of several texts: statistics of each head over all of them.
        """
        off = heads_off(without, len(self.layers), self.heads)
        return compared(partial(self._look, truncate, max_tokens), text, off)

    def _look(
        self, truncate: bool, max_tokens: int, text: Prompt, off: Heads, plain: Trace | None
    ) -> Trace:
        if isinstance(text, str):
            ids = encode(self.tokenizer, text, self.positions, truncate).ids
        else:
            ids = Generation.ids_of(self, text)
        if max_tokens:
            written = self.generate(ids, max_tokens=max_tokens)
            "".join(written)
            ids = [*ids, *written.ids]
        watch = Watch(off)

        def looked_at(layer: int, q: Array, k: Array, v: Array) -> Array:
            projection = self.layers[layer].attention.output.wide()
            return watch.attend(projection, q, k, v, causal=True, mask=self._mask(layer))

        with np.errstate(all="ignore"):
            hidden = self._hidden(self.check(ids), 0, looked_at)
        whole, tokens, spans, special = shown(self.tokenizer, ids)
        return Trace(
            whole, tokens, spans, special, watch.maps,
            moved=watch.moved, hidden=hidden, without=off, plain=plain,
        )  # fmt: skip

    def caches(self, room: int = ROOM) -> list[KVCache]:
        """A fresh cache for each layer, with room for so many tokens at first."""
        return [KVCache(window=None if n is None else n - 1, room=room) for n in self.windows]

    def step(self, ids: Sequence[int], caches: list[KVCache]) -> Array:
        """Take tokens into the caches; the logits (V,) after the last of them."""
        for start in range(0, len(ids), CHUNK):
            part = np.asarray(ids[start : start + CHUNK])
            with np.errstate(all="ignore"):
                hidden = self._hidden(part, len(caches[0]), partial(self._cached, caches))
        with np.errstate(all="ignore"):
            return self._logits(hidden[-1:])[0]

    def check(self, ids: Any) -> Array:
        """Ids as an array that the model can take, or an error that says why not."""
        ids = np.asarray(ids)
        if ids.dtype.kind not in "iu":
            raise TypeError(f"ids must be an array of int, got {ids.dtype}")
        if ids.ndim not in (1, 2) or not 1 <= ids.shape[-1] <= self.positions:
            raise ValueError(
                f"ids must be (N,) or (B, N) with N from 1 to {self.positions}, got {ids.shape}"
            )
        if ids.size and not (ids.min() >= 0 and ids.max() < self.words):
            raise ValueError(f"ids must be in [0, {self.words}), got {ids.min()} … {ids.max()}")
        return ids

    def _hidden(self, ids: Array, at: int, attend: Attend) -> Array:
        """Hidden states (…, N, D) of ids (…, N), the first of them at a position."""
        raise NotImplementedError

    def _logits(self, hidden: Array) -> Array:
        raise NotImplementedError

    def _attend(self, layer: int, q: Array, k: Array, v: Array) -> Array:
        return token_by_token(q, k, v, causal=True, mask=self._mask(layer))

    def _cached(self, caches: list[KVCache], layer: int, q: Array, k: Array, v: Array) -> Array:
        cache = caches[layer]
        at = cache.append(k, v)
        mask = self._mask(layer)
        if mask is None and q.shape[-2] == 1:  # it sees all there is: the shortest road
            return call.attention(q, cache.key, cache.value)
        return token_by_token(q, cache.key, cache.value, causal=True, align=at, mask=mask)

    def _mask(self, layer: int) -> Any:
        seen = self.windows[layer]
        return None if seen is None else masks.window(seen - 1, 0)
