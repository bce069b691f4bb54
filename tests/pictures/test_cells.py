"""Pooled weights and hidden blocks, against the formed matrices."""

from itertools import pairwise

import numpy as np
import pytest
from helpers import draw, draw_call
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.pictures.cells import Stack, edges, seen_in_blocks, stack_of
from regard.problem import check

masks = regard.masks


def by_blocks(array, rows, columns, reduce):
    return np.array([
        [reduce(array[a:b, c:d]) for c, d in pairwise(columns)]
        for a, b in pairwise(rows)
    ])  # fmt: skip


@given(st.integers(1, 4000), st.integers(1, 600))
def test_edges_part_the_axis_evenly(n, most):
    at = edges(n, most)
    assert (at[0], at[-1], len(at) - 1) == (0, n, min(n, most))
    sizes = np.diff(at)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("most", [3, 7, 11, 300])
@pytest.mark.parametrize("kind", ["map", "array", "trace"])
def test_cells_hold_the_largest_of_each_block(kind, most):
    q, k, v = draw_call(0, lead=(2,), H=3, Nq=149, Nk=149)
    attended = regard.look(q, k, v, causal=True)
    formed = np.asarray(attended.weights)
    if kind == "trace":
        layers = [regard.look(a, b, causal=True) for a, b in zip(q, k, strict=True)]
        source = regard.Trace("", ["t"] * 149, np.zeros((149, 2)), np.zeros(149), layers)
    else:
        source = attended if kind == "map" else formed
    cells = stack_of(source).cells((1, 2), most)
    expected = by_blocks(formed[1, 2], cells.rows, cells.columns, np.max)
    np.testing.assert_allclose(cells.weights, expected, rtol=1e-12)
    hidden = ~by_blocks(np.tri(149, dtype=bool), cells.rows, cells.columns, np.any)
    np.testing.assert_array_equal(cells.hidden, hidden if kind != "array" else hidden & False)
    assert cells.block == ((1, 1) if most == 300 else (-(-149 // most),) * 2)


def test_many_heads_in_one_pass_are_each_as_if_alone():
    q, k, _ = draw_call(5, lead=(2,), H=3, Nq=31, Nk=37)
    stack = stack_of(regard.look(q, k))
    places = list(np.ndindex(2, 3))
    for index, cells in zip(places, stack.all_cells(places, 7), strict=True):
        alone = stack.cells(index, 7)
        np.testing.assert_allclose(cells.weights, alone.weights, rtol=1e-12)
        np.testing.assert_array_equal(cells.hidden, alone.hidden)
    one = stack_of(regard.look(q[0, :1], k[0, :1])).cells((0,), 7)
    np.testing.assert_allclose(one.weights, stack.cells((0, 0), 7).weights, rtol=1e-12)


random_masks = st.sampled_from([
    masks.causal(), masks.window(5, 2), masks.window(None, 3) & masks.causal(),
    masks.lengths(11), masks.lengths(9, start=4), masks.prefix(6),
    masks.documents(np.repeat([3, 1, 2], [5, 7, 1])), masks.interval(4, 2),
])  # fmt: skip


@settings(deadline=None)
@given(random_masks, st.integers(1, 13), st.integers(1, 13), st.booleans(), st.booleans())
def test_blocks_that_are_seen(mask, down, across, with_array, with_bias):
    rng = np.random.default_rng(down * 17 + across)
    if with_array:
        mask = mask & (rng.random((13, 13)) < 0.3)
    bias = np.where(rng.random((13, 13)) < 0.3, -np.inf, 1.0) if with_bias else None
    q = np.ones((1, 13, 1))
    problem = check(q, q, q, mask=mask, bias=bias)
    seen = np.asarray(regard.look(q, q, mask=mask, bias=bias, engine="reference").weights)[0] > 0
    rows, columns = edges(13, down), edges(13, across)
    some, every = seen_in_blocks(problem, (0,), rows, columns)
    np.testing.assert_array_equal(some, by_blocks(seen, rows, columns, np.any))
    np.testing.assert_array_equal(every, by_blocks(seen, rows, columns, np.all))


def test_hidden_comes_from_the_call_the_map_or_the_caller():
    (q,) = draw(1, (3, 7, 5))
    lower = np.tri(7, dtype=bool)
    weights = np.asarray(regard.look(q, q, causal=True).weights)
    for stack in (
        stack_of(regard.look(q, q, causal=True)),
        stack_of(regard.look(q, q, mask=lower)),
        stack_of(regard.look(q, q, bias=np.where(lower, 0.0, -np.inf))),
        stack_of(regard.AttentionMap.from_weights(weights, visible=lower)),
        stack_of(weights, lower),
        stack_of(weights, masks.causal()),
        stack_of(regard.AttentionMap.from_weights(weights), masks.causal()),
    ):
        np.testing.assert_array_equal(stack.cells((1,), 99).hidden, ~lower)
    assert not stack_of(weights).cells((1,), 99).hidden.any()
    assert not stack_of(regard.AttentionMap.from_weights(weights)).cells((1,), 99).hidden.any()
    one = stack_of(weights[0], masks.causal()).cells((), 99)
    np.testing.assert_array_equal(one.hidden, ~lower)


def test_grouped_heads_are_named_by_the_query_head():
    q, k, v = draw_call(2, lead=(), H=6, Hkv=2, Nq=5, Nk=7)
    attended = regard.look(q, k, v)
    formed = np.asarray(attended.weights)
    assert stack_of(attended).lead == (6,)
    for h in range(6):
        np.testing.assert_array_equal(stack_of(attended).cells((h,), 9).weights, formed[h])


def test_which_head():
    assert Stack(None, (5, 7), []).head(None) == ()
    assert Stack(None, (1, 5, 7), ["head"]).head(None) == (0,)
    assert Stack(None, (3, 5, 7), ["head"]).head(-1) == (2,)
    stack = Stack(None, (2, 3, 5, 7), ["layer", "head"])
    assert stack.head((1, -3)) == (1, 0)
    for wrong in (None, 1, (1,), (2, 0), (0, 3), (0, 0, 0), (0.0, 1), "ab"):
        with pytest.raises(ValueError, match=r"head must be \(layer, head\) within \(2, 3\), got"):
            stack.head(wrong)
    with pytest.raises(ValueError, match=r"head must be head within \(3,\), got None"):
        stack_of(np.ones((3, 5, 7))).head(None)


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        (np.ones(3), ValueError, r"weights must be \(\*lead, Nq, Nk\), nothing empty, got \(3,\)"),
        (np.ones((0, 3)), ValueError, "nothing empty"),
        (np.ones((2, 2), complex), TypeError, "an array of numbers .* got complex128"),
        ("law", TypeError, "an array of numbers"),
        (regard.Trace("", [], [], [], []), ValueError, "no layer or no token"),
    ],
)
def test_what_is_no_weights(source, error, says):
    with pytest.raises(error, match=says):
        stack_of(source)


def test_layers_with_heads_of_their_own_number():
    layers = [regard.AttentionMap.from_weights(np.ones((H, 2, 2)) / 2) for H in (2, 3)]
    with pytest.raises(ValueError, match="all layers must have as many heads"):
        stack_of(regard.Trace("", ["a", "b"], np.zeros((2, 2)), np.zeros(2), layers))


def test_what_is_no_mask():
    with pytest.raises(
        TypeError, match="mask must be a bool array or a mask of regard.masks, got str"
    ):
        stack_of(np.ones((2, 3)), "causal")
    with pytest.raises(ValueError, match="must broadcast"):
        stack_of(np.ones((2, 3)), np.ones((3, 2), bool))
    with pytest.raises(TypeError, match="mask must be bool"):
        stack_of(np.ones((2, 3)), np.ones((2, 3)))
