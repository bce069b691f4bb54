"""Tokens as labels: white space and control characters made visible."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

__all__ = ["check_tokens", "label", "visible"]

SIGNS = {" ": "·", "\n": "⏎", "\r": "␍", "\t": "⇥"}
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"}  # categories that draw nothing of use
LONGEST = 18  # characters of a token in a label


def visible(token: str, longest: int = LONGEST) -> str:
    """The token in signs that can be seen, cut where it is too long.

    >>> visible(" law"), visible("\\n"), visible("a\\u202eb"), visible("")
    ('·law', '⏎', 'a\\\\u202eb', '∅')
    """
    shown = "".join(map(_sign, token)) or "∅"
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def _sign(character: str) -> str:
    if character in SIGNS:
        return SIGNS[character]
    if unicodedata.category(character) in UNSEEN and character != "\u200d":  # joins emoji
        return character.encode("unicode_escape").decode()
    return character


def label(index: int, tokens: Sequence[str] | None) -> str:
    """ "9 its": the index, and the token where it is known."""
    return str(index) if tokens is None else f"{index} {visible(tokens[index])}"


def check_tokens(name: str, tokens: Sequence[str] | None, n: int) -> list[str] | None:
    """Tokens, one for each of n; the error says what must hold."""
    if tokens is None:
        return None
    if isinstance(tokens, str):
        raise TypeError(f"{name} must be a list of str, one for each token, got one str")
    tokens = list(tokens)
    if len(tokens) != n:
        raise ValueError(f"{name} must be one for each of {n}, got {len(tokens)}")
    if not all(isinstance(token, str) for token in tokens):
        raise TypeError(f"{name} must be a list of str, got {tokens!r:.80}")
    return tokens
