"""Groups that appear while a stream goes on leave the counts of the others alone."""

from __future__ import annotations

import ouzel


def test_a_new_group_in_a_small_batch_keeps_what_others_had() -> None:
    rows = [(5, "u"), (5, "v"), (7, "u"), (8, "v"), (9, "u"), (12, "v"), (13, "w"), (13, "v")]
    events = [{"type": "A", "ts": ts, "s": s} for ts, s in rows]
    query = "PATTERN SEQ(A a) GROUP BY s AGG COUNT WITHIN 7"
    whole = ouzel.match(events, query).to_pylist()
    assert {"end": 12, "s": "v", "count": 2} in whole and {"end": 13, "s": "v", "count": 3} in whole
    for size in (1, 2, 3):
        engine = ouzel.Engine(query)
        told = [row for i in range(0, 8, size) for row in engine.push(events[i : i + size])["query"].to_pylist()]
        told += engine.finish()["query"].to_pylist()
        assert sorted(map(str, told)) == sorted(map(str, whole)), f"in batches of {size}"
