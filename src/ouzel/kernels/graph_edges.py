"""The edges of the graph: whether an event may come next after a cell."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.graph_state import GraphCounter
from ouzel.kernels.jit import helper
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.predicates import holds
from ouzel.kernels.run_tables import ByEdge, ByLoad, ByNegative, ByPlace, Source
from ouzel.kernels.stack_checks import NEVER, newest_before
from ouzel.kernels.stack_tables import EVERY_KEY, Link, Mark

_KLEENE = int(ByPlace.KLEENE)
_PLACE_FIRST = int(ByPlace.FIRST)
_PLACE_CURRENT = int(ByPlace.CURRENT)
_BEGIN = int(ByPlace.BEGIN)
_TAKE = int(ByPlace.TAKE)
_PROCEED = int(ByPlace.PROCEED)
_EDGE_LOADS = int(ByEdge.FIRST_LOAD)
_EDGE_TESTS = int(ByEdge.FIRST_TEST)
_TARGET = int(ByLoad.TARGET)
_SOURCE = int(ByLoad.SOURCE)
_LOAD_PLACE = int(ByLoad.PLACE)
_LOAD_ROW = int(ByLoad.ROW)
_NUMBER = int(Source.NUMBER)
_VALUE = np.uint8(LaneFlag.VALUE)
_NEGATED = int(ByPlace.NEGATED)
_AFTER = int(ByNegative.AFTER)
_REFERENCE = int(ByNegative.REFERENCE)
_NEGATIVE_EDGE = int(ByNegative.EDGE)
_EVERY_KEY = EVERY_KEY
_BELOW = int(Link.BELOW)
_GUARD = int(Mark.GUARD)
_TESTS = int(GraphCounter.TESTS)


@helper(inline=True)
def is_tested(tables, place, begins):
    """Whether an edge into a place asks anything of the event before: not every cell of a chain may be followed."""
    return (begins and tables.by_place[place, _NEGATED] != 0) or compares(tables, place, begins)


@helper(inline=True)
def compares(tables, place, begins):
    """Whether `may_follow` must be asked of an edge into a place, beside `earliest_end`."""
    by_edge = tables.by_edge
    edge = tables.by_place[place, _BEGIN] if begins else tables.by_place[place, _TAKE]
    if by_edge[edge, _EDGE_TESTS] < by_edge[edge + 1, _EDGE_TESTS]:
        return True
    if begins and tables.by_place[place, _NEGATED] == 2:
        return True
    if not begins or place == 0 or tables.by_place[place - 1, _KLEENE] == 0:
        return False
    proceed = tables.by_place[place - 1, _PROCEED]
    return by_edge[proceed, _EDGE_TESTS] < by_edge[proceed + 1, _EDGE_TESTS]


@helper(inline=True)
def earliest_end(tables, state, events, slot, place, begins):
    """When a cell must end at the earliest for an event to come next after it: no negative event lies in between.

    This is all that negative components ask which no condition compares with other events.
    """
    floor = NEVER
    if not begins or not tables.by_place[place, _NEGATED]:
        return floor
    for negative in range(tables.negatives):
        edge = tables.by_negative[negative, _NEGATIVE_EDGE]
        if tables.by_negative[negative, _AFTER] != place or (
            tables.by_edge[edge, _EDGE_TESTS] < tables.by_edge[edge + 1, _EDGE_TESTS]
        ):
            continue
        own = np.int64(events.key[slot])
        for everywhere in range(1 if own == _EVERY_KEY else 2):
            key = np.int64(_EVERY_KEY) if everywhere else own
            head = state.negative_head[key * tables.negatives + negative]
            newest = newest_before(events.end, state.links[negative], head, events.start[slot])
            if newest >= 0:
                floor = max(floor, state.marks[negative, _GUARD, newest])
    return floor


@helper
def _is_forbidden(tables, state, events, cell, slot, place):
    """Whether a negative event between a cell and an event satisfies the conditions that name it."""
    behind = events.end[state.cells.event[cell]]
    for negative in range(tables.negatives):
        edge = tables.by_negative[negative, _NEGATIVE_EDGE]
        if (
            tables.by_negative[negative, _AFTER] != place
            or tables.by_edge[edge, _EDGE_TESTS] == tables.by_edge[edge + 1, _EDGE_TESTS]
        ):
            continue
        for load in range(tables.by_edge[edge, _EDGE_LOADS], tables.by_edge[edge + 1, _EDGE_LOADS]):
            is_after = tables.loads[load, _LOAD_PLACE] == place
            state.bound[tables.loads[load, _TARGET]] = slot if is_after else state.cells.event[cell]
        links = state.links[negative]
        own = np.int64(events.key[slot])
        for everywhere in range(1 if own == _EVERY_KEY else 2):
            key = np.int64(_EVERY_KEY) if everywhere else own
            head = state.negative_head[key * tables.negatives + negative]
            candidate = newest_before(events.end, links, head, events.start[slot])
            while candidate >= 0 and state.marks[negative, _GUARD, candidate] > behind:
                if events.start[candidate] > behind:
                    state.bound[tables.by_negative[negative, _REFERENCE]] = candidate
                    if _tests_hold(tables, state, events, edge):
                        return True
                candidate = links[_BELOW, candidate]
    return False


@helper
def may_follow(tables, state, events, cell, slot, place, begins):
    """Whether an event may come next after a cell, which ends at `earliest_end` or later."""
    if begins and not state.cells.proceeds[cell]:
        return False
    edges = tables.by_place
    edge = edges[place, _BEGIN] if begins else edges[place, _TAKE]
    state.counters[_TESTS] += 1
    # All that a test may name beside this event is the event before it.
    bind_all(tables, state, events, edge, state.cells.event[cell], 0)
    state.bound[edges[place, _PLACE_FIRST] if begins else edges[place, _PLACE_CURRENT]] = slot
    if not _tests_hold(tables, state, events, edge):
        return False
    return not (begins and edges[place, _NEGATED] == 2 and _is_forbidden(tables, state, events, cell, slot, place))


@helper(inline=True)
def bind_all(tables, state, events, edge, slot, count):
    """Let an edge's tests see an event, and the number of events of its place."""
    for load in range(tables.by_edge[edge, _EDGE_LOADS], tables.by_edge[edge + 1, _EDGE_LOADS]):
        target = tables.loads[load, _TARGET]
        if tables.loads[load, _SOURCE] == _NUMBER:
            events.int_lanes[tables.loads[load, _LOAD_ROW], state.bound[target]] = count
            events.lane_flags[tables.loads[load, _LOAD_ROW], state.bound[target]] = _VALUE
        else:
            state.bound[target] = slot


@helper(inline=True)
def edge_holds(tables, state, events, edge):
    if tables.by_edge[edge, _EDGE_TESTS] == tables.by_edge[edge + 1, _EDGE_TESTS]:
        return True
    return _tests_hold(tables, state, events, edge)


@helper
def _tests_hold(tables, state, events, edge):
    for conjunct in range(tables.by_edge[edge, _EDGE_TESTS], tables.by_edge[edge + 1, _EDGE_TESTS]):
        if not holds(tables.predicates, events, state.bound, state.values, conjunct):
            return False
    return True
