"""The native steps on every set of this machine: right, and bits that depend on the row alone."""

import numpy as np
import pytest
from helpers import draw, wait_for_ctrl_c

import regard
from regard import elementwise, kernels
from regard.engines import native
from regard.nn import Blocks, Linear
from regard.nn.weights import BYTES
from regard.rotary import rotate, table

pytestmark = pytest.mark.skipif(not native.SETS, reason="the native engine is not built")
KINDS = list(kernels.HELD)


@pytest.fixture(params=native.SETS, autouse=True)
def each_set(request, monkeypatch):
    monkeypatch.setattr(kernels, "SET", request.param)


def weights_of(kind, seed, out, into):
    """Weights as they are held, and in float64."""
    rng = np.random.default_rng(seed)
    if kind in BYTES:
        raw = rng.integers(0, 256, (out, into // 32, BYTES[kind]), np.uint8)
        for at in (0, 2)[: 2 if kind == "Q4_1" else 1]:  # scales and least values, of their sizes
            raw[:, :, at : at + 2] = (
                rng.normal(0, 0.1, (*raw.shape[:2], 1)).astype(np.float16).view(np.uint8)
            )
        blocks = Blocks(raw.reshape(out, -1), kind, (out, into))
        return blocks, blocks.rows().astype(np.float64)
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if kind == "bfloat16" else kind
    weight = rng.uniform(-2, 2, (out, into)).astype(dtype)
    return weight, weight.astype(np.float64)


def check(x, weight, wide, bias=None):
    """To within what adding up in any order in float32 may lose, and a little."""
    y = Linear(weight, bias)(x)
    exact = x.astype(float) @ wide.T + (0 if bias is None else bias)
    size = np.abs(x).astype(float) @ np.abs(wide).T + 1
    assert np.all(np.abs(y - exact) <= size * 2.0**-24 * (4 + x.shape[-1] / 4))
    return y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("into", [32, 96, 416])
@pytest.mark.parametrize("out", [1, 23, 24, 25, 49, 101])
def test_products_around_the_sizes_of_blocks(kind, into, out):
    weight, wide = weights_of(kind, 1, out, into)
    x, bias = draw(2, (101, into), (out,), dtype=np.float32)
    for rows in (1, 2, 3, 4, 5, 8, 47, 49, 101):
        check(x[:rows], weight, wide, bias)


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("into", [1, 2, 7, 8, 31, 33, 63, 385, 777])
def test_products_of_odd_depths(kind, into):
    weight, wide = weights_of(kind, 3, 29, into)
    (x,) = draw(4, (53, into), dtype=np.float32)
    for rows in (1, 3, 53):
        check(x[:rows], weight, wide)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("into", [64, 800])
def test_a_rows_bits_are_its_own(kind, into):
    weight, _ = weights_of(kind, 5, 1201, into)
    (x,) = draw(6, (113, into), dtype=np.float32)
    layer, threads = Linear(weight), regard.get_num_threads()
    whole = layer(x)
    for rows in (1, 2, 3, 4, 5, 11):
        np.testing.assert_array_equal(layer(x[:rows]), whole[:rows])
    np.testing.assert_array_equal(layer(x[57]), whole[57])
    np.testing.assert_array_equal(layer.part(slice(31, 70))(x[:7]), whole[:7, 31:70])
    x[:-1] = np.nan
    np.testing.assert_array_equal(layer(x)[-1], whole[-1])
    try:
        for n in (1, 2, 3, 5):
            regard.set_num_threads(n)
            np.testing.assert_array_equal(layer(x[-1:]), whole[-1:])
            np.testing.assert_array_equal(layer(x)[-1], whole[-1])
    finally:
        regard.set_num_threads(threads)


@pytest.mark.parametrize("kind", KINDS)
def test_narrow_weights_have_the_bits_of_wide_ones(kind):
    weight, wide = weights_of(kind, 7, 67, 288)
    (x,) = draw(8, (61, 288), dtype=np.float32)
    for rows in (1, 4, 61):
        np.testing.assert_array_equal(
            Linear(weight)(x[:rows]), Linear(wide.astype(np.float32))(x[:rows])
        )


def test_weights_of_any_strides_and_places():
    (x, w) = draw(9, (5, 45), (37, 90), dtype=np.float32)
    expected = Linear(np.ascontiguousarray(w[::2, :45]))(x)
    np.testing.assert_array_equal(Linear(w[::2, :45])(x), expected)
    np.testing.assert_array_equal(Linear(w[::-1, :45][::2][::-1])(x), expected)
    np.testing.assert_array_equal(Linear(np.asfortranarray(w[::2, :45]))(x), expected)
    np.testing.assert_array_equal(Linear(w[::2, :45].astype(">f4"))(x), expected)
    shifted = np.empty(37 * 90 * 4 + 1, np.uint8)[1:].view(np.uint8)
    shifted[:] = w.view(np.uint8).ravel()
    unaligned = np.ndarray((37, 90), np.float32, shifted)
    np.testing.assert_array_equal(Linear(unaligned[::2, :45])(x), expected)
    np.testing.assert_array_equal(Linear(w[::2, :45])(np.asfortranarray(x)), expected)


@pytest.mark.parametrize("rows", [1, 9])
def test_what_is_not_finite_stays_in_its_row_and_column(rows):
    (x, w) = draw(10, (rows, 51), (29, 51), dtype=np.float32)
    plain = Linear(w)(x)
    w[3, 50] = np.inf
    x[-1, 7] = np.nan
    y = Linear(w)(x)
    assert np.isnan(y[-1]).all()
    others = np.delete(y[:-1], 3, axis=1)
    np.testing.assert_array_equal(others, np.delete(plain[:-1], 3, axis=1))
    assert not np.isfinite(y[:, 3]).any()


def test_nothing_to_add_up():
    bias = np.arange(3, dtype=np.float32)
    for rows in (2, 9):
        y = Linear(np.zeros((3, 0), np.float32), bias)(np.zeros((rows, 0), np.float32))
        np.testing.assert_array_equal(y, [bias] * rows)
    assert Linear(np.zeros((3, 5), np.float32))(np.zeros((0, 5), np.float32)).shape == (0, 3)
    assert Linear(np.zeros((0, 5), np.float32))(np.zeros((2, 5), np.float32)).shape == (2, 0)


def test_ctrl_c_stops_a_long_product_soon():
    call = "x = np.ones((8192, 2048), np.float32); regard.nn.Linear(x)(x)"  # takes seconds
    assert wait_for_ctrl_c(call, after=0.7) < 0.5  # 0.2 where nothing else runs


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("shape", [(7, 6), (3, 5, 2), (2, 3, 1, 64), (2, 0, 8)])
def test_rotated_rows_have_the_bits_of_numpys(pairing, shape):
    (x,) = draw(13, (*shape[:-3], shape[-2], *shape[-3:-2], 3 * shape[-1]), dtype=np.float32)
    x = x[..., shape[-1] : 2 * shape[-1]]  # as queries lie between others
    x = x.swapaxes(-3, -2) if len(shape) > 2 else x
    cosine, sine = (a.astype(np.float32) for a in table(np.arange(shape[-2]), shape[-1]))
    expected = rotate(x, cosine, sine, pairing=pairing)
    np.testing.assert_array_equal(elementwise.rotate(x, cosine, sine, pairing=pairing), expected)
    assert x.shape == shape


def test_a_gate_of_rows_that_lie_apart():
    (both,) = draw(14, (701, 2 * 211), low=-9, high=9, dtype=np.float32)
    threads = regard.get_num_threads()
    gate, up = both[:, :211], both[:, 211:]
    whole = elementwise.silu_gate(np.ascontiguousarray(gate), np.ascontiguousarray(up))
    try:
        for n in (1, 3):
            regard.set_num_threads(n)
            np.testing.assert_array_equal(elementwise.silu_gate(gate, up), whole)
            np.testing.assert_array_equal(elementwise.silu_gate(gate[::2], up[::2]), whole[::2])
            np.testing.assert_array_equal(elementwise.silu_gate(gate[:1], up[:1]), whole[:1])
    finally:
        regard.set_num_threads(threads)


def test_a_processor_is_never_asked_for_what_it_lacks():
    with pytest.raises(ValueError, match="this processor has no native-riscv"):
        native._native.step(
            "native-riscv",
            0,
            np.zeros((1, 1), np.float32),
            None,
            np.zeros(1, np.float32),
            lambda: 1,
        )


def test_steps_do_not_depend_on_threads_or_places():
    x, other = draw(11, (1031, 211), (1031, 211), low=-9, high=9, dtype=np.float32)
    threads = regard.get_num_threads()
    from regard import elementwise as e

    weight, bias = draw(12, (211,), (211,), dtype=np.float32)
    functions = [
        e.gelu, e.gelu_tanh, e.silu, e.softmax, lambda a: e.layer_norm(a, weight, bias, 1e-5),
        lambda a: e.rms_norm(a, weight, 1e-5), lambda a: e.layer_norm(a, weight, None, 1e-5, residual=other[: len(a)]),
    ]  # fmt: skip
    try:
        for function in functions:
            regard.set_num_threads(1)
            alone = function(x)
            regard.set_num_threads(3)
            np.testing.assert_array_equal(function(x), alone)
            np.testing.assert_array_equal(function(x[:5]), alone[:5])
            np.testing.assert_array_equal(function(np.asfortranarray(x)), alone)
    finally:
        regard.set_num_threads(threads)
