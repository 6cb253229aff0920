"""What one call of Spark's for one bucket of a stream comes to. Runs on Spark's workers, and in tests without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any

import pyarrow as pa

from ouzel.errors import StateError
from ouzel.runtime.program import Program, load
from ouzel.runtime.session import Session
from ouzel.spark.compatibility import disagreement
from ouzel.spark.payloads import payloads_of, to_payload
from ouzel.spark.state_store import STEPS_BYTES_MIN, Head, Keeper, Movement, Store, catch_up, restore, save
from ouzel.spark.tasks import Share, TotalsJob
from ouzel.spark.totals import of_part

# A bucket without events: every task that packs sends it a row, and it refuses a stream whose terms have changed, also
# where the buckets of that micro-batch have no state yet.
CONTROL = -1

SESSIONS_BYTES_MAX = 256 * 1024 * 1024
_keeper: Keeper[Session] = Keeper(SESSIONS_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A stream's queries and how their state is spread: share i has the buckets names[i * buckets] and following."""

    shares: tuple[Share, ...]
    buckets: int
    names: tuple[int, ...]
    # What a checkpoint must have been written for; without terms nothing is compared.
    terms: bytes = b""
    # Late events come out too, under the number ~n for query n.
    late: bool = False
    # Steps are stored as they are up to so many bytes, before a snapshot is taken.
    steps_bytes_min: int = STEPS_BYTES_MIN
    # How what the buckets of some shares tell is added up, in a second step.
    totals: tuple[TotalsJob, ...] = ()
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha256(self.terms).hexdigest()[:32])

    def share_of(self, name: int) -> Share:
        """The share that a bucket belongs to."""
        return self.shares[self.names.index(name) // self.buckets]

    def step(self, name: int, store: Store, watermark_ms: int, payloads: Iterable[bytes]) -> Step:
        """Step a bucket; Spark's stateful step calls this."""
        return step_bucket(self, name, store, watermark_ms, payloads)

    @property
    def added_up(self) -> dict[int, TotalsJob]:
        """The numbers of the queries whose answers are made in the second step."""
        telling = [share for share in self.shares if share.tells_changes]
        return {
            share.first_query + place: totals
            for share, totals in zip(telling, self.totals, strict=True)
            for place in range(len(share.queries))
        }


@dataclass(frozen=True, slots=True)
class Step:
    """What Spark is to do after a call."""

    old_timer_ms: int | None = None  # registered before the call
    timer_ms: int | None = None  # to be registered after it
    answers: tuple[tuple[int, bytes], ...] = ()  # (number of the query, payload)
    report: str | None = None


def step_bucket(job: StreamJob, name: int, store: Store, watermark_ms: int, payloads: Iterable[bytes]) -> Step:
    """Bring a bucket to where it stands, let its time run to Spark's watermark, take in new events, and save it.

    Spark drops no late events, since it does not see into payloads.
    """
    head = _head(job, name, store)
    if name == CONTROL:
        return Step()
    share = job.share_of(name)
    session = _session(job, share, name, head, store)
    for problem in session.problems.values():
        if not share.reports:
            raise problem.raised()
    # Spark's watermark is 0 until it has seen an event.
    tick = share.clock.watermark_tick(watermark_ms) if watermark_ms > 0 else None
    movement = Movement(tick, list(payloads))
    answer = movement.apply(session)
    deadline = session.next_deadline
    old_timer_ms, head.timer_ms = head.timer_ms, None if deadline is None else share.clock.timer_ms(deadline)
    if share.tells_changes:
        answer = {query: of_part(table, name) for query, table in answer.items()}
    else:
        for query, table in answer.items():
            head.matches[query] = head.matches.get(query, 0) + table.num_rows
    answers = [*_matches(share, answer), *_late(share, session), *_problems(share, session, name, head)]
    # The same steps with other limits would not stop the query.
    stops = len(session.problems) > len(head.problems)
    head.problems = list(session.problems)
    save(head, store, movement, session, steps_bytes_min=job.steps_bytes_min, anew=stops)
    store.put("head", head.dump())
    _keeper.keep(head, name, session)
    return Step(old_timer_ms, head.timer_ms, tuple(answers), json.dumps(report(name, head, session)))


def _head(job: StreamJob, name: int, store: Store) -> Head:
    """The head of a bucket, of terms that are still those of the job."""
    blob = store.get("head")
    if blob is None:
        head = Head(terms=job.digest, chain=[sha256(f"{job.digest} {name}".encode()).hexdigest()[:32]])
    else:
        head = Head.load(blob)
        if head.terms == job.digest:
            return head
        problem = disagreement(store.get("terms") or b"", job.terms)
        if problem:
            raise StateError(problem)
        head.terms = job.digest
    # Written once, and again where a change of the terms is allowed.
    store.put("terms", job.terms)
    store.put("head", head.dump())
    return head


def _session(job: StreamJob, share: Share, name: int, head: Head, store: Store) -> Session:
    kept = _keeper.take(head.terms, name)
    if kept is not None and kept[0] in head.chain:
        mark, session = kept
        session.isolates = share.reports
        catch_up(session, head, store, head.first + head.chain.index(mark))
        return session
    return restore(head, store, _program(share.program), keep_late=job.late, isolates=share.reports)


@lru_cache(maxsize=16)
def _program(blob: bytes) -> Program:
    return load(blob)


def _matches(share: Share, answer: dict[str, pa.Table]) -> Iterator[tuple[int, bytes]]:
    for number, table in share.numbered(answer):
        for payload in payloads_of(table):
            yield number, payload


def _late(share: Share, session: Session) -> Iterator[tuple[int, bytes]]:
    if not session.keep_late:
        return
    late = session.take_late()
    if not late.num_rows:
        return
    for number, query in enumerate(share.queries, start=share.first_query):
        for payload in payloads_of(session.concerned(late, query)):
            yield ~number, payload


def _problems(share: Share, session: Session, name: int, head: Head) -> Iterator[tuple[int, bytes]]:
    for number, row in share.problems(session.problems, f"bucket {name}", known=head.problems):
        yield number, to_payload(row)


def report(name: int, head: Head, session: Session) -> dict[str, Any]:
    """What a bucket holds and has counted since the stream began, for whoever watches."""
    open_events = session.open_events
    total = max(1, sum(open_events.values()))
    return {
        "bucket": name,
        "step": head.step,
        "queries": {
            query: {
                "matches": head.matches.get(query, 0),
                "late": session.late_by_query[query],
                "open_events": held,
                "open_runs": session.open_runs[query],
                # Queries that are answered together are stored together, so each has its share by events.
                "state_bytes": head.stored_bytes * held // total if len(open_events) > 1 else head.stored_bytes,
            }
            for query, held in open_events.items()
        },
    }
