"""The cache: it holds what was appended, and attention over it is attention over all."""

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import ENGINES, NATIVE, draw, draw_call
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard import KVCache, masks


def rows(seed, n, lead=(2, 3), D=5, Dv=7, dtype=np.float32):
    return draw(seed, (*lead, n, D), (*lead, n, Dv), dtype=dtype)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("atfs"), st.integers(0, 40)), max_size=25), st.integers(1, 9)
)
def test_any_history_holds_what_lists_would(steps, room):
    """append, truncate, fork, and switching between the forks, against plain concatenation."""
    empty = rows(0, 0)
    caches, plain = [KVCache(room=room)], [empty]
    caches[0].append(*empty)
    now = 0
    for i, (step, n) in enumerate(steps):
        if step == "a":
            new = rows(i + 1, n)
            assert caches[now].append(*new) == plain[now][0].shape[-2]
            plain[now] = [
                np.concatenate(pair, axis=-2) for pair in zip(plain[now], new, strict=True)
            ]
        elif step == "t":
            n = min(n, len(caches[now]))
            caches[now].truncate(n)
            plain[now] = [x[..., :n, :] for x in plain[now]]
        elif step == "f":
            caches.append(caches[now].fork())
            plain.append(plain[now])
        else:
            now = n % len(caches)
        for cache, (key, value) in zip(caches, plain, strict=True):
            assert len(cache) == key.shape[-2]
            np.testing.assert_array_equal(cache.key, key)
            np.testing.assert_array_equal(cache.value, value)


def test_appending_seldom_moves_what_is_held():
    cache, moves, place = KVCache(), 0, None
    for i in range(1000):
        cache.append(*rows(i, 1))
        moves += place != (place := cache.key.ctypes.data)
    assert moves <= 6
    assert cache.nbytes == 1000 * 2 * 3 * (5 + 7) * 4


def test_a_fork_shares_until_both_have_grown():
    cache = KVCache()
    cache.append(*rows(1, 11))
    twin = cache.fork()
    assert np.shares_memory(twin.key, cache.key)
    cache.append(*rows(2, 1))
    assert np.shares_memory(twin.key, cache.key)
    twin.append(*rows(3, 1))
    assert not np.shares_memory(twin.key, cache.key)


def test_forks_grow_at_the_same_time_each_in_a_thread(monkeypatch):
    """One may go on where they all were; which it is, only one of them may decide."""
    write, begin, (key, value) = regard.cache._Rows.write, threading.Barrier(4), rows(1, 7)
    monkeypatch.setattr(regard.cache._Rows, "write", lambda *a: (time.sleep(1e-3), write(*a)))
    cache = KVCache(room=256)
    cache.append(key, value)

    def grow(fork, i):
        new = [np.full_like(x, i) for x in (key, value)]
        begin.wait()
        for _ in range(5):
            fork.append(*new)
            fork.fork()  # and is gone
        return all((x[..., 7:, :] == i).all() for x in (fork.key, fork.value))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(grow, [cache.fork() for _ in range(4)], range(4)))
    np.testing.assert_array_equal(cache.key, key)


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_grows_apart(copied, dtype):
    copied(KVCache()).append(*rows(1, 11))
    cache = KVCache(dtype=dtype)
    cache.append(*rows(1, 11))
    twin = copied(cache)
    cache.append(*rows(2, 1))
    before = cache.key.copy(), cache.value.copy()
    twin.append(*rows(3, 1))
    np.testing.assert_array_equal(cache.key, before[0])
    np.testing.assert_array_equal(cache.value, before[1])
    np.testing.assert_array_equal(twin.key[..., :11, :], before[0][..., :11, :])


def test_a_deep_copy_shares_nothing():
    cache = KVCache()
    cache.append(*rows(1, 11))
    twin = copy.deepcopy(cache)
    np.testing.assert_array_equal(twin.value, cache.value)
    assert not np.shares_memory(twin.key, cache.key)


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_one_token_at_a_time_is_bit_for_bit_the_whole(name, dtype):
    q, k, v = draw_call(5, H=6, Hkv=3, Nq=67, Nk=67, dtype=dtype)
    whole = regard.attention(q, k, v, causal=True, engine=name)
    cache = KVCache()
    at = cache.append(k[..., :31, :], v[..., :31, :])
    parts = [
        regard.attention(q[..., :31, :], cache.key, cache.value, causal=True, align=at, engine=name)
    ]
    for i in range(31, 67):
        one = (..., slice(i, i + 1), slice(None))
        at = cache.append(k[one], v[one])
        parts.append(
            regard.attention(q[one], cache.key, cache.value, causal=True, align=at, engine=name)
        )
    np.testing.assert_array_equal(np.concatenate(parts, axis=-2), whole)


@pytest.mark.parametrize("engine", [e for e in ENGINES if e != "reference"])
def test_a_window_drops_segments_and_keeps_the_bits(engine):
    window, N = 701, 6007
    q, k, v = draw_call(6, lead=(), H=2, Hkv=1, Nq=N, Nk=N, D=3, Dv=2, dtype=np.float32)
    seen = masks.window(window, 0)
    whole = regard.attention(q, k, v, causal=True, mask=seen, engine=engine)
    cache, begin = KVCache(window=window), 0
    for n in (3001, 1, 997, 1500, 2, 506):
        part = (..., slice(begin, begin + n), slice(None))
        at = cache.append(k[part], v[part])
        begin += n
        y = regard.attention(
            q[part], cache.key, cache.value, causal=True, mask=seen, align=at, engine=engine
        )
        if engine in NATIVE:
            np.testing.assert_array_equal(y, whole[part])
        np.testing.assert_allclose(y, whole[part], atol=1e-5)
        assert len(cache) == begin
        assert cache.start % 2048 == 0
    assert cache.start == 4096
    assert cache.key.shape[-2] == N - 4096
    with pytest.raises(
        ValueError,
        match="n must be 4797 or more: the window of 701 dropped the tokens before 4096, got 4796",
    ):
        cache.truncate(4796)
    cache.truncate(4797)
    np.testing.assert_array_equal(cache.key, k[..., 4096:4797, :])


def test_int8_is_within_a_254th_of_each_rows_largest():
    key, value = rows(7, 13)
    key[0, 0, 3] *= 1e6  # its own scale: the other rows' errors stay small
    key[0, 0, 4] = 0
    key[1, 2, 5, 0] = np.inf
    key[1, 2, 6, 1] = np.nan
    cache = KVCache(dtype=np.int8)
    cache.append(key[..., :9, :], value[..., :9, :])
    cache.append(key[..., 9:, :], value[..., 9:, :])
    assert cache.key.dtype == np.float32
    assert cache.nbytes == 13 * 2 * 3 * (5 + 7 + 2 * 4)
    for held, given_ in ((cache.key, key), (cache.value, value)):
        spoilt = ~np.isfinite(given_).all(axis=-1)
        assert np.isnan(held[spoilt]).all()
        error = np.abs(held - given_)[~spoilt]
        bound = np.abs(given_[~spoilt]).max(axis=-1, keepdims=True) / 254
        assert np.all(error <= bound * (1 + 1e-5))
        assert error.max() > 0
    np.testing.assert_array_equal(cache.key[0, 0, 4], 0)


def test_attention_over_int8():
    q, k, v = draw_call(8, Nq=1, Nk=101, dtype=np.float32)
    cache = KVCache(dtype="int8")
    cache.append(k, v)
    error = np.abs(regard.attention(q, cache.key, cache.value) - regard.attention(q, k, v)).max()
    assert 0 < error < 0.02  # values to ±2: half a step of them is 0.008


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_float32_is_rounded_once_into_16_bits(name):
    dtype = (
        np.dtype(name)
        if name != "bfloat16"
        else np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    )
    key, value = rows(9, 11)
    cache = KVCache(dtype=dtype)
    cache.append(key, value)
    assert cache.key.dtype == dtype
    np.testing.assert_array_equal(cache.key, key.astype(dtype))
    assert cache.nbytes == 11 * 2 * 3 * (5 + 7) * 2


@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (lambda c: KVCache(dtype=np.int16), TypeError, "dtype must be one of float16, .*int8, got int16"),
        (lambda c: KVCache(window=-1), ValueError, "window must be an int of 0 or more, or None, got -1"),
        (lambda c: KVCache(room=0), ValueError, "room must be an int of 1 or more, got 0"),
        (lambda c: KVCache().key, ValueError, "an empty cache has no keys"),
        (lambda c: c.append(*rows(1, 1, lead=(2, 2))), ValueError, r"key must have the cache's \(2, 3\) sequences and heads of size 5, got \(2, 2, 1, 5\)"),
        (lambda c: c.append(*rows(1, 1, Dv=6)), ValueError, r"value must have the cache's \(2, 3\) sequences and heads of size 7"),
        (lambda c: c.append(rows(1, 1)[0], rows(1, 2)[1]), ValueError, "key and value must be alike but for the last axis"),
        (lambda c: c.append(*rows(1, 1, dtype=int)), TypeError, "key must be an array of float16, bfloat16, float32, float64, got int64"),
        (lambda c: c.truncate(4), ValueError, "n must be an int from 0 to 3, got 4"),
        (lambda c: c.truncate(-1), ValueError, "n must be an int from 0 to 3, got -1"),
    ],
)  # fmt: skip
def test_what_does_not_fit(act, error, says):
    cache = KVCache()
    cache.append(*rows(0, 3))
    with pytest.raises(error, match=says):
        act(cache)
    assert len(cache) == 3


def test_it_says_what_it_is():
    cache = KVCache(window=5)
    assert repr(cache) == "KVCache(0 tokens, empty, None, window 5, from 0)"
    cache.append(*rows(0, 3))
    assert repr(cache) == "KVCache(3 tokens, keys (2, 3, 3, 5), float32, window 5, from 0)"
