"""Bounded DataFrames as users may have them: odd names, odd values, views, caches, and plans that Spark changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.errors import InputError, QueryError
from ouzel.spark.schema import spark_schema
from tests.spark.test_batch import as_set, frame, random_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAIR = "PATTERN SEQ(A a, B b) WHERE [{key}] WITHIN 9 RETURN P(a.row AS first, b.row AS second)"


@contextmanager
def setting(spark: SparkSession, name: str, value: object) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, str(value).lower() if isinstance(value, bool) else str(value))
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("partitions", [1, 37])
def test_many_partitions_with_and_without_adaptive_plans(spark: SparkSession, adaptive: bool, partitions: int) -> None:
    events = random_events(seed=11)
    query = PAIR.format(key="id")
    with (
        setting(spark, "spark.sql.adaptive.enabled", adaptive),
        setting(spark, "spark.sql.shuffle.partitions", partitions),
    ):
        for hint in (None, 50):
            found = ouzel.spark.match(frame(spark, events, partitions), query, slices=hint)
            assert as_set(found) == as_set(ouzel.match(events, query)) != []


def test_columns_with_dots_spaces_and_backticks(spark: SparkSession) -> None:
    events = random_events(seed=12, rows=100)
    renamed = {"type": "kind of", "ts": "at.time", "x": "odd`name", "id": "id", "row": "row"}
    odd = events.rename_columns([renamed[name] for name in events.column_names])
    query = PAIR.format(key="id")
    columns = {"time": "at.time", "type": "kind of"}
    for hint in (None, 50):
        found = ouzel.spark.match(frame(spark, odd), query, slices=hint, memory_limit=4_096, **columns)
        assert as_set(found) == as_set(ouzel.match(odd, query, **columns)) != []


def test_names_that_differ_in_case_only(spark: SparkSession) -> None:
    events = random_events(seed=13, rows=200)
    both = events.append_column("ID", events["row"])
    query = PAIR.format(key="id")
    with setting(spark, "spark.sql.caseSensitive", True):
        assert as_set(ouzel.spark.match(frame(spark, both), query)) == as_set(ouzel.match(both, query)) != []
    source = frame(spark, events)
    twice = source.select("*", source["row"].alias("ID"))
    with pytest.raises(InputError, match="'id' and 'ID'"):
        ouzel.spark.match(twice, query)


def test_a_name_and_a_length_that_could_be_taken_for_others(spark: SparkSession) -> None:
    source = frame(spark, random_events(seed=13, rows=20))
    with pytest.raises(InputError, match="'ouzel part' is reserved"):
        ouzel.spark.match(source.withColumnRenamed("x", "ouzel part"), "PATTERN SEQ(A a, B b) WITHIN 5")
    with pytest.raises(InputError, match="slices= is 1 ticks, but"):
        ouzel.spark.match(source, "PATTERN SEQ(A a, B b) WITHIN 5", slices=1)


def test_two_columns_of_one_name(spark: SparkSession) -> None:
    source = frame(spark, random_events(seed=13, rows=200))
    with pytest.raises(InputError, match="'x'"):
        ouzel.spark.match(source.select("*", "x"), PAIR.format(key="id"))


def test_null_keys_join_nothing(spark: SparkSession) -> None:
    rows = [("A", 1, None, 1), ("B", 2, None, 2), ("A", 3, 7, 3), ("B", 4, 7, 4)]
    events = spark.createDataFrame(rows, "type string, ts long, id long, row long")
    assert [tuple(row)[2:] for row in ouzel.spark.match(events, PAIR.format(key="id")).collect()] == [(3, 4)]


def test_equal_times_in_several_partitions(spark: SparkSession) -> None:
    rng = random.Random(14)
    events = pa.table(
        {
            "type": rng.choices("AB", k=120),
            "ts": pa.array([rng.randrange(12) for _ in range(120)], pa.int64()),
            "id": pa.array(rng.choices([1, 2], k=120), pa.int64()),
            "row": pa.array(range(120), pa.int64()),
        }
    )
    first = PAIR.format(key="id").replace("RETURN", "OUTPUT FIRST RETURN")
    for query in (PAIR.format(key="id"), first):
        expected = as_set(ouzel.match(events, query))
        for partitions in (1, 7):
            assert as_set(ouzel.spark.match(frame(spark, events, partitions), query)) == expected != []


def test_decimals_structs_lists_and_times_without_a_zone(spark: SparkSession) -> None:
    start = datetime(2024, 3, 31, 1, 30)  # an hour that many zones do not have
    kinds = ["A", "B", "A", "B"]
    events = pa.table(
        {
            "type": kinds,
            "ts": pa.array([start + timedelta(minutes=20 * n) for n in range(4)], pa.timestamp("us")),
            "price": pa.array(
                [Decimal("1.10"), Decimal("1.20"), Decimal("9.99"), Decimal("0.01")], pa.decimal128(9, 2)
            ),
            "at": pa.array([{"room": {"id": n % 2}, "tags": ["x", None]} for n in (0, 2, 1, 3)]),
        }
    )
    query = "PATTERN SEQ(A a, B b) WHERE [at.room.id] AND a.price < b.price WITHIN 1 hour"
    with setting(spark, "spark.sql.session.timeZone", "Europe/Berlin"):
        for hint in (None, "2 hours"):
            found = ouzel.spark.match(frame(spark, events), query, slices=hint).toArrow()
            assert as_set(found) == as_set(ouzel.match(events, query)) != []


def test_views_and_caches(spark: SparkSession) -> None:
    events = random_events(seed=15, rows=100)
    query = PAIR.format(key="id")
    expected = as_set(ouzel.match(events, query))
    frame(spark, events).createOrReplaceTempView("odd_events")
    assert as_set(ouzel.spark.match(spark.table("odd_events"), query)) == expected
    kept = spark.sql("SELECT *, x + 1 AS y FROM odd_events WHERE ts >= 0").cache()
    try:
        found = ouzel.spark.match(kept, query).cache()
        assert as_set(found) == as_set(found) == expected
        assert found.where("first < 50").count() == sum(row["first"] < 50 for row in found.collect())
        found.unpersist()
    finally:
        kept.unpersist()
        spark.catalog.dropTempView("odd_events")


def test_matches_are_joined_with_what_they_came_from(spark: SparkSession) -> None:
    events = random_events(seed=16, rows=100)
    query = PAIR.format(key="id")
    source = frame(spark, events)
    found = ouzel.spark.match(source, query)
    joined = found.join(source, found["first"] == source["row"])
    assert joined.count() == ouzel.match(events, query).num_rows > 0
    doubled = found.union(ouzel.spark.match(source, query, slices=50))
    assert doubled.count() == 2 * joined.count()


@pytest.mark.parametrize("hint", [None, 50])
def test_nothing_to_search(spark: SparkSession, hint: int | None) -> None:
    schema = spark_schema(random_events(seed=1).schema)
    for source in (spark.createDataFrame([], schema), spark.range(0).selectExpr("'A' type", "id ts", "id", "id row")):
        found = ouzel.spark.match(source, PAIR.format(key="id"), slices=hint)
        assert found.columns == ["start", "end", "first", "second"]
        assert found.collect() == []
    with pytest.raises(QueryError, match="nothing"):
        ouzel.spark.match(source, PAIR.format(key="nothing"))


@pytest.mark.parametrize("limit", [0, 1.5, "1 GB"])
def test_a_memory_limit_that_is_no_number_of_bytes(spark: SparkSession, limit: Any) -> None:
    source = frame(spark, random_events(seed=17, rows=9))
    with pytest.raises(InputError, match="is not a number of bytes; write it like"):
        ouzel.spark.match(source, PAIR.format(key="id"), memory_limit=limit)
