"""`ouzel.spark.match` on bounded DataFrames: the answers of the embedded engine, whatever the partitions."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute
import pytest

import ouzel
import ouzel.spark
from ouzel.algebra import stream
from ouzel.errors import InputError, LimitError, QueryError, TypesWarning
from ouzel.prepared import as_queries
from ouzel.runtime.program import make_program
from ouzel.runtime.session import Session
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import Clock
from ouzel.spark.schema import spark_schema
from ouzel.spark.worker import Memory, match_partition
from tests.generate.cases import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LONELY = "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 30"
PAIR = "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.x < b.x WITHIN 20 RETURN Pair(a.id AS id, b.x - a.x AS gain)"
ANYWHERE = "PATTERN SEQ(A a, B b) WITHIN 3 RETURN Near(a.row AS first, b.row AS second)"


def random_events(seed: int, rows: int = 400) -> pa.Table:
    chosen = random.Random(seed)
    return pa.table(
        {
            "type": chosen.choices("ABCD", k=rows),
            "ts": pa.array([chosen.randrange(rows) for _ in range(rows)], pa.int64()),
            "id": pa.array([chosen.choice([*range(9), None]) for _ in range(rows)], pa.int32()),
            "x": pa.array([chosen.random() for _ in range(rows)]),
            "row": pa.array(range(rows), pa.int64()),
        }
    )


def frame(spark: SparkSession, table: pa.Table, partitions: int = 3) -> DataFrame:
    return spark.createDataFrame(table, spark_schema(table.schema)).repartition(partitions)


def as_set(found: Any) -> list[str]:
    table = found if isinstance(found, pa.Table) else found.toArrow()
    return sorted(map(repr, table.to_pylist()))


def test_hints_say_how_several_equivalence_tests_are_searched(spark: SparkSession) -> None:
    events = random_events(seed=5)
    query = "PATTERN SEQ(A a, B b) WHERE [id] AND [x] WITHIN 50"
    events = events.set_column(3, "x", pa.compute.cast(pa.compute.floor(pa.compute.multiply(events["x"], 3)), "int64"))
    expected = as_set(ouzel.match(events, query))
    assert expected
    for way, shown in (("dynamic", "dynamic filtering"), ("multi-pais", "Multi-PAIS")):
        found = ouzel.spark.match(frame(spark, events), query, hints={"key": way})
        assert as_set(found) == expected
        assert f"{shown}, as the hint asks" in ouzel.spark.explain(frame(spark, events), query, hints={"key": way})


@pytest.mark.parametrize("query", [LONELY, PAIR, ANYWHERE])
def test_the_answer_is_that_of_the_embedded_engine(spark: SparkSession, query: str) -> None:
    events = random_events(seed=len(query))
    expected = ouzel.match(events, query)
    found = ouzel.spark.match(frame(spark, events), query)
    assert found.columns == expected.column_names
    assert as_set(found) == as_set(expected) != []


def test_several_queries_share_one_computation(spark: SparkSession) -> None:
    events = random_events(seed=7)
    queries = {"pair": PAIR, "anywhere": ANYWHERE, "lonely": LONELY}
    expected = ouzel.match(events, queries)
    with ouzel.spark.match(frame(spark, events), queries) as found:
        assert list(found) == list(queries)
        assert {name: as_set(one) for name, one in found.items()} == {n: as_set(t) for n, t in expected.items()}


def test_one_frame_for_each_event_type(spark: SparkSession) -> None:
    shelf = pa.table({"ts": [1, 2, 3], "tag": [7, 8, 9], "shelf": ["a", "b", "c"]})
    till = pa.table({"ts": [4], "tag": [8], "clerk": ["Ann"]})
    leave = pa.table({"ts": [6, 7], "tag": [7, 8], "shelf": [1.5, 2.5]})
    inputs = {"Shelf": shelf, "Register": till, "Exit": leave}
    query = "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag] WITHIN 10"
    found = ouzel.spark.match({name: frame(spark, table, 2) for name, table in inputs.items()}, query)
    assert as_set(found) == as_set(ouzel.match(inputs, query))
    assert found.count() == 1


def test_transform(spark: SparkSession) -> None:
    events = random_events(seed=3, rows=50)
    found = frame(spark, events).transform(ouzel.spark.matching(LONELY, time="ts"))
    assert as_set(found) == as_set(ouzel.match(events, LONELY))


def test_an_empty_frame_has_no_matches_and_the_right_columns(spark: SparkSession) -> None:
    found = ouzel.spark.match(frame(spark, random_events(seed=1).slice(0, 0)), PAIR)
    assert found.schema.simpleString() == "struct<start:bigint,end:bigint,id:int,gain:double>"
    assert found.collect() == []


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_come_out_as_they_went_in(spark: SparkSession, zone: str | None) -> None:
    moments = [datetime(2024, 5, 1, 12, 0, 0, 123_456), datetime(2024, 5, 1, 12, 0, 1)]
    events = pa.table({"type": ["A", "B"], "ts": pa.array(moments, pa.timestamp("us", zone)), "id": [1, 1]})
    query = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 1 min"
    spark.conf.set("spark.sql.session.timeZone", "America/Santiago")
    try:
        (row,) = ouzel.spark.match(frame(spark, events), query).selectExpr("cast(start as string)").collect()
        found = ouzel.spark.match(frame(spark, events), query).toArrow()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert found["end"].cast(pa.int64()).to_pylist() == events["ts"].cast(pa.int64()).to_pylist()[1:]
    assert (found.schema.field("start").type.tz is None) == (zone is None)
    assert row[0] == ("2024-05-01 12:00:00.123456" if zone is None else "2024-05-01 08:00:00.123456")


def test_dates_are_midnights(spark: SparkSession) -> None:
    rows = [("A", date(2024, 5, 1)), ("B", date(2024, 5, 2))]
    found = ouzel.spark.match(
        spark.createDataFrame(rows, "type string, ts date"), "PATTERN SEQ(A a, B b) WITHIN 2 days RETURN P(b.time AS t)"
    )
    assert found.collect()[0].t == datetime(2024, 5, 2)


def test_keys_of_every_kind_meet_in_one_partition(spark: SparkSession) -> None:
    """Spark's hash must agree with our equality: 0.0 with -0.0, NaN with NaN, and fields of structs."""
    values = [0.0, -0.0, float("nan"), -float("nan")]
    rows = [(kind, ts, value, (value, "x.y")) for ts, value in enumerate(values) for kind in "AB"]
    schema = "type string, ts long, `odd.key` double, odd struct<inner: double, s: string>"
    events = spark.createDataFrame(rows, schema).repartition(8)
    pair = "PATTERN SEQ(A a, B b) WHERE [{}] WITHIN 9 RETURN P(b.ts AS t)"
    by_column = ouzel.spark.match(events.withColumnRenamed("odd.key", "key"), pair.format("key"))
    by_field = ouzel.spark.match(events, pair.format("odd.inner"))
    assert sorted(row.t for row in by_column.collect()) == sorted(row.t for row in by_field.collect()) == [1, 3]


# ── Partitions larger than memory ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("query", [LONELY, PAIR, ANYWHERE])
def test_a_small_memory_limit_has_spark_sort(spark: SparkSession, query: str) -> None:
    events = random_events(seed=5, rows=900)
    found = ouzel.spark.match(frame(spark, events), query, memory_limit=4_096)
    assert as_set(found) == as_set(ouzel.match(events, query)) != []


def test_sorted_partitions_are_held_a_window_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has left the window is let go from time to time, so a small part of the events is held at any time."""
    events = random_events(seed=5, rows=30_000).sort_by("ts")
    program = make_program(as_queries(PAIR), events.schema, time="ts", type="type")
    (part,) = plan_query_groups(program, Clock(1))
    held: list[int] = []
    advance = Session.advance

    def counting(session: Session, tick: int) -> Any:
        answer = advance(session, tick)
        held.append(session.held_events)
        return answer

    monkeypatch.setattr(Session, "advance", counting)
    batches = events.select(list(part.columns)).to_batches(max_chunksize=500)
    found = pa.Table.from_batches(match_partition(False, part.group, Memory(limit=65_536), batches))
    assert as_set(found) == as_set(ouzel.match(events, PAIR)) != []
    assert max(held) < 10_000


def test_a_partition_beyond_the_limit_says_what_to_do() -> None:
    events = random_events(seed=5)
    program = make_program(as_queries(PAIR), events.schema, time="ts", type="type")
    (part,) = plan_query_groups(program, Clock(1))
    memory = Memory(partition_bytes=1_000)
    with pytest.raises(LimitError, match="more than max_partition_bytes=1,000; give memory_limit="):
        list(match_partition(False, part.group, memory, events.select(list(part.columns)).to_batches()))


# ── What is refused ────────────────────────────────────────────────────────────────────────────────


def test_a_null_time_on_an_executor_is_one_clear_message(spark: SparkSession) -> None:
    events = spark.createDataFrame([("A", 1, 1), ("Z", None, 1)], "type string, ts long, id long")
    with pytest.raises(Exception, match=r"ouzel\.errors\.InputError: the time column 'ts' is null in 1 of") as raised:
        ouzel.spark.match(events, LONELY).collect()
    assert "Traceback" not in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 3


def test_mistakes_are_found_before_anything_runs(spark: SparkSession) -> None:
    events = spark.createDataFrame([("A", 1, 1)], "type string, ts long, id long")
    with pytest.raises(QueryError, match="idd"):
        ouzel.spark.match(events, "PATTERN SEQ(A a, B b) WHERE [idd] WITHIN 3")
    with pytest.raises(InputError, match="there is no time column 'when'"):
        ouzel.spark.match(events, LONELY, time="when")
    with pytest.raises(InputError, match=r"time column 'type' is of type string.*to_timestamp"):
        ouzel.spark.match(events, LONELY, time="type")
    with pytest.raises(InputError, match="max_delay= is for streams"):
        ouzel.spark.match(events, LONELY, max_delay=5)
    with pytest.raises(InputError, match="give one for each event type"):
        ouzel.spark.match({}, LONELY)
    with pytest.raises(InputError, match=r"of type str and must be a Spark DataFrame.*ouzel\.match"):
        ouzel.spark.match("events.parquet", LONELY)
    for ask in (ouzel.match, ouzel.why, ouzel.plot):
        with pytest.raises(InputError, match=r"in a Spark DataFrame: use ouzel\.spark\.match\(df, query\).*toArrow"):
            ask(events, LONELY)


def test_plain_reasons_for_an_empty_answer_are_told_when_asked(spark: SparkSession) -> None:
    events = spark.createDataFrame([("A", 1, 1), (None, 2, 1), ("B", 3, 1)], "type string, ts long, id long")
    queries = {"one": "PATTERN SEQ(A a, C c) WITHIN 9", "two": "PATTERN SEQ(A a, B b) WITHIN 9"}
    assert ouzel.spark.why_empty(events, queries) == {
        "one": "query 'one' found nothing: no event has the type 'C' in its column 'type' "
        "(1 event has no type at all); the types are 'A' and 'B'"
    }
    timed = events.selectExpr("type", "timestamp_seconds(ts) AS ts", "id")
    assert "WITHIN 9 is 9 us here" in ouzel.spark.why_empty(timed, queries)["two"]
    parts = {kind: events.where(f"type = '{kind}'").drop("type") for kind in ("A", "B")}
    assert ouzel.spark.why_empty(parts, queries["two"]) == {}
    shop = spark.createDataFrame([("Shelf", 1), ("Exit", 2)], "type string, ts long")
    with pytest.warns(TypesWarning, match="names the type 'Exitt', which no event has; did you mean 'Exit'"):
        assert ouzel.spark.why_empty(shop, "PATTERN SEQ(Shelf a, !(Exitt b)) WITHIN 9") == {}
    with pytest.raises(InputError, match="a stream has no end"):
        ouzel.spark.why_empty(spark.readStream.format("rate").load().selectExpr("'A' AS type", "value AS ts"), queries)


def test_a_query_that_one_task_must_answer_says_so(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    events = frame(spark, random_events(seed=1))
    ouzel.spark.match(events, ANYWHERE)
    assert caplog.text == ""
    ouzel.spark.match(events, ANYWHERE.replace(" WITHIN 3", ""))
    assert "a single task must see all events of query, because no equivalence test separates them" in caplog.text


def test_expressions_of_the_algebra_answer_as_embedded(spark: SparkSession) -> None:
    rows = [("A", 1, 3), ("A", 2, 5), ("B", 3, 7), ("A", 8, 1), ("B", 9, 2)]
    frame = spark.createDataFrame(rows, "type string, ts long, x long")
    expression = stream("A").next(stream("B"), "DUR <= 5")
    pairs = "PATTERN SEQ(A a, B b) WITHIN 5 RETURN P(a.x AS a, b.x AS b)"
    table = frame.toArrow()
    for queries in ({"next": expression}, {"next": expression, "pairs": pairs}):
        wanted = ouzel.match(table, queries)
        with ouzel.spark.match(frame, queries) as found:
            for name in queries:
                answer = [row.asDict() for row in found[name].collect()]
                assert sorted(map(repr, answer)) == sorted(map(repr, wanted[name].to_pylist()))
    one = [row.asDict() for row in ouzel.spark.match(frame, expression).collect()]
    assert sorted(map(repr, one)) == sorted(map(repr, ouzel.match(table, expression).to_pylist()))


def test_expressions_are_distributed_by_the_columns_that_all_their_events_share(spark: SparkSession) -> None:
    rows = [("A", k, k % 7, f"n{k % 3}", k * 5 % 11) for k in range(60)]
    events = spark.createDataFrame(rows, "type string, ts long, id long, name string, x long").repartition(3)
    texts = {
        "by name": "STREAM A a NEXT A b ON b.name = a.name AND b.x > a.x FOLD A c ON c.name = b.name AND DUR < 30",
        "by id, name": "STREAM A NEXT A ON name = name.last AND id = id.last AND DUR < 50",
        "by ts": "STREAM A WHERE x > 3 UNION (A WHERE x < 9)",
        "a single task sees all events, because no column is equal": "STREAM A a NEXT A b ON b.x > a.x",
        "a single task sees all events, because one of its streams": "STREAM A a NEXT (A NEXT A ON x > x.last) b",
    }
    table = events.toArrow()
    for said, text in texts.items():
        assert said in ouzel.spark.explain(events, text), text
        found = [row.asDict() for row in ouzel.spark.match(events, text).collect()]
        assert counted(found) == counted(ouzel.match(table, text).to_pylist()), text
    pattern = "PATTERN SEQ(A a, A b) WHERE [id] WITHIN 9 RETURN P(a.x AS x)"
    explained = ouzel.spark.explain(events, {"one": texts["by name"], "two": pattern})
    assert "one: partitioned by name" in explained and "two: partitioned by id" in explained


def test_parameters_and_durations(spark: SparkSession) -> None:
    began = datetime(2024, 5, 1)
    rows = [("A", began, 1), ("B", began + timedelta(minutes=3), 1), ("B", began + timedelta(minutes=9), 1)]
    events = spark.createDataFrame(rows, "type string, ts timestamp, id long")
    text = """PATTERN SEQ(A a, B b) WHERE [id] AND b.time - a.time > :pause WITHIN 1 hour
              RETURN P([id], b.time - a.time AS took)"""
    params = {"pause": timedelta(minutes=5)}
    found = ouzel.spark.match(events, text, params=params)
    assert found.schema["took"].dataType.simpleString() == "interval day to second"
    assert [(row.id, row.took) for row in found.collect()] == [(1, timedelta(minutes=9))]
    assert events.transform(ouzel.spark.matching(text, params=params)).count() == 1
    assert "by id" in ouzel.spark.explain(events, text, params=params)
    assert ouzel.spark.why_empty(events, text, params=params) == {}
    with pytest.raises(QueryError, match="there is no value for the parameter 'pause'"):
        ouzel.spark.match(events, text)
