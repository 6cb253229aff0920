"""A set of random queries against the same queries run alone, with queries added and removed while events flow."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

import ouzel
from ouzel.algebra import Stream, stream
from ouzel.algebra.streams import UNARY, Fold, Next
from tests.agreement import answered
from tests.generate import random_case
from tests.generate.cases import ALGEBRA_SCHEMA as SCHEMA
from tests.generate.cases import counted

BEGIN, NEVER = -(2**63), 2**63 - 1
_BOUND = re.compile(r"\(DUR <= \d+\)")


@dataclass
class Standing:
    """A query and the spans in which it was in the set and ran: it saw the events after the first tick of a span, and
    its answers end at the second tick or before."""

    expression: Stream
    spans: list[tuple[int, int]]
    is_removed: bool = False

    def stop(self, tick: int) -> None:
        """It has no more answers after a tick."""
        since, until = self.spans[-1]
        self.spans[-1] = since, min(until, tick)

    def answers(self, table: pa.Table) -> list[dict[str, Any]]:
        """What it answers alone."""
        found = []
        for since, until in self.spans:
            seen = table.filter(pa.compute.greater(table["time"], since)) if since > BEGIN else table
            found += [row for row in answered(self.expression, seen) if row["end"] <= until]
        return found


def random_rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        last = rows[-1]["time"] + rng.choice([0, 1]) if rows else 0
        case = random_case(rng, "algebra")
        rows += sorted(
            ({**row, "time": row["time"] + last, "begin": row["begin"] + last} for row in case.rows),
            key=lambda r: r["time"],
        )
    return rows


def with_other_bound(rng: random.Random, expression: Stream, *, bounded: bool) -> Stream:
    """The same query with another bound on DUR at its last next or fold, or with none, or with one on its results."""
    if rng.random() < 0.3:
        return expression.select(rng.choice(["DUR >= 0", "DUR >= 1", "DUR <= 1", "DUR <= 0", "DUR = 1"]))
    if isinstance(expression, Next | Fold):
        parts = [part for part in (expression.theta or "").split(" AND ") if part and not _BOUND.fullmatch(part)]
        if bounded or rng.random() < 0.7:
            parts.append(f"(DUR <= {rng.choice([0, 1, 2, 5])})")
        return replace(expression, theta=" AND ".join(parts) or None)
    if isinstance(expression, UNARY):
        return replace(expression, input=with_other_bound(rng, expression.input, bounded=bounded))
    return expression


class Compared(NamedTuple):
    """How much there was to compare."""

    queries: int
    answers: int
    suspensions: int
    resumed: int


def compare(rng: random.Random, queries: int, events: int, *, restored: float = 0.0, **options: Any) -> Compared:
    """Run a set and its queries alone, with the same answers. Queries that pass a limit are resumed now and then.

    `restored` is how often the set is given up after a batch, and another restored from its snapshot.
    """
    # Where no more events will come, queries may wait without a bound. Their answers can grow exponentially.
    bounded = rng.random() < 0.7
    rows = random_rows(rng, events if bounded else min(events, 20))
    table = pa.Table.from_pylist(rows, SCHEMA)
    held = ouzel.QuerySet(time="time", bounded=not bounded, **options)
    standing: dict[int, Standing] = {}
    answers: dict[int, list[dict[str, Any]]] = {}
    texts: list[Stream] = []

    def add(count: int, since: int) -> None:
        for _ in range(count):
            # Some queries are equal to earlier ones, or differ in a bound only.
            choice = rng.random()
            if texts and choice < 0.15:
                expression = rng.choice(texts)
            elif texts and choice < 0.4:
                expression = with_other_bound(rng, rng.choice(texts), bounded=bounded)
            else:
                expression = random_case(rng, "algebra", bounded=bounded).expression
            texts.append(expression)
            number = len(standing)
            standing[number] = Standing(expression, [(since, NEVER)])
            held.add(number, expression, owner=f"owner {number % 3}")

    def keep(given: dict[Any, pa.Table]) -> None:
        for name, part in given.items():
            for row in part.to_pylist():
                assert row["query"] == name
                answers.setdefault(row.pop("query"), []).append(row)

    def note_suspended(watermark: int) -> None:
        """A merged query has all answers before the tick at which it was suspended, and another those of all batches
        before."""
        assert held._session is not None
        for problem in held.suspended():
            if problem.query not in suspended:
                suspended.add(problem.query)
                is_merged = problem.query not in held._session.unmerged
                standing[problem.query].stop(problem.time - 1 if is_merged else watermark)

    # Once all queries of a set are suspended, it raises their last error.
    held.add("never", stream("No such type"))
    suspended: set[int] = set()
    suspensions = resumed = 0
    add(queries // 2, BEGIN)
    start, watermark = 0, BEGIN
    while start < table.num_rows:
        size = rng.choice([1, 3, 10, 40])
        before = len(suspended)
        keep(held.push(table.slice(start, size)))
        note_suspended(watermark)
        suspensions += len(suspended) - before
        start += size
        watermark = max(watermark, max(row["time"] for row in rows[:start]) - 1)
        if rng.random() < restored:
            held = ouzel.QuerySet.restore(held.snapshot())
        if len(standing) < queries and rng.random() < 0.5:
            add(rng.randint(1, max(1, queries // 8)), watermark)
        if rng.random() < 0.3:
            alive = [number for number, one in standing.items() if not one.is_removed]
            for number in rng.sample(alive, len(alive) // 6):
                held.remove(number)
                standing[number].stop(watermark)
                standing[number].is_removed = True
                suspended.discard(number)
        for number in sorted(suspended):
            if rng.random() < 0.4:
                held.resume(number)
                suspended.remove(number)
                standing[number].spans.append((watermark, NEVER))
                resumed += 1
    keep(held.finish())
    note_suspended(watermark)
    for number, one in standing.items():
        assert counted(answers.get(number, ())) == counted(one.answers(table)), f"query {number}: {one}"
    return Compared(len(standing), sum(len(rows) for rows in answers.values()), suspensions, resumed)


def total(counters: list[Counter[str]]) -> int:
    return sum(sum(counter.values()) for counter in counters)
