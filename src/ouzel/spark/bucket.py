"""One call by Spark for one bucket of a stream. Runs on Spark's workers, and in tests without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Protocol

import pyarrow as pa

from ouzel.errors import StateError
from ouzel.runtime.program import Program, load
from ouzel.runtime.session import Session
from ouzel.spark.compatibility import digest_of, incompatibility
from ouzel.spark.payloads import Clock, QueryGroup, payloads_of, to_payload
from ouzel.spark.state_store import (
    LOG_BYTES_MIN,
    SESSION_CACHE_BYTES,
    BucketSession,
    Held,
    LogRecord,
    Manifest,
    SessionCache,
    Store,
    catch_up,
    restore,
    save,
)
from ouzel.spark.totals import TotalsJob, with_part

# A bucket without events. Every packing task sends it a row, so that a stream with a changed signature is refused even
# if the buckets of that micro-batch have no state yet.
CONTROL = -1

_sessions: SessionCache[BucketSession] = SessionCache()

# Payloads with the numbers of their queries.
Answers = tuple[tuple[int, bytes], ...]


class BucketJob(Protocol[Held]):
    """What the buckets of a stream run: queries (`StreamJob`) or a set of queries (`SetJob`)."""

    @property
    def signature(self) -> bytes:
        """The signature with which a checkpoint must be compatible. If empty, nothing is compared."""

    @property
    def log_bytes_min(self) -> int:
        """See `ouzel.spark.state_store.save`."""

    @property
    def cache_bytes(self) -> int:
        """How many bytes of sessions a worker caches, measured by their stored size."""

    def clock_of(self, name: int) -> Clock:
        """How ticks of a bucket are converted to Spark's watermark."""

    def open(self, name: int, snapshot: bytes | None) -> Held:
        """A new session of a bucket, or one restored from a snapshot."""

    def resume(self, name: int, session: Held) -> None:
        """Prepare a session for a call. Raises an error if the job must not continue with it."""

    def collect(self, name: int, session: Held, found: dict[Any, pa.Table], manifest: Manifest) -> tuple[Answers, bool]:
        """(payloads of rows, never replay): the rows of a call, which are also counted in the manifest, and whether
        this call must never be replayed from the log.
        """

    def report(self, name: int, session: Held, manifest: Manifest) -> dict[str, dict[str, int]]:
        """What a bucket holds, and what it has counted since the stream began, by query. For `ouzel.spark.Listener`."""


@dataclass(frozen=True, slots=True)
class Step:
    """What Spark must do after a call: the rows to emit and the timer to set."""

    old_timer_ms: int | None = None  # registered before the call
    timer_ms: int | None = None  # to be registered after it
    answers: Answers = ()
    report: str | None = None


def step(job: BucketJob[Any], name: int, store: Store, watermark_ms: int, payloads: Iterable[bytes]) -> Step:
    """Restore a bucket, move its time to Spark's watermark, add new events, and save it.

    Spark drops no late events, because it cannot look into payloads.
    """
    manifest = _manifest(job, name, store)
    if name == CONTROL:
        return Step()
    session = _session(job, name, manifest, store)
    clock = job.clock_of(name)
    # Spark's watermark is 0 until it has seen an event.
    record = LogRecord(clock.watermark_tick(watermark_ms) if watermark_ms > 0 else None, list(payloads))
    found = record.apply(session)
    deadline = session.next_deadline
    old_timer_ms, manifest.timer_ms = manifest.timer_ms, None if deadline is None else clock.timer_ms(deadline)
    answers, never_replay = job.collect(name, session, found, manifest)
    save(manifest, store, record, session, log_bytes_min=job.log_bytes_min, never_replay=never_replay)
    store.put("manifest", manifest.dump())
    _sessions.put(manifest, name, session, job.cache_bytes)
    report = {"bucket": name, "record": manifest.last_record, "queries": job.report(name, session, manifest)}
    return Step(old_timer_ms, manifest.timer_ms, answers, json.dumps(report))


def _manifest(job: BucketJob[Any], name: int, store: Store) -> Manifest:
    """The manifest of a bucket. Its signature must be compatible with that of the job."""
    digest = digest_of(job.signature)
    blob = store.get("manifest")
    if blob is None:
        manifest = Manifest(digest, chain=[sha256(f"{digest} {name}".encode()).hexdigest()[:32]])
    else:
        manifest = Manifest.load(blob)
        if manifest.signature == digest:
            return manifest
        problem = incompatibility(store.get("signature") or b"", job.signature)
        if problem:
            raise StateError(problem)
        manifest.signature = digest
    # Written once, and again after a change that is allowed.
    store.put("signature", job.signature)
    store.put("manifest", manifest.dump())
    return manifest


def _session(job: BucketJob[Any], name: int, manifest: Manifest, store: Store) -> Any:
    def opened(snapshot: bytes | None) -> Any:
        session = job.open(name, snapshot)
        job.resume(name, session)
        return session

    cached = _sessions.take(manifest.signature, name)
    if cached is None or cached[0] not in manifest.chain:
        return restore(manifest, store, opened)
    mark, session = cached
    job.resume(name, session)
    catch_up(session, manifest, store, manifest.first_record + manifest.chain.index(mark))
    return session


# ── Queries ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StreamJob:
    """The queries of a stream, and the buckets of their state: group i has those from names[i * buckets] on."""

    groups: tuple[QueryGroup, ...]
    buckets: int
    names: tuple[int, ...]
    signature: bytes = b""
    # Late events are emitted too, under the number ~n for query n.
    late: bool = False
    log_bytes_min: int = LOG_BYTES_MIN
    # How the partial results of some groups are merged, in a second step.
    totals: tuple[TotalsJob, ...] = ()
    cache_bytes: int = SESSION_CACHE_BYTES

    @property
    def totals_by_query(self) -> dict[int, TotalsJob]:
        """The totals job of each query whose answers are made in the second step, by the query's number."""
        partial = [group for group in self.groups if group.emits_partials]
        return {
            group.first_query + place: totals
            for group, totals in zip(partial, self.totals, strict=True)
            for place in range(len(group.queries))
        }

    def group_of(self, name: int) -> QueryGroup:
        """The group that a bucket belongs to."""
        return self.groups[self.names.index(name) // self.buckets]

    def clock_of(self, name: int) -> Clock:
        """See `BucketJob`."""
        return self.group_of(name).clock

    def open(self, name: int, snapshot: bytes | None) -> Session:
        """See `BucketJob`."""
        return open_session(self.group_of(name).program, snapshot)

    def resume(self, name: int, session: Session) -> None:
        """Raise an error if a query has stopped in the bucket, unless the job reports problems."""
        # Both options may change on an old checkpoint.
        session.keep_late = self.late
        session.isolates = self.group_of(name).reports
        if not session.isolates:
            for problem in session.problems.values():
                raise problem.raised()

    def collect(
        self, name: int, session: Session, found: dict[str, pa.Table], manifest: Manifest
    ) -> tuple[Answers, bool]:
        """Matches or partial results, late events, and problems."""
        group = self.group_of(name)
        if group.emits_partials:
            found = {query: with_part(table, name) for query, table in found.items()}
        else:
            for query, table in found.items():
                manifest.matches[query] = manifest.matches.get(query, 0) + table.num_rows
        problems = group.problems(session.problems, f"bucket {name}", known=manifest.problems)
        answers = [
            *((number, payload) for number, table in group.numbered(found) for payload in payloads_of(table)),
            *_late(group, session),
            *((number, to_payload(row)) for number, row in problems),
        ]
        # With other limits, a replay would not stop the query.
        stops = len(session.problems) > len(manifest.problems)
        manifest.problems = list(session.problems)
        return tuple(answers), stops

    def report(self, name: int, session: Session, manifest: Manifest) -> dict[str, dict[str, int]]:
        """See `BucketJob`."""
        return report(session, manifest)


def open_session(program: bytes, snapshot: bytes | None) -> Session:
    """A new session of a program, or one restored from a snapshot."""
    if snapshot is None:
        return Session(_program(program))
    return Session.restore(snapshot, _program(program))


@lru_cache(maxsize=16)
def _program(blob: bytes) -> Program:
    return load(blob)


def _late(group: QueryGroup, session: Session) -> Iterator[tuple[int, bytes]]:
    if not session.keep_late:
        return
    late = session.take_late()
    if not late.num_rows:
        return
    for number, query in enumerate(group.queries, start=group.first_query):
        for payload in payloads_of(session.concerned(late, query)):
            yield ~number, payload


def report(session: Session, manifest: Manifest) -> dict[str, dict[str, int]]:
    """What a bucket holds, and what it has counted since the stream began, by query."""
    open_events = session.open_events
    total = max(1, sum(open_events.values()))
    return {
        query: {
            "matches": manifest.matches.get(query, 0),
            "late": session.late_by_query[query],
            "open_events": held,
            "open_runs": session.open_runs[query],
            # Queries of one session are stored together, so the bytes are divided by events.
            "state_bytes": manifest.stored_bytes * held // total if len(open_events) > 1 else manifest.stored_bytes,
        }
        for query, held in open_events.items()
    }
