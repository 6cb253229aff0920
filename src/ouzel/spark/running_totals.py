"""Totals over all keys of a stream whose keys are spread: the second stateful step, behind that of the buckets.

A bucket tells the changes of its own keys. Spark gives all buckets of a micro-batch the same watermark, and each that
has anything at or before it tells that now, called by its events or by its timer; what it told earlier lies at or
before the watermark of an earlier micro-batch. The changes of one micro-batch therefore follow those of all earlier
ones in time, whichever bucket tells them: to add them up needs no timer and no watermark here, only how each bucket
stood before. Runs on Spark's workers, and in tests without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.errors import StateError
from ouzel.runtime.aggregate_changes import PART, STRETCH, as_carried, joined, last_of_groups, totals_of
from ouzel.runtime.framing import seal, unseal
from ouzel.spark.jobs import TotalsJob
from ouzel.spark.packing import from_payload, payloads_of
from ouzel.spark.saved import Store
from ouzel.spark.totals import plan_of

MAGIC = b"OUZELTOT"
VERSION = 1


@dataclass(slots=True)
class Standing:
    """What is stored of a total: how far it is, and in how many pieces how the buckets stand."""

    step: int = 0
    matches: int = 0
    pieces: int = 0

    def dump(self) -> bytes:
        return seal(MAGIC, VERSION, json.dumps(asdict(self)).encode("utf-8"))

    @classmethod
    def load(cls, blob: bytes) -> Standing:
        stored: dict[str, Any] = json.loads(bytes(unseal(MAGIC, VERSION, blob, "total of a stream")))
        return cls(**stored)


@dataclass(frozen=True, slots=True)
class Added:
    """What one micro-batch adds to the answer of a query."""

    answers: tuple[bytes, ...]  # payloads
    report: str


def add_up(totals: TotalsJob, number: int, store: Store, payloads: Iterable[bytes]) -> Added:
    """Take in all changes that the buckets tell of query `number` in one micro-batch, and give the totals."""
    told = [from_payload(payload) for payload in payloads]
    blob = store.get("head")
    standing = Standing() if blob is None else Standing.load(blob)
    told += [_piece(store, piece) for piece in range(standing.pieces)]
    changes = joined(told)
    # One stretch: what was carried on is part of it, and comes first since it is of earlier times.
    changes = changes.append_column(STRETCH, pa.array(np.zeros(changes.num_rows, np.int64)))
    plan, shown = plan_of(totals, number)
    answer = totals_of(plan, shown, [changes])
    _keep(store, standing, changes.drop_columns([STRETCH]))
    standing.step += 1
    standing.matches += answer.num_rows
    store.put("head", standing.dump())
    report = {"bucket": ~number, "step": standing.step, "queries": {plan.query.name: {"matches": standing.matches}}}
    return Added(tuple(payloads_of(answer)) if answer.num_rows else (), json.dumps(report))


def _keep(store: Store, standing: Standing, changes: pa.Table) -> None:
    """How each bucket stands in each group, where it holds anything."""
    by_time = changes.sort_by("tick")
    left = as_carried(last_of_groups(by_time, [PART]))
    pieces = list(payloads_of(left)) if left.num_rows else []
    for piece in range(len(pieces), standing.pieces):
        store.remove_piece(piece)
    for piece, payload in enumerate(pieces):
        store.put_piece(piece, payload)
    standing.pieces = len(pieces)


def _piece(store: Store, number: int) -> pa.Table:
    piece = store.get_piece(number)
    if piece is None:
        raise StateError("a part of the totals of this stream is missing; its checkpoint is damaged")
    return from_payload(piece)
