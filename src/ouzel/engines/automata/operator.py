"""Runs algebra expressions. Each stream of an expression has one automaton, which may read the output of another.

The automaton of a stream holds pending events, the lanes of events that live instances refer to, and the rows of these
events.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.algebra.model import (
    BoundAlgebra,
    BoundStream,
    Branch,
    Operator,
    Source,
    folds_derived,
    may_repeat,
    reads_start,
    sources_of,
)
from ouzel.bind.model import Attribute, EventField, Kind, Type
from ouzel.engines.automata.build import Built, build
from ouzel.engines.automata.constants import Constants, ParameterFrame, PatternWriter
from ouzel.engines.automata.machine import (
    Machine,
    chosen_events,
    dump_machine,
    joined_events,
    load_machine,
    longest_life,
)
from ouzel.engines.automata.output import ResultFrame, alike, output_type_of, without_repetitions
from ouzel.engines.automata.plan import EventLane, EventLanes, Form, Planner
from ouzel.engines.automata.staging import Batch, LaneMaker, RowFrame, fingerprints, small_stager, start_ticks
from ouzel.engines.automata.tables import (
    Counter,
    Events,
    Link,
    Results,
    Time,
    Wait,
    new_events,
)
from ouzel.errors import QueryError
from ouzel.kernels.arrays import INT64_MAX, INT64_MIN
from ouzel.kernels.order import first_disorder, stable_order
from ouzel.kernels.staging import IN_ORDER, write_source_events
from ouzel.runtime.buffer import RowStore
from ouzel.runtime.codes import Coder, is_sparse
from ouzel.runtime.frames import take, ticks_to_time
from ouzel.runtime.inbox import GrowingRows, SmallBatch
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import Answer, QueryOperator
from ouzel.runtime.small_answers import SmallAnswer
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.staging import SmallStager
from ouzel.runtime.values import empty_table, one_array

_TEXTS = (Kind.STRING, Kind.BINARY)
# Fingerprints of so many rows are made at once.
_PRINTS = 4096


class _Pending(NamedTuple):
    events: Events
    rows: np.ndarray

    def chosen(self, places: np.ndarray) -> _Pending:
        """The events with some indexes, in the order of these."""
        return _Pending(chosen_events(self.events, places), self.rows[places])


class Columns(Protocol):
    """The columns of the sources of an expression."""

    def column_of(self, source: Source, name: str) -> str:
        """The column of a source's table that holds an attribute."""

    def column_type(self, source: Source, path: tuple[str, ...]) -> pa.DataType:
        """The Arrow type of an attribute of a source."""


def _built(stream: BoundStream, planner: Planner, texts: Coder, types: Coder) -> Built:
    """The merged automata of all branches of a stream."""
    planned = [planner.branch(branch) for branch in stream.branches]
    writer = PatternWriter(planner.lanes, Constants(ParameterFrame(pa.table({}), 1), texts, types))
    return build([writer.pattern(one, []) for one in planned], planner.programs)


class StreamAutomaton:
    """The automaton of one stream of an expression, over any number of sources.

    It does not use StreamBuffer, for three reasons. The kernel reads all times of an event together, so `times` has one
    row for each event, whereas in the buffer events are on the last axis. Each source has its own row store. And an
    event is evicted when no instance refers to it any more, not when it leaves a window.
    """

    def __init__(self, name: str, stream: BoundStream, time: Type, limits: Limits, columns: Columns) -> None:
        self._name = name
        self.stream = stream
        self._columns = columns
        self._limits = limits
        planner = Planner(time, indexed=False)
        self.texts = Coder()
        self._types = Coder()
        built = _built(stream, planner, self.texts, self._types)
        automata = built.automata
        self._content = -1
        if folds_derived(stream):
            self._content = planner.lanes.number(EventLane(None, Form.CONTENT, ()))
            # An instance that changes in place in a loop is not compared with others.
            automata.waits[:, Wait.STEADY] = 0
            automata = automata._replace(content_lane=self._content)
        # The texts in conditions keep their codes.
        self._constant_texts = self.texts.count
        # Branches that differ only in their output columns are one automaton.
        self._branches_of: dict[int, list[int]] = {}
        for number, nodes in enumerate(built.node_of):
            self._branches_of.setdefault(int(nodes[-1, 0]), []).append(number)
        self._lanes = planner.lanes
        self._maker = LaneMaker(planner.lanes, self.texts, self._types)
        self.sources = list(dict.fromkeys(s for b in stream.branches for s in sources_of(b)))
        self._payloads = [RowStore() for _ in self.sources]
        self._pending: list[_Pending] = []
        self._machine = Machine(
            automata,
            planner.lanes,
            slots=max(len(b.steps) for b in stream.branches) + 1,
            registers=max(len(b.register_types) for b in stream.branches),
            limits=limits,
        )
        self.life = longest_life(automata)
        # How the small answers of each branch are made.
        self._small: dict[int, list[tuple[int, list[str], SmallAnswer]] | None] = {}

    def stage(self, source: Source, batch: Batch, *, zero_copy: bool) -> None:
        """Add events of one source, in any order."""
        number = self.sources.index(source)
        frame = RowFrame(batch, lambda name: self._columns.column_of(source, name))
        events = self._maker.events(batch, source, frame)
        # An event that no operand accepts changes nothing.
        roles = [k for k, lane in enumerate(self._lanes.ints) if lane.form is Form.TRUTH and lane.source == source]
        wanted = np.flatnonzero(events.ints[roles].any(axis=0))
        if not len(wanted):
            return
        table = batch.table
        if not zero_copy or 2 * len(wanted) < len(batch.end):
            places = wanted.astype(np.int32)
            table = pa.table([take(one_array(c), places) for c in table.columns], schema=table.schema)
            rows = np.arange(len(wanted))
            ticks = batch.end[wanted]
        else:
            rows, ticks = wanted, batch.end
        base = self._payloads[number].append(table, ticks)
        if len(wanted) < len(batch.end):
            events = chosen_events(events, wanted)
        if self._content >= 0:
            first = rows if source.base is not None else rows[alike(table, rows, events, reads_start(self.stream))]
            events.ints[self._content] = (base + first) * len(self.sources) + number
        self._pending.append(_Pending(events, rows + base))

    def stage_small(
        self, batch: SmallBatch, small: SmallStager, count: int, bits: np.ndarray, lanes: np.ndarray, prints: np.ndarray
    ) -> None:
        """Add the rows of a small push that match the sources. `bits` are their roles: which source each belongs to."""
        rows = batch.source.rows
        total = min(len(bits), small.roles_max) * count
        events = new_events(total, len(self._lanes.ints), len(self._lanes.floats))
        numbers = np.empty(total, np.int64)
        picked = np.empty((len(bits), count), np.int32)
        counts = np.zeros(len(bits), np.int64)
        bases = np.array([payload.next for payload in self._payloads], np.int64)
        written = write_source_events(
            rows, small.chosen, small.roles, count, bits, lanes, bases, batch.first, prints, *events, numbers, picked,
            counts,
        )  # fmt: skip
        for payload, own, used in zip(self._payloads, picked, counts.tolist(), strict=True):
            if used:
                payload.append_read(batch.source, batch.source.all_columns, own, used, batch.source.moments)
        if written < total:
            events, numbers = chosen_events(events, slice(written)), numbers[:written]
        if written:
            self._pending.append(_Pending(events, numbers))

    @property
    def takes_small(self) -> bool:
        """Whether compiled code alone can stage events."""
        return self._content < 0

    @property
    def lanes(self) -> EventLanes:
        """The lanes of events."""
        return self._lanes

    def advance(self, until: int) -> Batch:
        """Read the ready events, given that no event at or before `until` can come any more."""
        ready = self._take_ready(until)
        if ready is None:
            return self._empty()
        results = self._machine.feed(ready.events, ready.rows, self._maker.rank, self._name)
        answer = self._collect(results)
        if self.life < INT64_MAX:
            self._machine.evict(until, self.life)
            for payload in self._payloads:
                payload.evict(max(INT64_MIN, until + 1 - self.life))
            self._compact_texts()
        return answer

    def _compact_texts(self) -> None:
        """Drop the codes of texts that nothing here has any more, so that memory does not grow with all texts ever
        seen.
        """
        lanes = [number for number, lane in enumerate(self._lanes.ints) if lane.form is Form.CODE]
        if not is_sparse(self.texts.count - self._constant_texts, len(lanes) * self.held_events):
            return
        texts = {n for b in self.stream.branches for n, t in enumerate(b.register_types) if t.kind in _TEXTS}
        others = {n for b in self.stream.branches for n, t in enumerate(b.register_types) if t.kind not in _TEXTS}
        if texts & others:
            return  # A register with texts in one branch and numbers in another is ambiguous.
        state = self._machine.state
        instances = state.links[:, Link.NODE] >= 0
        held = [
            events.ints[number]
            for events in (self._machine.events, *(p.events for p in self._pending))
            for number in lanes
        ]
        carried = {number: state.registers.ints[instances, number] for number in texts}
        used = np.unique(np.concatenate([np.arange(self._constant_texts), *held, *carried.values()]))
        renamed = self.texts.compact(used[(used >= 0) & (used < self.texts.count)].astype(np.int32)).astype(np.int64)
        for codes in held:
            codes[:] = _renamed(codes, renamed)
        for number, codes in carried.items():
            state.registers.ints[instances, number] = _renamed(codes, renamed)
        # Instances are found by the values that they wait for.
        self._machine.relink()

    def _take_ready(self, until: int) -> _Pending | None:
        if not self._pending:
            return None
        pending = self._pending[0]
        if len(self._pending) > 1:
            events, rows = zip(*self._pending, strict=True)
            pending = _Pending(joined_events(events), np.concatenate(rows))
        self._pending = []
        ends = pending.events.end.copy()
        if first_disorder(ends) < 0 and ends[-1] <= until:
            return pending
        ready = ends <= until
        if not ready.all():
            self._pending = [pending.chosen(np.flatnonzero(~ready))]
            pending = pending.chosen(np.flatnonzero(ready))
        return pending.chosen(stable_order(pending.events.end)) if len(pending.rows) else None

    # ── Giving results out ─────────────────────────────────────────────────────────────────────────

    def _empty(self) -> Batch:
        empty = np.empty(0, np.int64)
        return Batch(empty_table(self.table_type), empty, empty, empty, np.empty((0, 2), np.int64))

    @cached_property
    def table_type(self) -> pa.Schema:
        first, column_type = self.stream.branches[0], self._columns.column_type
        return pa.schema([pa.field(n, output_type_of(first, n, column_type)) for n in self.stream.columns])

    def _collect(self, results: Results) -> Batch:
        count = int(results.count[0])
        if not count:
            return self._empty()
        parts: list[tuple[np.ndarray, pa.Table]] = []
        nodes = results.node[:count]
        for node, branches in self._branches_of.items():
            places = np.flatnonzero(nodes == node)
            for branch in branches if len(places) else ():
                parts.append((places, self._values(self.stream.branches[branch], results, places)))
        places = parts[0][0] if len(parts) == 1 else np.concatenate([p for p, _ in parts])
        table = parts[0][1] if len(parts) == 1 else pa.concat_tables([t for _, t in parts]).combine_chunks()
        batch = Batch(
            table,
            start=results.times[places, Time.START],
            end=results.times[places, Time.END],
            first_end=results.times[places, Time.FIRST_END],
            fingerprint=results.times[places, Time.PRINT :],
        )
        return without_repetitions(batch) if may_repeat(self.stream) else batch

    def _values(self, branch: Branch, results: Results, places: np.ndarray) -> pa.Table:
        made = self._small_values(branch, results, places)
        if made is not None:
            return made
        frame = ResultFrame(self, branch, results, places)
        columns = []
        for name in self.stream.columns:
            columns.append(frame.shown(branch.columns[name], self.table_type.field(name).type))
        return pa.table(columns, schema=self.table_type)

    def _small_values(self, branch: Branch, results: Results, places: np.ndarray) -> pa.Table | None:
        """The results as columns, if their events are rows of small pushes; None if a column is computed."""
        slots = np.ascontiguousarray(results.slots[places].T)
        taken: dict[str, pa.Array] = {}
        for source, names, answer in self._small_answer(branch) or ():
            rows = self._payloads[source].open_rows
            made = None if rows is None else answer.batch(*rows, self._machine.rows, slots, len(places))
            if made is None:
                return None
            taken |= zip(names, made.columns, strict=True)
        if not taken:
            return None
        return pa.Table.from_arrays([taken[name] for name in self.stream.columns], schema=self.table_type)

    def _small_answer(self, branch: Branch) -> list[tuple[int, list[str], SmallAnswer]] | None:
        """How the columns of small answers are read, by source: (source, column names, answer). None if a column is
        computed.
        """
        known = self._small.get(id(branch))
        if id(branch) not in self._small:
            columns: dict[int, dict[str, tuple[int, str]]] = {}
            known = []
            for name in self.stream.columns:
                value = branch.columns[name]
                if not isinstance(value, Attribute) or value.component < 0 or len(value.path) > 1:
                    known = None
                    break
                source = sources_of(branch)[value.component]
                if self._columns.column_type(source, value.path) != self.table_type.field(name).type:
                    known = None
                    break
                own = columns.setdefault(self.sources.index(source), {})
                own[name] = value.component, self.column_of(source, value.path[0])
            if known is not None:
                for number, own in columns.items():
                    schema = pa.schema([self.table_type.field(name) for name in own])
                    known.append((number, list(own), SmallAnswer(list(own.values()), schema, None)))
            self._small[id(branch)] = known
        return known

    def fetch(self, source: Source, events: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        """A table with the rows of some events, and for each event its row in the table."""
        payload = self._payloads[self.sources.index(source)]
        table, _, rows = payload.fetch(self._machine.rows[events])
        return table, rows

    def column_of(self, source: Source, name: str) -> str:
        """The column that holds an attribute in the table of `fetch`."""
        return self._columns.column_of(source, name)

    def times(self, events: np.ndarray, field: EventField) -> np.ndarray:
        """The start or end times of events."""
        found: np.ndarray = self._machine.events.times[events, Time.START if field is EventField.START else Time.END]
        return found

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def next_deadline(self) -> int | None:
        return min((int(p.events.end.min()) for p in self._pending if len(p.rows)), default=None)

    @property
    def held_events(self) -> int:
        return self._machine.count + sum(len(p.rows) for p in self._pending)

    @property
    def free(self) -> int:
        """The number of instances that can be added before their limit must be checked."""
        return int(self._machine.state.counters[Counter.FREE])

    @property
    def statistics(self) -> dict[str, int]:
        return {counter.name.lower(): int(self._machine.state.counters[counter]) for counter in Counter}

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        return {
            "payloads": [payload.dump(writer) for payload in self._payloads],
            "machine": dump_machine(self._machine, writer),
            "pending": [[[writer.add_array(a) for a in p.events], writer.add_array(p.rows)] for p in self._pending],
            "texts": self.texts.dump(writer),
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        self._payloads = [RowStore.load(reader, one) for one in head["payloads"]]
        load_machine(self._machine, reader, head["machine"])
        self._pending = [
            _Pending(Events(*reader.arrays(events)), reader.array(rows)) for events, rows in head["pending"]
        ]
        self.texts.load(reader, head["texts"])


def _renamed(codes: np.ndarray, renamed: np.ndarray) -> np.ndarray:
    """New codes in place of old ones. Nulls and values that are not codes stay the same."""
    known = (codes >= 0) & (codes < len(renamed))
    return np.where(known, renamed[np.where(known, codes, 0)], codes)


class AlgebraOperator(QueryOperator):
    """The state of one expression. `stage` adds events; `advance` moves time and returns the results."""

    def __init__(self, query: BoundAlgebra, layout: Layout, limits: Limits) -> None:
        self._query = query
        self.name = query.name
        self._layout = layout
        self._limits = limits
        self._next_row = 0
        # The fingerprints of the next rows, from one of them on.
        self._prints = np.empty((0, 2), np.int64)
        self._prints_from = 0
        self._small: tuple[SmallStager, list[np.ndarray], list[np.ndarray]] | None = None
        self._is_small_known = False
        self._automata: list[StreamAutomaton] = []
        for stream in query.streams:
            self._automata.append(StreamAutomaton(query.name, stream, query.catalog.time.type, limits, self))
        time = layout.schema.field(layout.time).type
        answer = self._automata[-1].table_type
        for name in answer.names:
            if name in ("start", "end"):
                raise QueryError(
                    f"the attribute '{name}' has the name of a column that every result has",
                    hint=f"rename({{'{name}': …}}) or project it away",
                )
        self.schema = pa.schema([pa.field("start", time), pa.field("end", time), *answer])

    def column_of(self, source: Source, name: str) -> str:
        """The column of a source's table that holds an attribute."""
        return name if source.base is None else self._layout.column(source.base.type, name)

    def column_type(self, source: Source, path: tuple[str, ...]) -> pa.DataType:
        """The Arrow type of an attribute of a source."""
        if source.base is not None:
            found = self._layout.schema.field(self._layout.column(source.base.type, path[0])).type
        else:
            assert source.derived is not None
            found = self._automata[source.derived].table_type.field(path[0]).type
        for name in path[1:]:
            found = found.field(name).type
        return found

    def stage(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool = False) -> None:
        """Add rows, in any order."""
        numbers = np.arange(self._next_row, self._next_row + len(ticks))
        self._next_row += len(ticks)
        prints = fingerprints(numbers)
        chosen: dict[Source, Batch] = {}
        for automaton in self._automata:
            for source in automaton.sources:
                if source.base is not None:
                    if source not in chosen:
                        chosen[source] = self._batch(source, table, ticks, prints)
                    automaton.stage(source, chosen[source], zero_copy=zero_copy)
        self._check_held()

    def stage_small(self, batch: SmallBatch) -> None:
        """Add rows of small pushes by compiled code, if time alone decides their order."""
        small = self._small_stager(batch.source)
        if small is None:
            return super().stage_small(batch)
        stager, tables, bits = small
        count = stager.select(batch)
        if stager.order != IN_ORDER:
            return super().stage_small(batch)
        first, size = self._next_row, batch.last - batch.first
        self._next_row += size
        if not count:
            return None
        if not self._prints_from <= first <= first + size <= self._prints_from + len(self._prints):
            self._prints_from = first
            self._prints = fingerprints(np.arange(first, first + max(size, _PRINTS)))
        prints = self._prints[first - self._prints_from :]
        for automaton, lanes, own in zip(self._automata, tables, bits, strict=True):
            automaton.stage_small(batch, stager, count, own, lanes, prints)
        self._check_held()
        return None

    def _small_stager(self, source: GrowingRows) -> tuple[SmallStager, list[np.ndarray], list[np.ndarray]] | None:
        if not self._is_small_known:
            self._is_small_known = True
            sources = list(dict.fromkeys(one for automaton in self._automata for one in automaton.sources))
            numbers = [[sources.index(one) for one in automaton.sources] for automaton in self._automata]
            lanes = [(automaton.lanes, own) for automaton, own in zip(self._automata, numbers, strict=True)]
            made = small_stager(source, self._layout, sources, lanes)
            if made is not None and all(automaton.takes_small for automaton in self._automata):
                self._small = *made, [np.array(own, np.int64) for own in numbers]
        return self._small

    def _check_held(self) -> None:
        advice = "a smaller bound on DUR, more selective operands"
        self._limits.check_held([self._query.name], self.held_events, advice=advice)

    def _batch(self, source: Source, table: pa.Table, ticks: np.ndarray, prints: np.ndarray) -> Batch:
        base = source.base
        assert base is not None
        if base.type is not None and self._layout.type is not None:
            column = one_array(table.column(self._layout.type))
            mask = pc.fill_null(pc.equal(column, base.type), False)
            rows = np.flatnonzero(np.asarray(mask.to_numpy(zero_copy_only=False)))
            if len(rows) < len(ticks):
                table, ticks, prints = table.take(pa.array(rows)), ticks[rows], prints[rows]
        start = ticks
        if base.start is not None:
            start = start_ticks(table, base.start, self._layout, ticks)
        return Batch(table, start, ticks, ticks, prints)

    def answer(self, until: int) -> Answer:
        """Read the ready events, stream by stream, and return the results of the last stream."""
        batch: Batch | None = None
        for number, automaton in enumerate(self._automata):
            batch = automaton.advance(until)
            if len(batch.end):
                source = Source(derived=number)
                for reader in self._automata[number + 1 :]:
                    if source in reader.sources:
                        reader.stage(source, batch, zero_copy=True)
        assert batch is not None
        time = self._layout.schema.field(self._layout.time).type
        columns = [ticks_to_time(batch.start, time), ticks_to_time(batch.end, time), *batch.table.columns]
        return Answer(pa.Table.from_arrays(columns, schema=self.schema), batch.start, batch.end)

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which results are due without a further event; None if there is none."""
        ticks = [automaton.next_deadline for automaton in self._automata]
        return min((tick for tick in ticks if tick is not None), default=None)

    @property
    def held_events(self) -> int:
        """The number of events that are pending or that instances refer to."""
        return sum(automaton.held_events for automaton in self._automata)

    @property
    def room(self) -> int:
        """At least this many events can be read before a limit must be checked, if they return no results."""
        if any(step.operator is Operator.FOLD for s in self._query.streams for b in s.branches for step in b.steps):
            return 0  # One event may double the instances.
        branches = sum(len(stream.branches) for stream in self._query.streams)
        free = min(automaton.free for automaton in self._automata) // branches
        return min(free, self._limits.max_buffered_events - self.held_events)

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the kernels, over all streams."""
        total: dict[str, int] = {}
        for automaton in self._automata:
            for name, value in automaton.statistics.items():
                total[name] = total.get(name, 0) + value
        return total

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; `load` takes what this returns."""
        return {"next_row": self._next_row, "streams": [automaton.dump(writer) for automaton in self._automata]}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        self._next_row = head["next_row"]
        for automaton, one in zip(self._automata, head["streams"], strict=True):
            automaton.load(reader, one)


def require_bounded(query: BoundAlgebra) -> None:
    """Raise an error if a next or fold on a stream has no upper bound on DUR: its instances would wait forever."""
    for stream in query.streams:
        built = _built(stream, Planner(query.catalog.time.type, indexed=False), Coder(), Coder())
        if any(branch.steps for branch in stream.branches) and longest_life(built.automata) == INT64_MAX:
            raise QueryError(
                "on a stream next(…) and fold(…) need an upper bound on DUR",
                text=query.text,
                hint="add to theta, for example: AND DUR <= 30 min",
            )
