"""Colours of the pictures, in light and dark: NumPy alone, so that notebooks need no more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..predicates import Array

__all__ = ["DARK", "LIGHT", "Theme", "colours", "theme_of"]


@dataclass(frozen=True)
class Theme:
    """Colours as "#rrggbb"; `ramp` goes from weight 0 to the largest.

    The ramps take equal steps in OKLab (Ottosson, "A perceptual color space for image
    processing", 2020) with lightness going one way: who sees no hue still reads them.
    """

    paper: str
    ink: str
    faint: str  # what is said beside the picture
    line: str  # frames
    hidden: str  # a pair that the query does not see
    hatch: str  # and the lines over it
    strange: str  # a weight that is not finite
    accent: str
    ramp: tuple[str, ...]


LIGHT = Theme(
    paper="#ffffff", ink="#1c2026", faint="#5b6370", line="#b9bfc8", hidden="#e2e4e8",
    hatch="#b4bac4", strange="#c8322d", accent="#1d76a4",
    ramp=("#fbfbf2", "#cfe3c6", "#91cfb3", "#5cb4ae", "#3195ab", "#1d76a4", "#2a5396", "#2a3475",
          "#221851"),
)  # fmt: skip
DARK = Theme(
    paper="#0f1014", ink="#e8eaed", faint="#a2a9b4", line="#4b515c", hidden="#343840",
    hatch="#565c68", strange="#ff7a6b", accent="#32aeae",
    ramp=("#181920", "#252e4e", "#274680", "#226997", "#268ca9", "#32aeae", "#66cca9", "#b0e3a4",
          "#f3f6af"),
)  # fmt: skip


def theme_of(dark: bool) -> Theme:
    return DARK if dark else LIGHT


def colours(theme: Theme, n: int) -> Array:
    """The ramp in n steps: (n, 3) uint8."""
    stops = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in theme.ramp])
    places = np.linspace(0, len(stops) - 1, n)
    steps = [np.interp(places, np.arange(len(stops)), stop) for stop in stops.T]
    return np.stack(steps, axis=1).round().astype(np.uint8)
