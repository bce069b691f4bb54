"""The grid: every row that is measured, and what it must show.

A floor is a ratio of two times, or of two rates, that were measured in turn within one row; so a
row stands alone, and any part of the grid can be run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod
from typing import NamedTuple

import numpy as np

from ..engines.native import PAIRS
from ..predicates import Array

__all__ = ["ROWS", "Floor", "Row", "matching"]

# What a floor can stand against, beside the title of a peer.
BEST_PEER = "best peer"
SGEMM = "sgemm(2048)"  # the rate of NumPy's product of two matrices
READING = "reading"  # of the same keys and values, at the speed of memory
FASTER = "full causal"  # the row's baseline, by the call
PER_PAIR = "speed of the baseline by the pair"  # that is seen
MICROSECONDS = "µs a call"
MEGABYTES = "MB a thread"
AT_MOST = {MICROSECONDS, MEGABYTES}  # the others say at least

WINDOW = 256
SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}


class Floor(NamedTuple):
    """What a row must reach: at least so many times what it stands against, or at most so much."""

    against: str
    bound: float

    def met(self, value: float) -> bool:
        return value <= self.bound if self.against in AT_MOST else value >= self.bound


@dataclass(frozen=True)
class Row:
    """One call that is measured; letters as in `attention`, with Dv = D."""

    B: int
    H: int
    Nq: int
    D: int
    sees: str = "full"  # full, causal, window, mask, bias or lengths
    dtype: str = "float32"
    kind: str = "prefill"  # prefill, decoding, call or scaling
    Hkv: int = 0  # as many as H
    Nk: int = 0  # as many as Nq
    lengths: tuple[int, ...] = ()  # of each sequence's keys
    floors: tuple[Floor, ...] = ()
    baseline: Row | None = None  # another call of regard that is measured in turn with this one

    def __post_init__(self) -> None:
        object.__setattr__(self, "Hkv", self.Hkv or self.H)
        object.__setattr__(self, "Nk", self.Nk or self.Nq)

    @property
    def grouped(self) -> bool:
        """Whether several query heads share a head of keys and values."""
        return self.Hkv < self.H

    @property
    def name(self) -> str:
        """As in "f32 1x12/4x2048x64 causal"."""
        heads = f"{self.H}/{self.Hkv}" if self.grouped or self.kind == "decoding" else self.H
        shape = f"{SHORT[self.dtype]} {self.B}x{heads}x{self.Nq}x{self.D}"
        if self.kind == "decoding":
            return f"{shape} decoding over {self.Nk}"
        kind = f" {self.kind}" if self.kind in ("call", "scaling") else ""
        return f"{shape} {'ragged' if self.lengths and self.baseline else self.sees}{kind}"

    @property
    def pairs(self) -> int:
        """Query-key pairs that are seen, over all heads; of a random mask the half."""
        i = np.arange(self.Nq)
        if self.sees == "causal":
            each = int((i + 1).sum())
        elif self.sees == "window":
            each = int(np.minimum(i + 1, WINDOW).sum())
        elif self.sees == "lengths":
            return self.H * self.Nq * sum(self.lengths)
        else:
            each = self.Nq * self.Nk // (2 if self.sees == "mask" else 1)
        return self.B * self.H * each

    @property
    def operations(self) -> int:
        """Multiplications and additions of the two products, of the pairs that are seen."""
        return 4 * self.pairs * self.D

    @property
    def bytes_of_keys_and_values(self) -> int:
        return 2 * prod((self.B, self.Hkv, self.Nk, self.D)) * int(self.dtype[-2:]) // 8

    def seen(self, queries: Array, mask: Array | None) -> Array | None:
        """(B or none, queries, Nk): which of the keys these queries see; None for all."""
        i, j = queries[:, None], np.arange(self.Nk)
        if self.sees == "lengths":
            return np.broadcast_to(
                j < np.array(self.lengths)[:, None, None], (self.B, len(queries), self.Nk)
            )
        if self.sees == "mask" and mask is not None:
            return mask[queries]
        if self.sees == "causal":
            return j <= i
        return (j <= i) & (j > i - WINDOW) if self.sees == "window" else None


def matching(pattern: str) -> list[Row]:
    """The rows whose name holds the pattern, in which * and ? stand for anything.

    >>> [row.name for row in matching("bf16")]
    ['bf16 1x12x2048x64 full', 'bf16 1x12x2048x64 causal']
    """
    return [row for row in ROWS if fnmatchcase(row.name.lower(), f"*{pattern.lower()}*")]


def _both(
    shape: tuple[int, int, int, int], full: dict[str, float], causal: dict[str, float],
    dtype: str = "float32",
) -> list[Row]:  # fmt: skip
    """A shape without a mask, and causal, with the floors of each."""
    B, H, N, D = shape
    return [
        Row(B, H, N, D, sees, dtype, floors=_floors(**floors))
        for sees, floors in (("full", full), ("causal", causal))
    ]


def _floors(**bounds: float) -> tuple[Floor, ...]:
    names = {"pytorch": "PyTorch", "ort": "ONNX Runtime", "peers": BEST_PEER, "sgemm": SGEMM,
             "reading": READING}  # fmt: skip
    return tuple(Floor(names[name], bound) for name, bound in bounds.items())


def _decoding() -> list[Row]:
    """One query against a cache: what counts is how fast keys and values are read."""
    return [
        Row(1, 32, 1, 128, dtype=dtype, kind="decoding", Hkv=Hkv, Nk=Nk,
            floors=_floors(pytorch=1.7 if Hkv == 32 else 2.0, reading=share))
        for Nk in (4096, 32768)
        for Hkv in (32, 8)
        for dtype, share in (("float32", 0.8), ("float16", 0.6))
    ]  # fmt: skip


def _scaling() -> list[Row]:
    """Time by the pair and memory, from short to long."""
    rows = [Row(1, 1, 2**n, 64, kind="scaling") for n in range(11, 17)]
    memory = Floor(MEGABYTES, 8)
    return [
        replace(rows[0], floors=(memory,)),
        *(replace(r, floors=(Floor(PER_PAIR, 0.9), memory), baseline=rows[0]) for r in rows[1:]),
    ]


BF16 = 1.9 if PAIRS else 1.15  # with dot products of bfloat16, and without
AHEAD = {"peers": 1.0}
PADDED = (97, 131, 197, 257, 311, 389, 449, 512)
RAGGED = (13, 131, 257, 521, 769, 1031, 1543, 2048)
LONG = Row(1, 2, 16384, 64, "causal")
UNPADDED = Row(8, 4, 2048, 64)
MASKED = _floors(pytorch=1.3)
GROUPED = _floors(pytorch=1.35)

ROWS = [
    *_both((1, 12, 2048, 64), {"pytorch": 1.2, "ort": 1.03, "sgemm": 0.95},
           {"pytorch": 1.4, "ort": 1.6}),
    *_both((1, 8, 4096, 128), {"pytorch": 1.2}, {"pytorch": 1.25}),
    *_both((1, 12, 512, 64), {"pytorch": 1.2}, {"pytorch": 2.3, "ort": 1.9}),
    *_both((1, 12, 128, 64), AHEAD, AHEAD),
    *_both((8, 12, 128, 32), AHEAD, AHEAD),
    *_both((1, 12, 32, 32), AHEAD, AHEAD),
    Row(1, 1, 16, 16, kind="call", floors=(Floor(MICROSECONDS, 8),)),
    replace(LONG, sees="window", floors=(Floor(FASTER, 15),), baseline=LONG),
    Row(1, 12, 2048, 64, "mask", floors=MASKED),
    Row(1, 12, 2048, 64, "bias", floors=MASKED),
    Row(8, 12, 512, 64, "lengths", lengths=PADDED, floors=MASKED),
    Row(1, 12, 2048, 64, "causal", Hkv=4, floors=GROUPED),
    Row(1, 32, 1024, 128, "causal", Hkv=8, floors=GROUPED),
    *_both((1, 12, 2048, 64), {"pytorch": 1.7}, {"pytorch": 1.7}, "float16"),
    *_both((1, 12, 2048, 64), {"pytorch": BF16}, {"pytorch": BF16}, "bfloat16"),
    *_both((1, 12, 2048, 64), {"pytorch": 1.3}, {"pytorch": 1.8}, "float64"),
    *_decoding(),
    replace(UNPADDED, sees="lengths", lengths=RAGGED, floors=(Floor(PER_PAIR, 0.8),),
            baseline=UNPADDED),
    *_scaling(),
]  # fmt: skip
