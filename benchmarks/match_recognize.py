"""MATCH_RECOGNIZE: V shapes beside DuckDB and polars, and patterns that are slow elsewhere.

    python -m benchmarks.match_recognize [--quick] [--runs 5] [--only peers] [--page]

One thread each; all figures are ratios of CPU time, and the answers of all ways are compared.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

import ouzel
from benchmarks.measure import Bar, alternate, markdown
from benchmarks.report import RESULTS, Part, Report, verdict

# One core is compared with one core; polars reads this when it is imported.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

Found = tuple[tuple[list[str], list[list[str]]], list[Bar]]
COLUMNS = ["sym", "first_ts", "bottom_ts", "last_ts", "n"]
V_SHAPE = """
    PARTITION BY sym ORDER BY ts
    MEASURES FIRST(ts) AS first_ts, LAST(DOWN.ts) AS bottom_ts, LAST(ts) AS last_ts, COUNT(*) AS n
    PATTERN (DOWN+ UP+)
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)"""
# Runs of falling and rising rows, found by their first rows: the best of several ways that were tried.
WINDOWS = """
    WITH moves AS (
      SELECT sym, ts, row_number() OVER w AS place, lag(ts) OVER w AS before,
             CASE WHEN price < lag(price) OVER w THEN 1 WHEN price > lag(price) OVER w THEN 2 ELSE 0 END AS move
      FROM ticks WINDOW w AS (PARTITION BY sym ORDER BY ts)),
    heads AS (
      SELECT * FROM (SELECT *, move <> lag(move, 1, -1) OVER (PARTITION BY sym ORDER BY ts) AS is_head FROM moves)
      WHERE is_head),
    ends AS (SELECT sym, max(ts) AS last, count(*) AS size FROM ticks GROUP BY sym),
    runs AS (
      SELECT sym, move, ts, place, lead(move) OVER w AS next_move, lead(before) OVER w AS bottom,
             lead(before, 2) OVER w AS top, lead(place, 2) OVER w AS after
      FROM heads WINDOW w AS (PARTITION BY sym ORDER BY ts))
    SELECT sym, ts AS first_ts, bottom AS bottom_ts, coalesce(top, last) AS last_ts,
           coalesce(after, size + 1) - place AS n
    FROM runs JOIN ends USING (sym) WHERE move = 1 AND next_move = 2"""


def ticks(rows: int, symbols: int) -> pa.Table:
    rng = np.random.default_rng(11)
    names = pa.array([f"symbol-{number}" for number in range(symbols)])
    return pa.table(
        {
            "sym": names.take(pa.array(rng.integers(0, symbols, rows))),
            "ts": np.arange(rows),
            "price": rng.integers(1, 100, rows),
        }
    )


def by_duckdb(table: pa.Table) -> pa.Table:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("ticks", table)
        return connection.sql(WINDOWS).to_arrow_table()


def by_polars(table: pa.Table) -> pa.Table:
    import polars as pl

    def before(name: str) -> pl.Expr:
        return pl.col(name).shift(1)

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    # The input is in order of time, so a stable sort by key is enough.
    lazy = frame.lazy().sort("sym", maintain_order=True)
    same = pl.col("sym") == before("sym")
    falls, rises = (same & (pl.col("price") < before("price"))), (same & (pl.col("price") > before("price")))
    lazy = lazy.with_columns(move=pl.when(falls).then(1).when(rises).then(2).otherwise(0))
    lazy = lazy.with_columns(run=((pl.col("move") != before("move")) | ~same).fill_null(True).cum_sum())
    runs = lazy.group_by("run", maintain_order=True).agg(
        pl.col("sym", "move").first(), pl.col("ts").first().alias("first_ts"), pl.col("ts").last(), pl.len().alias("n")
    )
    following = {name: pl.col(name).shift(-1).alias(f"next_{name}") for name in ("sym", "move", "ts", "n")}
    runs = runs.with_columns(*following.values())
    shapes = (pl.col("move") == 1) & (pl.col("next_move") == 2) & (pl.col("sym") == pl.col("next_sym"))
    return (
        runs.filter(shapes)
        .select("sym", "first_ts", bottom_ts="ts", last_ts="next_ts", n=pl.col("n") + pl.col("next_n"))
        .collect()
        .to_arrow()
    )


def peers(quick: bool, runs: int) -> Found:
    """V shapes over interleaved partitions with text keys, Arrow to Arrow."""
    table = ticks(200_000 if quick else 2_000_000, 1_000)
    ways: dict[str, Callable[[], pa.Table]] = {
        "Ouzel": lambda: ouzel.match_recognize(table, V_SHAPE),
        "DuckDB, window functions": lambda: by_duckdb(table),
        "polars": lambda: by_polars(table),
    }
    answers = {name: _ordered(way()) for name, way in ways.items()}
    assert all(answer == answers["Ouzel"] for answer in answers.values()), "the ways give different answers"
    times = alternate(ways, runs)
    rows = [[name, f"{seconds:.3f}", f"{times.ratio(name, 'Ouzel'):.1f}"] for name, seconds in times.items()]
    return (["V shapes", "seconds of CPU", "times Ouzel's"], rows), [
        Bar("V shapes: DuckDB's window functions to Ouzel", times.ratio("DuckDB, window functions", "Ouzel"), 3, True),
        Bar("V shapes: polars to Ouzel", times.ratio("polars", "Ouzel"), 2.5, True),
    ]


def _ordered(table: pa.Table) -> list[tuple[object, ...]]:
    columns = [table.column(name).to_pylist() for name in COLUMNS]
    return sorted(zip(*columns, strict=True))


NO_MATCH = {
    "A+ B+": "A AS v >= 0, B AS v < 0",
    "(A | B)+ C": "A AS v >= 0, B AS v >= 0, C AS v < 0",
    "A* B* C* D* E": "A AS v >= 0, B AS v >= 0, C AS v >= 0, D AS v >= 0, E AS v < 0",
}


def dead_ends(quick: bool, runs: int) -> Found:
    """Patterns without a match, in one partition: linear in the rows."""
    small, large = (20_000, 200_000) if quick else (200_000, 2_000_000)
    rows, bars = [], []
    for pattern, definitions in NO_MATCH.items():
        clause = f"ORDER BY ts MEASURES COUNT(*) AS n PATTERN ({pattern}) DEFINE {definitions}"
        tables = {size: pa.table({"ts": np.arange(size), "v": np.arange(size) % 7}) for size in (small, large)}
        ways = {str(size): partial(ouzel.match_recognize, table, clause) for size, table in tables.items()}
        assert all(way().num_rows == 0 for way in ways.values())
        times = alternate(ways, runs)
        ratio = times.ratio(str(large), str(small))
        shown = pattern.replace("|", r"\|")  # in a cell of a table
        rows.append([shown, f"{times[str(large)] / large * 1e9:.0f}", f"{ratio:.1f}"])
        bars.append(Bar(f"{shown} without a match: {large:,} rows to {small:,}", ratio, 12, at_least=False))
    return (["pattern", "ns a row", "ten times the rows"], rows), bars


def overlapping(quick: bool, runs: int) -> Found:
    """Every row of one long run starts a match."""
    size = 2_000 if quick else 20_000
    table = pa.table({"ts": np.arange(size), "v": np.ones(size, np.int64)})
    clause = "ORDER BY ts MEASURES LAST(ts) AS e, COUNT(*) AS n AFTER MATCH SKIP {} PATTERN (A+ B?) DEFINE A AS v > 0"
    ways = {
        "PAST LAST ROW": partial(ouzel.match_recognize, table, clause.format("PAST LAST ROW")),
        "TO NEXT ROW": partial(ouzel.match_recognize, table, clause.format("TO NEXT ROW")),
    }
    assert [way().num_rows for way in ways.values()] == [1, size]
    times = alternate(ways, runs)
    ratio = times.ratio("TO NEXT ROW", "PAST LAST ROW")
    rows = [[name, f"{seconds * 1e3:.2f}"] for name, seconds in times.items()]
    return (["AFTER MATCH SKIP", "ms"], rows), [
        Bar(f"one run of {size:,} rows: TO NEXT ROW to PAST LAST ROW", ratio, 3, at_least=False)
    ]


def on_the_match(quick: bool, runs: int) -> Found:
    """Conditions that read the match: each step costs the same, however long the match is."""
    small, large = (20_000, 200_000) if quick else (200_000, 2_000_000)
    clause = "PARTITION BY k ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A+) DEFINE A AS SUM(A.v) <= 100"
    ways = {}
    for size in (small, large):
        values = np.random.default_rng(3).integers(1, 30, size)
        table = pa.table({"k": np.arange(size) % 1_000, "ts": np.arange(size), "v": values})
        ways[str(size)] = partial(ouzel.match_recognize, table, clause)
        assert ways[str(size)]().num_rows == _packed(values)
    times = alternate(ways, runs)
    ratio = times.ratio(str(large), str(small))
    rows = [["SUM(A.v) <= 100", f"{times[str(large)] / large * 1e9:.0f}", f"{ratio:.1f}"]]
    return (["condition", "ns a row", "ten times the rows"], rows), [
        Bar(f"bins of at most 100: {large:,} rows to {small:,}", ratio, 12, at_least=False)
    ]


def _packed(values: np.ndarray) -> int:
    """How many bins of at most 100 the values of a thousand interleaved streams fill."""
    bins = 0
    for stream in range(1_000):
        total = 1_000
        for value in values[stream::1_000].tolist():
            if total + value > 100:
                bins += 1
                total = 0
            total += value
    return bins


PARTS: dict[str, tuple[str, Callable[[bool, int], Found]]] = {
    "peers": ("V shapes, beside DuckDB and polars on one core", peers),
    "dead_ends": ("Patterns without a match", dead_ends),
    "overlapping": ("Overlapping matches", overlapping),
    "match": ("Conditions that read the match", on_the_match),
}

NOTES = {
    "peers": "2,000,000 rows of 1,000 interleaved partitions, keys as text, four measures, Arrow to Arrow. This "
    "DuckDB and polars have no MATCH_RECOGNIZE: their queries find runs of falling and rising rows. "
    "Linux compacts memory for the large pages that numpy asks for, in Ouzel's time: 0.03 to 0.36 s beside 0.14 s of "
    "its own. So two runs on one day had ratios of 4.9 and 4.4, and of 3.3 and 2.7; under load they were as low as 2.4 "
    "and 2.2.",
    "dead_ends": "One partition in which every row may begin a match and none ends: a search that takes steps back "
    "tries each pair of rows.",
    "overlapping": "20,000 rows of one partition. After SKIP TO NEXT ROW each row has a match up to the last row.",
    "match": "The condition reads the sum of the match so far, so each start is searched. 1,000 partitions.",
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small tables, to see that everything runs")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=PARTS)
    parser.add_argument("--page", action="store_true", help="write benchmarks/results/match-recognize.md")
    asked = parser.parse_args(arguments)
    report = Report(asked.only)
    for name, (title, measure) in PARTS.items():
        if report.wants(name):
            report.add(title, NOTES[name], partial(measure, asked.quick, asked.runs))
    print(f"\n{verdict(report.parts)}")
    if asked.page:
        write_page(report.parts, asked.runs)


def write_page(parts: list[Part], runs: int) -> None:
    lines = [
        "# Row patterns",
        "",
        f"Written by `python -m benchmarks.match_recognize --page`: one thread each, medians of {runs} alternating "
        f"runs, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores. The clauses and the queries of the peers are "
        "in `benchmarks/match_recognize.py`. Every run checks the answers. Each call reads the clause, sorts the rows, "
        "finds the matches and writes an Arrow table.",
        "",
        verdict(parts),
    ]
    for title, note, table, _ in parts:
        lines += ["", f"## {title}", "", note, "", markdown(*table)]
    (RESULTS / "match-recognize.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
