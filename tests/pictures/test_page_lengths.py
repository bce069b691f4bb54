"""The controls once more, at the lengths where pictures are pooled and scrolled."""

import csv
import io

import numpy as np
import pytest
from browser import made_trace, value_in

from regard.pictures.palette import LIGHT, colours

L, H = 2, 3


def long_trace(n, causal):
    tokens = ["[CLS]", *(f"##s{i}" if i % 3 == 0 else f"w{i}" for i in range(1, n - 1)), "[SEP]"]
    special = np.isin(np.arange(n), [0, n - 1])
    return made_trace(L, H, n, causal=causal, tokens=tokens, special=special, seed=n)


def assert_cells(page, expected, cells):
    for row, column in cells:
        value, bound, _ = value_in(page.hover(row, column))
        assert abs(value - expected[row, column]) <= bound + 1e-5, (row, column)


@pytest.mark.slow
@pytest.mark.parametrize("n", [128, 512])
@pytest.mark.parametrize("causal", [False, True])
def test_controls_at_length(visit, n, causal):
    trace = long_trace(n, causal)
    page = visit(trace, "#L1H2")
    w = trace.weights(1)[2]

    page.set("scale", "linear")
    dots = page.colour(n - 2, int(w[n - 2].argmax()))
    step = round(255 * float(w[n - 2].max()))
    ramp = colours(LIGHT, 256).astype(int)
    assert np.abs(ramp[max(step - 4, 0) : step + 5] - dots).sum(axis=1).min() <= 6

    page.set("kind", "contributions")
    assert_cells(page, trace.contribution(1)[2], [(n - 1, 0), (n // 2, n // 3), (n - 1, n - 1)])
    page.set("kind", "weights")

    page.set("special", False)
    page.set("renormalise")
    inner = w[1:-1, 1:-1]
    left = inner.sum(axis=1, keepdims=True)
    assert_cells(page, inner / left, [(n - 3, 0), (n // 2, n // 3), (n - 3, n - 3)])
    share = float(page.text("#status").partition("with ")[2].split(" %")[0].split()[-3])
    assert abs(share - 100 * (1 - inner.sum() / w[1:-1].sum())) < 1.5
    page.set("special", True)
    page.set("renormalise", False)

    page.set("words")
    words = trace.words()
    m = len(words)
    assert m < n
    assert_cells(page, words.weights(1)[2], [(m - 1, 0), (m // 2, m // 3), (m - 1, m - 1)])
    page.set("words", False)

    page.press('[data-action="csv"]')
    rows = list(csv.reader(io.StringIO(page.page.evaluate("navigator.clipboard.readText()"))))
    last = np.array(rows[n][1:], float)
    np.testing.assert_allclose(last, w[-1], atol=1 / 255)

    page.set("view", "links")
    page.set("links", 40)
    titles = page.all("#links path title", "e => e.textContent.split(': ')[0]")
    best = np.argsort(-w, axis=None)[:40]
    expected = {f"{trace.tokens[k // n]} → {trace.tokens[k % n]}" for k in best}
    assert len(titles) == 40
    assert len(set(titles) & expected) >= 37  # of those that share a byte another may be drawn

    token = n // 2
    page.press(f'.chip[data-place="{token}"]')
    every = np.array([trace.weights(layer)[:, token] for layer in range(L)]).reshape(-1, n)
    cells = page.all("#attends-table tbody tr")[0].split("\t")
    assert cells[0].split()[0] == str(every.max(axis=0).argmax())
    assert cells[2].strip() == "L{}H{}".format(*divmod(int(every.max(axis=1).argmax()), H))

    page.set("statistic", "entropy")
    records = {f"L{r['layer']}H{r['head']}": r["entropy"] for r in trace.heads()}
    shown = [text.split()[0] for text in page.all(".thumb .under")]
    assert shown == sorted(records, key=lambda head: -records[head])
