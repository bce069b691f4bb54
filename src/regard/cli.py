"""The command line: parses and prints, nothing else."""

from __future__ import annotations

import json
import os
import platform
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from . import __version__, models
from .engines import ENGINES, native
from .models.catalog import CATALOG, cache_folder, cached
from .predicates import Array
from .threads import get_num_threads
from .trace import Link, Trace

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
SHADES = " ░▒▓█"  # weights below 0.1, 0.3, 0.5, 0.7, and above


def run() -> None:
    """The entry point: a user's mistake is one line on standard error, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8")
    warnings.showwarning = _show_warning
    try:
        app()
    except BrokenPipeError:  # the reader, `head` perhaps, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is not installed; pip install 'regard[look]' brings it", 2)
    except (ValueError, TypeError, OSError) as error:
        _fail(str(error), 1)


def _fail(message: str, code: int) -> None:
    print(f"regard: {message}", file=sys.stderr)
    raise SystemExit(code)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"regard: warning: {message}", file=sys.stderr)


# ------------------------------------------------------------------------------------ look


@app.command()
def look(
    text: Annotated[str, typer.Argument(help="A text, a file that holds one, or - for input.")],
    model: ModelOption = "minilm",
    layer: Annotated[int | None, typer.Option(help="With --head: draw this head's map.")] = None,
    head: Annotated[int | None, typer.Option(help="Head within the layer, from 0.")] = None,
    find: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Rank all heads by the weight from A to B: words, in any "
                     "case, or indices of tokens."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many links to list.")] = 12,
    special: Annotated[bool, typer.Option("--special", help="Count special tokens too.")] = False,
    self_links: Annotated[
        bool, typer.Option("--self", help="Count a token's links to itself too.")
    ] = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut a text that is too long for the model.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:  # fmt: skip
    """Show what a model attends to in a text: its strongest links, or one head's map.

    Layers, heads and tokens are counted from 0. A link goes from the query, the token that
    attends, to the key, the token attended to.
    """
    if (layer is None) != (head is None):
        raise typer.BadParameter("--layer and --head go together")
    trace = models.load(model).look(_read_text(text), truncate=truncate)
    if layer is not None and head is not None:
        _check_head(trace, layer, head)
    if find:
        links = trace.find(*(_word_or_index(trace, word) for word in find))
        if layer is not None:
            links = [link for link in links if (link.layer, link.head) == (layer, head)]
        links = links[:top]
    else:
        links = trace.strongest(top, special=special, self_links=self_links)
    if as_json:
        weights = None if layer is None else np.asarray(trace.layers[layer].weights[head])
        _print_json(model, trace, links, layer, head, weights)
    elif layer is not None and head is not None and not find:
        _print_map(trace, layer, head)
    else:
        _print_links(links, None if find else _left_out(special, self_links))


def _read_text(text: str) -> str:
    """The text itself, or what the file or standard input holds."""
    try:
        is_file = text == "-" or (Path(text).exists() and not Path(text).is_dir())
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return text
    return _read_file(text).strip() if is_file else text


def _read_file(name: str) -> str:
    """A file, or for - standard input, whose UTF-8 is that of no locale."""
    content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} must be UTF-8 text: {error}") from None


def _check_head(trace: Trace, layer: int, head: int) -> None:
    layers, heads = len(trace.layers), trace.layers[0].weights.shape[0]
    if not (0 <= layer < layers and 0 <= head < heads):
        raise ValueError(
            f"the model has layers 0 to {layers - 1} and heads 0 to {heads - 1}, "
            f"got layer {layer}, head {head}"
        )


def _word_or_index(trace: Trace, word: str) -> str | int:
    """A number is an index, unless the text has it."""
    return int(word) if word.isdecimal() and word not in trace.text else word


def _left_out(special: bool, self_links: bool) -> str:
    left = [] if special else ["links of special tokens (--special)"]
    left += [] if self_links else ["of tokens to themselves (--self)"]
    return f"Left out: {' and '.join(left)}." if left else ""


def _console() -> Console:
    """Standard output; in a pipe as wide as its lines want to be."""
    return Console() if sys.stdout.isatty() else Console(width=200, color_system=None)


def _print_links(links: list[Link], left_out: str | None) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("weight", "layer", "head"):
        table.add_column(name, justify="right")
    for name in ("query", "", "key"):
        table.add_column(name)
    for link in links:
        query, key = f"{link.query} {link.query_token}", f"{link.key} {link.key_token}"
        table.add_row(f"{link.weight:.3f}", str(link.layer), str(link.head), escape(query), "→",
                      escape(key))  # fmt: skip
    console = _console()
    console.print(table)
    if left_out:
        console.print(left_out, style="dim")
    if not links:
        console.print("No links: the text has no two tokens that count.", style="dim")


def _print_map(trace: Trace, layer: int, head: int) -> None:
    """A head as shaded cells: a row a query, a column a key."""
    console = _console()
    weights = trace.layers[layer].weights[head]  # (N, N)
    labels = [f"{i} {token}" for i, token in enumerate(trace.tokens)]
    wide = max(map(len, labels))
    cell = max(3, len(str(len(labels) - 1)) + 1)
    shown = min(len(labels), max(1, (console.width - wide) // cell))

    def write(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    write(f"layer {layer}, head {head}: row = query, column = key, each row sums to 1")
    write(" " * wide + "".join(f"{j:>{cell}}" for j in range(shown)))
    steps = np.array([0.1, 0.3, 0.5, 0.7])
    for label, row in zip(labels, weights, strict=True):
        shades = (SHADES[i] * 2 for i in np.searchsorted(steps, row[:shown], side="right"))
        write(f"{label:<{wide}}" + "".join(f"{shade:>{cell}}" for shade in shades))
    bounds = ["below 0.1", "0.1", "0.3", "0.5", "0.7 and above"]
    write("  ".join(f"{s}{s} {b}" for s, b in zip(SHADES[1:], bounds[1:], strict=True)))
    if shown < len(labels):
        write(f"Columns 0 to {shown - 1} of {len(labels)} fit; --json has all.")


def _print_json(
    model: str, trace: Trace, links: list[Link], layer: int | None, head: int | None,
    weights: Array | None,
) -> None:  # fmt: skip
    found: dict[str, Any] = {
        "model": model, "tokens": trace.tokens, "links": [link._asdict() for link in links]
    }  # fmt: skip
    if weights is not None:
        found |= {"layer": layer, "head": head, "weights": weights.tolist()}
    print(json.dumps(found, ensure_ascii=False))


# ----------------------------------------------------------------------------------- embed


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
    place = None if output == "-" else _place(output)
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
        with _written_beside(place) as beside:
            _write(beside, place.suffix, vectors)


def _place(name: str) -> Path:
    """Where the output goes, behind links; said before any work if that is no place for it."""
    place = Path(name).resolve()
    if not name or place.is_dir() or not place.parent.is_dir():
        raise ValueError(f"output must be a file in a folder that is there, got {name!r}")
    return place


def _read_lines(file: str) -> list[str]:
    """Lines end at a line feed alone, as in other tools; the last one may lack it."""
    text = _read_file(file)
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


@contextmanager
def _written_beside(path: Path) -> Iterator[Path]:
    """A file beside `path`, renamed to it when whole; a pipe or a device is written itself."""
    if path.exists() and not path.is_file():
        yield path
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------ info


@app.command()
def info() -> None:
    """Show versions, engines, threads, and which models are cached, and where."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    rows = [
        ("regard", __version__),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("NumPy", f"{np.__version__} with {blas.get('name')} {blas.get('version')}"),
        *((f"engine {e.name}", e.about) for e in ENGINES.values()),
        *((("engine native", native.WHY_NOT),) if native.WHY_NOT else ()),
        ("threads", f"{get_num_threads()} for the native engine; NumPy's library has its own"),
        *((name, _version_of(name)) for name in ("safetensors", "tokenizers", "ml_dtypes")),
        ("cache", str(cache_folder())),
    ]
    for name, entry in CATALOG.items():
        where = cached(name) or f"not fetched ({entry.wheel_bytes / 1e6:.0f} MB to fetch)"
        rows.append((f"model {name}", f"{entry.title}; {entry.licence}; {where}"))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


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
