"""Pictures of attention as matplotlib figures; they need `pip install 'regard[look]'`.

Each function takes bare arrays as well as an `AttentionMap` or a `Trace`, returns a
`matplotlib.figure.Figure`, and prints and shows nothing: a notebook draws what it is given, and
`figure.savefig("name.png")` writes a file. A row is a query, a column is a key.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .blocks import shapes
    from .lines import links
    from .maps import heads, heat, rollout
    from .records import statistics
    from .tiles import mask

WHERE = {
    "heads": "maps",
    "heat": "maps",
    "links": "lines",
    "mask": "tiles",
    "rollout": "maps",
    "shapes": "blocks",
    "statistics": "records",
}
__all__ = ["heads", "heat", "links", "mask", "rollout", "shapes", "statistics"]


def __getattr__(name: str) -> Any:
    """Each picture is imported when first asked for, and matplotlib with it."""
    if name not in WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{WHERE[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "pictures need matplotlib, which is not installed: pip install 'regard[look]'",
            name=error.name,
        ) from None


def __dir__() -> list[str]:
    return sorted(__all__)
