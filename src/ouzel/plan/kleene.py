"""The plan of a query that runs on NFA^b: Kleene closure, the strategies, windows in events, forms of output.

A run plan is a plan with a little more: what an event must satisfy to be taken as v[i], the [attr] tests that cannot
partition because a type lacks the attribute, and which kernel was chosen and why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ouzel.bind.model import (
    Aggregation,
    At,
    Attribute,
    BoundQuery,
    Component,
    Conjunct,
    Edge,
    EquivalenceTest,
    EventWindow,
    Intrinsic,
    Length,
)
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.expressions import attribute_of, fixed_value, lacked_entirely, not_null, walk
from ouzel.plan.model import KeyPart, Note, Plan
from ouzel.plan.rules import MERGE_RUNS, SHARE_GRAPH


class RunKernel(Enum):
    """How partial matches are kept."""

    RUNS = "runs"  # each one by itself
    GRAPH = "graph"  # all of them in one graph of events


@dataclass(frozen=True, slots=True)
class RunPlan(Plan):
    """A plan for the run kernel. `roles` are what begins a component, or forbids as a negative one."""

    # Single-event conjuncts that an event must satisfy to be taken as v[i], by component position.
    later_roles: Mapping[int, tuple[Conjunct, ...]] = field(default_factory=dict)
    kernel: RunKernel = field(default_factory=lambda: RunKernel.RUNS)
    # [attr] tests of which some component's type lacks the attribute: compared event by event.
    coded: tuple[EquivalenceTest, ...] = ()
    # Runs with the same future are one (SASE+ 5.2.2).
    merge: bool = True
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
    if query.output.form is OutputForm.COMPRESSED:
        return "OUTPUT COMPRESSED gives a graph of the matches"
    if query.output.form is not OutputForm.ALL:
        return f"OUTPUT {query.output.form.value.replace('_', ' ')} drops partial matches as soon as one completes"
    return None


def build_runs(query: BoundQuery, reason: str, off: Collection[str] = ()) -> RunPlan:
    """Lay out the automaton: single-event conjuncts into roles, [attr] tests into the partition, the rest on edges.
    `off` names rules to leave out."""
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
    # A negative that one test leaves out stands in every partition, and is held to the other tests by their codes.
    lacking = any(any(test.lacked_by.values()) for test in query.equivalences)
    for test in query.equivalences:
        if lacking:
            coded.append(test)
        if not any(test.lacked_by.get(position) for position in positives):
            covered = [c.position for c in query.components if not test.lacked_by.get(c.position)]
            key.append(KeyPart(".".join(test.path), test.type, {p: attribute_of(query, p, test) for p in covered}))
    notes = []
    if key:
        notes.append(Note("equivalence_into_key", f"runs are partitioned by {', '.join(part.label for part in key)}"))
    merge = MERGE_RUNS not in off
    # As the kernel has it: only where each run goes its own way and every match is wanted.
    if (
        merge
        and query.strategy is not Strategy.SKIP_TILL_ANY_MATCH
        and query.output.form in (OutputForm.ALL, OutputForm.COMPRESSED)
        and not query.negatives
    ):
        notes.append(Note(MERGE_RUNS, "runs that cannot differ any more go on as one"))
    obstacle = "types lack attributes that [attr] tests name" if coded else _obstacle_to_graph(query, on_edges)
    if obstacle is None and SHARE_GRAPH in off:
        obstacle = f"{SHARE_GRAPH} is switched off"
    if obstacle is None:
        reason += "; no predicate looks at more than two neighbouring events, so all choices share one graph"
    elif query.strategy is Strategy.SKIP_TILL_ANY_MATCH:
        reason += f"; every choice is a run of its own, since {obstacle}"
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
        kernel=RunKernel.GRAPH if obstacle is None else RunKernel.RUNS,
        merge=merge,
        reason=reason,
    )


def _obstacle_to_graph(query: BoundQuery, conjuncts: Sequence[Conjunct]) -> str | None:
    """Why the choices of skip_till_any_match cannot share a graph; None where they can."""
    if query.strategy is not Strategy.SKIP_TILL_ANY_MATCH:
        return f"{query.strategy.value} decides for each run by itself"
    if query.output.form not in (OutputForm.ALL, OutputForm.COMPRESSED):
        return f"OUTPUT {query.output.form.value.replace('_', ' ')} drops some of them"
    if query.negatives:
        return "negation is checked on each finished match"
    positions = [component.position for component in query.positives]
    for conjunct in conjuncts:
        place = positions.index(conjunct.tested_at)
        before = query.positives[place - 1] if place else None
        for comparison in conjunct.comparisons:
            for part in walk(comparison):
                if isinstance(part, Length | Aggregation):
                    variable = query.components[part.component].variable
                    return f"a predicate depends on all events of {variable}[]"
                if isinstance(part, Attribute | Intrinsic) and not _is_neighbour(part, conjunct, before):
                    return "a predicate compares events that need not be neighbours"
    return None


def _is_neighbour(part: Attribute | Intrinsic, conjunct: Conjunct, before: Component | None) -> bool:
    """Whether a test names the event that is read, or the one bound just before it."""
    if part.component == conjunct.tested_at:
        return (
            part.at
            in {
                Edge.BEGIN: (At.SINGLE, At.FIRST),
                Edge.TAKE: (At.CURRENT, At.PREVIOUS),
                Edge.PROCEED: (At.LAST,),
            }[conjunct.edge]
        )
    if conjunct.edge is not Edge.BEGIN or before is None or part.component != before.position:
        return False
    return part.at is (At.LAST if before.kleene else At.SINGLE)
