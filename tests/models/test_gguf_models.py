"""Models from GGUF files: the same numbers as from a folder, in every type that is held."""

import numpy as np
import pytest

import regard
from tiny import (
    LLAMA,
    MERGES,
    TOKENS,
    add_tokenizer,
    close,
    gguf_writer,
    write_folder,
    write_llama_gguf,
)

gguf = pytest.importorskip("gguf")
from regard.models.gguf_file import GGUF  # noqa: E402

IDS = np.random.default_rng(0).integers(0, len(TOKENS), (2, 31))
KINDS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q5_0", "Q5_1")
HELD = {"F16": "float16", "BF16": "bfloat16", "Q4_0": "Q4_0", "Q4_1": "Q4_1", "Q8_0": "Q8_0"}


def rows_of_pairs(weight, heads):
    """Rows of queries or keys as a folder has them: the firsts of all pairs, then the seconds."""
    out, into = weight.shape
    return weight.reshape(heads, out // heads // 2, 2, into).swapaxes(1, 2).reshape(out, into)


def folder_of(file, folder, config=LLAMA):
    """The same model in Hugging Face layout, dequantised by the format's own library."""
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    parts = {
        "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    tensors = {}
    for tensor in gguf.GGUFReader(file).tensors:
        stem = tensor.name.removesuffix(".weight")
        if stem not in names:
            _, i, part = stem.split(".")
            names[stem] = f"model.layers.{i}.{parts[part]}"
        floats = gguf.dequantize(tensor.data, tensor.tensor_type)
        if stem.endswith(("attn_q", "attn_k")):
            heads = "num_attention_heads" if stem.endswith("q") else "num_key_value_heads"
            floats = rows_of_pairs(floats, config[heads])
        tensors[f"{names[stem]}.weight"] = np.ascontiguousarray(floats, np.float32)
    return write_folder(folder, config, tensors)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_the_folder_it_was_made_of(tmp_path, kind):
    file = write_llama_gguf(tmp_path / "a.gguf", kind)
    model = regard.models.load(file)
    expected = regard.models.load(folder_of(file, tmp_path / "folder"))(IDS)
    np.testing.assert_allclose(model(IDS), expected, rtol=0, atol=2e-5 * np.abs(expected).max())
    weight = model.layers[0].mlp.up.weight
    held = weight.type if hasattr(weight, "type") else weight.dtype.name
    assert held == HELD.get(kind, "float32")
    widened = regard.models.load(file, widen=True)
    assert widened.layers[0].mlp.up.weight.dtype == widened.head.weight.dtype == np.float32
    np.testing.assert_allclose(widened(IDS), expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_a_folder_with_one_file(tmp_path):
    file = write_llama_gguf(tmp_path / "a.gguf")
    np.testing.assert_array_equal(regard.models.load(tmp_path)(IDS), regard.models.load(file)(IDS))
    write_llama_gguf(tmp_path / "b.gguf")
    with pytest.raises(ValueError, match="config.json is missing"):
        regard.models.load(tmp_path)


def test_a_window_and_scalings(tmp_path):
    plain = regard.models.load(write_llama_gguf(tmp_path / "a.gguf"))(IDS)
    for name, value, change in (
        ("add_sliding_window", 5, {"model_type": "mistral", "sliding_window": 5}),
        ("add_rope_scaling_type", gguf.RopeScalingType.LINEAR,
         {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    ):  # fmt: skip
        more = {"add_rope_scaling_factor": 4.0} if "scaling" in name else {}
        file = write_llama_gguf(tmp_path / f"{name}.gguf", **{name: value}, **more)
        actual = regard.models.load(file)(IDS)
        folder = folder_of(file, tmp_path / name, {**LLAMA, **change})
        expected = regard.models.load(folder)(IDS)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5 * np.abs(expected).max())
        assert np.abs(actual - plain).max() > 0.1


def test_gpt2(tmp_path):
    """Against a folder, whose products have their weights the other way round."""
    D, V, rng = 32, len(TOKENS), np.random.default_rng(0)
    names = {"attn.c_attn": ("attn_qkv", 3 * D, D), "attn.c_proj": ("attn_output", D, D),
             "mlp.c_fc": ("ffn_up", 4 * D, D), "mlp.c_proj": ("ffn_down", D, 4 * D)}  # fmt: skip
    writer = gguf_writer(tmp_path / "a.gguf", "gpt2")
    writer.add_block_count(2)
    writer.add_context_length(97)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(4 * D)
    writer.add_head_count(4)
    writer.add_layer_norm_eps(1e-5)
    add_tokenizer(writer, pre="gpt-2")
    tensors = {}

    def add(theirs, ours, array, transposed=False):
        array = array.astype(np.float32)
        writer.add_tensor(theirs, array)
        tensors[f"transformer.{ours}"] = np.ascontiguousarray(array.T) if transposed else array

    add("token_embd.weight", "wte.weight", rng.standard_normal((V, D)))
    add("position_embd.weight", "wpe.weight", rng.standard_normal((97, D)))
    for i, (theirs, ours) in enumerate([("output_norm", "ln_f")] + [
        (f"blk.{i}.{a}_norm", f"h.{i}.{b}") for i in range(2) for a, b in (("attn", "ln_1"), ("ffn", "ln_2"))
    ]):  # fmt: skip
        add(f"{theirs}.weight", f"{ours}.weight", 1 + 0.1 * rng.standard_normal(D) + i * 0)
        add(f"{theirs}.bias", f"{ours}.bias", rng.standard_normal(D))
    for i in range(2):
        for ours, (theirs, out, into) in names.items():
            weight = rng.standard_normal((out, into)) * 0.3
            add(f"blk.{i}.{theirs}.weight", f"h.{i}.{ours}.weight", weight, transposed=True)
            add(f"blk.{i}.{theirs}.bias", f"h.{i}.{ours}.bias", rng.standard_normal(out))
    close(writer)
    config = {
        "model_type": "gpt2",
        "n_embd": D,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 97,
        "vocab_size": V,
    }
    expected = regard.models.load(write_folder(tmp_path / "folder", config, tensors))(IDS)
    actual = regard.models.load(tmp_path / "a.gguf")(IDS)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(add_head_count_kv=3), "llama.attention.head_count_kv must divide 4, got 3"),
        (dict(add_block_count=3), "tensor blk.2.attn_q.weight is missing"),
        (dict(add_block_count=1), "tensor blk.1.* has no place in this model"),
        (dict(add_rope_dimension_count=4), "llama.rope.dimension_count must be the head size 8, got 4"),
        (dict(add_vocab_size=263), r"tensor token_embd.weight must be \(263, 32\), got \(264, 32\)"),
        (dict(add_tokenizer_model="llama"), "tokenizer.ggml.model must be gpt2, got 'llama'"),
        (dict(add_tokenizer_pre="new"), "tokenizer.ggml.pre must be .* got 'new'"),
        (dict(add_token_list=[*TOKENS[:-1], "tt"]), "must join two tokens to one, got 'Ġ law'"),
        (dict(add_token_list=[*TOKENS, "t"]), "tokenizer.ggml.tokens must differ"),
        (dict(add_token_types=[1]), "tokenizer.ggml.token_type must hold one for each token"),
        (dict(add_token_merges=["t h e"]), r"merges\[0\] must join two tokens to one, got 't h e'"),
        (dict(add_eos_token_id=264), r"eos_token_id must be an int in \[0, 264\), got 264"),
    ],
)  # fmt: skip
def test_metadata_that_does_not_fit(tmp_path, monkeypatch, changes, says):
    for name, value in changes.items():  # said last, in place of what it said
        real = getattr(gguf.GGUFWriter, name)
        monkeypatch.setattr(
            gguf.GGUFWriter, name, lambda self, _, real=real, v=value: real(self, v)
        )
    file = tmp_path / "a.gguf"
    write_llama_gguf(file)
    with pytest.raises(ValueError, match=f"a.gguf: .*{says}"):
        regard.models.load(file)


def test_what_is_not_to_be_had(tmp_path):
    file = write_llama_gguf(tmp_path / "a.gguf", add_value_length=4)
    with pytest.raises(
        ValueError, match="llama.attention.value_length must be the head size 8, got 4"
    ):
        regard.models.load(file)
    file = tmp_path / "b.gguf"
    writer = gguf_writer(file, "mamba")
    add_tokenizer(writer)
    close(writer)
    with pytest.raises(ValueError, match="general.architecture must be llama or .*, got 'mamba'"):
        regard.models.load(file)


def test_a_file_that_begins_texts_with_a_token(tmp_path):
    file = write_llama_gguf(tmp_path / "a.gguf", add_add_bos_token=True)
    tokenizer = regard.models.load(file).tokenizer
    assert tokenizer.encode("the law").ids[0] == 1
    assert MERGES[2] == ("Ġ", "the")


@pytest.mark.slow
def test_a_model_of_changed_bytes_is_read_or_refused(tmp_path):
    """All of it, tokenizer and wiring too: nothing but an error of ours may come of any header."""
    import random
    import time

    content = write_llama_gguf(tmp_path / "real.gguf").read_bytes()
    header = min(at.start for at in GGUF(tmp_path / "real.gguf").tensors.values())
    random.seed(3)
    file, seen = tmp_path / "made.gguf", set()
    for _ in range(400):
        changed = bytearray(content)
        for _ in range(random.choice((1, 1, 3))):
            at = random.randrange(header)
            changed[at] = random.choice((0, 1, 127, 255, changed[at] ^ 1 << random.randrange(8)))
        file.write_bytes(changed)
        started = time.perf_counter()
        try:
            regard.models.load(file)
            seen.add("read")
        except ValueError as error:
            seen.add("refused" if "made.gguf" in str(error) else repr(error))
        assert time.perf_counter() - started < 10
    assert seen == {"read", "refused"}
