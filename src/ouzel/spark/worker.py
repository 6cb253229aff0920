"""What Spark's Python workers run for queries: the session of the embedded engine, with Arrow tables as input.

Tests can call these functions without PySpark, which is imported only to find the number of the partition.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Bound
from ouzel.errors import LimitError
from ouzel.runtime.layout import ticks_of
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
from ouzel.spark.time_slices import Edges, Ranges, Slices, joined, ranged, watched
from ouzel.spark.totals import TotalsJob, merged, packed_partials

# ── Bounded input ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Memory:
    """How many bytes of events a task holds."""

    # At most this many, of one partition, unless Spark sorts them.
    partition_bytes: int = PARTITION_BYTES
    # About this many, of sorted events. None: hold all events, in any order.
    limit: int | None = None


def match_partition(
    packed: bool, group: QueryGroup, memory: Memory, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """All matches in a partition: the rows of the only query, or packed as (number of the query, payload)."""
    yield from _output(packed, answers(group, memory, batches))


def match_slices(
    packed: bool, slices: Slices, group: QueryGroup, memory: Memory, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The matches that belong to the slices of a partition. Each row has the number of its part."""
    first, filled = _filled(batches)
    if first is not None:
        part = first.column(PART_COLUMN)[0].as_py()
        yield from _output(packed, slices.owned(part, answers(group, memory, filled)))


def _filled(batches: Iterable[pa.RecordBatch]) -> tuple[pa.RecordBatch | None, Iterator[pa.RecordBatch]]:
    """(first batch that has rows, all batches)."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    return first, chain(() if first is None else (first,), filled)


def _output(packed: bool, found: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.RecordBatch]:
    for number, table in found:
        if packed:
            for payload in payloads_of(table):
                yield packed_batch([number], [payload])
        else:
            yield from table.to_batches()


def answers(group: QueryGroup, memory: Memory, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Tables of matches or of problems, each with its number."""
    first, filled = _filled(batches)
    if first is None:
        return
    session = Session.open(group.program, isolates=group.reports)
    answers_of = _answers_of_whole if memory.limit is None else _answers_in_order
    for answer in answers_of(group, session, memory, filled):
        yield from group.numbered(answer)
    yield from group.problems(session.problems, "one part of the events")


def _answers_of_whole(
    group: QueryGroup, session: Session, memory: Memory, batches: Iterable[pa.RecordBatch]
) -> Iterator[dict[str, pa.Table]]:
    pieces = []
    held_bytes = 0
    for batch in batches:
        pieces.append(batch)
        held_bytes += batch.nbytes
        if held_bytes > memory.partition_bytes:
            raise LimitError(
                f"the events of one partition take more than max_partition_bytes={memory.partition_bytes:,}; give "
                "memory_limit=, for example 1 << 30, to have Spark sort them on disk, or more of "
                "spark.sql.shuffle.partitions"
            )
    session.push(group.events(pa.Table.from_batches(pieces)), zero_copy=True)
    yield session.finish()


def _answers_in_order(
    group: QueryGroup, session: Session, memory: Memory, batches: Iterable[pa.RecordBatch]
) -> Iterator[dict[str, pa.Table]]:
    """The answers for events that come in order of time. Events are evicted as early as possible."""
    assert memory.limit is not None
    # A batch is held three times: as it came, as the columns for kernels, and as the row store.
    for table in gather(batches, bytes_max=max(1, memory.limit // 4)):
        events = group.events(table)
        session.push(events)
        # More events with the newest timestamp may follow.
        yield session.advance(int(ticks_of(events, session.program.layout).max()) - 1)
    yield session.finish()


# ── Keys that only workers can compute ─────────────────────────────────────────────────────────────

# A column of our own, with a name that no query can use.
PART_COLUMN = "ouzel part"


def mark_keys(
    group: QueryGroup, expressions: Sequence[Bound], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, with a number in the last column that is equal for equal values of the expressions."""
    from ouzel.engines.rows.frames import evaluated

    for batch in batches:
        columns = evaluated(expressions, group.events(pa.Table.from_batches([batch])))
        yield batch.append_column(PART_COLUMN, pa.array(key_numbers(columns)))


def key_numbers(columns: Sequence[pa.Array]) -> np.ndarray:
    """A number for each row. Equal values have equal numbers in every process.

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
    """A hash that is the same in every process. Python's own hashes of text, null and NaN differ between processes."""
    if value is None or value != value:
        return 0
    return (
        zlib.crc32(value.encode() if isinstance(value, str) else value)
        if isinstance(value, str | bytes)
        else (hash(value) & 0xFFFFFFFF)
    )


# ── Totals over all keys ───────────────────────────────────────────────────────────────────────────


def emit_partials(
    totals: TotalsJob, group: QueryGroup, memory: Memory, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The partial results of the keys of a partition."""
    yield from packed_partials(totals, _partition(), answers(group, memory, batches))


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
    ranges: Ranges, group: QueryGroup, memory: Memory, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The matches inside a range, and the events at its boundaries."""
    edges = Edges(group.time, ranges.span)
    found = answers(group, memory, watched(edges, batches))
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
    """The rows of a task, repeated for each group, as (name of the bucket, payload).

    `bucket_columns` names, for each group, the column with the bucket of each row, from 0 to buckets - 1.
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
    """The matches of query `number`. The last columns have its late events and its problems."""
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
    """The rows of all queries: a column with the name of the query, and for each query a struct, which is null in rows
    of other queries.

    If requested, late events and problems follow in columns of their own. They are in separate rows, with the name of
    their query.
    """
    target = pa.ipc.read_schema(pa.py_buffer(schema))
    for found, rows in _unpacked(batches):
        query, column = _query_and_column(found)
        name = target.names[1 + query]
        column = column or name
        own = {column: _as_type(rows, target.field(column).type)}
        yield _only({target.names[0]: pa.repeat(name, rows.num_rows)} | own, rows.num_rows, target)


def _query_and_column(number: int) -> tuple[int, str | None]:
    """(query, column) for packed rows: their query, and the column that holds them; None if they are matches."""
    if number < 0:
        return ~number, LATE_COLUMN
    if number >= FIRST_PROBLEM:
        return number - FIRST_PROBLEM, PROBLEM_COLUMN
    return number, None


def _only(columns: Mapping[str, pa.Array], count: int, target: pa.Schema) -> pa.RecordBatch:
    """Rows with these columns; all other columns are null."""
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
    """Rows as structs. Fields of the type that the rows lack are null."""
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
    """The matches in rows of OUTPUT COMPRESSED. Rows are expanded one at a time, because a row may have very many
    matches.
    """
    # Other tasks do not need the graphs of Kleene closure.
    from ouzel.engines.kleene.compressed import listed, reading

    bound, layout = reading(queries, compressed, schema, options)
    for batch in batches:
        table = pa.Table.from_batches([batch]).cast(compressed)
        for row in range(table.num_rows):
            yield from listed(bound, layout, table.slice(row, 1), max_matches=max_matches).to_batches(1 << 16)
