"""Statistics of heads: each number in its panel."""

import numpy as np
import pytest
from helpers import draw

import regard
from regard.corpus import average
from regard.pictures import statistics
from regard.pictures.records import MEANING


def panels(figure):
    """{statistic: its axes}, colour bars left out."""
    names = {words: name for name, words in MEANING.items()}
    return {names[a.get_title()]: a for a in figure.axes if a.get_title()}


@pytest.fixture
def layers():
    (q,) = draw(0, (2, 3, 7, 2))
    return [regard.look(x, x, causal=True) for x in q]


def test_layers_and_heads_as_maps(layers):
    tokens = list("abcabca")
    trace = regard.Trace("", tokens, np.zeros((7, 2)), np.zeros(7), layers)
    figure = statistics(trace)
    figure.draw_without_rendering()
    shown = panels(figure)
    for name, axes in shown.items():
        image = axes.images[0]
        for layer in range(2):
            expected = [r[name] for r in trace.heads() if r["layer"] == layer]
            np.testing.assert_allclose(image.get_array()[layer], expected, rtol=1e-12)
        most = image.get_array().max() if name in ("entropy", "distance") else 1
        assert (image.norm.vmin, image.norm.vmax) == (0, most)
    assert {"previous", "first", "entropy", "distance", "induction", "diagonal"} <= set(shown)


def test_one_layer_as_bars(layers):
    figure = statistics(layers[0], dark=True)
    figure.draw_without_rendering()
    shown = panels(figure)
    assert "induction" not in shown  # no tokens: no head has it
    for name, axes in shown.items():
        heights = [bar.get_height() for bar in axes.containers[0]]
        np.testing.assert_allclose(heights, [r[name] for r in layers[0].heads()], rtol=1e-12)


def test_records_arrays_and_what_is_lacking():
    records = [{"head": 0, "previous": 0.5}, {"head": 1, "previous": np.nan, "strange": 3.0}]
    figure = statistics(records)
    (axes,) = panels(figure).values()
    kept, lacking = axes.containers
    assert [bar.get_height() for bar in kept] == [0.5, 0.0]
    assert [(bar.get_x() + bar.get_width() / 2, bar.get_hatch()) for bar in lacking] == [
        (1, "////")
    ]
    assert panels(statistics(np.eye(3)[None]))["diagonal"].containers[0][0].get_height() == 1
    maps = [{"layer": layer, "head": 0, "next": layer / 4} for layer in range(2)]
    maps[0]["next"] = np.nan
    figure = statistics(maps)
    assert panels(figure)["next"].images[0].get_array().mask.tolist() == [[True], [False]]
    assert panels(figure)["next"].patches


def test_averages_say_that_they_are(layers):
    trace = regard.Trace("", list("abcabca"), np.zeros((7, 2)), np.zeros(7), layers)
    figure = statistics(average([trace, trace, trace]))
    assert figure.get_supxlabel() == "row = layer, column = head; averages over 3 texts"
    assert statistics(trace).get_supxlabel() == "row = layer, column = head"
    shown, alone = panels(figure)["entropy"], panels(statistics(trace))["entropy"]
    np.testing.assert_allclose(shown.images[0].get_array(), alone.images[0].get_array(), rtol=1e-12)


def test_mistakes():
    with pytest.raises(ValueError, match="no record has any of the statistics previous, next"):
        statistics([{"head": 0, "other": 1.0}])
    with pytest.raises(ValueError, match=r"weights must be \(\*lead, H, Nq, Nk\), got \(3,\)"):
        statistics(np.ones(3))
    with pytest.raises(ValueError, match=r"records of one axis before the heads .* batch \(0, 1\)"):
        statistics([{"batch": (0, 1), "head": 0, "next": 0.0}])
