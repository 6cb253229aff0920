"""Comparing the engine with the oracle on algebra expressions."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

import ouzel
from ouzel.algebra import Stream
from ouzel.algebra.binding import bind
from ouzel.engines.automata.operator import AlgebraRunner
from ouzel.runtime.layout import catalog_of, layout_of_table, ticks_of
from ouzel.runtime.limits import Limits
from tests.oracle.algebra import World, answer


def counted(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Rows as a multiset; NaN is itself and the two zeros are one."""
    return Counter(repr({name: _plain(value) for name, value in sorted(row.items())}) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else 0.0 if value == 0 else value
    return value


def expected(expression: Stream, rows: list[dict[str, Any]]) -> Counter[str]:
    found = answer(expression, World(rows))
    return counted({"start": e.start, "end": e.end, **{n: _settled(v) for n, v in e.values.items()}} for e in found)


def _settled(value: Any) -> Any:
    return float(value) if type(value).__name__ == "Point" else value


def run(expression: Stream, table: pa.Table) -> pa.Table:
    layout = layout_of_table(table.schema, time="time", type="type")
    bound = bind(expression, catalog_of(layout), time="time", type="type")
    runner = AlgebraRunner(bound, layout, Limits())
    runner.stage(table, ticks_of(table, layout), keep_whole=True)
    return runner.advance(2**63 - 1)


def matched(expression: Stream, table: pa.Table) -> Counter[str]:
    return counted(ouzel.match(table, expression, time="time").to_pylist())


def streamed(expression: Stream, table: pa.Table, rng: random.Random) -> Counter[str]:
    """In batches of random sizes, shuffled within an allowed delay, restored from snapshots in between."""
    delay = rng.choice([0, 0, 1, 3])
    times = table["time"].to_pylist()
    arrival = sorted(range(len(times)), key=lambda row: (times[row] + rng.uniform(0, delay), rng.random()))
    engine = ouzel.Engine(expression, time="time", max_delay=delay)
    rows: list[Any] = []
    start = 0
    while start < len(arrival):
        size = rng.choice([1, 1, 2, 5])
        rows += engine.push(table.take(arrival[start : start + size]))["query"].to_pylist()
        start += size
        if rng.random() < 0.3:
            engine = ouzel.Engine.restore(engine.snapshot())
    assert engine.late == 0
    return counted([*rows, *engine.finish()["query"].to_pylist()])
