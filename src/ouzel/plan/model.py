"""The plan of a sequence query: the work of SASE's six operators (SASE 3.1), and what rules have pushed down.

`build` makes the basic plan: sequence scan and construction by type alone, then selection, window, negation and
transformation in turn. The rules in `rules` move work down into the scan. No rule changes the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from ouzel.bind.model import Attribute, Bound, BoundQuery, Component, Conjunct, Edge, EquivalenceTest, TimeWindow, Type
from ouzel.plan.expressions import fixed_value, lacked_entirely, names_an_index, not_null


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One equality that all positive components share: an [attr] test, or a chain of equalities in WHERE.

    `expressions` maps components to the values that must be equal. The events of a negative component that is not in it
    forbid matches in every partition.
    """

    label: str
    type: Type
    expressions: Mapping[int, Bound]


class KeyStrategy(Enum):
    """How several equivalence tests are pushed down (SASE 4.2.2). With one test or none there is no choice.

    `hints={"key": …}` selects one by its name in `KEY_HINTS`.
    """

    COMPOSITE = "one composite key"
    DYNAMIC = "dynamic filtering"
    MULTI_PAIS = "Multi-PAIS"


KEY_HINTS = {
    "composite": KeyStrategy.COMPOSITE,
    "dynamic": KeyStrategy.DYNAMIC,
    "multi-pais": KeyStrategy.MULTI_PAIS,
}


class NegationStrategy(Enum):
    """How a negative component is checked."""

    INDEX = "on finished matches, by the index over negative events"
    CONSTRUCTION = "during construction"


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known about the events at planning time: the number of distinct values of each key attribute, by label,
    and the density of events in time.

    `key_strategy` fixes how a second equivalence test is pushed down. Without it, the numbers decide.
    """

    distinct: Mapping[str, int] = field(default_factory=dict)
    key_strategy: KeyStrategy | None = None
    events_per_tick: float | None = None
    # Each type's share of all events; empty if unknown.
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """The effect of a rule, for EXPLAIN."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a sequence query, from the scan upwards."""

    # The engine that runs such plans.
    engine: ClassVar[str] = "sequence"
    # Whether partial matches are runs of an automaton; the window ends them, and the order of events matters.
    has_runs: ClassVar[bool] = False

    query: BoundQuery
    # Single-event conjuncts that an event must satisfy to fill a component, by component position.
    roles: Mapping[int, tuple[Conjunct, ...]]
    # Equalities that partition the stacks.
    key: tuple[KeyPart, ...] = ()
    key_strategy: KeyStrategy = KeyStrategy.COMPOSITE
    # Conjuncts over positive components, tested during construction as soon as their events are bound.
    construction: tuple[Conjunct, ...] = ()
    # Conjuncts over positive components, tested on complete sequences.
    selection: tuple[Conjunct, ...] = ()
    # Equivalence tests that no rule has turned into a key yet.
    equivalences: tuple[EquivalenceTest, ...] = ()
    # Conjuncts that name a negative component and another one, by negative position.
    forbidding: Mapping[int, tuple[Conjunct, ...]] = field(default_factory=dict)
    negation: NegationStrategy = NegationStrategy.INDEX
    window_in_scan: bool = False
    window_in_construction: bool = False
    notes: tuple[Note, ...] = ()

    def with_note(self, rule: str, text: str) -> Plan:
        return replace(self, notes=(*self.notes, Note(rule, text)))

    @property
    def window_ticks(self) -> int | None:
        """The length of the time window; None if there is none."""
        return self.query.window.ticks if isinstance(self.query.window, TimeWindow) else None

    @property
    def positives(self) -> tuple[Component, ...]:
        return self.query.positives

    @property
    def negatives(self) -> tuple[Component, ...]:
        return self.query.negatives

    @property
    def matching(self) -> Plan:
        """The plan that finds the matches."""
        return self

    @property
    def counts_only(self) -> bool:
        """Whether matches are counted and not built."""
        return False

    @property
    def needs_positions(self) -> bool:
        """Whether events that fill no component still have positions."""
        return False

    def roles_of(self, component: Component) -> tuple[list[Conjunct], list[Conjunct]]:
        """(begin, take): the conditions for an event to begin a component, and to be a later event of a Kleene
        component.
        """
        # One list has both; conditions that [attr] tests put on every event are stored there with Edge.BEGIN.
        roles = self.roles.get(component.position, ())
        first = [conjunct for conjunct in roles if conjunct.edge is not Edge.TAKE]
        later = [c for c in roles if c.edge is Edge.TAKE or not any(map(names_an_index, c.comparisons))]
        return first, later

    @property
    def unguarded(self) -> tuple[Component, ...]:
        """The negative components that are in no key part. Their events forbid matches in every partition."""
        return tuple(c for c in self.negatives if any(c.position not in part.expressions for part in self.key))

    def shared_columns(self) -> list[str]:
        """The columns that are equal in all events of a match, including negative events. For aggregates, only those
        that are also equal in all matches of a group.
        """
        found = []
        # A total over all keys, or over groups that span several keys, must be computed in one place.
        grouped = {key.path for key in self.query.group_by} if self.query.aggregates else None
        for part in self.key:
            attributes = [e for e in part.expressions.values() if isinstance(e, Attribute) and len(e.path) == 1]
            names = {a.path[0] for a in attributes}
            alike = len(attributes) == len(self.query.components) and len(names) == 1
            if alike and (grouped is None or all((name,) in grouped for name in names)):
                found += sorted(names)
        return found

    def ends_with_an_event(self) -> str:
        """Why matches do not complete in the order of their last events; empty if they do."""
        return "matches wait for the end of their window" if self.query.ends_with_window else ""


def build(query: BoundQuery) -> Plan:
    """The basic plan of a sequence query without Kleene components, under skip_till_any_match."""
    roles: dict[int, list[Conjunct]] = {c.position: [] for c in query.components}
    forbidding: dict[int, list[Conjunct]] = {c.position: [] for c in query.negatives}
    selection: list[Conjunct] = []
    for test in query.equivalences:
        for component in query.components:
            if not lacked_entirely(query, component.position, test):
                # No rule needed: an event with a null there is in no match.
                roles[component.position].append(not_null(query, component.position, test))
                if test.value is not None:
                    roles[component.position].append(fixed_value(query, component.position, test))
    for conjunct in query.conjuncts:
        if conjunct.negative is not None:
            forbidding[conjunct.negative].append(conjunct)
        else:
            selection.append(conjunct)
    return Plan(
        query=query,
        roles={position: tuple(conjuncts) for position, conjuncts in roles.items()},
        selection=tuple(selection),
        equivalences=query.equivalences,
        forbidding={position: tuple(conjuncts) for position, conjuncts in forbidding.items()},
    )
