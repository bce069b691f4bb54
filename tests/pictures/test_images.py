"""Three pictures as images, held against those that were looked at.

`python tests/pictures/test_images.py` draws them anew: look at them before you commit them.
"""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import regard
from regard.pictures import heat, links, mask

GOLDEN = Path(__file__).parent.parent / "golden" / "pictures.npz"
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


def coarse(figure):
    """The picture in RGB, averaged over squares of COARSE pixels."""
    figure.set_dpi(80)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = np.asarray(canvas.buffer_rgba())[..., :3].astype(float)
    h, w = (n // COARSE for n in image.shape[:2])
    image = image[: h * COARSE, : w * COARSE].reshape(h, COARSE, w, COARSE, 3)
    return image.mean(axis=(1, 3)).round().astype(np.uint8)


@pytest.mark.parametrize("name", DRAWN)
def test_it_looks_as_it_did(name):
    with np.load(GOLDEN) as golden:
        expected = golden[name].astype(float)
    actual = coarse(DRAWN[name]()).astype(float)
    assert actual.shape == expected.shape
    apart = np.abs(actual - expected).max(axis=-1)
    assert apart.mean() < 2.0, "of 255, over the whole picture"
    assert (apart > 40).mean() < 0.01, "of the squares are of another colour"


if __name__ == "__main__":
    np.savez_compressed(GOLDEN, **{name: coarse(draw()) for name, draw in DRAWN.items()})
