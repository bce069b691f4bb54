"""Generation: what is taken, when it ends, and that a cache changes nothing."""

import numpy as np
import pytest

import regard
from regard.models.generation import draw
from regard.models.tokens import Stream, shown
from tiny import LLAMA, TOKENS, write_llama_gguf

pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    file = write_llama_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    return regard.models.load(file)


def recomputed(model, ids, n):
    """Greedy tokens, the whole text computed anew each time."""
    ids = list(ids)
    for _ in range(n):
        ids.append(int(model(ids)[-1].argmax()))
    return ids


PROMPT = [5, 77, 131, 7, 7, 201]


def test_greedy_is_what_recomputing_takes(model):
    written = model.generate(PROMPT, max_tokens=29)
    text = "".join(written)
    assert written.prompt_ids == PROMPT
    assert written.ended == (written.ids[-1] == 0)
    assert [*PROMPT, *written.ids] == recomputed(model, PROMPT, len(written.ids))
    shown_ids = written.ids[:-1] if written.ended else written.ids
    assert text == model.tokenizer.decode(shown_ids)


def test_the_cache_gives_the_bits_of_recomputing(model):
    from regard.engines.native import SETS

    if not SETS:
        pytest.skip("the native engine is absent: bits are its promise")
    rng = np.random.default_rng(2)
    ids = rng.integers(2, len(TOKENS), 61)
    whole = model(ids)
    for pieces in ([61], [1] * 61, [17, 1, 1, 30, 12]):
        caches, at = model.caches(), 0
        for n in pieces:
            logits = model.step(ids[at : at + n], caches)
            at += n
            np.testing.assert_array_equal(logits, whole[at - 1])


def test_it_ends_at_the_last_position(model):
    written = model.generate(np.arange(2, 97).tolist(), max_tokens=1000)
    "".join(written)
    assert written.ended or len(written.ids) == 97 - 95 + 1


def test_it_ends_at_an_end_token(model):
    model_ends = model.manner._replace(ends=frozenset(range(len(TOKENS))))
    before, model.manner = model.manner, model_ends
    try:
        written = model.generate(PROMPT)
        assert list(written) == []
        assert (written.ended, len(written.ids)) == (True, 1)
        with pytest.raises(StopIteration):
            next(written)
    finally:
        model.manner = before


def test_a_conversation_goes_through_the_template(model):
    messages = [{"role": "user", "content": "the law"}]
    text = "<|start|>user the law<|end|><|start|>"
    assert model.manner.prompt(messages) == text
    expected = model.tokenizer.encode(text, add_special_tokens=False).ids
    assert model.generate(messages).prompt_ids == expected
    assert expected[0] == expected[-1] == 1


def test_the_same_seed_draws_the_same(model):
    def drawn(seed):
        return "".join(model.generate(PROMPT, max_tokens=20, temperature=2.0, top_p=0.9, seed=seed))

    assert drawn(3) == drawn(3)
    assert len({drawn(seed) for seed in range(5)}) > 1


def test_draws_follow_the_probabilities():
    logits = np.log(np.array([1, 2, 3, 4], np.float32) / 10)
    random = np.random.default_rng(0)
    assert draw(logits, 0.0, 1.0, random) == 3
    counts = np.bincount([draw(logits, 1.0, 1.0, random) for _ in range(20000)], minlength=4)
    np.testing.assert_allclose(counts / 20000, [0.1, 0.2, 0.3, 0.4], atol=0.015)
    counts = np.bincount([draw(logits, 1.0, 0.7, random) for _ in range(20000)], minlength=4)
    np.testing.assert_allclose(counts / 20000, [0, 0, 3 / 7, 4 / 7], atol=0.015)
    counts = np.bincount([draw(logits, 0.5, 1.0, random) for _ in range(20000)], minlength=4)
    np.testing.assert_allclose(counts / 20000, np.array([1, 4, 9, 16]) / 30, atol=0.015)
    assert {draw(logits, 1.0, 1e-9, random) for _ in range(50)} == {3}


def test_a_character_in_several_tokens_comes_whole(model):
    text = "naïve ☃ 漢字 🦙!"
    ids = model.tokenizer.encode(text).ids
    stream = Stream(model.tokenizer)
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) + stream.rest() == text
    assert not any("�" in piece for piece in pieces)
    assert pieces.count("") > 8
    cut = Stream(model.tokenizer)
    pieces = [cut.push(i) for i in ids[: ids.index(ids[-1]) - 1]]
    assert "".join(pieces) + cut.rest() == "naïve ☃ 漢字 �"


def test_tokens_stand_where_they_are_in_the_text(model):
    ids = [1, *model.tokenizer.encode("the law,\n ☃").ids]
    text, tokens, spans, special = shown(model.tokenizer, ids)
    assert text == "<|start|>the law,\n ☃"
    assert tokens[:6] == ["<|start|>", "the", "law", ",", "↵", "␣"]
    assert tokens[-1] == "☃"
    assert special == [True] + [False] * (len(ids) - 1)
    for token, (start, end) in zip(tokens, spans, strict=True):
        assert start == end or text[start:end] == token


def test_look_has_the_weights_of_the_forward_pass(model):
    trace = model.look("the law is the law", max_tokens=5)
    assert trace.text.startswith("the law is the law")
    N = len(trace)
    assert len(trace.layers) == LLAMA["num_hidden_layers"]
    for attended in trace.layers:
        weights = np.asarray(attended.weights)
        assert weights.shape == (4, N, N)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
        assert not np.triu(weights, 1).any()
    again = model.look(model.tokenizer.encode("the law is the law").ids)
    np.testing.assert_allclose(
        np.asarray(again.layers[1].weights),
        np.asarray(trace.layers[1].weights)[:, : len(again), : len(again)],
        atol=1e-6,
    )
    assert trace.find("law", "the")[0].query_token == "law"


@pytest.mark.parametrize(
    ("prompt", "options", "error", "says"),
    [
        ("", {}, ValueError, "prompt must have a token at least, got none"),
        ([], {}, ValueError, "prompt must have a token at least"),
        ([[1, 2]], {}, ValueError, "prompt must be one text, got several"),
        (7, {}, TypeError, "prompt must be a str, messages or ids, got int"),
        ("a " * 99, {}, ValueError, "text must have at most 97 tokens"),
        ([1] * 98, {}, ValueError, "with N from 1 to 97"),
        ([264], {}, ValueError, r"ids must be in \[0, 264\)"),
        ("a", {"max_tokens": 0}, ValueError, "max_tokens must be 1 or more, got 0"),
        ("a", {"max_tokens": 1.5}, TypeError, "cannot be interpreted as an integer"),
        ("a", {"temperature": -1}, ValueError, "temperature must be 0 or more, got -1"),
        ("a", {"temperature": float("nan")}, ValueError, "temperature must be 0 or more, got nan"),
        ("a", {"top_p": 0}, ValueError, r"top_p must be in \(0, 1\], got 0"),
        ("a", {"top_p": 1.1}, ValueError, r"top_p must be in \(0, 1\], got 1.1"),
    ],
)
def test_errors(model, prompt, options, error, says):
    with pytest.raises(error, match=says):
        model.generate(prompt, **options)


# -------------------------------------------------------------------------- chat templates


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (None, "has no chat template"),
        ("{% for %}", "the chat template could not be used"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "could not be used: access to attribute '__class__'"),
        ("{{ messages.append(1) }}", "could not be used"),
        ("{% for i in range(10**9) %}{% endfor %}", r"\*\* of so much is not allowed"),
        ("{{ 'a' * 999999999 }}", r"\* of so much is not allowed"),
        ("{{ messages[9].content }}", "could not be used"),
    ],
)
def test_a_template_that_is_none_or_oversteps(model, template, says):
    manner = model.manner._replace(template=template)
    with pytest.raises(ValueError, match=says):
        manner.prompt([{"role": "user", "content": "a"}])


def test_a_template_has_what_its_makers_count_on(model):
    template = "{{ bos_token }}{% for m in messages %}{% if loop.first %}{{ m.content | trim }}{% break %}{% endif %}{% endfor %}{{ [1] | tojson }}{{ strftime_now('%Y')[:2] }}"
    said = model.manner._replace(template=template).prompt([{"role": "user", "content": " a "}] * 2)
    assert said == "<|start|>a[1]20"


def test_looking_with_a_head_off_and_over_texts(model):
    text = "the law is the law"
    plain = model.look(text)
    trace = model.look(text, without=[(0, 3)])
    W = plain.layers[1].weights[2]
    assert trace.contribution(0).shape == (4, len(trace), len(trace))
    assert not trace.contribution(0)[3].any()
    assert plain.contribution(0)[3].any()
    np.testing.assert_array_equal(trace.plain.layers[1].weights[2], W)
    assert np.abs(trace.layers[1].weights[2] - W).max() > 1e-4
    assert (trace.token_changes() > 0).all()
    averages = model.look([text, "the law"])
    assert (averages.texts, averages.tokens) == (2, len(plain) + len(model.look("the law")))
    with pytest.raises(ValueError, match="layers 0 to 1 and heads 0 to 3"):
        model.look(text, without=[(2, 0)])
