"""Feeds a session: takes events, lets the watermark follow the newest event, and returns the rows of queries.

`Engine` and `QuerySet` share this code. Their calls run one at a time, and no call is left half done.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from threading import get_ident
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Catalog
from ouzel.errors import InputError, ProblemWarning, QueryError, argument
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT
from ouzel.runtime.calls import Calls, exclusive
from ouzel.runtime.layout import ARRIVAL, tick_of, ticks_of
from ouzel.runtime.limits import on_many_matches
from ouzel.runtime.problems import Answers, Problem
from ouzel.runtime.session import EARLIEST, LATEST, Session

K = TypeVar("K")


class Feeder(ABC, Generic[K]):
    """A session whose events may be delayed. Answers have keys of type `K`, the names or ids of queries."""

    _session: Session | None  # None before the columns of the input are known
    _noun = "engine"

    def __init__(self, max_delay: int | str | timedelta) -> None:
        duration_nanoseconds(max_delay, "max_delay")  # refuses what cannot be converted to ticks later
        self._max_delay = max_delay
        self._delay_ticks = 0
        self._newest = EARLIEST
        self._finished = False
        self._calls = Calls()
        self._warned = 0
        self._caller = get_ident()

    @abstractmethod
    def _nothing(self) -> dict[K, pa.Table]:
        """The answers of a call that completes nothing."""

    @abstractmethod
    def _stopped(self) -> Mapping[K, Problem]:
        """The queries that have stopped, and why."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End the stream and drop all held events. To get the remaining matches, call `finish` before."""
        self._finished = True
        self._session = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.__exit__(*error)

    def __repr__(self) -> str:
        if self._finished:
            state = "finished"
        elif self._session is None:
            state = "no events yet"
        else:
            state = f"{self.held_events:,} events held, {self.late:,} late"
        return f"<{type(self).__name__} of {self._contents()}; {state}>"

    @abstractmethod
    def _contents(self) -> str:
        """The queries as a short text."""

    # ── What users see ─────────────────────────────────────────────────────────────────────────────

    @property
    def interrupted(self) -> bool:
        """Whether KeyboardInterrupt stopped a call after it had added its events. The next call then completes that
        work first, and returns the rows of both calls. If false, an interrupted call has changed nothing.
        """
        return self._calls.interrupted

    @exclusive
    def problems(self) -> list[Problem]:
        """The queries that have stopped because of their own errors, each with the time and the reason.

        The other queries continue. Once all have stopped, every call raises the last error.
        """
        return list(dict.fromkeys(self._stopped().values()))

    @property
    @exclusive
    def late(self) -> int:
        """The number of late events so far."""
        return 0 if self._session is None else self._session.late

    @property
    @exclusive
    def watermark(self) -> int | None:
        """The tick up to which all events have been seen; None before the first event."""
        if self._session is None or self._session.watermark == EARLIEST:
            return None
        return self._session.watermark

    @property
    @exclusive
    def held_events(self) -> int:
        """The number of events held in memory, over all queries."""
        return 0 if self._session is None else self._calls.call(lambda session: session.held_events, self._session)

    @exclusive
    def advance(self, to: int | datetime) -> Answers[K]:
        """Declare that no more events up to a time will come, and return the matches that this completes."""
        self._calls.complete()
        self._must_be_open()
        if self._session is None:
            raise InputError("advance() must come after the first push()")
        return self._answered(self._advance, tick_of(to, self._session.program.layout))

    @exclusive
    def finish(self) -> Answers[K]:
        """End the stream and return the remaining matches. Nothing can be pushed afterwards. If no event ever came, the
        tables of an engine have no columns.
        """
        self._calls.complete()
        if not self._finished or not self._calls.interrupted:  # An interrupted finish() may be called again.
            self._must_be_open()
        return self._answered(self._finish)

    # ── Steps of calls ─────────────────────────────────────────────────────────────────────────────

    def _set_delay(self, catalog: Catalog) -> None:
        self._delay_ticks = duration_ticks(self._max_delay, catalog, "max_delay")

    def _set_order(self, session: Session) -> None:
        """If there is no delay, let the session read ordered events at once."""
        layout = session.program.layout
        if layout.by_arrival and self._delay_ticks:
            raise InputError(
                argument("order", ARRIVAL),
                " reads events in the order of arrival, so ",
                argument("max_delay", self._max_delay),
                " cannot apply; omit max_delay, or name columns that order events of one time",
            )
        session.read_at_once(self._delay_ticks == 0)

    def _pushed(self, session: Session, events: pa.Table) -> int:
        """Push events, and return the watermark that follows from the newest event so far."""
        newest = int(ticks_of(events, session.program.layout).max())
        session.push(events)
        return self._watermark_after(newest)

    def _watermark_after(self, newest: int) -> int:
        """The watermark if the newest event is at tick `newest`."""
        self._newest = max(self._newest, newest)
        return max(EARLIEST, self._newest - self._delay_ticks - 1)

    def _advance(self, watermark: int) -> dict[K, pa.Table]:
        """The rows that a watermark completes. If no query runs any more, raises the error of the last one that
        stopped.
        """
        session = self._session
        assert session is not None
        rows: dict[K, pa.Table] = session.advance(watermark)
        error, session.error = session.error, None
        if error is not None and not session.is_running:
            raise error
        return rows

    def _finish(self) -> dict[K, pa.Table]:
        was_finished, self._finished = self._finished, True
        return self._nothing() if was_finished or self._session is None else self._advance(LATEST)

    def _answered(self, work: Callable[..., dict[K, pa.Table]], *args: Any, brief: bool = False) -> Answers[K]:
        """The rows of each query. Warns of each query that has stopped, and raises its error if no query is left."""
        self._caller = get_ident()
        errors: list[Warning] = []
        token = on_many_matches.set(partial(self._warn_completely, errors))
        try:
            rows = self._calls.run(work, *args, brief=brief)
        finally:
            on_many_matches.reset(token)
        if errors:
            self._calls.owe(rows)
            raise errors[0]
        self._warn_of_columns()
        stopped = self._stopped()
        if self._session is None or not stopped:
            return Answers(rows)
        problems = list(dict.fromkeys(stopped.values()))
        if not self._session.is_running:
            raise problems[-1].raised()
        for problem in problems[self._warned :]:
            warnings.warn(f"{problem.reason}; the other queries continue", ProblemWarning, stacklevel=4)
        self._warned = len(problems)
        return Answers(rows).stopped(stopped)

    def _warn_completely(self, errors: list[Warning], name: str, what: str) -> None:
        """Warn while a call changes the state. A filter that turns warnings into errors must not stop the call
        half-way, so such errors are collected in `errors`.
        """
        try:
            self._warn_early(name, what)
        except Warning as error:
            errors.append(error)

    def _warn_early(self, name: str, what: str) -> None:
        """Warn of a query that is about to list many matches."""

    def _warn_of_columns(self) -> None:
        """Warn of columns that a query reads but that never have a value."""

    def _must_be_open(self) -> None:
        if self._finished:
            raise InputError(f"this {self._noun} is finished; make a new one for another stream")


def duration_ticks(given: int | str | timedelta, catalog: Catalog, what: str) -> int:
    """A delay in ticks. A number is already in ticks. A timedelta or a text like "5 s" is converted to the unit of the
    time column.
    """
    nanoseconds = duration_nanoseconds(given, what)
    if nanoseconds is None:
        assert isinstance(given, int | np.integer)
        return int(given)
    if catalog.time.tick_ns is None:
        raise InputError(
            argument(what, given),
            " has a unit, but the time column holds bare numbers; give ",
            argument("time_unit"),
            " to say what they count, or a number of ticks",
        )
    return nanoseconds // catalog.time.tick_ns


def duration_nanoseconds(given: int | str | timedelta, what: str) -> int | None:
    """The nanoseconds of a timedelta or of a text like "5 s"; None for a number of ticks. Raises an error if
    negative.
    """
    from ouzel.lang import parse_expression
    from ouzel.lang.syntax import Duration

    if isinstance(given, bool) or not isinstance(given, int | np.integer | str | timedelta):
        raise InputError(f"{what} must be a number of ticks, a timedelta or text like '5 s', got {given!r}")
    if given < timedelta(0) if isinstance(given, timedelta) else not isinstance(given, str) and given < 0:
        raise InputError(argument(what, given), " is negative; it must be 0 or more")
    if isinstance(given, int | np.integer):
        return None
    if isinstance(given, timedelta):
        return (given // timedelta(microseconds=1)) * 1000
    try:
        parsed = parse_expression(given)
    except QueryError as error:
        why = f": {error.message}" if "unit of time" in error.message else ""
        raise InputError(argument(what, given), f" is not a duration{why}; write it like '5 s' or '2 hours'") from None
    if not isinstance(parsed, Duration):
        raise InputError(argument(what, given), " is not a duration; write it like '5 s' or '2 hours'")
    return int(parsed.amount * NANOSECONDS_OF_UNIT[parsed.unit])
