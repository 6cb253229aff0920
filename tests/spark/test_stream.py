"""`ouzel.spark.match` on streams: stopped, restarted, late, out of order, and still the batch answer."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from rich.console import Console

import ouzel
import ouzel.spark
from ouzel.errors import InputError, LimitError, QueryError, StateError
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


def test_late_events_come_out_in_rows_of_their_own_and_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Shown by the rows themselves, by the listener, and by the state that is left in the checkpoint."""
    order = [("A", 10, 1), ("Z", 400, 1), ("B", 30, 1), ("A", 500, 2), ("A", 20, 1), ("Z", 5_000, 1), ("A", 9_000, 3)]
    events = pa.table(
        {"type": [t for t, _, _ in order], "ts": [k for _, k, _ in order], "id": [i for _, _, i in order]}
    )
    query = "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 100 RETURN Lonely(a.id AS id)"
    stream = FileStream(spark, tmp_path, events.schema)
    stream.add([events.slice(row, 1) for row in range(events.num_rows)])
    listener = ouzel.spark.Listener()
    spark.streams.addListener(listener)
    try:
        stream.run(lambda frame: ouzel.spark.match(frame, query, max_delay=0, late=True))
        (status,) = listener.progress()
    finally:
        spark.streams.removeListener(listener)
    found = stream.answers()
    assert sorted(row["id"] for row in found if row["late"] is None) == [1, 2]
    late = [row["late"] for row in found if row["late"] is not None]
    assert sorted((row["type"], row["ts"]) for row in late) == [("A", 20), ("B", 30)]
    assert all(row["id"] is None and row["start"] is None for row in found if row["late"] is not None)
    assert (status.query, status.matches, status.late, status.open_events) == ("query", 2, 2, 1)
    assert status.state_bytes > 0 and status.behind_newest_seconds is not None
    assert "query" in str(rendered(listener))
    rows = ouzel.spark.state(stream.checkpoint, spark).collect()
    assert sum(row["bucket_late"] for row in rows) == 2, "also of buckets in which nothing is open"
    (row,) = [row for row in rows if row["open_events"]]
    assert (row["query"], row["key"], row["open_events"], row["oldest"]) == ("query", "3", 1, 9_000)
    assert row["state_bytes"] > 0


def rendered(listener: ouzel.spark.Listener) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(listener.table())
    return console.export_text()


def test_several_queries_tell_for_which_of_them_an_event_was_late(spark: SparkSession, tmp_path: Path) -> None:
    order = [("A", 10), ("Z", 400), ("B", 30), ("C", 35), ("Z", 5_000)]
    events = pa.table({"type": [t for t, _ in order], "ts": [k for _, k in order], "id": [1] * len(order)})
    queries = {
        "first": "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 100 RETURN F(a.id AS id)",
        "second": "PATTERN SEQ(A a, !(ANY(B, C) b)) WITHIN 100 RETURN S(a.ts AS ts)",
    }
    stream = FileStream(spark, tmp_path, events.schema)
    stream.add([events.slice(row, 1) for row in range(events.num_rows)])
    stream.run(lambda frame: ouzel.spark.match(frame, queries, max_delay=0, late=True))
    found = stream.answers()
    late = sorted((row["query"], row["late"]["type"]) for row in found if row["late"] is not None)
    assert late == [("first", "B"), ("second", "B"), ("second", "C")]
    assert sorted(row["query"] for row in found if row["late"] is None) == ["first", "second"]


def test_the_state_shows_what_is_open_by_key(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(seed=5, rows=200)
    queries = {"lonely": LONELY, "pair": PAIR, "anywhere": ANYWHERE}
    stream = FileStream(spark, tmp_path, events.schema)
    stream.add([events])
    stream.run(lambda frame: ouzel.spark.match(frame, queries, max_delay=10**6))
    found = ouzel.spark.state(stream.checkpoint, spark).toArrow().to_pylist()
    # Nothing is settled, so every event that a query wants is open.
    kinds, ids, ticks = (events[name].to_pylist() for name in ("type", "id", "ts"))
    wanted = [
        (id_, tick) for kind, id_, tick in zip(kinds, ids, ticks, strict=True) if kind in "AB" and id_ is not None
    ]
    lonely = {row["key"]: (row["open_events"], row["oldest"]) for row in found if row["query"] == "lonely"}
    expected = {
        str(key): (sum(id_ == key for id_, _ in wanted), min(tick for id_, tick in wanted if id_ == key))
        for key in {id_ for id_, _ in wanted}
    }
    assert lonely == expected
    assert {row["query"] for row in found} == set(queries)
    with pytest.raises(InputError, match="is not a checkpoint of"):
        ouzel.spark.state(tmp_path / "nowhere", spark)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": LONELY.replace("30", "31")}, "query 'query' is not the one that wrote this checkpoint; go back to"),
        ({"buckets": 3}, "this checkpoint was written with buckets=2, and the stream now asks for 3"),
        ({"max_delay": 401}, "this checkpoint was written with a watermark 401 ms behind"),
        ({"id": "string"}, "the column 'id' was of type int32 when this checkpoint was written, and is string now"),
    ],
)
def test_what_has_changed_since_a_checkpoint_is_refused(
    spark: SparkSession, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    events = random_events(seed=2, rows=20)
    stream = FileStream(spark, tmp_path, events.schema)
    stream.add([events.slice(0, 10)])
    stream.run(lambda frame: ouzel.spark.match(frame, LONELY, max_delay=400, buckets=2))
    stream.add([events.slice(10)])

    def step(frame: DataFrame) -> DataFrame:
        cast = frame.withColumn("id", frame["id"].cast(changed.get("id", "int")))
        delay, buckets = changed.get("max_delay", 400), changed.get("buckets", 2)
        return ouzel.spark.match(cast, changed.get("query", LONELY), max_delay=delay, buckets=buckets)

    with pytest.raises(StateError) as raised, ouzel.spark.unwrap_errors():
        stream.run(step)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_a_limit_that_is_passed_stops_the_stream_with_its_name(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(seed=2, rows=20)
    stream = FileStream(spark, tmp_path, events.schema)
    stream.add([events])
    passed = pytest.raises(LimitError, match=r"query 'query' holds .* more than max_buffered_events=3")
    with passed, ouzel.spark.unwrap_errors():
        stream.run(lambda frame: ouzel.spark.match(frame, LONELY, max_delay=4, limits={"max_buffered_events": 3}))


def test_what_a_stream_needs_is_said_before_it_starts(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load().selectExpr("'A' AS type", "timestamp AS ts", "value AS id")
    with pytest.raises(InputError, match=r"a maximum delay of its events.*max_delay="):
        ouzel.spark.match(rate, LONELY)
    with pytest.raises(InputError, match="has a watermark already"):
        ouzel.spark.match(rate.withWatermark("ts", "1 second"), LONELY, max_delay="1 s")
    with pytest.raises(QueryError, match="WITHIN"):
        ouzel.spark.match(rate, "PATTERN SEQ(A a, B b) WHERE [id]", max_delay="1 s")
    with pytest.raises(InputError, match=r"is of type timestamp_ntz.*cast\('timestamp'\)"):
        ouzel.spark.match(rate.selectExpr("type", "CAST(ts AS TIMESTAMP_NTZ) AS ts", "id"), LONELY, max_delay="1 s")
    with pytest.raises(InputError, match="is of type date"):
        ouzel.spark.match(rate.selectExpr("type", "CAST(ts AS DATE) AS ts", "id"), LONELY, max_delay="1 s")
    with pytest.raises(InputError, match="late=True adds a column 'late'"):
        ouzel.spark.match(rate, {"late": LONELY}, max_delay="1 s", late=True)
    for name in ("query", "Query"):
        with pytest.raises(InputError, match=f"several queries adds a column 'query', so no query .* named '{name}'"):
            ouzel.spark.match(rate, {"other": LONELY, name: LONELY}, max_delay="1 s")
    for buckets in (0, -1, "4", 1_000_000):
        with pytest.raises(InputError, match="buckets must be an integer from 1 to 9,600 for these queries"):
            ouzel.spark.match(rate, LONELY, max_delay="1 s", buckets=buckets)
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
