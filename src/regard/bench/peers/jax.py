"""JAX's dot_product_attention, compiled by XLA for the CPU."""

from __future__ import annotations

import os
from math import prod
from typing import Any

import numpy as np

from ...predicates import Array
from ..case import Case
from ..rows import WINDOW
from .base import Candidate, Peer

MOST = 2**30  # bytes of the score matrix, which XLA forms


class Jax(Peer):
    title = "JAX"
    package = "jax"

    def __init__(self, threads: int) -> None:
        os.environ["NPROC"] = str(threads)  # how many threads XLA starts
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        super().__init__(threads)

    def prepare(self, case: Case, variant: str) -> Candidate | str:
        row, jax = case.row, self.library
        if row.dtype == "float64":
            return "it computes a float64 softmax in float32"
        scores = prod((row.B, row.H, row.Nq, row.Nk)) * 4
        if scores > MOST:
            return f"it forms the matrix of scores, here {scores / 1e9:.1f} GB"
        options: dict[str, Any] = {"is_causal": row.sees == "causal"}
        if row.sees == "window":
            options |= {"is_causal": True, "local_window_size": (WINDOW - 1, 0)}
        if row.lengths:
            options["key_value_seq_lengths"] = jax.numpy.array(row.lengths, jax.numpy.int32)
        if case.mask is not None:
            options["mask"] = jax.numpy.asarray(case.mask[None, None])
        if case.bias is not None:
            options["bias"] = jax.numpy.asarray(case.bias[None])
        arrays = [
            jax.numpy.asarray(np.ascontiguousarray(x.swapaxes(1, 2)))  # (B, N, H, D)
            for x in (case.query, case.key, case.value)
        ]
        scalars = {name: options.pop(name) for name in ("is_causal", "local_window_size")
                   if name in options}  # fmt: skip

        def attend(q: Any, k: Any, v: Any, given: Any) -> Any:
            return jax.nn.dot_product_attention(q, k, v, **given, **scalars)

        compiled = jax.jit(attend)
        return Candidate(lambda: compiled(*arrays, options).block_until_ready(), _read)


def _read(y: Any) -> Array:
    return np.asarray(y).swapaxes(1, 2)
