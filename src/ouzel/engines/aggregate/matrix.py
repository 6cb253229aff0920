"""Counters for which the cost of an event depends neither on the number of matches nor on the number of first
events.

The events of a key in the window are a product of small matrices, one for each timestamp. There are three ways to
remove events. `Way.INVERSE` multiplies by the inverse of the oldest event's matrix; this works for counts and integer
sums. `Way.STACKS` keeps two stacks of products, for negation, minima, floats and Kleene plus: the newer events are one
matrix, and each first event among the older ones has the top row of the product of the older events from it on. When no
older events remain, the newer become the older (a flip). `Way.UNBOUNDED` never removes events, and needs only the top
row.

The total of a group with several keys is updated by adding and subtracting. Minima, floats and wide counters have no
exact differences, so their total is the root of a tree over the keys. The effect of one event on counters is in
`columns.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.columns import (
    add_product,
    add_rows,
    add_wide,
    clear_final,
    clear_reading,
    climb,
    close,
    close_row,
    copy_row,
    extend,
    gate_of,
    identity,
    is_kleene,
    measure_bound,
    needs_widening,
    prepend,
    raise_bound,
    reaches,
    remove,
    weigh,
)
from ouzel.engines.aggregate.scan import Counters, alike, complete, has_left, oldest_slot, scan, touch_group
from ouzel.engines.aggregate.tables import (
    NEVER,
    NOTHING,
    ByComponent,
    ByMeasure,
    Counter,
    CounterInstances,
    CounterOutput,
    CounterTables,
    Groups,
    Kind,
    MeasureKind,
    Scratch,
    Status,
    Way,
    new_counters,
    new_groups,
    new_scratch,
    reals_per_column,
    reserve_groups,
    words_per_column,
)
from ouzel.kernels.arrays import Matrix, enlarged
from ouzel.kernels.events import EVERY_KEY
from ouzel.kernels.jit import helper, kernel

_ZERO = np.uint64(0)
# How far below the limit counts must be after a flip that was made to measure them.
_FAR = 16.0


class MatrixState(NamedTuple):
    """The state between calls: plain arrays. Slots are indexes into the caller's buffer of instances."""

    words: NDArray[np.uint64]  # a block for each key
    reals: NDArray[np.float64]
    bound: Matrix[np.float64]  # [key, column], while counters are narrow
    is_open: NDArray[np.uint8]  # per key: 1 once it has had an event
    key_group: NDArray[np.int32]  # per key
    next_of_group: NDArray[np.int32]  # per key: the next key of its group
    total: Matrix[np.uint64]  # [group, word]: sums over a group's keys, if these can be maintained
    # Two stacks.
    newest: NDArray[np.int32]  # per key: its newest slot, -1 if it has none
    below: NDArray[np.int32]  # per slot: the one before it of the same key
    oldest_start: NDArray[np.int32]  # per key: the oldest first event in the window, -1 if there is none
    newest_start: NDArray[np.int32]  # per key
    next_start: NDArray[np.int32]  # per slot of a first event: the next one of the same key
    older_row: NDArray[np.int32]  # per slot of a first event: its row among the older ones, -1 if it is newer
    older_words: Matrix[np.uint64]  # [row, field * columns + column]
    older_reals: Matrix[np.float64]
    free_rows: NDArray[np.int32]  # a stack of row numbers
    free_count: NDArray[np.int64]  # of length 1
    start_count: NDArray[np.int64]  # per key: first events in the window
    flip_words: NDArray[np.uint64]  # one matrix
    flip_reals: NDArray[np.float64]
    groups: Groups
    counters: NDArray[np.int64]
    way: NDArray[np.int64]  # of length 1: INVERSE is replaced by STACKS when 64 bits are no longer enough
    scratch: Scratch
    # Trees over the keys of each group, if its total cannot be maintained.
    leaf: NDArray[np.int32]  # per key: its leaf in the tree of its group
    tree_first: NDArray[np.int64]  # per group: where its nodes begin
    tree_leaves: NDArray[np.int64]  # per group: a power of two, or 0 if it has one key and no tree
    tree_words: Matrix[np.uint64]  # [node, word]
    tree_reals: Matrix[np.float64]
    # A negated start: its events are linked by `next_start`.
    oldest_negative: NDArray[np.int32]  # per key: the oldest in the window, -1 if there is none
    newest_negative: NDArray[np.int32]  # per key
    open_since: NDArray[np.int64]  # per key: matches that were completed before do not count
    flip_bound: NDArray[np.float64]  # per column: scratch


# The arrays with an entry for each key, with the value of a new one; and those with one for each slot.
_PER_KEY = {
    "bound": 1,
    "is_open": 0,
    "key_group": 0,
    "next_of_group": -1,
    "newest": -1,
    "oldest_start": -1,
    "newest_start": -1,
    "start_count": 0,
    "oldest_negative": -1,
    "newest_negative": -1,
    "open_since": NEVER,
}
_PER_SLOT = ("below", "next_start", "older_row")


class MatrixCounters(Counters):
    """Counters with one matrix for each key."""

    state: MatrixState

    def __init__(self, tables: CounterTables) -> None:
        super().__init__(tables, _new_state(tables, new_counters(tables), tables.way))
        self.keeps_events = tables.way != Way.UNBOUNDED

    def reserve(self, slots: int, key_group: NDArray[np.int32], groups: int) -> None:
        self.state = _with_trees(self.tables, _reserved(self.tables, self.state, slots, key_group, groups))

    def _scan(
        self, instances: CounterInstances, first: int, last: int, until: int, largest_weight: float
    ) -> tuple[int, int]:
        kernel_of = _scan_plain if _is_plain(self.tables, self.state) else _scan
        found: tuple[int, int] = kernel_of(
            self.tables, self.state, instances, largest_weight, first, last, until, self.output
        )
        return found

    def _grow(self, status: int, instances: CounterInstances, position: int) -> None:
        if status == Status.WIDEN:
            self.widen(instances, position)
        else:
            self.state = _with_rows(self.state)

    def widen(self, instances: CounterInstances, position: int) -> None:
        """Change to 128-bit counts, each with a float of about the same size. The events of the window are counted
        again, with two stacks.
        """
        tables, state = self.tables, self.state
        assert not state.counters[Counter.WIDE]
        state.counters[Counter.WIDE] = 1
        if tables.way == Way.UNBOUNDED:
            self.state = _with_trees(tables, _widened_rows(tables, state))
            return
        wide = _new_state(tables, state.counters, Way.STACKS)
        wide = _reserved(tables, wide, len(instances.tick), state.key_group, len(state.total))
        wide.is_open[:] = state.is_open
        wide.open_since[:] = state.open_since
        wide = wide._replace(groups=state.groups, next_of_group=state.next_of_group)
        _replay(tables, wide, instances, int(state.counters[Counter.OLDEST]), position)
        self.state = _with_trees(tables, wide)

    def continue_from(self, counts: NDArray[np.uint64]) -> None:
        """Start from the counts and integer sums of other counters, which have counted since the start: [key, field,
        column].
        """
        tables, state = self.tables, self.state
        assert tables.way == Way.UNBOUNDED and tables.integers == len(tables.by_measure)
        assert not state.counters[Counter.WIDE]
        _open_all(tables, state)
        keys = len(counts)
        state.words.reshape(-1, tables.word_fields, tables.columns)[:keys] = counts
        state.bound[:keys] = counts[:, 0]
        # Totals have 128 bits: the halves of numbers are summed separately, then combined.
        for field in range(tables.word_fields):
            values = counts[:, field, tables.final].view(np.int64)
            halves = np.zeros((2, len(state.total)), np.int64)
            np.add.at(halves[0], state.key_group[:keys], values & (2**32 - 1))
            np.add.at(halves[1], state.key_group[:keys], values >> 32)
            halves[1] += halves[0] >> 32
            state.total[:, 2 * field] = ((halves[1] << 32) | (halves[0] & (2**32 - 1))).view(np.uint64)
            state.total[:, 2 * field + 1] = (halves[1] >> 32).view(np.uint64)

    def rebase(self, dead: int, used: int) -> None:
        state = self.state
        state.counters[Counter.OLDEST] -= dead
        kept = used - dead
        slots = [getattr(state, name) for name in _PER_SLOT]
        for array in slots:
            if len(array):
                # The part after the live slots is written before it is read.
                array[:kept] = array[dead:used]
        per_key = (state.newest, state.oldest_start, state.newest_start, state.oldest_negative, state.newest_negative)
        for links in (state.below[:kept], state.next_start[:kept], *per_key):
            np.copyto(links, np.where(links >= dead, links - dead, -1))

    def rekey(
        self, renamed: NDArray[np.int32], key_group: NDArray[np.int32], renamed_groups: NDArray[np.int32]
    ) -> None:
        tables, state = self.tables, self.state
        known = np.flatnonzero(renamed[: len(state.is_open)] > EVERY_KEY)
        old = np.concatenate([np.zeros(1, np.int64), known])
        new = np.concatenate([np.zeros(1, np.int64), renamed[known]])
        fresh = _new_state(tables, state.counters, int(state.way[0]))
        fresh = _reserved(tables, fresh, 0, key_group, int(key_group.max(initial=0)) + 1)
        for name in ("words", "reals", *_PER_KEY):
            if name not in ("key_group", "next_of_group"):
                source, target = getattr(state, name), getattr(fresh, name)
                target.reshape(len(key_group), -1)[new] = source.reshape(len(state.is_open), -1)[old]
        for key in np.flatnonzero(fresh.is_open):
            group = fresh.key_group[key]
            fresh.next_of_group[key] = fresh.groups.first_cell[group]
            fresh.groups.first_cell[group] = key
        rows = (*_PER_SLOT, "older_words", "older_reals", "free_rows", "free_count")
        fresh = fresh._replace(**{name: getattr(state, name) for name in rows})
        _recount_totals(tables, fresh)
        self.state = _with_trees(tables, fresh)


def _is_plain(tables: CounterTables, state: MatrixState) -> bool:
    """Whether a query only counts sequences of single events, and 64 bits have been enough so far."""
    is_other = tables.on_change or tables.has_kleene or tables.has_negated_start or len(tables.by_measure)
    return not is_other and not state.counters[Counter.WIDE]


def _new_state(tables: CounterTables, counters: NDArray[np.int64], way: int) -> MatrixState:
    """The state before the first event. It has no room for keys yet."""
    wide, columns, measures = int(counters[Counter.WIDE]), tables.columns, len(tables.by_measure)
    word_width, real_width = words_per_column(tables, wide), reals_per_column(tables, wide)
    slots, ticks = np.zeros(0, np.int32), np.zeros(0, np.int64)
    return MatrixState(
        words=np.zeros(0, np.uint64),
        reals=np.zeros(0, np.float64),
        bound=np.zeros((0, columns), np.float64),
        is_open=np.zeros(0, np.uint8),
        key_group=slots,
        next_of_group=slots,
        total=np.zeros((0, 2 + 2 * measures), np.uint64),
        newest=slots,
        below=slots,
        oldest_start=slots,
        newest_start=slots,
        next_start=slots,
        older_row=slots,
        older_words=np.zeros((0, word_width * columns), np.uint64),
        older_reals=np.zeros((0, real_width * columns), np.float64),
        free_rows=slots,
        free_count=np.zeros(1, np.int64),
        start_count=ticks,
        flip_words=np.zeros(word_width * columns * columns, np.uint64),
        flip_reals=np.zeros(real_width * columns * columns, np.float64),
        groups=new_groups(tables, 0),
        counters=counters,
        way=np.full(1, way, np.int64),
        scratch=new_scratch(tables),
        leaf=slots,
        tree_first=ticks,
        tree_leaves=ticks,
        tree_words=np.zeros((0, 2 + 2 * measures), np.uint64),
        tree_reals=np.zeros((0, 1 + measures), np.float64),
        oldest_negative=slots,
        newest_negative=slots,
        open_since=ticks,
        flip_bound=np.zeros(columns, np.float64),
    )


def _reserved(
    tables: CounterTables, state: MatrixState, slots: int, key_group: NDArray[np.int32], groups: int
) -> MatrixState:
    """A state with room for slots, keys and groups."""
    # Exactly as many keys as there are: a key is opened in its group, which is known only with the key.
    keys = len(key_group)
    if keys > len(state.is_open):
        wide = int(state.counters[Counter.WIDE])
        block = keys * tables.columns * (1 if tables.way == Way.UNBOUNDED else tables.columns)
        grown: dict[str, Any] = {name: enlarged(getattr(state, name), keys, fill) for name, fill in _PER_KEY.items()}
        grown["words"] = enlarged(state.words, words_per_column(tables, wide) * block, 0)
        grown["reals"] = enlarged(state.reals, reals_per_column(tables, wide) * block, 0)
        state = state._replace(**grown)
    if state.way[0] == Way.STACKS:
        longer: dict[str, Any] = {name: enlarged(getattr(state, name), slots) for name in _PER_SLOT}
        state = state._replace(**longer)
    state.key_group[:keys] = key_group
    if groups <= len(state.total) and groups <= len(state.groups.mark):
        return state
    return state._replace(total=enlarged(state.total, groups, 0), groups=reserve_groups(tables, state.groups, groups))


def _with_trees(tables: CounterTables, state: MatrixState) -> MatrixState:
    """Add a tree over the keys of each group that has several, unless totals are updated by adding and subtracting."""
    keys = len(state.is_open)
    if len(state.leaf) == keys or (tables.integers == len(tables.by_measure) and not state.counters[Counter.WIDE]):
        return state
    counts = np.bincount(state.key_group, minlength=len(state.total))
    leaves = np.where(counts > 1, 1 << np.ceil(np.log2(np.maximum(counts, 2))).astype(np.int64), 0)
    # Keys keep their leaves, because new ones come last.
    order = np.argsort(state.key_group, kind="stable")
    leaf = np.empty(keys, np.int32)
    leaf[order] = np.arange(keys) - np.repeat(np.cumsum(counts) - counts, counts)
    if np.array_equal(leaves[leaves > 1], state.tree_leaves[state.tree_leaves > 1]):
        return state._replace(
            leaf=leaf,
            tree_first=enlarged(state.tree_first, len(leaves), 0),
            tree_leaves=enlarged(state.tree_leaves, len(leaves), 0),
        )
    nodes = 2 * leaves
    words = np.zeros((int(nodes.sum()), state.tree_words.shape[1]), np.uint64)
    for number, measure in enumerate(tables.by_measure):
        if measure[ByMeasure.KIND] == MeasureKind.LEAST:
            words[:, 2 + 2 * number] = NOTHING
    reals = np.zeros((len(words), state.tree_reals.shape[1]), np.float64)
    state = state._replace(
        leaf=leaf, tree_first=np.cumsum(nodes) - nodes, tree_leaves=leaves, tree_words=words, tree_reals=reals
    )
    _fill_trees(tables, state)
    return state


def _with_rows(state: MatrixState) -> MatrixState:
    """A state with room for the rows of twice as many older first events."""
    old = len(state.older_words)
    rows = max(64, 2 * old, old + int(state.start_count.max(initial=0)))
    free = np.empty(rows, np.int32)
    count = int(state.free_count[0])
    free[:count] = state.free_rows[:count]
    free[count : count + rows - old] = np.arange(rows - 1, old - 1, -1)
    state.free_count[0] = count + rows - old
    return state._replace(
        older_words=enlarged(state.older_words, rows, 0),
        older_reals=enlarged(state.older_reals, rows, 0),
        free_rows=free,
    )


def _widened_rows(tables: CounterTables, state: MatrixState) -> MatrixState:
    """The state with wide counters, if nothing leaves the window."""
    keys, columns = len(state.is_open), tables.columns
    narrow = state.words.reshape(keys, tables.word_fields, columns)
    words = np.zeros((keys, words_per_column(tables, 1), columns), np.uint64)
    words[:, : tables.word_fields] = narrow
    for measure in tables.by_measure:
        if measure[ByMeasure.KIND] == MeasureKind.INTEGER:
            sums = narrow[:, measure[ByMeasure.FIELD]].view(np.int64)
            words[:, measure[ByMeasure.HIGH_FIELD]] = (sums >> 63).view(np.uint64)
    reals = np.zeros((keys, reals_per_column(tables, 1), columns), np.float64)
    reals[:, : tables.real_fields] = state.reals.reshape(keys, tables.real_fields, columns)
    reals[:, tables.real_fields] = narrow[:, 0]
    return state._replace(words=words.reshape(-1), reals=reals.reshape(-1))


# ── Reading ────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def is_held(tables, state, key):
    """Whether all first events of a key are held back, because a negated start has an event before them in the
    window.
    """
    if not tables.has_negated_start or state.oldest_negative[key] < 0:
        return False
    return state.oldest_start[key] < 0 or state.oldest_start[key] > state.oldest_negative[key]


@helper(inline=True)
def add_key(tables, state, key, reading_words, reading_reals):
    """Add the matches of a key to a reading."""
    if is_held(tables, state, key):
        return
    wide = tables.wide
    rows = 1 if tables.way == Way.UNBOUNDED else tables.columns
    if tables.way == Way.STACKS:
        start = state.oldest_start[key]
        if start >= 0 and state.older_row[start] >= 0:
            row = state.older_row[start]
            if not wide and tables.by_measure.shape[0] == 0:
                # Bounds cover the product of narrow counts.
                count = _ZERO
                for middle in range(tables.columns):
                    count += state.older_words[row, middle] * state.words[(key * rows + tables.final) * rows + middle]
                reading_words[0], reading_words[1] = add_wide(reading_words[0], reading_words[1], count, _ZERO)
                reading_reals[0] += float(count)
                return
            add_product(
                tables, state.older_words[row], state.older_reals[row], state.words, state.reals, wide, key * rows,
                reading_words, reading_reals,
            )  # fmt: skip
            return
    add_rows(tables, state.words, state.reals, wide, key * rows, rows, 0, 1, reading_words, reading_reals)


@helper(inline=True)
def keeps_totals(tables, state):
    return tables.wide == 0 and tables.by_measure.shape[0] == tables.integers


@helper(inline=True)
def _has_tree(tables, state, group):
    # If totals are kept, there are no trees.
    return not keeps_totals(tables, state) and state.tree_leaves[group] > 0


@helper(inline=True)
def _read_group(tables, state, group, reading_words, reading_reals):
    clear_reading(tables, reading_words, reading_reals)
    key = state.groups.first_cell[group]
    if key >= 0 and keeps_totals(tables, state) and state.next_of_group[key] >= 0:
        for word in range(reading_words.size):
            reading_words[word] = state.total[group, word]
        reading_reals[0] = float(reading_words[0])
    elif key >= 0 and _has_tree(tables, state, group):
        root = state.tree_first[group] + 1
        for word in range(reading_words.size):
            reading_words[word] = state.tree_words[root, word]
        for real in range(reading_reals.size):
            reading_reals[real] = state.tree_reals[root, real]
    elif key >= 0:
        add_key(tables, state, key, reading_words, reading_reals)


@helper(inline=True)
def _add_to_total(tables, state, key, sign):
    group = state.key_group[key]
    scratch = state.scratch
    clear_reading(tables, scratch.words, scratch.reals)
    add_key(tables, state, key, scratch.words, scratch.reals)
    for place in range(0, scratch.words.size, 2):
        low = scratch.words[place]
        high = scratch.words[place + 1]
        if sign < 0:
            low = ~low + np.uint64(1)
            high = ~high + np.uint64(low == _ZERO)
        state.total[group, place], state.total[group, place + 1] = add_wide(
            state.total[group, place], state.total[group, place + 1], low, high
        )


@kernel
def _recount_totals(tables: CounterTables, state: MatrixState):
    tables = _current(tables, state)
    for key in range(state.is_open.size):
        if state.is_open[key]:
            _change_total(tables, state, key, 1)


@helper(inline=True)
def _change_total(tables, state, key, sign):
    """Add `sign` times the matches of a key to the total of its group, if totals are updated this way. Called with -1
    before the matches change and with 1 afterwards.
    """
    head = state.groups.first_cell[state.key_group[key]]
    if keeps_totals(tables, state) and state.next_of_group[head] >= 0:
        _add_to_total(tables, state, key, sign)


@helper(inline=True)
def _update_group(tables, state, key):
    """Update the group of a key whose matches have changed."""
    _change_total(tables, state, key, 1)
    # Tested here, because a call copies the whole state.
    if _has_tree(tables, state, state.key_group[key]):
        _put_in_tree(tables, state, key)


@helper
def _put_in_tree(tables, state, key):
    """Update the leaf of a key in the tree of its group, and all nodes above it."""
    group = state.key_group[key]
    leaves = state.tree_leaves[group]
    first = state.tree_first[group]
    words = state.tree_words[first : first + 2 * leaves]
    reals = state.tree_reals[first : first + 2 * leaves]
    node = leaves + state.leaf[key]
    clear_reading(tables, words[node], reals[node])
    add_key(tables, state, key, words[node], reals[node])
    climb(tables.by_measure[:, ByMeasure.KIND], words, reals, node)


@kernel
def _fill_trees(tables: CounterTables, state: MatrixState):
    tables = _current(tables, state)
    for key in range(state.is_open.size):
        if state.is_open[key]:
            _update_group(tables, state, key)


# ── Leaving the window ─────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _expire(tables, state, instances, position, now):
    """Remove what has left the window. Returns False if a flip needs more room; then nothing has changed for this
    event.
    """
    counters = state.counters
    inverse = tables.way == Way.INVERSE
    while counters[Counter.OLDEST] < position:
        slot = counters[Counter.OLDEST]
        if not has_left(tables, now, instances.tick[slot]):
            break
        key = instances.key[slot]
        starts = instances.component[slot] == tables.first
        if starts:
            flips = not inverse and state.older_row[slot] < 0
            if flips and state.free_count[0] < state.start_count[key]:
                return False
            if tables.on_change:
                touch_group(tables, tables, state, state.key_group[key], _read_group)
            _change_total(tables, state, key, -1)
            if flips:
                flip(tables, state, instances, key)
            if inverse:
                remove(tables, state.words, key * tables.columns, instances, slot)
            else:
                state.free_rows[state.free_count[0]] = state.older_row[slot]
                state.free_count[0] += 1
                state.start_count[key] -= 1
                state.oldest_start[key] = state.next_start[slot]
            _update_group(tables, state, key)
            counters[Counter.EXPIRED] += 1
        elif inverse:
            remove(tables, state.words, key * tables.columns, instances, slot)
        elif (
            tables.has_negated_start
            and tables.by_component[instances.component[slot], ByComponent.KIND] == Kind.NEGATED_START
            and not _release(tables, state, instances, slot, now)
        ):
            return False
        counters[Counter.OLDEST] += 1
    return True


@helper
def _release(tables, state, instances, slot, now):
    """Remove the oldest event of a negated start. The first events up to the next such event are no longer held back.
    Returns False if this needs more room; then nothing has changed.
    """
    key = instances.key[slot]
    start = state.oldest_start[key]
    flips = start < 0 or state.older_row[start] < 0
    if flips and state.free_count[0] < state.start_count[key]:
        return False
    state.oldest_negative[key] = state.next_start[slot]
    # All events so far are older, and their matches do not count.
    state.open_since[key] = now
    if flips:
        flip(tables, state, instances, key)
    else:
        columns = tables.columns
        close(
            tables, state.words, state.reals, tables.wide, key * columns, columns, 0, columns,
            tables.final,
        )  # fmt: skip
    return True


@helper
def flip(tables, state, instances, key):
    """Make the newer events the older ones. From the newest to the oldest event, the top row is stored at each first
    event.

    There must be room for as many rows as the key has first events. With a negated start, some may have a row
    already.
    """
    wide = tables.wide
    oldest = state.oldest_start[key]
    state.counters[Counter.FLIPS] += oldest >= 0
    words = state.flip_words
    reals = state.flip_reals
    bounded = tables.has_negated_start != 0 and not wide
    identity(tables, words, reals, wide, 0, tables.columns)
    if bounded:
        state.flip_bound[:] = 0.0
    slot = state.newest[key] if oldest >= 0 else np.int32(-1)
    while slot >= max(oldest, 0):
        component = instances.component[slot]
        first = slot
        if is_kleene(tables, component):
            while (
                state.below[first] >= oldest
                and instances.tick[state.below[first]] == instances.tick[slot]
                and instances.component[state.below[first]] == component
            ):
                first = state.below[first]
        if tables.by_component[component, ByComponent.KIND] != Kind.POSITIVE:
            close_row(tables, words, reals, wide, tables.by_component[component, ByComponent.OWN])
        else:
            if tables.by_measure.shape[0] > 0:
                weigh(tables, state.scratch, instances, first, slot + 1)
            if bounded and component == tables.first:
                _add_to_bound(tables, state.flip_bound, words, slot - first + 1)
            prepend(
                tables, words, reals, wide, component, slot - first + 1, state.scratch,
                is_allowed(tables, state, key, component, instances.tick[slot]),
            )  # fmt: skip
        if component == tables.first:
            negative = state.oldest_negative[key]
            for start in range(first, slot + 1):
                row = state.older_row[start]
                if row < 0:
                    state.free_count[0] -= 1
                    row = state.free_rows[state.free_count[0]]
                    state.older_row[start] = row
                copy_row(tables, words, reals, wide, state.older_words[row], state.older_reals[row])
                if 0 <= negative < start:
                    clear_final(tables, wide, state.older_words[row], state.older_reals[row])
        slot = state.below[first]
    identity(tables, state.words, state.reals, wide, key * tables.columns, tables.columns)
    if bounded:
        measure_bound(tables, words, 0, tables.columns, 0, tables.columns, state.bound[key])
        for column in range(tables.columns):
            state.bound[key, column] = max(state.bound[key, column], state.flip_bound[column])
        # Only allowed matches are counted at the gate of a negated start.
        state.bound[key, tables.final] = max(state.bound[key, tables.final], state.bound[key, tables.final - 1])


@helper(inline=True)
def is_allowed(tables, state, key, component, tick):
    """Whether the matches that an event completes count. They do not if a negated start holds back all first events of
    that time.
    """
    return not tables.has_negated_start or gate_of(tables, component) != tables.final or tick >= state.open_since[key]


@helper
def _add_to_bound(tables, bound, words, times):
    """Add to a bound the prefixes of all first events, including those that are held back."""
    columns = tables.columns
    own = tables.by_component[tables.first, ByComponent.OWN]
    gate = tables.by_component[tables.first, ByComponent.GATE]
    for column in range(own, columns):
        bound[column] += times * float(words[column * columns + own])
        if gate >= 0:
            bound[column] += times * float(words[column * columns + gate])


# ── The scan ───────────────────────────────────────────────────────────────────────────────────────


@kernel
def _scan(
    tables: CounterTables,
    state: MatrixState,
    instances: CounterInstances,
    largest_weight: float,
    first: int,
    last: int,
    until: int,
    output: CounterOutput,
):
    tables = _current(tables, state)
    return scan(
        tables, tables, state, instances, largest_weight, first, last, until, output, oldest_slot, _expire, _apply,
        _read_group,
    )  # fmt: skip


@kernel
def _scan_plain(
    tables: CounterTables,
    state: MatrixState,
    instances: CounterInstances,
    largest_weight: float,
    first: int,
    last: int,
    until: int,
    output: CounterOutput,
):
    """`_scan` for the queries of `_is_plain`. The tables are constants here, so the compiler removes the code that
    these queries do not need.
    """
    plain = CounterTables(
        way=state.way[0],
        wide=0,
        columns=tables.columns,
        first=tables.first,
        final=tables.final,
        window=tables.window,
        on_change=0,
        split=0,
        has_kleene=0,
        has_negated_start=0,
        word_fields=1,
        integers=0,
        real_fields=0,
        by_component=tables.by_component,
        by_measure=tables.by_measure[:0],
    )
    return scan(
        plain, plain, state, instances, largest_weight, first, last, until, output, oldest_slot, _expire, _apply,
        _read_group,
    )  # fmt: skip


@helper(inline=True)
def _current(tables, state):
    """The tables with the current way and the current width of counters."""
    return CounterTables(
        state.way[0], state.counters[Counter.WIDE], tables.columns, tables.first, tables.final, tables.window,
        tables.on_change, tables.split, tables.has_kleene, tables.has_negated_start, tables.word_fields,
        tables.integers, tables.real_fields, tables.by_component, tables.by_measure,
    )  # fmt: skip


@kernel
def _open_all(tables: CounterTables, state: MatrixState):
    tables = _current(tables, state)
    for key in range(state.is_open.size):
        if not state.is_open[key]:
            _open(tables, state, key)


@helper(inline=True)
def _may_count(tables, state, instances, slot, behind, largest_weight):
    """Whether narrow counters can count the instances: DONE if they can, WIDEN if not, or ROOM if that is needed to
    find out.
    """
    component = instances.component[slot]
    if tables.wide or tables.by_component[component, ByComponent.KIND] != Kind.POSITIVE:
        return Status.DONE
    key = instances.key[slot]
    bound = state.bound[key]
    if not needs_widening(raise_bound(tables, bound, component, behind - slot), largest_weight):
        return Status.DONE
    if not state.is_open[key]:
        return Status.WIDEN if needs_widening(1.0, largest_weight) else Status.DONE
    if tables.has_negated_start:
        # Prefixes that are held back are in no matrix before the next flip, so only a flip can measure them. It must
        # not be repeated with the next event.
        if state.free_count[0] < state.start_count[key]:
            return Status.ROOM
        flip(tables, state, instances, key)
        raised = raise_bound(tables, bound, component, behind - slot)
        return Status.WIDEN if needs_widening(_FAR * raised, largest_weight) else Status.DONE
    rows = 1 if tables.way == Way.UNBOUNDED else tables.columns
    measure_bound(tables, state.words, key * rows, rows, 0, rows, bound)
    if tables.way == Way.STACKS:
        start = state.oldest_start[key]
        if start >= 0 and state.older_row[start] >= 0:
            row = state.older_row[start]
            for column in range(tables.columns):
                reached = reaches(
                    tables, state.older_words[row], state.older_reals[row], state.words, state.reals, 0, key * rows,
                    column,
                )  # fmt: skip
                bound[column] = max(bound[column], reached)
    raised = raise_bound(tables, bound, component, behind - slot)
    return Status.WIDEN if needs_widening(raised, largest_weight) else Status.DONE


@helper(inline=True)
def _open(tables, state, key):
    """Prepare the counters of a key for its first event."""
    group = state.key_group[key]
    rows = 1 if tables.way == Way.UNBOUNDED else tables.columns
    identity(tables, state.words, state.reals, tables.wide, key * rows, rows)
    if not state.is_open[key]:
        state.is_open[key] = 1
        state.next_of_group[key] = state.groups.first_cell[group]
        state.groups.first_cell[group] = key
        if state.next_of_group[key] >= 0 and state.next_of_group[state.next_of_group[key]] < 0:
            # From now on the group has several keys, and its total is kept.
            for word in range(state.total.shape[1]):
                state.total[group, word] = _ZERO
            _add_to_total(tables, state, state.next_of_group[key], 1)


@helper(inline=True)
def _together(tables, instances, slot, last):
    """The slot after the instances that are counted at once: with +, the simultaneous ones of one component and key;
    otherwise one.
    """
    if is_kleene(tables, instances.component[slot]):
        return alike(instances, slot, last)
    return slot + 1


@helper(inline=True)
def _apply(tables, state, instances, largest_weight, slot, last):
    """Count the instances at a slot, as many as are counted at once. Returns the status and the slot after them."""
    behind = _together(tables, instances, slot, last)
    status = _may_count(tables, state, instances, slot, behind, largest_weight)
    if status == Status.DONE:
        _multiply(tables, state, instances, slot, behind)
    return status, behind


@helper(inline=True)
def _multiply(tables, state, instances, slot, behind):
    """Count instances of one component and key, and update the total of their group."""
    component = instances.component[slot]
    key = instances.key[slot]
    kind = tables.by_component[component, ByComponent.KIND]
    if kind == Kind.NEGATIVE and key == 0 and tables.way == Way.UNBOUNDED:
        # Of no key, or of every key.
        for one in range(state.is_open.size):
            if state.is_open[one]:
                close(
                    tables, state.words, state.reals, tables.wide, one, 1, 0, 1,
                    tables.by_component[component, ByComponent.OWN],
                )  # fmt: skip
        return
    if not state.is_open[key]:
        _open(tables, state, key)
    own = tables.by_component[component, ByComponent.OWN]
    completes = kind == Kind.POSITIVE and max(own, gate_of(tables, component)) == tables.final
    if completes:
        completes = _has_prefix(tables, state, key, tables.by_component[component, ByComponent.FROM])
        if not completes and is_kleene(tables, component):
            completes = _has_prefix(tables, state, key, own)
    group = state.key_group[key]
    if completes:
        touch_group(tables, tables, state, group, _read_group)
        complete(state.groups, group)
        _change_total(tables, state, key, -1)
    _insert(tables, state, instances, slot, behind)
    if completes:
        _update_group(tables, state, key)


@helper(inline=True)
def _has_prefix(tables, state, key, column):
    """Whether the window has a prefix that ends at a column."""
    if is_held(tables, state, key):
        return False
    wide = tables.wide
    rows = 1 if tables.way == Way.UNBOUNDED else tables.columns
    if tables.way == Way.STACKS:
        start = state.oldest_start[key]
        if start >= 0 and state.older_row[start] >= 0:
            row = state.older_row[start]
            return (
                reaches(
                    tables, state.older_words[row], state.older_reals[row], state.words, state.reals, wide, key * rows,
                    column,
                )
                > 0.0
            )  # fmt: skip
    if wide:
        width = tables.real_fields + 1
        return state.reals[(key * width * tables.columns + tables.real_fields * tables.columns + column) * rows] > 0.0
    return state.words[(key * tables.word_fields * tables.columns + column) * rows] != _ZERO


@helper(inline=True)
def _insert(tables, state, instances, slot, behind):
    """Multiply the matrix of a key by that of its newest events."""
    component = instances.component[slot]
    key = instances.key[slot]
    wide = tables.wide
    rows = 1 if tables.way == Way.UNBOUNDED else tables.columns
    own = tables.by_component[component, ByComponent.OWN]
    kind = tables.by_component[component, ByComponent.KIND]
    if kind != Kind.POSITIVE:
        close(tables, state.words, state.reals, wide, key * rows, rows, 0, rows, own)
    else:
        if tables.by_measure.shape[0] > 0:
            weigh(tables, state.scratch, instances, slot, behind)
        # All rows, though those after its own are empty: a loop of constant length is never mispredicted.
        opened = rows if is_allowed(tables, state, key, component, instances.tick[slot]) else 0
        extend(
            tables, state.words, state.reals, wide, key * rows, rows, 0, key * rows, rows, 0, rows, opened,
            component, behind - slot, state.scratch, 1,
        )  # fmt: skip
    if tables.way != Way.STACKS:
        return
    if tables.has_negated_start and kind == Kind.NEGATED_START:
        state.next_start[slot] = -1
        if state.oldest_negative[key] < 0:
            state.oldest_negative[key] = slot
        else:
            state.next_start[state.newest_negative[key]] = slot
        state.newest_negative[key] = slot
    for one in range(slot, behind):
        state.below[one] = state.newest[key]
        state.newest[key] = one
        if component == tables.first:
            state.counters[Counter.STARTS] += 1
            state.start_count[key] += 1
            state.next_start[one] = -1
            state.older_row[one] = -1
            if state.oldest_start[key] < 0:
                state.oldest_start[key] = one
            else:
                state.next_start[state.newest_start[key]] = one
            state.newest_start[key] = one


@kernel
def _replay(tables: CounterTables, state: MatrixState, instances: CounterInstances, first: int, last: int):
    """Count the events of the window again."""
    tables = _current(tables, state)
    for key in range(state.is_open.size):
        if state.is_open[key]:
            identity(tables, state.words, state.reals, tables.wide, key * tables.columns, tables.columns)
    slot = first
    while slot < last:
        behind = _together(tables, instances, slot, last)
        _insert(tables, state, instances, slot, behind)
        slot = behind
