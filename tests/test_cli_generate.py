"""`regard generate`: what it streams, where the figures go, errors, pipes, Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

pytest.importorskip("typer", reason="the command line's packages are not installed")
pytest.importorskip("gguf", reason="gguf is not installed")

import regard
from tiny import write_llama_gguf

COMMAND = [sys.executable, "-W", "error::DeprecationWarning", "-m", "regard", "generate"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_llama_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def run(*arguments, input=None):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], input=input, capture_output=True, text=True,
        encoding="utf-8", check=False,
    )  # fmt: skip


def test_it_writes_what_the_model_generates_and_how_fast(file):
    result = run("the law", "-m", file, "--max-tokens", 9)
    written = regard.models.load(file).generate("the law", max_tokens=9)
    assert result.returncode == 0
    assert result.stdout == "".join(written) + "\n"
    assert re.fullmatch(
        r"regard: \d+ tokens of prompt in \d+\.\d\d s, then 8 more at [\d.]+ tokens/s; "
        r"(end of text|cut at the limit)\n",
        result.stderr,
    )


def test_a_conversation_from_standard_input(file):
    result = run("-", "-m", file, "--chat", "--max-tokens", 5, input="the law\n")
    messages = [{"role": "user", "content": "the law"}]
    assert (
        result.stdout == "".join(regard.models.load(file).generate(messages, max_tokens=5)) + "\n"
    )


def test_options_that_draw(file):
    options = ("-m", file, "--max-tokens", 9, "--temperature", 1.5, "--top-p", 0.8, "--seed", 7)
    drawn = regard.models.load(file).generate(
        "the law", max_tokens=9, temperature=1.5, top_p=0.8, seed=7
    )
    assert run("the law", *options).stdout == "".join(drawn) + "\n"


def test_mistakes_are_one_line(file, tiny_folder):
    for arguments, says in (
        (
            ("a", "-m", tiny_folder),
            "regard: model must be one that writes, as smollm2 does, got Bert",
        ),
        (("", "-m", file), "regard: prompt must have a token at least"),
        (("a", "-m", file, "--top-p", 2), "regard: top_p must be in (0, 1], got 2.0"),
    ):
        result = run(*arguments)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.startswith(says)
        assert result.stderr.count("\n") == 1


def test_look_at_a_text_and_what_the_model_writes(file, tiny_folder):
    command = [*COMMAND[:-1], "look", "the law", "--json", "--generate", "6"]
    found = subprocess.run([*command, "-m", str(file)], capture_output=True, text=True, check=True)
    trace = regard.models.load(file).look("the law", max_tokens=6)
    assert json.loads(found.stdout)["tokens"] == trace.tokens
    refused = subprocess.run([*command, "-m", str(tiny_folder)], capture_output=True, text=True)
    assert refused.stderr.startswith("regard: model must be one that writes")


def test_a_reader_that_has_had_enough(file):
    process = subprocess.Popen(
        [*COMMAND, "the law", "-m", file, "--max-tokens", "80"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.wait(60)
    process.stderr.close()
    assert b"Traceback" not in said


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_ends_it_cleanly(tmp_path):
    import tiny

    config = {**tiny.LLAMA, "max_position_embeddings": 100_000}
    file = write_llama_gguf(tmp_path / "long.gguf", config=config)
    process = subprocess.Popen(
        [*COMMAND, "the law", "-m", str(file), "--max-tokens", "99999"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.read(1)  # it writes
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    if b"end of text" not in said:
        assert process.returncode == 130
        assert re.fullmatch(rb"\nregard: interrupted after \d+ tokens\n", said)
