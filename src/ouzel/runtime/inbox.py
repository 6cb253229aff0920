"""Rows of small pushes: read straight into typed arrays, and staged together once an answer may be due.

An event completes a match only if the last component of some query takes its type. Until the watermark passes such an
event, or a deadline of a kernel, a small push has no answer, so its rows are checked and kept here. Everything that a
push may raise is decided when its rows are added: input in any other form than the known schema's own goes the long
way, which converts it or says what is wrong.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ouzel.runtime.arrays import numbers
from ouzel.runtime.layout import Layout

EARLIEST = -(2**63)
LATEST = 2**63 - 1
# Pushes of more rows than this are not small.
SMALL_ROWS = 1_000
# So many rows are gathered before they are staged, whether an answer is due or not.
_ROWS_MAX = 256
# The types of so many rows of a push are looked at; in a larger one some event is taken to complete a match.
_LOOKED_AT_MAX = 16
_MICROSECOND = timedelta(microseconds=1)


class _Column(Protocol):
    """Values of one column, of one Python type or None."""

    kind: type

    def extend(self, values: list[Any], count: int, some_null: bool) -> None:
        """Add values behind the first `count`; raises OverflowError or UnicodeEncodeError where one does not fit."""

    def cut(self, count: int) -> None:
        """Give up all values but the first so many."""

    def take(self, count: int) -> pa.Array:
        """The first values as an Arrow array; the others are left."""


class _Nulls:
    """Which values of a column are null; nothing is kept while none is."""

    def __init__(self) -> None:
        self._present: bytearray | None = None

    def extend(self, values: list[Any], count: int, some_null: bool) -> None:
        if some_null and self._present is None:
            self._present = bytearray(b"\1" * count)
        if self._present is not None:
            self._present += bytes([value is not None for value in values])

    def cut(self, count: int) -> None:
        if self._present is not None:
            del self._present[count:]

    def take(self, count: int) -> pa.Buffer | None:
        present = self._present
        if present is None:
            return None
        self._present = present[count:] if 0 in present[count:] else None
        return pa.py_buffer(np.packbits(np.frombuffer(present, bool, count), bitorder="little"))


class _Numbers:
    """Integers, floats or microseconds."""

    def __init__(self, kind: type, code: str, type_: pa.DataType) -> None:
        self.kind = kind
        self._empty = kind()
        self._code = code
        self._type = type_
        self._nulls = _Nulls()
        self.values: array[Any] = array(code)

    def extend(self, values: list[Any], count: int, some_null: bool) -> None:
        self._nulls.extend(values, count, some_null)
        self.values.extend([self._empty if value is None else value for value in values] if some_null else values)

    def cut(self, count: int) -> None:
        self._nulls.cut(count)
        del self.values[count:]

    def take(self, count: int) -> pa.Array:
        values, self.values = self.values, self.values[count:]
        return pa.Array.from_buffers(self._type, count, [self._nulls.take(count), pa.py_buffer(values)])


class _Times(_Numbers):
    """Timestamps, whose zone, or lack of one, is that of the column."""

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(int, "q", type_)
        self.kind = datetime
        self._epoch = datetime(1970, 1, 1, tzinfo=None if type_.tz is None else UTC)

    def extend(self, values: list[Any], count: int, some_null: bool) -> None:
        try:
            ticks = [None if value is None else (value - self._epoch) // _MICROSECOND for value in values]
        except TypeError:
            raise OverflowError("some times have a zone and some have none") from None
        super().extend(ticks, count, some_null)


class _Booleans(_Numbers):
    """Truth values, a byte each until they are taken."""

    def __init__(self) -> None:
        super().__init__(bool, "B", pa.bool_())

    def take(self, count: int) -> pa.Array:
        values, self.values = self.values, self.values[count:]
        bits = np.packbits(np.frombuffer(values, np.uint8, count), bitorder="little")
        return pa.Array.from_buffers(self._type, count, [self._nulls.take(count), pa.py_buffer(bits)])


class _Texts:
    """Strings, encoded as they come."""

    kind: type = str

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._nulls = _Nulls()
        self._data = bytearray()
        self._lengths: array[int] = array("i")

    def extend(self, values: list[Any], count: int, some_null: bool) -> None:
        self._nulls.extend(values, count, some_null)
        texts = ["" if value is None else value for value in values] if some_null else values
        data = "".join(texts)
        encoded = data.encode("utf-8")
        lengths = map(len, texts) if len(encoded) == len(data) else [len(text.encode("utf-8")) for text in texts]
        self._lengths.extend(lengths)
        self._data += encoded

    def cut(self, count: int) -> None:
        self._nulls.cut(count)
        del self._data[sum(self._lengths[:count]) :]
        del self._lengths[count:]

    def take(self, count: int) -> pa.Array:
        lengths, self._lengths = self._lengths, self._lengths[count:]
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(np.frombuffer(lengths, np.int32, count), out=offsets[1:])
        data, self._data = self._data, self._data[offsets[-1] :]
        buffers = [self._nulls.take(count), pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._type, count, buffers)


class _Untyped:
    """A column that has no type yet: nothing but nulls."""

    kind: type = type(None)

    def extend(self, values: list[Any], count: int, some_null: bool) -> None:
        """Nothing is kept."""

    def cut(self, count: int) -> None:
        """Nothing is kept."""

    def take(self, count: int) -> pa.Array:
        return pa.nulls(count)


def _column(type_: pa.DataType) -> _Column | None:
    """A column for values that Python has a type of its own for."""
    if pa.types.is_int64(type_):
        return _Numbers(int, "q", type_)
    if pa.types.is_float64(type_):
        return _Numbers(float, "d", type_)
    if pa.types.is_boolean(type_):
        return _Booleans()
    if pa.types.is_string(type_):
        return _Texts(type_)
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return _Times(type_)
    return _Untyped() if pa.types.is_null(type_) else None


def _never_fails(type_: pa.DataType) -> bool:
    """Whether every value of a type can be computed with."""
    tests = (
        pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string,
        pa.types.is_large_string, pa.types.is_date32, pa.types.is_null,
    )  # fmt: skip
    return any(test(type_) for test in tests) or (pa.types.is_timestamp(type_) and type_.unit in ("us", "ns"))


class Inbox:
    """Rows of the known schema that are not staged yet, in the order in which they came.

    `completing` are the types of events that may complete a match, None where all may.
    """

    def __init__(self, layout: Layout, completing: Collection[str] | None, *, gathers: bool) -> None:
        schema = layout.schema
        self._schema = schema
        types = None if layout.type is None else schema.field(layout.type).type
        is_text = types is not None and (pa.types.is_string(types) or pa.types.is_large_string(types))
        self._completing = frozenset(completing) if is_text and completing is not None else None
        self._names = list(schema.names)
        self._known = frozenset(self._names)
        self._time = schema.get_field_index(layout.time)
        self._type = -1 if layout.type is None else schema.get_field_index(layout.type)
        self._ticks_type = schema.field(self._time).type
        columns = [_column(field.type) for field in schema]
        time = columns[self._time]
        self._columns = [column for column in columns if column is not None]
        self._times = time if isinstance(time, _Numbers) and len(self._columns) == len(columns) else None
        self._kinds = [column.kind for column in self._columns]
        has_ticks = pa.types.is_int64(self._ticks_type) or pa.types.is_timestamp(self._ticks_type)
        self._reads_tables = has_ticks and all(_never_fails(field.type) for field in schema)
        zoned = any(pa.types.is_timestamp(field.type) and field.type.tz is not None for field in schema)
        self._reads_values = self._times is not None and not zoned
        self._gathers = gathers
        self._row_count = 0
        self._tables: list[pa.Table] = []
        self._table_rows = 0
        self.newest = EARLIEST
        # Ticks of events that may complete a match and that the watermark has not passed, staged or not.
        self._due: list[int] = []
        # No tick up to this one is known to be without an answer.
        self._unknown_until = EARLIEST
        # The tick at which a kernel gives rows by time alone, and how many events may come before a limit is checked.
        self._deadline = LATEST
        self._room = 0

    @property
    def rows(self) -> int:
        """How many rows are gathered."""
        return self._row_count + self._table_rows

    def would_overflow(self, count: int) -> bool:
        """Whether so many more rows may pass a limit that the gathered ones, once read, would make room for."""
        return self._row_count + self._table_rows + count > self._room

    # ── Taking rows in ─────────────────────────────────────────────────────────────────────────────

    def add(self, events: Any, watermark: int) -> bool:
        """Take a push in, unless it has to go the long way: other types, unknown columns, late or no events."""
        if isinstance(events, list):
            return self._times is not None and self._add_rows(events, watermark)
        return self._reads_tables and self._add_table(events, watermark)

    def _add_rows(self, rows: list[Any], watermark: int) -> bool:
        count = len(rows)
        if not count or set(map(type, rows)) != {dict}:
            return False
        names = self._names
        try:
            columns = [[row[name] for row in rows] for name in names]
            if sum(map(len, rows)) != count * len(names):
                return False
        except KeyError:
            if not all(self._known.issuperset(row) for row in rows):
                return False
            columns = [[row.get(name) for row in rows] for name in names]
        nulls = []
        for kind, values in zip(self._kinds, columns, strict=True):
            kinds = set(map(type, values))
            some_null = type(None) in kinds
            nulls.append(some_null)
            if kinds != {kind} and not kinds <= {kind, type(None)}:
                return False
        return self._extend(columns, nulls, watermark)

    def _extend(self, columns: list[list[Any]], nulls: list[bool], watermark: int) -> bool:
        """Append values of the right types, unless one does not fit or an event has no time, no type or is late."""
        before = self._row_count
        if nulls[self._time] or (self._type >= 0 and nulls[self._type]):
            return False
        try:
            for column, values, some_null in zip(self._columns, columns, nulls, strict=True):
                column.extend(values, before, some_null)
            assert self._times is not None
            # A view of an array that grows would forbid it to grow.
            ticks = np.array(self._times.values[before:] if before else self._times.values, np.int64)
            accepted = int(ticks.min()) > watermark
        except (OverflowError, UnicodeEncodeError):
            accepted = False
        if not accepted:
            for column in self._columns:
                column.cut(before)
            return False
        self._row_count = before + len(ticks)
        self._note(ticks, None if self._type < 0 else columns[self._type])
        return True

    def _add_table(self, events: Any, watermark: int) -> bool:
        if not events.num_rows or not events.schema.equals(self._schema):
            return False
        if self._reads_values and events.num_rows <= _LOOKED_AT_MAX and not self._tables:
            # Joining tables of a few rows costs more than reading their values, unless Python has no such time.
            with suppress(OverflowError, ValueError):
                columns = [column.to_pylist() for column in events.columns]
                return self._extend(columns, [None in values for values in columns], watermark)
        if isinstance(events, pa.RecordBatch):
            events = pa.Table.from_batches([events])
        time = events.column(self._time)
        if time.null_count or time.num_chunks != 1:
            return False
        ticks = numbers(time.chunk(0))
        if ticks.min() <= watermark:
            return False
        if self._row_count:
            self._tables.append(self._taken(self._row_count))
        self._tables.append(events)
        self._table_rows += len(ticks)
        looked_at = self._type >= 0 and len(ticks) <= _LOOKED_AT_MAX
        self._note(ticks, events.column(self._type).to_pylist() if looked_at else None)
        return True

    def _note(self, ticks: np.ndarray, types: list[str | None] | None) -> None:
        newest = int(ticks.max())
        self.newest = max(self.newest, newest)
        if len(ticks) > _LOOKED_AT_MAX:
            self._unknown_until = max(self._unknown_until, newest)
        elif self._completing is None or types is None:
            for tick in ticks.tolist():
                heappush(self._due, tick)
        else:
            for tick, event_type in zip(ticks.tolist(), types, strict=True):
                if event_type in self._completing:
                    heappush(self._due, tick)

    # ── Giving rows out ────────────────────────────────────────────────────────────────────────────

    def waits(self, watermark: int) -> bool:
        """Whether rows are gathered and none of them, nor anything held, gives an answer at a watermark."""
        return (
            0 < self._row_count + self._table_rows <= min(self._room, _ROWS_MAX)
            and self._unknown_until == EARLIEST
            and watermark < self._deadline
            and (not self._due or watermark < self._due[0])
            and self._gathers
        )

    def take(self, until: int) -> tuple[pa.Table, np.ndarray]:
        """Rows in one chunk, and their ticks: those up to a tick, if the others came after them, or all."""
        if self._row_count:
            count = self._row_count if self._tables else self._ready(until)
            self._tables.append(self._taken(count))
        tables, self._tables, self._table_rows = self._tables, [], 0
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
        return table, numbers(table.column(self._time).chunk(0))

    def _ready(self, until: int) -> int:
        """How many rows to take: an event that is not ready would be held, and moved once more."""
        assert self._times is not None
        ticks = self._times.values
        first = len(ticks)
        while first and ticks[first - 1] > until:
            first -= 1
        return first if first and max(ticks[:first]) <= until else len(ticks)

    def _taken(self, count: int) -> pa.Table:
        self._row_count -= count
        self._table_rows += count
        return pa.Table.from_arrays([column.take(count) for column in self._columns], schema=self._schema)

    def staged(self, newest: int) -> None:
        """Other rows were staged, up to a tick."""
        self._unknown_until = max(self._unknown_until, newest)

    def passed(self, watermark: int, deadline: int | None, room: int) -> None:
        """Everything up to a watermark is answered. `deadline` is when a kernel gives rows by time alone, `room` how
        many events may come before a limit must be checked."""
        due = self._due
        while due and due[0] <= watermark:
            heappop(due)
        if watermark >= self._unknown_until:
            self._unknown_until = EARLIEST
        self._deadline = LATEST if deadline is None else deadline
        self._room = room
