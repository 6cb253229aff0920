"""Options and arguments that several commands share: the query, its parameters, and the meaning of columns.

A command has a parameter whose type is a group of options. `takes_groups` turns the fields of the group into
options.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

import ouzel
from ouzel import lang
from ouzel.errors import OuzelError
from ouzel.lang.parser import is_stream
from ouzel.runtime.program import checked_expression

STANDARD_INPUT = "-"

QueryArgument = Annotated[
    str,
    typer.Argument(metavar="QUERY", help="A file with a query or a script, the text of one, or - for standard input."),
]

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class QueryOptions:
    """The options of a query or of a script."""

    types: Annotated[
        Path | None,
        typer.Option("--types", help='A JSON file that declares event types: {"Shelf": {"tag_id": "string"}, …}.'),
    ] = None
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="The value of a parameter :NAME in the query. Repeatable."),
    ] = None

    @property
    def params(self) -> dict[str, Any]:
        return dict(map(named_value, self.param or []))

    def queries(self, given: str) -> dict[str, Any]:
        """The queries from a file, from a text or from standard input, by name."""
        return self.queries_of(QueryFile.read(given).text)

    def queries_of(self, text: str) -> dict[str, Any]:
        """The queries of a text, by name. The text may also be an expression of the algebra."""
        declared, params = _declared(self.types), self.params
        if is_stream(text):
            return {"query": checked_expression(text, declared, params)}
        script = lang.parse_script(text)
        if len(script.queries) == 1 and script.queries[0].name is None:
            made = ouzel.query(text, declared, params)
            return {made.name: made}
        return ouzel.queries(text, declared, params)


@dataclasses.dataclass(frozen=True)
class OneQueryOptions(QueryOptions):
    """The options of one query, which may be in a script."""

    name: Annotated[str | None, typer.Option("--query", help="Which query of a script.")] = None

    def one(self, given: str) -> Any:
        """The only query in a file or a text; in a script, the one that is named."""
        return self.one_of(QueryFile.read(given).text)

    def one_of(self, text: str) -> Any:
        """The only query of a text; in a script, the one that is named."""
        found = self.queries_of(text)
        if self.name is None and len(found) == 1:
            return next(iter(found.values()))
        if self.name is None or self.name not in found:
            asked = f"there is no query '{self.name}' in the script" if self.name else "the script has several queries"
            raise typer.BadParameter(f"{asked}; choose one with --query: {', '.join(found)}")
        return found[self.name]


@dataclasses.dataclass(frozen=True)
class ColumnOptions:
    """The meaning of the columns of events."""

    time: Annotated[str, typer.Option("--time", help="The column with the time.")] = "ts"
    type: Annotated[str, typer.Option("--type", help="The column with the event type.")] = "type"
    no_type: Annotated[bool, typer.Option("--no-type", help="All events have one type.")] = False
    order: Annotated[
        list[str] | None, typer.Option("--order", help="A column that orders simultaneous events. Repeatable.")
    ] = None
    by_arrival: Annotated[
        bool, typer.Option("--by-arrival", help="Simultaneous events are in the order of their rows.")
    ] = False
    time_unit: Annotated[
        str | None, typer.Option("--time-unit", help="The length of a tick of an integer time: us, ms, s, min, h …")
    ] = None

    def as_arguments(self) -> dict[str, Any]:
        """The options as arguments of `ouzel.match`."""
        type = None if self.no_type else self.type
        order = "arrival" if self.by_arrival else tuple(self.order or ())
        if self.by_arrival and self.order:
            raise typer.BadParameter("give --order or --by-arrival, not both")
        return {"time": self.time, "type": type, "order": order, "time_unit": self.time_unit}


@dataclasses.dataclass(frozen=True)
class RunOptions(ColumnOptions):
    """The meaning of the columns of events, and what the stream loses."""

    model: Annotated[
        Path | None,
        typer.Option("--model", help="A JSON file with the loss model of queries with THRESHOLD (LossModel.to_json)."),
    ] = None

    def as_arguments(self) -> dict[str, Any]:
        read = None if self.model is None else ouzel.LossModel.from_json(QueryFile.read(str(self.model)).text)
        return {**super().as_arguments(), "model": read}


def takes_groups(command: Command) -> Command:
    """Turn the fields of a command's option groups into options for typer."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    seen: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name not in groups:
            seen.append(parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        group = groups[parameter.name]
        fields = get_type_hints(group, include_extras=True)
        for field in dataclasses.fields(group):
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            kind = inspect.Parameter.KEYWORD_ONLY
            seen.append(inspect.Parameter(field.name, kind, default=default, annotation=fields[field.name]))

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        made = {}
        for name, group in groups.items():
            made[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        return command(**given, **made)

    run.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in seen}
    return run  # type: ignore[return-value]


def named_value(text: str) -> tuple[str, Any]:
    """(name, value): `limit=3` is the number 3; `name=John` and `name="3"` are strings. A value that is valid JSON is
    read as JSON.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"this must be NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


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


# ── Query files ────────────────────────────────────────────────────────────────────────────────────


class FileError(OuzelError):
    """Raised if a file cannot be read, or cannot be rewritten without loss."""


@dataclasses.dataclass(frozen=True)
class QueryFile:
    """The text of a file or of standard input, with the name that messages use for it."""

    name: str
    text: str

    @classmethod
    def read(cls, path: str) -> QueryFile:
        """The file with this name; standard input for -; the text itself if it cannot be the name of a file."""
        if path == STANDARD_INPUT:
            return cls("standard input", sys.stdin.read())
        if is_text(path):
            return cls("query", path)
        try:
            return cls(path, Path(path).read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise FileError(f"the query '{path}' cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise FileError(f"the query '{path}' is not UTF-8 text: byte {error.start} cannot be read") from None

    def write(self, text: str) -> None:
        write_text(Path(self.name), text)


def write_text(path: Path, text: str) -> None:
    """Write a text to a file, completely or not at all."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        # Keep line ends as they are on every system, so that a formatted file is the same everywhere.
        hidden.write_text(text, encoding="utf-8", newline="\n")
        os.replace(hidden, path)
    except OSError as error:
        raise FileError(f"'{path}' cannot be written: {error.strerror or error}") from None
    finally:
        hidden.unlink(missing_ok=True)


def write_picture(path: Path, picture: str) -> None:
    """Write an SVG picture to a file. Raises an error if the file name has the suffix of another format."""
    if path.suffix.lower() in (".png", ".jpg", ".jpeg", ".gif", ".pdf", ".webp"):
        raise FileError(f"the picture must be SVG, got '{path}'; call it '{path.with_suffix('.svg')}'")
    write_text(path, picture + "\n")


def is_text(given: str) -> bool:
    """Whether this is a query and not the name of a file: it contains spaces, and no such file exists.

    >>> is_text("PATTERN SEQ(A a, B b)"), is_text("theft.query")
    (True, False)
    """
    try:
        return len(given.split()) > 1 and not Path(given).exists()
    except (OSError, ValueError):
        return True  # Too long for a file name, or with characters that a file name cannot have.
