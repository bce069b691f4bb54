"""The call, checked once: what every engine is given.

Each rule of the semantics that a user can break is checked here, before anything is computed, and
the error says what must hold and what was got.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any, NamedTuple

import numpy as np

from . import masks
from .biases import Alibi
from .masks import Mask
from .predicates import Array, first_position
from .reference import check_shapes

FLOATS = ("float16", "bfloat16", "float32", "float64")
NUMPY_FLOATS = {np.dtype(name) for name in FLOATS if name != "bfloat16"}  # a name takes a µs
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
LARGEST = {dtype: float(np.finfo(dtype).max) for dtype in (SINGLE, DOUBLE)}
Index = tuple[int, ...]


class Result(NamedTuple):
    """What an engine returns: the output, lse, and weights on demand."""

    output: Array  # (*lead, H, Nq, Dv)
    lse_of: Callable[[], Array]  # (*lead, H, Nq), worked out where it is asked for
    weights_of: Callable[[Index, Array, Array], Array]  # (lead and head, rows, columns) -> block
    # Statistics of all weights, into arrays of zeros, where the engine has a pass of its own
    look: Callable[..., None] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One call of attention: every array in native byte order, every default filled in.

    Arrays have a heads' axis, `bare` says that the caller's had none. Letters as in `attention`.
    """

    query: Array  # (*lead, H, Nq, D)
    key: Array  # (*lead, Hkv, Nk, D)
    value: Array  # (*lead, Hkv, Nk, Dv)
    bare: bool
    mask: Mask | Array | None  # all of it, as the reference asks it, pair by pair
    array: Array | None  # its bool array, (*lead, H, Nq, Nk) by broadcasting
    lo: Array | None  # (*lead, H, Nq) by broadcasting: the first key each query sees,
    hi: Array | None  # and one past the last; lo ≤ hi; None where each sees all
    start: Array  # (*lead) by broadcasting: the position of query 0
    bias: Array | None  # (*lead, H, Nq, Nk) by broadcasting, of any float dtype
    alibi: Alibi | None
    sinks: Array | None  # (H,)
    scale: float
    softcap: float | None

    @property
    def lead(self) -> tuple[int, ...]:
        return self.query.shape[:-3]

    @property
    def shape(self) -> tuple[int, ...]:
        """(*lead, H, Nq, Nk), the shape of the scores that no engine but the reference forms."""
        return (*self.query.shape[:-1], self.key.shape[-2])

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (*self.query.shape[:-1], self.value.shape[-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """What is computed in: float32 for 16-bit arrays, else the query's."""
        return _computed_in(self.query)


def _computed_in(query: Array) -> np.dtype[Any]:
    return DOUBLE if query.dtype == DOUBLE else SINGLE


def check(
    query: Any, key: Any, value: Any, *, causal: Any = False, align: Any = None, mask: Any = None,
    bias: Any = None, scale: Any = None, softcap: Any = None, sinks: Any = None,
) -> Problem:  # fmt: skip
    """The checked call, or the error that says what must hold and what was got."""
    query, key, value = _floats("query", query), _floats("key", key), _floats("value", value)
    _check_dtypes(query, key, value)
    check_shapes(query, key, value)
    bare = query.ndim == 2
    if bare:
        query, key, value = query[None], key[None], value[None]
    query, key, value = _share_lead(query, key, value)
    shape = (*query.shape[:-1], key.shape[-2])
    if not isinstance(causal, (bool, np.bool_)):
        raise TypeError(f"causal must be True or False, got {causal!r}")
    mask, array = _check_mask(mask, bool(causal), shape)
    bias, alibi = _check_bias(bias, shape)
    start = _start(align, mask, alibi, shape)
    lo, hi = _bounds(mask, start, shape)
    dtype = _computed_in(query)
    return Problem(
        query=query, key=key, value=value, bare=bare, mask=mask, array=array, lo=lo, hi=hi,
        start=start, bias=bias, alibi=alibi, sinks=_sinks(sinks, query.shape[-3]),
        scale=_number("scale", 1 / sqrt(query.shape[-1]) if scale is None else scale, dtype),
        softcap=None if softcap is None else _softcap(softcap, dtype),
    )  # fmt: skip


def check_out(out: Any, problem: Problem, *inputs: Any) -> None:
    """Whether `out` can take the output: shape, dtype, writeable, apart from all inputs."""
    shape = problem.output_shape[1:] if problem.bare else problem.output_shape
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"out must be a NumPy array, got {_name(out)}")
    if out.shape != shape or out.dtype.newbyteorder("=") != problem.query.dtype:
        raise ValueError(
            f"out must be {shape} of {problem.query.dtype}, got {out.shape} of {out.dtype}"
        )
    if not out.flags.writeable:
        raise ValueError("out must be writeable, got a read-only array")
    if _overlaps_itself(out):
        raise ValueError(f"out must not overlap itself, got strides {out.strides} for {out.shape}")
    for x in inputs:
        if isinstance(x, np.ndarray) and _share_memory(out, x):
            raise ValueError("out must not overlap an input, got one that shares memory")


# ------------------------------------------------------------------------- query, key, value


def _floats(name: str, x: Any) -> Array:
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a plain array, got a MaskedArray: pass its mask as mask=")
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, got {_name(x)}{_how_to_convert(name, x)}")
    if x.dtype not in NUMPY_FLOATS and x.dtype.name not in FLOATS:
        raise TypeError(f"{name} must be one of {', '.join(FLOATS)}, got {x.dtype}")
    return _plain(x)


def _plain(x: Array) -> Array:
    """x as a base-class array in native byte order, aligned; copied only where it must be."""
    x = np.asarray(x)
    if x.dtype.isnative and x.flags.aligned:
        return x
    return x.astype(x.dtype.newbyteorder("="))


def _name(x: Any) -> str:
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def _how_to_convert(name: str, x: Any) -> str:
    framework = type(x).__module__.partition(".")[0]
    if framework == "torch":
        return f": call {name}.detach().cpu().numpy()"
    if hasattr(x, "__array__") or isinstance(x, (list, tuple)):
        return f": call np.asarray({name})"
    return ""


def _check_dtypes(query: Array, key: Array, value: Array) -> None:
    wide = query.dtype == np.float32 and key.dtype.itemsize == 2
    if key.dtype != value.dtype or not (wide or key.dtype == query.dtype):
        raise TypeError(
            "key and value must have the query's dtype, or both be 16-bit beside a float32 query, "
            f"got query {query.dtype}, key {key.dtype}, value {value.dtype}"
        )


def _share_lead(query: Array, key: Array, value: Array) -> tuple[Array, Array, Array]:
    leads = [x.shape[:-3] for x in (query, key, value)]
    if leads[0] == leads[1] == leads[2]:
        return query, key, value
    try:
        lead = np.broadcast_shapes(*leads)
    except ValueError:
        raise ValueError(
            "the axes before the heads must broadcast, "
            f"got query {query.shape}, key {key.shape}, value {value.shape}"
        ) from None
    query, key, value = (np.broadcast_to(x, lead + x.shape[-3:]) for x in (query, key, value))
    return query, key, value


# --------------------------------------------------------------------------- mask and bias


def _check_mask(mask: Any, causal: bool, shape: Index) -> tuple[Mask | Array | None, Array | None]:
    """The whole mask, and the bool array in it."""
    if mask is not None and not isinstance(mask, Mask):
        _check_mask_array(mask, shape)
    if causal:
        mask = masks.causal() if mask is None else masks.causal() & mask
    array = getattr(mask, "array", None) if isinstance(mask, Mask) else mask
    return mask, None if array is None else _fit("mask", array, shape)


def _check_mask_array(mask: Any, shape: Index) -> None:
    if isinstance(mask, np.ma.MaskedArray) or not isinstance(mask, np.ndarray):
        raise TypeError(f"mask must be a bool array or a mask of regard.masks, got {_name(mask)}")
    if mask.dtype == bool:
        return
    if mask.dtype.kind in "iuf" and mask.size and np.all((mask == 0) | (mask == 1)):
        mended = ["mask.astype(bool)"]
        if len(shape) == 4 and mask.shape == (shape[0], shape[-1]):  # a tokenizer's (B, Nk)
            for_each = "mask.astype(bool)[:, None, None, :]"
            if mask.shape == shape[-2:]:
                mended = [f"{mended[0]} if it is (Nq, Nk)", f"{for_each} if it is (B, Nk)"]
            else:
                mended = [for_each]
        way = " or mask=".join(mended)
        raise TypeError(f"mask must be bool, True = seen, got {mask.dtype}: pass mask={way}")
    raise TypeError(
        f"mask must be bool, True = seen, got {mask.dtype}: what is added to the scores is a bias, "
        "pass it as bias="
    )


def _fit(name: str, x: Array, shape: Index) -> Array:
    """x broadcast to (*lead, H, Nq, Nk), as a view."""
    try:
        return np.broadcast_to(_plain(x), shape)
    except ValueError:
        pass
    hint = ""
    if x.ndim == 3 and len(shape) > 3 and x.shape[0] == shape[0] != shape[-3]:
        hint = f": a 3-D {name} is (H, Nq, Nk); for one a batch row pass {name}[:, None]"
    elif x.ndim == 2 and len(shape) == 4 and x.shape == (shape[0], shape[-1]):
        hint = f": for one row of keys a batch row pass {name}[:, None, None, :]"
    raise ValueError(f"{name} must broadcast to (*lead, H, Nq, Nk) = {shape}, got {x.shape}{hint}")


def _check_bias(bias: Any, shape: Index) -> tuple[Array | None, Alibi | None]:
    if bias is None:
        return None, None
    if isinstance(bias, Alibi):
        _check_per_head("slopes", bias.slopes, shape[-3])
        return None, bias
    if isinstance(bias, np.ma.MaskedArray) or not isinstance(bias, np.ndarray):
        raise TypeError(f"bias must be a float array or biases.alibi, got {_name(bias)}")
    if bias.dtype == bool:
        raise TypeError("bias must be a float array, got bool: what hides pairs is a mask, mask=")
    if not is_float(bias.dtype):
        raise TypeError(f"bias must be a float array, got {bias.dtype}")
    return _fit("bias", bias, shape), None


def is_float(dtype: np.dtype[Any]) -> bool:
    """Any real float, those of ml_dtypes included, which NumPy does not count among its own."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def _check_per_head(name: str, x: Array, H: int) -> None:
    if x.shape != (H,):
        raise ValueError(f"{name} must hold one number for each query head, ({H},), got {x.shape}")


def _start(align: Any, mask: Mask | Array | None, alibi: Alibi | None, shape: Index) -> Array:
    Nq, Nk = shape[-2:]
    structured = mask if isinstance(mask, Mask) else None
    counts = alibi is not None or (structured is not None and structured.counts_positions)
    end = None if structured is None else _fitting(structured.end, shape, Nk)
    start = first_position(align if counts or align is not None else "top-left", Nq, Nk, end)
    _check_fits_lead("align" if end is None else "align and lengths", start, shape)
    return start


def _check_fits_lead(name: str, x: Array, shape: Index) -> None:
    if x.ndim == 0:
        return
    try:
        np.broadcast_to(x, shape[:-3])
    except ValueError:
        raise ValueError(
            f"{name} must be one number, or one for each sequence {shape[:-3]}, got {x.shape}"
        ) from None


def _bounds(
    mask: Mask | Array | None, start: Array, shape: Index
) -> tuple[Array, Array] | tuple[None, None]:
    """[lo, hi) of each query, within [0, Nk] and lo ≤ hi; (None, None) where each sees all."""
    if not isinstance(mask, Mask):
        return None, None
    Nq, Nk = shape[-2:]
    lo, hi = _fitting(mask.bounds, shape, start[..., None, None] + np.arange(Nq), Nk)
    hi = np.minimum(np.maximum(hi, 0), Nk)
    lo = np.minimum(np.maximum(lo, 0), hi)
    try:
        return np.broadcast_to(lo, shape[:-1]), np.broadcast_to(hi, shape[:-1])
    except ValueError:
        raise ValueError(
            f"mask must fit the queries (*lead, H, Nq) = {shape[:-1]}, got intervals of shape "
            f"{np.broadcast_shapes(np.shape(lo), np.shape(hi))}"
        ) from None


def _fitting(function: Callable[..., Any], shape: Index, *arguments: Any) -> Any:
    """What the function returns; arrays that do not broadcast are an error in the call's words."""
    try:
        return function(*arguments)
    except ValueError as error:
        if "broadcast" not in str(error):
            raise
        raise ValueError(
            "the parts of mask, and align, must fit each other and the sequences (*lead) = "
            f"{shape[:-3]}, got {error}"
        ) from None


# ------------------------------------------------------------------------------- the numbers


def _number(name: str, x: Any, dtype: np.dtype[Any]) -> float:
    if isinstance(x, (bool, np.bool_)) or not isinstance(x, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {_name(x)}")
    try:
        wide = np.float64(x)
    except OverflowError:
        wide = np.float64(np.inf)
    if not isfinite(wide):
        raise ValueError(f"{name} must be finite, got {x}")
    limit = LARGEST[dtype]
    return float(dtype.type(max(-limit, min(wide, limit))))  # a finite one stays finite


def _softcap(x: Any, dtype: np.dtype[Any]) -> float:
    cap = _number("softcap", x, dtype)
    if x <= 0:
        raise ValueError(f"softcap must be greater than 0, got {x}")
    return max(cap, float(np.finfo(dtype).tiny))


def _sinks(sinks: Any, H: int) -> Array | None:
    if sinks is None:
        return None
    if not isinstance(sinks, np.ndarray) or not is_float(sinks.dtype):
        got = f"{sinks.dtype} array" if isinstance(sinks, np.ndarray) else _name(sinks)
        raise TypeError(f"sinks must be a float array (H,), got {got}")
    _check_per_head("sinks", sinks, H)
    wide = _plain(sinks).astype(np.float64)
    if np.any(np.isnan(wide)) or np.any(wide == np.inf):
        raise ValueError(f"sinks must be finite, or -inf for none, got {sinks}")
    return wide


# -------------------------------------------------------------------------------- overlaps


def _overlaps_itself(x: Array) -> bool:
    """Whether two elements of x may share a place: a stride does not clear what it steps over."""
    if x.size <= 1:
        return False
    extent = x.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1):
        if stride < extent:
            return True
        extent += stride * (n - 1)
    return False


def _share_memory(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
