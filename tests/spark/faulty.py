"""The stream that fault tests run: three queries over events out of order, in many small micro-batches."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import ouzel
import ouzel.spark
from tests.spark.streams import FileStream
from tests.spark.test_batch import ANYWHERE, LONELY, PAIR, as_set, random_events

QUERIES = {"lonely": LONELY, "pair": PAIR, "anywhere": ANYWHERE}
BATCH_ROWS = 25


def step(frame: DataFrame) -> DataFrame:
    return ouzel.spark.match(frame, QUERIES, max_delay=9)


def prepare(spark: SparkSession, folder: Path, *, seed: int, batches: int) -> tuple[FileStream, pa.Table]:
    """All micro-batches of the stream, as files, and the events in them."""
    events = random_events(seed=seed, rows=batches * BATCH_ROWS)
    ticks = events["ts"].to_pylist()
    arrived = events.take(sorted(range(events.num_rows), key=lambda row: ticks[row] + row % 10))
    end = pa.table({"type": ["Z"], "ts": [10**6], "id": [0], "x": [0.0], "row": [-1]}).cast(events.schema)
    stream = FileStream(spark, folder, events.schema)
    stream.add([*(arrived.slice(first, BATCH_ROWS) for first in range(0, events.num_rows, BATCH_ROWS)), end])
    return stream, events


def check(stream: FileStream, events: pa.Table) -> None:
    """What is in the sink, read through Spark, is the batch answer."""
    found = stream.answers()
    for name, table in ouzel.match(events, QUERIES).items():
        rows = [row[name] for row in found if row["query"] == name]
        assert sorted(map(repr, rows)) == as_set(table) != [], name
