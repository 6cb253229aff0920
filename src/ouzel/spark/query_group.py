"""A group of queries that one session answers, in the form sent to Spark's workers, and its clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from ouzel.errors import InputError
from ouzel.runtime.problems import Problem

NANOSECONDS_PER_MILLISECOND = 1_000_000

# The events of one partition of a batch that a task holds in memory, unless Spark sorts them.
PARTITION_BYTES = 4 << 30

# The column with the reason why a query stopped. In packed rows, the number of query 0's problems.
PROBLEM_COLUMN = "problem"
FIRST_PROBLEM = 1 << 30


@dataclass(frozen=True, slots=True)
class Clock:
    """Spark's watermark counts milliseconds, events count ticks.

    >>> microseconds = Clock(tick_ns=1_000)
    >>> microseconds.watermark_tick(5), microseconds.timer_ms(5_000), microseconds.timer_ms(5_001)
    (5000, 5, 6)
    """

    tick_ns: int
    origin_ms: int = 0  # tick 0 on Spark's clock

    def watermark_tick(self, watermark_ms: int) -> int:
        """The last tick that the watermark has reached."""
        return (watermark_ms - self.origin_ms) * NANOSECONDS_PER_MILLISECOND // self.tick_ns

    def timer_ms(self, tick: int) -> int:
        """The first watermark that has reached the tick; an earlier one would release a negated end too early."""
        return -(-tick * self.tick_ns // NANOSECONDS_PER_MILLISECOND) + self.origin_ms


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Queries that one session answers, and the columns of their events. Fields are bytes if Arrow is not needed."""

    program: bytes
    columns: bytes  # the Arrow schema of the events that the program was compiled for
    time: str
    queries: tuple[str, ...]  # names, in the order of their numbers in the output
    first_query: int  # the number of the first of them among all queries of the job
    clock: Clock
    # Aggregates over all keys, distributed by key: the session emits partial results, which a second step merges.
    emits_partials: bool = False
    # A query that fails stops where it failed, and its problem is a row of the output; otherwise the job fails.
    reports: bool = False

    def events(self, table: pa.Table) -> pa.Table:
        """The columns that the program needs, with the types it was compiled for."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.columns))
        nulls = table[self.time].null_count
        if nulls:
            raise InputError(
                f"the time column '{self.time}' is null in {nulls:,} of {table.num_rows:,} rows; an event must have a "
                f'time: filter such rows out with df.where("{self.time} IS NOT NULL"), or give them one'
            )
        # Spark labels timestamps with the session's time zone; the ticks are the same.
        return table.select(schema.names).cast(schema)

    def numbered(self, answer: dict[str, pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The answers that have rows, by the numbers of their queries among all of the job."""
        for number, name in enumerate(self.queries, start=self.first_query):
            if name in answer and answer[name].num_rows:
                yield number, answer[name]

    def problems(
        self, stopped: Mapping[str, Problem], place: str, known: Collection[str] = ()
    ) -> Iterator[tuple[int, pa.Table]]:
        """Why queries stopped, except for known problems, under numbers that only problems have."""
        for number, name in enumerate(self.queries, start=self.first_query):
            if name in stopped and name not in known:
                yield FIRST_PROBLEM + number, problem_row(stopped[name], place)


def problem_row(problem: Problem, place: str) -> pa.Table:
    """A problem as a row."""
    when = "" if problem.time is None else f" at time {problem.time}"
    text = f"{problem.reason} (query '{problem.query}' stopped{when} in {place} and returns no more rows from there)"
    return pa.table({PROBLEM_COLUMN: [text]})
