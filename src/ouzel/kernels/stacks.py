"""Active instance stacks (SASE 4): sequences without Kleene plus, every choice of events.

One stack for each partition and component. A positive instance remembers the top of the stack before it; when an
instance of the last component arrives, the matches it completes are found by a search back along these links, newest
first. A stack is in order of end, so a search ends at the first candidate that is too old.

Negation: the newest start of any negative instance that ends before a positive one starts is that one's *guard*; its
predecessor must not end before it. Negatives whose predicates name other events are searched for in their own stacks.
A negated end makes matches wait until their window has passed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ouzel.kernels.predicates import holds
from ouzel.kernels.stack_tables import (
    EVERY_KEY,
    NO_WINDOW,
    Counter,
    Instances,
    StackOutput,
    StackState,
    StackTables,
    Status,
    larger_output,
    reserve_waiting,
)

_NO_WINDOW = np.int64(NO_WINDOW)
_LATEST = np.int64(2**63 - 1)
# Earlier than every time: the guard where there is no negative instance.
_NEVER = np.int64(-(2**63))
_EARLIEST = np.int64(-(2**63) + 1)
_EVERY_KEY = EVERY_KEY

_DONE = int(Status.DONE)
_OUTPUT_FULL = int(Status.OUTPUT_FULL)
_WAITING_FULL = int(Status.WAITING_FULL)
_MATCH_LIMIT = int(Status.MATCH_LIMIT)
_WAITING_LIMIT = int(Status.WAITING_LIMIT)

_WAITING = int(Counter.WAITING)
_FREE = int(Counter.FREE)
_HEAP = int(Counter.HEAP)
_MOMENT = int(Counter.MOMENT)
_AT_MOMENT = int(Counter.AT_MOMENT)
_DROPPED = int(Counter.DROPPED)
_INSTANCES = int(Counter.INSTANCES)
_PUSHED = int(Counter.PUSHED)
_CONSTRUCTIONS = int(Counter.CONSTRUCTIONS)
_EDGES = int(Counter.EDGES)
_SEQUENCES = int(Counter.SEQUENCES)
_MATCHES = int(Counter.MATCHES)


class Progress(NamedTuple):
    """How far a call came. With a limit's status the instance at `position` has left no trace."""

    status: Status
    position: int
    state: StackState
    output: StackOutput


def scan(
    tables: StackTables, state: StackState, instances: Instances, first: int, last: int, output: StackOutput
) -> Progress:
    """Read the instances in slots first to last - 1 and append the matches they complete to the output.

    Matches that wait for a negated end are released as soon as an instance shows that their window has passed.

    >>> from ouzel.kernels.stack_tables import build_tables, new_instances, new_output, new_state
    >>> tables = build_tables([False, False], window=10)
    >>> instances = new_instances(3)
    >>> instances.end[:] = 1, 2, 11
    >>> instances.component[:] = 0, 1, 1
    >>> found = scan(tables, new_state(tables, 3), instances, 0, 3, new_output(tables))
    >>> found.output.slots[:, : found.output.count[0]].T.tolist()
    [[0, 1]]
    """
    assert state.below.size >= last
    status, position = _scan(tables, state, instances, first, last, output)
    while status in (_OUTPUT_FULL, _WAITING_FULL):
        state, output = _with_room(status, state, output)
        status, position = _scan(tables, state, instances, position, last, output)
    return Progress(Status(status), position, state, output)


def release(
    tables: StackTables, state: StackState, instances: Instances, until: int, output: StackOutput
) -> Progress:
    """Append the waiting matches whose window has passed, knowing that no event at or before `until` can come.

    The position of the result is 0; at the end of a bounded input `until` is the largest int64.
    """
    status = _release(tables, state, instances, until, output)
    while status == _OUTPUT_FULL:
        output = larger_output(output)
        status = _release(tables, state, instances, until, output)
    return Progress(Status(status), 0, state, output)


def _with_room(status: int, state: StackState, output: StackOutput) -> tuple[StackState, StackOutput]:
    if status == _OUTPUT_FULL:
        return state, larger_output(output)
    return reserve_waiting(state, 2 * max(state.waiting_next.size, 512)), output


@njit(cache=True, nogil=True)
def _oldest_alive(now, window):
    """The earliest start that a match which ends now may have."""
    if window == _NO_WINDOW or now < _EARLIEST + (window - 1):
        return _EARLIEST
    return now - (window - 1)


@njit(cache=True, nogil=True)
def _deadline(start, window):
    """The last tick of the window that opens at start."""
    if start > _LATEST - (window - 1):
        return _LATEST
    return start + (window - 1)


@njit(cache=True, nogil=True)
def _scan(tables, state, instances, first, last, output):
    """(status, position). Everything about one instance happens, or, where the status is not DONE, nothing of it."""
    start = instances.start
    end = instances.end
    head = state.head
    below = state.below
    skip = state.skip
    previous_top = state.previous_top
    guard = state.guard
    reach = state.reach
    cursor = state.cursor
    oldest_end = state.oldest_end
    bound = state.bound
    counters = state.counters
    component_at = tables.component_at
    guarded_first = tables.guarded_first
    slots = output.slots
    match_end = output.match_end
    components = tables.components
    last_position = tables.length - 1
    waits = tables.at_end.size > 0
    tests = tables.predicates.first_alternative.size > 1 or tables.searched.size > 0
    first_is_guarded = guarded_first[1] > 0
    # Nothing but order and window decides about the first component.
    plain = not (tables.tested[0] or tables.tested[tables.length] or first_is_guarded)
    capacity = match_end.size
    written = output.count[0]
    pushed = 0
    constructions = 0
    edges = 0
    sequences = 0
    matches = 0
    status = _DONE
    position = first
    for slot in range(first, last):
        position = slot
        now = end[slot]
        if waits and counters[_HEAP] > 0 and _deadline(start[state.waiting_heap[0]], tables.window) < now:
            output.count[0] = written
            status = _release(tables, state, instances, now - 1, output)
            written = output.count[0]
            if status != _DONE:
                break
        component = instances.component[slot]
        place = tables.position_of[component]
        base = np.int64(instances.key[slot]) * components
        if place < 0:
            _push_negative(end, start, state, base + component, slot)
            pushed += 1
            continue
        begin = start[slot]
        top = np.int32(-1)
        earliest = _oldest_alive(now, tables.scan_window)
        if place > 0:
            top = head[base + component_at[place - 1]]
            while top >= 0 and end[top] >= begin:
                top = skip[top]
            # Transition filtering: whatever lies below is older still.
            if top < 0 or end[top] < earliest or (tables.prune and reach[top] < earliest):
                continue
            if tables.second_equivalence and not _meet(tables, state, instances, slot, top, earliest):
                continue
        barrier = _NEVER
        if guarded_first[place + 1] > guarded_first[place]:
            barrier = _guard(tables, state, instances, slot, place)
            if place > 0 and end[top] < barrier:
                continue
            guard[slot] = barrier
        if place < last_position:
            under = head[base + component]
            below[slot] = under
            skip[slot] = skip[under] if under >= 0 and end[under] == now else under
            previous_top[slot] = top
            head[base + component] = slot
            if tables.prune:
                newest = reach[top] if place > 0 else begin
                reach[slot] = max(newest, reach[under]) if under >= 0 else newest
            if tables.second_equivalence:
                second = np.int64(instances.second_key[slot]) * components + component
                state.second_below[slot] = state.second_head[second]
                state.second_head[second] = slot
            pushed += 1
            continue

        constructions += 1
        mark = written
        alive = _oldest_alive(now, tables.window)
        oldest = _oldest_alive(now, tables.construction_window)
        if waits:
            room = tables.max_waiting - counters[_WAITING]
        else:
            room = tables.max_matches_per_moment
            if counters[_MOMENT] == now:
                room -= counters[_AT_MOMENT]
        room = min(capacity, mark + max(room, 0))
        dropped = 0
        # One event may be a whole match: then it is the only candidate for the first place.
        level = last_position
        cursor[level] = slot
        if last_position > 0:
            bound[component] = slot
            if tables.tested[level] and not _passes(tables, state, instances, level):
                continue
            level -= 1
            cursor[level] = top
            oldest_end[level] = max(oldest, barrier)
        else:
            below[slot] = -1
            oldest_end[0] = _NEVER
        while True:
            node = cursor[level]
            if level > 0:
                if node < 0 or end[node] < oldest_end[level] or (tables.prune and reach[node] < oldest):
                    level += 1
                    if level == last_position:
                        break
                    cursor[level] = below[cursor[level]]
                    continue
                edges += 1
                if tests:
                    bound[component_at[level]] = node
                    if tables.tested[level] and not _passes(tables, state, instances, level):
                        cursor[level] = below[node]
                        continue
                level -= 1
                cursor[level] = previous_top[node]
                if guarded_first[level + 2] > guarded_first[level + 1]:
                    oldest_end[level] = max(oldest, guard[node])
                else:
                    oldest_end[level] = oldest
                continue
            # Candidates for the first place: no deeper level, so the whole stack is read in one go.
            limit = oldest_end[0]
            while node >= 0 and end[node] >= limit:
                edges += 1
                candidate = node
                node = below[node]
                if start[candidate] < oldest:
                    continue
                if not plain:
                    # A negated start forbids back to the beginning of the window.
                    if first_is_guarded and guard[candidate] >= alive:
                        continue
                    cursor[0] = candidate
                    if tests:
                        bound[component_at[0]] = candidate
                    if tables.tested[0] and not _passes(tables, state, instances, 0):
                        continue
                    sequences += 1
                    if start[candidate] < alive:
                        continue
                    if tables.tested[tables.length] and not _passes(tables, state, instances, tables.length):
                        continue
                if written >= room:
                    if written < capacity and tables.drop:
                        dropped += 1
                        continue
                    if written == capacity:
                        status = _OUTPUT_FULL
                    else:
                        status = _WAITING_LIMIT if waits else _MATCH_LIMIT
                    break
                slots[0, written] = candidate
                for higher in range(1, tables.length):
                    slots[higher, written] = cursor[higher]
                match_end[written] = now
                written += 1
            if status != _DONE or last_position == 0:
                break
            level = 1
            if level == last_position:
                break
            cursor[level] = below[cursor[level]]
        if status == _DONE and waits and written > mark:
            status = _wait(tables, state, instances, mark, written, output)
        if status != _DONE:
            constructions -= 1
            written = mark
            break
        found = written - mark
        matches += found
        counters[_DROPPED] += dropped
        if waits:
            written = mark
        elif found > 0:
            if counters[_MOMENT] != now:
                counters[_MOMENT] = now
                counters[_AT_MOMENT] = 0
            counters[_AT_MOMENT] += found
        position = slot + 1
    else:
        position = last
    output.count[0] = written
    counters[_INSTANCES] += position - first
    counters[_PUSHED] += pushed
    counters[_CONSTRUCTIONS] += constructions
    counters[_EDGES] += edges
    counters[_SEQUENCES] += matches if plain else sequences
    counters[_MATCHES] += matches
    return status, position


@njit(cache=True, nogil=True)
def _meet(tables, state, instances, slot, top, earliest):
    """Whether some instance stands in both stacks before `slot`, that of its key and that of its second key
    (cross-attribute transition filtering, SASE 4.2.2)."""
    end = instances.end
    previous = tables.component_at[tables.position_of[instances.component[slot]] - 1]
    other = state.second_head[np.int64(instances.second_key[slot]) * tables.components + previous]
    while top >= 0 and other >= 0 and end[top] >= earliest:
        if top == other:
            return True
        if top > other:
            top = state.below[top]
        else:
            other = state.second_below[other]
    return False


@njit(cache=True, nogil=True)
def _push_negative(end, start, state, stack, slot):
    under = state.head[stack]
    state.below[slot] = under
    state.head[stack] = slot
    state.guard[slot] = start[slot]
    state.height[slot] = 0
    state.skip[slot] = under
    if under < 0:
        return
    state.guard[slot] = max(start[slot], state.guard[under])
    height = state.height
    height[slot] = height[under] + 1
    # Two jumps of the same length in a row become one jump over both.
    near = state.skip[under]
    if near >= 0:
        far = state.skip[near]
        if far >= 0 and height[under] - height[near] == height[near] - height[far]:
            state.skip[slot] = far


@njit(cache=True, nogil=True)
def _newest_before(end, state, node, time):
    """The newest instance of a negative stack, from `node` down, that ends before a time."""
    while node >= 0 and end[node] >= time:
        jump = state.skip[node]
        node = jump if jump >= 0 and end[jump] >= time else state.below[node]
    return node


@njit(cache=True, nogil=True)
def _guard(tables, state, instances, slot, place):
    """The newest start of an unconditional negative directly before this place that ends before the instance."""
    newest = _NEVER
    for entry in range(tables.guarded_first[place], tables.guarded_first[place + 1]):
        number = tables.guarded[entry]
        component = tables.negative_component[number]
        key = np.int64(instances.key[slot])
        node = _newest_before(
            instances.end, state, state.head[key * tables.components + component], instances.start[slot]
        )
        if node >= 0:
            newest = max(newest, state.guard[node])
        if tables.negative_everywhere[number]:
            everywhere = state.head[_EVERY_KEY * tables.components + component]
            node = _newest_before(instances.end, state, everywhere, instances.start[slot])
            if node >= 0:
                newest = max(newest, state.guard[node])
    return newest


@njit(cache=True, nogil=True)
def _passes(tables, state, instances, stage):
    """Whether the bound events pass everything that is tested at a stage."""
    if stage == tables.length and tables.second_equivalence:
        for place in range(1, tables.length):
            if instances.second_key[state.cursor[place]] != instances.second_key[state.cursor[0]]:
                return False
    for conjunct in range(tables.first_conjunct[stage], tables.first_conjunct[stage + 1]):
        if not holds(tables.predicates, instances, state.bound, state.values, conjunct):
            return False
    for entry in range(tables.searched_first[stage], tables.searched_first[stage + 1]):
        if _forbidden(tables, state, instances, tables.searched[entry]):
            return False
    return True


@njit(cache=True, nogil=True)
def _forbidden(tables, state, instances, number):
    """Whether a negative component has an instance in its interval that satisfies every conjunct naming it."""
    start = instances.start
    end = instances.end
    last = state.cursor[tables.length - 1]
    place = tables.negative_position[number]
    # An instance forbids if earliest <= its start and its end < until.
    if place == 0:
        earliest = _oldest_alive(end[last], tables.window)
    else:
        earliest = end[state.cursor[place - 1]]
        if earliest == _LATEST:
            return False
        earliest += 1
    component = tables.negative_component[number]
    first_conjunct = tables.negative_first_conjunct[number]
    last_conjunct = tables.negative_first_conjunct[number + 1]
    for everywhere in range(1 + tables.negative_everywhere[number]):
        key = np.int64(_EVERY_KEY) if everywhere else np.int64(instances.key[last])
        node = state.head[key * tables.components + component]
        # Behind the last component everything up to now counts: matches are released before time runs past them.
        if place < tables.length:
            node = _newest_before(end, state, node, start[state.cursor[place]])
        # A guard is the newest start from here down, so the search ends where it is too old.
        while node >= 0 and state.guard[node] >= earliest:
            if start[node] >= earliest and _same_second(tables, instances, node, last, number):
                state.bound[component] = node
                satisfied = True
                for conjunct in range(first_conjunct, last_conjunct):
                    if not holds(tables.predicates, instances, state.bound, state.values, conjunct):
                        satisfied = False
                        break
                if satisfied:
                    return True
            node = state.below[node]
    return False


@njit(cache=True, nogil=True)
def _same_second(tables, instances, node, last, number):
    """Whether a negative instance belongs to the match's partition by the second key too."""
    if not tables.second_equivalence or instances.second_key[node] == instances.second_key[last]:
        return True
    return tables.negative_everywhere[number] != 0 and instances.second_key[node] == _EVERY_KEY


@njit(cache=True, nogil=True)
def _wait(tables, state, instances, mark, written, output):
    """Move the matches written since `mark` from the output to those that wait."""
    counters = state.counters
    if written - mark > state.waiting_next.size - counters[_WAITING]:
        return _WAITING_FULL
    for match in range(mark, written):
        row = counters[_FREE]
        counters[_FREE] = state.waiting_next[row]
        for place in range(tables.length):
            state.waiting_slots[row, place] = output.slots[place, match]
        first = output.slots[0, match]
        tail = state.waiting_tail[first]
        if tail < 0:
            state.waiting_next[row] = row
            _heap_push(instances.start, state.waiting_heap, counters[_HEAP], first)
            counters[_HEAP] += 1
        else:
            state.waiting_next[row] = state.waiting_next[tail]
            state.waiting_next[tail] = row
        state.waiting_tail[first] = row
    counters[_WAITING] += written - mark
    return _DONE


@njit(cache=True, nogil=True)
def _release(tables, state, instances, until, output):
    """Append the waiting matches whose last tick is at or before `until`, first instance by first instance."""
    counters = state.counters
    while counters[_HEAP] > 0:
        first = state.waiting_heap[0]
        deadline = _deadline(instances.start[first], tables.window)
        if deadline > until:
            break
        mark = output.count[0]
        room = tables.max_matches_per_moment
        if counters[_MOMENT] == deadline:
            room -= counters[_AT_MOMENT]
        tail = state.waiting_tail[first]
        row = tail
        written = mark
        group = 0
        dropped = 0
        while True:
            row = state.waiting_next[row]
            group += 1
            if _stands(tables, state, instances, row):
                if written - mark >= room:
                    if not tables.drop:
                        return _MATCH_LIMIT
                    dropped += 1
                elif written == output.match_end.size:
                    return _OUTPUT_FULL
                else:
                    for place in range(tables.length):
                        output.slots[place, written] = state.waiting_slots[row, place]
                    output.match_end[written] = deadline
                    written += 1
            if row == tail:
                break
        # The whole ring goes back to the free rows.
        oldest = state.waiting_next[tail]
        state.waiting_next[tail] = counters[_FREE]
        counters[_FREE] = oldest
        counters[_WAITING] -= group
        counters[_HEAP] -= 1
        _heap_pop(instances.start, state.waiting_heap, counters[_HEAP])
        state.waiting_tail[first] = -1
        output.count[0] = written
        counters[_DROPPED] += dropped
        if written > mark:
            if counters[_MOMENT] != deadline:
                counters[_MOMENT] = deadline
                counters[_AT_MOMENT] = 0
            counters[_AT_MOMENT] += written - mark
    return _DONE


@njit(cache=True, nogil=True)
def _stands(tables, state, instances, row):
    """Whether a waiting match has no forbidden event behind it."""
    for place in range(tables.length):
        slot = state.waiting_slots[row, place]
        state.cursor[place] = slot
        state.bound[tables.component_at[place]] = slot
    for entry in range(tables.at_end.size):
        if _forbidden(tables, state, instances, tables.at_end[entry]):
            return False
    return True


@njit(cache=True, nogil=True)
def _heap_push(start, heap, size, slot):
    """Add a slot; the heap is by start, then slot. All windows are as long, so that is also by deadline."""
    child = size
    while child > 0:
        parent = (child - 1) // 2
        above = heap[parent]
        if start[above] < start[slot] or (start[above] == start[slot] and above < slot):
            break
        heap[child] = above
        child = parent
    heap[child] = slot


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def rebase(state, shift, used):
    """Forget the oldest `shift` of `used` slots: they are dropped from the front of the buffers, the rest move down.

    Only slots that no match can use any more may go: end <= the end of the newest instance - window.
    """
    left = used - shift
    for array in (state.below, state.skip, state.previous_top):
        for slot in range(left):
            array[slot] = max(array[slot + shift] - shift, -1)
    for stack in range(state.head.size):
        state.head[stack] = max(state.head[stack] - shift, -1)
    for stack in range(state.second_head.size):
        state.second_head[stack] = max(state.second_head[stack] - shift, -1)
    if state.second_below.size > 0:
        for slot in range(left):
            state.second_below[slot] = max(state.second_below[slot + shift] - shift, -1)
    for times in (state.guard, state.height, state.reach):
        if times.size > 0:
            for slot in range(left):
                times[slot] = times[slot + shift]
    if state.waiting_tail.size > 0:
        for slot in range(left):
            state.waiting_tail[slot] = state.waiting_tail[slot + shift]
        state.waiting_tail[left:used] = -1
    for entry in range(state.counters[_HEAP]):
        state.waiting_heap[entry] -= shift
    for row in range(state.waiting_slots.shape[0]):
        for place in range(state.waiting_slots.shape[1]):
            # Free rows hold what they like.
            state.waiting_slots[row, place] = max(state.waiting_slots[row, place] - shift, -1)


@njit(cache=True, nogil=True)
def rekey(head, components, new_code):
    """Move stacks to new keys: new_code[key] is where a key goes, at most as large as the key, or -1 to forget it.

    Give it `state.head`, or `state.second_head` with the second keys.
    """
    keys = head.size // components
    for key in range(min(keys, new_code.size)):
        target = np.int64(new_code[key])
        if target == key:
            continue
        for component in range(components):
            newest = head[key * components + component]
            head[key * components + component] = -1
            if target >= 0:
                head[target * components + component] = newest
