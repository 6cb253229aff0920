"""Predicates in arrays against their plain Python twin, on random programs with the values that hurt."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable

import numpy as np
import pytest

from ouzel.engines.sequence.tables import StackConjunct
from ouzel.kernels.events import Instances, new_instances
from ouzel.kernels.predicate_tables import (
    Alternative,
    Atom,
    Comparison,
    Instruction,
    Lane,
    LaneFlag,
    Opcode,
    Program,
    build_predicates,
    new_values,
)
from ouzel.kernels.predicates import holds
from tests.engines.sequence.predicate_twin import conjunct_holds

pytestmark = pytest.mark.compiled

CASES = 1_500 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 20_000

INTS = [0, 1, -1, 2, 3, -7, 10, 2**31, -(2**31), 2**62, -(2**62), 3_037_000_500, -3_037_000_500, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, -1.5, 2.5, 1e308, -1e308, 5e-324, 2.0**63, -(2.0**63), math.inf, -math.inf, math.nan]
COMPONENTS = 3

INT_BINARY = [op for op in Opcode if Opcode.ADD_INT <= op <= Opcode.MODULO_INT] + [
    Opcode.LEAST_INT,
    Opcode.GREATEST_INT,
]
FLOAT_BINARY = [op for op in Opcode if Opcode.ADD_FLOAT <= op <= Opcode.MODULO_FLOAT] + [
    Opcode.LEAST_FLOAT,
    Opcode.GREATEST_FLOAT,
]


def an_int(rng: random.Random, depth: int) -> list[Instruction]:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(
            [
                [Instruction(Opcode.LOAD_INT, lane=Lane(rng.randrange(COMPONENTS), rng.randrange(2)))],
                [Instruction(Opcode.INT, constant=rng.choice(INTS))],
                [Instruction(Opcode.NULL)],
            ]
        )
    below = depth - 1
    choices: list[Callable[[], list[Instruction]]] = [
        lambda: an_int(rng, below) + an_int(rng, below) + [Instruction(rng.choice(INT_BINARY))],
        lambda: an_int(rng, below) + an_int(rng, below) + [Instruction(Opcode.COALESCE)],
        lambda: [*an_int(rng, below), Instruction(rng.choice((Opcode.NEGATE_INT, Opcode.ABS_INT)))],
        lambda: a_condition(rng, below) + an_int(rng, below) + an_int(rng, below) + [Instruction(Opcode.CASE)],
    ]
    return rng.choice(choices)()


def a_float(rng: random.Random, depth: int) -> list[Instruction]:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(
            [
                [Instruction(Opcode.LOAD_FLOAT, lane=Lane(rng.randrange(COMPONENTS), 0, True))],
                [Instruction(Opcode.FLOAT, constant=rng.choice(FLOATS))],
                [Instruction(Opcode.NULL)],
            ]
        )
    below = depth - 1
    unary = (Opcode.NEGATE_FLOAT, Opcode.ABS_FLOAT)
    choices: list[Callable[[], list[Instruction]]] = [
        lambda: a_float(rng, below) + a_float(rng, below) + [Instruction(rng.choice(FLOAT_BINARY))],
        lambda: a_float(rng, below) + a_float(rng, below) + [Instruction(Opcode.COALESCE)],
        lambda: [*a_float(rng, below), Instruction(rng.choice(unary))],
        lambda: [*an_int(rng, below), Instruction(Opcode.TO_FLOAT)],
        lambda: a_condition(rng, below) + a_float(rng, below) + a_float(rng, below) + [Instruction(Opcode.CASE)],
    ]
    return rng.choice(choices)()


def a_condition(rng: random.Random, depth: int) -> list[Instruction]:
    below = max(depth - 1, 0)
    comparison = rng.choice(list(Comparison))
    choices: list[Callable[[], list[Instruction]]] = [
        lambda: an_int(rng, below) + an_int(rng, below) + [Instruction(Opcode.COMPARE_INT, comparison=comparison)],
        lambda: a_float(rng, below) + a_float(rng, below) + [Instruction(Opcode.COMPARE_FLOAT, comparison=comparison)],
        lambda: [*rng.choice((an_int, a_float))(rng, below), Instruction(Opcode.IS_NULL)],
    ]
    if depth > 0:
        both = rng.choice((Opcode.AND, Opcode.OR))
        choices += [
            lambda: a_condition(rng, below) + a_condition(rng, below) + [Instruction(both)],
            lambda: [*a_condition(rng, below), Instruction(Opcode.NOT)],
        ]
    return rng.choice(choices)()


def an_atom(rng: random.Random) -> Atom:
    floating = rng.random() < 0.5
    lanes = 1 if floating else 2
    left = Lane(rng.randrange(COMPONENTS), rng.randrange(lanes), floating)
    right = Lane(rng.randrange(COMPONENTS), rng.randrange(lanes), floating)
    constant = rng.choice(FLOATS) if floating else rng.choice(INTS)
    return Atom(left, rng.choice(list(Comparison)), right if rng.random() < 0.7 else constant)


def random_lanes(rng: random.Random) -> Instances:
    instances = new_instances(COMPONENTS, int_lanes=2, float_lanes=1)
    for slot in range(COMPONENTS):
        instances.int_lanes[:, slot] = rng.choices(INTS, k=2)
        instances.float_lanes[0, slot] = rng.choice(FLOATS)
    if rng.random() < 0.5:
        flags = [LaneFlag.VALUE] * 5 + [LaneFlag.NULL] * 2 + [LaneFlag.ABSENT]
        instances.lane_flags[:] = [rng.choices(flags, k=COMPONENTS) for _ in range(3)]
        instances.flagged[:] = instances.lane_flags.any(axis=1)
    return instances


def test_agrees_with_the_twin_on_random_conjuncts() -> None:
    rng = random.Random(1)
    bound = np.arange(COMPONENTS, dtype=np.int32)
    true = 0
    for case in range(CASES):
        alternatives: list[Alternative] = [
            an_atom(rng) if rng.random() < 0.3 else Program(tuple(a_condition(rng, rng.randrange(4))))
            for _ in range(rng.choice((1, 1, 2)))
        ]
        conjunct = StackConjunct(tuple(alternatives))
        instances = random_lanes(rng)
        predicates = build_predicates([(), conjunct.alternatives])
        found = bool(holds(predicates, instances, bound, new_values(predicates), 1))
        assert found == conjunct_holds(conjunct, instances, bound.tolist()), (case, conjunct)
        true += found
    assert CASES / 5 < true < CASES * 4 / 5


@pytest.mark.parametrize("opcode", [*INT_BINARY, *FLOAT_BINARY])
def test_every_pair_of_extreme_values(opcode: Opcode) -> None:
    """The result of an operator, compared with each extreme value and tested for null, is the twin's."""
    floating = opcode in FLOAT_BINARY
    values = FLOATS if floating else INTS
    push = Opcode.FLOAT if floating else Opcode.INT
    compare = Opcode.COMPARE_FLOAT if floating else Opcode.COMPARE_INT
    instances = new_instances(1)
    bound = np.zeros(1, np.int32)
    programs = []
    for left in values:
        for right in values:
            work = (Instruction(push, constant=left), Instruction(push, constant=right), Instruction(opcode))
            programs.append(Program((*work, Instruction(Opcode.IS_NULL))))
            for expected in values:
                for comparison in (Comparison.EQUAL, Comparison.LESS):
                    tail = (Instruction(push, constant=expected), Instruction(compare, comparison=comparison))
                    programs.append(Program((*work, *tail)))
    predicates = build_predicates([[program] for program in programs])
    scratch = new_values(predicates)
    for number, program in enumerate(programs):
        found = bool(holds(predicates, instances, bound, scratch, number))
        assert found == conjunct_holds(StackConjunct((program,)), instances, [0]), program


def test_a_wrong_operator_is_caught() -> None:
    rng = random.Random(2)
    bound = np.arange(COMPONENTS, dtype=np.int32)
    swapped = {Comparison.LESS: Comparison.LESS_EQUAL}
    caught = 0
    for _ in range(CASES // 10):
        atom = an_atom(rng)
        wrong = atom._replace(comparison=swapped.get(atom.comparison, atom.comparison))
        instances = random_lanes(rng)
        predicates = build_predicates([[wrong]])
        found = bool(holds(predicates, instances, bound, new_values(predicates), 0))
        caught += found != conjunct_holds(StackConjunct((atom,)), instances, bound.tolist())
    assert caught > 0


def test_a_program_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(AssertionError, match="too few operands"):
        build_predicates([[Program((Instruction(Opcode.NULL), Instruction(Opcode.AND)))]])
    with pytest.raises(AssertionError, match="leaves one value"):
        build_predicates([[Program((Instruction(Opcode.NULL), Instruction(Opcode.NULL)))]])
