"""The shapes of a call: query · keyᵀ → weights, weights · value → output, as blocks with sizes."""

from __future__ import annotations

from math import log2, prod
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..call import _bytes
from ..problem import Problem, check
from .canvas import figure, subtitle, write
from .palette import Theme

__all__ = ["shapes"]

SMALLEST, GROWTH = 0.34, 1.5  # inches of the side of 1, and what the longest side has more
BETWEEN = 1.1  # inches between blocks, for a sign
SHEETS = 4  # heads drawn behind each other at most
APART = 0.07  # inches between them


def shapes(
    query: Any,
    key: Any,
    value: Any,
    *,
    title: str | None = None,
    dark: bool = False,
) -> Figure:
    """The arrays of a call as blocks, with the names and lengths of their sides and their memory.

    Parameters
    ----------
    query, key, value : arrays of `regard.attention`, or tuples of int
        A tuple is a shape, (*lead, H, N, D), in float32.
    title : str
    dark : bool

    Returns
    -------
    matplotlib.figure.Figure
        Sides grow with the logarithm of their lengths. Sheets behind a block are heads.

    Raises
    ------
    TypeError, ValueError
        If they do not fit each other, as `regard.attention` says it.

    Examples
    --------
    >>> import regard
    >>> figure = regard.pictures.shapes((8, 128, 64), (2, 256, 64), (2, 256, 64))
    >>> len(figure.axes[0].texts) > 5
    True
    """
    problem = check(*map(_array, (query, key, value)))
    H, Nq, D = problem.query.shape[-3:]
    Hkv, Nk, Dv = problem.value.shape[-3:]
    wide, narrow = problem.query.itemsize, problem.key.itemsize
    blocks = [
        _Block("query", ("Nq", Nq), ("D", D), H, wide, 1),
        _Block("keyᵀ", ("D", D), ("Nk", Nk), Hkv, narrow, 1),
        _Block("weights", ("Nq", Nq), ("Nk", Nk), H, problem.dtype.itemsize, 5),
        _Block("value", ("Nk", Nk), ("Dv", Dv), Hkv, narrow, 1),
        _Block("output", ("Nq", Nq), ("Dv", Dv), H, wide, 3),
    ]
    longest = max(max(b.side[1], b.top[1]) for b in blocks)
    across = [_inches(b.top[1], longest) for b in blocks]
    tallest = max(_inches(b.side[1], longest) for b in blocks)
    width, height = sum(across) + BETWEEN * (len(blocks) - 1) + 1.1, tallest + 1.3
    drawn, theme = figure(width, height + (0.6 if title else 0.3), dark, title)
    axes = drawn.add_subplot()
    left = 0.65
    for block, wide_, sign in zip(blocks, across, ("×", "→", "×", "=", ""), strict=True):
        _draw(axes, block, left, wide_, _inches(block.side[1], longest), prod(problem.lead), theme)
        left += wide_
        _write(axes, left + 0.4, 0, sign, theme.ink, fontsize=15)
        left += BETWEEN
    axes.set(xlim=(0, width), ylim=(-height / 2 - 0.05, height / 2 - 0.05), aspect="equal")
    axes.axis("off")
    subtitle(drawn, theme, _words(problem, H, Hkv))
    return drawn


class _Block:
    def __init__(
        self, name: str, side: tuple[str, int], top: tuple[str, int], heads: int, itemsize: int,
        shade: int,
    ) -> None:  # fmt: skip
        self.name, self.side, self.top = name, side, top
        self.heads, self.itemsize, self.shade = heads, itemsize, shade


def _array(x: Any) -> Any:
    """An array of the shape that costs nothing; an array as it is."""
    if not isinstance(x, tuple):
        return x
    if not all(isinstance(n, (int, np.integer)) and n >= 0 for n in x):
        raise ValueError(f"a shape must be a tuple of int, 0 or more, got {x}")
    return np.broadcast_to(np.float32(0), x)


def _inches(n: int, longest: int) -> float:
    return SMALLEST + GROWTH * log2(max(n, 1)) / log2(max(longest, 64))


def _draw(
    axes: Axes, block: _Block, left: float, across: float, down: float, batch: int, theme: Theme
) -> None:
    """A block with its sheets, centred on the line, its sides and its memory."""
    sheets = min(max(block.heads, 1), SHEETS)
    formed = block.name == "weights"
    for sheet in reversed(range(sheets)):
        shift = sheet * APART
        axes.add_patch(
            Rectangle(
                (left + shift, -down / 2 + shift), across, down, facecolor=theme.ramp[block.shade],
                edgecolor=theme.ink, linewidth=0.9, linestyle="--" if formed else "-",
            )
        )  # fmt: skip
    above = down / 2 + (sheets - 1) * APART
    _write(axes, left + across / 2, above + 0.32, block.name, theme.ink, fontsize=10,
           fontweight="bold")  # fmt: skip
    _write(axes, left + across / 2, above + 0.12, _count(block, batch), theme.faint, fontsize=8)
    _write(axes, left - 0.05, 0, f"{block.side[0]} =\n{block.side[1]:,}", theme.ink, ha="right")
    _write(
        axes, left + across / 2, -down / 2 - 0.15, f"{block.top[0]} = {block.top[1]:,}", theme.ink
    )
    size = batch * block.heads * block.side[1] * block.top[1] * block.itemsize
    words = f"{_bytes(size)},\nnever formed" if formed else _bytes(size)
    _write(axes, left + across / 2, -down / 2 - 0.3, words, theme.faint, va="top")


def _count(block: _Block, batch: int) -> str:
    heads = f"{block.heads} head{'s' * (block.heads != 1)}"
    return heads if batch == 1 else f"{batch} × {heads}"


def _write(axes: Axes, x: float, y: float, words: str, colour: str, **style: Any) -> None:
    default: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
    text = axes.text(x, y, "", **default | style)
    write(text, words, colour)


def _words(problem: Problem, H: int, Hkv: int) -> str:
    """What the blocks do not show."""
    said = f"weights = softmax(scale · query · keyᵀ), in {problem.dtype}; sides are not to scale"
    if Hkv in (H, 0):
        return said
    return f"{said}\n{H // Hkv} query heads read one key/value head: h reads h // {H // Hkv}"
