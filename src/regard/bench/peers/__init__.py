"""The other libraries that compute attention on a CPU, each behind the same small class."""

from __future__ import annotations

import os

from . import jax, onnxruntime, openvino, pytorch
from .base import Candidate, Peer

__all__ = ["PEERS", "Candidate", "Peer", "load"]

PEERS: list[type[Peer]] = [
    pytorch.PyTorch, onnxruntime.OnnxRuntime, jax.Jax, openvino.OpenVino
]  # fmt: skip


def load(threads: int, wanted: list[str] | None = None) -> tuple[list[Peer], dict[str, str]]:
    """The peers that are installed, each with so many threads, and why the others are not there.

    Idle threads that spin take the processor from whoever runs next, so waiting is set to be
    passive before a peer is imported.
    """
    os.environ["OMP_WAIT_POLICY"] = "passive"
    found: list[Peer] = []
    absent: dict[str, str] = {}
    for peer in PEERS:
        if wanted is not None and peer.title.lower() not in wanted:
            absent[peer.title] = "not asked for"
            continue
        try:
            found.append(peer(threads))
        except ImportError as error:
            absent[peer.title] = f"not installed ({error})"
    return found, absent
