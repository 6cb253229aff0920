"""Statistics for the planner, from a sample: the number of values of key attributes and the density of events."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import BoundQuery
from ouzel.plan.model import Statistics
from ouzel.runtime.arrays import retyped
from ouzel.runtime.layout import Layout, ticks_of

# Enough to distinguish hundreds of values from tens of thousands, and cheap compared with reading the batch.
_SAMPLE_ROWS = 20_000


def key_statistics(queries: Sequence[BoundQuery], table: pa.Table, layout: Layout) -> Statistics:
    """Distinct values of the attributes of equivalence tests and the rate of events, for a query with several tests.

    Taken from the first rows of the first batch: a bad choice makes a plan slower, never wrong.
    """
    paths = {test.path for query in queries if len(query.equivalences) > 1 for test in query.equivalences}
    distinct = {}
    for path in paths:
        if path[0] in table.column_names:
            column = table.column(path[0]).slice(0, _SAMPLE_ROWS)
            if pa.types.is_dictionary(column.type):
                column = retyped(column, column.type.value_type)
            if len(path) == 1 and not pa.types.is_nested(column.type) and not pa.types.is_null(column.type):
                distinct[".".join(path)] = pc.count_distinct(column).as_py()
    rate = None
    if distinct and table.num_rows > 1:
        ticks = ticks_of(table.slice(0, _SAMPLE_ROWS), layout)
        rate = len(ticks) / (int(ticks.max()) - int(ticks.min()) + 1)
    return Statistics(distinct, events_per_tick=rate, rates=_rates(queries, table, layout))


def _rates(queries: Sequence[BoundQuery], table: pa.Table, layout: Layout) -> dict[str, float]:
    """Each type's share of all events, if several aggregates might be counted together."""
    if layout.type is None or not table.num_rows or sum(bool(query.aggregates) for query in queries) < 2:
        return {}
    sample = table.column(layout.type).slice(0, _SAMPLE_ROWS)
    counted = pc.value_counts(sample.cast(pa.string())).to_pylist()
    return {one["values"]: one["counts"] / len(sample) for one in counted if one["values"] is not None}
