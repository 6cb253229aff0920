"""Totals of aggregates over all keys, if events are distributed by key. Runs on workers, and in tests without Spark.

Each task counts its own keys, and emits a partial result whenever its own total changes. A second step merges the
partial results.

In a batch, partial results are shuffled by time buckets of ten windows, and merged in order of time. Each time bucket
also gets the state at the end of the one before it.

In a stream, the second step is stateful. In a micro-batch, Spark gives all buckets the same watermark, and each bucket
emits all results up to that watermark, because its events or its timer call it. So the partial results of a micro-batch
are later than those of all earlier ones. Merging them needs only the last state of each bucket, and neither a timer nor
a watermark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ouzel.engines.aggregate.output import (
    PART,
    TIME_BUCKET,
    aggregate_schema,
    as_carried,
    in_time_buckets,
    joined,
    last_of_groups,
    totals_of,
    with_carried,
)
from ouzel.errors import OuzelError, StateError
from ouzel.plan.model import Plan
from ouzel.runtime.problems import Problem
from ouzel.runtime.program import load
from ouzel.sealing import TOTALS, TOTALS_CHUNK, decoding, mark_of, seal, unseal
from ouzel.spark.payloads import (
    FIRST_PROBLEM,
    PROBLEM_COLUMN,
    from_payload,
    payloads_of,
    problem_row,
    split_by,
    to_payload,
)
from ouzel.spark.state_store import Store

PARTIALS_TASK = "task"
PARTIALS = f"query INT, {PARTIALS_TASK} INT, payload BINARY"


@dataclass(frozen=True, slots=True)
class TotalsJob:
    """How partial results from each part of the keys are merged to totals over all keys."""

    program: bytes  # the queries as users wrote them; those of the group emit partial results
    first_query: int
    # Time buckets of this many ticks are merged apart; None: no window ever expires.
    time_bucket_ticks: int | None
    tasks: int
    reports: bool = False  # as `QueryGroup.reports`


def with_part(partials: pa.Table, part: int) -> pa.Table:
    """Partial results with a column for the part of the keys from which they come."""
    return partials.append_column(PART, pa.array(np.full(partials.num_rows, part, np.int64)))


def plan_of(totals: TotalsJob, number: int) -> tuple[Plan, pa.Schema]:
    """The plan of a query and the columns of its answer."""
    return _plans(totals.program)[number - totals.first_query]


@lru_cache(maxsize=16)
def _plans(program: bytes) -> list[tuple[Plan, pa.Schema]]:
    loaded = load(program)
    found = []
    for name, plan in loaded.plans().items():
        assert plan.counts_only, name
        found.append((plan, aggregate_schema(plan.query, loaded.layout)))
    return found


# ── Batches ────────────────────────────────────────────────────────────────────────────────────────


def packed_partials(totals: TotalsJob, part: int, found: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.RecordBatch]:
    """The partial results of one part, in order of time, as (number of the query, number of the task that merges,
    payload).
    """
    # The partial results of the newest time bucket: its last state is known when the bucket is over.
    pending: dict[int, pa.Table] = {}
    for number, partials in found:
        if number >= FIRST_PROBLEM:
            # A part of the total is missing, so no task may return it; the first one reports why.
            for task in range(totals.tasks):
                yield _packed(number, task, to_payload(partials if task == 0 else partials.slice(0, 0)))
            continue
        placed = in_time_buckets(partials, totals.time_bucket_ticks)
        if number in pending:
            placed = joined([pending[number], placed])
        newest = int(placed[TIME_BUCKET].to_numpy().max())
        over = placed[TIME_BUCKET].to_numpy() < newest
        pending[number] = placed.filter(pa.array(~over))
        if over.any():
            yield from _by_task(totals, number, part, placed.filter(pa.array(over)))
    for number, placed in pending.items():
        yield from _by_task(totals, number, part, placed)


def _by_task(totals: TotalsJob, number: int, part: int, partials: pa.Table) -> Iterator[pa.RecordBatch]:
    if totals.time_bucket_ticks is not None:
        partials = with_carried(partials)
    task = (partials[TIME_BUCKET].to_numpy() % totals.tasks).astype(np.int32)
    whole = with_part(partials, part)
    for chosen, rows in split_by(whole.append_column(PARTIALS_TASK, pa.array(task)), PARTIALS_TASK):
        for payload in payloads_of(rows):
            yield _packed(number, chosen, payload)


def _packed(number: int, task: int, payload: bytes) -> pa.RecordBatch:
    columns = [pa.array([number], pa.int32()), pa.array([task], pa.int32()), pa.array([payload], pa.binary())]
    return pa.record_batch(columns, names=["query", PARTIALS_TASK, "payload"])


def merged(totals: TotalsJob, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """The answers of the queries, from the partial results that one task has received."""
    received: dict[int, list[pa.Table]] = {}
    for batch in batches:
        for number, payload in zip(batch.column(0).to_pylist(), batch.column(2), strict=True):
            received.setdefault(number, []).append(from_payload(payload.as_buffer()))
    for number, partials in received.items():
        if number >= FIRST_PROBLEM:
            yield number, pa.concat_tables(partials)
            continue
        if FIRST_PROBLEM + number in received:
            continue
        plan, shown = plan_of(totals, number)
        try:
            answer = totals_of(plan, shown, partials)
        except Exception as error:
            if not totals.reports:
                raise
            row = problem_row(Problem.of(plan.query.name, None, error), "one part of time")
            yield FIRST_PROBLEM + number, row
            continue
        if answer.num_rows:
            yield number, answer


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class TotalsState:
    """What is stored of a total: its counts, and the checksums of the chunks that hold the last state of each
    bucket.
    """

    record: int = 0
    matches: int = 0
    chunks: list[str] = field(default_factory=list)
    problem: str | None = None  # why the total has stopped

    def dump(self) -> bytes:
        """The state as bytes."""
        return seal(TOTALS, json.dumps(asdict(self)).encode("utf-8"))

    @classmethod
    def load(cls, blob: bytes) -> TotalsState:
        """The state from the bytes of `dump`. Raises StateError if they are damaged or from another version."""
        body = unseal(TOTALS, blob)
        with decoding(TOTALS):
            return cls(**json.loads(bytes(body)))


@dataclass(frozen=True, slots=True)
class MergedBatch:
    """What one micro-batch adds to the answer of a query."""

    answers: tuple[bytes, ...]  # payloads
    report: str
    problems: tuple[bytes, ...] = ()  # payloads


def merge_micro_batch(
    totals: TotalsJob, number: int, store: Store, payloads: Iterable[bytes], problems: Sequence[bytes] = ()
) -> MergedBatch:
    """Merge the partial results that all buckets have emitted for query `number` in one micro-batch.

    A bucket in which the query has stopped sends a problem. The total then stops too, because a part of it is missing
    from now on.
    """
    received = [from_payload(payload) for payload in payloads]
    blob = store.get("manifest")
    state = TotalsState() if blob is None else TotalsState.load(blob)
    plan, shown = plan_of(totals, number)
    name = plan.query.name
    if problems and state.problem is None:
        state.problem = from_payload(problems[0])[PROBLEM_COLUMN][0].as_py()
    if state.problem is not None:
        if not totals.reports:
            raise OuzelError(state.problem)
        return _stop(store, state, name, number, problems)
    received += [_chunk(store, place, mark) for place, mark in enumerate(state.chunks)]
    partials = joined(received)
    # One time bucket: the carried state is part of it, and comes first because it is earlier.
    partials = partials.append_column(TIME_BUCKET, pa.array(np.zeros(partials.num_rows, np.int64)))
    try:
        answer = totals_of(plan, shown, [partials])
    except Exception as error:
        if not totals.reports:
            raise
        row = problem_row(Problem.of(name, None, error), "the sum of all buckets")
        state.problem = row[PROBLEM_COLUMN][0].as_py()
        return _stop(store, state, name, number, [to_payload(row)])
    _keep(store, state, partials.drop_columns([TIME_BUCKET]))
    state.record += 1
    state.matches += answer.num_rows
    store.put("manifest", state.dump())
    return MergedBatch(tuple(payloads_of(answer)) if answer.num_rows else (), _report(state, name, number))


def _stop(store: Store, state: TotalsState, name: str, number: int, problems: Sequence[bytes]) -> MergedBatch:
    for place in range(len(state.chunks)):
        store.remove_chunk(place)
    state.chunks = []
    state.record += 1
    store.put("manifest", state.dump())
    return MergedBatch((), _report(state, name, number), tuple(problems))


def _report(state: TotalsState, name: str, number: int) -> str:
    return json.dumps({"bucket": ~number, "record": state.record, "queries": {name: {"matches": state.matches}}})


def _keep(store: Store, state: TotalsState, partials: pa.Table) -> None:
    """Store the last state of each bucket for each group, unless it is empty."""
    by_time = partials.sort_by("tick")
    left = as_carried(last_of_groups(by_time, [PART]))
    chunks = [seal(TOTALS_CHUNK, payload) for payload in payloads_of(left)] if left.num_rows else []
    for place in range(len(chunks), len(state.chunks)):
        store.remove_chunk(place)
    for place, chunk in enumerate(chunks):
        store.put_chunk(place, chunk)
    state.chunks = list(map(mark_of, chunks))


def _chunk(store: Store, place: int, mark: str) -> pa.Table:
    chunk = store.get_chunk(place)
    if chunk is None or mark_of(chunk) != mark:
        what = "missing" if chunk is None else "not the one that belongs to them"
        raise StateError(f"a part of the totals of this stream is {what}: its checkpoint is damaged; {TOTALS.remedy}")
    body = unseal(TOTALS_CHUNK, chunk)
    with decoding(TOTALS_CHUNK):
        return from_payload(body)
