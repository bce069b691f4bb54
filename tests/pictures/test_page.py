"""The page in a real browser: what it shows is what NumPy computes, and each control does its work."""

import numpy as np
import pytest
from browser import made_trace, rank_in, value_in

from regard.pictures.palette import DARK, LIGHT, colours
from regard.trace import Trace

L, H, N = 3, 2, 20
SPECIAL = np.isin(np.arange(N), [0, N - 1])
TOKENS = ["[CLS]", "un", "##touch", "##able", *(f"w{i}" for i in range(4, N - 1)), "[SEP]"]


@pytest.fixture(scope="module")
def trace():
    return made_trace(L, H, N, tokens=TOKENS, special=SPECIAL)


@pytest.fixture(scope="module")
def causal():
    return made_trace(L, H, N, causal=True, seed=1)


def assert_reads(readout, expected):
    """The value read lies as near the expected one as the page says."""
    value, bound, exact = value_in(readout)
    slack = 1e-6 + 1e-5 * expected if exact else 1e-6
    assert abs(value - expected) <= bound + slack, (readout, expected)
    if not exact:
        stated = np.sqrt(expected) / 255 + 0.25 / 255**2
        assert bound <= 2.6 * max(stated, 1e-6), (readout, "the bound is wider than was stated")


def cells_of(w, count, seed=0):
    """Some cells of (N, N) weights: drawn at random, and the strongest of some rows."""
    rng = np.random.default_rng(seed)
    n = len(w)
    rows = rng.integers(n, size=count)
    return [
        *((int(i), int(rng.integers(n))) for i in rows),
        *((int(i), int(w[i].argmax())) for i in rows[:3]),
        (0, 0), (n - 1, n - 1), (n - 1, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("n", [20, 128, 512])
@pytest.mark.parametrize("is_causal", [False, True])
def test_hover_reads_what_numpy_computes(visit, n, is_causal):
    trace = made_trace(2, 3, n, causal=is_causal, seed=n)
    page = visit(trace, "#L1H2")
    w = trace.weights(1)[2]
    for row, column in cells_of(w, 12):
        readout = page.hover(row, column)
        assert f"query {row} word{row} → key {column} word{column}" in readout
        if is_causal and column > row:
            assert "hidden" in readout
            continue
        assert_reads(readout, w[row, column])
        assert ("exact" in readout) == (column == w[row].argmax())
        first, last, of = rank_in(readout)
        keys = w[row, : row + 1] if is_causal else w[row]
        assert first <= (keys > w[row, column]).sum() + 1 <= last
        assert of == len(keys)


def test_arrow_keys_read_the_same(visit, trace):
    page = visit(trace, "#L2H1")
    w = trace.weights(2)[1]
    page.page.locator("#stage").focus()
    at = [0, 0]
    moves = {"ArrowRight": (0, 1), "ArrowDown": (1, 0), "ArrowLeft": (0, -1), "ArrowUp": (-1, 0)}
    keys = ["Home", *["ArrowRight"] * 3, *["ArrowDown"] * 5, "ArrowLeft", "ArrowUp"]
    for key in keys:
        page.page.keyboard.press(key)
        at = [at[0] + moves.get(key, (0, 0))[0], at[1] + moves.get(key, (0, 0))[1]]
        readout = page.text("#readout")
        assert f"query {at[0]} {TOKENS[at[0]]} → key {at[1]} {TOKENS[at[1]]}" in readout
        assert_reads(readout, w[tuple(at)])
    for key, (row, column) in {
        "End": (4, N - 1),
        "PageDown": (14, N - 1),
        "PageUp": (4, N - 1),
    }.items():
        page.page.keyboard.press(key)
        assert f"query {row} {TOKENS[row]} → key {column} {TOKENS[column]}" in page.text("#readout")
    page.page.keyboard.press("Enter")
    page.settle()
    assert "token=4" in page.page.url


def test_contributions_are_read(visit, trace):
    page = visit(trace, "#L1H0")
    page.set("kind", "contributions")
    moved = trace.contribution(1)[0]
    norms = trace.moved[1][0]
    for row, column in cells_of(moved, 12):
        readout = page.hover(row, column)
        value, bound, _ = value_in(readout)
        assert abs(value - moved[row, column]) <= bound + 1e-5
        assert (
            bound
            <= 2.6 * (np.sqrt(trace.weights(1)[0][row, column]) / 255 + 1e-5) * norms[column] + 1e-6
        )
        assert ("exact" in readout) >= (column == moved[row].argmax())
        first, last, _ = rank_in(readout)
        assert first <= (moved[row] > moved[row, column]).sum() + 1 <= last
    assert "contribution" in page.text("#status")


def test_without_norms_contributions_cannot_be_chosen(visit):
    page = visit(made_trace(1, 2, 5, moved=None), "#L0H0&kind=contributions")
    assert page.page.locator('[value="contributions"]').is_disabled()
    assert "contribution" not in page.text("#status")


LEAVING = [
    ({"special": False}, SPECIAL),
    ({"first": False}, np.arange(N) == 0),
    ({"special": False, "first": False}, SPECIAL),
]


@pytest.mark.parametrize(("controls", "out"), LEAVING)
@pytest.mark.parametrize("kind", ["weights", "contributions"])
def test_tokens_left_out(visit, trace, controls, out, kind):
    page = visit(trace, "#L1H1")
    page.set("kind", kind)
    for name, value in controls.items():
        page.set(name, value)
    w = (trace.weights(1) if kind == "weights" else trace.contribution(1))[1]
    kept = np.flatnonzero(~out)
    share = w[kept][:, out].sum() / w[kept].sum()
    status = page.text("#status")
    assert "not renormalised" in status
    said = status.partition("with ")[2].partition(" %")[0].replace("≈ ", "").split(" ± ")
    bound = float(said[1]) if len(said) > 1 else 0.0
    assert abs(float(said[0]) - 100 * share) <= bound + 0.051
    assert bound < 2
    assert_cell = value_in(page.hover(2, 3))
    assert abs(assert_cell[0] - w[kept[2], kept[3]]) <= assert_cell[1] + 1e-5
    page.set("renormalise")
    assert "are renormalised to sum to 1" in page.text("#status")
    for row, column in [(0, 1), (2, 3), (5, 5)]:
        value, bound, _ = value_in(page.hover(row, column))
        expected = w[kept[row], kept[column]] / w[kept[row]][kept].sum()
        assert abs(value - expected) <= bound + 1e-5
    struck = page.all(".chip.left-out", "e => Number(e.dataset.place)")
    assert struck == list(np.flatnonzero(out))


def test_word_pieces_are_merged(visit, trace):
    page = visit(trace, "#L0H1")
    page.set("words")
    words = trace.words()
    w = words.weights(0)[1]
    assert "untouchable" in words.tokens[1]
    for row, column in [(0, 1), (1, 1), (1, 0), (3, 1), (5, 6)]:
        readout = page.hover(row, column)
        value, bound, _ = value_in(readout)
        assert abs(value - w[row, column]) <= bound + 1e-5
        assert words.tokens[row] in readout
        assert words.tokens[column] in readout
    page.hover(len(words) - 1, len(words) - 1)  # and there is no more


PLACES = {
    "linear": lambda w, row: w,
    "square root": lambda w, row: np.sqrt(w),
    "logarithmic": lambda w, row: np.clip(1 + np.log10(np.maximum(w, 1e-9)) / 4, 0, 1),
    "row maximum": lambda w, row: w / row.max(),
}


@pytest.mark.parametrize("dark", [False, True])
def test_scales_are_named_and_drawn(visit, trace, dark):
    page = visit(trace, "#L2H0", scheme="dark" if dark else "light")
    w = trace.weights(2)[0]
    ramp = colours(DARK if dark else LIGHT, 256).astype(int)
    for value, name in zip(["linear", "sqrt", "log", "row"], PLACES, strict=True):
        page.set("scale", value)
        assert name in page.text("#legend-name")
        assert f"{name} scale" in page.text("#status")
        for row, column in [(0, 0), (3, 7), (11, int(w[11].argmax())), (19, 2)]:
            step = round(255 * float(PLACES[name](w[row, column], w[row])))
            near = ramp[max(step - 4, 0) : step + 5]
            assert np.abs(near - page.colour(row, column)).sum(axis=1).min() <= 6, (
                name,
                row,
                column,
            )


def test_hidden_pairs_look_unlike_zeros(visit, causal):
    page = visit(causal, "#L0H0&scale=linear")
    hidden, hatch = (
        [int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in (LIGHT.hidden, LIGHT.hatch)
    )
    seen = np.array(page.colour(2, 9))
    mixed = [np.abs(seen - hidden).max(), np.abs(seen - hatch).max()]
    span = np.abs(np.array(hidden) - hatch).max()
    assert min(mixed) <= span
    assert np.abs(seen - colours(LIGHT, 256)[0].astype(int)).max() > 12


def test_pairs_hidden_by_a_mask(visit):
    """A window of a decoder: bits are stored, for the triangle is not all that is hidden."""
    import regard

    rng = np.random.default_rng(3)
    q, k = rng.standard_normal((2, 2, 11, 5), dtype=np.float32)
    attended = regard.look(q, k, mask=regard.masks.window(2, 1))
    words = [f"t{i}" for i in range(11)]
    trace = Trace(" ".join(words), words, [(0, 0)] * 11, np.zeros(11, bool), [attended])
    page = visit(trace, "#L0H1")
    w, seen = np.asarray(attended.weights[1]), np.asarray(attended.visible[1])
    for row in range(0, 11, 2):
        for column in range(11):
            readout = page.hover(row, column)
            assert ("hidden" in readout) == (not seen[row, column])
            if seen[row, column]:
                assert_reads(readout, w[row, column])
                assert rank_in(readout)[2] == seen[row].sum()
