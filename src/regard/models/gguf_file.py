"""A GGUF file, read with suspicion: each count, size and offset is checked before a tensor is read.

The `gguf` library knows the types and undoes the quantisation; it trusts a file's header, and takes
seconds over one, so the header is read here. Layout: the GGUF specification, versions 2 and 3.
"""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..predicates import Array
from .extra import needed

__all__ = ["GGUF", "Stored"]

SCALARS = {
    0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "u1", 10: "<u8",
    11: "<i8", 12: "<f8",
}  # fmt: skip
BOOL, STRING, ARRAY = 7, 8, 9
PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}  # what NumPy holds by itself

# Far above any real file, so that a false one costs little time and memory.
MOST_HEADER = 2**28  # bytes
MOST_KEYS = 2**16
MOST_TENSORS = 2**18
MOST_NAME = 2**16 - 1
MOST_AXES = 4
MOST_ALIGNMENT = 2**20
LEAST_KEY = 8 + 1 + 4 + 1  # bytes: length and letter of a name, type, value
LEAST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8


class Stored(NamedTuple):
    """Where a tensor lies: its quantisation, its shape as NumPy says it, its bytes."""

    kind: str  # "F32", "Q4_1", ...
    shape: tuple[int, ...]
    start: int
    size: int


class GGUF:
    """The metadata of a file, and its tensors on demand.

    Attributes
    ----------
    metadata : dict
        Numbers, bools, str; an array of numbers is a NumPy array, one of strings a list.
    tensors : dict of Stored
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.is_file():
            raise ValueError(f"{file} is missing: a GGUF file is needed there")
        with file.open("rb") as stream:
            header = Header(file, stream, file.stat().st_size)
            self.metadata, self.tensors = header.read()

    def rows(self, name: str, place: Array | None = None) -> Array:
        """A tensor as it is held: floats in its shape, or uint8, a row of blocks after another.

        It is read into `place`, uint8, where there is one.
        """
        at, part = self.tensors[name], self._read(name, place)
        if at.kind in PLAIN:
            return part.view(PLAIN[at.kind]).reshape(at.shape)
        if at.kind == "BF16":
            return part.view(needed("ml_dtypes").bfloat16).reshape(at.shape)
        return part.reshape(*at.shape[:-1], -1)

    def floats(self, name: str) -> Array:
        """A tensor in float32, in its shape."""
        gguf, at = needed("gguf"), self.tensors[name]
        kind, part = gguf.GGMLQuantizationType[at.kind], self._read(name)
        try:
            wide = gguf.dequantize(part.reshape(*at.shape[:-1], -1), kind)
        except NotImplementedError as error:
            raise ValueError(f"{self.file}: tensor {name}: {error}") from None
        return np.asarray(wide, np.float32).reshape(at.shape)

    def _read(self, name: str, place: Array | None = None) -> Array:
        """Its bytes, in memory of our own: a file that is cut short later does no harm."""
        at = self.tensors[name]
        part = np.empty(at.size, np.uint8) if place is None else place
        with self.file.open("rb") as stream:
            stream.seek(at.start)
            n = stream.readinto(part)  # type: ignore[arg-type]
        if n != at.size:
            raise ValueError(
                f"{self.file}: tensor {name} could not be read: the file was cut short"
            )
        return part


class Header:
    """Reads on through a header, never past the end of the file.

    Errors name the file and the field that is wrong.
    """

    def __init__(self, file: Path, stream: BinaryIO, size: int) -> None:
        self.file, self.size, self.at = file, size, 0
        self._stream = stream

    def read(self) -> tuple[dict[str, Any], dict[str, Stored]]:
        tensors, keys = self._counts()
        metadata: dict[str, Any] = {}
        for i in range(keys):
            name = self._name(f"key {i}")
            if name in metadata:
                raise self._error(name, "must stand there once, got it twice")
            metadata[name] = self._value(name, self._number("<I", f"type of {name}"))
        infos: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        for i in range(tensors):
            name = self._name(f"tensor {i}")
            if name in infos:
                raise self._error(f"tensor {name}", "must stand there once, got it twice")
            infos[name] = self._info(f"tensor {name}")
        return metadata, self._placed(infos, self._alignment(metadata))

    def _error(self, field: str, says: str) -> ValueError:
        return ValueError(f"{self.file}: {field} {says}")

    def _take(self, n: int, field: str) -> bytes:
        left = min(self.size, MOST_HEADER) - self.at
        if n > left:
            raise self._error(field, f"takes {n} bytes at byte {self.at}, where {left} are left")
        taken = self._stream.read(n)
        if len(taken) != n:  # it shrinks while it is read
            raise self._error(field, "could not be read: the file was cut short")
        self.at += n
        return taken

    def _number(self, form: str, field: str) -> int:
        number: int = struct.unpack(form, self._take(struct.calcsize(form), field))[0]
        return number

    def _text(self, field: str, most: int = MOST_HEADER) -> str:
        n = self._number("<Q", f"length of {field}")
        if n > most:
            raise self._error(f"length of {field}", f"must be at most {most}, got {n}")
        try:
            return self._take(n, field).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error(field, f"must be UTF-8: {error}") from None

    def _name(self, field: str) -> str:
        name = self._text(f"name of {field}", MOST_NAME)
        if not name or not name.isprintable():
            raise self._error(f"name of {field}", f"must be printable, got {name!r:.80}")
        return name

    def _counts(self) -> tuple[int, int]:
        if self._take(4, "magic") != b"GGUF":
            raise self._error("magic", "must be GGUF: this is no GGUF file")
        version = self._number("<I", "version")
        if version not in (2, 3):
            big = " (of the other byte order)" if version and not version & 0xFFFF else ""
            raise self._error("version", f"must be 2 or 3, got {version}{big}")
        return (
            self._count("<Q", "tensor count", LEAST_TENSOR, MOST_TENSORS),
            self._count("<Q", "key count", LEAST_KEY, MOST_KEYS),
        )

    def _count(self, form: str, field: str, least: int, most: int) -> int:
        """A number of things that take at least so many bytes each."""
        n = self._number(form, field)
        most = min(most, (self.size - self.at) // least)
        if n > most:
            raise self._error(field, f"must be at most {most}, got {n}")
        return n

    def _value(self, name: str, kind: int) -> Any:
        if kind == STRING:
            return self._text(name)
        if kind == ARRAY:
            return self._array(name)
        return self._scalars(name, kind, 1)[0].item()

    def _array(self, name: str) -> Any:
        kind = self._number("<I", f"type of {name}")
        if kind == STRING:
            n = self._count("<Q", f"length of {name}", 8, MOST_HEADER)
            return [self._text(f"{name}[{i}]") for i in range(n)]
        if kind == ARRAY:
            raise self._error(name, "must be an array of numbers or strings, got one of arrays")
        return self._scalars(name, kind, self._number("<Q", f"length of {name}"))

    def _scalars(self, name: str, kind: int, n: int) -> Array:
        if kind not in SCALARS:
            raise self._error(f"type of {name}", f"must be one of GGUF's, 0 to 12, got {kind}")
        dtype = np.dtype(SCALARS[kind])
        numbers = np.frombuffer(self._take(n * dtype.itemsize, name), dtype)
        if kind != BOOL:
            return numbers
        if n and numbers.max() > 1:
            raise self._error(name, f"must be 0 or 1, as a bool is, got {numbers.max()}")
        return numbers.astype(bool)

    def _info(self, field: str) -> tuple[str, tuple[int, ...], int, int]:
        """What a tensor is, its shape, its offset and its size in bytes."""
        axes = self._number("<I", f"axes of {field}")
        if not 1 <= axes <= MOST_AXES:
            raise self._error(f"axes of {field}", f"must be 1 to {MOST_AXES}, got {axes}")
        shape = struct.unpack(f"<{axes}Q", self._take(8 * axes, f"shape of {field}"))[::-1]
        kind, block, width = self._kind(field)
        offset = self._number("<Q", f"offset of {field}")
        if not all(shape) or shape[-1] % block:
            raise self._error(field, f"of type {kind} must have rows of {block}, got {shape}")
        return kind, shape, offset, prod(shape) // block * width

    def _kind(self, field: str) -> tuple[str, int, int]:
        gguf = needed("gguf")
        number = self._number("<I", f"type of {field}")
        try:
            kind = gguf.GGMLQuantizationType(number)
            return (kind.name, *gguf.GGML_QUANT_SIZES[kind])
        except (ValueError, KeyError):
            raise self._error(f"type of {field}", f"must be a known one, got {number}") from None

    def _alignment(self, metadata: dict[str, Any]) -> int:
        n = metadata.get("general.alignment", 32)
        whole = isinstance(n, int) and not isinstance(n, bool)
        if not whole or not 1 <= n <= MOST_ALIGNMENT or n & (n - 1):
            raise self._error("general.alignment", f"must be a power of two, got {n!r:.80}")
        return int(n)

    def _placed(
        self, infos: dict[str, tuple[str, tuple[int, ...], int, int]], alignment: int
    ) -> dict[str, Stored]:
        """Where each lies in the file, aligned, within it, and upon no other."""
        start = -(-self.at // alignment) * alignment
        placed, end, last = {}, 0, ""
        for name, (kind, shape, offset, size) in sorted(infos.items(), key=lambda i: i[1][2]):
            field = f"offset of tensor {name}"
            if offset % alignment:
                raise self._error(field, f"must be a multiple of {alignment}, got {offset}")
            if offset < end:
                raise self._error(field, f"must be {end} or more, behind {last}, got {offset}")
            end, last = offset + size, name
            if start + end > self.size:
                raise self._error(
                    f"tensor {name}",
                    f"takes {size} bytes at byte {start + offset}, of {self.size} in the file",
                )
            placed[name] = Stored(kind, shape, start + offset, size)
        return {name: placed[name] for name in infos}
