"""Nested AND, OR and NOT: the engine equals the oracle, which distributes, and takes no more than linear effort."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

import ouzel
from tests.agreement import agree, case_count, ways_of
from tests.generate import random_case

pytestmark = pytest.mark.quick

CASES = case_count(300)
PARTS = 10


@pytest.mark.parametrize("profile", ["sase", "kleene"])
@pytest.mark.parametrize("part", range(PARTS))
def test_random_nested_conditions(part: int, profile: str) -> None:
    matching = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"nested {profile} {number}")
        case = random_case(rng, profile, depth=rng.choice((1, 2, 2)))
        matching += agree(case, ways_of(case), rng, number)
    assert CASES < 300 or matching > 0.1 * CASES / PARTS, "too few cases match for their agreement to mean much"


ALTERNATIVES = 200
ROWS = 300


def pairs(variable: str, other: str | None = None) -> str:
    """An OR of ANDs, each of which holds for one value of x."""
    own = [f"{variable}.x = {n} AND {variable}.y = {n % 7}" for n in range(ALTERNATIVES)]
    if other is not None:
        own = [f"{one} AND {variable}.x = {other}.x AND {other}.y < {n % 5}" for n, one in enumerate(own)]
    return "(" + " OR ".join(f"({one})" for one in own) + ")"


def holds(x: int, y: int) -> bool:
    return x < ALTERNATIVES and y == x % 7


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = random.Random(19)
    rows = [(rng.choice("AB"), n, rng.randrange(2 * ALTERNATIVES), rng.randrange(7)) for n in range(ROWS)]
    rows += [("AB"[n % 2], ROWS + n, n % 3, n % 3 if n % 5 else 6) for n in range(30)]
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(("type", "time", "x", "y"))})


def returned(table: pa.Table, where: str, pattern: str, columns: str) -> list[tuple[int, ...]]:
    text = f"PATTERN {pattern} WHERE {where} WITHIN 1000 RETURN R({columns})"
    rows = ouzel.match(table, text, time="time", type="type").to_pylist()
    return sorted(tuple(value for name, value in row.items() if name not in ("start", "end")) for row in rows)


@pytest.mark.thorough
def test_hundreds_of_alternatives_over_one_event(table: pa.Table) -> None:
    events = table.to_pylist()
    passing = [row["time"] for row in events if row["type"] == "A" and holds(row["x"], row["y"])]
    assert passing
    assert returned(table, pairs("a"), "A a", "a.time AS t") == [(time,) for time in passing]
    failing = [row["time"] for row in events if row["type"] == "A" and not holds(row["x"], row["y"])]
    assert returned(table, f"NOT {pairs('a')}", "A a", "a.time AS t") == [(time,) for time in failing]


@pytest.mark.thorough
def test_hundreds_of_alternatives_over_two_events(table: pa.Table) -> None:
    events = table.to_pylist()
    want = [
        (a["time"], b["time"])
        for a in events
        for b in events
        if (a["type"], b["type"]) == ("A", "B") and a["time"] < b["time"]
        if holds(a["x"], a["y"]) and a["x"] == b["x"] and b["y"] < a["x"] % 5
    ]
    assert want
    assert returned(table, pairs("a", "b"), "SEQ(A a, B b)", "a.time AS t, b.time AS u") == sorted(want)


@pytest.mark.thorough
def test_hundreds_of_alternatives_of_negation_and_kleene(table: pa.Table) -> None:
    events = table.to_pylist()
    forbidding = [row["time"] for row in events if row["type"] == "B" and holds(row["x"], row["y"])]
    starts = [row["time"] for row in events if row["type"] == "A" and row["x"] <= 2]
    want = [
        (start, end)
        for start in starts
        for end in starts
        if start < end and not any(start < time < end for time in forbidding)
    ]
    assert want
    where = f"{pairs('n')} AND a.x <= 2 AND c.x <= 2"
    assert returned(table, where, "SEQ(A a, !(B n), A c)", "a.time AS t, c.time AS u") == sorted(want)
    taken = [row["time"] for row in events if row["type"] == "A" and row["time"] >= ROWS and holds(row["x"], row["y"])]
    where = f"skip_till_next_match(a[], b) {{ a[1].time >= {ROWS} AND {pairs('a')} AND b.x = 0 }}"
    found = returned(table, where, "SEQ(A+ a[], B b)", "a[1].time AS t, a.LEN AS n, b.time AS u")
    last = max(row["time"] for row in events if row["type"] == "B" and row["x"] == 0)
    assert {start for start, _, _ in found} == {time for time in taken if time < last}
    assert all(length == sum(start <= time < end for time in taken) for start, length, end in found)


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal64(12, 3)])
@pytest.mark.parametrize("negated", ["", "NOT "])
def test_in_is_one_comparison_for_every_type(kind: pa.DataType, negated: str) -> None:
    # Items of many digits are compared one by one. They still decide together whether the negative event forbids.
    rows = [("C", 1, 3, 1), ("B", 2, 1, 0), ("C", 3, 3, 5), ("B", 4, 1, 0), ("B", 20, 5, 0)]
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(("type", "time", "x", "y"))})
    values = [Decimal(y) if pa.types.is_decimal(kind) else y for y in table["y"].to_pylist()]
    table = table.set_column(3, "y", pa.array(values, kind))
    text = f"PATTERN SEQ(!(C a), B c) WHERE c.x {negated}IN (0, 1, a.y) WITHIN 8"
    found = [row["c"]["time"] for row in ouzel.match(table, text, time="time").to_pylist()]
    # x = 1 is in the list whatever y is, so every C in the window forbids it; x = 5 has no C in its window.
    assert found == ([2, 4, 20] if negated else [20])
