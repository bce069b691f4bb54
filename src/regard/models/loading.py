"""A folder in Hugging Face layout, read: its settings, tensors, tokenizer, and how it pools."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..predicates import Array
from .extra import needed

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from .bert import Bert

__all__ = ["Pooling", "Settings", "Tensors", "load_folder", "read_pooling", "read_tokenizer"]

T = TypeVar("T")


def load_folder(folder: Path) -> Bert:
    """The model in a folder; nothing is kept of one that cannot be read whole."""
    from .bert import Bert

    settings = Settings(folder / "config.json")
    family = settings.choice("model_type", {"bert": Bert})
    return family(folder, settings)


class Settings:
    """config.json, each setting checked as it is taken; errors name the file and the setting."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._config = read_json(file)
        if not isinstance(self._config, dict):
            raise ValueError(f"{file} must hold one JSON object, got {type(self._config).__name__}")

    def size(self, name: str, divides: int | None = None) -> int:
        """An int of 1 or more, which divides another where that is given."""
        n = self._take(name)
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise ValueError(f"{self.file}: {name} must be an int of 1 or more, got {n!r}")
        if divides is not None and divides % n:
            raise ValueError(f"{self.file}: {name} must divide {divides}, got {n}")
        return n

    def number(self, name: str, default: float) -> float:
        x = self._take(name, default)
        if not isinstance(x, (int, float)) or isinstance(x, bool) or not 0 <= x < float("inf"):
            raise ValueError(f"{self.file}: {name} must be a number of 0 or more, got {x!r}")
        return float(x)

    def choice(self, name: str, among: dict[str, T], default: str | None = None) -> T:
        """What stands in `among` under the setting."""
        chosen = self._take(name, default)
        if not isinstance(chosen, str) or chosen not in among:
            raise ValueError(f"{self.file}: {name} must be {' or '.join(among)}, got {chosen!r}")
        return among[chosen]

    def has(self, name: str) -> bool:
        return self._config.get(name) is not None

    def _take(self, name: str, default: Any = None) -> Any:
        if self._config.get(name, default) is None:
            raise ValueError(f"{self.file}: {name} is missing")
        return self._config.get(name, default)


def read_json(file: Path) -> Any:
    """A JSON file, or an error that names it."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{file} is missing: a model's folder must have it") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{file} could not be read: {error}") from error


class Tensors:
    """The tensors of a safetensors file, checked as they are taken.

    Every error names the file and the tensor.
    """

    def __init__(self, file: Path) -> None:
        needed("safetensors")
        from safetensors import SafetensorError, safe_open

        self.file = file
        self._prefix = ""
        if not file.is_file():
            raise ValueError(f"{file} is missing: weights are read from safetensors files alone")
        try:
            self._open: Any = safe_open(file, framework="numpy")
            self.names = set(self._open.keys())  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is corrupt or cut short: {error}") from error

    def below(self, known: str) -> Tensors:
        """The same, for names that all stand below a prefix, as that of one known name does."""
        found = [name for name in self.names if name == known or name.endswith(f".{known}")]
        self._prefix = min(found, key=len).removesuffix(known) if found else ""
        return self

    def take(self, name: str, shape: tuple[int, ...]) -> Array:
        """One tensor, in float32."""
        name = self._prefix + name
        if name not in self.names:  # older files have the norms' names of TensorFlow
            older = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            name = older.replace("LayerNorm.bias", "LayerNorm.beta")
        if name not in self.names:
            raise ValueError(f"{self.file}: tensor {name} is missing")
        tensor = self._open.get_tensor(name)
        if tensor.shape != shape:
            raise ValueError(f"{self.file}: tensor {name} must be {shape}, got {tensor.shape}")
        if tensor.dtype.name not in ("float16", "bfloat16", "float32"):
            raise ValueError(f"{self.file}: tensor {name} must hold floats, got {tensor.dtype}")
        return tensor.astype(np.float32, copy=False)


def read_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer, with its own cutting and padding switched off."""
    Tokenizer = needed("tokenizers").Tokenizer
    if not file.is_file():
        raise ValueError(f"{file} is missing: a model's folder must have it")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{file} could not be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


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
