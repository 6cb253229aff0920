"""Which versions of Spark are refused, and which settings of sessions that Ouzel did not start."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyspark
import pytest

import ouzel.spark
from ouzel.errors import InputError
from ouzel.spark import launch
from ouzel.spark.launch import DEFAULTS, EMPTY_MICRO_BATCHES, ROCKSDB, STATE_STORE, check_session
from ouzel.spark.tasks import _quiet_processor
from ouzel.spark.versions import FUNCTION_BYTES, hashed_to, murmur3, step_by_key


def frame_of(
    version: str = "4.3.0", *, streaming: bool = False, remote: bool = False, **settings: str | None
) -> SimpleNamespace:
    """A DataFrame as far as the checks look at it."""
    conf = SimpleNamespace(get=lambda name, default: settings.get(name, default))
    made = type("DataFrame", (SimpleNamespace,), {"__module__": "pyspark.sql.connect.x" if remote else "pyspark.sql"})
    return made(sparkSession=SimpleNamespace(version=version, conf=conf), isStreaming=streaming, columns=["query"])


SUITABLE: dict[str, Any] = dict(DEFAULTS)


@pytest.mark.parametrize("version", ["3.5.9", "3.5.1-amzn-0", "4.0.0", "4.1.2", "4.2.1", "4.3.0"])
def test_supported_versions_run_batches(version: str) -> None:
    check_session(frame_of(version, **SUITABLE))


@pytest.mark.parametrize("version", ["2.4.8", "3.4.4", "4.4.0-SNAPSHOT", "5.0.0", "unknown"])
def test_other_versions_are_refused_in_one_sentence(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(InputError, match=r"^this is Spark [\d.]+, and Ouzel runs on Spark 3\.5 to 4\.3; install one"):
        check_session(frame_of(version, **SUITABLE))
    with pytest.raises(InputError, match=r"^this is Spark [\d.]+, and Ouzel runs on Spark 3\.5 to 4\.3; install one"):
        ouzel.spark.session()


@pytest.mark.parametrize(
    ("version", "remote", "message"),
    [
        ("3.5.9", False, r"^streams need Spark 4\.0 or newer and this is 3\.5; on it Ouzel runs batches only$"),
        ("3.5.9", True, r"^over Spark Connect, Ouzel needs Spark 4\.0 or newer and this is 3\.5; use a session with"),
        ("4.0.5", True, r"^over Spark Connect, streams need Spark 4\.1 or newer and this is 4\.0; use a session with"),
    ],
)
def test_streams_of_older_versions_are_refused(version: str, remote: bool, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_session(frame_of(version, streaming=True, remote=remote, **SUITABLE))


@pytest.mark.parametrize("store", [None, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"])
def test_state_stores_without_column_families_are_refused(store: str | None) -> None:
    with pytest.raises(InputError, match=r"RocksDB state store; start Spark with.*spark\.conf\.set\("):
        check_session(frame_of(streaming=True, **SUITABLE | {STATE_STORE: store}))


@pytest.mark.parametrize("store", [ROCKSDB, "com.vendor.sql.streaming.state.RocksDBStateStoreProvider"])
def test_state_stores_of_vendors_are_accepted(store: str) -> None:
    check_session(frame_of(streaming=True, **SUITABLE | {STATE_STORE: store}))


def test_settings_that_cost_time_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    launch._warned.clear()
    frame = frame_of(streaming=True, **{STATE_STORE: ROCKSDB, EMPTY_MICRO_BATCHES: "false"})
    with caplog.at_level(logging.WARNING, "ouzel.spark"):
        check_session(frame)
        check_session(frame)
    lines = [record.getMessage() for record in caplog.records]
    assert [line[line.index("add ") :] for line in lines] == [
        'add spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", "2147483647")',
        'add spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")',
        'add spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")',
    ]


def test_queries_too_large_for_a_stateful_step_are_refused() -> None:
    class Processor(_quiet_processor()):  # type: ignore[misc]
        def init(self, handle: Any) -> None: ...
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any: ...
        def close(self) -> None: ...

    for settings in ({}, {FUNCTION_BYTES: "1100k"}):
        with pytest.raises(InputError, match=f"take 1,165,536 bytes, more than {FUNCTION_BYTES} allows; start Spark"):
            step_by_key(frame_of(**settings), Processor(1_100_000), "x INT", "none")  # type: ignore[arg-type]


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 200, 1_000])
def test_every_partition_has_a_number_that_is_hashed_to_it(partitions: int) -> None:
    numbers = np.array(hashed_to(partitions), np.int32)
    assert (murmur3(numbers) % partitions).tolist() == list(range(partitions))


# ── Memory of workers ──────────────────────────────────────────────────────────────────────────────


OUT_OF_MEMORY = """
import os, resource, sys
from ouzel.errors import LimitError
from ouzel.spark.tasks import run
import numpy

def greedy(batches):
    yield numpy.ones(1 << 40, numpy.int8)

if sys.argv[1] == "limited":
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    list(run(greedy, (), []))
except LimitError as error:
    print(os.environ["SPARK_HIDE_TRACEBACK"], error)
"""


@pytest.mark.parametrize(
    ("limited", "message"),
    [
        ("limited", "has 1,024 MB of address space, by spark.executor.pyspark.memory for each core, and it is used up"),
        ("free", "ran out of memory (Unable to allocate 1.00 TiB"),
    ],
)
def test_a_worker_without_memory_says_what_to_set(limited: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY, limited], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith(f"1 a Python worker of Spark {message}"), done.stdout + done.stderr
