"""The forms of output on the graph: of all matches of a timestamp, only the chosen ones are written.

There may be exponentially many matches, and a form needs few, so they are not listed. From the newest cell down, the
kernel finds for each cell the next cell of its first continuation, in the order of docs/semantics.md, "Output": the
smallest position first and, if one event may fill several places, the place with the first continuation. What follows a
cell does not depend on what came before it, so these links give the first match from each start.

Numbers are made unsigned before they are used as an index: numba checks signed ones for counting from the end.
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.kleene.graph_edges import compares, earliest_end, may_follow
from ouzel.engines.kleene.graph_state import STARTS, GraphCounter
from ouzel.engines.kleene.state import Status
from ouzel.engines.kleene.tables import ByPlace, Form
from ouzel.kernels.jit import helper
from ouzel.kernels.windows import oldest_alive

_STARTS = np.int32(STARTS)

# Special values instead of the next cell.
_NONE = np.int32(-1)
_ENDS = np.int32(-2)


@helper(inline=True)
def settle_graph(tables, state, events, output, points):
    """Append the chosen matches of the timestamp. Returns the status; if it is OUTPUT_FULL, call again for the rest.

    `points`: no event lasts.
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
    """Append the chosen matches of a key."""
    cells = state.cells
    now = state.counters[GraphCounter.MOMENT]
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
        if state.counters[GraphCounter.AT_MOMENT] == tables.max_matches_per_timestamp:
            return Status.MATCH_LIMIT
        status, skip_to = _write_path(tables, state, cell, key, output)
        if status != Status.DONE:
            return status
        state.counters[GraphCounter.AT_MOMENT] += 1
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
    """(count, waiting): fill `best` for the cells of a key, and `starts` with the `count` cells that begin a match of
    this timestamp, newest first. `waiting` is the earliest start of an event that begins none yet."""
    cells = state.cells
    stages = np.uint64(tables.stage_place.size)
    last_stage = np.uint32(tables.length - 1)
    base = np.uint64(key) * stages
    now = state.counters[GraphCounter.MOMENT]
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
    """The next cell of the first continuation from a cell; -1: none."""
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
    """Whether the first continuation from one cell comes before that from another: smaller positions, then smaller
    component numbers."""
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
    """Order cells by the starts of their events, the latest first; equal ones keep their order."""
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
    """(status, slot): append the first match that begins with a cell. The slot is the one that SKIP TO names, or 0 for
    other forms. Nothing is written unless the status is DONE."""
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
    output.end[row] = state.counters[GraphCounter.MOMENT]
    output.key[row] = key
    output.found[0] = row + np.uint64(1)
    output.found[1] = entry
    return Status.DONE, skip_to
