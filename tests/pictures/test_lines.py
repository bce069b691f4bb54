"""Links: the strongest weights, where they begin and end, what part of all they are."""

import numpy as np
import pytest
from helpers import draw

import regard
from regard.pictures import links


def ends(figure):
    """(query, key, width) of each line, in places 0 to 1."""
    lines = figure.axes[0].collections[0]
    return [
        (*segment[[0, -1], 1], width)
        for segment, width in zip(lines.get_segments(), lines.get_linewidths(), strict=True)
    ]


def said(figure):
    return figure.get_supxlabel()


@pytest.mark.parametrize("n", [1, 7, 60, 999])
def test_the_strongest_links_and_their_share(n):
    (weights,) = draw(0, (211, 13), low=0.0, high=1.0)
    weights[weights < 0.3] = 0
    figure = links(weights, n=n)
    figure.draw_without_rendering()
    order = np.argsort(weights, axis=None)[::-1][: min(n, (weights > 0).sum())]
    i, j = np.unravel_index(order, weights.shape)
    drawn = sorted(ends(figure), key=lambda line: -line[2])
    np.testing.assert_allclose([line[0] for line in drawn], i / 210)
    np.testing.assert_allclose([line[1] for line in drawn], j / 12)
    np.testing.assert_allclose([line[2] for line in drawn], 0.5 + 3.5 * weights[i, j])
    share = weights[i, j].sum() / weights.sum()
    assert (
        said(figure) == f"query → key: the {len(order)} strongest links, {share:.0%} of all weight"
    )


def test_one_query_alone():
    weights = np.array([[0.25, 0.75], [1.0, 0.0]])
    assert [line[:2] for line in ends(links(weights, query=0))] == [(0, 0), (0, 1)]
    assert [line[:2] for line in ends(links(weights, query=-1))] == [(1, 0)]
    assert said(links(weights, query=0, n=1)).endswith("the 1 strongest links, 75% of all weight")


def test_tokens_stand_on_both_sides_and_linked_ones_in_ink():
    figure = links(np.array([[0, 1.0, 0], [0, 1, 0]]), tokens=["a\n", "b"], keys=["x", "$y$", "z"])
    figure.draw_without_rendering()
    texts = {t.get_text(): t for t in figure.axes[0].texts}
    assert list(texts) == ["0 a⏎", "1 b", "0 x", "1 $y$", "2 z"]
    assert texts["1 $y$"].get_color() != texts["2 z"].get_color()
    assert texts["0 a⏎"].get_ha() == "right"
    assert texts["0 x"].get_ha() == "left"


def test_a_long_text_names_the_tokens_of_the_strongest():
    weights = np.full((500, 500), 1e-4)
    weights[100, 400], weights[101, 3] = 0.9, 0.8
    figure = links(weights, n=2, tokens=["t"] * 500)
    assert {t.get_text() for t in figure.axes[0].texts} == {"100 t", "400 t", "3 t"}


def test_heads_maps_dark_and_nothing_to_draw():
    (q,) = draw(1, (3, 5, 2))
    attended = regard.look(q, q)
    figure = links(attended, 2, dark=True)
    widths = sorted(0.5 + 3.5 * np.asarray(attended.weights)[2].ravel())
    np.testing.assert_allclose(sorted(line[2] for line in ends(figure)), widths)
    nothing = links(np.zeros((2, 2)))
    nothing.draw_without_rendering()
    assert said(nothing) == "query → key: the 0 strongest links, 0% of all weight"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n": 0}, "n must be 1 or more, got 0"),
        ({"query": 2}, "query must be one of 2, got 2"),
        ({"tokens": ["a"]}, "tokens must be one for each of 2, got 1"),
        ({"head": 0}, r"head must be \(\) within \(\), got 0"),
    ],
)
def test_mistakes(options, says):
    with pytest.raises(ValueError, match=says):
        links(np.eye(2), **options)
