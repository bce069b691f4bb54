"""Models for the tests: a tiny one made here, and real ones that were fetched before."""

import json

import numpy as np
import pytest

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "the",
    "law",
    "un",
    "##believ",
    "##able",
    "its",
    "is",
    "just",
    "a",
    "b",
    "c",
    ",",
    ".",
    "7",
]
TINY = {
    "model_type": "bert", "hidden_size": 12, "intermediate_size": 17, "num_attention_heads": 3,
    "num_hidden_layers": 2, "max_position_embeddings": 13, "vocab_size": len(WORDS),
    "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
}  # fmt: skip


def tiny_tensors(config=TINY):
    """Random weights under the names of a BERT encoder."""
    rng = np.random.default_rng(0)
    D, F = config["hidden_size"], config["intermediate_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], D),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], D),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], D),
        "embeddings.LayerNorm.weight": (D,),
        "embeddings.LayerNorm.bias": (D,),
    }
    for i in range(config["num_hidden_layers"]):
        for name, out, into in (
            ("attention.self.query", D, D), ("attention.self.key", D, D),
            ("attention.self.value", D, D), ("attention.output.dense", D, D),
            ("intermediate.dense", F, D), ("output.dense", D, F),
        ):  # fmt: skip
            shapes[f"encoder.layer.{i}.{name}.weight"] = (out, into)
            shapes[f"encoder.layer.{i}.{name}.bias"] = (out,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{i}.{name}.weight"] = (D,)
            shapes[f"encoder.layer.{i}.{name}.bias"] = (D,)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_tokenizer(file):
    """A WordPiece tokenizer that, like MiniLM's own, cuts and pads in the file."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(file))


@pytest.fixture
def tiny_folder(tmp_path):
    """A folder in Hugging Face layout with a tiny BERT that pools by the mean, at 7 tokens."""
    safetensors_numpy = pytest.importorskip("safetensors.numpy")
    pytest.importorskip("tokenizers")
    folder = tmp_path / "tiny"
    (folder / "1_Pooling").mkdir(parents=True)
    modules = [
        {"idx": i, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(
            [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        )
    ]
    for name, content in (
        ("config.json", TINY),
        ("modules.json", modules),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": True}),
        ("sentence_bert_config.json", {"max_seq_length": 7}),
    ):
        (folder / name).write_text(json.dumps(content))
    safetensors_numpy.save_file(tiny_tensors(), folder / "model.safetensors")
    write_tokenizer(folder / "tokenizer.json")
    return folder


@pytest.fixture
def tiny(tiny_folder):
    import regard

    return regard.models.load(tiny_folder)


def fetched(name):
    """The folder of a real model, where it was fetched before: tests download nothing."""
    catalog = pytest.importorskip("regard.models.catalog")
    folder = catalog.cached(name)
    if folder is None:
        pytest.skip(
            f"{name} is not fetched: python -c \"import regard; regard.models.path('{name}')\""
        )
    return folder


@pytest.fixture(scope="session")
def minilm():
    fetched("minilm")
    import regard

    return regard.models.load("minilm")


@pytest.fixture(scope="session")
def smollm2_file():
    """Its GGUF file."""
    return next(fetched("smollm2").glob("*.gguf"))
