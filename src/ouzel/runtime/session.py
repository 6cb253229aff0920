"""A session runs queries over one stream. The embedded engine and Spark both use it.

Its caller passes events with `push`, and says with `advance` how far time has moved. The session orders events, decides
which are late, and stores all its state in one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.algebra.model import BoundAlgebra, sources_of
from ouzel.bind.model import BoundQuery, TimeWindow
from ouzel.bind.row_patterns import BoundRowPattern
from ouzel.errors import OuzelError, StateError
from ouzel.kernels.pauses import pause
from ouzel.runtime.buffer import OpenKey
from ouzel.runtime.calls import EVENTS_MIN, run_tasks
from ouzel.runtime.inbox import Inbox, SmallBatch
from ouzel.runtime.layout import Layout, MomentScale, conform, ticks_of
from ouzel.runtime.moments import Moments
from ouzel.runtime.operator import Answer, Operator, operators_for
from ouzel.runtime.problems import Problem, shown_time
from ouzel.runtime.program import (
    AnyQuery,
    Program,
    dump,
    is_composed,
    layouts,
    load,
    reads_input,
    widen_input,
    widen_matches,
)
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import empty_table
from ouzel.sealing import SNAPSHOT, decoding

LATEST = 2**63 - 1
EARLIEST = -(2**63)
T = TypeVar("T")


class Session:
    """Queries over one stream of events.

    `push` takes events in any order. `advance(tick)` says that no event at or before a tick will come any more, and
    returns the rows that this completes, by query name. `finish` ends a bounded input.

    An error of one query is raised. With `isolates` it is not: that query and those that read its matches stop, and
    `problems` has the reason. Answers have no rows of stopped queries.
    """

    def __init__(
        self,
        program: Program,
        *,
        keep_late: bool = False,
        isolates: bool = False,
        together: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self._program = program
        self.isolates = isolates
        self.problems: dict[str, Problem] = {}
        self.error: Exception | None = None  # of the query that stopped last
        self._newest = EARLIEST
        self._nothing: dict[str, pa.Table] | None = None  # an empty table for each query that runs
        self._layouts: dict[str, Layout] = {}
        # Operators may do their work beside each other, if many events came since they did it last.
        self.threads = 1
        self._unread = 0
        # The operators with the queries that they answer. An operator comes after those whose output it reads.
        self._operators: dict[Operator, list[str]] = {}
        self._operator_of: dict[str, Operator] = {}
        self._queries: dict[str, AnyQuery] = {}
        # The columns of each query's answer.
        self.schemas: dict[str, pa.Schema] = {}
        # What orders the events of one time; None if nothing does.
        self._moments = Moments(program.layout) if program.layout.is_ordered else None
        # Whether some or all queries read events before the watermark passes them.
        self._reads_ahead = self._all_read_ahead = False
        self._run(program, together)
        self._watermark = EARLIEST
        self.keep_late = keep_late  # for `take_late`
        self._late_tables: list[pa.Table] = []
        self._stored_program: bytes | None = None
        self._names = {query.name: _types_named(query) for query in program.queries}
        # The number of late events of each query, by the types that it names.
        self.late_by_query = dict.fromkeys((query.name for query in program.members), 0)
        # What the feeder of a restored session had stored with it.
        self.feeder: dict[str, Any] | None = None
        # Rows that its feeder had not returned yet.
        self.owed: dict[Any, pa.Table] = {}
        self.late = 0
        self._inbox = Inbox(program.layout, _completing(program.members), gathers=_may_gather(program.members))

    def _run(self, program: Program, together: Sequence[Sequence[str]] | None = None) -> list[Operator]:
        """Make the operators of a program, and return them. `together` gives the queries of each operator."""
        scale = program.layout.scale
        found = layouts(program.members, program.layout)
        self._layouts |= {one.name: _layout_of(one, found[one.name]) for one in program.members}
        made = operators_for(
            (program if scale is None else _in_moments(program, scale)).plans(),
            self._layouts,
            program.limits,
            program.statistics,
            program.rules_off,
            partial=program.partial,
            together=together,
        )
        self._nothing = None
        self._operators |= {operator: list(operator.schemas) for operator in made}
        self._operator_of |= {name: operator for operator in made for name in operator.schemas}
        self._queries |= {query.name: query for query in program.members}
        self.schemas |= {one.name: self._operator_of[one.name].schemas[one.name] for one in program.members}
        self._note_reading()
        return made

    @classmethod
    def open(cls, program: bytes, *, isolates: bool = False) -> Session:
        """A new session for the bytes of a program."""
        return cls(load(program), isolates=isolates)

    @property
    def program(self) -> Program:
        """The program that runs here."""
        return self._program

    @property
    def watermark(self) -> int:
        """Events at or before this tick are late."""
        return self._watermark

    @property
    def is_running(self) -> bool:
        """Whether some query has not stopped."""
        return any(name not in self.problems for name in self.schemas)

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which rows are due without a further event; None if there is none."""
        self._settle()
        deadlines = [self._tick_of(operator, operator.next_deadline) for operator in self._operators]
        if self._moments is not None:
            deadlines.append(self._moments.earliest)
        return min((d for d in deadlines if d is not None), default=None)

    def _tick_of(self, operator: Operator, deadline: int | None) -> int | None:
        """A deadline of an operator as a tick."""
        query = self._queries[self._operators[operator][0]]
        scale = self._layouts[query.name].scale
        if deadline is None or scale is None:
            return deadline
        return scale.tick(deadline)

    @property
    def held_events(self) -> int:
        """The number of held events, over all queries."""
        self._settle()
        held = 0 if self._moments is None else self._moments.held
        return held + sum(operator.held_events for operator in self._operators)

    @property
    def open_events(self) -> dict[str, int]:
        """The number of events that each query holds. If queries share an operator, its events are counted for the
        first one.
        """
        self._settle()
        held = {names[0]: operator.held_events for operator, names in self._operators.items()}
        return {name: held.get(name, 0) for name in self.schemas}

    @property
    def open_runs(self) -> dict[str, int]:
        """For each query, the number of runs plus that of matches that wait for their end. Plain sequences have stacks
        in place of runs.
        """
        return {name: counts.get("runs", 0) + counts.get("waiting", 0) for name, counts in self.statistics.items()}

    def open_by_key(self, query: str) -> list[OpenKey] | None:
        """The keys of the events that a query holds, each with its values, the number of events, and the end of the
        oldest. None if its operator does not divide events by key.
        """
        self._settle()
        operator = self._operator_of.get(query)
        if operator is None:
            return None
        scale = self._layouts[query].scale
        if scale is None:
            return operator.open_by_key(self._watermark)
        found = operator.open_by_key(scale.end_of(self._watermark))
        return None if found is None else [(values, count, scale.tick(oldest)) for values, count, oldest in found]

    @property
    def statistics(self) -> dict[str, dict[str, int]]:
        """The counters of kernels, by query. If queries share an operator, its counters are given for the first one."""
        self._settle()
        counted = {names[0]: operator.statistics for operator, names in self._operators.items()}
        return {name: counted.get(name, {}) for name in self.schemas}

    def read_at_once(self, at_once: bool) -> None:
        """Set whether ordered events are read on arrival. Then an event at or before the last one is late."""
        if self._moments is not None:
            self._moments.at_once = at_once

    def push_small(self, events: Any) -> int | None:
        """Add a small push without converting it: a list of dictionaries, a RecordBatch or a Table. Returns the tick of
        the newest event so far; None if the push must be converted first.
        """
        inbox, number = self._inbox, None
        if self._moments is not None:
            number = partial(self._moments.number_read, self._program.layout.scale)
        if inbox.would_overflow(len(events) if isinstance(events, list) else events.num_rows):
            self._catch_up()
        if not inbox.add(events, self._watermark, number):
            return None
        self._newest = max(self._newest, inbox.newest)
        return inbox.newest

    def _stage_inbox(self, until: int | None = None) -> None:
        """Stage the rows in the inbox: with `until` those that are ready at that tick, otherwise all."""
        if not self._inbox.rows:
            return
        if until is None:
            batch = self._inbox.all()
        else:
            batch = self._inbox.all(until) if self._reads_ahead else self._inbox.ready(until)
        try:
            for operator, names in tuple(self._operators.items()):
                if names and reads_input(query := self._queries[names[0]]):
                    self._attempt(operator, self._stage_small, operator, query, batch, until)
        finally:
            self._inbox.taken(batch)

    def _stage_small(self, operator: Operator, query: AnyQuery, batch: SmallBatch, until: int | None) -> None:
        if self._moments is not None:
            batch.source.compare(moments=self._layouts[query.name].scale is not None or is_composed(query))
            if until is not None:
                batch.until = self._until(operator, until)
        if is_composed(query):
            self._stage(operator, batch.table, batch.ticks, False)
        else:
            operator.stage_small(batch)

    def _settle(self) -> None:
        """Stage and read all rows in the inbox. They complete nothing, because rows are returned as soon as they are
        complete.
        """
        if self._inbox.rows:
            self._stage_inbox()
            self._catch_up()

    def _catch_up(self) -> None:
        """Let operators read all that the watermark has passed. This completes nothing, because rows are returned as
        soon as they are complete.
        """
        answers = self._read(self._watermark)
        assert not any(answer.num_rows for answer in answers.values()), "an answer was due before"

    def push(self, table: pa.Table, zero_copy: bool = False) -> None:
        """Add events. Late events are counted, stored if `keep_late` is set, and never matched."""
        self._stage_inbox()
        table = conform(table, self._program.layout)
        ticks = ticks_of(table, self._program.layout)
        late = self._late_rows(table, ticks)
        late_table = None
        if late is not None:
            late_table = table.filter(pa.array(late))
            table, ticks = table.filter(pa.array(~late)), ticks[~late]
        if self._moments is not None and self._program.layout.scale is not None:
            self._moments.check_room(table, ticks, self._program.layout.scale)
        if late_table is not None:
            self._set_aside(late_table)
        if len(ticks):
            self._newest = max(self._newest, int(ticks.max()))
            self._inbox.staged(self._newest)
            self._take(table, ticks, zero_copy)

    def _late_rows(self, table: pa.Table, ticks: np.ndarray) -> np.ndarray | None:
        """Which events are late; None if none are."""
        late = None
        if self._watermark > EARLIEST and len(ticks) and ticks.min() <= self._watermark:
            late = ticks <= self._watermark
        if self._moments is not None and (behind := self._moments.is_late(table, ticks)).any():
            late = behind if late is None else late | behind
        return late

    def _take(self, table: pa.Table, ticks: np.ndarray, zero_copy: bool) -> None:
        """Pass events to the operators, or hold them until their order is known. None may be late."""
        if self._moments is not None:
            self._moments.add(table, ticks, zero_copy=zero_copy)
            return
        self._stage_all(table, ticks, zero_copy)

    def _stage_all(self, table: pa.Table, ticks: np.ndarray, zero_copy: bool) -> None:
        self._unread += len(ticks)
        for _ in self._each(lambda operator: self._stage(operator, table, ticks, zero_copy)):
            pass

    def _stage(self, operator: Operator, table: pa.Table, ticks: np.ndarray, zero_copy: bool) -> None:
        # Queries of one operator read the same streams.
        query = self._queries[self._operators[operator][0]]
        if not reads_input(query):
            return
        scale = self._program.layout.scale
        if scale is not None and self._layouts[query.name].scale is None:
            ticks = scale.ticks(ticks)
        if is_composed(query):
            # Composed queries also hold matches of other queries, so only the needed columns are kept.
            table, zero_copy = widen_input(table, ticks, self._program.layout, self._layouts[query.name]), False
        operator.stage(table, ticks, zero_copy=zero_copy)

    def _attempt(self, operator: Operator, step: Callable[..., T], *args: Any) -> T | None:
        """Call a method of an operator. Returns None if its queries have stopped, or if the call fails and stops
        them.
        """
        if operator not in self._operators:
            return None
        pause()
        try:
            return step(*args)
        except Exception as error:
            self._fail_all(operator, error)
            return None

    def _each(self, step: Callable[[Operator], T]) -> Iterator[T | None]:
        """Call a method of each operator, on several threads if many events are read."""
        operators = tuple(self._operators)
        is_small = self.threads == 1 or len(operators) == 1 or self._unread < EVENTS_MIN
        if is_small or any(is_composed(query) for query in self._queries.values()):
            for operator in operators:
                yield self._attempt(operator, step, operator)
            return

        def outcome(operator: Operator) -> T | Exception:
            try:
                return step(operator)
            except Exception as error:
                return error

        pause()
        outcomes = run_tasks([partial(outcome, operator) for operator in operators], self.threads)
        for operator, found in zip(operators, outcomes, strict=True):
            if isinstance(found, Exception):
                self._fail_all(operator, found)
                yield None
            else:
                yield found

    def _fail_all(self, operator: Operator, error: Exception) -> None:
        """Raise an error or, if the session isolates queries, stop all queries of the operator that failed."""
        names = list(self._operators[operator])
        if not isinstance(error, OuzelError):
            quoted = ", ".join(f"'{name}'" for name in names)
            error.add_note(f"This happened in {'query' if len(names) == 1 else 'one of the queries'} {quoted}.")
        if not self.isolates:
            raise error
        for name in names:
            self._fail(name, error)

    def _fail(self, name: str, error: Exception) -> None:
        """Stop a query because of its own error."""
        self.error = error
        self._stop(name, Problem.of(name, shown_time(self._newest, self._program.layout), error))

    def _stop(self, name: str, problem: Problem) -> None:
        """Stop a query, and all queries that read its matches."""
        self.problems[name] = problem
        self._nothing = None
        self._detach(name)
        into = next((query.into for query in self._program.queries if query.name == name), None)
        for query in self._program.queries:
            if into is not None and into in query.sources and query.name not in self.problems:
                reason = f"query '{query.name}' reads '{into}', which query '{name}' no longer writes: {problem.reason}"
                self._stop(query.name, replace(problem, query=query.name, reason=reason))

    def _detach(self, name: str) -> None:
        """Stop answering a query. Other queries of its operator continue."""
        operator = self._operator_of[name]
        self._operators[operator].remove(name)
        if self._operators[operator]:
            operator.detach(name)
        else:
            del self._operators[operator]
            for known in operator.schemas:
                del self._operator_of[known]

    def _set_aside(self, late: pa.Table) -> None:
        self.late += late.num_rows
        for name in self.late_by_query:
            self.late_by_query[name] += self.concerned(late, name).num_rows
        if self.keep_late:
            self._late_tables.append(late)

    def concerned(self, events: pa.Table, query: str) -> pa.Table:
        """The events whose types a query names. Its conditions need not hold for them."""
        named = self._names.get(query)
        type_column = self._program.layout.type
        if named is None or type_column is None:
            return events
        return events.filter(pc.is_in(events[type_column].cast(pa.string()), value_set=pa.array(named, pa.string())))

    def advance(self, watermark: int) -> dict[Any, pa.Table]:
        """Read the events up to `watermark`, and return the rows that this completes. A tick in the past changes
        nothing.
        """
        self._watermark = max(self._watermark, watermark)
        reached = max(self._watermark, self._inbox.newest) if self._reads_ahead else self._watermark
        return self.nothing() if self._inbox.waits(reached) else self._read(self._watermark)

    def nothing(self) -> dict[str, pa.Table]:
        """Answers without rows."""
        if self._nothing is None:
            running = {name: schema for name, schema in self.schemas.items() if name not in self.problems}
            self._nothing = {name: empty_table(schema) for name, schema in running.items()}
        return dict(self._nothing)

    def _read(self, watermark: int) -> dict[str, pa.Table]:
        """The rows that events up to the watermark complete."""
        self._stage_inbox(watermark)
        if self._moments is not None:
            self._number_events(self._moments, watermark)
        answers: dict[str, pa.Table] = {}
        # Matches passed on are at or before the watermark, so they are never late.
        for found in self._each(lambda operator: operator.advance(self._until(operator, watermark))):
            for name, answer in (found or {}).items():
                if isinstance(answer, OuzelError):
                    if not self.isolates:
                        raise answer
                    self._fail(name, answer)
                    continue
                answers[name] = answer.table
                query = self._queries[name]
                if query.into is not None and answer.table.num_rows:
                    self._hand_on(query, answer)
        self._unread = 0
        deadline = room = held_room = LATEST if self._operators else 0
        for operator in self._operators:
            tick = self._tick_of(operator, operator.timer)
            deadline = deadline if tick is None else min(deadline, tick)
            room, held_room = min(room, operator.room), min(held_room, operator.held_room)
        if self._all_read_ahead and self._moments is not None and self._moments.at_once:
            # What can come at these times has no answer before it comes.
            watermark = max(watermark, self._inbox.newest)
        self._inbox.passed(watermark, deadline, room, held_room)
        return answers if len(answers) < 2 else {name: answers[name] for name in self.schemas if name in answers}

    def _number_events(self, moments: Moments, watermark: int) -> None:
        """Pass events whose order is now known to the operators."""
        layout = self._program.layout
        if layout.scale is None:
            if not moments.held:
                return
            self._program = replace(self._program, layout=replace(layout, scale=moments.scale()))
            self._stored_program = None
            self._start_scale()
        scale = self._program.layout.scale
        assert scale is not None
        ready = moments.take_ready(scale, watermark)
        if ready is not None:
            self._stage_all(ready.table, ready.moments, ready.zero_copy)

    def _start_scale(self) -> None:
        """Replace the operators, because their windows are now in moments. They must not have read any event yet."""
        answered = {name for names in self._operators.values() for name in names}
        self._operators, self._operator_of = {}, {}
        self._run(self._program)
        removed = [name for names in self._operators.values() for name in names if name not in answered]
        for name in removed:
            self._detach(name)

    def _note_reading(self) -> None:
        """Find out which queries read ahead of the watermark. They do if events have moments, because then a match ends
        with its own last event and not with its tick.
        """
        ahead = [
            self._layouts[name].scale is not None and not (isinstance(query, BoundQuery) and query.aggregates)
            for name, query in self._queries.items()
        ]
        self._reads_ahead = self._moments is not None and any(ahead)
        self._all_read_ahead = self._reads_ahead and all(ahead)

    def _until(self, operator: Operator, watermark: int) -> int:
        """How far an operator may read: up to the watermark or, if events have moments, up to the last numbered
        event.
        """
        query = self._queries[self._operators[operator][0]]
        scale = self._layouts[query.name].scale
        if scale is None or watermark == LATEST:
            return watermark
        end = scale.end_of(watermark)
        if isinstance(query, BoundQuery) and query.aggregates:
            # A row of an aggregate comes after all events of its time.
            return end
        newest = None if self._moments is None else self._moments.newest
        return end if newest is None else max(end, (newest[0] - scale.base << scale.bits) + newest[1])

    def _hand_on(self, producer: AnyQuery, answer: Answer) -> None:
        """Pass matches of a query to the operators that read them."""
        assert isinstance(producer, BoundQuery)
        for operator, names in tuple(self._operators.items()):
            if names and producer.into in (query := self._queries[names[0]]).sources:
                self._attempt(operator, self._stage_matches, operator, query, answer, producer)

    def _stage_matches(self, operator: Operator, query: AnyQuery, answer: Answer, producer: BoundQuery) -> None:
        layout, scale = self._layouts[query.name], self._layouts[producer.name].scale
        _, starts, ends = answer
        if scale is None and layout.scale is not None:
            scale = layout.scale
            starts, ends = scale.moments(starts), scale.moments(ends)
            ends = scale.after_events(ends)
        elif scale is not None and layout.scale is None:
            starts, ends = scale.ticks(starts), scale.ticks(ends)
        elif scale is not None:
            # An aggregate, or a match that ends with its window, comes after all events of its tick.
            after = scale.after_events(ends)
            ends = after if producer.aggregates else np.minimum(ends, after)
            starts = ends if producer.aggregates else starts
        operator.stage(widen_matches(answer.table, starts, producer, layout), ends)

    def drop(self, name: str) -> bool:
        """Remove a query. Returns False if it stays in the program, because other queries read its matches, or because
        its operator also answers other queries.
        """
        self._settle()
        self._nothing = None
        if self._queries[name].into is not None:
            return False
        operator = self._operator_of.get(name)
        if operator is not None:
            if name in self._operators[operator]:
                self._detach(name)
            if operator in self._operators:
                return False
        self._program = self._program.of(other for other in self._queries if other != name)
        self._stored_program = None
        for known in (self.schemas, self._queries, self.late_by_query, self.problems):
            known.pop(name, None)
        self._note_reading()
        return True

    def finish(self) -> dict[Any, pa.Table]:
        """End the input: read all held events, and return the remaining rows."""
        return self.advance(LATEST)

    def take_late(self) -> pa.Table:
        """The late events that were stored since the last call."""
        tables, self._late_tables = self._late_tables, []
        return pa.concat_tables(tables) if tables else empty_table(self._program.layout.schema)

    def snapshot(
        self,
        feeder: dict[str, Any] | None = None,
        owed: Mapping[Any, pa.Table] | None = None,
        *,
        with_program: bool = True,
    ) -> bytes:
        """The whole state as bytes, with plain data of the caller and the rows that it has not returned yet.

        `with_program=False` leaves out the program, for callers that store it themselves.
        """
        self._settle()
        writer = Writer()
        return writer.finish(self._dump(writer, feeder, owed or {}, with_program=with_program))

    def _dump(
        self, writer: Writer, feeder: dict[str, Any] | None, owed: Mapping[Any, pa.Table], *, with_program: bool
    ) -> dict[str, Any]:
        if with_program and self._stored_program is None:
            self._stored_program = dump(self._program)
        return {
            "feeder": feeder,
            "program": writer.add_bytes(self._stored_program) if with_program and self._stored_program else None,
            "watermark": self._watermark,
            "late": self.late,
            "late_by_query": self.late_by_query,
            "problems": [problem.plain() for problem in self.problems.values()],
            "newest": self._newest,
            "owed": [[name, writer.add_table(table)] for name, table in owed.items()],
            "keep_late": self.keep_late,
            "scale": None if (scale := self._program.layout.scale) is None else [scale.bits, scale.base],
            "moments": None if self._moments is None else self._moments.dump(writer),
            "late_events": [writer.add_table(table) for table in self._late_tables],
            "operators": [
                {"queries": list(operator.schemas), "answered": names, "state": operator.dump(writer)}
                for operator, names in self._operators.items()
            ],
        }

    @classmethod
    def restore(cls, blob: bytes | memoryview, program: Program | None = None) -> Session:
        """The session of a snapshot. `program` is needed if the snapshot was made without one."""
        reader = Reader(blob)
        if "operators" not in reader.head or "kind" in reader.head:
            raise StateError("this snapshot is not of an Engine; try QuerySet.restore")
        with decoding(SNAPSHOT):
            stored = None
            if program is None:
                if reader.head["program"] is None:
                    raise StateError("this snapshot is one of a stream on Spark, not one of an Engine")
                stored = reader.bytes(reader.head["program"])
                program = load(stored)
            program = with_scale(program, reader.head)
            session = cls(program, keep_late=reader.head["keep_late"], together=together(reader.head))
            session._stored_program = stored
            session._load(reader, reader.head)
        return session

    def _load(self, reader: Reader, head: Mapping[str, Any]) -> None:
        """Restore what `_dump` stored. The operators must answer the same queries together as in the stored session."""
        self.feeder = head["feeder"]
        self._watermark = head["watermark"]
        self.late = head["late"]
        self.late_by_query |= head.get("late_by_query", {})
        self._late_tables = [reader.table(number) for number in head["late_events"]]
        self.owed = {name: reader.table(number) for name, number in dict(head.get("owed", {})).items()}
        self._newest = head.get("newest", EARLIEST)
        if self._moments is not None and head.get("moments") is not None:
            self._moments.load(reader, head["moments"])
        self._inbox.staged(self._newest)
        self.problems = {plain["query"]: Problem.from_plain(plain) for plain in head.get("problems", [])}
        self.isolates = self.isolates or bool(self.problems)
        operators = {one["queries"][0]: one for one in head["operators"]}
        for operator, (first, *others) in tuple(self._operators.items()):
            stored = operators.get(first, {"answered": []})
            for name in (first, *others):
                if name not in stored["answered"]:
                    self._detach(name)
            if operator in self._operators:
                operator.load(reader, stored["state"])


def with_scale(program: Program, head: Mapping[str, Any]) -> Program:
    """A program with the scale of moments from a stored session."""
    if head.get("scale") is None:
        return program
    return replace(program, layout=replace(program.layout, scale=MomentScale(*head["scale"])))


def _layout_of(query: AnyQuery, layout: Layout) -> Layout:
    """The layout for a query. Row patterns, the algebra and queries with THRESHOLD ignore moments."""
    if not isinstance(query, BoundQuery) or query.threshold is not None:
        return replace(layout, scale=None)
    return layout


def _in_moments(program: Program, scale: MomentScale) -> Program:
    """A program for planning, in which windows are in moments."""

    def changed(query: BoundQuery) -> BoundQuery:
        window = query.window
        if query.threshold is not None or not isinstance(window, TimeWindow) or window.ticks is None:
            return query
        return replace(query, window=replace(window, ticks=scale.window(window.ticks)))

    rate = program.statistics.events_per_tick
    statistics = program.statistics
    if rate is not None:
        statistics = replace(statistics, events_per_tick=rate / (1 << scale.bits))
    return replace(program, queries=tuple(map(changed, program.queries)), statistics=statistics)


def together(head: Mapping[str, Any]) -> list[list[str]]:
    """The queries that each operator of a stored session answers."""
    found = [one["queries"] for one in head["operators"]]
    # A query that has stopped has an operator if others share it.
    stopped = [plain["query"] for plain in head.get("problems", [])]
    return found + [[name] for name in stopped if all(name not in names for names in found)]


def _completing(queries: Sequence[AnyQuery]) -> frozenset[str] | None:
    """The types of events that may complete a match of some query; None if any type may."""
    found: set[str] = set()
    for query in queries:
        types: list[Sequence[str] | None]
        if isinstance(query, BoundRowPattern):
            return None
        if isinstance(query, BoundAlgebra):
            last = [sources_of(branch)[-1].base for stream in query.streams for branch in stream.branches]
            types = [None if base.type is None else (base.type,) for base in last if base is not None]
        else:
            types = [component.types for component in query.lasts]
        for one in types:
            if one is None:
                return None
            found.update(one)
    return frozenset(found)


def _may_gather(queries: Sequence[AnyQuery]) -> bool:
    """Whether small pushes may wait in the inbox: only events of completing types, or deadlines, may cause rows or
    errors.
    """
    for query in queries:
        if is_composed(query):
            return False
        if isinstance(query, BoundAlgebra):
            sources = [one for stream in query.streams for branch in stream.branches for one in sources_of(branch)]
            if any(one.base is not None and one.base.start is not None for one in sources):
                return False
        elif isinstance(query, BoundQuery) and query.aggregates and (query.emit_on_change or query.ends_with_window):
            return False
    return True


def _types_named(query: BoundQuery) -> list[str] | None:
    """The event types that a query names; None if it takes any."""
    named: dict[str, None] = {}
    for component in query.components:
        if component.types is None:
            return None
        named |= dict.fromkeys(component.types)
    return list(named)
