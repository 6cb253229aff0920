"""The lists in which events find instances: by what their waits ask of events, or by a value of their own."""

from __future__ import annotations

import numpy as np
from numba import njit

from ouzel.kernels.cayuga_programs import apart, mixed
from ouzel.kernels.cayuga_tables import Counter, Finding, Link, Place, Time, Wait

_STATIC = int(Finding.STATIC)
_EVERY = int(Finding.EVERY)
_DYNAMIC = int(Finding.DYNAMIC)

_AN_FIRST = int(Wait.AN_FIRST)
_FINDING = int(Wait.FINDING)
_KEY_LANE = int(Wait.KEY_LANE)
_KEY_COMPONENT = int(Wait.KEY_COMPONENT)
_KEY_VALUE_LANE = int(Wait.KEY_VALUE_LANE)

_START = int(Time.START)
_KEY = int(Time.KEY)

_NODE = int(Link.NODE)
_WAIT = int(Link.WAIT)
_BUCKET = int(Link.BUCKET)
_FOLLOWING = int(Link.FOLLOWING)
_PRECEDING = int(Link.PRECEDING)
_FREE_STACK = int(Link.FREE)
_MEMBER_HEAD = int(Link.MEMBER_HEAD)
_MEMBER_COUNT = int(Link.MEMBER_COUNT)

_HEAD = int(Place.HEAD)
_COUNT = int(Place.COUNT)
_WAIT_FOLLOWING = int(Place.FOLLOWING)
_WAIT_PRECEDING = int(Place.PRECEDING)

_FREE = int(Counter.FREE)
_SWEEP_AT = int(Counter.SWEEP_AT)
_ACTIVE_WAITS = int(Counter.ACTIVE_WAITS)
_EXPIRED = int(Counter.EXPIRED)
_EVERY_HEAD = int(Counter.EVERY_HEAD)
_MEMBERS = int(Counter.MEMBERS)

_REGISTERS = -2
_IN_WAIT_LIST = -1
_IN_NO_LIST = -2
_SWEEP_MIN = 512


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _activate(waits, an_entries, places, an_links, an_heads, counters, wait):
    """The wait has its first instance: events must find it."""
    counters[_ACTIVE_WAITS] += 1
    if waits[wait, _FINDING] == _EVERY:
        head = counters[_EVERY_HEAD]
        places[wait, _WAIT_FOLLOWING] = head
        places[wait, _WAIT_PRECEDING] = -1
        if head >= 0:
            places[head, _WAIT_PRECEDING] = wait
        counters[_EVERY_HEAD] = wait
    elif waits[wait, _FINDING] == _STATIC:
        for entry in range(waits[wait, _AN_FIRST], waits[wait + 1, _AN_FIRST]):
            bucket = an_entries[entry, 1]
            head = an_heads[bucket]
            an_links[entry, 0] = head
            an_links[entry, 1] = -1
            if head >= 0:
                an_links[head, 1] = entry
            an_heads[bucket] = entry


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _deactivate(waits, an_entries, places, an_links, an_heads, counters, wait):
    counters[_ACTIVE_WAITS] -= 1
    if waits[wait, _FINDING] == _EVERY:
        before, after = places[wait, _WAIT_PRECEDING], places[wait, _WAIT_FOLLOWING]
        if before >= 0:
            places[before, _WAIT_FOLLOWING] = after
        else:
            counters[_EVERY_HEAD] = after
        if after >= 0:
            places[after, _WAIT_PRECEDING] = before
    elif waits[wait, _FINDING] == _STATIC:
        for entry in range(waits[wait, _AN_FIRST], waits[wait + 1, _AN_FIRST]):
            after, before = an_links[entry, 0], an_links[entry, 1]
            if before >= 0:
                an_links[before, 0] = after
            else:
                an_heads[an_entries[entry, 1]] = after
            if after >= 0:
                an_links[after, 1] = before


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def link(automata, state, events, instance):
    """Put an instance where events find it."""
    links, waits = state.links, automata.waits
    wait = links[instance, _WAIT]
    if state.places[wait, _COUNT] == 0:
        _activate(waits, automata.an_entries, state.places, state.an_links, state.an_heads, state.counters, wait)
    state.places[wait, _COUNT] += 1
    links[instance, _PRECEDING] = -1
    if waits[wait, _FINDING] == _DYNAMIC:
        component, lane = waits[wait, _KEY_COMPONENT], waits[wait, _KEY_VALUE_LANE]
        if component == _REGISTERS:
            value, null = state.registers.ints[instance, lane], state.registers.nulls[instance, lane]
        else:
            place = state.slots[instance, component]
            value, null = events.ints[lane, place], events.int_nulls[lane, place]
        if null:
            # Equal to nothing: no event will ever take it.
            links[instance, _BUCKET] = _IN_NO_LIST
            return
        state.times[instance, _KEY] = value
        buckets = np.uint64(len(state.ai_heads) - 1)
        bucket = np.int64(mixed(apart(waits[wait, _KEY_LANE]), value) & buckets)
        head = np.int64(state.ai_heads[bucket])
        state.ai_heads[bucket] = instance
        links[instance, _BUCKET] = bucket
    else:
        head = state.places[wait, _HEAD]
        state.places[wait, _HEAD] = instance
        links[instance, _BUCKET] = _IN_WAIT_LIST
    links[instance, _FOLLOWING] = head
    if head >= 0:
        links[head, _PRECEDING] = instance


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def unlink(automata, state, instance):
    """Take an instance out of its list and give it back."""
    links = state.links
    wait = links[instance, _WAIT]
    bucket = links[instance, _BUCKET]
    if bucket != _IN_NO_LIST:
        before, after = links[instance, _PRECEDING], links[instance, _FOLLOWING]
        if before >= 0:
            links[before, _FOLLOWING] = after
        elif bucket == _IN_WAIT_LIST:
            state.places[wait, _HEAD] = after
        else:
            state.ai_heads[bucket] = after
        if after >= 0:
            links[after, _PRECEDING] = before
    state.places[wait, _COUNT] -= 1
    if state.places[wait, _COUNT] == 0:
        _deactivate(
            automata.waits, automata.an_entries, state.places, state.an_links, state.an_heads, state.counters, wait
        )
    links[instance, _NODE] = -1
    links[state.counters[_FREE], _FREE_STACK] = instance
    state.counters[_FREE] += 1


@njit(cache=True, nogil=True, _nrt=False)
def relink(automata, state, events):
    """Put all instances into lists again, after the lists were made anew."""
    for instance in range(len(state.links)):
        if state.links[instance, _NODE] >= 0:
            link(automata, state, events, instance)


@njit(cache=True, nogil=True, _nrt=False)
def sweep(automata, state, now):
    """Drop instances that waited so long that nothing can come of them at or after a tick."""
    links = state.links
    for instance in range(len(links)):
        if links[instance, _NODE] >= 0:
            wait = links[instance, _WAIT]
            if now - state.times[instance, _START] + 1 > automata.life[wait]:
                unlink(automata, state, instance)
                state.counters[_EXPIRED] += links[instance, _MEMBER_COUNT]
    live = len(links) - state.counters[_FREE]
    # What waited too long stands in the way of others; but looking for it reads all the room there is.
    state.counters[_SWEEP_AT] = max(_SWEEP_MIN, 2 * live, len(links) // 4)


@njit(cache=True, nogil=True, _nrt=False)
def gather_members(links, members, target):
    """Copy the members of live instances to another array, each instance's side by side; gives how many there are."""
    top = 0
    for instance in range(len(links)):
        if links[instance, _NODE] >= 0:
            member = links[instance, _MEMBER_HEAD]
            links[instance, _MEMBER_HEAD] = top if member >= 0 else -1
            while member >= 0:
                target[top, 0] = members[member, 0]
                member = members[member, 1]
                target[top, 1] = top + 1 if member >= 0 else -1
                top += 1
    return top


@njit(cache=True, nogil=True, _nrt=False)
def members_of(links, members, live, rows, nodes):
    """The instances in `live` once for each member: which it is, and its node."""
    place = 0
    for k in range(len(live)):
        member = links[live[k], _MEMBER_HEAD]
        while member >= 0:
            rows[place] = live[k]
            nodes[place] = members[member, 0]
            place += 1
            member = members[member, 1]
