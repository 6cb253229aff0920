"""Contiguity by step: where it equals a strategy, the oracle on longer streams, EXPLAIN, why, snapshots and sets."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import ouzel
from ouzel.engines.kleene import operator as runs
from tests.agreement import case_count, matched, streamed
from tests.generate.cases import COLUMNS, RandomCase
from tests.generate.events import VALUES
from tests.oracle.events import Event

pytestmark = pytest.mark.quick

CASES = case_count(200) // 4
# Patterns with the variables of a strategy, and the steps into their components and inside repetitions.
PATTERNS = (
    ("SEQ(A a, B b)", "a, b", ("b",)),
    ("SEQ(A a, B b, A c)", "a, b, c", ("b", "c")),
    ("SEQ(A a, !(C n), B b)", "a, b", ("b",)),
    ("SEQ(A+ a[], B b)", "a[], b", ("a[i]", "b")),
    ("SEQ(A a, B+ b[], A c)", "a, b[], c", ("b", "b[i]", "c")),
)
CONDITIONS = ("", "[id]", "b.x >= a.x", "[id] AND b.x > a.x")
EQUAL = {
    "strict": "strict_contiguity",
    "partition": "partition_contiguity",
    "next": "skip_till_next_match",
    "any": "skip_till_any_match",
}


def _events(rng: random.Random, count: int) -> list[Event]:
    events, time = [], 0
    for number in range(count):
        time += rng.choice([0, 1, 1, 2])
        kind = rng.choice("AAABBBC")
        own = {name: rng.choice(values) for name, values in VALUES.items()}
        events.append(Event(kind, time, time, {**own, "n": number, "time": time, "type": kind}))
    return events


@pytest.mark.parametrize("rule", EQUAL)
def test_one_rule_for_all_steps_is_a_strategy(rule: str) -> None:
    matching = 0
    for number in range(CASES):
        rng = random.Random(f"{rule} {number}")
        pattern, variables, steps = rng.choice([p for p in PATTERNS if rule != "next" or "+" not in p[0]])
        condition = rng.choice(CONDITIONS)
        end = f"{{ {condition} }} WITHIN {rng.choice(['5', '9', '6 EVENTS'])}"
        events = _events(rng, 14)
        named = ", ".join(f"{step}: {rule}" for step in steps)
        by_step = RandomCase(f"PATTERN {pattern} WHERE contiguity({named}) {end}", events, None)
        by_strategy = RandomCase(f"PATTERN {pattern} WHERE {EQUAL[rule]}({variables}) {end}", events, None)
        want = by_strategy.expected()
        assert by_step.expected() == want, by_step.text
        assert matched(by_step) == want, by_step.text
        matching += bool(want)
    assert CASES < 50 or matching > CASES / 10


@pytest.mark.parametrize("index_min", [1, 128])
def test_steps_on_longer_streams_equal_the_oracle(index_min: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many runs, these are found by value."""
    monkeypatch.setattr(runs, "INDEX_MIN", index_min)
    matching = 0
    for number in range(CASES):
        rng = random.Random(f"steps {number}")
        pattern, _, steps = rng.choice(PATTERNS)
        named = ", ".join(f"{step}: {rng.choice(('next', 'next', 'any', 'strict', 'partition'))}" for step in steps)
        condition = rng.choice(CONDITIONS)
        case = RandomCase(
            f"PATTERN {pattern} WHERE contiguity({named}) {{ {condition} }} WITHIN 8", _events(rng, 24), None
        )
        want = case.expected()
        assert matched(case) == want, case.text
        assert streamed(case, rng) == want, f"streamed: {case.text}"
        matching += bool(want)
    assert CASES < 50 or matching > CASES / 5


def test_merged_runs_keep_any_from_growing() -> None:
    """Every A may follow every earlier one, so there are 2^n - 1 choices, and a run for each A."""
    text = "PATTERN SEQ(A+ a[], B b) WHERE contiguity(a[i]: any, b: next) { } WITHIN 1000"
    engine = ouzel.Engine(text, max_delay=0, limits={"max_partial_matches": 50})
    engine.push([{"type": "A", "ts": ts} for ts in range(50)])
    with pytest.raises(ouzel.LimitError, match="max_partial_matches=50"):
        engine.push([{"type": "A", "ts": 50}])
        engine.finish()


def test_snapshots_keep_closed_steps() -> None:
    text = (
        "PATTERN SEQ(A a, B+ b[], C c) WHERE contiguity(b: next, b[i]: any, c: next) { } WITHIN 100 RETURN R(b.ts AS b)"
    )
    before = [{"type": kind, "ts": ts} for ts, kind in enumerate("ABBC")]
    after = [{"type": kind, "ts": ts} for ts, kind in enumerate("BCC", start=4)]
    whole = ouzel.Engine(text, max_delay=0)
    wanted = [row for part in (before, after) for row in whole.push(part)["query"].to_pylist()]
    engine = ouzel.Engine(text, max_delay=0)
    found = engine.push(before)["query"].to_pylist()
    engine = ouzel.Engine.restore(engine.snapshot())
    found += engine.push(after)["query"].to_pylist() + engine.finish()["query"].to_pylist()
    wanted += whole.finish()["query"].to_pylist()
    assert found == wanted
    # b2 and b3 are both left at c4, and each of them with the b5 that follows at c6: never at c7.
    assert sorted(row["b"] for row in found) == [[1], [1, 2], [1, 2, 4], [1, 4]]


def test_explain_shows_what_each_step_ignores() -> None:
    text = "PATTERN SEQ(A a, B+ b[], C c) WHERE contiguity(b: next, b[i]: strict, c: partition) { [id] } WITHIN 9"
    shown = ouzel.explain(text)
    lines = [line.strip() for line in str(shown).splitlines() if "ignore" in line]
    assert lines == [
        "(b[i])  ignore nothing",
        "(b[1])  ignore what does not match  if within 9 ticks",
        "(c)  ignore other partitions  if within 9 ticks",
    ]
    assert "events that fill no component count too, in the whole stream" in str(shown)


@pytest.mark.parametrize(
    ("rule", "events", "reason"),
    [
        ("strict", "AXB", "no match: under contiguity(b: strict) the next event must be b"),
        ("partition", "AXB", "no match: under contiguity(b: partition) the next event of its partition must be b"),
        ("next", "AXC", "no match: nothing of type B came in time"),
    ],
)
def test_why_names_the_step(rule: str, events: str, reason: str) -> None:
    rows = [{"type": kind, "time": time, "id": 1} for time, kind in enumerate(events)]
    text = f"PATTERN SEQ(A a, B b) WHERE contiguity(b: {rule}) {{ [id] }} WITHIN 9"
    assert str(ouzel.why(rows, text, start=0, **COLUMNS)).splitlines()[-1] == reason


def test_the_steps_of_a_set() -> None:
    text = "PATTERN SEQ(A a, B b) WHERE contiguity(b: next) { [id] } WITHIN 9 RETURN R(a.ts AS a, b.ts AS b)"
    events = [{"type": kind, "ts": ts, "id": 1} for ts, kind in enumerate("ABB")]
    queries = ouzel.QuerySet()
    queries.add("next", text)
    found = [
        row
        for answer in (queries.push(events), queries.finish())
        for row in answer.get("next", pa.table({})).to_pylist()
    ]
    assert [(row["a"], row["b"]) for row in found] == [(0, 1)]
    assert ouzel.match(events, text).to_pylist() == [{"start": 0, "end": 1, "a": 0, "b": 1}]
