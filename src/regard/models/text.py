"""Text to token ids and back to one vector: what the encoders share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..predicates import Array
from .pooling import Pooling

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

__all__ = ["embed", "encode", "windows"]

BATCH_TOKENS = 4096  # tokens that go through the layers together


class Encoder(Protocol):
    """Ids (B, N) to hidden states (B, N, D)."""

    tokenizer: Tokenizer

    @property
    def width(self) -> int: ...  # D

    def __call__(self, ids: Array) -> Array: ...


def windows(tokenizer: Tokenizer, raw: Encoding, length: int) -> list[Encoding]:
    """A text without its special tokens as windows of at most `length` tokens, each with them."""
    raw.truncate(length - tokenizer.num_special_tokens_to_add(is_pair=False))
    return [tokenizer.post_process(part) for part in (raw, *raw.overflowing)]


def encode(tokenizer: Tokenizer, text: str, positions: int, truncate: bool) -> Encoding:
    """A text that fits the model's positions; a longer one is cut or refused."""
    whole = tokenizer.encode(_valid(text))
    if len(whole.ids) <= positions:
        return whole
    if not truncate:
        raise ValueError(
            f"text must have at most {positions} tokens, got {len(whole.ids)}: "
            "truncate=True (of the command look, --truncate) cuts it there"
        )
    return windows(tokenizer, tokenizer.encode(text, add_special_tokens=False), positions)[0]


def _valid(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"text must be valid Unicode: {error}") from None
    return text


def embed(
    model: Encoder,
    pooling: Pooling,
    texts: Sequence[str],
    chunks: bool,
    progress: Callable[[int, int], object] | None,
) -> Array:
    """One vector a text, (len(texts), D): what `Bert.embed` documents."""
    if isinstance(texts, str):
        raise TypeError(f"texts must be a list of str, got {texts!r:.50}: [text] holds one text")
    texts = [_valid(text) for text in texts]
    raw = model.tokenizer.encode_batch(texts, add_special_tokens=False)
    parts = [[w.ids for w in windows(model.tokenizer, each, pooling.length)] for each in raw]
    if not chunks:
        cut = sum(len(part) > 1 for part in parts)
        if cut:
            warnings.warn(
                f"{cut} of {len(texts)} texts cut at {pooling.length} tokens; "
                "chunks=True (of the command embed, --chunks) averages over windows instead",
                stacklevel=3,
            )
        parts = [part[:1] for part in parts]
    flat = [ids for part in parts for ids in part]
    vectors = _pool(model, flat, pooling.mode, progress)
    weights = np.array([len(ids) for ids in flat], np.float32)
    ends = np.cumsum([len(part) for part in parts], dtype=int)
    averages = [
        np.average(vectors[end - len(part) : end], axis=0, weights=weights[end - len(part) : end])
        for end, part in zip(ends, parts, strict=True)
    ]
    averaged = np.array(averages, np.float32).reshape(len(parts), model.width)
    if pooling.normalize:
        averaged /= np.maximum(np.linalg.norm(averaged, axis=1, keepdims=True), 1e-12)
    return averaged


def _pool(
    model: Encoder, flat: list[list[int]], mode: str, progress: Callable[[int, int], object] | None
) -> Array:
    """One vector a window. Windows of one length go together: no padding is computed."""
    lengths = np.array([len(ids) for ids in flat], int)
    done = 0
    vectors = np.empty((len(flat), model.width), np.float32)
    for length in np.unique(lengths)[::-1]:
        alike = np.flatnonzero(lengths == length)
        step = max(1, BATCH_TOKENS // int(length))
        for start in range(0, len(alike), step):
            batch = alike[start : start + step]
            vectors[batch] = POOL[mode](model(np.array([flat[i] for i in batch])))
            done += len(batch)
            if progress is not None:
                progress(done, len(flat))
    return vectors


POOL: dict[str, Callable[[Array], Array]] = {  # (B, N, D) to (B, D)
    "mean": lambda hidden: hidden.mean(axis=1),
    "cls": lambda hidden: hidden[:, 0],
    "max": lambda hidden: hidden.max(axis=1),
}
