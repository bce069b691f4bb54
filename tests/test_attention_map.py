"""Weights of a look: indexed as the formed matrix would be, and never formed unasked."""

import numpy as np
import pytest
from helpers import ENGINES, assert_close, draw_call, truth
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import regard

q, k, v = draw_call(1, lead=(2,), H=6, Hkv=2, Nq=5, Nk=7)
OPTIONS = {"causal": True, "align": 2}
FORMED = truth(q, k, v, **OPTIONS)[1]


@pytest.fixture(params=ENGINES)
def attended(request):
    return regard.look(q, k, v, **OPTIONS, engine=request.param)


def test_it_has_what_the_call_computes(attended):
    output, weights, lse = truth(q, k, v, **OPTIONS)
    assert_close(attended.output, output, 1e-14)
    assert_close(attended.lse, lse, 1e-14)
    assert_close(np.asarray(attended.weights), weights, 1e-14)


def test_array_like(attended):
    weights = attended.weights
    assert weights.shape == FORMED.shape == np.shape(weights)
    assert (weights.ndim, weights.size, len(weights)) == (4, FORMED.size, 2)
    assert weights.dtype == np.float64
    assert np.asarray(weights, np.float32).dtype == np.float32
    assert_close(sum(weights[b] for b in range(2)), FORMED.sum(0), 1e-14)
    with pytest.raises(ValueError, match="copy=False"):
        np.array(weights, copy=False)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(index=hnp.basic_indices((2, 6, 5, 7), allow_newaxis=True, allow_ellipsis=True))
def test_basic_indices(index):
    taken = regard.look(q, k, v, **OPTIONS).weights[index]
    assert_close(taken, FORMED[index], 1e-14)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data())
def test_arrays_as_indices(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=2, max_side=3))
    index = []
    for n in FORMED.shape:
        kind = data.draw(st.sampled_from(["int", "slice", "array", "bool"]))
        if kind == "int":
            index.append(data.draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            index.append(data.draw(st.slices(n)))
        elif kind == "array":
            index.append(data.draw(hnp.arrays(int, shape, elements=st.integers(-n, n - 1))))
        else:
            index.append(np.arange(n) % 2 == 0)
    index = tuple(index[: data.draw(st.integers(1, 4))])
    try:
        expected = FORMED[index]
    except IndexError:
        with pytest.raises(IndexError):
            regard.look(q, k, v, **OPTIONS).weights[index]
    else:
        assert_close(regard.look(q, k, v, **OPTIONS).weights[index], expected, 1e-14)


def test_empty_lists_and_arrays(attended):
    for index in ([], (0, []), (0, 1, [], 2), np.zeros(0, int)):
        assert attended.weights[index].shape == FORMED[index].shape


def test_a_bool_array_of_the_whole_shape(attended):
    assert_close(attended.weights[FORMED > 0.3], FORMED[FORMED > 0.3], 1e-14)


def test_indices_out_of_range_are_index_errors(attended):
    for index in (2, (0, 0, 0, 7), (0, 0, 0, 0, 0), (..., ...), ([0, 3],), 1.5, "a"):
        with pytest.raises(IndexError):
            attended.weights[index]


def test_grouped_heads_are_indexed_by_the_query_head(attended):
    alone = regard.look(q[1, 5], k[1, 1], v[1, 1], **OPTIONS)
    assert_close(attended.weights[1, 5], np.asarray(alone.weights), 1e-14)


def test_forming_too_much_is_refused_with_the_size_and_the_limit_can_be_raised():
    x = np.zeros((40_000, 2), np.float32)
    attended = regard.look(x, x, x[:, :1], causal=True)
    assert attended.weights.shape == (40_000, 40_000)
    with pytest.raises(
        ValueError, match=r"\(40000, 40000\) float32, 6.40 GB, over the limit of 1.07 GB"
    ):
        np.asarray(attended.weights)
    with pytest.raises(ValueError, match="raise the map's .limit"):
        attended.weights[np.arange(40_000)]
    np.testing.assert_allclose(attended.weights[9, :11], [0.1] * 10 + [0], rtol=1e-6)
    diagonal = attended.weights[np.arange(100), np.arange(100)]
    np.testing.assert_allclose(diagonal, 1 / np.arange(1, 101), rtol=1e-6)
    attended.limit = 100
    with pytest.raises(ValueError, match="this would form"):
        attended.weights[0]
    attended.limit = 200_000
    assert attended.weights[0].shape == (40_000,)


def test_repr_tells_the_shape_and_forms_nothing(attended):
    assert repr(attended) == "AttentionMap(weights (2, 6, 5, 7), float64)"
    assert "(2, 6, 5, 7) float64" in repr(attended.weights)
