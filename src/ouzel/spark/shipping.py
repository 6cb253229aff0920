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
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from ouzel.spark.worker import StreamJob

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


def bucket_processor(job: StreamJob) -> StatefulProcessor:
    """The stateful step of a stream: one session, one state value and at most one timer for each bucket."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    load = _loader((job,))

    class BucketProcessor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._state = handle.getValueState("session", "saved BINARY")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            yield from self._step(key, timerValues, (bytes(row[1]) for row in rows), fired_ms=None)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            yield from self._step(key, timerValues, (), fired_ms=expiredTimerInfo.getExpiryTimeInMs())

        def _step(self, key: Any, times: Any, payloads: Iterable[bytes], fired_ms: int | None) -> Iterator[Any]:
            worker, (job,) = load()
            with worker.message_alone():
                saved = self._state.get()
                step = worker.step_bucket(
                    job, key[0], None if saved is None else bytes(saved[0]), times.getCurrentWatermarkInMs(), payloads
                )
                # Spark itself takes away the timer that has just fired, after this call.
                if step.old_timer_ms not in (None, fired_ms, step.timer_ms):
                    self._handle.deleteTimer(step.old_timer_ms)
                if step.timer_ms is not None and step.timer_ms != step.old_timer_ms:
                    self._handle.registerTimer(step.timer_ms)
                self._state.update((step.saved,))
                for number, payload in step.answers:
                    yield Row(query=number, payload=payload)

        def close(self) -> None:
            pass

    return BucketProcessor()


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
