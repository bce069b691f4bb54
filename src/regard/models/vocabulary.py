"""A tokenizer out of a GGUF file's metadata: byte-level BPE, as the model was trained with.

GGUF names how a text is split before the merges (tokenizer.ggml.pre); the expressions are those of
the models' own tokenizer.json files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .extra import needed

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["token_id", "tokenizer_of"]

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT2 = None  # the byte-level splitter's own
SPLITS = {
    "gpt-2": GPT2, "gpt2": GPT2, "smollm": r"\p{N}", "llama-bpe": LLAMA3, "llama3": LLAMA3,
    "qwen2": QWEN2,
}  # fmt: skip
CONTROL, USER_DEFINED = 3, 4  # kinds of token: never split, the first not part of a text


def tokenizer_of(file: Path, metadata: dict[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file describes.

    Raises
    ------
    ValueError
        If it is of a make that is not read here, or its parts do not fit: names the field.
    """
    _among(file, metadata, "tokenizer.ggml.model", {"gpt2"})
    pre = _among(file, metadata, "tokenizer.ggml.pre", set(SPLITS))
    tokens = _strings(file, metadata, "tokenizer.ggml.tokens")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ValueError(f"{file}: tokenizer.ggml.tokens must differ, got some twice")
    merges = _merges(file, metadata, tokens, vocabulary)
    try:
        tokenizer = _bpe(vocabulary, merges, pre)
        _mark(file, metadata, tokenizer, tokens)
    except ValueError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{file}: its tokenizer could not be made: {error}") from error
    return tokenizer


def _bpe(vocabulary: dict[str, int], merges: list[tuple[str, str]], pre: str) -> Tokenizer:
    tokenizers = needed("tokenizers")
    model = tokenizers.models.BPE(vocabulary, merges, ignore_merges=SPLITS[pre] is LLAMA3)
    tokenizer = tokenizers.Tokenizer(model)
    _split(tokenizer, pre)
    if pre == "qwen2":
        tokenizer.normalizer = tokenizers.normalizers.NFC()
    return tokenizer


def _split(tokenizer: Tokenizer, pre: str) -> None:
    splitters = needed("tokenizers").pre_tokenizers
    expression = SPLITS[pre]
    pattern = needed("tokenizers").Regex(expression) if expression else None
    by_itself = pre in ("gpt-2", "gpt2", "smollm")
    bytes_last = splitters.ByteLevel(add_prefix_space=False, use_regex=by_itself)
    first = [splitters.Split(pattern, "isolated")] if pattern else []
    tokenizer.pre_tokenizer = splitters.Sequence([*first, bytes_last])
    tokenizer.decoder = needed("tokenizers").decoders.ByteLevel()


def _mark(file: Path, metadata: dict[str, Any], tokenizer: Tokenizer, tokens: list[str]) -> None:
    """Special tokens, and the one that begins each text where the file asks for it."""
    tokenizers = needed("tokenizers")
    kinds = metadata.get("tokenizer.ggml.token_type", np.zeros(len(tokens), "i4"))
    if not isinstance(kinds, np.ndarray) or kinds.shape != (len(tokens),):
        raise ValueError(f"{file}: tokenizer.ggml.token_type must hold one for each token")
    for kind, add in (
        (CONTROL, tokenizer.add_special_tokens),
        (USER_DEFINED, tokenizer.add_tokens),
    ):
        chosen = [tokens[i] for i in np.flatnonzero(kinds == kind)]
        add([tokenizers.AddedToken(token, normalized=False) for token in chosen])
    if metadata.get("tokenizer.ggml.add_bos_token") is True:
        i = token_id(file, metadata, "bos", len(tokens))
        if i is None:
            raise ValueError(f"{file}: tokenizer.ggml.bos_token_id is missing")
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{tokens[i]} $A", special_tokens=[(tokens[i], i)]
        )


def token_id(file: Path, metadata: dict[str, Any], name: str, count: int) -> int | None:
    """The id of a token with a meaning, such as "eos"; None where the file gives none."""
    field = f"tokenizer.ggml.{name}_token_id"
    i = metadata.get(field)
    if i is not None and (not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < count):
        raise ValueError(f"{file}: {field} must be an int in [0, {count}), got {i!r:.80}")
    return i


def _strings(file: Path, metadata: dict[str, Any], field: str) -> list[str]:
    strings = metadata.get(field)
    if not isinstance(strings, list) or not strings:
        raise ValueError(f"{file}: {field} must be an array of strings, got {strings!r:.80}")
    return strings


def _merges(
    file: Path, metadata: dict[str, Any], tokens: list[str], known: dict[str, int]
) -> list[tuple[str, str]]:
    """Pairs of the tokens themselves, not of copies: there are very many."""
    field, merges = "tokenizer.ggml.merges", []
    for i, merge in enumerate(_strings(file, metadata, field)):
        left, _, right = merge.partition(" ")
        if not (left in known and right in known and left + right in known):
            raise ValueError(f"{file}: {field}[{i}] must join two tokens to one, got {merge!r:.80}")
        merges.append((tokens[known[left]], tokens[known[right]]))
    return merges


def _among(file: Path, metadata: dict[str, Any], field: str, known: set[str]) -> str:
    chosen = metadata.get(field)
    if not isinstance(chosen, str) or chosen not in known:
        raise ValueError(
            f"{file}: {field} must be {' or '.join(sorted(known))}, got {chosen!r:.80}: a folder "
            "with tokenizer.json beside the weights is read with any"
        )
    return chosen
