"""docs/semantics.md, "Events", "Absent attributes" and "Stream order"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.oracle.values import sort_key

# Where something is among the events of its time: before all of them, at some values of the order= columns, after all.
Order = tuple[int, tuple[Any, ...]]
BEFORE_EVENTS: Order = (-1, ())
WITHOUT_ORDER: Order = (0, ())
AFTER_EVENTS: Order = (1, ())
# "The time and the values of the order= columns."
Moment = tuple[int, Order]


@dataclass(frozen=True)
class Event:
    """ "An event has a type, an event time, and named attributes." Times are ticks; `start <= end`.

    `attributes` are all columns of the input row, the time and type columns included.
    """

    type: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    # "Total order": the values of the order= columns of the first and the last event.
    start_order: Order = WITHOUT_ORDER
    end_order: Order = WITHOUT_ORDER

    @property
    def starts_at(self) -> Moment:
        return (self.start, self.start_order)

    @property
    def ends_at(self) -> Moment:
        return (self.end, self.end_order)

    def __post_init__(self) -> None:
        assert self.start <= self.end, f"{self.type} starts at {self.start}, after its end {self.end}"


@dataclass(frozen=True)
class DerivedEvent(Event):
    """A match that another query reads. "Derived streams declare their types by their columns." """


@dataclass(frozen=True)
class EventTypes:
    """ "Which type has which attribute comes from the declared event types."

    `declared` is None where nothing was declared: then "every type has every column of its input".
    """

    declared: Mapping[str, Iterable[str]] | None = None

    def has(self, event: Event, attribute: str) -> bool:
        """Does the event's type have the attribute? (If not, that is different from null.)"""
        if self.declared is None or isinstance(event, DerivedEvent) or event.type not in self.declared:
            return attribute in event.attributes
        return attribute in self.declared[event.type]


def follows(next_event: Event, previous: Event) -> bool:
    """ "One event follows another only if next.start > previous.end, strictly", in moments."""
    return next_event.starts_at > previous.ends_at


def with_order(event: Event, order_columns: Sequence[str]) -> Event:
    """The event at its place among those of its time; "events equal in all order columns remain simultaneous"."""
    order: Order = (0, tuple(sort_key(event.attributes.get(name)) for name in order_columns))
    return replace(event, start_order=order, end_order=order)


def at_arrival(event: Event, number: int) -> Event:
    """The event in the order of arrival among those of its time."""
    order: Order = (0, (number,))
    return replace(event, start_order=order, end_order=order)


def in_stream_order(
    events: Iterable[Event],
    order_columns: Sequence[str],
    passes_some_component: Callable[[Event], bool],
    used_columns: Sequence[str] | None,
) -> list[Event]:
    """ "Stream order: by end, start, then the order= columns if given; then events that pass the type and single-event
    conjuncts of some component before all others; then type and the columns that the query uses in name order."

    `used_columns` is None where the query uses all of them: its output has every column.
    """

    def place(event: Event) -> tuple[Any, ...]:
        columns = sorted(event.attributes if used_columns is None else used_columns)
        return (
            event.ends_at,
            event.starts_at,
            [sort_key(event.attributes.get(name)) for name in order_columns],
            not passes_some_component(event),
            sort_key(event.type),
            [(name, sort_key(event.attributes.get(name))) for name in columns],
        )

    return sorted(events, key=place)
