"""What all commands share: consoles, the way errors are said, parameters, and the queries they are given."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

import ouzel
from ouzel import lang
from ouzel.cli.files import QueryFile
from ouzel.errors import OuzelError

WRONG = 1

QueryArgument = Annotated[
    str,
    typer.Argument(metavar="QUERY", help="A file with a query or a script, the text of one, or - for standard input."),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="The value of a parameter :NAME in the query. Repeatable."),
]
TypesOption = Annotated[
    Path | None,
    typer.Option("--types", help='A JSON file that declares event types: {"Shelf": {"tag_id": "string"}, …}.'),
]
TimeOption = Annotated[str, typer.Option("--time", help="The column with the time.")]
TypeOption = Annotated[str, typer.Option("--type", help="The column with the event type; none where all are of one.")]
OrderOption = Annotated[
    list[str] | None, typer.Option("--order", help="A column that orders simultaneous events. Repeatable.")
]
UnitOption = Annotated[
    str | None, typer.Option("--time-unit", help="What one tick of an integer time is: us, ms, s, min, h …")
]

Command = TypeVar("Command", bound=Callable[..., Any])


def out(*, stderr: bool = False) -> Console:
    """A console that sees the streams of this run. rich drops colours where NO_COLOR is set or nobody looks;
    highlighting and wrapping would change what is printed."""
    return Console(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


def complain(error: OuzelError, name: str | None = None) -> None:
    """An error of the user's, as one message."""
    where = f"  {name}\n" if name else "  "
    out(stderr=True).print(Text.assemble(("error", "bold red"), f"{where}{error}"))


def speaks_clearly(command: Command) -> Command:
    """Whatever a user can cause ends in one message and exit code 1, never in a traceback."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except OuzelError as error:
            complain(error)
            raise typer.Exit(WRONG) from None

    return run  # type: ignore[return-value]


def parameter(text: str) -> tuple[str, Any]:
    """`limit=3` is the number 3, `name=John` and `name="3"` are strings: a value is read as JSON where it is JSON."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"NAME=VALUE is needed, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parameters(given: list[str] | None) -> dict[str, Any]:
    return dict(parameter(text) for text in given or [])


def queries_of(given: str, params: dict[str, Any], types: Path | None = None) -> dict[str, ouzel.Query]:
    """The queries of a file, a text or the standard input, by name."""
    text = QueryFile.read(given).text
    declared = _declared(types)
    script = lang.parse_script(text)
    if len(script.queries) == 1 and script.queries[0].name is None:
        made = ouzel.query(text, declared, params)
        return {made.name: made}
    return ouzel.queries(text, declared, params)


def one_query(given: str, params: dict[str, Any], types: Path | None, name: str | None) -> ouzel.Query:
    """The one query, or the one of a script that is named."""
    found = queries_of(given, params, types)
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None or name not in found:
        asked = f"there is no query '{name}' in the script" if name else "the script has several queries"
        raise typer.BadParameter(f"{asked}; say --query with one of {', '.join(found)}")
    return found[name]


def column(name: str) -> str | None:
    """`none` says that there is no such column."""
    return None if name.lower() == "none" else name


def _declared(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        declared = json.loads(QueryFile.read(str(path)).text)
    except ValueError as error:
        raise OuzelError(f"'{path}' is not JSON: {error}") from None
    if not isinstance(declared, dict):
        raise OuzelError(f"'{path}' must hold an object: event types, each with its attributes and their types")
    return declared
