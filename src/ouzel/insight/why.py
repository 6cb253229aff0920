"""`ouzel.why`: how far a match got that begins with one event, and what stopped it, step by step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.diagnostics import nearest
from ouzel.bind.model import Component, Edge
from ouzel.bind.readings import linear
from ouzel.errors import InputError
from ouzel.insight.events import Events, read_events
from ouzel.insight.rows import reason_of
from ouzel.insight.search import Found, Search
from ouzel.insight.words import Words
from ouzel.lang.parser import is_row_pattern
from ouzel.lang.statements import is_statement
from ouzel.lang.syntax import Contiguity, OutputForm, Strategy
from ouzel.notebook import preformatted
from ouzel.plan.diagram import pattern_label
from ouzel.prepared import OneQuery, as_queries, row_patterns_of
from ouzel.runtime.inputs import as_table

SEARCH_LIMIT = 2_000
# Without a start, try this many events and report the one that got furthest.
STARTS_MAX = 200


@dataclass(frozen=True)
class Why:
    """How far a match got that begins with one event. Print it to read it.

    `complete` is True if a match begins with the event, False if none does, and None if the search was cut off. Of
    `components` positive components, `reached` were bound. `stopped_by` is "nothing", "start", "no event", "condition",
    "window", "strategy", "negation" or "search limit".
    """

    query: str
    row: int
    complete: bool | None
    reached: int
    components: int
    stopped_by: str
    title: str
    steps: tuple[str, ...]
    verdict: str

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {step}" for step in self.steps), self.verdict])

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def why(
    events: Any,
    query: OneQuery,
    start: int | Mapping[str, Any] | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
    search_limit: int = SEARCH_LIMIT,
) -> Why:
    """How far a match got that begins with one event, and which condition, window or negation stopped it.

    `start` is the row of the event in the input, counted from 0; or values of columns such as `{"tag": 8}`, which mean
    the first event that has them. Without `start`, the events that may begin a match are tried in turn, and the one
    that got furthest is reported. The other arguments are those of `match`.

    The query may also be the text of a row pattern, or an SQL statement that contains one. Then `events` is the table
    in front of MATCH_RECOGNIZE, and `start` is a row of that table.

    >>> events = [
    ...     {"type": "Shelf", "ts": 1, "tag": 7}, {"type": "Shelf", "ts": 2, "tag": 8},
    ...     {"type": "Register", "ts": 3, "tag": 8}, {"type": "Exit", "ts": 5, "tag": 8},
    ... ]
    >>> theft = "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag] WITHIN 100"
    >>> print(why(events, theft, start={"tag": 8}))
    Shelf at 2 (tag=8) as the start of a match of 'query'
      a = Shelf at 2 (tag=8)
      c = Exit at 5 (tag=8)
      !(Register b): Register at 3 (tag=8) is between 2 and 5
    no match: a negative component forbids it
    >>> print(why(events, theft, start=0))
    Shelf at 1 (tag=7) as the start of a match of 'query'
      a = Shelf at 1 (tag=7)
      c: 1 event of type Exit until the window closes at 101
         Exit at 5 (tag=8): [tag] differs, 8 is not 7
    no match: no event can be c
    """
    if isinstance(query, str) and (is_statement(query) or is_row_pattern(query)):
        return _why_row(events, query, start, params, search_limit)
    read = read_events(events, as_queries(query, params), time=time, type=type, order=order, time_unit=time_unit)
    if not read.count:
        raise InputError("there are no events, so nothing can begin a match")
    if read.query.has_nested:
        raise InputError(
            "why cannot show what a negated sequence forbids",
            "; find the sequence by a query of its own with INTO, or leave it out",
        )
    if not read.query.readings:
        return _described(*_searched(read, start, search_limit))
    # Of several readings, the one that got furthest; of equal ones the first.
    each = [_searched(replace(read, query=one), start, search_limit) for one in linear(read.query)]
    search, found, note = max(each, key=lambda one: _reached(one[1]))
    if len(each) == 1:
        return _described(search, found, note)
    return _described(search, found, f"{note}, read as {pattern_label(search.events.query)}")


def _searched(events: Events, start: int | Mapping[str, Any] | None, limit: int) -> tuple[Search, Found, str]:
    """The search from the given start or, without one, from the event that got furthest; and notes about the start."""
    if start is None:
        return _furthest(events, limit)
    place, note = _place(events, start)
    search = Search(events, place)
    return search, search.find(limit), note


def _place(events: Events, start: int | Mapping[str, Any]) -> tuple[int, str]:
    """The index of the start event in stream order, and notes about it."""
    if isinstance(start, bool) or not isinstance(start, int | Mapping):
        raise InputError(f"start= must be the row of an event or values of its columns, got {start!r}")
    if isinstance(start, int):
        if not 0 <= start < events.count:
            raise InputError(f"there is no row {start}; the input has the rows 0 to {events.count - 1}")
        return int(np.flatnonzero(events.rows == start)[0]), ""
    fitting = _fitting(events.table, start)
    # Prefer an event that can begin a match.
    beginning = fitting & events.are_of(events.query.positives[0])
    chosen = beginning if beginning.any() else fitting
    count = int(chosen.sum())
    return int(np.argmax(chosen)), f", the first of {count:,} such events" if count > 1 else ""


def _fitting(table: pa.Table, start: Mapping[str, Any]) -> np.ndarray:
    """Which rows have the values in `start`. Raises an error if none has."""
    fitting = np.ones(table.num_rows, bool)
    for name, value in start.items():
        if name not in table.column_names:
            near = nearest(name, table.column_names)
            hint = near or f"the columns are {', '.join(map(repr, table.column_names))}"
            raise InputError(f"there is no column '{name}'; {hint}")
        column = table.column(name)
        try:
            wanted = pa.scalar(value).cast(column.type) if value is not None else None
            same = pc.is_null(column) if wanted is None else pc.fill_null(pc.equal(column, wanted), False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise InputError(f"the column '{name}' is of type {column.type} and cannot be {value!r}") from None
        fitting &= np.asarray(same.to_numpy(zero_copy_only=False), dtype=bool)
    if not fitting.any():
        shown = ", ".join(f"{name}={value}" for name, value in start.items())
        raise InputError(f"there is no event with {shown}")
    return fitting


def _why_row(
    events: Any, text: str, start: int | Mapping[str, Any] | None, params: Mapping[str, Any] | None, limit: int
) -> Why:
    """The result for a row of a table, given a text with exactly one row pattern."""
    found = row_patterns_of(text, params)
    if len(found) > 1:
        raise InputError(f"the statement has {len(found)} clauses; give the text of one of them")
    ((query, clause),) = found
    table = as_table(events)
    if not table.num_rows:
        raise InputError("the input has no rows, so nothing can begin a match")
    if start is None:
        rows = list(range(min(table.num_rows, STARTS_MAX)))
    elif isinstance(start, Mapping):
        rows = [int(np.argmax(_fitting(table, start)))]
    else:
        rows = [start]
    if not 0 <= rows[0] < table.num_rows:
        raise InputError(f"there is no row {start}; the input has the rows 0 to {table.num_rows - 1}")
    with nullcontext() if clause is None else clause.placing():
        return Why(query=query.name, **asdict(reason_of(table, query, rows, limit)))


def _furthest(events: Events, limit: int) -> tuple[Search, Found, str]:
    first = events.query.positives[0]
    own = np.flatnonzero(events.are_of(first)).astype(np.int32)
    if not len(own):
        search = Search(events, 0)
        return search, search.find(limit), f"; no event is of type {_types(first)}{_near(events, first)}"
    passing = own[Search(events, int(own[0])).tried((), first, Edge.BEGIN, own).hindered < 0]
    tried = passing[:STARTS_MAX] if len(passing) else own[:1]
    best: tuple[Search, Found] | None = None
    for place in tried:
        search = Search(events, int(place))
        found = search.find(limit)
        if best is None or _reached(found) > _reached(best[1]):
            best = search, found
        if found.match is not None:
            break
    assert best is not None
    of = f"{len(tried):,}" if len(tried) == len(passing) else f"the first {len(tried):,}"
    return *best, f", which got furthest of {of} that may begin one" if len(passing) > 1 else ""


def _reached(found: Found) -> tuple[bool, bool, int, int]:
    return found.match is not None, bool(found.forbidden), len(found.furthest), sum(map(len, found.furthest))


def _types(component: Component) -> str:
    return " or ".join(component.types or ("any type",))


def _near(events: Events, component: Component) -> str:
    """The hint for a component whose type no event has."""
    if component.types is None or len(component.types) > 1 or events.are_of(component).any():
        return ""
    near = nearest(component.types[0], pc.unique(pc.drop_null(events.types)).to_pylist())
    return "" if near is None else f"; {near}"


# ── The reasons ────────────────────────────────────────────────────────────────────────────────────────


def _described(search: Search, found: Found, note: str) -> Why:
    words = Words(search)
    steps, verdict, stopped_by, complete, reached = _outcome(search, found, words)
    query = search.events.query
    return Why(
        query=query.name,
        row=int(search.events.rows[search.start]),
        complete=complete,
        reached=reached,
        components=len(query.positives),
        stopped_by=stopped_by,
        title=f"{words.event(search.start)} as the start of a match of '{query.name}'{note}",
        steps=tuple(steps),
        verdict=verdict,
    )


def _outcome(search: Search, found: Found, words: Words) -> tuple[list[str], str, str, bool | None, int]:
    query = search.events.query
    if not found.start.passing[0]:
        return (
            words.tried(found.start, ()),
            f"no match: the event cannot be {query.positives[0].variable}",
            "start",
            False,
            0,
        )
    if found.match is not None:
        steps = words.bound(found.match) + words.not_forbidden(found.match)
        return steps, f"a match{_left_out(search)}", "nothing", True, len(found.match)
    if not found.exhausted:
        steps = [
            *words.bound(found.furthest),
            f"{found.looked_at:,} partial matches were searched, and there are more",
        ]
        reached = len(found.furthest)
        return steps, "not known: the search was cut off; give a larger search_limit", "search limit", None, reached
    if found.forbidden:
        first = found.forbidden[0]
        steps = [*words.bound(first.run), words.forbidden(first)]
        if len(found.forbidden) > 1:
            steps.append(f"{len(found.forbidden) - 1:,} more complete runs are forbidden too")
        return steps, "no match: a negative component forbids it", "negation", False, len(first.run)
    return _stopped(search, found, words)


def _stopped(search: Search, found: Found, words: Words) -> tuple[list[str], str, str, bool | None, int]:
    """How a run that got furthest was stopped because no next event fits it."""
    run = found.furthest
    steps = words.bound(run)
    take, begin = search.next_tried(run, search.rest(run))
    ended = search.ended_by(run)
    for tried in (take, begin):
        if tried is not None:
            steps += words.tried(tried, run, only=ended)
    unready = search.unready(run)
    steps += [words.unready(conjunct, run) for conjunct in unready]
    # The run itself does not count.
    others = found.looked_at - sum(map(len, run))
    if others:
        steps.append(f"{others:,} other partial match{'' if others == 1 else 'es'} got no further")
    reached = len(run)
    if unready:
        return steps, f"no match: {words.variable(run)} cannot be left yet", "condition", False, reached
    assert begin is not None, "a run that can be left and needs nothing more is complete"
    wanted = begin.component.variable
    if ended is not None:
        query = search.events.query
        rule, is_strict = query.strategy.value, query.strategy is Strategy.STRICT_CONTIGUITY
        if query.strategy is Strategy.CONTIGUITY:
            step = query.contiguity(begin.component.position, begin.edge)
            rule, is_strict = f"contiguity({wanted}: {step.value})", step is Contiguity.STRICT
        why_ended = "the next event" if is_strict else "the next event of its partition"
        return steps, f"no match: under {rule} {why_ended} must be {wanted}", "strategy", False, reached
    late = search.too_late(run, begin.component)
    if late is not None:
        steps.append(f"{words.event(late)} would fit, but is outside the window")
        return steps, f"no match: the window closed before {wanted} came", "window", False, reached
    of_type = begin.component.types is None or search.events.are_of(begin.component)[begin.places].any()
    if not of_type:
        missing = f"{_types(begin.component)} came in time{_near(search.events, begin.component)}"
        return steps, f"no match: nothing of type {missing}", "no event", False, reached
    return steps, f"no match: no event can be {wanted}", "condition", False, reached


def _left_out(search: Search) -> str:
    """A note about what else may keep a match out of the answer."""
    query = search.events.query
    if query.aggregates:
        return ", which the aggregate counts" + ("; HAVING may filter the row" if query.having is not None else "")
    if query.output.form is OutputForm.LATEST:
        return "; OUTPUT LATEST returns it unless a match with the same last event starts later"
    if query.output.form in (OutputForm.NON_OVERLAPPING, OutputForm.SKIP_TO_FIRST, OutputForm.SKIP_TO_LAST):
        name = (
            query.output.form.value.replace("_", " ") if "SKIP" in query.output.form.name else query.output.form.value
        )
        return f"; OUTPUT {name} returns it unless an earlier match takes precedence"
    return ""
