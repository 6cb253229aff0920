"""Running algebra expressions: one automaton for each stream, chained where one reads another's events.

A stream's runner holds what is pending, the events that live instances refer to as lanes, and the rows behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.algebra.model import REGISTERS, BoundAlgebra, BoundStream, Branch, Source, may_repeat
from ouzel.bind.model import Attribute, Bound, EventField, Intrinsic, Kind
from ouzel.errors import InputError, LimitError, QueryError
from ouzel.kernels import cayuga, cayuga_lists
from ouzel.kernels.cayuga_build import build
from ouzel.kernels.cayuga_columns import PatternColumns
from ouzel.kernels.cayuga_tables import (
    INT64_MAX,
    INT64_MIN,
    MEMBERS_MIN,
    Automata,
    Counter,
    Events,
    Link,
    Node,
    Place,
    Results,
    State,
    Status,
    Time,
    larger_results,
    new_events,
    new_results,
    new_state,
    with_room,
)
from ouzel.kernels.order import stable_order
from ouzel.plan.linear import EventLane, EventLanes, Form, Planner, ordered
from ouzel.runtime.coding import Coder
from ouzel.runtime.frames import take, ticks_to_time
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.patterns import Constants, ParameterFrame, PatternWriter, as_integers
from ouzel.runtime.payload import Payload
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import Column, from_engine, one_array, output_type, split, to_engine
from ouzel.runtime.vectors import evaluate, holds

_COMPACT_MIN = 4096
# What a snapshot tells of the past; other counters are about lists, which are made anew.
_LASTING_COUNTERS = (
    Counter.SERIAL,
    Counter.EVENTS,
    Counter.STATIC_MATCHES,
    Counter.WAITS_READ,
    Counter.INSTANCES_READ,
    Counter.BUNDLES_READ,
    Counter.CREATED,
    Counter.RESULTS,
    Counter.EXPIRED,
    Counter.FIRED,
)


class Batch(NamedTuple):
    """Events of one source: their rows, when they lasted, and the input rows they are made of."""

    table: pa.Table
    start: np.ndarray
    end: np.ndarray
    first_end: np.ndarray
    fingerprint: np.ndarray  # [event, 2]


class RowFrame:
    """Rows of a source, where expressions about the event being read find their columns."""

    def __init__(self, batch: Batch, column_of: Callable[[str], str], types: Column | None = None) -> None:
        self._batch = batch
        self._column_of = column_of
        self.rows = len(batch.end)

    def attribute(self, reference: Attribute) -> Column:
        name, *inner = reference.path
        column = one_array(self._batch.table.column(self._column_of(name)))
        for field in inner:
            column = pc.struct_field(column, field)
        return to_engine(column, reference.type)

    def intrinsic(self, reference: Intrinsic) -> Column:
        return pa.array(self._batch.start if reference.field is EventField.START else self._batch.end)

    def lacks(self, reference: Attribute) -> None:
        return None


class LaneMaker:
    """Makes the lanes of events: numbers that kernels compare."""

    def __init__(self, lanes: EventLanes, texts: Coder, type_codes: Coder) -> None:
        self._lanes = lanes
        self._texts = texts
        self._type_codes = type_codes

    def events(self, batch: Batch, source: Source | None, frame: RowFrame, types: Column | None = None) -> Events:
        """The lanes of a batch; those of other sources are null."""
        events = new_events(len(batch.end), len(self._lanes.ints), len(self._lanes.floats))
        for place, column in ((Time.START, batch.start), (Time.END, batch.end), (Time.FIRST_END, batch.first_end)):
            events.times[:, place] = column
        events.times[:, Time.PRINT :] = batch.fingerprint
        for number, lane in enumerate(self._lanes.ints):
            if lane.source != source:
                events.int_nulls[number] = 1
            elif lane.form is Form.TYPE:
                assert types is not None
                events.ints[number] = self._type_codes.encode([types])
            elif lane.form is not Form.RANK:
                values, valid = self._ints(lane, frame)
                events.ints[number] = values
                if valid is not None:
                    events.int_nulls[number] = ~valid
        for number, lane in enumerate(self._lanes.floats):
            if lane.source != source:
                events.float_nulls[number] = 1
            else:
                values, valid = split(evaluate(lane.expressions[0], frame), np.float64)
                events.floats[number], events.float_nulls[number] = values, ~valid
        return events

    def _ints(self, lane: EventLane, frame: RowFrame) -> tuple[np.ndarray, np.ndarray | None]:
        if lane.form is Form.TRUTH:
            passes = np.ones(frame.rows, bool)
            for condition in lane.expressions:
                passes &= holds(condition, frame)
            return passes.astype(np.int64), None
        column = evaluate(lane.expressions[0], frame)
        if lane.form is Form.CODE:
            codes = self._texts.encode([column]).astype(np.int64)
            return codes, codes >= 0
        if lane.form is Form.ORDERED:
            values, valid = split(column, np.float64)
            return ordered(values), valid
        return as_integers(column)

    def rank(self, events: Events) -> None:
        """Lanes of texts in order get their ranks of today."""
        ranked = [(k, lane) for k, lane in enumerate(self._lanes.ints) if lane.form is Form.RANK]
        if ranked and len(events.end):
            ranks = self._texts.ranks()
            for number, lane in ranked:
                code = self._lanes.number(lane._replace(form=Form.CODE))
                nulls = events.int_nulls[code]
                events.int_nulls[number] = nulls
                if len(ranks):
                    events.ints[number] = np.where(nulls, 0, ranks[np.where(nulls, 0, events.ints[code])])


class Machine:
    """The kernel with its state: automata, the events that instances refer to, and the instances."""

    def __init__(self, automata: Automata, lanes: EventLanes, *, slots: int, registers: int, limits: Limits) -> None:
        self.automata = automata
        self._limits = limits
        self._registers = registers
        self._slots = slots
        self.state = new_state(automata, slots=slots, registers=registers, capacity=1024)
        self._results = new_results(1024, slots=slots + 1, registers=registers)
        self.events = new_events(0, len(lanes.ints), len(lanes.floats))
        self.rows = np.empty(0, np.int64)
        self._moment = 0

    def feed(self, events: Events, rows: np.ndarray, rank: Callable[[Events], None], name: str) -> Results:
        """Read events that are in order of their end; gives the results, which the next call overwrites."""
        first = len(self.rows)
        self.events = joined_events([self.events, events]) if first else events
        self.rows = np.concatenate([self.rows, rows]) if first else rows
        rank(self.events)
        return self.read(first, len(self.rows), name)

    def read(self, first: int, last: int, name: str) -> Results:
        """Read some of the events that the machine has."""
        self._results.count[0] = 0
        while True:
            first, status, self._moment = cayuga.advance(
                self.automata, self.state, self.events, first, last, self._results, self._moment
            )
            if status == Status.DONE:
                break
            if status == Status.OUTPUT_FULL:
                grown = self._more_results(name)
            else:
                grown = self._more_instances(name, only_members=status == Status.MEMBERS_FULL)
            if not grown:
                first = self._skip_moment(
                    first, last, "max_matches_per_moment" if status == Status.OUTPUT_FULL else "max_partial_matches"
                )
        return self._results

    def _skip_moment(self, first: int, last: int, limit: str) -> int:
        """Drop the events of the moment that begins at `first`; where the next one begins."""
        ends = self.events.times[first:last, Time.END]
        after = first + int(np.searchsorted(ends, ends[0], side="right"))
        self._limits.drop(limit, after - first)
        return after

    def _more_results(self, name: str) -> bool:
        """Make room for results; False where their limit is passed and what passes it is to be dropped."""
        before = int(self._results.count[0])
        if len(self._results.node) - before > self._limits.max_matches_per_moment:
            if self._limits.drops:
                return False
            raise LimitError(
                f"query '{name}' found more than max_matches_per_moment={self._limits.max_matches_per_moment:,} "
                "results that complete at one moment; give it a more selective condition, or raise the limit"
            )
        self._results = larger_results(self._results)
        return True

    def _more_instances(self, name: str, *, only_members: bool) -> bool:
        """Make room for instances; False where their limit is passed and what passes it is to be dropped."""
        live = self.live
        if only_members and live < self._limits.max_partial_matches:
            self._put_members_anew(4 * live)
            return True
        if live >= self._limits.max_partial_matches:
            if self._limits.drops:
                return False
            raise LimitError(
                f"query '{name}' has more than max_partial_matches={self._limits.max_partial_matches:,} instances "
                "that wait for further events; give it a smaller bound on DUR or a more selective condition, "
                "or raise the limit"
            )
        self.state = with_room(self.state, 2 * len(self.state.links))
        self._put_members_anew(4 * live)
        if len(self.automata.ai_lanes) and len(self.state.links) > 2 * len(self.state.ai_heads):
            self.relink()
        return True

    def _put_members_anew(self, wanted: int) -> None:
        """Move the members of live instances together: those of others took up room until now."""
        members = np.empty((max(wanted, MEMBERS_MIN), 2), np.int32)
        self.state.counters[Counter.MEMBERS] = cayuga_lists.gather_members(
            self.state.links, self.state.members, members
        )
        self.state = self.state._replace(members=members)

    def relink(self) -> None:
        """Make all lists anew, with room for the instances there are."""
        state = self.state
        buckets = 1 << max(8, (len(state.links) - 1).bit_length())
        self.state = state._replace(ai_heads=np.full(buckets, -1, np.int32))
        self.state.an_heads[:] = -1
        self.state.places[:, Place.HEAD] = -1
        self.state.places[:, Place.COUNT] = 0
        self.state.counters[[Counter.ACTIVE_WAITS, Counter.EVERY_HEAD]] = 0, -1
        cayuga_lists.relink(self.automata, self.state, self.events)

    @property
    def live(self) -> int:
        """How many instances there are; one that waits at several nodes counts for each of them."""
        links = self.state.links
        return int(links[links[:, Link.NODE] >= 0, Link.MEMBER_COUNT].sum())

    def forget(self, now: int, life: int) -> None:
        """Drop what nothing can come of after a tick: instances, then the events before them."""
        if life == INT64_MAX or not len(self.rows):
            return
        dead = int(np.searchsorted(self.events.end, max(INT64_MIN, now + 1 - life), side="right"))
        if dead > _COMPACT_MIN and 2 * dead > len(self.rows):
            cayuga_lists.sweep(self.automata, self.state, min(now + 1, INT64_MAX - 1))
            slots = self.state.slots[self.state.links[:, Link.NODE] >= 0]
            dead = min(dead, int(slots[slots >= 0].min(initial=dead)) if slots.size else dead)
            self.drop_front(dead)

    def drop_front(self, dead: int) -> None:
        self.state.slots[:] = np.maximum(self.state.slots - dead, 0)
        self.events = chosen_events(self.events, slice(dead, None))
        self.rows = self.rows[dead:].copy()


def chosen_events(events: Events, which: Any) -> Events:
    """Some events, in a given order."""
    return Events(
        times=np.ascontiguousarray(events.times[which]),
        ints=np.ascontiguousarray(events.ints[:, which]),
        floats=np.ascontiguousarray(events.floats[:, which]),
        int_nulls=np.ascontiguousarray(events.int_nulls[:, which]),
        float_nulls=np.ascontiguousarray(events.float_nulls[:, which]),
    )


def joined_events(parts: Sequence[Events]) -> Events:
    """Events one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Events(
        *(
            np.concatenate(arrays, axis=0 if name == "times" else 1)
            for name, arrays in ((n, [getattr(part, n) for part in parts]) for n in Events._fields)
        )
    )


def longest_life(automata: Automata) -> int:
    """The longest DUR with which an instance anywhere can still lead to a result."""
    # An event that is read in no time is still needed until then.
    return int(automata.life[1:].max(initial=1))


class _Pending(NamedTuple):
    events: Events
    rows: np.ndarray
    source: np.ndarray


class StreamRunner:
    """The automaton of one stream of an expression, over any number of sources."""

    def __init__(self, name: str, stream: BoundStream, time: Any, limits: Limits, column_of: Any) -> None:
        self._name = name
        self.stream = stream
        self._column_of = column_of
        self._limits = limits
        planner = Planner(time, indexed=False)
        self.texts = Coder()
        self._types = Coder()
        planned = [planner.branch(branch) for branch in stream.branches]
        frame = ParameterFrame(pa.table({}), 1)
        writer = PatternWriter(planner.lanes, Constants(frame, self.texts, self._types))
        patterns: list[PatternColumns] = [writer.pattern(one, []) for one in planned]
        built = build(patterns, planner.programs)
        self._branch_of = {int(nodes[-1, 0]): k for k, nodes in reversed(list(enumerate(built.node_of)))}
        self._lanes = planner.lanes
        self._maker = LaneMaker(planner.lanes, self.texts, self._types)
        self.sources = list(dict.fromkeys(s for b in stream.branches for s in _sources(b)))
        self._payloads = [Payload() for _ in self.sources]
        self._pending: list[_Pending] = []
        self._machine = Machine(
            built.automata,
            planner.lanes,
            slots=max(len(b.hops) for b in stream.branches) + 1,
            registers=max(len(b.register_types) for b in stream.branches),
            limits=limits,
        )
        self.life = longest_life(built.automata)

    def stage(self, source: Source, batch: Batch, *, keep_whole: bool) -> None:
        """Take events of one source in, in any order."""
        number = self.sources.index(source)
        frame = RowFrame(batch, lambda name: self._column_of(source, name))
        events = self._maker.events(batch, source, frame)
        # An event that no operand wants changes nothing.
        roles = [k for k, lane in enumerate(self._lanes.ints) if lane.form is Form.TRUTH and lane.source == source]
        wanted = np.flatnonzero(events.ints[roles].any(axis=0))
        if not len(wanted):
            return
        table = batch.table
        if not keep_whole or 2 * len(wanted) < len(batch.end):
            places = wanted.astype(np.int32)
            table = pa.table([take(one_array(c), places) for c in table.columns], schema=table.schema)
            rows = np.arange(len(wanted))
            ticks = batch.end[wanted]
        else:
            rows, ticks = wanted, batch.end
        base = self._payloads[number].append(table, ticks)
        if len(wanted) < len(batch.end):
            events = chosen_events(events, wanted)
        self._pending.append(_Pending(events, rows + base, np.full(len(rows), number, np.int8)))

    def advance(self, until: int) -> Batch:
        """No event at or before `until` can come any more: read what is ready."""
        ready = self._take_ready(until)
        if ready is None:
            return self._empty()
        results = self._machine.feed(ready.events, ready.rows, self._maker.rank, self._name)
        answer = self._collect(results)
        if self.life < INT64_MAX:
            self._machine.forget(until, self.life)
            for payload in self._payloads:
                payload.forget(max(INT64_MIN, until + 1 - self.life))
        return answer

    def _take_ready(self, until: int) -> _Pending | None:
        if not self._pending:
            return None
        pending = _joined_pending(self._pending)
        ready = pending.events.end <= until
        self._pending = []
        if not ready.all():
            later = np.flatnonzero(~ready)
            self._pending = [_Pending(chosen_events(pending.events, later), pending.rows[later], pending.source[later])]
            now = np.flatnonzero(ready)
            pending = _Pending(chosen_events(pending.events, now), pending.rows[now], pending.source[now])
        if not len(pending.rows):
            return None
        if (np.diff(pending.events.end) < 0).any():
            order = stable_order(pending.events.end)
            pending = _Pending(chosen_events(pending.events, order), pending.rows[order], pending.source[order])
        return pending

    # ── Giving results out ─────────────────────────────────────────────────────────────────────────

    def _empty(self) -> Batch:
        empty = np.empty(0, np.int64)
        return Batch(self.table_type.empty_table(), empty, empty, empty, np.empty((0, 2), np.int64))

    @property
    def table_type(self) -> pa.Schema:
        return pa.schema([pa.field(n, self._output_type(n)) for n in self.stream.columns])

    def _output_type(self, name: str) -> pa.DataType:
        return output_type_of(self.stream.branches[0], name, self.column_type)

    def column_type(self, source: Source, path: tuple[str, ...]) -> pa.DataType | None:
        """The Arrow type of a source's column; the runner of all streams knows."""
        return None

    def _collect(self, results: Results) -> Batch:
        count = int(results.count[0])
        if not count:
            return self._empty()
        branches = np.array([self._branch_of[int(node)] for node in np.unique(results.node[:count])])
        nodes = np.unique(results.node[:count])
        parts: list[tuple[np.ndarray, pa.Table]] = []
        for node, branch in zip(nodes, branches, strict=True):
            places = np.flatnonzero(results.node[:count] == node)
            table = self._values(self.stream.branches[branch], results, places)
            parts.append((places, table))
        places = np.concatenate([p for p, _ in parts])
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
        frame = ResultFrame(self, branch, results, places)
        columns = []
        for name, kind in self.stream.columns.items():
            value = branch.columns[name]
            columns.append(frame.shown(value, self._output_type(name), kind))
        return pa.table(columns, schema=self.table_type)

    def fetch(self, source: Source, events: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        """A table that holds the rows of some events, and where in it they stand."""
        payload = self._payloads[self.sources.index(source)]
        table, _, rows = payload.fetch(self._machine.rows[events])
        return table, rows

    def column_of(self, source: Source, name: str) -> str:
        """The column of that table that holds an attribute."""
        found: str = self._column_of(source, name)
        return found

    def times(self, events: np.ndarray, field: EventField) -> np.ndarray:
        """When events began or ended."""
        found: np.ndarray = self._machine.events.times[events, Time.START if field is EventField.START else Time.END]
        return found

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def next_deadline(self) -> int | None:
        return min((int(p.events.end.min()) for p in self._pending if len(p.rows)), default=None)

    @property
    def held_events(self) -> int:
        return len(self._machine.rows) + sum(len(p.rows) for p in self._pending)

    @property
    def statistics(self) -> dict[str, int]:
        return {counter.name.lower(): int(self._machine.state.counters[counter]) for counter in Counter}

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        is_text, arrays = self.texts.dump()
        return {
            "payloads": [_dump_payload(payload, writer) for payload in self._payloads],
            "machine": dump_machine(self._machine, writer),
            "pending": [
                [[writer.add_array(a) for a in p.events], writer.add_array(p.rows), writer.add_array(p.source)]
                for p in self._pending
            ],
            "texts": [is_text, [writer.add_array(array) for array in arrays]],
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        self._payloads = [_load_payload(one, reader) for one in head["payloads"]]
        load_machine(self._machine, reader, head["machine"])
        self._pending = [
            _Pending(Events(*reader.arrays(events)), reader.array(rows), reader.array(source))
            for events, rows, source in head["pending"]
        ]
        is_text, arrays = head["texts"]
        self.texts = Coder.load(0, is_text, reader.arrays(arrays))
        self._maker = LaneMaker(self._lanes, self.texts, self._types)


class Host(Protocol):
    """Who holds the events that results refer to."""

    texts: Coder

    def fetch(self, source: Source, events: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        """A table that holds the rows of some events, and where in it they stand."""

    def column_of(self, source: Source, name: str) -> str:
        """The column of that table that holds an attribute."""

    def times(self, events: np.ndarray, field: EventField) -> np.ndarray:
        """When events began or ended."""


class ResultFrame:
    """Results of one branch: where the expressions of its attributes find their columns."""

    def __init__(self, host: Host, branch: Branch, results: Results, places: np.ndarray) -> None:
        self._host = host
        self._branch = branch
        self._results = results
        self._places = places
        self._fetched: dict[int, tuple[pa.Table, np.ndarray]] = {}
        self.rows = len(places)

    def _source(self, slot: int) -> Source:
        return _sources(self._branch)[slot]

    def _events(self, slot: int) -> np.ndarray:
        events: np.ndarray = self._results.slots[self._places, slot]
        return events

    def raw(self, reference: Attribute) -> pa.Array:
        slot = reference.component
        source = self._source(slot)
        if slot not in self._fetched:
            self._fetched[slot] = self._host.fetch(source, self._events(slot))
        table, rows = self._fetched[slot]
        name, *inner = reference.path
        value = take(one_array(table.column(self._host.column_of(source, name))), rows)
        for field in inner:
            value = pc.struct_field(value, field)
        return value

    def attribute(self, reference: Attribute) -> Column:
        if reference.component == REGISTERS:
            return self._register(reference)
        return to_engine(self.raw(reference), reference.type)

    def _register(self, reference: Attribute) -> Column:
        number, kind = int(reference.path[0]), reference.type
        nulls = self._results.registers.nulls[self._places, number].astype(bool)
        if kind.kind is Kind.FLOAT:
            return pa.array(self._results.registers.floats[self._places, number], mask=nulls)
        values = self._results.registers.ints[self._places, number]
        if kind.kind in (Kind.STRING, Kind.BINARY):
            texts = decoded(self._host.texts, kind.kind is Kind.BINARY)
            return texts.take(pa.array(np.where(nulls, 0, values), mask=nulls))
        if kind.kind is Kind.BOOL:
            return pa.array(values != 0, mask=nulls)
        if kind.kind is Kind.DECIMAL:
            whole = pa.array(
                [None if null else int(v) for v, null in zip(values, nulls, strict=True)], pa.decimal128(19, 0)
            )
            scaled = pa.Array.from_buffers(pa.decimal128(19, kind.scale), len(whole), whole.buffers())
            return scaled.cast(pa.decimal128(max(kind.precision, 1), kind.scale))
        return pa.array(values, mask=nulls)

    def intrinsic(self, reference: Intrinsic) -> Column:
        return pa.array(self._host.times(self._events(reference.component), reference.field))

    def lacks(self, reference: Attribute) -> None:
        return None

    def shown(self, value: Bound, wanted: pa.DataType, kind: Any) -> pa.Array:
        """A value as users see it: attributes in the type of the input, computed values in their own."""
        if isinstance(value, Attribute) and value.component >= 0:
            column = self.raw(value)
            if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(wanted):
                column = column.dictionary_decode()
        else:
            column = from_engine(evaluate(value, self), value.type)
        return column if column.type == wanted else pc.cast(column, wanted)


def _sources(branch: Branch) -> list[Source]:
    return [branch.start.source, *(hop.operand.source for hop in branch.hops)]


def decoded(texts: Coder, binary: bool) -> pa.Array:
    """The texts by their codes."""
    is_text, arrays = texts.dump()
    kind = pa.large_binary() if binary else pa.large_string()
    if not is_text:
        return pa.array([], kind)
    starts, arena = arrays
    buffers = [None, pa.py_buffer(np.ascontiguousarray(starts, np.int64)), pa.py_buffer(arena)]
    return pa.Array.from_buffers(kind, len(starts) - 1, buffers)


def without_repetitions(batch: Batch) -> Batch:
    """Results with the same sources, values, start and end are one."""
    order = np.lexsort((batch.start, batch.end, batch.fingerprint[:, 1], batch.fingerprint[:, 0]))
    prints = batch.fingerprint[order]
    same = np.zeros(len(order), bool)
    same[1:] = (prints[1:] == prints[:-1]).all(axis=1)
    same[1:] &= (batch.start[order][1:] == batch.start[order][:-1]) & (batch.end[order][1:] == batch.end[order][:-1])
    if not same.any():
        return batch
    suspect = same.copy()
    suspect[:-1] |= same[1:]
    places = order[suspect]
    group = np.cumsum(~same)[suspect]
    rows = batch.table.take(pa.array(places)).to_pylist()
    seen: set[Any] = set()
    dropped = []
    for number, place, row in zip(group.tolist(), places.tolist(), rows, strict=True):
        identity = (number, repr([_plain(value) for value in row.values()]))
        if identity in seen:
            dropped.append(place)
        seen.add(identity)
    kept = np.delete(np.arange(len(order)), dropped)
    return Batch(
        batch.table.take(pa.array(kept)),
        batch.start[kept],
        batch.end[kept],
        batch.first_end[kept],
        batch.fingerprint[kept],
    )


def _plain(value: Any) -> Any:
    return 0.0 if isinstance(value, float) and value == 0 else value


def output_type_of(branch: Branch, name: str, column_type: Callable[..., pa.DataType | None]) -> pa.DataType:
    value = branch.columns[name]
    if isinstance(value, Attribute) and value.component >= 0:
        found = column_type(_sources(branch)[value.component], value.path)
        if found is not None:
            return found.value_type if pa.types.is_dictionary(found) else found
    return output_type(value.type)


def _joined_pending(parts: list[_Pending]) -> _Pending:
    return _Pending(
        joined_events([p.events for p in parts]),
        np.concatenate([p.rows for p in parts]),
        np.concatenate([p.source for p in parts]),
    )


# ── The whole expression ───────────────────────────────────────────────────────────────────────────


class AlgebraRunner:
    """The state of one expression. `stage` takes events in, `advance` moves time on and gives the results."""

    def __init__(self, query: BoundAlgebra, layout: Layout, limits: Limits) -> None:
        self._query = query
        self._layout = layout
        self._limits = limits
        self._next_row = 0
        self._moments = np.empty(0, np.int64), np.empty(0, np.int64)
        self._runners: list[StreamRunner] = []
        for stream in query.streams:
            runner = StreamRunner(query.name, stream, query.catalog.time.type, limits, self._column_of)
            runner.column_type = self._column_type  # type: ignore[method-assign]
            self._runners.append(runner)
        time = layout.schema.field(layout.time).type
        answer = self._runners[-1].table_type
        for name in answer.names:
            if name in ("start", "end"):
                raise QueryError(
                    f"the result has a column '{name}' of its own, and the stream an attribute of that name",
                    hint=f"rename({{'{name}': …}}) or project it away",
                )
        self.schema = pa.schema([pa.field("start", time), pa.field("end", time), *answer])

    def _column_of(self, source: Source, name: str) -> str:
        return name if source.base is None else self._layout.column(source.base.type, name)

    def _column_type(self, source: Source, path: tuple[str, ...]) -> pa.DataType | None:
        if source.base is not None:
            found = self._layout.schema.field(self._layout.column(source.base.type, path[0])).type
        else:
            assert source.derived is not None
            found = self._runners[source.derived].table_type.field(path[0]).type
        for name in path[1:]:
            found = found.field(name).type
        return found

    def stage(self, table: pa.Table, ticks: np.ndarray, *, keep_whole: bool = False) -> None:
        """Take rows in, in any order."""
        fitting = self._limits.fitting(self._concerned(table), ticks, self.held_events)
        if fitting is not None:
            table, ticks = table.take(fitting), ticks[fitting]
        numbers = np.arange(self._next_row, self._next_row + len(ticks))
        self._next_row += len(ticks)
        prints = fingerprints(numbers)
        chosen: dict[Source, Batch] = {}
        for runner in self._runners:
            for source in runner.sources:
                if source.base is not None:
                    if source not in chosen:
                        chosen[source] = self._batch(source, table, ticks, prints)
                    runner.stage(source, chosen[source], keep_whole=keep_whole)
        held = self.held_events
        if not self._limits.drops and held > self._limits.max_buffered_events:
            raise LimitError(
                f"query '{self._query.name}' holds {held:,} events, more than "
                f"max_buffered_events={self._limits.max_buffered_events:,}; give it a smaller bound on DUR, "
                "more selective operands, or a higher limit"
            )

    def _concerned(self, table: pa.Table) -> np.ndarray:
        """The rows that some operand reads, by their types."""
        bases = [source.base for runner in self._runners for source in runner.sources if source.base is not None]
        if self._layout.type is None or any(base.type is None for base in bases):
            return np.arange(table.num_rows)
        named = pa.array(sorted({str(base.type) for base in bases}), pa.string())
        known = pc.is_in(one_array(table.column(self._layout.type)).cast(pa.string()), value_set=named)
        return np.flatnonzero(known.to_numpy(zero_copy_only=False))

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

    def advance(self, until: int) -> pa.Table:
        """No event at or before `until` can come any more: give what that completes."""
        batch: Batch | None = None
        for number, runner in enumerate(self._runners):
            batch = runner.advance(until)
            if len(batch.end):
                source = Source(derived=number)
                for reader in self._runners[number + 1 :]:
                    if source in reader.sources:
                        reader.stage(source, batch, keep_whole=True)
        assert batch is not None
        self._moments = batch.start, batch.end
        time = self._layout.schema.field(self._layout.time).type
        columns = [ticks_to_time(batch.start, time), ticks_to_time(batch.end, time), *batch.table.columns]
        return pa.table(columns, schema=self.schema)

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and end, in ticks, of the rows that the last `advance` gave."""
        return self._moments

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which something that is held could lead to an answer by time alone."""
        ticks = [runner.next_deadline for runner in self._runners]
        return min((tick for tick in ticks if tick is not None), default=None)

    @property
    def held_events(self) -> int:
        """How many events are pending or referred to."""
        return sum(runner.held_events for runner in self._runners)

    @property
    def statistics(self) -> dict[str, int]:
        """What the kernels counted, over all streams."""
        total: dict[str, int] = {}
        for runner in self._runners:
            for name, value in runner.statistics.items():
                total[name] = total.get(name, 0) + value
        return total

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; gives what `load` needs to find it again."""
        return {"next_row": self._next_row, "streams": [runner.dump(writer) for runner in self._runners]}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Take the place of the runner that `dump` stored."""
        self._next_row = head["next_row"]
        for runner, one in zip(self._runners, head["streams"], strict=True):
            runner.load(reader, one)


def require_bounded(query: BoundAlgebra) -> None:
    """On streams next and fold need an upper bound on DUR: without one, instances would wait for ever."""
    for stream in query.streams:
        runner = StreamRunner(query.name, stream, query.catalog.time.type, Limits(), None)
        if any(branch.hops for branch in stream.branches) and runner.life == INT64_MAX:
            raise QueryError(
                "on a stream next(…) and fold(…) need an upper bound on DUR",
                text=query.text,
                hint="add to theta, for example: AND DUR <= 30 min",
            )


def fingerprints(numbers: np.ndarray) -> np.ndarray:
    """Two words for each input row; the sum of those of several rows tells which rows they are."""
    from ouzel.kernels.cayuga_columns import mixed

    seeds = (np.uint64(0x452821E638D01377), np.uint64(0xBE5466CF34E90C6C))
    return np.stack([mixed(np.full(len(numbers), seed), numbers).view(np.int64) for seed in seeds], axis=1)


def start_ticks(table: pa.Table, name: str, layout: Layout, ends: np.ndarray) -> np.ndarray:
    """When events began, by a column of the same clock as the time column."""
    from dataclasses import replace

    from ouzel.runtime.layout import ticks_of

    if name not in table.column_names:
        raise InputError(f"there is no column '{name}' to tell when events began")
    time = layout.schema.field(layout.time).type
    column = table.column(name)
    try:
        column = column if column.type == time else pc.cast(column, time)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"the column '{name}' is no time like '{layout.time}': {error}") from None
    starts = ticks_of(pa.table({name: column}), replace(layout, time=name))
    if (starts > ends).any():
        row = int(np.argmax(starts > ends))
        raise InputError(f"the event in row {row} begins (column '{name}') after its end (column '{layout.time}')")
    return starts


# ── Snapshots of the machine ───────────────────────────────────────────────────────────────────────


def dump_machine(machine: Machine, writer: Writer) -> dict[str, Any]:
    """The instances and the events they refer to; lists are made anew."""
    live = np.flatnonzero(machine.state.links[:, Link.NODE] >= 0)
    return {
        "instances": {name: writer.add_array(array) for name, array in instances_of(machine.state, live).items()},
        "events": [writer.add_array(array) for array in machine.events],
        "rows": writer.add_array(machine.rows),
        "counters": writer.add_array(machine.state.counters),
    }


def instances_of(state: State, live: np.ndarray) -> dict[str, np.ndarray]:
    """Some instances, as arrays by name; one that waits at several nodes stands there once for each."""
    count = int(state.links[live, Link.MEMBER_COUNT].sum())
    rows, nodes = np.empty(count, np.int64), np.empty(count, np.int32)
    cayuga_lists.members_of(state.links, state.members, live.astype(np.int64), rows, nodes)
    arrays = {"times": state.times, "links": state.links, "slots": state.slots, **state.registers._asdict()}
    chosen = {name: array[rows] for name, array in arrays.items()}
    chosen["links"][:, Link.NODE] = nodes
    return chosen


def load_machine(machine: Machine, reader: Reader, head: Mapping[str, Any]) -> None:
    machine.events = Events(*reader.arrays(head["events"]))
    machine.rows = reader.array(head["rows"])
    instances = {name: reader.array(number) for name, number in head["instances"].items()}
    put_instances(machine, instances)
    counters = reader.array(head["counters"])
    for counter in _LASTING_COUNTERS:
        machine.state.counters[counter] = counters[counter]


def put_instances(machine: Machine, instances: Mapping[str, np.ndarray]) -> None:
    """Take instances in, whose events the machine has."""
    count = len(instances["links"])
    state: State = new_state(
        machine.automata,
        slots=machine.state.slots.shape[1],
        registers=machine.state.registers.ints.shape[1],
        capacity=max(1024, 2 * count),
    )
    for name, values in instances.items():
        if name != "links":
            target = getattr(state if name in ("times", "slots") else state.registers, name)
            # What only removed queries needed is cut off.
            width = min(target.shape[1], values.shape[1])
            target[:count, :width] = values[:, :width]
    state.times[:, Time.STAMP] = 0
    nodes = instances["links"][:, Link.NODE]
    state.links[:count, Link.NODE] = nodes
    state.links[:count, Link.WAIT] = machine.automata.nodes[nodes, Node.WAIT]
    state.links[:count, Link.MEMBER_HEAD] = np.arange(count)
    state.links[:count, Link.MEMBER_COUNT] = 1
    members = np.full((max(MEMBERS_MIN, 2 * count), 2), -1, np.int32)
    members[:count, 0] = nodes
    state.counters[Counter.FREE] -= count
    state.counters[Counter.MEMBERS] = count
    machine.state = state._replace(members=members)
    machine.relink()


def _dump_payload(payload: Payload, writer: Writer) -> list[Any]:
    following, bases, chunks = payload.dump()
    return [following, bases, [[writer.add_table(table), writer.add_array(ticks)] for table, ticks in chunks]]


def _load_payload(head: list[Any], reader: Reader) -> Payload:
    following, bases, chunks = head
    return Payload.load(following, bases, [(reader.table(table), reader.array(ticks)) for table, ticks in chunks])
