"""What runs inside Spark's Python workers for a set of queries: the embedded QuerySet, fed with Arrow tables.

Parts of the work are either parts of the keys, and each has all queries; or slices of the queries, and each sees all
events. A stream keeps each part in a bucket, whose state is a snapshot of its set and the steps since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ouzel.errors import LimitError, OuzelError, StateError
from ouzel.runtime.arrays import empty_table
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.sealing import SET_TERMS, SNAPSHOT, decoding, seal, unseal
from ouzel.spark.bucket import CONTROL, SESSIONS_BYTES_MAX, Step
from ouzel.spark.payloads import PACKED_NUMBER, PACKED_PAYLOAD, from_payload, gather, payloads_of, split_by
from ouzel.spark.state_store import STEPS_BYTES_MIN, Head, Keeper, Movement, Store, catch_up, save, snapshot_of
from ouzel.spark.tasks import Share

if TYPE_CHECKING:
    from ouzel.query_set.api import QuerySet

QUERY, PROBLEM = "query", "problem"
QUERIES_TERM = "set of queries"
# Payloads with changes of the set are told from those with events by this.
CHANGES_METADATA = {b"ouzel": b"changes"}
# Of a bounded input so many events are read at a time, so that not all answers are held at once.
EVENTS_PER_STEP = 1 << 17
EVENTS_BYTES_MAX = 4 << 30

_keeper: Keeper[SetSession] = Keeper(SESSIONS_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class SetJob:
    """A set of queries, what its answers look like, and how the work is spread."""

    share: Share  # the columns of its events
    answers: bytes  # the Arrow schema of its answers
    parts: int
    # Snapshots of the sets as they begin: one for all parts that `keys` keep apart, else one for each slice.
    sets: tuple[bytes, ...] = ()
    keys: tuple[str, ...] = ()
    # Columns that answers have and the schema has not are left out; otherwise their query is refused.
    narrowed: bool = False
    # On streams the names of the buckets, and what their checkpoint was written for.
    names: tuple[int, ...] = ()
    terms: str = ""
    steps_bytes_min: int = STEPS_BYTES_MIN
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha256(self.terms.encode()).hexdigest()[:32])

    @property
    def answer_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.answers))

    def fresh(self, part: int) -> QuerySet:
        """The set of a part, as it begins."""
        from ouzel.query_set.api import QuerySet

        return QuerySet.restore(self.sets[0 if self.keys else part])

    def step(self, name: int, store: Store, watermark_ms: int, payloads: Iterable[bytes]) -> Step:
        """Step a bucket of a stream; see `bucket_processor`."""
        return step_set(self, name, store, watermark_ms, payloads)


def shaped(answers: Mapping[Any, pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Answers of different queries with the columns of all of them."""
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
    """The answers of all queries to the events of some keys."""
    pieces, held_bytes = [], 0
    for batch in batches:
        if batch.num_rows:
            pieces.append(job.share.events(pa.Table.from_batches([batch])))
            held_bytes = _checked(held_bytes + batch.nbytes)
    if pieces:
        yield from _answers(job, 0, pa.concat_tables(pieces))


def pack_slices(job: SetJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task, once for each slice of the queries, as (number of the slice, payload)."""
    for table in gather(batches):
        for payload in payloads_of(job.share.events(table)):
            yield _packed(range(job.parts), [payload] * job.parts)


def match_set_slices(job: SetJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The answers of some slices of the queries to all events."""
    pieces: dict[int, list[pa.Table]] = {}
    held_bytes = 0
    for batch in batches:
        for part, payload in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            # The batch that a payload came in would be held whole.
            events = from_payload(payload.as_py())
            held_bytes = _checked(held_bytes + events.nbytes)
            pieces.setdefault(part, []).append(events)
    for part, tables in pieces.items():
        yield from _answers(job, part, pa.concat_tables(tables))


def _checked(held_bytes: int) -> int:
    if held_bytes > EVENTS_BYTES_MAX:
        raise LimitError(
            f"the events of one task take more than {EVENTS_BYTES_MAX:,} bytes; select fewer columns, filter the "
            "events, or cut the DataFrame by time"
        )
    return held_bytes


def _answers(job: SetJob, part: int, events: pa.Table) -> Iterator[pa.RecordBatch]:
    held, schema = job.fresh(part), job.answer_schema
    ordered = events.take(pc.sort_indices(events, [(job.share.time, "ascending")]))
    for first in range(0, ordered.num_rows, EVENTS_PER_STEP):
        newest = held.take(ordered.slice(first, EVENTS_PER_STEP))
        assert newest is not None
        # Events at the newest moment may still come.
        for table in shaped(_of_all(held, held.advance(newest - 1)), schema):
            yield from table.to_batches()
    for table in shaped(_of_all(held, held.finish()), schema):
        yield from table.to_batches()


def _of_all(held: QuerySet, answers: dict[Any, pa.Table]) -> dict[Any, pa.Table]:
    """The answers, if no query has stopped: a job fails rather than leave rows out."""
    for problem in held.problems():
        raise problem.raised()
    return answers


# ── Packing for streams ────────────────────────────────────────────────────────────────────────────


def pack_set_events(job: SetJob, bucket_column: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task as (name of the bucket, payload): by key, or for every slice of the queries."""
    yield _packed([CONTROL], [b""])
    for table in gather(batches):
        events = job.share.events(table)
        if not job.keys:
            for payload in payloads_of(events):
                yield _packed(job.names, [payload] * len(job.names))
            continue
        for bucket, rows in split_by(events.append_column(bucket_column, table[bucket_column]), bucket_column):
            for payload in payloads_of(rows):
                yield _packed([job.names[bucket]], [payload])


def pack_changes(job: SetJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Changes of the set as (name of the bucket, payload), to whoever has to know; the newest of each query."""
    from ouzel.query_set.snapshot import slice_of

    pieces = [batch for batch in batches if batch.num_rows]
    if not pieces:
        return
    newest: dict[Any, dict[str, Any]] = {}
    for row in pa.Table.from_batches(pieces).to_pylist():
        if row["id"] is None:
            row = {**row, PROBLEM: "a row of the table of queries has no id"}
        known = newest.get(row["id"])
        row.setdefault(PROBLEM, None)
        if known is not None and known["version"] == row["version"] and known[QUERY] != row[QUERY]:
            row = {**row, PROBLEM: "this id stands twice in what one micro-batch read of the table of queries, and no "
                   "column 'version' says which row is newer"}  # fmt: skip
        if known is None or _version(row) >= _version(known):
            newest[row["id"]] = row
    buckets: dict[int, list[dict[str, Any]]] = {}
    for row in newest.values():
        for part in range(job.parts) if job.keys else [slice_of(row["id"], job.parts)]:
            buckets.setdefault(job.names[part], []).append(row)
    id_type = pieces[0].schema.field("id").type
    for name, rows in buckets.items():
        schema = pa.schema({"id": id_type, QUERY: pa.string(), "owner": pa.string(), PROBLEM: pa.string()})
        table = pa.Table.from_pylist(rows, schema.with_metadata(CHANGES_METADATA))
        for payload in payloads_of(table):
            yield _packed([name], [payload])


def _version(row: Mapping[str, Any]) -> tuple[bool, Any]:
    return (row["version"] is not None, row["version"] or 0)


def _packed(numbers: Iterable[int], payloads: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(numbers, pa.int32()), pa.array(payloads, pa.binary())], names=[PACKED_NUMBER, PACKED_PAYLOAD]
    )


# ── Buckets of a stream ────────────────────────────────────────────────────────────────────────────


class SetSession:
    """The set of a bucket with what changes it; `ouzel.spark.state_store` steps and stores it like any other session.

    Events wait until time moves on, and a query sees those that are later than the watermark at its registration, so
    it does not matter in which order a micro-batch hands over events and changes.
    """

    def __init__(self, job: SetJob, held: QuerySet, marks: dict[Any, str] | None = None) -> None:
        self.held = held
        self._job = job
        # Of each query that a change brought, a mark of its text.
        self._marks = {} if marks is None else marks
        self.problems: list[tuple[Any, str]] = []

    def advance(self, watermark: int) -> dict[Any, pa.Table]:
        return _of_all(self.held, self.held.advance(watermark))

    def push(self, table: pa.Table) -> None:
        if table.schema.metadata != CHANGES_METADATA:
            self.held.take(table)
            return
        for row in table.to_pylist():
            problem = row[PROBLEM] or self._change(row["id"], row[QUERY], row["owner"])
            if problem:
                self.problems.append((row["id"], problem))

    def take_late(self) -> None:
        """Steps that are taken again have told their problems before."""
        self.problems.clear()

    def _change(self, id: Any, text: str | None, owner: str | None) -> str | None:
        """Remove, add or replace a query; gives what is wrong."""
        known = any(True for _ in self.held.parts(id))
        if text is None:
            if not known:
                return f"there is no query {id!r} that could be removed"
            self._forget(id)
            return None
        mark = sha256(json.dumps([text, owner]).encode()).hexdigest()[:16]
        if known and self._marks.get(id) == mark:
            return None
        if known:
            self._forget(id)
        try:
            self.held.add(id, text, owner=owner)
            self._check(id)
        except OuzelError as error:
            if any(True for _ in self.held.parts(id)):
                self.held.remove(id)
            return str(error)
        self._marks[id] = mark
        return None

    def _forget(self, id: Any) -> None:
        self.held.remove(id)
        self._marks.pop(id, None)

    def _check(self, id: Any) -> None:
        from ouzel.spark.query_set import key_of

        schema = self._job.answer_schema
        for _, part in self.held.parts(id):
            check_columns(id, self.held.answer_schema(part), schema, narrowed=self._job.narrowed)
            own = key_of(part)
            if self._job.keys and own is not None and not own >= set(self._job.keys):
                keys = ", ".join(self._job.keys)
                raise OuzelError(
                    f"this stream is spread by {keys}, and not all events of an answer of this query need agree on "
                    f"that; make them with [{keys}], or, in the algebra, {keys} = {keys}.last"
                )

    def snapshot(self, *, with_program: bool = True) -> bytes:
        writer = Writer()
        return writer.finish({"set": writer.add_bytes(self.held.snapshot()), "marks": list(self._marks.items())})

    @classmethod
    def restore(cls, job: SetJob, blob: bytes) -> SetSession:
        from ouzel.query_set.api import QuerySet

        reader = Reader(blob)
        with decoding(SNAPSHOT):
            marks = dict(map(tuple, reader.head["marks"]))
            return cls(job, QuerySet.restore(reader.bytes(reader.head["set"])), marks)


def check_columns(query: Any, own: pa.Schema, answers: pa.Schema, *, narrowed: bool) -> None:
    """Refuse a query whose answers do not fit into the columns of all answers."""
    for column in own:
        if column.name in (QUERY, PROBLEM):
            raise OuzelError(f"query {query!r} gives a column '{column.name}', which is taken; rename it")
        place = answers.get_field_index(column.name)
        if place < 0:
            if narrowed:
                continue
            raise OuzelError(
                f"query {query!r} gives a column '{column.name}', which the answers of this stream do not have; "
                "name all columns that there can be in columns="
            )
        wanted = answers.field(place).type
        if not (_widens(column.type, wanted) if narrowed else column.type == wanted):
            raise OuzelError(
                f"query {query!r} gives the column '{column.name}' as {column.type}, and it is {wanted} in the answers "
                "of this set; give it another name, or a wider type in columns="
            )


def _widens(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a type can be shown as another."""
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


def step_set(job: SetJob, name: int, store: Store, watermark_ms: int, payloads: Iterable[bytes]) -> Step:
    """Bring a bucket to where it stands, let its time run on, take in changes and events, and save it."""
    head = _head(job, name, store)
    if name == CONTROL:
        return Step()
    part = job.names.index(name)
    session = _session(job, part, head, store)
    clock = job.share.clock
    # Spark's watermark is 0 until it has seen an event.
    movement = Movement(clock.watermark_tick(watermark_ms) if watermark_ms > 0 else None, list(payloads))
    answer = movement.apply(session)
    deadline = session.held.next_deadline
    old_timer_ms, head.timer_ms = head.timer_ms, None if deadline is None else clock.timer_ms(deadline)
    schema = job.answer_schema
    tables = [*shaped(answer, schema), *_told(job, part, session, schema)]
    whole = pa.concat_tables(tables) if tables else empty_table(schema)
    head.matches[QUERY] = head.matches.get(QUERY, 0) + sum(table.num_rows for table in answer.values())
    save(head, store, movement, session, steps_bytes_min=job.steps_bytes_min)
    store.put("head", head.dump())
    _keeper.keep(head, name, session)
    answers = tuple((0, payload) for payload in payloads_of(whole))
    return Step(old_timer_ms, head.timer_ms, answers, json.dumps(_report(job, part, head, session.held)))


def _told(job: SetJob, part: int, session: SetSession, schema: pa.Schema) -> Iterator[pa.Table]:
    """What is wrong with changes, as rows; of parts that all have the same queries the first one tells it."""
    problems, session.problems = session.problems, []
    if problems and (part == 0 or not job.keys):
        ids, texts = pa.array([id for id, _ in problems]), pa.array([text for _, text in problems])
        yield from shaped({0: pa.table({QUERY: ids, PROBLEM: texts})}, schema)


def _report(job: SetJob, part: int, head: Head, held: QuerySet) -> dict[str, Any]:
    from ouzel.query_set.snapshot import held_events

    counted = held.statistics
    told = {
        "matches": head.matches.get(QUERY, 0),
        # Every slice sees all events, so one of them counts for all.
        "late": held.late if job.keys or part == 0 else 0,
        "open_events": held_events(held),
        "open_runs": counted.get("instances", 0),
        "state_bytes": head.stored_bytes,
    }
    return {"bucket": job.names[part], "step": head.step, "queries": {"set of queries": told}}


def _head(job: SetJob, name: int, store: Store) -> Head:
    blob = store.get("head")
    if blob is not None:
        head = Head.load(blob)
        if head.terms != job.digest:
            raise StateError(_disagreement(_terms(store), json.loads(job.terms)))
        return head
    head = Head(terms=job.digest, chain=[sha256(f"{job.digest} {name}".encode()).hexdigest()[:32]])
    store.put("terms", seal(SET_TERMS, job.terms.encode()))
    store.put("head", head.dump())
    return head


def _terms(store: Store) -> dict[str, Any]:
    body = unseal(SET_TERMS, store.get("terms") or b"")
    with decoding(SET_TERMS):
        return dict(json.loads(bytes(body)))


def _disagreement(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What of the stored terms is not so any more, and what to do."""
    what = next((name for name in new if old.get(name) != new[name]), "version of Ouzel")
    if what == QUERIES_TERM:
        return (
            "the queries that the set begins with are not those that wrote this checkpoint; go back to them and change "
            "the set through changes=, or start from a new checkpoint"
        )
    return (
        f"this checkpoint was written for another {what}: {old.get(what)} then, {new.get(what)} now; go back to that, "
        "or start from a new checkpoint"
    )


def _session(job: SetJob, part: int, head: Head, store: Store) -> SetSession:
    kept = _keeper.take(head.terms, job.names[part])
    if kept is not None and kept[0] in head.chain:
        mark, session = kept
        catch_up(session, head, store, head.first + head.chain.index(mark))
        return session
    blob = snapshot_of(head, store)
    session = SetSession(job, job.fresh(part)) if blob is None else SetSession.restore(job, blob)
    catch_up(session, head, store, head.snapshot_at)
    return session
