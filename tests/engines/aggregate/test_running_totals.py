"""Totals of streams, whose keys are spread over buckets, equal those of one pass; Spark's part is played here."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa

import ouzel
from ouzel.prepared import as_queries
from ouzel.runtime.program import dump, make_program
from ouzel.spark.bucket import StreamJob, step
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import Clock
from ouzel.spark.totals import TotalsJob, merge_micro_batch
from tests.agreement import case_count
from tests.generate import random_case
from tests.generate.cases import COLUMNS, RandomCase, counted
from tests.spark.test_steps import MemoryStore

# Ticks are Spark's milliseconds here, far enough from its 1970 for every time of the cases.
CLOCK = Clock(1_000_000, 1 << 20)


class BucketsOfAStream:
    """Micro-batches as Spark makes them: buckets that have events or a due timer step, then the second step adds up."""

    def __init__(self, job: StreamJob) -> None:
        self._job = job
        self._stores = {name: MemoryStore() for name in job.names}
        self._timers: dict[int, int | None] = {}
        self._adder = MemoryStore()
        self.rows: list[dict[str, object]] = []
        self.batches_that_told = 0

    def micro_batch(self, watermark: int, payloads: dict[int, list[bytes]]) -> None:
        watermark_ms = CLOCK.timer_ms(watermark)
        due = [name for name, timer in self._timers.items() if timer is not None and timer <= watermark_ms]
        told = []
        for name in dict.fromkeys([*payloads, *due]):
            done = step(self._job, name, self._stores[name], watermark_ms, payloads.get(name, []))
            self._timers[name] = done.timer_ms
            told += [payload for _, payload in done.answers]
        if told:
            random.Random(len(told)).shuffle(told)
            (totals,) = self._job.totals
            for payload in merge_micro_batch(totals, 0, self._adder, told).answers:
                self.rows += pa.ipc.open_stream(payload).read_all().to_pylist()
            self.batches_that_told += 1


def totals_of_stream(case: RandomCase, rng: random.Random) -> tuple[Counter[str], int] | None:
    table = case.table
    program = make_program(as_queries(case.query), table.schema, **COLUMNS)
    (part,) = plan_query_groups(program, CLOCK, merge_totals=True)
    if part.totals is None:
        return None
    buckets = rng.choice((2, 3, 7))
    totals = TotalsJob(dump(part.totals), 0, None, 1)
    job = StreamJob((part.group,), buckets, tuple(range(buckets)), totals=(totals,), log_bytes_min=rng.choice((0, 500)))
    stream = BucketsOfAStream(job)
    columns = [table[path[0]].to_pylist() for path in part.keys]
    bucket = np.array([hash(tuple(map(str, values))) % buckets for values in zip(*columns, strict=True)])
    ticks = table["time"].to_numpy()
    delay = rng.choice((0, 3))
    arrival = np.argsort([tick + rng.uniform(0, delay) for tick in ticks.tolist()], kind="stable")
    watermark = int(ticks.min()) - delay - 1
    first = 0
    while first < len(arrival):
        some = arrival[first : first + rng.choice((3, 10, 30))]
        first += len(some)
        payloads = {
            name: [_packed(part.group.events(table.take(some[bucket[some] == name])))]
            for name in np.unique(bucket[some]).tolist()
        }
        stream.micro_batch(watermark, payloads)
        watermark = max(watermark, int(ticks[some].max()) - delay - 1)
    # Without new events: time moves on, in one step or in several.
    for beyond in sorted({rng.randrange(20) for _ in range(3)}):
        stream.micro_batch(int(ticks.max()) + beyond, {})
    stream.micro_batch(1 << 40, {})
    return counted(stream.rows), stream.batches_that_told


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_totals_of_streams_are_those_of_one_pass() -> None:
    spread = answered = in_several = 0
    cases = case_count(160)
    for number in range(cases):
        rng = random.Random(f"running totals {number}")
        case = random_case(rng, "aggregate", events=60)
        found = totals_of_stream(case, rng)
        if found is None:
            continue
        spread += 1
        want = counted(ouzel.match(case.table, case.query, **COLUMNS).to_pylist())
        answered += bool(want)
        in_several += found[1] > 2
        assert found[0] == want, f"case {number}:\n{case.text}"
    assert cases < 160 or (spread > 25 and answered > 20 and in_several > 10)
