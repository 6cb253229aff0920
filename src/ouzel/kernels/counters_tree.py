"""Trees that add up: each inner node is made anew from its two children, never corrected by a difference.

So sums of floats do not drift, and a least value that leaves gives way to the next. Nodes are rows; node 1 is the root,
the children of n are 2n and 2n + 1, and row 0 is not used.
"""

from __future__ import annotations

import numpy as np

from ouzel.kernels.counters_columns import add_wide
from ouzel.kernels.counters_tables import MeasureKind
from ouzel.kernels.jit import kernel


@kernel
def climb(kinds, words, reals, node):
    """A leaf has changed: make all nodes above it anew. `kinds` has the MeasureKind of each measure.

    >>> words = np.array([[0, 0], [0, 0], [2, 0], [3, 0]], np.uint64)
    >>> climb(np.zeros(0, np.int64), words, np.zeros((4, 1)), 3)
    >>> words[1].tolist()
    [5, 0]
    """
    node //= 2
    while node:
        left = 2 * node
        right = left + 1
        for place in range(0, words.shape[1], 2):
            if place and kinds[place // 2 - 1] == MeasureKind.LEAST:
                least = min(np.int64(words[left, place]), np.int64(words[right, place]))
                words[node, place] = np.uint64(least)
            else:
                words[node, place], words[node, place + 1] = add_wide(
                    words[left, place], words[left, place + 1], words[right, place], words[right, place + 1]
                )
        for place in range(reals.shape[1]):
            reals[node, place] = reals[left, place] + reals[right, place]
        node //= 2
