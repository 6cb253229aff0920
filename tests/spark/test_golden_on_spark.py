"""Every golden case on every way of running on Spark."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden.answers import disagreement
from tests.golden.format import Case, read_all
from tests.golden.ways import Way
from tests.spark.alone import SparkAlone
from tests.spark.ways import SparkBatch, SparkStream, gap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CASES = read_all()
GAPS = {case.identity: gap(case) for case in CASES}
RUNNABLE = [case for case in CASES if GAPS[case.identity] is None]


@pytest.fixture(scope="session")
def ways(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> object:
    """The way of a name, made when it is first asked for: a stream runs all its cases at once."""

    @cache
    def way(name: str) -> Way:
        if name == SparkBatch.name:
            return SparkBatch(spark, RUNNABLE)
        return SparkStream(spark, tmp_path_factory.mktemp("stream"), RUNNABLE, restarted=name.endswith("restarted"))

    return way


# The stream that is restarted half-way does all that one in one piece does.
WAYS = ["spark batch", pytest.param("spark streaming", marks=pytest.mark.long), "spark streaming restarted"]


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.identity)
def test_case(ways: object, name: str, case: Case) -> None:
    way = ways(name)  # type: ignore[operator]
    if way.gap(case) is None:
        found = disagreement(case, way.run(case))
        assert found is None, f"{case.file}.case, line {case.line_number}, {way.name}: {found}"


# One of each kind of input, state and output. All of them in long runs: what conditions mean is the same on any way.
ALONE = {
    "a_seq_figures: example 1: stacks, a window of 5 seconds",
    "aggregates: EMIT ON CHANGE says nothing where the value stays",
    "composition: a sequence of composite events",
    "incomplete: nothing is lost: the answers are those of an exact query",
    "inputs: two tables",
    "kleene_predicates: a running sum as a budget",
    "negation: a negative against the last event of a closure",
    "output_forms: COMPRESSED: without closure",
    "return: a Kleene variable gives an array",
    "strategies_kleene: two closures, skip_till_next_match",
    "values: dates",
    "windows_in_events: negation between two events of the window",
}


def alone() -> list:
    assert {case.identity for case in RUNNABLE} >= ALONE
    return [
        pytest.param(case, id=case.identity, marks=() if case.identity in ALONE else pytest.mark.long)
        for case in RUNNABLE
    ]


@pytest.mark.parametrize("case", alone())
def test_case_alone(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    """The case in a stream of its own."""
    way = SparkAlone(spark, tmp_path)
    reason = way.gap(case)
    assert reason is None or case.identity not in ALONE, reason
    if reason is None:
        found = disagreement(case, way.run(case))
        assert found is None, f"{case.file}.case, line {case.line_number}, alone: {found}"


def test_gaps_are_declared(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = [reason for reason in GAPS.values() if reason is not None]
    with capsys.disabled():
        print(f"\ngolden on Spark: {len(RUNNABLE)} of {len(CASES)} cases run")
        for reason in sorted(set(reasons)):
            print(f"golden on Spark: leaves out {reasons.count(reason)}: {reason}")
    assert RUNNABLE
