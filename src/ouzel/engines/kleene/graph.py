"""Kleene closure under skip_till_any_match. One graph of cells holds all partial matches, in place of a run for each
choice. The kernel also applies the forms of output to that graph.

The cost of an event does not depend on the number of its matches. An event becomes one cell for each place that it may
fill, linked to the chains of cells that it may follow. Predicates between neighbours, such as v[i] and v[i-1], are
tested along the chain (GRETA's edges between events); predicates that compare more than two events of a match need
runs.

A form of output chooses a few of the matches of a timestamp. There may be exponentially many, so the kernel does not
list them. It goes from the newest cell to the oldest, and links each cell to the next cell of its first continuation,
in the order of docs/semantics.md, "Output": smaller positions first, then smaller component numbers. The continuations
of a cell do not depend on the cells before it, so these links give the first match from each start.

Indexes are converted to unsigned integers, because for signed ones numba checks whether they count from the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.kleene.graph_paths import Row
from ouzel.engines.kleene.graph_state import (
    STARTS,
    GraphCounter,
    GraphOutput,
    GraphState,
    bind_all,
    cells_per_event,
    compares,
    earliest_end,
    edge_holds,
    is_tested,
    larger_graph_output,
    may_follow,
    reserve_cells,
)
from ouzel.engines.kleene.state import MANY, Status
from ouzel.engines.kleene.tables import ByPlace, Form, RunEvents, RunTables
from ouzel.kernels.events import NEVER, oldest_alive, push_negative
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces

_STARTS = np.int32(STARTS)

# Special values instead of the next cell.
_NONE = np.int32(-1)
_ENDS = np.int32(-2)


@helper(inline=True)
def choose_in_graph(tables, state, events, output, points):
    """Append the matches of the current timestamp that the form of output chooses. Returns the status; after
    OUTPUT_FULL, call again for the rest.

    `points`: every event starts and ends at one time.
    """
    counters = state.counters
    while counters[GraphCounter.COMPLETED] > 0:
        key = state.completed[counters[GraphCounter.COMPLETED] - 1]
        status = _choose(tables, state, events, key, output, points)
        if status != Status.DONE:
            return status
        state.is_completed[key] = 0
        counters[GraphCounter.COMPLETED] -= 1
    return Status.DONE


@helper(inline=True)
def _choose(tables, state, events, key, output, points):
    """Append the matches of a key that the form of output chooses."""
    cells = state.cells
    now = state.counters[GraphCounter.LAST_TIMESTAMP]
    oldest = oldest_alive(now, tables.window)
    mark = state.key_mark[key]
    if tables.form <= Form.FIRST:
        oldest = max(oldest, mark + 1)
    elif points and mark >= tables.reserved:
        oldest = max(oldest, events.start[mark])
    count, waiting = _find_best(tables, state, events, key, oldest)
    # Of the cells of one event, the one with the first match.
    starts = np.uint64(0)
    before = _NONE
    for number in range(count):
        cell = state.starts[number]
        if before >= 0 and cells.event[np.uint32(before)] == cells.event[np.uint32(cell)]:
            if not _comes_before(tables.stage_place, cells, state.best, cell, before):
                continue
            starts -= np.uint64(1)
        state.starts[starts] = cell
        before = cell
        starts += np.uint64(1)
    # They were found from the newest on. Only events that last can have another order by start.
    if not points:
        _sort_by_start(state.starts, state.newer[0], np.int64(starts), events.start, cells.event)
    while starts > 0:
        starts -= np.uint64(1)
        cell = np.uint32(state.starts[starts])
        slot = np.uint32(cells.event[cell])
        if tables.form == Form.NON_OVERLAPPING:
            passes = events.start[slot] > state.key_mark[key]
        elif tables.form == Form.FIRST:
            passes = state.started[slot] == 0
        else:
            passes = slot >= state.key_mark[key]
        if not passes:
            continue
        if state.counters[GraphCounter.MATCHES_AT_TIMESTAMP] == tables.max_matches_per_timestamp:
            return Status.MATCH_LIMIT
        status, skip_to = _write_path(tables, state, cell, key, output)
        if status != Status.DONE:
            return status
        state.counters[GraphCounter.MATCHES_AT_TIMESTAMP] += 1
        state.counters[GraphCounter.MATCHES] += 1
        if tables.form == Form.NON_OVERLAPPING:
            state.key_mark[key] = now
            break
        if tables.form == Form.FIRST:
            state.started[slot] = 1
        else:
            state.key_mark[key] = max(state.key_mark[key], skip_to)
    if tables.form == Form.FIRST and points:
        # No later event starts at or before this timestamp.
        state.key_mark[key] = max(state.key_mark[key], min(now, waiting - 1))
    return Status.DONE


@helper(inline=True)
def _find_best(tables, state, events, key, oldest):
    """(count, waiting): set `best` for each cell of a key, and fill `starts` with the `count` cells that begin a match
    of this timestamp, newest first. `waiting` is the earliest start among events that begin no match yet.
    """
    cells = state.cells
    stages = np.uint64(tables.stage_place.size)
    last_stage = np.uint32(tables.length - 1)
    base = np.uint64(key) * stages
    now = state.counters[GraphCounter.LAST_TIMESTAMP]
    waiting = np.int64(2**63 - 1)
    count = np.uint64(0)
    for stage in range(stages):
        state.top[stage] = state.head[base + stage]
        state.follower[0, stage] = _NONE
        state.follower[1, stage] = _NONE
    while True:
        newest = _NONE
        for stage in range(stages):
            top = state.top[stage]
            if top > newest and cells.reach[np.uint32(top)] >= oldest:
                newest = top
        if newest < 0:
            return count, waiting
        cell = np.uint32(newest)
        stage = np.uint32(cells.stage[cell])
        state.top[stage] = cells.below[cell]
        if cells.newest[cell] < oldest:
            continue
        slot = np.uint32(cells.event[cell])
        best = _NONE
        if events.end[slot] < now:
            best = _best_follower(tables, state, events, cell, stage)
        elif stage == last_stage and cells.proceeds[cell]:
            best = _ENDS
        is_start = cells.begin[cell] == _STARTS and events.start[slot] >= oldest
        if best == _NONE:
            if is_start:
                waiting = min(waiting, events.start[slot])
            continue
        state.best[cell] = best
        if is_start:
            state.starts[count] = newest
            count += np.uint64(1)
        for begins in range(2):
            top = cells.begin[cell] if begins else cells.take[cell]
            if top >= 0:
                edge = np.uint32(begins)
                before = np.uint32(cells.stage[np.uint32(top)])
                state.newer[edge, cell] = state.follower[edge, before]
                state.follower[edge, before] = newest


@helper(inline=True)
def _best_follower(tables, state, events, cell, stage):
    """The cell that comes next in the first continuation of a cell; -1 if there is none."""
    cells = state.cells
    place = np.uint32(tables.stage_place[stage])
    found = _NONE
    for begins in range(2):
        candidate = state.follower[np.uint32(begins), stage]
        if candidate < 0:
            continue
        target = np.uint32(place + begins)
        is_negated = begins and tables.by_place[target, ByPlace.NEGATED] != 0
        asked = compares(tables, target, begins != 0)
        # The oldest comes first.
        while candidate >= 0 and (found < 0 or cells.event[np.uint32(candidate)] <= cells.event[np.uint32(found)]):
            here = np.uint32(candidate)
            top = cells.begin[here] if begins else cells.take[here]
            slot = np.uint32(cells.event[here])
            if (
                top >= cell
                and (
                    not is_negated
                    or events.end[np.uint32(cells.event[cell])]
                    >= earliest_end(tables, state, events, slot, target, True)
                )
                and (not asked or may_follow(tables, state, events, cell, slot, target, begins != 0))
                and (found < 0 or _comes_before(tables.stage_place, cells, state.best, candidate, found))
            ):
                found = candidate
            candidate = state.newer[np.uint32(begins), here]
    return found


@helper
def _comes_before(stage_place, cells, best, left, right):
    """Whether the first continuation of one cell precedes that of another: by smaller positions, then by smaller
    component numbers.
    """
    order = np.int64(0)
    while left != right:
        if cells.event[left] != cells.event[right]:
            return cells.event[left] < cells.event[right]
        if order == 0:
            order = np.int64(stage_place[cells.stage[left]]) - stage_place[cells.stage[right]]
        # Matches of one timestamp with the same events so far end together.
        if best[left] == _ENDS or best[right] == _ENDS:
            break
        left = best[left]
        right = best[right]
    return order < 0


@helper
def _sort_by_start(starts, scratch, count, start, event):
    """Sort cells by the starts of their events, the latest first. The sort is stable."""
    width = 1
    while width < count:
        for begin in range(0, count, 2 * width):
            left = begin
            middle = min(begin + width, count)
            right = middle
            stop = min(begin + 2 * width, count)
            for place in range(begin, stop):
                if right == stop or (left < middle and start[event[starts[left]]] >= start[event[starts[right]]]):
                    scratch[place] = starts[left]
                    left += 1
                else:
                    scratch[place] = starts[right]
                    right += 1
        for place in range(count):
            starts[place] = scratch[place]
        width *= 2


@helper(inline=True)
def _write_path(tables, state, start, key, output):
    """(status, slot): append the first match that begins with a cell. `slot` holds the event that SKIP TO names; 0 for
    other forms of output. Unless the status is DONE, nothing is written.
    """
    cells = state.cells
    row = np.uint64(output.found[0])
    entry = np.uint64(output.found[1])
    length = np.uint64(1)
    cell = start
    while state.best[cell] != _ENDS:
        cell = np.uint32(state.best[cell])
        length += np.uint64(1)
    if entry + length > tables.max_events:
        return Status.LENGTH_LIMIT, np.int64(0)
    output.found[2] = row + np.uint64(1)
    output.found[3] = entry + length
    if row == output.end.size or entry + length > output.slots.size:
        return Status.OUTPUT_FULL, np.int64(0)
    for place in range(output.lengths.shape[1]):
        output.lengths[row, place] = 0
    skip_to = np.int64(0)
    cell = start
    while True:
        slot = cells.event[cell]
        place = np.uint32(tables.stage_place[np.uint32(cells.stage[cell])])
        output.slots[entry] = slot
        output.lengths[row, place] += 1
        entry += np.uint64(1)
        if place == tables.form_place and (tables.form != Form.SKIP_TO_FIRST or skip_to == 0):
            skip_to = np.int64(slot)
        if state.best[cell] == _ENDS:
            break
        cell = np.uint32(state.best[cell])
    output.end[row] = state.counters[GraphCounter.LAST_TIMESTAMP]
    output.key[row] = key
    output.found[0] = row + np.uint64(1)
    output.found[1] = entry
    return Status.DONE, skip_to


# What a step of the listing does next with the cell at its depth.
_OPEN = np.uint8(0)
_TAKEN_FROM = np.uint8(1)
_BEGUN_FROM = np.uint8(2)


class GraphProgress(NamedTuple):
    """Result of a call: its status, the next position to read, and the arrays, which may have grown."""

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
    on_many: Callable[[str], None] | None = None,
) -> GraphProgress:
    """Read the events in slots first to last - 1, and append the matches that they complete to the output. If not
    `listed`, append only the last cells of these matches. Before it lists a large number of matches of one event, it
    calls `on_many`.

    >>> from ouzel.engines.kleene.graph_state import new_graph_output, new_graph_state
    >>> from ouzel.engines.kleene.tables import RunPlace, build_run_tables, new_events
    >>> tables = build_run_tables([RunPlace(kleene=True), RunPlace()])
    >>> events = new_events(tables, 4)
    >>> events.end[1:] = 1, 2, 3
    >>> events.roles[1:] = 0b011, 0b011, 0b100
    >>> found = scan_graph(tables, new_graph_state(tables, 1), events, 1, 4, new_graph_output(tables)).output
    >>> found.lengths[: found.found[0]].tolist(), found.slots[: found.found[1]].tolist()
    ([[1, 1], [2, 1], [1, 1]], [2, 3, 1, 2, 3, 1, 3])
    """
    position = first
    points = events.start is events.end
    # A form of output chooses among all matches of a timestamp.
    pieces = Pieces(last, None if tables.form == Form.ALL else events.end)
    while True:
        end = pieces.end(position)
        status, position = _scan(tables, state, events, position, end, output, listed, points)
        if status == Status.NODES_FULL:
            state = reserve_cells(tables, state, 2 * state.cells.event.size + cells_per_event(tables))
        elif status == Status.OUTPUT_FULL:
            wanted = int(output.found[2]) - int(output.found[0])
            if wanted >= MANY and on_many is not None:
                on_many(f"{wanted:,} matches that end with one event")
            output = larger_graph_output(output)
        elif status != Status.DONE or position == last:
            return GraphProgress(Status(status), position, state, output)


@kernel
def _scan(
    tables: RunTables,
    state: GraphState,
    events: RunEvents,
    first: int,
    last: int,
    output: GraphOutput,
    listed: bool,
    points: bool,
):
    """(status, position): read events. If the status is not DONE, the event at `position` has had no effect."""
    counters = state.counters
    length = tables.length
    stages = tables.stage_place.size
    one = np.uint64(1)
    for slot in range(first, last + 1):
        at = np.uint64(slot)
        if counters[GraphCounter.COMPLETED] > 0 and (
            slot == last or events.end[at] != counters[GraphCounter.LAST_TIMESTAMP]
        ):
            # A timestamp is complete: the form of output chooses among its matches.
            status = choose_in_graph(tables, state, events, output, points)
            if status != Status.DONE:
                return status, slot
        if slot == last:
            break
        if counters[GraphCounter.CELLS] + 2 * stages > state.cells.event.size:
            return Status.NODES_FULL, slot
        now = events.end[at]
        if now != counters[GraphCounter.LAST_TIMESTAMP]:
            counters[GraphCounter.LAST_TIMESTAMP] = now
            counters[GraphCounter.MATCHES_AT_TIMESTAMP] = 0
        roles = events.roles[at]
        key = np.int64(events.key[at])
        measure = events.position[at] if tables.in_events else now
        oldest = oldest_alive(measure, tables.window)
        if tables.form == Form.NON_OVERLAPPING or tables.form == Form.FIRST:
            # An event that may no longer start a match makes no cells.
            oldest = max(oldest, state.key_mark[np.uint64(key)] + 1)
        cells_before = counters[GraphCounter.CELLS]
        for place in range(length):
            begins = (roles >> np.uint64(2 * place)) & one != 0
            takes = (roles >> np.uint64(2 * place + 1)) & one != 0
            if begins or takes:
                if tables.by_place[place, ByPlace.LAYER] < 0:
                    _add_cell(tables, state, events, slot, place, begins, takes, oldest, measure)
                else:
                    _add_layers(tables, state, events, slot, place, begins, takes, oldest, measure)
        if roles >> np.uint64(2 * length - 2) != 0:
            status = _complete(tables, state, events, cells_before, slot, oldest, output, listed)
            if status != Status.DONE:
                # The event is read again: its cells are already on top of their chains.
                while counters[GraphCounter.CELLS] > cells_before:
                    counters[GraphCounter.CELLS] -= 1
                    cell = counters[GraphCounter.CELLS]
                    state.head[key * stages + state.cells.stage[cell]] = state.cells.below[cell]
                return status, slot
        for negative in range(tables.negatives):
            if (roles >> np.uint64(2 * length + negative)) & one:
                stack = key * tables.negatives + negative
                push_negative(
                    events.start, state.negative_head, state.links[negative], state.marks[negative], stack, slot
                )
        counters[GraphCounter.EVENTS] += 1
    return Status.DONE, last


@helper(inline=True)
def _complete(tables, state, events, first, slot, oldest, output, listed):
    """Append the matches that end with the cells of an event. If the status is not DONE, nothing was appended."""
    counters = state.counters
    rows = output.found[0]
    slots = output.found[1]
    at_moment = counters[GraphCounter.MATCHES_AT_TIMESTAMP]
    matches = counters[GraphCounter.MATCHES]
    roots = 0
    for cell in range(first, counters[GraphCounter.CELLS]):
        here = np.uint64(cell)
        if state.cells.stage[here] != tables.length - 1 or not state.cells.proceeds[here]:
            continue
        roots += 1
        if tables.form != Form.ALL and tables.form != Form.LATEST:
            key = np.uint32(events.key[np.uint64(slot)])
            if not state.is_completed[key]:
                state.is_completed[key] = 1
                state.completed[counters[GraphCounter.COMPLETED]] = key
                counters[GraphCounter.COMPLETED] += 1
            continue
        # Of the matches of a last event LATEST needs those that start last.
        since = max(oldest, state.cells.newest[here]) if tables.form == Form.LATEST else oldest
        status = _give_out(tables, state, events, cell, slot, since, output, listed)
        if status != Status.DONE:
            counters[GraphCounter.MATCHES_AT_TIMESTAMP] = at_moment
            counters[GraphCounter.MATCHES] = matches
            output.found[0] = rows
            output.found[1] = slots
            return status
    counters[GraphCounter.ROOTS] += roots
    return Status.DONE


@helper
def _add_layers(tables, state, events, slot, place, begins, takes, oldest, measure):
    """Add the cells of an event at a place that has one stage for each number of events."""
    layer = tables.by_place[place, ByPlace.LAYER]
    base = np.int64(events.key[slot]) * tables.stage_place.size
    most = tables.by_place[place, ByPlace.MOST]
    edge = tables.by_place[place, ByPlace.PROCEED]
    for count in range(1, most + 1):
        begin = np.int32(-1)
        take = np.int32(-1)
        newest = NEVER
        if count == 1:
            if begins:
                begin, newest = _begun_from(tables, state, events, slot, place, oldest, measure)
        elif takes:
            take = _before(state.cells, events, state.head[base + layer + count - 2], slot)
            newest = _newest_of(tables, state, events, take, slot, place, False, oldest)
        if newest < oldest:
            continue
        bind_all(tables, state, events, edge, slot, count)
        if edge_holds(tables, state, events, edge):
            _push_cell(state, events, base, place, slot, begin, take, newest, True)
        if count < most:
            _push_cell(state, events, base, layer + count - 1, slot, begin, take, newest, False)


@helper(inline=True)
def _begun_from(tables, state, events, slot, place, oldest, measure):
    """(begin, newest): the newest cell that an event may follow when it begins a place, or STARTS, and the start of the
    youngest run that the event then belongs to.
    """
    edges = tables.by_place
    if place == 0:
        since = measure if tables.in_events else events.start[slot]
        state.bound[edges[0, ByPlace.FIRST]] = slot
        if since >= oldest and edge_holds(tables, state, events, edges[0, ByPlace.BEGIN]):
            return _STARTS, since
        return np.int32(-1), NEVER
    base = np.int64(events.key[slot]) * tables.stage_place.size
    top = _before(state.cells, events, state.head[base + place - 1], slot)
    return top, _newest_of(tables, state, events, top, slot, place, True, oldest)


@helper(inline=True)
def _add_cell(tables, state, events, slot, place, begins, takes, oldest, measure):
    """Add a cell for an event at a place with one stage."""
    cells = state.cells
    base = np.int64(events.key[slot]) * tables.stage_place.size
    edges = tables.by_place
    begin = np.int32(-1)
    take = np.int32(-1)
    newest = NEVER
    if begins:
        top, found = _begun_from(tables, state, events, slot, place, oldest, measure)
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
        return
    proceeds = True
    if edges[place, ByPlace.KLEENE]:
        edge = edges[place, ByPlace.PROCEED]
        bind_all(tables, state, events, edge, slot, 0)
        proceeds = edge_holds(tables, state, events, edge)
    _push_cell(state, events, base, place, slot, begin, take, newest, proceeds)


@helper(inline=True)
def _push_cell(state, events, base, stage, slot, begin, take, newest, proceeds):
    """Push a cell on the chain of its stage. The arrays must have room."""
    cells = state.cells
    chain = np.uint64(base + stage)
    made = np.uint64(state.counters[GraphCounter.CELLS])
    state.counters[GraphCounter.CELLS] += 1
    below = state.head[chain]
    earlier = below
    reach = newest
    if below >= 0:
        under = np.uint32(below)
        reach = max(newest, cells.reach[under])
        if events.end[np.uint32(cells.event[under])] == events.end[np.uint64(slot)]:
            earlier = cells.earlier[under]
    cells.event[made] = slot
    cells.stage[made] = stage
    cells.begin[made] = begin
    cells.take[made] = take
    cells.below[made] = below
    cells.earlier[made] = earlier
    cells.newest[made] = newest
    cells.reach[made] = reach
    cells.proceeds[made] = proceeds
    state.head[chain] = made


@helper(inline=True)
def _before(cells, events, cell, slot):
    """The newest cell whose event ends before another event starts, searched from `cell` down its chain."""
    start = events.start[np.uint64(slot)]
    while cell >= 0 and events.end[np.uint32(cells.event[np.uint32(cell)])] >= start:
        cell = cells.earlier[np.uint32(cell)]
    return cell


@helper(inline=True)
def _newest_of(tables, state, events, top, slot, place, begins, oldest):
    """The start of the youngest run that an event may continue, among the cells from `top` down their chain.

    Functions that run for every event are inlined: passing all arrays costs more than the work.
    """
    if top < 0:
        return NEVER
    if not is_tested(tables, place, begins):
        return state.cells.reach[top]
    if compares(tables, place, begins):
        return _newest_tested(tables, state, events, top, slot, place, begins, oldest)
    cells = state.cells
    newest = NEVER
    floor = earliest_end(tables, state, events, slot, place, begins)
    while newest < cells.reach[top] and _is_in_reach(cells, events, top, oldest, floor):
        newest = max(newest, cells.newest[top])
        top = cells.below[top]
        if top < 0:
            break
    return newest


@helper
def _newest_tested(tables, state, events, top, slot, place, begins, oldest):
    """Like `_newest_of`, for edges that test the event before."""
    cells = state.cells
    newest = NEVER
    floor = earliest_end(tables, state, events, slot, place, begins)
    while (
        top >= 0 and cells.reach[top] >= oldest and newest < cells.reach[top] and events.end[cells.event[top]] >= floor
    ):
        if cells.newest[top] > newest and may_follow(tables, state, events, top, slot, place, begins):
            newest = cells.newest[top]
        top = cells.below[top]
    return newest


@helper(inline=True)
def _give_out(tables, state, events, root, slot, oldest, output, listed):
    """Append a root, or list all matches that end with it. Returns the status; if it is not DONE, matches are
    missing.
    """
    rows = output.found[0]
    if listed:
        status = _list(tables, state, events, root, oldest, output)
        if status != Status.DONE:
            return status
    elif rows == output.end.size:
        return Status.OUTPUT_FULL
    else:
        output.root[rows] = root
        output.found[0] = rows + 1
    for row in range(rows, output.found[0]):
        output.end[row] = events.end[slot]
        output.key[row] = events.key[slot]
        output.oldest[row] = oldest
    state.counters[GraphCounter.MATCHES_AT_TIMESTAMP] += output.found[0] - rows
    state.counters[GraphCounter.MATCHES] += output.found[0] - rows
    return Status.DONE


@helper
def _list(tables, state, events, root, oldest, output):
    """List every path from a cell back to a start within the window. Every step is part of such a path.

    When the output is full, the remaining paths are only counted, because the caller enlarges the output only if their
    number is within the limits.
    """
    cells = state.cells
    path = state.path
    cursor = state.cursor
    phase = state.phase
    rows = output.found[0]
    slots = output.found[1]
    rows_max = rows + tables.max_matches_per_timestamp - state.counters[GraphCounter.MATCHES_AT_TIMESTAMP]
    slots_max = tables.max_events
    has_room = True
    depth = 0
    path[0] = root
    phase[0] = _OPEN
    while depth >= 0:
        cell = path[depth]
        if phase[depth] == _OPEN:
            if cells.begin[cell] == _STARTS and _since(tables, events, cells.event[cell]) >= oldest:
                if rows == rows_max or slots + depth + 1 > slots_max:
                    return Status.MATCH_LIMIT if rows == rows_max else Status.LENGTH_LIMIT
                rows += 1
                slots += depth + 1
                has_room = has_room and rows <= output.end.size and slots <= output.slots.size
                if has_room:
                    _write(tables.stage_place, cells, path, depth, output)
            phase[depth] = _TAKEN_FROM
            cursor[depth] = cells.take[cell]
            state.floor[depth] = NEVER
        begins = phase[depth] == _BEGUN_FROM
        place = tables.stage_place[cells.stage[cell]]
        asked = compares(tables, place, begins)
        floor = state.floor[depth]
        candidate = cursor[depth]
        while _is_in_reach(cells, events, candidate, oldest, floor) and (
            cells.newest[candidate] < oldest
            or (asked and not may_follow(tables, state, events, candidate, cells.event[cell], place, begins))
        ):
            candidate = cells.below[candidate]
        if _is_in_reach(cells, events, candidate, oldest, floor):
            cursor[depth] = cells.below[candidate]
            depth += 1
            path[depth] = candidate
            phase[depth] = _OPEN
        elif begins:
            depth -= 1
        else:
            phase[depth] = _BEGUN_FROM
            cursor[depth] = max(cells.begin[cell], -1)
            if cursor[depth] >= 0:
                state.floor[depth] = earliest_end(tables, state, events, cells.event[cell], place, True)
    output.found[2] = rows
    output.found[3] = slots
    return Status.DONE if has_room else Status.OUTPUT_FULL


@helper(inline=True)
def _is_in_reach(cells, events, cell, oldest, floor):
    return cell >= 0 and cells.reach[cell] >= oldest and events.end[cells.event[cell]] >= floor


@helper
def _since(tables, events, slot):
    return events.position[slot] if tables.in_events else events.start[slot]


@helper
def _write(stage_place, cells, path, depth, output):
    row = output.found[0]
    entry = output.found[1]
    for place in range(output.lengths.shape[1]):
        output.lengths[row, place] = 0
    for back in range(depth, -1, -1):
        output.slots[entry] = cells.event[path[back]]
        output.lengths[row, stage_place[cells.stage[path[back]]]] += 1
        entry += 1
    output.found[0] = row + 1
    output.found[1] = entry


@kernel(allocates=True)
def is_row_of(row: Row, events: int, is_kleene: NDArray[np.bool_]) -> bool:
    """Whether a row with this many events is a valid graph of matches of a pattern: every number refers to something,
    and every path back from a root leads from place to place to a start.

    >>> a, b = np.array([0, 1], np.int32), np.array([-1, -1], np.int32)
    >>> row = Row(a, a, np.array([STARTS, 0], np.int32), b, a[:1], b[:1], a[1:])
    >>> bool(is_row_of(row, 2, np.array([True, False]))), bool(is_row_of(row, 2, np.array([True])))
    (True, False)
    """
    places = is_kleene.size
    cells = row.cell_event.size
    links = row.link_cell.size
    for cell in range(cells):
        if not (0 <= row.cell_event[cell] < events and 0 <= row.cell_place[cell] < places):
            return False
    for link in range(links):
        cell, following = row.link_cell[link], row.link_next[link]
        if not (0 <= cell < cells and -1 <= following < links):
            return False
        if following >= 0 and row.cell_place[row.link_cell[following]] != row.cell_place[cell]:
            return False
    # Cells follow smaller ones, so that there is no cycle.
    largest = _largest_cells(row)
    if largest.size < links:
        return False
    for cell in range(cells):
        place, begin, take = row.cell_place[cell], row.cell_begin[cell], row.cell_take[cell]
        if not ((begin == _STARTS and place == 0) or -1 <= begin < links) or not -1 <= take < links:
            return False
        if begin >= 0 and (largest[begin] >= cell or row.cell_place[row.link_cell[begin]] != place - 1):
            return False
        if take >= 0 and not (is_kleene[place] and largest[take] < cell):
            return False
        if take >= 0 and row.cell_place[row.link_cell[take]] != place:
            return False
    roots_that_fit = 0
    for root in row.root_cell:
        roots_that_fit += 0 <= root < cells and row.cell_place[root] == places - 1
    return roots_that_fit == row.root_cell.size


@helper(allocates=True)
def _largest_cells(row):
    """For each link, the largest cell in its list from this link on. Undefined if the list never ends."""
    links = row.link_cell.size
    largest = np.full(links, -1, np.int32)
    passed = np.empty(links, np.int32)
    for first in range(links):
        depth = 0
        link = np.int32(first)
        while link >= 0 and largest[link] < 0:
            if depth == links:
                return np.empty(0, np.int32)
            passed[depth] = link
            depth += 1
            link = row.link_next[link]
        running = largest[link] if link >= 0 else np.int32(-1)
        while depth > 0:
            depth -= 1
            link = passed[depth]
            running = max(running, row.link_cell[link])
            largest[link] = running
    return largest
