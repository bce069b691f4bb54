"""Links between two columns of tokens: the strongest weights of one head as lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ..predicates import Array
from ..problem import Index
from .canvas import figure, subtitle, write
from .cells import ROWS, Stack, stack_of
from .labels import check_tokens, label
from .palette import Theme

__all__ = ["links"]

MOST_LABELS = 48  # of a side; up to half as many more still find room
STEPS = 48  # points along a line
REACH = 0.46  # how far a line goes level before it turns


def links(
    weights: Any,
    head: int | tuple[int, ...] | None = None,
    tokens: Sequence[str] | None = None,
    *,
    keys: Sequence[str] | None = None,
    n: int = 60,
    query: int | None = None,
    title: str | None = None,
    width: float = 5.0,
    dark: bool = False,
) -> Figure:
    """The strongest links of one head: queries on the left, the keys they attend to on the right.

    Parameters
    ----------
    weights, head, tokens, keys
        As in `heat`.
    n : int
        How many links are drawn. The line below the picture says what part of all weight they are.
    query : int
        Draw the links of this query alone.
    title : str
    width : float
        Inches.
    dark : bool

    Returns
    -------
    matplotlib.figure.Figure
        The larger a weight, the thicker and the darker (on dark paper, the brighter) its line; 1 is
        full.

    Raises
    ------
    ValueError
        If the head or the query is none of those that are there, or tokens are not one for each.

    Examples
    --------
    >>> import numpy as np, regard
    >>> figure = regard.pictures.links(np.eye(3), tokens=["the", "law", "is"])
    >>> len(figure.axes[0].collections[0].get_segments())
    3
    """
    stack = stack_of(weights)
    index = stack.head(head)
    Nq, Nk = stack.shape[-2:]
    if n < 1:
        raise ValueError(f"n must be 1 or more, got {n}")
    if query is not None and not -Nq <= query < Nq:
        raise ValueError(f"query must be one of {Nq}, got {query}")
    row_tokens = check_tokens("tokens", stack.tokens if tokens is None else tokens, Nq)
    column_tokens = check_tokens("keys", row_tokens if keys is None and Nq == Nk else keys, Nk)
    strongest, i, j, whole = _strongest(stack, index, n, query)
    tall = float(np.clip(0.19 * min(max(Nq, Nk), 1.5 * MOST_LABELS), 2, 12))
    drawn, theme = figure(width, tall + (0.9 if title else 0.6), dark, title)
    axes = drawn.add_subplot()
    _draw(axes, strongest, i / max(Nq - 1, 1), j / max(Nk - 1, 1), theme)
    _name(axes, 0, Nq, row_tokens, i, theme)
    _name(axes, 1, Nk, column_tokens, j, theme)
    axes.set(xlim=(0, 1), ylim=(1.02, -0.02))
    axes.axis("off")
    share = strongest.sum() / whole if whole else 0.0
    said = f"query → key: the {len(strongest)} strongest links, {share:.0%} of all weight"
    subtitle(drawn, theme, said)
    return drawn


def _strongest(
    stack: Stack, index: Index, n: int, query: int | None
) -> tuple[Array, Array, Array, float]:
    """The n largest weights above 0, the smallest first, their queries and keys; and all weight."""
    Nq, Nk = stack.shape[-2:]
    first, last = (0, Nq) if query is None else (query % Nq, query % Nq + 1)
    found, where, whole = np.zeros(0), np.zeros(0, int), 0.0
    for start in range(first, last, ROWS):
        block = stack.rows(index, slice(start, min(start + ROWS, last))).ravel()
        block = np.where(np.isfinite(block), block, 0)  # what is no number has no line
        whole += float(block.sum())
        found = np.concatenate([found, block])
        where = np.concatenate([where, start * Nk + np.arange(len(block))])
        best = np.argsort(found, kind="stable")[-n:]
        found, where = found[best], where[best]
    some = found > 0
    return found[some], where[some] // Nk, where[some] % Nk, whole


def _draw(axes: Axes, weights: Array, left: Array, right: Array, theme: Theme) -> None:
    """A line for each link, level at both ends: a cubic Bézier curve."""
    t = np.linspace(0, 1, STEPS)
    x = 3 * REACH * t * (1 - t) ** 2 + 3 * (1 - REACH) * t**2 * (1 - t) + t**3
    y = left[:, None] + (right - left)[:, None] * (t * t * (3 - 2 * t))
    lines = np.stack([np.broadcast_to(x, y.shape), y], axis=-1)  # (links, STEPS, 2)
    strength = np.clip(weights, 0, 1)
    colour = np.array([(*to_rgb(theme.accent), 0.12 + 0.88 * float(s)) for s in strength])
    axes.add_collection(
        LineCollection(
            list(lines), colors=colour.reshape(-1, 4), linewidths=0.5 + 3.5 * strength,
            capstyle="round",
        )
    )  # fmt: skip


def _name(
    axes: Axes, side: int, n: int, tokens: Sequence[str] | None, linked: Array, theme: Theme
) -> None:
    """Labels along one side; of a long text those of the strongest links that find room."""
    free = np.ones(n, bool)
    apart = -(-n // (2 * MOST_LABELS)) if n > 1.5 * MOST_LABELS else 1
    for place in range(n) if apart == 1 else dict.fromkeys(linked[::-1].tolist()):
        if not free[place]:
            continue
        free[max(place - apart + 1, 0) : place + apart] = False
        colour = theme.ink if place in linked else theme.faint
        text = axes.text(
            -0.02 if side == 0 else 1.02, place / max(n - 1, 1), "", fontsize=8,
            ha="right" if side == 0 else "left", va="center",
        )  # fmt: skip
        write(text, label(place, tokens), colour)
