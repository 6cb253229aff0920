"""The columns that expressions read: over rows of the input (for roles, keys and lanes) and over matches (for
RETURN).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import Attribute, BoundQuery, EquivalenceTest, EventField, Intrinsic, Kind
from ouzel.bind.schema import type_of_arrow
from ouzel.errors import InputError
from ouzel.kernels.arrays import text_of
from ouzel.kernels.order import PADDING, gather, gather_bits, gather_bytes, gather_offsets
from ouzel.runtime.expressions import cast
from ouzel.runtime.layout import Layout
from ouzel.runtime.values import Column, arrow, numbers, one_array, to_engine, truths


class Alike:
    """Columns that have the same value in all events of a match. Each is read only once, from one event of each
    match.
    """

    def __init__(self, names: frozenset[str], table: pa.Table, rows: Callable[[], np.ndarray]) -> None:
        self._names = names
        self._table = table
        self._rows = rows
        self._taken: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array | None:
        """A column, for the events of each match; None if their values may differ."""
        if name in self._names and name not in self._taken:
            self._taken[name] = take(one_array(self._table.column(name)), self._rows())
        return self._taken.get(name)


class EventFrame:
    """A frame over some rows of a wide table, which are the events of one component, or of the components of
    matches.

    `rows_of` returns the row numbers of a component's events. `ticks` are the event times of all rows of the table.
    Places in `absent` have no event, so all their values are null.
    """

    def __init__(
        self,
        query: BoundQuery,
        layout: Layout,
        table: pa.Table,
        ticks: np.ndarray,
        rows_of: Callable[[int], np.ndarray],
        count: int,
        *,
        alike: Alike | None = None,
        absent: np.ndarray | None = None,
    ) -> None:
        self._query = query
        self._layout = layout
        self._table = table
        self._ticks = ticks
        self._rows_of = rows_of
        self._alike = alike
        self.absent = absent
        self._taken: dict[tuple[int, str], pa.Array] = {}
        self.rows = count

    @property
    def unmasked(self) -> EventFrame:
        """The frame with any event in the place of one that is absent."""
        if self.absent is None:
            return self
        return EventFrame(
            self._query, self._layout, self._table, self._ticks, self._rows_of, self.rows, alike=self._alike
        )

    def wide(self, component: int, column: str) -> pa.Array:
        """A column of the input for the events of a component, in its own type."""
        key = (component, column)
        if key not in self._taken:
            taken = None if self._alike is None else self._alike.column(column)
            if taken is None:
                taken = take(one_array(self._table.column(column)), self._rows_of(component))
            self._taken[key] = without(taken, self.absent)
        return self._taken[key]

    def time(self, component: int) -> pa.Array:
        """The event time in the type of the input."""
        name = self._layout.time
        if name in self._table.column_names:
            return self.wide(component, name)
        times = ticks_to_time(self._event_ticks(component), self._layout.schema.field(name).type)
        return without(times, self.absent)

    def _event_ticks(self, component: int) -> np.ndarray:
        return self._layout.ticks(gather(self._ticks, self._rows_of(component)))

    def raw(self, reference: Attribute) -> pa.Array:
        """An attribute in the type of the input; null where the event's type lacks it."""
        name, *inner = reference.path
        types = self._query.types_of(reference.component)
        columns = {self._layout.column(t, name) for t in types if _has(reference, t)}
        value: pa.Array | None = None
        for column in sorted(columns):
            part = self.wide(reference.component, column)
            if value is not None:
                owners = [t for t in types if self._layout.column(t, name) == column]
                part = pc.if_else(pa.array(self.is_one_of(reference.component, owners)), part, value)
            value = part
        assert value is not None, "the binder lets no attribute through that no type has"
        for field in inner:
            value = pc.struct_field(value, field)
        absent = self.lacks(reference)
        if absent is not None and absent.any():
            # Arrow's `if_else` supports few types; taking rows supports all.
            value = value.take(pa.array(np.arange(len(value)), mask=absent))
        return value

    def attribute(self, reference: Attribute) -> Column:
        raw = self.raw(reference)
        own, wanted, name = type_of_arrow(raw.type), reference.type, ".".join(reference.path)
        if wanted.kind in (Kind.DECIMAL, Kind.TIMESTAMP) and (own.kind, own.scale) != (wanted.kind, wanted.scale):
            # An [attr] test between inputs with different but compatible types of the attribute.
            return cast(to_engine(raw, own, name), own, wanted)
        return to_engine(raw, wanted, name)

    def tested(self, test: EquivalenceTest) -> tuple[Column, np.ndarray]:
        """(values, lacking): the attribute of an [attr] test for events of any type, and which events have a type that
        lacks it.
        """
        name, *inner = test.path
        owners: dict[str, list[str]] = {}
        for (event_type, attribute), column in self._layout.physical.items():
            if attribute == name:
                owners.setdefault(column, []).append(event_type)
        value: Column | None = None
        for column in dict.fromkeys((name, *owners)):
            if column not in self._table.column_names:
                continue
            own = self.wide(0, column)
            for field in inner:
                own = pc.struct_field(own, field)
            own = to_engine(own, test.type)
            value = own if value is None else pc.if_else(pa.array(self.is_one_of(0, owners[column])), own, value)
        assert value is not None, "the binder lets no [attr] through that no type has"
        lacking = [t for t, attributes in (self._query.catalog.declared or {}).items() if name not in attributes]
        return value, self.is_one_of(0, lacking) if lacking else np.zeros(self.rows, bool)

    def intrinsic(self, reference: Intrinsic) -> Column:
        if reference.field is EventField.TYPE:
            return self.types(reference.component)
        if reference.field is EventField.START and self._layout.start is not None:
            starts = self.wide(reference.component, self._layout.start)
            if self._layout.scale is None:
                return starts
            return without(arrow(self._layout.ticks(numbers(pc.fill_null(starts, 0)))), self.absent)
        return without(arrow(self._event_ticks(reference.component)), self.absent)

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        if reference.present_in is None:
            return None
        if "" in reference.present_in:
            # Every type that is not declared has it.
            declared = self._query.types_of(reference.component)
            lacking = self.is_one_of(reference.component, sorted({*declared} - reference.present_in))
        else:
            lacking = ~self.is_one_of(reference.component, sorted(reference.present_in))
        return lacking if self.absent is None else lacking & ~self.absent

    def types(self, component: int) -> Column:
        """The types of a component's events, as text."""
        if self._layout.type is None:
            return without(pa.repeat(pa.scalar(self._layout.only_type, pa.large_string()), self.rows), self.absent)
        column = self.wide(component, self._layout.type)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return pc.cast(column, pa.large_string())

    def is_one_of(self, component: int, types: Sequence[str]) -> np.ndarray:
        """Which events of a component have one of these types."""
        member = pc.is_in(self.types(component), value_set=pa.array(types, pa.large_string()))
        return truths(member)


def _has(reference: Attribute, event_type: str) -> bool:
    return reference.present_in is None or event_type in reference.present_in


_INT64, _TIMESTAMP = pa.int64().id, pa.timestamp("us").id


def stores_ticks(time: pa.DataType) -> bool:
    """Whether the stored values of a time type are ticks."""
    return time.id == _INT64 or (time.id == _TIMESTAMP and time.unit in ("us", "ns"))


def ticks_to_time(ticks: np.ndarray, time: pa.DataType) -> pa.Array:
    """Ticks in the type of the input's time column."""
    if stores_ticks(time):
        return arrow(ticks, time)
    plain = arrow(ticks)
    if pa.types.is_timestamp(time):
        unit = "ns" if time.unit == "ns" else "us"
        return plain.view(pa.timestamp(unit, time.tz)).cast(time, safe=False)
    try:
        return plain.cast(time)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"a match ends, by its window, at a time that does not fit the time column's type {time}: {error}. "
            "Give the times as int64"
        ) from None


def take(array: pa.Array, rows: np.ndarray) -> pa.Array:
    """Some rows of an array, in its type. For numbers, texts and dictionaries this is faster than Arrow's own."""
    kind = array.type
    if kind.id in _WIDTHS and not array.null_count and rows.dtype == np.int32:
        return pa.Array.from_buffers(kind, len(rows), [None, *_taken_numbers(array, rows)])
    if pa.types.is_dictionary(kind):
        indices = take(array.indices, rows)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary, ordered=kind.ordered, safe=False)
    is_text = kind in _TEXTS
    is_number = pa.types.is_primitive(kind) and kind.bit_width in _GATHERED
    if rows.dtype != np.int32 or not (is_text or is_number):
        return array.take(arrow(rows))
    valid, nulls = _taken_validity(array, rows)
    if nulls == len(rows):
        return _nulls(kind, nulls)
    made = _taken_text(array, rows) if is_text else _taken_numbers(array, rows)
    return array.take(arrow(rows)) if made is None else pa.Array.from_buffers(kind, len(rows), [valid, *made], nulls)


def without(array: pa.Array, absent: np.ndarray | None) -> pa.Array:
    """The array with null at some places."""
    if absent is None:
        return array
    if array.null_count or array.offset or array.type.num_fields or pa.types.is_dictionary(array.type):
        return array.take(pa.array(np.arange(len(array)), mask=absent))
    valid = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [valid, *array.buffers()[1:]])


_GATHERED = {32: np.int32, 64: np.int64}
# Types of which a lookup is cheaper than questions.
_WIDTHS = {pa.int64().id: 64, pa.float64().id: 64, pa.timestamp("us").id: 64, pa.int32().id: 32}
_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _nulls(kind: pa.DataType, count: int) -> pa.Array:
    """An array of nulls of a type that `take` supports. Its zeros take no memory until they are read."""
    zeros = pa.py_buffer(np.zeros(count + 1, np.int64))
    return pa.Array.from_buffers(kind, count, [zeros, zeros, *([pa.py_buffer(b"")] if kind in _TEXTS else [])], count)


def _room(count: int, dtype: Any) -> tuple[np.ndarray, pa.Buffer]:
    """(array, buffer): an uninitialised array and its memory. Arrow reuses freed memory, whereas numpy asks the system
    for more.
    """
    buffer = pa.allocate_buffer(count * np.dtype(dtype).itemsize)
    return np.frombuffer(buffer, dtype=dtype), buffer


def _taken_validity(array: pa.Array, rows: np.ndarray) -> tuple[pa.Buffer | None, int]:
    """(validity bitmap, number of nulls) of some rows."""
    if not array.null_count:
        return None, 0
    bits, buffer = _room((len(rows) + 7) // 8, np.uint8)
    valid = gather_bits(np.frombuffer(array.buffers()[0], np.uint8), array.offset, rows, bits)
    return None if valid == len(rows) else buffer, len(rows) - valid


def _taken_numbers(array: pa.Array, rows: np.ndarray) -> list[pa.Buffer]:
    """The values of some rows. The value of a null row is arbitrary."""
    bits = _GATHERED[array.type.bit_width]
    gathered, buffer = _room(len(rows), bits)
    gather(np.frombuffer(array.buffers()[1], dtype=bits)[array.offset : array.offset + len(array)], rows, gathered)
    return [buffer]


def _taken_text(array: pa.Array, rows: np.ndarray) -> list[pa.Buffer] | None:
    """Offsets and bytes of some rows; None if they need 64-bit offsets."""
    text = text_of(array)
    offsets, offset_buffer = _room(len(rows) + 1, text.offsets.dtype)
    size = gather_offsets(text, rows, offsets)
    if size > np.iinfo(text.offsets.dtype).max:
        return None
    data, data_buffer = _room(size + PADDING, np.uint8)
    gather_bytes(text, rows, offsets, data)
    return [offset_buffer, data_buffer.slice(0, size)]
