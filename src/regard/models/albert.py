"""The ALBERT family: BERT whose layers share their weights, with a narrower embedding.

Wiring and weight names; how a layer computes is BERT's.
Source: Lan et al., "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
2020.
"""

from __future__ import annotations

from ..nn import MLP
from ..predicates import Array
from .bert import Activation, Bert, Layer, linear, norm, packed
from .settings import Settings
from .tensors import Tensors

__all__ = ["Albert"]


class Albert(Bert):
    """An ALBERT encoder on NumPy: made by `regard.models.load`; all else is as in `Bert`."""

    def _embedding_size(self, settings: Settings) -> int:
        return settings.size("embedding_size")

    def _read_layers(self, settings: Settings, tensors: Tensors) -> list[Layer]:
        """A list that names each layer's weights as often as they are used; they are held once."""
        L, inner = settings.size("num_hidden_layers"), settings.size("inner_group_num", default=1)
        groups = settings.size("num_hidden_groups", default=1)
        D, F = self.width, settings.size("intermediate_size")
        if groups > L:
            raise settings.refuse("num_hidden_groups", f"must be at most {L}, the layers")
        self._map = linear(
            tensors, "encoder.embedding_hidden_mapping_in", D, self._embedding_size(settings)
        )
        name = "encoder.albert_layer_groups.{}.albert_layers.{}"
        sizes = D, F, self.epsilon, self.activation
        read = [
            [_layer(tensors, name.format(g, j), *sizes) for j in range(inner)]
            for g in range(groups)
        ]
        return [layer for i in range(L) for layer in read[i * groups // L]]

    def _embedded(self, ids: Array) -> Array:
        return self._map(super()._embedded(ids))


def _layer(
    tensors: Tensors, name: str, D: int, F: int, epsilon: float, activation: Activation
) -> Layer:
    return Layer(
        qkv=packed(tensors, f"{name}.attention", D),
        attention=linear(tensors, f"{name}.attention.dense", D, D),
        attention_norm=norm(tensors, f"{name}.attention.LayerNorm", D, epsilon),
        mlp=MLP(
            linear(tensors, f"{name}.ffn", F, D),
            linear(tensors, f"{name}.ffn_output", D, F),
            activation,
        ),
        output_norm=norm(tensors, f"{name}.full_layer_layer_norm", D, epsilon),
    )
