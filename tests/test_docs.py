"""What can be held about the documentation without building it."""

import re
from pathlib import Path
from types import ModuleType

import pytest

import regard
from regard import lab

DOCS = Path(__file__).parent.parent / "docs"
NOT_CALLED = {"CATALOG", "ACTIVATIONS", "cached", "__version__"}


def public_names():
    """Each public name, as the API page has to list it."""
    for name in regard.__all__:
        thing = getattr(regard, name)
        if not isinstance(thing, ModuleType):
            yield name
        elif name not in ("lab", "reference"):
            yield from (f"{name}.{public}" for public in thing.__all__)


@pytest.mark.parametrize("name", sorted(public_names()))
def test_the_api_lists_every_public_name(name):
    if name.rpartition(".")[2] in NOT_CALLED:
        return
    listed = re.findall(r"^   ([\w.]+)$", (DOCS / "api/index.md").read_text(), re.MULTILINE)
    assert name in listed


def test_teachers_have_every_experiment_in_its_order():
    text = (DOCS / "teachers/index.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^## \d+\. (.*)$", text, re.MULTILINE)) == lab.EXPERIMENTS
    run = re.findall(r"^lab\.(\w+)\.run\(", text, re.MULTILINE)
    assert tuple(name.replace("_", "-") for name in run) == lab.EXPERIMENTS


def test_exercises_and_solutions_ask_the_same():
    texts = [(DOCS / "teachers" / f"{name}.md").read_text() for name in ("exercises", "solutions")]
    asked = [re.findall(r"^## (.*)\n\n(.*)$", text, re.MULTILINE) for text in texts]
    assert asked[0] == asked[1]
    assert len(asked[0]) >= 6


def test_every_page_can_be_reached():
    """Each page stands in some table of contents; a link to a page leads to one that is there."""
    listed = set()
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL):
            names = re.findall(r"^(?:.*<(.+)>|([\w/-]+))$", tree, re.MULTILINE)
            listed |= {(page.parent / (a or b)).resolve() for a, b in names}
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+\.md)\)", text):
            assert (page.parent / link).is_file(), f"{page.name} links to {link}"
    pages = [p for p in DOCS.rglob("*.md") if not {"site", "auto_gallery"} & set(p.parts)]
    lost = {p.name for p in pages if p.with_suffix("").resolve() not in listed}
    assert lost == {"index.md"}
