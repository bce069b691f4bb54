"""
The arrays of a call
====================

Their sides, their names and the memory that they take: grouped heads, and more keys than queries.
"""

import regard

figure = regard.pictures.shapes((8, 128, 64), (2, 512, 64), (2, 512, 64))
