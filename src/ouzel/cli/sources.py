"""Finite inputs: files, folders and globs, read in pieces so that a large file is never completely in memory."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from ouzel.errors import InputError
from ouzel.runtime.inputs import SUFFIXES, as_table, parse_error, with_readable_time
from ouzel.runtime.layout import Layout, ticks_of, widen
from ouzel.runtime.values import empty_table

BATCH_ROWS = 1 << 16
# Formats whose columns can be read one at a time, so that scanning the times first is cheap.
_COLUMNAR = ("parquet", "ipc", "feather")
_NAMED = re.compile(r"([A-Za-z_][\w-]*)=(.+)", re.DOTALL)


@dataclass
class Source:
    """One file. If the input was given as TYPE=PATH, `event_type` is the type of all its events."""

    path: Path
    kind: str
    event_type: str | None = None
    _held: pa.Table | None = field(default=None, repr=False)

    def schema(self) -> pa.Schema:
        if self.kind in _COLUMNAR:
            return self._reading(lambda: self._dataset().schema)
        return self._table().schema

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The rows of the file, in pieces."""
        if self.kind not in _COLUMNAR:
            table = self._table().select(columns) if columns else self._table()
            for first in range(0, table.num_rows, BATCH_ROWS):
                yield table.slice(first, BATCH_ROWS)
            return
        # Read ahead a little: ten batches are enough to keep the disk busy.
        found = self._dataset().to_batches(columns=columns, batch_size=BATCH_ROWS, batch_readahead=4)
        while (batch := self._reading(lambda: next(found, None))) is not None:
            if batch.num_rows:
                yield pa.Table.from_batches([batch])

    def _table(self) -> pa.Table:
        """A file of text as a table. It must be read completely to find its types, so it is kept and not read again."""
        if self._held is None:
            self._held = self._reading(lambda: self._dataset().to_table())
        return self._held

    def _dataset(self) -> Any:
        return ds.dataset(str(self.path), format=self.kind)

    def _reading(self, work: Any) -> Any:
        try:
            return work()
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError) as error:
            raise parse_error(self.path, self.kind, error) from None


def find_sources(given: Sequence[str]) -> list[Source]:
    """The files of inputs. An input is PATH or TYPE=PATH, where the path may be a file, a folder or a glob."""
    found = []
    for text in given:
        named = None if Path(text).exists() else _NAMED.fullmatch(text)
        event_type, pattern = (named[1], named[2]) if named else (None, text)
        found += [Source(path, kind_of(path), event_type) for path in _files(pattern)]
    kinds = {source.event_type is None for source in found}
    if len(kinds) > 1:
        raise InputError("inputs must all be given as TYPE=PATH, or none of them")
    return found


def named_sources(given: Sequence[str]) -> list[Source]:
    """The files of the tables that an SQL statement reads: NAME=PATH, or the path of a file with the name of the
    table.
    """
    found = []
    for text in given:
        for source in find_sources([text]):
            if source.event_type is None and not Path(text).is_file():
                raise InputError(f"the table of '{text}' needs a name: write --input NAME={text}")
            found.append(replace(source, event_type=source.event_type or source.path.stem))
    return found


def read_tables(sources: Sequence[Source]) -> dict[str | None, pa.Table]:
    """All rows of some files, as one table for each event type."""
    tables: dict[str | None, list[pa.Table]] = {}
    for source in sources:
        tables.setdefault(source.event_type, []).extend(as_table(batch) for batch in source.batches())
        if not tables[source.event_type]:
            tables[source.event_type].append(as_table(empty_table(source.schema())))
    return {name: pa.concat_tables(parts, promote_options="permissive") for name, parts in tables.items()}


def kind_of(path: Path) -> str:
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"the format of '{path}' is unknown; its ending must be one of {', '.join(sorted(SUFFIXES))}")
    return kind


def _files(pattern: str) -> list[Path]:
    path = Path(pattern)
    if path.is_dir():
        # Names that begin with a dot or an underscore are not data: _SUCCESS, .crc.
        inside = [p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in SUFFIXES and not _is_note(p, path)]
        if not inside:
            raise InputError(f"the folder '{path}' has no files that end in {', '.join(sorted(SUFFIXES))}")
        return sorted(inside)
    if path.exists():
        return [path]
    matching = sorted(Path(name) for name in glob.glob(pattern, recursive=True) if Path(name).is_file())
    if not matching:
        what = "no file fits" if glob.has_magic(pattern) else "there is no file or folder"
        raise InputError(f"{what} '{pattern}'")
    return matching


def _is_note(path: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


class Inputs:
    """All sources of a run: their columns, their number of events, and the events in pieces.

    A first pass reads only the times. It sorts the files by their first event, and finds for each position the earliest
    time that is still to come. Matches before that time are final, even if the rows are not sorted.
    """

    def __init__(self, sources: list[Source], time: str) -> None:
        self._time = time
        self._sources = sources
        self.rows = 0
        self._earliest_later: dict[tuple[int, int], int] = {}
        self._schemas: dict[Path, pa.Schema] = {}
        self._look()

    @property
    def by_type(self) -> bool:
        return self._sources[0].event_type is not None

    def schema(self) -> pa.Schema | dict[str, pa.Schema]:
        """The columns of the events; for inputs with types, the columns of each event type."""
        if not self.by_type:
            return self._one_schema(list(self._schemas.values()))
        grouped: dict[str, list[pa.Schema]] = {}
        for source in self._sources:
            assert source.event_type is not None
            grouped.setdefault(source.event_type, []).append(self._schemas[source.path])
        return {name: self._one_schema(schemas) for name, schemas in grouped.items()}

    def batches(self, layout: Layout) -> Iterator[tuple[pa.Table, int | None]]:
        """Events in pieces for a session, each with the earliest tick that may still come after it."""
        schemas = self.schema()
        for number, source in enumerate(self._sources):
            row = 0
            wanted = schemas if isinstance(schemas, pa.Schema) else schemas[source.event_type or ""]
            for batch in source.batches():
                row += batch.num_rows
                table = self._conformed(with_readable_time(as_table(batch), self._time), wanted, source)
                if source.event_type is not None:
                    table = widen({source.event_type: table}, layout)
                yield table, self._earliest_later.get((number, row // BATCH_ROWS))

    def _look(self) -> None:
        minima: list[list[int]] = []
        for source in self._sources:
            if self._time not in source.schema().names:
                raise InputError(
                    f"'{source.path}' has no time column '{self._time}'; its columns are "
                    f"{', '.join(map(repr, source.schema().names))}. Name it with --time"
                )
            ticks, time_type = [], None
            for batch in source.batches([self._time]):
                readable = with_readable_time(as_table(batch), self._time)
                ticks.append(ticks_of(readable, Layout(readable.schema, self._time, None)))
                time_type = time_type or readable.schema.field(self._time).type
            self._schemas[source.path] = _readable(source.schema(), self._time, time_type)
            whole = np.concatenate(ticks) if ticks else np.zeros(0, np.int64)
            self.rows += len(whole)
            starts = range(0, len(whole), BATCH_ROWS)
            minima.append([int(whole[first : first + BATCH_ROWS].min()) for first in starts])
        order = sorted(range(len(self._sources)), key=lambda number: min(minima[number], default=0))
        self._sources = [self._sources[number] for number in order]
        earliest: int | None = None
        for place, number in reversed(list(enumerate(order))):
            # After the last row of a file come the rows of the next files.
            if earliest is not None:
                self._earliest_later[place, len(minima[number])] = earliest
            for piece in reversed(range(len(minima[number]))):
                earliest = minima[number][piece] if earliest is None else min(earliest, minima[number][piece])
                self._earliest_later[place, piece] = earliest

    def _one_schema(self, schemas: list[pa.Schema]) -> pa.Schema:
        try:
            return pa.unify_schemas(schemas, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(f"the files do not have the same columns: {error}") from None

    def _conformed(self, table: pa.Table, wanted: pa.Schema, source: Source) -> pa.Table:
        """A piece of one file, with the columns of all files."""
        if table.schema.equals(wanted):
            return table
        columns = []
        for one in wanted:
            if one.name not in table.column_names:
                columns.append(pa.nulls(table.num_rows, one.type))
                continue
            try:
                columns.append(table.column(one.name).cast(one.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(f"the column '{one.name}' of '{source.path}' cannot be read: {error}") from None
        return pa.table(columns, names=wanted.names)


def _readable(schema: pa.Schema, time: str, time_type: pa.DataType | None) -> pa.Schema:
    """The columns that pieces of a file have once their times are readable."""
    plain = with_readable_time(as_table(empty_table(schema)), time).schema
    return plain if time_type is None else plain.set(plain.get_field_index(time), pa.field(time, time_type))
