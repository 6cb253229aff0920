"""Evaluates bound expressions over columns, and has the functions that they call.

Nulls, NaN, overflow and division follow docs/semantics.md, "Nulls". The rows are events (conditions on one event, keys)
or matches (RETURN, HAVING). Values are in *engine form*: integers, dates (days) and timestamps (ticks) are int64,
floats are float64, and all others keep their Arrow types.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.literals import DECIMAL_DIGITS_MAX
from ouzel.bind.model import (
    BOOL,
    Aggregation,
    Attribute,
    Bound,
    Constant,
    Element,
    Intrinsic,
    Kind,
    Length,
    Operation,
    Presence,
    Type,
)
from ouzel.bind.normal_form import is_junction
from ouzel.errors import QueryError
from ouzel.plan.expressions import CHUNK, CHUNKS_MAX, IF_PRESENT, like_prefix
from ouzel.runtime.values import (
    COMPARISONS,
    EXACT,
    Column,
    arrow,
    compare,
    engine_type,
    join,
    numbers,
    repeated,
    split,
    to_engine,
    to_float,
    truths,
    unscaled,
    valids,
)

_Function = Callable[[list[Column], list[Type], Type], Column]
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class Frame(Protocol):
    """Rows over which expressions are evaluated. It returns the column of each reference, in engine form."""

    @property
    def rows(self) -> int: ...

    def attribute(self, reference: Attribute) -> Column: ...

    def intrinsic(self, reference: Intrinsic) -> Column: ...

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        """The rows whose event type does not have the attribute; None if there are none."""
        ...


@runtime_checkable
class AggregatingFrame(Protocol):
    """A frame in which a row has several events of a component, such as the rows of matches."""

    def aggregate(self, expression: Length | Presence | Aggregation) -> Column:
        """The number of events, whether there are any, or an aggregate over them."""
        ...


class _ElementFrame:
    """The elements of lists as a frame, one row for each element. Columns of the outer frame are repeated for each
    element.
    """

    def __init__(self, around: Frame, lists: Column) -> None:
        if pa.types.is_fixed_size_list(lists.type):
            lists = lists.cast(pa.list_(lists.type.value_type))
        self._around = around
        self._elements = pc.list_flatten(lists)
        self.parents = numbers(pc.cast(pc.list_parent_indices(lists), pa.int64()))
        self.rows = len(self.parents)
        self._level: int = around._level + 1 if isinstance(around, _ElementFrame) else 0

    def element(self, reference: Element) -> Column:
        if reference.level < self._level:
            assert isinstance(self._around, _ElementFrame)
            return self._repeated(self._around.element(reference))
        value = self._elements
        for field in reference.path:
            value = pc.struct_field(value, field)
        return to_engine(value, reference.type, reference.name)

    def attribute(self, reference: Attribute) -> Column:
        return self._repeated(self._around.attribute(reference))

    def intrinsic(self, reference: Intrinsic) -> Column:
        return self._repeated(self._around.intrinsic(reference))

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        absent = self._around.lacks(reference)
        return None if absent is None else absent[self.parents]

    def aggregate(self, expression: Length | Presence | Aggregation) -> Column:
        assert isinstance(self._around, AggregatingFrame)
        return self._repeated(self._around.aggregate(expression))

    def _repeated(self, column: Column) -> Column:
        return column.take(arrow(self.parents))


def any_holds(conditions: Sequence[Bound], frame: Frame) -> np.ndarray:
    """The rows where at least one of several conditions holds, in the sense of `holds`."""
    return holds(conditions[0] if len(conditions) == 1 else Operation("or", tuple(conditions), type=BOOL), frame)


def holds(condition: Bound, frame: Frame) -> np.ndarray:
    """The rows where a condition is true. It must be a comparison, or made of comparisons by AND and OR. A comparison
    with null is not true. A comparison with an absent attribute is true.

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
    """The result of comparing a 64-bit value with a constant; None for other conditions. Rule sets have hundreds of
    such conditions, for which numpy needs a third of Arrow's time.
    """
    if not isinstance(condition, Operation) or condition.operator not in _ON_NUMBERS:
        return None
    left, right = condition.operands
    if not isinstance(right, Constant) or isinstance(left, Constant) or left.type.kind not in _NUMBERS:
        return None
    if right.value is None or right.type.kind is not left.type.kind or right.value != right.value:
        return None
    column = evaluate(left, frame)
    values = numbers(column, np.float64 if left.type.kind is Kind.FLOAT else np.int64)
    result = _ON_NUMBERS[condition.operator](values, right.value)
    return result & valids(column) if column.null_count else result


_NUMBERS = (Kind.INT, Kind.FLOAT, Kind.DURATION)
# NaN is greater than every number, so it is not less or equal; numpy agrees.
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
    """The value of an expression for each row."""
    if isinstance(expression, Constant):
        return constant(expression, frame.rows)
    if isinstance(expression, Attribute):
        return frame.attribute(expression)
    if isinstance(expression, Intrinsic):
        return frame.intrinsic(expression)
    if isinstance(expression, Length | Presence | Aggregation) and isinstance(frame, AggregatingFrame):
        return frame.aggregate(expression)
    if isinstance(expression, Element):
        assert isinstance(frame, _ElementFrame)
        return frame.element(expression)
    assert isinstance(expression, Operation), f"{type(expression).__name__} has no value for a single row"
    if expression.operator == "any":
        return _any_element(expression, frame)
    found = _with_constants(expression, frame)
    if found is not None:
        return found
    operands = [evaluate(operand, frame) for operand in expression.operands]
    if expression.operator == IF_PRESENT:
        return _if_present(expression, operands[0], frame)
    types = [operand.type for operand in expression.operands]
    return apply(expression, operands, types, frame.rows)


def _any_element(expression: Operation, frame: Frame) -> Column:
    """Whether a condition is true for some element of each list. Null if it is true for none and null for some."""
    listed, condition = expression.operands
    lists = evaluate(listed, frame)
    if pa.types.is_null(lists.type):
        return pa.nulls(frame.rows, pa.bool_())
    elements = _ElementFrame(frame, lists)
    truth = evaluate(condition, elements)
    found, unknown = np.zeros(frame.rows, bool), np.zeros(frame.rows, bool)
    if pa.types.is_null(truth.type):
        unknown[elements.parents] = True
    else:
        found[elements.parents[truths(truth)]] = True
        unknown[elements.parents[~valids(truth)]] = True
    return pa.array(found, mask=~valids(lists) | (unknown & ~found))


_LISTED = (Kind.INT, Kind.STRING, Kind.BINARY, Kind.DATE, Kind.TIMESTAMP, Kind.DURATION)


def _with_constants(expression: Operation, frame: Frame) -> Column | None:
    """An operation between a text and constants, or IN with a list of constants, without a column for each constant.
    None for other operations, and for IN with floats, because Arrow's lookup distinguishes -0.0 from 0.0.
    """
    operator, (value, *others) = expression.operator, expression.operands
    if operator not in ("=", "!=", "<", "<=", ">", ">=", "in", "like") or isinstance(value, Constant):
        return None
    constants = [other for other in others if isinstance(other, Constant) and other.value is not None]
    if len(constants) < len(others) or any(other.type != value.type for other in constants):
        return None
    if operator == "like":
        return like([evaluate(value, frame), *(constant(other, 1) for other in constants)])
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
    """The result of one operator, given the columns of its operands."""
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
        return like(operands)
    if operator == "case":
        return _case(expression, operands, rows)
    if operator == "cast":
        return cast(operands[0], types[0], expression.type)
    return call(operator, operands, types, expression.type)


def arithmetic(operator: str, left: Column, right: Column, type_: Type) -> Column:
    """+ - * / %. The result is null where Spark's try_ functions give null."""
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
            # The remainder by -1 is 0; numpy would trap on the smallest integer.
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
    """Exact arithmetic of decimals with at most 18 digits. It is done in Python, because decimals are rare in
    predicates and must be exact.
    """
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
    """A value converted to another type. A value that does not fit becomes null."""
    wanted = engine_type(target)
    # Ticks of every unit and days are all int64: the type does not say what they count.
    if operand.type == wanted and (source.kind, source.unit) == (target.kind, target.unit):
        return operand
    if pa.types.is_null(operand.type):
        return pa.nulls(len(operand), wanted)
    return convert(operand, source, target, wanted)


# ── Functions ──────────────────────────────────────────────────────────────────────────────────────


def call(name: str, operands: list[Column], types: list[Type], result: Type) -> Column:
    """The result of a function, given its name and the columns of its operands."""
    return _FUNCTIONS[name](operands, types, result)


def like(operands: list[Column]) -> Column:
    """`value LIKE pattern [ESCAPE c]`. Patterns may differ from row to row."""
    values, patterns = operands[0], operands[1]
    escapes = operands[2].to_pylist() if len(operands) > 2 else ["\\"] * len(patterns)
    # One distinct (pattern, escape) pair at a time; usually there is only one.
    distinct = set(zip(patterns.to_pylist(), escapes, strict=True))
    if len(distinct) == 1:
        ((pattern, escape),) = distinct
        if pattern is None:
            return pa.nulls(len(values), pa.bool_())
        return pc.match_substring_regex(values, pattern=like_expression(pattern, escape or "\\"))
    out: list[bool | None] = []
    for value, pattern, escape in zip(values.to_pylist(), patterns.to_pylist(), escapes, strict=True):
        if value is None or pattern is None:
            out.append(None)
        else:
            out.append(_compiled(like_expression(pattern, escape or "\\")).search(value) is not None)
    return pa.array(out, pa.bool_())


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression.replace(r"\z", r"\Z"))


def like_expression(pattern: str, escape: str) -> str:
    r"""A LIKE pattern as a regular expression that RE2 and Python read, except for the end, which RE2 writes \z.

    >>> like_expression("50\\%_", "\\")
    '(?s)\\A50%.\\z'
    """
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(_escaped(next(characters, escape)))
        elif character == "%":
            parts.append(".*")
        elif character == "_":
            parts.append(".")
        else:
            parts.append(_escaped(character))
    return r"(?s)\A" + "".join(parts) + r"\z"


def _escaped(character: str) -> str:
    # re.escape also escapes characters that RE2 then refuses.
    return "\\" + character if character in r"\.+*?()|[]{}^$" else character


def convert(operand: Column, source: Type, target: Type, wanted: pa.DataType) -> Column:
    """A value converted to another type, in engine form. A value that does not fit becomes null."""
    if target.kind is Kind.FLOAT:
        if source.kind is Kind.BOOL:
            operand = pc.cast(operand, pa.int8())
        return to_float(operand)
    if target.kind is Kind.INT and source.kind is Kind.FLOAT:
        return _float_to_int(operand, np.trunc)
    if target.kind is Kind.INT and source.kind is Kind.DECIMAL:
        return _per_value(operand, int, pa.int64())
    if target.kind is Kind.DECIMAL:
        limit = Decimal(10 ** (target.precision - target.scale))
        quantum = Decimal((0, (1,), -target.scale))
        if source.kind is Kind.INT and target.scale == 0:
            values, valid = split(operand, np.int64)
            fits = (values < int(limit)) & (values > -int(limit))
            return pc.cast(join(values, valid & fits, pa.int64()), pa.decimal128(19, 0)).cast(wanted)

        def to_decimal(value: int | float | Decimal) -> Decimal | None:
            exact = Decimal(value)
            if not exact.is_finite():
                return None
            rounded = exact.quantize(quantum, context=EXACT)
            return rounded if rounded.copy_abs() < limit else None

        return _per_value(operand, to_decimal, wanted)
    if target.kind is Kind.TIMESTAMP:
        if source.kind is Kind.DATE:
            values, valid = split(operand, np.int64)
            per_day = 86_400_000_000 * (1000 if target.unit == "ns" else 1)
            fits = np.abs(values) <= _INT_MAX // per_day
            return join(np.where(fits, values, 0) * per_day, valid & fits, pa.int64())
        if source.kind is Kind.TIMESTAMP and source.unit != target.unit:
            return _rescale(operand, source.unit or "us", target.unit or "us")
        return operand
    if source.kind is target.kind is Kind.DURATION:
        return _rescale(operand, source.unit or "us", target.unit or "us")
    if target.kind is Kind.DATE and source.kind is Kind.TIMESTAMP:
        return to_date([operand], [source], target)
    return pc.cast(operand, wanted, safe=False)


def _saturate(operands: list[Column], types: list[Type], result: Type) -> Column:
    """Decimals at a larger scale. A number that would need more than 18 digits becomes the first number that does."""
    (operand,) = operands
    if pa.types.is_decimal(operand.type):
        values, valid = unscaled(operand)
        scale = operand.type.scale
    else:
        values, valid = split(operand, np.int64)
        scale = 0
    limit = 10 ** (DECIMAL_DIGITS_MAX - result.scale + scale)
    low = np.clip(values, -limit, limit) * 10 ** (result.scale - scale)
    words = np.stack([low, low >> 63], axis=1)
    whole = pa.Array.from_buffers(engine_type(result), len(low), [None, pa.py_buffer(np.ascontiguousarray(words))])
    return whole if valid.all() else pc.if_else(pa.array(valid), whole, pa.scalar(None, whole.type))


def _rescale(operand: Column, source: str, target: str) -> Column:
    values, valid = split(operand, np.int64)
    if (source, target) == ("us", "ns"):
        fits = np.abs(values) <= _INT_MAX // 1000
        return join(np.where(fits, values, 0) * 1000, valid & fits, pa.int64())
    assert (source, target) == ("ns", "us")
    return join(np.floor_divide(values, 1000), valid, pa.int64())


def _per_value(column: Column, convert_one: Callable[..., object], wanted: pa.DataType) -> Column:
    return pa.array([None if value is None else convert_one(value) for value in column.to_pylist()], wanted)


def _float_to_int(column: Column, rounding: Callable[[np.ndarray], np.ndarray]) -> Column:
    values, valid = split(column, np.float64)
    with np.errstate(all="ignore"):
        whole = rounding(values)
        fits = (whole >= -(2.0**63)) & (whole < 2.0**63)
    return join(np.where(fits, whole, 0).astype(np.int64), valid & fits, pa.int64())


# ── Strings ────────────────────────────────────────────────────────────────────────────────────────


def _substring(operands: list[Column], types: list[Type], result: Type) -> Column:
    lengths = operands[2].to_pylist() if len(operands) > 2 else [_INT_MAX] * len(operands[0])
    out: list[str | None] = []
    for text, position, length in zip(operands[0].to_pylist(), operands[1].to_pylist(), lengths, strict=True):
        if text is None or position is None or length is None:
            out.append(None)
            continue
        # As in Spark: 0 is like 1; a negative position counts from the end and may start before the text.
        start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
        out.append(text[max(0, start) : max(0, min(len(text), start + length))] if length > 0 else "")
    return pa.array(out, pa.large_string())


def _text_chunk(operands: list[Column], types: list[Type], result: Type) -> Column:
    """Eight bytes of each text, from a position on, as a number that sorts as the bytes do.

    `fill` replaces bytes after the end of the text. So the texts that begin with 'ab' are those between the number of
    'ab' filled with 0 and the number of 'ab' filled with 255.

    Only the end of a beginning that texts are compared with is filled with 255, and its last chunk must contain that
    end.
    """
    texts = pc.cast(operands[0], pa.large_binary())
    position, fill = (int(operand[0].as_py()) if len(operand) else 0 for operand in operands[1:])
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(ends) - position
    if fill and position == CHUNK * (CHUNKS_MAX - 1) and (lengths > CHUNK).any():
        longest = operands[0][int(lengths.argmax())].as_py()
        raise QueryError(
            f"the beginning of a text in a template must have at most {CHUNK * CHUNKS_MAX} bytes, got {longest!r}",
            hint="compare with a shorter beginning, or add the query by itself",
        )
    known = np.arange(CHUNK) < lengths[:, None]
    chunks = np.full((len(texts), CHUNK), fill, np.uint8)
    # Bytes of 0 are not distinguished from bytes that a text does not have.
    chunks[known] = np.frombuffer(data or b"", np.uint8)[(ends[:-1, None] + position + np.arange(CHUNK))[known]]
    if fill and (chunks == 0).any():
        raise QueryError("the beginning of a text in a template must not contain the character of code 0")
    numbers = chunks.view(">u8").ravel().astype(np.uint64) ^ np.uint64(1 << 63)
    return join(numbers.view(np.int64), valids(texts), pa.int64())


def _prefix_of_like(operands: list[Column], types: list[Type], result: Type) -> Column:
    """The text before the only % of LIKE patterns. Raises an error for other patterns."""
    escape = operands[1][0].as_py() if len(operands[1]) else "\\"
    found = []
    for pattern in operands[0].to_pylist():
        found.append(None if pattern is None else like_prefix(pattern, escape))
        if pattern is not None and found[-1] is None:
            raise QueryError(
                f"in a template, the only wildcard of LIKE must be % at the end, got {pattern!r}",
                hint="add queries with other patterns by themselves, or compare with = if there is no wildcard",
            )
    return pa.array(found, pa.large_string())


def _rowwise(function: Callable[..., object]) -> _Function:
    """A function that is applied row by row in Python. For functions that Arrow has only for constant arguments."""

    def run(operands: list[Column], types: list[Type], result: Type) -> Column:
        out = []
        for arguments in zip(*(operand.to_pylist() for operand in operands), strict=True):
            out.append(None if any(argument is None for argument in arguments) else function(*arguments))
        return pa.array(out, engine_type(result))

    return run


def _changed_case(ascii_only: Callable[[Column], Column], per_text: Callable[[str], str]) -> _Function:
    """Upper or lower case. One letter may become several (ß to SS), which Arrow's own functions do not do."""

    def run(operands: list[Column], types: list[Type], result: Type) -> Column:
        if pc.all(pc.string_is_ascii(operands[0])).as_py() is not False:
            return ascii_only(operands[0])
        return _per_value(operands[0], per_text, pa.large_string())

    return run


def _rlike(operands: list[Column], types: list[Type], result: Type) -> Column:
    """`value RLIKE pattern`. The binder accepts only constant patterns."""
    expression = operands[1][0].as_py() if len(operands[1]) else None
    if expression is None:
        return pa.nulls(len(operands[0]), pa.bool_())
    return pc.match_substring_regex(operands[0], pattern=expression)


def _cidr_match(operands: list[Column], types: list[Type], result: Type) -> Column:
    """Whether an address is in a network. The binder accepts only constant networks. Each distinct address is parsed
    once.
    """
    if not len(operands[0]):
        return pa.nulls(0, pa.bool_())
    texts = [network[0].as_py() for network in operands[1:]]
    if None in texts:
        return pa.nulls(len(operands[0]), pa.bool_())
    networks = [ipaddress.ip_network(text, strict=False) for text in texts]

    def is_inside(text: str | None) -> bool | None:
        if text is None:
            return None
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in networks)

    encoded = pc.dictionary_encode(operands[0])
    return pa.array([is_inside(text) for text in encoded.dictionary.to_pylist()], pa.bool_()).take(encoded.indices)


def _string(operands: list[Column], types: list[Type], result: Type) -> Column:
    """A cast to string, as in Spark."""
    (operand,), (kind,) = operands, types
    if kind.kind is Kind.STRING:
        return operand
    if kind.kind is Kind.FLOAT:
        return _per_value(operand, double_text, pa.large_string())
    if kind.kind is Kind.DECIMAL:
        return _per_value(operand, lambda value: f"{value:f}", pa.large_string())
    if kind.kind is Kind.DATE:
        return pc.strftime(_moment(operand, kind), format="%Y-%m-%d").cast(pa.large_string())
    if kind.kind is Kind.TIMESTAMP:
        moment = _moment(operand, kind)
        if kind.zone is not None:
            moment = pc.local_timestamp(moment)
        texts = pc.strftime(moment, format="%Y-%m-%d %H:%M:%S").cast(pa.large_string())
        return _trimmed(texts)
    return pc.cast(operand, pa.large_string())


def _trimmed(texts: Column) -> Column:
    """Times as text, without zeros at the end of their fractions."""
    has_fraction = pc.match_substring(texts, pattern=".")
    shorter = pc.utf8_rtrim(pc.utf8_rtrim(texts, characters="0"), characters=".")
    return pc.if_else(has_fraction, shorter, texts)


def double_text(value: float) -> str:
    """A float as Java writes it.

    >>> [double_text(value) for value in (1.0, 0.001, 1e7, -1.5e-4, math.inf)]
    ['1.0', '0.001', '1.0E7', '-1.5E-4', 'Infinity']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{Decimal(repr(value)):f}"
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{rest}E{exponent + len(digits) - 1}"


def _replace(text: str, search: str, replacement: str) -> str:
    return text.replace(search, replacement) if search else text


def _size(operands: list[Column], types: list[Type], result: Type) -> Column:
    (lists,) = operands
    if pa.types.is_null(lists.type):
        return pa.nulls(len(lists), pa.int64())
    return pc.cast(pc.list_value_length(lists), pa.int64())


def _concat(operands: list[Column], types: list[Type], result: Type) -> Column:
    return pc.binary_join_element_wise(*operands, pa.scalar("", pa.large_string()), null_handling="emit_null")


# ── Numbers ────────────────────────────────────────────────────────────────────────────────────────


def _abs(operands: list[Column], types: list[Type], result: Type) -> Column:
    if pa.types.is_integer(operands[0].type):
        values, valid = split(operands[0], np.int64)
        return join(np.abs(values), valid & (values != _INT_MIN), pa.int64())
    return pc.abs(operands[0])


def _whole(rounding: Callable[[np.ndarray], np.ndarray], decimal_rounding: str) -> _Function:
    def run(operands: list[Column], types: list[Type], result: Type) -> Column:
        if pa.types.is_integer(operands[0].type):
            return operands[0]
        if pa.types.is_decimal(operands[0].type):
            one = Decimal(1)
            return _per_value(
                operands[0], lambda value: value.quantize(one, decimal_rounding, EXACT), engine_type(result)
            )
        return _float_to_int(operands[0], rounding)

    return run


def _round(operands: list[Column], types: list[Type], result: Type) -> Column:
    digits = operands[1][0].as_py() if len(operands) > 1 and len(operands[1]) else 0
    if digits is None:
        return pa.nulls(len(operands[0]), engine_type(result))
    quantum = Decimal((0, (1,), -int(digits)))

    def round_one(value: int | float | Decimal) -> object:
        # As in Spark: by the shortest decimal form of a double, halves away from zero.
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if not exact.is_finite():
            return value
        if exact.as_tuple().exponent >= -int(digits):  # type: ignore[operator]
            rounded = exact
        else:
            rounded = exact.quantize(quantum, context=EXACT)
        if isinstance(value, float):
            return float(rounded)
        if isinstance(value, int):
            whole = int(rounded)
            return whole if _INT_MIN <= whole <= _INT_MAX else None
        return rounded

    return _per_value(operands[0], round_one, engine_type(result))


def _floating(function: Callable[..., np.ndarray], domain: Callable[..., np.ndarray] | None = None) -> _Function:
    """A function of floats. The result is null outside its domain if Spark gives null there."""

    def run(operands: list[Column], types: list[Type], result: Type) -> Column:
        pairs = [split(operand, np.float64) for operand in operands]
        arguments = [values for values, _ in pairs]
        valid = np.logical_and.reduce([valid for _, valid in pairs])
        with np.errstate(all="ignore"):
            if domain is not None:
                inside = domain(*arguments)
                valid &= inside
                arguments = [np.where(inside, argument, 1.0) for argument in arguments]
            return join(function(*arguments), valid, pa.float64())

    return run


def _sign(operands: list[Column], types: list[Type], result: Type) -> Column:
    return pc.cast(pc.sign(operands[0]), pa.float64())


def _positive(x: np.ndarray) -> np.ndarray:
    return np.asarray((x > 0) | np.isnan(x))


def _isnan(operands: list[Column], types: list[Type], result: Type) -> Column:
    return pc.fill_null(pc.is_nan(operands[0]), False)


def _converted(operands: list[Column], types: list[Type], result: Type) -> Column:
    wanted = engine_type(result)
    return operands[0] if operands[0].type == wanted else convert(operands[0], types[0], result, wanted)


# ── Dates and times ────────────────────────────────────────────────────────────────────────────────


def _moment(operand: Column, type_: Type) -> Column:
    """Ticks or days as an Arrow timestamp or date, in the column's time zone."""
    if type_.kind is Kind.DATE:
        return operand.cast(pa.int32()).view(pa.date32())
    return operand.cast(pa.timestamp(type_.unit or "us", type_.zone))


def _part(function: Callable[[Column], Column]) -> _Function:
    def run(operands: list[Column], types: list[Type], result: Type) -> Column:
        return pc.cast(function(_moment(operands[0], types[0])), pa.int64())

    return run


def _day_of_week(moment: Column) -> Column:
    return pc.day_of_week(moment, count_from_zero=False, week_start=7)


def to_date(operands: list[Column], types: list[Type], result: Type) -> Column:
    """The date of a timestamp, in the timestamp's time zone."""
    if types[0].kind is Kind.DATE:
        return operands[0]
    moment = _moment(operands[0], types[0])
    if types[0].zone is not None:
        moment = pc.local_timestamp(moment)
    days = pc.cast(pc.floor_temporal(moment, unit="day"), pa.date32())
    return pc.cast(days.view(pa.int32()), pa.int64())


# ── Conditions and nulls ───────────────────────────────────────────────────────────────────────────


def _coalesce(operands: list[Column], types: list[Type], result: Type) -> Column:
    return pc.coalesce(*_of_one_type(operands, result))


def _nullif(operands: list[Column], types: list[Type], result: Type) -> Column:
    left, right = _of_one_type(operands, result)
    equal = pc.fill_null(compare("=", left, right), False)
    return pc.if_else(equal, pa.scalar(None, left.type), left)


def _if(operands: list[Column], types: list[Type], result: Type) -> Column:
    chosen, otherwise = _of_one_type(operands[1:], result)
    return pc.if_else(pc.fill_null(operands[0], False), chosen, otherwise)


def _extreme(operator: str) -> _Function:
    def run(operands: list[Column], types: list[Type], result: Type) -> Column:
        best, *others = _of_one_type(operands, result)
        for other in others:
            # Nulls are ignored; NaN counts as the largest.
            better = pc.or_(pc.is_null(best), pc.fill_null(compare(operator, other, best), False))
            best = pc.if_else(pc.and_(better, pc.is_valid(other)), other, best)
        return best

    return run


def _of_one_type(operands: list[Column], result: Type) -> list[Column]:
    wanted = engine_type(result)
    return [pa.nulls(len(o), wanted) if pa.types.is_null(o.type) else o for o in operands]


def _unary(function: Callable[[Column], Column]) -> _Function:
    return lambda operands, types, result: function(operands[0])


_FUNCTIONS: dict[str, _Function] = {
    "saturate": _saturate,
    "lower": _changed_case(pc.ascii_lower, str.lower),
    "upper": _changed_case(pc.ascii_upper, str.upper),
    "length": lambda operands, types, result: pc.cast(pc.utf8_length(operands[0]), pa.int64()),
    "concat": _concat,
    "substring": _substring,
    "text_chunk": _text_chunk,
    "prefix_of_like": _prefix_of_like,
    "trim": _unary(lambda column: pc.utf8_trim(column, characters=" ")),
    "ltrim": _unary(lambda column: pc.utf8_ltrim(column, characters=" ")),
    "rtrim": _unary(lambda column: pc.utf8_rtrim(column, characters=" ")),
    "replace": _rowwise(_replace),
    "startswith": _rowwise(str.startswith),
    "endswith": _rowwise(str.endswith),
    "contains": _rowwise(str.__contains__),
    "rlike": _rlike,
    "cidr_match": _cidr_match,
    "string": _string,
    "size": _size,
    "instr": _rowwise(lambda text, part: text.find(part) + 1),
    "abs": _abs,
    "sign": _sign,
    "round": _round,
    "floor": _whole(np.floor, "ROUND_FLOOR"),
    "ceil": _whole(np.ceil, "ROUND_CEILING"),
    "sqrt": _floating(np.sqrt),
    "exp": _floating(np.exp),
    "ln": _floating(np.log, _positive),
    "log10": _floating(np.log10, _positive),
    "power": _floating(np.power),
    "isnan": _isnan,
    "double": _converted,
    "bigint": _converted,
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "dayofweek": _part(_day_of_week),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
    "to_date": to_date,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "if": _if,
    "greatest": _extreme(">"),
    "least": _extreme("<"),
}
