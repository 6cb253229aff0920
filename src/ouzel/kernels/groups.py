"""Functions over segments. A segment has the values of one match, such as those of the events of a Kleene variable; the
segments of all matches are concatenated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, Matrix
from ouzel.kernels.jit import kernel


@kernel(allocates=True)
def of_place(values: NDArray[np.int32], lengths: Matrix[np.int32], place: int):
    """The values of one place of each match, concatenated, from an array with the values of all places.

    >>> of_place(np.array([1, 2, 3, 4, 5]), np.array([[2, 1], [1, 1]]), 0).tolist()
    [1, 2, 4]
    """
    total = 0
    for match in range(lengths.shape[0]):
        total += lengths[match, place]
    found = np.empty(total, values.dtype)
    # Unsigned, because numba checks every signed index for counting from the end.
    source = np.uint64(0)
    target = np.uint64(0)
    for match in range(lengths.shape[0]):
        for other in range(lengths.shape[1]):
            length = np.uint64(lengths[match, other])
            if other == place:
                for step in range(length):
                    found[target + step] = values[source + step]
                target += length
            source += length
    return found


@kernel(allocates=True)
def first_of_each(values: NDArray[np.int32], lengths: Matrix[np.int32]):
    """The first value of each match, from an array with the values of all places.

    >>> first_of_each(np.array([1, 2, 3, 4, 5]), np.array([[2, 1], [1, 1]])).tolist()
    [1, 4]
    """
    found = np.empty(lengths.shape[0], values.dtype)
    source = np.uint64(0)
    for match in range(lengths.shape[0]):
        found[match] = values[source]
        for place in range(lengths.shape[1]):
            source += np.uint64(lengths[match, place])
    return found


# What `pick_of_each` picks of a place: its first value, its last one, or how many there are.
FIRST, LAST, LENGTH = range(3)


@kernel
def pick_of_each(
    values: NDArray[np.int32], lengths: Matrix[np.int32], picks: Matrix[np.int32], picked: Matrix[np.int32]
) -> None:
    """Write one number of each match for each pick. A pick is a place and FIRST, LAST or LENGTH.

    >>> picked = np.empty((3, 2), np.int32)
    >>> picks = np.array([[0, FIRST], [0, LAST], [1, LENGTH]], np.int32)
    >>> lengths = np.array([[2, 1], [1, 1]], np.int32)
    >>> pick_of_each(np.array([1, 2, 3, 4, 5], np.int32), lengths, picks, picked)
    >>> picked.tolist()
    [[1, 4], [2, 4], [1, 1]]
    """
    begin = 0
    for match in range(lengths.shape[0]):
        for place in range(lengths.shape[1]):
            length = lengths[match, place]
            for pick in range(picks.shape[0]):
                if picks[pick, 0] == place:
                    if picks[pick, 1] == LENGTH:
                        picked[pick, match] = length
                    else:
                        picked[pick, match] = values[begin if picks[pick, 1] == FIRST else begin + length - 1]
            begin += length


@kernel(allocates=True)
def count_valid(offsets: NDArray[np.int64], valid: NDArray[np.bool_]):
    """The number of values in each segment, without nulls."""
    counts = np.zeros(offsets.size - 1, np.int64)
    for segment in range(counts.size):
        for place in range(offsets[segment], offsets[segment + 1]):
            counts[segment] += valid[place]
    return counts


@kernel(allocates=True)
def sum_integers(offsets: NDArray[np.int64], values: NDArray[np.int64], valid: NDArray[np.bool_]):
    """(sums, valid): values summed from left to right. A sum is not valid if its segment is empty, or if it overflows
    at any step.
    """
    sums = np.zeros(offsets.size - 1, np.int64)
    exists = np.zeros(offsets.size - 1, np.bool_)
    for segment in range(sums.size):
        total = np.int64(0)
        found = False
        fits = True
        for place in range(offsets[segment], offsets[segment + 1]):
            if valid[place]:
                added = values[place]
                if (added > 0 and total > INT64_MAX - added) or (added < 0 and total < INT64_MIN - added):
                    fits = False
                    break
                total += added
                found = True
        sums[segment] = total
        exists[segment] = found and fits
    return sums, exists


@kernel(allocates=True)
def sum_floats(offsets: NDArray[np.int64], values: NDArray[np.float64], valid: NDArray[np.bool_]):
    """(sums, valid): values summed from left to right, so that every runtime gives the same bits."""
    sums = np.zeros(offsets.size - 1, np.float64)
    exists = np.zeros(offsets.size - 1, np.bool_)
    for segment in range(sums.size):
        for place in range(offsets[segment], offsets[segment + 1]):
            if valid[place]:
                sums[segment] = sums[segment] + values[place] if exists[segment] else values[place]
                exists[segment] = True
    return sums, exists


@kernel(allocates=True)
def deviations(offsets: NDArray[np.int64], values: NDArray[np.float64], valid: NDArray[np.bool_]):
    """(sample standard deviations, valid): computed by the same steps as in runs. A segment must have two values.

    >>> deviations(np.array([0, 2, 3]), np.array([1.0, 3.0, 5.0]), np.ones(3, np.bool_))[1].tolist()
    [True, False]
    """
    found = np.zeros(offsets.size - 1, np.float64)
    exists = np.zeros(offsets.size - 1, np.bool_)
    for segment in range(found.size):
        count = 0
        total = 0.0
        squares = 0.0
        for place in range(offsets[segment], offsets[segment + 1]):
            if valid[place]:
                if count > 0:
                    distance = values[place] - total / count
                    squares += distance * distance * (count / (count + 1))
                    total += values[place]
                else:
                    total = values[place]
                count += 1
        found[segment] = np.sqrt(squares / max(count - 1, 1))
        exists[segment] = count > 1
    return found, exists


@kernel(allocates=True)
def pick(offsets: NDArray[np.int64], ranks: NDArray[np.int64], valid: NDArray[np.bool_], newest: bool):
    """The index of the value with the smallest rank in each segment; -1 for an empty segment.

    Of equal values the first is taken, or with `newest` the last.
    """
    picked = np.full(offsets.size - 1, -1, np.int64)
    for segment in range(picked.size):
        best = -1
        for place in range(offsets[segment], offsets[segment + 1]):
            if valid[place] and (best < 0 or ranks[place] < ranks[best] or (newest and ranks[place] == ranks[best])):
                best = place
        picked[segment] = best
    return picked
