"""Active instance stacks (SASE 4): all matches of sequences without Kleene plus.

There is one stack for each partition and component. A positive instance stores what was on top of the preceding
component's stack when it arrived. When an instance of the last component arrives, a search backwards along these links
finds the matches that it completes, newest first. A stack is ordered by end, so a search stops at the first candidate
that is too old.

Negation: the *guard* of a positive instance is the newest start of any negative instance that ends before the positive
one starts. The event before it in a match must not end before its guard. Negative components whose predicates read
other events of the match are searched in their own stacks. With a negated end, matches wait until their window has
passed.

A negative instance forbids a match if it is completely inside an interval: it starts after one tick and ends before
another. In a stack of negatives, the guard of an instance is the newest start from there down. So to test whether any
instance is inside takes one search for the second tick and one comparison with the guard.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.sequence.stacks_plain import (
    BLOCK_SLOTS,
    first_alive,
    first_of_tick,
    last_before,
    list_completing,
    push_block,
    scan_plain,
)
from ouzel.engines.sequence.tables import (
    ByComponent,
    ByNegative,
    ByStage,
    Counter,
    StackOutput,
    StackState,
    StackTables,
    larger_output,
    reserve_waiting,
)
from ouzel.kernels.events import (
    EVERY_KEY,
    NEVER,
    Instances,
    Link,
    Mark,
    Status,
    deadline,
    newest_before,
    oldest_alive,
    push_negative,
)
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces
from ouzel.kernels.predicates import holds

_EVERY_KEY = EVERY_KEY


@helper(inline=True)
def guard_before(tables, state, instances, first, last, slot):
    """The newest start among the instances of some negative components that end before an instance starts. `checks`
    first to last - 1 name these components.
    """
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
    """Whether some instance of a negative component is in its interval and satisfies all conjuncts on that
    component.

    `state.cursor` holds the match by position. Positions are bound from the last one down.
    """
    start = instances.start
    end = instances.end
    second_key = instances.second_key
    cursor = state.cursor
    length = tables.length
    last = cursor[length - 1]
    row = tables.by_negative[number]
    first = row[ByNegative.AFTER]
    before = row[ByNegative.BEFORE]
    component = row[ByNegative.COMPONENT]
    # A forbidding instance starts after this tick.
    after = end[cursor[first]] if first >= 0 else oldest_alive(end[last], tables.window) - 1
    found = False
    for everywhere in range(1 + row[ByNegative.EVERYWHERE]):
        key = np.int64(_EVERY_KEY) if everywhere else np.int64(instances.key[last])
        node = state.head[key * tables.components + component]
        # After the last component, everything up to now counts: matches are released before time passes their window.
        if before < length:
            node = newest_before(end, state.links, node, start[cursor[before]])
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
    """Move the matches first_match to last_match - 1 from the output to the waiting matches. Moves all or none."""
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
    """Append the waiting matches whose window ends at or before `until`, grouped by their first instance."""
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
    """Add a slot to a heap that is ordered by start, then slot. All windows have the same length, so this is also the
    order of deadlines.
    """
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
    """Remove the first slot of a heap. `size` is the number of slots that remain."""
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


# The result for an instance.
_FILTERED = 0
_ENTERS = 1
_COMPLETES = 2


class Progress(NamedTuple):
    """Result of a call. If a limit stopped it, the instance at `position` has changed nothing."""

    status: Status
    position: int
    state: StackState
    output: StackOutput


def scan(
    tables: StackTables,
    state: StackState,
    instances: Instances,
    first: int,
    last: int,
    output: StackOutput,
    *,
    stop_when_full: bool = False,
) -> Progress:
    """Read the instances in slots first to last - 1 and append the matches they complete to the output.

    Continue with the state and output of the result, which may be larger arrays. Matches that wait for a negated end
    are released as soon as an instance shows that their window has passed. With `stop_when_full`, the call ends when
    the output is full. Then empty the output and continue at `position`.

    >>> from ouzel.engines.sequence.tables import build_tables, new_output, new_state
    >>> from ouzel.kernels.events import new_instances
    >>> tables = build_tables([False, False], window=10)
    >>> instances = new_instances(3)
    >>> instances.end[:] = 1, 2, 11
    >>> instances.component[:] = 0, 1, 1
    >>> found = scan(tables, new_state(tables, 3), instances, 0, 3, new_output(tables))
    >>> found.output.slots[:, : found.output.written[0]].T.tolist()
    [[0, 1]]
    """
    assert state.links.shape[1] >= last
    points = instances.start is instances.end
    pieces = Pieces(last)
    position = first
    while True:
        end = pieces.end(position)
        if tables.plain and points:
            status, position = scan_plain(tables, state, instances, position, end, output)
        else:
            status, position = _scan(tables, state, instances, points, position, end, output)
        if status == Status.OUTPUT_FULL:
            if stop_when_full and output.written[0]:
                break
            output = larger_output(output)
        elif status == Status.WAITING_FULL:
            state = reserve_waiting(state, 2 * max(state.waiting_next.size, 512))
        elif status != Status.DONE or position == last:
            break
    return Progress(Status(status), position, state, output)


def release(tables: StackTables, state: StackState, instances: Instances, until: int, output: StackOutput) -> Progress:
    """Append the waiting matches whose window has passed. No event at or before `until` can come any more.

    At the end of a bounded input `until` is the largest int64. The position of the result has no meaning.
    """
    status = release_until(tables, state, instances, until, output)
    while status == Status.OUTPUT_FULL:
        output = larger_output(output)
        status = release_until(tables, state, instances, until, output)
    return Progress(Status(status), 0, state, output)


@kernel
def _scan(
    tables: StackTables,
    state: StackState,
    instances: Instances,
    points: bool,
    first: int,
    last: int,
    output: StackOutput,
):
    """(status, position): read instances. If the status is not DONE, the instance at `position` has had no effect.

    Slots are ordered by end, so "has left the window" and "ends at this tick" compare slots.
    """
    start = instances.start
    end = instances.end
    counters = state.counters
    completing = state.links[Link.COMPLETING]
    waits = tables.first_at_end < tables.checks.size
    # Without negatives and second keys whole blocks are pushed at once, which is faster.
    in_blocks = tables.by_negative.shape[0] == 1 and not tables.second_equivalence
    window_in_scan = tables.scan_window == tables.window
    oldest = counters[Counter.OLDEST]
    check_oldest_at = first
    stacked = max(counters[Counter.STACKED], first)
    tick_start = first_of_tick(end, first, last)
    capacity = output.match_end.size
    written = output.written[0]
    entry = first
    entries_end = first
    if in_blocks and first < stacked:
        # The last call ended within a block because there was no room.
        entries_end += list_completing(tables, state, instances, first, stacked)
    pushed = 0
    constructions = 0
    edges = 0
    sequences = 0
    matches = 0
    status = Status.DONE
    slot = first
    while slot < last:
        if in_blocks:
            if slot >= stacked:
                stacked = min(slot + BLOCK_SLOTS, last)
                oldest = first_alive(end, oldest, oldest_alive(end[slot], tables.window))
                entry = slot
                entries_end = slot + push_block(
                    tables, state, instances, points, slot, stacked, oldest if window_in_scan else 0
                )
            if entry == entries_end:
                slot = stacked
                continue
            slot = completing[entry]
            entry += 1
            if slot >= last:
                # Part of a block that an earlier call, over more instances, has pushed.
                break
        else:
            now = end[slot]
            tick_start = tick_start if now == end[tick_start] else slot
            if slot >= check_oldest_at:
                # Not for every instance: the length of this loop is hard to predict.
                oldest = first_alive(end, oldest, oldest_alive(now, tables.window))
                check_oldest_at = slot + 32
            if waits and counters[Counter.HEAP] > 0 and deadline(start[state.waiting_heap[0]], tables.window) < now:
                output.written[0] = written
                status = release_until(tables, state, instances, now - 1, output)
                written = output.written[0]
                if status != Status.DONE:
                    break
            verdict = _admit(tables, state, instances, slot, tick_start, oldest if window_in_scan else 0)
            pushed += verdict == _ENTERS
            if verdict != _COMPLETES:
                slot += 1
                continue

        now = end[slot]
        window_start = oldest_alive(now, tables.window)
        oldest = first_alive(end, oldest, window_start)
        if waits:
            room = tables.max_waiting - counters[Counter.WAITING]
        else:
            room = tables.max_matches_per_timestamp
            if counters[Counter.LATEST_TICK] == now:
                room -= counters[Counter.AT_LATEST]
        room = min(capacity, written + max(room, 0))
        status, reached, seen, complete = _search(
            tables, state, instances, slot, oldest, window_start, written, room, output
        )
        if status == Status.DONE and waits and reached > written:
            status = wait(state, instances, output, written, reached)
        if status != Status.DONE:
            break
        found = reached - written
        constructions += 1
        edges += seen
        sequences += complete
        matches += found
        if found > 0 and not waits:
            written = reached
            counters[Counter.AT_LATEST] = found + (
                counters[Counter.AT_LATEST] if counters[Counter.LATEST_TICK] == now else 0
            )
            counters[Counter.LATEST_TICK] = now
        slot += 1
    position = slot if status != Status.DONE else last
    if in_blocks:
        counters[Counter.STACKED] = stacked
    output.written[0] = written
    counters[Counter.OLDEST] = oldest
    counters[Counter.INSTANCES] += position - first
    counters[Counter.PUSHED] += pushed
    counters[Counter.CONSTRUCTIONS] += constructions
    counters[Counter.EDGES] += edges
    counters[Counter.SEQUENCES] += sequences
    counters[Counter.MATCHES] += matches
    return status, position


@helper(inline=True)
def _admit(tables, state, instances, slot, tick_start, oldest):
    """Push an instance on its stack, unless it can be part of no match. Returns whether it may complete a match."""
    start = instances.start
    end = instances.end
    head = state.head
    links = state.links
    marks = state.marks
    component = instances.component[slot]
    place = tables.by_component[component, ByComponent.POSITION]
    before = tables.by_component[component, ByComponent.BEFORE]
    base = np.int64(instances.key[slot]) * tables.components
    own = base + component
    if place < 0:
        push_negative(start, head, links, marks, own, slot)
        return _ENTERS
    top = np.int32(-1)
    if place > 0:
        top = last_before(end, links[Link.SKIP], head[base + before], start[slot])
        if top < oldest or top < 0:
            return _FILTERED
        if tables.second_equivalence:
            second_top = state.second_head[np.int64(instances.second_key[slot]) * tables.components + before]
            if not _meet(links, top, second_top, oldest):
                return _FILTERED
    first_guarded = tables.by_stage[place, ByStage.FIRST_GUARDED]
    last_guarded = tables.by_stage[place + 1, ByStage.FIRST_GUARDED]
    if first_guarded < last_guarded:
        guard = guard_before(tables, state, instances, first_guarded, last_guarded, slot)
        if place > 0 and end[top] < guard:
            return _FILTERED
        marks[Mark.GUARD, slot] = guard
    links[Link.PREVIOUS_TOP, slot] = top
    if place == tables.length - 1:
        # For the search it is a stack of its own.
        links[Link.BELOW, slot] = -1
        return _COMPLETES
    under = head[own]
    head[own] = slot
    links[Link.BELOW, slot] = under
    links[Link.SKIP, slot] = links[Link.SKIP, under] if under >= tick_start else under
    if tables.second_equivalence:
        second = np.int64(instances.second_key[slot]) * tables.components + component
        links[Link.SECOND_BELOW, slot] = state.second_head[second]
        state.second_head[second] = slot
    return _ENTERS


@helper(inline=True)
def _meet(links, top, second_top, oldest):
    """Whether two stacks have an instance in common (cross-attribute transition filtering, SASE 4.2.2)."""
    while top >= oldest and second_top >= oldest and top != second_top:
        if top > second_top:
            top = links[Link.BELOW, top]
        else:
            second_top = links[Link.SECOND_BELOW, second_top]
    return top >= oldest and top == second_top


@helper(inline=True)
def _search(tables, state, instances, slot, oldest, window_start, written, room, output):
    """Write the matches of an instance, for any query. Returns (status, matches written, candidates visited, complete
    sequences).
    """
    start = instances.start
    end = instances.end
    links = state.links
    marks = state.marks
    cursor = state.cursor
    barrier = state.barrier
    by_stage = tables.by_stage
    length = tables.length
    last_position = length - 1
    window_pushed = tables.construction_window == tables.window
    oldest_tried = oldest if window_pushed else 0
    first_is_guarded = by_stage[1, ByStage.FIRST_GUARDED] > 0
    seen = 0
    complete = 0
    level = last_position
    cursor[level] = slot
    barrier[level] = NEVER
    while level <= last_position:
        node = cursor[level]
        if node < oldest_tried or end[node] < barrier[level]:
            level += 1
            if level <= last_position:
                cursor[level] = links[Link.BELOW, cursor[level]]
            continue
        seen += 1
        state.bound[by_stage[level, ByStage.COMPONENT]] = node
        passed = True
        if level == 0:
            passed = start[node] >= window_start or not window_pushed
            # A negated start forbids events back to the start of the window.
            if first_is_guarded and marks[Mark.GUARD, node] >= window_start:
                passed = False
        stage = level
        while passed:
            if by_stage[stage, ByStage.TESTED]:
                passed = _passes(tables, state, instances, stage)
            if stage > 0 or not passed:
                break
            # The sequence is complete; now test what was not pushed into construction.
            complete += 1
            stage = length
            passed = start[node] >= window_start
            if tables.second_equivalence:
                for higher in range(1, length):
                    passed &= instances.second_key[cursor[higher]] == instances.second_key[node]
        if passed and level > 0:
            level -= 1
            cursor[level] = links[Link.PREVIOUS_TOP, node]
            barrier[level] = NEVER
            if by_stage[level + 1, ByStage.FIRST_GUARDED] < by_stage[level + 2, ByStage.FIRST_GUARDED]:
                barrier[level] = marks[Mark.GUARD, node]
            continue
        if passed:
            if written < room:
                for place in range(length):
                    output.slots[place, written] = cursor[place]
                output.match_end[written] = end[slot]
                written += 1
            elif written == output.match_end.size:
                return Status.OUTPUT_FULL, written, seen, complete
            else:
                limit = Status.WAITING_LIMIT if tables.first_at_end < tables.checks.size else Status.MATCH_LIMIT
                return limit, written, seen, complete
        cursor[level] = links[Link.BELOW, node]
    # The completing instance itself is no candidate.
    return Status.DONE, written, seen - 1, complete


@helper(inline=True)
def _passes(tables, state, instances, stage):
    """Whether the bound events pass all tests of a stage."""
    for conjunct in range(
        tables.by_stage[stage, ByStage.FIRST_CONJUNCT], tables.by_stage[stage + 1, ByStage.FIRST_CONJUNCT]
    ):
        if not holds(tables.predicates, instances, state.bound, state.values, conjunct):
            return False
    for entry in range(
        tables.by_stage[stage, ByStage.FIRST_SEARCHED], tables.by_stage[stage + 1, ByStage.FIRST_SEARCHED]
    ):
        if forbidden(tables, state, instances, tables.checks[entry]):
            return False
    return True


@kernel
def rebase(state: StackState, shift: int, used: int):
    """Drop the oldest `shift` of `used` slots. The others move down.

    Only slots that no future match can use may be dropped: those with end <= newest end - window.
    """
    left = used - shift
    links = state.links
    for link in range(links.shape[0]):
        for slot in range(left):
            links[link, slot] = max(links[link, slot + shift] - shift, -1)
    marks = state.marks
    if marks.shape[1] > 0:
        for mark in range(marks.shape[0]):
            for slot in range(left):
                marks[mark, slot] = marks[mark, slot + shift]
    state.counters[Counter.OLDEST] = max(state.counters[Counter.OLDEST] - shift, 0)
    state.counters[Counter.STACKED] = max(state.counters[Counter.STACKED] - shift, 0)
    _lower(state.head, shift)
    _lower(state.second_head, shift)
    _lower(state.waiting_heap[: state.counters[Counter.HEAP]], shift)
    tails = state.waiting_tail
    if tails.size > 0:
        for slot in range(left):
            tails[slot] = tails[slot + shift]
        tails[left:used] = -1
    # Free rows may hold anything.
    _lower(state.waiting_slots.reshape(state.waiting_slots.size), shift)


@helper
def _lower(slots, shift):
    for place in range(slots.size):
        slots[place] = max(slots[place] - shift, -1)


@kernel
def rekey(head: NDArray[np.int32], components: int, new_code: NDArray[np.int32]):
    """Move stacks to new keys. `new_code[key]` is at most `key`; -1 drops the key.

    Call it with `state.head`, or with `state.second_head` and the new codes of second keys.

    >>> head = np.array([5, 6, 7], np.int32)
    >>> rekey(head, 1, np.array([-1, 0, 1], np.int32))
    >>> head.tolist()
    [6, 7, -1]
    """
    for key in range(min(head.size // components, new_code.size)):
        target = np.int64(new_code[key])
        if target != key:
            for component in range(components):
                newest = head[key * components + component]
                head[key * components + component] = -1
                if target >= 0:
                    head[target * components + component] = newest
