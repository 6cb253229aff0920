"""Events drive instances along the edges of merged automata (CESAR 3.2, Cayuga 4.3).

All events of a moment are read before anything changes, so simultaneous events never see each other: an instance that
some event takes (for which the filter predicate holds) is removed, and each event sends a copy along every edge whose
predicate it satisfies. If room runs out in the middle of a moment, nothing of that moment has happened.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ouzel.kernels.cayuga_tables import Conjunct, Counter, Edge, Finding, Link, Node, Place, Status, Time
from ouzel.kernels.predicate_tables import Opcode
from ouzel.kernels.predicates import _calculate, _compare, _decide, _order_of_floats

_STATIC = int(Finding.STATIC)
_EVERY = int(Finding.EVERY)
_DYNAMIC = int(Finding.DYNAMIC)

_EDGE_FIRST = int(Node.EDGE_FIRST)
_FILTER_FIRST = int(Node.CONJUNCT_FIRST)
_SIGNATURE_FIRST = int(Node.SIGNATURE_FIRST)
_AN_FIRST = int(Node.AN_FIRST)
_SLOT = int(Node.SLOT)
_FINDING = int(Node.FINDING)
_KEY_LANE = int(Node.KEY_LANE)
_KEY_COMPONENT = int(Node.KEY_COMPONENT)
_KEY_VALUE_LANE = int(Node.KEY_VALUE_LANE)
_FINAL = int(Node.FINAL)

_TARGET = int(Edge.TARGET)
_EDGE_CONJUNCT_FIRST = int(Edge.CONJUNCT_FIRST)
_REGISTER_FIRST = int(Edge.REGISTER_FIRST)

_ATOM_FIRST = int(Conjunct.ATOM_FIRST)
_PROGRAM_FIRST = int(Conjunct.PROGRAM_FIRST)
_PARAMETER_ROW = int(Conjunct.PARAMETER_ROW)
_LEAST = int(Conjunct.LEAST)
_GREATEST = int(Conjunct.GREATEST)

_START = int(Time.START)
_END = int(Time.END)
_FIRST_END = int(Time.FIRST_END)
_PRINT = int(Time.PRINT)
_OTHER_PRINT = int(Time.OTHER_PRINT)
_KEY = int(Time.KEY)
_STAMP = int(Time.STAMP)

_NODE = int(Link.NODE)
_BUCKET = int(Link.BUCKET)
_FOLLOWING = int(Link.FOLLOWING)
_PRECEDING = int(Link.PRECEDING)
_FREE_STACK = int(Link.FREE)
_TAKEN = int(Link.TAKEN)
_MADE = int(Link.MADE)

_HEAD = int(Place.HEAD)
_COUNT = int(Place.COUNT)
_NODE_STAMP = int(Place.STAMP)
_MASK = int(Place.MASK)
_NODE_FOLLOWING = int(Place.FOLLOWING)
_NODE_PRECEDING = int(Place.PRECEDING)

_FREE = int(Counter.FREE)
_SERIAL = int(Counter.SERIAL)
_SWEEP_AT = int(Counter.SWEEP_AT)
_ACTIVE_NODES = int(Counter.ACTIVE_NODES)
_EVENTS = int(Counter.EVENTS)
_STATIC_MATCHES = int(Counter.STATIC_MATCHES)
_NODES_READ = int(Counter.NODES_READ)
_INSTANCES_READ = int(Counter.INSTANCES_READ)
_CREATED = int(Counter.CREATED)
_RESULTS = int(Counter.RESULTS)
_EXPIRED = int(Counter.EXPIRED)
_FIRED = int(Counter.FIRED)
_EVERY_HEAD = int(Counter.EVERY_HEAD)

_DONE = int(Status.DONE)
_OUTPUT_FULL = int(Status.OUTPUT_FULL)
_INSTANCES_FULL = int(Status.INSTANCES_FULL)

_LOAD_INT = int(Opcode.LOAD_INT)
_LOAD_FLOAT = int(Opcode.LOAD_FLOAT)
_INT = int(Opcode.INT)
_FLOAT = int(Opcode.FLOAT)
_PUSH_NULL = int(Opcode.NULL)
_COMPARE_INT = int(Opcode.COMPARE_INT)
_COMPARE_FLOAT = int(Opcode.COMPARE_FLOAT)

_CURRENT = -1
_REGISTERS = -2
_NO_INSTANCE = -1
_IN_NODE_LIST = -1
_IN_NO_LIST = -2
_SWEEP_MIN = 512

_FIRST_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(32)
_OTHER_SHIFT = np.uint64(29)
_ONE = np.uint64(1)


@njit(cache=True, nogil=True, _nrt=False)
def mixed(folded, value):
    """A hash of what was folded so far and one more value; `cayuga_columns.mixed` is the same over columns."""
    word = (folded ^ np.uint64(value)) * _FIRST_FACTOR
    word ^= word >> _SHIFT
    word *= _SECOND_FACTOR
    return word ^ (word >> _OTHER_SHIFT)


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _apart(number):
    """`cayuga_columns.apart` of one number."""
    return (np.uint64(number) + _ONE) * _SECOND_FACTOR


# ── Predicates ─────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _static_holds(conjuncts, atoms, events, event, conjunct):
    """Whether the event satisfies what a conjunct says of it alone. Null satisfies nothing."""
    for atom in range(conjuncts[conjunct, _ATOM_FIRST], conjuncts[conjunct + 1, _ATOM_FIRST]):
        lane = atoms[atom, 0]
        value = events.ints[lane, event]
        inside = atoms[atom, 2] <= value and value <= atoms[atom, 3]
        if inside == (atoms[atom, 1] != 0) or events.int_nulls[lane, event]:
            return False
    return True


@njit(cache=True, nogil=True, _nrt=False)
def _run(code, values, registers, slots, events, instance, event, program, row):
    """Run a program; its value is left at the bottom of the stack."""
    steps = code.steps
    ints = values.ints
    floats = values.floats
    nulls = values.nulls
    top = -1
    for step in range(code.first[program], code.first[program + 1]):
        opcode = steps[step, 0]
        if opcode <= _PUSH_NULL:
            top += 1
            nulls[top] = 0
            if opcode <= _LOAD_FLOAT:
                component = steps[step, 1]
                lane = steps[step, 2]
                if component >= _CURRENT:
                    place = event if component == _CURRENT else slots[instance, component]
                    if opcode == _LOAD_INT:
                        ints[top] = events.ints[lane, place]
                        nulls[top] = events.int_nulls[lane, place]
                    else:
                        floats[top] = events.floats[lane, place]
                        nulls[top] = events.float_nulls[lane, place]
                elif component == _REGISTERS:
                    ints[top] = registers.ints[instance, lane]
                    floats[top] = registers.floats[instance, lane]
                    nulls[top] = registers.nulls[instance, lane]
                else:
                    ints[top] = code.parameter_ints[row, lane]
                    floats[top] = code.parameter_floats[row, lane]
                    nulls[top] = code.parameter_nulls[row, lane]
            elif opcode == _INT:
                ints[top] = code.int_constants[steps[step, 1]]
            elif opcode == _FLOAT:
                floats[top] = code.float_constants[steps[step, 1]]
            else:
                nulls[top] = 1
        elif opcode < _COMPARE_INT:
            top = _calculate(ints, floats, nulls, top, opcode)
        elif opcode <= _COMPARE_FLOAT:
            top -= 1
            nulls[top] |= nulls[top + 1]
            if opcode == _COMPARE_INT:
                order = int(ints[top] > ints[top + 1]) - int(ints[top] < ints[top + 1])
            else:
                order = _order_of_floats(floats[top], floats[top + 1])
            ints[top] = _compare(order, steps[step, 1])
        else:
            top = _decide(ints, floats, nulls, top, opcode)


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _programs_hold(automata, state, events, instance, event, conjunct):
    """Whether all programs of a conjunct give true."""
    conjuncts = automata.conjuncts
    for place in range(conjuncts[conjunct, _PROGRAM_FIRST], conjuncts[conjunct + 1, _PROGRAM_FIRST]):
        program, row = automata.programs[place], conjuncts[conjunct, _PARAMETER_ROW]
        _run(automata.code, state.values, state.registers, state.slots, events, instance, event, program, row)
        if state.values.nulls[0] or state.values.ints[0] == 0:
            return False
    return True


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _filter_mask(automata, places, serial, events, node, event):
    """Which conjuncts of a node's filter predicate the event satisfies by itself, as bits; asked once an event."""
    if places[node, _NODE_STAMP] == serial:
        return places[node, _MASK]
    first = automata.nodes[node, _FILTER_FIRST]
    mask = 0
    for conjunct in range(first, automata.nodes[node + 1, _FILTER_FIRST]):
        if _static_holds(automata.conjuncts, automata.atoms, events, event, conjunct):
            mask |= 1 << (conjunct - first)
    places[node, _NODE_STAMP] = serial
    places[node, _MASK] = mask
    return mask


# ── Lists ──────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _activate(nodes, an_entries, places, an_links, an_heads, counters, node):
    """The node has its first instance: events must find it."""
    counters[_ACTIVE_NODES] += 1
    if nodes[node, _FINDING] == _EVERY:
        head = counters[_EVERY_HEAD]
        places[node, _NODE_FOLLOWING] = head
        places[node, _NODE_PRECEDING] = -1
        if head >= 0:
            places[head, _NODE_PRECEDING] = node
        counters[_EVERY_HEAD] = node
    elif nodes[node, _FINDING] == _STATIC:
        for entry in range(nodes[node, _AN_FIRST], nodes[node + 1, _AN_FIRST]):
            bucket = an_entries[entry, 1]
            head = an_heads[bucket]
            an_links[entry, 0] = head
            an_links[entry, 1] = -1
            if head >= 0:
                an_links[head, 1] = entry
            an_heads[bucket] = entry


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _deactivate(nodes, an_entries, places, an_links, an_heads, counters, node):
    counters[_ACTIVE_NODES] -= 1
    if nodes[node, _FINDING] == _EVERY:
        before, after = places[node, _NODE_PRECEDING], places[node, _NODE_FOLLOWING]
        if before >= 0:
            places[before, _NODE_FOLLOWING] = after
        else:
            counters[_EVERY_HEAD] = after
        if after >= 0:
            places[after, _NODE_PRECEDING] = before
    elif nodes[node, _FINDING] == _STATIC:
        for entry in range(nodes[node, _AN_FIRST], nodes[node + 1, _AN_FIRST]):
            after, before = an_links[entry, 0], an_links[entry, 1]
            if before >= 0:
                an_links[before, 0] = after
            else:
                an_heads[an_entries[entry, 1]] = after
            if after >= 0:
                an_links[after, 1] = before


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _link(automata, state, events, instance):
    """Put an instance where events find it."""
    links = state.links
    node = links[instance, _NODE]
    if state.places[node, _COUNT] == 0:
        _activate(
            automata.nodes, automata.an_entries, state.places, state.an_links, state.an_heads, state.counters, node
        )
    state.places[node, _COUNT] += 1
    links[instance, _PRECEDING] = -1
    if automata.nodes[node, _FINDING] == _DYNAMIC:
        component, lane = automata.nodes[node, _KEY_COMPONENT], automata.nodes[node, _KEY_VALUE_LANE]
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
        bucket = np.int64(mixed(_apart(automata.nodes[node, _KEY_LANE]), value) & buckets)
        head = np.int64(state.ai_heads[bucket])
        state.ai_heads[bucket] = instance
        links[instance, _BUCKET] = bucket
    else:
        head = state.places[node, _HEAD]
        state.places[node, _HEAD] = instance
        links[instance, _BUCKET] = _IN_NODE_LIST
    links[instance, _FOLLOWING] = head
    if head >= 0:
        links[head, _PRECEDING] = instance


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _unlink(automata, state, instance):
    """Take an instance out of its list and give it back."""
    links = state.links
    node = links[instance, _NODE]
    bucket = links[instance, _BUCKET]
    if bucket != _IN_NO_LIST:
        before, after = links[instance, _PRECEDING], links[instance, _FOLLOWING]
        if before >= 0:
            links[before, _FOLLOWING] = after
        elif bucket == _IN_NODE_LIST:
            state.places[node, _HEAD] = after
        else:
            state.ai_heads[bucket] = after
        if after >= 0:
            links[after, _PRECEDING] = before
    state.places[node, _COUNT] -= 1
    if state.places[node, _COUNT] == 0:
        _deactivate(
            automata.nodes, automata.an_entries, state.places, state.an_links, state.an_heads, state.counters, node
        )
    links[instance, _NODE] = -1
    links[state.counters[_FREE], _FREE_STACK] = instance
    state.counters[_FREE] += 1


@njit(cache=True, nogil=True, _nrt=False)
def relink(automata, state, events):
    """Put all instances into lists again, after the lists were made anew."""
    for instance in range(len(state.links)):
        if state.links[instance, _NODE] >= 0:
            _link(automata, state, events, instance)


@njit(cache=True, nogil=True, _nrt=False)
def sweep(automata, state, now):
    """Drop instances that waited so long that nothing can come of them at or after a tick."""
    for instance in range(len(state.links)):
        node = state.links[instance, _NODE]
        if node >= 0 and now - state.times[instance, _START] + 1 > automata.life[node]:
            _unlink(automata, state, instance)
            state.counters[_EXPIRED] += 1
    live = len(state.links) - state.counters[_FREE]
    # What waited too long stands in the way of others; but looking for it reads all the room there is.
    state.counters[_SWEEP_AT] = max(_SWEEP_MIN, 2 * live, len(state.links) // 4)


# ── Edges ──────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _fire(automata, state, events, results, slot, instance, event, edge, made):
    """Send a copy of an instance, with the event, along an edge. Gives a status and how many were made."""
    target = automata.edges[edge, _TARGET]
    if automata.nodes[target, _FINAL]:
        place = results.count[0]
        if place == len(results.node):
            return _OUTPUT_FULL, made
        results.count[0] = place + 1
        results.node[place] = target
        times, slots = results.times, results.slots
        registers = results.registers
    else:
        free = state.counters[_FREE]
        if free == 0:
            return _INSTANCES_FULL, made
        place = np.int64(state.links[free - 1, _FREE_STACK])
        state.counters[_FREE] = free - 1
        state.links[made, _MADE] = place
        made += 1
        state.links[place, _NODE] = target
        times, slots = state.times, state.slots
        registers = state.registers
    times[place, _END] = events.times[event, _END]
    if instance == _NO_INSTANCE:
        for k in (_START, _FIRST_END, _PRINT, _OTHER_PRINT):
            times[place, k] = events.times[event, k]
    else:
        times[place, _START] = state.times[instance, _START]
        times[place, _FIRST_END] = state.times[instance, _FIRST_END]
        times[place, _PRINT] = state.times[instance, _PRINT] + events.times[event, _PRINT]
        times[place, _OTHER_PRINT] = state.times[instance, _OTHER_PRINT] + events.times[event, _OTHER_PRINT]
        for k in range(slot):
            slots[place, k] = state.slots[instance, k]
        for k in range(registers.ints.shape[1]):
            registers.ints[place, k] = state.registers.ints[instance, k]
            registers.floats[place, k] = state.registers.floats[instance, k]
            registers.nulls[place, k] = state.registers.nulls[instance, k]
    slots[place, slot] = event
    row = automata.conjuncts[automata.edges[edge, _EDGE_CONJUNCT_FIRST], _PARAMETER_ROW]
    for k in range(automata.edges[edge, _REGISTER_FIRST], automata.edges[edge + 1, _REGISTER_FIRST]):
        register = automata.registers[k, 0]
        program = automata.registers[k, 1]
        _run(automata.code, state.values, state.registers, state.slots, events, instance, event, program, row)
        registers.ints[place, register] = state.values.ints[0]
        registers.floats[place, register] = state.values.floats[0]
        registers.nulls[place, register] = state.values.nulls[0]
    return _DONE, made


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _candidates(automata, events, event, node, row):
    """The entries of a signature whose values the event has."""
    signatures = automata.signatures
    lane, other = signatures[row, 1], signatures[row, 2]
    if signatures[row, 0] < 0:
        return lane, other
    word = mixed(_apart(node), signatures[row, 0])
    if lane >= 0:
        if events.int_nulls[lane, event]:
            return np.int32(0), np.int32(0)
        word = mixed(word, events.ints[lane, event])
        if other >= 0:
            if events.int_nulls[other, event]:
                return np.int32(0), np.int32(0)
            word = mixed(word, events.ints[other, event])
    word |= _ONE
    last = np.uint64(len(automata.fr_keys) - 1)
    place = word >> _SHIFT & last
    while automata.fr_keys[place] != word and automata.fr_keys[place] != 0:
        place = (place + _ONE) & last
    return automata.fr_ranges[place, 0], automata.fr_ranges[place, 1]


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _leave(automata, state, events, results, node, instance, event, duration, made):
    """Try all edges out of a node, through the FR index where there are many."""
    counters = state.counters
    counters[_FIRED] += 1
    fired = counters[_FIRED]
    slot = automata.nodes[node, _SLOT]
    first_edge, last_edge = automata.nodes[node, _EDGE_FIRST], automata.nodes[node + 1, _EDGE_FIRST]
    for row in range(automata.nodes[node, _SIGNATURE_FIRST], automata.nodes[node + 1, _SIGNATURE_FIRST]):
        first, last = _candidates(automata, events, event, node, row)
        for entry in range(first, last):
            edge = automata.fr_entries[entry, 0]
            conjunct = automata.fr_entries[entry, 1]
            # Two nodes can share a hash.
            if edge < first_edge or edge >= last_edge:
                continue
            if not _static_holds(automata.conjuncts, automata.atoms, events, event, conjunct):
                continue
            counters[_STATIC_MATCHES] += 1
            if state.edge_stamps[edge] == fired:
                continue
            if duration < automata.conjuncts[conjunct, _LEAST] or duration > automata.conjuncts[conjunct, _GREATEST]:
                continue
            if _programs_hold(automata, state, events, instance, event, conjunct):
                state.edge_stamps[edge] = fired
                status, made = _fire(automata, state, events, results, slot, instance, event, edge, made)
                if status != _DONE:
                    return status, made
    return _DONE, made


# ── Events ─────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _takes(automata, state, events, instance, event, node, mask, duration):
    """Whether the filter predicate holds, so that the event takes the instance."""
    conjunct = automata.nodes[node, _FILTER_FIRST]
    while mask != 0:
        if mask & 1:
            least, greatest = automata.conjuncts[conjunct, _LEAST], automata.conjuncts[conjunct, _GREATEST]
            lasts = least <= duration and duration <= greatest
            if lasts and _programs_hold(automata, state, events, instance, event, conjunct):
                return True
        mask >>= 1
        conjunct += 1
    return False


@njit(cache=True, nogil=True, _nrt=False, forceinline=True)
def _read(automata, state, events, results, event, moment, taken, made):
    """One event: new instances at the start, then the instances that it may affect, list by list."""
    counters, links, places = state.counters, state.links, state.places
    counters[_SERIAL] += 1
    serial = counters[_SERIAL]
    begin, end = events.times[event, _START], events.times[event, _END]
    an_lists = len(automata.an_lanes)
    # List -1 is the start itself, 0 the nodes that every event looks at; then AN's lanes, then AI's.
    for number in range(-1, 1 + an_lists + len(automata.ai_lanes)):
        instance = -1
        cursor = np.int64(-1)
        dynamic = number > an_lists
        lane = 0
        value = np.int64(0)
        if number == 0:
            cursor = counters[_EVERY_HEAD]
        elif number > 0:
            lane = automata.ai_lanes[number - 1 - an_lists] if dynamic else automata.an_lanes[number - 1]
            if events.int_nulls[lane, event]:
                continue
            value = events.ints[lane, event]
            word = mixed(_apart(lane), value)
            if dynamic:
                cursor = np.int64(state.ai_heads[np.int64(word & np.uint64(len(state.ai_heads) - 1))])
            else:
                cursor = np.int64(state.an_heads[np.int64(word & np.uint64(automata.an_mask))])
        mask = 0
        node = np.int64(0)
        at_start = number < 0
        while True:
            if number < 0:
                if not at_start:
                    break
                at_start = False
            elif dynamic:
                instance = cursor
                if instance < 0:
                    break
                cursor = np.int64(links[instance, _FOLLOWING])
                node = np.int64(links[instance, _NODE])
                if state.times[instance, _KEY] != value or automata.nodes[node, _KEY_LANE] != lane:
                    continue
                mask = _filter_mask(automata, places, serial, events, node, event)
                if mask == 0:
                    continue
            else:
                if instance >= 0:
                    instance = links[instance, _FOLLOWING]
                while instance < 0 and cursor >= 0:
                    if number == 0:
                        node = cursor
                        cursor = places[node, _NODE_FOLLOWING]
                    else:
                        node = np.int64(automata.an_entries[cursor, 0])
                        cursor = np.int64(state.an_links[cursor, 0])
                    # A node may stand in several lists, one for each conjunct of its filter predicate.
                    if places[node, _NODE_STAMP] != serial:
                        counters[_NODES_READ] += 1
                        mask = _filter_mask(automata, places, serial, events, node, event)
                        if mask != 0:
                            instance = places[node, _HEAD]
                if instance < 0:
                    break
            is_dead = False
            duration = end - begin + 1
            if number >= 0:
                counters[_INSTANCES_READ] += 1
                # What begins before the instance has ended does not follow it: the filter edge lets it pass.
                if begin <= state.times[instance, _END]:
                    continue
                duration = end - state.times[instance, _START] + 1
                is_dead = duration > automata.life[node]
                if not is_dead and not _takes(automata, state, events, instance, event, node, mask, duration):
                    continue
                if state.times[instance, _STAMP] != moment:
                    state.times[instance, _STAMP] = moment
                    links[taken, _TAKEN] = instance
                    taken += 1
            if not is_dead:
                status, made = _leave(automata, state, events, results, node, instance, event, duration, made)
                if status != _DONE:
                    return status, taken, made
    return _DONE, taken, made


@njit(cache=True, nogil=True, _nrt=False)
def advance(automata, state, events, first, last, results, moment):
    """Read events from `first` on. Gives where it stopped, the status, and the number of the last moment."""
    position = first
    counters = state.counters
    while position < last:
        now = events.times[position, _END]
        if len(state.links) - counters[_FREE] >= counters[_SWEEP_AT]:
            sweep(automata, state, now)
        after = position
        moment += 1
        taken = 0
        made = 0
        found = results.count[0]
        free = counters[_FREE]
        status = _DONE
        while after < last and events.times[after, _END] == now and status == _DONE:
            status, taken, made = _read(automata, state, events, results, after, moment, taken, made)
            after += 1
        if status != _DONE:
            # Nothing of this moment has happened.
            results.count[0] = found
            counters[_FREE] = free
            for k in range(made):
                state.links[state.links[k, _MADE], _NODE] = -1
            return position, status, moment
        for k in range(made):
            _link(automata, state, events, state.links[k, _MADE])
        for k in range(taken):
            _unlink(automata, state, state.links[k, _TAKEN])
        counters[_EVENTS] += after - position
        counters[_CREATED] += made
        counters[_RESULTS] += results.count[0] - found
        position = after
    return position, _DONE, moment
