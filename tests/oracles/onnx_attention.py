"""The Attention node of ONNX in terms of `regard`: the adapter, and the cases of the onnx package.

ONNX's words on the left, regard's on the right:
    past_key, past_value        keys before the new ones; align = how many
    nonpad_kv_seqlen            masks.lengths, align="bottom-right"
    neither                     align="top-left"
    left/right_window_size      masks.window, -1 is None
    attn_mask                   bool: mask; float: bias; short of keys: the rest is hidden
    (B, N, heads · depth)       split into heads
    qk_matmul_output, mode 3    the weights; modes 0 to 2 are scores, which regard does not return
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np

import regard


@dataclass(frozen=True)
class Case:
    name: str
    attributes: dict
    inputs: dict
    outputs: dict
    rtol: float
    atol: float


@cache
def cases() -> list[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's own reference divides by zero in a few of them
        import onnx.backend.test.case.node as node
        import onnx.backend.test.case.node.attention  # noqa: F401
    return [_case(c) for c in node._NodeTestCases if c.model.graph.node[0].op_type == "Attention"]


def _case(case) -> Case:
    from onnx import helper

    (node,) = case.model.graph.node
    given, expected = case.data_sets[0]
    names = [name for name in node.input if name]
    outputs = [name for name in node.output if name]
    formal = ["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]
    roles = {name: formal[i] for i, name in enumerate(node.input) if name}
    results = ["Y", "present_key", "present_value", "qk_matmul_output"]
    out_roles = {name: results[i] for i, name in enumerate(node.output) if name}
    return Case(
        case.name,
        {a.name: helper.get_attribute_value(a) for a in node.attribute},
        {roles[n]: np.asarray(x) for n, x in zip(names, given, strict=True)},
        {out_roles[n]: np.asarray(x) for n, x in zip(outputs, expected, strict=True)},
        case.rtol,
        case.atol,
    )


def run(case: Case, engine: str) -> dict[str, np.ndarray]:
    """The case's outputs, computed by regard."""
    attributes, inputs = case.attributes, case.inputs
    flat = inputs["Q"].ndim == 3
    q = _heads(inputs["Q"], attributes.get("q_num_heads"))
    k = _heads(inputs["K"], attributes.get("kv_num_heads"))
    v = _heads(inputs["V"], attributes.get("kv_num_heads"))
    align: object = "top-left"
    if "past_key" in inputs:
        align = inputs["past_key"].shape[-2]
        k = np.concatenate([inputs["past_key"], k], axis=-2)
        v = np.concatenate([inputs["past_value"], v], axis=-2)
    mask, bias = _mask_and_bias(inputs.get("attn_mask"), k.shape[-2])
    if "nonpad_kv_seqlen" in inputs:
        align = "bottom-right"
        mask = _and(mask, regard.masks.lengths(inputs["nonpad_kv_seqlen"]))
    left = attributes.get("left_window_size", -1)
    right = attributes.get("right_window_size", -1)
    window = regard.masks.window(None if left < 0 else left, None if right < 0 else right)
    attended = regard.look(
        q, k, v, mask=_and(mask, window), bias=bias, causal=bool(attributes.get("is_causal", 0)),
        align=align, scale=attributes.get("scale"), softcap=attributes.get("softcap") or None,
        engine=engine,
    )  # fmt: skip
    y = attended.output
    if flat:
        y = y.swapaxes(1, 2).reshape(y.shape[0], y.shape[2], -1)
    outputs = {"Y": y, "present_key": k, "present_value": v}
    if attributes.get("qk_matmul_output_mode") == 3:
        outputs["qk_matmul_output"] = np.asarray(attended.weights)
    return outputs


def _heads(x: np.ndarray, heads: int | None) -> np.ndarray:
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def _mask_and_bias(attn_mask, Nk):
    if attn_mask is None:
        return None, None
    missing = Nk - attn_mask.shape[-1] if attn_mask.shape[-1] != 1 else 0
    hidden = False if attn_mask.dtype == bool else -np.inf
    width = [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)]
    whole = np.pad(attn_mask, width, constant_values=hidden)
    return (whole, None) if whole.dtype == bool else (None, whole)


def _and(mask, structured):
    return structured if mask is None else structured & mask
