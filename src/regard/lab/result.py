"""What an experiment gives: it shows itself as text, and as HTML in a notebook or a report."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from ..pictures.palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Check", "Result", "Table", "Verdict"]

WIDTH = 100  # characters of a line of text


class Check(NamedTuple):
    """One thing that must hold: in words, the numbers seen, and whether it holds."""

    claim: str
    seen: str
    holds: bool


class Table(NamedTuple):
    """Columns and rows; a number is shown in three digits, text as it is."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def cells(self) -> list[list[str]]:
        return [[show(cell) for cell in row] for row in self.rows]

    def __str__(self) -> str:
        lines = [list(self.columns), *self.cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        right = [
            all(_is_number(cell) for cell in column) for column in zip(*self.rows, strict=True)
        ]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(line, widths, right or [False] * 99, strict=False)
            ).rstrip()
            for line in lines
        )

    def html(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.cells()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class Verdict:
    """Whether every check holds; true where they do, false where one fails or nothing was run."""

    checks: tuple[Check, ...]
    missing: str = ""

    @property
    def word(self) -> str:
        """holds, fails, or not run."""
        if not all(check.holds for check in self.checks):
            return "fails"
        return "not run" if self.missing or not self.checks else "holds"

    def __bool__(self) -> bool:
        return self.word == "holds"

    def __str__(self) -> str:
        held = sum(check.holds for check in self.checks)
        counted = f"{held} of {len(self.checks)} checks hold" if self.checks else ""
        return "; ".join(filter(None, [self.word, counted, self.missing]))


@dataclass(frozen=True)
class Result:
    """What an experiment found.

    Attributes
    ----------
    name, question : str
    table : Table
    verdict : Verdict
        True where all its checks hold.
    notes : tuple of str
        Where a claim needs a qualification that the numbers show.
    exercise, answer : str
        A question to think about, and its answer, computed in the same run.
    figure : matplotlib.figure.Figure
        Drawn when asked for; needs the `look` extra.
    """

    name: str
    question: str
    table: Table
    verdict: Verdict
    notes: tuple[str, ...]
    exercise: str
    answer: str
    draw: Callable[[], Figure]

    @property
    def figure(self) -> Figure:
        return self.draw()

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.question}", str(self.table), self._checks_as_text()]
        parts = [part for part in parts if part.strip()]
        parts += [f"Note: {note}" for note in self.notes]
        parts += [f"Exercise: {self.exercise}", f"Answer: {self.answer}"]
        return "\n\n".join(part if "\n" in part else textwrap.fill(part, WIDTH) for part in parts)

    __repr__ = __str__

    def _checks_as_text(self) -> str:
        lines = [
            f"  {'holds' if check.holds else 'FAILS'}  {check.claim}: {check.seen}"
            for check in self.verdict.checks
        ]
        return "\n".join([f"Verdict: {self.verdict}", *lines])

    def _repr_html_(self) -> str:
        return f'<div class="regard-lab"><h3>{escape(self.name)}</h3>{self.html()}</div>'

    def html(self, figure: bool = True) -> str:
        """The parts below a heading, the figure drawn into them as SVG."""
        checks = "".join(
            f'<li class="{"holds" if check.holds else "fails"}">'
            f"{'✓' if check.holds else '✗'} {escape(check.claim)}: "
            f"<b>{escape(check.seen)}</b></li>"
            for check in self.verdict.checks
        )
        word = self.verdict.word
        return "\n".join([
            f'<p class="question"><em>{escape(self.question)}</em></p>',
            f'<div class="scroll">{self.table.html()}</div>',
            f'<div class="figure">{svg(self.figure, self.question)}</div>' if figure else "",
            f'<p class="verdict {word.replace(" ", "-")}"><b>Verdict:</b> '
            f"{escape(str(self.verdict))}</p>",
            f'<ul class="checks">{checks}</ul>',
            *(f'<p class="note"><b>Note.</b> {escape(note)}</p>' for note in self.notes),
            f'<p class="exercise"><b>To answer.</b> {escape(self.exercise)}</p>',
            f"<details><summary>Answer</summary><p>{escape(self.answer)}</p></details>",
        ])  # fmt: skip


def show(value: Any) -> str:
    """Whole numbers with commas, others in three digits, text as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{float(value):.3g}"


def _is_number(value: Any) -> bool:
    return not isinstance(value, (str, bool))


def svg(figure: Figure, description: str) -> str:
    """A figure as SVG that stands in a page: its ink is the page's text colour."""
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": description}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    drawing = re.sub(r"^.*?<svg", "<svg", stream.getvalue(), count=1, flags=re.DOTALL)
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    label = f'<svg role="img" aria-label="{escape(description, quote=True)}"'
    for ink in (LIGHT.ink, LIGHT.faint):  # what is written takes the colour of the page's text
        drawing = drawing.replace(ink, "currentColor")
    return drawing.replace("<svg", label, 1)


def not_run(name: str, question: str, models: Sequence[str]) -> Result:
    """An experiment whose models are not at hand: named, counted apart, and never passed."""
    missing = f"not at hand: {', '.join(models)}"
    fetch = "; ".join(f"regard.models.path({model!r})" for model in models)

    def draw() -> Figure:
        from .drawing import panels

        return panels([f"not run: {missing}"], height=1)[0]

    return Result(
        name=name, question=question, table=Table((), []), verdict=Verdict((), missing), notes=(),
        exercise="How can it be run?",
        answer=f"It needs models that are fetched once: python -c \"import regard; {fetch}\"",
        draw=draw,
    )  # fmt: skip
