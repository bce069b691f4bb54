"""The layers of transformers: small classes that hold arrays and are called."""

from ..elementwise import ACTIVATIONS
from .attention import MultiHeadAttention
from .layers import MLP, Embedding, GatedMLP, LayerNorm, RMSNorm
from .linear import Linear
from .weights import Blocks

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "Blocks",
    "Embedding",
    "GatedMLP",
    "LayerNorm",
    "Linear",
    "MultiHeadAttention",
    "RMSNorm",
]
