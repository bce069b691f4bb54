"""`regard embed`: one vector a line of a text file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, TextIO

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress

from .. import models
from ..files import written_beside
from ..predicates import Array
from .base import ModelOption, app, place_of, read_file


@app.command()
def embed(
    file: Annotated[str, typer.Argument(help="A text file, or - for standard input.")],
    output: Annotated[
        str,
        typer.Option("--output", "-o", help="A .npy file, or JSON lines for any other name."),
    ] = "-",
    model: ModelOption = "minilm",
    chunks: Annotated[
        bool, typer.Option("--chunks", help="Average long lines over windows; do not cut them.")
    ] = False,
) -> None:
    """Embed a text file: one vector a line, as JSON lines or .npy.

    Row i is line i, always: a blank line gives a row of zeros, which is like no other.
    """
    place = None if output == "-" else place_of(output)
    lines = _read_lines(file)
    encoder = models.load(model)
    vectors = np.zeros((len(lines), encoder.width), np.float32)
    full = [i for i, line in enumerate(lines) if line.strip()]
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"embedding {len(full)} lines", total=None)
        vectors[full] = encoder.embed(
            [lines[i] for i in full],
            chunks=chunks,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if place is None:
        _write_json_lines(sys.stdout, vectors)
    else:
        with written_beside(place) as beside:
            _write(beside, place.suffix, vectors)


def _read_lines(file: str) -> list[str]:
    """Lines end at a line feed alone, as in other tools; the last one may lack it."""
    text = read_file(file)
    return text.removesuffix("\n").split("\n") if text else []


def _write(path: Path, suffix: str, vectors: Array) -> None:
    if suffix == ".npy":
        with path.open("wb") as stream:
            np.save(stream, vectors)
    else:
        with path.open("w", encoding="utf-8") as stream:
            _write_json_lines(stream, vectors)


def _write_json_lines(stream: TextIO, vectors: Array) -> None:
    for vector in vectors:
        stream.write(json.dumps([float(f"{x:.9g}") for x in vector]) + "\n")
    stream.flush()
