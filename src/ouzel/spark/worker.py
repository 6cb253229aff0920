"""What Spark's Python workers run for queries: the session of the embedded engine, fed with Arrow tables.

PySpark is imported here only for the number of the partition, so tests can call these functions without it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Bound
from ouzel.errors import LimitError
from ouzel.runtime.layout import ticks_of
from ouzel.runtime.problems import Problem
from ouzel.runtime.session import Session
from ouzel.spark.bucket import CONTROL, StreamJob
from ouzel.spark.payloads import (
    FIRST_PROBLEM,
    PACKED,
    PARTITION_BYTES,
    PROBLEM_COLUMN,
    QueryGroup,
    from_payload,
    gather,
    packed_batch,
    payloads_of,
    split_by,
)
from ouzel.spark.time_slices import PART_COLUMN, Edges, Ranges, Slices, gathered, joined, ranged, watched
from ouzel.spark.totals import TotalsJob, merged, packed_partials

# ── Bounded input ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Memory:
    """How many bytes of events a task holds."""

    # At most this many, of one partition, unless Spark sorts them.
    partition_bytes: int = PARTITION_BYTES
    # About this many, of sorted events. None: hold all events, in any order.
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class BatchJob:
    """How the partitions of a bounded input are read."""

    slices: Slices | None = None
    memory: Memory = field(default_factory=Memory)
    # The events come as payloads, by the time slices that need them.
    packed: bool = False


def match_partition(
    packed: bool, group: QueryGroup, job: BatchJob, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """All matches in a partition: rows of the one query, or packed as (number of the query, payload)."""
    yield from _output(packed, answers(group, job, batches))


def _output(packed: bool, found: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.RecordBatch]:
    for number, table in found:
        if packed:
            for payload in payloads_of(table):
                yield packed_batch([number], [payload])
        else:
            yield from table.to_batches()


def answers(group: QueryGroup, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Tables of matches or problems, by number."""
    if job.packed:
        batches = gathered(group, batches)
    found = (
        _answers_of_whole(group, job, batches) if job.memory.limit is None else _answers_in_order(group, job, batches)
    )
    for part, answer, problems in found:
        for number, table in group.numbered(answer):
            owned = table if job.slices is None else job.slices.owned(table, part)
            if owned.num_rows:
                yield number, owned
        yield from group.problems(problems, "one part of the events")


# Of a part: its number, rows by query, and at its end the queries that stopped.
_Found = tuple[int, dict[str, pa.Table], dict[str, Problem]]


def _answers_of_whole(group: QueryGroup, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[_Found]:
    pieces = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows:
            pieces.append(batch)
            held_bytes += batch.nbytes
        if held_bytes > job.memory.partition_bytes:
            raise LimitError(
                f"the events of one partition take more than max_partition_bytes={job.memory.partition_bytes:,}; give "
                "memory_limit=, for example 1 << 30, to have Spark sort them on disk, or more of "
                "spark.sql.shuffle.partitions"
            )
    if not pieces:
        return
    for part, events in _parts(group, job, pa.Table.from_batches(pieces)):
        session = Session.open(group.program, isolates=group.reports)
        session.push(events, zero_copy=True)
        yield part, session.finish(), session.problems


def _answers_in_order(group: QueryGroup, job: BatchJob, batches: Iterable[pa.RecordBatch]) -> Iterator[_Found]:
    """The answers to events that come part by part, each part in order of time; events are evicted as soon as
    possible."""
    assert job.memory.limit is not None
    session: Session | None = None
    current = 0
    # A batch is held three times: as it came, as the columns for kernels, and as the row store.
    for table in gather(batches, bytes_max=max(1, job.memory.limit // 4)):
        for part, events in _parts(group, job, table):
            if session is not None and part != current:
                yield current, session.finish(), session.problems
                session = None
            if session is None:
                session, current = Session.open(group.program, isolates=group.reports), part
            session.push(events)
            # More events with the newest timestamp may follow.
            yield part, session.advance(int(ticks_of(events, session.program.layout).max()) - 1), {}
    if session is not None:
        yield current, session.finish(), session.problems


def _parts(group: QueryGroup, job: BatchJob, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    if job.slices is None:
        yield 0, group.events(table)
        return
    events = group.events(table)
    yield from split_by(events.append_column(PART_COLUMN, table[PART_COLUMN]), PART_COLUMN)


# ── Keys that only workers can compute ─────────────────────────────────────────────────────────────


def mark_keys(
    group: QueryGroup, expressions: Sequence[Bound], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task; the last column has a number that is equal for equal values of the expressions."""
    from ouzel.engines.rows.frames import evaluated

    for batch in batches:
        columns = evaluated(expressions, group.events(pa.Table.from_batches([batch])))
        yield batch.append_column(PART_COLUMN, pa.array(key_numbers(columns)))


def key_numbers(columns: Sequence[pa.Array]) -> np.ndarray:
    """A number for each row, the same in every process for equal values.

    >>> key_numbers([pa.array([0.0, None, -0.0]), pa.array(["a", "b", "a"])]).tolist()
    [-390611389, 1908338681, -390611389]
    """
    numbers = np.zeros(len(columns[0]), np.uint32)
    for column in columns:
        coded = column.dictionary_encode("encode")
        hashes = np.array([_stable_hash(value) for value in coded.dictionary.to_pylist()], np.uint32)
        numbers = numbers * np.uint32(31) + hashes[coded.indices.to_numpy()]
    return numbers.view(np.int32)


def _stable_hash(value: Any) -> int:
    """Python's own hash of text, null and NaN differs from process to process."""
    if value is None or value != value:
        return 0
    return (
        zlib.crc32(value.encode() if isinstance(value, str) else value)
        if isinstance(value, str | bytes)
        else (hash(value) & 0xFFFFFFFF)
    )


# ── Totals over all keys ───────────────────────────────────────────────────────────────────────────


def emit_partials(
    totals: TotalsJob, group: QueryGroup, job: BatchJob, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The partial results of the keys of a partition."""
    yield from packed_partials(totals, _partition(), answers(group, job, batches))


def merge_partials(packed: bool, totals: TotalsJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The totals from the partial results of all partitions."""
    yield from _output(packed, merged(totals, batches))


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "Spark runs this"
    return context.partitionId()


# ── Ranges of time, for matches that span a number of events ───────────────────────────────────────


def match_range(
    ranges: Ranges, group: QueryGroup, job: BatchJob, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The matches inside a range, and the events at its boundaries."""
    edges = Edges(group.time, ranges.span)
    found = answers(group, job, watched(edges, batches))
    yield from ranged(ranges, group, _partition(), edges, found)


def match_boundaries(
    packed: bool, ranges: Ranges, group: QueryGroup, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The matches inside ranges, and those across range boundaries."""
    yield from _output(packed, joined(ranges, group, batches))


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────

# Each call of a bucket also returns a row with a report and without a payload.
STEPPED_REPORT = "report"
STEPPED = f"{PACKED}, {STEPPED_REPORT} STRING"
LATE_COLUMN = "late"


def pack(job: StreamJob, bucket_columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task, once for each group, as (name of the bucket, payload).

    `bucket_columns` has for each group the column with the bucket, 0 … buckets - 1, of each row.
    """
    yield packed_batch([CONTROL], [b""])
    for table in gather(batches):
        for index, (group, bucket_column) in enumerate(zip(job.groups, bucket_columns, strict=True)):
            events = group.events(table).append_column(bucket_column, table[bucket_column])
            for bucket, rows in split_by(events, bucket_column):
                for payload in payloads_of(rows):
                    yield packed_batch([job.names[index * job.buckets + bucket]], [payload])


def unpack(number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of query `number` from its payloads."""
    for found, rows in _unpacked(batches):
        if found == number:
            yield rows


def unpack_wide(number: int, schema: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The matches of query `number` and, in the last columns, its late events and its problems."""
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

    Late events and problems, if requested, are in separate last columns, in rows of their query.
    """
    target = pa.ipc.read_schema(pa.py_buffer(schema))
    for found, rows in _unpacked(batches):
        query, column = _query_and_column(found)
        name = target.names[1 + query]
        column = column or name
        own = {column: _as_type(rows, target.field(column).type)}
        yield _only({target.names[0]: pa.repeat(name, rows.num_rows)} | own, rows.num_rows, target)


def _query_and_column(number: int) -> tuple[int, str | None]:
    """The query of packed rows, and the column that they are for; None: they are matches."""
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


# ── OUTPUT COMPRESSED ──────────────────────────────────────────────────────────────────────────────


def expand_rows(
    queries: Mapping[str, Any],
    compressed: pa.Schema,
    schema: pa.Schema | Mapping[str, pa.Schema] | None,
    options: Mapping[str, Any],
    max_matches: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The matches in rows of OUTPUT COMPRESSED, row by row, because a row may hold very many."""
    # Other tasks do not need the graphs of Kleene closure.
    from ouzel.engines.kleene.compressed import listed, reading

    bound, layout = reading(queries, compressed, schema, options)
    for batch in batches:
        table = pa.Table.from_batches([batch]).cast(compressed)
        for row in range(table.num_rows):
            yield from listed(bound, layout, table.slice(row, 1), max_matches=max_matches).to_batches(1 << 16)
