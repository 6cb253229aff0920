"""Queries of a set that are not merged into automata: they run in sessions, and equal ones run once.

Queries that were added between the same two batches run in one session: it reads each batch once, and its aggregates
may be counted together. Two patterns that differ only in names and RETURN run as one query, which has the columns of
both. If the thresholds of one pattern are stricter than those of the other, its matches are selected from the other's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.codec import decode, encode
from ouzel.bind.model import BoundQuery, Catalog, OutputColumn
from ouzel.lang.syntax import OutputForm
from ouzel.plan.explain import explain_together
from ouzel.query_set.answers import id_array
from ouzel.query_set.statistics import some
from ouzel.query_set.subsumption import Limit, Within, asks_for_more, without_limits
from ouzel.runtime.layout import Layout, ticks_of
from ouzel.runtime.output import output_schema
from ouzel.runtime.problems import Problem
from ouzel.runtime.program import Program
from ouzel.runtime.session import Session
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.stream_order import deciding_columns


@dataclass
class Registration:
    """A query that runs in a session: its own program, its owner, and the tick after which it sees events."""

    program: Program
    owner: Any
    since: int
    limits: tuple[Limit, ...] = ()
    # The columns of the running query that are its own; None: all of them, in this order.
    columns: tuple[int, ...] | None = None
    schema: pa.Schema | None = None
    limited: tuple[int, ...] = ()  # the columns that its thresholds are about


@dataclass
class _Running:
    """A running query, for all equal queries and those with stricter thresholds."""

    name: str
    key: str
    program: Program
    limits: tuple[Limit, ...] = ()
    members: dict[Any, Registration] = field(default_factory=dict)

    @property
    def query(self) -> BoundQuery | None:
        return self.program.queries[0] if self.program.queries else None

    def widen(self, own: BoundQuery, limits: tuple[Limit, ...]) -> None:
        """Add the columns of another query, and lower the thresholds to its own."""
        query = self.query
        assert query is not None and query.returns is not None and own.returns is not None
        known = {_written(column.expression) for column in query.returns}
        wanted = [column.expression for column in own.returns] + [limit.value for limit in limits]
        more = {text: one for one in wanted if (text := _written(one)) not in known}
        first = len(query.returns)
        named = [OutputColumn(f"column {first + k}", one) for k, one in enumerate(more.values())]
        query = replace(query, returns=(*query.returns, *named))
        if not asks_for_more(limits, self.limits):
            query, self.limits = replace(query, conjuncts=own.conjuncts), limits
        self.program = replace(self.program, queries=(query,))

    def places(self) -> dict[str, int]:
        """The places of its columns, after start and end."""
        query = self.query
        assert query is not None and query.returns is not None
        return {_written(column.expression): place for place, column in enumerate(query.returns, start=2)}


@dataclass
class _Epoch:
    """Queries that were added between the same two batches: one registration epoch."""

    since: int
    running: dict[str, _Running] = field(default_factory=dict)
    session: Session | None = None  # from the first batch on

    def open(self) -> None:
        """Start the session; from here on no query can be added."""
        if self.session is not None:
            return
        programs = [one.program for one in self.running.values()]
        queries = tuple(query for program in programs for query in program.queries)
        algebra = tuple(expression for program in programs for expression in program.algebra)
        self.session = Session(replace(programs[0], queries=queries, algebra=algebra), isolates=True)
        self.session.advance(self.since)


class UnmergedQueries:
    """All queries of a set that run in sessions, by id."""

    def __init__(self) -> None:
        self._epochs: list[_Epoch] = []
        self._places: dict[Any, tuple[_Epoch, _Running]] = {}
        self._by_key: dict[str, list[tuple[_Epoch, _Running]]] = {}
        self._names = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, id: Any) -> bool:
        return id in self._places

    def items(self) -> Iterator[tuple[Any, Registration]]:
        """Ids and queries."""
        for id, (_, running) in self._places.items():
            yield id, running.members[id]

    def add(self, id: Any, program: Program, owner: Any, since: int) -> None:
        """Add a query that sees the events after a tick, from the next batch on."""
        key, limits = _key(program)
        registration = Registration(program, owner, since, limits)
        epoch, running = self._place(key, registration)
        if running is None:
            self._names += 1
            name = f"{id}" if self._is_free(f"{id}") else f"{id} {self._names}"
            running = epoch.running[name] = _Running(name, key, _named(program, name), limits)
            self._by_key.setdefault(key, []).append((epoch, running))
        self._join(id, registration, epoch, running)

    def _join(self, id: Any, registration: Registration, epoch: _Epoch, running: _Running) -> None:
        query, own = running.query, registration.program.queries
        if query is not None and query.returns is not None:
            assert own[0].returns is not None
            if epoch.session is None:
                running.widen(own[0], registration.limits)
            places = running.places()
            registration.columns = tuple(places[_written(column.expression)] for column in own[0].returns)
            registration.limited = tuple(places[_written(limit.value)] for limit in registration.limits)
            registration.schema = output_schema(own[0], registration.program.layout)
        running.members[id] = registration
        self._places[id] = (epoch, running)

    def _is_free(self, name: str) -> bool:
        return all(name not in epoch.running for epoch in self._epochs)

    def _place(self, key: str, registration: Registration) -> tuple[_Epoch, _Running | None]:
        """The epoch that a query can join, and the equal query there."""
        for epoch, running in self._by_key.get(key, ()):
            if epoch.session is None:
                if asks_for_more(registration.limits, running.limits) or asks_for_more(
                    running.limits, registration.limits
                ):
                    return epoch, running
            elif running.name not in epoch.session.problems and _may_join(running, registration):
                return epoch, running
        if not self._epochs or self._epochs[-1].session is not None or self._epochs[-1].since != registration.since:
            self._epochs.append(_Epoch(registration.since))
        return self._epochs[-1], None

    def remove(self, id: Any) -> None:
        """Remove a query; a running query that others share continues."""
        epoch, running = self._places.pop(id)
        del running.members[id]
        if running.members:
            return
        alone = epoch.session is None or epoch.session.drop(running.name)
        if alone:
            del epoch.running[running.name]
        self._by_key[running.key] = [one for one in self._by_key[running.key] if one[1] is not running]
        if not any(one.members for one in epoch.running.values()):
            self._epochs.remove(epoch)

    # ── Events ─────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        """Start the queries added since the last batch."""
        for epoch in self._epochs:
            epoch.open()

    def push(self, table: pa.Table) -> None:
        """Take events in."""
        for epoch in self._epochs:
            assert epoch.session is not None
            epoch.session.push(table)

    def advance(self, until: int) -> Iterator[tuple[Any, pa.Table]]:
        """No event at or before a tick can come any more: return the answers that this completes, by id."""
        for epoch in self._epochs:
            assert epoch.session is not None
            answers = epoch.session.advance(until)
            for running in epoch.running.values():
                answer = answers.get(running.name)
                if answer is not None and answer.num_rows:
                    yield from _answers(epoch, running, answer)

    def problems(self) -> Iterator[Problem]:
        """The queries that have stopped, and why."""
        for epoch in self._epochs:
            if epoch.session is not None:
                for name, problem in epoch.session.problems.items():
                    yield from (replace(problem, query=id) for id in epoch.running[name].members)

    @property
    def next_deadline(self) -> int | None:
        found = [epoch.session.next_deadline for epoch in self._epochs if epoch.session is not None]
        return min((deadline for deadline in found if deadline is not None), default=None)

    @property
    def held_events(self) -> int:
        return sum(epoch.session.held_events for epoch in self._epochs if epoch.session is not None)

    # ── What is there ──────────────────────────────────────────────────────────────────────────────

    def explained(self) -> list[str]:
        """The queries that run once for several, as lines."""
        running = [one for epoch in self._epochs for one in epoch.running.values()]
        common = [one for one in running if len(one.members) > 1]
        lines = [
            f"{some(len(self), 'query')} beside automata, run as {len(running):,} in "
            f"{some(len(self._epochs), 'session')}, each of which reads events once"
        ]
        composed = sum(len(one.members) for one in running if one.query is None)
        if composed:
            lines.append(f"  {composed:,} of them are expressions over other expressions, or over events that last")
        if common:
            several, few = sum(len(one.members) for one in common), len(common)
            lines.append(f"  {several:,} of them differ in names, RETURN and thresholds only, and run as {few:,}")
        for epoch in self._epochs:
            lines += [f"  {line}" for line in _counted_together(epoch)]
        return lines

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer, plain: Callable[[Any], Any]) -> list[Any]:
        """Store all; returns what `load` needs. `plain` makes ids and owners valid JSON."""
        self.open()
        stored = []
        for epoch in self._epochs:
            assert epoch.session is not None
            running = [
                [
                    one.name,
                    [
                        [plain(id), plain(m.owner), m.since, encode(m.program.queries) if m.columns else None]
                        for id, m in one.members.items()
                    ],
                ]
                for one in epoch.running.values()
            ]
            stored.append([epoch.since, writer.add_bytes(epoch.session.snapshot()), running])
        return stored

    def load(self, reader: Reader, stored: list[Any]) -> None:
        """Restore what `dump` stored."""
        for since, blob, running in stored:
            session = Session.restore(reader.bytes(blob))
            session.isolates = True
            epoch = _Epoch(since, {}, session)
            self._epochs.append(epoch)
            for name, members in running:
                program = _of_one(session.program, name)
                key, limits = _key(program)
                one = epoch.running[name] = _Running(name, key, program, limits)
                self._by_key.setdefault(key, []).append((epoch, one))
                for id, owner, began, own in members:
                    mine = program if own is None else replace(program, queries=decode(own))
                    self._join(id, Registration(mine, owner, began, _key(mine)[1]), epoch, one)


def _answers(epoch: _Epoch, running: _Running, answer: pa.Table) -> Iterator[tuple[Any, pa.Table]]:
    """The answers of a running query, for each of its registrations. Those with the same columns are selected once."""
    younger = any(registration.since > epoch.since for registration in running.members.values())
    starts = _starts(answer, running.program.layout) if younger else None
    within = Within(answer)
    alike: dict[Any, list[tuple[Any, Registration, np.ndarray]]] = {}
    for id, registration in running.members.items():
        compared = zip(registration.limited, registration.limits, running.limits, strict=True)
        rows = within.rows([(place, limit) for place, limit, known in compared if limit != known])
        if starts is not None:
            rows = rows[starts[rows] > registration.since]
        if len(rows):
            names = None if registration.schema is None else tuple(registration.schema.names)
            alike.setdefault((registration.columns, names, type(id)), []).append((id, registration, rows))
    for several in alike.values():
        registration = several[0][1]
        own = answer
        if registration.columns is not None:
            own = pa.table(
                [answer.column(place) for place in (0, 1, *registration.columns)], schema=registration.schema
            )
        counts = [len(rows) for _, _, rows in several]
        ids = id_array([id for (id, _, _), count in zip(several, counts, strict=True) for _ in range(count)])
        whole = own.take(pa.array(np.concatenate([rows for _, _, rows in several]))).add_column(0, "query", ids)
        begin = 0
        for (id, _, _), count in zip(several, counts, strict=True):
            yield id, whole.slice(begin, count)
            begin += count


def _starts(answer: pa.Table, layout: Layout) -> np.ndarray:
    return ticks_of(answer, replace(layout, time="start"))


def _may_join(running: _Running, registration: Registration) -> bool:
    """Whether a later query can share a running one: its answers can be selected by their first event, unless earlier
    events matter, and the columns exist."""
    query, own = running.query, registration.program.queries[0] if registration.program.queries else None
    if query is None or own is None or query.output.form is not OutputForm.ALL:
        return False
    if query.aggregates or query.threshold is not None or query.components[0].negated:
        return False
    if query.returns is None:
        return True
    assert own.returns is not None
    shown = running.places().keys()
    if not {_written(column.expression) for column in own.returns} <= shown:
        return False
    return asks_for_more(registration.limits, running.limits)


def _named(program: Program, name: str) -> Program:
    """The program with its query renamed, and column names that no RETURN can have."""
    if not program.queries:
        (expression,) = program.algebra
        return replace(program, algebra=(replace(expression, name=name),))
    (query,) = program.queries
    if query.returns is None:
        return replace(program, queries=(replace(query, name=name),))
    returns = tuple(OutputColumn(f"column {k}", one.expression) for k, one in enumerate(query.returns))
    return replace(program, queries=(replace(query, name=name, returns=returns),))


def _of_one(program: Program, name: str) -> Program:
    """A program of one query, taken from a program of several."""
    return replace(
        program,
        queries=tuple(query for query in program.queries if query.name == name),
        algebra=tuple(expression for expression in program.algebra if expression.name == name),
    )


def _key(program: Program) -> tuple[str, tuple[Limit, ...]]:
    """A text that is equal for queries with the same matches except for their thresholds, and the thresholds."""
    if not program.queries:
        (expression,) = program.algebra
        return f"algebra {expression.text} {dict(expression.params)!r}", ()
    (query,) = program.queries
    stripped = replace(query, name="", text="", result_type="", catalog=Catalog())
    if query.returns is None:
        return _written(stripped), ()
    # Without RETURN, variables name the columns.
    stripped = replace(stripped, components=tuple(replace(c, variable=str(c.position)) for c in query.components))
    (plan,) = program.plans().values()
    if query.output.form is not OutputForm.ALL or query.threshold is not None:
        return _written(stripped), ()
    # If the order of simultaneous events matters, the columns that RETURN reads also decide it.
    if plan.has_runs:
        return _written([replace(stripped, returns=()), deciding_columns(plan, program.layout)]), ()
    stripped, limits = without_limits(stripped)
    return _written(replace(stripped, returns=())), limits


def _written(value: Any) -> str:
    """A bound query or a part of it as text; equal texts mean equal queries."""
    return json.dumps(encode(value), sort_keys=True)


def _counted_together(epoch: _Epoch) -> list[str]:
    """How the aggregates of an epoch are counted together."""
    plans = {name: next(iter(one.program.plans().values())) for name, one in epoch.running.items() if one.query}
    if sum(bool(plan.query.aggregates) for plan in plans.values()) < 2:
        return []
    return explain_together(plans, next(iter(epoch.running.values())).program.statistics)
