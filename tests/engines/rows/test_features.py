"""Each feature of MATCH_RECOGNIZE that the page lists, by a small case of its own, beside the oracle."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import ouzel
from tests.engines.rows.test_agreement import comparable
from tests.oracle.row_patterns import answer

ROWS: list[dict[str, Any]] = [
    {"g": g, "t": t, "v": v}
    for g, values in (("a", [1, 3, 2, 5, 4]), ("b", [2, None, 2]))
    for t, v in enumerate(values)
]
SCHEMA = pa.schema({"g": pa.string(), "t": pa.int64(), "v": pa.int64()})
BY = "PARTITION BY g ORDER BY t "
UP = " DEFINE UP AS v > PREV(v)"

FEATURES = {
    "PARTITION BY an expression": "PARTITION BY upper(g) ORDER BY t MEASURES COUNT(*) AS n PATTERN (A+)",
    "ORDER BY an expression": "ORDER BY -t, g DESC MEASURES FIRST(g) AS f, COUNT(*) AS n PATTERN (A{3})",
    "NULLS FIRST and LAST": "ORDER BY v NULLS LAST, t, g MEASURES LAST(v) AS x PATTERN (A+)",
    "no MEASURES": BY + "PATTERN (A UP)" + UP,
    "RUNNING and FINAL": BY + "MEASURES RUNNING SUM(v) AS r, FINAL SUM(v) AS f ALL ROWS PER MATCH PATTERN (A+)",
    "FIRST and LAST with offset": BY + "MEASURES FIRST(v, 1) AS f, LAST(v, 2) AS l PATTERN (A+)",
    "PREV and NEXT with offset": BY + "MEASURES PREV(v, 2) AS p, NEXT(v, 1) AS n ALL ROWS PER MATCH PATTERN (A B)",
    "PREV(FIRST(…))": BY + "MEASURES PREV(FIRST(v, 1), 1) AS p PATTERN (UP+)" + UP,
    "CLASSIFIER": BY + "MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH PATTERN (A UP)" + UP,
    "CLASSIFIER of a variable, navigated": BY + "MEASURES FIRST(CLASSIFIER(U)) AS c PATTERN (A B) SUBSET U = (A, B)",
    "CLASSIFIER in DEFINE": BY + "MEASURES COUNT(*) AS n PATTERN ((A | B) C) DEFINE C AS PREV(CLASSIFIER()) = 'B'",
    "MATCH_NUMBER": BY + "MEASURES MATCH_NUMBER() AS n PATTERN (A)",
    "MATCH_NUMBER in DEFINE": BY + "MEASURES COUNT(*) AS n PATTERN (A) DEFINE A AS MATCH_NUMBER() < 3",
    "aggregates": BY + "MEASURES COUNT(A.*) AS a, SUM(v) AS b, AVG(A.v) AS c, MIN(v) AS d, MAX(v) AS e PATTERN (A B*)",
    "COUNT(DISTINCT)": BY
    + "MEASURES COUNT(DISTINCT v) AS r, FINAL COUNT(DISTINCT B.v) AS f ALL ROWS PER MATCH PATTERN (A B*)",
    "ARRAY_AGG": BY + "MEASURES ARRAY_AGG(v) AS a PATTERN (A+)",
    "aggregates in DEFINE": BY + "MEASURES COUNT(*) AS n PATTERN (A+) DEFINE A AS SUM(A.v) < 7 AND COUNT(*) < 4",
    "ONE ROW PER MATCH": BY + "MEASURES COUNT(*) AS n ONE ROW PER MATCH PATTERN (A+)",
    "ALL ROWS PER MATCH": BY + "MEASURES COUNT(*) AS n ALL ROWS PER MATCH PATTERN (UP)" + UP,
    "SHOW EMPTY MATCHES": BY + "MEASURES COUNT(*) AS n ALL ROWS PER MATCH SHOW EMPTY MATCHES PATTERN (UP*)" + UP,
    "OMIT EMPTY MATCHES": BY + "MEASURES COUNT(*) AS n ALL ROWS PER MATCH OMIT EMPTY MATCHES PATTERN (UP*)" + UP,
    "WITH UNMATCHED ROWS": BY + "MEASURES COUNT(*) AS n ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (UP)" + UP,
    "empty matches": BY + "MEASURES COUNT(*) AS n PATTERN (UP?)" + UP,
    "SKIP PAST LAST ROW": BY + "MEASURES FIRST(t) AS f AFTER MATCH SKIP PAST LAST ROW PATTERN (A B)",
    "SKIP TO NEXT ROW": BY + "MEASURES FIRST(t) AS f AFTER MATCH SKIP TO NEXT ROW PATTERN (A B)",
    "SKIP TO FIRST": BY + "MEASURES FIRST(t) AS f AFTER MATCH SKIP TO FIRST B PATTERN (A B B)",
    "SKIP TO LAST of a SUBSET": BY
    + "MEASURES FIRST(t) AS f AFTER MATCH SKIP TO LAST U PATTERN (A B C) SUBSET U = (B, C)",
    "SKIP TO": BY + "MEASURES FIRST(t) AS f AFTER MATCH SKIP TO B PATTERN (A B B)",
    "groups with quantifiers": BY + "MEASURES COUNT(*) AS n PATTERN ((A UP){1,2})" + UP,
    "alternation": BY + "MEASURES COUNT(UP.*) AS n PATTERN ((UP | A) B)" + UP,
    "greedy quantifiers": BY + "MEASURES COUNT(A.*) AS n PATTERN (A? B* C+ D{1} E{0,} F{,1} G{0,2})",
    "reluctant quantifiers": BY + "MEASURES COUNT(A.*) AS n PATTERN (A?? B*? C+? D{1,2}?)",
    "PERMUTE": BY + "MEASURES CLASSIFIER() AS c PATTERN (PERMUTE(UP, A))" + UP,
    "anchors": BY + "MEASURES COUNT(*) AS n PATTERN (^ A+ $)",
    "exclusion": BY + "MEASURES COUNT(*) AS n ALL ROWS PER MATCH PATTERN (A {- B -} C)",
    "empty pattern": BY + "MEASURES COUNT(*) AS n PATTERN ()",
    "SUBSET": BY + "MEASURES SUM(U.v) AS s PATTERN (A B C) SUBSET U = (A, C)",
    "no DEFINE": BY + "MEASURES COUNT(*) AS n PATTERN (A B)",
    "WITHIN": BY + "MEASURES COUNT(*) AS n PATTERN (A+) WITHIN 2",
    "clauses in any order": "PATTERN (UP) MEASURES COUNT(*) AS n DEFINE UP AS v > PREV(v) ORDER BY t PARTITION BY g",
    "counts beyond a word": BY + "MEASURES COUNT(*) AS n PATTERN (A{2,1000})",
}


@pytest.mark.parametrize("feature", FEATURES)
def test_feature(feature: str) -> None:
    clause = FEATURES[feature]
    found = ouzel.match_recognize(pa.Table.from_pylist(ROWS, SCHEMA), clause)
    assert comparable(found.to_pylist()) == comparable(answer(ROWS, clause))


@pytest.mark.parametrize("count", [63, 64, 65, pytest.param(1_000, marks=pytest.mark.compiled)])
def test_counts_of_many_positions(count: int) -> None:
    """A pattern may have thousands of positions, with vectors and with searched conditions."""
    table = pa.table({"t": range(2 * count + 1), "v": [1] * (2 * count + 1)})
    for condition in ("v = 1", f"COUNT(A.*) <= {count}"):
        clause = f"ORDER BY t MEASURES FIRST(t) AS f, COUNT(*) AS n PATTERN (A{{{count}}}) DEFINE A AS {condition}"
        found = ouzel.match_recognize(table, clause).to_pylist()
        assert found == [{"f": 0, "n": count}, {"f": count, "n": count}]
        between = clause.replace(f"{{{count}}}", f"{{2,{count - 1}}} B")
        assert ouzel.match_recognize(table, between).column("n").to_pylist()[:2] == [count, count]
