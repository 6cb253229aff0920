"""What aggregates promise beside their values: errors, limits, drift, memory, and what EXPLAIN says."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel.engines.aggregate.output import ordered, unordered
from ouzel.errors import LimitError, QueryError


def events(*rows: tuple[str, int, Any]) -> list[dict[str, Any]]:
    return [{"type": kind, "ts": time, "x": value} for kind, time, value in rows]


def test_a_count_that_does_not_fit_is_an_error_with_a_hint() -> None:
    many = events(*((kind, 100 * step + n, 0) for step, kind in enumerate("ABCDEFGHIJKL") for n in range(60)))
    text = "PATTERN SEQ(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k, L l) AGG COUNT WITHIN 5000"
    with pytest.raises(LimitError, match="count does not fit integer any more; write COUNT AS DECIMAL"):
        ouzel.match(many, text)
    exact = ouzel.match(many, text.replace("COUNT", "COUNT AS DECIMAL")).to_pylist()
    assert [int(row["count"]) for row in exact[-2:]] == [60**11 * 59, 60**12]


def test_having_compares_a_count_of_many_digits() -> None:
    many = events(*((kind, 100 * step + n, 0) for step, kind in enumerate("ABCDEFGHIJKL") for n in range(60)))
    pattern = "PATTERN SEQ(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k, L l) AGG COUNT AS DECIMAL"
    # 60 times 60^11 at the last L, and 40 of the 60 L bring more than 40 times 60^11.
    found = ouzel.match(many, f"{pattern} HAVING count > {60**11 * 40}.0 WITHIN 5000").to_pylist()
    assert len(found) == 20 and found[-1]["count"] == 60**12
    few = events(("A", 1, 0), ("B", 2, 0), ("B", 3, 0))
    assert ouzel.match(few, "PATTERN SEQ(A a, B b) AGG COUNT AS DECIMAL AS n HAVING n % 2 = 0").num_rows == 1


def test_a_sum_whose_parts_overflow_but_which_fits_is_no_error() -> None:
    large = 2**62
    found = ouzel.match(
        events(("A", 1, large), ("A", 2, large), ("A", 3, -large), ("B", 4, 0)), "PATTERN SEQ(A a, B b) AGG SUM(a.x)"
    )
    assert found.to_pylist() == [{"end": 4, "sum_a_x": large}]
    with pytest.raises(LimitError, match="sum_a_x does not fit"):
        ouzel.match(events(("A", 1, large), ("A", 2, large), ("B", 4, 0)), "PATTERN SEQ(A a, B b) AGG SUM(a.x)")


@pytest.mark.compiled  # thousands of events
def test_sums_of_floats_do_not_drift() -> None:
    """Over 1,000 windows of values of very different sizes: 1e-9 of the sum of absolute values."""
    rng = np.random.default_rng(7)
    count, window = 20_000, 20
    values = np.where(rng.random(count) < 0.5, 1e12, 1.0) * rng.standard_normal(count)
    table = pa.table(
        {"type": pa.array(["A", "B"]).take(pa.array(np.arange(count) % 2)), "ts": np.arange(count), "x": values}
    )
    found = ouzel.match(table, f"PATTERN SEQ(A a, B b) AGG SUM(a.x) AS total WITHIN {window}")
    for end, total in zip(found["end"].to_pylist()[::97], found["total"].to_pylist()[::97], strict=True):
        pairs = [
            (a, b) for a in range(max(0, end - window + 1), end, 1) if a % 2 == 0 for b in range(a + 1, end + 1, 2)
        ]
        exact = math.fsum(values[a] for a, _ in pairs)
        assert abs(total - exact) <= 1e-9 * math.fsum(abs(values[a]) for a, _ in pairs)


def test_a_stream_without_a_window_refuses_what_would_keep_every_event() -> None:
    text = "PATTERN SEQ(A a, B b) WHERE a.x < b.x AGG COUNT"
    engine = ouzel.Engine(text)
    with pytest.raises(QueryError, match=r"has no WITHIN, so all events of a stream would have to be kept"):
        engine.push(events(("A", 1, 0)))
    assert ouzel.match(events(("A", 1, 0), ("B", 2, 1)), text).num_rows == 1


@pytest.mark.compiled  # thousands of events
def test_keys_that_are_gone_are_forgotten() -> None:
    """State follows the window, however many keys a stream has had, and whatever counts them."""
    for text in (
        "PATTERN SEQ(A a, B b) GROUP BY x AGG COUNT WITHIN 50",
        "PATTERN SEQ(A a, !(C c), B b) GROUP BY x AGG COUNT WITHIN 50",
        "PATTERN SEQ(!(C c), A a, B b) GROUP BY x AGG COUNT WITHIN 50",
        "PATTERN SEQ(A a, B b) WHERE a.ts < b.ts GROUP BY x AGG COUNT WITHIN 50",
        "PATTERN SEQ(A a, B b) WHERE a.ts < b.ts AND [x] AGG COUNT WITHIN 50",
    ):
        engine = ouzel.Engine(text)
        told, sizes = 0, []
        for batch in range(30):
            rows = [("A" if n % 2 == 0 else "B", 1000 * batch + n, 500 * batch + n // 2) for n in range(1000)]
            told += engine.push(events(*rows))["query"].num_rows
            sizes.append(len(engine.snapshot()))
        told += engine.finish()["query"].num_rows
        assert told == 30 * 500, text
        assert max(sizes[-5:]) <= 2 * max(sizes[8:14]), f"{text}: {sizes}"


@pytest.mark.quick
@pytest.mark.parametrize(
    "pattern",
    [
        "SEQ(A a, B b)",
        "SEQ(A a, !(C c), B b)",
        "SEQ(A a, B b) GROUP BY b.x",
        "SEQ(A a, B b) WHERE a.x <= b.x",
        "SEQ(A a, B b, B c) WHERE a.x <= c.x",
    ],
)
def test_time_alone_emits_expiry(pattern: str) -> None:
    """As soon as time reaches it: the rows of a whole stream are the same whenever they are emitted."""
    engine = ouzel.Engine(f"PATTERN {pattern} AGG COUNT WITHIN 10 EMIT ON CHANGE")
    engine.push(events(("A", 1, 0), ("B", 2, 0), ("B", 2, 0), ("B", 3, 0)))

    def emitted(until: int) -> list[tuple[int, int]]:
        return [(row["end"], row["count"]) for row in engine.advance(until)["query"].to_pylist()]

    assert [end for end, _ in emitted(10)][-1] == 3
    assert emitted(11) == [(11, 0)]


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("PATTERN SEQ(A a, B b) AGG COUNT", "counters, without a window"),
        ("PATTERN SEQ(A a, B b) AGG COUNT WITHIN 5", "counters, by inverse matrices"),
        ("PATTERN SEQ(A a, !(C c), B b) AGG COUNT WITHIN 5", "counters, by two stacks of products"),
        (
            "PATTERN SEQ(A a, B b) GROUP BY b.x AGG COUNT WITHIN 5",
            "counters, by inverse matrices and a sum for each group",
        ),
        ("PATTERN SEQ(A a, B b) GROUP BY b.x AGG MAX(a.x) WITHIN 5", "counters, a row for each first event"),
        (
            "PATTERN SEQ(A a, B b) WHERE a.x < b.x AGG COUNT WITHIN 5",
            "counters, with an index over the first two events",
        ),
        (
            "PATTERN SEQ(A a, B b, C c) WHERE b.x < c.x AGG COUNT WITHIN 5",
            "counters, along the edges between events",
        ),
        (
            "PATTERN SEQ(A a, B b) WHERE a.x < b.x AND a.y > b.y AGG COUNT WITHIN 5",
            "counters, along the edges between events",
        ),
        ("PATTERN SEQ(A a, B b, C c) WHERE a.x < c.x AGG COUNT WITHIN 5", "stacks, and adding up"),
    ],
)
def test_explain_names_the_way(text: str, kernel: str) -> None:
    explained = ouzel.explain(text)
    assert f"\nkernel {kernel}\n" in explained
    assert ("the cost grows with the number of matches" in explained) == kernel.startswith("stacks,")


def test_floats_keep_their_order_as_integers() -> None:
    values = [-math.inf, -2.5, -5e-324, 0.0, 5e-324, 1.0, math.inf, math.nan]
    shuffled = random.Random(1).sample(values, len(values))
    keys = np.sort(ordered(np.array(shuffled)))
    assert str(unordered(keys).tolist()) == str(values)
    assert len({int(key) for key in ordered(np.array([0.0, -0.0]))}) == 1


@pytest.mark.compiled  # thousands of events
@pytest.mark.parametrize(
    "text",
    [
        "PATTERN SEQ(A a, B b) GROUP BY a.x AGG COUNT WITHIN 50",
        "PATTERN SEQ(A a, B b) GROUP BY b.x AGG COUNT WITHIN 50",
        "PATTERN SEQ(A a, B b) GROUP BY b.x AGG COUNT, MAX(a.ts) WITHIN 50",
        "PATTERN SEQ(A a, B b) WHERE a.ts < b.ts GROUP BY a.x AGG COUNT WITHIN 50",
    ],
)
def test_groups_that_are_gone_are_forgotten(text: str) -> None:
    engine = ouzel.Engine(text)
    told: list[dict[str, Any]] = []
    sizes, rows = [], []
    for batch in range(30):
        new = events(*[("AB"[n % 2], 1000 * batch + n, 500 * batch + n // 2) for n in range(1000)])
        rows += new
        told += engine.push(new)["query"].to_pylist()
        sizes.append(len(engine.snapshot()))
        if batch == 20:
            engine = ouzel.Engine.restore(engine.snapshot())
    told += engine.finish()["query"].to_pylist()
    assert sorted(map(str, told)) == sorted(map(str, ouzel.match(rows, text).to_pylist()))
    assert max(sizes[-5:]) <= 2 * max(sizes[8:16]), sizes


@pytest.mark.compiled  # thousands of events
@pytest.mark.parametrize("condition", ["", "WHERE a.ts < b.ts"])
def test_groups_are_forgotten_in_a_silence(condition: str) -> None:
    engine = ouzel.Engine(f"PATTERN SEQ(A a, B b) {condition} GROUP BY a.x AGG COUNT WITHIN 20000")
    engine.push(events(*[("A", n, n) for n in range(9000)]))
    engine.advance(10_000)
    # Everything leaves, and nothing waits.
    engine.advance(90_000)
    assert engine.held_events == 0
    engine.push(events(("A", 90_001, 7), ("B", 90_002, 7)))
    assert engine.finish()["query"].to_pylist() == [{"end": 90_002, "x": 7, "count": 1}]


@pytest.mark.compiled  # thousands of events
def test_what_a_negated_start_forbids_outlives_the_forgetting_of_keys() -> None:
    engine = ouzel.Engine("PATTERN SEQ(!(C c), A a, B b) GROUP BY x AGG COUNT WITHIN 100")
    engine.push(events(*[("A", n, n) for n in range(30_000)], ("C", 30_000, -1)))
    engine.push(events(*[("A", 30_001, n) for n in range(30_000, 30_050)]))
    told = engine.push(events(("A", 30_010, -1), ("A", 30_010, -2), ("B", 30_020, -1), ("B", 30_020, -2)))["query"]
    later = engine.finish()["query"]
    assert [row["x"] for row in [*told.to_pylist(), *later.to_pylist()]] == [-2]
