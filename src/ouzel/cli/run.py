"""`ouzel run`: queries over finite inputs with a progress bar, on this machine or on Spark."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

import ouzel
from ouzel.cli.console import caution, out, report_errors
from ouzel.cli.options import QueryArgument, QueryFile, QueryOptions, RunOptions, takes_groups
from ouzel.cli.results import Format, Results, counted, what_comes_out
from ouzel.cli.sources import Inputs, Source, find_sources, named_sources, read_tables
from ouzel.errors import InputError
from ouzel.lang.statements import is_statement
from ouzel.runtime.calls import interruptible
from ouzel.runtime.empty_answers import EmptyAnswers, ManyMatches
from ouzel.runtime.input_binder import key_statistics
from ouzel.runtime.limits import on_many_matches
from ouzel.runtime.program import make_program
from ouzel.runtime.session import Session

InputOption = Annotated[
    list[str],
    typer.Option(
        "--input", "-i", metavar="PATH", help="A file, folder or glob; or TYPE=PATH for each event type. Repeatable."
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="A file (its suffix decides the format), or a folder for several queries."),
]
FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", help="By default a table on a terminal, JSON Lines into a pipe."),
]

READABLE_ON_SPARK = ("parquet", "csv", "json")
SPARK_SETTINGS = {
    "spark.log.level": "ERROR",
    # Times without a zone stay without one; times with one are written in UTC.
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "UTC",
}


class Where(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True)
class Job:
    """Queries, their inputs, and where their answers go. `options` are those of `ouzel.match`."""

    queries: dict[str, ouzel.Query]
    sources: list[Source]
    output: Path | None
    format: Format | None
    options: dict[str, Any]
    quiet: bool
    limit: int | None = None


@dataclass(frozen=True)
class Ran:
    """The summary of a run."""

    events: int
    results: Results
    # Events with a null type, which never match.
    without_type: int = 0


@report_errors
@takes_groups
def run_command(
    query: QueryArgument,
    input: InputOption,
    output: OutputOption = None,
    format: FormatOption = None,
    engine: Annotated[Where, typer.Option("--engine", help="Run on this machine or on Spark.")] = Where.LOCAL,
    *,
    asked: QueryOptions,
    layout: RunOptions,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no summary.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Stop after so many matches of each query.")
    ] = None,
) -> None:
    """Find all matches of QUERY in files. A statement of SQL with MATCH_RECOGNIZE reads each file as a table.

    \b
    Examples:
      ouzel run theft.query --input readings.parquet
      ouzel run theft.query -i 'days/*.csv' -o thefts.parquet
      ouzel run shop.script -i Shelf=shelf.csv -i Exit=exit.csv -o found/
      ouzel run 'PATTERN SEQ(A a, B b) WHERE [id] WITHIN :w' -i a.jsonl --param w=10 -f csv
      ouzel run dips.sql -i ticks.parquet -i names=lookup.csv
    """
    text = QueryFile.read(query).text
    if is_statement(text):
        _run_statement(text, named_sources(input), asked.params, engine, output, format, quiet, limit)
        return
    job = Job(asked.queries_of(text), find_sources(input), output, format, layout.as_arguments(), quiet, limit)
    started = clock.perf_counter()
    ran = _on_spark(job) if engine is Where.SPARK else _on_this_machine(job)
    if not quiet:
        _summary(ran, what_comes_out(job.queries), clock.perf_counter() - started, output)


def _on_this_machine(job: Job) -> Ran:
    queries, quiet = job.queries, job.quiet
    inputs = Inputs(job.sources, job.options["time"])
    program = make_program(queries, inputs.schema(), **job.options)
    session: Session | None = None
    watch, what, without_type = EmptyAnswers(program), what_comes_out(queries), 0
    many, cautions = ManyMatches(program, queries), list[str]()
    schemas = {name: Session(program).schemas[name] for name in queries}
    with Results(schemas, job.output, job.format, job.limit) as results, _ProgressBar(inputs.rows, quiet) as progress:

        def take(answers: dict[str, pa.Table]) -> None:
            asked = {name: answers[name] for name in schemas}
            results.write(asked)
            cautions.extend(many.warnings(table, asked))

        def warn_early(name: str, what: str) -> None:
            sentence = many.early_warning(name, what)
            if sentence is not None and not quiet:
                caution(sentence)

        on_many_matches.set(warn_early)
        for table, earliest_later in inputs.batches(program.layout):
            if session is None:
                statistics = key_statistics(program.queries, table, program.layout)
                session = Session(replace(program, statistics=statistics))
            if program.layout.type is not None:
                without_type += table[program.layout.type].null_count
            if watch.lacks_types or not all(results.rows.values()):
                watch.look_at(table)
            interruptible(session.push, table)
            if earliest_later is not None:
                take(interruptible(session.advance, earliest_later - 1))
            progress.more(table.num_rows, counted(sum(results.rows.values()), what))
            if results.is_full:
                break
        if session is not None and not results.is_full:
            take(interruptible(session.finish))
            progress.more(0, counted(sum(results.rows.values()), what))
    empty = [name for name, rows in results.rows.items() if not rows]
    cautions += watch.reasons(empty)
    if not results.is_full:
        cautions += watch.misspelt(empty)
    for text in () if quiet else cautions:
        caution(text)
    return Ran(inputs.rows, results, without_type)


# ── Progress ───────────────────────────────────────────────────────────────────────────────────────


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.finished_speed or task.speed or 0:,.0f} events/s")


class _ProgressBar:
    """A progress bar on the standard error stream if it is a terminal."""

    def __init__(self, total: int, quiet: bool) -> None:
        console = out(stderr=True)
        columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), _Rate(), TextColumn("{task.fields[found]}"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._is_shown = console.is_terminal and not quiet
        self._task = self._progress.add_task("", total=total, found="")

    def __enter__(self) -> _ProgressBar:
        if self._is_shown:
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        # Older versions of rich print an empty line here, even if the bar is disabled.
        if self._is_shown:
            self._progress.stop()

    def more(self, events: int, found: str) -> None:
        self._progress.update(self._task, advance=events, found=found)


def _summary(ran: Ran, what: str, seconds: float, output: Path | None) -> None:
    results = ran.results
    found = counted(sum(results.rows.values()), what)
    if len(results.rows) > 1:
        found += f" ({', '.join(f'{name} {rows:,}' for name, rows in results.rows.items())})"
    events = f"{ran.events:,} events" + (f" ({ran.without_type:,} without a type)" if ran.without_type else "")
    line = f"{events}, {found} in {seconds:.2f} s: {ran.events / max(seconds, 1e-9):,.0f} events/s"
    if output is not None:
        line += f"; written to {output}{'/' if results.folder else ''}"
    out(stderr=True).print(line, style="dim")


# ── Statements of SQL ──────────────────────────────────────────────────────────────────────────────


def _run_statement(
    statement: str,
    sources: list[Source],
    params: dict[str, Any],
    engine: Where,
    output: Path | None,
    format: Format | None,
    quiet: bool,
    limit: int | None,
) -> None:
    started = clock.perf_counter()
    names = sorted({source.event_type or "" for source in sources})
    if engine is Where.SPARK:
        with _spark(sources) as spark, ouzel.spark.unwrap_errors():
            frames = {name: _frame(spark, [one for one in sources if one.event_type == name]) for name in names}
            for name, frame in frames.items():
                frame.createOrReplaceTempView("`" + name.replace("`", "``") + "`")
            answer = ouzel.spark.sql(spark, statement, params=params, **frames).toArrow()
            read = sum(frame.count() for frame in frames.values())
    else:
        tables = read_tables(sources)
        answer = ouzel.sql(statement, params=params, **{name: tables[name] for name in names})
        read = sum(table.num_rows for table in tables.values())
    with Results({"statement": answer.schema}, output, format, limit) as results:
        results.write({"statement": answer})
    if not quiet:
        _summary(Ran(read, results), "row", clock.perf_counter() - started, output)


# ── On Spark ───────────────────────────────────────────────────────────────────────────────────────


def _on_spark(job: Job) -> Ran:
    """Run a job as a Spark batch. The answers are in order of time."""
    with _spark(job.sources) as spark:
        return _answered(spark, job)


@contextmanager
def _spark(sources: list[Source]) -> Iterator[Any]:
    """A Spark session that can read these files."""
    for source in sources:
        if source.kind not in READABLE_ON_SPARK:
            raise InputError(f"Spark cannot read '{source.path}'; give Parquet, CSV or JSON Lines")
    try:
        spark = ouzel.spark.session("ouzel run", **SPARK_SETTINGS)
    except ModuleNotFoundError as error:
        raise InputError(f"--engine spark needs {error.name}: pip install 'ouzel[spark]'") from None
    try:
        if spark.version.startswith("3."):
            raise InputError(f"--engine spark needs Spark 4.0 or newer and this is {spark.version}")
        yield spark
    finally:
        spark.stop()


def _answered(spark: Any, job: Job) -> Ran:
    queries, sources, options = job.queries, job.sources, job.options
    named = sorted({source.event_type for source in sources if source.event_type is not None})
    by_type = {name: _frame(spark, [one for one in sources if one.event_type == name]) for name in named}
    events: Any = by_type or _frame(spark, sources)
    with ouzel.spark.unwrap_errors(), ouzel.spark.match(events, queries, **options) as found:
        answers = {name: _in_order(found[name].toArrow()) for name in queries}
    with Results(
        {name: answer.schema for name, answer in answers.items()}, job.output, job.format, job.limit
    ) as results:
        results.write(answers)
    if not job.quiet and not all(results.rows.values()):
        for name, reason in ouzel.spark.why_empty(events, queries, **options).items():
            if not results.rows[name]:
                caution(reason)
    if by_type:
        return Ran(sum(frame.count() for frame in by_type.values()), results)
    counted = "*" if options["type"] is None else "`" + options["type"].replace("`", "``") + "`"
    count, with_type = events.selectExpr("count(*)", f"count({counted})").first()
    return Ran(count, results, count - with_type)


def _frame(spark: Any, sources: list[Source]) -> Any:
    kinds = {source.kind for source in sources}
    if len(kinds) > 1:
        raise InputError(f"Spark reads files of one format at a time, not {' and '.join(sorted(kinds))}")
    reader = spark.read.format(kinds.pop()).option("header", True).option("inferSchema", True)
    return reader.option("inferTimestamp", True).load([str(source.path.absolute()) for source in sources])


def _in_order(answer: pa.Table) -> pa.Table:
    """An answer in order of completion. A row of an aggregate has no start."""
    keys = [name for name in ("end", "start") if name in answer.column_names]
    return answer.sort_by([(name, "ascending") for name in keys])
