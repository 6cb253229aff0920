"""The stack kernel for the plainest queries: types, one key, order and window decide, and events are points.

It does what `stacks.py` does for every query, in a small function that loads and runs faster.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ouzel.kernels.stack_checks import NEVER, oldest_alive
from ouzel.kernels.stack_tables import ByComponent, Counter, Link, Status

_DONE = int(Status.DONE)
_OUTPUT_FULL = int(Status.OUTPUT_FULL)
_MATCH_LIMIT = int(Status.MATCH_LIMIT)

_MOMENT = int(Counter.MOMENT)
_AT_MOMENT = int(Counter.AT_MOMENT)
_OLDEST = int(Counter.OLDEST)
_INSTANCES = int(Counter.INSTANCES)
_PUSHED = int(Counter.PUSHED)
_CONSTRUCTIONS = int(Counter.CONSTRUCTIONS)
_EDGES = int(Counter.EDGES)
_SEQUENCES = int(Counter.SEQUENCES)
_MATCHES = int(Counter.MATCHES)

_POSITION = int(ByComponent.POSITION)
_BEFORE = int(ByComponent.BEFORE)
_BELOW = int(Link.BELOW)
_SKIP = int(Link.SKIP)
_PREVIOUS_TOP = int(Link.PREVIOUS_TOP)


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def first_alive(end, oldest, window_start):
    """The first slot, from `oldest` up, that ends at window_start or later; some later slot does."""
    while end[oldest] < window_start:
        oldest += 1
    return oldest


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def first_of_tick(end, first, last):
    """The first slot with the same end as slot `first`, if there is that slot."""
    if first < last:
        while first > 0 and end[first - 1] == end[first]:
            first -= 1
    return first


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def last_before(end, skip, top, begin):
    """The newest instance of a positive stack, from `top` down, that ends before a time."""
    while top >= 0 and end[top] >= begin:
        top = skip[top]
    return top


@njit(cache=True, nogil=True, _nrt=False)
def scan_plain(tables, state, instances, first, last, output):
    """(status, position), as `stacks.scan` tells them.

    Slots are in order of end, so “has left the window” and “ends at this very tick” are comparisons of slots.
    """
    end = instances.end
    key = instances.key
    component_of = instances.component
    head = state.head
    below = state.links[_BELOW]
    skip = state.links[_SKIP]
    previous_top = state.links[_PREVIOUS_TOP]
    counters = state.counters
    by_component = tables.by_component
    components = tables.components
    window = tables.window
    last_position = tables.length - 1
    capacity = output.match_end.size
    written = output.written[0]
    oldest = counters[_OLDEST]
    tick_start = first_of_tick(end, first, last)
    tick = end[tick_start] if first < last else NEVER
    check_oldest_at = first
    pushed = 0
    constructions = 0
    edges = 0
    matches = 0
    status = _DONE
    position = last
    for slot in range(first, last):
        now = end[slot]
        tick_start = tick_start if now == tick else slot
        tick = now
        if slot >= check_oldest_at:
            # Not at every instance: the length of this loop is hard to predict.
            oldest = first_alive(end, oldest, oldest_alive(now, window))
            check_oldest_at = slot + 32
        # No branch from here on depends on the data: which component comes and whether it is filtered is a matter of
        # chance, and a wrong guess of the processor costs more than all of this.
        component = component_of[slot]
        place = by_component[component, _POSITION]
        base = np.int64(key[slot]) * components
        own = base + component
        under = head[own]
        top = head[base + by_component[component, _BEFORE]]
        if top >= tick_start:
            top = last_before(end, skip, top, now)
        # Transition filtering: whatever lies below the top is older still.
        alive = (place == 0) | (top >= oldest)
        enters = alive & (place < last_position)
        below[slot] = under
        skip[slot] = under
        if under >= tick_start:
            skip[slot] = skip[under]
        previous_top[slot] = top
        head[own] = slot if enters else under
        pushed += enters
        if not (alive & (place == last_position)):
            continue

        oldest = first_alive(end, oldest, oldest_alive(now, window))
        room = tables.max_matches_per_moment
        if counters[_MOMENT] == now:
            room -= counters[_AT_MOMENT]
        room = min(capacity, written + max(room, 0))
        reached, seen = _search(below, previous_top, state.cursor, slot, now, oldest, written, room, output)
        if reached < 0:
            status = _OUTPUT_FULL if room == capacity else _MATCH_LIMIT
            position = slot
            break
        constructions += 1
        edges += seen
        matches += reached - written
        if reached > written:
            counters[_AT_MOMENT] = reached - written + (counters[_AT_MOMENT] if counters[_MOMENT] == now else 0)
            counters[_MOMENT] = now
            written = reached
    output.written[0] = written
    counters[_OLDEST] = oldest
    counters[_INSTANCES] += position - first
    counters[_PUSHED] += pushed
    counters[_CONSTRUCTIONS] += constructions
    counters[_EDGES] += edges
    counters[_SEQUENCES] += matches
    counters[_MATCHES] += matches
    return status, position


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _search(below, previous_top, cursor, slot, now, oldest, written, room, output):
    """(matches written, candidates looked at) for the matches that `slot` completes; -1 matches if there is no room.

    The two lowest positions are loops of their own, those above them go by `cursor`.
    """
    slots = output.slots
    match_end = output.match_end
    length = slots.shape[0]
    last_position = length - 1
    # With two components the loop over position 1 passes the completing instance, which is no candidate.
    seen = -1 if last_position == 1 else 0
    level = last_position
    cursor[level] = slot
    while level <= last_position:
        if level > 2:
            node = previous_top[cursor[level]]
            level -= 1
        else:
            # With two components it stands at position 1 itself, alone.
            second = slot if last_position == 1 else previous_top[cursor[2]]
            while second >= oldest:
                seen += 1
                lowest = previous_top[second]
                while lowest >= oldest:
                    if written == room:
                        return -1, seen
                    slots[0, written] = lowest
                    slots[1, written] = second
                    for higher in range(2, length):
                        slots[higher, written] = cursor[higher]
                    match_end[written] = now
                    written += 1
                    seen += 1
                    lowest = below[lowest]
                second = below[second]
            node = below[cursor[level]]
        while node < oldest:
            level += 1
            if level > last_position:
                return written, seen
            node = below[cursor[level]]
        seen += 1
        cursor[level] = node
    return written, seen
