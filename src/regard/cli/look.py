"""`regard look`: what a model attends to in a text."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from .. import models, pictures
from ..files import written_beside
from ..predicates import Array
from ..trace import Link, Trace
from .base import ModelOption, app, console, place_of, read_text, writer

FORMATS = (".pdf", ".png", ".svg")
SHADES = " ░▒▓█"  # weights below 0.1, 0.3, 0.5, 0.7, and above


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
    written: Annotated[
        int,
        typer.Option("--generate", metavar="N", min=0,
                     help="Let the model continue the text by at most N tokens first."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the head, or all of them, in a .png, .svg or .pdf.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="PAGE.html",
                     help="Write a page that shows every head, to be opened in a browser."),
    ] = None,
    window: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="START STOP", help="With -o: of a long text, tokens to show exactly."),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="With -o: open the page.")] = False,
) -> None:  # fmt: skip
    """Show what a model attends to in a text: its strongest links, one head's map, or a page.

    Layers, heads and tokens are counted from 0. A link goes from the query, the token that
    attends, to the key, the token attended to.
    """
    if (layer is None) != (head is None):
        raise typer.BadParameter("--layer and --head go together")
    place = None if plot is None else _place_of_plot(plot)
    if output is None and (open_page or window):
        raise typer.BadParameter("--open and --window go with -o PAGE.html")
    page = None if output is None else _place_of_page(output)
    trace = _trace(model, read_text(text), truncate, written)
    if layer is not None and head is not None:
        _check_head(trace, layer, head)
    if place is not None:
        _plot(trace, place, None if layer is None or head is None else (layer, head))
    if find:
        links = trace.find(*(_word_or_index(trace, word) for word in find))
        if layer is not None:
            links = [link for link in links if (link.layer, link.head) == (layer, head)]
        links = links[:top]
    else:
        links = trace.strongest(top, special=special, self_links=self_links)
    if page is not None:
        asked = None if layer is None or head is None else (layer, head)
        _write_page(
            trace,
            page,
            f"What {Path(model).name} attends to",
            asked,
            links if find else None,
            window,
        )
        if open_page:
            webbrowser.open(page.as_uri())
    if as_json:
        weights = None if layer is None else np.asarray(trace.layers[layer].weights[head])
        _print_json(model, trace, links, layer, head, weights)
    elif layer is not None and head is not None and not find:
        _print_map(trace, layer, head)
    else:
        _print_links(links, None if find else _left_out(special, self_links))


def _trace(model: str, text: str, truncate: bool, written: int) -> Trace:
    loaded = models.load(model)
    if not written:
        return loaded.look(text, truncate=truncate)
    return writer(loaded).look(text, truncate=truncate, max_tokens=written)


def _place_of_page(name: str) -> Path:
    place = place_of(name)
    if place.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"output must be a page, NAME.html, got {name!r}")
    return place


def _write_page(
    trace: Trace, place: Path, title: str, asked: tuple[int, int] | None,
    found: Sequence[Link] | None, window: tuple[int, int] | None,
) -> None:  # fmt: skip
    """The page, open at the head that was asked for, or at the best of those found."""
    best = found[0] if found else None
    if best and asked is None:
        asked = (best.layer, best.head)
    trace.page(place, head=asked, token=best and best.query, window=window, title=title)


def _check_head(trace: Trace, layer: int, head: int) -> None:
    layers, heads = len(trace.layers), trace.layers[0].weights.shape[0]
    if not (0 <= layer < layers and 0 <= head < heads):
        raise ValueError(
            f"the model has layers 0 to {layers - 1} and heads 0 to {heads - 1}, "
            f"got layer {layer}, head {head}"
        )


def _place_of_plot(name: str) -> Path:
    """Where the picture goes, said before any work if it cannot go there."""
    _ = pictures.heat  # matplotlib is here
    if Path(name).suffix.lower() not in FORMATS:
        raise ValueError(f"a picture must be a file of {', '.join(FORMATS)}, got {name!r}")
    return place_of(name)


def _plot(trace: Trace, place: Path, head: tuple[int, int] | None) -> None:
    if head is None:
        figure = pictures.heads(trace)
    else:
        figure = pictures.heat(trace, head, title=f"layer {head[0]}, head {head[1]}")
    with written_beside(place) as beside:
        figure.savefig(beside, format=place.suffix[1:].lower(), dpi=150)


def _word_or_index(trace: Trace, word: str) -> str | int:
    """A number is an index, unless the text has it."""
    return int(word) if word.isdecimal() and word not in trace.text else word


def _left_out(special: bool, self_links: bool) -> str:
    left = [] if special else ["links of special tokens (--special)"]
    left += [] if self_links else ["of tokens to themselves (--self)"]
    return f"Left out: {' and '.join(left)}." if left else ""


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
    screen = console()
    screen.print(table)
    if left_out:
        screen.print(left_out, style="dim")
    if not links:
        screen.print("No links: the text has no two tokens that count.", style="dim")


def _print_map(trace: Trace, layer: int, head: int) -> None:
    """A head as shaded cells: a row a query, a column a key."""
    screen = console()
    weights = trace.layers[layer].weights[head]  # (N, N)
    labels = [f"{i} {token}" for i, token in enumerate(trace.tokens)]
    wide = max(map(len, labels))
    cell = max(3, len(str(len(labels) - 1)) + 1)
    shown = min(len(labels), max(1, (screen.width - wide) // cell))

    def write(line: str) -> None:
        screen.print(line, markup=False, highlight=False)

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
