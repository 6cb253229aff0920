"""Row patterns over streams: the answer is that of the same rows as one table, and each match comes out once it is
final."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.prepared import as_queries
from ouzel.runtime.program import make_program
from ouzel.runtime.session import Session
from tests.agreement import case_count
from tests.engines.rows.random_patterns import random_clause, random_rows
from tests.engines.rows.test_agreement import SCHEMA, comparable

CASES = case_count(500)
PARTS = 20
DELAY = 2


def streamable(clause: str, rng: Random) -> str:
    """A random clause without what streams refuse."""
    for given, instead in (
        ("MATCH_NUMBER()", "COUNT(*)"),
        ("($)", "()"),
        ("WITH UNMATCHED ROWS", "SHOW EMPTY MATCHES"),
        (" DESC", ""),
    ):
        clause = clause.replace(given, instead)
    if "WITHIN" not in clause:
        with_window = clause.replace("PATTERN (", f"WITHIN {rng.randrange(1, 5)} PATTERN (")
        if rng.random() < 0.5:
            return with_window
        try:
            ouzel.Engine(f"MATCH_RECOGNIZE ({clause})", time="t", schema=SCHEMA)
        except ouzel.QueryError as error:
            assert "needs WITHIN" in error.message
            return with_window
    return clause


def streamed(clause: str, rows: list[dict[str, Any]], rng: Random) -> list[dict[str, Any]]:
    """The answer of an engine that gets the rows late and in parts, and is stored and restored in between."""
    engine = ouzel.Engine(f"MATCH_RECOGNIZE ({clause})", time="t", schema=SCHEMA, max_delay=DELAY)
    rows = sorted(rows, key=lambda row: row["t"] + rng.randrange(DELAY + 1))
    found = []
    while rows:
        count = rng.randrange(1, 4)
        batch: Any = rows[:count]
        rows = rows[count:]
        if rng.random() < 0.3:
            batch = pa.Table.from_pylist(batch, SCHEMA)
        found += engine.push(batch)["query"].to_pylist()
        if rng.random() < 0.3:
            engine = ouzel.Engine.restore(engine.snapshot())
    assert engine.late == 0
    return found + engine.finish()["query"].to_pylist()


def check(seed: int) -> None:
    rng = Random(seed)
    clause, rows = streamable(random_clause(rng), rng), random_rows(rng)
    table = pa.Table.from_pylist(rows, SCHEMA)
    try:
        wanted = comparable(ouzel.match_recognize(table, clause).to_pylist())
    except ouzel.InputError:
        with pytest.raises(ouzel.InputError, match="AFTER MATCH SKIP TO"):
            streamed(clause, rows, rng)
        return
    assert comparable(streamed(clause, rows, rng)) == wanted, f"seed {seed}\n{clause}\n{rows}"


@pytest.mark.quick
@pytest.mark.parametrize("part", range(PARTS))
def test_random_streams_agree_with_tables(part: int) -> None:
    for seed in range(part, CASES, PARTS):
        check(seed)


@pytest.mark.compiled
def test_random_streams_agree_with_tables_compiled() -> None:
    """Compiled kernels refuse arrays that they may not write to, such as those of restored rows."""
    for seed in range(1000, 1100):
        check(seed)


@pytest.mark.compiled
def test_kernels_read_times_in_the_memory_of_the_input() -> None:
    table = pa.table({"ts": pa.array(range(6), pa.int64()), "v": [1, 2, 1, 2, 1, 2]})
    query = as_queries("MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(ts) AS a PATTERN (A B) DEFINE B AS v = 2)", {})
    session = Session(make_program(query, table.schema, time="ts", type=None))
    session.push(table, zero_copy=True)
    assert session.finish()["query"]["a"].to_pylist() == [0, 2, 4]


def given_out(clause: str, values: list[tuple[int, Any]], **options: Any) -> list[list[dict[str, Any]]]:
    """What comes out after each row, and at the end."""
    engine = ouzel.Engine(f"MATCH_RECOGNIZE ({clause})", **options)
    found = [engine.push([{"ts": ts, "v": v}])["query"].to_pylist() for ts, v in values]
    return [*found, engine.finish()["query"].to_pylist()]


ENDS = "ORDER BY ts MEASURES FIRST(ts) AS began, LAST(ts) AS ended"


@pytest.mark.parametrize(
    ("clause", "values", "wanted"),
    [
        # A pattern of fixed length ends with its last row. A row is known when time has moved on.
        ("PATTERN (A B) DEFINE A AS v = 1, B AS v = 2", [(1, 1), (2, 2), (3, 0)], [[], [], [(1, 2)], []]),
        # The preferred way may still go on until a row that does not fit.
        ("PATTERN (A{1,3}) DEFINE A AS v = 1", [(1, 1), (2, 1), (3, 0), (4, 0)], [[], [], [], [(1, 2)], []]),
        ("PATTERN (A{1,3}?) DEFINE A AS v = 1", [(1, 1), (2, 0), (3, 0)], [[], [(1, 1)], [], []]),
        # WITHIN closes when no row inside the window can come.
        ("PATTERN (A+) WITHIN 3 DEFINE A AS v = 1", [(1, 1), (2, 1), (9, 0)], [[], [], [(1, 2)], []]),
        ("PATTERN (A+) WITHIN 3 DEFINE A AS v = 1", [(1, 1), (4, 0)], [[], [(1, 1)], []]),
        # NEXT waits for its row.
        ("PATTERN (A) DEFINE A AS NEXT(v) > v", [(1, 1), (2, 2), (3, 0), (4, 0)], [[], [], [(1, 1)], [], []]),
    ],
)
def test_each_match_comes_out_once_it_is_final(clause: str, values: Any, wanted: Any) -> None:
    found = given_out(f"{ENDS} {clause}", values)
    assert [[(row["began"], row["ended"]) for row in rows] for rows in found] == wanted


def test_rows_are_held_no_longer_than_needed() -> None:
    engine = ouzel.Engine(
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(v) AS v PATTERN (A B) DEFINE B AS v > PREV(v, 2))"
    )
    for ts in range(200):
        engine.push([{"ts": ts, "k": ts % 3, "v": 0}])
        # Two rows for PREV, the last one as a start, for each partition; one row is not known yet.
        assert engine.held_events <= 3 * 3 + 1


@pytest.mark.compiled
@pytest.mark.parametrize("window", ["", "WITHIN 3000"])
def test_many_partitions_in_small_pushes(window: str) -> None:
    """Rows that no match can read leave some time later, and count as gone at once."""
    rng = Random(5)
    table = pa.table(
        {
            "k": [rng.randrange(700) for _ in range(9_000)],
            "ts": range(9_000),
            "v": [rng.randrange(9) for _ in range(9_000)],
        }
    )
    clause = f"""PARTITION BY k ORDER BY ts MEASURES FIRST(ts) AS began, LAST(v) AS v
        PATTERN (A B?) {window} DEFINE A AS v < PREV(v), B AS v > PREV(v)"""
    engine = ouzel.Engine(f"MATCH_RECOGNIZE ({clause})", time="ts", schema=table.schema)
    found, at, most = [], 0, 0
    while at < table.num_rows:
        count = rng.randrange(1, 15)
        found += engine.push(table.slice(at, count))["query"].to_pylist()
        at += count
        most = max(most, engine.held_events)
        if rng.random() < 0.01:
            engine = ouzel.Engine.restore(engine.snapshot())
    found += engine.finish()["query"].to_pylist()
    assert comparable(found) == comparable(ouzel.match_recognize(table, clause).to_pylist())
    # The row that PREV reads, and one that may start a match, of each partition; one push is not known yet.
    assert most <= 2 * 700 + 15


def test_state_counts_the_rows_that_a_match_may_read() -> None:
    query = as_queries("MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts PATTERN (A B) DEFINE B AS v > PREV(v))", {})
    rows = pa.table({"k": [n % 2 for n in range(50)], "ts": range(50), "v": [1] * 50})
    session = Session(make_program(query, rows.schema, time="ts", type=None))
    for at in range(0, 50, 10):
        session.push(rows.slice(at, 10))
        session.advance(at + 10)
    assert session.open_by_key("query") == [((0,), 2, 46), ((1,), 2, 47)]
    assert session.held_events == 4


def test_limit_of_held_rows() -> None:
    clause = "MATCH_RECOGNIZE (ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A+) WITHIN 1000)"
    engine = ouzel.Engine(clause, limits={"max_buffered_events": 10})
    with pytest.raises(ouzel.LimitError, match="max_buffered_events=10"):
        engine.push([{"ts": ts} for ts in range(20)])


def test_time_alone_completes_a_match() -> None:
    engine = ouzel.Engine(f"MATCH_RECOGNIZE ({ENDS} PATTERN (A+) WITHIN 10 DEFINE A AS v > 0)")
    engine.push([{"ts": 1, "v": 1}, {"ts": 2, "v": 1}])
    assert engine.advance(9)["query"].num_rows == 0
    assert engine.advance(10)["query"].to_pylist() == [{"began": 1, "ended": 2}]


def test_windows_in_the_unit_of_the_stream() -> None:
    clause = f"{ENDS} PATTERN (A+) WITHIN 1 min"
    found = given_out(clause, [(0, 1), (59, 1), (60, 1)], time="ts", time_unit="s")
    assert found == [[], [], [{"began": 0, "ended": 59}], [{"began": 60, "ended": 60}]]
    with pytest.raises(ouzel.QueryError, match="bare number") as raised:
        ouzel.match_recognize([{"ts": 0, "v": 1}], clause)
    assert raised.value.hint == "write a number"


def test_row_patterns_and_queries_share_an_engine() -> None:
    engine = ouzel.Engine(
        {
            "rows": "MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(ts) AS a PATTERN (A B) DEFINE B AS x > :least)",
            "events": "PATTERN SEQ(S a, S b) WITHIN 5 RETURN Pair(a.ts AS a)",
        },
        params={"least": 1},
    )
    found = engine.push([{"type": "S", "ts": ts, "x": ts} for ts in range(4)])
    assert found["rows"].to_pylist() == [{"a": 1}]
    assert found["events"].num_rows == 3


REFUSED = [
    ("ORDER BY v PATTERN (A B)", "must be the time column 'ts'"),
    ("ORDER BY ts DESC PATTERN (A B)", "must be the time column 'ts'"),
    ("PATTERN (A B)", "must be the time column 'ts'"),
    ("ORDER BY ts PATTERN (A B $)", r"\$ cannot be used over a stream"),
    ("ORDER BY ts MEASURES MATCH_NUMBER() AS n PATTERN (A B)", "MATCH_NUMBER cannot be used over a stream"),
    ("ORDER BY ts ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A B)", "WITH UNMATCHED ROWS cannot"),
    ("ORDER BY ts PATTERN (A+ B)", "needs WITHIN"),
]


@pytest.mark.parametrize(("clause", "message"), REFUSED)
def test_what_streams_refuse(clause: str, message: str) -> None:
    schema = pa.schema({"ts": pa.int64(), "v": pa.int64()})
    with pytest.raises(ouzel.QueryError, match=message) as raised:
        ouzel.Engine(f"MATCH_RECOGNIZE ({clause})", schema=schema)
    assert raised.value.hint


def test_row_patterns_are_explained_one_by_one() -> None:
    with pytest.raises(ouzel.InputError, match="one by one"):
        ouzel.explain(["MATCH_RECOGNIZE (ORDER BY ts PATTERN (A B))", "PATTERN SEQ(A a, B b) WITHIN 5"])
