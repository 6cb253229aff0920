"""The events of an input in stream order, and the tests of a query on runs over them, one test at a time.

This code does not use the kernels. It is slow because it follows docs/semantics.md, "Event selection", event by event,
so that it can give a reason for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import (
    Aggregation,
    At,
    Attribute,
    BoundQuery,
    Component,
    Conjunct,
    EquivalenceTest,
    Intrinsic,
    Length,
    Scope,
    parts,
)
from ouzel.errors import QueryError
from ouzel.plan.choose import make_plan
from ouzel.plan.expressions import attribute_of, lacked_entirely
from ouzel.plan.model import Plan
from ouzel.prepared import Query
from ouzel.runtime.expressions import any_holds, constant
from ouzel.runtime.frames import EventFrame
from ouzel.runtime.inputs import as_table, with_readable_time
from ouzel.runtime.layout import Layout, ticks_of, tie_break_columns, widen
from ouzel.runtime.moments import moments_of, stream_order
from ouzel.runtime.output import MatchesByPlace, MatchFrame
from ouzel.runtime.program import make_program
from ouzel.runtime.values import Column, compare, truths

# For each positive component bound so far, in pattern order: the places of its events in stream order.
Run = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Events:
    """An input in stream order. `rows[place]` is the input row of the event at index `place`. An event comes after
    another if its moment is larger.
    """

    query: BoundQuery
    layout: Layout
    table: pa.Table
    end: np.ndarray
    moment: np.ndarray
    rows: np.ndarray

    @property
    def count(self) -> int:
        return len(self.end)

    def frame(self, places: np.ndarray) -> EventFrame:
        """Some events, as a frame that any component can read."""
        return EventFrame(self.query, self.layout, self.table, self.end, lambda _: places, len(places))

    @cached_property
    def everyone(self) -> EventFrame:
        """All events."""
        return self.frame(np.arange(self.count, dtype=np.int32))

    @cached_property
    def types(self) -> Column:
        return self.everyone.types(0)

    def are_of(self, component: Component) -> np.ndarray:
        """Which events have a type of the component."""
        return np.ones(self.count, bool) if component.types is None else self.everyone.is_one_of(0, component.types)

    def partition(self, place: int) -> np.ndarray:
        """The events in the same partition as one event: they are equal to it on every [attr], without nulls and
        missing attributes.
        """
        inside = np.ones(self.count, bool)
        for test in self.query.equivalences:
            value, absent = self.everyone.tested(test)
            same = compare("=", value, pa.repeat(value[place], self.count))
            inside &= truths(same) & ~absent & ~absent[place]
        return inside


def read_events(
    events: Any,
    prepared: dict[str, Any],
    *,
    time: str,
    type: str | None,
    order: Collection[str],
    time_unit: str | None,
) -> Events:
    """The events of an input, bound to one query, in stream order."""
    for one in prepared.values():
        _check_can_be_shown(one)
    if isinstance(events, Mapping):
        inputs = {name: with_readable_time(as_table(one), time) for name, one in events.items()}
        schemas = {name: one.schema for name, one in inputs.items()}
        program = make_program(prepared, schemas, time=time, type=type, order=order, time_unit=time_unit)
        table = widen(inputs, program.layout)
    else:
        table = with_readable_time(as_table(events), time)
        program = make_program(prepared, table.schema, time=time, type=type, order=order, time_unit=time_unit)
    (bound,) = program.queries
    ticks = ticks_of(table, program.layout)
    moments = moments_of(table, ticks, program.layout)
    unordered = Events(bound, program.layout, table, ticks, moments, np.arange(table.num_rows))
    places = _order(unordered)
    if places is None:
        return unordered
    return replace(
        unordered,
        table=table.take(pa.array(places)),
        end=ticks[places],
        moment=moments[places],
        rows=places.astype(np.int64),
    )


def _check_can_be_shown(query: Any) -> None:
    if not isinstance(query, Query):
        raise QueryError("an expression of the algebra cannot be shown event by event; give a query as text")
    if query.tree.threshold is not None:
        raise QueryError(
            f"query '{query.name}' has THRESHOLD, and missing events cannot be shown",
            hint="leave THRESHOLD out to see how far the observed events go",
        )
    if any(source != "input" for source in query.tree.sources):
        raise QueryError(
            f"query '{query.name}' reads what another query finds ({', '.join(query.tree.sources)})",
            hint="give the answer of that query as the events, and leave FROM out",
        )


def _order(events: Events) -> np.ndarray | None:
    plan = make_plan(events.query)
    names = [*events.layout.order, *tie_break_columns(plan, events.layout)]
    everyone = np.arange(events.count, dtype=np.int32)
    return stream_order(
        events.moment, events.moment, _plays(events, plan), events.table.select(names), everyone,
        len(events.layout.order),
    )  # fmt: skip


def _plays(events: Events, plan: Plan) -> np.ndarray:
    """Which events pass the type and the single-event conjuncts of some component."""
    plays = np.zeros(events.count, bool)
    for component in events.query.components:
        own = np.flatnonzero(events.are_of(component)).astype(np.int32)
        frame = events.frame(own)
        for conjuncts in plan.roles_of(component)[: 2 if component.kleene else 1]:
            passing = np.ones(len(own), bool)
            for conjunct in conjuncts:
                passing &= any_holds(conjunct.comparisons, frame)
            plays[own[passing]] = True
    return plays


# ── Runs and candidates ────────────────────────────────────────────────────────────────────────────


class RunFrame:
    """A frame for one run with several candidates for its next event, one candidate per row.

    `bound` maps the position of each component to the indexes of its events. The candidates are for the next event of
    `component`. `iteration` is the i of v[i].
    """

    def __init__(
        self,
        events: Events,
        bound: Mapping[int, tuple[int, ...]],
        component: int,
        candidates: np.ndarray,
        iteration: int | None = None,
    ) -> None:
        self._events = events
        self._bound = bound
        self._component = component
        self._candidates = candidates
        self._iteration = iteration
        self.rows = len(candidates)

    def _frame(self, component: int, at: At) -> EventFrame:
        chosen = self._bound.get(component, ())
        if at in (At.CURRENT, At.PREVIOUS):
            assert self._iteration is not None, "a conjunct with v[i] is tested for some i"
            number = self._iteration - (at is At.PREVIOUS)
        else:
            number = len(chosen) if at is At.LAST else 1
        if number <= len(chosen):
            return self._events.frame(np.full(self.rows, chosen[number - 1], np.int32))
        assert component == self._component, "only the event that is read is not bound yet"
        return self._events.frame(self._candidates)

    def attribute(self, reference: Attribute) -> Column:
        return self._frame(reference.component, reference.at).attribute(reference)

    def intrinsic(self, reference: Intrinsic) -> Column:
        return self._frame(reference.component, reference.at).intrinsic(reference)

    def lacks(self, reference: Attribute) -> np.ndarray | None:
        return self._frame(reference.component, reference.at).lacks(reference)

    def aggregate(self, expression: Length | Aggregation) -> Column:
        """An aggregate over all events of a component, or over those bound before this one."""
        chosen = self._bound[expression.component]
        if isinstance(expression, Aggregation) and expression.scope is Scope.BEFORE:
            assert self._iteration is not None
            chosen = chosen[: self._iteration - 1]
        query = self._events.query
        nothing = np.zeros(1, np.int64)
        # Components that are not named may have no events yet, unlike in a complete match.
        events = {component.position: () for component in query.positives} | {expression.component: chosen}
        places = [(np.array([0, len(rows)]), np.array(rows, np.int32)) for rows in events.values()]
        one = MatchesByPlace(self._events.table, self._events.end, places, nothing, nothing)
        value = MatchFrame(query, self._events.layout, one).aggregate(expression)
        return pa.repeat(value[0], self.rows)


def iterations(conjunct: Conjunct, bound: Mapping[int, tuple[int, ...]], component: int) -> Iterator[int | None]:
    """The values of i for which a conjunct must be tested after one more event for `component`."""
    indexed = {
        part.component
        for comparison in conjunct.comparisons
        for part in parts(comparison)
        if (isinstance(part, Attribute | Intrinsic) and part.at in (At.CURRENT, At.PREVIOUS))
        or (isinstance(part, Aggregation) and part.scope is Scope.BEFORE)
    }
    if not indexed:
        yield None
        return
    (variable,) = indexed
    chosen = len(bound.get(variable, ()))
    if variable == component:
        # Earlier events were tested when they were taken.
        yield chosen + 1
    else:
        yield from range(2, chosen + 1)


def conjunct_holds(
    events: Events, conjunct: Conjunct, bound: Mapping[int, tuple[int, ...]], component: int, candidates: np.ndarray
) -> np.ndarray:
    """For which candidates a conjunct holds."""
    result = np.ones(len(candidates), bool)
    for iteration in iterations(conjunct, bound, component):
        frame = RunFrame(events, bound, component, candidates, iteration)
        result &= any_holds(conjunct.comparisons, frame)
    return result


def equivalence_holds(
    events: Events,
    test: EquivalenceTest,
    bound: Mapping[int, tuple[int, ...]],
    component: int,
    candidates: np.ndarray,
) -> np.ndarray:
    """For which candidates [attr] holds, together with the bound events."""
    query = events.query
    if lacked_entirely(query, component, test):
        return np.ones(len(candidates), bool)
    attribute = attribute_of(query, component, test)
    frame = events.frame(candidates)
    value = frame.attribute(attribute)
    agreed = pc.is_valid(value)
    if test.value is not None:
        agreed = pc.and_kleene(agreed, compare("=", value, constant(test.value, len(candidates))))
    reference = agreed_value(events, test, bound)
    if reference is not None:
        agreed = pc.and_kleene(agreed, compare("=", value, pa.repeat(reference[0], len(candidates))))
    absent = frame.lacks(attribute)
    return truths(agreed) if absent is None else truths(agreed) | absent


def agreed_value(events: Events, test: EquivalenceTest, bound: Mapping[int, tuple[int, ...]]) -> Column | None:
    """The value of [attr] that the bound events share, as an array of length one. None if none of their types has the
    attribute.
    """
    for component, places in bound.items():
        if lacked_entirely(events.query, component, test):
            continue
        attribute = attribute_of(events.query, component, test)
        for place in places:
            frame = events.frame(np.array([place], np.int32))
            absent = frame.lacks(attribute)
            if absent is None or not absent[0]:
                return frame.attribute(attribute)
    return None
