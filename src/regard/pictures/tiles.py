"""A mask as the engines see it: which tiles are skipped, which run bare, which have an edge."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..attention_map import AttentionMap
from ..masks import Mask
from ..predicates import Array, first_position
from ..problem import Index, Problem, check
from .canvas import figure, frame, hatch, hatching, label_axis
from .cells import Stack, seen_in_blocks
from .palette import Theme

__all__ = ["mask"]

LEGEND = 0.35  # inches: what the legend below takes more than the labels at the side
MOST_PAIRS = 512  # queries or keys up to which edge tiles show their pairs
SKIPPED, HIDDEN, SEEN, BARE = range(4)  # of a pair: its tile's kind; HIDDEN, SEEN in edge tiles


def mask(
    mask: Any,
    Nq: int | None = None,
    Nk: int | None = None,
    *,
    align: Any = None,
    head: int | tuple[int, ...] | None = None,
    tile: tuple[int, int] | None = None,
    title: str | None = None,
    width: float = 5.0,
    dark: bool = False,
) -> Figure:
    """Which tiles a mask lets an engine skip, which run bare, and which it has to look into.

    Parameters
    ----------
    mask : mask of `regard.masks`, bool array (*lead, Nq, Nk), or AttentionMap
        Of a map the mask of its call.
    Nq, Nk : int
        Queries and keys, for a mask of `regard.masks`; Nk is Nq where left out.
    align : {"top-left", "bottom-right"}, int, or (*lead,) array of int
        As in `regard.attention`.
    head : int or tuple of int
        Which head, or (batch, head), where the mask differs between them.
    tile : (int, int)
        Queries and keys of a tile; an eighth of each where left out. The tiled engine takes 128
        queries and, in float32, 1024 keys.
    title : str
    width : float
        Inches.
    dark : bool

    Returns
    -------
    matplotlib.figure.Figure
        The legend counts the tiles of each kind. Up to 512 queries and keys, edge tiles show which
        pairs are seen.

    Raises
    ------
    TypeError, ValueError
        If it is no mask, the sizes are missing or do not fit, or `head` is needed and missing.

    Examples
    --------
    >>> import regard
    >>> figure = regard.pictures.mask(regard.masks.window(3, 0), 16, tile=(4, 4))
    >>> print(figure.legends[0].texts[0].get_text())
    skipped: 9 tiles
    """
    problem = _call_of(mask, Nq, Nk, align)
    index = _head_of(problem, head)
    Nq, Nk = problem.shape[-2:]
    if 0 in (Nq, Nk):
        raise ValueError(f"a mask of {Nq} queries and {Nk} keys has nothing to draw")
    rows, columns = (_edges(n, size) for n, size in zip((Nq, Nk), _tile(tile, Nq, Nk), strict=True))
    some, every = seen_in_blocks(problem, index, rows, columns)
    kinds = np.where(every, BARE, np.where(some, SEEN, SKIPPED))  # (R, C)
    height = width * min(max(Nq / Nk, 0.3), 2) + LEGEND + 0.3 * bool(title)
    drawn, theme = figure(width, height, dark, title)
    axes = drawn.add_subplot()
    _draw(axes, kinds, _pairs(problem, index, kinds, rows, columns), rows, columns, theme)
    frame(axes, theme)
    label_axis(axes, "y", Nq, None, theme, drawn.get_figheight() - 1)
    label_axis(axes, "x", Nk, None, theme, width - 0.8)
    _count(drawn, kinds, max(Nq, Nk) <= MOST_PAIRS, theme)
    return drawn


def _call_of(mask: Any, Nq: int | None, Nk: int | None, align: Any) -> Problem:
    """A call with this mask, for its intervals: nothing is computed."""
    if isinstance(mask, AttentionMap):
        if mask._problem is None:
            raise ValueError("the map was made from weights: it knows no mask; pass the mask")
        return mask._problem
    if isinstance(mask, np.ndarray):
        if mask.ndim < 2:
            raise ValueError(f"mask must be (*lead, Nq, Nk), got {mask.shape}")
        shape = mask.shape
    elif isinstance(mask, Mask):
        shape = _shape_of(mask, Nq, Nk, align)
    else:
        raise TypeError(
            "mask must be a mask of regard.masks, a bool array or an AttentionMap, "
            f"got {type(mask).__name__}"
        )
    if (Nq, Nk) not in ((None, None), shape[-2:], (shape[-2], None)):
        raise ValueError(f"Nq and Nk must be those of the mask, {shape[-2:]}, got {Nq} and {Nk}")
    query, key = (np.broadcast_to(np.float32(0), (*shape[:-2], n, 1)) for n in shape[-2:])
    return check(query, key, key, mask=mask, align=align)


def _shape_of(mask: Mask, Nq: int | None, Nk: int | None, align: Any) -> Index:
    """(*lead, Nq, Nk) of a mask that knows no sizes until it is told them."""
    array = getattr(mask, "array", None)
    if array is not None:
        Nq, Nk = Nq or array.shape[-2], Nk or array.shape[-1]
    if Nq is None:
        raise ValueError("Nq, and Nk where it is another, must be given for a mask of regard.masks")
    Nk = Nq if Nk is None else Nk
    start = first_position(align if mask.counts_positions else "top-left", Nq, Nk, mask.end(Nk))
    lo, hi = mask.bounds(np.asarray(start)[..., None, None] + np.arange(Nq), Nk)
    lead = np.broadcast_shapes(
        np.shape(lo)[:-1], np.shape(hi)[:-1], () if array is None else array.shape[:-2]
    )
    return (*lead, Nq, Nk)


def _head_of(problem: Problem, head: int | tuple[int, ...] | None) -> Index:
    """The head asked for; left out where all have the same mask."""
    lead = problem.shape[:-2]
    same = all(
        all(stride == 0 or n == 1 for stride, n in zip(x.strides, lead, strict=False))
        for x in (problem.lo, problem.hi, problem.array, problem.bias)
        if x is not None
    )
    if head is None and same:
        return (0,) * len(lead)
    if problem.bare:
        head = 0 if head is None else head
    axes = ["batch"] * (len(lead) - 1) + ["head"]
    return Stack(None, problem.shape, axes).head(head)


def _tile(tile: tuple[int, int] | None, Nq: int, Nk: int) -> tuple[int, int]:
    if tile is None:
        return -(-Nq // 8), -(-Nk // 8)
    if len(tile) != 2 or min(tile) < 1:
        raise ValueError(f"tile must be (queries, keys), 1 or more each, got {tile}")
    if Nq // tile[0] * (Nk // tile[1]) > 2**20:
        raise ValueError(f"tile must leave a million tiles at most, got {tile} for {(Nq, Nk)}")
    return tile


def _edges(n: int, size: int) -> Array:
    return np.append(np.arange(0, n, size), n)


def _pairs(
    problem: Problem, index: Index, kinds: Array, rows: Array, columns: Array
) -> Array | None:
    """The kind of each pair, (Nq, Nk); None where there are too many to show."""
    Nq, Nk = problem.shape[-2:]
    if max(Nq, Nk) > MOST_PAIRS:
        return None
    seen = seen_in_blocks(problem, index, np.arange(Nq + 1), np.arange(Nk + 1))[0]
    of_tile = np.repeat(np.repeat(kinds, np.diff(rows), axis=0), np.diff(columns), axis=1)
    return np.where((of_tile == SEEN) & ~seen, HIDDEN, of_tile)


def _draw(
    axes: Axes, kinds: Array, pairs: Array | None, rows: Array, columns: Array, theme: Theme
) -> None:
    """Tiles, lines between them, and the pairs of edge tiles."""
    palette = ListedColormap(_colours(theme))
    options: dict[str, Any] = dict(cmap=palette, vmin=SKIPPED, vmax=BARE)
    if pairs is None:
        axes.pcolormesh(columns - 0.5, rows - 0.5, kinds, **options)
    else:
        axes.imshow(pairs, interpolation="nearest", **options)
    hatch(axes, kinds == SKIPPED, rows - 0.5, columns - 0.5, theme)
    line: dict[str, Any] = dict(color=theme.paper, linewidth=1.2)
    if max(kinds.shape) <= 64:
        axes.hlines(rows[1:-1] - 0.5, -0.5, columns[-1] - 0.5, **line)
        axes.vlines(columns[1:-1] - 0.5, -0.5, rows[-1] - 0.5, **line)
    axes.set(xlim=(-0.5, columns[-1] - 0.5), ylim=(rows[-1] - 0.5, -0.5), aspect="equal")


def _colours(theme: Theme) -> list[str]:
    """Of SKIPPED, HIDDEN, SEEN, BARE."""
    return [theme.hidden, theme.ramp[1], theme.ramp[3], theme.ramp[5]]


def _count(drawn: Figure, kinds: Array, pairs: bool, theme: Theme) -> None:
    """A legend that says how many tiles there are of each kind."""
    colour = _colours(theme)

    def patch(kind: int, words: str) -> Patch:
        n = int((kinds == kind).sum())
        return Patch(facecolor=colour[kind], label=f"{words}: {n:,} tile{'s' * (n != 1)}")

    skipped = patch(SKIPPED, "skipped")
    skipped.set(**hatching(theme))
    patches = [skipped, patch(BARE, "bare"), patch(SEEN, "edge")]
    if pairs and (kinds == SEEN).any():
        patches.append(Patch(facecolor=colour[HIDDEN], label="hidden in an edge"))
    drawn.legend(
        handles=patches, loc="outside lower center", ncols=4 if drawn.get_figwidth() >= 5.6 else 2,
        frameon=False, fontsize=8, labelcolor=theme.ink, handlelength=1.4, columnspacing=1.2,
        borderpad=0,
    )  # fmt: skip
