"""Random expressions and streams: the engine agrees with the oracle, however it is fed."""

from __future__ import annotations

import os
import random

import pytest

import ouzel
from tests.algebra.agreement import counted, expected, matched, run, streamed
from tests.algebra.random_expressions import random_case

CASES = int(os.environ.get("OUZEL_RANDOM_CASES", "500"))


@pytest.mark.parametrize("block", range(5))
def test_random_expressions_agree_with_the_oracle(block: int) -> None:
    fruitful = 0
    for number in range(CASES // 5):
        case = random_case(random.Random(f"algebra {block} {number}"))
        wanted = expected(case.expression, case.rows)
        assert counted(run(case.expression, case.table).to_pylist()) == wanted, f"{block} {number}: {case.expression}"
        fruitful += bool(wanted)
    # Cases without results prove little.
    assert fruitful >= CASES // 5 // 4


def test_streams_in_any_batches_and_restored_agree_with_the_oracle() -> None:
    for number in range(CASES // 10):
        rng = random.Random(f"streamed algebra {number}")
        case = random_case(rng, bounded=True)
        wanted = expected(case.expression, case.rows)
        assert streamed(case.expression, case.table, rng) == wanted, f"{number}: {case.expression}"
        assert matched(case.expression, case.table) == wanted, f"{number}: {case.expression}"


def test_a_query_of_patterns_and_one_of_the_algebra_run_side_by_side() -> None:
    rows = [{"type": "A", "ts": k, "x": k % 3} for k in range(9)]
    expression = ouzel.algebra.stream("A").next(ouzel.algebra.stream("A"), "x = x.last AND DUR < 5")
    text = "PATTERN SEQ(A a, A b) WHERE a.x = b.x WITHIN 4 RETURN P(a.x AS x)"
    both = ouzel.match(rows, {"pattern": text, "algebra": expression})
    assert both["pattern"].num_rows == both["algebra"].num_rows == 6


def test_sides_of_a_union_that_differ_in_what_they_show_only() -> None:
    rows = [{"type": "A", "ts": 1, "x": 3}]
    side = ouzel.algebra.stream("A")
    united = side.union(side.extend(x="2 * x"))
    assert sorted(ouzel.match(rows, united)["x"].to_pylist()) == [3, 6]
    assert ouzel.match(rows, side.union(side))["x"].to_pylist() == [3]
