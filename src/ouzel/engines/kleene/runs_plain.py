"""The run kernel for plain queries: negation, if any, is checked late, and each edge has at most one comparison.

It does what `runs.py` does for every query, in a small function. A run stores the values that its edges compare with
(its *bounds*: values of the first or last event of its place, or the least or greatest so far). The bounds alone decide
its future. So an event needs one comparison per run, and runs of a place with the same bounds are merged.

It is 1.2 to 1.5 times as fast as `runs.py`. It stays because `runs_loop.py`, which saves more, keeps its runs in this
form and continues here once they need an index.

Numbers of runs, nodes and slots are made unsigned before they are used as an index: numba checks signed ones for
counting from the end at every access.
"""

from __future__ import annotations

import numpy as np

from ouzel.engines.kleene.edges import allows, bounds_differ, edge_of, read_lane, set_bound
from ouzel.engines.kleene.matches import is_unwanted, push_negatives, settle_before
from ouzel.engines.kleene.run_index import find_runs, put_in, take_out
from ouzel.engines.kleene.state import Counter, RunOutput, RunState, Status
from ouzel.engines.kleene.tables import EDGE_COLUMNS, ByPlain, Form, RunEvents, RunTables, Selection
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.windows import oldest_alive

_EDGE_COLUMNS = EDGE_COLUMNS


_NONE = np.int32(-1)
# As in `runs`: the number of other runs, moved by the same event, that a run is compared with.
_COMPARED_MAX = 32


@kernel
def scan_plain(tables: RunTables, state: RunState, events: RunEvents, first: int, last: int, output: RunOutput):
    """(status, position). An event is processed completely or, if the status is not DONE, not at all."""
    counters = state.counters
    runs = state.runs
    contiguous = tables.selection == Selection.CONTIGUITY
    indexed = state.trees.on[0] != 0
    in_events = tables.in_events != 0
    in_form = tables.form != Form.ALL
    last_place = np.uint32(tables.length - 1)
    one = np.uint64(1)
    status = limit_passed(tables, counters)
    slot = first
    while slot < last and status == Status.DONE:
        at = np.uint32(slot)
        roles = events.roles[at]
        key = np.uint32(events.key[at])
        run = state.key_head[key]
        if roles == 0 or (run < 0 and roles & one == 0):
            if tables.negatives:
                push_negatives(tables, state, events, slot, roles)
            slot += 1
            continue
        found = np.int64(state.key_runs[key])
        if indexed:
            found = find_runs(tables, state, events, slot, key, roles)
        elif found > tables.index_min:
            status = Status.INDEX_WANTED
            break
        most = 2 * found + 1
        if counters[Counter.NODES] + most > state.arena.event.size:
            status = Status.NODES_FULL
        elif counters[Counter.RUNS] + most > runs.node.size:
            status = Status.RUNS_FULL
        elif output.written[0] + most > output.node.size:
            status = Status.OUTPUT_FULL
        if status != Status.DONE:
            break
        if in_form and not settle_before(tables, state, events, output, events.end[at]):
            status = Status.UNSETTLED
            break
        start = events.start[at]
        measure = events.position[at] if in_events else events.end[at]
        oldest = oldest_alive(measure, tables.window)
        sequence = events.sequence[at] - 1 if contiguous else 0
        state.key_oldest[key] = oldest
        kept = _NONE
        kept_count = 0
        kinds = 0
        turn = 0
        while turn < found if indexed else run >= 0:
            if indexed:
                run = state.trees.found[turn]
                turn += 1
            here = np.uint32(run)
            following = runs.next[here]
            node = runs.node[here]
            if (
                runs.since[here] < oldest
                or (contiguous and events.sequence[np.uint32(state.arena.event[np.uint32(node)])] != sequence)
                or (in_form and is_unwanted(tables, state, events, np.uint32(runs.first[here]), key))
            ):
                if indexed:
                    take_out(tables, state, run)
                free_run(state, here)
                run = following
                continue
            # Take and begin may overwrite the run.
            first_slot = runs.first[here]
            place = np.uint32(runs.place[here])
            loops = tables.plain[place, ByPlain.LOOPS] != 0
            takes = False
            begins = False
            if start > runs.end[here]:
                ahead = roles >> np.uint64(2 * place + 1)
                takes = loops and ahead & one != 0
                if takes:
                    edge = edge_of(tables, events, place, 0)
                    takes = allows(edge, read_lane(edge, events, at), runs, here, 0)
                begins = place < last_place and ahead & np.uint64(2) != 0
                if begins:
                    edge = edge_of(tables, events, place, 1)
                    begins = allows(edge, read_lane(edge, events, at), runs, here, 1)
            own = run
            if tables.selection == Selection.ANY_MATCH or (
                tables.selection == Selection.NEXT_MATCH and not (takes if loops else begins)
            ):
                if not indexed:
                    runs.next[here] = kept
                    kept = run
                    kept_count += 1
                own = _NONE
            elif indexed:
                take_out(tables, state, run)
            # Begin comes first, because take overwrites the run.
            if begins:
                target = place + np.uint32(1)
                moved = _add_node(tables, state, events, node, target, at, True)
                added = _NONE
                if target < last_place or tables.plain[target, ByPlain.LOOPS] != 0:
                    if takes or own < 0:
                        added = new_run(state)
                    else:
                        added = own
                        own = _NONE
                    _set_run(tables, runs, events, here, np.uint32(added), moved, target, at, True)
                if kinds > 0 and _is_merged(tables, state, moved, target, added, kinds):
                    if added >= 0:
                        free_run(state, np.uint32(added))
                else:
                    kinds = _remember(tables, state, moved, added, kinds)
                    if added >= 0 and indexed:
                        put_in(state, key, added, events.end[at])
                    elif added >= 0:
                        runs.next[np.uint32(added)] = kept
                        kept = added
                        kept_count += 1
                    if target == last_place:
                        finish(state, events, moved, first_slot, key, at, oldest, output)
            if takes:
                moved = _add_node(tables, state, events, node, place, at, False)
                added = own if own >= 0 else new_run(state)
                own = _NONE
                _set_run(tables, runs, events, here, np.uint32(added), moved, place, at, False)
                if kinds > 0 and _is_merged(tables, state, moved, place, added, kinds):
                    free_run(state, np.uint32(added))
                else:
                    kinds = _remember(tables, state, moved, added, kinds)
                    if indexed:
                        put_in(state, key, added, events.end[at])
                    else:
                        runs.next[np.uint32(added)] = kept
                        kept = added
                        kept_count += 1
                    if place == last_place:
                        finish(state, events, moved, first_slot, key, at, oldest, output)
            if own >= 0:
                free_run(state, np.uint32(own))
            run = following
        since = measure if in_events else start
        if roles & one != 0 and since >= oldest:
            target = np.uint32(0)
            moved = _add_node(tables, state, events, _NONE, target, at, True)
            added = _NONE
            if last_place > 0 or tables.plain[target, ByPlain.LOOPS] != 0:
                added = new_run(state)
                runs.first[np.uint32(added)] = at
                runs.since[np.uint32(added)] = since
                _set_run(tables, runs, events, np.uint32(added), np.uint32(added), moved, target, at, True)
            if kinds > 0 and _is_merged(tables, state, moved, target, added, kinds):
                if added >= 0:
                    free_run(state, np.uint32(added))
            else:
                if added >= 0 and indexed:
                    put_in(state, key, added, events.end[at])
                elif added >= 0:
                    runs.next[np.uint32(added)] = kept
                    kept = added
                    kept_count += 1
                if last_place == 0:
                    finish(state, events, moved, at, key, at, oldest, output)
        if not indexed:
            state.key_head[key] = kept
            state.key_runs[key] = kept_count
        counters[Counter.RUNS_MAX] = max(counters[Counter.RUNS_MAX], counters[Counter.RUNS])
        if tables.negatives:
            push_negatives(tables, state, events, slot, roles)
        slot += 1
        status = limit_passed(tables, counters)
    counters[Counter.EVENTS] += slot - first
    return status, slot


@helper(inline=True)
def limit_passed(tables, counters):
    if counters[Counter.RUNS] > tables.max_runs:
        return Status.RUN_LIMIT
    if counters[Counter.AT_MOMENT] > tables.max_matches_per_timestamp:
        return Status.MATCH_LIMIT
    return Status.DONE


@helper(inline=True)
def _add_node(tables, state, events, parent, place, at, begins):
    counters = state.counters
    node = np.int32(counters[Counter.NODES])
    counters[Counter.NODES] += 1
    counters[Counter.MOVES] += 1
    set_node(state.arena, events, tables.in_events != 0, node, parent, place, at, begins)
    return node


@helper(inline=True)
def set_node(arena, events, in_events, node, parent, place, at, begins):
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
def new_run(state):
    """A free run; there must be one."""
    run = np.int32(state.counters[Counter.FREE])
    state.counters[Counter.FREE] = state.runs.next[np.uint32(run)]
    state.counters[Counter.RUNS] += 1
    return run


@helper(inline=True)
def _set_run(tables, runs, events, before, run, node, place, at, begins):
    """Move a run to a node: that of `before`, which may be the same run, after it has taken or begun with an event."""
    runs.node[run] = node
    runs.end[run] = events.end[at]
    if begins or run != before:
        runs.place[run] = place
        runs.first[run] = runs.first[before]
        runs.since[run] = runs.since[before]
    set_bound(edge_of(tables, events, place, 0), runs, events, before, run, at, begins, 0)
    set_bound(edge_of(tables, events, place, 1), runs, events, before, run, at, begins, 1)


@helper(inline=True)
def _remember(tables, state, node, run, kinds):
    """Add to the nodes that an event has made so far, for merging; returns their number."""
    if not tables.merge:
        return 0
    state.kinds[np.uint32(kinds), 0] = node
    state.kinds[np.uint32(kinds), 1] = run
    return kinds + 1


@helper(inline=True)
def _is_merged(tables, state, node, place, run, kinds):
    """Whether a new node has the same future as one that this event has made before; then it is merged into it.

    A node without a run is that of a complete match.
    """
    arena = state.arena
    runs = state.runs
    for kind in range(max(kinds - _COMPARED_MAX, 0), kinds):
        other = np.uint32(state.kinds[np.uint32(kind), 0])
        other_run = state.kinds[np.uint32(kind), 1]
        if arena.place[other] != place or (
            run >= 0
            and (
                bounds_differ(tables.plain[place, ByPlain.KIND], runs, np.uint32(run), np.uint32(other_run), 0)
                or bounds_differ(
                    tables.plain[place, _EDGE_COLUMNS + ByPlain.KIND], runs, np.uint32(run), np.uint32(other_run), 1
                )
            )
        ):
            continue
        join(state, np.uint32(node), other, other_run)
        return True
    return False


@helper(inline=True)
def join(state, made, other, other_run):
    """Add a new node to the list of those with the same future as another one, which a run is at, or none (-1)."""
    arena = state.arena
    arena.others[made] = arena.others[other]
    arena.others[other] = made
    arena.newest[other] = max(arena.newest[other], arena.newest[made])
    # The merged run lives as long as its youngest member.
    if other_run >= 0:
        state.runs.since[np.uint32(other_run)] = arena.newest[other]
    state.counters[Counter.MERGED] += 1


@helper(inline=True)
def finish(state, events, node, first, key, at, oldest, output):
    """The last place is bound: a match."""
    counters = state.counters
    now = events.end[at]
    if counters[Counter.MOMENT] != now:
        counters[Counter.MOMENT] = now
        counters[Counter.AT_MOMENT] = 0
    counters[Counter.MATCHES] += 1
    counters[Counter.AT_MOMENT] += 1
    written = np.uint64(output.written[0])
    output.node[written] = node
    output.end[written] = now
    output.key[written] = key
    output.oldest[written] = oldest
    output.first[written] = first
    output.written[0] += 1


@helper(inline=True)
def free_run(state, run):
    state.runs.next[run] = state.counters[Counter.FREE]
    state.counters[Counter.FREE] = run
    state.counters[Counter.RUNS] -= 1
