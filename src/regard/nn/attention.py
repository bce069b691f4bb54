"""Multi-head attention as a layer: projections, heads, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import call
from ..attention_map import AttentionMap
from ..cache import KVCache
from ..predicates import Array
from .linear import Linear, alike

__all__ = ["MultiHeadAttention", "token_by_token"]

Turn = Callable[[Array], Array]
WORTH = 2**16  # numbers, of which a copy takes longer than a call with a place for its output


class MultiHeadAttention:
    """Queries from x, keys and values from x or from a context, through heads and one projection.

    Parameters
    ----------
    query : Linear
        To H·D numbers, head after head.
    key : Linear
        To Hkv·D.
    value : Linear
        To Hkv·Dv.
    output : Linear
        From H·Dv.
    heads : int
        H.
    kv_heads : int, optional
        Hkv, of which H is a multiple; default H.

    Examples
    --------
    >>> import numpy as np, regard
    >>> rng = np.random.default_rng(0)
    >>> Wq, Wk, Wv = rng.standard_normal((3, 2, 6, 4))  # 2 heads, each from depth 6 to 4
    >>> Wp = rng.standard_normal((8, 6))
    >>> layer = regard.nn.MultiHeadAttention.from_heads(Wq, Wk, Wv, Wp)
    >>> x = rng.standard_normal((1, 5, 6))
    >>> loop = regard.reference.multihead_attention_list(x, Wq, Wk, Wv, Wp)
    >>> bool(np.allclose(layer(x), loop))
    True

    References
    ----------
    Vaswani et al., "Attention Is All You Need", 2017, section 3.2.2; grouped heads: Ainslie et
    al., "GQA", 2023.
    """

    def __init__(
        self,
        query: Linear,
        key: Linear,
        value: Linear,
        output: Linear,
        heads: int,
        *,
        kv_heads: int | None = None,
    ) -> None:
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        self.output = output
        self._check(query, key, value)
        # One product where the weights are held alike; the three are then parts of it.
        together = alike(query, key, value)
        self.packed = Linear.stacked(query, key, value) if together else None
        if self.packed is not None:
            a, b = query.shape[0], query.shape[0] + key.shape[0]
            query, key, value = (self.packed.part(s) for s in np.s_[:a, a:b, b:])
        self.query, self.key, self.value = query, key, value

    def _check(self, query: Linear, key: Linear, value: Linear) -> None:
        H, Hkv = self.heads, self.kv_heads
        if H < 1 or Hkv < 1 or H % Hkv:
            raise ValueError(f"heads must be a multiple of kv_heads, got {H} and {Hkv}")
        wanted = (("query", query, H), ("key", key, Hkv), ("value", value, Hkv))
        for name, linear, n in wanted:
            if linear.shape[0] % n:
                raise ValueError(f"{name} must have a multiple of {n} outputs, got {linear}")
        if query.shape[0] // H != key.shape[0] // Hkv:
            raise ValueError(f"query and key must have one head size, got {query} and {key}")
        glued = H * (value.shape[0] // Hkv)
        if self.output.shape[1] != glued:
            raise ValueError(f"output must take the {glued} numbers of the heads: {self.output}")

    @classmethod
    def from_heads(
        cls, Wqs: Sequence[Array], Wks: Sequence[Array], Wvs: Sequence[Array], Wp: Array
    ) -> MultiHeadAttention:
        """From the loop form of `reference`: a (depth, head size) matrix a head, and Wp."""
        q, k, v = (Linear(np.concatenate([W.T for W in Ws])) for Ws in (Wqs, Wks, Wvs))
        output = Linear(np.ascontiguousarray(Wp.T))
        return cls(q, k, v, output, len(Wqs), kv_heads=len(Wks))

    @classmethod
    def from_torch(
        cls,
        in_proj_weight: Array,
        in_proj_bias: Array | None,
        out_proj_weight: Array,
        out_proj_bias: Array | None,
        heads: int,
    ) -> MultiHeadAttention:
        """From the arrays of a `torch.nn.MultiheadAttention`: (3·E, E), (3·E,), (E, E), (E,)."""
        packed, E = Linear(in_proj_weight, in_proj_bias), len(out_proj_weight)
        if packed.shape != (3 * E, E):
            raise ValueError(f"in_proj_weight must be {(3 * E, E)}, got {packed.shape}")
        q, k, v = (packed.part(slice(i, i + E)) for i in range(0, 3 * E, E))
        return cls(q, k, v, Linear(out_proj_weight, out_proj_bias), heads)

    def __repr__(self) -> str:
        grouped = "" if self.kv_heads == self.heads else f" on {self.kv_heads}"
        return f"MultiHeadAttention({self.heads} heads{grouped}, {self.query}, {self.output})"

    def split(self, x: Array, context: Array | None = None) -> tuple[Array, Array, Array]:
        """Queries (*lead, H, Nq, D), keys (*lead, Hkv, Nk, D), values (*lead, Hkv, Nk, Dv)."""
        if context is None and self.packed is not None:
            a, b = self.query.shape[0], self.query.shape[0] + self.key.shape[0]
            packed = self.packed(x)
            q, k, v = packed[..., :a], packed[..., a:b], packed[..., b:]
        else:
            source = x if context is None else context
            q, k, v = self.query(x), self.key(source), self.value(source)
        H, Hkv = self.heads, self.kv_heads
        return _to_heads(q, H), _to_heads(k, Hkv), _to_heads(v, Hkv)

    def __call__(
        self,
        x: Array,
        context: Array | None = None,
        *,
        causal: bool = False,
        align: Any = None,
        mask: Any = None,
        cache: KVCache | None = None,
        turn: Turn | None = None,
        attend: Callable[..., Array] = call.attention,
    ) -> Array:
        """x (*lead, Nq, depth) to (*lead, Nq, out).

        Parameters
        ----------
        x : (*lead, Nq, depth) array
        context : (*lead, Nk, depth of the keys) array, optional
            Where keys and values come from; default x.
        causal, align, mask
            As in `regard.attention`.
        cache : KVCache, optional
            Keys and values are appended to it, and the queries, placed at its end, see what it
            holds.
        turn : function, optional
            Applied to queries and to keys before they meet: `rotary` at their positions.
        attend : function
            Computes attention: `regard.attention`, or what stands in for it.
        """
        q, k, v = self.split(x, context)
        if turn is not None:
            q, k = turn(q), turn(k)
        if cache is not None:
            align = cache.append(k, v)
            k, v = cache.key, cache.value
        heads = attend(q, k, v, causal=causal, align=align, mask=mask)  # (*lead, H, Nq, Dv)
        glued = heads.swapaxes(-3, -2).reshape(*x.shape[:-1], self.output.shape[1])
        return self.output(glued)

    def look(
        self,
        x: Array,
        context: Array | None = None,
        *,
        causal: bool = False,
        align: Any = None,
        mask: Any = None,
    ) -> AttentionMap:
        """What each head attends to: the weights of the same call."""
        q, k, v = self.split(x, context)
        return call.look(q, k, v, causal=causal, align=align, mask=mask)


def token_by_token(query: Array, key: Array, value: Array, **options: Any) -> Array:
    """`regard.attention`, its output laid out so that to glue the heads together is no copy."""
    if query.size < WORTH:
        return call.attention(query, key, value, **options)
    *lead, H, Nq, _ = query.shape
    place = np.empty((*lead, Nq, H, value.shape[-1]), query.dtype).swapaxes(-3, -2)
    return call.attention(query, key, value, out=place, **options)


def _to_heads(x: Array, heads: int) -> Array:
    """(*lead, N, heads · size) to (*lead, heads, N, size), a view."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-3, -2)
