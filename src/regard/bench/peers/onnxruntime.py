"""ONNX Runtime's three operators of attention, as models of one node."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from ...predicates import Array
from ..case import Case
from ..rows import WINDOW
from .base import Candidate, Peer

SMALL = 2**18  # query-key pairs, below which spinning threads may be worth their trouble
MHA, BY_HEADS = "MultiHeadAttention", "MultiHeadAttention, keys by heads"
GQA, ATTENTION = "GroupQueryAttention", "Attention"
SPINNING = ", spinning"


class OnnxRuntime(Peer):
    title = "ONNX Runtime"
    package = "onnxruntime"

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.onnx: Any = import_module("onnx")
        self.library.set_default_logger_severity(4)

    def variants(self, case: Case) -> list[str]:
        names = [MHA, BY_HEADS, GQA, ATTENTION]
        if case.row.pairs <= SMALL:
            names += [name + SPINNING for name in names]
        return names

    def prepare(self, case: Case, variant: str) -> Candidate | str:
        operator = variant.removesuffix(SPINNING)
        graph = {MHA: _multi_head, BY_HEADS: _by_heads, GQA: _grouped, ATTENTION: _standard}[
            operator
        ](case)
        if isinstance(graph, str):
            return graph
        inputs, attributes = graph
        node = operator.partition(",")[0]
        session = self._session(node, inputs, attributes, case, variant.endswith(SPINNING))
        binding = session.io_binding()
        values = {name: self._value(x) for name, x in inputs.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        row = case.row
        shape = (row.B, row.H, row.Nq, row.D)
        flat = (row.B, row.Nq, row.H * row.D)
        output = self._value(np.zeros(shape if node == ATTENTION else flat, case.query.dtype))
        binding.bind_ortvalue_output("output", output)
        if node == GQA and "past_key" in inputs:  # a cache that grows in its place
            binding.bind_ortvalue_output("present_key", values["past_key"])
            binding.bind_ortvalue_output("present_value", values["past_value"])

        def read(_: Any) -> Array:
            y: Array = output.numpy()
            return y if y.shape == shape else _heads_first(y, row.H)

        return Candidate(lambda: session.run_with_iobinding(binding), read, held=values)

    def _session(
        self, node: str, inputs: dict[str, Array], attributes: dict[str, Any], case: Case,
        spinning: bool,
    ) -> Any:  # fmt: skip
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        domain = "" if node == ATTENTION else "com.microsoft"
        order = ORDER[node]
        last = max(order.index(name) for name in inputs)
        names = [name if name in inputs else "" for name in order[: last + 1]]
        outputs = ["output"] + (["present_key", "present_value"] if "past_key" in inputs else [])
        made = helper.make_node(node, names, outputs, domain=domain, **attributes)

        def told(name: str, dtype: Any, shape: Any) -> Any:
            kind = (
                kinds.BFLOAT16
                if dtype.name == "bfloat16"
                else helper.np_dtype_to_tensor_dtype(dtype)
            )
            return helper.make_tensor_value_info(name, kind, shape)

        graph = helper.make_graph(
            [made], "attention", [told(name, x.dtype, x.shape) for name, x in inputs.items()],
            [told(name, case.query.dtype, None) for name in outputs],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
        options = self.library.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
        return self.library.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def _value(self, x: Array) -> Any:
        value = self.library.OrtValue
        if x.dtype.name == "bfloat16":
            kind = self.onnx.TensorProto.BFLOAT16
            return value.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), kind)
        return value.ortvalue_from_numpy(x)


ORDER = {
    MHA: ["query", "key", "value", "projection_bias", "padding", "bias"],
    GQA: ["query", "key", "value", "past_key", "past_value", "lengths", "total"],
    ATTENTION: ["query", "key", "value", "mask"],
}
Graph = tuple[dict[str, Array], dict[str, Any]]


def _multi_head(case: Case) -> Graph | str:
    row = case.row
    if row.grouped:
        return "MultiHeadAttention has no grouped heads"
    if row.sees == "window":
        return "MultiHeadAttention has no window"
    inputs = {"query": _flat(case.query), "key": _flat(case.key), "value": _flat(case.value)}
    if case.padding is not None:
        inputs["padding"] = np.array(row.lengths, np.int32)
    if case.mask is not None:
        inputs["bias"] = np.where(case.mask, 0, -np.inf).astype(case.query.dtype)[None, None]
    if case.bias is not None:
        inputs["bias"] = case.bias[None]
    return inputs, {"num_heads": row.H, "unidirectional": int(row.sees == "causal")}


def _by_heads(case: Case) -> Graph | str:
    graph = _multi_head(case)
    if isinstance(graph, str):
        return graph
    inputs, attributes = graph
    return inputs | {"key": case.key, "value": case.value}, attributes


def _grouped(case: Case) -> Graph | str:
    """As a decoder calls it: causal, and for one query with a cache that it grows in place."""
    row = case.row
    if row.kind != "decoding" and row.sees not in ("causal", "window"):
        return "GroupQueryAttention is causal"
    new = slice(row.Nk - row.Nq, None)
    inputs = {
        "query": _flat(case.query), "key": _flat(case.key[:, :, new]),
        "value": _flat(case.value[:, :, new]),
        "lengths": np.full(row.B, row.Nk - 1, np.int32), "total": np.array(row.Nk, np.int32),
    }  # fmt: skip
    if row.kind == "decoding":
        inputs |= {"past_key": case.key.copy(), "past_value": case.value.copy()}
    attributes = {"num_heads": row.H, "kv_num_heads": row.Hkv}
    if row.sees == "window":
        attributes["local_window_size"] = WINDOW
    return inputs, attributes


def _standard(case: Case) -> Graph | str:
    if case.row.sees == "window":
        return "Attention has no window"
    inputs = {"query": case.query, "key": case.key, "value": case.value}
    if case.padding is not None:
        inputs["mask"] = case.padding_matrix
    for x in (case.mask, case.bias):
        if x is not None:
            inputs["mask"] = x
    return inputs, {"is_causal": int(case.row.sees == "causal")}


def _flat(x: Array) -> Array:
    """(B, H, N, D) as (B, N, H·D)."""
    B, H, N, D = x.shape
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(B, N, H * D)


def _heads_first(y: Array, H: int) -> Array:
    B, N, width = y.shape
    return y.reshape(B, N, H, width // H).swapaxes(1, 2)
