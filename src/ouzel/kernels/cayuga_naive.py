"""The naive extension of a pub/sub engine (Cayuga 5.2.1), to measure the indexes against: the FR index finds the edges
whose static predicates an event satisfies, and every user's automaton looks for its own among them.

Answers are those of `cayuga.advance`. There is no AN and no AI index: all start edges and all instances are looked at.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ouzel.kernels.cayuga import (
    _CONJUNCT,
    _DONE,
    _EDGE,
    _END,
    _FIRED,
    _FREE,
    _GREATEST,
    _KEY,
    _KEY_LANE,
    _LEAST,
    _MADE,
    _MEMBERS,
    _NODE,
    _SERIAL,
    _SIGNATURE_FIRST,
    _START,
    _SWEEP_AT,
    _TAKEN,
    _WAIT,
    candidates,
    entry_holds,
    fire,
    leave,
)
from ouzel.kernels.cayuga_lists import _BUCKET, _DYNAMIC, _FINDING, _IN_NO_LIST, link, sweep, unlink
from ouzel.kernels.cayuga_programs import filter_mask, mixed, programs_hold, takes
from ouzel.kernels.cayuga_tables import Node

_EDGE_FIRST = int(Node.EDGE_FIRST)


@njit(cache=True, nogil=True, _nrt=False)
def _place_of(edges_found, edge, serial):
    """Where an edge stands, or would stand, in the hash table of this event's result."""
    mask = np.uint64(len(edges_found) - 1)
    place = mixed(np.uint64(0), edge) & mask
    while edges_found[place, 1] == serial and edges_found[place, 0] != edge:
        place = (place + np.uint64(1)) & mask
    return place


@njit(cache=True, nogil=True, _nrt=False)
def advance(automata, state, events, first, last, results, moment, edges_found):
    """Read events from `first` on; as `cayuga.advance`. `edges_found` is [place, 3]: edge, event, conjunct."""
    position = first
    counters, links, nodes = state.counters, state.links, automata.nodes
    while position < last:
        now = events.times[position, _END]
        if len(links) - counters[_FREE] >= counters[_SWEEP_AT]:
            sweep(automata, state, now)
        after, taken, made, status = position, 0, 0, _DONE
        moment += 1
        found, free, members = results.count[0], counters[_FREE], counters[_MEMBERS]
        while after < last and events.times[after, _END] == now and status == _DONE:
            counters[_SERIAL] += 1
            serial = counters[_SERIAL]
            begin = events.times[after, _START]
            for row in range(nodes[0, _SIGNATURE_FIRST], nodes[1, _SIGNATURE_FIRST]):
                begins, ends = candidates(automata, events, after, row)
                for entry in range(begins, ends):
                    if entry_holds(automata, events, after, entry):
                        edge = automata.fr_entries[entry, _EDGE]
                        place = _place_of(edges_found, edge, serial)
                        edges_found[place, 0] = edge
                        edges_found[place, 1] = serial
                        edges_found[place, 2] = automata.fr_entries[entry, _CONJUNCT] >> 2
            for edge in range(nodes[0, _EDGE_FIRST], nodes[1, _EDGE_FIRST]):
                place = _place_of(edges_found, edge, serial)
                if edges_found[place, 1] != serial or status != _DONE:
                    continue
                conjunct = edges_found[place, 2]
                duration = now - begin + 1
                counters[_FIRED] += 1
                lasts = (
                    automata.conjuncts[conjunct, _LEAST] <= duration
                    and duration <= automata.conjuncts[conjunct, _GREATEST]
                )
                if lasts and programs_hold(automata, state, events, -1, after, conjunct):
                    status, made = fire(automata, state, events, results, 0, -1, after, edge, made)
            for instance in range(len(links)):
                node = np.int64(links[instance, _NODE])
                # What this moment made ends now, so no event of this moment follows it.
                if node < 0 or status != _DONE or begin <= state.times[instance, _END]:
                    continue
                wait = np.int64(links[instance, _WAIT])
                if automata.waits[wait, _FINDING] == _DYNAMIC:
                    # The AI index stands for this equality, so the filter predicate does not test it.
                    lane = automata.waits[wait, _KEY_LANE]
                    equal = events.ints[lane, after] == state.times[instance, _KEY]
                    if not equal or events.int_nulls[lane, after] or links[instance, _BUCKET] == _IN_NO_LIST:
                        continue
                duration = now - state.times[instance, _START] + 1
                mask = filter_mask(automata, state.places, serial, events, wait, after)
                if mask and takes(automata, state, events, instance, after, wait, mask, duration):
                    counters[_FIRED] += 1
                    links[taken, _TAKEN] = instance
                    taken += 1
                    status, made = leave(automata, state, events, results, node, instance, after, duration, made)
            after += 1
        if status != _DONE:
            results.count[0] = found
            counters[_FREE] = free
            counters[_MEMBERS] = members
            for k in range(made):
                links[links[k, _MADE], _NODE] = -1
            return position, status, moment
        for k in range(made):
            link(automata, state, events, links[k, _MADE])
        for k in range(taken):
            # Two events of one moment may take the same instance.
            if links[links[k, _TAKEN], _NODE] >= 0:
                unlink(automata, state, links[k, _TAKEN])
        position = after
    return position, _DONE, moment
