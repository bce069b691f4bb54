"""
Who attends to whom
===================

The strongest weights as lines between tokens.
"""

import numpy as np

import regard

tokens = ["people", "like", "watching", "funny", "cat", "videos"]
rng = np.random.default_rng(1)
q, k, v = rng.standard_normal((3, 6, 8)) * 1.3
figure = regard.pictures.links(regard.look(q, k, v, causal=True), tokens=tokens)
