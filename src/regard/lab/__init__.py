"""Twelve experiments: each claim about attention shown by running it.

An experiment is a module with a `run(seed=0, sizes=...)` that gives a `Result`: a question, a
table, a figure, a verdict that is computed and can fail, and an exercise with its answer.

>>> from regard import lab
>>> result = lab.shapes.run(seed=0)
>>> bool(result.verdict)
True
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .result import Check, Result, Table, Verdict

__all__ = ["EXPERIMENTS", "Check", "Result", "Table", "Verdict", "experiment"]

EXPERIMENTS = (
    "first-run", "scaling", "overflow", "mask-order", "heads", "shapes", "causality", "cost",
    "tiling", "kv-cache", "coreference", "sinks",
)  # fmt: skip


def experiment(name: str) -> Any:
    """The module of an experiment, by its name with hyphens or underscores."""
    if name.replace("_", "-") not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}")
    return import_module(f".{name.replace('-', '_')}", __name__)


def __getattr__(name: str) -> Any:
    """`lab.scaling` and its like are imported when first asked for."""
    if name.replace("_", "-") in EXPERIMENTS:
        return experiment(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name.replace("-", "_") for name in EXPERIMENTS)])
