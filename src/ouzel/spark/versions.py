"""The versions of Spark on which Ouzel runs, and the differences between them. No other module depends on a version.

With Spark Connect, the driver has a client and the cluster a server, and the older version of both counts. PySpark is
imported when it is used, so that `ouzel.spark.session` can report that it is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ouzel.errors import InputError
from ouzel.spark.payloads import from_payload, gather, payloads_of
from ouzel.spark.tasks import in_arrow, on_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

Version = tuple[int, int]

OLDEST: Version = (3, 5)
NEWEST: Version = (4, 3)
# transformWithState, in the form of pandas DataFrames; DataFrames from and to Arrow; one class for Connect and classic.
STREAMS_SINCE: Version = (4, 0)
# transformWithState in the form of rows, also over Connect; repartitionById.
ROWS_SINCE: Version = (4, 1)
# Known to fire a timer in the micro-batch whose watermark equals it; older ones wait until the watermark has passed it.
EXACT_TIMERS_SINCE: Version = (4, 3)
# The Java versions that a version of Spark runs on.
JAVA: dict[Version, tuple[int, int]] = {(3, 5): (8, 17), (4, 0): (17, 21)}
JAVA_OF_NEWER = (17, 25)


def parsed(version: str) -> Version:
    """(major, minor) of a version, which may be a vendor's.

    >>> parsed("3.5.1-amzn-0"), parsed("4.0.0.dev0")
    ((3, 5), (4, 0))
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def check_version(version: Version) -> None:
    """Raise an error for a version on which Ouzel was not tested."""
    if not OLDEST <= version <= NEWEST:
        raise InputError(
            f"this is Spark {_text(version)}, and Ouzel runs on Spark {_text(OLDEST)} to {_text(NEWEST)}; install one "
            f'of them, for example with pip install "pyspark=={_text(NEWEST)}.*"'
        )


def check_frame(frame: Any) -> None:
    """Raise an error, before a job starts, if the session of a DataFrame cannot run what is asked for."""
    version, remote = version_of(frame.sparkSession), is_remote(frame)
    check_version(version)
    if remote and version < STREAMS_SINCE:
        raise InputError(
            f"over Spark Connect, Ouzel needs Spark {_text(STREAMS_SINCE)} or newer and this is {_text(version)}; "
            "use a session without Connect"
        )
    if not frame.isStreaming:
        return
    if version < STREAMS_SINCE:
        raise InputError(
            f"streams need Spark {_text(STREAMS_SINCE)} or newer and this is {_text(version)}; "
            "on it Ouzel runs batches only"
        )
    if remote and version < ROWS_SINCE:
        raise InputError(
            f"over Spark Connect, streams need Spark {_text(ROWS_SINCE)} or newer and this is {_text(version)}; "
            "use a session without Connect"
        )


def version_of(spark: SparkSession) -> Version:
    """The version of a session."""
    import pyspark

    return min(parsed(spark.version), parsed(pyspark.__version__))


def is_remote(frame: Any) -> bool:
    """Whether a DataFrame comes from Spark Connect."""
    return type(frame).__module__.startswith("pyspark.sql.connect.")


def installed_java() -> tuple[int, int]:
    """(oldest, newest) Java for the installed Spark."""
    import pyspark

    return JAVA.get(parsed(pyspark.__version__), JAVA_OF_NEWER)


def has_exact_timers(spark: SparkSession) -> bool:
    """Whether every bucket emits all results up to the watermark in the same micro-batch."""
    return version_of(spark) >= EXACT_TIMERS_SINCE


def _text(version: Version) -> str:
    return ".".join(map(str, version))


# ── Rows ───────────────────────────────────────────────────────────────────────────────────────────


def by_number(frame: DataFrame, parts: int, column: str) -> DataFrame:
    """The rows, each in the partition whose number, from 0 to parts - 1, is in a column."""
    from pyspark.sql import functions as F

    from ouzel.spark.schema import quoted

    number = F.col(quoted(column))
    if version_of(frame.sparkSession) >= ROWS_SINCE:
        return frame.repartitionById(parts, number)
    values = F.expr(f"array({', '.join(map(str, hashed_to(parts)))})")
    return frame.repartition(parts, F.get(values, number))


def to_arrow(frame: DataFrame) -> pa.Table:
    """All rows of a DataFrame."""
    from ouzel.spark.schema import arrow_schema

    if version_of(frame.sparkSession) >= STREAMS_SINCE:
        return frame.toArrow()
    schema = arrow_schema(frame.schema)
    packed = in_arrow(frame, "payload BINARY", pack_rows).collect()
    return pa.concat_tables([schema.empty_table(), *(from_payload(row[0]).cast(schema) for row in packed)])


def from_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table as a DataFrame."""
    from ouzel.spark.schema import spark_schema

    schema = spark_schema(table.schema)
    if version_of(spark) >= STREAMS_SINCE:
        return spark.createDataFrame(table, schema)
    packed = spark.createDataFrame([(bytearray(payload),) for payload in payloads_of(table)], "payload BINARY")
    return packed.mapInArrow(on_workers(unpack_rows), schema)


def pack_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task as payloads."""
    for table in gather(batches):
        for payload in payloads_of(table):
            yield pa.record_batch({"payload": pa.array([payload], pa.binary())})


def unpack_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in payloads."""
    for batch in batches:
        for payload in batch.column(0).to_pylist():
            yield from from_payload(payload).to_batches()


# ── Stateful steps ─────────────────────────────────────────────────────────────────────────────────


# Spark broadcasts larger functions, and its stateful steps cannot start from a broadcast.
FUNCTION_BYTES = "spark.broadcast.UDFCompressionThreshold"
# What Spark and the processor itself add to what a processor sends.
FUNCTION_BYTES_ADDED = 64 << 10


def step_by_key(frame: DataFrame, processor: StatefulProcessor, schema: str, time_mode: str) -> DataFrame:
    """A stateful step for each value of the first column, an integer. The processor takes and returns rows."""
    spark = frame.sparkSession
    size = getattr(processor, "sent_bytes", 0) + FUNCTION_BYTES_ADDED
    if not is_remote(frame) and size > _bytes(spark.conf.get(FUNCTION_BYTES, "1m")):
        raise InputError(
            f"the queries of this stream take {size:,} bytes, more than {FUNCTION_BYTES} allows; start Spark with "
            f"ouzel.spark.session(), or with --conf {FUNCTION_BYTES}=64m"
        )
    grouped: Any = frame.groupBy(frame.columns[0])
    if version_of(frame.sparkSession) >= ROWS_SINCE:
        stepped: DataFrame = grouped.transformWithState(processor, schema, "append", time_mode)
    else:
        stepped = grouped.transformWithStateInPandas(_in_pandas(processor), schema, "append", time_mode)
    return stepped


def _bytes(setting: str | None) -> int:
    """The number of bytes in a size as Spark writes it: a number, perhaps with a unit such as 64m."""
    found = re.fullmatch(r"(\d+)([kmg]?)b?", str(setting).strip().lower())
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]] if found else 1 << 20


def _in_pandas(processor: StatefulProcessor) -> StatefulProcessor:
    """A processor for pandas DataFrames that calls a processor for rows."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    # Workers get this class by value and may lack Ouzel, so it uses nothing of this module.
    class InPandas(StatefulProcessor):
        def init(self, handle: Any) -> None:
            processor.init(handle)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            plain = (row for frame in rows for row in frame.itertuples(index=False, name=None))
            yield from self._frames(processor.handleInputRows((int(key[0]),), plain, timerValues))

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            yield from self._frames(processor.handleExpiredTimer((int(key[0]),), timerValues, expiredTimerInfo))

        def close(self) -> None:
            processor.close()

        def _frames(self, rows: Iterable[Any]) -> Iterator[Any]:
            import pandas

            for row in rows:
                # As objects, because a column of integers cannot be null in pandas.
                yield pandas.DataFrame([tuple(row)], columns=list(row.__fields__), dtype=object)

    return InPandas()


# ── Spark's hash ───────────────────────────────────────────────────────────────────────────────────

# The same in all versions, because bucketed tables depend on it. The place of a stream's state does too.
SPARK_SEED = 42
DIVISIBLE = 9_600  # by 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 25, 30, 32, … 200


def bucket_names(count: int) -> list[int]:
    """The names of buckets 0 … count - 1, which Spark's hash distributes evenly over its partitions.

    >>> [int(murmur3(np.array([name], np.int32))[0]) % 4 for name in bucket_names(8)]
    [0, 1, 2, 3, 0, 1, 2, 3]
    """
    if not 1 <= count <= DIVISIBLE:
        raise ValueError(f"a stream has between 1 and {DIVISIBLE:,} buckets, not {count:,}")
    return hashed_to(DIVISIBLE)[:count]


@cache
def hashed_to(partitions: int) -> list[int]:
    """For each partition the first integer that Spark's hash sends to it."""
    candidates = np.arange(40 * partitions, dtype=np.int32)
    found, firsts = np.unique(murmur3(candidates) % partitions, return_index=True)
    assert len(found) == partitions, "every partition must have a number"
    return [int(name) for name in candidates[firsts]]


def murmur3(values: np.ndarray) -> np.ndarray:
    """Spark's hash of 32-bit integers: murmur3_x86_32 with seed 42, as signed integers."""
    with np.errstate(over="ignore"):
        mixed = values.astype(np.uint32) * np.uint32(0xCC9E2D51)
        mixed = _rotate_left(mixed, 15) * np.uint32(0x1B873593)
        state = _rotate_left(np.uint32(SPARK_SEED) ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= np.uint32(4)  # the length of the value in bytes
        state ^= state >> np.uint32(16)
        state *= np.uint32(0x85EBCA6B)
        state ^= state >> np.uint32(13)
        state *= np.uint32(0xC2B2AE35)
        state ^= state >> np.uint32(16)
    return state.astype(np.int32).astype(np.int64)


def _rotate_left(values: np.ndarray, bits: int) -> np.ndarray:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
