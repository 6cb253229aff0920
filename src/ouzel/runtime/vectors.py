"""Bound expressions over whole columns, with the meaning of nulls, NaN, overflow and division that semantics 1 gives.

Used for the roles of events (one event a row) and for RETURN (one match a row). Engine form of values: integers,
dates (days) and timestamps (ticks) are int64, floats are float64, the rest are Arrow's own types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import BOOL, Aggregation, Attribute, Bound, Constant, Intrinsic, Kind, Length, Operation, Type
from ouzel.bind.normal_form import is_junction
from ouzel.plan.expressions import IF_PRESENT
from ouzel.runtime import functions
from ouzel.runtime.arrays import numbers, repeated, truths, valids
from ouzel.runtime.values import COMPARISONS, EXACT, Column, compare, engine_type, join, split, to_float


class Frame(Protocol):
    """Rows to evaluate over: where each reference of an expression finds its column, in engine form."""

    @property
    def rows(self) -> int: ...

    def attribute(self, reference: Attribute) -> Column: ...

    def intrinsic(self, reference: Intrinsic) -> Column: ...

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        """Rows whose event's type does not have the attribute; None where there are none."""
        ...


@runtime_checkable
class AggregatingFrame(Protocol):
    """A frame whose rows have several events of one component."""

    def aggregate(self, expression: Length | Aggregation) -> Column:
        """How many events there are, or an aggregate over them."""
        ...


def any_holds(conditions: Sequence[Bound], frame: Frame) -> np.ndarray:
    """Rows where one of several conditions is true, each as `holds` has it."""
    return holds(conditions[0] if len(conditions) == 1 else Operation("or", tuple(conditions), type=BOOL), frame)


def holds(condition: Bound, frame: Frame) -> np.ndarray:
    """Rows where a comparison, or ANDs and ORs of comparisons, is true. In each comparison, unknown is not true and an
    absent attribute makes it true.

    >>> class OneColumn:
    ...     rows = 3
    ...     def attribute(self, reference): return pa.array([1, None, 3])
    ...     def lacks(self, reference): return None
    >>> from ouzel.bind.model import BOOL, INT
    >>> x = Attribute(0, ("x",), type=INT)
    >>> holds(Operation(">", (x, Constant(2, type=INT)), type=BOOL), OneColumn()).tolist()
    [False, False, True]
    """
    if is_junction(condition):
        combine = np.logical_and if condition.operator == "and" else np.logical_or
        first, *others = condition.operands
        result = holds(first, frame)
        for operand in others:
            combine(result, holds(operand, frame), out=result)
        return result
    compared = _compared_with_number(condition, frame)
    result = _true_rows(condition, frame) if compared is None else compared
    for reference in _references(condition):
        absent = frame.lacks(reference)
        if absent is not None:
            result = result | absent
    return result


def _true_rows(comparison: Bound, frame: Frame) -> np.ndarray:
    truth = evaluate(comparison, frame)
    return np.zeros(frame.rows, bool) if pa.types.is_null(truth.type) else truths(truth)


def _compared_with_number(condition: Bound, frame: Frame) -> np.ndarray | None:
    """Where a value of 64 bits compares so with a constant; None for other conditions. Public rules have hundreds of
    these, and numpy needs a third of Arrow's time for one."""
    if not isinstance(condition, Operation) or condition.operator not in _ON_NUMBERS:
        return None
    left, right = condition.operands
    if not isinstance(right, Constant) or isinstance(left, Constant) or left.type.kind not in (Kind.INT, Kind.FLOAT):
        return None
    if right.value is None or right.type.kind is not left.type.kind or right.value != right.value:
        return None
    column = evaluate(left, frame)
    values = numbers(column, np.int64 if left.type.kind is Kind.INT else np.float64)
    result = _ON_NUMBERS[condition.operator](values, right.value)
    return result & valids(column) if column.null_count else result


# NaN is greater than every number, so it is not less or equal, which is what numpy says of it.
_ON_NUMBERS: dict[str, Callable[[np.ndarray, Any], np.ndarray]] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": lambda values, constant: ~np.less_equal(values, constant),
    ">=": lambda values, constant: ~np.less(values, constant),
}


def _references(expression: Bound) -> list[Attribute]:
    if isinstance(expression, Attribute):
        return [expression]
    if isinstance(expression, Operation):
        return [found for operand in expression.operands for found in _references(operand)]
    return []


def evaluate(expression: Bound, frame: Frame) -> Column:
    """The value of an expression for every row."""
    if isinstance(expression, Constant):
        return constant(expression, frame.rows)
    if isinstance(expression, Attribute):
        return frame.attribute(expression)
    if isinstance(expression, Intrinsic):
        return frame.intrinsic(expression)
    if isinstance(expression, Length | Aggregation) and isinstance(frame, AggregatingFrame):
        return frame.aggregate(expression)
    assert isinstance(expression, Operation), f"{type(expression).__name__} has no value for a single row"
    found = _with_constants(expression, frame)
    if found is not None:
        return found
    operands = [evaluate(operand, frame) for operand in expression.operands]
    if expression.operator == IF_PRESENT:
        return _if_present(expression, operands[0], frame)
    types = [operand.type for operand in expression.operands]
    return apply(expression, operands, types, frame.rows)


_LISTED = (Kind.INT, Kind.STRING, Kind.BINARY, Kind.DATE, Kind.TIMESTAMP)


def _with_constants(expression: Operation, frame: Frame) -> Column | None:
    """A text against constants, or a value against a list of constants, without a column for each constant; None for
    all else. Floats are not looked up in lists, because -0.0 is 0.0 there."""
    operator, (value, *others) = expression.operator, expression.operands
    if operator not in ("=", "!=", "<", "<=", ">", ">=", "in", "like") or isinstance(value, Constant):
        return None
    constants = [other for other in others if isinstance(other, Constant) and other.value is not None]
    if len(constants) < len(others) or any(other.type != value.type for other in constants):
        return None
    if operator == "like":
        return functions.like([evaluate(value, frame), *(constant(other, 1) for other in constants)])
    if operator == "in" and value.type.kind in _LISTED:
        column = evaluate(value, frame)
        listed = pa.array([other.value for other in constants], engine_type(value.type))
        return pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=listed), pa.scalar(None, pa.bool_()))
    if operator != "in" and value.type.kind is Kind.STRING:
        return COMPARISONS[operator](evaluate(value, frame), constant(constants[0], 1)[0])
    return None


def _if_present(expression: Bound, value: Column, frame: Frame) -> Column:
    missing = np.zeros(frame.rows, bool)
    for reference in _references(expression):
        absent = frame.lacks(reference)
        if absent is not None:
            missing |= absent
    return value.take(pa.array(np.arange(frame.rows), mask=missing)) if missing.any() else value


def constant(expression: Constant, rows: int) -> Column:
    if expression.value is None:
        return pa.nulls(rows, engine_type(expression.type))
    value: Any = expression.value
    if expression.type.kind is Kind.FLOAT:
        value = float(value)
    return repeated(value, engine_type(expression.type), rows)


def apply(expression: Operation, operands: list[Column], types: list[Type], rows: int) -> Column:
    """One operator over columns."""
    operator = expression.operator
    if operator in COMPARISONS:
        return compare(operator, operands[0], operands[1])
    if operator in ("and", "or"):
        combine: Callable[..., Column] = pc.and_kleene if operator == "and" else pc.or_kleene
        result = operands[0]
        for operand in operands[1:]:
            result = combine(result, operand)
        return result
    if operator == "not":
        return pc.invert(operands[0])
    if operator in ("+", "-", "*", "/", "%"):
        return arithmetic(operator, operands[0], operands[1], expression.type)
    if operator == "negate":
        return negate(operands[0])
    if operator == "is_null":
        return pc.is_null(operands[0])
    if operator == "in":
        return _in(operands)
    if operator == "like":
        return functions.like(operands)
    if operator == "case":
        return _case(expression, operands, rows)
    if operator == "cast":
        return cast(operands[0], types[0], expression.type)
    return functions.call(operator, operands, types, expression.type)


def arithmetic(operator: str, left: Column, right: Column, type_: Type) -> Column:
    """+ - * / %: null where Spark's try_ functions give null."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.nulls(len(left), engine_type(type_))
    if pa.types.is_decimal(left.type) and pa.types.is_decimal(right.type):
        return _decimal_arithmetic(operator, left, right, type_)
    if operator == "/" or type_.kind is Kind.FLOAT:
        return _float_arithmetic(operator, left, right)
    return _int_arithmetic(operator, left, right)


def _float_arithmetic(operator: str, left: Column, right: Column) -> Column:
    x, x_valid = split(to_float(left), np.float64)
    y, y_valid = split(to_float(right), np.float64)
    valid = x_valid & y_valid
    with np.errstate(all="ignore"):
        if operator in ("/", "%"):
            valid &= y != 0
            values = x / np.where(y == 0, 1.0, y) if operator == "/" else np.fmod(x, np.where(y == 0, 1.0, y))
        else:
            values = {"+": np.add, "-": np.subtract, "*": np.multiply}[operator](x, y)
    return join(values, valid, pa.float64())


def _int_arithmetic(operator: str, left: Column, right: Column) -> Column:
    x, x_valid = split(left, np.int64)
    y, y_valid = split(right, np.int64)
    valid = x_valid & y_valid
    with np.errstate(all="ignore"):
        if operator == "+":
            values = x + y
            valid &= ((x ^ values) & (y ^ values)) >= 0
        elif operator == "-":
            values = x - y
            valid &= ((x ^ y) & (x ^ values)) >= 0
        elif operator == "*":
            values = x * y
            valid &= ~_multiplication_overflows(x, y, values)
        else:
            # The remainder by -1 is 0; numpy's own would trap on the smallest integer.
            valid &= y != 0
            divisor = np.where((y == 0) | (y == -1), 1, y)
            values = np.fmod(x, divisor)
    return join(values, valid, pa.int64())


def _multiplication_overflows(x: np.ndarray, y: np.ndarray, product: np.ndarray) -> np.ndarray:
    smallest = np.iinfo(np.int64).min
    risky = (x != 0) & ~((np.abs(x) < 2**31) & (np.abs(y) < 2**31) & (x != smallest) & (y != smallest))
    back = np.floor_divide(product, np.where(x == 0, 1, x))
    return np.asarray(risky & ((back != y) | ((x == -1) & (y == smallest)) | ((y == -1) & (x == smallest))))


_DECIMAL_OPERATORS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "%": EXACT.remainder,
}


def _decimal_arithmetic(operator: str, left: Column, right: Column, type_: Type) -> Column:
    """Exact decimals of at most 18 digits: Python's own, since they are rare in predicates and must be right."""
    if type_.kind is not Kind.DECIMAL:
        return _float_arithmetic(operator, left, right)
    limit = Decimal(10 ** (type_.precision - type_.scale))
    quantum = Decimal((0, (1,), -type_.scale))
    out: list[Decimal | None] = []
    for x, y in zip(left.to_pylist(), right.to_pylist(), strict=True):
        if x is None or y is None or (operator == "%" and y == 0):
            out.append(None)
            continue
        value = _DECIMAL_OPERATORS[operator](x, y)
        out.append(value.quantize(quantum, context=EXACT) if value.copy_abs() < limit else None)
    return pa.array(out, engine_type(type_))


def negate(operand: Column) -> Column:
    if pa.types.is_integer(operand.type):
        values, valid = split(operand, np.int64)
        return join(np.negative(values), valid & (values != np.iinfo(np.int64).min), pa.int64())
    return pc.negate(operand)


def _in(operands: list[Column]) -> Column:
    result = compare("=", operands[0], operands[1])
    for item in operands[2:]:
        result = pc.or_kleene(result, compare("=", operands[0], item))
    return result


def _case(expression: Operation, operands: list[Column], rows: int) -> Column:
    result = operands[-1]
    if pa.types.is_null(result.type):
        result = pa.nulls(rows, engine_type(expression.type))
    for i in range(len(operands) - 3, -1, -2):
        chosen = operands[i + 1]
        if pa.types.is_null(chosen.type):
            chosen = pa.nulls(rows, engine_type(expression.type))
        result = pc.if_else(pc.fill_null(operands[i], False), chosen, result)
    return result


def cast(operand: Column, source: Type, target: Type) -> Column:
    """Convert between engine forms; what does not fit becomes null."""
    wanted = engine_type(target)
    # Ticks of every unit and days are all int64: that says nothing of what they count.
    if operand.type == wanted and (source.kind, source.unit) == (target.kind, target.unit):
        return operand
    if pa.types.is_null(operand.type):
        return pa.nulls(len(operand), wanted)
    return functions.convert(operand, source, target, wanted)
