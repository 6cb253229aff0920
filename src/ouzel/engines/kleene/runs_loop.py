"""The run kernel for plain queries of the most common shape, SEQ(A+ a[], B b): one Kleene component and one after it.

It does what `runs_plain.py` does, in less than two thirds of its time. All runs are at a[], so the tests of the edges
are known before the first event is read. A run that takes or skips an event stays at its place in the list of its key;
only ended runs are removed.
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.kleene.edges import allows, bounds_differ, edge_of, read_lane, set_bound
from ouzel.engines.kleene.matches import is_unwanted, push_negatives, settle_before
from ouzel.engines.kleene.runs_plain import finish, free_run, join, limit_passed, new_run, set_node
from ouzel.engines.kleene.state import Counter, RunOutput, RunState, Status
from ouzel.engines.kleene.tables import Form, RunEvents, RunTables, Selection
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.windows import oldest_alive

_NONE = np.int32(-1)
# As in `runs`: the number of other runs, moved by the same event, that a run is compared with.
_COMPARED_MAX = 32
# Bits of an event's roles, and the two places.
_STARTS = np.uint64(0b001)
_TAKEN = np.uint64(0b010)
_BEGINS = np.uint64(0b100)
_LOOP = np.uint32(0)
_LAST = np.uint32(1)


@kernel
def scan_loop(tables: RunTables, state: RunState, events: RunEvents, first: int, last: int, output: RunOutput):
    """(status, position). An event is processed completely or, if the status is not DONE, not at all."""
    counters = state.counters
    runs = state.runs
    arena = state.arena
    contiguous = tables.selection == Selection.CONTIGUITY
    in_events = tables.in_events != 0
    in_form = tables.form != Form.ALL
    merge = tables.merge != 0
    take = edge_of(tables, events, _LOOP, 0)
    begin = edge_of(tables, events, _LOOP, 1)
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
        if count > tables.index_min:
            status = Status.INDEX_WANTED
            break
        if nodes + 2 * count + 1 > arena.event.size:
            status = Status.NODES_FULL
            break
        if output.written[0] + count > output.node.size:
            status = Status.OUTPUT_FULL
            break
        if roles & _STARTS != 0 and counters[Counter.FREE] < 0:
            status = Status.RUNS_FULL
            break
        if in_form and not settle_before(tables, state, events, output, events.end[at]):
            status = Status.UNSETTLED
            break
        start = events.start[at]
        end = events.end[at]
        measure = events.position[at] if in_events else end
        oldest = oldest_alive(measure, tables.window)
        sequence = events.sequence[at] - 1 if contiguous else 0
        state.key_oldest[key] = oldest
        taken = read_lane(take, events, at)
        begun = read_lane(begin, events, at)
        head = run
        previous = _NONE
        finished = _NONE
        kinds = 0
        # Only then can a limit be exceeded.
        grows = roles & _STARTS != 0
        while run >= 0:
            here = np.uint32(run)
            following = runs.next[here]
            node = runs.node[here]
            stays = (
                runs.since[here] >= oldest
                and not (contiguous and events.sequence[np.uint32(arena.event[np.uint32(node)])] != sequence)
                and not (in_form and is_unwanted(tables, state, events, np.uint32(runs.first[here]), key))
            )
            if stays and start > runs.end[here]:
                takes = roles & _TAKEN != 0 and allows(take, taken, runs, here, 0)
                # Begin comes first, because take moves the run.
                if roles & _BEGINS != 0 and allows(begin, begun, runs, here, 1):
                    set_node(arena, events, in_events, nodes, node, _LAST, at, True)
                    if merge and finished >= 0:
                        join(state, np.uint32(nodes), np.uint32(finished), _NONE)
                    else:
                        finished = np.int32(nodes)
                        grows = True
                        finish(state, events, nodes, runs.first[here], key, at, oldest, output)
                    nodes += 1
                if takes:
                    made = np.uint32(nodes)
                    set_node(arena, events, in_events, nodes, node, _LOOP, at, False)
                    nodes += 1
                    runs.node[here] = made
                    runs.end[here] = end
                    set_bound(take, runs, events, here, here, at, False, 0)
                    set_bound(begin, runs, events, here, here, at, False, 1)
                    if merge:
                        if kinds > 0 and _is_merged(take, begin, state, made, here, kinds):
                            stays = False
                        else:
                            state.kinds[np.uint32(kinds), 1] = run
                            kinds += 1
                elif contiguous:
                    stays = False
            elif contiguous:
                stays = False
            if stays:
                previous = run
            else:
                free_run(state, here)
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
            set_node(arena, events, in_events, nodes, _NONE, _LOOP, at, True)
            runs.node[here] = nodes
            runs.place[here] = 0
            runs.first[here] = at
            runs.since[here] = since
            runs.end[here] = end
            set_bound(take, runs, events, here, here, at, True, 0)
            set_bound(begin, runs, events, here, here, at, True, 1)
            if kinds > 0 and _is_merged(take, begin, state, np.uint32(nodes), here, kinds):
                free_run(state, here)
            else:
                runs.next[here] = head
                head = run
                count += 1
            nodes += 1
            counters[Counter.RUNS_MAX] = max(counters[Counter.RUNS_MAX], counters[Counter.RUNS])
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
def _is_merged(take, begin, state, made, here, kinds):
    """Whether a run at a new node has the same future as one that this event has moved before; then the node is merged
    into that one's."""
    for kind in range(max(kinds - _COMPARED_MAX, 0), kinds):
        other = state.kinds[np.uint32(kind), 1]
        there = np.uint32(other)
        if not bounds_differ(take[0], state.runs, here, there, 0) and not bounds_differ(
            begin[0], state.runs, here, there, 1
        ):
            join(state, made, np.uint32(state.runs.node[there]), other)
            return True
    return False
