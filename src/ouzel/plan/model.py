"""The plan of a sequence query: which of SASE's six operators does what (SASE 3.1), and what was pushed where.

`build` gives the basic plan: sequence scan and construction by type alone, then selection, window, negation and
transformation one after the other. The rules of `rules` move work down into the scan; each leaves the answer alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from ouzel.bind.model import Bound, BoundQuery, Component, Conjunct, EquivalenceTest, TimeWindow, Type
from ouzel.plan.expressions import fixed_value, lacked_entirely, not_null


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One equality that all positive components share: an [attr] test, or a chain of written equalities.

    `expressions` gives, for each component that takes part, the value that must be equal. A negative component that
    is missing here forbids in every partition.
    """

    label: str
    type: Type
    expressions: Mapping[int, Bound]


class KeyWay(Enum):
    """How several equivalence tests are pushed down (SASE 4.2.2); with one test or none there is nothing to choose."""

    COMPOSITE = "one composite key"
    DYNAMIC = "dynamic filtering"
    MULTI_PAIS = "Multi-PAIS"


class NegationWay(Enum):
    """How a negative component is checked."""

    INDEX = "on finished matches, by the index over negative events"
    CONSTRUCTION = "during construction"


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of the events when the plan is made: distinct values of key attributes, by label, and how dense
    events lie in time.

    `key_way` settles how a second equivalence test is pushed, instead of leaving it to the numbers.
    """

    distinct: Mapping[str, int] = field(default_factory=dict)
    key_way: KeyWay | None = None
    events_per_tick: float | None = None
    # Which share of all events each type has; empty where nothing is known.
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """What a rule did, for EXPLAIN."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A sequence plan, from the scan upwards."""

    # The engine that runs such plans.
    engine: ClassVar[str] = "sequence"

    query: BoundQuery
    # Single-event conjuncts that an event must satisfy to play a component at all, by component position.
    roles: Mapping[int, tuple[Conjunct, ...]]
    # Equalities that partition the stacks.
    key: tuple[KeyPart, ...] = ()
    key_way: KeyWay = KeyWay.COMPOSITE
    # Conjuncts over positive components, tested as soon as their events are bound during construction.
    construction: tuple[Conjunct, ...] = ()
    # Conjuncts over positive components, tested on complete sequences.
    selection: tuple[Conjunct, ...] = ()
    # Equivalence tests that no rule has turned into a key yet.
    equivalences: tuple[EquivalenceTest, ...] = ()
    # Conjuncts that name a negative component and another one, by negative position.
    forbidding: Mapping[int, tuple[Conjunct, ...]] = field(default_factory=dict)
    negation: NegationWay = NegationWay.INDEX
    window_in_scan: bool = False
    window_in_construction: bool = False
    notes: tuple[Note, ...] = ()

    def with_note(self, rule: str, text: str) -> Plan:
        return replace(self, notes=(*self.notes, Note(rule, text)))

    @property
    def window_ticks(self) -> int | None:
        """The time window, or None where there is none."""
        return self.query.window.ticks if isinstance(self.query.window, TimeWindow) else None

    @property
    def positives(self) -> tuple[Component, ...]:
        return self.query.positives

    @property
    def negatives(self) -> tuple[Component, ...]:
        return self.query.negatives

    @property
    def unguarded(self) -> tuple[Component, ...]:
        """Negative components that no key part covers: their events forbid in every partition."""
        return tuple(c for c in self.negatives if any(c.position not in part.expressions for part in self.key))


def build(query: BoundQuery) -> Plan:
    """Lay out the operators for a sequence query without Kleene components, under skip_till_any_match."""
    roles: dict[int, list[Conjunct]] = {c.position: [] for c in query.components}
    forbidding: dict[int, list[Conjunct]] = {c.position: [] for c in query.negatives}
    selection: list[Conjunct] = []
    for test in query.equivalences:
        for component in query.components:
            if not lacked_entirely(query, component.position, test):
                # Not a matter of any rule: an event with a null there takes part in nothing.
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
