"""Queries over streaming DataFrames: pack the rows of each bucket, step its session, unpack the matches."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ouzel.errors import InputError
from ouzel.plan.model import Plan
from ouzel.spark.buckets import bucket_names
from ouzel.spark.catalyst import wanted
from ouzel.spark.events import Events, key_column
from ouzel.spark.keys import KeyPath
from ouzel.spark.launch import ROCKSDB, STATE_STORE
from ouzel.spark.schema import quoted, spark_schema
from ouzel.spark.shares import SharePlan
from ouzel.spark.shipping import bucket_processor, on_workers
from ouzel.spark.worker import PACKED, PACKED_NUMBER, StreamJob


def match_stream(
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
    # The watermark column takes part in the test, or Spark would test before it moves the watermark, and events that no
    # pattern wants would no longer move time.
    rows = events.frame
    for condition in wanted(_all_plans(shares), events.layout, watermark_column):
        rows = rows.where(condition)
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
    return F.pmod(F.hash(*map(key_column, keys)), F.lit(buckets)).cast("int") if keys else F.lit(0)


def _all_plans(shares: Sequence[SharePlan]) -> list[Plan] | None:
    found: list[Plan] = []
    for part in shares:
        if part.plans is None:
            return None
        found += part.plans
    return found
