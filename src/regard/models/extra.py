"""Packages of the `models` extra, imported when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def needed(package: str) -> Any:
    """The package, or an error that says what to install."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"models need {package}, which is not installed: pip install 'regard[models]'",
            name=error.name,
        ) from None
