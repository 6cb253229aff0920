"""The operator of a row pattern: holds rows until their matches are decided, and returns those.

A match is decided when no row that may still come can change it. Rows of a partition leave when no match that is not
decided can begin with them, or read them by PREV.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.engines.rows.finder import Finder
from ouzel.engines.rows.frames import SortedRows, evaluated, row_order
from ouzel.engines.rows.measures import MatchView, written
from ouzel.engines.rows.plan import RowPlan
from ouzel.engines.rows.suffixes import suffix_view
from ouzel.engines.rows.tables import Matches, Partitions, RowEvents
from ouzel.engines.rows.walk import by_key
from ouzel.kernels.order import gather
from ouzel.lang import row_syntax
from ouzel.runtime.buffer import LATEST, Block, OpenKey, StreamBuffer, chosen
from ouzel.runtime.codes import is_mostly_dead
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import NO_TICKS, Answer, StreamOperator
from ouzel.runtime.problems import shown_time
from ouzel.runtime.staging import KeyStager
from ouzel.runtime.values import Column, empty_table, valids

# The key of rows without PARTITION BY, or with null in its only column.
_NO_VALUE = 0


class RowStager(KeyStager):
    """Gives each row the code of its partition. Null is a value like others."""

    def __init__(self, plan: RowPlan) -> None:
        super().__init__()
        self._expressions = [column.expression for column in plan.query.partition]

    def stage(self, table: pa.Table, ticks: np.ndarray) -> tuple[np.ndarray, Block[Any]]:
        """All rows."""
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
        """The values of a key, without what says where nulls were."""
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
        nothing = SortedRows.of(empty_table(layout.schema))
        none = np.zeros(0, np.int64)
        no_matches = Matches(none, none, none, none, np.zeros(0, np.int32))
        self.schema = written(plan, nothing, MatchView(plan, nothing, no_matches)).schema

    @property
    def timer(self) -> int | None:
        """The tick at which the window of a row ends whose match is not decided."""
        return self._timer

    @property
    def statistics(self) -> dict[str, int]:
        """Rows whose match is not decided count as runs."""
        events, count = self._buffer.events, self._buffer.count
        return {"runs": int(np.count_nonzero(~events.is_tried[:count]))}

    def open_by_key(self, watermark: int) -> list[OpenKey]:
        """The partitions of all held rows: their values, the number of rows, the time of the oldest."""
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
        return {**super().dump(writer), "timer": self._timer}

    # ── Reading ────────────────────────────────────────────────────────────────────────────────────

    def _read(self, ready: Block[RowEvents] | None, until: int) -> Answer:
        buffer = self._buffer
        before = buffer.count
        if ready is not None:
            self._take_in(ready)
        elif not before or (until < LATEST and (self._timer is None or self._timer > until)):
            return Answer(empty_table(self.schema), NO_TICKS, NO_TICKS)
        slots, partitions = self._touched(before, until)
        rows = self._sorted(slots, partitions.bounds)
        finder = Finder(self._plan, rows, partitions, until, lambda row: self._shown(slots[row], rows, row))
        is_whole = before == 0 and until == LATEST
        view = suffix_view(self._plan, rows, finder.can) if is_whole else None
        table = written(self._plan, rows, view or MatchView(self._plan, rows, finder.matches()))
        if view is not None:
            partitions.start[:] = partitions.known
        self._leave(slots, partitions, until)
        return Answer(table, NO_TICKS, NO_TICKS)

    def _take_in(self, ready: Block[RowEvents]) -> None:
        """Make rows live, in the order of ORDER BY. They come after all live ones."""
        buffer = self._buffer
        table, _, places = buffer.store.fetch(ready.rows)
        order = row_order(self._plan.query, SortedRows.chosen(table, places))
        if order is not None:
            ready = chosen(ready, order)
        buffer.append(ready)

    def _touched(self, before: int, until: int) -> tuple[np.ndarray, Partitions]:
        """The slots of all rows of the partitions in which something may be decided, one partition behind the other."""
        events, count = self._buffer.events, self._buffer.count
        keys = events.key[:count]
        codes = self._stager.keys.count + 1
        among = self._among(before, until) if before else None
        order, bounds = by_key(np.ascontiguousarray(keys if among is None else keys[among]), codes)
        slots = order if among is None else among[order]
        bounds = bounds[np.concatenate([[True], np.diff(bounds) > 0])] if len(slots) else np.zeros(1, np.int64)
        firsts, ends = bounds[:-1], bounds[1:]
        complete = np.full(len(firsts), until == LATEST)
        known = np.where(complete, ends, ends - self._plan.rows_after)
        start = firsts.copy()
        if before:
            tried = np.concatenate([[0], np.cumsum(events.is_tried[slots])])
            start += tried[ends] - tried[firsts]
        opening = slots[firsts]
        # The first row of a partition comes when no other one is live.
        events.is_first[opening[opening >= before]] = True
        origin = np.where(events.is_first[opening], firsts, -1)
        return slots, Partitions(bounds, known, origin, start, complete)

    def _among(self, before: int, until: int) -> np.ndarray:
        """The slots of the partitions that have new rows, or rows whose match may be decided now."""
        events, count = self._buffer.events, self._buffer.count
        keys = events.key[:count]
        touched = np.zeros(self._stager.keys.count + 1, bool)
        touched[keys[before:]] = True
        open_rows = np.flatnonzero(~events.is_tried[:before])
        window = self._plan.query.window
        if until == LATEST:
            touched[keys[open_rows]] = True
        elif window is not None:
            assert isinstance(window, int)
            touched[keys[open_rows[events.end[open_rows] <= until + 1 - window]]] = True
        return np.flatnonzero(touched[keys]).astype(np.int32)

    def _sorted(self, slots: np.ndarray, bounds: np.ndarray) -> SortedRows:
        buffer = self._buffer
        table, _, places = buffer.store.fetch(gather(buffer.rows, slots))
        return SortedRows.chosen(table, places, bounds)

    def _leave(self, slots: np.ndarray, partitions: Partitions, until: int) -> None:
        """Evict the rows that no match can read any more, and set the timer."""
        buffer = self._buffer
        if until == LATEST:
            buffer.clear()
        else:
            place = np.arange(len(slots))
            start = np.repeat(partitions.start, np.diff(partitions.bounds))
            buffer.events.is_tried[slots] = place < start
            dead = slots[place < start - self._plan.rows_before]
            if len(dead):
                kept = np.ones(buffer.count, bool)
                kept[dead] = False
                buffer.keep(np.flatnonzero(kept))
        held = buffer.entries
        if is_mostly_dead(buffer.store.rows - held, buffer.store.rows) or not held:
            buffer.keep_rows()
        self._timer = self._next_close(until)
        self._compact_codes()

    def _next_close(self, until: int) -> int | None:
        window = self._plan.query.window
        if window is None or until == LATEST:
            return None
        assert isinstance(window, int)
        events, count = self._buffer.events, self._buffer.count
        ticks = events.end[:count][~events.is_tried[:count]]
        ticks = ticks[ticks > until + 1 - window]
        return min(int(ticks.min()) + window - 1, LATEST - 1) if len(ticks) else None

    def _shown(self, slot: int, rows: SortedRows, row: int) -> str:
        """A row in words: by its number in a table, by its time in a stream."""
        if self._plan.query.time is None:
            return f"row {rows.input_row(row) + 1:,} of the input"
        return f"the row at time {shown_time(int(self._buffer.events.end[slot]), self._layout)}"

    def _evict(self, until: int) -> None:
        """Rows leave by what is decided, not by time."""

    def _rebase(self, dead: int, used: int) -> None:
        """No array refers to slots."""

    def _rekey(self, renamed: np.ndarray) -> None:
        """No other array has keys."""


def _room(capacity: int) -> RowEvents:
    return RowEvents(
        np.zeros(capacity, np.int32), np.zeros(capacity, np.int64), np.zeros(capacity, bool), np.zeros(capacity, bool)
    )
