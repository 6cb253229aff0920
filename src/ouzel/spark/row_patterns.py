"""`match_recognize`: SQL's row pattern recognition over DataFrames.

Batches and streams are distributed and answered as those of other queries. The rows of a batch come all at once, and a
task orders those of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from ouzel.bind.row_patterns import STEPS_MAX
from ouzel.errors import InputError
from ouzel.lang.parser import parse_row_pattern
from ouzel.lang.syntax import Reference
from ouzel.prepared import RowPatternQuery
from ouzel.runtime.recognize import bound_row_pattern, check_steps, table_program
from ouzel.spark.api import match
from ouzel.spark.batch import match_one, plan_distributions
from ouzel.spark.input import Events, check_bytes
from ouzel.spark.launch import check_session
from ouzel.spark.payloads import PARTITION_BYTES
from ouzel.spark.schema import arrow_schema
from ouzel.spark.worker import Memory


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
    max_partition_bytes: int = PARTITION_BYTES,
) -> DataFrame:
    """The rows that SQL's `events MATCH_RECOGNIZE (clause)` gives, as a DataFrame; streaming where the events are.

    As `ouzel.match_recognize`. Rows are distributed by the columns of PARTITION BY or, if it has none, by the values of
    its expressions. Without PARTITION BY one task reads all rows. A task that gets more than `max_partition_bytes` of
    rows fails. ORDER BY is required, because the rows of a DataFrame have no order.

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
    check_session(events)
    schema = arrow_schema(events.schema)
    bound = bound_row_pattern(clause, schema, params, max_steps_per_match)
    if not bound.order:
        raise InputError("the rows of a DataFrame have no order; add ORDER BY to the row pattern")
    check_bytes({"max_partition_bytes": max_partition_bytes})
    rows = Events(events, table_program(schema, bound))
    return match_one(rows, plan_distributions(rows, slices=False), Memory(max_partition_bytes))


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
