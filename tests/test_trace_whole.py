"""A trace as a whole: rollout, contributions, words, files, averages, heads switched off."""

import json

import numpy as np
import pytest
from helpers import assert_close, draw

import regard
from regard import flow
from regard.corpus import average
from regard.trace import Trace, moved_by

TOKENS = ["[CLS]", "un", "##believ", "##able", "law", ",", "Law", "its", "law", "[SEP]"]
TEXT = "Unbelievable law, Law its law"
SPANS = [(0, 0), (0, 2), (2, 8), (8, 12), (13, 16), (16, 17), (18, 21), (22, 25), (26, 29), (0, 0)]
SPECIAL = [token.startswith("[") for token in TOKENS]
L, H, N = 2, 3, len(TOKENS)


@pytest.fixture
def trace():
    maps = [regard.look(*draw(seed, (H, N, 5), (H, N, 5)), causal=seed == 1) for seed in range(L)]
    moved = draw(9, *[(H, N)] * L, low=0)
    return Trace(TEXT, TOKENS, SPANS, SPECIAL, maps, moved=moved, hidden=draw(8, (N, 7))[0])


def formed(trace):
    return np.array([trace.weights(i) for i in range(len(trace.layers))])


# ------------------------------------------------------------------------------- rollout


def rolled(W):
    """(A + I) / 2, rows divided by their sums, multiplied: as the article says it."""
    product = np.eye(W.shape[-1])
    for A in W.mean(axis=1):
        mixed = (A + np.eye(len(A))) / 2
        product = mixed / mixed.sum(axis=1, keepdims=True) @ product
    return product


@pytest.mark.parametrize("rows", [128, 3])
def test_rollout(trace, rows, monkeypatch):
    monkeypatch.setattr(flow, "ROWS", rows)
    W = formed(trace)
    whole = trace.rollout()
    assert whole.dtype == np.float32
    assert_close(whole, rolled(W), 1e-6)
    assert_close(whole.sum(axis=1), np.ones(N), 1e-6)
    assert_close(trace.rollout(layer=0), rolled(W[:1]), 1e-6)
    assert_close(trace.rollout(3), whole[3], 1e-7)
    assert_close(trace.rollout([5, -1]), whole[[5, -1]], 1e-7)
    assert trace.rollout([]).shape == (0, N)
    for wrong in (N, [0, N]):
        with pytest.raises(IndexError):
            trace.rollout(wrong)


def test_a_row_that_sees_nothing_keeps_to_itself():
    W = np.zeros((1, 1, 3, 3))
    np.testing.assert_array_equal(Trace.from_arrays(W, ["a", "b", "c"]).rollout(), np.eye(3))


# -------------------------------------------------------------------------- contributions


def test_moved_by_is_the_norm_through_the_projection():
    value, projection = draw(1, (2, 7, 5), (11, 6 * 5))  # grouped: 6 query heads, 2 of values
    moved = moved_by(value, projection)
    assert moved.shape == (6, 7)
    for h in range(6):
        for j in range(7):
            through = projection[:, h * 5 : (h + 1) * 5] @ value[h // 3, j]
            np.testing.assert_allclose(moved[h, j], np.sqrt((through**2).sum()))


def test_contribution_is_weight_times_norm(trace):
    for layer in range(L):
        expected = trace.weights(layer) * trace.moved[layer][:, None, :]
        np.testing.assert_array_equal(trace.contribution(layer), expected)
    with pytest.raises(ValueError, match="moved"):
        Trace.from_arrays(formed(trace), TOKENS).contribution(0)


def test_a_model_keeps_the_norms_of_what_it_moves(tiny):
    trace = tiny.look("the law is just")
    text = tiny.tokenizer.encode("the law is just")
    values = []

    def attend(q, k, v):
        values.append(v)
        return regard.attention(q, k, v)

    tiny._forward(np.array(text.ids), attend)
    for layer, value in enumerate(values):
        projection = tiny._layers[layer].attention.wide()
        for h in range(3):
            through = value[h] @ projection[:, h * 4 : (h + 1) * 4].T
            assert_close(trace.moved[layer][h], np.linalg.norm(through, axis=-1), 1e-5)
    assert_close(trace.hidden, tiny(np.array(text.ids)), 1e-5)


# ------------------------------------------------------------------------------- statistics


def test_heads_is_a_table_of_all_layers(trace):
    records = trace.heads()
    W = formed(trace)
    assert [(r["layer"], r["head"]) for r in records] == [
        (i, h) for i in range(L) for h in range(H)
    ]
    i = np.arange(N)
    for record in records:
        w = W[record["layer"], record["head"]]
        expected = {
            "previous": np.diag(w, -1).mean(),
            "next": np.diag(w, 1).mean(),
            "diagonal": np.diag(w).mean(),
            "first": w[:, 0].mean(),
            "separator": w[:, 9].mean(),
            "entropy": -np.sum(w * np.log(np.where(w > 0, w, 1))) / N,
            "distance": np.sum(w * abs(i[:, None] - i)) / N,
            "induction": w[8, 5],  # "law" stood at 4, "," followed
        }
        assert list(record)[2:]
        assert set(expected) == set(record) - {"layer", "head"}
        for name, value in expected.items():
            np.testing.assert_allclose(record[name], value, rtol=1e-6, err_msg=name)


def test_induction_is_nan_where_no_token_repeats():
    one = Trace.from_arrays(np.full((1, 1, 3, 3), 1 / 3), ["a", "b", "c"]).heads()[0]
    assert np.isnan(one["induction"])
    assert np.isnan(
        Trace.from_arrays(np.full((1, 1, 2, 2), 0.5), ["a", "a"]).heads()[0]["induction"]
    )
    W = np.tril(np.random.default_rng(0).random((1, 1, 8, 8)))
    W /= W.sum(-1, keepdims=True)
    record = Trace.from_arrays(W, list("abcdabcd")).heads()[0]
    np.testing.assert_allclose(
        record["induction"], np.mean([W[0, 0, i, i - 3] for i in range(4, 8)])
    )


# ------------------------------------------------------------------------------------ words


def test_words_add_columns_and_average_rows(trace):
    merged = trace.words()
    assert merged.tokens == ["[CLS]", "Unbelievable", *TOKENS[4:]]
    W = formed(trace)
    groups = [[0], [1, 2, 3], *([i] for i in range(4, N))]
    for layer in range(L):
        expected = np.array(
            [[W[layer][:, a][:, :, b].sum(-1).mean(-1) for b in groups] for a in groups]
        ).transpose(2, 0, 1)
        assert_close(merged.weights(layer), expected, 1e-14)
        assert_close(merged.weights(layer).sum(-1), np.ones((H, 8)), 1e-14)
        seen = np.asarray(trace.layers[layer].visible)
        some = np.array([[seen[0][np.ix_(a, b)].any() for b in groups] for a in groups])
        np.testing.assert_array_equal(merged.layers[layer].visible[0], some)
        moved = trace.contribution(layer)
        expected = np.array(
            [[moved[:, a][:, :, b].sum(-1).mean(-1) for b in groups] for a in groups]
        ).transpose(2, 0, 1)
        assert_close(merged.contribution(layer), expected, 1e-13)
    assert merged.layers[0].weights[1, 1, -1] == merged.weights(0)[1, 1, -1]
    best = trace.find("unbelievable", "its")[0]
    assert merged.find("unbelievable", "its")[0].weight == pytest.approx(best.weight)
    assert merged.special.tolist() == [True, *[False] * 6, True]
    assert {record["layer"] for record in merged.heads()} == {0, 1}
    with pytest.raises(ValueError, match="words already"):
        merged.words()


def test_words_that_the_tokenizer_numbers_or_the_caller_names(trace):
    numbered = Trace(
        TEXT, TOKENS, SPANS, SPECIAL, trace.layers, words=[None, 0, 0, 1, 2, 2, 3, 4, 5, None]
    )
    assert numbered.words().tokens == [
        "[CLS]",
        "Unbeliev",
        "##able",
        "law,",
        "Law",
        "its",
        "law",
        "[SEP]",
    ]
    for wanted in ("unbelievable", 2):
        assert trace.words(wanted).tokens == ["[CLS]", "Unbelievable", *TOKENS[4:]]
    assert trace.words("its", 0).tokens == TOKENS
    with pytest.raises(ValueError, match="no word 'lawful'"):
        trace.words("lawful")


# ------------------------------------------------------------------------------ from arrays


def test_from_arrays_takes_what_other_libraries_give(trace):
    W = formed(trace)
    batches = tuple(each[None] for each in W)  # a batch of one in each layer
    for weights in (W, list(W), batches):
        made = Trace.from_arrays(
            weights, TOKENS, text=TEXT, spans=SPANS, special=SPECIAL, moved=trace.moved
        )
        np.testing.assert_array_equal(formed(made), W)
        assert made.find("its", "law") == trace.find("its", "law")
        assert made.strongest(3) == trace.strongest(3)
        np.testing.assert_array_equal(made.contribution(1), trace.contribution(1))


@pytest.mark.parametrize(
    ("tokens", "text", "words"),
    [
        (["un", "##told", "riches"], "untold riches", 2),
        (["The", "Ġlaw", "yer", "Ġis"], "The lawyer is", 3),
        (["▁The", "▁law", "yer"], "The lawyer", 2),
        (["a", "b"], "a b", 2),
        (["</script>", "🎈", ""], "</script> 🎈 ", 3),
    ],
)
def test_text_is_spelled_from_tokens(tokens, text, words):
    n = len(tokens)
    trace = Trace.from_arrays(np.full((1, 1, n, n), 1 / n), tokens)
    assert trace.text == text
    assert len(trace.words()) == words


def test_arrays_that_do_not_fit():
    W = np.full((1, 2, 3, 3), 1 / 3)
    tokens = ["a", "b", "c"]
    for weights, named, match in (
        (W[..., :2], {}, r"must be \(H, 3, 3\) for 3 tokens, got \(2, 3, 2\) in layer 0"),
        (W[0, 0], {}, r"must be \(H, 3, 3\)"),
        (W, {"text": "a b c"}, "text and spans go together"),
        (W, {"text": "a b c", "spans": [(0, 1)]}, r"spans must be \(3, 2\), got \(1, 2\)"),
        (W, {"special": [True]}, r"special must be \(3,\), got \(1,\)"),
        (W, {"moved": np.ones((1, 3, 3))}, r"moved must be \(H, N\)"),
    ):
        with pytest.raises(ValueError, match=match):
            Trace.from_arrays(weights, tokens, **named)
    with pytest.raises(TypeError, match="must be an array of float"):
        Trace.from_arrays(W.astype(int), tokens)


# ------------------------------------------------------------------------------------ files


def test_a_saved_trace_is_the_same(trace, tmp_path):
    file = tmp_path / "a trace"  # no ending is added
    trace.save(file)
    assert [each.name for each in tmp_path.iterdir()] == ["a trace"]
    loaded = Trace.load(file)
    np.testing.assert_array_equal(formed(loaded), formed(trace))
    np.testing.assert_array_equal(loaded.contribution(1), trace.contribution(1))
    np.testing.assert_array_equal(loaded.hidden, trace.hidden)
    assert (loaded.text, loaded.tokens, loaded.spans.tolist()) == (
        TEXT,
        TOKENS,
        trace.spans.tolist(),
    )
    np.testing.assert_array_equal(loaded.special, SPECIAL)
    assert loaded.words().tokens == trace.words().tokens
    trace.words().save(file)  # over what was there
    assert Trace.load(file).tokens == trace.words().tokens


def test_tokens_of_all_kinds_are_saved(tmp_path):
    tokens = ["</script><img onerror=…>", "🎈", "שלום", "", "\0", "\ud800"]
    Trace.from_arrays(np.full((1, 1, 6, 6), 1 / 6), tokens).save(tmp_path / "x.npz")
    assert Trace.load(tmp_path / "x.npz").tokens == tokens


class Pickled:
    """What a pickle may do to who opens it."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return type(self.file).touch, (self.file,)


def test_nothing_in_a_file_is_run(tmp_path):
    file = tmp_path / "x.npz"
    array = np.empty(1, object)
    array[0] = Pickled(tmp_path / "done")
    np.savez(file, trace=array)
    with pytest.raises(ValueError, match="x.npz is not a trace"):
        Trace.load(file)
    assert not (tmp_path / "done").exists()


def test_files_that_are_no_trace(trace, tmp_path):
    file = tmp_path / "x.npz"
    trace.save(file)
    whole = file.read_bytes()

    def write(**arrays):
        np.savez(file, **arrays)

    def about(**said):
        return np.frombuffer(json.dumps(said).encode(), np.uint8)

    for make in (
        lambda: file.write_bytes(b""),
        lambda: file.write_bytes(b"nonsense"),
        lambda: file.write_bytes(whole[: len(whole) // 2]),
        lambda: file.write_bytes(whole[:200] + b"\xff" * 50 + whole[250:]),
        lambda: write(x=np.ones(3)),
        lambda: write(trace=np.array([{"a": 1}], dtype=object)),  # a pickle, never opened
        lambda: write(trace=about(kind="another")),
        lambda: write(trace=about(kind="regard trace 1")),
        lambda: write(trace=about(kind="regard trace 1", layers=1, tokens=["a"], text="a")),
    ):
        make()
        with pytest.raises(ValueError, match="x.npz is not a"):
            Trace.load(file)
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "absent")
    with pytest.raises(ValueError, match="path must be a file in a folder that is there"):
        trace.save(tmp_path / "absent" / "x.npz")


# ------------------------------------------------------------------ averages, heads off


def test_averages_are_weighted_means_and_say_so(tiny):
    texts = ["the law", "its law is just, its law", "a b c a"]
    averages = tiny.look(texts)
    traces = [tiny.look(text) for text in texts]
    sizes = np.array([len(trace) for trace in traces])
    assert (averages.texts, averages.tokens) == (3, sizes.sum())
    assert "Averages(over 3 texts" in repr(averages)
    tables = [trace.heads() for trace in traces]
    for i, record in enumerate(averages.heads()):
        assert record["averaged_over"] == 3
        for name in ("previous", "entropy", "separator", "distance", "induction"):
            each = np.array([table[i][name] for table in tables])
            there = ~np.isnan(each)
            expected = (each * sizes)[there].sum() / sizes[there].sum()
            np.testing.assert_allclose(record[name], expected, rtol=1e-6)
    mass = sum(np.diag(trace.weights(1)[2], -1).sum() for trace in traces)
    at = averages.mass[1, 2, averages.distance == 1]
    np.testing.assert_allclose(at, mass / (sizes - 1).sum(), rtol=1e-5)
    with pytest.raises(ValueError, match="at least one text"):
        tiny.look([])
    with pytest.raises(TypeError, match="text must be a str, got int"):
        tiny.look(["a", 5])


def test_averages_of_arrays():
    W = np.random.default_rng(0).dirichlet(np.ones(3), (2, 2, 3))
    averages = average([Trace.from_arrays(W, ["a", "b", "c"])] * 4)
    assert averages.mass.shape == (2, 2, 5)
    np.testing.assert_allclose(averages.mass[..., 2], np.diagonal(W, axis1=-2, axis2=-1).mean(-1))


def test_heads_switched_off_bring_nothing_and_what_changed_is_told(tiny):
    text = "the law is just"
    plain = tiny.look(text)
    trace = tiny.look(text, without=[(0, 1), (0, 1)])
    assert trace.without == ((0, 1),)
    assert repr(trace).endswith("2 layers of 3 heads, without L0H1)")
    np.testing.assert_array_equal(formed(trace.plain), formed(plain))
    assert not trace.moved[0][1].any()
    assert not trace.contribution(0)[1].any()
    W, before = formed(trace), formed(plain)
    np.testing.assert_array_equal(
        W[0], before[0]
    )  # the weights of the first layer are as they were
    for record in trace.changes():
        here = record["layer"], record["head"]
        assert record["off"] == (here == (0, 1))
        expected = np.abs(W[here] - before[here]).sum() / 2 / len(trace)
        np.testing.assert_allclose(record["changed"], expected, atol=1e-7)
    assert any(record["changed"] > 0.001 for record in trace.changes())
    expected = np.linalg.norm(trace.hidden - plain.hidden, axis=1) / np.linalg.norm(
        plain.hidden, axis=1
    )
    np.testing.assert_allclose(trace.token_changes(), expected)
    assert (expected > 0).all()
    with pytest.raises(ValueError, match="no head was switched off"):
        plain.changes()
    for wrong in ((2, 0), (0, 3), (-1, 0)):
        with pytest.raises(ValueError, match="layers 0 to 1 and heads 0 to 2, got"):
            tiny.look(text, without=[wrong])


def test_a_head_off_is_a_head_whose_projection_is_zero(tiny, tiny_folder):
    trace = tiny.look("its law", without=[(1, 2)])
    other = regard.models.load(tiny_folder)
    attention = other._layers[1].attention
    weight = attention.wide().copy()
    weight[:, 8:12] = 0
    silent = regard.nn.Linear(weight, attention.bias)
    other._layers[1] = other._layers[1]._replace(attention=silent)
    assert_close(trace.hidden, other.look("its law").hidden, 1e-5)
