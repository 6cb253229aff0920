"""Sums of inverses count as a row of counters for each first event does: groups that one event decides, rare first
events."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import ouzel
from ouzel.engines.aggregate import plan
from ouzel.engines.aggregate.plan import COUNT_BY_INVERSE, COUNT_BY_STACKS
from ouzel.runtime import codes
from ouzel.runtime.engine import match_without
from tests.agreement import case_count
from tests.generate.cases import counted
from tests.oracle import oracle
from tests.oracle.events import Event

pytestmark = pytest.mark.quick

SCHEMA = pa.schema([(name, pa.string() if name == "type" else pa.int64()) for name in ("ts", "type", "id", "x")])


def random_query(rng: random.Random) -> str:
    length = rng.randint(1, 4)
    steps = ", ".join(f"{rng.choice('ABCD')} v{place}" for place in range(length))
    keyed = rng.random() < 0.5
    groups = ["id"] * (keyed and rng.random() < 0.3) + [f"v{rng.randrange(length)}.x"] * (rng.random() < 0.7)
    group_by = f"GROUP BY {', '.join(groups)} " if groups else ""
    rest = f"{group_by}AGG COUNT AS n WITHIN {rng.randint(1, 25)}{rng.choice(['', ' EMIT ON CHANGE'])}"
    return f"PATTERN SEQ({steps}) {'WHERE [id] ' if keyed else ''}{rest}"


def random_events(rng: random.Random) -> list[dict[str, object]]:
    events, ts = [], rng.choice([0, -50])
    for _ in range(rng.randint(5, 60)):
        ts += rng.choice([0, 1, 1, 2, 5])
        # Keys and values come and go.
        row = {"id": rng.randint(1, 4) + ts // 40, "x": rng.choice([None, 1, 2, 3 + ts // 30])}
        events.append({"ts": ts, "type": rng.choice("ABCD")} | row)
    return events


@pytest.mark.parametrize("part", range(10))
def test_sums_count_as_rows_do(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Keys and groups get new numbers often, and all first events are rare.
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    monkeypatch.setattr(plan, "_RARE", 0)
    for number in range(part, case_count(300), 10):
        rng = random.Random(f"groups {number}")
        query, events = random_query(rng), random_events(rng)
        table = pa.Table.from_pylist(events, schema=SCHEMA)
        wanted = counted(match_without([COUNT_BY_INVERSE, COUNT_BY_STACKS], table, query).to_pylist())
        assert counted(ouzel.match(table, query).to_pylist()) == wanted, f"case {number}: {query}"
        if len(events) <= 25:
            given = [Event(row["type"], row["ts"], row["ts"], row | {"time": row["ts"]}) for row in events]
            ((_, results),) = oracle.answer(query, given, types=None).items()
            assert counted(result.row for result in results) == wanted, f"case {number}: {query}"
        engine = ouzel.Engine(query, schema=SCHEMA)
        rows = []
        while events:
            taken, events = events[: (size := rng.choice([1, 2, 7]))], events[size:]
            rows += engine.push(taken)["query"].to_pylist()
            if rng.random() < 0.2:
                engine = ouzel.Engine.restore(engine.snapshot())
        rows += engine.finish()["query"].to_pylist()
        assert counted(rows) == wanted, f"case {number} in pushes: {query}"


@pytest.mark.parametrize("group", ["a.x", "b.x", "c.x"])
def test_expired_groups_leave_no_memory(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """New values come all the time, and the memory stays that of the window."""
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    engine = ouzel.Engine(f"PATTERN SEQ(A a, B b, C c) GROUP BY {group} AGG COUNT AS n WITHIN 60")
    sizes = []
    for first in range(0, 6_000, 300):
        at = range(first, first + 300)
        engine.push(pa.table({"ts": list(at), "type": ["ABC"[n % 3] for n in at], "x": [n // 9 for n in at]}))
        sizes.append(len(engine.snapshot()))
    assert max(sizes[10:]) < 1.2 * max(sizes[2:10])


@pytest.mark.parametrize("key", ["", "WHERE [id] ", "GROUP BY id "])
def test_only_rare_first_events_are_held(key: str) -> None:
    """As in the paper, which has a row of counters for each of them: no event after them is needed again."""
    where, group = (key, "") if key.startswith("WHERE") else ("", key)
    query = f"PATTERN SEQ(A a, B b, C c) {where}{group}AGG COUNT AS n WITHIN 4000"
    types = ["A" if n % 50 == 0 else "BC"[n % 2] for n in range(6_000)]
    events = [{"ts": n, "type": kind, "id": n // 3 % 4} for n, kind in enumerate(types)]
    engine = ouzel.Engine(query)
    rows = []
    for first in range(0, len(events), 500):
        rows += engine.push(events[first : first + 500])["query"].to_pylist()
        live = sum(event["type"] == "A" for event in events[max(0, first + 500 - 4_000) : first + 500])
        assert engine.held_events <= 2 * live
    rows += engine.finish()["query"].to_pylist()
    assert counted(rows) == counted(match_without([COUNT_BY_INVERSE], events, query).to_pylist())
