"""Time slices: queries without a key and hot keys, cut in time, each match exactly once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.errors import InputError
from ouzel.prepared import as_queries
from ouzel.runtime.program import make_program
from ouzel.spark.batch import parts_of, ticks_of_time
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import Clock
from ouzel.spark.schema import spark_schema
from ouzel.spark.time_slices import Slices, as_ticks, cannot_be_cut, cut
from ouzel.spark.worker import Memory, answers
from tests.generate import random_case
from tests.generate.cases import COLUMNS, RandomCase, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def events(rows: int = 300, seed: int = 3, *, first_tick: int = -150) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "type": rng.choices("ABCD", k=rows),
            "ts": pa.array([first_tick + rng.randrange(rows) for _ in range(rows)], pa.int64()),
            "id": pa.array(rng.choices([1, 1, 1, 2, 3, None], k=rows), pa.int64()),
            "row": pa.array(range(rows), pa.int64()),
        }
    )


QUERIES = {
    "pair": "PATTERN SEQ(A a, B b) WITHIN 7 RETURN P(a.row AS a, b.row AS b)",
    "not before": "PATTERN SEQ(!(C c), A a, B b) WITHIN 6 RETURN P(a.row AS a, b.row AS b)",
    "not after": "PATTERN SEQ(A a, !(B b)) WITHIN 5 RETURN P(a.row AS a)",
    "next": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] } WITHIN 9 RETURN P(a.row AS a)",
    "strict": "PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) { } WITHIN 9 RETURN P(a.row AS a, b.row AS b)",
    "first": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 9 OUTPUT FIRST RETURN P(a.row AS a, b.row AS b)",
}


def plan_of(text: str, table: pa.Table) -> tuple:
    program = make_program(as_queries(text), table.schema, time="ts", type="type")
    return program, program.plans()["query"]


# ── Without Spark ──────────────────────────────────────────────────────────────────────────────────


def parts_by_arithmetic(tick: int, slices: Slices) -> set[int]:
    """The parts that need an event, by what they may depend on."""
    reached = (tick, tick - slices.ahead_ticks, tick + slices.behind_ticks)
    return {one // slices.ticks % slices.parts for one in reached}


def matched_in_slices(query: object, table: pa.Table, options: dict, parts: int, length: int | None) -> list:
    """What the workers find, task by task."""
    program = make_program(as_queries(query), table.schema, **options)
    (plan,) = program.plans().values()
    (group,) = plan_query_groups(program, Clock(1))
    slices = cut([plan], parts, length)
    needed_by = [parts_by_arithmetic(tick, slices) for tick in as_ticks(table[options["time"]]).tolist()]
    found = []
    for part in range(slices.parts):
        own = table.filter(pa.array([part in parts for parts in needed_by])).select(list(group.columns))
        for _, rows in slices.owned(part, answers(group.group, Memory(), own.to_batches(max_chunksize=100))):
            found += rows.to_pylist()
    return found


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("windows", [None, 1])
def test_every_match_is_found_once(name: str, windows: int | None) -> None:
    table = events()
    _, plan = plan_of(QUERIES[name], table)
    shortest = 2 * plan.window_ticks - 2 if plan.query.components[0].negated else plan.window_ticks - 1
    length = None if windows is None else shortest
    found = matched_in_slices(QUERIES[name], table, {"time": "ts", "type": "type"}, 4, length)
    assert counted(found) == counted(ouzel.match(table, QUERIES[name]).to_pylist())
    assert found


def test_random_queries_are_cut_without_loss() -> None:
    rng = random.Random(41)
    cut_cases = 0
    for _ in range(150):
        case: RandomCase = random_case(rng, rng.choice(["sase", "kleene"]))
        if "COMPRESSED" in case.text:
            continue
        table, query = case.table, case.query
        program = make_program(as_queries(query), table.schema, **COLUMNS)
        (plan,) = program.plans().values()
        if cannot_be_cut(plan) is not None:
            continue
        cut_cases += 1
        shortest = 2 * plan.window_ticks
        found = matched_in_slices(query, table, COLUMNS, rng.choice([1, 2, 3]), rng.choice([None, shortest]))
        assert counted(found) == counted(ouzel.match(table, query, **COLUMNS).to_pylist()), case.text
    assert cut_cases > 50


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("PATTERN SEQ(A a, B b)", "it needs WITHIN in time"),
        ("PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { } WITHIN 5 EVENTS", "it needs WITHIN in time"),
        ("PATTERN SEQ(A a, B b) WITHIN 5 OUTPUT NON_OVERLAPPING", "OUTPUT NON OVERLAPPING depends on earlier matches"),
        ("PATTERN SEQ(A a, B b) WITHIN 5 OUTPUT SKIP TO LAST b", "OUTPUT SKIP TO LAST depends on earlier matches"),
    ],
)
def test_what_cannot_be_cut_says_why(query: str, reason: str) -> None:
    _, plan = plan_of(query, events())
    assert reason in (cannot_be_cut(plan) or "")


def test_slices_shorter_than_a_match_are_refused() -> None:
    _, plan = plan_of(QUERIES["not before"], events())
    with pytest.raises(InputError, match="slices= is 9 ticks, but these queries need slices of at least 10 ticks"):
        cut([plan], 4, 9)
    assert cut([plan], 7, 10) == Slices(10, 7, 5, 5)
    assert cut([plan], 7, 1 << 61).parts == 3, "a round of all parts fits 64 bits"


# ── With Spark ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spark
def test_events_reach_the_parts_that_arithmetic_says(spark: SparkSession) -> None:
    rng = random.Random(5)
    ticks = [*range(-40, 40), (1 << 63) - 1, -(1 << 63)]
    source = spark.createDataFrame([(tick,) for tick in ticks], "`odd.time` long")
    columns, expected = [], []
    for _ in range(60):
        ahead, behind = rng.randrange(4), rng.randrange(4)
        slices = Slices(max(1, ahead + behind) + rng.randrange(5), rng.randrange(1, 5), ahead, behind)
        columns.append(parts_of("odd.time", source, slices))
        expected.append(slices)
    for tick, found in zip(ticks, source.select(*columns).collect(), strict=True):
        assert list(map(sorted, found)) == [sorted(parts_by_arithmetic(tick, slices)) for slices in expected]


@pytest.mark.spark
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_ticks_of_timestamps_are_those_of_arrow(spark: SparkSession, zone: str | None) -> None:
    rng = random.Random(6)
    # An hour that New York has twice, and times before 1970.
    ticks = [1_699_160_400_000_000 + 600_000_001 * step for step in range(30)]
    ticks += [rng.randrange(-(10**16), 10**16) for _ in range(50)]
    table = pa.table({"ts": pa.array(ticks, pa.timestamp("us", zone))})
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        source = frame(spark, table)
        found = source.select(ticks_of_time("ts", source)).collect()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert sorted(row[0] for row in found) == sorted(ticks)


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table, spark_schema(table.schema)).repartition(3)


@pytest.mark.spark
@pytest.mark.parametrize("first_tick", [-150, 2**63 - 300, -(2**63)])
def test_several_queries_are_cut_together(spark: SparkSession, first_tick: int) -> None:
    table = events(first_tick=first_tick)
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    queries = {name: QUERIES[name] for name in ("pair", "not before", "not after")}
    if first_tick != -150:
        del queries["not after"]  # Its matches would end after the end of time.
    with ouzel.spark.match(frame(spark, table), queries) as found:
        for name, expected in ouzel.match(table, queries).items():
            assert counted(found[name].toArrow().to_pylist()) == counted(expected.to_pylist()) != {}


@pytest.mark.spark
def test_slices_keep_their_numbers_in_other_partitions(spark: SparkSession) -> None:
    """A union and coalesce run the tasks of slices under other numbers."""
    table = events()
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    found = ouzel.spark.match(frame(spark, table), QUERIES["pair"])
    expected = ouzel.match(table, QUERIES["pair"]).to_pylist()
    assert counted(found.coalesce(1).toArrow().to_pylist()) == counted(expected) != {}
    assert counted(found.union(found).toArrow().to_pylist()) == counted(2 * expected)


@pytest.mark.spark
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_are_cut(spark: SparkSession, zone: str | None) -> None:
    table = events()
    moments = (table["ts"].to_numpy() * 1_000_000).astype(np.int64)
    table = table.set_column(1, "ts", pa.array(moments, pa.timestamp("us", zone)))
    query = QUERIES["not before"].replace("WITHIN 6", "WITHIN 6 s")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        found = ouzel.spark.match(frame(spark, table), query, slices="20 s").select("a", "b").toArrow()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert counted(found.to_pylist()) == counted(ouzel.match(table, query).select(["a", "b"]).to_pylist()) != {}


@pytest.mark.spark
def test_a_hot_key_is_cut_by_a_hint(spark: SparkSession) -> None:
    query = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 7 RETURN P(a.row AS a, b.row AS b)"
    table = events()
    expected = counted(ouzel.match(table, query).to_pylist())
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    source = frame(spark, table)
    for hint in (True, 70):
        assert "cut into time slices of 70 ticks" in ouzel.spark.explain(source, query, slices=hint)
    assert counted(ouzel.spark.match(source, query, slices=True).toArrow().to_pylist()) == expected
    assert "query: partitioned by id" in ouzel.spark.explain(source, query)


@pytest.mark.spark
def test_what_goes_to_one_task_is_explained(spark: SparkSession) -> None:
    source = frame(spark, events())
    told = ouzel.spark.explain(source, "PATTERN SEQ(A a, B b) WITHIN 5 OUTPUT NON_OVERLAPPING")
    assert "a single task sees all events, because no equivalence test separates them, and OUTPUT NON" in told
    assert "slices=False" in ouzel.spark.explain(source, QUERIES["pair"], slices=False)
    with pytest.raises(InputError, match="are for batches"):
        rate = spark.readStream.format("rate").load().selectExpr("'A' AS type", "timestamp AS ts", "value AS id")
        ouzel.spark.match(rate, "PATTERN SEQ(A a, B b) WITHIN 5 s", slices=9, max_delay="1 s")
