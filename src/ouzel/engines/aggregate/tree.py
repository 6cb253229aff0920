"""COUNT and integer SUM of several queries in one pass; common parts of their patterns are counted once.

The tree is the matrix of `matrix.py` for many patterns at a time: an event multiplies the window by I + N from the
right (a column for each of its nodes) and is removed from the left by the inverse (a row below each of its nodes). All
arithmetic is modulo 2^64, where unitriangular matrices have exact inverses; emitted values are known to be smaller. A
sum is the count of a pattern in which one symbol counts with the weight of its events: I + wN, with the inverse I - wN.

A segment X is counted once, since the start of the stream: X(t) for the arrived events, and Y(t) for the expired ones,
with their inverses. The segment between two timestamps is X(s)^-1 X(t). So a prefix that enters the segment at s adds
(row 0 of X(s)^-1) times its paths to the tree's snapshot of the segment, and a continuation after the segment at t
reads the snapshot times (the last column of X(t)). These are the snapshots of Chop-Connect, but with m + 1 numbers each
for any number of first events, and no event of the segment changes them. Expiry does the same with Y from the other
side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.segments import (
    enter,
    enter_segment,
    exit_segment,
    leave_entry,
    leave_exit,
    leave_joint,
    leave_plain,
    leave_segment,
    open_segments,
    pass_joint,
    raise_joint_bound,
)
from ouzel.engines.aggregate.tables import NARROW_MAX, Counter, Status
from ouzel.engines.aggregate.tree_tables import (
    ByElement,
    ByFinal,
    Kind,
    SharedLayout,
    SharedOutput,
    SharedState,
    SharedTables,
    Weight,
    larger_shared_output,
)
from ouzel.kernels.arrays import INT64_MAX, Matrix
from ouzel.kernels.events import NO_WINDOW
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
# Emitted values stay smaller: a count over all keys of a group, times the largest weight of an event of its query.
_TOLD_MAX = 2.0**62


class SharedInstances(NamedTuple):
    """Instances in order of tick; within a tick by rank, the largest first, then by key."""

    tick: NDArray[np.int64]
    key: NDArray[np.int32]
    element: NDArray[np.uint16]
    weight: NDArray[np.int64]  # of those that have one; empty if none has


class SharedProgress(NamedTuple):
    output: SharedOutput
    # The position of the timestamp at which 64 bits are no longer enough; -1 if they were.
    widen_at: int


class Expanded(NamedTuple):
    instances: SharedInstances
    # The number of rows of the output that they may fill.
    rows: int


def expand(layout: SharedLayout, symbols: SharedInstances) -> Expanded:
    """An instance for each element that an event may fill, where `element` has the number of its symbol.

    >>> from ouzel.engines.aggregate.tree_tables import build_shared_tables
    >>> layout = build_shared_tables([[0, 1, 0], [2, 1]], window=10, summed=[False, False], symbols=4)
    >>> ticks, numbers = np.array([1, 2, 3]), np.array([0, 1, 3], np.uint16)
    >>> made = expand(layout, SharedInstances(ticks, np.zeros(3, np.int32), numbers, ticks[:0]))
    >>> made.instances.tick.tolist(), int(made.rows)
    ([1, 1, 2, 2], 2)
    """
    count = int(layout.width[symbols.element].sum())
    made = SharedInstances(
        np.empty(count, np.int64),
        np.empty(count, np.int32),
        np.empty(count, np.uint16),
        np.empty(count if len(symbols.weight) else 0, np.int64),
    )
    rows = _expand(layout.tables.by_element, layout.first, layout.width, layout.elements, symbols, made)
    return Expanded(made, rows)


@kernel
def _expand(
    by_element: Matrix[np.int32],
    first: NDArray[np.int64],
    width: NDArray[np.int64],
    elements: NDArray[np.int32],
    symbols: SharedInstances,
    made: SharedInstances,
):
    weighted = symbols.weight.size > 0
    written = 0
    rows = 0
    for slot in range(symbols.tick.size):
        symbol = symbols.element[slot]
        for place in range(first[symbol], first[symbol] + width[symbol]):
            element = elements[place]
            made.tick[written] = symbols.tick[slot]
            made.key[written] = symbols.key[slot]
            made.element[written] = element
            if weighted:
                made.weight[written] = symbols.weight[slot]
            rows += by_element[element, ByElement.LAST_FINAL] - by_element[element, ByElement.FIRST_FINAL]
            written += 1
    return rows


def scan_shared(
    tables: SharedTables,
    state: SharedState,
    instances: SharedInstances,
    first: int,
    last: int,
    until: int,
    keys: int,
    output: SharedOutput,
    heaviest: NDArray[np.float64] | None = None,
) -> SharedProgress:
    """Count for several queries: read slots first to last - 1, none of them after `until`, and advance time to there.

    `keys` have room in the state; `heaviest` is for each query the largest weight so far, 1 if it only counts. If 64
    bits may no longer be enough, nothing is emitted for the current timestamp, and the state must not be used again,
    unless there is no window: then it is as before the timestamp.

    >>> from ouzel.engines.aggregate.tree_tables import *
    >>> layout = build_shared_tables([[0, 1], [0, 2]], window=10, summed=[False, False])
    >>> state = reserve_shared(layout.tables, new_shared_state(layout.tables), [np.zeros(1, np.int32)] * 2)
    >>> ticks, elements = np.array([1, 2, 3, 4]), layout.elements[np.array([0, 0, 1, 2])].astype(np.uint16)
    >>> instances = SharedInstances(ticks, np.zeros(4, np.int32), elements, ticks[:0])
    >>> found = scan_shared(layout.tables, state, instances, 0, 4, 4, 1, new_shared_output()).output
    >>> [(int(found.query[i]), int(found.tick[i]), int(found.value[i, 0])) for i in range(found.written[0])]
    [(0, 3, 2), (1, 4, 2)]
    """
    _open(tables, state, keys)
    scratch = np.zeros(tables.levels, np.uint64)
    most = np.ones(len(tables.summed)) if heaviest is None else heaviest
    position = first
    pieces = Pieces(last, instances.tick)
    while True:
        end = pieces.end(position)
        reached = until if end == last else instances.tick[end - 1]
        status, position = _scan(tables, state, instances, first, position, end, reached, output, most, scratch)
        if status == Status.WIDEN:
            return SharedProgress(output, position)
        if status != Status.DONE:
            output = larger_shared_output(output)
        elif end == last:
            return SharedProgress(output, -1)


@kernel
def _open(tables: SharedTables, state: SharedState, keys: int):
    """Give each new key the matrix of no events."""
    for key in range(state.opened[0], keys):
        words = state.words[key * tables.block : (key + 1) * tables.block]
        words[:] = _ZERO
        state.bound[key, :] = 1.0
        words[0] = _ONE
        for element in range(tables.by_element.shape[0]):
            row = tables.by_element[element]
            if row[ByElement.KIND] != Kind.SEGMENT:
                if tables.window != NO_WINDOW:
                    words[row[ByElement.COORDINATE] * tables.levels + row[ByElement.LEVEL]] = _ONE
                state.bound[key, row[ByElement.COORDINATE]] = 0.0
        open_segments(tables.segments, words, state.bound[key])
    state.opened[0] = max(state.opened[0], keys)


@kernel
def _scan(
    tables: SharedTables,
    state: SharedState,
    instances: SharedInstances,
    begin: int,
    first: int,
    last: int,
    until: int,
    output: SharedOutput,
    heaviest: NDArray[np.float64],
    scratch: NDArray[np.uint64],
):
    """(status, position). The instance at `position` is not processed yet; `begin` is the first one of the call."""
    # Functions get arrays one by one: tables and states as a whole would be copied.
    tick = instances.tick
    key_of = instances.key
    element_of = instances.element
    weight_of = instances.weight
    by_element = tables.by_element
    joints = tables.joints
    segments = tables.segments
    finals = tables.finals
    finals_below = tables.finals_below
    summed = tables.summed
    levels = tables.levels
    block = tables.block
    window = np.uint64(tables.window)
    words = state.words
    bound = state.bound
    key_group = state.key_group
    total = state.total
    last_row = state.last_row
    counters = state.counters
    any_summed = False
    heaviest_of_all = 1.0
    for query in range(summed.size):
        any_summed |= summed[query] != 0
        heaviest_of_all = max(heaviest_of_all, heaviest[query])
    room = output.tick.size
    written = output.written[0]
    bounded = tables.window != NO_WINDOW
    on_change = tables.on_change != 0
    # If nothing leaves, sums of all prefixes must not have wrapped when other counters take them over.
    narrow_max = NARROW_MAX if bounded else NARROW_MAX / heaviest_of_all
    oldest = counters[Counter.OLDEST] if bounded else last
    status = Status.DONE
    position = last
    # Whether the instance at `position` has been counted nevertheless.
    applied = False
    # One step more than there are instances: time advances, unless it has ended and expiry is not emitted.
    behind = last + 1 if until < INT64_MAX or on_change else last
    for slot in range(first, behind):
        now = tick[slot] if slot < last else until
        while oldest < slot and now >= tick[oldest] and np.uint64(now) - np.uint64(tick[oldest]) >= window:
            old_key = np.int64(key_of[oldest])
            told_of = on_change and by_element[element_of[oldest], ByElement.LAST_BELOW] > 0
            if told_of:
                if written + by_element[element_of[oldest], ByElement.LAST_BELOW] > room:
                    status = Status.OUTPUT_FULL
                    position = slot
                    break
                written = _tell_of_expiry(
                    by_element, finals_below, summed, levels, block, words, key_group, total, last_row, output, written,
                    old_key, element_of[oldest], np.int64(np.uint64(tick[oldest]) + window), True,
                )  # fmt: skip
            _leave(
                by_element,
                joints,
                segments,
                finals_below,
                summed,
                any_summed,
                levels,
                words,
                key_group,
                total,
                old_key,
                old_key * block,
                element_of[oldest],
                np.uint64(weight_of[oldest])
                if by_element[element_of[oldest], ByElement.WEIGHT] == Weight.OWN
                else _ONE,
            )
            if told_of:
                _tell_of_expiry(
                    by_element, finals_below, summed, levels, block, words, key_group, total, last_row, output, written,
                    old_key, element_of[oldest], np.int64(np.uint64(tick[oldest]) + window), False,
                )  # fmt: skip
            oldest += 1
        if status != Status.DONE or slot == last:
            break
        key = np.int64(key_of[slot])
        element = element_of[slot]
        base = key * block
        kind = by_element[element, ByElement.KIND]
        if kind == Kind.SEGMENT:
            if not enter_segment(by_element, segments, words, bound, key, base, element):
                status = Status.WIDEN
                position = slot
                break
            continue
        coordinate = by_element[element, ByElement.COORDINATE]
        parent = by_element[element, ByElement.PARENT]
        column = base + coordinate * levels
        before = base + parent * levels
        first_final = by_element[element, ByElement.FIRST_FINAL]
        last_final = by_element[element, ByElement.LAST_FINAL]
        if written + last_final - first_final > room:
            status = Status.OUTPUT_FULL
            position = slot
            break
        old = words[column]
        if kind == Kind.PLAIN:
            gain = words[before]
            weight_here = by_element[element, ByElement.WEIGHT]
            if weight_here == Weight.NONE:
                reach = bound[key, coordinate] + bound[key, parent]
                if reach >= narrow_max:
                    bound[key, parent] = float(gain)
                    reach = float(old) + float(gain)
                    if reach >= narrow_max:
                        status = Status.WIDEN
                        position = slot
                        break
                bound[key, coordinate] = reach
            # Unsigned, so that no index is checked for counting from the end.
            target = np.uint64(column)
            source = np.uint64(before)
            if weight_here == Weight.OWN:
                weight = np.uint64(weight_of[slot])
                gain *= weight
                for row in range(np.uint64(levels)):
                    words[target + row] += weight * words[source + row]
            else:
                for row in range(np.uint64(levels)):
                    words[target + row] += words[source + row]
        else:
            snapshot = by_element[element, ByElement.SNAPSHOT]
            # Sums may wrap; their emitted values are bounded by the count.
            if by_element[element, ByElement.WEIGHT] == Weight.NONE and not raise_joint_bound(
                by_element, joints, segments, levels, words, bound, key, base, element, snapshot
            ):
                status = Status.WIDEN
                position = slot
                break
            if kind == Kind.ENTRY:
                gain = words[before]
                enter(by_element, joints, segments, words, base, element, np.uint64(column), np.uint64(before))
            elif kind == Kind.EXIT:
                gain = exit_segment(joints, segments, words, base, snapshot, np.uint64(column))
            else:
                gain = pass_joint(by_element, joints, segments, levels, words, scratch, base, element)
        for place in range(first_final, last_final):
            column_of_row = finals[place, ByFinal.COLUMN]
            # A count is emitted if it changed; sums go with it, and may be unchanged.
            if gain == _ZERO and column_of_row == 0:
                continue
            query = finals[place, ByFinal.QUERY]
            group = key_group[query, key]
            value = old + gain
            if summed[query]:
                pattern = finals[place, ByFinal.PATTERN]
                total[pattern, group] += gain
                value = total[pattern, group]
            if column_of_row == 0 and float(value) * heaviest[query] >= _TOLD_MAX:
                status = Status.WIDEN
                break
            row = last_row[query, group]
            # One row for each timestamp: the current one, or a new one.
            if row >= written or output.tick[row] != now or output.query[row] != query or output.group[row] != group:
                row = written
                written += 1
                last_row[query, group] = row
                output.query[row] = query
                output.tick[row] = now
                output.group[row] = group
                output.completed[row] = 0
                if on_change:
                    output.before[row] = value - gain
            output.value[row, column_of_row] = value
            if column_of_row == 0:
                output.completed[row] = 1
        if status != Status.DONE:
            position = slot
            applied = True
            break
    if status == Status.WIDEN:
        # Nothing of the timestamp is emitted here.
        moment = tick[position]
        while written > 0 and output.tick[written - 1] == moment:
            written -= 1
        counted = position + 1 if applied else position
        while position > begin and tick[position - 1] == moment:
            position -= 1
        if not bounded:
            for slot in range(counted - 1, position - 1, -1):
                place = key_of[slot] * block
                row = by_element[element_of[slot]]
                weight = np.uint64(weight_of[slot]) if row[ByElement.WEIGHT] == Weight.OWN else _ONE
                words[place + row[ByElement.COORDINATE]] -= weight * words[place + row[ByElement.PARENT]]
    if not bounded:
        oldest = counters[Counter.OLDEST]
    counters[Counter.INSTANCES] += position - first
    counters[Counter.EXPIRED] += oldest - counters[Counter.OLDEST]
    counters[Counter.ROWS] += written - output.written[0]
    counters[Counter.OLDEST] = oldest
    output.written[0] = written
    return status, position


# ── Expiry ─────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _tell_of_expiry(
    by_element, finals_below, summed, levels, block, words, key_group, total, last_row, output, written, key, element,
    moment, leaving,
):  # fmt: skip
    """Rows for the counts that a first event takes part in: made while it is `leaving`, filled after it has left."""
    for place in range(by_element[element, ByElement.FIRST_BELOW], by_element[element, ByElement.LAST_BELOW]):
        query = finals_below[place, 2]
        group = key_group[query, key]
        value = total[finals_below[place, 1], group]
        if not summed[query]:
            value = words[key * block + finals_below[place, 0] * levels]
        row = last_row[query, group]
        if leaving and (
            row >= written or output.tick[row] != moment or output.query[row] != query or output.group[row] != group
        ):
            row = written
            written += 1
            last_row[query, group] = row
            output.query[row] = query
            output.tick[row] = moment
            output.group[row] = group
            output.completed[row] = 0
            output.before[row] = value
        output.value[row, 0] = value
    return written


# ── Leaving the window ─────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _leave(
    by_element, joints, segments, finals_below, summed, any_summed, levels, words, key_group, total, key, base, element,
    weight,
):  # fmt: skip
    """The oldest event leaves."""
    kind = by_element[element, ByElement.KIND]
    first_below = by_element[element, ByElement.FIRST_BELOW]
    last_below = by_element[element, ByElement.LAST_BELOW] if any_summed else first_below
    for place in range(first_below, last_below):
        query = finals_below[place, 2]
        if summed[query]:
            total[finals_below[place, 1], key_group[query, key]] -= words[base + finals_below[place, 0] * levels]
    if kind == Kind.SEGMENT:
        leave_segment(by_element, segments, words, base, element)
    elif kind == Kind.PLAIN:
        first = by_element[element, ByElement.COORDINATE]
        level = by_element[element, ByElement.LEVEL]
        place = np.uint64(base + first * levels + level)
        for _ in range(by_element[element, ByElement.END] - first):
            words[place - _ONE] -= weight * words[place]
            place += np.uint64(levels)
        leave_plain(by_element, joints, segments, words, base, element, weight)
    elif kind == Kind.ENTRY:
        leave_entry(by_element, joints, segments, levels, words, base, element)
    elif kind == Kind.EXIT:
        leave_exit(by_element, joints, segments, levels, words, base, element)
    else:
        leave_joint(by_element, joints, segments, levels, words, base, element)
    for place in range(first_below, last_below):
        query = finals_below[place, 2]
        if summed[query]:
            total[finals_below[place, 1], key_group[query, key]] += words[base + finals_below[place, 0] * levels]
