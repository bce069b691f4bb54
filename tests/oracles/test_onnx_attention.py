"""All Attention node cases of the onnx package, on every engine, with the cases' own tolerances."""

import numpy as np
import pytest
from helpers import ENGINES
from oracles.onnx_attention import cases, run

pytest.importorskip("onnx", reason="onnx is not installed")
CASES = cases()


def test_there_are_as_many_cases_as_onnx_has():
    assert len(CASES) == 93
    assert len({case.name for case in CASES}) == 93


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, engine):
    outputs = run(case, engine)
    assert set(case.outputs) - set(outputs) <= {"qk_matmul_output"}  # scores: modes 0 to 2
    for name in set(case.outputs) & set(outputs):
        expected, actual = case.outputs[name], outputs[name]
        if name == "Y":
            assert actual.dtype == expected.dtype
        # The tolerance that onnx's own runner takes for bfloat16: two units in the last place.
        rtol = max(case.rtol, 2**-6) if expected.dtype.name == "bfloat16" else case.rtol
        np.testing.assert_allclose(
            actual.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=case.atol
        )
