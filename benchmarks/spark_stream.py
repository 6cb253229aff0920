"""CPU per micro-batch of a stream on Spark: Ouzel's packed payloads against a stateless pass, against the same session
fed by Spark's own rows, and against a processor of the usual kind, by real key; and how the cost grows with the state.

All ways read the same Parquet files, one micro-batch of 500,000 rows at a time, on local[2], and take turns batch by
batch. CPU seconds are those of the JVM and all Python workers together, medians of warm batches. Before the first batch
comes one with what a window holds, so that state is as large in the first batch as in the last. The matches of every
stateful way are compared with a count that shares no code with the engine.

    python -m benchmarks.spark_stream [--rows 500000] [--batches 8] [--warm 3] [--only ways,keys,state,skew] [--quick]

`--page` writes benchmarks/results/spark-stream.md. With `--json FILE` parts that an earlier run left in the file are
shown too, so that each part can be measured when the machine is quiet.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import ouzel.spark
from benchmarks.measure import machine
from benchmarks.spark_stream_page import PAGE, PARTS, bars_of, page, told
from ouzel.prepared import as_queries
from ouzel.spark.input import bind_events, quoted, watermarked
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.schema import spark_schema

KEYS = 10_000
MICROSECONDS_BETWEEN_EVENTS = 10
TYPES = np.array(["Shelf", "Register", *(f"Other{number}" for number in range(1, 9))])
SHARES = np.array([0.05, 0.15, *[0.1] * 8])
ROLES_PER_ROW = 0.2  # what the query wants of them, and holds for a window
START_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class World:
    """Readings ten microseconds apart, of which a window holds `open_events` that the query wants."""

    rows: int  # of a micro-batch
    batches: int
    open_events: int
    skew: str = "uniform"

    @property
    def window_us(self) -> int:
        return round(self.open_events / ROLES_PER_ROW) * MICROSECONDS_BETWEEN_EVENTS

    @property
    def query(self) -> str:
        return f"PATTERN SEQ(Shelf a, !(Register b)) WHERE [tag] WITHIN {self.window_us} us"

    def tables(self) -> list[pa.Table]:
        """What a window holds before the first micro-batch, and the micro-batches."""
        before = self._readings(-round(self.open_events / ROLES_PER_ROW), 0)
        kinds = before["type"].to_numpy(zero_copy_only=False)
        wanted = before.filter(pa.array((kinds == "Shelf") | (kinds == "Register")))
        starts = range(0, self.rows * self.batches, self.rows)
        return [wanted, *(self._readings(first, first + self.rows) for first in starts)]

    def _readings(self, first: int, end: int) -> pa.Table:
        count = end - first
        random = np.random.default_rng(abs(first))
        return pa.table(
            {
                "type": pa.array(TYPES[random.choice(len(TYPES), count, p=SHARES)]),
                "ts": pa.array(
                    START_US + np.arange(first, end) * MICROSECONDS_BETWEEN_EVENTS, pa.timestamp("us", tz="UTC")
                ),
                "tag": pa.array(self._tags(random, count)),
                # Nothing can be made smaller by compression.
                "weight": pa.array(random.random(count)),
            }
        )

    def _tags(self, random: np.random.Generator, count: int) -> np.ndarray:
        tags = random.integers(0, KEYS, count)
        if self.skew == "half":
            return np.where(random.random(count) < 0.5, 0, tags)
        if self.skew == "zipf":
            weights = np.arange(1, KEYS + 1) ** -1.2
            return random.choice(KEYS, count, p=weights / weights.sum())
        return tags

    def expected_matches(self, tables: list[pa.Table]) -> int:
        """Shelf readings with no reading of the same tag at a register within the window, counted tag by tag."""
        table = pa.concat_tables(tables)
        kinds = table["type"].to_numpy()
        ticks = table["ts"].cast(pa.int64()).to_numpy()
        tags = table["tag"].to_numpy()
        registers: dict[int, list[int]] = {}
        for tag, tick in zip(tags[kinds == "Register"].tolist(), ticks[kinds == "Register"].tolist(), strict=True):
            registers.setdefault(tag, []).append(tick)
        found = {tag: np.array(moments) for tag, moments in registers.items()}
        count = 0
        for tag, tick in zip(tags[kinds == "Shelf"].tolist(), ticks[kinds == "Shelf"].tolist(), strict=True):
            moments = found.get(tag, np.empty(0, np.int64))
            after = np.searchsorted(moments, tick, side="right")
            count += not (after < len(moments) and moments[after] < tick + self.window_us)
        return count


def end_of_time(schema: pa.Schema) -> pa.Table:
    """Readings that no pattern wants, far in the future, of every tag. The first such batch moves the watermark, the
    second finds it moved."""
    columns = [["Other1"] * KEYS, [2 * START_US] * KEYS, range(KEYS), [0.0] * KEYS]
    return pa.table([pa.array(values).cast(field.type) for values, field in zip(columns, schema, strict=True)], schema)


# ── Ways ───────────────────────────────────────────────────────────────────────────────────────────


def stateless(events: DataFrame, world: World) -> DataFrame:
    """The floor: every row to Python and back, nothing done with it, and about as many written as there are matches."""

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return events.mapInArrow(through, events.schema).where(F.col("weight") < 0.01)


def packed(events: DataFrame, world: World) -> DataFrame:
    """What `ouzel.spark.match` does."""
    return ouzel.spark.match(events, world.query, max_delay="0 ms")


def rows(events: DataFrame, world: World) -> DataFrame:
    """The same session fed by Spark's own rows, grouped by bucket, through pandas."""
    from pyspark.sql.streaming import StatefulProcessor

    bound = bind_events(events, as_queries(world.query), time="ts", type="type")
    frame, _ = watermarked(bound, [events], "0 ms")
    (part,) = plan_query_groups(bound.program, bound.clock)
    group, (name,) = part.group, part.group.queries
    buckets = int(events.sparkSession.conf.get("spark.sql.shuffle.partitions"))

    class RowProcessor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._state = handle.getValueState("session", "saved BINARY")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            from ouzel.runtime.session import Session

            saved = self._state.get()
            session = Session.open(group.program) if saved is None else Session.restore(bytes(saved[0]))
            watermark_ms = timerValues.getCurrentWatermarkInMs()
            answer = session.advance(group.clock.watermark_tick(watermark_ms))[name] if watermark_ms else None
            for frame in rows:
                table = pa.Table.from_pandas(frame.drop(columns=["bucket"]), preserve_index=False)
                session.push(group.events(table))
            self._state.update((session.snapshot(),))
            if answer is not None and answer.num_rows:
                yield answer.to_pandas()

        def close(self) -> None:
            pass

    columns = [quoted(column) for column in part.columns]
    bucketed = frame.select(*columns, F.pmod(F.hash("tag"), F.lit(buckets)).alias("bucket"))
    return bucketed.groupBy("bucket").transformWithStateInPandas(
        RowProcessor(), spark_schema(part.outputs[name]), "append", "eventTime"
    )


def by_key(events: DataFrame, world: World) -> DataFrame:
    """What one would write without Ouzel: a processor by tag, that keeps the readings of the tag's window."""
    from pyspark.sql.streaming import StatefulProcessor

    window_us = world.window_us

    class TagProcessor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._state = handle.getValueState("open", "shelves ARRAY<BIGINT>, registers ARRAY<BIGINT>")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            import bisect

            import pandas as pd

            saved = self._state.get()
            shelves, registers = (list(saved[0]), list(saved[1])) if saved else ([], [])
            for frame in rows:
                ticks = frame["ts"].to_numpy().astype("datetime64[us]").astype("int64")
                kinds = frame["type"].to_numpy()
                shelves += ticks[kinds == "Shelf"].tolist()
                registers += ticks[kinds == "Register"].tolist()
            shelves.sort()
            registers.sort()
            settled_us = timerValues.getCurrentWatermarkInMs() * 1000
            found, waiting = [], []
            for tick in shelves:
                if tick + window_us > settled_us:
                    waiting.append(tick)
                    continue
                after = bisect.bisect_right(registers, tick)
                if not (after < len(registers) and registers[after] < tick + window_us):
                    found.append(tick)
            self._state.update((waiting, [tick for tick in registers if tick > settled_us - window_us]))
            if found:
                yield pd.DataFrame({"tag": [int(key[0])] * len(found), "start": found})

        def close(self) -> None:
            pass

    marked = events.withWatermark("ts", "1 milliseconds").select("type", "ts", "tag")
    return marked.groupBy("tag").transformWithStateInPandas(
        TagProcessor(), "tag BIGINT, start BIGINT", "append", "eventTime"
    )


Way = Callable[[DataFrame, World], DataFrame]


# ── Measuring ──────────────────────────────────────────────────────────────────────────────────────


# CPU of every process that was ever seen below this one; what is dead keeps what it had.
_spent: dict[tuple[int, str], float] = {}


def cpu_seconds_of_children() -> float:
    """CPU of all processes below this one since the first call that saw them."""
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    seconds: dict[int, tuple[str, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            # Its own only: Spark's workers live long, and those who wait for the dead would count them twice.
            seconds[int(entry.name)] = fields[19], sum(map(int, fields[11:13])) / ticks_per_second
    for process, (started, spent) in seconds.items():
        ancestor = parents[process]
        while ancestor not in (0, 1) and ancestor != os.getpid():
            ancestor = parents.get(ancestor, 0)
        if ancestor == os.getpid():
            _spent[process, started] = spent
    return sum(_spent.values())


class Contestant:
    """A way of answering, as a running stream of its own."""

    def __init__(self, spark: SparkSession, way: Way, world: World, folder: Path) -> None:
        self.world = world
        self.tables = world.tables()
        self._spark = spark
        self._stateful = way is not stateless
        self._folder = folder
        self._source, self._checkpoint = folder / "source", folder / "checkpoint"
        self._source.mkdir(parents=True)
        pq.write_table(self.tables[0].slice(0, 0), folder / "schema.parquet")
        schema = spark.read.parquet(str(folder / "schema.parquet")).schema
        events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self._source))
        writer = way(events, world).writeStream.format("parquet").option("path", str(folder / "answers"))
        self._query = writer.option("checkpointLocation", str(self._checkpoint)).start()
        self._fed = 0
        self._cpu: list[float] = []
        self._wall: list[float] = []
        self._bytes: list[int] = []

    def feed(self, table: pa.Table) -> None:
        """One micro-batch, measured."""
        staged = self._folder / "staged.parquet"
        pq.write_table(table, staged, row_group_size=max(1, -(-table.num_rows // 2)))
        bytes_before, cpu_before, before = (
            folder_bytes(self._checkpoint),
            cpu_seconds_of_children(),
            time.perf_counter(),
        )
        staged.rename(self._source / f"{self._fed:05d}.parquet")
        self._query.processAllAvailable()
        self._wall.append(time.perf_counter() - before)
        self._cpu.append(cpu_seconds_of_children() - cpu_before)
        self._bytes.append(folder_bytes(self._checkpoint) - bytes_before)
        self._fed += 1

    def finish(self, name: str, warm: int) -> dict[str, Any]:
        """Let time run on, stop, check the answers, and give what was measured."""
        measured = slice(warm + 1, self._fed)
        result = {
            "open_events": self.world.open_events if self._stateful else 0,
            "cpu_seconds": round(statistics.median(self._cpu[measured]), 3),
            # Now and then a batch writes a snapshot; the mean has its part of that.
            "cpu_seconds_mean": round(statistics.mean(self._cpu[measured]), 3),
            "cpu_seconds_each": [round(value, 2) for value in self._cpu],
            "wall_seconds": round(statistics.median(self._wall[measured]), 3),
            "checkpoint_bytes": int(statistics.median(self._bytes[measured])),
        }
        if self._stateful:
            for _ in range(2):
                self.feed(end_of_time(self.tables[0].schema))
            found = self._spark.read.parquet(str(self._folder / "answers")).count()
            expected = self.world.expected_matches(self.tables)
            if found != expected:
                sys.exit(f"{name}: {found:,} matches, expected {expected:,}")
            result["matches"] = found
        self._query.stop()
        return result


def compare(
    spark: SparkSession, contests: dict[str, tuple[Way, World]], warm: int, folder: Path
) -> dict[str, dict[str, Any]]:
    """Every contestant gets its next micro-batch in turn."""
    running = {
        name: Contestant(spark, way, world, folder / str(number))
        for number, (name, (way, world)) in enumerate(contests.items())
    }
    for batch in range(max(len(contestant.tables) for contestant in running.values())):
        for contestant in running.values():
            if batch < len(contestant.tables):
                contestant.feed(contestant.tables[batch])
    return {name: contestant.finish(name, warm) for name, contestant in running.items()}


def folder_bytes(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue  # Spark tidies up while we count
    return total


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=500_000)
    arguments.add_argument("--batches", type=int, default=8)
    arguments.add_argument("--warm", type=int, default=3)
    arguments.add_argument("--buckets", type=int, default=2)
    arguments.add_argument("--only", default=",".join(PARTS))
    arguments.add_argument("--quick", action="store_true", help="a small world, to see that everything runs")
    arguments.add_argument("--page", action="store_true", help="write the page of the documentation")
    arguments.add_argument("--json", type=Path, help="where results are kept, and those of other parts are found")
    chosen = arguments.parse_args()
    if chosen.quick:
        chosen.rows, chosen.batches, chosen.warm = 5_000, 2, 0
    scale = chosen.rows / 500_000

    spark = ouzel.spark.session(
        "spark_stream",
        "local[2]",
        **{
            "spark.sql.shuffle.partitions": chosen.buckets,
            # A live stream is settled by its next batch, so the empty batch after each one is not part of the cost.
            "spark.sql.streaming.noDataMicroBatches.enabled": False,
            # Those who wait for their turn look for new files seldom, so that it costs nothing.
            "spark.sql.streaming.pollingDelay": "500ms",
            "spark.log.level": "ERROR",
        },
    )

    def world(open_events: int, batches: int = chosen.batches) -> World:
        return World(chosen.rows, batches, round(open_events * scale))

    usual = world(100_000)
    contests: dict[str, dict[str, tuple[Way, World]]] = {
        "ways": {"stateless": (stateless, usual), "packed": (packed, usual), "rows": (rows, usual)},
        "keys": {
            "packed": (packed, world(100_000, 6)),
            "by key": (by_key, world(100_000, 6)),
        },
        "state": {f"{count:,} open": (packed, world(count)) for count in (10_000, 100_000, 1_000_000)},
        "skew": {
            "even keys": (packed, usual),
            "one key with half": (packed, replace(usual, skew="half")),
            "Zipf 1.2": (packed, replace(usual, skew="zipf")),
        },
    }
    folder = Path(tempfile.mkdtemp(prefix="ouzel-spark-stream-"))
    results: dict[str, Any] = {}
    if chosen.json and chosen.json.exists():
        results = json.loads(chosen.json.read_text(encoding="utf-8"))["results"]
    try:
        for part in chosen.only.split(","):
            results[part] = compare(spark, contests[part], chosen.warm, folder / part)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(told(results, chosen.rows))
    content = {"benchmark": "spark_stream", "machine": machine(), "rows": chosen.rows, "results": results}
    text = json.dumps({**content, "bars": [bar.as_json() for bar in bars_of(results)]}, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n", encoding="utf-8")
    if chosen.page:
        PAGE.write_text(page(results, chosen.rows, KEYS, usual.query), encoding="utf-8")


if __name__ == "__main__":
    main()
