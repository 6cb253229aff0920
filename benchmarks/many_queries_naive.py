"""The naive extension of a pub/sub engine (Cayuga 5.2.1), to measure the indexes against: the FR index finds the edges
whose static predicates an event satisfies, and every user's automaton looks for its own among them, then at its own
instances. Nothing but the FR index spans several automata, so there is neither merging nor an AN or AI index.

Answers are those of `advance.advance`. In the twin's favour, the FR index finds edges of starts only, where the paper's
finds all, and an automaton's own edges are tested at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ouzel.engines.automata.advance import (
    FLAG_BITS,
    candidates,
    entry_holds,
    filter_mask,
    fire,
    following,
    gate_bits,
    leave,
    link,
    mixed,
    programs_hold,
    sweep,
    takes,
    unlink,
)
from ouzel.engines.automata.tables import (
    Automata,
    Conjunct,
    Counter,
    Edge,
    Entry,
    Finding,
    Link,
    Node,
    Place,
    Status,
    Time,
    Wait,
)
from ouzel.kernels.arrays import INT64_MIN
from ouzel.kernels.jit import helper, kernel


@helper
def _place_of(edges_found, edge, serial):
    """Where an edge stands, or would stand, in the hash table of this event's result."""
    mask = np.uint64(len(edges_found) - 1)
    place = mixed(np.uint64(0), edge) & mask
    while edges_found[place, 1] == serial and edges_found[place, 0] != edge:
        place = (place + np.uint64(1)) & mask
    return place


@helper(inline=True)
def _has_key(waits, registers, slots, events, instance, event, wait):
    """Whether the event has the value that the AI index would have found the instance by."""
    lane = waits[wait, Wait.KEY_LANE]
    if lane < 0:
        return True
    component, own = waits[wait, Wait.KEY_COMPONENT], waits[wait, Wait.KEY_VALUE_LANE]
    if component < 0:
        value, null = registers.ints[instance, own], registers.nulls[instance, own]
    else:
        place = slots[instance, component]
        value, null = events.ints[own, place], events.int_nulls[own, place]
    return not null and not events.int_nulls[lane, event] and events.ints[lane, event] == value


class Users(NamedTuple):
    """The automaton of each user: where it begins in these arrays, which end with where the last one ends."""

    edge_first: np.ndarray
    edges: np.ndarray  # out of the start
    wait_first: np.ndarray
    waits: np.ndarray
    place_of: np.ndarray  # by wait: where it stands here


def users_of(automata: Automata) -> Users:
    """Automata that share nothing but the start, each by itself."""
    edges, nodes = automata.edges, automata.nodes
    owner = np.full(automata.node_count, -1, np.int64)
    starts = np.arange(nodes[0, Node.EDGE_FIRST], nodes[1, Node.EDGE_FIRST])
    owner[edges[starts, Edge.TARGET]] = edges[starts, Edge.TARGET]
    # Edges lead to higher numbers.
    for node in range(1, automata.node_count):
        for edge in range(nodes[node, Node.EDGE_FIRST], nodes[node + 1, Node.EDGE_FIRST]):
            owner[edges[edge, Edge.TARGET]] = owner[node]
    waiting = np.flatnonzero(nodes[1:-1, Node.WAIT] >= 0) + 1
    number = np.unique(owner[1:], return_inverse=True)[1]
    edge_owner, wait_owner = number[edges[starts, Edge.TARGET] - 1], number[waiting - 1]
    by_user, waits_by_user = np.argsort(edge_owner, kind="stable"), np.argsort(wait_owner, kind="stable")
    users = np.arange(number.max(initial=-1) + 2)
    waits = nodes[waiting[waits_by_user], Node.WAIT]
    place_of = np.zeros(automata.wait_count, np.int32)
    place_of[waits] = np.arange(len(waits))
    return Users(
        np.searchsorted(edge_owner[by_user], users).astype(np.int32),
        starts[by_user].astype(np.int32),
        np.searchsorted(wait_owner[waits_by_user], users).astype(np.int32),
        waits.astype(np.int32),
        place_of,
    )


@kernel
def advance(automata, state, events, first, last, results, moment, users, heads, edges_found):
    """Read events from `first` on; as `advance.advance`.

    `heads` has the first instance of every wait, in the order of users; `edges_found` is [place, 3]: edge, event,
    entry of the FR index.
    """
    position = first
    counters, links, nodes = state.counters, state.links, automata.nodes
    while position < last:
        now = events.times[position, Time.END]
        if len(links) - counters[Counter.FREE] >= counters[Counter.SWEEP_AT]:
            sweep(automata, state, now)
            for k in range(len(heads)):
                heads[k] = state.places[users.waits[k], Place.HEAD]
        after, taken, made, status = position, 0, 0, Status.DONE
        moment += 1
        found, free, members = results.count[0], counters[Counter.FREE], counters[Counter.MEMBERS]
        while after < last and events.times[after, Time.END] == now and status == Status.DONE:
            counters[Counter.SERIAL] += 1
            serial = counters[Counter.SERIAL]
            begin = events.times[after, Time.START]
            bits = gate_bits(automata, events, after)
            for row in range(nodes[0, Node.SIGNATURE_FIRST], nodes[1, Node.SIGNATURE_FIRST]):
                entry, ends, least = candidates(automata.fr, events, after, row)
                while True:
                    if least != INT64_MIN:
                        entry = following(automata.fr.highest, automata.fr.levels, entry, ends, least)
                    if entry >= ends:
                        break
                    if entry_holds(automata, events, after, entry):
                        edge = automata.fr_entries[entry, Entry.EDGE]
                        place = _place_of(edges_found, edge, serial)
                        edges_found[place, 0] = edge
                        edges_found[place, 1] = serial
                        edges_found[place, 2] = entry
                    entry += 1
            for user in range(len(users.edge_first) - 1):
                for k in range(users.edge_first[user], users.edge_first[user + 1]):
                    place = _place_of(edges_found, users.edges[k], serial)
                    if edges_found[place, 1] != serial or status != Status.DONE:
                        continue
                    entry = edges_found[place, 2]
                    conjunct = automata.fr_entries[entry, Entry.CONJUNCT] >> FLAG_BITS
                    duration = now - begin + 1
                    counters[Counter.FIRED] += 1
                    lasts = (
                        automata.conjuncts[conjunct, Conjunct.LEAST] <= duration
                        and duration <= automata.conjuncts[conjunct, Conjunct.GREATEST]
                    )
                    if lasts and programs_hold(automata, state, events, -1, after, conjunct):
                        status, made = fire(automata, state, events, results, 0, -1, after, entry, made)
                for k in range(users.wait_first[user], users.wait_first[user + 1]):
                    instance = np.int64(heads[k])
                    wait = np.int64(users.waits[k]) if instance >= 0 else 0
                    while instance >= 0 and status == Status.DONE:
                        later = np.int64(links[instance, Link.FOLLOWING])
                        duration = now - state.times[instance, Time.START] + 1
                        mask = 0
                        if begin > state.times[instance, Time.END] and _has_key(
                            automata.waits, state.registers, state.slots, events, instance, after, wait
                        ):
                            mask = filter_mask(automata, state.places, serial, events, wait, after)
                        if mask and takes(automata, state, events, instance, after, wait, mask, duration):
                            counters[Counter.FIRED] += 1
                            links[taken, Link.TAKEN] = instance
                            taken += 1
                            node = np.int64(links[instance, Link.NODE])
                            status, made = leave(
                                automata, state, events, results, node, instance, after, *bits, duration, made
                            )
                        instance = later
            after += 1
        if status != Status.DONE:
            results.count[0] = found
            counters[Counter.FREE] = free
            counters[Counter.MEMBERS] = members
            for k in range(made):
                links[links[k, Link.MADE], Link.NODE] = -1
            return position, status, moment
        for k in range(made):
            link(automata, state, events, links[k, Link.MADE])
            wait = links[links[k, Link.MADE], Link.WAIT]
            heads[users.place_of[wait]] = state.places[wait, Place.HEAD]
        for k in range(taken):
            # Two events of one moment may take the same instance.
            if links[links[k, Link.TAKEN], Link.NODE] >= 0:
                unlink(automata, state, links[k, Link.TAKEN])
                wait = links[links[k, Link.TAKEN], Link.WAIT]
                heads[users.place_of[wait]] = state.places[wait, Place.HEAD]
        position = after
    return position, Status.DONE, moment


class NaiveKernel:
    """Stands in for `advance.advance`."""

    def __init__(self) -> None:
        self._known: tuple[Automata, Automata, Users, np.ndarray] | None = None
        self._edges_found = np.zeros((1 << 12, 3), np.int64)

    def __call__(self, automata: Automata, *arguments: Any) -> tuple[int, int, int]:
        if self._known is None or self._known[0].nodes is not automata.nodes:
            users = users_of(automata)
            heads = np.full(len(users.waits), -1, np.int32)
            self._known = (automata, _without_keys(automata), users, heads)
        _, plain, users, heads = self._known
        stopped: tuple[int, int, int] = advance(plain, *arguments, users, heads, self._edges_found)
        return stopped


def _without_keys(automata: Automata) -> Automata:
    """The same automata, in which all instances stand in the list of their wait."""
    waits = automata.waits.copy()
    waits[waits[:, Wait.FINDING] == Finding.DYNAMIC, Wait.FINDING] = Finding.STATIC
    return automata._replace(waits=waits)
