"""Rows of small pushes: read straight into typed arrays, and staged together once an answer may be due.

An event completes a match only if the last component of some query takes its type. Until the watermark passes such an
event, or a deadline of a kernel, a small push has no answer, so its rows are checked and kept here. Everything that a
push may raise is decided when its rows are added: input in any other form than the known schema's own goes the long
way, which converts it or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.kernels.rows import NEWEST, NULLS, OLDEST, leading
from ouzel.runtime.growing import GrowingRows
from ouzel.runtime.layout import Layout

EARLIEST = -(2**63)
LATEST = 2**63 - 1
# Pushes of more rows than this are not small.
SMALL_ROWS = 1_000
# So many rows are gathered before they are staged, whether an answer is due or not.
_ROWS_MAX = 256
# The types of so many rows of a push are looked at; in a larger one some event is taken to complete a match.
_LOOKED_AT_MAX = 16


def _never_fails(type_: pa.DataType) -> bool:
    """Whether every value of a type can be computed with."""
    tests = (
        pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string,
        pa.types.is_large_string, pa.types.is_date32, pa.types.is_null,
    )  # fmt: skip
    return any(test(type_) for test in tests) or (pa.types.is_timestamp(type_) and type_.unit in ("us", "ns"))


class SmallBatch:
    """Some rows of small pushes, which are read at once, or copied to a table. Events up to the tick `until` are
    matched before any other event comes."""

    def __init__(self, source: GrowingRows, first: int, last: int, until: int) -> None:
        self.source = source
        self.first = first
        self.last = last
        self.until = until

    @cached_property
    def ticks(self) -> np.ndarray:
        """The times of the rows."""
        return self.source.ticks[self.first : self.last].copy()

    def tick(self, row: int) -> int:
        """The time of one row of the source."""
        return int(self.source.ticks[row])

    @cached_property
    def table(self) -> pa.Table:
        """A copy of the rows."""
        return self.source.table(self.first, self.last)


class Inbox:
    """Rows of the known schema that are not staged yet, in the order in which they came.

    `completing` are the types of events that may complete a match, None where all may.
    """

    def __init__(self, layout: Layout, completing: Collection[str] | None, *, gathers: bool) -> None:
        schema = layout.schema
        self._schema = schema
        time = schema.field(layout.time).type
        has_ticks = pa.types.is_int64(time) or pa.types.is_timestamp(time)
        reads = has_ticks and all(_never_fails(field.type) for field in schema)
        self._read = GrowingRows.of(schema, layout.time) if reads else None
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
        """How many rows are gathered."""
        return 0 if self._read is None else self._read.count

    def would_overflow(self, count: int) -> bool:
        """Whether so many more rows may pass a limit that the gathered ones, once read, would make room for."""
        return self._is_behind and self.rows + count > self._room

    # ── Taking rows in ─────────────────────────────────────────────────────────────────────────────

    def add(self, events: Any, watermark: int) -> bool:
        """Take a push in, unless it has to go the long way: other types, unknown columns, late or no events."""
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
        if memory[OLDEST] <= watermark:
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
        """Whether rows are gathered and none of them, nor anything held, gives an answer at a watermark."""
        self._is_behind = (
            0 < self.rows <= min(self._room, _ROWS_MAX)
            and self._unknown_until == EARLIEST
            and watermark < self._deadline
            and (not self._due or watermark < self._due[0])
            and self._gathers
        )
        return self._is_behind

    def ready(self, until: int) -> SmallBatch:
        """The rows to stage before all events up to a tick are matched: those up to that tick, if the others came after
        them and pass no limit, or all. An event that is not ready would be held, and moved once more."""
        read = self._read
        assert read is not None
        last = read.count if read.count > self._held_room else int(leading(read.rows, until))
        return SmallBatch(read, 0, last, until)

    def all(self) -> SmallBatch:
        """All rows, to stage before other events."""
        read = self._read
        assert read is not None
        return SmallBatch(read, 0, read.count, EARLIEST)

    def taken(self, batch: SmallBatch) -> None:
        """A batch of `ready` is staged."""
        batch.source.drop(batch.last)

    def staged(self, newest: int) -> None:
        """Other rows were staged, up to a tick."""
        self._unknown_until = max(self._unknown_until, newest)

    def passed(self, watermark: int, deadline: int | None, room: int, held_room: int) -> None:
        """Everything up to a watermark is answered. `deadline` is when a kernel gives rows by time alone, `room` how
        many events may come, and `held_room` how many may be held, before a limit must be checked."""
        due = self._due
        while due and due[0] <= watermark:
            heappop(due)
        if watermark >= self._unknown_until:
            self._unknown_until = EARLIEST
        self._deadline = LATEST if deadline is None else deadline
        self._room = room
        self._held_room = held_room
        self._is_behind = False
