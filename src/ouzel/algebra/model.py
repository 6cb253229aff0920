"""The result of binding an algebra expression: streams, which are unions of branches. A branch is a list of operators
over numbered slots.

An *instance* is a partial composite event. Slot 0 holds its first event. The k-th `next` or `fold` writes the event
that it has found into slot k, where it replaces the event of the previous iteration. In expressions, component CURRENT
is the event that is being read, slots are the events of the instance, and registers are values that a fold passes from
one iteration to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from ouzel.algebra.streams import Base, Stream
from ouzel.algebra.text import to_text
from ouzel.bind.model import (
    INT,
    Attribute,
    Bound,
    Catalog,
    Constant,
    EventField,
    Intrinsic,
    Operation,
    Type,
    parts,
    replaced,
)

CURRENT = -1
REGISTERS = -2
PARAMETERS = -3


@dataclass(frozen=True, slots=True)
class Source:
    """The source of an operand's events: the input, or the stream with this number (resubscription, paper 3.5)."""

    base: Base | None = None
    derived: int | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """A source with the conditions of its unary operators, each on one event (θ1 on the paper's edges)."""

    source: Source
    conditions: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True)
class Iteration:
    """One way to read an event. A `next` has one. A `fold` has two: for its first iteration and for all later ones.

    An event is taken if `theta` holds. Then the instance continues in the fold if `keeps` hold. It is also a result if
    `keeps` and `results` hold. `registers` has the new values of the operator's registers.
    """

    theta: tuple[Bound, ...] = ()
    keeps: tuple[Bound, ...] = ()
    results: tuple[Bound, ...] = ()
    registers: tuple[Bound, ...] = ()


class Operator(Enum):
    NEXT = "next"
    FOLD = "fold"
    # Take every later event for which theta holds, each separately, as skip_till_any_match requires.
    EACH = "each"


@dataclass(frozen=True, slots=True)
class Step:
    """A `next` or `fold` of a branch, or a step of a pattern query."""

    operator: Operator
    operand: Operand
    iterations: tuple[Iteration, ...]
    first_register: int = 0


@dataclass(frozen=True, slots=True)
class Branch:
    """A linear-plus expression without union: a first operand, and the operators after it."""

    start: Operand
    steps: tuple[Step, ...] = ()
    columns: Mapping[str, Bound] = field(default_factory=dict)
    # The schema is unknown: names that are not in `columns` are assumed to be attributes of these slots, each after a
    # prefix: "a." for a stream with the alias a.
    open: Mapping[str, int] = field(default_factory=dict)
    register_types: tuple[Type, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundStream:
    """A union of branches, with the events of all of them. Of events with equal sources and values, only one is
    kept.
    """

    expression: Stream
    branches: tuple[Branch, ...]
    columns: Mapping[str, Type]


def may_repeat(stream: BoundStream) -> bool:
    """Whether the same input rows can give the same result in two ways. They can through two branches of a union,
    because two folds can divide the rows between them differently, or because an operand is such a stream.
    """
    if len(stream.branches) > 1:
        return True
    (branch,) = stream.branches
    folds = sum(step.operator is Operator.FOLD for step in branch.steps)
    return folds > 1 or any(source.base is None for source in sources_of(branch))


def folds_derived(stream: BoundStream) -> bool:
    """Whether a fold reads another stream. Then an instance can be made in exponentially many ways."""
    steps = (step for branch in stream.branches for step in branch.steps)
    return any(step.operator is Operator.FOLD and step.operand.source.base is None for step in steps)


def reads_start(stream: BoundStream) -> bool:
    """Whether an operator reads the start of an event that an earlier next or fold has found, such as `extend(d="DUR")`
    of an operand.
    """
    return any(
        isinstance(part, Intrinsic) and part.field is EventField.START and part.component > 0
        for branch in stream.branches
        for expression in _expressions(branch)
        for part in parts(expression)
    )


def _expressions(branch: Branch) -> Iterator[Bound]:
    yield from branch.columns.values()
    for step in branch.steps:
        yield from step.operand.conditions
        for each in step.iterations:
            for expressions in (each.theta, each.keeps, each.results, each.registers):
                yield from expressions


def sources_of(branch: Branch) -> list[Source]:
    """The source of the events of each slot."""
    return [branch.start.source, *(step.operand.source for step in branch.steps)]


@dataclass(frozen=True, slots=True)
class BoundAlgebra:
    """A checked expression. A stream reads only streams before it, and the last stream is the answer."""

    # As in a bound query: it reads the primary stream, and no query reads its results.
    sources: ClassVar[tuple[str, ...]] = ()
    into: ClassVar[str | None] = None
    aggregates: ClassVar[tuple[()]] = ()

    name: str
    expression: Stream
    streams: tuple[BoundStream, ...]
    catalog: Catalog
    params: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return to_text(self.expression)


def register(number: int, kind: Type) -> Attribute:
    return Attribute(REGISTERS, (str(number),), type=kind)


def duration(first: int, last: int, time: Type) -> Operation:
    """`DUR` as an expression: end - start + 1, in ticks."""
    ticks = Operation(
        "-",
        (Intrinsic(last, EventField.END, type=time), Intrinsic(first, EventField.START, type=time)),
        type=INT,
    )
    return Operation("+", (ticks, Constant(1, type=INT)), type=INT)


def moved(expression: Bound, source: int, target: int) -> Bound:
    """The expression with component `source` replaced by `target`."""

    def change(reference: Attribute | Intrinsic) -> Bound:
        return replace(reference, component=target) if reference.component == source else reference

    return replaced(expression, change)


def on_edge(expression: Bound, slot: int, step: Step | None, each: Iteration | None) -> Bound:
    """A condition on a result, as a condition on the edge that makes this result: the event of the slot is the current
    event.
    """

    def change(reference: Attribute | Intrinsic) -> Bound:
        if reference.component == slot:
            return replace(reference, component=CURRENT)
        if reference.component == REGISTERS and step is not None and each is not None:
            assert isinstance(reference, Attribute)
            number = int(reference.path[0]) - step.first_register
            if number >= 0:
                return each.registers[number]
        return reference

    return replaced(expression, change)
