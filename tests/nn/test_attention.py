"""The layer against the loop over heads, PyTorch's layer, and itself token by token."""

from functools import partial

import numpy as np
import pytest
from helpers import draw

import regard
from regard import reference
from regard.nn import Linear, MultiHeadAttention


def heads(seed, NH=3, depth=14, context=14, HS=5, HV=7):
    return draw(seed, (NH, depth, HS), (NH, context, HS), (NH, context, HV), (NH * HV, depth))


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_the_loop_over_heads(causal):
    Wq, Wk, Wv, Wp = heads(1)
    (x,) = draw(2, (2, 11, 14))
    layer = MultiHeadAttention.from_heads(Wq, Wk, Wv, Wp)
    expected = reference.multihead_attention_list(x, Wq, Wk, Wv, Wp, do_mask=causal)
    np.testing.assert_allclose(layer(x, causal=causal), expected, atol=1e-12)
    np.testing.assert_allclose(layer(x[0], causal=causal), expected[0], atol=1e-12)
    assert layer.packed is not None
    assert np.shares_memory(layer.key.weight, layer.packed.weight)


@pytest.mark.parametrize("context", [14, 17])
def test_cross_attention_is_the_loop_over_heads(context):
    Wq, Wk, Wv, Wp = heads(3, context=context)
    xq, xv = draw(4, (2, 5, 14), (2, 11, context))
    layer = MultiHeadAttention.from_heads(Wq, Wk, Wv, Wp)
    expected = reference.multihead_cross_attention_list(xq, xv, Wq, Wk, Wv, Wp)
    np.testing.assert_allclose(layer(xq, xv), expected, atol=1e-12)


@pytest.mark.parametrize("biased", [False, True])
def test_it_is_the_layer_of_torch(biased):
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    peer = torch.nn.MultiheadAttention(15, 5, bias=biased, batch_first=True)
    if biased:
        torch.nn.init.normal_(peer.in_proj_bias)
        torch.nn.init.normal_(peer.out_proj.bias)
    arrays = [
        None if t is None else t.detach().numpy()
        for t in (peer.in_proj_weight, peer.in_proj_bias, peer.out_proj.weight, peer.out_proj.bias)
    ]
    layer = MultiHeadAttention.from_torch(*arrays, heads=5)
    x, context = draw(6, (2, 7, 15), (2, 11, 15), dtype=np.float32)
    for other in (x, context):
        with torch.no_grad():
            expected, weights = peer(
                *map(torch.from_numpy, (x, other, other)), average_attn_weights=False
            )
        np.testing.assert_allclose(layer(x, None if other is x else other), expected, atol=1e-5)
        looked = layer.look(x, None if other is x else other)
        np.testing.assert_allclose(np.asarray(looked.weights), weights, atol=1e-6)


def grouped(seed):
    q, k, v, o = draw(seed, (6 * 4, 13), (2 * 4, 13), (2 * 7, 13), (13, 6 * 7), dtype=np.float32)
    return MultiHeadAttention(Linear(q), Linear(k), Linear(v), Linear(o), 6, kv_heads=2)


def test_grouped_heads_are_repeated_ones():
    layer = grouped(7)
    (x,) = draw(8, (2, 5, 13), dtype=np.float32)
    q, k, v = layer.split(x)
    assert (q.shape, k.shape, v.shape) == ((2, 6, 5, 4), (2, 2, 5, 4), (2, 2, 5, 7))
    repeated = regard.attention(q, np.repeat(k, 3, axis=1), np.repeat(v, 3, axis=1))
    glued = repeated.swapaxes(1, 2).reshape(2, 5, 42)
    np.testing.assert_allclose(layer(x), layer.output(glued), atol=1e-5)


def test_token_by_token_with_a_cache_and_turned_rows():
    layer = grouped(9)
    (x,) = draw(10, (2, 11, 13), dtype=np.float32)
    turn_all = partial(regard.rotary, positions=np.arange(11))
    whole = layer(x, causal=True, turn=turn_all)
    assert not np.allclose(whole, layer(x, causal=True), atol=1e-3)
    cache, parts = regard.KVCache(), []
    for begin, end in ((0, 5), (5, 6), (6, 8), (8, 11)):
        turn = partial(regard.rotary, positions=np.arange(begin, end))
        parts.append(layer(x[:, begin:end], causal=True, cache=cache, turn=turn))
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-4)


def test_no_tokens():
    assert grouped(11)(np.zeros((2, 0, 13), np.float32)).shape == (2, 0, 13)


@pytest.mark.parametrize(
    ("shapes", "options", "says"),
    [
        ([(24, 13), (8, 13), (8, 13), (13, 24)], {"heads": 6, "kv_heads": 4}, "heads must be a multiple of kv_heads, got 6 and 4"),
        ([(24, 13), (24, 13), (24, 13), (13, 24)], {"heads": 5}, "query must have a multiple of 5 outputs, got Linear"),
        ([(24, 13), (12, 13), (24, 13), (13, 24)], {"heads": 6}, "query and key must have one head size"),
        ([(24, 13), (24, 13), (24, 13), (13, 12)], {"heads": 6}, "output must take the 24 numbers of the heads"),
    ],
)  # fmt: skip
def test_what_does_not_fit(shapes, options, says):
    with pytest.raises(ValueError, match=says):
        MultiHeadAttention(*(Linear(np.zeros(s)) for s in shapes), **options)
    with pytest.raises(
        ValueError,
        match=r"in_proj_weight must be \(39, 13\), got Linear|in_proj_weight must be \(39, 13\), got \(38, 13\)",
    ):
        MultiHeadAttention.from_torch(np.zeros((38, 13)), None, np.zeros((13, 13)), None, 1)
