"""The articles' functions against their own numbers, and against each other."""

from pathlib import Path

import numpy as np
import pytest
from helpers import draw

from regard import reference

GOLDEN = np.load(Path(__file__).parent / "golden" / "seed_functions.npz", allow_pickle=False)


def golden(case):
    return {key.split("/")[1]: GOLDEN[key] for key in GOLDEN.files if key.split("/")[0] == case}


def assert_golden(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


def test_every_golden_case_is_tested():
    tested = {name for names in CASES.values() for name in names}
    assert {key.split("/")[0] for key in GOLDEN.files} == tested


CASES = {
    "self_attention": ["self_attention"],
    "self_attention_batched": ["self_attention_batched"],
    "softmax_lastdim": ["softmax_lastdim"],
    "multihead_attention_list": [f"multihead_attention_list_mask{m}" for m in (0, 1)],
    "multihead_cross_attention_list": ["multihead_cross_attention_list"],
    "multihead_attention_vec": [f"multihead_attention_vec_mask{m}" for m in (0, 1)],
    "attention": ["lesson_attention_causal0", "lesson_attention_causal1", "lesson_first_run"],
    "multihead": ["lesson_multihead"],
}


@pytest.mark.parametrize(
    ("function", "case"), [(f, c) for f, names in CASES.items() for c in names]
)
def test_golden(function, case):
    given = golden(case)
    result, weights = given.pop("result"), given.pop("weights", None)
    if "_mask" in case:
        given["do_mask"] = case.endswith("1")
    if "causal" in case:
        given["causal"] = case.endswith("1")
    if "NH" in given:
        given["NH"] = int(given["NH"])
    if function == "multihead":
        given["heads"] = list(zip(given.pop("Wq"), given.pop("Wk"), given.pop("Wv"), strict=True))
    actual = getattr(reference, function)(**given)
    if weights is not None:
        actual, actual_weights = actual
        assert_golden(actual_weights, weights)
    assert_golden(actual, result)


def test_batched_is_single_by_single():
    x, Wk, Wq, Wv = draw(1, (3, 7, 11), (11, 5), (11, 5), (11, 2))
    batched = reference.self_attention_batched(x, Wk, Wq, Wv)
    single = [reference.self_attention(sequence, Wk, Wq, Wv) for sequence in x]
    np.testing.assert_allclose(batched, single, rtol=0, atol=1e-14)


def test_one_token_at_a_time_is_the_masked_form():
    x, Wk, Wq, Wv = draw(2, (7, 11), (11, 5), (11, 5), (11, 3))
    loop = reference.one_token_at_a_time(x, Wk, Wq, Wv)
    masked, _ = reference.attention(x, Wq, Wk, Wv)
    np.testing.assert_allclose(loop, masked, rtol=0, atol=1e-14)


def test_list_of_heads_is_the_packed_form():
    B, N, D, NH = 2, 7, 15, 3
    x, W, Wp = draw(3, (B, N, D), (D, 3 * D), (D, D))
    Wqs, Wks, Wvs = (np.split(part, NH, axis=1) for part in np.split(W, 3, axis=1))
    for do_mask in (False, True):
        packed = reference.multihead_attention_vec(x, W, NH, Wp, do_mask)
        listed = reference.multihead_attention_list(x, Wqs, Wks, Wvs, Wp, do_mask)
        np.testing.assert_allclose(packed, listed, rtol=0, atol=1e-12)


def test_einsum_is_the_matmul_form():
    q, k = draw(4, (2, 3, 5, 7), (2, 3, 11, 7))
    expected = q @ k.swapaxes(-2, -1) / np.sqrt(7)
    np.testing.assert_allclose(
        reference.attention_scores_einsum(q, k), expected, rtol=0, atol=1e-14
    )


def test_cross_attention_takes_queries_from_xq():
    xq, xv, Wp = draw(5, (2, 3, 11), (2, 7, 11), (10, 11))
    Wqs, Wks, Wvs = draw(6, (2, 11, 5), (2, 11, 5), (2, 11, 5))
    crossed = reference.multihead_cross_attention_list(xq, xv, Wqs, Wks, Wvs, Wp)
    assert crossed.shape == (2, 3, 11)
    shuffled = reference.multihead_cross_attention_list(xq, xv[:, ::-1], Wqs, Wks, Wvs, Wp)
    np.testing.assert_allclose(crossed, shuffled, rtol=0, atol=1e-13)  # keys have no order


def test_softmax_survives_large_scores_on_any_axis():
    (x,) = draw(7, (5, 7))
    x[2] += 1000
    for axis in (0, 1):
        weights = reference.softmax(x, axis=axis)
        np.testing.assert_allclose(weights.sum(axis=axis), 1, rtol=1e-14)
    np.testing.assert_array_equal(reference.softmax(x, -1), reference.softmax_lastdim(x))


def test_the_future_is_hidden_however_low_the_visible_scores_are():
    x, one = np.array([[200.0], [1.0]]), np.ones((1, 1))
    _, weights = reference.attention(x, one, -one, one)  # scores -40,000 and, hidden, -200
    np.testing.assert_array_equal(weights[0], [1, 0])


def test_general_function_is_the_article_on_ordinary_calls():
    x, Wk, Wq, Wv = draw(8, (7, 11), (11, 5), (11, 5), (11, 3))
    output, weights, lse = reference.scaled_dot_product_attention(x @ Wq, x @ Wk, x @ Wv)
    np.testing.assert_allclose(output, reference.self_attention(x, Wk, Wq, Wv), atol=1e-14)
    scores = (x @ Wq) @ (x @ Wk).T / np.sqrt(5)
    np.testing.assert_allclose(lse, np.log(np.exp(scores).sum(axis=1)), atol=1e-13)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-14)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: reference.softmax(np.float64(1)), "at least one axis, got a scalar"),
        (lambda: reference.self_attention(*draw(0, (2, 7, 11), (11, 5), (11, 5), (11, 5))),
         r"x must have 2 axes, got shape \(2, 7, 11\)"),
        (lambda: reference.self_attention(*draw(0, (7, 11), (11, 5), (13, 5), (11, 5))),
         r"Wq must have x's depth as its rows, got \(13, 5\)"),
        (lambda: reference.self_attention(*draw(0, (7, 11), (11, 5), (11, 3), (11, 5))),
         "Wq and Wk must have one head size"),
        (lambda: reference.multihead_attention_vec(*draw(0, (2, 7, 11), (11, 33)), 3,
                                                   *draw(0, (11, 11))),
         "D must be a multiple of NH, got D = 11 and NH = 3"),
        (lambda: reference.multihead_attention_vec(*draw(0, (2, 7, 12), (12, 35)), 3,
                                                   *draw(0, (12, 12))),
         r"W must be \(D, 3·D\) = \(12, 36\), got \(12, 35\)"),
        (lambda: reference.multihead_attention_list(*draw(0, (2, 7, 11), (3, 11, 5), (3, 11, 5),
                                                          (2, 11, 5), (15, 11))),
         "one Wq, Wk and Wv a head, got 3, 3 and 2"),
        (lambda: reference.multihead_attention_list(*draw(0, (2, 7, 11), (3, 11, 5), (3, 11, 5),
                                                          (3, 11, 5), (14, 11))),
         r"Wp must have 15 rows, one a column of the heads, got \(14, 11\)"),
        (lambda: reference.multihead(*draw(0, (7, 11)), [], *draw(0, (15, 11))),
         "at least one"),
        (lambda: reference.attention_scores_einsum(*draw(0, (2, 3, 5, 7), (2, 3, 5, 8))),
         "must agree in B, NH and HS"),
        (lambda: reference.scaled_dot_product_attention(*draw(0, (5, 3), (7, 3), (7, 3)),
                                                        causal=True),
         "align must be given .* got Nq = 5, Nk = 7"),
        (lambda: reference.scaled_dot_product_attention(*draw(0, (5, 3), (7, 4), (7, 3))),
         "key must have the query's head size"),
    ],
)  # fmt: skip
def test_errors_say_what_must_hold_and_what_was_got(call, says):
    with pytest.raises(ValueError, match=says):
        call()
