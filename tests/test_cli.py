"""The command line: what it prints, where errors go, exit codes, pipes, files."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line's packages are not installed")

import regard


def run(*arguments, input=None, **options):
    """`python -m regard`: a process of its own, as a user's."""
    return subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-m", "regard", *map(str, arguments)],
        input=input, capture_output=True, text=True, encoding="utf-8", check=False, **options,
    )  # fmt: skip


@pytest.fixture
def look(tiny_folder):
    return lambda *arguments, **options: run("look", *arguments, "-m", tiny_folder, **options)


def test_look_lists_the_strongest_links(look, tiny):
    result = look("the law is just", "--top", 3)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["weight", "layer", "head", "query", "key"]
    best = tiny.look("the law is just").strongest(3)
    for line, link in zip(lines[1:4], best, strict=True):
        expected = f"{link.weight:.3f} {link.layer} {link.head} {link.query} {link.query_token} →"
        assert line.split() == [*expected.split(), str(link.key), link.key_token]
    assert lines[4] == (
        "Left out: links of special tokens (--special) and of tokens to themselves (--self)."
    )


def test_look_counts_special_tokens_and_self_links_when_asked(look, tiny):
    result = look("the law", "--top", 99, "--special", "--self", "--json")
    assert len(json.loads(result.stdout)["links"]) == 2 * 3 * 4 * 4
    assert "Left out" not in look("the law", "--special", "--self").stdout


@pytest.mark.parametrize("words", [("LAW", "the"), (2, 1), ("law", 1)])
def test_find_ranks_heads(look, tiny, words):
    result = look("the law is just", "--find", *words, "--json")
    found = json.loads(result.stdout)
    assert found["tokens"] == ["[CLS]", "the", "law", "is", "just", "[SEP]"]
    expected = [link._asdict() for link in tiny.look("the law is just").find(2, 1)]
    for link, same in zip(found["links"], expected, strict=True):
        assert link == pytest.approx(same)
    assert "Left out" not in look("the law is just", "--find", *words).stdout


def test_find_within_one_head(look):
    links = json.loads(
        look("the law", "--find", "law", "the", "--layer", 1, "--head", 2, "--json").stdout
    )["links"]
    assert [(link["layer"], link["head"]) for link in links] == [(1, 2)]


def test_a_number_is_an_index_unless_the_text_has_it(look):
    links = json.loads(look("a b c 7", "--find", "7", "0", "--json").stdout)["links"]
    assert {link["query"] for link in links} == {4}
    assert look("a b c", "--find", "7", "0").returncode == 1


def test_find_of_an_unknown_word_lists_the_tokens(look):
    result = look("the law", "--find", "its", "law")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "regard: the text has no word 'its'; its tokens are: 0 [CLS], 1 the, 2 law, 3 [SEP]\n"
    )


def test_one_head_as_a_map(look, tiny):
    result = look("the law", "--layer", 1, "--head", 2)
    lines = result.stdout.splitlines()
    assert lines[0] == "layer 1, head 2: row = query, column = key, each row sums to 1"
    assert lines[1].split() == ["0", "1", "2", "3"]
    weights = np.asarray(tiny.look("the law").layers[1].weights[2])
    for line, token, row in zip(lines[2:6], ["[CLS]", "the", "law", "[SEP]"], weights, strict=True):
        assert token in line
        shades = line[7:][2::3].ljust(4)
        assert [" ░▒▓█".index(s) for s in shades] == [
            sum(w >= step for step in (0.1, 0.3, 0.5, 0.7)) for w in row
        ]


def test_one_head_as_json(look, tiny):
    found = json.loads(look("the law", "--layer", 1, "--head", 0, "--json").stdout)
    np.testing.assert_allclose(
        found["weights"], tiny.look("the law").layers[1].weights[0], rtol=1e-6
    )
    assert (found["layer"], found["head"]) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("a", "--layer", 1), 2, "--layer and --head go together"),
        (
            ("a", "--layer", 2, "--head", 0),
            1,
            "layers 0 to 1 and heads 0 to 2, got layer 2, head 0",
        ),
        (("a", "--top", 0), 2, "--top"),
        (("a " * 50,), 1, "at most 13 tokens, got 52: truncate=True"),
        ((), 2, "Missing argument"),
        (("a", "--nonsense"), 2, "No such option"),
    ],
)
def test_mistakes_of_look(look, arguments, code, says):
    result = look(*arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_name_of_no_file_is_a_text_and_that_is_said(look):
    result = look("the-law.txt", "--special")
    assert result.returncode == 0
    assert result.stderr == (
        "regard: warning: there is no file 'the-law.txt': it is read as the text itself\n"
    )


@pytest.mark.parametrize("name", ["", "."])
def test_embed_wants_a_file(name):
    result = run("embed", name)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"file must be a text file, or - for standard input, got {name!r}" in result.stderr


def test_truncate(look):
    assert look("a " * 50, "--truncate").returncode == 0


def test_text_from_a_file_and_from_input(look, tmp_path):
    (tmp_path / "text.txt").write_text("the law\n", encoding="utf-8")
    expected = look("the law", "--json").stdout
    assert look(tmp_path / "text.txt", "--json").stdout == expected
    assert look("-", "--json", input="the law\n").stdout == expected


@pytest.mark.parametrize("text", ["", " ", "x" * 5000, "[bold]law[/bold]", "法 🎈 \u202e", "\x07"])
def test_any_text(look, text):
    result = look(text)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr


def test_an_empty_text_has_no_links(look):
    assert "No links: the text has no two tokens that count." in look("").stdout


def test_a_model_that_is_nothing():
    result = run("look", "a", "--model", "maxilm")
    assert result.returncode == 1
    assert result.stderr.startswith("regard: model must be one of minilm, smollm2, or a folder")


def test_a_corrupt_model_is_one_line(tiny_folder, look):
    (tiny_folder / "model.safetensors").write_bytes(b"junk")
    result = look("a")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "model.safetensors is corrupt or cut short" in result.stderr


@pytest.fixture
def embed(tiny_folder):
    return lambda *arguments, **options: run("embed", *arguments, "-m", tiny_folder, **options)


LINES = "the law\n\n  \nis\u2028 just"  # a line separator ends no line, the end needs no feed


def test_embed_writes_a_row_a_line(embed, tiny, tmp_path):
    expected = np.zeros((4, 12), np.float32)
    expected[[0, 3]] = tiny.embed(["the law", "is\u2028 just"])
    result = embed("-", input=LINES)
    assert result.returncode == 0
    assert "warning" not in result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    np.testing.assert_array_equal(np.array(rows, np.float32), expected)
    (tmp_path / "lines.txt").write_text(LINES, encoding="utf-8")
    for name in ("out.npy", "out.jsonl"):
        assert embed(tmp_path / "lines.txt", "-o", tmp_path / name).stdout == ""
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == result.stdout
    assert sorted(p.name for p in tmp_path.glob("*out*")) == ["out.jsonl", "out.npy"]


def test_embed_of_nothing(embed, tmp_path):
    result = embed("-", input="")
    assert (result.returncode, result.stdout) == (0, "")
    assert embed("-", "-o", tmp_path / "none.npy", input="").returncode == 0
    assert np.load(tmp_path / "none.npy").shape == (0, 12)


def test_embed_says_what_it_cut(embed):
    result = embed("-", input="a b c a b c a b c\na\n")
    assert result.returncode == 0
    assert "regard: warning: 1 of 2 texts cut at 7 tokens" in result.stderr
    assert len(result.stdout.splitlines()) == 2
    assert "warning" not in embed("-", "--chunks", input="a b c a b c a b c\na\n").stderr


@pytest.mark.parametrize(
    ("name", "arguments", "start", "first"),
    [
        ("heads.png", (), b"\x89PNG", "weight"),
        ("head.SVG", ("--layer", 1, "--head", 2), b"<?xml", "layer 1, head 2"),
        ("found.pdf", ("--find", "the", "law"), b"%PDF", "weight"),
    ],
)
def test_look_draws_into_a_file(look, tmp_path, name, arguments, start, first):
    result = look("the law", "--plot", tmp_path / name, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(first)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert {path.name for path in tmp_path.iterdir()} == {name, "tiny"}


def test_look_does_not_draw_where_it_cannot(look, tmp_path):
    result = look("the law", "--plot", tmp_path / "a.doc")
    assert result.returncode == 1
    assert "a picture must be a file of .pdf, .png, .svg" in result.stderr
    result = look("the law", "--plot", tmp_path / "none" / "a.png")
    assert result.returncode == 1
    assert "output must be a file in a folder that is there" in result.stderr


def test_embed_of_a_missing_or_binary_file_and_of_a_place_that_is_none(embed, tmp_path):
    result = embed(tmp_path / "none.txt")
    assert result.returncode == 1
    assert "No such file" in result.stderr
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfa")
    result = embed(tmp_path / "binary")
    assert result.returncode == 1
    assert "binary must be UTF-8 text" in result.stderr
    for place in (tmp_path / "no" / "folder.npy", tmp_path, ""):
        result = embed("-", "-o", place, input="a\n")
        assert result.returncode == 1
        assert "output must be a file in a folder that is there" in result.stderr
    assert not (tmp_path / "no").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links and devices of Unix")
def test_embed_writes_behind_a_link_and_into_a_device(embed, tmp_path):
    (tmp_path / "real.jsonl").write_text("old")
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    assert embed("-", "-o", tmp_path / "link.jsonl", input="a\n").returncode == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len(json.loads((tmp_path / "real.jsonl").read_text())) == 12
    os.mkfifo(tmp_path / "fifo")
    reader = subprocess.Popen(["cat", tmp_path / "fifo"], stdout=subprocess.PIPE, text=True)
    assert embed("-", "-o", tmp_path / "fifo", input="a\n").returncode == 0
    assert len(json.loads(reader.communicate(timeout=20)[0])) == 12
    assert (tmp_path / "fifo").is_fifo()


def test_input_is_utf_8_whatever_the_locale(look):
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    expected = look("法 law", "--json").stdout
    assert look("-", "--json", input="法 law\n", env=latin).stdout == expected


def test_info_names_what_is_here():
    result = run("info", env={**os.environ, "REGARD_CACHE": "nowhere", "OMP_NUM_THREADS": "3"})
    assert result.returncode == 0
    table = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    facts = {name.strip(): text.strip() for name, text in table.items()}
    assert facts["regard"] == regard.__version__
    assert np.__version__ in facts["NumPy"]
    assert {"engine reference", "engine tiled"} <= set(facts)
    assert facts["threads"].startswith("3 for the native engine")
    assert facts["cache"] == "nowhere"
    assert "not fetched (84 MB to fetch)" in facts["model minilm"]


def test_version_and_help():
    assert run("--version").stdout == f"regard {regard.__version__}\n"
    for arguments in (
        ("--help",),
        ("-h",),
        ("look", "--help"),
        ("embed", "-h"),
        ("info", "-h"),
        ("bench", "-h"),
    ):
        result = run(*arguments)
        assert result.returncode == 0
        assert "Usage" in result.stdout
    assert run("nonsense").returncode == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes of Unix")
def test_a_reader_that_stops_early_and_an_interruption(tiny_folder):
    command = f"{sys.executable} -m regard look 'the law' -m {tiny_folder} --top 99 | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("weight")
    assert result.stderr == ""
    waiting = subprocess.Popen(
        [sys.executable, "-m", "regard", "look", "-", "-m", str(tiny_folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(1.5)
    waiting.send_signal(signal.SIGINT)
    _, errors = waiting.communicate(timeout=20)
    assert waiting.returncode != 0
    assert "Traceback" not in errors


def test_without_the_extras_it_says_what_to_install():
    code = """
        import builtins, runpy, sys
        real = builtins.__import__
        def absent(name, *a, **k):
            if name.partition(".")[0] in {"typer", "rich", "safetensors", "tokenizers", "platformdirs"}:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return real(name, *a, **k)
        builtins.__import__ = absent
        sys.argv = ["regard", "info"]
        runpy.run_module("regard", run_name="__main__")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "pip install 'regard[look]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_look_writes_a_page(look, tiny, tmp_path):
    place = tmp_path / "page.html"
    result = look("the law is just", "--find", "law", "the", "-o", place)
    assert result.stdout == look("the law is just", "--find", "law", "the").stdout
    best = tiny.look("the law is just").find("law", "the")[0]
    html = place.read_text(encoding="utf-8")
    assert f'"open":[{best.layer},{best.head}],"token":2,' in html
    assert look("the law", "-o", place, "--layer", 1, "--head", 2).returncode == 0
    assert '"open":[1,2],"token":-1,' in place.read_text(encoding="utf-8")
    assert [p.name for p in tmp_path.iterdir() if "page" in p.name] == ["page.html"]


def test_a_page_is_opened(look, tmp_path):
    (tmp_path / "browser").write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    (tmp_path / "browser").chmod(0o755)
    place = tmp_path / "a b.html"
    env = {**os.environ, "BROWSER": f"{tmp_path}/browser %s"}
    assert look("the law", "-o", place, "--open", env=env).returncode == 0
    assert (tmp_path / "opened").read_text().strip() == place.as_uri()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--open",), "go with -o"),
        (("--window", 0, 2), "go with -o"),
        (("-o", "page.pdf"), "output must be a page, NAME.html"),
        (("-o", "nowhere/page.html"), "in a folder that is there"),
        (("-o", "page.html", "--window", 0, 20), "window must be"),
    ],
)
def test_mistakes_of_pages(look, tmp_path, arguments, says):
    result = look("the law", *arguments, cwd=tmp_path)
    assert result.returncode in (1, 2)
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.glob("*.html"))
