"""Totals over all keys of a stream whose keys are spread over buckets: those of one pass over what was on time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from tests.generate.cases import counted
from tests.spark.streams import FileStream
from tests.spark.test_totals import QUERIES, random_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DELAY, BATCHES, BUCKETS = 4, 5, 3


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
def test_totals_of_a_stream_are_those_of_one_pass(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    events = random_events(200, seed).to_pylist()
    # Most come within the delay, one in ten later.
    arrival = sorted(events, key=lambda event: event["ts"] + chance.uniform(0, 60 if chance.random() < 0.1 else DELAY))
    size = -(-len(arrival) // BATCHES)
    batches = [arrival[first : first + size] for first in range(0, len(arrival), size)]
    on_time: list[dict] = []
    newest = watermark = -1
    for batch in batches:
        # Spark's watermark moves between micro-batches; it stays 1 ms, here a tick, behind what max_delay allows.
        watermark = max(watermark, newest - DELAY - 1)
        on_time += [event for event in batch if event["ts"] > watermark]
        newest = max(newest, *(event["ts"] for event in batch))
    late = len(events) - len(on_time)
    assert 0 < late < len(events) // 4
    schema = random_events(1).schema
    # Time moves on beyond every window, and then once more, so that the end of the stream is told whole.
    moves = [{"type": "Z", "ts": 10**6 + step, "id": 0, "x": 0, "f": 0.0} for step in (0, 10)]
    tables = [pa.Table.from_pylist(batch, schema=schema) for batch in [*batches, *([move] for move in moves)]]
    stream = FileStream(spark, tmp_path, schema)
    half = len(tables) // 2
    for part in (tables[:half], tables[half:]):
        stream.add(part)
        stream.run(lambda frame: ouzel.spark.match(frame, QUERIES, max_delay=DELAY, buckets=BUCKETS, late=True))
    found = stream.answers()
    expected = ouzel.match(pa.Table.from_pylist(on_time, schema=schema), QUERIES)
    for name, table in expected.items():
        rows = [row[name] for row in found if row["query"] == name and row["late"] is None]
        assert counted(rows) == counted(table.to_pylist()) != {}, name
    told = [row for row in found if row["query"] == "extremes" and row["late"] is not None]
    assert len(told) == late
    # Keys were spread, and the buckets are found before the step that adds up.
    buckets = ouzel.spark.state(stream.checkpoint, spark).where("query = 'count'").collect()
    assert len({row["bucket"] for row in buckets}) == BUCKETS
