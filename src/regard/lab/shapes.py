"""shapes: which sizes may differ, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import pictures, reference
from ..predicates import Array
from .measure import check_sizes
from .result import Check, Result, Table, Verdict

QUESTION = "Which of the sizes have to agree, and which are free?"
SIZES = (7,)
SIZES_ARE = "tokens N"


class Case(NamedTuple):
    """A call: what is odd about it, its sizes, its output, what the output must be."""

    name: str
    sizes: str
    output: Array
    expected: Array


def by_sums(xq: Array, xv: Array, Wq: Array, Wk: Array, Wv: Array) -> Array:
    """One head, (Nq, D) and (Nv, D), as the formula is written: a sum over keys for each query."""
    rows = []
    for query in xq @ Wq:
        scores = [sum(query * key) / len(query) ** 0.5 for key in xv @ Wk]
        shares = np.exp(np.array(scores) - max(scores))
        rows.append(sum(s * value for s, value in zip(shares / shares.sum(), xv @ Wv, strict=True)))
    return np.array(rows)


def cases(N: int, seed: int) -> list[Case]:
    """Calls in which sizes differ that one might expect to agree."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> Array:
        return rng.standard_normal(shape)

    D, HS, HV, NH, Nv = 11, 5, 3, 3, N + 4
    x, xv = draw(1, N, D), draw(1, Nv, D)
    Wq, Wk, Wv, wide = (list(draw(NH, D, each)) for each in (HS, HS, HV, HS))
    Wp, Wo = draw(NH * HS, D), draw(NH * HV, D)

    def heads(a: Array, b: Array, Wvs: list[Array]) -> Array:
        parts = [by_sums(a[0], b[0], *W) for W in zip(Wq, Wk, Wvs, strict=True)]
        return np.concatenate(parts, axis=1)[None]

    return [
        Case("values of another depth", f"x ({N}, {D}), HS {HS}, HV {HV}",
             reference.self_attention(x[0], Wk[0], Wq[0], Wv[0]),
             by_sums(x[0], x[0], Wq[0], Wk[0], Wv[0])),
        Case("a batch of one", f"x (1, {N}, {D})",
             reference.self_attention_batched(x, Wk[0], Wq[0], Wv[0]),
             by_sums(x[0], x[0], Wq[0], Wk[0], Wv[0])[None]),
        Case("NH·HS is not D", f"NH·HS = {NH * HS}, D = {D}",
             reference.multihead_attention_list(x, Wq, Wk, wide, Wp), heads(x, x, wide) @ Wp),
        Case("NH·HV is neither", f"NH·HV = {NH * HV}, NH·HS = {NH * HS}, D = {D}",
             reference.multihead_attention_list(x, Wq, Wk, Wv, Wo), heads(x, x, Wv) @ Wo),
        Case("queries and keys of other texts", f"Nq = {N}, Nv = {Nv}",
             reference.multihead_cross_attention_list(x, xv, Wq, Wk, Wv, Wo),
             heads(x, xv, Wv) @ Wo),
    ]  # fmt: skip


def off_by(output: Array, expected: Array) -> float:
    """The largest difference; infinite where the shapes are not even the same."""
    return float(abs(output - expected).max()) if output.shape == expected.shape else np.inf


def refused(call: Callable[[], object]) -> str:
    """What the error says, or nothing where there is none."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """Each case against plain sums; then sizes that have to agree and do not."""
    check_sizes(sizes)
    found = [case for N in sizes for case in cases(N, seed)]
    rows = [
        (c.name, c.sizes, str(c.output.shape), str(c.expected.shape), off_by(c.output, c.expected))
        for c in found
    ]
    x = np.zeros((sizes[0], 11))
    errors = {
        "query and key depths 5 and 3": refused(
            lambda: reference.self_attention(x, np.zeros((11, 3)), np.zeros((11, 5)), x.T)
        ),
        "D = 11 in 3 packed heads": refused(
            lambda: reference.multihead_attention_vec(x[None], np.zeros((11, 33)), 3, np.eye(11))
        ),
    }
    checks = (
        *(Check(name, f"{shape}, off by {apart:.2g}", apart < 1e-12)
          for name, _, shape, _, apart in rows),
        *(Check(f"refused: {name}", text or "accepted", bool(text))
          for name, text in errors.items()),
    )  # fmt: skip

    def draw() -> Any:
        title = "queries of one text, keys and values of another"
        N, Nv = sizes[0], sizes[0] + 4
        return pictures.shapes((3, N, 5), (3, Nv, 5), (3, Nv, 3), title=title)

    return Result(
        name="shapes", question=QUESTION,
        table=Table(("case", "sizes", "output", "must be", "off by"), rows),
        verdict=Verdict(checks),
        notes=("Queries and keys share a depth, keys and values a count. All else is free.",),
        exercise="Attention Is All You Need has D = 512 and 8 heads of 64. Which shape must Wp "
        "have if each head's values had a depth of 32?",
        answer=f"(NH·HV, D) = ({8 * 32}, 512): "
        f"{shape_out(8, 64, 32, 512)} comes out of such a layer for one text of two tokens.",
        draw=draw,
    )  # fmt: skip


def shape_out(NH: int, HS: int, HV: int, D: int) -> str:
    """The shape that a layer of zeros gives for two tokens."""
    Wqs, Wvs = list(np.zeros((NH, D, HS))), list(np.zeros((NH, D, HV)))
    x, Wp = np.zeros((1, 2, D)), np.zeros((NH * HV, D))
    return str(reference.multihead_attention_list(x, Wqs, Wqs, Wvs, Wp).shape)
