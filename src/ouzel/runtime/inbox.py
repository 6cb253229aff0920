"""Rows of small pushes. They are read into typed arrays, which Arrow can use without a copy, and staged together once
an answer may be due.

An event can complete a match only if the last component of some query takes its type. Until the watermark passes such
an event, or a deadline of a kernel, a small push has no answer, so its rows are only checked and kept here. All errors
of a push are raised when its rows are added. Input that does not have exactly the known schema is pushed in the general
way, which converts it or reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.kernels.arrays import enlarged
from ouzel.kernels.rows import (
    COUNT,
    DATA_FULL,
    DONE,
    MOMENT,
    NEWEST,
    NULLS,
    OLDEST,
    TIME,
    append_rows,
    drop_rows,
    enlarged_rows,
    leading,
    new_rows,
    read_batch,
    read_dicts,
)
from ouzel.runtime.layout import Layout

_ROWS_FIRST = 256
_DATA_FIRST = 4096
_DATA_BYTES_MAX = 1 << 30


class GrowingRows:
    """Rows of one schema. Readers write after the last row; `keep` adds what they have written."""

    def __init__(self, schema: pa.Schema, kinds: str, time: str | None, has_moments: bool) -> None:
        self.schema = schema
        self.types = schema.types
        self.is_text = [kind in "sS" for kind in kinds]
        # The place of each column among those of numbers, or of texts.
        self.places = [self.is_text[:column].count(text) for column, text in enumerate(self.is_text)]
        # Whether Arrow stores the numbers of a column like this.
        self._is_stored = [kind == "8" for kind in kinds]
        self.all_columns = range(len(kinds))
        self.kinds = kinds
        self._kinds = kinds.encode()
        self._names = tuple(schema.names)
        known = [_kind_of_values(type_) for type_ in self.types]
        # How dictionaries are read; None if a column has values that Python has no type of its own for.
        self._value_kinds = "".join(one for one in known if one).encode() if all(known) else None
        self._epochs = tuple(_epoch(type_) for type_ in self.types)
        self.time = -1 if time is None else schema.get_field_index(time)
        texts = sum(self.is_text)
        # The place of the moments of events, if they have any; see `Moments.number_read`.
        self.moment_place = len(kinds) - texts
        self.rows = new_rows(
            self.moment_place + has_moments, texts, _ROWS_FIRST, _DATA_FIRST,
            -1 if time is None else self.places[self.time],
        )  # fmt: skip
        self.count = 0
        # The times of appended rows, and room behind them.
        self.appended_ticks = np.empty(_ROWS_FIRST, np.int64)
        # Columns that Arrow stores otherwise, as far as they have been converted.
        self._converted: dict[tuple[int, bool], tuple[np.ndarray, int]] = {}
        # Where the columns are in the rows that were appended last.
        self._source: tuple[GrowingRows, Sequence[int], tuple[np.ndarray, ...]] | None = None

    @classmethod
    def of(cls, schema: pa.Schema, time: str | None = None, *, has_moments: bool = False) -> GrowingRows | None:
        """An object without rows; None if a column has a type that is not supported. `time` names the column with the
        ticks.

        >>> rows = GrowingRows.of(pa.schema({"ts": pa.int64(), "x": pa.string()}), "ts")
        >>> rows.read([{"ts": 1, "x": "a"}, {"ts": 2}], 2), rows.read([{"ts": "1"}], 1)
        (True, False)
        >>> rows.keep(2)
        >>> rows.table(0, 2).to_pylist()
        [{'ts': 1, 'x': 'a'}, {'ts': 2, 'x': None}]
        """
        kinds = [_kind_of_column(type_) for type_ in schema.types]
        return None if None in kinds else cls(schema, "".join(kind for kind in kinds if kind), time, has_moments)

    @property
    def ticks(self) -> np.ndarray:
        """The times of the rows, and unused room after them."""
        ticks: np.ndarray = self.rows.numbers[self.places[self.time]]
        return ticks

    @property
    def moments(self) -> np.ndarray:
        """The times that kernels compare: ticks, or moments if `order=` is used; and unused room after them."""
        moments: np.ndarray = self.rows.numbers[self.rows.memory[MOMENT]]
        return moments

    def compare(self, *, moments: bool) -> None:
        """Set whether kernels compare moments or ticks from now on."""
        self.rows.memory[MOMENT] = self.moment_place if moments else self.rows.memory[TIME]

    # ── Taking rows in ─────────────────────────────────────────────────────────────────────────────

    def reserve(self, count: int) -> None:
        """Make room for this many rows, with texts of usual length."""
        self._enlarge(max(_ROWS_FIRST, self.count + count), max(_DATA_FIRST, 16 * (self.count + count)))

    def read(self, events: Any, count: int) -> bool:
        """Write a list of dictionaries, or a record batch of the same schema, after the rows. Returns False if a
        dictionary has a value of another type or an unknown name.
        """
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
        """Add the first `count` rows that were read last."""
        self.count += count
        self.rows.memory[COUNT] = self.count

    def has_nulls(self, column: int) -> bool:
        """Whether a column may have a null in some row."""
        return bool(self.rows.memory[NULLS + column])

    @property
    def newest(self) -> int:
        """The time of the last row that was appended."""
        return int(self.rows.memory[NEWEST])

    def has_read(self, source: GrowingRows, columns: Sequence[int]) -> bool:
        """Whether the last rows came from these columns of `source`."""
        known = self._source
        return known is not None and known[0] is source and known[1] == columns

    def append(
        self, source: GrowingRows, columns: Sequence[int], chosen: np.ndarray, count: int, ticks: np.ndarray
    ) -> None:
        """Append the first `count` of some rows of `source`, reading its columns with these numbers. `ticks` are the
        times of all its rows.
        """
        if not self.has_read(source, columns):
            self._source = source, columns, _places(source, columns)
        assert self._source is not None
        places = self._source[2]
        if self.count + count > self.rows.numbers.shape[1]:
            self._enlarge(2 * (self.count + count), self.rows.data.shape[1])
        while lacking := append_rows(self.rows, source.rows, *places, chosen, count, ticks, self.appended_ticks):
            self._enlarge(self.rows.valid.shape[1], 2 * (self.rows.data.shape[1] + lacking))
        self.count += count

    def may_take(self, size: int) -> bool:
        """Whether each column of texts can grow by this many bytes."""
        if self.rows.data.shape[1] + size < _DATA_BYTES_MAX:
            return True
        return int(self.rows.offsets[:, self.count].max(initial=0)) + size < _DATA_BYTES_MAX

    def drop(self, count: int) -> None:
        """Drop the first `count` rows. No table that `whole` returned may be in use."""
        if count == self.count:
            self.rows.memory[NULLS:] = 0
            self.rows.memory[COUNT] = 0
        else:
            drop_rows(self.rows, count)
        self.count -= count
        self._converted.clear()

    def _enlarge(self, capacity: int, data_capacity: int) -> None:
        self.rows = enlarged_rows(self.rows, capacity, min(data_capacity, 2 * _DATA_BYTES_MAX - 1))
        self.appended_ticks = enlarged(self.appended_ticks, capacity)

    # ── Giving rows out ────────────────────────────────────────────────────────────────────────────

    def table(self, first: int, last: int) -> pa.Table:
        """A copy of the rows from `first` to `last` - 1."""
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
        """All rows as a table. Columns in Arrow's layout are not copied. Appending rows later does not change the
        table.
        """
        return pa.Table.from_arrays([self.column(column) for column in self.all_columns], schema=self.schema)

    def column(self, column: int) -> pa.Array:
        """One column of `whole`."""
        type_, count, place = self.types[column], self.count, self.places[column]
        if self._is_stored[column] and not self.rows.memory[NULLS + column]:
            return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(self.rows.numbers[place])])
        if pa.types.is_null(type_):
            return pa.nulls(count)
        valid = self._conversion(column, pa.bool_(), self.rows.valid[column], count, is_validity=True)
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
        return pa.Array.from_buffers(type_, count, [validity, *map(pa.py_buffer, buffers)])

    def _conversion(
        self, column: int, type_: pa.DataType, values: np.ndarray, count: int, *, is_validity: bool = False
    ) -> np.ndarray:
        """The values of a column as Arrow stores them. Only values that were added since the last call are
        converted.
        """
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
    """Dictionaries as a table of a known schema. None if a value has another type, if a name is unknown, or if a needed
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
    """(indexes among columns of numbers, indexes among columns of texts, indexes among all columns) of some columns."""
    numbers = [source.places[column] for column in columns if not source.is_text[column]]
    texts = [source.places[column] for column in columns if source.is_text[column]]
    return np.array(numbers, np.int32), np.array(texts, np.int32), np.array(columns, np.int32)


_LARGE = (pa.large_string().id, pa.large_binary().id)
_SMALL = (pa.string().id, pa.binary().id)


def _kind_of_column(type_: pa.DataType) -> str | None:
    """How `read_batch` reads a column of Arrow; None if it cannot."""
    if type_.id in _SMALL or type_.id in _LARGE:
        return "s" if type_.id in _SMALL else "S"
    if pa.types.is_null(type_):
        return "n"
    if pa.types.is_boolean(type_):
        return "b"
    return str(type_.bit_width // 8) if pa.types.is_primitive(type_) and type_.bit_width <= 64 else None


def _kind_of_values(type_: pa.DataType) -> str | None:
    """How `read_dicts` reads values of Python; None if it cannot."""
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return "t"
    known = {pa.int64(): "q", pa.float64(): "d", pa.bool_(): "b", pa.string(): "s", pa.null(): "n"}
    return known.get(type_)


def _epoch(type_: pa.DataType) -> datetime | None:
    if not pa.types.is_timestamp(type_):
        return None
    return datetime(1970, 1, 1, tzinfo=None if type_.tz is None else UTC)


def _stored(values: np.ndarray, type_: pa.DataType) -> np.ndarray:
    """Numbers, booleans or offsets as Arrow stores them for a type."""
    if pa.types.is_boolean(type_):
        return np.packbits(values.astype(bool), bitorder="little")
    if type_.id in _SMALL or type_.id in _LARGE:
        return values.astype(np.int64) if type_.id in _LARGE else values
    return values if type_.bit_width == 64 else values.astype(f"i{type_.bit_width // 8}")


EARLIEST = -(2**63)
LATEST = 2**63 - 1
# Pushes of more rows than this are not small.
SMALL_ROWS = 1_000
# So many rows are gathered before they are staged, whether an answer is due or not.
_ROWS_MAX = 256
# The types of so many rows of a push are looked at; in a larger one some event is taken to complete a match.
_LOOKED_AT_MAX = 16


def _never_fails(type_: pa.DataType) -> bool:
    """Whether every value of a type can be computed with, so that no push can fail because of one."""
    tests = (
        pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string,
        pa.types.is_large_string, pa.types.is_date32, pa.types.is_null,
    )  # fmt: skip
    return any(test(type_) for test in tests) or (pa.types.is_timestamp(type_) and type_.unit in ("us", "ns"))


class SmallBatch:
    """Some rows of small pushes, which stagers read in place or copy to a table. Events up to tick `until` are matched
    before any other event comes.
    """

    def __init__(self, source: GrowingRows, first: int, last: int, until: int) -> None:
        self.source = source
        self.first = first
        self.last = last
        self.until = until

    @property
    def ticks(self) -> np.ndarray:
        """The times of the rows, as kernels compare them."""
        return self.source.moments[self.first : self.last].copy()

    def tick(self, row: int) -> int:
        """The time of one row of the source."""
        return int(self.source.moments[row])

    @cached_property
    def table(self) -> pa.Table:
        """A copy of the rows."""
        return self.source.table(self.first, self.last)


class Inbox:
    """Rows of the known schema that are not staged yet, in order of arrival.

    `completing` are the types of events that may complete a match; None if all types may.
    """

    def __init__(self, layout: Layout, completing: Collection[str] | None, *, gathers: bool) -> None:
        schema = layout.schema
        self._schema = schema
        time = schema.field(layout.time).type
        has_ticks = pa.types.is_int64(time) or pa.types.is_timestamp(time)
        reads = has_ticks and all(_never_fails(field.type) for field in schema)
        self._read = GrowingRows.of(schema, layout.time, has_moments=layout.is_ordered) if reads else None
        self._needed = [schema.get_field_index(name) for name in (layout.time, layout.type) if name is not None]
        self._type = -1
        if self._read is not None and layout.type is not None:
            column = schema.get_field_index(layout.type)
            self._type = self._read.places[column] if self._read.is_text[column] else -1
        known = completing if self._type >= 0 else None
        self._completing = None if known is None else frozenset(name.encode() for name in known)
        self._gathers = gathers
        self.newest = EARLIEST
        # Ticks of events that may complete a match and that the watermark has not passed, staged or not.
        self._due: list[int] = []
        # No tick up to this one is known to be without an answer.
        self._unknown_until = EARLIEST
        # The tick at which a kernel gives rows by time alone, and how many events may come before a limit is checked.
        self._deadline = LATEST
        self._room = 0
        self._held_room = 0
        # Whether the watermark has passed rows that are not staged.
        self._is_behind = False

    @property
    def rows(self) -> int:
        """The number of rows in the inbox."""
        return 0 if self._read is None else self._read.count

    def would_overflow(self, count: int) -> bool:
        """Whether this many more rows could exceed a limit that would not be exceeded if the rows in the inbox were
        read first.
        """
        return self._is_behind and self.rows + count > self._room

    # ── Taking rows in ─────────────────────────────────────────────────────────────────────────────

    def add(self, events: Any, watermark: int, number: Callable[[GrowingRows, int], bool] | None) -> bool:
        """Add a push. Returns False if it must be pushed in the general way, because of other types, unknown columns,
        late events or no events. `number` gives the rows their moments, and returns False if it cannot.
        """
        read = self._read
        if read is None:
            return False
        if isinstance(events, list):
            count = len(events)
        else:
            count = events.num_rows
            if not events.schema.equals(self._schema):
                return False
            if isinstance(events, pa.Table):
                batches = events.combine_chunks().to_batches()
                if len(batches) != 1:
                    return False
                events = batches[0]
        if not count or not read.read(events, count):
            return False
        memory = read.rows.memory
        for column in self._needed:
            if memory[NULLS + column]:
                # All rows before this push have a time and a type.
                memory[NULLS + column] = 0
                return False
        if memory[OLDEST] <= watermark or (number is not None and not number(read, count)):
            return False
        self._note(read, count, int(memory[NEWEST]))
        read.keep(count)
        return True

    def _note(self, read: GrowingRows, count: int, newest: int) -> None:
        self.newest = max(self.newest, newest)
        if count > _LOOKED_AT_MAX:
            self._unknown_until = max(self._unknown_until, newest)
            return
        first, last = read.count, read.count + count
        ticks = read.ticks[first:last].tolist()
        if self._completing is None:
            for tick in ticks:
                heappush(self._due, tick)
            return
        offsets = read.rows.offsets[self._type, first : last + 1].tolist()
        data = read.rows.data[self._type, offsets[0] : offsets[-1]].tobytes()
        for place, tick in enumerate(ticks):
            if data[offsets[place] - offsets[0] : offsets[place + 1] - offsets[0]] in self._completing:
                heappush(self._due, tick)

    # ── Giving rows out ────────────────────────────────────────────────────────────────────────────

    def waits(self, watermark: int) -> bool:
        """Whether the inbox has rows, and neither they nor anything else that is held give an answer at this
        watermark.
        """
        self._is_behind = (
            0 < self.rows <= min(self._room, _ROWS_MAX)
            and self._unknown_until == EARLIEST
            and watermark < self._deadline
            and (not self._due or watermark < self._due[0])
            and self._gathers
        )
        return self._is_behind

    def ready(self, until: int) -> SmallBatch:
        """The rows to stage before all events up to tick `until` are matched. These are the rows up to that tick, if
        all other rows come after them and exceed no limit; otherwise all rows. A row after the tick would have to be
        held and moved again.
        """
        read = self._read
        assert read is not None
        last = read.count if read.count > self._held_room else int(leading(read.rows, until))
        return SmallBatch(read, 0, last, until)

    def all(self, until: int = EARLIEST) -> SmallBatch:
        """All rows, to be staged before other events."""
        read = self._read
        assert read is not None
        return SmallBatch(read, 0, read.count, until)

    def taken(self, batch: SmallBatch) -> None:
        """Remove the rows of a batch that `ready` returned and that is now staged."""
        batch.source.drop(batch.last)

    def staged(self, newest: int) -> None:
        """Note that other rows, up to tick `newest`, were staged."""
        self._unknown_until = max(self._unknown_until, newest)

    def passed(self, watermark: int, deadline: int, room: int, held_room: int) -> None:
        """Note that everything up to a watermark is answered. `deadline` is the tick at which a kernel has rows without
        a further event. Before a limit must be checked, `room` events may come and `held_room` events may be held.
        """
        due = self._due
        while due and due[0] <= watermark:
            heappop(due)
        if watermark >= self._unknown_until:
            self._unknown_until = EARLIEST
        self._deadline = deadline
        self._room = room
        self._held_room = held_room
        self._is_behind = False
