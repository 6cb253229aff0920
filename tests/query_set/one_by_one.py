"""A set of random queries against the same queries run alone, with queries added and removed while events flow."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

import ouzel
from ouzel.algebra import Stream
from ouzel.algebra.streams import UNARY, Fold, Next
from tests.agreement import answered
from tests.generate import random_case
from tests.generate.cases import ALGEBRA_SCHEMA as SCHEMA
from tests.generate.cases import counted

NEVER = 2**63 - 1
_BOUND = re.compile(r"\(DUR <= \d+\)")


@dataclass
class Standing:
    """A query and the ticks between which it was in the set."""

    expression: Stream
    since: int
    until: int = NEVER


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


def compare(rng: random.Random, queries: int, events: int, *, restored: float = 0.0, **options: Any) -> tuple[int, int]:
    """Run a set and its queries alone; gives how many queries there were and how many answers.

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
            standing[number] = Standing(expression, since)
            held.add(number, expression, owner=f"owner {number % 3}")

    def keep(given: dict[Any, pa.Table]) -> None:
        for name, part in given.items():
            for row in part.to_pylist():
                assert row["query"] == name
                answers.setdefault(row.pop("query"), []).append(row)

    add(queries // 2, -(2**63))
    start, watermark = 0, -(2**63)
    while start < table.num_rows:
        size = rng.choice([1, 3, 10, 40])
        keep(held.push(table.slice(start, size)))
        start += size
        watermark = max(watermark, max(row["time"] for row in rows[:start]) - 1)
        if rng.random() < restored:
            held = ouzel.QuerySet.restore(held.snapshot())
        if len(standing) < queries and rng.random() < 0.5:
            add(rng.randint(1, max(1, queries // 8)), watermark)
        if rng.random() < 0.3:
            alive = [number for number, one in standing.items() if one.until == NEVER]
            for number in rng.sample(alive, len(alive) // 6):
                held.remove(number)
                standing[number].until = watermark
    keep(held.finish())
    for number, one in standing.items():
        seen = table.filter(pa.compute.greater(table["time"], one.since)) if one.since > -(2**63) else table
        alone = [row for row in answered(one.expression, seen) if row["end"] <= one.until]
        assert counted(answers.get(number, ())) == counted(alone), f"query {number}: {one}"
    return len(standing), sum(len(rows) for rows in answers.values())


def total(counters: list[Counter[str]]) -> int:
    return sum(sum(counter.values()) for counter in counters)
