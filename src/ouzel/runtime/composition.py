"""Composition: queries that read the results of other queries (INTO, FROM).

Matches are events with a duration. The matches that a query reads are in one wide table: a column for the event type,
two for start and end in ticks, and the columns of each derived type under unique names. If the query also reads the
primary stream, the table has that stream's columns too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.algebra.model import BoundAlgebra
from ouzel.bind.model import BoundQuery
from ouzel.bind.script import INPUT
from ouzel.errors import InputError
from ouzel.plan.choose import choose
from ouzel.runtime.layout import Layout

EVENT_TYPE = "event type"
EVENT_START = "event start"
EVENT_END = "event end"


AnyQuery = BoundQuery | BoundAlgebra


def reads_input(query: AnyQuery) -> bool:
    """Whether a query reads the primary stream."""
    return not query.sources or INPUT in query.sources


def is_composed(query: AnyQuery) -> bool:
    """Whether a query reads the results of others."""
    return any(source != INPUT for source in query.sources)


def layouts(queries: Sequence[AnyQuery], primary: Layout) -> dict[str, Layout]:
    """The layout that each query reads. Queries come after those whose output they read."""
    found: dict[str, Layout] = {}
    producers = {query.into: query for query in queries if isinstance(query, BoundQuery) and query.into}
    for query in queries:
        if isinstance(query, BoundAlgebra) or not is_composed(query):
            found[query.name] = primary
            continue
        feeding = [producers[source] for source in query.sources if source != INPUT]
        found[query.name] = _composed_layout(query, feeding, found, primary)
    return found


def _composed_layout(
    query: BoundQuery, feeding: Sequence[BoundQuery], known: Mapping[str, Layout], primary: Layout
) -> Layout:
    time = primary.schema.field(primary.time).type
    derived = {producer.name: choose(producer).derived_schema(producer, known[producer.name]) for producer in feeding}
    # A match that ends with its window may need a finer unit than the input.
    finer = [schema.field("end").type for schema in derived.values() if schema.field("end").type != time]
    fields = {
        EVENT_TYPE: pa.field(EVENT_TYPE, pa.string()),
        EVENT_START: pa.field(EVENT_START, pa.int64()),
        EVENT_END: pa.field(EVENT_END, finer[0] if finer else time),
    }
    physical = dict(primary.physical) if reads_input(query) else {}
    if reads_input(query):
        fields |= {field.name: field for field in primary.schema}
    for producer in feeding:
        for field in derived[producer.name]:
            if field.name not in ("start", "end"):
                wide = f"{field.name} of {producer.result_type}"
                fields[wide] = pa.field(wide, field.type)
                physical[(producer.result_type, field.name)] = wide
    return Layout(
        pa.schema(list(fields.values())), EVENT_END, EVENT_TYPE, order=(), physical=physical, start=EVENT_START
    )


def widen_input(table: pa.Table, ticks: np.ndarray, primary: Layout, layout: Layout) -> pa.Table:
    """Events of the primary stream as a composed query reads them."""
    if primary.type is None:
        types: pa.Array | pa.ChunkedArray = pa.repeat(pa.scalar(primary.only_type), table.num_rows)
    else:
        types = pc.cast(table.column(primary.type), pa.string())
    derived = {event_type for event_type, _ in layout.physical} - {event_type for event_type, _ in primary.physical}
    shared = pc.unique(types.filter(pc.is_in(types, value_set=pa.array(sorted(derived), pa.string()))))
    if len(shared):
        raise InputError(
            f"the input has events of type '{shared[0]}', and so has another stream that a query reads; "
            "give those another name with RETURN Name(…)"
        )
    return _filled(
        layout,
        table.num_rows,
        {
            **{name: table.column(name) for name in table.column_names},
            EVENT_TYPE: types,
            EVENT_START: pa.array(ticks),
            EVENT_END: table.column(primary.time),
        },
    )


def widen_matches(matches: pa.Table, starts: np.ndarray, producer: BoundQuery, layout: Layout) -> pa.Table:
    """The rows of a query's answer as events for a query that reads them."""
    name = producer.result_type
    columns = {
        layout.column(name, column): matches.column(column)
        for column in matches.column_names
        if (name, column) in layout.physical
    }
    return _filled(
        layout,
        matches.num_rows,
        {
            **columns,
            EVENT_TYPE: pa.repeat(pa.scalar(name), matches.num_rows),
            EVENT_START: pa.array(starts, pa.int64()),
            EVENT_END: matches.column("end"),
        },
    )


def _filled(layout: Layout, count: int, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """A wide table; columns that an event does not have are null."""
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in layout.schema]
    place = layout.schema.names.index(EVENT_END)
    arrays[place] = pc.cast(arrays[place], layout.schema.field(EVENT_END).type)
    return pa.table(arrays, schema=layout.schema)
