"""Each mask against a predicate for each pair, written here in plain Python."""

import numpy as np
import pytest
from helpers import ENGINES, assert_close, draw_call
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard import masks

REACH = st.none() | st.integers(0, 9) | st.just(2**62) | st.just(10**30)


def pairs(sees, start, Nq, Nk):
    """The (Nq, Nk) bool array of a predicate of (position of the query, key)."""
    return np.array([[bool(sees(start + i, j)) for j in range(Nk)] for i in range(Nq)]).reshape(
        Nq, Nk
    )


def both_ways(mask, start, Nq, Nk):
    """(Nq, Nk) bool arrays: from the intervals, and from the mask's own predicate."""
    p = np.int64(start) + np.arange(Nq)[None]  # (1, Nq)
    lo, hi = (np.broadcast_to(np.clip(b, 0, Nk), (1, Nq)) for b in mask.bounds(p, Nk))
    j = np.arange(Nk)
    by_interval = ((lo[..., None] <= j) & (j < hi[..., None]))[0]
    by_predicate = np.broadcast_to(mask.sees(p[..., None], j), (1, Nq, Nk))[0]
    return by_interval, by_predicate


def check(mask, sees, start, Nq, Nk):
    expected = pairs(sees, start, Nq, Nk)
    by_interval, by_predicate = both_ways(mask, start, Nq, Nk)
    np.testing.assert_array_equal(by_interval, expected)
    np.testing.assert_array_equal(by_predicate, expected)


SIZES = dict(start=st.integers(-5, 15), Nq=st.integers(1, 7), Nk=st.integers(1, 11))


@given(**SIZES)
def test_causal(start, Nq, Nk):
    check(masks.causal(), lambda p, j: j <= p, start, Nq, Nk)


@given(left=REACH, right=REACH, **SIZES)
def test_window(left, right, start, Nq, Nk):
    def sees(p, j):
        return (left is None or j >= p - left) and (right is None or j <= p + right)

    check(masks.window(left, right), sees, start, Nq, Nk)


@given(n=st.integers(0, 11), first=st.integers(0, 12), **SIZES)
def test_lengths(n, first, start, Nq, Nk):
    n = min(n, Nk)
    check(masks.lengths(n, start=first), lambda p, j: first <= j < n, start, Nq, Nk)


@given(n=st.integers(0, 20), **SIZES)
def test_prefix(n, start, Nq, Nk):
    check(masks.prefix(n), lambda p, j: j <= max(p, n - 1), start, Nq, Nk)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), start=st.integers(-5, 15),
       Nq=st.integers(1, 7), seed=st.integers(0, 99))  # fmt: skip
def test_documents(sizes, start, Nq, seed):
    names = np.random.default_rng(seed).permutation(len(sizes))
    ids = np.repeat(names, sizes)

    def sees(p, j):
        return 0 <= p < len(ids) and ids[p] == ids[j]

    check(masks.documents(ids), sees, start, Nq, len(ids))


@given(data=st.data(), Nq=st.integers(1, 7), Nk=st.integers(1, 11))
def test_interval(data, Nq, Nk):
    ends = st.lists(st.integers(-3, 14), min_size=Nq, max_size=Nq)
    lo, hi = data.draw(ends), data.draw(ends)
    check(masks.interval(lo, hi), lambda p, j: lo[p] <= j < hi[p], 0, Nq, Nk)


@given(start=st.integers(-5, 15), Nq=st.integers(1, 7), left=st.integers(0, 9),
       n=st.integers(0, 11), cut=st.integers(1, 10))  # fmt: skip
def test_intersection_of_all(start, Nq, left, n, cut):
    Nk = 11
    ids = np.arange(Nk) >= cut
    mask = masks.causal() & masks.window(left, None) & masks.lengths(n)
    mask = mask & (masks.documents(ids.astype(int)) & masks.interval(1, 10))

    def sees(p, j):
        same = 0 <= p < Nk and ids[p] == ids[j]
        return j <= p and j >= p - left and j < n and same and 1 <= j < 10

    check(mask, sees, start, Nq, Nk)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_pair_of_masks_together_with_an_array(engine):
    N = 7
    q, k, v = draw_call(1, lead=(), H=2, Nq=N, Nk=N)
    array = np.random.default_rng(2).random((2, N, N)) > 0.3
    some = {
        "causal": (masks.causal(), lambda p, j: j <= p),
        "window": (masks.window(2, 1), lambda p, j: p - 2 <= j <= p + 1),
        "lengths": (masks.lengths(5, start=1), lambda p, j: 1 <= j < 5),
        "documents": (masks.documents([3, 3, 3, 3, 0, 0, 9]),
                      lambda p, j: (p < 4) == (j < 4) and (p == 6) == (j == 6)),
        "interval": (masks.interval(2, 6), lambda p, j: 2 <= j < 6),
    }  # fmt: skip
    for a, sees_a in some.values():
        for b, sees_b in some.values():
            seen = array & pairs(lambda p, j, a=sees_a, b=sees_b: a(p, j) and b(p, j), 0, N, N)
            expected = regard.attention(q, k, v, mask=seen, engine=engine)
            for mask in (a & b & array, array & b & a, a & (array & b)):
                assert_close(regard.attention(q, k, v, mask=mask, engine=engine), expected, 1e-14)


@pytest.mark.parametrize("engine", ENGINES)
def test_arrays_on_both_sides_intersect_too(engine):
    N = 7
    q, k, v = draw_call(9, lead=(), Nq=N, Nk=N)
    a, b = np.random.default_rng(3).random((2, N, N)) > 0.4
    expected = regard.attention(q, k, v, mask=a & b & np.tri(N, dtype=bool), engine=engine)
    for mask in (
        a & masks.causal() & b,
        (masks.causal() & a) & (masks.window(None, None) & b),
    ):
        assert_close(regard.attention(q, k, v, mask=mask, engine=engine), expected, 1e-14)


@pytest.mark.parametrize("engine", ENGINES)
def test_of_two_lengths_the_shorter_one_aligns(engine):
    q, k, v = draw_call(10, Nq=2)
    options = {"causal": True, "align": "bottom-right", "engine": engine}
    both = regard.attention(q, k, v, mask=masks.lengths(6) & masks.lengths(4), **options)
    assert_close(both, regard.attention(q, k, v, mask=masks.lengths(4), **options), 1e-14)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["lengths", "prefix", "documents", "interval"])
def test_a_mask_for_each_batch_row(engine, name):
    q, k, v = draw_call(3)
    given = {
        "lengths": ([3, 6],),
        "prefix": ([5, 0],),
        "documents": ([[1, 1, 2, 2, 2, 2, 2], [5, 5, 5, 5, 5, 4, 4]],),
        "interval": (np.array([[[1]], [[3]]]), np.array([[[4]], [[5]]])),
    }[name]
    make = getattr(masks, name)
    both = regard.attention(q, k, v, mask=make(*given), engine=engine)
    for b in range(2):
        one = make(*(np.asarray(x)[b] for x in given))
        expected = regard.attention(q[b], k[b], v[b], mask=one, engine=engine)
        np.testing.assert_array_equal(both[b], expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_interval_for_each_head(engine):
    q, k, v = draw_call(4, H=3, Hkv=1)
    hi = np.array([2, 5, 7])[:, None]
    heads = regard.attention(q, k, v, mask=masks.interval(0, hi), engine=engine)
    for h in range(3):
        one = regard.attention(
            q[:, h], k[:, 0], v[:, 0], mask=masks.lengths(int(hi[h, 0])), engine=engine
        )
        np.testing.assert_array_equal(heads[:, h], one)


@pytest.mark.parametrize("engine", ENGINES)
def test_positions_past_65536(engine):
    q, k, v = draw_call(5, lead=(), H=1, Nq=3, Nk=70_001, D=2, Dv=2)
    late = regard.attention(q, k, v, mask=masks.window(5, 0), align="bottom-right", engine=engine)
    short = regard.attention(
        q, k[:, -8:], v[:, -8:], mask=masks.window(5, 0), align="bottom-right", engine=engine
    )
    assert_close(late, short, 1e-14)
    far = regard.attention(q, k, v, causal=True, align=2**61, engine=engine)
    assert_close(far, regard.attention(q, k, v, engine=engine), 1e-14)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: masks.window(-1, 0), ValueError, "left must be an int of 0 or more, or None, got -1"),
        (lambda: masks.window(0, 1.5), ValueError, "right must be .* got 1.5"),
        (lambda: masks.window(True, 0), ValueError, "left must be .* got True"),
        (lambda: masks.lengths([3, -1]), ValueError, r"n and start must be 0 or more, got n \[3, -1\]"),
        (lambda: masks.lengths(2.0), TypeError, "n must be an int .* got float64"),
        (lambda: masks.lengths(2**63), ValueError, "n must be within"),
        (lambda: masks.prefix(-2), ValueError, "n must be 0 or more, got -2"),
        (lambda: masks.documents([1, 2, 1]), ValueError, "equal ids must lie together"),
        (lambda: masks.documents([[1, 1], [2, 1]]) and masks.documents([[1, 2, 1], [1, 1, 1]]),
         ValueError, "equal ids must lie together"),
        (lambda: masks.documents(3), ValueError, "one id for each key, got a single number"),
        (lambda: masks.documents(["a"]), TypeError, "ids must be an int"),
        (lambda: masks.causal() & np.ones((2, 2)), TypeError, "bool arrays .* got float64 array"),
        (lambda: np.ones((2, 2), int) & masks.causal(), TypeError, "got int64 array"),
        (lambda: masks.causal() & None, TypeError, "got NoneType"),
        (lambda: masks.lengths([1, 2], start=[0, 0, 0]), ValueError, "n and start must broadcast"),
        (lambda: masks.interval([0, 0], [1, 1, 1]), ValueError, "lo and hi must broadcast"),
        (lambda: masks.lengths([[1], [2, 3]]), ValueError, "n must be an int or an array of int"),
        (lambda: masks.causal() & np.ones((7, 7), bool) & np.ones((5, 7), bool), ValueError,
         "arrays on both sides of & must broadcast"),
        (lambda: masks.causal() & masks.prefix(2), ValueError, "use prefix without causal, got both"),
    ],
)  # fmt: skip
def test_errors_of_making(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        (masks.lengths([8, 2]), r"lengths must be at most Nk = 7, got \[8, 2\]"),
        (masks.lengths([1, 2, 3]), r"must fit the queries .* = \(2, 3, 7\)|one for each sequence"),
        (masks.documents([1, 1]), r"one id for each of 7 keys, got \(2,\)"),
        (masks.interval([0, 0], [1, 1]), r"must fit the queries .* got intervals of shape \(2,\)"),
        (masks.prefix([1, 2, 3]), "must fit the queries"),
        (masks.lengths([1, 2]) & masks.lengths([1, 2, 3]), r"parts of mask, and align, must fit"),
    ],
)
def test_errors_of_binding(mask, says):
    q, k, v = draw_call(6)
    with pytest.raises(ValueError, match=says):
        regard.attention(q, k, v, mask=mask)


def test_an_align_that_does_not_fit_the_mask():
    q, k, v = draw_call(6)
    with pytest.raises(
        ValueError, match=r"must fit each other and the sequences \(\*lead\) = \(2,\)"
    ):
        regard.attention(
            q, k, v, mask=masks.documents(np.zeros((3, 7), int)), align=np.array([0, 0])
        )


def test_prefix_beside_causal_true_is_an_error():
    q, k, v = draw_call(7)
    with pytest.raises(ValueError, match="use prefix without causal"):
        regard.attention(q, k, v, causal=True, mask=masks.prefix(2))


@pytest.mark.parametrize("engine", ENGINES)
def test_alibi_is_the_array_it_stands_for(engine):
    slopes = np.array([0.5, 0.25, 0.1])
    q, k, v = draw_call(8, Nq=5)
    for align in ("top-left", "bottom-right", 4, np.array([2, 0])):
        start = {"top-left": 0, "bottom-right": 2}[align] if isinstance(align, str) else align
        p = np.asarray(start)[..., None, None, None] + np.arange(5)[:, None]
        bias = -slopes[:, None, None] * np.abs(p - np.arange(7))
        lazy = regard.attention(
            q, k, v, bias=regard.biases.alibi(slopes), align=align, engine=engine
        )
        assert_close(lazy, regard.attention(q, k, v, bias=bias, engine=engine), 1e-14)


@pytest.mark.parametrize(
    ("slopes", "error", "says"),
    [
        ([1, 2], TypeError, "slopes must be floats, got int64"),
        ([[1.0]], ValueError, r"one for each head: \(H,\), got \(1, 1\)"),
        ([np.nan], ValueError, "slopes must be finite"),
    ],
)
def test_errors_of_alibi(slopes, error, says):
    with pytest.raises(error, match=says):
        regard.biases.alibi(slopes)
