"""OUTPUT COMPRESSED as a table: one row for each timestamp and partition, with the number of matches and their graph.

The graph is made of plain lists, so that any system can store and read it: the events (all columns that the output
shows), the cells (an event at a place), the links between them, and the roots; see `graph_paths`.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from ouzel.engines.kleene.graph_paths import Compressed, Row, count_matches, rows_of
from ouzel.engines.kleene.kernels import FoundCompressed
from ouzel.engines.kleene.plan import RunPlan
from ouzel.runtime.frames import take, ticks_to_time
from ouzel.runtime.layout import Layout, end_type
from ouzel.runtime.pruning import output_columns
from ouzel.runtime.values import one_array

GRAPH = "graph"
_COUNT = pa.decimal128(38, 0)
_COUNT_BOUND = 10**_COUNT.precision
_CELLS = pa.struct([("event", pa.int32()), ("place", pa.int32()), ("begin", pa.int32()), ("take", pa.int32())])
_LINKS = pa.struct([("cell", pa.int32()), ("next", pa.int32())])


def compressed_schema(plan: RunPlan, layout: Layout) -> pa.Schema:
    """The columns of the answer: the timestamp, the partition, the number of matches, and the graph."""
    fields = [pa.field("end", end_type(layout, plan.query))]
    fields += [pa.field(".".join(test.path), _tested_type(layout, test.path)) for test in plan.query.equivalences]
    graph = pa.struct(
        [
            ("events", pa.list_(pa.struct([layout.schema.field(name) for name in event_columns(plan, layout)]))),
            ("cells", pa.list_(_CELLS)),
            ("links", pa.list_(_LINKS)),
            ("roots", pa.list_(pa.int32())),
        ]
    )
    return pa.schema([*fields, pa.field("count", _COUNT), pa.field(GRAPH, graph)])


def event_columns(plan: RunPlan, layout: Layout) -> list[str]:
    """The columns of the input that a graph stores for its events."""
    kept = output_columns(plan, layout) | {layout.time, *([layout.type] if layout.type is not None else [])}
    kept |= {layout.start} if layout.start is not None else set()
    kept |= {path[0] for path in (test.path for test in plan.query.equivalences)}
    return [name for name in layout.schema.names if name in kept]


def _tested_type(layout: Layout, path: tuple[str, ...]) -> pa.DataType:
    wide = path[0]
    if wide not in layout.schema.names:
        wide = next(column for (_, attribute), column in layout.physical.items() if attribute == path[0])
    found = layout.schema.field(wide).type
    for name in path[1:]:
        found = found.field(name).type
    return found


def compressed_table(
    plan: RunPlan, layout: Layout, schema: pa.Schema, found: FoundCompressed, table: pa.Table, rows: np.ndarray
) -> pa.Table:
    """The answer for some timestamps. `rows` gives the place of each event of the graphs in `table`."""
    graph = found.graph
    columns: list[pa.Array] = [ticks_to_time(found.ends, schema.field("end").type)]
    # All events of a row have the values of its partition.
    first_rows = rows[graph.event_bounds[:-1]]
    for number, test in enumerate(plan.query.equivalences):
        columns.append(_tested_column(table, layout, test.path, first_rows).cast(schema.field(1 + number).type))
    columns.append(_counts(rows_of(graph)))
    fields = schema.field(GRAPH).type
    events = pa.StructArray.from_arrays(
        [take(one_array(table.column(name)), rows) for name in event_columns(plan, layout)],
        fields=list(fields.field("events").type.value_type),
    )
    cells = pa.StructArray.from_arrays(
        [pa.array(a) for a in (graph.cell_event, graph.cell_place, graph.cell_begin, graph.cell_take)],
        fields=list(_CELLS),
    )
    links = pa.StructArray.from_arrays([pa.array(graph.link_cell), pa.array(graph.link_next)], fields=list(_LINKS))
    children = [
        _lists(graph.event_bounds, events, fields.field("events").type),
        _lists(graph.cell_bounds, cells, fields.field("cells").type),
        _lists(graph.link_bounds, links, fields.field("links").type),
        _lists(graph.root_bounds, pa.array(graph.root_cell), fields.field("roots").type),
    ]
    columns.append(pa.StructArray.from_arrays(children, fields=list(fields)))
    return pa.table(columns, schema=schema)


def _counts(rows: list[Row]) -> pa.Array:
    """The number of matches of each row, null where it has more digits than the column."""
    counts = [count_matches(row) for row in rows]
    return pa.array([Decimal(count) if count < _COUNT_BOUND else None for count in counts], _COUNT)


def _tested_column(table: pa.Table, layout: Layout, path: tuple[str, ...], rows: np.ndarray) -> pa.Array:
    """An attribute of [attr] for some rows, from the wide column that has it."""
    wide = [column for (_, attribute), column in layout.physical.items() if attribute == path[0]]
    names = [name for name in (path[0], *wide) if name in table.column_names]
    values = [take(one_array(table.column(name)), rows) for name in names]
    for field in path[1:]:
        values = [pa.compute.struct_field(value, field) for value in values]
    return values[0] if len(values) == 1 else pa.compute.coalesce(*values)


def _lists(bounds: np.ndarray, values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values, type=wanted)


def graph_of(column: pa.StructArray) -> tuple[pa.StructArray, Compressed]:
    """(events, graph): the inverse of `compressed_table`, for the graph column of any number of rows."""
    parts = [pa.compute.struct_field(column, name) for name in ("events", "cells", "links", "roots")]
    bounds = [_bounds(part) for part in parts]
    events, cells, links, roots = (part.flatten() for part in parts)

    def numbers(struct: pa.StructArray, name: str) -> np.ndarray:
        return np.asarray(pa.compute.struct_field(struct, name).to_numpy(zero_copy_only=False), dtype=np.int32)

    return events, Compressed(
        event_bounds=bounds[0],
        event_slot=np.empty(0, np.int32),
        cell_bounds=bounds[1],
        cell_event=numbers(cells, "event"),
        cell_place=numbers(cells, "place"),
        cell_begin=numbers(cells, "begin"),
        cell_take=numbers(cells, "take"),
        link_bounds=bounds[2],
        link_cell=numbers(links, "cell"),
        link_next=numbers(links, "next"),
        root_bounds=bounds[3],
        root_cell=np.asarray(roots.to_numpy(zero_copy_only=False), dtype=np.int32),
    )


def _bounds(lists: pa.ListArray) -> np.ndarray:
    lengths = pa.compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
