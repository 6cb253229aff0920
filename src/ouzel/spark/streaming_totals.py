"""Totals over all keys of a stream whose keys are spread: the second stateful step, behind that of the buckets.

A bucket tells the changes of its own keys. Spark gives all buckets of a micro-batch the same watermark, and each that
has anything at or before it tells that now, called by its events or by its timer; what it told earlier lies at or
before the watermark of an earlier micro-batch. The changes of one micro-batch therefore follow those of all earlier
ones in time, whichever bucket tells them: to add them up needs no timer and no watermark here, only how each bucket
stood before. Runs on Spark's workers, and in tests without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import pyarrow as pa

from ouzel.engines.aggregate.partial import PART, STRETCH, as_carried, joined, last_of_groups, totals_of
from ouzel.errors import OuzelError, StateError
from ouzel.runtime.problems import Problem
from ouzel.sealing import TOTALS, TOTALS_PIECE, decoding, mark_of, seal, unseal
from ouzel.spark.payloads import from_payload, payloads_of, to_payload
from ouzel.spark.state_store import Store
from ouzel.spark.tasks import PROBLEM_COLUMN, TotalsJob, problem_row
from ouzel.spark.totals import plan_of


@dataclass(slots=True)
class Standing:
    """What is stored of a total: how far it is, and the marks of the pieces that hold how the buckets stand."""

    step: int = 0
    matches: int = 0
    pieces: list[str] = field(default_factory=list)
    problem: str | None = None  # why the total has stopped

    def dump(self) -> bytes:
        return seal(TOTALS, json.dumps(asdict(self)).encode("utf-8"))

    @classmethod
    def load(cls, blob: bytes) -> Standing:
        """What `dump` wrote; StateError where it is damaged or from another version."""
        body = unseal(TOTALS, blob)
        with decoding(TOTALS):
            return cls(**json.loads(bytes(body)))


@dataclass(frozen=True, slots=True)
class Added:
    """What one micro-batch adds to the answer of a query."""

    answers: tuple[bytes, ...]  # payloads
    report: str
    problems: tuple[bytes, ...] = ()  # payloads


def add_up(
    totals: TotalsJob, number: int, store: Store, payloads: Iterable[bytes], problems: Sequence[bytes] = ()
) -> Added:
    """Take in all changes that the buckets tell of query `number` in one micro-batch, and give the totals.

    A bucket in which the query stopped gives its problem. The total then stops for good, since a part of it is missing.
    """
    told = [from_payload(payload) for payload in payloads]
    blob = store.get("head")
    standing = Standing() if blob is None else Standing.load(blob)
    plan, shown = plan_of(totals, number)
    name = plan.query.name
    if problems and standing.problem is None:
        standing.problem = from_payload(problems[0])[PROBLEM_COLUMN][0].as_py()
    if standing.problem is not None:
        if not totals.reports:
            raise OuzelError(standing.problem)
        return _stop(store, standing, name, number, problems)
    told += [_piece(store, number, mark) for number, mark in enumerate(standing.pieces)]
    changes = joined(told)
    # One stretch: what was carried on is part of it, and comes first since it is of earlier times.
    changes = changes.append_column(STRETCH, pa.array(np.zeros(changes.num_rows, np.int64)))
    try:
        answer = totals_of(plan, shown, [changes])
    except Exception as error:
        if not totals.reports:
            raise
        row = problem_row(Problem.of(name, None, error), "the sum of all buckets")
        standing.problem = row[PROBLEM_COLUMN][0].as_py()
        return _stop(store, standing, name, number, [to_payload(row)])
    _keep(store, standing, changes.drop_columns([STRETCH]))
    standing.step += 1
    standing.matches += answer.num_rows
    store.put("head", standing.dump())
    return Added(tuple(payloads_of(answer)) if answer.num_rows else (), _report(standing, name, number))


def _stop(store: Store, standing: Standing, name: str, number: int, problems: Sequence[bytes]) -> Added:
    for piece in range(len(standing.pieces)):
        store.remove_piece(piece)
    standing.pieces = []
    standing.step += 1
    store.put("head", standing.dump())
    return Added((), _report(standing, name, number), tuple(problems))


def _report(standing: Standing, name: str, number: int) -> str:
    return json.dumps({"bucket": ~number, "step": standing.step, "queries": {name: {"matches": standing.matches}}})


def _keep(store: Store, standing: Standing, changes: pa.Table) -> None:
    """How each bucket stands in each group, where it holds anything."""
    by_time = changes.sort_by("tick")
    left = as_carried(last_of_groups(by_time, [PART]))
    pieces = [seal(TOTALS_PIECE, payload) for payload in payloads_of(left)] if left.num_rows else []
    for number in range(len(pieces), len(standing.pieces)):
        store.remove_piece(number)
    for number, piece in enumerate(pieces):
        store.put_piece(number, piece)
    standing.pieces = list(map(mark_of, pieces))


def _piece(store: Store, number: int, mark: str) -> pa.Table:
    piece = store.get_piece(number)
    if piece is None or mark_of(piece) != mark:
        what = "missing" if piece is None else "not the one that belongs to them"
        raise StateError(f"a part of the totals of this stream is {what}: its checkpoint is damaged; {TOTALS.remedy}")
    body = unseal(TOTALS_PIECE, piece)
    with decoding(TOTALS_PIECE):
        return from_payload(body)
