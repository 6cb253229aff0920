"""Inputs that go on: a growing file, a folder that gets new files, the standard input."""

from __future__ import annotations

import csv
import io
import json
import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv

from ouzel.cli.sources import Source, kind_of
from ouzel.errors import InputError
from ouzel.runtime.inputs import SUFFIXES, as_table
from ouzel.runtime.parse_errors import ragged, shown

CHUNK_BYTES = 1 << 20


class Feed(Protocol):
    """What is there now, and whether more can come."""

    ended: bool

    def take(self) -> Iterator[pa.Table]: ...


def open_feed(path: str, columns: pa.Schema | None, text_format: str | None) -> Feed:
    """The feed of a path; - is the standard input."""
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
    """Files of a folder, each once, in the order of their names; those that are still being written are named with a
    dot or an underscore at first, as Spark and `ouzel run` do."""

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
    """Events line by line, JSON or CSV. `read` gives the bytes that are there, None where nothing can come any more."""

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
            # A line that is not finished yet waits for its end, unless there is none.
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
            # The first events settle the columns; nulls settle nothing.
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
                    f"line {number} is no event: one JSON object a line is needed, not {shown(_text(line))}"
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
                    f"{error}. Say --columns where the first events do not show the types"
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
        # Not a real file: everything is there already.
        return lambda: stream.read(CHUNK_BYTES) or None

    def read() -> bytes | None:
        if not select.select([number], [], [], 0)[0]:
            return b""
        return os.read(number, CHUNK_BYTES) or None

    return read


def columns_of(text: str | None) -> pa.Schema | None:
    """`ts:int64,type:string,price:double` as columns.

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
                f"'{part}' declares no column; write NAME:TYPE, with a type such as int64, double, string, timestamp"
            ) from None
        if not colon or not name:
            raise InputError(f"'{part}' declares no column; write NAME:TYPE")
    return pa.schema(fields)
