"""Activations and norms against the definitions, in float64."""

import math

import numpy as np
import pytest
from helpers import draw

from regard import elementwise


def test_gelu_is_x_times_the_normal_distribution_function():
    x = np.concatenate([np.linspace(-20, 20, 40_001), np.linspace(-1e-3, 1e-3, 2001)])
    x = x.astype(np.float32)
    exact = np.array([float(v) * 0.5 * math.erfc(-float(v) / math.sqrt(2)) for v in x])
    error = np.abs(elementwise.gelu(x) - exact)
    assert np.max(error / np.maximum(1, np.abs(exact))) < 2e-7
    tail = x < -1  # small results keep their digits
    large_enough = tail & (np.abs(exact) > 1e-30)
    assert np.max(error[large_enough] / np.abs(exact[large_enough])) < 2e-5


@pytest.mark.parametrize("name", ["gelu", "relu", "gelu_new"])
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
