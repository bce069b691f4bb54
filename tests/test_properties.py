"""Any call that hypothesis can think of, on every engine, against the reference in float64."""

import numpy as np
import pytest
from helpers import ENGINES, EPSILON, assert_close, assert_same_pattern, largest_score, truth
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard import masks


@st.composite
def calls(draw):
    """(query, key, value), options: shapes, strides, dtypes, masks, biases, bad numbers."""
    lead = draw(st.sampled_from([(), (1,), (2,), (2, 3)]))
    Hkv, group = draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]))
    Nq, Nk = draw(st.integers(0, 7)), draw(st.integers(0, 11))
    D, Dv = draw(st.integers(1, 5)), draw(st.integers(0, 5))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    q = _array(draw, rng, (*lead, Hkv * group, Nq, D), dtype)
    k = _array(draw, rng, (*lead, Hkv, Nk, D), dtype)
    v = _array(draw, rng, (*lead, Hkv, Nk, Dv), dtype)
    shape = (*lead, Hkv * group, Nq, Nk)
    options = {}
    options["align"] = draw(st.sampled_from(["top-left", "bottom-right", 0, 3, -2]))
    options["causal"] = draw(st.booleans())
    mask = _mask(draw, rng, lead, shape)
    if mask is not None:
        options["mask"] = mask
    if draw(st.booleans()):
        options["bias"] = _bias(draw, rng, shape)
    if draw(st.booleans()):
        options["scale"] = draw(st.sampled_from([-2, -0.3, 0.1, 0.7, 1]))
    if draw(st.booleans()):
        options["softcap"] = draw(st.floats(0.1, 10))
    if draw(st.booleans()):
        options["sinks"] = rng.uniform(-3, 3, shape[-3])
    return (q, k, v), options


def _array(draw, rng, shape, dtype):
    x = rng.uniform(-2, 2, shape).astype(dtype)
    if x.size and draw(st.booleans()):  # a few numbers that are none
        for bad in draw(st.lists(st.sampled_from([np.nan, np.inf, -np.inf]), max_size=2)):
            x.flat[rng.integers(x.size)] = bad
    layout = draw(st.sampled_from(["as is", "transposed", "reversed", "spaced"]))
    if layout == "transposed":
        return np.ascontiguousarray(x.swapaxes(-2, -1)).swapaxes(-2, -1)
    if layout == "reversed":
        return np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :]
    if layout == "spaced":
        return np.repeat(x, 2, axis=-1)[..., ::2]
    return x


def _mask(draw, rng, lead, shape):
    Nk = shape[-1]
    structured = [
        masks.window(draw(st.integers(0, 4)), draw(st.none() | st.integers(0, 4))),
        masks.lengths(rng.integers(0, Nk + 1, lead), rng.integers(0, 3, lead)),
        masks.documents(np.sort(rng.integers(0, 3, (*lead, Nk)), axis=-1)),
        masks.interval(rng.integers(0, 4, shape[:-1]), rng.integers(0, Nk + 2, shape[:-1])),
    ]
    chosen = draw(st.lists(st.sampled_from(structured), max_size=2))
    array = rng.random(shape[draw(st.integers(0, len(shape) - 2)) :]) > 0.3
    parts = [*chosen, array] if draw(st.booleans()) or not chosen else chosen
    mask = parts[0]
    for part in parts[1:]:
        mask = mask & part
    return draw(st.sampled_from([None, mask]))


def _bias(draw, rng, shape):
    if draw(st.booleans()):
        return regard.biases.alibi(rng.uniform(0, 1, shape[-3]))
    bias = rng.uniform(-3, 3, shape[draw(st.integers(0, len(shape) - 2)) :])
    bias[rng.random(bias.shape) < 0.2] = -np.inf
    return bias


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=400, deadline=None, derandomize=True)
@given(call=calls())
def test_any_call(engine, call):
    (q, k, v), options = call
    expected, weights, lse = truth(q, k, v, **options)
    attended = regard.look(q, k, v, engine=engine, **options)
    formed = np.asarray(attended.weights)
    assert_same_pattern(formed, weights)
    assert_same_pattern(attended.lse, lse)
    tolerance = 2e-13 if q.dtype == np.float64 else 2e-5
    assert_close(formed, weights, tolerance)
    assert_close(attended.lse, lse, 20 * tolerance)
    assert_close(attended.output, expected, tolerance * 10 if q.dtype != np.float16 else 2.0**-8)
    sees = np.isfinite(weights).all(-1) & ~np.isneginf(lse)
    if "sinks" not in options:
        np.testing.assert_allclose(formed[sees].sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 13), causal=st.booleans())
def test_queries_may_be_split_anywhere(engine, seed, cut, causal):
    rng = np.random.default_rng(seed)
    q, k, v = rng.uniform(-2, 2, (3, 2, 13, 5))
    whole = regard.attention(q, k, v, causal=causal, engine=engine)
    parts = [
        regard.attention(q[:, part], k, v, causal=causal, align=start, engine=engine)
        for part, start in ((slice(cut), 0), (slice(cut, None), cut))
    ]
    assert_close(np.concatenate(parts, axis=1), whole, 1e-14)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_keys_does_not_matter(engine, seed):
    rng = np.random.default_rng(seed)
    q, k, v = rng.uniform(-2, 2, (3, 2, 13, 5))
    order = rng.permutation(13)
    shuffled = regard.attention(q, k[:, order], v[:, order], engine=engine)
    assert_close(shuffled, regard.attention(q, k, v, engine=engine), 1e-14)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("low", [-1.0, 0.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("Nk", [31, 1031, pytest.param(32771, marks=pytest.mark.slow)])
def test_the_accuracy_rule(engine, dtype, low, Nk):
    """Worst of 10 seeds: at most twice the naive computation's error, and a floor."""
    wide = np.float64 if dtype == np.float32 else np.longdouble
    for seed in range(10):
        rng = np.random.default_rng(seed)
        q, k, v = (rng.uniform(low, 1, (1, n, 17)).astype(dtype) for n in (19, Nk, Nk))
        exact = naive(q, k, v, wide)
        allowed = 2 * np.abs(naive(q, k, v, dtype) - exact).max()
        floor = EPSILON[np.dtype(dtype)] * (4 + largest_score(q, k)) * np.abs(v).max()
        error = np.abs(regard.attention(q, k, v, engine=engine) - exact).max()
        assert error <= allowed + floor, f"{error} > {allowed} + {floor} for seed {seed}"


def naive(q, k, v, dtype):
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    scores = q @ k.swapaxes(-2, -1) / dtype(q.shape[-1]) ** dtype(0.5)
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True) @ v
