"""Columns of streams with names that Spark's own functions stumble over, and what may change on an old checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.functions import lit

import ouzel
import ouzel.spark
from tests.spark.streams import FileStream
from tests.spark.test_batch import as_set, random_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_odd_names_and_what_may_change_on_an_old_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """Columns with dots, spaces and backticks; then a column that no query uses comes along, and limits change."""
    events = random_events(seed=3, rows=60).rename_columns(["kind of", "at.time", "id", "odd`name", "row"])
    query = "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 30 RETURN L(a.row AS row)"
    names: dict[str, Any] = {"time": "at.time", "type": "kind of"}
    stream = FileStream(spark, tmp_path, events.schema)
    stream.add([events.slice(0, 30)])
    stream.run(lambda frame: ouzel.spark.match(frame, query, max_delay=400, buckets=2, **names))
    stream.add(
        [events.slice(30), pa.table([["Z"], [10**6], [0], [0.0], [-1]], events.column_names).cast(events.schema)]
    )
    changed = {"limits": {"max_buffered_events": 1_000}, **names}
    stream.run(
        lambda frame: ouzel.spark.match(frame.withColumn("new", lit(1)), query, max_delay=400, buckets=2, **changed)
    )
    assert sorted(map(repr, stream.answers())) == as_set(ouzel.match(events, query, **names)) != []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("type STRING, ts LONG, id INT, ID INT", "confuses the columns 'id' and 'ID'; rename one of"),
        ("type STRING, ts LONG, id INT, `ouzel watermark` INT", "the column name 'ouzel watermark' is reserved"),
        ("type STRING, ts LONG, id INT, `ouzel bucket 0` INT", "the column name 'ouzel bucket 0' is reserved"),
    ],
)
def test_names_that_cannot_be_told_apart(spark: SparkSession, tmp_path: Path, columns: str, message: str) -> None:
    query = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 30 RETURN L(a.id AS id)"
    events = spark.readStream.schema(columns).parquet(str(tmp_path))
    with pytest.raises(ouzel.InputError, match=message):
        ouzel.spark.match(events, query, max_delay=0)
