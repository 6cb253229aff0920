"""Matches that wait for a negated end: they stand only if nothing forbidden comes before their window has passed.

Rows of waiting matches hang together in rings, one for each first instance, since all matches with the same first
instance have the same deadline. A heap of first instances, by start, says whose turn is next. Rows are used again.
"""

from __future__ import annotations

from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.stack_checks import deadline, forbidden
from ouzel.kernels.stack_tables import ByStage, Counter, Status


@helper
def wait(state, instances, output, first_match, last_match):
    """Move matches first_match to last_match - 1 from the output to those that wait, or none of them."""
    start = instances.start
    slots = output.slots
    waiting_slots = state.waiting_slots
    waiting_next = state.waiting_next
    waiting_tail = state.waiting_tail
    counters = state.counters
    if last_match - first_match > waiting_next.size - counters[Counter.WAITING]:
        return Status.WAITING_FULL
    for match in range(first_match, last_match):
        row = counters[Counter.FREE]
        counters[Counter.FREE] = waiting_next[row]
        for place in range(waiting_slots.shape[1]):
            waiting_slots[row, place] = slots[place, match]
        first = slots[0, match]
        tail = waiting_tail[first]
        if tail < 0:
            waiting_next[row] = row
            _heap_push(start, state.waiting_heap, counters[Counter.HEAP], first)
            counters[Counter.HEAP] += 1
        else:
            waiting_next[row] = waiting_next[tail]
            waiting_next[tail] = row
        waiting_tail[first] = row
    counters[Counter.WAITING] += last_match - first_match
    return Status.DONE


@kernel
def release_until(tables, state, instances, until, output):
    """Append the waiting matches whose last tick is at or before `until`, first instance by first instance."""
    start = instances.start
    counters = state.counters
    waiting_heap = state.waiting_heap
    waiting_next = state.waiting_next
    waiting_tail = state.waiting_tail
    waiting_slots = state.waiting_slots
    cursor = state.cursor
    bound = state.bound
    slots = output.slots
    match_end = output.match_end
    written = output.written[0]
    length = tables.length
    status = Status.DONE
    while counters[Counter.HEAP] > 0:
        first = waiting_heap[0]
        last_tick = deadline(start[first], tables.window)
        if last_tick > until:
            break
        room = tables.max_matches_per_moment
        if counters[Counter.MOMENT] == last_tick:
            room -= counters[Counter.AT_MOMENT]
        mark = written
        tail = waiting_tail[first]
        row = tail
        group = 0
        dropped = 0
        while True:
            row = waiting_next[row]
            group += 1
            for place in range(length):
                cursor[place] = waiting_slots[row, place]
                bound[tables.by_stage[place, ByStage.COMPONENT]] = cursor[place]
            stands = True
            for entry in range(tables.first_at_end, tables.checks.size):
                if forbidden(tables, state, instances, tables.checks[entry]):
                    stands = False
                    break
            if stands:
                if written - mark >= room:
                    if not tables.drop:
                        status = Status.MATCH_LIMIT
                        break
                    dropped += 1
                elif written == match_end.size:
                    status = Status.OUTPUT_FULL
                    break
                else:
                    for place in range(length):
                        slots[place, written] = cursor[place]
                    match_end[written] = last_tick
                    written += 1
            if row == tail:
                break
        if status != Status.DONE:
            # Nothing of this first instance has happened.
            written = mark
            break
        # The whole ring goes back to the free rows.
        oldest = waiting_next[tail]
        waiting_next[tail] = counters[Counter.FREE]
        counters[Counter.FREE] = oldest
        counters[Counter.WAITING] -= group
        counters[Counter.HEAP] -= 1
        _heap_pop(start, waiting_heap, counters[Counter.HEAP])
        waiting_tail[first] = -1
        counters[Counter.DROPPED] += dropped
        if written > mark:
            if counters[Counter.MOMENT] != last_tick:
                counters[Counter.MOMENT] = last_tick
                counters[Counter.AT_MOMENT] = 0
            counters[Counter.AT_MOMENT] += written - mark
    output.written[0] = written
    return status


@helper
def _heap_push(start, heap, size, slot):
    """Add a slot; the heap is by start, then slot. All windows are as long, so that is also by deadline."""
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        above = heap[parent]
        if start[above] < start[slot] or (start[above] == start[slot] and above < slot):
            break
        heap[child] = above
        child = parent
    heap[child] = slot


@helper
def _heap_pop(start, heap, size):
    """Remove the first slot; `size` is what remains."""
    slot = heap[size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        lesser = heap[child]
        if child + 1 < size:
            other = heap[child + 1]
            if start[other] < start[lesser] or (start[other] == start[lesser] and other < lesser):
                child += 1
                lesser = other
        if start[slot] < start[lesser] or (start[slot] == start[lesser] and slot < lesser):
            break
        heap[parent] = lesser
        parent = child
    heap[parent] = slot
