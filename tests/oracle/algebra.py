"""docs/semantics.md, "The algebra": each operator from its set definition, over streams that are held whole.

A stream is a set of events with values, a start and an end. What came from the same input rows with the same values,
start and end is one event; two input rows are never one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ouzel.algebra.streams import Alias, Base, Extend, Fold, Iteration, Next, Project, Rename, Select, Stream, Union
from ouzel.lang import parse_expression, syntax
from ouzel.lang.syntax import Reference
from tests.oracle.events import Event, EventTypes
from tests.oracle.expressions import Scope, Settings, evaluate, rewritten
from tests.oracle.values import sort_key


@dataclass(frozen=True)
class Composite:
    """ "An event may last: start <= end." `sources` are the numbers of the input rows that it is made of."""

    values: Mapping[str, Any]
    start: int
    end: int
    sources: frozenset[int]

    @property
    def duration(self) -> int:
        """ "`DUR` is end - start + 1, in ticks." """
        return self.end - self.start + 1

    @property
    def identity(self) -> tuple[Any, ...]:
        """ "Results with the same sources, values, start and end are one." """
        values = [(name, sort_key(self.values[name])) for name in sorted(self.values)]
        return (tuple(sorted(self.sources)), repr(values), self.start, self.end)


@dataclass(frozen=True)
class World:
    """The input: rows with a type and a time, and what is given beside the expression."""

    rows: Sequence[Mapping[str, Any]]
    time: str = "time"
    type: str | None = "type"
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ticks_per_second: int | None = None


def answer(expression: Stream, world: World) -> list[Composite]:
    """The events of a stream, in order of their end."""
    return sorted(_stream(expression, world), key=lambda event: (event.end, event.start, event.identity))


def _stream(expression: Stream, world: World) -> list[Composite]:
    match expression:
        case Base():
            return list(_base(expression, world))
        case Union(left=left, right=right):
            return _as_set([*_stream(left, world), *_stream(right, world)])
        case Next(left=left, right=right, theta=theta):
            others = _stream(right, world)
            return _as_set(
                _concatenated(e1, e2) for e1 in _stream(left, world) for e2 in _following(e1, others, theta, world)
            )
        case Fold():
            return _as_set(_fold(expression, world))
    below = _stream(expression.input, world)  # type: ignore[attr-defined]
    return _as_set(kept for event in below if (kept := _unary(expression, event, None, world)) is not None)


def _base(base: Base, world: World) -> Iterator[Composite]:
    """ "A primitive event has start = end = its time." The columns that say type and time are not values."""
    for number, row in enumerate(world.rows):
        if base.type is None or world.type is None or row[world.type] == base.type:
            hidden = {world.time, base.start, world.type if base.type is not None else None}
            values = {name: value for name, value in row.items() if name not in hidden}
            start = row[world.time] if base.start is None else row[base.start]
            yield Composite(values, start, row[world.time], frozenset([number]))


def _as_set(events: Iterable[Composite]) -> list[Composite]:
    return list({event.identity: event for event in events}.values())


# ── One event ──────────────────────────────────────────────────────────────────────────────────────


def _unary(operator: Stream, event: Composite, before: Composite | None, world: World) -> Composite | None:
    """Selection, projection, renaming or extension of one event; `before` is what `.last` reads."""
    match operator:
        case Select(condition=text):
            return event if _value(text, event, before, world) is True else None
        case Project(names=names):
            return dataclasses.replace(event, values={name: event.values[name] for name in names})
        case Rename(names=names):
            new = dict(names)
            return dataclasses.replace(event, values={new.get(n, n): v for n, v in event.values.items()})
        case Alias(name=alias):
            return dataclasses.replace(event, values={f"{alias}.{name}": v for name, v in event.values.items()})
        case Extend(values=values):
            more = {name: _value(text, event, before, world) for name, text in values}
            return dataclasses.replace(event, values={**event.values, **more})
    raise TypeError(f"{operator!r} is not unary")


def _value(text: str, event: Composite, before: Composite | None, world: World) -> Any:
    def meant(reference: Reference) -> Reference:
        *names, last = reference.names
        if names and last == "last" and before is not None:
            return Reference(("before", ".".join(names)))
        # An attribute of a stream with an alias has a point in its name.
        whole = ".".join(reference.names)
        return Reference(("event", *([whole] if whole in event.values else reference.names)))

    tree: syntax.Expr = rewritten(parse_expression(text), meant)
    bound = {"event": _as_event(event)}
    if before is not None:
        bound["before"] = _as_event(before)
    settings = Settings(EventTypes(), world.params, world.ticks_per_second)
    return evaluate(tree, Scope(settings, bound))


def _as_event(event: Composite) -> Event:
    return Event("", event.start, event.end, {"DUR": event.duration, **event.values})


# ── Sequence and iteration ─────────────────────────────────────────────────────────────────────────


def _concatenated(e1: Composite, e2: Composite) -> Composite:
    """ "Values of e2 replace e1's of the same name." """
    return Composite({**e1.values, **e2.values}, e1.start, e2.end, e1.sources | e2.sources)


def _following(e1: Composite, others: list[Composite], theta: str | None, world: World) -> list[Composite]:
    """ "The first-ending e2 that starts after e1 ends and satisfies theta with it; where several such e2 end at that
    same moment, each of them." """
    holds: Callable[[Composite], bool] = lambda e2: (  # noqa: E731
        e2.start > e1.end and (theta is None or _value(theta, _concatenated(e1, e2), e1, world) is True)
    )
    suitable = [e2 for e2 in others if holds(e2)]
    first_end = min((e2.end for e2 in suitable), default=None)
    return [e2 for e2 in suitable if e2.end == first_end]


def _fold(fold: Fold, world: World) -> Iterator[Composite]:
    """ "From e1, again and again the next e2; step is applied after each round and may end the chain; every round's
    result is an output." """
    others = _stream(fold.right, world)
    chain = []
    for e1 in _stream(fold.left, world):
        first = {name: _value(text, e1, None, world) for name, text in fold.first}
        chain.append(dataclasses.replace(e1, values={**e1.values, **first}))
    while chain:
        results = []
        for instance in chain:
            for e2 in _following(instance, others, fold.theta, world):
                result = _stepped(fold.step, _concatenated(instance, e2), instance, world)
                if result is not None:
                    results.append(result)
        yield from results
        # Instances with the same sources, values, start and end go on alike.
        chain = _as_set(results)


def _stepped(step: Stream, event: Composite, before: Composite, world: World) -> Composite | None:
    if isinstance(step, Iteration):
        return event
    below = _stepped(step.input, event, before, world)  # type: ignore[attr-defined]
    return None if below is None else _unary(step, below, before, world)
