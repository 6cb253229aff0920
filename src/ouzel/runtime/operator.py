"""Operators: the interface that a session drives, and the base classes of the engines' operators.

Operators are imported when the first plan needs them, because their kernels are most of what a new process loads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ouzel.errors import OuzelError
from ouzel.kernels.events import Instances, new_instances
from ouzel.kernels.order import gather
from ouzel.kernels.staging import TIED, Measured, Staged, write_instances
from ouzel.plan.choose import by_engine, engine_of
from ouzel.plan.lowering import Domain, Lanes
from ouzel.plan.model import KeyStrategy, Plan, Statistics
from ouzel.runtime.buffer import Block, Events, OpenKey, StreamBuffer, expiry_bound, part
from ouzel.runtime.inbox import SmallBatch
from ouzel.runtime.layout import Layout, output_columns
from ouzel.runtime.limits import Limits
from ouzel.runtime.output import Matches, Places
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.staging import KeyStager, SmallStager, Stager
from ouzel.runtime.values import empty_table


class Answer(NamedTuple):
    """The rows of a query, with their starts and ends in ticks. If no query reads these rows, starts and ends may be
    missing.
    """

    table: pa.Table
    starts: np.ndarray
    ends: np.ndarray


NO_TICKS = np.empty(0, np.int64)
NOT_MEASURED = Measured(
    np.empty((0, 7), np.int32), np.empty((0, 0), np.int64), np.empty((0, 0), np.float64), np.empty(0, np.float64)
)


class Found(NamedTuple):
    """The result of one part of a divided stream. For each row of the result: its tick, and the input row that orders
    rows with equal ticks from different parts. Also what the rows are made from.
    """

    ticks: np.ndarray
    ties: np.ndarray
    content: Any


class Divisible(Protocol):
    """An operator that can read the events of only some keys. The rows of all such parts are merged."""

    schema: pa.Schema

    @property
    def stager(self) -> Stager: ...

    def stage(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool = False) -> None: ...

    def search(self) -> Found:
        """The result of all staged events. The operator cannot be used afterwards."""

    def rows_of(self, slices: Sequence[tuple[Any, int, int]], order: np.ndarray | None) -> pa.Table:
        """Rows from several parts, in the given order. A slice is (what a part found, first row, last row + 1)."""

    def tie_ranks(self, table: pa.Table, ticks: np.ndarray, ties: np.ndarray) -> np.ndarray:
        """Ranks of rows with the same tick."""


class Operator(ABC):
    """The interface for running one or several queries over one stream, whose events are read once."""

    @property
    @abstractmethod
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The columns of each query's answer."""

    @property
    @abstractmethod
    def next_deadline(self) -> int | None:
        """The earliest tick at which rows are due without a further event; None if there is none."""

    @property
    @abstractmethod
    def held_events(self) -> int:
        """The number of pending and live events."""

    @property
    def timer(self) -> int | None:
        """The tick at which the kernel returns rows even if no event comes; None if there is none."""
        return None

    @property
    def room(self) -> int:
        """At least this many events can be read before a limit must be checked, if they return no rows."""
        return 0

    @property
    def held_room(self) -> int:
        """At least this many events can be held before a limit must be checked."""
        return self.room

    @property
    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """The counters of the kernel."""

    def open_by_key(self, watermark: int) -> list[OpenKey] | None:
        """Each key that has events which may still be in a match; None if the operator does not divide events by
        key.
        """
        return None

    @abstractmethod
    def stage(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool = False) -> None:
        """Add rows, in any order. With `zero_copy`, keep the table; otherwise copy the rows that are needed."""

    def stage_small(self, batch: SmallBatch) -> None:
        """Add rows of small pushes. They are not available after the call."""
        self.stage(batch.table, batch.ticks)

    @abstractmethod
    def advance(self, until: int) -> Mapping[str, Answer | OuzelError]:
        """Read the events up to `until`: no earlier event can come any more. Returns, for each query, its rows or the
        error that stops it.
        """

    @abstractmethod
    def detach(self, query: str) -> None:
        """Remove one of several queries."""

    @abstractmethod
    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; returns what `load` needs."""

    @abstractmethod
    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""


class QueryOperator(Operator):
    """The base class for operators of one query."""

    name: str
    schema: pa.Schema

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The columns of the answer."""
        return {self.name: self.schema}

    @cached_property
    def nothing(self) -> Answer:
        """An answer without rows."""
        return Answer(empty_table(self.schema), NO_TICKS, NO_TICKS)

    def advance(self, until: int) -> Mapping[str, Answer | OuzelError]:
        """Read the events up to `until`: no earlier event can come any more. Returns the rows or the error that stops
        the query.
        """
        return {self.name: self.answer(until)}

    @abstractmethod
    def answer(self, until: int) -> Answer:
        """The rows that `advance` returns."""

    def detach(self, query: str) -> None:
        """Raise an error, because there is no other query to continue with."""
        raise AssertionError("the last query of an operator is removed with it")


class MatchOperator(QueryOperator):
    """An operator that can also return its matches as rows of tables."""

    @abstractmethod
    def matches(self, until: int) -> Sequence[Places | Matches]:
        """The matches that events up to tick `until` complete. Called instead of `answer`."""


class StreamOperator(QueryOperator, Generic[Events]):
    """The base class for one query over one stream, with a stager and a buffer. Subclasses add a kernel.

    `texts` are the rows of `int_lanes` that hold codes or ranks of texts, each with its component; None if it is for
    all components.
    """

    _stager: KeyStager

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        limits: Limits,
        stager: KeyStager,
        buffer: StreamBuffer[Events],
        texts: Mapping[tuple[int, int | None], Domain],
    ) -> None:
        self._plan = plan
        self._query = plan.query
        self.name = plan.query.name
        self._layout = layout
        self._limits = limits
        self._stager = stager
        self._buffer = buffer
        self._kept: list[int] | None = None  # the columns of small pushes whose values are kept
        self._texts = [lane for lane, domain in texts.items() if domain in (Domain.CODE, Domain.RANK)]
        self._ranked = [lane for lane, domain in texts.items() if domain is Domain.RANK]

    # ── What a kernel does ─────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _read(self, ready: Block[Events] | None, until: int) -> Answer:
        """Make the ready events live, and return the rows that they complete or that time alone completes."""

    @abstractmethod
    def _rebase(self, dead: int, used: int) -> None:
        """Prepare for the eviction of the first `dead` events. `used` slots are in use."""

    @abstractmethod
    def _rekey(self, renamed: np.ndarray) -> None:
        """Replace keys by `renamed[key]`."""

    @property
    def stager(self) -> KeyStager:
        """The stager, which turns rows into events."""
        return self._stager

    # ── What a session asks ────────────────────────────────────────────────────────────────────────

    def stage(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool = False) -> None:
        """Add rows, in any order. With `zero_copy`, keep the table; otherwise copy the rows that are needed."""
        places, block = self._stager.stage(table, ticks)
        if block.count:
            self._buffer.add(block, places, table, ticks, zero_copy=zero_copy)
            self._check_held()

    def stage_small(self, batch: SmallBatch) -> None:
        """Add rows of small pushes, by writing their events directly into the arrays of live events."""
        buffer, small = self._buffer, self._stager.small(batch.source)
        if small is None or not buffer.takes_tail:
            return super().stage_small(batch)
        count = small.select(batch)
        if not count:
            return None
        until, in_order = batch.tick(small.chosen[count - 1]), small.order <= self._order_max
        is_known = self._sorts_small or (in_order and until <= batch.until)
        if not is_known or small.has_null_keys(batch):
            return super().stage_small(batch)
        codes = small.codes(batch, count, self._stager.keys)
        base = self._keep_rows(batch, small.chosen, count) if buffer.keeps_rows else 0
        buffer.reserve(count * small.roles_max)
        last = self._write_small(batch, small, codes, count, base)
        buffer.add_tail(last - buffer.count, until, in_order=in_order)
        self._check_held()
        return None

    # The order of small pushes that is the order of the stream, and whether those in another one may be sorted by time.
    _order_max: int = TIED
    _sorts_small = True

    def _write_small(self, batch: SmallBatch, small: SmallStager, codes: np.ndarray, count: int, base: int) -> int:
        """Write the first `count` chosen rows after the live events, with keys `codes` and row numbers from `base` on.
        Returns the slot after them.
        """
        raise AssertionError("the stager of this operator stages no small pushes")

    def _staged(self, end: np.ndarray) -> Staged:
        """The arrays into which events of small pushes are written."""
        events: Any = self._buffer.events
        return Staged(
            end, events.key, self._buffer.rows, events.int_lanes, events.float_lanes, events.lane_flags, events.flagged
        )

    def _keep_rows(self, batch: SmallBatch, chosen: np.ndarray, count: int) -> int:
        """Store the first `count` chosen rows of a small push. Returns the number of the first row."""
        source = batch.source
        if self._kept is None:
            self._kept = [source.schema.get_field_index(name) for name in self._buffer.columns]
        return self._buffer.store.append_read(source, self._kept, chosen, count, source.moments)

    def _check_held(self) -> None:
        if self._buffer.entries > self._limits.max_buffered_events:
            self._limits.check_held([self._query.name], self.held_events)

    def answer(self, until: int) -> Answer:
        """The rows that the events up to `until` complete."""
        answer = self._read(self._buffer.take_ready(until), until)
        self._evict(until)
        return answer

    def _evict(self, until: int) -> None:
        """Evict events that can be in no future match, with their rows and unused codes."""
        window = self._plan.window_ticks
        if window is None:
            return
        bound = expiry_bound(until, window)
        self._buffer.evict_front(self._buffer.expired(bound), self._rebase)
        self._buffer.store.evict(bound)
        self._compact_codes()

    def _compact_codes(self) -> None:
        renamed = self._buffer.compact(self._stager.keys, "key")
        if renamed is not None:
            self._rekey(renamed)
        self._compact_texts()

    def _compact_texts(self) -> bool:
        """Drop texts that no event has. Returns whether codes of texts have changed."""
        texts = self._stager.texts
        if not self._texts or not texts.is_sparse(len(self._texts) * self._buffer.entries):
            return False
        lanes = [one for events in self._buffer.blocks() for one in _lanes_of(events, self._texts)]
        codes = [lane[where] for lane, where in lanes]
        texts.compact_lanes(codes)
        for (lane, where), renamed in zip(lanes, codes, strict=True):
            lane[where] = renamed
        return True

    def _kernel_events(self) -> Events:
        """The live events as the kernel reads them. Texts that are compared by order have their current rank."""
        buffer = self._buffer
        if not self._ranked:
            return buffer.events
        ranks = self._stager.texts.ranks()
        events: Events = buffer.events._replace(int_lanes=buffer.events.int_lanes.copy())
        for lane, where in _lanes_of(part(events, buffer.count - buffer.live, buffer.count), self._ranked):
            codes = lane[where]
            lane[where] = np.where(codes >= 0, ranks[np.maximum(codes, 0)], 0) if len(ranks) else 0
        return events

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which rows are due without a further event; None if there is none."""
        ticks = (self._buffer.deadline, self.timer)
        return min((tick for tick in ticks if tick is not None), default=None)

    @property
    def held_events(self) -> int:
        """The number of pending and live events."""
        return self._buffer.held

    @property
    def room(self) -> int:
        """At least this many events can be read before a limit must be checked, if they return no rows."""
        return self._limits.max_buffered_events - self._buffer.entries

    @property
    def held_room(self) -> int:
        """At least this many events can be held before a limit must be checked."""
        return self._limits.max_buffered_events - self._buffer.entries

    def open_by_key(self, watermark: int) -> list[OpenKey]:
        """Each key that has events which may still be in a match: its values, the number of events, and the end of the
        oldest.
        """
        return self._buffer.open_by_key(expiry_bound(watermark, self._plan.window_ticks), self._stager.keys)

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; returns what `load` needs."""
        return {"buffer": self._buffer.dump(writer), "coders": self._stager.dump(writer)}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        self._buffer.load(reader, head["buffer"])
        self._stager.load(reader, head["coders"])


def _lanes_of(events: Any, lanes: list[tuple[int, int | None]]) -> list[tuple[np.ndarray, Any]]:
    """Rows of `int_lanes`, each with the indexes of the events that have the lane."""
    return [
        (events.int_lanes[row], slice(None) if position is None else np.flatnonzero(events.component == position))
        for row, position in lanes
    ]


def lane_domains(lanes: Lanes) -> dict[tuple[int, int | None], Domain]:
    """The domain of values of each row of `int_lanes`, for each component that has the lane."""
    return {(row, place): spec.domain for place, specs in lanes.ints.items() for row, spec in enumerate(specs)}


class InstanceOperator(StreamOperator[Instances]):
    """The base class for operators whose events are instances: one for each component that an event may fill."""

    _stager: Stager

    def __init__(self, plan: Plan, layout: Layout, limits: Limits, lanes: Lanes) -> None:
        kept = output_columns(plan, layout)
        buffer = StreamBuffer(
            lambda capacity: new_instances(
                capacity,
                int_lanes=lanes.int_count,
                float_lanes=lanes.float_count,
                points=layout.start is None,
                second_key=plan.key_strategy is KeyStrategy.MULTI_PAIS and len(plan.key) > 1,
            ),
            columns=[name for name in layout.schema.names if name in kept],
            several_per_event=True,
        )
        super().__init__(plan, layout, limits, Stager(plan, lanes, layout), buffer, lane_domains(lanes))
        self._positions = np.arange(len(plan.query.components), dtype=np.uint8)
        # The live rows, numbered once for all matches of one call.
        self._numbered: tuple[pa.Table, np.ndarray, np.ndarray] | None = None

    def _write_small(self, batch: SmallBatch, small: SmallStager, codes: np.ndarray, count: int, base: int) -> int:
        last: int = write_instances(
            batch.source.rows, small.chosen, small.roles, codes, count, self._positions, self._stager.everywhere,
            small.lanes, base, self._staged(self._buffer.events.end), self._buffer.events.component, NOT_MEASURED,
            self._buffer.count,
        )  # fmt: skip
        return last

    def answer(self, until: int) -> Answer:
        """The rows that the events up to `until` complete."""
        self._numbered = None
        return super().answer(until)

    def _fetch(self, slots: list[np.ndarray]) -> tuple[pa.Table, np.ndarray, list[np.ndarray]]:
        """(table, ticks, places): a table with the rows of matches, the event times of its rows, and for each component
        the rows of its events.
        """
        buffer = self._buffer
        if buffer.store.is_whole and len(slots) * len(slots[0]) > buffer.count:
            # All live rows are in one table: number them once instead of once for each match.
            if self._numbered is None:
                self._numbered = buffer.store.fetch(buffer.rows[: buffer.count])
            table, ticks, local = self._numbered
            return table, ticks, [gather(local, one) for one in slots]
        table, ticks, places = buffer.store.fetch(buffer.rows[np.stack(slots)])
        return table, ticks, list(places)


def operators_for(
    plans: Mapping[str, Plan],
    layouts: Mapping[str, Layout],
    limits: Limits,
    statistics: Statistics,
    rules_off: Collection[str],
    *,
    partial: bool = False,
    together: Sequence[Sequence[str]] | None = None,
) -> list[Operator]:
    """The operators of some queries over one stream, in the order of the queries, before their first event.

    With `partial`, the operators see only a part of the stream, and aggregates emit partial results for the caller to
    merge. `together` gives the queries of each operator. Without it, the engines decide which queries share one.
    """
    made: list[Operator] = []
    for engine, own in by_engine(plans):
        known = None
        if together is not None:
            known = [names for names in together if names[0] in own]
            own = {name: own[name] for names in known for name in names}
        made += engine.operators(own, layouts, limits, statistics, rules_off, partial=partial, together=known)
    place = {name: number for number, name in enumerate(plans)}
    return sorted(made, key=lambda operator: min(place[name] for name in operator.schemas))


def operator_for(plan: Plan, layout: Layout, limits: Limits) -> QueryOperator:
    """The operator of one query, before its first event."""
    return engine_of(plan).operator(plan, layout, limits)
