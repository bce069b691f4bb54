"""Measuring a row: the answers first, then the times, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import rows
from .case import Case, difference, draw, errors, ours
from .machine import PRODUCT, Limits, product, reading
from .memory import megabytes_a_thread
from .peers import Candidate, Peer
from .rows import Floor, Row
from .turns import FULL, Pace, medians, spell

__all__ = ["OURS", "Measured", "Verdict", "measure"]

OURS = "regard"
BASELINE = "baseline"
FIRST_LOOK = 0.03  # seconds, for a variant of a peer
OTHERS = {OURS, BASELINE, rows.SGEMM, rows.READING}  # contenders that are no peers


class Verdict(NamedTuple):
    """A floor and what was measured against it; None where that could not be."""

    floor: Floor
    value: float | None

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.floor.met(self.value)


@dataclass
class Measured:
    """What is known of a row."""

    row: Row
    seconds: dict[str, float] = field(default_factory=dict)  # medians of a call
    variants: dict[str, str] = field(default_factory=dict)  # which operator stands for a peer
    tried: dict[str, dict[str, float]] = field(default_factory=dict)  # seconds, at a first look
    why_not: dict[str, str] = field(default_factory=dict)  # for contenders that have no time
    error: float = 0.0  # regard's largest difference from float64
    megabytes: float | None = None  # a thread, beyond inputs and output
    limits: Limits = field(default_factory=Limits)

    @property
    def peers(self) -> dict[str, float]:
        """How many times as long each peer takes."""
        ours = self.seconds.get(OURS)
        others = {k: t for k, t in self.seconds.items() if k not in OTHERS}
        return {name: t / ours for name, t in others.items()} if ours else {}

    @property
    def gflops(self) -> float | None:
        return self.row.operations / self.seconds[OURS] / 1e9 if OURS in self.seconds else None

    @property
    def gbps(self) -> float | None:
        """Keys and values read in a second, for a row where that is what counts."""
        if self.row.kind != "decoding" or OURS not in self.seconds:
            return None
        return self.row.bytes_of_keys_and_values / self.seconds[OURS] / 1e9

    @property
    def of_peak(self) -> float | None:
        """The share of the machine's multiply-adds, of the kind that is computed in."""
        peak = self.limits.peak.get(self.row.dtype, self.limits.peak.get("float32"))
        return self.gflops / peak if peak and self.gflops else None

    @property
    def verdicts(self) -> list[Verdict]:
        return [Verdict(floor, self._value(floor.against)) for floor in self.row.floors]

    def _value(self, against: str) -> float | None:
        t, peers = self.seconds, self.peers
        if against == rows.MEGABYTES:
            return self.megabytes
        if OURS not in t:
            return None
        if against == rows.MICROSECONDS:
            return 1e6 * t[OURS]
        if against == rows.BEST_PEER:
            return min(peers.values(), default=None)
        if against == rows.SGEMM:
            rate = PRODUCT / t[rows.SGEMM] if rows.SGEMM in t else None
            return self.row.operations / t[OURS] / rate if rate else None
        other = t.get(BASELINE if against in (rows.FASTER, rows.PER_PAIR) else against)
        if other is None:
            return None
        if against == rows.PER_PAIR and self.row.baseline:
            other *= self.row.pairs / self.row.baseline.pairs
        return other / t[OURS]


def measure(
    row: Row, peers: Sequence[Peer], *, limits: Limits | None = None, pace: Pace = FULL,
    absent: Mapping[str, str] | None = None,
) -> Measured:  # fmt: skip
    """A row, its answers checked first. A contender with a wrong answer is not timed."""
    found = Measured(row, why_not=dict(absent or {}), limits=limits or Limits())
    try:
        case = draw(row)
    except ModuleNotFoundError as error:  # ml_dtypes
        found.why_not[OURS] = f"{error.name} is not installed"
        return found
    call = ours(case)
    output = call()
    found.error = errors(case, output)
    if found.error > case.tolerance:
        found.why_not[OURS] = _wrong(found.error, "float64", case)
        return found
    choices = {} if row.kind == "scaling" else _choices(found, peers, case, output)
    peers_run = {title: choice.candidate.run for title, choice in choices.items()}
    found.seconds = medians({OURS: call, **peers_run, **_yardsticks(case)}, pace)
    if any(floor.against == rows.MEGABYTES for floor in row.floors):
        found.megabytes = megabytes_a_thread(row)
    return found


def _yardsticks(case: Case) -> dict[str, Callable[[], object]]:
    """What else runs in turn with the row: the limits and the call that it is held against."""
    row = case.row
    found: dict[str, Callable[[], object]] = {}
    if any(floor.against == rows.SGEMM for floor in row.floors):
        found[rows.SGEMM] = product()
    if row.kind == "decoding":
        found[rows.READING] = reading(case.key, case.value)
    if row.baseline:
        found[BASELINE] = ours(draw(row.baseline))
    return found


class _Choice(NamedTuple):
    """A peer's fastest variant that answers right."""

    variant: str
    candidate: Candidate
    tried: dict[str, float]  # seconds of every right one, at a first look


def _choices(
    found: Measured, peers: Sequence[Peer], case: Case, output: rows.Array
) -> dict[str, _Choice]:
    """A variant of each peer; what is known of the others goes into `found`."""
    choices: dict[str, _Choice] = {}
    for peer in peers:
        choice = _choose(peer, case, output)
        if isinstance(choice, str):
            found.why_not[peer.title] = choice
        else:
            choices[peer.title] = choice
            found.variants[peer.title] = choice.variant
            found.tried[peer.title] = choice.tried
    return choices


def _choose(peer: Peer, case: Case, output: rows.Array) -> _Choice | str:
    """Which variant stands for the peer, or why none can."""
    tried: dict[str, float] = {}
    right: dict[str, Candidate] = {}
    reasons: dict[str, None] = {}  # in order, each once
    for variant, candidate in _candidates(peer, case):
        if isinstance(candidate, str):
            reasons[candidate] = None
            continue
        try:
            far = difference(candidate.read(candidate.run()), output)
            if far <= 2 * case.tolerance:
                tried[variant] = statistics.median(spell(candidate.run, FIRST_LOOK))
                right[variant] = candidate
            else:
                reasons[_wrong(far, OURS, case)] = None
        except Exception as error:  # a peer may raise anything
            reasons[_first_line(error)] = None
    if not right:
        return "; ".join(reasons)
    best = min(tried, key=lambda variant: tried[variant])
    return _Choice(best, right[best], tried)


def _candidates(peer: Peer, case: Case) -> Iterator[tuple[str, Candidate | str]]:
    for variant in peer.variants(case):
        try:
            yield variant, peer.prepare(case, variant)
        except Exception as error:  # a peer may raise anything
            yield variant, _first_line(error)


def _wrong(far: float, than: str, case: Case) -> str:
    return f"wrong answer: {far:.1e} from {than}, where {case.tolerance:.0e} is allowed"


def _first_line(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {line[:160]}"
