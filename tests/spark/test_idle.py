"""Streams whose sources are idle: the clock moves time, if it is asked to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.errors import InputError
from tests.spark.streams import FileStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LONELY = "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 1 s RETURN L(a.id AS id)"
# Every event counts as a position here, so a heartbeat must not.
NEXT = "PATTERN SEQ(A a, A b) WHERE strict_contiguity(a, b) { } WITHIN 1 hour RETURN N(a.id AS a, b.id AS b)"
SECONDS_MAX = 120


def events(ages: dict[int, int]) -> pa.Table:
    """One of type A for each id, so many seconds old."""
    now_us = time.time_ns() // 1_000
    times = pa.array([now_us - age * 1_000_000 for age in ages.values()], pa.timestamp("us", "UTC"))
    return pa.table({"type": ["A"] * len(ages), "ts": times, "id": list(ages)})


def test_answers_come_without_further_events(spark: SparkSession, tmp_path: Path) -> None:
    table = events({1: 3_600, 2: 1_200})
    stream = FileStream(spark, tmp_path, table.schema)
    stream.add([table])
    options: dict[str, Any] = {"max_delay": "1 min", "idle_timeout": "10 min", "late": True}
    found = ouzel.spark.match(stream.events(), {"lonely": LONELY, "next": NEXT}, **options)
    writer = found.writeStream.format("memory").queryName("idle").trigger(processingTime="1 second")
    query = writer.option("checkpointLocation", str(stream.checkpoint)).start()
    try:
        until = time.monotonic() + SECONDS_MAX
        while (count := spark.table("idle").count()) < 3 and time.monotonic() < until and query.isActive:
            time.sleep(0.5)
        assert count == 3, query.exception()
        # Older than both delays together: late for both queries.
        stream.add([events({3: 900})])
        while (count := spark.table("idle").count()) < 5 and time.monotonic() < until and query.isActive:
            time.sleep(0.5)
    finally:
        query.stop()
    rows = spark.table("idle").collect()
    assert sorted(row["lonely"]["id"] for row in rows if row["lonely"] is not None) == [1, 2]
    assert [tuple(row["next"])[2:] for row in rows if row["next"] is not None] == [(1, 2)]
    assert sorted((row["query"], row["late"]["id"]) for row in rows if row["late"] is not None) == [
        ("lonely", 3),
        ("next", 3),
    ]


def test_an_idle_timeout_that_cannot_be_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = FileStream(spark, tmp_path, events({1: 1}).schema)
    with pytest.raises(InputError, match="idle_timeout= needs max_delay="):
        ouzel.spark.match(source.events().withWatermark("ts", "1 minute"), LONELY, idle_timeout="1 min")
    with pytest.raises(InputError, match="the time column 'id' must be a timestamp"):
        counted = LONELY.replace("WHERE [id] ", "").replace("1 s", "5")
        ouzel.spark.match(source.events(), counted, time="id", max_delay=0, idle_timeout="1 min")
    with pytest.raises(InputError, match="idle_timeout= is for streams"):
        ouzel.spark.match(spark.range(1).selectExpr("'A' type", "now() ts", "id"), LONELY, idle_timeout="1 min")
