"""Keys and values of a sequence that grows, kept so that `attention` reads them where they lie."""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import ref

import numpy as np

from .predicates import Array

__all__ = ["KVCache"]

SEGMENT = 2048  # keys that the native engine reduces together, counted from key 0
LEAST = 64  # tokens that there is room for at first
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8")


class KVCache:
    """Keys and values of one layer, of sequences that grow together.

    Parameters
    ----------
    dtype : dtype, optional
        float16, bfloat16, float32, float64 or int8 to keep them in; default that of the first
        keys. int8 keeps of each row whole multiples of a 127th of its largest magnitude: no number
        is off by more than a 254th of that. A row with NaN or infinity becomes NaN.
    window : int, optional
        Queries see so many keys before their own (`masks.window(window, 0)`), and what none can
        see any more is dropped from the front, in whole segments of 2048 keys: so the output's
        bits stay those of the full computation.
    room : int
        Tokens that there is room for at first. When it is used up it doubles.

    Attributes
    ----------
    key, value : (*lead, Hkv, N, D) and (*lead, Hkv, N, Dv) arrays
        The N tokens that are held, views of the moment: the next `append` may move them, and one
        after `truncate` writes over them. int8 is made float32 anew at each use.
    start : int
        How many tokens were dropped from the front; key 0 of `key` has this position.

    Examples
    --------
    >>> import numpy as np, regard
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 2, 5, 4), dtype=np.float32)  # 2 heads, 5 tokens
    >>> cache = regard.KVCache()
    >>> for i in range(5):
    ...     at = cache.append(k[:, i : i + 1], v[:, i : i + 1])
    ...     y = regard.attention(q[:, i : i + 1], cache.key, cache.value, causal=True, align=at)
    >>> bool(np.allclose(y, regard.attention(q, k, v, causal=True)[:, -1:], atol=1e-6))
    True
    >>> len(cache), cache.key.shape
    (5, (2, 5, 4))
    """

    def __init__(self, *, dtype: Any = None, window: int | None = None, room: int = LEAST) -> None:
        if window is not None and (not _is_int(window) or window < 0):
            raise ValueError(f"window must be an int of 0 or more, or None, got {window!r}")
        if not _is_int(room) or room < 1:
            raise ValueError(f"room must be an int of 1 or more, got {room!r}")
        self.dtype = None if dtype is None else _checked_dtype(dtype)
        self.window = window
        self.start = 0
        self._room = room
        self._store: _Store | None = None
        self._begin = self._end = 0  # what is held lies there in the store

    def __len__(self) -> int:
        """Tokens that were appended, those dropped included: the next one's position."""
        return self.start + self._end - self._begin

    def __repr__(self) -> str:
        shape = "empty" if self._store is None else f"keys {self.key.shape}"
        window = "" if self.window is None else f", window {self.window}, from {self.start}"
        return f"KVCache({len(self)} tokens, {shape}, {self.dtype}{window})"

    @property
    def key(self) -> Array:
        return self._held().keys.read(self._begin, self._end)

    @property
    def value(self) -> Array:
        return self._held().values.read(self._begin, self._end)

    @property
    def nbytes(self) -> int:
        """Bytes of what is held, without the room to grow."""
        if self._store is None or not self._store.room:
            return 0
        return self._store.nbytes * (self._end - self._begin) // self._store.room

    def append(self, key: Array, value: Array) -> int:
        """Add tokens at the end.

        Parameters
        ----------
        key : (*lead, Hkv, n, D) array
        value : (*lead, Hkv, n, Dv) array

        Returns
        -------
        int
            Where the first of them lies among the keys held: the `align` of their queries.

        Raises
        ------
        TypeError, ValueError
            If they do not fit each other, or what is held.
        """
        if self._store is None or not self._store.fits(key, value):
            self._check(key, value)
        self._drop()
        at = self._end - self._begin
        if self._store is None or not self._store.take(self, key, value):
            self._move(key, value)
            self._held().take(self, key, value)
        return at

    def truncate(self, n: int) -> None:
        """Forget all but the first n tokens.

        Raises
        ------
        ValueError
            If there are fewer, or the window has dropped what the next query would see.
        """
        if not _is_int(n) or not 0 <= n <= len(self):
            raise ValueError(f"n must be an int from 0 to {len(self)}, got {n!r}")
        if self.start and n - (self.window or 0) < self.start:
            raise ValueError(
                f"n must be {self.start + (self.window or 0)} or more: the window of {self.window} "
                f"dropped the tokens before {self.start}, got {n}"
            )
        self._end = self._begin + n - self.start

    def fork(self) -> KVCache:
        """Another cache with the same tokens, which from here on grows apart.

        Nothing is copied until both have grown: then the second to grow takes a copy. Threads may
        grow one each at the same time.
        """
        twin = KVCache(dtype=self.dtype, window=self.window, room=self._room)
        twin.start, twin._store = self.start, self._store
        twin._begin, twin._end = self._begin, self._end
        if self._store is not None:
            self._store.add(twin)
        return twin

    __copy__ = fork

    def __deepcopy__(self, _: Any) -> KVCache:
        twin = self.fork()
        if twin._store is not None:
            twin._move(self.key[..., :0, :], self.value[..., :0, :])
        return twin

    def _held(self) -> _Store:
        if self._store is None:
            raise ValueError("an empty cache has no keys and values: append some first")
        return self._store

    def _check(self, key: Array, value: Array) -> None:
        for name, x in (("key", key), ("value", value)):
            if not isinstance(x, np.ndarray) or x.dtype.name not in DTYPES[:4]:
                got = getattr(x, "dtype", type(x).__name__)
                raise TypeError(f"{name} must be an array of {', '.join(DTYPES[:4])}, got {got}")
        if key.ndim < 2 or key.shape[:-1] != value.shape[:-1]:
            raise ValueError(
                f"key and value must be alike but for the last axis, got {key.shape}, {value.shape}"
            )
        for name, x in (("key", key), ("value", value)):
            held = None if self._store is None else getattr(self, name)[..., :0, :].shape
            if held is not None and (*x.shape[:-2], 0, x.shape[-1]) != held:
                wanted = f"{held[:-2]} sequences and heads of size {held[-1]}"
                raise ValueError(f"{name} must have the cache's {wanted}, got {x.shape}")

    def _drop(self) -> None:
        """Leave the segments that the next query and all after it cannot see."""
        if self.window is None:
            return
        unseen = len(self) - self.window - self.start
        dropped = max(unseen, 0) // SEGMENT * SEGMENT
        self.start += dropped
        self._begin += dropped

    def _move(self, key: Array, value: Array) -> None:
        """To a store of its own, with room for these tokens and more."""
        n, held, store = key.shape[-2], self._end - self._begin, self._store
        self.dtype = _checked_dtype(key.dtype) if self.dtype is None else self.dtype
        larger = _Store(key, value, self.dtype, max(self._room, 2 * held, held + n))
        if store is not None:
            larger.keys.copy(store.keys, self._begin, self._end)
            larger.values.copy(store.values, self._begin, self._end)
            store.leave(self)
        larger.add(self)
        self._store, self._begin, self._end = larger, 0, held


class _Store:
    """Room for tokens, and the caches that hold some of them; each may be a thread's own."""

    def __init__(self, key: Array, value: Array, dtype: np.dtype[Any], room: int) -> None:
        self.room = room
        self.keys = _Rows((*key.shape[:-2], room, key.shape[-1]), dtype)
        self.values = _Rows((*value.shape[:-2], room, value.shape[-1]), dtype)
        self._holders: list[ref[KVCache]] = []
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def fits(self, key: Array, value: Array) -> bool:
        """Whether these are surely such tokens; if not, a closer look decides."""
        return self.keys.fits(key) and self.values.fits(value) and key.shape[-2] == value.shape[-2]

    def add(self, cache: KVCache) -> None:
        with self._lock:
            self._holders.append(ref(cache))

    def leave(self, cache: KVCache) -> None:
        with self._lock:
            self._holders.remove(ref(cache))

    def take(self, cache: KVCache, key: Array, value: Array) -> bool:
        """Write a cache's next tokens after its own, unless room is short or others' lie there."""
        end = cache._end + key.shape[-2]
        with self._lock:
            if end > self.room or not self._is_last(cache):
                return False
            self.keys.write(cache._end, key)
            self.values.write(cache._end, value)
            cache._end = end
        return True

    def _is_last(self, cache: KVCache) -> bool:
        if len(self._holders) > 1:
            self._holders = [holder for holder in self._holders if holder() is not None]
        return len(self._holders) == 1 or all(
            (twin := holder()) is None or twin._end <= cache._end for holder in self._holders
        )


class _Rows:
    """Rows (…, room, D) as they are kept: with int8, one scale each."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.data = np.empty(shape, dtype)
        self.scales = np.empty((*shape[:-1], 1), np.float32) if dtype == np.int8 else None

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def fits(self, x: Array) -> bool:
        held = self.data
        return (
            type(x) is np.ndarray and x.dtype == held.dtype and x.ndim == held.ndim
            and x.shape[:-2] == held.shape[:-2] and x.shape[-1] == held.shape[-1]
        )  # fmt: skip

    def write(self, at: int, x: Array) -> None:
        part = (..., slice(at, at + x.shape[-2]), slice(None))
        if self.scales is None:
            self.data[part] = x
        else:
            self.data[part], self.scales[part] = _quantised(x)

    def read(self, begin: int, end: int) -> Array:
        part = (..., slice(begin, end), slice(None))
        return self.data[part] if self.scales is None else self.data[part] * self.scales[part]

    def copy(self, other: _Rows, begin: int, end: int) -> None:
        """Rows of another, as they are kept there, to the front."""
        self.data[..., : end - begin, :] = other.data[..., begin:end, :]
        if self.scales is not None and other.scales is not None:
            self.scales[..., : end - begin, :] = other.scales[..., begin:end, :]


def _quantised(x: Array) -> tuple[Array, Array]:
    """Multiples (…, D) in int8, and of what (…, 1): a 127th of the row's largest magnitude."""
    wide = x.astype(np.float32)
    most = np.abs(wide).max(axis=-1, keepdims=True, initial=0)
    scale = np.where(np.isfinite(most), most / np.float32(127), np.float32(np.nan))
    with np.errstate(all="ignore"):
        multiples = np.rint(wide / np.where(scale > 0, scale, np.float32(1)))
    return np.clip(np.nan_to_num(multiples), -127, 127).astype(np.int8), scale


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    kept = np.dtype(dtype)
    if kept.name not in DTYPES:
        raise TypeError(f"dtype must be one of {', '.join(DTYPES)}, got {kept}")
    return kept if kept.isnative else kept.newbyteorder("=")


def _is_int(x: Any) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)
