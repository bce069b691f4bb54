"""PyTorch's scaled_dot_product_attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...predicates import Array
from ..case import Case
from .base import Candidate, Peer


class PyTorch(Peer):
    title = "PyTorch"
    package = "torch"

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.library.set_num_threads(threads)

    def prepare(self, case: Case, variant: str) -> Candidate | str:
        row = case.row
        if row.sees == "window":
            return "scaled_dot_product_attention has no window"
        function = self.library.nn.functional.scaled_dot_product_attention
        q, k, v = (self._tensor(x) for x in (case.query, case.key, case.value))
        options: dict[str, Any] = {"is_causal": row.sees == "causal"}
        if row.grouped:
            options["enable_gqa"] = True
        if case.padding is not None:
            options["attn_mask"] = self._tensor(case.padding[:, None, None])
        for x in (case.mask, case.bias):
            if x is not None:
                options["attn_mask"] = self._tensor(x)
        return Candidate(lambda: function(q, k, v, **options), lambda y: y.double().numpy())

    def _tensor(self, x: Array) -> Any:
        """The same memory as a tensor; bfloat16 goes as 16-bit numbers."""
        if x.dtype.name == "bfloat16":
            return self.library.from_numpy(x.view(np.int16)).view(self.library.bfloat16)
        return self.library.from_numpy(x)
