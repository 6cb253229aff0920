"""Counts whose groups one event of each match decides, and counts with rare first events.

All events of a key so far are a product P of small matrices, as in `matrix.py`. Nothing is ever removed from P. The
paths between two times s and t are (the inverse of P at s) times (P at t). Consider an event e of the component that
decides the group. Its matches are the product of four vectors: row 0 of the inverse at the time when the window begins,
e's column of P, e's row of the inverse, and the last column of P. The two in the middle depend only on e, and a group
needs only their sum over its events. So the cost of an event depends on the length of the pattern, and not on the
number of groups or of first events. Only groups that emit a row are read.

If keys decide the groups, the first component takes the place of the deciding one. Then only first events must be held,
whereas `matrix.py` must hold all events in the window.

A *cell* has this sum for a key and a group. Only first events, and events that decide a group, are held until they
leave the window. All numbers are integers modulo 2^128, so inverses are exact.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.columns import add_wide, clear_reading, multiply_wide
from ouzel.engines.aggregate.scan import Counters, complete, has_left, scan, touch_group
from ouzel.engines.aggregate.tables import (
    ByComponent,
    Counter,
    CounterInstances,
    CounterOutput,
    CounterTables,
    Groups,
    Status,
    new_groups,
    reserve_groups,
)
from ouzel.kernels.arrays import Matrix, enlarged
from ouzel.kernels.events import EVERY_KEY
from ouzel.kernels.jit import helper, kernel


class Cell(IntEnum):
    """Columns of `CumulativeState.cells`. Only cells with live events are in the lists of cells."""

    KEY = 0
    GROUP = 1
    LIVE = 2  # the number of its events in the window
    NEXT_OF_KEY = 3
    BEFORE_OF_KEY = 4
    NEXT_OF_GROUP = 5
    BEFORE_OF_GROUP = 6


class CumulativeState(NamedTuple):
    """The state between calls: plain arrays. A number takes two words, the lower half and the upper half."""

    paths: Matrix[np.uint64]  # [key, P by rows]
    inverse: Matrix[np.uint64]  # [key, the inverse of P by rows]
    front: Matrix[np.uint64]  # [key, column before the deciding component]
    first_cell: NDArray[np.int32]  # per key
    key_group: NDArray[np.int32]
    cells: Matrix[np.int64]  # [cell, Cell]
    sums: Matrix[np.uint64]  # [cell]: rows before the deciding component, columns from it on
    bucket: NDArray[np.int32]  # a hash table of cells, -1 where there is none
    cell_count: NDArray[np.int64]  # of length 1
    total: Matrix[np.uint64]  # [group]: kept while the group has several cells
    # Held events, in the order in which they leave.
    queue_tick: NDArray[np.int64]
    queue_key: NDArray[np.int32]
    queue_cell: NDArray[np.int32]  # -1 of a first event that decides no group
    queue_numbers: Matrix[np.uint64]  # its column of P and row of the inverse; of a first event, row 1 of the inverse
    groups: Groups
    counters: NDArray[np.int64]


class CumulativeCounters(Counters):
    """Counters with a product for each key, and a sum for each key and group."""

    state: CumulativeState
    keeps_events = False

    def __init__(self, tables: CounterTables, cells: int = 64) -> None:
        # If keys decide the groups, so do first events: all of a key have the same.
        tables = tables._replace(split=max(1, tables.split))
        size = tables.columns
        state = CumulativeState(
            paths=np.zeros((0, 2 * size * size), np.uint64),
            inverse=np.zeros((0, 2 * size * size), np.uint64),
            front=np.zeros((0, 2 * tables.split), np.uint64),
            first_cell=np.zeros(0, np.int32),
            key_group=np.zeros(0, np.int32),
            cells=np.zeros((cells, len(Cell)), np.int64),
            sums=np.zeros((cells, 2 * tables.split * (size - tables.split)), np.uint64),
            bucket=np.full(2 * cells, -1, np.int32),
            cell_count=np.zeros(1, np.int64),
            total=np.zeros((0, 2), np.uint64),
            queue_tick=np.zeros(cells, np.int64),
            queue_key=np.zeros(cells, np.int32),
            queue_cell=np.zeros(cells, np.int32),
            queue_numbers=np.zeros((cells, 2 * size), np.uint64),
            groups=new_groups(tables, 0),
            counters=np.zeros(len(Counter), np.int64),
        )
        super().__init__(tables, state)

    def reserve(self, slots: int, key_group: NDArray[np.int32], groups: int) -> None:
        state, keys, known = self.state, len(key_group), len(self.state.paths)
        paths, inverse, front = (enlarged(array, keys, 0) for array in (state.paths, state.inverse, state.front))
        for array in (paths, inverse):
            # The identity: its diagonal is 1.
            array[known:, :: 2 * self.tables.columns + 2] = 1
        front[known:, 0] = 1
        self.state = state._replace(
            paths=paths,
            inverse=inverse,
            front=front,
            first_cell=enlarged(state.first_cell, keys),
            key_group=key_group,
            total=enlarged(state.total, groups, 0),
            groups=reserve_groups(self.tables, state.groups, groups),
        )

    def _scan(
        self, instances: CounterInstances, first: int, last: int, until: int, largest_weight: float
    ) -> tuple[int, int]:
        found: tuple[int, int] = _scan(self.tables, self.state, instances, first, last, until, self.output)
        return found

    def _grow(self, status: int, instances: CounterInstances, position: int) -> None:
        state, counters = self.state, self.state.counters
        if state.cell_count[0] == len(state.cells):
            self._rebuild(len(state.groups.mark))
        else:
            self._move_queue(state.queue_cell[counters[Counter.OLDEST] : counters[Counter.QUEUED]])

    def queued(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        state = self.state
        queued = slice(state.counters[Counter.OLDEST], state.counters[Counter.QUEUED])
        return state.queue_key[queued].astype(np.int64), state.queue_tick[queued]

    def queued_keys(self, since: int) -> NDArray[np.int64]:
        return np.unique(self.queued()[0])

    def queued_groups(self) -> NDArray[np.int64]:
        return np.unique(self.state.cells[self._live(), Cell.GROUP])

    def rekey(
        self, renamed: NDArray[np.int32], key_group: NDArray[np.int32], renamed_groups: NDArray[np.int32]
    ) -> None:
        state = self.state
        known = np.flatnonzero(renamed[: len(state.paths)] > EVERY_KEY)
        kept = np.concatenate([np.zeros(1, np.int64), known])
        self.state = state._replace(paths=state.paths[kept], inverse=state.inverse[kept], front=state.front[kept])
        live = self._live()
        self.state.cells[live, Cell.KEY] = renamed[state.cells[live, Cell.KEY]]
        queued = slice(state.counters[Counter.OLDEST], state.counters[Counter.QUEUED])
        state.queue_key[queued] = renamed[state.queue_key[queued]]
        self.regroup(renamed_groups)

    def regroup(self, renamed_groups: NDArray[np.int32]) -> None:
        live = self._live()
        self.state.cells[live, Cell.GROUP] = renamed_groups[self.state.cells[live, Cell.GROUP]]
        self._rebuild(max(1, len(renamed_groups)))

    def _live(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.state.cells[: self.state.cell_count[0], Cell.LIVE] > 0)

    def _move_queue(self, cells: NDArray[np.int32]) -> None:
        """Move the queue of held events to the front of new arrays. `cells` are the new numbers of their cells."""
        state, counters = self.state, self.state.counters
        queued = slice(counters[Counter.OLDEST], counters[Counter.QUEUED])
        room = 2 * len(cells) + 512
        self.state = state._replace(
            queue_tick=enlarged(state.queue_tick[queued], room, 0),
            queue_key=enlarged(state.queue_key[queued], room, 0),
            queue_cell=enlarged(cells, room, 0),
            queue_numbers=enlarged(state.queue_numbers[queued], room, 0),
        )
        counters[Counter.OLDEST], counters[Counter.QUEUED] = 0, len(cells)

    def _rebuild(self, groups: int) -> None:
        """Copy live cells to new arrays, with room for twice as many, and recompute the totals."""
        state, counters, live = self.state, self.state.counters, self._live()
        room = 2 * len(live) + 64
        number = np.full(len(state.cells) + 1, -1, np.int32)
        number[live] = np.arange(len(live))
        state.cell_count[0] = len(live)
        # A kernel that had no room ended within a timestamp, and continues with the groups that it has touched.
        kept = state.groups if groups == len(state.groups.mark) else new_groups(self.tables, groups)
        self._move_queue(number[state.queue_cell[counters[Counter.OLDEST] : counters[Counter.QUEUED]]])
        self.state = self.state._replace(
            first_cell=np.full(len(state.paths), -1, np.int32),
            cells=enlarged(state.cells[live], room, 0),
            sums=enlarged(state.sums[live], room, 0),
            # A power of two, for the hash table.
            bucket=np.full(1 << (2 * room).bit_length(), -1, np.int32),
            total=np.zeros((groups, 2), np.uint64),
            groups=kept._replace(first_cell=np.full(groups, -1, np.int32)),
        )
        _link_all(self.tables, self.state)


_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_WORD = 2.0**64


@kernel
def _link_all(tables: CounterTables, state: CumulativeState):
    for cell in range(state.cell_count[0]):
        place = _place(state, state.cells[cell, Cell.KEY], state.cells[cell, Cell.GROUP])
        state.bucket[place] = cell
        _link(tables, state, cell)


@kernel
def _scan(
    tables: CounterTables,
    state: CumulativeState,
    instances: CounterInstances,
    first: int,
    last: int,
    until: int,
    output: CounterOutput,
):
    return scan(
        tables, tables, state, instances, 0.0, first, last, until, output, _oldest, _expire, _apply, _read_group,
    )  # fmt: skip


# ── Cells ──────────────────────────────────────────────────────────────────────────────────────────


@helper
def _place(state, key, group):
    """The place of a cell in the hash table; if the key has no cell for this group, the free place where it would
    be.
    """
    hashed = (np.uint64(key) * _MIX ^ np.uint64(group)) * _MIX
    mask = state.bucket.size - 1
    place = np.int64(hashed >> _HALF) & mask
    while state.bucket[place] >= 0:
        cell = state.cells[state.bucket[place]]
        if cell[Cell.KEY] == key and cell[Cell.GROUP] == group:
            break
        place = (place + 1) & mask
    return place


@helper
def _cell_of(tables, state, key, group):
    """The cell of a key and a group, which is made if there is none; -1 if there is no room for it."""
    place = _place(state, key, group)
    cell = np.int64(state.bucket[place])
    if cell < 0:
        cell = state.cell_count[0]
        if cell == state.cells.shape[0]:
            return np.int64(-1)
        state.cell_count[0] += 1
        state.bucket[place] = cell
        state.cells[cell, Cell.KEY] = key
        state.cells[cell, Cell.GROUP] = group
        state.cells[cell, Cell.LIVE] = 0
        for word in range(state.sums.shape[1]):
            state.sums[cell, word] = _ZERO
    if state.cells[cell, Cell.LIVE] == 0:
        _link(tables, state, cell)
    return cell


@helper
def _link(tables, state, cell):
    """Put a cell at the front of both of its lists."""
    cells = state.cells
    key = cells[cell, Cell.KEY]
    group = cells[cell, Cell.GROUP]
    of_key = state.first_cell[key]
    of_group = np.int64(state.groups.first_cell[group])
    cells[cell, Cell.NEXT_OF_KEY] = of_key
    cells[cell, Cell.NEXT_OF_GROUP] = of_group
    cells[cell, Cell.BEFORE_OF_KEY] = -1
    cells[cell, Cell.BEFORE_OF_GROUP] = -1
    if of_key >= 0:
        cells[of_key, Cell.BEFORE_OF_KEY] = cell
    if of_group >= 0:
        cells[of_group, Cell.BEFORE_OF_GROUP] = cell
        if cells[of_group, Cell.NEXT_OF_GROUP] < 0:
            # From now on the group has several cells, and its total is kept.
            low, high = _through(tables, state, of_group, tables.final)
            state.total[group, 0] = low
            state.total[group, 1] = high
        low, high = _through(tables, state, cell, tables.final)
        _add(state.total[group], 0, low, high)
    state.first_cell[key] = cell
    state.groups.first_cell[group] = cell


@helper
def _unlink(state, cell):
    """Remove a cell from its lists. It has no live events, and so no matches."""
    cells = state.cells
    row = cells[cell]
    if row[Cell.BEFORE_OF_KEY] >= 0:
        cells[row[Cell.BEFORE_OF_KEY], Cell.NEXT_OF_KEY] = row[Cell.NEXT_OF_KEY]
    else:
        state.first_cell[row[Cell.KEY]] = row[Cell.NEXT_OF_KEY]
    if row[Cell.NEXT_OF_KEY] >= 0:
        cells[row[Cell.NEXT_OF_KEY], Cell.BEFORE_OF_KEY] = row[Cell.BEFORE_OF_KEY]
    if row[Cell.BEFORE_OF_GROUP] >= 0:
        cells[row[Cell.BEFORE_OF_GROUP], Cell.NEXT_OF_GROUP] = row[Cell.NEXT_OF_GROUP]
    else:
        state.groups.first_cell[row[Cell.GROUP]] = row[Cell.NEXT_OF_GROUP]
    if row[Cell.NEXT_OF_GROUP] >= 0:
        cells[row[Cell.NEXT_OF_GROUP], Cell.BEFORE_OF_GROUP] = row[Cell.BEFORE_OF_GROUP]


@helper(inline=True)
def _has_total(state, group):
    """Whether the total of a group is stored, because the group has several cells."""
    return state.cells[state.groups.first_cell[group], Cell.NEXT_OF_GROUP] >= 0


# ── Numbers ────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _add(numbers, place, low, high):
    numbers[place], numbers[place + 1] = add_wide(numbers[place], numbers[place + 1], low, high)


@helper(inline=True)
def _subtract(numbers, place, low, high):
    more = ~low + _ONE
    _add(numbers, place, more, ~high + np.uint64(more == _ZERO))


@helper
def _through(tables, state, cell, column):
    """The number of live paths that go through the events of a cell and end at a column."""
    key = state.cells[cell, Cell.KEY]
    sums = state.sums[cell]
    paths = state.paths[key]
    size = tables.columns
    split = tables.split
    low = _ZERO
    high = _ZERO
    for row in range(split):
        at = 2 * row * (size - split)
        # The diagonal of P is 1.
        one, one_high = sums[at + 2 * (column - split)], sums[at + 2 * (column - split) + 1]
        for middle in range(split, column):
            place = 2 * (middle * size + column)
            more, more_high = multiply_wide(sums[at], sums[at + 1], paths[place], paths[place + 1])
            one, one_high = add_wide(one, one_high, more, more_high)
            at += 2
        if row > 0:
            one, one_high = multiply_wide(one, one_high, state.front[key, 2 * row], state.front[key, 2 * row + 1])
        low, high = add_wide(low, high, one, one_high)
    return low, high


@helper
def _before(tables, state, key, column):
    """The number of live paths that end at a column before the deciding component."""
    paths = state.paths[key]
    low = _ZERO
    high = _ZERO
    for row in range(column + 1):
        place = 2 * (row * tables.columns + column)
        one, one_high = paths[place], paths[place + 1]
        if row > 0:
            one, one_high = multiply_wide(one, one_high, state.front[key, 2 * row], state.front[key, 2 * row + 1])
        low, high = add_wide(low, high, one, one_high)
    return low, high


@helper
def _multiply(tables, state, key, own):
    """Multiply P by the matrix of an event, and the inverse of P by the inverse of that matrix. Entries that connect
    the two sides of the deciding component are never used and not computed.
    """
    size = tables.columns
    first = 0 if own < tables.split else tables.split
    last = tables.split if own < tables.split else size
    paths = state.paths[key]
    inverse = state.inverse[key]
    for row in range(first, own):
        place = 2 * (row * size + own)
        _add(paths, place, paths[place - 2], paths[place - 1])
    for column in range(own, last):
        place = 2 * (own * size + column)
        _subtract(inverse, place - 2 * size, inverse[place], inverse[place + 1])


@helper
def _change_cell(tables, state, cell, numbers, is_added):
    """Add the column and the row of a deciding event to the sum of its cell, or subtract them."""
    sums = state.sums[cell]
    split = tables.split
    place = 0
    for row in range(split):
        for column in range(split, tables.columns):
            low, high = numbers[2 * column], numbers[2 * column + 1]
            if row > 0:
                low, high = multiply_wide(low, high, numbers[2 * row], numbers[2 * row + 1])
            elif split > 1:
                low, high = multiply_wide(low, high, numbers[0], numbers[1])
            if is_added:
                _add(sums, place, low, high)
            else:
                _subtract(sums, place, low, high)
            place += 2


# ── The scan ───────────────────────────────────────────────────────────────────────────────────────


@helper
def _read_group(tables, state, group, words, reals):
    clear_reading(tables, words, reals)
    cell = state.groups.first_cell[group]
    if cell < 0:
        return
    if _has_total(state, group):
        words[0] = state.total[group, 0]
        words[1] = state.total[group, 1]
    else:
        words[0], words[1] = _through(tables, state, np.int64(cell), tables.final)
    reals[0] = float(words[0]) + float(words[1]) * _WORD


@helper
def _oldest(state, instances, position):
    """(whether any held event may leave the window, the tick of the oldest)."""
    place = state.counters[Counter.OLDEST]
    if place < state.counters[Counter.QUEUED]:
        return True, state.queue_tick[place]
    return False, np.int64(0)


@helper
def _apply(tables, state, instances, reading, slot, last):
    """Count one event."""
    key = np.int64(instances.key[slot])
    own = tables.by_component[instances.component[slot], ByComponent.OWN]
    now = instances.tick[slot]
    split = tables.split
    if own == 1 or own == split:
        if state.counters[Counter.QUEUED] == state.queue_tick.size:
            return Status.ROOM, slot
        if own == split:
            group = instances.group[slot] if instances.group.size else state.key_group[key]
            return _decide(tables, state, key, group, own, now), slot + 1
        place = _hold(state, key, -1, now)
        for column in range(1, split):
            at = 2 * (tables.columns + column)
            state.queue_numbers[place, 2 * column] = state.inverse[key, at]
            state.queue_numbers[place, 2 * column + 1] = state.inverse[key, at + 1]
    if own == tables.final:
        cell = np.int64(state.first_cell[key])
        while cell >= 0:
            low, high = _through(tables, state, cell, own - 1)
            if low != _ZERO or high != _ZERO:
                group = state.cells[cell, Cell.GROUP]
                touch_group(tables, tables, state, group, _read_group)
                complete(state.groups, group)
                if _has_total(state, group):
                    _add(state.total[group], 0, low, high)
            cell = state.cells[cell, Cell.NEXT_OF_KEY]
    _multiply(tables, state, key, own)
    return Status.DONE, slot + 1


@helper
def _hold(state, key, cell, now):
    """Put an event into the queue of held events. Returns its place."""
    place = state.counters[Counter.QUEUED]
    state.counters[Counter.QUEUED] += 1
    state.queue_tick[place] = now
    state.queue_key[place] = key
    state.queue_cell[place] = cell
    return place


@helper
def _decide(tables, state, key, group, own, now):
    """Count an event of the component that decides the group. Without a prefix before it, it can be in no match and is
    ignored.
    """
    low, high = _before(tables, state, key, own - 1)
    if low == _ZERO and high == _ZERO:
        return Status.DONE
    cell = _cell_of(tables, state, key, group)
    if cell < 0:
        return Status.ROOM
    if own == tables.final:
        touch_group(tables, tables, state, group, _read_group)
        complete(state.groups, group)
        if _has_total(state, group):
            _add(state.total[group], 0, low, high)
    state.counters[Counter.STARTS] += own == 1
    state.cells[cell, Cell.LIVE] += 1
    size = tables.columns
    numbers = state.queue_numbers[_hold(state, key, cell, now)]
    for column in range(size):
        at = 2 * ((column * size + own - 1) if column < own else (own * size + column))
        source = state.paths[key] if column < own else state.inverse[key]
        numbers[2 * column] = source[at]
        numbers[2 * column + 1] = source[at + 1]
    _change_cell(tables, state, cell, numbers, True)
    return Status.DONE


@helper
def _expire(tables, state, instances, position, now):
    """Remove the held events that have left the window."""
    counters = state.counters
    while counters[Counter.OLDEST] < counters[Counter.QUEUED]:
        place = counters[Counter.OLDEST]
        if not has_left(tables, now, state.queue_tick[place]):
            break
        cell = np.int64(state.queue_cell[place])
        if cell < 0:
            _remove_first(tables, state, np.int64(state.queue_key[place]), state.queue_numbers[place])
            counters[Counter.EXPIRED] += 1
        else:
            if tables.split == 1:
                counters[Counter.EXPIRED] += 1
                _change_total(tables, state, cell, False)
            # If it is no first event, none before it is left, and it has no match.
            _change_cell(tables, state, cell, state.queue_numbers[place], False)
            if tables.split == 1:
                _change_total(tables, state, cell, True)
            state.cells[cell, Cell.LIVE] -= 1
            if state.cells[cell, Cell.LIVE] == 0:
                _unlink(state, cell)
        counters[Counter.OLDEST] += 1
    return True


@helper
def _remove_first(tables, state, key, numbers):
    """Remove a first event that does not decide a group. The matches of all cells of its key may change."""
    cell = np.int64(state.first_cell[key])
    while cell >= 0:
        _change_total(tables, state, cell, False)
        cell = state.cells[cell, Cell.NEXT_OF_KEY]
    for column in range(1, tables.split):
        _subtract(state.front[key], 2 * column, numbers[2 * column], numbers[2 * column + 1])
    cell = np.int64(state.first_cell[key])
    while cell >= 0:
        _change_total(tables, state, cell, True)
        cell = state.cells[cell, Cell.NEXT_OF_KEY]


@helper
def _change_total(tables, state, cell, is_added):
    """Update the total of a group when the matches of a cell change: subtract them before the change, and add them
    afterwards.
    """
    group = state.cells[cell, Cell.GROUP]
    if tables.on_change and not is_added:
        touch_group(tables, tables, state, group, _read_group)
    if _has_total(state, group):
        low, high = _through(tables, state, cell, tables.final)
        if is_added:
            _add(state.total[group], 0, low, high)
        else:
            _subtract(state.total[group], 0, low, high)
