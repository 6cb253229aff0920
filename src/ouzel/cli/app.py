"""The application: all commands, in the order in which a new user meets them, and the implementation of the commands
that read no stream.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.text import Text

import ouzel
from ouzel import lang
from ouzel.cli.console import complain, exit_on_closed_pipe, out, report_errors
from ouzel.cli.options import (
    STANDARD_INPUT,
    ColumnOptions,
    FileError,
    OneQueryOptions,
    QueryArgument,
    QueryFile,
    QueryOptions,
    named_value,
    takes_groups,
    write_picture,
)
from ouzel.cli.results import Format, Results
from ouzel.cli.run import FormatOption, InputOption, OutputOption, run_command
from ouzel.cli.sources import find_sources, named_sources, read_tables
from ouzel.cli.watch import watch_command
from ouzel.errors import InputError, OuzelError
from ouzel.lang import syntax
from ouzel.lang.parser import is_row_pattern, is_stream
from ouzel.lang.statements import is_statement

Files = Annotated[
    list[str],
    typer.Argument(metavar="QUERY", help="Files with a query or a script, texts of queries, or - for standard input."),
]


class Picture(StrEnum):
    TEXT = "text"
    JSON = "json"
    SVG = "svg"


@takes_groups
def check_command(files: Files, asked: QueryOptions) -> None:
    """Check queries and show their mistakes.

    \b
    Examples:
      ouzel check theft.query shop.script
      ouzel check 'PATTERN SEQ(A a, B b) WITHIN 5 min'
    """
    console, failed = out(), False
    for path in files:
        try:
            file = QueryFile.read(path)
            found = asked.queries_of(file.text)
        except OuzelError as error:
            failed = True
            complain(error, "standard input" if path == STANDARD_INPUT else path)
            continue
        width = max(map(len, found))
        console.print(Text.assemble(("ok", "bold green"), f"  {file.name}"))
        for name, query in found.items():
            line = summary(query.tree) if isinstance(query, ouzel.Query) else " ".join(query.text.split())
            console.print(Text.assemble("    ", (name.ljust(width), "cyan"), f"  {line}"))
    if failed:
        raise typer.Exit(1)


def format_command(
    files: Files,
    write: Annotated[bool, typer.Option("--write", "-w", help="Write the result to the files.")] = False,
    check_only: Annotated[
        bool, typer.Option("--check", help="Change nothing; show what would change and exit with 1.")
    ] = False,
) -> None:
    """Print queries in their standard form.

    \b
    Examples:
      ouzel format theft.query
      ouzel format --write *.query
    """
    if write and check_only:
        raise typer.BadParameter("--write and --check exclude each other")
    if write and STANDARD_INPUT in files:
        raise typer.BadParameter("standard input cannot be written back; leave out --write")
    console, failed = out(), False
    for path in files:
        try:
            file = QueryFile.read(path)
            formatted = format_file(file.text)
            if write and formatted != file.text:
                file.write(formatted)
                console.print(Text.assemble(("formatted", "green"), f"  {file.name}"))
        except OuzelError as error:
            failed = True
            complain(error, "standard input" if path == STANDARD_INPUT else path)
            continue
        if check_only and formatted != file.text:
            failed = True
            _show_changes(console, file, formatted)
        elif not write and not check_only:
            console.print(formatted, end="")
    if failed:
        raise typer.Exit(1)


@report_errors
@takes_groups
def explain_command(
    query: QueryArgument,
    svg: Annotated[Path | None, typer.Option("--svg", help="The SVG file to draw.")] = None,
    format: Annotated[Picture, typer.Option("--format", "-f", help="The format of the output.")] = Picture.TEXT,
    *,
    asked: OneQueryOptions,
) -> None:
    """Show the plan of QUERY, or of the MATCH_RECOGNIZE in it: its automaton, where conditions are tested, the kernel.

    \b
    Examples:
      ouzel explain theft.query
      ouzel explain theft.query --svg plan.svg
    """
    text = QueryFile.read(query).text
    if is_statement(text) or is_row_pattern(text):
        explained = partial(ouzel.explain, text, params=asked.params)
    else:
        explained = partial(ouzel.explain, asked.one_of(text))
    if svg is not None:
        write_picture(svg, explained(format="svg"))
        out().print(Text.assemble(("drawn", "green"), f"  {svg}"))
    else:
        out().print(explained(format=format.value))


@report_errors
@takes_groups
def expand_command(
    table: Annotated[Path, typer.Argument(metavar="FILE", help="The answer of a query with OUTPUT COMPRESSED.")],
    query: QueryArgument,
    output: OutputOption = None,
    format: FormatOption = None,
    first: Annotated[int | None, typer.Option(help="List only the first N matches.")] = None,
    sample: Annotated[int | None, typer.Option(help="List N matches, chosen uniformly.")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of the sample.")] = None,
    *,
    asked: OneQueryOptions,
    layout: ColumnOptions,
) -> None:
    """List the matches in the rows of an OUTPUT COMPRESSED answer.

    \b
    Examples:
      ouzel run rise.query -i ticks.parquet -o rises.parquet
      ouzel expand rises.parquet rise.query --sample 10 --seed 1
    """
    made = asked.one(query)
    if table.suffix.lower() not in (".parquet", ".pq", ".arrow", ".feather"):
        raise OuzelError(f"'{table}' cannot hold the graph of compressed matches; store the answer as Parquet or Arrow")
    listed: pa.Table = ouzel.expand(
        str(table), made, first=first, sample=sample, seed=seed,
        **layout.as_arguments(),
    )  # fmt: skip
    with Results({made.name: listed.schema}, output, format) as results:
        results.write({made.name: listed})


def _show_changes(console: Console, file: QueryFile, formatted: str) -> None:
    colours = {"-": "red", "+": "green", "@": "cyan"}
    changes = difflib.unified_diff(
        file.text.splitlines(), formatted.splitlines(), file.name, f"{file.name}, formatted", lineterm="", n=2
    )
    for line in changes:
        console.print(Text(line, style=colours.get(line[:1], "")))


def format_file(text: str) -> str:
    """The text in its standard form. Comments between queries are kept. A comment inside a query is an error, so that
    no comment is lost.
    """
    if is_stream(text):
        statements: Sequence[Any] = (lang.parse_stream(text),)
        write: Callable[[Any], str] = lang.format_stream
    else:
        statements = lang.parse_script(text).queries
        named = statements[0].name is not None
        write = (lambda one: lang.format_script(syntax.Script((one,)))) if named else lang.format_query
    blocks: list[str] = []
    done = 0
    for query in statements:
        if inside := comments_in(text, query.span.start, query.span.end):
            line = text.count("\n", 0, inside[0][0]) + 1
            raise FileError(f"the comment in line {line} is inside a query and would be lost; move it before the query")
        behind, before = _comments_between(text, done, query.span.start)
        if blocks:
            blocks[-1] += behind
        else:
            before = [behind.strip(), *before] if behind else before
        blocks.append("\n".join([*before, write(query).strip()]))
        done = query.span.end
    behind, after = _comments_between(text, done, len(text))
    blocks[-1] += behind
    return "\n\n".join([*blocks, "\n".join(after)]).rstrip() + "\n"


def summary(query: syntax.Query) -> str:
    """A query on one line: its pattern and window.

    >>> summary(lang.parse("PATTERN SEQ(Shelf a, Exit b) WHERE a.id = b.id WITHIN 12 hours"))
    'PATTERN SEQ(Shelf a, Exit b) WITHIN 12 h'
    """
    short = syntax.Query(pattern=query.pattern, within=query.within)
    return " ".join(lang.format_query(short).split())


def comments_in(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The offsets of comments in text[start:end]. Text in strings and in quoted names is not a comment.

    >>> comments_in("a -- b\\n'--' /* c */", 0, 19)
    [(2, 6), (12, 19)]
    """
    found, at = [], start
    while at < end:
        if text[at] in "'\"`":
            close = text.find(text[at], at + 1)
            at = end if close < 0 else close + 1
        elif text.startswith("--", at):
            line_end = text.find("\n", at)
            line_end = end if line_end < 0 else min(line_end, end)
            found.append((at, line_end))
            at = line_end
        elif text.startswith("/*", at):
            close = text.find("*/", at + 2)
            close = end if close < 0 else close + 2
            found.append((at, close))
            at = close
        else:
            at += 1
    return found


def _comments_between(text: str, start: int, end: int) -> tuple[str, list[str]]:
    """(comment after the previous query on its last line, comments of the next query)."""
    behind, before = "", []
    for first, last in comments_in(text, start, end):
        comment = text[first:last].rstrip()
        if "\n" in text[start:first]:
            before.append(comment)
        else:
            behind += "  " + comment
    return behind, before


# ── Why and plot ───────────────────────────────────────────────────────────────────────────────────


@report_errors
@takes_groups
def why_command(
    query: QueryArgument,
    input: InputOption,
    start: Annotated[
        list[str] | None,
        typer.Option(
            "--start",
            metavar="ROW|NAME=VALUE",
            help="The event to begin with: its row, counted from 0, or values of its columns. Repeatable. Without it, "
            "the event that got furthest.",
        ),
    ] = None,
    search_limit: Annotated[int, typer.Option(min=1, help="The number of partial matches to search.")] = 2_000,
    *,
    asked: OneQueryOptions,
    layout: ColumnOptions,
) -> None:
    """Show how far a match that begins with one event got, and what stopped it.

    \b
    Examples:
      ouzel why theft.query --input readings.parquet --start tag_id=tag-0000042
      ouzel why theft.query -i readings.parquet --start 17
      ouzel why theft.query -i readings.parquet
      ouzel why dips.sql -i ticks.parquet --start 17
    """
    text = QueryFile.read(query).text
    if is_statement(text) or is_row_pattern(text):
        tables = list(read_tables(named_sources(input)).values())
        if len(tables) > 1:
            raise InputError("give one --input: the table in front of MATCH_RECOGNIZE")
        (table,) = tables
        reason = ouzel.why(table, text, _start(start), params=asked.params, search_limit=search_limit)
    else:
        reason = ouzel.why(
            events_of(input), asked.one_of(text), _start(start), search_limit=search_limit,
            **layout.as_arguments(),
        )  # fmt: skip
    console = out()
    console.print(reason.title, style="bold")
    for step in reason.steps:
        console.print(f"  {step}")
    console.print(Text(reason.verdict, "bold green" if reason.complete else "bold yellow"))


@report_errors
@takes_groups
def plot_command(
    query: QueryArgument,
    input: InputOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="The SVG file to draw.")] = Path("matches.svg"),
    label: Annotated[str | None, typer.Option(help="A column whose value is written beside each event.")] = None,
    title: Annotated[str | None, typer.Option(help="The title; by default the name of the query.")] = None,
    width: Annotated[int, typer.Option(min=300, max=20_000, help="The width of the picture in pixels.")] = 900,
    incidents: Annotated[int, typer.Option(min=0, help="Draw densities if there are more incidents than this.")] = 60,
    *,
    asked: OneQueryOptions,
    layout: ColumnOptions,
) -> None:
    """Draw events as marks and matches as arcs between them.

    \b
    Examples:
      ouzel plot theft.query --input readings.jsonl --output thefts.svg --label tag_id
    """
    made = asked.one(query)
    picture = ouzel.plot(
        events_of(input), made, label=label, title=title, width=width, incidents_max=incidents,
        **layout.as_arguments(),
    )  # fmt: skip
    write_picture(output, picture)
    out().print(Text.assemble(("drawn", "green"), f"  {output}"))


def events_of(given: list[str]) -> Any:
    """All events of the inputs, as one table or as one table for each event type."""
    whole = read_tables(find_sources(given))
    return whole.get(None, whole)


def _start(given: list[str] | None) -> int | dict[str, Any] | None:
    if not given:
        return None
    if len(given) == 1 and given[0].lstrip("#").isdigit():
        return int(given[0].lstrip("#"))
    return dict(map(named_value, given))


# ── Generate ───────────────────────────────────────────────────────────────────────────────────────


class Workload(StrEnum):
    SHOP = "shop"


SHOP_QUERY = (
    "PATTERN SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id] WITHIN 12 hours OUTPUT NON_OVERLAPPING\n"
    "RETURN Theft(x.tag_id AS tag, x.shelf_id AS shelf, z.time AS left_at)"
)


@report_errors
def generate_command(
    workload: Annotated[
        Workload, typer.Argument(metavar="WORKLOAD", help="shop: RFID readings of a day in a shop, with known thefts.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A Parquet, CSV, JSON Lines or Arrow file.")
    ] = None,
    format: Annotated[Format | None, typer.Option("--format", "-f", help="By default that of the file suffix.")] = None,
    events: Annotated[int, typer.Option("--events", "-n", min=0, help="How many events.")] = 100_000,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same events.")] = 0,
    query: Annotated[
        bool, typer.Option("--query", help="Print a query for these events instead of the events.")
    ] = False,
) -> None:
    """Make a seeded stream with known answers.

    \b
    Examples:
      ouzel generate shop --output readings.parquet --events 1000000 --seed 7
      ouzel generate shop --query > theft.query
      ouzel generate shop --format jsonl --events 1000
    """
    if query:
        out().print(SHOP_QUERY)
        return
    made = ouzel.datasets.shop_day(events, seed=seed).events
    with Results({workload.value: made.schema}, output, format) as results:
        results.write({workload.value: made})
    if output is not None:
        out(stderr=True).print(f"{made.num_rows:,} events written to {output}", style="dim")


# ── All commands ───────────────────────────────────────────────────────────────────────────────────


EPILOG = """\b
Start here:
  ouzel generate shop --output readings.parquet
  ouzel generate shop --query > theft.query
  ouzel run theft.query --input readings.parquet

\b
Exit codes:
  0    everything went well
  1    a query, an input or a limit was wrong; the message says which
  2    the command itself was wrong
  130  interrupted by Ctrl-C; nothing half-written is left
  141  output pipe closed (SIGPIPE)
  143  terminated (SIGTERM); nothing half-written is left

Colours are off if NO_COLOR is set or the output is not a terminal.
"""

application = typer.Typer(
    name="ouzel",
    help="Find patterns in streams of events.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@application.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        out().print(f"ouzel {ouzel.__version__}")
        raise typer.Exit


_COMMANDS: dict[str, Callable[..., None]] = {
    "run": run_command,
    "watch": watch_command,
    "why": why_command,
    "plot": plot_command,
    "check": check_command,
    "format": format_command,
    "explain": explain_command,
    "expand": expand_command,
    "generate": generate_command,
}

for _name, _command in _COMMANDS.items():
    application.command(name=_name)(exit_on_closed_pipe(_command))
