"""Masks as tiles: each kind counted and coloured as the pairs themselves say."""

import numpy as np
import pytest
from helpers import draw
from matplotlib.colors import to_hex

import regard
from regard.pictures import mask
from regard.pictures.palette import LIGHT

masks = regard.masks
COLOUR = {"skipped": LIGHT.hidden, "hidden": LIGHT.ramp[1], "edge": LIGHT.ramp[3],
          "bare": LIGHT.ramp[5]}  # fmt: skip


def counted(figure):
    """{"skipped": 3, ...} of the legend."""
    words = [text.get_text().split(": ") for text in figure.legends[0].texts]
    return {word[0]: int(word[1].split()[0].replace(",", "")) for word in words if len(word) == 2}


def kinds_of(seen, tile):
    """The kind of each pair, asked pair by pair."""
    kinds = np.empty(seen.shape, object)
    count = {"skipped": 0, "bare": 0, "edge": 0}
    for i in range(0, seen.shape[0], tile[0]):
        for j in range(0, seen.shape[1], tile[1]):
            block = np.s_[i : i + tile[0], j : j + tile[1]]
            kind = "bare" if seen[block].all() else "edge" if seen[block].any() else "skipped"
            count[kind] += 1
            kinds[block] = kind
            if kind == "edge":
                kinds[block][~seen[block]] = "hidden"
    return kinds, count


@pytest.mark.parametrize("tile", [(4, 4), (5, 3), (1, 1), (99, 99)])
@pytest.mark.parametrize(
    "made",
    [
        masks.causal(), masks.window(3, 2), masks.causal() & masks.window(5, None),
        masks.documents(np.repeat([4, 2, 9], [7, 3, 13])), masks.lengths(17), masks.prefix(6),
        masks.causal() & (np.arange(23) % 3 > 0)[None].repeat(23, 0),
    ],
)  # fmt: skip
def test_tiles_and_pairs(made, tile):
    figure = mask(made, 23, tile=tile)
    figure.draw_without_rendering()
    q = np.ones((1, 23, 1))
    seen = np.asarray(regard.look(q, q, mask=made, engine="reference").weights)[0] > 0
    kinds, count = kinds_of(seen, tile)
    assert counted(figure) == count
    image = figure.axes[0].images[0]
    shown = image.cmap(image.norm(image.get_array()))
    for place, kind in np.ndenumerate(kinds):
        assert to_hex(shown[place]) == COLOUR[kind]


def test_an_array_and_a_map_of_a_call():
    (q,) = draw(0, (3, 7, 2))
    seen = np.random.default_rng(0).random((7, 7)) < 0.4
    expected = kinds_of(seen, (2, 3))[1]
    assert counted(mask(seen, tile=(2, 3))) == expected
    assert counted(mask(regard.look(q, q, mask=seen), tile=(2, 3))) == expected
    assert counted(mask(regard.look(q, q), tile=(7, 7))) == {"skipped": 0, "bare": 1, "edge": 0}


def test_long_masks_show_tiles_alone():
    figure = mask(masks.causal(), 4096, 8192, align="bottom-right", tile=(128, 1024))
    figure.draw_without_rendering()
    assert counted(figure) == {"skipped": 48, "bare": 176, "edge": 32}
    assert not figure.axes[0].images
    assert figure.axes[0].collections[0].get_array().shape == (32, 8)
    figure = mask(masks.window(4096, 0), 100_000, tile=(128, 1024), dark=True)
    assert counted(figure)["skipped"] > 60_000


def test_the_head_is_asked_for_where_masks_differ():
    lengths = masks.lengths([5, 2])
    with pytest.raises(ValueError, match=r"head must be \(batch, head\) within \(2, 1\), got None"):
        mask(lengths, 5)
    assert counted(mask(lengths, 5, head=(1, 0), tile=(5, 1)))["skipped"] == 3
    assert counted(mask(lengths, 5, head=(0, 0), tile=(5, 1)))["skipped"] == 0
    per_head = np.stack([np.tri(5, dtype=bool), np.ones((5, 5), bool)])
    assert counted(mask(per_head, head=1, tile=(5, 5)))["bare"] == 1
    assert counted(mask(per_head, head=0, tile=(5, 5)))["edge"] == 1


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        ((masks.causal(),), {}, ValueError, "Nq, and Nk where it is another, must be given"),
        ((masks.causal(), 3, 5), {}, ValueError, "align"),
        ((np.ones((3, 5)),), {}, TypeError, "mask must be bool"),
        ((np.ones(3, bool),), {}, ValueError, r"mask must be \(\*lead, Nq, Nk\), got \(3,\)"),
        ((np.ones((3, 5), bool), 4), {}, ValueError, "Nq and Nk must be those of the mask"),
        (("causal", 3), {}, TypeError, "mask must be a mask of regard.masks.* got str"),
        ((masks.causal(), 3), {"tile": (0, 1)}, ValueError, "tile must be .queries, keys."),
        ((masks.causal(), 10**5), {"tile": (1, 1)}, ValueError, "a million tiles at most"),
        ((np.ones((0, 5), bool),), {}, ValueError, "0 queries and 5 keys has nothing to draw"),
        ((regard.AttentionMap.from_weights(np.eye(2)),), {}, ValueError, "it knows no mask"),
    ],
)
def test_mistakes(arguments, options, error, says):
    with pytest.raises(error, match=says):
        mask(*arguments, **options)
