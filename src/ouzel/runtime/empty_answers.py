"""Warnings about answers that are empty or incomplete for a simple reason, or larger than expected.

`EmptyAnswers` finds types that no event has, perhaps because they are misspelt, and windows of a few microseconds.
`AbsentColumns` finds columns that a query compares but that have no value in any event of a type. `ManyMatches` finds
queries without a strategy that have several matches for each last event, and repetitions that are about to list very
many. `simultaneous_events` counts events with the same time and key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.diagnostics import listed, nearest, quoted
from ouzel.bind.model import BoundQuery, Component, TimeWindow
from ouzel.bind.script import INPUT
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT
from ouzel.plan.explain import attributes_read
from ouzel.prepared import Query
from ouzel.runtime.layout import Layout, unchecked_ticks
from ouzel.runtime.program import Program
from ouzel.runtime.values import one_array, ranks

# List all types up to this many.
TYPES_LISTED_MAX = 10
# A type that no event has is a misspelling if an event's type is at least so similar.
_SIMILARITY_MIN = 0.75
# Usually a few rows have all types.
_FIRST_ROWS = 1_000


class EmptyAnswers:
    """Watches the events of queries, and then explains empty answers and misspelt types.

    Only for queries over the primary stream; those that read the results of others are left out.
    """

    def __init__(self, program: Program) -> None:
        self._layout = program.layout
        self._queries = [one for one in program.queries if one.sources == (INPUT,)]
        self._seen: set[str] = set()
        self._any_event = False
        self._without_type = 0
        # The types that each query names and that are not declared. With THRESHOLD, a match may lack some types.
        self._named: dict[str, set[str]] = {}
        for query in self._queries:
            if self._layout.type is not None and query.catalog.declared is None and query.threshold is None:
                self._named[query.name] = {one for c in query.components for one in c.types or ()}
        self._awaited = frozenset(one for types in self._named.values() for one in types)

    @property
    def lacks_types(self) -> bool:
        """Whether a query names a type that no event so far has had."""
        return not self._awaited <= self._seen

    def has_all_types(self, events: pa.Table) -> bool:
        """Whether these or earlier events have all types that queries name. As a rule this reads few rows."""
        if self.lacks_types:
            self.look_at(events.slice(0, _FIRST_ROWS))
        if self.lacks_types:
            types = _as_text(events, self._layout)
            missing = self._awaited - self._seen
            return all(pc.index(types, pa.scalar(name, types.type)).as_py() >= 0 for name in missing)
        return True

    def look_at(self, events: pa.Table) -> None:
        """Record the types of events."""
        if self._layout.type is None:
            self.saw((), events=events.num_rows, without_type=0)
        else:
            types = pc.unique(_as_text(events, self._layout)).to_pylist()
            self.saw(types, events=events.num_rows, without_type=events[self._layout.type].null_count)

    def saw(self, types: Iterable[str | None], *, events: int, without_type: int) -> None:
        """Record types of events, with the number of events and of those without a type."""
        self._any_event |= events > 0
        self._without_type += without_type
        self._seen.update(value for value in types if value)

    def reasons(self, empty: Iterable[str]) -> Iterator[str]:
        """A sentence for each of these queries, which found nothing, if there is a simple reason."""
        names = set(empty)
        for query in self._queries:
            if query.name in names and (reason := self._reason(query)) is not None:
                yield f"query {quoted(query.name)} found nothing: {reason}"

    def misspelt(self, empty: Iterable[str] = ()) -> Iterator[str]:
        """A sentence for each type that no event has, if events have a similar type that the query does not name.

        This also finds types of negated and optional components and of alternatives, for which the answer is wrong but
        not empty. Queries that `reasons` explains are left out.
        """
        names = set(empty)
        for query in self._queries:
            types = self._named.get(query.name, set())
            for one in sorted(types - self._seen):
                hint = nearest(one, self._seen - types, similarity=_SIMILARITY_MIN)
                if hint is not None and not (query.name in names and self._reason(query)):
                    yield f"query {quoted(query.name)} names the type {quoted(one)}, which no event has; {hint}"

    def _reason(self, query: BoundQuery) -> str | None:
        """Why a query finds nothing; None if there is no simple reason."""
        return (self._missing_type(query) or _tiny_window(query, self._layout)) if self._any_event else None

    def _missing_type(self, query: BoundQuery) -> str | None:
        # A component that may be absent is not missed.
        required = [
            c for c in query.components if all(any(one.position == c.position for one in o) for o in query.orders)
        ]
        missing = next(filter(self._is_missing, required), None)
        # With THRESHOLD, a match may lack some types; and a count of 0 is an answer.
        if missing is None or query.threshold is not None or self._layout.type is None:
            return None
        types = missing.types or ()
        hint = nearest(types[0], self._seen) if len(types) == 1 else None
        if hint is None and 0 < len(self._seen) <= TYPES_LISTED_MAX:
            hint = f"the types are {listed(map(quoted, sorted(self._seen)), 'and')}"
        text = f"no event has the type {listed(map(quoted, types))} in its column {quoted(self._layout.type)}"
        if self._without_type:
            text += f" ({_events(self._without_type)} no type at all)"
        return text if hint is None else f"{text}; {hint}"

    def _is_missing(self, component: Component) -> bool:
        return not component.negated and component.types is not None and not self._seen & set(component.types)


def _events(count: int) -> str:
    return "1 event has" if count == 1 else f"{count:,} events have"


def _as_text(events: pa.Table, layout: Layout) -> pa.ChunkedArray:
    assert layout.type is not None
    column = events[layout.type]
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _tiny_window(query: BoundQuery, layout: Layout) -> str | None:
    """A warning if the window is a few microseconds, because WITHIN 30 over timestamps hardly ever means 30
    microseconds.
    """
    window = query.window
    kind = layout.schema.field(layout.time).type
    if not isinstance(window, TimeWindow) or window.ticks is None or not pa.types.is_timestamp(kind):
        return None
    # Ticks are microseconds even if times are stored in seconds, as those of a CSV file are.
    tick = "ns" if kind.unit == "ns" else "us"
    if not window.written.isdigit() or window.ticks >= NANOSECONDS_OF_UNIT["s"] // NANOSECONDS_OF_UNIT[tick]:
        return None
    return (
        f"WITHIN {window.written} is {window.ticks:,} {tick} here, since times are counted in {tick}; "
        f"write the unit, as in WITHIN {window.written} s"
    )


# A stream is watched for this many events, so that it costs nothing afterwards.
EVENTS_WATCHED = 100_000


class AbsentColumns:
    """Watches the events of one table without declared types, and finds columns that have no value in any event of a
    type.
    """

    def __init__(self, program: Program) -> None:
        self._layout = program.layout
        # Pairs of a type and a column without a value so far.
        self._waiting: dict[tuple[str, str], str] = {}
        self._occurring: set[str] = set()
        self._filled: set[str] = set()
        self._events = 0
        if program.layout.type is None or not program.queries:
            return
        for query in program.queries:
            if query.sources == (INPUT,) and query.catalog.declared is None:
                for type_name, paths in attributes_read(query).items():
                    for path in paths:
                        column = program.layout.column(type_name, path[0])
                        self._waiting.setdefault((type_name, column), query.name)

    def is_watching(self) -> bool:
        """Whether more events could change the result."""
        return bool(self._waiting) and self._events < EVENTS_WATCHED

    def look_at(self, events: pa.Table) -> None:
        """Record which types have values in which columns. A few rows usually show this."""
        self._events += events.num_rows
        first = 0
        while first < events.num_rows and self._waiting:
            rows = events.num_rows if first else _FIRST_ROWS
            self._look_at(events.slice(first, rows))
            first += rows

    def _look_at(self, events: pa.Table) -> None:
        assert self._layout.type is not None
        types = events[self._layout.type]
        if not pa.types.is_string(types.type):
            types = types.cast(pa.string())
        for type_name, column in list(self._waiting):
            values = events[column]
            if values.null_count < len(values):
                self._filled.add(column)
            own = pc.equal(types, pa.scalar(type_name))
            if values.null_count == 0:
                found = pc.any(own).as_py()
            else:
                found = pc.any(pc.and_(own, pc.is_valid(values))).as_py()
            if found:
                del self._waiting[type_name, column]
            elif type_name not in self._occurring and pc.any(own).as_py():
                self._occurring.add(type_name)

    def warnings(self) -> Iterator[str]:
        """A sentence for each pair of type and column that a query compares, but that only events of other types fill.
        Each is returned once.
        """
        for (type_name, column), query in self._waiting.items():
            if type_name in self._occurring and column in self._filled:
                yield (
                    f"query {quoted(query)} reads {quoted(column)} of {quoted(type_name)} events, but none of them has "
                    f"a value there: it counts as null, so a comparison on it is not true. If {quoted(type_name)} does "
                    "not have this attribute, declare with types= which attributes each type has"
                )
        self._waiting = {}


# Fewer matches than this surprise nobody.
MATCHES_MIN = 20
MATCHES_PER_LAST_EVENT = 2.0
# The first matches of an answer show what the others are like.
MATCHES_COUNTED = 2_000
# The memory of so many ticks stays in the cache.
_PART_ROWS = 1 << 14


class ManyMatches:
    """Finds queries that name neither a strategy nor a form of OUTPUT and have several matches for each last event.

    Such a query has a match for every combination of events, which surprises most new users.
    """

    def __init__(self, program: Program, queries: Mapping[str, Any]) -> None:
        self._layout = program.layout
        # The types of the last event, by query; a query is removed once it was warned of.
        self._watched: dict[str, tuple[str, ...] | None] = {}
        # The names of queries whose repetitions may have a match for every subset of events.
        self._repeating = {
            name
            for name, given in queries.items()
            if isinstance(given, Query) and given.tree.output is None and not given.tree.aggregates
        }
        for query in program.queries:
            given = queries.get(query.name)
            # A match that ends with a negative component ends with its window, not with an event.
            ends_with_event = not query.ends_with_window
            if isinstance(given, Query) and query.sources == (INPUT,) and ends_with_event and _is_unspecific(given):
                types = [component.types for component in query.lasts]
                known = tuple(dict.fromkeys(name for names in types for name in names or ()))
                self._watched[query.name] = None if None in types else known

    def early_warning(self, name: str, what: str) -> str | None:
        """A warning about a query that is about to list very many matches. Only the first thread that asks gets it."""
        try:
            self._repeating.remove(name)
        except KeyError:
            return None
        self._watched.pop(name, None)
        return (
            f"query {quoted(name)} has {what}, so far: under skip_till_any_match, the default strategy, a repetition "
            "has a match for every subset of its events. skip_till_next_match takes every event that fits, OUTPUT "
            "NON_OVERLAPPING gives one match for each incident, OUTPUT COMPRESSED their number and a graph of all. "
            "OUTPUT ALL lists all matches without this warning"
        )

    def may_warn(self, answers: Mapping[str, pa.Table]) -> bool:
        """Whether `warnings` must look at the events of these answers."""
        return any(name in self._watched and rows.num_rows >= MATCHES_MIN for name, rows in answers.items())

    def warnings(self, events: pa.Table, answers: Mapping[str, pa.Table]) -> Iterator[str]:
        """A sentence for each query that has many matches for each last event. Each is returned once."""
        for name in list(self._watched):
            if name not in answers or answers[name].num_rows < MATCHES_MIN:
                continue
            found = answers[name].num_rows
            ratio = self._matches_per_last_event(events, answers[name], self._watched[name])
            if ratio >= MATCHES_PER_LAST_EVENT:
                del self._watched[name]
                bound = "or more " if found > MATCHES_COUNTED else ""
                yield (
                    f"query {quoted(name)} found {found:,} matches, {ratio:,.1f} {bound}for each last event: "
                    "without a strategy every combination of events is a match. OUTPUT NON_OVERLAPPING gives one match "
                    "for each incident, skip_till_next_match takes only the next event that fits, AGG COUNT counts the "
                    "matches in the window. OUTPUT ALL keeps all matches without this warning"
                )

    def _matches_per_last_event(self, events: pa.Table, matches: pa.Table, types: tuple[str, ...] | None) -> float:
        """A lower bound of the matches for each last event. All events with the time and type of a last event are
        counted as last events.
        """
        field = self._layout.schema.field(self._layout.time)
        ends = matches.slice(0, MATCHES_COUNTED)["end"].cast(field.type)
        ends = unchecked_ticks(pa.table([ends], schema=pa.schema([field])), self._layout)
        # Matches come in the order of their ends, so sorting costs little. `np.unique` takes 25 times as long.
        ends = np.sort(ends)
        distinct = ends[np.append(True, ends[1:] != ends[:-1])]
        if len(ends) < MATCHES_PER_LAST_EVENT * len(distinct):
            return 0.0
        ticks = unchecked_ticks(events, self._layout)
        between = list(_places_between(ticks, distinct[0], distinct[-1]))
        if not between:
            # All matches of a push may end with events of earlier ones.
            return 0.0
        places = np.concatenate(between)
        places = places[np.isin(ticks[places], distinct)]
        # Matches may end with events that came earlier, of which nothing is known here.
        known = np.isin(ends, ticks[places]).sum()
        if types is not None and self._layout.type is not None:
            own = _as_text(events.select([self._layout.type]).take(pa.array(places)), self._layout)
            places = places[pc.is_in(own, value_set=pa.array(types, pa.string())).to_numpy(zero_copy_only=False)]
        return float(known / len(places)) if len(places) else 0.0


def _places_between(ticks: np.ndarray, least: int, most: int) -> Iterator[np.ndarray]:
    """The indexes of ticks within bounds, part by part. Most parts of a stream have none."""
    for first in range(0, len(ticks), _PART_ROWS):
        part = ticks[first : first + _PART_ROWS]
        if part.min() <= most and part.max() >= least:
            yield np.flatnonzero((part >= least) & (part <= most)) + first


def _is_unspecific(query: Query) -> bool:
    tree = query.tree
    return tree.selection is None and tree.output is None and not tree.aggregates and tree.threshold is None


# Events of one time are looked for among so many, and are worth a warning from this number and share on.
_TIES_LOOKED_AT = 1 << 14
_TIES_MIN = 100
_TIES_SHARE_MIN = 0.05


def simultaneous_events(program: Program, events: pa.Table) -> str | None:
    """A sentence about the query that has the most events with the same time and key; None if they are few, or if
    something orders them.
    """
    layout = program.layout
    queries = [query for query in program.queries if query.sources == (INPUT,) and _has_steps(query)]
    if layout.is_ordered or not queries:
        return None
    looked_at = events.slice(0, _TIES_LOOKED_AT)
    ticks = unchecked_ticks(looked_at, layout)
    least = max(_TIES_MIN, int(_TIES_SHARE_MIN * len(ticks)))
    ordered = np.sort(ticks)
    if np.count_nonzero(ordered[1:] == ordered[:-1]) < least // 2:
        return None
    most, name = 0, ""
    for query in queries:
        keys = [column for column in program.plans()[query.name].shared_columns() if column in looked_at.column_names]
        tied = _tied([ticks, *(ranks(one_array(looked_at[key])) for key in keys)])
        if tied > most:
            most, name = tied, query.name
    if most < least:
        return None
    return (
        f"of the first {len(ticks):,} events {most:,} have the time and key of another event, so query {quoted(name)} "
        "does not take one of them after the other; order= names columns that order events of one time, and "
        'order="arrival" keeps the order of rows'
    )


def _has_steps(query: BoundQuery) -> bool:
    """Whether a match may have several events."""
    return len(query.positives) > 1 or any(component.kleene for component in query.positives)


def _tied(columns: list[np.ndarray]) -> int:
    """The number of rows that are equal to another row."""
    order = np.lexsort(columns[::-1])
    same = np.ones(len(order) - 1, bool)
    for column in columns:
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    return int(np.count_nonzero(np.append(same, False) | np.insert(same, 0, False)))
