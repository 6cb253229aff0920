"""The embedded engine equals the oracle on random queries and streams, however it is fed and whatever rule is off."""

from __future__ import annotations

import random

import pytest

from ouzel.engines.sequence import tables as stack_tables
from ouzel.plan.choose import all_rules
from ouzel.plan.model import KEY_HINTS
from tests.agreement import agree, case_count, matched, streamed, ways_of
from tests.generate import random_case
from tests.generate.cases import RandomCase
from tests.oracle.events import Event

pytestmark = pytest.mark.quick

CASES = case_count(1000)
PARTS = 20


@pytest.mark.parametrize("part", range(PARTS))
def test_random_sequences(part: int) -> None:
    matching = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"sequence {number}")
        case = random_case(rng, "sase")
        matching += agree(case, ways_of(case), rng, number)
    assert CASES < 500 or matching > 0.1 * CASES / PARTS, "too few cases match for their agreement to mean much"


@pytest.mark.parametrize("rule", [rule.name for rule in all_rules()])
def test_each_rule_off(rule: str) -> None:
    for number in range(case_count(40)):
        case = random_case(random.Random(f"rule {number}"), "sase")
        assert matched(case, rules_off=[rule]) == case.expected(), f"case {number}:\n{case.text}"


SECOND_TESTS = case_count(30)
TWO_TESTS = (
    "PATTERN SEQ(A a, B b, C c) WHERE [id, y] WITHIN 12",
    "PATTERN SEQ(A a, !(C n), B b) WHERE [id] AND [s] WITHIN 9",
    "PATTERN SEQ(!(C n), A a, ANY(B, D) b) WHERE [id, y] AND a.x <= b.x WITHIN 9",
    "PATTERN SEQ(A a, B b, !(ANY(A, C) n)) WHERE [id, y] AND n.x > a.x WITHIN 7",
    "PATTERN SEQ(A a, A b, A c) WHERE [id, s, y] WITHIN 15",
)


@pytest.mark.parametrize("way", list(KEY_HINTS))
@pytest.mark.parametrize("text", TWO_TESTS)
def test_each_way_of_a_second_equivalence(way: str, text: str) -> None:
    matching = 0
    for number in range(SECOND_TESTS):
        rng = random.Random(f"way {number}")
        case = RandomCase(text, dense_events(rng, 24), None)
        want = case.expected()
        matching += bool(want)
        assert matched(case, hints={"key": way}) == want, f"case {number}"
        assert streamed(case, rng, hints={"key": way}) == want, f"case {number}, streamed"
    assert SECOND_TESTS < 30 or matching >= 3


def dense_events(rng: random.Random, count: int) -> list[Event]:
    """Events that agree on their attributes often."""
    events = []
    for n in range(count):
        time = n // 2 + rng.choice([0, 0, 1])
        row = {"type": rng.choice("ABCD"), "time": time, "n": n, "id": rng.choice([1, 1, 2]), "x": rng.randint(0, 3)}
        row |= {"y": rng.choice([0, 0, 0, 1, None]), "f": 0.5, "s": rng.choice(["u", "u", "v", None])}
        events.append(Event(row["type"], time, time, row))
    return events


def test_a_broken_kernel_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that lets one tick too much through must not go unnoticed."""
    right = stack_tables.build_tables

    def wrong(negated, window=None, *rest, **options):  # type: ignore[no-untyped-def]
        return right(negated, None if window is None else window + 1, *rest, **options)

    monkeypatch.setattr("ouzel.engines.sequence.operator.build_tables", wrong)
    cases = [random_case(random.Random(f"broken {number}"), "sase") for number in range(60)]
    assert any(matched(case) != case.expected() for case in cases)
