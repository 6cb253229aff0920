"""What the rows of the output see of their match: kernels over its rows, one running value for each.

An entry is a row of a match. Values are read at the row of an entry.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.rows.tables import Entries
from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, ReadOnly
from ouzel.kernels.jit import kernel


@kernel
def visible_rows(
    entries: Entries,
    first: bool,
    offset: int,
    found: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> None:
    """The row that comes `offset` after the first, or before the last, that counts; -1 if there is none. `found` is
    scratch space for the rows of one match."""
    for match in range(entries.starts.size):
        begin = entries.begin[match]
        count = 0
        for entry in range(begin, entries.begin[match + 1]):
            position = entries.positions[entry]
            if position >= 0 and entries.member[position]:
                found[count] = entries.starts[match] + entry - begin
                count += 1
            if offset < count:
                rows[entry] = found[offset if first else count - 1 - offset]
            else:
                rows[entry] = -1


@kernel
def counts(
    entries: Entries,
    valid: ReadOnly[NDArray[np.bool_]],
    out: NDArray[np.int64],
) -> None:
    """How many rows count and have a value; `valid` is empty if all have."""
    for match in range(entries.starts.size):
        begin = entries.begin[match]
        count = 0
        for entry in range(begin, entries.begin[match + 1]):
            position = entries.positions[entry]
            if position >= 0 and entries.member[position]:
                count += valid.size == 0 or valid[entries.starts[match] + entry - begin]
            out[entry] = count


@kernel
def integer_sums(
    entries: Entries,
    values: ReadOnly[NDArray[np.int64]],
    valid: ReadOnly[NDArray[np.bool_]],
    out: NDArray[np.int64],
    exists: NDArray[np.bool_],
) -> None:
    """Sums from left to right. There is none without a value, and none after an overflow."""
    for match in range(entries.starts.size):
        begin = entries.begin[match]
        total = np.int64(0)
        found = False
        fits = True
        for entry in range(begin, entries.begin[match + 1]):
            position = entries.positions[entry]
            row = entries.starts[match] + entry - begin
            if position >= 0 and entries.member[position] and valid[row]:
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
    entries: Entries,
    values: ReadOnly[NDArray[np.float64]],
    valid: ReadOnly[NDArray[np.bool_]],
    out: NDArray[np.float64],
    exists: NDArray[np.bool_],
) -> None:
    """Sums from left to right; there is none without a value."""
    for match in range(entries.starts.size):
        begin = entries.begin[match]
        total = 0.0
        found = False
        for entry in range(begin, entries.begin[match + 1]):
            position = entries.positions[entry]
            row = entries.starts[match] + entry - begin
            if position >= 0 and entries.member[position] and valid[row]:
                total = total + values[row] if found else values[row]
                found = True
            out[entry] = total
            exists[entry] = found


@kernel
def extremes(
    entries: Entries,
    ranks: ReadOnly[NDArray[np.int64]],
    valid: ReadOnly[NDArray[np.bool_]],
    largest: bool,
    rows: NDArray[np.int64],
) -> None:
    """The first row with the smallest or largest rank; -1 without a value."""
    for match in range(entries.starts.size):
        begin = entries.begin[match]
        best = np.int64(-1)
        for entry in range(begin, entries.begin[match + 1]):
            position = entries.positions[entry]
            row = entries.starts[match] + entry - begin
            counts = position >= 0 and entries.member[position] and valid[row]
            if counts and (best < 0 or (ranks[row] > ranks[best] if largest else ranks[row] < ranks[best])):
                best = row
            rows[entry] = best
