"""Norms and MLPs against PyTorch's."""

import numpy as np
import pytest
from helpers import draw

from regard import nn

torch = pytest.importorskip("torch")


def tensors(*arrays):
    return [torch.from_numpy(a) for a in arrays]


def test_norms():
    x, residual, weight, bias = draw(1, (3, 5, 17), (3, 5, 17), (17,), (17,), dtype=np.float32)
    tx, tr, tw, tb = tensors(x, residual, weight, bias)
    layer = torch.nn.functional.layer_norm(tx + tr, (17,), tw, tb, 1e-5)
    np.testing.assert_allclose(nn.LayerNorm(weight, bias)(x, residual), layer, atol=2e-6)
    rms = torch.nn.functional.rms_norm(tx, (17,), tw, 1e-6)
    np.testing.assert_allclose(nn.RMSNorm(weight)(x), rms, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("gelu", torch.nn.functional.gelu),
        ("gelu_new", lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
        ("relu", torch.relu),
        ("silu", torch.nn.functional.silu),
    ],
)
def test_mlps(name, peer):
    x, up, down, gate, b, c = draw(
        2, (3, 7), (11, 7), (7, 11), (11, 7), (11,), (7,), dtype=np.float32
    )
    tx, tu, td, tg, tb, tc = tensors(x, up, down, gate, b, c)
    kept = x.copy()
    activation = nn.ACTIVATIONS[name]
    plain = nn.MLP(nn.Linear(up, b), nn.Linear(down, c), activation)(x)
    np.testing.assert_allclose(plain, peer(tx @ tu.T + tb) @ td.T + tc, atol=2e-5)
    gated = nn.GatedMLP(nn.Linear(gate), nn.Linear(up), nn.Linear(down), activation)(x)
    expected = (peer(tx @ tg.T) * (tx @ tu.T)) @ td.T
    np.testing.assert_allclose(gated, expected, atol=2e-4)
    np.testing.assert_array_equal(x, kept)


@pytest.mark.parametrize("rows", [512, 513, 1031])
def test_an_mlp_takes_rows_in_parts(rows):
    x, up, down = draw(5, (1, rows, 7), (11, 7), (7, 11), dtype=np.float32)
    mlp = nn.MLP(nn.Linear(up), nn.Linear(down), nn.ACTIVATIONS["gelu"])
    gated = nn.GatedMLP(nn.Linear(up), nn.Linear(up), nn.Linear(down))
    for layer in (mlp, gated):
        one_by_one = np.concatenate([layer(x[:, i : i + 5]) for i in range(0, rows, 5)], axis=1)
        np.testing.assert_allclose(layer(x), one_by_one, atol=1e-5)
