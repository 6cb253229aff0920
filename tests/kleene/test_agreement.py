"""Kleene closure, the strategies, windows in events and the forms of output equal the oracle, however they are fed."""

from __future__ import annotations

import os
import random

import pytest

from ouzel.bind.model import Catalog
from ouzel.plan.support import missing_support
from tests.embedded.agreement import expected, matched, query_of, streamed
from tests.oracle.random_cases import random_case

CASES = int(os.environ.get("OUZEL_RANDOM_CASES", "500"))
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_random_kleene_queries(part: int) -> None:
    matching = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"kleene {number}")
        case = random_case(rng, "kleene")
        if missing_support(query_of(case).bind(Catalog())) is not None:
            continue
        want = expected(case)
        matching += bool(want)
        assert matched(case) == want, f"case {number}, whole:\n{case.text}"
        if "WITHIN" in case.text:
            assert streamed(case, rng) == want, f"case {number}, streamed:\n{case.text}"
    assert CASES < 500 or matching > 0.1 * CASES / PARTS, "too few cases match for their agreement to mean much"
