"""Queries over streaming DataFrames: pack the rows of each bucket, step its session, unpack the matches.

Buckets have names that Spark's hash distributes evenly over its partitions.
"""

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
from ouzel.spark.compatibility import CheckpointSignature, digest_of
from ouzel.spark.input import WATERMARK_COLUMN, Events, Watermark, check_names, key_column
from ouzel.spark.launch import ROCKSDB, STATE_STORE
from ouzel.spark.partitioning import KeyPath, QueryGroupPlan
from ouzel.spark.payloads import PACKED, PACKED_NUMBER, PACKED_PAYLOAD
from ouzel.spark.pushdown import pushed_filters
from ouzel.spark.query_group import FIRST_PROBLEM
from ouzel.spark.schema import PROBLEM, quoted, spark_schema, with_extra_columns
from ouzel.spark.tasks import WorkerFunction, bucket_processor, in_arrow, on_workers, totals_processor
from ouzel.spark.totals import TotalsJob
from ouzel.spark.worker import LATE_COLUMN, STEPPED, STEPPED_REPORT, pack, unpack, unpack_all, unpack_wide

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


# In a stream of several queries, the name of the query of a row.
QUERY_COLUMN = "query"
# What `Listener` looks for among the metrics that Spark observes.
OBSERVED = "ouzel"
# The first version known to fire a timer in the micro-batch whose watermark equals it.
SPARK_WITH_EXACT_TIMERS = (4, 3)
# The key of the second step: the number of the query whose total a row belongs to.
TOTAL_OF = "total_of"


def match_stream(
    events: Events,
    groups: Sequence[QueryGroupPlan],
    several: bool,
    watermark: Watermark,
    *,
    buckets: int | None = None,
    late: bool = False,
) -> DataFrame:
    """Pack the rows of each bucket, step its session, unpack the matches."""
    require_state_store(events.frame)
    if buckets is not None and (not isinstance(buckets, int) or not 1 <= buckets * len(groups) <= DIVISIBLE):
        most = DIVISIBLE // len(groups)
        raise InputError(f"buckets={buckets!r} is not a number of buckets; these queries have between 1 and {most:,}")
    per_group = _buckets_of_group(events.frame, buckets)
    job = StreamJob(
        groups=tuple(plan.group for plan in groups),
        buckets=per_group,
        names=tuple(bucket_names(per_group * len(groups))),
        signature=CheckpointSignature(
            per_group, watermark.delays_ms, tuple(plan.group.program for plan in groups)
        ).dump(),
        late=late,
        totals=tuple(
            TotalsJob(dump(plan.totals), plan.group.first_query, None, 1, plan.group.reports)
            for plan in groups
            if plan.totals is not None
        ),
    )
    columns = _columns(groups)
    bucket_columns = _bucket_columns(groups)
    # The filters read the watermark column. Otherwise Spark would filter before it moves the watermark, and events that
    # fit no component would not move time.
    rows = events.frame
    for condition in pushed_filters(_all_plans(groups), events.layout, watermark.column):
        rows = rows.where(condition)
    placed = rows.select(
        *(quoted(column) for column in columns),
        *(
            _bucket(plan.keys, per_group).alias(bucket_column)
            for plan, bucket_column in zip(groups, bucket_columns, strict=True)
        ),
    )
    packed = in_arrow(placed, PACKED, pack, replace(job, signature=b""), bucket_columns)
    stepped = packed.groupBy(PACKED_NUMBER).transformWithState(
        statefulProcessor=bucket_processor(job), outputStructType=STEPPED, outputMode="append", timeMode="eventTime"
    )
    if job.totals:
        stepped = _merged(stepped, job)
    reports = F.to_json(F.collect_list(STEPPED_REPORT))
    # Two streams of matches may be joined in one query, so each has a name of its own.
    observed = stepped.observe(f"{OBSERVED} {digest_of(job.signature)[:8]}", reports.alias("reports"))
    payloads = observed.select(PACKED_NUMBER, PACKED_PAYLOAD)
    outputs = {name: schema for plan in groups for name, schema in plan.outputs.items()}
    others = [pa.field(LATE_COLUMN, _late_type(events, columns))] if late else []
    others += [PROBLEM] if any(plan.group.reports for plan in groups) else []
    if several:
        structs = [pa.field(name, pa.struct(list(schema))) for name, schema in outputs.items()]
        return _unpacked(payloads, pa.schema([pa.field(QUERY_COLUMN, pa.string()), *structs, *others]), unpack_all)
    (schema,) = outputs.values()
    if others:
        return _unpacked(payloads, with_extra_columns(schema, others), unpack_wide, 0)
    return payloads.mapInArrow(on_workers(unpack, 0), spark_schema(schema))


def require_state_store(frame: DataFrame) -> None:
    """Refuse a session whose streams use another state store."""
    if frame.sparkSession.conf.get(STATE_STORE, None) != ROCKSDB:
        raise InputError(
            "a stream needs Spark's RocksDB state store; start Spark with ouzel.spark.session(), or set "
            f'spark.conf.set("{STATE_STORE}", "{ROCKSDB}")'
        )


def can_merge_totals(frame: DataFrame, buckets: int | None) -> bool:
    """Whether a total over all keys can be merged from the partial results of several buckets.

    Every bucket must emit, in one micro-batch, everything up to the watermark. Older versions of Spark fire a timer
    only when the watermark has passed it. With one bucket, a second step would only cost time.
    """
    version = tuple(int(part) for part in frame.sparkSession.version.split(".")[:2])
    return version >= SPARK_WITH_EXACT_TIMERS and _buckets_of_group(frame, buckets) != 1


def _buckets_of_group(frame: DataFrame, asked_for: int | None) -> int:
    """The number of buckets for the state of each group."""
    return asked_for or int(str(frame.sparkSession.conf.get("spark.sql.shuffle.partitions")))


def check_stream_names(events: Events, groups: Sequence[QueryGroupPlan]) -> None:
    """Refuse columns whose names Spark or Ouzel would confuse with others."""
    check_names(events.frame, _columns(groups), own=[WATERMARK_COLUMN, *_bucket_columns(groups)])


def _columns(groups: Sequence[QueryGroupPlan]) -> list[str]:
    return list(dict.fromkeys(column for plan in groups for column in plan.columns))


def _bucket_columns(groups: Sequence[QueryGroupPlan]) -> list[str]:
    return [f"ouzel bucket {number}" for number in range(len(groups))]


def _merged(stepped: DataFrame, job: StreamJob) -> DataFrame:
    """Totals over all keys, merged from the partial results of a micro-batch; all other rows as they are."""
    totals = job.totals_by_query
    # Rows that are passed on stay in their partitions; their keys hold no state.
    number, passed_on = F.col(PACKED_NUMBER), -1 - F.spark_partition_id()
    problem_of = number - FIRST_PROBLEM
    total_of = F.when(number.isin(*totals), number).when(problem_of.isin(*totals), problem_of)
    placed = stepped.select(total_of.otherwise(passed_on).alias(TOTAL_OF), *stepped.columns)
    return placed.groupBy(TOTAL_OF).transformWithState(
        statefulProcessor=totals_processor(totals), outputStructType=STEPPED, outputMode="append", timeMode="none"
    )


def _unpacked(payloads: DataFrame, schema: pa.Schema, function: WorkerFunction, *arguments: int) -> DataFrame:
    unpack_rows = on_workers(function, *arguments, schema.serialize().to_pybytes())
    return payloads.mapInArrow(unpack_rows, spark_schema(schema))


def _late_type(events: Events, columns: Iterable[str]) -> pa.StructType:
    """Late events have the columns that some query reads; the others were not sent."""
    return pa.struct([events.layout.schema.field(column).with_nullable(True) for column in columns])


def _bucket(keys: Sequence[KeyPath], buckets: int) -> Column:
    # Spark's hash is the same in all versions, because bucketed tables depend on it. The place of our state does too.
    return F.pmod(F.hash(*map(key_column, keys)), F.lit(buckets)).cast("int") if keys else F.lit(0)


def _all_plans(groups: Sequence[QueryGroupPlan]) -> list[Plan] | None:
    found: list[Plan] = []
    for plan in groups:
        if plan.plans is None:
            return None
        found += plan.plans
    return found
