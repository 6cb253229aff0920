"""W4 in DuckDB: a sliding count of SEQ(E0, E1, E2, E3) for each id, from the same Arrow table."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from benchmarks.aggregate_streams import RUNNING_SUMS

# Running sums make pairs (first, last) enough: how many (second, third) stand between two moments is a matter of the
# sums at both. Pairs are joined by id and bucket of one window, each first event in its own bucket and the next one.
_W4 = (
    RUNNING_SUMS.format(events="events")
    + """,
firsts AS (
    SELECT *, ts // $width AS bucket FROM summed WHERE type = 'E0'
    UNION ALL SELECT *, ts // $width + 1 AS bucket FROM summed WHERE type = 'E0'
),
lasts AS (SELECT *, ts // $width AS bucket FROM summed WHERE type = 'E3')
SELECT l.ts AS "end", l.id,
    sum((l.dbc - f.dbc) - f.bc * (l.d - f.d) - f.b * (l.dc - f.dc) + f.b * f.c * (l.d - f.d))::BIGINT AS count
FROM lasts l JOIN firsts f ON l.id = f.id AND l.bucket = f.bucket AND f.ts < l.ts AND f.ts > l.ts - $width
GROUP BY l.ts, l.id
HAVING sum(l.bc - f.bc - f.b * (l.c - f.c)) > 0
"""
)


def duckdb_w4(table: pa.Table, window: int) -> pa.Table:
    """The counts by DuckDB, with one thread."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("events", table)
    answer = connection.sql(_W4, params={"width": window}).to_arrow_table()
    connection.close()
    return answer
