"""
One head as a heat map
======================

A row is a query, a column is a key. What a query does not see is hatched, which a weight of 0 is
not.
"""

import numpy as np

import regard

rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((3, 12, 16)) * 1.5
figure = regard.pictures.heat(regard.look(q, k, v, causal=True), title="causal")

# %%
# In dark, and with small weights shown by their square root:
dark = regard.pictures.heat(regard.look(q, k, v), scale="sqrt", dark=True, title="not causal")
