"""What a stream stores on Spark, damaged: every value and every piece is refused or not needed, without Spark.

The number of damaged states is a quarter of OUZEL_DAMAGED_STATES; `make test-long` says 50,000.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from ouzel.errors import StateError
from ouzel.prepared import as_queries
from ouzel.query_set.snapshot import spread
from ouzel.runtime.program import dump, load, make_program
from ouzel.sealing import HEAD, SET_TERMS, STEP, TERMS, TOTALS, TOTALS_PIECE, Format, mark_of, seal
from ouzel.spark import bucket as steps
from ouzel.spark import query_set_worker as query_set_work
from ouzel.spark.bucket import StreamJob
from ouzel.spark.compatibility import Terms, disagreement
from ouzel.spark.partitioning import plan_shares
from ouzel.spark.payloads import to_payload
from ouzel.spark.query_set_worker import SetJob
from ouzel.spark.state_store import Head, Keeper, Movement
from ouzel.spark.streaming_totals import Standing, add_up
from ouzel.spark.tasks import Clock, Share, TotalsJob
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


def stored_stream(steps_bytes_min: int) -> Stored:
    program = make_program(as_queries(STREAM), events(0).schema, time="ts", type="type", streaming=True)
    parts = plan_shares(program, CLOCK)
    assert len(parts) == 1
    terms = Terms(1, (0,), (parts[0].share.program,)).dump()
    job = StreamJob((parts[0].share,), 1, (0,), terms, steps_bytes_min=steps_bytes_min)
    return stored_by(job.step)


def stored_set() -> Stored:
    (held,) = spread(query_set(), events(0).schema, 1, bounded=False)
    answers = pa.schema({"start": pa.int64(), "end": pa.int64(), "x": pa.int64()})
    job = SetJob(
        share=Share(b"", events(0).schema.serialize().to_pybytes(), "ts", ("query",), 0, CLOCK),
        answers=answers.serialize().to_pybytes(),
        parts=1,
        sets=(held.snapshot(),),
        narrowed=True,
        names=(0,),
        terms=json.dumps({"key": []}),
        steps_bytes_min=0,
    )
    return stored_by(job.step)


def stored_by(step: Callable[..., Any]) -> Stored:
    def stepped(store: MemoryStore, watermark_ms: int, payloads: list[bytes]) -> Any:
        # No worker keeps a session, so each step restores its state.
        for module in (steps, query_set_work):
            module._keeper = Keeper(0)
        return step(0, store, watermark_ms, payloads)

    return Stored(played(stepped, 1), played(stepped, 2), lambda store: stepped(store, CLOCK.timer_ms(40), []))


def stored_totals() -> Stored:
    text = "PATTERN SEQ(A a, B b) WHERE [id] GROUP BY a.name AGG COUNT, SUM(b.x) WITHIN 20"
    program = make_program(as_queries(text), events(0).schema, time="ts", type="type")
    (part,) = plan_shares(program, CLOCK, spread_totals=True)
    assert part.totals is not None
    totals = TotalsJob(dump(part.totals), 0, None, 1)
    job = StreamJob((part.share,), 1, (0,), totals=(totals,))
    told: list[list[bytes]] = []
    for seed in (1, 2):
        buckets = MemoryStore()
        for first in range(0, 60, 10):
            payload = to_payload(part.share.events(events(seed).slice(first, 10)))
            answers = job.step(0, buckets, CLOCK.timer_ms(max(0, first // 2 - 4)), [payload]).answers
            told.append([payload for _, payload in answers])

    def added(store: MemoryStore, payloads: list[bytes]) -> Any:
        return add_up(totals, 0, store, payloads)

    stores = MemoryStore(), MemoryStore()
    for number, payloads in enumerate(told):
        if payloads:
            added(stores[number // 6], payloads)
    assert all(store.pieces for store in stores)
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
    head = stored.store.values["head"]
    needless_to = 0 if kind == "totals" else Head.load(head).snapshot_at
    needed = [number for number in stored.store.pieces if not 0 < number <= needless_to]
    assert needed
    others = [*stored.other.pieces.values(), *stored.store.pieces.values()]
    for number in range(STATES // len(KINDS)):
        broken = stored.store.copy()
        if number % 2:
            broken.values["head"] = damaged(chance, head, stored.other.values["head"])
        else:
            # A whole piece at the wrong place is damage, too.
            place, other = chance.choice(needed), chance.choice(others)
            whole = stored.store.pieces[place]
            misplaced = other != whole and chance.random() < 0.1
            broken.pieces[place] = other if misplaced else damaged(chance, whole, other)
        with pytest.raises(StateError, match=r"new checkpoint|start anew"):
            stored.step(broken)
    for place in stored.store.pieces.keys() - set(needed):
        broken = stored.store.copy()
        broken.pieces[place] = b"nobody reads this"
        assert stored.step(broken) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_piece_is_named(kind: str) -> None:
    stored = KINDS[kind]()
    with pytest.raises(StateError, match="missing"):
        stored.step(MemoryStore(stored.store.values, {}))


def test_damaged_terms_are_refused() -> None:
    chance = random.Random(7)
    program = make_program(as_queries(QUERIES["sequence"]), events(0).schema, time="ts", type="type", streaming=True)
    terms = Terms(2, (0,), (dump(program),))
    blob, other = terms.dump(), replace(terms, buckets=3).dump()
    for _ in range(STATES // 10):
        with pytest.raises(StateError, match=r"damaged|empty"):
            disagreement(damaged(chance, blob, other), blob)
        with pytest.raises(StateError, match=r"damaged|empty"):
            load(damaged(chance, terms.programs[0], blob))


LOADERS: dict[Format, Callable[[bytes], Any]] = {
    HEAD: Head.load,
    STEP: Movement.load,
    TERMS: Terms.load,
    TOTALS: Standing.load,
    SET_TERMS: lambda blob: query_set_work._terms(MemoryStore({"terms": blob})),
}


@pytest.mark.parametrize("form", LOADERS, ids=lambda form: form.name)
@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe" * 40, b"\x04\0\0\0\xff\xff\xff\xff", b"[]", b"7", b"null", b'{"no": 1}', b"[" * 90_000]
)
def test_a_sealed_body_that_cannot_be_decoded_is_one_clear_error(form: Format, body: bytes) -> None:
    if form is SET_TERMS and body in (b"[]", b'{"no": 1}'):
        body = b"{"
    with pytest.raises(StateError, match=r"cannot be read by this version"):
        LOADERS[form](seal(form, body))
    with pytest.raises(StateError, match="but a part of a total"):
        LOADERS[form](seal(TOTALS_PIECE, body))


def test_undecodable_steps_and_totals_are_one_error() -> None:
    with pytest.raises(StateError, match="cannot be read"):
        Movement.load(Movement(None, [b"no table"]).dump("")).apply(None)  # type: ignore[arg-type]
    stored = stored_totals()
    piece = seal(TOTALS_PIECE, b"no table")
    standing = replace(Standing.load(stored.store.values["head"]), pieces=[mark_of(piece)])
    with pytest.raises(StateError, match="cannot be read"):
        stored.step(MemoryStore({"head": standing.dump()}, {0: piece}))
