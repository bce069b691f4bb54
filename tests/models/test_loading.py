"""Folders that are whole, and files that are missing, corrupt, cut short or of another make."""

import json

import numpy as np
import pytest

import regard
from conftest import TINY, tiny_tensors


def change_config(folder, **changes):
    config = {**TINY, **changes}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "-"}))


def save(folder, tensors):
    from safetensors.numpy import save_file

    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(tiny_folder, name):
    (tiny_folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        regard.models.load(tiny_folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00junk", b"[1, 2]", b"null"])
def test_a_corrupt_file_is_named(tiny_folder, name, content):
    (tiny_folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=name):
        regard.models.load(tiny_folder)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, 1000, -1])
def test_weights_cut_short_anywhere(tiny_folder, keep):
    file = tiny_folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"model.safetensors is corrupt or cut short: "):
        regard.models.load(tiny_folder)


def test_a_tensor_missing_misshapen_or_of_ints(tiny_folder):
    name = "encoder.layer.1.output.dense.weight"
    for change, says in (
        (None, f"{name} is missing"),
        (np.zeros((17, 12), np.float32), rf"{name} must be \(12, 17\), got \(17, 12\)"),
        (np.zeros((12, 17), np.int32), f"{name} must hold floats, got int32"),
    ):
        tensors = tiny_tensors()
        del tensors[name]
        save(tiny_folder, tensors if change is None else {**tensors, name: change})
        with pytest.raises(ValueError, match=rf"model.safetensors: tensor {says}"):
            regard.models.load(tiny_folder)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_weights_are_widened(tiny_folder, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    narrow = {k: v.astype(getattr(ml_dtypes, dtype, dtype)) for k, v in tiny_tensors().items()}
    save(tiny_folder, narrow)
    model = regard.models.load(tiny_folder)([2, 5, 3])
    save(tiny_folder, {k: v.astype(np.float32) for k, v in narrow.items()})
    np.testing.assert_array_equal(model, regard.models.load(tiny_folder)([2, 5, 3]))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(model_type="gpt9"), "model_type must be albert or .*, got 'gpt9'"),
        (dict(model_type="-"), "model_type is missing"),
        (dict(hidden_size="-"), "hidden_size is missing"),
        (dict(hidden_size="12"), "hidden_size must be an int of 1 or more, got '12'"),
        (dict(num_hidden_layers=0), "num_hidden_layers must be an int of 1 or more, got 0"),
        (dict(num_attention_heads=5), "num_attention_heads must divide 12, got 5"),
        (dict(hidden_act="swish9"), "hidden_act must be gelu or .* got 'swish9'"),
        (dict(hidden_act=["gelu"]), "hidden_act must be"),
        (dict(layer_norm_eps=-1), "layer_norm_eps must be a number of 0 or more, got -1"),
        (dict(position_embedding_type="relative_key"), "position_embedding_type must be absolute"),
        (dict(vocab_size=19), r"word_embeddings.weight must be \(19, 12\), got \(18, 12\)"),
    ],
)
def test_settings_that_are_not_this_model_s(tiny_folder, changes, says):
    change_config(tiny_folder, **changes)
    with pytest.raises(ValueError, match=rf"(config.json|model.safetensors): .*{says}"):
        regard.models.load(tiny_folder)


def test_settings_that_may_be_left_out(tiny_folder):
    expected = regard.models.load(tiny_folder)([2, 5, 3])
    change_config(tiny_folder, layer_norm_eps="-")
    np.testing.assert_array_equal(regard.models.load(str(tiny_folder))([2, 5, 3]), expected)


def test_a_name_that_is_nothing():
    with pytest.raises(
        ValueError, match="model must be one of minilm, smollm2, or a folder .* got 'bertt'"
    ):
        regard.models.load("bertt")
