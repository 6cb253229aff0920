"""Runs the predicates of `predicate_tables.py` on bound events.

`bound[component]` is the slot of the event that is bound to a component. The flags of a lane are read only if `flagged`
says that some live slot of the lane has one, so a lane without nulls costs one load.

The kernels here and those of stacks allocate nothing. So numba need not count references to every array of a named
tuple at every call, which would cost many times as much as a comparison.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MAX, INT64_MIN
from ouzel.kernels.events import Instances
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicate_tables import Comparison, Kind, LaneFlag, Opcode, Predicates, Values

# Products below this in floating point are far from overflow, after any rounding.
_SAFE_PRODUCT = 2.0**62


@helper
def compare(order, comparison):
    """Whether the order of two values (-1, 0, 1) satisfies a comparison."""
    if comparison == Comparison.EQUAL:
        return order == 0
    if comparison == Comparison.NOT_EQUAL:
        return order != 0
    if comparison == Comparison.LESS:
        return order < 0
    if comparison == Comparison.LESS_EQUAL:
        return order <= 0
    if comparison == Comparison.GREATER:
        return order > 0
    return order >= 0


@helper
def order_of_floats(left, right):
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return 0
    # One of them is NaN, which equals itself and is greater than every number.
    return int(left != left) - int(right != right)


@kernel(inline=True)
def holds(predicates: Predicates, instances: Instances, bound: NDArray[np.int32], values: Values, conjunct: int):
    """Whether one alternative of a conjunct is true for the bound events.

    >>> from ouzel.kernels.predicate_tables import *
    >>> from ouzel.kernels.events import new_instances
    >>> predicates = build_predicates([[Atom(Lane(0, 0), Comparison.LESS, Lane(1, 0))]])
    >>> instances = new_instances(2, int_lanes=1)
    >>> instances.int_lanes[0, :] = 3, 4
    >>> bound = np.array([0, 1], np.int32)
    >>> bool(holds(predicates, instances, bound, new_values(predicates), 0))
    True
    """
    alternatives = predicates.alternatives
    int_lanes = instances.int_lanes
    float_lanes = instances.float_lanes
    lane_flags = instances.lane_flags
    flagged = instances.flagged
    found = False
    for row in range(predicates.first_alternative[conjunct], predicates.first_alternative[conjunct + 1]):
        kind = alternatives[row, 0]
        if kind == Kind.PROGRAM:
            found = _run(predicates, instances, bound, values, alternatives[row, 1], alternatives[row, 2])
        else:
            slot = bound[alternatives[row, 2]]
            lane = alternatives[row, 3]
            other_slot = bound[alternatives[row, 4]]
            other_lane = alternatives[row, 5]
            flag = 0
            if kind <= Kind.INT_CONSTANT:
                if flagged[lane]:
                    flag = lane_flags[lane, slot]
                if kind == Kind.INT_LANES:
                    if flagged[other_lane]:
                        flag = max(flag, lane_flags[other_lane, other_slot])
                    other = int_lanes[other_lane, other_slot]
                else:
                    other = predicates.int_constants[alternatives[row, 6]]
                value = int_lanes[lane, slot]
                order = int(value > other) - int(value < other)
            else:
                # The flags of float64 lanes come after those of int64 lanes.
                flag_row = int_lanes.shape[0] + lane
                if flagged[flag_row]:
                    flag = lane_flags[flag_row, slot]
                if kind == Kind.FLOAT_LANES:
                    flag_row = int_lanes.shape[0] + other_lane
                    if flagged[flag_row]:
                        flag = max(flag, lane_flags[flag_row, other_slot])
                    other_float = float_lanes[other_lane, other_slot]
                else:
                    other_float = predicates.float_constants[alternatives[row, 6]]
                order = order_of_floats(float_lanes[lane, slot], other_float)
            # ABSENT is the largest flag: absent against null is true.
            found = flag == LaneFlag.ABSENT or (flag != LaneFlag.NULL and compare(order, alternatives[row, 1]))
        if found:
            break
    return found


@helper
def _run(predicates, instances, bound, values, first, last):
    """Whether a program gives true. It is true if it reads an absent attribute."""
    code = predicates.instructions
    int_lanes = instances.int_lanes
    lane_flags = instances.lane_flags
    flagged = instances.flagged
    ints = values.ints
    floats = values.floats
    nulls = values.nulls
    # A comparison is true if it reads an absent attribute anywhere, so this comes first.
    for step in range(first, last):
        if code[step, 0] <= Opcode.LOAD_FLOAT:
            row = code[step, 2] + (int_lanes.shape[0] if code[step, 0] == Opcode.LOAD_FLOAT else 0)
            if flagged[row] and lane_flags[row, bound[code[step, 1]]] == LaneFlag.ABSENT:
                return True
    top = -1
    for step in range(first, last):
        opcode = code[step, 0]
        if opcode <= Opcode.NULL:
            top += 1
            nulls[top] = 0
            if opcode == Opcode.LOAD_INT:
                slot = bound[code[step, 1]]
                row = code[step, 2]
                ints[top] = int_lanes[row, slot]
                nulls[top] = flagged[row] and lane_flags[row, slot] == LaneFlag.NULL
            elif opcode == Opcode.LOAD_FLOAT:
                slot = bound[code[step, 1]]
                row = int_lanes.shape[0] + code[step, 2]
                floats[top] = instances.float_lanes[code[step, 2], slot]
                nulls[top] = flagged[row] and lane_flags[row, slot] == LaneFlag.NULL
            elif opcode == Opcode.INT:
                ints[top] = predicates.int_constants[code[step, 1]]
            elif opcode == Opcode.FLOAT:
                floats[top] = predicates.float_constants[code[step, 1]]
            else:
                nulls[top] = 1
        else:
            top = apply(ints, floats, nulls, top, opcode, code[step, 1])
    return nulls[0] == 0 and ints[0] != 0


@helper
def apply(ints, floats, nulls, top, opcode, comparison):
    """Do one step of a program, other than a load. Returns the new top of the stack. `comparison` is used by COMPARE
    steps.
    """
    if opcode < Opcode.COMPARE_INT:
        return _calculate(ints, floats, nulls, top, opcode)
    if opcode > Opcode.COMPARE_FLOAT:
        return _decide(ints, floats, nulls, top, opcode)
    top -= 1
    nulls[top] |= nulls[top + 1]
    if opcode == Opcode.COMPARE_INT:
        order = int(ints[top] > ints[top + 1]) - int(ints[top] < ints[top + 1])
    else:
        order = order_of_floats(floats[top], floats[top + 1])
    ints[top] = compare(order, comparison)
    return top


@helper
def _decide(ints, floats, nulls, top, opcode):
    """Do a step of an operator for which null operands do not always give null."""
    if opcode == Opcode.NOT:
        ints[top] = ints[top] == 0
    elif opcode == Opcode.IS_NULL:
        ints[top] = nulls[top]
        nulls[top] = 0
    elif opcode == Opcode.CASE:
        top -= 2
        taken = top + 1 if nulls[top] == 0 and ints[top] != 0 else top + 2
        ints[top] = ints[taken]
        floats[top] = floats[taken]
        nulls[top] = nulls[taken]
    else:
        top -= 1
        if opcode == Opcode.COALESCE:
            if nulls[top]:
                ints[top] = ints[top + 1]
                floats[top] = floats[top + 1]
                nulls[top] = nulls[top + 1]
        else:
            # One false decides AND, one true decides OR; otherwise a null gives null.
            decisive = opcode == Opcode.OR
            left = nulls[top] == 0 and (ints[top] != 0) == decisive
            right = nulls[top + 1] == 0 and (ints[top + 1] != 0) == decisive
            nulls[top] = (nulls[top] | nulls[top + 1]) if not (left or right) else 0
            ints[top] = decisive if left or right else not decisive
    return top


@helper(error_model="numpy")
def _calculate(ints, floats, nulls, top, opcode):
    """Do a step of arithmetic. A null operand gives null, except for LEAST and GREATEST."""
    if opcode == Opcode.TO_FLOAT:
        floats[top] = float(ints[top])
        return top
    if opcode in (Opcode.NEGATE_INT, Opcode.ABS_INT):
        if ints[top] == INT64_MIN:
            nulls[top] = 1
        elif opcode == Opcode.NEGATE_INT or ints[top] < 0:
            ints[top] = -ints[top]
        return top
    if opcode == Opcode.NEGATE_FLOAT:
        floats[top] = -floats[top]
        return top
    if opcode == Opcode.ABS_FLOAT:
        floats[top] = abs(floats[top])
        return top
    top -= 1
    either_null = nulls[top] | nulls[top + 1]
    if opcode in (Opcode.LEAST_INT, Opcode.GREATEST_INT):
        wants_right = ints[top + 1] < ints[top] if opcode == Opcode.LEAST_INT else ints[top + 1] > ints[top]
        if nulls[top] or (nulls[top + 1] == 0 and wants_right):
            ints[top] = ints[top + 1]
        nulls[top] &= nulls[top + 1]
        return top
    if opcode in (Opcode.LEAST_FLOAT, Opcode.GREATEST_FLOAT):
        order = order_of_floats(floats[top + 1], floats[top])
        wants_right = order < 0 if opcode == Opcode.LEAST_FLOAT else order > 0
        if nulls[top] or (nulls[top + 1] == 0 and wants_right):
            floats[top] = floats[top + 1]
        nulls[top] &= nulls[top + 1]
        return top
    nulls[top] = either_null
    if either_null:
        return top
    if opcode < Opcode.ADD_FLOAT:
        value, fits = _integer(ints[top], ints[top + 1], opcode)
        ints[top] = value
        nulls[top] = not fits
        return top
    left = float(floats[top])
    right = float(floats[top + 1])
    if opcode == Opcode.ADD_FLOAT:
        floats[top] = left + right
    elif opcode == Opcode.SUBTRACT_FLOAT:
        floats[top] = left - right
    elif opcode == Opcode.MULTIPLY_FLOAT:
        floats[top] = left * right
    elif right == 0.0:
        nulls[top] = 1
    elif opcode == Opcode.DIVIDE_FLOAT:
        floats[top] = left / right
    elif not math.isfinite(left) or right != right:
        floats[top] = math.nan
    elif math.isfinite(right):
        floats[top] = np.fmod(left, right)
    return top


@helper(error_model="numpy")
def _integer(left, right, opcode):
    """(value, whether it fits int64). Overflow is detected before it happens."""
    zero = left - left
    if opcode == Opcode.ADD_INT:
        if (right > 0 and left > INT64_MAX - right) or (right < 0 and left < INT64_MIN - right):
            return zero, False
        return left + right, True
    if opcode == Opcode.SUBTRACT_INT:
        if (right < 0 and left > INT64_MAX + right) or (right > 0 and left < INT64_MIN + right):
            return zero, False
        return left - right, True
    if opcode == Opcode.MULTIPLY_INT:
        if left == 0 or right == 0:
            return zero, True
        if abs(float(left) * float(right)) >= _SAFE_PRODUCT and not _product_fits(left, right):
            return zero, False
        return left * right, True
    if right == 0:
        return zero, False
    if right == -1:
        # The smallest integer divided by -1 would trap.
        return zero, True
    # Python rounds down; SQL rounds towards zero.
    remainder = left % right
    if remainder != 0 and (left < 0) != (right < 0):
        remainder -= right
    return remainder, True


@helper(error_model="numpy")
def _product_fits(left, right):
    """Whether left * right fits an int64. Neither may be zero."""
    if left == -1:
        return right != INT64_MIN
    if right == -1:
        return left != INT64_MIN
    if (left > 0) == (right > 0):
        # left * right <= MAX
        return left <= INT64_MAX // right if right > 0 else left >= INT64_MAX // right + (INT64_MAX % right != 0)
    # left * right >= MIN, by the positive factor, rounding towards zero.
    positive = max(left, right)
    negative = min(left, right)
    return negative >= INT64_MIN // positive + (INT64_MIN % positive != 0)
