"""Sends work to Spark's workers: functions for mapInArrow, and the stateful steps of streams. Also brings their errors
back to the driver.

A function is sent by reference, as pickle does, and its arguments as bytes. Before it loads them, the worker compares
its compatibility number with that of the driver. So a missing or incompatible Ouzel is reported in one sentence.
"""

from __future__ import annotations

import gc
import os
import pickle
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from ouzel import __version__, errors
from ouzel.errors import LimitError, OuzelError
from ouzel.spark.bucket import BucketJob, step
from ouzel.spark.payloads import FIRST_PROBLEM
from ouzel.spark.state_store import Store
from ouzel.spark.totals import TotalsJob, merge_micro_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType


# Driver and executors may have different versions of Ouzel if this number is the same. Raise it if what is sent
# changes: the place or the parameters of a function for workers, or the fields of what it is given.
COMPATIBILITY = 1

# A function of a module; its last argument is the batches of a task.
WorkerFunction = Callable[..., Iterator["pa.RecordBatch"]]
ArrowFunction = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
# A row of a stateful step: number of the query, payload, report.
SteppedRow = tuple[int | None, bytes | None, str | None]


def on_workers(function: WorkerFunction, *arguments: Any) -> ArrowFunction:
    """A function for mapInArrow that calls `function(*arguments, batches)` on the workers."""
    load = _loader(_frozen(run, function, arguments))

    def run_loaded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run, function, arguments = load()
        yield from run(function, arguments, batches)

    return run_loaded


def in_arrow(frame: DataFrame, schema: StructType | str, function: WorkerFunction, *arguments: Any) -> DataFrame:
    """Apply `on_workers(function, *arguments)` to the rows of a DataFrame. Its columns may have any names."""
    names = tuple(frame.columns)
    if not any("." in name or "`" in name for name in names):
        return frame.mapInArrow(on_workers(function, *arguments), schema)
    # PySpark's mapInArrow would read a dot as the path into a struct.
    plain = frame.toDF(*(f"column{number}" for number in range(len(names))))
    return plain.mapInArrow(on_workers(renamed, names, function, arguments), schema)


def bucket_processor(job: BucketJob[Any]) -> StatefulProcessor:
    """The stateful step of a stream: one session and at most one timer for each bucket."""
    from pyspark.sql import Row

    frozen = _frozen(step_rows, job)
    load = _loader(frozen)
    store_in = _stores()

    class BucketProcessor(_quiet_processor()):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._store = store_in(handle)
            self._loaded: Any = None

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            yield from self._step(key, timerValues, (bytes(row[1]) for row in rows), fired_ms=None)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            yield from self._step(key, timerValues, (), fired_ms=expiredTimerInfo.getExpiryTimeInMs())

        def _step(self, key: Any, times: Any, payloads: Iterable[bytes], fired_ms: int | None) -> Iterator[Any]:
            self._loaded = self._loaded or load()
            step_rows, job = self._loaded
            watermark_ms = times.getCurrentWatermarkInMs()
            for row in step_rows(job, key[0], self._store, self._handle, watermark_ms, payloads, fired_ms):
                yield Row(query=row[0], payload=row[1], report=row[2])

        def close(self) -> None:
            pass

    return BucketProcessor(len(frozen))


def totals_processor(totals: Mapping[int, TotalsJob]) -> StatefulProcessor:
    """The second stateful step of a stream: merges the partial results of some queries, and passes other rows on."""
    from pyspark.sql import Row

    frozen = _frozen(total_rows, dict(totals))
    load = _loader(frozen)
    store_in = _stores()

    class TotalsProcessor(_quiet_processor()):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._store = store_in(handle)
            self._loaded: Any = None

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            self._loaded = self._loaded or load()
            total_rows, totals = self._loaded
            for row in total_rows(totals, key[0], self._store, rows):
                yield Row(query=row[0], payload=row[1], report=row[2])

        def close(self) -> None:
            pass

    return TotalsProcessor(len(frozen))


def _quiet_processor() -> type[StatefulProcessor]:
    """The base class of a processor.

    When a stream starts, Spark loads its processor in a process that prints several long lines to the driver's stderr.
    Loading this class stops that.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class QuietProcessor(StatefulProcessor):
        def __init__(self, sent_bytes: int) -> None:
            self.sent_bytes = sent_bytes  # also because __setstate__ is called only if there is a state

        def __setstate__(self, state: dict[str, Any]) -> None:
            import sys

            self.__dict__.update(state)
            main: Any = sys.modules["__main__"]
            if "transform_with_state_driver_worker" in str(getattr(main, "__file__", "")):
                main.print = lambda *_: None

    return QuietProcessor


def _stores() -> Callable[[Any], Any]:
    """A function that returns, on the worker, the store of the current key. Spark calls it before `load` can run."""

    class SparkStore:
        """See `ouzel.spark.state_store.Store`."""

        def __init__(self, handle: Any) -> None:
            self._values = {name: handle.getValueState(name, "saved BINARY") for name in ("manifest", "signature")}
            self._chunks = handle.getMapState("chunks", "number BIGINT", "saved BINARY")

        def get(self, name: str) -> bytes | None:
            found = self._values[name].get()
            return None if found is None else bytes(found[0])

        def put(self, name: str, value: bytes) -> None:
            self._values[name].update((value,))

        def get_chunk(self, number: int) -> bytes | None:
            found = self._chunks.getValue((number,))
            return None if found is None else bytes(found[0])

        def put_chunk(self, number: int, value: bytes) -> None:
            self._chunks.updateValue((number,), (value,))

        def remove_chunk(self, number: int) -> None:
            self._chunks.removeKey((number,))

    return SparkStore


def _frozen(*sent: Any) -> bytes:
    # Compressed, because Spark broadcasts a function of more than a megabyte, and its stateful operators cannot start
    # from a broadcast. Programs shrink to a tenth.
    return zlib.compress(pickle.dumps(sent))


def _loader(frozen: bytes) -> Callable[[], Any]:
    """A function that returns, on the worker, the object that was serialised."""
    driver, expected = __version__, COMPATIBILITY

    def load() -> Any:
        import os
        import pickle
        import zlib

        try:
            import ouzel
            from ouzel.spark import tasks

            if expected == tasks.COMPATIBILITY:
                return pickle.loads(zlib.decompress(frozen))
            problem = (
                f"Ouzel {ouzel.__version__} is installed there, with compatibility number {tasks.COMPATIBILITY}, and "
                f"{driver} with {expected} on the driver"
            )
        except ImportError as error:
            problem = f"it cannot be imported there ({error})"
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # one sentence, not the worker's stack
        raise RuntimeError(
            f"Spark's executors need an Ouzel compatible with the driver's: {problem}; install ouzel=={driver} in the "
            "Python of every executor, or ship an environment with --archives (not a wheel with --py-files: its "
            "compiled library is not loaded out of a zip file)"
        ) from None

    return load


# ── On the worker ──────────────────────────────────────────────────────────────────────────────────


def run(function: WorkerFunction, arguments: Sequence[Any], batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """The output of a function for one task."""
    with hide_traceback():
        yield from function(*arguments, batches)
    freeze_libraries()


def renamed(
    columns: Sequence[str], function: WorkerFunction, arguments: Sequence[Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The output of a function for rows whose column names Spark cannot pass. `columns` are the real names."""
    yield from function(*arguments, (batch.rename_columns(columns) for batch in batches))


def step_rows(
    job: BucketJob[Any],
    name: int,
    store: Store,
    timers: Any,
    watermark_ms: int,
    payloads: Iterable[bytes],
    fired_ms: int | None,
) -> Iterator[SteppedRow]:
    """Let a bucket process its input, set its timer, and return its rows. `fired_ms` is the timer that caused the
    call.
    """
    with hide_traceback():
        done = step(job, name, store, watermark_ms, payloads)
        # Spark itself removes the timer that has just fired, after this call.
        if done.old_timer_ms not in (None, fired_ms, done.timer_ms):
            timers.deleteTimer(done.old_timer_ms)
        if done.timer_ms is not None and done.timer_ms != done.old_timer_ms:
            timers.registerTimer(done.timer_ms)
        for number, payload in done.answers:
            yield number, payload, None
        if done.report is not None:
            yield None, None, done.report


def total_rows(
    totals: Mapping[int, TotalsJob], number: int, store: Store, rows: Iterable[Sequence[Any]]
) -> Iterator[SteppedRow]:
    """The output of the totals step for one key: if query `number` has totals, its merged partial results; otherwise
    the rows as they are.
    """
    if number not in totals:
        for row in rows:
            yield row[1], row[2], row[3]
        return
    with hide_traceback():
        received = [(row[1], bytes(row[2])) for row in rows]
        partials = [payload for of, payload in received if of == number]
        problems = [payload for of, payload in received if of != number]
        merged = merge_micro_batch(totals[number], number, store, partials, problems)
    for payload in merged.answers:
        yield number, payload, None
    for payload in merged.problems:
        yield FIRST_PROBLEM + number, payload, None
    yield None, None, merged.report


@contextmanager
def hide_traceback() -> Iterator[None]:
    """Send errors for users to the driver as a message only, without the worker's traceback."""
    try:
        yield
    except (OuzelError, MemoryError) as error:
        # Spark's worker reads this when it reports the error, and then ends.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        if isinstance(error, MemoryError):
            raise LimitError(_out_of_memory(error)) from None
        raise


def _out_of_memory(error: MemoryError) -> str:
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    except ImportError:  # Windows has no such limits
        limit = -1
    if limit < 0:
        return f"a Python worker of Spark ran out of memory ({error}); use more partitions, or give memory_limit="
    return (
        f"a Python worker of Spark has {limit >> 20:,} MB of address space, by spark.executor.pyspark.memory for each "
        f"core, and it is used up ({error}); give it more, or set spark.executorEnv.MALLOC_ARENA_MAX=1, "
        "spark.executorEnv.OPENBLAS_NUM_THREADS=1 and spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL=system, which saves "
        "about 300 MB"
    )


@cache
def freeze_libraries() -> None:
    """Exclude the loaded libraries from garbage collection, once in each process, after its first task.

    Spark's workers collect garbage after every task. With many loaded objects, that takes longer than a small task.
    """
    gc.collect()
    gc.freeze()


# Spark passes on only the text, between a heading of its own and, from streams, the stack of the JVM.
_OURS = re.compile(r"\bouzel\.errors\.(\w+): (.*?)(?=\s*(?:SQLSTATE|\n\tat |=== Streaming Query|\Z))", re.DOTALL)


@contextmanager
def unwrap_errors() -> Iterator[None]:
    """Raise Ouzel's errors from workers as the original errors, without Spark's stack around them.

    >>> with unwrap_errors():
    ...     raise PySparkException("Python worker failed: ouzel.errors.LimitError: too many matches SQLSTATE: 38000")
    Traceback (most recent call last):
    ouzel.errors.LimitError: too many matches
    """
    try:
        yield
    except PySparkException as failure:
        error = error_in(str(failure))
        if error is None:
            raise
        raise error from None


def error_in(message: str) -> errors.OuzelError | None:
    """The error of Ouzel that a message of Spark contains; None if it contains none."""
    found = _OURS.search(message)
    if found is None:
        return None
    kind = getattr(errors, found.group(1), errors.OuzelError)
    error: errors.OuzelError = kind(found.group(2))
    return error
