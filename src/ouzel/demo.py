"""`make demo`: a day in a shop, a million readings, and what two queries of the SASE paper find in it.

The answers are compared with what really happened. Then the same queries run on Spark, as a batch job, and as a stream
that is stopped and restarted half-way. The demo fails if any answer differs. It leaves its data, query, picture and log
in a folder for further use: python -m ouzel.demo FOLDER
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

import ouzel

EVENTS = 1_000_000
MICRO_BATCHES = 4
ROWS_SHOWN = 5

THEFT = """\
PATTERN SEQ(Shelf x, !(Register y), Exit z)  -- shelf, then exit, no register
WHERE   [tag_id]                             -- all readings of one tag
WITHIN  12 hours                             -- from the first to the last
OUTPUT  NON_OVERLAPPING                      -- one match for each theft
RETURN  Theft(x.tag_id AS tag, x.shelf_id AS shelf)"""

MISPLACED = """\
PATTERN SEQ(Shelf x, Shelf y, !(ANY(Register, Shelf) z))  -- not back, not paid
WHERE   [tag_id] AND x.shelf_id != y.shelf_id             -- on another shelf
        AND x.shelf_id = z.shelf_id                       -- back: on its own
WITHIN  1 hour
OUTPUT  NON_OVERLAPPING
RETURN  Misplaced(x.tag_id AS tag, x.shelf_id AS home, y.shelf_id AS is_on)"""


def main(folder: Path) -> int:
    """Run the demo. The exit code is 0 if everything that was found is what happened."""
    folder.mkdir(parents=True, exist_ok=True)
    # The output of Spark, its workers and their libraries goes to a file.
    with logged(folder / "demo.log") as console, ThreadPoolExecutor(1) as starter:
        console.rule("[bold]Ouzel: a day in a shop")
        spark = starter.submit(start_spark)  # Java starts while the embedded engine works.
        try:
            right = run(console, folder, spark)
        finally:
            spark.result().stop()
        if not all(right):
            console.print("\n[bold red]An answer differs from what happened.")
            return 1
        console.print("\n[bold green]Every answer is what happened.[/] Try next:\n")
        for command, purpose in next_steps(folder):
            console.print(f"  [dim]# {purpose}[/]\n  {folded(command, console.width - 2)}", soft_wrap=True)
    return 0


def run(console: Console, folder: Path, spark: Future[Any]) -> list[bool]:
    """Run each part of the demo, and return whether its answers are right."""
    day = ouzel.datasets.shop_day(EVENTS, seed=7)
    pq.write_table(day.events, folder / "readings.parquet")
    (folder / "theft.query").write_text(THEFT + "\n", encoding="utf-8")
    console.print(
        f"{EVENTS:,} readings of tagged goods. {day.thefts.num_rows} items were stolen, "
        f"{day.misplaced.num_rows} were put on a wrong shelf. Can two queries find them?"
    )
    queries = {
        "theft": ouzel.query(THEFT, day.types, name="theft"),
        "misplaced": ouzel.query(MISPLACED, day.types, name="misplaced"),
    }
    found = {}
    right = []
    for (name, query), truth in zip(queries.items(), (day.thefts, day.misplaced), strict=True):
        show_query(console, query.text)
        found[name] = embedded(console, query, day.events)
        right.append(sorted(found[name]["tag"].to_pylist()) == sorted(truth["tag_id"].to_pylist()))
        verdict = "exactly those that happened" if right[-1] else "[bold red]not those that happened"
        console.print(f"{found[name].num_rows} found: {verdict}.")
    explain_and_draw(console, folder, queries["theft"], day)
    console.rule("the same queries on Spark")
    with waiting(console, "starting Spark …"):
        session = spark.result()
    right.append(batch(console, session, folder, queries, found))
    right.append(stream(console, session, day.events, queries["theft"], found["theft"]))
    return right


# ── In this process ────────────────────────────────────────────────────────────────────────────────


def show_query(console: Console, text: str) -> None:
    """Print the query, with dim comments."""
    console.print()
    for line in text.splitlines():
        code, mark, comment = line.partition("--")
        console.print(Text.assemble((code, "bold"), (mark + comment, "dim")))


def embedded(console: Console, query: ouzel.Query, events: pa.Table) -> pa.Table:
    """All matches of a query, found in this process."""
    with waiting(console, "loading the kernels; a clone compiles them first …"):
        # All events, because a large input needs kernels that a small one does not.
        ouzel.match(events, query)
    # Of this process alone: Java starts meanwhile.
    started = time.process_time()
    matches = ouzel.match(events, query)
    seconds = time.process_time() - started
    console.print(first_rows(matches))
    rate = events.num_rows / seconds / 1e6
    console.print(f"{events.num_rows:,} events took {seconds:.2f} s of CPU: {rate:.1f} million a second")
    return matches


def first_rows(matches: pa.Table) -> Table:
    shown = Table(*matches.column_names, title=f"the first {ROWS_SHOWN} of {matches.num_rows} matches")
    for row in matches.slice(0, ROWS_SHOWN).to_pylist():
        shown.add_row(*(f"{value:%H:%M:%S}" if isinstance(value, datetime) else str(value) for value in row.values()))
    return shown


def explain_and_draw(console: Console, folder: Path, query: ouzel.Query, day: Any) -> None:
    """Show why an item is not a theft, and draw a picture of some that are."""
    tags = day.events["tag_id"]
    left = day.events.filter(pc.equal(day.events["type"], "Register"))
    paid = left["tag_id"][0].as_py()
    console.print(f"\n[bold]Why is {paid} no theft?[/] ouzel.why says:")
    answer = ouzel.why(day.events.filter(pc.equal(tags, paid)), query, start={"tag_id": paid})
    console.print(str(answer), markup=False)
    stolen = day.thefts["tag_id"].slice(0, 6).to_pylist()
    some = day.events.filter(pc.is_in(tags, pa.array([*stolen, *left["tag_id"].slice(0, 6).to_pylist()])))
    picture = ouzel.plot(some, query, label="tag_id", title="Six items that were stolen and six that were paid for")
    (folder / "thefts.svg").write_text(picture, encoding="utf-8")
    console.print(f"\nA picture of six thefts: {folder / 'thefts.svg'}")


# ── On Spark ───────────────────────────────────────────────────────────────────────────────────────


def start_spark() -> Any:
    settings = {
        "spark.sql.session.timeZone": "UTC",
        # For a minute of work, Java's optimizing compiler and parallel collector cost more than they save.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return ouzel.spark.session("ouzel demo", **settings)


def batch(
    console: Console, spark: Any, folder: Path, queries: dict[str, ouzel.Query], found: dict[str, pa.Table]
) -> bool:
    """Run one batch job with one shuffle for both queries. Returns whether it finds the same matches."""
    console.print("[bold]As a batch:[/] ouzel.spark.match(spark.read.parquet(…), queries)")
    started = time.perf_counter()
    with (
        waiting(console, "a batch job …"),
        ouzel.spark.match(spark.read.parquet(str(folder / "readings.parquet")), queries) as answers,
    ):
        rows = {name: sorted_rows(frame.toArrow()) for name, frame in answers.items()}
    same = all(rows[name] == sorted_rows(found[name]) for name in queries)
    counts = f"{len(rows['theft'])} thefts, {len(rows['misplaced'])} misplaced"
    verdict = "the same rows as above" if same else "[bold red]not the rows above"
    console.print(f"{counts}: {verdict}, in {time.perf_counter() - started:.1f} s")
    return same


def stream(console: Console, spark: Any, events: pa.Table, query: ouzel.Query, found: pa.Table) -> bool:
    """Run the day as a stream of micro-batches, stopped half-way and restarted from its checkpoint. Returns whether it
    finds the same matches.
    """
    console.print("\n[bold]As a stream:[/] ouzel.spark.match(spark.readStream…, theft, max_delay='1 s')")
    rows: list[pa.Table] = []

    def show(frame: Any, number: int) -> None:
        """Spark calls it with the matches of each micro-batch. Its numbers have gaps: some only move the watermark."""
        table = frame.toArrow()
        rows.append(table)
        if table.num_rows:
            last = table.slice(table.num_rows - 1).to_pylist()[0]
            console.print(
                f"  answer {sum(bool(one.num_rows) for one in rows)}: {table.num_rows} thefts; "
                f"the last is {last['tag']} from shelf {last['shelf']}, at {last['end']:%H:%M:%S}"
            )

    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ouzel-demo-") as name:
        folder = Path(name)
        source = folder / "source"
        source.mkdir()
        size = -(-events.num_rows // MICRO_BATCHES)
        parts = [events.slice(first, size) for first in range(0, events.num_rows, size)]
        parts[-1] = pa.concat_tables([parts[-1], heartbeat(events)])
        half = len(parts) // 2
        schema = spark.read.parquet(str(write(folder, parts[0], 0))).schema
        for number, pieces in enumerate((parts[:half], parts[half:])):
            for piece in pieces:
                arrived = len(list(source.iterdir()))
                write(folder, piece, arrived).rename(source / f"{arrived:03d}.parquet")
            readings = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
            # Spark's watermarks need timestamps with a zone.
            readings = readings.withColumn("ts", readings["ts"].cast("timestamp"))
            writer = ouzel.spark.match(readings, query, max_delay="1 s").writeStream.trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(show)
            with waiting(console, "the stream runs …"):
                writer.start().awaitTermination()
            if number == 0:
                console.print("  stopped; started again from its checkpoint")
    same = sorted_rows(without_zone(pa.concat_tables(rows))) == sorted_rows(found)
    verdict = "the same rows as above" if same else "[bold red]not the rows above"
    console.print(
        f"{sum(table.num_rows for table in rows)} thefts: {verdict}, in {time.perf_counter() - started:.1f} s"
    )
    return same


def write(folder: Path, events: pa.Table, number: int) -> Path:
    """Write a file of events. Spark reads files in the order of their modification times."""
    path = folder / "staged.parquet"
    pq.write_table(events, path)
    os.utime(path, (number, number))
    return path


def heartbeat(events: pa.Table) -> pa.Table:
    """An event of a later time that no query needs. A stream knows that a time is complete only when it has seen a
    later one.
    """
    last = events.slice(events.num_rows - 1)
    later = pc.add(last["ts"], pa.scalar(timedelta(days=2), pa.duration("us"))).cast(last["ts"].type)
    last = last.set_column(last.schema.get_field_index("ts"), last.schema.field("ts"), later)
    return last.set_column(last.schema.get_field_index("type"), last.schema.field("type"), pa.array(["Heartbeat"]))


def without_zone(table: pa.Table) -> pa.Table:
    """The table with timestamps without a time zone, as the shop wrote them."""
    fields = [f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def sorted_rows(table: pa.Table) -> list[str]:
    """Rows as text, in an order that does not depend on where they were computed."""
    return sorted(map(repr, table.to_pylist()))


# ── The screen ─────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def logged(path: Path) -> Iterator[Console]:
    """A console on the screen, while all other output of this process and its children goes to a file."""
    width = shutil.get_terminal_size().columns
    for own in (sys.stdout, sys.stderr):
        own.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    with open(path, "wb") as log, open(os.dup(1), "w", encoding="utf-8") as screen:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        try:
            yield Console(file=screen, width=width, highlight=False)
        finally:
            for own, descriptor, old in zip((sys.stdout, sys.stderr), (1, 2), kept, strict=True):
                own.flush()
                os.dup2(old, descriptor)
                os.close(old)


@contextmanager
def waiting(console: Console, text: str) -> Iterator[None]:
    """Show a spinner. Rich's `status` would redirect the log to the screen."""
    spinner = Spinner("dots", text)
    with Live(spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False):
        yield


def next_steps(folder: Path) -> list[tuple[str, str]]:
    """Commands to continue with the files that the demo has written."""
    ouzel_command = Path(sys.executable).with_name("ouzel")
    command = str(ouzel_command.relative_to(Path.cwd())) if ouzel_command.is_relative_to(Path.cwd()) else "ouzel"
    query, readings = folder / "theft.query", folder / "readings.parquet"
    return [
        (
            f"{command} run {query} --input {readings}",
            "the thefts, from the command line; edit the query and see",
        ),
        (f"{command} explain {query}", "how the query is answered"),
        (f"{command} why {query} --input {readings} --start tag_id=tag-0000003", "why an item is not in the answer"),
        ("docs/quick-start.md, docs/cookbook.md", f"more queries; the log of this run is {folder / 'demo.log'}"),
    ]


def folded(command: str, width: int) -> str:
    """A command that is too wide for the screen, as several lines that a shell reads as one. Each line starts with an
    option.

    >>> print(folded("ouzel run theft.query --input readings.parquet", 30))
    ouzel run theft.query \\
          --input readings.parquet
    """
    return command if len(command) <= width else command.replace(" --", " \\\n      --")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "ouzel-demo")))
