"""`ouzel.spark.match` on streams: stopped, restarted, late, out of order, and still the batch answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.errors import InputError, QueryError, StateError
from tests.spark.streams import FileStream
from tests.spark.test_batch import ANYWHERE, LONELY, PAIR, as_set, random_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_several_queries_restarted_half_way_give_the_batch_answer(spark: SparkSession, tmp_path: Path) -> None:
    """Events out of order by up to 9 ticks, queries with one key, another and none, in five micro-batches."""
    events = random_events(seed=11, rows=300)
    queries = {"lonely": LONELY, "pair": PAIR, "anywhere": ANYWHERE}
    arrival = sorted(range(events.num_rows), key=lambda row: events["ts"][row].as_py() + row % 10)
    arrived = events.take(arrival)
    stream = FileStream(spark, tmp_path, events.schema)

    def step(frame: DataFrame) -> DataFrame:
        return ouzel.spark.match(frame, queries, max_delay=9)

    stream.add([arrived.slice(first, 60) for first in (0, 60, 120)])
    stream.run(step)
    half = len(stream.answers())
    stream.add([arrived.slice(180, 60), arrived.slice(240), end_of_time(events)])
    stream.run(step)
    found = stream.answers()
    expected = ouzel.match(events, queries)
    assert 0 < half < len(found)
    for name, table in expected.items():
        rows = [row[name] for row in found if row["query"] == name]
        assert sorted(map(repr, rows)) == as_set(table) != []


def end_of_time(events: pa.Table) -> pa.Table:
    """An event that no query wants, long after the last. It must move time although it never reaches a session."""
    return pa.table({"type": ["Z"], "ts": [10**6], "id": [0], "x": [0.0], "row": [-1]}).cast(events.schema)


def test_timestamps_with_a_watermark_of_the_users(spark: SparkSession, tmp_path: Path) -> None:
    start_us = 1_700_000_000_000_000
    ticks = [0, 1_500, 4_499, 2_000, 9_000_000, 9_000_001]
    events = pa.table(
        {
            "type": ["A", "A", "Z", "B", "Z", "Z"],
            "ts": pa.array([start_us + tick for tick in ticks], pa.timestamp("us", "UTC")),
            "id": [1, 2, 1, 1, 1, 1],
        }
    )
    query = "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 3 ms RETURN Lonely(a.id AS id)"
    stream = FileStream(spark, tmp_path, events.schema)
    stream.add([events.slice(row, 1) for row in range(events.num_rows)])
    stream.run(lambda frame: ouzel.spark.match(frame.withWatermark("ts", "0 seconds"), query))
    found = {row["id"]: row["end"] for row in stream.answers()}
    # B comes when the watermark stands at 4 ms, past its own time: late, so it forbids nothing.
    assert set(found) == {1, 2}
    assert pa.scalar(found[2], pa.timestamp("us", "UTC")).value == start_us + 1_500 + 3_000 - 1


def test_another_query_on_an_old_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(seed=2, rows=20)
    stream = FileStream(spark, tmp_path, events.schema)
    stream.add([events])
    stream.run(lambda frame: ouzel.spark.match(frame, LONELY, max_delay=400))
    stream.add([events])
    with pytest.raises(StateError) as raised, ouzel.spark.clear_errors():
        stream.run(lambda frame: ouzel.spark.match(frame, LONELY.replace("30", "31"), max_delay=400))
    assert str(raised.value).startswith("this state was written by another query")
    assert "\n" not in str(raised.value)


def test_what_a_stream_needs_is_said_before_it_starts(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load().selectExpr("'A' AS type", "timestamp AS ts", "value AS id")
    with pytest.raises(InputError, match=r"how late its events may be.*max_delay="):
        ouzel.spark.match(rate, LONELY)
    with pytest.raises(InputError, match="has a watermark already"):
        ouzel.spark.match(rate.withWatermark("ts", "1 second"), LONELY, max_delay="1 s")
    with pytest.raises(QueryError, match="WITHIN"):
        ouzel.spark.match(rate, "PATTERN SEQ(A a, B b) WHERE [id]", max_delay="1 s")
    bounded = spark.range(1).selectExpr("now() AS ts", "id")
    with pytest.raises(InputError, match="some of the DataFrames are streams"):
        ouzel.spark.match({"A": rate, "B": bounded}, LONELY)
    provider = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(provider)
    spark.conf.unset(provider)
    try:
        with pytest.raises(InputError, match="RocksDB"):
            ouzel.spark.match(rate, LONELY, max_delay="1 s")
    finally:
        spark.conf.set(provider, before)
