"""`ouzel.spark.why_empty`: plain reasons for which a batch has no matches, asked of the events afterwards.

A DataFrame is lazy, so nobody can warn of an empty answer when `match` returns; here one job counts the events by type.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ouzel.errors import InputError
from ouzel.prepared import Query, as_queries
from ouzel.runtime.empty_answers import EmptyAnswers
from ouzel.spark.events import bind_events
from ouzel.spark.schema import quoted


def why_empty(
    events: DataFrame | Mapping[str, DataFrame],
    query: Query | str | Mapping[str, Query | str],
    *,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
    **options: Any,
) -> dict[str, str]:
    """What is plainly in the way of queries that found nothing in a bounded DataFrame, by the name of the query: types
    that no event has, events without a type, a window without a unit. Reads the type column once.

    >>> why_empty(readings, {"a": "PATTERN SEQ(Shlef a, Exit b) WITHIN 12 hours"})             # doctest: +SKIP
    {'a': "query 'a' found nothing: no event has the type 'Shlef' in its column 'type'; did you mean 'Shelf'?"}
    """
    queries = as_queries(query)
    bound = bind_events(events, queries, time=time, type=type, order=order, time_unit=time_unit, **options)
    if bound.frame.isStreaming:
        raise InputError("a stream has no end at which its answer would be empty; ask of a batch of the same events")
    column = bound.program.layout.type
    kind = F.lit("") if column is None else F.col(quoted(column)).cast("string")
    counts = {row[0]: row[1] for row in bound.frame.groupBy(kind.alias("type")).count().collect()}
    watch = EmptyAnswers(bound.program)
    watch.saw(counts, events=sum(counts.values()), without_type=counts.get(None, 0))
    return {name: reason for name in queries for reason in watch.reasons([name])}
