"""Kernels before and after the search: which rows it reads, where a match may begin, where windows end, and which rows
are kept.

`alive` reads each partition backwards once. Bit p of `can[r]` says that row r may be taken at position p, and that the
rest of the pattern can then be completed. It looks only at conditions that read rows at fixed distances. If more rows
of a partition may come, it assumes that they complete every path that reaches the last known row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.rows.tables import Partitions, RowEvents, Tables
from ouzel.kernels.arrays import Matrix, ReadOnly
from ouzel.kernels.jit import helper, kernel

_BYTE = np.uint64(8)
_LOW = np.uint64(255)
_ONE = np.uint64(1)
_WORD_BITS = np.int64(6)
_BIT_OF_WORD = np.int64(63)


@kernel(allocates=True)
def touched(events: RowEvents, count: int, before: int, closed: int, keys: int, rows_before: int) -> Any:
    """The slots of the rows of some partitions that a match may still read, one partition after the other: of
    partitions with rows from slot `before` on, and of those with a row at or before tick `closed` whose match is not
    decided. For each partition also where it begins, where its search begins, and its first row ever, which is -1 if it
    has been evicted.
    """
    is_touched = np.zeros(keys, np.bool_)
    for slot in range(before, count):
        is_touched[events.key[slot]] = True
    for slot in range(before):
        # Live rows are in order of time.
        if events.end[slot] > closed:
            break
        if not events.is_tried[slot]:
            is_touched[events.key[slot]] = True
    found = np.empty(count, np.int32)
    ends = np.zeros(keys, np.int64)
    used = 0
    for slot in range(count):
        key = events.key[slot]
        if is_touched[key]:
            found[used] = slot
            used += 1
            ends[key] += 1
    total = 0
    partitions = 0
    for key in range(keys):
        partitions += is_touched[key]
        total += ends[key]
        ends[key] = total - ends[key]
    slots = np.empty(used, np.int32)
    for place in range(used):
        key = events.key[found[place]]
        slots[ends[key]] = found[place]
        ends[key] += 1
    bounds = np.zeros(partitions + 1, np.int64)
    starts = np.empty(partitions, np.int64)
    origins = np.empty(partitions, np.int64)
    partition = 0
    begin = 0
    used = 0
    for key in range(keys):
        if not is_touched[key]:
            continue
        first = slots[begin]
        if first >= before:
            # The first row of a partition comes when no other one is held.
            events.is_first[first] = True
        start = begin
        while start < ends[key] and events.is_tried[slots[start]]:
            start += 1
        kept = max(begin, start - rows_before)
        starts[partition] = used + start - kept
        origins[partition] = used if kept == begin and events.is_first[first] else -1
        for place in range(kept, ends[key]):
            slots[used] = slots[place]
            used += 1
        begin = ends[key]
        partition += 1
        bounds[partition] = used
    return slots[:used], bounds, starts, origins


@kernel
def mark_tried(events: RowEvents, slots: ReadOnly[NDArray[np.int32]], partitions: Partitions, rows_before: int) -> int:
    """Mark the rows that the search in some partitions has tried. Returns how many of their rows no later match can
    read: those before the first undecided row, except the last `rows_before` of them.
    """
    dead = 0
    for partition in range(partitions.start.size):
        begin = partitions.bounds[partition]
        start = partitions.start[partition]
        for place in range(begin, start):
            events.is_tried[slots[place]] = True
        dead += max(0, start - rows_before - begin)
    return dead


@kernel(allocates=True)
def kept_slots(events: RowEvents, count: int, keys: int, rows_before: int) -> Any:
    """The slots of all rows that a later match may read, after the search in some partitions. Of the rows before the
    first undecided one, each partition keeps only the last `rows_before`.
    """
    tried = np.zeros(keys, np.int64)
    found = np.empty(count, np.int64)
    first = count
    for slot in range(count - 1, -1, -1):
        if events.is_tried[slot]:
            tried[events.key[slot]] += 1
            if tried[events.key[slot]] > rows_before:
                continue
        first -= 1
        found[first] = slot
    return found[first:]


@kernel
def first_undecided(events: RowEvents, count: int, bound: int) -> int:
    """The slot of the first row after a tick whose match is not decided; `count` if there is none."""
    for slot in range(count):
        if events.end[slot] > bound and not events.is_tried[slot]:
            return slot
    return count


@kernel(allocates=True)
def alive(
    symbols: NDArray[np.uint8] | NDArray[np.uint64], partitions: Partitions, tables: Tables, can: Matrix[np.uint64]
) -> None:
    """For each row, the positions at which it may be taken so that the pattern can be completed. `symbols` has one bit
    for each variable whose conditions hold. After the last known row of a partition that is not complete, every path
    counts as completed.
    """
    taking = tables.taking
    before = tables.before
    words = can.shape[1]
    for partition in range(partitions.start.size):
        first = partitions.bounds[partition]
        last = partitions.known[partition] - 1
        ending = tables.ending if partitions.complete[partition] else tables.continuing
        if words == 1 and before.shape[0] == 1 and taking.shape[0] == 1:
            now = np.uint64(0)
            reach = ending[0]
            for row in range(last, first - 1, -1):
                now = reach & taking[0, symbols[row], 0]
                can[row, 0] = now
                reach = tables.accepting[0] | before[0, now, 0]
        else:
            for row in range(last, first - 1, -1):
                for word in range(words):
                    reach = ending[word] if row == last else tables.accepting[word]
                    can[row, word] = reach
                if row < last:
                    for byte in range(before.shape[0]):
                        value = (can[row + 1, byte >> 3] >> (_BYTE * np.uint64(byte & 7))) & _LOW
                        if value != 0:
                            for word in range(words):
                                can[row, word] |= before[byte, value, word]
                rest = np.uint64(symbols[row])
                for word in range(words):
                    allowed = np.uint64(0)
                    for byte in range(taking.shape[0]):
                        allowed |= taking[byte, (rest >> (_BYTE * np.uint64(byte))) & _LOW, word]
                    can[row, word] &= allowed


@kernel
def window_ends(
    times: ReadOnly[NDArray[np.uint64] | NDArray[np.float64]],
    valid: ReadOnly[NDArray[np.bool_]],
    bounds: NDArray[np.int64],
    window: np.uint64 | np.float64,
    ends: NDArray[np.int64],
) -> None:
    """For each row, the first row of its partition that is outside the window that begins with it. Rows without a time
    are in no window, and come before or after all others.
    """
    for partition in range(bounds.size - 1):
        end = bounds[partition]
        last = bounds[partition + 1]
        for row in range(bounds[partition], last):
            if not valid[row]:
                ends[row] = row + 1
                continue
            end = max(end, row + 1)
            while end < last and valid[end] and times[end] - times[row] < window:
                end += 1
            ends[row] = end


@helper
def is_in(can, row, position):
    return (can[row, position >> _WORD_BITS] >> np.uint64(position & _BIT_OF_WORD)) & _ONE != 0
