"""The set that computes by dot products of bfloat16: what it rounds, and what it takes."""

import numpy as np
import pytest
from helpers import draw_call, truth

import regard
from regard.engines import native

ml_dtypes = pytest.importorskip("ml_dtypes")
BRAIN = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def engine():
    return native.PAIRS[-1]


def draw_brains(seed, **sizes):
    return [x.astype(BRAIN) for x in draw_call(seed, lead=(), **sizes)]


def as_it_rounds(q, k, v):
    """In float64, but for the weights: each is rounded after its exponential, the sum adds the others."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-2, -1) / q.shape[-1] ** 0.5
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p.astype(BRAIN).astype(np.float64) @ v / p.sum(-1, keepdims=True)


@pytest.mark.parametrize("Nq", [1, 2, 5, 61])
@pytest.mark.parametrize("D", [1, 2, 67, 128])
def test_weights_are_rounded_once_and_their_sum_is_of_the_unrounded(engine, Nq, D):
    """A weight that lies at a tie for float64 may go the other way for float32: 2⁻⁸ of one weight."""
    q, k, v = draw_brains(1, Nq=Nq, Nk=113, D=D, Dv=65)  # one tile
    q = q / q.dtype.type(8)
    actual = regard.attention(q, k, v, engine=engine).astype(np.float64)
    expected = as_it_rounds(q, k, v)
    np.testing.assert_allclose(actual, expected, rtol=2**-8, atol=2**-8 * 2 / 113)


def test_the_accuracy_rule(engine):
    """Worst of 10 seeds, in units of the last place of the output: beside naive float32, rounded."""
    for seed in range(10):
        q, k, v = draw_brains(seed, Nq=19, Nk=1031, D=17, Dv=13)
        exact, _, _ = truth(q, k, v)
        wide = (x.astype(np.float32) for x in (q, k, v))
        naive = regard.attention(*wide, engine="reference").astype(BRAIN).astype(np.float64)
        actual = regard.attention(q, k, v, engine=engine).astype(np.float64)
        assert np.abs(actual - exact).max() <= 2 * np.abs(naive - exact).max()


def test_sums_and_listed_weights_are_those_of_float64(engine):
    q, k, v = draw_brains(3, Nq=41, Nk=4099, D=13, Dv=11)
    attended = regard.look(q, k, v, causal=True, align=3000, engine=engine)
    _, weights, lse = truth(q, k, v, causal=True, align=3000)
    np.testing.assert_allclose(attended.lse, lse, rtol=0, atol=3e-6)
    np.testing.assert_allclose(attended.weights[1, 5], weights[1, 5], rtol=0, atol=1e-7)
    np.testing.assert_allclose(attended.received(), weights.sum(-2), rtol=0, atol=1e-5)


def test_pairs_begin_at_even_keys_wherever_a_row_begins(engine):
    """Large values that cancel swallow what is added between them: the sum shows its order."""
    rng = np.random.default_rng(8)
    q, k = np.zeros((1, 71, 2), BRAIN), np.zeros((1, 331, 2), BRAIN)
    v = rng.uniform(-2, 2, (1, 331, 67)).astype(BRAIN)
    for column in range(67):
        places = rng.choice(np.arange(75, 125), 8, replace=False)  # in the tile where rows begin
        v[0, places, column] = [2.0**26, -(2.0**26)] * 4
    window = regard.masks.window(148, 31)
    whole = regard.attention(q, k, v, mask=window, align=148, engine=engine)
    for first, end in ((0, 1), (1, 2), (33, 34), (34, 39), (13, 71)):
        part = regard.attention(
            q[:, first:end], k, v, mask=window, align=148 + first, engine=engine
        )
        np.testing.assert_array_equal(part.view(np.uint16), whole[:, first:end].view(np.uint16))


def test_subnormal_numbers_count_as_zero(engine):
    q, k, v = draw_brains(4, Nq=3, Nk=7)
    small = np.full_like(v, 2.0**-130)
    assert np.all(regard.attention(q, k, small, engine=engine) == 0)
    assert np.all(regard.attention(q, k, small, engine=native.SETS[-1]) == small[0, 0, 0])


def test_sums_beyond_the_largest_number_are_mended(engine):
    q, k, v = draw_brains(5, Nq=3, Nk=301)
    v[...] = ml_dtypes.finfo(BRAIN).max
    assert np.all(regard.attention(q, k, v, engine=engine) == v[0, 0, 0])


def test_it_is_taken_for_three_arrays_of_bfloat16_alone(engine):
    q, k, v = draw_brains(6)
    wide = q.astype(np.float32)
    assert regard.explain(q, k, v).engine == engine
    assert regard.explain(q, k, v, engine="native").engine == engine
    assert regard.explain(wide, k, v).engine == native.SETS[-1]
    wanted = f"{engine} takes query, key and value of bfloat16, got float32, bfloat16, bfloat16"
    for call in (regard.attention, regard.look, regard.explain):
        with pytest.raises(ValueError, match=wanted):
            call(wide, k, v, engine=engine)
