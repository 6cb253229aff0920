"""The lists in which events find instances: by what their waits ask of events, or by a value of their own."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.cayuga_programs import apart, mixed
from ouzel.kernels.cayuga_tables import Counter, Finding, Link, Place, Time, Wait
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicates import _order_of_floats

_REGISTERS = -2
_IN_WAIT_LIST = -1
_IN_NO_LIST = -2
_SWEEP_MIN = 512


@helper(inline=True)
def _activate(waits, an_entries, places, an_links, an_heads, counters, wait):
    """The wait has its first instance: events must find it."""
    counters[Counter.ACTIVE_WAITS] += 1
    if waits[wait, Wait.FINDING] == Finding.EVERY:
        head = counters[Counter.EVERY_HEAD]
        places[wait, Place.FOLLOWING] = head
        places[wait, Place.PRECEDING] = -1
        if head >= 0:
            places[head, Place.PRECEDING] = wait
        counters[Counter.EVERY_HEAD] = wait
    elif waits[wait, Wait.FINDING] == Finding.STATIC:
        for entry in range(waits[wait, Wait.AN_FIRST], waits[wait + 1, Wait.AN_FIRST]):
            bucket = an_entries[entry, 1]
            head = an_heads[bucket]
            an_links[entry, 0] = head
            an_links[entry, 1] = -1
            if head >= 0:
                an_links[head, 1] = entry
            an_heads[bucket] = entry


@helper(inline=True)
def _deactivate(waits, an_entries, places, an_links, an_heads, counters, wait):
    counters[Counter.ACTIVE_WAITS] -= 1
    if waits[wait, Wait.FINDING] == Finding.EVERY:
        before, after = places[wait, Place.PRECEDING], places[wait, Place.FOLLOWING]
        if before >= 0:
            places[before, Place.FOLLOWING] = after
        else:
            counters[Counter.EVERY_HEAD] = after
        if after >= 0:
            places[after, Place.PRECEDING] = before
    elif waits[wait, Wait.FINDING] == Finding.STATIC:
        for entry in range(waits[wait, Wait.AN_FIRST], waits[wait + 1, Wait.AN_FIRST]):
            after, before = an_links[entry, 0], an_links[entry, 1]
            if before >= 0:
                an_links[before, 0] = after
            else:
                an_heads[an_entries[entry, 1]] = after
            if after >= 0:
                an_links[after, 1] = before


@helper(inline=True)
def link(automata, state, events, instance):
    """Put an instance where events find it."""
    links, waits = state.links, automata.waits
    wait = links[instance, Link.WAIT]
    if state.places[wait, Place.COUNT] == 0:
        _activate(waits, automata.an_entries, state.places, state.an_links, state.an_heads, state.counters, wait)
    state.places[wait, Place.COUNT] += 1
    links[instance, Link.PRECEDING] = -1
    if waits[wait, Wait.FINDING] == Finding.DYNAMIC:
        component, lane = waits[wait, Wait.KEY_COMPONENT], waits[wait, Wait.KEY_VALUE_LANE]
        if component == _REGISTERS:
            value, null = state.registers.ints[instance, lane], state.registers.nulls[instance, lane]
        else:
            place = state.slots[instance, component]
            value, null = events.ints[lane, place], events.int_nulls[lane, place]
        if null:
            # Equal to nothing: no event will ever take it.
            links[instance, Link.BUCKET] = _IN_NO_LIST
            return
        state.times[instance, Time.KEY] = value
        buckets = np.uint64(len(state.ai_heads) - 1)
        bucket = np.int64(mixed(apart(waits[wait, Wait.KEY_LANE]), value) & buckets)
        head = np.int64(state.ai_heads[bucket])
        state.ai_heads[bucket] = instance
        links[instance, Link.BUCKET] = bucket
    else:
        head = state.places[wait, Place.HEAD]
        state.places[wait, Place.HEAD] = instance
        links[instance, Link.BUCKET] = _IN_WAIT_LIST
    links[instance, Link.FOLLOWING] = head
    if head >= 0:
        links[head, Link.PRECEDING] = instance


@helper(inline=True)
def unlink(automata, state, instance):
    """Take an instance out of its list and give it back."""
    links = state.links
    wait = links[instance, Link.WAIT]
    bucket = links[instance, Link.BUCKET]
    if bucket != _IN_NO_LIST:
        before, after = links[instance, Link.PRECEDING], links[instance, Link.FOLLOWING]
        if before >= 0:
            links[before, Link.FOLLOWING] = after
        elif bucket == _IN_WAIT_LIST:
            state.places[wait, Place.HEAD] = after
        else:
            state.ai_heads[bucket] = after
        if after >= 0:
            links[after, Link.PRECEDING] = before
    state.places[wait, Place.COUNT] -= 1
    if state.places[wait, Place.COUNT] == 0:
        _deactivate(
            automata.waits, automata.an_entries, state.places, state.an_links, state.an_heads, state.counters, wait
        )
    links[instance, Link.NODE] = -1
    links[state.counters[Counter.FREE], Link.FREE] = instance
    state.counters[Counter.FREE] += 1


@helper
def _order_of_instances(state, events, content, left, right):
    """Below zero, zero or above it: some order of the instances of one moment. Zero: they have the same future."""
    links, times, registers = state.links, state.times, state.registers
    if links[left, Link.WAIT] != links[right, Link.WAIT]:
        return links[left, Link.WAIT] - links[right, Link.WAIT]
    for k in (Time.START, Time.FIRST_END, Time.PRINT, Time.OTHER_PRINT):
        if times[left, k] != times[right, k]:
            return -1 if times[left, k] < times[right, k] else 1
    for k in range(state.slots.shape[1]):
        mine, other = events.ints[content, state.slots[left, k]], events.ints[content, state.slots[right, k]]
        if mine != other:
            return -1 if mine < other else 1
    for k in range(registers.ints.shape[1]):
        if registers.nulls[left, k] != registers.nulls[right, k]:
            return np.int32(registers.nulls[left, k]) - np.int32(registers.nulls[right, k])
        if registers.nulls[left, k]:
            continue
        if registers.ints[left, k] != registers.ints[right, k]:
            return -1 if registers.ints[left, k] < registers.ints[right, k] else 1
        order = _order_of_floats(registers.floats[left, k], registers.floats[right, k])
        if order != 0:
            return order
    mine, other = links[left, Link.MEMBER_HEAD], links[right, Link.MEMBER_HEAD]
    while mine >= 0 and other >= 0:
        if state.members[mine, 0] != state.members[other, 0]:
            return state.members[mine, 0] - state.members[other, 0]
        mine, other = state.members[mine, 1], state.members[other, 1]
    return np.int32(mine >= 0) - np.int32(other >= 0)


@helper
def _sink(state, events, content, root, count):
    """Put the root of a heap of instances where it belongs."""
    links = state.links
    while 2 * root + 1 < count:
        child = 2 * root + 1
        if child + 1 < count:
            child += (
                _order_of_instances(state, events, content, links[child, Link.MADE], links[child + 1, Link.MADE]) < 0
            )
        if _order_of_instances(state, events, content, links[root, Link.MADE], links[child, Link.MADE]) >= 0:
            return
        links[root, Link.MADE], links[child, Link.MADE] = links[child, Link.MADE], links[root, Link.MADE]
        root = child


@helper
def keep_distinct(state, events, content, made):
    """Give back all but one of the instances of a moment that are alike; gives how many are left."""
    links = state.links
    for root in range(made // 2 - 1, -1, -1):
        _sink(state, events, content, root, made)
    for count in range(made - 1, 0, -1):
        links[0, Link.MADE], links[count, Link.MADE] = links[count, Link.MADE], links[0, Link.MADE]
        _sink(state, events, content, 0, count)
    kept = 1
    for k in range(1, made):
        instance = links[k, Link.MADE]
        if _order_of_instances(state, events, content, links[kept - 1, Link.MADE], instance) == 0:
            links[instance, Link.NODE] = -1
            links[state.counters[Counter.FREE], Link.FREE] = instance
            state.counters[Counter.FREE] += 1
        else:
            links[kept, Link.MADE] = instance
            kept += 1
    return kept


@kernel
def relink(automata, state, events):
    """Put all instances into lists again, after the lists were made anew."""
    for instance in range(len(state.links)):
        if state.links[instance, Link.NODE] >= 0:
            link(automata, state, events, instance)


@kernel
def sweep(automata, state, now):
    """Drop instances that waited so long that nothing can come of them at or after a tick."""
    links = state.links
    for instance in range(len(links)):
        if links[instance, Link.NODE] >= 0:
            wait = links[instance, Link.WAIT]
            if now - state.times[instance, Time.START] + 1 > automata.life[wait]:
                unlink(automata, state, instance)
                state.counters[Counter.EXPIRED] += links[instance, Link.MEMBER_COUNT]
    live = len(links) - state.counters[Counter.FREE]
    # What waited too long stands in the way of others; but looking for it reads all the room there is.
    state.counters[Counter.SWEEP_AT] = max(_SWEEP_MIN, 2 * live, len(links) // 4)


@kernel
def gather_members(links, members, target):
    """Copy the members of live instances to another array, each instance's side by side; gives how many there are."""
    top = 0
    for instance in range(len(links)):
        if links[instance, Link.NODE] >= 0:
            member = links[instance, Link.MEMBER_HEAD]
            links[instance, Link.MEMBER_HEAD] = top if member >= 0 else -1
            while member >= 0:
                target[top, 0] = members[member, 0]
                member = members[member, 1]
                target[top, 1] = top + 1 if member >= 0 else -1
                top += 1
    return top


@kernel
def members_of(links, members, live, rows, nodes):
    """The instances in `live` once for each member: which it is, and its node."""
    place = 0
    for k in range(len(live)):
        member = links[live[k], Link.MEMBER_HEAD]
        while member >= 0:
            rows[place] = live[k]
            nodes[place] = members[member, 0]
            place += 1
            member = members[member, 1]
