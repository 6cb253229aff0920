"""The forms of output choose what the oracle chooses, however many matches a timestamp has."""

from __future__ import annotations

import random

import pytest

from tests.agreement import case_count, matched, streamed
from tests.generate.cases import RandomCase
from tests.generate.events import VALUES
from tests.oracle.events import Event

pytestmark = pytest.mark.quick

CASES = case_count(500) // 5
FORMS = ("NON_OVERLAPPING", "FIRST", "SKIP TO FIRST {v}", "SKIP TO LAST {v}")
# Patterns with their variables and conditions.
PATTERNS = (
    ("SEQ(A+ a[], B b)", "a[], b", "ab", ("a.x >= 0", "a[i].x > a[i-1].x", "b.x > a[1].x", "[id]")),
    ("SEQ(A a, B b)", "a, b", "ab", ("a.x = b.x", "b.x > a.x", "[id]")),
    ("SEQ(A a, A+ b[], B c)", "a, b[], c", "abc", ("b[i].x >= b[i-1].x", "c.x > b[1].x", "[id]")),
    ("SEQ(A a, A+ b[])", "a, b[]", "ab", ("b.x >= a.x", "[id]", "a.x > 0")),
    ("A+ a[]", "a[]", "a", ("a[i].x > a[i-1].x", "[id]")),
    ("SEQ(A+ a[], B b)", "a[], b", "ab", ("sum(a[..i-1].x) < 9 AND b.x >= 0",)),
)
STRATEGIES = ("skip_till_next_match",) * 3 + ("skip_till_any_match", "partition_contiguity", "strict_contiguity")


def _case(rng: random.Random) -> RandomCase:
    pattern, bound, variables, conditions = rng.choice(PATTERNS)
    strategy = rng.choice(STRATEGIES)
    form = rng.choice(FORMS).format(v=rng.choice(variables))
    condition = rng.choice(conditions)
    within = rng.choice(["WITHIN 4", "WITHIN 12", "WITHIN 40", "WITHIN 9 EVENTS"])
    text = f"PATTERN {pattern} WHERE {strategy}({bound}) {{ {condition} }} {within} OUTPUT {form}"
    events, time = [], 0
    # Under skip_till_any_match there are exponentially many matches.
    count = rng.randint(6, 11 if "any" in strategy else 30)
    for number in range(count):
        # Many events at a time, and many A's before a B.
        time += rng.choice([0, 0, 1, 1, 2])
        kind = rng.choice("AAAAAB")
        own = {name: rng.choice(values) for name, values in VALUES.items()}
        events.append(Event(kind, time, time, {**own, "n": number, "time": time, "type": kind}))
    return RandomCase(text, events, None)


def test_forms_choose_what_the_oracle_chooses() -> None:
    matching = 0
    for number in range(CASES):
        rng = random.Random(f"forms {number}")
        case = _case(rng)
        want = case.expected()
        matching += bool(want)
        assert matched(case) == want, f"case {number}:\n{case.text}"
        assert streamed(case, rng) == want, f"case {number}, streamed:\n{case.text}"
    assert matching > CASES / 3, "too few cases match for their agreement to mean much"


@pytest.mark.parametrize("form", ["NON_OVERLAPPING", "FIRST", "SKIP TO LAST b"])
@pytest.mark.parametrize("count", [8, 9, 40])
def test_timestamps_with_few_and_many_matches(form: str, count: int) -> None:
    """Runs that end with the same event, whose starts come in another order than the runs."""
    text = f"PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) {{ a.x >= 0 }} WITHIN 100 OUTPUT {form}"
    times = [*range(count), *[count] * 2, *range(count + 1, 2 * count), 2 * count]
    kinds = ["A"] * count + ["B"] * 2 + ["A"] * (count - 1) + ["B"]
    rows = [
        {"type": kind, "time": time, "n": number, "id": 1, "x": number % 3, "y": 0, "f": 0.0, "s": ""}
        for number, (kind, time) in enumerate(zip(kinds, times, strict=True))
    ]
    case = RandomCase(text, [Event(row["type"], row["time"], row["time"], row) for row in rows], None)  # type: ignore[arg-type]
    assert matched(case) == case.expected()
