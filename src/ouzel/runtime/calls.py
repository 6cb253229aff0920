"""Threads. Runs the calls of an object that holds stream state one at a time, each to its end; and runs tasks on
several threads.

Python may raise KeyboardInterrupt between any two steps of the main thread, which would leave state half changed. So a
helper thread does the work while the main thread waits. On Ctrl-C the helper stops at its next `pause()`, and the main
thread raises KeyboardInterrupt. The next call first lets the helper complete the interrupted work. Other threads are
never interrupted and do their own work.

The helper costs 70 µs of CPU time for each call, more than most small pushes take. So the main thread does these
itself. If a SIGINT comes meanwhile, it raises KeyboardInterrupt when the push is complete, and the next call returns
the rows. After a call that took long, the helper does the next one.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enums of numbers, which costs more than the call.
import _thread
import contextvars
import itertools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial, wraps
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from ouzel.errors import InputError, StateError
from ouzel.kernels.pauses import call_on_pause, events_read, pause
from ouzel.notebook import Progress

P = ParamSpec("P")
T = TypeVar("T")

# A signal may be delivered to another thread, so the main thread must poll for it.
_LOOK_SECONDS = 0.05
# How often the main thread checks whether an interrupted helper has paused; then it leaves the helper alone.
_LOOKS = 10
# Ctrl-C may wait for a call that lasts no longer.
_BRIEF_SECONDS = 0.02
# Idle helpers, by the queue on which they wait.
_idle: list[SimpleQueue[_Job]] = []
os.register_at_fork(after_in_child=_idle.clear)


class _Abandoned(BaseException):
    """Raised in a helper to end work that no thread waits for any more."""


class _Job:
    """A call in progress. Its state is in flags; queues only wake up threads that wait for a flag."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], *, gives_rows: bool) -> None:
        self.work: Callable[[], Any] | None = partial(contextvars.copy_context().run, function, *args)
        self.gives_rows = gives_rows
        self.process = os.getpid()
        self.claim = _thread.allocate_lock()
        self.stop = False
        self.is_abandoned = False
        self.is_parked = False
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.quiet: SimpleQueue[None] = SimpleQueue()
        self.go_on: SimpleQueue[None] = SimpleQueue()

    def run(self) -> None:
        assert self.work is not None
        call_on_pause(self.pause)
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error
        finally:
            call_on_pause(None)
            self.work = None

    def pause(self) -> None:
        if self.is_abandoned:
            raise _Abandoned
        if not self.stop:
            return
        self.stop = False
        self.is_parked = True
        self.quiet.put(None)
        while self.is_parked:
            self.go_on.get()

    def wait(self, *, abandon: bool = False, progress: Progress | None = None) -> None:
        """Wait until the job is done. KeyboardInterrupt stops the job at its next pause or, with `abandon`, ends it
        there.
        """
        try:
            if self.is_parked:
                self.is_parked = False
                self.go_on.put(None)
            elif not self.is_done:
                _start(self)
            while not self.is_done:
                self._look()
                if progress is not None:
                    progress.show()
        except BaseException:
            self.stop, self.is_abandoned = True, abandon
            # It may have been started or not, and can be claimed only once.
            _thread.start_new_thread(_serve, (self,))
            for _ in range(_LOOKS):
                if not self.is_parked and not self.is_done:
                    self._look()
            raise

    def _look(self) -> None:
        try:
            self.quiet.get(timeout=_LOOK_SECONDS)
        except Empty:
            return


def _start(job: _Job) -> None:
    try:
        _idle.pop().put(job)
    except IndexError:
        _thread.start_new_thread(_serve, (job,))


def _serve(job: _Job | None) -> None:
    """The loop of a helper thread."""
    inbox: SimpleQueue[_Job] = SimpleQueue()
    while job is not None:
        if job.claim.acquire(blocking=False):
            job.run()
            if _idle:
                _finish(job)
                return
            _idle.append(inbox)
            _finish(job)
        elif _idle:
            return
        else:
            _idle.append(inbox)
        job = None  # Free what the job holds while this thread waits.
        job = inbox.get()


def _finish(job: _Job) -> None:
    job.is_done = True
    job.quiet.put(None)


def interruptible(function: Callable[..., T], *args: Any) -> T:
    """Do work that can be abandoned: KeyboardInterrupt is raised at once, and the state of the work is lost."""
    if not _is_main():
        return function(*args)
    read: list[int] = []

    def counted() -> T:
        events_read.set(read)
        return function(*args)

    job = _Job(counted, (), gives_rows=False)
    progress = Progress(read) if Progress.is_wanted() else None
    try:
        job.wait(abandon=True, progress=progress)
    finally:
        if progress is not None:
            progress.clear()
    if job.error is not None:
        raise job.error
    result: T = job.result
    return result


class Calls:
    """The calls of one object: its lock, the interrupted call, and rows that no call has returned yet."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._job: _Job | None = None
        self._rows: list[dict[Any, pa.Table]] = []
        # Whether the last call that returned rows was a long one.
        self._lasts = False

    @property
    def interrupted(self) -> bool:
        """Whether an interrupted call still has work to do or rows to return."""
        return self._job is not None or bool(self._rows)

    @property
    def rows(self) -> dict[Any, pa.Table]:
        """Rows of interrupted calls that no call has returned yet."""
        return _joined(self._rows)

    def owe(self, rows: dict[Any, pa.Table]) -> None:
        """Return these rows with the next call."""
        self._rows = [*self._rows, rows]

    def complete(self) -> None:
        """Complete the work of an interrupted call."""
        job = self._job
        if job is None:
            return
        if job.process != os.getpid():
            raise StateError("a call was interrupted before this process was forked; restore a snapshot instead")
        job.wait()
        # Nothing can interrupt between these two steps.
        if job.error is not None:
            self._job = None
            raise job.error
        self._job, self._rows = None, [*self._rows, job.result] if job.gives_rows else self._rows

    def run(self, function: Callable[..., dict[Any, pa.Table]], *args: Any, brief: bool = False) -> dict[Any, pa.Table]:
        """Do work that returns rows by name. Returns the rows of an interrupted call too, before the others. `brief`
        work is done without the helper, unless the last call took long.
        """
        self.complete()
        if not _is_main():
            self._rows = [*self._rows, function(*args)]
        elif brief and not self._lasts and (handler := _signal.getsignal(_signal.SIGINT)) is not None:
            self._run_to_its_end(function, args, handler)
        else:
            began = perf_counter()
            self._job = _Job(function, args, gives_rows=True)
            self.complete()
            self._lasts = perf_counter() - began > _BRIEF_SECONDS
        rows = _joined(self._rows)
        self._rows = []
        return rows

    def _run_to_its_end(
        self, function: Callable[..., dict[Any, pa.Table]], args: tuple[Any, ...], handler: Any
    ) -> None:
        """Do work in the main thread. A SIGINT that comes meanwhile is handled after the rows are stored. Only a Python
        handler is replaced for this, not SIG_DFL, which ends the process, and not SIG_IGN.
        """
        caught: list[tuple[int, Any]] = []
        began = perf_counter()
        try:
            if callable(handler):
                _signal.signal(_signal.SIGINT, lambda number, frame: caught.append((number, frame)))
            self._rows = [*self._rows, function(*args)]
        finally:
            if callable(handler):
                _signal.signal(_signal.SIGINT, handler)
            self._lasts = perf_counter() - began > _BRIEF_SECONDS
            if caught:
                handler(*caught[0])

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Do work that does not return rows."""
        self.complete()
        if not _is_main():
            return function(*args)
        job = self._job = _Job(function, args, gives_rows=False)
        self.complete()
        result: T = job.result
        return result


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _joined(answers: list[dict[Any, pa.Table]]) -> dict[Any, pa.Table]:
    if len(answers) == 1:
        return answers[0]
    found: dict[Any, list[pa.Table]] = {}
    for answer in answers:
        for name, table in answer.items():
            # Before the first events a call does not know the columns.
            found.setdefault(name, []).extend([table] if table.num_columns else [])
    return {name: pa.concat_tables(tables) if tables else pa.table({}) for name, tables in found.items()}


class _HasCalls(Protocol):
    _calls: Calls


S = TypeVar("S", bound=_HasCalls)


def exclusive(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorate a method that only one thread at a time may run."""

    @wraps(method)
    def alone(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._calls.lock:
            return method(self, *args, **kwargs)

    return alone


def completed(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorate an exclusive method that must not be left half done, and that returns no rows of queries."""

    @wraps(method)
    def alone(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._calls.lock:
            return self._calls.call(partial(method, self, *args, **kwargs))

    return alone


# Below so many events of the types that a query names, threads gain less than they cost.
EVENTS_MIN = 200_000
_JOIN_SECONDS = 0.02


def thread_count(given: int | None) -> int:
    """The number of threads to use: `threads=`, OUZEL_THREADS, or all cores. In a task of Spark it is one."""
    if given is None:
        text = os.environ.get("OUZEL_THREADS")
        if text is None:
            return 1 if _is_in_spark_task() else _cores()
        try:
            given = int(text)
        except ValueError:
            raise InputError(f"OUZEL_THREADS must be an integer >= 1, got {text!r}") from None
        if given < 1:
            raise InputError(f"OUZEL_THREADS must be an integer >= 1, got {text!r}")
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < 1:
        raise InputError(f"threads= must be an integer >= 1, got {given!r}")
    return int(given)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_in_spark_task() -> bool:
    """Whether this process is a Spark worker. Spark already starts one for each core."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.TaskContext.get() is not None


class _Stopped(BaseException):
    """Raised in a task to end it after another task has failed."""


def run_tasks(tasks: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """Run tasks on several threads, including this one. If a task fails, the others end at their next pause, and its
    error is raised.
    """
    if threads == 1 or len(tasks) < 2:
        return [task() for task in tasks]
    results: dict[int, T] = {}
    errors: list[BaseException] = []
    numbers = itertools.count()

    def work() -> None:
        try:
            while not errors and (number := next(numbers)) < len(tasks):
                results[number] = tasks[number]()
        except BaseException as error:
            errors.append(error)

    def stop_if_failed() -> None:
        if errors:
            raise _Stopped

    def work_beside() -> None:
        call_on_pause(stop_if_failed)
        work()

    others = [
        threading.Thread(target=contextvars.copy_context().run, args=(work_beside,), daemon=True)
        for _ in range(min(threads, len(tasks)) - 1)
    ]
    for other in others:
        other.start()
    work()
    for other in others:
        while other.is_alive():
            other.join(_JOIN_SECONDS)
            if not errors:
                try:
                    pause()
                except BaseException as error:
                    errors.append(error)
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(tasks))]
