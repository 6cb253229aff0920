"""`ouzel.sql`: statements around row patterns."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

import ouzel
from ouzel.errors import InputError, QueryError
from tests.agreement import case_count
from tests.engines.rows.statements import NAMES, STATEMENTS, random_statement
from tests.engines.rows.statements import TICKS as ALL
from tests.engines.rows.test_agreement import SCHEMA, comparable
from tests.oracle.row_patterns import Budget, Endless

TICKS = pa.table({"sym": list("aababb"), "ts": [1, 2, 3, 4, 5, 6], "price": [5, 3, 9, 4, 7, 8]})
RISES = "MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts MEASURES COUNT(*) AS n, LAST(price) AS top PATTERN (S UP+) DEFINE UP AS price > PREV(price))"  # noqa: E501


def rows(statement: str, **given: object) -> list[tuple[object, ...]]:
    answer = ouzel.sql(statement, **{"ticks": TICKS, **given})
    return list(zip(*(column.to_pylist() for column in answer.columns), strict=True))


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        (f"SELECT * FROM ticks {RISES}", [("a", 2, 4), ("b", 2, 8)]),
        (f"select top AS t, m.SYM from Ticks {RISES} m;", [(4, "a"), (8, "b")]),
        (f'SELECT "sym" FROM "ticks" {RISES} AS m', [("a",), ("b",)]),
    ],
)
def test_lists_of_columns_need_no_duckdb(statement: str, answer: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert sorted(rows(statement)) == sorted(answer)


def test_other_sql_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for statement in (f"SELECT max(n) FROM ticks {RISES}", f"SELECT * FROM (SELECT * FROM ticks) {RISES}"):
        with pytest.raises(InputError, match=r"pip install 'ouzel\[sql\]'"):
            rows(statement)


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        (f"SELECT sum(n) FROM ticks {RISES}", [(4,)]),
        (f"SELECT top FROM ticks {RISES} WHERE sym = 'b'", [(8,)]),
        (f"SELECT n + 1 FROM ticks AS t {RISES} m ORDER BY top DESC LIMIT 1", [(3,)]),
        (f"FROM (VALUES ('x', 1, 1), ('x', 2, 2)) v(sym, ts, price) {RISES}", [("x", 2, 2)]),
        (f"SELECT l.top, r.top FROM ticks {RISES} l JOIN ticks {RISES} r ON l.sym < r.sym", [(4, 8)]),
        (f"SELECT count(*) FROM ticks, ticks {RISES}", [(12,)]),
        # Names of WITH, of an outer one, and one that hides a table.
        (f"WITH c AS (SELECT * FROM ticks WHERE sym = 'a'), d AS (SELECT * FROM c {RISES}) SELECT n FROM d", [(2,)]),
        (f"WITH ticks AS (SELECT * FROM ticks LIMIT 2) SELECT count(*) FROM ticks {RISES}", [(0,)]),
        (
            f"WITH c AS (SELECT * FROM ticks) SELECT * FROM (WITH d AS (SELECT * FROM c WHERE sym = 'b'), "
            f"c AS (SELECT 1) SELECT top FROM d {RISES})",
            [(8,)],
        ),
        # A clause in the table of a clause.
        (
            f"SELECT count(*) FROM (SELECT 1 AS sym, n AS ts, top AS price FROM ticks {RISES}) s {RISES}",
            [(1,)],
        ),
        (f"SELECT 'ticks {RISES[:15]}(' || sym -- MATCH_RECOGNIZE (\n FROM ticks {RISES} LIMIT 1",
         [("ticks MATCH_RECOGNIZE(a",)]),
        (f"SELECT EXISTS (SELECT 1 FROM ticks {RISES} WHERE n > 5)", [(False,)]),
        ("SELECT 1", [(1,)]),
    ],
)  # fmt: skip
def test_duckdb_answers_the_sql_around(statement: str, answer: list[object]) -> None:
    assert rows(statement) == answer


@pytest.mark.parametrize("name", STATEMENTS)
def test_duckdb_answers_the_statements_that_spark_answers(name: str) -> None:
    statement, answer = STATEMENTS[name]
    statement = statement.format(ticks="ticks", names="names")
    given = {table: value for table, value in {"ticks": ALL, "names": NAMES}.items() if table in statement}
    found = ouzel.sql(statement, **given)
    assert sorted(zip(*(column.to_pylist() for column in found.columns), strict=True)) == answer


def test_random_statements_agree_with_oracle() -> None:
    compared = 0
    for seed in range(case_count(100)):
        try:
            statement, given, wanted = random_statement(seed)
        except (Budget, Endless):
            continue
        found = ouzel.sql(statement.format(rows="events"), events=pa.Table.from_pylist(given, SCHEMA))
        assert comparable(found.to_pylist()) == comparable(wanted), f"seed {seed}\n{statement}\n{given}"
        compared += 1
    assert compared > 0


def test_parameters_go_to_the_clauses_that_name_them() -> None:
    clause = "MATCH_RECOGNIZE (ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A+) DEFINE A AS price > :{})"
    statement = f"SELECT * FROM ticks {clause.format('x')} a, ticks {clause.format('y')} b"
    assert sorted(rows(statement, params={"x": 4, "y": 8})) == [(1, 1), (1, 1), (2, 1)]
    with pytest.raises(QueryError, match="no clause of the statement uses the parameter 'z'"):
        rows(statement, params={"x": 4, "y": 8, "z": 1})
    with pytest.raises(QueryError, match=r"has no value|parameter"):
        rows(statement, params={"x": 4})


def test_only_tables_that_are_given_are_visible() -> None:
    hidden = TICKS  # noqa: F841
    with pytest.raises(InputError, match=r"hidden does not exist(.|\n)*the tables given are ticks"):
        rows("SELECT * FROM hidden")
    with pytest.raises(InputError, match="hidden"):
        rows(f"SELECT * FROM hidden {RISES}")
    for function in ("read_csv('/etc/hostname')", "'/etc/hostname'"):
        with pytest.raises(InputError, match="DuckDB refuses"):
            rows(f"SELECT * FROM {function}")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "SELECT *\nFROM ticks MATCH_RECOGNIZE (\n  ORDER BY ts PATTERN (A B) DEFINE A AS prise > 3)",
            "the input has no column 'prise' (line 3, column 41)\n"
            "    ORDER BY ts PATTERN (A B) DEFINE A AS prise > 3)\n"
            "                                          ^^^^^\n"
            "hint: did you mean 'price'?",
        ),
        (
            f"SELECT topp FROM ticks {RISES}",
            "the clause gives no column 'topp' (line 1, column 8)",
        ),
        ("SELECT * FROM MATCH_RECOGNIZE (PATTERN (A))", "MATCH_RECOGNIZE needs a table before it (line 1, column 15)"),
        ("SELECT * FROM ticks MATCH_RECOGNIZE (PATTERN (A)", "the parenthesis of match_recognize is not closed"),
        ("SELECT * FROM ticks MATCH_RECOGNIZE (PATTERN (A))", "the clause gives no columns (line 1, column 38)"),
        ("SELECT * FROM ticks MATCH_RECOGNIZE (PATERN (A))", "(line 1, column 38)"),
    ],
)
def test_mistakes_have_their_place_in_the_statement(statement: str, message: str) -> None:
    with pytest.raises(QueryError) as error:
        rows(statement)
    assert message in str(error.value)


def test_lines_of_the_host_are_those_of_the_statement() -> None:
    with pytest.raises(InputError, match="LINE 4"):
        rows("SELECT *\nFROM ticks MATCH_RECOGNIZE (ORDER BY ts\nMEASURES 1 AS x PATTERN (A)) m\nWHERE nothing = ) 1")


def test_columns_keep_their_types_without_duckdb() -> None:
    table = TICKS.set_column(0, "sym", TICKS["sym"].cast(pa.large_string()))
    answer = ouzel.sql(f"SELECT sym, n FROM ticks {RISES}", ticks=table)
    assert answer.schema == pa.schema({"sym": pa.large_string(), "n": pa.int64()})


def test_sets_and_pictures_refuse_row_patterns_and_say_what_to_do() -> None:
    with pytest.raises(QueryError, match=r"(?s)a QuerySet takes .*not MATCH_RECOGNIZE.*hint: ouzel\.Engine takes"):
        ouzel.QuerySet().add("rises", RISES)
    with pytest.raises(QueryError, match=r"(?s)only matches of PATTERN queries.*hint: ALL ROWS PER MATCH"):
        ouzel.plot(TICKS, RISES, type=None)
