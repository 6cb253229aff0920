"""What the edges of a plain query ask of a run and an event, and what a run keeps for them: its bounds.

A bound is a value of the first or last event of the run's place, or the least or greatest so far. It stands beside the
run, so that an edge is one comparison however long the run is.
"""

from __future__ import annotations

import numpy as np

from ouzel.kernels.jit import helper
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.predicates import _order_of_floats
from ouzel.kernels.run_tables import EDGE_COLUMNS, Bound, ByPlain, Guard

_EDGE_COLUMNS = EDGE_COLUMNS
_VALUE = np.uint8(LaneFlag.VALUE)
_ABSENT = np.uint8(LaneFlag.ABSENT)

# In `Runs.guard`, which is of no other use in plain queries: the LaneFlag of a bound, counted down from here.
_IS_BOUND = np.int32(-2)


@helper(inline=True)
def edge_of(tables, events, place, number):
    """What the take (0) or begin (1) edge that leaves a node of a place asks: (kind, lane, row of its flags, orders,
    bound, lane of the bound, row of its flags)."""
    row = tables.plain[place]
    columns = number * _EDGE_COLUMNS
    kind = row[columns + ByPlain.KIND]
    before = np.uint32(0) if kind == Guard.INT else np.uint32(events.int_lanes.shape[0])
    lane = np.uint32(row[columns + ByPlain.LANE])
    other = np.uint32(row[columns + ByPlain.OTHER_LANE])
    return kind, lane, lane + before, row[columns + ByPlain.ORDERS], row[columns + ByPlain.BOUND], other, other + before


@helper(inline=True)
def read_lane(edge, events, at):
    """(flag, integer, float): what an edge compares of an event."""
    kind, lane, flags, _, _, _, _ = edge
    if kind == Guard.NONE:
        return _VALUE, np.int64(0), 0.0
    if kind == Guard.INT:
        return events.lane_flags[flags, at], events.int_lanes[lane, at], 0.0
    return events.lane_flags[flags, at], np.int64(0), events.float_lanes[lane, at]


@helper(inline=True)
def allows(edge, read, runs, here, number):
    """Whether an edge holds for a run and what was read of an event."""
    kind, _, _, orders, _, _, _ = edge
    if kind == Guard.NONE:
        return True
    flag, value, real = read
    flag = max(flag, np.uint8(_IS_BOUND - runs.guard[here, number]))
    if flag != _VALUE:
        # A comparison with an absent attribute is true, one with null is not.
        return flag == _ABSENT
    if kind == Guard.INT:
        bound = runs.int_bounds[here, number]
        order = int(value > bound) - int(value < bound)
    else:
        order = _order_of_floats(real, runs.float_bounds[here, number])
    return (orders >> (order + 1)) & 1 != 0


@helper(inline=True)
def set_bound(edge, runs, events, before, run, at, begins, number):
    """What an edge compares with from now on."""
    kind, _, _, _, bound, lane, flags = edge
    if kind == Guard.NONE:
        return
    flag = events.lane_flags[flags, at]
    if begins:
        # Aggregates pass absent values over like nulls.
        runs.guard[run, number] = _IS_BOUND - (flag if bound <= Bound.LAST else min(flag, 1))
        if kind == Guard.INT:
            runs.int_bounds[run, number] = events.int_lanes[lane, at]
        else:
            runs.float_bounds[run, number] = events.float_lanes[lane, at]
        return
    had = runs.guard[before, number]
    was = runs.int_bounds[before, number]
    float_was = runs.float_bounds[before, number]
    changes = bound == Bound.LAST
    if bound > Bound.LAST and flag == _VALUE:
        changes = had != _IS_BOUND or bound == Bound.LAST_VALUE
        if bound >= Bound.LEAST and not changes:
            if kind == Guard.INT:
                value = events.int_lanes[lane, at]
                changes = value < was if bound == Bound.LEAST else value > was
            else:
                order = _order_of_floats(events.float_lanes[lane, at], float_was)
                changes = order < 0 if bound == Bound.LEAST else order > 0
    if changes:
        runs.guard[run, number] = _IS_BOUND - flag
        if kind == Guard.INT:
            runs.int_bounds[run, number] = events.int_lanes[lane, at]
        else:
            runs.float_bounds[run, number] = events.float_lanes[lane, at]
    elif run != before:
        runs.guard[run, number] = had
        runs.int_bounds[run, number] = was
        runs.float_bounds[run, number] = float_was


@helper(inline=True)
def bounds_differ(kind, runs, here, there, number):
    """Whether two runs compare with different values on an edge of a kind."""
    if kind == Guard.NONE:
        return False
    if runs.guard[here, number] != runs.guard[there, number]:
        return True
    if runs.guard[here, number] != _IS_BOUND:
        return False
    if kind == Guard.INT:
        return runs.int_bounds[here, number] != runs.int_bounds[there, number]
    return _order_of_floats(runs.float_bounds[here, number], runs.float_bounds[there, number]) != 0
