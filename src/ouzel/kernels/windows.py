"""Windows in ticks, and lists of negative events that are searched by time."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.arrays import INT64_MAX, INT64_MIN
from ouzel.kernels.events import NO_WINDOW, Link, Mark
from ouzel.kernels.jit import helper, kernel

_NO_WINDOW = np.int64(NO_WINDOW)
LATEST = np.int64(INT64_MAX)
# Earlier than every time: the guard where there is no negative instance.
NEVER = np.int64(INT64_MIN)
_EARLIEST = np.int64(INT64_MIN + 1)


@kernel(inline=True)
def oldest_alive(now, window):
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
def push_negative(start, head, links, marks, stack, slot):
    """Put a negative instance on its stack."""
    under = head[stack]
    head[stack] = slot
    links[Link.BELOW, slot] = under
    links[Link.SKIP, slot] = under
    marks[Mark.GUARD, slot] = start[slot]
    marks[Mark.HEIGHT, slot] = 0
    if under >= 0:
        marks[Mark.GUARD, slot] = max(start[slot], marks[Mark.GUARD, under])
        height = marks[Mark.HEIGHT, under]
        marks[Mark.HEIGHT, slot] = height + 1
        # Two jumps of the same length in a row become one jump over both.
        near = links[Link.SKIP, under]
        if near >= 0:
            far = links[Link.SKIP, near]
            if far >= 0 and height - marks[Mark.HEIGHT, near] == marks[Mark.HEIGHT, near] - marks[Mark.HEIGHT, far]:
                links[Link.SKIP, slot] = far


@helper(inline=True)
def newest_before(end, links, node, time):
    """The newest instance of a negative stack, from `node` down, that ends before a time."""
    while node >= 0 and end[node] >= time:
        jump = links[Link.SKIP, node]
        if jump >= 0 and end[jump] >= time:
            node = jump
        else:
            node = links[Link.BELOW, node]
    return node
