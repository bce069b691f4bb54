"""The BERT family: against another implementation, and by its own algebra."""

import json
import warnings

import numpy as np
import pytest

import regard

SENTENCE = (
    "The Law will never be perfect, but its application should be just - this is what we are "
    "missing, in my opinion."
)


def peer(folder):
    """The same model by transformers on PyTorch."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.BertModel.from_pretrained(folder).eval()


def hidden_state(model, ids):
    import torch

    with torch.no_grad():
        return model(torch.tensor(ids)).last_hidden_state.numpy()


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
def test_a_tiny_model_equals_transformers(tiny_folder, act):
    config = json.loads((tiny_folder / "config.json").read_text())
    (tiny_folder / "config.json").write_text(json.dumps({**config, "hidden_act": act}))
    ids = np.random.default_rng(0).integers(0, 18, (3, 11))
    expected = hidden_state(peer(tiny_folder), ids)
    actual = regard.models.load(tiny_folder)(ids)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 27), (3, 128), (1, 512)])
def test_minilm_equals_transformers(minilm, shape):
    ids = np.random.default_rng(1).integers(0, 30_000, shape)
    expected = hidden_state(peer(minilm.folder), ids)
    np.testing.assert_allclose(minilm(ids), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("older", [False, True])
def test_a_model_with_a_head_is_read_below_its_prefix(tiny_folder, older):
    from safetensors.numpy import load_file, save_file

    file = tiny_folder / "model.safetensors"
    expected = regard.models.load(tiny_folder)([2, 5, 3])
    renamed = {f"bert.{name}": tensor for name, tensor in load_file(file).items()}
    if older:  # the norms' names of TensorFlow
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): tensor
            for name, tensor in renamed.items()
        }
    save_file({**renamed, "cls.predictions.bias": np.zeros(18, np.float32)}, file)
    np.testing.assert_array_equal(regard.models.load(tiny_folder)([2, 5, 3]), expected)


def test_minilm_finds_the_law(minilm):
    trace = minilm.look(SENTENCE)
    first, second = trace.find("its", "law")[:2]
    assert (first.layer, first.head, round(first.weight, 3)) == (3, 1, 0.804)
    assert (second.layer, second.head, round(second.weight, 3)) == (4, 11, 0.556)


def test_minilm_embeds_meaning(minilm):
    a, b, c = minilm.embed(["A cat sits on the mat.", "A kitten rests on a rug.", "Stocks fell."])
    assert a @ b > 0.5 > abs(a @ c) + 0.2
    np.testing.assert_allclose(np.linalg.norm([a, b, c], axis=1), 1, rtol=1e-6)


def test_a_batch_is_one_by_one(tiny):
    ids = np.random.default_rng(2).integers(0, 18, (3, 7))
    hidden = tiny(ids)
    assert hidden.shape == (3, 7, 12)
    assert hidden.dtype == np.float32
    for row, expected in zip(ids, hidden, strict=True):
        np.testing.assert_allclose(tiny(row), expected, atol=2e-6)
    assert tiny(ids[:0]).shape == (0, 7, 12)


def test_look_has_the_weights_of_the_forward_pass(tiny):
    trace = tiny.look("The law, unbelievable!")
    assert trace.tokens == [
        "[CLS]",
        "the",
        "law",
        ",",
        "un",
        "##believ",
        "##able",
        "[UNK]",
        "[SEP]",
    ]
    assert trace.special.tolist() == [True] + [False] * 7 + [True]
    assert len(trace.layers) == 2
    for attended in trace.layers:
        assert attended.weights.shape == (3, 9, 9)
        np.testing.assert_allclose(np.asarray(attended.weights).sum(-1), 1, rtol=1e-6)
    peer_model = peer(tiny.folder)
    import torch

    peer_model.set_attn_implementation("eager")
    ids = tiny.tokenizer.encode("The law, unbelievable!").ids
    with torch.no_grad():
        expected = peer_model(torch.tensor([ids]), output_attentions=True).attentions
    for attended, other in zip(trace.layers, expected, strict=True):
        np.testing.assert_allclose(np.asarray(attended.weights), other[0].numpy(), atol=1e-5)


def test_the_tokenizer_neither_cuts_nor_pads(tiny):
    assert len(tiny.look("a b").tokens) == 4
    assert len(tiny.look("a b c a b c a b c a b").tokens) == 13


def test_look_refuses_a_text_that_is_too_long_or_cuts_it(tiny):
    with pytest.raises(ValueError, match="at most 13 tokens, got 22: truncate=True"):
        tiny.look("a " * 20)
    trace = tiny.look("a " * 20, truncate=True)
    assert trace.tokens == ["[CLS]", *["a"] * 11, "[SEP]"]
    with pytest.raises(TypeError, match="text must be a str, got int"):
        tiny.look(5)


def mean(tiny, ids):
    pooled = tiny(np.array(ids)).mean(axis=0)
    return pooled / np.linalg.norm(pooled)


def test_embed_pools_what_the_folder_says(tiny, tiny_folder):
    ids = tiny.tokenizer.encode("the law is just").ids
    hidden = tiny(np.array(ids))
    modes = {
        "pooling_mode_mean_tokens": hidden.mean(0),
        "pooling_mode_cls_token": hidden[0],
        "pooling_mode_max_tokens": hidden.max(0),
    }
    modules = json.loads((tiny_folder / "modules.json").read_text())
    for mode, pooled in modes.items():
        chosen = {name: name == mode for name in modes}
        (tiny_folder / "1_Pooling" / "config.json").write_text(json.dumps(chosen))
        (tiny_folder / "modules.json").write_text(json.dumps(modules))
        (vector,) = tiny.embed(["the law is just"])
        np.testing.assert_allclose(vector, pooled / np.linalg.norm(pooled), atol=1e-6)
        (tiny_folder / "modules.json").write_text(json.dumps(modules[:2]))
        (vector,) = tiny.embed(["the law is just"])
        np.testing.assert_allclose(vector, pooled, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}), "must be true, got"),
        (("1_Pooling/config.json", {}), r"must be true, got \[\]"),
        (("1_Pooling/config.json",
          {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}), "must be true, got"),
        (("modules.json", [{"type": "x.Transformer", "path": ""}, {"type": "x.Dense", "path": ""}]),
         "modules must be Transformer, Pooling .* got Transformer, Dense"),
        (("modules.json", None), "modules.json is missing"),
        (("modules.json", {"a": 1}), "modules.json must hold a list of objects"),
        (("modules.json", [1]), "modules.json must hold a list of objects"),
        (("1_Pooling/config.json", [1]), "config.json must hold one JSON object"),
        (("sentence_bert_config.json", []), "must hold one JSON object"),
        (("sentence_bert_config.json", {"max_seq_length": "256"}), "max_seq_length must be an int"),
        (("sentence_bert_config.json", {"max_seq_length": 2}),
         "max_seq_length must be greater than 2, got 2"),
    ],
)  # fmt: skip
def test_pooling_is_never_assumed(tiny, tiny_folder, change, says):
    name, content = change
    (tiny_folder / name).unlink()
    if content is not None:
        (tiny_folder / name).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=says):
        tiny.embed(["a"])


def test_embed_keeps_the_order_of_mixed_lengths(tiny):
    texts = ["a b c a b", "", "the", "law is just", "b", "unbelievable", "c a"]
    done = []
    vectors = tiny.embed(texts, progress=lambda n, total: done.append((n, total)))
    assert done[-1] == (len(texts), len(texts))
    assert done == sorted(done)
    again = tiny.embed(text for text in texts)  # any iterable of texts
    np.testing.assert_array_equal(again, vectors)
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(vector, mean(tiny, tiny.tokenizer.encode(text).ids), atol=1e-6)


def test_embed_of_nothing(tiny):
    assert tiny.embed([]).shape == (0, 12)
    with pytest.raises(TypeError, match="texts must be a list of str, got 'a b'"):
        tiny.embed("a b")
    with pytest.raises(TypeError, match="text must be a str, got int"):
        tiny.embed([1])
    with pytest.raises(ValueError, match="text must be valid Unicode"):
        tiny.embed(["\udce9"])
    with pytest.raises(ValueError, match="text must be valid Unicode"):
        tiny.look("\udce9")


def test_embed_cuts_at_the_folder_s_length_and_says_so(tiny):
    with pytest.warns(UserWarning, match="1 of 2 texts cut at 7 tokens; chunks=True"):
        vectors = tiny.embed(["a b c a b c a b c", "a b"])
    cut = [2, *(tiny.tokenizer.token_to_id(w) for w in "abcab"), 3]
    np.testing.assert_allclose(vectors[0], mean(tiny, cut), atol=1e-6)


def test_chunks_averages_over_windows_by_their_tokens(tiny):
    words = ["a", "b", "c", "a", "b", "c", "a", "b", "c", "a", "b", "c"]
    (vector,) = tiny.embed([" ".join(words)], chunks=True)
    parts = []
    for start in (0, 5, 10):
        ids = [2, *(tiny.tokenizer.token_to_id(w) for w in words[start : start + 5]), 3]
        parts.append((len(ids), tiny(np.array(ids)).mean(0)))
    assert [n for n, _ in parts] == [7, 7, 4]
    average = sum(n * part for n, part in parts) / 18
    np.testing.assert_allclose(vector, average / np.linalg.norm(average), atol=1e-6)


@pytest.mark.parametrize(
    ("ids", "error", "says"),
    [
        ([1.0], TypeError, "ids must be an array of int, got float64"),
        (
            [[[1]]],
            ValueError,
            r"ids must be \(N,\) or \(B, N\) with N from 1 to 13, got \(1, 1, 1\)",
        ),
        (np.zeros(0, int), ValueError, r"got \(0,\)"),
        (np.zeros(14, int), ValueError, r"got \(14,\)"),
        ([18], ValueError, r"ids must be in \[0, 18\), got 18 … 18"),
        ([-1], ValueError, "got -1"),
    ],
)
def test_errors_of_ids(tiny, ids, error, says):
    with pytest.raises(error, match=says):
        tiny(ids)


def test_repr(tiny):
    assert repr(tiny) == "Bert(tiny: 2 layers of 3 heads, D 12)"
