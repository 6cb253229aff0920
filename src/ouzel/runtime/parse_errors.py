"""Why a file of events cannot be read: the file, the line, and what to do.

Arrow's readers count rows, some of them within a block of a megabyte. This code finds the line after an error.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ouzel.bind.diagnostics import quoted
from ouzel.errors import InputError

_RAGGED = re.compile(r"Expected \d+ columns, got \d+")
_NO_SUCH_VALUE = re.compile(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\S+): invalid value '(.*)'")
_CHANGED = re.compile(r"Column\(/([^/)]+)\) changed from")
SHOWN_CHARACTERS = 80


def parse_error(path: Path, kind: str, error: Exception) -> InputError:
    """The message for an error of Arrow; `path` is a file, or a folder of files of this kind."""
    where: Callable[[Path, str], str | None] | None = {"csv": _in_csv, "json": _in_json}.get(kind)
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    if where is not None:
        for file in files:
            found = where(file, str(error))
            if found is not None:
                return InputError(f"'{file}', {found}")
    return InputError(f"'{path}' cannot be read as {kind}: {error}")


def ragged(values: int, columns: int, row: str) -> str:
    """A row with too few or too many values."""
    many = "value" if values == 1 else "values"
    return (
        f"{values} {many} where the header names {columns} columns: {shown(row)}; "
        "correct the line, and put values that contain a comma in double quotes"
    )


def shown(line: str) -> str:
    """A line of a file, cut if it is very long."""
    text = line.strip()
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _in_csv(file: Path, said: str) -> str | None:
    if _RAGGED.search(said):
        header: list[str] | None = None
        for line, row in _records(file):
            header = row if header is None else header
            if len(row) != len(header):
                return f"line {line}: {ragged(len(row), len(header), ','.join(row))}"
    if (wrong := _NO_SUCH_VALUE.search(said)) is not None:
        column, number, type_name, value = int(wrong[1]), int(wrong[2]), wrong[3], wrong[4]
        names: list[str] = []
        for record, (line, row) in enumerate(_records(file), start=1):
            names = names or row
            if record == number and len(row) > column and row[column] == value:
                return (
                    f"line {line}: {quoted(value)} in column {quoted(names[column])} is not {type_name}, as the values "
                    "before it are; correct the value, or leave it empty"
                )
    return None


def _records(file: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, each with the line on which it ends."""
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as opened:
        reader = csv.reader(opened)
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error:
            return


def _in_json(file: Path, said: str) -> str | None:
    changed = _CHANGED.search(said)
    before: str | None = None
    with file.open(encoding="utf-8", errors="replace") as opened:
        for line, text in enumerate(opened, start=1):
            if not text.strip():
                continue
            try:
                event = json.loads(text)
            except json.JSONDecodeError as error:
                return f"line {line} is not JSON ({error.msg}), and every line must be one event: {shown(text)}"
            if not isinstance(event, dict):
                return f"line {line} is not an event: each line must be one JSON object, got {shown(text)}"
            found = None if changed is None else _kind(event.get(changed[1]))
            if found is not None and before not in (None, found):
                assert changed is not None
                return (
                    f"line {line}: {quoted(changed[1])} is a {found} here and a {before} before; "
                    "convert its values to one type, or give them names of their own"
                )
            before = found or before
    return None


def _kind(value: object) -> str | None:
    """The kind of a JSON value, in JSON's words; None for null."""
    if value is None:
        return None
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object"}
    return kinds[type(value)]
