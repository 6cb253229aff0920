"""MATCH_RECOGNIZE on Spark gives what it gives embedded."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from tests.engines.rows.random_patterns import random_clause, random_rows
from tests.engines.rows.test_agreement import SCHEMA, comparable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def test_order_is_required(spark: SparkSession) -> None:
    with pytest.raises(ouzel.InputError, match="ORDER BY"):
        ouzel.spark.match_recognize(spark.range(3), "PATTERN (A) DEFINE A AS id > 0")


def test_stream_is_refused(spark: SparkSession) -> None:
    events = spark.readStream.format("rate").load()
    with pytest.raises(ouzel.InputError, match="for batches"):
        ouzel.spark.match_recognize(events, "ORDER BY timestamp PATTERN (A) DEFINE A AS value > 0")
