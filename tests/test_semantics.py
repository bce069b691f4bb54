"""The table of decisions in docs/semantics.md, row by row, on every engine."""

import threading

import numpy as np
import pytest
from helpers import ENGINES, assert_close, assert_same_pattern, draw, draw_call, truth

import regard
from regard import masks

pytestmark = pytest.mark.parametrize("engine", ENGINES)
NAN, INF = np.nan, np.inf


def test_order_scale_softcap_bias_mask_softmax(engine):
    q, k, v = draw_call(1, lead=(), H=2, Nq=3, Nk=5)
    bias, mask = draw(2, (2, 3, 5))[0], draw(3, (3, 5))[0] > -1
    scores = 0.7 * (q @ k.swapaxes(-2, -1))
    scores = 1.3 * np.tanh(scores / 1.3) + bias
    exponentials = np.where(mask, np.exp(scores), 0)
    expected = exponentials / exponentials.sum(-1, keepdims=True) @ v
    actual = regard.attention(q, k, v, scale=0.7, softcap=1.3, bias=bias, mask=mask, engine=engine)
    assert_close(actual, expected, 1e-13)


def test_scale_defaults_to_one_over_root_d(engine):
    q, k, v = draw_call(4, D=7)
    default = regard.attention(q, k, v, engine=engine)
    assert_close(regard.attention(q, k, v, scale=7**-0.5, engine=engine), default, 1e-14)
    assert not np.allclose(regard.attention(q, k, v, scale=1.0, engine=engine), default)


@pytest.mark.parametrize("scale", [0, -0.5, 1e300, np.float32(0.25), 3])
def test_scale_is_any_finite_number(engine, scale):
    q, k, v = draw_call(5)
    assert_close(
        regard.attention(q, k, v, scale=scale, engine=engine),
        truth(q, k, v, scale=scale)[0],
        1e-13,
    )


@pytest.mark.parametrize("softcap", [1e-50, 1e-300, 1e50, 1e300])
def test_softcap_is_any_number_above_0(engine, softcap):
    q, k, v = draw_call(48, dtype=np.float32)
    expected, _, _ = truth(q, k, v, softcap=softcap)
    assert_close(regard.attention(q, k, v, softcap=softcap, engine=engine), expected, 1e-5)


@pytest.mark.parametrize(("dtype", "large"), [(np.float32, 1e38), (np.float64, 1e308)])
def test_large_finite_values_give_finite_averages(engine, dtype, large):
    q, k, _ = draw_call(49, lead=(), H=1, Nq=5, Nk=1031, dtype=dtype)
    v = np.full((1, 1031, 3), large, dtype)
    v[:, ::2, 1] *= -1
    v[:, 7, 2] = np.inf
    mask = np.ones((5, 1031), bool)
    mask[1:, 7] = False
    with np.errstate(all="raise"):  # nothing of this is the caller's to see
        output = regard.attention(q, k, v, mask=mask, engine=engine)
    np.testing.assert_allclose(output[0, :, 0], large, rtol=1e-5)
    assert np.abs(output[0, :, 1]).max() < large / 2
    np.testing.assert_allclose(output[0, 1:, 2], large, rtol=1e-5)
    assert output[0, 0, 2] == np.inf


def test_true_in_a_mask_means_seen(engine):
    q, k, v = draw_call(6, lead=(), H=1, Nq=2, Nk=3)
    mask = np.array([[True, False, False], [False, False, True]])
    actual = regard.attention(q, k, v, mask=mask, engine=engine)
    np.testing.assert_array_equal(actual[0], v[0, [0, 2]])


@pytest.mark.parametrize("shape", [(7,), (5, 7), (1, 7), (3, 5, 7), (1, 5, 7), (2, 1, 1, 7)])
def test_masks_and_biases_broadcast(engine, shape):
    q, k, v = draw_call(7, Nq=5)
    (x,) = draw(8, shape)
    full = np.broadcast_to(x, (2, 3, 5, 7)).copy()
    for option, a, b in (("mask", x > 0, full > 0), ("bias", x, full)):
        broadcast = regard.attention(q, k, v, **{option: a}, engine=engine)
        np.testing.assert_array_equal(
            broadcast, regard.attention(q, k, v, **{option: b}, engine=engine)
        )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, "bfloat16"])
def test_a_bias_has_any_float_dtype(engine, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    q, k, v = draw_call(9, dtype=np.float32)
    bias = draw(10, (7, 7))[0].astype(dtype)
    expected, _, _ = truth(q, k, v, bias=bias.astype(np.float64))
    assert_close(regard.attention(q, k, v, bias=bias, engine=engine), expected, 1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_finite_bias_is_never_hidden(engine, dtype):
    q, k, v = draw_call(11, lead=(), dtype=np.float32)
    bias = np.zeros((7, 7), dtype)
    bias[0] = np.finfo(dtype).min  # a whole row very low: still a softmax of it
    attended = regard.look(q, k, v, bias=bias, engine=engine)
    weights = np.asarray(attended.weights)
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    assert np.isfinite(attended.lse).all()


def test_minus_infinity_in_a_bias_hides(engine):
    q, k, v = draw_call(12, lead=())
    mask = draw(13, (7, 7))[0] > 0
    mask[2] = False
    by_bias = regard.look(q, k, v, bias=np.where(mask, 0.0, -INF), engine=engine)
    by_mask = regard.look(q, k, v, mask=mask, bias=np.zeros((7, 7)), engine=engine)
    np.testing.assert_array_equal(by_bias.output, by_mask.output)
    np.testing.assert_array_equal(by_bias.lse, by_mask.lse)


@pytest.mark.parametrize("how", ["mask", "bias", "causal", "interval", "score"])
@pytest.mark.parametrize("poison", [NAN, INF, -INF])
def test_a_hidden_pair_has_no_effect_at_all(engine, how, poison):
    q, k, v = draw_call(14, lead=(), H=2, Nq=5, Nk=5, D=3)
    hidden = slice(3, 5)
    options = {}
    if how == "mask":
        options["mask"] = np.arange(5) < 3
    elif how == "bias":
        options["bias"] = np.where(np.arange(5) < 3, 0.5, -INF)
    elif how == "causal":
        q, options = q[:, :3], {"causal": True, "align": 0}
    elif how == "interval":
        options["mask"] = masks.lengths(3)
    else:  # the score itself is -inf
        q[..., 0], k[:, hidden, 0] = 1.0, -INF
    clean = regard.look(q, k, v, **options, engine=engine)
    if how != "score":
        k[:, hidden] = poison
        if how == "bias":
            options["bias"] = np.where(np.arange(5) < 3, 0.5, -INF)
    v[:, hidden] = poison
    poisoned = regard.look(q, k, v, **options, engine=engine)
    np.testing.assert_array_equal(poisoned.output, clean.output)
    np.testing.assert_array_equal(poisoned.lse, clean.lse)
    np.testing.assert_array_equal(np.asarray(poisoned.weights), np.asarray(clean.weights))
    assert np.isfinite(clean.output).all()


def test_a_poisoned_bias_beside_a_mask_has_no_effect(engine):
    q, k, v = draw_call(15, lead=())
    mask = draw(16, (7, 7))[0] > 0
    bias = draw(17, (7, 7))[0]
    clean = regard.attention(q, k, v, mask=mask, bias=bias, engine=engine)
    for poison in (NAN, INF, -INF):
        poisoned = np.where(mask, bias, poison)
        np.testing.assert_array_equal(
            regard.attention(q, k, v, mask=mask, bias=poisoned, engine=engine), clean
        )


@pytest.mark.parametrize("cause", ["mask", "bias", "lengths", "interval", "window"])
def test_a_row_with_nothing_to_see(engine, cause):
    q, k, v = draw_call(18, lead=(), Nq=3, Nk=3)
    options = {
        "mask": {"mask": np.zeros((3, 3), bool)},
        "bias": {"bias": np.full((3, 3), -INF)},
        "lengths": {"mask": masks.lengths(0)},
        "interval": {"mask": masks.interval(2, 1)},
        "window": {"mask": masks.window(0, 0), "align": 100},
    }[cause]
    attended = regard.look(q, k, v, **options, engine=engine)
    np.testing.assert_array_equal(attended.output, 0)
    np.testing.assert_array_equal(np.asarray(attended.weights), 0)
    np.testing.assert_array_equal(attended.lse, -INF)
    sinks = np.array([0.5, -1.0, 700.0])
    attended = regard.look(q, k, v, **options, sinks=sinks, engine=engine)
    np.testing.assert_array_equal(attended.output, 0)
    np.testing.assert_allclose(attended.lse, np.broadcast_to(sinks[:, None], (3, 3)), rtol=1e-15)


def test_one_empty_sequence_leaves_its_neighbours_alone(engine):
    q, k, v = draw_call(19)
    both = regard.attention(q, k, v, mask=masks.lengths([0, 7]), engine=engine)
    alone = regard.attention(q[1:], k[1:], v[1:], engine=engine)
    np.testing.assert_array_equal(both[0], 0)
    np.testing.assert_array_equal(both[1:], alone)


@pytest.mark.parametrize("poison", [NAN, INF])
def test_a_visible_bad_score_spoils_its_row_alone(engine, poison):
    q, k, v = draw_call(20, lead=(), H=1, Nq=5, Nk=7)
    bias = np.zeros((5, 7))
    clean = regard.look(q, k, v, bias=bias, engine=engine)
    bias[2, 3] = poison
    spoilt = regard.look(q, k, v, bias=bias, engine=engine)
    assert not np.isfinite(spoilt.output[0, 2]).any()
    assert np.isnan(spoilt.lse[0, 2])
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(spoilt.output[0, others], clean.output[0, others])
    np.testing.assert_array_equal(spoilt.lse[0, others], clean.lse[0, others])
    assert_same_pattern(spoilt.weights[0, 2], np.full(7, NAN))


@pytest.mark.parametrize("poison", [NAN, INF, -INF])
def test_a_visible_bad_value_spoils_its_element_alone(engine, poison):
    q, k, v = draw_call(21, lead=(), H=1, Nq=5, Nk=5)
    clean = regard.attention(q, k, v, causal=True, engine=engine)
    v[0, 3, 4] = poison  # seen by queries 3 and 4
    spoilt = regard.attention(q, k, v, causal=True, engine=engine)
    expected = clean.copy()
    expected[0, 3:, 4] = poison
    np.testing.assert_array_equal(spoilt, expected)


@pytest.mark.parametrize(("Nq", "Nk"), [(3, 7), (7, 3), (1, 5)])
def test_where_query_0_sits(engine, Nq, Nk):
    q, k, v = draw_call(22, Nq=Nq, Nk=Nk)
    for align, start in (("top-left", 0), ("bottom-right", Nk - Nq), (2, 2), (-1, -1)):
        seen = np.arange(Nk) <= np.arange(Nq)[:, None] + start
        actual = regard.attention(q, k, v, causal=True, align=align, engine=engine)
        assert_close(actual, regard.attention(q, k, v, mask=seen, engine=engine), 1e-14)


def test_a_position_for_each_batch_row(engine):
    q, k, v = draw_call(23, Nq=3)
    both = regard.attention(q, k, v, causal=True, align=np.array([1, 4]), engine=engine)
    for b, start in enumerate((1, 4)):
        one = regard.attention(q[b], k[b], v[b], causal=True, align=start, engine=engine)
        np.testing.assert_array_equal(both[b], one)


def test_bottom_right_with_lengths_is_each_sequence_s_own(engine):
    q, k, v = draw_call(24, Nq=2)
    lengths = [4, 7]
    both = regard.attention(
        q, k, v, causal=True, align="bottom-right", mask=masks.lengths(lengths), engine=engine
    )
    for b, n in enumerate(lengths):
        one = regard.attention(
            q[b], k[b, :, :n], v[b, :, :n], causal=True, align="bottom-right", engine=engine
        )
        assert_close(both[b], one, 1e-14)


def test_left_padding(engine):
    q, k, v = draw_call(25)
    padded = regard.attention(
        q, k, v, causal=True, mask=masks.lengths(7, start=[2, 0]), engine=engine
    )
    short = regard.attention(q[0, :, 2:], k[0, :, 2:], v[0, :, 2:], causal=True, engine=engine)
    assert_close(padded[0, :, 2:], short, 1e-14)
    np.testing.assert_array_equal(padded[0, :, :2], 0)


@pytest.mark.parametrize("engine_option", [{"causal": True}, {"mask": masks.window(1, 0)},
                                           {"mask": masks.prefix(2)},
                                           {"mask": masks.documents([1, 1, 1, 2, 2, 2, 2])},
                                           {"bias": regard.biases.alibi(np.ones(3))}])  # fmt: skip
def test_align_may_not_be_left_out_where_it_matters(engine, engine_option):
    q, k, v = draw_call(26, Nq=5)
    with pytest.raises(ValueError, match="align must be given .* got Nq = 5, Nk = 7: 'top-left'"):
        regard.attention(q, k, v, **engine_option, engine=engine)
    regard.attention(q[..., :0, :], k, v, **engine_option, engine=engine)  # nothing to place


def test_sinks_are_a_key_without_a_value(engine):
    q, k, v = draw_call(27, lead=())
    sinks = np.array([0.3, -2.0, 5.0])
    with_sink = np.concatenate([k, np.zeros_like(k[:, :1])], axis=1)
    bias = np.zeros((3, 1, 8))
    bias[:, 0, 7] = sinks  # a key of zeros whose score is the sink
    nothing = np.concatenate([v, np.zeros_like(v[:, :1])], axis=1)
    attended = regard.look(q, k, v, sinks=sinks, engine=engine)
    expected = regard.look(q, with_sink, nothing, bias=bias, engine=engine)
    assert_close(attended.output, expected.output, 1e-14)
    assert_close(attended.lse, expected.lse, 1e-14)
    assert_close(np.asarray(attended.weights), np.asarray(expected.weights)[..., :7], 1e-14)


def test_a_sink_of_minus_infinity_is_none(engine):
    q, k, v = draw_call(28, lead=())
    attended = regard.attention(q, k, v, sinks=np.full(3, -INF), engine=engine)
    assert_close(attended, regard.attention(q, k, v, engine=engine), 1e-15)


def test_a_sink_far_above_and_far_below_the_scores(engine):
    q, k, v = draw_call(46, lead=())
    attended = regard.look(q, k, v, sinks=np.array([1000.0, -2000.0, 3.0]), engine=engine)
    assert np.isfinite(attended.lse).all()
    np.testing.assert_allclose(attended.lse[0], 1000, rtol=1e-15)
    np.testing.assert_array_equal(attended.output[0], 0)
    without = regard.attention(q, k, v, engine=engine)
    assert_close(attended.output[1], without[1], 1e-15)


def test_sinks_do_not_touch_the_scale_or_the_softcap(engine):
    q, k, v = draw_call(29, lead=(), dtype=np.float32)
    options = {"scale": 0.1, "softcap": 0.5, "sinks": np.array([3.0, 4.0, 5.0], np.float16)}
    expected, _, lse = truth(q, k, v, **options)
    attended = regard.look(q, k, v, **options, engine=engine)
    assert_close(attended.output, expected, 1e-6)
    assert_close(attended.lse, lse, 1e-6)


@pytest.mark.parametrize(("H", "Hkv"), [(6, 2), (6, 3), (5, 1), (4, 4)])
def test_grouped_heads_read_head_h_over_group(engine, H, Hkv):
    q, k, v = draw_call(30, H=H, Hkv=Hkv)
    for h in range(H):
        read = h // (H // Hkv)
        alone = regard.attention(q[:, h], k[:, read], v[:, read], engine=engine)
        grouped = regard.look(q, k, v, engine=engine)
        np.testing.assert_array_equal(grouped.output[:, h], alone)
        np.testing.assert_array_equal(
            grouped.weights[:, h],
            np.asarray(regard.look(q[:, h], k[:, read], engine=engine).weights),
        )


def test_grouped_heads_of_any_size(engine):
    q, k, v = draw_call(47, H=4, Hkv=2, D=331, Dv=257, dtype=np.float32)
    expected, _, _ = truth(q, k, v)
    assert_close(regard.attention(q, k, v, engine=engine), expected, 1e-5)


def test_the_axes_before_the_heads_broadcast(engine):
    q, k, v = draw_call(38, lead=(3, 1))
    k, v = (np.concatenate([x, 0.5 * x], axis=1)[:1] for x in (k, v))  # lead (1, 2)
    attended = regard.look(q, k, v, engine=engine)
    assert attended.output.shape == (3, 2, 3, 7, 11)
    for a in range(3):
        for b in range(2):
            one = regard.attention(q[a, 0], k[0, b], v[0, b], engine=engine)
            np.testing.assert_array_equal(attended.output[a, b], one)


def test_two_axes_are_one_head_and_three_are_heads(engine):
    q, k, v = draw_call(39, lead=())
    heads = regard.look(q, k, v, causal=True, engine=engine)
    for h in range(3):
        one = regard.look(q[h], k[h], v[h], causal=True, engine=engine)
        np.testing.assert_array_equal(heads.output[h], one.output)
        np.testing.assert_array_equal(heads.lse[h], one.lse)
        np.testing.assert_array_equal(heads.weights[h], np.asarray(one.weights))
        assert one.weights.shape == (7, 7)


def test_inputs_are_never_changed(engine):
    q, k, v = draw_call(41)
    bias, sinks = draw(42, (7, 7), (3,))
    mask = bias > 0
    given = (q, k, v, bias, sinks, mask)
    before = [x.copy() for x in given]
    attended = regard.look(q, k, v, bias=bias, sinks=sinks, mask=mask, engine=engine)
    np.asarray(attended.weights)
    for x, y in zip(given, before, strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_same_call_gives_the_same_bits(engine):
    q, k, v = draw_call(43, Nq=131, Nk=257, D=17, dtype=np.float32)
    first = regard.attention(q, k, v, causal=True, align="bottom-right", engine=engine)
    again = regard.attention(q, k, v, causal=True, align="bottom-right", engine=engine)
    np.testing.assert_array_equal(first, again)


def test_many_threads_at_once(engine):
    calls = [draw_call(seed, Nq=53, Nk=101, D=17, dtype=np.float32) for seed in range(8)]
    expected = [regard.attention(*call, engine=engine) for call in calls]
    got = [None] * len(calls)

    def work(i):
        got[i] = regard.attention(*calls[i], engine=engine)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(got, expected, strict=True):
        assert_close(a, b, 1e-6)


def test_value_may_be_left_out_of_a_look(engine):
    q, k, v = draw_call(44)
    attended = regard.look(q, k, causal=True, engine=engine)
    assert attended.output is None
    whole = regard.look(q, k, v, causal=True, engine=engine)
    np.testing.assert_array_equal(attended.lse, whole.lse)
    np.testing.assert_array_equal(np.asarray(attended.weights), np.asarray(whole.weights))


def test_scores_far_from_zero_still_give_rows_of_one(engine):
    q, k, v = draw_call(45, Nq=131, Nk=1031, D=16, dtype=np.float32)
    q *= 3000
    attended = regard.look(q, k, v, engine=engine)
    assert np.abs(attended.lse).max() > 1e4
    assert np.abs(np.asarray(attended.weights).sum(-1) - 1).max() < 1e-6
