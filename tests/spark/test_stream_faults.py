"""Drivers and workers killed at random moments: the sink ends with the batch answer, nothing lost and nothing twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.conftest import ROOT
from tests.spark.faulty import check, prepare, step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KILLS = 3  # of one stream
BATCHES = 16
DRIVER_STREAMS = 17  # so 51 kills
WORKER_STREAMS = 7  # so 21


def seeds(streams: int) -> list:
    """The first in every run of the tests, the others in long ones."""
    return [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, streams))]


@pytest.mark.parametrize("seed", seeds(DRIVER_STREAMS))
def test_the_driver_is_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    stream, events = prepare(spark, tmp_path, seed=seed, batches=BATCHES)
    chance = random.Random(seed)
    # Some micro-batches before the end, so that the stream cannot end before the last kill.
    for commits in sorted(chance.randrange(BATCHES - 3) for _ in range(KILLS)):
        assert not drive(tmp_path, Kill(commits, chance.uniform(0.0, 1.0))), "the stream ended before it was killed"
    assert drive(tmp_path)
    check(stream, events)


class Kill(NamedTuple):
    """When to kill: so long after so many micro-batches were committed, over all lives of the stream."""

    commits: int
    seconds: float

    def wait(self, folder: Path, driver: subprocess.Popen[str]) -> None:
        while driver.poll() is None and len(list((folder / "checkpoint" / "commits").glob("[0-9]*"))) < self.commits:
            time.sleep(0.01)
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(self.seconds)


def drive(folder: Path, kill: Kill | None = None) -> bool:
    """Run the driver until it is done, or kill it and all that it started."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.driver", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=ROOT,
        start_new_session=True,
    )
    assert driver.stdout is not None
    try:
        assert driver.stdout.readline() == "ready\n"
        if kill is None:
            driver.wait()
        else:
            kill.wait(folder, driver)
        if driver.poll() is None:
            return False
        assert driver.stdout.readline() == "done\n"
        return True
    finally:
        # The JVM and the workers are in the driver's session of processes and die with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()


@pytest.mark.parametrize("seed", seeds(WORKER_STREAMS))
def test_python_workers_are_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    stream, events = prepare(spark, tmp_path, seed=100 + seed, batches=BATCHES)
    chance = random.Random(seed)
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
                stream.run(step)
                break
            except StreamingQueryException as failure:
                assert "Python worker" in str(failure), failure
    finally:
        stop.set()
        killer.join()
    assert killed == KILLS, "the stream ended before the last kill"
    check(stream, events)


def python_workers() -> list[int]:
    """The processes that a daemon of PySpark's, started below this process, has forked for tasks."""
    parents: dict[int, int] = {}
    daemons: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                    daemons.add(int(entry.name))
            except OSError:
                continue

    def is_ours(process: int) -> bool:
        while process > 1:
            process = parents.get(process, 0)
            if process == os.getpid():
                return True
        return False

    return [process for process in daemons if parents[process] in daemons and is_ours(process)]
