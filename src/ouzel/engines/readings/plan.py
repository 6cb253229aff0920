"""The engine for patterns with several readings (docs/semantics.md, "Readings"). Each reading has a plan, and their
matches are merged.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar

from ouzel.bind.model import (
    INT,
    STRING,
    At,
    Attribute,
    Bound,
    BoundQuery,
    Catalog,
    EventField,
    EventWindow,
    Intrinsic,
    OutputColumn,
    Reading,
)
from ouzel.bind.nested import Role, nested_queries
from ouzel.bind.patterns import overlapping
from ouzel.bind.readings import linear
from ouzel.engines import Engine
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.choose import make_plan
from ouzel.plan.model import Plan, Statistics, build
from ouzel.plan.rules import PREDICATES_INTO_ROLES, REWRITES, SECOND_EQUIVALENCE, WRITTEN_EQUALITIES, optimize

if TYPE_CHECKING:
    from ouzel.loss import LossModel
    from ouzel.plan.explain import Explanation
    from ouzel.runtime.layout import Layout
    from ouzel.runtime.limits import Limits
    from ouzel.runtime.operator import QueryOperator

# The column of an event's place in the stream order of the whole query.
POSITION = "position in stream order"


@dataclass(frozen=True, slots=True)
class NestedPlan:
    """The plan that finds a negated sequence, and the two components of a match between whose events it must not
    occur.
    """

    plan: Plan
    roles: tuple[Role, ...]
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadingsPlan(Plan):
    """The plans of all readings. The other fields hold for the query as a whole: roles of events and keys."""

    engine: ClassVar[str] = "readings"

    parts: tuple[Plan, ...] = ()
    # Of the negated sequences of each reading.
    nested: tuple[tuple[NestedPlan, ...], ...] = ()

    @property
    def has_runs(self) -> bool:  # type: ignore[override]
        """Whether some reading keeps partial matches as runs of an automaton."""
        return any(part.has_runs for part in self.parts)

    @property
    def needs_positions(self) -> bool:
        """Whether events that fill no component still have positions."""
        return any(part.needs_positions for part in self.parts)

    @property
    def is_ordered(self) -> bool:
        """Whether simultaneous events must have the same order in all readings."""
        return _is_ordered(self.query)


class _Readings(Engine):
    def applies(self, query: BoundQuery) -> bool:
        return bool(query.readings)

    def plan(
        self, query: BoundQuery, statistics: Statistics, off: Collection[str], model: LossModel | None
    ) -> ReadingsPlan:
        is_ordered = _is_ordered(query)
        placed = replace(query, catalog=_with_position(query.catalog)) if is_ordered else query
        is_chosen = is_ordered and query.output.form is not OutputForm.COMPRESSED
        readings = [_with_types(one, steps, query) for one, steps in zip(linear(placed), query.readings, strict=True)]
        readings = [_with_places(reading) if is_chosen else reading for reading in readings]
        parts = tuple(make_plan(reading, statistics, off=off) for reading in readings)
        notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
        # A rule that acts in no reading does not act on what they have in common. Equalities that name an absent
        # component do not hold in a reading without it, so they make no key.
        acting = {note.rule for note in notes}
        idle = [rule.name for rule, _ in REWRITES if rule is not None and rule.name not in acting]
        not_common = {*off, *idle, WRITTEN_EQUALITIES, SECOND_EQUIVALENCE}
        if is_ordered:
            # Simultaneous events that may fill a component come before the others: that is a part of the meaning.
            not_common.discard(PREDICATES_INTO_ROLES)
        common = optimize(build(query), statistics, off=not_common)
        known = {field.name: getattr(common, field.name) for field in fields(Plan)}
        nested = [
            tuple(
                NestedPlan(make_plan(_with_places(one.query), statistics, off=off), one.roles, one.events)
                for one in nested_queries(placed, reading)
            )
            for reading in query.readings
        ]
        inside = (note for reading in nested for one in reading for note in one.plan.notes)
        notes = tuple(dict.fromkeys((*notes, *inside)))
        return replace(ReadingsPlan(**known), parts=parts, nested=tuple(nested), notes=notes)

    def explain(self, plan: ReadingsPlan) -> Explanation:
        from ouzel.engines.readings.explain import explain

        return explain(plan)

    def operator(self, plan: ReadingsPlan, layout: Layout, limits: Limits) -> QueryOperator:
        from ouzel.engines.readings.operator import ReadingsOperator

        return ReadingsOperator(plan, layout, limits)


def _is_ordered(query: BoundQuery) -> bool:
    return (
        bool(overlapping(query.readings, query.components))
        or query.output.form not in (OutputForm.ALL, OutputForm.COMPRESSED)
        or query.has_nested
        or query.strategy is not Strategy.SKIP_TILL_ANY_MATCH
        or isinstance(query.window, EventWindow)
    )


def _with_position(catalog: Catalog) -> Catalog:
    """A catalog in which every event has its position in stream order."""
    own = {POSITION: INT}
    declared = catalog.declared
    if declared is not None:
        declared = {name: {**attributes, **own} for name, attributes in declared.items()}
    return replace(catalog, declared=declared, common=None if catalog.common is None else {**catalog.common, **own})


def _with_types(reading: BoundQuery, steps: Reading, query: BoundQuery) -> BoundQuery:
    """The query of a reading that also reads the types of events that have fewer types than in the whole query."""
    if reading.returns is None:
        return reading
    fewer = [
        Intrinsic(c.position, EventField.TYPE, At.EVERY if c.kleene else At.SINGLE, type=STRING)
        for c in reading.positives
        if c.types != query.components[steps[c.position].component].types
    ]
    return replace(reading, returns=(*reading.returns, *(OutputColumn("", one) for one in fewer)))


def _with_places(query: BoundQuery) -> BoundQuery:
    """The query of a reading, which also returns the positions of its events, and the values and types of its [attr]
    tests.
    """
    if query.returns is None:
        return query
    read: list[Bound] = []
    for c in query.positives:
        at = At.EVERY if c.kleene else At.SINGLE
        read.append(Attribute(c.position, (POSITION,), at, type=INT))
        read += [Attribute(c.position, test.path, at, type=test.type) for test in query.equivalences]
        if query.equivalences:
            read.append(Intrinsic(c.position, EventField.TYPE, at, type=STRING))
    return replace(query, returns=(*query.returns, *(OutputColumn("", expression) for expression in read)))


ENGINE = _Readings()
