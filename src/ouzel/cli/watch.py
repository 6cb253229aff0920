"""`ouzel watch`: queries over a growing file, a folder that gets new files, or the standard input.

Matches are printed as they complete.
"""

from __future__ import annotations

import csv
import io
import json
import os
import select
import sys
import time as clock
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import typer
from rich.text import Text

import ouzel
from ouzel.cli.console import out, report_errors
from ouzel.cli.options import QueryArgument, QueryOptions, RunOptions, takes_groups
from ouzel.cli.results import cell, counted, json_line, what_comes_out
from ouzel.cli.sources import Source, kind_of
from ouzel.errors import InputError, OuzelError
from ouzel.runtime.feeder import duration_nanoseconds
from ouzel.runtime.inputs import SUFFIXES, as_table, ragged, shown

POLL_SECONDS = 0.1
CHUNK_BYTES = 1 << 20


class Line(StrEnum):
    LINE = "line"
    JSONL = "jsonl"


class TextFormat(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


@report_errors
@takes_groups
def watch_command(
    query: QueryArgument,
    input: Annotated[
        str, typer.Option("--input", "-i", metavar="PATH", help="A growing file, a folder, or - for standard input.")
    ] = "-",
    format: Annotated[
        Line | None, typer.Option("--format", "-f", help="By default a line on a terminal, JSON Lines into a pipe.")
    ] = None,
    input_format: Annotated[
        TextFormat | None,
        typer.Option("--input-format", help="Format of the lines; by default that of the suffix, or jsonl."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="NAME:TYPE,… if the first events do not have all columns."),
    ] = None,
    max_delay: Annotated[str, typer.Option("--max-delay", help="How late events may be: ticks, or '5 s'.")] = "0",
    idle_timeout: Annotated[
        str,
        typer.Option(
            "--idle-timeout",
            help="Print the matches at the newest timestamp after such a time without events: '500 ms'.",
        ),
    ] = "1 s",
    stop_after: Annotated[
        str | None,
        typer.Option("--stop-after", help="End after such a time without events, as at the end of the input: '5 min'."),
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

    A match completes when no earlier event can come: with the next later event, or after --idle-timeout without
    input. A match that ends with a negative component completes when its window has passed.
    """
    queries = asked.queries(query)
    engine = ouzel.Engine(
        queries,
        **layout.as_arguments(),
        max_delay=int(max_delay) if max_delay.lstrip("-").isdigit() else max_delay,
    )  # fmt: skip
    source = open_source(input, columns_of(columns), None if input_format is None else input_format.value)
    printer = Printer(format or (Line.LINE if sys.stdout.isatty() else Line.JSONL), what_comes_out(queries))
    try:
        follow(
            source,
            engine,
            printer,
            idle_timeout=_seconds(idle_timeout, "idle_timeout"),
            stop_after=None if stop_after is None else _seconds(stop_after, "stop_after"),
            clock=clock.monotonic,
            sleep=clock.sleep,
        )
    except KeyboardInterrupt:
        printer.note("stopped")
    printer.summary(engine.late)


def _seconds(given: str, option: str) -> float:
    """The seconds in a duration such as '500 ms'. A plain number is in seconds."""
    try:
        return float(given)
    except ValueError:
        return (duration_nanoseconds(given, option) or 0) / 1e9


class Printer:
    """Prints answers, one line for each match or for each row that represents many; and counts them."""

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
    source: StreamSource,
    engine: ouzel.Engine,
    printer: Printer,
    *,
    idle_timeout: float,
    stop_after: float | None,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Push new events and print the answers, until the source ends or has been idle for too long."""
    heard, advanced = clock(), True
    while True:
        for table in source.take():
            if table.num_rows:
                printer.answers(_pushed(engine, table, printer))
                printer.events += table.num_rows
                heard, advanced = clock(), False
        if source.ended:
            break
        idle = clock() - heard
        if not advanced and idle >= idle_timeout:
            printer.answers(_advanced(engine))
            advanced = True
        if stop_after is not None and idle >= stop_after:
            break
        sleep(POLL_SECONDS)
    if not printer.events:
        raise InputError("no events came")
    printer.answers(engine.finish())


def _pushed(engine: ouzel.Engine, table: pa.Table, printer: Printer) -> dict[str, pa.Table]:
    try:
        return engine.push(table)
    except OuzelError:
        if not printer.events:
            printer.note(f"the first events have columns {', '.join(table.column_names)}; --columns declares others")
        raise


def _advanced(engine: ouzel.Engine) -> dict[str, pa.Table]:
    """Advance time to the newest event, minus the allowed delay. No other event of that timestamp is expected."""
    return {} if engine.watermark is None else engine.advance(engine.watermark + 1)


# ── Inputs that do not end ─────────────────────────────────────────────────────────────────────────


class StreamSource(Protocol):
    """A source of events. `ended` is true if no more events can come."""

    ended: bool

    def take(self) -> Iterator[pa.Table]: ...


def open_source(path: str, columns: pa.Schema | None, text_format: str | None) -> StreamSource:
    """The source for a path; - is standard input."""
    if path == "-":
        return Lines(_standard_input(), _text_format(text_format or "json"), columns, ends=True)
    place = Path(path)
    if place.is_dir():
        return Folder(place)
    if not place.exists():
        raise InputError(f"there is no file or folder '{path}' to watch")
    kind = kind_of(place)
    if kind not in ("json", "csv"):
        raise InputError(
            f"a {kind} file is written at once and does not grow; watch the folder it appears in, or use run"
        )
    return Lines(_growing(place), _text_format(text_format or kind), columns, ends=False)


def _text_format(name: str) -> str:
    return {"jsonl": "json", "json": "json", "csv": "csv"}[name]


class Folder:
    """The files of a folder, in the order of their names. Each is read once. While a file is being written, its name
    must begin with a dot or an underscore, as Spark and `ouzel run` do.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[Path] = set()
        self.ended = False

    def take(self) -> Iterator[pa.Table]:
        for path in sorted(self._path.iterdir()):
            if path in self._seen or path.name.startswith((".", "_")) or path.suffix.lower() not in SUFFIXES:
                continue
            self._seen.add(path)
            for batch in Source(path, kind_of(path)).batches():
                yield as_table(batch)


class Lines:
    """Events from lines of JSON or CSV. `read` returns the available bytes; None if no more can come."""

    def __init__(self, read: Callable[[], bytes | None], kind: str, columns: pa.Schema | None, *, ends: bool) -> None:
        self._read = read
        self._kind = kind
        self._schema = columns
        self._rest = b""
        self._header: bytes | None = None
        self._line = 0
        self._ends = ends
        self.ended = False

    def take(self) -> Iterator[pa.Table]:
        while True:
            read = self._read()
            if read is None:
                self.ended = self._ends
            if not read and not (self.ended and self._rest):
                return
            # Keep an incomplete line for later, unless the input has ended.
            lines = (self._rest + (read or b"")).split(b"\n")
            self._rest = b"" if read is None else lines.pop()
            whole = [line for line in lines if line.strip()]
            if whole:
                yield self._table(whole)
            if read is None:
                return

    def _table(self, lines: list[bytes]) -> pa.Table:
        table = self._from_json(lines) if self._kind == "json" else self._from_csv(lines)
        self._line += len(lines)
        if self._schema is None:
            # The first events decide the columns; a column of nulls is left out.
            self._schema = pa.schema([one for one in table.schema if not pa.types.is_null(one.type)])
        return table.select([name for name in self._schema.names if name in table.column_names])

    def _from_json(self, lines: list[bytes]) -> pa.Table:
        rows = []
        for number, line in enumerate(lines, start=self._line + 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InputError(f"line {number} is not JSON: {error}: {shown(_text(line))}") from None
            if not isinstance(row, dict):
                raise InputError(
                    f"line {number} is not an event: each line must be one JSON object, got {shown(_text(line))}"
                )
            rows.append(row)
        if self._schema is None:
            return as_table(rows)
        columns = {}
        for known in self._schema:
            try:
                columns[known.name] = pa.array([row.get(known.name) for row in rows], known.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise InputError(
                    f"the values of '{known.name}' from line {self._line + 1} on are not all of type {known.type}: "
                    f"{error}. Declare the types with --columns"
                ) from None
        return pa.table(columns)

    def _from_csv(self, lines: list[bytes]) -> pa.Table:
        first = self._line + 1
        if self._header is None:
            self._header, *lines = lines
            first += 1
        names = next(csv.reader(io.StringIO(self._header.decode("utf-8-sig"))))
        known = {} if self._schema is None else {one.name: one.type for one in self._schema}
        if not lines:
            return pa.table({name: pa.array([], known.get(name, pa.null())) for name in names})
        try:
            return pa_csv.read_csv(
                io.BytesIO(b"\n".join(lines)),
                read_options=pa_csv.ReadOptions(column_names=names),
                convert_options=pa_csv.ConvertOptions(column_types=known, strings_can_be_null=True),
            )
        except pa.ArrowInvalid as error:
            for number, line in enumerate(lines, start=first):
                values = next(csv.reader([_text(line)]))
                if len(values) != len(names):
                    raise InputError(f"line {number}: {ragged(len(values), len(names), _text(line))}") from None
            raise InputError(f"the lines from {first} on cannot be read as CSV: {error}") from None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _growing(path: Path) -> Callable[[], bytes | None]:
    opened: IO[bytes] = open(path, "rb")  # noqa: SIM115
    return lambda: opened.read(CHUNK_BYTES)


def _standard_input() -> Callable[[], bytes | None]:
    stream = sys.stdin.buffer
    try:
        number = stream.fileno()
    except (OSError, ValueError, io.UnsupportedOperation):
        # Not a regular file: all its data is already there.
        return lambda: stream.read(CHUNK_BYTES) or None

    def read() -> bytes | None:
        if not select.select([number], [], [], 0)[0]:
            return b""
        return os.read(number, CHUNK_BYTES) or None

    return read


def columns_of(text: str | None) -> pa.Schema | None:
    """Columns from a text such as `ts:int64,type:string,price:double`.

    >>> columns_of("ts:timestamp,price:double")
    ts: timestamp[us]
    price: double
    """
    if text is None:
        return None
    fields = []
    for part in text.split(","):
        name, colon, kind = part.strip().partition(":")
        try:
            fields.append(pa.field(name, pa.timestamp("us") if kind == "timestamp" else pa.type_for_alias(kind)))
        except ValueError:
            raise InputError(
                f"'{part}' does not declare a column; write NAME:TYPE, such as price:double (int64, string, timestamp)"
            ) from None
        if not colon or not name:
            raise InputError(f"'{part}' does not declare a column; write NAME:TYPE")
    return pa.schema(fields)
