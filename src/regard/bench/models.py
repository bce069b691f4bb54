"""MiniLM beside PyTorch, and products at memory's speed: `python -m regard.bench.models`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from .. import models, nn
from ..predicates import Array
from ..threads import get_num_threads
from .turns import medians

SHAPES = [(1, 32), (8, 128), (4, 512)]  # texts, tokens
SENTENCES = 1000
BATCH = 32  # texts that the peer pads together, longest first


def ratio(seconds: dict[str, float]) -> str:
    """Both times in milliseconds, and how many times faster regard is."""
    ours, theirs = seconds["regard"], seconds["PyTorch"]
    return f"{1e3 * ours:.2f} | {1e3 * theirs:.2f} | {theirs / ours:.2f} ×"


def forward(torch: Any, model: Any, peer: Any, shape: tuple[int, int]) -> str:
    """One line: the hidden states of a batch, once they agree."""
    ids = np.random.default_rng(0).integers(1000, 30_000, shape)
    tokens = torch.from_numpy(ids)
    seen = torch.ones_like(tokens)

    def theirs() -> Array:
        return peer(input_ids=tokens, attention_mask=seen).last_hidden_state.numpy()

    np.testing.assert_allclose(model(ids), theirs(), atol=1e-5)
    return f"| {shape} | {ratio(medians({'regard': lambda: model(ids), 'PyTorch': theirs}))} |"


def sentences(model: Any, n: int) -> list[str]:
    """Random words, 3 to 60 of them, short ones more often: always the same."""
    rng = np.random.default_rng(1)
    known = sorted(word for word in model.tokenizer.get_vocab() if word.isalpha() and len(word) > 2)
    counts = np.clip(rng.lognormal(2.6, 0.6, n), 3, 60).astype(int)
    return [" ".join(rng.choice(known, count)) for count in counts]


def embeds_padded(torch: Any, tokenizer: Any, peer: Any, texts: list[str]) -> Array:
    """Embeddings as sentence-transformers computes them: by length, in padded batches, averaged."""
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    vectors = np.empty((len(texts), peer.config.hidden_size), np.float32)
    for start in range(0, len(order), BATCH):
        some = order[start : start + BATCH]
        batch = tokenizer([texts[i] for i in some], padding=True, truncation=True, max_length=256,
                          return_tensors="pt")  # fmt: skip
        hidden = peer(**batch).last_hidden_state
        seen = batch["attention_mask"][..., None].float()
        mean = (hidden * seen).sum(1) / seen.sum(1)
        vectors[some] = torch.nn.functional.normalize(mean, dim=1).numpy()
    return vectors


def embedding(torch: Any, model: Any, peer: Any, tokenizer: Any) -> str:
    """One line: many sentences of mixed length."""
    texts = sentences(model, SENTENCES)

    def theirs() -> Array:
        return embeds_padded(torch, tokenizer, peer, texts)

    np.testing.assert_allclose(model.embed(texts), theirs(), atol=1e-5)
    seconds = medians({"regard": lambda: model.embed(texts), "PyTorch": theirs})
    return f"| {SENTENCES} sentences, 3 to 60 words | {ratio(seconds)} |"


def products(rows: int) -> str:
    """Weights read by products of few rows, in GB/s as held, beside plain reading."""
    out, into = 49_152, 576
    rng = np.random.default_rng(2)
    wide = rng.standard_normal((out, into), dtype=np.float32)
    raw = {kind: rng.integers(0, 60, (out, into // 32 * size), np.uint8)
           for kind, size in (("Q8_0", 34), ("Q4_1", 20))}  # fmt: skip
    held: dict[str, Any] = {"float32": wide, "float16": wide.astype(np.float16)}
    held |= {kind: nn.Blocks(blocks, kind, (out, into)) for kind, blocks in raw.items()}
    x = rng.standard_normal((rows, into), dtype=np.float32)
    functions: dict[str, Callable[[], Any]] = {"reading": wide.max, "NumPy": lambda: x @ wide.T}
    functions |= {kind: partial(nn.Linear(w), x) for kind, w in held.items()}
    seconds = medians(functions)
    size = {"reading": wide.nbytes, "NumPy": wide.nbytes}
    size |= {kind: w.nbytes for kind, w in held.items()}
    cells = (f"{1e3 * s:.2f} ({size[name] / s / 1e9:.1f})" for name, s in seconds.items())
    return f"| {rows} | {' | '.join(cells)} |"


def main() -> None:
    """Print tables in Markdown."""
    argparse.ArgumentParser(prog="python -m regard.bench.models", description=__doc__).parse_args()
    os.environ["OMP_WAIT_POLICY"] = "passive"  # or idle threads take the next one's time
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    print("| rows | plain reading, ms (GB/s) | NumPy float32 | float32 | float16 | Q8_0 | Q4_1 |")
    print("|---|---|---|---|---|---|---|")
    for rows in (1, 4, 16):
        print(products(rows), flush=True)
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.set_num_threads(get_num_threads())
    folder = models.path("minilm")
    model: Any = models.load("minilm")
    peer = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    print("\n| MiniLM | regard, ms | PyTorch, ms | ratio |")
    print("|---|---|---|---|")
    with torch.inference_mode():
        for shape in SHAPES:
            print(forward(torch, model, peer, shape), flush=True)
        print(embedding(torch, model, peer, tokenizer), flush=True)


if __name__ == "__main__":
    main()
