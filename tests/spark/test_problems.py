"""A query that fails on Spark fails the job, or is reported while the others run on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.errors import InputError, LimitError, OuzelError
from tests.generate.cases import counted
from tests.spark.streams import FileStream
from tests.spark.together import collect_together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# The counts of "all", "total" and "summed" do not fit 64 bits; "many" and "near" pass a limit. The key 1 has too few
# events for that. Each query is spread in another way.
BAD = {
    "all": "PATTERN SEQ(A+ a[], B b) GROUP BY id AGG COUNT(*) AS n WITHIN 1000",
    "many": "PATTERN SEQ(A a, A b, B c) WHERE [id] WITHIN 1000",
    "total": "PATTERN SEQ(A+ a[], B b) AGG COUNT(*) AS n WITHIN 1000",
    "summed": "PATTERN SEQ(A+ a[], B b) WHERE [id] AGG COUNT(*) AS n WITHIN 1000",
    "near": "PATTERN SEQ(A a, A b, B c) WITHIN 60 EVENTS",
}
GOOD = {
    "pair": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 50 RETURN Pair(a.ts AS a, b.ts AS b)",
    "two": "PATTERN SEQ(A a, B b) GROUP BY id AGG COUNT(*) AS n WITHIN 1000",
    "any": "PATTERN SEQ(A a, B b) WITHIN 2 RETURN Any(a.ts AS a, b.ts AS b)",
    "sum": "PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT(*) AS n WITHIN 1000",
}
LIMITS = {"max_matches_per_timestamp": 100}
SCHEMA = pa.schema({"type": pa.string(), "ts": pa.int64(), "id": pa.int64()})


TICK, END = ([{"type": "Z", "ts": ts, "id": 0}] for ts in (150, 10**6))


def events() -> pa.Table:
    """Of key 0 many A's, of key 1 few, then B's of both; later few of both."""
    rows = [("A", ts, 0) for ts in range(1, 80)] + [("A", 81, 1), ("B", 82, 1), ("B", 83, 0)]
    rows += [("A", 184, 0), ("A", 185, 1), ("B", 186, 0), ("B", 187, 1)]
    return table([dict(zip(SCHEMA.names, row, strict=True)) for row in rows])


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def rows_of(tables: list[pa.Table]) -> list[dict[str, Any]]:
    return [row for table in tables for row in table.to_pylist()]


def test_a_batch_reports_problems_beside_the_rows_of_other_queries(spark: SparkSession) -> None:
    frame = spark.createDataFrame(events())
    expected = ouzel.match(events(), GOOD)
    for options in ({}, {"memory_limit": 1}):
        with ouzel.spark.match(frame, BAD | GOOD, limits=LIMITS, on_error="report", **options) as found:
            answers = {name: rows_of(tables) for name, tables in collect_together(found).items()}
        for name, rows in expected.items():
            wanted = [{**row, "problem": None} for row in rows.to_pylist()]
            assert counted(answers[name]) == counted(wanted) != {}, name
        for name in BAD:
            problems = [row for row in answers[name] if row["problem"] is not None]
            assert problems and all(f"query '{name}' stopped" in row["problem"] for row in problems), name
            assert all(value is None for row in problems for key, value in row.items() if key != "problem")
        # What is missing in one part is missing in the whole.
        assert all(row["problem"] is not None for row in answers["summed"])
    (row,) = ouzel.spark.match(frame, BAD["total"], on_error="report").collect()
    assert "COUNT AS DECIMAL" in row["problem"] and row["n"] is None


@pytest.mark.parametrize("name", ["many", "summed"])
def test_a_batch_fails_with_the_name_of_the_query(spark: SparkSession, name: str) -> None:
    found = ouzel.spark.match(spark.createDataFrame(events()), {name: BAD[name]} | GOOD, limits=LIMITS)
    with found, pytest.raises(LimitError, match=f"query '{name}'"), ouzel.spark.unwrap_errors():
        found[name].collect()


def test_stopped_queries_stay_stopped_after_restart(spark: SparkSession, tmp_path: Path) -> None:
    bad = {name: BAD[name] for name in ("all", "many", "summed")}
    good = {name: GOOD[name] for name in ("pair", "sum")}

    def step(limits: dict[str, int], **options: str) -> Any:
        def found(frame: DataFrame) -> DataFrame:
            return ouzel.spark.match(frame, bad | good, limits=limits, max_delay=0, buckets=2, **options)

        return found

    stream = FileStream(spark, tmp_path, SCHEMA)
    stream.add([events().slice(0, 82), table(TICK)])
    stream.run(step(LIMITS, on_error="report"))
    before = stream.answers()
    problems = [row for row in before if row["problem"] is not None]
    assert {row["query"] for row in problems} == set(bad)
    assert all(row[row["query"]] is None and f"query '{row['query']}' stopped" in row["problem"] for row in problems)
    # The limit would not stop "many" again, but its rows of this bucket would have a gap.
    stream.add([events().slice(82), table(END)])
    stream.run(step({"max_matches_per_timestamp": 10**6}, on_error="report"))
    after = stream.answers()
    assert counted([row for row in after if row["problem"] is not None]) == counted(problems)
    for name, rows in ouzel.match(events(), good).items():
        assert counted([row[name] for row in after if row["query"] == name]) == counted(rows.to_pylist()) != {}, name
    # Before the total stopped, and of the key for which the limit is enough.
    ends = {(row["query"], row[row["query"]]["end"]) for row in after if row["problem"] is None}
    assert {end for end in ends if end[0] in ("many", "summed")} <= {("summed", 82), ("many", 187)}
    stream.add([table([{"type": "A", "ts": 10**6 + 1, "id": 0}])])
    with pytest.raises(OuzelError, match=r"query '.*' stopped"), ouzel.spark.unwrap_errors():
        stream.run(step(LIMITS))


def test_what_cannot_be_reported_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame(events())
    named = "PATTERN SEQ(A a, B b) WITHIN 5 RETURN P(a.ts AS problem)"
    with pytest.raises(InputError, match="adds a column 'problem'"):
        ouzel.spark.match(frame, {"a": named}, on_error="report")
    with pytest.raises(InputError, match="neither 'fail' nor 'report'"):
        ouzel.spark.match(frame, named, on_error="ignore")
