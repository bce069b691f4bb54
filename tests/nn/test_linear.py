"""Products with weights as they are held, against the same product in float64."""

import numpy as np
import pytest
from helpers import draw

from regard.nn import Blocks, Embedding, Linear

KINDS = ["float32", "float64", "float16", "bfloat16", "Q4_0", "Q4_1", "Q8_0"]
BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}


def held(seed, kind, out, into):
    """Weights of a kind, and what they are in float64."""
    if kind in BYTES:
        gguf = pytest.importorskip("gguf")
        kind_there = gguf.GGMLQuantizationType[kind]
        raw = gguf.quants.quantize(draw(seed, (out, into), dtype=np.float32)[0], kind_there)
        return Blocks(raw, kind, (out, into)), gguf.quants.dequantize(raw, kind_there).astype(float)
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if kind == "bfloat16" else kind
    weight = draw(seed, (out, into))[0].astype(dtype)
    return weight, weight.astype(np.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [(1,), (5, 7), (1, 1), (0,), ()])
@pytest.mark.parametrize("biased", [False, True])
def test_it_is_the_product(kind, rows, biased):
    weight, wide = held(1, kind, 37, 96)
    x, bias = draw(2, (*rows, 96), (37,), dtype=np.float32)
    layer = Linear(weight, bias if biased else None)
    y = layer(x)
    assert y.shape == (*rows, 37)
    assert y.dtype == (np.float64 if kind == "float64" else np.float32)
    expected = x.astype(float) @ wide.T + (bias if biased else 0)
    np.testing.assert_allclose(y, expected, atol=96 * 4 * 2.0**-22)


@pytest.mark.parametrize("kind", sorted(BYTES))
def test_blocks_are_read_as_gguf_reads_them(kind):
    gguf = pytest.importorskip("gguf")
    kind_there = gguf.GGMLQuantizationType[kind]
    raw = np.random.default_rng(3).integers(0, 256, (7, 3 * BYTES[kind]), np.uint8)
    for at in range(0, raw.shape[1], BYTES[kind]):  # any bytes but scales that are not finite
        raw[:, at + 1] &= 0xBB
        raw[:, at + 3] &= 0xBB if kind == "Q4_1" else 0xFF
    blocks = Blocks(raw, kind, (7, 96))
    expected = gguf.quants.dequantize(raw, kind_there)
    np.testing.assert_array_equal(blocks.rows(), expected)
    np.testing.assert_array_equal(
        blocks.rows(np.array([[5, 2], [2, 0]])), expected[[[5, 2], [2, 0]]]
    )
    np.testing.assert_array_equal(blocks.part(slice(2, 5)).rows(), expected[2:5])
    assert blocks.nbytes == 7 * 3 * BYTES[kind]
    assert np.shares_memory(blocks.part(slice(2, 5)).raw, raw)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_and_stacks(kind):
    (a, _), (b, _) = held(4, kind, 11, 64), held(5, kind, 5, 64)
    bias_a, bias_b, x = draw(6, (11,), (5,), (3, 64), dtype=np.float32)
    first, second = Linear(a, bias_a), Linear(b, bias_b)
    both = Linear.stacked(first, second)
    np.testing.assert_allclose(both(x), np.hstack([first(x), second(x)]), atol=1e-4)
    np.testing.assert_allclose(both.part(slice(11, 16))(x), second(x), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_of_what_lies_side_by_side_is_no_copy(kind):
    whole = Linear(held(10, kind, 29, 64)[0], np.arange(29.0))
    (x,) = draw(11, (3, 64), dtype=np.float32)
    a, b, c = (whole.part(s) for s in np.s_[:7, 7:24, 24:])
    for parts in ((a, b, c), (b, c), (c, a, b), (a, c), (a, b, a)):
        stacked = Linear.stacked(*parts)
        np.testing.assert_allclose(stacked(x), np.hstack([part(x) for part in parts]), atol=1e-5)
        shared = np.shares_memory(_bits(stacked), _bits(whole))
        assert shared == (parts in ((a, b, c), (b, c)))


def _bits(layer):
    return layer.weight.raw if isinstance(layer.weight, Blocks) else layer.weight


def test_what_is_held_differently_is_not_stacked():
    a, b = held(7, "Q4_1", 11, 64)[0], held(8, "Q8_0", 5, 64)[0]
    wide = np.zeros((5, 64), np.float32)
    pairs = [
        (Linear(a), Linear(b)),
        (Linear(a), Linear(wide)),
        (Linear(wide), Linear(wide.astype(np.float16))),
        (Linear(wide), Linear(wide, np.zeros(5))),
        (Linear(wide), Linear(wide[:, :32])),
    ]
    for pair in pairs:
        with pytest.raises(
            ValueError, match=r"must be held alike to be stacked, got \(Linear\(64 → "
        ):
            Linear.stacked(*pair)


@pytest.mark.parametrize("kind", KINDS)
def test_embedding_takes_rows(kind):
    weight, wide = held(9, kind, 23, 32)
    ids = np.array([[3, 22, 0], [1, 1, 19]])
    np.testing.assert_array_equal(Embedding(weight)(ids), wide[ids])


@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (lambda: Linear(np.zeros((3, 4), int)), TypeError, "weight must be Blocks or an array of .*float64, got int64"),
        (lambda: Linear(np.zeros(3, np.float32)), ValueError, r"weight must be \(out, in\), got \(3,\)"),
        (lambda: Linear(np.zeros((3, 4), np.float32), np.zeros(4)), ValueError, r"bias must be \(3,\), got \(4,\)"),
        (lambda: Linear(np.zeros((3, 4), np.float32))(np.zeros((2, 3))), ValueError, r"x must be \(…, 4\), got \(2, 3\)"),
        (lambda: Linear(Blocks(np.zeros((3, 20), np.uint8), "Q5_1", (3, 32))), ValueError, "weight must be of type Q4_0, Q4_1, Q8_0, got 'Q5_1'"),
        (lambda: Linear(Blocks(np.zeros((3, 20), np.uint8), "Q8_0", (3, 32))), ValueError, r"must hold 34 bytes for each 32 weights of its \(3, 32\), got \(3, 20\)"),
        (lambda: Linear(Blocks(np.zeros((3, 20), np.int8), "Q4_1", (3, 32))), TypeError, "weight must hold bytes, uint8, got int8"),
        (lambda: Embedding(np.zeros((3, 4)))(np.array([3])), ValueError, r"ids must be in \[0, 3\), got 3 … 3"),
        (lambda: Embedding(np.zeros((3, 4)))(np.array([0.0])), TypeError, "ids must be an array of int, got float64"),
    ],
)  # fmt: skip
def test_what_does_not_fit(act, error, says):
    with pytest.raises(error, match=says):
        act()
