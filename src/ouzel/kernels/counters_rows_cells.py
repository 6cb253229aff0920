"""Cells and their rows: making them, moving them within the arena, and filling the newest. See `counters_rows`."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.counters_columns import close
from ouzel.kernels.counters_rows_state import Cell
from ouzel.kernels.counters_tables import NEVER, ByComponent, ByMeasure, Counter, MeasureKind
from ouzel.kernels.jit import helper


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
    """Whether there is room for one more row, after making it within the arena if need be."""
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
    """Put the live rows of a cell to the front of a block, perhaps its own."""
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
    """An empty row for a first event, for which there is room."""
    row = state.cells[cell]
    newest = row[Cell.LAST]
    row[Cell.LAST] += 1
    state.row_tick[row[Cell.BASE] + newest] = moment
    if tables.has_negated_start:
        guard = max(state.last_negative[key], state.last_negative[0])
        release = moment
        if guard > NEVER:
            release = guard + tables.window if guard <= 2**63 - 1 - tables.window else np.int64(2**63 - 1)
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
