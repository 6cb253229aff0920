"""NFA^b (SASE+ 3.1): Kleene closure and the four event selection strategies, with one run for each choice that is open.

Every run of a partition sees every event of it. A run that takes the event, or begins its next place with it, continues
at a new node of the arena. A run that may ignore the event also stays where it is. A node stores the running aggregates
of its place, so the cost of a test does not depend on the length of the run. One kind of test reads all events of a
place again: a test on v[i] that must wait for a later component.

`matches.py` handles complete matches, `state.py` maintains the arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ouzel.engines.kleene.edges import (
    ASK,
    CLOSED,
    NO,
    OPEN,
    add_node,
    first_guard,
    future_mark,
    guarded,
    passes,
    same_future,
    set_guard,
)
from ouzel.engines.kleene.matches import (
    choose_before,
    choose_matches,
    finish,
    is_unwanted,
    limit_passed,
    push_negatives,
    release_in_form,
    release_until,
)
from ouzel.engines.kleene.run_index import (
    build_index,
    end_expired,
    find_runs,
    place_all,
    put_in,
    take_edge_out,
    take_out,
)
from ouzel.engines.kleene.runs_loop import scan_loop, scan_loop_indexed
from ouzel.engines.kleene.state import (
    MANY,
    START,
    Counter,
    RunOutput,
    RunState,
    Status,
    free_run,
    larger_run_output,
    new_run,
    reclaim_nodes,
    reserve_nodes,
    reserve_runs,
    reserve_waiting,
)
from ouzel.engines.kleene.tables import ByPlace, Form, Numbering, RunEvents, RunTables
from ouzel.kernels.events import oldest_alive
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.pauses import Pieces

_START = np.int32(START)
# The number of other runs, moved by the same event, that a run is compared with. It avoids quadratic cost for thousands
# of runs that cannot be merged.
_COMPARED_MAX = 32
# The number of nodes after the first growth, large enough that it seldom grows again.
_NODES_MIN = 4096
# Many runs for each event are choices among the same events.
_RUNS_PER_EVENT = 16
# The largest size of all nodes in bytes, and the additional bytes per allowed run.
_NODE_BYTES_MIN = 1 << 24
_NODE_BYTES_PER_RUN = 256


class Progress(NamedTuple):
    """Result of a call: its status, the next position to read, and the arrays, which may have grown."""

    status: Status
    position: int
    state: RunState
    output: RunOutput


def scan(
    tables: RunTables,
    state: RunState,
    events: RunEvents,
    first: int,
    last: int,
    output: RunOutput,
    on_many: Callable[[str], None] | None = None,
) -> Progress:
    """Read the events in slots first to last - 1 and append the matches they complete to the output.

    All events of a tick must be in one call. Continue with the state and output of the result, which may be larger
    arrays. `on_many` is called when runs are many compared with events, because the next event may double them.

    >>> from ouzel.engines.kleene.tables import RunPlace, build_run_tables, new_events
    >>> from ouzel.engines.kleene.state import new_run_output, new_run_state
    >>> from ouzel.engines.kleene.matches import expand_matches
    >>> from ouzel.engines.kleene.tables import Selection
    >>> tables = build_run_tables([RunPlace(kleene=True), RunPlace()], selection=Selection.NEXT_MATCH)
    >>> events = new_events(tables, 4)
    >>> events.end[1:] = 1, 2, 3
    >>> events.roles[1:] = 0b011, 0b100, 0b100
    >>> found = scan(tables, new_run_state(tables, 1, 4), events, 1, 4, new_run_output())
    >>> expand_matches(tables, found.state, found.output).slots.tolist()
    [1, 2, 1, 3]
    """
    position = first
    # A form of output chooses among all matches of a timestamp.
    in_form = tables.form != Form.ALL
    is_loop = len(tables.loop) > 0
    pieces = Pieces(last, events.end if in_form else None)
    while True:
        read: Any = (_scan_loop_in_form if is_loop else _scan_in_form) if in_form else _scan
        if is_loop and not in_form:
            read = scan_loop_indexed if state.trees.on[0] else scan_loop
        status, position = read(tables, state, events, position, pieces.end(position), output)
        need = 2 * int(state.counters[Counter.RUNS]) + 2
        if status == Status.NODES_FULL:
            roomy = room_for_nodes(tables, state, output, need)
            if roomy is None and state.trees.on[0] and _ends_runs(tables, state, events, position):
                roomy = room_for_nodes(tables, state, output, need)
            if roomy is None:
                status = Status.NODE_LIMIT
                break
            state = roomy
        elif status == Status.RUNS_FULL:
            runs = int(state.counters[Counter.RUNS])
            if runs >= max(MANY, _RUNS_PER_EVENT * (last - tables.reserved)) and on_many is not None:
                on_many(f"{runs:,} partial matches")
            # Runs that are found by value seldom all move at once.
            state = reserve_runs(tables, state, 2 * state.runs.node.size + (0 if state.trees.on[0] else need))
        elif status == Status.OUTPUT_FULL:
            if output.written[0] * tables.length > tables.max_events:
                status = Status.LENGTH_LIMIT
                break
            output = larger_run_output(output, 2 * output.node.size + need)
        elif status == Status.WAITING_FULL:
            state = reserve_waiting(state, 2 * state.waiting.node.size + need)
        elif status == Status.INDEX_WANTED:
            state = build_index(tables, state, events)
        elif status == Status.RUN_LIMIT and state.trees.on[0] and _ends_runs(tables, state, events, position - 1):
            # Runs that no event looked up may have left the window unnoticed.
            continue
        elif status != Status.DONE or position == last:
            break
    return Progress(Status(status), position, state, output)


def _ends_runs(tables: RunTables, state: RunState, events: RunEvents, slot: int) -> bool:
    """End the runs that started before the window of an event. Returns whether there were any. For windows that count
    events of a key it ends none, because one event says nothing about the other keys.
    """
    if tables.in_events:
        return False
    place_all(tables, state, events)
    return bool(end_expired(tables, state, oldest_alive(events.end[slot], tables.window)))


def room_for_nodes(tables: RunTables, state: RunState, output: RunOutput, need: int) -> RunState | None:
    """Make room for `need` more nodes: reclaim dead nodes, and enlarge the arena if most nodes are alive.

    None if the limit on runs allows no more nodes.
    """
    capacity = state.arena.event.size
    live = reclaim_nodes(tables, state, output)
    most = nodes_max(tables, state)
    # Some room is left, so that dead nodes are not searched at every event.
    if live + need > most - most // 8:
        return None
    if live + need > capacity // 4:
        state = reserve_nodes(state, min(max(4 * (live + need), _NODES_MIN), most))
    return state


def nodes_max(tables: RunTables, state: RunState) -> int:
    """The largest number of nodes that the limit on runs allows: a few for each run, and fewer if nodes have
    registers.
    """
    bytes_each = sum(
        array.itemsize * math.prod(array.shape[1:]) for array in (*state.arena, state.renamed, state.ahead)
    )
    return (_NODE_BYTES_MIN + _NODE_BYTES_PER_RUN * tables.max_runs) // bytes_each


def release(tables: RunTables, state: RunState, events: RunEvents, until: int, output: RunOutput) -> Progress:
    """Append the waiting matches whose window has passed. No event at or before `until` can come any more."""
    while release_in_form(tables, state, events, until, output) != Status.DONE:
        output = larger_run_output(output, 2 * output.node.size)
    return Progress(Status.DONE, 0, state, output)


@kernel(allocates=True)
def _scan_in_form(tables: RunTables, state: RunState, events: RunEvents, first: int, last: int, output: RunOutput):
    """`_scan` with a form of output: it chooses among the matches of each timestamp before the next is read."""
    status, position = _scan(tables, state, events, first, last, output)
    while status == Status.UNCHOSEN:
        choose_matches(tables, state, events, output)
        status, position = _scan(tables, state, events, position, last, output)
    if status == Status.DONE:
        choose_matches(tables, state, events, output)
    return status, position


@kernel(allocates=True)
def _scan_loop_in_form(tables: RunTables, state: RunState, events: RunEvents, first: int, last: int, output: RunOutput):
    """`scan_loop` with a form of output; see `_scan_in_form`."""
    indexed = state.trees.on[0] != 0
    position = first
    while True:
        if indexed:
            status, position = scan_loop_indexed(tables, state, events, position, last, output)
        else:
            status, position = scan_loop(tables, state, events, position, last, output)
        if status != Status.UNCHOSEN:
            break
        choose_matches(tables, state, events, output)
    if status == Status.DONE:
        choose_matches(tables, state, events, output)
    return status, position


@kernel
def _scan(tables: RunTables, state: RunState, events: RunEvents, first: int, last: int, output: RunOutput):
    """(status, position): read events. If the status is not DONE, the event at `position` has had no effect."""
    counters = state.counters
    positive_roles = np.uint64((1 << (2 * tables.length)) - 1) if tables.length < 32 else ~np.uint64(0)
    status = limit_passed(tables, counters)
    indexed = state.trees.on[0] != 0
    slot = first
    while slot < last and status == Status.DONE:
        roles = events.roles[np.uint64(slot)]
        key = np.uint32(events.key[np.uint64(slot)])
        # Most events of many streams find no run and start none.
        if roles & np.uint64(1) != 0 or (roles & positive_roles != 0 and state.key_head[key] >= 0):
            status = _make_ready(tables, state, events, slot, output)
            if status != Status.DONE:
                break
            found = np.int64(state.key_runs[key])
            if indexed:
                found = find_runs(tables, state, events, slot, key, roles & positive_roles)
            elif found > tables.index_min:
                status = Status.INDEX_WANTED
                break
            status = _room(tables, state, found, output)
            if status != Status.DONE:
                break
            _read(tables, state, events, slot, roles, indexed, found, output)
            # At once, so that the slot before the one to continue with is that of the event that was too much.
            status = limit_passed(tables, counters)
        if roles > positive_roles:
            push_negatives(tables, state, events, slot, roles)
        slot += 1
    counters[Counter.EVENTS] += slot - first
    return status, slot


@helper(inline=True)
def _make_ready(tables, state, events, slot, output):
    """Before an event is read: release waiting matches, and apply the form of output to the matches of earlier
    timestamps.
    """
    counters = state.counters
    now = events.end[slot]
    if tables.at_end and counters[Counter.WAITING] > 0 and state.waiting.deadline[0] < now:
        status = release_until(tables, state, events, now - 1, output)
        if status != Status.DONE:
            return status
    if tables.form != Form.ALL and not choose_before(tables, state, events, output, now):
        return Status.UNCHOSEN
    return Status.DONE


@helper(inline=True)
def _room(tables, state, shown, output):
    """Whether the arrays have room for all that an event can add when `shown` runs see it."""
    counters = state.counters
    most = 2 * shown + 1
    if counters[Counter.NODES] + most > state.arena.event.size:
        return Status.NODES_FULL
    if counters[Counter.RUNS] + most > state.runs.node.size:
        return Status.RUNS_FULL
    if output.written[0] + most > output.node.size:
        return Status.OUTPUT_FULL
    if tables.at_end and counters[Counter.WAITING] + most > state.waiting.node.size:
        return Status.WAITING_FULL
    return Status.DONE


@helper(inline=True)
def _read(tables, state, events, slot, roles, indexed, found, output):
    """Read an event: move the runs of its partition, or the runs found by the index, and start a new run.

    Code that is inlined twice is compiled twice, so one line tests edges and one line makes nodes. Indexes are
    converted to unsigned integers, because for signed ones numba checks whether they count from the end.
    """
    runs = state.runs
    by_place = tables.by_place
    at = np.uint32(slot)
    start = events.start[at]
    key = np.uint32(events.key[at])
    one = np.uint64(1)
    last_place = tables.length - 1
    measure = events.position[at] if tables.in_events else events.end[at]
    oldest = oldest_alive(measure, tables.window)
    state.key_oldest[key] = oldest
    run = state.key_head[key]
    kept = np.int32(-1)
    kept_count = 0
    kinds = 0
    own_since = measure if tables.in_events else start
    may_start = roles & one != 0 and own_since >= oldest
    turn = 0
    # After the last run, the one that the event itself may start.
    while True:
        if indexed:
            run = state.trees.found[turn] if turn < found else np.int32(-1)
            turn += 1
        starting = run < 0
        if starting and not may_start:
            break
        here = np.uint32(run)
        following = run
        node = _START
        place = np.int64(-1)
        first_slot = np.int32(slot)
        since = own_since
        take = NO
        begin = ASK
        # The edges that are still open after this event.
        stays = 0
        if starting:
            may_start = False
        else:
            following = runs.next[here]
            first_slot = runs.first[here]
            since = runs.since[here]
            if since < oldest or is_unwanted(tables, state, events, first_slot, key):
                if indexed:
                    take_out(tables, state, run)
                free_run(state, run)
                run = following
                continue
            node = runs.node[here]
            place = np.int64(runs.place[here])
            begin = NO
            is_later = start > runs.end[here]
            ahead = roles >> np.uint64(2 * place + 1)
            for begins in range(2):
                if runs.guard[here, begins] == CLOSED:
                    continue
                numbering = by_place[np.uint32(place), np.uint32(ByPlace.NUMBERED + begins)]
                if numbering == Numbering.NONE:
                    stays |= 1 << begins
                elif _has_skipped(state.arena, events, numbering, np.uint32(node), at):
                    continue
                if is_later and (ahead >> np.uint64(begins)) & one != 0:
                    verdict = guarded(tables, runs, events, here, begins, at)
                    if begins:
                        begin = verdict
                    else:
                        take = verdict
            if take == NO and begin == NO:
                # Most events move few runs.
                if stays:
                    _close_others(tables, state, here, stays, indexed)
                    if not indexed:
                        runs.next[here] = kept
                        kept = run
                        kept_count += 1
                else:
                    if indexed:
                        take_out(tables, state, run)
                    free_run(state, run)
                run = following
                continue
        taken = np.int32(-1)
        begun = np.int32(-1)
        for begins in range(2):
            verdict = begin if begins else take
            if verdict == NO:
                continue
            target_place = place + begins
            row = by_place[np.uint32(target_place)]
            edge = row[ByPlace.BEGIN] if begins else row[ByPlace.TAKE]
            target = row[ByPlace.FIRST] if begins else row[ByPlace.CURRENT]
            if verdict == ASK and not passes(tables, state, events, edge, node, place, target, slot):
                # In the index a run is ordered by the value of one test.
                if not starting and not indexed and state.failed[0] >= 0:
                    set_guard(tables, state, events, run, begins)
                continue
            made = add_node(tables, state, events, node, target_place, slot, begins != 0)
            if begins:
                begun = made
            else:
                taken = made
            if not starting:
                stays &= ~by_place[np.uint32(place), np.uint32(ByPlace.CLOSES + begins)]
        own = run
        if stays:
            _close_others(tables, state, here, stays, indexed)
            if not indexed:
                runs.next[here] = kept
                kept = run
                kept_count += 1
            own = np.int32(-1)
        elif indexed and not starting:
            take_out(tables, state, run)
        for begins in range(2):
            moved = begun if begins else taken
            if moved < 0:
                continue
            at_place = place + begins
            # Its proceed tests will never hold.
            if not begins and _is_too_long(by_place[np.uint32(at_place)], state.arena.counts, moved):
                continue
            future = np.int64(0)
            if tables.merge and kinds > 0:
                # The hash of the first one is computed when there is a second one to compare.
                for before in range(2 if kinds == 1 else 1):
                    mark = future_mark(tables, state, events, state.kinds[0, 0] if before else moved)
                    if before:
                        state.futures[0] = mark
                    else:
                        future = mark
                if _merge(tables, state, events, moved, future, kinds):
                    continue
            if at_place == last_place:
                finish(tables, state, events, moved, first_slot, key, slot, oldest, output)
            added = np.int32(-1)
            if at_place < last_place or by_place[np.uint32(at_place), ByPlace.KLEENE]:
                added = _add_run(tables, state, events, own, moved, at_place, first_slot, since, at)
                if indexed:
                    put_in(state, key, added, events.end[at])
                else:
                    runs.next[np.uint32(added)] = kept
                    kept = added
                    kept_count += 1
                own = np.int32(-1)
            if tables.merge:
                state.kinds[np.uint32(kinds), 0] = moved
                state.kinds[np.uint32(kinds), 1] = added
                state.futures[np.uint32(kinds)] = future
                kinds += 1
        if own >= 0:
            free_run(state, own)
        run = following
    if not indexed:
        state.key_head[key] = kept
        state.key_runs[key] = kept_count
    state.counters[Counter.RUNS_MAX] = max(state.counters[Counter.RUNS_MAX], state.counters[Counter.RUNS])


@helper(inline=True)
def _close_others(tables, state, run, stays, indexed):
    """Close all edges of a run that are not in `stays`."""
    for begins in range(2):
        if (stays >> begins) & 1 == 0 and state.runs.guard[run, begins] != CLOSED:
            if indexed:
                take_edge_out(tables, state, run, begins)
            state.runs.guard[run, begins] = CLOSED


@helper(inline=True)
def _has_skipped(arena, events, numbering, node, at):
    """Whether a run would skip an event that it must not skip, between its last event and the event at `at`."""
    previous = np.uint32(arena.event[node])
    if numbering == Numbering.STREAM:
        return events.sequence[at] != events.sequence[previous] + 1
    return events.position[at] != events.position[previous] + 1


@helper(inline=True)
def _is_too_long(place, counts, node):
    """Whether a run has more events at a place than the query allows."""
    register = place[ByPlace.LENGTH]
    return register >= 0 and counts[node, register] > place[ByPlace.MOST]


@helper(inline=True)
def _add_run(tables, state, events, own, node, place, first_slot, since, at):
    """Store a run at index `own` or, if that is -1, at a free index."""
    runs = state.runs
    run = own if own >= 0 else new_run(state)
    here = np.uint32(run)
    there = np.uint32(node)
    runs.node[here] = node
    runs.place[here] = place
    runs.first[here] = first_slot
    runs.since[here] = since
    runs.end[here] = events.end[at]
    row = tables.by_place[np.uint32(place)]
    for begins in range(2):
        is_open = place < tables.length - 1 and state.arena.proceeds[there] != 0 if begins else row[ByPlace.KLEENE] != 0
        runs.guard[here, begins] = OPEN if is_open else CLOSED
        if is_open:
            first_guard(tables, state, events, here, begins, row[ByPlace.INDEXED + begins], there)
    return run


@helper(inline=True)
def _merge(tables, state, events, node, future, kinds):
    """Whether this event has already made a node with the same future as a new node. If so, merges the new node into
    that one.
    """
    for kind in range(max(kinds - _COMPARED_MAX, 0), kinds):
        if state.futures[kind] == future and _join_equal(
            tables.by_place,
            tables.by_register,
            state.arena,
            state.runs.since,
            state.kinds,
            state.counters,
            events.int_lanes,
            events.float_lanes,
            node,
            kind,
        ):
            return True
    return False


@helper(inline=True)
def _join_equal(by_place, by_register, arena, since, kinds, counters, int_lanes, float_lanes, node, kind):
    other = kinds[kind, 0]
    if arena.place[other] != arena.place[node] or not same_future(
        by_place, by_register, arena, int_lanes, float_lanes, other, node
    ):
        return False
    arena.others[node] = arena.others[other]
    arena.others[other] = node
    arena.newest[other] = max(arena.newest[other], arena.newest[node])
    # The merged run lives as long as its youngest member.
    run = kinds[kind, 1]
    if run >= 0:
        since[run] = arena.newest[other]
    counters[Counter.MERGED] += 1
    return True
