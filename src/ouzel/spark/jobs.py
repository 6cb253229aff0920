"""What travels to Spark's workers: a share of the queries as bytes, and how its time stands to Spark's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from ouzel.errors import InputError
from ouzel.runtime.problems import Problem

NANOSECONDS_PER_MILLISECOND = 1_000_000

# The column that says why a query stopped, and in packed rows the number of query 0's problems.
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
    origin_ms: int = 0  # what tick 0 is on Spark's clock

    def watermark_tick(self, watermark_ms: int) -> int:
        """The last tick that the watermark has reached."""
        return (watermark_ms - self.origin_ms) * NANOSECONDS_PER_MILLISECOND // self.tick_ns

    def timer_ms(self, tick: int) -> int:
        """The first watermark that has reached the tick; an earlier one would release a negated end too early."""
        return -(-tick * self.tick_ns // NANOSECONDS_PER_MILLISECOND) + self.origin_ms


@dataclass(frozen=True, slots=True)
class Share:
    """Queries that are answered together, and the columns of their events. Bytes, because it travels to the workers."""

    program: bytes
    columns: bytes  # the Arrow schema of the events as the program knows them
    time: str
    queries: tuple[str, ...]  # names, in the order of their numbers in the output
    first_query: int  # the number of the first of them among all queries of the job
    clock: Clock
    # Aggregates over all keys, spread by key: what comes out are changes, which somebody has to add up.
    tells_changes: bool = False
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
        """Why queries stopped at a place, those that are known aside, under numbers that only problems have."""
        for number, name in enumerate(self.queries, start=self.first_query):
            if name in stopped and name not in known:
                yield FIRST_PROBLEM + number, problem_row(stopped[name], place)


def problem_row(problem: Problem, place: str) -> pa.Table:
    """A problem as a row."""
    when = "" if problem.time is None else f" at time {problem.time}"
    text = f"{problem.reason} (query '{problem.query}' stopped{when} in {place} and returns no more rows from there)"
    return pa.table({PROBLEM_COLUMN: [text]})


@dataclass(frozen=True, slots=True)
class TotalsJob:
    """How the totals over all keys are made of what each part of the keys tells."""

    program: bytes  # the queries as users wrote them, where those of the share tell changes
    first_query: int
    # Time is cut into stretches of so many ticks, which are added up apart; None: no window ever forgets.
    stretch_ticks: int | None
    tasks: int
    reports: bool = False  # as `Share.reports`
