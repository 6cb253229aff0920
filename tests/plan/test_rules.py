"""What each rule does to a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ouzel.bind import catalog_for
from ouzel.errors import InputError
from ouzel.plan.lowering import Domain, lower
from ouzel.plan.model import KeyWay, NegationWay, Plan, Statistics, build
from ouzel.plan.rules import RULES, optimize
from ouzel.prepared import query
from tests.golden.embedded import program_of, rules_that_act
from tests.golden.format import Case, read_all

COLUMNS = {"id": "bigint", "ref": "bigint", "x": "bigint", "f": "double", "s": "string", "d": "decimal(10,2)"}

RUNNABLE = [case for case in read_all() if case.expected_error is None]


def plan_of(text: str, statistics: Statistics | None = None, off: tuple[str, ...] = (), **types: object) -> Plan:
    catalog = catalog_for(types or None, schema=COLUMNS | {"ts": "bigint", "type": "string"}, time="ts")
    return optimize(build(query(text).bind(catalog)), statistics, off=off)


def test_the_basic_plan_pushes_nothing() -> None:
    plan = plan_of(
        "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.x > 1 AND a.x < b.x WITHIN 5",
        off=tuple(rule.name for rule in RULES),
    )
    assert not plan.key and not plan.construction and not plan.window_in_scan
    assert plan.negation is NegationWay.INDEX
    # a.x > 1, a.x < b.x and a.id = b.id on complete sequences; c.id = a.id and c.id = b.id for the negative.
    assert len(plan.selection) == 3 and len(plan.forbidding[1]) == 2


def test_everything_is_pushed_where_it_belongs() -> None:
    plan = plan_of("PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.x > 1 AND a.x < b.x AND c.x = a.x WITHIN 5")
    assert [part.label for part in plan.key] == ["id"]
    assert len(plan.roles[0]) == 2 and len(plan.construction) == 1 and not plan.selection
    assert len(plan.forbidding[1]) == 1
    assert plan.window_in_scan and plan.window_in_construction
    assert plan.negation is NegationWay.CONSTRUCTION
    assert {note.rule for note in plan.notes} >= {"predicates_into_roles", "equivalence_into_key"}


def test_written_equalities_are_hashed_where_they_join_all_positives() -> None:
    plan = plan_of("PATTERN SEQ(A a, B b, C c) WHERE a.id = b.ref AND b.ref = c.id WITHIN 5")
    assert [part.label for part in plan.key] == ["a.id = b.ref = c.id"]
    assert not plan.construction
    # b.id and b.ref are two values: a.id = b.id and b.ref = c.id join nothing.
    plan = plan_of("PATTERN SEQ(A a, B b, C c) WHERE a.id = b.id AND b.ref = c.id WITHIN 5")
    assert not plan.key and len(plan.construction) == 2


def test_a_written_equality_takes_negatives_along() -> None:
    plan = plan_of("PATTERN SEQ(A a, !(C n), B b) WHERE a.id = b.id AND n.ref = a.id WITHIN 5")
    assert set(plan.key[0].expressions) == {0, 1, 2}
    assert not plan.forbidding[1]


def test_an_absent_attribute_makes_no_partition() -> None:
    plan = plan_of("PATTERN SEQ(A a, ANY(B, C) b) WHERE [id] WITHIN 5", A=["id"], B=["id"], C=["x"])
    assert not plan.key and len(plan.construction) == 1
    # A negative that lacks it forbids everywhere; the positives keep their partitions.
    plan = plan_of("PATTERN SEQ(A a, !(C n), B b) WHERE [id] WITHIN 5", A=["id"], B=["id"], C=["x"])
    assert [part.label for part in plan.key] == ["id"] and [c.variable for c in plan.unguarded] == ["n"]


@pytest.mark.parametrize(
    ("distinct", "rate", "way", "first"),
    [
        ({}, None, KeyWay.COMPOSITE, "id"),
        ({"id": 10, "s": 10}, 1.0, KeyWay.COMPOSITE, "id"),
        ({"id": 100, "s": 100_000}, 1.0, KeyWay.MULTI_PAIS, "s"),
        # Nothing is known of the rate, or too many events share a stack.
        ({"id": 100, "s": 100_000}, None, KeyWay.COMPOSITE, "id"),
        ({"id": 200, "s": 200}, 1_000.0, KeyWay.COMPOSITE, "id"),
    ],
)
def test_the_way_of_a_second_equivalence_goes_by_statistics(
    distinct: dict[str, int], rate: float | None, way: KeyWay, first: str
) -> None:
    statistics = Statistics(distinct, events_per_tick=rate)
    plan = plan_of("PATTERN SEQ(A a, B b) WHERE [id] AND [s] WITHIN 5", statistics)
    assert plan.key_way is way and plan.key[0].label == first


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.identity)
def test_explain_names_the_rules_that_act_and_each_can_be_switched_off(case: Case) -> None:
    program = program_of(case)
    for name, plan in program.plans().items():
        acting = {note.rule for note in plan.notes}
        for rule in RULES:
            without = replace(program, rules_off=(rule.name,)).plans()[name]
            assert rule.name not in {note.rule for note in without.notes}
            assert rule.name in acting or getattr(without, "inner", None) or without == plan, rule.name


def test_every_rule_acts_on_a_golden_case() -> None:
    acting = frozenset().union(*(rules_that_act(case) for case in RUNNABLE))
    assert acting == {rule.name for rule in RULES}


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(InputError, match="no rule named"):
        plan_of("PATTERN SEQ(A a, B b) WITHIN 5", off=("magic",))


# ── Lowering ───────────────────────────────────────────────────────────────────────────────────────


def test_lanes_hold_what_concerns_one_event() -> None:
    lowered = lower(plan_of("PATTERN SEQ(A a, B b) WHERE abs(a.x) + 1 < b.x * 2 AND a.f > b.f AND a.s < b.s WITHIN 5"))
    assert [spec.domain for spec in lowered.lanes.ints[0]] == [Domain.INT, Domain.RANK]
    assert [spec.domain for spec in lowered.lanes.floats[0]] == [Domain.FLOAT]
    assert len(lowered.construction) == 3 and not lowered.residual


def test_text_of_two_events_together_is_residual() -> None:
    lowered = lower(plan_of("PATTERN SEQ(A a, B b) WHERE concat(a.s, b.s) = 'xy' AND a.x < b.x WITHIN 5"))
    assert len(lowered.residual) == 1 and len(lowered.construction) == 1
