"""The steps of a transformer beside attention: activations and norms, in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .predicates import Array

__all__ = ["ACTIVATIONS", "gelu", "gelu_tanh", "layer_norm", "relu"]

CHUNK = 2**15  # elements that stay in cache between the passes over them

# ½·erfc(a/√2)·exp(a²/2) = t·P(t) with t = 1/(1 + 0.35·a), for a in [0, 14.5]. P is fitted by
# weighted least squares, the weights raised where the relative error was largest (Lawson's
# method), against 40-digit values: relative error 3.2e-8, below that of float32 itself.
TAIL = (
    0.139621307, 0.139863515, 0.119821288, 0.105552501, -0.0232123521,
    0.159319694, -0.255839003, 0.144030919, -0.0291578857,
)  # fmt: skip
END = 14.5  # beyond it the tail is less than float32 can hold


def gelu(x: Array) -> Array:
    """x · Φ(x), Φ the normal distribution function: the exact GELU, to float32 precision.

    Parameters
    ----------
    x : float32 array

    Returns
    -------
    float32 array
        Largest error 2e-7 · max(1, |x|).

    Examples
    --------
    >>> gelu(np.array([-1.0, 0.0, 2.0], np.float32)).round(4)
    array([-0.1587,  0.    ,  1.9545], dtype=float32)

    References
    ----------
    Hendrycks & Gimpel, "Gaussian Error Linear Units", 2016.
    """
    return _in_chunks(_gelu, x)


def gelu_tanh(x: Array) -> Array:
    """GELU by its authors' approximation with tanh, which some models were trained with."""
    return _in_chunks(lambda x: x / 2 * (1 + np.tanh(x * (0.79788456 + 0.035677408 * x * x))), x)


def relu(x: Array) -> Array:
    """max(x, 0)."""
    return np.maximum(x, 0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": relu,
}


def layer_norm(x: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    """Each row of x (…, D) with mean 0 and variance 1, then times weight (D,) plus bias (D,).

    References
    ----------
    Ba, Kiros, Hinton, "Layer Normalization", 2016.
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.einsum("...d,...d->...", centred, centred)[..., None] / x.shape[-1]
    centred *= 1 / np.sqrt(variance + x.dtype.type(epsilon))
    centred *= weight
    centred += bias
    return centred


def _gelu(x: Array) -> Array:
    a = np.minimum(np.abs(x), x.dtype.type(END))
    t = 1 / (1 + a * x.dtype.type(0.35))
    tail = np.full_like(t, TAIL[-1])  # becomes a · (1 - Φ(a)), the distance from max(x, 0)
    for coefficient in TAIL[-2::-1]:
        tail *= t
        tail += x.dtype.type(coefficient)
    tail *= t
    tail *= a
    a *= a
    tail *= np.exp(a * x.dtype.type(-0.5))
    return np.maximum(x, 0) - tail


def _in_chunks(function: Callable[[Array], Array], x: Array) -> Array:
    result = np.empty(x.shape, x.dtype)
    flat, out = x.reshape(-1), result.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        part = slice(start, start + CHUNK)
        out[part] = function(flat[part])
    return result
