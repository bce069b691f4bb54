"""A trace in a file: a .npz archive of plain arrays, never pickled."""

from __future__ import annotations

import json
import zipfile
import zlib
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .files import written_beside
from .predicates import Array

__all__ = ["read", "write"]

KIND = "regard trace 1"


def write(path: str | PathLike[str], words: dict[str, Any], arrays: dict[str, Array]) -> None:
    """`words` as JSON and the arrays, compressed, into a file that is whole or not there."""
    place = Path(path).resolve()
    if place.is_dir() or not place.parent.is_dir():
        raise ValueError(f"path must be a file in a folder that is there, got {str(path)!r}")
    text = np.frombuffer(json.dumps({"kind": KIND, **words}).encode(), np.uint8)
    members: dict[str, Any] = {"trace": text, **arrays}
    with written_beside(place) as beside, open(beside, "wb") as file:
        np.savez_compressed(file, **members)


def read(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `write` wrote, or a ValueError that names the file."""
    try:
        with open(path, "rb") as file, _archive(file) as archive:
            arrays = {name: archive[name] for name in archive.files}
        words = json.loads(bytes(arrays.pop("trace")).decode())
        if words.pop("kind") != KIND:
            raise ValueError("written by another version")
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error,
            AttributeError, TypeError, NotImplementedError) as error:  # fmt: skip
        raise ValueError(f"{path} is not a trace that regard wrote: {error}") from error
    return words, arrays


def _archive(file: BinaryIO) -> Any:
    if file.read(2) != b"PK":
        raise ValueError("not a .npz archive")
    file.seek(0)
    return np.load(file, allow_pickle=False)
