"""Rotary positions: against the paper's rotation, and against transformers for the scalings."""

import numpy as np
import pytest
from helpers import draw

import regard
from regard import rotary as rotary_function
from regard.rotary import NTK, Linear, Llama3, YaRN, table

SCALINGS = [Linear(3.0), NTK(5.0), Llama3(8.0, 1.0, 4.0, 8192), YaRN(7.0, 4096)]


def by_complex_numbers(x, positions, base, pairing):
    """The rotation as the paper has it: a product with exp(i·m·θ)."""
    D = x.shape[-1]
    turn = np.exp(1j * positions[:, None] * base ** (-2 * np.arange(D // 2) / D))
    pairs = (
        x.reshape(*x.shape[:-1], D // 2, 2)
        if pairing == "interleaved"
        else x.reshape(*x.shape[:-1], 2, D // 2).swapaxes(-2, -1)
    )
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * turn
    both = np.stack([turned.real, turned.imag], axis=-1)
    return (
        both.reshape(x.shape)
        if pairing == "interleaved"
        else both.swapaxes(-2, -1).reshape(x.shape)
    )


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_pairs_are_turned(pairing):
    (x,) = draw(1, (2, 3, 5, 14))
    positions = np.array([0, 1, 7, 1000, 31])
    actual = regard.rotary(x, positions, base=500.0, pairing=pairing)
    np.testing.assert_allclose(actual, by_complex_numbers(x, positions, 500.0, pairing), atol=1e-12)


@pytest.mark.parametrize("scaling", [None, *SCALINGS])
def test_scores_know_only_the_distance(scaling):
    q, k = draw(2, (1, 64), (1, 64))

    def score(i, j):
        return (
            rotary_function(q, [i], scaling=scaling) @ rotary_function(k, [j], scaling=scaling).T
        )[0, 0]

    assert score(17, 5) == pytest.approx(score(1017, 1005), abs=1e-9)
    assert score(17, 5) != pytest.approx(score(18, 5), abs=1e-3)


def test_positions_of_each_sequence():
    (x,) = draw(3, (2, 3, 5, 6))
    positions = np.array([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    both = regard.rotary(x, positions)
    for b in range(2):
        np.testing.assert_array_equal(both[b], regard.rotary(x[b], positions[b]))
    np.testing.assert_array_equal(regard.rotary(x[0], np.zeros(5, int)), x[0])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_narrow_rows_are_turned_in_float32_and_rounded_once(name):
    dtype = np.dtype(name) if name != "bfloat16" else pytest.importorskip("ml_dtypes").bfloat16
    x = draw(4, (3, 5, 8))[0].astype(dtype)
    actual = regard.rotary(x, np.arange(5))
    expected = regard.rotary(x.astype(np.float32), np.arange(5)).astype(dtype)
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, expected)


def config(kind, D, base, **parameters):
    transformers = pytest.importorskip("transformers")
    return transformers.LlamaConfig(
        hidden_size=D, num_attention_heads=1, head_dim=D, max_position_embeddings=parameters.pop("longest", 4096),
        rope_parameters={"rope_type": kind, "rope_theta": base, **parameters},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("scaling", "kind", "parameters"),
    [
        (Linear(3.0), "linear", {"factor": 3.0}),
        (
            Llama3(8.0, 1.0, 4.0, 8192),
            "llama3",
            {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        ),
        (YaRN(7.0, 4096), "yarn", {"factor": 7.0, "original_max_position_embeddings": 4096}),
        (
            YaRN(4.0, 1024, 16.0, 2.0, 1.3, whole=False),
            "yarn",
            {"factor": 4.0, "original_max_position_embeddings": 1024, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.3, "truncate": False},
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("D", [64, 128])
def test_scalings_are_those_of_transformers(scaling, kind, parameters, D):
    pytest.importorskip("torch")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    for base in (10_000.0, 500_000.0):
        expected, amplitude = ROPE_INIT_FUNCTIONS[kind](config(kind, D, base, **parameters), "cpu")
        actual = scaling.frequencies(base, D)
        np.testing.assert_allclose(actual, expected.numpy(), rtol=3e-6)
        assert scaling.amplitude == pytest.approx(amplitude, rel=1e-12)


def test_ntk_is_transformers_dynamic_one_at_a_length():
    pytest.importorskip("torch")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    settings = config("dynamic", 64, 10_000.0, longest=100, factor=2.0)
    expected, _ = ROPE_INIT_FUNCTIONS["dynamic"](settings, "cpu", seq_len=300)
    actual = NTK(2.0 * 300 / 100 - (2.0 - 1)).frequencies(10_000.0, 64)
    np.testing.assert_allclose(actual, expected.numpy(), rtol=3e-6)


def test_yarn_makes_rows_larger():
    cosine, sine = table(np.arange(7), 16, scaling=YaRN(4.0, 100))
    np.testing.assert_allclose(np.hypot(cosine, sine), 0.1 * np.log(4.0) + 1)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        ((np.zeros((5, 7)), np.arange(5)), {}, ValueError, r"x must be \(…, N, D\) with D even, got \(5, 7\)"),
        ((np.zeros(6), [0]), {}, ValueError, "x must be"),
        ((np.zeros((5, 6), int), np.arange(5)), {}, TypeError, "x must be an array of floats, got int64"),
        (([[1.0, 2.0]], [0]), {}, TypeError, "x must be an array of floats"),
        ((np.zeros((5, 6)), np.arange(4)), {}, ValueError, r"one for each row of x \(5, 6\), got \(4,\)"),
        ((np.zeros((5, 6)), np.arange(5.0)), {}, TypeError, "positions must be an array of int, got float64"),
        ((np.zeros((5, 6)), 3), {}, TypeError, "positions must be an array of int"),
        ((np.zeros((5, 6)), np.arange(5)), {"pairing": "even"}, ValueError, "pairing must be one of half, interleaved, got 'even'"),
        ((np.zeros((5, 6)), np.arange(5)), {"base": 1.0}, ValueError, "base must be finite and greater than 1, got 1.0"),
        ((np.zeros((5, 2)), np.arange(5)), {"scaling": NTK(2.0)}, ValueError, "D must be 4 or more for NTK, got 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_turned(arguments, options, error, says):
    with pytest.raises(error, match=says):
        rotary_function(*arguments, **options)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Linear(0.0), "factor must be finite and greater than 0, got 0.0"),
        (lambda: YaRN(2.0, 4096, attention=-1.0), "attention must be finite and greater than 0"),
        (lambda: Llama3(8.0, 4.0, 4.0, 8192), "low must be less than high, got 4.0 and 4.0"),
    ],
)
def test_scalings_that_make_no_sense(make, says):
    with pytest.raises(ValueError, match=says):
        make()
