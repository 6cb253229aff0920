"""Compressed answers listed on Spark: by workers, the first few, a sample, from stored rows and composed queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = "PATTERN SEQ(A+ a[], B b) WHERE [k] WITHIN 20 OUTPUT {} RETURN R(a.x AS a, b.x AS b)"
EVENTS = pa.table(
    {
        "type": ["A", "A", "A", "B", "A", "B", "A", "B"],
        "ts": pa.array(range(8), pa.timestamp("us", "UTC")),
        "k": [1, 1, 1, 1, 1, 1, 2, 2],
        "x": range(8),
    }
)


def written(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_frames_of_compressed_rows_are_listed(spark: SparkSession, tmp_path: Path) -> None:
    text = TEXT.format("COMPRESSED").replace("20", "20 us")
    everything = written(ouzel.match(EVENTS, TEXT.format("ALL").replace("20", "20 us")))
    rows = ouzel.spark.match(spark.createDataFrame(EVENTS), text)
    rows.write.parquet(str(tmp_path / "rows"))
    stored = spark.read.parquet(str(tmp_path / "rows"))
    assert written(ouzel.spark.expand(stored, text).toArrow()) == everything
    # The same rows embedded: from the frame, and from Spark's files.
    assert written(ouzel.expand(stored, text)) == everything
    # Spark's files give moments without their zone.
    names = ["a", "b"]
    read_back = ouzel.expand(str(tmp_path / "rows"), text)
    assert written(read_back.select(names)) == written(ouzel.expand(stored, text).select(names))
    first = written(ouzel.spark.expand(stored, text, first=7).toArrow())
    assert first == written(ouzel.expand(ouzel.match(EVENTS, text), text, first=7))
    drawn = written(ouzel.spark.expand(stored, text, sample=5, seed=3).toArrow())
    assert len(set(drawn)) == 5 and set(drawn) <= set(everything)
    with pytest.raises(ouzel.InputError, match="no column 'graph'"):
        ouzel.spark.expand(stored.drop("graph"), text)


def test_composed_queries_are_listed_with_the_schema_of_their_input(spark: SparkSession) -> None:
    script = (
        "pairs: PATTERN SEQ(A a, B b) WHERE skip_till_next_match {{ [k] }} WITHIN 9 us RETURN Pair(a.x AS n) "
        "INTO pairs; sets: PATTERN SEQ(Pair+ p[], B q) WITHIN 50 us OUTPUT {} FROM pairs, input;"
    )
    queries = ouzel.queries(script.format("COMPRESSED"))
    frame = spark.createDataFrame(EVENTS)
    rows = ouzel.spark.match(frame, queries)["sets"]
    found = ouzel.spark.expand(rows, queries, schema=frame)
    expected = ouzel.match(EVENTS, ouzel.queries(script.format("ALL")))["sets"]
    assert expected.num_rows > 2 and written(found.toArrow()) == written(expected)
