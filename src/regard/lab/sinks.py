"""sinks: tokens that draw weight in every text, and heads that continue what came before."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import models
from ..predicates import Array
from .drawing import lines, matrix, panels
from .measure import check_sizes
from .result import Check, Result, Table, Verdict, not_run

QUESTION = "How much weight does the first token draw, and which heads find what came next before?"
SIZES = (50,)
SIZES_ARE = "random tokens, read twice"
ENCODER, DECODER = "minilm", "smollm2"
TEXTS = (
    "Paris is the capital of France and lies on the Seine.",
    "The Law will never be perfect, but its application should be just.",
    "Two cooks argued about salt while the soup boiled over behind them.",
)


def drawn(trace: Any, causal: bool) -> Array:
    """(layers,): weight on the first token, mean over heads, as a multiple of its even share.

    Even is 1/N a row; where a row sees only itself and what came before, 1, 1/2, 1/3, ...
    """
    N = len(trace)
    even = (1 / np.arange(1, N + 1)).sum() if causal else 1
    return np.array([layer.received()[:, 0].mean() for layer in trace.layers]) / even


def induction(trace: Any, n: int) -> Array:
    """(layers, H): mean weight from each token of a repeat to the one after its first place.

    Tokens n … 2n − 1 repeat tokens 0 … n − 1: token i was at i − n, and i − n + 1 came next.
    """
    i = np.arange(n, 2 * n - 1)
    return np.array(
        [np.asarray(layer.weights)[:, i, i - n + 1].mean(axis=1) for layer in trace.layers]
    )


def read_twice(model: Any, n: int, seed: int) -> tuple[Array, Array]:
    """`induction` of random tokens read twice, and of as many that do not repeat."""
    words = model.tokenizer.get_vocab_size()
    first, other = np.random.default_rng(seed).integers(words // 10, words, (2, n)).tolist()
    return induction(model.look(first + first), n), induction(model.look(first + other), n)


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """The first token of three texts in both models; random tokens twice through the second."""
    check_sizes(sizes, 1, 5)
    absent = [name for name in (ENCODER, DECODER) if models.cached(name) is None]
    if absent:
        return not_run("sinks", QUESTION, absent)
    encoder, decoder = models.load(ENCODER), models.load(DECODER)
    first = {
        ENCODER: np.array([drawn(encoder.look(text), causal=False) for text in TEXTS]),
        DECODER: np.array([drawn(decoder.look(text), causal=True) for text in TEXTS]),
    }  # (texts, layers)
    n = sizes[0]
    found, control = read_twice(decoder, n, seed)
    threshold = 5 * float(control.max())
    best = np.argsort(found, axis=None)[::-1][:5]
    heads = [(int(a), int(b)) for a, b in zip(*np.unravel_index(best, found.shape), strict=True)]
    rows = [(f"{a}.{b}", f"{found[a, b]:.3f}", f"{control[a, b]:.3f}") for a, b in heads]
    checks = (
        *(Check(f"{name}: the first token draws more than 1.5 times its even share, in the mean of "
                f"all layers and {len(TEXTS)} texts", f"{each.mean():.2f} times, and "
                f"{each.mean(axis=0).max():.2f} in the layer with most", bool(each.mean() > 1.5))
          for name, each in first.items()),
        Check("some head attends to what came next the first time, above five times the most that "
              "any head gives there without a repeat", f"{found.max():.3f}, threshold "
              f"{threshold:.3f}", bool(found.max() > threshold)),
        Check("few heads do", f"the median head gives {np.median(found):.4f}",
              bool(np.median(found) < threshold)),
    )  # fmt: skip

    def draw() -> Any:
        figure, (left, right) = panels(["first token, × even share", f"induction, {DECODER}"])
        layers = max(each.shape[1] for each in first.values())
        series = {name: each.mean(axis=0).tolist() for name, each in first.items()}
        lines(left, range(layers), series, "layer", "")
        left.axhline(1, color="#8a8f98", linestyle=":")
        matrix(figure, right, found.T, largest=1.0)
        right.set(xlabel="layer", ylabel="head")
        return figure

    over = int((found > threshold).sum())
    return Result(
        name="sinks", question=QUESTION,
        table=Table(("layer.head", "induction", "the same place without a repeat"), rows),
        verdict=Verdict(checks),
        notes=(
            "In minilm, an encoder, the first token is [CLS] and all tokens see each other. In a "
            "causal model the first token is the only one that all see, so that its even share "
            "is larger; it is counted so here.",
            "The threshold is measured: the same places in a text of which nothing repeats.",
        ),
        exercise=f"How many of the {found.size} heads of {DECODER} are above the threshold, and in "
        "which layers?",
        answer=f"{over}, in layers "
        + ", ".join(map(str, np.unique(np.nonzero(found > threshold)[0]))) + ".",
        draw=draw,
    )  # fmt: skip
