"""Stream order of simultaneous events (docs/semantics.md, "Stream order"): start, the order= columns, events that may
fill a component before all others, then type and the columns that the query uses, nulls first and NaN last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import BoundQuery
from ouzel.kernels.order import first_disorder, stable_order, ties
from ouzel.plan.expressions import attribute_of
from ouzel.plan.model import Plan
from ouzel.runtime.layout import Layout, columns_read
from ouzel.runtime.values import one_array


def tie_break_columns(plan: Plan, layout: Layout) -> list[str]:
    """The tie-break columns of simultaneous events, after the order= columns: the type, then those that the query uses,
    by attribute name."""
    used = set(layout.schema.names)
    if plan.query.returns is not None:
        used &= _used(plan.query, layout)
    names = {wide: attribute for (_, attribute), wide in layout.physical.items()}
    first = [layout.type] if layout.type is not None else []
    hidden = {layout.start, *first}
    return first + sorted(used - hidden, key=lambda wide: (names.get(wide, wide), wide))


def _used(query: BoundQuery, layout: Layout) -> set[str]:
    """The columns of RETURN and of WHERE."""
    expressions = [column.expression for column in query.returns or ()]
    expressions += [comparison for conjunct in query.conjuncts for comparison in conjunct.comparisons]
    expressions += [
        attribute_of(query, component.position, test)
        for test in query.equivalences
        for component in query.components
        if not component.negated
    ]
    return columns_read(query, layout, expressions)


def stream_order(
    end: np.ndarray, start: np.ndarray, plays: np.ndarray, table: pa.Table, table_rows: np.ndarray, order_columns: int
) -> np.ndarray | None:
    """The places of events in stream order; None if they are already in it.

    `table` has the order= columns and then the tie-break columns, for each event in row `table_rows`; `plays` says
    which events may fill a component.
    """
    order = None if first_disorder(end) < 0 else stable_order(end)
    tied = ties(end if order is None else end[order])
    if not len(tied.positions):
        return order
    rows = tied.positions if order is None else order[tied.positions]
    keys: list[np.ndarray] = [tied.groups, start[rows]]
    for number, column in enumerate(table.columns):
        if number == order_columns:
            keys.append(~plays[rows])
        keys.append(ranks(one_array(column.take(pa.array(table_rows[rows])))))
    if len(table.columns) == order_columns:
        keys.append(~plays[rows])
    inner = np.lexsort(keys[::-1])
    if order is None:
        order = np.arange(len(end), dtype=np.int32)
    order[tied.positions] = rows[inner]
    return order


def ranks(column: pa.Array) -> np.ndarray:
    """For each value its place among the distinct values: nulls first, NaN last.

    >>> ranks(pa.array([2.0, None, float("nan"), -0.0, 0.0])).tolist()
    [2, 0, 3, 1, 1]
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        values = np.asarray(pc.fill_null(pc.cast(column, pa.float64()), 0.0).to_numpy(zero_copy_only=False))
        _, places = np.unique(values, return_inverse=True)
        valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
        return np.where(valid, places + 1, 0)
    if _is_ranked_by_python(column.type):
        keys = [_sort_key(value) for value in column.to_pylist()]
        known = {key: place for place, key in enumerate(sorted(set(keys)))}
        return np.array([known[key] for key in keys], np.int64)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    if pa.types.is_decimal32(column.type) or pa.types.is_decimal64(column.type):
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    distinct = pc.unique(column)
    ordered = distinct.take(pc.array_sort_indices(distinct, null_placement="at_start"))
    return np.asarray(pc.index_in(column, value_set=ordered).to_numpy(zero_copy_only=False), dtype=np.int64)


def _is_ranked_by_python(kind: pa.DataType) -> bool:
    """Whether Arrow cannot order such values."""
    return pa.types.is_nested(kind) or pa.types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType)


def _sort_key(value: Any) -> tuple[Any, ...]:
    """Lists elementwise, maps by sorted key, structs field by field."""
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, tuple((name, _sort_key(field)) for name, field in value.items()))
    if isinstance(value, list):
        items = [_sort_key(item) for item in value]
        is_map = bool(value) and all(isinstance(item, tuple) for item in value)
        return (1, tuple(sorted(items) if is_map else items))
    if isinstance(value, tuple):
        return (1, tuple(_sort_key(item) for item in value))
    if isinstance(value, float):
        return (1, "float", value != value, 0.0 if value != value else value)
    if isinstance(value, str):
        return (1, "str", value.encode("utf-8", "surrogatepass"))
    # A union has values of several types.
    return (1, type(value).__name__, value)
