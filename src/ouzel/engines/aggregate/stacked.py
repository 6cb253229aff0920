"""A tree of counters like that of `tree.py`, for what has no inverse: negation, minima and sums of floats, of several
queries in one pass.

As in `matrix.py`, the events of a key are in two stacks. The newer events are one matrix, which is the block of the
tree. Each first event among the older ones has a row: the product of the older events from it on. When no older events
remain, the newer become the older (a flip). A negative event clears the columns of the nodes that it closes. A
component before a negation is a separate node, so no other query uses that column.

For a node at or below a weighted node, the rows above the weight hold values of the measure, and all other rows hold
counts. Floats are stored as their bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.columns import sign_extension
from ouzel.engines.aggregate.scan import Counters, complete, has_left, oldest_slot, scan, touch_group
from ouzel.engines.aggregate.tables import (
    NARROW_MAX,
    NOTHING,
    ByElement,
    ByFinal,
    Counter,
    CounterOutput,
    CounterTables,
    ElementKind,
    Groups,
    Measure,
    MeasureKind,
    SharedLayout,
    Status,
    Way,
    build_counter_tables,
    new_groups,
    reserve_groups,
)
from ouzel.engines.aggregate.tree import SharedInstances
from ouzel.kernels.arrays import Matrix, enlarged
from ouzel.kernels.events import EVERY_KEY
from ouzel.kernels.jit import helper, kernel


class StackedTables(NamedTuple):
    """The tree of some queries as arrays. A coordinate is the number of a node's column; the root has 0."""

    counted: CounterTables  # what `scan` reads; for it every measure may be a float
    by_element: Matrix[np.int32]  # [element, ByElement]
    finals: Matrix[np.int32]  # [place, ByFinal]
    finals_below: Matrix[np.int32]  # [place, (coordinate, pattern, query)]
    above: Matrix[np.int32]  # [coordinate, level]: the coordinate of its ancestor, or its own
    level: NDArray[np.int32]  # per coordinate
    form: NDArray[np.int32]  # per coordinate: the MeasureKind of its words above the weight
    weight_level: NDArray[np.int32]  # per coordinate: the level of the weight on its path, 0 if there is none
    final_of: Matrix[np.int32]  # [query, column]: the coordinate of a count or a measure, -1 if there is none
    levels: int


class StackedState(NamedTuple):
    """The state between calls. Slots are indexes into the caller's buffer of instances."""

    words: NDArray[np.uint64]  # a block for each key: [coordinate, row]
    bound: Matrix[np.float64]  # [key, coordinate], of counts
    newest: NDArray[np.int32]  # per key: its newest slot, -1 if it has none
    oldest_start: NDArray[np.int32]  # per key: the oldest first event in the window, -1 if there is none
    newest_start: NDArray[np.int32]  # per key
    start_count: NDArray[np.int64]  # per key: first events in the window
    below: NDArray[np.int32]  # per slot: the one before it of the same key
    next_start: NDArray[np.int32]  # per slot of a first event: the next one of the same key
    older_row: NDArray[np.int32]  # per slot of a first event: its row among the older ones, -1 if it is newer
    older_words: Matrix[np.uint64]  # [row, coordinate]
    free_rows: NDArray[np.int32]  # a stack of row numbers
    free_count: NDArray[np.int64]  # of length 1
    flip_words: NDArray[np.uint64]  # one block, row by row
    key_group: Matrix[np.int32]  # [query, key]
    key_of: Matrix[np.int32]  # [query, group]
    groups: Groups  # number: group times the number of queries, plus the query
    counters: NDArray[np.int64]


_PER_KEY = {"newest": -1, "oldest_start": -1, "newest_start": -1, "start_count": 0}
_PER_SLOT = ("below", "next_start", "older_row")


class WidenError(Exception):
    """Raised if 64 bits may not be enough for the instance at a position. This instance has not been counted."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def build_stacked_tables(layout: SharedLayout, queries: int, kinds: dict[int, MeasureKind]) -> StackedTables:
    """The tables of a tree without segments. `kinds` has, for each weighted symbol, the kind of measure that its events
    add.
    """
    shared = layout.tables
    nodes = [row for row in shared.by_element if row[ByElement.KIND] != ElementKind.CLOSE]
    above = np.zeros((shared.coordinates, shared.levels), np.int32)
    level, form, weight_level = (np.zeros(shared.coordinates, np.int32) for _ in range(3))
    final_of = np.full((queries, shared.columns), -1, np.int32)
    for element, row in enumerate(nodes):
        here, parent = row[ByElement.COORDINATE], row[ByElement.PARENT]
        level[here], above[here] = row[ByElement.LEVEL], above[parent]
        above[here, level[here]] = here
        symbol = int(layout.symbol[element])
        weighs = symbol in kinds
        form[here] = kinds[symbol] if weighs else form[parent]
        weight_level[here] = level[here] if weighs else weight_level[parent]
        for place in range(row[ByElement.FIRST_FINAL], row[ByElement.LAST_FINAL]):
            final_of[shared.finals[place, ByFinal.QUERY], shared.finals[place, ByFinal.COLUMN]] = here
    counted = build_counter_tables(
        [False],
        window=shared.window,
        measures=[Measure(MeasureKind.FLOAT, 0, 0)] * (shared.columns - 1),
        way=Way.STACKS,
        on_change=bool(shared.on_change),
    )
    return StackedTables(
        counted,
        shared.by_element,
        shared.finals,
        shared.finals_below,
        above,
        level,
        form,
        weight_level,
        final_of,
        shared.levels,
    )


class StackedCounters(Counters):
    """A tree of counters for each key, kept as two stacks."""

    state: StackedState

    def __init__(self, tables: StackedTables) -> None:
        self._tree = tables
        queries, coordinates = len(tables.final_of), len(tables.level)
        none = np.zeros(0, np.int32)
        state = StackedState(
            words=np.zeros(0, np.uint64),
            bound=np.zeros((0, coordinates), np.float64),
            newest=none,
            oldest_start=none,
            newest_start=none,
            start_count=np.zeros(0, np.int64),
            below=none,
            next_start=none,
            older_row=none,
            older_words=np.zeros((0, coordinates), np.uint64),
            free_rows=none,
            free_count=np.zeros(1, np.int64),
            flip_words=np.zeros(coordinates * tables.levels, np.uint64),
            key_group=np.zeros((queries, 0), np.int32),
            key_of=np.zeros((queries, 0), np.int32),
            groups=new_groups(tables.counted, 0),
            counters=np.zeros(len(Counter), np.int64),
        )
        super().__init__(tables.counted, state)

    def reserve_all(self, slots: int, key_groups: Sequence[NDArray[np.int32]]) -> None:
        """Make room for slots and keys, and for the groups of each query. `key_groups` has the group of each key."""
        key_group = np.stack(key_groups)
        self.reserve(slots, key_group, int(key_group.max(initial=0)) + 1)

    def reserve(self, slots: int, key_group: NDArray[np.int32], groups: int) -> None:
        state, queries, keys = self.state, len(self._tree.final_of), key_group.shape[1]
        known = len(state.newest)
        grown = {name: enlarged(getattr(state, name), keys, fill) for name, fill in _PER_KEY.items()}
        grown |= {name: enlarged(getattr(state, name), slots) for name in _PER_SLOT}
        key_of = np.zeros((queries, groups), np.int32)
        for query in range(queries):
            # The key of no partition has group 0, too: the last one written stays.
            key_of[query, key_group[query]] = np.arange(keys, dtype=np.int32)
        self.state = state._replace(
            **grown,
            words=enlarged(state.words, keys * len(state.flip_words), 0),
            bound=enlarged(state.bound, keys, 1),
            key_group=key_group,
            key_of=key_of,
            groups=reserve_groups(self.tables, state.groups, groups * queries),
        )
        _open(self._tree, self.state, known)

    def _scan(
        self, instances: SharedInstances, first: int, last: int, until: int, largest_weight: float
    ) -> tuple[int, int]:
        found: tuple[int, int] = _scan(
            self._tree, self.state, instances, largest_weight, first, last, until, self.output
        )
        return found

    def _grow(self, status: int, instances: SharedInstances, position: int) -> None:
        if status == Status.WIDEN:
            raise WidenError(position)
        state = self.state
        old = len(state.older_words)
        rows = max(64, 2 * old, old + int(state.start_count.max(initial=0)))
        count = int(state.free_count[0])
        free = enlarged(state.free_rows[:count], rows, 0)
        free[count : count + rows - old] = np.arange(rows - 1, old - 1, -1)
        state.free_count[0] = count + rows - old
        self.state = state._replace(older_words=enlarged(state.older_words, rows, 0), free_rows=free)

    def rebase(self, dead: int, used: int) -> None:
        state = self.state
        state.counters[Counter.OLDEST] -= dead
        for name in _PER_SLOT:
            array = getattr(state, name)
            array[: used - dead] = array[dead:used]
        per_key = (state.newest, state.oldest_start, state.newest_start)
        for links in (state.below[: used - dead], state.next_start[: used - dead], *per_key):
            np.copyto(links, np.where(links >= dead, links - dead, -1))

    def rekey(
        self, renamed: NDArray[np.int32], key_group: NDArray[np.int32], renamed_groups: NDArray[np.int32]
    ) -> None:
        state = self.state
        known = np.flatnonzero(renamed[: len(state.newest)] > EVERY_KEY)
        kept = np.concatenate([np.zeros(1, np.int64), known])
        block = len(state.flip_words)
        self.state = state._replace(
            **{name: getattr(state, name)[kept] for name in _PER_KEY},
            words=state.words.reshape(-1, block)[kept].reshape(-1),
            bound=state.bound[kept],
            groups=new_groups(self.tables, len(state.groups.mark)),
        )


_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@kernel
def _open(tables: StackedTables, state: StackedState, known: int):
    """Set the matrix of each new key to the identity, the product of no events."""
    for key in range(known, state.newest.size):
        _identity(tables, state.words, key * state.flip_words.size, tables.levels, 1)


@kernel
def _scan(
    tables: StackedTables,
    state: StackedState,
    instances: SharedInstances,
    heaviest: float,
    first: int,
    last: int,
    until: int,
    output: CounterOutput,
):
    return scan(
        tables.counted, tables, state, instances, heaviest, first, last, until, output, oldest_slot, _expire, _apply,
        _read_group,
    )  # fmt: skip


# ── Words ──────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _real(word):
    return np.uint64(word).view(np.float64)


@helper(inline=True)
def _bits(real):
    return np.float64(real).view(np.uint64)


@helper
def _empty(tables, coordinate, row):
    """The word of a coordinate that means no paths."""
    is_least = row < tables.weight_level[coordinate] and tables.form[coordinate] == MeasureKind.LEAST
    return np.uint64(NOTHING) if is_least else _ZERO


@helper
def _identity(tables, words, base, width, height):
    """Set a block to the identity. Its coordinates are `width` words apart, and its rows `height` words."""
    for coordinate in range(tables.level.size):
        for row in range(tables.levels):
            words[base + coordinate * width + row * height] = _empty(tables, coordinate, row)
        words[base + coordinate * width + tables.level[coordinate] * height] = _ONE


@helper
def _add(tables, words, coordinate, row, behind, target, more, weight):
    """Add to a word of a row the paths that go through an event, whose node has the level `behind`."""
    weight_level = tables.weight_level[coordinate]
    form = tables.form[coordinate]
    weighs = behind == weight_level
    if row >= weight_level or form == MeasureKind.INTEGER:
        words[target] += more * weight if weighs else more
    elif form == MeasureKind.FLOAT:
        if not weighs:
            words[target] = _bits(_real(words[target]) + _real(more))
        elif more != _ZERO:
            # Here 0 times infinity is 0.
            words[target] = _bits(_real(words[target]) + _real(weight) * float(more))
    else:
        least = np.int64(more)
        if weighs:
            least = np.int64(weight) if more != _ZERO else np.int64(NOTHING)
        words[target] = np.uint64(min(np.int64(words[target]), least))


@helper
def _read(tables, state, key, coordinate):
    """The word of a coordinate for the whole window: the product of the older and the newer events."""
    words = state.words
    base = (key * tables.level.size + coordinate) * tables.levels
    start = state.oldest_start[key]
    if start < 0 or state.older_row[start] < 0:
        return words[base]
    older = state.older_words[state.older_row[start]]
    weight_level = tables.weight_level[coordinate]
    form = tables.form[coordinate]
    total = _ZERO
    real = 0.0
    least = np.int64(NOTHING)
    for row in range(tables.level[coordinate] + 1):
        left = older[tables.above[coordinate, row]]
        right = words[base + row]
        if weight_level == 0 or form == MeasureKind.INTEGER:
            total += left * right
        elif form == MeasureKind.FLOAT:
            if row < weight_level:
                if left != _ZERO:
                    real += float(left) * _real(right)
            elif right != _ZERO:
                real += _real(left) * float(right)
        elif row < weight_level:
            if left != _ZERO:
                least = min(least, np.int64(right))
        elif right != _ZERO:
            least = min(least, np.int64(left))
    if weight_level > 0 and form == MeasureKind.FLOAT:
        return _bits(real)
    if weight_level > 0 and form == MeasureKind.LEAST:
        return np.uint64(least)
    return total


@helper
def _read_group(tables, state, number, words, reals):
    queries = tables.final_of.shape[0]
    query = number % queries
    key = np.int64(state.key_of[query, number // queries])
    for word in range(words.size):
        words[word] = _ZERO
    for real in range(reals.size):
        reals[real] = 0.0
    for column in range(tables.final_of.shape[1]):
        coordinate = np.int64(tables.final_of[query, column])
        if coordinate < 0:
            continue
        word = _read(tables, state, key, coordinate)
        form = tables.form[coordinate]
        if column > 0 and form == MeasureKind.FLOAT:
            reals[column] = _real(word)
            continue
        words[2 * column] = word
        if column == 0:
            reals[0] = float(word)
        elif form == MeasureKind.INTEGER:
            words[2 * column + 1] = sign_extension(word)


# ── The scan ───────────────────────────────────────────────────────────────────────────────────────


@helper
def _weight_of(instances, slot):
    return np.uint64(instances.weight[slot]) if instances.weight.size > 0 else _ONE


@helper
def _touch(tables, state, query, key):
    number = state.key_group[query, key] * tables.final_of.shape[0] + query
    touch_group(tables.counted, tables, state, number, _read_group)
    return number


@helper
def _expire(tables, state, instances, position, now):
    """Remove what has left the window. Returns False if a flip needs more room; then nothing has changed for this
    event.
    """
    counters = state.counters
    while counters[Counter.OLDEST] < position:
        slot = counters[Counter.OLDEST]
        if not has_left(tables.counted, now, instances.tick[slot]):
            break
        row = tables.by_element[instances.element[slot]]
        if row[ByElement.LEVEL] == 1 and row[ByElement.KIND] != ElementKind.CLOSE:
            key = np.int64(instances.key[slot])
            flips = state.older_row[slot] < 0
            if flips and state.free_count[0] < state.start_count[key]:
                return False
            if tables.counted.on_change:
                for place in range(row[ByElement.FIRST_BELOW], row[ByElement.LAST_BELOW]):
                    _touch(tables, state, np.int64(tables.finals_below[place, 2]), key)
            if flips:
                _flip(tables, state, instances, key)
            state.free_rows[state.free_count[0]] = state.older_row[slot]
            state.free_count[0] += 1
            state.start_count[key] -= 1
            state.oldest_start[key] = state.next_start[slot]
            counters[Counter.EXPIRED] += 1
        counters[Counter.OLDEST] += 1
    return True


@helper
def _flip(tables, state, instances, key):
    """Make the newer events the older ones. From the newest to the oldest event, the top row is stored at each first
    event.
    """
    # Row by row, because an event adds one row to another, and the top row is copied.
    words = state.flip_words
    width = tables.level.size
    oldest = state.oldest_start[key]
    state.counters[Counter.FLIPS] += 1
    _identity(tables, words, 0, 1, width)
    slot = state.newest[key]
    while slot >= oldest:
        row = tables.by_element[instances.element[slot]]
        level = np.int64(row[ByElement.LEVEL])
        closes = row[ByElement.KIND] == ElementKind.CLOSE
        first = np.int64(row[ByElement.COORDINATE])
        last = np.int64(row[ByElement.END])
        if closes:
            for coordinate in range(first, last):
                words[level * width + coordinate] = _empty(tables, coordinate, level)
        elif instances.weight.size == 0:
            source = np.uint64(level * width + first)
            target = np.uint64((level - 1) * width + first)
            for coordinate in range(np.uint64(last - first)):
                words[target + coordinate] += words[source + coordinate]
        else:
            weight = _weight_of(instances, slot)
            for coordinate in range(first, last):
                place = level * width + coordinate
                _add(tables, words, coordinate, level - 1, level, place - width, words[place], weight)
        if level == 1 and not closes:
            state.free_count[0] -= 1
            older = state.free_rows[state.free_count[0]]
            state.older_row[slot] = older
            for coordinate in range(width):
                state.older_words[older, coordinate] = words[coordinate]
        slot = state.below[slot]
    _identity(tables, state.words, key * words.size, tables.levels, 1)


@helper
def _may_count(tables, state, key, coordinate, parent, heaviest):
    """Whether 64 bits are enough for the counts of a node after one more event."""
    bound = state.bound[key]
    if (bound[coordinate] + bound[parent]) * heaviest >= NARROW_MAX:
        for measured in (coordinate, parent):
            most = max(_ONE, _read(tables, state, key, measured))
            base = (key * tables.level.size + measured) * tables.levels
            for row in range(tables.level[measured] + 1):
                most = max(most, state.words[base + row])
            bound[measured] = float(most)
    reach = bound[coordinate] + bound[parent]
    if reach * heaviest >= NARROW_MAX:
        return False
    bound[coordinate] = reach
    return True


@helper
def _apply(tables, state, instances, heaviest, slot, last):
    """Count one event."""
    key = np.int64(instances.key[slot])
    row = tables.by_element[instances.element[slot]]
    level = np.int64(row[ByElement.LEVEL])
    coordinate = np.int64(row[ByElement.COORDINATE])
    base = key * state.flip_words.size
    place = base + coordinate * tables.levels
    if row[ByElement.KIND] == ElementKind.CLOSE:
        for one in range(level + 1):
            state.words[place + one] = _empty(tables, coordinate, one)
    else:
        parent = np.int64(row[ByElement.PARENT])
        if tables.weight_level[coordinate] == 0 and not _may_count(tables, state, key, coordinate, parent, heaviest):
            return Status.WIDEN, slot
        for final in range(row[ByElement.FIRST_FINAL], row[ByElement.LAST_FINAL]):
            number = _touch(tables, state, np.int64(tables.finals[final, ByFinal.QUERY]), key)
            if tables.finals[final, ByFinal.COLUMN] == 0 and _read(tables, state, key, parent) != _ZERO:
                complete(state.groups, number)
        source = base + parent * tables.levels
        if tables.weight_level[coordinate] == 0:
            target = np.uint64(place)
            before = np.uint64(source)
            for one in range(np.uint64(level)):
                state.words[target + one] += state.words[before + one]
        else:
            weight = _weight_of(instances, slot)
            for one in range(level):
                _add(tables, state.words, coordinate, one, level, place + one, state.words[source + one], weight)
    state.below[slot] = state.newest[key]
    state.newest[key] = slot
    if level == 1 and row[ByElement.KIND] != ElementKind.CLOSE:
        state.counters[Counter.STARTS] += 1
        state.start_count[key] += 1
        state.next_start[slot] = -1
        state.older_row[slot] = -1
        if state.oldest_start[key] < 0:
            state.oldest_start[key] = slot
        else:
            state.next_start[state.newest_start[key]] = slot
        state.newest_start[key] = slot
    return Status.DONE, slot + 1
