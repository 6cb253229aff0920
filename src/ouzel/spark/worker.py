"""What runs inside Spark's Python workers: the same session as the embedded engine, fed with Arrow tables.

Nothing here imports PySpark but to ask which partition it is in; functions can be called, and are tested, without it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from ouzel.errors import LimitError, OuzelError
from ouzel.runtime.layout import ticks_of
from ouzel.runtime.problems import Problem
from ouzel.runtime.session import Session
from ouzel.spark import bucket as steps

# Spark's functions find these here by name.
from ouzel.spark.listing import expand_rows as expand_rows
from ouzel.spark.payloads import PACKED, PACKED_NUMBER, PACKED_PAYLOAD, from_payload, gather, payloads_of, split_by
from ouzel.spark.query_set_worker import match_set_keys as match_set_keys
from ouzel.spark.query_set_worker import match_set_slices as match_set_slices
from ouzel.spark.query_set_worker import pack_changes as pack_changes
from ouzel.spark.query_set_worker import pack_set_events as pack_set_events
from ouzel.spark.query_set_worker import pack_slices as pack_slices
from ouzel.spark.ranges import Edges, Ranges, joined, ranged, watched
from ouzel.spark.streaming_totals import add_up as add_up
from ouzel.spark.tasks import FIRST_PROBLEM, PROBLEM_COLUMN, Share, TotalsJob
from ouzel.spark.time_slices import PART_COLUMN, Slices, gathered
from ouzel.spark.time_slices import mark as mark
from ouzel.spark.time_slices import spread as spread
from ouzel.spark.totals import added_up, packed_changes


@contextmanager
def message_alone() -> Iterator[None]:
    """Errors that speak to users reach the driver as their message alone, without the worker's stack."""
    try:
        yield
    except OuzelError:
        # Spark's worker reads this when it reports the error, and then ends.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def renamed(columns: Sequence[str], function: str, *arguments: Any) -> Iterator[pa.RecordBatch]:
    """A function of this module on rows whose columns Spark could not hand over by their names."""
    *first, batches = arguments
    yield from globals()[function](*first, (batch.rename_columns(columns) for batch in batches))


@cache
def settle() -> None:
    """Once in each process, after its first task: let the garbage collector forget the libraries that were loaded.

    Spark's workers collect garbage after every task, and walking through numba's objects takes longer than many tasks.
    """
    gc.collect()
    gc.freeze()


# ── Bounded input ──────────────────────────────────────────────────────────────────────────────────


# Events of one partition that are held in memory whole, unless Spark is asked to sort them.
PARTITION_BYTES_MAX = 4 << 30


@dataclass(frozen=True, slots=True)
class BatchJob:
    """How the partitions of a bounded input are to be read."""

    slices: Slices | None = None
    # How many bytes of events to hold at a time; Spark has then sorted them. None: all of them, in any order.
    memory_limit: int | None = None
    # The events come as packets, by the parts of time that need them.
    packed: bool = False


def match_partition(share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All matches of the one query of `share` in a partition."""
    yield from _rows(answers(share, job, batches))


def match_partition_packed(share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The matches of several queries in a partition, as (number of the query, payload)."""
    yield from _packets(answers(share, job, batches))


def _rows(found: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.RecordBatch]:
    for _, table in found:
        yield from table.to_batches()


def _packets(found: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.RecordBatch]:
    for number, table in found:
        for payload in payloads_of(table):
            yield packed_batch([number], [payload])


def answers(share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    if job.packed:
        batches = gathered(share, batches)
    found = (
        _answers_of_whole(share, job, batches) if job.memory_limit is None else _answers_in_order(share, job, batches)
    )
    for part, answer, problems in found:
        for number, table in share.numbered(answer):
            owned = table if job.slices is None else job.slices.owned(table, part)
            if owned.num_rows:
                yield number, owned
        yield from share.problems(problems, "one part of the events")


# Of a part: its number, rows by query, and at its end the queries that stopped.
_Found = tuple[int, dict[str, pa.Table], dict[str, Problem]]


def _answers_of_whole(share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[_Found]:
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
        session = Session.open(share.program, isolates=share.reports)
        session.push(events, keep_whole=True)
        yield part, session.finish(), session.problems


def _answers_in_order(share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[_Found]:
    """Events come part by part, each in order of time; what no later one can change is let go at once."""
    assert job.memory_limit is not None
    session: Session | None = None
    current = 0
    # A piece is held as it came, as what kernels read, and as the rows behind that.
    for table in gather(batches, bytes_max=max(1, job.memory_limit // 4)):
        for part, events in _parts(share, job, table):
            if session is not None and part != current:
                yield current, session.finish(), session.problems
                session = None
            if session is None:
                session, current = Session.open(share.program, isolates=share.reports), part
            session.push(events)
            # Events at the newest moment may still come.
            yield part, session.advance(int(ticks_of(events, session.program.layout).max()) - 1), {}
    if session is not None:
        yield current, session.finish(), session.problems


def _parts(share: Share, job: BatchJob, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    if job.slices is None:
        yield 0, share.events(table)
        return
    events = share.events(table)
    yield from split_by(events.append_column(PART_COLUMN, table[PART_COLUMN]), PART_COLUMN)


# ── Totals over all keys ───────────────────────────────────────────────────────────────────────────


def tell_changes(
    totals: TotalsJob, share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What the keys of a partition come to, as changes for those who add up."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "Spark runs this"
    yield from packed_changes(totals, context.partitionId(), answers(share, job, batches))


def total_partition(totals: TotalsJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The totals of the one query of a job."""
    yield from _rows(added_up(totals, batches))


def total_partition_packed(totals: TotalsJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The totals of several queries, as (number of the query, payload)."""
    yield from _packets(added_up(totals, batches))


# ── Ranges of time, for matches that reach so many events ──────────────────────────────────────────


def match_range(
    ranges: Ranges, share: Share, job: BatchJob, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The matches inside a range, and its edges."""
    from pyspark import TaskContext

    context = TaskContext.get()
    edges = Edges(share.time, ranges.reach)
    found = answers(share, job, watched(edges, batches))
    yield from ranged(ranges, share, context.partitionId() if context else 0, edges, found)


def match_seams(ranges: Ranges, share: Share, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The matches of the one query of `share`, inside ranges and over their seams."""
    yield from _rows(joined(ranges, share, batches))


def match_seams_packed(ranges: Ranges, share: Share, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The matches of several queries, as (number of the query, payload)."""
    yield from _packets(joined(ranges, share, batches))


# ── Payloads ───────────────────────────────────────────────────────────────────────────────────────

# Each call of a bucket also gives a row without a payload that tells how the bucket stands.
STEPPED_REPORT = "report"
STEPPED = f"{PACKED}, {STEPPED_REPORT} STRING"
LATE_COLUMN = "late"


def packed_batch(numbers: Sequence[int], payloads: Sequence[bytes]) -> pa.RecordBatch:
    """Rows of (number, payload)."""
    return pa.record_batch(
        [pa.array(numbers, pa.int32()), pa.array(payloads, pa.binary())], names=[PACKED_NUMBER, PACKED_PAYLOAD]
    )


def pack(
    job: steps.StreamJob, bucket_columns: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, once for each share, as (name of the bucket, payload).

    `bucket_columns` has for each share the column with the bucket, 0 … buckets - 1, of each row.
    """
    yield packed_batch([steps.CONTROL], [b""])
    for table in gather(batches):
        for index, (share, bucket_column) in enumerate(zip(job.shares, bucket_columns, strict=True)):
            events = share.events(table).append_column(bucket_column, table[bucket_column])
            for bucket, rows in split_by(events, bucket_column):
                for payload in payloads_of(rows):
                    yield packed_batch([job.names[index * job.buckets + bucket]], [payload])


def unpack(number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of query `number` out of its payloads."""
    for found, rows in _unpacked(batches):
        if found == number:
            yield rows


def unpack_beside(number: int, schema: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The matches of query `number` and, in last columns, the events that came too late for it and its problems."""
    target = pa.ipc.read_schema(pa.py_buffer(schema))
    for found, rows in _unpacked(batches):
        query, column = _query_and_column(found)
        if query != number:
            continue
        if column is None:
            own = dict(zip(rows.schema.names, rows.columns, strict=True))
        else:
            own = {column: _as_type(rows, target.field(column).type)}
        yield _only(own, rows.num_rows, target)


def unpack_all(schema: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of all queries: a column with the query's name, and for each query a struct, null in others' rows.

    Late events and problems, where they were asked for, are in last columns of their own, in rows of their query.
    """
    target = pa.ipc.read_schema(pa.py_buffer(schema))
    for found, rows in _unpacked(batches):
        query, column = _query_and_column(found)
        name = target.names[1 + query]
        column = column or name
        own = {column: _as_type(rows, target.field(column).type)}
        yield _only({target.names[0]: pa.repeat(name, rows.num_rows)} | own, rows.num_rows, target)


def _query_and_column(number: int) -> tuple[int, str | None]:
    """The query that packed rows belong to, and the column that they are for; None: they are matches."""
    if number < 0:
        return ~number, LATE_COLUMN
    if number >= FIRST_PROBLEM:
        return number - FIRST_PROBLEM, PROBLEM_COLUMN
    return number, None


def _only(columns: Mapping[str, pa.Array], count: int, target: pa.Schema) -> pa.RecordBatch:
    """Rows that are null in all other columns."""
    made = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in target]
    return pa.record_batch(made, schema=target)


def _as_type(rows: pa.RecordBatch, target: pa.DataType) -> pa.Array:
    return _as_struct(rows, target) if pa.types.is_struct(target) else rows.column(0)


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        for number, payload in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if payload.is_valid:
                for rows in from_payload(payload.as_buffer()).to_batches():
                    yield number, rows


def _as_struct(rows: pa.RecordBatch, target: pa.StructType) -> pa.StructArray:
    """Rows as structs of a type that may have more fields."""
    fields = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in target
    ]
    return pa.StructArray.from_arrays(fields, fields=list(target))


def describe_buckets(schema: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What stored buckets hold open, for `ouzel.spark.state`."""
    from ouzel.spark.inspect import describe

    yield from describe(schema, batches)
