"""The native engine within a process that is out of the ordinary: no threads, other arithmetic."""

import os
import platform
import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import ENGINES, NATIVE, compile_c, draw, draw_call, run_python

import regard
from regard.engines import native
from regard.problem import check

pytestmark = pytest.mark.skipif(not native.SETS, reason=native.WHY_NOT or "built")
each_set = pytest.mark.parametrize("engine", NATIVE)


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setattr(regard.threads, "_chosen", None)


# ------------------------------------------------------------------- a machine without threads

REFUSE = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <pthread.h>
    int granted = 1000, refused = 0;
    int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
        if (granted-- <= 0) return refused++, EAGAIN;
        int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
        return real(thread, how, run, with);
    }
"""


@pytest.mark.skipif(sys.platform != "linux", reason="preloading a library is Linux's")
@each_set
def test_a_machine_that_grants_no_thread_or_few_computes_the_same_bits(engine, tmp_path):
    code = f"""
        import ctypes, numpy as np, regard
        from regard.engines import native
        from regard.problem import check
        granted, refused = (ctypes.c_int.in_dll(ctypes.CDLL(None), n) for n in ("granted", "refused"))

        def run(Nq, Nk, threads):
            rng = np.random.default_rng(0)
            q, k, v = (rng.standard_normal((3, N, 32), dtype=np.float32) for N in (Nq, Nk, Nk))
            problem = check(q, k, v)
            rows = [np.empty(problem.shape[:-1], np.float32) for _ in range(2)]
            output = np.empty(problem.output_shape, np.float32)
            took, _, split, *_ = native.call_of(problem, "{engine}").run(output, *rows, threads)
            return took, split, output, *rows

        for sizes, is_split in (((1024, 1024), False), ((1, 20_000), True)):
            _, _, *alone = run(*sizes, 1)
            for more in (0, 1, 2):
                granted.value, refused.value = more, 0
                took, split, *result = run(*sizes, 4)
                print(took, bool(refused.value), split == is_split, end=" ")
                print(all(map(np.array_equal, result, alone)))
    """
    preloaded = f"{os.environ.get('LD_PRELOAD', '')} {compile_c(tmp_path, REFUSE)}"
    ran = run_python(code, LD_PRELOAD=preloaded, OMP_NUM_THREADS="1")
    # No thread, then one, then two more; what was once granted stays for the second size.
    assert ran.splitlines() == [
        "1 True True True", "2 True True True", "4 False True True", *["4 False True True"] * 3,
    ]  # fmt: skip


# ------------------------------------------------------------------------ many calling threads


@each_set
def test_many_threads_at_once_share_a_pool_a_map_and_weights(engine):
    """Large calls want the pool, small ones pass it by; all the while its size is set anew."""
    q, k, v = draw_call(1, lead=(), H=3, Nq=601, Nk=601, D=17, dtype=np.float32)
    rest = {"causal": True, "engine": engine}
    shared = regard.look(q, k, v, **rest)
    window = regard.masks.window(50, 7)
    linear = regard.nn.Linear(*draw(2, (211, 17), (211,), dtype=np.float32))
    calls = {
        "large": lambda: regard.attention(q, k, v, **rest),
        "small": lambda: regard.attention(q[:, :5], k[:, :5], v[:, :5], **rest),
        "plain": lambda: regard.attention(q, k, v, causal=True),  # checked in C++
        "masked": lambda: regard.look(q, k, v, mask=window, engine=engine).lse,
        "weights": lambda: shared.weights[1, 300:, :400],
        "received": lambda: shared.received(),
        "top": lambda: shared.top(3)[1],
        "product": lambda: regard.elementwise.gelu(linear(q)),
    }
    alone = {name: call() for name, call in calls.items()}
    wrong, begin = [], threading.Barrier(8)

    def work(i):
        begin.wait()
        for n in range(i, i + 6 * len(calls)):
            regard.set_num_threads(1 + n // 2 % 4)
            name = [*calls][n % len(calls)]
            if not np.array_equal(calls[name](), alone[name]):
                wrong.append(name)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert not wrong


def test_regard_leaves_free_threaded_python_without_its_lock():
    """An extension that does not say it can do without gets the lock back, with a warning."""
    has_lock = not sysconfig.get_config_var("Py_GIL_DISABLED")
    code = """
        import sys, numpy as np, regard
        x = np.ones((2, 300, 17), np.float32)
        regard.look(x, x, x, causal=True).weights[0]
        print(getattr(sys, "_is_gil_enabled", lambda: True)())
    """
    assert run_python(code) == f"{has_lock}\n"


@each_set
def test_one_call_object_serves_many_threads(engine):
    problem = check(*draw_call(2, lead=(), H=2, Nq=401, Nk=401, dtype=np.float32))
    call = native.call_of(problem, engine)

    def run(_):
        rows = [np.empty(problem.shape[:-1], np.float32) for _ in range(2)]
        output = np.empty(problem.output_shape, np.float32)
        call.run(output, *rows, 2)
        weights = np.empty((1, 401), np.float32)  # of the run that began last, perhaps not yet done
        call.weights(0, 1, np.array([400]), np.arange(401), weights)
        return output, *rows

    first, *others = ThreadPoolExecutor(8).map(run, range(32))
    for other in others:
        assert all(map(np.array_equal, first, other))


# --------------------------------------------------------------------- how numbers are rounded

ARITHMETIC = """
    #if defined(__x86_64__)
    #include <xmmintrin.h>
    unsigned long control(void) { return _mm_getcsr() & ~0x3fu; }  /* but what has happened */
    void set_control(unsigned long x) { _mm_setcsr((unsigned)x); }
    #else
    unsigned long control(void) { unsigned long x; __asm__("mrs %0, fpcr" : "=r"(x)); return x; }
    void set_control(unsigned long x) { __asm__("msr fpcr, %0" : : "r"(x)); }
    #endif
"""
# Flush subnormals to zero, as inputs too: what -ffast-math and others leave behind.
FLUSH = 0x1F80 | 0x8040 if platform.machine() in ("x86_64", "AMD64") else 0x1000000

CONTROL = """
        import ctypes, numpy as np
        helper = ctypes.CDLL({library!r})
        helper.control.restype = ctypes.c_ulong
        helper.set_control.argtypes = [ctypes.c_ulong]
        usual = helper.control()
        import regard
        assert helper.control() == usual, "import"
        regard.set_num_threads(2)
        rng = np.random.default_rng(0)
        q, k = rng.standard_normal((2, 4, 601, 24), dtype=np.float32)
        v = (rng.random((4, 601, 24)) * 1e-39).astype(np.float32)  # subnormal, every one
"""


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    """The beginning of a program that can read and set how its thread rounds."""
    if platform.machine() not in ("x86_64", "AMD64", "aarch64", "arm64"):
        pytest.skip(f"how {platform.machine()} is told to round is not known here")
    return CONTROL.format(library=compile_c(tmp_path_factory.mktemp("c"), ARITHMETIC))


@pytest.mark.parametrize("state", ["usual", FLUSH])
def test_import_and_calls_leave_the_control_register_as_it_was(control, state):
    ran = run_python(f"""{control}
        helper.set_control({state})
        before = helper.control()
        for engine in {ENGINES}:
            seen = regard.look(q, k, v, causal=True, engine=engine)
            seen.weights[0, 5:90]
            assert helper.control() == before, engine
        helper.set_control(usual)
        print(len(np.unique(seen.output)) > 1000)
    """)
    assert ran == "True\n"


@each_set
def test_bits_do_not_depend_on_how_threads_were_told_to_round(control, engine):
    """The pool is started by a thread that flushes subnormals; a new thread inherits that."""
    ran = run_python(f"""{control}
        helper.set_control({FLUSH})
        first = regard.look(q, k, v, engine="{engine}")
        first_weights = first.weights[0, :7]
        helper.set_control(usual)
        second = regard.look(q, k, v, engine="{engine}")
        regard.set_num_threads(1)
        third = regard.look(q, k, v, engine="{engine}")
        exact = regard.look(*(x.astype(np.float64) for x in (q, k, v)), engine="reference").output
        for other in (second, third):
            assert np.array_equal(first.output, other.output)
            assert np.array_equal(first.lse, other.lse)
            assert np.array_equal(first_weights, other.weights[0, :7])
        print(np.abs(first.output - exact).max() < 1e-44)
    """)
    assert ran == "True\n"
