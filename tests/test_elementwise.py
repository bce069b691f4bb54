"""Activations and norms against the definitions, in float64."""

import math

import numpy as np
import pytest
from helpers import draw

from regard import elementwise, kernels
from regard.engines import native


@pytest.fixture(params=[None, *native.SETS], autouse=True)
def each_form(request, monkeypatch):
    """NumPy's form, and the kernels of each instruction set."""
    monkeypatch.setattr(kernels, "SET", request.param)


def test_gelu_is_x_times_the_normal_distribution_function():
    x = np.concatenate([np.linspace(-20, 20, 40_001), np.linspace(-1e-3, 1e-3, 2001)])
    x = x.astype(np.float32)
    exact = np.array([float(v) * 0.5 * math.erfc(-float(v) / math.sqrt(2)) for v in x])
    error = np.abs(elementwise.gelu(x) - exact)
    assert np.max(error / np.maximum(1, np.abs(exact))) < 2e-7
    tail = x < -1  # small results keep their digits
    large_enough = tail & (np.abs(exact) > 1e-30)
    assert np.max(error[large_enough] / np.abs(exact[large_enough])) < 2e-5


@pytest.mark.parametrize("name", ["gelu", "relu", "gelu_new", "silu"])
def test_activations_at_the_ends(name):
    x = np.array([-1e30, -100, 0, 100, 1e30, np.nan], np.float32)
    with np.errstate(over="ignore"):
        y = elementwise.ACTIVATIONS[name](x)
    np.testing.assert_array_equal(y, np.array([0, 0, 0, 100, 1e30, np.nan], np.float32))
    assert y.dtype == np.float32


def test_gelu_tanh_is_its_authors_formula():
    (x,) = draw(1, (1001,), low=-6, high=6)
    expected = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    actual = elementwise.gelu_tanh(x.astype(np.float32))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def test_any_shape_and_chunk(monkeypatch):
    (x,) = draw(2, (3, 5, 7), dtype=np.float32)
    whole = elementwise.gelu(x)
    monkeypatch.setattr(elementwise, "CHUNK", 11)
    np.testing.assert_array_equal(elementwise.gelu(x), whole)
    np.testing.assert_array_equal(elementwise.gelu(x.T), whole.T)
    assert elementwise.gelu(x[:0]).shape == (0, 5, 7)


def test_layer_norm():
    x, weight, bias = draw(3, (2, 5, 17), (17,), (17,))
    x[0] += 1000  # far from zero: the variance must not cancel
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    narrow = [a.astype(np.float32) for a in (x, weight, bias)]
    kept = narrow[0].copy()
    actual = elementwise.layer_norm(*narrow, 1e-5)
    np.testing.assert_allclose(actual[1], (expected * weight + bias)[1], atol=2e-6)
    np.testing.assert_allclose(actual[0], (expected * weight + bias)[0], atol=1e-3)
    np.testing.assert_array_equal(narrow[0], kept)
    assert actual.dtype == np.float32


@pytest.mark.parametrize("residual", [False, True])
def test_rms_norm(residual):
    x, other, weight = draw(4, (2, 5, 17), (2, 5, 17), (17,))
    total = x + other if residual else x
    expected = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5) * weight
    x, other, weight = (a.astype(np.float32) for a in (x, other, weight))
    actual = elementwise.rms_norm(x, weight, 1e-5, residual=other if residual else None)
    np.testing.assert_allclose(actual, expected, atol=2e-6)
    assert actual.dtype == np.float32


def test_layer_norm_of_a_sum_and_without_a_bias():
    x, other, weight = draw(5, (3, 17), (3, 17), (17,), dtype=np.float32)
    empty = np.zeros((3, 0), np.float32)
    assert elementwise.layer_norm(x[:0], weight, None, 1e-5).shape == (0, 17)
    assert elementwise.softmax(x[:0]).shape == (0, 17)
    assert elementwise.gelu(empty).shape == (3, 0)
    zero = np.zeros(17, np.float32)
    expected = elementwise.layer_norm(x + other, weight, zero, 1e-5)
    actual = elementwise.layer_norm(x, weight, None, 1e-5, residual=other)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_accuracy_in_units_of_the_last_place():
    """Against float64: what is stated in the docstrings, for small, usual and large arguments."""
    x = np.concatenate([np.linspace(-12, 12, 100_002), np.geomspace(1e-30, 1, 1001)]).astype(
        np.float32
    )
    wide = x.astype(np.float64)
    logistic = 1 / (1 + np.exp(-wide))
    cubic = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
    silu, tanh = wide * logistic, wide / (1 + np.exp(-2 * cubic))
    relative = np.abs(elementwise.silu(x) - silu) / np.abs(silu)
    assert relative.max() < 1e-6  # 6e-7 where the set has fused multiply-add
    error = np.abs(elementwise.gelu_tanh(x) - tanh)
    assert np.max(error / np.maximum(1, np.abs(tanh))) < 3e-7


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "silu", "relu"])
def test_what_is_not_finite_stays_in_its_place(name):
    x = draw(9, (7, 13), dtype=np.float32)[0]
    x[2, 3], x[4, 5] = np.nan, np.inf
    y = elementwise.ACTIVATIONS[name](x)
    assert np.isnan(y[2, 3])
    assert y[4, 5] == np.inf
    assert np.isfinite(np.delete(y, [2 * 13 + 3, 4 * 13 + 5])).all()


def test_rows_that_are_not_finite_leave_the_others():
    x, weight, bias = draw(10, (5, 37), (37,), (37,), dtype=np.float32)
    functions = [
        elementwise.softmax,
        lambda a: elementwise.layer_norm(a, weight, bias, 1e-5),
        lambda a: elementwise.rms_norm(a, weight, 1e-5),
    ]
    spoilt = x.copy()
    spoilt[1, 36], spoilt[3, 0] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        for function in functions:
            plain, y = function(x), function(spoilt)
            np.testing.assert_array_equal(y[[0, 2, 4]], plain[[0, 2, 4]])
            assert np.isnan(y[1]).all()
            assert np.isnan(y[3]).any()


def test_silu_and_its_gate():
    x, up = draw(6, (5, 101), (5, 101), low=-30, high=30)
    expected = x / (1 + np.exp(-x))
    narrow, narrow_up = x.astype(np.float32), up.astype(np.float32)
    np.testing.assert_allclose(elementwise.silu(narrow), expected, rtol=1e-5, atol=1e-6)
    actual = elementwise.silu_gate(narrow, narrow_up)
    np.testing.assert_allclose(actual, expected * up, rtol=1e-5, atol=2e-5)


def test_softmax():
    (x,) = draw(7, (3, 5, 101), low=-50, high=50)
    expected = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    actual = elementwise.softmax(x.astype(np.float32))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(actual.sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("name", ["gelu", "relu", "gelu_new", "silu"])
@pytest.mark.parametrize("turned", [False, True])
def test_out_takes_the_result(name, turned):
    (x,) = draw(8, (3, 5), dtype=np.float32)
    function = elementwise.ACTIVATIONS[name]
    expected = function(x)
    place = np.empty((5, 3), np.float32).T if turned else np.empty((3, 5), np.float32)
    assert function(x, out=place) is place
    np.testing.assert_array_equal(place, expected)
    assert function(x, out=x) is x
    np.testing.assert_array_equal(x, expected)
