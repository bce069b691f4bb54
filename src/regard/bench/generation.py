"""SmolLM2 beside transformers on PyTorch: `python -m regard.bench.generation`.

Both read the same GGUF file; the peer widens it to float32 when it loads. Answers are checked
first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from .. import models
from ..threads import get_num_threads
from .turns import medians

TEXT = "It was a bright cold day in April, and the clocks were striking thirteen. "
PROMPT, TOKENS = 1024, 128
MEMORY = """
import sys
import numpy, tokenizers, gguf, regard.models.decoder
def status(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024
before = status("VmRSS")
model = regard.models.load("smollm2", widen=sys.argv[1] == "float32")
"".join(model.generate("The capital of France is", max_tokens=32))
print(status("VmHWM") - before)
"""


class Peer:
    """transformers, with the cache in the caller's hands: no more than the layers is timed."""

    def __init__(self, torch: Any, model: Any, ids: list[int]) -> None:
        self.torch, self.model, self.ids = torch, model, ids
        self.cache: Any = None

    def prompt(self) -> Any:
        with self.torch.inference_mode():
            tokens = self.torch.tensor([self.ids])
            out = self.model(tokens, use_cache=True, logits_to_keep=1)
        self.cache = out.past_key_values
        return out.logits[0, -1].numpy()

    def write(self, token: int) -> list[int]:
        """Greedy tokens after a first, from the prompt's cache."""
        more = self.cache.get_seq_length() - len(self.ids)
        if more:
            self.cache.crop(-more)
        written = [token]
        with self.torch.inference_mode():
            while len(written) < TOKENS:
                tokens = self.torch.tensor([written[-1:]])
                out = self.model(tokens, past_key_values=self.cache, use_cache=True)
                written.append(int(out.logits[0, -1].argmax()))
        return written


class Ours:
    """The same of regard."""

    def __init__(self, model: Any, ids: list[int]) -> None:
        self.model, self.ids = model, ids
        self.caches: Any = None

    def prompt(self) -> Any:
        self.caches = self.model.caches()
        return self.model.step(self.ids, self.caches)

    def write(self, token: int) -> list[int]:
        for cache in self.caches:
            cache.truncate(len(self.ids))
        written = [token]
        while len(written) < TOKENS:
            written.append(int(self.model.step(written[-1:], self.caches).argmax()))
        return written


def check(sides: dict[str, Any]) -> int:
    """The first token, once all agree on its logits and on what follows."""
    logits = {name: side.prompt() for name, side in sides.items()}
    expected = logits["PyTorch"]
    for name, each in logits.items():
        error = np.abs(each - expected).max() / np.abs(expected).max()
        if error > 1e-3:
            raise ValueError(f"logits of {name} must be within 1e-3, got {error:.1e}")
    token = int(expected.argmax())
    texts = {name: side.write(token) for name, side in sides.items()}
    if any(text != texts["PyTorch"] for text in texts.values()):
        raise ValueError(f"all must write the same tokens, got {texts}")
    return token


def memory(held: str) -> float:
    """MB by which a process grows that loads the model and writes 32 tokens."""
    command = [sys.executable, "-c", MEMORY, held]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(ran.stdout)


def reading() -> float:
    """GB/s at which NumPy reads 540 MB."""
    weights = np.ones(135_000_000, np.float32)
    return weights.nbytes / 1e9 / medians({"read": weights.max})["read"]


def rows(sides: dict[str, Any], token: int, sizes: dict[str, float]) -> list[str]:
    """A line for each: prompt, tokens, and the part of what the memory allows."""
    prompts: dict[str, Callable[[], Any]] = {name: side.prompt for name, side in sides.items()}
    first = medians(prompts)
    then = medians({name: partial(side.write, token) for name, side in sides.items()})
    speed = reading()
    lines = []
    for name in sides:
        rate = (TOKENS - 1) / then[name]
        bound = speed * 1e3 / sizes[name]
        lines.append(
            f"| {name} | {first[name]:.2f} | {first['PyTorch'] / first[name]:.2f} × | {rate:.1f} | "
            f"{then['PyTorch'] / then[name]:.2f} × | {sizes[name]:.0f} | {bound:.0f} | "
            f"{rate / bound:.2f} |"
        )
    return [*lines, "", f"Memory read at {speed:.1f} GB/s."]


def main() -> None:
    """Print tables in Markdown."""
    argparse.ArgumentParser(
        prog="python -m regard.bench.generation", description=__doc__
    ).parse_args()
    os.environ["OMP_WAIT_POLICY"] = "passive"  # or idle threads take the next one's time
    print("| weights held as | MB | growth of the process at its peak, MB | ratio |")
    print("|---|---|---|---|")
    file = next(models.path("smollm2").glob("*.gguf"))
    sizes = {"held as they came": file.stat().st_size / 1e6, "float32": 538.1}
    for kind, size in sizes.items():
        grown = memory(kind) * 1.048576
        print(f"| {kind} | {size:.0f} | {grown:.0f} | {grown / size:.2f} |", flush=True)
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.set_num_threads(get_num_threads())
    as_held, widened = (models.load("smollm2", widen=widen) for widen in (False, True))
    ids = as_held.tokenizer.encode(TEXT * 99).ids[:PROMPT]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()
    sides: dict[str, Any] = {
        "PyTorch": Peer(torch, model, ids), "regard, as held": Ours(as_held, ids),
        "regard, float32": Ours(widened, ids),
    }  # fmt: skip
    token = check(sides)
    print(f"\n| | prompt of {PROMPT}, s | faster than PyTorch | tokens/s | faster than PyTorch | "
          "weights, MB | bound, tokens/s | part of it |")  # fmt: skip
    print("|---" * 8 + "|")
    held = dict(zip(sides, (538.1, sizes["held as they came"], 538.1), strict=True))
    print("\n".join(rows(sides, token, held)))


if __name__ == "__main__":
    main()
