"""What must hold on new executors that have nothing but the wheel; a part of `make test-executors`.

The first micro-batch costs little, the environment may be read-only, a wheel among the Python files is refused, and
half a gigabyte is enough or refused. Each test starts executors for itself.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ouzel.spark
from ouzel.errors import LimitError
from ouzel.spark.versions import step_by_key
from tests.spark.clusters import LOCAL_CLUSTER, cluster_session, standalone
from tests.spark.faulty import Faulty
from tests.spark.on_executors import ENVIRONMENT, PYTHON, by_value
from tests.spark.on_version import events
from tests.spark.processes import cpu_seconds, executors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

PAIRS = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 5 RETURN P(a.row AS a, b.row AS b)"
FIRST_MICRO_BATCH_BAR = 1.3


# ── The first micro-batch ──────────────────────────────────────────────────────────────────────────


def passed_on(frame: DataFrame) -> DataFrame:
    """The plan of a stream of one query, with functions that only pass batches on."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            payload = sink.getvalue().to_pybytes()
            yield pa.record_batch({"query": pa.array([0], pa.int32()), "payload": pa.array([payload], pa.binary())})

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for payload in batch.column(1).to_pylist():
                for rows in pa.ipc.open_stream(pa.py_buffer(payload)):
                    yield pa.record_batch({"a": rows.column("row"), "b": rows.column("row")})

    class Pass(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._saved = handle.getValueState("manifest", "saved BINARY")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            for row in rows:
                self._saved.update((bytes(row[1]),))
                yield Row(query=row[0], payload=bytes(row[1]), report=None)

        def close(self) -> None:
            pass

    for made in (pack, unpack, Pass):
        made.__module__ = "__main__"
    packed = frame.selectExpr("timestamp_millis(ts) AS time", "*").withWatermark("time", "1 second").drop("time")
    stepped = step_by_key(
        packed.mapInArrow(pack, "query INT, payload BINARY"), Pass(), "query INT, payload BINARY, report STRING", "none"
    )
    return stepped.mapInArrow(unpack, "a LONG, b LONG")


def test_the_first_micro_batch_on_new_executors_costs_little(tmp_path: Path) -> None:
    """CPU of all executors, in turns, each time on new ones; the first turn warms up the driver."""
    ways = {"passed on": passed_on, "Ouzel": lambda frame: ouzel.spark.match(frame, PAIRS, max_delay=3)}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(3):
        for name, step in ways.items():
            folder = tmp_path / f"{turn} {name}"
            folder.mkdir()
            faulty = Faulty("queries", turn, 1)
            faulty.write(folder)
            (folder / "source" / "00001.parquet").unlink()
            with cluster_session(LOCAL_CLUSTER, PYTHON) as session:
                before = cpu_seconds(executors())
                faulty.stream(session, folder).run(step)
                taken[name].append(cpu_seconds(executors()) - before)
    ours, plain = (min(taken[name][1:]) for name in ("Ouzel", "passed on"))
    print(f"first micro-batch: {ours:.2f} s of CPU, passed on {plain:.2f} s, ratio {ours / plain:.2f}: {taken}")
    assert ours / plain <= FIRST_MICRO_BATCH_BAR, taken


# ── Images, zip files, memory ──────────────────────────────────────────────────────────────────────


def test_an_environment_that_cannot_be_written(tmp_path: Path) -> None:
    refused = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False).stderr
    assert not refused, f"this test needs the right to mount: {refused}"
    table = events()
    with standalone(tmp_path, read_only=ENVIRONMENT) as address, cluster_session(address, PYTHON) as session:
        found = ouzel.spark.match(session.createDataFrame(table), PAIRS).count()
        writable = session.range(1).mapInArrow(by_value(tries_to_write), "refused BOOLEAN").collect()
    assert found == ouzel.match(table, PAIRS).num_rows
    assert writable[0][0], "the environment could be written"


def tries_to_write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import sys

    for _ in batches:
        try:
            with open(f"{sys.prefix}/written", "w"):
                yield pa.record_batch({"refused": [False]})
        except OSError:
            yield pa.record_batch({"refused": [True]})


def test_a_wheel_among_the_python_files_is_refused_with_a_way_on(tmp_path: Path) -> None:
    """Executors without Ouzel, and the wheel in --py-files."""
    (wheel,) = (ENVIRONMENT.parent / "executors-wheel").glob("*.whl")
    bare = tmp_path / "python"
    # The same Python with all its packages but Ouzel.
    bare.write_text(f'#!/bin/sh\nexec env PYTHONPATH="{tmp_path}:$PYTHONPATH" "{PYTHON}" "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'ouzel' and not any(part.endswith('.whl') for part in sys.path):\n"
        "            raise ModuleNotFoundError(f\"No module named '{name}'\", name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n",
        encoding="utf-8",
    )
    with cluster_session(LOCAL_CLUSTER, bare) as session:
        session.sparkContext.addPyFile(str(wheel))
        with pytest.raises(Exception, match="not a wheel with --py-files"), ouzel.spark.unwrap_errors():
            ouzel.spark.match(session.createDataFrame(events()), PAIRS).count()


def test_python_workers_with_half_a_gigabyte() -> None:
    table = events()
    for settings in (
        {},
        {
            "spark.executorEnv.MALLOC_ARENA_MAX": "1",
            "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
            "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
        },
    ):
        with cluster_session(LOCAL_CLUSTER, PYTHON, **{"spark.executor.pyspark.memory": "512m"}, **settings) as session:
            try:
                with ouzel.spark.unwrap_errors():
                    found = ouzel.spark.match(session.createDataFrame(table), PAIRS).count()
            except LimitError as error:
                assert not settings and "spark.executor.pyspark.memory" in str(error), error
            else:
                assert found == ouzel.match(table, PAIRS).num_rows
