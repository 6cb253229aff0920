"""W4 on Spark: a sliding count of SEQ(E0, E1, E2, E3) for each id, beside the best that Spark SQL was found to do.

Running sums make the first and the last event of a match enough: how many (second, third) stand between two moments is
a matter of the sums at both. Its terms fall apart into those of the first and those of the last event, so that sums
over a range of rows do; the join of first and last events that serves DuckDB took more, up to 1.6 times as much. CPU
seconds are those of the JVM and all Python workers together.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import ouzel
import ouzel.spark
from benchmarks.aggregate_sharing import Found
from benchmarks.aggregate_streams import RUNNING_SUMS, query_text, table_of
from benchmarks.measure import Bar
from benchmarks.spark_batch import Bench, Way, matched, shuffled

# A Spark job costs something before its first event.
TIMES_THE_EVENTS = 4

_FIRST_TERMS = {
    "n": "1", "s_dbc": "dbc", "s_bc": "bc", "s_bcd": "bc * d", "s_b": "b", "s_bdc": "b * dc", "s_bc2": "b * c",
    "s_bcd2": "b * c * d",
}  # fmt: skip

_RANGED = (
    RUNNING_SUMS
    + ",\nranged AS (\n    SELECT *, "
    + ", ".join(f"sum(CASE WHEN type = 'E0' THEN {term} END) OVER w AS {name}" for name, term in _FIRST_TERMS.items())
    + """
    FROM summed WHERE type IN ('E0', 'E3')
    WINDOW w AS (PARTITION BY id ORDER BY ts RANGE BETWEEN {before} PRECEDING AND 1 PRECEDING)
)
SELECT ts AS end, id,
    n * dbc - s_dbc - (s_bc * d - s_bcd) - (s_b * dc - s_bdc) + (s_bc2 * d - s_bcd2) AS count
FROM ranged
WHERE type = 'E3' AND n * bc - s_bc - (s_b * c - s_bc2) > 0
"""
)


def spark_sql(window: int) -> Way:
    def run(events: DataFrame) -> DataFrame:
        events.createOrReplaceTempView("events_of_w4")
        return events.sparkSession.sql(_RANGED.format(events="events_of_w4", before=window - 1))

    return run


def spark(events: int, runs: int) -> Found:
    """W4 from Parquet files on local[2], for each id, and the total over all ids, which Spark SQL is spared."""
    settings = {"spark.sql.shuffle.partitions": 4, "spark.log.level": "ERROR", "spark.driver.memory": "6g"}
    session = ouzel.spark.session("aggregate", "local[2]", **settings)
    folder = Path(tempfile.mkdtemp(prefix="ouzel-aggregate-spark-"))
    bench = Bench(session, folder, runs)
    table = table_of(TIMES_THE_EVENTS * events, 100)
    table = table.set_column(0, "type", table["type"].cast("string"))
    bars, lines = [], []
    try:
        source = bench.world("w4", table)
        for window in (10_000, 100_000):
            text = query_text(4, window)
            total = text.replace("GROUP BY id", "WHERE [id]")
            ways = {"Ouzel": matched(text), "Spark SQL": spark_sql(window)}
            _check(source, ways, ouzel.match(table, text))
            _check(source, {"Ouzel, one total": matched(total)}, ouzel.match(table, total))
            ways["Ouzel, one total"] = matched(total)
            ways["to read, filter, shuffle and sort"] = shuffled(["type", "ts", "id"], ["E0", "E1", "E2", "E3"], "id")
            seconds = bench.measure(source, ways)
            lines += [[f"W4, window {window:,}: {name}", f"{taken:.2f} s of CPU"] for name, taken in seconds.items()]
            ratio = seconds["Spark SQL"] / seconds["Ouzel"]
            bars.append(Bar(f"W4 against Spark SQL, window {window:,}", ratio, 5, at_least=True))
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return bars, lines


def _check(source: DataFrame, ways: dict[str, Way], expected: pa.Table) -> None:
    wanted = (expected.num_rows, sum(expected["count"].to_pylist()))
    for name, way in ways.items():
        (row,) = way(source).agg(F.count("*"), F.sum("count")).collect()
        assert (row[0], int(row[1] or 0)) == wanted, f"{name}: {tuple(row)}, expected {wanted}"
