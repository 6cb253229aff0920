"""The kernel of forms of OUTPUT for which a chosen match excludes later ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.jit import kernel

_NO_REACH = np.iinfo(np.int64).max


@kernel()
def choose(
    classes: NDArray[np.int64],
    groups: NDArray[np.int64],
    at: NDArray[np.int64],
    reach: NDArray[np.int64],
    bounds: NDArray[np.int64],
    lowest: NDArray[np.int64],
    kept: NDArray[np.bool_],
) -> None:
    """Keep each match whose `at` is greater than the bound of its group, one match after the other. A kept match raises
    the bound to its `reach`.

    The order of adjacent matches of one class is not known yet. Of these, every match is kept that some order would
    keep, and the bound rises only as far as it does in every order. `lowest` is scratch space with one entry for each
    group.

    >>> bounds, lowest, kept = np.array([0]), np.array([0]), np.zeros(4, np.bool_)
    >>> choose(np.array([1, 2, 2, 3]), np.array([0, 0, 0, 0]), np.array([1, 2, 4, 4]), np.array([3, 5, 6, 6]), bounds,
    ...     lowest, kept)
    >>> kept.tolist(), bounds.tolist()
    ([True, False, True, False], [6])
    """
    first = 0
    while first < groups.size:
        end = first
        while end < groups.size and classes[end] == classes[first]:
            lowest[groups[end]] = _NO_REACH
            end += 1
        for match in range(first, end):
            group = groups[match]
            if at[match] > bounds[group]:
                kept[match] = True
                lowest[group] = min(lowest[group], reach[match])
        for match in range(first, end):
            if kept[match]:
                group = groups[match]
                # The bound was at or after the match when its turn came, or it was kept.
                bounds[group] = max(bounds[group], lowest[group], min(at[match], reach[match]))
        first = end
