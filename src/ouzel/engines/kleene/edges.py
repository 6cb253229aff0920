"""The edges of NFA^b: whether a run may take an edge with an event, and the node that it then reaches."""

from __future__ import annotations

import numpy as np

from ouzel.engines.kleene.state import Counter
from ouzel.engines.kleene.tables import (
    NULL_SLOT,
    ByEdge,
    ByGuard,
    ByLoad,
    ByPlace,
    ByRegister,
    ByTest,
    Function,
    Guard,
    Source,
)
from ouzel.kernels.arrays import INT64_MAX, INT64_MIN
from ouzel.kernels.jit import helper
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.predicates import compare, holds, order_of_floats

_VALUE = np.uint8(LaneFlag.VALUE)
_NULL = np.uint8(LaneFlag.NULL)
_NULL_SLOT = np.int32(NULL_SLOT)
# The count of a register whose sum has overflowed: its value is null from then on.
_OVERFLOWN = np.int64(-1)


@helper(inline=True)
def passes(tables, state, events, edge, node, place, target, slot):
    """Whether the tests of an edge hold for an event and a run at a node of a place (node -1: a new run). The tests
    read the event as reference `target`. Sets `state.failed` to the test that failed, or -1.
    """
    state.failed[0] = -1
    if node >= 0:
        for test in range(tables.codes):
            code = events.codes[test, slot]
            common = state.arena.codes[node, test]
            if code >= 0 and common >= 0 and code != common:
                return False
    by_edge = tables.by_edge
    if by_edge[edge, ByEdge.FIRST_TEST] == by_edge[edge + 1, ByEdge.FIRST_TEST]:
        return True
    state.bound[target] = slot
    if place >= 0:
        set_anchors(state.arena.parent, state.arena.first, state.anchor, node, place, by_edge[edge, ByEdge.LOWEST])
    return tests_hold(tables, state, events, edge)


# What a guard decides about an edge.
NO = np.uint8(0)
ASK = np.uint8(1)  # the tests decide
YES = np.uint8(2)
# Instead of the number of a test: there is no guard; the run cannot take the edge.
OPEN = np.int32(-1)
CLOSED = np.int32(-2)


@helper(inline=True)
def guarded(tables, runs, events, run, begins, slot):
    """What a run's guard decides about an event on an open edge: NO, YES, or ASK if the tests must decide. A guard is
    one comparison with a stored value, made before the other tests.
    """
    guard = runs.guard[run, begins]
    if guard < 0:
        return ASK
    row = tables.by_guard[np.uint32(guard)]
    lane = np.uint32(row[ByGuard.LANE])
    if row[ByGuard.KIND] == Guard.INT:
        if events.flagged[lane] and events.lane_flags[lane, slot] != _VALUE:
            return ASK
        value = events.int_lanes[lane, slot]
        bound = runs.int_bounds[run, begins]
        order = int(value > bound) - int(value < bound)
    else:
        flags = lane + np.uint32(events.int_lanes.shape[0])
        if events.flagged[flags] and events.lane_flags[flags, slot] != _VALUE:
            return ASK
        order = order_of_floats(events.float_lanes[lane, slot], runs.float_bounds[run, begins])
    if not compare(order, row[ByGuard.COMPARISON]):
        return NO
    return YES if row[ByGuard.DECIDES] and tables.codes == 0 else ASK


@helper(inline=True)
def set_guard(tables, state, events, run, begins):
    """Make the test that has just failed the guard of a run, if it can be a guard. `state.bound` must have its
    reference.
    """
    row = tables.by_guard[state.failed[0]]
    if row[ByGuard.KIND] != Guard.NONE:
        _store_guard(state.runs, events, run, begins, state.failed[0], row, state.bound[row[ByGuard.REFERENCE]])


@helper(inline=True)
def first_guard(tables, state, events, run, begins, test, node):
    """Make a test the guard of a run that has just arrived at a node, if the value to compare with is in this place."""
    if test < 0:
        return
    row = tables.by_guard[np.uint32(test)]
    source = row[ByGuard.SOURCE]
    arena = state.arena
    if source == Source.LAST:
        slot = arena.event[node]
    elif source == Source.FIRST:
        slot = arena.event[np.uint32(arena.first[node])]
    elif source == Source.SLOT and arena.counts[node, row[ByGuard.REGISTER]] > 0:
        slot = np.int32(arena.values[node, row[ByGuard.REGISTER]])
    else:
        return
    _store_guard(state.runs, events, run, begins, test, row, np.uint32(slot))


@helper(inline=True)
def _store_guard(runs, events, run, begins, test, row, slot):
    """Store a test as the guard of a run, with the value in a slot that it compares with. A null makes no guard."""
    lane = np.uint32(row[ByGuard.OTHER_LANE])
    if row[ByGuard.KIND] == Guard.INT:
        runs.int_bounds[run, begins] = events.int_lanes[lane, slot]
    else:
        runs.float_bounds[run, begins] = events.float_lanes[lane, slot]
        lane += np.uint32(events.int_lanes.shape[0])
    if events.lane_flags[lane, slot] == _VALUE:
        runs.guard[run, begins] = test


@helper(inline=True)
def set_anchors(node_parent, node_first, anchor, node, place, lowest):
    """For a place and each place before it, down to `lowest`, set the anchor: the last node of the run there."""
    at = np.int64(place)
    last = np.int32(node)
    anchor[at] = last
    while at > lowest:
        last = node_parent[node_first[last]]
        at -= 1
        anchor[at] = last


@helper(inline=True)
def load_edge(tables, state, events, edge):
    """Set the references that the tests of an edge read, found from the anchors."""
    loads = tables.loads
    for load in range(tables.by_edge[edge, ByEdge.FIRST_LOAD], tables.by_edge[edge + 1, ByEdge.FIRST_LOAD]):
        _load(tables, state, events, loads, load, state.anchor[loads[load, ByLoad.PLACE]])


@helper(inline=True)
def tests_hold(tables, state, events, edge):
    """Whether the tests of an edge hold, given the anchors. The reference of the event that is read is already set."""
    by_test = tables.by_test
    bound = state.bound
    load_edge(tables, state, events, edge)
    for conjunct in range(tables.by_edge[edge, ByEdge.FIRST_TEST], tables.by_edge[edge + 1, ByEdge.FIRST_TEST]):
        iterated = by_test[conjunct, ByTest.ITERATED]
        node = state.anchor[iterated] if iterated >= 0 else np.int32(-1)
        while True:
            if iterated >= 0:
                if state.arena.first[node] == node:
                    break
                bound[by_test[conjunct, ByTest.CURRENT]] = state.arena.event[node]
                node = state.arena.parent[node]
                for load in range(by_test[conjunct, ByTest.FIRST_LOAD], by_test[conjunct + 1, ByTest.FIRST_LOAD]):
                    _load(tables, state, events, tables.iterated_loads, load, node)
            if not holds(tables.predicates, events, bound, state.values, conjunct):
                state.failed[0] = conjunct
                return False
            if iterated < 0:
                break
    return True


@helper(inline=True)
def _load(tables, state, events, loads, load, node):
    """Set one reference of a test, found from a node."""
    source = loads[load, ByLoad.SOURCE]
    target = loads[load, ByLoad.TARGET]
    arena = state.arena
    if source == Source.FIRST:
        state.bound[target] = arena.event[arena.first[node]]
        return
    if source == Source.LAST:
        state.bound[target] = arena.event[node]
        return
    register = loads[load, ByLoad.REGISTER]
    count = arena.counts[node, register]
    if source == Source.SLOT:
        state.bound[target] = arena.values[node, register] if count > 0 else _NULL_SLOT
        return
    number = tables.by_place[loads[load, ByLoad.PLACE], ByPlace.FIRST_REGISTER] + register
    function = tables.by_register[number, ByRegister.FUNCTION]
    row = loads[load, ByLoad.ROW]
    slot = state.bound[target]
    least = 2 if function == Function.DEVIATION else 0 if function <= Function.DISTINCT else 1
    flag = _VALUE if count >= least else _NULL
    if function == Function.COUNT:
        events.int_lanes[row, slot] = count
    elif function == Function.DISTINCT or tables.by_register[number, ByRegister.FLOATING] == 0:
        events.int_lanes[row, slot] = arena.values[node, register]
    else:
        total = arena.totals[node, register]
        if function == Function.AVERAGE:
            total = total / max(count, 1)
        elif function == Function.DEVIATION:
            total = np.sqrt(total / max(count - 1, 1))
        events.float_lanes[row, slot] = total
        row += events.int_lanes.shape[0]
    events.lane_flags[row, slot] = flag


@helper(inline=True)
def add_node(tables, state, events, parent, place, slot, begins):
    """Add a node with its registers for an event that begins a place or is taken there. The arena must have room."""
    arena = state.arena
    counters = state.counters
    node = np.int32(counters[Counter.NODES])
    counters[Counter.NODES] += 1
    counters[Counter.MOVES] += 1
    here = np.uint32(node)
    above = np.uint32(parent)
    at = np.uint32(slot)
    arena.event[here] = slot
    arena.parent[here] = parent
    arena.place[here] = place
    arena.first[here] = node if begins else arena.first[above]
    arena.others[here] = -1
    if parent >= 0:
        newest = arena.newest[above]
    else:
        newest = events.position[at] if tables.in_events else events.start[at]
    arena.own[here] = newest
    arena.newest[here] = newest
    for test in range(tables.codes):
        code = events.codes[test, at]
        if parent >= 0 and code < 0:
            code = arena.codes[above, test]
        arena.codes[here, test] = code
    if tables.registers:
        first_register = tables.by_place[place, ByPlace.FIRST_REGISTER]
        for number in range(first_register, tables.by_place[place + 1, ByPlace.FIRST_REGISTER]):
            before = np.int64(-1) if begins else np.int64(parent)
            _update_register(tables.by_register[number], events, arena, number - first_register, node, before, slot)
    arena.proceeds[here] = 1
    edge = np.uint32(tables.by_place[np.uint32(place), ByPlace.PROCEED])
    if tables.by_edge[edge, ByEdge.FIRST_TEST] < tables.by_edge[edge + np.uint32(1), ByEdge.FIRST_TEST]:
        arena.proceeds[here] = _proceeds(tables, state, events, edge, node, place)
    return node


@helper
def _proceeds(tables, state, events, edge, node, place):
    """Whether a run at a node of a Kleene place may leave the place."""
    set_anchors(state.arena.parent, state.arena.first, state.anchor, node, place, tables.by_edge[edge, ByEdge.LOWEST])
    return tests_hold(tables, state, events, edge)


@helper(inline=True)
def future_mark(tables, state, events, node):
    """A hash of all that decides how a run can continue. Runs with the same future have the same hash."""
    arena = state.arena
    place = np.int64(arena.place[node])
    mark = place
    first_register = tables.by_place[place, ByPlace.FIRST_REGISTER]
    for number in range(first_register, tables.by_place[place + 1, ByPlace.FIRST_REGISTER]):
        row = tables.by_register[number]
        register = number - first_register
        if row[ByRegister.NEEDED] == 0:
            continue
        value = arena.counts[node, register]
        if row[ByRegister.FUNCTION] != Function.COUNT:
            # Floats are left out: NaN and -0.0 have several forms.
            value = np.int64(row[ByRegister.FUNCTION] == Function.AVERAGE) * value
            if row[ByRegister.FLOATING] == 0 and row[ByRegister.FUNCTION] < Function.FIRST:
                value = arena.values[node, register]
            elif row[ByRegister.FLOATING] == 0 and arena.counts[node, register] > 0:
                value = events.int_lanes[row[ByRegister.LANE], arena.values[node, register]]
        mark = mark * np.int64(1_000_003) + value
    if tables.by_place[place, ByPlace.SAME_FIRST]:
        mark = mark * np.int64(1_000_003) + arena.event[arena.first[node]]
    return mark


@helper
def same_future(by_place, by_register, arena, int_lanes, float_lanes, left, right):
    """Whether two runs will continue alike with all later events. Both have just reached the same place with one
    event.
    """
    place = arena.place[left]
    row = by_place[place]
    if row[ByPlace.MERGEABLE] == 0 or arena.proceeds[left] != arena.proceeds[right]:
        return False
    if row[ByPlace.SAME_FIRST] and arena.event[arena.first[left]] != arena.event[arena.first[right]]:
        return False
    if row[ByPlace.SAME_PARENT] and arena.parent[arena.first[left]] != arena.parent[arena.first[right]]:
        return False
    for test in range(arena.codes.shape[1]):
        if arena.codes[left, test] != arena.codes[right, test]:
            return False
    for number in range(row[ByPlace.FIRST_REGISTER], by_place[place + 1, ByPlace.FIRST_REGISTER]):
        if by_register[number, ByRegister.NEEDED] and not _same_register(
            by_register[number], arena, int_lanes, float_lanes, number - row[ByPlace.FIRST_REGISTER], left, right
        ):
            return False
    return True


@helper
def _same_register(row, arena, int_lanes, float_lanes, register, left, right):
    """Whether two registers hold the same value and will stay equal."""
    function = row[ByRegister.FUNCTION]
    left_count = arena.counts[left, register]
    right_count = arena.counts[right, register]
    if function == Function.COUNT:
        return left_count == right_count
    if function == Function.DISTINCT:
        return False  # The values may differ.
    if (left_count > 0) != (right_count > 0) or (left_count < 0) != (right_count < 0):
        return False
    floating = row[ByRegister.FLOATING] != 0
    if function in (Function.AVERAGE, Function.DEVIATION) and left_count != right_count:
        return False
    if function < Function.FIRST:
        if floating:
            return order_of_floats(arena.totals[left, register], arena.totals[right, register]) == 0
        return arena.values[left, register] == arena.values[right, register]
    if left_count <= 0:
        return True
    lane = row[ByRegister.LANE]
    left_slot = arena.values[left, register]
    right_slot = arena.values[right, register]
    if floating:
        return order_of_floats(float_lanes[lane, left_slot], float_lanes[lane, right_slot]) == 0
    return int_lanes[lane, left_slot] == int_lanes[lane, right_slot]


@helper(inline=True)
def _update_register(row, events, arena, register, node, before, slot):
    """A register after an event, from its value at node `before`; -1: the event is the first one of its place."""
    count = np.int64(0)
    value = np.int64(0)
    total = 0.0
    if before >= 0:
        count = arena.counts[before, register]
        value = arena.values[before, register]
        total = arena.totals[before, register] if arena.totals.size else 0.0
    function = row[ByRegister.FUNCTION]
    lane = row[ByRegister.LANE]
    floating = row[ByRegister.FLOATING] != 0
    flags = row[ByRegister.ROW]
    if flags < -1:
        flags = events.int_lanes.shape[0] - 2 - flags
    if (flags == -1 or events.lane_flags[flags, slot] == _VALUE) and count != _OVERFLOWN:
        if function >= Function.FIRST:
            if (
                count == 0
                or function == Function.LAST
                or (
                    function != Function.FIRST
                    and _is_better(events.int_lanes, events.float_lanes, function, lane, floating, slot, value)
                )
            ):
                value = np.int64(slot)
        elif function == Function.DISTINCT:
            value += np.int64(_is_new(events, arena, lane, floating, before, slot))
        elif function == Function.DEVIATION:
            # Youngs and Cramer: by the sum and the number of the values before.
            if count > 0:
                distance = events.float_lanes[lane, slot] - arena.totals[before, row[ByRegister.SUM]] / count
                total += distance * distance * (count / (count + 1))
        elif function == Function.SUM and not floating:
            added = events.int_lanes[lane, slot]
            if (added > 0 and value > INT64_MAX - added) or (added < 0 and value < INT64_MIN - added):
                count = _OVERFLOWN - 1
            else:
                value += added
        elif function != Function.COUNT:
            # The first value as it is: 0.0 + -0.0 would lose a sign.
            total = total + events.float_lanes[lane, slot] if count > 0 else events.float_lanes[lane, slot]
        count += 1
    arena.counts[node, register] = count
    arena.values[node, register] = value
    if arena.totals.size:
        arena.totals[node, register] = total


@helper
def _is_new(events, arena, lane, floating, before, slot):
    """Whether an event's value occurs in no earlier event of its place, from node `before` back."""
    flags = lane + events.int_lanes.shape[0] if floating else lane
    node = before
    while node >= 0:
        other = arena.event[node]
        if events.lane_flags[flags, other] == _VALUE:
            if floating:
                if order_of_floats(events.float_lanes[lane, slot], events.float_lanes[lane, other]) == 0:
                    return False
            elif events.int_lanes[lane, slot] == events.int_lanes[lane, other]:
                return False
        node = np.int64(-1) if arena.first[node] == node else np.int64(arena.parent[node])
    return True


@helper
def _is_better(int_lanes, float_lanes, function, lane, floating, slot, other):
    """Whether one event's value is less (LEAST) or greater (GREATEST) than another's."""
    if floating:
        order = order_of_floats(float_lanes[lane, slot], float_lanes[lane, other])
    else:
        here = int_lanes[lane, slot]
        there = int_lanes[lane, other]
        order = int(here > there) - int(here < there)
    return order < 0 if function == Function.LEAST else order > 0
