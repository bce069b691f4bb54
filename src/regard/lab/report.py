"""One page with what the experiments found: offline, its figures inside."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Sequence
from datetime import date
from html import escape
from importlib.resources import files

import numpy as np

import regard

from .result import Result, Table

__all__ = ["counted", "page"]


def counted(results: Sequence[Result]) -> str:
    """How many hold, how many fail, and, apart from both, those that were not run."""
    words = [result.verdict.word for result in results]
    parts = [f"{words.count('holds')} of {len(results)} experiments hold"]
    if "fails" in words:
        parts.append("fails: " + _names(results, "fails"))
    if "not run" in words:
        parts.append("not run, or not all of it: " + _names(results, "not run"))
    return "; ".join(parts)


def _names(results: Sequence[Result], word: str) -> str:
    return ", ".join(
        f"{r.name} ({r.verdict.missing})" if r.verdict.missing else r.name
        for r in results if r.verdict.word == word
    )  # fmt: skip


def page(results: Sequence[Result], seed: int) -> str:
    """The whole page as HTML."""
    style = files("regard.lab").joinpath("report.css").read_text(encoding="utf-8")
    nav = "".join(
        f'<tr class="{r.verdict.word.replace(" ", "-")}"><td><a href="#{r.name}">{r.name}</a></td>'
        f"<td>{escape(r.question)}</td><td><b>{escape(r.verdict.word)}</b></td></tr>"
        for r in results
    )  # fmt: skip
    made = (
        f"regard {regard.__version__}, NumPy {np.__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}; seed {seed}; {date.today().isoformat()}"
    )
    return "\n".join([
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>regard lab: {len(results)} experiments</title><style>{style}</style></head>",
        "<body><main>",
        "<h1>Attention, shown by running it</h1>",
        f"<p>{escape(counted(results))}.</p>",
        f'<p class="quiet">{escape(made)}. Every number on this page was computed in that run. '
        "Verdicts rest on counts, memory and values; times are of this machine.</p>",
        f'<nav class="scroll"><table><tbody>{nav}</tbody></table></nav>',
        *map(_section, results),
        "</main></body></html>",
        "",
    ])  # fmt: skip


def _section(result: Result) -> str:
    from . import experiment

    source = inspect.getsource(experiment(result.name))
    return (
        f'<section id="{result.name}"><h2>{escape(result.name)}</h2>'
        f"{result.html(figure=result.table != Table((), []))}"
        f'<details class="code"><summary>The code</summary><pre>{escape(source)}</pre></details>'
        "</section>"
    )
