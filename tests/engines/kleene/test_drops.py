"""Where a limit drops the newest, it is the newest that go, whatever comes between them and the next event."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import ouzel

LONELY = "PATTERN SEQ(A+ a[], B b, !(C c)) WHERE skip_till_next_match { [k] } WITHIN 100 RETURN R(b.k AS k, a.LEN AS n)"


@pytest.mark.parametrize("between", [[], [("C", 5, 9)], [("C", 5, 9), ("C", 6, 1)]], ids=["none", "other key", "both"])
@pytest.mark.parametrize("whole", [True, False])
def test_the_newest_run_goes_and_not_what_waits(between: list[tuple[str, int, int]], whole: bool) -> None:
    # A and B of key 1 make a run and a match that waits; the run of key 2 is one too many.
    events = [("A", 1, 1), ("B", 2, 1), ("A", 3, 2), *between, ("B", 7, 2), ("B", 8, 3)]
    rows = [{"type": kind, "ts": ts, "k": key} for kind, ts, key in events]
    engine = ouzel.Engine(LONELY, limits={"max_partial_matches": 2, "when_passed": "drop"})
    parts = [rows] if whole else [[row] for row in rows]
    found = [row for part in parts for row in engine.push(part)["query"].to_pylist()]
    found += engine.finish()["query"].to_pylist()
    assert engine.dropped == {"query": {"max_partial_matches": 1}}
    forbidden = any(key == 1 for _, _, key in between)
    assert [(row["k"], row["n"]) for row in found] == ([] if forbidden else [(1, 1)])


@pytest.mark.parametrize("condition", ["", "WHERE [k]", "WHERE a[i].x > a[i-1].x"])
@pytest.mark.parametrize("window", ["9", "7 EVENTS"])
def test_what_a_graph_leaves_out_is_counted(condition: str, window: str) -> None:
    rng = random.Random(f"{condition} {window}")
    query = f"PATTERN SEQ(A+ a[], B b) {condition} WITHIN {window}"
    left_out = 0
    for _ in range(5):
        ticks = sorted(rng.choices(range(30), k=40))
        rows = [{"type": rng.choice("AAB"), "ts": ts, "k": rng.choice("xy"), "x": rng.randint(0, 5)} for ts in ticks]
        everything = Counter(map(repr, ouzel.match(rows, query).to_pylist()))
        engine = ouzel.Engine(query, limits={"max_matches_per_moment": 6, "when_passed": "drop"})
        found = [row for part in (rows[:17], rows[17:]) for row in engine.push(part)["query"].to_pylist()]
        found += engine.finish()["query"].to_pylist()
        dropped = engine.dropped["query"].get("max_matches_per_moment", 0)
        assert len(found) + dropped == everything.total()
        assert Counter(map(repr, found)) <= everything
        assert max(Counter(row["end"] for row in found).values()) <= 6
        left_out += dropped
    assert left_out


def test_what_is_left_out_is_never_walked() -> None:
    rows = [{"type": "A", "ts": ts} for ts in range(200)] + [{"type": "B", "ts": 200}]
    engine = ouzel.Engine(
        "PATTERN SEQ(A+ a[], B b) WITHIN 60", limits={"max_matches_per_moment": 10, "when_passed": "drop"}
    )
    engine.push(rows)
    assert len(engine.finish()["query"]) == 10
    assert engine.dropped == {"query": {"max_matches_per_moment": 2**59 - 1 - 10}}
    engine = ouzel.Engine(
        "PATTERN SEQ(A+ a[], B b) WITHIN 300", limits={"max_matches_per_moment": 10, "when_passed": "drop"}
    )
    engine.push(rows)
    engine.finish()
    # A column holds no more.
    assert engine.dropped == {"query": {"max_matches_per_moment": 2**63 - 1}}
