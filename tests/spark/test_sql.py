"""Ouzel from SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.errors import InputError, QueryError
from ouzel.spark.schema import spark_schema
from tests.spark.test_batch import as_set, random_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAIR = "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.x < b.x WITHIN 20 RETURN Pair(a.id AS id, b.x - a.x AS gain)"
STRUCTS = "PATTERN SEQ(A a, B b) WITHIN 3"


@pytest.fixture
def view(spark: SparkSession) -> pa.Table:
    table = random_events(seed=6, rows=200)
    spark.createDataFrame(table, spark_schema(table.schema)).createOrReplaceTempView("readings")
    ouzel.spark.register(spark)
    return table


# ── SQL ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("query", [PAIR, STRUCTS])
def test_sql_gives_the_answer_of_the_embedded_engine(spark: SparkSession, view: pa.Table, query: str) -> None:
    found = spark.sql(f"SELECT * FROM ouzel_match(TABLE(readings), '{query}')")
    assert as_set(found) == as_set(ouzel.match(view, query)) != []


def test_a_query_within_partitions_of_the_users(spark: SparkSession, view: pa.Table) -> None:
    found = spark.sql(
        "SELECT * FROM ouzel_match_within(TABLE(readings) PARTITION BY id ORDER BY (ts), "
        "'PATTERN SEQ(A a, B b) WITHIN 9 RETURN P(a.row AS a, b.row AS b)') WHERE a IS NOT NULL"
    )
    expected = ouzel.match(view, "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 9 RETURN P(a.row AS a, b.row AS b)")
    nulls = view.filter(pa.compute.is_null(view["id"]))
    without = ouzel.match(nulls, "PATTERN SEQ(A a, B b) WITHIN 9 RETURN P(a.row AS a, b.row AS b)")
    assert as_set(found) == sorted(as_set(expected) + as_set(without))


def test_moments_keep_their_instant(spark: SparkSession) -> None:
    ouzel.spark.register(spark)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        (row,) = spark.sql(
            "SELECT unix_micros(start) AS first, unix_micros(b.at) AS second FROM ouzel_match("
            "TABLE(SELECT * FROM VALUES ('A', timestamp_micros(7)), ('B', timestamp_micros(9)) AS t(kind, at)), "
            "'PATTERN SEQ(A a, B b) WITHIN 3 us', time => 'at', type => 'kind')"
        ).collect()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert (row.first, row.second) == (7, 9)


def test_mistakes_in_sql_are_one_message(spark: SparkSession, view: pa.Table) -> None:
    with pytest.raises(QueryError, match="idd") as raised, ouzel.spark.unwrap_errors():
        spark.sql("SELECT * FROM ouzel_match(TABLE(readings), 'PATTERN SEQ(A a, B b) WHERE [idd] WITHIN 5')")
    assert "Traceback" not in str(raised.value)
    with pytest.raises(InputError, match="the first argument is a table"), ouzel.spark.unwrap_errors():
        spark.sql(f"SELECT * FROM ouzel_match(1, '{PAIR}')")
