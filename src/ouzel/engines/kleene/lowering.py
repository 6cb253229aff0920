"""Lowers a run plan: its conjuncts become tests on the edges of NFA^b, which read references, registers and lanes.

A *reference* is what a test reads: an event (v[1], v[i], v[i-1], or the event with the largest x so far) or a number
that a run keeps. The kernel sets the references of a test before it tests. Lanes belong to events, so all references to
events of one component use the same lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ouzel.bind.model import (
    FLOAT,
    Aggregation,
    At,
    Attribute,
    Bound,
    BoundQuery,
    Conjunct,
    Edge,
    Intrinsic,
    Kind,
    Length,
    Operation,
    Scope,
    replaced,
    rewritten,
)
from ouzel.engines.kleene.plan import RunPlan, most_events
from ouzel.engines.kleene.tables import Function, Load, Register, Rule, RunNegative, RunPlace, RunTest, Source
from ouzel.errors import QueryError
from ouzel.kernels.predicate_tables import Alternative, Lane
from ouzel.lang.syntax import Contiguity
from ouzel.plan.lowering import Domain, Inexpressible, Lanes, LaneSpec, alternative_of, comparison_domain

_RULES = {
    Contiguity.ANY: Rule.ANY,
    Contiguity.NEXT: Rule.NEXT,
    Contiguity.PARTITION: Rule.PARTITION,
    Contiguity.STRICT: Rule.STRICT,
}
_NUMBERS = {
    "count": Function.COUNT,
    "count_distinct": Function.DISTINCT,
    "sum": Function.SUM,
    "avg": Function.AVERAGE,
    "stddev": Function.DEVIATION,
}
_HOLDS_SLOT = {"first": Function.FIRST, "last": Function.LAST, "min": Function.LEAST, "max": Function.GREATEST}


@dataclass(frozen=True, slots=True)
class Running(Length):
    """A number that a run keeps. Before a test it is written into a lane, at a slot that belongs to its reference."""

    row: int
    floating: bool


@dataclass(slots=True)
class RunLanes(Lanes):
    """The lanes of events. Each lane has its own row, which all components share."""

    # For each reference to an event, the component of that event.
    owners: dict[int, int] = field(default_factory=dict)
    int_specs: list[LaneSpec] = field(default_factory=list)
    float_specs: list[LaneSpec] = field(default_factory=list)

    def lane(self, component: int, spec: LaneSpec) -> Lane:
        """The lane of a value of reference `component`."""
        if isinstance(spec.expression, Running):
            return Lane(component, spec.expression.row, spec.expression.floating)
        floating = spec.domain is Domain.FLOAT
        return Lane(component, self.row(self.owners[component], spec), floating)

    def row(self, component: int, spec: LaneSpec) -> int:
        known = self.float_specs if spec.domain is Domain.FLOAT else self.int_specs
        spec = replace(spec, expression=_seen_as(spec.expression, component, At.SINGLE))
        if spec not in known:
            known.append(spec)
        return known.index(spec)


@dataclass(frozen=True, slots=True)
class RunLowered:
    """The arrays' contents for the run kernel: lanes, references, registers and tests of a plan."""

    places: tuple[RunPlace, ...]
    negatives: tuple[RunNegative, ...]
    lanes: RunLanes
    int_rows: int
    float_rows: int
    # For each reference the slot into which numbers are loaded, -1 for references to events.
    number_slots: tuple[int, ...]

    @property
    def reserved_slots(self) -> int:
        """The number of slots that the kernel uses itself: one for the null event, and one for each number."""
        return 1 + sum(slot >= 0 for slot in self.number_slots)


def lower_runs(plan: RunPlan) -> RunLowered:
    """References, registers, lanes and tests for a plan."""
    return _Lowering(plan).lowered()


class _Lowering:
    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._query: BoundQuery = plan.query
        self._place = {c.position: number for number, c in enumerate(plan.positives)}
        self._references: dict[tuple[object, ...], int] = {}
        self._number_slots: list[int] = []
        self._rows: dict[int, tuple[list[int], list[int]]] = {}
        self._registers: list[list[Register]] = [[] for _ in plan.positives]
        self.lanes = RunLanes()

    def lowered(self) -> RunLowered:
        by_edge: dict[tuple[int, Edge], list[RunTest]] = {}
        for conjunct in self._plan.construction:
            place = self._place[conjunct.tested_at]
            by_edge.setdefault((place, conjunct.edge), []).append(self._test(conjunct, place, conjunct.edge))
        negatives = []
        for negative in self._plan.negatives:
            tests = [self._test(c, len(self._place), None) for c in self._plan.forbidding[negative.position]]
            interval = self._query.interval(negative)
            after = -1 if interval.after is None else self._place[interval.after.position]
            before = len(self._place) if interval.before is None else self._place[interval.before.position]
            reference = self._event_reference(negative.position, "negative")
            negatives.append(RunNegative(after, before, interval.across, reference, tuple(tests)))
        places = []
        for number, component in enumerate(self._plan.positives):
            places.append(
                RunPlace(
                    kleene=component.kleene,
                    first=self._event_reference(component.position, "first"),
                    current=self._event_reference(component.position, "current"),
                    begin=tuple(by_edge.get((number, Edge.BEGIN), ())),
                    take=tuple(by_edge.get((number, Edge.TAKE), ())),
                    proceed=tuple(by_edge.get((number, Edge.PROCEED), ())),
                    most=most_events(self._query, component.position),
                    entered=_RULES[self._query.contiguity(component.position, Edge.BEGIN)],
                    repeated=_RULES[self._query.contiguity(component.position, Edge.TAKE)],
                )
            )
        places = [place._replace(registers=tuple(self._registers[n])) for n, place in enumerate(places)]
        number_rows = self._rows.values()
        return RunLowered(
            tuple(places),
            tuple(negatives),
            self.lanes,
            max([len(self.lanes.int_specs), *(len(ints) for ints, _ in number_rows)]),
            max([len(self.lanes.float_specs), *(len(floats) for _, floats in number_rows)]),
            tuple(self._number_slots),
        )

    # ── References ─────────────────────────────────────────────────────────────────────────────────

    def _reference(self, *key: object) -> int:
        if key not in self._references:
            self._references[key] = len(self._number_slots)
            self._number_slots.append(-1)
        return self._references[key]

    def _event_reference(self, component: int, *what: object) -> int:
        reference = self._reference(component, *what)
        self.lanes.owners[reference] = component
        return reference

    def _number_reference(self, component: int, scope: Scope) -> int:
        reference = self._reference(component, "numbers", scope)
        if self._number_slots[reference] < 0:
            self._number_slots[reference] = 1 + sum(slot >= 0 for slot in self._number_slots)
        return reference

    def _register(self, place: int, register: Register) -> int:
        known = self._registers[place]
        if register not in known:
            known.append(register)
        return known.index(register)

    # ── Tests ──────────────────────────────────────────────────────────────────────────────────────

    def _test(self, conjunct: Conjunct, place: int, edge: Edge | None) -> RunTest:
        """A conjunct as a test on an edge of a place. With no edge, the test is on a complete match and a negative
        event.
        """
        rewriting = _Rewriting(self, self._query, self._place, place, edge)
        try:
            comparisons = [rewriting.rewritten(comparison) for comparison in conjunct.comparisons]
            alternatives: tuple[Alternative, ...] = tuple(alternative_of(c, self.lanes) for c in comparisons)
        except Inexpressible:
            raise QueryError(
                "a condition cannot combine text or lists of several events",
                text=self._query.text,
                start=conjunct.span.start,
                end=conjunct.span.end,
                hint="compare attributes of events as they are, or compute what is combined as a column beforehand",
            ) from None
        return RunTest(
            alternatives,
            tuple(dict.fromkeys(rewriting.loads)),
            rewriting.iterated,
            rewriting.current,
            tuple(dict.fromkeys(rewriting.iterated_loads)),
        )

    # The methods below are called by the rewriting of one conjunct.

    def event(self, component: int, at: At) -> int:
        what = {At.SINGLE: "first", At.FIRST: "first", At.CURRENT: "current", At.PREVIOUS: "previous", At.LAST: "last"}
        return self._event_reference(component, what[at])

    def negative(self, component: int) -> int:
        return self._event_reference(component, "negative")

    def chosen_event(self, aggregation: Aggregation) -> tuple[int, Load]:
        """The reference to the event that min, max, first or last chooses, and the load that sets it."""
        assert aggregation.operand is not None
        place = self._place[aggregation.component]
        ordered = aggregation.function in ("min", "max")
        domain = comparison_domain("<" if ordered else "=", aggregation.operand.type)
        row = self.lanes.row(aggregation.component, LaneSpec(aggregation.operand, domain))
        register = self._register(
            place, Register(_HOLDS_SLOT[aggregation.function], Lane(0, row, domain is Domain.FLOAT))
        )
        reference = self._event_reference(aggregation.component, "chosen", aggregation.scope, register)
        return reference, Load(Source.SLOT, place, reference, register)

    def number(self, part: Length | Aggregation) -> tuple[Running, Load]:
        """The lane of a length or of an aggregate that is a number, and the load that sets it."""
        place = self._place[part.component]
        scope = part.scope if isinstance(part, Aggregation) else Scope.ALL
        lane: Lane | None = None
        function = Function.COUNT
        if isinstance(part, Aggregation) and part.operand is not None:
            operand = part.operand
            function = _NUMBERS[part.function]
            if function in (Function.AVERAGE, Function.DEVIATION) and operand.type.kind is not Kind.FLOAT:
                operand = Operation("cast", (operand,), type=FLOAT)
            domain = comparison_domain("=", operand.type)
            lane = Lane(0, self.lanes.row(part.component, LaneSpec(operand, domain)), domain is Domain.FLOAT)
        total = self._register(place, Register(Function.AVERAGE, lane)) if function is Function.DEVIATION else -1
        register = self._register(place, Register(function, lane, total))
        floating = function > Function.DISTINCT and lane is not None and lane.floating
        reference = self._number_reference(part.component, scope)
        rows = self._rows.setdefault(reference, ([], []))[1 if floating else 0]
        if register not in rows:
            rows.append(register)
        running = Running(reference, rows.index(register), floating, type=part.type, span=part.span)
        return running, Load(Source.NUMBER, place, reference, register, running.row)


class _Rewriting:
    """Rewrites one conjunct: references replace its events, and the loads that set them are collected."""

    def __init__(
        self, lowering: _Lowering, query: BoundQuery, places: dict[int, int], place: int, edge: Edge | None
    ) -> None:
        self._lowering = lowering
        self._query = query
        self._places = places
        self._place = place
        self._edge = edge
        self.loads: list[Load] = []
        self.iterated_loads: list[Load] = []
        self.iterated = -1
        self.current = -1

    def rewritten(self, expression: Bound) -> Bound:
        """The expression over references instead of components."""
        return rewritten(expression, self._change)

    def _change(self, expression: Bound) -> Bound | None:
        if isinstance(expression, Attribute | Intrinsic):
            return replace(expression, component=self._event(expression.component, expression.at))
        if isinstance(expression, Aggregation) and expression.function in _HOLDS_SLOT:
            assert expression.operand is not None
            reference, load = self._lowering.chosen_event(expression)
            self._add(load, expression.component, expression.scope is Scope.BEFORE)
            return _seen_as(expression.operand, reference, At.SINGLE)
        if isinstance(expression, Length | Aggregation):
            running, load = self._lowering.number(expression)
            before = isinstance(expression, Aggregation) and expression.scope is Scope.BEFORE
            self._add(load, expression.component, before)
            return running
        return None

    def _event(self, component: int, at: At) -> int:
        if self._query.components[component].negated:
            return self._lowering.negative(component)
        reference = self._lowering.event(component, at)
        place = self._places[component]
        here = place == self._place
        if at is At.CURRENT:
            if not (here and self._edge is Edge.TAKE):
                self._iterate(component, place)
        elif at is At.PREVIOUS:
            self._add(Load(Source.LAST, place, reference), component, True)
        elif at is At.LAST:
            self.loads.append(Load(Source.LAST, place, reference))
        elif not (here and self._edge is Edge.BEGIN):
            self.loads.append(Load(Source.FIRST, place, reference))
        return reference

    def _add(self, load: Load, component: int, before: bool) -> None:
        """Collect a load of an aggregate: over the events before v[i] if `before`, otherwise over all of them."""
        place = self._places[component]
        if before and not (place == self._place and self._edge is Edge.TAKE):
            self._iterate(component, place)
            self.iterated_loads.append(load)
        else:
            self.loads.append(load)

    def _iterate(self, component: int, place: int) -> None:
        self.iterated = place
        self.current = self._lowering.event(component, At.CURRENT)


def _seen_as(expression: Bound, component: int, at: At) -> Bound:
    """An expression over one event, with another component number."""
    return replaced(expression, lambda reference: replace(reference, component=component, at=at))


def lane_specs(lowered: RunLowered) -> Iterable[tuple[LaneSpec, int, bool]]:
    """(lane, row, is float64) of every lane of events."""
    for row, spec in enumerate(lowered.lanes.int_specs):
        yield spec, row, False
    for row, spec in enumerate(lowered.lanes.float_specs):
        yield spec, row, True
