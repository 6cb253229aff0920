"""Operations on compressed rows: build their graphs, count their matches, and list them in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.kleene.graph_state import STARTS, GraphCounter, GraphState, earliest_end, is_tested, may_follow
from ouzel.engines.kleene.state import Arena, Counter, RunState
from ouzel.engines.kleene.tables import RunEvents, RunTables
from ouzel.kernels.arrays import ReadOnly
from ouzel.kernels.jit import helper, kernel

_STARTS = np.int32(STARTS)


class Compressed(NamedTuple):
    """Compressed rows, concatenated. Arrays of bounds have one entry more than there are rows. Numbers of events, cells
    and links count from 0 in each row.
    """

    event_bounds: NDArray[np.int64]
    event_slot: NDArray[np.int32]
    cell_bounds: NDArray[np.int64]
    cell_event: NDArray[np.int32]
    cell_place: NDArray[np.int32]
    cell_begin: NDArray[np.int32]
    cell_take: NDArray[np.int32]
    link_bounds: NDArray[np.int64]
    link_cell: NDArray[np.int32]
    link_next: NDArray[np.int32]
    root_bounds: NDArray[np.int64]
    root_cell: NDArray[np.int32]


def compress_graph(
    tables: RunTables,
    state: GraphState,
    events: RunEvents,
    row_bounds: NDArray[np.int64],
    roots: NDArray[np.int32],
    oldest: NDArray[np.int64],
) -> Compressed | None:
    """For each row, the graph of all paths back from its roots. `oldest[i]` is the earliest start within the window of
    `roots[i]`. None if the rows have more than `max_events` cells and links in total.
    """
    cells = state.cells.event[: state.counters[GraphCounter.CELLS]]
    parts = _parts(tables, events, row_bounds, oldest, cells)
    rows = (_graph_row(tables, state, events, roots[p.first : p.last], p.oldest, p.lowest) for p in parts)
    return _within(tables, parts, rows)


def compress_runs(
    tables: RunTables,
    state: RunState,
    events: RunEvents,
    row_bounds: NDArray[np.int64],
    nodes: NDArray[np.int32],
    oldest: NDArray[np.int64],
) -> Compressed | None:
    """The graphs of matches that runs have found, merged or not; see `compress_graph`."""
    nodes_used = state.arena.event[: state.counters[Counter.NODES]]
    parts = _parts(tables, events, row_bounds, oldest, nodes_used)
    merge = bool(tables.merge)
    rows = (_runs_row(merge, state.arena, nodes[p.first : p.last], p.oldest, p.lowest) for p in parts)
    return _within(tables, parts, rows)


class _Part(NamedTuple):
    """Roots of one row that have the same window. A row has several parts if the window counts events, because it then
    ends at each event, even among simultaneous ones.
    """

    row: int
    first: int
    last: int
    oldest: int
    lowest: int  # the first cell or node that may be part of it


# (event slots; cells' events, places, begins, takes; links' cells, nexts; roots)
_Row: TypeAlias = tuple[NDArray[np.int32], ...]


def _within(tables: RunTables, parts: list[_Part], rows: Iterable[_Row]) -> Compressed | None:
    """The graphs of all parts as compressed rows; None if they are too large in total."""
    found: list[_Row] = []
    size = 0
    for row in rows:
        found.append(row)
        size += len(row[1]) + len(row[5])
        if size > tables.max_events:
            return None
    return _joined(_rows_of_parts(parts, found))


def _parts(
    tables: RunTables,
    events: RunEvents,
    bounds: NDArray[np.int64],
    oldest: NDArray[np.int64],
    slots: NDArray[np.int32],
) -> list[_Part]:
    """The parts of all rows. `slots` are the events of cells or nodes. Each part stores the first of them that it can
    reach, because a stream may be much longer than a window.
    """
    begins = np.append(True, oldest[1:] != oldest[:-1])
    begins[bounds[:-1]] = True
    firsts = np.flatnonzero(begins)
    rows = np.searchsorted(bounds, firsts, side="right") - 1
    since = oldest[firsts]
    lowest = np.zeros(len(since), np.int64) if tables.in_events else np.searchsorted(events.end[slots], since)
    columns = (rows, firsts, np.append(firsts[1:], len(oldest)), since, lowest)
    return [_Part(*part) for part in zip(*(column.tolist() for column in columns), strict=True)]


def _rows_of_parts(parts: list[_Part], found: list[_Row]) -> list[_Row]:
    """The graphs of rows, each joined from the graphs of its parts."""
    rows: list[_Row] = []
    for number, row in enumerate(found):
        if number and parts[number].row == parts[number - 1].row:
            rows[-1] = _side_by_side(rows[-1], row)
        else:
            rows.append(row)
    return rows


def _side_by_side(left: _Row, right: _Row) -> _Row:
    slots, events, places, begins, takes, cells, nexts, roots = right
    moved = (
        slots,
        events + np.int32(len(left[0])),
        places,
        *(np.where(links >= 0, links + np.int32(len(left[5])), links) for links in (begins, takes)),
        cells + np.int32(len(left[1])),
        np.where(nexts >= 0, nexts + np.int32(len(left[5])), nexts),
        roots + np.int32(len(left[1])),
    )
    return tuple(np.concatenate(pair) for pair in zip(left, moved, strict=True))


def _joined(rows: list[_Row]) -> Compressed:
    slots, events, places, begins, takes, cells, nexts, roots = (
        np.concatenate(parts) for parts in zip(*rows, strict=True)
    )
    bounds = [np.cumsum([0, *(len(row[column]) for row in rows)]) for column in (0, 1, 5, 7)]
    return Compressed(
        bounds[0], slots, bounds[1], events, places, begins, takes, bounds[2], cells, nexts, bounds[3], roots
    )


@kernel(allocates=True)
def _graph_row(
    tables: RunTables, state: GraphState, events: RunEvents, roots: NDArray[np.int32], oldest: int, low: int
):
    cells = state.cells
    reachable = _reachable(tables, state, events, roots, oldest, low)
    count = reachable.size
    lowest = reachable[0]
    number = np.full(reachable[-1] - lowest + 1, -1, np.int32)
    for place in range(count):
        number[reachable[place] - lowest] = place
    event_slot = np.empty(count, np.int32)
    cell_event = np.empty(count, np.int32)
    cell_place = np.empty(count, np.int32)
    cell_begin = np.empty(count, np.int32)
    cell_take = np.empty(count, np.int32)
    link_cell = np.empty(count, np.int32)
    link_next = np.empty(count, np.int32)
    slots = 0
    links = count
    for place in range(count):
        cell = reachable[place]
        slot = cells.event[cell]
        if slots == 0 or event_slot[slots - 1] != slot:
            event_slot[slots] = slot
            slots += 1
        cell_event[place] = slots - 1
        at_place = tables.stage_place[cells.stage[cell]]
        cell_place[place] = at_place
        # The link with the same number leads to this cell and on to the next one of its chain.
        link_cell[place] = place
        link_next[place] = _next_live(cells, number, lowest, cells.below[cell], oldest)
        since = events.position[slot] if tables.in_events else events.start[slot]
        for begins in (False, True):
            top = cells.begin[cell] if begins else cells.take[cell]
            first = np.int32(-1)
            if top == _STARTS:
                first = _STARTS if since >= oldest else np.int32(-1)
            elif top >= 0 and not is_tested(tables, at_place, begins):
                first = _next_live(cells, number, lowest, top, oldest)
            elif top >= 0:
                # Only a part of the chain may precede this cell: it gets its own list.
                floor = earliest_end(tables, state, events, slot, at_place, begins)
                while top >= 0 and cells.reach[top] >= oldest and events.end[cells.event[top]] >= floor:
                    if cells.newest[top] >= oldest and may_follow(tables, state, events, top, slot, at_place, begins):
                        # The caller sees that there are too many and drops all of them.
                        if links > tables.max_events:
                            break
                        if links == link_cell.size:
                            link_cell = np.append(link_cell, np.empty(links, np.int32))
                            link_next = np.append(link_next, np.empty(links, np.int32))
                        link_cell[links] = number[top - lowest]
                        link_next[links] = -1
                        if first < 0:
                            first = np.int32(links)
                        else:
                            link_next[links - 1] = links
                        links += 1
                    top = cells.below[top]
            if begins:
                cell_begin[place] = first
            else:
                cell_take[place] = first
    root_cell = np.empty(roots.size, np.int32)
    for place in range(roots.size):
        root_cell[place] = number[roots[place] - lowest]
    return (
        event_slot[:slots],
        cell_event,
        cell_place,
        cell_begin,
        cell_take,
        link_cell[:links],
        link_next[:links],
        root_cell,
    )


@helper(allocates=True)
def _reachable(tables, state, events, roots, oldest, low):
    """The cells that are on a path from a root to a start within the window, numbered from `low`, in stream order."""
    cells = state.cells
    highest = roots.max()
    is_in = np.zeros(highest + 1 - low, np.bool_)
    is_linked = np.zeros(highest + 1 - low, np.bool_)
    waiting = np.empty(highest + 1 - low, np.int32)
    count = 0
    for root in roots:
        is_in[root - low] = True
        waiting[count] = root
        count += 1
    done = 0
    while done < count:
        cell = waiting[done]
        done += 1
        for begins in (False, True):
            link = cells.begin[cell] if begins else cells.take[cell]
            place = tables.stage_place[cells.stage[cell]]
            tested = is_tested(tables, place, begins)
            floor = earliest_end(tables, state, events, cells.event[cell], place, begins)
            while (
                link >= low
                and cells.reach[link] >= oldest
                and events.end[cells.event[link]] >= floor
                and (tested or not is_linked[link - low])
            ):
                if not tested:
                    is_linked[link - low] = True
                if (
                    cells.newest[link] >= oldest
                    and not is_in[link - low]
                    and (not tested or may_follow(tables, state, events, link, cells.event[cell], place, begins))
                ):
                    is_in[link - low] = True
                    waiting[count] = link
                    count += 1
                link = cells.below[link]
    # Their numbers are in stream order.
    return _marked(is_in, low, waiting)


@helper(allocates=True)
def _marked(is_in, low, numbers):
    """Write the marked numbers, from `low` on, to `numbers`."""
    count = 0
    for mark in range(is_in.size):
        if is_in[mark]:
            numbers[count] = low + mark
            count += 1
    return numbers[:count]


@helper(inline=True, allocates=True)
def _next_live(cells, number, lowest, link, oldest):
    """The number in the row of the first cell, from `number` down its chain, that is part of the row; -1 if none is."""
    while link >= lowest and cells.reach[link] >= oldest:
        if number[link - lowest] >= 0 and cells.newest[link] >= oldest:
            return number[link - lowest]
        link = cells.below[link]
    return np.int32(-1)


@kernel(allocates=True)
def _runs_row(merged: bool, arena: Arena, matches: NDArray[np.int32], oldest: int, low: int):
    reachable = _reachable_nodes(merged, arena, matches, oldest, low)
    count = reachable.size
    lowest = reachable[0]
    number = np.full(reachable[-1] - lowest + 1, -1, np.int32)
    for cell in range(count):
        number[reachable[cell] - lowest] = cell
    event_slot = np.empty(count, np.int32)
    cell_event = np.empty(count, np.int32)
    cell_place = np.empty(count, np.int32)
    cell_begin = np.full(count, -1, np.int32)
    cell_take = np.full(count, -1, np.int32)
    link_cell = np.empty(count, np.int32)
    link_next = np.empty(count, np.int32)
    slots = 0
    links = 0
    for cell in range(count):
        entry = reachable[cell]
        if slots == 0 or event_slot[slots - 1] != arena.event[entry]:
            event_slot[slots] = arena.event[entry]
            slots += 1
        cell_event[cell] = slots - 1
        cell_place[cell] = arena.place[entry]
        while entry >= 0:
            parent = arena.parent[entry]
            if not merged or arena.own[entry] >= oldest:
                if parent < 0:
                    cell_begin[cell] = _STARTS
                else:
                    if links == link_cell.size:
                        link_cell = np.append(link_cell, np.empty(links + 1, np.int32))
                        link_next = np.append(link_next, np.empty(links + 1, np.int32))
                    link_cell[links] = number[parent - lowest]
                    if arena.place[parent] == arena.place[entry]:
                        link_next[links] = cell_take[cell]
                        cell_take[cell] = links
                    else:
                        link_next[links] = cell_begin[cell]
                        cell_begin[cell] = links
                    links += 1
            entry = arena.others[entry]
    root_cell = np.empty(matches.size, np.int32)
    for place in range(matches.size):
        root_cell[place] = number[matches[place] - lowest]
    return (
        event_slot[:slots],
        cell_event,
        cell_place,
        cell_begin,
        cell_take,
        link_cell[:links],
        link_next[:links],
        root_cell,
    )


@helper(allocates=True)
def _reachable_nodes(merged, arena, matches, oldest, low):
    """The nodes that are on a path from a match to a start within the window, numbered from `low`, in stream order."""
    highest = matches.max()
    is_in = np.zeros(highest + 1 - low, np.bool_)
    waiting = np.empty(highest + 1 - low, np.int32)
    count = 0
    for node in matches:
        is_in[node - low] = True
        waiting[count] = node
        count += 1
    done = 0
    while done < count:
        entry = waiting[done]
        done += 1
        while entry >= 0:
            parent = arena.parent[entry]
            if parent >= 0 and (not merged or arena.own[entry] >= oldest) and not is_in[parent - low]:
                is_in[parent - low] = True
                waiting[count] = parent
                count += 1
            entry = arena.others[entry]
    # Their numbers are in stream order. Sorting would cost more than everything else.
    return _marked(is_in, low, waiting)


_LARGEST = np.uint64(2**64 - 1)


class Row(NamedTuple):
    """One compressed row."""

    cell_event: ReadOnly[NDArray[np.int32]]
    cell_place: ReadOnly[NDArray[np.int32]]
    cell_begin: ReadOnly[NDArray[np.int32]]
    cell_take: ReadOnly[NDArray[np.int32]]
    link_cell: ReadOnly[NDArray[np.int32]]
    link_next: ReadOnly[NDArray[np.int32]]
    root_cell: ReadOnly[NDArray[np.int32]]


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
    """For each cell, the number of paths to it from a start, as exact integers.

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
    """The number of matches in a row. Exact: n events may have 2^n matches, a number of n bits.

    >>> a, b = np.array([0, 1], np.int32), np.array([-1, -1], np.int32)
    >>> count_matches(Row(a, a, np.array([STARTS, 0], np.int32), b, a[:1], b[:1], a[1:]))
    1
    """
    counts, fits = _count(row)
    if fits:
        return sum(int(counts[root]) for root in row.root_cell)
    return _count_long(row)


def _count_long(row: Row) -> int:
    """`count_matches` with integers of any length. It drops each cell's count after its last use, because all counts
    together would need memory quadratic in the number of cells.
    """
    begin, take = row.cell_begin.tolist(), row.cell_take.tolist()
    link_cell, link_next = row.link_cell.tolist(), row.link_next.tolist()
    links = len(link_cell)
    asked = [part[part >= 0] for part in (row.cell_begin, row.cell_take, row.link_next)]
    link_uses = np.bincount(np.concatenate(asked), minlength=links).tolist()
    cell_uses = np.bincount(np.concatenate([row.link_cell, row.root_cell]), minlength=len(begin)).tolist()
    is_root = np.bincount(row.root_cell, minlength=len(begin)).tolist()
    counts: dict[int, int] = {}
    # For the cells from a link on.
    sums: dict[int, int] = {}
    found = 0
    for cell in range(len(begin)):
        total = 1 if begin[cell] == STARTS else 0
        for first in (begin[cell], take[cell]):
            if first < 0:
                continue
            unknown = []
            link = first
            while link >= 0 and link not in sums:
                unknown.append(link)
                link = link_next[link]
            for link in reversed(unknown):
                before, passed = link_next[link], link_cell[link]
                sums[link] = counts[passed] + (sums[before] if before >= 0 else 0)
                cell_uses[passed] -= 1
                if not cell_uses[passed]:
                    del counts[passed]
                if before >= 0:
                    link_uses[before] -= 1
                    if not link_uses[before]:
                        del sums[before]
            total += sums[first]
            link_uses[first] -= 1
            if not link_uses[first]:
                del sums[first]
        found += total * is_root[cell]
        if cell_uses[cell] > is_root[cell]:
            counts[cell] = total
            cell_uses[cell] -= is_root[cell]
    return found


@kernel(allocates=True)
def _count(row: Row):
    """(counts by cell, fits): the number of paths to each cell, and whether all counts and their sums fit 64 bits."""
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
    """Matches as cells: those of match k are between `bounds[k]` and `bounds[k + 1]`."""

    bounds: NDArray[np.int64]
    cells: NDArray[np.int32]


class ListedEvents(NamedTuple):
    """Matches as events. For each place of the pattern: where the events of each match begin, and all events, match by
    match.
    """

    bounds: NDArray[np.int64]  # [place, match]; one more than there are matches
    rows: list[NDArray[np.int32]]  # by place


def list_paths(row: Row, starts: NDArray[np.int64], limit: int, places: int, base: int) -> ListedEvents:
    """The first matches of a row, ordered by the start of their first event (`starts`, by event), then by their events
    from the first to the last. Events are counted from `base`."""
    begins = np.flatnonzero(row.cell_begin == STARTS).astype(np.int32)
    order = np.lexsort((begins, starts[row.cell_event[begins]]))
    # Room for all of them at once, up to a limit: a walk with too little room starts again.
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
    """The events of matches given by their cells, counted from `base`.

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
def _list(row: Row, begins: NDArray[np.int32], limit: int, capacity: int, firsts: NDArray[np.int64], base: int):
    """(bounds, rows, fits): list matches by a walk forward from the starts, in which every step leads to a root. The
    events of place p are between `firsts[p]` and `firsts[p + 1]`. `fits`: the output was large enough.

    Indexes are converted to unsigned integers, because for signed ones numba checks at every access whether they count
    from the end.
    """
    first_follower, followers = _followers(row)
    count = row.cell_begin.size
    places = np.uint64(firsts.size - 1)
    is_root = np.zeros(count, np.bool_)
    for root in row.root_cell:
        is_root[root] = True
    bounds = np.zeros((places, capacity + 1), np.int64)
    rows = np.empty(firsts[places], np.int32)
    # Of the current path: its cells, their events, the next follower to try; and where the events of each place begin.
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
    """For each cell, the cells that may come next, in order."""
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
