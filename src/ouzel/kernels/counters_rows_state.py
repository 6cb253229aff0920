"""Rows of counters, one for each first event: what is remembered between calls, making room, and renaming.

A *cell* is a block of rows; see `counters_rows`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.counters_columns import sign_extension
from ouzel.kernels.counters_tables import (
    NEVER,
    NO_WINDOW,
    ByComponent,
    ByMeasure,
    Counter,
    CounterTables,
    Groups,
    MeasureKind,
    Scratch,
    enlarged,
    new_groups,
    new_scratch,
    reals_per_column,
    reserve_groups,
    words_per_column,
)
from ouzel.kernels.jit import kernel


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
    TOUCHED = 8  # the newest moment at which an event that decides the group joined it, where cells run in step


class RowState(NamedTuple):
    """What is remembered between calls: plain arrays."""

    words: NDArray[np.uint64]
    reals: NDArray[np.float64]
    row_tick: NDArray[np.int64]  # per row of the arena
    row_release: NDArray[np.int64]  # with a negated start: from when on matches of the row stand
    cells: NDArray[np.int64]  # [cell, Cell]
    bound: NDArray[np.float64]  # [cell, column], while counters are narrow
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
        """The groups that hold anything."""
        cells = self.cells[: self.cell_count[0]]
        return np.unique(cells[_holds(tables, self) & (cells[:, Cell.GROUP] >= 0), Cell.GROUP])


def _holds(tables: CounterTables, state: RowState) -> NDArray[np.bool_]:
    """Which cells have rows that may hold anything.

    Cells that run in step have the rows of their key's first events. What decides their group lengthened rows of
    events before it, and these have all left the window once it is as old as that.
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
    # A component with + may hold many values of one match, which no bound on counts covers.
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
    """A state with room for so many keys and groups at least."""
    return state._replace(
        first_cell=enlarged(state.first_cell, keys),
        key_group=enlarged(state.key_group, keys, 0),
        last_negative=enlarged(state.last_negative, keys, NEVER),
        groups=reserve_groups(tables, state.groups, groups),
    )


def widened(tables: CounterTables, state: RowState) -> RowState:
    """The same counters in 128 bits, each count as a float beside it."""
    assert not state.counters[Counter.WIDE]
    return _rebuilt(tables, state, len(state.row_tick), wide=1)


def with_room(tables: CounterTables, state: RowState) -> RowState:
    """What is no longer needed is given up, and there is room for more rows, cells and queue entries."""
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
    """Keys and groups have new numbers; keys that have none, but key 0, are forgotten."""
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
    """Groups have new numbers; those without rows are forgotten, and keys stay."""
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
def _copy_cells(tables, state, kept, new_cells, old_wide, wide, words, reals, row_tick, row_release):
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
def _link_cells(cells, count, first_cell, group_cell, number, old_first):
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
