"""Every choice of events (skip_till_any_match) with Kleene closure, without a run for each: a graph of cells.

An event costs the same however many matches it takes part in: it becomes one cell for each place that it may fill,
linked to the chains of cells that it may follow. Predicates between neighbours, as v[i] and v[i-1], are tested along
the chain (GRETA's edges between events); predicates that depend on more of a match need runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ouzel.kernels.graph_state import (
    STARTS,
    GraphCounter,
    GraphOutput,
    GraphState,
    larger_graph_output,
    reserve_cells,
)
from ouzel.kernels.predicates import holds
from ouzel.kernels.run_state import Status
from ouzel.kernels.run_tables import ByEdge, ByLoad, ByPlace, RunEvents, RunTables
from ouzel.kernels.stack_checks import NEVER, oldest_alive

_STARTS = np.int32(STARTS)
_KLEENE = int(ByPlace.KLEENE)
_PLACE_FIRST = int(ByPlace.FIRST)
_PLACE_CURRENT = int(ByPlace.CURRENT)
_BEGIN = int(ByPlace.BEGIN)
_TAKE = int(ByPlace.TAKE)
_PROCEED = int(ByPlace.PROCEED)
_EDGE_LOADS = int(ByEdge.FIRST_LOAD)
_EDGE_TESTS = int(ByEdge.FIRST_TEST)
_TARGET = int(ByLoad.TARGET)

_CELLS = int(GraphCounter.CELLS)
_MOMENT = int(GraphCounter.MOMENT)
_AT_MOMENT = int(GraphCounter.AT_MOMENT)
_EVENTS = int(GraphCounter.EVENTS)
_TESTS = int(GraphCounter.TESTS)
_ROOTS = int(GraphCounter.ROOTS)
_MATCHES = int(GraphCounter.MATCHES)
_DONE = int(Status.DONE)
_NODES_FULL = int(Status.NODES_FULL)
_OUTPUT_FULL = int(Status.OUTPUT_FULL)
_MATCH_LIMIT = int(Status.MATCH_LIMIT)
_LENGTH_LIMIT = int(Status.LENGTH_LIMIT)
# So many events may the matches of one event have together: four gigabytes, before anything is made of them.
EVENTS_MAX = 1 << 30

# What a step of the listing does next with the cell at its depth.
_OPEN = np.uint8(0)
_TAKEN_FROM = np.uint8(1)
_BEGUN_FROM = np.uint8(2)


class GraphProgress(NamedTuple):
    """How far a call came."""

    status: Status
    position: int
    state: GraphState
    output: GraphOutput


def scan_graph(
    tables: RunTables,
    state: GraphState,
    events: RunEvents,
    first: int,
    last: int,
    output: GraphOutput,
    *,
    listed: bool = True,
    cut: bool = False,
) -> GraphProgress:
    """Read the events in slots first to last - 1. Append the matches they complete to the output, or, where they are
    not `listed`, the cells that complete them. `cut`: without those beyond a limit, which is else the status.

    >>> from ouzel.kernels.graph_state import new_graph_output, new_graph_state
    >>> from ouzel.kernels.run_tables import RunPlace, build_run_tables, new_events
    >>> tables = build_run_tables([RunPlace(kleene=True), RunPlace()])
    >>> events = new_events(tables, 4)
    >>> events.end[1:] = 1, 2, 3
    >>> events.roles[1:] = 0b011, 0b011, 0b100
    >>> found = scan_graph(tables, new_graph_state(tables, 1), events, 1, 4, new_graph_output(tables)).output
    >>> found.lengths[: found.found[0]].tolist(), found.slots[: found.found[1]].tolist()
    ([[1, 1], [2, 1], [1, 1]], [2, 3, 1, 2, 3, 1, 3])
    """
    position = first
    while True:
        status, position = _scan(tables, state, events, position, last, output, listed, cut)
        if status == Status.NODES_FULL:
            state = reserve_cells(state, 2 * state.cells.event.size + tables.length)
        elif status == Status.OUTPUT_FULL:
            output = larger_graph_output(output)
        else:
            return GraphProgress(Status(status), position, state, output)


@njit(cache=True, nogil=True, _nrt=False)
def _scan(tables, state, events, first, last, output, listed, cut):
    """(status, position). Everything about one event happens, or, where the status is not DONE, nothing of it."""
    counters = state.counters
    length = tables.length
    one = np.uint64(1)
    for slot in range(first, last):
        if counters[_CELLS] + length > state.cells.event.size:
            return _NODES_FULL, slot
        if events.end[slot] != counters[_MOMENT]:
            counters[_MOMENT] = events.end[slot]
            counters[_AT_MOMENT] = 0
        roles = events.roles[slot]
        measure = events.position[slot] if tables.in_events else events.end[slot]
        oldest = oldest_alive(measure, tables.window)
        root = np.int32(-1)
        cells_before = counters[_CELLS]
        for place in range(length):
            begins = (roles >> np.uint64(2 * place)) & one != 0
            takes = (roles >> np.uint64(2 * place + 1)) & one != 0
            if begins or takes:
                made = _add_cell(tables, state, events, slot, place, begins, takes, oldest, measure)
                if place == length - 1 and made >= 0 and state.cells.proceeds[made]:
                    root = made
        if root >= 0:
            status = _give_out(tables, state, events, root, slot, oldest, output, listed, cut)
            if status != _DONE:
                # The event is read again: its cells are on top of their chains.
                while counters[_CELLS] > cells_before:
                    counters[_CELLS] -= 1
                    cell = counters[_CELLS]
                    chain = np.int64(events.key[slot]) * length + state.cells.place[cell]
                    state.head[chain] = state.cells.below[cell]
                return status, slot
            counters[_ROOTS] += 1
        counters[_EVENTS] += 1
    return _DONE, last


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _add_cell(tables, state, events, slot, place, begins, takes, oldest, measure):
    """A cell for an event at a place, if some run within the window ends with it; else -1."""
    cells = state.cells
    base = np.int64(events.key[slot]) * tables.length
    edges = tables.by_place
    begin = np.int32(-1)
    take = np.int32(-1)
    newest = NEVER
    if begins and place == 0:
        since = measure if tables.in_events else events.start[slot]
        state.bound[edges[0, _PLACE_FIRST]] = slot
        if since >= oldest and _edge_holds(tables, state, events, edges[0, _BEGIN]):
            begin = _STARTS
            newest = since
    elif begins:
        top = _before(cells, events, state.head[base + place - 1], slot)
        found = _newest_of(tables, state, events, top, slot, place, True, oldest)
        if found >= oldest:
            begin = top
            newest = found
    if takes:
        top = _before(cells, events, state.head[base + place], slot)
        found = _newest_of(tables, state, events, top, slot, place, False, oldest)
        if found >= oldest:
            take = top
            newest = max(newest, found)
    if begin == -1 and take == -1:
        return np.int32(-1)
    made = np.int32(state.counters[_CELLS])
    state.counters[_CELLS] += 1
    below = state.head[base + place]
    cells.event[made] = slot
    cells.place[made] = place
    cells.begin[made] = begin
    cells.take[made] = take
    cells.below[made] = below
    cells.newest[made] = newest
    cells.reach[made] = max(newest, cells.reach[below]) if below >= 0 else newest
    state.head[base + place] = made
    cells.proceeds[made] = 1
    if edges[place, _KLEENE]:
        edge = edges[place, _PROCEED]
        _bind_all(tables, state, edge, slot)
        cells.proceeds[made] = _edge_holds(tables, state, events, edge)
    return made


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _before(cells, events, cell, slot):
    """The newest cell from one down whose event ends before an event starts."""
    while cell >= 0 and events.end[cells.event[cell]] >= events.start[slot]:
        cell = cells.below[cell]
    return cell


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _newest_of(tables, state, events, top, slot, place, begins, oldest):
    """The youngest run that an event may follow, from a cell down its chain.

    What is called for every event is inlined: handing over all arrays costs more than the work itself.
    """
    if top < 0:
        return NEVER
    if not is_tested(tables, place, begins):
        return state.cells.reach[top]
    return _newest_tested(tables, state, events, top, slot, place, begins, oldest)


@njit(cache=True, nogil=True, _nrt=False)
def _newest_tested(tables, state, events, top, slot, place, begins, oldest):
    """The same where each event before must pass a test."""
    cells = state.cells
    newest = NEVER
    while top >= 0 and cells.reach[top] >= oldest and newest < cells.reach[top]:
        if cells.newest[top] > newest and may_follow(tables, state, events, top, slot, place, begins):
            newest = cells.newest[top]
        top = cells.below[top]
    return newest


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def is_tested(tables, place, begins):
    """Whether an edge into a place asks anything of the event before."""
    by_edge = tables.by_edge
    edge = tables.by_place[place, _BEGIN] if begins else tables.by_place[place, _TAKE]
    if by_edge[edge, _EDGE_TESTS] < by_edge[edge + 1, _EDGE_TESTS]:
        return True
    if not begins or place == 0 or tables.by_place[place - 1, _KLEENE] == 0:
        return False
    proceed = tables.by_place[place - 1, _PROCEED]
    return by_edge[proceed, _EDGE_TESTS] < by_edge[proceed + 1, _EDGE_TESTS]


@njit(cache=True, nogil=True, _nrt=False)
def may_follow(tables, state, events, cell, slot, place, begins):
    """Whether an event may come next after a cell."""
    if begins and not state.cells.proceeds[cell]:
        return False
    edges = tables.by_place
    edge = edges[place, _BEGIN] if begins else edges[place, _TAKE]
    state.counters[_TESTS] += 1
    # All that a test may name beside this event is the event before it.
    _bind_all(tables, state, edge, state.cells.event[cell])
    state.bound[edges[place, _PLACE_FIRST] if begins else edges[place, _PLACE_CURRENT]] = slot
    return _tests_hold(tables, state, events, edge)


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _bind_all(tables, state, edge, slot):
    for load in range(tables.by_edge[edge, _EDGE_LOADS], tables.by_edge[edge + 1, _EDGE_LOADS]):
        state.bound[tables.loads[load, _TARGET]] = slot


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _edge_holds(tables, state, events, edge):
    if tables.by_edge[edge, _EDGE_TESTS] == tables.by_edge[edge + 1, _EDGE_TESTS]:
        return True
    return _tests_hold(tables, state, events, edge)


@njit(cache=True, nogil=True, _nrt=False)
def _tests_hold(tables, state, events, edge):
    for conjunct in range(tables.by_edge[edge, _EDGE_TESTS], tables.by_edge[edge + 1, _EDGE_TESTS]):
        if not holds(tables.predicates, events, state.bound, state.values, conjunct):
            return False
    return True


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _give_out(tables, state, events, root, slot, oldest, output, listed, cut):
    """Append a root, or all matches that it completes. The status; where it is not DONE, nothing was appended."""
    rows = output.found[0]
    slots = output.found[1]
    if listed:
        status = _list(tables, state, events, root, oldest, output, cut)
        if status != _DONE:
            output.found[0] = rows
            output.found[1] = slots
            return status
    elif rows == output.end.size:
        return _OUTPUT_FULL
    else:
        output.root[rows] = root
        output.found[0] = rows + 1
    for row in range(rows, output.found[0]):
        output.end[row] = events.end[slot]
        output.key[row] = events.key[slot]
        output.oldest[row] = oldest
    state.counters[_AT_MOMENT] += output.found[0] - rows
    state.counters[_MATCHES] += output.found[0] - rows
    return _DONE


@njit(cache=True, nogil=True, _nrt=False)
def _list(tables, state, events, root, oldest, output, cut):
    """Write out every path from a cell back to a start within the window. No step leads into a dead end.

    Where there is no room the rest is walked and counted only: there may be more than a limit allows, and then they
    never need room.
    """
    cells = state.cells
    path = state.path
    cursor = state.cursor
    phase = state.phase
    rows = output.found[0]
    slots = output.found[1]
    rows_max = rows + tables.max_matches_per_moment - state.counters[_AT_MOMENT]
    slots_max = slots + EVENTS_MAX
    has_room = True
    depth = 0
    path[0] = root
    phase[0] = _OPEN
    while depth >= 0:
        cell = path[depth]
        if phase[depth] == _OPEN:
            if cells.begin[cell] == _STARTS and _since(tables, events, cells.event[cell]) >= oldest:
                if rows == rows_max or slots + depth + 1 > slots_max:
                    if cut:
                        break
                    return _MATCH_LIMIT if rows == rows_max else _LENGTH_LIMIT
                rows += 1
                slots += depth + 1
                has_room = has_room and rows <= output.end.size and slots <= output.slots.size
                if has_room:
                    _write(cells, path, depth, output)
            phase[depth] = _TAKEN_FROM
            cursor[depth] = cells.take[cell]
        begins = phase[depth] == _BEGUN_FROM
        tested = is_tested(tables, cells.place[cell], begins)
        candidate = cursor[depth]
        while (
            candidate >= 0
            and cells.reach[candidate] >= oldest
            and (
                cells.newest[candidate] < oldest
                or (
                    tested
                    and not may_follow(tables, state, events, candidate, cells.event[cell], cells.place[cell], begins)
                )
            )
        ):
            candidate = cells.below[candidate]
        if candidate >= 0 and cells.reach[candidate] >= oldest:
            cursor[depth] = cells.below[candidate]
            depth += 1
            path[depth] = candidate
            phase[depth] = _OPEN
        elif begins:
            depth -= 1
        else:
            phase[depth] = _BEGUN_FROM
            cursor[depth] = max(cells.begin[cell], -1)
    output.found[2] = rows
    output.found[3] = slots
    return _DONE if has_room else _OUTPUT_FULL


@njit(cache=True, nogil=True, _nrt=False)
def _since(tables, events, slot):
    return events.position[slot] if tables.in_events else events.start[slot]


@njit(cache=True, nogil=True, _nrt=False)
def _write(cells, path, depth, output):
    row = output.found[0]
    entry = output.found[1]
    for place in range(output.lengths.shape[1]):
        output.lengths[row, place] = 0
    for back in range(depth, -1, -1):
        output.slots[entry] = cells.event[path[back]]
        output.lengths[row, cells.place[path[back]]] += 1
        entry += 1
    output.found[0] = row + 1
    output.found[1] = entry
