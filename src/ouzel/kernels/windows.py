"""Windows in ticks, and lists by time with logarithmic search (Myers' skew-binary lists)."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.arrays import INT64_MAX, INT64_MIN
from ouzel.kernels.events import NO_WINDOW, Link, Mark
from ouzel.kernels.jit import helper, kernel

_NO_WINDOW = np.int64(NO_WINDOW)
LATEST = np.int64(INT64_MAX)
# Earlier than every time: the guard if there is no negative instance.
NEVER = np.int64(INT64_MIN)
_EARLIEST = np.int64(INT64_MIN + 1)


@kernel(inline=True)
def oldest_alive(now: int, window: int):
    """The earliest start that a match which ends now may have."""
    if window == _NO_WINDOW or now < _EARLIEST + (window - 1):
        return _EARLIEST
    return now - (window - 1)


@helper(inline=True)
def deadline(start, window):
    """The last tick of the window that opens at start."""
    if start > LATEST - (window - 1):
        return LATEST
    return start + (window - 1)


@helper(inline=True)
def add_jump(jump, span, under, slot):
    """Set the jump of a new slot on top of `under`: two jumps of equal length in a row become one over both."""
    jump[slot] = under
    span[slot] = 1
    if under >= 0:
        middle = jump[under]
        if middle >= 0 and jump[middle] >= 0 and span[under] == span[middle]:
            jump[slot] = jump[middle]
            span[slot] = 2 * span[under] + 1


@helper(inline=True)
def newest_slot_before(end, jump, below, node, oldest, time):
    """The newest slot of a list, from `node` down, that ends before a time; the result is below `oldest` if there is
    none."""
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
