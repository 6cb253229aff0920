"""`match_recognize`: SQL's row pattern recognition over DataFrames.

In a batch a task has all rows of its partitions: it orders them and answers all of them at once. A stream is answered
as other queries are: the rows of a bucket by a session with its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ouzel.bind.model import Attribute
from ouzel.bind.row_patterns import STEPS_MAX, BoundRowPattern
from ouzel.errors import InputError
from ouzel.lang.parser import parse_row_pattern
from ouzel.lang.row_syntax import Rows
from ouzel.lang.syntax import Reference
from ouzel.prepared import RowPatternQuery
from ouzel.runtime.recognize import bound_row_pattern, check_steps, recognize
from ouzel.runtime.values import empty_table, plain_table
from ouzel.spark.api import match
from ouzel.spark.schema import arrow_schema, quoted, spark_schema
from ouzel.spark.tasks import in_arrow


def match_recognize(
    events: DataFrame,
    clause: str,
    *,
    params: Mapping[str, Any] | None = None,
    max_steps_per_match: int = STEPS_MAX,
    max_delay: int | str | timedelta | None = None,
    idle_timeout: str | timedelta | None = None,
    buckets: int | None = None,
    late: bool = False,
) -> DataFrame:
    """The rows that SQL's `events MATCH_RECOGNIZE (clause)` gives, as a DataFrame; streaming where the events are.

    As `ouzel.match_recognize`. Rows are distributed by PARTITION BY; without it one task reads all of them. ORDER BY is
    required, because the rows of a DataFrame have no order.

    Over a stream each match is returned once, as soon as no row that may still come can change it. The first ORDER BY
    column is the time of the stream. `max_delay`, `idle_timeout`, `buckets` and `late` are those of
    `ouzel.spark.match`.

    >>> match_recognize(ticks, "PARTITION BY sym ORDER BY ts PATTERN (A B+) …")               # doctest: +SKIP
    """
    if events.isStreaming:
        check_steps(max_steps_per_match)
        tree = parse_row_pattern(clause)
        query = RowPatternQuery("query", clause, tree, dict(params or {}), max_steps_per_match)
        return match(
            events, query, time=_time_column(events, query), type=None, max_delay=max_delay,
            idle_timeout=idle_timeout, buckets=buckets, late=late,
        )  # fmt: skip
    for name, value in {"max_delay": max_delay, "idle_timeout": idle_timeout, "buckets": buckets, "late": late}.items():
        if value:
            raise InputError(f"{name}= is for streams; in a batch no row is late")
    schema = arrow_schema(events.schema)
    bound = bound_row_pattern(clause, schema, params, max_steps_per_match)
    if not bound.order:
        raise InputError("the rows of a DataFrame have no order; add ORDER BY to the row pattern")
    columns = list(bound.columns) if bound.output is Rows.ONE else schema.names
    read = events.select(*(F.col(quoted(name)) for name in columns or schema.names[:1]))
    nothing = empty_table(arrow_schema(read.schema))
    result = spark_schema(_recognized(clause, params, max_steps_per_match, nothing).schema)
    return in_arrow(_distributed(read, bound), result, answer_task, clause, dict(params or {}), max_steps_per_match)


def recognizing(clause: str, **options: Any) -> Callable[[DataFrame], DataFrame]:
    """`match_recognize` for use in a chain: `df.transform(recognizing("PARTITION BY …"))`."""
    return lambda events: match_recognize(events, clause, **options)


def _time_column(events: DataFrame, query: RowPatternQuery) -> str:
    """The column that ORDER BY names first, as the DataFrame spells it."""
    first = query.tree.order_by[0].expression if query.tree.order_by else None
    if not isinstance(first, Reference) or len(first.names) != 1:
        raise InputError("over a stream ORDER BY must begin with the column that has the time of the rows")
    name = first.names[0]
    return next((column for column in events.columns if column.lower() == name.lower()), name)


def _distributed(events: DataFrame, bound: BoundRowPattern) -> DataFrame:
    keys = [column.expression for column in bound.partition]
    if not keys:
        return events.coalesce(1)
    if all(isinstance(key, Attribute) for key in keys):
        paths = [".".join(map(quoted, key.path)) for key in keys if isinstance(key, Attribute)]
        return events.repartition(*(F.col(path) for path in paths))
    # Rows that differ in all columns may be in one partition: only one task can know.
    return events.coalesce(1)


def answer_task(
    clause: str, params: Mapping[str, Any], steps_max: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The answer for all rows of one task."""
    given = list(batches)
    if given:
        yield from _recognized(clause, params, steps_max, plain_table(pa.Table.from_batches(given))).to_batches()


def _recognized(clause: str, params: Mapping[str, Any] | None, steps_max: int, table: pa.Table) -> pa.Table:
    return recognize(table, bound_row_pattern(clause, table.schema, params, steps_max))
