"""`regard bench`: the grid of measurements beside the peers that are installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ..bench import ladder as the_ladder
from ..bench import machine, measure, peers, report, rows, turns
from ..files import written_beside
from ..threads import get_num_threads
from .base import app, console, place_of

WIDE = 150  # columns, for times and ratios of every peer


@app.command()
def bench(
    pattern: Annotated[
        str, typer.Option("--rows", metavar="PATTERN",
                          help="Only rows whose name holds this; * stands for anything.")
    ] = "",
    only: Annotated[
        str | None, typer.Option("--peers", metavar="NAMES",
                                 help="Only these peers, by commas; none for none.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two short rounds: a first look.")] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write all that was measured.")
    ] = None,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a section for a document.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a picture (needs matplotlib).")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the rows; measure nothing.")] = False,
    ladder: Annotated[
        bool, typer.Option("--ladder", help="Instead, the engines beside a few lines of NumPy.")
    ] = False,
) -> None:  # fmt: skip
    """Measure attention beside PyTorch, ONNX Runtime, JAX and OpenVINO, where they are installed.

    Answers are checked before anything is timed. Then all take turns, with the same number of
    threads. A row is lost where a floor that it must reach is not reached. Ctrl-C ends the run;
    what was measured is printed and written all the same.
    """
    if ladder:
        return the_ladder.main()
    chosen = rows.matching(pattern)
    if not chosen:
        raise ValueError(f"no row's name holds {pattern!r}; --list shows them")
    if listed:
        return _list(chosen)
    places = [
        (write, place_of(name))
        for write, name in ((_json, json_file), (_markdown, markdown), (_plot, plot))
        if name
    ]
    found, absent = peers.load(get_num_threads(), _names(only))
    versions = {peer.title: peer.version for peer in found}
    told = report.Report(
        machine.describe(versions), machine.Limits(), list(versions), absent, planned=len(chosen)
    )
    try:
        _run(told, chosen, found, turns.QUICK if quick else turns.FULL)
    finally:  # whatever happened, what was measured is not lost
        _print(told)
        for write, place in places:
            with written_beside(place) as beside:
                write(told, beside, place.suffix)
    if not told.complete:
        raise typer.Exit(130)
    return None


def _list(chosen: list[rows.Row]) -> None:
    for row in chosen:
        floors = ", ".join(report.says(measure.Verdict(floor, None)) for floor in row.floors)
        print(f"{row.name:<44}{floors.replace('?', '…')}")


def _run(
    told: report.Report, chosen: list[rows.Row], found: list[peers.Peer], pace: turns.Pace
) -> None:
    """Every row in turn, until the end or Ctrl-C."""
    try:
        told.limits = machine.limits(pace)
        for i, row in enumerate(chosen, 1):
            print(f"{i}/{len(chosen)} {row.name}", end="", file=sys.stderr, flush=True)
            m = measure.measure(row, found, limits=told.limits, pace=pace, absent=told.absent)
            told.rows.append(m)
            print(f"  {' · '.join(report.cells(told, m)[1:])}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\ninterrupted: what was measured follows", file=sys.stderr)


def _names(only: str | None) -> list[str] | None:
    if only is None:
        return None
    names = [name.strip().lower() for name in only.split(",") if name.strip().lower() != "none"]
    known = {peer.title.lower() for peer in peers.PEERS}
    if unknown := set(names) - known:
        raise ValueError(f"no peer is called {', '.join(sorted(unknown))}; there are "
                         f"{', '.join(peer.title for peer in peers.PEERS)}")  # fmt: skip
    return names


def _print(told: report.Report) -> None:
    """The table; on a narrow terminal ratios alone, and the lost floors below."""
    screen = console()
    wide = screen.width >= WIDE
    table = Table(box=None, pad_edge=False, header_style="bold")
    heads = report.heads(told) if wide else ["row", "ms", "rate", *told.peers, "floors"]
    for head in heads:
        table.add_column(head, justify="left" if head in ("row", "floors") else "right")
    for m in told.rows:
        cells = report.cells(told, m)
        if not wide:
            ratios = (f"{m.peers[p]:.2f} ×" if p in m.peers else "–" for p in told.peers)
            known = m.seconds and all(v.met is not None for v in m.verdicts)
            cells = [*cells[:3], *ratios, "lost" if _lost(m) else "met" if known else "?"]
        table.add_row(*map(escape, cells), style="red" if _lost(m) else "")
    screen.print(table)
    below = [] if wide else [f"{m.row.name}: {report.cells(told, m)[-1]}" for m in told.rows
                             if _lost(m)]  # fmt: skip
    for line in below + report.reasons(told):
        screen.print(line, style="dim", markup=False)


def _lost(m: measure.Measured) -> bool:
    return any(v.met is False for v in m.verdicts) or bool(m.error and not m.seconds)


def _json(told: report.Report, path: Path, _: str) -> None:
    path.write_text(told.as_json(), encoding="utf-8")


def _markdown(told: report.Report, path: Path, _: str) -> None:
    path.write_text(told.as_markdown(), encoding="utf-8")


def _plot(told: report.Report, path: Path, suffix: str) -> None:
    report.plot(told).savefig(path, format=suffix.lstrip(".") or "png")
