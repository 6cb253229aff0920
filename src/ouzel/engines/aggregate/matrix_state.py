"""The memory of counters in matrices between calls: new state, more room, and eviction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.tables import (
    NEVER,
    NOTHING,
    ByComponent,
    ByMeasure,
    Counter,
    CounterTables,
    Groups,
    MeasureKind,
    Scratch,
    Way,
    new_groups,
    new_scratch,
    reals_per_column,
    reserve_groups,
    words_per_column,
)
from ouzel.kernels.arrays import Matrix, enlarged


class MatrixState(NamedTuple):
    """The memory between calls: plain arrays. Slots are places in the caller's buffer of instances."""

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
    # Trees over the keys of each group, if its total cannot be maintained: see `matrix.py`.
    leaf: NDArray[np.int32]  # per key: its leaf in the tree of its group
    tree_first: NDArray[np.int64]  # per group: where its nodes begin
    tree_leaves: NDArray[np.int64]  # per group: a power of two, or 0 if it has one key and no tree
    tree_words: Matrix[np.uint64]  # [node, word]
    tree_reals: Matrix[np.float64]
    tree_stale: NDArray[np.int64]  # of length 1: 1 if trees were laid out again
    # A negated start: its events are linked by `next_start`; see `matrix.py`.
    oldest_negative: NDArray[np.int32]  # per key: the oldest in the window, -1 if there is none
    newest_negative: NDArray[np.int32]  # per key
    open_since: NDArray[np.int64]  # per key: matches that were completed before do not count
    flip_bound: NDArray[np.float64]  # per column: scratch


def new_matrix_state(tables: CounterTables, *, wide: bool | None = None) -> MatrixState:
    """The state before the first event. Make room with `reserve_matrix`."""
    counters = np.zeros(len(Counter), np.int64)
    kleene = tables.by_component[:, ByComponent.KLEENE].max() > 0
    counters[Counter.WIDE] = int(kleene and tables.integers > 0) if wide is None else int(wide)
    is_wide = int(counters[Counter.WIDE])
    columns = tables.columns
    word_width, real_width = words_per_column(tables, is_wide), reals_per_column(tables, is_wide)
    return MatrixState(
        np.zeros(0, np.uint64),
        np.zeros(0, np.float64),
        np.zeros((0, columns), np.float64),
        np.zeros(0, np.uint8),
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        np.zeros((0, 2 + 2 * len(tables.by_measure)), np.uint64),
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        np.zeros((0, word_width * columns), np.uint64),
        np.zeros((0, real_width * columns), np.float64),
        np.zeros(0, np.int32),
        np.zeros(1, np.int64),
        np.zeros(0, np.int64),
        np.zeros(word_width * columns * columns, np.uint64),
        np.zeros(real_width * columns * columns, np.float64),
        new_groups(tables, 0),
        counters,
        np.full(1, tables.way, np.int64),
        new_scratch(tables),
        np.zeros(0, np.int32),
        np.zeros(0, np.int64),
        np.zeros(0, np.int64),
        np.zeros((0, 2 + 2 * len(tables.by_measure)), np.uint64),
        np.zeros((0, 1 + len(tables.by_measure)), np.float64),
        np.zeros(1, np.int64),
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        np.zeros(0, np.int64),
        np.zeros(columns, np.float64),
    )


def rows_of(tables: CounterTables) -> int:
    """The number of rows of a key's matrix."""
    return 1 if tables.way == Way.UNBOUNDED else tables.columns


def reserve_matrix(
    tables: CounterTables, state: MatrixState, slots: int, keys: int, key_group: NDArray[np.int32] | None = None
) -> MatrixState:
    """A state with room for this many slots and keys, whose groups are in `key_group`; without it all keys are in group
    0.

    Groups are numbered from 0; keys that are new join their group.
    """
    old = len(state.is_open)
    groups = key_group if key_group is not None else np.zeros(keys, np.int32)
    # A state that was stored before `open_since` existed lacks it.
    if keys > min(old, len(state.open_since)):
        keys = max(keys, old)
        wide = int(state.counters[Counter.WIDE])
        block = rows_of(tables) * tables.columns
        # Exactly as many as there are: a key is opened in its group, which is known only with the key.
        listed = np.zeros(keys, np.int32)
        listed[: len(groups)] = groups
        group_count = int(listed.max()) + 1
        state = state._replace(
            words=enlarged(state.words, keys * words_per_column(tables, wide) * block, 0),
            reals=enlarged(state.reals, keys * reals_per_column(tables, wide) * block, 0),
            bound=enlarged(state.bound, keys, 1),
            is_open=enlarged(state.is_open, keys, 0),
            key_group=enlarged(state.key_group, keys, 0),
            next_of_group=enlarged(state.next_of_group, keys),
            newest=enlarged(state.newest, keys),
            oldest_start=enlarged(state.oldest_start, keys),
            newest_start=enlarged(state.newest_start, keys),
            start_count=enlarged(state.start_count, keys, 0),
            oldest_negative=enlarged(state.oldest_negative, keys),
            newest_negative=enlarged(state.newest_negative, keys),
            open_since=enlarged(state.open_since, keys, NEVER),
            total=enlarged(state.total, group_count, 0),
            groups=reserve_groups(tables, state.groups, group_count),
        )
    elif len(groups):
        group_count = int(groups.max()) + 1
        state = state._replace(
            total=enlarged(state.total, group_count, 0), groups=reserve_groups(tables, state.groups, group_count)
        )
    if state.way[0] == Way.STACKS:
        state = state._replace(
            below=enlarged(state.below, slots),
            next_start=enlarged(state.next_start, slots),
            older_row=enlarged(state.older_row, slots),
        )
    state.key_group[: len(groups)] = groups
    return with_trees(tables, state)


def with_trees(tables: CounterTables, state: MatrixState) -> MatrixState:
    """Trees over the keys of groups with several keys, if totals cannot be maintained; they may be `stale`."""
    keys = len(state.is_open)
    if len(state.leaf) == keys or (tables.integers == len(tables.by_measure) and not state.counters[Counter.WIDE]):
        return state
    group_of = state.key_group[:keys]
    counts = np.bincount(group_of, minlength=len(state.total))
    leaves = np.where(counts > 1, 1 << np.ceil(np.log2(np.maximum(counts, 2))).astype(np.int64), 0)
    # Keys keep their leaves, because new ones come last.
    order = np.argsort(group_of, kind="stable")
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
    state.tree_stale[0] = 1
    return state._replace(
        leaf=leaf, tree_first=np.cumsum(nodes) - nodes, tree_leaves=leaves, tree_words=words, tree_reals=reals
    )


def with_rows(tables: CounterTables, state: MatrixState) -> MatrixState:
    """Room for the rows of twice as many older first events."""
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


def rebase_matrix(state: MatrixState, dead: int, used: int) -> None:
    """The caller drops its `dead` oldest slots, all of which have left the window, and moves the rest to the front."""
    state.counters[Counter.OLDEST] -= dead
    kept = used - dead
    for array in (state.below, state.next_start, state.older_row):
        if len(array):
            # The part after the live slots is written before it is read.
            array[:kept] = array[dead:used]
    per_key = (state.newest, state.oldest_start, state.newest_start, state.oldest_negative, state.newest_negative)
    for links in (state.below[:kept], state.next_start[:kept], *per_key):
        np.copyto(links, np.where(links >= dead, links - dead, -1))
