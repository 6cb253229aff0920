"""`ouzel.why` and `ouzel.explain` for row patterns."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel.bind.model import Catalog
from ouzel.bind.schema import attributes_of
from ouzel.engines.rows.operator import RowStager
from ouzel.engines.rows.plan import RowPlan
from ouzel.errors import InputError, QueryError
from ouzel.insight.rows import _Partition
from ouzel.lang.row_syntax import Skip
from ouzel.plan.choose import make_plan
from ouzel.prepared import row_patterns_of
from tests.engines.rows.random_patterns import random_clause, random_rows
from tests.engines.rows.test_agreement import SCHEMA

TICKS = [{"sym": "A", "ts": ts, "price": price} for ts, price in enumerate([9, 5, 3, 6, 8])]
SKIPPED = "AFTER MATCH SKIP PAST LAST ROW"
CLAUSE = (
    "PARTITION BY sym ORDER BY ts MEASURES COUNT(*) AS n PATTERN (S DOWN+ UP{2}) "
    "DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price) AND SUM(UP.price) < 10"
)


def test_the_condition_that_stopped_a_row_is_shown_with_its_values() -> None:
    assert str(ouzel.why(TICKS, CLAUSE, 0)).splitlines() == [
        "row 0 (price=9, sym=A, ts=0) as the start of a match of 'query'",
        "  S = row 0 (price=9, sym=A, ts=0)",
        "  DOWN = row 1 (price=5, sym=A, ts=1)",
        "  DOWN = row 2 (price=3, sym=A, ts=2)",
        "  UP = row 3 (price=6, sym=A, ts=3)",
        "  UP: row 4 (price=8, sym=A, ts=4): SUM(UP.price) < 10 is not true, SUM(UP.price) = 14",
        "no match: row 4 (price=8, sym=A, ts=4) is not UP",
    ]


@pytest.mark.parametrize(
    ("start", "change", "stopped_by", "verdict"),
    [
        (4, ("", ""), "no row", "no match: the partition ends before DOWN"),
        ({"ts": 3}, ("S DOWN+", "DOWN"), "start", "no match: row 3 (price=6, sym=A, ts=3) is not DOWN"),
        (0, ("DEFINE", "WITHIN 2 DEFINE"), "window", "no match: the window ends before DOWN or UP"),
        (0, ("UP{2}", "UP"), "nothing", "match 1 of its partition"),
        (1, ("UP{2}", "UP"), "skipped", f"no match: {SKIPPED} skips this row after the match from row 0"),
        (1, ("(S DOWN+ UP{2})", "(UP{5} DOWN | ())"), "nothing", "match 2 of its partition, an empty one"),
        (None, ("", ""), "condition", "no match: row 4 (price=8, sym=A, ts=4) is not UP"),
    ],
)  # fmt: skip
def test_reasons(start: object, change: tuple[str, str], stopped_by: str, verdict: str) -> None:
    clause = CLAUSE.replace(*change) if change[0] else CLAUSE
    reason = ouzel.why(TICKS, f"SELECT * FROM ticks MATCH_RECOGNIZE ({clause})", start)  # type: ignore[arg-type]
    assert reason.stopped_by == stopped_by
    assert reason.complete == (stopped_by == "nothing")
    assert reason.verdict == verdict


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="there is no row 7"):
        ouzel.why(TICKS, CLAUSE, 7)
    with pytest.raises(InputError, match="the input has no rows"):
        ouzel.why(pa.Table.from_pylist(TICKS).slice(0, 0), CLAUSE)
    twice = f"SELECT * FROM a MATCH_RECOGNIZE ({CLAUSE}), b MATCH_RECOGNIZE ({CLAUSE})"
    with pytest.raises(InputError, match="has 2 clauses"):
        ouzel.why(TICKS, twice)
    with pytest.raises(QueryError, match=r"no column 'prise' \(line 1, column 58\)"):
        ouzel.why(TICKS, "SELECT * FROM a MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS prise > 3)")


def test_the_search_finds_the_matches_of_the_kernels() -> None:
    """From every row: a match of the same positions, or none, or one that an earlier match skips."""
    compared = 0
    for seed in range(150):
        rng = Random(seed)
        clause, rows = random_clause(rng), random_rows(rng)
        table = pa.Table.from_pylist(rows, SCHEMA)
        ((query, _),) = row_patterns_of(f"MATCH_RECOGNIZE ({clause})")
        plan = make_plan(query.bind(Catalog(common=attributes_of(table.schema))))
        assert isinstance(plan, RowPlan)
        codes = RowStager(plan)._keys(table)
        for code in np.unique(codes):
            members = np.flatnonzero(codes == code)
            try:
                partition = _Partition.of(plan, table, members)
            except ouzel.OuzelError:
                continue
            matches = partition.matches
            found = dict(zip(matches.start.tolist(), range(len(matches.start)), strict=True))
            ends = np.cumsum(matches.length)
            for row in members.tolist():
                attempt = partition.attempt(row, 500)
                if attempt.tested >= 500:
                    continue
                compared += 1
                if attempt.start in found:
                    number = found[attempt.start]
                    positions = matches.positions[ends[number] - matches.length[number] : ends[number]].tolist()
                    assert attempt.complete and attempt.path == positions, f"seed {seed}\n{clause}"
                elif attempt.complete:
                    before = matches.start < attempt.start
                    assert before.any() and plan.query.skip is not Skip.TO_NEXT_ROW, f"seed {seed}\n{clause}"
                reason = attempt.reason(row, "")
                assert reason.complete == (attempt.start in found)
    assert compared > 500


# ── EXPLAIN ────────────────────────────────────────────────────────────────────────────────────────


def test_explain_says_which_conditions_are_vectors_and_which_are_searched() -> None:
    text = ouzel.explain(
        "SELECT sym FROM ticks MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts AFTER MATCH SKIP TO LAST UP "
        "PATTERN (S (DOWN | X)+ UP?) WITHIN 2 hours "
        "DEFINE DOWN AS NOT (price >= PREV(price) OR v > 3), UP AS price + 1 > S.price AND PREV(v + 1) = 2)"
    )
    assert text.split("\nautomaton\n")[1].splitlines() == [
        "  (start) → (S)  begin 1. S",
        "  (S) → (DOWN)  begin 1. DOWN",
        "  (S) → (X)  begin 2. X",
        "  (DOWN)  take 1. DOWN",
        "  (DOWN) → (X)  begin 2. X",
        "  (DOWN) → (UP)  begin 3. UP",
        "  (DOWN) → ((F))  begin 4. end",
        "  (X) → (DOWN)  begin 1. DOWN",
        "  (X)  take 2. X",
        "  (X) → (UP)  begin 3. UP",
        "  (X) → ((F))  begin 4. end",
        "  (UP) → ((F))  begin 1. end",
        "",
        "plan, in the order events pass it",
        "  partition",
        "    sym",
        "  order",
        "    ts",
        "  conditions that are vectors, computed for all rows at once",
        "    DOWN if price < PREV(price)",
        "    DOWN if v <= 3",
        "    UP if PREV(v + 1) = 2",
        "  conditions that are searched, because they read the match",
        "    UP if (price + 1) > S.price",
        "    every variable: within 2 hours of the first row",
        "  without a condition, every row may be",
        "    S, X",
        "  after a match",
        "    skip to last UP",
        "  rows",
        "    one row per match",
        "    sym",
        "",
        "kernel search",
        "  conditions read the match: ways are tried in order of preference, and taken back if they end",
    ]


def test_explain_has_the_forms_of_queries() -> None:
    clause = "ORDER BY ts PATTERN (A{1000} B) DEFINE A AS v > 1"
    shown = json.loads(ouzel.explain(clause, "json", types={"ts": "bigint", "v": "double"}))
    assert shown["kernel"] == "search" and shown["notes"] == [["positions", "971 more positions are not shown"]]
    assert len(shown["automaton"]["states"]) == 32
    assert ouzel.explain(f"MATCH_RECOGNIZE ({clause})", "svg").startswith("<svg")
    two = f"SELECT * FROM a MATCH_RECOGNIZE ({clause}), b MATCH_RECOGNIZE ({clause})"
    assert [line for line in ouzel.explain(two).splitlines() if line.startswith("query")] == [
        "query clause_1",
        "query clause_2",
    ]
    assert len(json.loads(ouzel.explain(two, "json"))) == 2
    with pytest.raises(InputError, match="several clauses are explained as text or json"):
        ouzel.explain(two, "svg")
    with pytest.raises(QueryError, match="the statement has no MATCH_RECOGNIZE"):
        ouzel.explain("SELECT 1")
    with pytest.raises(QueryError, match="no column 'w'"):
        ouzel.explain("ORDER BY ts PATTERN (A) DEFINE A AS w > 1", types={"ts": "bigint"})
