"""Counts of queries whose predicates compare only the first two events of a match. No pairs of events are tested.

The events of the first two components are in an index by the values that the predicates compare. When an event of the
second component comes, the index counts the first events that it may follow. When a first event leaves the window, the
index finds the second events that follow it, and the matches of these pairs are subtracted. Later components have no
predicates, so the paths after a second event are counted by P, a product of small matrices, one for each later event.
The index stores, for each second event, the first row of P's inverse when it came. That row times the current P gives
its matches. All numbers are integers modulo 2^128, so inverses are exact.

Events of one key are in one bucket if they are equal in all values that predicates compare by equality. A bucket has
two sides, the sum of its first events and that of its second events. If one predicate compares by order, each side is a
treap: a search tree over these values, with the sum of each subtree. The index can be rebuilt from the live events.
This is done whenever their slots or codes change, so snapshots do not contain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.columns import add_wide, clear_reading, multiply_wide
from ouzel.engines.aggregate.scan import Counters, complete, has_left, oldest_slot, scan, touch_group
from ouzel.engines.aggregate.tables import (
    ORDERS,
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
from ouzel.kernels.arrays import INT64_MAX, Matrix, enlarged
from ouzel.kernels.events import EVERY_KEY
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicate_tables import Atom, Comparison, Lane, LaneFlag


class IndexTables(NamedTuple):
    """A query, with the lanes that its predicates compare."""

    counted: CounterTables
    lanes: Matrix[np.int32]  # [predicate, side]: the lane; equalities first
    floating: NDArray[np.uint8]  # per predicate
    equalities: int
    comparison: int  # of the last predicate, if it is no equality; otherwise -1


class IndexedState(NamedTuple):
    """The state between calls: plain arrays. Slots are indexes into the caller's buffer of instances. A number takes
    two words, the lower half and the upper half.
    """

    paths: Matrix[np.uint64]  # [key, P by rows]
    inverse: Matrix[np.uint64]  # [key, the inverse of P by rows]
    live: Matrix[np.uint64]  # [key, component after the first]: the live paths that end there
    weight: Matrix[np.uint64]  # [slot]: 1 for a first event, for a second one the inverse's first row at its time
    total: Matrix[np.uint64]  # [group]
    key_group: NDArray[np.int32]
    groups: Groups
    counters: NDArray[np.int64]


class Index(NamedTuple):
    """Buckets, each with two sides: 0 for first events, 1 for second events. Place 2 b + s is side s of bucket b."""

    bucket: NDArray[np.int32]  # a hash table of buckets, -1 where there is none
    key: NDArray[np.int32]  # per bucket
    values: Matrix[np.int64]  # [bucket, equality]
    sums: Matrix[np.uint64]  # [place]: the sums of a side
    root: NDArray[np.int32]  # [place]: of its treap
    place: NDArray[np.int32]  # per slot, -1 if it is not in the index
    order: NDArray[np.int64]  # per slot: the value of the comparison by order
    left: NDArray[np.int32]  # per slot
    right: NDArray[np.int32]
    above: NDArray[np.int32]
    subtree: Matrix[np.uint64]  # [slot]: the sums of its subtree
    found: NDArray[np.uint64]  # scratch: the sums that a search has found
    value: NDArray[np.int64]  # scratch: the values of an event
    used: NDArray[np.int64]  # the number of buckets; the slot after the last one that the index knows


class Search(NamedTuple):
    """What the kernel needs in addition to its state."""

    tables: IndexTables
    index: Index


class IndexedCounters(Counters):
    """Counts with an index over the values of the first two events."""

    state: IndexedState

    def __init__(self, counted: CounterTables, atoms: Sequence[Atom]) -> None:
        ordered = bool(atoms) and atoms[-1].comparison in ORDERS
        lanes = [(atom.left.lane, atom.right.lane) for atom in atoms if isinstance(atom.right, Lane)]
        self._tables = IndexTables(
            counted,
            np.array(lanes, np.int32).reshape(len(atoms), 2),
            np.array([atom.left.floating for atom in atoms], np.uint8),
            len(atoms) - ordered,
            int(atoms[-1].comparison) if ordered else -1,
        )
        size = self._size = counted.columns - 2
        state = IndexedState(
            paths=np.zeros((0, 2 * size * size), np.uint64),
            inverse=np.zeros((0, 2 * size * size), np.uint64),
            live=np.zeros((0, 2 * size), np.uint64),
            weight=np.zeros((0, 2 * size), np.uint64),
            total=np.zeros((0, 2), np.uint64),
            key_group=np.zeros(0, np.int32),
            groups=new_groups(counted, 0),
            counters=np.zeros(len(Counter), np.int64),
        )
        self._index = self._new_index(0, 0)
        self.forget_codes()
        super().__init__(counted, state)

    def _new_index(self, buckets: int, slots: int) -> Index:
        words, ordered = 2 * self._size, self._tables.comparison >= 0
        nodes = slots if ordered else 0
        return Index(
            bucket=np.full(2 * buckets, -1, np.int32),
            key=np.zeros(buckets, np.int32),
            values=np.zeros((buckets, self._tables.equalities), np.int64),
            sums=np.zeros((0 if ordered else 2 * buckets, words), np.uint64),
            root=np.full(2 * buckets if ordered else 0, -1, np.int32),
            place=np.full(slots, -1, np.int32),
            order=np.zeros(nodes, np.int64),
            left=np.full(nodes, -1, np.int32),
            right=np.full(nodes, -1, np.int32),
            above=np.full(nodes, -1, np.int32),
            subtree=np.zeros((nodes, words), np.uint64),
            found=np.zeros(words, np.uint64),
            value=np.zeros(len(self._tables.lanes), np.int64),
            used=np.zeros(2, np.int64),
        )

    def reserve(self, slots: int, key_group: NDArray[np.int32], groups: int) -> None:
        state, keys = self.state, len(key_group)
        known, size = len(state.paths), self._size
        paths, inverse = (enlarged(array, keys, 0) for array in (state.paths, state.inverse))
        for array in (paths, inverse):
            # The identity: its diagonal is 1.
            array[known:, :: 2 * size + 2] = 1
        self.state = state._replace(
            paths=paths,
            inverse=inverse,
            live=enlarged(state.live, keys, 0),
            weight=enlarged(state.weight, slots, 0),
            total=enlarged(state.total, groups, 0),
            key_group=key_group,
            groups=reserve_groups(self.tables, state.groups, groups),
        )
        if len(self._index.place) < slots:
            index = self._index
            grown = {name: enlarged(getattr(index, name), slots) for name in ("place",)}
            if self._tables.comparison >= 0:
                grown |= {name: enlarged(getattr(index, name), slots) for name in ("order", "left", "right", "above")}
                grown["subtree"] = enlarged(index.subtree, slots, 0)
            self._index = index._replace(**grown)

    def rebase(self, dead: int, used: int) -> None:
        state = self.state
        state.counters[Counter.OLDEST] -= dead
        state.weight[: used - dead] = state.weight[dead:used]
        self.forget_codes()

    def rekey(
        self, renamed: NDArray[np.int32], key_group: NDArray[np.int32], renamed_groups: NDArray[np.int32]
    ) -> None:
        state = self.state
        known = np.flatnonzero(renamed[: len(state.live)] > EVERY_KEY)
        kept = np.concatenate([np.zeros(1, np.int64), known])
        total = np.zeros_like(state.total)
        # Dropped groups have the number 0 here, and nothing to add.
        np.add.at(total, renamed_groups, state.total[: len(renamed_groups)])
        self.state = state._replace(
            paths=state.paths[kept],
            inverse=state.inverse[kept],
            live=state.live[kept],
            total=total,
            key_group=key_group,
            groups=new_groups(self.tables, len(state.groups.mark)),
        )
        self.forget_codes()

    def forget_codes(self) -> None:
        # The index is filled again at the next call.
        self._index.used[1] = -1

    def _scan(
        self, instances: CounterInstances, first: int, last: int, until: int, largest_weight: float
    ) -> tuple[int, int]:
        if self._index.used[1] != first:
            self._refill(instances, first)
        search = Search(self._tables, self._index)
        found: tuple[int, int] = _scan(search, self.state, instances, first, last, until, self.output)
        self._index.used[1] = found[1]
        return found

    def _grow(self, status: int, instances: CounterInstances, position: int) -> None:
        self._refill(instances, position)

    def _refill(self, instances: CounterInstances, position: int) -> None:
        """A new index of the live events before a slot. It has room for twice as many buckets."""
        oldest = int(self.state.counters[Counter.OLDEST])
        # A power of two, for the hash table.
        buckets = 1 << max(6, (4 * (position - oldest)).bit_length())
        self._index = self._new_index(buckets, len(instances.tick))
        _fill(Search(self._tables, self._index), self.state, instances, oldest, position)
        self._index.used[1] = position


_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_WORD = 2.0**64


@kernel
def _fill(search: Search, state: IndexedState, instances: CounterInstances, oldest: int, position: int):
    for slot in range(oldest, position):
        side = _side(search.tables, instances, slot)
        if side < 2 and _read(search, instances, slot, side):
            bucket = _bucket(search, instances.key[slot], side == 0)
            if bucket >= 0:
                _insert(search, state, slot, 2 * bucket + side)


@kernel
def _scan(
    search: Search,
    state: IndexedState,
    instances: CounterInstances,
    first: int,
    last: int,
    until: int,
    output: CounterOutput,
):
    return scan(
        search.tables.counted, search, state, instances, search, first, last, until, output, oldest_slot, _expire,
        _apply, _read_group,
    )  # fmt: skip


# ── Values and buckets ─────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _side(tables, instances, slot):
    """The position of an event's component in the pattern. Positions 0 and 1 are also the sides of the index."""
    return tables.counted.by_component[instances.component[slot], ByComponent.OWN] - 1


@helper
def _read(search, instances, slot, side):
    """Read the values of an event that the predicates compare. Returns False if one is null, so that no predicate can
    hold.
    """
    tables, value = search.tables, search.index.value
    integers = instances.int_lanes.shape[0]
    for predicate in range(tables.floating.size):
        lane = tables.lanes[predicate, side]
        if tables.floating[predicate]:
            if instances.lane_flags[integers + lane, slot] != LaneFlag.VALUE:
                return False
            value[predicate] = _as_integer(instances.float_lanes[lane, slot])
        else:
            if instances.lane_flags[lane, slot] != LaneFlag.VALUE:
                return False
            value[predicate] = instances.int_lanes[lane, slot]
    return True


@helper(inline=True)
def _as_integer(real):
    """An integer that compares with others as the float does. NaN is the greatest."""
    if real == 0.0:
        return np.int64(0)
    if real != real:
        return np.int64(INT64_MAX)
    bits = np.float64(real).view(np.int64)
    return bits if bits >= 0 else bits ^ np.int64(INT64_MAX)


@helper
def _bucket(search, key, makes):
    """The bucket of the values that `_read` has read. If there is none: a new bucket with `makes`, otherwise -1. Also
    -1 if there is no room.
    """
    tables, index = search.tables, search.index
    hashed = np.uint64(key) * _MIX
    for predicate in range(tables.equalities):
        hashed = (hashed ^ np.uint64(index.value[predicate])) * _MIX
        hashed ^= hashed >> _HALF
    mask = index.bucket.size - 1
    place = np.int64(hashed >> _HALF) & mask
    while index.bucket[place] >= 0:
        bucket = index.bucket[place]
        same = index.key[bucket] == key
        for predicate in range(tables.equalities):
            same = same and index.values[bucket, predicate] == index.value[predicate]
        if same:
            return bucket
        place = (place + 1) & mask
    bucket = np.int32(index.used[0])
    if not makes or bucket == index.key.size:
        return np.int32(-1)
    index.bucket[place] = bucket
    index.key[bucket] = key
    for predicate in range(tables.equalities):
        index.values[bucket, predicate] = index.value[predicate]
    index.used[0] += 1
    return bucket


# ── Sums of a side ─────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _copy(numbers, source):
    for word in range(numbers.size):
        numbers[word] = source[word]


@helper(inline=True)
def _add(numbers, more):
    """Add numbers of two words to others, word pair by word pair."""
    for word in range(0, numbers.size, 2):
        numbers[word], numbers[word + 1] = add_wide(numbers[word], numbers[word + 1], more[word], more[word + 1])


@helper(inline=True)
def _subtract(numbers, less):
    for word in range(0, numbers.size, 2):
        low = ~less[word] + _ONE
        high = ~less[word + 1] + np.uint64(low == _ZERO)
        numbers[word], numbers[word + 1] = add_wide(numbers[word], numbers[word + 1], low, high)


@helper
def _insert(search, state, slot, place):
    """Insert an event, whose values `_read` has read, into a side of a bucket."""
    index = search.index
    index.place[slot] = place
    weight = state.weight[slot]
    if search.tables.comparison < 0:
        _add(index.sums[place], weight)
        return
    order = index.value[search.tables.equalities]
    index.order[slot] = order
    _copy(index.subtree[slot], weight)
    index.left[slot] = -1
    index.right[slot] = -1
    above = np.int32(-1)
    node = index.root[place]
    while node >= 0:
        _add(index.subtree[node], weight)
        above = node
        node = index.left[node] if order < index.order[node] else index.right[node]
    index.above[slot] = above
    if above < 0:
        index.root[place] = slot
    elif order < index.order[above]:
        index.left[above] = slot
    else:
        index.right[above] = slot
    while index.above[slot] >= 0 and _priority(slot) > _priority(index.above[slot]):
        _rotate(index, place, slot)


@helper
def _remove(search, state, slot):
    index = search.index
    place = index.place[slot]
    index.place[slot] = -1
    weight = state.weight[slot]
    if search.tables.comparison < 0:
        _subtract(index.sums[place], weight)
        return
    while index.left[slot] >= 0 or index.right[slot] >= 0:
        left, right = index.left[slot], index.right[slot]
        is_left = right < 0 or (left >= 0 and _priority(left) > _priority(right))
        _rotate(index, place, left if is_left else right)
    node = index.above[slot]
    _link(index, place, node, slot, -1)
    while node >= 0:
        _subtract(index.subtree[node], weight)
        node = index.above[node]


@helper(inline=True)
def _priority(slot):
    """A number that looks random, so that the treap is about as high as if events came in random order."""
    mixed = np.uint64(slot) * _MIX
    mixed ^= mixed >> _HALF
    return mixed * _MIX


@helper(inline=True)
def _link(index, place, above, node, other):
    """Put another node in the place of `node` below the parent `above`, or at the root if that is -1."""
    if above < 0:
        index.root[place] = other
    elif index.left[above] == node:
        index.left[above] = other
    else:
        index.right[above] = other


@helper
def _rotate(index, place, node):
    """Rotate a node with its parent."""
    above = index.above[node]
    _link(index, place, index.above[above], above, node)
    index.above[node] = index.above[above]
    index.above[above] = node
    if index.left[above] == node:
        moved = index.right[node]
        index.left[above] = moved
        index.right[node] = above
    else:
        moved = index.left[node]
        index.right[above] = moved
        index.left[node] = above
    _copy(index.found, index.subtree[above])
    _subtract(index.subtree[above], index.subtree[node])
    if moved >= 0:
        index.above[moved] = above
        _add(index.subtree[above], index.subtree[moved])
    _copy(index.subtree[node], index.found)


@helper
def _find(search, place, order):
    """Write to `found` the sums of the events on a side that fit an event with this value: on side 0 the first events
    that it may follow, on side 1 the second events that may follow it.
    """
    index = search.index
    comparison = search.tables.comparison
    found = index.found
    if comparison < 0:
        _copy(found, index.sums[place])
        return
    for word in range(found.size):
        found[word] = _ZERO
    node = index.root[place]
    if node < 0:
        return
    includes_equal = comparison == Comparison.LESS_EQUAL or comparison == Comparison.GREATER_EQUAL
    takes_less = comparison == Comparison.LESS or comparison == Comparison.LESS_EQUAL
    if place & 1:
        takes_less = not takes_less
    while node >= 0:
        if takes_less:
            fits = index.order[node] < order
        else:
            fits = index.order[node] > order
        fits = fits or (includes_equal and index.order[node] == order)
        inner, outer = (index.left[node], index.right[node]) if takes_less else (index.right[node], index.left[node])
        if fits:
            _add(found, index.subtree[node])
            if outer >= 0:
                _subtract(found, index.subtree[outer])
            node = outer
        else:
            node = inner


# ── Counting ───────────────────────────────────────────────────────────────────────────────────────


@helper
def _read_group(search, state, group, words, reals):
    clear_reading(search.tables.counted, words, reals)
    words[0] = state.total[group, 0]
    words[1] = state.total[group, 1]
    reals[0] = float(words[0]) + float(words[1]) * _WORD


@helper
def _apply(search, state, instances, reading, slot, last):
    """Count one event."""
    place = _side(search.tables, instances, slot)
    key = instances.key[slot]
    live = state.live[key]
    found = search.index.found
    size = live.size // 2
    if place == 0:
        if _read(search, instances, slot, 0):
            bucket = _bucket(search, key, True)
            if bucket < 0:
                return Status.ROOM, slot
            for word in range(2 * size):
                state.weight[slot, word] = word == 0
            _insert(search, state, slot, 2 * bucket)
        state.counters[Counter.STARTS] += 1
        return Status.DONE, slot + 1
    if place == 1:
        bucket = _bucket(search, key, False) if _read(search, instances, slot, 1) else np.int32(-1)
        if bucket < 0:
            return Status.DONE, slot + 1
        _find(search, 2 * bucket, search.index.value[search.tables.equalities] if search.tables.comparison >= 0 else 0)
        low, high = found[0], found[1]
        _copy(state.weight[slot], state.inverse[key, : 2 * size])
        if low != _ZERO or high != _ZERO:
            _insert(search, state, slot, 2 * bucket + 1)
    else:
        low, high = live[2 * place - 4], live[2 * place - 3]
        paths = state.paths[key]
        inverse = state.inverse[key]
        for row in range(size):
            # Column place - 1 of P gets the one before it; a row of the inverse loses the one after it.
            one = 2 * (row * size + place - 1)
            _add(paths[one : one + 2], paths[one - 2 : one])
        behind = 2 * size * (place - 1)
        _subtract(inverse[behind - 2 * size : behind], inverse[behind : behind + 2 * size])
    if low == _ZERO and high == _ZERO:
        return Status.DONE, slot + 1
    if place == size:
        group = state.key_group[key]
        touch_group(search.tables.counted, search, state, group, _read_group)
        complete(state.groups, group)
        state.total[group, 0], state.total[group, 1] = add_wide(state.total[group, 0], state.total[group, 1], low, high)
    at = 2 * place - 2
    live[at], live[at + 1] = add_wide(live[at], live[at + 1], low, high)
    return Status.DONE, slot + 1


@helper
def _expire(search, state, instances, position, now):
    counters = state.counters
    counted = search.tables.counted
    while counters[Counter.OLDEST] < position:
        slot = counters[Counter.OLDEST]
        if not has_left(counted, now, instances.tick[slot]):
            break
        if instances.component[slot] == counted.first:
            counters[Counter.EXPIRED] += 1
            if search.index.place[slot] >= 0:
                group = state.key_group[instances.key[slot]]
                if counted.on_change:
                    touch_group(counted, search, state, group, _read_group)
                _remove_start(search, state, slot, instances.key[slot], group)
        if search.index.place[slot] >= 0:
            _remove(search, state, slot)
        counters[Counter.OLDEST] += 1
    return True


@helper
def _remove_start(search, state, slot, key, group):
    """Subtract the matches of a first event: the sums of the second events that follow it, times P."""
    index = search.index
    _find(search, index.place[slot] + 1, index.order[slot] if search.tables.comparison >= 0 else 0)
    size = state.live.shape[1] // 2
    paths = state.paths[key]
    for column in range(size):
        low = _ZERO
        high = _ZERO
        for row in range(column + 1):
            one = 2 * (row * size + column)
            more, more_high = multiply_wide(index.found[2 * row], index.found[2 * row + 1], paths[one], paths[one + 1])
            low, high = add_wide(low, high, more, more_high)
        high = ~high + np.uint64(low == _ZERO)
        low = ~low + _ONE
        at = 2 * column
        state.live[key, at], state.live[key, at + 1] = add_wide(state.live[key, at], state.live[key, at + 1], low, high)
        if column == size - 1:
            state.total[group, 0], state.total[group, 1] = add_wide(
                state.total[group, 0], state.total[group, 1], low, high
            )
