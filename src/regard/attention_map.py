"""The weights of one call, exact and on demand."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .engines import tiled
from .predicates import Array, first_position
from .problem import Index, Problem, Result, is_float
from .steps import Row, steps_of
from .summaries import Summaries
from .weights import Block, Weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AttentionMap"]

GIB = 2**30


class AttentionMap(Summaries):
    """What one call of attention attended to: made by `regard.look`, or of any weights.

    Every statistic is computed block by block from the exact weights, in memory that grows with
    Nq + Nk, and counts a hidden pair as weight 0.

    Attributes
    ----------
    output : (*lead, H, Nq, Dv) array or None
        What `regard.attention` returns; None where `look` was given no value.
    lse : (*lead, H, Nq) array or None
        Natural logarithm of the softmax's denominator; None for weights from elsewhere.
    weights : Weights
        Array-like of shape (*lead, H, Nq, Nk), computed where it is indexed and never kept.
    visible : Weights
        Array-like of bool, alike: False where a pair is hidden.
    limit : int
        The most bytes that one indexing may form, 1 GiB at first; may be raised.

    Notes
    -----
    The arrays of the call are kept, not copied: do not change them while you look.

    Examples
    --------
    >>> import numpy as np, regard
    >>> q = k = v = np.eye(3)
    >>> attended = regard.look(q, k, v, causal=True)
    >>> attended.weights[-1].round(3)
    array([0.264, 0.264, 0.471])
    >>> attended.received().round(3)  # what each key gets, over all queries
    array([1.624, 0.905, 0.471])
    """

    def __init__(self, problem: Problem, result: Result, has_output: bool) -> None:
        bare = (0,) if problem.bare else ()
        self.output: Array | None = result.output[bare] if has_output else None
        self.lse: Array | None = result.lse_of()[bare]
        self.limit = GIB
        self._problem: Problem | None = problem
        self._weights_of: Block = result.weights_of
        self._look = result.look
        self._bare = bare
        self._whole = problem.shape  # (*lead, H, Nq, Nk), with heads
        self._start = problem.start
        self._dtype = problem.dtype
        self._seen: Block | None = None

    @classmethod
    def from_weights(
        cls, weights: Any, *, align: Any = None, visible: Array | None = None
    ) -> AttentionMap:
        """A map of weights from anywhere: all that does not need queries and keys.

        Parameters
        ----------
        weights : (*lead, H, Nq, Nk) array of float
            Or (Nq, Nk), one head. Kept, not copied. 16-bit weights are widened where they are read.
        align : {"top-left", "bottom-right"}, int, or (*lead,) array of int
            The position of query 0 among the keys, as in `regard.attention`; default "top-left".
        visible : bool array
            Broadcasts to the weights; False = hidden, for pictures. Default: all are visible.

        Returns
        -------
        AttentionMap
            Its `output` and `lse` are None.

        Raises
        ------
        TypeError, ValueError
            If the weights are no floats, have fewer than two axes, or one is negative.

        Examples
        --------
        >>> AttentionMap.from_weights(np.array([[1.0, 0.0], [0.25, 0.75]])).top(1)[1]
        array([[0],
               [1]])
        """
        weights = np.asanyarray(weights)
        if not is_float(weights.dtype):
            raise TypeError(f"weights must be an array of float, got {weights.dtype}")
        if weights.ndim < 2:
            raise ValueError(f"weights must be (*lead, H, Nq, Nk), got {weights.shape}")
        if weights.size and any((x < 0).any() for x in weights.reshape(-1, *weights.shape[-2:])):
            raise ValueError("weights must not be negative")
        dtype = np.result_type(weights.dtype, np.float32)
        bare = weights.ndim == 2
        whole = weights[None] if bare else weights
        align = "top-left" if align is None else align
        return cls._of(
            lambda index, rows, columns: whole[index][np.ix_(rows, columns)].astype(dtype),
            whole.shape,
            dtype,
            start=first_position(align, whole.shape[-2], whole.shape[-1]),
            bare=bare,
            seen=None if visible is None else _blocks_of(np.broadcast_to(visible, whole.shape)),
        )

    @classmethod
    def _of(
        cls,
        weights_of: Block,
        whole: Index,
        dtype: Any,
        *,
        start: Array,
        bare: bool = False,
        seen: Block | None = None,
    ) -> AttentionMap:
        """A map of weights that a function gives, (*lead, H, Nq, Nk) of them."""
        made = cls.__new__(cls)
        made.output = made.lse = made._problem = made._look = None
        made.limit = GIB
        made._weights_of, made._whole, made._dtype = weights_of, whole, np.dtype(dtype)
        made._start, made._seen = start, seen
        made._bare = (0,) if bare else ()
        return made

    @property
    def weights(self) -> Weights:
        return Weights(self._block, self._shape, self._dtype, self.limit)

    @property
    def visible(self) -> Weights:
        return Weights(self._visible, self._shape, bool, self.limit, "visible pairs")

    @property
    def _shape(self) -> Index:
        return self._whole[len(self._bare) :]

    def __repr__(self) -> str:
        return f"AttentionMap(weights {self._shape}, {self._dtype})"

    def plot(
        self,
        head: int | tuple[int, ...] | None = None,
        tokens: Sequence[str] | None = None,
        **options: Any,
    ) -> Figure:
        """The weights as a heat map: of one head, or of all heads beside each other.

        Parameters
        ----------
        head : int or tuple of int
            Its number, or (batch, head). Left out where there are more heads than one, the picture
            is of all.
        tokens : list of str
            One for each query, where one head is drawn.
        **options
            As in `regard.pictures.heat` and `regard.pictures.heads`.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> q = k = np.eye(3)
        >>> figure = regard.look(q, k, causal=True).plot(tokens=["the", "law", "is"])
        >>> figure.axes[0].get_xlabel()
        'key (column)'
        """
        from . import pictures  # the one thing below that reaches up, and only when it is called

        if head is None and tokens is None and prod(self._shape[:-2]) != 1:
            return pictures.heads(self, **options)
        return pictures.heat(self, head, tokens, **options)

    def _repr_html_(self) -> str:
        """What a notebook shows: a small picture, offline, in light and dark."""
        from .pictures.inline import attention_map_html

        return attention_map_html(self)

    def _block(self, head: Index, rows: Array, columns: Array) -> Array:
        return self._weights_of((*self._bare, *head), rows, columns)

    def _visible(self, head: Index, rows: Array, columns: Array) -> Array:
        index = (*self._bare, *head)
        if self._problem is not None:
            return tiled.scores_of(self._problem, index, rows, columns) != -np.inf
        if self._seen is None:
            return np.ones((len(rows), len(columns)), bool)
        return self._seen(index, rows, columns)

    def row(self, *index: int) -> Row:
        """How the weights of one query come about, step by step; prints as a table.

        Parameters
        ----------
        *index : int
            Of the row: (*lead, head, query). Axes of length 1 at the front may be left out.

        Returns
        -------
        Row
            scores, shifted, exponentials and weights, (Nk,) each. Computed in NumPy: the engine's
            weights are these to rounding.

        Raises
        ------
        IndexError
            If there is no such row.
        ValueError
            If the map was made from weights, which do not tell the scores.

        Examples
        --------
        >>> q = k = np.eye(3)
        >>> print(regard.look(q, k, causal=True).row(1))
        query 1: the largest score is 0.5774, the sum of the exponentials 1.561
            key       score   - largest         exp       / sum
              0           0     -0.5774      0.5614      0.3595
              1      0.5774           0           1      0.6405
        and 1 hidden ones
        """
        if self._problem is None:
            raise ValueError("this map was made from weights: the scores behind them are not known")
        axes = self._whole[:-1]
        ones = len(axes) - len(index)
        if ones < 0 or any(n != 1 for n in axes[:ones]):
            raise IndexError(f"a row's index must be one int for each of {self._shape[:-1]}, "
                             f"got {index}")  # fmt: skip
        full = (*(0,) * ones, *index)
        for i, n in zip(full, axes, strict=True):
            if not -n <= i < n:
                raise IndexError(f"a row's index must lie within {self._shape[:-1]}, got {index}")
        *head, query = (int(i) % n for i, n in zip(full, axes, strict=True))
        return steps_of(self._problem, tuple(head), query)


def _blocks_of(whole: Array) -> Block:
    return lambda index, rows, columns: whole[index][np.ix_(rows, columns)]
