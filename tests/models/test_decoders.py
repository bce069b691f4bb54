"""Language models: each switch of a family against transformers, with small random weights."""

import json

import numpy as np
import pytest

import regard
from tiny import TOKENS, write_tokenizer

V = len(TOKENS)
BASE = {
    "vocab_size": V, "hidden_size": 44, "intermediate_size": 53, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
    "max_position_embeddings": 97, "eos_token_id": 0, "bos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
GPT2 = {
    "vocab_size": V, "n_embd": 44, "n_layer": 3, "n_head": 4, "n_positions": 97,
    "eos_token_id": 0, "bos_token_id": 1,
}  # fmt: skip
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 24,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
CASES = {
    "llama": ("Llama", {}),
    "llama, a key head for each": ("Llama", {"num_key_value_heads": 4}),
    "llama, one key head": ("Llama", {"num_key_value_heads": 1}),
    "llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama, biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, head size of the width": ("Llama", {"head_dim": None, "hidden_size": 48}),
    "llama, gelu": ("Llama", {"hidden_act": "gelu"}),
    "llama, epsilon": ("Llama", {"rms_norm_eps": 0.1}),
    "llama, base": ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}}),
    "llama, linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}}),
    "llama, llama3": ("Llama", {"rope_parameters": LLAMA3}),
    "llama, yarn": ("Llama", {"rope_parameters": YARN}),
    "llama, yarn tuned": ("Llama", {"rope_parameters": {
        **YARN, "beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 1.5}}),
    "llama, yarn without rounding": ("Llama", {"rope_parameters": {**YARN, "truncate": False}}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral, window": ("Mistral", {"sliding_window": 5}),
    "qwen2": ("Qwen2", {}),
    "qwen2, window of the last layers": (
        "Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen2, window unused": ("Qwen2", {"use_sliding_window": False, "sliding_window": 5}),
    "qwen3": ("Qwen3", {}),
    "qwen3, biases": ("Qwen3", {"attention_bias": True}),
    "qwen3, window": (
        "Qwen3", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2}),
    "gpt2": ("GPT2", {}),
    "gpt2, untied": ("GPT2", {"tie_word_embeddings": False}),
    "gpt2, inner size": ("GPT2", {"n_inner": 53}),
    "gpt2, gelu": ("GPT2", {"activation_function": "gelu"}),
    "gpt2, relu": ("GPT2", {"activation_function": "relu"}),
    "gpt2, epsilon": ("GPT2", {"layer_norm_epsilon": 0.1}),
    "gpt2, scale by layer": ("GPT2", {"scale_attn_by_inverse_layer_idx": True}),
    "gpt2, no scale": ("GPT2", {"scale_attn_weights": False}),
    "gpt2, both": ("GPT2", {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True}),
    "gpt2, upcast": ("GPT2", {"reorder_and_upcast_attn": True}),
}  # fmt: skip


def peer_in(folder, family, changes=None, dtype="float32", **options):
    """A model of transformers with random weights, saved to a folder."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    config = {**(GPT2 if family == "GPT2" else BASE), **(changes or {})}
    config = {
        name: value for name, value in config.items() if value is not None or "window" in name
    }
    config = getattr(transformers, f"{family}Config")(**config)
    head = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    torch.manual_seed(0)
    model = getattr(transformers, head)(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            plain = "norm" in name or "ln_" in name
            weight.copy_(torch.randn(weight.shape) * 0.3 + (1.0 if plain else 0.0))
    model.to(getattr(torch, dtype)).save_pretrained(folder, **options)
    write_tokenizer(folder)
    if dtype != "float32":  # read anew: the rotary table of the other was rounded too
        model = type(model).from_pretrained(folder, dtype=torch.float32).eval()
    return model


def logits_of(model, ids):
    import torch

    with torch.no_grad():
        return model(torch.tensor(ids)).logits.numpy()


def assert_alike(actual, expected):
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= 3e-5 * np.abs(expected).max()


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_transformers(tmp_path, case):
    peer = peer_in(tmp_path, *CASES[case])
    ids = np.random.default_rng(0).integers(0, V, (2, 43))
    assert_alike(regard.models.load(tmp_path)(ids), logits_of(peer, ids))


@pytest.mark.parametrize("family", ["Llama", "GPT2"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_weights_stay_as_they_came(tmp_path, family, dtype):
    pytest.importorskip("ml_dtypes")
    peer = peer_in(tmp_path, family, dtype=dtype)
    ids = np.random.default_rng(1).integers(0, V, (2, 29))
    model = regard.models.load(tmp_path)
    assert model.embedding.weight.dtype == model.layers[0].mlp.up.weight.dtype == dtype
    assert_alike(model(ids), logits_of(peer, ids))
    widened = regard.models.load(tmp_path, widen=True)
    assert widened.embedding.weight.dtype == widened.layers[0].mlp.up.weight.dtype == np.float32
    assert_alike(widened(ids), logits_of(peer, ids))


def test_shards_are_read_as_one_file(tmp_path):
    peer = peer_in(tmp_path, "Llama", max_shard_size="40KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_alike(regard.models.load(tmp_path)([5, 7, 11]), logits_of(peer, [[5, 7, 11]])[0])


def test_older_names_of_the_rotary_scaling(tmp_path):
    peer = peer_in(tmp_path, "Llama", {"rope_parameters": LLAMA3})
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    rope = config.pop("rope_parameters")
    config |= {
        "rope_theta": rope.pop("rope_theta"),
        "rope_scaling": {**rope, "type": rope.pop("rope_type")},
    }
    file.write_text(json.dumps(config))
    ids = np.arange(43) % V
    assert_alike(regard.models.load(tmp_path)(ids), logits_of(peer, ids[None])[0])


@pytest.fixture
def llama_folder(tmp_path):
    peer_in(tmp_path, "Llama")
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_act": "swish9"}, "hidden_act must be .* got 'swish9'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide 4, got 3"),
        ({"num_hidden_layers": 4}, "tensor model.layers.3.self_attn.q_proj.weight is missing"),
        ({"num_hidden_layers": 2}, "tensor model.layers.2.* has no place in this model"),
        ({"attention_bias": True}, "tensor model.layers.0.self_attn.q_proj.bias is missing"),
        ({"attention_bias": "yes"}, "attention_bias must be true or false, got 'yes'"),
        ({"head_dim": 6}, r"tensor .*q_proj.weight must be \(24, 44\), got \(48, 44\)"),
        ({"model_type": "qwen3"}, "q_norm.weight is missing"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope_parameters.rope_type must be default or"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type must be default or"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters.factor is missing"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor must be 1, got 0.5"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1, got 0.5"),
        ({"rope_parameters": {"full_attention": {}}}, "rope_parameters.full_attention must not be"),
        ({"rope_parameters": {**YARN, "mscale": 2.0}}, "rope_parameters.mscale is not supported, got 2.0"),
        ({"rope_parameters": [1]}, "rope_parameters must be an object"),
        ({"eos_token_id": "end"}, "eos_token_id must be an int or a list of them, got 'end'"),
    ],
)  # fmt: skip
def test_settings_that_are_not_to_be_had(llama_folder, changes, says):
    (llama_folder / "generation_config.json").unlink()
    file = llama_folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(ValueError, match=says):
        regard.models.load(llama_folder)


def test_layers_of_a_kind_that_is_unknown(tmp_path):
    peer_in(tmp_path, "Qwen2", {"use_sliding_window": True, "sliding_window": 5})
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    for kinds, says in (
        ([1], "must be a list of 3"),
        (["linear"] * 3, "must be full_attention or"),
    ):
        file.write_text(json.dumps({**config, "layer_types": kinds}))
        with pytest.raises(ValueError, match=f"layer_types {says}"):
            regard.models.load(tmp_path)


def test_a_tensor_that_no_layer_takes_is_refused(llama_folder):
    from safetensors.numpy import load_file, save_file

    file = llama_folder / "model.safetensors"
    save_file({**load_file(file), "model.layers.0.gate": np.zeros(3, np.float32)}, file)
    with pytest.raises(ValueError, match="tensor model.layers.0.gate has no place in this model"):
        regard.models.load(llama_folder)


def test_cross_attention_is_refused(tmp_path):
    peer_in(tmp_path, "GPT2")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "add_cross_attention": True}))
    with pytest.raises(ValueError, match="add_cross_attention must be false"):
        regard.models.load(tmp_path)


@pytest.mark.parametrize(
    ("ids", "error", "says"),
    [
        ([1.0], TypeError, "ids must be an array of int, got float64"),
        ([[[1]]], ValueError, r"ids must be \(N,\) or \(B, N\) with N from 1 to 97"),
        (np.zeros(98, int), ValueError, r"got \(98,\)"),
        ([V], ValueError, rf"ids must be in \[0, {V}\)"),
        ([-1], ValueError, "got -1"),
    ],
)
def test_errors_of_ids(llama_folder, ids, error, says):
    with pytest.raises(error, match=says):
        regard.models.load(llama_folder)(ids)


def test_repr(llama_folder):
    said = repr(regard.models.load(llama_folder))
    assert said == f"Llama({llama_folder.name}: 3 layers of 4 heads, D 44)"
