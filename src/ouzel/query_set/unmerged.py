"""Queries of a set that are not merged into automata: they run in sessions, and equal ones run once.

Queries that were added between the same two batches run in one session: each batch is read once for all of them, and
aggregates among them are counted together where that pays. Two patterns that differ in nothing but names and what
RETURN shows are one query there, which shows what both want; and where thresholds of one ask for more than those of the
other, its matches are chosen among the other's.
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
from ouzel.engines.kleene.plan import RunPlan
from ouzel.lang.syntax import OutputForm
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
class Standing:
    """A query that runs in a session: what it would be alone, whose it is, and since when it sees events."""

    program: Program
    owner: Any
    since: int
    limits: tuple[Limit, ...] = ()
    # Which of the columns of the query that runs are its own; None: they are as they should be.
    columns: tuple[int, ...] | None = None
    schema: pa.Schema | None = None
    limited: tuple[int, ...] = ()  # the columns that its thresholds are about


@dataclass
class _Running:
    """A query that runs, for all that are equal to it, or ask for more by their thresholds."""

    name: str
    key: str
    program: Program
    limits: tuple[Limit, ...] = ()
    members: dict[Any, Standing] = field(default_factory=dict)

    @property
    def query(self) -> BoundQuery | None:
        return self.program.queries[0] if self.program.queries else None

    def widen(self, own: BoundQuery, limits: tuple[Limit, ...]) -> None:
        """Show what a query shows too, and ask for no more than it does."""
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
        """Where the columns that it shows are, after start and end."""
        query = self.query
        assert query is not None and query.returns is not None
        return {_written(column.expression): place for place, column in enumerate(query.returns, start=2)}


@dataclass
class _Cohort:
    """Queries that began at the same moment."""

    since: int
    running: dict[str, _Running] = field(default_factory=dict)
    session: Session | None = None  # from the first batch on

    def open(self) -> None:
        """Begin: from here on nothing can be added."""
        if self.session is not None:
            return
        programs = [one.program for one in self.running.values()]
        queries = tuple(query for program in programs for query in program.queries)
        algebra = tuple(expression for program in programs for expression in program.algebra)
        self.session = Session(replace(programs[0], queries=queries, algebra=algebra), isolates=True)
        self.session.advance(self.since)


class Sessions:
    """All queries of a set that run in sessions, by id."""

    def __init__(self) -> None:
        self._cohorts: list[_Cohort] = []
        self._places: dict[Any, tuple[_Cohort, _Running]] = {}
        self._by_key: dict[str, list[tuple[_Cohort, _Running]]] = {}
        self._names = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, id: Any) -> bool:
        return id in self._places

    def items(self) -> Iterator[tuple[Any, Standing]]:
        """Ids and queries."""
        for id, (_, running) in self._places.items():
            yield id, running.members[id]

    def add(self, id: Any, program: Program, owner: Any, since: int) -> None:
        """Take a query in that sees the events after a tick, from the next batch on."""
        key, limits = _key(program)
        standing = Standing(program, owner, since, limits)
        cohort, running = self._place(key, standing)
        if running is None:
            self._names += 1
            name = f"{id}" if self._is_free(f"{id}") else f"{id} {self._names}"
            running = cohort.running[name] = _Running(name, key, _named(program, name), limits)
            self._by_key.setdefault(key, []).append((cohort, running))
        self._join(id, standing, cohort, running)

    def _join(self, id: Any, standing: Standing, cohort: _Cohort, running: _Running) -> None:
        query, own = running.query, standing.program.queries
        if query is not None and query.returns is not None:
            assert own[0].returns is not None
            if cohort.session is None:
                running.widen(own[0], standing.limits)
            places = running.places()
            standing.columns = tuple(places[_written(column.expression)] for column in own[0].returns)
            standing.limited = tuple(places[_written(limit.value)] for limit in standing.limits)
            standing.schema = output_schema(own[0], standing.program.layout)
        running.members[id] = standing
        self._places[id] = (cohort, running)

    def _is_free(self, name: str) -> bool:
        return all(name not in cohort.running for cohort in self._cohorts)

    def _place(self, key: str, standing: Standing) -> tuple[_Cohort, _Running | None]:
        """Where a query can join, and what it is equal to there."""
        for cohort, running in self._by_key.get(key, ()):
            if cohort.session is None:
                if asks_for_more(standing.limits, running.limits) or asks_for_more(running.limits, standing.limits):
                    return cohort, running
            elif running.name not in cohort.session.problems and _may_join(running, standing):
                return cohort, running
        if not self._cohorts or self._cohorts[-1].session is not None or self._cohorts[-1].since != standing.since:
            self._cohorts.append(_Cohort(standing.since))
        return self._cohorts[-1], None

    def remove(self, id: Any) -> None:
        """Let a query go; what runs for others too goes on."""
        cohort, running = self._places.pop(id)
        del running.members[id]
        if running.members:
            return
        alone = cohort.session is None or cohort.session.drop(running.name)
        if alone:
            del cohort.running[running.name]
        self._by_key[running.key] = [one for one in self._by_key[running.key] if one[1] is not running]
        if not any(one.members for one in cohort.running.values()):
            self._cohorts.remove(cohort)

    # ── Events ─────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        """What was added begins now."""
        for cohort in self._cohorts:
            cohort.open()

    def push(self, table: pa.Table) -> None:
        """Take events in."""
        for cohort in self._cohorts:
            assert cohort.session is not None
            cohort.session.push(table)

    def advance(self, until: int) -> Iterator[tuple[Any, pa.Table]]:
        """No event at or before a tick can come any more: the answers that this completes, by id."""
        for cohort in self._cohorts:
            assert cohort.session is not None
            answers = cohort.session.advance(until)
            for running in cohort.running.values():
                answer = answers.get(running.name)
                if answer is not None and answer.num_rows:
                    yield from _answers(cohort, running, answer)

    def problems(self) -> Iterator[Problem]:
        """The queries that have stopped, and why."""
        for cohort in self._cohorts:
            if cohort.session is not None:
                for name, problem in cohort.session.problems.items():
                    yield from (replace(problem, query=id) for id in cohort.running[name].members)

    @property
    def next_deadline(self) -> int | None:
        found = [cohort.session.next_deadline for cohort in self._cohorts if cohort.session is not None]
        return min((deadline for deadline in found if deadline is not None), default=None)

    @property
    def held_events(self) -> int:
        return sum(cohort.session.held_events for cohort in self._cohorts if cohort.session is not None)

    # ── What is there ──────────────────────────────────────────────────────────────────────────────

    def explained(self) -> list[str]:
        """What runs once for several, as lines."""
        running = [one for cohort in self._cohorts for one in cohort.running.values()]
        common = [one for one in running if len(one.members) > 1]
        lines = [
            f"{some(len(self), 'query')} beside automata, run as {len(running):,} in "
            f"{some(len(self._cohorts), 'session')}, each of which reads events once"
        ]
        composed = sum(len(one.members) for one in running if one.query is None)
        if composed:
            lines.append(f"  {composed:,} of them are expressions over other expressions, or over events that last")
        if common:
            several, few = sum(len(one.members) for one in common), len(common)
            lines.append(f"  {several:,} of them differ in names, RETURN and thresholds only, and run as {few:,}")
        for cohort in self._cohorts:
            lines += [f"  {line}" for line in _counted_together(cohort)]
        return lines

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer, plain: Callable[[Any], Any]) -> list[Any]:
        """Store all; gives what `load` needs. `plain` makes ids and owners fit for JSON."""
        self.open()
        stored = []
        for cohort in self._cohorts:
            assert cohort.session is not None
            running = [
                [
                    one.name,
                    [
                        [plain(id), plain(m.owner), m.since, encode(m.program.queries) if m.columns else None]
                        for id, m in one.members.items()
                    ],
                ]
                for one in cohort.running.values()
            ]
            stored.append([cohort.since, writer.add_bytes(cohort.session.snapshot()), running])
        return stored

    def load(self, reader: Reader, stored: list[Any]) -> None:
        """Take back what `dump` stored."""
        for since, blob, running in stored:
            session = Session.restore(reader.bytes(blob))
            session.isolates = True
            cohort = _Cohort(since, {}, session)
            self._cohorts.append(cohort)
            for name, members in running:
                program = _of_one(session.program, name)
                key, limits = _key(program)
                one = cohort.running[name] = _Running(name, key, program, limits)
                self._by_key.setdefault(key, []).append((cohort, one))
                for id, owner, began, own in members:
                    mine = program if own is None else replace(program, queries=decode(own))
                    self._join(id, Standing(mine, owner, began, _key(mine)[1]), cohort, one)
                if not members:
                    # It was removed, and is there for those that are counted with it.
                    session.drop(name)


def _answers(cohort: _Cohort, running: _Running, answer: pa.Table) -> Iterator[tuple[Any, pa.Table]]:
    """What a query found, for each for which it runs. Those that show the same columns are taken out at once."""
    younger = any(standing.since > cohort.since for standing in running.members.values())
    starts = _starts(answer, running.program.layout) if younger else None
    within = Within(answer)
    alike: dict[Any, list[tuple[Any, Standing, np.ndarray]]] = {}
    for id, standing in running.members.items():
        compared = zip(standing.limited, standing.limits, running.limits, strict=True)
        rows = within.rows([(place, limit) for place, limit, known in compared if limit != known])
        if starts is not None:
            rows = rows[starts[rows] > standing.since]
        if len(rows):
            names = None if standing.schema is None else tuple(standing.schema.names)
            alike.setdefault((standing.columns, names, type(id)), []).append((id, standing, rows))
    for several in alike.values():
        standing = several[0][1]
        own = answer
        if standing.columns is not None:
            own = pa.table([answer.column(place) for place in (0, 1, *standing.columns)], schema=standing.schema)
        counts = [len(rows) for _, _, rows in several]
        ids = id_array([id for (id, _, _), count in zip(several, counts, strict=True) for _ in range(count)])
        whole = own.take(pa.array(np.concatenate([rows for _, _, rows in several]))).add_column(0, "query", ids)
        begin = 0
        for (id, _, _), count in zip(several, counts, strict=True):
            yield id, whole.slice(begin, count)
            begin += count


def _starts(answer: pa.Table, layout: Layout) -> np.ndarray:
    return ticks_of(answer, replace(layout, time="start"))


def _may_join(running: _Running, standing: Standing) -> bool:
    """Whether answers to a query that began later can be told from those of one that runs already: by their first
    event, unless what came before that matters, and if what they show is there."""
    query, own = running.query, standing.program.queries[0] if standing.program.queries else None
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
    return asks_for_more(standing.limits, running.limits)


def _named(program: Program, name: str) -> Program:
    """The program with its query renamed, and columns that no RETURN could collide with."""
    if not program.queries:
        (expression,) = program.algebra
        return replace(program, algebra=(replace(expression, name=name),))
    (query,) = program.queries
    if query.returns is None:
        return replace(program, queries=(replace(query, name=name),))
    returns = tuple(OutputColumn(f"column {k}", one.expression) for k, one in enumerate(query.returns))
    return replace(program, queries=(replace(query, name=name, returns=returns),))


def _of_one(program: Program, name: str) -> Program:
    """A program of one query out of one of several."""
    return replace(
        program,
        queries=tuple(query for query in program.queries if query.name == name),
        algebra=tuple(expression for expression in program.algebra if expression.name == name),
    )


def _key(program: Program) -> tuple[str, tuple[Limit, ...]]:
    """A text that is equal for queries that find the same matches but for their thresholds, and these."""
    if not program.queries:
        (expression,) = program.algebra
        return f"algebra {expression.text} {dict(expression.params)!r}", ()
    (query,) = program.queries
    stripped = replace(query, name="", text="", result_type="", catalog=Catalog())
    if query.returns is None:
        return _written(stripped), ()
    # Without RETURN columns are named after variables.
    stripped = replace(stripped, components=tuple(replace(c, variable=str(c.position)) for c in query.components))
    (plan,) = program.plans().values()
    if query.output.form is not OutputForm.ALL or query.threshold is not None:
        return _written(stripped), ()
    # Where it matters which of two simultaneous events comes first, the columns that RETURN reads decide, too.
    if isinstance(plan, RunPlan):
        return _written([replace(stripped, returns=()), deciding_columns(plan, program.layout)]), ()
    stripped, limits = without_limits(stripped)
    return _written(replace(stripped, returns=())), limits


def _written(value: Any) -> str:
    """A bound query or a part of one as a text, equal for what is exactly the same."""
    return json.dumps(encode(value), sort_keys=True)


def _counted_together(cohort: _Cohort) -> list[str]:
    """How aggregates of a cohort are counted together."""
    from ouzel.engines.aggregate.explain import sharing_lines
    from ouzel.engines.aggregate.sharing import plan_sharing

    plans = {name: next(iter(one.program.plans().values())) for name, one in cohort.running.items() if one.query}
    if sum(bool(plan.query.aggregates) for plan in plans.values()) < 2:
        return []
    return list(sharing_lines(plan_sharing(plans, next(iter(cohort.running.values())).program.statistics), plans))
