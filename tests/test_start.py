"""The README's and the start page's commands, as a stranger gives them, and what they show."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import regard
from conftest import fetched

pytest.importorskip("typer", reason="the command line's packages are not installed")

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/start.md")
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page):
    """(language, text) of each block of a page, in order."""
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def commands():
    """Each command of regard that stands in a block of its own, and the block after it."""
    for page in PAGES:
        found = blocks(page)
        for (kind, text), after in zip(found, [*found[1:], ("", "")], strict=True):
            for line in text.splitlines() if not kind else []:
                command = line.rpartition("&& ")[2]
                if command.startswith("regard "):
                    yield page, command, after[1] if not after[0] else ""


def shell(command, folder):
    """What a command prints, in a folder, found where this Python has its programs."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(command, shell=True, cwd=folder, env={**os.environ, "PATH": path},
                          capture_output=True, text=True, encoding="utf-8", check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


COMMANDS = list(commands())


def test_the_pages_have_commands():
    assert {page for page, *_ in COMMANDS} == set(PAGES)


@pytest.mark.parametrize(("page", "command", "shown"), COMMANDS)
def test_a_command_prints_what_its_page_shows(page, command, shown, tmp_path):
    fetched("minilm")
    printed = [line.rstrip() for line in shell(command, tmp_path).splitlines()]
    shown = [line.rstrip() for line in shown.splitlines() if "weight" in shown]
    assert printed[: len(shown)] == shown
    assert printed
    for name in re.findall(r"-o (\S+\.html)", command):
        assert "<html" in (tmp_path / name).read_text(encoding="utf-8")


def test_what_is_said_to_be_installed_can_be():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = [
        re.findall(r'pip install (?:-e )?"\.\[([\w,]+)\]"', file.read_text()) for file in files
    ]
    wanted = {extra for found in named for extras in found for extra in extras.split(",")}
    assert {"look", "test", "docs"} <= wanted <= set(extras["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES)
def test_every_call_of_regard_in_the_text_is_understood(page):
    """`regard NAME --option` in a sentence: the command and its options are there."""
    from typer.main import get_command

    from regard.cli import app

    known = get_command(app).commands
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, rest in re.findall(r"`regard (\w+)([^`]*)`", text):
        options = {option for p in known[name].params for option in p.opts} | {"--help"}
        assert set(re.findall(r"(?<!\S)-{1,2}\w[\w-]*", rest)) <= options, f"{name}{rest}"


def test_the_cells_of_the_start_page_run(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    cells = [text for kind, text in blocks("docs/start.md") if kind == "{code-cell}"]
    assert len(cells) >= 6
    names: dict = {}
    for cell in cells:
        for command in re.findall(r"^!(.*)$", cell, re.MULTILINE):
            assert shell(command, tmp_path).splitlines()[0].split() == [
                "regard",
                regard.__version__,
            ]
        exec(re.sub(r"^[!%].*$", "", cell, flags=re.MULTILINE), names)
    assert names["output"].shape == (6, 8)
    if regard.models.cached("minilm"):
        assert (names["link"].query_token, names["link"].key_token) == ("its", "law")


class Magic:
    """IPython, of which the first cell of a notebook needs one thing."""

    def __init__(self):
        self.said = []

    def run_line_magic(self, *words):
        self.said.append(words)


@pytest.mark.parametrize("name", ["exercises", "solutions"])
def test_a_notebook_installs_from_the_project_around_it(name, monkeypatch, tmp_path):
    for package in ("IPython", "sphinx_gallery", "nbformat"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from IPython.core.inputtransformer2 import TransformerManager

    from_conf: dict = {"__file__": str(ROOT / "docs/conf.py")}
    exec((ROOT / "docs/conf.py").read_text(encoding="utf-8"), from_conf)
    cells = [cell for cell in from_conf["notebook"](name).cells if cell.cell_type == "code"]
    first = TransformerManager().transform_cell(cells[0].source)
    shell = Magic()
    names = {"get_ipython": lambda: shell}
    exec(first, names)  # installed: nothing to do
    assert shell.said == []
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: name != "regard" and find_spec(name)
    )
    monkeypatch.chdir(ROOT / "docs/teachers")
    exec(first, names)
    assert shell.said == [("pip", 'install -q "{folder}"')]
    assert names["folder"] == ROOT
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="set PROJECT to the project's folder"):
        exec(first, names)
    for cell in cells[1:]:  # the rest is plain Python
        exec(cell.source, names)
