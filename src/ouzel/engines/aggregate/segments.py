"""Segments that several patterns share, and the tree nodes next to them, for `tree.py`.

A segment has four matrices of side m + 1: for the arrived events, their inverse, for the expired events, their inverse.
The first and the third are stored column by column, the inverses row by row; each column and row is WIDTH words long.
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.aggregate.tables import NARROW_MAX
from ouzel.engines.aggregate.tree_tables import LANES, ByElement, ByJoint, BySegment
from ouzel.kernels.jit import helper

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_LANES = np.uint64(LANES)


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
def add_times(words, target, source, width, factor):
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
    """The sum of words[left:] * words[right:], over whole lanes."""
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
    """The start of one of a segment's four matrices, and the length of its columns or rows."""
    width = np.uint64(segments[segment, BySegment.WIDTH])
    size = np.uint64(segments[segment, BySegment.LENGTH] + 1) * width
    return np.uint64(base + segments[segment, BySegment.WORDS]) + number * size, width


@helper(inline=True)
def _last_column(segments, base, segment, number):
    """The start of the last column of such a matrix, and its length."""
    start, width = _matrix(segments, base, segment, number)
    return start + np.uint64(segments[segment, BySegment.LENGTH]) * width, width


@helper
def open_segments(segments, words, bound):
    """The segments of a key before its first event."""
    for segment in range(segments.shape[0]):
        side = segments[segment, BySegment.LENGTH] + 1
        for number in range(4):
            start, width = _matrix(segments, 0, segment, np.uint64(number))
            for place in range(side):
                words[start + np.uint64(place) * (width + _ONE)] = _ONE
        for place in range(1, side):
            bound[segments[segment, BySegment.BOUND] + place] = 0.0


@helper(inline=True)
def enter_segment(by_element, segments, words, bound, key, base, element):
    """An event of a segment arrives. False if the number of paths through it may not fit 64 bits."""
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
def leave_segment(by_element, segments, words, base, element):
    """The oldest event of a segment leaves."""
    segment = by_element[element, ByElement.SEGMENT]
    start, width = _matrix(segments, base, segment, _TWO)
    side = np.uint64(segments[segment, BySegment.LENGTH] + 1)
    _multiply(words, start, side, width, np.uint64(by_element[element, ByElement.PLACE]))


@helper(inline=True)
def _multiply(words, start, side, width, place):
    """Multiply a matrix, stored by columns, by I + N; and its inverse after it, stored by rows."""
    column = start + place * width
    inverse = start + (side + place) * width
    # All of them, though some are zero: loops of constant length are never mispredicted.
    add_times(words, column, column - width, width, _ONE)
    add_times(words, inverse - width, inverse, width, _ZERO - _ONE)


@helper
def _ways(words, start, side, width, place):
    """The number of paths in the window from the entry of a segment to a place in it."""
    return _product(words, np.uint64(start + 3 * side * width), np.uint64(start + place * width), np.uint64(width))


# ── Nodes beside segments ──────────────────────────────────────────────────────────────────────────
#
# Entries and exits are what nearly all of them are; others may have segments on both sides, or other nodes below them.


@helper(inline=True)
def raise_joint_bound(by_element, joints, segments, levels, words, bound, key, base, element, snapshot):
    """Raise the bound of a column for an event of its node. False if 64 bits may no longer be enough."""
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


@helper(inline=True)
def enter(by_element, joints, segments, words, base, element, column, before):
    """An event of an entry arrives: each row's gain is stored relative to the current segment."""
    joint = by_element[element, ByElement.FIRST_JOINT]
    inverse, width = _matrix(segments, base, joints[joint, ByJoint.SEGMENT], _ONE)
    held = np.uint64(base + joints[joint, ByJoint.WORDS])
    for one in range(np.uint64(by_element[element, ByElement.LEVEL])):
        gain = words[before + one]
        words[column + one] += gain
        add_times(words, held, inverse, width, gain)
        held += width


@helper(inline=True)
def exit_segment(joints, segments, words, base, snapshot, column):
    """An event after a segment arrives; returns the number of paths from the root that it adds."""
    last_column, width = _last_column(segments, base, joints[snapshot, ByJoint.SEGMENT], _ZERO)
    held = np.uint64(base + joints[snapshot, ByJoint.WORDS])
    entry = np.uint64(joints[snapshot, ByJoint.LEVEL])
    first = _product(words, held, last_column, width)
    words[column] += first
    for one in range(_ONE, entry - _ONE):
        held += width
        words[column + one] += _product(words, held, last_column, width)
    # The row of the node before the segment is that of the segment's entry, which follows. Zeros after a column of the
    # segment may be added anywhere.
    add_times(words, column + entry, last_column, width, _ONE)
    return first


@helper
def pass_joint(by_element, joints, segments, levels, words, scratch, base, element):
    """An event of any node next to segments arrives; returns the number of paths from the root that it adds."""
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
            add_times(words, held, inverse, width, scratch[one])
            held += width
        joint = joints[joint, ByJoint.NEXT]
    return scratch[0]


# ── Leaving the window ─────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def leave_plain(by_element, joints, segments, words, base, element, weight):
    """The oldest event leaves, of a node after a node: undo its effect on the snapshots below it."""
    for joint in range(by_element[element, ByElement.FIRST_INNER], by_element[element, ByElement.LAST_JOINT]):
        width = np.uint64(segments[joints[joint, ByJoint.SEGMENT], BySegment.WIDTH])
        row = np.uint64(base + joints[joint, ByJoint.WORDS]) + np.uint64(by_element[element, ByElement.LEVEL]) * width
        add_times(words, row - width, row, width, _ZERO - weight)


@helper(inline=True)
def leave_entry(by_element, joints, segments, levels, words, base, element):
    """The oldest event leaves, of an entry: below the segment its row is that of the segment's entry."""
    joint = by_element[element, ByElement.FIRST_JOINT]
    left, width = _matrix(segments, base, joints[joint, ByJoint.SEGMENT], _THREE)
    row = np.uint64(by_element[element, ByElement.LEVEL]) - _ONE
    words[np.uint64(base + by_element[element, ByElement.COORDINATE] * levels) + row] -= _ONE
    add_times(words, np.uint64(base + joints[joint, ByJoint.WORDS]) + row * width, left, width, _ZERO - _ONE)
    entry = np.uint64(joints[joint, ByJoint.LEVEL])
    for coordinate in range(joints[joint, ByJoint.FIRST], joints[joint, ByJoint.END]):
        column = np.uint64(base + coordinate * levels)
        words[column + row] -= _product(words, left, column + entry, width)


@helper(inline=True)
def leave_exit(by_element, joints, segments, levels, words, base, element):
    """The oldest event leaves, of an exit: each row of the segment loses its share."""
    snapshot = by_element[element, ByElement.SNAPSHOT]
    shares, width = _last_column(segments, base, joints[snapshot, ByJoint.SEGMENT], _TWO)
    column = np.uint64(base + by_element[element, ByElement.COORDINATE] * levels)
    add_times(words, column + np.uint64(joints[snapshot, ByJoint.LEVEL]), shares, width, _ZERO - _ONE)


@helper
def leave_joint(by_element, joints, segments, levels, words, base, element):
    """The oldest event leaves, of a node before or after a segment."""
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
    """Subtract the paths through the leaving event from the rows of a column that had them."""
    if wide == _ZERO:
        words[place] -= ways
    else:
        add_times(words, place, shares, wide, _ZERO - ways)


@helper(inline=True)
def _take_rows_away(words, place, width, rows, shares, ways):
    """The same for a snapshot, whose rows are contiguous."""
    if rows == _ZERO:
        add_times(words, place, ways, width, _ZERO - _ONE)
    for one in range(rows):
        add_times(words, place + one * width, ways, width, _ZERO - words[shares + one])
