"""What notebooks show: HTML that needs nothing, with the right colours in it, of bounded size."""

import re
from base64 import b64decode
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
from helpers import draw, draw_call, run_python

import regard
from regard.pictures.palette import DARK, LIGHT


class Tags(HTMLParser):
    """The tags of a text, their attributes, and the words between them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words += data


def pictures_of(html):
    """The PNGs for dark and for light, (h, w, 4) of 0 to 255, in order."""
    image = pytest.importorskip("PIL.Image")
    for content in re.findall(r'"data:image/png;base64,([^"]+)"', html):
        yield np.asarray(image.open(BytesIO(b64decode(content))).convert("RGBA"))


def colour(pixel):
    return "#" + "".join(f"{channel:02x}" for channel in pixel[:3])


def trace_of(tokens, N=None):
    N = N or len(tokens)
    layers = [regard.look(q, q) for q in draw(0, (2, 3, N, 2))[0]]
    return regard.Trace("", tokens, np.zeros((N, 2)), np.zeros(N), layers)


@pytest.mark.parametrize(("which", "theme"), [(0, DARK), (1, LIGHT)])
def test_colours_of_one_head_in_dark_and_light(which, theme):
    weights = np.array([[1.0, 0, 0], [0, 1, 0], [0, np.nan, 1]])
    attended = regard.AttentionMap.from_weights(weights, visible=np.tri(3, dtype=bool))
    html = attended._repr_html_()
    dark, source = [attributes for tag, attributes in Tags(html).tags if tag in ("source", "img")][
        :2
    ]
    assert dark["media"] == "(prefers-color-scheme: dark)"
    picture = list(pictures_of(html))[which]
    assert picture.shape == (int(source["height"]), int(source["width"]), 4) == (288, 288, 4)
    centre = [[colour(picture[96 * i + 48, 96 * j + 48]) for j in range(3)] for i in range(3)]
    one, zero = theme.ramp[-1], theme.ramp[0]
    assert centre[0][0] == centre[1][1] == one
    assert centre[1][0] == centre[2][0] == zero
    assert centre[2][1] == theme.strange
    hidden = picture[:96, 96:].reshape(-1, 4)
    assert {colour(pixel) for pixel in hidden} == {theme.hidden, theme.hatch}
    words = Tags(html).words
    assert "3 queries × 3 keys" in words
    assert "hatched = hidden, red = not a number" in words


def test_heads_stand_side_by_side():
    q, k, _ = draw_call(1, lead=(2,), H=3, Nq=5, Nk=7)
    attended = regard.look(q * 9, k * 9)
    formed = np.asarray(attended.weights)
    picture = list(pictures_of(attended._repr_html_()))[1]
    side = 576 // 3 - 5
    assert picture.shape == (2 * side + 5, 3 * side + 10, 4)
    assert picture[side + 2, :, 3].max() == 0  # the gap is transparent
    steps = np.linspace(0, 8, 64)
    for b, h, i, j in ((0, 0, 0, 0), (1, 2, 4, 6), (0, 1, 3, 2), (1, 0, 2, 5)):
        y = b * (side + 5) + int((i + 0.5) * side / 5)
        x = h * (side + 5) + int((j + 0.5) * side / 7)
        stops = np.array([[int(c[n : n + 2], 16) for n in (1, 3, 5)] for c in LIGHT.ramp])
        place = steps[int(np.rint(formed[b, h, i, j] * 63))]
        expected = [np.interp(place, np.arange(9), stops[:, n]) for n in range(3)]
        np.testing.assert_allclose(picture[y, x, :3], expected, atol=1)


def test_a_trace_shows_all_heads_and_its_tokens():
    html = trace_of([" law", "\n", "is", "", "東京"])._repr_html_()
    words = Tags(html).words
    assert "Trace: 5 tokens, 2 layers of 3 heads" in words
    assert "a row of pictures is a layer, a column a head" in words
    assert "·law ⏎ is ∅ 東京" in words


def test_tokens_that_look_like_html_are_inert():
    nasty = ["</script><img onerror=x()>", "<b onclick='x()'>", '" onload="x()', "&lt;", "a>b"]
    html = trace_of(nasty)._repr_html_()
    tags = Tags(html)
    allowed = {"div", "b", "br", "picture", "source", "img", "small", "code"}
    assert {tag for tag, _ in tags.tags} == allowed
    known = {"style", "media", "srcset", "src", "width", "height", "alt"}
    assert set().union(*(attributes for _, attributes in tags.tags)) == known
    assert "<b·onclick='x()'>" in tags.words
    assert "&lt;" in tags.words


@pytest.mark.parametrize("make", [
    lambda: regard.look(*draw(2, (40, 3, 9, 2), (40, 3, 9, 2))),
    lambda: regard.look(*draw(2, (1, 1009, 2), (1, 1009, 2))),
    lambda: regard.look(*draw(2, (2, 3, 5, 7, 2), (2, 3, 5, 7, 2))),
    lambda: regard.look(*draw(2, (2, 2), (300, 2))),
    lambda: trace_of(["token" * 9] * 499),
])  # fmt: skip
def test_it_is_small_whatever_is_shown_and_asks_for_nothing(make):
    html = make()._repr_html_()
    assert len(html) < 400_000
    assert not re.search(r"https?:|//[a-z]|url\(|@import", re.sub(r"base64,[^\"]+", "", html))
    for picture in pictures_of(html):
        assert picture.shape[0] <= 600
        assert picture.shape[1] <= 600


def test_what_is_left_out_is_said():
    assert "the first 15 of 30" in regard.look(*draw(2, *2 * [(2, 3, 5, 7, 2)]))._repr_html_()
    assert "largest of 4 × 4 weights" in regard.look(*draw(2, *2 * [(1009, 2)]))._repr_html_()
    assert "… and 7 more" in trace_of(["x"] * 107)._repr_html_()


def test_too_large_or_empty_is_words_alone():
    (long,) = draw(3, (8193, 1), dtype=np.float32)
    html = regard.look(long, long)._repr_html_()
    assert "too large to be drawn unasked" in html
    assert "<img" not in html
    empty = regard.look(np.ones((0, 5)), np.ones((3, 5)))._repr_html_()
    assert Tags(empty).words == "AttentionMap: 0 queries × 3 keys, float64"
    assert "0 tokens" in regard.Trace("", [], [], [], [])._repr_html_()


def test_neither_matplotlib_nor_the_network_is_needed():
    said = run_python("""
        import sys, numpy as np, regard
        html = regard.look(*np.ones((2, 3, 3)))._repr_html_()
        print("matplotlib" in sys.modules, "socket" in sys.modules, "<img" in html)
    """)
    assert said == "False False True\n"
