"""CPU per micro-batch of a stream on Spark: Ouzel's packed payloads against a stateless pass and against plain rows.

Each way reads the same Parquet files, one micro-batch of 500,000 rows at a time, on local[2]. CPU seconds are those of
the JVM and all Python workers together; the first batches warm up and are left out. The matches of every stateful way
are compared with a count that shares no code with the engine.

    python benchmarks/spark_stream.py [--rows 500000] [--batches 12] [--warm 5] [--ways stateless,packed,rows]
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import ouzel.spark
from ouzel.prepared import as_queries
from ouzel.spark.events import bind_events, quoted, watermarked
from ouzel.spark.schema import spark_schema
from ouzel.spark.shares import plan_shares

KEYS = 10_000
WINDOW_EVENTS = 100_000
MICROSECONDS_BETWEEN_EVENTS = 10
WINDOW_MS = WINDOW_EVENTS * MICROSECONDS_BETWEEN_EVENTS // 1000
QUERY = f"PATTERN SEQ(Shelf a, !(Register b)) WHERE [tag] WITHIN {WINDOW_MS} ms"
TYPES = np.array(["Shelf", "Register", *(f"Other{number}" for number in range(1, 9))])
SHARES = np.array([0.05, 0.15, *[0.1] * 8])
MATCHES_PER_ROW = 0.0115
START_US = 1_700_000_000_000_000


def make_batch(number: int, rows: int) -> pa.Table:
    """One micro-batch of events, ten microseconds apart."""
    random = np.random.default_rng(number)
    ticks = START_US + (number * rows + np.arange(rows)) * MICROSECONDS_BETWEEN_EVENTS
    return pa.table(
        {
            "type": pa.array(TYPES[random.choice(len(TYPES), rows, p=SHARES)]),
            "ts": pa.array(ticks, pa.timestamp("us", tz="UTC")),
            "tag": pa.array(random.integers(0, KEYS, rows)),
            "weight": pa.array(random.random(rows)),
        }
    )


def end_of_time(schema: pa.Schema) -> pa.Table:
    """Events that no pattern wants, far in the future, for every bucket. The first such batch moves the watermark, the
    second finds it moved."""
    count = 100
    columns = [["Other1"] * count, [2 * START_US] * count, range(count), [0.0] * count]
    return pa.table([pa.array(values).cast(field.type) for values, field in zip(columns, schema, strict=True)], schema)


def expected_matches(tables: list[pa.Table]) -> int:
    """Shelf readings with no reading of the same tag at a register within the window, counted tag by tag."""
    table = pa.concat_tables(tables)
    kinds = table["type"].to_numpy()
    ticks = table["ts"].cast(pa.int64()).to_numpy()
    tags = table["tag"].to_numpy()
    registers: dict[int, list[int]] = {}
    for tag, tick in zip(tags[kinds == "Register"].tolist(), ticks[kinds == "Register"].tolist(), strict=True):
        registers.setdefault(tag, []).append(tick)
    window_us = WINDOW_MS * 1000
    count = 0
    for tag, tick in zip(tags[kinds == "Shelf"].tolist(), ticks[kinds == "Shelf"].tolist(), strict=True):
        count += not any(tick < other < tick + window_us for other in registers.get(tag, ()))
    return count


# ── Ways ───────────────────────────────────────────────────────────────────────────────────────────


def stateless(events: DataFrame) -> DataFrame:
    """The floor: every row to Python and back, nothing done with it, and as many written as there are matches."""

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return events.mapInArrow(through, events.schema).where(F.col("weight") < MATCHES_PER_ROW)


def packed(events: DataFrame) -> DataFrame:
    """What `ouzel.spark.match` does."""
    return ouzel.spark.match(events, QUERY, max_delay="0 ms")


def rows(events: DataFrame) -> DataFrame:
    """The same session fed by Spark's own rows, grouped by bucket, through pandas."""
    from pyspark.sql.streaming import StatefulProcessor

    bound = bind_events(events, as_queries(QUERY), time="ts", type="type")
    frame, _ = watermarked(bound, [events], "0 ms")
    (part,) = plan_shares(bound.program, bound.clock)
    share, (name,) = part.share, part.share.queries
    buckets = int(events.sparkSession.conf.get("spark.sql.shuffle.partitions"))

    class RowProcessor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._state = handle.getValueState("session", "saved BINARY")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            from ouzel.runtime.session import Session

            saved = self._state.get()
            session = Session.open(share.program) if saved is None else Session.restore(bytes(saved[0]), share.program)
            watermark_ms = timerValues.getCurrentWatermarkInMs()
            answer = session.advance(share.clock.watermark_tick(watermark_ms))[name] if watermark_ms else None
            for frame in rows:
                table = pa.Table.from_pandas(frame.drop(columns=["bucket"]), preserve_index=False)
                session.push(share.events(table))
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


WAYS = {"stateless": stateless, "packed": packed, "rows": rows}


# ── Measuring ──────────────────────────────────────────────────────────────────────────────────────


def cpu_seconds_of_children() -> float:
    """CPU of every process below this one, the dead included where their parent has waited for them."""
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / ticks_per_second
    total = 0.0
    for process in parents:
        ancestor = parents[process]
        while ancestor not in (0, 1) and ancestor != os.getpid():
            ancestor = parents.get(ancestor, 0)
        if ancestor == os.getpid():
            total += spent[process]
    return total


def measure(spark: SparkSession, way: str, tables: list[pa.Table], folder: Path, warm: int) -> dict[str, Any]:
    """Feed the tables one micro-batch each; CPU and wall seconds of each warm one, and the number of matches."""
    source, answers, checkpoint = folder / "source", folder / "answers", folder / "checkpoint"
    source.mkdir(parents=True)
    pq.write_table(tables[0].slice(0, 0), folder / "schema.parquet")
    schema = spark.read.parquet(str(folder / "schema.parquet")).schema
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = WAYS[way](events).writeStream.format("parquet").outputMode("append").option("path", str(answers))
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    cpu, wall, checkpoint_bytes = [], [], []
    for number, table in enumerate([*tables, end_of_time(tables[0].schema), end_of_time(tables[0].schema)]):
        staged = folder / "staged.parquet"
        pq.write_table(table, staged, row_group_size=-(-table.num_rows // 2))
        before_cpu, before_wall = cpu_seconds_of_children(), time.perf_counter()
        before_bytes = folder_bytes(checkpoint)
        staged.rename(source / f"{number:05d}.parquet")
        query.processAllAvailable()
        cpu.append(cpu_seconds_of_children() - before_cpu)
        wall.append(time.perf_counter() - before_wall)
        checkpoint_bytes.append(folder_bytes(checkpoint) - before_bytes)
    query.stop()
    measured = slice(warm, len(tables))
    result = {
        "cpu_seconds": round(statistics.median(cpu[measured]), 3),
        "cpu_seconds_each": [round(value, 2) for value in cpu],
        "wall_seconds": round(statistics.median(wall[measured]), 3),
        "checkpoint_bytes": int(statistics.median(checkpoint_bytes[measured])),
    }
    if way != "stateless":
        result["matches"] = spark.read.parquet(str(answers)).count()
    return result


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=500_000)
    arguments.add_argument("--batches", type=int, default=12)
    arguments.add_argument("--warm", type=int, default=5)
    arguments.add_argument("--buckets", type=int, default=2)
    arguments.add_argument("--ways", default=",".join(WAYS))
    chosen = arguments.parse_args()

    spark = ouzel.spark.session(
        "spark_stream",
        "local[2]",
        **{
            "spark.sql.shuffle.partitions": chosen.buckets,
            # A live stream is settled by its next batch, so the empty batch after each one is not part of the cost.
            "spark.sql.streaming.noDataMicroBatches.enabled": False,
            "spark.log.level": "ERROR",
        },
    )
    tables = [make_batch(number, chosen.rows) for number in range(chosen.batches)]
    expected = expected_matches(tables)
    folder = Path(tempfile.mkdtemp(prefix="ouzel-spark-stream-"))
    results: dict[str, Any] = {}
    try:
        for way in chosen.ways.split(","):
            results[way] = measure(spark, way, tables, folder / way, chosen.warm)
            if "matches" in results[way] and results[way]["matches"] != expected:
                sys.exit(f"{way}: {results[way]['matches']:,} matches, expected {expected:,}")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    floor = results.get("stateless", {}).get("cpu_seconds")
    for result in results.values():
        result["times_stateless"] = round(result["cpu_seconds"] / floor, 2) if floor else None
    settings = {"rows": chosen.rows, "keys": KEYS, "window_events": WINDOW_EVENTS, "buckets": chosen.buckets}
    print(json.dumps({"benchmark": "spark_stream", **settings, "matches": expected, "ways": results}, indent=2))


if __name__ == "__main__":
    main()
