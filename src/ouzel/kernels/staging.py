"""Stages rows in typed arrays: which rows are needed, and what kernels read of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, Matrix
from ouzel.kernels.events import EVERY_KEY
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.rows import MOMENT, NULLS, Rows
from ouzel.kernels.text import (
    EIGHT,
    EXACT_LENGTH_MAX,
    ONE,
    Constants,
    equal_bytes,
    load_first_word,
    load_word,
)

# Columns of the table of lanes.
LANE_COMPONENT, LANE_FLOATING, LANE_NUMBER, LANE_PLACE, LANE_COLUMN = range(5)
# The component of a lane that all events have, and the place of a lane that says whether a column is not null.
EVERY_COMPONENT = -1
IS_NOT_NULL = -1
# The place of a lane that every event of its source has.
IS_TRUE = -2
# Columns of the table of measures: the component, what of its values is measured, the array and its row, and the value.
(
    MEASURE_COMPONENT,
    MEASURE_WHAT,
    MEASURE_FLOATING,
    MEASURE_ROW,
    MEASURE_OF_FLOATS,
    MEASURE_PLACE,
    MEASURE_COLUMN,
) = range(7)
# What is measured: the value, or a number that is the smaller the smaller, or the larger, the value is.
VALUE, LEAST, GREATEST = range(3)
# The bits of a NaN.
NAN_BITS = np.int64(0x7FF8000000000000)
INFINITE_BITS = np.int64(0x7FF0000000000000)
# The order of events by time.
IN_ORDER, TIED, DISORDERED = range(3)


@helper
def find_constant(constants: Any, data: Any, begin: Any, end: Any) -> Any:
    """The index of the constant that a string equals; the number of constants if it equals none."""
    length = end - begin
    first_word = load_first_word(data, begin, length)
    last_word = load_word(data, end - EIGHT) if length > EIGHT else first_word
    for code in range(constants.lengths.size):
        if constants.lengths[code] != length or constants.first_words[code] != first_word:
            continue
        if constants.last_words[code] == last_word and (
            length <= EXACT_LENGTH_MAX
            or equal_bytes(data, begin, constants.data, np.uint64(constants.offsets[code]), length)
        ):
            return code
    return constants.lengths.size


@kernel(allocates=True)
def select_rows(
    rows: Rows,
    first: int,
    last: int,
    type_place: int,
    type_column: int,
    types: Constants,
    roles_by_type: NDArray[np.uint64],
    tests: Matrix[np.int64],
    chosen: NDArray[np.int32],
    roles: NDArray[np.uint64],
) -> Any:
    """Write the rows that have roles, and their roles. Returns the number of these rows, and their order by time. The
    type of a row decides its roles, and the last entry of `roles_by_type` is for all other types and for rows without a
    type. A test is a column whose nulls clear some roles.
    """
    count = 0
    order = IN_ORDER
    before = np.int64(0)
    ticks = rows.numbers[rows.memory[MOMENT]]
    other = roles_by_type.size - 1
    for row in range(first, last):
        code = other
        if type_place >= 0 and rows.valid[type_column, row]:
            begin = np.uint64(rows.offsets[type_place, row])
            end = np.uint64(rows.offsets[type_place, row + 1])
            code = find_constant(types, rows.data[type_place], begin, end)
        found = roles_by_type[code]
        for test in range(tests.shape[0]):
            column = tests[test, 1]
            if rows.memory[NULLS + column] and not rows.valid[column, row]:
                found &= ~np.uint64(tests[test, 0])
        if found:
            if count and ticks[row] <= before:
                order = max(order, TIED if ticks[row] == before else DISORDERED)
            before = ticks[row]
            chosen[count] = row
            roles[count] = found
            count += 1
    return count, order


@helper
def write_lane(
    rows: Any, row: Any, lanes: Any, lane: Any, ints: Any, floats: Any, flags: Any, flagged: Any, at: Any
) -> Any:
    """Write the value of one lane of one event."""
    number = lanes[lane, LANE_NUMBER]
    place = lanes[lane, LANE_PLACE]
    column = lanes[lane, LANE_COLUMN]
    is_valid = not rows.memory[NULLS + column] or rows.valid[column, row] != 0
    if place == IS_NOT_NULL:
        ints[number, at] = 1 if is_valid else 0
        return
    flag = number
    if lanes[lane, LANE_FLOATING]:
        flag += ints.shape[0]
        floats[number, at] = rows.numbers[place].view(np.float64)[row] if is_valid else 0.0
    else:
        ints[number, at] = rows.numbers[place, row] if is_valid else 0
    if not is_valid:
        flags[flag, at] = LaneFlag.NULL
        flagged[flag] = 1


class Staged(NamedTuple):
    """The arrays of events that all engines read, by slot."""

    end: NDArray[np.int64]
    key: NDArray[np.int32]
    numbers: NDArray[np.int64]  # of their rows; empty if rows are not kept
    int_lanes: Matrix[np.int64]  # [lane, slot]
    float_lanes: Matrix[np.float64]
    lane_flags: Matrix[np.uint8]  # [int64 lanes, then float64 lanes; slot]: LaneFlag
    flagged: NDArray[np.uint8]


@helper
def write_event(rows: Any, row: Any, key: Any, number: Any, lanes: Any, component: Any, staged: Any, at: Any) -> Any:
    """Write one event, with the lanes of `component` and those that all events have."""
    staged.end[at] = rows.numbers[rows.memory[MOMENT], row]
    staged.key[at] = key
    if staged.numbers.size:
        staged.numbers[at] = number
    for lane in range(staged.int_lanes.shape[0]):
        staged.int_lanes[lane, at] = 0
    for lane in range(staged.float_lanes.shape[0]):
        staged.float_lanes[lane, at] = 0.0
    for lane in range(staged.lane_flags.shape[0]):
        staged.lane_flags[lane, at] = LaneFlag.VALUE
    for lane in range(lanes.shape[0]):
        if lanes[lane, LANE_COMPONENT] == component or lanes[lane, LANE_COMPONENT] == EVERY_COMPONENT:
            write_lane(
                rows, row, lanes, lane, staged.int_lanes, staged.float_lanes, staged.lane_flags, staged.flagged, at
            )


@helper
def ordered_bits(bits: Any) -> Any:
    """The bits of a float as an integer in the same order. NaN is the greatest, and both zeros are equal."""
    if bits == INT64_MIN:
        return np.int64(0)
    if bits & INT64_MAX > INFINITE_BITS:
        return NAN_BITS
    return bits if bits >= 0 else bits ^ INT64_MAX


@helper
def write_measure(
    rows: Any, row: Any, measures: Any, measure: Any, ints: Any, floats: Any, largest: Any, at: Any
) -> Any:
    """Write what an event adds to one measure of its component."""
    place = measures[measure, MEASURE_PLACE]
    column = measures[measure, MEASURE_COLUMN]
    target = measures[measure, MEASURE_ROW]
    is_valid = not rows.memory[NULLS + column] or rows.valid[column, row] != 0
    if measures[measure, MEASURE_FLOATING]:
        floats[target, at] = rows.numbers[place].view(np.float64)[row] if is_valid else 0.0
        return
    if measures[measure, MEASURE_WHAT] != VALUE:
        if not is_valid:
            ints[target, at] = INT64_MAX
            return
        value = rows.numbers[place, row]
        if measures[measure, MEASURE_OF_FLOATS]:
            value = ordered_bits(value)
        ints[target, at] = ~value if measures[measure, MEASURE_WHAT] == GREATEST else value
        return
    value = np.int64(0)
    if is_valid:
        value = np.int64(1) if place == IS_NOT_NULL else rows.numbers[place, row]
    ints[target, at] = value
    largest[measure] = max(largest[measure], abs(np.float64(value)))


class Measured(NamedTuple):
    """What each event adds to measures, by slot."""

    table: Matrix[np.int32]  # [measure, MEASURE_…]
    ints: Matrix[np.int64]  # [row, slot]
    floats: Matrix[np.float64]
    largest: NDArray[np.float64]  # the largest absolute value of each measure of integers so far


@helper
def write_measures(rows: Any, row: Any, component: Any, measured: Any, at: Any) -> Any:
    """Write what an event of a component adds to all measures."""
    table = measured.table
    for measure in range(table.shape[0]):
        if table[measure, MEASURE_COMPONENT] == component:
            write_measure(rows, row, table, measure, measured.ints, measured.floats, measured.largest, at)
        elif table[measure, MEASURE_FLOATING]:
            measured.floats[table[measure, MEASURE_ROW], at] = 0.0
        else:
            nothing = np.int64(0) if table[measure, MEASURE_WHAT] == VALUE else np.int64(INT64_MAX)
            measured.ints[table[measure, MEASURE_ROW], at] = nothing


@kernel
def write_instances(
    rows: Rows,
    chosen: NDArray[np.int32],
    roles: NDArray[np.uint64],
    codes: NDArray[np.int32],
    count: int,
    order: NDArray[np.uint8],
    everywhere: int,
    lanes: Matrix[np.int32],
    base: int,
    staged: Staged,
    components: NDArray[np.uint8],
    measured: Measured,
    at: int,
) -> int:
    """Write the instances of chosen rows from a slot on, with what they add to measures. Returns the slot after
    them.

    `order` is the order in which the components of a row are written. `codes` has the key of each row, or is empty.
    Components in `everywhere`, as bits, have EVERY_KEY. The rows are numbered from `base` on.
    """
    for place in range(count):
        for number in range(order.size):
            component = np.int64(order[number])
            if not (roles[place] >> np.uint64(component)) & ONE:
                continue
            key = EVERY_KEY if codes.size == 0 or (everywhere >> component) & 1 else codes[place]
            write_event(rows, chosen[place], key, base + place, lanes, component, staged, at)
            components[at] = component
            write_measures(rows, chosen[place], component, measured, at)
            at += 1
    return at


@kernel
def write_events(
    rows: Rows,
    chosen: NDArray[np.int32],
    found_roles: NDArray[np.uint64],
    codes: NDArray[np.int32],
    count: int,
    everywhere: np.uint64,
    lanes: Matrix[np.int32],
    base: int,
    staged: Staged,
    roles: NDArray[np.uint64],
    at: int,
) -> int:
    """Write one event for each chosen row from a slot on, with all its roles. Returns the slot after them. Events with
    a role in `everywhere` have EVERY_KEY.
    """
    for place in range(count):
        key = EVERY_KEY if codes.size == 0 or found_roles[place] & everywhere else codes[place]
        write_event(rows, chosen[place], key, base + place, lanes, EVERY_COMPONENT, staged, at)
        roles[at] = found_roles[place]
        at += 1
    return at


@kernel
def write_source_events(
    rows: Rows,
    chosen: NDArray[np.int32],
    roles: NDArray[np.uint64],
    count: int,
    sources: NDArray[np.int64],
    lanes: Matrix[np.int32],
    bases: NDArray[np.int64],
    first: int,
    prints: Matrix[np.int64],
    times: Matrix[np.int64],
    ints: Matrix[np.int64],
    floats: Matrix[np.float64],
    int_nulls: Matrix[np.uint8],
    float_nulls: Matrix[np.uint8],
    numbers: NDArray[np.int64],
    picked: Matrix[np.int32],
    counts: NDArray[np.int64],
) -> int:
    """Write one event for each chosen row and each source that takes it. Returns the number of events.

    `sources` are bits of `roles`. Lanes of other sources are null. `prints` are the fingerprints of the rows from
    `first` on. `picked` gets the rows of each source, which are numbered from the source's base on.
    """
    at = 0
    for place in range(count):
        row = chosen[place]
        for source in range(sources.size):
            if not (roles[place] >> np.uint64(sources[source])) & ONE:
                continue
            tick = rows.numbers[rows.memory[MOMENT], row]
            for column in range(times.shape[1] - prints.shape[1]):
                times[at, column] = tick
            for column in range(prints.shape[1]):
                times[at, times.shape[1] - prints.shape[1] + column] = prints[row - first, column]
            for lane in range(int_nulls.shape[0]):
                int_nulls[lane, at] = 1
            for lane in range(float_nulls.shape[0]):
                float_nulls[lane, at] = 1
            for lane in range(lanes.shape[0]):
                if lanes[lane, LANE_COMPONENT] != source:
                    continue
                number = lanes[lane, LANE_NUMBER]
                value_place = lanes[lane, LANE_PLACE]
                if value_place == IS_TRUE:
                    ints[number, at] = 1
                    int_nulls[number, at] = 0
                elif rows.valid[lanes[lane, LANE_COLUMN], row]:
                    if lanes[lane, LANE_FLOATING]:
                        floats[number, at] = rows.numbers[value_place].view(np.float64)[row]
                        float_nulls[number, at] = 0
                    else:
                        ints[number, at] = rows.numbers[value_place, row]
                        int_nulls[number, at] = 0
            numbers[at] = bases[source] + counts[source]
            picked[source, counts[source]] = row
            counts[source] += 1
            at += 1
    return at
