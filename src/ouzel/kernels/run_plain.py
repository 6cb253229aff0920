"""The run kernel for plain queries: no negatives, every match wanted, and each edge asks for one comparison at most.

It does what `runs.py` does for every query, in a small function. A run keeps what its edges compare with (its *bounds*:
values of the first or last event of its place, or the least or greatest so far). They are all that decides its future,
so an event is shown to a run by one comparison, and runs of a place with the same bounds are one.

Numbers of runs, nodes and slots are made unsigned before they are used: numba asks of signed ones at every access
whether they count from the end.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.predicates import _order_of_floats
from ouzel.kernels.run_state import Counter, Status
from ouzel.kernels.run_tables import EDGE_COLUMNS, Bound, ByPlain, Guard, Selection
from ouzel.kernels.stack_checks import oldest_alive

_CONTIGUITY = int(Selection.CONTIGUITY)
_NEXT_MATCH = int(Selection.NEXT_MATCH)
_ANY_MATCH = int(Selection.ANY_MATCH)

_KIND = int(ByPlain.KIND)
_LANE = int(ByPlain.LANE)
_ORDERS = int(ByPlain.ORDERS)
_BOUND = int(ByPlain.BOUND)
_OTHER_LANE = int(ByPlain.OTHER_LANE)
_LOOPS = int(ByPlain.LOOPS)
_EDGE_COLUMNS = EDGE_COLUMNS
_NO_TEST = int(Guard.NONE)
_INT = int(Guard.INT)
_BOUND_FIRST = int(Bound.FIRST)
_BOUND_LAST = int(Bound.LAST)
_FIRST_VALUE = int(Bound.FIRST_VALUE)
_LAST_VALUE = int(Bound.LAST_VALUE)
_LEAST = int(Bound.LEAST)
_GREATEST = int(Bound.GREATEST)
_VALUE = np.uint8(LaneFlag.VALUE)
_ABSENT = np.uint8(LaneFlag.ABSENT)

_NODES = int(Counter.NODES)
_RUNS = int(Counter.RUNS)
_FREE = int(Counter.FREE)
_MOMENT = int(Counter.MOMENT)
_AT_MOMENT = int(Counter.AT_MOMENT)
_EVENTS = int(Counter.EVENTS)
_MOVES = int(Counter.MOVES)
_RUNS_MAX = int(Counter.RUNS_MAX)
_MERGED = int(Counter.MERGED)
_MATCHES = int(Counter.MATCHES)
_DONE = int(Status.DONE)
_NODES_FULL = int(Status.NODES_FULL)
_RUNS_FULL = int(Status.RUNS_FULL)
_OUTPUT_FULL = int(Status.OUTPUT_FULL)
_MATCH_LIMIT = int(Status.MATCH_LIMIT)
_RUN_LIMIT = int(Status.RUN_LIMIT)

# In `Runs.guard`, which of no other use here: the LaneFlag of a bound, counted down from here.
_IS_BOUND = np.int32(-2)
_NONE = np.int32(-1)
# As in `runs`: with how many other runs that an event has moved a run is compared.
_COMPARED_MAX = 32


@njit(cache=True, nogil=True, _nrt=False)
def scan_plain(tables, state, events, first, last, output):
    """(status, position). Everything about one event happens, or, where the status is not DONE, nothing of it."""
    counters = state.counters
    runs = state.runs
    contiguous = tables.selection == _CONTIGUITY
    in_events = tables.in_events != 0
    last_place = np.uint32(tables.length - 1)
    one = np.uint64(1)
    status = _limit_passed(tables, counters)
    slot = first
    while slot < last and status == _DONE:
        at = np.uint32(slot)
        roles = events.roles[at]
        key = np.uint32(events.key[at])
        run = state.key_head[key]
        if roles == 0 or (run < 0 and roles & one == 0):
            slot += 1
            continue
        most = 2 * np.int64(state.key_runs[key]) + 1
        if counters[_NODES] + most > state.arena.event.size:
            status = _NODES_FULL
        elif counters[_RUNS] + most > runs.node.size:
            status = _RUNS_FULL
        elif output.written[0] + most > output.node.size:
            status = _OUTPUT_FULL
        if status != _DONE:
            break
        start = events.start[at]
        measure = events.position[at] if in_events else events.end[at]
        oldest = oldest_alive(measure, tables.window)
        sequence = events.sequence[at] - 1 if contiguous else 0
        state.key_oldest[key] = oldest
        kept = _NONE
        kept_count = 0
        kinds = 0
        while run >= 0:
            here = np.uint32(run)
            following = runs.next[here]
            node = runs.node[here]
            if runs.since[here] < oldest or (
                contiguous and events.sequence[np.uint32(state.arena.event[np.uint32(node)])] != sequence
            ):
                _free(state, here)
                run = following
                continue
            place = np.uint32(runs.place[here])
            loops = tables.plain[place, _LOOPS] != 0
            takes = False
            begins = False
            if start > runs.end[here]:
                ahead = roles >> np.uint64(2 * place + 1)
                takes = loops and ahead & one != 0 and _holds(tables, runs, events, at, here, place, 0)
                begins = (
                    place < last_place
                    and ahead & np.uint64(2) != 0
                    and _holds(tables, runs, events, at, here, place, 1)
                )
            own = run
            if tables.selection == _ANY_MATCH or (tables.selection == _NEXT_MATCH and not (takes if loops else begins)):
                runs.next[here] = kept
                kept = run
                kept_count += 1
                own = _NONE
            # Beginning comes first, since taking overwrites the run.
            if begins:
                target = place + np.uint32(1)
                moved = _add_node(tables, state, events, node, target, at, True)
                added = _NONE
                if target < last_place or tables.plain[target, _LOOPS] != 0:
                    if takes or own < 0:
                        added = _new_run(state)
                    else:
                        added = own
                        own = _NONE
                    _set_run(tables, runs, events, here, np.uint32(added), moved, target, at, True)
                if kinds > 0 and _is_merged(tables, state, moved, target, added, kinds):
                    if added >= 0:
                        _free(state, np.uint32(added))
                else:
                    kinds = _remember(tables, state, moved, added, kinds)
                    if added >= 0:
                        runs.next[np.uint32(added)] = kept
                        kept = added
                        kept_count += 1
                    if target == last_place:
                        _finish(state, events, moved, key, at, oldest, output)
            if takes:
                moved = _add_node(tables, state, events, node, place, at, False)
                added = own if own >= 0 else _new_run(state)
                own = _NONE
                _set_run(tables, runs, events, here, np.uint32(added), moved, place, at, False)
                if kinds > 0 and _is_merged(tables, state, moved, place, added, kinds):
                    _free(state, np.uint32(added))
                else:
                    kinds = _remember(tables, state, moved, added, kinds)
                    runs.next[np.uint32(added)] = kept
                    kept = added
                    kept_count += 1
                    if place == last_place:
                        _finish(state, events, moved, key, at, oldest, output)
            if own >= 0:
                _free(state, np.uint32(own))
            run = following
        since = measure if in_events else start
        if roles & one != 0 and since >= oldest:
            target = np.uint32(0)
            moved = _add_node(tables, state, events, _NONE, target, at, True)
            added = _NONE
            if last_place > 0 or tables.plain[target, _LOOPS] != 0:
                added = _new_run(state)
                runs.first[np.uint32(added)] = at
                runs.since[np.uint32(added)] = since
                _set_run(tables, runs, events, np.uint32(added), np.uint32(added), moved, target, at, True)
            if kinds > 0 and _is_merged(tables, state, moved, target, added, kinds):
                if added >= 0:
                    _free(state, np.uint32(added))
            else:
                if added >= 0:
                    runs.next[np.uint32(added)] = kept
                    kept = added
                    kept_count += 1
                if last_place == 0:
                    _finish(state, events, moved, key, at, oldest, output)
        state.key_head[key] = kept
        state.key_runs[key] = kept_count
        counters[_RUNS_MAX] = max(counters[_RUNS_MAX], counters[_RUNS])
        slot += 1
        status = _limit_passed(tables, counters)
    counters[_EVENTS] += slot - first
    return status, slot


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _limit_passed(tables, counters):
    if counters[_RUNS] > tables.max_runs:
        return _RUN_LIMIT
    if counters[_AT_MOMENT] > tables.max_matches_per_moment:
        return _MATCH_LIMIT
    return _DONE


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _holds(tables, runs, events, at, here, place, edge):
    """Whether the take (0) or begin (1) edge that leaves a run's node holds for an event."""
    columns = edge * _EDGE_COLUMNS
    kind = tables.plain[place, columns + _KIND]
    if kind == _NO_TEST:
        return True
    lane = np.uint32(tables.plain[place, columns + _LANE])
    flags = lane if kind == _INT else lane + np.uint32(events.int_lanes.shape[0])
    flag = max(events.lane_flags[flags, at], np.uint8(_IS_BOUND - runs.guard[here, edge]))
    if flag != _VALUE:
        # A comparison with an absent attribute is true, one with null is not.
        return flag == _ABSENT
    if kind == _INT:
        value = events.int_lanes[lane, at]
        bound = runs.int_bounds[here, edge]
        order = int(value > bound) - int(value < bound)
    else:
        order = _order_of_floats(events.float_lanes[lane, at], runs.float_bounds[here, edge])
    return (tables.plain[place, columns + _ORDERS] >> (order + 1)) & 1 != 0


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _add_node(tables, state, events, parent, place, at, begins):
    """As in `run_edges`, for a query without proceed edges, registers and codes."""
    arena = state.arena
    counters = state.counters
    node = np.int32(counters[_NODES])
    made = np.uint32(node)
    counters[_NODES] += 1
    counters[_MOVES] += 1
    arena.event[made] = at
    arena.parent[made] = parent
    arena.place[made] = place
    arena.others[made] = -1
    arena.proceeds[made] = 1
    if parent >= 0:
        newest = arena.newest[np.uint32(parent)]
    else:
        newest = events.position[at] if tables.in_events else events.start[at]
    arena.first[made] = node if begins else arena.first[np.uint32(parent)]
    arena.own[made] = newest
    arena.newest[made] = newest
    return node


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _new_run(state):
    """A free run; there must be one."""
    run = np.int32(state.counters[_FREE])
    state.counters[_FREE] = state.runs.next[np.uint32(run)]
    state.counters[_RUNS] += 1
    return run


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _set_run(tables, runs, events, before, run, node, place, at, begins):
    """Bring a run to a node: that of `before`, which may be the same run, after it has taken or begun with an event."""
    runs.node[run] = node
    runs.end[run] = events.end[at]
    if begins or run != before:
        runs.place[run] = place
        runs.first[run] = runs.first[before]
        runs.since[run] = runs.since[before]
    _set_bound(tables, runs, events, before, run, place, at, begins, 0)
    _set_bound(tables, runs, events, before, run, place, at, begins, 1)


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _set_bound(tables, runs, events, before, run, place, at, begins, edge):
    """What an edge compares with from now on."""
    columns = edge * _EDGE_COLUMNS
    kind = tables.plain[place, columns + _KIND]
    if kind == _NO_TEST:
        return
    bound = tables.plain[place, columns + _BOUND]
    lane = np.uint32(tables.plain[place, columns + _OTHER_LANE])
    flag = events.lane_flags[lane if kind == _INT else lane + np.uint32(events.int_lanes.shape[0]), at]
    if begins:
        # Aggregates pass absent values over like nulls.
        runs.guard[run, edge] = _IS_BOUND - (flag if bound <= _BOUND_LAST else min(flag, 1))
        if kind == _INT:
            runs.int_bounds[run, edge] = events.int_lanes[lane, at]
        else:
            runs.float_bounds[run, edge] = events.float_lanes[lane, at]
        return
    had = runs.guard[before, edge]
    was = runs.int_bounds[before, edge]
    float_was = runs.float_bounds[before, edge]
    changes = bound == _BOUND_LAST
    if bound > _BOUND_LAST and flag == _VALUE:
        changes = had != _IS_BOUND or bound == _LAST_VALUE
        if bound >= _LEAST and not changes:
            if kind == _INT:
                value = events.int_lanes[lane, at]
                changes = value < was if bound == _LEAST else value > was
            else:
                order = _order_of_floats(events.float_lanes[lane, at], float_was)
                changes = order < 0 if bound == _LEAST else order > 0
    if changes:
        runs.guard[run, edge] = _IS_BOUND - flag
        if kind == _INT:
            runs.int_bounds[run, edge] = events.int_lanes[lane, at]
        else:
            runs.float_bounds[run, edge] = events.float_lanes[lane, at]
    elif run != before:
        runs.guard[run, edge] = had
        runs.int_bounds[run, edge] = was
        runs.float_bounds[run, edge] = float_was


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _remember(tables, state, node, run, kinds):
    """What an event has made so far, to be merged with; the number of it."""
    if not tables.merge:
        return 0
    state.kinds[np.uint32(kinds), 0] = node
    state.kinds[np.uint32(kinds), 1] = run
    return kinds + 1


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _is_merged(tables, state, node, place, run, kinds):
    """Whether a new node has the same future as one that this event has made before; then it is joined to it.

    A node without a run is that of a finished match.
    """
    arena = state.arena
    runs = state.runs
    for kind in range(max(kinds - _COMPARED_MAX, 0), kinds):
        other = np.uint32(state.kinds[np.uint32(kind), 0])
        other_run = state.kinds[np.uint32(kind), 1]
        if arena.place[other] != place or (
            run >= 0
            and (
                _bounds_differ(tables, runs, place, np.uint32(run), np.uint32(other_run), 0)
                or _bounds_differ(tables, runs, place, np.uint32(run), np.uint32(other_run), 1)
            )
        ):
            continue
        made = np.uint32(node)
        arena.others[made] = arena.others[other]
        arena.others[other] = node
        arena.newest[other] = max(arena.newest[other], arena.newest[made])
        # The combined run lives as long as its youngest member.
        if other_run >= 0:
            runs.since[np.uint32(other_run)] = arena.newest[other]
        state.counters[_MERGED] += 1
        return True
    return False


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _bounds_differ(tables, runs, place, here, there, edge):
    kind = tables.plain[place, edge * _EDGE_COLUMNS + _KIND]
    if kind == _NO_TEST:
        return False
    if runs.guard[here, edge] != runs.guard[there, edge]:
        return True
    if runs.guard[here, edge] != _IS_BOUND:
        return False
    if kind == _INT:
        return runs.int_bounds[here, edge] != runs.int_bounds[there, edge]
    return _order_of_floats(runs.float_bounds[here, edge], runs.float_bounds[there, edge]) != 0


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _finish(state, events, node, key, at, oldest, output):
    """The last place is bound: a match."""
    counters = state.counters
    now = events.end[at]
    if counters[_MOMENT] != now:
        counters[_MOMENT] = now
        counters[_AT_MOMENT] = 0
    counters[_MATCHES] += 1
    counters[_AT_MOMENT] += 1
    written = np.uint64(output.written[0])
    output.node[written] = node
    output.end[written] = now
    output.key[written] = key
    output.oldest[written] = oldest
    output.written[0] += 1


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _free(state, run):
    state.runs.next[run] = state.counters[_FREE]
    state.counters[_FREE] = run
    state.counters[_RUNS] -= 1
