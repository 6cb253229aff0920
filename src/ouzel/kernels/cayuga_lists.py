"""The lists in which events find instances: by what their waits ask of events, or by a value of their own."""

from __future__ import annotations

import numpy as np

from ouzel.kernels.cayuga_programs import apart, mixed
from ouzel.kernels.cayuga_tables import Counter, Finding, Link, Place, Time, Wait
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicates import _order_of_floats

_STATIC = int(Finding.STATIC)
_EVERY = int(Finding.EVERY)
_DYNAMIC = int(Finding.DYNAMIC)

_AN_FIRST = int(Wait.AN_FIRST)
_FINDING = int(Wait.FINDING)
_KEY_LANE = int(Wait.KEY_LANE)
_KEY_COMPONENT = int(Wait.KEY_COMPONENT)
_KEY_VALUE_LANE = int(Wait.KEY_VALUE_LANE)

_START = int(Time.START)
_FIRST_END = int(Time.FIRST_END)
_PRINT = int(Time.PRINT)
_OTHER_PRINT = int(Time.OTHER_PRINT)
_KEY = int(Time.KEY)

_NODE = int(Link.NODE)
_WAIT = int(Link.WAIT)
_BUCKET = int(Link.BUCKET)
_FOLLOWING = int(Link.FOLLOWING)
_PRECEDING = int(Link.PRECEDING)
_FREE_STACK = int(Link.FREE)
_MEMBER_HEAD = int(Link.MEMBER_HEAD)
_MEMBER_COUNT = int(Link.MEMBER_COUNT)
_MADE = int(Link.MADE)

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


@helper(inline=True)
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


@helper(inline=True)
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


@helper(inline=True)
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


@helper(inline=True)
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


@helper
def _order_of_instances(state, events, content, left, right):
    """Below zero, zero or above it: some order of the instances of one moment. Zero: they have the same future."""
    links, times, registers = state.links, state.times, state.registers
    if links[left, _WAIT] != links[right, _WAIT]:
        return links[left, _WAIT] - links[right, _WAIT]
    for k in (_START, _FIRST_END, _PRINT, _OTHER_PRINT):
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
    mine, other = links[left, _MEMBER_HEAD], links[right, _MEMBER_HEAD]
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
            child += _order_of_instances(state, events, content, links[child, _MADE], links[child + 1, _MADE]) < 0
        if _order_of_instances(state, events, content, links[root, _MADE], links[child, _MADE]) >= 0:
            return
        links[root, _MADE], links[child, _MADE] = links[child, _MADE], links[root, _MADE]
        root = child


@helper
def keep_distinct(state, events, content, made):
    """Give back all but one of the instances of a moment that are alike; gives how many are left."""
    links = state.links
    for root in range(made // 2 - 1, -1, -1):
        _sink(state, events, content, root, made)
    for count in range(made - 1, 0, -1):
        links[0, _MADE], links[count, _MADE] = links[count, _MADE], links[0, _MADE]
        _sink(state, events, content, 0, count)
    kept = 1
    for k in range(1, made):
        instance = links[k, _MADE]
        if _order_of_instances(state, events, content, links[kept - 1, _MADE], instance) == 0:
            links[instance, _NODE] = -1
            links[state.counters[_FREE], _FREE_STACK] = instance
            state.counters[_FREE] += 1
        else:
            links[kept, _MADE] = instance
            kept += 1
    return kept


@kernel
def relink(automata, state, events):
    """Put all instances into lists again, after the lists were made anew."""
    for instance in range(len(state.links)):
        if state.links[instance, _NODE] >= 0:
            link(automata, state, events, instance)


@kernel
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


@kernel
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


@kernel
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
