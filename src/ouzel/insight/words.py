"""Events, bindings and reasons as text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import (
    Aggregation,
    Attribute,
    Bound,
    Component,
    Conjunct,
    Edge,
    EquivalenceTest,
    EventWindow,
    Intrinsic,
    Length,
)
from ouzel.insight.events import Run, RunFrame, agreed_value, conjunct_holds, iterations
from ouzel.insight.search import Bar, Forbidden, Search, Tried
from ouzel.plan.expressions import attribute_of, render, render_conjunct, walk
from ouzel.runtime.expressions import any_holds, evaluate
from ouzel.runtime.frames import ticks_to_time
from ouzel.runtime.values import from_engine

EXAMPLES_MAX = 3
EVENTS_SHOWN = 4


class Words:
    """Turns what one search has found into text."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._events = search.events
        self._query = search.events.query
        self._shown = self._columns()

    def _columns(self) -> list[str]:
        """The columns that conditions name. They help a reader to identify an event."""
        names: dict[str, None] = dict.fromkeys(test.path[0] for test in self._query.equivalences)
        for conjunct in self._query.conjuncts:
            for comparison in conjunct.comparisons:
                names.update(dict.fromkeys(p.path[0] for p in walk(comparison) if isinstance(p, Attribute)))
        hidden = (self._events.layout.time, self._events.layout.type)
        return [name for name in names if name in self._events.table.column_names and name not in hidden]

    # ── Events ─────────────────────────────────────────────────────────────────────────────────────

    def time_of(self, tick: int) -> str:
        """A tick in the form of the input's times."""
        time = self._events.layout.schema.field(self._events.layout.time).type
        try:
            return plain(ticks_to_time(np.array([tick], np.int64), time)[0].as_py())
        except (OverflowError, ValueError, pa.ArrowInvalid):
            return str(tick)

    def event(self, place: int) -> str:
        """An event as text, such as `Shelf at 2 (tag=8)`."""
        values = [(name, self._events.table.column(name)[place].as_py()) for name in self._shown]
        text = ", ".join(f"{name}={plain(value)}" for name, value in values if value is not None)
        kind = self._events.types[place].as_py() or "an event without a type"
        return f"{kind} at {self.time_of(int(self._events.end[place]))}" + (f" ({text})" if text else "")

    def bound(self, run: Run) -> list[str]:
        """One line for each component that is bound."""
        lines = []
        for component, places in zip(self._query.positives, run, strict=False):
            shown = [self.event(place) for place in places[:EVENTS_SHOWN]]
            if len(places) > EVENTS_SHOWN:
                shown.append(f"… {len(places):,} events in all")
            name = f"{component.variable}[]" if component.kleene else component.variable
            lines.append(f"{name} = {'; '.join(shown)}")
        return lines

    def variable(self, run: Run) -> str:
        return self._query.positives[len(run) - 1].variable

    # ── Negation ───────────────────────────────────────────────────────────────────────────────────

    def forbidden(self, found: Forbidden) -> str:
        after, before = self._search.interval(found.run, found.negative)
        between = f"is between {self.time_of(after)} and {self.time_of(before)}"
        return f"{_negative(found.negative)}: {self.event(found.place)} {between}"

    def not_forbidden(self, run: Run) -> list[str]:
        lines = []
        for negative in self._query.negatives:
            after, before = self._search.interval(run, negative)
            between = f"between {self.time_of(after)} and {self.time_of(before)}"
            lines.append(f"{_negative(negative)}: no such event {between}")
        return lines

    # ── What stops events ──────────────────────────────────────────────────────────────────────────

    def tried(self, tried: Tried, run: Run, only: int | None = None) -> list[str]:
        """Lines about why events cannot fill a component: how many there were, and the reason for each of the first
        few.
        """
        name = f"{tried.component.variable}[i]" if tried.edge is Edge.TAKE else tried.component.variable
        if not run:
            return [f"{name}: {self._reason(tried, run, 0)}"]
        if only is not None:
            number = int(np.flatnonzero(tried.places == only)[0])
            if tried.passing[number]:
                return []
            reason = self._reason(tried, run, number) if tried.hindered[number] >= 0 else "it would fit"
            return [f"{name}: the next event is {self.event(only)}; {reason}"]
        types = " or ".join(tried.component.types or ())
        right = [
            number
            for number in range(len(tried.places))
            if tried.hindered[number] < 0 or tried.hindrances[tried.hindered[number]] is not Bar.TYPE
        ]
        what = f"event{'' if len(right) == 1 else 's'}" + (f" of type {types}" if types else "")
        lines = [f"{name}: {len(right) or 'no'} {what} {self._until()}"]
        hindered = [number for number in right if tried.hindered[number] >= 0]
        counts: dict[int, int] = {}
        for number in hindered:
            kind = int(tried.hindered[number])
            counts[kind] = counts.get(kind, 0) + 1
            if counts[kind] <= EXAMPLES_MAX:
                lines.append(f"   {self.event(int(tried.places[number]))}: {self._reason(tried, run, number)}")
        for kind, count in counts.items():
            if count > EXAMPLES_MAX:
                lines.append(f"   {count - EXAMPLES_MAX:,} more for the same reason: {self._short(tried, kind)}")
        return lines

    def _until(self) -> str:
        window = self._query.window
        if self._search.window_end is not None:
            return f"until the window closes at {self.time_of(self._search.window_end)}"
        if isinstance(window, EventWindow):
            return f"within {window.count} events of the partition"
        return "until the input ends"

    def _short(self, tried: Tried, kind: int) -> str:
        hindrance = tried.hindrances[kind]
        if isinstance(hindrance, EquivalenceTest):
            return _test_name(hindrance)
        if isinstance(hindrance, Conjunct):
            return render_conjunct(self._query, hindrance)
        return hindrance.value

    def _reason(self, tried: Tried, run: Run, number: int) -> str:
        hindrance = tried.hindrances[tried.hindered[number]]
        place = int(tried.places[number])
        bound = self._search.bound(run)
        if hindrance is Bar.TYPE:
            kind = self._events.types[place].as_py()
            needed = " or ".join(tried.component.types or ())
            return (
                f"it has no type, where {needed} is needed" if kind is None else f"it is of type {kind}, not {needed}"
            )
        if hindrance is Bar.ORDER:
            return f"it does not come after {self.time_of(int(self._events.end[run[-1][-1]]))}"
        if hindrance is Bar.WINDOW:
            return "it is outside the window"
        if isinstance(hindrance, EquivalenceTest):
            return self._unequal(hindrance, bound, tried.component, place)
        assert isinstance(hindrance, Conjunct)
        return self._untrue(hindrance, bound, tried.component.position, place)

    def _unequal(
        self, test: EquivalenceTest, bound: Mapping[int, tuple[int, ...]], component: Component, place: int
    ) -> str:
        attribute = attribute_of(self._query, component.position, test)
        value = self._events.frame(np.array([place], np.int32)).attribute(attribute)
        mine = _seen(value, attribute)
        if value[0].as_py() is None:
            return f"{_test_name(test)} fails, since {'.'.join(test.path)} is null"
        agreed = agreed_value(self._events, test, bound)
        if test.value is not None and (agreed is None or _seen(agreed, attribute) == mine):
            return f"{_test_name(test)} fails, {'.'.join(test.path)} is {mine}"
        return f"{_test_name(test)} differs, {mine} is not {_seen(agreed, attribute)}"

    def unready(self, conjunct: Conjunct, run: Run) -> str:
        """The text for a conjunct that keeps a run in its Kleene component."""
        place = run[-1][-1]
        return f"{self.variable(run)}[] continues: {self._untrue(conjunct, self._search.bound(run), -1, place)}"

    def _untrue(self, conjunct: Conjunct, bound: Mapping[int, tuple[int, ...]], component: int, place: int) -> str:
        """The text for a conjunct that does not hold, such as `c.price > a.price is not true: c.price is 3, a.price is
        5`.
        """
        candidate = np.array([place], np.int32)
        assert not conjunct_holds(self._events, conjunct, bound, component, candidate)[0]
        for iteration in iterations(conjunct, bound, component):
            frame = RunFrame(self._events, bound, component, candidate, iteration)
            if any_holds(conjunct.comparisons, frame)[0]:
                continue
            seen: dict[str, str] = {}
            for comparison in conjunct.comparisons:
                for part in _values(comparison):
                    seen[render(self._query, part)] = _seen(evaluate(part, frame), part)
            values = ", ".join(f"{name} is {value}" for name, value in seen.items())
            which = f" for i = {iteration}" if iteration is not None else ""
            return f"{render_conjunct(self._query, conjunct)} is not true{which}" + (f": {values}" if values else "")
        raise AssertionError("a conjunct that fails does so for some i")


def _values(expression: Bound) -> list[Bound]:
    """The parts of an expression whose values are shown. An aggregate is shown as one part."""
    if isinstance(expression, Attribute | Intrinsic | Length | Aggregation):
        return [expression]
    return [found for operand in getattr(expression, "operands", ()) for found in _values(operand)]


def _seen(value: Any, part: Bound) -> str:
    return plain(from_engine(value, part.type)[0].as_py())


def _negative(component: Component) -> str:
    types = " or ".join(component.types or ("any",))
    return f"WITHOUT {types} {component.variable}" if component.across else f"!({types} {component.variable})"


def _test_name(test: EquivalenceTest) -> str:
    fixed = "" if test.value is None else f" = {plain(test.value.value)}"
    return f"[{'.'.join(test.path)}{fixed}]"


def plain(value: Any) -> str:
    """A value as text for people. Texts are in quotes.

    >>> plain("gin"), plain(None), plain(2.0)
    ("'gin'", 'null', '2.0')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, datetime | date):
        return value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    return str(value)
