"""Real transformers on NumPy: where they are had, how they are read, what they compute."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .albert import Albert
from .bert import Bert
from .catalog import CATALOG, cached, fetch, place_of
from .gpt2 import GPT2
from .llama import Llama
from .loading import open_source

__all__ = ["CATALOG", "GPT2", "Albert", "Bert", "Llama", "cached", "load", "path"]

FAMILIES: dict[str, type[Bert | Llama | GPT2]] = {
    "albert": Albert, "bert": Bert, "gpt2": GPT2,
    "llama": Llama, "mistral": Llama, "qwen2": Llama, "qwen3": Llama,
}  # fmt: skip


def load(model: str | os.PathLike[str], *, widen: bool = False) -> Any:
    """A model, by its name or from where it lies.

    Parameters
    ----------
    model : str or path
        A name of the catalogue (`minilm`, `smollm2`), fetched once into the user's cache; or a
        folder in Hugging Face layout (config.json, safetensors files, tokenizer.json); or a GGUF
        file, or a folder with one; or, where `huggingface_hub` is installed, a name "owner/model"
        of its hub.
    widen : bool
        Hold the weights in float32, whatever the file has: the same numbers, in more memory. Else
        they stay as they came, 16-bit or quantised, and are widened where they are used.

    Returns
    -------
    Albert, Bert, GPT2 or Llama

    Raises
    ------
    ValueError
        If there is no such model, or a file of it is corrupt: names the file.
    ConnectionError
        If it has to be fetched and cannot be: says what else can be done.
    """
    source = open_source(place_of(model))
    source.tensors.widen = widen
    return source.settings.choice("model_type", FAMILIES)(source)


def path(name: str) -> Path:
    """The folder in the user's cache that holds a model of the catalogue, fetched if need be."""
    return fetch(name)
