"""How results show themselves: text, HTML, one page, the command."""

import re
import signal
import subprocess
import sys

import pytest

pytest.importorskip("typer", reason="the command line's packages are not installed")
pytest.importorskip("matplotlib", reason="figures need matplotlib")

from typer.testing import CliRunner

from regard import cli, lab
from regard.lab import drawing, report
from regard.lab.result import Check, Result, Table, Verdict, show


def made(*held, missing=""):
    """A result with so many checks."""
    return Result(
        name="made", question="Is 1 < 2 & 2 > 1?", table=Table(("n", "text"), [(1234, "<b>")]),
        verdict=Verdict(tuple(Check(f"check {i}", "<seen>", h) for i, h in enumerate(held)), missing),
        notes=("a note",), exercise="Why?", answer="Because.",
        draw=lambda: drawing.panels(["a panel"])[0],
    )  # fmt: skip


def test_a_verdict_holds_only_where_all_was_run_and_all_holds():
    assert made(True, True).verdict
    assert not made(True, False).verdict
    assert not made().verdict
    assert not made(True, missing="no model").verdict
    words = [
        made(*h, missing=m).verdict.word for h, m in (((True,), ""), ((False,), "x"), ((), "x"))
    ]
    assert words == ["holds", "fails", "not run"]


def test_counting_keeps_those_not_run_apart():
    said = report.counted([made(True), made(False), made(True, missing="no model")])
    assert said == (
        "1 of 3 experiments hold; fails: made; not run, or not all of it: made (no model)"
    )


def test_text_has_every_part():
    text = str(made(True, False))
    for part in ("made: Is 1", "1,234", "fails; 1 of 2", "holds  check 0", "FAILS  check 1",
                 "Note: a note", "Exercise: Why?", "Answer: Because."):  # fmt: skip
        assert part in text


def test_an_experiment_without_its_model_says_how_it_can_be_run():
    result = lab.result.not_run("made", "Why?", ["minilm", "smollm2"])
    assert result.verdict.word == "not run"
    assert "regard.models.path('minilm'); regard.models.path('smollm2')" in str(result)
    assert "\n\n\n" not in str(result)


def test_html_is_escaped_and_holds_its_figure():
    html = made(True)._repr_html_()
    assert "&lt;b&gt;" in html
    assert "&lt;seen&gt;" in html
    assert "Is 1 &lt; 2 &amp; 2 &gt; 1?" in html
    assert html.count("<svg") == 1
    assert "currentColor" in html
    assert drawing.INK not in html


def test_numbers_are_shown_short():
    assert [show(x) for x in (12345, 0.12345, 1e-9, "1.50", True)] == [
        "12,345", "0.123", "1e-09", "1.50", "yes",
    ]  # fmt: skip


def test_the_page_needs_no_network():
    results = [lab.shapes.run(), lab.causality.run(sizes=(5,))]
    page = report.page(results, seed=0)
    assert page.count("<svg") == 2
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)
    assert "@import" not in page
    assert "def by_sums" in page


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["lab", *map(str, arguments)])


def test_the_command_lists_all():
    result = invoke()
    assert result.exit_code == 0
    for name in lab.EXPERIMENTS:
        assert name in result.stdout


def test_the_command_runs_one_with_its_knobs():
    result = invoke("kv_cache", "--sizes", "3,2", "--seed", 5)
    assert result.exit_code == 0
    assert result.stdout.strip() == str(lab.kv_cache.run(seed=5, sizes=(2, 3)))


def test_the_command_writes_all_into_one_page(monkeypatch, tmp_path):
    monkeypatch.setattr(cli.lab, "EXPERIMENTS", ("shapes", "causality"))
    result = invoke("all", "-o", tmp_path / "report")
    assert result.exit_code == 0
    assert "2 of 2 experiments hold" in result.stdout
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert page.count("<section") == 2
    assert list((tmp_path / "report").iterdir()) == [tmp_path / "report" / "index.html"]


def test_the_command_says_how_what_was_not_run_can_be(monkeypatch):
    monkeypatch.setattr(cli.lab, "EXPERIMENTS", ("shapes", "sinks"))
    absent = lab.result.not_run("sinks", "How?", ["smollm2"])
    monkeypatch.setattr(lab.sinks, "run", lambda seed: absent)
    result = invoke("all")
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-2:]
    assert last[0].endswith("not run, or not all of it: sinks (not at hand: smollm2)")
    assert last[1] == f"sinks: {absent.answer}"


def test_a_verdict_that_fails_is_an_exit_code(monkeypatch):
    monkeypatch.setattr(lab.shapes, "run", lambda seed: made(False))
    assert invoke("shapes").exit_code == 1
    monkeypatch.setattr(lab.shapes, "run", lambda seed: made(True, missing="no model"))
    assert invoke("shapes").exit_code == 0


@pytest.mark.parametrize("arguments", [("alchemy",), ("scaling", "--sizes", "a"),
                                       ("scaling", "--sizes", "0,4"), ("all", "--sizes", "4"),
                                       ("shapes", "-o", "/no/such/folder")])  # fmt: skip
def test_mistakes_are_refused_before_any_work(arguments, monkeypatch):
    monkeypatch.setattr(cli.lab, "_run", None)  # not callable: reaching it is another error
    result = invoke(*arguments)
    assert result.exit_code
    assert isinstance(result.exception, (ValueError, SystemExit))


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_half_written(tmp_path):
    command = [sys.executable, "-m", "regard", "lab", "all", "-o", str(tmp_path / "report")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        process.stderr.readline()  # the first experiment is done
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode not in (0, None)
    assert "Traceback" not in said
    assert list((tmp_path / "report").iterdir()) == []
