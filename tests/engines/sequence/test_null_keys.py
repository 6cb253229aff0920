"""Events that play several components, some of which a null in a written equality rules out."""

from __future__ import annotations

import ouzel


def test_as_many_instances_as_rows_need_not_be_one_of_each() -> None:
    """Two of four events play two components each, and two have a null: four instances, but not of the four rows."""
    events = [
        {"type": "A", "ts": 1, "id": None},
        {"type": "A", "ts": 2, "id": 1},
        {"type": "A", "ts": 3, "id": 1},
        {"type": "A", "ts": 4, "id": None},
    ]
    query = "PATTERN SEQ(A a, A b) WHERE a.id = b.id WITHIN 10 RETURN Pair(a.ts AS a, b.ts AS b)"
    assert ouzel.match(events, query).to_pylist() == [{"start": 2, "end": 3, "a": 2, "b": 3}]
