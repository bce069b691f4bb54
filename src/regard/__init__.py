"""Exact attention on NumPy arrays, in linear memory, with the weights of any call on demand."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import biases, masks, nn, reference
from .attention_map import AttentionMap
from .cache import KVCache
from .call import Explanation, attention, explain, look
from .rotary import rotary
from .threads import get_num_threads, set_num_threads

if TYPE_CHECKING:
    from . import lab, models, pictures
    from .trace import Trace

__version__ = "0.1.0"

__all__ = [
    "AttentionMap",
    "Explanation",
    "KVCache",
    "Trace",
    "__version__",
    "attention",
    "biases",
    "explain",
    "get_num_threads",
    "lab",
    "look",
    "masks",
    "models",
    "nn",
    "pictures",
    "reference",
    "rotary",
    "set_num_threads",
]


def __getattr__(name: str) -> Any:
    """`lab`, `models`, `pictures` and `Trace` are imported when first asked for."""
    if name in ("lab", "models", "pictures"):
        return import_module(f".{name}", __name__)
    if name == "Trace":
        return import_module(".trace", __name__).Trace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
