"""Queries of a set that are not merged into automata: which of them run, and for which registrations.

Patterns that differ only in names and RETURN run as one query, which has the columns of all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import (
    BoundQuery,
    Catalog,
    OutputColumn,
    decode,
    encode,
)
from ouzel.lang.syntax import OutputForm
from ouzel.plan.explain import explain_together
from ouzel.query_set.merged import MERGED
from ouzel.query_set.registry import id_array, stored_id
from ouzel.query_set.segments import some
from ouzel.runtime.layout import Layout, ticks_of, tie_break_columns
from ouzel.runtime.output import output_schema
from ouzel.runtime.program import Program


@dataclass
class Registration:
    """A query that is not merged: its own program, its owner, and the tick after which it sees events."""

    program: Program
    owner: Any
    since: int
    # The columns of RETURN that are its own, among those of the running query; None: all columns, in this order.
    columns: tuple[int, ...] | None = None
    schema: pa.Schema | None = None


@dataclass
class _Running:
    """A query that runs for one or more equal registrations."""

    name: str
    key: str
    program: Program
    members: dict[Any, Registration] = field(default_factory=dict)
    since: int | None = None  # None: it has not begun

    @property
    def query(self) -> BoundQuery | None:
        return self.program.queries[0] if self.program.queries else None

    def widen(self, own: BoundQuery) -> None:
        """Add the columns that another registration returns."""
        query = self.query
        assert query is not None and query.returns is not None and own.returns is not None
        known = {_written(column.expression) for column in query.returns}
        more = {text: c.expression for c in own.returns if (text := _written(c.expression)) not in known}
        first = len(query.returns)
        named = [OutputColumn(f"column {first + k}", one) for k, one in enumerate(more.values())]
        self.program = replace(self.program, queries=(replace(query, returns=(*query.returns, *named)),))

    def places(self) -> dict[str, int]:
        """The index of each column, after start and end."""
        query = self.query
        assert query is not None and query.returns is not None
        return {_written(column.expression): place for place, column in enumerate(query.returns, start=2)}


class UnmergedQueries:
    """The registrations of all queries that are not merged, by id, and the queries that run for them, by name."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        self._fresh: list[_Running] = []  # those that have not begun
        self._places: dict[Any, _Running] = {}
        self._by_key: dict[str, list[_Running]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, id: Any) -> bool:
        return id in self._places

    def items(self) -> Iterator[tuple[Any, Registration]]:
        """(id, registration) of all queries."""
        for id, running in self._places.items():
            yield id, running.members[id]

    def add(self, id: Any, program: Program, owner: Any, since: int, stopped: Collection[str]) -> None:
        """Register a query that sees the events after tick `since`. It does not share a running query that has
        stopped.
        """
        key, registration = _key(program), Registration(program, owner, since)
        running = self._equal(key, registration, stopped)
        if running is None:
            names = (f"{id}", *(f"{id} {number}" for number in range(2, len(self._running) + 4)))
            name = next(one for one in names if one not in self._running and one != MERGED)
            running = self._take(_Running(name, key, _named(program, name)))
            self._fresh.append(running)
        self._join(id, registration, running)

    def _take(self, running: _Running) -> _Running:
        self._running[running.name] = running
        self._by_key.setdefault(running.key, []).append(running)
        return running

    def _join(self, id: Any, registration: Registration, running: _Running) -> None:
        query, own = running.query, registration.program.queries
        if query is not None and query.returns is not None:
            assert own[0].returns is not None
            if running.since is None:
                running.widen(own[0])
            places = running.places()
            registration.columns = tuple(places[_written(column.expression)] for column in own[0].returns)
            registration.schema = output_schema(own[0], registration.program.layout)
        running.members[id] = registration
        self._places[id] = running

    def _equal(self, key: str, registration: Registration, stopped: Collection[str]) -> _Running | None:
        """A query that runs, or is about to start, and whose matches contain those of a registration; None if there is
        none.
        """
        for running in self._by_key.get(key, ()):
            if running.since is None:
                return running
            if running.name not in stopped and _may_join(running, registration):
                return running
        return None

    def fresh(self) -> list[Program]:
        """The programs of queries that have not started."""
        return [running.program for running in self._fresh]

    def begin(self, since: int) -> None:
        """Note that all queries have started, and see the events after tick `since`."""
        for running in self._fresh:
            running.since = since
        self._fresh = []

    def remove(self, id: Any) -> str | None:
        """Remove a registration. If a started query ran for it alone, returns the name of that query."""
        running = self._places.pop(id)
        del running.members[id]
        if running.members:
            return None
        self._by_key[running.key] = [one for one in self._by_key[running.key] if one is not running]
        if running.since is not None:
            return running.name
        self._fresh = [one for one in self._fresh if one is not running]
        del self._running[running.name]
        return None

    def is_needed(self, name: str) -> bool:
        """Whether the running query of this name runs for some registration."""
        return bool(self._running[name].members)

    def end(self, names: Collection[str]) -> None:
        """Remove running queries that have ended."""
        for name in names:
            del self._running[name]

    # ── Answers ────────────────────────────────────────────────────────────────────────────────────

    def answers(self, name: str, answer: pa.Table) -> Iterator[tuple[Any, pa.Table]]:
        """The answers of a running query, by id of its registrations. Those that return the same columns share a
        table.
        """
        running = self._running[name]
        assert running.since is not None
        younger = any(registration.since > running.since for registration in running.members.values())
        starts = _starts(answer, running.program.layout) if younger else None
        everything = np.arange(answer.num_rows)
        alike: dict[Any, list[tuple[Any, Registration, np.ndarray]]] = {}
        for id, registration in running.members.items():
            rows = everything if starts is None else np.flatnonzero(starts > registration.since)
            if len(rows):
                names = None if registration.schema is None else tuple(registration.schema.names)
                alike.setdefault((registration.columns, names, type(id)), []).append((id, registration, rows))
        for several in alike.values():
            registration = several[0][1]
            own = answer
            if registration.columns is not None:
                own = _own_columns(answer, registration.columns, registration.schema)
            counts = [len(rows) for _, _, rows in several]
            ids = id_array([id for (id, _, _), count in zip(several, counts, strict=True) for _ in range(count)])
            whole = own.take(pa.array(np.concatenate([rows for _, _, rows in several]))).add_column(0, "query", ids)
            begin = 0
            for (id, _, _), count in zip(several, counts, strict=True):
                yield id, whole.slice(begin, count)
                begin += count

    def members(self, name: str) -> list[Any]:
        """The ids of the registrations for which a query runs."""
        return list(self._running[name].members)

    # ── What is there ──────────────────────────────────────────────────────────────────────────────

    def explained(self) -> list[str]:
        """Lines of EXPLAIN: how many unmerged queries there are, and which of them run as one."""
        running = list(self._running.values())
        common = [one for one in running if len(one.members) > 1]
        lines = [f"{some(len(self), 'unmerged query')}, run as {len(running):,}, which read events once"]
        composed = sum(len(one.members) for one in running if one.query is None)
        if composed:
            lines.append(f"  {composed:,} of them are expressions over other expressions, or over events that last")
        if common:
            several, few = sum(len(one.members) for one in common), len(common)
            lines.append(f"  {several:,} of them differ in names and RETURN only, and run as {few:,}")
        for since in dict.fromkeys(one.since for one in running):
            lines += _counted_together([one for one in running if one.since == since])
        return lines

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self) -> list[Any]:
        """Which running query each registration has, for `load`. The running queries are in the program of the
        session.
        """
        return [
            [
                one.name,
                one.since,
                [
                    [stored_id(id), stored_id(m.owner), m.since, encode(m.program.queries) if m.columns else None]
                    for id, m in one.members.items()
                ],
            ]
            for one in self._running.values()
        ]

    def load(self, stored: list[Any], whole: Program) -> None:
        """Restore what `dump` stored."""
        queries = {one.name: one for one in whole.queries}
        algebra = {one.name: one for one in whole.algebra}
        for name, since, members in stored:
            program = replace(
                whole,
                queries=(queries[name],) if name in queries else (),
                algebra=(algebra[name],) if name in algebra else (),
            )
            running = self._take(_Running(name, _key(program), program, since=since))
            for id, owner, began, own in members:
                alone = program if own is None else replace(program, queries=decode(own))
                self._join(id, Registration(alone, owner, began), running)


def _starts(answer: pa.Table, layout: Layout) -> np.ndarray:
    return ticks_of(answer, replace(layout, time="start"))


def _may_join(running: _Running, registration: Registration) -> bool:
    """Whether a new registration can share a running query: its columns exist, and its answers can be selected by their
    first events, because events before its registration cannot change them.
    """
    query, own = running.query, registration.program.queries[0] if registration.program.queries else None
    if query is None or own is None or query.output.form is not OutputForm.ALL:
        return False
    if query.aggregates or query.threshold is not None or any(o[0].negated for o in query.orders):
        return False
    if query.returns is None:
        return True
    assert own.returns is not None
    return {_written(column.expression) for column in own.returns} <= running.places().keys()


def _own_columns(answer: pa.Table, returned: tuple[int, ...], schema: pa.Schema | None) -> pa.Table:
    """The columns of one registration: start, end, its columns of RETURN, and what follows RETURN in every answer, such
    as `reached` of OUTPUT FURTHEST.
    """
    assert schema is not None
    following = len(schema) - 2 - len(returned)
    places = (0, 1, *returned, *range(answer.num_columns - following, answer.num_columns))
    return pa.table([answer.column(place) for place in places], schema=schema)


def _named(program: Program, name: str) -> Program:
    """A program whose query has another name, and column names that no RETURN can have."""
    if not program.queries:
        (expression,) = program.algebra
        return replace(program, algebra=(replace(expression, name=name),))
    (query,) = program.queries
    if query.returns is None:
        return replace(program, queries=(replace(query, name=name),))
    returns = tuple(OutputColumn(f"column {k}", one.expression) for k, one in enumerate(query.returns))
    return replace(program, queries=(replace(query, name=name, returns=returns),))


def _key(program: Program) -> str:
    """A text that is equal for queries that have the same matches."""
    if not program.queries:
        (expression,) = program.algebra
        return f"algebra {expression.text} {dict(expression.params)!r}"
    (query,) = program.queries
    stripped = replace(query, name="", text="", result_type="", catalog=Catalog())
    if query.returns is None:
        return _written(stripped)
    if query.threshold is not None:
        # The loss model and the column `missing` name variables.
        return _written(stripped)
    # Without RETURN, variables name the columns.
    stripped = replace(stripped, components=tuple(replace(c, variable=str(c.position)) for c in query.components))
    if query.output.form is not OutputForm.ALL:
        return _written(stripped)
    stripped = replace(stripped, returns=())
    (plan,) = program.plans().values()
    # If the order of simultaneous events matters, the columns that RETURN reads also decide it.
    return _written([stripped, tie_break_columns(plan, program.layout)] if plan.has_runs else stripped)


def _written(value: Any) -> str:
    """A bound query, or a part of it, as text. Equal texts mean equal queries."""
    return json.dumps(encode(value), sort_keys=True)


def _counted_together(registered: Sequence[_Running]) -> list[str]:
    """Lines of EXPLAIN: how aggregates that were registered together are counted."""
    programs = [one.program for one in registered if one.query is not None and one.query.aggregates]
    if len(programs) < 2:
        return []
    plans = {name: plan for program in programs for name, plan in program.plans().items()}
    return [f"  {line}" for line in explain_together(plans, programs[0].statistics)]
