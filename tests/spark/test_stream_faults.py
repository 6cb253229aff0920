"""A driver and Python workers killed at random moments: the sink ends with the batch answer.

`make test-faults` kills many more, of many streams, and executors too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.faults import RIGHT, Log, kill_drivers, run
from tests.spark.faulty import Faulty
from tests.spark.processes import python_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KILLS = 3  # of one stream


def test_the_driver_is_killed(tmp_path: Path) -> None:
    Faulty("queries", 0, 12).write(tmp_path)
    log = Log(tmp_path / "faults.jsonl")
    kill_drivers(log, "stream", tmp_path, kills=KILLS)
    assert len(log.faults) == KILLS
    assert run(tmp_path) == RIGHT


@pytest.mark.parametrize("kind", ["queries", "rows"])
def test_python_workers_are_killed(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    faulty = Faulty(kind, 1, 12)
    faulty.write(tmp_path)
    stream = faulty.stream(spark, tmp_path)
    killed = faulty.run_through(stream, [python_workers] * KILLS, seconds=1.5)
    assert killed == KILLS, "the stream ended before the last kill"
    assert faulty.differences(stream) == []
