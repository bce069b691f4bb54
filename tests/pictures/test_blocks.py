"""Shapes of a call: every side, every size."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from regard.pictures import shapes


def words(figure):
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.axes[0].texts]


def test_blocks_carry_names_sides_and_memory():
    figure = shapes((2, 6, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13))
    assert words(figure) == [
        "query", "2 × 6 heads", "Nq =\n5", "D = 7", "1.68 kB", "×",
        "keyᵀ", "2 × 3 heads", "D =\n7", "Nk = 11", "1.85 kB", "→",
        "weights", "2 × 6 heads", "Nq =\n5", "Nk = 11", "2.64 kB,\nnever formed", "×",
        "value", "2 × 3 heads", "Nk =\n11", "Dv = 13", "3.43 kB", "=",
        "output", "2 × 6 heads", "Nq =\n5", "Dv = 13", "3.12 kB", "",
    ]  # fmt: skip
    assert "2 query heads read one key/value head: h reads h // 2" in figure.get_supxlabel()


def test_longer_sides_are_longer_and_heads_are_sheets():
    figure = shapes((2, 4096, 64), (2, 512, 64), (2, 512, 64))
    boxes = [p for p in figure.axes[0].patches if isinstance(p, Rectangle)]
    assert len(boxes) == 5 * 2
    query, key, weights, value, output = boxes[1::2]
    assert query.get_height() > weights.get_width() > query.get_width() == key.get_height()
    assert query.get_height() == weights.get_height() == output.get_height()
    assert value.get_height() == key.get_width()
    assert [box.get_linestyle() for box in (query, weights)] == ["-", "--"]


def test_arrays_carry_their_dtypes():
    q, k = np.ones((5, 7), np.float32), np.ones((5, 7), np.float16)
    figure = shapes(q, k, k, dark=True, title="$x$")
    assert words(figure)[4] == "140 bytes"
    assert words(figure)[10] == "70 bytes"
    assert "in float32" in figure.get_supxlabel()
    assert "read one" not in figure.get_supxlabel()


def test_large_shapes_cost_nothing():
    assert "4.4 TB,\nnever formed" in words(shapes((2**20, 64), (2**20, 64), (2**20, 64)))


@pytest.mark.parametrize(
    ("sizes", "error", "says"),
    [
        (((3, 5), (3, 4), (3, 4)), ValueError, "key must have the query's head size"),
        (((3, 5), (3, -5), (3, 5)), ValueError, "a shape must be a tuple of int, 0 or more"),
        (((3, 5), [3, 5], (3, 5)), TypeError, "key must be a NumPy array, got list"),
    ],
)
def test_mistakes(sizes, error, says):
    with pytest.raises(error, match=says):
        shapes(*sizes)
