"""Moving the state of the run kernel when its buffers, keys or window move (SASE+ 5.3)."""

from __future__ import annotations

import numpy as np
from numba import njit

from ouzel.kernels.run_state import Counter, RunOutput, RunState
from ouzel.kernels.run_tables import ByPlace, ByRegister, Form, Function

_NODES = int(Counter.NODES)
_RUNS = int(Counter.RUNS)
_FREE = int(Counter.FREE)
_WAITING = int(Counter.WAITING)
_NON_OVERLAPPING = int(Form.NON_OVERLAPPING)
_FIRST_REGISTER = int(ByPlace.FIRST_REGISTER)
_FUNCTION = int(ByRegister.FUNCTION)
_AVERAGE = int(Function.AVERAGE)


def reclaim_nodes(state: RunState, output: RunOutput) -> int:
    """Close the gaps that dead runs have left in the arena; how many nodes are alive.

    Nodes of runs, of waiting matches and of matches that are not written out yet stay, under new numbers.
    """
    return int(_reclaim(state, output.node[: output.written[0]]))


@njit(cache=True, nogil=True)
def _reclaim(state, matches):
    used = state.counters[_NODES]
    arena = state.arena
    parent = arena.parent
    renamed = np.full(used, -1, np.int32)
    for key in range(state.key_head.size):
        run = state.key_head[key]
        while run >= 0:
            _mark(renamed, parent, state.runs.node[run])
            run = state.runs.next[run]
    for place in range(state.counters[_WAITING]):
        _mark(renamed, parent, state.waiting.node[place])
    for place in range(matches.size):
        _mark(renamed, parent, matches[place])
    live = 0
    for node in range(used):
        if renamed[node] < 0:
            continue
        renamed[node] = live
        arena.event[live] = arena.event[node]
        arena.parent[live] = renamed[parent[node]] if parent[node] >= 0 else -1
        arena.first[live] = renamed[arena.first[node]]
        arena.place[live] = arena.place[node]
        arena.proceeds[live] = arena.proceeds[node]
        for register in range(arena.counts.shape[1]):
            arena.counts[live, register] = arena.counts[node, register]
            arena.values[live, register] = arena.values[node, register]
        for register in range(arena.totals.shape[1]):
            arena.totals[live, register] = arena.totals[node, register]
        for test in range(arena.codes.shape[1]):
            arena.codes[live, test] = arena.codes[node, test]
        live += 1
    for key in range(state.key_head.size):
        run = state.key_head[key]
        while run >= 0:
            state.runs.node[run] = renamed[state.runs.node[run]]
            run = state.runs.next[run]
    for place in range(state.counters[_WAITING]):
        state.waiting.node[place] = renamed[state.waiting.node[place]]
    for place in range(matches.size):
        matches[place] = renamed[matches[place]]
    state.counters[_NODES] = live
    return live


@njit(cache=True, nogil=True)
def _mark(renamed, parent, node):
    while node >= 0 and renamed[node] < 0:
        renamed[node] = 0
        node = parent[node]


@njit(cache=True, nogil=True)
def sweep(tables, state, oldest_start, position_counts):
    """Drop runs that nothing can complete any more; the oldest slot that a run or waiting match still needs, or -1.

    A run is dead if it started before `oldest_start`; with windows in events, if its partition has so many events by
    now (`position_counts`, by key) that the next one lies outside.
    """
    oldest_slot = -1
    for key in range(state.key_head.size):
        kept = np.int32(-1)
        run = state.key_head[key]
        while run >= 0:
            following = state.runs.next[run]
            if tables.in_events:
                dead = position_counts[key] - state.runs.since[run] >= tables.window
            else:
                dead = state.runs.since[run] < oldest_start
            if dead:
                state.runs.next[run] = state.counters[_FREE]
                state.counters[_FREE] = run
                state.counters[_RUNS] -= 1
                state.key_runs[key] -= 1
            else:
                state.runs.next[run] = kept
                kept = run
                first = state.runs.first[run]
                if oldest_slot < 0 or first < oldest_slot:
                    oldest_slot = first
            run = following
        state.key_head[key] = kept
    for place in range(state.counters[_WAITING]):
        node = state.waiting.node[place]
        while state.arena.parent[node] >= 0:
            node = state.arena.parent[node]
        first = state.arena.event[node]
        if oldest_slot < 0 or first < oldest_slot:
            oldest_slot = first
    return oldest_slot


@njit(cache=True, nogil=True)
def rebase(tables, state, shift, used):
    """Forget the `shift` oldest slots behind the kernel's own: the rest of the `used` ones move down.

    No run, waiting match or match that is not written out may refer to one of them.
    """
    reserved = tables.reserved
    for node in range(state.counters[_NODES]):
        state.arena.event[node] = max(state.arena.event[node] - shift, 0)
        place = state.arena.place[node]
        first_register = tables.by_place[place, _FIRST_REGISTER]
        for number in range(first_register, tables.by_place[place + 1, _FIRST_REGISTER]):
            if tables.by_register[number, _FUNCTION] > _AVERAGE:
                state.arena.values[node, number - first_register] -= shift
    for key in range(state.key_head.size):
        run = state.key_head[key]
        while run >= 0:
            state.runs.first[run] -= shift
            run = state.runs.next[run]
    if state.key_mark.size > 0 and tables.form > _NON_OVERLAPPING:
        for key in range(state.key_mark.size):
            if state.key_mark[key] > 0:
                state.key_mark[key] = max(state.key_mark[key] - shift, 0)
    for slot in range(reserved, min(used - shift, state.started.size)):
        state.started[slot] = state.started[slot + shift]
    for slot in range(max(used - shift, 0), state.started.size):
        state.started[slot] = 0
    for place in range(state.negative_head.size):
        newest = state.negative_head[place] - shift
        state.negative_head[place] = newest if newest >= reserved else -1
    for negative in range(state.links.shape[0]):
        for slot in range(reserved, used - shift):
            for link in range(state.links.shape[1]):
                below = state.links[negative, link, slot + shift] - shift
                state.links[negative, link, slot] = below if below >= reserved else -1
            for mark in range(state.marks.shape[1]):
                state.marks[negative, mark, slot] = state.marks[negative, mark, slot + shift]


@njit(cache=True, nogil=True)
def number_events(key, counts, positions):
    """Give each event its position among those of its key, going on from `counts`; keys below 0 have none."""
    for event in range(key.size):
        if key[event] >= 0:
            positions[event] = counts[key[event]]
            counts[key[event]] += 1


@njit(cache=True, nogil=True)
def rekey(state, renamed):
    """Move the runs, marks and negative events of keys to new codes: `renamed[key]`, never a larger one, -1: gone."""
    keys = min(state.key_head.size, renamed.size)
    negatives = state.negative_head.size // max(state.key_head.size, 1)
    for key in range(keys):
        target = renamed[key]
        if target == key:
            continue
        if target >= 0:
            state.key_head[target] = state.key_head[key]
            state.key_runs[target] = state.key_runs[key]
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
    for place in range(state.counters[_WAITING]):
        state.waiting.key[place] = renamed[state.waiting.key[place]]
