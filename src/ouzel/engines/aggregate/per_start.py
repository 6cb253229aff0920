"""One row of counters for each first event, as in the A-Seq paper (SEM; by key, HPC).

An event takes as many steps as its key has first events in the window. This also covers what the paper leaves out:
every aggregate, Kleene plus, simultaneous events, a negated start, groups by an attribute of one component.

A *cell* is a block of rows: of a key, or of a key and a group if the events of one component decide the group. If that
component is not the first, the key's first cell counts the prefixes before it, and the rows of all its cells are
aligned.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.columns import (
    add_rows,
    clear_reading,
    close,
    extend,
    measure_bound,
    needs_widening,
    raise_bound,
    sign_extension,
    weigh,
)
from ouzel.engines.aggregate.matrix import complete, emit, next_moment, touch
from ouzel.engines.aggregate.tables import (
    NEVER,
    ByComponent,
    ByMeasure,
    Counter,
    CounterInstances,
    CounterOutput,
    CounterTables,
    Groups,
    Kind,
    MeasureKind,
    Phase,
    Scratch,
    Status,
    larger_counter_output,
    new_groups,
    new_scratch,
    reals_per_column,
    reserve_groups,
    words_per_column,
)
from ouzel.kernels.arrays import INT64_MAX, Matrix, enlarged
from ouzel.kernels.events import NO_WINDOW
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces


class Cell(IntEnum):
    """Columns of `RowState.cells`."""

    BASE = 0  # of its block, in rows
    STRIDE = 1  # rows in its block
    FIRST = 2  # the oldest row
    LAST = 3  # behind the newest row
    KEY = 4
    GROUP = 5  # -1 if it only counts prefixes
    NEXT_OF_KEY = 6
    NEXT_OF_GROUP = 7
    TOUCHED = 8  # the newest timestamp at which an event that decides the group joined it, if cells are aligned


class RowState(NamedTuple):
    """The memory between calls: plain arrays."""

    words: NDArray[np.uint64]
    reals: NDArray[np.float64]
    row_tick: NDArray[np.int64]  # per row of the arena
    row_release: NDArray[np.int64]  # with a negated start: from when on matches of the row count
    cells: Matrix[np.int64]  # [cell, Cell]
    bound: Matrix[np.float64]  # [cell, column], while counters are narrow
    first_cell: NDArray[np.int32]  # per key, -1 if it has none
    key_group: NDArray[np.int32]  # per key
    last_negative: NDArray[np.int64]  # per key, the newest event of a negated start
    queue_tick: NDArray[np.int64]  # rows in the order in which they leave
    queue_cell: NDArray[np.int32]
    cell_count: NDArray[np.int64]  # of length 1
    groups: Groups
    counters: NDArray[np.int64]
    scratch: Scratch

    def live_keys(self, since: int) -> NDArray[np.int64]:
        """The keys that have rows, or had an event of a negated start after the tick `since`."""
        cells = self.cells[: self.cell_count[0]]
        counted = cells[cells[:, Cell.LAST] > cells[:, Cell.FIRST], Cell.KEY]
        return np.union1d(counted, np.flatnonzero(self.last_negative > since))

    def live_groups(self, tables: CounterTables) -> NDArray[np.int64]:
        """The groups that are not empty."""
        cells = self.cells[: self.cell_count[0]]
        return np.unique(cells[_holds(tables, self) & (cells[:, Cell.GROUP] >= 0), Cell.GROUP])


def _holds(tables: CounterTables, state: RowState) -> NDArray[np.bool_]:
    """The cells with rows that may not be empty.

    Aligned cells have the rows of their key's first events. The event that decides their group extended rows of earlier
    events, and these have all left the window once it is that old.
    """
    cells = state.cells[: state.cell_count[0]]
    holds: NDArray[np.bool_] = cells[:, Cell.LAST] > cells[:, Cell.FIRST]
    if tables.split <= 1 or tables.window == NO_WINDOW:
        return holds
    now, touched = state.counters[Counter.MOMENT], cells[:, Cell.TOUCHED]
    with np.errstate(over="ignore"):
        old: NDArray[np.bool_] = (touched <= now) & (
            now.astype(np.uint64) - touched.astype(np.uint64) >= np.uint64(tables.window)
        )
    holds &= (cells[:, Cell.GROUP] < 0) | ~old
    return holds


def new_row_state(tables: CounterTables, keys: int = 1, groups: int = 1, rows: int = 64) -> RowState:
    """The state before the first event."""
    counters = np.zeros(len(Counter), np.int64)
    # A component with + may have many values in one match, which no bound on counts covers.
    kleene = tables.by_component[:, ByComponent.KLEENE].max() > 0
    counters[Counter.WIDE] = int(kleene and tables.integers > 0)
    wide = int(counters[Counter.WIDE])
    return RowState(
        np.zeros(rows * words_per_column(tables, wide) * tables.columns, np.uint64),
        np.zeros(rows * reals_per_column(tables, wide) * tables.columns, np.float64),
        np.zeros(rows, np.int64),
        np.zeros(rows if tables.has_negated_start else 1, np.int64),
        np.zeros((16, len(Cell)), np.int64),
        np.zeros((16, tables.columns), np.float64),
        np.full(keys, -1, np.int32),
        np.zeros(keys, np.int32),
        np.full(keys, NEVER, np.int64),
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int32),
        np.zeros(1, np.int64),
        new_groups(tables, groups),
        counters,
        new_scratch(tables),
    )


def reserve_rows(tables: CounterTables, state: RowState, keys: int, groups: int) -> RowState:
    """A state with room for at least this many keys and groups."""
    return state._replace(
        first_cell=enlarged(state.first_cell, keys),
        key_group=enlarged(state.key_group, keys, 0),
        last_negative=enlarged(state.last_negative, keys, NEVER),
        groups=reserve_groups(tables, state.groups, groups),
    )


def widened(tables: CounterTables, state: RowState) -> RowState:
    """The same counters in 128 bits, each with its count as a float."""
    assert not state.counters[Counter.WIDE]
    return _rebuilt(tables, state, len(state.row_tick), wide=1)


def with_room(tables: CounterTables, state: RowState) -> RowState:
    """Drop what is no longer needed, and make room for more rows, cells and queue entries."""
    cells = state.cells[: state.cell_count[0]][_holds(tables, state)]
    live = int((cells[:, Cell.LAST] - cells[:, Cell.FIRST]).sum())
    return _rebuilt(tables, state, 8 * live + 64, wide=int(state.counters[Counter.WIDE]))


def rekey_rows(
    tables: CounterTables,
    state: RowState,
    renamed: NDArray[np.int32],
    key_group: NDArray[np.int32],
    renamed_groups: NDArray[np.int32],
) -> RowState:
    """Keys and groups have new numbers; keys without one, except key 0, are dropped."""
    state = with_room(tables, state)
    used = state.cells[: state.cell_count[0]]
    used[:, Cell.KEY] = renamed[used[:, Cell.KEY]]
    grouped = used[:, Cell.GROUP] >= 0
    used[grouped, Cell.GROUP] = renamed_groups[used[grouped, Cell.GROUP]]
    keys = len(key_group)
    old = np.flatnonzero(renamed[: len(state.last_negative)] >= 0)
    last_negative = np.full(keys, NEVER, np.int64)
    last_negative[renamed[old]] = state.last_negative[old]
    first_cell = np.full(keys, -1, np.int32)
    heads = np.flatnonzero(state.first_cell >= 0)
    first_cell[renamed[heads]] = state.first_cell[heads]
    groups = new_groups(tables, max(1, len(renamed_groups)))
    _link_cells(state.cells, len(used), first_cell.copy(), groups.first_cell, np.arange(len(used)), first_cell)
    return state._replace(first_cell=first_cell, key_group=key_group.copy(), last_negative=last_negative, groups=groups)


def regroup_rows(tables: CounterTables, state: RowState, renamed_groups: NDArray[np.int32]) -> RowState:
    """Groups have new numbers; those without rows are dropped, and keys stay."""
    keys = np.arange(len(state.first_cell), dtype=np.int32)
    return rekey_rows(tables, state, keys, state.key_group, renamed_groups)


def _rebuilt(tables: CounterTables, state: RowState, rows: int, wide: int) -> RowState:
    """Live cells and rows only, in new arenas."""
    count = int(state.cell_count[0])
    cells = state.cells[:count]
    live = cells[:, Cell.LAST] - cells[:, Cell.FIRST]
    kept = np.flatnonzero(_holds(tables, state))
    number = np.full(count + 1, -1, np.int64)
    number[kept] = np.arange(len(kept))
    strides = np.maximum(4, 2 * live[kept])
    rows = max(rows, int(strides.sum()) + 64)
    new_cells = np.zeros((2 * len(kept) + 16, len(Cell)), np.int64)
    old_wide = int(state.counters[Counter.WIDE])
    words = np.zeros(rows * words_per_column(tables, wide) * tables.columns, np.uint64)
    reals = np.zeros(rows * reals_per_column(tables, wide) * tables.columns, np.float64)
    row_tick = np.zeros(rows, np.int64)
    row_release = np.zeros(rows if tables.has_negated_start else 1, np.int64)
    new_cells[: len(kept)] = cells[kept]
    new_cells[: len(kept), Cell.STRIDE] = strides
    new_cells[: len(kept), Cell.BASE] = np.cumsum(strides) - strides
    new_cells[: len(kept), Cell.FIRST] = 0
    new_cells[: len(kept), Cell.LAST] = live[kept]
    _copy_cells(tables, state, kept, new_cells, old_wide, wide, words, reals, row_tick, row_release)
    first_cell = np.full_like(state.first_cell, -1)
    group_cell = np.full_like(state.groups.first_cell, -1)
    _link_cells(new_cells, len(kept), first_cell, group_cell, number, state.first_cell)
    counters = state.counters
    oldest, queued = int(counters[Counter.OLDEST]), int(counters[Counter.QUEUED])
    waiting = queued - oldest
    room = max(2 * waiting + 64, rows)
    queue_tick, queue_cell = np.zeros(room, np.int64), np.zeros(room, np.int32)
    queue_tick[:waiting] = state.queue_tick[oldest:queued]
    queue_cell[:waiting] = number[state.queue_cell[oldest:queued]]
    counters[Counter.OLDEST], counters[Counter.QUEUED] = 0, waiting
    counters[Counter.USED] = int(strides.sum())
    counters[Counter.WIDE] = wide
    state.cell_count[0] = len(kept)
    bound = np.zeros((len(new_cells), tables.columns), np.float64)
    bound[: len(kept)] = state.bound[kept]
    return state._replace(
        words=words,
        reals=reals,
        row_tick=row_tick,
        row_release=row_release,
        cells=new_cells,
        bound=bound,
        first_cell=first_cell,
        queue_tick=queue_tick,
        queue_cell=queue_cell,
        groups=state.groups._replace(first_cell=group_cell),
    )


@kernel
def _copy_cells(
    tables: CounterTables,
    state: RowState,
    kept: NDArray[np.int64],
    new_cells: Matrix[np.int64],
    old_wide: int,
    wide: int,
    words: NDArray[np.uint64],
    reals: NDArray[np.float64],
    row_tick: NDArray[np.int64],
    row_release: NDArray[np.int64],
):
    columns = tables.columns
    word_fields = tables.word_fields
    old_words = word_fields + old_wide * (1 + tables.integers)
    new_words = word_fields + wide * (1 + tables.integers)
    old_reals = tables.real_fields + old_wide
    new_reals = tables.real_fields + wide
    for place in range(kept.size):
        old = state.cells[kept[place]]
        new = new_cells[place]
        live = old[Cell.LAST] - old[Cell.FIRST]
        for row in range(live):
            row_tick[new[Cell.BASE] + row] = state.row_tick[old[Cell.BASE] + old[Cell.FIRST] + row]
            if tables.has_negated_start:
                row_release[new[Cell.BASE] + row] = state.row_release[old[Cell.BASE] + old[Cell.FIRST] + row]
        for column in range(columns):
            for field in range(old_words):
                source = (
                    old[Cell.BASE] * old_words * columns
                    + (field * columns + column) * old[Cell.STRIDE]
                    + old[Cell.FIRST]
                )
                target = new[Cell.BASE] * new_words * columns + (field * columns + column) * new[Cell.STRIDE]
                for row in range(live):
                    words[target + row] = state.words[source + row]
            for field in range(old_reals):
                source = (
                    old[Cell.BASE] * old_reals * columns
                    + (field * columns + column) * old[Cell.STRIDE]
                    + old[Cell.FIRST]
                )
                target = new[Cell.BASE] * new_reals * columns + (field * columns + column) * new[Cell.STRIDE]
                for row in range(live):
                    reals[target + row] = state.reals[source + row]
            if wide and not old_wide:
                count = new[Cell.BASE] * new_words * columns + column * new[Cell.STRIDE]
                size = new[Cell.BASE] * new_reals * columns + (tables.real_fields * columns + column) * new[Cell.STRIDE]
                for row in range(live):
                    reals[size + row] = float(words[count + row])
                for measure in range(tables.by_measure.shape[0]):
                    if tables.by_measure[measure, ByMeasure.KIND] == MeasureKind.INTEGER:
                        low = tables.by_measure[measure, ByMeasure.FIELD] * columns * new[Cell.STRIDE]
                        high = tables.by_measure[measure, ByMeasure.HIGH_FIELD] * columns * new[Cell.STRIDE]
                        for row in range(live):
                            words[count + high + row] = sign_extension(words[count + low + row])


@kernel
def _link_cells(
    cells: Matrix[np.int64],
    count: int,
    first_cell: NDArray[np.int32],
    group_cell: NDArray[np.int32],
    number: NDArray[np.int64],
    old_first: NDArray[np.int32],
):
    """Lists of cells by key and by group. The first cell of a key stays its first."""
    for key in range(old_first.size):
        if old_first[key] >= 0:
            first_cell[key] = number[old_first[key]]
    for cell in range(count):
        cells[cell, Cell.NEXT_OF_KEY] = -1
        cells[cell, Cell.NEXT_OF_GROUP] = -1
    for cell in range(count):
        key = cells[cell, Cell.KEY]
        head = first_cell[key]
        if head < 0:
            first_cell[key] = cell
        elif head != cell:
            cells[cell, Cell.NEXT_OF_KEY] = cells[head, Cell.NEXT_OF_KEY]
            cells[head, Cell.NEXT_OF_KEY] = cell
        group = cells[cell, Cell.GROUP]
        if group >= 0:
            cells[cell, Cell.NEXT_OF_GROUP] = group_cell[group]
            group_cell[group] = cell


@helper
def cell_of_group(state, cell, group):
    """The cell of a group among those of a key, from one of them on; -1 if there is none."""
    while cell >= 0 and state.cells[cell, Cell.GROUP] != group:
        cell = state.cells[cell, Cell.NEXT_OF_KEY]
    return cell


@helper
def new_cell(tables, state, key, group, rows):
    """A cell of a key with empty rows, or -1 if there is no room."""
    stride = max(4, 2 * rows)
    cell = state.cell_count[0]
    base = state.counters[Counter.USED]
    if cell == state.cells.shape[0] or base + stride > state.row_tick.size:
        return -1
    state.cell_count[0] += 1
    state.counters[Counter.USED] = base + stride
    row = state.cells[cell]
    row[Cell.BASE] = base
    row[Cell.STRIDE] = stride
    row[Cell.FIRST] = 0
    row[Cell.LAST] = rows
    row[Cell.KEY] = key
    row[Cell.GROUP] = group
    row[Cell.NEXT_OF_KEY] = -1
    row[Cell.NEXT_OF_GROUP] = -1
    row[Cell.TOUCHED] = state.counters[Counter.MOMENT]
    for column in range(tables.columns):
        state.bound[cell, column] = 1.0
    head = state.first_cell[key]
    if head < 0:
        state.first_cell[key] = cell
    else:
        row[Cell.NEXT_OF_KEY] = state.cells[head, Cell.NEXT_OF_KEY]
        state.cells[head, Cell.NEXT_OF_KEY] = cell
        for one in range(rows):
            state.row_tick[base + one] = state.row_tick[
                state.cells[head, Cell.BASE] + state.cells[head, Cell.FIRST] + one
            ]
            if tables.has_negated_start:
                source = state.cells[head, Cell.BASE] + state.cells[head, Cell.FIRST] + one
                state.row_release[base + one] = state.row_release[source]
    if group >= 0:
        row[Cell.NEXT_OF_GROUP] = state.groups.first_cell[group]
        state.groups.first_cell[group] = cell
    for column in range(tables.columns):
        close(tables, state.words, state.reals, state.counters[Counter.WIDE], base, stride, 0, rows, column)
    return cell


@helper
def has_row(tables, state, cell):
    """Whether there is room for one more row, after moving rows within the arena if necessary."""
    row = state.cells[cell]
    if row[Cell.LAST] < row[Cell.STRIDE]:
        return True
    live = row[Cell.LAST] - row[Cell.FIRST]
    if row[Cell.FIRST] > 0 and 2 * live <= row[Cell.STRIDE]:
        _move(tables, state, row, row[Cell.BASE], row[Cell.STRIDE])
        return True
    stride = 2 * row[Cell.STRIDE]
    base = state.counters[Counter.USED]
    if base + stride > state.row_tick.size:
        return False
    state.counters[Counter.USED] = base + stride
    _move(tables, state, row, base, stride)
    return True


@helper
def _move(tables, state, row, base, stride):
    """Move the live rows of a cell to the front of a block, perhaps its own."""
    columns = tables.columns
    wide = state.counters[Counter.WIDE]
    word_width = tables.word_fields + wide * (1 + tables.integers)
    real_width = tables.real_fields + wide
    live = row[Cell.LAST] - row[Cell.FIRST]
    for field in range(word_width * columns):
        source = row[Cell.BASE] * word_width * columns + field * row[Cell.STRIDE] + row[Cell.FIRST]
        target = base * word_width * columns + field * stride
        for one in range(live):
            state.words[target + one] = state.words[source + one]
    for field in range(real_width * columns):
        source = row[Cell.BASE] * real_width * columns + field * row[Cell.STRIDE] + row[Cell.FIRST]
        target = base * real_width * columns + field * stride
        for one in range(live):
            state.reals[target + one] = state.reals[source + one]
    for one in range(live):
        state.row_tick[base + one] = state.row_tick[row[Cell.BASE] + row[Cell.FIRST] + one]
        if tables.has_negated_start:
            state.row_release[base + one] = state.row_release[row[Cell.BASE] + row[Cell.FIRST] + one]
    row[Cell.BASE] = base
    row[Cell.STRIDE] = stride
    row[Cell.FIRST] = 0
    row[Cell.LAST] = live


@helper
def add_row(tables, state, cell, key, moment):
    """Add an empty row for a first event; there must be room."""
    row = state.cells[cell]
    newest = row[Cell.LAST]
    row[Cell.LAST] += 1
    state.row_tick[row[Cell.BASE] + newest] = moment
    if tables.has_negated_start:
        guard = max(state.last_negative[key], state.last_negative[0])
        release = moment
        if guard > NEVER:
            release = guard + tables.window if guard <= INT64_MAX - tables.window else np.int64(INT64_MAX)
        state.row_release[row[Cell.BASE] + newest] = release
    for column in range(tables.columns):
        close(
            tables,
            state.words,
            state.reals,
            state.counters[Counter.WIDE],
            row[Cell.BASE],
            row[Cell.STRIDE],
            newest,
            1,
            column,
        )


@helper
def fill_row(tables, state, row, newest, column, times):
    """Add first events, whose weights are in scratch, to a column of a row."""
    columns = tables.columns
    wide = state.counters[Counter.WIDE]
    scratch = state.scratch
    stride = row[Cell.STRIDE]
    word_width = tables.word_fields + wide * (1 + tables.integers)
    real_width = tables.real_fields + wide
    word = row[Cell.BASE] * word_width * columns + column * stride + newest
    real = row[Cell.BASE] * real_width * columns + column * stride + newest
    field_stride = columns * stride
    state.words[word] += np.uint64(times)
    if wide:
        state.reals[real + tables.real_fields * field_stride] += times
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.COLUMN] != tables.by_component[tables.first, ByComponent.OWN]:
            continue
        kind = tables.by_measure[measure, ByMeasure.KIND]
        place = tables.by_measure[measure, ByMeasure.FIELD] * field_stride
        if kind == MeasureKind.FLOAT:
            state.reals[real + place] += scratch.real[measure]
        elif kind == MeasureKind.INTEGER:
            low = state.words[word + place] + scratch.low[measure]
            if wide:
                carry = np.uint64(low < scratch.low[measure])
                high = word + tables.by_measure[measure, ByMeasure.HIGH_FIELD] * field_stride
                state.words[high] += scratch.high[measure] + carry
            state.words[word + place] = low
        else:
            least = min(np.int64(state.words[word + place]), scratch.least[measure])
            state.words[word + place] = np.uint64(least)


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
    """Count a row per first event: read slots first to last - 1, none of them after `until`, and advance time to there.

    `largest_weight` is the largest absolute value of a summed integer, at least 1.

    >>> from ouzel.engines.aggregate.per_start import new_row_state
    >>> from ouzel.engines.aggregate.tables import *
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
    """Note the values of a group before it changes."""
    place = touch(tables, state.groups, state.counters, group)
    if place >= 0:
        read_group_of_rows(tables, state, group, state.groups.before_words[place], state.groups.before_reals[place])


@kernel
def _scan(
    tables: CounterTables,
    state: RowState,
    instances: CounterInstances,
    first: int,
    last: int,
    until: int,
    largest_weight: float,
    output: CounterOutput,
):
    """(status, position). The instances at `position` are not processed yet."""
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
    if not tables.on_change and until < INT64_MAX:
        _expire(tables, state, until, 0)
    return Status.DONE, position


@helper
def _expire(tables, state, moment, tell):
    """Remove the rows whose first event has left the window."""
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
    """(status, the slot after) for the simultaneous instances of one component and key that begin at a slot."""
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
    """The number of the oldest rows that may complete matches."""
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
    """Extend the counts of a cell from the prefixes of another one, or of its own; report matches to its group."""
    from_row = state.cells[source]
    row = state.cells[cell]
    rows = row[Cell.LAST] - row[Cell.FIRST]
    own = tables.by_component[component, ByComponent.OWN]
    gate = tables.by_component[component, ByComponent.GATE]
    is_final = max(own, gate) == tables.final and row[Cell.GROUP] >= 0
    if is_final:
        _touch(tables, state, row[Cell.GROUP])
    # A negated start holds matches back; the gate between a + and a negation does not.
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
    """Instances of the first component: each begins a row; those of one timestamp share it."""
    component = instances.component[slot]
    splits = tables.split == tables.by_component[component, ByComponent.OWN]
    # Everything that may be refused is checked before anything changes.
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
    """Put first events of one timestamp into a row."""
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
