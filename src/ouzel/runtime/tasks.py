"""Work on several threads: how many there are, and tasks that they do together."""

from __future__ import annotations

import contextvars
import itertools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ouzel.errors import InputError
from ouzel.kernels.pauses import call_on_pause, pause

T = TypeVar("T")

# Below so many events of the types that a query names, threads gain less than they cost.
EVENTS_MIN = 200_000
_JOIN_SECONDS = 0.02


def thread_count(given: int | None) -> int:
    """The number of threads: `threads=`, OUZEL_THREADS, or all cores; one in a task of Spark."""
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
    """Spark starts a worker for each core already."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.TaskContext.get() is not None


class _Stopped(BaseException):
    """Ends work beside which other work has failed."""


def run_tasks(tasks: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """Do tasks in threads, this one among them. If one fails, the others end at their next pause, and its error is
    raised."""
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
