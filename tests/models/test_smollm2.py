"""SmolLM2 from its GGUF file: against transformers on PyTorch reading the same file."""

import warnings

import numpy as np
import pytest

import regard

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n",
    "Attention is all you need, because",
    "1, 2, 3, 5, 8, 13,",
)


@pytest.fixture(scope="module")
def smollm2(smollm2_file):
    return regard.models.load(smollm2_file)


@pytest.fixture(scope="module")
def peer(smollm2_file):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.AutoModelForCausalLM.from_pretrained(
            smollm2_file.parent, gguf_file=smollm2_file.name, dtype=torch.float32
        ).eval()


@pytest.mark.slow
def test_logits_equal_those_of_transformers(smollm2, peer):
    import torch

    for prompt in PROMPTS:
        ids = smollm2.tokenizer.encode(prompt).ids
        with torch.no_grad():
            expected = peer(torch.tensor([ids])).logits[0].numpy()
        actual = smollm2(np.array(ids))
        assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS)
def test_64_greedy_tokens_are_those_of_transformers(smollm2, peer, prompt):
    import torch

    ids = smollm2.tokenizer.encode(prompt).ids
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = peer.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=64, do_sample=False,
        )[0, len(ids) :].tolist()  # fmt: skip
    written = smollm2.generate(prompt, max_tokens=64)
    assert "".join(written)
    assert written.ids == theirs
    assert written.ended or len(written.ids) == 64


@pytest.mark.slow
def test_the_cache_gives_the_bits_of_recomputing(smollm2_file):
    from regard.engines.native import SETS

    if not SETS:
        pytest.skip("the native engine is absent: bits are its promise")
    model = regard.models.load(smollm2_file, widen=True)
    ids = model.tokenizer.encode(PROMPTS[1]).ids
    caches = model.caches()
    for n in range(1, len(ids)):
        logits = model.step(ids[n - 1 : n], caches)
        np.testing.assert_array_equal(logits, model(np.array(ids[:n]))[-1])


def test_the_tokenizer_is_that_of_the_model(smollm2):
    text = "In 1984, 12345 people   said:\n\n\tdef f(x): return x**2  # naïve café ☃ 漢字 don't"
    encoding = smollm2.tokenizer.encode(text)
    assert smollm2.tokenizer.decode(encoding.ids) == text
    assert encoding.ids[:12] == [
        788,
        216,
        33,
        41,
        40,
        36,
        28,
        216,
        33,
        34,
        35,
        36,
    ]  # digit by digit
    assert smollm2.manner.ends == {2}


def test_it_answers(smollm2):
    question = [{"role": "user", "content": "What is the capital of France?"}]
    written = smollm2.generate(question, max_tokens=24)
    assert "".join(written) == "The capital of France is Paris."
    assert written.ended


def test_look_has_all_layers_and_heads(smollm2):
    trace = smollm2.look("The law is just.")
    assert len(trace.layers) == 30
    assert all(attended.weights.shape == (9, 5, 5) for attended in trace.layers)
    assert trace.tokens == ["The", "law", "is", "just", "."]
