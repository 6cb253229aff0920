"""One row of counters for each first event, as the A-Seq paper has it (SEM; by key, HPC).

Each event costs as many steps as its key has first events in the window. What the paper leaves out is here too: every
aggregate, Kleene plus, simultaneous events, a negated start, groups by an attribute of one component.

A *cell* is a block of rows: of a key, or of a key and a group where one component's events decide the group. If that
component is not the first, the key's first cell counts the prefixes before it and the rows of all its cells run in
step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ouzel.kernels.counters_columns import (
    add_rows,
    clear_reading,
    close,
    extend,
    measure_bound,
    needs_widening,
    raise_bound,
    weigh,
)
from ouzel.kernels.counters_report import complete, emit, next_moment, touch
from ouzel.kernels.counters_rows_cells import add_row, cell_of_group, fill_row, has_row, new_cell
from ouzel.kernels.counters_rows_state import Cell, RowState, widened, with_room
from ouzel.kernels.counters_tables import (
    NO_WINDOW,
    ByComponent,
    Counter,
    CounterInstances,
    CounterOutput,
    CounterTables,
    Kind,
    Phase,
    Status,
    larger_counter_output,
)
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces


class RowProgress(NamedTuple):
    state: RowState
    output: CounterOutput


def scan_rows(
    tables: CounterTables,
    state: RowState,
    instances: CounterInstances,
    first: int,
    last: int,
    until: int,
    output: CounterOutput,
    largest_weight: float = 1.0,
) -> RowProgress:
    """Read the instances in slots first to last - 1, none of them after `until`, and let time run on to there.

    `largest_weight` is the largest absolute value of an integer that is added up, 1 at least.

    >>> from ouzel.kernels.counters_rows_state import new_row_state
    >>> from ouzel.kernels.counters_tables import *
    >>> tables = build_counter_tables([False, False], window=10, way=Way.PER_START)
    >>> instances = new_counter_instances(3)
    >>> instances.tick[:] = 1, 2, 11
    >>> instances.component[:] = 0, 1, 1
    >>> found = scan_rows(tables, new_row_state(tables), instances, 0, 3, 11, new_counter_output(tables))
    >>> found.output.tick[: found.output.written[0]].tolist(), found.output.words[0].tolist()
    ([2], [1, 0])
    """
    position = first
    pieces = Pieces(last, instances.tick)
    while True:
        end = pieces.end(position)
        reached = until if end == last else instances.tick[end - 1]
        status, position = _scan(tables, state, instances, position, end, reached, largest_weight, output)
        if status == Status.DONE:
            if end == last:
                return RowProgress(state, output)
        elif status == Status.OUTPUT_FULL:
            output = larger_counter_output(output)
        elif status == Status.WIDEN:
            state = widened(tables, state)
        else:
            state = with_room(tables, state)


# ── The scan ───────────────────────────────────────────────────────────────────────────────────────


@helper
def read_group_of_rows(tables, state, group, reading_words, reading_reals):
    clear_reading(tables, reading_words, reading_reals)
    cell = state.groups.first_cell[group]
    while cell >= 0:
        row = state.cells[cell]
        add_rows(
            tables,
            state.words,
            state.reals,
            state.counters[Counter.WIDE],
            row[Cell.BASE],
            row[Cell.STRIDE],
            row[Cell.FIRST],
            row[Cell.LAST],
            reading_words,
            reading_reals,
        )
        cell = row[Cell.NEXT_OF_GROUP]


@helper
def _touch(tables, state, group):
    """Before a group changes."""
    place = touch(tables, state.groups, state.counters, group)
    if place >= 0:
        read_group_of_rows(tables, state, group, state.groups.before_words[place], state.groups.before_reals[place])


@kernel
def _scan(tables, state, instances, first, last, until, largest_weight, output):
    """(status, position). Everything about the instances at `position` is still to be done."""
    counters = state.counters
    tick = instances.tick
    position = first
    while True:
        if counters[Counter.PHASE] == Phase.EMIT:
            while True:
                group = emit(tables, state.groups, state.counters, state.scratch, output)
                if group == -1:
                    break
                if group == -2:
                    return Status.OUTPUT_FULL, position
                read_group_of_rows(tables, state, group, state.scratch.words, state.scratch.reals)
            counters[Counter.PHASE] = Phase.CHOOSE
        if counters[Counter.PHASE] == Phase.CHOOSE:
            leaving = counters[Counter.OLDEST] < counters[Counter.QUEUED]
            oldest_tick = state.queue_tick[counters[Counter.OLDEST]] if leaving else 0
            found, moment = next_moment(
                tables, position < last, tick[position] if position < last else 0, leaving, oldest_tick, until
            )
            if not found:
                break
            counters[Counter.MOMENT] = moment
            counters[Counter.PHASE] = Phase.WORK
            _expire(tables, state, moment, tables.on_change)
        moment = counters[Counter.MOMENT]
        while position < last and tick[position] == moment:
            status, behind = _apply(tables, state, instances, position, last, moment, largest_weight)
            if status != Status.DONE:
                return status, position
            counters[Counter.INSTANCES] += behind - position
            position = behind
        counters[Counter.PHASE] = Phase.EMIT
    if not tables.on_change and until < 2**63 - 1:
        _expire(tables, state, until, 0)
    return Status.DONE, position


@helper
def _expire(tables, state, moment, tell):
    """Let go of the rows whose first event has left the window."""
    counters = state.counters
    cells = state.cells
    while counters[Counter.OLDEST] < counters[Counter.QUEUED]:
        tick = state.queue_tick[counters[Counter.OLDEST]]
        if np.uint64(moment) - np.uint64(tick) < np.uint64(tables.window) or moment < tick:
            break
        cell = state.queue_cell[counters[Counter.OLDEST]]
        counters[Counter.OLDEST] += 1
        counters[Counter.EXPIRED] += 1
        in_step = tables.split > 1
        while cell >= 0:
            if tell and cells[cell, Cell.GROUP] >= 0:
                _touch(tables, state, cells[cell, Cell.GROUP])
            cells[cell, Cell.FIRST] += 1
            cell = cells[cell, Cell.NEXT_OF_KEY] if in_step else -1


@helper
def _apply(tables, state, instances, slot, last, moment, largest_weight):
    """(status, the slot behind) for the simultaneous instances of one component and key that begin at a slot."""
    component = instances.component[slot]
    key = instances.key[slot]
    row = tables.by_component[component]
    behind = slot + 1
    together = row[ByComponent.KLEENE] != 0
    while (
        together
        and behind < last
        and instances.tick[behind] == moment
        and instances.component[behind] == component
        and instances.key[behind] == key
    ):
        behind += 1
    if row[ByComponent.KIND] == Kind.NEGATED_START:
        state.last_negative[key] = moment
        return Status.DONE, behind
    if row[ByComponent.KIND] == Kind.NEGATIVE:
        if key > 0:
            _close_key(tables, state, key, row[ByComponent.OWN])
        else:
            for one in range(state.first_cell.size):
                _close_key(tables, state, one, row[ByComponent.OWN])
        return Status.DONE, behind
    if component == tables.first:
        return _begin(tables, state, instances, slot, behind, key, moment, largest_weight), behind
    return _lengthen(tables, state, instances, slot, behind, key, moment, largest_weight), behind


@helper
def _close_key(tables, state, key, column):
    cell = state.first_cell[key]
    is_first = True
    while cell >= 0:
        row = state.cells[cell]
        holds_it = tables.split <= 1 or (is_first == (column < tables.split))
        if holds_it:
            close(
                tables,
                state.words,
                state.reals,
                state.counters[Counter.WIDE],
                row[Cell.BASE],
                row[Cell.STRIDE],
                row[Cell.FIRST],
                row[Cell.LAST] - row[Cell.FIRST],
                column,
            )
        cell = row[Cell.NEXT_OF_KEY]
        is_first = False


@helper
def _may_count(tables, state, cell, component, times, largest_weight):
    """Whether narrow counters of a cell can take some events."""
    if state.counters[Counter.WIDE]:
        return True
    bound = state.bound[cell]
    if not needs_widening(raise_bound(tables, bound, component, times), largest_weight):
        return True
    row = state.cells[cell]
    rows = row[Cell.LAST] - row[Cell.FIRST]
    measure_bound(tables, state.words, row[Cell.BASE], row[Cell.STRIDE], row[Cell.FIRST], rows, bound)
    return not needs_widening(raise_bound(tables, bound, component, times), largest_weight)


@helper
def _released(tables, state, cell, moment):
    """How many of the oldest rows may complete matches."""
    row = state.cells[cell]
    if not tables.has_negated_start:
        return row[Cell.LAST] - row[Cell.FIRST]
    released = 0
    while row[Cell.FIRST] + released < row[Cell.LAST]:
        if state.row_release[row[Cell.BASE] + row[Cell.FIRST] + released] > moment:
            break
        released += 1
    return released


@helper
def _extend_cell(tables, state, source, cell, component, times, takes, moment):
    """Lengthen what a cell counts from the prefixes of another, or of its own; tell its group of matches."""
    from_row = state.cells[source]
    row = state.cells[cell]
    rows = row[Cell.LAST] - row[Cell.FIRST]
    own = tables.by_component[component, ByComponent.OWN]
    gate = tables.by_component[component, ByComponent.GATE]
    is_final = max(own, gate) == tables.final and row[Cell.GROUP] >= 0
    if is_final:
        _touch(tables, state, row[Cell.GROUP])
    # A negated start holds matches back; the gate between a + and a negation lets everything through.
    through = _released(tables, state, cell, moment) if gate == tables.final else rows
    grown = extend(
        tables,
        state.words,
        state.reals,
        state.counters[Counter.WIDE],
        from_row[Cell.BASE],
        from_row[Cell.STRIDE],
        from_row[Cell.FIRST],
        row[Cell.BASE],
        row[Cell.STRIDE],
        row[Cell.FIRST],
        rows,
        through,
        component,
        times,
        state.scratch,
        takes,
    )
    if is_final and grown:
        complete(state.groups, row[Cell.GROUP])


@helper
def _lengthen(tables, state, instances, slot, behind, key, moment, largest_weight):
    """Instances of a component that is not the first."""
    component = instances.component[slot]
    own = tables.by_component[component, ByComponent.OWN]
    head = state.first_cell[key]
    if head < 0 or (state.cells[head, Cell.FIRST] == state.cells[head, Cell.LAST] and tables.split != 1):
        return Status.DONE
    times = behind - slot
    weigh(tables, state.scratch, instances, slot, behind)
    if tables.split == own:
        # Not with +: each instance has its own group.
        group = instances.group[slot]
        cell = cell_of_group(state, head, group)
        if cell < 0:
            cell = new_cell(tables, state, key, group, state.cells[head, Cell.LAST] - state.cells[head, Cell.FIRST])
            if cell < 0:
                return Status.ROOM
        for column in range(own):
            state.bound[cell, column] = state.bound[head, column]
        state.cells[cell, Cell.TOUCHED] = moment
        if not _may_count(tables, state, cell, component, times, largest_weight):
            return Status.WIDEN
        _extend_cell(tables, state, head, cell, component, times, 0, moment)
        return Status.DONE
    cell = head if tables.split <= 1 or own < tables.split else state.cells[head, Cell.NEXT_OF_KEY]
    in_all = tables.split != 0 and own > tables.split
    checked = cell
    while checked >= 0:
        if not _may_count(tables, state, checked, component, times, largest_weight):
            return Status.WIDEN
        checked = state.cells[checked, Cell.NEXT_OF_KEY] if in_all else -1
    while cell >= 0:
        _extend_cell(tables, state, cell, cell, component, times, 1, moment)
        cell = state.cells[cell, Cell.NEXT_OF_KEY] if in_all else -1
    return Status.DONE


@helper
def _begin(tables, state, instances, slot, behind, key, moment, largest_weight):
    """Instances of the first component: each begins a row, those of one moment share it."""
    component = instances.component[slot]
    splits = tables.split == tables.by_component[component, ByComponent.OWN]
    # All that may be refused comes before anything is changed.
    for one in range(slot, behind):
        group = instances.group[one] if splits else (state.key_group[key] if tables.split == 0 else -1)
        cell = cell_of_group(state, state.first_cell[key], group)
        if cell < 0:
            cell = new_cell(tables, state, key, group, 0)
            if cell < 0:
                return Status.ROOM
        if not splits:
            break
    cell = state.first_cell[key]
    while cell >= 0:
        if not _may_count(tables, state, cell, component, behind - slot, largest_weight):
            return Status.WIDEN
        if not has_row(tables, state, cell):
            return Status.ROOM
        cell = state.cells[cell, Cell.NEXT_OF_KEY]
    if state.counters[Counter.QUEUED] + behind - slot > state.queue_tick.size:
        return Status.ROOM
    if tables.by_component[component, ByComponent.KLEENE]:
        weigh(tables, state.scratch, instances, slot, behind)
        cell = state.first_cell[key]
        while cell >= 0:
            _extend_cell(tables, state, cell, cell, component, behind - slot, 1, moment)
            cell = state.cells[cell, Cell.NEXT_OF_KEY]
    for one in range(slot, behind):
        group = instances.group[one] if splits else (state.key_group[key] if tables.split == 0 else -1)
        cell = cell_of_group(state, state.first_cell[key], group)
        if splits:
            weigh(tables, state.scratch, instances, one, one + 1)
            _push(tables, state, cell, component, 1, key, moment)
        else:
            weigh(tables, state.scratch, instances, slot, behind)
            _push(tables, state, cell, component, behind - slot, key, moment)
            break
    return Status.DONE


@helper
def _push(tables, state, cell, component, times, key, moment):
    """Put first events of one moment into a row."""
    counters = state.counters
    counters[Counter.STARTS] += times
    row = state.cells[cell]
    group = row[Cell.GROUP]
    own = tables.by_component[component, ByComponent.OWN]
    gate = tables.by_component[component, ByComponent.GATE]
    is_final = max(own, gate) == tables.final and group >= 0
    if is_final:
        _touch(tables, state, group)
    newest = row[Cell.LAST] - 1
    # Without a window all first events share a row.
    shared = newest >= row[Cell.FIRST] and (
        state.row_tick[row[Cell.BASE] + newest] == moment or tables.window == NO_WINDOW
    )
    if not shared:
        state.queue_tick[counters[Counter.QUEUED]] = moment
        state.queue_cell[counters[Counter.QUEUED]] = cell
        counters[Counter.QUEUED] += 1
        other = cell
        while other >= 0:
            add_row(tables, state, other, key, moment)
            other = state.cells[other, Cell.NEXT_OF_KEY] if tables.split > 1 else -1
        newest = row[Cell.LAST] - 1
    opened = True
    if tables.has_negated_start:
        opened = state.row_release[row[Cell.BASE] + newest] <= moment
    fill_row(tables, state, row, newest, own, times)
    if gate >= 0 and (opened or gate != tables.final):
        fill_row(tables, state, row, newest, gate, times)
    if is_final and opened:
        complete(state.groups, group)
