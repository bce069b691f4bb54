"""`regard generate`: a language model continues a text, piece by piece."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from .. import models
from ..models.generation import Generation
from .base import ModelOption, app, read_text, writer

INTERRUPTED = 130  # the code of a process that ended by Ctrl-C


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="A text, a file that holds one, or - for input.")],
    model: ModelOption = "smollm2",
    chat: Annotated[
        bool, typer.Option("--chat", help="Put it into the model's own words for a conversation.")
    ] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens to write.")] = 256,
    temperature: Annotated[
        float, typer.Option(min=0, help="0: the likeliest token each time; 1: as they are likely.")
    ] = 0.0,
    top_p: Annotated[
        float, typer.Option(help="Draw from the fewest tokens that reach this probability.")
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Draw the same text again.")] = None,
) -> None:
    """Continue a text with a language model, as it is written.

    The text goes to standard output, tokens per second to standard error.
    """
    decoder = writer(models.load(model))
    text = read_text(prompt)
    started = time.perf_counter()
    written = decoder.generate(
        [{"role": "user", "content": text}] if chat else text, max_tokens=max_tokens,
        temperature=temperature, top_p=top_p, seed=seed,
    )  # fmt: skip
    first = _stream(written, started)
    print(_speed(written, started, first), file=sys.stderr)


def _stream(written: Generation, started: float) -> float:
    """Writes each piece as it comes; when the first token was there."""
    first = started
    try:
        for piece in written:
            first = time.perf_counter() if first == started else first
            sys.stdout.write(piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"\nregard: interrupted after {len(written.ids)} tokens", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    sys.stdout.write("\n")
    sys.stdout.flush()
    return first


def _speed(written: Generation, started: float, first: float) -> str:
    """How long the prompt took, and the rate of the tokens after the first."""
    prompt, rest = len(written.prompt_ids), len(written.ids) - 1
    said = f"regard: {prompt} tokens of prompt in {first - started:.2f} s"
    if rest > 0:
        seconds = time.perf_counter() - first
        said += f", then {rest} more at {rest / seconds:.1f} tokens/s"
    return f"{said}; {'end of text' if written.ended else 'cut at the limit'}"
