"""The kernel of merged automata: events move instances along edges (CESAR 3.2, Cayuga 4.3). Predicates are ranges over
lanes of the event; what ranges cannot express is a program.

The instances change only after all events of a timestamp have been read, so simultaneous events never see each other.
An event takes an instance if the filter predicate holds. The instance is then removed, and the event sends a copy of it
along every edge whose predicate it satisfies. Copies with the same wait become one instance with several members. If an
array is full within a timestamp, the timestamp has changed nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.automata.tables import (
    SWEEP_MIN,
    Automata,
    Conjunct,
    Counter,
    Edge,
    Entry,
    EntryFlag,
    Events,
    Finding,
    Link,
    Node,
    Place,
    Results,
    Signature,
    Slot,
    State,
    Status,
    Time,
    Wait,
)
from ouzel.kernels.arrays import INT64_MIN, Matrix
from ouzel.kernels.jit import helper, kernel
from ouzel.kernels.predicate_tables import Opcode
from ouzel.kernels.predicates import apply, compare, order_of_floats

_CURRENT = -1
_REGISTERS = -2

_FIRST_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(32)
_OTHER_SHIFT = np.uint64(29)
_ONE = np.uint64(1)


@helper
def mixed(folded, value):
    """A hash of an earlier hash and one more value. `columns.mixed` does the same for columns."""
    word = (folded ^ np.uint64(value)) * _FIRST_FACTOR
    word ^= word >> _SHIFT
    word *= _SECOND_FACTOR
    return word ^ (word >> _OTHER_SHIFT)


@helper(inline=True)
def apart(number):
    """Like `columns.apart`, for one number."""
    return (np.uint64(number) + _ONE) * _SECOND_FACTOR


@helper(inline=True)
def static_holds(conjuncts, atoms, events, event, conjunct):
    """Whether an event satisfies the static part of a conjunct. A null satisfies nothing."""
    for atom in range(conjuncts[conjunct, Conjunct.ATOM_FIRST], conjuncts[conjunct, Conjunct.ATOM_LAST]):
        lane = atoms[atom, 0]
        value = events.ints[lane, event]
        inside = atoms[atom, 2] <= value and value <= atoms[atom, 3]
        if inside == (atoms[atom, 1] != 0) or events.int_nulls[lane, event]:
            return False
    return True


@helper
def run(code, values, registers, slots, events, instance, event, program, row):
    """Run a program. It leaves its value at the bottom of the stack."""
    steps = code.steps
    ints = values.ints
    floats = values.floats
    nulls = values.nulls
    top = -1
    for step in range(code.first[program], code.first[program + 1]):
        opcode = steps[step, 0]
        if opcode <= Opcode.NULL:
            top += 1
            nulls[top] = 0
            if opcode <= Opcode.LOAD_FLOAT:
                component = steps[step, 1]
                lane = steps[step, 2]
                if component >= _CURRENT:
                    place = event if component == _CURRENT else slots[instance, component]
                    if opcode == Opcode.LOAD_INT:
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
            elif opcode == Opcode.INT:
                ints[top] = code.int_constants[steps[step, 1]]
            elif opcode == Opcode.FLOAT:
                floats[top] = code.float_constants[steps[step, 1]]
            else:
                nulls[top] = 1
        else:
            top = apply(ints, floats, nulls, top, opcode, steps[step, 1])


@helper(inline=True)
def _loaded_int(code, registers, slots, events, instance, event, step, row):
    """(value, is null): what one step of a program loads."""
    component, lane = code.steps[step, 1], code.steps[step, 2]
    if component >= _CURRENT:
        place = event if component == _CURRENT else slots[instance, component]
        return events.ints[lane, place], events.int_nulls[lane, place]
    if component == _REGISTERS:
        return registers.ints[instance, lane], registers.nulls[instance, lane]
    return code.parameter_ints[row, lane], code.parameter_nulls[row, lane]


@helper(inline=True)
def _loaded_float(code, registers, slots, events, instance, event, step, row):
    component, lane = code.steps[step, 1], code.steps[step, 2]
    if component >= _CURRENT:
        place = event if component == _CURRENT else slots[instance, component]
        return events.floats[lane, place], events.float_nulls[lane, place]
    if component == _REGISTERS:
        return registers.floats[instance, lane], registers.nulls[instance, lane]
    return code.parameter_floats[row, lane], code.parameter_nulls[row, lane]


@helper(inline=True)
def programs_hold(automata, state, events, instance, event, conjunct):
    """Whether all programs of a conjunct give true.

    Most programs compare two values and are evaluated here, because a call passes all arrays and costs more than the
    comparison.
    """
    conjuncts, code = automata.conjuncts, automata.code
    row = conjuncts[conjunct, Conjunct.PARAMETER_ROW]
    registers, slots = state.registers, state.slots
    for place in range(conjuncts[conjunct, Conjunct.PROGRAM_FIRST], conjuncts[conjunct + 1, Conjunct.PROGRAM_FIRST]):
        program = automata.programs[place]
        plain = code.plain[program]
        step = code.first[program]
        if plain == 0:
            run(code, state.values, registers, slots, events, instance, event, program, row)
            if state.values.nulls[0] or state.values.ints[0] == 0:
                return False
        elif plain == 1:
            left, null = _loaded_int(code, registers, slots, events, instance, event, step, row)
            right, other_null = _loaded_int(code, registers, slots, events, instance, event, step + 1, row)
            order = int(left > right) - int(left < right)
            if null or other_null or not compare(order, code.steps[step + 2, 1]):
                return False
        else:
            number, null = _loaded_float(code, registers, slots, events, instance, event, step, row)
            other, other_null = _loaded_float(code, registers, slots, events, instance, event, step + 1, row)
            if null or other_null or not compare(order_of_floats(number, other), code.steps[step + 2, 1]):
                return False
    return True


@helper(inline=True)
def filter_mask(automata, places, serial, events, wait, event):
    """The conjuncts of a wait's filter predicate whose static part an event satisfies, as bits. Computed once per
    event.
    """
    if places[wait, Place.STAMP] == serial:
        return places[wait, Place.MASK]
    first = automata.waits[wait, Wait.CONJUNCT_FIRST]
    mask = 0
    for conjunct in range(first, automata.waits[wait + 1, Wait.CONJUNCT_FIRST]):
        if static_holds(automata.conjuncts, automata.atoms, events, event, conjunct):
            mask |= 1 << (conjunct - first)
    places[wait, Place.STAMP] = serial
    places[wait, Place.MASK] = mask
    return mask


@helper(inline=True)
def takes(automata, state, events, instance, event, wait, mask, duration):
    """Whether an instance's filter predicate holds for an event, so that the event takes the instance."""
    conjunct = automata.waits[wait, Wait.CONJUNCT_FIRST]
    while mask != 0:
        if mask & 1:
            least, greatest = (
                automata.conjuncts[conjunct, Conjunct.LEAST],
                automata.conjuncts[conjunct, Conjunct.GREATEST],
            )
            lasts = least <= duration and duration <= greatest
            if lasts and programs_hold(automata, state, events, instance, event, conjunct):
                return True
        mask >>= 1
        conjunct += 1
    return False


_IN_WAIT_LIST = -1
_IN_NO_LIST = -2


@helper(inline=True)
def following(highest, levels, entry, last, value):
    """The first entry, from `entry` on, whose range ends at or after a value; `last` if no entry before it does."""
    level = 0
    while entry << 3 * level < last:
        if highest[levels[level] + entry] >= value:
            if level == 0:
                return entry
            level -= 1
            entry <<= 3
            continue
        entry += 1
        while entry & 7 == 0 and level + 1 < len(levels):
            entry >>= 3
            level += 1
    return last


@helper(inline=True)
def _raise(highest, levels, entry, high):
    """Let the AN index find an entry for values up to `high`."""
    for level in range(len(levels)):
        if highest[levels[level] + entry] >= high:
            break
        highest[levels[level] + entry] = high
        entry >>= 3


@helper(inline=True)
def _lower(highest, levels, entry):
    """Stop the AN index from finding an entry."""
    highest[entry] = INT64_MIN
    for level in range(1, len(levels)):
        entry >>= 3
        first = levels[level - 1] + (entry << 3)
        greatest = highest[first]
        for child in range(first + 1, first + 8):
            greatest = max(greatest, highest[child])
        if highest[levels[level] + entry] == greatest:
            break
        highest[levels[level] + entry] = greatest


@helper(inline=True)
def _activate(automata, state, wait):
    """Let the AN index find a wait, which now has its first instance."""
    state.counters[Counter.ACTIVE_WAITS] += 1
    highest, levels = state.an_highest, automata.an.levels
    only = state.places[wait, Place.AN_ENTRY]
    if only > 0:
        _raise(highest, levels, only - 1, state.places[wait, Place.AN_HIGH])
        return
    for k in range(automata.waits[wait, Wait.AN_FIRST], automata.waits[wait + 1, Wait.AN_FIRST]):
        entry = np.int64(automata.an_entries[k])
        _raise(highest, levels, entry, automata.an.highest[entry])


@helper(inline=True)
def _deactivate(automata, state, wait):
    state.counters[Counter.ACTIVE_WAITS] -= 1
    highest, levels = state.an_highest, automata.an.levels
    only = state.places[wait, Place.AN_ENTRY]
    if only > 0:
        _lower(highest, levels, only - 1)
        return
    for k in range(automata.waits[wait, Wait.AN_FIRST], automata.waits[wait + 1, Wait.AN_FIRST]):
        _lower(highest, levels, np.int64(automata.an_entries[k]))


@helper(inline=True)
def link(automata, state, events, instance):
    """Put an instance into the list through which events find it."""
    links, waits = state.links, automata.waits
    wait = links[instance, Link.WAIT]
    if state.places[wait, Place.COUNT] == 0:
        _activate(automata, state, wait)
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
    """Remove an instance from its list and free it."""
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
        _deactivate(automata, state, wait)
    links[instance, Link.NODE] = -1
    links[state.counters[Counter.FREE], Link.FREE] = instance
    state.counters[Counter.FREE] += 1


@helper
def _order_of_instances(state, events, content, left, right):
    """Compare two instances of one timestamp: negative, zero or positive. Zero if they have the same future."""
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
        order = order_of_floats(registers.floats[left, k], registers.floats[right, k])
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
    """Restore a heap of instances below its root."""
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
    """Of each set of equal instances of a timestamp, free all but one. Returns the number of instances that remain."""
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
def relink(automata: Automata, state: State, events: Events):
    """Put all instances into new lists."""
    for instance in range(len(state.links)):
        if state.links[instance, Link.NODE] >= 0:
            link(automata, state, events, instance)


@kernel
def sweep(automata: Automata, state: State, now: int):
    """Drop the instances that can lead to no result at or after tick `now`."""
    links = state.links
    for instance in range(len(links)):
        if links[instance, Link.NODE] >= 0:
            wait = links[instance, Link.WAIT]
            if now - state.times[instance, Time.START] + 1 > automata.life[wait]:
                unlink(automata, state, instance)
                state.counters[Counter.EXPIRED] += links[instance, Link.MEMBER_COUNT]
    live = len(links) - state.counters[Counter.FREE]
    # Expired instances take room from others; but searching for them reads all instances.
    state.counters[Counter.SWEEP_AT] = max(SWEEP_MIN, 2 * live, len(links) // 4)


@kernel
def gather_members(links: Matrix[np.int32], members: Matrix[np.int32], target: Matrix[np.int32]):
    """Copy the members of live instances to another array, so that those of each instance are adjacent. Returns their
    number.
    """
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
def members_of(
    links: Matrix[np.int32],
    members: Matrix[np.int32],
    live: NDArray[np.int64],
    rows: NDArray[np.int64],
    nodes: NDArray[np.int32],
):
    """Write one row for each member of the instances in `live`: the instance and the node of the member."""
    place = 0
    for k in range(len(live)):
        member = links[live[k], Link.MEMBER_HEAD]
        while member >= 0:
            rows[place] = live[k]
            nodes[place] = members[member, 0]
            place += 1
            member = members[member, 1]


FLAG_BITS = 4


_NO_INSTANCE = -1
_LOWER_HALF = 2**32 - 1
_NO_BITS = np.uint64(0)


_SIX = np.uint64(6)
_SIXTY_THREE = np.uint64(63)


# ── Edges ──────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def fire(automata, state, events, results, slot, instance, event, entry, made):
    """Send a copy of an instance along the edge of an entry, together with the event. Returns the status and the number
    of copies made so far.
    """
    counters = state.counters
    target = np.int32(automata.fr_entries[entry, Entry.TARGET] & _LOWER_HALF)
    wait = automata.fr_entries[entry, Entry.TARGET] >> 32
    carries = automata.fr_entries[entry, Entry.CONJUNCT] & EntryFlag.REGISTERS != 0
    if wait < 0:
        place = results.count[0]
        if place == len(results.node):
            return Status.OUTPUT_FULL, made
        results.count[0] = place + 1
        results.node[place] = target
        times, slots = results.times, results.slots
        registers = results.registers
    else:
        member = counters[Counter.MEMBERS]
        if member == len(state.members):
            return Status.MEMBERS_FULL, made
        state.members[member, 0] = target
        if not carries and state.places[wait, Place.OPEN_FOR] == counters[Counter.FIRED]:
            # The same instance with the same event already has this wait: only add the node.
            place = state.places[wait, Place.INSTANCE]
            state.members[member, 1] = state.links[place, Link.MEMBER_HEAD]
            state.links[place, Link.MEMBER_HEAD] = member
            state.links[place, Link.MEMBER_COUNT] += 1
            counters[Counter.MEMBERS] = member + 1
            return Status.DONE, made
        free = counters[Counter.FREE]
        if free == 0:
            return Status.INSTANCES_FULL, made
        place = np.int64(state.links[free - 1, Link.FREE])
        counters[Counter.FREE] = free - 1
        counters[Counter.MEMBERS] = member + 1
        state.members[member, 1] = -1
        state.links[made, Link.MADE] = place
        made += 1
        state.links[place, Link.NODE] = target
        state.links[place, Link.WAIT] = wait
        state.links[place, Link.MEMBER_HEAD] = member
        state.links[place, Link.MEMBER_COUNT] = 1
        if not carries:
            state.places[wait, Place.OPEN_FOR] = counters[Counter.FIRED]
            state.places[wait, Place.INSTANCE] = place
        times, slots = state.times, state.slots
        registers = state.registers
    times[place, Time.END] = events.times[event, Time.END]
    if instance == _NO_INSTANCE:
        for k in (Time.START, Time.FIRST_END, Time.PRINT, Time.OTHER_PRINT):
            times[place, k] = events.times[event, k]
    else:
        times[place, Time.START] = state.times[instance, Time.START]
        times[place, Time.FIRST_END] = state.times[instance, Time.FIRST_END]
        times[place, Time.PRINT] = state.times[instance, Time.PRINT] + events.times[event, Time.PRINT]
        times[place, Time.OTHER_PRINT] = state.times[instance, Time.OTHER_PRINT] + events.times[event, Time.OTHER_PRINT]
        for k in range(slot):
            slots[place, k] = state.slots[instance, k]
        for k in range(registers.ints.shape[1]):
            registers.ints[place, k] = state.registers.ints[instance, k]
            registers.floats[place, k] = state.registers.floats[instance, k]
            registers.nulls[place, k] = state.registers.nulls[instance, k]
    slots[place, slot] = event
    if automata.content_lane >= 0:
        for k in range(slot + 1, slots.shape[1]):
            slots[place, k] = 0
    if carries:
        edges, edge = automata.edges, automata.fr_entries[entry, Entry.EDGE]
        row = automata.conjuncts[automata.fr_entries[entry, Entry.CONJUNCT] >> FLAG_BITS, Conjunct.PARAMETER_ROW]
        for k in range(edges[edge, Edge.REGISTER_FIRST], edges[edge + 1, Edge.REGISTER_FIRST]):
            register = automata.registers[k, 0]
            program = automata.registers[k, 1]
            run(automata.code, state.values, state.registers, state.slots, events, instance, event, program, row)
            # The value of the other kind there is left over from another program.
            is_float = automata.registers[k, 2] != 0
            registers.ints[place, register] = 0 if is_float else state.values.ints[0]
            registers.floats[place, register] = state.values.floats[0] if is_float else 0.0
            registers.nulls[place, register] = state.values.nulls[0]
    return Status.DONE, made


@helper(inline=True)
def candidates(index, events, event, row):
    """(first, last, value): the entries of a signature that have the values of an event, `last` excluded. Their ranges
    must also end at or after `value`, which is INT64_MIN for entries without a range.
    """
    signatures = index.signatures
    lane, other, range_lane = (
        signatures[row, Signature.LANE],
        signatures[row, Signature.OTHER_LANE],
        signatures[row, Signature.RANGE_LANE],
    )
    if signatures[row, Signature.SCANNED]:
        return np.int64(lane), np.int64(other), INT64_MIN
    none = np.int64(0)
    word = index.words[row]
    value = other_value = np.int64(0)
    if lane >= 0:
        if events.int_nulls[lane, event]:
            return none, none, INT64_MIN
        value = events.ints[lane, event]
        word = mixed(word, value)
        if other >= 0:
            if events.int_nulls[other, event]:
                return none, none, INT64_MIN
            other_value = events.ints[other, event]
            word = mixed(word, other_value)
    bits = index.bits
    bit = word & np.uint64(64 * len(bits) - 1)
    if bits[bit >> _SIX] >> (bit & _SIXTY_THREE) & _ONE == 0:
        return none, none, INT64_MIN
    table = index.table
    mask = np.uint64(len(table) - 1)
    place = word >> _SHIFT & mask
    while table[place, Slot.SIGNATURE] != 0:
        if (
            table[place, Slot.SIGNATURE] == row + 1
            and table[place, Slot.VALUE] == value
            and table[place, Slot.OTHER_VALUE] == other_value
        ):
            break
        place = (place + _ONE) & mask
    if table[place, Slot.SIGNATURE] == 0:
        return none, none, INT64_MIN
    first, last = table[place, Slot.ENTRIES] >> 32, table[place, Slot.ENTRIES] & _LOWER_HALF
    if range_lane < 0:
        return first, last, INT64_MIN
    if events.int_nulls[range_lane, event]:
        return none, none, INT64_MIN
    value = events.ints[range_lane, event]
    left, right = first, last
    while left < right:
        middle = (left + right) >> 1
        if index.lows[middle] <= value:
            left = middle + 1
        else:
            right = middle
    return first, left, value


@helper(inline=True)
def entry_holds(automata, events, event, entry):
    """Whether an event satisfies the static part of an entry's conjunct. A null satisfies nothing."""
    entries = automata.fr_entries
    lanes = entries[entry, Entry.LANES]
    if lanes != 0:
        lane = (lanes & _LOWER_HALF) - 1
        value = events.ints[lane, event]
        # These are unpredictable, so one jump is cheaper than six.
        holds = (entries[entry, Entry.LOW] <= value) & (value <= entries[entry, Entry.HIGH])
        holds &= events.int_nulls[lane, event] == 0
        lane = (lanes >> 32) - 1
        if lane >= 0:
            value = events.ints[lane, event]
            holds &= (entries[entry, Entry.OTHER_LOW] <= value) & (value <= entries[entry, Entry.OTHER_HIGH])
            holds &= events.int_nulls[lane, event] == 0
        if not holds:
            return False
    if entries[entry, Entry.CONJUNCT] & EntryFlag.ATOMS:
        return static_holds(
            automata.conjuncts, automata.atoms, events, event, entries[entry, Entry.CONJUNCT] >> FLAG_BITS
        )
    return True


@helper(inline=True)
def gate_bits(automata, events, event):
    """The bits of an event's values in two words. A node whose gate has none of these bits has no edge that the event
    can take. A gate with all bits lets every event pass.
    """
    bits, other_bits = _ONE, _NO_BITS
    for k in range(len(automata.gate_lanes)):
        lane = automata.gate_lanes[k]
        if events.int_nulls[lane, event] == 0:
            word = mixed(apart(lane), events.ints[lane, event])
            bit = _ONE << (word & _SIXTY_THREE)
            if word >> _SIXTY_THREE == _NO_BITS:
                bits |= bit
            else:
                other_bits |= bit
    return bits, other_bits


@helper(inline=True)
def leave(automata, state, events, results, node, instance, event, bits, other_bits, duration, made):
    """Try all edges out of a node. If they are many, the FR index finds those to try."""
    counters = state.counters
    if automata.gates[node, 0] & bits | automata.gates[node, 1] & other_bits == _NO_BITS:
        return Status.DONE, made
    fired = counters[Counter.FIRED]
    slot = automata.nodes[node, Node.SLOT]
    for row in range(automata.nodes[node, Node.SIGNATURE_FIRST], automata.nodes[node + 1, Node.SIGNATURE_FIRST]):
        cursor, last, value = candidates(automata.fr, events, event, row)
        while True:
            if value != INT64_MIN:
                cursor = following(automata.fr.highest, automata.fr.levels, cursor, last, value)
            if cursor >= last:
                break
            entry = cursor
            cursor += 1
            if not entry_holds(automata, events, event, entry):
                continue
            counters[Counter.STATIC_MATCHES] += 1
            flags = automata.fr_entries[entry, Entry.CONJUNCT]
            if flags & EntryFlag.SIBLINGS and state.edge_stamps[automata.fr_entries[entry, Entry.EDGE]] == fired:
                continue
            if flags & EntryFlag.PROGRAMS:
                conjunct = flags >> FLAG_BITS
                least, greatest = (
                    automata.conjuncts[conjunct, Conjunct.LEAST],
                    automata.conjuncts[conjunct, Conjunct.GREATEST],
                )
                if duration < least or duration > greatest:
                    continue
                if not programs_hold(automata, state, events, instance, event, conjunct):
                    continue
            if flags & EntryFlag.SIBLINGS:
                state.edge_stamps[automata.fr_entries[entry, Entry.EDGE]] = fired
            if (
                automata.fr_entries[entry, Entry.TARGET] & _LOWER_HALF == node
                and flags & EntryFlag.REGISTERS == 0
                and state.links[instance, Link.MEMBER_COUNT] == 1
                and state.members[state.links[instance, Link.MEMBER_HEAD], 1] == -1
                and automata.waits[state.links[instance, Link.WAIT], Wait.STEADY]
            ):
                # One iteration of a loop that keeps the wait: the instance changes in place, after this timestamp.
                state.members[state.links[instance, Link.MEMBER_HEAD], 1] = -2 - event
                continue
            status, made = fire(automata, state, events, results, slot, instance, event, entry, made)
            if status != Status.DONE:
                return status, made
    return Status.DONE, made


# ── Events ─────────────────────────────────────────────────────────────────────────────────────────


@helper(inline=True)
def _read(automata, state, events, results, event, stamp, taken, made):
    """Read one event: make new instances at the start, then try the lists of instances that the event may affect."""
    counters, links, places = state.counters, state.links, state.places
    counters[Counter.SERIAL] += 1
    serial = counters[Counter.SERIAL]
    begin, end = events.times[event, Time.START], events.times[event, Time.END]
    bits, other_bits = gate_bits(automata, events, event)
    an_lists = len(automata.an.signatures)
    # List -1 is the start itself; then those of AN's signatures, then those of AI's lanes.
    for number in range(-1, an_lists + len(automata.ai_lanes)):
        instance = -1
        cursor, last = np.int64(-1), np.int64(0)
        dynamic = number >= an_lists
        lane = 0
        value = np.int64(0)
        if dynamic:
            lane = automata.ai_lanes[number - an_lists]
            if events.int_nulls[lane, event]:
                continue
            value = events.ints[lane, event]
            word = mixed(apart(lane), value)
            cursor = np.int64(state.ai_heads[np.int64(word & np.uint64(len(state.ai_heads) - 1))])
        elif number >= 0:
            cursor, last, value = candidates(automata.an, events, event, number)
            if automata.an.signatures[number, Signature.RANGE_LANE] < 0:
                # Waits without instances have INT64_MIN, so this skips them.
                value = np.int64(INT64_MIN + 1)
        mask = 0
        wait = np.int64(0)
        at_start = number < 0
        while True:
            node, member = np.int64(0), np.int64(-1)
            duration = end - begin + 1
            if number < 0:
                if not at_start:
                    break
                at_start = False
            else:
                if dynamic:
                    instance = cursor
                    if instance < 0:
                        break
                    cursor = np.int64(links[instance, Link.FOLLOWING])
                    wait = np.int64(links[instance, Link.WAIT])
                    if state.times[instance, Time.KEY] != value or automata.waits[wait, Wait.KEY_LANE] != lane:
                        continue
                    mask = filter_mask(automata, places, serial, events, wait, event)
                    if mask == 0:
                        continue
                else:
                    if instance >= 0:
                        instance = np.int64(links[instance, Link.FOLLOWING])
                    while instance < 0:
                        cursor = following(state.an_highest, automata.an.levels, cursor, last, value)
                        if cursor >= last:
                            break
                        wait = np.int64(automata.an_waits[cursor])
                        cursor += 1
                        # A wait may be in several lists, one for each conjunct of its filter predicate.
                        if places[wait, Place.STAMP] != serial:
                            counters[Counter.WAITS_READ] += 1
                            mask = filter_mask(automata, places, serial, events, wait, event)
                            if mask != 0:
                                instance = places[wait, Place.HEAD]
                    if instance < 0:
                        break
                counters[Counter.BUNDLES_READ] += 1
                counters[Counter.INSTANCES_READ] += links[instance, Link.MEMBER_COUNT]
                # An event that begins before the instance has ended does not follow it: the filter edge ignores it.
                if begin <= state.times[instance, Time.END]:
                    continue
                duration = end - state.times[instance, Time.START] + 1
                is_dead = duration > automata.life[wait]
                if not is_dead and not takes(automata, state, events, instance, event, wait, mask, duration):
                    continue
                gone = is_dead or automata.waits[wait, Wait.STAYS] == 0
                if gone and state.times[instance, Time.STAMP] != stamp:
                    state.times[instance, Time.STAMP] = stamp
                    links[taken, Link.TAKEN] = instance
                    taken += 1
                if is_dead:
                    continue
                member = np.int64(links[instance, Link.MEMBER_HEAD])
                node = np.int64(state.members[member, 0])
                member = np.int64(state.members[member, 1])
            counters[Counter.FIRED] += 1
            while True:
                status, made = leave(
                    automata, state, events, results, node, instance, event, bits, other_bits, duration, made
                )
                if status != Status.DONE:
                    return status, taken, made
                if member < 0:
                    break
                node = np.int64(state.members[member, 0])
                member = np.int64(state.members[member, 1])
    return Status.DONE, taken, made


@helper(inline=True)
def _iterate(automata, state, events, instance, event):
    """Apply the event to an instance as one more iteration of a fold."""
    times = state.times
    state.members[state.links[instance, Link.MEMBER_HEAD], 1] = -1
    state.slots[instance, automata.nodes[state.links[instance, Link.NODE], Node.SLOT]] = event
    times[instance, Time.END] = events.times[event, Time.END]
    times[instance, Time.PRINT] += events.times[event, Time.PRINT]
    times[instance, Time.OTHER_PRINT] += events.times[event, Time.OTHER_PRINT]
    state.counters[Counter.CREATED] += 1


@kernel
def advance(automata: Automata, state: State, events: Events, first: int, last: int, results: Results, stamp: int):
    """Read events from `first` on. Returns the position where it stopped, the status, and the number of the last
    timestamp.
    """
    position = first
    counters = state.counters
    while position < last:
        now = events.times[position, Time.END]
        if len(state.links) - counters[Counter.FREE] >= counters[Counter.SWEEP_AT]:
            sweep(automata, state, now)
        after = position
        stamp += 1
        taken = 0
        made = 0
        found = results.count[0]
        free = counters[Counter.FREE]
        members = counters[Counter.MEMBERS]
        status = Status.DONE
        while after < last and events.times[after, Time.END] == now and status == Status.DONE:
            status, taken, made = _read(automata, state, events, results, after, stamp, taken, made)
            after += 1
        if status != Status.DONE:
            # Nothing of this timestamp has happened.
            results.count[0] = found
            counters[Counter.FREE] = free
            counters[Counter.MEMBERS] = members
            for k in range(made):
                state.links[state.links[k, Link.MADE], Link.NODE] = -1
            for k in range(taken):
                head = state.links[state.links[k, Link.TAKEN], Link.MEMBER_HEAD]
                state.members[head, 1] = max(state.members[head, 1], np.int32(-1))
            return position, status, stamp
        if automata.content_lane >= 0 and made > 1:
            made = keep_distinct(state, events, automata.content_lane, made)
        for k in range(made):
            link(automata, state, events, state.links[k, Link.MADE])
        for k in range(taken):
            instance = state.links[k, Link.TAKEN]
            following = state.members[state.links[instance, Link.MEMBER_HEAD], 1]
            if following < -1:
                _iterate(automata, state, events, instance, -2 - following)
            else:
                unlink(automata, state, instance)
        counters[Counter.EVENTS] += after - position
        counters[Counter.CREATED] += counters[Counter.MEMBERS] - members
        counters[Counter.RESULTS] += results.count[0] - found
        position = after
    return position, Status.DONE, stamp
