"""How the experiments draw: a few lines around matplotlib, the same for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..pictures.palette import LIGHT, colours
from ..predicates import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = LIGHT.ink
# Told apart by people who see colours differently, and on white and black alike.
COLOURS = ("#2f7ec7", "#d9792b", "#35a06b", "#b55fb0", "#8a8f98")
STYLE: Any = {
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK,
    "ytick.color": INK, "font.size": 10, "axes.titlesize": 10, "axes.spines.top": False,
    "axes.spines.right": False, "font.family": "sans-serif",
}  # fmt: skip


def panels(titles: Sequence[str], height: float = 3.0) -> tuple[Figure, list[Any]]:
    """A figure with a panel a title, side by side."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "figures need matplotlib, which is not installed: pip install 'regard[look]'",
            name=error.name,
        ) from None

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.2 * len(titles), height), layout="constrained")
        axes = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, loc="left", color=INK)
    return figure, axes


def lines(
    axis: Any, x: Sequence[float], series: Mapping[str, Sequence[float]], xlabel: str, ylabel: str,
    log: bool = False,
) -> None:  # fmt: skip
    """A line with markers for each series; both axes logarithmic where `log`."""
    for (name, y), colour in zip(series.items(), COLOURS, strict=False):
        axis.plot(x[: len(y)], y, "o-", label=name, color=colour, markersize=4)
    if log:
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(list(x), [str(n) for n in x])
        axis.minorticks_off()
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.legend(labelcolor=INK, frameon=False)


def bars(axis: Any, names: Sequence[str], values: Sequence[float], xlabel: str) -> None:
    """One bar a name, the first on top."""
    axis.barh(range(len(names)), values, color=COLOURS[0])
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel(xlabel)


def matrix(
    figure: Any, axis: Any, values: Array, numbers: str = "", largest: float | None = None
) -> None:
    """A heat map, rows queries and columns keys, with the numbers in its cells if wanted."""
    from matplotlib.colors import ListedColormap

    top = float(values.max()) if largest is None else largest
    ramp = ListedColormap(colours(LIGHT, 256) / 255)
    image = axis.imshow(values, cmap=ramp, vmin=0, vmax=top or 1)
    axis.set_xlabel("key")
    axis.set_ylabel("query")
    for spine in axis.spines.values():
        spine.set_visible(False)
    if not numbers:
        bar = figure.colorbar(image, ax=axis, shrink=0.8)
        bar.outline.set_visible(False)
        bar.ax.tick_params(color=INK, labelcolor=INK)
        return
    for (i, j), value in np.ndenumerate(values):
        colour = "white" if value > 0.4 * top else "#1c2027"  # on the cell, whatever the page
        axis.text(j, i, format(value, numbers), ha="center", va="center", color=colour, fontsize=8)
