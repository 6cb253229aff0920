"""What can be done with a compressed row: count its matches, and list them in order. See `graph_extract`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.graph_extract import Compressed
from ouzel.kernels.graph_state import STARTS
from ouzel.kernels.jit import helper, kernel

_STARTS = np.int32(STARTS)
_LARGEST = np.uint64(2**64 - 1)


class Row(NamedTuple):
    """One compressed row."""

    cell_event: NDArray[np.int32]
    cell_place: NDArray[np.int32]
    cell_begin: NDArray[np.int32]
    cell_take: NDArray[np.int32]
    link_cell: NDArray[np.int32]
    link_next: NDArray[np.int32]
    root_cell: NDArray[np.int32]


def rows_of(graph: Compressed) -> list[Row]:
    """The graphs of the rows, one by one."""
    found = []
    for row in range(len(graph.cell_bounds) - 1):
        cells = slice(graph.cell_bounds[row], graph.cell_bounds[row + 1])
        links = slice(graph.link_bounds[row], graph.link_bounds[row + 1])
        found.append(
            Row(
                graph.cell_event[cells],
                graph.cell_place[cells],
                graph.cell_begin[cells],
                graph.cell_take[cells],
                graph.link_cell[links],
                graph.link_next[links],
                graph.root_cell[graph.root_bounds[row] : graph.root_bounds[row + 1]],
            )
        )
    return found


def paths_to_cells(row: Row) -> list[int]:
    """For each cell how many ways there are to come to it from a start. Exact, whatever their number.

    >>> a, b = np.array([0, 1], np.int32), np.array([-1, -1], np.int32)
    >>> row = Row(a, a, np.array([STARTS, 0], np.int32), b, a[:1], b[:1], a[1:])
    >>> paths_to_cells(row)
    [1, 1]
    """
    counts, fits = _count(row)
    if fits:
        return [int(count) for count in counts]
    exact: list[int] = []
    sums: dict[int, int] = {-1: 0}
    begin, take = row.cell_begin.tolist(), row.cell_take.tolist()
    link_cell, link_next = row.link_cell.tolist(), row.link_next.tolist()
    for cell in range(len(begin)):
        total = 1 if begin[cell] == STARTS else 0
        for first in (begin[cell], take[cell]):
            if first >= 0:
                passed = []
                link = first
                while link not in sums:
                    passed.append(link)
                    link = link_next[link]
                running = sums[link]
                for link in reversed(passed):
                    running += exact[link_cell[link]]
                    sums[link] = running
                total += sums[first]
        exact.append(total)
    return exact


def count_matches(row: Row) -> int:
    """How many matches a row holds."""
    counts = paths_to_cells(row)
    return sum(counts[root] for root in row.root_cell.tolist())


@kernel(allocates=True)
def _count(row):
    """(counts by cell, whether they and their sums fit 64 bits)."""
    cells = row.cell_begin.size
    counts = np.zeros(cells, np.uint64)
    sums = np.zeros(row.link_cell.size, np.uint64)
    is_known = np.zeros(row.link_cell.size, np.bool_)
    passed = np.empty(row.link_cell.size, np.int32)
    for cell in range(cells):
        total = np.uint64(1) if row.cell_begin[cell] == _STARTS else np.uint64(0)
        for take in (False, True):
            first = row.cell_take[cell] if take else row.cell_begin[cell]
            if first < 0:
                continue
            depth = 0
            link = first
            while link >= 0 and not is_known[link]:
                passed[depth] = link
                depth += 1
                link = row.link_next[link]
            running = sums[link] if link >= 0 else np.uint64(0)
            while depth > 0:
                depth -= 1
                link = passed[depth]
                added = counts[row.link_cell[link]]
                if running > _LARGEST - added:
                    return counts, False
                running += added
                sums[link] = running
                is_known[link] = True
            if total > _LARGEST - sums[first]:
                return counts, False
            total += sums[first]
        counts[cell] = total
    return counts, True


class Listed(NamedTuple):
    """Matches as cells: `bounds` says where each one's begin."""

    bounds: NDArray[np.int64]
    cells: NDArray[np.int32]


class ListedEvents(NamedTuple):
    """Matches as events, by place: where those of each match begin, and all of them, match by match."""

    bounds: NDArray[np.int64]  # [place, match]; one more than there are matches
    rows: list[NDArray[np.int32]]  # by place


def list_paths(row: Row, starts: NDArray[np.int64], limit: int, places: int, base: int) -> ListedEvents:
    """The first matches of a row, ordered by the start of their first event (`starts`, by event), then by their
    events from the first to the last. Events are counted from `base`."""
    begins = np.flatnonzero(row.cell_begin == STARTS).astype(np.int32)
    order = np.lexsort((begins, starts[row.cell_event[begins]]))
    # Room for all of them at once, within reason: a walk that finds too little of it starts again.
    capacity = max(1, min(limit, count_matches(row), 1 << 18))
    events = 16
    while True:
        # A match has at most as many events at a place as there are cells.
        room = capacity * np.minimum(np.bincount(row.cell_place, minlength=places), events)
        firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(room)])
        bounds, rows, complete = _list(row, begins[order], limit, capacity, firsts, base)
        if complete:
            ends = firsts[:-1] + bounds[:, -1]
            return ListedEvents(bounds, [rows[a:b] for a, b in zip(firsts[:-1], ends, strict=True)])
        capacity *= 2
        events *= 2


def events_of(row: Row, listed: Listed, places: int, base: int) -> ListedEvents:
    """The events of matches that are known by their cells, counted from `base`.

    >>> a = np.array([0, 1, 2], np.int32)
    >>> row = Row(a, np.array([0, 0, 1], np.int32), a, a, a, a, a)
    >>> found = events_of(row, Listed(np.array([0, 3, 5]), np.array([0, 1, 2, 1, 2])), 2, 10)
    >>> found.bounds.tolist(), [rows.tolist() for rows in found.rows]
    ([[0, 2, 3], [0, 1, 2]], [[10, 11, 11], [12, 12]])
    """
    count = len(listed.bounds) - 1
    match = np.repeat(np.arange(count), np.diff(listed.bounds))
    place_of = row.cell_place[listed.cells]
    event_of = row.cell_event[listed.cells] + np.int32(base)
    bounds = np.zeros((places, count + 1), np.int64)
    for place in range(places):
        np.cumsum(np.bincount(match[place_of == place], minlength=count), out=bounds[place, 1:])
    return ListedEvents(bounds, [event_of[place_of == place] for place in range(places)])


@kernel(allocates=True)
def _list(row, begins, limit, capacity, firsts, base):
    """(bounds, rows, whether the room was enough): a walk forward, along which every step leads to a root. The events
    of a place lie between two of `firsts`.

    Numbers are made unsigned before they are used: numba asks of signed ones at every access whether they count from
    the end.
    """
    first_follower, followers = _followers(row)
    count = row.cell_begin.size
    places = np.uint64(firsts.size - 1)
    is_root = np.zeros(count, np.bool_)
    for root in row.root_cell:
        is_root[root] = True
    bounds = np.zeros((places, capacity + 1), np.int64)
    rows = np.empty(firsts[places], np.int32)
    # Of the path walked: its cells, their events, the next follower to try; and where the events of each place begin.
    path = np.empty(count, np.int32)
    path_rows = np.empty(count, np.int32)
    cursor = np.empty(count, np.int64)
    place_first = np.zeros(places + 1, np.int64)
    found = np.uint64(0)
    for begin in begins:
        depth = np.int64(-1)
        following = begin
        while True:
            if following >= 0:
                cell = np.uint64(following)
                depth += 1
                here = np.uint64(depth)
                path[here] = following
                path_rows[here] = base + row.cell_event[cell]
                cursor[here] = first_follower[cell]
                place = np.uint64(row.cell_place[cell])
                if depth == 0 or np.uint64(row.cell_place[np.uint64(path[here - np.uint64(1)])]) != place:
                    place_first[place] = depth
                if is_root[cell]:
                    if found == limit:
                        return bounds[:, : found + 1], rows, True
                    if found == capacity:
                        return bounds, rows, False
                    place_first[places] = depth + 1
                    for place in range(places):
                        source = np.uint64(place_first[place])
                        length = np.uint64(place_first[place + np.uint64(1)]) - source
                        written = np.uint64(bounds[place, found])
                        target = np.uint64(firsts[place]) + written
                        if target + length > np.uint64(firsts[place + np.uint64(1)]):
                            return bounds, rows, False
                        for step in range(length):
                            rows[target + step] = path_rows[source + step]
                        bounds[place, found + np.uint64(1)] = written + length
                    found += np.uint64(1)
            here = np.uint64(depth)
            cell = np.uint64(path[here])
            if cursor[here] < first_follower[cell + np.uint64(1)]:
                following = followers[np.uint64(cursor[here])]
                cursor[here] += 1
            else:
                depth -= 1
                following = np.int32(-1)
                if depth < 0:
                    break
    return bounds[:, : found + 1], rows, True


@helper(allocates=True)
def _followers(row):
    """The cells that may come next after each cell, in order."""
    count = row.cell_begin.size
    first = np.zeros(count + 1, np.int64)
    for round in range(2):
        if round == 1:
            for cell in range(count):
                first[cell + 1] += first[cell]
            followers = np.empty(first[count], np.int32)
            next_place = first[:count].copy()
        for cell in range(count):
            for take in (False, True):
                link = row.cell_take[cell] if take else row.cell_begin[cell]
                while link >= 0:
                    before = row.link_cell[link]
                    if round == 0:
                        first[before + 1] += 1
                    else:
                        followers[next_place[before]] = cell
                        next_place[before] += 1
                    link = row.link_next[link]
    return first, followers
