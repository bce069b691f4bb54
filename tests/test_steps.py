"""One row, step by step."""

import numpy as np
import pytest
from helpers import ENGINES, assert_close, draw, draw_call

import regard


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True, "align": 2}, {"sinks": np.arange(6.0)}, {"softcap": 2.0, "scale": 3.0}],
    ids=["all", "causal", "sinks", "softcap"],
)
def test_the_steps_lead_to_the_weights(engine, options):
    q, k, v = draw_call(1, H=6, Hkv=3, Nq=5, Nk=7)
    attended = regard.look(q, k, v, **options, engine=engine)
    row = attended.row(1, 4, -2)
    assert row.query == 3
    assert_close(row.weights, attended.weights[1, 4, 3], 1e-14)
    assert_close(row.exponentials / row.total, row.weights, 1e-15)
    assert_close(np.exp(row.shifted), row.exponentials, 1e-15)
    assert_close(row.scores - row.maximum, row.shifted, 1e-15)
    assert_close(np.log(row.total) + row.maximum, attended.lse[1, 4, 3], 1e-14)


def test_leading_axes_of_one_may_be_left_out():
    (q,) = draw(0, (5, 3))
    alone = regard.look(q, q).row(2)
    for x in (q[None], q[None, None]):
        np.testing.assert_array_equal(regard.look(x, x).row(2).weights, alone.weights)


def test_rows_that_are_not_there():
    q, k, v = draw_call(1)
    attended = regard.look(q, k, v)
    for index in ((0, 0, 7), (2, 0, 0), (0, 0), (0, 0, 0, 0), ()):
        with pytest.raises(IndexError, match="a row's index must"):
            attended.row(*index)
    with pytest.raises(ValueError, match="made from weights"):
        regard.AttentionMap.from_weights(np.eye(3)).row(0)


def test_a_row_prints_its_strongest_keys_and_counts_the_rest():
    (q,) = draw(0, (30, 3))
    text = str(regard.look(q, q, causal=True).row(20))
    assert text.startswith("query 20: the largest score is ")
    assert len(text.splitlines()) == 2 + 12 + 1
    assert text.endswith("and 9 smaller ones and 9 hidden ones")
    nothing = str(regard.look(q, q, mask=np.zeros((30, 30), bool)).row(3))
    assert nothing.endswith("and 30 hidden ones")
