"""Rows of aggregates as users see them: their columns, HAVING, and what EMIT ON CHANGE passes over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import (
    Aggregation,
    Attribute,
    Bound,
    BoundQuery,
    EventField,
    GroupKey,
    Intrinsic,
    Length,
    Operation,
    ResultColumn,
    Type,
)
from ouzel.plan.expressions import attribute_of
from ouzel.runtime.arrays import numbers, truths
from ouzel.runtime.frames import ticks_to_time
from ouzel.runtime.layout import Layout, end_type
from ouzel.runtime.values import Column, engine_type, from_engine, output_type, to_engine
from ouzel.runtime.vectors import evaluate


def aggregate_schema(
    query: BoundQuery, layout: Layout, attribute_type: Callable[[BoundQuery, Layout, Attribute], pa.DataType]
) -> pa.Schema:
    """`end`, the GROUP BY columns, and a column for each aggregate that is shown.

    `attribute_type` tells in which type an attribute comes in.
    """
    time = layout.schema.field(layout.time).type
    fields = [pa.field("end", end_type(layout, query))]
    for key in query.group_by:
        expression = key_expression(query, key)
        if isinstance(expression, Attribute):
            fields.append(pa.field(key.name, attribute_type(query, layout, expression)))
        else:
            fields.append(pa.field(key.name, time if _is_time(expression) else output_type(key.type)))
    for column in query.aggregates:
        if not column.hidden:
            is_time = column.function in ("min", "max") and _is_time(column.argument)
            fields.append(pa.field(column.name, time if is_time else output_type(column.type)))
    return pa.schema(fields)


def _is_time(expression: Bound | None) -> bool:
    return isinstance(expression, Intrinsic) and expression.field is not EventField.TYPE


def key_expression(query: BoundQuery, key: GroupKey) -> Bound:
    """What a GROUP BY column shows: of `GROUP BY attr` the attribute of the first event, equal for all."""
    if key.expression is not None:
        return key.expression
    test = next(test for test in query.equivalences if test.path == key.path)
    return attribute_of(query, query.positives[0].position, test)


def answer(
    query: BoundQuery,
    schema: pa.Schema,
    ticks: np.ndarray,
    keys: Sequence[pa.Array],
    values: Mapping[str, Column],
) -> tuple[pa.Table, np.ndarray]:
    """The table of some rows, and the ticks of those that HAVING lets through.

    `keys` are the GROUP BY columns as users see them, `values` the aggregates by name in engine form.
    """
    time = schema.field("end").type
    if query.having is not None and len(ticks):
        known = {key.name: (column, key.type) for key, column in zip(query.group_by, keys, strict=True)}
        known |= {column.name: (values[column.name], column.type) for column in query.aggregates}
        kept = np.flatnonzero(truths(evaluate(_over_columns(query.having), _ResultFrame(known, len(ticks)))))
        places = pa.array(kept)
        ticks, keys = ticks[kept], [column.take(places) for column in keys]
        values = {name: column.take(places) for name, column in values.items()}
    columns = [ticks_to_time(ticks, time), *keys]
    for column in query.aggregates:
        if column.hidden:
            continue
        wanted = schema.field(column.name).type
        value = values[column.name]
        if column.function in ("min", "max") and _is_time(column.argument):
            columns.append(_times(value, wanted))
        else:
            columns.append(from_engine(value, column.type))
    return pa.table(columns, schema=schema), ticks


def rows_to_tell(
    query: BoundQuery, completed: np.ndarray, values: Mapping[str, Column], before: Mapping[str, Column]
) -> np.ndarray:
    """Which rows EMIT ON CHANGE tells: those of completion, and of expiry where it changed what users see.

    `before` has the values before the moment, of the rows of expiry only.
    """
    expiry = np.flatnonzero(completed == 0)
    if not len(expiry):
        return np.arange(len(completed))
    changed = np.zeros(len(expiry), bool)
    for column in query.aggregates:
        if not column.hidden:
            changed |= ~_same(values[column.name].take(pa.array(expiry)), before[column.name])
    kept = completed != 0
    kept[expiry[changed]] = True
    return np.flatnonzero(kept)


def _same(one: Column, other: Column) -> np.ndarray:
    """Where values are equal, or both null, or both NaN."""
    same = pc.fill_null(pc.equal(one, other), False)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return truths(pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other))))


def _times(value: Column, wanted: pa.DataType) -> pa.Array:
    """Ticks, some of them null, in the type of the input's time column."""
    made = ticks_to_time(numbers(value), wanted)
    if not value.null_count:
        return made
    return pa.Array.from_buffers(wanted, len(made), [value.buffers()[0], made.buffers()[1]], offset=made.offset)


def _over_columns(expression: Bound) -> Bound:
    """HAVING with its columns as attributes, which is what expressions over rows read."""
    if isinstance(expression, ResultColumn):
        return Attribute(-1, (expression.name,), type=expression.type)
    if isinstance(expression, Operation):
        return replace(expression, operands=tuple(_over_columns(operand) for operand in expression.operands))
    return expression


class _ResultFrame:
    """Rows of the result, for HAVING."""

    def __init__(self, columns: Mapping[str, tuple[pa.Array, Type]], rows: int) -> None:
        self._columns = columns
        self.rows = rows

    def attribute(self, reference: Attribute) -> Column:
        column, type_ = self._columns[reference.path[0]]
        return column if column.type == engine_type(type_) else to_engine(column, type_)

    def intrinsic(self, reference: Intrinsic) -> Column:
        raise AssertionError("HAVING sees columns only")

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        return None

    def aggregate(self, expression: Length | Aggregation) -> Column:
        raise AssertionError("HAVING sees columns only")
