"""The commands, their options and their colours."""

from __future__ import annotations

import difflib
import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import ouzel
from ouzel import lang
from ouzel.cli.files import STANDARD_INPUT, QueryFile, format_file, summary
from ouzel.errors import OuzelError

application = typer.Typer(
    name="ouzel", help="Check and format queries.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

Files = Annotated[
    list[str], typer.Argument(metavar="FILE", help="Files with a query or a script; - reads standard input.")
]


def _console(*, stderr: bool = False) -> Console:
    # Made when used, so that it sees the streams of this run. rich drops colours where NO_COLOR is set or nobody looks;
    # highlighting and wrapping would change the text of a query.
    return Console(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


@application.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        _console().print(f"ouzel {ouzel.__version__}")
        raise typer.Exit


@application.command(name="check")
def check_command(
    files: Files,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="The value of a parameter :NAME. Repeatable."),
    ] = None,
) -> None:
    """Say whether the queries in FILES are right, and where they are not."""
    params = dict(_parameter(text) for text in param or [])
    console, failed = _console(), False
    for path in files:
        try:
            file = QueryFile.read(path)
            script = lang.parse_script(file.text)
            if len(script.queries) == 1 and script.queries[0].name is None:
                ouzel.query(file.text, params=params)
            else:
                ouzel.queries(file.text, params=params)
        except OuzelError as error:
            failed = True
            _complain(path, error)
            continue
        names = [query.name or "query" for query in script.queries]
        width = max(map(len, names))
        console.print(Text.assemble(("ok", "bold green"), f"  {file.name}"))
        for name, query in zip(names, script.queries, strict=True):
            console.print(Text.assemble("    ", (name.ljust(width), "cyan"), f"  {summary(query)}"))
    if failed:
        raise typer.Exit(1)


@application.command(name="format")
def format_command(
    files: Files,
    write: Annotated[bool, typer.Option("--write", "-w", help="Put the result back into the files.")] = False,
    check_only: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 and show what would change.")
    ] = False,
) -> None:
    """Print the queries in FILES in their standard form."""
    if write and check_only:
        raise typer.BadParameter("--write and --check exclude each other")
    if write and STANDARD_INPUT in files:
        raise typer.BadParameter("standard input cannot be written back; leave out --write")
    console, failed = _console(), False
    for path in files:
        try:
            file = QueryFile.read(path)
            formatted = format_file(file.text)
            if write and formatted != file.text:
                file.write(formatted)
                console.print(Text.assemble(("formatted", "green"), f"  {file.name}"))
        except OuzelError as error:
            failed = True
            _complain(path, error)
            continue
        if check_only and formatted != file.text:
            failed = True
            _show_changes(console, file, formatted)
        elif not write and not check_only:
            console.print(formatted, end="")
    if failed:
        raise typer.Exit(1)


def _parameter(text: str) -> tuple[str, Any]:
    """`limit=3` is the number 3, `name=John` and `name="3"` are strings: a value is read as JSON where it is JSON."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--param needs NAME=VALUE, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _complain(path: str, error: OuzelError) -> None:
    name = "standard input" if path == STANDARD_INPUT else path
    _console(stderr=True).print(Text.assemble(("error", "bold red"), f"  {name}\n{error}"))


def _show_changes(console: Console, file: QueryFile, formatted: str) -> None:
    colours = {"-": "red", "+": "green", "@": "cyan"}
    changes = difflib.unified_diff(
        file.text.splitlines(), formatted.splitlines(), file.name, f"{file.name}, formatted", lineterm="", n=2
    )
    for line in changes:
        console.print(Text(line, style=colours.get(line[:1], "")))
