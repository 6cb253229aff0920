"""Functions that Spark sends to its workers.

They are nested, and their arguments are bytes, so that they travel by value and start on a worker where Ouzel is
missing or another version: there they say so in one sentence, where a function sent by reference would have died in
the unpickling.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ouzel import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

    from ouzel.spark.query_set_work import SetJob
    from ouzel.spark.steps import StreamJob

ArrowFunction = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def on_workers(function: str, *arguments: Any) -> ArrowFunction:
    """`ouzel.spark.worker.<function>(*arguments, batches)`, for mapInArrow."""
    load = _loader(arguments)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker, thawed = load()
        with worker.message_alone():
            yield from getattr(worker, function)(*thawed, batches)
        worker.settle()

    return run


def in_arrow(frame: DataFrame, schema: StructType | str, function: str, *arguments: Any) -> DataFrame:
    """A frame's rows through `on_workers(function, *arguments)`, whatever their columns are called."""
    names = tuple(frame.columns)
    if not any("." in name or "`" in name for name in names):
        return frame.mapInArrow(on_workers(function, *arguments), schema)
    # PySpark's mapInArrow would take a dot for the way into a struct.
    plain = frame.toDF(*(f"column{number}" for number in range(len(names))))
    return plain.mapInArrow(on_workers("renamed", names, function, *arguments), schema)


def bucket_processor(job: StreamJob | SetJob) -> StatefulProcessor:
    """The stateful step of a stream: one session and at most one timer for each bucket."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    load = _loader((job,))

    store_in = _stores()

    class BucketProcessor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._store = store_in(handle)
            self._loaded: tuple[Any, Any] | None = None

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            yield from self._step(key, timerValues, (bytes(row[1]) for row in rows), fired_ms=None)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            yield from self._step(key, timerValues, (), fired_ms=expiredTimerInfo.getExpiryTimeInMs())

        def _step(self, key: Any, times: Any, payloads: Iterable[bytes], fired_ms: int | None) -> Iterator[Any]:
            if self._loaded is None:
                self._loaded = load()
            worker, (job,) = self._loaded
            with worker.message_alone():
                step = job.step(key[0], self._store, times.getCurrentWatermarkInMs(), payloads)
                # Spark itself takes away the timer that has just fired, after this call.
                if step.old_timer_ms not in (None, fired_ms, step.timer_ms):
                    self._handle.deleteTimer(step.old_timer_ms)
                if step.timer_ms is not None and step.timer_ms != step.old_timer_ms:
                    self._handle.registerTimer(step.timer_ms)
                for number, payload in step.answers:
                    yield Row(query=number, payload=payload, report=None)
                if step.report is not None:
                    yield Row(query=None, payload=None, report=step.report)

        def close(self) -> None:
            pass

    return BucketProcessor()


def adding_processor(job: StreamJob) -> StatefulProcessor:
    """The second stateful step of a stream: what the buckets tell of a query is added up, the rest is passed on."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    load = _loader((job.added_up,))
    store_in = _stores()

    class AddingProcessor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._store = store_in(handle)
            self._loaded: tuple[Any, Any] | None = None

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            if self._loaded is None:
                self._loaded = load()
            worker, (added_up,) = self._loaded
            number = key[0]
            if number not in added_up:
                yield from (Row(query=row[1], payload=row[2], report=row[3]) for row in rows)
                return
            with worker.message_alone():
                told = [(row[1], bytes(row[2])) for row in rows]
                changes = [payload for of, payload in told if of == number]
                problems = [payload for of, payload in told if of != number]
                added = worker.add_up(added_up[number], number, self._store, changes, problems)
            for payload in added.answers:
                yield Row(query=number, payload=payload, report=None)
            for payload in added.problems:
                yield Row(query=worker.FIRST_PROBLEM + number, payload=payload, report=None)
            yield Row(query=None, payload=None, report=added.report)

        def close(self) -> None:
            pass

    return AddingProcessor()


def _stores() -> Callable[[Any], Any]:
    """A function that gives, on the worker, the place in Spark's state store of whatever key is at hand."""

    class SparkStore:
        """See `ouzel.spark.saved.Store`."""

        def __init__(self, handle: Any) -> None:
            self._values = {name: handle.getValueState(name, "saved BINARY") for name in ("head", "terms")}
            self._pieces = handle.getMapState("pieces", "number BIGINT", "saved BINARY")

        def get(self, name: str) -> bytes | None:
            found = self._values[name].get()
            return None if found is None else bytes(found[0])

        def put(self, name: str, value: bytes) -> None:
            self._values[name].update((value,))

        def get_piece(self, number: int) -> bytes | None:
            found = self._pieces.getValue((number,))
            return None if found is None else bytes(found[0])

        def put_piece(self, number: int, value: bytes) -> None:
            self._pieces.updateValue((number,), (value,))

        def remove_piece(self, number: int) -> None:
            self._pieces.removeKey((number,))

    return SparkStore


def _loader(arguments: tuple[Any, ...]) -> Callable[[], tuple[Any, Any]]:
    """A function that gives, on the worker, the module `ouzel.spark.worker` and the arguments."""
    # Compressed, because Spark sends a function of more than a megabyte in another way, and its stateful steps cannot
    # start from that. Programs shrink to a tenth.
    frozen = zlib.compress(pickle.dumps(arguments))
    expected = __version__

    def load() -> tuple[Any, Any]:
        import os
        import pickle
        import zlib

        problem = None
        try:
            import ouzel

            if ouzel.__version__ != expected:
                problem = f"Ouzel {ouzel.__version__} is installed there, and {expected} on the driver"
            else:
                from ouzel.spark import worker
        except ImportError as error:
            problem = f"it cannot be imported there ({error})"
        if problem:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # one sentence, not the worker's stack
            raise RuntimeError(
                f"Spark's executors need the same Ouzel as the driver: {problem}; "
                f"install ouzel=={expected} in the Python of every executor, or ship it with --py-files"
            ) from None
        return worker, pickle.loads(zlib.decompress(frozen))

    return load
