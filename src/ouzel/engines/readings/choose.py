"""Kernel of forms of OUTPUT that choose matches in turn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.jit import kernel


@kernel()
def choose(
    groups: NDArray[np.int64],
    at: NDArray[np.int64],
    reach: NDArray[np.int64],
    bounds: NDArray[np.int64],
    kept: NDArray[np.bool_],
) -> None:
    """Keep in turn each match that is after the bound of its group. It moves the bound to its reach.

    >>> bounds, kept = np.array([0]), np.zeros(3, np.bool_)
    >>> choose(np.array([0, 0, 0]), np.array([1, 2, 4]), np.array([3, 5, 6]), bounds, kept)
    >>> kept.tolist(), bounds.tolist()
    ([True, False, True], [6])
    """
    for match in range(groups.size):
        group = groups[match]
        if at[match] > bounds[group]:
            kept[match] = True
            bounds[group] = max(bounds[group], reach[match])
