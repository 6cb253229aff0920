"""Moving the graph when its window, buffers or keys move."""

from __future__ import annotations

import numpy as np
from numba import njit

from ouzel.kernels.graph_state import GraphCounter
from ouzel.kernels.stack_checks import oldest_alive

_CELLS = int(GraphCounter.CELLS)


@njit(cache=True, nogil=True)
def oldest_needed(tables, state, oldest_start, position_counts):
    """The oldest slot that a match to come may use, or -1.

    A match to come starts at `oldest_start` or later; with windows in events, within the window of the next event of
    its partition (`position_counts`, by key).
    """
    oldest_slot = -1
    cells = state.cells
    for key in range(state.head.size // tables.length):
        oldest = oldest_start
        if tables.in_events:
            oldest = oldest_alive(position_counts[key], tables.window)
        cell = state.head[key * tables.length]
        while cell >= 0 and cells.reach[cell] >= oldest:
            if cells.newest[cell] >= oldest and (oldest_slot < 0 or cells.event[cell] < oldest_slot):
                oldest_slot = cells.event[cell]
            cell = cells.below[cell]
    return oldest_slot


@njit(cache=True, nogil=True)
def drop_cells(tables, state, dead):
    """Forget the cells of the `dead` oldest slots behind the kernel's own; all others have moved down by so many."""
    cells = state.cells
    count = state.counters[_CELLS]
    first = 0
    while first < count and cells.event[first] < tables.reserved + dead:
        first += 1
    for cell in range(count - first):
        cells.event[cell] = cells.event[cell + first] - dead
        cells.place[cell] = cells.place[cell + first]
        cells.proceeds[cell] = cells.proceeds[cell + first]
        begin = cells.begin[cell + first]
        cells.begin[cell] = max(begin - first, -1) if begin >= 0 else begin
        cells.take[cell] = max(cells.take[cell + first] - first, -1)
        cells.below[cell] = max(cells.below[cell + first] - first, -1)
        cells.newest[cell] = cells.newest[cell + first]
        cells.reach[cell] = cells.reach[cell + first]
    state.counters[_CELLS] = count - first
    for chain in range(state.head.size):
        state.head[chain] = max(state.head[chain] - first, -1)


@njit(cache=True, nogil=True)
def rekey_chains(head, length, renamed):
    """Move chains to new keys: `renamed[key]`, never a larger one, -1: gone."""
    for key in range(min(head.size // length, renamed.size)):
        target = np.int64(renamed[key])
        if target != key:
            for place in range(length):
                newest = head[key * length + place]
                head[key * length + place] = -1
                if target >= 0:
                    head[target * length + place] = newest
