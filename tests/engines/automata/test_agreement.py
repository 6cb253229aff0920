"""Random expressions and streams: the engine agrees with the oracle, however it is fed."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import ouzel
from tests.agreement import agree, answered, case_count, streamed, whole
from tests.generate import random_case
from tests.generate.cases import AlgebraCase, counted

pytestmark = pytest.mark.quick

CASES = case_count(500)


@pytest.mark.parametrize("block", range(5))
def test_random_expressions_agree_with_the_oracle(block: int) -> None:
    fruitful = 0
    for number in range(CASES // 5):
        case = random_case(random.Random(f"algebra {block} {number}"), "algebra")
        fruitful += agree(case, [whole], random.Random(number), f"{block} {number}")
    # Cases without results prove little.
    assert CASES < 500 or fruitful >= CASES // 5 // 4


def test_streams_in_any_batches_and_restored_agree_with_the_oracle() -> None:
    for number in range(CASES // 10):
        rng = random.Random(f"streamed algebra {number}")
        case = random_case(rng, "algebra", bounded=True)
        agree(case, [streamed, whole], rng, number)


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


POINTS = ouzel.algebra.stream("A").project(["x"])
LASTING = ouzel.algebra.stream("A", start="begin").project(["x"])


def steps(count: int) -> list[dict[str, Any]]:
    return [{"type": "A", "time": 3 * k, "begin": 3 * k - 1, "x": 1} for k in range(count)]


@pytest.mark.parametrize("count", [6, 18])
def test_a_fold_over_point_and_lasting_events_of_the_same_rows(count: int) -> None:
    """Every round has two ways: 524,250 chains of 18 rows, which are 153 results."""
    folded = POINTS.fold(POINTS.union(LASTING))
    found = answered(folded, steps(count))
    assert len(found) == count * (count - 1) // 2
    assert counted(found) == AlgebraCase(folded, steps(count)).expected()


@pytest.mark.parametrize(
    "expression",
    [
        POINTS.fold(POINTS.union(LASTING.extend(x="x + 1"))),
        POINTS.fold(POINTS.union(LASTING).extend(d="DUR"), "DUR < 20"),
        POINTS.fold(POINTS.union(LASTING), "x = x.last", ouzel.algebra.step().extend(n="n.last + 1.5"), {"n": "0.5"}),
        POINTS.fold(POINTS.union(POINTS.next(POINTS)), "DUR > 4"),
        POINTS.fold(POINTS.union(LASTING)).next(POINTS.union(LASTING)),
    ],
    ids=repr,
)
def test_folds_over_unions(expression: ouzel.algebra.Stream) -> None:
    wanted = AlgebraCase(expression, steps(7)).expected()
    assert wanted and counted(answered(expression, steps(7))) == wanted
    assert streamed_whole(expression, steps(7)) == wanted


def streamed_whole(expression: ouzel.algebra.Stream, rows: list[dict[str, Any]]) -> Counter[str]:
    """Row by row, restored after each."""
    runner = ouzel.QuerySet(time="time", bounded=True)
    runner.add("q", expression)
    found = []
    for row in rows:
        found += [answer for part in runner.push([row]).values() for answer in part.to_pylist()]
        runner = ouzel.QuerySet.restore(runner.snapshot())
    found += [answer for part in runner.finish().values() for answer in part.to_pylist()]
    return counted([{name: value for name, value in row.items() if name != "query"} for row in found])


def test_results_of_a_resubscribed_union_that_differ_in_what_is_projected_away_only() -> None:
    pair = POINTS.next(POINTS.union(POINTS.extend(x="2 * x"))).extend(x="0")
    wanted = AlgebraCase(pair, steps(5)).expected()
    assert sum(wanted.values()) == 4
    assert counted(answered(pair, steps(5))) == wanted
