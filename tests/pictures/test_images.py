"""Three pictures as images, held against those that were looked at.

`python tests/pictures/test_images.py` draws them anew: look at them before you commit them.
"""

import runpy
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import regard
from regard.pictures import heat, links, mask

GOLDEN = Path(__file__).parents[1] / "golden" / "pictures.npz"
DOCUMENTS = Path(__file__).parents[2] / "docs" / "pictures"
COARSE = 5  # pixels of a side that are averaged: letters blur, shapes and colours stay


def causal():
    """A head with hidden pairs and labels."""
    q, k = np.random.default_rng(0).standard_normal((2, 11, 3)) * 1.5
    tokens = ["the", "law", "will", "never", "be", "perfect", ",", "but", "it", "is", "just"]
    return heat(regard.look(q, k, causal=True), tokens=tokens, title="a causal head")


def tiles():
    """A mask in dark."""
    ids = np.repeat([1, 2, 3], [9, 14, 9])
    return mask(regard.masks.documents(ids) & regard.masks.window(6, 9), 32, tile=(4, 4), dark=True)


def lines():
    """Links of a head that looks back."""
    weights = np.eye(9)[[0, 0, 1, 2, 3, 4, 5, 6, 7]] * 0.7 + 0.3 / 9
    return links(weights, tokens=list("attention"), n=30)


DRAWN = {"causal": causal, "tiles": tiles, "lines": lines}


def pixels(figure):
    """The picture, (h, w, 4)."""
    figure.set_dpi(80)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def coarse(image):
    """The image in RGB, averaged over squares of COARSE pixels."""
    image = image[..., :3].astype(float)
    h, w = (n // COARSE for n in image.shape[:2])
    image = image[: h * COARSE, : w * COARSE].reshape(h, COARSE, w, COARSE, 3)
    return image.mean(axis=(1, 3)).round().astype(np.uint8)


def assert_alike(actual, expected, share=0.02):
    """Both coarse: alike but for how letters are drawn, and for what their widths push aside."""
    assert actual.shape == expected.shape
    apart = np.maximum(nearest(actual, expected), nearest(expected, actual))
    assert apart.mean() < 4.5, "of 255, over the whole picture"
    assert (apart > 40).mean() < share, "of the squares are of another colour"


def nearest(a, b):
    """How far each square of a is from the most alike of b in its place and around it."""
    around = np.pad(b.astype(float), ((1, 1), (1, 1), (0, 0)), mode="edge")
    height, width = a.shape[:2]
    return np.min(
        [
            np.abs(a - around[y : y + height, x : x + width]).max(axis=-1)
            for y in range(3)
            for x in range(3)
        ],
        axis=0,
    )


@pytest.mark.parametrize("name", DRAWN)
def test_it_looks_as_it_did(name):
    with np.load(GOLDEN) as golden:
        assert_alike(coarse(pixels(DRAWN[name]())), golden[name])


@pytest.mark.usefixtures("minilm")
def test_the_documents_show_what_is_drawn_today():
    image = pytest.importorskip("PIL.Image")
    figures = runpy.run_path(str(DOCUMENTS / "draw.py"))["figures"]()
    drawn = {path.stem for path in DOCUMENTS.glob("*.png")} - {"page"}  # that one is of a browser
    assert drawn == set(figures)
    for name, figure in figures.items():
        shown = np.asarray(image.open(DOCUMENTS / f"{name}.png").convert("RGB"))
        assert_alike(coarse(pixels(figure)), coarse(shown), share=0.04)


if __name__ == "__main__":
    np.savez_compressed(GOLDEN, **{name: coarse(pixels(draw())) for name, draw in DRAWN.items()})
