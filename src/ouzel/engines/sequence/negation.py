"""Windows and negation for the stack kernel.

A negative instance forbids a match if it is completely inside an interval: it starts after one tick and ends before
another. Each stack of negatives stores for every instance the newest start from there down (its guard). So the test "is
any inside" is one search for the second tick and one comparison with the guard.
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.sequence.tables import ByNegative, ByStage, Counter, StackOutput, StackState, StackTables
from ouzel.kernels.events import EVERY_KEY, Instances, Link, Mark, Status
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicates import holds
from ouzel.kernels.windows import NEVER, deadline, newest_before, oldest_alive

_EVERY_KEY = EVERY_KEY


@helper(inline=True)
def guard_before(tables, state, instances, first, last, slot):
    """The newest start among instances of some negatives (`checks` first to last - 1) that end before a slot's
    start."""
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

    `state.cursor` holds the match by position, as far as it is bound; the last position is always bound.
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
    # A forbidding instance starts after this tick.
    after = end[cursor[place - 1]] if place > 0 else oldest_alive(end[last], tables.window) - 1
    found = False
    for everywhere in range(1 + row[ByNegative.EVERYWHERE]):
        key = np.int64(_EVERY_KEY) if everywhere else np.int64(instances.key[last])
        node = state.head[key * tables.components + component]
        # After the last component, everything up to now counts: matches are released before time passes their window.
        if place < length:
            node = newest_before(end, state.links, node, start[cursor[place]])
        # A guard is the newest start from here down, so the search ends at a guard that is too old.
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


@helper
def wait(state, instances, output, first_match, last_match):
    """Move all matches first_match to last_match - 1 from the output to the waiting ones, or none of them."""
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
def release_until(tables: StackTables, state: StackState, instances: Instances, until: int, output: StackOutput):
    """Append the waiting matches whose last tick is at or before `until`, grouped by first instance."""
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
        room = tables.max_matches_per_timestamp
        if counters[Counter.LATEST_TICK] == last_tick:
            room -= counters[Counter.AT_LATEST]
        mark = written
        tail = waiting_tail[first]
        row = tail
        group = 0
        while True:
            row = waiting_next[row]
            group += 1
            for place in range(length):
                cursor[place] = waiting_slots[row, place]
                bound[tables.by_stage[place, ByStage.COMPONENT]] = cursor[place]
            allowed = True
            for entry in range(tables.first_at_end, tables.checks.size):
                if forbidden(tables, state, instances, tables.checks[entry]):
                    allowed = False
                    break
            if allowed:
                if written - mark >= room:
                    status = Status.MATCH_LIMIT
                    break
                if written == match_end.size:
                    status = Status.OUTPUT_FULL
                    break
                for place in range(length):
                    slots[place, written] = cursor[place]
                match_end[written] = last_tick
                written += 1
            if row == tail:
                break
        if status != Status.DONE:
            # No match of this first instance was released.
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
        if written > mark:
            if counters[Counter.LATEST_TICK] != last_tick:
                counters[Counter.LATEST_TICK] = last_tick
                counters[Counter.AT_LATEST] = 0
            counters[Counter.AT_LATEST] += written - mark
    output.written[0] = written
    return status


@helper
def _heap_push(start, heap, size, slot):
    """Add a slot. The heap is ordered by start, then slot; all windows have the same length, so this is also the order
    of deadlines."""
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
    """Remove the first slot; `size` is the number that remains."""
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
