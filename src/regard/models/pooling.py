"""How a folder of the sentence-transformers layout makes one vector of a text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .settings import Settings, read_json

__all__ = ["Pooling", "read_pooling"]

MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}


@dataclass(frozen=True)
class Pooling:
    """How a folder says that token vectors become one vector of a text."""

    mode: str  # "mean", "cls" or "max"
    normalize: bool
    length: int  # tokens, special ones included, after which `embed` cuts


def read_pooling(folder: Path, positions: int, special: int) -> Pooling:
    """What modules.json and the folders that it names say; nothing is assumed.

    `special` is the number of tokens that the tokenizer adds to a text.
    """
    file = folder / "modules.json"
    modules = read_json(file)
    if not isinstance(modules, list) or not all(isinstance(m, dict) for m in modules):
        raise ValueError(f"{file} must hold a list of objects, got {modules!s:.80}")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ValueError(
            f"{file}: modules must be Transformer, Pooling and perhaps Normalize, "
            f"got {', '.join(kinds)}"
        )
    mode = _pooling_mode(folder / str(modules[1].get("path", "1_Pooling")) / "config.json")
    stated = folder / "sentence_bert_config.json"
    length = positions
    if stated.is_file() and Settings(stated).has("max_seq_length"):
        length = min(Settings(stated).size("max_seq_length"), positions)
    if length <= special:
        raise ValueError(f"{stated}: max_seq_length must be greater than {special}, got {length}")
    return Pooling(mode, len(kinds) == 3, length)


def _pooling_mode(file: Path) -> str:
    modes = read_json(file)
    if not isinstance(modes, dict):
        raise ValueError(f"{file} must hold one JSON object, got {modes!s:.80}")
    chosen = [name for name in modes if name.startswith("pooling_mode") and modes[name]]
    if len(chosen) != 1 or chosen[0] not in MODES:
        raise ValueError(f"{file}: one of {', '.join(MODES)} must be true, got {chosen}")
    return MODES[chosen[0]]
