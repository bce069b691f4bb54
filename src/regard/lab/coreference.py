"""coreference: does a head of a real model know what “its” stands for?"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import models, pictures
from .measure import check_sizes
from .result import Check, Result, Table, Verdict, not_run

QUESTION = "In a sentence about the Law and its application, what does “its” attend to?"
SIZES = (4,)
SIZES_ARE = "heads to list"
MODEL = "minilm"
TEXT = (
    "The Law will never be perfect, but its application should be just - this is what we are "
    "missing, in my opinion."
)
KNOWN = [(3, 1, 0.804), (4, 11, 0.556)]  # layer and head from 0, weight from its to law


def run(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Result:
    """All heads of minilm, ranked by the weight from its to law; nothing is random."""
    check_sizes(sizes)
    if models.cached(MODEL) is None:
        return not_run("coreference", QUESTION, [MODEL])
    trace = models.load(MODEL).look(TEXT)
    links = trace.find("its", "law")
    best = links[: sizes[-1]]
    rows = [(f"{x.weight:.3f}", x.layer, x.head, f"{x.query} {x.query_token}",
             f"{x.key} {x.key_token}") for x in best]  # fmt: skip
    found = [(x.layer, x.head, round(x.weight, 3)) for x in links[: len(KNOWN)]]
    first = best[0]
    weights = np.asarray(trace.layers[first.layer].weights[first.head])
    even = float(np.mean([link.weight for link in links]))
    checks = (
        *(Check(f"layer {layer}, head {head} is number {i + 1} with {weight}",
                f"layer {found[i][0]}, head {found[i][1]}: {found[i][2]}",
                found[i][:2] == (layer, head) and abs(found[i][2] - weight) < 0.002)
          for i, (layer, head, weight) in enumerate(KNOWN)),
        Check("no key has more of its than law, in that head",
              f"the largest of the row is on {trace.tokens[int(weights[first.query].argmax())]!r}",
              int(weights[first.query].argmax()) == first.key),
        Check("most heads do not: the mean of all is far below", f"{even:.3f} over "
              f"{len(links)} heads", even < 0.2 * first.weight),
    )  # fmt: skip

    def draw() -> Any:
        title = f"{MODEL}, layer {first.layer}, head {first.head}"
        return pictures.heat(trace, head=(first.layer, first.head), title=title)

    other = trace.find("this", "law")[0]
    return Result(
        name="coreference", question=QUESTION,
        table=Table(("weight", "layer", "head", "query", "key"), rows), verdict=Verdict(checks),
        notes=(
            "The well-known picture of this sentence, its → Law, is of another model (layer 5 of "
            "6, two heads) and counts words from 0. With [CLS] before them its cell (8, 1) is "
            f"({first.query}, {first.key}) here.",
            f"One head of one sentence proves nothing about language: {len(links)} heads were "
            "searched for the largest weight.",
        ),
        exercise="And “this”, later in the sentence: how much of it goes to law, in the best head?",
        answer=f"{other.weight:.3f}, in layer {other.layer}, head {other.head}: "
        + ("less" if other.weight < first.weight else "more") + " than that of its.",
        draw=draw,
    )  # fmt: skip
