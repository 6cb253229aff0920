"""Kernels that compute what MEASURES reads of matches.

An *entry* is a row of a match.

For overlapping matches: how a match continues from a row at a position does not depend on how it got there. So one pass
from the last row to the first computes, for every position, what the rest of a match has: where it ends, rows of
variables, counts and sums. This is linear in the rows, whereas reading each match separately is quadratic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.rows.partitions import is_in
from ouzel.engines.rows.tables import ACCEPT, Entries, Matches, Suffix, Tables, Total
from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, Cube, Matrix, ReadOnly
from ouzel.kernels.jit import helper, kernel


@kernel
def visible_rows(
    entries: Entries,
    first: bool,
    offset: int,
    per_match: bool,
    found: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> None:
    """For each entry, or for the last entry of each match: the row `offset` after the first row that counts, or before
    the last one; -1 if there is none. `found` is scratch space for the rows of one match.
    """
    for match in range(entries.starts.size):
        begin = entries.begin[match]
        count = 0
        for entry in range(begin, entries.begin[match + 1]):
            position = entries.positions[entry]
            if position >= 0 and entries.member[position]:
                found[count] = entries.starts[match] + entry - begin
                count += 1
            at = match if per_match else entry
            if offset < count:
                rows[at] = found[offset if first else count - 1 - offset]
            else:
                rows[at] = -1


@kernel
def running_totals(
    entries: Entries,
    kind: int,
    ints: ReadOnly[NDArray[np.int64]],
    floats: ReadOnly[NDArray[np.float64]],
    valid: ReadOnly[NDArray[np.bool_]],
    per_match: bool,
    totals: NDArray[np.int64],
    reals: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """Running aggregates up to each entry, or up to the last entry of each match. `totals` or `reals` get the sum, or
    the first row with the least or greatest value (-1 if there is none). `counts` gets the number of values; -1 after
    an overflow. `valid` is empty if all rows have a value.
    """
    is_extreme = kind == Total.LEAST_INT or kind == Total.GREATEST_INT
    for match in range(entries.starts.size):
        begin = entries.begin[match]
        total = np.int64(-1) if is_extreme else np.int64(0)
        real = 0.0
        count = np.int64(0)
        for entry in range(begin, entries.begin[match + 1]):
            position = entries.positions[entry]
            row = entries.starts[match] + entry - begin
            counted = position >= 0 and entries.member[position] and (valid.size == 0 or valid[row])
            if counted and count >= 0:
                count += 1
                if kind == Total.SUM_FLOAT:
                    real = real + floats[row] if count > 1 else floats[row]
                elif kind == Total.SUM_INT:
                    value = ints[row]
                    if (value > 0 and total > INT64_MAX - value) or (value < 0 and total < INT64_MIN - value):
                        count = np.int64(-1)
                    else:
                        total += value
                elif is_extreme and (
                    total < 0 or (ints[row] < ints[total] if kind == Total.LEAST_INT else ints[row] > ints[total])
                ):
                    total = row
            at = match if per_match else entry
            totals[at] = total
            reals[at] = real
            counts[at] = count


@kernel
def every_start(
    can: Matrix[np.uint64],
    bounds: NDArray[np.int64],
    tables: Tables,
    kinds: NDArray[np.int32],
    offsets: NDArray[np.int64],
    members: Matrix[np.bool_],
    columns: NDArray[np.int32],
    values: Matrix[np.int64],
    valid: Matrix[np.bool_],
    room: Cube[np.int64],
    matches: Matches,
    found: Cube[np.int64],
) -> Any:
    """Compute the quantities of all matches, from the last match to the first. Returns the number of matches.

    A quantity has a kind, an offset, the positions that count, and a column of values. `found` is [quantity, match,
    (value, count)]. `room` is scratch space: [this row or the next, quantity, position], with the lengths of matches as
    one more quantity. The second half of its last axis has counts.
    """
    count = tables.variable.size
    written = 0
    for partition in range(bounds.size - 2, -1, -1):
        first = bounds[partition]
        last = bounds[partition + 1]
        for row in range(last - 1, first - 1, -1):
            now = row & 1
            for position in range(count):
                if is_in(can, row, position):
                    following = _following(can, tables, row + 1, last, position)
                    length = 1 if following < 0 else room[1 - now, kinds.size, following] + 1
                    room[now, kinds.size, position] = length
                    for quantity in range(kinds.size):
                        _extend(
                            kinds, offsets, members, columns, values, valid, room, now, quantity, position, following,
                            row, count,
                        )  # fmt: skip
            start = _following(can, tables, row, last, count if row == first else count + 1)
            if start == -2:
                continue
            matches.partition[written] = partition
            matches.start[written] = row
            matches.length[written] = 0 if start < 0 else room[now, kinds.size, start]
            for quantity in range(kinds.size):
                empty = np.int64(0) if kinds[quantity] >= Suffix.COUNT else np.int64(-1)
                found[quantity, written, 0] = empty if start < 0 else room[now, quantity, start]
                found[quantity, written, 1] = 0 if start < 0 else room[now, quantity, count + start]
            written += 1
    return written


@helper
def _following(can, tables, row, last, entries):
    """The position at which a row is taken next; ACCEPT if the match ends before the row, -2 if there is no match."""
    if row < last:
        for place in range(tables.follow_at[entries], tables.follow_at[entries + 1]):
            entry = tables.follow[place]
            if entry == ACCEPT or is_in(can, row, entry):
                return np.int64(entry)
        return np.int64(-2)
    return np.int64(ACCEPT)


@helper
def _extend(
    kinds, offsets, members, columns, values, valid, room, now, quantity, position, following, row, count
):  # fmt: skip
    """Compute a quantity of the match from a row on, from that of the match from the next row on."""
    kind = kinds[quantity]
    value = np.int64(0) if kind >= Suffix.COUNT else np.int64(-1)
    seen = np.int64(0)
    if following >= 0:
        value = room[1 - now, quantity, following]
        seen = room[1 - now, quantity, count + following]
    column = columns[quantity]
    if members[quantity, position] and (column < 0 or valid[column, row]):
        if kind == Suffix.FIRST:
            # Quantities of smaller offsets come before.
            offset = offsets[quantity]
            value = np.int64(row)
            if offset > 0:
                value = room[1 - now, quantity - 1, following] if following >= 0 else np.int64(-1)
        elif kind == Suffix.LAST:
            if seen == offsets[quantity]:
                value = np.int64(row)
        elif kind == Suffix.COUNT:
            value += 1
        elif kind == Suffix.SUM:
            value += values[column, row]
        elif value < 0 or (
            values[column, row] <= values[column, value]
            if kind == Suffix.LEAST
            else values[column, row] >= values[column, value]
        ):
            value = np.int64(row)
        seen += 1
    room[now, quantity, position] = value
    room[now, quantity, count + position] = seen
