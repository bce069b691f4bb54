"""The BERT family: encoders that see the whole text at once.

Wiring and weight names; the mathematics is in `attention`, `look` and `elementwise`.
Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from ..corpus import Averages
from ..elementwise import ACTIVATIONS
from ..nn import MLP, Embedding, LayerNorm, Linear
from ..nn.attention import token_by_token
from ..predicates import Array
from ..trace import Trace
from .loading import Source
from .looking import Heads, Watch, compared, heads_off
from .pooling import read_pooling
from .settings import Settings
from .tensors import Tensors
from .text import embed, encode

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Bert", "Layer", "linear", "norm", "packed"]

Attend = Callable[[Array, Array, Array], Array]
Activation = Callable[..., Array]


class Layer(NamedTuple):
    """The weights of one layer; D hidden size, F inner size."""

    qkv: Linear  # (3D, D): queries, keys and values in one product
    attention: Linear  # (D, D)
    attention_norm: LayerNorm  # (D,)
    mlp: MLP  # (F, D), then (D, F)
    output_norm: LayerNorm  # (D,)


class Bert:
    """A BERT encoder on NumPy: made by `regard.models.load`.

    Attributes
    ----------
    tokenizer : tokenizers.Tokenizer
        Neither cuts nor pads.
    positions : int
        The most tokens that the model can place.
    width : int
        D, the length of a hidden state and of an embedding.
    """

    def __init__(self, source: Source) -> None:
        settings, tensors = source.settings, source.tensors
        self.width = D = settings.size("hidden_size")
        self.folder = source.folder
        self.heads = settings.size("num_attention_heads", divides=D)
        self.positions = settings.size("max_position_embeddings")
        self.epsilon = settings.number("layer_norm_eps", 1e-12)
        self.activation = settings.choice("hidden_act", ACTIVATIONS)
        settings.choice("position_embedding_type", {"absolute": None}, "absolute")
        tensors.below("embeddings.word_embeddings.weight")
        E = self._embedding_size(settings)
        words, kinds = settings.size("vocab_size"), settings.size("type_vocab_size")
        name = "embeddings.{}_embeddings.weight"
        self._words = Embedding(tensors.held(name.format("word"), (words, E)))
        self._places = tensors.take(name.format("position"), (self.positions, E))
        self._kind = tensors.take(name.format("token_type"), (kinds, E))[0]  # one text
        self._norm = norm(tensors, "embeddings.LayerNorm", E, self.epsilon)
        self._layers = self._read_layers(settings, tensors)
        self.tokenizer: Tokenizer = source.tokenizer

    def _embedding_size(self, settings: Settings) -> int:
        return self.width

    def _read_layers(self, settings: Settings, tensors: Tensors) -> list[Layer]:
        F = settings.size("intermediate_size")
        return [
            _layer(tensors, f"encoder.layer.{i}", self.width, F, self.epsilon, self.activation)
            for i in range(settings.size("num_hidden_layers"))
        ]

    def __repr__(self) -> str:
        layers = f"{len(self._layers)} layers of {self.heads} heads"
        return f"{type(self).__name__}({self.folder.name}: {layers}, D {self.width})"

    def __call__(self, ids: Any) -> Array:
        """The last hidden state of token ids.

        Parameters
        ----------
        ids : (N,) or (B, N) array of int
            Without padding: a text alone, or texts of one length.

        Returns
        -------
        (N, D) or (B, N, D) array of float32

        Raises
        ------
        TypeError, ValueError
            If the ids are no ints, not in the vocabulary, or more than the model can place.
        """
        return self._forward(self._check(ids), token_by_token)

    @overload
    def look(
        self, text: str, *, truncate: bool = ..., without: Iterable[tuple[int, int]] = ...
    ) -> Trace: ...
    @overload
    def look(
        self,
        text: list[str] | tuple[str, ...],
        *,
        truncate: bool = ...,
        without: Iterable[tuple[int, int]] = ...,
    ) -> Averages: ...
    def look(
        self,
        text: str | list[str] | tuple[str, ...],
        *,
        truncate: bool = False,
        without: Iterable[tuple[int, int]] = (),
    ) -> Trace | Averages:
        """What each head of each layer attends to in a text, or on average in many.

        Parameters
        ----------
        text : str, or list of str
        truncate : bool
            Cut a text of more tokens than the model has positions, instead of refusing it.
        without : list of (layer, head)
            Heads that are switched off: what they would bring to the layer's output is 0. The
            trace's `changes` and `token_changes` tell what that changed.

        Returns
        -------
        Trace
            Of a text.
        Averages
            Of a list of texts: statistics of each head over all of them.

        Raises
        ------
        ValueError
            If a text is too long and `truncate` is False, or there is no such head.
        """
        off = heads_off(without, len(self._layers), self.heads)
        return compared(partial(self._look, truncate), text, off)

    def _look(self, truncate: bool, text: str, off: Heads, plain: Trace | None) -> Trace:
        encoding = encode(self.tokenizer, text, self.positions, truncate)
        watch = Watch(off)

        def looked_at(q: Array, k: Array, v: Array) -> Array:
            return watch.attend(self._layers[len(watch.maps)].attention.wide(), q, k, v)

        hidden = self._forward(self._check(encoding.ids), looked_at)
        return Trace(
            text, encoding.tokens, encoding.offsets, encoding.special_tokens_mask, watch.maps,
            words=encoding.word_ids, moved=watch.moved, hidden=hidden, without=off, plain=plain,
        )  # fmt: skip

    def embed(
        self,
        texts: Sequence[str],
        *,
        chunks: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> Array:
        """One vector for each text, pooled and normalised as the model's folder says.

        Parameters
        ----------
        texts : list of str
        chunks : bool
            A text with more tokens than the folder states is cut there, with a warning. With
            `chunks` it is taken in windows of that length instead, and its vector is their
            average, weighted by their tokens.
        progress : function, optional
            Called now and then with the number of windows done, and of all.

        Returns
        -------
        (len(texts), D) array of float32

        Raises
        ------
        ValueError
            If the folder does not say how to pool (modules.json): it is never assumed.
        """
        special = self.tokenizer.num_special_tokens_to_add(is_pair=False)
        pooling = read_pooling(self.folder, self.positions, special)
        return embed(self, pooling, texts, chunks, progress)

    @np.errstate(all="ignore")
    def _forward(self, ids: Array, attend: Attend) -> Array:
        x = self._embedded(ids)  # (…, N, D)
        for layer in self._layers:
            x = self._through(layer, x, attend)
        return x

    def _embedded(self, ids: Array) -> Array:
        return self._norm(self._words(ids) + self._places[: ids.shape[-1]] + self._kind)

    def _through(self, layer: Layer, x: Array, attend: Attend) -> Array:
        *lead, N, D = x.shape
        packed = layer.qkv(x).reshape(*lead, N, 3, self.heads, D // self.heads)
        q, k, v = np.moveaxis(packed, -3, 0).swapaxes(-3, -2)  # (…, H, N, HS) each, no copy
        heads = attend(q, k, v).swapaxes(-3, -2).reshape(*lead, N, D)  # side by side
        x = layer.attention_norm(layer.attention(heads), residual=x)
        return layer.output_norm(layer.mlp(x), residual=x)

    def _check(self, ids: Any) -> Array:
        ids = np.asarray(ids)
        if ids.dtype.kind not in "iu":
            raise TypeError(f"ids must be an array of int, got {ids.dtype}")
        if ids.ndim not in (1, 2) or not 1 <= ids.shape[-1] <= self.positions:
            raise ValueError(
                f"ids must be (N,) or (B, N) with N from 1 to {self.positions}, got {ids.shape}"
            )
        words = self._words.shape[0]
        if ids.size and not (ids.min() >= 0 and ids.max() < words):
            raise ValueError(f"ids must be in [0, {words}), got {ids.min()} … {ids.max()}")
        return ids


def _layer(
    tensors: Tensors, name: str, D: int, F: int, epsilon: float, activation: Activation
) -> Layer:
    return Layer(
        qkv=packed(tensors, f"{name}.attention.self", D),
        attention=linear(tensors, f"{name}.attention.output.dense", D, D),
        attention_norm=norm(tensors, f"{name}.attention.output.LayerNorm", D, epsilon),
        mlp=MLP(
            linear(tensors, f"{name}.intermediate.dense", F, D),
            linear(tensors, f"{name}.output.dense", D, F),
            activation,
        ),
        output_norm=norm(tensors, f"{name}.output.LayerNorm", D, epsilon),
    )


def packed(tensors: Tensors, name: str, D: int) -> Linear:
    """Queries, keys and values (3D, D) in one product."""
    parts = [linear(tensors, f"{name}.{part}", D, D) for part in ("query", "key", "value")]
    return Linear.stacked(*parts)


def linear(tensors: Tensors, name: str, out: int, into: int) -> Linear:
    """A product with a bias, its weight as it came."""
    weight = tensors.held(f"{name}.weight", (out, into))
    return Linear(weight, tensors.take(f"{name}.bias", (out,)))


def norm(tensors: Tensors, name: str, D: int, epsilon: float) -> LayerNorm:
    """A layer norm with weight and bias (D,)."""
    weight, bias = (tensors.take(f"{name}.{part}", (D,)) for part in ("weight", "bias"))
    return LayerNorm(weight, bias, epsilon)
