"""Rows that grow: small pushes are read into typed arrays, of which Arrow sees all rows without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.kernels.rows import (
    COUNT,
    DATA_FULL,
    DONE,
    NULLS,
    append_rows,
    drop_rows,
    enlarged_rows,
    new_rows,
    read_batch,
    read_dicts,
)

_ROWS_FIRST = 256
_DATA_FIRST = 4096
_DATA_BYTES_MAX = 1 << 30


class GrowingRows:
    """Rows of one schema. Readers write behind them; `keep` makes what was read part of them."""

    def __init__(self, schema: pa.Schema, kinds: str, time: str | None) -> None:
        self.schema = schema
        self.types = schema.types
        self.is_text = [kind in "sS" for kind in kinds]
        # The place of each column among those of numbers, or of texts.
        self.places = [self.is_text[:column].count(text) for column, text in enumerate(self.is_text)]
        self.all_columns = range(len(kinds))
        self._kinds = kinds.encode()
        self._names = tuple(schema.names)
        known = [_kind_of_values(type_) for type_ in self.types]
        # How dictionaries are read; None if a column has values that Python has no type of its own for.
        self._value_kinds = "".join(one for one in known if one).encode() if all(known) else None
        self._epochs = tuple(_epoch(type_) for type_ in self.types)
        self.time = -1 if time is None else schema.get_field_index(time)
        texts = sum(self.is_text)
        self.rows = new_rows(
            len(kinds) - texts, texts, _ROWS_FIRST, _DATA_FIRST, -1 if time is None else self.places[self.time]
        )
        self.count = 0
        # Columns that Arrow stores otherwise, as far as they have been converted.
        self._converted: dict[tuple[int, bool], tuple[np.ndarray, int]] = {}
        # Where the columns are in the rows that were appended last.
        self._source: tuple[GrowingRows, Sequence[int], tuple[np.ndarray, ...]] | None = None

    @classmethod
    def of(cls, schema: pa.Schema, time: str | None = None) -> GrowingRows | None:
        """Empty rows; None if a column is of a type that cannot grow. `time` names the column with the ticks.

        >>> rows = GrowingRows.of(pa.schema({"ts": pa.int64(), "x": pa.string()}), "ts")
        >>> rows.read([{"ts": 1, "x": "a"}, {"ts": 2}], 2), rows.read([{"ts": "1"}], 1)
        (True, False)
        >>> rows.keep(2)
        >>> rows.table(0, 2).to_pylist()
        [{'ts': 1, 'x': 'a'}, {'ts': 2, 'x': None}]
        """
        kinds = [_kind_of_column(type_) for type_ in schema.types]
        return None if None in kinds else cls(schema, "".join(kind for kind in kinds if kind), time)

    @property
    def ticks(self) -> np.ndarray:
        """The times of the rows, and room behind them."""
        ticks: np.ndarray = self.rows.numbers[self.places[self.time]]
        return ticks

    # ── Taking rows in ─────────────────────────────────────────────────────────────────────────────

    def reserve(self, count: int) -> None:
        """Make room for so many rows, with texts of usual length."""
        self._enlarge(max(_ROWS_FIRST, self.count + count), max(_DATA_FIRST, 16 * (self.count + count)))

    def read(self, events: Any, count: int) -> bool:
        """Write a list of dictionaries or a record batch of the same schema behind the rows, unless a dictionary has
        a value of another type or an unknown name."""
        if self.count + count > self.rows.numbers.shape[1]:
            self._enlarge(2 * (self.count + count), self.rows.data.shape[1])
        is_list = isinstance(events, list)
        if is_list and self._value_kinds is None:
            return False
        while True:
            if is_list:
                assert self._value_kinds is not None
                status = read_dicts(events, self._names, self._value_kinds, self.rows, self._epochs)
            else:
                status = read_batch(events, self._kinds, self.rows)
            if status != DATA_FULL:
                return status == DONE
            if self.rows.data.shape[1] >= _DATA_BYTES_MAX:
                return False
            self._enlarge(self.rows.valid.shape[1], 2 * self.rows.data.shape[1])

    def keep(self, count: int) -> None:
        """Make rows that were read part of the rows."""
        self.count += count
        self.rows.memory[COUNT] = self.count

    def has_nulls(self, column: int) -> bool:
        """Whether a row may have a null in a column."""
        return bool(self.rows.memory[NULLS + column])

    def append(self, source: GrowingRows, columns: Sequence[int], chosen: np.ndarray, count: int) -> None:
        """Append the first of the chosen rows of another one, whose columns have these numbers there."""
        known = self._source
        if known is None or known[0] is not source or known[1] != columns:
            known = self._source = source, columns, _places(source, columns)
        if self.count + count > self.rows.numbers.shape[1]:
            self._enlarge(2 * (self.count + count), self.rows.data.shape[1])
        while lacking := append_rows(self.rows, source.rows, *known[2], chosen, count):
            self._enlarge(self.rows.valid.shape[1], 2 * (self.rows.data.shape[1] + lacking))
        self.count += count

    def bytes(self) -> int:
        """The bytes of the largest column of texts."""
        return int(self.rows.offsets[:, self.count].max(initial=0))

    def drop(self, count: int) -> None:
        """Drop the first rows. Tables without a copy must not be in use."""
        if count == self.count:
            self.rows.memory[NULLS:] = 0
            self.rows.memory[COUNT] = 0
        else:
            drop_rows(self.rows, count)
        self.count -= count
        self._converted.clear()

    def _enlarge(self, capacity: int, data_capacity: int) -> None:
        self.rows = enlarged_rows(self.rows, capacity, min(data_capacity, 2 * _DATA_BYTES_MAX - 1))

    # ── Giving rows out ────────────────────────────────────────────────────────────────────────────

    def table(self, first: int, last: int) -> pa.Table:
        """A copy of some rows."""
        arrays = []
        for column, type_ in enumerate(self.types):
            if pa.types.is_null(type_):
                arrays.append(pa.nulls(last - first))
                continue
            valid = None
            if self.has_nulls(column):
                valid = pa.py_buffer(np.packbits(self.rows.valid[column, first:last], bitorder="little"))
            place = self.places[column]
            if self.is_text[column]:
                offsets = self.rows.offsets[place, first : last + 1]
                data = self.rows.data[place, offsets[0] : offsets[-1]].copy()
                buffers = [_stored(offsets - offsets[0], type_), data]
            else:
                buffers = [_stored(self.rows.numbers[place, first:last].copy(), type_)]
            arrays.append(pa.Array.from_buffers(type_, last - first, [valid, *map(pa.py_buffer, buffers)]))
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def whole(self) -> pa.Table:
        """All rows, without a copy where Arrow stores them like this. Appending does not change them."""
        count = self.count
        arrays = []
        for column, type_ in enumerate(self.types):
            if pa.types.is_null(type_):
                arrays.append(pa.nulls(count))
                continue
            valid = self._conversion(column, pa.bool_(), self.rows.valid[column], count, is_validity=True)
            place = self.places[column]
            if self.is_text[column]:
                offsets = self.rows.offsets[place]
                if type_.id in _LARGE:
                    offsets = self._conversion(column, type_, offsets, count + 1)
                buffers = [offsets, self.rows.data[place]]
            elif type_.bit_width == 64:
                buffers = [self.rows.numbers[place]]
            else:
                buffers = [self._conversion(column, type_, self.rows.numbers[place], count)]
            validity = pa.py_buffer(valid) if self.has_nulls(column) else None
            arrays.append(pa.Array.from_buffers(type_, count, [validity, *map(pa.py_buffer, buffers)]))
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _conversion(
        self, column: int, type_: pa.DataType, values: np.ndarray, count: int, *, is_validity: bool = False
    ) -> np.ndarray:
        """Values as Arrow stores them. Only those that have come since the last time are converted."""
        if is_validity and not self.has_nulls(column):
            return values[:0]
        known, done = self._converted.get((column, is_validity), (np.empty(0, _stored(values[:0], type_).dtype), 0))
        first = done // 8 * 8
        per = 8 if pa.types.is_boolean(type_) else 1
        needed = -(-count // per)
        if needed > len(known):
            known = np.concatenate([known[: -(-done // per)], np.zeros(needed, known.dtype)])
        made = _stored(values[first:count], type_)
        known[first // per : first // per + len(made)] = made
        self._converted[column, is_validity] = known, count
        return known


def table_of(events: list[Any], schema: pa.Schema, needed: Sequence[str | None]) -> pa.Table | None:
    """Dictionaries as a table of a known schema; None if a value has another type, a name is unknown, or a needed
    column has a null.

    >>> table_of([{"ts": 1}, {"ts": 2, "x": 0.5}], pa.schema({"ts": pa.int64(), "x": pa.float64()}), ["ts"]).to_pylist()
    [{'ts': 1, 'x': None}, {'ts': 2, 'x': 0.5}]
    """
    rows = GrowingRows.of(schema) if events else None
    if rows is None:
        return None
    rows.reserve(len(events))
    if not rows.read(events, len(events)):
        return None
    if any(rows.has_nulls(schema.get_field_index(name)) for name in needed if name is not None):
        return None
    return rows.table(0, len(events))


def _places(source: GrowingRows, columns: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The places of some columns in another one: of numbers, of texts, and of all."""
    numbers = [source.places[column] for column in columns if not source.is_text[column]]
    texts = [source.places[column] for column in columns if source.is_text[column]]
    return np.array(numbers, np.int32), np.array(texts, np.int32), np.array(columns, np.int32)


_LARGE = (pa.large_string().id, pa.large_binary().id)
_SMALL = (pa.string().id, pa.binary().id)


def _kind_of_column(type_: pa.DataType) -> str | None:
    """How a column of Arrow is read: see `read_batch`."""
    if type_.id in _SMALL or type_.id in _LARGE:
        return "s" if type_.id in _SMALL else "S"
    if pa.types.is_null(type_):
        return "n"
    if pa.types.is_boolean(type_):
        return "b"
    return str(type_.bit_width // 8) if pa.types.is_primitive(type_) and type_.bit_width <= 64 else None


def _kind_of_values(type_: pa.DataType) -> str | None:
    """How values of Python are read: see `read_dicts`."""
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return "t"
    known = {pa.int64(): "q", pa.float64(): "d", pa.bool_(): "b", pa.string(): "s", pa.null(): "n"}
    return known.get(type_)


def _epoch(type_: pa.DataType) -> datetime | None:
    if not pa.types.is_timestamp(type_):
        return None
    return datetime(1970, 1, 1, tzinfo=None if type_.tz is None else UTC)


def _stored(values: np.ndarray, type_: pa.DataType) -> np.ndarray:
    """Words, truths or offsets as Arrow stores them for a type."""
    if pa.types.is_boolean(type_):
        return np.packbits(values.astype(bool), bitorder="little")
    if type_.id in _SMALL or type_.id in _LARGE:
        return values.astype(np.int64) if type_.id in _LARGE else values
    return values if type_.bit_width == 64 else values.astype(f"i{type_.bit_width // 8}")
