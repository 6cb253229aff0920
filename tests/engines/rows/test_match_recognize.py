"""`ouzel.match_recognize`: inputs, limits, large patterns, and errors with their places."""

from __future__ import annotations

import datetime
from itertools import count

import pyarrow as pa
import pytest

import ouzel

ROWS = pa.table({"k": ["a", "a", "b", "a"], "t": [1, 2, 3, 4], "v": [5, 3, 4, 9]})


def answer(clause: str, table: object = ROWS, **options: object) -> list[dict[str, object]]:
    return ouzel.match_recognize(table, clause, **options).to_pylist()


def test_columns_of_one_row_per_match_are_keys_and_measures() -> None:
    found = ouzel.match_recognize(ROWS, "PARTITION BY k ORDER BY t MEASURES LAST(v) AS m PATTERN (A+)")
    assert found.column_names == ["k", "m"]
    assert found.to_pylist() == [{"k": "a", "m": 9}, {"k": "b", "m": 4}]


def test_columns_of_all_rows_are_keys_order_measures_and_others() -> None:
    clause = "PARTITION BY k ORDER BY t MEASURES COUNT(*) AS n ALL ROWS PER MATCH PATTERN (A+)"
    assert ouzel.match_recognize(ROWS, clause).column_names == ["k", "t", "n", "v"]


def test_parameters_and_durations() -> None:
    times = [datetime.datetime(2024, 5, 1, 12, minute) for minute in (0, 1, 9)]
    clause = "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A+) WITHIN {} DEFINE A AS v >= :low"
    table = pa.table({"ts": times, "v": [1, 2, 3]})
    assert answer(clause.format("5 min"), table, params={"low": 1}) == [{"n": 2}, {"n": 1}]
    assert answer(clause.format("INTERVAL '5' MINUTE"), table, params={"low": 2}) == [{"n": 1}, {"n": 1}]


def test_more_positions_than_a_word_has_bits() -> None:
    table = pa.table({"i": range(2_000)})
    assert answer("ORDER BY i MEASURES COUNT(*) AS n PATTERN (A{1000})", table) == [{"n": 1000}, {"n": 1000}]
    found = answer("ORDER BY i MEASURES COUNT(*) AS n PATTERN (A{100,300} B) DEFINE A AS i < 250, B AS i = 250", table)
    assert found == [{"n": 251}]


def test_more_variables_than_a_byte_has_bits() -> None:
    names = [f"V{number}" for number in range(20)]
    defined = ", ".join(f"{name} AS i = {number}" for number, name in enumerate(names))
    clause = f"ORDER BY i MEASURES CLASSIFIER() AS c PATTERN ({' '.join(names)}) DEFINE {defined}"
    assert answer(clause, pa.table({"i": range(20)})) == [{"c": "V19"}]


def test_no_match_is_linear_where_backtracking_is_exponential() -> None:
    clause = "ORDER BY i MEASURES COUNT(*) AS n PATTERN ((A | B)+ C) DEFINE A AS TRUE, B AS TRUE, C AS FALSE"
    assert answer(clause, pa.table({"i": range(20_000)})) == []


def test_search_stops_at_its_limit() -> None:
    clause = """
        ORDER BY i MEASURES COUNT(*) AS n
        PATTERN ((A | B)+ C) DEFINE A AS i >= 0, B AS i >= 0, C AS SUM(A.i) < 0 AND COUNT(B.*) < 0"""
    with pytest.raises(ouzel.LimitError, match=r"from row 1 of the input takes more than 1,000 steps.* of C"):
        answer(clause, pa.table({"i": range(100)}), max_steps_per_match=1_000)


@pytest.mark.compiled
def test_searches_stop_at_the_limit_of_all_together() -> None:
    """No attempt takes more than 6,000 steps, but there are 3,000 of them."""
    clause = "ORDER BY i MEASURES COUNT(*) AS n PATTERN (A+ B) DEFINE B AS SUM(A.i) < 0"
    table = pa.table({"i": range(3_000)})
    with pytest.raises(
        ouzel.LimitError, match=r"for all matches together takes more than 3,700,000 steps.* of B .*WITHIN"
    ):
        answer(clause, table, max_steps_per_match=7_000)
    assert answer(clause, table, max_steps_per_match=100_000) == []


@pytest.mark.parametrize("condition", ["k IN ('b', A.k)", "k NOT IN ('b', A.k)", "NOT (k IN ('b', A.k))"])
def test_a_list_of_texts_and_columns_is_compiled(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"t": range(9), "k": ["a", "a", "b", None, "c", "a", None, "b", "c"]})
    clause = "ORDER BY t MEASURES FIRST(t) AS s, LAST(t) AS e AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DEFINE B AS "
    written_out = condition.replace("k NOT IN ('b', A.k)", "NOT (k = 'b' OR k = A.k)").replace(
        "k IN ('b', A.k)", "(k = 'b' OR k = A.k)"
    )
    expected = answer(clause + written_out, table)
    monkeypatch.setattr("ouzel.engines.rows.finder.Finder._holds", None)
    assert answer(clause + condition, table) == expected != []


def test_text_conditions_that_only_python_can_test() -> None:
    clause = "ORDER BY t MEASURES LAST(t) AS e PATTERN (A B) DEFINE B AS concat(A.k, k) = 'ab'"
    assert answer(clause) == [{"e": 3}]


def test_null_keys_and_empty_tables() -> None:
    table = pa.table({"k": pa.array(["x", None, None]), "t": [1, 2, 3]})
    clause = "PARTITION BY k ORDER BY t MEASURES COUNT(*) AS n PATTERN (A+)"
    assert answer(clause, table) == [{"k": None, "n": 2}, {"k": "x", "n": 1}]
    assert answer(clause, table.slice(0, 0)) == []


def test_measures_keep_the_type_of_their_column() -> None:
    table = pa.table({"t": pa.array([1, 2], pa.int32()), "d": pa.array([datetime.date(2024, 5, 1)] * 2)})
    found = ouzel.match_recognize(table, "ORDER BY t MEASURES LAST(t) AS t2, FIRST(d) AS d2 PATTERN (A+)")
    assert found.schema.types == [pa.int32(), pa.date32()]


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("ORDER BY t MEASURES v AS m", "there is no PATTERN clause"),
        ("PATTERN (A**)", r"unexpected '\*'"),
        ("PATTERN (A{3,1})", "at least 3 and at most 1"),
        ("PATTERN (A) DEFINE B AS v > 1", "'B' is defined but is not in the pattern"),
        ("PATTERN (A) DEFINE A AS v > 1, A AS v > 2", "'A' is defined twice"),
        ("PATTERN (A) DEFINE A AS w > 1", "the input has no column 'w'"),
        ("PATTERN (A) DEFINE A AS v > C.v", "there is no variable 'C'"),
        ("PATTERN (A) DEFINE A AS FINAL SUM(v) > 1", "FINAL cannot be used in DEFINE"),
        ("PATTERN (A) DEFINE A AS SUM(PREV(v)) > 1", "PREV cannot be inside SUM"),
        ("MEASURES LAST(FIRST(v)) AS m PATTERN (A)", "FIRST cannot be inside LAST"),
        ("MEASURES SUM(A.v + v) AS m PATTERN (A)", "about one variable"),
        ("MEASURES NEXT(A.v + v) AS m PATTERN (A)", r"NEXT\(…\) must be about one variable"),
        ("MEASURES LAST(v, -1) AS m PATTERN (A)", "offset must be a whole number"),
        ("MEASURES FINAL PREV(v) AS m PATTERN (A)", "FINAL belongs before FIRST"),
        ("MEASURES v AS m, t AS m PATTERN (A)", "two columns are named 'm'"),
        ("PATTERN (A) SUBSET U = (A), W = (U)", "'U' is a SUBSET"),
        ("ONE ROW PER MATCH OMIT EMPTY MATCHES PATTERN (A)", "needs ALL ROWS PER MATCH"),
        ("ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN ({- A -} B)", "WITH UNMATCHED ROWS"),
        ("PATTERN (A) WITHIN 5", "WITHIN needs an ascending ORDER BY"),
        ("PARTITION BY FIRST(v) PATTERN (A)", "FIRST cannot be used in PARTITION BY"),
        ("PATTERN (PERMUTE(A, B, C, D, E, F, G, H))", "more than 4,096 positions"),
        ("PATTERN (A{5000})", "more than 4,096 positions"),
        ("AFTER MATCH SKIP TO C PATTERN (A B)", "there is no variable 'C'"),
    ],
)
def test_mistakes_are_named(clause: str, message: str) -> None:
    with pytest.raises(ouzel.QueryError, match=message) as raised:
        answer(clause)
    assert raised.value.start is not None


@pytest.mark.parametrize(
    ("measure", "hint"),
    [
        ("COUNT(A)", "COUNT(A.*) counts its rows"),
        ("SUM(A)", "name a column: A.x"),
        ("LAG(v)", "write PREV(x)"),
        ("DATE_TRUNC('hour', t)", "as a column of the table before"),
        ("MATCH_ROWTIME()", "write LAST(ts)"),
    ],
)
def test_functions_of_other_engines_have_hints(measure: str, hint: str) -> None:
    with pytest.raises(ouzel.QueryError) as raised:
        answer(f"ORDER BY t MEASURES {measure} AS m PATTERN (A)")
    assert hint in (raised.value.hint or "")


def test_skip_to_the_first_row_is_refused() -> None:
    with pytest.raises(ouzel.InputError, match="for ever"):
        answer("ORDER BY t MEASURES v AS m AFTER MATCH SKIP TO FIRST A PATTERN (A B)")
    with pytest.raises(ouzel.InputError, match="has no row of C"):
        answer("ORDER BY t MEASURES v AS m AFTER MATCH SKIP TO C PATTERN (A C?) DEFINE C AS v < 0")


def test_aggregates_of_labels_in_overlapping_matches() -> None:
    table = pa.table({"i": [1, 2, 3, 4]})
    clause = "ORDER BY i MEASURES {} AS m AFTER MATCH SKIP TO NEXT ROW PATTERN (A B C)"
    assert answer(clause.format("ARRAY_AGG(CLASSIFIER())"), table) == [{"m": ["A", "B", "C"]}] * 2
    assert answer(clause.format("COUNT(CASE WHEN CLASSIFIER() = 'A' THEN 1 END)"), table) == [{"m": 1}] * 2
    assert answer(clause.format("MAX(CLASSIFIER())"), table) == [{"m": "C"}] * 2


def test_aggregates_of_labels_in_conditions() -> None:
    table = pa.table({"i": [1, 2, 3, 4]})
    clause = "ORDER BY i MEASURES COUNT(*) AS n PATTERN (A+) DEFINE A AS COUNT(CLASSIFIER()) < 3"
    assert answer(clause, table) == [{"n": 2}, {"n": 2}]


def test_decimal_sums_beyond_their_digits_are_null_everywhere() -> None:
    table = pa.table({"i": [1, 2, 3], "d": pa.array([9 * 10**17, 9 * 10**17, 1], pa.decimal128(18, 0))})
    clause = "ORDER BY i MEASURES COUNT(*) AS n PATTERN (A+) DEFINE A AS SUM(d) > 0"
    assert answer(clause, table) == [{"n": 1}, {"n": 2}]


def test_lists_of_long_matches() -> None:
    table = pa.table({"i": range(30_000)})
    (row,) = answer("ORDER BY i MEASURES ARRAY_AGG(i) AS l PATTERN (A+)", table)
    assert row["l"] == list(range(30_000))
    found = answer("ORDER BY i MEASURES ARRAY_AGG(i) AS l ALL ROWS PER MATCH PATTERN (A{3})", table.slice(0, 3))
    assert [one["l"] for one in found] == [[0], [0, 1], [0, 1, 2]]
    with pytest.raises(ouzel.LimitError, match="ARRAY_AGG"):
        answer("ORDER BY i MEASURES ARRAY_AGG(i) AS l ALL ROWS PER MATCH PATTERN (A+)", table)


def test_large_offsets_with_overlapping_matches() -> None:
    table = pa.table({"i": range(10)})
    clause = "ORDER BY i MEASURES FIRST(i, 3000000) AS m AFTER MATCH SKIP TO NEXT ROW PATTERN (A B)"
    assert answer(clause, table) == [{"m": None}] * 9


@pytest.mark.parametrize("pattern", ["()", "(){1000000000}", " ".join(f"(V{n}?)?" for n in range(40))])
def test_patterns_that_take_nothing_are_built_at_once(pattern: str) -> None:
    clause = f"ORDER BY t MEASURES COUNT(*) AS n PATTERN ({pattern}) "
    assert answer(clause + "DEFINE V0 AS FALSE" if "V0" in pattern else clause, ROWS.slice(0, 1))


def test_values_without_order_or_type() -> None:
    assert answer("ORDER BY t MEASURES COUNT(*) AS n PATTERN (A)", [{"t": None, "v": 1}]) == [{"n": 1}]
    assert answer("ORDER BY t MEASURES AVG(n) AS m PATTERN (A)", [{"t": 1, "n": None}]) == [{"m": None}]
    table = pa.table({"t": [1, 2], "b": [b"x", b"x"]})
    assert answer("ORDER BY t MEASURES COUNT(*) AS n PATTERN (A+) DEFINE A AS b = FIRST(b)", table) == [{"n": 2}]


@pytest.mark.parametrize("given", [None, 1.5, 0, 2**70, "x"])
def test_limits_must_be_numbers(given: object) -> None:
    with pytest.raises(ouzel.InputError, match="max_steps_per_match="):
        answer("PATTERN (A)", max_steps_per_match=given)


def test_windows_of_doubles_are_differences() -> None:
    table = pa.table({"f": [2.6, 4.6]})
    clause = "ORDER BY f MEASURES COUNT(*) AS n PATTERN (A+) {}"
    wanted = answer(clause.format("DEFINE A AS f - FIRST(f) < 2.0"), table)
    assert answer(clause.format("WITHIN 2.0"), table) == wanted


def test_names_in_any_case() -> None:
    assert answer("order by T measures last(a.V) as m pattern (A+) define a as A.v > 3") == [{"m": 5}, {"m": 9}]


def test_compiled_and_searched_conditions_agree_on_long_rows() -> None:
    """A condition that reads the match in a way that changes nothing gives the same matches."""
    numbers = count()
    table = pa.table({"i": range(3_000), "v": [next(numbers) * 7 % 11 for _ in range(3_000)]})
    clause = (
        "ORDER BY i MEASURES FIRST(i) AS b, LAST(i) AS e PATTERN (U+ D{{1,3}}) DEFINE U AS v > PREV(v), D AS v < 9{}"
    )
    assert answer(clause.format(""), table) == answer(clause.format(" AND COUNT(*) > 0"), table)
