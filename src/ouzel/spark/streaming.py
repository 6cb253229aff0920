"""Queries over streaming DataFrames: packs the rows of each bucket, lets its session read them, and unpacks the
matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ouzel.errors import InputError
from ouzel.plan.model import Plan
from ouzel.runtime.program import dump
from ouzel.spark.bucket import StreamJob
from ouzel.spark.compatibility import CheckpointSignature, digest_of
from ouzel.spark.input import WATERMARK_COLUMN, Events, Watermark, check_names, key_column
from ouzel.spark.partitioning import KeyPath, QueryGroupPlan
from ouzel.spark.payloads import FIRST_PROBLEM, PACKED, PACKED_NUMBER, PACKED_PAYLOAD
from ouzel.spark.pushdown import pushed_filters
from ouzel.spark.schema import PROBLEM, quoted, spark_schema, with_extra_columns
from ouzel.spark.state_store import SESSION_CACHE_BYTES
from ouzel.spark.tasks import WorkerFunction, bucket_processor, in_arrow, on_workers, totals_processor
from ouzel.spark.totals import TotalsJob
from ouzel.spark.versions import DIVISIBLE, bucket_names, has_exact_timers, step_by_key
from ouzel.spark.worker import LATE_COLUMN, STEPPED, STEPPED_REPORT, pack, unpack, unpack_all, unpack_wide

# In a stream of several queries, the name of the query of a row.
QUERY_COLUMN = "query"
# What `Listener` looks for among the metrics that Spark observes.
OBSERVED = "ouzel"
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
    cache_bytes: int = SESSION_CACHE_BYTES,
) -> DataFrame:
    """The matches of queries in a stream: packs the rows of each bucket, lets its session read them, unpacks the
    matches.
    """
    if buckets is not None and (not isinstance(buckets, int) or not 1 <= buckets * len(groups) <= DIVISIBLE):
        most = DIVISIBLE // len(groups)
        raise InputError(f"buckets must be an integer from 1 to {most:,} for these queries, got {buckets!r}")
    per_group = _buckets_of_group(events.frame, buckets)
    job = StreamJob(
        groups=tuple(plan.group for plan in groups),
        buckets=per_group,
        names=tuple(bucket_names(per_group * len(groups))),
        signature=CheckpointSignature(
            per_group, watermark.delays_ms, tuple(plan.group.program for plan in groups)
        ).dump(),
        late=late,
        cache_bytes=cache_bytes,
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
    stepped = step_by_key(packed, bucket_processor(job), STEPPED, "eventTime")
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


def can_merge_totals(frame: DataFrame, buckets: int | None) -> bool:
    """Whether a total over all keys can be merged from the partial results of several buckets.

    For that, every bucket must emit all results up to the watermark in the same micro-batch, so timers must be exact.
    With one bucket, the second step is useless.
    """
    return has_exact_timers(frame.sparkSession) and _buckets_of_group(frame, buckets) != 1


def _buckets_of_group(frame: DataFrame, asked_for: int | None) -> int:
    """The number of buckets for the state of each group."""
    return asked_for or int(str(frame.sparkSession.conf.get("spark.sql.shuffle.partitions")))


def check_stream_names(events: Events, groups: Sequence[QueryGroupPlan]) -> None:
    """Raise an error for columns whose names Spark or Ouzel would confuse with others."""
    check_names(events.frame, _columns(groups), own=[WATERMARK_COLUMN, *_bucket_columns(groups)])


def _columns(groups: Sequence[QueryGroupPlan]) -> list[str]:
    return list(dict.fromkeys(column for plan in groups for column in plan.columns))


def _bucket_columns(groups: Sequence[QueryGroupPlan]) -> list[str]:
    return [f"ouzel bucket {number}" for number in range(len(groups))]


def _merged(stepped: DataFrame, job: StreamJob) -> DataFrame:
    """Totals over all keys, merged from the partial results of a micro-batch. All other rows pass unchanged."""
    totals = job.totals_by_query
    # Rows that are passed on stay in their partitions; their keys hold no state.
    number, passed_on = F.col(PACKED_NUMBER), -1 - F.spark_partition_id()
    problem_of = number - FIRST_PROBLEM
    total_of = F.when(number.isin(*totals), number).when(problem_of.isin(*totals), problem_of)
    placed = stepped.select(total_of.otherwise(passed_on).alias(TOTAL_OF), *stepped.columns)
    return step_by_key(placed, totals_processor(totals), STEPPED, "none")


def _unpacked(payloads: DataFrame, schema: pa.Schema, function: WorkerFunction, *arguments: int) -> DataFrame:
    unpack_rows = on_workers(function, *arguments, schema.serialize().to_pybytes())
    return payloads.mapInArrow(unpack_rows, spark_schema(schema))


def _late_type(events: Events, columns: Iterable[str]) -> pa.StructType:
    """The columns of late events: those that some query reads, because others were not sent."""
    return pa.struct([events.layout.schema.field(column).with_nullable(True) for column in columns])


def _bucket(keys: Sequence[KeyPath], buckets: int) -> Column:
    return F.pmod(F.hash(*map(key_column, keys)), F.lit(buckets)).cast("int") if keys else F.lit(0)


def _all_plans(groups: Sequence[QueryGroupPlan]) -> list[Plan] | None:
    found: list[Plan] = []
    for plan in groups:
        if plan.plans is None:
            return None
        found += plan.plans
    return found
