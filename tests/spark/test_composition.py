"""Queries that read each other's results on Spark: together where they must be, spread by what they all keep apart."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.runtime.program import make_program
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import Clock
from ouzel.spark.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIR = (
    "pair: PATTERN SEQ(A a, B b) WHERE [id] WITHIN 9 RETURN Pair(a.id AS key, a.place AS place, b.x AS x) INTO pairs;"
)


def events(rows: int = 400, seed: int = 9) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "type": rng.choices("ABC", k=rows),
            "ts": pa.array([rng.randrange(rows) for _ in range(rows)], pa.int64()),
            "id": pa.array(rng.choices(range(7), k=rows), pa.int64()),
            "place": rng.choices(["x", "y"], k=rows),
            "x": pa.array(range(rows), pa.int64()),
        }
    )


def groups(script: str) -> list:
    return plan_query_groups(
        make_program(ouzel.queries(script), events(1).schema, time="ts", type="type"), Clock(1_000)
    )


@pytest.mark.parametrize(
    ("reader", "keys"),
    [
        ("PATTERN SEQ(Pair p, Pair q) FROM pairs WHERE [key] WITHIN 30", {("id",)}),
        ("PATTERN SEQ(Pair p, Pair q) FROM pairs WHERE p.key = q.key WITHIN 30", {("id",)}),
        ("PATTERN SEQ(Pair p, C c) FROM pairs, input WHERE p.key = c.id WITHIN 30", {("id",)}),
        # Not what keeps the pairs themselves apart.
        ("PATTERN SEQ(Pair p, Pair q) FROM pairs WHERE [place] WITHIN 30", set()),
        ("PATTERN SEQ(Pair p, C c) FROM pairs, input WHERE p.key = c.x WITHIN 30", set()),
        ("PATTERN SEQ(Pair p, Pair q) FROM pairs WITHIN 30", set()),
    ],
)
def test_matches_of_matches_are_spread_by_what_all_of_them_share(reader: str, keys: set) -> None:
    (part,) = groups(f"{PAIR} reader: {reader};")
    assert set(part.keys) == keys and part.composed


def test_three_steps_without_return() -> None:
    script = """
        one: PATTERN SEQ(A a, B b) WHERE [id] WITHIN 5 INTO ones;
        two: PATTERN SEQ(ones p, ones q) FROM ones WHERE p.a.id = q.b.id WITHIN 20 INTO twos;
        three: PATTERN SEQ(twos t, twos u) FROM twos WHERE t.p.a.id = u.q.a.id WITHIN 50;
    """
    (part,) = groups(script)
    assert part.keys == (("id",),)


def test_what_is_not_composed_keeps_its_own_shuffle() -> None:
    script = f"""{PAIR} reader: PATTERN SEQ(Pair p, Pair q) FROM pairs WITHIN 30;
        other: PATTERN SEQ(A a, C c) WHERE [id] WITHIN 9;"""
    found = {part.group.queries: part.keys for part in groups(script)}
    assert found == {("pair", "reader"): (), ("other",): (("id",),)}


@pytest.mark.spark
@pytest.mark.parametrize("test", ["[key]", "[place]"])
def test_the_answer_is_that_of_the_embedded_engine(spark: SparkSession, test: str) -> None:
    table = events()
    script = f"""{PAIR}
        again: PATTERN SEQ(Pair p, !(C c), Pair q) FROM pairs, input
               WHERE {test.replace("[key]", "p.key = q.key AND p.key = c.id")} WITHIN 40 RETURN R(p.x AS p, q.x AS q);
        other: PATTERN SEQ(A a, C c) WITHIN 3 RETURN O(a.x AS a, c.x AS c);"""
    queries = ouzel.queries(script)
    source = spark.createDataFrame(table, spark_schema(table.schema)).repartition(3)
    with ouzel.spark.match(source, queries) as found:
        for name, expected in ouzel.match(table, queries).items():
            rows = found[name].toArrow().to_pylist()
            assert sorted(map(repr, rows)) == sorted(map(repr, expected.to_pylist())) != [], name
