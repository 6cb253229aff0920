"""Complete runs: tests negation, holds matches until a negated end has passed, applies the forms of output, and lists
matches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.kleene.edges import set_anchors, tests_hold
from ouzel.engines.kleene.state import Arena, Counter, RunOutput, RunState, Status
from ouzel.engines.kleene.tables import ByEdge, ByLoad, ByNegative, Form, RunEvents, RunTables, Source
from ouzel.kernels.arrays import Matrix
from ouzel.kernels.events import EVERY_KEY, LATEST, NEVER, Link, Mark, deadline, newest_before, push_negative
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicates import holds

_EVERY_KEY = EVERY_KEY
# Up to this many matches of a timestamp are sorted in place.
_FEW = 8


@helper(inline=True)
def finish(tables, state, events, node, first_slot, key, slot, oldest, output):
    """Handle a run whose last place is bound: add a match, if its proceed edge holds and no negative event forbids
    it.
    """
    counters = state.counters
    if state.arena.proceeds[np.uint32(node)] == 0:
        return
    counters[Counter.MATCHES] += 1
    if tables.negatives and not tables.late and _forbidden_inside(tables, state, events, node, key):
        return
    now = events.end[slot]
    if counters[Counter.LAST_TIMESTAMP] != now:
        counters[Counter.LAST_TIMESTAMP] = now
        counters[Counter.MATCHES_AT_TIMESTAMP] = 0
    counters[Counter.MATCHES_AT_TIMESTAMP] += 1
    if tables.at_end:
        _push_waiting(state, deadline(events.start[first_slot], tables.window), node, key)
        return
    written = np.uint64(output.written[0])
    output.node[written] = node
    output.end[written] = now
    output.key[written] = key
    output.oldest[written] = oldest
    output.first[written] = first_slot
    output.written[0] += 1


@helper(inline=True)
def limit_passed(tables, counters):
    if counters[Counter.RUNS] + counters[Counter.WAITING] > tables.max_runs:
        return Status.RUN_LIMIT
    if counters[Counter.MATCHES_AT_TIMESTAMP] > tables.max_matches_per_timestamp:
        return Status.MATCH_LIMIT
    return Status.LENGTH_LIMIT if counters[Counter.TOO_LONG] else Status.DONE


# ── Negation ───────────────────────────────────────────────────────────────────────────────────────


@helper
def push_negatives(tables, state, events, slot, roles):
    """Push an event on the stack of each negative component that it may fill."""
    for negative in range(tables.negatives):
        if (roles >> np.uint64(2 * tables.length + negative)) & np.uint64(1):
            stack = np.int64(events.key[slot]) * tables.negatives + negative
            push_negative(events.start, state.negative_head, state.links[negative], state.marks[negative], stack, slot)


@helper
def _forbidden_inside(tables, state, events, node, key):
    """Whether a negative event that comes before the last place forbids the match that ends with a node."""
    for negative in range(tables.negatives):
        if tables.by_negative[negative, ByNegative.BEFORE] < tables.length and _forbids(
            tables, state, events, node, key, negative
        ):
            return True
    return False


@helper
def _forbids(tables, state, events, node, key, negative):
    """Whether some event of a negative component is in its interval and satisfies all conjuncts on it."""
    node_event = state.arena.event
    node_first = state.arena.first
    start = events.start
    end = events.end
    anchor = state.anchor
    set_anchors(state.arena.parent, state.arena.first, state.anchor, node, tables.length - 1, 0)
    after = tables.by_negative[negative, ByNegative.AFTER]
    until = tables.by_negative[negative, ByNegative.BEFORE]
    across = tables.by_negative[negative, ByNegative.ACROSS]
    first_start = start[node_event[node_first[anchor[0]]]]
    last_end = end[node_event[node]]
    window = tables.window
    if after < 0:
        behind = last_end - window if last_end > NEVER + window else NEVER
    else:
        behind = end[node_event[node_first[anchor[after]] if across else anchor[after]]]
    if until == tables.length:
        before = first_start + window if first_start <= LATEST - window else LATEST
    else:
        before = start[node_event[anchor[until] if across else node_first[anchor[until]]]]
    links = state.links[negative]
    marks = state.marks[negative]
    for everywhere in range(2):
        if everywhere and key == _EVERY_KEY:
            break
        owner = np.int64(_EVERY_KEY) if everywhere else np.int64(key)
        candidate = newest_before(end, links, state.negative_head[owner * tables.negatives + negative], before)
        while candidate >= 0 and marks[Mark.GUARD, candidate] > behind:
            if start[candidate] > behind and _satisfies(tables, state, events, node, negative, candidate):
                return True
            candidate = links[Link.BELOW, candidate]
    return False


@helper
def _satisfies(tables, state, events, node, negative, candidate):
    """Whether a negative event passes its component's tests against the match whose nodes are the anchors."""
    for test in range(tables.codes):
        code = events.codes[test, candidate]
        common = state.arena.codes[node, test]
        if code >= 0 and common >= 0 and code != common:
            return False
    state.bound[tables.by_negative[negative, ByNegative.REFERENCE]] = candidate
    return tests_hold(tables, state, events, tables.by_negative[negative, ByNegative.EDGE])


def allowed_matches(
    tables: RunTables, state: RunState, events: RunEvents, expanded: Expanded, output: RunOutput
) -> NDArray[np.bool_]:
    """For each expanded match, whether negation allows it. Needed with `tables.late`, because the kernel has then not
    tested negation.
    """
    allowed = np.ones(len(expanded.row), np.bool_)
    bounds = np.zeros(tables.length + 1, np.int64)
    _mark_forbidden(tables, state, events, expanded.lengths, expanded.slots, output.key[expanded.row], bounds, allowed)
    return allowed


@kernel
def _mark_forbidden(
    tables: RunTables,
    state: RunState,
    events: RunEvents,
    lengths: Matrix[np.int32],
    slots: NDArray[np.int32],
    keys: NDArray[np.int32],
    bounds: NDArray[np.int64],
    allowed: NDArray[np.bool_],
):
    used = 0
    for match in range(allowed.size):
        for place in range(tables.length):
            bounds[place] = used
            used += lengths[match, place]
        bounds[tables.length] = used
        for negative in range(tables.negatives):
            if allowed[match] and _forbids_slots(tables, state, events, slots, bounds, keys[match], negative):
                allowed[match] = False


@helper
def _forbids_slots(tables, state, events, slots, bounds, key, negative):
    """Like `_forbids`, for a match given as slots: place p has those from `bounds[p]` on."""
    after = tables.by_negative[negative, ByNegative.AFTER]
    until = tables.by_negative[negative, ByNegative.BEFORE]
    across = tables.by_negative[negative, ByNegative.ACROSS]
    before = events.start[slots[bounds[until + 1] - 1 if across else bounds[until]]]
    if after < 0:
        last_end = events.end[slots[bounds[tables.length] - 1]]
        behind = last_end - tables.window if last_end > NEVER + tables.window else NEVER
    else:
        behind = events.end[slots[bounds[after] if across else bounds[after + 1] - 1]]
    links = state.links[negative]
    marks = state.marks[negative]
    edge = tables.by_negative[negative, ByNegative.EDGE]
    is_loaded = False
    for everywhere in range(2):
        if everywhere and key == _EVERY_KEY:
            break
        owner = np.int64(_EVERY_KEY) if everywhere else np.int64(key)
        candidate = newest_before(events.end, links, state.negative_head[owner * tables.negatives + negative], before)
        while candidate >= 0 and marks[Mark.GUARD, candidate] > behind:
            if events.start[candidate] > behind:
                if not is_loaded:
                    _load_slots(tables, state.bound, slots, bounds, edge)
                    is_loaded = True
                state.bound[tables.by_negative[negative, ByNegative.REFERENCE]] = candidate
                forbids = True
                for conjunct in range(
                    tables.by_edge[edge, ByEdge.FIRST_TEST], tables.by_edge[edge + 1, ByEdge.FIRST_TEST]
                ):
                    forbids = forbids and holds(tables.predicates, events, state.bound, state.values, conjunct)
                if forbids:
                    return True
            candidate = links[Link.BELOW, candidate]
    return False


@helper
def _load_slots(tables, bound, slots, bounds, edge):
    """Set the references that the tests of an edge read, from the slots of a match."""
    loads = tables.loads
    for load in range(tables.by_edge[edge, ByEdge.FIRST_LOAD], tables.by_edge[edge + 1, ByEdge.FIRST_LOAD]):
        place = loads[load, ByLoad.PLACE]
        is_first = loads[load, ByLoad.SOURCE] == Source.FIRST
        bound[loads[load, ByLoad.TARGET]] = slots[bounds[place]] if is_first else slots[bounds[place + 1] - 1]


# ── Waiting ────────────────────────────────────────────────────────────────────────────────────────


@helper
def _push_waiting(state, deadline, node, key):
    """Push a match on the heap of matches that wait for a deadline. The heap must have room."""
    waiting = state.waiting
    place = state.counters[Counter.WAITING]
    state.counters[Counter.WAITING] = place + 1
    while place > 0 and waiting.deadline[(place - 1) // 2] > deadline:
        above = (place - 1) // 2
        waiting.deadline[place] = waiting.deadline[above]
        waiting.node[place] = waiting.node[above]
        waiting.key[place] = waiting.key[above]
        place = above
    waiting.deadline[place] = deadline
    waiting.node[place] = node
    waiting.key[place] = key


@helper
def _pop_waiting(state):
    """Pop the match with the earliest deadline from the heap."""
    waiting = state.waiting
    count = state.counters[Counter.WAITING] - 1
    state.counters[Counter.WAITING] = count
    deadline = waiting.deadline[count]
    node = waiting.node[count]
    key = waiting.key[count]
    place = 0
    while 2 * place + 1 < count:
        below = 2 * place + 1
        if below + 1 < count and waiting.deadline[below + 1] < waiting.deadline[below]:
            below += 1
        if waiting.deadline[below] >= deadline:
            break
        waiting.deadline[place] = waiting.deadline[below]
        waiting.node[place] = waiting.node[below]
        waiting.key[place] = waiting.key[below]
        place = below
    waiting.deadline[place] = deadline
    waiting.node[place] = node
    waiting.key[place] = key


@helper
def release_until(tables, state, events, until, output):
    """Append the waiting matches whose deadline has passed, except those that a negative event forbids. Returns the
    status.
    """
    waiting = state.waiting
    count = output.written
    while state.counters[Counter.WAITING] > 0 and waiting.deadline[0] <= until:
        if count[0] == output.node.size:
            return Status.OUTPUT_FULL
        end = waiting.deadline[0]
        node = waiting.node[0]
        key = waiting.key[0]
        if tables.form != Form.ALL and state.counters[Counter.CHOSEN] < count[0] and output.end[count[0] - 1] != end:
            return Status.UNCHOSEN
        _pop_waiting(state)
        forbidden = False
        for negative in range(tables.negatives):
            if tables.by_negative[negative, ByNegative.BEFORE] == tables.length:
                forbidden = forbidden or _forbids(tables, state, events, node, key, negative)
        if not forbidden:
            output.node[count[0]] = node
            output.end[count[0]] = end
            output.oldest[count[0]] = NEVER
            output.key[count[0]] = key
            if tables.form != Form.ALL:
                set_anchors(state.arena.parent, state.arena.first, state.anchor, node, tables.length - 1, 0)
                output.first[count[0]] = state.arena.event[state.arena.first[state.anchor[0]]]
            count[0] += 1
    return Status.DONE


@kernel(allocates=True)
def release_in_form(tables: RunTables, state: RunState, events: RunEvents, until: int, output: RunOutput):
    """Like `release_until`, with a form of output: it chooses among the matches of one timestamp before the next is
    released.
    """
    status = release_until(tables, state, events, until, output)
    while status == Status.UNCHOSEN:
        choose_matches(tables, state, events, output)
        status = release_until(tables, state, events, until, output)
    if status == Status.DONE:
        choose_matches(tables, state, events, output)
    return status


# ── Forms of output ────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def choose_before(tables, state, events, output, now):
    """Apply the form of output to the matches of an earlier timestamp, before an event at tick `now` is read. Returns
    False if there are too many of them: then call `choose_matches`, which allocates.
    """
    first = state.counters[Counter.CHOSEN]
    if output.written[0] == first or output.end[first] == now:
        return True
    return _choose_if_few(tables, state, events, output)


@helper(inline=True)
def _choose_if_few(tables, state, events, output):
    """Apply the form of output to the matches, if they are few. Returns whether they were."""
    if output.written[0] - state.counters[Counter.CHOSEN] > _FEW:
        return False
    _choose_few(
        tables.form,
        tables.form_place,
        tables.length - 1,
        state.arena.event,
        state.arena.parent,
        state.arena.first,
        state.arena.place,
        state.renamed,
        state.ahead,
        events.start,
        state.started,
        state.key_mark,
        state.counters,
        output.node,
        output.key,
        output.first,
        output.end,
        output.written,
    )
    return True


@helper
def _choose_few(
    form,
    form_place,
    last_place,
    node_event,
    node_parent,
    node_first,
    node_place,
    left_path,
    right_path,
    start,
    started,
    key_mark,
    counters,
    nodes,
    keys,
    firsts,
    ends,
    written,
):
    """Like `choose_matches`, for few matches, which are sorted in place. It gets single arrays, because it runs for
    most timestamps and passing all of them costs more than the work.
    """
    first = counters[Counter.CHOSEN]
    last = written[0]
    for row in range(first + 1, last):
        node = nodes[row]
        key = keys[row]
        slot = firsts[row]
        at = row
        while at > first:
            above = at - 1
            if keys[above] != key:
                comes_before = key < keys[above]
            elif firsts[above] != slot:
                comes_before = _starts_before(start, slot, firsts[above])
            else:
                comes_before = _goes_before(
                    node_event, node_parent, node_place, left_path, right_path, node, nodes[above]
                )
            if not comes_before:
                break
            nodes[at] = nodes[above]
            keys[at] = keys[above]
            firsts[at] = firsts[above]
            at = above
        nodes[at] = node
        keys[at] = key
        firsts[at] = slot
    kept = first
    for row in range(first, last):
        node = nodes[row]
        key = keys[row]
        slot = firsts[row]
        target = np.int64(0)
        if form > Form.FIRST:
            target = _skip_target(form, form_place, last_place, node_event, node_parent, node_first, node)
        if _is_chosen(form, start, started, key_mark, slot, key, ends[first], target):
            nodes[kept] = node
            keys[kept] = key
            firsts[kept] = slot
            kept += 1
    written[0] = kept
    counters[Counter.CHOSEN] = kept


@helper(inline=True)
def _starts_before(start, left, right):
    """Order matches by the slots of their first events."""
    if start[left] != start[right]:
        return start[left] < start[right]
    return left < right


@helper
def _goes_before(node_event, node_parent, node_place, left_path, right_path, left, right):
    """Order matches with the same first event: by smaller positions, then by smaller component numbers."""
    left_length = 0
    while left >= 0:
        left_path[left_length] = left
        left_length += 1
        left = node_parent[left]
    right_length = 0
    while right >= 0:
        right_path[right_length] = right
        right_length += 1
        right = node_parent[right]
    order = np.int64(0)
    for step in range(1, min(left_length, right_length) + 1):
        here = left_path[left_length - step]
        there = right_path[right_length - step]
        if node_event[here] != node_event[there]:
            return node_event[here] < node_event[there]
        if order == 0:
            order = np.int64(node_place[here]) - np.int64(node_place[there])
    if left_length != right_length:
        return left_length < right_length
    return order < 0


@helper(inline=True)
def _skip_target(form, form_place, last_place, node_event, node_parent, node_first, node):
    """The slot of the event that SKIP TO names in the match that ends with a node."""
    for _ in range(last_place - form_place):
        node = node_parent[node_first[node]]
    return np.int64(node_event[node_first[node] if form == Form.SKIP_TO_FIRST else node])


@helper(inline=True)
def _is_chosen(form, start, started, key_mark, first_slot, key, end, target):
    """Whether the form of output chooses a match after it has decided on all earlier ones. A chosen match is recorded,
    because it excludes later ones.
    """
    if form == Form.FIRST:
        passes = started[first_slot] == 0
        started[first_slot] = 1
        return passes
    if form == Form.NON_OVERLAPPING:
        passes = start[first_slot] > key_mark[key]
        mark = end
    else:
        passes = first_slot >= key_mark[key]
        mark = target
    if passes:
        key_mark[key] = max(key_mark[key], mark)
    return passes


@helper(inline=True)
def is_unwanted(tables, state, events, first_slot, key):
    """Whether the form of output can choose no more matches that start with this event."""
    if tables.form == Form.ALL:
        return False
    if tables.form == Form.NON_OVERLAPPING:
        return events.start[first_slot] <= state.key_mark[key]
    if tables.form == Form.FIRST:
        return state.started[first_slot] != 0
    return first_slot < state.key_mark[key]


@helper(allocates=True)
def choose_matches(tables, state, events, output):
    """Apply the form of output to the matches of one timestamp. Those of earlier timestamps must be done."""
    first = state.counters[Counter.CHOSEN]
    last = output.written[0]
    if tables.form == Form.ALL or first == last:
        state.counters[Counter.CHOSEN] = last
        return
    if _choose_if_few(tables, state, events, output):
        return
    order = np.arange(last - first)
    bounds = np.zeros(last - first + 1, np.int64)
    slots = np.empty(0, np.int32)
    _rank(events, output, first, bounds, slots, slots, order)
    # Only matches that start with the same event must be compared with the others.
    alike = np.zeros(last - first, np.bool_)
    for place in range(1, order.size):
        left = order[place - 1]
        right = order[place]
        if (
            output.first[first + left] == output.first[first + right]
            and output.key[first + left] == output.key[first + right]
        ):
            alike[left] = True
            alike[right] = True
    if alike.any():
        slots, places = _written_out(tables, state, output, first, alike, bounds)
        if bounds[-1] > tables.max_events:
            state.counters[Counter.TOO_LONG] = 1
            output.written[0] = first
            return
        _rank(events, output, first, bounds, slots, places, order)
    nodes = output.node[first:last].copy()
    keys = output.key[first:last].copy()
    firsts = output.first[first:last].copy()
    arena = state.arena
    kept = first
    for number in order:
        target = np.int64(0)
        if tables.form > Form.FIRST:
            target = _skip_target(
                tables.form, tables.form_place, tables.length - 1, arena.event, arena.parent, arena.first, nodes[number]
            )
        if _is_chosen(
            tables.form,
            events.start,
            state.started,
            state.key_mark,
            firsts[number],
            keys[number],
            output.end[first],
            target,
        ):
            output.node[kept] = nodes[number]
            output.key[kept] = keys[number]
            output.first[kept] = firsts[number]
            kept += 1
    output.written[0] = kept
    state.counters[Counter.CHOSEN] = kept


@helper(allocates=True)
def _written_out(tables, state, output, first, wanted, bounds):
    """(slots, places): the events of some matches, concatenated; those of match k are from `bounds[k]` to `bounds[k +
    1]`. If they are too many, none are written, and the last bound gives their number.
    """
    node_event = state.arena.event
    node_parent = state.arena.parent
    for number in range(wanted.size):
        length = 0
        node = output.node[first + number]
        while wanted[number] and node >= 0:
            length += 1
            node = node_parent[node]
        bounds[number + 1] = bounds[number] + length
        if bounds[number + 1] > tables.max_events:
            bounds[-1] = bounds[number + 1]
            return np.empty(0, np.int32), np.empty(0, np.int32)
    slots = np.empty(bounds[-1], np.int32)
    places = np.empty(bounds[-1], np.int32)
    for number in range(wanted.size):
        entry = bounds[number + 1]
        node = output.node[first + number]
        while entry > bounds[number]:
            entry -= 1
            slots[entry] = node_event[node]
            places[entry] = state.arena.place[node]
            node = node_parent[node]
    return slots, places


@helper(allocates=True)
def _comes_before(events, output, first, bounds, slots, places, left, right):
    """Whether one match comes before another: by key, start, positions in turn, and component numbers."""
    left_key = output.key[first + left]
    right_key = output.key[first + right]
    if left_key != right_key:
        return left_key < right_key
    left_first = output.first[first + left]
    right_first = output.first[first + right]
    if left_first != right_first:
        return _starts_before(events.start, left_first, right_first)
    left_length = bounds[left + 1] - bounds[left]
    right_length = bounds[right + 1] - bounds[right]
    for entry in range(min(left_length, right_length)):
        here = slots[bounds[left] + entry]
        there = slots[bounds[right] + entry]
        if here != there:
            return here < there
    if left_length != right_length:
        return left_length < right_length
    for entry in range(left_length):
        here = places[bounds[left] + entry]
        there = places[bounds[right] + entry]
        if here != there:
            return here < there
    return False


@helper(allocates=True)
def _rank(events, output, first, bounds, slots, places, order):
    """Sort the matches of one timestamp by merge sort."""
    count = order.size
    target = order
    other = np.empty_like(order)
    width = 1
    while width < count:
        for begin in range(0, count, 2 * width):
            left = begin
            middle = min(begin + width, count)
            right = middle
            stop = min(begin + 2 * width, count)
            for place in range(begin, stop):
                takes_right = left == middle
                if not takes_right and right < stop:
                    takes_right = _comes_before(events, output, first, bounds, slots, places, order[right], order[left])
                if takes_right:
                    other[place] = order[right]
                    right += 1
                else:
                    other[place] = order[left]
                    left += 1
        order, other = other, order
        width *= 2
    target[:] = order


def latest_matches(lengths: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """The matches that OUTPUT LATEST chooses, one for each last event: the one with the latest start; then the one with
    the largest positions, compared from the last event back; then the one with the smallest component numbers.

    >>> lengths, slots = np.array([[1, 1], [2, 1], [1, 1]]), np.array([2, 3, 1, 2, 4, 1, 4])
    >>> latest_matches(lengths, slots).tolist()
    [0, 1]
    """
    totals = lengths.sum(axis=1, dtype=np.int64)
    behind = np.cumsum(totals)
    last = slots[behind - 1]
    events = len(np.unique(last))

    def largest(matches: np.ndarray, values: np.ndarray) -> np.ndarray:
        best = np.full(int(last.max()) + 1, -1, np.int64)
        np.maximum.at(best, last[matches], values)
        found: np.ndarray = matches[values == best[last[matches]]]
        return found

    chosen = largest(np.arange(len(totals)), slots[behind - totals])
    for back in range(2, int(totals.max()) + 1):
        if len(chosen) == events:
            return chosen
        # With the same start no match is the end of another.
        reached = totals[chosen] >= back
        chosen = largest(chosen, np.where(reached, slots[np.where(reached, behind[chosen] - back, 0)], -1))
    # The same events: the one that has more of them in the earlier components.
    for place in range(lengths.shape[1]):
        chosen = largest(chosen, lengths[chosen, place])
    return chosen


# ── Writing out ────────────────────────────────────────────────────────────────────────────────────


class Expanded(NamedTuple):
    """Matches by the slots of their events."""

    lengths: NDArray[np.int32]  # [match, place]: how many events
    slots: NDArray[np.int32]  # concatenated, match by match and place by place
    row: NDArray[np.int32]  # per match: the row of the output that it came from


def expand_matches(tables: RunTables, state: RunState, output: RunOutput) -> Expanded | Status:
    """All matches of the output, or the limit that they exceed: on the matches of a timestamp or on their events in
    total. Members of merged runs that have left the window are left out.
    """
    written = int(output.written[0])
    lengths, slots, rows, status = _expand(
        state.arena,
        int(state.counters[Counter.NODES]),
        tables.length,
        bool(tables.merge),
        tables.max_matches_per_timestamp,
        tables.max_events,
        output.node[:written],
        output.end,
        output.oldest,
    )
    return Expanded(lengths, slots, rows) if status == Status.DONE else Status(status)


@kernel(allocates=True)
def _expand(
    arena: Arena,
    nodes: int,
    length: int,
    merged: bool,
    limit: int,
    events_max: int,
    matches: NDArray[np.int32],
    ends: NDArray[np.int64],
    oldest_by_match: NDArray[np.int64],
):
    written = matches.size
    lengths = np.zeros((written + 16, length), np.int32)
    rows = np.empty(written + 16, np.int32)
    slots = np.empty((length + 1) * written + 64, np.int32)
    path = np.empty(nodes + 1, np.int32)
    entry = np.empty(nodes + 1, np.int32)
    found = 0
    used = 0
    at_moment = 0
    for number in range(written):
        if number == 0 or ends[number] != ends[number - 1]:
            at_moment = 0
        oldest = oldest_by_match[number]
        depth = 0
        path[0] = matches[number]
        entry[0] = path[0]
        while depth >= 0:
            here = entry[depth]
            if here < 0:
                depth -= 1
                continue
            # The node itself comes first, then those that were merged into it.
            entry[depth] = arena.others[here]
            if merged and arena.own[here] < oldest:
                continue
            if arena.parent[here] >= 0:
                depth += 1
                path[depth] = arena.parent[here]
                entry[depth] = path[depth]
                continue
            at_moment += 1
            if at_moment > limit:
                return lengths, slots, rows, Status.MATCH_LIMIT
            if used + depth + 1 > events_max:
                return lengths, slots, rows, Status.LENGTH_LIMIT
            if found == rows.size:
                lengths = np.concatenate((lengths, np.zeros_like(lengths)))
                rows = np.append(rows, np.empty_like(rows))
            if used + depth + 1 > slots.size:
                # Pages that are never written cost nothing.
                larger = np.empty(2 * slots.size + depth, np.int32)
                larger[:used] = slots[:used]
                slots = larger
            for back in range(depth, -1, -1):
                slots[used] = arena.event[path[back]]
                lengths[found, arena.place[path[back]]] += 1
                used += 1
            rows[found] = number
            found += 1
    return lengths[:found], slots[:used], rows[:found], Status.DONE
