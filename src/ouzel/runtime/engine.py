"""The embedded engine: `match` for finite inputs, `Engine` for streams. One process, no Spark."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path, PurePath
from threading import get_ident
from typing import Any, TypedDict, Unpack, overload

import pyarrow as pa

from ouzel.errors import EmptyAnswerWarning, InputError, ManyMatchesWarning, OrderWarning, StateError, TypesWarning
from ouzel.loss import LossModel
from ouzel.notebook import show_tables
from ouzel.prepared import OneQuery, Queries, SeveralQueries, as_queries, is_one
from ouzel.runtime.calls import exclusive, interruptible, thread_count
from ouzel.runtime.empty_answers import AbsentColumns, EmptyAnswers, ManyMatches, simultaneous_events
from ouzel.runtime.feeder import Feeder
from ouzel.runtime.inbox import SMALL_ROWS
from ouzel.runtime.input_binder import InputBinder
from ouzel.runtime.limits import Limits, limits_of, on_many_matches
from ouzel.runtime.problems import Answers, Problem
from ouzel.runtime.program import Program
from ouzel.runtime.session import Session
from ouzel.runtime.threads import answers
from ouzel.sealing import SNAPSHOT, decoding

_PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"


class QueryOptions(TypedDict, total=False):
    """The options of every function that runs queries, for type checkers."""

    params: Mapping[str, Any] | None
    time: str
    type: str | None
    order: Collection[str]
    time_unit: str | None
    limits: Limits | Mapping[str, int] | None
    model: LossModel | None
    hints: Mapping[str, str] | None


class MatchOptions(QueryOptions, total=False):
    """The options of `match`."""

    threads: int | None


class StreamOptions(QueryOptions, total=False):
    """The options of `stream`."""

    max_delay: int | str | timedelta
    schema: pa.Schema | Mapping[str, pa.Schema] | None


@overload
def match(events: Any, query: OneQuery, **options: Unpack[MatchOptions]) -> pa.Table: ...


@overload
def match(events: Any, query: SeveralQueries, **options: Unpack[MatchOptions]) -> dict[str, pa.Table]: ...


def match(
    events: Any,
    query: Queries,
    *,
    params: Mapping[str, Any] | None = None,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
    limits: Limits | Mapping[str, int] | None = None,
    model: LossModel | None = None,
    hints: Mapping[str, str] | None = None,
    threads: int | None = None,
) -> pa.Table | dict[str, pa.Table]:
    """All matches of a query in a finite input, as a pyarrow Table. For several queries, a dictionary of tables.

    `.to_pandas()` and `polars.from_arrow(…)` convert a table, and DuckDB reads it by the name of its variable.

    `events` is a pyarrow, polars, pandas or DuckDB table, a list of dictionaries, the path of a Parquet, CSV or JSON
    Lines file, or a dictionary of such inputs by event type. `time` and `type` name its columns; with `type=None` all
    events have the type that the query names. `params` gives the values of `:name` in a text. `model` is the loss model
    for queries with THRESHOLD. Exceeding one of `limits` is an error. `threads` is the number of threads for 200,000
    events or more; by default OUZEL_THREADS, or all cores. `hints={"key": "dynamic"}` chooses how sequences with
    several equivalence tests are searched: by "composite" keys, "dynamic" filtering or "multi-pais". By default a
    sample of the events decides. `threads` and `hints` change neither rows nor their order.

    >>> events = [
    ...     {"type": "Shelf", "ts": 1, "tag": 7}, {"type": "Shelf", "ts": 2, "tag": 8},
    ...     {"type": "Register", "ts": 3, "tag": 8}, {"type": "Exit", "ts": 4, "tag": 7},
    ...     {"type": "Exit", "ts": 5, "tag": 8},
    ... ]
    >>> theft = "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag] WITHIN 100 RETURN Theft(a.tag AS tag)"
    >>> match(events, theft).to_pylist()
    [{'start': 1, 'end': 4, 'tag': 7}]
    """
    return match_without(
        (), events, query, params=params, time=time, type=type, order=order, time_unit=time_unit, limits=limits,
        model=model, hints=hints, threads=threads,
    )  # fmt: skip


def match_without(
    rules_off: Collection[str],
    events: Any,
    query: Queries,
    *,
    params: Mapping[str, Any] | None = None,
    threads: int | None = None,
    limits: Limits | Mapping[str, int] | None = None,
    **options: Any,
) -> Any:
    """`match` with some rules of the plan switched off. Rules never change answers, which tests check with this
    function.
    """
    show_tables()
    queries = as_queries(query, params)
    options = {"time": "ts", "type": "type", **options}
    binder = InputBinder(queries, limits=limits_of(limits), rules_off=rules_off, **options)
    count = thread_count(threads)
    wide = binder.table(events)
    many = ManyMatches(binder.program, queries)
    token = on_many_matches.set(partial(_warn_early, many, get_ident()))
    try:
        answered = interruptible(answers, binder.program, wide, count)
    finally:
        on_many_matches.reset(token)
    _warn_of_empty(binder.program, wide, answered)
    absent = AbsentColumns(binder.program)
    absent.look_at(wide)
    _warn_of_absent(absent, stacklevel=3)
    _warn_of_many(many, wide, answered, stacklevel=3)
    ties = simultaneous_events(binder.program, wide)
    if ties is not None:
        warnings.warn(ties, OrderWarning, stacklevel=3)
    if is_one(query):
        (answer,) = answered.values()
        return answer
    return answered


def _warn_of_empty(program: Program, events: pa.Table, rows: dict[str, pa.Table]) -> None:
    """Warn about empty answers that have a simple reason, and about misspelt types."""
    empty = [name for name, answer in rows.items() if not answer.num_rows]
    watch = EmptyAnswers(program)
    if empty or not watch.has_all_types(events):
        watch = EmptyAnswers(program)
        watch.look_at(events)
        for reason in watch.reasons(empty):
            warnings.warn(reason, EmptyAnswerWarning, stacklevel=4)
        for sentence in watch.misspelt(empty):
            warnings.warn(sentence, TypesWarning, stacklevel=4)


def _warn_of_absent(absent: AbsentColumns, stacklevel: int) -> None:
    for sentence in absent.warnings():
        warnings.warn(sentence, TypesWarning, stacklevel=stacklevel + 1)


def _warn_of_many(many: ManyMatches, events: pa.Table, answers: dict[str, pa.Table], stacklevel: int) -> None:
    for sentence in many.warnings(events, answers):
        warnings.warn(sentence, ManyMatchesWarning, stacklevel=stacklevel + 1)


def _warn_early(many: ManyMatches, thread: int, name: str, what: str) -> None:
    """Warn while a call runs. The warning shows the line that made the call."""
    sentence = many.early_warning(name, what)
    if sentence is None:
        return
    frame = sys._current_frames()[thread]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    place = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__", "__main__")
    warnings.warn_explicit(sentence, ManyMatchesWarning, *place, registry=registry)


class Engine(Feeder[str]):
    """Queries over a stream: push batches in, take matches out.

    Events may be out of order by up to `max_delay` (ticks, a timedelta, or text like "5 s"). Events with a longer delay
    are late: they are counted in `late` and never matched. With `keep_late`, `take_late()` returns them.

    `schema` gives the columns and their types, as an Arrow schema or as a dictionary with one for each event type.
    Without it, the first batch decides.

    >>> engine = Engine("PATTERN SEQ(A a, B b) WITHIN 10 RETURN Pair(a.ts AS a, b.ts AS b)")
    >>> engine.push([{"type": "A", "ts": 1}, {"type": "B", "ts": 3}])["query"].num_rows
    0
    >>> engine.push([{"type": "B", "ts": 4}])["query"].to_pylist()
    [{'start': 1, 'end': 3, 'a': 1, 'b': 3}]
    >>> engine.finish()["query"].to_pylist()
    [{'start': 1, 'end': 4, 'a': 1, 'b': 4}]

    Several threads may call one engine. Each call waits until the call before it has ended.
    """

    def __init__(
        self,
        queries: Queries,
        *,
        params: Mapping[str, Any] | None = None,
        time: str = "ts",
        type: str | None = "type",
        order: Collection[str] = (),
        max_delay: int | str | timedelta = 0,
        time_unit: str | None = None,
        limits: Limits | Mapping[str, int] | None = None,
        keep_late: bool = False,
        model: LossModel | None = None,
        hints: Mapping[str, str] | None = None,
        schema: pa.Schema | Mapping[str, pa.Schema] | None = None,
    ) -> None:
        self._queries = as_queries(queries, params)
        self._binder = InputBinder(
            self._queries, time=time, type=type, order=order, time_unit=time_unit, limits=limits_of(limits),
            model=model, hints=hints, streaming=True, schema=schema, keeps_all_columns=keep_late,
        )  # fmt: skip
        super().__init__(max_delay)
        self._session: Session | None = None
        self._keep_late = keep_late
        self._absent: AbsentColumns | None = None
        self._many: ManyMatches | None = None
        self._binder.check(streaming=True)

    @exclusive
    def push(self, events: Any) -> Answers[str]:
        """Add a batch of events, and return the matches that it completes, by query name.

        If the engine has one query, the answer has `.arrow()`, `.to_pandas()`, `.df()` and `.pl()`. If a query stops
        because of its own error, a ProblemWarning and `problems()` report it.
        """
        self._calls.complete()
        self._must_be_open()
        if isinstance(events, list):
            rows = len(events)
        elif isinstance(events, pa.RecordBatch | pa.Table):
            rows = events.num_rows
        else:
            rows = SMALL_ROWS + 1
        wide = None
        if rows > SMALL_ROWS or self._session is None or (self._absent is not None and self._absent.is_watching()):
            inputs = self._binder.read(events)
            wide = None if inputs is None else self._binder.wide(inputs)
            answers = self._answered(self._push, wide)
        else:
            answers = self._answered(self._push_small, self._session, events, brief=True)
            if self._many is not None and self._many.may_warn(answers):
                wide = self._binder.table(events)
        if wide is not None and self._many is not None:
            _warn_of_many(self._many, wide, answers, stacklevel=3)
        return answers

    def _warn_early(self, name: str, what: str) -> None:
        if self._many is not None:
            _warn_early(self._many, self._caller, name, what)

    def _push_small(self, session: Session, events: Any) -> dict[str, pa.Table]:
        newest = session.push_small(events)
        if newest is None:
            inputs = self._binder.read(events)
            return self._push(None if inputs is None else self._binder.wide(inputs))
        return self._advance(self._watermark_after(newest))

    def _push(self, wide: pa.Table | None) -> dict[str, pa.Table]:
        if wide is None:
            return self._nothing()
        session = self._opened()
        if not wide.num_rows:
            return self._nothing()
        watermark = self._pushed(session, wide)
        # A batch that lacks a column has been refused by now.
        if self._absent is not None and self._absent.is_watching():
            self._absent.look_at(wide)
        return self._advance(watermark)

    def _warn_of_columns(self) -> None:
        if self._absent is not None and (self._finished or not self._absent.is_watching()):
            _warn_of_absent(self._absent, stacklevel=5)

    def _contents(self) -> str:
        names = self._binder.names
        return ", ".join(names) if len(names) <= 5 else f"{len(names):,} queries"

    def _stopped(self) -> Mapping[str, Problem]:
        return {} if self._session is None else self._session.problems

    @exclusive
    def take_late(self) -> pa.Table | None:
        """The late events since the last call, if `keep_late` is set. None before the first push."""
        self._calls.complete()
        return None if self._session is None else self._session.take_late()

    @exclusive
    def snapshot(self) -> bytes:
        """The whole state as bytes. `Engine.restore` continues from there."""
        self._calls.complete()
        if self._session is None:
            raise InputError("snapshot() must come after the first push()")
        feeder = {"delay_ticks": self._delay_ticks, "newest": self._newest, "finished": self._finished}
        return self._calls.call(self._session.snapshot, feeder, self._calls.rows)

    @classmethod
    def restore(cls, blob: bytes) -> Engine:
        """The engine of a snapshot. Raises StateError if the bytes are damaged or not a snapshot.

        The checksum of a snapshot finds damage but does not prove who wrote it: restore only snapshots that you trust.
        """
        session = Session.restore(blob)
        if session.feeder is None:
            raise StateError("this snapshot is not of an Engine")
        engine = cls.__new__(cls)
        with decoding(SNAPSHOT):
            Feeder.__init__(engine, session.feeder["delay_ticks"])
            engine._delay_ticks = session.feeder["delay_ticks"]
            engine._newest = session.feeder["newest"]
            engine._finished = session.feeder["finished"]
        engine._session = session
        engine._absent = None
        engine._many = None
        engine._binder = InputBinder({}, session.program, keeps_all_columns=session.keep_late)
        engine._keep_late = session.keep_late
        if session.owed:
            engine._calls.owe(session.owed)
        engine._warned = len(session.problems)
        session.isolates = True
        session.threads = thread_count(None)
        return engine

    def _nothing(self) -> dict[str, pa.Table]:
        """An empty table for each query. It has no columns before the first events."""
        if self._session is None:
            return {name: pa.table({}) for name in self._binder.names}
        return self._session.nothing()

    def _opened(self) -> Session:
        if self._session is None:
            program = self._binder.program
            self._set_delay(program.catalog)
            session = Session(program, keep_late=self._keep_late, isolates=True)
            self._set_order(session)
            self._session = session
            self._session.threads = thread_count(None)
            self._absent = AbsentColumns(program)
            self._many = ManyMatches(program, self._queries)
        return self._session


@overload
def stream(batches: Iterable[Any], query: OneQuery, **options: Unpack[StreamOptions]) -> Iterator[pa.Table]: ...


@overload
def stream(
    batches: Iterable[Any], query: SeveralQueries, **options: Unpack[StreamOptions]
) -> Iterator[dict[str, pa.Table]]: ...


def stream(
    batches: Iterable[Any],
    query: Queries,
    *,
    params: Mapping[str, Any] | None = None,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    max_delay: int | str | timedelta = 0,
    time_unit: str | None = None,
    limits: Limits | Mapping[str, int] | None = None,
    model: LossModel | None = None,
    hints: Mapping[str, str] | None = None,
    schema: pa.Schema | Mapping[str, pa.Schema] | None = None,
) -> Iterator[Any]:
    """The matches of a stream: yielded after each batch that completes some, and at the end.

    Yields tables or, for several queries, dictionaries of tables. `batches` are inputs of `Engine.push`, and the
    options are those of `Engine`. A match is yielded once the watermark has passed its last event.

    >>> batches = ([{"type": kind, "ts": ts}] for ts, kind in enumerate("ABAB"))
    >>> for matches in stream(batches, "PATTERN SEQ(A a, B b) WITHIN 2 RETURN Pair(a.ts AS a, b.ts AS b)"):
    ...     print(matches.to_pylist())
    [{'start': 0, 'end': 1, 'a': 0, 'b': 1}]
    [{'start': 2, 'end': 3, 'a': 2, 'b': 3}]
    """
    if isinstance(batches, str | PurePath | Mapping) or hasattr(batches, "columns"):
        kind = batches.__class__.__name__
        raise InputError(f"batches must be an iterable of batches, got a {kind}; use ouzel.match, or pass [events]")
    engine = Engine(
        query, params=params, time=time, type=type, order=order, max_delay=max_delay, time_unit=time_unit,
        limits=limits, model=model, hints=hints, schema=schema,
    )  # fmt: skip
    one = is_one(query)

    def given(answers: dict[str, pa.Table]) -> Iterator[Any]:
        if any(answer.num_rows for answer in answers.values()):
            yield next(iter(answers.values())) if one else answers

    for batch in batches:
        yield from given(engine.push(batch))
    yield from given(engine.finish())
