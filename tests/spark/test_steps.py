"""Streams without Spark: its micro-batches, watermarks and timers are played here, and every step restores its state.

The answers must be those of the embedded engine on the whole input, whatever the micro-batches and the order of
arrival; nothing may come before its time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ouzel
from ouzel.errors import InputError, LimitError, StateError
from ouzel.prepared import as_queries
from ouzel.runtime.limits import Limits
from ouzel.runtime.program import make_program
from ouzel.spark import bucket as steps
from ouzel.spark.bucket import CONTROL, Step, StreamJob, step
from ouzel.spark.compatibility import CheckpointSignature
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import FIRST_PROBLEM, Clock, QueryGroup, from_payload
from ouzel.spark.worker import pack

SCHEMA = pa.schema({"type": pa.string(), "ts": pa.timestamp("us"), "id": pa.int64(), "row": pa.int64()})
QUERIES = {
    "lonely": "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 3 ms",
    "middle": "PATTERN SEQ(A a, !(C c), B b) WHERE [id] WITHIN 4 ms",
    "lonely_anywhere": "PATTERN SEQ(A a, !(B b)) WITHIN 1 ms",
}
ORIGIN_US = 1_700_000_000_000_000


def job_for(
    queries: object,
    buckets: int = 2,
    *,
    schema: pa.Schema = SCHEMA,
    delay_ms: int = 0,
    late: bool = False,
    log_bytes_min: int = 1 << 20,
    **options: object,
) -> StreamJob:
    program = make_program(as_queries(queries), schema, time="ts", type="type", streaming=True, **options)
    parts = plan_query_groups(program, Clock(tick_ns=1_000))
    groups = tuple(part.group for part in parts)
    signature = CheckpointSignature(buckets, (delay_ms,), tuple(group.program for group in groups)).dump()
    names = tuple(range(buckets * len(parts)))
    return StreamJob(groups, buckets, names, signature, late, log_bytes_min)


@dataclass
class MemoryStore:
    """A bucket's place in a state store."""

    values: dict[str, bytes] = field(default_factory=dict)
    chunks: dict[int, bytes] = field(default_factory=dict)

    def get(self, name: str) -> bytes | None:
        return self.values.get(name)

    def put(self, name: str, value: bytes) -> None:
        self.values[name] = value

    def get_chunk(self, number: int) -> bytes | None:
        return self.chunks.get(number)

    def put_chunk(self, number: int, value: bytes) -> None:
        self.chunks[number] = value

    def remove_chunk(self, number: int) -> None:
        self.chunks.pop(number, None)

    def copy(self) -> MemoryStore:
        return MemoryStore(dict(self.values), dict(self.chunks))


@dataclass
class Stream:
    """Spark's part: where timers stand, how far the watermark is, what has been saved and written."""

    job: StreamJob
    delay_ms: int
    watermark_ms: int = 0
    newest_us: int | None = None
    stores: dict[int, MemoryStore] = field(default_factory=dict)
    timers: dict[int, set[int]] = field(default_factory=dict)
    written: dict[str, list[dict]] = field(default_factory=dict)
    late: dict[str, list[dict]] = field(default_factory=dict)
    reports: dict[int, Step] = field(default_factory=dict)
    # Whether the worker of the next step has no session kept, and whether the step is tried twice.
    forgets: Callable[[], bool] = lambda: True
    fails: Callable[[], bool] = lambda: False

    def micro_batch(self, events: pa.Table) -> None:
        if self.newest_us is not None:
            self.watermark_ms = max(self.watermark_ms, self.newest_us // 1000 - self.delay_ms)
        payloads: dict[int, list[bytes]] = {}
        buckets = [pa.array([row % self.job.buckets for row in events["id"].to_pylist()], pa.int32())] * len(
            self.job.groups
        )
        columns = [f"bucket {number}" for number in range(len(buckets))]
        wide = events
        for column, group, values in zip(columns, self.job.groups, buckets, strict=True):
            spread = group.queries != ("lonely_anywhere",)
            wide = wide.append_column(column, values if spread else pa.array([0] * len(events), pa.int32()))
        for batch in pack(self.job, columns, wide.to_batches()):
            payloads.setdefault(batch.column(0)[0].as_py(), []).append(batch.column(1)[0].as_py())
        for name in sorted(payloads):
            self._step(name, payloads[name], None)
        for name in sorted(self.timers):
            for timer_ms in sorted(timer for timer in self.timers[name] if timer <= self.watermark_ms):
                self._step(name, [], timer_ms)
                self.timers[name].discard(timer_ms)
        if events.num_rows:
            newest_us = max(events["ts"].cast(pa.int64()).to_pylist())
            self.newest_us = newest_us if self.newest_us is None else max(self.newest_us, newest_us)

    def _step(self, name: int, payloads: list[bytes], fired_ms: int | None) -> None:
        store = self.stores.setdefault(name, MemoryStore())
        if self.forgets():
            steps._sessions = steps.SessionCache()
        if self.fails():
            # An attempt of Spark's that comes to nothing: what it stored is thrown away, what the worker keeps is not.
            step(self.job, name, store.copy(), self.watermark_ms, payloads)
        done = step(self.job, name, store, self.watermark_ms, payloads)
        self.reports[name] = done
        timers = self.timers.setdefault(name, set())
        if done.old_timer_ms not in (None, fired_ms, done.timer_ms):
            timers.discard(done.old_timer_ms)
        if done.timer_ms is not None and done.timer_ms != done.old_timer_ms:
            assert done.timer_ms > self.watermark_ms, "a timer in the past would fire at once, for nothing"
            timers.add(done.timer_ms)
        assert len(timers - {fired_ms}) <= 1
        names = [query for group in self.job.groups for query in group.queries]
        for number, payload in done.answers:
            rows = from_payload(payload)
            if number < 0:
                self.late.setdefault(names[~number], []).extend(rows.to_pylist())
                continue
            assert all(end <= self.watermark_ms * 1000 for end in rows["end"].cast(pa.int64()).to_pylist())
            self.written.setdefault(names[number], []).extend(rows.to_pylist())

    def reported(self) -> list[dict]:
        """What each bucket told last, by query."""
        return [json.loads(step.report)["queries"] for step in self.reports.values() if step.report]


def table_of(rows: list[tuple[str, int, int]]) -> pa.Table:
    columns = zip(*[(kind, ORIGIN_US + tick, id_, row) for row, (kind, tick, id_) in enumerate(rows)], strict=True)
    return pa.table([pa.array(list(c)).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def as_set(rows: list[dict]) -> list[str]:
    return sorted(map(repr, rows))


# Some at the same moment as others.
TICKS = st.one_of(st.integers(0, 12_000), st.integers(0, 6).map(lambda moment: 2_000 * moment))
EVENTS = st.lists(st.tuples(st.sampled_from("ABCD"), TICKS, st.integers(0, 3)), min_size=1, max_size=30)


@settings(max_examples=60)
@given(EVENTS, st.data())
def test_any_micro_batches_give_batch_answer(rows: list[tuple[str, int, int]], data: st.DataObject) -> None:
    delay_us = 4_000
    # An order of arrival in which nothing comes later than the delay allows.
    late_by = data.draw(st.lists(st.integers(0, delay_us), min_size=len(rows), max_size=len(rows)))
    arrival = sorted(range(len(rows)), key=lambda row: rows[row][1] + late_by[row])
    table = table_of(rows)
    stream = Stream(
        job_for(QUERIES, log_bytes_min=data.draw(st.sampled_from([0, 3_000, 1 << 20]))),
        delay_ms=delay_us // 1000 + 1,
        forgets=lambda: data.draw(st.booleans()),
        fails=lambda: data.draw(st.integers(0, 9)) == 9,
    )
    while arrival:
        size = data.draw(st.integers(1, len(arrival)))
        chosen, arrival = arrival[:size], arrival[size:]
        stream.micro_batch(table.take(chosen))
    flush(stream)
    expected = ouzel.match(table, QUERIES)
    for name in QUERIES:
        assert as_set(stream.written.get(name, [])) == as_set(expected[name].to_pylist())


def flush(stream: Stream) -> None:
    """An event of no interest, far away; the batch after it finds time moved on."""
    stream.micro_batch(table_of([("Z", 10**9, 0)]))
    stream.micro_batch(table_of([("Z", 10**9, 1)]).slice(0, 0))


def test_negated_end_is_released_at_its_deadline() -> None:
    job = job_for({"lonely": QUERIES["lonely"]}, buckets=1)
    stream = Stream(job, delay_ms=0)
    stream.micro_batch(table_of([("A", 1_500, 1)]))
    # The match ends at 4,499 us: a watermark of 4 ms has not reached that, one of 5 ms has.
    stream.micro_batch(table_of([("Z", 4_999, 1)]))
    stream.micro_batch(table_of([("Z", 5_000, 1)]))
    assert stream.written == {} and stream.watermark_ms == ORIGIN_US // 1000 + 4
    stream.micro_batch(table_of([("Z", 5_000, 1)]).slice(0, 0))
    assert [row["a"]["row"] for row in stream.written["lonely"]] == [0]


def test_a_late_event_does_not_undo_what_has_been_settled() -> None:
    """Spark hands over the rows of a batch before its expired timers, so a late B comes before A's release."""
    stream = Stream(job_for({"lonely": QUERIES["lonely"]}, buckets=1), delay_ms=0)
    stream.micro_batch(table_of([("A", 1_000, 1)]))
    stream.micro_batch(table_of([("Z", 9_000, 1)]))
    stream.micro_batch(table_of([("B", 2_000, 1)]))
    assert [row["a"]["row"] for row in stream.written["lonely"]] == [0]


# ── What is late ───────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=40)
@given(EVENTS, st.data())
def test_late_events_are_counted_for_each_query_and_given_out_once(
    rows: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """Any order of arrival at all: what is late is what the watermark had passed, and the rest is answered as ever."""
    table = table_of(rows)
    job = job_for(QUERIES, late=True, log_bytes_min=data.draw(st.sampled_from([0, 1 << 20])))
    stream = Stream(job, delay_ms=1, forgets=lambda: data.draw(st.booleans()))
    arrival = data.draw(st.permutations(range(len(rows))))
    on_time: list[int] = []
    late: list[int] = []
    while arrival:
        size = data.draw(st.integers(1, len(arrival)))
        chosen, arrival = arrival[:size], arrival[size:]
        newest_us = -(10**18) if stream.newest_us is None else stream.newest_us
        watermark_us = max(stream.watermark_ms, newest_us // 1000 - 1) * 1000
        for row in chosen:
            (on_time if ORIGIN_US + rows[row][1] > watermark_us else late).append(row)
        stream.micro_batch(table.take(chosen))
    flush(stream)
    expected = ouzel.match(table.take(sorted(on_time)), QUERIES) if on_time else {}
    wanted = {"lonely": "AB", "middle": "ABC", "lonely_anywhere": "AB"}
    reported = stream.reported()
    for name in QUERIES:
        assert as_set(stream.written.get(name, [])) == as_set(expected[name].to_pylist() if expected else [])
        missed = [row for row in late if rows[row][0] in wanted[name]]
        assert sorted(row["row"] for row in stream.late.get(name, [])) == sorted(missed)
        assert sum(bucket[name]["late"] for bucket in reported if name in bucket) == len(missed)
        matches = sum(bucket[name]["matches"] for bucket in reported if name in bucket)
        assert matches == len(stream.written.get(name, []))


@pytest.mark.parametrize("forgets", [True, False])
def test_late_may_change_on_an_old_checkpoint(forgets: bool) -> None:
    """With a snapshot and with a session that the worker has kept."""
    query = {"lonely": QUERIES["lonely"]}
    stream = Stream(job_for(query, buckets=1, log_bytes_min=0), delay_ms=0, forgets=lambda: forgets)
    for rows in ([("A", 1_000, 1)], [("Z", 9_000, 1)], [("A", 2_000, 1)]):
        stream.micro_batch(table_of(rows))
    assert steps.Manifest.load(stream.stores[0].values["manifest"]).snapshot_at
    stream.job = job_for(query, buckets=1, log_bytes_min=0, late=True)
    stream.micro_batch(table_of([("B", 3_000, 1)]))
    stream.job = job_for(query, buckets=1, log_bytes_min=0)
    stream.micro_batch(table_of([("A", 4_000, 1)]))
    assert [row["type"] for row in stream.late["lonely"]] == ["B"]
    assert stream.reported()[0]["lonely"]["late"] == 3


# ── What is stored ─────────────────────────────────────────────────────────────────────────────────


def test_what_is_written_with_a_step_does_not_grow_with_the_state() -> None:
    """Snapshots are written as rarely as steps are small beside them."""
    job = job_for({"lonely": "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 1 hour"}, buckets=1, log_bytes_min=0)
    stream = Stream(job, delay_ms=0)
    rows_per_batch = 50
    written = []
    for batch in range(60):
        rows = [("A", 1_000 * (batch * rows_per_batch + row), row) for row in range(rows_per_batch)]
        before = dict(stream.stores[0].chunks) if batch else {}
        stream.micro_batch(table_of(rows))
        after = stream.stores[0].chunks
        written.append(sum(len(chunk) for number, chunk in after.items() if before.get(number) is not chunk))
    assert stream.reported()[0]["lonely"]["open_events"] == 60 * rows_per_batch
    last_snapshot = steps.Manifest.load(stream.stores[0].values["manifest"]).snapshot_bytes
    half = written[30:]
    assert sum(half) / len(half) < last_snapshot / 5
    assert sorted(half)[len(half) // 2] < last_snapshot / 10


def test_a_worker_that_was_away_catches_up_with_what_others_did() -> None:
    """Two workers take turns at one bucket; the second has kept a session that is some steps behind."""
    job = job_for({"lonely": QUERIES["lonely"]}, buckets=1)
    keepers = [steps.SessionCache() for _ in range(2)]
    stream, alone = Stream(job, delay_ms=0, forgets=lambda: False), Stream(job, delay_ms=0)
    before = steps._sessions
    try:
        for batch in range(40):
            rows = table_of([("AAB"[batch % 3], 1_000 * batch, batch % 2)])
            steps._sessions = keepers[batch % 7 == 0]
            stream.micro_batch(rows)
            alone.micro_batch(rows)
    finally:
        steps._sessions = before
    assert stream.written == alone.written != {}


def test_sessions_that_a_worker_keeps_are_bounded() -> None:
    job = replace(job_for({"lonely": QUERIES["lonely"]}, buckets=1), cache_bytes=10_000)
    keeper = steps.SessionCache()
    before, steps._sessions = steps._sessions, keeper
    try:
        stream = Stream(job, delay_ms=0, forgets=lambda: False)
        for batch in range(30):
            stream.micro_batch(table_of([("A", 1_000_000 * batch + row, row) for row in range(20)]))
        assert len(keeper._cached) == 0
    finally:
        steps._sessions = before


# ── Limits ─────────────────────────────────────────────────────────────────────────────────────────


def test_limit_stops_stream_and_can_be_raised() -> None:
    query = {"lonely": QUERIES["lonely"]}
    stream = Stream(job_for(query, buckets=1, limits=Limits(max_buffered_events=3)), delay_ms=0)
    stream.micro_batch(table_of([("A", 10 * row, row) for row in range(3)]))
    before = {name: store.copy() for name, store in stream.stores.items()}
    with pytest.raises(LimitError, match="query 'lonely' holds 4 events, more than max_buffered_events=3"):
        stream.micro_batch(table_of([("A", 100, 7)]))
    again = replace(stream, job=job_for(query, buckets=1, limits=Limits(max_buffered_events=10)), stores=before)
    again.micro_batch(table_of([("A", 100, 7)]))
    flush(again)
    assert len(again.written["lonely"]) == 4


# ── What is refused ────────────────────────────────────────────────────────────────────────────────


RETURNING = "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 3 ms RETURN Lonely(a.row AS row)"


def stored(queries: object = RETURNING, **options: object) -> dict[int, MemoryStore]:
    """What a stream has stored after one event."""
    stream = Stream(job_for(queries, **options), delay_ms=0)
    stream.micro_batch(table_of([("A", 1, 0)]))
    return stream.stores


def problem_of(job: StreamJob, stores: dict[int, MemoryStore]) -> str | None:
    """What is said when the stream comes back as `job`; every bucket that has state says the same."""
    said = set()
    for name, store in stores.items():
        try:
            step(job, name, store.copy(), 0, [])
            said.add(None)
        except StateError as error:
            said.add(str(error))
    (found,) = said
    return found


def with_column(name: str, kind: pa.DataType) -> pa.Schema:
    names = [field.name for field in SCHEMA]
    field = pa.field(name, kind)
    return SCHEMA.set(names.index(name), field) if name in names else SCHEMA.append(field)


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ({}, {"buckets": 4}, "written with buckets=2, and the stream now asks for 4; set buckets=2"),
        ({}, {"delay_ms": 7}, "a watermark 0 s behind, and the stream now asks for 7 ms; set the old delay"),
        ({}, {"queries": RETURNING.replace("3 ms", "4 ms")}, "query 'query' is not the one that wrote this checkpoint"),
        ({}, {"queries": QUERIES}, "by the queries query, and the stream now has lonely, middle, lonely_anywhere"),
        ({}, {"schema": with_column("id", pa.string())}, "the column 'id' was of type int64 .* and is string now"),
        ({}, {"schema": with_column("row", pa.int32())}, "the column 'row' was of type int64 .* and is int32 now"),
        (
            {"queries": QUERIES["lonely"]},
            {"queries": QUERIES["lonely"], "schema": with_column("new", pa.int64())},
            "the column 'new' is new, and a query of this checkpoint shows all columns",
        ),
        (
            {"schema": with_column("new", pa.int64()), "queries": QUERIES["lonely"]},
            {"queries": QUERIES["lonely"]},
            "the column 'new', which the queries of this checkpoint use, is gone",
        ),
    ],
)
def test_what_has_changed_since_a_checkpoint_is_refused(before: dict, now: dict, message: str) -> None:
    if "schema" in before:
        job = job_for(**{"queries": RETURNING, **before})
        store = MemoryStore()
        step(job, CONTROL, store, 0, [])
        stores = {CONTROL: store}
    else:
        stores = stored(**before)
    found = problem_of(job_for(**{"queries": RETURNING, **now}), stores)
    assert found is not None and re.search(message, found) and found.endswith("or start from a new checkpoint")


@pytest.mark.parametrize(
    "now",
    [
        {},
        {"schema": with_column("new", pa.string())},
        {"limits": Limits(max_buffered_events=10)},
        {"queries": RETURNING.replace(" ", "\n").replace("3\nms", "3000 us")},
    ],
)
def test_what_may_change_since_a_checkpoint(now: dict) -> None:
    assert problem_of(job_for(**{"queries": RETURNING, **now}), stored()) is None


def test_empty_bucket_does_not_hide_changed_queries() -> None:
    """More buckets than before: the new ones have no state that could tell, so the control bucket does."""
    assert stored().keys() == {0, CONTROL}


def test_damaged_state_is_refused() -> None:
    job = job_for(RETURNING)
    store = stored()[0]
    manifest = store.values["manifest"]
    for broken in (manifest[:-1], manifest[:40] + bytes([manifest[40] ^ 1]) + manifest[41:], b""):
        with pytest.raises(StateError):
            step(job, 0, MemoryStore({**store.values, "manifest": broken}, store.chunks), 0, [])
    steps._sessions = steps.SessionCache()
    with pytest.raises(StateError, match="missing"):
        step(job, 0, MemoryStore(store.values, {}), 0, [])


def test_a_null_time_is_one_clear_error() -> None:
    group: QueryGroup = job_for(QUERIES["lonely"]).groups[0]
    events = pa.table({"type": ["A", "A"], "ts": pa.array([None, 5], pa.timestamp("us")), "id": [1, 2], "row": [0, 1]})
    with pytest.raises(InputError, match=r"the time column 'ts' is null in 1 of 2 rows.*IS NOT NULL"):
        group.events(events)


def test_stopped_query_is_reported_once() -> None:
    queries = {"many": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 9 ms", "good": QUERIES["lonely"]}

    def job(most: int, *, reports: bool) -> StreamJob:
        made = job_for(queries, buckets=1, limits=Limits(max_matches_per_timestamp=most))
        return replace(made, groups=tuple(replace(group, reports=reports) for group in made.groups))

    def told(made: StreamJob, events: pa.Table, watermark_us: int) -> list[tuple[int, dict]]:
        steps._sessions = steps.SessionCache()
        (column,) = columns = ["bucket 0"]
        wide = events.append_column(column, pa.array([0] * len(events), pa.int32()))
        packed = [batch.column(1)[0].as_py() for batch in pack(made, columns, wide.to_batches())][1:]
        done = step(made, 0, store, (ORIGIN_US + watermark_us) // 1000, packed)
        return [(number, row) for number, payload in done.answers for row in from_payload(payload).to_pylist()]

    store = MemoryStore()
    first = table_of([*[("A", 100 * number, 1) for number in range(1, 7)], ("B", 1_000, 1), ("A", 1_500, 2)])
    assert told(job(5, reports=False), first, 0) == []
    with pytest.raises(LimitError, match="query 'many'"):
        told(job(5, reports=False), first.slice(0, 0), 2_000)
    # A checkpoint of a stream that failed can be continued so.
    ((number, row),) = told(job(5, reports=True), first.slice(0, 0), 2_000)
    assert number == FIRST_PROBLEM and "stopped at time" in row["problem"] and "bucket 0" in row["problem"]
    later = table_of([("A", 2_500, 1), ("B", 2_600, 1)])
    assert told(job(500, reports=True), later, 2_000) == []
    assert {number for number, _ in told(job(500, reports=True), later.slice(0, 0), 10**6)} == {1}
    with pytest.raises(LimitError, match="query 'many' stopped"):
        told(job(500, reports=False), later.slice(0, 0), 10**6)
