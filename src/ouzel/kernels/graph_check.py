"""Whether a compressed row can be of a query. Rows are stored and read back, and may be given beside another query, so
nothing may walk them before this was asked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.graph_paths import Row
from ouzel.kernels.graph_state import STARTS
from ouzel.kernels.jit import helper, kernel

_STARTS = np.int32(STARTS)


@kernel(allocates=True)
def is_row_of(row: Row, events: int, is_kleene: NDArray[np.bool_]) -> bool:
    """Whether a row of so many events is a graph of matches of a pattern, whose places are Kleene components or not:
    every number names something, and every way from a root back leads from place to place to a start.

    >>> a, b = np.array([0, 1], np.int32), np.array([-1, -1], np.int32)
    >>> row = Row(a, a, np.array([STARTS, 0], np.int32), b, a[:1], b[:1], a[1:])
    >>> is_row_of(row, 2, np.array([True, False])), is_row_of(row, 2, np.array([True]))
    (True, False)
    """
    places = is_kleene.size
    cells = row.cell_event.size
    links = row.link_cell.size
    for cell in range(cells):
        if not (0 <= row.cell_event[cell] < events and 0 <= row.cell_place[cell] < places):
            return False
    for link in range(links):
        cell, following = row.link_cell[link], row.link_next[link]
        if not (0 <= cell < cells and -1 <= following < links):
            return False
        if following >= 0 and row.cell_place[row.link_cell[following]] != row.cell_place[cell]:
            return False
    # Cells follow smaller ones, so that no way is a ring.
    largest = _largest_cells(row)
    if largest.size < links:
        return False
    for cell in range(cells):
        place, begin, take = row.cell_place[cell], row.cell_begin[cell], row.cell_take[cell]
        if not ((begin == _STARTS and place == 0) or -1 <= begin < links) or not -1 <= take < links:
            return False
        if begin >= 0 and (largest[begin] >= cell or row.cell_place[row.link_cell[begin]] != place - 1):
            return False
        if take >= 0 and not (is_kleene[place] and largest[take] < cell):
            return False
        if take >= 0 and row.cell_place[row.link_cell[take]] != place:
            return False
    roots_that_fit = 0
    for root in row.root_cell:
        roots_that_fit += 0 <= root < cells and row.cell_place[root] == places - 1
    return roots_that_fit == row.root_cell.size


@helper(allocates=True)
def _largest_cells(row):
    """For each link the largest cell of the list from it on; nothing where a list has no end."""
    links = row.link_cell.size
    largest = np.full(links, -1, np.int32)
    passed = np.empty(links, np.int32)
    for first in range(links):
        depth = 0
        link = np.int32(first)
        while link >= 0 and largest[link] < 0:
            if depth == links:
                return np.empty(0, np.int32)
            passed[depth] = link
            depth += 1
            link = row.link_next[link]
        running = largest[link] if link >= 0 else np.int32(-1)
        while depth > 0:
            depth -= 1
            link = passed[depth]
            running = max(running, row.link_cell[link])
            largest[link] = running
    return largest
