"""kv-cache: keys and values of the past do not change, so keep them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import regard

from ..predicates import Array
from .drawing import lines, panels
from .measure import check_sizes
from .result import Check, Result, Table, Verdict

QUESTION = "Generating token by token: is keeping keys and values the same as computing all again?"
SIZES = (8, 16, 32, 64)
SIZES_ARE = "tokens N to generate"
H, HS, WORDS = 3, 8, 97


class Toy(NamedTuple):
    """One layer of attention between an embedding and its transpose."""

    words: Array  # (WORDS, D)
    Wq: Array  # (D, H·HS)
    Wk: Array
    Wv: Array
    Wp: Array  # (H·HS, D)

    def project(self, x: Array, W: Array) -> Array:
        """x (n, D) to heads (H, n, HS)."""
        return (x @ W).reshape(len(x), H, HS).swapaxes(0, 1)

    def next_word(self, heads: Array) -> int:
        """The most likely word after the last row of the heads (H, n, HS)."""
        glued = heads.swapaxes(0, 1).reshape(heads.shape[1], H * HS)
        return int(np.argmax((glued[-1] @ self.Wp) @ self.words.T))


def toy(seed: int) -> Toy:
    """With weights of variance 1 / rows."""
    rng, D = np.random.default_rng(seed), H * HS
    return Toy(rng.standard_normal((WORDS, D)),
               *(rng.standard_normal((D, D)) / np.sqrt(D) for _ in range(4)))  # fmt: skip


def attend_new(q: Array, cache: regard.KVCache, at: int) -> Array:
    """New queries, the first at position `at`, over everything that is kept."""
    return regard.attention(q, cache.key, cache.value, causal=True, align=at)


def generate_with_cache(model: Toy, N: int) -> tuple[list[int], Array, int]:
    """Words, the attention's output at each step, and how many tokens went through projections."""
    words, outputs, projected = [0], [], 0
    cache = regard.KVCache()
    for _ in range(N):
        x = model.words[words[-1:]]  # (1, D): the new token alone
        at = cache.append(model.project(x, model.Wk), model.project(x, model.Wv))
        projected += len(x)
        heads = attend_new(model.project(x, model.Wq), cache, at)  # (H, 1, HS)
        outputs.append(heads[:, -1])
        words.append(model.next_word(heads))
    return words, np.array(outputs), projected


def generate_again(model: Toy, N: int) -> tuple[list[int], Array, int]:
    """The same, computing everything again for each token."""
    words, outputs, projected = [0], [], 0
    for _ in range(N):
        x = model.words[words]  # (n, D): all tokens so far
        q, k, v = (model.project(x, W) for W in (model.Wq, model.Wk, model.Wv))
        projected += len(x)
        heads = regard.attention(q, k, v, causal=True)  # (H, n, HS)
        outputs.append(heads[:, -1])
        words.append(model.next_word(heads))
    return words, np.array(outputs), projected


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """The same words, the same outputs, and what was saved."""
    check_sizes(sizes)
    model = toy(seed)
    rows, same, apart, counted = [], True, 0.0, True
    for N in sizes:
        words, outputs, few = generate_with_cache(model, N)
        again, expected, many = generate_again(model, N)
        off = float(abs(outputs - expected).max())
        same, apart = same and words == again, max(apart, off)
        counted = counted and (few, many) == (N, N * (N + 1) // 2)
        rows.append((N, "yes" if words == again else "no", off, few, many, f"{many / few:.1f} ×"))
    kept = np.zeros((2, 12, 12, 1, 64), np.float32).nbytes  # keys and values, layers, heads
    bits = _same_bits(model, sizes[-1])
    checks = (
        Check("with the cache the same words come out", "all equal" if same else "not all", same),
        Check("and the same outputs", f"{apart:.2g} apart", apart < 1e-12),
        Check("tokens projected: N with the cache, N(N + 1)/2 without",
              f"{rows[-1][3]:,} and {rows[-1][4]:,} for N = {sizes[-1]}", counted),
        Check("GPT-2 small keeps 72 KiB a token", f"{kept / 1024:g} KiB: keys and values of 12 "
              "layers, 12 heads of 64, in float32", kept == 72 * 1024),
    )  # fmt: skip

    def draw() -> Any:
        figure, (axis,) = panels(["tokens through the projections"])
        lines(axis, sizes, {"computing all again": [row[4] for row in rows],
                            "with the cache": [row[3] for row in rows]},
              "tokens N", "", log=True)  # fmt: skip
        figure.set_size_inches(5.6, 3)
        return figure

    full = 1024 * kept / 2**20
    return Result(
        name="kv-cache", question=QUESTION,
        table=Table(("N", "same words", "outputs differ by", "projected with cache", "without",
                     "saved"), rows),
        verdict=Verdict(checks),
        notes=(
            "The cache saves projections, and the scores of queries that are long done. The one "
            "new query still meets every key: the work of a token grows with the text.",
            f"The last outputs with and without are {bits} in float32 on the default engine.",
        ),
        exercise="How much does GPT-2 small keep at its full length of 1,024 tokens, and how much "
        "would it be if its 12 heads shared 3 heads of keys and values?",
        answer=f"{full:g} MiB, and {full * 3 / 12:g} MiB.",
        draw=draw,
    )  # fmt: skip


def _same_bits(model: Toy, N: int) -> str:
    """Whether one query alone has the bits that it has among all."""
    x = model.words[np.arange(N) % WORDS].astype(np.float32)
    q, k, v = (model.project(x, W.astype(np.float32)) for W in (model.Wq, model.Wk, model.Wv))
    alone = regard.attention(q[:, -1:], k, v, causal=True, align=N - 1)
    among = regard.attention(q, k, v, causal=True)[:, -1:]
    return "equal to the bit" if np.array_equal(alone, among) else "equal to rounding"
