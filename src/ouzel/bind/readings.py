"""From a query to the queries of its readings (docs/semantics.md, "Readings"). These have no optional parts and no
alternatives, so every engine can answer them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ouzel.bind.conjuncts import placed
from ouzel.bind.model import (
    BOOL,
    INT,
    NULL,
    WHOLE,
    Aggregation,
    Attribute,
    Bound,
    BoundOutput,
    BoundQuery,
    BoundStep,
    Component,
    Conjunct,
    Constant,
    Edge,
    EquivalenceTest,
    Intrinsic,
    Length,
    Operation,
    OutputColumn,
    Presence,
    Reading,
    Scope,
    Step,
    rewritten,
)
from ouzel.lang.syntax import OutputForm, Strategy

# What is first or latest among all matches is so among those of its own reading, and the furthest run from an event is
# the first one of its reading.
_PER_READING = {
    OutputForm.FIRST: OutputForm.FIRST,
    OutputForm.LATEST: OutputForm.LATEST,
    OutputForm.FURTHEST: OutputForm.FIRST,
    OutputForm.COMPRESSED: OutputForm.COMPRESSED,
}


def bounds(step: Step, position: int, strategy: Strategy, components: Sequence[Component]) -> list[Conjunct]:
    """The bounds of `{m,n}` as conjuncts: a run with n events takes no more, and a run leaves the component with at
    least m.
    """
    found: list[Bound] = []
    length = Length(position, type=INT)
    if step.least > 1:
        found.append(Operation(">=", (length, Constant(step.least, type=INT)), type=BOOL))
    if step.most is not None:
        most = Constant(step.most, type=INT)
        found.append(Operation("<=", (length, most), type=BOOL))
        if strategy is not Strategy.SKIP_TILL_ANY_MATCH:
            # Under skip_till_any_match a run that takes more never leaves.
            before = Aggregation("count", position, Scope.BEFORE, None, type=INT)
            found.append(Operation("<", (before, most), type=BOOL))
    return [placed((one,), components) for one in found]


def linear(query: BoundQuery) -> tuple[BoundQuery, ...]:
    """The query of each reading, with the name, window and strategy of the whole query. A form of OUTPUT is applied
    later, to the matches of all readings.
    """
    return tuple(_linear(query, _without_nested(query, reading)) for reading in query.readings)


def _without_nested(query: BoundQuery, reading: Reading) -> Reading:
    """A reading without its negated sequences, which are separate queries. A component that no event can fill replaces
    one at the end of the pattern, so that matches still end with their window.
    """
    kept = tuple(step for step in reading if query.components[step.component].nested is None)
    ordered = [step for step in reading if not query.components[step.component].across]
    if query.components[ordered[-1].component].nested is None:
        return kept
    across = tuple(step for step in kept if query.components[step.component].across)
    return (*kept[: len(kept) - len(across)], replace(ordered[-1], types=()), *across)


def _linear(query: BoundQuery, reading: Reading) -> BoundQuery:
    places = {step.component: place for place, step in enumerate(reading)}
    nested = {component.position for component in query.components if component.nested is not None}
    components = tuple(
        _component(query.components[step.component], step, place, places) for place, step in enumerate(reading)
    )
    moved = Moved(reading)
    conjuncts = [
        placed(tuple(moved.of(comparison) for comparison in conjunct.comparisons), components, conjunct.span)
        for conjunct in query.conjuncts
        # A conjunct that names an absent variable holds. Those of negated sequences belong to their queries.
        if conjunct.components <= places.keys() - nested
    ]
    for place, step in enumerate(reading):
        if components[place].kleene:
            conjuncts += bounds(step, place, query.strategy, components)
    returns = query.returns
    if returns is not None:
        returns = tuple(OutputColumn(column.name, _returned(moved.of(column.expression))) for column in returns)
    return replace(
        query,
        components=components,
        conjuncts=tuple(conjuncts),
        equivalences=tuple(tests_of(query, reading)),
        output=BoundOutput(_PER_READING.get(query.output.form, OutputForm.ALL)),
        returns=returns,
        aggregates=tuple(
            column if column.argument is None else replace(column, argument=moved.of(column.argument))
            for column in query.aggregates
        ),
        steps=tuple(_steps(query, reading)),
        # Its rows are read, with their times.
        into=query.into or f"readings of {query.name}",
        readings=(),
    )


def _component(component: Component, step: Step, place: int, places: Mapping[int, int]) -> Component:
    across = tuple(sorted(places[one] for one in component.across if one in places))
    # What is left of a negated sequence at the end is a single negative component.
    kleene = component.kleene and component.nested is None
    return replace(component, position=place, types=step.types, kleene=kleene, across=across, nested=None)


def _returned(expression: Bound) -> Bound:
    """The expression with null in place of each attribute that no type of its component has in this reading."""

    def change(part: Bound) -> Bound | None:
        missing = isinstance(part, Attribute) and part.present_in == frozenset()
        return _null(part) if missing else None

    return rewritten(expression, change)


def _null(part: Bound) -> Bound:
    kind = part.type if part.type.kind not in WHOLE else NULL
    return Constant(None, type=kind, span=part.span)


def _steps(query: BoundQuery, reading: Reading) -> Iterator[BoundStep]:
    """The steps of contiguity(…) in a reading. The first event has no step, because none comes before it."""
    places = {step.component: place for place, step in enumerate(reading)}
    first = next(place for component, place in places.items() if not query.components[component].negated)
    for step in query.steps:
        place = places.get(step.component)
        if place is not None and (place != first or step.edge is Edge.TAKE):
            yield replace(step, component=place)


def tests_of(query: BoundQuery, reading: Reading) -> Iterator[EquivalenceTest]:
    for test in query.equivalences:
        lacked_by: dict[int, frozenset[str]] = {}
        entirely = set()
        for place, step in enumerate(reading):
            own = query.catalog.any_types if step.types is None else step.types
            types = test.lacked_by.get(step.component, frozenset()) & frozenset(own)
            if types == frozenset(own):
                entirely.add(place)
            if types:
                lacked_by[place] = types
        # A negative component alone may have the attribute: a null there still satisfies no test.
        if len(entirely) < len(reading):
            yield replace(test, lacked_by=lacked_by)


_COUNTS = ("count", "count_distinct")


class Moved:
    """Rewrites expressions of a query for one of its readings: components get the positions of that reading, and absent
    ones become null.
    """

    def __init__(self, reading: Reading) -> None:
        self._places: Mapping[int, tuple[int, Step]] = {
            step.component: (place, step) for place, step in enumerate(reading)
        }

    def of(self, expression: Bound) -> Bound:
        return rewritten(expression, self._change)

    def _change(self, part: Bound) -> Bound | None:
        if isinstance(part, Presence):
            return Constant(part.component in self._places, type=BOOL, span=part.span)
        if not isinstance(part, Attribute | Intrinsic | Length | Aggregation):
            return None
        if part.component not in self._places:
            counts = isinstance(part, Length) or (isinstance(part, Aggregation) and part.function in _COUNTS)
            return Constant(0, type=INT, span=part.span) if counts else _null(part)
        place, step = self._places[part.component]
        if isinstance(part, Attribute) and part.present_in is not None and step.types is not None:
            present = part.present_in & frozenset(step.types)
            return replace(part, component=place, present_in=None if len(present) == len(step.types) else present)
        if isinstance(part, Aggregation) and part.operand is not None:
            return replace(part, component=place, operand=self.of(part.operand))
        return replace(part, component=place)
