"""The state of the run kernel between calls, the matches it finds, and the maintenance of both.

First the arrays and how they grow, then the functions that reclaim nodes of the arena (`reclaim_nodes`), expire runs
(`sweep`) and renumber slots and keys (`rebase`, `renumber`, `rekey`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.kleene.tables import ByPlace, ByRegister, Form, Function, RunEvents, RunTables
from ouzel.kernels.arrays import INT64_MIN, Cube, Matrix, enlarged
from ouzel.kernels.events import EVERY_KEY, NEVER, Link, Mark, oldest_alive, push_negative
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicate_tables import Values, new_values

# Special values of a node's parent.
START = -1
GONE = -2


class Counter(IntEnum):
    """Indexes into `RunState.counters`."""

    NODES = 0  # of the arena in use
    RUNS = 1  # alive
    FREE = 2  # first free run, -1 if none
    WAITING = 3  # matches that wait for a negated end
    LAST_TIMESTAMP = 4  # the tick of the latest matches
    MATCHES_AT_TIMESTAMP = 5  # how many there were at it
    CHOSEN = 6  # matches of the output that the form of output has chosen
    EVENTS = 7  # read
    MOVES = 8  # begin and take edges that were taken
    RUNS_MAX = 9  # the most at once
    MERGED = 10  # runs that were merged into one with the same future
    MATCHES = 11  # found, before negated ends and forms of output
    TOO_LONG = 12  # 1: the matches of a timestamp have too many events for the form of output to choose among them


# From this number on, the matches of one event and the runs of few events are worth a warning before there are more.
MANY = 100_000


class Status(IntEnum):
    """Why a call returned."""

    DONE = 0
    NODES_FULL = 1
    RUNS_FULL = 2
    OUTPUT_FULL = 3
    WAITING_FULL = 4
    MATCH_LIMIT = 5
    RUN_LIMIT = 6
    UNCHOSEN = 7  # the form of output must choose among the matches of a complete timestamp
    LENGTH_LIMIT = 8  # the matches of the output have too many events to be listed
    NODE_LIMIT = 9  # the runs have too many events
    INDEX_WANTED = 10  # a key has so many runs that finding them by their values is faster


class Arena(NamedTuple):
    """Nodes; each is an event of one or more runs. A parent comes before its children."""

    event: NDArray[np.int32]  # slot
    parent: NDArray[np.int32]  # START: none; GONE: one that has left the window
    first: NDArray[np.int32]  # the node with which this node's place was begun
    place: NDArray[np.uint8]
    newest: NDArray[np.int64]  # start (or position) of the youngest run that ends here
    own: NDArray[np.int64]  # the same through the parent only, without what was merged into the node
    others: NDArray[np.int32]  # nodes of runs that were merged into this one's, -1 at the end of the list
    proceeds: NDArray[np.uint8]  # the proceed edge of its place holds here
    counts: Matrix[np.int64]  # [node, register]: the number of values; -1 after a sum has overflowed
    values: Matrix[np.int64]  # [node, register]: an integer or a slot
    totals: Matrix[np.float64]  # [node, register]: a sum of floats; empty if the query has none
    codes: Matrix[np.int32]  # [node, test]: the common value of the run's events, -1 if none has one


class Runs(NamedTuple):
    """Active runs. Each key has a list of its runs."""

    node: NDArray[np.int32]
    place: NDArray[np.int32]
    first: NDArray[np.int32]  # slot of the first event
    since: NDArray[np.int64]  # start of the first event, or its position for windows in events
    end: NDArray[np.int64]  # of its last event
    next: NDArray[np.int32]
    # [run, take or begin]: a test that the next event must pass, and the value that it compares with (ByGuard).
    guard: Matrix[np.int32]  # OPEN: none; CLOSED: the run cannot take the edge
    int_bounds: Matrix[np.int64]
    float_bounds: Matrix[np.float64]


class Waiting(NamedTuple):
    """Matches that wait for the end of a negated interval: a heap by deadline."""

    deadline: NDArray[np.int64]
    node: NDArray[np.int32]
    key: NDArray[np.int32]


class RunIndex(NamedTuple):
    """Search trees over the runs (`run_index`). They are built when a key has many runs and can be dropped at any
    time.
    """

    on: NDArray[np.uint8]  # of length 1: 1 while the other arrays are valid
    key: NDArray[np.int32]  # per run
    previous: NDArray[np.int32]  # per run: the one before it in the list of its key
    tree: Cube[np.int32]  # [run, take or begin, column]
    root: Matrix[np.int32]  # [key * length + place, 2 * edge + class]
    fresh: NDArray[np.int32]  # per key: the first run that is not in the trees yet
    moment: NDArray[np.int64]  # per key: the tick of the event that made it
    # Scratch.
    found: NDArray[np.int32]  # runs that an event may move
    ahead: NDArray[np.int32]  # runs to be visited
    asked: NDArray[np.uint8]  # per run: 1 if it has been found


class RunState(NamedTuple):
    """The memory between calls: plain arrays."""

    arena: Arena
    runs: Runs
    trees: RunIndex
    waiting: Waiting
    key_head: NDArray[np.int32]  # per key: its newest run
    key_runs: NDArray[np.int32]  # per key: how many
    key_oldest: NDArray[np.int64]  # per key: where the window of its newest event begins
    key_mark: NDArray[np.int64]  # per key: what a match must start after (a tick) or at (a slot), by form of output
    started: NDArray[np.uint8]  # per slot: OUTPUT FIRST has returned a match that starts here
    negative_head: NDArray[np.int32]  # [key * negatives + negative]: the newest such event
    links: Cube[np.int32]  # [negative, Link, slot]
    marks: Cube[np.int64]  # [negative, Mark, slot]
    counters: NDArray[np.int64]  # by Counter
    # Scratch; its content is only valid during a call.
    bound: NDArray[np.int32]  # per reference
    anchor: NDArray[np.int32]  # per place: the last node of the current run
    failed: NDArray[np.int32]  # of length 1: the test that failed last
    # Among the nodes that an event has made, those with different futures.
    kinds: Matrix[np.int32]  # [kind, node or run]
    futures: NDArray[np.int64]  # per kind: the hash of its future
    # For reclaiming nodes.
    renamed: NDArray[np.int32]  # per node
    ahead: NDArray[np.int32]  # nodes to be visited
    values: Values


def new_run_state(
    tables: RunTables, references: int, slot_capacity: int, key_capacity: int = 1, *, number_slots: Sequence[int] = ()
) -> RunState:
    """The state before the first event. `number_slots[reference]` is the slot that holds the number of a reference; -1
    for references to events.
    """
    counters = np.zeros(len(Counter), np.int64)
    counters[Counter.FREE] = -1
    counters[Counter.LAST_TIMESTAMP] = INT64_MIN
    bound = np.zeros(max(references, 1), np.int32)
    for reference, slot in enumerate(number_slots):
        if slot >= 0:
            bound[reference] = slot
    empty = np.empty(0, np.int32)
    state = RunState(
        arena=Arena(
            empty,
            empty,
            empty,
            np.empty(0, np.uint8),
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            empty,
            np.empty(0, np.uint8),
            np.empty((0, tables.registers), np.int64),
            np.empty((0, tables.registers), np.int64),
            np.empty((0, tables.registers if tables.by_register[:, ByRegister.FLOATING].any() else 0), np.float64),
            np.empty((0, tables.codes), np.int32),
        ),
        runs=Runs(
            empty,
            empty,
            empty,
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            empty,
            np.empty((0, 2), np.int32),
            np.empty((0, 2), np.int64),
            np.empty((0, 2), np.float64),
        ),
        trees=RunIndex(
            np.zeros(1, np.uint8),
            empty,
            empty,
            np.empty((0, 2, 6), np.int32),
            np.empty((0, 4), np.int32),
            empty,
            np.empty(0, np.int64),
            empty,
            empty,
            np.empty(0, np.uint8),
        ),
        waiting=Waiting(np.empty(0, np.int64), empty, empty),
        key_head=empty,
        key_runs=empty,
        key_oldest=np.empty(0, np.int64),
        key_mark=np.empty(0, np.int64),
        started=np.empty(0, np.uint8),
        negative_head=empty,
        links=np.empty((tables.negatives, len(Link), 0), np.int32),
        marks=np.empty((tables.negatives, len(Mark), 0), np.int64),
        counters=counters,
        bound=bound,
        anchor=np.zeros(tables.length, np.int32),
        failed=np.zeros(1, np.int32),
        kinds=np.empty((0, 2), np.int32),
        futures=np.empty(0, np.int64),
        renamed=empty,
        ahead=empty,
        values=new_values(tables.predicates),
    )
    return reserve(tables, reserve_runs(tables, reserve_nodes(state, 256), 256), slot_capacity, key_capacity)


def reserve(tables: RunTables, state: RunState, slot_capacity: int, key_capacity: int) -> RunState:
    """A state with room for at least this many slots and keys; arrays that are large enough are kept."""
    # An event makes at most two of each run, and starts one.
    kinds = 2 * state.runs.node.size + 1
    state = state._replace(
        kinds=_with_room(state.kinds, 0, kinds),
        futures=_with_room(state.futures, 0, kinds),
        key_head=enlarged(state.key_head, key_capacity, -1),
        key_runs=enlarged(state.key_runs, key_capacity, 0),
        key_oldest=enlarged(state.key_oldest, key_capacity, INT64_MIN),
        key_mark=enlarged(state.key_mark, key_capacity if tables.form != Form.ALL else 0, INT64_MIN),
        started=enlarged(state.started, slot_capacity if tables.form == Form.FIRST else 0, 0),
        negative_head=enlarged(state.negative_head, key_capacity * tables.negatives, -1),
        links=enlarged(state.links, slot_capacity, -1, axis=-1),
        marks=enlarged(state.marks, slot_capacity, 0, axis=-1),
    )
    return reserve_index(tables, state) if state.trees.on[0] else state


def reserve_index(tables: RunTables, state: RunState) -> RunState:
    """Room in the index for all runs and keys of the state."""
    runs, keys, old = state.runs.node.size, state.key_head.size, state.trees
    return state._replace(
        trees=RunIndex(
            old.on,
            enlarged(old.key, runs, 0),
            enlarged(old.previous, runs, -1),
            enlarged(old.tree, runs, -1),
            enlarged(old.root, keys * tables.length, -1),
            enlarged(old.fresh, keys, -1),
            enlarged(old.moment, keys, 0),
            enlarged(old.found, runs, 0),
            enlarged(old.ahead, runs, 0),
            enlarged(old.asked, runs, 0),
        )
    )


def reserve_nodes(state: RunState, nodes: int) -> RunState:
    """A state with room for this many nodes. New entries are undefined."""
    used = int(state.counters[Counter.NODES])
    return state._replace(
        arena=Arena(*(_with_room(array, used, nodes) for array in state.arena)),
        renamed=_with_room(state.renamed, 0, nodes),
        ahead=_with_room(state.ahead, 0, nodes + 1),
    )


def reserve_runs(tables: RunTables, state: RunState, count: int) -> RunState:
    old = state.runs.node.size
    if count <= old:
        return state
    runs = Runs(*(enlarged(array, count, 0) for array in state.runs))
    runs.next[old : count - 1] = np.arange(old + 1, count)
    runs.next[count - 1] = state.counters[Counter.FREE]
    state.counters[Counter.FREE] = old
    kinds = 2 * count + 1
    state = state._replace(
        runs=runs, kinds=_with_room(state.kinds, 0, kinds), futures=_with_room(state.futures, 0, kinds)
    )
    return reserve_index(tables, state) if state.trees.on[0] else state


def reserve_waiting(state: RunState, count: int) -> RunState:
    return state._replace(waiting=Waiting(*(enlarged(array, count, 0) for array in state.waiting)))


def _with_room(array: NDArray, used: int, length: int) -> NDArray:  # type: ignore[type-arg]
    """An array of at least this length, with the same first `used` rows. Other rows are not written, because new memory
    pages cost more time than reading events.
    """
    if len(array) >= length:
        return array
    larger = np.empty((length, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


class RunOutput(NamedTuple):
    """Matches as nodes of the arena. Expand them before any call that reclaims nodes."""

    node: NDArray[np.int32]
    end: NDArray[np.int64]
    key: NDArray[np.int32]
    oldest: NDArray[np.int64]  # the earliest start (or position) within the window
    first: NDArray[np.int32]  # slot of the first event, for the forms of output
    written: NDArray[np.int64]  # of length 1: how many


def new_run_output(capacity: int = 1024) -> RunOutput:
    return RunOutput(
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.zeros(1, np.int64),
    )


def larger_run_output(output: RunOutput, capacity: int) -> RunOutput:
    """The same output with room for at least this many matches."""
    used = int(output.written[0])
    return RunOutput(
        _with_room(output.node, used, capacity),
        _with_room(output.end, used, capacity),
        _with_room(output.key, used, capacity),
        _with_room(output.oldest, used, capacity),
        _with_room(output.first, used, capacity),
        output.written,
    )


_GONE = np.int32(GONE)
_KEPT = np.int32(0)
_VISITED = np.int32(1)


def reclaim_nodes(tables: RunTables, state: RunState, output: RunOutput) -> int:
    """Remove dead nodes from the arena. Returns the number of live nodes.

    Nodes of runs, of waiting matches and of matches in the output stay, with new numbers. Members of merged runs that
    have left the window are removed.
    """
    return int(_reclaim(bool(tables.merge), state, output))


@kernel(allocates=True)
def _reclaim(merged: bool, state: RunState, output: RunOutput):
    arena = state.arena
    runs = state.runs
    renamed = state.renamed
    kept = state.ahead
    _mark_all(merged, state, output)
    # Most nodes are dead: list the live ones before anything is moved.
    live = 0
    for node in range(np.uint64(state.counters[Counter.NODES])):
        if renamed[node] >= 0:
            renamed[node] = live
            kept[np.uint64(live)] = node
            live += 1
    for target in range(np.uint64(live)):
        node = np.uint64(kept[target])
        parent = arena.parent[node]
        own = arena.own[node]
        if parent >= 0:
            parent = renamed[np.uint64(parent)]
            if parent < 0:
                parent = _GONE
                own = NEVER
        first = arena.first[node]
        if first >= 0:
            first = renamed[np.uint64(first)]
        arena.event[target] = arena.event[node]
        arena.parent[target] = parent
        arena.first[target] = first if first >= 0 else _GONE
        arena.place[target] = arena.place[node]
        arena.newest[target] = arena.newest[node]
        arena.own[target] = own
        arena.others[target] = arena.others[node]
        arena.proceeds[target] = arena.proceeds[node]
        for register in range(arena.counts.shape[1]):
            arena.counts[target, register] = arena.counts[node, register]
            arena.values[target, register] = arena.values[node, register]
        for register in range(arena.totals.shape[1]):
            arena.totals[target, register] = arena.totals[node, register]
        for test in range(arena.codes.shape[1]):
            arena.codes[target, test] = arena.codes[node, test]
    if merged:
        # A node that was merged into another is newer, so these lists can only be renamed now.
        for node in range(live):
            other = arena.others[node]
            arena.others[node] = renamed[other] if other >= 0 else -1
    for key in range(state.key_head.size):
        run = state.key_head[key]
        while run >= 0:
            runs.node[run] = renamed[runs.node[run]]
            run = runs.next[run]
    for place in range(state.counters[Counter.WAITING]):
        state.waiting.node[place] = renamed[state.waiting.node[place]]
    for place in range(output.written[0]):
        output.node[place] = renamed[output.node[place]]
    state.counters[Counter.NODES] = live
    return live


@helper(allocates=True)
def _mark_all(merged, state, output):
    """Set `renamed` to -1 for each node that is not needed, and remove such nodes from the lists of merged nodes."""
    marks = state.renamed
    marks[: state.counters[Counter.NODES]] = -1
    # Matches come first, because the window of older ones reaches further back.
    for place in range(output.written[0]):
        _mark(merged, state.arena, marks, state.ahead, output.node[place], output.oldest[place])
    for place in range(state.counters[Counter.WAITING]):
        _mark(merged, state.arena, marks, state.ahead, state.waiting.node[place], NEVER)
    for key in range(state.key_head.size):
        run = state.key_head[key]
        while run >= 0:
            _mark(merged, state.arena, marks, state.ahead, state.runs.node[run], state.key_oldest[key])
            run = state.runs.next[run]


@helper(allocates=True)
def _mark(merged, arena, marks, waiting, node, oldest):
    """Mark a node, and all nodes on a path back from it to a start within the window."""
    if marks[node] == _VISITED:
        return
    count = 0
    here = np.int64(node)
    marks[here] = _VISITED
    while here >= 0:
        ahead = np.int64(-1)
        # A test may need the first event of the place even if the path to it has left the window.
        first = arena.first[here]
        if first >= 0 and marks[first] != _VISITED:
            marks[first] = _KEPT
        last_kept = here
        entry = here
        while entry >= 0:
            following = arena.others[entry]
            if not merged or arena.own[entry] >= oldest:
                if entry != here:
                    marks[entry] = _VISITED
                    arena.others[last_kept] = entry
                    last_kept = entry
                parent = arena.parent[entry]
                if parent >= 0 and marks[parent] != _VISITED:
                    marks[parent] = _VISITED
                    # Most nodes have one path, which is followed at once; others are queued.
                    if ahead >= 0:
                        waiting[count] = ahead
                        count += 1
                    ahead = np.int64(parent)
            entry = np.int64(following)
        arena.others[last_kept] = -1
        if ahead < 0 and count > 0:
            count -= 1
            ahead = np.int64(waiting[count])
        here = ahead


@helper(inline=True)
def new_run(state):
    """The index of a free run. There must be one."""
    run = np.int32(state.counters[Counter.FREE])
    state.counters[Counter.FREE] = state.runs.next[np.uint32(run)]
    state.counters[Counter.RUNS] += 1
    return run


@helper(inline=True)
def free_run(state, run):
    state.runs.next[np.uint32(run)] = state.counters[Counter.FREE]
    state.counters[Counter.FREE] = run
    state.counters[Counter.RUNS] -= 1


@kernel(allocates=True)
def sweep(tables: RunTables, state: RunState, oldest_start: int, position_counts: NDArray[np.int64]):
    """Drop runs that can no longer complete.

    A run is dropped if it started before `oldest_start`. If the window counts events, it is dropped if the next event
    of its key, at position `position_counts[key]`, is outside its window.
    """
    state.trees.on[0] = 0
    # There may be room for keys without events so far.
    keys = min(state.key_head.size, position_counts.size) if tables.in_events else state.key_head.size
    for key in range(keys):
        oldest = oldest_alive(position_counts[key], tables.window) if tables.in_events else oldest_start
        # Members of merged runs that are older than this are not needed again.
        state.key_oldest[key] = max(state.key_oldest[key], oldest)
        # The others keep their order, so that the order of matches does not depend on when runs are dropped.
        last_kept = np.int32(-1)
        run = state.key_head[key]
        while run >= 0:
            following = state.runs.next[run]
            if state.runs.since[run] < oldest:
                free_run(state, run)
                state.key_runs[key] -= 1
                if last_kept >= 0:
                    state.runs.next[last_kept] = following
                else:
                    state.key_head[key] = following
            else:
                last_kept = run
            run = following


@kernel(allocates=True)
def rebase(tables: RunTables, state: RunState, shift: int, used: int):
    """Drop the `shift` oldest slots, which follow the kernel's own slots. The other slots, out of `used` ones, move
    down.

    No run, waiting match or match in the output may refer to a dropped slot.
    """
    for node in range(state.counters[Counter.NODES]):
        state.arena.event[node] = max(state.arena.event[node] - shift, 0)
        place = state.arena.place[node]
        first_register = tables.by_place[place, ByPlace.FIRST_REGISTER]
        for number in range(first_register, tables.by_place[place + 1, ByPlace.FIRST_REGISTER]):
            if tables.by_register[number, ByRegister.FUNCTION] >= Function.FIRST:
                state.arena.values[node, number - first_register] -= shift
    for key in range(state.key_head.size):
        run = state.key_head[key]
        while run >= 0:
            state.runs.first[run] -= shift
            run = state.runs.next[run]
    rebase_marks(tables, state.key_mark, state.started, shift, used)
    rebase_negatives(tables, state.negative_head, state.links, state.marks, shift, used)


@helper
def rebase_marks(tables, key_mark, started, shift, used):
    """Move the slots in the marks of forms of output down, as `rebase` does for runs."""
    if tables.form > Form.FIRST:
        for key in range(key_mark.size):
            if key_mark[key] > 0:
                key_mark[key] = max(key_mark[key] - shift, 0)
    for slot in range(tables.reserved, min(used - shift, started.size)):
        started[slot] = started[slot + shift]
    for slot in range(max(used - shift, 0), started.size):
        started[slot] = 0


@helper
def rebase_negatives(tables, negative_head, links, marks, shift, used):
    """Move the slots in the stacks of negative events down, as `rebase` does for runs."""
    reserved = tables.reserved
    for place in range(negative_head.size):
        newest = negative_head[place] - shift
        negative_head[place] = newest if newest >= reserved else -1
    for negative in range(links.shape[0]):
        for slot in range(reserved, used - shift):
            for link in range(links.shape[1]):
                below = links[negative, link, slot + shift] - shift
                links[negative, link, slot] = below if below >= reserved else -1
            for mark in range(marks.shape[1]):
                marks[negative, mark, slot] = marks[negative, mark, slot + shift]


@kernel(allocates=True)
def mark_needed(tables: RunTables, state: RunState, events: RunEvents, needed: NDArray[np.bool_]):
    """Mark the slots that runs still need.

    For windows in events, after `sweep` and `reclaim_nodes`. A partition without new events keeps its own events
    indefinitely, but no events of other partitions.
    """
    arena = state.arena
    # Per key the slot of the oldest event of a run; earlier negative events forbid nothing any more.
    oldest = np.full(state.key_head.size, needed.size, np.int64)
    for node in range(state.counters[Counter.NODES]):
        slot = arena.event[node]
        needed[slot] = True
        oldest[events.key[slot]] = min(oldest[events.key[slot]], slot)
        first_register = tables.by_place[arena.place[node], ByPlace.FIRST_REGISTER]
        for number in range(first_register, tables.by_place[arena.place[node] + 1, ByPlace.FIRST_REGISTER]):
            if _holds_slot(tables, arena, node, number - first_register, number):
                needed[arena.values[node, number - first_register]] = True
    oldest[EVERY_KEY] = oldest.min()
    negative_roles = ~np.uint64(0) << np.uint64(2 * tables.length) if tables.negatives else np.uint64(0)
    for slot in range(tables.reserved, needed.size):
        if events.roles[slot] & negative_roles and slot > oldest[events.key[slot]]:
            needed[slot] = True


@helper(inline=True, allocates=True)
def _holds_slot(tables, arena, node, register, number):
    return tables.by_register[number, ByRegister.FUNCTION] >= Function.FIRST and arena.counts[node, register] > 0


@kernel(allocates=True)
def renumber(
    tables: RunTables, state: RunState, events: RunEvents, needed: NDArray[np.bool_], renamed: NDArray[np.int32]
):
    """Give slots new numbers in the same order, `renamed[slot]`. Slots that are not needed are already removed from
    `events`.
    """
    arena = state.arena
    for node in range(state.counters[Counter.NODES]):
        arena.event[node] = renamed[arena.event[node]]
        first_register = tables.by_place[arena.place[node], ByPlace.FIRST_REGISTER]
        for number in range(first_register, tables.by_place[arena.place[node] + 1, ByPlace.FIRST_REGISTER]):
            register = number - first_register
            if _holds_slot(tables, arena, node, register, number):
                arena.values[node, register] = renamed[arena.values[node, register]]
    for key in range(state.key_head.size):
        run = state.key_head[key]
        while run >= 0:
            state.runs.first[run] = renamed[state.runs.first[run]]
            run = state.runs.next[run]
    if tables.form > Form.FIRST:
        for key in range(state.key_mark.size):
            if state.key_mark[key] > 0:
                state.key_mark[key] = renamed[state.key_mark[key]]
    for slot in range(min(needed.size, state.started.size)):
        started = state.started[slot]
        state.started[slot] = 0
        if needed[slot]:
            state.started[renamed[slot]] = started
    if tables.negatives:
        # Stacks have links over several of their own elements, so they are built again.
        state.negative_head[:] = -1
        for slot in range(tables.reserved, needed.sum()):
            for negative in range(tables.negatives):
                if (events.roles[slot] >> np.uint64(2 * tables.length + negative)) & np.uint64(1):
                    stack = np.int64(events.key[slot]) * tables.negatives + negative
                    push_negative(
                        events.start, state.negative_head, state.links[negative], state.marks[negative], stack, slot
                    )


@kernel(allocates=True)
def number_events(key: NDArray[np.int32], counts: NDArray[np.int64], positions: NDArray[np.int64]):
    """Give each event its position among the events of its key, continuing from `counts[key]`. Keys below 0 get
    none.
    """
    for event in range(key.size):
        if key[event] >= 0:
            positions[event] = counts[key[event]]
            counts[key[event]] += 1


@kernel(allocates=True)
def rekey(state: RunState, renamed: NDArray[np.int32]):
    """Move the runs, marks and negative events of keys to new keys. `renamed[key]` is at most `key`; -1 drops the
    key.
    """
    state.trees.on[0] = 0
    keys = min(state.key_head.size, renamed.size)
    negatives = state.negative_head.size // max(state.key_head.size, 1)
    for key in range(keys):
        target = renamed[key]
        if target == key:
            continue
        if target >= 0:
            state.key_head[target] = state.key_head[key]
            state.key_runs[target] = state.key_runs[key]
            state.key_oldest[target] = state.key_oldest[key]
            if state.key_mark.size > 0:
                state.key_mark[target] = state.key_mark[key]
            for negative in range(negatives):
                state.negative_head[target * negatives + negative] = state.negative_head[key * negatives + negative]
        state.key_head[key] = -1
        state.key_runs[key] = 0
        if state.key_mark.size > 0:
            state.key_mark[key] = INT64_MIN
        for negative in range(negatives):
            state.negative_head[key * negatives + negative] = -1
    for place in range(state.counters[Counter.WAITING]):
        state.waiting.key[place] = renamed[state.waiting.key[place]]
