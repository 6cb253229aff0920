"""What kernels of several engines share: events by slot, the status of a call, windows in ticks, and lists of events by
time with logarithmic search (Myers' skew-binary lists).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, Matrix
from ouzel.kernels.jit import helper, kernel

# No window.
NO_WINDOW = INT64_MAX
# No limit.
NO_LIMIT = 2**62
# The key of negative instances that forbid in every partition. If there are partitions, no other instance has it.
EVERY_KEY = 0


class Status(IntEnum):
    """Why a call returned."""

    DONE = 0
    OUTPUT_FULL = 1  # more room for matches is needed; then continue at `position`
    WAITING_FULL = 2  # more room for waiting matches is needed; then continue at `position`
    MATCH_LIMIT = 3  # the instance at `position` would exceed max_matches_per_timestamp
    WAITING_LIMIT = 4  # the instance at `position` would exceed max_waiting


class Instances(NamedTuple):
    """Instances in stream order: by end, then start. `new_instances` shows the exact types."""

    start: NDArray[np.int64]  # may be the same array as `end`
    end: NDArray[np.int64]
    key: NDArray[np.int32]  # dense code of the partition; 0 without partitions
    second_key: NDArray[np.int32]  # of Multi-PAIS; otherwise empty
    component: NDArray[np.uint8]  # which component of SEQ it may fill, negatives counted
    int_lanes: Matrix[np.int64]  # [lane, slot]
    float_lanes: Matrix[np.float64]  # [lane, slot]
    lane_flags: Matrix[np.uint8]  # [int64 lanes, then float64 lanes; slot]: LaneFlag
    flagged: NDArray[np.uint8]  # per row of lane_flags: 1 if any live slot in it is not LaneFlag.VALUE


def new_instances(
    capacity: int, *, int_lanes: int = 0, float_lanes: int = 0, points: bool = True, second_key: bool = False
) -> Instances:
    """Empty buffers. With `points`, start and end are one array."""
    end = np.zeros(capacity, np.int64)
    return Instances(
        start=end if points else np.zeros(capacity, np.int64),
        end=end,
        key=np.zeros(capacity, np.int32),
        second_key=np.zeros(capacity if second_key else 0, np.int32),
        component=np.zeros(capacity, np.uint8),
        int_lanes=np.zeros((int_lanes, capacity), np.int64),
        float_lanes=np.zeros((float_lanes, capacity), np.float64),
        lane_flags=np.zeros((int_lanes + float_lanes, capacity), np.uint8),
        flagged=np.zeros(int_lanes + float_lanes, np.uint8),
    )


class Link(IntEnum):
    """Rows of `StackState.links`: slots; -1 for none."""

    BELOW = 0  # the next older instance of the same stack
    # Of positives: the newest one of the same stack with a smaller end, to skip simultaneous ones in one step. Of
    # negatives: a jump pointer (Myers' skew-binary lists), to find a time in logarithmically many steps.
    SKIP = 1
    PREVIOUS_TOP = 2  # RIP in SASE 4.1
    SECOND_BELOW = 3  # the next older instance of the same stack in the second PAIS
    COMPLETING = 3  # of the plain kernel: a list of instances to search from


class Mark(IntEnum):
    """Rows of `StackState.marks`, which exist only for queries that need them."""

    GUARD = 0  # newest start of negatives: before a positive that has any, at or below a negative
    SPAN = 1  # of negatives: how many instances the jump passes


_NO_WINDOW = np.int64(NO_WINDOW)
LATEST = np.int64(INT64_MAX)
# Earlier than every time: the guard if there is no negative instance.
NEVER = np.int64(INT64_MIN)
_EARLIEST = np.int64(INT64_MIN + 1)


@kernel(inline=True)
def oldest_alive(now: int, window: int):
    """The earliest start that a match which ends at `now` may have."""
    if window == _NO_WINDOW or now < _EARLIEST + (window - 1):
        return _EARLIEST
    return now - (window - 1)


@helper(inline=True)
def deadline(start, window):
    """The last tick of the window that begins at `start`."""
    if start > LATEST - (window - 1):
        return LATEST
    return start + (window - 1)


@helper(inline=True)
def add_jump(jump, span, under, slot):
    """Set the jump of a new slot on top of slot `under`. Two adjacent jumps of equal length are replaced by one over
    both.
    """
    jump[slot] = under
    span[slot] = 1
    if under >= 0:
        middle = jump[under]
        if middle >= 0 and jump[middle] >= 0 and span[under] == span[middle]:
            jump[slot] = jump[middle]
            span[slot] = 2 * span[under] + 1


@helper(inline=True)
def newest_slot_before(end, jump, below, node, oldest, time):
    """The newest slot of a list, from `node` down, that ends before a time. The result is below `oldest` if there is
    none.
    """
    while node >= oldest and end[node] >= time:
        over = jump[node]
        node = over if over >= oldest and end[over] >= time else below[node]
    return node


@helper(inline=True)
def push_negative(start, head, links, marks, stack, slot):
    """Push a negative instance on its stack."""
    under = head[stack]
    head[stack] = slot
    links[Link.BELOW, slot] = under
    add_jump(links[Link.SKIP], marks[Mark.SPAN], under, slot)
    marks[Mark.GUARD, slot] = max(start[slot], marks[Mark.GUARD, under]) if under >= 0 else start[slot]


@helper(inline=True)
def newest_before(end, links, node, time):
    """The newest instance of a negative stack, from `node` down, that ends before a time."""
    return newest_slot_before(end, links[Link.SKIP], links[Link.BELOW], node, 0, time)
