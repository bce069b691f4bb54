"""The native engine beyond what all engines pass: bits, threads, the exponential, the process."""

import os

import numpy as np
import pytest
from helpers import NATIVE, draw_call, run_python, truth, wait_for_ctrl_c

import regard
from regard import masks
from regard.engines import native
from regard.problem import check

pytestmark = pytest.mark.skipif(not native.SETS, reason=native.WHY_NOT or "built")
each_set = pytest.mark.parametrize("engine", NATIVE)


@each_set
@pytest.mark.parametrize("Nk", [2047, 2048, 2049, 4099, 6151])
def test_segments_agree_with_float64_and_with_one_thread(engine, Nk, threads):
    q, k, v = draw_call(3, lead=(), H=2, Nq=3, Nk=Nk, D=17, Dv=3, dtype=np.float32)
    expected, _, lse = truth(q, k, v)
    threads(2)
    attended = regard.look(q, k, v, engine=engine)
    np.testing.assert_allclose(attended.output, expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(attended.lse, lse, rtol=0, atol=2e-6)


@each_set
def test_segments_of_one_head_are_split_over_threads(engine):
    """The counters prove that the paths ran that the tests of bits compare."""
    q, k, v = draw_call(4, lead=(), H=1, Nq=1, Nk=40_001, D=64, Dv=64, dtype=np.float32)
    problem = check(q, k, v)
    call = native.call_of(problem, engine)
    rows = [np.empty(problem.shape[:-1], np.float32) for _ in range(2)]
    output = np.empty(problem.output_shape, np.float32)
    assert call.run(output, *rows, 2) == (2, 20, True, True, False)
    whole = output.copy()
    assert call.run(output, *rows, 1) == (1, 1, False, True, False)
    np.testing.assert_array_equal(output, whole)


@each_set
def test_small_calls_run_inline_and_large_ones_on_threads(engine):
    for Nq, expected in ((16, 1), (1024, 2)):
        problem = check(*draw_call(5, lead=(), H=4, Nq=Nq, Nk=Nq, D=16, Dv=16, dtype=np.float32))
        rows = [np.empty(problem.shape[:-1], np.float32) for _ in range(2)]
        output = np.empty(problem.output_shape, np.float32)
        assert native.call_of(problem, engine).run(output, *rows, 2)[0] == expected


@each_set
@pytest.mark.parametrize("H", [(8, 2), (6, 1)])
def test_grouped_heads_have_the_bits_of_their_own_call(engine, H):
    q, k, v = draw_call(6, lead=(), H=H[0], Hkv=H[1], Nq=3, Nk=301, D=9, dtype=np.float32)
    grouped = regard.attention(q, k, v, causal=True, align="bottom-right", engine=engine)
    for h in range(H[0]):
        kv = h // (H[0] // H[1])
        alone = regard.attention(
            q[h], k[kv], v[kv], causal=True, align="bottom-right", engine=engine
        )
        np.testing.assert_array_equal(grouped[h], alone)


def ulps(actual, exact):
    """Error in units in the last place of the exact value."""
    spacing = np.spacing(exact.astype(actual.dtype)).astype(np.longdouble)
    return np.abs((actual.astype(np.longdouble) - exact) / spacing)


@each_set
def test_the_exponential(engine):
    allowed = 1.25 if engine == "native-baseline" else 1  # the baseline cannot fuse its roundings
    x = np.linspace(-126, 0, 2_000_003).astype(np.float32)
    y = x.copy()
    native._native.power(engine, y)
    assert ulps(y, np.exp2(x.astype(np.longdouble))).max() <= allowed
    wide = np.linspace(-1022, 0, 1_000_003)
    y = wide.copy()
    native._native.power(engine, y)
    assert ulps(y, np.exp2(wide.astype(np.longdouble))).max() <= allowed
    for dtype, end in ((np.float32, -126), (np.float64, -1022)):
        x = np.array([0, -0.0, np.nextafter(dtype(end), dtype(-1e9)), -1e9, -np.inf], dtype)
        native._native.power(engine, x)
        np.testing.assert_array_equal(x, [1, 1, 0, 0, 0])
    nan = np.array([0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0xFF923456], np.uint32).view(np.float32)
    native._native.power(engine, nan)
    assert np.isnan(nan).all()


@pytest.mark.slow
@each_set
def test_the_exponential_of_every_float32(engine):
    """All of [-126, 0], 1.1 thousand million of them: at most one unit in the last place."""
    allowed = 1.25 if engine == "native-baseline" else 1
    last = int(np.float32(-126).view(np.uint32))
    for start in range(1 << 31, last + 1, 1 << 24):  # from -0 on, a chunk at a time
        x = np.arange(start, min(start + (1 << 24), last + 1), dtype=np.uint32).view(np.float32)
        y = x.copy()
        native._native.power(engine, y)
        if x[-1] > -(2.0**-20):  # 2^x is 1 + x·log(2), to 2^-42, and the unit is 2^-24
            exact, unit = x * np.log(2.0) + 1, 2.0**-24
        else:
            exact = np.exp2(x.astype(np.float64))
            unit = np.spacing(exact.astype(np.float32))
        assert (np.abs(y - exact) / unit).max() <= allowed


FORKED = """
    import os, warnings, numpy as np, regard
    warnings.simplefilter("ignore", DeprecationWarning)  # that forking with threads is bold
    x = np.random.default_rng(0).standard_normal((2, 1024, 64), dtype=np.float32)
    expected = regard.attention(x, x, x, engine="native")  # the pool has started
    pid = os.fork()
    if pid == 0:
        same = all(np.array_equal(regard.attention(x, x, x, engine="native"), expected) for _ in range(3))
        os._exit(0 if same else 1)
    print(os.waitpid(pid, 0)[1], np.array_equal(regard.attention(x, x, x, engine="native"), expected))
"""


UNEVEN = """
                regard.set_num_threads(2)
                q = np.zeros((4, 1, 16, 64), np.float32)
                x = np.broadcast_to(np.float32(0), (4, 1, 30_000_000, 64))
                mask = regard.masks.lengths([1_000_000, 30_000_000, 1, 1])
                regard.attention(q, x, x, mask=mask, engine="native")
"""


def test_ctrl_c_stops_one_long_head():
    call = (
        """x = np.zeros((1, 400_000, 64), np.float32); regard.attention(x, x, x, engine="native")"""
    )
    assert wait_for_ctrl_c(call, 0.3) < 1  # 0.2 s is promised, on a machine with time to spare


@pytest.mark.slow
def test_ctrl_c_stops_a_call_whose_caller_waits_for_its_helpers():
    assert wait_for_ctrl_c(UNEVEN.strip(), 1.0) < 1


@each_set
def test_mending_large_values_changes_no_other_row(engine):
    q, k, v = draw_call(10, lead=(2,), H=1, Nq=64, Nk=64, D=3, Dv=2, dtype=np.float32)
    v *= np.float32(1e-38)
    alone = regard.attention(q[:1], k[:1], v[:1], engine=engine)
    v[1] = 3.3e38
    both = regard.attention(q, k, v, engine=engine)
    np.testing.assert_array_equal(both[:1], alone)
    np.testing.assert_allclose(both[1], 3.3e38, rtol=1e-5)


@each_set
@pytest.mark.parametrize("sink", [np.finfo(np.float32).min, 3e38, -3e38])
def test_sinks_at_the_ends_of_float32(engine, sink):
    q, k, v = draw_call(11, lead=(), H=1, dtype=np.float32)
    attended = regard.look(q, k, v, sinks=np.array([sink]), mask=masks.lengths(0), engine=engine)
    np.testing.assert_array_equal(attended.lse, np.float32(sink))


@pytest.mark.parametrize("n", [10**6, 2**31 - 1])
def test_more_threads_than_there_is_work(threads, n):
    q, k, v = draw_call(12, lead=(), H=1, Nq=40, Nk=5000, D=16, dtype=np.float32)
    expected = regard.attention(q, k, v, engine="native")
    threads(n)
    np.testing.assert_array_equal(regard.attention(q, k, v, engine="native"), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_starts_a_pool_of_its_own():
    assert run_python(FORKED).split() == ["0", "True"]


def test_native_is_the_best_set_and_is_never_fallen_back_from():
    q = np.ones((2, 3), np.float32)
    assert regard.explain(q, q, q).engine == native.SETS[-1]
    assert regard.explain(q, q, q, engine="native").engine == native.SETS[-1]
    many = np.ones((1,) * 9 + (1, 2, 3), np.float32)
    assert regard.explain(many, many, many).engine in ("reference", "tiled")
    with pytest.raises(ValueError, match="takes at most 8 axes before the heads"):
        regard.attention(many, many, many, engine="native")


# --------------------------------------------------------------------------- what a review found


@each_set
def test_head_sizes_that_no_memory_has_are_refused(engine):
    for D in (2**41, 2**56, 2**57):
        q = np.broadcast_to(np.float32(0), (1, D))
        with pytest.raises(ValueError, match="head size"):
            regard.attention(q, q, np.zeros((1, 1), np.float32), engine=engine)
    with pytest.raises(ValueError, match="head size"):
        regard.attention(q, q, np.zeros((1, 1), np.float32))


@each_set
def test_slopes_and_sinks_of_any_size_stay_finite_and_with_their_head(engine):
    q = np.ones((1, 3, 2), np.float32)
    bias = regard.biases.alibi(np.array([-1e300]))
    expected = regard.attention(q, q, q, bias=bias, engine="reference")
    np.testing.assert_allclose(regard.attention(q, q, q, bias=bias, engine=engine), expected)
    q, k, v = draw_call(8, lead=(), H=2, Nq=5, Nk=7, D=8, Dv=8, dtype=np.float32)
    both = regard.attention(q, k, v, sinks=np.array([3e38, 0.5]), engine=engine)
    alone = regard.attention(q[1:], k[1:], v[1:], sinks=np.array([0.5]), engine=engine)
    np.testing.assert_array_equal(both[1:], alone)


@each_set
def test_masks_and_biases_of_any_strides_have_the_same_bits(engine):
    q, k, v = draw_call(9, lead=(), H=2, Nq=37, Nk=263, D=8, Dv=8, dtype=np.float32)
    rng = np.random.default_rng(10)
    bias, mask = rng.standard_normal((37, 263)), rng.random((37, 263)) < 0.5
    expected = regard.attention(q, k, v, bias=bias, mask=mask, engine=engine)
    bias, mask = (np.asfortranarray(x) for x in (bias, mask))
    actual = regard.attention(q, k, v, bias=bias, mask=mask, engine=engine)
    np.testing.assert_array_equal(actual, expected)


def test_the_wrong_shapes_of_a_plain_call_are_named_before_memory_is_asked_for():
    x = np.zeros((3_000_000, 2), np.float32)
    transposed = np.broadcast_to(np.float32(0), (2, 3_000_000))
    with pytest.raises(ValueError, match="same number of tokens"):
        regard.attention(x, x, transposed)


@pytest.mark.parametrize("Nq", [1, 5, 11])
@pytest.mark.parametrize("causal", [False, True])
def test_the_short_road_goes_where_the_long_one_does(Nq, causal):
    """Both roads, told apart by naming the engine: the same bits, or the same error."""
    q, k, v = draw_call(11, lead=(), Nq=Nq, Nk=7, dtype=np.float32)

    def outcome(**options):
        try:
            return regard.attention(q, k, v, causal=causal, **options).tobytes()
        except (TypeError, ValueError) as error:
            return str(error)

    places = [
        "top-left",
        "bottom-right",
        "middle",
        0,
        3,
        7,
        8,
        -2,
        10**30,
        np.int64(2),
        [1],
        True,
        2.5,
    ]
    scales = [0.5, 0.0, -3.0, 1e29, 1e31, 2, np.float64(0.3), np.nan, np.inf, "1", True]
    calls = [{}, *({"align": x} for x in places), *({"align": 3, "scale": x} for x in scales)]
    for options in calls:
        assert outcome(**options) == outcome(**options, engine=native.SETS[-1]), options
