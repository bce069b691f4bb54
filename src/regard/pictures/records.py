"""What each head does, in numbers: previous token, first token, entropy and the like, as panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..attention_map import AttentionMap
from ..corpus import Averages
from ..predicates import Array
from ..trace import Trace
from .canvas import colour_map, figure, frame, hatch, hatching, subtitle, write
from .palette import Theme

__all__ = ["statistics"]

MEANING = {
    "previous": "previous: weight to the token before",
    "next": "next: weight to the token after",
    "first": "first: weight to the first token",
    "separator": "separator: weight to separators",
    "diagonal": "diagonal: weight to the token itself",
    "entropy": "entropy, in nats",
    "distance": "distance: mean, in tokens",
    "induction": "induction: to what followed before",
}
ACROSS = 3  # panels in a row
UNBOUNDED = ("entropy", "distance")  # the others are weights, from 0 to 1


def statistics(
    source: Any,
    tokens: Sequence[str] | None = None,
    *,
    title: str | None = None,
    width: float = 9.5,
    dark: bool = False,
) -> Figure:
    """The statistics of all heads, a panel for each: of `Trace.heads` or `AttentionMap.heads`.

    Parameters
    ----------
    source : AttentionMap, Trace, averages over a corpus, list of dict, or (H, Nq, Nk) array
        The list is what `heads` returns.
    tokens : list of str
        One for each key: where they repeat, induction can be told. A trace has its own.
    title : str
    width : float
        Inches.
    dark : bool

    Returns
    -------
    matplotlib.figure.Figure
        Of several layers a panel is a map, a row a layer and a column a head; of one layer, bars.
        Panels of weights share the range from 0 to 1; entropy and distance have their own. A
        statistic that no head has is left out; where one head lacks it, it is hatched.

    Raises
    ------
    ValueError
        If there are no records.

    Examples
    --------
    >>> import numpy as np, regard
    >>> previous = np.eye(5)[[0, 0, 1, 2, 3]]  # each token attends to the one before
    >>> figure = regard.pictures.statistics(previous[None])
    >>> float(figure.axes[0].patches[0].get_height())
    1.0
    """
    records = _records_of(source, tokens)
    layers, heads = (_count(records, axis) for axis in ("layer", "head"))
    tables = {name: _table(records, name, layers, heads) for name in MEANING}
    tables = {name: t for name, t in tables.items() if np.isfinite(t).any()}
    if not tables:
        raise ValueError("no record has any of the statistics " + ", ".join(MEANING))
    down = -(-len(tables) // ACROSS)
    tall = np.clip(width / ACROSS * layers / heads, 0.9, 4.0) if layers > 1 else 1.3
    drawn, theme = figure(width, down * (float(tall) + 0.55) + 0.5, dark, title)
    grid = drawn.add_gridspec(down, ACROSS)
    for i, (name, table) in enumerate(tables.items()):
        axes = drawn.add_subplot(grid[divmod(i, ACROSS)])
        most = float(np.nanmax(table)) or 1.0 if name in UNBOUNDED else 1.0
        (_map if layers > 1 else _bars)(axes, table, most, theme)
        write(axes.title, MEANING[name], theme.ink)
        axes.title.set_fontsize(9)
        frame(axes, theme)
        axes.tick_params(labelsize=7, labelcolor=theme.ink, color=theme.line, length=2)
    said = "row = layer, column = head" if layers > 1 else "one bar a head"
    texts = records[0].get("averaged_over")
    subtitle(drawn, theme, said if texts is None else f"{said}; averages over {texts} texts")
    return drawn


def _records_of(source: Any, tokens: Sequence[str] | None) -> list[dict[str, Any]]:
    if isinstance(source, (Trace, Averages)):
        return source.heads()
    if isinstance(source, AttentionMap):
        return source.heads(tokens)
    if isinstance(source, list) and source and isinstance(source[0], dict):
        return source
    return AttentionMap.from_weights(np.asarray(source, float)).heads(tokens)


def _count(records: list[dict[str, Any]], axis: str) -> int:
    """How many layers, or heads; a batch counts as layers do."""
    return 1 + max((_place(record)[axis == "head"] for record in records), default=0)


def _place(record: dict[str, Any]) -> tuple[int, int]:
    batch = record.get("layer", record.get("batch", 0))
    if isinstance(batch, tuple):
        raise ValueError(f"records of one axis before the heads can be drawn, got batch {batch}")
    return int(batch), int(record.get("head", 0))


def _table(records: list[dict[str, Any]], name: str, layers: int, heads: int) -> Array:
    """One statistic, (layers, heads); NaN where there is none."""
    table = np.full((layers, heads), np.nan)
    for record in records:
        table[_place(record)] = record.get(name, np.nan)
    return table


def _map(axes: Axes, table: Array, most: float, theme: Theme) -> None:
    layers, heads = table.shape
    image = axes.imshow(
        np.ma.masked_invalid(table), cmap=colour_map(theme), vmin=0, vmax=most, aspect="auto",
        interpolation="nearest",
    )  # fmt: skip
    hatch(axes, np.isnan(table), np.arange(layers + 1) - 0.5, np.arange(heads + 1) - 0.5, theme)
    figure = axes.figure
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
    bar.outline.set_edgecolor(theme.line)
    bar.ax.tick_params(labelsize=7, labelcolor=theme.ink, color=theme.line, length=2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _bars(axes: Axes, table: Array, most: float, theme: Theme) -> None:
    heads = table.shape[1]
    axes.bar(np.arange(heads), np.nan_to_num(table[0]), color=theme.accent, width=0.8)
    lacking = np.flatnonzero(np.isnan(table[0]))
    axes.bar(lacking, np.full(len(lacking), most), **hatching(theme))
    axes.set(xlim=(-0.5, heads - 0.5), ylim=(0, most * 1.02))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
