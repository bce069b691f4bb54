"""What every model does when it looks: keep the maps and what was moved, silence heads, average."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import call
from ..attention_map import AttentionMap
from ..corpus import Averages, average
from ..predicates import Array
from ..trace import Trace, moved_by

__all__ = ["Heads", "Watch", "compared", "heads_off"]

Heads = tuple[tuple[int, int], ...]  # (layer, head) each


class Watch:
    """The maps of the layers that a text went through, and the norms of what they moved.

    The heads in `off` bring nothing to their layer's output.
    """

    def __init__(self, off: Heads = ()) -> None:
        self.off = off
        self.maps: list[AttentionMap] = []
        self.moved: list[Array] = []

    def attend(
        self,
        projection: Array,
        q: Array,
        k: Array,
        v: Array,
        *,
        causal: bool = False,
        mask: Any = None,
    ) -> Array:
        """The heads' output (H, N, HS) of the next layer, whose output projection is (D, H·HS)."""
        silent = [head for layer, head in self.off if layer == len(self.maps)]
        attended = call.look(q, k, v, causal=causal, mask=mask)
        moved = moved_by(v, projection)
        output: Any = attended.output
        output[silent] = moved[silent] = 0
        self.maps.append(attended)
        self.moved.append(moved)
        return output


def heads_off(without: Iterable[tuple[int, int]], L: int, H: int) -> Heads:
    """The heads to be switched off, each once, or an error that says which there are."""
    off = tuple(
        dict.fromkeys((operator.index(layer), operator.index(head)) for layer, head in without)
    )
    for layer, head in off:
        if not (0 <= layer < L and 0 <= head < H):
            raise ValueError(
                f"without must name heads by (layer, head), layers 0 to {L - 1} and heads "
                f"0 to {H - 1}, got {(layer, head)}"
            )
    return off


def compared(
    look: Callable[[Any, Heads, Trace | None], Trace], text: Any, off: Heads
) -> Trace | Averages:
    """A text looked at, beside itself with all heads where some are off; averages of many texts."""
    if is_several(text):
        return average(look(each, off, None) for each in text)
    plain = look(text, (), None) if off else None
    return look(text, off, plain)


def is_several(text: Any) -> bool:
    """Texts in a list, rather than one text, a conversation, or ids."""
    several = isinstance(text, Sequence) and not isinstance(text, str)
    return several and (not text or any(isinstance(each, str) for each in text))
