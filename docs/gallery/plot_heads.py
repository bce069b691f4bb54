"""
All heads at once
=================

Each square is one head of a call.
"""

import numpy as np

import regard

rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((3, 8, 24, 8)) * np.linspace(0.5, 2.2, 8)[:, None, None]
figure = regard.pictures.heads(regard.look(q, k, v, causal=True), title="heads that grow surer")
