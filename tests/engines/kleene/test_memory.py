"""What runs and graphs hold follows the window, however long the stream is."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel.runtime import codes
from tests.agreement import streamed
from tests.generate import random_case

pytestmark = pytest.mark.compiled

WINDOW = 600
QUERIES = {
    "runs": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match { [k] AND a[i].x > a[i-1].x } WITHIN 600",
    "contiguous": "PATTERN SEQ(A+ a[], B b) WHERE partition_contiguity { [k] } WITHIN 600",
    "graph": "PATTERN SEQ(A+ a[], B b) WHERE [k] AND a[i].x > a[i-1].x AND b.x > 995 WITHIN 600 OUTPUT COMPRESSED",
    "in events": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match { [k] AND a[i].x > a[i-1].x } WITHIN 60 EVENTS",
}


def events(first: int, count: int) -> pa.Table:
    rng = np.random.default_rng(first)
    types = np.where(rng.random(count) < 0.9, "A", "B")
    columns = {"k": rng.integers(0, 10, count), "x": rng.integers(0, 1000, count)}
    return pa.table({"type": types, "ts": np.arange(first, first + count), **columns})


@pytest.mark.parametrize("kind", QUERIES)
def test_state_is_bounded_over_fifty_windows(kind: str) -> None:
    engine = ouzel.Engine(QUERIES[kind], max_delay=0)
    sizes = []
    for number in range(50):
        engine.push(events(number * WINDOW, WINDOW))
        sizes.append(len(engine.snapshot()))
    # The front of the buffers is let go in portions, so sizes swing; they do not grow.
    assert max(sizes[40:]) <= 1.2 * max(sizes[10:25])


# ── Windows in events ──────────────────────────────────────────────────────────────────────────────

SILENT = "PATTERN SEQ(A+ a[], B b) WHERE {strategy} {{ [k] AND a[i].x > a[i-1].x }} WITHIN 20 EVENTS"


@pytest.mark.parametrize("strategy", ["skip_till_next_match", "partition_contiguity", "skip_till_any_match"])
def test_a_partition_that_falls_silent_holds_nothing_of_the_others(strategy: str) -> None:
    engine = ouzel.Engine(SILENT.format(strategy=strategy), max_delay=0)
    engine.push([{"type": "A", "ts": -1, "k": -1, "x": 1}])
    sizes = []
    for number in range(50):
        engine.push(events(number * WINDOW, WINDOW))
        sizes.append(len(engine.snapshot()))
    assert max(sizes[40:]) <= 1.2 * max(sizes[10:25])
    # Its window counts its own events, so it goes on where it stood.
    found = engine.push([{"type": "B", "ts": 50 * WINDOW, "k": -1, "x": 2}])["query"].to_pylist()
    found += engine.finish()["query"].to_pylist()
    assert [row["start"] for row in found if row["b"]["k"] == -1] == [-1]


def test_letting_go_at_every_step_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    compared = 0
    for number in range(400):
        rng = random.Random(f"silent {number}")
        case = random_case(rng, "kleene")
        if "EVENTS" in case.text:
            assert streamed(case, rng) == case.expected(), f"case {number}:\n{case.text}"
            compared += 1
    assert compared > 40


SLOTS = pa.schema({"type": pa.string(), "time": pa.int64(), "id": pa.int64()})


@pytest.mark.parametrize(
    ("query", "read", "waiting", "later"),
    [
        # Events that still wait have keys that no event has had yet.
        (
            "PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [id] } WITHIN 5 EVENTS",
            [("A", 0, 0), ("A", 1, 1)],
            [("A", 11, id) for id in range(2, 8)],
            [("B", 12, id) for id in range(2, 8)],
        ),
        # SKIP TO names the slot behind the last one.
        (
            "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] } "
            "WITHIN 9 EVENTS OUTPUT SKIP TO LAST b",
            [("A", 0, 0), ("A", 1, 1), ("B", 2, 0)],
            [],
            [("A", 7, 0), ("B", 8, 0)],
        ),
    ],
)
@pytest.mark.parametrize("restored", [False, True])
def test_event_windows_evict_after_every_event(
    query: str, read: list[Any], waiting: list[Any], later: list[Any], restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    tables = [
        pa.Table.from_pylist([dict(zip(SLOTS.names, row, strict=True)) for row in rows], schema=SLOTS)
        for rows in (read, waiting, later)
    ]
    engine = ouzel.Engine(query, time="time", max_delay=20)
    rows = engine.push(tables[0])["query"].to_pylist() + engine.advance(2)["query"].to_pylist()
    rows += engine.push(tables[1])["query"].to_pylist()
    for tick in (3, 4):
        if restored:
            engine = ouzel.Engine.restore(engine.snapshot())
        rows += engine.advance(tick)["query"].to_pylist()
    rows += engine.push(tables[2])["query"].to_pylist() + engine.finish()["query"].to_pylist()
    whole = ouzel.match(pa.concat_tables(tables), query, time="time").to_pylist()
    assert sorted(map(repr, rows)) == sorted(map(repr, whole))
