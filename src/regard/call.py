"""The public call: check, choose an engine, run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from math import prod
from typing import Any, ParamSpec, TypeVar

import numpy as np

from . import engines
from .attention_map import AttentionMap
from .predicates import Array
from .problem import Problem, check, check_out
from .threads import get_num_threads

__all__ = ["Explanation", "attention", "explain", "look"]

P = ParamSpec("P")
R = TypeVar("R")


def _for_readers_of_the_articles(function: Callable[P, R]) -> Callable[P, R]:
    """Four positional arrays, as in `attention(X, Wq, Wk, Wv)`, get pointed to the reference."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) > 3:
            raise TypeError(
                f"{function.__name__} takes query, key and value, got {len(args)} positional "
                "arguments: attention(X, Wq, Wk, Wv) of the article is regard.reference.attention; "
                "options go by name, as in causal=True"
            )
        return function(*args, **kwargs)

    return call


@_for_readers_of_the_articles
def attention(
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
    engine: str | None = None,
    out: Array | None = None,
) -> Array:
    """softmax(scale · query·keyᵀ) · value, exactly, in memory that grows linearly.

    Parameters
    ----------
    query : (*lead, H, Nq, D) array
        float16, bfloat16, float32 or float64, of any strides. (N, D) is one head, (H, N, D) heads.
    key : (*lead, Hkv, Nk, D) array
        H is a multiple of Hkv: query head h reads key head h // (H // Hkv).
    value : (*lead, Hkv, Nk, Dv) array
        Of the key's dtype, which is the query's, or 16-bit beside a float32 query.
    causal : bool
        The query at position p sees the keys up to p.
    align : {"top-left", "bottom-right"}, int, or (*lead,) array of int
        The position of query 0 among the keys: 0, Nk - Nq (with `masks.lengths` each sequence's own
        length - Nq), or the position itself (a cache that already held p keys: p). Needed where
        Nq != Nk and positions matter.
    mask : bool array, or a mask of `regard.masks`
        True = the query sees the key. Broadcasts to (*lead, H, Nq, Nk).
    bias : float array, or `biases.alibi`
        Added to the scaled scores, natural-log units. -inf hides the pair.
    scale : float
        Default 1/√D.
    softcap : float
        scores become softcap · tanh(scores / softcap), before the bias.
    sinks : (H,) array of float
        One more logit a head in the denominator, without a value.
    engine : {"reference", "tiled", "native", "native-baseline", "native-avx2", ...}
        Default: the best that can do the call; see `explain`. One asked for by name is taken, or
        it is an error.
    out : (*lead, H, Nq, Dv) array
        Takes the output; must not overlap an input. Undefined after an interruption.

    Returns
    -------
    (*lead, H, Nq, Dv) array
        Of the query's dtype. A query that sees no key gets zeros.

    Raises
    ------
    TypeError, ValueError
        That say what must hold and what was got.

    See Also
    --------
    look : the same with its weights.
    regard.reference.attention : `attention(X, Wq, Wk, Wv)`, with projections, of the article.

    Examples
    --------
    >>> import numpy as np, regard
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 2, 5, 4))  # three arrays of 2 heads, 5 tokens, depth 4
    >>> regard.attention(q, k, v, causal=True).shape
    (2, 5, 4)

    References
    ----------
    Vaswani et al., "Attention Is All You Need", 2017, section 3.2.
    """
    if (
        mask is None and bias is None and softcap is None and sinks is None and engine is None
        and out is None and (causal is False or causal is True)
    ):  # fmt: skip
        plain = engines.native.plain(query, key, value, causal, align, scale)
        if plain is not None:
            return plain
    problem = check(
        query, key, value, causal=causal, align=align, mask=mask, bias=bias, scale=scale,
        softcap=softcap, sinks=sinks,
    )  # fmt: skip
    chosen, _ = engines.choose(engine, problem)
    if out is not None:
        check_out(out, problem, query, key, value, mask, problem.array, bias, sinks)
    taken = out[None] if out is not None and problem.bare else out
    output = chosen.run(problem, taken).output
    return output[(0,) if problem.bare else ()] if out is None else out


@_for_readers_of_the_articles
def look(
    query: Array,
    key: Array,
    value: Array | None = None,
    *,
    causal: bool = False,
    align: Any = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    engine: str | None = None,
) -> AttentionMap:
    """The call of `attention`, with its weights: exact, on demand, in linear memory.

    Parameters
    ----------
    query, key, value, causal, align, mask, bias, scale, softcap, sinks, engine
        As in `attention`. Without a value the map has weights and lse, and no output.

    Returns
    -------
    AttentionMap

    Examples
    --------
    >>> import numpy as np, regard
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 2, 5, 4))
    >>> attended = regard.look(q, k, v, causal=True)
    >>> attended.weights.shape
    (2, 5, 5)
    >>> attended.weights[0, 1].round(3)  # head 0, what query 1 makes of each key
    array([0.527, 0.473, 0.   , 0.   , 0.   ])
    """
    problem = check(
        query, key, _no_value(key) if value is None else value,
        causal=causal, align=align, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks,
    )  # fmt: skip
    chosen, _ = engines.choose(engine, problem)
    return AttentionMap(problem, chosen.run(problem, None), has_output=value is not None)


def _no_value(key: Any) -> Any:
    """A value of no depth, for a look at weights alone."""
    return key[..., :0] if isinstance(key, np.ndarray) and key.ndim >= 2 else key


@dataclass(frozen=True)
class Explanation:
    """What a call does, before it is made: printed, it reads as a short table."""

    engine: str
    why: str
    about: str
    dtype: str
    runs_on: str
    memory: int  # bytes beside inputs and output, at the peak
    formed: int  # bytes of one matrix of all scores
    seen: int  # pairs in the intervals that queries see; a bool array or a bias may hide more
    pairs: int  # all pairs
    at_most: str  # "at most " where a bool array or a bias may hide more

    def __str__(self) -> str:
        share = self.seen / self.pairs if self.pairs else 0
        rows = [
            ("engine", f"{self.engine}: {self.about}"),
            ("why", self.why),
            ("dtype", self.dtype),
            ("runs on", self.runs_on),
            ("memory", f"{_bytes(self.memory)} beside inputs and output"),
            ("", f"(one matrix of all scores would be {_bytes(self.formed)})"),
            ("work", f"{self.at_most}{share:.1%} of {self.pairs:,} query-key pairs can be seen"),
        ]
        return "\n".join(f"{name:<8}{text}" for name, text in rows)


@_for_readers_of_the_articles
def explain(
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
    engine: str | None = None,
) -> Explanation:
    """Which engine the call of `attention` would take, why, and what it costs; computes nothing.

    Parameters
    ----------
    query, key, value, causal, align, mask, bias, scale, softcap, sinks, engine
        As in `attention`.

    Returns
    -------
    Explanation
        Prints well.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q = k = v = np.zeros((12, 4096, 64), np.float32)
    >>> print(regard.explain(q, k, v, causal=True))  # doctest: +ELLIPSIS
    engine  ...
    dtype   float32, computed in float32
    ...
    work    50.0% of 201,326,592 query-key pairs can be seen
    """
    problem = check(
        query, key, value, causal=causal, align=align, mask=mask, bias=bias, scale=scale,
        softcap=softcap, sinks=sinks,
    )  # fmt: skip
    chosen, why = engines.choose(engine, problem)
    pairs = prod(problem.shape)
    return Explanation(
        engine=chosen.name, why=why, about=chosen.about,
        dtype=f"{problem.query.dtype}, computed in {problem.dtype}",
        runs_on=_runs_on(chosen.name),
        memory=chosen.memory(problem), formed=pairs * problem.dtype.itemsize,
        seen=_seen(problem), pairs=pairs,
        at_most="" if problem.array is None and problem.bias is None else "at most ",
    )  # fmt: skip


def _runs_on(engine: str) -> str:
    if engine.startswith("native"):
        return f"up to {get_num_threads()} threads of regard's own"
    return "NumPy's linear algebra library, with the threads that it has"


def _seen(problem: Problem) -> int:
    if problem.lo is None or problem.hi is None:
        return prod(problem.shape)
    return int((problem.hi - problem.lo).sum())


def _bytes(n: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if n < 999.5:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"
