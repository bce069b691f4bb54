"""Where the numbers of each rung lie while it runs: the pictures of the page about the ladder.

Sizes are counted, from the engines' own tiles and the caches of this machine. A thing is drawn in
the smallest cache that holds all that is touched between two uses of it.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from IPython.display import HTML
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import regard
from regard.engines import tiled
from regard.lab.drawing import INK, STYLE
from regard.lab.result import svg

ROOT = Path(__file__).parent.parent
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL = {"first cache": 32 * 2**10, "second cache": 2**20}  # where the system does not tell
REGISTERS, MEMORY = "registers", "memory"
COLOURS = {
    REGISTERS: "#b55fb0", "first cache": "#35a06b", "second cache": "#2f7ec7",
    "third cache": "#b09a2c", MEMORY: "#d9792b",
}  # fmt: skip
ON_COLOUR = "#14161a"  # what is written on a box of a level, on any page
FLOAT = 4  # bytes


@dataclass
class Thing:
    """Numbers that are used together, and the bytes that are touched between two uses of one."""

    name: str
    size: int
    between: int  # 0 where they are used once
    part: str = ""  # of the map: scores, keys (and values), queries (and output), or registers


@dataclass
class Moment:
    """What a rung works on at one moment, within the (N, N) scores of a head."""

    heads: int  # whose scores are there at once; 0 where none is whole
    rows: slice  # queries that are worked on
    columns: slice  # keys
    tile: tuple[int, int]  # queries and keys
    things: list[Thing]
    lanes: int = 0  # queries of one block, where several share a tile
    reach: int = 0  # keys whose sums are in registers


def caches():
    """Bytes of each level of this machine's caches that holds data, by its name."""
    found = {}
    for folder in sorted(CACHES.glob("index*")):
        level, kind, size = ((folder / f).read_text().strip() for f in ("level", "type", "size"))
        if kind != "Instruction":
            unit = {"K": 2**10, "M": 2**20}[size[-1]]
            found[["first", "second", "third"][int(level) - 1] + " cache"] = int(size[:-1]) * unit
    return found or USUAL


def level_of(thing):
    """The smallest level that holds what is touched between two uses; no use again is memory."""
    if not thing.between:
        return MEMORY
    if thing.part == REGISTERS:  # the accumulators of the micro-kernel
        return REGISTERS
    return next((name for name, size in caches().items() if thing.between <= size), MEMORY)


def constant(file, name, vector_bytes=0):
    """A constant of the kernels, read in their source; where it depends on the vectors, by them."""
    text = (ROOT / "native" / file).read_text(encoding="utf-8")
    found = [int(n) for n in re.findall(rf"constexpr int(?:64_t)? {name} = (\d+);", text)]
    return found[0] if len(found) == 1 or vector_bytes == 64 else found[1]


def formed(N, D, heads):
    """A matrix of all scores, of one head or of all; it is gone over once a step."""
    size = heads * N * N * FLOAT
    whose = "all heads" if heads > 1 else "one head"
    things = [
        Thing(f"scores of {whose}, {N:,} × {N:,}" + (" each" if heads > 1 else ""), size, size,
              "scores"),
        Thing("queries, keys, values, output of a head", 4 * N * D * FLOAT, 0),
    ]  # fmt: skip
    return Moment(heads, slice(0, N), slice(0, N), (N, N), things)


def by_tiles(N, D):
    """The tiled engine: a block of queries along tiles of keys."""
    x = np.broadcast_to(np.float32(0), (N, D))
    block, width = tiled.tile_shape(regard.problem.check(x, x, x))
    width = min(width, N)
    scores, carried = block * width * FLOAT, block * (D + 2) * FLOAT
    queries, pairs = block * D * FLOAT, width * 2 * D * FLOAT
    together = scores + carried + queries + pairs
    things = [
        Thing(f"scores of a tile, {block} × {width}", scores, scores, "scores"),
        Thing(f"{block} queries, and what they carry", queries + carried, together, "queries"),
        Thing(f"keys and values of a tile, {width} × 2·{D}", pairs, N * 2 * D * FLOAT + together,
              "keys"),
        Thing("queries, keys, values, output of a head", 4 * N * D * FLOAT, 0),
    ]  # fmt: skip
    return _near_the_end(N, block, width, things)


def by_registers(N, D):
    """The native engine: blocks of as many queries as two vectors have lanes share a tile."""
    engine = regard.explain(*[np.zeros((N, D), np.float32)] * 3).engine
    wide = 64 if "512" in engine else 32 if "avx2" in engine else 16  # bytes of a vector
    lanes = constant("scores.hpp", "V") * wide // FLOAT
    tile, group = constant("call.hpp", "TILE"), constant("kernel.cpp", "GROUP")
    reach = constant("reading.hpp", "REACH", wide)
    block = (D + tile + 2 * D) * lanes * FLOAT  # queries, scores, sums of the segment and of all
    pairs = tile * 2 * D * FLOAT
    things = [
        Thing(f"sums of {reach} keys × {lanes} queries", reach * lanes * FLOAT, 1, REGISTERS),
        Thing(f"{lanes} queries: scores of {tile} keys, sums", block, block + reach * D * FLOAT,
              "scores"),
        Thing(f"up to {group} such blocks, in turn", group * block, group * block + pairs,
              "queries"),
        Thing(f"keys and values of a tile, {tile} × 2·{D}", pairs, block + pairs, "keys"),
        Thing("keys and values of a head, for each group", N * 2 * D * FLOAT,
              N * 2 * D * FLOAT + group * block),
        Thing("queries and output of a head", 2 * N * D * FLOAT, 0),
    ]  # fmt: skip
    moment = _near_the_end(N, group * lanes, tile, things)
    return replace(moment, lanes=lanes, reach=reach)


def _near_the_end(N, block, width, things):
    """A moment late in a causal call: a block of queries, and the last tile that it sees whole."""
    last = int(0.8 * N) // block * block
    first = (last // width - 1) * width if last >= 2 * width else 0
    return Moment(0, slice(last, last + block), slice(first, first + width), (block, width), things)


def picture(moment, N, words):
    """The scores of a head with what is worked on, and beside it what lies in which cache."""
    drawn = []
    for width in (3.1, 5.2):  # side by side, one below the other on a telephone
        with rc_context(STYLE):
            figure = Figure(figsize=(width, 3.3), layout="constrained")
            axes = figure.subplots()
        axes.set_axis_off()
        if drawn:
            _levels(axes, moment.things)
        else:
            _map(axes, moment, N)
        what = "where it lies" if drawn else "the arrays of a head"
        drawn.append(svg(figure, f"{words}: {what}"))
    return HTML(f'<div class="drawn both">{"".join(drawn)}</div>')


def _map(axes, moment, N):
    axes.set(xlim=(-0.36 * N, 1.22 * N), ylim=(1.22 * N, -0.36 * N), aspect="equal")
    for shift in reversed(range(moment.heads)):
        _box(axes, shift * 0.05 * N, shift * 0.05 * N, N, N, _holder(moment, "scores"), 1)
    if moment.heads:
        axes.text(N / 2, N / 2, f"scores\n{N:,} × {N:,}", ha="center", va="center", fontsize=9,
                  color=ON_COLOUR)  # fmt: skip
    else:
        _tiles(axes, moment, N)
    for k, name in enumerate(("keys", "values")):
        at = (-0.3 + 0.14 * k) * N
        _box(axes, 0, at, N, 0.1 * N, MEMORY, 0.35)
        part = moment.columns
        if not moment.heads:
            _box(axes, part.start, at, part.stop - part.start, 0.1 * N, _holder(moment, "keys"), 1)
        axes.text(0.02 * N, at + 0.05 * N, name, va="center", fontsize=8, color=INK)
    for k, name in enumerate(("queries", "output")):
        at = (-0.3 + 0.14 * k) * N
        _box(axes, at, 0, 0.1 * N, N, MEMORY, 0.35)
        rows = moment.rows
        if not moment.heads:
            _box(
                axes, at, rows.start, 0.1 * N, rows.stop - rows.start, _holder(moment, "queries"), 1
            )
        axes.text(at + 0.05 * N, 0.02 * N, name, ha="center", va="top", fontsize=8, rotation=90,
                  color=INK)  # fmt: skip


def _holder(moment, part):
    """The level of what is drawn there."""
    return level_of(next(thing for thing in moment.things if thing.part == part))


def _tiles(axes, moment, N):
    """The tile that is there now, those that were, and those that no query sees."""
    axes.add_patch(Rectangle((0, 0), N, N, fill=False, edgecolor=INK, linewidth=0.8))
    axes.add_patch(Rectangle((0, moment.rows.start), moment.columns.start,
                   moment.rows.stop - moment.rows.start, facecolor=INK, alpha=0.25))  # fmt: skip
    axes.fill([0, N, N], [0, 0, N], facecolor="none", edgecolor=INK, alpha=0.5, hatch="///",
              linewidth=0)  # fmt: skip
    rows, columns = moment.rows, moment.columns
    if moment.lanes:
        _enlarged(axes, moment, N)
    _box(axes, columns.start, rows.start, columns.stop - columns.start, rows.stop - rows.start,
         _holder(moment, "queries" if moment.lanes else "scores"), 1)  # fmt: skip
    axes.text(0.97 * N, 0.1 * N, "hidden: not visited", ha="right", fontsize=8, color=INK)
    axes.text(0.03 * N, 0.97 * N, "scores: never all there", fontsize=8, color=INK)


def _enlarged(axes, moment, N):
    """The tile in large: blocks of queries that share it, one at work, and what is in registers."""
    x, y, wide, tall = 0.4 * N, 0.2 * N, 0.52 * N, 0.34 * N
    queries, keys = moment.tile
    blocks = queries // moment.lanes
    for corner in ((x, y + tall), (x + wide, y + tall)):
        there = moment.columns.start if corner[0] == x else moment.columns.stop
        axes.plot([corner[0], there], [corner[1], moment.rows.start], color=INK, linewidth=0.6)
    for i in range(blocks):
        part = "scores" if i == 1 else "queries"
        _box(axes, x, y + i * tall / blocks, wide, tall / blocks, _holder(moment, part), 1)
    _box(axes, x + wide / 2, y + tall / blocks, wide * moment.reach / keys, tall / blocks,
         REGISTERS, 1)  # fmt: skip


def _box(axes, x, y, width, height, level, alpha):
    axes.add_patch(Rectangle((x, y), width, height, facecolor=COLOURS[level], alpha=alpha,
                             edgecolor=INK, linewidth=0.6))  # fmt: skip


def _levels(axes, things):
    """A band for each level, small and fast on top, with what lies there."""
    sizes = {REGISTERS: None, **caches(), MEMORY: None}
    inside = {name: [t for t in things if level_of(t) == name] for name in sizes}
    heights = {name: 0.6 + max(1, len(found)) for name, found in inside.items()}
    axes.set(xlim=(0, 10), ylim=(sum(heights.values()), 0))
    top = 0.0
    for name, size in sizes.items():
        height = heights[name]
        axes.add_patch(Rectangle((0, top + 0.08), 0.22, height - 0.16, facecolor=COLOURS[name]))
        axes.add_patch(Rectangle((0.22, top + 0.08), 9.78, height - 0.16, alpha=0.14,
                                 facecolor=COLOURS[name]))  # fmt: skip
        axes.text(0.4, top + height / 2, name + (f"\n{told(size)}" if size else ""), fontsize=9,
                  va="center", color=INK)  # fmt: skip
        for i, thing in enumerate(inside[name]):
            y = top + 0.3 + i + 0.5
            axes.text(2.7, y, thing.name, fontsize=9, va="center", color=INK)
            axes.text(9.8, y, told(thing.size), fontsize=9, va="center", ha="right", color=INK)
        top += height


def told(size):
    """Bytes in words."""
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"
