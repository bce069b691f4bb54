"""The page of a trace in a browser: its size, when it shows something, how fast a head opens.

`python -m regard.bench.page` needs playwright and the system's Chromium. 144 heads of random
weights over 512 tokens, each row a softmax of normal scores times 2; causal and full, with the
norms that contributions need.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..reference import softmax
from ..trace import Trace

__all__ = ["main"]

LAYERS = HEADS = 12
N = 512
OPENED = [(2, 3), (9, 5), (11, 11), (0, 7), (5, 2)]
# The moment of the frame after the one in which the page says that the head is drawn.
FIRST = """new MutationObserver(() => {
  if (!window.first && document.documentElement.dataset.shown) {
    window.first = 1;
    requestAnimationFrame(() => setTimeout(() => { window.first = performance.now(); }));
  }
}).observe(document, {subtree: true, attributes: true});"""
OPEN = """([layer, head]) => new Promise(async (done) => {
  const start = performance.now();
  document.querySelector(`.thumb[data-layer="${layer}"][data-head="${head}"]`).click();
  while (document.documentElement.dataset.shown !== `L${layer}H${head}`) {
    await new Promise(requestAnimationFrame);
  }
  setTimeout(() => done(performance.now() - start));
})"""


def made(causal: bool) -> Trace:
    rng = np.random.default_rng(0)
    layers = []
    for _ in range(LAYERS):
        scores = 2 * rng.standard_normal((HEADS, N, N), dtype=np.float32)
        if causal:
            scores[:, ~np.tri(N, dtype=bool)] = -np.inf
        layers.append(softmax(scores))
    norms = rng.uniform(0.1, 3, (LAYERS, HEADS, N)).astype(np.float32)
    return Trace.from_arrays(layers, [f"token{i}" for i in range(N)], moved=norms)


def measure(browser: Any, path: Path) -> tuple[float, float, float]:
    """Milliseconds to the first picture, to all small pictures, and to open a head (median)."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.add_init_script(FIRST)
    page.goto(path.as_uri())
    page.wait_for_selector("main[aria-busy=false]", timeout=120_000)
    every = page.evaluate("performance.now()")
    first = page.evaluate("window.first")
    opened = median(page.evaluate(OPEN, head) for head in OPENED)
    page.close()
    return first, every, opened


def main() -> None:
    sync_playwright = import_module("playwright.sync_api").sync_playwright
    program = shutil.which("chromium") or sys.exit("there is no chromium")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        print("| pairs | MB | written in | first picture | all thumbnails | a head opens |")
        print("|---|---|---|---|---|---|")
        for name in ("causal", "full"):
            trace, path = made(name == "causal"), Path(folder, f"{name}.html")
            start = time.perf_counter()
            trace.page(path)
            wrote = time.perf_counter() - start
            rounds = [measure(browser, path) for _ in range(6)][1:]  # the first warms up
            first, every, opened = (median(times) for times in zip(*rounds, strict=True))
            size = path.stat().st_size / 1e6
            times = " | ".join(f"{ms:.0f} ms" for ms in (first, every, opened))
            print(f"| {name} | {size:.1f} | {wrote:.1f} s | {times} |")


if __name__ == "__main__":
    main()
