"""What a notebook shows by itself: a small picture in HTML, offline, in light and dark.

A picture is a PNG with a palette, written here without matplotlib, and twice: browsers take the one
for dark where the system's setting asks for it. Nothing is fetched and nothing runs.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from html import escape
from math import prod
from typing import Any

import numpy as np

from ..attention_map import AttentionMap
from ..predicates import Array
from ..problem import Index
from ..trace import Trace
from .cells import Cells, Stack, stack_of
from .labels import visible
from .palette import DARK, LIGHT, Theme, colours

__all__ = ["attention_map_html", "trace_html"]

MOST_PAIRS = 2**26  # weights that are computed unasked
ALONE, WIDTH, BETWEEN = 288, 576, 5  # pixels: of one head's side, of a row of heads, between them
IN_A_ROW = 8  # heads of one layer, before they wrap
MOST_HEADS = 32  # of a row, and rows
MOST_TOKENS = 100  # that are listed
GAP, HIDDEN, HATCH, STRANGE, RAMP = range(5)  # places in the palette; the ramp begins at RAMP
STEPS = 64  # of the ramp


def attention_map_html(attended: AttentionMap) -> str:
    """A map's heads as one small picture, or words alone where they are too many."""
    *lead, Nq, Nk = attended.weights.shape
    heads = f"{' × '.join(map(str, lead))} head{'s' * (prod(lead) != 1)}, " if lead else ""
    what = f"<b>AttentionMap</b>: {heads}{Nq:,} queries × {Nk:,} keys, {attended.weights.dtype}"
    return _html(attended, (*lead, Nq, Nk), what, "")


def trace_html(trace: Trace) -> str:
    """All heads of a model as one small picture, and the tokens."""
    heads = trace.layers[0].weights.shape if trace.layers else (0, 0, 0)
    what = f"<b>Trace</b>: {len(trace):,} tokens, {len(trace.layers)} layers of {heads[0]} heads"
    tokens = " ".join(f"<code>{escape(visible(t))}</code>" for t in trace.tokens[:MOST_TOKENS])
    if len(trace) > MOST_TOKENS:
        tokens += f" … and {len(trace) - MOST_TOKENS:,} more"
    return _html(trace, (len(trace.layers), *heads), what, tokens)


def _html(source: Any, shape: Index, what: str, tokens: str) -> str:
    """What it is, the picture, how it is read, the tokens; a line each."""
    lines = [what]
    if prod(shape) > MOST_PAIRS:
        lines.append("too large to be drawn unasked: see regard.pictures")
    elif 0 not in shape:
        lines += _drawn(stack_of(source))
    lines += [tokens] * bool(tokens)
    return f'<div style="line-height:1.6">{"<br>".join(lines)}</div>'


def _drawn(stack: Stack) -> tuple[str, str]:
    """The picture, and how it is read."""
    places, across, said = _places(stack)
    most = max(across, -(-len(places) // across))  # heads along the longer side of the picture
    side = ALONE if len(places) == 1 else max(min(WIDTH // most, ALONE) - BETWEEN, 8)
    cells = stack.all_cells(places, side)
    tall, wide = cells[0].block
    words = said + "row = query, column = key"
    if any(c.hidden.any() for c in cells):
        words += ", hatched = hidden"
    if not all(np.isfinite(c.weights).all() for c in cells):
        words += ", red = not a number"
    if (tall, wide) != (1, 1):
        words += f", each point the largest of {tall} × {wide} weights"
    image = _montage([_pixels(c, side, alone=len(places) == 1) for c in cells], across)
    scale = np.tile(np.arange(RAMP, RAMP + STEPS, dtype=np.uint8), (9, 1))
    bar = f"weight 0 {_picture(scale, 'from 0 to 1')} 1"
    return _picture(image, words), f"<small>{bar} · {words}</small>"


def _places(stack: Stack) -> tuple[list[Index], int, str]:
    """The heads to draw, how many in a row, and words for how they are laid out."""
    *outer, rows, heads = (1, 1, *stack.lead)
    if len(stack.lead) > 1:
        shown, across = min(rows, MOST_HEADS), min(heads, MOST_HEADS)
        said = f"a row of pictures is a {stack.axes[-2]}, a column a head"
    else:
        shown, across = 1, min(heads, MOST_HEADS**2)
        said = "heads in reading order" if heads > 1 else ""
    first = (0,) * (len(outer) - 2) if len(stack.lead) > 2 else ()
    lead = [(r, h) for r in range(shown) for h in range(across)]
    places = [(*first, *place)[-len(stack.lead) :] if stack.lead else () for place in lead]
    if len(places) < prod(stack.lead):
        said += f", the first {len(places)} of {prod(stack.lead)}"
    return places, across if len(stack.lead) > 1 else min(across, IN_A_ROW), said and said + "; "


def _pixels(cells: Cells, side: int, alone: bool) -> Array:
    """A head in places of the palette, each cell some pixels wide and tall, (h, w) uint8."""
    seen = np.clip(np.nan_to_num(cells.weights), 0, 1)
    places = (RAMP + np.rint(seen * (STEPS - 1))).astype(np.uint8)
    places[~np.isfinite(cells.weights)] = STRANGE
    down, across = places.shape
    ratio = np.clip(cells.rows[-1] / cells.columns[-1], 0.25, 4) if alone else 1.0
    tall, wide = max(int(side * min(ratio, 1)), 1), max(int(side * min(1 / ratio, 1)), 1)
    row, column = np.arange(tall) * down // tall, np.arange(wide) * across // wide
    pixels = places[np.ix_(row, column)]
    hidden = cells.hidden[np.ix_(row, column)]
    hatch = (np.arange(tall)[:, None] + np.arange(wide)) % 6 == 0
    return np.where(hidden, np.where(hatch, HATCH, HIDDEN), pixels).astype(np.uint8)


def _montage(heads: list[Array], across: int) -> Array:
    """Heads beside and below each other, a gap between."""
    tall, wide = (n + BETWEEN for n in heads[0].shape)
    image = np.full((-(-len(heads) // across) * tall, across * wide), GAP, np.uint8)
    for i, head in enumerate(heads):
        r, c = divmod(i, across)
        image[r * tall : (r + 1) * tall - BETWEEN, c * wide : (c + 1) * wide - BETWEEN] = head
    return image[:-BETWEEN, :-BETWEEN]


def _picture(image: Array, words: str) -> str:
    """The image in both themes, in HTML of its own."""
    light, dark = (
        f"data:image/png;base64,{b64encode(_png(image, theme)).decode()}" for theme in (LIGHT, DARK)
    )
    height, width = image.shape
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" width="{width}" height="{height}" alt="{escape(words)}" '
        'style="display:inline;vertical-align:middle;max-width:none"></picture>'
    )


def _png(image: Array, theme: Theme) -> bytes:
    """A PNG of 8 bits with a palette, whose first colour, the gap, is transparent."""
    flat = (theme.paper, theme.hidden, theme.hatch, theme.strange)
    palette = (
        b"".join(bytes.fromhex(colour[1:]) for colour in flat) + colours(theme, STEPS).tobytes()
    )
    height, width = image.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row begins with its filter, none
    rows[:, 1:] = image
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(name, content)
        for name, content in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", palette),
            (b"tRNS", b"\x00"),
            (b"IDAT", zlib.compress(rows.tobytes(), 9)),
            (b"IEND", b""),
        )
    )


def _chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )
