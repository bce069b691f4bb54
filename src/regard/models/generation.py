"""Text, one token after another: which token is taken, and when it is over."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..predicates import Array
from .text import encode
from .tokens import Stream

if TYPE_CHECKING:
    from ..cache import KVCache
    from .decoder import Decoder

__all__ = ["Generation", "Prompt", "draw"]

Prompt = str | Sequence[dict[str, str]] | Sequence[int]


class Generation(Iterator[str]):
    """The text that a model writes: an iterator of pieces, made by `model.generate`.

    Attributes
    ----------
    prompt_ids : list of int
        The tokens of the prompt.
    ids : list of int
        Those written so far, the end token among them.
    ended : bool
        Whether it ended at an end token.
    caches : list of KVCache
        Keys and values of all tokens but the last, a cache a layer.
    """

    def __init__(
        self,
        model: Decoder,
        prompt: Prompt,
        max_tokens: int,
        temperature: float,
        top_p: float,
        seed: int | None,
    ) -> None:
        if not 0 <= temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or more, got {temperature}")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {top_p}")
        if operator.index(max_tokens) < 1:
            raise ValueError(f"max_tokens must be 1 or more, got {max_tokens}")
        self.prompt_ids = self.ids_of(model, prompt)
        self.ids: list[int] = []
        self.ended = False
        self._model = model
        self._most = min(max_tokens, model.positions - len(self.prompt_ids) + 1)
        room = len(self.prompt_ids) + self._most - 1  # what is never written takes no memory
        self.caches: list[KVCache] = model.caches(room)
        self._temperature, self._top_p = temperature, top_p
        # Only where it is drawn from: its libraries take two megabytes.
        self._random = np.random.default_rng(seed) if temperature else None
        self._stream: Stream | None = Stream(model.tokenizer)

    @staticmethod
    def ids_of(model: Decoder, prompt: Prompt) -> list[int]:
        """The tokens of a text, of a conversation in the words of its template, or ids checked."""
        if isinstance(prompt, str):
            ids = encode(model.tokenizer, prompt, model.positions, truncate=False).ids
        elif not hasattr(prompt, "__len__"):
            raise TypeError(f"prompt must be a str, messages or ids, got {type(prompt).__name__}")
        elif len(prompt) and isinstance(prompt[0], dict):
            text = model.manner.prompt(prompt)  # type: ignore[arg-type]
            ids = model.tokenizer.encode(text, add_special_tokens=False).ids
        else:
            ids = list(prompt)  # type: ignore[arg-type]
        if not ids:
            raise ValueError("prompt must have a token at least, got none")
        if model.check(ids).ndim != 1:
            raise ValueError("prompt must be one text, got several")
        return [int(i) for i in ids]

    def __next__(self) -> str:
        while self._stream is not None:
            piece = self._write(self._stream)
            if piece:
                return piece
        raise StopIteration

    def _write(self, stream: Stream) -> str:
        """One token more; the characters that became whole, and at the end the rest."""
        taken = self.ids[-1:] or self.prompt_ids
        token = draw(
            self._model.step(taken, self.caches), self._temperature, self._top_p, self._random
        )
        self.ids.append(token)
        self.ended = token in self._model.manner.ends
        over = self.ended or len(self.ids) >= self._most
        piece = "" if self.ended else stream.push(token)
        if over:
            self._stream = None
            piece += stream.rest()
        return piece


def draw(logits: Array, temperature: float, top_p: float, random: Any) -> int:
    """The likeliest token (temperature 0), or one drawn from the likeliest that reach top_p."""
    if temperature == 0:
        return int(logits.argmax())
    shifted = (logits.astype(np.float64) - logits.max()) / temperature
    order = np.argsort(-shifted, kind="stable")
    reached = np.cumsum(np.exp(shifted[order]))  # the largest first
    kept = int(np.searchsorted(reached, top_p * reached[-1])) + 1
    return int(order[np.searchsorted(reached[:kept], random.random() * reached[:kept][-1])])
