"""`regard bench` as a command: what it prints, writes and leaves."""

import json
import signal
import subprocess
import sys

import pytest


def bench(*arguments):
    command = [sys.executable, "-m", "regard", "bench", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


def test_a_table_in_a_pipe_progress_on_standard_error(tmp_path):
    pytest.importorskip("typer", reason="the command line's packages are not installed")
    files = [tmp_path / "a.json", tmp_path / "a.md"]
    result = bench("--rows", "1x1x16x16*", "--peers", "none", "--quick", "--json", files[0],
                   "--markdown", files[1])  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].split()[:3] == ["row", "regard,", "ms"]
    assert lines[1].startswith("f32 1x1x16x16 full call  ")
    assert "PyTorch: not asked for" in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr.startswith("1/1 f32 1x1x16x16 full call")
    assert json.loads(files[0].read_text())["complete"] is True
    assert files[1].read_text().startswith("## ")


def test_rows_are_listed_and_mistakes_named():
    pytest.importorskip("typer", reason="the command line's packages are not installed")
    listed = bench("--list", "--rows", "decoding").stdout.splitlines()
    assert len(listed) == 8
    assert "at least 0.8" in listed[0]
    for arguments, says in (
        (("--rows", "nonsense"), "no row's name holds 'nonsense'"),
        (("--peers", "pytorch,numpi"), "no peer is called numpi"),
        (("--json", "/no/such/folder/x"), "output must be a file"),
    ):
        result = bench(*arguments)
        assert (result.returncode, result.stdout) == (1, "")
        assert says in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_ctrl_c_leaves_what_was_measured(tmp_path):
    pytest.importorskip("typer", reason="the command line's packages are not installed")
    command = [sys.executable, "-m", "regard", "bench", "--peers", "none", "--quick", "--json",
               str(tmp_path / "a.json"), "--rows", "x32*"]  # fmt: skip
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, encoding="utf-8") as process:
        assert process.stderr.readline().startswith("1/")
        process.send_signal(signal.SIGINT)
        output, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    data = json.loads((tmp_path / "a.json").read_text())
    assert data["complete"] is False
    assert len(data["rows"]) >= 1
    assert data["rows"][0]["name"] in output
