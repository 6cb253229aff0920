"""What events do to a window's matrix from the left: they leave it, or they are put before it.

An event multiplies the window by I + N, where N leads from the column that its component lengthens to its own. New
events multiply on the right (`counters_columns.extend`). Row r, column c counts the ways from prefix r to prefix c.
"""

from __future__ import annotations

import numpy as np

from ouzel.kernels.counters_columns import add_wide, multiply_wide, sign_extension
from ouzel.kernels.counters_tables import NOTHING, ByComponent, ByMeasure, MeasureKind
from ouzel.kernels.jit import helper

_ZERO = np.uint64(0)
_NOTHING = np.uint64(NOTHING)


@helper(inline=True)
def remove(tables, words, base, instances, slot):
    """The oldest event leaves a narrow matrix of counts and integer sums: (I + N)^-1 from the left."""
    columns = tables.columns
    component = instances.component[slot]
    from_row = tables.by_component[component, ByComponent.FROM]
    own = tables.by_component[component, ByComponent.OWN]
    start = base * tables.word_fields * columns
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.COLUMN] < own:
            continue
        field = start + tables.by_measure[measure, ByMeasure.FIELD] * columns * columns
        weight = _ZERO
        if tables.by_measure[measure, ByMeasure.COLUMN] == own:
            weight = np.uint64(instances.ints[tables.by_measure[measure, ByMeasure.LANE], slot])
        for column in range(own, columns):
            place = field + column * columns
            words[place + from_row] -= words[place + own] + weight * words[start + column * columns + own]
    for column in range(own, columns):
        place = start + column * columns
        words[place + from_row] -= words[place + own]


@helper
def identity(tables, words, reals, wide, base, rows):
    """The matrix of no event at all."""
    columns = tables.columns
    word_width = tables.word_fields + wide * (1 + tables.integers)
    real_width = tables.real_fields + wide
    word = base * word_width * columns
    real = base * real_width * columns
    for place in range(word_width * columns * rows):
        words[word + place] = _ZERO
    for place in range(real_width * columns * rows):
        reals[real + place] = 0.0
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.KIND] > MeasureKind.FLOAT:
            field = word + tables.by_measure[measure, ByMeasure.FIELD] * columns * rows
            for place in range(columns * rows):
                words[field + place] = _NOTHING
    for row in range(rows):
        words[word + row * rows + row] = np.uint64(1)
        if wide:
            reals[real + tables.real_fields * columns * rows + row * rows + row] = 1.0


@helper
def prepend(tables, words, reals, wide, component, times, scratch, opens):
    """Put simultaneous events of one component, whose weights are in scratch, before a whole matrix. `opens`: whether
    they reach the gate, if there is one."""
    columns = tables.columns
    from_row = tables.by_component[component, ByComponent.FROM]
    own = tables.by_component[component, ByComponent.OWN]
    gate = tables.by_component[component, ByComponent.GATE] if opens else np.int32(-1)
    takes = tables.by_component[component, ByComponent.KLEENE] != 0
    many = np.uint64(times)
    field_size = columns * columns
    high_counts = tables.word_fields * field_size
    sizes = tables.real_fields * field_size
    for column in range(own, columns):
        here = column * columns
        low = words[here + own]
        high = words[high_counts + here + own] if wide else _ZERO
        size = reals[sizes + here + own] if wide else float(low)
        if gate >= 0:
            low, high = add_wide(low, high, words[here + gate], words[high_counts + here + gate] if wide else _ZERO)
            size += reals[sizes + here + gate] if wide else float(words[here + gate])
        for measure in range(tables.by_measure.shape[0]):
            kind = tables.by_measure[measure, ByMeasure.KIND]
            is_here = tables.by_measure[measure, ByMeasure.COLUMN] == own
            place = tables.by_measure[measure, ByMeasure.FIELD] * field_size + here
            if kind == MeasureKind.FLOAT:
                real = times * reals[place + own]
                if gate >= 0:
                    real += times * reals[place + gate]
                if is_here and size != 0.0:
                    real += scratch.real[measure] * size
                reals[place + from_row] += real
                if takes:
                    reals[place + own] += real
            elif kind == MeasureKind.INTEGER:
                high_place = tables.by_measure[measure, ByMeasure.HIGH_FIELD] * field_size + here
                gain = words[place + own]
                upper = words[high_place + own] if wide else _ZERO
                if gate >= 0:
                    gain, upper = add_wide(
                        gain, upper, words[place + gate], words[high_place + gate] if wide else _ZERO
                    )
                gain, upper = multiply_wide(gain, upper, many, _ZERO)
                if is_here:
                    more, more_upper = multiply_wide(low, high, scratch.low[measure], scratch.high[measure])
                    gain, upper = add_wide(gain, upper, more, more_upper)
                _add_at(words, wide, place + from_row, high_place + from_row, gain, upper)
                if takes:
                    _add_at(words, wide, place + own, high_place + own, gain, upper)
            else:
                least = np.int64(words[place + own])
                if gate >= 0:
                    least = min(least, np.int64(words[place + gate]))
                if is_here and size > 0.0:
                    least = min(least, scratch.least[measure])
                words[place + from_row] = np.uint64(min(np.int64(words[place + from_row]), least))
                if takes:
                    words[place + own] = np.uint64(min(np.int64(words[place + own]), least))
        low, high = multiply_wide(low, high, many, _ZERO)
        size *= times
        _add_at(words, wide, here + from_row, high_counts + here + from_row, low, high)
        if wide:
            reals[sizes + here + from_row] += size
        if takes:
            _add_at(words, wide, here + own, high_counts + here + own, low, high)
            if wide:
                reals[sizes + here + own] += size


@helper(inline=True)
def _add_at(words, wide, low_place, high_place, low, high):
    total = words[low_place] + low
    if wide:
        words[high_place] += high + np.uint64(total < low)
    words[low_place] = total


@helper
def close_row(tables, words, reals, wide, row):
    """A negative event before a whole matrix: from a prefix that it ends nothing goes on."""
    columns = tables.columns
    for place in range((tables.word_fields + wide * (1 + tables.integers)) * columns):
        words[place * columns + row] = _ZERO
    for place in range((tables.real_fields + wide) * columns):
        reals[place * columns + row] = 0.0
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.KIND] > MeasureKind.FLOAT:
            field = tables.by_measure[measure, ByMeasure.FIELD] * columns
            for column in range(columns):
                words[(field + column) * columns + row] = _NOTHING


@helper
def copy_row(tables, words, reals, wide, row_words, row_reals):
    """Row 0 of a whole matrix."""
    columns = tables.columns
    for place in range((tables.word_fields + wide * (1 + tables.integers)) * columns):
        row_words[place] = words[place * columns]
    for place in range((tables.real_fields + wide) * columns):
        row_reals[place] = reals[place * columns]


@helper
def clear_final(tables, wide, row_words, row_reals):
    """No complete match stands in a row."""
    columns = tables.columns
    for field in range(tables.word_fields + wide * (1 + tables.integers)):
        row_words[field * columns + tables.final] = _ZERO
    for field in range(tables.real_fields + wide):
        row_reals[field * columns + tables.final] = 0.0
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.KIND] > MeasureKind.FLOAT:
            row_words[tables.by_measure[measure, ByMeasure.FIELD] * columns + tables.final] = _NOTHING


@helper(inline=True)
def reaches(tables, row_words, row_reals, words, reals, wide, base, column):
    """The float count of a row times one column of a matrix."""
    columns = tables.columns
    word = base * (tables.word_fields + wide * (1 + tables.integers)) * columns
    real = base * (tables.real_fields + wide) * columns
    sizes = tables.real_fields * columns
    total = 0.0
    for middle in range(column + 1):
        if wide:
            left = row_reals[sizes + middle]
            right = reals[real + (sizes + column) * columns + middle]
        else:
            left = float(row_words[middle])
            right = float(words[word + column * columns + middle])
        if left != 0.0 and right != 0.0:
            total += left * right
    return total


@helper
def add_product(tables, row_words, row_reals, words, reals, wide, base, reading_words, reading_reals):
    """Add the final entry of a row times a matrix to a reading."""
    columns = tables.columns
    final = tables.final
    word = base * (tables.word_fields + wide * (1 + tables.integers)) * columns
    real = base * (tables.real_fields + wide) * columns
    high_counts = tables.word_fields * columns
    sizes = tables.real_fields * columns
    for middle in range(final + 1):
        left = row_words[middle]
        left_high = row_words[high_counts + middle] if wide else _ZERO
        left_size = row_reals[sizes + middle] if wide else float(left)
        right = words[word + final * columns + middle]
        right_high = words[word + (high_counts + final) * columns + middle] if wide else _ZERO
        right_size = reals[real + (sizes + final) * columns + middle] if wide else float(right)
        low, high = multiply_wide(left, left_high, right, right_high)
        reading_words[0], reading_words[1] = add_wide(reading_words[0], reading_words[1], low, high)
        if left_size != 0.0 and right_size != 0.0:
            reading_reals[0] += left_size * right_size
        for measure in range(tables.by_measure.shape[0]):
            kind = tables.by_measure[measure, ByMeasure.KIND]
            field = tables.by_measure[measure, ByMeasure.FIELD] * columns
            place = 2 + 2 * measure
            if kind == MeasureKind.FLOAT:
                if right_size != 0.0:
                    reading_reals[1 + measure] += row_reals[field + middle] * right_size
                if left_size != 0.0:
                    reading_reals[1 + measure] += left_size * reals[real + (field + final) * columns + middle]
            elif kind == MeasureKind.INTEGER:
                high_field = tables.by_measure[measure, ByMeasure.HIGH_FIELD] * columns
                value = row_words[field + middle]
                upper = row_words[high_field + middle] if wide else sign_extension(value)
                low, high = multiply_wide(value, upper, right, right_high)
                reading_words[place], reading_words[place + 1] = add_wide(
                    reading_words[place], reading_words[place + 1], low, high
                )
                value = words[word + (field + final) * columns + middle]
                upper = words[word + (high_field + final) * columns + middle] if wide else sign_extension(value)
                low, high = multiply_wide(value, upper, left, left_high)
                reading_words[place], reading_words[place + 1] = add_wide(
                    reading_words[place], reading_words[place + 1], low, high
                )
            else:
                least = np.int64(reading_words[place])
                if right_size > 0.0:
                    least = min(least, np.int64(row_words[field + middle]))
                if left_size > 0.0:
                    least = min(least, np.int64(words[word + (field + final) * columns + middle]))
                reading_words[place] = np.uint64(least)
