"""`match`: queries over DataFrames, batch or streaming. Only Spark's public DataFrame interface is used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ouzel.errors import InputError
from ouzel.prepared import Query, as_queries
from ouzel.runtime.engine import Queries
from ouzel.spark.buckets import bucket_names
from ouzel.spark.events import Events, bind_events, quoted, watermarked
from ouzel.spark.launch import ROCKSDB, STATE_STORE
from ouzel.spark.schema import spark_schema
from ouzel.spark.shares import KeyPath, SharePlan, plan_shares
from ouzel.spark.shipping import bucket_processor, on_workers
from ouzel.spark.worker import PACKED_NUMBER, PACKED_PAYLOAD, StreamJob

log = logging.getLogger("ouzel.spark")

PACKED = f"{PACKED_NUMBER} INT, {PACKED_PAYLOAD} BINARY"


def match(
    events: DataFrame | Mapping[str, DataFrame],
    query: Queries,
    *,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
    max_delay: int | str | timedelta | None = None,
    buckets: int | None = None,
    **options: Any,
) -> Any:
    """The matches of a query in a DataFrame, as a DataFrame; streaming where the events are.

    `events` is one DataFrame whose column `type` names the type of each event, or a DataFrame for each event type.
    Several queries over a batch give a DataFrame each, by name, out of one shuffle for each distinct key; over a stream
    they give one DataFrame with a column `query` and a struct column for each query.

    A stream needs a watermark: call `withWatermark` on the time column before, or say here by how much events may be
    late with `max_delay`. `buckets` is the number of parts that its state is kept in, that of shuffle partitions unless
    given; it must stay the same over the life of a checkpoint.

    >>> theft = "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag] WITHIN 12 hours"
    >>> thefts = match(readings, theft, time="ts", type="type")                              # doctest: +SKIP
    """
    named = as_queries(query)
    several = not isinstance(query, Query | str)
    bound = bind_events(events, named, time=time, type=type, order=order, time_unit=time_unit, **options)
    shares = plan_shares(bound.program, bound.clock)
    for part in shares:
        if not part.keys:
            log.warning(
                "no equivalence test keeps the events of %s apart, so a single task has to see all of them; "
                "add one, such as [id], where the pattern allows it",
                ", ".join(part.share.queries),
            )
    if bound.frame.isStreaming:
        sources = list(events.values()) if isinstance(events, Mapping) else [events]
        frame, watermark_column = watermarked(bound, sources, max_delay)
        return _match_stream(replace(bound, frame=frame), shares, several, watermark_column, buckets)
    if max_delay is not None:
        raise InputError("max_delay= is for streams; a bounded input is put in order whole, and nothing in it is late")
    return _match_several(bound, shares, list(named)) if several else _match_one(bound, shares)


def matching(query: Queries, **options: Any) -> Callable[[DataFrame], DataFrame]:
    """`match` for use in a chain: `df.transform(matching(query, time="ts"))`."""

    def transform(events: DataFrame) -> DataFrame:
        result = match(events, query, **options)
        if not isinstance(result, DataFrame):
            raise InputError(
                "df.transform needs one DataFrame and several queries give one each; use ouzel.spark.match(df, queries)"
            )
        return result

    return transform


# ── Batch ──────────────────────────────────────────────────────────────────────────────────────────


class Matches(dict[str, DataFrame]):
    """The DataFrames of several queries, by name. They share one computation, which Spark keeps until `release`."""

    def __init__(self, frames: Mapping[str, DataFrame], shared: Sequence[DataFrame]) -> None:
        super().__init__(frames)
        self._shared = list(shared)

    def release(self) -> None:
        """Let Spark forget the computed matches; the DataFrames stay usable and are computed anew."""
        for frame in self._shared:
            frame.unpersist()

    def __enter__(self) -> Matches:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _match_one(events: Events, shares: Sequence[SharePlan]) -> DataFrame:
    (part,) = shares
    (schema,) = part.outputs.values()
    return _placed(events, part).mapInArrow(on_workers("match_partition", part.share), spark_schema(schema))


def _match_several(events: Events, shares: Sequence[SharePlan], names: Sequence[str]) -> Matches:
    frames: dict[str, DataFrame] = {}
    shared = []
    for part in shares:
        packed = _placed(events, part).mapInArrow(on_workers("match_partition_packed", part.share), PACKED).persist()
        shared.append(packed)
        for number, (name, schema) in enumerate(part.outputs.items(), start=part.share.first_query):
            frames[name] = packed.mapInArrow(on_workers("unpack", number), spark_schema(schema))
    return Matches({name: frames[name] for name in names}, shared)


def _placed(events: Events, part: SharePlan) -> DataFrame:
    """Only what the queries look at, with all events that can be in one match in one partition."""
    wanted = _wanted(part.types, events.layout.type, events.layout.time)
    rows = events.frame if wanted is None else events.frame.where(wanted)
    rows = rows.select(*(quoted(column) for column in part.columns))
    return rows.repartition(*map(_key_column, part.keys)) if part.keys else rows.repartition(1)


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


def _match_stream(
    events: Events, shares: Sequence[SharePlan], several: bool, watermark_column: str, buckets: int | None
) -> DataFrame:
    """Pack the rows of each bucket, step its session, unpack the matches."""
    conf = events.frame.sparkSession.conf
    if conf.get(STATE_STORE, None) != ROCKSDB:
        raise InputError(
            "a stream needs Spark's RocksDB state store; start Spark with ouzel.spark.session(), or set "
            f'spark.conf.set("{STATE_STORE}", "{ROCKSDB}")'
        )
    per_share = buckets or int(str(conf.get("spark.sql.shuffle.partitions")))
    job = StreamJob(
        shares=tuple(part.share for part in shares),
        buckets=per_share,
        names=tuple(bucket_names(per_share * len(shares))),
    )
    columns = dict.fromkeys(column for part in shares for column in part.columns)
    bucket_columns = [f"ouzel bucket {number}" for number in range(len(shares))]
    types = [part.types for part in shares]
    # The watermark column takes part in the test, or Spark would test before it moves the watermark, and events that no
    # pattern wants would no longer move time.
    wanted = _wanted(
        None if None in types else frozenset().union(*filter(None, types)), events.layout.type, watermark_column
    )
    rows = events.frame if wanted is None else events.frame.where(wanted)
    placed = rows.select(
        *(quoted(column) for column in columns),
        *(
            _bucket(part.keys, per_share).alias(bucket_column)
            for part, bucket_column in zip(shares, bucket_columns, strict=True)
        ),
    )
    packed = placed.mapInArrow(on_workers("pack", job.shares, bucket_columns, job.names), PACKED)
    stepped = packed.groupBy(PACKED_NUMBER).transformWithState(
        statefulProcessor=bucket_processor(job), outputStructType=PACKED, outputMode="append", timeMode="eventTime"
    )
    outputs = {name: schema for part in shares for name, schema in part.outputs.items()}
    if not several:
        (schema,) = outputs.values()
        return stepped.mapInArrow(on_workers("unpack", 0), spark_schema(schema))
    united = pa.schema(
        [pa.field("query", pa.string()), *(pa.field(name, pa.struct(list(schema))) for name, schema in outputs.items())]
    )
    return stepped.mapInArrow(on_workers("unpack_all", united.serialize().to_pybytes()), spark_schema(united))


def _bucket(keys: Sequence[KeyPath], buckets: int) -> Column:
    # Spark's hash is the same from version to version, for bucketed tables depend on it; our state's place does too.
    return F.pmod(F.hash(*map(_key_column, keys)), F.lit(buckets)).cast("int") if keys else F.lit(0)


def _key_column(path: KeyPath) -> Column:
    return F.col(".".join(map(quoted, path)))


def _wanted(types: frozenset[str] | None, type_column: str | None, time_column: str) -> Column | None:
    """Events of the types that matter, and those without a time, which are an error whatever their type."""
    if types is None or type_column is None:
        return None
    return F.col(quoted(time_column)).isNull() | F.col(quoted(type_column)).cast("string").isin(sorted(types))
