"""Negated sequences, `!(SEQ(B b, C c))` and `!(B{3,} b[])`, as separate queries (docs/semantics.md, "Negated
sequences").

Such a query has the components of the sequence, and also the two events of a match between which the sequence is
forbidden. It only needs to find whether there is a sequence. So where no later condition depends on an event, it takes
only the next event that fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ouzel.bind.conjuncts import named_in, placed
from ouzel.bind.diagnostics import quoted
from ouzel.bind.model import (
    At,
    Attribute,
    BoundOutput,
    BoundQuery,
    BoundStep,
    Component,
    Conjunct,
    Edge,
    Intrinsic,
    Reading,
    Step,
)
from ouzel.bind.names import Names
from ouzel.bind.readings import Moved, bounds, tests_of
from ouzel.lang.syntax import Contiguity, OutputForm, Strategy


@dataclass(frozen=True, slots=True)
class Role:
    """An event of a match on which a negated sequence depends. For a repetition it is the first or the last event."""

    variable: str
    last: bool


@dataclass(frozen=True, slots=True)
class NestedQuery:
    """The query of a negated sequence. Each of its matches forbids the matches that have the same events in the given
    roles. `events` are the variables of these events in this query.
    """

    query: BoundQuery
    roles: tuple[Role, ...]
    events: tuple[str, ...]


def check_nested(conjuncts: Sequence[Conjunct], names: Names) -> None:
    """Raise an error for a condition on a negated sequence that names other than single events of the match."""
    for conjunct in conjuncts:
        if conjunct.negative is None or names.components[conjunct.negative].nested is None:
            continue
        for part in named_in(conjunct.comparisons):
            component = names.components[part.component]
            if component.kleene and component.nested is None:
                message = (
                    f"a condition on a negated sequence cannot name {quoted(component.variable)}, which is several"
                )
                hint = "name components of one event, or find the sequence by a query of its own with INTO"
                raise names.source.mistake(f"{message} events", part.span, hint)


def nested_queries(query: BoundQuery, reading: Reading) -> Iterator[NestedQuery]:
    """The queries of the negated sequences of a reading."""
    numbers = dict.fromkeys(query.components[step.component].nested for step in reading)
    for number in numbers:
        if number is not None:
            yield from _of_sequence(query, reading, number)


def _of_sequence(query: BoundQuery, reading: Reading, number: int) -> Iterator[NestedQuery]:
    own = [step for step in reading if query.components[step.component].nested == number]
    place = reading.index(own[0])
    positives = [step for step in reading if not query.components[step.component].negated]
    before = [step for step in positives if reading.index(step) < place]
    after = [step for step in positives if reading.index(step) > place]
    # Between neighbours: from the last event before to the first one after. At an end the window is measured from the
    # first to the last event of the match.
    ends = (
        [(before[-1], True), (after[0], False)] if before and after else [(positives[0], False), (positives[-1], True)]
    )
    inside = {step.component for step in own}
    named = {one for conjunct in query.conjuncts if conjunct.components & inside for one in conjunct.components}
    chosen: list[tuple[Step, bool]] = []
    for step in positives:
        mine = [end for end in ends if end[0] == step]
        if not query.components[step.component].kleene:
            # Of one event, the first is the last.
            mine = mine[:1] if mine or step.component not in named else [(step, False)]
        chosen += mine
    roles = tuple(Role(query.components[step.component].variable, last) for step, last in chosen)
    yield _query(query, chosen, roles, own, before)
    if len(chosen) > len({step.component for step, _ in chosen}):
        # A repetition of one event: its first event is its last.
        yield _query(query, chosen[:-1], roles, own, before)


def _query(
    query: BoundQuery,
    chosen: Sequence[tuple[Step, bool]],
    roles: tuple[Role, ...],
    own: Sequence[Step],
    before: Sequence[Step],
) -> NestedQuery:
    # A condition that names an absent event holds.
    present = {step.component for step in (*own, *(step for step, _ in chosen))}
    conjuncts = [
        c for c in query.conjuncts if c.components & {step.component for step in own} and c.components <= present
    ]
    least = [_at_least(query, step, conjuncts) for step in own]
    steps = [step for step, _ in chosen if step in before]
    first = len(steps)
    steps += [*least, *(step for step, _ in chosen if step not in before)]
    components = tuple(
        replace(
            query.components[step.component],
            position=place,
            variable=f"event {place}",
            types=step.types,
            kleene=query.components[step.component].kleene and step in least,
            negated=False,
            nested=None,
        )
        for place, step in enumerate(steps)
    )
    moved = Moved(tuple(steps))
    # Conditions on single events of the match save work; the others hold in every match.
    single = {step.component for step in steps if not query.components[step.component].kleene}
    conjuncts += [c for c in query.conjuncts if c.single_event and c.components <= single and c.negative is None]
    found = [placed(tuple(moved.of(one) for one in c.comparisons), components, c.span) for c in conjuncts]
    rules = [rule for place in range(first, first + len(own)) for rule in _rules(components[place], found)]
    rules = [rule for rule in rules if rule.component > 0 or rule.edge is Edge.TAKE]
    strategy = Strategy.CONTIGUITY if rules else Strategy.SKIP_TILL_ANY_MATCH
    for place, step in enumerate(steps):
        if components[place].kleene:
            found += bounds(step, place, strategy, components)
    inner = replace(
        query,
        components=components,
        strategy=strategy,
        steps=tuple(rules),
        conjuncts=tuple(dict.fromkeys(found)),
        equivalences=tuple(tests_of(query, tuple(steps))),
        output=BoundOutput(OutputForm.ALL),
        returns=(),
        # Its rows are read, with their times.
        into=f"negated sequence of {query.name}",
        group_by=(),
        aggregates=(),
        having=None,
        emit_on_change=False,
        readings=(),
    )
    events = [f"event {steps.index(step)}" for step, _ in chosen]
    if len(events) == len(roles) == 2 and chosen[0][0] == chosen[1][0]:
        events = [f"event {place}" for place, step in enumerate(steps) if step == chosen[0][0]]
    return NestedQuery(inner, roles, tuple(events if len(events) == len(roles) else (*events, events[-1])))


def _at_least(query: BoundQuery, step: Step, conjuncts: Sequence[Conjunct]) -> Step:
    """A repetition reduced to the smallest number of events that it may have, if its first events satisfy every
    condition that all of them do.
    """
    if not query.components[step.component].kleene:
        return step
    parts = [part for c in conjuncts for part in named_in(c.comparisons) if part.component == step.component]
    kept = all(isinstance(part, Attribute | Intrinsic) and part.at is not At.LAST for part in parts)
    return replace(step, most=step.least) if kept else step


def _rules(component: Component, conjuncts: Sequence[Conjunct]) -> Iterator[BoundStep]:
    """For each step, that only the next event that fits is taken, if no condition on a later event depends on it."""
    naming = [c for c in conjuncts if component.position in c.components]
    if any(c.tested_at != component.position for c in naming):
        return
    if component.kleene:
        for c in naming:
            own = [part for part in named_in(c.comparisons) if part.component == component.position]
            used = {part.at if isinstance(part, Attribute | Intrinsic) else None for part in own}
            if used not in ({At.FIRST}, {At.CURRENT}):
                return
        yield BoundStep(component.position, Edge.TAKE, Contiguity.NEXT)
    yield BoundStep(component.position, Edge.BEGIN, Contiguity.NEXT)
