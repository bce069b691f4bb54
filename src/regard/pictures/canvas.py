"""What the pictures share: a figure without global state, its colours, axes, labels, legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.text import Text

from ..predicates import Array
from .cells import Cells
from .labels import label
from .palette import Theme, colours, theme_of

__all__ = [
    "colour_bar", "colour_map", "draw_cells", "figure", "frame", "hatch", "hatching", "label_axis",
    "legend", "norm_of", "subtitle", "write",
]  # fmt: skip

# Fonts that hold what DejaVu Sans lacks: the first of them that is installed is taken.
OTHERS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei",
    "Hiragino Sans", "PingFang SC", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic",
    "Noto Emoji", "Segoe UI Emoji", "Segoe UI Symbol", "Symbola", "Arial Unicode MS",
)  # fmt: skip


Box = tuple[float, float, float, float]  # left, right, bottom, top


def figure(width: float, height: float, dark: bool, title: str | None) -> tuple[Figure, Theme]:
    """An empty figure in the colours of its theme; no pyplot knows of it."""
    theme = theme_of(dark)
    drawn = Figure(figsize=(width, height), layout="constrained", facecolor=theme.paper)
    if title:
        text = drawn.suptitle("", x=0.012, ha="left", fontsize=12, fontweight="bold")
        write(text, title, theme.ink)
    return drawn, theme


def subtitle(drawn: Figure, theme: Theme, text: str) -> None:
    """A line below the picture that says what it shows."""
    write(drawn.supxlabel("", x=0.012, ha="left", fontsize=8), text, theme.faint)


def write(text: Text, words: str, colour: str) -> None:
    """Words as they are: no mathematics in them, and no character without a glyph."""
    (shown,), families = _with_glyphs([words])
    text.set_parse_math(False)
    text.set_fontfamily(families)
    text.set_text(shown)
    text.set_color(colour)


def _with_glyphs(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words, in escapes where no font here has a glyph, and the fonts to draw them with."""
    families = ["DejaVu Sans"]
    wanted = {ord(c) for c in "".join(words)}
    held = {ord("\n")} | _glyphs(families[0])
    for family in OTHERS:
        if wanted <= held:
            break
        if _glyphs(family) & (wanted - held):
            families.append(family)
            held |= _glyphs(family)
    escapes = {c: chr(c).encode("unicode_escape").decode() for c in wanted - held}
    return [word.translate(escapes) for word in words], families


@cache
def _glyphs(family: str) -> frozenset[int]:
    """Characters that a font holds; none where it is not installed."""
    try:
        found = font_manager.findfont(FontProperties(family=[family]), fallback_to_default=False)
        return frozenset(font_manager.get_font(found).get_charmap())
    except (ValueError, OSError, RuntimeError):
        return frozenset()


def colour_map(theme: Theme) -> Colormap:
    """The ramp, and a colour outside of it for what is not a number."""
    return ListedColormap(colours(theme, 256) / 255, "regard").with_extremes(bad=theme.strange)


def norm_of(scale: str, most: float | None, weights: Iterable[Array]) -> Normalize:
    """From 0 to `most`, or to the largest weight that is drawn."""
    if most is None:
        most = max((float(w[np.isfinite(w)].max(initial=0)) for w in weights), default=0) or 1.0
    if not most > 0 or not np.isfinite(most):
        raise ValueError(f"most must be finite and greater than 0, got {most}")
    if scale == "linear":
        return Normalize(0, most)
    if scale == "sqrt":
        return PowerNorm(0.5, 0, most)
    raise ValueError(f"scale must be 'linear' or 'sqrt', got {scale!r}")


def draw_cells(
    axes: Axes, cells: Cells, norm: Normalize, theme: Theme, box: Box | None = None
) -> Any:
    """A head as cells, over its queries and keys or within a box; hidden ones grey and hatched."""
    down, across = cells.rows[-1], cells.columns[-1]
    left, right, bottom, top = box or (-0.5, across - 0.5, down - 0.5, -0.5)
    image = axes.imshow(
        np.ma.masked_invalid(cells.weights), cmap=colour_map(theme), norm=norm, aspect="auto",
        interpolation="nearest", extent=(left, right, bottom, top),
    )  # fmt: skip
    rows = top + cells.rows * ((bottom - top) / down)
    hatch(axes, cells.hidden, rows, left + cells.columns * ((right - left) / across), theme)
    return image


def hatch(axes: Axes, hidden: Array, rows: Array, columns: Array, theme: Theme) -> None:
    """Cover what is hidden: each run of cells in a row is one rectangle of one path."""
    boxes = []
    for r in np.flatnonzero(hidden.any(axis=1)):
        steps = np.flatnonzero(np.diff(hidden[r], prepend=False, append=False))
        for first, last in steps.reshape(-1, 2):
            boxes.append(_box(columns[first], rows[r], columns[last], rows[r + 1]))
    if boxes:
        axes.add_patch(PathPatch(Path.make_compound_path(*boxes), **hatching(theme)))


def hatching(theme: Theme) -> dict[str, Any]:
    """The look of what is hidden."""
    return {
        "facecolor": theme.hidden, "edgecolor": theme.hatch, "hatch": "////", "linewidth": 0,
    }  # fmt: skip


def _box(left: float, top: float, right: float, bottom: float) -> Path:
    corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    return Path(corners, closed=True)


def label_axis(
    axes: Axes,
    which: Literal["x", "y"],
    n: int,
    tokens: Sequence[str] | None,
    theme: Theme,
    inches: float,
) -> None:
    """Indices and tokens along an axis, thinned where they find no room."""
    most = inches / 0.16 if tokens else inches / 0.3
    step = next(s * 10**e for e in range(12) for s in (1, 2, 5) if n <= most * s * 10**e)
    places = range(0, n, step)
    words, families = _with_glyphs([label(place, tokens) for place in places])
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(
        list(places), words, fontfamily=families, parse_math=False, fontsize=8, color=theme.ink,
        rotation=90 if which == "x" and (tokens is not None or n > 9999) else 0,
    )  # fmt: skip
    axes.tick_params(which, length=2, color=theme.line, pad=2)
    name = "key (column)" if which == "x" else "query (row)"
    write(axis.label, name, theme.faint)


def frame(axes: Axes, theme: Theme) -> None:
    axes.set_facecolor(theme.paper)
    for spine in axes.spines.values():
        spine.set_color(theme.line)
        spine.set_linewidth(0.8)


def colour_bar(drawn: Figure, image: Any, axes: Axes, theme: Theme, words: str) -> None:
    """The scale beside the picture, as tall as it, which says what its colours mean."""
    over = bool(np.any(image.get_array() > image.norm.vmax))
    inch = 1 / (drawn.get_figwidth() * axes.get_position().width)
    bar = drawn.colorbar(
        image, cax=axes.inset_axes((1 + 0.12 * inch, 0, 0.14 * inch, 1)),
        extend="max" if over else "neither",
    )  # fmt: skip
    bar.outline.set_edgecolor(theme.line)
    bar.ax.tick_params(color=theme.line, labelcolor=theme.ink, labelsize=8, length=2)
    write(bar.ax.yaxis.label, words, theme.faint)
    bar.ax.yaxis.label.set_fontsize(8)


def legend(drawn: Figure, theme: Theme, hidden: bool, strange: bool) -> None:
    """What the colours beside the scale mean, where any is there."""
    patches = []
    if hidden:
        words = "hidden: the query does not see the key"
        patches.append(Patch(**hatching(theme), label=words))
    if strange:
        patches.append(Patch(facecolor=theme.strange, label="not a number"))
    if patches:
        drawn.legend(
            handles=patches, loc="outside lower right", frameon=False, fontsize=8,
            labelcolor=theme.faint, ncols=2, handlelength=1.6, borderpad=0,
        )  # fmt: skip
