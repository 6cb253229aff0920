"""The row store: the rows of live events, fetched when a match completes.

Rows have increasing numbers that are never reused. Large batches are kept in chunks as they came in. A chunk is evicted
when its newest event has left the window, and neighbours of about the same size are merged to keep their number small.
Small batches are appended to the last chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.kernels.order import gather
from ouzel.runtime.frames import take
from ouzel.runtime.growing import GrowingRows
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import one_array

EARLIEST = -(2**63)
# Batches of up to so many rows are small.
_SMALL_ROWS = 4096
# Texts of one column in an open chunk.
_TEXT_BYTES_MAX = 1 << 30


@dataclass(frozen=True)
class _Chunk:
    base: int
    table: pa.Table
    ticks: np.ndarray

    @cached_property
    def newest(self) -> int:
        return int(self.ticks.max())

    @property
    def rows(self) -> int:
        return len(self.ticks)


class _OpenChunk:
    """A chunk to which small batches are appended."""

    def __init__(self, base: int, growing: GrowingRows) -> None:
        self.base = base
        self.growing = growing
        self._read: GrowingRows | None = None
        self._ticks = np.empty(_SMALL_ROWS, np.int64)
        self._table: pa.Table | None = None
        self.newest = EARLIEST
        # The expired rows are looked for at so many rows.
        self.swept_at = _SMALL_ROWS

    @property
    def rows(self) -> int:
        return self.growing.count

    @property
    def table(self) -> pa.Table:
        if self._table is None:
            self._table = self.growing.whole()
        return self._table

    @property
    def ticks(self) -> np.ndarray:
        return self._ticks[: self.growing.count]

    def takes(self, types: list[pa.DataType], size: int) -> bool:
        """Whether rows of columns of these types, and texts of up to so many bytes, can be appended."""
        return types == self.growing.types and self.growing.bytes() + size < _TEXT_BYTES_MAX

    def append(self, arrays: Sequence[pa.Array], rows: np.ndarray, ticks: np.ndarray) -> None:
        """Append some rows of columns; `ticks` are those of all rows."""
        if self._read is None:
            self._read = GrowingRows.of(self.growing.schema)
        source = self._read
        assert source is not None
        batch = pa.RecordBatch.from_arrays(list(arrays), schema=source.schema)
        is_read = source.read(batch, len(ticks))
        assert is_read
        source.keep(len(ticks))
        self.append_read(source, self.growing.all_columns, rows, len(rows), ticks)
        source.drop(len(ticks))

    def append_read(
        self, source: GrowingRows, columns: Sequence[int], rows: np.ndarray, count: int, ticks: np.ndarray
    ) -> None:
        """Append the first of some rows that have been read; `ticks` are those of all rows that `rows` may number."""
        before = self.rows
        self.growing.append(source, columns, rows, count)
        if self.rows > len(self._ticks):
            self._ticks = np.concatenate([self._ticks[:before], np.empty(self.rows, np.int64)])
        added = self._ticks[before : self.rows]
        ticks.take(rows[:count], out=added, mode="clip")
        self.newest = max(self.newest, int(added.max()))
        self._table = None

    def evict(self, expiry_bound: int) -> None:
        """Evict the first rows once most rows are expired."""
        if self.rows < self.swept_at:
            return
        first = int(np.argmax(self.ticks > expiry_bound))
        if 2 * first > self.rows:
            left = GrowingRows.of(self.growing.schema)
            assert left is not None
            rows = np.arange(first, self.rows, dtype=np.int32)
            left.append(self.growing, self.growing.all_columns, rows, len(rows))
            self._ticks = self._ticks[first : self.rows].copy()
            self.growing, self._table = left, None
            self.base += first
        self.swept_at = max(_SMALL_ROWS, self.rows + self.rows // 2)


class RowStore:
    """Rows of a stream, by running number."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk | _OpenChunk] = []
        self._next = 0

    @property
    def next(self) -> int:
        """The number of the next row."""
        return self._next

    def append(self, table: pa.Table, ticks: np.ndarray) -> int:
        """Keep some rows; returns the number of the first."""
        if 0 < len(ticks) <= _SMALL_ROWS:
            arrays = [one_array(column) for column in table.columns]
            base = self._append_small(arrays, table.column_names, np.arange(len(ticks), dtype=np.int32), ticks)
            if base is not None:
                return base
        base = self._next
        self._next += len(ticks)
        if len(ticks):
            self._chunks.append(_Chunk(base, table, ticks))
            # As in a binary counter: a chunk is merged only with one of about its size, so each row is copied a
            # logarithmic number of times.
            while len(self._chunks) > 1 and self._chunks[-2].rows <= 2 * self._chunks[-1].rows and self._adjacent():
                self._merge_last_two()
        return base

    def append_rows(self, table: pa.Table, names: Sequence[str], rows: np.ndarray, ticks: np.ndarray) -> int:
        """Keep some columns of some rows; returns the number of the first. `ticks` are those of all rows."""
        arrays = [one_array(table.column(name)) for name in names]
        if 0 < len(rows) <= _SMALL_ROWS:
            base = self._append_small(arrays, names, rows, ticks)
            if base is not None:
                return base
        columns = [take(array, rows) for array in arrays]
        return self.append(pa.Table.from_arrays(columns, list(names)), gather(ticks, rows))

    def append_read(
        self, source: GrowingRows, columns: Sequence[int], rows: np.ndarray, count: int, ticks: np.ndarray
    ) -> int:
        """Keep some columns of the first of some rows that have been read; returns the number of the first."""
        base = self._next
        last = self._open([source.types[column] for column in columns], 0)
        if last is None:
            schema = pa.schema([source.schema.field(column) for column in columns])
            last = self._opened(schema)
            assert last is not None
        last.append_read(source, columns, rows, count, ticks)
        self._next += count
        return base

    def _append_small(
        self, arrays: Sequence[pa.Array], names: Sequence[str], rows: np.ndarray, ticks: np.ndarray
    ) -> int | None:
        """Append a small batch to the open chunk; None if a column cannot grow."""
        base = self._next
        types = [array.type for array in arrays]
        last = self._open(types, max((array.nbytes for array in arrays), default=0))
        if last is None:
            last = self._opened(pa.schema(list(zip(names, types, strict=True))))
            if last is None:
                return None
        last.append(arrays, rows, ticks)
        self._next += len(rows)
        return base

    def _open(self, types: list[pa.DataType], size: int) -> _OpenChunk | None:
        """The open chunk, if the next row is of such columns and can be appended to it."""
        last = self._chunks[-1] if self._chunks else None
        if isinstance(last, _OpenChunk) and last.base + last.rows == self._next and last.takes(types, size):
            return last
        return None

    def _opened(self, schema: pa.Schema) -> _OpenChunk | None:
        growing = GrowingRows.of(schema)
        if growing is None:
            return None
        last = _OpenChunk(self._next, growing)
        self._chunks.append(last)
        return last

    def _adjacent(self) -> bool:
        left, right = self._chunks[-2:]
        return left.base + left.rows == right.base

    def _merge_last_two(self) -> None:
        left, right = self._chunks[-2:]
        table = pa.concat_tables([left.table, right.table]).combine_chunks()
        merged = _Chunk(left.base, table, np.concatenate([left.ticks, right.ticks]))
        self._chunks[-2:] = [merged]

    @property
    def is_whole(self) -> bool:
        """All rows are in one table."""
        return len(self._chunks) == 1

    def evict(self, expiry_bound: int) -> None:
        """Evict chunks whose events are all at or before a tick."""
        self._chunks = [chunk for chunk in self._chunks if chunk.newest > expiry_bound]
        if self._chunks and isinstance(last := self._chunks[-1], _OpenChunk):
            last.evict(expiry_bound)

    def keep(self, rows: np.ndarray) -> np.ndarray:
        """Evict all rows except some; returns their new numbers."""
        wanted, places = np.unique(rows, return_inverse=True)
        table, ticks, found = self.fetch(wanted)
        columns = [take(one_array(column), found) for column in table.columns]
        self._chunks = []
        base = self.append(pa.table(columns, schema=table.schema), ticks[found])
        numbers: np.ndarray = base + places.reshape(rows.shape)
        return numbers

    def fetch(self, rows: np.ndarray) -> tuple[pa.Table, np.ndarray, np.ndarray]:
        """A table that holds some rows, the event times of its rows, and the place of each of `rows` in it."""
        if len(self._chunks) == 1:
            chunk = self._chunks[0]
            return chunk.table, chunk.ticks, (rows - chunk.base).astype(np.int32)
        wanted, places = np.unique(rows, return_inverse=True)
        tables, ticks = [], []
        for chunk in self._chunks:
            first, last = np.searchsorted(wanted, [chunk.base, chunk.base + chunk.rows])
            if first < last:
                local = (wanted[first:last] - chunk.base).astype(np.int32)
                columns = [take(one_array(column), local) for column in chunk.table.columns]
                tables.append(pa.table(columns, schema=chunk.table.schema))
                ticks.append(chunk.ticks[local])
        if not tables:
            return pa.table({}), np.empty(0, np.int64), places.astype(np.int32).reshape(rows.shape)
        return (
            pa.concat_tables(tables).combine_chunks(),
            np.concatenate(ticks),
            places.astype(np.int32).reshape(rows.shape),
        )

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk in self._chunks)

    def dump(self, writer: Writer) -> list[Any]:
        """Store everything; `load` takes what this returns."""
        return [self._next, [[c.base, writer.add_table(c.table), writer.add_array(c.ticks)] for c in self._chunks]]

    @classmethod
    def load(cls, reader: Reader, head: list[Any]) -> RowStore:
        """What `dump` stored."""
        store = cls()
        store._next, chunks = head
        for base, table, number in chunks:
            ticks = reader.array(number)
            store._chunks.append(_Chunk(base, reader.table(table), ticks))
        return store
