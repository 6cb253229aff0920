"""A set of random queries against the same queries run alone, with queries added and removed while events flow."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import ouzel
from ouzel.algebra import Stream
from tests.algebra.agreement import counted, run
from tests.algebra.random_expressions import SCHEMA, random_case

NEVER = 2**63 - 1


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
        case = random_case(rng)
        rows += sorted(
            ({**row, "time": row["time"] + last, "begin": row["begin"] + last} for row in case.rows),
            key=lambda r: r["time"],
        )
    return rows


def compare(rng: random.Random, queries: int, events: int, *, restored: float = 0.0, **options: Any) -> tuple[int, int]:
    """Run a set and its queries alone; gives how many queries there were and how many answers.

    `restored` is how often the set is given up after a batch, and another restored from its snapshot.
    """
    rows = random_rows(rng, events)
    table = pa.Table.from_pylist(rows, SCHEMA)
    held = ouzel.QuerySet(time="time", **options)
    standing: dict[int, Standing] = {}
    answers: dict[int, list[dict[str, Any]]] = {}
    texts: list[Stream] = []

    def add(count: int, since: int) -> None:
        for _ in range(count):
            # Some queries are equal to earlier ones, or differ in a constant only.
            expression = (
                rng.choice(texts) if texts and rng.random() < 0.2 else random_case(rng, bounded=True).expression
            )
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
        alone = [row for row in run(one.expression, seen).to_pylist() if row["end"] <= one.until]
        assert counted(answers.get(number, ())) == counted(alone), f"query {number}: {one}"
    return len(standing), sum(len(rows) for rows in answers.values())


def total(counters: list[Counter[str]]) -> int:
    return sum(sum(counter.values()) for counter in counters)
