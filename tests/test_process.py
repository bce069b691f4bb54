"""What a call does to the process around it: Ctrl-C, fork, threads, imports."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import draw_call, run_python, wait_for_ctrl_c

import regard
from regard.files import written_beside


def test_ctrl_c_stops_a_long_call_and_the_next_one_works():
    call = (
        """x = np.zeros((1, 64, 8192, 64), np.float32); regard.attention(x, x, x, engine="tiled")"""
    )
    assert wait_for_ctrl_c(call, 0.5) < 1  # 0.2 s is promised, on a machine with time to spare


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_computes_the_same():
    q, k, v = draw_call(1, Nq=53, Nk=301, dtype=np.float32)
    expected = regard.attention(q, k, v, engine="tiled")
    child = run_python("""
        import os, warnings, numpy as np, regard
        warnings.simplefilter("ignore", DeprecationWarning)  # that forking with threads is bold
        x = np.random.default_rng(0).standard_normal((2, 53, 17), dtype=np.float32)
        expected = regard.attention(x, x, x, engine="tiled")
        pid = os.fork()
        if pid == 0:
            again = regard.attention(x, x, x, engine="tiled")
            os._exit(0 if np.array_equal(again, expected) else 1)
        print(os.waitpid(pid, 0)[1])
    """)
    assert child.strip() == "0"
    np.testing.assert_array_equal(regard.attention(q, k, v, engine="tiled"), expected)


def test_import_starts_no_thread_and_loads_no_optional_package():
    loaded = run_python("""
        import sys, threading
        import numpy
        before = threading.active_count()
        import regard
        assert threading.active_count() == before
        optional = {"safetensors", "tokenizers", "typer", "rich", "platformdirs", "ml_dtypes",
                    "matplotlib", "torch", "onnx", "huggingface_hub"}
        print(sorted(optional & set(sys.modules)))
    """)
    assert loaded.strip() == "[]"


def test_numpy_s_error_state_is_left_as_it_was():
    q, k, v = draw_call(2)
    before = np.geterr()
    regard.attention(q, k, v, causal=True)
    assert np.geterr() == before


def test_threads_that_write_the_same_file_leave_it_whole(tmp_path):
    file = tmp_path / "page.html"

    def write():
        with written_beside(file) as beside:
            beside.write_text("second")

    with written_beside(file) as beside, ThreadPoolExecutor(1) as thread:
        beside.write_text("first")
        thread.submit(write).result()
        assert file.read_text() == "second"
    assert file.read_text() == "first"
    assert [*tmp_path.iterdir()] == [file]
