"""The search for why one event begins no match: follows all runs from that event until one is a match, and records how
far they get and what stops them.

Runs advance as in docs/semantics.md, "Event selection".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import numpy as np

from ouzel.bind.model import Component, Conjunct, Edge, EquivalenceTest, EventWindow, TimeWindow
from ouzel.insight.events import Events, Run, conjunct_holds, equivalence_holds
from ouzel.lang.syntax import Contiguity, Strategy


class Bar(Enum):
    """Why an event cannot be bound."""

    TYPE = "type"
    ORDER = "order"
    WINDOW = "window"


# The reason to refuse a candidate: one of the bars, an equivalence test or a conjunct.
Hindrance = Bar | EquivalenceTest | Conjunct


@dataclass(frozen=True)
class Tried:
    """Events in stream order, and for each the first reason why it cannot fill a component; None if there is no
    reason.

    `unready` are conjuncts that keep the run in its previous component. They fail for every next event.
    """

    component: Component
    edge: Edge
    places: np.ndarray
    hindrances: tuple[Hindrance, ...]
    # For each event the number of its reason, -1 if there is none.
    hindered: np.ndarray
    unready: tuple[Conjunct, ...] = ()

    @cached_property
    def passing(self) -> np.ndarray:
        return self.hindered < 0 if not self.unready else np.zeros(len(self.places), bool)


@dataclass(frozen=True)
class Forbidden:
    """A complete run, and the negative event that forbids it."""

    run: Run
    negative: Component
    place: int


@dataclass
class Found:
    """The result of a search."""

    # What kept the event from beginning a match.
    start: Tried
    match: Run | None = None
    furthest: Run = ()
    forbidden: list[Forbidden] = field(default_factory=list)
    looked_at: int = 0
    # Whether the search was complete; if not, a missing match proves nothing.
    exhausted: bool = True


class Search:
    """The runs from one start event."""

    def __init__(self, events: Events, start: int) -> None:
        self.events = events
        self.start = start
        self._query = events.query
        self._positives = events.query.positives

    def find(self, limit: int) -> Found:
        """Search the runs, those nearest to a match first, until one is a match or `limit` runs have been looked at."""
        start = self.tried((), self._positives[0], Edge.BEGIN, np.array([self.start], np.int32))
        found = Found(start)
        waiting: list[Run] = [((self.start,),)] if start.passing[0] else []
        best = -1
        while waiting:
            if found.looked_at == limit:
                found.exhausted = False
                break
            run = waiting.pop()
            found.looked_at += 1
            reached = 1000 * len(run) + min(sum(map(len, run)), 999)
            if self.accepts(run):
                forbidden = self.forbidden(run)
                if forbidden is None:
                    found.match = run
                    break
                found.forbidden.append(forbidden)
            if reached > best:
                best, found.furthest = reached, run
            # The earliest event of the next component is tried first.
            waiting += reversed(list(self._moves(run)))
        return found

    # ── Tests ──────────────────────────────────────────────────────────────────────────────────────

    def bound(self, run: Run) -> dict[int, tuple[int, ...]]:
        return {c.position: places for c, places in zip(self._positives, run, strict=False)}

    def accepts(self, run: Run) -> bool:
        """Whether a run is complete: all positive components are bound, and the last one may be left."""
        return len(run) == len(self._positives) and not self.unready(run)

    def unready(self, run: Run) -> tuple[Conjunct, ...]:
        """The conjuncts that keep a run from leaving its Kleene component."""
        current = self._positives[len(run) - 1]
        if not current.kleene:
            return ()
        anything = np.array([run[-1][-1]], np.int32)
        tests = self._conjuncts(current, Edge.PROCEED)
        return tuple(c for c in tests if not conjunct_holds(self.events, c, self.bound(run), -1, anything)[0])

    def tried(self, run: Run, component: Component, edge: Edge, places: np.ndarray, *, window: bool = True) -> Tried:
        """For each event, why it cannot be the next event of a run. The window can be ignored."""
        bound = self.bound(run)
        hindrances: list[Hindrance] = []
        hindered = np.full(len(places), -1, np.int32)
        open_ = np.arange(len(places))

        def keep(hindrance: Hindrance, passing: np.ndarray) -> None:
            nonlocal open_
            if not passing.all():
                hindered[open_[~passing]] = len(hindrances)
                hindrances.append(hindrance)
                open_ = open_[passing]

        keep(Bar.TYPE, self._is_of(component)[places])
        if run:
            keep(Bar.ORDER, self.events.moment[places[open_]] > self.events.moment[run[-1][-1]])
        if window:
            keep(Bar.WINDOW, self._in_window(places[open_]))
        for test in self._query.equivalences:
            keep(test, equivalence_holds(self.events, test, bound, component.position, places[open_]))
        for conjunct in self._conjuncts(component, edge):
            keep(conjunct, conjunct_holds(self.events, conjunct, bound, component.position, places[open_]))
        unready = self.unready(run) if edge is Edge.BEGIN and run else ()
        return Tried(component, edge, places, tuple(hindrances), hindered, unready)

    def _conjuncts(self, component: Component, edge: Edge) -> list[Conjunct]:
        return [
            c
            for c in self._query.conjuncts
            if c.negative is None and c.tested_at == component.position and c.edge is edge
        ]

    def _is_of(self, component: Component) -> np.ndarray:
        if component.position not in self._types:
            self._types[component.position] = self.events.are_of(component)
        return self._types[component.position]

    @cached_property
    def _types(self) -> dict[int, np.ndarray]:
        return {}

    # ── Windows and partitions ─────────────────────────────────────────────────────────────────────

    @cached_property
    def partition(self) -> np.ndarray:
        return self.events.partition(self.start)

    @cached_property
    def window_end(self) -> int | None:
        """The tick at which a time window closes; None if there is none."""
        window = self._query.window
        if not isinstance(window, TimeWindow):
            return None
        assert window.ticks is not None, "the time domain is known once there are events"
        return int(self.events.end[self.start]) + window.ticks

    def _in_window(self, places: np.ndarray) -> np.ndarray:
        if self.window_end is not None:
            return np.asarray(self.events.end[places] < self.window_end)
        if isinstance(self._query.window, EventWindow):
            return np.asarray(self.partition[places] & (self._numbers[places] < self._query.window.count))
        return np.ones(len(places), bool)

    @cached_property
    def _numbers(self) -> np.ndarray:
        """For each event, the number of events of the partition after the start and up to it."""
        counted = np.cumsum(self.partition)
        return np.asarray(counted - counted[self.start])

    def rest(self, run: Run) -> np.ndarray:
        """The events after the last event of a run, up to the end of the window."""
        last = self.events.count
        if self.window_end is not None:
            last = int(np.searchsorted(self.events.end, self.window_end, side="left"))
        elif isinstance(self._query.window, EventWindow):
            last = int(np.searchsorted(self._numbers, self._query.window.count, side="left"))
        return np.arange(run[-1][-1] + 1, max(last, run[-1][-1] + 1), dtype=np.int32)

    def too_late(self, run: Run, component: Component) -> int | None:
        """The first event that could have been the next component if the window had not closed before it."""
        if self.window_end is None:
            return None
        first = int(np.searchsorted(self.events.end, self.window_end, side="left"))
        later = first + np.flatnonzero(self._is_of(component)[first:])
        fitting = self.tried(run, component, Edge.BEGIN, later.astype(np.int32), window=False).passing
        return int(later[np.argmax(fitting)]) if fitting.any() else None

    # ── Moves ──────────────────────────────────────────────────────────────────────────────────────

    def next_tried(self, run: Run, places: np.ndarray) -> tuple[Tried | None, Tried | None]:
        """(take, begin): how the next events fit a run; None for an edge that the run does not have."""
        current = self._positives[len(run) - 1]
        take = self.tried(run, current, Edge.TAKE, places) if current.kleene else None
        begin = None
        if len(run) < len(self._positives):
            begin = self.tried(run, self._positives[len(run)], Edge.BEGIN, places)
        return take, begin

    def _moves(self, run: Run) -> Iterator[Run]:
        """The runs that a run can become under the strategy. Those that begin the next component come first."""
        places = self.rest(run)
        take, begin = self.next_tried(run, places)
        if take is None and begin is None:
            return
        taken = take.passing if take is not None else np.zeros(len(places), bool)
        begun = begin.passing if begin is not None else np.zeros(len(places), bool)
        last_taken = last_begun = self._last_read(places, taken, begun, kleene=take is not None)
        if self._query.strategy is Strategy.CONTIGUITY:
            last_taken, last_begun = self._last_of_step(take), self._last_of_step(begin)
        for number in np.flatnonzero(begun[:last_begun]):
            yield (*run, (int(places[number]),))
        for number in np.flatnonzero(taken[:last_taken]):
            yield (*run[:-1], (*run[-1], int(places[number])))

    def _last_of_step(self, tried: Tried | None) -> int:
        """How many events a step of contiguity(…) may read: those up to the first that it must not skip, or all."""
        if tried is None:
            return 0
        last = self._ends(tried)
        if self._query.contiguity(tried.component.position, tried.edge) is Contiguity.NEXT:
            last = tried.passing
        return int(np.argmax(last)) + 1 if last.any() else len(tried.places)

    def _ends(self, tried: Tried) -> np.ndarray:
        """Which events a step of contiguity(…) must not skip, even if they do not fit."""
        rule = self._query.contiguity(tried.component.position, tried.edge)
        if rule is Contiguity.PARTITION:
            return np.asarray(self.partition[tried.places])
        return np.full(len(tried.places), rule is Contiguity.STRICT)

    def _last_read(self, places: np.ndarray, taken: np.ndarray, begun: np.ndarray, *, kleene: bool) -> int:
        """The number of next events that a run reads before it changes."""
        strategy = self._query.strategy
        if strategy is Strategy.SKIP_TILL_ANY_MATCH:
            return len(places)
        if strategy is Strategy.SKIP_TILL_NEXT_MATCH:
            leaves = taken if kleene else begun
        elif strategy is Strategy.PARTITION_CONTIGUITY:
            leaves = taken | begun | self.partition[places]
        else:
            leaves = np.ones(len(places), bool)
        return int(np.argmax(leaves)) + 1 if leaves.any() else len(places)

    def ended_by(self, run: Run) -> int | None:
        """The event that a run must not skip under its strategy, so that the run ended; None if it has read all events
        of the window.
        """
        places = self.rest(run)
        take, begin = self.next_tried(run, places)
        if self._query.strategy is Strategy.CONTIGUITY:
            last = self._last_of_step(begin)
            ended = begin is not None and last > 0 and self._ends(begin)[last - 1] and not begin.passing[last - 1]
            return int(places[last - 1]) if ended else None
        nothing = np.zeros(len(places), bool)
        taken = nothing if take is None else take.passing
        begun = nothing if begin is None else begin.passing
        last = self._last_read(places, taken, begun, kleene=take is not None)
        if self._query.strategy is Strategy.SKIP_TILL_ANY_MATCH or not last:
            return None
        ended = last < len(places) or self._query.strategy is Strategy.STRICT_CONTIGUITY
        return int(places[last - 1]) if ended and not (taken | begun)[last - 1] else None

    # ── Negation ───────────────────────────────────────────────────────────────────────────────────

    def forbidden(self, run: Run) -> Forbidden | None:
        """The first negative component that forbids a complete run, with its event; None if none does."""
        bound = self.bound(run)
        for negative in self._query.negatives:
            first, last = self._inside(run, negative)
            inside = (first + np.flatnonzero(self._is_of(negative)[first:last])).astype(np.int32)
            for test in self._query.equivalences:
                inside = inside[equivalence_holds(self.events, test, bound, negative.position, inside)]
            for conjunct in self._query.conjuncts:
                if conjunct.negative == negative.position:
                    inside = inside[conjunct_holds(self.events, conjunct, bound, negative.position, inside)]
            if len(inside):
                return Forbidden(run, negative, int(inside[0]))
        return None

    def _inside(self, run: Run, negative: Component) -> tuple[int, int]:
        """The range of indexes in which a negative component forbids events, as a slice."""
        end, moment = self.events.end, self.events.moment
        after, before = self.interval(run, negative)
        first = int(np.searchsorted(end, after, side="right"))
        last = int(np.searchsorted(end, before, side="left"))
        # Beside a bound event its moment decides.
        opening, closing = self._edges_of(run, negative)
        if opening is not None:
            first = int(np.searchsorted(moment, moment[opening], side="right"))
        if closing is not None:
            last = int(np.searchsorted(moment, moment[closing], side="left"))
        return first, max(first, last)

    def _edges_of(self, run: Run, negative: Component) -> tuple[int | None, int | None]:
        """The two events between which a negative component forbids events; None for an end of the window."""
        bound, interval = self.bound(run), self._query.interval(negative)
        after = None if interval.after is None else bound[interval.after.position][0 if interval.across else -1]
        before = None if interval.before is None else bound[interval.before.position][-1 if interval.across else 0]
        return after, before

    def interval(self, run: Run, negative: Component) -> tuple[int, int]:
        """The two ticks strictly between which a negative component forbids events."""
        end = self.events.end
        opening, closing = self._edges_of(run, negative)
        first, last = int(end[run[0][0]]), int(end[run[-1][-1]])
        if opening is not None and closing is not None:
            return int(end[opening]), int(end[closing])
        window = self._query.window
        assert isinstance(window, TimeWindow) and window.ticks is not None, "the binder asks for a window in time"
        return (last, first + window.ticks) if closing is None else (last - window.ticks, first)
