"""`make demo`: a day in a shop, a million readings, and the matches of the SASE paper's queries.

The demo compares all matches with the true cases. Then it runs the same queries on Spark, as a batch job and as a
stream that is stopped and restarted half-way. It fails if anything differs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import ouzel

EVENTS = 1_000_000
DOSES = 200_000
BATCH_ROWS = 50_000
MICRO_BATCHES = 8

SHOPLIFTING = """\
PATTERN SEQ(Shelf x, !(Register y), Exit z)
WHERE   [tag_id]
WITHIN  12 hours
RETURN  Theft(x.tag_id AS tag, x.shelf_id AS shelf, z.time AS left_at)"""

MISPLACED = """\
PATTERN SEQ(Shelf x, Shelf y, !(ANY(Register, Shelf) z))
WHERE   [tag_id] AND x.shelf_id != y.shelf_id AND x.shelf_id = z.shelf_id
WITHIN  1 hour
RETURN  Misplaced(x.tag_id AS tag, x.shelf_id AS belongs_on, y.shelf_id AS lies_on)"""

OVERDOSE = """\
PATTERN SEQ(MedicineTaken x, MedicineTaken y)
WHERE   [name] AND [medicine] AND x.amount + y.amount > 1000
WITHIN  4 hours
RETURN  Overdose(x.name AS patient, x.medicine AS medicine, x.amount + y.amount AS amount)"""


@dataclass(frozen=True)
class Found:
    """What a query found, and how fast."""

    matches: pa.Table
    events: int
    seconds: float


def main() -> int:
    """Run the demo; the exit code is 0 if all matches are the true cases."""
    console = Console()
    console.rule("[bold]Ouzel: a day in a shop")
    console.print(f"making {EVENTS:,} RFID readings and {DOSES:,} doses of medicine …")
    day = ouzel.datasets.shop_day(EVENTS, seed=7)
    log = ouzel.datasets.medicine(DOSES, seed=7)
    shoplifting = ouzel.query(SHOPLIFTING, day.types, name="shoplifting")
    misplaced = ouzel.query(MISPLACED, day.types, name="misplaced")
    overdose = ouzel.query(OVERDOSE, name="overdose")

    console.print("loading the kernels …")
    for query, events in ((shoplifting, day.events), (misplaced, day.events), (overdose, log.events)):
        ouzel.match(events.slice(0, 1_000), query)
    found = {
        "shoplifting": stream(console, shoplifting, day.events),
        "misplaced": stream(console, misplaced, day.events),
        "overdose": stream(console, overdose, log.events),
    }
    right = [
        report(console, SHOPLIFTING, found["shoplifting"], truth=tags(day.thefts, "tag_id"), column="tag"),
        report(console, MISPLACED, found["misplaced"], truth=tags(day.misplaced, "tag_id"), column="tag"),
        report(console, OVERDOSE, found["overdose"], truth=log.overdoses.num_rows, column=None),
    ]
    right += on_spark(console, {"shoplifting": shoplifting, "misplaced": misplaced}, day.events, found)
    console.rule("the plan of the first query")
    console.print(ouzel.explain(shoplifting), highlight=False, markup=False)
    if not all(right):
        console.print("[bold red]something was missed, or made up")
        return 1
    console.rule("[bold green]all that was found is what happened")
    return 0


def stream(console: Console, query: ouzel.Query, events: pa.Table) -> Found:
    """Push the events batch by batch, with a progress bar."""
    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    engine = ouzel.Engine(query)
    parts = []
    seconds = 0.0
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(query.name, total=events.num_rows)
        for first in range(0, events.num_rows, BATCH_ROWS):
            batch = events.slice(first, BATCH_ROWS)
            started = time.perf_counter()
            parts.append(engine.push(batch)[query.name])
            seconds += time.perf_counter() - started
            progress.advance(task, batch.num_rows)
        started = time.perf_counter()
        parts.append(engine.finish()[query.name])
        seconds += time.perf_counter() - started
    return Found(pa.concat_tables(parts), events.num_rows, seconds)


def on_spark(
    console: Console, queries: dict[str, ouzel.Query], events: pa.Table, found: dict[str, Found]
) -> list[bool]:
    """The same queries on Spark give the same matches, for all partitions and micro-batches."""
    console.rule("the same on Spark")
    with console.status("starting Spark …"):
        spark = ouzel.spark.session("ouzel demo", **{"spark.log.level": "OFF", "spark.sql.session.timeZone": "UTC"})
    expected = {name: sorted_rows(found[name].matches) for name in queries}
    same = []
    try:
        with tempfile.TemporaryDirectory(prefix="ouzel-demo-") as folder:
            for way in (spark_batch, spark_stream):
                started = time.perf_counter()
                answers, what = way(console, spark, queries, events, Path(folder))
                seconds = time.perf_counter() - started
                for name, rows in answers.items():
                    same.append(rows == expected[name])
                    verdict = "the same as above" if same[-1] else "[bold red]not what was found above"
                    console.print(f"{name}: {len(rows):,} matches by {what}, {verdict}")
                console.print(f"{events.num_rows:,} events, {len(queries)} queries, {seconds:.1f} s")
    finally:
        spark.stop()
    return same


def spark_batch(
    console: Console, spark: Any, queries: dict[str, ouzel.Query], events: pa.Table, folder: Path
) -> tuple[dict[str, list[str]], str]:
    """One batch job, with one shuffle for both queries."""
    path = str(folder / "readings.parquet")
    pq.write_table(events, path)
    with ouzel.spark.match(spark.read.parquet(path), queries) as answers:
        return {name: sorted_rows(frame.toArrow()) for name, frame in answers.items()}, "a Spark batch job"


def spark_stream(
    console: Console, spark: Any, queries: dict[str, ouzel.Query], events: pa.Table, folder: Path
) -> tuple[dict[str, list[str]], str]:
    """The day as a stream of micro-batches, stopped half-way and restarted from its checkpoint."""
    source, answers = folder / "source", folder / "answers"
    source.mkdir()
    schema = spark.read.parquet(str(folder / "readings.parquet")).schema
    rows = -(-events.num_rows // MICRO_BATCHES)
    batches = [events.slice(first, rows) for first in range(0, events.num_rows, rows)]
    # It takes time until an item is known not to be put back; a reading that no query uses moves time.
    last = events.slice(events.num_rows - 1)
    later = pc.add(last["ts"], pa.scalar(timedelta(days=2), pa.duration("us")))
    end = last.set_column(last.schema.get_field_index("ts"), last.schema.field("ts"), later.cast(last["ts"].type))
    end = end.set_column(end.schema.get_field_index("type"), end.schema.field("type"), pa.array(["Heartbeat"]))
    listener = ouzel.spark.Listener()
    spark.streams.addListener(listener)
    for part in (batches[: MICRO_BATCHES // 2], [*batches[MICRO_BATCHES // 2 :], end]):
        for batch in part:
            number = len(list(source.iterdir()))
            staged = folder / "staged.parquet"
            pq.write_table(batch, staged)
            # Spark reads files in the order of their modification times.
            os.utime(staged, (number, number))
            staged.rename(source / f"{number:03d}.parquet")
        readings = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
        # Spark's watermarks need timestamps with a zone.
        readings = readings.withColumn("ts", readings["ts"].cast("timestamp"))
        writer = ouzel.spark.match(readings, queries, max_delay="1 s").writeStream.trigger(availableNow=True)
        writer = writer.option("path", str(answers)).option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.start(format="parquet")
        with listener.live(console):
            query.awaitTermination()
        console.print(f"the stream has stopped after {len(list(source.iterdir()))} micro-batches")
    spark.streams.removeListener(listener)
    found = spark.read.parquet(str(answers))
    tables = {name: found.where(found["query"] == name).select(f"{name}.*").toArrow() for name in queries}
    return {
        name: sorted_rows(without_zone(table)) for name, table in tables.items()
    }, "a Spark stream, restarted half-way"


def without_zone(table: pa.Table) -> pa.Table:
    """Timestamps as the shop wrote them."""
    fields = [f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def sorted_rows(table: pa.Table) -> list[str]:
    """Rows in an order that does not depend on where they were computed."""
    return sorted(map(repr, table.to_pylist()))


def tags(truth: pa.Table, column: str) -> set[str]:
    return set(truth.column(column).to_pylist())


def report(console: Console, text: str, found: Found, *, truth: set[str] | int, column: str | None) -> bool:
    """Show a query, its first matches and its rate, and whether it found the true cases."""
    console.print(f"\n{text}", style="bold", highlight=False, markup=False)
    shown = Table(*found.matches.column_names, title=f"the first of {found.matches.num_rows:,} matches")
    for row in found.matches.slice(0, 5).to_pylist():
        shown.add_row(*(str(value) for value in row.values()))
    console.print(shown)
    if column is None:
        right = bool(found.matches.num_rows == truth)
        console.print(f"{found.matches.num_rows:,} matches, {truth:,} of them real")
    else:
        assert isinstance(truth, set)
        named = set(pc.unique(found.matches.column(column)).to_pylist())
        right = named == truth
        console.print(f"{len(named):,} items named, {len(named & truth):,} of the {len(truth):,} real ones among them")
    console.print(
        f"{found.events:,} events in {found.seconds:.2f} s: {found.events / found.seconds / 1e6:.1f} M a second"
    )
    return right


if __name__ == "__main__":
    sys.exit(main())
