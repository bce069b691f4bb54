"""What leaves the page: CSV, PNG, SVG, paper."""

import csv
import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from browser import made_trace

L, H, N = 3, 2, 20
SPECIAL = np.isin(np.arange(N), [0, N - 1])
TOKENS = ["[CLS]", "un", "##touch", "##able", *(f"w{i}" for i in range(4, N - 1)), "[SEP]"]


@pytest.fixture(scope="module")
def trace():
    return made_trace(L, H, N, tokens=TOKENS, special=SPECIAL)


@pytest.fixture(scope="module")
def causal():
    return made_trace(L, H, N, causal=True, seed=1)


def test_csv(visit, causal):
    page = visit(causal, "#L2H1")
    page.press('[data-action="csv"]')
    text = page.page.evaluate("navigator.clipboard.readText()")
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == [
        "L2H1 weights: query in rows, key in columns",
        *(f"{i} word{i}" for i in range(N)),
    ]
    w = causal.weights(2)[1]
    for i, (name, *cells) in enumerate(rows[1:]):
        assert name == f"{i} word{i}"
        assert cells[i + 1 :] == [""] * (N - i - 1)
        np.testing.assert_allclose(
            np.array(cells[: i + 1], float), w[i, : i + 1], atol=1 / 255, rtol=0
        )
    assert len(rows) == N + 1


def saved(page, action):
    with page.page.expect_download() as download:
        page.page.locator(f'[data-action="{action}"]').click()
    return download.value.suggested_filename, download.value.path().read_bytes()


@pytest.mark.parametrize("view", ["matrix", "links"])
def test_png(visit, trace, view):
    page = visit(trace, f"#L2H1&view={view}")
    name, content = saved(page, "png")
    assert name == "regard-L2H1-weights.png"
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(content[i : i + 4], "big") for i in (16, 20))
    assert min(width, height) > 400
    assert len(content) > 10_000


def test_svg(visit, trace):
    page = visit(trace, "#L2H1&view=links&links=9")
    name, content = saved(page, "svg")
    assert name == "regard-L2H1-weights.svg"
    root = ElementTree.fromstring(content)
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert len(root.findall(f".//{space}path")) == 9
    texts = [text.text for text in root.findall(f".//{space}text")]
    assert [t for t in texts if t == "##able"] == ["##able"] * 2


def test_print(visit, trace):
    page = visit(trace, "#L2H1", scheme="dark")
    assert page.page.pdf()[:5] == b"%PDF-"
    page.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.page.emulate_media(media="print")
    assert page.page.locator("#stage-canvas").is_visible()
    assert page.page.locator(".tools").is_hidden()
    assert (
        page.page.evaluate("getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    page.page.emulate_media(media="screen")
    page.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    page.settle()
    assert (
        page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 16, 20)"
    )
