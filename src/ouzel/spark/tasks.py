"""What travels to Spark's workers: a share of the queries as bytes, and how its time stands to Spark's."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ouzel import __version__
from ouzel.errors import InputError
from ouzel.runtime.problems import Problem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

    from ouzel.spark.bucket import StreamJob
    from ouzel.spark.query_set_worker import SetJob


NANOSECONDS_PER_MILLISECOND = 1_000_000

# The column that says why a query stopped, and in packed rows the number of query 0's problems.
PROBLEM_COLUMN = "problem"
FIRST_PROBLEM = 1 << 30


@dataclass(frozen=True, slots=True)
class Clock:
    """Spark's watermark counts milliseconds, events count ticks.

    >>> microseconds = Clock(tick_ns=1_000)
    >>> microseconds.watermark_tick(5), microseconds.timer_ms(5_000), microseconds.timer_ms(5_001)
    (5000, 5, 6)
    """

    tick_ns: int
    origin_ms: int = 0  # what tick 0 is on Spark's clock

    def watermark_tick(self, watermark_ms: int) -> int:
        """The last tick that the watermark has reached."""
        return (watermark_ms - self.origin_ms) * NANOSECONDS_PER_MILLISECOND // self.tick_ns

    def timer_ms(self, tick: int) -> int:
        """The first watermark that has reached the tick; an earlier one would release a negated end too early."""
        return -(-tick * self.tick_ns // NANOSECONDS_PER_MILLISECOND) + self.origin_ms


@dataclass(frozen=True, slots=True)
class Share:
    """Queries that are answered together, and the columns of their events. Bytes, because it travels to the workers."""

    program: bytes
    columns: bytes  # the Arrow schema of the events as the program knows them
    time: str
    queries: tuple[str, ...]  # names, in the order of their numbers in the output
    first_query: int  # the number of the first of them among all queries of the job
    clock: Clock
    # Aggregates over all keys, spread by key: what comes out are changes, which somebody has to add up.
    tells_changes: bool = False
    # A query that fails stops where it failed, and its problem is a row of the output; otherwise the job fails.
    reports: bool = False

    def events(self, table: pa.Table) -> pa.Table:
        """The columns that the program needs, with the types it was compiled for."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.columns))
        nulls = table[self.time].null_count
        if nulls:
            raise InputError(
                f"the time column '{self.time}' is null in {nulls:,} of {table.num_rows:,} rows; an event must have a "
                f'time: filter such rows out with df.where("{self.time} IS NOT NULL"), or give them one'
            )
        # Spark labels timestamps with the session's time zone; the ticks are the same.
        return table.select(schema.names).cast(schema)

    def numbered(self, answer: dict[str, pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The answers that have rows, by the numbers of their queries among all of the job."""
        for number, name in enumerate(self.queries, start=self.first_query):
            if name in answer and answer[name].num_rows:
                yield number, answer[name]

    def problems(
        self, stopped: Mapping[str, Problem], place: str, known: Collection[str] = ()
    ) -> Iterator[tuple[int, pa.Table]]:
        """Why queries stopped at a place, those that are known aside, under numbers that only problems have."""
        for number, name in enumerate(self.queries, start=self.first_query):
            if name in stopped and name not in known:
                yield FIRST_PROBLEM + number, problem_row(stopped[name], place)


def problem_row(problem: Problem, place: str) -> pa.Table:
    """A problem as a row."""
    when = "" if problem.time is None else f" at time {problem.time}"
    text = f"{problem.reason} (query '{problem.query}' stopped{when} in {place} and returns no more rows from there)"
    return pa.table({PROBLEM_COLUMN: [text]})


@dataclass(frozen=True, slots=True)
class TotalsJob:
    """How the totals over all keys are made of what each part of the keys tells."""

    program: bytes  # the queries as users wrote them, where those of the share tell changes
    first_query: int
    # Time is cut into stretches of so many ticks, which are added up apart; None: no window ever forgets.
    stretch_ticks: int | None
    tasks: int
    reports: bool = False  # as `Share.reports`


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
        """See `ouzel.spark.state_store.Store`."""

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
