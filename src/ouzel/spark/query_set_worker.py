"""What Spark's Python workers run for a set of queries: the embedded QuerySet, with Arrow tables as input.

The work is divided in one of two ways: by keys, where each part has all queries; or by slices of the queries, where
each part reads all events. A stream keeps each part in a bucket. The state of a bucket is a snapshot of its set, and a
log of later input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ouzel.errors import LimitError, OuzelError
from ouzel.runtime.problems import Problem
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import empty_table
from ouzel.sealing import SNAPSHOT, decoding
from ouzel.spark.bucket import CONTROL, Answers
from ouzel.spark.partitioning import key_of
from ouzel.spark.payloads import (
    PARTITION_BYTES,
    Clock,
    QueryGroup,
    from_payload,
    gather,
    packed_batch,
    payloads_of,
    split_by,
)
from ouzel.spark.state_store import LOG_BYTES_MIN, SESSION_CACHE_BYTES, Manifest

if TYPE_CHECKING:
    from ouzel.query_set.api import QuerySet

QUERY, PROBLEM = "query", "problem"
# Marks payloads with changes of the set; all others have events.
CHANGES_METADATA = {b"ouzel": b"changes"}
# Events of a bounded input that are read at a time, so that not all answers are held at once.
EVENTS_PER_STEP = 1 << 17


@dataclass(frozen=True, slots=True)
class SetJob:
    """A set of queries, the columns of all answers, and how the work is divided."""

    group: QueryGroup  # the columns of its events
    answers: bytes  # the Arrow schema of its answers
    parts: int
    # Snapshots of the sets at the start: one for all parts if `keys` separate them, else one for each slice.
    sets: tuple[bytes, ...] = ()
    keys: tuple[str, ...] = ()
    # Drop columns of answers that the schema does not have; otherwise refuse their query.
    narrowed: bool = False
    # Report suspended queries in rows of their own; otherwise the job fails.
    reports: bool = False
    # Of streams: the names of the buckets, and the signature of their checkpoint.
    names: tuple[int, ...] = ()
    signature: bytes = b""
    log_bytes_min: int = LOG_BYTES_MIN
    partition_bytes: int = PARTITION_BYTES
    cache_bytes: int = SESSION_CACHE_BYTES

    @property
    def answer_schema(self) -> pa.Schema:
        """The columns of all answers."""
        return pa.ipc.read_schema(pa.py_buffer(self.answers))

    def fresh(self, part: int) -> QuerySet:
        """The set of a part, before it has read any event."""
        from ouzel.query_set.api import QuerySet

        return QuerySet.restore(self.sets[0 if self.keys else part])

    # ── The buckets of a stream, see `ouzel.spark.bucket.BucketJob` ────────────────────────────────

    def clock_of(self, name: int) -> Clock:
        """The clock of the events, which is the same for all buckets."""
        return self.group.clock

    def open(self, name: int, snapshot: bytes | None) -> SetSession:
        """The set of a bucket: new, or restored from a snapshot."""
        if snapshot is None:
            return SetSession(self, self.fresh(self.names.index(name)))
        return SetSession.restore(self, snapshot)

    def resume(self, name: int, session: SetSession) -> None:
        """Do nothing: a set that has stopped is never stored in a checkpoint."""

    def collect(
        self, name: int, session: SetSession, found: dict[Any, pa.Table], manifest: Manifest
    ) -> tuple[Answers, bool]:
        """The answers, and rows for failed changes. If all parts have the same queries, only the first part reports
        failed changes.
        """
        schema = self.answer_schema
        tables = list(shaped(found, schema))
        problems, session.problems = session.problems, []
        if self.names.index(name) == 0 or not self.keys:
            tables += _problem_rows(problems, schema)
        tables += _problem_rows(session.newly_suspended(), schema)
        manifest.matches[QUERY] = manifest.matches.get(QUERY, 0) + sum(table.num_rows for table in found.values())
        whole = pa.concat_tables(tables) if tables else empty_table(schema)
        return tuple((0, payload) for payload in payloads_of(whole)), False

    def report(self, name: int, session: SetSession, manifest: Manifest) -> dict[str, dict[str, int]]:
        """The counters of the whole set, as if it were one query."""
        held = session.held
        counts = {
            "matches": manifest.matches.get(QUERY, 0),
            # Every slice sees all events, so only the first one counts.
            "late": held.late if self.keys or self.names.index(name) == 0 else 0,
            "open_events": held.held_events,
            "open_runs": held.statistics.get("instances", 0),
            "state_bytes": manifest.stored_bytes,
        }
        return {"set of queries": counts}


def shaped(answers: Mapping[Any, pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """The answers of each query, with the columns that all queries have together."""
    for table in answers.values():
        columns = []
        for column in schema:
            if column.name in table.column_names:
                columns.append(pc.cast(table.column(column.name), column.type))
            else:
                columns.append(pa.nulls(table.num_rows, column.type))
        yield pa.table(columns, schema=schema)


# ── Bounded input ──────────────────────────────────────────────────────────────────────────────────


def match_set_keys(job: SetJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The answers of all queries, for the events of some keys."""
    tables, held_bytes = [], 0
    for batch in batches:
        if batch.num_rows:
            tables.append(job.group.events(pa.Table.from_batches([batch])))
            held_bytes = _checked(job, held_bytes + batch.nbytes)
    if tables:
        yield from _answers(job, 0, pa.concat_tables(tables))


def pack_slices(job: SetJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task, once for each slice of the queries, as (number of the slice, payload)."""
    for table in gather(batches):
        for payload in payloads_of(job.group.events(table)):
            yield packed_batch(range(job.parts), [payload] * job.parts)


def match_set_slices(job: SetJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The answers of some slices of the queries, for all events."""
    received: dict[int, list[pa.Table]] = {}
    held_bytes = 0
    for batch in batches:
        for part, payload in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            # As bytes: a view would keep the whole batch of the payload alive.
            events = from_payload(payload.as_py())
            held_bytes = _checked(job, held_bytes + events.nbytes)
            received.setdefault(part, []).append(events)
    for part, tables in received.items():
        yield from _answers(job, part, pa.concat_tables(tables))


def _checked(job: SetJob, held_bytes: int) -> int:
    if held_bytes > job.partition_bytes:
        raise LimitError(
            f"the events of one task take more than max_partition_bytes={job.partition_bytes:,}; select fewer columns, "
            "filter the events, or cut the DataFrame by time"
        )
    return held_bytes


def _answers(job: SetJob, part: int, events: pa.Table) -> Iterator[pa.RecordBatch]:
    held, schema = job.fresh(part), job.answer_schema
    ordered = events.take(pc.sort_indices(events, [(job.group.time, "ascending")]))
    for first in range(0, ordered.num_rows, EVENTS_PER_STEP):
        newest = held.take(ordered.slice(first, EVENTS_PER_STEP))
        assert newest is not None
        # More events with the newest timestamp may follow.
        for table in shaped(_of_all(job, held, partial(held.advance, newest - 1)), schema):
            yield from table.to_batches()
    for table in shaped(_of_all(job, held, held.finish), schema):
        yield from table.to_batches()
    for table in _problem_rows(map(_reason, held.suspended()), schema):
        yield from table.to_batches()


def _of_all(job: SetJob, held: QuerySet, advance: Callable[[], dict[Any, pa.Table]]) -> dict[Any, pa.Table]:
    """The answers of a call. If a query was suspended and the job does not report this, the job fails rather than omit
    rows.
    """
    try:
        answers = advance()
    except OuzelError:
        # No query is left.
        if not job.reports or not held.suspended():
            raise
        return {}
    if not job.reports:
        for problem in held.suspended():
            raise problem.raised()
    return answers


def _problem_rows(problems: Iterable[tuple[Any, str]], schema: pa.Schema) -> Iterator[pa.Table]:
    found = list(problems)
    if found:
        ids, texts = pa.array([id for id, _ in found]), pa.array([text for _, text in found])
        yield from shaped({0: pa.table({QUERY: ids, PROBLEM: texts})}, schema)


def _reason(problem: Problem) -> tuple[Any, str]:
    return problem.query, f"{problem.reason} (at time {problem.time})"


# ── Packing for streams ────────────────────────────────────────────────────────────────────────────


def pack_set_events(job: SetJob, bucket_column: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task as (name of the bucket, payload): by key, or for every slice of the queries."""
    yield packed_batch([CONTROL], [b""])
    for table in gather(batches):
        events = job.group.events(table)
        if not job.keys:
            for payload in payloads_of(events):
                yield packed_batch(job.names, [payload] * len(job.names))
            continue
        for bucket, rows in split_by(events.append_column(bucket_column, table[bucket_column]), bucket_column):
            for payload in payloads_of(rows):
                yield packed_batch([job.names[bucket]], [payload])


def pack_changes(job: SetJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The last change of each query as (name of the bucket, payload), for every bucket that has the query."""
    from ouzel.query_set.registry import slice_of

    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return
    newest: dict[Any, dict[str, Any]] = {}
    for row in pa.Table.from_batches(filled).to_pylist():
        if row["id"] is None:
            row = {**row, PROBLEM: "a row of the table of queries has no id"}
        known = newest.get(row["id"])
        row.setdefault(PROBLEM, None)
        if known is not None and known["version"] == row["version"] and known[QUERY] != row[QUERY]:
            reason = "duplicate id in one micro-batch of the table of queries, and no column 'version' orders them"
            row = {**row, PROBLEM: reason}
        if known is None or _version(row) >= _version(known):
            newest[row["id"]] = row
    buckets: dict[int, list[dict[str, Any]]] = {}
    for row in newest.values():
        for part in range(job.parts) if job.keys else [slice_of(row["id"], job.parts)]:
            buckets.setdefault(job.names[part], []).append(row)
    id_type = filled[0].schema.field("id").type
    for name, rows in buckets.items():
        schema = pa.schema({"id": id_type, QUERY: pa.string(), "owner": pa.string(), PROBLEM: pa.string()})
        table = pa.Table.from_pylist(rows, schema.with_metadata(CHANGES_METADATA))
        for payload in payloads_of(table):
            yield packed_batch([name], [payload])


def _version(row: Mapping[str, Any]) -> tuple[bool, Any]:
    return (row["version"] is not None, row["version"] or 0)


# ── Buckets of a stream ────────────────────────────────────────────────────────────────────────────


class SetSession:
    """The set of a bucket, with its changes; see `ouzel.spark.state_store.BucketSession`.

    Events wait until the watermark passes them, and a query sees only events after the watermark at its registration.
    So the order of events and changes in a micro-batch does not matter.
    """

    def __init__(self, job: SetJob, held: QuerySet, marks: dict[Any, str] | None = None) -> None:
        self.held = held
        self._job = job
        # Digests of the texts of queries that came by a change.
        self._marks = {} if marks is None else marks
        self.problems: list[tuple[Any, str]] = []
        self._suspended = {problem.query for problem in held.suspended()}

    def newly_suspended(self) -> Iterator[tuple[Any, str]]:
        """The queries that have been suspended since the last call, and why."""
        for problem in self.held.suspended():
            if problem.query not in self._suspended:
                self._suspended.add(problem.query)
                yield _reason(problem)

    @property
    def next_deadline(self) -> int | None:
        """The first tick at which answers are due without a further event; None if there is none."""
        return self.held.next_deadline

    def advance(self, watermark: int) -> dict[Any, pa.Table]:
        """Move time to the watermark. Raises an error if a query was suspended and this is not reported."""
        return _of_all(self._job, self.held, partial(self.held.advance, watermark))

    def push(self, table: pa.Table) -> None:
        """Add events, or changes of the set."""
        if table.schema.metadata != CHANGES_METADATA:
            self.held.take(table)
            return
        for row in table.to_pylist():
            problem = row[PROBLEM] or self._change(row["id"], row[QUERY], row["owner"])
            if problem:
                self.problems.append((row["id"], problem))

    def take_late(self) -> None:
        """Drop the problems of replayed records, which have been reported before."""
        self.problems.clear()
        list(self.newly_suspended())

    def _change(self, id: Any, text: str | None, owner: str | None) -> str | None:
        """Remove, add or replace a query. Returns what is wrong with it; None if nothing is."""
        known = any(True for _ in self.held.parts(id))
        if text is None:
            if not known:
                return f"there is no query {id!r} to remove"
            self._remove(id)
            return None
        mark = sha256(json.dumps([text, owner]).encode()).hexdigest()[:16]
        if known and self._marks.get(id) == mark:
            return None
        if known:
            self._remove(id)
        try:
            self.held.add(id, text, owner=owner)
            self._check(id)
        except OuzelError as error:
            if any(True for _ in self.held.parts(id)):
                self.held.remove(id)
            return str(error)
        self._marks[id] = mark
        return None

    def _remove(self, id: Any) -> None:
        self.held.remove(id)
        self._marks.pop(id, None)

    def _check(self, id: Any) -> None:
        schema = self._job.answer_schema
        for _, part in self.held.parts(id):
            check_columns(id, self.held.answer_schema(part), schema, narrowed=self._job.narrowed)
            own = key_of(part)
            if self._job.keys and own is not None and not own >= set(self._job.keys):
                keys = ", ".join(self._job.keys)
                raise OuzelError(
                    f"this stream is distributed by {keys}, so all events of an answer must agree on it, but those of "
                    f"this query may differ; add [{keys}], or, in the algebra, {keys} = {keys}.last"
                )

    def snapshot(self, *, with_program: bool = True) -> bytes:
        """The whole state."""
        writer = Writer()
        return writer.finish({"set": writer.add_bytes(self.held.snapshot()), "marks": list(self._marks.items())})

    @classmethod
    def restore(cls, job: SetJob, blob: bytes) -> SetSession:
        """The session from the bytes of `snapshot`."""
        from ouzel.query_set.api import QuerySet

        reader = Reader(blob)
        with decoding(SNAPSHOT):
            marks = dict(map(tuple, reader.head["marks"]))
            return cls(job, QuerySet.restore(reader.bytes(reader.head["set"])), marks)


def check_columns(query: Any, own: pa.Schema, answers: pa.Schema, *, narrowed: bool) -> None:
    """Raise an error for a query whose answers do not fit into the common columns of all answers."""
    for column in own:
        if column.name in (QUERY, PROBLEM):
            raise OuzelError(f"query {query!r} gives a column '{column.name}', which every answer has; rename it")
        place = answers.get_field_index(column.name)
        if place < 0:
            if narrowed:
                continue
            raise OuzelError(
                f"query {query!r} gives a column '{column.name}', which the answers of this stream do not have; "
                "list all possible columns in columns="
            )
        wanted = answers.field(place).type
        if not (_widens(column.type, wanted) if narrowed else column.type == wanted):
            raise OuzelError(
                f"query {query!r} gives the column '{column.name}' as {column.type}, and it is {wanted} in the answers "
                "of this set; give it another name, or a wider type in columns="
            )


def _widens(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of one type fits into another type."""
    types = pa.types
    if own == wanted or types.is_null(own):
        return True
    found: bool
    if types.is_string(wanted):
        found = types.is_primitive(own) or types.is_decimal(own) or types.is_large_string(own)
    elif types.is_floating(wanted):
        found = types.is_integer(own) or (types.is_floating(own) and own.bit_width <= wanted.bit_width)
    else:
        integers = types.is_signed_integer(own) and types.is_signed_integer(wanted)
        found = integers and own.bit_width <= wanted.bit_width
    return found
