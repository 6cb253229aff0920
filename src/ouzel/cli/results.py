"""The formats of matches: a table for people, JSON Lines, CSV, Parquet or Arrow. A file is written completely or not at
all.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import ouzel
from ouzel.cli.console import PipedConsole
from ouzel.errors import InputError
from ouzel.lang.syntax import OutputForm

ROWS_SHOWN = 20


class Format(StrEnum):
    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


_FORMAT_OF_SUFFIX = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".txt": Format.TABLE,
}


class Results:
    """The answers of one run, written as they come, separately for each query.

    Files are written under a temporary name, and renamed at the end. After an error or Ctrl-C they are removed.
    """

    def __init__(
        self, schemas: Mapping[str, pa.Schema], output: Path | None, chosen: Format | None, limit: int | None = None
    ) -> None:
        self._schemas = schemas
        self._limit = limit
        self._files: list[tuple[Path, Path]] = []
        self.rows = dict.fromkeys(schemas, 0)
        self.format = _format(output, chosen)
        # A folder gets one file per query.
        self.folder = output is not None and (output.is_dir() or len(schemas) > 1 or not output.suffix)
        if output is None and self.format is Format.PARQUET:
            raise InputError("Parquet cannot be written to the standard output; name a file with --output")
        if output is None and len(schemas) > 1 and self.format in (Format.CSV, Format.ARROW):
            raise InputError(
                f"several queries do not fit into one {self.format.value} output; name a folder with --output"
            )
        if self.folder and output is not None and output.suffix and not output.is_dir():
            raise InputError(
                f"there are {len(schemas)} queries and one file '{output}'; name a folder, which takes a file for each"
            )
        self._output = output
        self._writers: dict[str, _Writer] = {}

    def __enter__(self) -> Results:
        try:
            for name, schema in self._schemas.items():
                self._writers[name] = self._writer(name, schema)
        except BaseException:
            self._drop()
            raise
        return self

    def write(self, answers: Mapping[str, pa.Table]) -> None:
        """Write more rows of some queries, up to the limit of each."""
        for name, table in answers.items():
            if self._limit is not None:
                table = table.slice(0, self._limit - self.rows[name])
            self.rows[name] += table.num_rows
            self._writers[name].write(table)

    @property
    def is_full(self) -> bool:
        """Whether every query has reached the limit."""
        return self._limit is not None and all(rows == self._limit for rows in self.rows.values())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for writer in self._writers.values():
                writer.close(complete=kind is None)
            if kind is None:
                for hidden, place in self._files:
                    os.replace(hidden, place)
        finally:
            self._drop()

    def _drop(self) -> None:
        """Remove the temporary files."""
        for hidden, _ in self._files:
            hidden.unlink(missing_ok=True)

    def _writer(self, name: str, schema: pa.Schema) -> _Writer:
        several = len(self._schemas) > 1
        if self._output is None:
            if self.format is Format.TABLE:
                return _TableWriter(PipedConsole(soft_wrap=False), name if several else None, ROWS_SHOWN)
            return _text_or_bytes(self.format, schema, sys.stdout.buffer, name if several else None)
        return self._file(self._place(name), schema, name)

    def _place(self, name: str) -> Path:
        assert self._output is not None
        if not self.folder:
            self._output.parent.mkdir(parents=True, exist_ok=True)
            return self._output
        self._output.mkdir(parents=True, exist_ok=True)
        return self._output / f"{name}.{'txt' if self.format is Format.TABLE else self.format.value}"

    def _file(self, place: Path, schema: pa.Schema, name: str) -> _Writer:
        hidden = place.with_name(f".{place.name}.{os.getpid()}.partial")
        self._files.append((hidden, place))
        try:
            opened = open(hidden, "wb")  # noqa: SIM115
        except OSError as error:
            raise InputError(f"'{place}' cannot be written: {error.strerror}") from None
        if self.format is Format.TABLE:
            text = open(opened.fileno(), "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            return _TableWriter(Console(file=text, width=200), None, None, text, opened)
        return _text_or_bytes(self.format, schema, opened, None, own=True)


def _format(output: Path | None, chosen: Format | None) -> Format:
    if chosen is not None:
        return chosen
    if output is None:
        return Format.TABLE if sys.stdout.isatty() else Format.JSONL
    if not output.suffix or output.is_dir():
        return Format.PARQUET
    if output.suffix.lower() not in _FORMAT_OF_SUFFIX:
        raise InputError(
            f"the format of '{output}' is unknown; give --format, or one of the endings "
            f"{', '.join(sorted(_FORMAT_OF_SUFFIX))}"
        )
    return _FORMAT_OF_SUFFIX[output.suffix.lower()]


# ── Writers ────────────────────────────────────────────────────────────────────────────────────────


class _Writer(ABC):
    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write more matches."""

    @abstractmethod
    def close(self, *, complete: bool) -> None:
        """Rename the output to its final name, or remove it if it is not complete."""


class _TableWriter(_Writer):
    """A table for people, printed at the end, when the widths are known. A terminal gets only the first rows."""

    def __init__(self, console: Console, title: str | None, limit: int | None, *opened: IO[Any]) -> None:
        self._console, self._title, self._limit, self._opened = console, title, limit, opened
        self._held: list[pa.Table] = []
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        if not self._held or self._limit is None or self._rows < self._limit:
            self._held.append(table if self._limit is None else table.slice(0, self._limit))
        self._rows += table.num_rows

    def close(self, *, complete: bool) -> None:
        if complete:
            self._show()
        for opened in self._opened:
            opened.close()

    def _show(self) -> None:
        table = pa.concat_tables(self._held) if self._held else None
        if table is None or not table.num_rows:
            self._console.print(f"{self._title}: no matches" if self._title else "no matches", highlight=False)
            return
        shown = Table(*table.column_names, title=self._title, box=SIMPLE_HEAD)
        for row in table.slice(0, self._limit or table.num_rows).to_pylist():
            shown.add_row(*(cell(value) for value in row.values()))
        self._console.print(shown)
        if self._limit is not None and self._rows > self._limit:
            more = f"… and {self._rows - self._limit:,} more; --output or --format jsonl gives all of them"
            self._console.print(more, highlight=False)


class _JsonWriter(_Writer):
    def __init__(self, target: IO[bytes], query: str | None, own: bool) -> None:
        self._target, self._query, self._own = target, query, own

    def write(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            named = row if self._query is None else {"query": self._query, **row}
            self._target.write(json_line(named).encode("utf-8") + b"\n")
        self._target.flush()

    def close(self, *, complete: bool) -> None:
        self._target.close() if self._own else self._target.flush()


class _ArrowWriter(_Writer):
    """CSV, Parquet and Arrow, written by Arrow."""

    def __init__(self, chosen: Format, schema: pa.Schema, target: IO[bytes], own: bool) -> None:
        self._flat = chosen is Format.CSV
        self._schema = _flat_schema(schema) if self._flat else schema
        self._target, self._own = target, own
        if chosen is Format.CSV:
            self._writer: Any = pa_csv.CSVWriter(target, self._schema)
        elif chosen is Format.PARQUET:
            self._writer = pq.ParquetWriter(target, self._schema)
        else:
            # A file can be memory-mapped; a pipe gets the stream format.
            self._writer = (pa.ipc.new_file if own else pa.ipc.new_stream)(target, self._schema)

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._writer.write_table(_flat(table) if self._flat else table)

    def close(self, *, complete: bool) -> None:
        self._writer.close()
        self._target.close() if self._own else self._target.flush()


def _text_or_bytes(
    chosen: Format, schema: pa.Schema, target: IO[bytes], query: str | None, *, own: bool = False
) -> _Writer:
    if chosen is Format.JSONL:
        return _JsonWriter(target, query, own)
    return _ArrowWriter(chosen, schema, target, own)


# ── Values as text ─────────────────────────────────────────────────────────────────────────────────


def _flat_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(one.name, pa.string()) if _has_no_csv(one.type) else one for one in schema])


def _has_no_csv(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_duration(kind))


def _flat(table: pa.Table) -> pa.Table:
    """A table for CSV: structs and lists become JSON, because CSV has neither. Durations become text, because Arrow
    would write their ticks.
    """
    columns = [
        pa.array([None if value is None else _csv_text(value) for value in column.to_pylist()], pa.string())
        if _has_no_csv(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _csv_text(value: Any) -> str:
    return str(value) if isinstance(value, timedelta) else json_line(value)


def json_line(value: Any) -> str:
    """A value as JSON on one line.

    >>> json_line({"at": datetime(2024, 5, 1, 9), "x": float("nan"), "raw": b"ab"})
    '{"at": "2024-05-01T09:00:00", "x": null, "raw": "YWI="}'
    """
    return json.dumps(_jsonable(value), ensure_ascii=False, allow_nan=False)


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _jsonable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(part) for part in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None  # JSON cannot write them.
    return value


def cell(value: Any) -> str:
    """A value as text for people.

    >>> cell({"ts": 1, "tag": None}), cell([{"ts": 1}, {"ts": 2}])
    ('ts=1', '[ts=1; ts=2]')
    """
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={cell(part)}" for name, part in value.items() if part is not None)
    if isinstance(value, list):
        return "[" + "; ".join(cell(part) for part in value) + "]"
    return str(value)


def what_comes_out(queries: dict[str, Any]) -> str:
    """The word for the rows of these queries. A row of an aggregate, or of OUTPUT COMPRESSED, represents many
    matches.
    """
    trees = [query.tree for query in queries.values() if isinstance(query, ouzel.Query)]
    many = (
        tree.aggregates or (tree.output is not None and tree.output.form is OutputForm.COMPRESSED) for tree in trees
    )
    return "row" if any(many) else "match"


def counted(number: int, what: str) -> str:
    """
    >>> counted(1, "match"), counted(2_000, "match"), counted(0, "row")
    ('1 match', '2,000 matches', '0 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 'es' if what == 'match' else 's'}"
