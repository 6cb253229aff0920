"""Ouzel from SQL: statements with `ouzel_match` in place of a table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.errors import InputError, QueryError
from ouzel.spark import statements
from ouzel.spark.schema import spark_schema
from tests.spark.test_batch import as_set, random_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIR = "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.x < b.x WITHIN 20 RETURN Pair(a.id AS id, b.x - a.x AS gain)"
STRUCTS = "PATTERN SEQ(A a, B b) WITHIN 3"


# ── Cutting, without Spark ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What Spark gets, and what `match` gets."""
    calls: list[tuple[Any, Any, dict[str, Any]]] = []

    class Frame:
        pass

    def match(events: Any, query: Any, **options: Any) -> Any:
        calls.append((events, query, options))
        return Frame()

    monkeypatch.setattr(statements, "DataFrame", Frame)
    monkeypatch.setattr(statements, "match", match)

    def run(statement: str, **names: Any) -> tuple[str, list[tuple[Any, Any, dict[str, Any]]]]:
        calls.clear()
        written: list[str] = []
        spark = SimpleNamespace(
            sql=lambda text, **frames: (
                written.append(text.format(**{name: f"<{name}>" for name in frames} or {}))
                if frames
                else written.append(text)
            ),
            table=lambda name: f"table {name}",
        )
        statements.sql(spark, statement, **names)  # type: ignore[arg-type]
        return written[-1], list(calls)

    return run


@pytest.mark.parametrize(
    "events", ["readings", "TABLE(readings)", "table readings", "`my db`.readings", "/* a, (b */ readings -- x)\n"]
)
def test_events_may_be_tables(cut: Any, events: str) -> None:
    text, calls = cut(f"SELECT * FROM ouzel_match({events}, 'PATTERN A a', time => 'at', type => NULL) AS m")
    assert text == "SELECT * FROM <ouzel_match_0> AS m"
    ((given, query, options),) = calls
    assert given in ("table readings", "table `my db`.readings")
    assert (query, options) == ("PATTERN A a", {"time": "at", "type": None})


def test_names_of_users(cut: Any) -> None:
    frame = object()
    text, calls = cut("SELECT {x} FROM OUZEL_MATCH ({r}, {q}, memory_limit => 5) JOIN {r}", r=frame, q="PATTERN", x=3)
    assert text == "SELECT <x> FROM <ouzel_match_0> JOIN <r>"
    assert calls == [(frame, "PATTERN", {"memory_limit": 5})]


def test_several_calls_and_subqueries(cut: Any) -> None:
    inner = "SELECT * FROM ouzel_match(a, 'P (1') WHERE x = ')'"
    text, calls = cut(f"SELECT * FROM ouzel_match(TABLE({inner}), 'Q') x, ouzel_match(b, 'R') y")
    assert text == "SELECT * FROM <ouzel_match_1> x, <ouzel_match_2> y"
    assert [query for _, query, _ in calls] == ["P (1", "Q", "R"]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'ouzel_match(a, b)', \"{x}\", `ouzel_match`(1) -- ouzel_match(",
        "SELECT 1 /* ouzel_match( /* nested */ 'x */ , {y}",
        "SELECT ouzel_match, db.ouzel_match(1), r'\\', 'it\\'s ouzel_match(', 'a''ouzel_match('",
        "SELECT 'not closed ouzel_match",
    ],
)
def test_what_is_no_call_stays_as_it_is(cut: Any, statement: str) -> None:
    assert cut(statement) == (statement, [])
    # With a name, Spark reads braces, so all others are escaped.
    assert cut(f"{statement.partition('--')[0]}\n{{r}}", r=1)[0] in (f"{statement.partition('--')[0]}\n<r>",)


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("'a.name = ''x'''", "a.name = 'x'"),
        ("\"a.name = 'x'\"", "a.name = 'x'"),
        ("'a\\'b\\n\\\\ \\u00e9 \\101 \\%'", "a'b\n\\ é A \\%"),
        ("r'a\\d'", "a\\d"),
        ("'} {x} ; DROP TABLE readings --'", "} {x} ; DROP TABLE readings --"),
    ],
)
def test_literals_have_the_value_that_spark_gives_them(cut: Any, literal: str, text: str) -> None:
    written, ((_, query, _),) = cut(f"SELECT * FROM ouzel_match(readings, {literal})")
    assert (written, query) == ("SELECT * FROM <ouzel_match_0>", text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("readings", "takes events and a query, and this call has 1"),
        ("readings, 'P', 'Q'", "takes events and a query, and this call has 3"),
        ("1, 'P'", "the events '1' of ouzel_match must be a table"),
        ("readings, concat('P', 'Q')", r"the argument \"concat\('P', 'Q'\)\" of ouzel_match must be a literal"),
        ("readings, {q}", "there is no {q} among the names given to ouzel.spark.sql; add q="),
        ("readings, time => 'ts', 'P'", "arguments without a name come first"),
        ("readings, 'P', tme => 'ts'", "ouzel_match has no option 'tme'; did you mean 'time'"),
        ("readings, 'P'", r"the parenthesis of ouzel_match is not closed \(line 1, column 26\)"),
    ],
)
def test_mistakes_are_named(cut: Any, call: str, message: str) -> None:
    with pytest.raises((InputError, QueryError), match=message):
        cut(f"SELECT * FROM ouzel_match({call}{'' if 'closed' in message else ')'}")


# ── With Spark ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spark
@pytest.mark.parametrize("query", [PAIR, STRUCTS])
def test_sql_gives_the_answer_of_the_embedded_engine(spark: SparkSession, query: str) -> None:
    table = random_events(seed=6, rows=200)
    frame = spark.createDataFrame(table, spark_schema(table.schema))
    frame.createOrReplaceTempView("readings")
    expected = as_set(ouzel.match(table, query))
    assert as_set(ouzel.spark.sql(spark, f"SELECT * FROM ouzel_match(TABLE(readings), '{query}') m")) == expected != []
    named = ouzel.spark.sql(spark, "SELECT m.* FROM ouzel_match({r}, {q}) m WHERE '{r}' <> ''", r=frame, q=query)
    assert as_set(named) == expected
    with pytest.raises(QueryError, match="idd"):
        ouzel.spark.sql(spark, "SELECT * FROM ouzel_match(readings, 'PATTERN SEQ(A a, B b) WHERE [idd] WITHIN 5')")


@pytest.mark.spark
def test_moments_keep_their_instant(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        (row,) = ouzel.spark.sql(
            spark,
            "SELECT unix_micros(start) AS first, unix_micros(b.at) AS second FROM ouzel_match("
            "TABLE(SELECT * FROM VALUES ('A', timestamp_micros(7)), ('B', timestamp_micros(9)) AS t(kind, at)), "
            "'PATTERN SEQ(A a, B b) WITHIN 3 us', time => 'at', type => 'kind')",
        ).collect()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert (row.first, row.second) == (7, 9)


# ── MATCH_RECOGNIZE ────────────────────────────────────────────────────────────────────────────────

DIPS = """MATCH_RECOGNIZE (
    PARTITION BY sym ORDER BY ts MEASURES COUNT(*) AS n, LAST(price) AS price
    PATTERN (DOWN{1,} UP) DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price) + :rise)"""


@pytest.mark.spark
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT sym, n, price FROM {ticks} " + DIPS,
        "SELECT m.sym, max(m.n) AS n FROM ticks AS t " + DIPS + " AS m JOIN {names} USING (sym) GROUP BY m.sym",
        "WITH late AS (SELECT * FROM ticks WHERE ts > 20), dips AS (SELECT * FROM late " + DIPS + ")\n"
        "SELECT (SELECT count(*) FROM dips) AS n, '{ticks}' AS text",
        "SELECT count(*) AS n FROM (SELECT sym, n AS ts, price FROM ticks " + DIPS + ") " + DIPS,
    ],
)
def test_clauses_on_spark_give_what_duckdb_gives(spark: SparkSession, statement: str) -> None:
    from tests.spark.test_row_patterns import ticks

    table, names = ticks(300), pa.table({"sym": ["s1", "s2"]})
    frame = spark.createDataFrame(table.to_pandas())
    frame.createOrReplaceTempView("ticks")
    found = ouzel.spark.sql(
        spark, statement, ticks=frame, names=spark.createDataFrame(names.to_pandas()), params={"rise": 1}
    )
    plain = statement.replace("FROM {ticks}", "FROM ticks").replace("{names}", "names")
    wanted = ouzel.sql(plain, ticks=table, names=names, params={"rise": 1})
    assert found.columns == wanted.column_names
    assert sorted(map(tuple, found.collect())) == sorted(tuple(row.values()) for row in wanted.to_pylist()) != []


@pytest.mark.spark
def test_mistakes_in_clauses_have_their_place_in_the_statement(spark: SparkSession) -> None:
    statement = "SELECT *\nFROM {t} MATCH_RECOGNIZE (ORDER BY idd PATTERN (A))"
    with pytest.raises(QueryError, match=r"no column 'idd' \(line 2, column 36\)"):
        ouzel.spark.sql(spark, statement, t=spark.range(3))
    with pytest.raises(QueryError, match="the statement does not use 'max_delay'"):
        ouzel.spark.sql(spark, "SELECT 1 AS one", max_delay="1 min")
    with pytest.raises(QueryError, match="no clause of the statement uses the parameter 'x'"):
        ouzel.spark.sql(spark, "SELECT 1", params={"x": 1})
