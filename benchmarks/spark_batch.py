"""Batches on Spark against Spark's own shuffle and sort, its joins and windows, and pandas per key, by CPU seconds.

CPU seconds are those of the JVM and all Python workers together, on local[2], medians of alternating runs after a
warm-up. Every way of answering a query is compared with the embedded engine before it is measured.

    python -m benchmarks.spark_batch [--events 10000000] [--runs 5] [--only selective,W1,…] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import ouzel
import ouzel.spark
from benchmarks.measure import Bar, machine, markdown
from ouzel.datasets import sase_events
from ouzel.spark import shipping

Way = Callable[[DataFrame], DataFrame]

WINDOW = 10_000
HOUR_US = 3_600_000_000
VALUES = (1_000, 20, 100, 1_000)  # attr1 … attr4; with type and ts, six columns

SELECTIVE = f"PATTERN SEQ(E1 a, E2 b, E3 c) WHERE [attr1] WITHIN {WINDOW} RETURN M(a.attr1 AS id, c.attr4 AS v)"
NEGATED = f"PATTERN SEQ(E1 a, !(E2 b), E3 c) WHERE [attr1] WITHIN {WINDOW} RETURN M(a.attr1 AS id, c.attr4 AS v)"
FUNNEL = (
    "PATTERN SEQ(view v, cart c, !(remove r), purchase p) WHERE [user] WITHIN 1 hour "
    "RETURN M(v.user AS id, p.item AS v)"
)
KEYLESS = "PATTERN SEQ(E1 a, E2 b) WHERE a.attr4 = b.attr4 + 7 WITHIN 200 RETURN M(a.attr1 AS id, b.attr4 AS v)"
HOT = "PATTERN SEQ(E1 a, E2 b) WHERE [attr1] AND a.attr4 = b.attr4 + 7 WITHIN 200 RETURN M(a.attr1 AS id, b.attr4 AS v)"


# ── Worlds ─────────────────────────────────────────────────────────────────────────────────────────


def selective_world(events: int) -> pa.Table:
    return sase_events(events, types=20, values=VALUES, seed=1)


def dense_world(events: int) -> pa.Table:
    """Every event is of a type that the query names."""
    return sase_events(events, types=3, values=(20_000, *VALUES[1:]), seed=2)


def clicks_world(events: int) -> pa.Table:
    """Clicks of users, 50 each, over a week."""
    rng = np.random.default_rng(3)
    kinds = np.array(["view", "cart", "remove", "purchase"])
    moments = np.sort(rng.integers(0, 7 * 24 * HOUR_US, events)) + 1_700_000_000_000_000
    return pa.table(
        {
            "type": pa.array(kinds[rng.choice(4, events, p=[0.7, 0.15, 0.05, 0.1])]),
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "user": pa.array(rng.integers(0, max(1, events // 50), events)),
            "item": pa.array(rng.integers(0, 10_000, events)),
            "price": pa.array(rng.random(events)),
            "page": pa.array(rng.integers(0, 500, events)),
        }
    )


def hot_world(events: int) -> pa.Table:
    """Half of all events have one key."""
    table = sase_events(events, types=20, values=VALUES, seed=4)
    hot = np.random.default_rng(5).random(events) < 0.5
    return table.set_column(2, "attr1", pa.array(np.where(hot, 0, table["attr1"].to_numpy())))


# ── Ways ───────────────────────────────────────────────────────────────────────────────────────────


def shuffled(columns: list[str], types: list[str] | None, key: str) -> Way:
    """What any answer by key has to pay for: read, filter, shuffle and sort."""

    def run(events: DataFrame) -> DataFrame:
        rows = events if types is None else events.where(F.col("type").isin(types))
        return rows.select(*columns).repartition(key).sortWithinPartitions(key, "ts")

    return run


def joined_sequence(events: DataFrame) -> DataFrame:
    """W1: equi-joins on the id and on time cut into windows, so that pairs far apart never meet."""
    near = F.explode(F.array(F.floor(F.col("ts") / WINDOW), F.floor(F.col("ts") / WINDOW) - 1)).alias("bucket")
    first = events.where("type = 'E1'").select(
        F.col("attr1").alias("id"), F.col("ts").alias("a"), F.floor(F.col("ts") / WINDOW).alias("bucket")
    )
    second = events.where("type = 'E2'").select(F.col("attr1").alias("id"), F.col("ts").alias("b"), near)
    third = events.where("type = 'E3'").select(
        F.col("attr1").alias("id"), F.col("ts").alias("c"), F.col("attr4").alias("v"), near
    )
    pairs = first.join(second, ["id", "bucket"]).where(f"a < b AND b - a < {WINDOW}")
    return pairs.join(third, ["id", "bucket"]).where(f"b < c AND c - a < {WINDOW}").select("id", "v")


def _last(kind: str, key: str, type_column: str = "type") -> Any:
    from pyspark.sql import Window

    # Strictly before: simultaneous events forbid nothing.
    window = Window.partitionBy(key).orderBy("ts").rangeBetween(Window.unboundedPreceding, -1)
    return F.max(F.when(F.col(type_column) == kind, F.col("ts"))).over(window)


def joined_negation(events: DataFrame) -> DataFrame:
    """W2: a window function finds the last E2 before each E3, then one bucketed join."""
    near = F.explode(F.array(F.floor(F.col("ts") / WINDOW), F.floor(F.col("ts") / WINDOW) - 1)).alias("bucket")
    marked = events.where("type IN ('E2', 'E3')").withColumn("last", _last("E2", "attr1"))
    last = marked.where("type = 'E3'").select(
        F.col("attr1").alias("id"), F.col("ts").alias("c"), "last", F.col("attr4").alias("v"), near
    )
    first = events.where("type = 'E1'").select(
        F.col("attr1").alias("id"), F.col("ts").alias("a"), F.floor(F.col("ts") / WINDOW).alias("bucket")
    )
    pairs = first.join(last, ["id", "bucket"]).where(f"a < c AND c - a < {WINDOW}")
    return pairs.where("last IS NULL OR last <= a").select("id", "v")


def joined_funnel(events: DataFrame) -> DataFrame:
    """W5: the last removal before each purchase by a window function, then joins on user and hour."""
    ticks = events.withColumn("ts", F.unix_micros("ts"))
    hour = F.floor(F.col("ts") / HOUR_US)
    near = F.explode(F.array(hour, hour - 1)).alias("bucket")
    marked = ticks.where("type IN ('remove', 'purchase')").withColumn("last", _last("remove", "user"))
    bought = marked.where("type = 'purchase'").select(
        F.col("user").alias("id"), F.col("ts").alias("p"), "last", F.col("item").alias("v"), near
    )
    seen = ticks.where("type = 'view'").select(F.col("user").alias("id"), F.col("ts").alias("a"), hour.alias("bucket"))
    put = ticks.where("type = 'cart'").select(F.col("user").alias("id"), F.col("ts").alias("c"), near)
    pairs = seen.join(put, ["id", "bucket"]).where(f"a < c AND c - a < {HOUR_US}")
    found = pairs.join(bought, ["id", "bucket"]).where(f"c < p AND p - a < {HOUR_US}")
    return found.where("last IS NULL OR last <= c").select("id", "v")


def per_key(
    steps: list[str], negative: int | None, key: str, value: str, window: int, *, filtered: bool = False
) -> Way:
    """applyInPandas: a hand-written search for each key, over all its events or those that Spark was told to keep."""

    def search(events: Any) -> Any:
        import pandas

        ordered = events.sort_values("ts", kind="stable")
        moments = ordered["ts"].astype("int64").tolist()
        kinds = ordered["type"].tolist()
        values = ordered[value].tolist()
        stacks: list[list[int]] = [[] for _ in steps]
        found = []
        positive = [number for number in range(len(steps)) if number != negative]

        def extend(place: int, after: int, first_allowed: int) -> Iterator[int]:
            """Starts of the sequences whose place-th event lies before `after`."""
            step = positive[place]
            for moment in reversed(stacks[step]):
                if moment >= after:
                    continue
                if moment < first_allowed:
                    break
                if negative == step + 1 and any(moment < other < after for other in stacks[negative]):
                    continue
                if place == 0:
                    yield moment
                else:
                    yield from extend(place - 1, moment, first_allowed)

        for moment, kind, own in zip(moments, kinds, values, strict=True):
            for step, name in enumerate(steps):
                if kind == name and step == positive[-1]:
                    found += [own] * sum(1 for _ in extend(len(positive) - 2, moment, moment - window + 1))
                elif kind == name:
                    stacks[step].append(moment)
        return pandas.DataFrame({"id": [ordered[key].iloc[0]] * len(found), "v": found}).astype("int64")

    def run(events: DataFrame) -> DataFrame:
        rows = events.where(F.col("type").isin(steps)) if filtered else events
        rows = rows.select("type", "ts", key, value)
        if dict(rows.dtypes)["ts"] == "timestamp":
            rows = rows.withColumn("ts", F.unix_micros("ts"))
        return rows.groupBy(key).applyInPandas(search, "id long, v long")

    return run


# ── Measuring ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Bench:
    """One world after another, each with its contestants."""

    spark: SparkSession
    folder: Path
    runs: int
    bars: list[Bar] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def world(self, name: str, table: pa.Table) -> DataFrame:
        path = self.folder / f"{name}.parquet"
        pq.write_table(table, path, row_group_size=-(-table.num_rows // 8))
        return self.spark.read.parquet(str(path))

    def measure(self, events: DataFrame, ways: dict[str, Way]) -> dict[str, float]:
        """Median CPU seconds of each way, written to nowhere; those of Python and wall seconds go to the table."""
        taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for turn in range(self.runs + 1):
            for name, way in ways.items():
                before = (*cpu_seconds(), time.perf_counter())
                way(events).write.format("noop").mode("overwrite").save()
                after = (*cpu_seconds(), time.perf_counter())
                if turn:
                    taken[name].append(tuple(b - a for a, b in zip(before, after, strict=True)))
        medians = {}
        for name, runs in taken.items():
            cells = [statistics.median(column) for column in zip(*runs, strict=True)]
            medians[name] = cells[0]
            self.rows.append([name, *(f"{seconds:.2f}" for seconds in cells)])
            print(f"  {name}: {cells[0]:.2f} s of CPU", file=sys.stderr, flush=True)
        return medians

    def check(self, name: str, events: DataFrame, ways: dict[str, Way], table: pa.Table, query: str) -> None:
        """Every way gives the answer of the embedded engine."""
        expected = ouzel.match(table, query)
        wanted = (expected.num_rows, sum(expected["id"].to_pylist()), sum(expected["v"].to_pylist()))
        for way, run in ways.items():
            (row,) = run(events).agg(F.count("*"), F.sum("id"), F.sum("v")).collect()
            if (row[0], row[1] or 0, row[2] or 0) != wanted:
                sys.exit(f"{name}, {way}: {tuple(row)} matches, ids and values, expected {wanted}")

    def bar(self, name: str, measured: float, limit: float, *, at_least: bool = False) -> None:
        self.bars.append(Bar(name, measured, limit, at_least))


def cpu_seconds() -> tuple[float, float]:
    """CPU of this process and all below it, and of the Python ones among them; the dead count with their parents."""
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, _, tail = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            process, fields = int(entry.name), tail.split()
            parents[process], names[process] = int(fields[1]), head.partition("(")[2]
            spent[process] = sum(map(int, fields[11:15])) / ticks_per_second
    below = {process: seconds for process, seconds in spent.items() if _descends(process, os.getpid(), parents)}
    return sum(below.values()), sum(seconds for process, seconds in below.items() if names[process] != "java")


def _descends(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    while process not in (0, 1, ancestor):
        process = parents.get(process, 0)
    return process == ancestor


def matched(query: str, **options: Any) -> Way:
    return lambda events: ouzel.spark.match(events, query, **options)


def against_the_shuffle(bench: Bench, name: str, table: pa.Table, types: list[str] | None) -> None:
    columns = ["type", "ts", "attr1", "attr4"]
    source = bench.world(name, table)
    mine, floor = f"{name}: Ouzel", f"{name}: filter, shuffle, sort"
    bench.check(name, source, {mine: matched(SELECTIVE)}, table, SELECTIVE)
    ways = {mine: matched(SELECTIVE), floor: shuffled(columns, types, "attr1")}
    if types is not None:
        ways[f"{name}: shuffle and sort of everything"] = shuffled(table.column_names, None, "attr1")
    seconds = bench.measure(source, ways)
    bench.bar(f"{name}: CPU of filter + repartition + sort", seconds[mine] / seconds[floor], 1.2)


def against_joins(
    bench: Bench, name: str, table: pa.Table, query: str, join: Way, loop: Callable[..., Way], *loop_options: Any
) -> None:
    """The loop per key is there twice: as people write it, and with the filter that Ouzel finds by itself."""
    source = bench.world(name, table)
    ways = {
        f"{name}: Ouzel": matched(query),
        f"{name}: Spark SQL": join,
        f"{name}: applyInPandas": loop(*loop_options),
        f"{name}: applyInPandas after a filter": loop(*loop_options, filtered=True),
    }
    bench.check(name, source, ways, table, query)
    mine, sql, pandas, filtered = bench.measure(source, ways).values()
    bench.bar(f"{name}: less CPU than Spark SQL", sql / mine, 3, at_least=True)
    bench.bar(f"{name}: less CPU than applyInPandas", pandas / mine, 10, at_least=True)
    bench.rows.append([f"{name}: times the CPU, applyInPandas after a filter", f"{filtered / mine:.2f}", "", ""])


def by_slices(bench: Bench, name: str, table: pa.Table, query: str) -> None:
    source = bench.world(name, table)
    cut, whole = f"{name}: slices of ten windows", f"{name}: not cut"
    ways = {cut: matched(query, slices=2_000), whole: matched(query, slices=False)}
    bench.check(name, source, ways, table, query)
    seconds = bench.measure(source, ways)
    bench.bar(f"{name}: CPU of cutting time", seconds[cut] / seconds[whole], 1.25)
    for way, limit in ((cut, 0.6), (whole, None)):
        share = largest_share(bench, source, ways[way])
        bench.rows.append([f"{way}: largest task's share of all tasks' CPU", f"{share:.2f}", "", ""])
        if limit is not None:
            bench.bar(f"{name}: largest task of all tasks' CPU", share, limit)


def largest_share(bench: Bench, events: DataFrame, way: Way) -> float:
    """CPU of the largest task among all tasks of a run: its thread in Java, as Spark tells, and its Python."""
    folder = Path(tempfile.mkdtemp(dir=bench.folder))
    plain = shipping.on_workers

    def timed(function: str, *arguments: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
        run = plain(function, *arguments)

        def measured(batches: Iterable[Any]) -> Iterator[Any]:
            import time

            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            started = time.process_time()
            yield from run(batches)
            task = f"{context.stageId()} {context.partitionId()} {time.time_ns()}"
            (folder / task).write_text(str(time.process_time() - started))

        return measured

    already = len(task_ends(bench.folder))
    shipping.on_workers = timed
    try:
        way(events).write.format("noop").mode("overwrite").save()
    finally:
        shipping.on_workers = plain
    spent: dict[tuple[int, int], float] = {}
    for path in folder.iterdir():
        stage, partition, _ = map(int, path.name.split())
        spent[stage, partition] = spent.get((stage, partition), 0.0) + float(path.read_text())
    if not spent:
        sys.exit("no task of Python was seen")
    for event in task_ends(bench.folder)[already:]:
        task = event["Stage ID"], event["Task Info"]["Partition ID"]
        spent[task] = spent.get(task, 0.0) + event["Task Metrics"]["Executor CPU Time"] / 1e9
    return max(spent.values()) / sum(spent.values())


def task_ends(folder: Path) -> list[dict[str, Any]]:
    """What Spark has written in its event log of tasks that ended."""
    lines = [line for path in sorted(folder.rglob("events_*")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith('{"Event":"SparkListenerTaskEnd"')]


SASE_STEPS = ["E1", "E2", "E3"]
CLICK_STEPS = ["view", "cart", "remove", "purchase"]

PARTS: dict[str, Callable[[Bench, int], None]] = {
    "selective": lambda bench, n: against_the_shuffle(bench, "selective", selective_world(n), SASE_STEPS),
    "dense": lambda bench, n: against_the_shuffle(bench, "all relevant", dense_world(n), None),
    "W1": lambda bench, n: against_joins(
        bench, "W1", selective_world(n), SELECTIVE, joined_sequence,
        per_key, SASE_STEPS, None, "attr1", "attr4", WINDOW,
    ),
    "W2": lambda bench, n: against_joins(
        bench, "W2", selective_world(n), NEGATED, joined_negation, per_key, SASE_STEPS, 1, "attr1", "attr4", WINDOW
    ),
    "W5": lambda bench, n: against_joins(
        bench, "W5", clicks_world(n // 2), FUNNEL, joined_funnel, per_key, CLICK_STEPS, 2, "user", "item", HOUR_US
    ),
    "keyless": lambda bench, n: by_slices(bench, "no key", selective_world(n), KEYLESS),
    "hot": lambda bench, n: by_slices(bench, "hot key", hot_world(n), HOT),
}  # fmt: skip


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--events", type=int, default=10_000_000)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--only", default=",".join(PARTS))
    arguments.add_argument("--quick", action="store_true", help="a million events, three runs")
    chosen = arguments.parse_args()
    if chosen.quick:
        chosen.events, chosen.runs = 1_000_000, 3
    folder = Path(tempfile.mkdtemp(prefix="ouzel-spark-batch-"))
    settings = {
        "spark.sql.shuffle.partitions": 4,
        "spark.log.level": "ERROR",
        "spark.driver.memory": "6g",
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": False,
    }
    spark = ouzel.spark.session("spark_batch", "local[2]", **settings)
    bench = Bench(spark, folder, chosen.runs)
    try:
        for name in chosen.only.split(","):
            PARTS[name](bench, chosen.events)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(markdown(["way", "CPU s", "of it Python s", "wall s"], bench.rows))
    print(markdown(["bar", "measured", "limit", ""], [bar.cells() for bar in bench.bars]))
    told = {"benchmark": "spark_batch", "events": chosen.events, "runs": chosen.runs, "machine": machine()}
    print(json.dumps({**told, "bars": [bar.as_json() for bar in bench.bars]}, indent=2))
    sys.exit(not all(bar.passed for bar in bench.bars))


if __name__ == "__main__":
    main()
