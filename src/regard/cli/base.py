"""What the commands share: the application, reading and writing, the terminal."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .. import __version__
from ..models.decoder import Decoder

app = typer.Typer(
    help="Look at what a transformer attends to, and embed text, on NumPy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="A name of the catalogue, or a model's folder.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    pass


def read_text(text: str) -> str:
    """The text itself, or what the file or standard input holds."""
    try:
        is_file = text == "-" or (Path(text).exists() and not Path(text).is_dir())
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return text
    if not is_file and re.fullmatch(r"\S+\.(txt|text|md)", text):
        warnings.warn(f"there is no file {text!r}: it is read as the text itself", stacklevel=2)
    return read_file(text).strip() if is_file else text


def read_file(name: str) -> str:
    """A file, or for - standard input, whose UTF-8 is that of no locale."""
    if not name or Path(name).is_dir():
        raise ValueError(f"file must be a text file, or - for standard input, got {name!r}")
    content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} must be UTF-8 text: {error}") from None


def writer(model: object) -> Decoder:
    """The model, if it is one that writes."""
    if not isinstance(model, Decoder):
        raise ValueError(f"model must be one that writes, as smollm2 does, got {model!r}")
    return model


def console() -> Console:
    """Standard output; in a pipe as wide as its lines want to be."""
    return Console() if sys.stdout.isatty() else Console(width=200, color_system=None)


def place_of(name: str) -> Path:
    """Where the output goes, behind links; said before any work if that is no place for it."""
    place = Path(name).resolve()
    if not name or place.is_dir() or not place.parent.is_dir():
        raise ValueError(f"output must be a file in a folder that is there, got {name!r}")
    return place
