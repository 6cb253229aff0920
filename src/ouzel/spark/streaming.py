"""Queries over streaming DataFrames: pack the rows of each bucket, step its session, unpack the matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ouzel.errors import InputError
from ouzel.plan.model import Plan
from ouzel.runtime.program import dump
from ouzel.spark.bucket import StreamJob
from ouzel.spark.compatibility import Terms
from ouzel.spark.input import WATERMARK_COLUMN, Events, Watermark, check_names, key_column
from ouzel.spark.launch import ROCKSDB, STATE_STORE
from ouzel.spark.partitioning import KeyPath, SharePlan
from ouzel.spark.payloads import PACKED, PACKED_NUMBER, PACKED_PAYLOAD
from ouzel.spark.pushdown import pushed_filters
from ouzel.spark.schema import PROBLEM, beside_others, quoted, spark_schema
from ouzel.spark.tasks import FIRST_PROBLEM, TotalsJob, adding_processor, bucket_processor, in_arrow, on_workers
from ouzel.spark.worker import LATE_COLUMN, STEPPED, STEPPED_REPORT

DIVISIBLE = 9_600  # by 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 25, 30, 32, … 200
SPARK_SEED = 42


def bucket_names(count: int) -> list[int]:
    """The names of buckets 0 … count - 1.

    >>> [int(murmur3(np.array([name], np.int32))[0]) % 4 for name in bucket_names(8)]
    [0, 1, 2, 3, 0, 1, 2, 3]
    """
    if not 1 <= count <= DIVISIBLE:
        raise ValueError(f"a stream has between 1 and {DIVISIBLE:,} buckets, not {count:,}")
    return _names()[:count]


@cache
def _names() -> list[int]:
    candidates = np.arange(20 * DIVISIBLE, dtype=np.int32)
    residues = murmur3(candidates) % DIVISIBLE
    _, first_with_residue = np.unique(residues, return_index=True)
    assert len(first_with_residue) == DIVISIBLE, "every residue must have a name"
    return [int(name) for name in candidates[first_with_residue]]


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


# What `Listener` looks for among the metrics that Spark observes.
OBSERVED = "ouzel"
# The first version known to fire a timer in the micro-batch whose watermark just reaches it.
SPARK_WITH_EXACT_TIMERS = (4, 3)
# Who adds up what a row tells.
ADDER = "adder"


def match_stream(
    events: Events,
    shares: Sequence[SharePlan],
    several: bool,
    watermark: Watermark,
    *,
    buckets: int | None = None,
    late: bool = False,
) -> DataFrame:
    """Pack the rows of each bucket, step its session, unpack the matches."""
    require_state_store(events.frame)
    if buckets is not None and (not isinstance(buckets, int) or not 1 <= buckets * len(shares) <= DIVISIBLE):
        most = DIVISIBLE // len(shares)
        raise InputError(f"buckets={buckets!r} is not a number of buckets; these queries have between 1 and {most:,}")
    per_share = _buckets_of_share(events.frame, buckets)
    job = StreamJob(
        shares=tuple(part.share for part in shares),
        buckets=per_share,
        names=tuple(bucket_names(per_share * len(shares))),
        terms=Terms(per_share, watermark.delays_ms, tuple(part.share.program for part in shares)).dump(),
        late=late,
        totals=tuple(
            TotalsJob(dump(part.totals), part.share.first_query, None, 1, part.share.reports)
            for part in shares
            if part.totals is not None
        ),
    )
    columns = _columns(shares)
    bucket_columns = _bucket_columns(shares)
    # The watermark column takes part in the test, or Spark would test before it moves the watermark, and events that no
    # pattern wants would no longer move time.
    rows = events.frame
    for condition in pushed_filters(_all_plans(shares), events.layout, watermark.column):
        rows = rows.where(condition)
    placed = rows.select(
        *(quoted(column) for column in columns),
        *(
            _bucket(part.keys, per_share).alias(bucket_column)
            for part, bucket_column in zip(shares, bucket_columns, strict=True)
        ),
    )
    packed = in_arrow(placed, PACKED, "pack", replace(job, terms=b""), bucket_columns)
    stepped = packed.groupBy(PACKED_NUMBER).transformWithState(
        statefulProcessor=bucket_processor(job), outputStructType=STEPPED, outputMode="append", timeMode="eventTime"
    )
    if job.totals:
        stepped = _added_up(stepped, job)
    reports = F.to_json(F.collect_list(STEPPED_REPORT))
    # Two streams of matches may be joined in one query, so each has a name of its own.
    observed = stepped.observe(f"{OBSERVED} {job.digest[:8]}", reports.alias("reports"))
    payloads = observed.select(PACKED_NUMBER, PACKED_PAYLOAD)
    outputs = {name: schema for part in shares for name, schema in part.outputs.items()}
    others = [pa.field(LATE_COLUMN, _late_type(events, columns))] if late else []
    others += [PROBLEM] if any(part.share.reports for part in shares) else []
    if several:
        structs = [pa.field(name, pa.struct(list(schema))) for name, schema in outputs.items()]
        return _unpacked(payloads, pa.schema([pa.field("query", pa.string()), *structs, *others]), "unpack_all")
    (schema,) = outputs.values()
    if others:
        return _unpacked(payloads, beside_others(schema, others), "unpack_beside", 0)
    return payloads.mapInArrow(on_workers("unpack", 0), spark_schema(schema))


def require_state_store(frame: DataFrame) -> None:
    """Refuse a session whose streams keep their state elsewhere."""
    if frame.sparkSession.conf.get(STATE_STORE, None) != ROCKSDB:
        raise InputError(
            "a stream needs Spark's RocksDB state store; start Spark with ouzel.spark.session(), or set "
            f'spark.conf.set("{STATE_STORE}", "{ROCKSDB}")'
        )


def can_spread_totals(frame: DataFrame, buckets: int | None) -> bool:
    """Whether a total over all keys may be added up from several buckets.

    That needs every bucket to tell in one micro-batch all that the watermark has reached. Older versions of Spark fire
    a timer only when the watermark has passed it. To spread over one bucket would only cost a second step.
    """
    version = tuple(int(part) for part in frame.sparkSession.version.split(".")[:2])
    return version >= SPARK_WITH_EXACT_TIMERS and _buckets_of_share(frame, buckets) != 1


def _buckets_of_share(frame: DataFrame, asked_for: int | None) -> int:
    """In how many buckets the state of each share is kept."""
    return asked_for or int(str(frame.sparkSession.conf.get("spark.sql.shuffle.partitions")))


def check_stream_names(events: Events, shares: Sequence[SharePlan]) -> None:
    """Refuse columns whose names Spark, or Ouzel, could not tell from others."""
    check_names(events.frame, _columns(shares), own=[WATERMARK_COLUMN, *_bucket_columns(shares)])


def _columns(shares: Sequence[SharePlan]) -> list[str]:
    return list(dict.fromkeys(column for part in shares for column in part.columns))


def _bucket_columns(shares: Sequence[SharePlan]) -> list[str]:
    return [f"ouzel bucket {number}" for number in range(len(shares))]


def _added_up(stepped: DataFrame, job: StreamJob) -> DataFrame:
    """Totals over all keys, out of what the buckets of this micro-batch tell; all other rows as they are."""
    # What is passed on stays spread as it is: these keys hold no state.
    number, elsewhere = F.col(PACKED_NUMBER), -1 - F.spark_partition_id()
    problem_of = number - FIRST_PROBLEM
    adder = F.when(number.isin(*job.added_up), number).when(problem_of.isin(*job.added_up), problem_of)
    adder = adder.otherwise(elsewhere).alias(ADDER)
    placed = stepped.select(adder, *stepped.columns)
    return placed.groupBy(ADDER).transformWithState(
        statefulProcessor=adding_processor(job), outputStructType=STEPPED, outputMode="append", timeMode="none"
    )


def _unpacked(payloads: DataFrame, schema: pa.Schema, function: str, *arguments: int) -> DataFrame:
    unpack = on_workers(function, *arguments, schema.serialize().to_pybytes())
    return payloads.mapInArrow(unpack, spark_schema(schema))


def _late_type(events: Events, columns: Iterable[str]) -> pa.StructType:
    """Late events have the columns that some query reads; the others were left behind."""
    return pa.struct([events.layout.schema.field(column).with_nullable(True) for column in columns])


def _bucket(keys: Sequence[KeyPath], buckets: int) -> Column:
    # Spark's hash is the same from version to version, for bucketed tables depend on it; our state's place does too.
    return F.pmod(F.hash(*map(key_column, keys)), F.lit(buckets)).cast("int") if keys else F.lit(0)


def _all_plans(shares: Sequence[SharePlan]) -> list[Plan] | None:
    found: list[Plan] = []
    for part in shares:
        if part.plans is None:
            return None
        found += part.plans
    return found
