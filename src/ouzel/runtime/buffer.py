"""The events that one operator holds: pending until the watermark passes them, then live until they expire. A row store
holds their rows, which are read when a match completes.

Every kernel has a named tuple of arrays for its events. The last axis of each array, except `flagged`, has one entry
for each event; arrays that a query does not need have length 0. All these tuples have an array `key`. This lets one
buffer serve all engines.

Rows have increasing numbers that are never reused. A large batch becomes a chunk as it is. A chunk is evicted when its
newest event has left the window. Adjacent chunks of about the same size are merged, so that there are few. Small
batches are appended to the last chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from ouzel.kernels.arrays import enlarged
from ouzel.kernels.events import EVERY_KEY
from ouzel.kernels.order import first_disorder, gather, stable_order
from ouzel.runtime.codes import Coder, is_mostly_dead, may_be_mostly_dead
from ouzel.runtime.frames import take
from ouzel.runtime.inbox import GrowingRows
from ouzel.runtime.snapshot import Reader, Writer, dump_arrays, load_arrays
from ouzel.runtime.values import one_array

EARLIEST = -(2**63)
# Batches of up to so many rows are small.
_SMALL_ROWS = 4096


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
        self._table: pa.Table | None = None
        # The expired rows are looked for at so many rows.
        self.swept_at = _SMALL_ROWS

    @property
    def rows(self) -> int:
        return self.growing.count

    @property
    def newest(self) -> int:
        return self.growing.newest

    @property
    def table(self) -> pa.Table:
        if self._table is None:
            self._table = self.growing.whole()
        return self._table

    @property
    def ticks(self) -> np.ndarray:
        return self.growing.appended_ticks[: self.growing.count]

    def append(self, arrays: Sequence[pa.Array], rows: np.ndarray, ticks: np.ndarray) -> None:
        """Append some rows of the columns. `ticks` has a tick for every row of the columns, not only for these rows."""
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
        """Append the first `count` of `rows`, which the source has read. `ticks` has a tick for every row of the
        source.
        """
        self.growing.append(source, columns, rows, count, ticks)
        self._table = None

    def evict(self, expiry_bound: int) -> None:
        """Evict the oldest rows once most rows are expired."""
        if self.rows < self.swept_at:
            return
        first = int(np.argmax(self.ticks > expiry_bound))
        if 2 * first > self.rows:
            left = GrowingRows.of(self.growing.schema)
            assert left is not None
            rows = np.arange(first, self.rows, dtype=np.int32)
            left.append(self.growing, self.growing.all_columns, rows, len(rows), self.growing.appended_ticks)
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
        """Store some rows. Returns the number of the first one."""
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
        """Store some columns of some rows. Returns the number of the first row. `ticks` has a tick for every row of the
        table.
        """
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
        """Store some columns of the first `count` of `rows`, which the source has read. Returns the number of the first
        row.
        """
        base = self._next
        last = self._open(None if self._reads(source, columns) else [source.types[column] for column in columns], 0)
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

    def _reads(self, source: GrowingRows, columns: Sequence[int]) -> bool:
        """Whether the last rows came from these columns of the source, so that the types need no check."""
        last = self._chunks[-1] if self._chunks else None
        return isinstance(last, _OpenChunk) and last.growing.has_read(source, columns)

    def _open(self, types: list[pa.DataType] | None, size: int) -> _OpenChunk | None:
        """The open chunk, if rows with these column types and texts of `size` bytes can be appended to it; otherwise
        None.
        """
        last = self._chunks[-1] if self._chunks else None
        if not isinstance(last, _OpenChunk) or last.base + last.rows != self._next:
            return None
        growing = last.growing
        return last if (types is None or types == growing.types) and growing.may_take(size) else None

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
    def open_rows(self) -> tuple[GrowingRows, int] | None:
        """(all rows, the number of the first), if all rows came in small pushes; otherwise None."""
        only = self._chunks[0] if len(self._chunks) == 1 else None
        return (only.growing, only.base) if isinstance(only, _OpenChunk) else None

    @property
    def is_whole(self) -> bool:
        """Whether all rows are in one table."""
        return len(self._chunks) == 1

    def evict(self, expiry_bound: int) -> None:
        """Evict the chunks in which no event is after tick `expiry_bound`."""
        if any(chunk.newest <= expiry_bound for chunk in self._chunks):
            self._chunks = [chunk for chunk in self._chunks if chunk.newest > expiry_bound]
        if self._chunks and isinstance(last := self._chunks[-1], _OpenChunk):
            last.evict(expiry_bound)

    def keep(self, rows: np.ndarray) -> np.ndarray:
        """Evict all rows except these. Returns their new numbers."""
        wanted, places = np.unique(rows, return_inverse=True)
        table, ticks, found = self.fetch(wanted)
        columns = [take(one_array(column), found) for column in table.columns]
        self._chunks = []
        base = self.append(pa.table(columns, schema=table.schema), ticks[found])
        numbers: np.ndarray = base + places.reshape(rows.shape)
        return numbers

    def fetch(self, rows: np.ndarray) -> tuple[pa.Table, np.ndarray, np.ndarray]:
        """(table, ticks, places): a table that holds some rows, the event times of its rows, and the index in it of
        each of `rows`.
        """
        if len(self._chunks) == 1:
            chunk = self._chunks[0]
            places = rows - chunk.base if chunk.base else rows
            return chunk.table, chunk.ticks, places.astype(np.int32)
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
        """The row store that `dump` has stored."""
        store = cls()
        store._next, chunks = head
        for base, table, number in chunks:
            ticks = reader.array(number)
            store._chunks.append(_Chunk(base, reader.table(table), ticks))
        return store


LATEST = 2**63 - 1

NO_ROWS = np.empty(0, np.int64)
_SLOTS_FIRST = 256

# A named tuple of arrays.
Events = TypeVar("Events", bound=Any)
# The values of a key, the number of its events, the time of the oldest.
OpenKey = tuple[tuple[int | str, ...], int, int]


@dataclass(frozen=True, slots=True)
class Block(Generic[Events]):
    """Staged events. `rows` are the numbers of their rows; -1 for an event without a row. If no event has a row, `rows`
    may have length 0.

    `ties` holds the tie-break columns of simultaneous events; those of an event are in row `tie_rows`. If the events
    are already written after the live events, the block has only their number, `in_place`.
    """

    rows: np.ndarray
    events: Events
    ties: pa.Table | None = None
    tie_rows: np.ndarray = field(default_factory=lambda: NO_ROWS)
    in_place: int = 0

    @property
    def count(self) -> int:
        return self.in_place or len(self.events.key)


def by_time(block: Block[Any]) -> np.ndarray | None:
    """The order by end, then start; None if events are already in that order."""
    events = block.events
    if events.start is not events.end:
        return np.lexsort((events.start, events.end)).astype(np.int32)
    return None if first_disorder(events.end) < 0 else stable_order(events.end)


class StreamBuffer(Generic[Events]):
    """Pending and live events, and their rows.

    The function `room` makes empty arrays for a number of slots. The first `reserved` slots belong to the kernel.
    `time` names the array of times at which events are ready and expire. The function `order` sorts events in stream
    order. With `several_per_event`, adjacent entries with the same row are one event. Without `keeps_rows`, no rows are
    stored.
    """

    def __init__(
        self,
        room: Callable[[int], Events],
        *,
        time: str = "end",
        reserved: int = 0,
        order: Callable[[Block[Events]], np.ndarray | None] = by_time,
        columns: Sequence[str] = (),
        several_per_event: bool = False,
        keeps_rows: bool = True,
    ) -> None:
        self.keeps_rows = keeps_rows
        self._room = room
        self._time = time
        self._reserved = reserved
        self._order = order
        # The columns whose values are needed once an event is in a match.
        self.columns = list(columns)
        self._several_per_event = several_per_event
        self.store = RowStore()
        self._pending: list[Block[Events]] = []
        # Pending events that are written behind the live ones, in order: their number, and the time of the last.
        self._tail = 0
        self._tail_until = EARLIEST
        self.events = room(reserved)
        self.rows = np.full(reserved, -1, np.int64)
        # The number of slots in use.
        self.count = reserved

    # ── Taking events in ───────────────────────────────────────────────────────────────────────────

    @property
    def pending(self) -> list[Block[Events]]:
        """The pending events."""
        if self._tail:
            first, last = self.count, self.count + self._tail
            tail = cut(Block(self.rows, self.events), first, last)
            self._pending.append(replace(tail, rows=tail.rows.copy(), events=_map(tail.events, np.copy)))
            self._tail = 0
        return self._pending

    @pending.setter
    def pending(self, blocks: list[Block[Events]]) -> None:
        self._pending = blocks
        self._tail = 0

    @property
    def takes_tail(self) -> bool:
        """Whether new events may be written directly after the live events, because nothing else is pending."""
        return not self._pending and not self._tail

    def reserve(self, count: int) -> None:
        """Make room for this many events after the live ones."""
        if self.count + count > self.capacity:
            self._move(0, max(self.count + count, 2 * self.count, _SLOTS_FIRST))
        if self.keeps_rows and len(self.rows) < self.capacity:
            self.rows = enlarged(self.rows, self.capacity)

    def add_tail(self, count: int, until: int, *, in_order: bool) -> None:
        """Add events that have been written directly after the live ones. The last one has the time `until`."""
        self._tail, self._tail_until = count, until
        if count and not in_order:
            assert self.pending

    def add(
        self, block: Block[Events], places: np.ndarray, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool
    ) -> None:
        """Add a block of events. Its `rows` count among the rows of `table` at `places`. With `zero_copy`, the table
        itself is kept.
        """
        if zero_copy:
            base = self.store.append(table, ticks)
        else:
            base = self.store.append_rows(table, self.columns, places, ticks)
        rows = (places[block.rows] if zero_copy and len(places) else block.rows).astype(np.int64)
        rows += base
        rows[block.rows < 0] = -1
        self.pending.append(replace(block, rows=rows))

    def add_counted(self, events: Events) -> None:
        """Add events without storing rows."""
        self.pending.append(Block(NO_ROWS, events))

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return len(self.events.key)

    @property
    def live(self) -> int:
        """The number of slots with live events."""
        return self.count - self._reserved

    @property
    def entries(self) -> int:
        """The number of slots of pending and live events. An event may take several slots."""
        held = self.count - self._reserved + self._tail
        return held + sum(block.count for block in self._pending) if self._pending else held

    @property
    def held(self) -> int:
        """The number of pending and live events."""
        if not self._several_per_event:
            return self.entries
        blocks = [self.rows[self._reserved : self.count], *(block.rows for block in self.pending)]
        return sum(int(np.count_nonzero(rows[1:] != rows[:-1])) + 1 for rows in blocks if len(rows))

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def take_ready(self, until: int) -> Block[Events] | None:
        """The pending events at or before tick `until`, in stream order. They are no longer pending."""
        if self._tail and self._tail_until <= until:
            return Block(NO_ROWS, self.events, in_place=self._tail)
        if not self.pending:
            return None
        block = joined(self.pending)
        times = getattr(block.events, self._time)
        self.pending = []
        if until < LATEST and len(times) and times.max() > until:
            is_ready = times <= until
            ready = is_ready.nonzero()[0]
            self.pending = [_set_aside(block, (~is_ready).nonzero()[0]) if len(ready) else block]
            if not len(ready):
                return None
            # Live events are copied to; without any, the block itself becomes live.
            in_front = self.count and ready[-1] == len(ready) - 1
            block = cut(block, 0, len(ready)) if in_front else chosen(block, ready)
        order = self._order(block)
        return block if order is None else chosen(block, order)

    def append(self, block: Block[Events]) -> None:
        """Make events live. In stream order they must come after all live events."""
        if block.in_place:
            self.count += block.in_place
            self._tail = 0
            return
        if not self.count:
            self.events, self.rows, self.count = block.events, block.rows, block.count
            return
        total = self.count + block.count
        if total > self.capacity:
            self._move(0, max(total, 2 * self.count))
        self._write(block.events, block.rows, 0, block.count, self.count)
        self.count = total

    # ── Eviction ───────────────────────────────────────────────────────────────────────────────────

    def expired(self, expiry_bound: int) -> int:
        """The number of live events at or before a tick; 0 if they are too few to be worth evicting."""
        last = self.count - 1
        if last < self._reserved or (
            not may_be_mostly_dead(self.live) and getattr(self.events, self._time)[last] > expiry_bound
        ):
            return 0
        times = getattr(self.events, self._time)[self._reserved : self.count]
        return int(np.searchsorted(times, expiry_bound, side="right"))

    def evict_front(self, dead: int, rebase: Callable[[int, int], None]) -> bool:
        """Evict the `dead` oldest live events if that frees enough. Calls the kernel's `rebase(dead, count)` first.
        Returns whether it did.
        """
        if not ((dead == self.live and dead) or is_mostly_dead(dead, self.live)):
            return False
        rebase(dead, self.count)
        self._move(dead, self.count - dead)
        return True

    def keep(self, slots: np.ndarray) -> None:
        """Evict all slots except these, which must include those of the kernel."""
        self.events = _map(self.events, lambda array: array.take(slots, axis=-1))
        self.rows = self.rows[slots]
        self.count = len(slots)

    def clear(self) -> None:
        """Evict all live events, and shrink the arrays."""
        if self.capacity <= _SMALL_ROWS:
            self.count = self._reserved
        else:
            self._move(self.live, self._reserved)

    def keep_rows(self) -> None:
        """Evict rows that belong to no pending or live event. For engines in which rows do not expire by time."""
        live = self.rows[self._reserved : self.count]
        rows = np.concatenate([live, *(block.rows for block in self.pending)])
        rows[rows >= 0] = self.store.keep(rows[rows >= 0])
        ends = np.cumsum([len(live), *(block.count for block in self.pending)])
        live[:], *parts = np.split(rows, ends[:-1])
        self.pending = [replace(block, rows=part) for part, block in zip(parts, self.pending, strict=True)]

    def _move(self, dead: int, capacity: int) -> None:
        """Move the live events into new arrays, without the first `dead` events."""
        events, rows, reserved = self.events, self.rows, self._reserved
        left = self.live - dead
        self.events = self._room(capacity)
        self.rows = np.full(capacity if len(rows) or reserved else 0, -1, np.int64)
        if reserved:
            self._write(events, rows, 0, reserved, 0)
        self._write(events, rows, reserved + dead, left, reserved)
        self.count = reserved + left

    def _write(self, events: Events, rows: np.ndarray, first: int, count: int, at: int) -> None:
        """Copy events into live slots."""
        if len(self.rows):
            self.rows[at : at + count] = rows[first : first + count]
        target = self.events
        for name, read, written in zip(target._fields, events, target, strict=True):
            if name == "flagged":
                np.maximum(written, read, out=written)
            elif written.shape[-1] and not (name == "start" and written is target.end):
                written[..., at : at + count] = read[..., first : first + count]

    def compact(
        self, coder: Coder, name: str, row: int | None = None, also: Sequence[np.ndarray] = ()
    ) -> np.ndarray | None:
        """If most codes are unused, evict those that are neither in array `name` of a held event nor in `also`.

        The events get the new codes. Returns the new code of each old one; None if nothing was done.
        """
        if not coder.may_be_sparse or not coder.is_sparse(self.entries):
            return None
        arrays = [getattr(events, name) for events in self.blocks()]
        return coder.compact_lanes(arrays if row is None else [array[row] for array in arrays], also)

    # ── What is held ───────────────────────────────────────────────────────────────────────────────

    def blocks(self) -> list[Events]:
        """Live and pending events, as views."""
        return [part(self.events, self._reserved, self.count), *(block.events for block in self.pending)]

    @property
    def deadline(self) -> int | None:
        """The tick of the earliest pending event."""
        ticks = [getattr(block.events, self._time) for block in self.pending]
        return min((int(times.min()) for times in ticks if len(times)), default=None)

    def open_by_key(self, expiry_bound: int, keys: Coder) -> list[OpenKey]:
        """The keys of events after a tick. Events that may join every key, and events without a key, have the key
        ().
        """
        blocks = self.blocks()
        times = [getattr(events, self._time) for events in blocks]
        return open_by_key([events.key for events in blocks], times, expiry_bound, keys)

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; `load` takes what this returns."""
        live = Block(self.rows[: self.count], part(self.events, 0, self.count))
        return {
            "store": self.store.dump(writer),
            "live": _dump_block(live, writer),
            "pending": [_dump_block(block, writer) for block in self.pending],
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        self.store = RowStore.load(reader, head["store"])
        live = self._load_block(head["live"], reader)
        self.events, self.rows, self.count = live.events, live.rows, live.count
        self.pending = [self._load_block(block, reader) for block in head["pending"]]

    def _load_block(self, head: dict[str, Any], reader: Reader) -> Block[Events]:
        events = load_arrays(self._room(self._reserved), head["events"], reader)
        if head["points"]:
            events = events._replace(start=events.end)
        ties = None if head["ties"] is None else reader.table(head["ties"])
        return Block(reader.array(head["rows"]), events, ties, NO_ROWS if ties is None else np.arange(len(events.key)))


def expiry_bound(until: int, window: int | None) -> int:
    """The latest tick whose events can be in no match that completes after `until`. The tick after it also fits 64
    bits.
    """
    return EARLIEST if window is None else min(LATEST - 1, max(EARLIEST, until + 1 - window))


def open_by_key(
    keys: Sequence[np.ndarray], times: Sequence[np.ndarray], expiry_bound: int, coder: Coder
) -> list[OpenKey]:
    """For each key of events after a tick: its values, the number of its events, and the time of the oldest."""
    if not keys:
        return []
    key, time = np.concatenate(keys), np.concatenate(times)
    key, time = key[time > expiry_bound], time[time > expiry_bound]
    codes, places, counts = np.unique(key, return_inverse=True, return_counts=True)
    oldest = np.full(len(codes), LATEST)
    np.minimum.at(oldest, places, time)
    own = codes > EVERY_KEY
    values: list[tuple[int | str, ...]] = [()] * int((~own).sum())
    values += coder.values(codes[own]) if own.any() else []
    return list(zip(values, counts.tolist(), oldest.tolist(), strict=True))


def _map(events: Events, change: Callable[[np.ndarray], np.ndarray]) -> Events:
    """Apply a function to every array that has an entry for each event. If `start` is the same array as `end`, it stays
    the same.
    """
    count = len(events.key)
    points = getattr(events, "start", None) is getattr(events, "end", events)
    made = {
        name: change(array)
        for name, array in zip(events._fields, events, strict=True)
        if array.shape[-1] == count and name != "flagged" and not (points and name == "start")
    }
    if points:
        made["start"] = made["end"]
    changed: Events = events._replace(**made)
    return changed


def part(events: Events, first: int, last: int) -> Events:
    """The events from `first` to `last` - 1, as views."""
    return _map(events, lambda array: array[..., first:last])


def chosen(block: Block[Events], places: np.ndarray) -> Block[Events]:
    """The events of a block at some places, in this order."""
    return Block(
        block.rows[places] if len(block.rows) else block.rows,
        _map(block.events, lambda array: array.take(places, axis=-1)),
        block.ties,
        block.tie_rows if block.ties is None else block.tie_rows[places],
    )


def _set_aside(block: Block[Events], places: np.ndarray) -> Block[Events]:
    """The events of a block at some places, with their own rows of `ties` only, so that the other rows can be freed."""
    kept = chosen(block, places)
    if kept.ties is None:
        return kept
    return replace(kept, ties=kept.ties.take(pa.array(kept.tie_rows)), tie_rows=np.arange(kept.count))


def joined(blocks: Sequence[Block[Events]]) -> Block[Events]:
    """The events of several blocks, concatenated."""
    if len(blocks) == 1:
        return blocks[0]
    parts = [block.events for block in blocks]
    points = all(getattr(one, "start", None) is getattr(one, "end", one) for one in parts)
    made: dict[str, np.ndarray] = {}
    for name in parts[0]._fields:
        arrays = [getattr(one, name) for one in parts]
        if name == "flagged":
            made[name] = np.maximum.reduce(arrays)
        elif not (points and name == "start"):
            made[name] = np.concatenate(arrays, axis=-1)
    if points:
        made["start"] = made["end"]
    ties, tie_rows = None, NO_ROWS
    if blocks[0].ties is not None:
        ties = pa.concat_tables([block.ties for block in blocks])
        offsets = np.cumsum([0, *(block.ties.num_rows for block in blocks if block.ties is not None)])
        shifted = [block.tie_rows + offset for block, offset in zip(blocks, offsets, strict=False)]
        tie_rows = np.concatenate(shifted)
    return Block(np.concatenate([block.rows for block in blocks]), parts[0]._replace(**made), ties, tie_rows)


def cut(block: Block[Events], first: int, last: int) -> Block[Events]:
    """The events of a block from `first` to `last` - 1, without a copy."""
    rows = block.rows[first:last]
    return Block(rows, part(block.events, first, last), block.ties, block.tie_rows[first:last])


def _dump_block(block: Block[Any], writer: Writer) -> dict[str, Any]:
    events = block.events
    points = getattr(events, "start", None) is getattr(events, "end", events)
    ties = None if block.ties is None else writer.add_table(block.ties.take(pa.array(block.tie_rows)))
    stored = events._replace(start=events.end[:0]) if points else events
    return {"rows": writer.add_array(block.rows), "events": dump_arrays(stored, writer), "points": points, "ties": ties}
