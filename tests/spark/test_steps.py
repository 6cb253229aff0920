"""Streams without Spark: its micro-batches, watermarks and timers are played here, and every step restores its state.

The answers must be those of the embedded engine on the whole input, whatever the micro-batches and the order of
arrival; nothing may come before its time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ouzel
from ouzel.errors import InputError, StateError
from ouzel.prepared import as_queries
from ouzel.runtime.program import make_program
from ouzel.spark.packing import from_payload
from ouzel.spark.shares import plan_shares
from ouzel.spark.worker import Clock, Share, StreamJob, pack, step_bucket

SCHEMA = pa.schema({"type": pa.string(), "ts": pa.timestamp("us"), "id": pa.int64(), "row": pa.int64()})
QUERIES = {
    "lonely": "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 3 ms",
    "middle": "PATTERN SEQ(A a, !(C c), B b) WHERE [id] WITHIN 4 ms",
    "lonely_anywhere": "PATTERN SEQ(A a, !(B b)) WITHIN 1 ms",
}
ORIGIN_US = 1_700_000_000_000_000


def job_for(queries: object, buckets: int = 2) -> StreamJob:
    program = make_program(as_queries(queries), SCHEMA, time="ts", type="type", streaming=True)
    parts = plan_shares(program, Clock(tick_ns=1_000))
    return StreamJob(tuple(part.share for part in parts), buckets, tuple(range(buckets * len(parts))))


@dataclass
class Stream:
    """Spark's part: where timers stand, how far the watermark is, what has been saved and written."""

    job: StreamJob
    delay_ms: int
    watermark_ms: int = 0
    newest_us: int | None = None
    saved: dict[int, bytes] = field(default_factory=dict)
    timers: dict[int, set[int]] = field(default_factory=dict)
    written: dict[str, list[dict]] = field(default_factory=dict)

    def micro_batch(self, events: pa.Table) -> None:
        if self.newest_us is not None:
            self.watermark_ms = max(self.watermark_ms, self.newest_us // 1000 - self.delay_ms)
        payloads: dict[int, list[bytes]] = {}
        buckets = [pa.array([row % self.job.buckets for row in events["id"].to_pylist()], pa.int32())] * len(
            self.job.shares
        )
        columns = [f"bucket {number}" for number in range(len(buckets))]
        wide = events
        for column, share, values in zip(columns, self.job.shares, buckets, strict=True):
            spread = share.queries != ("lonely_anywhere",)
            wide = wide.append_column(column, values if spread else pa.array([0] * len(events), pa.int32()))
        for batch in pack(self.job.shares, columns, self.job.names, wide.to_batches()):
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
        step = step_bucket(self.job, name, self.saved.get(name), self.watermark_ms, payloads)
        timers = self.timers.setdefault(name, set())
        if step.old_timer_ms not in (None, fired_ms, step.timer_ms):
            timers.discard(step.old_timer_ms)
        if step.timer_ms is not None and step.timer_ms != step.old_timer_ms:
            assert step.timer_ms > self.watermark_ms, "a timer in the past would fire at once, for nothing"
            timers.add(step.timer_ms)
        assert len(timers - {fired_ms}) <= 1
        self.saved[name] = step.saved
        names = [query for share in self.job.shares for query in share.queries]
        for number, payload in step.answers:
            rows = from_payload(payload)
            assert all(end <= self.watermark_ms * 1000 for end in rows["end"].cast(pa.int64()).to_pylist())
            self.written.setdefault(names[number], []).extend(rows.to_pylist())


def table_of(rows: list[tuple[str, int, int]]) -> pa.Table:
    columns = zip(*[(kind, ORIGIN_US + tick, id_, row) for row, (kind, tick, id_) in enumerate(rows)], strict=True)
    return pa.table([pa.array(list(c)).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def as_set(rows: list[dict]) -> list[str]:
    return sorted(map(repr, rows))


EVENTS = st.lists(
    st.tuples(st.sampled_from("ABCD"), st.integers(0, 12_000), st.integers(0, 3)), min_size=1, max_size=30
)


@settings(max_examples=60)
@given(EVENTS, st.data())
def test_any_micro_batches_and_any_order_within_the_delay_give_the_batch_answer(
    rows: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    delay_us = 4_000
    # An order of arrival in which nothing comes later than the delay allows.
    late_by = data.draw(st.lists(st.integers(0, delay_us), min_size=len(rows), max_size=len(rows)))
    arrival = sorted(range(len(rows)), key=lambda row: rows[row][1] + late_by[row])
    table = table_of(rows)
    stream = Stream(job_for(QUERIES), delay_ms=delay_us // 1000 + 1)
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


def test_a_negated_end_is_released_neither_before_its_instant_nor_later_than_need_be() -> None:
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


# ── What is refused ────────────────────────────────────────────────────────────────────────────────


def saved_state(queries: object = QUERIES["lonely"], buckets: int = 2) -> tuple[StreamJob, bytes]:
    job = job_for(queries, buckets)
    (share,) = job.shares
    events = table_of([("A", 1, 0)]).append_column("bucket", pa.array([0], pa.int32()))
    (batch,) = pack(job.shares, ["bucket"], job.names, events.to_batches())
    assert share.queries == ("query",)
    return job, step_bucket(job, 0, None, 0, [batch.column(1)[0].as_py()]).saved


def test_another_number_of_buckets_is_refused() -> None:
    _, saved = saved_state(buckets=2)
    with pytest.raises(StateError, match="written with buckets=2, and the stream now asks for 4"):
        step_bucket(job_for(QUERIES["lonely"], buckets=4), 0, saved, 0, [])


def test_the_state_of_another_query_is_refused() -> None:
    _, saved = saved_state()
    with pytest.raises(StateError, match="another query"):
        step_bucket(job_for(QUERIES["middle"]), 0, saved, 0, [])


def test_damaged_state_is_refused() -> None:
    job, saved = saved_state()
    for broken in (saved[:-1], saved[:40] + bytes([saved[40] ^ 1]) + saved[41:], b""):
        with pytest.raises(StateError):
            step_bucket(job, 0, broken, 0, [])


def test_a_null_time_is_one_clear_error() -> None:
    share: Share = job_for(QUERIES["lonely"]).shares[0]
    events = pa.table({"type": ["A", "A"], "ts": pa.array([None, 5], pa.timestamp("us")), "id": [1, 2], "row": [0, 1]})
    with pytest.raises(InputError, match=r"the time column 'ts' is null in 1 of 2 rows.*IS NOT NULL"):
        share.events(events)
