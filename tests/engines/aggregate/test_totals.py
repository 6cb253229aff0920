"""Totals of parts of the keys add up to those of one pass; so do aggregates in slices."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa

import ouzel
from ouzel.prepared import as_queries
from ouzel.runtime.program import dump, make_program
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import Clock
from ouzel.spark.time_slices import WINDOWS_PER_SLICE, as_ticks, cut
from ouzel.spark.totals import TotalsJob, merged, packed_partials
from ouzel.spark.worker import Memory, answers
from tests.agreement import case_count
from tests.generate import random_case
from tests.generate.cases import COLUMNS, RandomCase, counted
from tests.spark.test_slices import parts_by_arithmetic


def totals_apart(case: RandomCase, rng: random.Random) -> Counter[str] | None:
    """The answer by parts of the keys, as Spark's tasks would make it; None where the query is not spread so."""
    table = case.table
    program = make_program(as_queries(case.query), table.schema, **COLUMNS)
    (part,) = plan_query_groups(program, Clock(1), merge_totals=True)
    if part.totals is None:
        return None
    (plan,) = part.plans or ()
    stretch = None if plan.window_ticks is None else plan.window_ticks * rng.choice((1, 2, WINDOWS_PER_SLICE))
    totals = TotalsJob(dump(part.totals), 0, stretch, rng.choice((1, 3)) if stretch else 1)
    parts = rng.choice((1, 2, 5))
    columns = [table[path[0]].to_pylist() for path in part.keys]
    of_part = np.array([hash(tuple(map(str, values))) % parts for values in zip(*columns, strict=True)])
    ordered = rng.random() < 0.5
    partials = []
    for number in range(parts):
        own = table.filter(pa.array(of_part == number)).select(list(part.columns))
        if ordered:
            own = own.sort_by("time")
        batches = own.to_batches(max_chunksize=rng.choice((1, 4, 100)))
        memory = Memory(limit=1 if ordered else None)
        partials += list(packed_partials(totals, number, answers(part.group, memory, batches)))
    found: list[dict[str, object]] = []
    for task in range(totals.tasks):
        dealt = [batch for batch in partials if batch.column(1)[0].as_py() == task]
        rng.shuffle(dealt)
        found += [row for _, answer in merged(totals, dealt) for row in answer.to_pylist()]
    return counted(found)


def test_totals_are_those_of_one_pass() -> None:
    apart = answered = 0
    cases = case_count(400)
    for number in range(cases):
        rng = random.Random(f"totals {number}")
        case = random_case(rng, "aggregate")
        found = totals_apart(case, rng)
        if found is None:
            continue
        apart += 1
        want = counted(ouzel.match(case.table, case.query, **COLUMNS).to_pylist())
        answered += bool(want)
        assert found == want, f"case {number}:\n{case.text}"
    assert cases < 400 or (apart > 50 and answered > 25)


def test_aggregates_are_cut_into_slices() -> None:
    cut_cases = 0
    cases = case_count(300)
    for number in range(cases):
        rng = random.Random(f"slices {number}")
        case = random_case(rng, "aggregate")
        table = case.table
        program = make_program(as_queries(case.query), table.schema, **COLUMNS)
        (plan,) = program.plans().values()
        if plan.window_ticks is None:
            continue
        (part,) = plan_query_groups(program, Clock(1))
        slices = cut([plan], rng.choice((1, 2, 3)), rng.choice((None, 2 * plan.window_ticks)))
        needed_by = [parts_by_arithmetic(tick, slices) for tick in as_ticks(table["time"]).tolist()]
        found: list[dict[str, object]] = []
        for number in range(slices.parts):
            own = table.filter(pa.array([number in parts for parts in needed_by])).select(list(part.columns))
            for _, told in slices.owned(number, answers(part.group, Memory(), own.to_batches())):
                found += told.to_pylist()
        cut_cases += 1
        want = counted(ouzel.match(table, case.query, **COLUMNS).to_pylist())
        assert counted(found) == want, f"case {number}:\n{case.text}"
    assert cases < 300 or cut_cases > 200
