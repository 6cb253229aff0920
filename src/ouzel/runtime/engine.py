"""The embedded engine: `match` for inputs that end, `Engine` for streams that go on. One process, no Spark."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ouzel.algebra.query import AlgebraQuery
from ouzel.algebra.streams import Stream
from ouzel.bind.literals import NANOSECONDS_OF_UNIT
from ouzel.bind.model import Catalog
from ouzel.errors import EmptyAnswerWarning, InputError, LimitWarning, QueryError, StateError
from ouzel.loss import LossModel
from ouzel.prepared import Query, as_queries
from ouzel.runtime.empty_answers import EmptyAnswers
from ouzel.runtime.feed import Feed, Inputs, Memory
from ouzel.runtime.layout import tick_of, ticks_of
from ouzel.runtime.limits import Limits, limits_of
from ouzel.runtime.session import EARLIEST, Session

Queries = Query | str | Iterable[Query | str] | Mapping[str, Query | str]


def match(
    events: Any,
    query: Queries,
    *,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
    limits: Limits | Mapping[str, int | str] | None = None,
    rules_off: Collection[str] = (),
    model: LossModel | None = None,
) -> Any:
    """All matches of a query in an input that ends, as a pyarrow Table; of several queries a dictionary of tables.

    `events` is a pyarrow, polars, pandas or DuckDB table, a list of dictionaries, the path of a Parquet, CSV or JSON
    Lines file, or a dictionary of such inputs by event type. `time` and `type` name its columns. `model` says what the
    stream loses, for queries with THRESHOLD.
    Passing one of `limits` is an error, or, with `"when_passed": "drop"` among them, drops the newest with a warning.

    >>> events = [
    ...     {"type": "Shelf", "ts": 1, "tag": 7}, {"type": "Shelf", "ts": 2, "tag": 8},
    ...     {"type": "Register", "ts": 3, "tag": 8}, {"type": "Exit", "ts": 4, "tag": 7},
    ...     {"type": "Exit", "ts": 5, "tag": 8},
    ... ]
    >>> theft = "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag] WITHIN 100 RETURN Theft(a.tag AS tag)"
    >>> match(events, theft).to_pylist()
    [{'start': 1, 'end': 4, 'tag': 7}]
    """
    feed = Feed(
        as_queries(query), time=time, type=type, order=order, time_unit=time_unit, limits=limits_of(limits),
        rules_off=rules_off, model=model,
    )  # fmt: skip
    wide = feed.table(events)
    session = Session(feed.program)
    session.push(wide, keep_whole=True)
    answers = session.finish()
    _warn_of_dropped(session)
    _warn_of_empty(session, wide, answers)
    if isinstance(query, Query | str | Stream | AlgebraQuery):
        (answer,) = answers.values()
        return answer
    return answers


def _warn_of_dropped(session: Session) -> None:
    """Where nobody can ask for the counts later, they are told now."""
    for name, dropped in session.dropped.items():
        for limit, count in dropped.items():
            value = getattr(session.program.limits, limit)
            warnings.warn(
                f"query '{name}' dropped {count:,} because of {limit}={value:,}; its answer is not complete",
                LimitWarning,
                stacklevel=3,
            )


def _warn_of_empty(session: Session, events: pa.Table, answers: dict[str, pa.Table]) -> None:
    """An empty answer without a reason is what new users despair of most."""
    empty = [name for name, answer in answers.items() if not answer.num_rows]
    if empty:
        watch = EmptyAnswers(session.program)
        watch.look_at(events)
        for reason in watch.reasons(empty):
            warnings.warn(reason, EmptyAnswerWarning, stacklevel=3)


class Engine:
    """Queries over a stream that goes on: push batches in, take matches out.

    Events may come out of order by up to `max_delay` (ticks, a timedelta, or text like "5 s"). What comes later than
    that is late: counted in `late`, never matched, and returned by `take_late()` if `keep_late` is set.

    >>> engine = Engine("PATTERN SEQ(A a, B b) WITHIN 10 RETURN Pair(a.ts AS a, b.ts AS b)")
    >>> engine.push([{"type": "A", "ts": 1}, {"type": "B", "ts": 3}])["query"].num_rows
    0
    >>> engine.push([{"type": "B", "ts": 4}])["query"].to_pylist()
    [{'start': 1, 'end': 3, 'a': 1, 'b': 3}]
    >>> engine.finish()["query"].to_pylist()
    [{'start': 1, 'end': 4, 'a': 1, 'b': 4}]
    """

    def __init__(
        self,
        queries: Queries,
        *,
        time: str = "ts",
        type: str | None = "type",
        order: Collection[str] = (),
        max_delay: int | str | timedelta = 0,
        time_unit: str | None = None,
        limits: Limits | Mapping[str, int | str] | None = None,
        keep_late: bool = False,
        rules_off: Collection[str] = (),
        model: LossModel | None = None,
    ) -> None:
        self._feed = Feed(
            as_queries(queries), time=time, type=type, order=order, time_unit=time_unit, limits=limits_of(limits),
            rules_off=rules_off, model=model, streaming=True,
        )  # fmt: skip
        duration_nanoseconds(max_delay, "max_delay")  # A mistake is told now, not with the first events.
        self._max_delay = max_delay
        self._keep_late = keep_late
        self._session: Session | None = None
        self._delay_ticks = 0
        self._newest = EARLIEST
        self._finished = False
        self._memory = Memory()
        # Late events of a session whose place another one took.
        self._late_before: pa.Table | None = None
        self._feed.check(streaming=True)

    @property
    def late(self) -> int:
        """How many events came too late so far."""
        return 0 if self._session is None else self._session.late

    @property
    def dropped(self) -> dict[str, dict[str, int]]:
        """How many events, runs and matches were dropped so far, by query and by the limit that they passed; always
        nothing unless `limits` has `"when_passed": "drop"`."""
        return {} if self._session is None else self._session.dropped

    @property
    def watermark(self) -> int | None:
        """The tick up to which everything has been seen; None before the first event."""
        if self._session is None or self._session.watermark == EARLIEST:
            return None
        return self._session.watermark

    @property
    def held_events(self) -> int:
        """How many events are held in memory, over all queries."""
        return 0 if self._session is None else self._session.held_events

    def push(self, events: Any) -> dict[str, pa.Table]:
        """Take a batch of events in, and give the matches it completes, by query name."""
        self._must_be_open()
        inputs = self._feed.read(events)
        if self._session is not None and self._feed.waits_for_types:
            self._learn(inputs)
        wide = self._feed.wide(inputs)
        session = self._opened()
        if not wide.num_rows:
            return {name: schema.empty_table() for name, schema in session.schemas.items()}
        newest = int(ticks_of(wide, self._feed.program.layout).max())
        session.push(wide)
        self._newest = max(self._newest, newest)
        return self._advance(session, max(EARLIEST, self._newest - self._delay_ticks - 1), inputs)

    def advance(self, to: int | datetime) -> dict[str, pa.Table]:
        """Declare that everything at or before a moment has been seen, and give what that completes."""
        self._must_be_open()
        if self._session is None:
            raise InputError("advance() came before the first push(): there is nothing to move on yet")
        return self._advance(self._session, tick_of(to, self._feed.program.layout))

    def finish(self) -> dict[str, pa.Table]:
        """The stream has ended: give everything that waits. Nothing can be pushed afterwards."""
        self._must_be_open()
        self._finished = True
        if self._session is None:
            return {}
        return self._session.finish()

    def take_late(self) -> pa.Table | None:
        """The late events since the last call, if `keep_late` is set; None before the first push."""
        if self._session is None:
            return None
        earlier, self._late_before = self._late_before, None
        late = self._session.take_late()
        return late if earlier is None else pa.concat_tables([earlier, late])

    def snapshot(self) -> bytes:
        """The whole state as bytes, from which `Engine.restore` goes on exactly here."""
        if self._session is None:
            raise InputError("there is nothing to snapshot before the first push()")
        feeder = {"delay_ticks": self._delay_ticks, "newest": self._newest, "finished": self._finished}
        return self._session.snapshot(feeder)

    @classmethod
    def restore(cls, blob: bytes) -> Engine:
        """The engine that a snapshot was taken of."""
        if not isinstance(blob, bytes | bytearray | memoryview):
            raise StateError(f"a snapshot is bytes, not a {type(blob).__name__}")
        session = Session.restore(blob)
        if session.feeder is None:
            raise StateError("this snapshot is not one of an Engine")
        engine = cls.__new__(cls)
        engine._session = session
        engine._feed = Feed({}, session.program)
        engine._delay_ticks = session.feeder["delay_ticks"]
        engine._max_delay = engine._delay_ticks
        engine._newest = session.feeder["newest"]
        engine._finished = session.feeder["finished"]
        engine._keep_late = session.keep_late
        engine._memory = Memory()
        engine._late_before = None
        return engine

    def _opened(self) -> Session:
        if self._session is None:
            program = self._feed.program
            self._delay_ticks = duration_ticks(self._max_delay, program.catalog, "max_delay")
            self._session = Session(program, keep_late=self._keep_late)
        return self._session

    def _advance(self, session: Session, watermark: int, inputs: Inputs | None = None) -> dict[str, pa.Table]:
        if self._feed.waits_for_types:
            self._memory.add(inputs, watermark)
        return session.advance(watermark)

    def _learn(self, inputs: Inputs) -> None:
        """A column that had nothing but nulls may get its type: then a new session goes through the same events."""
        schemas = self._feed.learnt(inputs)
        if schemas is None:
            return
        self._memory.must_be_whole()
        self._feed.settle(schemas, inputs)
        session = Session(self._feed.program, keep_late=self._keep_late)
        # What it finds has been given out before; of what came late only the newest may not have been taken yet.
        self._memory.again(lambda earlier: session.push(self._feed.wide(earlier)), session.advance)
        untaken, late = self.take_late(), session.take_late()
        self._late_before = None if untaken is None else late.slice(late.num_rows - untaken.num_rows)
        self._session = session
        if not self._feed.waits_for_types:
            self._memory.forget()

    def _must_be_open(self) -> None:
        if self._finished:
            raise InputError("this engine is finished; make a new one for another stream")


def duration_ticks(given: int | str | timedelta, catalog: Catalog, what: str) -> int:
    """A delay as ticks: a number is ticks already; a timedelta or text like "5 s" goes by the time column's unit."""
    nanoseconds = duration_nanoseconds(given, what)
    if nanoseconds is None:
        assert isinstance(given, int)
        ticks = given
    else:
        if catalog.time.tick_ns is None:
            raise InputError(
                f"{what}={given!r} has a unit, but the time column holds bare numbers; "
                "give time_unit= to say what they count, or a number of ticks"
            )
        ticks = nanoseconds // catalog.time.tick_ns
    if ticks < 0:
        raise InputError(f"{what}={given!r} is negative")
    return ticks


def duration_nanoseconds(given: int | str | timedelta, what: str) -> int | None:
    """A timedelta, or text like "5 s", in nanoseconds; None for a number, which is one of ticks."""
    from ouzel.lang import parse_expression
    from ouzel.lang.syntax import Duration

    if isinstance(given, bool) or not isinstance(given, int | str | timedelta):
        raise InputError(f"{what} must be a number of ticks, a timedelta or text like '5 s', not {given!r}")
    if isinstance(given, int):
        return None
    if isinstance(given, timedelta):
        return (given // timedelta(microseconds=1)) * 1000
    try:
        parsed = parse_expression(given)
    except QueryError as error:
        why = f": {error.message}" if "unit of time" in error.message else ""
        raise InputError(f"{what}='{given}' is not a duration{why}; write it like '5 s' or '2 hours'") from None
    if not isinstance(parsed, Duration):
        raise InputError(f"{what}='{given}' is not a duration; write it like '5 s' or '2 hours'")
    return int(parsed.amount * NANOSECONDS_OF_UNIT[parsed.unit])
