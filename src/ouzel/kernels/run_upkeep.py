"""Moving the state of the run kernel when its buffers, keys or window move (SASE+ 5.3)."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.run_state import GONE, Counter, RunOutput, RunState
from ouzel.kernels.run_tables import ByPlace, ByRegister, Form, Function, RunTables
from ouzel.kernels.stack_checks import NEVER, oldest_alive, push_negative
from ouzel.kernels.stack_tables import EVERY_KEY

_GONE = np.int32(GONE)
_KEPT = np.int32(0)
_VISITED = np.int32(1)


def reclaim_nodes(tables: RunTables, state: RunState, output: RunOutput) -> int:
    """Close the gaps that dead runs have left in the arena; how many nodes are alive.

    Nodes of runs, of waiting matches and of matches that are not written out yet stay, under new numbers. Of combined
    runs, members that have left the window go.
    """
    return int(_reclaim(bool(tables.merge), state, output))


@kernel(allocates=True)
def _reclaim(merged, state, output):
    arena = state.arena
    runs = state.runs
    renamed = state.renamed
    kept = state.ahead
    _mark_all(merged, state, output)
    # Most nodes are dead: those alive are listed before anything is moved.
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
        # What was merged into a node was made after it, so these lists can only be renamed now.
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
    """For each node -1 if it is not needed; lists of merged nodes are cut down to those that are."""
    marks = state.renamed
    marks[: state.counters[Counter.NODES]] = -1
    # Matches come first, since the window of older ones reaches further back.
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
    """Mark a node and all that lies on a way from it to a start within the window."""
    if marks[node] == _VISITED:
        return
    count = 0
    here = np.int64(node)
    marks[here] = _VISITED
    while here >= 0:
        ahead = np.int64(-1)
        # A test may ask for the first event of the place even where the way to it has left the window.
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
                    # Most nodes have one way on, which is gone at once; others wait.
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


@kernel(allocates=True)
def sweep(tables, state, oldest_start, position_counts):
    """Drop runs that nothing can complete any more.

    A run is dead if it started before `oldest_start`; with windows in events, if its partition has so many events by
    now (`position_counts`, by key) that the next one lies outside.
    """
    state.trees.on[0] = 0
    for key in range(state.key_head.size):
        oldest = oldest_alive(position_counts[key], tables.window) if tables.in_events else oldest_start
        # Members of combined runs that are older than this are not asked for again.
        state.key_oldest[key] = max(state.key_oldest[key], oldest)
        kept = np.int32(-1)
        run = state.key_head[key]
        while run >= 0:
            following = state.runs.next[run]
            if state.runs.since[run] < oldest:
                state.runs.next[run] = state.counters[Counter.FREE]
                state.counters[Counter.FREE] = run
                state.counters[Counter.RUNS] -= 1
                state.key_runs[key] -= 1
            else:
                state.runs.next[run] = kept
                kept = run
            run = following
        state.key_head[key] = kept


@kernel(allocates=True)
def rebase(tables, state, shift, used):
    """Forget the `shift` oldest slots behind the kernel's own: the rest of the `used` ones move down.

    No run, waiting match or match that is not written out may refer to one of them.
    """
    for node in range(state.counters[Counter.NODES]):
        state.arena.event[node] = max(state.arena.event[node] - shift, 0)
        place = state.arena.place[node]
        first_register = tables.by_place[place, ByPlace.FIRST_REGISTER]
        for number in range(first_register, tables.by_place[place + 1, ByPlace.FIRST_REGISTER]):
            if tables.by_register[number, ByRegister.FUNCTION] > Function.AVERAGE:
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
    """The same for what a form of output remembers by slot."""
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
    """The same for the stacks of negative events."""
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
def mark_needed(tables, state, events, needed):
    """Mark the slots that runs still need, for windows in events: `sweep` and `reclaim_nodes` have gone before.

    A partition that has fallen silent keeps its own events for as long as it likes, and nothing of the others.
    """
    arena = state.arena
    # Per key the slot of the oldest event of a run; negative events before it forbid nothing any more.
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
    return tables.by_register[number, ByRegister.FUNCTION] > Function.AVERAGE and arena.counts[node, register] > 0


@kernel(allocates=True)
def renumber(tables, state, events, needed, renamed):
    """Slots have new numbers, which rise as the old ones did; those not needed are gone, and `events` without them."""
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
        # Stacks skip over their own elements, so they are stacked up again.
        state.negative_head[:] = -1
        for slot in range(tables.reserved, needed.sum()):
            for negative in range(tables.negatives):
                if (events.roles[slot] >> np.uint64(2 * tables.length + negative)) & np.uint64(1):
                    stack = np.int64(events.key[slot]) * tables.negatives + negative
                    push_negative(
                        events.start, state.negative_head, state.links[negative], state.marks[negative], stack, slot
                    )


@kernel(allocates=True)
def number_events(key, counts, positions):
    """Give each event its position among those of its key, going on from `counts`; keys below 0 have none."""
    for event in range(key.size):
        if key[event] >= 0:
            positions[event] = counts[key[event]]
            counts[key[event]] += 1


@kernel(allocates=True)
def rekey(state, renamed):
    """Move the runs, marks and negative events of keys to new codes: `renamed[key]`, never a larger one, -1: gone."""
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
            state.key_mark[key] = -(2**63)
        for negative in range(negatives):
            state.negative_head[key * negatives + negative] = -1
    for place in range(state.counters[Counter.WAITING]):
        state.waiting.key[place] = renamed[state.waiting.key[place]]
