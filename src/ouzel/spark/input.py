"""The events of a job as one wide DataFrame, bound to its queries, and the watermark of a stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ouzel.errors import InputError, argument
from ouzel.loss import LossModel
from ouzel.prepared import Query
from ouzel.runtime.feeder import duration_ticks
from ouzel.runtime.layout import ARRIVAL, Layout
from ouzel.runtime.limits import Limits, limits_of
from ouzel.runtime.program import Program, make_program
from ouzel.spark.launch import check_session
from ouzel.spark.payloads import NANOSECONDS_PER_MILLISECOND, Clock
from ouzel.spark.schema import arrow_schema, quoted, spark_type
from ouzel.spark.versions import is_remote

# Spark marks the column of a watermark with this.
WATERMARK_METADATA = "spark.watermarkDelayMs"
WATERMARK_COLUMN = "ouzel watermark"
# True in rows that only move time.
HEARTBEAT_COLUMN = "ouzel heartbeat"

# Spark's watermark starts in 1970 and cannot be earlier. Plain numbers may be 0 or negative, so they are read as
# milliseconds from a later origin, which allows numbers up to 9 * 10^15.
NUMBERS_ORIGIN_MS = 1 << 42


@dataclass(frozen=True)
class Events:
    """A wide DataFrame and the program of the queries over it."""

    frame: DataFrame
    program: Program

    @property
    def layout(self) -> Layout:
        return self.program.layout

    @property
    def clock(self) -> Clock:
        """How ticks are converted to Spark's watermark. Integers are read as milliseconds."""
        tick_ns = self.program.catalog.time.tick_ns
        return Clock(tick_ns) if tick_ns else Clock(NANOSECONDS_PER_MILLISECOND, NUMBERS_ORIGIN_MS)


def bind_events(
    events: DataFrame | Mapping[str, DataFrame],
    queries: dict[str, Query],
    *,
    time: str,
    type: str | None,
    order: Collection[str] = (),
    time_unit: str | None = None,
    limits: Limits | Mapping[str, int] | None = None,
    model: LossModel | None = None,
    hints: Mapping[str, str] | None = None,
) -> Events:
    """Bind queries to a DataFrame, or to one for each event type."""
    if order == ARRIVAL:
        raise InputError(
            argument("order", ARRIVAL),
            " needs rows in the order of arrival, and the rows of a DataFrame have none; name columns that order "
            "events of one time",
        )
    options: dict[str, Any] = {
        "time": time, "type": type, "order": order, "time_unit": time_unit, "limits": limits_of(limits), "model": model,
        "hints": hints,
    }  # fmt: skip
    if not isinstance(events, Mapping):
        frame = _with_readable_time(events, time)
        program = make_program(queries, arrow_schema(frame.schema), streaming=frame.isStreaming, **options)
        return Events(frame, program)
    frames = {name: _with_readable_time(frame, time) for name, frame in events.items()}
    streaming = {frame.isStreaming for frame in frames.values()}
    if len(streaming) != 1:
        raise InputError(
            "some of the DataFrames are streams and some are not; give only streams or only batches"
            if streaming
            else "there is no DataFrame to search; give one for each event type"
        )
    schemas = {name: arrow_schema(frame.schema) for name, frame in frames.items()}
    program = make_program(queries, schemas, streaming=streaming.pop(), **options)
    return Events(_widen(frames, program.layout), program)


def check_bytes(sizes: Mapping[str, Any]) -> None:
    """Raise an error for an option that is not a number of bytes."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise InputError(f"{name}={value!r} is not a number of bytes; write it like 1 << 30")


def _with_readable_time(given: Any, time: str) -> DataFrame:
    """The DataFrame with dates as midnights, as in the embedded engine."""
    # The DataFrames of Connect were no subclass of others before Spark 4.
    if not (isinstance(given, DataFrame) or is_remote(given)):
        raise InputError(
            f"the events are of type {type(given).__name__} and must be a Spark DataFrame; make one with spark.read or "
            "spark.createDataFrame, or use ouzel.match for files and tables"
        )
    frame: DataFrame = given
    check_session(frame)
    if time not in frame.columns:
        return frame  # the layout reports the mistake
    kind = frame.schema[time].dataType
    if isinstance(kind, T.DateType):
        return frame.withColumn(time, F.col(quoted(time)).cast("timestamp_ntz"))
    if isinstance(kind, T.TimestampType | T.TimestampNTZType | T.IntegralType):
        return frame
    raise InputError(
        f"the time column '{time}' is of type {kind.simpleString()}; it must be a timestamp, a date or an integer: "
        f"convert it first, for example df.withColumn('{time}', to_timestamp('{time}'))"
    )


def _widen(frames: Mapping[str, DataFrame], layout: Layout) -> DataFrame:
    """Several DataFrames, by event type, combined into one."""
    united: DataFrame | None = None
    for event_type, frame in frames.items():
        source = {layout.column(event_type, name): name for name in frame.columns}
        columns = []
        for field in layout.schema:
            if field.name == layout.type:
                column = F.lit(event_type)
            elif field.name in source:
                column = F.col(quoted(source[field.name]))
            else:
                column = F.lit(None).cast(spark_type(field.type))
            columns.append(column.alias(field.name))
        part = frame.select(*columns)
        united = part if united is None else united.unionByName(part)
    assert united is not None
    return united


# ── Watermarks ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Watermark:
    """The column that moves time, and the delay of the watermark for each input."""

    column: str
    delays_ms: tuple[int, ...]


def watermarked(
    events: Events,
    sources: Collection[DataFrame],
    max_delay: int | str | timedelta | None,
    idle_timeout: str | timedelta | None = None,
) -> tuple[DataFrame, Watermark]:
    """The events with a watermark."""
    time = events.layout.time
    if idle_timeout is not None:
        if max_delay is None:
            raise InputError("idle_timeout= needs max_delay=, so that both move one watermark; give both")
        moved = Events(_with_heartbeats(events, idle_timeout), events.program)
        frame, watermark = watermarked(moved, sources, max_delay)
        # The condition reads the watermark column, so that Spark moves the watermark before it drops the rows.
        wanted = F.col(quoted(watermark.column)).isNull() | ~F.col(quoted(HEARTBEAT_COLUMN))
        return frame.where(wanted).drop(HEARTBEAT_COLUMN), watermark
    for source in sources:
        kind = source.schema[time].dataType
        if isinstance(kind, T.TimestampNTZType | T.DateType):
            raise InputError(
                f"the time column '{time}' of a stream is of type {kind.simpleString()}, and Spark's watermarks go by "
                f"timestamps with a zone only: convert it first, for example df.withColumn('{time}', "
                f"col('{time}').cast('timestamp')), which reads it in the zone of the session"
            )
    marked = [WATERMARK_METADATA in (source.schema[time].metadata or {}) for source in sources]
    if max_delay is None:
        if not all(marked):
            raise InputError(
                f"a stream needs a maximum delay of its events: call df.withWatermark('{time}', '5 minutes') before, "
                "or give max_delay=, for example '5 min' (not in SQL statements)"
            )
        delays_ms = [int(source.schema[time].metadata[WATERMARK_METADATA]) for source in sources]
        return events.frame, Watermark(time, tuple(delays_ms))
    if any(marked):
        raise InputError(f"the column '{time}' has a watermark already, so leave max_delay= out")
    clock = events.clock
    delay_ticks = duration_ticks(max_delay, events.program.catalog, "max_delay")
    delay_ms = -(-delay_ticks * clock.tick_ns // NANOSECONDS_PER_MILLISECOND)
    # An event that is late by exactly max_delay still counts. Spark's watermark would reach it, so it is 1 ms behind.
    threshold = f"{delay_ms + 1} milliseconds"
    delays_ms = [delay_ms + 1]
    if pa.types.is_timestamp(events.layout.schema.field(time).type):
        return events.frame.withWatermark(quoted(time), threshold), Watermark(time, tuple(delays_ms))
    counted = events.frame.withColumn(WATERMARK_COLUMN, _on_sparks_clock(F.col(quoted(time)), clock))
    return counted.withWatermark(quoted(WATERMARK_COLUMN), threshold), Watermark(WATERMARK_COLUMN, tuple(delays_ms))


def _with_heartbeats(events: Events, idle_timeout: str | timedelta) -> DataFrame:
    """The events, with one more row for each second. Its time is that of the clock minus the timeout."""
    time, frame = events.layout.time, events.frame
    if not pa.types.is_timestamp(events.layout.schema.field(time).type):
        raise InputError(f"idle_timeout= follows the clock, so the time column '{time}' must be a timestamp")
    check_names(frame, (), own=[HEARTBEAT_COLUMN])
    ticks = duration_ticks(idle_timeout, events.program.catalog, "idle_timeout")
    behind_us = ticks * events.clock.tick_ns // 1_000
    clock = frame.sparkSession.readStream.format("rate").options(rowsPerSecond=1, numPartitions=1).load()
    moved = F.timestamp_micros(F.unix_micros("timestamp") - F.lit(behind_us))
    beats = clock.select(
        *(
            (moved if field.name == time else F.lit(None).cast(field.dataType)).alias(field.name)
            for field in frame.schema
        ),
        F.lit(True).alias(HEARTBEAT_COLUMN),
    )
    return frame.withColumn(HEARTBEAT_COLUMN, F.lit(False)).union(beats)


def _on_sparks_clock(ticks: Column, clock: Clock) -> Column:
    """Integer ticks as a timestamp. For ticks that are too large, Spark raises an error and does not return a wrong
    time.
    """
    ticks = ticks.cast("long")
    if clock.tick_ns >= NANOSECONDS_PER_MILLISECOND:
        return F.timestamp_millis(ticks * F.lit(clock.tick_ns // NANOSECONDS_PER_MILLISECOND) + F.lit(clock.origin_ms))
    per_microsecond = 1_000 // clock.tick_ns
    # Exact: 64-bit ticks do not fit a double.
    whole = (ticks - F.pmod(ticks, F.lit(per_microsecond))).cast("decimal(20,0)") / F.lit(per_microsecond)
    return F.timestamp_micros(whole.cast("long") if per_microsecond > 1 else ticks)


def key_column(path: Sequence[str]) -> Column:
    """A column, or a field inside one."""
    return F.col(".".join(map(quoted, path)))


def check_names(frame: DataFrame, columns: Sequence[str], own: Collection[str] = ()) -> None:
    """Raise an error for names that differ only in case, which Spark by default does not distinguish, and for names
    that Ouzel reserves.
    """
    present = frame.columns
    for name in own:
        if name in present:
            raise InputError(f"the column name '{name}' is reserved for Ouzel; rename the column")
    if str(frame.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return
    for column in columns:
        other = next((name for name in present if name != column and name.lower() == column.lower()), None)
        if other is not None:
            raise InputError(
                f"Spark ignores case and confuses the columns '{column}' and '{other}'; rename one of them, or set "
                "spark.sql.caseSensitive to true"
            )
