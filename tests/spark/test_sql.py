"""Ouzel from SQL, and the sources that events come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import ouzel
import ouzel.spark
from ouzel.datasets import shop_day
from ouzel.errors import InputError, QueryError
from ouzel.spark.schema import spark_schema
from tests.spark.test_batch import as_set, random_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIR = "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.x < b.x WITHIN 20 RETURN Pair(a.id AS id, b.x - a.x AS gain)"
STRUCTS = "PATTERN SEQ(A a, B b) WITHIN 3"
THEFT = "PATTERN SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id] WITHIN 12 hours RETURN Theft(x.tag_id AS tag)"


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
    with pytest.raises(QueryError, match="idd") as raised, ouzel.spark.clear_errors():
        spark.sql("SELECT * FROM ouzel_match(TABLE(readings), 'PATTERN SEQ(A a, B b) WHERE [idd] WITHIN 5')")
    assert "Traceback" not in str(raised.value)
    with pytest.raises(InputError, match="the first argument is a table"), ouzel.spark.clear_errors():
        spark.sql(f"SELECT * FROM ouzel_match(1, '{PAIR}')")


# ── Sources ────────────────────────────────────────────────────────────────────────────────────────


def test_files_and_tables(spark: SparkSession, tmp_path: Path) -> None:
    table = random_events(seed=8, rows=120)
    expected = as_set(ouzel.match(table, PAIR))
    schema = spark_schema(table.schema)
    pq.write_table(table, tmp_path / "events.parquet")
    csv.write_csv(table, tmp_path / "events.csv")
    frame = spark.read.parquet(str(tmp_path / "events.parquet"))
    frame.write.json(str(tmp_path / "json"))
    spark.sql(
        f"CREATE TABLE ouzel_events USING parquet LOCATION '{tmp_path / 'catalog'}' AS SELECT * FROM {{df}}", df=frame
    )
    sources: dict[str, DataFrame] = {
        "Parquet": frame,
        "JSON": spark.read.schema(schema).json(str(tmp_path / "json")),
        "CSV": spark.read.schema(schema).csv(str(tmp_path / "events.csv"), header=True),
        "catalog": spark.table("ouzel_events"),
    }
    try:
        for name, source in sources.items():
            assert as_set(ouzel.spark.match(source, PAIR)) == expected != [], name
    finally:
        spark.sql("DROP TABLE ouzel_events")


def test_days_in_a_shop_as_a_data_source(spark: SparkSession) -> None:
    ouzel.spark.register(spark)
    options = {"days": "2", "events": "2000", "seed": "5"}
    thefts = {
        tag
        for number in range(2)
        for tag in shop_day(2_000, seed=5 + number, date=f"2024-05-0{1 + number}").thefts["tag_id"].to_pylist()
    }
    batch = spark.read.format("ouzel.rfid").options(**options).load()
    assert batch.count() == 4_000
    assert {row.tag for row in ouzel.spark.match(batch, THEFT).collect()} == thefts
    with pytest.raises(Exception, match=r"the option days of ouzel\.rfid is a number, not 'two'"):
        spark.read.format("ouzel.rfid").option("days", "two").load().count()
