"""What becomes of finished runs: negation, waiting for a negated end, the forms of output, and writing matches out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ouzel.kernels.run_edges import set_anchors, tests_hold
from ouzel.kernels.run_state import Counter, RunOutput, RunState, Status
from ouzel.kernels.run_tables import ByNegative, Form, RunTables
from ouzel.kernels.stack_checks import LATEST, NEVER, newest_before
from ouzel.kernels.stack_tables import EVERY_KEY, Link, Mark

_EVERY_KEY = EVERY_KEY
_BELOW = int(Link.BELOW)
_GUARD = int(Mark.GUARD)
_AFTER = int(ByNegative.AFTER)
_REFERENCE = int(ByNegative.REFERENCE)
_EDGE = int(ByNegative.EDGE)
_WAITING = int(Counter.WAITING)
_SETTLED = int(Counter.SETTLED)
_DONE = int(Status.DONE)
_OUTPUT_FULL = int(Status.OUTPUT_FULL)
_UNSETTLED = int(Status.UNSETTLED)
_NON_OVERLAPPING = int(Form.NON_OVERLAPPING)
_FORM_ALL = int(Form.ALL)
_FORM_FIRST = int(Form.FIRST)
_SKIP_TO_FIRST = int(Form.SKIP_TO_FIRST)


# ── Negation ───────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True, _nrt=False)
def forbidden_inside(tables, state, events, node, key):
    """Whether an event of a negative that stands before the last place forbids the match that ends with a node."""
    for negative in range(tables.negatives):
        if tables.by_negative[negative, _AFTER] < tables.length and _forbids(
            tables, state, events, node, key, negative
        ):
            return True
    return False


@njit(cache=True, nogil=True, _nrt=False)
def _forbids(tables, state, events, node, key, negative):
    """Whether an event of a negative lies in its interval and satisfies every conjunct that names it."""
    node_event = state.arena.event
    node_first = state.arena.first
    start = events.start
    end = events.end
    anchor = state.anchor
    set_anchors(state.arena.parent, state.arena.first, state.anchor, node, tables.length - 1, 0)
    after = tables.by_negative[negative, _AFTER]
    first_start = start[node_event[node_first[anchor[0]]]]
    last_end = end[node_event[node]]
    window = tables.window
    if after == 0:
        behind = last_end - window if last_end > NEVER + window else NEVER
        before = first_start
    elif after == tables.length:
        behind = last_end
        before = first_start + window if first_start <= LATEST - window else LATEST
    else:
        behind = end[node_event[anchor[after - 1]]]
        before = start[node_event[node_first[anchor[after]]]]
    links = state.links[negative]
    marks = state.marks[negative]
    for everywhere in range(2):
        if everywhere and key == _EVERY_KEY:
            break
        owner = np.int64(_EVERY_KEY) if everywhere else np.int64(key)
        candidate = newest_before(end, links, state.negative_head[owner * tables.negatives + negative], before)
        while candidate >= 0 and marks[_GUARD, candidate] > behind:
            if start[candidate] > behind and _satisfies(tables, state, events, node, negative, candidate):
                return True
            candidate = links[_BELOW, candidate]
    return False


@njit(cache=True, nogil=True, _nrt=False)
def _satisfies(tables, state, events, node, negative, candidate):
    """Whether a negative event passes the tests that name it, beside the match that the anchors show."""
    for test in range(tables.codes):
        code = events.codes[test, candidate]
        common = state.arena.codes[node, test]
        if code >= 0 and common >= 0 and code != common:
            return False
    state.bound[tables.by_negative[negative, _REFERENCE]] = candidate
    return tests_hold(tables, state, events, tables.by_negative[negative, _EDGE])


# ── Waiting ────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True, _nrt=False)
def push_waiting(state, deadline, node, key):
    """Put a match on the heap of those that wait; there must be room."""
    waiting = state.waiting
    place = state.counters[_WAITING]
    state.counters[_WAITING] = place + 1
    while place > 0 and waiting.deadline[(place - 1) // 2] > deadline:
        above = (place - 1) // 2
        waiting.deadline[place] = waiting.deadline[above]
        waiting.node[place] = waiting.node[above]
        waiting.key[place] = waiting.key[above]
        place = above
    waiting.deadline[place] = deadline
    waiting.node[place] = node
    waiting.key[place] = key


@njit(cache=True, nogil=True, _nrt=False)
def _pop_waiting(state):
    """Take the match with the earliest deadline off the heap."""
    waiting = state.waiting
    count = state.counters[_WAITING] - 1
    state.counters[_WAITING] = count
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


@njit(cache=True, nogil=True, _nrt=False)
def release_until(tables, state, events, until, output):
    """Append the waiting matches whose deadline has passed and that no negative event forbids. The status."""
    waiting = state.waiting
    count = output.written
    while state.counters[_WAITING] > 0 and waiting.deadline[0] <= until:
        if count[0] == output.node.size:
            return _OUTPUT_FULL
        end = waiting.deadline[0]
        node = waiting.node[0]
        key = waiting.key[0]
        if tables.form != _FORM_ALL and state.counters[_SETTLED] < count[0] and output.end[count[0] - 1] != end:
            return _UNSETTLED
        _pop_waiting(state)
        forbidden = False
        for negative in range(tables.negatives):
            if tables.by_negative[negative, _AFTER] == tables.length:
                forbidden = forbidden or _forbids(tables, state, events, node, key, negative)
        if not forbidden:
            output.node[count[0]] = node
            output.end[count[0]] = end
            output.oldest[count[0]] = NEVER
            output.key[count[0]] = key
            count[0] += 1
    return _DONE


# ── Forms of output ────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True)
def settle(tables, state, events, output):
    """Let the form of output choose among the matches of a moment, which stand behind those settled before."""
    first = state.counters[_SETTLED]
    last = output.written[0]
    if tables.form == _FORM_ALL or first == last:
        state.counters[_SETTLED] = last
        return
    bounds, slots, places = _written_out(tables, state, output, first, last)
    order = _ranked(events, output, first, bounds, slots, places)
    kept = first
    nodes = output.node[first:last].copy()
    keys = output.key[first:last].copy()
    key_mark = state.key_mark
    for number in order:
        key = keys[number]
        first_slot = slots[bounds[number]]
        if tables.form == _NON_OVERLAPPING:
            passes = events.start[first_slot] > key_mark[key]
        elif tables.form == _FORM_FIRST:
            passes = state.started[first_slot] == 0
        else:
            passes = first_slot >= key_mark[key]
        if not passes:
            continue
        output.node[kept] = nodes[number]
        output.key[kept] = key
        kept += 1
        if tables.form == _NON_OVERLAPPING:
            key_mark[key] = output.end[first]
        elif tables.form == _FORM_FIRST:
            state.started[first_slot] = 1
        else:
            for entry in range(bounds[number], bounds[number + 1]):
                if places[entry] == tables.form_place:
                    key_mark[key] = max(key_mark[key], slots[entry])
                    if tables.form == _SKIP_TO_FIRST:
                        break
    output.written[0] = kept
    state.counters[_SETTLED] = kept


@njit(cache=True, nogil=True)
def _written_out(tables, state, output, first, last):
    """(bounds, slots, places): the events of some matches, one match behind the other."""
    node_event = state.arena.event
    node_parent = state.arena.parent
    node_first = state.arena.first
    bounds = np.zeros(last - first + 1, np.int64)
    for number in range(last - first):
        length = 0
        node = output.node[first + number]
        while node >= 0:
            length += 1
            node = node_parent[node]
        bounds[number + 1] = bounds[number] + length
    slots = np.empty(bounds[-1], np.int32)
    places = np.empty(bounds[-1], np.int32)
    for number in range(last - first):
        entry = bounds[number + 1]
        node = output.node[first + number]
        place = tables.length - 1
        while node >= 0:
            entry -= 1
            slots[entry] = node_event[node]
            places[entry] = place
            if node_first[node] == node:
                place -= 1
            node = node_parent[node]
    return bounds, slots, places


@njit(cache=True, nogil=True)
def _comes_before(events, output, first, bounds, slots, places, left, right):
    """Smaller start, then lexicographically smaller positions, then smaller component numbers; keys apart."""
    left_key = output.key[first + left]
    right_key = output.key[first + right]
    if left_key != right_key:
        return left_key < right_key
    left_start = events.start[slots[bounds[left]]]
    right_start = events.start[slots[bounds[right]]]
    if left_start != right_start:
        return left_start < right_start
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


@njit(cache=True, nogil=True)
def _ranked(events, output, first, bounds, slots, places):
    """Matches of one moment in their order: a merge sort."""
    count = bounds.size - 1
    order = np.arange(count)
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
    return order


# ── Writing out ────────────────────────────────────────────────────────────────────────────────────


class Expanded(NamedTuple):
    """Matches by the slots of their events."""

    lengths: NDArray[np.int32]  # [match, place]: how many events
    slots: NDArray[np.int32]  # one behind the other, match by match and place by place
    row: NDArray[np.int32]  # per match: the row of the output that it came from


def expand_matches(tables: RunTables, state: RunState, output: RunOutput) -> Expanded | None:
    """All matches of the output, members of combined runs that have left the window aside; None where a moment has
    more of them than `max_matches_per_moment`."""
    written = int(output.written[0])
    lengths, slots, rows, fits = _expand(
        state.arena,
        int(state.counters[Counter.NODES]),
        tables.length,
        bool(tables.merge),
        tables.max_matches_per_moment,
        output.node[:written],
        output.end,
        output.oldest,
    )
    return Expanded(lengths, slots, rows) if fits else None


@njit(cache=True, nogil=True)
def _expand(arena, nodes, length, merged, limit, matches, ends, oldest_by_match):
    written = matches.size
    lengths = np.zeros((2 * written + 16, length), np.int32)
    rows = np.empty(2 * written + 16, np.int32)
    slots = np.empty(8 * written + 64, np.int32)
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
                return lengths, slots, rows, False
            if found == rows.size:
                lengths = np.concatenate((lengths, np.zeros_like(lengths)))
                rows = np.concatenate((rows, rows))
            while used + depth + 1 > slots.size:
                slots = np.concatenate((slots, slots))
            for back in range(depth, -1, -1):
                slots[used] = arena.event[path[back]]
                lengths[found, arena.place[path[back]]] += 1
                used += 1
            rows[found] = number
            found += 1
    return lengths[:found], slots[:used], rows[:found], True
