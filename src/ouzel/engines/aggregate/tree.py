"""COUNT and integer SUM of several queries in one pass. Common parts of their patterns are counted once.

The tree is the matrix of `matrix.py` for many patterns at a time. A new event multiplies the window's matrix by I + N
from the right, which changes one column for each of its nodes. An expired event is removed by the inverse from the
left, which changes one row below each of its nodes. All arithmetic is modulo 2^64, where unitriangular matrices have
exact inverses. Emitted values are known to be smaller. A sum is the count of a pattern in which one symbol counts with
the weight w of its events: its matrix is I + wN, with the inverse I - wN.

A segment is counted once, since the start of the stream, by two matrices with their inverses: X(t) for the events that
have arrived, and Y(t) for those that have expired. The events of the segment between times s and t give X(s)^-1 X(t).
So a prefix that enters the segment at s adds (row 0 of X(s)^-1) times its paths to the tree's snapshot of the segment.
A continuation after the segment at t reads the snapshot times (the last column of X(t)). These are the snapshots of
Chop-Connect, but one has m + 1 numbers for any number of first events, and no event of the segment changes it. Expiry
works in the same way with Y, from the left. The four matrices are m + 1 square. X and Y are stored by columns, their
inverses by rows, each WIDTH words long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.tables import (
    LANES,
    NARROW_MAX,
    ByElement,
    ByFinal,
    ByJoint,
    BySegment,
    Counter,
    ElementKind,
    SharedLayout,
    SharedOutput,
    SharedState,
    SharedTables,
    Status,
    Weight,
    larger_shared_output,
)
from ouzel.kernels.arrays import INT64_MAX, Matrix
from ouzel.kernels.events import NO_WINDOW
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_LANES = np.uint64(LANES)
# Emitted values stay smaller: a count over all keys of a group, times the largest weight of an event of its query.
_EMITTED_MAX = 2.0**62


class SharedInstances(NamedTuple):
    """Instances ordered by tick; within a tick by rank, the largest first."""

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
    """One instance for each element that an event may fill. In `symbols`, `element` is the number of a symbol.

    >>> from ouzel.engines.aggregate.tables import build_shared_tables
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

    The state has room for `keys` keys. `heaviest` is the largest weight so far, for each query; 1 if it only counts. If
    64 bits may no longer be enough, nothing is emitted for the current timestamp. Then the state is invalid, except
    without a window: there it is as before the timestamp.

    >>> from ouzel.engines.aggregate.tables import *
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
    """Set the matrix of each new key to the identity, the product of no events."""
    for key in range(state.opened[0], keys):
        words = state.words[key * tables.block : (key + 1) * tables.block]
        words[:] = _ZERO
        state.bound[key, :] = 1.0
        words[0] = _ONE
        for element in range(tables.by_element.shape[0]):
            row = tables.by_element[element]
            if row[ByElement.KIND] != ElementKind.SEGMENT:
                if tables.window != NO_WINDOW:
                    words[row[ByElement.COORDINATE] * tables.levels + row[ByElement.LEVEL]] = _ONE
                state.bound[key, row[ByElement.COORDINATE]] = 0.0
        _open_segments(tables.segments, words, state.bound[key])
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
    """(status, position): count instances. The one at `position` has not been counted yet; `begin` is the first one of
    the call.
    """
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
    columns = tables.columns
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
            emits = on_change and by_element[element_of[oldest], ByElement.LAST_BELOW] > 0
            if emits:
                if written + by_element[element_of[oldest], ByElement.LAST_BELOW] > room:
                    status = Status.OUTPUT_FULL
                    position = slot
                    break
                written = _emit_expiry(
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
            if emits:
                _emit_expiry(
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
        if kind == ElementKind.SEGMENT:
            if not _enter_segment(by_element, segments, words, bound, key, base, element):
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
        if kind == ElementKind.PLAIN:
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
            if by_element[element, ByElement.WEIGHT] == Weight.NONE and not _raise_joint_bound(
                by_element, joints, segments, levels, words, bound, key, base, element, snapshot
            ):
                status = Status.WIDEN
                position = slot
                break
            gain = _pass_joint(by_element, joints, segments, levels, words, scratch, base, element)
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
            if column_of_row == 0 and float(value) * heaviest[query] >= _EMITTED_MAX:
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
                if summed[query] == 2:
                    # The pattern that made the row may have no part in some of the sums.
                    for other in range(1, columns):
                        output.value[row, other] = total[other, group]
            output.value[row, column_of_row] = value
            if column_of_row == 0:
                output.completed[row] = 1
        if status != Status.DONE:
            position = slot
            applied = True
            break
    if status == Status.WIDEN:
        # Nothing of the timestamp is emitted here.
        now = tick[position]
        while written > 0 and output.tick[written - 1] == now:
            written -= 1
        counted = position + 1 if applied else position
        while position > begin and tick[position - 1] == now:
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
def _emit_expiry(
    by_element, finals_below, summed, levels, block, words, key_group, total, last_row, output, written, key, element,
    now, leaving,
):  # fmt: skip
    """Rows of the counts in which an expiring first event takes part. Call it with `leaving` to make the rows before
    the event is removed, and afterwards to fill them.
    """
    for place in range(by_element[element, ByElement.FIRST_BELOW], by_element[element, ByElement.LAST_BELOW]):
        query = finals_below[place, 2]
        group = key_group[query, key]
        value = total[finals_below[place, 1], group]
        if not summed[query]:
            value = words[key * block + finals_below[place, 0] * levels]
        row = last_row[query, group]
        if leaving and (
            row >= written or output.tick[row] != now or output.query[row] != query or output.group[row] != group
        ):
            row = written
            written += 1
            last_row[query, group] = row
            output.query[row] = query
            output.tick[row] = now
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
    """Remove an expired event, the oldest one, from the counters of a key."""
    kind = by_element[element, ByElement.KIND]
    first_below = by_element[element, ByElement.FIRST_BELOW]
    last_below = by_element[element, ByElement.LAST_BELOW] if any_summed else first_below
    for place in range(first_below, last_below):
        query = finals_below[place, 2]
        if summed[query]:
            total[finals_below[place, 1], key_group[query, key]] -= words[base + finals_below[place, 0] * levels]
    if kind == ElementKind.SEGMENT:
        _leave_segment(by_element, segments, words, base, element)
    elif kind == ElementKind.PLAIN:
        first = by_element[element, ByElement.COORDINATE]
        level = by_element[element, ByElement.LEVEL]
        place = np.uint64(base + first * levels + level)
        for _ in range(by_element[element, ByElement.END] - first):
            words[place - _ONE] -= weight * words[place]
            place += np.uint64(levels)
        _leave_plain(by_element, joints, segments, words, base, element, weight)
    else:
        _leave_joint(by_element, joints, segments, levels, words, base, element)
    for place in range(first_below, last_below):
        query = finals_below[place, 2]
        if summed[query]:
            total[finals_below[place, 1], key_group[query, key]] += words[base + finals_below[place, 0] * levels]


# ── Lanes ──────────────────────────────────────────────────────────────────────────────────────────
#
# Segments are short: two lanes are written out, which spares the checks that a compiled loop begins with.


@helper(inline=True)
def _add_lane(words, target, source, factor):
    # Read before anything is written, because the compiler cannot know that they do not overlap.
    first = words[target] + factor * words[source]
    second = words[target + _ONE] + factor * words[source + _ONE]
    third = words[target + _TWO] + factor * words[source + _TWO]
    fourth = words[target + _THREE] + factor * words[source + _THREE]
    words[target] = first
    words[target + _ONE] = second
    words[target + _TWO] = third
    words[target + _THREE] = fourth


@helper(inline=True)
def _add_times(words, target, source, width, factor):
    """words[target:] += factor * words[source:], over whole lanes."""
    _add_lane(words, target, source, factor)
    if width > _LANES:
        _add_lane(words, target + _LANES, source + _LANES, factor)
        if width > _TWO * _LANES:
            _add_more(words, target, source, width, factor)


@helper
def _add_more(words, target, source, width, factor):
    for at in range(_TWO * _LANES, width):
        words[target + at] += factor * words[source + at]


@helper(inline=True)
def _lane_product(words, left, right):
    return (
        words[left] * words[right]
        + words[left + _ONE] * words[right + _ONE]
        + words[left + _TWO] * words[right + _TWO]
        + words[left + _THREE] * words[right + _THREE]
    )


@helper(inline=True)
def _product(words, left, right, width):
    """The sum of words[left + i] * words[right + i], over whole lanes."""
    found = _lane_product(words, left, right)
    if width > _LANES:
        found += _lane_product(words, left + _LANES, right + _LANES)
        if width > _TWO * _LANES:
            found += _product_of_more(words, left, right, width)
    return found


@helper
def _product_of_more(words, left, right, width):
    found = _ZERO
    for at in range(_TWO * _LANES, width):
        found += words[left + at] * words[right + at]
    return found


# ── Segments ───────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _matrix(segments, base, segment, number):
    """(start, length of a column or row) of one of a segment's four matrices."""
    width = np.uint64(segments[segment, BySegment.WIDTH])
    size = np.uint64(segments[segment, BySegment.LENGTH] + 1) * width
    return np.uint64(base + segments[segment, BySegment.WORDS]) + number * size, width


@helper(inline=True)
def _last_column(segments, base, segment, number):
    """(start, length) of the last column of one of a segment's four matrices."""
    start, width = _matrix(segments, base, segment, number)
    return start + np.uint64(segments[segment, BySegment.LENGTH]) * width, width


@helper
def _open_segments(segments, words, bound):
    """Set the matrices of a key's segments to the identity, the product of no events."""
    for segment in range(segments.shape[0]):
        side = segments[segment, BySegment.LENGTH] + 1
        for number in range(4):
            start, width = _matrix(segments, 0, segment, np.uint64(number))
            for place in range(side):
                words[start + np.uint64(place) * (width + _ONE)] = _ONE
        for place in range(1, side):
            bound[segments[segment, BySegment.BOUND] + place] = 0.0


@helper(inline=True)
def _enter_segment(by_element, segments, words, bound, key, base, element):
    """Count a new event of a segment. Returns False if the number of paths through the segment may not fit 64 bits."""
    segment = by_element[element, ByElement.SEGMENT]
    place = by_element[element, ByElement.PLACE]
    side = segments[segment, BySegment.LENGTH] + 1
    width = segments[segment, BySegment.WIDTH]
    start = base + segments[segment, BySegment.WORDS]
    first = segments[segment, BySegment.BOUND]
    reach = bound[key, first + place] + bound[key, first + place - 1]
    if reach >= NARROW_MAX:
        for one in range(1, side):
            bound[key, first + one] = float(_ways(words, start, side, width, one))
        reach = bound[key, first + place] + bound[key, first + place - 1]
        if reach >= NARROW_MAX:
            return False
    bound[key, first + place] = reach
    _multiply(words, np.uint64(start), np.uint64(side), np.uint64(width), np.uint64(place))
    return True


@helper(inline=True)
def _leave_segment(by_element, segments, words, base, element):
    """Count an expired event of a segment."""
    segment = by_element[element, ByElement.SEGMENT]
    start, width = _matrix(segments, base, segment, _TWO)
    side = np.uint64(segments[segment, BySegment.LENGTH] + 1)
    _multiply(words, start, side, width, np.uint64(by_element[element, ByElement.PLACE]))


@helper(inline=True)
def _multiply(words, start, side, width, place):
    """Multiply a matrix, stored by columns, by I + N; and update its inverse, which follows it and is stored by
    rows.
    """
    column = start + place * width
    inverse = start + (side + place) * width
    # All of them, though some are zero: loops of constant length are never mispredicted.
    _add_times(words, column, column - width, width, _ONE)
    _add_times(words, inverse - width, inverse, width, _ZERO - _ONE)


@helper
def _ways(words, start, side, width, place):
    """The number of paths in the window from the entry of a segment to a place in it."""
    return _product(words, np.uint64(start + 3 * side * width), np.uint64(start + place * width), np.uint64(width))


# ── Nodes beside segments ──────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _raise_joint_bound(by_element, joints, segments, levels, words, bound, key, base, element, snapshot):
    """Raise the bound of a node's column for a new event. Returns False if 64 bits may no longer be enough."""
    coordinate = by_element[element, ByElement.COORDINATE]
    parent = by_element[element, ByElement.PARENT]
    ways = 1.0
    if snapshot >= 0:
        segment = joints[snapshot, ByJoint.SEGMENT]
        ways = bound[key, segments[segment, BySegment.BOUND] + segments[segment, BySegment.LENGTH]]
    reach = bound[key, coordinate] + bound[key, parent] * ways
    if reach >= NARROW_MAX:
        if snapshot >= 0:
            segment = joints[snapshot, ByJoint.SEGMENT]
            length = segments[segment, BySegment.LENGTH]
            start = base + segments[segment, BySegment.WORDS]
            ways = float(_ways(words, start, length + 1, segments[segment, BySegment.WIDTH], length))
        bound[key, parent] = float(words[base + parent * levels])
        reach = float(words[base + coordinate * levels]) + bound[key, parent] * ways
        if reach >= NARROW_MAX:
            return False
    bound[key, coordinate] = reach
    return True


@helper
def _pass_joint(by_element, joints, segments, levels, words, scratch, base, element):
    """Count a new event of a node next to segments. Returns the number of paths from the root that it adds."""
    column = np.uint64(base + by_element[element, ByElement.COORDINATE] * levels)
    before = np.uint64(base + by_element[element, ByElement.PARENT] * levels)
    level = np.uint64(by_element[element, ByElement.LEVEL])
    snapshot = by_element[element, ByElement.SNAPSHOT]
    # The gain of each row: the rows of the node before, or those of the snapshot, carried through the segment.
    if snapshot < 0:
        for one in range(level):
            scratch[one] = words[before + one]
    else:
        segment = joints[snapshot, ByJoint.SEGMENT]
        side = np.uint64(segments[segment, BySegment.LENGTH] + 1)
        last_column, width = _last_column(segments, base, segment, _ZERO)
        held = np.uint64(base + joints[snapshot, ByJoint.WORDS])
        entry = np.uint64(joints[snapshot, ByJoint.LEVEL])
        for one in range(entry - _ONE):
            scratch[one] = _product(words, held, last_column, width)
            held += width
        scratch[entry - _ONE] = _ZERO
        for place in range(side):
            scratch[entry + place] = words[last_column + place]
    for one in range(level):
        words[column + one] += scratch[one]
    joint = by_element[element, ByElement.FIRST_JOINT]
    while joint < by_element[element, ByElement.LAST_JOINT]:
        inverse, width = _matrix(segments, base, joints[joint, ByJoint.SEGMENT], _ONE)
        held = np.uint64(base + joints[joint, ByJoint.WORDS])
        for one in range(level):
            _add_times(words, held, inverse, width, scratch[one])
            held += width
        joint = joints[joint, ByJoint.NEXT]
    return scratch[0]


@helper(inline=True)
def _leave_plain(by_element, joints, segments, words, base, element, weight):
    """Remove an expired event from the snapshots below its node, which is not next to a segment."""
    for joint in range(by_element[element, ByElement.FIRST_INNER], by_element[element, ByElement.LAST_JOINT]):
        width = np.uint64(segments[joints[joint, ByJoint.SEGMENT], BySegment.WIDTH])
        row = np.uint64(base + joints[joint, ByJoint.WORDS]) + np.uint64(by_element[element, ByElement.LEVEL]) * width
        _add_times(words, row - width, row, width, _ZERO - weight)


@helper
def _leave_joint(by_element, joints, segments, levels, words, base, element):
    """Remove an expired event of a node before or after a segment."""
    level = np.uint64(by_element[element, ByElement.LEVEL])
    snapshot = by_element[element, ByElement.SNAPSHOT]
    # The rows that lose the paths through the event, and where their shares are read; if no segment comes before it,
    # one row loses all of them.
    shares = _ZERO
    row = level - _ONE
    rows = _ZERO
    wide = _ZERO
    if snapshot >= 0:
        segment = joints[snapshot, ByJoint.SEGMENT]
        rows = np.uint64(segments[segment, BySegment.LENGTH] + 1)
        shares, wide = _last_column(segments, base, segment, _TWO)
        row = np.uint64(joints[snapshot, ByJoint.LEVEL])
    for coordinate in range(by_element[element, ByElement.COORDINATE], by_element[element, ByElement.END]):
        column = np.uint64(base + coordinate * levels)
        _take_away(words, column + row, wide, shares, words[column + level])
    for joint in range(by_element[element, ByElement.FIRST_INNER], by_element[element, ByElement.FIRST_JOINT]):
        width = np.uint64(segments[joints[joint, ByJoint.SEGMENT], BySegment.WIDTH])
        held = np.uint64(base + joints[joint, ByJoint.WORDS])
        _take_rows_away(words, held + row * width, width, rows, shares, held + level * width)
    joint = by_element[element, ByElement.FIRST_JOINT]
    last_joint = by_element[element, ByElement.LAST_JOINT]
    while joint < last_joint:
        # Below the segment the node's own row is that of the segment's entry, for the current window.
        segment = joints[joint, ByJoint.SEGMENT]
        side = np.uint64(segments[segment, BySegment.LENGTH] + 1)
        left, width = _matrix(segments, base, segment, _THREE)
        held = np.uint64(base + joints[joint, ByJoint.WORDS]) + row * width
        entry = np.uint64(joints[joint, ByJoint.LEVEL])
        _take_rows_away(words, held, width, rows, shares, left)
        for coordinate in range(joints[joint, ByJoint.FIRST], joints[joint, ByJoint.END]):
            column = np.uint64(base + coordinate * levels)
            ways = _product(words, left, column + entry, width)
            _take_away(words, column + row, wide, shares, ways)
        for inner in range(joint + 1, joints[joint, ByJoint.NEXT]):
            inner_width = np.uint64(segments[joints[inner, ByJoint.SEGMENT], BySegment.WIDTH])
            held = np.uint64(base + joints[inner, ByJoint.WORDS])
            for place in range(inner_width):
                ways = _ZERO
                for one in range(side):
                    ways += words[left + one] * words[held + (entry + one) * inner_width + place]
                if rows == _ZERO:
                    words[held + row * inner_width + place] -= ways
                for one in range(rows):
                    words[held + (row + one) * inner_width + place] -= words[shares + one] * ways
        joint = joints[joint, ByJoint.NEXT]


@helper(inline=True)
def _take_away(words, place, wide, shares, ways):
    """Subtract the paths through an expired event from the rows of a column that counted them."""
    if wide == _ZERO:
        words[place] -= ways
    else:
        _add_times(words, place, shares, wide, _ZERO - ways)


@helper(inline=True)
def _take_rows_away(words, place, width, rows, shares, ways):
    """Like `_take_away`, for a snapshot, whose rows are contiguous."""
    if rows == _ZERO:
        _add_times(words, place, ways, width, _ZERO - _ONE)
    for one in range(rows):
        _add_times(words, place + one * width, ways, width, _ZERO - words[shares + one])
