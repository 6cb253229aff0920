"""What leaves a window of counters in matrices, and the turn of two stacks: the newer events become the older.

A negated start holds matches back: a match from a first event s stands if no negative event lies in (end - T, s). So of
all first events in the window those stand that come no later than the oldest negative event in it, and when that leaves
the window at n + T, they have all left before it. Then those up to the next negative event take their place, and of
their matches count what completes from then on. So a key counts the first events between two negative ones at a time;
column 0 of the newer events is closed by a negative event, and row 0 of the older ones begins anew at it.
"""

from __future__ import annotations

import numpy as np

from ouzel.kernels.counters_columns import close, measure_bound, weigh
from ouzel.kernels.counters_matrix_totals import add_to_total, keeps_totals, put_in_tree, touch_group
from ouzel.kernels.counters_products import clear_final, close_row, copy_row, identity, prepend, remove
from ouzel.kernels.counters_tables import ByComponent, Counter, Kind, Way
from ouzel.kernels.jit import helper


@helper(inline=True)
def expire(tables, state, instances, position, moment, tell):
    """Let go of what has left the window. False if a flip needs more room, then nothing of it has happened."""
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
    """The oldest event of a negated start leaves: first events up to the next one no longer are held back. False if
    that needs more room, then nothing has happened."""
    key = instances.key[slot]
    start = state.oldest_start[key]
    flips = start < 0 or state.older_row[start] < 0
    if flips and state.free_count[0] < state.start_count[key]:
        return False
    state.oldest_negative[key] = state.next_start[slot]
    # All events so far are older, and nothing that they completed stands.
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
    """The newer events become the older: from the newest back to the oldest, the top row is kept at first events.

    There is room for as many rows as the key has first events; with a negated start some may have theirs already.
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
                stands(tables, state, key, component, instances.tick[slot]),
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
        # Of a negated start's gate only what stands is counted.
        state.bound[key, tables.final] = max(state.bound[key, tables.final], state.bound[key, tables.final - 1])


@helper(inline=True)
def stands(tables, state, key, component, tick):
    """Whether what an event completes stands: not where a negated start held all first events of its time back."""
    return (
        not tables.has_negated_start
        or tables.by_component[component, ByComponent.GATE] != tables.final
        or tick >= state.open_since[key]
    )


@helper
def _add_to_bound(tables, bound, words, times):
    """Prefixes from all first events, held back or not: no count of the window is larger, whatever is let through."""
    columns = tables.columns
    own = tables.by_component[tables.first, ByComponent.OWN]
    gate = tables.by_component[tables.first, ByComponent.GATE]
    for column in range(own, columns):
        bound[column] += times * float(words[column * columns + own])
        if gate >= 0:
            bound[column] += times * float(words[column * columns + gate])
