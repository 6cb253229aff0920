"""What the rows of the output see of their match: kernels over its rows, one running value for each.

`entry_at` says where the rows of each match begin, among all. A row has the position at which it was taken, or -1: the
one row of an empty match. `member` says which positions count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MAX, INT64_MIN
from ouzel.kernels.jit import kernel


@kernel
def visible_rows(
    entry_at: NDArray[np.int64],
    starts: NDArray[np.int64],
    positions: NDArray[np.int32],
    member: NDArray[np.bool_],
    first: bool,
    offset: int,
    found: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> None:
    """The row that comes `offset` after the first, or before the last, that counts; -1 if there is none. `found` is
    scratch space for the rows of one match."""
    for match in range(starts.size):
        begin = entry_at[match]
        count = 0
        for entry in range(begin, entry_at[match + 1]):
            position = positions[entry]
            if position >= 0 and member[position]:
                found[count] = starts[match] + entry - begin
                count += 1
            if offset < count:
                rows[entry] = found[offset if first else count - 1 - offset]
            else:
                rows[entry] = -1


@kernel
def counts(
    entry_at: NDArray[np.int64],
    starts: NDArray[np.int64],
    positions: NDArray[np.int32],
    member: NDArray[np.bool_],
    valid: NDArray[np.bool_],
    out: NDArray[np.int64],
) -> None:
    """How many rows count and have a value; `valid` is empty if all have."""
    for match in range(starts.size):
        begin = entry_at[match]
        count = 0
        for entry in range(begin, entry_at[match + 1]):
            position = positions[entry]
            if position >= 0 and member[position]:
                count += valid.size == 0 or valid[starts[match] + entry - begin]
            out[entry] = count


@kernel
def integer_sums(
    entry_at: NDArray[np.int64],
    starts: NDArray[np.int64],
    positions: NDArray[np.int32],
    member: NDArray[np.bool_],
    values: NDArray[np.int64],
    valid: NDArray[np.bool_],
    out: NDArray[np.int64],
    exists: NDArray[np.bool_],
) -> None:
    """Sums from left to right. There is none without a value, and none after an overflow."""
    for match in range(starts.size):
        begin = entry_at[match]
        total = np.int64(0)
        found = False
        fits = True
        for entry in range(begin, entry_at[match + 1]):
            position = positions[entry]
            row = starts[match] + entry - begin
            if position >= 0 and member[position] and valid[row]:
                value = values[row]
                if (value > 0 and total > INT64_MAX - value) or (value < 0 and total < INT64_MIN - value):
                    fits = False
                elif fits:
                    total += value
                found = True
            out[entry] = total
            exists[entry] = found and fits


@kernel
def float_sums(
    entry_at: NDArray[np.int64],
    starts: NDArray[np.int64],
    positions: NDArray[np.int32],
    member: NDArray[np.bool_],
    values: NDArray[np.float64],
    valid: NDArray[np.bool_],
    out: NDArray[np.float64],
    exists: NDArray[np.bool_],
) -> None:
    """Sums from left to right; there is none without a value."""
    for match in range(starts.size):
        begin = entry_at[match]
        total = 0.0
        found = False
        for entry in range(begin, entry_at[match + 1]):
            position = positions[entry]
            row = starts[match] + entry - begin
            if position >= 0 and member[position] and valid[row]:
                total = total + values[row] if found else values[row]
                found = True
            out[entry] = total
            exists[entry] = found


@kernel
def extremes(
    entry_at: NDArray[np.int64],
    starts: NDArray[np.int64],
    positions: NDArray[np.int32],
    member: NDArray[np.bool_],
    ranks: NDArray[np.int64],
    valid: NDArray[np.bool_],
    largest: bool,
    rows: NDArray[np.int64],
) -> None:
    """The first row with the smallest or largest rank; -1 without a value."""
    for match in range(starts.size):
        begin = entry_at[match]
        best = np.int64(-1)
        for entry in range(begin, entry_at[match + 1]):
            position = positions[entry]
            row = starts[match] + entry - begin
            counts = position >= 0 and member[position] and valid[row]
            if counts and (best < 0 or (ranks[row] > ranks[best] if largest else ranks[row] < ranks[best])):
                best = row
            rows[entry] = best
