"""Comparing the embedded engine with the oracle on random queries and streams, in every way of feeding it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

import ouzel
from ouzel.plan.model import KeyWay
from ouzel.plan.rules import RULES
from ouzel.prepared import as_queries
from ouzel.runtime.program import make_program
from ouzel.runtime.session import Session
from tests.generate.patterns import RandomCase
from tests.oracle import oracle

SCHEMA = pa.schema(
    {
        "type": pa.string(),
        "time": pa.int64(),
        "n": pa.int64(),
        "id": pa.int64(),
        "x": pa.int64(),
        "y": pa.int64(),
        "f": pa.float64(),
        "s": pa.string(),
    }
)
COLUMNS = {"time": "time", "type": "type"}


def table_of(case: RandomCase) -> pa.Table:
    return pa.Table.from_pylist([dict(event.attributes) for event in case.events], schema=SCHEMA)


def query_of(case: RandomCase) -> ouzel.Query:
    return ouzel.query(case.text, None if case.types is None else {t: _typed(a) for t, a in case.types.items()})


def _typed(names: Iterable[str]) -> dict[str, pa.DataType]:
    return {name: SCHEMA.field(name).type for name in names}


def expected(case: RandomCase) -> Counter[str]:
    ((_, results),) = oracle.answer(case.text, case.events, types=case.types).items()
    return counted(result.row for result in results)


def counted(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Rows as a multiset; NaN is itself, the two zeros are one, absent and null attributes are alike in a struct. The
    graph of a compressed row is another matter."""
    return Counter(repr(_plain({name: row[name] for name in row if name != "graph"})) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in sorted(value.items()) if part is not None}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else 0.0 if value == 0 else value
    return value


def matched(case: RandomCase, **options: Any) -> Counter[str]:
    return counted(ouzel.match(table_of(case), query_of(case), **COLUMNS, **options).to_pylist())


def matched_by_key_way(case: RandomCase, way: KeyWay) -> Counter[str]:
    """With a given way for further equivalence tests, whatever the planner would choose."""
    table = table_of(case)
    program = make_program(as_queries(query_of(case)), table.schema, **COLUMNS)
    program = replace(program, statistics=replace(program.statistics, key_way=way))
    session = Session(program)
    session.push(table)
    return counted(session.finish()["query"].to_pylist())


def streamed(case: RandomCase, rng: random.Random) -> Counter[str]:
    """In batches of random sizes, shuffled within an allowed delay, restored from snapshots in between."""
    table = table_of(case)
    delay = rng.choice([0, 0, 1, 3, 100])
    # An event may come after one that is at most `delay` later: sort by time plus a random part of the delay.
    arrival = sorted(range(table.num_rows), key=lambda row: (table["time"][row].as_py() + rng.uniform(0, delay), row))
    if delay == 0:
        arrival = sorted(range(table.num_rows), key=lambda row: (table["time"][row].as_py(), rng.random()))
    engine = ouzel.Engine(query_of(case), max_delay=delay, **COLUMNS)
    rows: list[Any] = []
    start = 0
    while start < len(arrival):
        size = rng.choice([1, 1, 2, 3, 8])
        rows += engine.push(table.take(arrival[start : start + size]))["query"].to_pylist()
        start += size
        if rng.random() < 0.4:
            engine = ouzel.Engine.restore(engine.snapshot())
        if rng.random() < 0.1 and engine.watermark is not None:
            rows += engine.advance(engine.watermark)["query"].to_pylist()
    assert engine.late == 0
    finished = engine.finish()
    rows += finished["query"].to_pylist() if finished else []
    return counted(rows)


def random_rules(rng: random.Random) -> list[str]:
    return [rule.name for rule in RULES if rng.random() < 0.4]
