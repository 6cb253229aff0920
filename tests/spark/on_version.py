"""What must hold on every version of Spark: `make test-versions` runs this file on each, in an environment of its own.

Batches and streams of every kind of query, with restarts, sets of queries, and Spark Connect. A version without streams
must refuse them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.errors import InputError
from ouzel.spark.versions import ROWS_SINCE, STREAMS_SINCE, from_arrow, to_arrow, version_of
from tests.golden.answers import disagreement
from tests.golden.format import read_all
from tests.spark.streams import FileStream
from tests.spark.test_query_sets import END, embedded, keyed_set, mixed_set, random_quotes, rows_of, same
from tests.spark.test_stream_random import QUERIES as QUERIES_OF_ALL_KINDS
from tests.spark.ways import SparkBatch, SparkStream, gap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
CASES = [case for case in read_all() if gap(case) is None][:: int(os.environ.get("OUZEL_CASES_STEP", "6"))]
# A total over all keys, time slices, ranges: each has a shuffle of its own.
QUERIES = QUERIES_OF_ALL_KINDS | {"total": "PATTERN SEQ(A a, B b) AGG COUNT WHERE [id] WITHIN 5"}
WITHOUT_KEY = {
    "slices": "PATTERN SEQ(A a, !(C c), B b) WITHIN 3 RETURN P(a.row AS a, b.row AS b)",
    "ranges": "PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) { } RETURN P(a.row AS a, b.row AS b)",
}


def events(rows: int = 600) -> pa.Table:
    chance = random.Random(1)
    return pa.table(
        {
            "type": [chance.choice("AABCD") for _ in range(rows)],
            "ts": [2 * row // 3 for row in range(rows)],
            "id": [chance.randrange(3) for _ in range(rows)],
            "x": [chance.choice([None, 0, 1, 2, 3]) for _ in range(rows)],
            "row": list(range(rows)),
        }
    )


def as_sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_golden_batches(spark: SparkSession) -> None:
    way = SparkBatch(spark, CASES)
    problems = {case.identity: disagreement(case, way.run(case)) for case in CASES}
    assert problems and {name for name, problem in problems.items() if problem} == set()


def test_batches_of_all_kinds(spark: SparkSession) -> None:
    table = events()
    frame = from_arrow(spark, table).repartition(3)
    expected = ouzel.match(table, QUERIES | WITHOUT_KEY)
    for options in ({}, {"memory_limit": 1 << 24}):
        with ouzel.spark.match(frame, QUERIES | WITHOUT_KEY, **options) as found:
            for name, rows in found.items():
                assert as_sorted(to_arrow(rows)) == as_sorted(expected[name]) != [], name
    for make in (keyed_set, mixed_set):
        quotes = random_quotes(1, 150)
        answers = to_arrow(ouzel.spark.match_set(from_arrow(spark, quotes), make()))
        same(rows_of(answers), embedded(make(), quotes))
    compressed = "PATTERN SEQ(A+ a[], B b) WHERE [id] WITHIN 4 OUTPUT COMPRESSED"
    found_rows = ouzel.spark.match(frame, compressed)
    listed = ouzel.expand(ouzel.match(table, compressed), compressed)
    assert as_sorted(to_arrow(ouzel.spark.expand(found_rows, compressed))) == as_sorted(listed)
    assert to_arrow(ouzel.spark.expand(found_rows, compressed, first=7)).num_rows == 7
    with pytest.raises(InputError, match="is null in 1 of"), ouzel.spark.unwrap_errors():
        bad = spark.createDataFrame([("A", None, 1)], "type string, ts long, id long")
        ouzel.spark.match(bad, "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 3").collect()


def test_golden_streams_with_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    if version_of(spark) < STREAMS_SINCE:
        return  # see the next test
    way = SparkStream(spark, tmp_path, CASES, restarted=True)
    problems = {case.identity: disagreement(case, way.run(case)) for case in CASES if way.gap(case) is None}
    assert problems and {name for name, problem in problems.items() if problem} == set()


def test_streams_of_all_kinds_with_restarts(spark: SparkSession, tmp_path: Path) -> None:
    table = events(240)
    stream = FileStream(spark, tmp_path, table.schema)
    stream.add([table.slice(first, 60) for first in range(0, 240, 60)])
    if version_of(spark) < STREAMS_SINCE:
        with pytest.raises(InputError, match=r"^streams need Spark 4\.0 or newer and this is 3\.5; on it Ouzel runs"):
            ouzel.spark.match(stream.events(), QUERIES, max_delay=3)
        return
    listener = ouzel.spark.Listener()
    spark.streams.addListener(listener)
    try:
        for more in ([], [table.slice(0, 8)], [end_of(table)]):
            stream.add(more)
            stream.run(lambda frame: ouzel.spark.match(frame, QUERIES, max_delay=3, late=True))
        status = {one.query: one for one in listener.progress()}
    finally:
        spark.streams.removeListener(listener)
    found = stream.answers()
    for name, rows in ouzel.match(table, QUERIES).items():
        own = [row[name] for row in found if row["query"] == name and row["late"] is None]
        assert sorted(map(repr, own)) == as_sorted(rows) != [], name
        assert status[name].matches == rows.num_rows, name
    late = [row["late"]["row"] for row in found if row["late"] is not None and row["query"] == "lonely"]
    assert sorted(late) == [row for row in range(8) if table["type"][row].as_py() in "AB"] != []
    assert ouzel.spark.state(stream.checkpoint, spark).where("query = 'lonely'").count() > 0


def test_sets_of_queries_over_a_stream_with_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    quotes = random_quotes(2, 120)
    files = FileStream(spark, tmp_path, quotes.schema)

    def step(frame: DataFrame) -> DataFrame:
        return ouzel.spark.match_set(frame, keyed_set(), max_delay=2, buckets=2)

    files.add([quotes.slice(0, 50), quotes.slice(50, 20)])
    if version_of(spark) < STREAMS_SINCE:
        with pytest.raises(InputError, match=r"^streams need Spark 4\.0 or newer"):
            step(files.events())
        return
    files.run(step)
    files.add([quotes.slice(70), END])
    files.run(step)
    same(rows_of(files.answer_table()), embedded(keyed_set(), quotes))


def end_of(table: pa.Table) -> pa.Table:
    """An event that no query wants, long after the last."""
    last: dict[str, Any] = {"type": "Z", "ts": 10**6, "id": 0, "x": None, "row": -1}
    return pa.table({name: [value] for name, value in last.items()}).cast(table.schema)


CONNECT = """
import sys
from pathlib import Path
import ouzel, ouzel.spark
from ouzel.errors import InputError
from ouzel.spark.versions import from_arrow, to_arrow
from tests.spark.on_version import QUERIES, as_sorted, end_of, events
from tests.spark.streams import FileStream
settings = {"spark.remote": "local[2]", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": 2}
spark = ouzel.spark.session("connect", **settings)
table = events(240)
expected = ouzel.match(table, QUERIES)
try:
    with ouzel.spark.match(from_arrow(spark, table), QUERIES) as found:
        assert all(as_sorted(to_arrow(rows)) == as_sorted(expected[name]) for name, rows in found.items())
    stream = FileStream(spark, Path(sys.argv[1]), table.schema)
    for more in ([table.slice(0, 100)], [table.slice(100), end_of(table)]):
        stream.add(more)
        stream.run(lambda frame: ouzel.spark.match(frame, QUERIES, max_delay=3))
    for name, rows in expected.items():
        own = [row[name] for row in stream.answers() if row["query"] == name]
        assert sorted(map(repr, own)) == as_sorted(rows) != [], name
    print("ALL")
except InputError as error:
    print(error)
spark.stop()
"""


def test_spark_connect(spark: SparkSession, tmp_path: Path) -> None:
    version = version_of(spark)
    if version < STREAMS_SINCE:
        return  # PySpark comes without a server then
    environment = {**os.environ, "SPARK_TESTING": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    said = "ALL" if version >= ROWS_SINCE else "over Spark Connect, streams need Spark 4.1 or newer"
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith(said), done.stdout + done.stderr[-3000:]
