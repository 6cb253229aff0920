"""docs/semantics.md, "Output": what a match looks like, and which matches each form of OUTPUT keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby
from typing import Any

from ouzel.lang import syntax
from ouzel.lang.syntax import OutputForm
from tests.oracle.conditions import Conditions
from tests.oracle.events import Event, EventTypes, Order
from tests.oracle.events import Moment as OrderedTime
from tests.oracle.expressions import attribute, evaluate
from tests.oracle.negation import match_end, match_end_order
from tests.oracle.selection import Run, Selection
from tests.oracle.values import Elapsed, Lasting, Moment, Point


@dataclass(frozen=True)
class Match:
    """A match: its events by variable, its times, and its output row.

    `places` are the positions in stream order of the events of each positive component, in the order of the reading.
    """

    bound: Mapping[str, Event | tuple[Event, ...] | None]
    start: int
    end: int
    start_order: Order
    end_order: Order
    row: Mapping[str, Any]
    places: Mapping[str, tuple[int, ...]]
    reading: int
    partition: tuple[object, ...] | None
    partition_columns: Mapping[str, Any]

    @property
    def starts_at(self) -> OrderedTime:
        return (self.start, self.start_order)

    @property
    def ends_at(self) -> OrderedTime:
        return (self.end, self.end_order)

    @property
    def positions(self) -> tuple[int, ...]:
        return tuple(position for positions in self.places.values() for position in positions)

    @property
    def component_numbers(self) -> tuple[int, ...]:
        return tuple(number for number, positions in enumerate(self.places.values()) for _ in positions)


@dataclass(frozen=True)
class CompressedMatches:
    """A row of OUTPUT COMPRESSED. `row` has the columns `end`, one per [attr] test, and `count` as a digit string;
    `matches` are what the graph must hold, in their order."""

    start: int
    end: int
    row: Mapping[str, Any]
    matches: tuple[Match, ...]


Result = Match | CompressedMatches


def match_of(selection: Selection, run: Run, reading: int) -> Match:
    """ "A composite event (a match) starts with its first event and ends with its last." """
    conditions = selection.conditions
    first = selection.events[run[0][0]]
    start = first.start
    end = type(start)(match_end(selection, run))
    # "A variable that a reading does not have is absent: null in the output (an empty list for v[])."
    absent = {component.name: () if component.kleene else None for component in conditions.absent}
    bound = {**selection.bound(run), **absent}
    paths = [test.names for test in conditions.equivalences]
    return Match(
        bound=bound,
        start=start,
        end=end,
        start_order=first.start_order,
        end_order=match_end_order(selection, run),
        row={"start": start, "end": end, **_columns(selection, bound)},
        places={component.name: positions for component, positions in zip(conditions.positives, run, strict=True)},
        reading=reading,
        partition=conditions.partition(first),
        partition_columns={
            ".".join(path): _settled(attribute(first, path, conditions.settings.types), False) for path in paths
        },
    )


def _columns(selection: Selection, bound: Mapping[str, Event | tuple[Event, ...] | None]) -> dict[str, Any]:
    """ "Without RETURN, columns start, end, a struct per positive variable, an array of structs per Kleene variable;
    RETURN makes a flat event." """
    conditions = selection.conditions
    returns = conditions.query.returns
    if returns is not None:
        scope = conditions.scope(bound)
        is_timestamp = any(isinstance(event.start, Moment) for event in selection.events)
        columns = {}
        for item in returns.items:
            if isinstance(item.expression, syntax.Equivalence):
                value = _key(item.expression.names, bound, conditions.settings.types)
            else:
                value = evaluate(item.expression, scope)
            columns[column_name(item)] = _settled(value, is_timestamp)
        return columns
    structs: dict[str, Any] = {}
    for component in conditions.pattern.components:
        if not component.negated:
            events = bound[str(component.variable)]
            single = None if events is None else dict(events.attributes) if isinstance(events, Event) else None
            structs[str(component.variable)] = _structs(events) if isinstance(events, tuple) else single
    return structs


def _key(names: tuple[str, ...], bound: Mapping[str, Event | tuple[Event, ...] | None], types: EventTypes) -> Any:
    """ "`[attr]` in RETURN is the value on which the events agree": of any event whose type has it."""
    events = [event for one in bound.values() if one for event in (one if isinstance(one, tuple) else (one,))]
    return next((attribute(event, names, types) for event in events if types.has(event, names[0])), None)


def _structs(events: Iterable[Event]) -> list[dict[str, Any]]:
    return [dict(event.attributes) for event in events]


def _settled(value: Any, is_timestamp: bool) -> Any:
    """A literal in no company is a double; a length of time is a duration, or ticks where time is a number."""
    if isinstance(value, list):
        return [_settled(item, is_timestamp) for item in value]
    if isinstance(value, Point):
        return float(value)
    if isinstance(value, Elapsed) or (isinstance(value, Lasting) and is_timestamp):
        return value.timedelta()
    return int(value) if isinstance(value, Lasting) else value


def column_name(item: syntax.Item) -> str:
    """The name after AS; without one, the last name of an attribute."""
    if item.alias is not None:
        return item.alias
    assert isinstance(item.expression, syntax.Reference | syntax.Equivalence), "an expression in RETURN needs AS"
    name = item.expression.names[-1]
    return "len" if name.upper() == "LEN" else name


# ── Forms ──────────────────────────────────────────────────────────────────────────────────────────


def in_output_order(matches: Iterable[Match]) -> list[Match]:
    """ "In order of their end, then of the reading; ties by smaller start, then lexicographically smaller positions,
    then smaller component numbers"."""
    return sorted(
        matches,
        key=lambda match: (match.ends_at, match.reading, match.starts_at, match.positions, match.component_numbers),
    )


def in_form(
    conditions: Conditions, matches: Sequence[Match], window: int | None = None, *, several: bool = False
) -> list[Result]:
    """What the query's OUTPUT makes of its matches, which are in output order."""
    output = conditions.query.output or syntax.Output(OutputForm.ALL)
    if output.form is OutputForm.ALL:
        return list(matches)
    if output.form is OutputForm.COMPRESSED:
        return list(_compressed(matches, several))
    if output.form is OutputForm.LATEST:
        return list(_latest(matches))
    if output.form is OutputForm.FURTHEST:
        assert window is not None
        return list(_furthest(matches, len(conditions.positives), window))
    may_follow = {
        OutputForm.NON_OVERLAPPING: _starts_after_the_end,
        OutputForm.FIRST: _starts_with_another_event,
        OutputForm.SKIP_TO_FIRST: _starts_at_or_after(output.variable, 0),
        OutputForm.SKIP_TO_LAST: _starts_at_or_after(output.variable, -1),
    }[output.form]
    kept: list[Match] = []
    for match in matches:
        # "The forms of output work within a partition."
        if all(may_follow(match, earlier) for earlier in kept if earlier.partition == match.partition):
            kept.append(match)
    return list(kept)


def _starts_after_the_end(match: Match, earlier: Match) -> bool:
    """ "A match is output only if its start is after the end of the one output before it." """
    return match.starts_at > earlier.ends_at


def _starts_with_another_event(match: Match, earlier: Match) -> bool:
    """ "Of all matches that start with the same event only the first." """
    return match.positions[0] != earlier.positions[0]


def _starts_at_or_after(variable: str | None, which: int) -> Callable[[Match, Match], bool]:
    """ "After a match, runs and matches whose start stands before that event of it, by position, are dropped." """

    def may_follow(match: Match, earlier: Match) -> bool:
        assert variable is not None
        return match.positions[0] >= earlier.places[variable][which]

    return may_follow


def _latest(matches: Sequence[Match]) -> Iterable[Match]:
    """ "Of the matches that end with the same event of a partition, only the one whose start stands last (then by the
    largest positions, last component first)." """

    def recency(match: Match) -> tuple[Any, ...]:
        return match.positions[0], match.positions[::-1]

    for match in matches:
        rivals = [
            one for one in matches if (one.partition, one.positions[-1]) == (match.partition, match.positions[-1])
        ]
        if match is max(rivals, key=recency):
            yield match


def _furthest(matches: Sequence[Match], components: int, window: int) -> Iterable[Match]:
    """ "For each event that starts a run, one row: the complete match if there is one, else, when the window has
    passed, the run that bound the most components (the first such run)." """
    found = []
    for first in dict.fromkeys(match.positions[0] for match in matches):
        runs = [match for match in matches if match.positions[0] == first]
        most = max(len(run.places) for run in runs)
        run = next(run for run in runs if len(run.places) == most)
        end = run.end if most == components else type(run.end)(run.start + window - 1)
        found.append(replace(run, end=end, row={**run.row, "end": end, "reached": most}))
    return in_output_order(found)


def _compressed(matches: Sequence[Match], several: bool) -> Iterable[CompressedMatches]:
    """ "One row for each end time and partition, and for each reading if there are several: `count`, the exact number
    of matches as decimal(38,0) …" The oracle lists its matches, so their number always fits."""

    def moment_and_partition(match: Match) -> tuple[Any, ...]:
        return (match.ends_at, match.reading, match.partition)

    for ((end, _), reading, _), together in groupby(
        sorted(matches, key=moment_and_partition), key=moment_and_partition
    ):
        group = tuple(together)
        numbered = {"reading": reading + 1} if several else {}
        row = {"end": end, **group[0].partition_columns, **numbered, "count": Decimal(len(group))}
        yield CompressedMatches(min(match.start for match in group), end, row, group)
