"""
What masks show and hide
========================

Tiles of which no pair is seen are skipped, full ones run bare, and only those at an edge compare.
"""

import regard
from regard import masks

figure = regard.pictures.mask(masks.causal(), 32, 32, tile=(4, 4), title="causal")

# %%
window = regard.pictures.mask(masks.window(6, 0), 32, 32, tile=(4, 4), title="a window")

# %%
ids = [0] * 9 + [1] * 14 + [2] * 9
packed = regard.pictures.mask(
    masks.documents(ids) & masks.causal(), 32, 32, tile=(4, 4), title="three texts in one row"
)

# %%
prefix = regard.pictures.mask(masks.prefix(10), 32, 32, tile=(4, 4), title="a prefix")
