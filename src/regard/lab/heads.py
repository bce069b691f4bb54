"""heads: a loop over heads, all heads in one product, and einsum are the same."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import reference
from ..predicates import Array
from .drawing import bars, panels
from .measure import check_sizes, medians
from .result import Check, Result, Table, Verdict

QUESTION = "Many heads: one after the other, packed in one product, by einsum. Same? At what cost?"
SIZES = (12, 96)
SIZES_ARE = "depths D of a token, multiples of 6 heads"
B, N, NH = 2, 64, 6


def packed(*Ws: Array) -> Array:
    """Weights side by side: [Wq of all heads | Wk of all | Wv of all], (D, 3·D)."""
    return np.concatenate([np.concatenate(list(W), axis=1) for W in Ws], axis=1)


def by_einsum(x: Array, Wqs: Array, Wks: Array, Wvs: Array, Wp: Array) -> Array:
    """The same with the heads as one more letter of the products."""
    q, k, v = (np.einsum("bnd,hds->bhns", x, W) for W in (Wqs, Wks, Wvs))
    weights = reference.softmax(reference.attention_scores_einsum(q, k))
    heads = np.einsum("bhqk,bhks->bqhs", weights, v)
    return heads.reshape(*x.shape[:2], -1) @ Wp


def copies(D: int) -> list[tuple[str, str, bool]]:
    """The steps of the packed form, and whether each copies: (step, shape, copied)."""
    x = np.zeros((B, N, 3 * D))
    split = np.split(x, 3, axis=-1)[0]
    apart = split.reshape(B, N, NH, D // NH)
    turned = apart.swapaxes(1, 2)
    result = np.zeros((B, NH, N, D // NH))
    back = result.swapaxes(1, 2)
    glued = back.reshape(B, N, D)
    steps = [("split in Q, K, V", x, split), ("reshape to heads", split, apart),
             ("heads before tokens", apart, turned), ("tokens before heads", result, back),
             ("reshape: glue heads", back, glued)]  # fmt: skip
    return [(name, str(b.shape), not np.shares_memory(a, b)) for name, a, b in steps]


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """The three forms on the same weights; the glued columns; the copies."""
    check_sizes(sizes, 1, NH)
    if any(D % NH for D in sizes):
        raise ValueError(f"sizes must be multiples of {NH} heads, got {sizes}")
    rng = np.random.default_rng(seed)
    rows, apart, times = [], {}, {}
    for D in sizes:
        x = rng.standard_normal((B, N, D))
        Wqs, Wks, Wvs = rng.standard_normal((3, NH, D, D // NH)) / np.sqrt(D)
        Wp = rng.standard_normal((D, D)) / np.sqrt(D)
        forms = {
            "loop": partial(reference.multihead_attention_list, x, Wqs, Wks, Wvs, Wp),
            "packed": partial(reference.multihead_attention_vec, x, packed(Wqs, Wks, Wvs), NH, Wp),
            "einsum": partial(by_einsum, x, Wqs, Wks, Wvs, Wp),
        }
        outputs = {name: form() for name, form in forms.items()}
        apart[D] = max(float(abs(out - outputs["loop"]).max()) for out in outputs.values())
        times[D] = medians(forms)
        rows.append((D, *(f"{ms:.2f}" for ms in times[D].values()), apart[D]))
    a, A, C = (rng.integers(-9, 9, shape).astype(float) for shape in [(8, 6), (6, 2), (6, 2)])
    glued = bool(np.array_equal(np.hstack([a @ A, a @ C]), a @ np.hstack([A, C])))
    steps = copies(sizes[-1])
    copied = [name for name, _, is_copy in steps if is_copy]
    worst = max(apart.values())
    checks = (
        Check("loop, packed and einsum agree to rounding", f"at most {worst:.2g} apart",
              worst < 1e-12),
        Check("(8, 6) @ (6, 2) twice is once with the columns glued", "equal to the bit"
              if glued else "not equal", glued),
        Check("only the last reshape copies", ", ".join(copied), copied == [steps[-1][0]]),
    )  # fmt: skip

    def draw() -> Any:
        titles = [f"milliseconds, D = {D}" for D in sizes]
        figure, axes = panels(titles, height=2.2)
        for axis, D in zip(axes, sizes, strict=True):
            bars(axis, list(times[D]), list(times[D].values()), "ms (median)")
        return figure

    products = 3 * NH + 2 * NH + 1
    return Result(
        name="heads", question=QUESTION,
        table=Table(("D", "loop, ms", "packed, ms", "einsum, ms", "largest difference"), rows),
        verdict=Verdict(checks),
        notes=(
            "The steps of the packed form: "
            + "; ".join(f"{step} {shape}, a {'copy' if c else 'view'}" for step, shape, c in steps)
            + ".",
            "The three do the same multiplications. What differs is how many products they come "
            f"in: for {NH} heads the loop calls {products} of them, the packed form 4. Times are "
            "medians on this machine, and no verdict rests on them.",
        ),
        exercise="GPT-3 has a depth of 12288 and 96 heads of 128. How many weights has the packed "
        "matrix of Qs, Ks and Vs of one layer, and does the number of heads change it?",
        answer=f"12288 × 3 · 12288 = {12288 * 3 * 12288:,}. No: 96 · 128 = {96 * 128}, and "
        f"48 heads of 256 are {48 * 256} columns as well.",
        draw=draw,
    )  # fmt: skip
