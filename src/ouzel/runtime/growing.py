"""Columns that grow: small batches are appended to typed arrays, of which Arrow sees all rows without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.kernels.columns import text_of
from ouzel.runtime.arrays import valids
from ouzel.runtime.frames import take

_ROWS_FIRST = 256
_DATA_BYTES_MAX = 1 << 30


class _Validity:
    """Which rows are not null: a byte each, and from there the bits that Arrow reads."""

    def __init__(self) -> None:
        self._valid: np.ndarray | None = None
        self._bits = np.zeros(0, np.uint8)
        self._packed = 0

    def append(self, array: pa.Array, rows: np.ndarray, first: int) -> None:
        last = first + len(rows)
        if self._valid is None:
            if not array.null_count:
                return
            self._valid = np.ones(max(_ROWS_FIRST, 2 * last), bool)
        self._valid = _enlarged(self._valid, first, last)
        self._valid[first:last] = valids(array)[rows]

    def buffer(self, count: int) -> pa.Buffer | None:
        if self._valid is None:
            return None
        first = self._packed // 8
        self._bits = _enlarged(self._bits, first, (count + 7) // 8)
        bits = np.packbits(self._valid[8 * first : count], bitorder="little")
        self._bits[first : first + len(bits)] = bits
        self._packed = count
        return pa.py_buffer(self._bits[: (count + 7) // 8])


class _Numbers:
    """Values of one width."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._values = np.empty(0, f"i{type_.bit_width // 8}")
        self._validity = _Validity()

    def append(self, array: pa.Array, rows: np.ndarray, first: int) -> None:
        last = first + len(rows)
        self._values = _enlarged(self._values, first, last)
        data = array.buffers()[1]
        if data is not None and len(rows):
            np.frombuffer(data, self._values.dtype)[array.offset :].take(
                rows, out=self._values[first:last], mode="clip"
            )
        self._validity.append(array, rows, first)

    def array(self, count: int) -> pa.Array:
        return pa.Array.from_buffers(self._type, count, [self._validity.buffer(count), pa.py_buffer(self._values)])


class _Texts:
    """Strings or byte strings."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        large = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
        self._offsets: np.ndarray = np.zeros(1, np.int64 if large else np.int32)
        self._data = np.empty(0, np.uint8)
        self._validity = _Validity()

    def append(self, array: pa.Array, rows: np.ndarray, first: int) -> None:
        last, used = first + len(rows), int(self._offsets[first])
        array = take(array, rows)
        text = text_of(array)
        begin, end = int(text.offsets[0]), int(text.offsets[-1])
        self._offsets = _enlarged(self._offsets, first + 1, last + 1)
        self._offsets[first + 1 : last + 1] = text.offsets[1:] - (begin - used)
        self._data = _enlarged(self._data, used, used + end - begin)
        self._data[used : used + end - begin] = text.data[begin:end]
        self._validity.append(array, np.arange(len(rows)), first)

    def array(self, count: int) -> pa.Array:
        buffers = [self._validity.buffer(count), pa.py_buffer(self._offsets), pa.py_buffer(self._data)]
        return pa.Array.from_buffers(self._type, count, buffers)

    def bytes(self, count: int) -> int:
        return int(self._offsets[count])


def _enlarged(array: np.ndarray, used: int, needed: int) -> np.ndarray:
    """The array, or one with the same first values and at least twice the room."""
    if needed <= len(array):
        return array
    larger = np.zeros(max(_ROWS_FIRST, 2 * needed), array.dtype)
    larger[:used] = array[:used]
    return larger


def _column(type_: pa.DataType) -> _Numbers | _Texts | None:
    if pa.types.is_primitive(type_) and type_.bit_width in (32, 64):
        return _Numbers(type_)
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return _Texts(type_) if any(test(type_) for test in tests) else None


class GrowingTable:
    """Rows that are appended a few at a time, with the tick of each."""

    def __init__(self, schema: pa.Schema, columns: list[Any]) -> None:
        self._schema = schema
        self._columns = columns
        self._types = schema.types
        self._ticks = np.empty(0, np.int64)
        self._table: pa.Table | None = None
        self.rows = 0

    @classmethod
    def of(cls, schema: pa.Schema) -> GrowingTable | None:
        """An empty table; None if a column is of a type that cannot grow.

        >>> table = GrowingTable.of(pa.schema({"x": pa.string()}))
        >>> for value in ("a", None):
        ...     table.append([pa.array([value], pa.string())], np.arange(1), np.array([7]))
        >>> table.table().to_pylist()
        [{'x': 'a'}, {'x': None}]
        """
        columns = [_column(field.type) for field in schema]
        return None if None in columns else cls(schema, columns)

    def takes(self, arrays: Sequence[pa.Array]) -> bool:
        """Whether rows of such columns can be appended."""
        if [array.type for array in arrays] != self._types:
            return False
        texts = [pair for pair in zip(arrays, self._columns, strict=True) if isinstance(pair[1], _Texts)]
        return all(column.bytes(self.rows) + array.nbytes < _DATA_BYTES_MAX for array, column in texts)

    def append(self, arrays: Sequence[pa.Array], rows: np.ndarray, ticks: np.ndarray) -> None:
        """Append some rows of columns, behind those that are there; `ticks` are those of all rows."""
        for array, column in zip(arrays, self._columns, strict=True):
            column.append(array, rows, self.rows)
        last = self.rows + len(rows)
        self._ticks = _enlarged(self._ticks, self.rows, last)
        self._ticks[self.rows : last] = ticks[rows]
        self.rows = last
        self._table = None

    @property
    def ticks(self) -> np.ndarray:
        """The ticks of all rows."""
        return self._ticks[: self.rows]

    def without(self, first: int) -> GrowingTable:
        """A table of its own without the first rows."""
        rest = GrowingTable.of(self._schema)
        assert rest is not None
        arrays = [column.chunk(0) for column in self.table().columns]
        rest.append(arrays, np.arange(first, self.rows, dtype=np.int32), self.ticks)
        return rest

    def table(self) -> pa.Table:
        """All rows; appending to this table does not change them."""
        if self._table is None:
            arrays = [column.array(self.rows) for column in self._columns]
            self._table = pa.Table.from_arrays(arrays, schema=self._schema)
        return self._table
