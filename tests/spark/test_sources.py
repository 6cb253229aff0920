"""The sources that events come from: files, tables, and the seeded generators as a data source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import ouzel
import ouzel.spark
from ouzel.datasets import shop_day
from ouzel.spark.schema import spark_schema
from tests.spark.test_batch import as_set, random_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIR = "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.x < b.x WITHIN 20 RETURN Pair(a.id AS id, b.x - a.x AS gain)"
THEFT = "PATTERN SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id] WITHIN 12 hours RETURN Theft(x.tag_id AS tag)"
OPTIONS = {"events": "2000", "seed": "5"}


def thefts_of(days: int) -> set[str]:
    found = (shop_day(2_000, seed=5 + day, date=f"2024-05-0{1 + day}").thefts["tag_id"] for day in range(days))
    return {tag for column in found for tag in column.to_pylist()}


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


def test_days_in_a_shop_as_a_batch(spark: SparkSession) -> None:
    ouzel.spark.register(spark)
    batch = spark.read.format("ouzel.rfid").options(days="2", **OPTIONS).load()
    assert batch.count() == 4_000
    assert {row.tag for row in ouzel.spark.match(batch, THEFT).collect()} == thefts_of(days=2)
    with pytest.raises(Exception, match=r"the option days of ouzel\.rfid is a number, not 'two'"):
        spark.read.format("ouzel.rfid").option("days", "two").load().count()


def test_days_in_a_shop_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    ouzel.spark.register(spark)
    days = spark.readStream.format("ouzel.rfid").options(days="3", **OPTIONS).load()
    found = ouzel.spark.match(days, THEFT, max_delay="1 min", buckets=2)
    sink = found.writeStream.format("memory").queryName("rfid_thefts")
    stream = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        stream.processAllAvailable()
    finally:
        stream.stop()
    tags = {row.tag for row in spark.table("rfid_thefts").collect()}
    # What happens in the last minute waits for the time that only a later event would bring.
    assert thefts_of(days=2) <= tags <= thefts_of(days=3)
    assert tags
