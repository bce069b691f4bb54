"""Around the pictures: themes, sizes, access, hostile text, long texts, old browsers."""

import http.server
import threading

import numpy as np
import pytest
from browser import made_trace, value_in

from regard.pictures import sheets
from regard.trace import Trace

HOSTILE = [
    "</script><img onerror=alert(1) src=x>", "<!--<script>", "👩‍👩‍👧", "שלום", "مرحبا", "", "\u2028", "a\u202eb", "&lt;",
    "=1+1", '"', "'", "\ud800", "\0", "\\u003c", "{{script}}", "$&", "]]>", "\n", "é",
]  # fmt: skip


@pytest.mark.parametrize("view", ["matrix", "links"])
def test_text_that_looks_like_a_script_is_inert(visit, view):
    trace = made_trace(2, 2, len(HOSTILE), tokens=HOSTILE)
    page = visit(trace, f"#L0H0&view={view}&token=0", title="</title><script>alert(2)</script>")
    assert page.page.locator("img").count() == 0
    assert page.page.title() == "</title><script>alert(2)</script> – regard"
    assert page.text("#title") == "</title><script>alert(2)</script>"
    chips = page.all(".chip bdi", "e => e.textContent")
    assert len(chips) == len(HOSTILE)
    assert chips[0].startswith("</script><img")
    assert chips[3:6] == ["שלום", "مرحبا", "∅"]
    assert all(chip.strip() for chip in chips)
    if view == "matrix":
        assert "0 </script><img" in page.hover(0, 0)


@pytest.mark.parametrize("tokens", [["a"], ["[CLS]", "[SEP]"], [""]])
def test_texts_of_almost_nothing(visit, tokens):
    n = len(tokens)
    trace = Trace.from_arrays(
        np.full((1, 1, n, n), 1 / n, np.float32),
        tokens,
        special=[t.startswith("[") for t in tokens],
    )
    page = visit(trace)
    assert value_in(page.hover(0, 0))[0] == pytest.approx(1 / n, abs=1e-6)
    if trace.special.any():
        page.set("special", False)  # which leaves nothing
        assert "Left out" in page.text("#status")
    page.set("view", "links")


def test_the_policy_lets_nothing_out_and_nothing_in(visit):
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = visit(made_trace(1, 1, 5))
        blocked = page.page.evaluate(
            """async (address) => {
              const broken = [];
              document.addEventListener('securitypolicyviolation', (e) => broken.push(e.effectiveDirective));
              const image = document.createElement('img');
              image.src = address;
              const script = document.createElement('script');
              script.textContent = 'window.stolen = 1';
              document.body.append(image, script);
              await fetch(address).catch(() => 0);
              await new Promise((done) => setTimeout(done, 200));
              return [broken.sort(), window.stolen];
            }""",
            f"http://127.0.0.1:{server.server_address[1]}/",
        )
        server.shutdown()
    assert blocked == [["connect-src", "img-src", "script-src-elem"], None]
    assert asked == []
    page.errors.clear()  # the browser's words on what it refused,
    del page.requests[1:]  # and what it would have asked


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_theme_by_the_system_and_by_the_switch(visit, scheme):
    page = visit(made_trace(1, 2, 7), scheme=scheme)
    paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 16, 20)"}

    def seen():
        return page.page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert seen() == paper[scheme]
    other = {"light": "dark", "dark": "light"}[scheme]
    page.set("theme", other)
    assert seen() == paper[other]
    corner = page.page.locator("#stage-canvas").evaluate(
        "c => [...c.getContext('2d').getImageData(1, 1, 1, 1).data].slice(0, 3).join(', ')"
    )
    assert f"rgb({corner})" == paper[other]
    page.set("theme", "system")
    page.page.emulate_media(color_scheme=other)
    page.settle()
    assert seen() == paper[other]


def test_a_size_for_projectors(visit):
    page = visit(made_trace(1, 2, 7))
    size = "parseFloat(getComputedStyle(document.querySelector('#status')).fontSize)"
    before = page.page.evaluate(size)
    page.set("size", "projector")
    assert page.page.evaluate(size) == pytest.approx(1.5 * before)


def test_zoom(visit):
    page = visit(made_trace(1, 1, 128))
    fit = float(page.page.locator("#stage").get_attribute("data-cell"))
    for _ in range(4):
        page.press('[data-action="larger"]')
    assert float(page.page.locator("#stage").get_attribute("data-cell")) > 2 * fit
    assert "query 100 word100 → key 90 word90" in page.hover(100, 90)
    page.press('[data-action="fit"]')
    assert float(page.page.locator("#stage").get_attribute("data-cell")) == fit


CONTRAST = """() => {
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const parts = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parts(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    const gone = e.closest('script, svg, [hidden], option, noscript, .chip.left-out, .thumb.dim') || !e.getClientRects().length;
    if (!walker.currentNode.data.trim() || gone || e.closest(':disabled, label:has(:disabled)')) continue;
    const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push([walker.currentNode.data.trim().slice(0, 30), ratio]);
  }
  return found;
}"""
UNNAMED = """() => [...document.querySelectorAll('button, input, select, [tabindex], [role=img], dialog, section, canvas')]
  .filter((e) => !e.closest('[aria-hidden=true]') && e.id !== 'stage-canvas')
  .filter((e) => !(e.ariaLabel || e.textContent.trim() || (e.labels && [...e.labels].some((l) => l.textContent.trim()))))
  .map((e) => e.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_access(visit, scheme):
    page = visit(
        made_trace(2, 3, 11), "#L1H1&token=4&statistic=entropy&order=highest", scheme=scheme
    )
    assert page.page.evaluate(CONTRAST) == []
    assert page.page.evaluate(UNNAMED) == []
    page.press('[data-action="help"]')
    assert page.page.evaluate(CONTRAST) == []
    assert "Wiegreffe" in page.text("#help")
    page.page.keyboard.press("Escape")
    assert page.page.locator("#help").is_hidden()
    reached = set()
    page.page.locator("select").first.focus()
    for _ in range(60):
        page.page.keyboard.press("Tab")
        reached.add(
            page.page.evaluate("document.activeElement.id || document.activeElement.className")
        )
    assert {"stage", "thumb", "chip"} <= reached
    assert page.page.evaluate("document.documentElement.lang") == "en"


def test_narrow_windows_do_not_scroll_sideways(visit):
    for view in ("matrix", "links"):
        page = visit(made_trace(3, 4, 23), f"#L0H0&token=3&view={view}", size=(390, 800))
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_long_text_is_pooled_and_has_an_exact_window(visit, monkeypatch):
    monkeypatch.setattr(sheets, "MOST_PAIRS", 2 * 3 * 100**2)
    monkeypatch.setattr(sheets, "POOLED", 20)
    trace = made_trace(2, 3, 131)
    page = visit(trace, "#L1H2", window=(40, 87))
    w = trace.weights(1)[2]
    assert "131 tokens: too many" in page.text("#text-note")
    edges = np.arange(21) * 131 // 20
    for row, column in [(0, 0), (3, 17), (19, 4)]:
        value, bound, _ = value_in(page.hover(row, column))
        part = w[edges[row] : edges[row + 1], edges[column] : edges[column + 1]]
        assert abs(value - part.sum(axis=1).mean()) <= bound + 1e-5
    page.set("sheet", 1)
    assert "Tokens 40 to 86 of 131" in page.text("#text-note")
    for row, column in [(0, 0), (30, 7), (46, 46)]:
        readout = page.hover(row, column)
        assert f"query {row + 40} word{row + 40}" in readout
        value, bound, _ = value_in(readout)
        assert abs(value - w[row + 40, column + 40]) <= bound + 1e-6


def test_a_browser_that_is_too_old_is_told(visit):
    page = visit(made_trace(1, 1, 3), script="delete window.DecompressionStream")
    page.page.wait_for_selector("#failure:not([hidden])")
    for name in ("Chrome and Edge 80", "Firefox 113", "Safari 16.4"):
        assert name in page.text("#failure")
