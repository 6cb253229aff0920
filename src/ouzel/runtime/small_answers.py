"""Small answers: columns that are read from the rows of small pushes by one call of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.kernels.order import gather
from ouzel.kernels.rows import TICKS, gather_rows
from ouzel.runtime.frames import stores_ticks, take
from ouzel.runtime.inbox import GrowingRows
from ouzel.runtime.layout import MomentScale

# A column of an answer: a position in each match, and the column of its event in the input, TICKS for the time of the
# event, or ITSELF for the number that is at the position.
Taken = tuple[int, str | int]


class SmallAnswer:
    """Makes the columns of answers: what all answers of a query have in common is worked out once."""

    def __init__(self, columns: Sequence[Taken], types: Sequence[pa.DataType], scale: MomentScale | None) -> None:
        self._columns = columns
        self._types = types
        self._scale = (0, 0) if scale is None else (scale.bits, scale.base)
        # Whether times can be written as they are shown.
        self.writes_times = all(
            stores_ticks(type_) for (_, one), type_ in zip(columns, types, strict=True) if one == TICKS
        )
        self._source: pa.Schema | None = None
        self._table = np.empty((0, 3), np.int32)
        self._gathered: list[pa.DataType] = []
        self._others: list[tuple[int, int, int]] = []  # place in the answer, column of the rows, position

    def _read(self, growing: GrowingRows) -> None:
        """Find the columns in rows of another schema."""
        table, self._gathered, self._others = [], [], []
        for place, ((position, name), shown) in enumerate(zip(self._columns, self._types, strict=True)):
            if isinstance(name, int):
                table.append((position, name, 0))
                self._gathered.append(shown)
                continue
            column = growing.schema.get_field_index(name)
            type_ = growing.types[column]
            if growing.is_text[column] or not pa.types.is_primitive(type_) or type_.bit_width != 64:
                self._others.append((place, column, position))
                continue
            table.append((position, growing.places[column], column))
            self._gathered.append(type_)
        self._table = np.array(table, np.int32).reshape(-1, 3)
        self._source = growing.schema

    def arrays(
        self, growing: GrowingRows, base: int, numbers: np.ndarray, slots: np.ndarray, count: int
    ) -> list[pa.Array]:
        """The columns of some matches. The event of match m at position p is in slot `slots[p, m]`, and its row is
        `numbers[slot] - base`; a negative slot means that there is none."""
        if self._source is not growing.schema:
            self._read(growing)
        width, size = len(self._table), 8 * count
        gathered = np.empty((width, count), np.int64)
        valid = np.empty((width, (count + 7) // 8), np.uint8)
        nulls = np.empty(width, np.int64)
        total = gather_rows(
            growing.rows, growing.appended_ticks, numbers, base, slots, count, self._table, *self._scale, gathered,
            valid, nulls,
        )  # fmt: skip
        memory = pa.py_buffer(gathered)
        if not total:
            columns = [
                pa.Array.from_buffers(type_, count, [None, memory.slice(size * place, size)])
                for place, type_ in enumerate(self._gathered)
            ]
        else:
            columns = [
                pa.Array.from_buffers(
                    type_, count, [pa.py_buffer(valid[place]) if own else None, memory.slice(size * place, size)], own
                )
                for place, (type_, own) in enumerate(zip(self._gathered, nulls.tolist(), strict=True))
            ]
        for place, column, position in self._others:
            columns.insert(place, _taken(growing.column(column), numbers, base, slots[position, :count]))
        return columns


def _taken(column: pa.Array, numbers: np.ndarray, base: int, slots: np.ndarray) -> pa.Array:
    """A column of some events; null where there is none."""
    is_there = slots >= 0
    if is_there.all():
        return take(column, (gather(numbers, slots) - base).astype(np.int32))
    if not is_there.any():
        return pa.nulls(len(slots), column.type)
    first = slots[np.argmax(is_there)]
    values = take(column, (gather(numbers, np.where(is_there, slots, first)) - base).astype(np.int32))
    return pc.if_else(pa.array(is_there), values, pa.scalar(None, values.type))
