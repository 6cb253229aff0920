"""The edges of NFA^b: whether a run may take one with an event, and the node that results."""

from __future__ import annotations

import numpy as np

from ouzel.engines.kleene.state import Counter
from ouzel.engines.kleene.tables import (
    EDGE_COLUMNS,
    NULL_SLOT,
    Bound,
    ByEdge,
    ByGuard,
    ByLoad,
    ByPlace,
    ByPlain,
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
    """Whether the tests of an edge hold for a run at a node of a place (-1: a new run) and an event, which becomes
    reference `target`. `state.failed` is the test that failed, -1 if none did."""
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


@helper(inline=True)
def guarded(tables, runs, events, run, begins, slot):
    """What a run's guard decides about an event that it would take or begin with."""
    guard = runs.guard[run, begins]
    if guard < 0:
        return ASK
    row = tables.by_guard[guard]
    lane = row[ByGuard.LANE]
    if row[ByGuard.KIND] == Guard.INT:
        if events.flagged[lane] and events.lane_flags[lane, slot] != _VALUE:
            return ASK
        value = events.int_lanes[lane, slot]
        bound = runs.int_bounds[run, begins]
        order = int(value > bound) - int(value < bound)
    else:
        flags = lane + events.int_lanes.shape[0]
        if events.flagged[flags] and events.lane_flags[flags, slot] != _VALUE:
            return ASK
        order = order_of_floats(events.float_lanes[lane, slot], runs.float_bounds[run, begins])
    if not compare(order, row[ByGuard.COMPARISON]):
        return NO
    return YES if row[ByGuard.DECIDES] and tables.codes == 0 else ASK


@helper(inline=True)
def set_guard(tables, state, events, run, begins):
    """Make the test that has just failed the guard of a run, if it can be one. Its reference value is loaded."""
    runs = state.runs
    row = tables.by_guard[state.failed[0]]
    if row[ByGuard.KIND] == Guard.NONE:
        return
    slot = state.bound[row[ByGuard.REFERENCE]]
    lane = row[ByGuard.OTHER_LANE]
    if row[ByGuard.KIND] == Guard.INT:
        runs.int_bounds[run, begins] = events.int_lanes[lane, slot]
        flags = lane
    else:
        runs.float_bounds[run, begins] = events.float_lanes[lane, slot]
        flags = lane + events.int_lanes.shape[0]
    if events.lane_flags[flags, slot] == _VALUE:
        runs.guard[run, begins] = state.failed[0]


@helper(inline=True)
def set_anchors(node_parent, node_first, anchor, node, place, lowest):
    """The last nodes of a place and of those before it, down to `lowest`."""
    at = np.int64(place)
    last = np.int32(node)
    anchor[at] = last
    while at > lowest:
        last = node_parent[node_first[last]]
        at -= 1
        anchor[at] = last


@helper(inline=True)
def load_edge(tables, state, events, edge):
    """Set the references that the tests of an edge need, starting from the anchors."""
    loads = tables.loads
    for load in range(tables.by_edge[edge, ByEdge.FIRST_LOAD], tables.by_edge[edge + 1, ByEdge.FIRST_LOAD]):
        _load(tables, state, events, loads, load, state.anchor[loads[load, ByLoad.PLACE]])


@helper(inline=True)
def tests_hold(tables, state, events, edge):
    """Whether the tests of an edge hold at the anchors; the event that is read is already bound."""
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
    """Set a reference, starting from a node."""
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
    flag = _VALUE if count > 0 or function == Function.COUNT else _NULL
    if function == Function.COUNT:
        events.int_lanes[row, slot] = count
    elif tables.by_register[number, ByRegister.FLOATING] == 0:
        events.int_lanes[row, slot] = arena.values[node, register]
    else:
        total = arena.totals[node, register]
        events.float_lanes[row, slot] = total / max(count, 1) if function == Function.AVERAGE else total
        row += events.int_lanes.shape[0]
    events.lane_flags[row, slot] = flag


@helper(inline=True)
def add_node(tables, state, events, parent, place, slot, begins):
    """Add a node, with its registers, for an event that begins a place or is taken there. There must be room."""
    arena = state.arena
    counters = state.counters
    node = np.int32(counters[Counter.NODES])
    counters[Counter.NODES] += 1
    counters[Counter.MOVES] += 1
    arena.event[node] = slot
    arena.parent[node] = parent
    arena.place[node] = place
    arena.first[node] = node if begins else arena.first[parent]
    arena.others[node] = -1
    if parent >= 0:
        arena.own[node] = arena.newest[parent]
    else:
        arena.own[node] = events.position[slot] if tables.in_events else events.start[slot]
    arena.newest[node] = arena.own[node]
    for test in range(tables.codes):
        code = events.codes[test, slot]
        if parent >= 0 and code < 0:
            code = arena.codes[parent, test]
        arena.codes[node, test] = code
    first_register = tables.by_place[place, ByPlace.FIRST_REGISTER]
    for number in range(first_register, tables.by_place[place + 1, ByPlace.FIRST_REGISTER]):
        before = np.int64(-1) if begins else np.int64(parent)
        _update_register(tables.by_register[number], events, arena, number - first_register, node, before, slot)
    arena.proceeds[node] = 1
    edge = tables.by_place[place, ByPlace.PROCEED]
    if tables.by_edge[edge, ByEdge.FIRST_TEST] < tables.by_edge[edge + 1, ByEdge.FIRST_TEST]:
        arena.proceeds[node] = _proceeds(tables, state, events, edge, node, place)
    return node


@helper
def _proceeds(tables, state, events, edge, node, place):
    """Whether a run may leave a Kleene place from a node of it."""
    set_anchors(state.arena.parent, state.arena.first, state.anchor, node, place, tables.by_edge[edge, ByEdge.LOWEST])
    return tests_hold(tables, state, events, edge)


@helper(inline=True)
def future_mark(tables, state, events, node):
    """A hash of a run's future: equal for runs with the same future, and usually different otherwise."""
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
            if row[ByRegister.FLOATING] == 0 and row[ByRegister.FUNCTION] <= Function.AVERAGE:
                value = arena.values[node, register]
            elif row[ByRegister.FLOATING] == 0 and arena.counts[node, register] > 0:
                value = events.int_lanes[row[ByRegister.LANE], arena.values[node, register]]
        mark = mark * np.int64(1_000_003) + value
    if tables.by_place[place, ByPlace.SAME_FIRST]:
        mark = mark * np.int64(1_000_003) + arena.event[arena.first[node]]
    return mark


@helper
def same_future(by_place, by_register, arena, int_lanes, float_lanes, left, right):
    """Whether two runs that reached nodes of one place with the same event have the same future."""
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
    if (left_count > 0) != (right_count > 0) or (left_count < 0) != (right_count < 0):
        return False
    floating = row[ByRegister.FLOATING] != 0
    if function == Function.AVERAGE and left_count != right_count:
        return False
    if function <= Function.AVERAGE:
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
    """A register after one more event than at the node before, or after the first event if that node is -1."""
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
        if function > Function.AVERAGE:
            if (
                count == 0
                or function == Function.LAST
                or (
                    function != Function.FIRST
                    and _is_better(events.int_lanes, events.float_lanes, function, lane, floating, slot, value)
                )
            ):
                value = np.int64(slot)
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
def _is_better(int_lanes, float_lanes, function, lane, floating, slot, other):
    """Whether one event's value is less (LEAST) or greater (GREATEST) than another's."""
    if floating:
        order = order_of_floats(float_lanes[lane, slot], float_lanes[lane, other])
    else:
        here = int_lanes[lane, slot]
        there = int_lanes[lane, other]
        order = int(here > there) - int(here < there)
    return order < 0 if function == Function.LEAST else order > 0


_EDGE_COLUMNS = EDGE_COLUMNS
_ABSENT = np.uint8(LaneFlag.ABSENT)

# In `Runs.guard`, which plain queries do not use otherwise: the LaneFlag of a bound, counted down from here.
_IS_BOUND = np.int32(-2)


@helper(inline=True)
def edge_of(tables, events, place, number):
    """The test on the take (0) or begin (1) edge that leaves a node of a place: (kind, lane, row of its flags, orders,
    bound, lane of the bound, row of its flags)."""
    row = tables.plain[place]
    columns = number * _EDGE_COLUMNS
    kind = row[columns + ByPlain.KIND]
    before = np.uint32(0) if kind == Guard.INT else np.uint32(events.int_lanes.shape[0])
    lane = np.uint32(row[columns + ByPlain.LANE])
    other = np.uint32(row[columns + ByPlain.OTHER_LANE])
    return kind, lane, lane + before, row[columns + ByPlain.ORDERS], row[columns + ByPlain.BOUND], other, other + before


@helper(inline=True)
def read_lane(edge, events, at):
    """(flag, integer, float): the value of an event that an edge compares."""
    kind, lane, flags, _, _, _, _ = edge
    if kind == Guard.NONE:
        return _VALUE, np.int64(0), 0.0
    if kind == Guard.INT:
        return events.lane_flags[flags, at], events.int_lanes[lane, at], 0.0
    return events.lane_flags[flags, at], np.int64(0), events.float_lanes[lane, at]


@helper(inline=True)
def allows(edge, read, runs, here, number):
    """Whether an edge holds for a run and the value read from an event."""
    kind, _, _, orders, _, _, _ = edge
    if kind == Guard.NONE:
        return True
    flag, value, real = read
    flag = max(flag, np.uint8(_IS_BOUND - runs.guard[here, number]))
    if flag != _VALUE:
        # A comparison with an absent attribute is true, one with null is not.
        return flag == _ABSENT
    if kind == Guard.INT:
        bound = runs.int_bounds[here, number]
        order = int(value > bound) - int(value < bound)
    else:
        order = order_of_floats(real, runs.float_bounds[here, number])
    return (orders >> (order + 1)) & 1 != 0


@helper(inline=True)
def set_bound(edge, runs, events, before, run, at, begins, number):
    """Set the value that an edge compares with from now on."""
    kind, _, _, _, bound, lane, flags = edge
    if kind == Guard.NONE:
        return
    flag = events.lane_flags[flags, at]
    if begins:
        # Aggregates ignore absent values like nulls.
        runs.guard[run, number] = _IS_BOUND - (flag if bound <= Bound.LAST else min(flag, 1))
        if kind == Guard.INT:
            runs.int_bounds[run, number] = events.int_lanes[lane, at]
        else:
            runs.float_bounds[run, number] = events.float_lanes[lane, at]
        return
    had = runs.guard[before, number]
    was = runs.int_bounds[before, number]
    float_was = runs.float_bounds[before, number]
    changes = bound == Bound.LAST
    if bound > Bound.LAST and flag == _VALUE:
        changes = had != _IS_BOUND or bound == Bound.LAST_VALUE
        if bound >= Bound.LEAST and not changes:
            if kind == Guard.INT:
                value = events.int_lanes[lane, at]
                changes = value < was if bound == Bound.LEAST else value > was
            else:
                order = order_of_floats(events.float_lanes[lane, at], float_was)
                changes = order < 0 if bound == Bound.LEAST else order > 0
    if changes:
        runs.guard[run, number] = _IS_BOUND - flag
        if kind == Guard.INT:
            runs.int_bounds[run, number] = events.int_lanes[lane, at]
        else:
            runs.float_bounds[run, number] = events.float_lanes[lane, at]
    elif run != before:
        runs.guard[run, number] = had
        runs.int_bounds[run, number] = was
        runs.float_bounds[run, number] = float_was


@helper(inline=True)
def bounds_differ(kind, runs, here, there, number):
    """Whether two runs compare with different values on an edge of a kind."""
    if kind == Guard.NONE:
        return False
    if runs.guard[here, number] != runs.guard[there, number]:
        return True
    if runs.guard[here, number] != _IS_BOUND:
        return False
    if kind == Guard.INT:
        return runs.int_bounds[here, number] != runs.int_bounds[there, number]
    return order_of_floats(runs.float_bounds[here, number], runs.float_bounds[there, number]) != 0
