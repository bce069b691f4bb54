"""Tokens as a reader sees them: pieces of the text, and where they stand in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Stream", "shown"]

SPACES = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})
BROKEN = "\N{REPLACEMENT CHARACTER}"


class Stream:
    """Ids in, whole characters out: what has come so far of a text that is being written.

    A character of several bytes may be spread over tokens; it is held back until it is whole.
    """

    def __init__(self, tokenizer: Tokenizer, special: bool = False) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._special = special
        self._stream = DecodeStream(skip_special_tokens=not special)
        self._ids: list[int] = []
        self._given = 0

    def push(self, i: int) -> str:
        """The characters that the token makes whole; perhaps none."""
        self._ids.append(i)
        piece = self._stream.step(self._tokenizer, i) or ""
        self._given += len(piece)
        return piece

    def rest(self) -> str:
        """At the end, a character that never became whole."""
        whole = self._tokenizer.decode(self._ids, skip_special_tokens=not self._special)
        return whole[self._given :]


def shown(
    tokenizer: Tokenizer, ids: Sequence[int]
) -> tuple[str, list[str], list[tuple[int, int]], list[bool]]:
    """The text of ids; their tokens as it has them, where they stand, and which are special."""
    added = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    stream, text = Stream(tokenizer, special=True), ""
    tokens, spans = [], []
    for i in ids:
        piece = stream.push(i)
        start = len(text) + len(piece) - len(piece.lstrip())
        text += piece
        word = piece.strip() or piece.translate(SPACES) or (tokenizer.id_to_token(i) or "")
        tokens.append(word)
        spans.append((start, start + len(piece.strip())) if piece.strip() else (0, 0))
    return text + stream.rest(), tokens, spans, [i in added for i in ids]
