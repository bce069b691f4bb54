"""Weights as they came: float arrays, or the quantised blocks of GGUF files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..predicates import Array

__all__ = ["Blocks", "Weights", "check_weights", "rows_of", "stack"]

BLOCK = 32  # weights of a block
BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}  # of a block: its scale, perhaps its least, weights
FLOATS = ("float16", "bfloat16", "float32", "float64")


class Blocks(NamedTuple):
    """A matrix of quantised weights, in the bytes of a GGUF file.

    Parameters
    ----------
    raw : (out, bytes of a row) array of uint8
        Each row holds in/32 blocks of 32 weights.
    type : {"Q4_0", "Q4_1", "Q8_0"}
        How a block holds them: a float16 scale; for Q4_1 a float16 least value; then 4-bit numbers
        (weight i in the low half of byte i, weight 16 + i in its high half), of which Q4_0 takes 8
        away; or 8-bit signed ones. A weight is scale · number + least.
    shape : (out, in)

    Examples
    --------
    >>> scale = np.array([0.5], np.float16).view(np.uint8)
    >>> raw = np.concatenate([scale, np.arange(32, dtype=np.uint8)])[None]
    >>> Blocks(raw, "Q8_0", (1, 32)).rows()[0, :4]
    array([0. , 0.5, 1. , 1.5], dtype=float32)

    References
    ----------
    The GGUF format and its types are those of the ggml library.
    """

    raw: Array
    type: str
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        return self.raw.nbytes

    def part(self, rows: slice) -> Blocks:
        """Some of the rows, without a copy."""
        raw = self.raw[rows]
        return Blocks(raw, self.type, (len(raw), self.shape[1]))

    def rows(self, index: Any = slice(None)) -> Array:
        """The rows that an index of the first axis takes, as float32, exactly."""
        raw = self.raw[index]
        blocks = raw.reshape(*raw.shape[:-1], -1, BYTES[self.type])  # (…, in/32, bytes)
        wide = _NUMBERS[self.type](blocks)  # (…, in/32, 32)
        wide *= _half(blocks, 0)
        if self.type == "Q4_1":
            wide += _half(blocks, 2)
        return wide.reshape(*raw.shape[:-1], self.shape[1])


def _half(blocks: Array, at: int) -> Array:
    """The float16 at a byte of each block, as float32 (…, 1)."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(blocks: Array) -> Array:
    packed = blocks[..., -16:]
    return np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32)


_NUMBERS: dict[str, Callable[[Array], Array]] = {
    "Q4_0": lambda blocks: _nibbles(blocks) - np.float32(8),
    "Q4_1": _nibbles,
    "Q8_0": lambda blocks: blocks[..., 2:].view(np.int8).astype(np.float32),
}

Weights = Array | Blocks


def check_weights(name: str, weights: Any) -> None:
    """Whether they can be held: a float matrix, or blocks whose bytes fit their shape."""
    if isinstance(weights, Blocks):
        _check_blocks(name, weights)
    elif not isinstance(weights, np.ndarray) or weights.dtype.name not in FLOATS:
        got = getattr(weights, "dtype", type(weights).__name__)
        raise TypeError(f"{name} must be Blocks or an array of {', '.join(FLOATS)}, got {got}")
    elif weights.ndim != 2:
        raise ValueError(f"{name} must be (out, in), got {weights.shape}")


def _check_blocks(name: str, weights: Blocks) -> None:
    raw, kind, (out, into) = weights
    if kind not in BYTES:
        raise ValueError(f"{name} must be of type {', '.join(BYTES)}, got {kind!r}")
    if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8:
        raise TypeError(f"{name} must hold bytes, uint8, got {getattr(raw, 'dtype', type(raw))}")
    if into % BLOCK or raw.shape != (out, into // BLOCK * BYTES[kind]):
        raise ValueError(
            f"{name} must hold {BYTES[kind]} bytes for each 32 weights of its {weights.shape}, "
            f"got {raw.shape}"
        )


def kind_of(weights: Weights) -> str:
    """How they are held: the name of a dtype, or of a type of blocks."""
    return weights.type if isinstance(weights, Blocks) else weights.dtype.name


def rows_of(weights: Weights, index: Any) -> Array:
    """Rows in the type that is computed in: float32, or float64."""
    if isinstance(weights, Blocks):
        return weights.rows(index)
    rows = weights[index]
    return rows.astype(np.result_type(rows.dtype, np.float32), copy=False)


def in_rows(weights: Weights) -> Weights:
    """The same, with the numbers of each row side by side in this machine's byte order."""
    if isinstance(weights, Blocks):
        raw = weights.raw
        return weights if raw.strides[-1] == 1 else weights._replace(raw=raw.copy())
    beside = weights.strides[-1] == weights.itemsize and weights.strides[0] % weights.itemsize == 0
    if beside and weights.dtype.isnative:
        return weights
    return np.ascontiguousarray(weights.astype(weights.dtype.newbyteorder("=")))


def part_of(weights: Weights, rows: slice) -> Weights:
    """Some of the rows as they are held, without a copy."""
    return weights.part(rows) if isinstance(weights, Blocks) else weights[rows]


def stack(*weights: Weights) -> Weights:
    """Matrices of one kind on top of each other as one; a view where they lie so in memory."""
    first = weights[0]
    raws = [w.raw if isinstance(w, Blocks) else w for w in weights]
    raw = _as_they_lie(raws)
    raw = np.concatenate(raws) if raw is None else raw
    return Blocks(raw, first.type, (len(raw), first.shape[1])) if isinstance(first, Blocks) else raw


def _as_they_lie(parts: list[Array]) -> Array | None:
    """The array of which parts are all the rows in order, if they follow each other in memory."""
    base = parts[0].base
    if not isinstance(base, np.ndarray) or not base.flags.c_contiguous:
        return None
    at = begin = parts[0].ctypes.data
    for part in parts:
        if part.base is not base or part.ctypes.data != at or not part.flags.c_contiguous:
            return None
        at += part.nbytes
    shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
    return np.ndarray(shape, parts[0].dtype, base, begin - base.ctypes.data)
