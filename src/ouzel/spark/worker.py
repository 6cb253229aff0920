"""What runs inside Spark's Python workers: the same session as the embedded engine, fed with Arrow tables.

Nothing here imports PySpark; every function can be called, and is tested, without it.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from ouzel.errors import InputError, LimitError, OuzelError, StateError
from ouzel.runtime.framing import seal, unseal
from ouzel.runtime.layout import ticks_of
from ouzel.runtime.session import Session
from ouzel.spark.packing import from_payload, gather, payloads_of, split_by

BUCKET_MAGIC = b"OUZELBKT"
BUCKET_VERSION = 1

NANOSECONDS_PER_MILLISECOND = 1_000_000


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


@contextmanager
def message_alone() -> Iterator[None]:
    """Errors that speak to users reach the driver as their message alone, without the worker's stack."""
    try:
        yield
    except OuzelError:
        # Spark's worker reads this when it reports the error, and then ends.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


@cache
def settle() -> None:
    """Once in each process, after its first task: let the garbage collector forget the libraries that were loaded.

    Spark's workers collect garbage after every task, and walking through numba's objects takes longer than many tasks.
    """
    gc.collect()
    gc.freeze()


# ── Bounded input ──────────────────────────────────────────────────────────────────────────────────


PART_COLUMN = "ouzel part"

# Events of one partition that are held in memory whole, unless Spark is asked to sort them.
PARTITION_BYTES_MAX = 4 << 30


@dataclass(frozen=True, slots=True)
class Slices:
    """Time cut into slices of `ticks`, at which `parts` take turns: slice k is the matter of part k mod parts.

    A part has every event that a match starting in one of its slices can depend on, so those matches are right; others
    that it finds may be wrong, and belong to another part.
    """

    ticks: int
    parts: int

    def owned(self, matches: pa.Table, part: int) -> pa.Table:
        """The matches that start in a slice of the part.

        >>> Slices(10, 2).owned(pa.table({"start": [-1, 5, 12, 25]}), part=0)["start"].to_pylist()
        [5, 25]
        """
        start = matches.column("start").combine_chunks()
        ticks = start.view(pa.int64()) if pa.types.is_timestamp(start.type) else start.cast(pa.int64())
        return matches.filter(pa.array(ticks.to_numpy() // self.ticks % self.parts == part))


@dataclass(frozen=True, slots=True)
class BatchJob:
    """How the partitions of a bounded input are to be read."""

    slices: Slices | None = None
    # How many bytes of events to hold at a time; Spark has then sorted them. None: all of them, in any order.
    memory_limit: int | None = None


def match_partition(share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All matches of the one query of `share` in a partition."""
    for _, table in _answers(share, job, batches):
        yield from table.to_batches()


def match_partition_packed(share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The matches of several queries in a partition, as (number of the query, payload)."""
    for number, table in _answers(share, job, batches):
        for payload in payloads_of(table):
            yield packed_batch([number], [payload])


def _answers(share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    found = (
        _answers_of_whole(share, job, batches) if job.memory_limit is None else _answers_in_order(share, job, batches)
    )
    for part, answer in found:
        for number, table in _numbered(share, answer):
            owned = table if job.slices is None else job.slices.owned(table, part)
            if owned.num_rows:
                yield number, owned


def _answers_of_whole(
    share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[int, dict[str, pa.Table]]]:
    pieces = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows:
            pieces.append(batch)
            held_bytes += batch.nbytes
        if held_bytes > PARTITION_BYTES_MAX:
            raise LimitError(
                f"the events of one partition take more than {PARTITION_BYTES_MAX:,} bytes; give memory_limit=, "
                "for example 1 << 30, to have Spark sort them on disk, or more of spark.sql.shuffle.partitions"
            )
    if not pieces:
        return
    for part, events in _parts(share, job, pa.Table.from_batches(pieces)):
        session = Session.open(share.program)
        session.push(events, keep_whole=True)
        yield part, session.finish()


def _answers_in_order(
    share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[int, dict[str, pa.Table]]]:
    """Events come part by part, each in order of time; what no later one can change is let go at once."""
    assert job.memory_limit is not None
    session: Session | None = None
    current = 0
    # A piece is held as it came, as what kernels read, and as the rows behind that.
    for table in gather(batches, bytes_max=max(1, job.memory_limit // 4)):
        for part, events in _parts(share, job, table):
            if session is not None and part != current:
                yield current, session.finish()
                session = None
            if session is None:
                session, current = Session.open(share.program), part
            session.push(events)
            # Events at the newest moment may still come.
            yield part, session.advance(int(ticks_of(events, session.program.layout).max()) - 1)
    if session is not None:
        yield current, session.finish()


def _parts(share: Share, job: BatchJob, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    if job.slices is None:
        yield 0, share.events(table)
        return
    events = share.events(table)
    yield from split_by(events.append_column(PART_COLUMN, table[PART_COLUMN]), PART_COLUMN)


def _numbered(share: Share, answer: dict[str, pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    for number, name in enumerate(share.queries, start=share.first_query):
        if name in answer and answer[name].num_rows:
            yield number, answer[name]


# ── Payloads ───────────────────────────────────────────────────────────────────────────────────────

PACKED_NUMBER = "query"
PACKED_PAYLOAD = "payload"
PACKED = f"{PACKED_NUMBER} INT, {PACKED_PAYLOAD} BINARY"


def packed_batch(numbers: Sequence[int], payloads: Sequence[bytes]) -> pa.RecordBatch:
    """Rows of (number, payload)."""
    return pa.record_batch(
        [pa.array(numbers, pa.int32()), pa.array(payloads, pa.binary())], names=[PACKED_NUMBER, PACKED_PAYLOAD]
    )


def pack(
    shares: Sequence[Share], bucket_columns: Sequence[str], names: Sequence[int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, once for each share, as (name of the bucket, payload).

    `bucket_columns` has for each share the column with the bucket, 0 … buckets - 1, of each row; the buckets of share i
    are named names[i * buckets], names[i * buckets + 1] and so on.
    """
    buckets = len(names) // len(shares)
    for table in gather(batches):
        for index, (share, bucket_column) in enumerate(zip(shares, bucket_columns, strict=True)):
            events = share.events(table).append_column(bucket_column, table[bucket_column])
            for bucket, rows in split_by(events, bucket_column):
                for payload in payloads_of(rows):
                    yield packed_batch([names[index * buckets + bucket]], [payload])


def unpack(number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of query `number` out of its payloads."""
    for batch in batches:
        for found, payload in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if found == number:
                yield from from_payload(payload.as_buffer()).to_batches()


def unpack_all(schema: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of all queries: a column with the query's name, and for each query a struct, null in others' rows."""
    target = pa.ipc.read_schema(pa.py_buffer(schema))
    names = target.names[1:]
    for batch in batches:
        for number, payload in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            for rows in from_payload(payload.as_buffer()).to_batches():
                count = rows.num_rows
                columns = [pa.nulls(count, target.field(name).type) for name in names]
                columns[number] = rows.to_struct_array().cast(target.field(names[number]).type)
                yield pa.record_batch([pa.array([names[number]] * count, pa.string()), *columns], schema=target)


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A stream's queries and how their state is spread: share i has the buckets names[i * buckets] and following."""

    shares: tuple[Share, ...]
    buckets: int
    names: tuple[int, ...]

    def share_of(self, name: int) -> Share:
        """The share that a bucket belongs to."""
        return self.shares[self.names.index(name) // self.buckets]


@dataclass(frozen=True, slots=True)
class Step:
    """What one call of Spark's for one bucket comes to."""

    saved: bytes
    old_timer_ms: int | None  # registered with Spark before the call
    timer_ms: int | None  # to be registered after it
    answers: list[tuple[int, bytes]]  # (number of the query, payload)


def step_bucket(job: StreamJob, name: int, saved: bytes | None, watermark_ms: int, payloads: Iterable[bytes]) -> Step:
    """Restore a bucket, let its time run to Spark's watermark, take in new events, and save it.

    Time runs first: what the watermark has passed is settled before the new events come, so that the session can judge
    which of them are late. Spark drops none of them, since it does not see into payloads.
    """
    share = job.share_of(name)
    session, old_timer_ms = _restore(job, share, saved)
    answer: dict[str, pa.Table] = {}
    if watermark_ms > 0:  # Spark's is 0 until it has seen an event
        answer = session.advance(share.clock.watermark_tick(watermark_ms))
    for payload in payloads:
        session.push(from_payload(payload))
    deadline = session.next_deadline
    timer_ms = None if deadline is None else share.clock.timer_ms(deadline)
    return Step(
        saved=_save(job, timer_ms, session),
        old_timer_ms=old_timer_ms,
        timer_ms=timer_ms,
        answers=[(number, payload) for number, table in _numbered(share, answer) for payload in payloads_of(table)],
    )


def _save(job: StreamJob, timer_ms: int | None, session: Session) -> bytes:
    head = json.dumps({"buckets": job.buckets, "timer_ms": timer_ms}).encode("utf-8")
    return seal(BUCKET_MAGIC, BUCKET_VERSION, [len(head).to_bytes(4, "little"), head, session.snapshot()])


def _restore(job: StreamJob, share: Share, saved: bytes | None) -> tuple[Session, int | None]:
    if saved is None:
        return Session.open(share.program), None
    body = unseal(BUCKET_MAGIC, BUCKET_VERSION, saved, "state of a stream")
    head_length = int.from_bytes(body[:4], "little")
    head = json.loads(bytes(body[4 : 4 + head_length]))
    if head["buckets"] != job.buckets:
        raise StateError(
            f"this checkpoint was written with buckets={head['buckets']}, and the stream now asks for {job.buckets}; "
            f"go on with buckets={head['buckets']}, or start from a new checkpoint"
        )
    return Session.restore(bytes(body[4 + head_length :]), share.program), head["timer_ms"]
