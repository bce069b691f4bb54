"""Statistics of weights: each against the formed matrix, whatever the engine and the blocks."""

import itertools
import tracemalloc

import numpy as np
import pytest
from helpers import ENGINES, NATIVE, assert_close, draw, draw_call, wait_for_ctrl_c
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard import masks, statistics
from regard.attention_map import AttentionMap

HIDING = np.random.default_rng(7).random((2, 6, 11, 13)) > 0.6
HIDING[0, 2, 4] = False  # a query that sees nothing
CALLS = {
    "all": {},
    "causal": {"causal": True, "align": np.array([2, 0])},
    "window": {"mask": masks.window(2, 1), "align": "bottom-right"},
    "array": {"mask": HIDING},
    "lengths": {"mask": masks.lengths(np.array([5, 0])), "causal": True, "align": 3},
    "bias": {"bias": np.where(HIDING, 0.5, -np.inf), "softcap": 3.0},
    "sinks": {"sinks": np.arange(6.0) - 2, "scale": 2.0},
    "alibi": {"bias": regard.biases.alibi(np.arange(6) / 3), "align": 1},
}
TOLERANCE = {np.float64: 1e-13, np.float32: 1e-5, np.float16: 1e-5}


def call(seed=0, dtype=np.float64, Nq=11, Nk=13, **options):
    q, k, v = draw_call(seed, H=6, Hkv=3, Nq=Nq, Nk=Nk, dtype=dtype)
    return regard.look(q, k, v, **options)


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    if request.param == "many blocks":
        monkeypatch.setattr(statistics, "ROWS", 3)
        monkeypatch.setattr(statistics, "COLUMNS", 5)


def entropy_of(W):
    return -np.sum(W * np.log(np.where(W > 0, W, 1)), axis=-1)


def pooled_of(W, rows, columns, of):
    Nq, Nk = W.shape[-2:]
    r, c = np.arange(rows + 1) * Nq // rows, np.arange(columns + 1) * Nk // columns
    return np.stack(
        [
            np.stack([of(W[..., a:b, x:y], axis=(-2, -1)) for x, y in itertools.pairwise(c)], -1)
            for a, b in itertools.pairwise(r)
        ],
        -2,
    )


def diagonals_of(W):
    """Sums of the diagonals, from the first query and the last key on."""
    Nq, Nk = W.shape[-2:]
    return np.stack([np.trace(W, -d, axis1=-2, axis2=-1) for d in range(1 - Nk, Nq)], axis=-1)


def check_all(attended, W, tolerance, rows=3, columns=5, k=4):
    assert_close(np.asarray(attended.weights), W, tolerance)
    found = attended.summary("received", "entropy", "by_distance", top=k, pooled=(rows, columns))
    assert_close(found.received, W.sum(axis=-2), tolerance * W.shape[-2])
    assert_close(found.entropy, entropy_of(W), tolerance * 10)
    assert_close(found.pooled, pooled_of(W, rows, columns, np.mean), tolerance)
    greatest = attended.pooled(rows, columns, how="max")
    assert_close(greatest, pooled_of(W, rows, columns, np.max), tolerance)
    assert_close(found.by_distance.mass, diagonals_of(W), tolerance * 20)
    weights, keys = found.top
    assert_close(weights, -np.sort(-W, axis=-1)[..., :k], tolerance)
    there = np.take_along_axis(W, np.maximum(keys, 0), axis=-1)
    assert_close(weights, np.where(keys < 0, 0, there), tolerance)
    for row in keys.reshape(-1, keys.shape[-1]):
        named = row[row >= 0]
        assert len(set(named)) == len(named)  # no key twice
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)
def test_all_of_them_against_the_formed_matrix(engine, options, blocks):
    attended = call(engine=engine, **options)
    W = np.asarray(call(engine="reference", **options).weights)
    found = check_all(attended, W, 1e-13)
    assert found.induction is None
    for dtype in (np.float32, np.float16):
        if engine != "reference":
            check_all(call(dtype=dtype, engine=engine, **options),
                      np.asarray(call(dtype=dtype, engine="reference", **options).weights), 2e-6)  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("Nq", "Nk"), [(1, 1), (1, 307), (307, 1), (131, 257), (307, 499)])
@pytest.mark.parametrize("causal", [False, True])
def test_lengths_that_straddle_lanes_tiles_and_parts(engine, Nq, Nk, causal):
    q, k = draw(3, (1, Nq, 5), (1, Nk, 5), dtype=np.float32)
    attended = regard.look(q, k, causal=causal, align="bottom-right", engine=engine)
    W = np.asarray(
        regard.look(q, k, causal=causal, align="bottom-right", engine="reference").weights
    )
    check_all(attended, W, 2e-6, min(7, Nq), min(13, Nk), k=min(5, Nk))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_each_alone_is_what_it_is_in_a_summary(data):
    seed, name = data.draw(st.integers(0, 99)), data.draw(st.sampled_from(list(CALLS)))
    attended = call(seed, engine=data.draw(st.sampled_from(ENGINES)), **CALLS[name])
    rows, columns = data.draw(st.integers(1, 15)), data.draw(st.integers(1, 15))
    how, k = data.draw(st.sampled_from(["mean", "max"])), data.draw(st.integers(1, 15))
    found = attended.summary(
        "received", "entropy", "by_distance", top=k, pooled=(rows, columns), how=how
    )
    np.testing.assert_array_equal(found.received, attended.received())
    np.testing.assert_array_equal(found.entropy, attended.entropy())
    np.testing.assert_array_equal(found.pooled, attended.pooled(rows, columns, how))
    np.testing.assert_array_equal(found.by_distance.mass, attended.by_distance().mass)
    for a, b in zip(found.top, attended.top(k), strict=True):
        np.testing.assert_array_equal(a, b)
    assert found.top[0].shape == (2, 6, 11, min(k, 13))
    assert found.pooled.shape == (2, 6, min(rows, 11), min(columns, 13))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_that_is_not_a_number_stays_one_and_harms_no_other(engine):
    q, k = draw(0, (1, 11, 5), (1, 13, 5))
    clean = regard.look(q, k, causal=True, align=2, engine=engine)
    q[0, 4, 1] = np.nan
    attended = regard.look(q, k, causal=True, align=2, engine=engine)
    assert np.isnan(attended.entropy()[0, 4])
    weights, keys = attended.top(3)
    assert np.isnan(weights[0, 4]).all()
    np.testing.assert_array_equal(keys[0, 4], [0, 1, 2])
    others = np.arange(11) != 4
    np.testing.assert_array_equal(attended.entropy()[0, others], clean.entropy()[0, others])
    np.testing.assert_array_equal(weights[0, others], clean.top(3)[0][0, others])
    np.testing.assert_array_equal(np.isnan(attended.received()[0]), np.arange(13) < 7)
    assert np.isnan(attended.pooled(11, 13, "max")[0, 4, :7]).all()
    assert np.isnan(attended.pooled(11, 13)).sum() == 7


@pytest.mark.parametrize("engine", ENGINES)
def test_of_equal_weights_the_first_keys_are_named(engine, blocks):
    q, k = np.zeros((1, 3, 2)), np.zeros((1, 300, 2))
    np.testing.assert_array_equal(regard.look(q, k, engine=engine).top(4)[1][0], [[0, 1, 2, 3]] * 3)
    weights, keys = regard.look(q, k, mask=masks.lengths(2), engine=engine).top(4)
    np.testing.assert_array_equal(keys[0], [[0, 1, -1, -1]] * 3)
    np.testing.assert_array_equal(weights[0], [[0.5, 0.5, 0, 0]] * 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_zero_lengths(engine):
    for Nq, Nk in ((0, 3), (3, 0), (0, 0)):
        q, k = np.zeros((2, Nq, 5)), np.zeros((2, Nk, 5))
        attended = regard.look(q, k, causal=True, align=0, engine=engine)
        found = attended.summary("received", "entropy", "by_distance", top=2, pooled=(4, 4))
        assert found.received.shape == (2, Nk)
        assert found.entropy.shape == (2, Nq)
        assert found.top[1].shape == (2, Nq, min(Nk, 2))
        assert not found.received.any()
        assert not found.entropy.any()


def test_distance_counts_positions():
    attended = call(**CALLS["causal"])
    by = attended.by_distance()
    assert by.distance.shape == (2, 1, 23)
    np.testing.assert_array_equal(by.distance[:, 0, 12], [2, 0])  # query 0 against key 0
    assert not by.mass[np.broadcast_to(by.distance, by.mass.shape) < 0].any()  # causal
    np.testing.assert_allclose(by.mass.sum(-1), 11)
    np.testing.assert_allclose(by.mean * by.pairs, by.mass)
    np.testing.assert_array_equal(by.pairs, diagonals_of(np.ones((11, 13))))
    previous = AttentionMap.from_weights(np.eye(7, k=-1)).by_distance()
    assert previous.distance[previous.mass.argmax()] == 1


def test_one_head_without_its_axis():
    W = np.asarray(call().weights)[0, 0]
    check_all(AttentionMap.from_weights(W), W, 1e-13)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_weights_from_anywhere(dtype):
    W = np.asarray(call(**CALLS["array"]).weights).astype(dtype)
    attended = AttentionMap.from_weights(W)
    assert attended.weights.dtype == np.result_type(dtype, np.float32)
    check_all(attended, W.astype(np.float64), TOLERANCE[dtype])
    assert attended.output is None
    assert attended.lse is None
    assert np.asarray(attended.visible).all()
    shown = AttentionMap.from_weights(W, visible=W > 0)
    np.testing.assert_array_equal(shown.visible[1, 2, 3], W[1, 2, 3] > 0)


def test_weights_that_are_none():
    with pytest.raises(TypeError, match="weights must be an array of float, got int64"):
        AttentionMap.from_weights(np.eye(3, dtype=int))
    with pytest.raises(ValueError, match=r"weights must be \(\*lead, H, Nq, Nk\), got \(3,\)"):
        AttentionMap.from_weights(np.ones(3))
    with pytest.raises(ValueError, match="must not be negative"):
        AttentionMap.from_weights(-np.eye(3))
    with pytest.raises(ValueError, match="align must be"):
        AttentionMap.from_weights(np.eye(3), align="middle")


@pytest.mark.parametrize(
    ("wanted", "named", "error", "match"),
    [
        (("recieved",), {}, ValueError, "wanted must be among 'received', .* got 'recieved'"),
        ((), {"top": 0}, ValueError, "k must be 1 or more, got 0"),
        ((), {"top": 2.0}, TypeError, "k must be an int, got 2.0"),
        ((), {"pooled": (0, 3)}, ValueError, "rows and columns must be 1 or more"),
        ((), {"pooled": (3, True)}, TypeError, "rows and columns must be an int"),
        (
            (),
            {"pooled": (3, 3), "how": "sum"},
            ValueError,
            "how must be 'mean' or 'max', got 'sum'",
        ),
        ((), {"tokens": "abc"}, ValueError, "tokens must be one for each key, 13, got 3"),
    ],
)
def test_what_cannot_be_asked(wanted, named, error, match):
    with pytest.raises(error, match=match):
        call().summary(*wanted, **named)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["all", "causal", "window", "array", "bias"])
def test_visible_tells_hidden_pairs_from_zeros(engine, name):
    attended = call(engine=engine, **CALLS[name])
    np.testing.assert_array_equal(np.asarray(attended.visible), np.asarray(attended.weights) > 0)
    far = np.array([[[1e4]], [[-1e4]]])  # a weight that is 0 and not hidden
    assert np.asarray(regard.look(far[:1], far[:, 0][None], engine=engine).visible).all()


def test_memory_grows_with_the_length_and_not_with_its_square():
    peaks = []
    for N in (2048, 8192):
        q = np.random.default_rng(0).standard_normal((1, N, 4)).astype(np.float32)
        for engine in ("tiled", None):
            attended = regard.look(q, q, causal=True, engine=engine)
            tracemalloc.start()
            attended.summary("received", "entropy", "by_distance", top=5, pooled=(64, 64))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[2] < 5 * peaks[0]
    assert peaks[3] < 5 * peaks[1]
    assert peaks[2] < 40e6  # the weights would be 268 MB


@pytest.mark.parametrize("engine", NATIVE)
def test_the_bits_do_not_depend_on_threads(engine, monkeypatch):
    q, k = draw(0, (1, 5, 1031, 8), (1, 1, 1031, 8), dtype=np.float32)
    attended = regard.look(q, k, causal=True, engine=engine)
    found = []
    for threads in (1, 2, 7):
        monkeypatch.setattr("regard.engines.native.get_num_threads", lambda n=threads: n)
        each = attended.summary("received", "entropy", "by_distance", top=5, pooled=(13, 17))
        found.append([*each.top, each.received, each.entropy, each.pooled, each.by_distance.mass])
    for others in found[1:]:
        for a, b in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.skipif(not NATIVE, reason="the native engine was not built")
def test_ctrl_c_stops_a_pass_of_the_native_engine():
    call = (
        "x = np.ones((1, 20_000, 64), np.float32); attended = regard.look(x, x); "
        "[attended.received() for _ in range(1000)]"
    )
    assert wait_for_ctrl_c(call, 6.0) < 0.5
