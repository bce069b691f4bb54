"""Files that are whole or not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_native_id

__all__ = ["written_beside"]


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A file beside `path`, renamed to it when whole; a pipe or a device is written itself."""
    if path.exists() and not path.is_file():
        yield path
        return
    beside = path.with_name(f".{path.name}.{get_native_id()}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
