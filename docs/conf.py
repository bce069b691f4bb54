"""How the documentation is built: `sphinx-build -W docs site`. Every code cell is executed."""

import re
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from matplotlib.figure import Figure
from nbformat import v4, write
from sphinx_gallery.scrapers import figure_rst

import regard

HERE = Path(__file__).parent

project = "regard"
author = "The regard developers"
copyright = f"{date.today().year}, {author}; figures CC BY 4.0"
version = release = regard.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "gallery/*.py",
    "gallery/README.rst",
    "auto_gallery/*.ipynb",
    "auto_gallery/*.py",
    "_static",
    "site",
]
suppress_warnings = ["config.cache"]  # the gallery's scraper is a function

# Cells: executed at each build, and an error in one is an error of the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 240
nb_merge_streams = True
nb_render_markdown_format = "myst"  # with tables
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_excludepatterns = [] if find_spec("torch") else ["howto/torch.md"]
if not find_spec("transformers"):
    nb_execution_excludepatterns.append("howto/transformers.md")

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = "regard"
html_static_path = ["_static"]
html_css_files = ["regard.css"]
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
ALONE = (
    "start",
    "ladder",
    "semantics",
    "articles",
    "ideas",
    "pictures",
    "performance",
    "RESULTS",
    "design",
    "kernel",
)
html_sidebars = {page: [] for page in (*ALONE, "contributing", "teachers/*")}
templates_path = ["_templates"]


def scrape(block, block_vars, gallery_conf):
    """The figures of a gallery block that were not drawn by one before it."""
    seen = gallery_conf.setdefault("regard_figures", set())
    names = []
    for value in block_vars["example_globals"].values():
        if isinstance(value, Figure) and id(value) not in seen:
            seen.add(id(value))
            name = next(block_vars["image_path_iterator"])
            value.savefig(name, dpi=120)
            names.append(name)
    return figure_rst(names, gallery_conf["src_dir"])


sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": "/plot_",
    "image_scrapers": (scrape,),
    "download_all_examples": False,
    "show_memory": False,
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_signature": False,
    "min_reported_time": 60,
}


def notebook(name):
    """The exercises, or their solutions, as a notebook."""
    text = (HERE / "teachers" / f"{name}.md").read_text(encoding="utf-8")
    text = re.sub(r" As a notebook: .*", "", text.split("---\n", 2)[2])
    text = re.sub(r"\((\w+)\.md\)", r"(\1.ipynb)", text)
    parts = re.split(r"```\{code-cell\}\n(.*?)\n```", text, flags=re.DOTALL)
    cells = [
        (v4.new_code_cell if i % 2 else v4.new_markdown_cell)(part.strip(), id=f"cell-{i}")
        for i, part in enumerate(parts)
    ]
    return v4.new_notebook(cells=[cell for cell in cells if cell.source])


def write_notebooks(app):
    """Both to download."""
    for name in ("exercises", "solutions"):
        with (HERE / "_static" / f"{name}.ipynb").open("w", encoding="utf-8") as stream:
            write(notebook(name), stream)


def plain_signs(app, what, name, obj, options, lines):
    """`(*lead, H, N, D)` and |score| in a docstring are mathematics, not markup."""
    for sign, follows in ((r"\*", r"(?=\w)"), (r"\|", "")):
        lines[:] = [re.sub(rf"(?<![\w*\\]){sign}{follows}", rf"\{sign}", line) for line in lines]


def setup(app):
    app.connect("builder-inited", write_notebooks, priority=100)
    app.connect("autodoc-process-docstring", plain_signs, priority=100)
    app.add_css_file("print.css", media="print")
