"""The stack kernel for plain queries, which have only types, one key, order, a window and negatives, over events
without duration.

For these it gives the same answers as `stacks.py`, in a smaller function that loads and runs faster. Instances are
processed in blocks. First, a loop without data-dependent branches pushes the whole block. Then a search starts from
each instance that may complete a match. It finds the same matches as an earlier search would, because links never
change.
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.sequence.tables import ByComponent, Counter, StackOutput, StackState, StackTables
from ouzel.kernels.events import NEVER, Instances, Link, Mark, Status, oldest_alive
from ouzel.kernels.jit import helper, kernel

# Few enough to stay in the first-level cache between the two loops.
BLOCK_SLOTS = 256


@helper(inline=True)
def first_alive(end, oldest, window_start):
    """The first slot, from `oldest` up, that ends at `window_start` or later. There must be one."""
    while end[oldest] < window_start:
        oldest += 1
    return oldest


@helper(inline=True)
def first_of_tick(end, first, last):
    """The first slot that ends at the same tick as slot `first`. Slot `first` must exist."""
    if first < last:
        while first > 0 and end[first - 1] == end[first]:
            first -= 1
    return first


@helper(inline=True)
def last_before(end, skip, top, begin):
    """The newest instance of a positive stack, from `top` down, that ends before a time."""
    while top >= 0 and end[top] >= begin:
        top = skip[top]
    return top


@kernel
def scan_plain(
    tables: StackTables, state: StackState, instances: Instances, first: int, last: int, output: StackOutput
):
    """(status, position), as in `stacks.scan`.

    Slots are ordered by end, so "has left the window" and "ends at this tick" are comparisons of slots.
    """
    end = instances.end
    below = state.links[Link.BELOW]
    previous_top = state.links[Link.PREVIOUS_TOP]
    completing = state.links[Link.COMPLETING]
    counters = state.counters
    window = tables.window
    guards = state.marks[Mark.GUARD]
    guarded = guards.size > 0
    capacity = output.match_end.size
    written = output.written[0]
    oldest = counters[Counter.OLDEST]
    stacked = max(counters[Counter.STACKED], first)
    constructions = 0
    edges = 0
    matches = 0
    status = Status.DONE
    position = first
    while position < last and status == Status.DONE:
        block_end = min(position + BLOCK_SLOTS, last)
        oldest = first_alive(end, oldest, oldest_alive(end[position], window))
        if position < stacked:
            # Already pushed: the last call ended within a block because there was no room.
            block_end = min(block_end, stacked)
            found = list_completing(tables, state, instances, position, block_end)
        else:
            found = push_block(tables, state, instances, True, position, block_end, oldest)
            stacked = block_end
        for entry in range(position, position + found):
            slot = completing[entry]
            now = end[slot]
            oldest = first_alive(end, oldest, oldest_alive(now, window))
            room = tables.max_matches_per_timestamp
            if counters[Counter.LATEST_TICK] == now:
                room -= counters[Counter.AT_LATEST]
            room = min(capacity, written + max(room, 0))
            reached, seen = _search(
                end, below, previous_top, guards, guarded, state.cursor, slot, now, oldest, written, room, output
            )
            if reached < 0:
                status = Status.OUTPUT_FULL if room == capacity else Status.MATCH_LIMIT
                position = slot
                break
            constructions += 1
            edges += seen
            matches += reached - written
            if reached > written:
                counters[Counter.AT_LATEST] = (
                    reached - written + (counters[Counter.AT_LATEST] if counters[Counter.LATEST_TICK] == now else 0)
                )
                counters[Counter.LATEST_TICK] = now
                written = reached
        if status == Status.DONE:
            position = block_end
    output.written[0] = written
    counters[Counter.OLDEST] = oldest
    counters[Counter.STACKED] = stacked
    counters[Counter.INSTANCES] += position - first
    counters[Counter.CONSTRUCTIONS] += constructions
    counters[Counter.EDGES] += edges
    counters[Counter.SEQUENCES] += matches
    counters[Counter.MATCHES] += matches
    return status, position


@helper(inline=True)
def list_completing(tables, state, instances, first, last):
    """List the instances of a block that may complete a match, from `first` on. Returns their number."""
    completing = state.links[Link.COMPLETING]
    found = 0
    for slot in range(first, last):
        if tables.by_component[instances.component[slot], ByComponent.POSITION] == tables.length - 1:
            completing[first + found] = slot
            found += 1
    return found


@helper(inline=True)
def push_block(tables, state, instances, points, first, last, oldest):
    """Push a block of instances on their stacks. Returns the number that may complete a match, and lists these from
    `first` on.

    `points`: every event starts and ends at one time. Only then are negatives allowed, one before each position. No
    branch depends on the data, except for simultaneous events: components come in random order, and a mispredicted
    branch costs more than the rest of the work.
    """
    start = instances.start
    end = instances.end
    key = instances.key
    component_of = instances.component
    head = state.head
    below = state.links[Link.BELOW]
    skip = state.links[Link.SKIP]
    previous_top = state.links[Link.PREVIOUS_TOP]
    completing = state.links[Link.COMPLETING]
    guards = state.marks[Mark.GUARD]
    guarded = guards.size > 0
    by_component = tables.by_component
    components = np.uint64(tables.components)
    last_position = tables.length - 1
    tick_start = first_of_tick(end, first, last)
    tick = end[tick_start]
    found = 0
    pushed = 0
    for slot in range(first, last):
        # An unsigned index is not checked for counting from the end, which saves a third of this loop's instructions.
        at = np.uint64(slot)
        now = end[at]
        tick_start = tick_start if now == tick else slot
        tick = now
        component = np.uint64(component_of[at])
        place = by_component[component, ByComponent.POSITION]
        base = np.uint64(key[at]) * components
        own = base + component
        under = head[own]
        top = head[base + np.uint64(by_component[component, ByComponent.BEFORE])]
        below_tick = under
        if points and tick_start < slot:
            if top >= tick_start:
                top = last_before(end, skip, top, now)
            if under >= tick_start:
                below_tick = skip[under]
        if not points:
            if end[max(top, 0)] >= start[at]:
                top = last_before(end, skip, top, start[at])
            if under >= tick_start:
                below_tick = skip[under]
        skip[at] = below_tick
        # Transition filtering: all instances below the top are older.
        alive = (place <= 0) | (top >= oldest)
        if guarded:
            guard_component = np.uint64(by_component[component, ByComponent.GUARDED_BY])
            negative = head[base + guard_component]
            if tick_start < slot and negative >= tick_start:
                negative = last_before(end, skip, negative, now)
            has_guard = (guard_component != component) & (negative >= 0)
            guard = end[max(negative, 0)] if has_guard else NEVER
            guards[at] = guard
            alive = alive & ((place <= 0) | (end[max(top, 0)] >= guard))
        enters = alive & (place < last_position)
        below[at] = under
        previous_top[at] = top
        head[own] = slot if enters else under
        pushed += enters
        completing[np.uint64(first + found)] = slot
        found += alive & (place == last_position)
    state.counters[Counter.PUSHED] += pushed
    return found


@helper(inline=True)
def _search(end, below, previous_top, guards, guarded, cursor, slot, now, oldest, written, room, output):
    """(matches written, candidates visited) for the matches that `slot` completes; -1 matches if there is no room.

    The two lowest positions have their own loop; the positions above use `cursor`. A stack is ordered by end, so if an
    instance is too old, or older than a guard, all instances below it are too.
    """
    slots = output.slots
    length = slots.shape[0]
    last_position = length - 1
    # With two components the pass over position 1 finds the completing instance, which is no candidate.
    seen = -1 if last_position == 1 else 0
    level = last_position
    cursor[level] = slot
    while level <= last_position:
        if level > 2:
            node = previous_top[cursor[level]]
            level -= 1
        else:
            # With two components it is the only instance at position 1.
            alone = last_position == 1
            third = slot if alone else np.int64(cursor[2])
            second = slot if alone else np.int64(previous_top[third])
            if guarded:
                guard = NEVER if alone else guards[third]
                reached, passed = _write_guarded_pairs(
                    end, below, previous_top, guards, second, guard, third, now, alone, oldest, written, room, output
                )
            else:
                reached, passed = _write_pairs(
                    below, previous_top, second, third, now, alone, oldest, written, room, output
                )
            seen += passed
            if reached < 0:
                return reached, seen
            seen += reached - written
            for higher in range(3, length):
                for match in range(written, reached):
                    slots[higher, np.uint64(match)] = cursor[higher]
            written = reached
            node = below[cursor[level]] if level < last_position else -1
        while node < oldest or (guarded and end[node] < guards[cursor[level + 1]]):
            level += 1
            if level >= last_position:
                return written, seen
            node = below[cursor[level]]
        seen += 1
        cursor[level] = node
    return written, seen


@helper(inline=True)
def _write_pairs(below, previous_top, second, third, now, alone, oldest, written, room, output):
    """(matches written, instances at position 1): pair each instance at position 1, from `second` down, with all
    instances from its link down.

    This is two nested loops written as one, so that no branch depends on the end of the inner loop, which is random.
    The next instance of position 1 and its link are loaded before they are needed.
    """
    lowest_slots, second_slots, third_slots = output.slots[0], output.slots[1], output.slots[1 if alone else 2]
    match_end = output.match_end
    passed = np.int64(0)
    if second < oldest:
        return written, passed
    lowest = np.int64(previous_top[np.uint64(second)])
    while second >= oldest:
        next_second = np.int64(-1) if alone else np.int64(below[np.uint64(second)])
        next_lowest = np.int64(previous_top[np.uint64(max(next_second, 0))])
        if lowest >= oldest:
            if written == room:
                return np.int64(-1), passed
            at = np.uint64(written)
            lowest_slots[at] = lowest
            second_slots[at] = second
            third_slots[at] = third
            match_end[at] = now
            written += 1
        lower = np.int64(below[np.uint64(max(lowest, 0))])
        exhausted = lower < oldest
        passed += exhausted
        lowest = next_lowest if exhausted else lower
        second = next_second if exhausted else second
    return written, passed


@helper(inline=True)
def _write_guarded_pairs(
    end, below, previous_top, guards, second, second_guard, third, now, alone, oldest, written, room, output
):
    """Like `_write_pairs`, but for each instance at position 1, the first one below that is older than its guard ends
    the list.
    """
    lowest_slots, second_slots, third_slots = output.slots[0], output.slots[1], output.slots[1 if alone else 2]
    match_end = output.match_end
    passed = np.int64(0)
    while second >= oldest and end[np.uint64(second)] >= second_guard:
        passed += 1
        lowest = np.int64(previous_top[np.uint64(second)])
        guard = guards[np.uint64(second)]
        while lowest >= oldest and end[np.uint64(lowest)] >= guard:
            if written == room:
                return np.int64(-1), passed
            at = np.uint64(written)
            lowest_slots[at] = lowest
            second_slots[at] = second
            third_slots[at] = third
            match_end[at] = now
            written += 1
            lowest = np.int64(below[np.uint64(lowest)])
        second = np.int64(-1) if alone else np.int64(below[np.uint64(second)])
    return written, passed
