"""The entry: what queries answer on events, by docs/semantics.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ouzel.lang import syntax
from ouzel.lang.syntax import OutputForm, Query, Reference
from tests.oracle.aggregates import AggregateRow, grouping_expressions, rows_at_moments, with_implied_tests
from tests.oracle.conditions import Conditions
from tests.oracle.events import AFTER_EVENTS, DerivedEvent, Event, EventTypes, at_arrival, in_stream_order, with_order
from tests.oracle.expressions import Settings, attribute_path, children, is_own
from tests.oracle.negation import stands
from tests.oracle.output import CompressedMatches, Match, in_form, in_output_order, match_of
from tests.oracle.output import Result as MatchResult
from tests.oracle.readings import beginnings, readings, with_names
from tests.oracle.repetition import written_out
from tests.oracle.selection import Selection

INPUT = "input"
Result = MatchResult | AggregateRow
Events = Iterable[Event] | Mapping[str, Iterable[Event]]


def answer(
    queries: Sequence[Query] | Query | str,
    events: Events,
    *,
    types: Mapping[str, Iterable[str]] | None = None,
    params: Mapping[str, Any] | None = None,
    order: Sequence[str] | str = (),
    ticks_per_second: int | None = 1_000_000,
) -> dict[str, list[Result]]:
    """The results of every query by its name, in output order.

    `events` is the primary stream, or streams by name, of which `input` is the primary one. `types` are the attributes
    of declared event types. `order` are columns, or "arrival". A query without a name is called by its place: q1, ...

    >>> found = answer("PATTERN SEQ(A a, B b) WITHIN 10", [Event("A", 1, 1, {}), Event("B", 3, 3, {})])
    >>> [(match.start, match.end) for match in found["q1"]]
    [(1, 3)]
    """
    settings = Settings(EventTypes(types), params or {}, ticks_per_second)
    streams = {name: list(stream) for name, stream in events.items()} if isinstance(events, Mapping) else {}
    if not isinstance(events, Mapping):
        streams[INPUT] = list(events)
    if order == "arrival":
        # "The events of one time as their rows came."
        streams[INPUT] = [at_arrival(event, number) for number, event in enumerate(streams.get(INPUT, []))]
        order = ()
    else:
        streams[INPUT] = [with_order(event, order) for event in streams.get(INPUT, [])]
    listed = named(queries)
    results: dict[str, list[Result]] = {}
    for name, query in in_order_of_composition(listed):
        # "`FROM s, t` reads the union; `input` is the primary stream."
        read = [event for source in query.sources or (INPUT,) for event in streams.get(source, [])]
        results[name] = answer_one(query, read, settings, order)
        if query.into is not None:
            derived = [derived_event(query, name, result) for result in results[name]]
            streams.setdefault(query.into, []).extend(derived)
    return {name: results[name] for name, _ in listed}


def answer_one(query: Query, events: Iterable[Event], settings: Settings, order: Sequence[str] = ()) -> list[Result]:
    """One query on its input: order, positive matches, negation, output."""
    assert query.threshold is None, "incomplete streams are section 6, not this oracle's"
    query = with_implied_tests(written_out(query))
    # "Each reading selects events by the query's strategy as if it were the whole query."
    linear = readings(with_names(query.pattern))
    if query.output is not None and query.output.form is OutputForm.FURTHEST:
        (whole,) = linear
        linear = beginnings(whole)
    each = [Conditions(query, settings, reading) for reading in linear]
    ordered = tuple(
        in_stream_order(
            events,
            order,
            lambda event: any(passes_some_component(conditions, event) for conditions in each),
            used(each[0]),
        )
    )
    selections = [Selection(conditions, ordered) for conditions in each]
    finished = [
        match_of(selection, run, number)
        for number, selection in enumerate(selections)
        for run in selection.matches()
        if stands(selection, run)
    ]
    matches = in_output_order(_union(finished))
    if query.aggregates:
        return list(rows_at_moments(selections[0], matches))
    window = selections[0].window
    return list(in_form(each[0], matches, window, several=len(linear) > 1))


def _union(matches: Iterable[Match]) -> Iterable[Match]:
    """ "The answer is the union of the readings' matches": two readings that bind the same events to the same variables
    give one match, of the first reading."""
    found: dict[object, Match] = {}
    for match in matches:
        found.setdefault((match.end, frozenset(match.places.items())), match)
    return found.values()


def named(queries: Sequence[Query] | Query | str) -> list[tuple[str, Query]]:
    if isinstance(queries, str):
        from ouzel.lang import parse, parse_script

        is_script = ";" in queries or queries.lstrip().partition(":")[0].isidentifier()
        queries = parse_script(queries).queries if is_script else (parse(queries),)
    if isinstance(queries, Query):
        queries = (queries,)
    return [(query.name or f"q{number}", query) for number, query in enumerate(queries, start=1)]


# ── Stream order ───────────────────────────────────────────────────────────────────────────────────


def passes_some_component(conditions: Conditions, event: Event) -> bool:
    return any(conditions.may_fill(component, event) for component in conditions.components)


def used(conditions: Conditions) -> list[str] | None:
    """ "The columns that the query uses (output included)"; None where its output has all of them."""
    query = conditions.query
    if query.returns is not None:
        output = [item.expression for item in query.returns.items]
    elif query.aggregates:
        output = [asked.argument for asked in query.aggregates if asked.argument is not None]
        output += grouping_expressions(query)
    else:
        return None
    expressions = output + ([query.where] if query.where else [])
    columns = {column for expression in expressions for column in _columns(conditions, expression)}
    return sorted(columns | {test.names[0] for test in conditions.equivalences})


def _columns(conditions: Conditions, node: syntax.Node) -> Iterator[str]:
    """The column of each reference in the expression; count(v[]) and time(v) look at none."""
    if isinstance(node, Reference):
        yield from attribute_path(node, conditions.component_of(node).name)[:1]
    elif not is_own(node):
        for child in children(node):
            yield from _columns(conditions, child)


# ── Composition ────────────────────────────────────────────────────────────────────────────────────


def in_order_of_composition(queries: Sequence[tuple[str, Query]]) -> list[tuple[str, Query]]:
    """Each query after those whose streams it reads: "queries compose, without cycles"."""
    waiting, ordered = list(queries), []
    while waiting:
        unwritten = {query.into for _, query in waiting}
        ready = [(name, query) for name, query in waiting if not unwritten & set(query.sources)]
        assert ready, "the queries read each other in a cycle"
        ordered += ready
        waiting = [pair for pair in waiting if pair not in ready]
    return ordered


def derived_event(query: Query, name: str, result: Result) -> DerivedEvent:
    """ "The type of a derived event is its RETURN name, else its INTO name." """
    assert not isinstance(result, CompressedMatches), "a compressed row is no event"
    return_name = None if query.returns is None else query.returns.name
    # "A row of an aggregate comes after all events of its time."
    orders = (result.start_order, result.end_order) if isinstance(result, Match) else (AFTER_EVENTS, AFTER_EVENTS)
    return DerivedEvent(return_name or query.into or name, result.start, result.end, result.row, *orders)


__all__ = ["AggregateRow", "CompressedMatches", "Event", "EventTypes", "Match", "Result", "answer", "answer_one"]
