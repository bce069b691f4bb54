"""Real transformers on NumPy: where they are had, how they are read, what they compute."""

from __future__ import annotations

import os
from pathlib import Path

from .bert import Bert
from .catalog import CATALOG, cached, fetch, folder_of
from .loading import load_folder

__all__ = ["CATALOG", "Bert", "cached", "load", "path"]


def load(model: str | os.PathLike[str]) -> Bert:
    """A model, by its name or from a folder.

    Parameters
    ----------
    model : str or path
        A name of the catalogue (`minilm`), fetched once into the user's cache; or a folder in
        Hugging Face layout (config.json, model.safetensors, tokenizer.json); or, where
        `huggingface_hub` is installed, a name "owner/model" of its hub.

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
    return load_folder(folder_of(model))


def path(name: str) -> Path:
    """The folder in the user's cache that holds a model of the catalogue, fetched if need be."""
    return fetch(name)
