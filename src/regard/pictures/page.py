"""One HTML file that shows every head of a trace, offline: made by `Trace.page`.

Weights are stored as `blocks` says; everything else is JSON, in which no character can end the
script that holds it. The page's policy forbids it any request and any script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from .. import __version__
from ..files import written_beside
from ..trace import Trace
from .palette import DARK, LIGHT, Theme
from .sheets import Sheet, sheets_of

__all__ = ["page"]

SCRIPTS = (
    "store", "matrix", "colour", "settings", "text", "gallery", "stage", "links", "token",
    "exports", "main",
)  # fmt: skip
ABOUT = {
    "previous": "weight to the token before the query",
    "next": "weight to the token after the query",
    "first": "weight to the first token",
    "separator": "weight to special tokens other than the first",
    "diagonal": "weight to the query's own token",
    "entropy": "how spread a row is, in nats; 0 is one key alone",
    "distance": "mean distance between query and key, in tokens",
    "induction": "weight to what followed an earlier occurrence of the query's token",
}


def page(
    trace: Trace,
    path: str | PathLike[str],
    *,
    head: tuple[int, int] | None = None,
    token: int | None = None,
    window: tuple[int, int] | None = None,
    title: str | None = None,
) -> Path:
    """Write the page of a trace: see `Trace.page`."""
    if not trace.layers or not len(trace) or not trace.layers[0].weights.shape[0]:
        raise ValueError("the trace has no layer, head or token: there is nothing to show")
    if token is not None and not 0 <= token < len(trace):
        raise ValueError(f"token must be below {len(trace)}, got {token}")
    sheets = sheets_of(trace, window)
    opened = _first_head(trace, sheets) if head is None else _checked(trace, head)
    found = {
        "title": title or "What each head attends to",
        "text": trace.text,
        "layers": len(trace.layers),
        "heads": trace.layers[0].weights.shape[0],
        "tokens": len(trace),
        "without": trace.without,
        "open": opened,
        "token": -1 if token is None or len(sheets) > 1 else int(token),
        "sheets": [sheet.about() for sheet in sheets],
        "statistics": _statistics(trace),
        "themes": {"light": _colours(LIGHT), "dark": _colours(DARK)},
        "version": __version__,
    }
    place = Path(path)
    with written_beside(place) as beside, beside.open("w", encoding="utf-8", newline="\n") as out:
        out.writelines(_parts(found, sheets))
    return place


def _checked(trace: Trace, head: tuple[int, int]) -> tuple[int, int]:
    layers, heads = len(trace.layers), trace.layers[0].weights.shape[0]
    layer, which = head
    if not (0 <= layer < layers and 0 <= which < heads):
        raise ValueError(f"head must be (layer, head) below {(layers, heads)}, got {head!r}")
    return int(layer), int(which)


def _first_head(trace: Trace, sheets: list[Sheet]) -> tuple[int, int]:
    """The head of the strongest link between two tokens of the text, unless the text is long."""
    strongest = trace.strongest(1) if len(sheets) == 1 else []
    return (strongest[0].layer, strongest[0].head) if strongest else (0, 0)


def _statistics(trace: Trace) -> list[dict[str, Any]]:
    """Each statistic of the heads: its name, what it is, and a value for each head, or null."""
    records = trace.heads()
    found = []
    for name in records[0].keys() - {"layer", "head"}:
        values = [float(record[name]) for record in records]
        known = [x if math.isfinite(x) else None for x in values]
        if any(x is not None for x in known):
            found.append({"name": name, "about": ABOUT.get(name, ""), "values": known})
    return sorted(found, key=lambda statistic: [*ABOUT, statistic["name"]].index(statistic["name"]))


def _colours(theme: Theme) -> dict[str, Any]:
    return {
        name: getattr(theme, name)
        for name in ("paper", "ink", "faint", "line", "hidden", "hatch", "accent", "ramp")
    }


def _parts(found: dict[str, Any], sheets: list[Sheet]) -> Iterator[str]:
    """The file, piece by piece: a layer is encoded when it is written."""
    css = _web("page.css")
    script = "(() => {\n'use strict';\n" + "".join(_web(f"{x}.js") for x in SCRIPTS) + "})();\n"
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(css)}; "
        "base-uri 'none'; form-action 'none'"
    )
    values = {
        "policy": policy, "version": __version__, "css": css, "data": as_json(found),
        "script": script,
    }  # fmt: skip
    before, after = _web("page.html").split("{{blocks}}")
    yield _filled(before, values)
    for s, sheet in enumerate(sheets):
        for layer, block in enumerate(sheet.blocks()):
            text = base64.b64encode(block).decode("ascii")
            yield f'<script type="text/plain" id="block-{s}-{layer}">{text}</script>\n'
    yield _filled(after, values)


def _filled(template: str, values: dict[str, str]) -> str:
    """Each {{name}} replaced once; what is put in is not looked at again."""
    first, *rest = template.split("{{")
    return first + "".join(
        values[name] + after for name, _, after in (part.partition("}}") for part in rest)
    )


def as_json(found: Any) -> str:
    """JSON in which nothing ends a script or a line: <, >, & and all beyond ASCII are escaped."""
    text = json.dumps(found, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _web(name: str) -> str:
    return files(__package__).joinpath("web", name).read_text(encoding="utf-8")
