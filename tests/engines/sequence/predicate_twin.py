"""Predicates once more, in plain Python: None is null, `Absent` cuts a comparison short."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ouzel.engines.sequence.tables import StackConjunct
from ouzel.kernels.events import Instances
from ouzel.kernels.predicate_tables import Alternative, Atom, Comparison, Lane, LaneFlag, Opcode, Program

INT_MIN, INT_MAX = -(2**63), 2**63 - 1

Value = int | float | None


class Absent(Exception):
    """The event's type does not have the attribute."""


def conjunct_holds(conjunct: StackConjunct, instances: Instances, bound: Sequence[int]) -> bool:
    return any(alternative_is_true(alternative, instances, bound) for alternative in conjunct.alternatives)


def alternative_is_true(alternative: Alternative, instances: Instances, bound: Sequence[int]) -> bool:
    # Every lane is read before anything is compared: one absent attribute makes the comparison true.
    try:
        if isinstance(alternative, Program):
            for step in alternative.instructions:
                if step.lane is not None:
                    lane_value(instances, bound, step.lane)
            return run(alternative, instances, bound) not in (None, 0)
        assert isinstance(alternative, Atom)
        left = lane_value(instances, bound, alternative.left)
        right: Value
        if isinstance(alternative.right, Lane):
            right = lane_value(instances, bound, alternative.right)
        else:
            right = alternative.right
        return compare(left, alternative.comparison, right) == 1
    except Absent:
        return True


def lane_value(instances: Instances, bound: Sequence[int], lane: Lane) -> Value:
    slot = bound[lane.component]
    row = lane.lane + (instances.int_lanes.shape[0] if lane.floating else 0)
    flag = instances.lane_flags[row, slot]
    if flag == LaneFlag.ABSENT:
        raise Absent
    if flag == LaneFlag.NULL:
        return None
    return float(instances.float_lanes[lane.lane, slot]) if lane.floating else int(instances.int_lanes[lane.lane, slot])


def sort_key(value: int | float) -> tuple[bool, int | float]:
    """NaN is equal to itself and greater than every number."""
    return (True, 0) if value != value else (False, value)


def compare(left: Value, comparison: Comparison, right: Value) -> int | None:
    if left is None or right is None:
        return None
    a, b = sort_key(left), sort_key(right)
    return int(
        {
            Comparison.EQUAL: a == b,
            Comparison.NOT_EQUAL: a != b,
            Comparison.LESS: a < b,
            Comparison.LESS_EQUAL: a <= b,
            Comparison.GREATER: a > b,
            Comparison.GREATER_EQUAL: a >= b,
        }[comparison]
    )


def fitting(value: int) -> int | None:
    return value if INT_MIN <= value <= INT_MAX else None


def truncated_division(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def run(program: Program, instances: Instances, bound: Sequence[int]) -> Value:
    stack: list[Value] = []
    for step in program.instructions:
        match step.opcode:
            case Opcode.LOAD_INT | Opcode.LOAD_FLOAT:
                assert step.lane is not None
                stack.append(lane_value(instances, bound, step.lane))
            case Opcode.INT | Opcode.FLOAT:
                stack.append(step.constant)
            case Opcode.NULL:
                stack.append(None)
            case Opcode.CASE:
                otherwise, result, condition = stack.pop(), stack.pop(), stack.pop()
                stack.append(result if condition not in (None, 0) else otherwise)
            case Opcode.IS_NULL:
                stack.append(int(stack.pop() is None))
            case Opcode.COALESCE:
                second, first = stack.pop(), stack.pop()
                stack.append(second if first is None else first)
            case Opcode.AND:
                pair = (stack.pop(), stack.pop())
                stack.append(0 if 0 in pair else None if None in pair else 1)
            case Opcode.OR:
                pair = (stack.pop(), stack.pop())
                stack.append(1 if any(v not in (None, 0) for v in pair) else None if None in pair else 0)
            case Opcode.LEAST_INT | Opcode.LEAST_FLOAT | Opcode.GREATEST_INT | Opcode.GREATEST_FLOAT:
                known = [v for v in (stack.pop(), stack.pop()) if v is not None]
                choose = min if step.opcode in (Opcode.LEAST_INT, Opcode.LEAST_FLOAT) else max
                stack.append(choose(known, key=sort_key) if known else None)
            case Opcode.COMPARE_INT | Opcode.COMPARE_FLOAT:
                right, left = stack.pop(), stack.pop()
                stack.append(compare(left, step.comparison, right))
            case (
                Opcode.NOT
                | Opcode.TO_FLOAT
                | Opcode.NEGATE_INT
                | Opcode.ABS_INT
                | Opcode.NEGATE_FLOAT
                | Opcode.ABS_FLOAT
            ):
                operand = stack.pop()
                stack.append(None if operand is None else unary(step.opcode, operand))
            case _:
                right, left = stack.pop(), stack.pop()
                stack.append(None if left is None or right is None else binary(step.opcode, left, right))
    (result,) = stack
    return result


def unary(opcode: Opcode, value: int | float) -> Value:
    match opcode:
        case Opcode.NOT:
            return int(value == 0)
        case Opcode.TO_FLOAT:
            return float(value)
        case Opcode.NEGATE_INT:
            return fitting(-int(value))
        case Opcode.ABS_INT:
            return fitting(abs(int(value)))
        case Opcode.NEGATE_FLOAT:
            return -value
        case _:
            return abs(value)


def binary(opcode: Opcode, left: int | float, right: int | float) -> Value:
    match opcode:
        case Opcode.ADD_INT:
            return fitting(int(left + right))
        case Opcode.SUBTRACT_INT:
            return fitting(int(left - right))
        case Opcode.MULTIPLY_INT:
            return fitting(int(left * right))
        case Opcode.MODULO_INT:
            return int(left) - int(right) * truncated_division(int(left), int(right)) if right else None
        case Opcode.ADD_FLOAT:
            return left + right
        case Opcode.SUBTRACT_FLOAT:
            return left - right
        case Opcode.MULTIPLY_FLOAT:
            return left * right
        case Opcode.DIVIDE_FLOAT:
            return left / right if right != 0 else None
        case _:
            if right == 0:
                return None
            return math.fmod(left, right) if math.isfinite(left) and right == right else math.nan
