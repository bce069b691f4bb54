"""The steps of a transformer beside attention: activations, softmax and norms.

float32 goes through the native kernels, one pass over memory each, where they are built; else, and
in float64, through the NumPy forms at the end of this file.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import kernels
from .predicates import Array
from .rotary import PAIRINGS
from .rotary import rotate as _rotate

__all__ = [
    "ACTIVATIONS",
    "gelu",
    "gelu_tanh",
    "layer_norm",
    "relu",
    "rms_norm",
    "rotate",
    "silu",
    "silu_gate",
    "softmax",
]

CHUNK = 2**15  # elements that stay in cache between the passes over them

# ½·erfc(a/√2)·exp(a²/2) = t·P(t) with t = 1/(1 + 0.35·a), for a in [0, 14.5]. P is fitted by
# weighted least squares, the weights raised where the relative error was largest (Lawson's
# method), against 40-digit values: relative error 3.2e-8, below that of float32 itself.
TAIL = (
    0.139621307, 0.139863515, 0.119821288, 0.105552501, -0.0232123521,
    0.159319694, -0.255839003, 0.144030919, -0.0291578857,
)  # fmt: skip
END = 14.5  # beyond it the tail is less than float32 can hold


def gelu(x: Array, *, out: Array | None = None) -> Array:
    """x · Φ(x), Φ the normal distribution function: the exact GELU, to float32 precision.

    Parameters
    ----------
    x : float32 array
    out : array of x's shape and dtype, optional
        Takes the result; may be x.

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
    return _each("gelu", _gelu, x, out)


def gelu_tanh(x: Array, *, out: Array | None = None) -> Array:
    """GELU by its authors' approximation with tanh, which some models were trained with.

    Largest error 3e-7 · max(1, |x|).
    """
    return _each("gelu_tanh", _gelu_tanh, x, out)


def silu(x: Array, *, out: Array | None = None) -> Array:
    """x / (1 + exp(-x)), with a relative error of 1e-6 at most.

    References
    ----------
    Elfwing, Uchibe, Doya, "Sigmoid-weighted linear units", 2017; "swish" of Ramachandran et al.
    """
    return _each("silu", _silu, x, out)


def silu_gate(gate: Array, up: Array, *, out: Array | None = None) -> Array:
    """silu(gate) · up."""
    if kernels.takes(gate, up) and gate.shape == up.shape:
        return kernels.step("silu_gate", gate, up, out)
    result = silu(gate)
    return np.multiply(result, up, out=result if out is None else out)


def relu(x: Array, *, out: Array | None = None) -> Array:
    """max(x, 0)."""
    return np.maximum(x, 0, out=out)


ACTIVATIONS: dict[str, Callable[..., Array]] = {
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": relu,
    "silu": silu,
    "swish": silu,
}


def softmax(x: Array, *, out: Array | None = None) -> Array:
    """Each row of x (…, N) as weights that sum to 1."""
    if kernels.takes(x) and x.size:
        return kernels.softmax(x, out)
    result = np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(result, out=result)
    result /= result.sum(axis=-1, keepdims=True)
    return result


def layer_norm(
    x: Array, weight: Array, bias: Array | None, epsilon: float, *, residual: Array | None = None
) -> Array:
    """Each row of x (…, D) with mean 0 and variance 1, then times weight (D,) plus bias (D,).

    With `residual` (…, D): each row of x + residual.

    References
    ----------
    Ba, Kiros, Hinton, "Layer Normalization", 2016.
    """
    if kernels.takes(x, residual, weight, bias):
        return kernels.norm(x, residual, weight, bias, epsilon, centred=True)
    x = x if residual is None else x + residual
    centred = x - x.mean(axis=-1, keepdims=True)
    centred *= 1 / np.sqrt(_mean_square(centred) + x.dtype.type(epsilon))
    centred *= weight
    if bias is not None:
        centred += bias
    return centred


def rms_norm(x: Array, weight: Array, epsilon: float, *, residual: Array | None = None) -> Array:
    """Each row of x (…, D), or of x + residual, with mean square 1, then times weight (D,).

    References
    ----------
    Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    if kernels.takes(x, residual, weight):
        return kernels.norm(x, residual, weight, None, epsilon, centred=False)
    x = x if residual is None else x + residual
    scaled: Array = x * (1 / np.sqrt(_mean_square(x) + x.dtype.type(epsilon)))
    scaled *= weight
    return scaled


def rotate(x: Array, cosine: Array, sine: Array, *, pairing: str = "half") -> Array:
    """x (…, N, D) turned by the angles (N, D/2) of its positions: `regard.rotary.rotate`."""
    if cosine.ndim == 2 and pairing in PAIRINGS and kernels.takes(x, cosine, sine):
        return kernels.rotate(x, cosine, sine, interleaved=pairing == "interleaved")
    return _rotate(x, cosine, sine, pairing=pairing)


def _each(name: str, form: Callable[[Array], Array], x: Array, out: Array | None) -> Array:
    return kernels.step(name, x, None, out) if kernels.takes(x) else _in_chunks(form, x, out)


def _mean_square(x: Array) -> Array:
    return np.einsum("...d,...d->...", x, x)[..., None] / x.dtype.type(x.shape[-1])


def _gelu_tanh(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(x * (0.79788456 + 0.035677408 * x * x)))


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


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


@np.errstate(all="ignore")
def _in_chunks(function: Callable[[Array], Array], x: Array, out: Array | None) -> Array:
    result = out if out is not None and out.flags.c_contiguous else np.empty(x.shape, x.dtype)
    source, flat = x.reshape(-1), result.reshape(-1)
    for start in range(0, source.size, CHUNK):
        part = slice(start, start + CHUNK)
        flat[part] = function(source[part])
    if out is None or out is result:
        return result
    out[...] = result
    return out
