"""Statements around row patterns, with their answers: DuckDB and Spark must give the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa

from tests.engines.rows.random_patterns import random_clause, random_rows
from tests.oracle.row_patterns import answer

TICKS = pa.table(
    {
        "sym": list("aababbabab"),
        "ts": range(1, 11),
        "price": [5, 3, 9, 4, 7, 8, 2, 6, 1, 9],
    }
)
NAMES = pa.table({"sym": ["a", "b", "c"], "name": ["Alpha", "Beta", None]})

RISES = """MATCH_RECOGNIZE (
    PARTITION BY sym ORDER BY ts
    MEASURES FIRST(ts) AS began, COUNT(*) AS n, LAST(price) AS top
    PATTERN (S UP+) DEFINE UP AS price > PREV(price))"""
FALLS = """MATCH_RECOGNIZE (
    PARTITION BY sym ORDER BY ts
    MEASURES FIRST(ts) AS began, COUNT(*) AS n, LAST(price) AS bottom
    PATTERN (S DOWN+) DEFINE DOWN AS price < PREV(price))"""

# Tables are written {ticks} and {names}, as Spark names DataFrames.
STATEMENTS: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "GROUP BY and HAVING": (
        f"SELECT sym, count(*), max(top) FROM {{ticks}} {RISES} GROUP BY sym HAVING count(*) > 1",
        [("b", 2, 9)],
    ),
    "a join with a table": (
        f"SELECT k.name, m.top FROM {{ticks}} {RISES} AS m JOIN {{names}} AS k ON k.sym = m.sym WHERE m.n = 2",
        [("Alpha", 4), ("Beta", 8), ("Beta", 9)],
    ),
    "an outer join": (
        f"SELECT k.sym, m.top FROM {{names}} k LEFT JOIN {{ticks}} {RISES} m ON k.sym = m.sym AND m.top > 8",
        [("a", None), ("b", 9), ("c", None)],
    ),
    "two clauses joined": (
        f"SELECT r.sym, r.top - f.bottom FROM {{ticks}} {RISES} r JOIN {{ticks}} {FALLS} f "
        "ON r.sym = f.sym AND r.began < f.began",
        [("a", 3), ("b", 2)],
    ),
    "two clauses one after the other": (
        f"SELECT sym, top FROM {{ticks}} {RISES} UNION ALL SELECT sym, bottom FROM {{ticks}} {FALLS}",
        [("a", 1), ("a", 3), ("a", 4), ("b", 6), ("b", 7), ("b", 8), ("b", 9)],
    ),
    "WITH": (
        f"WITH late AS (SELECT * FROM {{ticks}} WHERE ts > 2), rises AS (SELECT * FROM late {RISES}) "
        "SELECT sym, sum(n) FROM rises GROUP BY sym",
        [("b", 4)],
    ),
    "a clause over a clause": (
        f"SELECT * FROM (SELECT 1 AS sym, began AS ts, top AS price FROM {{ticks}} {RISES}) s {RISES}",
        [(1, 2, 3, 9)],
    ),
    "a window function over the rows of a clause": (
        f"SELECT sym, top, sum(top) OVER (PARTITION BY sym ORDER BY began) FROM {{ticks}} {RISES}",
        [("a", 4, 4), ("b", 8, 8), ("b", 9, 17)],
    ),
    "a clause in a subquery": (
        f"SELECT sym, count(*) FROM {{ticks}} WHERE sym IN (SELECT sym FROM {{ticks}} {RISES} WHERE top > 5) "
        "GROUP BY sym",
        [("b", 5)],
    ),
}


Rows = list[dict[str, Any]]


def _positive(rows: Rows) -> Rows:
    return [row for row in rows if row["v"] is not None and row["v"] > 0]


# SQL around `{table} MATCH_RECOGNIZE (…)`, written {clause} behind the table, and what it means: from the rows of the
# table, and what the clause gives for some rows, to the answer.
AROUND: list[tuple[str, Callable[[Rows, Callable[[Rows], Rows]], Rows]]] = [
    ("SELECT * FROM {rows} {clause}", lambda rows, found: found(rows)),
    (
        "SELECT m.m0 AS a, '{{rows}} MATCH_RECOGNIZE (' AS b FROM {rows} AS r {clause} AS m WHERE m0 IS NOT NULL",
        lambda rows, found: [
            {"a": row["m0"], "b": "{rows} MATCH_RECOGNIZE ("} for row in found(rows) if row["m0"] is not None
        ],
    ),
    (
        "SELECT count(*) AS n /* MATCH_RECOGNIZE ( */ FROM (SELECT * FROM {rows} WHERE v > 0) {clause} -- )",
        lambda rows, found: [{"n": len(found(_positive(rows)))}],
    ),
    (
        "WITH p AS (SELECT * FROM {rows} WHERE v > 0), m AS (SELECT * FROM p {clause}) "
        "SELECT m0, count(*) AS n FROM m GROUP BY m0",
        lambda rows, found: [
            {"m0": value, "n": count} for value, count in Counter(row["m0"] for row in found(_positive(rows))).items()
        ],
    ),
    (
        "SELECT m0 FROM {rows} {clause} UNION ALL SELECT b.m0 FROM (SELECT * FROM {rows} WHERE v > 0) {clause} b",
        lambda rows, found: [{"m0": row["m0"]} for some in (rows, _positive(rows)) for row in found(some)],
    ),
    (
        "SELECT r.t FROM {rows} r WHERE EXISTS (SELECT 1 FROM {rows} {clause} WHERE m0 > 1)",
        lambda rows, found: [
            {"t": row["t"]} for row in rows if any(one["m0"] is not None and one["m0"] > 1 for one in found(rows))
        ],
    ),
]


def random_statement(seed: int) -> tuple[str, Rows, Rows]:
    """A statement over the table {rows}, its rows, and the answer of the oracle. Raises what the oracle raises."""
    rng = Random(seed)
    clause, rows = random_clause(rng), random_rows(rng)
    around, meaning = rng.choice(AROUND)
    written = clause.replace("{", "{{").replace("}", "}}")
    statement = around.replace("{clause}", f"MATCH_RECOGNIZE ({written})")
    return statement, rows, meaning(rows, lambda some: answer(some, clause))
