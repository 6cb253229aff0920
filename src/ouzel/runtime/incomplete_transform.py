"""Matches over an incomplete stream as an Arrow table: null, or what its default says, for what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Attribute, Bound, BoundQuery, Intrinsic
from ouzel.plan.incomplete import with_defaults
from ouzel.runtime.arrays import empty_table
from ouzel.runtime.explanations import Explanations
from ouzel.runtime.frames import EventFrame, ticks_to_time
from ouzel.runtime.layout import Layout
from ouzel.runtime.transform import output_schema, returned, struct_column


def transform_incomplete(
    query: BoundQuery,
    layout: Layout,
    table: pa.Table,
    ticks: np.ndarray,
    places: Sequence[np.ndarray],
    found: Explanations,
) -> pa.Table:
    """Composite events out of paths. `places` has an array for each positive component, which numbers rows of
    `table`; where a component is missing, its entry means nothing."""
    schema = output_schema(query, layout)
    parts, order = [], []
    for missing, rows in found.by_missing():
        local = [one[rows] for one in places]
        parts.append(_part(query, layout, table, ticks, local, found.chosen(rows), missing, schema))
        order.append(rows)
    if not parts:
        return empty_table(schema)
    joined = pa.concat_tables(parts)
    if len(parts) == 1:
        return joined
    back = np.empty(found.count, np.int64)
    back[np.concatenate(order)] = np.arange(found.count)
    return joined.take(pa.array(back)).combine_chunks()


def _part(
    query: BoundQuery,
    layout: Layout,
    table: pa.Table,
    ticks: np.ndarray,
    places: Sequence[np.ndarray],
    found: Explanations,
    missing: tuple[int, ...],
    schema: pa.Schema,
) -> pa.Table:
    """The rows of paths that all miss the same components."""
    position = {c.position: i for i, c in enumerate(query.positives)}
    frame = EventFrame(query, layout, table, ticks, lambda c: places[position[c]], found.count)
    time = schema.field("start").type
    absent = frozenset(query.positives[place].position for place in missing)
    columns = [ticks_to_time(found.starts, time), ticks_to_time(found.ends, time)]
    if query.returns is None:
        for component in query.positives:
            kind = schema.field(component.variable).type
            if component.position in absent:
                columns.append(pa.nulls(found.count, kind))
            else:
                columns.append(struct_column(query, layout, frame, component, kind))
    else:
        for column in query.returns:
            kind = schema.field(column.name).type
            columns.append(_returned(query, frame, column.expression, absent, time, kind))
    names = [query.positives[place].variable for place in missing]
    columns.append(pa.repeat(pa.scalar(names, pa.list_(pa.string())), found.count))
    columns.append(pa.array(found.score, pa.float64()))
    columns.append(pa.array(found.probability, pa.float64(), from_pandas=True))
    return pa.table(columns, schema=schema)


def _returned(
    query: BoundQuery,
    frame: EventFrame,
    expression: Bound,
    absent: frozenset[int],
    time: pa.DataType,
    kind: pa.DataType,
) -> pa.Array:
    is_lone = isinstance(expression, Attribute | Intrinsic) and expression.component in absent
    if is_lone and expression not in query.defaults:
        return pa.nulls(frame.rows, kind)
    value = returned(frame, with_defaults(expression, absent, query.defaults), time)
    return value if value.type == kind else value.cast(kind)
