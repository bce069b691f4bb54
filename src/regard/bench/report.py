"""What was measured, as data, as Markdown, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from ..pictures.palette import LIGHT
from .machine import OWN_VERSIONS, Limits
from .measure import OURS, Measured, Verdict
from .rows import AT_MOST, ROWS, Floor

__all__ = ["Report", "cells", "heads", "plot", "reasons", "says"]

FORMAT = 1  # of the JSON
STYLE: Any = dict.fromkeys(
    ["axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], LIGHT.ink
)


@dataclass
class Report:
    """A run: the machine, its limits, and the rows so far."""

    machine: dict[str, Any]
    limits: Limits
    peers: list[str]  # titles, installed ones first
    absent: dict[str, str] = field(default_factory=dict)
    rows: list[Measured] = field(default_factory=list)
    planned: int = 0
    day: str = field(default_factory=lambda: date.today().isoformat())

    @property
    def complete(self) -> bool:
        return len(self.rows) == self.planned

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Report:
        """The report of a run that `as_data` told; its rows are still in the grid."""
        if data.get("format") != FORMAT:
            raise ValueError(f"format must be {FORMAT}, got {data.get('format')}")
        told = data["limits"]
        limits = Limits(told["peak_gflops"], told["read_gbps"], told["sgemm_gflops"])
        return cls(
            machine=data["machine"],
            limits=limits,
            peers=[name for name in data["machine"]["versions"] if name not in OWN_VERSIONS],
            absent=data["absent"],
            rows=[_row_from_data(row, limits) for row in data["rows"]],
            planned=len(data["rows"]) + (not data["complete"]),
            day=data["date"],
        )

    def as_data(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {
            "format": FORMAT,
            "date": self.day,
            "complete": self.complete,
            "machine": self.machine,
            "limits": {"peak_gflops": self.limits.peak, "read_gbps": self.limits.read,
                       "sgemm_gflops": self.limits.sgemm},
            "absent": self.absent,
            "rows": [_row_as_data(m) for m in self.rows],
        }  # fmt: skip

    def as_json(self) -> str:
        return json.dumps(self.as_data(), indent=1, ensure_ascii=False) + "\n"

    def as_markdown(self) -> str:
        """A section for a document: machine, method, table, floors."""
        lines = ["## The grid", "", *_about(self), ""]
        lines += [_line(heads(self)), _line(["---"] * len(heads(self)))]
        lines += [_line(cells(self, m)) for m in self.rows]
        return "\n".join([*lines, "", *_floors(self), "", *_reasons(self)]).rstrip() + "\n"


def heads(report: Report) -> list[str]:
    """The names of the columns."""
    return ["row", "regard, ms", "rate", "of peak", *(f"{p}, ms (×)" for p in report.peers),
            "best peer", "floors"]  # fmt: skip


def cells(report: Report, m: Measured) -> list[str]:
    """One line of the table; a peer's time, and how many times regard's that is."""
    ours = m.seconds.get(OURS)
    rate = f"{m.gbps:.1f} GB/s" if m.gbps else f"{m.gflops:.0f} GFLOP/s" if m.gflops else "–"
    best = min(m.peers.values(), default=None)
    return [
        m.row.name,
        _ms(ours) if ours else "–",
        rate,
        f"{m.of_peak:.0%}" if m.of_peak and not m.gbps else "–",
        *(_peer_cell(m, peer) for peer in report.peers),
        f"{best:.2f} ×" if best else "–",
        _judged(m),
    ]


def _ms(seconds: float) -> str:
    digits = 0 if seconds >= 0.1 else 1 if seconds >= 0.01 else 3 if seconds >= 1e-4 else 4
    return f"{1e3 * seconds:.{digits}f}"


def _peer_cell(m: Measured, peer: str) -> str:
    return f"{_ms(m.seconds[peer])} ({m.peers[peer]:.2f})" if peer in m.peers else "–"


def _judged(m: Measured) -> str:
    """In short: what is lost, else how many floors are met."""
    if OURS in m.why_not:
        return ("LOST: " if m.error else "") + m.why_not[OURS]
    lost = [v for v in m.verdicts if v.met is False]
    if lost:
        return "LOST: " + ", ".join(map(says, lost))
    unknown = sum(v.met is None for v in m.verdicts)
    met = len(m.verdicts) - unknown
    return f"{met} met" + (f", {unknown} not measured" if unknown else "") if m.verdicts else ""


def says(verdict: Verdict) -> str:
    """A floor in words: what was measured, against what, and the bound.

    >>> from .rows import Floor
    >>> says(Verdict(Floor("PyTorch", 1.2), 1.31))
    '1.31 × PyTorch (at least 1.2)'
    """
    floor, value = verdict
    got = "?" if value is None else f"{value:.2f}"
    if floor.against in AT_MOST:
        return f"{got} {floor.against} (at most {floor.bound:g})"
    return f"{got} × {floor.against} (at least {floor.bound:g})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _about(report: Report) -> list[str]:
    machine, limits = report.machine, report.limits
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items())
    sets = ", ".join(machine["instruction_sets"]) or "no native engine"
    peak = ", ".join(f"{rate:.0f} GFLOP/s in {dtype}" for dtype, rate in limits.peak.items())
    return [
        f"{machine['cpu']}, {machine['threads']} threads of {machine['cores']} cores "
        f"({machine['system']}; {sets}), {report.day}. {versions}.",
        "",
        f"Limits measured in the same run: multiply-adds {peak or 'not measured'}; reading "
        f"{limits.read or 0:.1f} GB/s; NumPy's product of two 2048 × 2048 matrices "
        f"{limits.sgemm or 0:.0f} GFLOP/s.",
        "",
        "Answers are checked first, regard's against float64 and each peer's against regard's. "
        "Then all take turns with the same number of threads: a pause of 50 ms, a call to warm "
        "up, calls for a fifth of a second, five rounds (three for the slow), "
        "medians. GFLOP/s count 4·D for each query-key pair that is seen, GB/s the keys and "
        "values. A window is held against full causal, a ragged batch against the same without "
        "padding, a long sequence against one of 2048.",
    ]


def _floors(report: Report) -> list[str]:
    """The floors by what became of them, a line a row."""
    verdicts = [v for m in report.rows for v in m.verdicts]
    lines = [f"{sum(v.met is True for v in verdicts)} of {len(verdicts)} floors are met."]
    for title, state in (("Lost:", False), ("Not measured:", None), ("Met:", True)):
        of_state = [(m, [v for v in m.verdicts if v.met is state]) for m in report.rows]
        found = [f"- {m.row.name}: {'; '.join(map(says, some))}" for m, some in of_state if some]
        if found:
            lines += ["", title, "", *found]
    return lines


def _reasons(report: Report) -> list[str]:
    found = reasons(report)
    return ["Without a time:", "", *(f"- {line}" for line in found)] if found else []


def reasons(report: Report) -> list[str]:
    """Why a contender has no time: once for all rows, where it is the same."""
    rows: dict[tuple[str, str], list[str]] = {}
    for m in report.rows:
        for who, why in m.why_not.items():
            if who not in report.absent:
                rows.setdefault((who, why), []).append(m.row.name)
    lines = [f"{who}: {why}" for who, why in report.absent.items()]
    return lines + [f"{who}: {why} ({', '.join(some)})" for (who, why), some in rows.items()]


def _row_as_data(m: Measured) -> dict[str, Any]:
    row = m.row
    return {
        "name": row.name,
        "shape": {name: getattr(row, name) for name in ("B", "H", "Hkv", "Nq", "Nk", "D")},
        "dtype": row.dtype, "kind": row.kind, "sees": row.sees, "pairs": row.pairs,
        "error": m.error,
        "ms": {name: 1e3 * t for name, t in m.seconds.items()},
        "variants": {name: v for name, v in m.variants.items() if v},
        "tried_ms": {name: {v: 1e3 * t for v, t in tried.items()}
                     for name, tried in m.tried.items() if len(tried) > 1},
        "why_not": m.why_not,
        "gflops": m.gflops, "gbps": m.gbps, "of_peak": m.of_peak,
        "megabytes_a_thread": m.megabytes,
        "ratios": m.peers, "best_peer": min(m.peers, key=lambda p: m.peers[p], default=None),
        "floors": [
            {"against": v.floor.against, "bound": v.floor.bound,
             "at_most": v.floor.against in AT_MOST, "value": v.value, "met": v.met}
            for v in m.verdicts
        ],
    }  # fmt: skip


def _row_from_data(data: dict[str, Any], limits: Limits) -> Measured:
    grid = {row.name: row for row in ROWS}
    if data["name"] not in grid:
        raise ValueError(f"{data['name']!r} is no row of the grid")
    floors = tuple(Floor(floor["against"], floor["bound"]) for floor in data["floors"])
    return Measured(
        row=replace(grid[data["name"]], floors=floors),
        seconds={name: ms / 1e3 for name, ms in data["ms"].items()},
        variants=data["variants"],
        tried={name: {v: ms / 1e3 for v, ms in tried.items()}
               for name, tried in data["tried_ms"].items()},
        why_not=data["why_not"], error=data["error"], megabytes=data["megabytes_a_thread"],
        limits=limits,
    )  # fmt: skip


def plot(report: Report) -> Any:
    """A matplotlib figure: how many times regard's time each peer takes; 1 is a draw."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    rows = [m for m in report.rows if m.peers]
    with rc_context(STYLE):
        figure = Figure(figsize=(9, 1.3 + 0.22 * len(rows)), layout="constrained")
        axes = figure.add_subplot(xscale="log", ylim=(len(rows) - 0.4, -0.6))
    for peer, marker in zip(report.peers, "osD^vP", strict=False):
        found = [(m.peers[peer], i) for i, m in enumerate(rows) if peer in m.peers]
        axes.plot([x for x, _ in found], [i for _, i in found], marker, label=peer, alpha=0.8)
    least = 0.9 * min((x for m in rows for x in m.peers.values()), default=0.5)
    axes.set_xlim(left=min(least, 0.9))
    axes.axvspan(min(least, 0.9), 1, color="red", alpha=0.08, zorder=0)
    axes.axvline(1, color=LIGHT.ink, linewidth=1)
    axes.xaxis.set_major_locator(LogLocator(10, (1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g} ×")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(rows)), [m.row.name for m in rows])
    axes.grid(alpha=0.3)
    axes.set_xlabel("time of the peer / time of regard; in the red, regard is slower")
    figure.legend(loc="outside upper right", ncols=4, labelcolor=LIGHT.ink, frameon=False)
    return figure
