"""The most common query, COUNT over events that each fill one place, in as few steps as possible.

The same matrices and answers as `matrix.py`, for tables with only counts of 64 bits: no Kleene plus, no measures, no
EMIT ON CHANGE. When 64 bits may no longer be enough, `matrix.py` continues with the current timestamp.
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.aggregate.matrix_state import MatrixState
from ouzel.engines.aggregate.tables import (
    NARROW_MAX,
    ByComponent,
    Counter,
    CounterInstances,
    CounterOutput,
    CounterTables,
    Kind,
    Phase,
    Status,
    Way,
)
from ouzel.kernels.arrays import INT64_MAX
from ouzel.kernels.events import NO_WINDOW
from ouzel.kernels.jit import helper, kernel

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
# Each key's count is smaller than NARROW_MAX, and the total over keys stays so far below 2^64 that it never wraps.
_TOTAL_MAX = np.uint64(1 << 62)


def is_plain(tables: CounterTables) -> bool:
    """Whether this file can count a query."""
    return bool(
        tables.way in (Way.INVERSE, Way.STACKS)
        and not tables.on_change
        and not len(tables.by_measure)
        and not tables.has_negated_start
        and not tables.by_component[:, ByComponent.KLEENE].max() > 0
        and tables.window != NO_WINDOW
    )


@kernel
def scan_plain(
    tables: CounterTables,
    state: MatrixState,
    instances: CounterInstances,
    first: int,
    last: int,
    until: int,
    summed: bool,
    output: CounterOutput,
):
    """(status, position), as the scan of `matrix.py`. `summed`: some group has several keys."""
    tick = instances.tick
    key_of = instances.key
    component_of = instances.component
    by_component = tables.by_component
    columns = tables.columns
    final = tables.final
    window = np.uint64(tables.window)
    stacks = state.way[0] == Way.STACKS
    has_negatives = by_component.shape[0] > columns - 1
    words = state.words
    bound = state.bound
    key_group = state.key_group
    total = state.total
    older_row = state.older_row
    older_words = state.older_words
    oldest_start = state.oldest_start
    counters = state.counters
    out_tick = output.tick
    out_group = output.group
    out_words = output.words
    out_reals = output.reals
    room = out_tick.size
    block = columns * columns
    written = output.written[0]
    oldest = counters[Counter.OLDEST]
    began = written  # the first row of the timestamp
    moment = tick[first] if first < last else np.int64(0)
    while began > 0 and first < last and out_tick[began - 1] == moment:
        # An earlier call ended within the timestamp.
        began -= 1
    starts = 0
    status = Status.DONE
    position = last
    for slot in range(first, last):
        now = tick[slot]
        if now != moment:
            moment = now
            began = written
        # ── What has left the window.
        while oldest < slot and np.uint64(now) - np.uint64(tick[oldest]) >= window:
            left = component_of[oldest]
            if stacks:
                if left == tables.first and not _leave(tables, state, instances, oldest, summed):
                    status = Status.ROOM
                    break
            else:
                base = np.int64(key_of[oldest]) * block
                own = by_component[left, ByComponent.OWN]
                if own == 1 and summed:
                    total[key_group[key_of[oldest]], 0] -= words[base + final * columns + 1]
                # All columns, though those before its own are zero: a loop of constant length is never mispredicted.
                for column in range(columns):
                    words[base + column * columns + own - 1] -= words[base + column * columns + own]
            oldest += 1
        if status != Status.DONE:
            position = slot
            break
        # ── What comes.
        component = component_of[slot]
        key = np.int64(key_of[slot])
        own = by_component[component, ByComponent.OWN]
        base = key * block
        column = base + own * columns
        if has_negatives and by_component[component, ByComponent.KIND] != Kind.POSITIVE:
            # A negative event: no prefix continues from this column.
            for place in range(column, column + columns):
                words[place] = _ZERO
            _chain(state, key, slot, False)
            continue
        reach = bound[key, own] + bound[key, own - 1]
        if reach >= NARROW_MAX:
            reach = _measured_reach(tables, state, key, own)
            if reach >= NARROW_MAX:
                status = Status.WIDEN
                position = slot
                break
        bound[key, own] = reach
        if own == final:
            gain = words[column - columns]
            older = oldest_start[key] if stacks else -1
            if older >= 0 and older_row[older] >= 0:
                row = older_row[older]
                gain = _ZERO
                for middle in range(own):
                    gain += older_words[row, middle] * words[column - columns + middle]
            else:
                older = -1
            if gain != _ZERO:
                if written == room:
                    status = Status.OUTPUT_FULL
                    position = slot
                    break
                group = key_group[key]
                if summed:
                    if total[group, 0] + gain >= _TOTAL_MAX:
                        status = Status.WIDEN
                        position = slot
                        break
                    total[group, 0] += gain
                    value = total[group, 0]
                elif older >= 0:
                    value = gain
                    row = older_row[older]
                    for middle in range(own + 1):
                        value += older_words[row, middle] * words[column + middle]
                else:
                    value = gain + words[column]
                # Events of one timestamp and key follow each other; those of one group may not.
                place = written
                if written > began:
                    place = _row_of_group(out_group, began, written, group)
                out_tick[place] = now
                out_group[place] = group
                out_words[place, 0] = value
                out_words[place, 1] = _ZERO
                out_reals[place, 0] = float(value)
                output.completed[place] = 1
                written += place == written
        for row in range(columns):
            words[column + row] += words[column - columns + row]
        starts += own == 1
        if stacks:
            _chain(state, key, slot, own == 1)
    output.written[0] = written
    counters[Counter.OLDEST] = oldest
    counters[Counter.INSTANCES] += position - first
    counters[Counter.STARTS] += starts
    if status == Status.WIDEN:
        # `matrix.py` continues the timestamp; its rows so far are emitted when it is complete.
        for row in range(began, written):
            state.groups.mark[out_group[row]] = 2
            state.groups.touched[row - began] = out_group[row]
        counters[Counter.TOUCHED] = written - began
        counters[Counter.MOMENT] = moment
        counters[Counter.PHASE] = Phase.WORK
        output.written[0] = began
    if status == Status.DONE and until < INT64_MAX:
        while oldest < last and until >= tick[oldest] and np.uint64(until) - np.uint64(tick[oldest]) >= window:
            if stacks:
                if component_of[oldest] == tables.first and not _leave(tables, state, instances, oldest, summed):
                    status = Status.ROOM
                    break
            else:
                base = np.int64(key_of[oldest]) * block
                own = by_component[component_of[oldest], ByComponent.OWN]
                if own == 1 and summed:
                    total[key_group[key_of[oldest]], 0] -= words[base + final * columns + 1]
                for column in range(columns):
                    words[base + column * columns + own - 1] -= words[base + column * columns + own]
            oldest += 1
        counters[Counter.OLDEST] = oldest
    return status, position


@helper
def _row_of_group(out_group, began, written, group):
    for row in range(written - 1, began - 1, -1):
        if out_group[row] == group:
            return row
    return written


@helper(inline=True)
def _chain(state, key, slot, starts):
    """Link an event to the one before it of its key, and a first event to the first event before it."""
    state.below[slot] = state.newest[key]
    state.newest[key] = slot
    if starts:
        state.start_count[key] += 1
        state.next_start[slot] = -1
        state.older_row[slot] = -1
        if state.oldest_start[key] < 0:
            state.oldest_start[key] = slot
        else:
            state.next_start[state.newest_start[key]] = slot
        state.newest_start[key] = slot


@helper
def _measured_reach(tables, state, key, own):
    """The bound from the current counters, with one more event."""
    columns = tables.columns
    base = key * columns * columns
    bound = state.bound
    for column in range(columns):
        largest = _ONE
        for row in range(columns):
            largest = max(largest, state.words[base + column * columns + row])
        bound[key, column] = float(largest)
    if state.way[0] == Way.STACKS:
        start = state.oldest_start[key]
        if start >= 0 and state.older_row[start] >= 0:
            for column in range(columns):
                reached = 0.0
                for middle in range(column + 1):
                    left = float(state.older_words[state.older_row[start], middle])
                    reached += left * float(state.words[base + column * columns + middle])
                bound[key, column] = max(bound[key, column], reached)
    return bound[key, own] + bound[key, own - 1]


@helper(inline=True)
def value_of_key(tables, state, key):
    """The number of matches of a key."""
    columns = tables.columns
    column = key * columns * columns + tables.final * columns
    start = state.oldest_start[key] if state.way[0] == Way.STACKS else -1
    if start < 0 or state.older_row[start] < 0:
        return state.words[column]
    value = _ZERO
    for middle in range(columns):
        value += state.older_words[state.older_row[start], middle] * state.words[column + middle]
    return value


@helper(inline=True)
def _leave(tables, state, instances, slot, summed):
    """Remove a first event from two stacks. False if that needs more room; then nothing has changed."""
    key = np.int64(instances.key[slot])
    group = state.key_group[key]
    if state.older_row[slot] < 0 and state.free_count[0] < state.start_count[key]:
        return False
    if summed:
        state.total[group, 0] -= value_of_key(tables, state, key)
    if state.older_row[slot] < 0:
        state.counters[Counter.FLIPS] += 1
        # The call passes arrays one by one: the state as a whole would be copied.
        _flip(
            tables.columns, tables.by_component, instances.component, state.below, state.newest[key], slot,
            state.words[key * tables.columns * tables.columns : (key + 1) * tables.columns * tables.columns],
            state.flip_words, state.older_row, state.older_words, state.free_rows, state.free_count,
        )  # fmt: skip
    state.free_rows[state.free_count[0]] = state.older_row[slot]
    state.free_count[0] += 1
    state.start_count[key] -= 1
    state.oldest_start[key] = state.next_start[slot]
    if summed:
        state.total[group, 0] += value_of_key(tables, state, key)
    state.counters[Counter.EXPIRED] += 1
    return True


@helper
def _flip(
    columns, by_component, component_of, below, slot, oldest, words, product, older_row, older_words, free_rows,
    free_count,
):  # fmt: skip
    """The newer events become the older: from the newest back to the oldest, the top row is stored at first events."""
    for place in range(columns * columns):
        product[place] = _ZERO
        words[place] = _ZERO
    for row in range(columns):
        product[row * columns + row] = _ONE
        words[row * columns + row] = _ONE
    while slot >= oldest:
        component = component_of[slot]
        own = by_component[component, ByComponent.OWN]
        if by_component[component, ByComponent.KIND] != Kind.POSITIVE:
            for column in range(columns):
                product[own * columns + column] = _ZERO
        else:
            # Row by row here, because rows change.
            above = (own - 1) * columns
            for column in range(columns):
                product[above + column] += product[above + columns + column]
            if own == 1:
                free_count[0] -= 1
                row = free_rows[free_count[0]]
                older_row[slot] = row
                for column in range(columns):
                    older_words[row, column] = product[column]
        slot = below[slot]
