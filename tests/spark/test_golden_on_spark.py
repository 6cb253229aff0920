"""Every golden case on every way of running on Spark."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.golden.answers import disagreement
from tests.golden.format import Case, read_all
from tests.golden.ways import Way
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
            return SparkBatch(spark)
        return SparkStream(spark, tmp_path_factory.mktemp("stream"), RUNNABLE, restarted=name.endswith("restarted"))

    return way


@pytest.mark.parametrize("name", ["spark batch", "spark streaming", "spark streaming restarted"])
@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.identity)
def test_case(ways: object, name: str, case: Case) -> None:
    way = ways(name)  # type: ignore[operator]
    if way.gap(case) is None:
        found = disagreement(case, way.run(case))
        assert found is None, f"{case.file}.case, line {case.line_number}, {way.name}: {found}"


def test_gaps_are_declared(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = [reason for reason in GAPS.values() if reason is not None]
    with capsys.disabled():
        print(f"\ngolden on Spark: {len(RUNNABLE)} of {len(CASES)} cases run")
        for reason in sorted(set(reasons)):
            print(f"golden on Spark: leaves out {reasons.count(reason)}: {reason}")
    assert RUNNABLE
