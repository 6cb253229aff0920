"""Aggregates equal the oracle's on random queries and streams, however they are fed, counted or built."""

from __future__ import annotations

import os
import random

import pytest

from ouzel.bind import bind, catalog_for
from ouzel.engines.aggregate import tables as counters_tables
from ouzel.engines.aggregate.plan import AggregatePlan
from ouzel.engines.aggregate.tables import Way
from ouzel.lang import parse
from ouzel.plan.choose import make_plan
from ouzel.plan.rules import RULES
from tests.agreement import SCHEMA, expected, matched, streamed
from tests.generate.aggregates import random_aggregate
from tests.generate.patterns import RandomCase

CASES = int(os.environ.get("OUZEL_RANDOM_CASES", "500"))
PARTS = 50
COUNTING = [rule.name for rule in RULES if rule.name.startswith("count_")]


def plan_of(case: RandomCase) -> AggregatePlan:
    query = parse(case.text)
    plan = make_plan(bind(query, case.text, catalog_for(schema=SCHEMA, time="time")))
    assert isinstance(plan, AggregatePlan)
    return plan


@pytest.mark.parametrize("part", range(PARTS))
def test_random_aggregates(part: int) -> None:
    told = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"aggregate {number}")
        case = random_aggregate(rng)
        want = expected(case)
        told += bool(want)
        assert matched(case) == want, f"case {number}, whole:\n{case.text}"
        off = [rule.name for rule in RULES if rng.random() < 0.3]
        assert matched(case, rules_off=off) == want, f"case {number}, without {off}:\n{case.text}"
        if "WITHIN" in case.text or plan_of(case).way not in (None, Way.GRAPH):
            assert streamed(case, rng) == want, f"case {number}, streamed:\n{case.text}"
    assert CASES < 500 or told, "too few cases tell anything for their agreement to mean much"


@pytest.mark.parametrize("off", [[], COUNTING[1:2], COUNTING[1:], COUNTING], ids=str)
def test_each_way_of_counting(off: list[str]) -> None:
    for number in range(60):
        case = random_aggregate(random.Random(f"way {number}"))
        assert matched(case, rules_off=off) == expected(case), f"case {number}:\n{case.text}"


def test_every_way_is_chosen_for_some_case() -> None:
    chosen = {plan_of(random_aggregate(random.Random(f"aggregate {number}"))).way for number in range(200)}
    assert chosen == {None, *Way}


def test_a_broken_kernel_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that keeps events one tick too long must not go unnoticed."""
    right = counters_tables.build_counter_tables

    def wrong(negated, kleene=None, window=None, *rest, **options):  # type: ignore[no-untyped-def]
        return right(negated, kleene, None if window is None else window + 1, *rest, **options)

    monkeypatch.setattr("ouzel.engines.aggregate.operator.build_counter_tables", wrong)
    cases = [random_aggregate(random.Random(f"broken {number}")) for number in range(60)]
    assert any(matched(case) != expected(case) for case in cases)
