"""Events that last, made by one query and read by another: every engine answers as the oracle does."""

from __future__ import annotations

import random

import pytest

from tests.agreement import agree, case_count, ways_of
from tests.generate import random_case

pytestmark = pytest.mark.quick

CASES = case_count(500)
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_random_queries_over_events_that_last(part: int) -> None:
    matching = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"lasting {number}")
        case = random_case(rng, "lasting")
        matching += agree(case, ways_of(case), rng, number)
    assert CASES < 500 or matching > 0.1 * CASES / PARTS, "too few cases match for their agreement to mean much"
