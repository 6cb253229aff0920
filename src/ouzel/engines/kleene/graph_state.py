"""The cells and edges of the graph kernel: its state between calls, the matches or roots that it finds, and whether an
event may come directly after a cell.

A *cell* is an event at a place. The cells of a place and partition form a chain, newest first. A cell needs no list of
its predecessors, because these are the lower part of one chain, and a pointer to its top is enough. (CORE's enumerable
compact sets have union nodes for that; here the chain is the union.) `RunTables` describe the query, as for the run
kernel.

More exactly, a cell belongs to a *stage*. A place has one stage, with its own number. A place with at most m events
also has a stage for each number of events from 1 to m - 1. Cells in these stages can take more events; cells in the
place's own stage are those from which a run may leave the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.kleene.state import rebase_marks, rebase_negatives
from ouzel.engines.kleene.tables import ByEdge, ByLoad, ByNegative, ByPlace, Form, RunEvents, RunTables, Source
from ouzel.kernels.arrays import INT64_MIN, Cube, Matrix, Strided, enlarged
from ouzel.kernels.events import EVERY_KEY, NEVER, Link, Mark, newest_before, oldest_alive
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicate_tables import LaneFlag, Values, new_values
from ouzel.kernels.predicates import holds

# Instead of a chain: the cell begins the match.
STARTS = -2


class GraphCounter(IntEnum):
    """Indexes into `GraphState.counters`."""

    CELLS = 0
    LAST_TIMESTAMP = 1  # the tick of the latest matches
    MATCHES_AT_TIMESTAMP = 2  # how many there were at it
    EVENTS = 3  # read
    TESTS = 4  # predicates between neighbours
    ROOTS = 5  # cells that complete matches
    MATCHES = 6  # listed
    COMPLETED = 7  # keys whose matches at this timestamp wait for the form of output


class Cells(NamedTuple):
    """Cells in stream order: columns of one array of records, because most fields of a cell are read together."""

    event: Strided[np.int32]  # slot
    stage: Strided[np.uint16]
    proceeds: Strided[np.uint8]  # whether the proceed edge of its place holds here
    begin: Strided[np.int32]  # the newest cell of the previous place that it may follow; STARTS; or -1
    take: Strided[np.int32]  # the newest cell of its own place that it may follow, or -1
    below: Strided[np.int32]  # the next older cell of its chain
    newest: Strided[np.int64]  # start (or position) of the youngest run that ends here
    reach: Strided[np.int64]  # the largest `newest` from here down the chain
    earlier: Strided[np.int32]  # the next older cell of its chain whose event ends earlier


# Without gaps, so that a cell takes 40 bytes.
_RECORD = np.dtype(
    [
        ("newest", np.int64),
        ("reach", np.int64),
        ("event", np.int32),
        ("begin", np.int32),
        ("take", np.int32),
        ("below", np.int32),
        ("earlier", np.int32),
        ("stage", np.uint16),
        ("proceeds", np.uint8),
    ],
    align=True,
)


def _new_cells(count: int) -> Cells:
    records = np.zeros(count, _RECORD)
    return Cells(*(records[name] for name in Cells._fields))


class GraphState(NamedTuple):
    """The memory between calls: plain arrays."""

    cells: Cells
    head: NDArray[np.int32]  # [key * stages + stage]: the newest cell of that chain
    counters: NDArray[np.int64]  # by GraphCounter
    # As in `RunState`; for OUTPUT FIRST a mark is the start up to which all events have been used as a start.
    key_mark: NDArray[np.int64]
    started: NDArray[np.uint8]
    negative_head: NDArray[np.int32]
    links: Cube[np.int32]
    marks: Cube[np.int64]
    # Scratch; its content is only valid during a call.
    bound: NDArray[np.int32]  # per reference
    path: NDArray[np.int32]  # per depth: the cell
    cursor: NDArray[np.int32]  # per depth: the next candidate
    phase: NDArray[np.uint8]  # per depth
    floor: NDArray[np.int64]  # per depth: the earliest end of a candidate
    values: Values
    # For the forms of output.
    completed: NDArray[np.int32]  # keys
    is_completed: NDArray[np.uint8]  # per key
    best: NDArray[np.int32]  # per cell: the next one of its first continuation
    follower: Matrix[np.int32]  # [take or begin, stage]: the oldest cell that may follow one of that stage
    newer: Matrix[np.int32]  # [take or begin, cell]: the next newer one of these
    starts: NDArray[np.int32]  # cells that begin matches
    top: NDArray[np.int32]  # per stage: the next cell


def new_graph_state(
    tables: RunTables, references: int, key_capacity: int = 1, *, number_slots: Sequence[int] = ()
) -> GraphState:
    """The state before the first event. For `number_slots` see `new_run_state`."""
    empty = np.empty(0, np.int32)
    stages = len(tables.stage_place)
    bound = np.zeros(max(references, 1), np.int32)
    for reference, slot in enumerate(number_slots):
        bound[reference] = max(slot, 0)
    counters = np.zeros(len(GraphCounter), np.int64)
    counters[GraphCounter.LAST_TIMESTAMP] = INT64_MIN
    state = GraphState(
        cells=_new_cells(0),
        head=empty,
        counters=counters,
        key_mark=np.empty(0, np.int64),
        started=np.empty(0, np.uint8),
        negative_head=empty,
        links=np.empty((tables.negatives, len(Link), 0), np.int32),
        marks=np.empty((tables.negatives, len(Mark), 0), np.int64),
        bound=bound,
        path=empty,
        cursor=empty,
        phase=np.empty(0, np.uint8),
        floor=np.empty(0, np.int64),
        values=new_values(tables.predicates),
        completed=empty,
        is_completed=np.empty(0, np.uint8),
        best=empty,
        follower=np.empty((2, stages), np.int32),
        newer=np.empty((2, 0), np.int32),
        starts=empty,
        top=np.empty(stages, np.int32),
    )
    return reserve_graph(tables, reserve_cells(tables, state, 256), 0, key_capacity)


def reserve_graph(tables: RunTables, state: GraphState, slots: int, keys: int) -> GraphState:
    """A state with room for at least this many slots and keys."""
    in_form = tables.form != Form.ALL
    return state._replace(
        head=enlarged(state.head, keys * len(tables.stage_place), -1),
        key_mark=enlarged(state.key_mark, keys if in_form else 0, INT64_MIN),
        started=enlarged(state.started, slots if tables.form == Form.FIRST else 0, 0),
        completed=enlarged(state.completed, keys if in_form else 0, 0),
        is_completed=enlarged(state.is_completed, keys if in_form else 0, 0),
        negative_head=enlarged(state.negative_head, keys * tables.negatives, -1),
        links=enlarged(state.links, slots, -1, axis=-1),
        marks=enlarged(state.marks, slots, 0, axis=-1),
    )


def cells_per_event(tables: RunTables) -> int:
    """The largest number of cells that one event may become: one for each stage, and at the last stage of a place one
    for each length.
    """
    return 2 * len(tables.stage_place)


def reserve_cells(tables: RunTables, state: GraphState, count: int) -> GraphState:
    """A state with room for at least this many cells."""
    if len(state.cells.event) >= count:
        return state
    cells = _new_cells(count)
    for name in Cells._fields:
        old = getattr(state.cells, name)
        getattr(cells, name)[: len(old)] = old
    return state._replace(
        cells=cells,
        path=np.empty(count + 1, np.int32),
        cursor=np.empty(count + 1, np.int32),
        phase=np.empty(count + 1, np.uint8),
        floor=np.empty(count + 1, np.int64),
        best=np.empty(count if tables.form != Form.ALL else 0, np.int32),
        newer=np.empty((2, count if tables.form != Form.ALL else 0), np.int32),
        starts=np.empty(count if tables.form != Form.ALL else 0, np.int32),
    )


class GraphOutput(NamedTuple):
    """Matches as slots of events or, with OUTPUT COMPRESSED, only the last cells of matches.

    `found[0]` counts the rows, `found[1]` the slots in use; `found[2]` and `found[3]` are the numbers with enough room.
    """

    end: NDArray[np.int64]  # per row
    key: NDArray[np.int32]  # per row
    root: NDArray[np.int32]  # per row: the cell that completes it
    oldest: NDArray[np.int64]  # per row: the earliest start (or position) within the window
    lengths: Matrix[np.int32]  # [row, place]
    slots: NDArray[np.int32]  # of all matches, concatenated
    found: NDArray[np.int64]


def new_graph_output(tables: RunTables, rows: int = 1024, slots: int = 8192) -> GraphOutput:
    return GraphOutput(
        np.empty(rows, np.int64),
        np.empty(rows, np.int32),
        np.empty(rows, np.int32),
        np.empty(rows, np.int64),
        np.zeros((rows, tables.length), np.int32),
        np.empty(slots, np.int32),
        np.zeros(4, np.int64),
    )


def larger_graph_output(output: GraphOutput) -> GraphOutput:
    """The same output with twice the capacity, or with as much as is known to be needed."""
    rows = max(2 * len(output.end), int(output.found[2]))
    slots = max(2 * len(output.slots), int(output.found[3]))
    return GraphOutput(
        enlarged(output.end, rows, 0),
        enlarged(output.key, rows, 0),
        enlarged(output.root, rows, 0),
        enlarged(output.oldest, rows, 0),
        enlarged(output.lengths, rows, 0),
        enlarged(output.slots, slots, 0),
        output.found,
    )


@kernel(allocates=True)
def drop_expired(
    tables: RunTables,
    state: GraphState,
    events: RunEvents,
    position_counts: NDArray[np.int64],
    needed: NDArray[np.bool_],
):
    """For windows in events: drop the cells that can be in no future match, and mark the slots of the others in
    `needed`. A cell is dropped if it is outside the window of the next event of its key, which has position
    `position_counts[key]`.
    """
    cells = state.cells
    count = state.counters[GraphCounter.CELLS]
    renamed = np.empty(count, np.int32)
    live = 0
    for cell in range(count):
        slot = cells.event[cell]
        # A cell below comes earlier, so it already has its new number; it replaces a dropped cell.
        below = renamed[cells.below[cell]] if cells.below[cell] >= 0 else np.int32(-1)
        if cells.newest[cell] < oldest_alive(position_counts[events.key[slot]], tables.window):
            renamed[cell] = below
            continue
        begin = cells.begin[cell]
        take = cells.take[cell]
        needed[slot] = True
        cells.event[live] = slot
        cells.stage[live] = cells.stage[cell]
        cells.proceeds[live] = cells.proceeds[cell]
        cells.begin[live] = renamed[begin] if begin >= 0 else begin
        cells.take[live] = renamed[take] if take >= 0 else take
        cells.below[live] = below
        cells.earlier[live] = renamed[cells.earlier[cell]] if cells.earlier[cell] >= 0 else np.int32(-1)
        cells.newest[live] = cells.newest[cell]
        cells.reach[live] = cells.reach[cell]
        renamed[cell] = live
        live += 1
    state.counters[GraphCounter.CELLS] = live
    for chain in range(state.head.size):
        if state.head[chain] >= 0:
            state.head[chain] = renamed[state.head[chain]]


@kernel(allocates=True)
def renumber_cells(state: GraphState, renamed: NDArray[np.int32]):
    """Give the slots of cells their new numbers, `renamed[slot]`."""
    for cell in range(state.counters[GraphCounter.CELLS]):
        state.cells.event[cell] = renamed[state.cells.event[cell]]


@kernel
def drop_cells(tables: RunTables, state: GraphState, dead: int, used: int):
    """Drop the cells of the `dead` oldest slots, which follow the kernel's own slots. The other slots, out of `used`
    ones, have moved down by `dead`.
    """
    cells = state.cells
    count = state.counters[GraphCounter.CELLS]
    first = 0
    while first < count and cells.event[first] < tables.reserved + dead:
        first += 1
    for cell in range(count - first):
        cells.event[cell] = cells.event[cell + first] - dead
        cells.stage[cell] = cells.stage[cell + first]
        cells.proceeds[cell] = cells.proceeds[cell + first]
        begin = cells.begin[cell + first]
        cells.begin[cell] = max(begin - first, -1) if begin >= 0 else begin
        cells.take[cell] = max(cells.take[cell + first] - first, -1)
        cells.below[cell] = max(cells.below[cell + first] - first, -1)
        cells.earlier[cell] = max(cells.earlier[cell + first] - first, -1)
        cells.newest[cell] = cells.newest[cell + first]
        cells.reach[cell] = cells.reach[cell + first]
    state.counters[GraphCounter.CELLS] = count - first
    for chain in range(state.head.size):
        state.head[chain] = max(state.head[chain] - first, -1)
    rebase_marks(tables, state.key_mark, state.started, dead, used)
    rebase_negatives(tables, state.negative_head, state.links, state.marks, dead, used)


@kernel
def rekey_chains(tables: RunTables, state: GraphState, renamed: NDArray[np.int32]):
    """Move chains, marks and negative events to new keys. `renamed[key]` is at most `key`; -1 drops the key."""
    stages = tables.stage_place.size
    negatives = tables.negatives
    for key in range(min(state.head.size // stages, renamed.size)):
        target = np.int64(renamed[key])
        if target == key:
            continue
        for stage in range(stages):
            if target >= 0:
                state.head[target * stages + stage] = state.head[key * stages + stage]
            state.head[key * stages + stage] = -1
        for negative in range(negatives):
            if target >= 0:
                state.negative_head[target * negatives + negative] = state.negative_head[key * negatives + negative]
            state.negative_head[key * negatives + negative] = -1
        if state.key_mark.size > 0:
            if target >= 0:
                state.key_mark[target] = state.key_mark[key]
            state.key_mark[key] = NEVER


_VALUE = np.uint8(LaneFlag.VALUE)
_EVERY_KEY = EVERY_KEY


@helper(inline=True)
def is_tested(tables, place, begins):
    """Whether an edge into a place compares the event with the one before it, so that it may follow only some cells."""
    return (begins and tables.by_place[place, ByPlace.NEGATED] != 0) or compares(tables, place, begins)


@helper(inline=True)
def compares(tables, place, begins):
    """Whether `earliest_end` alone does not decide which cells an event may follow, so that each needs `may_follow`."""
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
    """The earliest end of a cell such that no negative event is between it and an event.

    Only for negative components that no condition compares with other events.
    """
    floor = NEVER
    if not begins or not tables.by_place[place, ByPlace.NEGATED]:
        return floor
    for negative in range(tables.negatives):
        edge = tables.by_negative[negative, ByNegative.EDGE]
        if tables.by_negative[negative, ByNegative.BEFORE] != place or (
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
    """Whether some negative event between a cell and an event satisfies all conditions on that negative component."""
    behind = events.end[state.cells.event[cell]]
    for negative in range(tables.negatives):
        edge = tables.by_negative[negative, ByNegative.EDGE]
        if (
            tables.by_negative[negative, ByNegative.BEFORE] != place
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
    """Set the references of a proceed edge: the event, and the number of events at its place."""
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
