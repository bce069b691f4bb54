"""A row's bits are its own, whatever stands beside it; and no byte beside the arrays is touched."""

import os

import numpy as np
import pytest
from helpers import KINDS, NATIVE, draw_call, run_python, truth

import regard
from regard import masks
from regard.engines import native
from regard.problem import check

pytestmark = pytest.mark.skipif(not native.SETS, reason=native.WHY_NOT or "built")
each_set = pytest.mark.parametrize("engine", NATIVE)
each_kind = pytest.mark.parametrize(("engine", "dtype"), KINDS)
COMPUTED = [kind for kind in KINDS if kind[1] == "float32"] + [
    (name, "bfloat16") for name in native.PAIRS
]
NEAR = {"float32": 2e-6, "bfloat16": 2**-7}  # of outputs up to 2
TILE = 128


def typed(arrays, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return [x.astype(getattr(ml_dtypes, dtype, dtype)) for x in arrays]


def same(actual, expected):
    """Equal bit for bit, but that any NaN equals any other."""
    np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


def everything(seed, H, Nq, Nk):
    """Options that touch every step between the scores and the softmax."""
    rng = np.random.default_rng(seed)
    sinks = rng.standard_normal(H)
    bias = rng.standard_normal((H, Nq, Nk)).astype(np.float32)
    window = {"mask": masks.window(1301, 17), "align": "bottom-right"}
    return {
        "plain": {},
        "causal": {"causal": True, "align": "bottom-right"},
        "window from inside a segment": window,
        "array": {"mask": rng.random((H, Nq, Nk)) > 0.3},
        "bias": {"bias": bias},
        "softcap and sinks": {"softcap": 3.0, "sinks": sinks},
        "alibi": {"bias": regard.biases.alibi(rng.random(H) / 100), "align": 5},
        "all": {**window, "bias": bias, "softcap": 2.0, "sinks": sinks},
    }


NAMES = list(everything(0, 1, 1, 1))


def of_queries(options, start, rows):
    """The options of the same call with some of its queries only."""
    part = {**options, "align": start + rows.start}
    for option in ("mask", "bias"):
        if isinstance(part.get(option), np.ndarray):
            part[option] = part[option][:, rows]
    return part


def counters(q, k, v, engine, n, **options):
    """What the kernels say of a call: threads, tasks, segments split, few queries, not finite."""
    problem = check(q, k, v, **options)
    call = native.call_of(problem, engine)
    rows = [np.empty(problem.shape[:-1], problem.dtype) for _ in range(2)]
    output = np.empty(problem.output_shape, q.dtype)
    return call.run(native._bits(output), *rows, n)


@each_kind
@pytest.mark.parametrize("name", NAMES)
def test_bits_do_not_depend_on_threads_batch_or_the_split_of_the_queries(
    engine, name, dtype, threads
):
    H, Nq, Nk = 3, 41, 4099  # three segments, the last of three keys
    q, k, v = typed(draw_call(1, lead=(2,), H=H, Nq=Nq, Nk=Nk, D=7, Dv=5), dtype)
    options = everything(2, H, Nq, Nk)[name]
    start = int(check(q, k, v, **options).start)
    threads(1)
    whole = regard.look(q, k, v, engine=engine, **options)
    for n in (2, 3, 7):
        threads(n)
        again = regard.look(q, k, v, engine=engine, **options)
        same(again.output, whole.output)
        same(again.lse, whole.lse)
    alone = regard.attention(q[1], k[1], v[1], engine=engine, **options)
    same(alone, whole.output[1])
    for rows in (
        slice(0, 1),
        slice(17, 18),
        slice(40, 41),
        slice(0, 13),
        slice(13, 41),
        slice(3, 5),
    ):
        part = of_queries(options, start, rows)
        some = regard.look(q[:, :, rows], k, v, engine=engine, **part)
        same(some.output, whole.output[:, :, rows])
        same(some.lse, whole.lse[:, :, rows])


@each_set
@pytest.mark.parametrize("name", NAMES)
def test_output_and_listed_weights_are_those_of_float64(engine, name):
    H, Nq, Nk = 3, 41, 307
    q, k, v = draw_call(6, lead=(), H=H, Nq=Nq, Nk=Nk, D=13, Dv=11, dtype=np.float32)
    options = everything(7, H, Nq, Nk)[name]
    attended = regard.look(q, k, v, engine=engine, **options)
    output, weights, _ = truth(q, k, v, **options)
    np.testing.assert_allclose(attended.output, output, rtol=0, atol=2e-6)
    rows, columns = (
        np.random.default_rng(8).permutation(Nq),
        np.random.default_rng(9).permutation(Nk),
    )
    for listed, expected in (
        (attended.weights[1, rows], weights[1, rows]),
        (attended.weights[1, :, columns], weights[1, :, columns]),
    ):
        np.testing.assert_allclose(listed, expected, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(listed == 0, expected == 0)


@each_set
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_numbers_are_widened_and_the_output_rounded_once(engine, dtype):
    """The output is that of the same numbers in float32, as NumPy rounds it: to nearest even."""
    q, k, v = draw_call(10, lead=(), Nq=61, Nk=131, D=16, Dv=67)
    v *= 10.0 ** (np.arange(67) % 12 - 8)  # subnormal and large columns
    narrow = typed([q, k, v], dtype)
    wide = regard.attention(*(x.astype(np.float32) for x in narrow), engine=engine)
    same(regard.attention(*narrow, engine=engine), wide.astype(narrow[0].dtype))


@pytest.mark.parametrize(("engine", "dtype"), COMPUTED)
@pytest.mark.parametrize("Nk", [2047, 2048, 2049, 4099, 6151])
@pytest.mark.parametrize("name", ["causal", "window from inside a segment", "all"])
def test_bits_at_the_ends_of_segments(engine, dtype, name, Nk, threads):
    """Prefill, decoding, and decoding over several threads, with counters that say which it was."""
    H, Nq = 2, 37
    q, k, v = typed(draw_call(3, lead=(), H=H, Nq=Nq, Nk=Nk, D=67, Dv=63), dtype)
    options = everything(4, H, Nq, Nk)[name]
    start = int(check(q, k, v, **options).start)
    threads(2)
    whole = regard.look(q, k, v, engine=engine, **options)
    exact, _, lse = truth(q, k, v, **options)
    np.testing.assert_allclose(whole.output.astype(np.float64), exact, rtol=0, atol=NEAR[dtype])
    np.testing.assert_allclose(whole.lse, lse, rtol=0, atol=2e-6)
    assert not counters(q, k, v, engine, 1, **options)[3]
    for rows in (slice(0, 1), slice(36, 37), slice(20, 22)):
        part = of_queries(options, start, rows)
        tokens = np.ascontiguousarray(q[:, rows])
        for n in (1, 7):
            threads(n)
            one = regard.look(tokens, k, v, engine=engine, **part)
            same(one.output, whole.output[:, rows])
            same(one.lse, whole.lse[:, rows])
        took, _, split, few, _ = counters(tokens, k, v, engine, 7, **part)
        assert few
        segments = -(-Nk // 2048)
        assert split == (segments > 1)
        assert took == min(7, H * segments)


@each_kind
def test_any_strides_have_the_bits_of_the_contiguous_copy(engine, dtype):
    q, k, v = typed(draw_call(5, lead=(2,), H=3, Nq=11, Nk=301, D=9, Dv=7), dtype)
    rng = np.random.default_rng(6)
    bias, mask = (
        rng.standard_normal((2, 3, 11, 301)).astype(np.float32),
        rng.random((11, 301)) > 0.2,
    )
    rest = {"engine": engine, "softcap": 4.0}
    expected = regard.attention(q, k, v, bias=bias, mask=mask, **rest)
    views = {
        "columns first": lambda x: np.asfortranarray(x),
        "heads last": lambda x: np.ascontiguousarray(np.moveaxis(x, -3, -2)).swapaxes(-3, -2),
        "backwards": lambda x: np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1],
        "every third": lambda x: np.repeat(x, 3, axis=-1)[..., 1::3],
    }
    for view in views.values():
        bent_q, bent_k, bent_v, bent_bias = (view(x) for x in (q, k, v, bias))
        bent_mask = np.asfortranarray(mask)
        for rows in (slice(None), slice(0, 1)):
            actual = regard.attention(
                bent_q[:, :, rows], bent_k, bent_v, bias=bent_bias[:, :, rows], mask=bent_mask[rows], **rest
            )  # fmt: skip
            same(actual, expected[:, :, rows])


# ----------------------------------------------------------------------------- NaN and infinities

PAYLOADS = {
    "float16": (np.uint16, [0x7E00, 0x7C01, 0xFFFF, 0xFD23]),
    "bfloat16": (np.uint16, [0x7FC0, 0x7F81, 0xFFFF, 0xFF92]),
    "float32": (np.uint32, [0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0xFF923456]),
    "float64": (np.uint64, [0x7FF8 << 48, (0x7FF0 << 48) + 1, 2**64 - 1, 0xFFF9234567891234]),
}


@each_kind
@pytest.mark.parametrize("Nq", [67, 2])
@pytest.mark.parametrize("key", [40, 130])
def test_nan_of_any_payload_spoils_the_rows_that_see_it_alone(engine, dtype, Nq, key):
    bits, payloads = PAYLOADS[dtype]
    clean = typed(draw_call(7, lead=(), H=1, Nq=Nq, Nk=131, D=5, Dv=6), dtype)
    sees = np.random.default_rng(8).random((Nq, 131)) > 0.3
    sees[:, key] = np.arange(Nq) % 2 == 0
    calls = {"array": {"mask": sees}, "causal": {"causal": True, "align": key - Nq // 2}}
    for options in calls.values():
        expected = regard.attention(*clean, engine=engine, **options)
        sees_it = sees[:, key] if "mask" in options else np.arange(Nq) + options["align"] >= key
        assert 0 < sees_it.sum() < Nq
        for payload in payloads:
            for which, column in ((1, 2), (2, 3)):
                spoilt = [x.copy() for x in clean]
                spoilt[which].view(bits)[0, key, column] = payload
                actual = regard.attention(*spoilt, engine=engine, **options)
                columns = slice(None) if which == 1 else [column]
                assert np.isnan(actual[0, sees_it][:, columns].astype(np.float64)).all()
                same(actual[0, ~sees_it], expected[0, ~sees_it])
                if which == 2:
                    others = [c for c in range(6) if c != column]
                    same(actual[0][:, others], expected[0][:, others])


# ------------------------------------------------------------------- nothing beside the arrays


@pytest.mark.parametrize(("engine", "dtype"), COMPUTED)
def test_every_length_with_padding_that_poisons(engine, dtype):
    """Keys and queries in rooms of NaN: nothing beside the arrays may be read."""
    for N in range(1, 2 * TILE + 2):
        D, Dv = 1 + N % 19, 1 + N % 11
        q, k, v = typed(draw_call(9, lead=(), H=2, Nq=N, Nk=N, D=D, Dv=Dv), dtype)
        roomy = []
        for x in (q, k, v):
            room = np.full((x.shape[0], x.shape[1] + 9, x.shape[2] + 5), np.nan, x.dtype)
            roomy.append(room[:, 4 : 4 + N, 2 : 2 + x.shape[2]])
            roomy[-1][...] = x
        expected, _, _ = truth(q, k, v, causal=True)
        actual = regard.attention(*roomy, causal=True, engine=engine)
        np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=0, atol=NEAR[dtype])
        same(actual, regard.attention(q, k, v, causal=True, engine=engine))
        last = regard.attention(roomy[0][:, -1:], *roomy[1:], engine=engine)
        same(last, actual[:, -1:])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="protected pages are asked of a Unix system")
@each_kind
def test_buffers_that_end_at_an_unmapped_page(engine, dtype):
    """Every length to two tiles and one, the output too; many queries and one."""
    pytest.importorskip("ml_dtypes")
    ran = run_python(f"""
        import ctypes, mmap, ml_dtypes, numpy as np, regard
        dtype = np.dtype(getattr(ml_dtypes, "{dtype}", "{dtype}"))
        page = mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        rooms = {{}}
        def at_the_end(name, x):
            size = 2**20  # a room for each name, that is used again
            if name not in rooms:
                rooms[name] = mmap.mmap(-1, size + page)
                base = ctypes.addressof(ctypes.c_char.from_buffer(rooms[name]))
                assert libc.mprotect(ctypes.c_void_p(base + size), page, 0) == 0
            y = np.frombuffer(rooms[name], np.uint8, x.nbytes, size - x.nbytes).view(x.dtype)
            y = y.reshape(x.shape)
            y[...] = x
            return y
        rng = np.random.default_rng(0)
        for N in range(1, {2 * TILE + 2}):
            D, Dv = 1 + N % 19, 1 + N % 11
            q, k, v = (at_the_end(name, rng.standard_normal((2, N, n)).astype(dtype))
                       for name, n in (("q", D), ("k", D), ("v", Dv)))
            bias = at_the_end("bias", rng.standard_normal((N, N)).astype(dtype))
            mask = at_the_end("mask", rng.random((N, N)) > 0.2)
            out = at_the_end("out", np.zeros((2, N, Dv), dtype))
            regard.attention(q, k, v, bias=bias, mask=mask, engine="{engine}", out=out)
            regard.look(q, k, v, causal=True, engine="{engine}").weights[0, 0]
            last = at_the_end("last", np.ascontiguousarray(q[:, -1:]))
            regard.attention(last, k, v, bias=bias[-1:], mask=mask[-1:], engine="{engine}")
        print("read within bounds")
    """)
    assert ran == "read within bounds\n"
