"""What sets of queries are compared with: the paper's naive extension, and Double-Top as self-joins of Spark SQL."""

from __future__ import annotations

import statistics

import pyarrow as pa

from benchmarks.many_queries_world import parameters, query_set, read


def read_naively(given: pa.Table, table: pa.Table) -> tuple[float, int]:
    """As `read`, with neither merging nor the AN and AI indexes."""
    from benchmarks.many_queries_naive import NaiveKernel
    from ouzel.engines.automata import advance as automata

    real = automata.advance
    automata.advance = NaiveKernel()
    try:
        read(query_set("Filter", parameters(50)[0], table.schema, merge=False), table.slice(0, 50))
        return read(query_set("Filter", given, table.schema, merge=False), table)
    finally:
        automata.advance = real


# CQL2 of figure 19: a join of three quotes finds extrema, then a join of five finds the pattern among them.
EXTREMA = """
WITH numbered AS (
    SELECT ts, name, price, row_number() OVER (PARTITION BY name ORDER BY ts) AS n FROM double_top_quotes
)
SELECT s2.name, s2.price, s2.price > s1.price AS top, row_number() OVER (PARTITION BY s2.name ORDER BY s2.ts) AS n
FROM numbered s1
JOIN numbered s2 ON s1.name = s2.name AND s2.n = s1.n + 1
JOIN numbered s3 ON s1.name = s3.name AND s3.n = s1.n + 2
WHERE (s2.price > s1.price AND s2.price > s3.price) OR (s2.price < s1.price AND s2.price < s3.price)
"""
PATTERN = """
SELECT a.name, a.price AS a, b.price AS b, c.price AS c, d.price AS d, e.price AS e
FROM extrema a
JOIN extrema b ON a.name = b.name AND b.n = a.n + 1 AND b.price >= 1.2 * a.price
JOIN extrema c ON a.name = c.name AND c.n = a.n + 2 AND c.price BETWEEN 0.9 * a.price AND 1.1 * a.price
JOIN extrema d ON a.name = d.name AND d.n = a.n + 3 AND d.price BETWEEN 0.9 * b.price AND 1.1 * b.price
JOIN extrema e ON a.name = e.name AND e.n = a.n + 4 AND e.price <= a.price
WHERE NOT a.top
"""


def self_joins(tables: dict[int, pa.Table], runs: int) -> dict[int, tuple[float, int]]:
    """Median CPU seconds of the JVM and how many results, by smoothing window."""
    import ouzel.spark
    from benchmarks.spark_batch import cpu_seconds

    settings = {"spark.sql.shuffle.partitions": 4, "spark.log.level": "ERROR"}
    session = ouzel.spark.session("double-top", "local[2]", **settings)
    found = {}
    try:
        for window, table in tables.items():
            frame = session.createDataFrame(table.to_pandas()).cache()
            frame.count()
            frame.createOrReplaceTempView("double_top_quotes")
            taken = []
            for _ in range(runs + 1):
                before, _ = cpu_seconds()
                # Kept, since the five sides of the second join would each find them anew.
                extrema = session.sql(EXTREMA).cache()
                extrema.createOrReplaceTempView("extrema")
                results = session.sql(PATTERN).count()
                taken.append(cpu_seconds()[0] - before)
                extrema.unpersist()
            found[window] = (statistics.median(taken[1:]), results)
            frame.unpersist()
    finally:
        session.stop()
    return found
