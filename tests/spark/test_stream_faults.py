"""A driver and Python workers killed at random moments: the sink ends with the batch answer.

`make test-faults` kills many more, of many streams, and executors too.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

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


def test_python_workers_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    faulty = Faulty("queries", 1, 12)
    faulty.write(tmp_path)
    stream = faulty.stream(spark, tmp_path)
    chance = random.Random(1)
    killed = 0
    stop = threading.Event()

    def kill() -> None:
        nonlocal killed
        while killed < KILLS and not stop.wait(chance.uniform(0.1, 1.5)):
            workers = python_workers()
            if workers:
                os.kill(chance.choice(workers), signal.SIGKILL)
                killed += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        while True:
            try:
                stream.run(faulty.step())
                break
            except StreamingQueryException as failure:
                assert "Python worker" in str(failure), failure
    finally:
        stop.set()
        killer.join()
    assert killed == KILLS, "the stream ended before the last kill"
    assert faulty.differences(stream) == []
