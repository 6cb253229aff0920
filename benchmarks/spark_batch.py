"""Batches on Spark against Spark's own shuffle and sort, its joins and windows, and pandas per key, by CPU seconds.

CPU seconds are those of the JVM and all Python workers together, on local[2], medians of alternating runs after a
warm-up. Every way of answering a query is compared with the embedded engine before it is measured.

    python -m benchmarks.spark_batch [--events 10000000] [--runs 5] [--only selective W1 …] [--keep FILE] [--page]

`--keep` adds what is measured to a file, part by part, and `--page` writes the page from all that it holds; `--only`
without a name measures nothing.
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

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import ouzel
import ouzel.spark
from benchmarks.match_recognize import V_SHAPE, WINDOWS, ticks
from benchmarks.measure import Bar, machine, markdown
from benchmarks.report import BAR_HEADINGS
from benchmarks.spark_batch_page import HEADINGS, PAGE, page
from benchmarks.spark_batch_ways import (
    FUNNEL,
    HOT,
    HOUR_US,
    KEYLESS,
    NEGATED,
    SELECTIVE,
    VIEWS,
    VISIT,
    WINDOW,
    Way,
    clicks_world,
    counted_views,
    dense_world,
    first_steps,
    hot_world,
    joined_funnel,
    joined_negation,
    joined_sequence,
    joined_visit,
    per_key,
    selective_world,
    shuffled,
    users_world,
)
from ouzel.spark import tasks as shipping

# After one, Java seems to compile still: see the page.
_WARM_UPS = 3
# Of queries that are cut into time slices.
SLICED_PARTITIONS = 8
# So many times the first way's CPU, and a way is measured once.
_FAR_BEHIND = 15


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
        """Median CPU seconds of each way, written to nowhere; those of Python and wall seconds go to the table.

        A way that takes very many times what the first one takes is measured once: that is no close call. Each turn
        begins with another way, because Java compiles and collects garbage for all of them.
        """
        taken: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
        first = next(iter(ways))
        order = list(ways.items())
        for turn in range(_WARM_UPS + self.runs):
            shift = turn % len(order)
            for name, way in order[shift:] + order[:shift]:
                if taken[name] and taken[first] and taken[name][-1][0] > _FAR_BEHIND * taken[first][-1][0]:
                    continue
                before = (*cpu_seconds(), time.perf_counter())
                way(events).write.format("noop").mode("overwrite").save()
                after = (*cpu_seconds(), time.perf_counter())
                taken[name].append(tuple(b - a for a, b in zip(before, after, strict=True)))
        medians = {}
        for name, runs in taken.items():
            warm = runs[_WARM_UPS:] or runs[-1:]
            cells = [statistics.median(column) for column in zip(*warm, strict=True)]
            medians[name] = cells[0]
            self.rows.append([name, *(f"{seconds:.2f}" for seconds in cells)])
            print(f"  {name}: {cells[0]:.2f} s of CPU", file=sys.stderr, flush=True)
        return medians

    def check(self, name: str, events: DataFrame, ways: dict[str, Way], expected: pa.Table) -> None:
        """Every way gives the answer of the embedded engine: as many rows, and the same sums of all numbers."""
        numbers = [field.name for field in expected.schema if pa.types.is_integer(field.type)]
        wanted = (expected.num_rows, *(sum(expected[column].to_pylist()) for column in numbers))
        for way, run in ways.items():
            (row,) = (
                run(events).agg(F.count("*"), *(F.coalesce(F.sum(column), F.lit(0)) for column in numbers)).collect()
            )
            if tuple(row) != wanted:
                sys.exit(f"{name}, {way}: {tuple(row)} matches and sums, expected {wanted}")

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
    bench.check(name, source, {mine: matched(SELECTIVE)}, ouzel.match(table, SELECTIVE))
    ways = {mine: matched(SELECTIVE), floor: shuffled(columns, types, "attr1")}
    if types is not None:
        ways |= {f"{name}: {step}": way for step, way in first_steps(columns, types, "attr1").items()}
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
    bench.check(name, source, ways, ouzel.match(table, query))
    mine, sql, pandas, filtered = bench.measure(source, ways).values()
    bench.bar(f"{name}: less CPU than Spark SQL", sql / mine, 3, at_least=True)
    bench.bar(f"{name}: less CPU than applyInPandas", pandas / mine, 10, at_least=True)
    bench.rows.append([f"{name}: times the CPU, applyInPandas after a filter", f"{filtered / mine:.2f}", "", ""])


def against_nothing(bench: Bench, name: str, table: pa.Table, query: str, sql: Way, times: float) -> None:
    """What Ouzel adds to its own plan, and how it compares with the best formulation in SQL."""
    source = bench.world(name, table)
    ways = {f"{name}: Ouzel": matched(query), f"{name}: Spark SQL": sql}
    bench.check(name, source, ways, ouzel.match(table, query))
    mine, best, nothing = bench.measure(
        source, ways | {f"{name}: the plan of Ouzel, with a function that does nothing": lambda e: emptied(e, query)}
    ).values()
    bench.bar(f"{name}: CPU of the same plan that does nothing", mine / nothing, 1.2)
    bench.bar(f"{name}: less CPU than Spark SQL", best / mine, times, at_least=True)


def row_patterns(bench: Bench, name: str, table: pa.Table) -> None:
    """MATCH_RECOGNIZE against what any answer by key has to pay for, and against window functions."""
    source = bench.world("ticks", table)
    mine, floor, windows = f"{name}: Ouzel", f"{name}: read, shuffle, sort", f"{name}: Spark SQL, window functions"
    answers: dict[str, Way] = {
        mine: lambda events: ouzel.spark.match_recognize(events, V_SHAPE),
        windows: lambda events: bench.spark.sql(WINDOWS.replace("FROM ticks", "FROM {ticks}"), ticks=events),
    }
    bench.check(name, source, answers, ouzel.match_recognize(table, V_SHAPE))
    computed = V_SHAPE.replace("PARTITION BY sym", "PARTITION BY upper(sym)")
    ways = {
        mine: answers[mine],
        floor: shuffled(table.column_names, None, "sym"),
        windows: answers[windows],
        f"{name}: Ouzel, PARTITION BY upper(sym)": lambda events: ouzel.spark.match_recognize(events, computed),
    }
    seconds = bench.measure(source, ways)
    bench.bar(f"{name}: CPU of read + shuffle + sort", seconds[mine] / seconds[floor], 1.2)
    bench.bar(f"{name}: less CPU than window functions", seconds[windows] / seconds[mine], 1, at_least=True)


def emptied(events: DataFrame, query: str) -> DataFrame:
    """The plan of a query whose function reads all rows and returns none."""

    def swallow(batches: Iterable[Any]) -> Iterator[Any]:
        for _ in batches:
            pass
        return iter(())

    plain = shipping.on_workers
    shipping.on_workers = lambda *_: swallow
    try:
        return ouzel.spark.match(events, query)
    finally:
        shipping.on_workers = plain


def by_slices(bench: Bench, name: str, table: pa.Table, query: str) -> None:
    """Time slices against none, where matching takes most of the time."""
    source = bench.world(name, table)
    cut, whole = f"{name}: slices of ten windows", f"{name}: not cut"
    ways = {cut: matched(query, slices=True), whole: matched(query, slices=False)}
    before = bench.spark.conf.get("spark.sql.shuffle.partitions")
    bench.spark.conf.set("spark.sql.shuffle.partitions", SLICED_PARTITIONS)
    bench.check(name, source, ways, ouzel.match(table, query))
    seconds = bench.measure(source, ways)
    longest = {way: longest_task(bench, source, run) for way, run in ways.items()}
    bench.spark.conf.set("spark.sql.shuffle.partitions", before)
    bench.rows += [[f"{way}: longest task", f"{spent:.2f}", "", ""] for way, spent in longest.items()]
    bench.bar(f"{name}: CPU of cutting time", seconds[cut] / seconds[whole], 1.25)
    bench.bar(f"{name}: CPU of the longest task", longest[cut] / longest[whole], 0.5)


def longest_task(bench: Bench, events: DataFrame, way: Way) -> float:
    """CPU of the longest task of a run: its thread in Java, as Spark logs, and its Python."""
    folder = Path(tempfile.mkdtemp(dir=bench.folder))
    plain = shipping.on_workers

    def timed(function: Any, *arguments: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
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
    return max(spent.values())


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
        bench, "W5", clicks_world(n // 5), FUNNEL, joined_funnel, per_key, CLICK_STEPS, 2, "user", "item", HOUR_US
    ),
    "sequence": lambda bench, n: against_nothing(bench, "sequence", users_world(n // 2), VISIT, joined_visit, 2),
    "negation": lambda bench, n: against_nothing(bench, "negation", users_world(n // 2), FUNNEL, joined_funnel, 2.5),
    "Kleene": lambda bench, n: against_nothing(bench, "Kleene", users_world(n // 2), VIEWS, counted_views, 3.5),
    "V shapes": lambda bench, n: row_patterns(bench, "V shapes", ticks(n, 1_000)),
    "keyless": lambda bench, n: by_slices(bench, "no key", selective_world(n // 10), KEYLESS),
    "hot": lambda bench, n: by_slices(bench, "hot key", hot_world(n // 10), HOT),
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=4, help="of shuffles")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="a million events, three runs")
    parser.add_argument("--keep", type=Path, help="a file that collects the parts")
    parser.add_argument("--page", action="store_true", help="write benchmarks/results/spark-batch.md from the parts")
    given = parser.parse_args(arguments)
    if given.quick:
        given.events, given.runs = 1_000_000, 3
    parts: dict[str, Any] = {}
    if given.keep and given.keep.exists():
        parts = json.loads(given.keep.read_text(encoding="utf-8"))
    for name, bench in measured_parts(given.only, given.events, given.runs, given.partitions):
        parts[name] = {
            "machine": machine(),
            "events": given.events,
            "runs": given.runs,
            "partitions": given.partitions,
            "bars": [bar.as_json() for bar in bench.bars],
            "rows": bench.rows,
        }
        print(markdown(HEADINGS, bench.rows))
        print(markdown(BAR_HEADINGS, [bar.cells() for bar in bench.bars]), flush=True)
        if given.keep:
            given.keep.write_text(json.dumps(parts, indent=2) + "\n", encoding="utf-8")
    if given.page:
        PAGE.write_text(page({name: parts[name] for name in PARTS if name in parts}), encoding="utf-8")
    print(json.dumps({name: parts[name] for name in given.only}))
    return 0 if all(bar["passed"] for name in given.only for bar in parts[name]["bars"]) else 1


def measured_parts(names: list[str], events: int, runs: int, partitions: int) -> Iterator[tuple[str, Bench]]:
    """One part after another, in one session of Spark."""
    if not names:
        return
    folder = Path(tempfile.mkdtemp(prefix="ouzel-spark-batch-"))
    settings = {
        "spark.sql.shuffle.partitions": partitions,
        "spark.log.level": "ERROR",
        "spark.driver.memory": "6g",
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": False,
    }
    spark = ouzel.spark.session("spark_batch", "local[2]", **settings)
    try:
        for name in names:
            bench = Bench(spark, folder, runs)
            PARTS[name](bench, events)
            yield name, bench
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
