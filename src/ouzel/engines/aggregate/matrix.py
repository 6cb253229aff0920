"""Counters whose cost per event depends neither on the number of matches nor on the number of first events.

The events of a key in the window are a product of small matrices, one for each timestamp. `Way.INVERSE`: the oldest
event is removed by the inverse of its matrix (counts and integer sums). `Way.STACKS`: two stacks of products, for
negation, minima, floats and Kleene plus. The newer events are one matrix. For each first event among the older ones,
the top row of the product from it to the newer ones is stored. When no older ones are left, the newer become the older.
`Way.UNBOUNDED`: nothing leaves, and the top row is enough.

The entry function is `scan_matrix`. Before it: reporting changed groups, totals over the keys of a group, renumbering
of keys, and expiry. `columns.py` has the effect of one event on counters, `matrix_state.py` the state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.aggregate.columns import (
    add_product,
    add_rows,
    add_wide,
    clear_final,
    clear_reading,
    close,
    close_row,
    copy_row,
    extend,
    identity,
    measure_bound,
    needs_widening,
    prepend,
    raise_bound,
    reaches,
    remove,
    weigh,
)
from ouzel.engines.aggregate.matrix_plain import is_plain, scan_plain
from ouzel.engines.aggregate.matrix_state import (
    MatrixState,
    new_matrix_state,
    reserve_matrix,
    rows_of,
    with_rows,
    with_trees,
)
from ouzel.engines.aggregate.tables import (
    ByComponent,
    ByMeasure,
    Counter,
    CounterInstances,
    CounterOutput,
    CounterTables,
    Kind,
    MeasureKind,
    Phase,
    Status,
    Way,
    larger_counter_output,
    reals_per_column,
    words_per_column,
)
from ouzel.kernels.arrays import INT64_MAX
from ouzel.kernels.events import NO_WINDOW
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces


@helper
def climb(kinds, words, reals, node):
    """A leaf has changed: recompute all nodes above it. `kinds` has the MeasureKind of each measure."""
    node //= 2
    while node:
        left = 2 * node
        right = left + 1
        for place in range(0, words.shape[1], 2):
            if place and kinds[place // 2 - 1] == MeasureKind.LEAST:
                least = min(np.int64(words[left, place]), np.int64(words[right, place]))
                words[node, place] = np.uint64(least)
            else:
                words[node, place], words[node, place + 1] = add_wide(
                    words[left, place], words[left, place + 1], words[right, place], words[right, place + 1]
                )
        for place in range(reals.shape[1]):
            reals[node, place] = reals[left, place] + reals[right, place]
        node //= 2


# Results of `emit` other than a group.
NOTHING_LEFT = -1
FULL = -2


@helper(inline=True)
def next_moment(tables, comes, event_tick, leaves, oldest_tick, until):
    """(whether there is one, the next timestamp at which a row may be emitted).

    Expiry counts as a timestamp only with EMIT ON CHANGE.
    """
    if tables.on_change and leaves and tables.window != NO_WINDOW and oldest_tick <= INT64_MAX - tables.window:
        expiry = oldest_tick + tables.window
        if expiry <= until and (not comes or expiry < event_tick):
            return True, expiry
    return comes, event_tick


@helper(inline=True)
def touch(tables, groups, counters, group):
    """Note that a timestamp may change a group. Returns the place for its values before the timestamp, or -1 if they
    are not needed."""
    if groups.mark[group] != 0:
        return -1
    groups.mark[group] = 1
    place = counters[Counter.TOUCHED]
    groups.touched[place] = group
    counters[Counter.TOUCHED] += 1
    return place if tables.on_change else -1


@helper(inline=True)
def complete(groups, group):
    """Note that a match completes in a touched group."""
    groups.mark[group] = 2


@helper(inline=True)
def emit(tables, groups, counters, scratch, output):
    """The next group whose values must be read into scratch, NOTHING_LEFT, or FULL if the output has no room.

    The caller alternates calls and readings: the next call writes the values that were read.
    """
    while counters[Counter.EMITTED] < 2 * counters[Counter.TOUCHED]:
        place = counters[Counter.EMITTED] // 2
        group = groups.touched[place]
        if counters[Counter.EMITTED] % 2 == 0:
            if output.written[0] == output.tick.size:
                return FULL
            if groups.mark[group] != 2 and not tables.on_change:
                groups.mark[group] = 0
                counters[Counter.EMITTED] += 2
                continue
            counters[Counter.EMITTED] += 1
            return group
        counters[Counter.EMITTED] += 1
        completed = groups.mark[group] == 2
        emits = completed
        if not emits:
            emits = _differs(tables, groups.before_words[place], groups.before_reals[place], scratch)
        groups.mark[group] = 0
        if emits:
            written = output.written[0]
            output.tick[written] = counters[Counter.MOMENT]
            output.group[written] = group
            output.completed[written] = completed
            for word in range(scratch.words.size):
                output.words[written, word] = scratch.words[word]
                if tables.on_change:
                    output.before_words[written, word] = groups.before_words[place, word]
            for real in range(scratch.reals.size):
                output.reals[written, real] = scratch.reals[real]
                if tables.on_change:
                    output.before_reals[written, real] = groups.before_reals[place, real]
            output.written[0] += 1
            counters[Counter.ROWS] += 1
    counters[Counter.TOUCHED] = 0
    counters[Counter.EMITTED] = 0
    return NOTHING_LEFT


@helper
def _differs(tables, words, reals, scratch):
    """Whether any value has changed. Two NaN are equal."""
    for place in range(words.size):
        if words[place] != scratch.words[place]:
            return True
    for measure in range(tables.by_measure.shape[0]):
        if tables.by_measure[measure, ByMeasure.KIND] == MeasureKind.FLOAT:
            before = reals[1 + measure]
            after = scratch.reals[1 + measure]
            if before != after and not (before != before and after != after):
                return True
    return False


_ZERO = np.uint64(0)
# The arrays that move with a key to its new number.
_PER_KEY = (
    *("bound", "is_open", "newest", "oldest_start", "newest_start", "start_count"),
    *("oldest_negative", "newest_negative", "open_since"),
)


# ── Reading ────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def is_held(tables, state, key):
    """Whether a negated start holds back all matches of the first events of a key, and of later ones."""
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
    # If totals are kept, there are no trees.
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
    """Note the values of a group before it changes."""
    place = touch(tables, state.groups, state.counters, group)
    if place >= 0:
        read_group_of_matrix(tables, state, group, state.groups.before_words[place], state.groups.before_reals[place])


@helper
def add_to_total(tables, state, key, sign):
    """Subtract a key's matches from its group's total before they change, and add them afterwards."""
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
def recount_totals(tables: CounterTables, state: MatrixState):
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
    """The matches of a key have changed: update its leaf, and all nodes above it."""
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
def fill_trees(tables: CounterTables, state: MatrixState):
    """After the trees were laid out again."""
    for key in range(state.is_open.size):
        if state.is_open[key]:
            put_in_tree(tables, state, key)
    state.tree_stale[0] = 0


# ── Other keys ─────────────────────────────────────────────────────────────────────────────────────


def rekey_matrix(
    tables: CounterTables, state: MatrixState, live: NDArray[np.int32], key_group: NDArray[np.int32]
) -> MatrixState:
    """Key 0 stays, key `live[k]` becomes k + 1, all others are dropped; `key_group` has the groups of the new ones."""
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


@helper(inline=True)
def expire(tables, state, instances, position, moment, tell):
    """Remove what has left the window. False if a flip needs more room; then nothing has changed."""
    counters = state.counters
    window = np.uint64(tables.window)
    inverse = state.way[0] == Way.INVERSE
    while counters[Counter.OLDEST] < position:
        slot = counters[Counter.OLDEST]
        tick = instances.tick[slot]
        if moment < tick or np.uint64(moment) - np.uint64(tick) < window:
            break
        key = instances.key[slot]
        starts = instances.component[slot] == tables.first
        if starts:
            flips = not inverse and state.older_row[slot] < 0
            if flips and state.free_count[0] < state.start_count[key]:
                return False
            if tell:
                touch_group(tables, state, state.key_group[key])
            group_head = state.groups.first_cell[state.key_group[key]]
            summed = state.next_of_group[group_head] >= 0 and keeps_totals(tables, state)
            if summed:
                add_to_total(tables, state, key, -1)
            if flips:
                flip(tables, state, instances, key)
            if inverse:
                remove(tables, state.words, key * tables.columns, instances, slot)
            else:
                state.free_rows[state.free_count[0]] = state.older_row[slot]
                state.free_count[0] += 1
                state.start_count[key] -= 1
                state.oldest_start[key] = state.next_start[slot]
            if summed:
                add_to_total(tables, state, key, 1)
            else:
                put_in_tree(tables, state, key)
            counters[Counter.EXPIRED] += 1
        elif inverse:
            remove(tables, state.words, key * tables.columns, instances, slot)
        elif (
            tables.has_negated_start
            and tables.by_component[instances.component[slot], ByComponent.KIND] == Kind.NEGATED_START
            and not _release(tables, state, instances, slot, moment)
        ):
            return False
        counters[Counter.OLDEST] += 1
    return True


@helper
def _release(tables, state, instances, slot, moment):
    """The oldest event of a negated start leaves: first events up to the next one are no longer held back. False if
    that needs more room; then nothing has changed."""
    key = instances.key[slot]
    start = state.oldest_start[key]
    flips = start < 0 or state.older_row[start] < 0
    if flips and state.free_count[0] < state.start_count[key]:
        return False
    state.oldest_negative[key] = state.next_start[slot]
    # All events so far are older, and their matches do not count.
    state.open_since[key] = moment
    if flips:
        flip(tables, state, instances, key)
    else:
        columns = tables.columns
        close(
            tables,
            state.words,
            state.reals,
            state.counters[Counter.WIDE],
            key * columns,
            columns,
            0,
            columns,
            tables.final,
        )
    return True


@helper
def flip(tables, state, instances, key):
    """The newer events become the older: from the newest back to the oldest, the top row is stored at first events.

    There is room for as many rows as the key has first events; with a negated start some may already have a row.
    """
    wide = state.counters[Counter.WIDE]
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
        if tables.by_component[component, ByComponent.KLEENE]:
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
    """Whether the matches that an event completes count: not if a negated start held back all first events of its
    time."""
    return (
        not tables.has_negated_start
        or tables.by_component[component, ByComponent.GATE] != tables.final
        or tick >= state.open_since[key]
    )


@helper
def _add_to_bound(tables, bound, words, times):
    """Prefixes from all first events, held back or not: no count of the window is larger."""
    columns = tables.columns
    own = tables.by_component[tables.first, ByComponent.OWN]
    gate = tables.by_component[tables.first, ByComponent.GATE]
    for column in range(own, columns):
        bound[column] += times * float(words[column * columns + own])
        if gate >= 0:
            bound[column] += times * float(words[column * columns + gate])


class MatrixProgress(NamedTuple):
    state: MatrixState
    output: CounterOutput


def scan_matrix(
    tables: CounterTables,
    state: MatrixState,
    instances: CounterInstances,
    first: int,
    last: int,
    until: int,
    output: CounterOutput,
    largest_weight: float = 1.0,
    *,
    several: bool = True,
) -> MatrixProgress:
    """Count by matrices: read slots first to last - 1, none of them after `until`, and advance time to there.

    `several` must be the same in every call: false only if no group can ever have two keys, which saves its total.
    Instances from the slot in `counters[OLDEST]` on must still be in the buffer, unless nothing ever leaves.

    >>> from ouzel.engines.aggregate.matrix_state import *
    >>> from ouzel.engines.aggregate.tables import *
    >>> tables = build_counter_tables([False, False], window=10, way=Way.INVERSE)
    >>> instances = new_counter_instances(3)
    >>> instances.tick[:] = 1, 2, 11
    >>> instances.component[:] = 0, 1, 1
    >>> state = reserve_matrix(tables, new_matrix_state(tables), 3, 1)
    >>> found = scan_matrix(tables, state, instances, 0, 3, 11, new_counter_output(tables))
    >>> found.output.tick[: found.output.written[0]].tolist(), found.output.words[0].tolist()
    ([2], [1, 0])
    """
    position = first
    plain = is_plain(tables)
    if plain:
        _open_all(tables, state)
    pieces = Pieces(last, instances.tick)
    while True:
        end = pieces.end(position)
        reached = until if end == last else instances.tick[end - 1]
        if state.tree_stale[0]:
            fill_trees(tables, state)
        if plain and not state.counters[Counter.WIDE]:
            status, position = scan_plain(tables, state, instances, position, end, reached, several, output)
        else:
            status, position = _scan(tables, state, instances, position, end, reached, largest_weight, output)
        if status == Status.DONE:
            if end == last:
                return MatrixProgress(state, output)
        elif status == Status.OUTPUT_FULL:
            output = larger_counter_output(output)
        elif status == Status.WIDEN:
            state = widened_matrix(tables, state, instances, position)
        else:
            state = with_rows(tables, state)


def widened_matrix(
    tables: CounterTables, state: MatrixState, instances: CounterInstances, position: int
) -> MatrixState:
    """The same window in counters of 128 bits, each with its count as a float: counted again, by two stacks."""
    assert not state.counters[Counter.WIDE]
    if tables.way == Way.UNBOUNDED:
        return _widened_rows(tables, state)
    keys = len(state.is_open)
    wide = new_matrix_state(tables, wide=True)
    wide.way[0] = Way.STACKS
    wide = reserve_matrix(tables, wide, len(instances.tick), keys, state.key_group)
    wide = wide._replace(groups=state.groups, next_of_group=state.next_of_group)
    wide.counters[:] = state.counters
    wide.counters[Counter.WIDE] = 1
    wide.is_open[:keys] = state.is_open
    wide.open_since[:keys] = state.open_since
    _replay(tables, wide, instances, int(state.counters[Counter.OLDEST]), position)
    return wide


def _widened_rows(tables: CounterTables, state: MatrixState) -> MatrixState:
    """The same for counters that nothing leaves."""
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
    state.counters[Counter.WIDE] = 1
    return with_trees(tables, state._replace(words=words.reshape(-1), reals=reals.reshape(-1)))


def take_over(tables: CounterTables, state: MatrixState, counts: NDArray[np.uint64]) -> None:
    """Start from counts and integer sums of [key, field, column] that other counters have kept since the start."""
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


# How far below the limit counts must be after a flip that was made to measure them.
_FAR = 16.0


@kernel
def _open_all(tables: CounterTables, state: MatrixState):
    for key in range(state.is_open.size):
        if not state.is_open[key]:
            _open(tables, state, key)


# ── The scan ───────────────────────────────────────────────────────────────────────────────────────


@kernel
def _scan(
    tables: CounterTables,
    state: MatrixState,
    instances: CounterInstances,
    first: int,
    last: int,
    until: int,
    largest_weight: float,
    output: CounterOutput,
):
    """(status, position). The instances at `position` are not processed yet."""
    counters = state.counters
    tick = instances.tick
    position = first
    bounded = tables.window != NO_WINDOW
    lets_go = bounded and not tables.on_change and until < INT64_MAX
    while True:
        if counters[Counter.PHASE] == Phase.EMIT:
            while True:
                group = emit(tables, state.groups, counters, state.scratch, output)
                if group == -1:
                    break
                if group == -2:
                    return Status.OUTPUT_FULL, position
                read_group_of_matrix(tables, state, group, state.scratch.words, state.scratch.reals)
            counters[Counter.PHASE] = Phase.CHOOSE
        if counters[Counter.PHASE] == Phase.CHOOSE:
            leaving = bounded and counters[Counter.OLDEST] < position
            found, moment = next_moment(
                tables,
                position < last,
                tick[position] if position < last else 0,
                leaving,
                tick[counters[Counter.OLDEST]] if leaving else 0,
                until,
            )
            if found:
                counters[Counter.MOMENT] = moment
                counters[Counter.PHASE] = Phase.WORK
            elif lets_go:
                moment = until
            else:
                break
        else:
            moment = counters[Counter.MOMENT]
        # Only here: code that is inlined twice takes twice as long to compile.
        if bounded and not expire(tables, state, instances, position, moment, tables.on_change):
            return Status.ROOM, position
        if counters[Counter.PHASE] == Phase.CHOOSE:
            break
        while position < last and tick[position] == moment:
            behind = _together(tables, instances, position, last)
            status = _may_count(tables, state, instances, position, behind, largest_weight)
            if status != Status.DONE:
                return status, position
            _apply(tables, state, instances, position, behind)
            counters[Counter.INSTANCES] += behind - position
            position = behind
        counters[Counter.PHASE] = Phase.EMIT
    return Status.DONE, position


@helper(inline=True)
def _together(tables, instances, slot, last):
    """The slot after the instances that count as one: simultaneous, of the same component with +, and key."""
    behind = slot + 1
    component = instances.component[slot]
    if tables.by_component[component, ByComponent.KLEENE]:
        while (
            behind < last
            and instances.tick[behind] == instances.tick[slot]
            and instances.component[behind] == component
            and instances.key[behind] == instances.key[slot]
        ):
            behind += 1
    return behind


@helper(inline=True)
def _may_count(tables, state, instances, slot, behind, largest_weight):
    """Whether narrow counters can take the instances: DONE, WIDEN, or ROOM if that is needed to find out."""
    component = instances.component[slot]
    if state.counters[Counter.WIDE] or tables.by_component[component, ByComponent.KIND] != Kind.POSITIVE:
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
    rows = 1 if state.way[0] == Way.UNBOUNDED else tables.columns
    measure_bound(tables, state.words, key * rows, rows, 0, rows, bound)
    if state.way[0] == Way.STACKS:
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
    """The first event of a key."""
    group = state.key_group[key]
    rows = 1 if state.way[0] == Way.UNBOUNDED else tables.columns
    identity(tables, state.words, state.reals, state.counters[Counter.WIDE], key * rows, rows)
    if not state.is_open[key]:
        state.is_open[key] = 1
        state.next_of_group[key] = state.groups.first_cell[group]
        state.groups.first_cell[group] = key
        if state.next_of_group[key] >= 0 and state.next_of_group[state.next_of_group[key]] < 0:
            # From now on the group has several keys, and its total is kept.
            for word in range(state.total.shape[1]):
                state.total[group, word] = _ZERO
            add_to_total(tables, state, state.next_of_group[key], 1)


@helper(inline=True)
def _apply(tables, state, instances, slot, behind):
    """Count the instances in slots slot to behind - 1, which count as one."""
    component = instances.component[slot]
    key = instances.key[slot]
    kind = tables.by_component[component, ByComponent.KIND]
    if kind == Kind.NEGATIVE and key == 0 and state.way[0] == Way.UNBOUNDED:
        # Of no key, or of every key.
        for one in range(state.is_open.size):
            if state.is_open[one]:
                close(
                    tables, state.words, state.reals, state.counters[Counter.WIDE], one, 1, 0, 1,
                    tables.by_component[component, ByComponent.OWN],
                )  # fmt: skip
        return
    if not state.is_open[key]:
        _open(tables, state, key)
    own = tables.by_component[component, ByComponent.OWN]
    completes = kind == Kind.POSITIVE and max(own, tables.by_component[component, ByComponent.GATE]) == tables.final
    if completes:
        completes = _has_prefix(tables, state, key, tables.by_component[component, ByComponent.FROM])
        if not completes and tables.by_component[component, ByComponent.KLEENE]:
            completes = _has_prefix(tables, state, key, own)
    group = state.key_group[key]
    if completes:
        touch_group(tables, state, group)
        complete(state.groups, group)
    summed = completes and keeps_totals(tables, state) and state.next_of_group[state.groups.first_cell[group]] >= 0
    if summed:
        add_to_total(tables, state, key, -1)
    _insert(tables, state, instances, slot, behind)
    if summed:
        add_to_total(tables, state, key, 1)
    elif completes:
        put_in_tree(tables, state, key)


@helper(inline=True)
def _has_prefix(tables, state, key, column):
    """Whether any prefix of the window ends at a column."""
    if is_held(tables, state, key):
        return False
    wide = state.counters[Counter.WIDE]
    rows = 1 if state.way[0] == Way.UNBOUNDED else tables.columns
    if state.way[0] == Way.STACKS:
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
    """Multiply a key's window by its newest factor."""
    component = instances.component[slot]
    key = instances.key[slot]
    wide = state.counters[Counter.WIDE]
    rows = 1 if state.way[0] == Way.UNBOUNDED else tables.columns
    own = tables.by_component[component, ByComponent.OWN]
    kind = tables.by_component[component, ByComponent.KIND]
    if kind != Kind.POSITIVE:
        close(tables, state.words, state.reals, wide, key * rows, rows, 0, rows, own)
    else:
        if tables.by_measure.shape[0] > 0:
            weigh(tables, state.scratch, instances, slot, behind)
        touched = min(rows, own + 1)
        opened = touched if is_allowed(tables, state, key, component, instances.tick[slot]) else 0
        extend(
            tables, state.words, state.reals, wide, key * rows, rows, 0, key * rows, rows, 0, touched, opened,
            component, behind - slot, state.scratch, 1,
        )  # fmt: skip
    if state.way[0] != Way.STACKS:
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
    """Count the window again."""
    for key in range(state.is_open.size):
        if state.is_open[key]:
            identity(
                tables, state.words, state.reals, state.counters[Counter.WIDE], key * tables.columns, tables.columns
            )
    slot = first
    while slot < last:
        behind = _together(tables, instances, slot, last)
        _insert(tables, state, instances, slot, behind)
        slot = behind
