"""Transformation (SASE's TF operator): matches, as row numbers, into composite events, as an Arrow table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Aggregation, At, Attribute, Bound, BoundQuery, Component, EventField, Intrinsic, Type
from ouzel.plan.expressions import ranges_over_events
from ouzel.runtime.aggregate_answer import aggregate_schema
from ouzel.runtime.arrays import numbers
from ouzel.runtime.frames import EventFrame, ticks_to_time
from ouzel.runtime.layout import Layout, end_type
from ouzel.runtime.values import from_engine, is_computed, output_type
from ouzel.runtime.vectors import Frame, evaluate


def output_schema(query: BoundQuery, layout: Layout) -> pa.Schema:
    """The columns of the answer, known before any event is seen."""
    if query.aggregates:
        return aggregate_schema(query, layout, _attribute_type)
    time = _time_type(layout)
    fields = [pa.field("start", time), pa.field("end", end_type(layout, query))]
    if query.returns is None:
        fields += [pa.field(c.variable, _variable_type(query, layout, c)) for c in query.positives]
    else:
        for column in query.returns:
            fields.append(pa.field(column.name, _column_type(query, layout, column.expression)))
    if query.threshold is not None:
        fields += [pa.field("missing", pa.list_(pa.string()))]
        fields += [pa.field("score", pa.float64()), pa.field("probability", pa.float64())]
    return pa.schema(fields)


def _variable_type(query: BoundQuery, layout: Layout, component: Component) -> pa.DataType:
    """A struct for a single event, a list of structs for a Kleene variable."""
    one = pa.struct(_struct_fields(query, layout, component))
    return pa.list_(one) if component.kleene else one


def transform(
    query: BoundQuery,
    layout: Layout,
    table: pa.Table,
    ticks: np.ndarray,
    rows: Sequence[np.ndarray],
    starts: np.ndarray | None = None,
    ends: np.ndarray | None = None,
) -> pa.Table:
    """Composite events out of matches.

    `rows` has an array for each positive component, which numbers rows of `table`; `starts` and
    `ends` are the ticks between which each match lies, None where they are the times of its first and last event.
    """
    schema = output_schema(query, layout)
    place = {c.position: i for i, c in enumerate(query.positives)}
    alike = _alike(query, layout)
    frame = EventFrame(query, layout, table, ticks, lambda c: rows[place[c]], len(rows[0]), alike=alike)
    time = _time_type(layout)
    first, last = query.positives[0].position, query.positives[-1].position
    columns: list[pa.Array] = [
        frame.time(first) if starts is None else ticks_to_time(starts, time),
        frame.time(last) if ends is None else ticks_to_time(ends, schema.field("end").type),
    ]
    if query.returns is None:
        columns += [struct_column(query, layout, frame, c, schema.field(c.variable).type) for c in query.positives]
    else:
        columns += [returned(frame, column.expression, time) for column in query.returns]
    return pa.table(columns, schema=schema)


def _alike(query: BoundQuery, layout: Layout) -> frozenset[str]:
    """The columns of equivalence tests: fetched once for all events of a match, which saves much of a large answer."""
    found = set()
    for test in query.equivalences:
        if len(test.path) > 1 or any(test.lacked_by.get(c.position) for c in query.positives):
            continue
        columns = {layout.column(t, test.path[0]) for c in query.positives for t in c.types or ("",)}
        # Zeros of both signs are equal, and so are all NaN, but they are not alike.
        if len(columns) == 1 and not pa.types.is_floating(layout.schema.field(*columns).type):
            found |= columns
    return frozenset(found)


def _time_type(layout: Layout) -> pa.DataType:
    return layout.schema.field(layout.time).type


def _struct_fields(query: BoundQuery, layout: Layout, component: Component) -> list[pa.Field]:
    return [
        pa.field(attribute.path[0], _attribute_type(query, layout, attribute))
        for attribute in _attributes(query, layout, component)
    ]


def _attributes(query: BoundQuery, layout: Layout, component: Component) -> list[Attribute]:
    """The attributes of a component's types, in column order; of ANY the union."""
    catalog = query.catalog
    owners: dict[str, list[str]] = {}
    kinds: dict[str, Type] = {}
    assert not catalog.open, "a query is bound to a schema before it runs"
    if catalog.declared is None and catalog.common is not None:
        return [Attribute(component.position, (name,), type=type_) for name, type_ in catalog.common.items()]
    types = component.types or tuple(catalog.declared or ())
    for event_type in types:
        for name, type_ in (catalog.attributes(event_type) or {}).items():
            owners.setdefault(name, []).append(event_type)
            kinds.setdefault(name, type_)
    return [
        Attribute(
            component.position,
            (name,),
            type=kinds[name],
            present_in=None if len(having) == len(types) else frozenset(having),
        )
        for name, having in owners.items()
    ]


def _attribute_type(query: BoundQuery, layout: Layout, attribute: Attribute) -> pa.DataType:
    component = query.components[attribute.component]
    types = component.types or tuple(query.catalog.declared or ("",))
    owner = next(t for t in types if attribute.present_in is None or t in attribute.present_in)
    found = layout.schema.field(layout.column(owner, attribute.path[0])).type
    for name in attribute.path[1:]:
        found = found.field(name).type
    return found


def _column_type(query: BoundQuery, layout: Layout, expression: Bound) -> pa.DataType:
    if isinstance(expression, Attribute | Intrinsic) and expression.at is At.EVERY:
        return pa.list_(_column_type(query, layout, replace(expression, at=At.SINGLE)))
    if isinstance(expression, Attribute):
        return _attribute_type(query, layout, expression)
    if isinstance(expression, Intrinsic) and expression.field is not EventField.TYPE:
        return _time_type(layout)
    if ranges_over_events(expression):
        return pa.list_(output_type(expression.type))
    if isinstance(expression, Aggregation) and not is_computed(expression.type):
        # The first or last of values that are only carried along.
        assert isinstance(expression.operand, Attribute)
        return _attribute_type(query, layout, expression.operand)
    return output_type(expression.type)


def struct_column(
    query: BoundQuery, layout: Layout, frame: EventFrame, component: Component, type_: pa.StructType
) -> pa.Array:
    attributes = _attributes(query, layout, component)
    children = []
    for attribute, field in zip(attributes, type_, strict=True):
        if attribute.path[0] == layout.type and component.types is not None and len(component.types) == 1:
            # Every event of the component has the same type: no need to gather its name.
            children.append(_constant_text(component.types[0], frame.rows, field.type))
        else:
            children.append(frame.raw(attribute))
    return pa.StructArray.from_arrays(children, fields=list(type_))


def _constant_text(text: str, count: int, wanted: pa.DataType) -> pa.Array:
    """The same text so many times; Arrow's own `repeat` is several times slower."""
    data = text.encode("utf-8")
    if wanted != pa.string() or len(data) * count >= 2**31:
        return pa.repeat(pa.scalar(text), count).cast(wanted)
    offsets = np.arange(0, len(data) * (count + 1), max(len(data), 1), dtype=np.int32) if data else None
    if offsets is None:
        return pa.repeat(pa.scalar(text), count)
    return pa.Array.from_buffers(wanted, count, [None, pa.py_buffer(offsets), pa.py_buffer(data * count)])


class RawFrame(Frame, Protocol):
    """A frame that also gives attributes as they came in."""

    def raw(self, reference: Attribute) -> pa.Array: ...


def returned(frame: RawFrame, expression: Bound, time: pa.DataType) -> pa.Array:
    """A column of RETURN, in the type that users see."""
    if isinstance(expression, Attribute):
        return frame.raw(expression)
    value = evaluate(expression, frame)
    if isinstance(expression, Intrinsic) and expression.field is not EventField.TYPE:
        return ticks_to_time(numbers(value), time)
    return from_engine(value, expression.type)
