"""Arithmetic of counters: 128-bit numbers, how events change columns, bounds of counts, reading complete rows, and
matrix products. Also totals over parts of a stream that were counted separately.

An arena stores counters by field, then by column, then by row, at `base + (field * columns + column) * stride + row`.
An event changes one column of all rows, so it writes memory in sequence.

A count has at most 128 bits and may wrap around. Each wide count also has a float of about the same size, so a wrapped
number is never returned.

Each part of a stream emits its total whenever the total changes. A binary tree adds up the totals of the parts of a
group, so the cost of a change is the height of the tree.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.tables import NARROW_MAX, NOTHING, ByComponent, ByMeasure, MeasureKind, Over
from ouzel.kernels.arrays import Matrix
from ouzel.kernels.jit import helper, kernel

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_NOTHING = np.uint64(NOTHING)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


# ── Numbers ────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def high_product(left, right):
    """The upper 64 bits of a product of two uint64."""
    left_low = left & _LOW_HALF
    left_high = left >> _HALF
    right_low = right & _LOW_HALF
    right_high = right >> _HALF
    middle = left_high * right_low + ((left_low * right_low) >> _HALF)
    other = left_low * right_high + (middle & _LOW_HALF)
    return left_high * right_high + (middle >> _HALF) + (other >> _HALF)


@helper(inline=True)
def multiply_wide(low, high, other_low, other_high):
    """A product modulo 2^128, as (lower half, upper half). Two's complement handles the signs."""
    return low * other_low, high_product(low, other_low) + low * other_high + high * other_low


@helper(inline=True)
def add_wide(low, high, other_low, other_high):
    """A sum modulo 2^128."""
    total = low + other_low
    return total, high + other_high + np.uint64(total < low)


@helper(inline=True)
def sign_extension(low):
    """The upper half of a 128-bit number whose lower half is an int64."""
    return np.uint64(np.int64(low) >> np.int64(63))


# ── Components ─────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def is_kleene(tables, component):
    return tables.has_kleene != 0 and tables.by_component[component, ByComponent.KLEENE] != 0


@helper(inline=True)
def gate_of(tables, component):
    """The number of a component's gate column; -1 if it has none. A complete component passes its prefixes to the
    gate.
    """
    if tables.has_kleene or tables.has_negated_start:
        return np.int64(tables.by_component[component, ByComponent.GATE])
    return np.int64(-1)


# ── Events of one timestamp ────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def weigh(tables, scratch, instances, first, last):
    """Compute in scratch the sums over the instances in slots first to last - 1, which are all of one component."""
    for measure in range(tables.by_measure.shape[0]):
        lane = tables.by_measure[measure, ByMeasure.LANE]
        kind = tables.by_measure[measure, ByMeasure.KIND]
        if kind == MeasureKind.FLOAT:
            real = 0.0
            for slot in range(first, last):
                real += instances.floats[lane, slot]
            scratch.real[measure] = real
        elif kind == MeasureKind.INTEGER:
            low = _ZERO
            high = _ZERO
            for slot in range(first, last):
                value = np.uint64(instances.ints[lane, slot])
                low, high = add_wide(low, high, value, sign_extension(value))
            scratch.low[measure] = low
            scratch.high[measure] = high
        else:
            least = np.int64(NOTHING)
            for slot in range(first, last):
                least = min(least, instances.ints[lane, slot])
            scratch.least[measure] = least


# ── Columns ────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def extend(
    tables, words, reals, wide, source, source_stride, source_row, base, stride, first_row, rows, gate_rows, component,
    times, scratch, takes,
):  # fmt: skip
    """Count `times` simultaneous events of a component: extend the prefixes of the component before it, in some rows.
    The weights of the events are in scratch. Returns whether this made any prefix that the next component may extend.

    `source` is the block with the prefixes to extend, usually the same block. With `takes` = 0, a Kleene component does
    not extend its own prefixes. Only the first `gate_rows` rows reach the gate.
    """
    columns = tables.columns
    from_column = tables.by_component[component, ByComponent.FROM]
    own = tables.by_component[component, ByComponent.OWN]
    gate = gate_of(tables, component)
    takes = takes and is_kleene(tables, component)
    word_fields = tables.word_fields
    real_fields = tables.real_fields
    word_width = word_fields + wide * (1 + tables.integers)
    real_width = real_fields + wide
    many = np.uint64(times)
    # Row 0 of column c of field f is at word + (f * columns + c) * stride.
    word = base * word_width * columns + first_row
    real = base * real_width * columns + first_row
    source_word = source * word_width * columns + source_row
    source_real = source * real_width * columns + source_row
    for measure in range(tables.by_measure.shape[0]):
        column = tables.by_measure[measure, ByMeasure.COLUMN]
        if own < column:
            continue
        kind = tables.by_measure[measure, ByMeasure.KIND]
        over = tables.by_measure[measure, ByMeasure.OVER]
        field = tables.by_measure[measure, ByMeasure.FIELD] * columns
        is_here = own == column
        carries = takes and not (is_here and over == Over.LAST)
        counts_own = takes and over != Over.FIRST
        low_from = source_word + from_column * source_stride
        low_own = word + own * stride
        if kind == MeasureKind.FLOAT:
            sum_from = source_real + (field + from_column) * source_stride
            sum_own = real + (field + own) * stride
            sum_gate = real + (field + gate) * stride
            size_from = source_real + (real_fields * columns + from_column) * source_stride
            size_own = real + (real_fields * columns + own) * stride
            for row in range(rows):
                grown = 0.0
                if is_here:
                    if wide:
                        size = reals[size_from + row]
                        if counts_own:
                            size += reals[size_own + row]
                    else:
                        size = float(words[low_from + row])
                        if counts_own:
                            size += float(words[low_own + row])
                    # Here 0 times infinity is 0.
                    if size != 0.0:
                        grown = scratch.real[measure] * size
                else:
                    grown = times * reals[sum_from + row]
                if carries:
                    grown += times * reals[sum_own + row]
                reals[sum_own + row] += grown
                if gate >= 0 and row < gate_rows:
                    reals[sum_gate + row] += grown
        elif kind == MeasureKind.INTEGER:
            sum_from = source_word + (field + from_column) * source_stride
            sum_own = word + (field + own) * stride
            sum_gate = word + (field + gate) * stride
            if not wide:
                weight = scratch.low[measure]
                for row in range(rows):
                    if is_here:
                        count = words[low_from + row]
                        if counts_own:
                            count += words[low_own + row]
                        gain = weight * count
                    else:
                        gain = many * words[sum_from + row]
                    if carries:
                        gain += many * words[sum_own + row]
                    words[sum_own + row] += gain
                    if gate >= 0 and row < gate_rows:
                        words[sum_gate + row] += gain
            else:
                high_field = tables.by_measure[measure, ByMeasure.HIGH_FIELD] * columns
                high_from = source_word + (high_field + from_column) * source_stride
                high_own = word + (high_field + own) * stride
                high_gate = word + (high_field + gate) * stride
                count_high_from = source_word + (word_fields * columns + from_column) * source_stride
                count_high_own = word + (word_fields * columns + own) * stride
                for row in range(rows):
                    if is_here:
                        low = words[low_from + row]
                        high = words[count_high_from + row]
                        if counts_own:
                            low, high = add_wide(low, high, words[low_own + row], words[count_high_own + row])
                        low, high = multiply_wide(low, high, scratch.low[measure], scratch.high[measure])
                    else:
                        low, high = multiply_wide(words[sum_from + row], words[high_from + row], many, _ZERO)
                    if carries:
                        more, more_high = multiply_wide(words[sum_own + row], words[high_own + row], many, _ZERO)
                        low, high = add_wide(low, high, more, more_high)
                    words[sum_own + row], words[high_own + row] = add_wide(
                        words[sum_own + row], words[high_own + row], low, high
                    )
                    if gate >= 0 and row < gate_rows:
                        words[sum_gate + row], words[high_gate + row] = add_wide(
                            words[sum_gate + row], words[high_gate + row], low, high
                        )
        else:
            least_from = source_word + (field + from_column) * source_stride
            least_own = word + (field + own) * stride
            least_gate = word + (field + gate) * stride
            size_from = source_real + (real_fields * columns + from_column) * source_stride
            size_own = real + (real_fields * columns + own) * stride
            for row in range(rows):
                least = np.int64(NOTHING)
                if is_here:
                    if wide:
                        there = reals[size_from + row] > 0.0 or (counts_own and reals[size_own + row] > 0.0)
                    else:
                        there = words[low_from + row] != _ZERO or (counts_own and words[low_own + row] != _ZERO)
                    if there:
                        least = scratch.least[measure]
                else:
                    least = np.int64(words[least_from + row])
                if carries:
                    least = min(least, np.int64(words[least_own + row]))
                words[least_own + row] = np.uint64(min(np.int64(words[least_own + row]), least))
                if gate >= 0 and row < gate_rows:
                    words[least_gate + row] = np.uint64(min(np.int64(words[least_gate + row]), least))
    reached = gate_rows if gate >= 0 else rows
    if wide:
        return _extend_wide_counts(
            words, reals, columns, word_fields, real_fields, source_word, source_real, source_stride, word, real,
            stride, rows, gate_rows, from_column, own, gate, takes, times,
        )  # fmt: skip
    low_from = source_word + from_column * source_stride
    low_own = word + own * stride
    low_gate = word + gate * stride
    any_grown = _ZERO
    if not takes and gate < 0:
        # Most often; written out, because the compiler then has two streams of memory to compare, not three.
        for row in range(rows):
            gain = many * words[low_from + row]
            words[low_own + row] += gain
            any_grown |= gain
        return any_grown != _ZERO
    for row in range(rows):
        gain = words[low_from + row]
        if takes:
            gain += words[low_own + row]
        gain *= many
        words[low_own + row] += gain
        if row < reached:
            any_grown |= gain
            if gate >= 0:
                words[low_gate + row] += gain
    return any_grown != _ZERO


@helper(inline=True)
def _extend_wide_counts(
    words, reals, columns, word_fields, real_fields, source_word, source_real, source_stride, word, real, stride, rows,
    gate_rows, from_column, own, gate, takes, times,
):  # fmt: skip
    many = np.uint64(times)
    high_fields = word_fields * columns
    size_fields = real_fields * columns
    reached = gate_rows if gate >= 0 else rows
    grown_any = False
    for row in range(rows):
        low = words[source_word + from_column * source_stride + row]
        high = words[source_word + (high_fields + from_column) * source_stride + row]
        size = reals[source_real + (size_fields + from_column) * source_stride + row]
        low_own = word + own * stride + row
        high_own = word + (high_fields + own) * stride + row
        size_own = real + (size_fields + own) * stride + row
        if takes:
            low, high = add_wide(low, high, words[low_own], words[high_own])
            size += reals[size_own]
        if times != 1:
            low, high = multiply_wide(low, high, many, _ZERO)
            size *= times
        words[low_own], words[high_own] = add_wide(words[low_own], words[high_own], low, high)
        reals[size_own] += size
        if row < reached:
            grown_any |= size > 0.0
            if gate >= 0:
                low_gate = word + gate * stride + row
                high_gate = word + (high_fields + gate) * stride + row
                words[low_gate], words[high_gate] = add_wide(words[low_gate], words[high_gate], low, high)
                reals[real + (size_fields + gate) * stride + row] += size
    return grown_any


@helper(inline=True)
def close(tables, words, reals, wide, base, stride, first_row, rows, column):
    """Set a column to no prefixes, in some rows."""
    columns = tables.columns
    word_width = tables.word_fields + wide * (1 + tables.integers)
    real_width = tables.real_fields + wide
    for field in range(word_width):
        start = base * word_width * columns + (field * columns + column) * stride
        for row in range(first_row, first_row + rows):
            words[start + row] = _ZERO
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.KIND] > MeasureKind.FLOAT:
            start = (
                base * word_width * columns + (tables.by_measure[measure, ByMeasure.FIELD] * columns + column) * stride
            )
            for row in range(first_row, first_row + rows):
                words[start + row] = _NOTHING
    for field in range(real_width):
        start = base * real_width * columns + (field * columns + column) * stride
        for row in range(first_row, first_row + rows):
            reals[start + row] = 0.0


# ── Bounds ─────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def raise_bound(tables, bound, component, times):
    """Raise the bound on all counts of a column for some events. The bound ignores expiry, so when it exceeds
    NARROW_MAX it must be measured again.
    """
    own = tables.by_component[component, ByComponent.OWN]
    gate = gate_of(tables, component)
    gain = max(1.0, bound[tables.by_component[component, ByComponent.FROM]])
    if is_kleene(tables, component):
        gain += bound[own]
    bound[own] += gain * times
    if gate >= 0:
        bound[gate] = bound[own]
    return bound[own]


@helper
def measure_bound(tables, words, base, stride, first_row, rows, bound):
    """Set the bound of each column to its largest narrow counter."""
    start = base * tables.word_fields * tables.columns + first_row
    for column in range(tables.columns):
        largest = _ONE
        for row in range(rows):
            largest = max(largest, words[start + column * stride + row])
        bound[column] = float(largest)


# ── Reading ────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def clear_reading(tables, reading_words, reading_reals):
    for word in range(reading_words.size):
        reading_words[word] = _ZERO
    for real in range(reading_reals.size):
        reading_reals[real] = 0.0
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.KIND] > MeasureKind.FLOAT:
            reading_words[2 + 2 * measure] = _NOTHING


@helper(inline=True)
def add_rows(tables, words, reals, wide, base, stride, first, last, reading_words, reading_reals):
    """Add the counters of complete matches, in some rows, to a reading."""
    columns = tables.columns
    word_fields = tables.word_fields
    word_width = word_fields + wide * (1 + tables.integers)
    real_width = tables.real_fields + wide
    word = base * word_width * columns + tables.final * stride
    real = base * real_width * columns + tables.final * stride
    field_stride = columns * stride
    low = reading_words[0]
    high = reading_words[1]
    size = reading_reals[0]
    for row in range(first, last):
        if wide:
            low, high = add_wide(low, high, words[word + row], words[word + word_fields * field_stride + row])
            size += reals[real + tables.real_fields * field_stride + row]
        else:
            low, high = add_wide(low, high, words[word + row], _ZERO)
            size += float(words[word + row])
    reading_words[0] = low
    reading_words[1] = high
    reading_reals[0] = size
    for measure in range(tables.by_measure.shape[0]):
        kind = tables.by_measure[measure, ByMeasure.KIND]
        field = tables.by_measure[measure, ByMeasure.FIELD] * field_stride
        place = 2 + 2 * measure
        if kind == MeasureKind.FLOAT:
            real_sum = reading_reals[1 + measure]
            for row in range(first, last):
                real_sum += reals[real + field + row]
            reading_reals[1 + measure] = real_sum
        elif kind == MeasureKind.INTEGER:
            low = reading_words[place]
            high = reading_words[place + 1]
            high_field = tables.by_measure[measure, ByMeasure.HIGH_FIELD] * field_stride
            for row in range(first, last):
                value = words[word + field + row]
                upper = words[word + high_field + row] if wide else sign_extension(value)
                low, high = add_wide(low, high, value, upper)
            reading_words[place] = low
            reading_words[place + 1] = high
        else:
            least = np.int64(reading_words[place])
            for row in range(first, last):
                least = min(least, np.int64(words[word + field + row]))
            reading_words[place] = np.uint64(least)


@helper(inline=True)
def needs_widening(bound, largest_weight):
    return bound * largest_weight >= NARROW_MAX


@helper(inline=True)
def remove(tables, words, base, instances, slot):
    """Remove the oldest event from a narrow matrix of counts and integer sums, by multiplying with (I + N)^-1 from the
    left.
    """
    columns = tables.columns
    component = instances.component[slot]
    from_row = tables.by_component[component, ByComponent.FROM]
    own = tables.by_component[component, ByComponent.OWN]
    start = base * tables.word_fields * columns
    # All columns, though those before its own are zero: a loop of constant length is never mispredicted.
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.COLUMN] < own:
            continue
        field = start + tables.by_measure[measure, ByMeasure.FIELD] * columns * columns
        weight = _ZERO
        if tables.by_measure[measure, ByMeasure.COLUMN] == own:
            weight = np.uint64(instances.ints[tables.by_measure[measure, ByMeasure.LANE], slot])
        for column in range(columns):
            place = field + column * columns
            words[place + from_row] -= words[place + own] + weight * words[start + column * columns + own]
    for column in range(columns):
        place = start + column * columns
        words[place + from_row] -= words[place + own]


@helper
def identity(tables, words, reals, wide, base, rows):
    """Write the identity matrix, which is the product of no events."""
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


@helper(inline=True)
def prepend(tables, words, reals, wide, component, times, scratch, opens):
    """Multiply a matrix from the left by simultaneous events of one component, whose weights are in scratch. `opens`:
    the events reach the component's gate, if it has one.
    """
    columns = tables.columns
    from_row = tables.by_component[component, ByComponent.FROM]
    own = tables.by_component[component, ByComponent.OWN]
    gate = gate_of(tables, component) if opens else np.int64(-1)
    takes = is_kleene(tables, component)
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
            # The upper half of narrow ones stays zero: their sum does not wrap.
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
        if wide:
            low, high = multiply_wide(low, high, many, _ZERO)
            size *= times
        else:
            low *= many
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


@helper(inline=True)
def close_row(tables, words, reals, wide, row):
    """Clear one row of a matrix. A negative event has forbidden the prefix that this row extends."""
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


@helper(inline=True)
def copy_row(tables, words, reals, wide, row_words, row_reals):
    """Copy row 0 of a matrix."""
    columns = tables.columns
    for place in range((tables.word_fields + wide * (1 + tables.integers)) * columns):
        row_words[place] = words[place * columns]
    for place in range((tables.real_fields + wide) * columns):
        row_reals[place] = reals[place * columns]


@helper
def clear_final(tables, wide, row_words, row_reals):
    """Remove the complete matches from a row of counters."""
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
    """A row times one column of a matrix, for counts only, as a float."""
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
    """Multiply a row by a matrix, and add the entry of complete matches to a reading."""
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


# ── Sums over parts ────────────────────────────────────────────────────────────────────────────────


@helper
def climb(kinds, words, reals, node):
    """After a leaf has changed, recompute all nodes above it. `kinds` has the MeasureKind of each measure."""
    node //= 2
    while node:
        left = 2 * node
        right = left + 1
        for place in range(0, words.shape[1], 2):
            if place and kinds[place // 2 - 1] == MeasureKind.LEAST:
                least = min(np.int64(words[left, place]), np.int64(words[right, place]))
                words[node, place] = np.uint64(least)
            else:
                words[node, place], words[node, place + 1] = add_wide(
                    words[left, place], words[left, place + 1], words[right, place], words[right, place + 1]
                )
        for place in range(reals.shape[1]):
            reals[node, place] = reals[left, place] + reals[right, place]
        node //= 2


class ChangeKind(IntEnum):
    """Why a part has emitted a row."""

    CARRIED = 0  # its state before the time bucket
    CHANGED = 1
    COMPLETED = 2  # a match was completed


class Changes(NamedTuple):
    """The totals of parts over time, ordered by segment and tick. A segment is a group in a time bucket. A part without
    rows in a segment has counted nothing there.
    """

    segment: NDArray[np.int64]
    tick: NDArray[np.int64]
    part: NDArray[np.int32]
    kind: NDArray[np.uint8]
    words: Matrix[np.uint64]  # [row, word], as in CounterOutput
    reals: Matrix[np.float64]


class Totals(NamedTuple):
    """The sums over all parts of a segment, after a timestamp and before it."""

    row: NDArray[np.int64]  # the last change of the timestamp
    completed: NDArray[np.uint8]
    words: Matrix[np.uint64]
    reals: Matrix[np.float64]
    before_words: Matrix[np.uint64]  # empty unless changes are emitted
    before_reals: Matrix[np.float64]


def total_changes(changes: Changes, kinds: NDArray[np.int64], parts: int, *, on_change: bool) -> Totals:
    """The totals at each timestamp at which a match completes. With `on_change`, also at timestamps at which a total
    changes for another reason.

    `kinds` has the MeasureKind of each measure.

    >>> words = np.array([[2, 0], [3, 0], [0, 0]], np.uint64)
    >>> kind = np.array([ChangeKind.COMPLETED, ChangeKind.COMPLETED, ChangeKind.CHANGED], np.uint8)
    >>> changes = Changes(np.zeros(3, np.int64), np.array([5, 6, 7]), np.array([0, 1, 0], np.int32), kind, words,
    ...                   words[:, :1].astype(np.float64))
    >>> total_changes(changes, np.zeros(0, np.int64), 2, on_change=False).words.tolist()
    [[2, 0], [5, 0]]
    """
    leaves = 1
    while leaves < parts:
        leaves *= 2
    rows, (_, words), (_, reals) = len(changes.tick), changes.words.shape, changes.reals.shape
    kept = rows if on_change else 0
    totals = Totals(
        np.empty(rows, np.int64),
        np.empty(rows, np.uint8),
        np.empty((rows, words), np.uint64),
        np.empty((rows, reals), np.float64),
        np.empty((kept, words), np.uint64),
        np.empty((kept, reals), np.float64),
    )
    tree_words, tree_reals = np.zeros((2 * leaves, words), np.uint64), np.zeros((2 * leaves, reals), np.float64)
    count = _total(changes, kinds, leaves, tree_words, tree_reals, on_change, totals)
    return Totals._make(array[:count] for array in totals)


@kernel
def _total(
    changes: Changes,
    kinds: NDArray[np.int64],
    leaves: int,
    tree_words: Matrix[np.uint64],
    tree_reals: Matrix[np.float64],
    on_change: bool,
    totals: Totals,
):
    written = 0
    row = 0
    while row < changes.tick.size:
        if row == 0 or changes.segment[row] != changes.segment[row - 1]:
            _clear(kinds, tree_words, tree_reals)
        first = row
        kind = np.int64(ChangeKind.CARRIED)  # Numba has no max of an enum member.
        if on_change:
            _copy(tree_words[1], tree_reals[1], totals.before_words[written], totals.before_reals[written])
        while (
            row < changes.tick.size
            and changes.segment[row] == changes.segment[first]
            and changes.tick[row] == changes.tick[first]
        ):
            kind = max(kind, changes.kind[row])
            leaf = leaves + changes.part[row]
            _copy(changes.words[row], changes.reals[row], tree_words[leaf], tree_reals[leaf])
            climb(kinds, tree_words, tree_reals, leaf)
            row += 1
        if kind == ChangeKind.COMPLETED or (on_change and kind != ChangeKind.CARRIED):
            totals.row[written] = row - 1
            totals.completed[written] = kind == ChangeKind.COMPLETED
            _copy(tree_words[1], tree_reals[1], totals.words[written], totals.reals[written])
            written += 1
    return written


@helper
def _clear(kinds, tree_words, tree_reals):
    tree_words[:] = np.uint64(0)
    tree_reals[:] = 0.0
    for measure in range(kinds.size):
        if kinds[measure] == MeasureKind.LEAST:
            tree_words[:, 2 + 2 * measure] = _NOTHING


@helper
def _copy(words, reals, to_words, to_reals):
    for place in range(words.size):
        to_words[place] = words[place]
    for place in range(reals.size):
        to_reals[place] = reals[place]
