"""`ouzel check`, `format`, `explain` and `expand`: commands about queries, which need no events."""

from __future__ import annotations

import difflib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from rich.text import Text

import ouzel
from ouzel.cli.console import complain, out, speaks_clearly
from ouzel.cli.files import STANDARD_INPUT, QueryFile, format_file, summary, write_picture
from ouzel.cli.options import ColumnOptions, OneQueryOptions, QueryArgument, QueryOptions, takes_groups
from ouzel.cli.results import Results
from ouzel.cli.run import FormatOption, OutputOption
from ouzel.errors import OuzelError

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
    """Say whether queries are right, and where they are not.

    \b
    Examples:
      ouzel check theft.query shop.script
      ouzel check 'PATTERN SEQ(A a, B b) WITHIN 5 min'
    """
    console, failed = out(), False
    for path in files:
        try:
            file = QueryFile.read(path)
            found = asked.queries(path if path != STANDARD_INPUT else file.text)
        except OuzelError as error:
            failed = True
            complain(error, "standard input" if path == STANDARD_INPUT else path)
            continue
        width = max(map(len, found))
        console.print(Text.assemble(("ok", "bold green"), f"  {file.name}"))
        for name, query in found.items():
            console.print(Text.assemble("    ", (name.ljust(width), "cyan"), f"  {summary(query.tree)}"))
    if failed:
        raise typer.Exit(1)


def format_command(
    files: Files,
    write: Annotated[bool, typer.Option("--write", "-w", help="Put the result back into the files.")] = False,
    check_only: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 and show what would change.")
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


@speaks_clearly
@takes_groups
def explain_command(
    query: QueryArgument,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw the plan into this file.")] = None,
    format: Annotated[Picture, typer.Option("--format", "-f", help="What to print.")] = Picture.TEXT,
    *,
    asked: OneQueryOptions,
) -> None:
    """Show how QUERY will be answered: its automaton, what is tested where, the rules, the kernel.

    \b
    Examples:
      ouzel explain theft.query
      ouzel explain theft.query --svg plan.svg
    """
    made = asked.one(query)
    if svg is not None:
        write_picture(svg, ouzel.explain(made, "svg"))
        out().print(Text.assemble(("drawn", "green"), f"  {svg}"))
    else:
        out().print(ouzel.explain(made, format.value))


@speaks_clearly
@takes_groups
def expand_command(
    table: Annotated[Path, typer.Argument(metavar="FILE", help="What a query with OUTPUT COMPRESSED answered.")],
    query: QueryArgument,
    output: OutputOption = None,
    format: FormatOption = None,
    first: Annotated[int | None, typer.Option(help="Only so many matches, the first ones.")] = None,
    sample: Annotated[int | None, typer.Option(help="Only so many matches, chosen uniformly.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the sample.")] = None,
    *,
    asked: OneQueryOptions,
    layout: ColumnOptions,
) -> None:
    """List the matches that the rows of an OUTPUT COMPRESSED answer stand for.

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
