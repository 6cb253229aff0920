"""An index over the first two events counts as tests of their pairs do."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import ouzel
from ouzel.engines.aggregate.plan import COUNT_BY_INDEX
from ouzel.runtime import codes
from ouzel.runtime.engine import match_without
from tests.agreement import case_count

pytestmark = pytest.mark.quick

COLUMNS = {"ts": "int64", "type": "string", "k": "int64", "x": "int64", "p": "double", "s": "string"}
SCHEMA = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])
EQUALITIES = ("a.x = b.x", "a.s = b.s", "a.p = b.p")
ORDERS = ("b.p > a.p", "a.p <= b.p", "b.p < a.p", "b.x >= a.x")


def random_query(rng: random.Random) -> str:
    conditions = rng.sample(EQUALITIES, rng.randint(0, 2))
    if not conditions or rng.random() < 0.6:
        conditions.append(rng.choice(ORDERS))
    if keyed := rng.random() < 0.5:
        conditions.append("[k]")
    # With two components, an equality is a key.
    length = rng.randint(3 if conditions[0] in EQUALITIES else 2, 4)
    steps = ", ".join(f"{name} {name.lower()}" for name in "ABCD"[:length])
    groups = "GROUP BY k " if keyed and rng.random() < 0.5 else ""
    rest = f"{groups}AGG COUNT AS n WITHIN {rng.randint(1, 30)}{rng.choice(['', ' EMIT ON CHANGE'])}"
    return f"PATTERN SEQ({steps}) WHERE {' AND '.join(conditions)} {rest}"


def random_events(rng: random.Random) -> list[dict[str, object]]:
    events, ts = [], rng.choice([0, -50])
    for _ in range(rng.randint(20, 80)):
        ts += rng.choice([0, 1, 1, 2])
        real = rng.choice([None, 0.0, -0.0, 1.5, -2.0, float("nan"), 3.0])
        row = {
            "ts": ts,
            "type": rng.choice("ABCD"),
            "k": rng.randint(1, 2),
            "x": rng.choice([None, 1, 2, 3]),
            "p": real,
        }
        events.append(row | {"s": f"{rng.choice('uvw')}{ts // 20}"})
    return events


@pytest.mark.parametrize("part", range(10))
def test_index_counts_as_edges_do(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Keys and texts get new codes often, so that the index is filled again.
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    for number in range(part, case_count(200), 10):
        rng = random.Random(f"index {number}")
        query, events = random_query(rng), random_events(rng)
        table = pa.Table.from_pylist(events, schema=SCHEMA)
        wanted = match_without([COUNT_BY_INDEX], table, query).to_pylist()
        assert ouzel.match(table, query).to_pylist() == wanted, f"case {number}: {query}"
        engine = ouzel.Engine(query, schema=SCHEMA)
        rows = []
        while events:
            taken, events = events[: (size := rng.choice([1, 2, 7]))], events[size:]
            rows += engine.push(taken)["query"].to_pylist()
            if rng.random() < 0.2:
                engine = ouzel.Engine.restore(engine.snapshot())
        rows += engine.finish()["query"].to_pylist()
        assert rows == wanted, f"case {number} in pushes: {query}"


@pytest.mark.compiled
def test_index_evicts_buckets_and_slots() -> None:
    """New values come all the time, and the memory stays that of the window."""
    engine = ouzel.Engine("PATTERN SEQ(A a, B b, C c) WHERE a.x = b.x AND b.p >= a.p AGG COUNT AS n WITHIN 300")
    sizes = []
    for first in range(0, 60_000, 3_000):
        at = range(first, first + 3_000)
        columns = {"ts": list(at), "type": ["ABC"[n % 3] for n in at], "x": [n // 9 for n in at]}
        engine.push(pa.table({**columns, "p": [float(n % 7) for n in at]}))
        sizes.append(len(engine.snapshot()))
    assert max(sizes[10:]) < 1.2 * max(sizes[2:10])
