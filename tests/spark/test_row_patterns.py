"""MATCH_RECOGNIZE on Spark gives what it gives embedded."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.spark.versions import from_arrow, to_arrow
from tests.engines.rows.random_patterns import random_clause, random_rows
from tests.engines.rows.statements import NAMES, STATEMENTS, TICKS, random_statement
from tests.engines.rows.test_agreement import SCHEMA, comparable
from tests.oracle.row_patterns import Budget, Endless
from tests.spark.streams import FileStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

V_SHAPE = """
    PARTITION BY sym ORDER BY ts
    MEASURES FIRST(DOWN.price) AS top, LAST(DOWN.price) AS bottom, COUNT(*) AS n
    PATTERN (DOWN+ UP+)
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)"""


def ticks(rows: int) -> pa.Table:
    rng = Random(7)
    return pa.table(
        {
            "sym": [f"s{n % 5}" for n in range(rows)],
            "ts": list(range(rows)),
            "price": [rng.randrange(9) for _ in range(rows)],
        }
    )


@pytest.mark.parametrize("rows_per_match", ["ONE ROW PER MATCH", "ALL ROWS PER MATCH"])
def test_batch_equals_embedded(spark: SparkSession, rows_per_match: str) -> None:
    table = ticks(500)
    clause = V_SHAPE.replace("PATTERN", f"{rows_per_match} PATTERN")
    frame = ouzel.spark.match_recognize(spark.createDataFrame(table.to_pandas()), clause)
    wanted = ouzel.match_recognize(table, clause)
    assert frame.columns == wanted.column_names
    assert comparable([row.asDict() for row in frame.collect()]) == comparable(wanted.to_pylist())


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_that_duckdb_answers(spark: SparkSession, name: str) -> None:
    statement, answer = STATEMENTS[name]
    tables = {"ticks": TICKS, "names": NAMES}
    frames = {name: from_arrow(spark, table) for name, table in tables.items() if f"{{{name}}}" in statement}
    found = [tuple(row) for row in ouzel.spark.sql(spark, statement, **frames).collect()]
    assert sorted(found, key=lambda row: [(value is None, value) for value in row]) == answer


def test_random_statements_agree_with_oracle(spark: SparkSession) -> None:
    compared = 0
    for seed in range(24):
        try:
            statement, given, wanted = random_statement(seed)
        except (Budget, Endless):
            continue
        rows = from_arrow(spark, pa.Table.from_pylist(given, SCHEMA))
        found = ouzel.spark.sql(spark, statement.format(rows="{rows}"), rows=rows)
        assert comparable([row.asDict() for row in found.collect()]) == comparable(wanted), f"seed {seed}\n{statement}"
        compared += 1
    assert compared > 10


KEYS = ("upper(sym)", "ts % 3", "(ts % 4) * 0.5", "if(price > 4, sym, 'x')", "upper(sym), price % 2", "sym, ts % 2")


@pytest.mark.parametrize("keys", KEYS)
def test_partitions_by_expressions(spark: SparkSession, keys: str) -> None:
    """Keys that Spark cannot compute: the tasks compute them before the shuffle."""
    table = ticks(500)
    clause = V_SHAPE.replace("sym", keys)
    frame = ouzel.spark.match_recognize(from_arrow(spark, table).repartition(3), clause)
    wanted = ouzel.match_recognize(table, clause)
    assert wanted.num_rows > 5
    assert comparable(to_arrow(frame).to_pylist()) == comparable(wanted.to_pylist())
    assert ("MapInArrow" in plan_below_the_shuffle(frame)) == (not keys.startswith("sym"))


def plan_below_the_shuffle(frame: DataFrame) -> str:
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain()
    _, shuffle, below = shown.getvalue().partition("Exchange hashpartitioning")
    assert shuffle
    return below.partition("Initial Plan")[0]


def test_random_patterns_on_spark(spark: SparkSession) -> None:
    compared = 0
    for seed in range(40):
        rng = Random(seed)
        clause, rows = random_clause(rng), random_rows(rng)
        table = pa.Table.from_pylist(rows, SCHEMA)
        try:
            wanted = ouzel.match_recognize(table, clause)
        except ouzel.OuzelError:
            continue
        events = spark.createDataFrame(rows, "g string, t long, v long, f double, s string")
        found = [row.asDict() for row in events.transform(ouzel.spark.recognizing(clause)).collect()]
        assert comparable(found) == comparable(wanted.to_pylist()), f"seed {seed}\n{clause}"
        compared += 1
    assert compared > 20


def test_a_task_refuses_more_rows_than_it_may_hold(spark: SparkSession) -> None:
    frame = ouzel.spark.match_recognize(from_arrow(spark, ticks(500)), V_SHAPE, max_partition_bytes=1_000)
    with pytest.raises(ouzel.LimitError, match="max_partition_bytes=1,000"), ouzel.spark.unwrap_errors():
        frame.collect()
    with pytest.raises(ouzel.InputError, match="max_partition_bytes=0 is not a number of bytes"):
        ouzel.spark.match_recognize(spark.range(3), "ORDER BY id PATTERN (A)", max_partition_bytes=0)


def test_order_is_required(spark: SparkSession) -> None:
    with pytest.raises(ouzel.InputError, match="ORDER BY"):
        ouzel.spark.match_recognize(spark.range(3), "PATTERN (A) DEFINE A AS id > 0")


STREAMED = """
    PARTITION BY sym ORDER BY ts
    MEASURES FIRST(ts) AS began, LAST(ts) AS ended, LAST(DOWN.price) AS bottom, COUNT(*) AS n
    PATTERN (DOWN+ UP+) WITHIN 12
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)"""


@pytest.mark.parametrize("clause", [STREAMED, STREAMED.replace("PATTERN", "ALL ROWS PER MATCH PATTERN")])
def test_stream_cut_and_restarted_equals_a_table(spark: SparkSession, tmp_path: Path, clause: str) -> None:
    """The rows come late and out of order, in micro-batches of random size, and the stream is stopped in between."""
    rng = Random(3)
    table = ticks(240)
    arrival = sorted(range(table.num_rows), key=lambda row: row + rng.uniform(0, 5))
    batches = []
    while arrival:
        size = rng.randrange(10, 60)
        batches.append(table.take(arrival[:size]))
        arrival = arrival[size:]
    # A row that moves time past all windows. It has no row before it in its partition, so it is in no match.
    batches.append(pa.table({"sym": ["end"], "ts": [10**6], "price": [0]}, table.schema))
    stream = FileStream(spark, tmp_path, table.schema)
    half = len(batches) // 2
    for part in (batches[:half], batches[half:]):
        stream.add(part)
        stream.run(lambda frame: ouzel.spark.match_recognize(frame, clause, max_delay=5, buckets=2))
    wanted = ouzel.match_recognize(table, clause)
    assert wanted.num_rows > 10
    assert comparable(stream.answers()) == comparable(wanted.to_pylist())


def test_stream_refuses_what_it_cannot_decide(spark: SparkSession) -> None:
    events = spark.readStream.format("rate").load()
    with pytest.raises(ouzel.QueryError, match="needs WITHIN"):
        ouzel.spark.match_recognize(events, "ORDER BY timestamp PATTERN (A+)", max_delay="1 s")
    with pytest.raises(ouzel.InputError, match="max_delay"):
        ouzel.spark.match_recognize(events, "ORDER BY timestamp PATTERN (A)")
    with pytest.raises(ouzel.InputError, match="ORDER BY must begin"):
        ouzel.spark.match_recognize(events, "PATTERN (A)", max_delay="1 s")


def test_batch_refuses_options_of_streams(spark: SparkSession) -> None:
    with pytest.raises(ouzel.InputError, match="max_delay= is for streams"):
        ouzel.spark.match_recognize(spark.range(3), "ORDER BY id PATTERN (A)", max_delay=5)


def test_match_takes_row_patterns_beside_queries(spark: SparkSession) -> None:
    table = ticks(300)
    queries = {"shapes": f"MATCH_RECOGNIZE ({V_SHAPE})", "dear": "PATTERN SEQ(ANY a) WHERE a.price > 6"}
    wanted = ouzel.match(table, queries, type=None)
    for options in ({}, {"memory_limit": 1 << 24}):
        with ouzel.spark.match(from_arrow(spark, table), queries, type=None, **options) as found:
            for name, rows in found.items():
                assert comparable(to_arrow(rows).to_pylist()) == comparable(wanted[name].to_pylist()) != [], name
