"""Heat maps: one head, all heads of a model beside each other, attention rolled out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..trace import Trace
from . import canvas
from .cells import Cells, Stack, stack_of
from .labels import check_tokens
from .palette import Theme

__all__ = ["heads", "heat", "rollout"]

MOST_CELLS = 512  # of a side; beyond it, cells stand for blocks
THUMBNAIL = 64  # the same, of small multiples
IN_A_ROW = 8  # heads of one layer, before they wrap
LABELLED, BARE = (2.4, 1.6), (1.6, 0.8)  # inches beside and below a map, with tokens and without
GAP, WRAPPED = 0.05, 0.2  # around each head, and above it for its number; parts of its side


def heat(
    weights: Any,
    head: int | tuple[int, ...] | None = None,
    tokens: Sequence[str] | None = None,
    *,
    keys: Sequence[str] | None = None,
    visible: Any = None,
    most: float | None = 1.0,
    scale: str = "linear",
    what: str = "weight",
    title: str | None = None,
    width: float | None = None,
    dark: bool = False,
) -> Figure:
    """One head's weights as a heat map: a row is a query, a column is a key.

    Parameters
    ----------
    weights : AttentionMap, Trace, or (*lead, Nq, Nk) array
    head : int or tuple of int
        Which head: its number, (batch, head), or (layer, head) of a trace. Needed where there are
        more than one.
    tokens : list of str
        Nq of them, for the rows, and for the columns too where Nq = Nk. A trace has its own.
    keys : list of str
        Nk of them, for the columns.
    visible : bool array, or a mask of `regard.masks`
        What each query sees, for arrays that do not know it; True = seen. Broadcasts to the
        weights. What is hidden is hatched, which a weight of 0 is not.
    most : float or None
        The weight at the end of the scale, 1 at first so that pictures compare; None is the largest
        drawn.
    scale : {"linear", "sqrt"}
        The square root shows small weights better; the colour bar says which it is.
    what : str
        What the numbers are, for the colour bar.
    title : str
    width : float
        Inches; the default follows the number of tokens.
    dark : bool

    Returns
    -------
    matplotlib.figure.Figure
        With more queries or keys than it has points for, 512 at most, a cell stands for a block and
        shows its largest weight; the colour bar says so.

    Raises
    ------
    ValueError
        If the head is none of those that are there, or tokens are not one for each.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q = k = v = np.eye(3)
    >>> attended = regard.look(q, k, v, causal=True)
    >>> figure = regard.pictures.heat(attended, tokens=["the", "law", "is"])
    >>> figure.axes[0].get_ylabel()
    'query (row)'
    """
    stack = stack_of(weights, visible)
    index = stack.head(head)
    Nq, Nk = stack.shape[-2:]
    row_tokens = check_tokens("tokens", stack.tokens if tokens is None else tokens, Nq)
    column_tokens = check_tokens("keys", row_tokens if keys is None and Nq == Nk else keys, Nk)
    across, down = _size(Nq, Nk, width, row_tokens is not None)
    cells = stack.cells(index, _fitting(max(across, down), MOST_CELLS))
    margins = LABELLED if row_tokens else BARE
    drawn, theme = canvas.figure(
        across + margins[0], down + margins[1] + 0.3 * bool(title), dark, title
    )
    axes = drawn.add_subplot()
    image = canvas.draw_cells(axes, cells, canvas.norm_of(scale, most, [cells.weights]), theme)
    canvas.frame(axes, theme)
    axes.set_aspect("equal")
    canvas.label_axis(axes, "y", Nq, row_tokens, theme, down)
    canvas.label_axis(axes, "x", Nk, column_tokens, theme, across)
    canvas.colour_bar(drawn, image, axes, theme, _measure(cells, scale, what))
    canvas.legend(drawn, theme, bool(cells.hidden.any()), not np.isfinite(cells.weights).all())
    return drawn


def rollout(
    weights: Any,
    tokens: Sequence[str] | None = None,
    *,
    layer: int | None = None,
    most: float | None = 1.0,
    scale: str = "linear",
    title: str | None = None,
    width: float | None = None,
    dark: bool = False,
) -> Figure:
    """What each token is made of through the layers, as a heat map: see `Trace.rollout`.

    Parameters
    ----------
    weights : Trace, or (L, H, N, N) array
    tokens : list of str
        N of them, where the weights are an array. A trace has its own.
    layer : int
        The layer up to which, and with which, it goes; the last where left out.
    most, scale, title, width, dark
        As in `heat`.

    Returns
    -------
    matplotlib.figure.Figure
        A row is a token after the layers, a column the token that it comes from; rows sum to 1.

    Raises
    ------
    ValueError
        If the weights are not (L, H, N, N), or tokens are not one for each.

    References
    ----------
    Abnar and Zuidema, "Quantifying Attention Flow in Transformers", 2020.

    Examples
    --------
    >>> import numpy as np, regard
    >>> figure = regard.pictures.rollout(np.full((1, 2, 3, 3), 1 / 3))
    >>> figure.axes[0].images[0].get_array()[0].round(3).tolist()
    [0.667, 0.167, 0.167]
    """
    stack = stack_of(weights)
    Nq, Nk = stack.shape[-2:]
    if len(stack.shape) != 4 or Nq != Nk:
        raise ValueError(f"weights must be a Trace or (L, H, N, N), got {stack.shape}")
    tokens = check_tokens("tokens", stack.tokens if tokens is None else tokens, Nq)
    trace = weights
    if not isinstance(weights, Trace):
        trace = Trace.from_arrays(weights, tokens or [""] * Nq)
    return heat(
        trace.rollout(layer=layer), tokens=tokens, most=most, scale=scale, title=title,
        what="rolled-out attention", width=width, dark=dark,
    )  # fmt: skip


def heads(
    weights: Any,
    *,
    visible: Any = None,
    most: float | None = 1.0,
    scale: str = "linear",
    title: str | None = None,
    width: float | None = None,
    dark: bool = False,
) -> Figure:
    """All heads as small multiples, on one scale: a row of them is a layer, a column a head.

    Parameters
    ----------
    weights : AttentionMap, Trace, or (*lead, Nq, Nk) array
        With one axis before (Nq, Nk) the heads of one layer, which wrap after eight; with two
        (layer, head), or (batch, head) of an AttentionMap.
    visible, most, scale, title, width, dark
        As in `heat`.

    Returns
    -------
    matplotlib.figure.Figure
        One image for each head, of at most 64 x 64 cells; each stands for a block, and shows its
        largest weight.

    Raises
    ------
    ValueError
        If there are more than two axes before (Nq, Nk).

    Examples
    --------
    >>> import numpy as np, regard
    >>> weights = np.full((2, 3, 5, 5), 0.2)  # two layers of three heads
    >>> len(regard.pictures.heads(weights).axes[0].images)
    6
    """
    stack = stack_of(weights, visible)
    if len(stack.lead) > 2:
        raise ValueError(f"weights must be ([layer,] head, Nq, Nk), got {stack.shape}: index them")
    down, across = _grid(stack.lead)
    wide = float(np.clip(0.72 * across + 1.3, 3.2, 9.5)) if width is None else width
    side = max(wide - 1.3, 1) / across
    all_cells = stack.all_cells(list(np.ndindex(stack.lead)), _fitting(side, THUMBNAIL))
    norm = canvas.norm_of(scale, most, [cells.weights for cells in all_cells])
    hidden = any(cells.hidden.any() for cells in all_cells)
    height = side * down + 0.75 + 0.35 * bool(title) + 0.25 * hidden
    drawn, theme = canvas.figure(wide, height, dark, title)
    axes = drawn.add_subplot()
    wrapped = len(stack.lead) < 2
    top = WRAPPED if wrapped else GAP
    for i, cells in enumerate(all_cells):
        r, c = divmod(i, across)
        box = (c + GAP, c + 1 - GAP, r + 1 - GAP, r + top)
        image = canvas.draw_cells(axes, cells, norm, theme, box)
        if wrapped:
            name = axes.text(c + 0.5, r + top - 0.02, "", ha="center", va="bottom", fontsize=8)
            canvas.write(name, f"head {i}" if i == 0 else str(i), theme.ink)
    axes.set(xlim=(0, across), ylim=(down, 0), aspect="equal")
    _name_heads(axes, stack, theme)
    canvas.colour_bar(drawn, image, axes, theme, _measure(all_cells[0], scale))
    canvas.subtitle(drawn, theme, "in each: row = query, column = key")
    canvas.legend(drawn, theme, hidden, not all(np.isfinite(c.weights).all() for c in all_cells))
    return drawn


def _grid(lead: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of heads."""
    if len(lead) == 2:
        return lead[0], lead[1]
    n = lead[0] if lead else 1
    across = min(n, IN_A_ROW)
    return -(-n // across), across


def _name_heads(axes: Axes, stack: Stack, theme: Theme) -> None:
    """Numbers along both sides, where a row is a layer."""
    axes.set_frame_on(False)
    if len(stack.lead) < 2:
        axes.set(xticks=[], yticks=[])
        return
    for axis, name, n in zip((axes.yaxis, axes.xaxis), stack.axes, stack.lead, strict=True):
        axis.set_ticks(np.arange(n) + 0.5, [str(i) for i in range(n)], fontsize=8, color=theme.ink)
        canvas.write(axis.label, name, theme.faint)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0, pad=2)


def _size(Nq: int, Nk: int, width: float | None, labelled: bool) -> tuple[float, float]:
    """Inches of the map itself: a fifth of one for each token, within reason."""
    across = float(np.clip(0.2 * Nk, 2.6, 8)) if Nk <= 48 else 6.0
    if width is not None:
        across = max(width - (LABELLED if labelled else BARE)[0], 1.0)
    return across, float(np.clip(across * Nq / Nk, across / 4, across * 2))


def _fitting(inches: float, most: int) -> int:
    """Cells of a side that keep a point each where a figure has 100 to the inch."""
    return int(np.clip(inches * 90, 8, most))


def _measure(cells: Cells, scale: str, what: str = "weight") -> str:
    """What a colour stands for."""
    tall, wide = cells.block
    if (tall, wide) != (1, 1):
        what = f"largest {what} of {tall} × {wide} pairs"
    return what if scale == "linear" else f"{what}, square-root scale"
