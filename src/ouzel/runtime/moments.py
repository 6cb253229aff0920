"""The order of simultaneous events (docs/semantics.md, "Total order" and "Stream order"): `Moments` holds events until
their order is known, and numbers the events of each tick. `stream_order` sorts the events that a kernel reads.

Events wait until the watermark passes their tick. If no delay is allowed (`at_once`), they are numbered on arrival, and
an event at or before the last one is late.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ouzel.kernels.order import first_disorder, stable_order, ties
from ouzel.kernels.rows import number_moments
from ouzel.runtime.inbox import GrowingRows
from ouzel.runtime.layout import Layout, MomentScale, ticks_of
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import numbers, one_array, ranks

# How many ticks a stream may last after its first events: of microseconds 35 years, of nanoseconds 4.
_REACH_BITS = 50
_REACH_BITS_NANOSECONDS = 57
# How many times as many events of one tick may come later as came first.
_SPARE_BITS = 3


class Ready(NamedTuple):
    """Events whose order is known, with their moments."""

    table: pa.Table
    moments: np.ndarray
    zero_copy: bool  # whether the table itself may be kept


class Moments:
    """The events of one stream that wait for their order, and the last event that has been numbered."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.at_once = False
        self._held: list[tuple[pa.Table, np.ndarray]] = []
        # Once there is a scale: no more events of one tick wait than this.
        self._most_held = 0
        self._zero_copy = False
        self._last: tuple[int, int] | None = None  # the tick and the place of the last event
        # The row of the last event, or its values of order= if it came in a small push.
        self._last_row: pa.Table | tuple[int, ...] = layout.schema.empty_table()
        # The columns of order= in small pushes, and their places among the numbers.
        self._small_columns: list[int] = []
        self._small_order: np.ndarray | None = None

    @property
    def held(self) -> int:
        """The number of waiting events."""
        return sum(len(ticks) for _, ticks in self._held)

    @property
    def earliest(self) -> int | None:
        """The tick of the earliest waiting event."""
        return min((int(ticks.min()) for _, ticks in self._held), default=None)

    @property
    def newest(self) -> tuple[int, int] | None:
        """The tick and the place of the last numbered event, if events are numbered on arrival."""
        return self._last if self.at_once else None

    def add(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool) -> None:
        """Add events that are not late."""
        if len(ticks):
            self._held.append((table, ticks))
            self._zero_copy = zero_copy

    def check_room(self, table: pa.Table, ticks: np.ndarray, scale: MomentScale) -> None:
        """Raise an error if events cannot have moments on this scale. Called before they are added."""
        if not len(ticks):
            return
        if self.at_once:
            taken = 0 if self._last is None else self._last[1] + 1
            has_room = taken + len(ticks) <= scale.half or taken + _most_of_one_tick(ticks) <= scale.half
        else:
            most = _most_of_one_tick(ticks)
            if self._most_held + most > scale.half:
                held = np.concatenate([ticks[:0], *(ticks for _, ticks in self._held)])
                self._most_held = _most_of_one_tick(held)
                table, ticks = pa.concat_tables([*(table for table, _ in self._held), table]), np.append(held, ticks)
            self._most_held += most
            has_room = self._most_held <= scale.half
        scale.moments(ticks, *(() if has_room else self._places(table, ticks)))

    def is_late(self, table: pa.Table, ticks: np.ndarray) -> np.ndarray:
        """Which events are at or before the last numbered event."""
        if not self.at_once or self._last is None:
            return np.zeros(len(ticks), bool)
        late: np.ndarray = ticks < self._last[0]
        tied = np.flatnonzero(ticks == self._last[0])
        if len(tied) and not self._layout.by_arrival:
            both = pa.concat_tables([self.last_row, table.take(pa.array(tied))])
            everyone = np.arange(len(tied) + 1)
            places = _dense(np.zeros(len(everyone), np.int64), self._ranks(both, everyone))
            late[tied] = places[1:] <= places[0]
        return late

    @property
    def last_row(self) -> pa.Table:
        """The last numbered event. Only its values of order= are valid."""
        if isinstance(self._last_row, tuple):
            values = dict(zip(self._layout.order, self._last_row, strict=True))
            columns = [
                pa.array([values[field.name]], pa.int64()).cast(field.type)
                if field.name in values
                else pa.nulls(1, field.type)
                for field in self._layout.schema
            ]
            self._last_row = pa.table(columns, schema=self._layout.schema)
        return self._last_row

    def number_read(self, scale: MomentScale | None, read: GrowingRows, count: int) -> bool:
        """Give the next rows of small pushes their moments. Returns False if `add` and `take_ready` must do it: because
        events wait, or are out of order or late, or because order= has other columns than integers without nulls.
        """
        if scale is None or not self.at_once or self._held:
            return False
        if self._small_order is None:
            self._small_columns = [read.schema.get_field_index(name) for name in self._layout.order]
            if not all(pa.types.is_int64(read.types[column]) for column in self._small_columns):
                return False
            self._small_order = np.array([read.places[column] for column in self._small_columns], np.int32)
        for column in self._small_columns:
            if read.has_nulls(column):
                return False
        if self._last is None:
            before = np.full(2 + len(self._small_columns), -1, np.int64)
        else:
            row = self._last_row
            values = row if isinstance(row, tuple) else tuple(row[name][0].as_py() for name in self._layout.order)
            if None in values:
                return False
            before = np.array((*self._last, *values), np.int64)
        if not number_moments(
            read.rows, read.count, read.count + count, read.moment_place, self._small_order, self._layout.by_arrival,
            scale.bits, scale.base, before,
        ):  # fmt: skip
            return False
        tick, place, *order = before.tolist()
        self._last, self._last_row = (tick, place), tuple(order)
        return True

    def scale(self) -> MomentScale:
        """A scale for the waiting events and for events that may follow them."""
        ticks = np.concatenate([ticks for _, ticks in self._held])
        self._most_held = _most_of_one_tick(ticks)
        return _scale(ticks, self._most_held, self._layout)

    def take_ready(self, scale: MomentScale, until: int) -> Ready | None:
        """The waiting events at or before tick `until`, numbered; all of them if events are numbered on arrival. None
        if there are none.
        """
        if not self._held:
            return None
        held = self._held
        table = held[0][0] if len(held) == 1 else pa.concat_tables([table for table, _ in held])
        ticks = held[0][1] if len(held) == 1 else np.concatenate([ticks for _, ticks in held])
        left: list[tuple[pa.Table, np.ndarray]] = []
        if not self.at_once and int(ticks.max()) > until:
            is_ready = ticks <= until
            if not is_ready.any():
                return None
            left = [(table.filter(pa.array(~is_ready)), ticks[~is_ready])]
            table, ticks = table.filter(pa.array(is_ready)), ticks[is_ready]
        rows, places = self._places(table, ticks)
        moments = scale.moments(ticks, rows, places)
        self._held = left
        if self.at_once:
            newest = int(np.argmax(moments))
            tick = int(ticks[newest])
            place = int(moments[newest]) - (tick - scale.base << scale.bits)
            self._last, self._last_row = (tick, place), table.slice(newest, 1)
        return Ready(table, moments, self._zero_copy and len(held) == 1 and not left)

    def _places(self, table: pa.Table, ticks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rows, places): the place of these rows among the events of their tick. Events that remain simultaneous have
        the same place. Rows that are not listed have the first place.
        """
        order = None if first_disorder(ticks) < 0 else stable_order(ticks)
        tied = ties(ticks if order is None else ticks[order])
        rows = tied.positions if order is None else order[tied.positions]
        if self._layout.by_arrival:
            places = np.arange(len(rows)) - _firsts(tied.groups)
        else:
            places = _dense(tied.groups, self._ranks(table, rows))
        if self._last is not None:
            # These events come after all that are numbered.
            all_places = np.zeros(len(ticks), np.int64)
            all_places[rows] = places
            all_places[ticks == self._last[0]] += self._last[1] + 1
            return np.arange(len(ticks)), all_places
        return rows, places

    def _ranks(self, table: pa.Table, rows: np.ndarray) -> list[np.ndarray]:
        """For each column of order=, numbers in the order of its values."""
        found = []
        for name in self._layout.order:
            column = one_array(table.column(name))
            if pa.types.is_int64(column.type) and not column.null_count:
                found.append(numbers(column)[rows])
            else:
                found.append(ranks(column.take(pa.array(rows))))
        return found

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; `load` takes what this returns."""
        return {
            "held": [writer.add_table(table) for table, _ in self._held],
            "at_once": self.at_once,
            "last": self._last,
            "last_row": writer.add_table(self.last_row),
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        tables = [reader.table(number) for number in head["held"]]
        self._held = [(table, ticks_of(table, self._layout)) for table in tables]
        self._most_held = self.held
        self.at_once = head["at_once"]
        self._last = None if head["last"] is None else (head["last"][0], head["last"][1])
        self._last_row = reader.table(head["last_row"])


def scale_for(events: pa.Table, layout: Layout) -> MomentScale | None:
    """A scale with room for all events of an input; None if no two have the same time."""
    ticks = ticks_of(events, layout)
    most = _most_of_one_tick(ticks)
    return None if most <= 1 else _scale(ticks, most, layout)


def _most_of_one_tick(ticks: np.ndarray) -> int:
    found = ties(ticks if first_disorder(ticks) < 0 else np.sort(ticks))
    return int(np.bincount(found.groups).max()) if len(found.groups) else 1


def _scale(ticks: np.ndarray, most: int, layout: Layout) -> MomentScale:
    needed = most.bit_length() + 1
    span = (int(ticks.max()) - int(ticks.min())).bit_length() + 1
    kind = layout.schema.field(layout.time).type
    in_nanoseconds = pa.types.is_timestamp(kind) and kind.unit == "ns"
    bits = max(needed + _SPARE_BITS, 62 - (_REACH_BITS_NANOSECONDS if in_nanoseconds else _REACH_BITS))
    return MomentScale(max(1, needed, min(bits, 61 - span)), int(ticks.min()))


def moments_of(table: pa.Table, ticks: np.ndarray, layout: Layout) -> np.ndarray:
    """Moments of all events of an input; their ticks if nothing orders events of one time."""
    if not layout.is_ordered or not len(ticks):
        return ticks
    events = Moments(layout)
    events.add(table, ticks, zero_copy=True)
    ready = events.take_ready(events.scale(), int(ticks.max()))
    assert ready is not None
    return ready.moments


def _firsts(groups: np.ndarray) -> np.ndarray:
    """For each member of ascending groups, the index of the first member of its group.

    >>> _firsts(np.array([0, 0, 1, 1, 1])).tolist()
    [0, 0, 2, 2, 2]
    """
    if not len(groups):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    return np.repeat(starts, np.diff(np.concatenate((starts, [len(groups)]))))


def _dense(groups: np.ndarray, keys: list[np.ndarray]) -> np.ndarray:
    """For each member of a group, its rank among the different keys of the group.

    >>> _dense(np.array([0, 0, 0, 1]), [np.array([5, 2, 5, 9])]).tolist()
    [1, 0, 1, 0]
    """
    if not len(groups):
        return np.zeros(0, np.int64)
    order = None if _is_sorted([groups, *keys]) else np.lexsort((*keys[::-1], groups))
    is_new = np.zeros(len(groups), bool)
    for key in (groups, *keys):
        ordered = key if order is None else key[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    numbered = np.cumsum(is_new)
    numbered -= numbered[_firsts(groups if order is None else groups[order])]
    if order is None:
        return numbered
    places = np.empty(len(groups), np.int64)
    places[order] = numbered
    return places


def _is_sorted(keys: list[np.ndarray]) -> bool:
    """Whether rows are sorted by some columns."""
    open_ = np.ones(len(keys[0]) - 1, bool)
    for key in keys:
        if (open_ & (key[1:] < key[:-1])).any():
            return False
        open_ &= key[1:] == key[:-1]
    return True


def stream_order(
    end: np.ndarray, start: np.ndarray, plays: np.ndarray, table: pa.Table, table_rows: np.ndarray, order_columns: int
) -> np.ndarray | None:
    """The indexes that sort events of one end in stream order; None if they are sorted. They are sorted by start, then
    by the order= columns, then events that may fill a component before all others, then by the tie-break columns, with
    nulls first and NaN last.

    Row `table_rows[i]` of `table` has the order= columns of event i, and then its tie-break columns. `plays` says which
    events may fill a component.
    """
    order = None if first_disorder(end) < 0 else stable_order(end)
    tied = ties(end if order is None else end[order])
    if not len(tied.positions):
        return order
    rows = tied.positions if order is None else order[tied.positions]
    keys: list[np.ndarray] = [tied.groups, start[rows]]
    for number, column in enumerate(table.columns):
        if number == order_columns:
            keys.append(~plays[rows])
        keys.append(ranks(one_array(column.take(pa.array(table_rows[rows])))))
    if len(table.columns) == order_columns:
        keys.append(~plays[rows])
    inner = np.lexsort(keys[::-1])
    if order is None:
        order = np.arange(len(end), dtype=np.int32)
    order[tied.positions] = rows[inner]
    return order
