"""Aggregates over all keys in batches on Spark: counted by key, added up in order of time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from benchmarks.aggregate_spark import spark_sql
from benchmarks.aggregate_streams import query_text, table_of
from ouzel.spark.schema import spark_schema
from tests.generate.cases import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUERIES = {
    "count": "PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT HAVING COUNT > 2 WITHIN 9",
    "extremes": "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AGG MIN(a.x), MAX(b.x), AVG(a.x), SUM(b.f) WITHIN 12",
    "changes": "PATTERN SEQ(A a, B b) WHERE a.id = b.id AGG COUNT, SUM(b.x) AS s WITHIN 6 EMIT ON CHANGE",
    "groups": "PATTERN SEQ(A a, B b) WHERE [id] GROUP BY b.x AGG COUNT, MAX(a.f) WITHIN 20",
    "forever": "PATTERN SEQ(A a, C c) WHERE [id] AGG COUNT, SUM(a.x)",
    # Beside them one that is spread by its groups, and one that no key spreads.
    "by key": "PATTERN SEQ(A a, B b) GROUP BY id AGG COUNT WITHIN 9",
    "anywhere": "PATTERN SEQ(A a, C c) AGG COUNT WITHIN 5 EMIT ON CHANGE",
}


def random_events(rows: int, seed: int = 5) -> pa.Table:
    rng = random.Random(seed)
    ts, made = 0, []
    for _ in range(rows):
        ts += rng.choice((0, 1, 1, 2))
        values = {"id": rng.randrange(7), "x": rng.randint(-3, 3), "f": rng.choice((0.5, 1.0, 2.25, None))}
        made.append({"type": rng.choice("AAABBC"), "ts": ts, **values})
    fields = {"type": pa.string(), "ts": pa.int64(), "id": pa.int64(), "x": pa.int64(), "f": pa.float64()}
    return pa.Table.from_pylist(made, schema=pa.schema(fields))


def test_batches(spark: SparkSession) -> None:
    events = random_events(300)
    frame = spark.createDataFrame(events, spark_schema(events.schema)).repartition(3)
    spark.conf.set("spark.sql.shuffle.partitions", 3)
    expected = ouzel.match(events, QUERIES)
    with ouzel.spark.match(frame, QUERIES) as found:
        for name, table in expected.items():
            assert counted(found[name].toArrow().to_pylist()) == counted(table.to_pylist()) != {}, name
    for options in ({}, {"slices": True}, {"memory_limit": 1}):
        alone = ouzel.spark.match(frame, QUERIES["extremes"], **options).toArrow()
        assert counted(alone.to_pylist()) == counted(expected["extremes"].to_pylist()), options
    told = ouzel.spark.explain(frame, QUERIES)
    assert "merged in order of time, in buckets of 200 ticks by 3 tasks" in told
    assert "merged in order of time, by one task since there is no window" in told
    assert "anywhere: cut into time slices of 50 ticks, look-ahead 0, look-behind 5" in told


def test_spark_sql_counts_the_same_in_the_benchmark(spark: SparkSession) -> None:
    table = table_of(6_000, 5)
    table = table.set_column(0, "type", table["type"].cast("string"))
    frame = spark.createDataFrame(table, spark_schema(table.schema))
    found = spark_sql(700)(frame).toArrow()
    assert counted(found.to_pylist()) == counted(ouzel.match(table, query_text(4, 700)).to_pylist()) != {}
