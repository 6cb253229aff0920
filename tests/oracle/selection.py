"""docs/semantics.md, "Windows" and "Event selection": the accepting runs of a query's NFA^b."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ouzel.lang import syntax
from ouzel.lang.syntax import Contiguity, Strategy
from tests.oracle.conditions import Component, Conditions, Edge
from tests.oracle.events import Event, follows
from tests.oracle.expressions import evaluate

# The positions of the events bound to each positive component that the run has begun, in pattern order.
Run = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Selection:
    """The events of a stream, in stream order, and the query whose runs read them. A position is a place in it."""

    conditions: Conditions
    events: tuple[Event, ...]

    # ── Windows ────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def window(self) -> int | None:
        """T in ticks, or n in events; "a bare number is ticks"."""
        within = self.conditions.query.within
        if within is None:
            return None
        extent = evaluate(within.extent, self.conditions.scope({}))
        assert int(extent) == extent, "windows are whole numbers"
        return int(extent)

    @property
    def window_is_in_events(self) -> bool:
        within = self.conditions.query.within
        return within is not None and within.in_events

    @cached_property
    def positions_in_partition(self) -> tuple[int | None, ...]:
        """ "Positions among the events of the same partition (the [attr] tests; with none, of the whole stream), of
        any type." """
        seen: Counter[tuple[object, ...]] = Counter()
        positions: list[int | None] = []
        for event in self.events:
            partition = self.conditions.partition(event)
            positions.append(None if partition is None else seen[partition])
            if partition is not None:
                seen[partition] += 1
        return tuple(positions)

    def window_holds(self, first: int, last: int) -> bool:
        if self.window is None:
            return True
        if self.window_is_in_events:
            # "last.position - first.position < n".
            first_position, last_position = self.positions_in_partition[first], self.positions_in_partition[last]
            if first_position is None or last_position is None:
                return False
            return last_position - first_position < self.window
        # "last.end - first.start < T, strictly less, for a match of one event too".
        return self.events[last].end - self.events[first].start < self.window

    # ── Runs ───────────────────────────────────────────────────────────────────────────────────────

    def bound(self, run: Run) -> Mapping[str, Event | tuple[Event, ...]]:
        """The run's events by variable."""
        bound: dict[str, Event | tuple[Event, ...]] = {}
        for component, positions in zip(self.conditions.positives, run, strict=False):
            events = tuple(self.events[position] for position in positions)
            bound[component.name] = events if component.kleene else events[0]
        return bound

    def _holds_on(self, component: Component, edge: Edge, run: Run) -> bool:
        """The conjuncts without negative components whose last identifier is on this edge."""
        bound = self.bound(run)
        return all(
            self.conditions.holds(conjunct, bound)
            for conjunct in self.conditions.conjuncts
            if conjunct.last == (component.number, edge)
            and not any(self.conditions.by_name[name].negated for name in conjunct.names)
        )

    def _may_bind(self, component: Component, edge: Edge, run: Run) -> bool:
        """May the last event of the run stand where it does? "e has the right type, e.start > last.end, the window
        holds and `take` (or `begin`) holds", and all equivalence tests."""
        positions = [position for bound in run for position in bound]
        events = [self.events[position] for position in positions]
        return (
            component.is_of_right_type(events[-1])
            and (len(events) == 1 or follows(events[-1], events[-2]))
            and self.window_holds(positions[0], positions[-1])
            and self.conditions.are_equivalent(events)
            and self._holds_on(component, edge, run)
        )

    def _begun(self, run: Run, position: int) -> Run | None:
        """The run with the event bound to its next component, if `begin` holds."""
        if len(run) == len(self.conditions.positives):
            return None
        longer = (*run, (position,))
        return longer if self._may_bind(self.conditions.positives[len(run)], Edge.BEGIN, longer) else None

    def _taken(self, run: Run, position: int) -> Run | None:
        """The run with the event as its next v[i], if `take` holds."""
        most = self._current(run).most
        if most is not None and len(run[-1]) >= most:
            # "A run that holds n events of v takes no more."
            return None
        longer = (*run[:-1], (*run[-1], position))
        return longer if self._may_bind(self._current(run), Edge.TAKE, longer) else None

    def _proceeds(self, run: Run) -> bool:
        # "It may leave only with at least m."
        is_enough = len(run[-1]) >= self._current(run).least
        return is_enough and self._holds_on(self._current(run), Edge.PROCEED, run)

    def _current(self, run: Run) -> Component:
        return self.conditions.positives[len(run) - 1]

    # ── Moves ──────────────────────────────────────────────────────────────────────────────────────

    def _after_reading(self, run: Run, position: int) -> Iterable[Run]:
        """ "If T, one run takes e; if B, one run leaves v and binds e to the next component; if I, one run stays as it
        is. So one run may become three." """
        if self._current(run).kleene:
            taken = self._taken(run, position)
            begun = self._begun(run, position) if self._proceeds(run) else None
            chosen = taken
        else:
            # "A run waiting for a single component or v[1]: B as `begin` holds for e; I with B in T's place."
            taken = None
            begun = self._begun(run, position)
            chosen = begun
        if self.strategy is Strategy.CONTIGUITY:
            # "A match is every choice of events in which each pair of neighbours keeps its rule."
            kept = [
                moved
                for moved, edge, bind in ((taken, Edge.TAKE, self._taken), (begun, Edge.BEGIN, self._begun))
                if moved is not None and self._keeps_rule(run, position, edge, bind)
            ]
            return [*kept, run]
        stays = {
            Strategy.STRICT_CONTIGUITY: False,
            Strategy.PARTITION_CONTIGUITY: (
                taken is None and begun is None and not self._is_in_partition_of(run, position)
            ),
            Strategy.SKIP_TILL_NEXT_MATCH: chosen is None,
            Strategy.SKIP_TILL_ANY_MATCH: True,
        }[self.strategy]
        moves = [taken, begun, run if stays else None]
        return [moved for moved in moves if moved is not None]

    def _keeps_rule(self, run: Run, position: int, edge: Edge, bind: Callable[[Run, int], Run | None]) -> bool:
        """Does the event relate to the event bound just before it as contiguity(…) says for its step?"""
        component = self._current(run) if edge is Edge.TAKE else self.conditions.positives[len(run)]
        between = range(run[-1][-1] + 1, position)
        match self._rule(component, edge):
            case Contiguity.STRICT:
                return len(between) == 0
            case Contiguity.PARTITION:
                return not any(self._is_in_partition_of(run, other) for other in between)
            case Contiguity.NEXT:
                # "None between that would itself have satisfied this very step."
                return all(bind(run, other) is None for other in between)
            case _:
                return True

    def _rule(self, component: Component, edge: Edge) -> Contiguity:
        """ "Steps that are not named are `any`." """
        selection = self.conditions.query.selection
        assert selection is not None
        named = [s for s in selection.steps if s.variable == component.name and s.repeats == (edge is Edge.TAKE)]
        return named[0].contiguity if named else Contiguity.ANY

    @property
    def strategy(self) -> Strategy:
        """ "`WHERE` without a strategy means `skip_till_any_match`." """
        selection: syntax.Selection | None = self.conditions.query.selection
        return Strategy.SKIP_TILL_ANY_MATCH if selection is None else selection.strategy

    def _is_in_partition_of(self, run: Run, position: int) -> bool:
        """With no [attr] test all events are in one partition, so that this is "as strict"."""
        return self.conditions.partition(self.events[position]) == self.conditions.partition(self.events[run[0][0]])

    def _accepts(self, run: Run) -> bool:
        """ "When v[] is the last component, every begin or take that also satisfies `proceed` gives a match." """
        if len(run) < len(self.conditions.positives):
            return False
        return not self._current(run).kleene or self._proceeds(run)

    def matches(self) -> set[Run]:
        """All accepting runs. "Two runs that bound the same events to the same components are one match." """
        accepted: set[Run] = set()
        runs: set[Run] = set()
        for position in range(len(self.events)):
            moved: set[Run] = set()
            for run in runs:
                moved.update(self._after_reading(run, position))
            # "Each event may also start a new run."
            begun = self._begun((), position)
            if begun is not None:
                moved.add(begun)
            accepted.update(run for run in moved - runs if self._accepts(run))
            # A run that is complete, or whose window has passed, has no moves left that bind an event.
            runs = {run for run in moved if self._may_go_on(run, position)}
        return accepted

    def _may_go_on(self, run: Run, position: int) -> bool:
        is_complete = len(run) == len(self.conditions.positives) and not self._current(run).kleene
        has_passed = (
            self.window is not None
            and not self.window_is_in_events
            and self.events[position].end - self.events[run[0][0]].start >= self.window
        )
        return not is_complete and not has_passed
