"""Real transformers on NumPy: where they are had, how they are read, what they compute."""

from __future__ import annotations

import os
from pathlib import Path

from .bert import Bert
from .catalog import CATALOG, cached, fetch, place_of
from .loading import open_source

__all__ = ["CATALOG", "Bert", "cached", "load", "path"]

FAMILIES = {"bert": Bert}


def load(model: str | os.PathLike[str]) -> Bert:
    """A model, by its name or from where it lies.

    Parameters
    ----------
    model : str or path
        A name of the catalogue (`minilm`, `smollm2`), fetched once into the user's cache; or a
        folder in Hugging Face layout (config.json, safetensors files, tokenizer.json); or a GGUF
        file, or a folder with one; or, where `huggingface_hub` is installed, a name "owner/model"
        of its hub.

    Returns
    -------
    Bert

    Raises
    ------
    ValueError
        If there is no such model, or a file of it is corrupt: names the file.
    ConnectionError
        If it has to be fetched and cannot be: says what else can be done.
    """
    source = open_source(place_of(model))
    return source.settings.choice("model_type", FAMILIES)(source)


def path(name: str) -> Path:
    """The folder in the user's cache that holds a model of the catalogue, fetched if need be."""
    return fetch(name)
