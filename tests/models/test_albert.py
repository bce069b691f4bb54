"""ALBERT: shared layers, groups of them, a narrow embedding, against transformers."""

import warnings

import numpy as np
import pytest

import regard
from conftest import WORDS, write_tokenizer

CONFIG = {
    "vocab_size": len(WORDS), "embedding_size": 7, "hidden_size": 12, "intermediate_size": 17,
    "num_attention_heads": 3, "num_hidden_layers": 5, "max_position_embeddings": 13,
    "type_vocab_size": 2,
}  # fmt: skip


def peer_in(folder, **changes):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AlbertModel(transformers.AlbertConfig(**{**CONFIG, **changes})).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            plain = "orm" in name and name.endswith("weight")
            weight.copy_(torch.randn(weight.shape) * 0.4 + (1.0 if plain else 0.0))
    model.save_pretrained(folder)
    write_tokenizer(folder / "tokenizer.json")
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_act": "gelu"},
        {"layer_norm_eps": 0.1},
        {"num_hidden_groups": 2},
        {"num_hidden_groups": 5},
        {"inner_group_num": 2},
        {"num_hidden_groups": 3, "inner_group_num": 2},
    ],
    ids=str,
)
def test_hidden_states_and_weights_equal_those_of_transformers(tmp_path, changes):
    torch = pytest.importorskip("torch", reason="torch is not installed")

    peer = peer_in(tmp_path, **changes)
    ids = np.random.default_rng(0).integers(0, len(WORDS), (3, 11))
    with torch.no_grad():
        expected = peer(torch.tensor(ids)).last_hidden_state.numpy()
    model = regard.models.load(tmp_path)
    np.testing.assert_allclose(model(ids), expected, rtol=0, atol=2e-5)
    layers = 5 * changes.get("inner_group_num", 1)
    assert repr(model) == f"Albert({tmp_path.name}: {layers} layers of 3 heads, D 12)"
    trace = model.look("the law is just")
    assert len(trace.layers) == layers
    peer.set_attn_implementation("eager")
    encoded = torch.tensor([model.tokenizer.encode("the law is just").ids])
    if layers == 5:
        with torch.no_grad():
            weights = peer(encoded, output_attentions=True).attentions
        for attended, other in zip(trace.layers, weights, strict=True):
            np.testing.assert_allclose(np.asarray(attended.weights), other[0].numpy(), atol=1e-5)


def test_more_groups_than_layers(tmp_path):
    import json

    peer_in(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "num_hidden_groups": 6}))
    with pytest.raises(ValueError, match="num_hidden_groups must be at most 5, the layers, got 6"):
        regard.models.load(tmp_path)
