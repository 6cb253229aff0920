"""`match_set`: a set of standing queries over a DataFrame, batch or streaming, that may change while a stream runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
from ouzel.algebra.model import CURRENT, BoundStream, Branch, Round
from ouzel.algebra.query import AlgebraQuery
from ouzel.bind.model import Attribute, Bound, Kind, Operation
from ouzel.errors import InputError, OuzelError
from ouzel.query_set.api import QuerySet
from ouzel.query_set.groups import Group
from ouzel.query_set.snapshot import digest, ids_of, spread
from ouzel.query_set.unmerged import Registration
from ouzel.spark.input import Events, Watermark, bind_events, check_names, key_column, watermarked
from ouzel.spark.partitioning import keys_of
from ouzel.spark.payloads import PACKED, PACKED_NUMBER, PACKED_PAYLOAD
from ouzel.spark.query_set_worker import PROBLEM, QUERIES_TERM, QUERY, SetJob, check_columns
from ouzel.spark.schema import arrow_schema, quoted, spark_schema
from ouzel.spark.streaming import DIVISIBLE, OBSERVED, bucket_names, require_state_store
from ouzel.spark.tasks import Share, bucket_processor, in_arrow, on_workers
from ouzel.spark.time_slices import is_about_single_events
from ouzel.spark.worker import STEPPED, STEPPED_REPORT


def shared_key(sets: Iterable[QuerySet]) -> frozenset[str] | None:
    """The columns that are equal in all events of one answer, whichever query gives it; None: any column will do."""
    found: frozenset[str] | None = None
    for held in sets:
        for _, part in held.parts():
            own = key_of(part)
            if own is not None:
                found = own if found is None else found & own
    return found


def key_of(part: Group | Registration) -> frozenset[str] | None:
    """The columns that are equal in all events of one answer of some queries; None: every answer is one event."""
    if isinstance(part, Group):
        return _key_of_stream(part.stream)
    program = part.program
    if program.algebra:
        (expression,) = program.algebra
        # What one stream finds another reads, wherever in the input that was.
        return _key_of_stream(expression.streams[0]) if len(expression.streams) == 1 else frozenset()
    (plan,) = program.plans().values()
    if is_about_single_events(plan):
        return None
    return frozenset(path[0] for path in keys_of(plan, program.layout) if len(path) == 1)


def _key_of_stream(stream: BoundStream) -> frozenset[str] | None:
    keys = [_key_of_branch(branch) for branch in stream.branches if branch.hops]
    return frozenset.intersection(*keys) if keys else None


def _key_of_branch(branch: Branch) -> frozenset[str]:
    """An event is equal with one that the instance has, which is equal with those before it."""
    return frozenset.intersection(*(_equal_columns(each) for hop in branch.hops for each in hop.rounds))


def _equal_columns(each: Round) -> frozenset[str]:
    found = set()
    pending: list[Bound] = list(each.theta)
    while pending:
        one = pending.pop()
        if not isinstance(one, Operation):
            continue
        if one.operator == "and":
            pending += one.operands
        elif one.operator == "=":
            found |= _equal_column(*one.operands)
    return frozenset(found)


def _equal_column(left: Bound, right: Bound) -> set[str]:
    if not (isinstance(left, Attribute) and isinstance(right, Attribute)) or left.path != right.path:
        return set()
    both = {left.component, right.component}
    # Floats that are equal, as the two zeros are, need not have the same hash.
    comparable = len(left.path) == 1 and left.type.kind is not Kind.FLOAT
    return {left.path[0]} if comparable and CURRENT in both and max(both) >= 0 else set()


BUCKET_COLUMN = "ouzel bucket"


def match_set(
    events: DataFrame,
    queries: QuerySet,
    *,
    changes: DataFrame | str | Path | None = None,
    columns: str | T.StructType | None = None,
    key: str | Sequence[str] | None = None,
    max_delay: int | str | timedelta | None = None,
    buckets: int | None = None,
) -> DataFrame:
    """The answers of a set of queries over a DataFrame, as one DataFrame; streaming where the events are.

    `queries` is an `ouzel.QuerySet` that has seen no events; its `time`, `type`, `order`, `time_unit` and `limits` are
    those of the DataFrame. The columns of the answers are `query`, which is the id, `start`, `end`, and those of all
    queries, null where a query does not have them; `columns` ("price double, name string") names those that are wanted.

    The work is spread by the columns that are equal in all events of every answer. Where there are none, each task has
    its slice of the queries and sees all events. `key` says by which columns to spread; "" asks for slices.

    A stream needs a watermark or `max_delay`, and `buckets` is the number of parts of its state, as in
    `ouzel.spark.match`. `changes` is a table of queries that may grow while the stream runs: a streaming DataFrame, or
    the path of a folder of Parquet files, with columns `id`, `query` (a text; null removes the query) and perhaps
    `owner` and `version`, of which the greatest counts where one micro-batch has several rows of an id. A query sees
    the events that are later than the watermark of the micro-batch that read it. What is wrong with a query of this
    table is told in a column `problem`, in a row of its own, and disturbs no other query.

    >>> alerts = QuerySet(time="ts")
    >>> alerts.add("high", "PATTERN Stock s WHERE s.price > 90 WITHIN 5 min RETURN High(s.price AS price)")
    >>> answers = match_set(quotes, alerts, changes="/tables/alerts", max_delay="1 min")       # doctest: +SKIP
    """
    if not isinstance(queries, QuerySet):
        raise InputError(f"match_set takes an ouzel.QuerySet, not a {type(queries).__name__}; make one and add queries")
    if isinstance(events, Mapping):
        raise InputError("a set of queries takes one DataFrame; unite those of the event types with unionByName")
    options = dict(queries._options)
    # What is bound here is the input alone.
    anything: dict[str, Any] = {"events": AlgebraQuery("events", stream())}
    bound = bind_events(events, anything, **options)
    if not bound.frame.isStreaming:
        for name, value in (("changes", changes), ("max_delay", max_delay), ("buckets", buckets)):
            if value is not None:
                raise InputError(f"{name}= is for streams; this DataFrame is a batch")
        return _batch(bound, _plan(bound, queries, None, columns, key, parts=None))
    frame, watermark = watermarked(bound, [events], max_delay)
    bound = replace(bound, frame=frame)
    require_state_store(frame)
    if buckets is not None and (not isinstance(buckets, int) or not 1 <= buckets <= DIVISIBLE):
        raise InputError(f"buckets={buckets!r} is not a number of buckets; there may be between 1 and {DIVISIBLE:,}")
    table = None if changes is None else _changes(frame.sparkSession, changes)
    if table is not None and options["type"] is None and not len(queries):
        raise InputError(
            "type=None and a set that is empty at first: nothing says of what type the events are; add type="
        )
    job = _plan(bound, queries, table, columns, key, parts=buckets or _partitions(frame))
    return _stream(bound, job, table, watermark, digest(queries))


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
) -> SetJob:
    """How the work is spread. `parts` is the number of buckets of a stream."""
    layout = events.layout
    check_names(events.frame, layout.schema.names, own=[BUCKET_COLUMN])
    if not len(queries) and changes is None:
        raise InputError("there is no query in the set; add one, or name a table of queries with changes=")
    bounded = parts is None
    whole = spread(queries, layout.schema, 1, bounded=bounded)
    answers = _answers(queries, whole[0], changes, columns)
    keys = _keys(whole[0], key, changes, layout.schema)
    slices = parts or max(1, min(_partitions(events.frame), len(queries)))
    sets = whole if keys else spread(queries, layout.schema, slices, bounded=bounded)
    share = Share(
        program=b"",
        columns=layout.schema.serialize().to_pybytes(),
        time=layout.time,
        queries=(QUERY,),
        first_query=0,
        clock=events.clock,
    )
    return SetJob(
        share=share,
        answers=answers.schema.serialize().to_pybytes(),
        parts=slices,
        sets=tuple(one.snapshot() for one in sets),
        keys=keys,
        narrowed=answers.narrowed,
    )


def _answers(
    queries: QuerySet, held: QuerySet, changes: DataFrame | None, columns: str | T.StructType | None
) -> _Answers:
    """The columns of all answers."""
    fields = {QUERY: _id_type(queries, changes)}
    time = held._layout.schema.field(held._layout.time).type if held._layout is not None else pa.int64()
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
    if changes is not None:
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
    ids = ids_of(queries)
    integers = all(isinstance(one, int) and not isinstance(one, bool) for one in ids)
    if changes is None:
        return pa.int64() if integers else pa.string()
    integral = isinstance(changes.schema["id"].dataType, T.LongType)
    if ids and integral != integers:
        here, there = ("integers", "texts") if integers else ("texts", "integers")
        raise InputError(
            f"the ids of the set are {here} and those of the table of changes are {there}; make them alike"
        )
    return pa.int64() if integral else pa.string()


def _keys(
    held: QuerySet, asked_for: str | Sequence[str] | None, changes: DataFrame | None, schema: pa.Schema
) -> tuple[str, ...]:
    """The columns to spread by; none: each part has its slice of the queries."""
    found = shared_key([held])
    if asked_for is None:
        # Queries that come later need not agree on anything.
        return () if changes is not None or (found is None and not len(held)) else tuple(sorted(_any(found, schema)))
    wanted = (asked_for,) if isinstance(asked_for, str) else tuple(asked_for)
    wanted = tuple(name for name in wanted if name)
    for name in wanted:
        if name not in schema.names:
            raise InputError(f"key='{name}' is not a column of the events; they have {', '.join(schema.names)}")
        if pa.types.is_floating(schema.field(name).type) or pa.types.is_nested(schema.field(name).type):
            raise InputError(f"key='{name}' is of type {schema.field(name).type}, by which events cannot be spread")
        if found is not None and name not in found:
            raise InputError(
                f"not all events of an answer need agree on '{name}', so they cannot be spread by it; "
                f"{'every query agrees on ' + ', '.join(sorted(found)) if found else 'there is no such column'}"
            )
    return wanted


def _any(found: frozenset[str] | None, schema: pa.Schema) -> frozenset[str]:
    """Where every answer is one event, all columns that can be hashed; what they spread is spread evenly."""
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
        return in_arrow(placed, schema, "match_set_keys", job)
    packed = in_arrow(rows, PACKED, "pack_slices", replace(job, sets=()))
    dealt = packed.repartitionById(job.parts, F.col(PACKED_NUMBER))
    return dealt.mapInArrow(on_workers("match_set_slices", job), schema)


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


def _stream(events: Events, job: SetJob, changes: DataFrame | None, watermark: Watermark, queries: str) -> DataFrame:
    schema = pa.ipc.read_schema(pa.py_buffer(job.answers))
    job = replace(job, names=tuple(bucket_names(job.parts)), terms=_terms(events, job, watermark, queries))
    packing = replace(job, sets=(), terms="")
    hashed = F.pmod(F.hash(*(key_column((name,)) for name in job.keys)), F.lit(job.parts)) if job.keys else F.lit(0)
    placed = events.frame.select(*map(quoted, events.layout.schema.names), hashed.cast("int").alias(BUCKET_COLUMN))
    packed = in_arrow(placed, PACKED, "pack_set_events", packing, BUCKET_COLUMN)
    if changes is not None:
        # One task reads all changes of a micro-batch, so that it knows the newest of each query.
        packed = packed.union(in_arrow(changes.coalesce(1), PACKED, "pack_changes", packing))
    stepped = packed.groupBy(PACKED_NUMBER).transformWithState(
        statefulProcessor=bucket_processor(job), outputStructType=STEPPED, outputMode="append", timeMode="eventTime"
    )
    observed = stepped.observe(
        f"{OBSERVED} {job.digest[:8]}", F.to_json(F.collect_list(STEPPED_REPORT)).alias("reports")
    )
    payloads = observed.select(PACKED_NUMBER, PACKED_PAYLOAD)
    return payloads.mapInArrow(on_workers("unpack", 0), spark_schema(schema))


def _terms(events: Events, job: SetJob, watermark: Watermark, queries: str) -> str:
    """What must stay the same over the life of a checkpoint."""
    answers = pa.ipc.read_schema(pa.py_buffer(job.answers))
    layout = events.layout
    return json.dumps(
        {
            "number of buckets": job.parts,
            "delay of the watermark in milliseconds": list(watermark.delays_ms),
            "key": list(job.keys),
            "list of columns": [f"{column.name} {column.type}" for column in layout.schema],
            "time, type and order": [layout.time, layout.type, list(layout.order)],
            "list of columns of answers": [f"{column.name} {column.type}" for column in answers],
            QUERIES_TERM: queries,
        }
    )


def _changes(spark: SparkSession, given: DataFrame | str | Path) -> DataFrame:
    """The table of queries as a stream of its rows, with all columns that it may have."""
    if isinstance(given, str | Path):
        try:
            schema = spark.read.parquet(str(given)).schema
        except PySparkException as failure:
            told = str(failure).strip().splitlines()[0]
            raise InputError(f"changes='{given}' is not a folder of Parquet files with queries: {told}") from None
        given = spark.readStream.schema(schema).parquet(str(given))
    if not isinstance(given, DataFrame) or not given.isStreaming:
        raise InputError(
            "changes= is a streaming DataFrame or the path of a folder of Parquet files: a table that is read once "
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
