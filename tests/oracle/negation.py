"""docs/semantics.md, "Negation": which finished positive matches stand."""

from __future__ import annotations

from tests.oracle.conditions import Component
from tests.oracle.events import AFTER_EVENTS, BEFORE_EVENTS, Event, Moment, Order
from tests.oracle.selection import Run, Selection


def stands(selection: Selection, run: Run) -> bool:
    """ "Negation filters finished positive matches"; "several negatives may stand side by side; each is checked
    alone"."""
    return not any(
        _forbids(selection, run, component, event)
        for component in selection.conditions.components
        if component.negated
        for event in selection.events
    )


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
    return [component for component in selection.conditions.components if not component.across][-1].negated


def _window(selection: Selection) -> int:
    """ "First and last need WITHIN in time, else the query is refused." """
    assert selection.window is not None and not selection.window_is_in_events
    return selection.window
