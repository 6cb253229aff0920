"""Tests predicates of automata on an event and an instance: ranges over lanes, and programs for the rest."""

from __future__ import annotations

import numpy as np

from ouzel.engines.automata.tables import Conjunct, Place, Wait
from ouzel.kernels.jit import helper
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
    """A hash of the previous hash and one more value; `columns.mixed` is the same over columns."""
    word = (folded ^ np.uint64(value)) * _FIRST_FACTOR
    word ^= word >> _SHIFT
    word *= _SECOND_FACTOR
    return word ^ (word >> _OTHER_SHIFT)


@helper(inline=True)
def apart(number):
    """`columns.apart` of one number."""
    return (np.uint64(number) + _ONE) * _SECOND_FACTOR


@helper(inline=True)
def static_holds(conjuncts, atoms, events, event, conjunct):
    """Whether the event satisfies the static part of a conjunct. Null satisfies nothing."""
    for atom in range(conjuncts[conjunct, Conjunct.ATOM_FIRST], conjuncts[conjunct, Conjunct.ATOM_LAST]):
        lane = atoms[atom, 0]
        value = events.ints[lane, event]
        inside = atoms[atom, 2] <= value and value <= atoms[atom, 3]
        if inside == (atoms[atom, 1] != 0) or events.int_nulls[lane, event]:
            return False
    return True


@helper
def run(code, values, registers, slots, events, instance, event, program, row):
    """Run a program; its value is left at the bottom of the stack."""
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
    """The value that one step of a program loads, and whether it is null."""
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

    Most of them compare two values and are evaluated here: a call passes all arrays, which costs more than they do.
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
    """The conjuncts of a filter predicate that the event satisfies by itself, as bits; computed once per event."""
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
    """Whether the filter predicate holds, so that the event takes the instance."""
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
