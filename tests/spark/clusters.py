"""Clusters on this machine whose executors are processes of their own, with a Python that has nothing but the wheel."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

import ouzel.spark
from ouzel.spark.launch import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Two executors with a core each, and a master and workers inside the driver.
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
SETTINGS: dict[str, Any] = {
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": 2,
    "spark.executor.memory": "700m",
    "spark.executor.cores": 1,
    "spark.cores.max": 2,
    # A session is there when both executors are.
    "spark.scheduler.minRegisteredResourcesRatio": 1.0,
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    # Executors must not see the sources.
    "spark.executorEnv.PYTHONPATH": None,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": False,
    # A process that was killed counts as a failed task, and a busy machine loses heartbeats.
    "spark.task.maxFailures": 8,
    "spark.network.timeout": "600s",
}


@contextmanager
def cluster_session(master: str, python: Path, **settings: Any) -> Iterator[SparkSession]:
    """A session on a cluster whose executors run `python`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(python))
        spark = ouzel.spark.session("executors", master, **SETTINGS | settings)
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def standalone(folder: Path, *, read_only: Path | None = None) -> Iterator[str]:
    """A master and a worker of Spark's standalone cluster; gives the address of the master.

    The worker and its executors cannot write to `read_only`, as in a read-only image.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"spark://127.0.0.1:{free.getsockname()[1]}"
    home = find_java_home()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"SPARK_NO_DAEMONIZE": "1"} | ({} if home is None else {"JAVA_HOME": home})
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = address.rpartition(":")[2]
    master = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port]
    worker = [spark_class, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "2"]
    worker += ["--memory", "2g", "--work-dir", str(folder / "work"), "--webui-port", "0", address]
    if read_only is not None:
        bound = f"mount --bind {read_only} {read_only} && mount -o remount,bind,ro {read_only}"
        worker = ["unshare", "--mount", "sh", "-c", f'{bound} && exec "$@"', "worker", *worker]
    started = []
    with (folder / "cluster.log").open("ab") as log:
        try:
            for command in ([*master, "--webui-port", "0"], worker):
                started.append(
                    subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
                )
            yield address
        finally:
            for process in started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
