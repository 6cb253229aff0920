"""Filter push-down: conditions of roles as Spark expressions, so that sources filter events and less is shuffled.

Tests of event types are pushed down and, of the conditions on one event, comparisons of a column with constants, IN,
LIKE and IS NULL. The workers test all conditions again. So a filter must keep every event that the engine would use,
and may keep more. `runtime/expressions.py` defines what conditions mean, and tests compare both. No expression raises
an error in Spark's ANSI mode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ouzel.bind.model import (
    WHOLE,
    Attribute,
    Bound,
    BoundQuery,
    Component,
    Conjunct,
    Constant,
    Element,
    EventField,
    Intrinsic,
    Kind,
    Operation,
)
from ouzel.bind.model import Type as BoundType
from ouzel.bind.normal_form import comparisons_of, is_junction
from ouzel.plan.expressions import walk
from ouzel.plan.model import Plan
from ouzel.runtime.layout import Layout
from ouzel.spark.schema import quoted

DECIMAL_DIGITS_MAX = 18
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class NotPushable(Exception):
    """Raised for a condition that only the workers can test."""


def pushed_filters(plans: Sequence[Plan] | None, layout: Layout, time_column: str) -> list[Column]:
    """Filters that together keep all events that can change an answer; none if every event can.

    Events without a time pass the filters, because the workers must report them as an error.
    """
    if plans is None or any(_counts_every_event(plan) for plan in plans):
        return []
    return _role_conditions(plans, layout, F.col(quoted(time_column)).isNull())


def projected_columns(plans: Sequence[Plan] | None, layout: Layout, columns: Sequence[str]) -> list[Column]:
    """The columns to send. If every event counts as a position, events that fit no component are sent with only time
    and key.
    """
    plain = [F.col(quoted(name)) for name in columns]
    if plans is None or not any(_counts_every_event(plan) for plan in plans):
        return plain
    named = {layout.column(None, test.path[0]) for plan in plans for test in plan.query.equivalences}
    kept = {layout.time, layout.start, *layout.order, *named}
    if layout.type is None or layout.type in kept or layout.physical or _types(plans) is None:
        return plain  # Without a type, an event of nulls could fit a component.
    if any(_is_lacking(plan.query) for plan in plans):
        return plain  # The type decides whether an event has a key at all.
    plays = reduce(and_, _role_conditions(plans, layout, F.lit(False)))
    return [
        column if name in kept else F.when(plays, column).alias(name)
        for name, column in zip(columns, plain, strict=True)
    ]


def _is_lacking(query: BoundQuery) -> bool:
    """Whether some declared type lacks an attribute of an equivalence test."""
    declared = (query.catalog.declared or {}).values()
    return any(test.path[0] not in attributes for test in query.equivalences for attributes in declared)


def _role_conditions(plans: Sequence[Plan], layout: Layout, passing: Column) -> list[Column]:
    """Filters that together keep the events that may fit a component, and all events for which `passing` is true."""
    conditions = []
    types = _types(plans)
    if types is not None and layout.type is not None:
        # On its own, because sources accept simple conditions and may refuse those that follow.
        conditions.append(passing | _type(layout).isin(sorted(types)))
    roles = [role for plan in plans for role in _roles(plan, layout)]
    if any(tests for _, tests in roles):
        playing = [reduce(and_, [*own_type, *tests]) if own_type or tests else F.lit(True) for own_type, tests in roles]
        condition = passing | reduce(or_, playing)
        # Spark would join two similar conditions, and a source that refuses one would then get neither.
        conditions.append(condition if _all_simple(plans) else F.coalesce(condition, F.lit(False)))
    return conditions


def _counts_every_event(plan: Plan) -> bool:
    return plan.needs_positions


def _types(plans: Sequence[Plan]) -> set[str] | None:
    found: set[str] = set()
    for plan in plans:
        for component in plan.query.components:
            if component.types is None:
                return None
            found.update(component.types)
    return found


def _roles(plan: Plan, layout: Layout) -> list[tuple[list[Column], list[Column]]]:
    """For each role of an event: (conditions on its type, its other conditions)."""
    found = []
    for component in plan.query.components:
        own_type = [] if component.types is None else [_is_one_of(component.types, layout)]
        for conjuncts in dict.fromkeys(_groups(plan, component)):
            tests = [pushed(conjunct, plan.query, layout) for conjunct in dict.fromkeys(conjuncts)]
            found.append((own_type, [test for test in tests if test is not None]))
    return found


def _groups(plan: Plan, component: Component) -> list[tuple[Conjunct, ...]]:
    """The conditions on the first event of a component and, if it is a Kleene component, those on its later events."""
    first, later = map(tuple, plan.roles_of(component))
    return [first, later] if component.kleene else [first]


def _all_simple(plans: Sequence[Plan]) -> bool:
    """Whether all filters are comparisons that data sources accept."""
    return all(
        _is_simple(comparison)
        for plan in plans
        for component in plan.query.components
        for group in _groups(plan, component)
        for conjunct in group
        for comparison in comparisons_of(*conjunct.comparisons)
    )


def _is_simple(comparison: Bound) -> bool:
    """Whether data sources accept a comparison. LIKE, lists, floats and fields of structs are left to Spark."""
    for part in walk(comparison):
        if isinstance(part, Operation) and part.operator in ("like", "rlike", "any", "size"):
            return False
        if isinstance(part, Attribute) and (part.type.kind is Kind.FLOAT or len(part.path) > 1):
            return False
    return True


# ── Conditions ─────────────────────────────────────────────────────────────────────────────────────


def pushed(conjunct: Conjunct, query: BoundQuery, layout: Layout) -> Column | None:
    """A filter that is true for every event that may satisfy a conjunct on one event; None if only the workers can test
    it.
    """
    return _balanced(or_, [_pushed(condition, query, layout) for condition in conjunct.comparisons])


def _pushed(condition: Bound, query: BoundQuery, layout: Layout) -> Column | None:
    if is_junction(condition):
        operands = [_pushed(operand, query, layout) for operand in condition.operands]
        if condition.operator == "or":
            return _balanced(or_, operands)
        # What one operand of AND excludes is excluded, whatever the other operands give.
        known = [operand for operand in operands if operand is not None]
        return _balanced(and_, known) if known else None
    try:
        return _written(condition, query, layout)
    except NotPushable:
        return None


def _balanced(join: Callable[[Column, Column], Column], columns: Sequence[Column | None]) -> Column | None:
    """Columns joined as a balanced tree, because Spark recurses over the tree. None if one of them is None."""
    left = [column for column in columns if column is not None]
    if len(left) < len(columns):
        return None
    while len(left) > 1:
        pairs = [join(one, other) for one, other in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[len(pairs) * 2 :]
    return left[0]


def _written(condition: Bound, query: BoundQuery, layout: Layout) -> Column:
    """One comparison as a Spark expression. Unknown results are null, and Spark's filters drop these rows, as the
    engine does.
    """
    if not isinstance(condition, Operation):
        return _column(condition, query, layout)  # a boolean attribute
    operator, operands = condition.operator, condition.operands
    if operator in ("and", "or"):  # BETWEEN
        return reduce(and_ if operator == "and" else or_, [_written(one, query, layout) for one in operands])
    if operator == "not":
        return ~_written(operands[0], query, layout)
    if operator == "is_null":
        return _column(operands[0], query, layout).isNull()
    if operator == "like":
        # The binder accepts only constant patterns, with escapes that Spark reads too.
        return F.like(_column(operands[0], query, layout), *map(_constant, operands[1:]))
    if operator == "rlike" and isinstance(operands[1], Constant) and _is_plain(operands[1].value):
        return F.rlike(_column(operands[0], query, layout), _constant(operands[1]))
    if operator == "any":
        return _in_list(operands[0], operands[1], query, layout)
    if operator == "in":
        found = _balanced(or_, [_compared("=", operands[0], item, query, layout) for item in operands[1:]])
        assert found is not None
        return found
    if operator in _COMPARE:
        return _compared(operator, operands[0], operands[1], query, layout)
    raise NotPushable


def _is_plain(expression: object) -> bool:
    """Whether Java and RE2 read a regular expression in the same way. They differ in `.`, `$` and classes such as
    \\s.
    """
    return isinstance(expression, str) and re.fullmatch(r"[A-Za-z0-9 _/:;,@#%&=<>'!~|()*+?^-]*", expression) is not None


def _compared(operator: str, left: Bound, right: Bound, query: BoundQuery, layout: Layout) -> Column:
    if isinstance(left, Constant):
        flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
        return _compared(flipped, right, left, query, layout)
    column, constant = _column(left, query, layout), _constant(right)
    if left.type.kind is Kind.FLOAT and operator in ("=", "!=", ">", ">="):
        # NaN is above all numbers, but writers of Parquet leave it out of the statistics of a row group. nanvl hides a
        # comparison that NaN may satisfy from the source.
        column = F.nanvl(column, F.lit(float("nan")))
    found: Column = _COMPARE[operator](column, constant)
    return found


def _in_list(listed: Bound, condition: Bound, query: BoundQuery, layout: Layout) -> Column:
    """`'x' IN v.list` as a Spark expression. Only the workers can test other conditions on elements."""
    match condition:
        case Operation(operator="=", operands=(Element(path=()) as element, Constant() as constant)):
            kind = {Kind.STRING: "string", Kind.INT: "bigint", Kind.BOOL: "boolean"}.get(element.type.kind)
            if kind is not None and isinstance(listed, Attribute):
                lists = _attribute(listed, query, layout)[0].cast(f"array<{kind}>")
                return F.array_contains(lists, _constant(constant))
    raise NotPushable


def _column(reference: Bound, query: BoundQuery, layout: Layout) -> Column:
    """A column of the events. Integers are BIGINT, floats are DOUBLE, and others keep Spark's types."""
    match reference:
        case Operation(operator="size", operands=(Attribute() as listed,)):
            return F.array_size(_attribute(listed, query, layout)[0]).cast("bigint")
    if isinstance(reference, Intrinsic):
        if reference.field is EventField.TYPE:
            return _type(layout)
        if layout.start is not None:
            raise NotPushable
        return _in_engine_form(F.col(quoted(layout.time)), reference.type)
    if not isinstance(reference, Attribute):
        raise NotPushable
    value, kind = _attribute(reference, query, layout)
    if pa.types.is_decimal(kind) and kind.precision > DECIMAL_DIGITS_MAX:
        raise NotPushable  # The workers refuse values with more digits; here they would be null.
    return _in_engine_form(value, reference.type)


def _attribute(reference: Attribute, query: BoundQuery, layout: Layout) -> tuple[Column, pa.DataType]:
    """(column, type) of an attribute."""
    if reference.present_in is not None:
        raise NotPushable
    name, *inner = reference.path
    columns = {layout.column(kind, name) for kind in query.types_of(reference.component)}
    if len(columns) > 1:
        raise NotPushable  # Each of its types has a column of its own.
    column = columns.pop()
    kind, value = layout.schema.field(column).type, F.col(quoted(column))
    for field in inner:
        kind, value = kind.field(field).type, value.getField(field)
    return value, kind


def _in_engine_form(value: Column, kind: BoundType) -> Column:
    if kind.kind is Kind.INT:
        return value.cast("bigint")
    if kind.kind is Kind.FLOAT:
        return value.cast("double")
    if kind.kind in WHOLE | {Kind.UNKNOWN, Kind.DURATION} or kind.unit == "ns":
        raise NotPushable
    return value


def _constant(constant: Bound) -> Column:
    if not isinstance(constant, Constant):
        raise NotPushable
    kind, value = constant.type, constant.value
    if value is None:
        return F.lit(None)
    if kind.kind is Kind.INT:
        return F.lit(int(value)).cast("bigint")
    if kind.kind is Kind.FLOAT:
        return F.lit(float(value))
    if kind.kind is Kind.DECIMAL:
        return F.lit(str(value)).cast(f"decimal({max(kind.precision, 1)},{kind.scale})")
    if kind.kind is Kind.DATE:
        return F.lit(_iso(int(value), "D")).cast("date")
    if kind.kind is Kind.TIMESTAMP and kind.unit != "ns":
        if kind.zone is not None:
            return F.timestamp_micros(F.lit(int(value)).cast("bigint"))
        return F.lit(_iso(int(value), "us")).cast("timestamp_ntz")
    if kind.kind in (Kind.BOOL, Kind.STRING, Kind.BINARY):
        return F.lit(value)
    raise NotPushable


def _iso(value: int, unit: Literal["D", "us"]) -> str:
    text = str(np.datetime64(value, unit))
    if not text[:5].removesuffix("-").isdigit() or len(text.split("-")[0]) != 4:
        raise NotPushable  # Spark reads years of four digits.
    return text


def _type(layout: Layout) -> Column:
    if layout.type is None:
        return F.lit(layout.only_type)
    column = F.col(quoted(layout.type))
    return column if pa.types.is_string(layout.schema.field(layout.type).type) else column.cast("string")


def _is_one_of(types: Sequence[str], layout: Layout) -> Column:
    """Whether an event has one of some types: null, which filters drop, for an event without a type."""
    return _type(layout).isin(*types) if types else F.lit(False)
