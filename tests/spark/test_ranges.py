"""Strict contiguity and windows in events over the whole stream: ranges of time matched apart, and their boundaries."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import ouzel
import ouzel.spark
from ouzel.errors import InputError
from ouzel.prepared import as_queries
from ouzel.runtime.program import make_program
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import Clock
from ouzel.spark.pushdown import projected_columns
from ouzel.spark.schema import spark_schema
from ouzel.spark.time_slices import Edges, Ranges, joined, ranged, span_in_events, watched
from ouzel.spark.worker import Memory, answers
from tests.generate import random_case
from tests.generate.cases import COLUMNS, SCHEMA, counted
from tests.spark.test_batch_odd import setting
from tests.spark.together import collect_together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STRICT = "PATTERN SEQ(A a, B b, A c) WHERE strict_contiguity(a, b, c) { } RETURN P(a.n AS a, b.n AS b, c.n AS c)"
QUERIES = {
    "strict": STRICT,
    "strict, keyed": STRICT.replace("{ }", "{ [id] }").replace("RETURN", "WITHIN 9 EVENTS RETURN"),
    "strict Kleene": "PATTERN SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { } WITHIN 6 EVENTS RETURN P(a.n AS a)",
    "next": "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { a.x <= b[i].x } WITHIN 7 EVENTS",
    "any": "PATTERN SEQ(A a, !(C c), B b) WITHIN 8 EVENTS RETURN P(a.n AS a, b.n AS b)",
    "first": "PATTERN SEQ(A a, B b) WITHIN 9 EVENTS OUTPUT FIRST RETURN P(a.n AS a, b.n AS b)",
    "without a partition": "PATTERN SEQ(A a, B b) WHERE partition_contiguity(a, b) { a.x < b.x }",
}


def events(rows: int = 400, seed: int = 3) -> pa.Table:
    """Some moments have many events, some none, and most events play no part."""
    rng = random.Random(seed)
    found, time = [], -100
    for number in range(rows):
        time += rng.choice((0, 0, 1, 1, 3, 40))
        found.append(
            {"type": rng.choice("AABBCDEF"), "time": time, "n": number, "id": rng.choice([1, 1, 1, 2, None])}
            | {"x": rng.randrange(4), "y": None, "f": rng.random(), "s": rng.choice(["u", "v"])}
        )
    rng.shuffle(found)
    return pa.Table.from_pylist(found, schema=SCHEMA)


def reach_of(query: object, table: pa.Table) -> int | None:
    (plan,) = make_program(as_queries(query), table.schema, **COLUMNS).plans().values()
    return span_in_events(plan)


# ── Without Spark ──────────────────────────────────────────────────────────────────────────────────


def matched_in_ranges(
    query: object, table: pa.Table, bounds: list[int], rows_per_batch: int, memory_limit: int | None = None
) -> list[dict]:
    """What the workers would find in ranges that begin at these ticks."""
    program = make_program(as_queries(query), table.schema, **COLUMNS)
    (plan,) = program.plans().values()
    (part,) = plan_query_groups(program, Clock(1))
    reach = span_in_events(plan)
    assert reach is not None
    ranges = Ranges(reach, parts=len(bounds) + 1)
    owners = np.searchsorted(np.sort(bounds), table["time"].to_numpy(), side="right")
    told = []
    for number in range(ranges.parts):
        own = table.filter(pa.array(owners == number)).select(list(part.columns))
        if memory_limit is not None:
            own = own.sort_by("time")
        edges = Edges(part.group.time, reach)
        batches = watched(edges, own.to_batches(max_chunksize=rows_per_batch))
        found = answers(part.group, Memory(limit=memory_limit), batches)
        told += ranged(ranges, part.group, number, edges, found)
    rows = []
    for part_number in range(ranges.parts):
        mine = [batch for batch in told if batch.column("part")[0].as_py() == part_number]
        rows += [row for _, found in joined(ranges, part.group, mine) for row in found.to_pylist()]
    return rows


@pytest.mark.parametrize("name", QUERIES)
def test_every_match_is_found_once(name: str) -> None:
    table, query = events(rows=150), QUERIES[name]
    want = counted(ouzel.match(table, query, **COLUMNS).to_pylist())
    rng = random.Random(name)
    times = table["time"].to_pylist()
    for bounds in ([], [0], sorted(rng.sample(times, 5)), sorted(set(times)), [min(times) - 5, max(times) + 5]):
        for memory_limit in (None, 2_000):
            found = matched_in_ranges(query, table, bounds, rng.choice([7, 1000]), memory_limit)
            assert counted(found) == want != {}, bounds


def test_random_queries_are_cut_without_loss() -> None:
    rng = random.Random(42)
    cut_cases = 0
    for number in range(300):
        case = random_case(rng, "kleene")
        table, query = case.table, case.query
        if reach_of(query, table) is None:
            continue
        cut_cases += 1
        bounds = sorted(rng.sample(range(40), rng.choice([1, 2, 4])))
        found = matched_in_ranges(query, table, bounds, rng.choice([2, 100]))
        want = counted(ouzel.match(table, query, **COLUMNS).to_pylist())
        assert counted(found) == want, f"case {number}, {bounds}:\n{case.text}"
    assert cut_cases > 20


def test_edges_are_trimmed_as_events_pass() -> None:
    rng = random.Random(5)
    times = [rng.randrange(90_000) for _ in range(200_000)]
    edges = Edges("time", 3)
    for batch in pa.table({"time": times}).to_batches(max_chunksize=10_000):
        edges.add(batch)
    ordered = sorted(times)
    assert sorted(edges.head["time"].to_pylist()) == [time for time in ordered if time <= ordered[2]]
    assert sorted(edges.tail["time"].to_pylist()) == [time for time in ordered if time >= ordered[-3]]


@pytest.mark.parametrize(
    ("query", "reach"),
    [
        (STRICT, 2),
        (QUERIES["strict, keyed"], 2),
        (QUERIES["strict Kleene"], 5),
        (QUERIES["without a partition"], 1),
        # Time slices are for these, and keys.
        (STRICT.replace("RETURN", "WITHIN 9 RETURN"), None),
        ("PATTERN SEQ(A a, B b) WHERE [id] WITHIN 9 EVENTS", None),
        ("PATTERN SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { }", None),
        ("PATTERN SEQ(A a, B b) WITHIN 9 EVENTS OUTPUT NON_OVERLAPPING", None),
        ("PATTERN SEQ(A a, B b)", None),
    ],
)
def test_how_far_matches_reach(query: str, reach: int | None) -> None:
    assert reach_of(query, events(rows=1)) == reach


# ── With Spark ─────────────────────────────────────────────────────────────────────────────────────


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table, spark_schema(table.schema)).repartition(3)


@pytest.mark.spark
@pytest.mark.parametrize("memory_limit", [None, 4_096])
def test_several_queries_are_cut_into_ranges(spark: SparkSession, memory_limit: int | None) -> None:
    table = events(rows=2_000)
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    with ouzel.spark.match(frame(spark, table), QUERIES, memory_limit=memory_limit, **COLUMNS) as found:
        tables = collect_together(found)
    for name, want in ouzel.match(table, QUERIES, **COLUMNS).items():
        rows = [row for one in tables[name] for row in one.to_pylist()]
        assert counted(rows) == counted(want.to_pylist()) != {}, name


@pytest.mark.spark
def test_more_than_one_task_has_work(spark: SparkSession) -> None:
    source = frame(spark, events(rows=2_000))
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    found = ouzel.spark.match(source, STRICT, **COLUMNS)
    by_task = found.groupBy(F.spark_partition_id().alias("task")).count().collect()
    assert len(by_task) == 4
    assert max(row["count"] for row in by_task) < 0.6 * sum(row["count"] for row in by_task)
    told = ouzel.spark.explain(source, STRICT, **COLUMNS)
    assert (
        "query: cut into 4 ranges of time with about as many events each; a match spans at most 2 further events"
        in told
    )


@pytest.mark.spark
def test_odd_columns_and_times_without_a_zone(spark: SparkSession) -> None:
    table = events(rows=300)
    moments = pa.array(table["time"].to_numpy() * 1_000_000, pa.timestamp("us"))
    odd = table.set_column(1, "at.time", moments).rename_columns(["kind of", "at.time", *table.column_names[2:]])
    columns = {"time": "at.time", "type": "kind of"}
    with setting(spark, "spark.sql.session.timeZone", "America/Santiago"):
        found = ouzel.spark.match(frame(spark, odd), STRICT, **columns).select("a", "b", "c").toArrow()
    want = ouzel.match(odd, STRICT, **columns).select(["a", "b", "c"])
    assert counted(found.to_pylist()) == counted(want.to_pylist()) != {}
    assert ouzel.spark.match(frame(spark, odd.slice(0, 0)), STRICT, **columns).collect() == []
    untimed = frame(spark, table).selectExpr("type", "if(n = 7, NULL, time) AS time", "n")
    with pytest.raises(InputError, match="the time column 'time' is null in 1 of"), ouzel.spark.unwrap_errors():
        ouzel.spark.match(untimed, STRICT, **COLUMNS).collect()


@pytest.mark.spark
def test_events_that_play_no_part_travel_as_a_time_and_a_key(spark: SparkSession) -> None:
    table = events(rows=60)
    query = "PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) { [id] AND a.x IS NULL } WITHIN 5 EVENTS"
    program = make_program(as_queries(query), table.schema, **COLUMNS)
    sent = frame(spark, table).select(
        *projected_columns(tuple(program.plans().values()), program.layout, table.column_names)
    )
    for row in sent.collect():
        if row["type"] is None:
            assert row["time"] is not None and row["n"] is None and row["f"] is None
        else:
            assert row["type"] == "B" and row["n"] is not None
    assert sent.where("type IS NULL AND id IS NOT NULL").count() > 0
    # Whether an event without its type would have a key is not known where a type lacks what the test names.
    having = {"n": pa.int64(), "id": pa.int64(), "x": pa.int64()}
    types = {"A": having, "B": having, "C": {"n": pa.int64()}}
    program = make_program(as_queries(ouzel.query(query, types)), table.schema, **COLUMNS)
    plain = frame(spark, table).select(
        *projected_columns(tuple(program.plans().values()), program.layout, table.column_names)
    )
    assert plain.where("type IS NULL").count() == 0


@pytest.mark.spark
def test_what_one_task_must_answer_is_told_once_and_to_the_point(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    query = "PATTERN SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { [id] }"
    ouzel.spark.match(frame(spark, events(rows=9)), query, **COLUMNS)
    (record,) = caplog.records
    told = record.getMessage()
    assert "strict_contiguity is about all events, not only those that agree on [id]" in told
    assert "partition_contiguity looks at those of each [id] alone" in told
    assert "an equivalence test, such as" not in told
