"""Data that is sent to Spark's workers. Tables are sent as binary values, so that Spark moves few large rows and not
many small ones. A group of queries that one session answers is sent with its clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.errors import InputError
from ouzel.runtime.problems import Problem
from ouzel.runtime.recognize import all_at_once

PACKED_NUMBER = "query"
PACKED_PAYLOAD = "payload"
PACKED = f"{PACKED_NUMBER} INT, {PACKED_PAYLOAD} BINARY"

# A value in Spark must stay far below 2 GB, and two or three copies of a payload exist while it is passed on.
PAYLOAD_BYTES_MAX = 32 * 1024 * 1024


def to_payload(table: pa.Table) -> bytes:
    """The table as Arrow IPC bytes.

    >>> from_payload(to_payload(pa.table({"x": [1, 2]}))).to_pydict()
    {'x': [1, 2]}
    """
    sink = pa.BufferOutputStream()
    _write(table, sink)
    return bytes(sink.getvalue())


def _write(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def from_payload(payload: bytes | memoryview) -> pa.Table:
    """The table that `to_payload` packed. Its columns are views of the payload."""
    return pa.ipc.open_stream(pa.py_buffer(payload)).read_all()


def payloads_of(table: pa.Table, bytes_max: int = PAYLOAD_BYTES_MAX) -> Iterator[bytes]:
    """The table as one payload or, if it is larger than `bytes_max`, as several of about that size."""
    pieces = max(1, -(-table.nbytes // bytes_max))
    rows_max = max(1, -(-table.num_rows // pieces))
    for first_row in range(0, table.num_rows, rows_max):
        yield to_payload(table.slice(first_row, rows_max))


def packed_batch(numbers: Iterable[int], payloads: Sequence[bytes]) -> pa.RecordBatch:
    """Rows of (number, payload)."""
    return pa.record_batch(
        [pa.array(numbers, pa.int32()), pa.array(payloads, pa.binary())], names=[PACKED_NUMBER, PACKED_PAYLOAD]
    )


def gather(batches: Iterable[pa.RecordBatch], bytes_max: int = PAYLOAD_BYTES_MAX) -> Iterator[pa.Table]:
    """Tables of about `bytes_max`, from the many small batches that Spark passes."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= bytes_max:
            yield pa.Table.from_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def split_by(table: pa.Table, bucket_column: str) -> Iterator[tuple[int, pa.Table]]:
    """For each bucket, its rows in their order, without the bucket column.

    >>> table = pa.table({"bucket": pa.array([1, 0, 1], pa.int32()), "x": [1, 2, 3]})
    >>> [(bucket, rows["x"].to_pylist()) for bucket, rows in split_by(table, "bucket")]
    [(0, [2]), (1, [1, 3])]
    """
    buckets = table[bucket_column].to_numpy()
    rows = table.drop_columns([bucket_column])
    bucket_min, bucket_max = (buckets.min(), buckets.max()) if len(buckets) else (0, 0)
    if bucket_min == bucket_max:
        if len(buckets):
            yield int(bucket_min), rows
        return
    # numpy sorts 16-bit integers by radix, several times faster than wider ones.
    order = np.argsort(buckets.astype(np.uint16) if bucket_max < 1 << 16 else buckets, kind="stable")
    ordered = buckets[order]
    firsts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    ends = np.concatenate((firsts[1:], [len(order)]))
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        yield int(ordered[first]), pc.take(rows, pa.array(order[first:end]))


NANOSECONDS_PER_MILLISECOND = 1_000_000

# The events of one partition of a batch that a task holds in memory, unless Spark sorts them.
PARTITION_BYTES = 4 << 30

# The column with the reason why a query stopped. In packed rows, the number of query 0's problems.
PROBLEM_COLUMN = "problem"
FIRST_PROBLEM = 1 << 30


@dataclass(frozen=True, slots=True)
class Clock:
    """Converts between Spark's watermark, in milliseconds, and ticks of events.

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
        """The first watermark, in milliseconds, that has reached a tick. An earlier one would release a negated end too
        early.
        """
        return -(-tick * self.tick_ns // NANOSECONDS_PER_MILLISECOND) + self.origin_ms


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Queries that one session answers, and the columns of their events. Fields that workers decode only when needed
    are bytes.
    """

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
        """The columns that the program needs, with the types for which it was compiled."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.columns))
        if self.time not in table.column_names:
            table = all_at_once(table, self.time)  # row patterns over a batch
        nulls = table[self.time].null_count
        if nulls:
            raise InputError(
                f"the time column '{self.time}' is null in {nulls:,} of {table.num_rows:,} rows; an event must have a "
                f'time: filter such rows out with df.where("{self.time} IS NOT NULL"), or give them one'
            )
        # Spark labels timestamps with the session's time zone; the ticks are the same.
        return table.select(schema.names).cast(schema)

    def numbered(self, answer: dict[str, pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The answers that have rows, each with the number of its query in the job."""
        for number, name in enumerate(self.queries, start=self.first_query):
            if name in answer and answer[name].num_rows:
                yield number, answer[name]

    def problems(
        self, stopped: Mapping[str, Problem], place: str, known: Collection[str] = ()
    ) -> Iterator[tuple[int, pa.Table]]:
        """Why queries have stopped, without known problems. They have numbers that only problems have."""
        for number, name in enumerate(self.queries, start=self.first_query):
            if name in stopped and name not in known:
                yield FIRST_PROBLEM + number, problem_row(stopped[name], place)


def problem_row(problem: Problem, place: str) -> pa.Table:
    """A problem as a row."""
    when = "" if problem.time is None else f" at time {problem.time}"
    text = f"{problem.reason} (query '{problem.query}' stopped{when} in {place} and returns no more rows from there)"
    return pa.table({PROBLEM_COLUMN: [text]})
