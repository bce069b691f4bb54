"""Attention, written to be read: the specification that every engine answers to.

Plain NumPy that forms the whole score matrix. The first half holds the functions of the two
articles that started this project, under their names; the second half decides every question of
meaning (hidden pairs, empty rows, alignment, sinks) in `scaled_dot_product_attention`.

Letters
    B batch · N tokens (Nq queries, Nk keys) · D depth of a token · NH heads
    HS head size of queries and keys · HV head size of values
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .predicates import Array, causal_sees, first_position, narrow

Heads = Sequence[Array]  # one matrix a head

# --------------------------------------------------------------------------------- softmax


def softmax(x: Array, axis: int = -1) -> Array:
    """Exponentials along `axis`, divided by their sum.

    The maximum is subtracted first: the result is the same, and exp cannot overflow.

    >>> softmax(np.array([[0.0, 0.0], [1000.0, 1000.0]]))
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    x = np.asarray(x)
    if x.ndim == 0:
        raise ValueError("x must have at least one axis, got a scalar")
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    total: Array = exponentials / exponentials.sum(axis=axis, keepdims=True)
    return total


def softmax_lastdim(x: Array) -> Array:
    """`softmax` over the last axis: each row of scores becomes weights that sum to 1."""
    return softmax(x, axis=-1)


# ------------------------------------------------------------------------------- one head


def self_attention(x: Array, Wk: Array, Wq: Array, Wv: Array) -> Array:
    """Self-attention of one sequence.

    Parameters
    ----------
    x : (N, D) array
        One token a row.
    Wk, Wq : (D, HS) array
        Mind the order: the keys' matrix comes first.
    Wv : (D, HV) array

    Returns
    -------
    (N, HV) array

    Examples
    --------
    >>> x = np.eye(3)
    >>> self_attention(x, Wk=0 * x, Wq=0 * x, Wv=x)  # all scores alike: the mean of the values
    array([[0.33333333, 0.33333333, 0.33333333],
           [0.33333333, 0.33333333, 0.33333333],
           [0.33333333, 0.33333333, 0.33333333]])
    """
    _check_axes("x", x, 2)
    return self_attention_batched(x, Wk, Wq, Wv)


def self_attention_batched(x: Array, Wk: Array, Wq: Array, Wv: Array) -> Array:
    """`self_attention` of each sequence of a batch, (B, N, D) to (B, N, HV); or of one."""
    _check_projections(x, x, Wq, Wk, Wv)
    output, _ = _attend(x @ Wq, x @ Wk, x @ Wv)
    return output


def _attend(q: Array, k: Array, v: Array, do_mask: bool = False) -> tuple[Array, Array]:
    """The heart of it: scores, weights, and the weighted sum of the values."""
    scores = q @ k.swapaxes(-2, -1) / np.sqrt(k.shape[-1])  # (..., Nq, Nk)
    if do_mask:  # a token sees itself and what came before it
        seen = np.tri(*scores.shape[-2:]) > 0  # (Nq, Nk)
        scores = np.where(seen, scores, -np.inf)
    weights = softmax_lastdim(scores)  # each row sums to 1
    return weights @ v, weights  # (..., Nq, HV), (..., Nq, Nk)


# -------------------------------------------------------------------------------- many heads


def multihead_attention_list(
    x: Array, Wqs: Heads, Wks: Heads, Wvs: Heads, Wp: Array, do_mask: bool = False
) -> Array:
    """Many heads, one after the other, then side by side through one projection.

    Parameters
    ----------
    x : (B, N, D) array
    Wqs, Wks : NH arrays of (D, HS)
    Wvs : NH arrays of (D, HV)
    Wp : (NH·HV, D) array
        NH·HV need not equal D.
    do_mask : bool
        Hide the future from each token.

    Returns
    -------
    (B, N, D) array
    """
    return _heads_side_by_side(x, x, Wqs, Wks, Wvs, Wp, do_mask)


def multihead_cross_attention_list(
    xq: Array, xv: Array, Wqs: Heads, Wks: Heads, Wvs: Heads, Wp: Array
) -> Array:
    """Many heads whose queries come from `xq` (B, Nq, D), keys and values from `xv` (B, Nv, D)."""
    return _heads_side_by_side(xq, xv, Wqs, Wks, Wvs, Wp, do_mask=False)


def _heads_side_by_side(
    xq: Array, xv: Array, Wqs: Heads, Wks: Heads, Wvs: Heads, Wp: Array, do_mask: bool
) -> Array:
    if not len(Wqs) == len(Wks) == len(Wvs) > 0:
        raise ValueError(
            f"there must be one Wq, Wk and Wv a head, got {len(Wqs)}, {len(Wks)} and {len(Wvs)}"
        )
    heads = []
    for Wq, Wk, Wv in zip(Wqs, Wks, Wvs, strict=True):
        _check_projections(xq, xv, Wq, Wk, Wv)
        head, _ = _attend(xq @ Wq, xv @ Wk, xv @ Wv, do_mask)  # (B, Nq, HV)
        heads.append(head)
    glued = np.concatenate(heads, axis=-1)  # (B, Nq, NH·HV)
    _check_output_projection("Wp", Wp, glued.shape[-1])
    return glued @ Wp  # (B, Nq, D)


def multihead_attention_vec(x: Array, W: Array, NH: int, Wp: Array, do_mask: bool = False) -> Array:
    """Many heads in one product: W (D, 3·D) holds all Qs, then all Ks, then all Vs.

    Parameters
    ----------
    x : (B, N, D) array
    W : (D, 3·D) array
    NH : int
        Number of heads; D is a multiple of it.
    Wp : (D, D) array

    Returns
    -------
    (B, N, D) array
    """
    _check_axes("x", x, 3)
    B, N, D = x.shape
    if NH < 1 or D % NH:
        raise ValueError(f"D must be a multiple of NH, got D = {D} and NH = {NH}")
    if W.shape != (D, 3 * D):
        raise ValueError(f"W must be (D, 3·D) = ({D}, {3 * D}), got {W.shape}")

    def split_heads(t: Array) -> Array:
        return t.reshape(B, N, NH, D // NH).swapaxes(1, 2)  # (B, NH, N, HS), no copy

    q, k, v = (split_heads(t) for t in np.split(x @ W, 3, axis=-1))
    heads, _ = _attend(q, k, v, do_mask)  # (B, NH, N, HS)
    glued = heads.swapaxes(1, 2).reshape(B, N, D)  # the one copy: heads side by side
    _check_output_projection("Wp", Wp, D)
    return glued @ Wp


def attention_scores_einsum(q: Array, k: Array) -> Array:
    """Scaled scores (B, NH, Nq, Nk) of q (B, NH, Nq, HS) and k (B, NH, Nk, HS), by einsum."""
    _check_axes("q", q, 4)
    _check_axes("k", k, 4)
    if q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q and k must agree in B, NH and HS, got {q.shape} and {k.shape}")
    scores: Array = np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])
    return scores


# --------------------------------------------------------------------- the lesson's two, and a loop


def attention(
    X: Array, Wq: Array, Wk: Array, Wv: Array, causal: bool = True
) -> tuple[Array, Array]:
    """One head of the lesson: output (T, dv) and weights (T, T). Here `Wq` comes first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, Wq, Wk, Wv = (rng.standard_normal(s) for s in [(6, 8), (8, 4), (8, 4), (8, 4)])
    >>> output, weights = attention(X, Wq, Wk, Wv)
    >>> output.shape, bool(np.allclose(weights.sum(axis=1), 1)), float(weights[0, 1])
    ((6, 4), True, 0.0)
    """
    _check_axes("X", X, 2)
    _check_projections(X, X, Wq, Wk, Wv)
    return _attend(X @ Wq, X @ Wk, X @ Wv, do_mask=causal)


def multihead(X: Array, heads: Sequence[tuple[Array, Array, Array]], Wo: Array) -> Array:
    """The lesson's causal heads, each a (Wq, Wk, Wv), side by side through Wo: (T, d)."""
    _check_axes("X", X, 2)
    if not heads:
        raise ValueError("heads must hold at least one (Wq, Wk, Wv), got none")
    Wqs, Wks, Wvs = zip(*heads, strict=True)
    return _heads_side_by_side(X, X, Wqs, Wks, Wvs, Wo, do_mask=True)


def one_token_at_a_time(x: Array, Wk: Array, Wq: Array, Wv: Array) -> Array:
    """Causal attention as a loop: each token blends the values of what came before, and its own.

    The same numbers as the vectorised form with its mask, without ever making a mask.
    """
    _check_axes("x", x, 2)
    _check_projections(x, x, Wq, Wk, Wv)
    blends = []
    for i, token in enumerate(x):
        so_far = x[: i + 1]
        scores = (so_far @ Wk) @ (token @ Wq) / np.sqrt(Wk.shape[-1])  # (i + 1,)
        blends.append(softmax(scores) @ (so_far @ Wv))  # (HV,)
    return np.array(blends).reshape(len(x), Wv.shape[-1])


def _check_axes(name: str, x: Array, ndim: int) -> None:
    if np.ndim(x) != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {np.shape(x)}")


def _check_projections(xq: Array, xv: Array, Wq: Array, Wk: Array, Wv: Array) -> None:
    for name, W, x in (("Wq", Wq, xq), ("Wk", Wk, xv), ("Wv", Wv, xv)):
        _check_axes(name, W, 2)
        if np.ndim(x) < 2 or W.shape[0] != x.shape[-1]:
            raise ValueError(
                f"{name} must have x's depth as its rows, got {W.shape} for x {x.shape}"
            )
    if Wq.shape[1] != Wk.shape[1]:
        raise ValueError(f"Wq and Wk must have one head size, got {Wq.shape} and {Wk.shape}")


def _check_output_projection(name: str, W: Array, width: int) -> None:
    if np.ndim(W) != 2 or W.shape[0] != width:
        raise ValueError(f"{name} must have {width} rows, one a column of the heads, got {W.shape}")


# ---------------------------------------------------------------- every decision in one function


@np.errstate(all="ignore")  # NaN and infinities are answers here
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    causal: bool = False,
    align: Any = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Attention with every decision of `regard.attention`, on formed matrices.

    Parameters
    ----------
    query : (*lead, H, Nq, D) array
    key : (*lead, Hkv, Nk, D) array
        Query head h reads key head h // (H // Hkv).
    value : (*lead, Hkv, Nk, Dv) array
    causal, align, mask, bias, scale, softcap, sinks
        As in `regard.attention`; a mask of `regard.masks` is asked pair by pair.

    Returns
    -------
    output : (*lead, H, Nq, Dv) array, of the query's dtype
    weights : (*lead, H, Nq, Nk) array
        Computed in float32 for 16-bit arrays, else in the query's dtype.
    lse : (*lead, H, Nq) array
        Natural logarithm of the denominator.

    Raises
    ------
    ValueError
        If the shapes do not fit, or `align` is missing where it matters.

    Examples
    --------
    >>> q = k = v = np.eye(2)
    >>> output, weights, lse = scaled_dot_product_attention(q, k, v, causal=True)
    >>> weights.round(3)
    array([[1.  , 0.  ],
           [0.33, 0.67]])

    References
    ----------
    Vaswani et al., "Attention Is All You Need", 2017, section 3.2.
    """
    check_shapes(query, key, value)
    if query.ndim == 2:  # one head: give it the heads' axis, and take it away at the end
        output, weights, lse = scaled_dot_product_attention(
            query[None], key[None], value[None], causal=causal, align=align, mask=mask,
            bias=bias, scale=scale, softcap=softcap, sinks=sinks,
        )  # fmt: skip
        return output[0], weights[0], lse[0]

    dtype = np.result_type(query.dtype, np.float32)  # 16-bit arrays are widened, exactly
    H, Nq, D = query.shape[-3:]
    Hkv, Nk, _ = key.shape[-3:]
    group = H // max(Hkv, 1)
    lead = np.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    q, k, v = (np.broadcast_to(x, lead + x.shape[-3:]).astype(dtype) for x in (query, key, value))
    k = np.repeat(k, group, axis=-3)  # (*lead, H, Nk, D)
    v = np.repeat(v, group, axis=-3)  # (*lead, H, Nk, Dv)

    # Scores: scale · q·kᵀ, then the soft cap, then the bias.
    factor = narrow(1 / np.sqrt(D) if scale is None else scale, dtype)
    scores = (factor * q) @ k.swapaxes(-2, -1)  # (*lead, H, Nq, Nk)
    if softcap is not None:
        cap = narrow(softcap, dtype)
        scores = cap * np.tanh(scores / cap)
    p, j = _positions(align, Nq, Nk, causal, mask, bias)  # (*lead, 1, Nq, 1), (Nk,)
    added = _bias_of_each_pair(bias, p, j, dtype)
    scores = scores + added

    # A pair is hidden by its mask, by a bias of -inf, or by a score of -inf.
    visible = (scores != -np.inf) & (added != -np.inf)
    if causal:
        visible &= causal_sees(p, j)
    if mask is not None:
        visible &= mask.sees(p, j) if hasattr(mask, "sees") else mask
    scores = np.where(visible, scores, -np.inf)

    # Softmax, with the sinks as one more logit a head that has no value.
    none = np.full(H, -np.inf)
    sink = narrow(none if sinks is None else sinks, dtype)[:, None, None]  # (H, 1, 1)
    maximum = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), sink)
    shift = np.where(maximum == -np.inf, 0, maximum)  # a row with nothing to see
    exponentials = np.exp(scores - shift)
    total = exponentials.sum(axis=-1, keepdims=True) + np.exp(sink - shift)  # (*lead, H, Nq, 1)
    weights = np.where(visible, exponentials / total, 0)  # an empty row: 0, not 0/0
    lse = (shift + np.log(total))[..., 0]  # (*lead, H, Nq)
    output = _blend(weights, v, visible)  # (*lead, H, Nq, Dv)
    return output.astype(query.dtype), weights, lse


def _blend(weights: Array, v: Array, visible: Array) -> Array:
    """weights @ v, in which a hidden value counts for nothing, even a NaN."""
    finite = np.isfinite(v)
    output: Array = weights @ np.where(finite, v, 0)
    for j in np.unique(np.nonzero(~finite)[-2]):  # the few keys with a value that is not finite
        rest = np.where(finite[..., j, None, :], 0, weights[..., j, None] * v[..., j, None, :])
        output = output + np.where(visible[..., j, None], rest, 0)
    return output


def _positions(
    align: Any, Nq: int, Nk: int, causal: bool, mask: Any, bias: Any
) -> tuple[Array, Array]:
    counts = causal or getattr(mask, "counts_positions", False) or hasattr(bias, "of_pair")
    end = mask.end(Nk) if hasattr(mask, "end") else None
    start = first_position(align if counts or align is not None else "top-left", Nq, Nk, end)
    return start[..., None, None, None] + np.arange(Nq)[:, None], np.arange(Nk)


def _bias_of_each_pair(bias: Any, p: Array, j: Array, dtype: Any) -> Array:
    if bias is None:
        return np.zeros((), dtype)
    return narrow(bias.of_pair(p, j) if hasattr(bias, "of_pair") else bias, dtype)


def check_shapes(query: Array, key: Array, value: Array) -> None:
    """Whether query (*lead, H, Nq, D), key (*lead, Hkv, Nk, D) and value (…, Nk, Dv) fit."""
    got = f"got query {query.shape}, key {key.shape}, value {value.shape}"
    if not query.ndim == key.ndim == value.ndim >= 2:
        raise ValueError(
            "query, key and value must have the same number of axes, 2 or more: "
            f"(N, D), (H, N, D) or (*lead, H, N, D), {got}"
        )
    if query.shape[-1] == 0:
        raise ValueError(f"the head size D must be at least 1, {got}")
    if key.shape[-1] != query.shape[-1]:
        got = f"got key {key.shape} for query {query.shape}"
        raise ValueError(f"key must have the query's head size, {got}")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"key and value must hold the same number of tokens, {got}")
    H, Hkv, Hv = (1 if x.ndim == 2 else x.shape[-3] for x in (query, key, value))
    if Hv != Hkv:
        raise ValueError(f"key and value must have the same number of heads, {got}")
    if H % Hkv if Hkv else H:
        raise ValueError(f"the query's heads must be a multiple of the key's, {got}")
