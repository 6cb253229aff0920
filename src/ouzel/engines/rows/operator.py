"""The operator of a row pattern. It holds rows until their matches are decided, and returns the decided matches.

A match is decided when no later row can change it. A row is evicted when every match that begins with it or reads it by
PREV is decided.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.engines.rows.finder import Finder
from ouzel.engines.rows.frames import SortedRows, evaluated, row_order
from ouzel.engines.rows.measures import MatchView, written
from ouzel.engines.rows.overlaps import suffix_view
from ouzel.engines.rows.partitions import first_undecided, kept_slots, mark_tried, touched
from ouzel.engines.rows.plan import RowPlan
from ouzel.engines.rows.tables import Matches, Partitions, RowEvents
from ouzel.kernels.order import gather
from ouzel.lang import row_syntax
from ouzel.runtime.buffer import LATEST, Block, OpenKey, StreamBuffer, chosen, expiry_bound
from ouzel.runtime.codes import is_mostly_dead
from ouzel.runtime.inbox import SmallBatch
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import NO_TICKS, Answer, StreamOperator
from ouzel.runtime.problems import shown_time
from ouzel.runtime.staging import KeyStager
from ouzel.runtime.values import Column, empty_table, valids

# The key of rows without PARTITION BY, or with null in its only column.
_NO_VALUE = 0


class RowStager(KeyStager):
    """Gives each row the code of its partition. Null is a value like any other."""

    def __init__(self, plan: RowPlan) -> None:
        super().__init__()
        self._expressions = [column.expression for column in plan.query.partition]

    def stage(self, table: pa.Table, ticks: np.ndarray) -> tuple[np.ndarray, Block[Any]]:
        """(indexes, events) of all rows: a row pattern filters none."""
        count = table.num_rows
        places = np.arange(count, dtype=np.int32)
        return places, Block(places, RowEvents(self._keys(table), ticks, np.zeros(count, bool), np.zeros(count, bool)))

    def _keys(self, table: pa.Table) -> np.ndarray:
        if not self._expressions:
            return np.full(table.num_rows, _NO_VALUE, np.int32)
        columns = evaluated(self._expressions, table)
        if len(columns) == 1:
            codes = self.keys.encode(columns)
            return codes if codes.min(initial=_NO_VALUE) >= _NO_VALUE else np.maximum(codes, _NO_VALUE)
        # A row with a null has no code, so one more column says where nulls were.
        nulls = np.zeros(table.num_rows, np.int64)
        filled: list[Column] = []
        for number, column in enumerate(columns):
            if column.null_count:
                nulls |= (~valids(column)).astype(np.int64) << number
                column = pc.fill_null(column, _any_value(column))
            filled.append(column)
        return self.keys.encode([*filled, pa.array(nulls)])

    def values(self, codes: tuple[int | str, ...]) -> tuple[int | str, ...]:
        """The values of a key. Flags that mark nulls are removed."""
        return codes[: len(self._expressions)]


def _any_value(column: Column) -> pa.Scalar:
    if pa.types.is_null(column.type):
        return pa.scalar(0)
    return pc.drop_null(column)[0] if column.null_count < len(column) else _zero(column.type)


def _zero(kind: pa.DataType) -> pa.Scalar:
    text = pa.types.is_large_string(kind) or pa.types.is_string(kind)
    return pa.scalar("" if text else b"" if pa.types.is_large_binary(kind) else 0, kind)


class RowOperator(StreamOperator[RowEvents]):
    """A row pattern over one stream."""

    _plan: RowPlan
    _stager: RowStager

    def __init__(self, plan: RowPlan, layout: Layout, limits: Limits) -> None:
        query = plan.query
        all_columns = query.output is not row_syntax.Rows.ONE
        buffer = StreamBuffer(
            _room,
            order=lambda block: None,
            columns=[name for name in layout.schema.names if all_columns or name in query.columns],
        )
        super().__init__(plan, layout, limits, RowStager(plan), buffer, {})
        self._timer: int | None = None
        self._dead = 0  # held rows that no match can read any more
        nothing = SortedRows.of(empty_table(layout.schema))
        none = np.zeros(0, np.int64)
        no_matches = Matches(none, none, none, none, np.zeros(0, np.int32))
        self.schema = written(plan, nothing, MatchView(plan, nothing, no_matches)).schema

    @property
    def timer(self) -> int | None:
        """The tick at which the window of some undecided match ends; None if there is none."""
        return self._timer

    @property
    def statistics(self) -> dict[str, int]:
        """Counters. Rows whose match is not decided are counted as runs."""
        events, count = self._buffer.events, self._buffer.count
        return {"runs": int(np.count_nonzero(~events.is_tried[:count]))}

    @property
    def held_events(self) -> int:
        """The number of pending rows, and of live ones that a match may read."""
        return self._buffer.held - self._dead

    def open_by_key(self, watermark: int) -> list[OpenKey]:
        """Each partition with held rows: its values, the number of rows, and the time of the oldest one."""
        self._compact()
        found = self._buffer.open_by_key(np.iinfo(np.int64).min, self._stager.keys)
        return [(self._stager.values(values), rows, oldest) for values, rows, oldest in found]

    def load(self, reader: Any, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        super().load(reader, head)
        # Columns of a snapshot begin anywhere in its bytes, and kernels read whole words: copy them.
        self._buffer.keep_rows()
        self._timer = head["timer"]

    def dump(self, writer: Any) -> dict[str, Any]:
        """Store everything; returns what `load` needs."""
        self._compact()
        return {**super().dump(writer), "timer": self._timer}

    def stage_small(self, batch: SmallBatch) -> None:
        """Add rows of small pushes, which have already been parsed."""
        places, block = self._stager.stage(batch.table, batch.ticks)
        rows = self._keep_rows(batch, batch.first + places, len(places)) + block.rows.astype(np.int64)
        self._buffer.pending.append(replace(block, rows=rows))
        self._check_held()

    # ── Reading ────────────────────────────────────────────────────────────────────────────────────

    def _read(self, ready: Block[RowEvents] | None, until: int) -> Answer:
        buffer = self._buffer
        before = buffer.count
        if ready is not None:
            self._take_in(ready)
        elif not before or (until < LATEST and (self._timer is None or self._timer > until)):
            return self.nothing
        slots, partitions = self._touched(before, until)
        rows = self._sorted(slots, partitions.bounds)
        finder = Finder(self._plan, rows, partitions, until, lambda row: self._shown(slots[row], rows, row))
        is_whole = before == 0 and until == LATEST
        view = suffix_view(self._plan, rows, finder.can) if is_whole else None
        if view is not None:
            table = written(self._plan, rows, view)
            partitions.start[:] = partitions.known
        else:
            table = self._written(rows, finder.matches())
        self._leave(slots, partitions, until)
        return Answer(table, NO_TICKS, NO_TICKS)

    def _written(self, rows: SortedRows, matches: Matches) -> pa.Table:
        if not len(matches.start) and self._plan.query.output is not row_syntax.Rows.WITH_UNMATCHED:
            return self.nothing.table
        return written(self._plan, rows, MatchView(self._plan, rows, matches))

    def _take_in(self, ready: Block[RowEvents]) -> None:
        """Make rows live, in the order of ORDER BY. All of them come after the live rows."""
        buffer = self._buffer
        times = ready.events.end
        if self._plan.query.is_by_time and (times[1:] > times[:-1]).all():
            return buffer.append(ready)
        table, _, places = buffer.store.fetch(ready.rows)
        order = row_order(self._plan.query, SortedRows.chosen(table, places))
        if order is not None:
            ready = chosen(ready, order)
        return buffer.append(ready)

    def _touched(self, before: int, until: int) -> tuple[np.ndarray, Partitions]:
        """The slots of all rows of some partitions, one partition after the other: those with new rows, and those in
        which a match may be decided now.
        """
        buffer, window = self._buffer, self._plan.query.window
        closed = LATEST if isinstance(window, float) or until == LATEST else expiry_bound(until, window)
        slots, bounds, start, origin = touched(
            buffer.events, buffer.count, before, closed, self._stager.keys.count + 1, self._plan.rows_before
        )
        complete = np.full(len(start), until == LATEST)
        known = bounds[1:] - np.where(complete, 0, self._plan.rows_after)
        return slots, Partitions(bounds, known, origin, start, complete)

    def _sorted(self, slots: np.ndarray, bounds: np.ndarray) -> SortedRows:
        buffer = self._buffer
        table, _, places = buffer.store.fetch(gather(buffer.rows, slots))
        return SortedRows.chosen(table, places, bounds)

    def _leave(self, slots: np.ndarray, partitions: Partitions, until: int) -> None:
        """Note the rows that no match can read any more, evict them if they are many, and set the timer."""
        buffer = self._buffer
        if until == LATEST:
            buffer.clear()
            self._dead = 0
        else:
            self._dead += mark_tried(buffer.events, slots, partitions, self._plan.rows_before)
            if self._dead == buffer.count or is_mostly_dead(self._dead, buffer.count):
                self._compact()
        held = buffer.entries
        if is_mostly_dead(buffer.store.rows - held, buffer.store.rows) or not held:
            buffer.keep_rows()
        self._timer = self._next_close(until)
        self._compact_codes()

    def _compact(self) -> None:
        """Evict the rows that no match can read any more."""
        if self._dead:
            buffer = self._buffer
            keys = self._stager.keys.count + 1
            buffer.keep(kept_slots(buffer.events, buffer.count, keys, self._plan.rows_before))
            self._dead = 0

    def _next_close(self, until: int) -> int | None:
        window = self._plan.query.window
        if window is None or until == LATEST:
            return None
        assert isinstance(window, int)
        events, count = self._buffer.events, self._buffer.count
        slot = first_undecided(events, count, until + 1 - window)
        return min(int(events.end[slot]) + window - 1, LATEST - 1) if slot < count else None

    def _shown(self, slot: int, rows: SortedRows, row: int) -> str:
        """A row as text for messages: its number in a table, its time in a stream."""
        if self._plan.query.time is None:
            return f"row {rows.input_row(row) + 1:,} of the input"
        return f"the row at time {shown_time(int(self._buffer.events.end[slot]), self._layout)}"

    def _evict(self, until: int) -> None:
        """Do nothing: rows are evicted when matches are decided, not by time."""

    def _rebase(self, dead: int, used: int) -> None:
        """Do nothing: no array refers to slots."""

    def _rekey(self, renamed: np.ndarray) -> None:
        """Do nothing: only the buffer has keys."""


def _room(capacity: int) -> RowEvents:
    return RowEvents(
        np.zeros(capacity, np.int32), np.zeros(capacity, np.int64), np.zeros(capacity, bool), np.zeros(capacity, bool)
    )
