"""`match_set`: a set of standing queries over a DataFrame, batch or streaming. The set may change while a stream
runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ouzel.algebra import stream
from ouzel.algebra.binding import AlgebraQuery
from ouzel.errors import InputError, OuzelError
from ouzel.query_set.api import QuerySet
from ouzel.spark.compatibility import SET_QUERIES, CheckpointSignature, digest_of
from ouzel.spark.input import Events, Watermark, bind_events, check_bytes, check_names, key_column, watermarked
from ouzel.spark.partitioning import shared_key
from ouzel.spark.payloads import PACKED, PACKED_NUMBER, PACKED_PAYLOAD, PARTITION_BYTES, QueryGroup
from ouzel.spark.query_set_worker import (
    PROBLEM,
    QUERY,
    SetJob,
    check_columns,
    match_set_keys,
    match_set_slices,
    pack_changes,
    pack_set_events,
    pack_slices,
)
from ouzel.spark.schema import arrow_schema, quoted, spark_schema
from ouzel.spark.state_store import SESSION_CACHE_BYTES
from ouzel.spark.streaming import OBSERVED
from ouzel.spark.tasks import bucket_processor, in_arrow, on_workers
from ouzel.spark.versions import DIVISIBLE, bucket_names, by_number, step_by_key
from ouzel.spark.worker import STEPPED, STEPPED_REPORT, unpack

BUCKET_COLUMN = "ouzel bucket"


def match_set(
    events: DataFrame,
    queries: QuerySet,
    *,
    changes: DataFrame | str | Path | None = None,
    columns: str | T.StructType | None = None,
    key: str | Sequence[str] | None = None,
    max_delay: int | str | timedelta | None = None,
    idle_timeout: str | timedelta | None = None,
    buckets: int | None = None,
    max_partition_bytes: int = PARTITION_BYTES,
    session_cache_bytes: int = SESSION_CACHE_BYTES,
    on_error: str = "fail",
) -> DataFrame:
    """The answers of a set of queries over a DataFrame, as one DataFrame. It is streaming if the events are.

    `queries` is an `ouzel.QuerySet` that has seen no events; its `time`, `type`, `order`, `time_unit` and `limits`
    apply to the DataFrame. The answers have the columns `query` (the id), `start` and `end`, and the columns of all
    queries, which are null for a query without them. `columns="price double, name string"` selects columns.

    Events are distributed by the columns that are equal in all events of every answer. If there are none, the queries
    are divided into slices, and each task reads all events for one slice. `key` names the columns by which events are
    distributed; "" asks for slices of queries.

    A stream needs a watermark or `max_delay`. `max_delay`, `idle_timeout`, `buckets` and the options in bytes are those
    of `ouzel.spark.match`. `changes` is a table of queries that may grow while the stream runs: a streaming DataFrame,
    or the path of a folder of Parquet files. Its columns are `id`, `query` (a text; null removes the query) and
    optionally `owner` and `version`. If one micro-batch has several rows with one id, the greatest version counts. A
    query sees the events after the watermark of the micro-batch that has read it. An error in a query of this table
    does not affect other queries: a separate row reports it in the column `problem`.

    If a query exceeds a limit, the batch or stream fails. With `on_error="report"`, only this query is suspended, and
    only in the part where that happened. A row says in the column `problem` when and why. The other queries continue.

    >>> alerts = QuerySet(time="ts")
    >>> alerts.add("high", "PATTERN Stock s WHERE s.price > 90 WITHIN 5 min RETURN High(s.price AS price)")
    >>> answers = match_set(quotes, alerts, changes="/tables/alerts", max_delay="1 min")       # doctest: +SKIP
    """
    if not isinstance(queries, QuerySet):
        raise InputError(f"match_set takes an ouzel.QuerySet, not a {type(queries).__name__}; make one and add queries")
    if isinstance(events, Mapping):
        raise InputError("a set of queries takes one DataFrame; unite those of the event types with unionByName")
    if on_error not in ("fail", "report"):
        raise InputError(f"on_error={on_error!r} is neither 'fail' nor 'report'; choose one of them")
    reports = on_error == "report"
    check_bytes({"max_partition_bytes": max_partition_bytes, "session_cache_bytes": session_cache_bytes})
    options = dict(queries._options)
    # Only the input is bound here.
    anything: dict[str, Any] = {"events": AlgebraQuery("events", stream())}
    bound = bind_events(events, anything, **options)
    if not bound.frame.isStreaming:
        given = {"changes": changes, "max_delay": max_delay, "idle_timeout": idle_timeout, "buckets": buckets}
        for name, value in given.items():
            if value is not None:
                raise InputError(f"{name}= is for streams; this DataFrame is a batch")
        job = _plan(bound, queries, None, columns, key, parts=None, reports=reports)
        return _batch(bound, replace(job, partition_bytes=max_partition_bytes))
    frame, watermark = watermarked(bound, [events], max_delay, idle_timeout)
    bound = replace(bound, frame=frame)
    if buckets is not None and (not isinstance(buckets, int) or not 1 <= buckets <= DIVISIBLE):
        raise InputError(f"buckets must be an integer from 1 to {DIVISIBLE:,}, got {buckets!r}")
    table = None if changes is None else _changes(frame.sparkSession, changes)
    if table is not None and options["type"] is None and not len(queries):
        raise InputError("with type=None and an empty set the event type is unknown; give type=")
    job = _plan(bound, queries, table, columns, key, parts=buckets or _partitions(frame), reports=reports)
    return _stream(bound, replace(job, cache_bytes=session_cache_bytes), table, watermark, queries.digest())


def _partitions(frame: DataFrame) -> int:
    return int(str(frame.sparkSession.conf.get("spark.sql.shuffle.partitions")))


# ── Planning ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Answers:
    schema: pa.Schema
    narrowed: bool


def _plan(
    events: Events,
    queries: QuerySet,
    changes: DataFrame | None,
    columns: str | T.StructType | None,
    key: str | Sequence[str] | None,
    *,
    parts: int | None,
    reports: bool,
) -> SetJob:
    """How events or queries are divided. `parts` is the number of buckets of a stream."""
    layout = events.layout
    check_names(events.frame, layout.schema.names, own=[BUCKET_COLUMN])
    if not len(queries) and changes is None:
        raise InputError("there is no query in the set; add one, or name a table of queries with changes=")
    bounded = parts is None
    whole = queries.slices(layout.schema, 1, bounded=bounded)
    answers = _answers(queries, whole[0], changes, columns, reports=reports)
    keys = _keys(whole[0], key, changes, layout.schema)
    slices = parts or max(1, min(_partitions(events.frame), len(queries)))
    sets = whole if keys else queries.slices(layout.schema, slices, bounded=bounded)
    group = QueryGroup(
        program=b"",
        columns=layout.schema.serialize().to_pybytes(),
        time=layout.time,
        queries=(QUERY,),
        first_query=0,
        clock=events.clock,
    )
    return SetJob(
        group=group,
        answers=answers.schema.serialize().to_pybytes(),
        parts=slices,
        sets=tuple(one.snapshot() for one in sets),
        keys=keys,
        narrowed=answers.narrowed,
        reports=reports,
    )


def _answers(
    queries: QuerySet,
    held: QuerySet,
    changes: DataFrame | None,
    columns: str | T.StructType | None,
    *,
    reports: bool,
) -> _Answers:
    """The columns that the answers of all queries have together."""
    fields = {QUERY: _id_type(queries, changes)}
    time = held.layout.schema.field(held.layout.time).type if held.layout is not None else pa.int64()
    fields |= {"start": time, "end": time}
    if columns is not None:
        for column in arrow_schema(_struct(columns)):
            fields.setdefault(column.name, column.type)
    schema = pa.schema(fields)
    for name, part in held.parts():
        own = held.answer_schema(part)
        if columns is None:
            known = set(schema.names)
            schema = pa.schema([*schema, *(pa.field(c.name, c.type) for c in own if c.name not in known)])
        try:
            check_columns(name, own, schema, narrowed=columns is not None)
        except OuzelError as error:
            raise InputError(str(error)) from None
    if changes is not None or reports:
        schema = schema.append(pa.field(PROBLEM, pa.string()))
    return _Answers(schema, columns is not None)


def _struct(columns: str | T.StructType) -> T.StructType:
    if isinstance(columns, T.StructType):
        return columns
    try:
        made = T.StructType.fromDDL(columns)
    except (PySparkException, TypeError, AttributeError) as error:
        raise InputError(
            f"columns={columns!r} is not a list of columns and types like 'name string, price double': {error}"
        ) from None
    if not isinstance(made, T.StructType):
        raise InputError(f"columns={columns!r} is not a list of columns and types like 'name string, price double'")
    return made


def _id_type(queries: QuerySet, changes: DataFrame | None) -> pa.DataType:
    ids = queries.pending_ids()
    integers = all(isinstance(one, int) and not isinstance(one, bool) for one in ids)
    if changes is None:
        return pa.int64() if integers else pa.string()
    integral = isinstance(changes.schema["id"].dataType, T.LongType)
    if ids and integral != integers:
        here, there = ("integers", "texts") if integers else ("texts", "integers")
        raise InputError(f"the ids of the set are {here} but those of the table of changes are {there}; use one type")
    return pa.int64() if integral else pa.string()


def _keys(
    held: QuerySet, asked_for: str | Sequence[str] | None, changes: DataFrame | None, schema: pa.Schema
) -> tuple[str, ...]:
    """The columns by which events are distributed. If there are none, queries are divided into slices."""
    found = shared_key([held])
    if asked_for is None:
        # Queries that are added later may have different keys.
        return () if changes is not None or (found is None and not len(held)) else tuple(sorted(_any(found, schema)))
    wanted = (asked_for,) if isinstance(asked_for, str) else tuple(asked_for)
    wanted = tuple(name for name in wanted if name)
    for name in wanted:
        if name not in schema.names:
            raise InputError(f"key='{name}' is not a column of the events; they have {', '.join(schema.names)}")
        if pa.types.is_floating(schema.field(name).type) or pa.types.is_nested(schema.field(name).type):
            raise InputError(f"key='{name}' is of type {schema.field(name).type}, which cannot be a key")
        if found is not None and name not in found:
            raise InputError(
                f"the events of an answer may differ on '{name}', so it cannot be the key; "
                f"{'every query agrees on ' + ', '.join(sorted(found)) if found else 'there is no such column'}"
            )
    return wanted


def _any(found: frozenset[str] | None, schema: pa.Schema) -> frozenset[str]:
    """The columns of a key; if every answer is a single event, all columns that can be hashed, which distributes events
    evenly.
    """
    if found is not None:
        return found
    simple = [c.name for c in schema if not (pa.types.is_nested(c.type) or pa.types.is_floating(c.type))]
    return frozenset(simple)


# ── Batch ──────────────────────────────────────────────────────────────────────────────────────────


def _batch(events: Events, job: SetJob) -> DataFrame:
    rows = events.frame.select(*map(quoted, events.layout.schema.names))
    schema = spark_schema(pa.ipc.read_schema(pa.py_buffer(job.answers)))
    if job.keys:
        placed = rows.repartition(*(key_column((name,)) for name in job.keys))
        return in_arrow(placed, schema, match_set_keys, job)
    packed = in_arrow(rows, PACKED, pack_slices, replace(job, sets=()))
    dealt = by_number(packed, job.parts, PACKED_NUMBER)
    return dealt.mapInArrow(on_workers(match_set_slices, job), schema)


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


def _stream(events: Events, job: SetJob, changes: DataFrame | None, watermark: Watermark, queries: str) -> DataFrame:
    schema = pa.ipc.read_schema(pa.py_buffer(job.answers))
    job = replace(
        job, names=tuple(bucket_names(job.parts)), signature=_signature(events, job, watermark, queries).dump()
    )
    packing = replace(job, sets=(), signature=b"")
    hashed = F.pmod(F.hash(*(key_column((name,)) for name in job.keys)), F.lit(job.parts)) if job.keys else F.lit(0)
    placed = events.frame.select(*map(quoted, events.layout.schema.names), hashed.cast("int").alias(BUCKET_COLUMN))
    packed = in_arrow(placed, PACKED, pack_set_events, packing, BUCKET_COLUMN)
    if changes is not None:
        # One task reads all changes of a micro-batch, so that it knows the newest of each query.
        packed = packed.union(in_arrow(changes.coalesce(1), PACKED, pack_changes, packing))
    stepped = step_by_key(packed, bucket_processor(job), STEPPED, "eventTime")
    observed = stepped.observe(
        f"{OBSERVED} {digest_of(job.signature)[:8]}", F.to_json(F.collect_list(STEPPED_REPORT)).alias("reports")
    )
    payloads = observed.select(PACKED_NUMBER, PACKED_PAYLOAD)
    return payloads.mapInArrow(on_workers(unpack, 0), spark_schema(schema))


def _signature(events: Events, job: SetJob, watermark: Watermark, queries: str) -> CheckpointSignature:
    answers = pa.ipc.read_schema(pa.py_buffer(job.answers))
    layout = events.layout
    settings = {
        "key": list(job.keys),
        "list of columns": [f"{column.name} {column.type}" for column in layout.schema],
        "time, type and order": [layout.time, layout.type, list(layout.order)],
        "list of columns of answers": [f"{column.name} {column.type}" for column in answers],
        SET_QUERIES: queries,
    }
    return CheckpointSignature(job.parts, watermark.delays_ms, query_set=settings)


def _changes(spark: SparkSession, given: DataFrame | str | Path) -> DataFrame:
    """The table of queries as a stream of its rows, with all columns that it may have."""
    if isinstance(given, str | Path):
        try:
            schema = spark.read.parquet(str(given)).schema
        except PySparkException as failure:
            reason = str(failure).strip().splitlines()[0]
            raise InputError(f"changes='{given}' is not a folder of Parquet files with queries: {reason}") from None
        given = spark.readStream.schema(schema).parquet(str(given))
    if not isinstance(given, DataFrame) or not given.isStreaming:
        raise InputError(
            "changes= must be a streaming DataFrame or the path of a folder of Parquet files: a batch "
            "cannot change; add its rows to the set with add_table"
        )
    names = set(given.columns)
    for name in ("id", QUERY):
        if name not in names:
            raise InputError(f"the table of changes has no column '{name}'; it has {', '.join(given.columns)}")
    kind = given.schema["id"].dataType
    if not isinstance(kind, T.IntegralType | T.StringType):
        raise InputError(
            f"the ids of the table of changes are of type {kind.simpleString()}; they must be integers or texts"
        )
    return given.select(
        F.col("id").cast("string" if isinstance(kind, T.StringType) else "long").alias("id"),
        F.col(QUERY).cast("string").alias(QUERY),
        (F.col("owner").cast("string") if "owner" in names else F.lit(None).cast("string")).alias("owner"),
        (F.col("version").cast("long") if "version" in names else F.lit(None).cast("long")).alias("version"),
    )
