"""Totals of aggregates over all keys, where the keys are spread. Runs on Spark's workers, and in tests without Spark.

Each task counts the keys that it has and tells every change of its own total. Changes are dealt out by stretches of
time, ten windows each, with what a stretch has to know of the one before it; there they are added up in order of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ouzel.engines.aggregate.partial import (
    PART,
    STRETCH,
    in_stretches,
    joined,
    totals_of,
    with_carried,
)
from ouzel.plan.model import Plan
from ouzel.runtime.output import output_schema
from ouzel.runtime.problems import Problem
from ouzel.runtime.program import load
from ouzel.spark.payloads import from_payload, payloads_of, split_by, to_payload
from ouzel.spark.tasks import FIRST_PROBLEM, TotalsJob, problem_row

CHANGES_TASK = "task"
CHANGES = f"query INT, {CHANGES_TASK} INT, payload BINARY"


def packed_changes(totals: TotalsJob, part: int, told: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.RecordBatch]:
    """What one part tells, in order of time, as (number of the query, task that adds it up, payload)."""
    # The changes of the newest stretch: what it carries on is known when it is over.
    pending: dict[int, pa.Table] = {}
    for number, changes in told:
        if number >= FIRST_PROBLEM:
            # A part of the total is missing, so no task may give it; the first one reports why.
            for task in range(totals.tasks):
                yield _dealt(number, task, to_payload(changes if task == 0 else changes.slice(0, 0)))
            continue
        placed = in_stretches(changes, totals.stretch_ticks)
        if number in pending:
            placed = joined([pending[number], placed])
        newest = int(placed[STRETCH].to_numpy().max())
        over = placed[STRETCH].to_numpy() < newest
        pending[number] = placed.filter(pa.array(~over))
        if over.any():
            yield from _dealt_out(totals, number, part, placed.filter(pa.array(over)))
    for number, placed in pending.items():
        yield from _dealt_out(totals, number, part, placed)


def _dealt_out(totals: TotalsJob, number: int, part: int, changes: pa.Table) -> Iterator[pa.RecordBatch]:
    if totals.stretch_ticks is not None:
        changes = with_carried(changes)
    task = (changes[STRETCH].to_numpy() % totals.tasks).astype(np.int32)
    whole = of_part(changes, part)
    for chosen, rows in split_by(whole.append_column(CHANGES_TASK, pa.array(task)), CHANGES_TASK):
        for payload in payloads_of(rows):
            yield _dealt(number, chosen, payload)


def _dealt(number: int, task: int, payload: bytes) -> pa.RecordBatch:
    columns = [pa.array([number], pa.int32()), pa.array([task], pa.int32()), pa.array([payload], pa.binary())]
    return pa.record_batch(columns, names=["query", CHANGES_TASK, "payload"])


def of_part(changes: pa.Table, part: int) -> pa.Table:
    """Changes with the part that tells them."""
    return changes.append_column(PART, pa.array(np.full(changes.num_rows, part, np.int64)))


def added_up(totals: TotalsJob, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """The answers of the queries out of the changes that one task was dealt."""
    told: dict[int, list[pa.Table]] = {}
    for batch in batches:
        for number, payload in zip(batch.column(0).to_pylist(), batch.column(2), strict=True):
            told.setdefault(number, []).append(from_payload(payload.as_buffer()))
    for number, changes in told.items():
        if number >= FIRST_PROBLEM:
            yield number, pa.concat_tables(changes)
            continue
        if FIRST_PROBLEM + number in told:
            continue
        plan, shown = plan_of(totals, number)
        try:
            answer = totals_of(plan, shown, changes)
        except Exception as error:
            if not totals.reports:
                raise
            row = problem_row(Problem.of(plan.query.name, None, error), "one part of time")
            yield FIRST_PROBLEM + number, row
            continue
        if answer.num_rows:
            yield number, answer


def plan_of(totals: TotalsJob, number: int) -> tuple[Plan, pa.Schema]:
    """The plan of a query and the columns of its answer."""
    return _plans(totals.program)[number - totals.first_query]


@lru_cache(maxsize=16)
def _plans(program: bytes) -> list[tuple[Plan, pa.Schema]]:
    loaded = load(program)
    found = []
    for name, plan in loaded.plans().items():
        assert plan.counts_only, name
        found.append((plan, output_schema(plan.query, loaded.layout)))
    return found
