"""What the keys of a group come to, of counters in matrices.

Integers are kept as one total, which keys leave before they change and enter afterwards. Minima, floats and counts of
128 bits are not: there the keys of a group are the leaves of a tree, and a key that changes costs as many steps as the
tree is high.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.counters_columns import add_rows, add_wide, clear_reading
from ouzel.kernels.counters_matrix_state import MatrixState, new_matrix_state, reserve_matrix, rows_of
from ouzel.kernels.counters_products import add_product
from ouzel.kernels.counters_report import touch
from ouzel.kernels.counters_tables import (
    ByMeasure,
    Counter,
    CounterTables,
    Way,
    reals_per_column,
    words_per_column,
)
from ouzel.kernels.counters_tree import climb
from ouzel.kernels.jit import helper, kernel

_ZERO = np.uint64(0)
# What goes with a key to its new number.
_PER_KEY = (
    *("bound", "is_open", "newest", "oldest_start", "newest_start", "start_count"),
    *("oldest_negative", "newest_negative", "open_since"),
)


# ── Reading ────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def is_held(tables, state, key):
    """Whether a negated start holds back all that the first events of a key lead to, and those to come."""
    if not tables.has_negated_start or state.oldest_negative[key] < 0:
        return False
    return state.oldest_start[key] < 0 or state.oldest_start[key] > state.oldest_negative[key]


@helper(inline=True)
def add_key(tables, state, key, reading_words, reading_reals):
    """Add the matches of a key to a reading."""
    if is_held(tables, state, key):
        return
    wide = state.counters[Counter.WIDE]
    rows = 1 if state.way[0] == Way.UNBOUNDED else tables.columns
    if state.way[0] == Way.STACKS:
        start = state.oldest_start[key]
        if start >= 0 and state.older_row[start] >= 0:
            row = state.older_row[start]
            add_product(
                tables, state.older_words[row], state.older_reals[row], state.words, state.reals, wide, key * rows,
                reading_words, reading_reals,
            )  # fmt: skip
            return
    add_rows(tables, state.words, state.reals, wide, key * rows, rows, 0, 1, reading_words, reading_reals)


@helper(inline=True)
def keeps_totals(tables, state):
    return state.counters[Counter.WIDE] == 0 and tables.by_measure.shape[0] == tables.integers


@helper(inline=True)
def _has_tree(tables, state, group):
    # Where totals are kept, no trees are laid out at all.
    return not keeps_totals(tables, state) and state.tree_leaves[group] > 0


@helper(inline=True)
def read_group_of_matrix(tables, state, group, reading_words, reading_reals):
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
def touch_group(tables, state, group):
    """Before a group changes."""
    place = touch(tables, state.groups, state.counters, group)
    if place >= 0:
        read_group_of_matrix(tables, state, group, state.groups.before_words[place], state.groups.before_reals[place])


@helper
def add_to_total(tables, state, key, sign):
    """Take a key's matches out of its group's total before they change, and put them back in afterwards."""
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
def recount_totals(tables, state):
    for key in range(state.is_open.size):
        group = state.key_group[key]
        if (
            state.is_open[key]
            and keeps_totals(tables, state)
            and state.next_of_group[state.groups.first_cell[group]] >= 0
        ):
            add_to_total(tables, state, key, 1)


@helper
def put_in_tree(tables, state, key):
    """The matches of a key have changed: its leaf, and all that is above it."""
    group = state.key_group[key]
    if not _has_tree(tables, state, group):
        return
    leaves = state.tree_leaves[group]
    first = state.tree_first[group]
    words = state.tree_words[first : first + 2 * leaves]
    reals = state.tree_reals[first : first + 2 * leaves]
    node = leaves + state.leaf[key]
    clear_reading(tables, words[node], reals[node])
    add_key(tables, state, key, words[node], reals[node])
    climb(tables.by_measure[:, ByMeasure.KIND], words, reals, node)


@kernel
def fill_trees(tables, state):
    """After the trees were laid out anew."""
    for key in range(state.is_open.size):
        if state.is_open[key]:
            put_in_tree(tables, state, key)
    state.tree_stale[0] = 0


# ── Other keys ─────────────────────────────────────────────────────────────────────────────────────


def rekey_matrix(
    tables: CounterTables, state: MatrixState, live: NDArray[np.int32], key_group: NDArray[np.int32]
) -> MatrixState:
    """Key 0 stays, key `live[k]` becomes k + 1, all others are forgotten; `key_group` tells the groups of the new."""
    old = np.concatenate([np.zeros(1, np.int64), live.astype(np.int64)])
    keys = len(old)
    known = old < len(state.is_open)
    wide = int(state.counters[Counter.WIDE])
    fresh = new_matrix_state(tables, wide=bool(wide))
    fresh.way[0] = state.way[0]
    fresh = reserve_matrix(tables, fresh, len(state.below), keys, key_group)
    block = rows_of(tables) * tables.columns
    _copy_blocks(state.words, fresh.words, words_per_column(tables, wide) * block, old, known)
    _copy_blocks(state.reals, fresh.reals, reals_per_column(tables, wide) * block, old, known)
    for name in _PER_KEY:
        getattr(fresh, name)[:keys][known] = getattr(state, name)[old[known]]
    for key in np.flatnonzero(fresh.is_open):
        group = fresh.key_group[key]
        fresh.next_of_group[key] = fresh.groups.first_cell[group]
        fresh.groups.first_cell[group] = key
    fresh.counters[:] = state.counters
    fresh = fresh._replace(
        below=state.below,
        next_start=state.next_start,
        older_row=state.older_row,
        older_words=state.older_words,
        older_reals=state.older_reals,
        free_rows=state.free_rows,
        free_count=state.free_count,
    )
    recount_totals(tables, fresh)
    fill_trees(tables, fresh)
    return fresh


def _copy_blocks(source: NDArray, target: NDArray, size: int, old: NDArray, known: NDArray) -> None:  # type: ignore[type-arg]
    if size:
        kept = target.reshape(-1, size)[: len(old)]
        kept[known] = source.reshape(-1, size)[old[known]]
