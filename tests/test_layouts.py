"""Arrays laid out in any way: the result is bitwise that of the contiguous copy, on every engine."""

import numpy as np
import pytest
from helpers import ENGINES, draw, draw_call

import regard

pytestmark = pytest.mark.parametrize("engine", ENGINES)
NAN = np.nan


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
