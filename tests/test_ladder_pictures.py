"""The pictures of the page about the ladder: their sizes are those that the engines hold."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import regard

pytest.importorskip("IPython", reason="IPython is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

N, D, H = 1543, 67, 3


@pytest.fixture
def memory(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "docs")
    import memory

    yield memory
    del sys.modules["memory"]


def size_of(moment, part):
    (thing,) = (thing for thing in moment.things if thing.part == part)
    return thing.size


def test_a_formed_matrix_is_what_the_reference_tells(memory):
    x = np.broadcast_to(np.float32(0), (H, N, D))
    told = regard.explain(x, x, x, engine="reference")
    assert size_of(memory.formed(N, D, H), "scores") == told.formed == H * N * N * 4


def test_tiles_are_those_of_the_engine(memory):
    from regard.engines import tiled

    x = np.broadcast_to(np.float32(0), (N, D))
    block, width = tiled.tile_shape(regard.problem.check(x, x, x))
    moment = memory.by_tiles(N, D)
    assert moment.tile == (block, min(width, N))
    assert size_of(moment, "scores") == block * min(width, N) * 4
    assert moment.rows.stop - moment.rows.start == block
    assert moment.columns.stop <= moment.rows.start  # seen whole


def test_the_kernels_blocks_are_those_of_their_sources(memory):
    moment = memory.by_registers(N, D)
    assert moment.tile == (memory.constant("kernel.cpp", "GROUP") * moment.lanes, 128)
    assert moment.lanes in (8, 16, 32)  # two vectors of 4, 8 or 16
    assert moment.reach == (8 if moment.lanes == 32 else 6)


def test_a_thing_lies_in_the_smallest_cache_that_holds_what_passes(memory, monkeypatch):
    monkeypatch.setattr(memory, "caches", lambda: {"first cache": 100, "second cache": 1000})
    levels = [memory.level_of(memory.Thing("", 1, between)) for between in (1, 100, 101, 1001, 0)]
    assert levels == ["first cache", "first cache", "second cache", "memory", "memory"]


@pytest.mark.parametrize("caches", [{"first cache": 2**15, "second cache": 2**20}, None])
def test_each_picture_names_every_thing(memory, monkeypatch, caches):
    if caches:
        monkeypatch.setattr(memory, "caches", lambda: caches)
    for moment in (memory.formed(N, D, H), memory.by_tiles(N, D), memory.by_registers(N, D)):
        html = memory.picture(moment, N, "words").data
        written = set(re.findall(r"<text[^>]*>([^<]*)</text>", html))
        assert {thing.name for thing in moment.things} <= written
        assert {memory.told(thing.size) for thing in moment.things} <= written
        assert set(memory.caches()) <= written
        assert memory.INK not in html  # it takes the colour of the page
