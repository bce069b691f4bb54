"""Heat maps by their parts: images, ranges, labels, what is hidden."""

import matplotlib
import numpy as np
import pytest
from helpers import draw, draw_call, run_python
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch

import regard
from regard.pictures import heads, heat, rollout
from regard.pictures.palette import DARK, LIGHT

TOKENS = ["[CLS]", " law\n", "</script><img src=x onerror=alert(1)>", "$x^2$", "東京", "🎈", "\x00"]


def drawn(figure):
    """The figure, laid out and painted: what a warning would come from."""
    figure.draw_without_rendering()
    figure.canvas.draw()
    return figure


def words_of(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


@pytest.fixture
def attended():
    q, k, v = draw_call(3, lead=(), H=3, Nq=7, Nk=7)
    return regard.look(q, k, v, causal=True)


def test_a_head_is_drawn_as_it_is(attended):
    axes = drawn(heat(attended, 1, TOKENS)).axes[0]
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), np.asarray(attended.weights)[1])
    assert (image.norm.vmin, image.norm.vmax) == (0, 1)
    assert image.get_extent() == [-0.5, 6.5, 6.5, -0.5]  # row 0 at the top
    assert axes.get_ylabel() == "query (row)"
    assert axes.get_xlabel() == "key (column)"


def test_labels_carry_index_and_what_cannot_be_seen(attended):
    axes = drawn(heat(attended, 1, TOKENS)).axes[0]
    labels = words_of(axes.yaxis)
    assert labels == words_of(axes.xaxis)
    assert labels[:4] == ["0 [CLS]", "1 ·law⏎", "2 </script><img·src…", "3 $x^2$"]
    assert labels[6] == "6 \\x00"
    assert not any(text.get_parse_math() for text in axes.get_yticklabels())
    assert axes.get_xticklabels()[0].get_rotation() == 90


def test_hidden_pairs_are_not_zeros():
    weights = np.eye(5)
    figure = drawn(heat(weights, visible=regard.masks.causal()))
    (cover,) = [p for p in figure.axes[0].patches if isinstance(p, PathPatch)]
    assert to_hex(cover.get_facecolor()) == LIGHT.hidden
    assert cover.get_hatch()
    zero = figure.axes[0].images[0].cmap(0.0)
    assert to_hex(zero) == LIGHT.ramp[0] != LIGHT.hidden
    path = cover.get_path()
    for i in range(5):
        for j in range(5):
            assert path.contains_point((j, i)) == (j > i)
    assert [t.get_text() for t in figure.legends[0].texts] == [
        "hidden: the query does not see the key"
    ]
    assert not heat(weights).legends
    assert not heat(weights).axes[0].patches


def test_what_is_not_a_number_has_a_colour_and_a_legend():
    weights = np.eye(3)
    weights[1, 2] = np.nan
    figure = drawn(heat(weights))
    image = figure.axes[0].images[0]
    assert image.get_array().mask.sum() == 1
    assert to_hex(image.cmap.get_bad()) == LIGHT.strange
    assert [t.get_text() for t in figure.legends[0].texts] == ["not a number"]


def scale_of(figure):
    return figure.axes[0].images[0].norm, figure.axes[0].images[0].colorbar.ax.get_ylabel()


def test_the_scale_is_named():
    weights = np.full((3, 3), 0.25)
    norm, words = scale_of(heat(weights, scale="sqrt"))
    assert words == "weight, square-root scale"
    np.testing.assert_allclose(norm([0, 0.25, 1]), [0, 0.5, 1])
    norm, words = scale_of(heat(weights, most=None))
    assert (norm.vmax, words) == (0.25, "weight")
    assert heat(weights, most=0.1).axes[0].images[0].colorbar.extend == "max"
    assert heat(weights).axes[0].images[0].colorbar.extend == "neither"
    with pytest.raises(ValueError, match="scale must be 'linear' or 'sqrt', got 'log'"):
        heat(weights, scale="log")
    with pytest.raises(ValueError, match="most must be finite and greater than 0, got 0"):
        heat(weights, most=0)


def test_a_long_text_is_pooled_and_says_so():
    (q,) = draw(4, (1, 3001, 3), dtype=np.float32)
    figure = drawn(heat(regard.look(q, q, mask=regard.masks.window(300, 0)), most=None))
    axes = figure.axes[0]
    assert axes.images[0].get_array().shape == (512, 512)
    assert axes.images[0].get_extent() == [-0.5, 3000.5, 3000.5, -0.5]
    assert scale_of(figure)[1] == "largest weight of 6 × 6 pairs"
    assert 5 <= len(axes.get_yticks()) <= 24
    assert words_of(axes.yaxis)[1] == str(axes.get_yticks()[1])


def test_a_small_picture_has_fewer_cells():
    figure = drawn(heat(np.eye(300), width=4.0))
    cells = figure.axes[0].images[0].get_array()
    assert cells.shape == (216, 216)
    assert cells.max(axis=1).min() == 1  # no query is skipped
    assert scale_of(figure)[1] == "largest weight of 2 × 2 pairs"


def test_many_tokens_are_labelled_here_and_there():
    tokens = [f"t{i}" for i in range(211)]
    axes = drawn(heat(np.eye(211), tokens=tokens)).axes[0]
    labels = words_of(axes.yaxis)
    assert 15 < len(labels) < 48
    assert labels[3] == f"{axes.get_yticks()[3]} t{axes.get_yticks()[3]}"


def test_queries_and_keys_of_their_own():
    axes = drawn(heat(np.full((2, 3), 0.3), tokens=["a", "b"], keys=["x", "y", "z"])).axes[0]
    assert words_of(axes.yaxis) == ["0 a", "1 b"]
    assert words_of(axes.xaxis) == ["0 x", "1 y", "2 z"]
    assert words_of(drawn(heat(np.full((2, 3), 0.3), tokens=["a", "b"])).axes[0].xaxis)[0] == "0"
    with pytest.raises(ValueError, match="tokens must be one for each of 2, got 3"):
        heat(np.ones((2, 3)), tokens=["a", "b", "c"])


def test_dark_and_wide(attended):
    figure = drawn(heat(attended, 0, dark=True, width=9, title="$dark$"))
    assert to_hex(figure.get_facecolor()) == DARK.paper
    assert figure.get_figwidth() == 9
    assert figure.get_suptitle() == "$dark$"
    assert to_hex(figure.axes[0].images[0].cmap(1.0)) == DARK.ramp[-1]


def test_a_trace_brings_its_tokens():
    (q,) = draw(5, (2, 3, 5, 2))
    layers = [regard.look(x, x) for x in q]
    trace = regard.Trace("", list("abcde"), np.zeros((5, 2)), np.zeros(5), layers)
    axes = heat(trace, (1, 2)).axes[0]
    assert words_of(axes.yaxis) == ["0 a", "1 b", "2 c", "3 d", "4 e"]
    np.testing.assert_array_equal(axes.images[0].get_array(), layers[1].weights[2])
    images = heads(trace).axes[0].images
    np.testing.assert_array_equal(images[5].get_array(), layers[1].weights[2])


def test_all_heads_of_a_model_on_one_scale():
    (weights,) = draw(6, (2, 3, 5, 7), low=0.0, high=1.0)
    axes = drawn(heads(weights)).axes[0]
    for i, image in enumerate(axes.images):
        layer, head = divmod(i, 3)
        np.testing.assert_array_equal(image.get_array(), weights[layer, head])
        left, right, bottom, top = image.get_extent()
        assert (int(left), int(right), int(top), int(bottom)) == (head, head, layer, layer)
        assert image.norm is axes.images[0].norm
    assert len(axes.images) == 6
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("layer", "head")
    assert words_of(axes.xaxis) == ["0", "1", "2"]


def test_heads_of_one_layer_wrap_and_are_numbered():
    axes = drawn(heads(np.full((11, 3, 3), 1 / 3))).axes[0]
    assert [t.get_text() for t in axes.texts] == ["head 0", *map(str, range(1, 11))]
    assert [int(image.get_extent()[3]) for image in axes.images] == [0] * 8 + [1] * 3
    assert len(drawn(heads(np.eye(3))).axes[0].images) == 1


def test_thumbnails_are_pooled_and_hidden_ones_hatched(attended):
    assert scale_of(heads(np.eye(130)[None]))[1] == "largest weight of 3 × 3 pairs"
    axes = drawn(heads(attended)).axes[0]
    covers = [p for p in axes.patches if isinstance(p, PathPatch)]
    assert len(covers) == 3
    left, right, bottom, top = axes.images[1].get_extent()
    width, height = (right - left) / 7, (bottom - top) / 7
    assert covers[1].get_path().contains_point((left + 6.5 * width, top + 0.5 * height))
    assert not covers[1].get_path().contains_point((left + 0.5 * width, top + 0.5 * height))


def test_attention_rolled_out():
    (weights,) = draw(7, (2, 3, 5, 5), low=0.0, high=1.0)
    weights /= weights.sum(axis=-1, keepdims=True)
    a, b = (weights.mean(axis=1) + np.eye(5)) / 2
    figure = drawn(rollout(weights, list("abcde"), dark=True))
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), b @ a, atol=1e-6)
    assert words_of(figure.axes[0].xaxis)[4] == "4 e"
    assert scale_of(figure)[1] == "rolled-out attention"
    trace = regard.Trace.from_arrays(weights, list("vwxyz"))
    figure = rollout(trace, layer=0)
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), a, atol=1e-6)
    assert words_of(figure.axes[0].xaxis)[0] == "0 v"
    for shape in ((5, 5), (3, 5, 5), (2, 3, 5, 7)):
        with pytest.raises(ValueError, match=r"weights must be a Trace or \(L, H, N, N\), got"):
            rollout(np.ones(shape))
    with pytest.raises(ValueError, match="tokens must be one for each of 5, got 2"):
        rollout(weights, ["a", "b"])


def test_heads_of_too_many_axes():
    with pytest.raises(ValueError, match=r"weights must be \(\[layer,\] head, Nq, Nk\), got"):
        heads(np.ones((2, 2, 2, 3, 3)))


def test_plot_is_one_head_or_all(attended):
    assert len(attended.plot().axes[0].images) == 3
    np.testing.assert_array_equal(
        attended.plot(2).axes[0].images[0].get_array(), attended.weights[2]
    )
    one = regard.AttentionMap.from_weights(np.eye(3))
    assert words_of(one.plot(tokens=list("abc"), dark=True).axes[0].yaxis) == ["0 a", "1 b", "2 c"]
    with pytest.raises(ValueError, match=r"head must be head within \(3,\), got None"):
        attended.plot(tokens=TOKENS)


def test_no_state_is_left_behind_and_nothing_is_printed(attended):
    before = dict(matplotlib.rcParams)
    drawn(heat(attended, 1, TOKENS))
    drawn(heads(attended))
    assert dict(matplotlib.rcParams) == before
    said = run_python("""
        import sys, numpy as np, regard
        figure = regard.pictures.heat(np.eye(3))
        assert "matplotlib.pyplot" not in sys.modules
        figure.savefig(open("/dev/null", "wb"), format="png")
        assert "matplotlib.pyplot" not in sys.modules
    """)
    assert said == ""


def test_without_matplotlib_it_says_what_to_install():
    said = run_python("""
        import sys, importlib.abc
        class Absent(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "matplotlib":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Absent())
        import numpy as np, regard
        assert dir(regard.pictures)
        for call in (lambda: regard.pictures.heat, regard.look(*np.ones((2, 3, 3))).plot):
            try:
                call()
            except ModuleNotFoundError as error:
                print(error)
    """)
    line = "pictures need matplotlib, which is not installed: pip install 'regard[look]'\n"
    assert said == 2 * line
