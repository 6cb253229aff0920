"""The plan of a query that runs on NFA^b: Kleene closure, the strategies, windows in events, forms of output.

A run plan is a plan with a little more: what an event must satisfy to be taken as v[i], the [attr] tests that cannot
partition because a type lacks the attribute, and which kernel was chosen and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ouzel.bind.model import (
    BoundQuery,
    Conjunct,
    Edge,
    EquivalenceTest,
    EventWindow,
)
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.expressions import attribute_of, fixed_value, lacked_entirely, not_null
from ouzel.plan.model import KeyPart, Note, Plan


@dataclass(frozen=True, slots=True)
class RunPlan(Plan):
    """A plan for the run kernel. `roles` are what begins a component, or forbids as a negative one."""

    # Single-event conjuncts that an event must satisfy to be taken as v[i], by component position.
    later_roles: Mapping[int, tuple[Conjunct, ...]] = field(default_factory=dict)
    # [attr] tests of which some component's type lacks the attribute: compared event by event.
    coded: tuple[EquivalenceTest, ...] = ()
    reason: str = ""

    @property
    def needs_positions(self) -> bool:
        """Events that can play no component count all the same."""
        return self.is_contiguous or isinstance(self.query.window, EventWindow)

    @property
    def is_contiguous(self) -> bool:
        """Nothing, or nothing of the partition, may be passed over."""
        return self.query.strategy in (Strategy.STRICT_CONTIGUITY, Strategy.PARTITION_CONTIGUITY)


def needs_runs(query: BoundQuery) -> str | None:
    """Why stacks of single events cannot answer a query; None where they can.

    >>> from ouzel import query
    >>> from ouzel.bind.model import Catalog
    >>> needs_runs(query("PATTERN SEQ(A+ a[], B b) WITHIN 5").bind(Catalog()))
    'a[] binds any number of events'
    """
    kleene = next((c for c in query.components if c.kleene), None)
    if kleene is not None:
        return f"{kleene.variable}[] binds any number of events"
    if query.strategy is not Strategy.SKIP_TILL_ANY_MATCH and len(query.positives) > 1:
        return f"under {query.strategy.value} an event decides what happens to every run that reads it"
    if isinstance(query.window, EventWindow):
        return "the window counts events"
    if query.output.form is not OutputForm.ALL:
        return f"OUTPUT {query.output.form.value.replace('_', ' ')} drops partial matches as soon as one completes"
    return None


def build_runs(query: BoundQuery, reason: str) -> RunPlan:
    """Lay out the automaton: single-event conjuncts into roles, [attr] tests into the partition, the rest on edges."""
    roles: dict[int, list[Conjunct]] = {c.position: [] for c in query.components}
    later: dict[int, list[Conjunct]] = {c.position: [] for c in query.components if c.kleene}
    forbidding: dict[int, list[Conjunct]] = {c.position: [] for c in query.negatives}
    on_edges: list[Conjunct] = []
    for test in query.equivalences:
        for component in query.components:
            if lacked_entirely(query, component.position, test):
                continue
            own = [not_null(query, component.position, test)]
            if test.value is not None:
                own.append(fixed_value(query, component.position, test))
            roles[component.position] += own
            if component.kleene:
                later[component.position] += own
    for conjunct in query.conjuncts:
        if conjunct.single_event:
            position = next(iter(conjunct.components))
            (later if conjunct.edge is Edge.TAKE else roles)[position].append(conjunct)
        elif conjunct.negative is not None:
            forbidding[conjunct.negative].append(conjunct)
        else:
            on_edges.append(conjunct)
    positives = {c.position for c in query.positives}
    key, coded = [], []
    for test in query.equivalences:
        if any(test.lacked_by.values()):
            coded.append(test)
        if not any(test.lacked_by.get(position) for position in positives):
            covered = [c.position for c in query.components if not test.lacked_by.get(c.position)]
            key.append(KeyPart(".".join(test.path), test.type, {p: attribute_of(query, p, test) for p in covered}))
    notes = []
    if key:
        notes.append(Note("equivalence_into_key", f"runs are partitioned by {', '.join(part.label for part in key)}"))
    return RunPlan(
        query=query,
        roles={position: tuple(conjuncts) for position, conjuncts in roles.items()},
        later_roles={position: tuple(conjuncts) for position, conjuncts in later.items()},
        key=tuple(key),
        coded=tuple(coded),
        construction=tuple(on_edges),
        forbidding={position: tuple(conjuncts) for position, conjuncts in forbidding.items()},
        window_in_scan=True,
        window_in_construction=True,
        notes=tuple(notes),
        reason=reason,
    )
