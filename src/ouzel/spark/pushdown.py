"""Roles as Catalyst expressions, so that Spark's sources get the filters and events without a role are never shuffled.

What is written here must keep every event that the engine would use (`runtime/expressions.py` is the other half of the
same meaning, and tests compare the two). Where Spark cannot say the same thing, the condition is left to the workers;
where it can for most values, the events with the others are kept: a *doubt*. No expression raises in Spark's ANSI mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, or_
from typing import Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ouzel.bind.model import Attribute, Bound, BoundQuery, Conjunct, Constant, EventField, Intrinsic, Kind, Operation
from ouzel.bind.model import Type as BoundType
from ouzel.bind.normal_form import comparisons_of, is_junction
from ouzel.engines.kleene.plan import RunPlan
from ouzel.plan.expressions import walk
from ouzel.plan.model import Plan
from ouzel.runtime.layout import Layout
from ouzel.spark.schema import quoted

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
DECIMAL_DIGITS_MAX = 18
SPARK_DIGITS_MAX = 38
MICROSECONDS_PER_DAY = 86_400_000_000

# Spark's string functions take 32-bit positions; beyond this, sums of two of them would not fit.
POSITION_MAX = 1 << 30

# Two libraries of mathematics may differ in the last bits of these.
INEXACT = frozenset({"exp", "ln", "log10", "power"})
RELATIVE_TOLERANCE = 1e-9
# What is near before these is near after them; a sum may lose all but the last bits.
KEEPS_NEARNESS = frozenset({"*", "/", "negate", "abs", "double"})


class LeftToWorkers(Exception):
    """Spark has no expression with just this meaning."""


def wanted(plans: Sequence[Plan] | None, layout: Layout, time_column: str) -> list[Column]:
    """Conditions, all to be met, of the events that can change an answer; none where all of them can.

    An event without a time passes: it is an error whatever its type, and the workers say so.
    """
    if plans is None or any(_counts_every_event(plan) for plan in plans):
        return []
    return _playing(plans, layout, F.col(quoted(time_column)).isNull())


def thinned(plans: Sequence[Plan] | None, layout: Layout, columns: Sequence[str]) -> list[Column]:
    """The columns to send. Where every event counts, one that can play no component travels as a time and a key."""
    plain = [F.col(quoted(name)) for name in columns]
    if plans is None or not any(_counts_every_event(plan) for plan in plans):
        return plain
    named = {layout.column(None, test.path[0]) for plan in plans for test in plan.query.equivalences}
    kept = {layout.time, layout.start, *layout.order, *named}
    if layout.type is None or layout.type in kept or layout.physical or _types(plans) is None:
        return plain  # Without a type of its own, an event of nulls might play a part after all.
    if any(_is_lacking(plan.query) for plan in plans):
        return plain  # Its type says whether an event has a key at all.
    plays = reduce(and_, _playing(plans, layout, F.lit(False)))
    return [
        column if name in kept else F.when(plays, column).alias(name)
        for name, column in zip(columns, plain, strict=True)
    ]


def _is_lacking(query: BoundQuery) -> bool:
    """Whether some type is declared without what an equivalence test names."""
    declared = (query.catalog.declared or {}).values()
    return any(test.path[0] not in attributes for test in query.equivalences for attributes in declared)


def _playing(plans: Sequence[Plan], layout: Layout, passing: Column) -> list[Column]:
    """Conditions, all to be met, of the events that may play a component; what is `passing` meets them all."""
    conditions = []
    types = _types(plans)
    if types is not None and layout.type is not None:
        # On its own, because sources take simple conditions and may not take those that follow.
        conditions.append(passing | _type(layout).isin(sorted(types)))
    roles = [role for plan in plans for role in _roles(plan, layout)]
    if any(tests for _, tests in roles):
        playing = [reduce(and_, [*own_type, *tests]) if own_type or tests else F.lit(True) for own_type, tests in roles]
        condition = passing | reduce(or_, playing)
        # Spark would draw two like conditions together, and a source that cannot take one would then get neither.
        conditions.append(condition if _all_simple(plans) else F.coalesce(condition, F.lit(False)))
    return conditions


def _all_simple(plans: Sequence[Plan]) -> bool:
    groups = [group for plan in plans for group in plan.roles.values()]
    groups += [group for plan in plans if isinstance(plan, RunPlan) for group in plan.later_roles.values()]
    return all(_is_simple(conjunct) for group in groups for conjunct in group)


def _counts_every_event(plan: Plan) -> bool:
    return isinstance(plan, RunPlan) and plan.needs_positions


def _types(plans: Sequence[Plan]) -> set[str] | None:
    found: set[str] = set()
    for plan in plans:
        for component in plan.query.components:
            if component.types is None:
                return None
            found.update(component.types)
    return found


def _roles(plan: Plan, layout: Layout) -> list[tuple[list[Column], list[Column]]]:
    """For each part that an event can play: the condition on its type, and its other conditions."""
    found = []
    for component in plan.query.components:
        own_type = [] if component.types is None else [_is_one_of(component.types, layout)]
        groups = [plan.roles[component.position]]
        if isinstance(plan, RunPlan) and component.kleene:
            groups.append(plan.later_roles[component.position])
        for conjuncts in dict.fromkeys(groups):
            tests = [passes(conjunct, plan.query, layout) for conjunct in dict.fromkeys(conjuncts)]
            found.append((own_type, [test for test in tests if test is not None]))
    return found


def passes(conjunct: Conjunct, query: BoundQuery, layout: Layout) -> Column | None:
    """Whether an event satisfies a condition on it alone, or may do so; None where only the workers can tell."""
    return _balanced(or_, [_passes(condition, query, layout) for condition in conjunct.comparisons])


def _passes(condition: Bound, query: BoundQuery, layout: Layout) -> Column | None:
    if is_junction(condition):
        operands = [_passes(operand, query, layout) for operand in condition.operands]
        if condition.operator == "or":
            return _balanced(or_, operands)
        # What the others rule out is ruled out, whatever the workers say of the rest.
        told = [operand for operand in operands if operand is not None]
        return _balanced(and_, told) if told else None
    writer = _Writer(query, layout)
    try:
        value = writer.value(condition)
    except LeftToWorkers:
        return None
    # Unknown is not true, and three-valued OR says so by itself.
    return reduce(or_, [value, *writer.doubts, *writer.absences])


def _balanced(join: Callable[[Column, Column], Column], columns: Sequence[Column | None]) -> Column | None:
    """Columns joined as a tree that is as flat as it can be: Spark recurses over it. None where one is None."""
    left = [column for column in columns if column is not None]
    if len(left) < len(columns):
        return None
    while len(left) > 1:
        pairs = [join(one, other) for one, other in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[len(pairs) * 2 :]
    return left[0]


def _type(layout: Layout) -> Column:
    if layout.type is None:
        return F.lit(layout.only_type)
    column = F.col(quoted(layout.type))
    return column if pa.types.is_string(layout.schema.field(layout.type).type) else column.cast("string")


def _is_one_of(types: Sequence[str], layout: Layout) -> Column:
    """Unknown, like false, for an event without a type."""
    return _type(layout).isin(*types) if types else F.lit(False)


def _is_simple(conjunct: Conjunct) -> bool:
    """Whether sources take it as it stands: columns of one value each against constants."""
    for comparison in comparisons_of(*conjunct.comparisons):
        for part in walk(comparison):
            if isinstance(part, Operation) and part.operator not in _SIMPLE_OPERATORS:
                return False
            if isinstance(part, Attribute) and (part.present_in is not None or part.type.kind is Kind.FLOAT):
                return False
        named = [p for p in walk(comparison) if isinstance(p, Attribute | Intrinsic)]
        if len(named) != 1 or any(isinstance(p, Attribute) and len(p.path) > 1 for p in named):
            return False
    return True


# ── Expressions ────────────────────────────────────────────────────────────────────────────────────


class _Writer:
    """Writes one comparison. `doubts` tell for which events the workers should decide, `absences` for which the
    comparison holds because their type lacks an attribute."""

    def __init__(self, query: BoundQuery, layout: Layout) -> None:
        self._query = query
        self._layout = layout
        self.doubts: list[Column] = []
        self.absences: list[Column] = []

    def value(self, expression: Bound) -> Column:
        """The expression over one event: integers as BIGINT, floats as DOUBLE, the rest in Spark's own types."""
        if isinstance(expression, Constant):
            return _constant(expression)
        if isinstance(expression, Attribute):
            return self._attribute(expression)
        if isinstance(expression, Intrinsic):
            return self._intrinsic(expression)
        if not isinstance(expression, Operation):
            raise LeftToWorkers
        return self._operation(expression)

    # ── What is read ───────────────────────────────────────────────────────────────────────────────

    def _attribute(self, reference: Attribute) -> Column:
        types = self._query.components[reference.component].types or ("",)
        name, *inner = reference.path
        owners: dict[str, list[str]] = {}
        for event_type in types:
            if reference.present_in is None or event_type in reference.present_in:
                owners.setdefault(self._layout.column(event_type, name), []).append(event_type)
        if reference.present_in is not None:
            self.absences.append(~F.coalesce(_is_one_of(sorted(reference.present_in), self._layout), F.lit(False)))
        pieces = [(column, _in_engine_form(self._read(column, inner), reference.type)) for column in sorted(owners)]
        value = pieces[0][1]
        for column, piece in pieces[1:]:
            value = F.when(_is_one_of(owners[column], self._layout), piece).otherwise(value)
        if reference.present_in is not None:
            value = F.when(_is_one_of(sorted(reference.present_in), self._layout), value)
        return value

    def _read(self, column: str, inner: Sequence[str]) -> Column:
        kind = self._layout.schema.field(column).type
        value = F.col(quoted(column))
        for field in inner:
            kind, value = kind.field(field).type, value.getField(field)
        if pa.types.is_decimal(kind) and kind.precision > DECIMAL_DIGITS_MAX:
            raise LeftToWorkers  # They refuse values of more digits, which here would be nulls.
        return value

    def _intrinsic(self, reference: Intrinsic) -> Column:
        if reference.field is EventField.TYPE:
            return _type(self._layout)
        if self._layout.start is not None:
            raise LeftToWorkers
        return _in_engine_form(F.col(quoted(self._layout.time)), reference.type)

    # ── Operators ──────────────────────────────────────────────────────────────────────────────────

    def _operation(self, expression: Operation) -> Column:
        operator, operands = expression.operator, expression.operands
        if operator in _COMPARE:
            return self._comparison(operator, operands[0], operands[1])
        if operator == "in":
            return reduce(or_, [self._comparison("=", operands[0], item) for item in operands[1:]])
        if operator == "like":
            return self._like(operands)
        if operator not in KEEPS_NEARNESS and operator != "is_null" and any(map(_is_inexact, operands)):
            raise LeftToWorkers
        if operator == "cast":
            return self._cast(operands[0], expression.type)
        values = [self.value(operand) for operand in operands]
        if operator == "saturate":
            # There is room for every digit here, so that nothing stands in for what has none elsewhere.
            return values[0].cast(f"decimal({SPARK_DIGITS_MAX},{expression.type.scale})")
        if operator in ("and", "or"):
            return reduce(and_ if operator == "and" else or_, values)
        if operator == "not":
            return ~values[0]
        if operator == "is_null":
            return values[0].isNull()
        if operator == "case":
            return _case(values)
        if operator == "negate":
            return F.try_subtract(_long(0), values[0]) if operands[0].type.kind is Kind.INT else -values[0]
        if operator in _ARITHMETIC:
            return _arithmetic(operator, values, [operand.type for operand in operands], expression.type)
        return self._function(operator, values, [operand.type for operand in operands], expression.type)

    def _comparison(self, operator: str, left: Bound, right: Bound) -> Column:
        x, y = self.value(left), self.value(right)
        if Kind.STRUCT in (left.type.kind, right.type.kind) or Kind.OTHER in (left.type.kind, right.type.kind):
            raise LeftToWorkers
        if _is_inexact(left) or _is_inexact(right):
            self.doubts.append(F.abs(x - y) <= (F.abs(x) + F.abs(y)) * F.lit(RELATIVE_TOLERANCE))
        if Kind.FLOAT in (left.type.kind, right.type.kind):
            # NaN is above all numbers, but writers of Parquet leave it out of a block's smallest and largest value.
            # What NaN may satisfy is therefore written so that no source recognises it.
            nan = F.lit(float("nan"))
            x = F.nanvl(x, nan) if operator in ("=", "!=", ">", ">=") and left.type.kind is Kind.FLOAT else x
            y = F.nanvl(y, nan) if operator in ("=", "!=", "<", "<=") and right.type.kind is Kind.FLOAT else y
        return _COMPARE[operator](x, y)

    def _like(self, operands: Sequence[Bound]) -> Column:
        # The binder lets only constants through, with escapes that Spark reads too.
        pattern, *escape = (self.value(operand) for operand in operands[1:])
        return F.like(self.value(operands[0]), pattern, *escape)

    def _cast(self, operand: Bound, target: BoundType) -> Column:
        source, value = operand.type, self.value(operand)
        kinds = (source.kind, target.kind)
        if source == target or kinds in ((Kind.INT, Kind.INT), (Kind.FLOAT, Kind.FLOAT)):
            return value
        if source.kind is Kind.NULL:
            return value.cast(_spark_type(target))
        if kinds in _EXACT_CASTS:
            return value.try_cast(_spark_type(target))
        if kinds == (Kind.DATE, Kind.TIMESTAMP) and target.unit != "ns":
            if target.zone is None:
                return value.cast("timestamp_ntz")
            days = F.unix_date(value).cast("bigint")
            return F.timestamp_micros(F.try_multiply(days, _long(MICROSECONDS_PER_DAY)))
        if kinds == (Kind.TIMESTAMP, Kind.DATE):
            return _day(value, source)
        raise LeftToWorkers

    # ── Functions ──────────────────────────────────────────────────────────────────────────────────

    def _function(self, name: str, values: list[Column], types: list[BoundType], result: BoundType) -> Column:
        first = values[0]
        if name in ("lower", "upper"):
            # Outside ASCII, case is a matter of the version of Unicode.
            self.doubts.append(F.octet_length(first) != F.char_length(first))
            return F.lower(first) if name == "lower" else F.upper(first)
        if name == "substring":
            for position in values[1:]:
                self.doubts.append(~position.between(-POSITION_MAX, POSITION_MAX))
            position, length = values[1].try_cast("int"), F.lit(POSITION_MAX)
            if len(values) > 2:
                length = values[2].try_cast("int")
            return F.when(values[-1].isNotNull(), F.substr(first, position, length))
        if name == "round":
            return self._round(first, types[0], values[1:], result)
        if name in ("floor", "ceil"):
            whole = F.floor if name == "floor" else F.ceil
            if types[0].kind is Kind.INT:
                return first
            if types[0].kind is Kind.DECIMAL:
                return whole(first).try_cast(_spark_type(result))
            return F.when((first >= F.lit(-(2.0**63))) & (first < F.lit(2.0**63)), whole(first))
        if name == "abs":
            return F.when(first != _long(INT_MIN), F.abs(first)) if types[0].kind is Kind.INT else F.abs(first)
        if name == "bigint" and types[0].kind is Kind.DECIMAL:
            return first.try_cast("bigint")
        if name == "bigint" or name == "double":
            return first if types[0].kind is result.kind else first.try_cast(_spark_type(result))
        if name in _PARTS_OF_DATES:
            return _PARTS_OF_DATES[name](_day(first, types[0])).cast("bigint")
        if name in _PARTS_OF_TIMES:
            return _part_of_time(name, first, types[0])
        if name == "to_date":
            return _day(first, types[0])
        if name in _PLAIN:
            return _PLAIN[name](*values)
        raise LeftToWorkers

    def _round(self, value: Column, kind: BoundType, digits: list[Column], result: BoundType) -> Column:
        places = digits[0].cast("int") if digits else F.lit(0)
        if kind.kind is Kind.INT:
            return F.round(value.cast("decimal(20,0)"), places).try_cast("bigint")
        if kind.kind is Kind.DECIMAL:
            return F.round(value, places).try_cast(_spark_type(result))
        # By the decimal form of a double, in which versions of Java differ; halves are where it shows.
        scaled = F.abs(value * F.pow(F.lit(10.0), places))
        from_half = F.abs(scaled - F.floor(scaled) - F.lit(0.5))
        self.doubts.append(F.when(scaled > F.lit(1e9), F.lit(True)).otherwise(from_half < F.lit(1e-6)))
        return F.round(value, places)


def _is_inexact(expression: Bound) -> bool:
    """Whether the last bits of a value may differ between Spark and the engine."""
    if not isinstance(expression, Operation):
        return False
    from_decimal = expression.type.kind is Kind.FLOAT and any(o.type.kind is Kind.DECIMAL for o in expression.operands)
    inherited = expression.operator in KEEPS_NEARNESS and any(map(_is_inexact, expression.operands))
    return expression.operator in INEXACT or from_decimal or inherited


def _in_engine_form(value: Column, kind: BoundType) -> Column:
    if kind.kind is Kind.INT:
        return value.cast("bigint")
    if kind.kind is Kind.FLOAT:
        return value.cast("double")
    if kind.kind in (Kind.UNKNOWN, Kind.DURATION) or kind.unit == "ns":
        raise LeftToWorkers
    return value


def _spark_type(kind: BoundType) -> str:
    if kind.kind is Kind.DECIMAL:
        return f"decimal({max(kind.precision, 1)},{kind.scale})"
    if kind.kind is Kind.TIMESTAMP:
        return "timestamp_ntz" if kind.zone is None else "timestamp"
    try:
        return _SPARK_TYPES[kind.kind]
    except KeyError:
        raise LeftToWorkers from None


_SPARK_TYPES = {
    Kind.BOOL: "boolean",
    Kind.INT: "bigint",
    Kind.FLOAT: "double",
    Kind.STRING: "string",
    Kind.BINARY: "binary",
    Kind.DATE: "date",
    Kind.NULL: "void",
}

# Casts in which Spark's way and ours cannot differ; what does not fit is null in both.
_EXACT_CASTS = frozenset(
    {
        (Kind.INT, Kind.FLOAT),
        (Kind.BOOL, Kind.FLOAT),
        (Kind.BOOL, Kind.INT),
        (Kind.FLOAT, Kind.INT),
        (Kind.DECIMAL, Kind.INT),
        (Kind.INT, Kind.DECIMAL),
        (Kind.DECIMAL, Kind.DECIMAL),
        (Kind.DECIMAL, Kind.FLOAT),
    }
)


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")


def _constant(constant: Constant) -> Column:
    kind, value = constant.type, constant.value
    if value is None:
        return F.lit(None).cast(_spark_type(kind))
    if kind.kind is Kind.INT:
        return _long(int(value))
    if kind.kind is Kind.FLOAT:
        return F.lit(float(value))
    if kind.kind is Kind.DECIMAL:
        return F.lit(str(value)).cast(_spark_type(kind))
    if kind.kind is Kind.DATE:
        return F.lit(_iso(int(value), "D")).cast("date")
    if kind.kind is Kind.TIMESTAMP and kind.unit != "ns":
        if kind.zone is not None:
            return F.timestamp_micros(_long(int(value)))
        return F.lit(_iso(int(value), "us")).cast("timestamp_ntz")
    if kind.kind in (Kind.BOOL, Kind.STRING, Kind.BINARY):
        return F.lit(value)
    raise LeftToWorkers


def _iso(value: int, unit: Literal["D", "us"]) -> str:
    text = str(np.datetime64(value, unit))
    if not text[:5].removesuffix("-").isdigit() or len(text.split("-")[0]) != 4:
        raise LeftToWorkers  # Spark reads years of four digits.
    return text


def _case(values: list[Column]) -> Column:
    result = values[-1]
    for place in range(len(values) - 3, -1, -2):
        result = F.when(values[place], values[place + 1]).otherwise(result)
    return result


def _arithmetic(operator: str, values: list[Column], types: list[BoundType], result: BoundType) -> Column:
    kinds = {kind.kind for kind in types}
    if result.kind is Kind.FLOAT and kinds <= {Kind.INT, Kind.FLOAT, Kind.DECIMAL, Kind.NULL}:
        x, y = (value.cast("double") for value in values)
        return _ARITHMETIC[operator](x, y)
    if result.kind is Kind.INT and kinds <= {Kind.INT, Kind.NULL} and operator != "/":
        return _ARITHMETIC[operator](*values)
    if result.kind is Kind.DECIMAL and kinds == {Kind.DECIMAL} and operator != "/":
        scales = [kind.scale for kind in types]
        if result.scale >= (sum(scales) if operator == "*" else max(scales)):
            return _ARITHMETIC[operator](*values).try_cast(_spark_type(result))
    raise LeftToWorkers


# ── Days and times, whatever the time zone of the Spark session ────────────────────────────────────


def _day(value: Column, kind: BoundType) -> Column:
    """The day of a timestamp with a zone is that of UTC, the zone in which Spark keeps it."""
    if kind.kind is Kind.DATE:
        return value
    if kind.zone is None:
        return value.cast("date")
    return F.date_from_unix_date(_floor_divide(F.unix_micros(value), MICROSECONDS_PER_DAY).cast("int"))


def _part_of_time(name: str, value: Column, kind: BoundType) -> Column:
    unit, count = _PARTS_OF_TIMES[name]
    if kind.zone is None:
        return {"hour": F.hour, "minute": F.minute, "second": F.second}[name](value).cast("bigint")
    return F.pmod(_floor_divide(F.unix_micros(value), unit), _long(count))


def _floor_divide(value: Column, divisor: int) -> Column:
    return F.call_function("div", value - F.pmod(value, _long(divisor)), _long(divisor))


def ticks(time: Column, kind: pa.DataType) -> Column:
    """An event's time as BIGINT ticks, exactly as the engine counts them."""
    if not pa.types.is_timestamp(kind):
        return time.cast("bigint")
    if kind.tz is not None:
        return F.unix_micros(time)
    # Field by field: every shorter way goes through the time zone of the session.
    seconds = F.hour(time) * F.lit(3600) + F.minute(time) * F.lit(60)
    microseconds = (F.extract(F.lit("SECOND"), time) * F.lit(1_000_000)).cast("bigint")
    days = F.unix_date(time.cast("date")).cast("bigint")
    return days * _long(MICROSECONDS_PER_DAY) + seconds.cast("bigint") * _long(1_000_000) + microseconds


# ── Tables of functions ────────────────────────────────────────────────────────────────────────────

_COMPARE: dict[str, Callable[[Column, Column], Column]] = {
    "=": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}

_SIMPLE_OPERATORS = frozenset({*_COMPARE, "in", "is_null", "not", "and", "or"})

_ARITHMETIC: dict[str, Callable[[Column, Column], Column]] = {
    "+": F.try_add,
    "-": F.try_subtract,
    "*": F.try_multiply,
    "/": F.try_divide,
    "%": F.try_mod,
}

_PARTS_OF_DATES: dict[str, Callable[[Column], Column]] = {
    "year": F.year,
    "month": F.month,
    "day": F.dayofmonth,
    "dayofweek": F.dayofweek,
}

# Microseconds of each, and how many make the next.
_PARTS_OF_TIMES = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}

_PLAIN: dict[str, Callable[..., Column]] = {
    "length": lambda text: F.char_length(text).cast("bigint"),
    "concat": F.concat,
    "trim": lambda text: F.trim(text),
    "ltrim": lambda text: F.ltrim(text),
    "rtrim": lambda text: F.rtrim(text),
    "replace": F.replace,
    "startswith": F.startswith,
    "endswith": F.endswith,
    "contains": F.contains,
    "instr": lambda text, part: F.call_function("instr", text, part).cast("bigint"),
    "sign": F.signum,
    "sqrt": F.sqrt,
    "exp": F.exp,
    "ln": F.ln,
    "log10": F.log10,
    "power": F.pow,
    "isnan": F.isnan,
    "coalesce": F.coalesce,
    "nullif": F.nullif,
    "if": lambda condition, x, y: F.when(condition, x).otherwise(y),
    "greatest": F.greatest,
    "least": F.least,
}
