"""The run kernel for patterns SEQ(A+ a[], B b) with at most one comparison on each edge, and negation tested on
complete matches.

For these it gives the same answers as `runs.py` in less than half of the time. All runs are at a[], so it knows the
tests of the edges before it reads an event. In place of registers, a run stores its *bounds*: the values that its edges
compare with, which are those of the first or last event of a[], or the least or greatest so far. Only the bounds decide
how a run continues, so runs with equal bounds are merged. A run that takes or skips an event keeps its index in the
list of its key; only ended runs are removed.

Indexes of runs, nodes and slots are converted to unsigned integers, because for signed ones numba checks at every
access whether they count from the end.
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.kleene.edges import CLOSED, OPEN
from ouzel.engines.kleene.matches import choose_before, finish, is_unwanted, limit_passed, push_negatives
from ouzel.engines.kleene.run_index import find_runs, put_in, take_out
from ouzel.engines.kleene.state import Counter, RunOutput, RunState, Status, free_run, new_run
from ouzel.engines.kleene.tables import Bound, ByLoop, ByPlace, Form, Guard, Numbering, RunEvents, RunTables
from ouzel.kernels.events import oldest_alive
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.predicates import order_of_floats

_NONE = np.int32(-1)
# As in `runs`: the number of other runs, moved by the same event, that a run is compared with.
_COMPARED_MAX = 32
# Bits of an event's roles, and the two places.
_STARTS = np.uint64(0b001)
_TAKEN = np.uint64(0b010)
_BEGINS = np.uint64(0b100)
_LOOP = np.uint32(0)
_LAST = np.uint32(1)
_VALUE = np.uint8(LaneFlag.VALUE)
_NULL = np.uint8(LaneFlag.NULL)
_ABSENT = np.uint8(LaneFlag.ABSENT)
# In `Runs.guard`: the run has a value to compare with. A null is CLOSED, and an absent one OPEN.
_BOUND = np.int32(0)


@kernel
def scan_loop(tables: RunTables, state: RunState, events: RunEvents, first: int, last: int, output: RunOutput):
    """(status, position): read events. If the status is not DONE, the event at `position` has had no effect."""
    return _scan(tables, state, events, first, last, output, False)


@kernel
def scan_loop_indexed(tables: RunTables, state: RunState, events: RunEvents, first: int, last: int, output: RunOutput):
    """Like `scan_loop`, while the search trees of `run_index` are in use."""
    return _scan(tables, state, events, first, last, output, True)


@helper(inline=True)
def _scan(tables, state, events, first, last, output, indexed):
    counters = state.counters
    runs = state.runs
    arena = state.arena
    contiguous = tables.by_place[_LOOP, ByPlace.NUMBERED] != Numbering.NONE
    sequence = events.sequence if tables.numbers_stream else events.position
    in_events = tables.in_events != 0
    in_form = tables.form != Form.ALL
    merge = tables.merge != 0
    take = _edge_of(tables, events, 0)
    begin = _edge_of(tables, events, 1)
    nodes = counters[Counter.NODES]
    nodes_before = nodes
    status = limit_passed(tables, counters)
    slot = first
    while slot < last and status == Status.DONE:
        at = np.uint32(slot)
        roles = events.roles[at]
        key = np.uint32(events.key[at])
        run = state.key_head[key]
        if roles == 0 or (run < 0 and roles & _STARTS == 0):
            if tables.negatives:
                push_negatives(tables, state, events, slot, roles)
            slot += 1
            continue
        count = np.int64(state.key_runs[key])
        found = count
        if indexed:
            found = find_runs(tables, state, events, slot, key, roles)
        elif count > tables.index_min:
            status = Status.INDEX_WANTED
            break
        if nodes + 2 * found + 1 > arena.event.size:
            status = Status.NODES_FULL
            break
        if output.written[0] + found > output.node.size:
            status = Status.OUTPUT_FULL
            break
        if roles & _STARTS != 0 and counters[Counter.FREE] < 0:
            status = Status.RUNS_FULL
            break
        if in_form and not choose_before(tables, state, events, output, events.end[at]):
            status = Status.UNCHOSEN
            break
        start = events.start[at]
        end = events.end[at]
        measure = events.position[at] if in_events else end
        oldest = oldest_alive(measure, tables.window)
        number = sequence[at] - 1 if contiguous else 0
        state.key_oldest[key] = oldest
        taken = _read_lane(take, events, at)
        begun = _read_lane(begin, events, at)
        head = run
        previous = _NONE
        finished = _NONE
        kinds = 0
        turn = 0
        # Only then can a limit be exceeded.
        grows = roles & _STARTS != 0
        while turn < found if indexed else run >= 0:
            if indexed:
                run = state.trees.found[np.uint32(turn)]
                turn += 1
            here = np.uint32(run)
            following = runs.next[here]
            node = runs.node[here]
            stays = (
                runs.since[here] >= oldest
                and not (contiguous and sequence[np.uint32(arena.event[np.uint32(node)])] != number)
                and not (in_form and is_unwanted(tables, state, events, np.uint32(runs.first[here]), key))
            )
            takes = False
            if stays and start > runs.end[here]:
                takes = roles & _TAKEN != 0 and _allows(take, taken, runs, here, 0)
                # Begin comes first, because take moves the run.
                if roles & _BEGINS != 0 and _allows(begin, begun, runs, here, 1):
                    _set_node(arena, events, in_events, nodes, node, _LAST, at, True)
                    if merge and finished >= 0:
                        _join(state, np.uint32(nodes), np.uint32(finished), _NONE)
                    else:
                        finished = np.int32(nodes)
                        grows = True
                        finish(tables, state, events, np.int32(nodes), runs.first[here], key, at, oldest, output)
                    nodes += 1
            if indexed and (takes or not stays):
                take_out(tables, state, run)
            if takes:
                made = np.uint32(nodes)
                _set_node(arena, events, in_events, nodes, node, _LOOP, at, False)
                nodes += 1
                runs.node[here] = made
                runs.end[here] = end
                _set_bound(take, runs, events, here, at, False, 0)
                _set_bound(begin, runs, events, here, at, False, 1)
                if merge:
                    if kinds > 0 and _is_merged(take, begin, state, made, here, kinds):
                        stays = False
                    else:
                        state.kinds[np.uint32(kinds), 1] = run
                        kinds += 1
                if indexed and stays:
                    put_in(state, key, run, end)
            elif contiguous:
                stays = False
            if not stays:
                free_run(state, here)
            if not indexed:
                if stays:
                    previous = run
                else:
                    count -= 1
                    if previous < 0:
                        head = following
                    else:
                        runs.next[np.uint32(previous)] = following
            run = following
        since = measure if in_events else start
        if roles & _STARTS != 0 and since >= oldest:
            run = new_run(state)
            here = np.uint32(run)
            _set_node(arena, events, in_events, nodes, _NONE, _LOOP, at, True)
            runs.node[here] = nodes
            runs.place[here] = 0
            runs.first[here] = at
            runs.since[here] = since
            runs.end[here] = end
            _set_bound(take, runs, events, here, at, True, 0)
            _set_bound(begin, runs, events, here, at, True, 1)
            if kinds > 0 and _is_merged(take, begin, state, np.uint32(nodes), here, kinds):
                free_run(state, here)
            elif indexed:
                put_in(state, key, run, end)
            else:
                runs.next[here] = head
                head = run
                count += 1
            nodes += 1
            counters[Counter.RUNS_MAX] = max(counters[Counter.RUNS_MAX], counters[Counter.RUNS])
        if not indexed:
            state.key_head[key] = head
            state.key_runs[key] = count
        if tables.negatives:
            push_negatives(tables, state, events, slot, roles)
        slot += 1
        if grows:
            status = limit_passed(tables, counters)
    counters[Counter.NODES] = nodes
    counters[Counter.MOVES] += nodes - nodes_before
    counters[Counter.EVENTS] += slot - first
    return status, slot


@helper(inline=True)
def _set_node(arena, events, in_events, node, parent, place, at, begins):
    """Like `add_node` in `edges.py`, for a query without proceed edges, registers and codes."""
    made = np.uint32(node)
    arena.event[made] = at
    arena.parent[made] = parent
    arena.place[made] = place
    arena.others[made] = -1
    arena.proceeds[made] = 1
    if parent >= 0:
        newest = arena.newest[np.uint32(parent)]
    else:
        newest = events.position[at] if in_events else events.start[at]
    arena.first[made] = node if begins else arena.first[np.uint32(parent)]
    arena.own[made] = newest
    arena.newest[made] = newest


@helper(inline=True)
def _is_merged(take, begin, state, made, here, kinds):
    """Whether this event has already moved a run that now has the same bounds as the run at a new node. If so, merges
    the new node into that run's node.
    """
    for kind in range(max(kinds - _COMPARED_MAX, 0), kinds):
        other = state.kinds[np.uint32(kind), 1]
        there = np.uint32(other)
        if not _bounds_differ(take[0], state.runs, here, there, 0) and not _bounds_differ(
            begin[0], state.runs, here, there, 1
        ):
            _join(state, made, np.uint32(state.runs.node[there]), other)
            return True
    return False


@helper(inline=True)
def _join(state, made, other, other_run):
    """Add a new node to the list of nodes with the same future as node `other`. `other_run` is the run at it, or -1."""
    arena = state.arena
    arena.others[made] = arena.others[other]
    arena.others[other] = made
    arena.newest[other] = max(arena.newest[other], arena.newest[made])
    # The merged run lives as long as its youngest member.
    if other_run >= 0:
        state.runs.since[np.uint32(other_run)] = arena.newest[other]
    state.counters[Counter.MERGED] += 1


# ── Edges ──────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _edge_of(tables, events, number):
    """The comparison on the take (0) or begin (1) edge: (kind, lane, row of its flags, orders that pass, bound, lane of
    the bound, row of its flags).
    """
    row = tables.loop[np.uint32(number)]
    kind = row[ByLoop.KIND]
    before = np.uint32(0) if kind == Guard.INT else np.uint32(events.int_lanes.shape[0])
    lane = np.uint32(row[ByLoop.LANE])
    other = np.uint32(row[ByLoop.OTHER_LANE])
    return kind, lane, lane + before, row[ByLoop.ORDERS], row[ByLoop.BOUND], other, other + before


@helper(inline=True)
def _read_lane(edge, events, at):
    """(flag, integer, float): the value of an event that an edge compares with the bound of a run."""
    kind, lane, flags, _, _, _, _ = edge
    if kind == Guard.NONE:
        return _VALUE, np.int64(0), 0.0
    if kind == Guard.INT:
        return events.lane_flags[flags, at], events.int_lanes[lane, at], 0.0
    return events.lane_flags[flags, at], np.int64(0), events.float_lanes[lane, at]


@helper(inline=True)
def _allows(edge, read, runs, here, number):
    """Whether an edge holds for a run and the value that was read from an event."""
    kind, _, _, orders, _, _, _ = edge
    if kind == Guard.NONE:
        return True
    flag, value, real = read
    guard = runs.guard[here, number]
    if flag != _VALUE or guard != _BOUND:
        # A comparison with an absent attribute is true, one with null is not.
        return flag == _ABSENT or guard == OPEN
    if kind == Guard.INT:
        bound = runs.int_bounds[here, number]
        order = int(value > bound) - int(value < bound)
    else:
        order = order_of_floats(real, runs.float_bounds[here, number])
    return (orders >> (order + 1)) & 1 != 0


@helper(inline=True)
def _set_bound(edge, runs, events, run, at, begins, number):
    """Set the bound of a run after it has begun a[] with an event or taken it."""
    kind, _, _, _, bound, lane, flags = edge
    if kind == Guard.NONE:
        if begins:
            runs.guard[run, number] = OPEN
        return
    flag = events.lane_flags[flags, at]
    changes = begins or bound == Bound.LAST
    if not changes and bound > Bound.LAST and flag == _VALUE:
        changes = runs.guard[run, number] != _BOUND or bound == Bound.LAST_VALUE
        if bound >= Bound.LEAST and not changes:
            if kind == Guard.INT:
                was = runs.int_bounds[run, number]
                value = events.int_lanes[lane, at]
                changes = value < was if bound == Bound.LEAST else value > was
            else:
                order = order_of_floats(events.float_lanes[lane, at], runs.float_bounds[run, number])
                changes = order < 0 if bound == Bound.LEAST else order > 0
    if changes:
        if flag == _VALUE:
            runs.guard[run, number] = _BOUND
        else:
            # Aggregates ignore absent values like nulls.
            runs.guard[run, number] = OPEN if flag == _ABSENT and bound <= Bound.LAST else CLOSED
        if kind == Guard.INT:
            runs.int_bounds[run, number] = events.int_lanes[lane, at]
        else:
            runs.float_bounds[run, number] = events.float_lanes[lane, at]


@helper(inline=True)
def _bounds_differ(kind, runs, here, there, number):
    """Whether two runs have different bounds on an edge."""
    if kind == Guard.NONE:
        return False
    if runs.guard[here, number] != runs.guard[there, number]:
        return True
    if runs.guard[here, number] != _BOUND:
        return False
    if kind == Guard.INT:
        return runs.int_bounds[here, number] != runs.int_bounds[there, number]
    return order_of_floats(runs.float_bounds[here, number], runs.float_bounds[there, number]) != 0
