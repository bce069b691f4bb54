"""The benchmarks: rows that are well formed, answers that are checked, what is written. No timing."""

import json
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import draw

from regard.bench import case, ladder, machine, measure, memory, report, rows, turns
from regard.bench.peers import PEERS, Candidate, Peer
from regard.bench.rows import ROWS, Floor, Row

PACE = turns.Pace(rounds=1, spell=0.0, pause=0.0)
TINY = Row(2, 6, 19, 16, Hkv=2, floors=(Floor("a peer", 1e-9), Floor(rows.BEST_PEER, 1e9)))
LENGTHS = (7, 19)


class APeer(Peer):
    """Answers as the rows ask it to."""

    title = "a peer"
    package = "numpy"

    def __init__(self, spoil=lambda y: y):
        super().__init__(1)
        self.spoil = spoil

    def prepare(self, case, variant):
        return Candidate(self.run_of(case), self.spoil)

    @staticmethod
    def run_of(of):
        return case.ours(of, engine="reference")


def everything_seen(row):
    """Rows of the kinds that there are, as small as can be."""
    kinds = [
        row, replace(row, sees="causal"), replace(row, sees="mask"), replace(row, sees="bias"),
        replace(row, sees="lengths", lengths=LENGTHS), replace(row, kind="decoding", Nq=1, Nk=19),
    ]  # fmt: skip
    return [replace(each, floors=()) for each in kinds]


def test_rows_are_well_formed():
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names) == 40
    titles = {peer.title for peer in PEERS}
    known = titles | {rows.BEST_PEER, rows.SGEMM, rows.READING, rows.FASTER, rows.PER_PAIR}
    for row in ROWS:
        assert row.floors, row.name
        assert row.H % row.Hkv == 0
        assert row.dtype in case.TOLERANCE
        assert len(row.lengths) in (0, row.B)
        assert max(row.lengths, default=0) <= row.Nk
        for floor in row.floors:
            assert floor.against in known | rows.AT_MOST
            assert floor.bound > 0
            assert row.baseline or floor.against not in (rows.FASTER, rows.PER_PAIR)
            assert floor.against != rows.READING or row.kind == "decoding"


@pytest.mark.parametrize("row", [*everything_seen(TINY), Row(1, 2, 521, 8, "window")], ids=str)
def test_pairs_are_those_that_are_seen(row):
    drawn = case.draw(row)
    seen = row.seen(np.arange(row.Nq), drawn.mask)
    if seen is None:
        assert row.pairs == row.B * row.H * row.Nq * row.Nk
    elif row.sees == "mask":
        assert row.pairs == row.B * row.H * (row.Nq * row.Nk // 2)  # half of them, on average
    else:
        assert row.pairs == row.H * np.broadcast_to(seen, (row.B, *seen.shape[-2:])).sum()


def test_a_pattern_chooses_rows():
    assert rows.matching("") == ROWS
    assert [row.name for row in rows.matching("BF16*full")] == ["bf16 1x12x2048x64 full"]
    assert rows.matching("no such row") == []


@pytest.mark.parametrize("dtype", case.TOLERANCE)
def test_our_answer_is_held_against_float64(dtype):
    for row in everything_seen(replace(TINY, dtype=dtype)):
        drawn = case.draw(row)
        output = case.ours(drawn)()
        assert case.errors(drawn, output) < drawn.tolerance
        wrong = output.copy()
        wrong[0, 1, -1, 3] += 2 * drawn.tolerance
        assert case.errors(drawn, wrong) > drawn.tolerance
        wrong[1, 0, 0, 0] = np.nan
        assert case.errors(drawn, wrong) == np.inf


def test_a_row_runs_and_its_verdicts_follow():
    found = measure.measure(TINY, [APeer()], pace=PACE, absent={"another": "not installed"})
    assert set(found.seconds) == {"regard", "a peer"}
    assert found.why_not == {"another": "not installed"}
    assert 0 < found.error < 5e-5
    assert [verdict.met for verdict in found.verdicts] == [True, False]


def test_a_wrong_answer_of_a_peer_is_caught_and_not_timed():
    def nudged(y):
        return y + np.where(np.arange(y.size).reshape(y.shape) == 1000, np.float32(2e-4), 0)

    for spoil in (nudged, lambda y: y * np.nan, lambda y: y[::-1]):
        found = measure.measure(TINY, [APeer(spoil)], pace=PACE)
        assert set(found.seconds) == {"regard"}
        assert found.why_not["a peer"].startswith("wrong answer: ")
        assert [verdict.met for verdict in found.verdicts] == [None, None]


def test_a_wrong_answer_of_ours_is_caught_and_nothing_is_timed(monkeypatch):
    real = case.ours
    monkeypatch.setattr(measure, "ours", lambda of: lambda: real(of)() + np.float32(1e-3))
    found = measure.measure(TINY, [APeer()], pace=PACE)
    assert found.seconds == {}
    assert found.why_not["regard"].startswith("wrong answer: 1.0e-03 from float64")
    told = report.Report({}, machine.Limits(), ["a peer"], rows=[found], planned=1)
    assert report.cells(told, found)[1] == "–"
    assert report.cells(told, found)[-1].startswith("LOST: wrong answer")


def test_a_row_whose_dtype_is_not_there_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    found = measure.measure(replace(TINY, dtype="bfloat16"), [APeer()], pace=PACE)
    assert found.why_not == {"regard": "ml_dtypes is not installed"}
    told = report.Report({}, machine.Limits(), ["a peer"], rows=[found], planned=1)
    assert report.cells(told, found)[-1] == "ml_dtypes is not installed"


def test_a_peer_that_cannot_or_fails_says_why():
    class Cannot(APeer):
        def prepare(self, case, variant):
            return "has no such thing"

    class Fails(APeer):
        def prepare(self, case, variant):
            raise RuntimeError("no kernel\nat all")

    class FailsLate(APeer):
        @staticmethod
        def run_of(of):
            return lambda: 1 // 0

    says = [
        measure.measure(TINY, [peer()], pace=PACE).why_not["a peer"]
        for peer in (Cannot, Fails, FailsLate)
    ]
    assert says[:2] == ["has no such thing", "RuntimeError: no kernel"]
    assert says[2].startswith("ZeroDivisionError: ")


def test_the_fastest_right_variant_stands_for_a_peer():
    class Three(APeer):
        def variants(self, case):
            return ["slow", "quick", "wrong"]

        def prepare(self, of, variant):
            (y,) = [case.ours(of)()]
            slow = sum if variant == "slow" else len
            return Candidate(lambda: (slow(range(10**5)), y)[1], lambda y: y + (variant == "wrong"))

    assert measure.measure(TINY, [Three()], pace=PACE).variants == {"a peer": "quick"}


def test_memory_that_a_library_does_not_own_lives_until_all_is_timed():
    class Borrows(APeer):
        def prepare(self, of, variant):
            memory = np.zeros(3)
            alive = weakref.ref(memory)
            answer = self.run_of(of)

            def run():
                assert alive() is not None, "what the library reads was freed"
                calls.append(1)
                return answer()

            return Candidate(run, self.spoil, held=memory)

    calls = []
    found = measure.measure(TINY, [Borrows()], pace=PACE)
    assert found.why_not == {}
    assert len(calls) >= 4  # the check, a first look, a warm-up, one that is timed


@pytest.mark.slow
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.title)
@pytest.mark.filterwarnings("ignore")
def test_peers_give_our_answer_or_a_reason(peer):
    pytest.importorskip(peer.package, reason=f"{peer.title} is not installed")
    library = peer(2)
    plain = [replace(row, H=3, Hkv=3) for row in everything_seen(TINY)]
    grouped = [replace(TINY, sees="causal", floors=()), everything_seen(TINY)[-1]]
    for row in plain + grouped:
        found = measure.measure(row, [library], pace=PACE)
        assert set(found.seconds) >= {"regard", peer.title}, (row.name, found.why_not)
    for dtype in ("float16", "bfloat16", "float64"):
        found = measure.measure(replace(plain[0], dtype=dtype), [library], pace=PACE)
        why = found.why_not.get(peer.title, "")
        assert (peer.title in found.seconds) != bool(why)
        assert dtype == "float64" or "wrong answer" not in why  # some have float32 within


def test_rates_and_ratios():
    row = Row(1, 3, 1, 8, kind="decoding", Nk=500, floors=(
        Floor("PyTorch", 2), Floor(rows.READING, 0.8), Floor(rows.SGEMM, 0.1),
        Floor(rows.MICROSECONDS, 99), Floor(rows.MEGABYTES, 1), Floor("JAX", 1)))  # fmt: skip
    seconds = {"regard": 1e-4, "PyTorch": 3e-4, "OpenVINO": 2e-4, rows.READING: 5e-5, rows.SGEMM: 1}
    m = measure.Measured(row, seconds, megabytes=0.5, limits=machine.Limits({"float32": 0.96}))
    assert m.gflops == pytest.approx(4 * 3 * 500 * 8 / 1e-4 / 1e9)
    assert m.gbps == pytest.approx(2 * 3 * 500 * 8 * 4 / 1e-4 / 1e9)
    assert m.of_peak == pytest.approx(0.48 / 0.96)
    assert m.peers == pytest.approx({"PyTorch": 3, "OpenVINO": 2})
    values = [v.value for v in m.verdicts]
    assert values == pytest.approx([3, 0.5, 0.48 / (2 * 2.048**3 * 1), 100, 0.5, None])
    assert [v.met for v in m.verdicts] == [True, False, False, False, True, None]


def test_a_baseline_is_compared_by_the_call_or_by_the_pair():
    short = Row(1, 1, 100, 8)
    long = Row(
        1, 1, 200, 8, baseline=short, floors=(Floor(rows.PER_PAIR, 0.9), Floor(rows.FASTER, 15))
    )
    m = measure.Measured(long, {"regard": 4.2, "baseline": 1.0})
    assert [v.value for v in m.verdicts] == pytest.approx([4 / 4.2, 1 / 4.2])
    found = measure.measure(replace(long, B=1), [], pace=PACE)
    assert set(found.seconds) == {"regard", "baseline"}


class AClock:
    """Time that passes only where it is told to."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_slow_calls_are_made_less_often(monkeypatch):
    clock = AClock()
    monkeypatch.setattr(turns, "time", clock)
    calls = {"quick": 0, "middling": 0, "twice": 0, "long": 0}

    def function(name, seconds):
        def call():
            calls[name] += 1
            clock.sleep(seconds)

        return call

    seconds = {"quick": 0.125, "middling": 0.25, "twice": 0.375, "long": 1.5}
    pace = turns.Pace(rounds=5, spell=0.25, pause=0.5, long=1.0, slow_rounds=2)
    found = turns.medians({name: function(name, t) for name, t in seconds.items()}, pace)
    assert found == seconds
    assert calls == {"quick": 5 * (1 + 2), "middling": 1 + 5, "twice": 1 + 2, "long": 2}
    assert clock.now == 0.5 * (5 + 5 + 2 + 2) + sum(calls[n] * t for n, t in seconds.items())


@pytest.mark.skipif(not memory.PROC.joinpath("clear_refs").exists(), reason="no Linux")
def test_memory_of_a_call_is_measured_in_a_process_of_its_own():
    grown = memory.megabytes_a_thread(Row(1, 1, 2053, 16, kind="scaling"))
    assert 0 <= grown < 8


def test_limits_are_what_was_done_in_the_time():
    if not machine.native.SETS:
        pytest.skip("the native engine is absent")
    module = machine._native()
    for name in machine.native.SETS:
        wide, narrow = (module.multiply_adds(name, 7, w, 3) for w in (True, False))
        assert narrow == 2 * wide > 0
        assert wide % (2 * 7 * 3) == 0
    for name in machine.native.PAIRS:
        assert module.multiply_adds(name, 7, False, 3) == 2 * narrow  # of as wide registers
    (x,) = draw(0, (10007,), dtype=np.float32)
    reading = machine.reading(x[:9973].copy())
    reading()
    with pytest.raises(ValueError, match="no such-set"):
        module.read("such-set", x, 1)


def a_report(**options):
    absent = {"JAX": "not installed (No module named 'jax')"}
    limits = machine.Limits({"float32": 200.0}, 30.0, 150.0)
    found = measure.measure(TINY, [APeer()], limits=limits, pace=PACE, absent=absent)
    told = machine.describe({"a peer": "1.2"})
    return report.Report(told, limits, ["a peer"], absent, [found], planned=1, **options)


def test_json_has_machine_versions_date_and_every_row():
    data = json.loads(a_report(day="2026-01-02").as_json())
    assert (data["format"], data["date"], data["complete"]) == (1, "2026-01-02", True)
    assert {"cpu", "cores", "threads", "instruction_sets", "versions"} <= set(data["machine"])
    assert data["machine"]["versions"]["a peer"] == "1.2"
    assert data["limits"] == {
        "peak_gflops": {"float32": 200.0},
        "read_gbps": 30.0,
        "sgemm_gflops": 150.0,
    }
    (row,) = data["rows"]
    assert row["name"] == "f32 2x6/2x19x16 full"
    assert row["shape"] == {"B": 2, "H": 6, "Hkv": 2, "Nq": 19, "Nk": 19, "D": 16}
    assert row["ratios"]["a peer"] == pytest.approx(row["ms"]["a peer"] / row["ms"]["regard"])
    assert row["best_peer"] == "a peer"
    assert row["gflops"] == pytest.approx(4 * row["pairs"] * 16 / row["ms"]["regard"] / 1e6)
    assert [floor["met"] for floor in row["floors"]] == [True, False]
    assert row["why_not"] == data["absent"]


def test_what_was_written_is_read_again(monkeypatch):
    monkeypatch.setattr(report, "ROWS", [replace(TINY, floors=())])  # the file's own floors count
    told = a_report()
    again = report.Report.from_data(json.loads(told.as_json()))
    assert again.as_markdown() == told.as_markdown()
    assert again.complete
    cut = report.Report.from_data(json.loads(replace(told, planned=2).as_json()))
    assert not cut.complete
    with pytest.raises(ValueError, match="format must be 1, got 7"):
        report.Report.from_data(told.as_data() | {"format": 7})
    monkeypatch.setattr(report, "ROWS", [])
    with pytest.raises(ValueError, match="is no row of the grid"):
        report.Report.from_data(told.as_data())


def test_the_file_of_the_documents_is_a_whole_run_of_this_grid():
    file = Path(__file__).parent.parent / "docs/grid.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    told = report.Report.from_data(data)
    assert told.complete
    for m, row in zip(told.rows, data["rows"], strict=True):
        assert m.peers == pytest.approx(row["ratios"])
        assert [v.met for v in m.verdicts] == [floor["met"] for floor in row["floors"]]
        assert m.row.pairs == row["pairs"]


def test_markdown_has_the_table_and_every_floor():
    text = a_report().as_markdown()
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert "1 of 2 floors are met." in text
    lost, met = text.index("\nLost:\n"), text.index("\nMet:\n")
    assert lost < text.index("× best peer (at least 1e+09)", lost) < met
    assert "- JAX: not installed" in text


def test_the_plot_has_a_point_for_each_time():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (axes,) = report.plot(a_report()).axes
    (points, _) = axes.lines
    assert points.get_label() == "a peer"
    assert len(points.get_xdata()) == 1
    assert [label.get_text() for label in axes.get_yticklabels()] == ["f32 2x6/2x19x16 full"]


def test_a_failure_loses_no_row(tmp_path, monkeypatch):
    typer = pytest.importorskip("typer.testing", reason="typer is not installed")
    from regard.cli import app
    from regard.cli import bench as command

    def measured(row, *_, **__):
        if row is ROWS[1]:
            raise MemoryError("no room")
        return measure.Measured(row, {"regard": 1.0})

    monkeypatch.setattr(command.measure, "measure", measured)
    monkeypatch.setattr(command.machine, "limits", lambda pace: machine.Limits())
    place = tmp_path / "a.json"
    result = typer.CliRunner().invoke(app, ["bench", "--peers", "none", "--json", str(place)])
    assert isinstance(result.exception, MemoryError)
    assert [row["name"] for row in json.loads(place.read_text())["rows"]] == [ROWS[0].name]


def test_the_ladder_has_a_line_for_each_shape(capsys, monkeypatch):
    monkeypatch.setattr(ladder, "SHAPES", [(1, 2, 37, 5)])
    monkeypatch.setattr(ladder, "medians", lambda functions: dict.fromkeys(functions, 1e-3))
    ladder.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| (1, 2, 37, 5) | full | 1.0 |")
