"""A session: queries running over one stream. The embedded engine and Spark both drive this class.

The feeder passes events (`push`) and declares how far time has moved (`advance`). The session orders events, decides
which are late, and stores all its state in one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import BoundQuery
from ouzel.errors import OuzelError, StateError
from ouzel.kernels.pauses import pause
from ouzel.runtime.arrays import empty_table
from ouzel.runtime.composition import AnyQuery, is_composed, layouts, reads_input, widen_input, widen_matches
from ouzel.runtime.layout import conform, ticks_of
from ouzel.runtime.operator import runners_for, silenced, stopped
from ouzel.runtime.problems import Problem, shown_time
from ouzel.runtime.program import Program, dump, load
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.sealing import SNAPSHOT, decoding

LATEST = 2**63 - 1
EARLIEST = -(2**63)
T = TypeVar("T")


class Session:
    """Queries over one stream of events.

    `push` takes events in any order. `advance(tick)` declares that no event at or before a tick can come any more, and
    returns what that completes, by query name. `finish` ends a bounded input.

    An error of one query is raised; or, with `isolates`, only that query and those that read its matches stop, and
    `problems` gives the reason. The rows of a stopped query are in no answer.
    """

    def __init__(self, program: Program, *, keep_late: bool = False, isolates: bool = False) -> None:
        self._program = program
        self.isolates = isolates
        self.problems: dict[str, Problem] = {}
        self.error: Exception | None = None  # of the query that stopped last
        self._newest = EARLIEST
        self._layouts = layouts(program.members, program.layout)
        self._runners = runners_for(
            program.plans(),
            self._layouts,
            program.limits,
            program.statistics,
            program.rules_off,
            partial=program.partial,
        )
        self._watermark = EARLIEST
        self._keep_late = keep_late
        self._late_tables: list[pa.Table] = []
        self._stored_program: bytes | None = None
        self._names = {query.name: _types_named(query) for query in program.queries}
        # The number of late events of each query, by the types that it names.
        self.late_by_query = dict.fromkeys(self._runners, 0)
        # What the feeder of a restored session had stored with it.
        self.feeder: dict[str, Any] | None = None
        # Rows that its feeder had not returned yet.
        self.owed: dict[str, pa.Table] = {}
        self.late = 0

    @classmethod
    def open(cls, program: bytes, *, isolates: bool = False) -> Session:
        """A fresh session for a compiled program."""
        return cls(load(program), isolates=isolates)

    @property
    def program(self) -> Program:
        """The program that runs here."""
        return self._program

    @property
    def keep_late(self) -> bool:
        """Whether late events are kept for `take_late`."""
        return self._keep_late

    @property
    def watermark(self) -> int:
        """Events at or before this tick are late."""
        return self._watermark

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each query's answer."""
        return {name: runner.schema for name, runner in self._runners.items()}

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which time alone can complete something; None if there is none."""
        deadlines = [runner.next_deadline for runner in self._runners.values()]
        return min((d for d in deadlines if d is not None), default=None)

    @property
    def held_events(self) -> int:
        """The number of held events, over all queries."""
        return sum(runner.held_events for runner in self._runners.values())

    @property
    def open_events(self) -> dict[str, int]:
        """The number of events that each query holds."""
        return {name: runner.held_events for name, runner in self._runners.items()}

    @property
    def open_runs(self) -> dict[str, int]:
        """The number of runs, and of matches that wait for their end, of each query; sequences have stacks instead of
        runs."""
        return {name: counts.get("runs", 0) + counts.get("waiting", 0) for name, counts in self.statistics.items()}

    def open_by_key(self, query: str) -> list[tuple[tuple[int | str, ...], int, int]] | None:
        """What a query holds, by key: values of the key, number of events, end of the oldest; None if its operator does
        not separate events by key."""
        open_by_key = getattr(self._runners[query], "open_by_key", None)
        return None if open_by_key is None else list(open_by_key(self._watermark))

    @property
    def statistics(self) -> dict[str, dict[str, int]]:
        """The counters of the kernels, by query."""
        return {name: runner.statistics for name, runner in self._runners.items()}

    def push(self, table: pa.Table, keep_whole: bool = False) -> None:
        """Take in events. Late ones are counted, kept if `keep_late` is set, and never matched."""
        table = conform(table, self._program.layout)
        ticks = ticks_of(table, self._program.layout)
        if self._watermark > EARLIEST and len(ticks) and ticks.min() <= self._watermark:
            on_time = ticks > self._watermark
            self._set_aside(table.filter(pa.array(~on_time)))
            table, ticks = table.filter(pa.array(on_time)), ticks[on_time]
        if not len(ticks):
            return
        self._newest = max(self._newest, int(ticks.max()))
        for query in self._program.members:
            if reads_input(query):
                self._attempt(query.name, self._stage, query, table, ticks, keep_whole)

    def _stage(self, query: AnyQuery, table: pa.Table, ticks: np.ndarray, keep_whole: bool) -> None:
        if is_composed(query):
            # Composed queries also hold matches of other queries, so only the needed columns are kept.
            table, keep_whole = widen_input(table, ticks, self._program.layout, self._layouts[query.name]), False
        self._runners[query.name].stage(table, ticks, keep_whole=keep_whole)

    def _attempt(self, name: str, step: Callable[..., T], *args: Any, **options: Any) -> T | None:
        """Do a step of one query; None if it has stopped, or stops now."""
        if name in self.problems:
            return None
        pause()
        try:
            return step(*args, **options)
        except Exception as error:
            if not isinstance(error, OuzelError):
                error.add_note(f"This happened in query '{name}'.")
            if not self.isolates:
                raise
            self.error = error
            self._stop(name, Problem.of(name, shown_time(self._newest, self._program.layout), error))
            return None

    def _stop(self, name: str, problem: Problem) -> None:
        """Stop a query, and those that read its matches."""
        self.problems[name] = problem
        self._runners[name] = stopped(self._runners[name])
        into = next((query.into for query in self._program.queries if query.name == name), None)
        for query in self._program.queries:
            if into is not None and into in query.sources and query.name not in self.problems:
                reason = f"query '{query.name}' reads '{into}', which query '{name}' no longer writes: {problem.reason}"
                self._stop(query.name, replace(problem, query=query.name, reason=reason))

    def _set_aside(self, late: pa.Table) -> None:
        self.late += late.num_rows
        for name in self.late_by_query:
            self.late_by_query[name] += self.concerned(late, name).num_rows
        if self._keep_late:
            self._late_tables.append(late)

    def concerned(self, events: pa.Table, query: str) -> pa.Table:
        """The events of types that a query names; conditions may still refuse them."""
        named = self._names.get(query)
        type_column = self._program.layout.type
        if named is None or type_column is None:
            return events
        return events.filter(pc.is_in(events[type_column].cast(pa.string()), value_set=pa.array(named, pa.string())))

    def advance(self, watermark: int) -> dict[str, pa.Table]:
        """No event at or before this tick can come any more. A tick in the past changes nothing."""
        self._watermark = max(self._watermark, watermark)
        answers: dict[str, pa.Table] = {}
        # Queries come after those whose output they read, and matches passed to them are at or before the watermark, so
        # they are never late.
        for query in self._program.members:
            runner = self._runners[query.name]
            answer = self._attempt(query.name, runner.advance, self._watermark)
            if answer is not None:
                answers[query.name] = answer
                if query.into is not None and answer.num_rows:
                    self._hand_on(query, answer, runner.moments)
        return answers

    def _hand_on(self, producer: AnyQuery, matches: pa.Table, moments: tuple[np.ndarray, np.ndarray]) -> None:
        """Pass matches to the queries that read them."""
        assert isinstance(producer, BoundQuery)
        for query in self._program.queries:
            if producer.into in query.sources:
                self._attempt(query.name, self._stage_matches, query, matches, moments, producer)

    def _stage_matches(
        self, query: BoundQuery, matches: pa.Table, moments: tuple[np.ndarray, np.ndarray], producer: BoundQuery
    ) -> None:
        wide = widen_matches(matches, moments, producer, self._layouts[query.name])
        self._runners[query.name].stage(wide, moments[1])

    def drop(self, name: str) -> bool:
        """Remove a query that no other one reads. An aggregate that is counted together with others only stops
        returning rows."""
        query = next((query for query in self._program.queries if query.name == name), None)
        if query is not None and query.into is not None:
            return False
        if query is not None and query.aggregates:
            # A restored session plans again which queries are counted together, and must find the same ones.
            self._runners[name] = silenced(self._runners[name])
            return False
        self._program = replace(
            self._program,
            queries=tuple(query for query in self._program.queries if query.name != name),
            algebra=tuple(expression for expression in self._program.algebra if expression.name != name),
        )
        self._stored_program = None
        for known in (self._runners, self.late_by_query):
            del known[name]
        self.problems.pop(name, None)
        return True

    def finish(self) -> dict[str, pa.Table]:
        """The input has ended: match all held events and advance time to its end."""
        return self.advance(LATEST)

    def take_late(self) -> pa.Table:
        """The late events kept since the last call."""
        tables, self._late_tables = self._late_tables, []
        return pa.concat_tables(tables) if tables else empty_table(self._program.layout.schema)

    def snapshot(
        self,
        feeder: dict[str, Any] | None = None,
        owed: dict[str, pa.Table] | None = None,
        *,
        with_program: bool = True,
    ) -> bytes:
        """The whole state, plus plain data of the feeder and rows that it has not returned yet.

        `with_program=False` leaves the program out, for feeders that keep it themselves.
        """
        if with_program and self._stored_program is None:
            self._stored_program = dump(self._program)
        writer = Writer()
        head = {
            "feeder": feeder,
            "program": writer.add_bytes(self._stored_program) if with_program and self._stored_program else None,
            "watermark": self._watermark,
            "late": self.late,
            "late_by_query": self.late_by_query,
            "problems": [problem.plain() for problem in self.problems.values()],
            "newest": self._newest,
            "owed": {name: writer.add_table(table) for name, table in (owed or {}).items()},
            "keep_late": self._keep_late,
            "late_events": [writer.add_table(table) for table in self._late_tables],
            "runners": {name: runner.dump(writer) for name, runner in self._runners.items()},
        }
        return writer.finish(head)

    @classmethod
    def restore(cls, blob: bytes | memoryview, program: Program | None = None) -> Session:
        """The session of a snapshot; `program` is needed if the snapshot was taken without one."""
        reader = Reader(blob)
        if "runners" not in reader.head:
            raise StateError("this snapshot is not of an Engine; try QuerySet.restore")
        with decoding(SNAPSHOT):
            stored = None
            if program is None:
                if reader.head["program"] is None:
                    raise StateError("this snapshot is one of a stream on Spark, not one of an Engine")
                stored = reader.bytes(reader.head["program"])
                program = load(stored)
            session = cls(program, keep_late=reader.head["keep_late"])
            session._stored_program = stored
            session.feeder = reader.head["feeder"]
            session._watermark = reader.head["watermark"]
            session.late = reader.head["late"]
            session.late_by_query |= reader.head.get("late_by_query", {})
            session._late_tables = [reader.table(number) for number in reader.head["late_events"]]
            session.owed = {name: reader.table(number) for name, number in reader.head.get("owed", {}).items()}
            session._newest = reader.head.get("newest", EARLIEST)
            for plain in reader.head.get("problems", []):
                problem = Problem.from_plain(plain)
                session.isolates = True
                session.problems[problem.query] = problem
                session._runners[problem.query] = stopped(session._runners[problem.query])
            for name, runner in session._runners.items():
                runner.load(reader, reader.head["runners"][name])
        return session


def _types_named(query: BoundQuery) -> list[str] | None:
    """The event types that a query names; None if it takes any."""
    named: dict[str, None] = {}
    for component in query.components:
        if component.types is None:
            return None
        named |= dict.fromkeys(component.types)
    return list(named)
