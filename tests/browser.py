"""A page of regard in a real browser, without a screen: opened from disk, driven, and watched."""

from __future__ import annotations

import re

import numpy as np

from regard.trace import Trace

NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
READ = re.compile(rf"(?:weight|contribution) (≈ )?{NUMBER}(?: ± {NUMBER})?( exact)?")
RANK = re.compile(r"rank (\d+)(?: to (\d+))? of (\d+)")


class Visit:
    """One page in the browser, and what is read from it."""

    def __init__(self, page, address):
        self.page, self.address = page, address
        self.requests, self.errors = [], []
        page.on("request", lambda request: self.requests.append(request.url.partition("#")[0]))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "console", lambda said: self.errors.append(said.text) if said.type == "error" else None
        )
        page.on("dialog", lambda dialog: self.errors.append(f"a dialog: {dialog.message}"))

    def settle(self):
        """Wait until the page says that nothing is left to do."""
        # Two frames first, so that what was pressed has been taken up.
        self.page.evaluate(
            "() => new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f)))"
        )
        self.page.wait_for_selector("html[data-shown] main[aria-busy=false]", timeout=60_000)

    def set(self, name, value=True):
        """Set a control by its setting's name, as a user does."""
        inputs = self.page.locator(f'[data-setting="{name}"]')
        kind = inputs.first.get_attribute("type")
        if kind == "radio":
            self.page.locator(f'[data-setting="{name}"][value="{value}"]').check()
        elif kind == "checkbox":
            inputs.first.set_checked(value)
        elif kind == "range":
            inputs.first.fill(str(value))
        else:
            inputs.first.select_option(value)
        self.settle()

    def press(self, selector):
        self.page.locator(selector).first.click()
        self.settle()

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def all(self, selector, what="e => e.innerText"):
        return self.page.locator(selector).evaluate_all(f"all => all.map({what})")

    def place(self, row, column):
        """Where in the window a cell of the open head lies, once it is scrolled to."""
        return self.page.evaluate(
            """([row, column]) => {
              const stage = document.getElementById('stage');
              const {cell, left, top} = Object.fromEntries(Object.entries(stage.dataset).map(([k, v]) => [k, Number(v)]));
              stage.scrollTop = Math.max(0, (row + 0.5) * cell - (stage.clientHeight - top) / 2);
              stage.scrollLeft = Math.max(0, (column + 0.5) * cell - (stage.clientWidth - left) / 2);
              window.scrollBy(0, stage.getBoundingClientRect().top - 5);
              const box = stage.getBoundingClientRect();
              const x = left + (column + 0.5) * cell - stage.scrollLeft;
              const y = top + (row + 0.5) * cell - stage.scrollTop;
              return [box.left + x, box.top + y, x, y];
            }""",
            [row, column],
        )

    def hover(self, row, column):
        """What the page says of a cell under the mouse."""
        x, y, *_ = self.place(row, column)
        self.page.mouse.move(x, y)
        return self.text("#readout")

    def colour(self, row, column):
        """The colour of a cell on the canvas."""
        *_, x, y = self.place(row, column)
        self.page.mouse.move(1, 1)  # off the picture, whose marks it would see
        self.page.evaluate("() => new Promise(requestAnimationFrame)")
        return self.page.evaluate(
            """([x, y]) => {
              const ratio = window.devicePixelRatio;
              const canvas = document.getElementById('stage-canvas');
              return [...canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3);
            }""",
            [x, y],
        )


def value_in(readout):
    """The value, its bound, and whether it is called exact."""
    about, value, bound, exact = READ.search(readout).groups()
    assert bool(about) == bool(bound) != bool(exact), readout
    return float(value), float(bound or 0), bool(exact)


def rank_in(readout):
    first, last, of = RANK.search(readout).groups()
    return int(first), int(last or first), int(of)


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)).astype(np.float32)


def made_trace(layers, heads, n, *, causal=False, tokens=None, seed=0, spread=2.5, **options):
    """A trace of random weights, some rows sharp and some flat."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((layers, heads, n, n)) * rng.uniform(
        0.1, spread, (layers, heads, n, 1)
    )
    if causal:
        scores[..., ~np.tri(n, dtype=bool)] = -np.inf
    if tokens is None:
        tokens = [f"word{i}" for i in range(n)]
    moved = rng.uniform(0.1, 3, (layers, heads, n)).astype(np.float32)
    return Trace.from_arrays(softmax(scores), tokens, **{"moved": moved, **options})
