"""The forms of output on the graph: of all matches of a moment only those that come out are written.

There may be exponentially many matches, and a form wants few. So none is listed. From the newest cell down, each cell
learns which cell comes next on the first match that goes on from it, in the order of docs/semantics.md, "Output":
that of the smallest position, and where one event may fill several places, the first one of what goes on from there.
What comes after a cell does not depend on what came before it, so the first match that starts with an event follows
from that.
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

# In place of the next cell.
_NONE = np.int32(-1)
_ENDS = np.int32(-2)


@helper(inline=True)
def settle_graph(tables, state, events, output, points):
    """Append the matches of the moment that come out. The status; where it is OUTPUT_FULL, ask again for the rest.

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
    """Append the matches of a key that come out."""
    cells = state.cells
    now = state.counters[GraphCounter.MOMENT]
    oldest = oldest_alive(now, tables.window)
    mark = state.key_mark[key]
    if tables.form <= Form.FIRST:
        oldest = max(oldest, mark + 1)
    elif points and mark >= tables.reserved:
        oldest = max(oldest, events.start[mark])
    count, waiting = _find_best(tables, state, events, key, oldest)
    # Of the cells of one event the one with the first match.
    starts = 0
    for number in range(count):
        cell = state.starts[number]
        before = state.starts[starts - 1] if starts > 0 else _NONE
        if before >= 0 and cells.event[before] == cells.event[cell]:
            if _comes_before(tables.stage_place, cells, state.best, cell, before):
                state.starts[starts - 1] = cell
        else:
            state.starts[starts] = cell
            starts += 1
    # They were found from the newest on. Only events that last are in another order by their start.
    if not points:
        _sort_by_start(state.starts, state.newer[0], starts, events.start, cells.event)
    while starts > 0:
        starts -= 1
        cell = state.starts[starts]
        slot = cells.event[cell]
        if tables.form == Form.NON_OVERLAPPING:
            passes = events.start[slot] > state.key_mark[key]
        elif tables.form == Form.FIRST:
            passes = state.started[slot] == 0
        else:
            passes = slot >= state.key_mark[key]
        if not passes:
            continue
        if state.counters[GraphCounter.AT_MOMENT] == tables.max_matches_per_moment:
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
        # Nothing that is still to come starts at or before this moment.
        state.key_mark[key] = max(state.key_mark[key], min(now, waiting - 1))
    return Status.DONE


@helper(inline=True)
def _find_best(tables, state, events, key, oldest):
    """(count, waiting): fill `best` for the cells of a key, and `starts` with so many that begin a match of this
    moment, the newest first. `waiting` is the earliest start of an event that begins none yet."""
    cells = state.cells
    stages = tables.stage_place.size
    base = np.int64(key) * stages
    now = state.counters[GraphCounter.MOMENT]
    waiting = np.int64(2**63 - 1)
    count = 0
    for stage in range(stages):
        state.top[stage] = state.head[base + stage]
        state.follower[0, stage] = _NONE
        state.follower[1, stage] = _NONE
    while True:
        cell = _NONE
        for stage in range(stages):
            top = state.top[stage]
            if top > cell and cells.reach[top] >= oldest:
                cell = top
        if cell < 0:
            return count, waiting
        stage = np.int64(cells.stage[cell])
        state.top[stage] = cells.below[cell]
        if cells.newest[cell] < oldest:
            continue
        slot = cells.event[cell]
        best = _NONE
        if events.end[slot] < now:
            best = _best_follower(tables, state, events, cell, stage)
        elif stage == tables.length - 1 and cells.proceeds[cell]:
            best = _ENDS
        is_start = cells.begin[cell] == _STARTS and events.start[slot] >= oldest
        if best == _NONE:
            if is_start:
                waiting = min(waiting, events.start[slot])
            continue
        state.best[cell] = best
        if is_start:
            state.starts[count] = cell
            count += 1
        for begins in range(2):
            top = cells.begin[cell] if begins else cells.take[cell]
            if top >= 0:
                before = cells.stage[top]
                state.newer[begins, cell] = state.follower[begins, before]
                state.follower[begins, before] = cell


@helper(inline=True)
def _best_follower(tables, state, events, cell, stage):
    """The cell that comes next on the first match that goes on from a cell; -1: there is none."""
    cells = state.cells
    place = tables.stage_place[stage]
    found = _NONE
    for begins in range(2):
        target = place + begins
        follows = target < tables.length
        is_negated = begins and follows and tables.by_place[target, ByPlace.NEGATED] != 0
        asked = follows and compares(tables, target, begins != 0)
        candidate = state.follower[begins, stage]
        # The oldest comes first.
        while candidate >= 0 and (found < 0 or cells.event[candidate] <= cells.event[found]):
            top = cells.begin[candidate] if begins else cells.take[candidate]
            slot = cells.event[candidate]
            if (
                top >= cell
                and (
                    not is_negated
                    or events.end[cells.event[cell]] >= earliest_end(tables, state, events, slot, target, True)
                )
                and (not asked or may_follow(tables, state, events, cell, slot, target, begins != 0))
                and (found < 0 or _comes_before(tables.stage_place, cells, state.best, candidate, found))
            ):
                found = candidate
            candidate = state.newer[begins, candidate]
    return found


@helper
def _comes_before(stage_place, cells, best, left, right):
    """Whether the first match that goes on from one cell comes before that from another one: smaller positions, then
    smaller component numbers."""
    order = np.int64(0)
    while left != right:
        if cells.event[left] != cells.event[right]:
            return cells.event[left] < cells.event[right]
        if order == 0:
            order = np.int64(stage_place[cells.stage[left]]) - stage_place[cells.stage[right]]
        # Matches of one moment that have had the same events so far end together.
        if best[left] == _ENDS or best[right] == _ENDS:
            break
        left = best[left]
        right = best[right]
    return order < 0


@helper
def _sort_by_start(starts, scratch, count, start, event):
    """Put cells in the order of the starts of their events, the latest first; else they stay as they are."""
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
    row = output.found[0]
    entry = output.found[1]
    length = 1
    cell = start
    while state.best[cell] != _ENDS:
        cell = state.best[cell]
        length += 1
    if entry + length > tables.max_events:
        return Status.LENGTH_LIMIT, np.int64(0)
    output.found[2] = row + 1
    output.found[3] = entry + length
    if row == output.end.size or entry + length > output.slots.size:
        return Status.OUTPUT_FULL, np.int64(0)
    for place in range(output.lengths.shape[1]):
        output.lengths[row, place] = 0
    skip_to = np.int64(0)
    cell = start
    while True:
        slot = cells.event[cell]
        place = tables.stage_place[cells.stage[cell]]
        output.slots[entry] = slot
        output.lengths[row, place] += 1
        entry += 1
        if place == tables.form_place and (tables.form != Form.SKIP_TO_FIRST or skip_to == 0):
            skip_to = np.int64(slot)
        if state.best[cell] == _ENDS:
            break
        cell = state.best[cell]
    output.end[row] = state.counters[GraphCounter.MOMENT]
    output.key[row] = key
    output.found[0] = row + 1
    output.found[1] = entry
    return Status.DONE, skip_to
