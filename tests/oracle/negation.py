"""docs/semantics.md, "Negation": which finished positive matches stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ouzel.lang import syntax
from tests.oracle.conditions import Component, Conditions
from tests.oracle.events import AFTER_EVENTS, BEFORE_EVENTS, Event, Moment, Order
from tests.oracle.readings import Reading, readings
from tests.oracle.selection import Run, Selection


def stands(selection: Selection, run: Run) -> bool:
    """ "Negation filters finished positive matches"; "several negatives may stand side by side; each is checked
    alone"."""
    return not any(
        _forbids(selection, run, component, event)
        for component in selection.conditions.components
        if component.negated
        for event in selection.events
    ) and not any(_occurs(selection, run, number) for number in range(len(_reading(selection).nested)))


def _reading(selection: Selection) -> Reading:
    conditions = selection.conditions
    return readings(conditions.pattern)[0] if conditions.reading is None else conditions.reading


def _occurs(selection: Selection, run: Run, number: int) -> bool:
    """ "No match of the inner pattern, by skip_till_any_match and with every conjunct that names its variables, is
    inside the interval that a negative component would have there." """
    reading = _reading(selection)
    place, parts = reading.nested[number]
    inner = tuple(replace(component, negated=False) for component in parts)
    outer = selection.conditions
    # The sequence as a part of the match, in its place.
    components = (*reading.components[:place], *inner, *reading.components[place:])
    conditions = Conditions(outer.query, outer.settings, Reading(components))
    names = [str(component.variable) for component in inner]
    marker = Component(place - 0.5, "", frozenset(), False, True)
    after, before = _interval(selection, run, marker)
    events = [event for event in selection.events if after < event.starts_at and event.ends_at < before]
    positives = [selection.events[position] for bound in run for position in bound]

    def choices(
        left: tuple[syntax.Component, ...], chosen: list[tuple[Event, ...]]
    ) -> Iterator[list[tuple[Event, ...]]]:
        if not left:
            yield chosen
            return
        own = conditions.by_name[str(left[0].variable)]
        last = chosen[-1][-1].ends_at if chosen else after
        for some in _chains([event for event in events if own.is_of_right_type(event)], last, own):
            yield from choices(left[1:], [*chosen, some])

    for chosen in choices(inner, []):
        bound = dict(selection.bound(run))
        for name, some in zip(names, chosen, strict=True):
            bound[name] = some if conditions.by_name[name].kleene else some[0]
        if conditions.are_equivalent([*positives, *(event for some in chosen for event in some)]) and all(
            conditions.holds(conjunct, bound) for conjunct in conditions.conjuncts if conjunct.names & set(names)
        ):
            return True
    return False


def _chains(events: list[Event], last: Moment, component: Component) -> Iterator[tuple[Event, ...]]:
    """Every choice of as many events as a component may have, each after the one before it."""
    most = 1 if not component.kleene else component.most
    for number, event in enumerate(events):
        if event.starts_at > last:
            if component.least <= 1:
                yield (event,)
            if most is None or most > 1:
                rest = replace(component, least=component.least - 1, most=None if most is None else most - 1)
                for others in _chains(events[number + 1 :], event.ends_at, rest):
                    yield (event, *others)


def _forbids(selection: Selection, run: Run, component: Component, event: Event) -> bool:
    """ "Forbids an event of its type lying wholly strictly between ..., and satisfying every conjunct that names it."
    The equivalence tests name every component, "negative ones included"."""
    after, before = _interval(selection, run, component)
    if not (component.is_of_right_type(event) and after < event.starts_at and event.ends_at < before):
        return False
    conditions = selection.conditions
    positives = [selection.events[position] for bound in run for position in bound]
    bound = {**selection.bound(run), component.name: event}
    return conditions.are_equivalent([*positives, event]) and all(
        conditions.holds(conjunct, bound) for conjunct in conditions.conjuncts if component.name in conjunct.names
    )


def _interval(selection: Selection, run: Run, component: Component) -> tuple[Moment, Moment]:
    """The ends of the open interval in which the component forbids."""
    events = [[selection.events[position] for position in bound] for bound in run]
    if component.across:
        # "WITHOUT: between the first and the last event of its part."
        positives = selection.conditions.positives
        inside = [bound for one, bound in zip(positives, events, strict=True) if one.name in component.across]
        return inside[0][0].ends_at, inside[-1][-1].starts_at
    numbers = [positive.number for positive in selection.conditions.positives]
    bound_before = [bound for number, bound in zip(numbers, events, strict=True) if number < component.number]
    bound_after = [bound for number, bound in zip(numbers, events, strict=True) if number > component.number]
    first, last = events[0][0], events[-1][-1]
    if not bound_before:
        # "First in SEQ: the interval is (last.end - T, first.start)."
        return (last.end - _window(selection), AFTER_EVENTS), first.starts_at
    if not bound_after:
        # "Last in SEQ: (last.end, first.start + T)."
        return last.ends_at, (first.start + _window(selection), BEFORE_EVENTS)
    # "Between the end of the last event bound before it and the start of the first bound after it."
    return bound_before[-1][-1].ends_at, bound_after[0][0].starts_at


def match_end(selection: Selection, run: Run) -> int:
    """The end of the last event; with a negative last in SEQ "the match ends at first.start + T - 1"."""
    if _is_negated_at_end(selection):
        return selection.events[run[0][0]].start + _window(selection) - 1
    return selection.events[run[-1][-1]].end


def match_end_order(selection: Selection, run: Run) -> Order:
    """With a negative last in SEQ a match ends after all events of that time."""
    return AFTER_EVENTS if _is_negated_at_end(selection) else selection.events[run[-1][-1]].end_order


def _is_negated_at_end(selection: Selection) -> bool:
    reading = _reading(selection)
    at_end = any(place == len(reading.components) for place, _ in reading.nested)
    return at_end or reading.components[-1].negated


def _window(selection: Selection) -> int:
    """ "First and last need WITHIN in time, else the query is refused." """
    assert selection.window is not None and not selection.window_is_in_events
    return selection.window
