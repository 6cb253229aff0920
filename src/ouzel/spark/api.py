"""`match`: queries over DataFrames, batch or streaming. `match_recognize`: SQL's row patterns. `expand`: the matches in
rows of OUTPUT COMPRESSED. This module uses only Spark's public DataFrame interface.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Unpack, cast, overload

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ouzel.bind.row_patterns import STEPS_MAX
from ouzel.engines.kleene.compressed import GRAPH, MATCHES_MAX, check_numbers, listed, reading
from ouzel.errors import InputError, TypesWarning
from ouzel.lang.parser import parse_row_pattern
from ouzel.lang.syntax import Reference
from ouzel.loss import LossModel
from ouzel.plan.explain import explanation, render_explanation
from ouzel.prepared import OneQuery, Queries, Query, RowPatternQuery, SeveralQueries, as_queries, is_one
from ouzel.runtime.empty_answers import EmptyAnswers
from ouzel.runtime.engine import QueryOptions
from ouzel.runtime.limits import Limits
from ouzel.runtime.output import output_schema
from ouzel.runtime.recognize import bound_row_pattern, check_steps, table_program
from ouzel.spark.batch import Matches, SliceHint, match_one, match_several, plan_distributions
from ouzel.spark.input import Events, bind_events, check_bytes, watermarked
from ouzel.spark.launch import check_session
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import PARTITION_BYTES, PROBLEM_COLUMN
from ouzel.spark.schema import arrow_schema, quoted, spark_schema
from ouzel.spark.state_store import SESSION_CACHE_BYTES
from ouzel.spark.streaming import QUERY_COLUMN, can_merge_totals, check_stream_names, match_stream
from ouzel.spark.tasks import in_arrow
from ouzel.spark.versions import from_arrow, to_arrow
from ouzel.spark.worker import LATE_COLUMN, Memory, expand_rows


class MatchOptions(QueryOptions, total=False):
    """The options of `match` and `matching`, for type checkers."""

    max_delay: int | str | timedelta | None
    idle_timeout: str | timedelta | None
    buckets: int | None
    late: bool
    slices: SliceHint
    memory_limit: int | None
    max_partition_bytes: int
    session_cache_bytes: int
    on_error: str


@overload
def match(
    events: DataFrame | Mapping[str, DataFrame], query: OneQuery, **options: Unpack[MatchOptions]
) -> DataFrame: ...


@overload
def match(
    events: DataFrame | Mapping[str, DataFrame], query: SeveralQueries, **options: Unpack[MatchOptions]
) -> Matches | Any: ...  # a DataFrame where the events are a stream


def match(
    events: DataFrame | Mapping[str, DataFrame],
    query: Queries,
    *,
    params: Mapping[str, Any] | None = None,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
    limits: Limits | Mapping[str, int] | None = None,
    model: LossModel | None = None,
    hints: Mapping[str, str] | None = None,
    max_delay: int | str | timedelta | None = None,
    idle_timeout: str | timedelta | None = None,
    buckets: int | None = None,
    late: bool = False,
    slices: SliceHint = None,
    memory_limit: int | None = None,
    max_partition_bytes: int = PARTITION_BYTES,
    session_cache_bytes: int = SESSION_CACHE_BYTES,
    on_error: str = "fail",
) -> DataFrame | Matches:
    """The matches of a query in a DataFrame, as a DataFrame. It is streaming if the events are.

    `events` is one DataFrame whose column `type` names the type of each event, or a DataFrame for each event type.
    Several queries over a batch give one DataFrame for each query, by name, with one shuffle for each distinct key.
    Over a stream they give one DataFrame, with a column `query` and a struct column for each query. `params`, `limits`,
    `model` and `hints` are those of `ouzel.match`.

    A stream needs a watermark: call `withWatermark` on the time column first, or give `max_delay`, how late events may
    be ("5 min", a timedelta, or ticks). `buckets` is the number of parts of the state, by default the number of shuffle
    partitions. It must not change while a checkpoint is used. Events at or before the watermark are late: they are
    counted and never matched. With `late=True` they are also returned, in separate rows: a struct column `late` has the
    event, and the columns of matches are null. With several queries, the column `query` names the query for which the
    event was late.

    Without `idle_timeout`, only events move the watermark. With `idle_timeout="10 min"`, the clock moves it too, as if
    an event arrived all the time whose age is 10 minutes. So answers are returned even if no more events come, and
    events older than `idle_timeout` and `max_delay` together are late. Set it when a stream is first started.

    A batch is partitioned by the attributes of equivalence tests. Queries without any are divided by time, into slices
    of ten windows. `slices` sets the length of slices ("1 hour", or ticks; True for ten windows). It also divides
    queries with a key by time, which helps if one key has most of the work. False never divides by time. With
    `memory_limit`, a number of bytes for each task, Spark sorts the events, on disk if necessary, and they are read in
    batches. Without it, a task that gets more than `max_partition_bytes` of events fails. Each worker of a stream
    caches up to `session_cache_bytes` of its sessions.

    An error of one query, such as an exceeded limit, fails the whole batch or stream. With `on_error="report"`, only
    this query stops, and only in the part of the events where the error happened. A row gives the reason in the text
    column `problem`. The other queries continue.

    >>> theft = "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag] WITHIN 12 hours"
    >>> thefts = match(readings, theft, time="ts", type="type")                              # doctest: +SKIP
    """
    named = as_queries(query, params)
    several = not is_one(query)
    if on_error not in ("fail", "report"):
        raise InputError(f"on_error={on_error!r} is neither 'fail' nor 'report'; choose one of them")
    reports = on_error == "report"
    sizes = {"max_partition_bytes": max_partition_bytes, "session_cache_bytes": session_cache_bytes}
    check_bytes(sizes if memory_limit is None else sizes | {"memory_limit": memory_limit})
    bound = bind_events(
        events, named, time=time, type=type, order=order, time_unit=time_unit, limits=limits, model=model, hints=hints
    )
    if bound.frame.isStreaming:
        if slices is not None or memory_limit is not None:
            raise InputError("slices= and memory_limit= are for batches; a stream keeps one window in memory")
        sources = list(events.values()) if isinstance(events, Mapping) else [events]
        groups = plan_query_groups(
            bound.program, bound.clock, merge_totals=can_merge_totals(bound.frame, buckets), reports=reports
        )
        check_stream_names(bound, groups)
        frame, watermark = watermarked(bound, sources, max_delay, idle_timeout)
        taken = set(named) if several else set(next(iter(groups[0].outputs.values())).names)
        if several:
            _check_own("a stream of several queries", QUERY_COLUMN, taken)
        if late:
            _check_own("late=True", LATE_COLUMN, taken)
        if reports:
            _check_own("on_error='report'", PROBLEM_COLUMN, taken)
        return match_stream(
            replace(bound, frame=frame),
            groups,
            several,
            watermark,
            buckets=buckets,
            late=late,
            cache_bytes=session_cache_bytes,
        )
    if late:
        raise InputError("late= is for streams; in a batch no event is late")
    for name, value in (("max_delay", max_delay), ("idle_timeout", idle_timeout)):
        if value is not None:
            raise InputError(f"{name}= is for streams; in a batch no event is late")
    distributions = plan_distributions(bound, slices, reports=reports)
    if reports:
        for distribution in distributions:
            for schema in distribution.plan.outputs.values():
                _check_own("on_error='report'", PROBLEM_COLUMN, schema.names)
    memory = Memory(max_partition_bytes, memory_limit)
    if several:
        return match_several(bound, distributions, list(named), memory)
    return match_one(bound, distributions, memory)


def _check_own(option: str, column: str, taken: Collection[str]) -> None:
    """Raise an error if a column of the result has the name of a query or of one of its columns."""
    # Spark's sinks ignore case.
    other = next((name for name in taken if name.lower() == column), None)
    if other is not None:
        raise InputError(
            f"{option} adds a column '{column}', so no query and no column of a match may be named '{other}'; rename it"
        )


def matching(query: Queries, **options: Unpack[MatchOptions]) -> Callable[[DataFrame], DataFrame]:
    """`match` with its options, for use in a chain: `df.transform(matching(query, time="ts"))`."""

    def transform(events: DataFrame) -> DataFrame:
        result = match(events, cast("OneQuery", query), **options)
        if not isinstance(result, DataFrame):
            raise InputError(
                "df.transform needs one DataFrame and several queries give one each; use ouzel.spark.match(df, queries)"
            )
        return result

    return transform


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
    """The rows that SQL's `events MATCH_RECOGNIZE (clause)` gives, as a DataFrame. It is streaming if the events
    are.

    Like `ouzel.match_recognize`. Rows are distributed by the columns of PARTITION BY or, if it has only expressions, by
    their values. Without PARTITION BY one task reads all rows. A task that gets more than `max_partition_bytes` of rows
    fails. ORDER BY is required, because the rows of a DataFrame have no order.

    Over a stream, each match is returned once, as soon as no later row can change it. The first ORDER BY column is the
    time of the stream. `max_delay`, `idle_timeout`, `buckets` and `late` are those of `ouzel.spark.match`.

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


def explain(
    events: DataFrame | Mapping[str, DataFrame],
    query: Queries,
    *,
    params: Mapping[str, Any] | None = None,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
    limits: Limits | Mapping[str, int] | None = None,
    model: LossModel | None = None,
    hints: Mapping[str, str] | None = None,
    slices: SliceHint = None,
) -> str:
    """What `match` would do with a batch DataFrame: the plan of each query, and how its events are distributed.

    >>> print(explain(readings, theft))                                                       # doctest: +SKIP
    """
    bound = bind_events(
        events, as_queries(query, params), time=time, type=type, order=order, time_unit=time_unit, limits=limits,
        model=model, hints=hints,
    )  # fmt: skip
    distributions = plan_distributions(bound, slices)
    lines = [render_explanation(explanation(plan), "text").rstrip() for plan in bound.program.plans().values()]
    lines.append("on Spark")
    lines += [
        f"  {', '.join(distribution.plan.group.queries)}: {distribution.describe()}" for distribution in distributions
    ]
    return "\n".join(lines) + "\n"


def why_empty(
    events: DataFrame | Mapping[str, DataFrame],
    query: Queries,
    *,
    params: Mapping[str, Any] | None = None,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
    limits: Limits | Mapping[str, int] | None = None,
    model: LossModel | None = None,
) -> dict[str, str]:
    """Likely reasons why queries found nothing in a bounded DataFrame, by the name of the query.

    Reasons are: types that no event has, events without a type, and a window without a unit. The type column is read
    once. For a misspelt type that makes an answer wrong but not empty, as in `WITHOUT Registr r`, a `TypesWarning` is
    given.

    >>> why_empty(readings, {"a": "PATTERN SEQ(Shlef a, Exit b) WITHIN 12 hours"})             # doctest: +SKIP
    {'a': "query 'a' found nothing: no event has the type 'Shlef' in its column 'type'; did you mean 'Shelf'?"}
    """
    queries = as_queries(query, params)
    bound = bind_events(
        events, queries, time=time, type=type, order=order, time_unit=time_unit, limits=limits, model=model
    )
    if bound.frame.isStreaming:
        raise InputError("why_empty needs a batch, because a stream has no end; use a batch of the same events")
    column = bound.program.layout.type
    kind = F.lit("") if column is None else F.col(quoted(column)).cast("string")
    counts = {row[0]: row[1] for row in bound.frame.groupBy(kind.alias("type")).count().collect()}
    watch = EmptyAnswers(bound.program)
    watch.saw(counts, events=sum(counts.values()), without_type=counts.get(None, 0))
    for sentence in watch.misspelt(queries):
        warnings.warn(sentence, TypesWarning, stacklevel=2)
    return {name: reason for name in queries for reason in watch.reasons([name])}


SparkSchema = StructType | DataFrame


def expand(
    frame: DataFrame,
    query: Query | str | Mapping[str, Query | str],
    *,
    params: Mapping[str, Any] | None = None,
    first: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
    schema: SparkSchema | Mapping[str, SparkSchema] | None = None,
    max_matches: int = MATCHES_MAX,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
) -> DataFrame:
    """List the matches in the rows of a DataFrame of OUTPUT COMPRESSED, as `ouzel.expand` does.

    If all matches are listed, workers do it, and `max_matches` applies to each row. With `first` or `sample`, the
    driver chooses the matches. For `first`, which goes by the end of rows, it collects as many compressed rows as there
    are matches to list. For a sample it collects all rows.

        rows = ouzel.spark.match(events, text)          # … OUTPUT COMPRESSED …
        ouzel.spark.expand(rows, text).write.parquet("matches")
        ouzel.spark.expand(rows, text, sample=10, seed=1).show()
    """
    check_numbers(first, sample, seed)
    if GRAPH not in frame.columns:
        raise InputError("this DataFrame has no column 'graph'; expand() needs the answer of OUTPUT COMPRESSED")
    queries = as_queries(query, params)
    options = {"time": time, "type": type, "order": tuple(order), "time_unit": time_unit}
    inputs: pa.Schema | dict[str, pa.Schema] | None
    if isinstance(schema, Mapping):
        inputs = {name: _arrow(one) for name, one in schema.items()}
    else:
        inputs = None if schema is None else _arrow(schema)
    compressed = arrow_schema(frame.schema)
    bound, layout = reading(queries, compressed, inputs, options)
    answer = spark_schema(output_schema(bound, layout))
    if first is None and sample is None:
        return in_arrow(frame, answer, expand_rows, queries, compressed, inputs, options, max_matches)
    if first is not None:
        # Each row holds at least one match.
        others = [name for name in frame.columns if name not in ("end", GRAPH)]
        frame = frame.orderBy("end", *others).limit(first)
    rows = to_arrow(frame).cast(compressed)
    table = listed(bound, layout, rows, first=first, sample=sample, seed=seed)
    return from_arrow(frame.sparkSession, table)


def _arrow(schema: SparkSchema) -> pa.Schema:
    return arrow_schema(schema.schema if isinstance(schema, DataFrame) else schema)
