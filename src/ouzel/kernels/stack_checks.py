"""Windows and negation for the stack kernel.

A negative instance forbids a match if it lies wholly inside an interval: it starts after one tick and ends before
another. Each stack of negatives knows for every instance the newest start from there down (its guard), so “does any
lie inside” is one search for the second tick and one look at the guard.
"""

from __future__ import annotations

import numpy as np

from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicates import holds
from ouzel.kernels.stack_tables import EVERY_KEY, NO_WINDOW, ByNegative, Link, Mark

_NO_WINDOW = np.int64(NO_WINDOW)
_EVERY_KEY = EVERY_KEY
LATEST = np.int64(2**63 - 1)
# Earlier than every time: the guard where there is no negative instance.
NEVER = np.int64(-(2**63))
_EARLIEST = np.int64(-(2**63) + 1)


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


@helper(inline=True)
def guard_before(tables, state, instances, first, last, slot):
    """The newest start of instances of some negatives (`checks` first to last - 1) that end before a slot's start."""
    end = instances.end
    time = instances.start[slot]
    newest = NEVER
    for entry in range(first, last):
        number = tables.checks[entry]
        component = tables.by_negative[number, ByNegative.COMPONENT]
        for everywhere in range(1 + tables.by_negative[number, ByNegative.EVERYWHERE]):
            key = np.int64(_EVERY_KEY) if everywhere else np.int64(instances.key[slot])
            node = newest_before(end, state.links, state.head[key * tables.components + component], time)
            if node >= 0:
                newest = max(newest, state.marks[Mark.GUARD, node])
    return newest


@helper(inline=True)
def forbidden(tables, state, instances, number):
    """Whether a negative component has an instance in its interval that satisfies every conjunct naming it.

    `state.cursor` holds the match by position, as far as it is bound, the last position always.
    """
    start = instances.start
    end = instances.end
    second_key = instances.second_key
    cursor = state.cursor
    length = tables.length
    last = cursor[length - 1]
    row = tables.by_negative[number]
    place = row[ByNegative.POSITION]
    component = row[ByNegative.COMPONENT]
    # What forbids starts after this tick.
    after = end[cursor[place - 1]] if place > 0 else oldest_alive(end[last], tables.window) - 1
    found = False
    for everywhere in range(1 + row[ByNegative.EVERYWHERE]):
        key = np.int64(_EVERY_KEY) if everywhere else np.int64(instances.key[last])
        node = state.head[key * tables.components + component]
        # Behind the last component everything up to now counts: matches are released before time runs past them.
        if place < length:
            node = newest_before(end, state.links, node, start[cursor[place]])
        # A guard is the newest start from here down, so the search ends where it is too old.
        while not found and node >= 0 and state.marks[Mark.GUARD, node] > after:
            found = start[node] > after
            if found and tables.second_equivalence and second_key[node] != second_key[last]:
                found = row[ByNegative.EVERYWHERE] != 0 and second_key[node] == _EVERY_KEY
            if found:
                state.bound[component] = node
                for conjunct in range(
                    row[ByNegative.FIRST_CONJUNCT], tables.by_negative[number + 1, ByNegative.FIRST_CONJUNCT]
                ):
                    found = found and holds(tables.predicates, instances, state.bound, state.values, conjunct)
            node = state.links[Link.BELOW, node]
    return found
