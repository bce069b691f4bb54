"""The house in order: who imports whom, the public names, the size of files, what documents show."""

import ast
import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from helpers import run_python

import regard

ROOT = Path(__file__).parent.parent
SOURCE = Path(regard.__file__).parent

# Bottom to top: a module may import what stands below it, and nothing above or beside it.
FLOORS = [
    {"files", "predicates", "threads"},
    {"reference"},
    {"masks", "biases", "rotary", "cache"},
    {"problem"},
    {"engines"},
    {"kernels"},
    {"weights"},
    {"statistics", "steps"},
    {"summaries"},
    {"attention_map"},
    {"call", "elementwise", "flow", "links", "words", "trace_file"},
    {"nn"},
    {"trace"},
    {"corpus"},
    {"models"},
    {"pictures"},
    {"bench", "lab"},
    {"cli"},
]
LOOKS = {("attention_map", "pictures"), ("trace", "pictures")}  # .plot and the like, when called
FLOOR = {name: i for i, floor in enumerate(FLOORS) for name in floor}


def modules():
    names = [m.name for m in pkgutil.walk_packages([str(SOURCE)], "regard.")]
    return sorted(set(names) - {"regard.__main__"})


def imports_of(file):
    """The parts of regard that a file imports, as the first name below the package."""
    package = ("regard", *file.relative_to(SOURCE).parent.parts)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1]]
            path = base + (node.module.split(".") if node.module else [])
            names = [path] if len(path) > 1 else [[*path, alias.name] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module.split(".")]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        yield from (path[1] for path in names if path[0] == "regard" and len(path) > 1)


FILES = sorted(p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or p.stem[0] != "_")


@pytest.mark.parametrize("file", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_imports_what_stands_above_it(file):
    part = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert part in FLOOR, f"{part} has no floor in the house"
    for imported in imports_of(file):
        if imported == "__version__" or imported == part or (part, imported) in LOOKS:
            continue
        beside = FLOORS[FLOOR[part]] - {"predicates"}
        assert FLOOR[imported] <= FLOOR[part], f"{part} imports {imported}, which stands above"
        assert imported not in beside, f"{part} imports {imported}, which stands beside it"


def test_the_rungs_never_import_each_other():
    assert "reference" not in set(imports_of(SOURCE / "engines" / "tiled.py"))
    assert set(imports_of(SOURCE / "engines" / "tiled.py")) == {"predicates", "problem"}
    assert set(imports_of(SOURCE / "engines" / "native.py")) == {
        "predicates",
        "problem",
        "threads",
    }
    assert set(imports_of(SOURCE / "reference.py")) == {"predicates"}
    assert set(imports_of(SOURCE / "predicates.py")) == set()


def test_all_is_what_there_is():
    for name in regard.__all__:
        assert getattr(regard, name) is not None
    assert set(dir(regard)) == set(regard.__all__)
    public = {name for name in vars(regard) if not name.startswith("_")}
    parts = set(FLOOR) | {"TYPE_CHECKING", "Any", "import_module"}
    assert public - parts <= set(regard.__all__)
    with pytest.raises(AttributeError, match="no attribute 'atention'"):
        regard.atention  # noqa: B018


@pytest.mark.parametrize("name", modules())
def test_all_of_each_module(name):
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public)


def test_files_fit_in_the_head():
    for file in [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        lines = len(file.read_text(encoding="utf-8").splitlines())
        assert lines <= 410, f"{file.name} has {lines} lines"


@pytest.mark.parametrize("name", modules())
def test_examples_of_docstrings(name):
    module = importlib.import_module(name)
    names = {"np": np, "regard": regard}
    with np.printoptions(legacy=False):
        result = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


@pytest.mark.parametrize("name", ["attention", "look", "explain"])
def test_public_functions_document_every_parameter(name):
    function = getattr(regard, name)
    code = function.__wrapped__.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    documented = function.__doc__.partition("Parameters")[2].partition("Returns")[0]
    for parameter in parameters:
        assert re.search(rf"\b{parameter}\b", documented), f"{name} does not document {parameter}"


def python_blocks(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    return re.findall(r"```(?:python|\{code-cell\})\n(.*?)```", text, re.DOTALL)


DOCUMENTS = ["README.md", "docs/pictures.md", "docs/semantics.md"]


@pytest.mark.parametrize("file", DOCUMENTS)
def test_examples_of_documents(file):
    """The python blocks of a document, run from top to bottom as one session."""
    blocks = python_blocks(file)
    assert blocks
    names: dict = {}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for i, block in enumerate(blocks):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, f"{file}[{i}]", file, 0)
            assert runner.run(test, clear_globs=False).failed == 0
            names = test.globs
        else:
            exec(compile(block, f"{file}[{i}]", "exec"), names)


def test_without_the_extras_the_names_are_there_and_models_say_what_they_need():
    code = """
        import builtins, sys
        real = builtins.__import__
        absent = {"typer", "rich", "safetensors", "tokenizers", "platformdirs"}
        import importlib.abc
        class Absent(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in absent:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Absent())
        from regard import *
        import regard, inspect
        assert inspect.getmembers(regard) and hasattr(regard, "models")
        try:
            regard.models.load("minilm")
        except ModuleNotFoundError as error:
            print(error)
    """
    environment = {k: v for k, v in os.environ.items() if k != "REGARD_CACHE"}
    said = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True,
                          text=True, check=True, env=environment).stdout  # fmt: skip
    assert said == (
        "models need platformdirs, which is not installed: pip install 'regard[models]'\n"
    )


def test_version_is_the_same_everywhere():
    for file in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        assert regard.__version__ in (ROOT / file).read_text(encoding="utf-8"), file


def test_the_package_carries_its_type_marker():
    assert (SOURCE / "py.typed").is_file()


def test_importing_regard_is_light():
    """Beyond NumPy: its own modules and a handful of the standard library's."""
    brought = run_python("""
        import sys, numpy
        before = set(sys.modules)
        import regard
        print(*(name for name in set(sys.modules) - before if name.partition(".")[0] != "numpy"))
    """).split()
    own = {name for name in brought if name.partition(".")[0] == "regard"}
    others = set(brought) - own
    assert "regard.engines.native" in own
    assert len(own) < 30
    assert len(others) < 12, f"import regard brings {sorted(others)}"
    assert others <= sys.stdlib_module_names
    assert not own & {"regard.pictures", "regard.models"}
