"""What a stream stores on Spark, damaged: every value and every chunk is refused or not needed, without Spark.

The number of damaged states is a quarter of OUZEL_DAMAGED_STATES; `make test-long` says 50,000.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from ouzel.errors import StateError
from ouzel.prepared import as_queries
from ouzel.runtime.program import dump, load, make_program
from ouzel.sealing import LOG_RECORD, MANIFEST, SIGNATURE, TOTALS, TOTALS_CHUNK, Format, mark_of, seal
from ouzel.spark import bucket
from ouzel.spark.bucket import StreamJob
from ouzel.spark.compatibility import CheckpointSignature, incompatibility
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import Clock, QueryGroup, to_payload
from ouzel.spark.query_set_worker import SetJob
from ouzel.spark.state_store import LogRecord, Manifest, SessionCache
from ouzel.spark.totals import TotalsJob, TotalsState, merge_micro_batch
from tests.runtime.damage import PAIRS, QUERIES, SEVERAL, damaged, events, query_set
from tests.spark.test_steps import MemoryStore

STATES = int(os.environ.get("OUZEL_DAMAGED_STATES", "4000")) // 4
CLOCK = Clock(1_000_000, 1 << 20)
STREAM = {name: query for name, query in SEVERAL.items() if query is not PAIRS}


@dataclass
class Stored:
    """A store as it is after some micro-batches, another of the same kind, and the next step from there."""

    store: MemoryStore
    other: MemoryStore
    step: Callable[[MemoryStore], Any]


def played(step: Callable[[MemoryStore, int, list[bytes]], Any], seed: int) -> MemoryStore:
    store = MemoryStore()
    table = events(seed)
    for first in range(0, 60, 20):
        step(store, CLOCK.timer_ms(max(0, first // 2 - 4)), [to_payload(table.slice(first, 20))])
    return store


def stored_stream(log_bytes_min: int) -> Stored:
    program = make_program(as_queries(STREAM), events(0).schema, time="ts", type="type", streaming=True)
    parts = plan_query_groups(program, CLOCK)
    assert len(parts) == 1
    signature = CheckpointSignature(1, (0,), (parts[0].group.program,)).dump()
    job = StreamJob((parts[0].group,), 1, (0,), signature, log_bytes_min=log_bytes_min)
    return stored_by(job)


def stored_set() -> Stored:
    (held,) = query_set().slices(events(0).schema, 1, bounded=False)
    answers = pa.schema({"start": pa.int64(), "end": pa.int64(), "x": pa.int64()})
    job = SetJob(
        group=QueryGroup(b"", events(0).schema.serialize().to_pybytes(), "ts", ("query",), 0, CLOCK),
        answers=answers.serialize().to_pybytes(),
        parts=1,
        sets=(held.snapshot(),),
        narrowed=True,
        names=(0,),
        signature=CheckpointSignature(1, (0,), query_set={"key": []}).dump(),
        log_bytes_min=0,
    )
    return stored_by(job)


def stored_by(job: Any) -> Stored:
    def stepped(store: MemoryStore, watermark_ms: int, payloads: list[bytes]) -> Any:
        # No worker keeps a session, so each step restores its state.
        bucket._sessions = SessionCache()
        return bucket.step(job, 0, store, watermark_ms, payloads)

    return Stored(played(stepped, 1), played(stepped, 2), lambda store: stepped(store, CLOCK.timer_ms(40), []))


def stored_totals() -> Stored:
    text = "PATTERN SEQ(A a, B b) WHERE [id] GROUP BY a.name AGG COUNT, SUM(b.x) WITHIN 20"
    program = make_program(as_queries(text), events(0).schema, time="ts", type="type")
    (part,) = plan_query_groups(program, CLOCK, merge_totals=True)
    assert part.totals is not None
    totals = TotalsJob(dump(part.totals), 0, None, 1)
    job = StreamJob((part.group,), 1, (0,), totals=(totals,))
    told: list[list[bytes]] = []
    for seed in (1, 2):
        buckets = MemoryStore()
        for first in range(0, 60, 10):
            payload = to_payload(part.group.events(events(seed).slice(first, 10)))
            answers = bucket.step(job, 0, buckets, CLOCK.timer_ms(max(0, first // 2 - 4)), [payload]).answers
            told.append([payload for _, payload in answers])

    def added(store: MemoryStore, payloads: list[bytes]) -> Any:
        return merge_micro_batch(totals, 0, store, payloads)

    stores = MemoryStore(), MemoryStore()
    for number, payloads in enumerate(told):
        if payloads:
            added(stores[number // 6], payloads)
    assert all(store.chunks for store in stores)
    last = next(payloads for payloads in reversed(told) if payloads)
    return Stored(*stores, lambda store: added(store, last))


KINDS = {
    "steps": lambda: stored_stream(1 << 20),
    "snapshot and steps": lambda: stored_stream(0),
    "snapshot": lambda: stored_stream(4_000),
    "set": stored_set,
    "totals": stored_totals,
}


@pytest.mark.parametrize("kind", KINDS)
def test_damage_in_a_store_is_refused_or_not_read(kind: str) -> None:
    """A step that the snapshot has made needless may be damaged: then the answers are the same."""
    chance = random.Random(kind)
    stored = KINDS[kind]()
    expected = stored.step(stored.store.copy())
    manifest = stored.store.values["manifest"]
    needless_to = 0 if kind == "totals" else Manifest.load(manifest).snapshot_at
    needed = [number for number in stored.store.chunks if not 0 < number <= needless_to]
    assert needed
    others = [*stored.other.chunks.values(), *stored.store.chunks.values()]
    for number in range(STATES // len(KINDS)):
        broken = stored.store.copy()
        if number % 2:
            broken.values["manifest"] = damaged(chance, manifest, stored.other.values["manifest"])
        else:
            # A whole chunk at the wrong place is damage, too.
            place, other = chance.choice(needed), chance.choice(others)
            whole = stored.store.chunks[place]
            misplaced = other != whole and chance.random() < 0.1
            broken.chunks[place] = other if misplaced else damaged(chance, whole, other)
        with pytest.raises(StateError, match=r"new checkpoint|start from the beginning"):
            stored.step(broken)
    for place in stored.store.chunks.keys() - set(needed):
        broken = stored.store.copy()
        broken.chunks[place] = b"nobody reads this"
        assert stored.step(broken) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_piece_is_named(kind: str) -> None:
    stored = KINDS[kind]()
    with pytest.raises(StateError, match="missing"):
        stored.step(MemoryStore(stored.store.values, {}))


def test_damaged_terms_are_refused() -> None:
    chance = random.Random(7)
    program = make_program(as_queries(QUERIES["sequence"]), events(0).schema, time="ts", type="type", streaming=True)
    signature = CheckpointSignature(2, (0,), (dump(program),))
    blob, other = signature.dump(), replace(signature, buckets=3).dump()
    for _ in range(STATES // 10):
        with pytest.raises(StateError, match=r"damaged|empty"):
            incompatibility(damaged(chance, blob, other), blob)
        with pytest.raises(StateError, match=r"damaged|empty"):
            load(damaged(chance, signature.programs[0], blob))


LOADERS: dict[Format, Callable[[bytes], Any]] = {
    MANIFEST: Manifest.load,
    LOG_RECORD: LogRecord.load,
    SIGNATURE: CheckpointSignature.load,
    TOTALS: TotalsState.load,
}


@pytest.mark.parametrize("form", LOADERS, ids=lambda form: form.name)
@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe" * 40, b"\x04\0\0\0\xff\xff\xff\xff", b"[]", b"7", b"null", b'{"no": 1}', b"[" * 90_000]
)
def test_a_sealed_body_that_cannot_be_decoded_is_one_clear_error(form: Format, body: bytes) -> None:
    with pytest.raises(StateError, match=r"cannot be read by this version"):
        LOADERS[form](seal(form, body))
    with pytest.raises(StateError, match="but a part of a total"):
        LOADERS[form](seal(TOTALS_CHUNK, body))


def test_undecodable_steps_and_totals_are_one_error() -> None:
    with pytest.raises(StateError, match="cannot be read"):
        LogRecord.load(LogRecord(None, [b"no table"]).dump("")).apply(None)  # type: ignore[arg-type]
    stored = stored_totals()
    chunk = seal(TOTALS_CHUNK, b"no table")
    status = replace(TotalsState.load(stored.store.values["manifest"]), chunks=[mark_of(chunk)])
    with pytest.raises(StateError, match="cannot be read"):
        stored.step(MemoryStore({"manifest": status.dump()}, {0: chunk}))
