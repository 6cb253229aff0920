"""Cells and their rows: making them, moving them within the arena, and filling the newest. See `counters_rows`."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.counters_columns import close
from ouzel.kernels.counters_rows_state import Cell
from ouzel.kernels.counters_tables import NEVER, ByComponent, ByMeasure, Counter, MeasureKind
from ouzel.kernels.jit import helper

_BASE = int(Cell.BASE)
_STRIDE = int(Cell.STRIDE)
_FIRST = int(Cell.FIRST)
_LAST = int(Cell.LAST)
_KEY = int(Cell.KEY)
_GROUP = int(Cell.GROUP)
_NEXT_OF_KEY = int(Cell.NEXT_OF_KEY)
_NEXT_OF_GROUP = int(Cell.NEXT_OF_GROUP)
_TOUCHED = int(Cell.TOUCHED)
_OWN = int(ByComponent.OWN)
_MEASURE_KIND = int(ByMeasure.KIND)
_COLUMN = int(ByMeasure.COLUMN)
_FIELD = int(ByMeasure.FIELD)
_HIGH = int(ByMeasure.HIGH_FIELD)
_INTEGER = int(MeasureKind.INTEGER)
_FLOAT = int(MeasureKind.FLOAT)
_WIDE = int(Counter.WIDE)
_MOMENT = int(Counter.MOMENT)
_USED = int(Counter.USED)


@helper
def cell_of_group(state, cell, group):
    """The cell of a group among those of a key, from one of them on; -1 if there is none."""
    while cell >= 0 and state.cells[cell, _GROUP] != group:
        cell = state.cells[cell, _NEXT_OF_KEY]
    return cell


@helper
def new_cell(tables, state, key, group, rows):
    """A cell of a key with empty rows, or -1 if there is no room."""
    stride = max(4, 2 * rows)
    cell = state.cell_count[0]
    base = state.counters[_USED]
    if cell == state.cells.shape[0] or base + stride > state.row_tick.size:
        return -1
    state.cell_count[0] += 1
    state.counters[_USED] = base + stride
    row = state.cells[cell]
    row[_BASE] = base
    row[_STRIDE] = stride
    row[_FIRST] = 0
    row[_LAST] = rows
    row[_KEY] = key
    row[_GROUP] = group
    row[_NEXT_OF_KEY] = -1
    row[_NEXT_OF_GROUP] = -1
    row[_TOUCHED] = state.counters[_MOMENT]
    for column in range(tables.columns):
        state.bound[cell, column] = 1.0
    head = state.first_cell[key]
    if head < 0:
        state.first_cell[key] = cell
    else:
        row[_NEXT_OF_KEY] = state.cells[head, _NEXT_OF_KEY]
        state.cells[head, _NEXT_OF_KEY] = cell
        for one in range(rows):
            state.row_tick[base + one] = state.row_tick[state.cells[head, _BASE] + state.cells[head, _FIRST] + one]
            if tables.has_negated_start:
                source = state.cells[head, _BASE] + state.cells[head, _FIRST] + one
                state.row_release[base + one] = state.row_release[source]
    if group >= 0:
        row[_NEXT_OF_GROUP] = state.groups.first_cell[group]
        state.groups.first_cell[group] = cell
    for column in range(tables.columns):
        close(tables, state.words, state.reals, state.counters[_WIDE], base, stride, 0, rows, column)
    return cell


@helper
def has_row(tables, state, cell):
    """Whether there is room for one more row, after making it within the arena if need be."""
    row = state.cells[cell]
    if row[_LAST] < row[_STRIDE]:
        return True
    live = row[_LAST] - row[_FIRST]
    if row[_FIRST] > 0 and 2 * live <= row[_STRIDE]:
        _move(tables, state, row, row[_BASE], row[_STRIDE])
        return True
    stride = 2 * row[_STRIDE]
    base = state.counters[_USED]
    if base + stride > state.row_tick.size:
        return False
    state.counters[_USED] = base + stride
    _move(tables, state, row, base, stride)
    return True


@helper
def _move(tables, state, row, base, stride):
    """Put the live rows of a cell to the front of a block, perhaps its own."""
    columns = tables.columns
    wide = state.counters[_WIDE]
    word_width = tables.word_fields + wide * (1 + tables.integers)
    real_width = tables.real_fields + wide
    live = row[_LAST] - row[_FIRST]
    for field in range(word_width * columns):
        source = row[_BASE] * word_width * columns + field * row[_STRIDE] + row[_FIRST]
        target = base * word_width * columns + field * stride
        for one in range(live):
            state.words[target + one] = state.words[source + one]
    for field in range(real_width * columns):
        source = row[_BASE] * real_width * columns + field * row[_STRIDE] + row[_FIRST]
        target = base * real_width * columns + field * stride
        for one in range(live):
            state.reals[target + one] = state.reals[source + one]
    for one in range(live):
        state.row_tick[base + one] = state.row_tick[row[_BASE] + row[_FIRST] + one]
        if tables.has_negated_start:
            state.row_release[base + one] = state.row_release[row[_BASE] + row[_FIRST] + one]
    row[_BASE] = base
    row[_STRIDE] = stride
    row[_FIRST] = 0
    row[_LAST] = live


@helper
def add_row(tables, state, cell, key, moment):
    """An empty row for a first event, for which there is room."""
    row = state.cells[cell]
    newest = row[_LAST]
    row[_LAST] += 1
    state.row_tick[row[_BASE] + newest] = moment
    if tables.has_negated_start:
        guard = max(state.last_negative[key], state.last_negative[0])
        release = moment
        if guard > NEVER:
            release = guard + tables.window if guard <= 2**63 - 1 - tables.window else np.int64(2**63 - 1)
        state.row_release[row[_BASE] + newest] = release
    for column in range(tables.columns):
        close(tables, state.words, state.reals, state.counters[_WIDE], row[_BASE], row[_STRIDE], newest, 1, column)


@helper
def fill_row(tables, state, row, newest, column, times):
    """Add first events, whose weights are in scratch, to a column of a row."""
    columns = tables.columns
    wide = state.counters[_WIDE]
    scratch = state.scratch
    stride = row[_STRIDE]
    word_width = tables.word_fields + wide * (1 + tables.integers)
    real_width = tables.real_fields + wide
    word = row[_BASE] * word_width * columns + column * stride + newest
    real = row[_BASE] * real_width * columns + column * stride + newest
    field_stride = columns * stride
    state.words[word] += np.uint64(times)
    if wide:
        state.reals[real + tables.real_fields * field_stride] += times
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, _COLUMN] != tables.by_component[tables.first, _OWN]:
            continue
        kind = tables.by_measure[measure, _MEASURE_KIND]
        place = tables.by_measure[measure, _FIELD] * field_stride
        if kind == _FLOAT:
            state.reals[real + place] += scratch.real[measure]
        elif kind == _INTEGER:
            low = state.words[word + place] + scratch.low[measure]
            if wide:
                carry = np.uint64(low < scratch.low[measure])
                high = word + tables.by_measure[measure, _HIGH] * field_stride
                state.words[high] += scratch.high[measure] + carry
            state.words[word + place] = low
        else:
            least = min(np.int64(state.words[word + place]), scratch.least[measure])
            state.words[word + place] = np.uint64(least)
