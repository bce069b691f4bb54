"""The header of a safetensors file, checked before a byte is mapped; and shards as one.

The `safetensors` library reads the tensors. What it lets pass is refused here: names that stand
there twice. What it refuses too is refused with the name of the file and of the tensor.
Layout: the safetensors format's own description.
"""

from __future__ import annotations

import json
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

__all__ = ["check_header"]

MOST_HEADER = 100_000_000  # bytes, the format's own limit
MOST_AXES = 64
SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2,
    "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


def check_header(file: Path) -> set[str]:
    """The names of the tensors in a file, each of which lies whole and alone in it."""
    with file.open("rb") as stream:
        size = file.stat().st_size - 8
        n = int.from_bytes(stream.read(8), "little")
        if not 2 <= n <= min(size, MOST_HEADER):
            raise _corrupt(
                file, f"its header must take 2 to {min(size, MOST_HEADER)} bytes, got {n}"
            )
        entries = _parse(file, stream.read(n))
    notes = entries.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise _corrupt(file, "__metadata__ must hold strings")
    ranges = [(*_range(file, name, entry), name) for name, entry in entries.items()]
    end = 0
    for start, stop, name in sorted(ranges):
        if start != end:
            raise _corrupt(file, f"tensor {name} must start at {end}, got {start}")
        end = stop
    if end != size - n:
        raise _corrupt(file, f"its tensors must take the {size - n} bytes there are, got {end}")
    return set(entries)


def _corrupt(file: Path, says: str) -> ValueError:
    return ValueError(f"{file} is corrupt or cut short: {says}")


def _parse(file: Path, header: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise ValueError(f"{twice!r:.80} must stand there once, got it twice")
        return found

    try:
        entries = json.loads(header.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise _corrupt(file, f"its header could not be read: {error}") from None
    if not isinstance(entries, dict):
        raise _corrupt(file, "its header must be one JSON object")
    return entries


def _range(file: Path, name: str, entry: Any) -> tuple[int, int]:
    """First and last byte, once they are those of the shape and the type."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _corrupt(file, f"tensor {name} must have dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in SIZES:
        raise _corrupt(file, f"dtype of tensor {name} must be a known one, got {kind!r:.80}")
    if not _sizes(shape) or len(shape) > MOST_AXES:
        raise _corrupt(file, f"shape of tensor {name} must be sizes, got {shape!r:.80}")
    if not _sizes(offsets) or len(offsets) != 2:
        raise _corrupt(file, f"data_offsets of tensor {name} must be two, got {offsets!r:.80}")
    taken, needed = offsets[1] - offsets[0], prod(shape) * SIZES[kind]
    if taken != needed:
        raise _corrupt(file, f"tensor {name} must take {needed} bytes, got {taken}")
    return offsets[0], offsets[1]


def _sizes(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**63 for n in numbers
    )
