"""`ouzel why` and `ouzel plot`: explain a surprising answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

import ouzel
from ouzel.cli.console import out, report_errors
from ouzel.cli.options import (
    ColumnOptions,
    OneQueryOptions,
    QueryArgument,
    QueryFile,
    named_value,
    takes_groups,
    write_picture,
)
from ouzel.cli.run import InputOption
from ouzel.cli.sources import find_sources, named_sources, read_tables
from ouzel.errors import InputError
from ouzel.lang.parser import is_row_pattern
from ouzel.lang.statements import is_statement


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
    """All events of the inputs, as one table or as one per event type."""
    whole = read_tables(find_sources(given))
    return whole.get(None, whole)


def _start(given: list[str] | None) -> int | dict[str, Any] | None:
    if not given:
        return None
    if len(given) == 1 and given[0].lstrip("#").isdigit():
        return int(given[0].lstrip("#"))
    return dict(map(named_value, given))
