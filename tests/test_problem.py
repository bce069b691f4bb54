"""Every mistake a user can make in a call, and what he is told."""

import numpy as np
import pytest
from helpers import draw, draw_call

import regard

q, k, v = draw_call(0, lead=(2,), H=3, Nq=7, Nk=7, D=5, Dv=11)
f32 = [x.astype(np.float32) for x in (q, k, v)]
CALLS = [regard.attention, regard.look, regard.explain]


class Tensor:
    """Looks like a framework's tensor."""


Tensor.__module__ = "torch"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("arrays", "error", "says"),
    [
        ((Tensor(), k, v), TypeError,
         r"query must be a NumPy array, got torch.Tensor: call query.detach\(\).cpu\(\).numpy\(\)"),
        ((q, [1.0], v), TypeError, r"key must be a NumPy array, got list: call np.asarray\(key\)"),
        ((q.astype(int), k, v), TypeError, "query must be one of float16, .* got int64"),
        ((q > 0, k, v), TypeError, "query must be one of .* got bool"),
        ((q.astype(complex), k, v), TypeError, "got complex128"),
        ((q.astype(object), k, v), TypeError, "got object"),
        ((q.astype(np.longdouble), k, v), TypeError, "got float128|got longdouble"),
        ((np.ma.array(q), k, v), TypeError, "query must be a plain array, got a MaskedArray"),
        ((q, f32[1], f32[2]), TypeError, "must have the query's dtype, .* got query float64, key float32"),
        ((f32[0], f32[1], v), TypeError, "got query float32, key float32, value float64"),
        ((q.astype(np.float16), f32[1], f32[2]), TypeError, "got query float16, key float32"),
        ((q[0], k, v), ValueError, r"same number of axes, .* got query \(3, 7, 5\), key \(2, 3, 7, 5\)"),
        ((q[0, 0, 0], k[0, 0, 0], v[0, 0, 0]), ValueError, "same number of axes, 2 or more"),
        ((q[..., :0], k[..., :0], v), ValueError, "head size D must be at least 1, got query"),
        ((q, k[..., :4], v), ValueError,
         r"key must have the query's head size, got key \(2, 3, 7, 4\) for query \(2, 3, 7, 5\)"),
        ((q, k[:, :, :6], v), ValueError, "same number of tokens, got query"),
        ((q, k[:, :2], v[:, :2]), ValueError, "heads must be a multiple of the key's, got"),
        ((q, k, v[:, :1]), ValueError, "key and value must have the same number of heads"),
        ((q, k[:, :0], v[:, :0]), ValueError, "heads must be a multiple"),
        ((q, np.concatenate([k, k[:1]]), v), ValueError, "axes before the heads must broadcast, got"),
    ],
)  # fmt: skip
def test_arrays(call, arrays, error, says):
    with pytest.raises(error, match=says):
        call(*arrays)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (dict(causal=1), TypeError, "causal must be True or False, got 1"),
        (dict(scale="1"), TypeError, "scale must be a number, got str"),
        (dict(scale=True), TypeError, "scale must be a number, got bool"),
        (dict(scale=np.inf), ValueError, "scale must be finite, got inf"),
        (dict(scale=np.nan), ValueError, "scale must be finite, got nan"),
        (dict(scale=10**400), ValueError, "scale must be finite"),
        (dict(softcap=10**400), ValueError, "softcap must be finite"),
        (dict(align=[[1], [2, 3]], causal=True), ValueError, "align must be"),
        (dict(softcap=0), ValueError, "softcap must be greater than 0, got 0"),
        (dict(softcap=-2.0), ValueError, "softcap must be greater than 0, got -2.0"),
        (dict(softcap=np.inf), ValueError, "softcap must be finite, got inf"),
        (dict(align="middle", causal=True), ValueError, "align must be 'top-left', .* got 'middle'"),
        (dict(align="middle"), ValueError, "align must be 'top-left', .* got 'middle'"),
        (dict(align=1.5, causal=True), ValueError, "align must be .* got 1.5"),
        (dict(align=True, causal=True), ValueError, "align must be .* got True"),
        (dict(align=2**62, causal=True), ValueError, "align must be"),
        (dict(align=[1, 2, 3], causal=True), ValueError, r"one for each sequence \(2,\), got \(3,\)"),
        (dict(engine="cuda"), ValueError, "engine must be None or one of 'reference', 'tiled'.*, got 'cuda'"),
        (dict(engine="native-pdp11"), ValueError, "engine must be None or one of"),
        (dict(engine=3), ValueError, "got 3"),
        (dict(mask=[True]), TypeError, "mask must be a bool array or a mask of regard.masks, got list"),
        (dict(mask="causal"), TypeError, "got str"),
        (dict(mask=np.ma.array(np.ones((7, 7), bool))), TypeError, "mask must be a bool array"),
        (dict(mask=np.tril(np.ones((7, 7)))), TypeError,
         r"mask must be bool, True = seen, got float64: pass mask=mask.astype\(bool\)$"),
        (dict(mask=np.ones((2, 7), int)), TypeError,
         r"got int64: pass mask=mask.astype\(bool\)\[:, None, None, :\]"),
        (dict(mask=np.full((7, 7), -1e4)), TypeError, "got float64: .* is a bias, pass it as bias="),
        (dict(mask=np.ones((5, 7), bool)), ValueError,
         r"mask must broadcast to \(\*lead, H, Nq, Nk\) = \(2, 3, 7, 7\), got \(5, 7\)$"),
        (dict(mask=np.ones((2, 7, 7), bool)), ValueError,
         r"a 3-D mask is \(H, Nq, Nk\); for one a batch row pass mask\[:, None\]"),
        (dict(mask=np.ones((2, 7), bool)), ValueError, r"pass mask\[:, None, None, :\]"),
        (dict(mask=np.ones((1, 2, 3, 7, 7), bool)), ValueError, "mask must broadcast"),
        (dict(bias=np.ones((7, 7), bool)), TypeError, "bias must be a float array, got bool: .* mask="),
        (dict(bias=np.ones((7, 7), int)), TypeError, "bias must be a float array, got int64"),
        (dict(bias=1.0), TypeError, "bias must be a float array or biases.alibi, got float"),
        (dict(bias=np.ones((7, 5))), ValueError, r"bias must broadcast .* got \(7, 5\)"),
        (dict(bias=np.ones((2, 7, 7))), ValueError, r"a 3-D bias is \(H, Nq, Nk\)"),
        (dict(bias=regard.biases.alibi(np.ones(2))), ValueError,
         r"slopes must hold one number for each query head, \(3,\), got \(2,\)"),
        (dict(sinks=np.ones(2)), ValueError, r"sinks must hold one number .* \(3,\), got \(2,\)"),
        (dict(sinks=np.ones(3, int)), TypeError, r"sinks must be a float array \(H,\), got int64 array"),
        (dict(sinks=1.0), TypeError, "sinks must be a float array .* got float"),
        (dict(sinks=np.array([0, np.nan, 0])), ValueError, "sinks must be finite, or -inf for none"),
        (dict(sinks=np.array([0, np.inf, 0])), ValueError, "sinks must be finite"),
    ],
)  # fmt: skip
def test_options(call, options, error, says):
    with pytest.raises(error, match=says):
        call(q, k, v, **options)


@pytest.mark.parametrize("call", CALLS)
def test_the_article_s_four_arrays_are_pointed_to_the_reference(call):
    X, Wq, Wk, Wv = draw(1, (7, 11), (11, 5), (11, 5), (11, 5))
    with pytest.raises(
        TypeError, match=r"X, Wq, Wk, Wv\) of the article is regard.reference.attention"
    ):
        call(X, Wq, Wk, Wv)


out = np.zeros((2, 3, 7, 11))


def read_only():
    x = out.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        (np.ma.array(out), TypeError, "out must be a NumPy array, got numpy.ma"),
        ([1.0], TypeError, "out must be a NumPy array, got list"),
        (out[..., :5], ValueError, r"out must be \(2, 3, 7, 11\) of float64, got \(2, 3, 7, 5\)"),
        (out.astype(np.float32), ValueError, "out must be .* got .* of float32"),
        (read_only(), ValueError, "out must be writeable"),
        (np.broadcast_to(out[:1], out.shape), ValueError, "writeable|overlap itself"),
        (np.lib.stride_tricks.as_strided(out, out.shape, (0, *out.strides[1:])), ValueError,
         "out must not overlap itself"),
        (np.lib.stride_tricks.as_strided(out, out.shape, (*out.strides[:3], 4)), ValueError,
         "out must not overlap itself"),
    ],
)  # fmt: skip
def test_out(bad, error, says):
    with pytest.raises(error, match=says):
        regard.attention(q, k, v, out=bad)


@pytest.mark.parametrize("name", ["query", "key", "value", "bias", "sinks", "mask"])
def test_out_must_not_overlap_an_input(name):
    store = np.ones((2, 3, 7, 22))
    arrays = {"query": store[..., :11], "key": store[..., :11] * 1, "value": store[..., :11] * 1}
    options = {"bias": np.ones((2, 3, 7, 7)), "sinks": np.ones(3), "mask": np.ones((7, 7), bool)}
    shared = {**arrays, **options}[name]
    if name in arrays:
        arrays[name] = shared = store[..., :11]
        apart, over = store[..., 11:], store[..., 5:16]
        if name == "query":  # side by side in one buffer is no overlap
            regard.attention(*arrays.values(), out=apart)
    else:
        raw = np.ones(2 * 3 * 7 * 11)
        over = raw.reshape(2, 3, 7, 11)
        shared = raw.view(shared.dtype)[: shared.size].reshape(shared.shape)
        options = {name: shared}
    options = {} if name in arrays else options
    with pytest.raises(ValueError, match="out must not overlap an input"):
        regard.attention(*arrays.values(), **options, out=over)


def test_out_may_not_be_the_memory_of_a_bias_in_foreign_byte_order():
    bias = np.ones((7, 7), ">f8")
    arrays = draw_call(2, lead=(), H=1, Nq=7, Nk=7, Dv=7)
    over = bias.view("f8").reshape(1, 7, 7)
    with pytest.raises(ValueError, match="out must not overlap an input"):
        regard.attention(*arrays, bias=bias, out=over)


def test_a_square_mask_that_may_be_a_tokenizer_s_gets_both_ways():
    arrays = draw_call(3, lead=(7,), H=1, Nq=7, Nk=7)
    with pytest.raises(TypeError, match=r"mask=mask.astype\(bool\) if it is \(Nq, Nk\) or mask="):
        regard.attention(*arrays, mask=np.tril(np.ones((7, 7))))


def test_look_of_a_key_that_is_a_number():
    with pytest.raises(ValueError, match="same number of axes"):
        regard.look(q, np.array(1.0))


def test_what_explain_counts():
    assert regard.explain(q, k, v).seen == regard.explain(q, k, v).pairs == 2 * 3 * 49
    assert regard.explain(q, k, v, causal=True).seen == 6 * 28
    assert regard.explain(q, k, v, mask=regard.masks.interval(5, 2)).seen == 0
    told = regard.explain(q, k, v, mask=np.tri(7, dtype=bool))
    assert "at most 100.0%" in str(told)
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2**32, 1), (0, 0))
    for engine in ("reference", "tiled"):
        told = regard.explain(huge, huge, huge, engine=engine)
        assert told.pairs == 2**64
        assert told.memory > 2**32
    nearly = np.zeros((500, 1), np.float32)  # 998,000 bytes of scores, in three digits
    assert "would be 998 kB" in str(regard.explain(nearly[:499], nearly, nearly))


def test_an_error_computes_nothing():
    kept = out.copy()
    with pytest.raises(ValueError, match="softcap"):
        regard.attention(q, k, v, softcap=-1, out=kept)
    np.testing.assert_array_equal(kept, out)
