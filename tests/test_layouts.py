"""Arrays of every dtype, of length 0, and laid out in any way, on every engine."""

import numpy as np
import pytest
from helpers import ENGINES, draw, draw_call

import regard

pytestmark = pytest.mark.parametrize("engine", ENGINES)
NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("query_too", [True, False])
def test_16_bit_is_widened_computed_in_float32_and_rounded_once(engine, name, query_too):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    q, k, v = draw_call(31, dtype=dtype)
    q = q if query_too else q.astype(np.float32)
    attended = regard.look(q, k, v, engine=engine)
    wide = regard.look(*(x.astype(np.float32) for x in (q, k, v)), engine=engine)
    assert attended.output.dtype == q.dtype
    assert attended.lse.dtype == attended.weights.dtype == np.float32
    np.testing.assert_array_equal(attended.output, wide.output.astype(q.dtype))
    np.testing.assert_array_equal(attended.lse, wide.lse)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_of_results(engine, dtype):
    attended = regard.look(*draw_call(32, dtype=dtype), engine=engine)
    weights = attended.weights[...]
    assert attended.output.dtype == attended.lse.dtype == weights.dtype == dtype


@pytest.mark.parametrize("lengths", [dict(Nk=0), dict(Nq=0), dict(Dv=0), dict(H=0), dict(lead=(0,)),
                                     dict(Nq=0, Nk=0), dict(lead=(2, 0, 3))])  # fmt: skip
def test_axes_of_length_zero(engine, lengths):
    q, k, v = draw_call(33, **lengths)
    attended = regard.look(q, k, v, engine=engine)
    assert attended.output.shape == (*q.shape[:-1], v.shape[-1])
    assert attended.weights.shape == (*q.shape[:-1], k.shape[-2])
    np.testing.assert_array_equal(attended.output, 0 if k.shape[-2] == 0 else attended.output)
    if k.shape[-2] == 0:
        np.testing.assert_array_equal(attended.lse, -INF)
    assert np.asarray(attended.weights).shape == attended.weights.shape


def odd_layouts(x):
    """The numbers of x in every kind of layout."""
    yield "transposed", np.ascontiguousarray(x.swapaxes(-2, -1)).swapaxes(-2, -1)
    yield "heads inside", np.ascontiguousarray(x.swapaxes(-3, -2)).swapaxes(-3, -2)
    yield "Fortran", np.asfortranarray(x)
    yield "negative", np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1]
    spaced = np.full((*x.shape[:-1], 2 * x.shape[-1]), NAN, x.dtype)
    spaced[..., ::2] = x
    yield "every other", spaced[..., ::2]
    yield "big-endian", x.astype(x.dtype.newbyteorder(">"))
    raw = np.zeros(x.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    yield "unaligned", unaligned
    record = np.zeros(x.shape, np.dtype([("pad", np.uint8), ("x", x.dtype)]))
    record["x"] = x
    yield "odd stride", record["x"]
    read_only = x.copy()
    read_only.flags.writeable = False
    yield "read-only", read_only


@pytest.mark.parametrize("Nq", [1, 7])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_any_strides_give_the_bits_of_the_contiguous_copy(engine, which, Nq):
    arrays = draw_call(34, Nq=Nq, dtype=np.float32)
    expected = regard.look(*arrays, engine=engine)
    for name, layout in odd_layouts(arrays[which]):
        given = [*arrays[:which], layout, *arrays[which + 1 :]]
        attended = regard.look(*given, engine=engine)
        np.testing.assert_array_equal(attended.output, expected.output, err_msg=name)
        np.testing.assert_array_equal(
            np.asarray(attended.weights), np.asarray(expected.weights), err_msg=name
        )


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_stride_zero_gives_the_bits_of_the_contiguous_copy(engine, which, axis):
    arrays = draw_call(35, dtype=np.float32)
    x = np.broadcast_to(arrays[which].take([0], axis), arrays[which].shape)
    given = [*arrays[:which], x, *arrays[which + 1 :]]
    copied = [*arrays[:which], x.copy(), *arrays[which + 1 :]]
    np.testing.assert_array_equal(
        regard.attention(*given, engine=engine), regard.attention(*copied, engine=engine)
    )


def test_strided_masks_and_biases(engine):
    q, k, v = draw_call(36)
    (x,) = draw(37, (2, 3, 7, 7))
    for name, layout in odd_layouts(x):
        np.testing.assert_array_equal(
            regard.attention(q, k, v, bias=layout, engine=engine),
            regard.attention(q, k, v, bias=x, engine=engine),
            err_msg=name,
        )
    flipped = np.ascontiguousarray((x > 0)[..., ::-1])[..., ::-1]
    np.testing.assert_array_equal(
        regard.attention(q, k, v, mask=flipped, engine=engine),
        regard.attention(q, k, v, mask=x > 0, engine=engine),
    )


def test_out_takes_the_output(engine):
    q, k, v = draw_call(40, dtype=np.float32)
    expected = regard.attention(q, k, v, engine=engine)
    store = np.zeros((2, 7, 3, 11), np.float32)
    out = store.swapaxes(1, 2)
    assert regard.attention(q, k, v, out=out, engine=engine) is out
    np.testing.assert_array_equal(out, expected)
    big = np.zeros(expected.shape, ">f4")
    np.testing.assert_array_equal(regard.attention(q, k, v, out=big, engine=engine), expected)
