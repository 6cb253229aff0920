"""Aggregates equal the oracle's on random queries and streams, however they are fed, counted or built."""

from __future__ import annotations

import random

import pytest

import ouzel
from ouzel.engines.aggregate import tables as counters_tables
from ouzel.engines.aggregate.plan import AggregatePlan
from ouzel.engines.aggregate.tables import Way
from ouzel.plan.choose import all_rules
from ouzel.prepared import as_queries
from ouzel.runtime import codes
from ouzel.runtime.program import make_program
from tests.agreement import agree, case_count, matched, rules_off, streamed, whole
from tests.generate import random_case
from tests.generate.cases import COLUMNS, SCHEMA, RandomCase
from tests.runtime.held import held_bytes

pytestmark = pytest.mark.quick

CASES = case_count(500)
PARTS = 50
COUNTING = [rule.name for rule in all_rules() if rule.name.startswith("count_")]


def plan_of(case: RandomCase) -> AggregatePlan:
    (plan,) = make_program(as_queries(case.query), SCHEMA, **COLUMNS).plans().values()
    assert isinstance(plan, AggregatePlan)
    return plan


@pytest.mark.parametrize("part", range(PARTS))
def test_random_aggregates(part: int) -> None:
    answering = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"aggregate {number}")
        case = random_case(rng, "aggregate")
        # Counting by keys needs no window on a stream.
        can_stream = case.can_stream or plan_of(case).way not in (None, Way.GRAPH, Way.INDEXED)
        ways = (whole, rules_off, streamed) if can_stream else (whole, rules_off)
        answering += agree(case, ways, rng, number)
    assert CASES < 500 or answering, "too few cases have answers for their agreement to mean much"


@pytest.mark.parametrize("off", [[], COUNTING[1:2], COUNTING[1:], COUNTING], ids=str)
def test_each_way_of_counting(off: list[str]) -> None:
    for number in range(case_count(60)):
        case = random_case(random.Random(f"way {number}"), "aggregate")
        assert matched(case, rules_off=off) == case.expected(), f"case {number}:\n{case.text}"


@pytest.mark.parametrize("part", range(10))
def test_early_eviction_changes_nothing(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Events, keys and groups make room after every push, not only after thousands.
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    for number in range(part, CASES // 5, 10):
        rng = random.Random(f"eviction {number}")
        case = random_case(rng, "aggregate")
        if case.can_stream:
            agree(case, (streamed,), rng, number)


def test_texts_of_expired_events_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    engine = ouzel.Engine("PATTERN SEQ(A a, B b) WHERE a.name != b.name WITHIN 10 AGG COUNT AS n")
    events = [{"type": "AB"[n % 2], "ts": n, "name": f"name {n // 4:03}"} for n in range(400)]
    counts: list[int] = []
    held = []
    for event in events:
        counts += engine.push([event])["query"]["n"].to_pylist()
        held.append(sum(held_bytes(engine._session).values()))
    counts += engine.finish()["query"]["n"].to_pylist()
    windows = [events[max(0, n - 9) : n + 1] for n in range(1, 400, 2)]
    wanted = [
        sum(a["name"] != b["name"] for place, b in enumerate(window) if place % 2 for a in window[:place:2])
        for window in windows
    ]
    assert counts[-len(windows) + 5 :] == wanted[5:]
    assert max(held[200:]) == max(held[100:200])


def test_every_way_is_chosen_for_some_case() -> None:
    chosen = {plan_of(random_case(random.Random(f"aggregate {number}"), "aggregate")).way for number in range(200)}
    assert chosen == {None, *Way}


def test_a_broken_kernel_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that keeps events one tick too long must not go unnoticed."""
    right = counters_tables.build_counter_tables

    def wrong(negated, kleene=None, window=None, *rest, **options):  # type: ignore[no-untyped-def]
        return right(negated, kleene, None if window is None else window + 1, *rest, **options)

    monkeypatch.setattr("ouzel.engines.aggregate.operator.build_counter_tables", wrong)
    cases = [random_case(random.Random(f"broken {number}"), "aggregate") for number in range(60)]
    assert any(matched(case) != case.expected() for case in cases)
