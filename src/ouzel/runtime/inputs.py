"""Converts events from any source to Arrow tables: Arrow itself, polars, DuckDB, pandas, dictionaries, files.

Only the time column is interpreted here. The meaning of the other columns is in `layout`.

If a file cannot be read, the error names the file, the line, and what to do. This code finds the line itself, because
Arrow's readers count rows, and some of them only within a block of a megabyte.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from glob import glob
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.diagnostics import nearest, quoted
from ouzel.errors import InputError, argument
from ouzel.runtime.values import array_of, empty_table, plain_table, retyped

_RAGGED = re.compile(r"Expected \d+ columns, got \d+")
_NO_SUCH_VALUE = re.compile(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\S+): invalid value '(.*)'")
_CHANGED = re.compile(r"Column\(/([^/)]+)\) changed from")
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
SHOWN_CHARACTERS = 80


def parse_error(path: Path, kind: str, error: Exception) -> InputError:
    """The error for a file, or a folder of files, that Arrow cannot read."""
    where: Callable[[Path, str], str | None] | None = {"csv": _in_csv, "json": _in_json}.get(kind)
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    if where is not None:
        for file in files:
            found = where(file, str(error))
            if found is not None:
                return InputError(f"'{file}', {found}")
    return InputError(f"'{path}' cannot be read as {kind}: {error}")


def ragged(values: int, columns: int, row: str) -> str:
    """The message for a row with too few or too many values."""
    many = "value" if values == 1 else "values"
    return (
        f"{values} {many} where the header names {columns} columns: {shown(row)}; "
        "correct the line, and put values that contain a comma in double quotes"
    )


def shown(line: str) -> str:
    """A line of a file, cut off if it is very long."""
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
    """The rows of a CSV file, each with the number of its last line."""
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
    """The name that JSON has for the kind of a value; None for null."""
    if value is None:
        return None
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object"}
    return kinds[type(value)]


SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "feather",
}
_FORMATS = {"parquet": "Parquet", "csv": "CSV", "json": "JSON Lines", "ipc": "Arrow", "feather": "Feather"}


def as_table(events: Any) -> pa.Table:
    """Any supported input as one Arrow table.

    >>> as_table([{"type": "A", "ts": 1}, {"type": "B", "ts": 2, "x": 7}]).column_names
    ['type', 'ts', 'x']
    """
    return plain_table(_table_of(events))


def _table_of(events: Any) -> pa.Table:
    if isinstance(events, pa.Table):
        return events
    if isinstance(events, pa.RecordBatch):
        return pa.Table.from_batches([events])
    if isinstance(events, pa.RecordBatchReader):
        return events.read_all()
    if isinstance(events, str) and not events.strip():
        raise InputError("the path of the events is empty; give the path of a file or folder")
    if isinstance(events, str) and "://" in events:
        return _read_uri(events)
    if isinstance(events, str | Path):
        return _read(Path(events))
    if hasattr(events, "to_table") and hasattr(events, "scanner"):
        return events.to_table()
    if hasattr(events, "collect_schema") and hasattr(events, "collect"):
        # A lazy polars frame.
        events = events.collect()
    if hasattr(events, "sparkSession"):
        raise InputError(
            "these events are in a Spark DataFrame: use ouzel.spark.match(df, query); to inspect a few of "
            "them here, collect them with df.where(…).toArrow()"
        )
    if hasattr(events, "__arrow_c_stream__"):
        return _from_frame(events)
    if hasattr(events, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(events)])
    if hasattr(events, "fetch_arrow_table"):
        return events.fetch_arrow_table()
    if hasattr(events, "iloc") and hasattr(events, "columns"):
        return pa.Table.from_pandas(events, preserve_index=False)
    if isinstance(events, Iterable) and not isinstance(events, Mapping | bytes):
        listed = list(events)
        if listed and all(isinstance(one, pa.RecordBatch | pa.Table) for one in listed):
            return pa.concat_tables(map(_table_of, listed), promote_options="default")
        if listed and all(isinstance(one, list) for one in listed):
            listed = [event for batch in listed for event in batch]
        return _from_dicts(listed)
    raise InputError(
        f"events cannot be read from a {type(events).__name__}; give a pyarrow Table, RecordBatch, reader or Dataset, "
        "a polars, pandas or DuckDB frame, an iterable of batches, a list of dictionaries, or the path of a Parquet, "
        "CSV or JSON Lines file"
    )


def check_inputs_by_type(events: Mapping[str, Any], time: str) -> None:
    """Raise an error if the dictionary is one event or holds columns. It should hold an input for each event type."""
    if time not in events:
        return
    if isinstance(events[time], list | tuple):
        raise InputError("this looks like columns; make them a table with pyarrow.table({…})")
    if not hasattr(events[time], "__arrow_c_stream__"):
        raise InputError("this looks like one event; pass a list: [{…}]")


def _from_frame(events: Any) -> pa.Table:
    try:
        table = pa.table(events)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        # A pandas column of objects may hold anything; Arrow names the column that fails.
        reason = " ".join(map(str, error.args))
        raise InputError(f"this table cannot be read, since a column has values of several types: {reason}") from None
    # Arrow gives the levels of a pandas index that have no name these names.
    unnamed = [name for name in table.column_names if _UNNAMED_INDEX.fullmatch(name)]
    return table.drop_columns(unnamed) if unnamed and hasattr(events, "iloc") else table


def is_rows(events: Any) -> bool:
    """Whether an input is a list or an iterator of dictionaries."""
    return isinstance(events, Sequence | Iterator) and not isinstance(events, str | bytes | pa.RecordBatchReader)


def with_missing_columns(table: pa.Table, known: pa.Schema, needed: Collection[str | None]) -> pa.Table:
    """Add null columns for names that no dictionary has. Columns that every event needs are added only to a table
    without rows.
    """
    for field in known:
        if field.name not in table.column_names and field.name not in needed:
            table = table.append_column(field.name, pa.nulls(table.num_rows, field.type))
    return table if len(table) else empty_table(known)


def _read(path: Path) -> pa.Table:
    import pyarrow.dataset as ds

    if not path.exists():
        paths = sorted(glob(str(path), recursive=True))
        if not paths:
            raise InputError(f"there is no file or folder '{path}'")
        return pa.concat_tables([_read(Path(one)) for one in paths], promote_options="default")
    kind = SUFFIXES.get(path.suffix.lower())
    if path.is_dir():
        found = {SUFFIXES.get(p.suffix.lower()) for p in path.rglob("*") if p.is_file()} - {None}
        if len(found) != 1:
            raise InputError(
                f"the folder '{path}' must hold files of one format (Parquet, CSV, JSON Lines, Arrow or Feather), "
                f"got {', '.join(sorted(_FORMATS[k] for k in found if k)) or 'none of them'}"
            )
        kind = found.pop()
    if kind is None:
        raise InputError(f"the format of '{path}' is unknown; its ending must be one of {', '.join(sorted(SUFFIXES))}")
    try:
        return ds.dataset(path, format=kind).to_table()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        raise parse_error(path, kind, error) from None


def _read_uri(uri: str) -> pa.Table:
    """The events in a file, folder or glob of any filesystem that pyarrow supports, such as s3:// or gs://."""
    import pyarrow.dataset as ds
    from pyarrow import fs

    kind = SUFFIXES.get(Path(uri).suffix.lower())
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
        if "*" in path:
            path = _globbed(filesystem, path)
            if not path:
                raise InputError(f"no file matches '{uri}'")
        elif kind is None:
            # A folder: the format is that of its files.
            files = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
            kinds = {SUFFIXES.get(Path(file.path).suffix.lower()) for file in files if file.is_file} - {None}
            if len(kinds) != 1:
                raise InputError(f"'{uri}' must be a file or a folder with files of one format")
            kind = kinds.pop()
        return ds.dataset(path, filesystem=filesystem, format=kind).to_table()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"'{uri}' cannot be read: {error}") from None


def _globbed(filesystem: Any, pattern: str) -> list[str]:
    """The files that match a pattern with * or **."""
    from pyarrow import fs

    folder = pattern[: pattern.index("*")].rpartition("/")[0]
    wanted = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
    files = filesystem.get_file_info(fs.FileSelector(folder, recursive=True))
    return sorted(file.path for file in files if file.is_file and re.fullmatch(wanted, file.path))


def _from_dicts(rows: list[Any]) -> pa.Table:
    names: dict[str, None] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(
                f"event {number} must be a dictionary such as {{'ts': 1, 'type': 'A'}}, got a {type(row).__name__}; "
                "to pass columns, use pyarrow.table({'ts': […], 'type': […]})"
            )
        names.update(dict.fromkeys(row))
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"the name of a column must be text, got {name!r}")
    columns = {}
    for name in names:
        try:
            values = [row.get(name) for row in rows]
            columns[name] = array_of(values)
        except UnicodeEncodeError as error:
            raise InputError(f"a value of '{name}' is not valid text: {error}") from None
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InputError(f"the values of '{name}' do not have one type: {error}") from None
        # Arrow would convert times with a zone to UTC and leave the others as they are.
        if pa.types.is_timestamp(columns[name].type) and _some_have_a_zone(values):
            raise InputError(f"some times in column '{name}' have a zone and some have none; convert them to one kind")
    return pa.table(columns)


def _some_have_a_zone(values: list[Any]) -> bool:
    """Whether some times have a zone and some have none."""
    return len({moment.tzinfo is None for moment in values if isinstance(moment, datetime)}) > 1


def no_columns() -> InputError:
    """The error for an input without rows and without columns, where columns are needed."""
    return InputError("the input has no columns; an empty one is a table with columns and no rows")


def with_readable_time(table: pa.Table, time: str) -> pa.Table:
    """The table with its time column as integers or timestamps. Texts are read as ISO 8601, and dates as midnights."""
    if not table.column_names:
        raise no_columns()
    if table.column_names.count(time) > 1:
        raise InputError(f"duplicate column '{time}' in the input; rename one")
    if time not in table.column_names:
        near = nearest(time, table.column_names)
        hint = "the" if near is None else f"{near} The"
        raise InputError(
            f"there is no time column '{time}'; {hint} columns are {', '.join(map(repr, table.column_names))}. "
            "Name it with ",
            argument("time"),
        )
    column = table.column(time)
    if pa.types.is_dictionary(column.type):
        column = retyped(column, column.type.value_type)
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return table
    if pa.types.is_date(kind):
        readable: Any = pc.cast(pc.cast(column, pa.date32()), pa.timestamp("us"))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        readable = _parse_times(column, time)
    else:
        hint = (
            "; convert it to integers, for example seconds * 1000 to milliseconds" if pa.types.is_floating(kind) else ""
        )
        raise InputError(
            f"the time column '{time}' is of type {kind}; it must be a timestamp, a date, an integer or ISO 8601 "
            f"text{hint}"
        )
    return table.set_column(table.column_names.index(time), time, readable)


def _parse_times(column: pa.ChunkedArray, time: str) -> pa.ChunkedArray:
    for target in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return pc.cast(column, target)
        except pa.ArrowInvalid:
            continue
    for row, value in enumerate(column.to_pylist()):
        if value is None:
            continue
        try:
            pc.cast(pa.array([value]), pa.timestamp("us", "UTC"))
        except pa.ArrowInvalid:
            try:
                pc.cast(pa.array([value]), pa.timestamp("us"))
            except pa.ArrowInvalid:
                raise InputError(
                    f"the time in row {row} ('{value}' in column '{time}') is not an ISO 8601 date and time; "
                    "convert the column first, for example with pandas.to_datetime"
                ) from None
    raise InputError(f"some times in column '{time}' have a zone and some have none; convert them to one kind")


def check_no_null_time(column: pa.Array | pa.ChunkedArray, time: str) -> None:
    """Raise an error that names the row of a null time, if there is one."""
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise InputError(
            f"the time in row {row} (column '{time}') is null; every event needs a time: "
            "filter such rows out or fill them in first"
        )
