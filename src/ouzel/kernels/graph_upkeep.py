"""Moving the graph when its window, buffers or keys move."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.graph_state import GraphCounter
from ouzel.kernels.jit import kernel
from ouzel.kernels.run_upkeep import rebase_marks, rebase_negatives
from ouzel.kernels.stack_checks import NEVER, oldest_alive


@kernel(allocates=True)
def drop_expired(tables, state, events, position_counts, needed):
    """For windows in events: forget the cells from which no match to come may start, within the window of the next
    event of their partition (`position_counts`, by key), and mark the slots of all others as needed."""
    cells = state.cells
    count = state.counters[GraphCounter.CELLS]
    renamed = np.empty(count, np.int32)
    live = 0
    for cell in range(count):
        slot = cells.event[cell]
        # What stands below comes before, so it has its new number: a cell that goes is stood in for by that.
        below = renamed[cells.below[cell]] if cells.below[cell] >= 0 else np.int32(-1)
        if cells.newest[cell] < oldest_alive(position_counts[events.key[slot]], tables.window):
            renamed[cell] = below
            continue
        begin = cells.begin[cell]
        take = cells.take[cell]
        needed[slot] = True
        cells.event[live] = slot
        cells.stage[live] = cells.stage[cell]
        cells.proceeds[live] = cells.proceeds[cell]
        cells.begin[live] = renamed[begin] if begin >= 0 else begin
        cells.take[live] = renamed[take] if take >= 0 else take
        cells.below[live] = below
        cells.earlier[live] = renamed[cells.earlier[cell]] if cells.earlier[cell] >= 0 else np.int32(-1)
        cells.newest[live] = cells.newest[cell]
        cells.reach[live] = cells.reach[cell]
        renamed[cell] = live
        live += 1
    state.counters[GraphCounter.CELLS] = live
    for chain in range(state.head.size):
        if state.head[chain] >= 0:
            state.head[chain] = renamed[state.head[chain]]


@kernel(allocates=True)
def renumber_cells(state, renamed):
    """Slots have new numbers."""
    for cell in range(state.counters[GraphCounter.CELLS]):
        state.cells.event[cell] = renamed[state.cells.event[cell]]


@kernel
def drop_cells(tables, state, dead, used):
    """Forget the cells of the `dead` oldest slots behind the kernel's own; the rest of the `used` ones have moved down
    by so many."""
    cells = state.cells
    count = state.counters[GraphCounter.CELLS]
    first = 0
    while first < count and cells.event[first] < tables.reserved + dead:
        first += 1
    for cell in range(count - first):
        cells.event[cell] = cells.event[cell + first] - dead
        cells.stage[cell] = cells.stage[cell + first]
        cells.proceeds[cell] = cells.proceeds[cell + first]
        begin = cells.begin[cell + first]
        cells.begin[cell] = max(begin - first, -1) if begin >= 0 else begin
        cells.take[cell] = max(cells.take[cell + first] - first, -1)
        cells.below[cell] = max(cells.below[cell + first] - first, -1)
        cells.earlier[cell] = max(cells.earlier[cell + first] - first, -1)
        cells.newest[cell] = cells.newest[cell + first]
        cells.reach[cell] = cells.reach[cell + first]
    state.counters[GraphCounter.CELLS] = count - first
    for chain in range(state.head.size):
        state.head[chain] = max(state.head[chain] - first, -1)
    rebase_marks(tables, state.key_mark, state.started, dead, used)
    rebase_negatives(tables, state.negative_head, state.links, state.marks, dead, used)


@kernel
def rekey_chains(tables, state, renamed):
    """Move chains, marks and negative events to new keys: `renamed[key]`, never a larger one, -1: gone."""
    stages = tables.stage_place.size
    negatives = tables.negatives
    for key in range(min(state.head.size // stages, renamed.size)):
        target = np.int64(renamed[key])
        if target == key:
            continue
        for stage in range(stages):
            if target >= 0:
                state.head[target * stages + stage] = state.head[key * stages + stage]
            state.head[key * stages + stage] = -1
        for negative in range(negatives):
            if target >= 0:
                state.negative_head[target * negatives + negative] = state.negative_head[key * negatives + negative]
            state.negative_head[key * negatives + negative] = -1
        if state.key_mark.size > 0:
            if target >= 0:
                state.key_mark[target] = state.key_mark[key]
            state.key_mark[key] = NEVER
