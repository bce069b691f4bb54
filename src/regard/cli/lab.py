"""`regard lab`: the experiments, on the terminal and as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..files import written_beside
from ..lab import EXPERIMENTS, Result, experiment, report
from .base import app, place_of


@app.command()
def lab(
    name: Annotated[
        str | None, typer.Argument(help="An experiment, or all; without it they are listed.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="For one experiment: its sizes, as in 64,512.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")] = 0,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A folder for index.html, with figures.")
    ] = None,
) -> None:
    """Run experiments about attention: each claim shown, with a verdict that is computed.

    The exit code is 1 where a verdict fails. An experiment whose model is not at hand is named,
    and not counted among those that hold.
    """
    if name is None:
        _list()
        return
    names = EXPERIMENTS if name == "all" else (experiment(name).__name__.rpartition(".")[2],)
    if sizes is not None and name == "all":
        raise typer.BadParameter(
            "--sizes is for one experiment, for they mean another thing in each"
        )
    options = {} if sizes is None else {"sizes": _read_sizes(sizes)}
    place = None if output is None else _page_in(output)
    results = _run(names, seed, options)
    if name != "all":
        print(results[0])
    if place is not None:
        with written_beside(place) as beside:
            beside.write_text(report.page(results, seed), encoding="utf-8")
    if name == "all":
        print(report.counted(results))
        for result in results:
            if result.verdict.missing:
                print(f"{result.name}: {result.answer}")
    if any(result.verdict.word == "fails" for result in results):
        raise typer.Exit(1)


def _list() -> None:
    wide = max(map(len, EXPERIMENTS))
    for name in EXPERIMENTS:
        module = experiment(name)
        print(f"{name:<{wide}}  {module.QUESTION}")
        print(f"{'':<{wide}}  --sizes {','.join(map(str, module.SIZES))}  ({module.SIZES_ARE})")


def _read_sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(sorted({int(each) for each in text.split(",")}))
    except ValueError:
        raise ValueError(f"--sizes must be whole numbers with commas, got {text!r}") from None
    if sizes[0] < 1:
        raise ValueError(f"--sizes must be 1 or more, got {text!r}")
    return sizes


def _page_in(folder: str) -> Path:
    """index.html in the folder, which is made if its parent is there."""
    place = Path(folder)
    if not place.is_dir():
        place = place_of(folder)
        place.mkdir()
    return place_of(str(place / "index.html"))


def _run(names: tuple[str, ...], seed: int, options: dict[str, tuple[int, ...]]) -> list[Result]:
    """One after the other, a line each for `all`; on Ctrl-C nothing is written."""
    results: list[Result] = []
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(names))
        for name in names:
            bar.update(task, description=name)
            results.append(experiment(name).run(seed=seed, **options))
            bar.advance(task)
            if len(names) > 1:
                bar.console.print(f"{results[-1].name}: {results[-1].verdict}", highlight=False)
    return results
