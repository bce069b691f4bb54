"""OpenVINO's ScaledDotProductAttention operator, on its CPU plugin."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from ...predicates import Array
from ..case import Case
from .base import Candidate, Peer


class OpenVino(Peer):
    title = "OpenVINO"
    package = "openvino"

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.operators = import_module("openvino.opset13")
        self.core = self.library.Core()

    def prepare(self, case: Case, variant: str) -> Candidate | str:
        row, ops = case.row, self.operators
        if row.sees == "window":
            return "ScaledDotProductAttention has no window"
        if row.dtype in ("bfloat16", "float64"):
            return f"no {row.dtype}: its arrays from NumPy, or its kernels, lack it"
        arrays = [case.query, case.key, case.value]
        if row.grouped:
            # Grouped heads as five axes: the keys' groups are broadcast.
            group = (row.B, row.Hkv, row.H // row.Hkv, row.Nq, row.D)
            arrays = [case.query.reshape(group), *(x[:, :, None] for x in arrays[1:])]
        if case.padding is not None:
            arrays.append(case.padding_matrix)
        arrays += [x[None] for x in (case.mask, case.bias) if x is not None]
        inputs = [ops.parameter(x.shape, x.dtype) for x in arrays]
        node = ops.scaled_dot_product_attention(*inputs, causal=row.sees == "causal")
        model = self.library.Model([node], inputs)
        settings = {
            "INFERENCE_NUM_THREADS": self.threads,
            "NUM_STREAMS": 1,
            "INFERENCE_PRECISION_HINT": "f32",
        }
        request = self.core.compile_model(model, "CPU", settings).create_infer_request()
        for i, x in enumerate(arrays):
            request.set_input_tensor(i, self.library.Tensor(x, shared_memory=True))
        shape = (row.B, row.H, row.Nq, row.D)

        def read(_: Any) -> Array:
            return np.array(request.get_output_tensor(0).data).reshape(shape)

        return Candidate(request.infer, read, held=arrays)
