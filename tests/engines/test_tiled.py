"""The tiled engine: tiles of any size, tiles that are skipped, memory, interruption."""

import sys

import numpy as np
import pytest
from helpers import ENGINES, assert_close, draw_call, run_python

import regard
from regard import masks
from regard.engines import tiled
from regard.problem import check

OPTIONS = {
    "plain": {},
    "causal": {"causal": True, "align": "bottom-right"},
    "window": {"mask": masks.window(5, 2), "align": 3},
    "lengths": {"mask": masks.lengths([17, 29], start=[3, 0])},
    "array": {"mask": np.random.default_rng(0).random((2, 1, 23, 31)) > 0.5},
    "bias": {"bias": np.random.default_rng(1).standard_normal((3, 23, 31))},
    "alibi": {"bias": regard.biases.alibi(np.array([0.1, 0.5, 1.0])), "align": 8},
    "softcap and sinks": {"softcap": 2.0, "sinks": np.array([0.0, 1.0, -1.0])},
}


@pytest.mark.parametrize("tile", [(1, 1), (2, 3), (7, 5), (23, 31), (5, 64), (1000, 1000)])
@pytest.mark.parametrize("name", OPTIONS)
def test_any_tile_gives_the_same(tile, name):
    problem = check(*draw_call(1, Nq=23, Nk=31), **OPTIONS[name])
    whole = tiled.run(problem, tile=(23, 31))
    parts = tiled.run(problem, tile=tile)
    assert_close(parts.output, whole.output, 1e-12)
    assert_close(parts.lse_of(), whole.lse_of(), 1e-12)
    rows, columns = np.array([22, 0, 7]), np.array([30, 1, 1, 16])
    for head in ((0, 0), (1, 2)):
        assert_close(
            parts.weights_of(head, rows, columns), whole.weights_of(head, rows, columns), 1e-12
        )


@pytest.mark.parametrize("N", [*range(1, 12)])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_lengths_that_straddle_tiles_with_padding_that_poisons(N, poison):
    """Keys beside the sequence hold NaN, in tiles of (3, 4): no one may read them."""
    q, k, v = draw_call(2, lead=(), Nq=N, Nk=13)
    clean = tiled.run(check(q, k[:, :N], v[:, :N], causal=True), tile=(3, 4))
    k[:, N:], v[:, N:] = poison, poison
    padded = tiled.run(check(q, k, v, causal=True, align=0, mask=masks.lengths(N)), tile=(3, 4))
    assert_close(padded.output, clean.output, 1e-14)


def test_the_running_sum_does_not_overflow_when_the_maximum_rises():
    q, k, v = draw_call(3, lead=(), H=1, Nq=2, Nk=64, D=1)
    k[0, :, 0] = np.linspace(-3000, 3000, 64)
    q[...] = 1.0
    output = tiled.run(check(q, k, v), tile=(2, 8)).output
    assert_close(output, np.broadcast_to(v[:, -1:], output.shape), 1e-12)


def visits(monkeypatch, **options):
    """The tiles whose scores a call computes, as (rows, columns)."""
    seen = []
    scores = tiled._Head.scores

    def counted(self, rows, columns):
        seen.append((rows.start, columns.start))
        return scores(self, rows, columns)

    monkeypatch.setattr(tiled._Head, "scores", counted)
    tiled.run(check(*draw_call(4, lead=(), H=1, Nq=64, Nk=64), **options), tile=(8, 8))
    return seen


@pytest.mark.parametrize(
    ("options", "tiles"),
    [
        ({}, 64),
        ({"causal": True}, 36),
        ({"mask": masks.window(0, 0)}, 8),
        ({"mask": masks.window(8, 0)}, 15),
        ({"mask": masks.lengths(9)}, 16),
        ({"mask": masks.lengths(0)}, 0),
        ({"mask": masks.documents(np.repeat(np.arange(4), 16))}, 16),
    ],
)
def test_tiles_that_no_query_sees_are_not_visited(monkeypatch, options, tiles):
    assert len(visits(monkeypatch, **options)) == tiles


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_have_the_same_bits_however_they_are_asked_for(engine):
    q, k, v = draw_call(5, lead=(), Nq=300, Nk=1500, dtype=np.float32)
    attended = regard.look(q, k, v, causal=True, align="bottom-right", engine=engine)
    whole = np.asarray(attended.weights)
    np.testing.assert_array_equal(attended.weights[1, 299], whole[1, 299])
    np.testing.assert_array_equal(attended.weights[:, :, 700], whole[:, :, 700])
    assert attended.weights[2, 17, 3] == whole[2, 17, 3]


def test_the_estimate_of_memory_is_honest():
    """Within a factor of two and a half of what tracemalloc sees, bare and masked."""
    import tracemalloc

    q, k, v = draw_call(6, lead=(), H=2, Nq=2048, Nk=4096, D=64, Dv=64, dtype=np.float32)
    for arrays in ((q, k, v), (q, k.astype(np.float16), v.astype(np.float16))):
        for Nq, options in ((2048, {}), (2048, {"causal": True, "align": 2048}), (1, {})):
            few = (arrays[0][:, :Nq], *arrays[1:])
            estimate = regard.explain(*few, **options, engine="tiled").memory
            tracemalloc.start()
            output = regard.attention(*few, **options, engine="tiled")
            peak = tracemalloc.get_traced_memory()[1] - output.nbytes
            tracemalloc.stop()
            assert peak / 2.5 < estimate < 2.5 * peak


PEAK = """
    import resource, sys
    import numpy as np, regard
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, {N}, 64), dtype=np.float32)
    def peak():  # high-water mark of this process, in MB
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return rss / (1e6 if sys.platform == "darwin" else 1e3)
    regard.attention(q[..., :64, :], k[..., :64, :], v[..., :64, :])
    before = peak()
    output = regard.attention(q, k, v, causal=True, engine="tiled")
    print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="resource, which measures the peak, is Unix's")
def test_peak_memory_at_65536_tokens():
    peak = float(run_python(PEAK.format(N=65536)))
    assert peak < 300, f"{peak} MB above the inputs"  # the formed matrix: 17,180 MB
