"""Where a limit drops the newest, it is the newest that go, whatever comes between them and the next event."""

from __future__ import annotations

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
