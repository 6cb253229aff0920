"""The sources that events come from: files and tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import ouzel
import ouzel.spark
from ouzel.spark.schema import spark_schema
from tests.spark.test_batch import as_set, random_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIR = "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.x < b.x WITHIN 20 RETURN Pair(a.id AS id, b.x - a.x AS gain)"


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
