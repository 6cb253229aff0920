"""The edges of the graph: whether an event may come next after a cell."""

from __future__ import annotations

import numpy as np

from ouzel.engines.kleene.graph_state import GraphCounter
from ouzel.engines.kleene.tables import ByEdge, ByLoad, ByNegative, ByPlace, Source
from ouzel.kernels.events import EVERY_KEY, Link, Mark
from ouzel.kernels.jit import helper
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.predicates import holds
from ouzel.kernels.windows import NEVER, newest_before

_VALUE = np.uint8(LaneFlag.VALUE)
_EVERY_KEY = EVERY_KEY


@helper(inline=True)
def is_tested(tables, place, begins):
    """Whether an edge into a place tests the event before: then not every cell of a chain may be followed."""
    return (begins and tables.by_place[place, ByPlace.NEGATED] != 0) or compares(tables, place, begins)


@helper(inline=True)
def compares(tables, place, begins):
    """Whether an edge into a place needs `may_follow`, in addition to `earliest_end`."""
    by_edge = tables.by_edge
    edge = tables.by_place[place, ByPlace.BEGIN] if begins else tables.by_place[place, ByPlace.TAKE]
    if by_edge[edge, ByEdge.FIRST_TEST] < by_edge[edge + 1, ByEdge.FIRST_TEST]:
        return True
    if begins and tables.by_place[place, ByPlace.NEGATED] == 2:
        return True
    if not begins or place == 0 or tables.by_place[place - 1, ByPlace.KLEENE] == 0:
        return False
    proceed = tables.by_place[place - 1, ByPlace.PROCEED]
    return by_edge[proceed, ByEdge.FIRST_TEST] < by_edge[proceed + 1, ByEdge.FIRST_TEST]


@helper(inline=True)
def earliest_end(tables, state, events, slot, place, begins):
    """The earliest end of a cell that an event may follow: no negative event is in between.

    This covers the negative components that no condition compares with other events.
    """
    floor = NEVER
    if not begins or not tables.by_place[place, ByPlace.NEGATED]:
        return floor
    for negative in range(tables.negatives):
        edge = tables.by_negative[negative, ByNegative.EDGE]
        if tables.by_negative[negative, ByNegative.AFTER] != place or (
            tables.by_edge[edge, ByEdge.FIRST_TEST] < tables.by_edge[edge + 1, ByEdge.FIRST_TEST]
        ):
            continue
        own = np.int64(events.key[slot])
        for everywhere in range(1 if own == _EVERY_KEY else 2):
            key = np.int64(_EVERY_KEY) if everywhere else own
            head = state.negative_head[key * tables.negatives + negative]
            newest = newest_before(events.end, state.links[negative], head, events.start[slot])
            if newest >= 0:
                floor = max(floor, state.marks[negative, Mark.GUARD, newest])
    return floor


@helper
def _is_forbidden(tables, state, events, cell, slot, place):
    """Whether a negative event between a cell and an event satisfies the conditions that name it."""
    behind = events.end[state.cells.event[cell]]
    for negative in range(tables.negatives):
        edge = tables.by_negative[negative, ByNegative.EDGE]
        if (
            tables.by_negative[negative, ByNegative.AFTER] != place
            or tables.by_edge[edge, ByEdge.FIRST_TEST] == tables.by_edge[edge + 1, ByEdge.FIRST_TEST]
        ):
            continue
        for load in range(tables.by_edge[edge, ByEdge.FIRST_LOAD], tables.by_edge[edge + 1, ByEdge.FIRST_LOAD]):
            is_after = tables.loads[load, ByLoad.PLACE] == place
            state.bound[tables.loads[load, ByLoad.TARGET]] = slot if is_after else state.cells.event[cell]
        links = state.links[negative]
        own = np.int64(events.key[slot])
        for everywhere in range(1 if own == _EVERY_KEY else 2):
            key = np.int64(_EVERY_KEY) if everywhere else own
            head = state.negative_head[key * tables.negatives + negative]
            candidate = newest_before(events.end, links, head, events.start[slot])
            while candidate >= 0 and state.marks[negative, Mark.GUARD, candidate] > behind:
                if events.start[candidate] > behind:
                    state.bound[tables.by_negative[negative, ByNegative.REFERENCE]] = candidate
                    if _tests_hold(tables, state, events, edge):
                        return True
                candidate = links[Link.BELOW, candidate]
    return False


@helper
def may_follow(tables, state, events, cell, slot, place, begins):
    """Whether an event may follow a cell that ends at `earliest_end` or later."""
    if begins and not state.cells.proceeds[cell]:
        return False
    edges = tables.by_place
    edge = edges[place, ByPlace.BEGIN] if begins else edges[place, ByPlace.TAKE]
    state.counters[GraphCounter.TESTS] += 1
    # Besides this event, a test may name only the event before it.
    bind_all(tables, state, events, edge, state.cells.event[cell], 0)
    state.bound[edges[place, ByPlace.FIRST] if begins else edges[place, ByPlace.CURRENT]] = slot
    if not _tests_hold(tables, state, events, edge):
        return False
    return not (
        begins and edges[place, ByPlace.NEGATED] == 2 and _is_forbidden(tables, state, events, cell, slot, place)
    )


@helper(inline=True)
def bind_all(tables, state, events, edge, slot, count):
    """Bind an event, and the number of events of its place, for the tests of an edge."""
    for load in range(tables.by_edge[edge, ByEdge.FIRST_LOAD], tables.by_edge[edge + 1, ByEdge.FIRST_LOAD]):
        target = tables.loads[load, ByLoad.TARGET]
        if tables.loads[load, ByLoad.SOURCE] == Source.NUMBER:
            events.int_lanes[tables.loads[load, ByLoad.ROW], state.bound[target]] = count
            events.lane_flags[tables.loads[load, ByLoad.ROW], state.bound[target]] = _VALUE
        else:
            state.bound[target] = slot


@helper(inline=True)
def edge_holds(tables, state, events, edge):
    if tables.by_edge[edge, ByEdge.FIRST_TEST] == tables.by_edge[edge + 1, ByEdge.FIRST_TEST]:
        return True
    return _tests_hold(tables, state, events, edge)


@helper
def _tests_hold(tables, state, events, edge):
    for conjunct in range(tables.by_edge[edge, ByEdge.FIRST_TEST], tables.by_edge[edge + 1, ByEdge.FIRST_TEST]):
        if not holds(tables.predicates, events, state.bound, state.values, conjunct):
            return False
    return True
