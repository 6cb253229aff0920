"""What must hold on executors that have nothing but the wheel: `make test-executors` runs this file.

The executors are processes of their own, of a `local-cluster` and of a standalone cluster. The tests of `on_version`
run on them too. `on_new_executors` has the tests that need executors for themselves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.clusters import LOCAL_CLUSTER, cluster_session, standalone
from tests.spark.faulty import Faulty
from tests.spark.on_version import (  # noqa: F401  (run here, too)
    test_batches_of_all_kinds,
    test_sets_of_queries_over_a_stream_with_a_restart,
    test_streams_of_all_kinds_with_restarts,
)
from tests.spark.processes import executors, python_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Every run of pytest imports this file, to look for examples in it.
PYTHON = Path(os.environ.get("OUZEL_EXECUTOR_PYTHON", sys.executable))
ENVIRONMENT = PYTHON.parents[1]


@pytest.fixture(scope="module", params=["local-cluster", "standalone"])
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if request.param == "local-cluster":
        with cluster_session(LOCAL_CLUSTER, PYTHON) as session:
            yield session
        return
    with standalone(tmp_path_factory.mktemp("cluster")) as address, cluster_session(address, PYTHON) as session:
        yield session


def of_ouzel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import importlib.util

    import ouzel
    from ouzel.kernels import jit

    others = [name for name in ("numba", "pytest", "tests") if importlib.util.find_spec(name)]
    for _ in batches:
        yield pa.record_batch({"place": [ouzel.__file__], "mode": [jit.MODE], "others": [" ".join(others)]})


def test_executors_have_nothing_but_the_wheel(spark: SparkSession) -> None:
    rows = spark.range(2, numPartitions=2).mapInArrow(by_value(of_ouzel), "place STRING, mode STRING, others STRING")
    found = {tuple(row) for row in rows.collect()}
    assert len(found) == 1
    ((place, mode, others),) = found
    assert Path(place).is_relative_to(ENVIRONMENT)
    assert (mode, others) == ("library", "")


def by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that executors get as code, since they do not have this module."""
    from types import FunctionType

    copy = FunctionType(function.__code__, {"pa": pa, "__builtins__": __builtins__}, function.__name__)
    copy.__module__ = "__main__"
    return copy


@pytest.mark.parametrize("kind", ["queries", "rows", "set"])
def test_executors_and_python_workers_are_killed(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Kleene, aggregates, row patterns and all other kinds of query; the sink ends with the batch answer."""
    faulty = Faulty(kind, 7, 10)
    faulty.write(tmp_path)
    stream = faulty.stream(spark, tmp_path)
    killed = faulty.run_through(stream, [two(executors), two(python_workers)] * 2, seconds=2.0)
    assert killed == 4, "the stream ended before the last kill"
    assert faulty.differences(stream) == []


def two(find: Callable[[], list[int]]) -> Callable[[], list[int]]:
    """Nothing to kill unless both executors live, so never the only one before its successor is there."""
    return lambda: find() if len(executors()) >= 2 else []
