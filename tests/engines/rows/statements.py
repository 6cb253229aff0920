"""Statements around row patterns, with their answers: DuckDB and Spark must give the same."""

from __future__ import annotations

import pyarrow as pa

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
