"""sinks: the tokens that draw weight in every text, and heads that continue what came before."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import models
from ..predicates import Array
from .drawing import lines, panels
from .measure import check_sizes
from .result import Check, Result, Table, Verdict, not_run

QUESTION = "How much weight does the first token draw, whatever the text says?"
SIZES = (2,)
SIZES_ARE = "times the even share that counts as a sink"
MODEL = "minilm"
TEXTS = (
    "Paris is the capital of France and lies on the Seine.",
    "The Law will never be perfect, but its application should be just.",
    "Two cooks argued about salt while the soup boiled over behind them.",
)


def shares(trace: Any) -> Array:
    """(layers, N): the part of all weight that each token draws, the mean over heads."""
    return np.array([layer.received().mean(axis=0) / len(trace) for layer in trace.layers])


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """First, last and other tokens of three texts, layer by layer; nothing is random."""
    check_sizes(sizes)
    if models.cached(MODEL) is None:
        return not_run("sinks", QUESTION, f"the model {MODEL} is not at hand")
    model = models.load(MODEL)
    traces = [model.look(text) for text in TEXTS]
    found = [shares(trace) * len(trace) for trace in traces]  # 1 is the even share
    first = np.mean([each[:, 0] for each in found], axis=0)  # (layers,)
    last = np.mean([each[:, -1] for each in found], axis=0)
    others = np.mean([each[:, 1:-1].mean(axis=1) for each in found], axis=0)
    rows = [(i, f"{a:.2f}", f"{b:.2f}", f"{c:.2f}")
            for i, (a, b, c) in enumerate(zip(first, last, others, strict=True))]  # fmt: skip
    times = sizes[0]
    least = min(float(each[1:, 0].min()) for each in found)
    checks = (
        Check(f"from layer 1 on, the first token draws more than {times} times its even share, "
              f"in each of {len(TEXTS)} texts", f"{least:.2f} times at least", least > times),
        Check("the words between draw less than theirs", f"{others[1:].max():.2f} times at most",
              bool(others[1:].max() < 1)),
    )  # fmt: skip

    def draw() -> Any:
        figure, (axis,) = panels(["weight drawn, in even shares"])
        series = {"first token": first.tolist(), "last token": last.tolist(),
                  "those between": others.tolist()}  # fmt: skip
        lines(axis, range(len(first)), series, "layer", "")
        axis.axhline(1, color="#8a8f98", linestyle=":")
        figure.set_size_inches(5.6, 3)
        return figure

    head = max(
        (float(layer.received()[h, 0]) / len(traces[0]), i, h)
        for i, layer in enumerate(traces[0].layers) for h in range(layer.weights.shape[0])
    )  # fmt: skip
    return Result(
        name="sinks", question=QUESTION,
        table=Table(("layer", "first token, × even share", "last", "between"), rows),
        verdict=Verdict(checks, "induction needs a causal model, smollm2, which is not at hand"),
        notes=(
            "minilm is an encoder: every token sees every other, and its first token is [CLS]. In "
            "a causal model the first token is also the only one that all others can see.",
        ),
        exercise="Which head gives most of its weight to the first token of the first text?",
        answer=f"Layer {head[1]}, head {head[2]}: {head[0]:.1%} of all its weight.",
        draw=draw,
    )  # fmt: skip
