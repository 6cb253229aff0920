"""Predicates between events as arrays: the planner writes them, `predicates.py` runs them.

A *conjunct* is a disjunction of *alternatives*. It holds if one of them is true; unknown is not true. An alternative is
one comparison. By the rule about absent attributes, it is true if it reads a lane that the event's type does not have.
Most comparisons are an `Atom`: a lane compared with a lane or a constant. All others are a `Program`, a postfix
sequence of instructions over int64 and float64 values that may be null. Nothing here needs numba.

Lanes are the columns of instances; int64 and float64 lanes are numbered separately. A value that depends on one event
should be a lane, computed before. Event times that a predicate reads are int64 lanes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import Matrix


class LaneFlag(IntEnum):
    """Whether a lane has a value at a slot."""

    VALUE = 0
    NULL = 1
    ABSENT = 2  # the event's type does not have the attribute: a comparison that reads it is true


class Comparison(IntEnum):
    """Comparisons. NaN equals NaN and is greater than every number; -0.0 equals 0.0."""

    EQUAL = 0
    NOT_EQUAL = 1
    LESS = 2
    LESS_EQUAL = 3
    GREATER = 4
    GREATER_EQUAL = 5


class Kind(IntEnum):
    """The kind of an alternative. The first four are atoms."""

    INT_LANES = 0
    INT_CONSTANT = 1
    FLOAT_LANES = 2
    FLOAT_CONSTANT = 3
    PROGRAM = 4


class Opcode(IntEnum):
    """Instructions of a program. Operands are taken from the top of the stack, the last operand first.

    The planner knows the type of every value, so only TO_FLOAT converts. Conditions are int64 0 and 1. Unless noted, a
    null operand, integer overflow and division by zero give null.
    """

    # fmt: off
    LOAD_INT = 0        # an int64 lane of the event bound to a component
    LOAD_FLOAT = 1      # a float64 lane
    INT = 2             # a constant
    FLOAT = 3           # a constant
    NULL = 4            # null, of either type
    TO_FLOAT = 5        # int64 to float64
    ADD_INT = 10
    SUBTRACT_INT = 11
    MULTIPLY_INT = 12
    MODULO_INT = 14     # with the sign of the dividend
    NEGATE_INT = 15
    ABS_INT = 16
    LEAST_INT = 17      # nulls are passed over
    GREATEST_INT = 18   # nulls are passed over
    ADD_FLOAT = 20      # IEEE: overflow is infinite, not null
    SUBTRACT_FLOAT = 21
    MULTIPLY_FLOAT = 22
    DIVIDE_FLOAT = 23
    MODULO_FLOAT = 24   # with the sign of the dividend
    NEGATE_FLOAT = 25
    ABS_FLOAT = 26
    LEAST_FLOAT = 27    # nulls are passed over
    GREATEST_FLOAT = 28  # nulls are passed over
    COMPARE_INT = 40    # which comparison: the instruction's `comparison`
    COMPARE_FLOAT = 41
    AND = 50            # three-valued
    OR = 51             # three-valued
    NOT = 52
    IS_NULL = 53        # never null itself
    COALESCE = 54       # the first of two that is not null
    CASE = 55  # condition, result, otherwise: the result if the condition is true
    # fmt: on


# The number of operands of an instruction; each leaves one value.
OPERANDS: dict[Opcode, int] = {
    **dict.fromkeys(Opcode, 2),
    **dict.fromkeys((Opcode.LOAD_INT, Opcode.LOAD_FLOAT, Opcode.INT, Opcode.FLOAT, Opcode.NULL), 0),
    **dict.fromkeys((Opcode.TO_FLOAT, Opcode.NOT, Opcode.IS_NULL), 1),
    **dict.fromkeys((Opcode.NEGATE_INT, Opcode.ABS_INT, Opcode.NEGATE_FLOAT, Opcode.ABS_FLOAT), 1),
    Opcode.CASE: 3,
}


class Lane(NamedTuple):
    """A lane of the event that is bound to a component. int64 and float64 lanes are numbered separately."""

    component: int
    lane: int
    floating: bool = False


class Atom(NamedTuple):
    """`left` compared with another lane of the same type or with a constant.

    >>> Atom(Lane(0, 0), Comparison.LESS, Lane(1, 0)).components
    frozenset({0, 1})
    """

    left: Lane
    comparison: Comparison
    right: Lane | int | float

    @property
    def components(self) -> frozenset[int]:
        if isinstance(self.right, Lane):
            return frozenset((self.left.component, self.right.component))
        return frozenset((self.left.component,))


class Instruction(NamedTuple):
    """One step of a program. The opcode decides which fields it uses."""

    opcode: Opcode
    lane: Lane | None = None
    constant: int | float = 0
    comparison: Comparison = Comparison.EQUAL


class Program(NamedTuple):
    """A condition in postfix form.

    >>> a, b = Lane(0, 0), Lane(1, 0)
    >>> over_ten = Program((
    ...     Instruction(Opcode.LOAD_INT, lane=b), Instruction(Opcode.LOAD_INT, lane=a),
    ...     Instruction(Opcode.SUBTRACT_INT), Instruction(Opcode.INT, constant=10),
    ...     Instruction(Opcode.COMPARE_INT, comparison=Comparison.GREATER),
    ... ))
    >>> over_ten.depth
    2
    """

    instructions: tuple[Instruction, ...]

    @property
    def components(self) -> frozenset[int]:
        return frozenset(step.lane.component for step in self.instructions if step.lane is not None)

    @property
    def depth(self) -> int:
        """The largest number of values on the stack. Asserts that the program leaves exactly one."""
        height = highest = 0
        for step in self.instructions:
            height -= OPERANDS[step.opcode]
            assert height >= 0, f"{step.opcode.name} finds too few operands"
            height += 1
            highest = max(highest, height)
        assert height == 1, f"a program leaves one value, not {height}"
        return highest


Alternative = Atom | Program


class Predicates(NamedTuple):
    """Conjuncts as arrays, numbered in the given order."""

    first_alternative: NDArray[np.int32]  # of each conjunct; one more entry than conjuncts
    # Rows: Kind, Comparison, component, lane, other component, other lane, constant, 0. Of a program: Kind, its first
    # instruction, the one after its last, and zeros.
    alternatives: Matrix[np.int32]
    int_constants: NDArray[np.int64]
    float_constants: NDArray[np.float64]
    instructions: Matrix[np.int32]  # rows: Opcode, component or constant or Comparison, lane
    depth: int  # the height of the value stack


class Values(NamedTuple):
    """The stack of a running program. Each session has its own, so that sessions can share tables."""

    ints: NDArray[np.int64]
    floats: NDArray[np.float64]
    nulls: NDArray[np.uint8]


def new_values(predicates: Predicates) -> Values:
    size = max(predicates.depth, 1)
    return Values(np.zeros(size, np.int64), np.zeros(size, np.float64), np.zeros(size, np.uint8))


class _Constants:
    """Collects constants by type. Adding a constant returns its number."""

    def __init__(self) -> None:
        self.ints: list[int] = []
        self.floats: list[float] = []

    def add_int(self, value: int | float) -> int:
        self.ints.append(int(value))
        return len(self.ints) - 1

    def add_float(self, value: int | float) -> int:
        self.floats.append(float(value))
        return len(self.floats) - 1


def build_predicates(conjuncts: Sequence[Sequence[Alternative]]) -> Predicates:
    """The arrays of some conjuncts, each a sequence of alternatives.

    >>> same = Atom(Lane(0, 0), Comparison.EQUAL, Lane(1, 0))
    >>> build_predicates([[same], [same, same]]).first_alternative.tolist()
    [0, 1, 3]
    """
    constants = _Constants()
    first_alternative = [0]
    rows: list[tuple[int, ...]] = []
    code: list[tuple[int, int, int]] = []
    depth = 0
    for conjunct in conjuncts:
        for alternative in conjunct:
            if isinstance(alternative, Atom):
                rows.append(_atom_row(alternative, constants))
            else:
                first = len(code)
                code.extend(_instruction_row(step, constants) for step in alternative.instructions)
                rows.append((Kind.PROGRAM, first, len(code), 0, 0, 0, 0, 0))
                depth = max(depth, alternative.depth)
        first_alternative.append(len(rows))
    return Predicates(
        np.array(first_alternative, np.int32),
        np.array(rows, np.int32).reshape(len(rows), 8),
        np.array(constants.ints, np.int64),
        np.array(constants.floats, np.float64),
        np.array(code, np.int32).reshape(len(code), 3),
        depth,
    )


def _atom_row(atom: Atom, constants: _Constants) -> tuple[int, ...]:
    left, comparison, right = atom
    if isinstance(right, Lane):
        assert left.floating == right.floating, "an atom compares lanes of one type"
        kind = Kind.FLOAT_LANES if left.floating else Kind.INT_LANES
        return (kind, comparison, left.component, left.lane, right.component, right.lane, 0, 0)
    if left.floating:
        return (Kind.FLOAT_CONSTANT, comparison, left.component, left.lane, 0, 0, constants.add_float(right), 0)
    assert isinstance(right, int), "an integer lane is compared with an integer"
    return (Kind.INT_CONSTANT, comparison, left.component, left.lane, 0, 0, constants.add_int(right), 0)


def _instruction_row(step: Instruction, constants: _Constants) -> tuple[int, int, int]:
    match step.opcode:
        case Opcode.LOAD_INT | Opcode.LOAD_FLOAT:
            assert step.lane is not None
            assert step.lane.floating == (step.opcode is Opcode.LOAD_FLOAT)
            return (step.opcode, step.lane.component, step.lane.lane)
        case Opcode.INT:
            return (step.opcode, constants.add_int(step.constant), 0)
        case Opcode.FLOAT:
            return (step.opcode, constants.add_float(step.constant), 0)
        case Opcode.COMPARE_INT | Opcode.COMPARE_FLOAT:
            return (step.opcode, step.comparison, 0)
        case _:
            return (step.opcode, 0, 0)
