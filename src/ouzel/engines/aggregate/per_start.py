"""One row of counters for each first event, as in the A-Seq paper (SEM; by key, HPC).

An event takes as many steps as its key has first events in the window. Beyond the paper, this handles every aggregate,
Kleene plus, simultaneous events, a negated start, and groups by an attribute of one component.

A *cell* is the block of rows of a key. If the events of one component decide the group, each key and group has a cell.
If that component is not the first one, the key has one more cell, which counts the prefixes before the component, and
the cells are *aligned*: a first event has the same row number in all cells of its key.
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
from ouzel.engines.aggregate.scan import Counters, alike, complete, has_left, scan, touch_group
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
    Scratch,
    Status,
    new_counters,
    new_groups,
    new_scratch,
    reals_per_column,
    reserve_groups,
    words_per_column,
)
from ouzel.kernels.arrays import INT64_MAX, Matrix, enlarged
from ouzel.kernels.events import NO_WINDOW
from ouzel.kernels.jit import helper, kernel


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
    """The state between calls: plain arrays."""

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


class RowCounters(Counters):
    """Counters with one row for each first event in the window."""

    state: RowState
    keeps_events = False

    def __init__(self, tables: CounterTables, rows: int = 64) -> None:
        counters = new_counters(tables)
        wide = int(counters[Counter.WIDE])
        state = RowState(
            words=np.zeros(rows * words_per_column(tables, wide) * tables.columns, np.uint64),
            reals=np.zeros(rows * reals_per_column(tables, wide) * tables.columns, np.float64),
            row_tick=np.zeros(rows, np.int64),
            row_release=np.zeros(rows if tables.has_negated_start else 1, np.int64),
            cells=np.zeros((16, len(Cell)), np.int64),
            bound=np.zeros((16, tables.columns), np.float64),
            first_cell=np.full(1, -1, np.int32),
            key_group=np.zeros(1, np.int32),
            last_negative=np.full(1, NEVER, np.int64),
            queue_tick=np.zeros(rows, np.int64),
            queue_cell=np.zeros(rows, np.int32),
            cell_count=np.zeros(1, np.int64),
            groups=new_groups(tables, 1),
            counters=counters,
            scratch=new_scratch(tables),
        )
        super().__init__(tables, state)

    def reserve(self, slots: int, key_group: NDArray[np.int32], groups: int) -> None:
        keys, state = len(key_group), self.state
        self.state = state._replace(
            first_cell=enlarged(state.first_cell, keys),
            key_group=enlarged(state.key_group, keys, 0),
            last_negative=enlarged(state.last_negative, keys, NEVER),
            groups=reserve_groups(self.tables, state.groups, groups),
        )
        self.state.key_group[:keys] = key_group

    def _scan(
        self, instances: CounterInstances, first: int, last: int, until: int, largest_weight: float
    ) -> tuple[int, int]:
        found: tuple[int, int] = _scan(
            self.tables, self.state, instances, largest_weight, first, last, until, self.output
        )
        return found

    def _grow(self, status: int, instances: CounterInstances, position: int) -> None:
        self.rebuild(widen=status == Status.WIDEN)

    def queued(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        state = self.state
        queued = slice(state.counters[Counter.OLDEST], state.counters[Counter.QUEUED])
        return state.cells[state.queue_cell[queued], Cell.KEY], state.queue_tick[queued]

    def queued_keys(self, since: int) -> NDArray[np.int64]:
        cells = self._cells
        counted = cells[cells[:, Cell.LAST] > cells[:, Cell.FIRST], Cell.KEY]
        return np.union1d(counted, np.flatnonzero(self.state.last_negative > since))

    def queued_groups(self) -> NDArray[np.int64]:
        cells = self._cells
        return np.unique(cells[self._holds() & (cells[:, Cell.GROUP] >= 0), Cell.GROUP])

    def rekey(
        self, renamed: NDArray[np.int32], key_group: NDArray[np.int32], renamed_groups: NDArray[np.int32]
    ) -> None:
        self.rebuild()
        state, used = self.state, self._cells
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
        groups = new_groups(self.tables, max(1, len(renamed_groups)))
        _link_cells(state.cells, len(used), first_cell, groups.first_cell)
        self.state = state._replace(
            first_cell=first_cell, key_group=key_group.copy(), last_negative=last_negative, groups=groups
        )

    def regroup(self, renamed_groups: NDArray[np.int32]) -> None:
        keys = np.arange(len(self.state.first_cell), dtype=np.int32)
        self.rekey(keys, self.state.key_group, renamed_groups)

    @property
    def _cells(self) -> NDArray[np.int64]:
        return self.state.cells[: self.state.cell_count[0]]

    def _holds(self) -> NDArray[np.bool_]:
        """Which cells have rows that may not be empty.

        Aligned cells always have a row for each first event of their key. Such a cell is empty if the last event that
        joined it has left the window, because this event extended only rows of earlier first events.
        """
        cells, tables = self._cells, self.tables
        holds: NDArray[np.bool_] = cells[:, Cell.LAST] > cells[:, Cell.FIRST]
        if tables.split <= 1 or tables.window == NO_WINDOW:
            return holds
        now, touched = self.state.counters[Counter.NOW], cells[:, Cell.TOUCHED]
        with np.errstate(over="ignore"):
            age = now.astype(np.uint64) - touched.astype(np.uint64)
        old: NDArray[np.bool_] = (touched <= now) & (age >= np.uint64(tables.window))
        holds &= (cells[:, Cell.GROUP] < 0) | ~old
        return holds

    def rebuild(self, *, widen: bool = False) -> None:
        """Copy live cells and rows to new, larger arenas. With `widen`, counters become wide."""
        tables, state, cells, counters = self.tables, self.state, self._cells, self.state.counters
        old_wide = int(counters[Counter.WIDE])
        wide = int(widen or old_wide)
        kept = np.flatnonzero(self._holds())
        number = np.full(len(cells) + 1, -1, np.int64)
        number[kept] = np.arange(len(kept))
        live = cells[kept, Cell.LAST] - cells[kept, Cell.FIRST]
        strides = np.maximum(4, 2 * live)
        rows = 8 * int(live.sum()) + 64 + int(strides.sum())
        new_cells = np.zeros((2 * len(kept) + 16, len(Cell)), np.int64)
        new_cells[: len(kept)] = cells[kept]
        for column, values in (
            (Cell.STRIDE, strides),
            (Cell.BASE, np.cumsum(strides) - strides),
            (Cell.FIRST, 0),
            (Cell.LAST, live),
        ):
            new_cells[: len(kept), column] = values
        words = np.zeros(rows * words_per_column(tables, wide) * tables.columns, np.uint64)
        reals = np.zeros(rows * reals_per_column(tables, wide) * tables.columns, np.float64)
        row_tick = np.zeros(rows, np.int64)
        row_release = np.zeros(rows if tables.has_negated_start else 1, np.int64)
        _copy_cells(tables, state, kept, new_cells, old_wide, wide, words, reals, row_tick, row_release)
        # The first cell of a key stays its first.
        first_cell = number[state.first_cell].astype(np.int32)
        group_cell = np.full_like(state.groups.first_cell, -1)
        _link_cells(new_cells, len(kept), first_cell, group_cell)
        queued = slice(counters[Counter.OLDEST], counters[Counter.QUEUED])
        waiting = len(state.queue_tick[queued])
        room = max(2 * waiting + 64, rows)
        counters[Counter.OLDEST], counters[Counter.QUEUED] = 0, waiting
        counters[Counter.USED], counters[Counter.WIDE] = strides.sum(), wide
        state.cell_count[0] = len(kept)
        self.state = state._replace(
            words=words,
            reals=reals,
            row_tick=row_tick,
            row_release=row_release,
            cells=new_cells,
            bound=enlarged(state.bound[kept], len(new_cells), 0),
            first_cell=first_cell,
            queue_tick=enlarged(state.queue_tick[queued], room, 0),
            queue_cell=enlarged(number[state.queue_cell[queued]].astype(np.int32), room, 0),
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
    old_words = tables.word_fields + old_wide * (1 + tables.integers)
    new_words = tables.word_fields + wide * (1 + tables.integers)
    old_reals = tables.real_fields + old_wide
    new_reals = tables.real_fields + wide
    for place in range(kept.size):
        old = state.cells[kept[place]]
        new = new_cells[place]
        live = old[Cell.LAST] - old[Cell.FIRST]
        stride = new[Cell.STRIDE]
        _copy(old, new[Cell.BASE], 1, 1, 1, state.row_tick, row_tick)
        if tables.has_negated_start:
            _copy(old, new[Cell.BASE], 1, 1, 1, state.row_release, row_release)
        _copy(old, new[Cell.BASE], stride, old_words * columns, new_words * columns, state.words, words)
        _copy(old, new[Cell.BASE], stride, old_reals * columns, new_reals * columns, state.reals, reals)
        if wide and not old_wide:
            for column in range(columns):
                count = new[Cell.BASE] * new_words * columns + column * stride
                size = new[Cell.BASE] * new_reals * columns + (tables.real_fields * columns + column) * stride
                for row in range(live):
                    reals[size + row] = float(words[count + row])
                for measure in range(tables.by_measure.shape[0]):
                    if tables.by_measure[measure, ByMeasure.KIND] == MeasureKind.INTEGER:
                        low = tables.by_measure[measure, ByMeasure.FIELD] * columns * stride
                        high = tables.by_measure[measure, ByMeasure.HIGH_FIELD] * columns * stride
                        for row in range(live):
                            words[count + high + row] = sign_extension(words[count + low + row])


@helper
def _copy(old, base, stride, old_width, width, source, target):
    """Copy the live rows of a cell to another block, or to the front of its own."""
    live = old[Cell.LAST] - old[Cell.FIRST]
    for column in range(old_width):
        begin = old[Cell.BASE] * old_width + column * old[Cell.STRIDE] + old[Cell.FIRST]
        end = base * width + column * stride
        for row in range(live):
            target[end + row] = source[begin + row]


@kernel
def _link_cells(cells: Matrix[np.int64], count: int, first_cell: NDArray[np.int32], group_cell: NDArray[np.int32]):
    """Build the lists of cells by key and by group. The first cell of a key, if it is known, remains the first in its
    list.
    """
    for cell in range(count):
        cells[cell, Cell.NEXT_OF_KEY] = -1
        cells[cell, Cell.NEXT_OF_GROUP] = -1
    for cell in range(count):
        _link_cell(cells, cell, first_cell, group_cell)


@helper
def _link_cell(cells, cell, first_cell, group_cell):
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
    """The cell of a group, searched from `cell` on in the list of its key; -1 if there is none."""
    while cell >= 0 and state.cells[cell, Cell.GROUP] != group:
        cell = state.cells[cell, Cell.NEXT_OF_KEY]
    return cell


@helper
def new_cell(tables, state, key, group, rows):
    """A new cell of a key, with empty rows; -1 if there is no room."""
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
    row[Cell.TOUCHED] = state.counters[Counter.NOW]
    for column in range(tables.columns):
        state.bound[cell, column] = 1.0
    _link_cell(state.cells, cell, state.first_cell, state.groups.first_cell)
    # The rows are those of the key's first cell.
    head = state.cells[state.first_cell[key]]
    for one in range(rows):
        source = head[Cell.BASE] + head[Cell.FIRST] + one
        state.row_tick[base + one] = state.row_tick[source]
        if tables.has_negated_start:
            state.row_release[base + one] = state.row_release[source]
    for column in range(tables.columns):
        close(tables, state.words, state.reals, state.counters[Counter.WIDE], base, stride, 0, rows, column)
    return cell


@helper
def has_row(tables, state, cell):
    """Whether a cell has room for one more row. If necessary, this moves its rows within the arena."""
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
    """Move the live rows of a cell to another block, or to the front of its own."""
    wide = state.counters[Counter.WIDE]
    words = (tables.word_fields + wide * (1 + tables.integers)) * tables.columns
    reals = (tables.real_fields + wide) * tables.columns
    live = row[Cell.LAST] - row[Cell.FIRST]
    _copy(row, base, stride, words, words, state.words, state.words)
    _copy(row, base, stride, reals, reals, state.reals, state.reals)
    _copy(row, base, 1, 1, 1, state.row_tick, state.row_tick)
    if tables.has_negated_start:
        _copy(row, base, 1, 1, 1, state.row_release, state.row_release)
    row[Cell.BASE] = base
    row[Cell.STRIDE] = stride
    row[Cell.FIRST] = 0
    row[Cell.LAST] = live


@helper
def add_row(tables, state, cell, key, now):
    """Add an empty row for a first event. The cell must have room."""
    row = state.cells[cell]
    newest = row[Cell.LAST]
    row[Cell.LAST] += 1
    state.row_tick[row[Cell.BASE] + newest] = now
    if tables.has_negated_start:
        guard = max(state.last_negative[key], state.last_negative[0])
        release = now
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
    """Count first events in a column of a row. Their weights are in scratch."""
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


# ── The scan ───────────────────────────────────────────────────────────────────────────────────────


@helper
def _read_group(tables, state, group, reading_words, reading_reals):
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


@kernel
def _scan(
    tables: CounterTables,
    state: RowState,
    instances: CounterInstances,
    largest_weight: float,
    first: int,
    last: int,
    until: int,
    output: CounterOutput,
):
    return scan(
        tables, tables, state, instances, largest_weight, first, last, until, output, _oldest, _expire, _apply,
        _read_group,
    )  # fmt: skip


@helper
def _oldest(state, instances, position):
    """(whether there is any row, the tick of the first event of the oldest one)."""
    place = state.counters[Counter.OLDEST]
    if place < state.counters[Counter.QUEUED]:
        return True, state.queue_tick[place]
    return False, np.int64(0)


@helper
def _expire(tables, state, instances, position, now):
    """Remove the rows whose first event has left the window."""
    counters = state.counters
    cells = state.cells
    while counters[Counter.OLDEST] < counters[Counter.QUEUED]:
        if not has_left(tables, now, state.queue_tick[counters[Counter.OLDEST]]):
            break
        cell = state.queue_cell[counters[Counter.OLDEST]]
        counters[Counter.OLDEST] += 1
        counters[Counter.EXPIRED] += 1
        aligned = tables.split > 1
        while cell >= 0:
            if tables.on_change and cells[cell, Cell.GROUP] >= 0:
                touch_group(tables, tables, state, cells[cell, Cell.GROUP], _read_group)
            cells[cell, Cell.FIRST] += 1
            cell = cells[cell, Cell.NEXT_OF_KEY] if aligned else -1
    return True


@helper
def _apply(tables, state, instances, largest_weight, slot, last):
    """Count the instances at a slot, as many as are counted at once. Returns the status and the slot after them."""
    component = instances.component[slot]
    key = instances.key[slot]
    now = instances.tick[slot]
    row = tables.by_component[component]
    behind = alike(instances, slot, last) if row[ByComponent.KLEENE] else slot + 1
    if row[ByComponent.KIND] == Kind.NEGATED_START:
        state.last_negative[key] = now
        return Status.DONE, behind
    if row[ByComponent.KIND] == Kind.NEGATIVE:
        if key > 0:
            _close_key(tables, state, key, row[ByComponent.OWN])
        else:
            for one in range(state.first_cell.size):
                _close_key(tables, state, one, row[ByComponent.OWN])
        return Status.DONE, behind
    if component == tables.first:
        return _begin(tables, state, instances, slot, behind, key, now, largest_weight), behind
    return _lengthen(tables, state, instances, slot, behind, key, now, largest_weight), behind


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
    """Whether the narrow counters of a cell are wide enough for some more events."""
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
def _released(tables, state, cell, now):
    """How many of the oldest rows may complete matches. A negated start holds back the newer ones."""
    row = state.cells[cell]
    if not tables.has_negated_start:
        return row[Cell.LAST] - row[Cell.FIRST]
    released = 0
    while row[Cell.FIRST] + released < row[Cell.LAST]:
        if state.row_release[row[Cell.BASE] + row[Cell.FIRST] + released] > now:
            break
        released += 1
    return released


@helper
def _extend_cell(tables, state, source, cell, component, times, takes, now):
    """Extend the prefixes in `source` by events of a component, and add the result to the counts of `cell`. If this
    completes matches, note it for the group of the cell.
    """
    from_row = state.cells[source]
    row = state.cells[cell]
    rows = row[Cell.LAST] - row[Cell.FIRST]
    own = tables.by_component[component, ByComponent.OWN]
    gate = tables.by_component[component, ByComponent.GATE]
    is_final = max(own, gate) == tables.final and row[Cell.GROUP] >= 0
    if is_final:
        touch_group(tables, tables, state, row[Cell.GROUP], _read_group)
    # A negated start holds matches back; the gate between a + and a negation does not.
    through = _released(tables, state, cell, now) if gate == tables.final else rows
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
def _lengthen(tables, state, instances, slot, behind, key, now, largest_weight):
    """Count instances of a component that is not the first."""
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
        state.cells[cell, Cell.TOUCHED] = now
        if not _may_count(tables, state, cell, component, times, largest_weight):
            return Status.WIDEN
        _extend_cell(tables, state, head, cell, component, times, 0, now)
        return Status.DONE
    cell = head if tables.split <= 1 or own < tables.split else state.cells[head, Cell.NEXT_OF_KEY]
    in_all = tables.split != 0 and own > tables.split
    checked = cell
    while checked >= 0:
        if not _may_count(tables, state, checked, component, times, largest_weight):
            return Status.WIDEN
        checked = state.cells[checked, Cell.NEXT_OF_KEY] if in_all else -1
    while cell >= 0:
        _extend_cell(tables, state, cell, cell, component, times, 1, now)
        cell = state.cells[cell, Cell.NEXT_OF_KEY] if in_all else -1
    return Status.DONE


@helper
def _begin(tables, state, instances, slot, behind, key, now, largest_weight):
    """Count instances of the first component. Each begins a row, but those of one timestamp share one."""
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
            _extend_cell(tables, state, cell, cell, component, behind - slot, 1, now)
            cell = state.cells[cell, Cell.NEXT_OF_KEY]
    for one in range(slot, behind):
        group = instances.group[one] if splits else (state.key_group[key] if tables.split == 0 else -1)
        cell = cell_of_group(state, state.first_cell[key], group)
        if splits:
            weigh(tables, state.scratch, instances, one, one + 1)
            _push(tables, state, cell, component, 1, key, now)
        else:
            weigh(tables, state.scratch, instances, slot, behind)
            _push(tables, state, cell, component, behind - slot, key, now)
            break
    return Status.DONE


@helper
def _push(tables, state, cell, component, times, key, now):
    """Count first events of one timestamp in a row of a cell."""
    counters = state.counters
    counters[Counter.STARTS] += times
    row = state.cells[cell]
    group = row[Cell.GROUP]
    own = tables.by_component[component, ByComponent.OWN]
    gate = tables.by_component[component, ByComponent.GATE]
    is_final = max(own, gate) == tables.final and group >= 0
    if is_final:
        touch_group(tables, tables, state, group, _read_group)
    newest = row[Cell.LAST] - 1
    # Without a window all first events share a row.
    shared = newest >= row[Cell.FIRST] and (
        state.row_tick[row[Cell.BASE] + newest] == now or tables.window == NO_WINDOW
    )
    if not shared:
        state.queue_tick[counters[Counter.QUEUED]] = now
        state.queue_cell[counters[Counter.QUEUED]] = cell
        counters[Counter.QUEUED] += 1
        other = cell
        while other >= 0:
            add_row(tables, state, other, key, now)
            other = state.cells[other, Cell.NEXT_OF_KEY] if tables.split > 1 else -1
        newest = row[Cell.LAST] - 1
    opened = True
    if tables.has_negated_start:
        opened = state.row_release[row[Cell.BASE] + newest] <= now
    fill_row(tables, state, row, newest, own, times)
    if gate >= 0 and (opened or gate != tables.final):
        fill_row(tables, state, row, newest, gate, times)
    if is_final and opened:
        complete(state.groups, group)
