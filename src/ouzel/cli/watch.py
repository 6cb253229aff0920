"""`ouzel watch`: queries over an input that goes on; matches are printed as they complete."""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated

import pyarrow as pa
import typer
from rich.text import Text

import ouzel
from ouzel.cli.console import out, speaks_clearly
from ouzel.cli.feeds import Feed, columns_of, open_feed
from ouzel.cli.jobs import counted, what_comes_out
from ouzel.cli.options import QueryArgument, QueryOptions, RunOptions, takes_groups
from ouzel.cli.results import cell, json_line
from ouzel.errors import InputError, OuzelError

POLL_SECONDS = 0.1


class Line(StrEnum):
    LINE = "line"
    JSONL = "jsonl"


class TextFormat(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


@speaks_clearly
@takes_groups
def watch_command(
    query: QueryArgument,
    input: Annotated[
        str, typer.Option("--input", "-i", metavar="PATH", help="A growing file, a folder, or - for standard input.")
    ] = "-",
    format: Annotated[
        Line | None, typer.Option("--format", "-f", help="By default a line on a screen, JSON Lines into a pipe.")
    ] = None,
    input_format: Annotated[
        TextFormat | None, typer.Option("--input-format", help="Of lines; by default what the ending says, or jsonl.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="NAME:TYPE,… where the first events do not show all columns and their types."),
    ] = None,
    max_delay: Annotated[
        str, typer.Option("--max-delay", help="How much out of order events may come: ticks, or '5 s'.")
    ] = "0",
    settle: Annotated[
        float,
        typer.Option(help="After so many seconds of silence no more events of the newest moment are expected."),
    ] = 1.0,
    stop_after: Annotated[
        float | None, typer.Option("--stop-after", help="End after so many seconds of silence, as if the input ended.")
    ] = None,
    *,
    asked: QueryOptions,
    layout: RunOptions,
) -> None:
    """Print the matches of QUERY in a stream as they complete, until Ctrl-C.

    \b
    Examples:
      ouzel watch theft.query --input readings.jsonl
      tail -F app.log | ouzel watch brute-force.query --max-delay '2 s'
      ouzel watch theft.query --input incoming/ --format jsonl

    A match completes when nothing earlier can come any more: with the next later event, or after --settle seconds of
    silence. One that ends with a negative component completes when its window has passed.
    """
    queries = asked.queries(query)
    engine = ouzel.Engine(
        queries,
        **layout.as_arguments(),
        max_delay=int(max_delay) if max_delay.lstrip("-").isdigit() else max_delay,
    )  # fmt: skip
    feed = open_feed(input, columns_of(columns), None if input_format is None else input_format.value)
    told = Told(format or (Line.LINE if sys.stdout.isatty() else Line.JSONL), what_comes_out(queries))
    try:
        follow(feed, engine, told, settle=settle, stop_after=stop_after, clock=clock.monotonic, sleep=clock.sleep)
    except KeyboardInterrupt:
        told.note("stopped")
    told.summary(engine.late)


class Told:
    """What has been printed: a line for each match, or for each row that stands for many."""

    def __init__(self, chosen: Line, what: str = "match") -> None:
        self._chosen = chosen
        self._what = what
        self._console = out()
        self.events = 0
        self.lines = 0

    def answers(self, found: Mapping[str, pa.Table]) -> None:
        for name, table in found.items():
            self.lines += table.num_rows
            for row in table.to_pylist():
                if self._chosen is Line.JSONL:
                    named = row if len(found) == 1 else {"query": name, **row}
                    sys.stdout.write(json_line(named) + "\n")
                else:
                    values = "  ".join(
                        f"{key}={cell(value)}" for key, value in row.items() if key not in ("start", "end")
                    )
                    span = (
                        f"{cell(row.get('start'))} – {cell(row.get('end'))}" if "start" in row else cell(row.get("end"))
                    )
                    self._console.print(Text.assemble((span, "cyan"), f"  {name}  {values}"))
        sys.stdout.flush()

    def note(self, text: str) -> None:
        out(stderr=True).print(text, style="dim")

    def summary(self, late: int) -> None:
        self.note(
            f"{self.events:,} events, {counted(self.lines, self._what)}"
            + (f", {late:,} events came too late and were left out (see --max-delay)" if late else "")
        )


def follow(
    feed: Feed,
    engine: ouzel.Engine,
    told: Told,
    *,
    settle: float,
    stop_after: float | None,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Push what comes and tell what it completes, until the feed ends or has been silent for long enough."""
    heard, settled = clock(), True
    while True:
        for table in feed.take():
            if table.num_rows:
                told.answers(_pushed(engine, table, told))
                told.events += table.num_rows
                heard, settled = clock(), False
        if feed.ended:
            break
        silent = clock() - heard
        if not settled and silent >= settle:
            told.answers(_settled(engine))
            settled = True
        if stop_after is not None and silent >= stop_after:
            break
        sleep(POLL_SECONDS)
    if not told.events:
        raise InputError("no event came")
    told.answers(engine.finish())


def _pushed(engine: ouzel.Engine, table: pa.Table, told: Told) -> dict[str, pa.Table]:
    try:
        return engine.push(table)
    except OuzelError:
        if not told.events:
            told.note(f"the first events have the columns {', '.join(table.column_names)}; --columns declares others")
        raise


def _settled(engine: ouzel.Engine) -> dict[str, pa.Table]:
    """Time moves on to the newest event, less the delay that is allowed: nothing at its very moment will come."""
    return {} if engine.watermark is None else engine.advance(engine.watermark + 1)
