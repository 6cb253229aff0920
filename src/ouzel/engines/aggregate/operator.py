"""Runs aggregates over matches without building the matches: sorts events, counts them, and evicts them.

Between calls the operator holds the pending events and the counters. It also holds live events, if events leave the
window one by one. It keeps no rows of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.engines.aggregate.cumulative import CumulativeCounters
from ouzel.engines.aggregate.edges import EdgeCounters
from ouzel.engines.aggregate.groups import GroupIndex
from ouzel.engines.aggregate.indexed import IndexedCounters
from ouzel.engines.aggregate.matrix import MatrixCounters
from ouzel.engines.aggregate.output import aggregate_schema, answer, changes_schema, changes_table, emitted, measured
from ouzel.engines.aggregate.per_start import RowCounters
from ouzel.engines.aggregate.plan import AggregatePlan, Form, needed_measures
from ouzel.engines.aggregate.scan import Counters
from ouzel.engines.aggregate.tables import (
    Counter,
    CounterInstances,
    Measure,
    MeasureKind,
    TooManyRowsError,
    Way,
    build_counter_tables,
    indexed_atoms,
    new_counter_instances,
)
from ouzel.errors import LimitError
from ouzel.kernels.events import EVERY_KEY, Instances
from ouzel.kernels.order import expand, first_disorder, stable_order, ties
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.staging import (
    GREATEST,
    IN_ORDER,
    LANE_COLUMN,
    LANE_COMPONENT,
    LANE_FLOATING,
    LANE_NUMBER,
    LANE_PLACE,
    LEAST,
    VALUE,
    Measured,
    Staged,
    write_instances,
)
from ouzel.plan.lowering import Domain, LaneSpec, LoweredConjunct, lower
from ouzel.runtime.buffer import EARLIEST, LATEST, Block, OpenKey, StreamBuffer, expiry_bound, open_by_key, part
from ouzel.runtime.codes import is_sparse
from ouzel.runtime.frames import EventFrame, take
from ouzel.runtime.inbox import SmallBatch
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import Answer, Found, StreamOperator, lane_domains
from ouzel.runtime.snapshot import Reader, Writer, dump_arrays, load_arrays
from ouzel.runtime.staging import SmallStager, Stager
from ouzel.runtime.values import one_array

_NO_LANES = np.empty((0, 5), np.int32)


class AggregateOperator(StreamOperator[CounterInstances]):
    """The state of one query. `stage` adds events; `advance` moves time and returns the rows."""

    _stager: Stager

    def __init__(self, plan: AggregatePlan, layout: Layout, limits: Limits, *, partial: bool = False) -> None:
        assert plan.way is not None
        self._counted = plan
        # Whether only a part of the stream is seen here: then every change is emitted, because totals over all parts
        # need it.
        self._partial = partial
        self._on_change = partial or plan.query.emit_on_change
        # Predicates between events come first, so that their lowering still fits.
        lowered = lower(plan)
        self._lanes = lowered.lanes
        self._sources = [
            self._lanes.lane(
                measure.component,
                LaneSpec(measure.expression, Domain.FLOAT if measure.floating else Domain.INT),
            )
            for measure in plan.measures
        ]
        self._integers = sum(measure.kind is not MeasureKind.FLOAT for measure in plan.measures)
        self._floats = len(plan.measures) - self._integers
        # Only these counters read lanes after staging.
        texts = lane_domains(self._lanes) if plan.compares_events else {}
        buffer = StreamBuffer(self._room, time="tick", order=_counting_order, keeps_rows=False)
        stager = Stager(plan, self._lanes, layout, takes_small=plan.split is None)
        super().__init__(plan, layout, limits, stager, buffer, texts)
        shown = aggregate_schema(self._query, layout)
        self._groups = GroupIndex(plan, layout, shown)
        self.schema = changes_schema(plan, shown) if partial else shown
        self._counters = self._new_counters(lowered.construction)
        self._needed = needed_measures(plan)
        # The largest absolute value of each measure so far.
        self._largest = np.ones(len(plan.measures), np.float64)
        self._own_keys = True
        # The first input row of each group, in a part of a stream.
        self._first_rows: np.ndarray | None = None
        self._until = EARLIEST
        # The last component first, so that no event extends itself.
        self._positions = np.arange(len(plan.query.components), dtype=np.uint8)[::-1].copy()
        # The table of `Measured`, once a small push has come.
        self._measures: np.ndarray | None = None
        self._flagged = np.zeros(self._lanes.int_count + self._lanes.float_count, np.uint8)

    def _new_counters(self, construction: Sequence[LoweredConjunct]) -> Counters:
        plan, components = self._counted, self._query.components
        assert plan.way is not None
        measures = []
        lanes = {MeasureKind.FLOAT: 0, MeasureKind.INTEGER: 0}
        for measure in plan.measures:
            store = MeasureKind.FLOAT if measure.kind is MeasureKind.FLOAT else MeasureKind.INTEGER
            measures.append(Measure(measure.kind, measure.component, lanes[store], measure.over))
            lanes[store] += 1
        tables = build_counter_tables(
            [c.negated for c in components],
            [c.kleene for c in components],
            plan.window_ticks,
            measures,
            way=plan.way,
            on_change=self._on_change,
            split=plan.split,
        )
        if plan.way is Way.GRAPH:
            # Predicates between neighbours, by the place of the earlier one.
            place = {component.position: number for number, component in enumerate(self._query.positives)}
            return EdgeCounters(
                tables, [(min(place[c] for c in one.components), one.alternatives) for one in construction]
            )
        if plan.way is Way.INDEXED:
            first, second = (component.position for component in self._query.positives[:2])
            atoms = indexed_atoms([one.alternatives for one in construction], first, second)
            assert atoms is not None, "the plan has checked it"
            return IndexedCounters(tables, atoms)
        if plan.way is Way.CUMULATIVE:
            return CumulativeCounters(tables)
        return RowCounters(tables) if plan.way is Way.PER_START else MatrixCounters(tables)

    def _room(self, capacity: int) -> CounterInstances:
        compares = self._counted.compares_events
        return new_counter_instances(
            capacity,
            self._integers,
            self._floats,
            grouped=self._counted.split is not None,
            int_lanes=self._lanes.int_count if compares else 0,
            float_lanes=self._lanes.float_count if compares else 0,
        )

    # ── Taking events in ───────────────────────────────────────────────────────────────────────────

    def stage(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool = False) -> None:
        """Add rows, in any order. The rows themselves are not kept."""
        rows, block = self._stager.stage(table, ticks)
        if block.count:
            self._take_in(rows, block, table, ticks)

    # Simultaneous instances are counted by component.
    _order_max = IN_ORDER

    def _write_small(self, batch: SmallBatch, small: SmallStager, codes: np.ndarray, count: int, base: int) -> int:
        if self._measures is None:
            self._measures = self._small_measures(small)
        stager, events, first = self._stager, self._buffer.events, self._buffer.count
        last: int = write_instances(
            batch.source.rows, small.chosen, small.roles, codes, count, self._positions, stager.everywhere,
            small.lanes if self._counted.compares_events else _NO_LANES, base, self._staged(events.tick),
            events.component, Measured(self._measures, events.ints, events.floats, self._largest), first,
        )  # fmt: skip
        if stager.keys.count > len(self._groups.key_group):
            self._note_keys(batch, small, count, part(events, first, last))
        return last

    def _staged(self, end: np.ndarray) -> Staged:
        events = self._buffer.events
        lanes = events.int_lanes, events.float_lanes, events.lane_flags
        return Staged(end, events.key, self._buffer.rows, *lanes, self._flagged)

    def _note_keys(self, batch: SmallBatch, small: SmallStager, count: int, written: CounterInstances) -> None:
        """Find the groups of new keys of a small push."""
        places, _ = expand(small.roles[:count])
        frame_of = self._frames(small.chosen[:count] - np.int32(batch.first), batch.table, batch.ticks)
        self._groups.note_keys(frame_of, places, written, self._stager.keys.count)

    def _small_measures(self, small: SmallStager) -> np.ndarray:
        """The table of `Measured` for compiled staging: where each measure reads its values."""
        lanes = {(lane[LANE_FLOATING], lane[LANE_NUMBER], lane[LANE_COMPONENT]): lane for lane in small.lanes.tolist()}
        whats = {Form.LEAST: LEAST, Form.GREATEST: GREATEST}
        table, rows = [], [0, 0]
        for measure, source in zip(self._counted.measures, self._sources, strict=True):
            lane = lanes[int(source.floating), source.lane, measure.component]
            is_float = measure.kind is MeasureKind.FLOAT
            what = whats.get(measure.form, VALUE)
            read = (lane[LANE_PLACE], lane[LANE_COLUMN])
            table.append((measure.component, what, is_float, rows[is_float], measure.floating, *read))
            rows[is_float] += 1
        return np.array(table, np.int32).reshape(-1, 7)

    def _frames(self, rows: np.ndarray, table: pa.Table, ticks: np.ndarray) -> Callable[[np.ndarray], EventFrame]:
        """A function that makes a frame of some of the rows of a table."""

        def frame_of(places: np.ndarray) -> EventFrame:
            chosen = rows[places]
            return EventFrame(self._query, self._layout, table, ticks, lambda component: chosen, len(chosen))

        return frame_of

    def _take_in(self, rows: np.ndarray, block: Block[Instances], table: pa.Table, ticks: np.ndarray) -> None:
        instances, frame_of = block.events, self._frames(rows, table, ticks)
        self._groups.note_keys(frame_of, block.rows, instances, max(1, self._stager.keys.count))
        if self._stager.selected is not None:
            self._first_rows = np.empty(self._groups.count, np.int32)
            # What is written last stays, so backwards that is the first.
            self._first_rows[self._groups.key_group[instances.key[::-1]]] = rows[block.rows[::-1]]
        groups = np.empty(0, np.int32)
        if self._counted.split is not None:
            groups = self._groups.of_events(frame_of(np.arange(len(rows))), block.rows, instances)
        ints, floats = self._measured(instances)
        lanes = (instances.int_lanes, instances.float_lanes, instances.lane_flags)
        if not self._counted.compares_events:
            lanes = (instances.int_lanes[:0], instances.float_lanes[:0], instances.lane_flags[:0])
        self._buffer.add_counted(
            CounterInstances(instances.end, instances.key, instances.component, groups, ints, floats, *lanes)
        )
        self._check_held()

    def share_groups(self, groups: GroupIndex) -> None:
        """Use the groups of another operator, which stages the instances and assigns keys and groups."""
        self._groups = groups
        self._own_keys = False

    def continue_from(self, counts: np.ndarray, heaviest: float) -> None:
        """Start from the counts that another operator has kept since the start: [key, field, column], a count and
        integer sums of values up to `heaviest`. That operator also stages the instances.
        """
        self._largest[:] = heaviest
        assert isinstance(self._counters, MatrixCounters)
        self._counters.reserve(0, self._groups.key_group, self._groups.count)
        self._counters.continue_from(counts)

    def take(self, instances: CounterInstances) -> None:
        """Add instances, in order. Their keys must be known to the groups, and their measures must be integers."""
        if len(instances.tick):
            for number, values in enumerate(instances.ints):
                self._note_largest(number, values)
            self._buffer.add_counted(instances)
            self._check_held()

    def _check_held(self) -> None:
        if self._plan.window_ticks is None:
            self._limits.check_keys(f"query '{self._query.name}'", max(self._stager.keys.count - 1, self._groups.count))
        self._limits.check_held([self._query.name], self.held_events)

    def _measured(self, instances: Instances) -> tuple[np.ndarray, np.ndarray]:
        """The values that each instance adds to each measure."""
        count = len(instances.end)
        ints, floats = np.zeros((self._integers, count), np.int64), np.zeros((self._floats, count), np.float64)
        next_int = next_float = 0
        for number, (measure, lane) in enumerate(zip(self._counted.measures, self._sources, strict=True)):
            values = (instances.float_lanes if lane.floating else instances.int_lanes)[lane.lane]
            flags = instances.lane_flags[lane.lane + (instances.int_lanes.shape[0] if lane.floating else 0)]
            present = (flags == LaneFlag.VALUE) & (instances.component == measure.component)
            made = measured(measure, values, present)
            if measure.kind is MeasureKind.FLOAT:
                floats[next_float] = made
                next_float += 1
            else:
                ints[next_int] = made
                next_int += 1
            if measure.kind is MeasureKind.INTEGER:
                self._note_largest(number, made)
        return ints, floats

    def _note_largest(self, number: int, values: np.ndarray) -> None:
        if len(values):
            # As integers of Python, because the smallest int64 has no absolute value.
            self._largest[number] = max(self._largest[number], float(max(-int(values.min()), int(values.max()))))

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def _read(self, ready: Block[CounterInstances] | None, until: int) -> Answer:
        self._until = max(self._until, until)
        # One event may change many groups. At least as many rows as events are always allowed.
        most = self._limits.max_answer_events // 4
        self._counters.output.written[1] = most + 2 * (self._buffer.live + (0 if ready is None else ready.count))
        try:
            self._count(ready, until)
        except TooManyRowsError:
            raise LimitError(
                f"one call would return more than {most:,} rows for the counts of query '{self._query.name}', the "
                f"most that max_matches_per_timestamp={self._limits.max_matches_per_timestamp:,} allows; "
                "push fewer events "
                "at a time, group by an attribute with fewer values, give a smaller WITHIN window, or raise the limit"
            ) from None
        return self._collect()

    def _count(self, ready: Block[CounterInstances] | None, until: int) -> None:
        buffer, counters = self._buffer, self._counters
        first = buffer.count
        if ready is not None:
            buffer.append(ready)
        counters.reserve(buffer.capacity, self._groups.key_group, self._groups.count)
        counters.count(buffer.events, first, buffer.count, until, float(self._largest.max(initial=1.0)))
        if not counters.keeps_events:
            buffer.clear()

    # ── Rows ───────────────────────────────────────────────────────────────────────────────────────

    def _collect(self) -> Answer:
        output = self._counters.output
        count = int(output.written[0])
        output.written[0] = 0
        if self._partial:
            ticks = output.tick[:count].copy()
            groups = self._groups.show(output.group[:count])
            return Answer(changes_table(self.schema, output, count, groups, self._adds_at_most()), ticks, ticks)
        shown, values = emitted(
            self._counted,
            self._needed,
            (output.words[:count], output.reals[:count]),
            (output.before_words, output.before_reals),
            output.completed[:count],
            self._adds_at_most(),
        )
        shown_groups = output.group[shown]
        groups = self._groups.show(shown_groups)
        starts = None if self._first_rows is None else self._first_rows[shown_groups]
        return answer(self._query, self.schema, output.tick[shown], groups, values, starts, self._layout.scale)

    # ── A part of the stream ───────────────────────────────────────────────────────────────────────

    def search(self) -> Found:
        """The rows that all staged events produce."""
        found = self.answer(LATEST)
        return Found(found.ends, found.starts, found.table)

    def rows_of(self, slices: Sequence[tuple[pa.Table, int, int]], order: np.ndarray | None) -> pa.Table:
        """The rows of slices of several parts, in the given order."""
        rows = pa.concat_tables([table.slice(first, last - first) for table, first, last in slices]).combine_chunks()
        return rows if order is None else pa.table([take(one_array(c), order) for c in rows.columns], rows.schema)

    def tie_ranks(self, table: pa.Table, ticks: np.ndarray, ties: np.ndarray) -> np.ndarray:
        """Ranks that number simultaneous groups in the order of their first rows."""
        return ties

    def _adds_at_most(self) -> list[float]:
        """For each measure, an upper bound of what one match may add to it."""
        # Over a component with + one match may hold many values.
        several = 2.0**32 if any(c.kleene for c in self._query.components) else 1.0
        return [float(most) * several for most in self._largest]

    # ── Eviction ───────────────────────────────────────────────────────────────────────────────────

    def _evict(self, until: int) -> None:
        if self._plan.window_ticks is None:
            return
        if self._counters.keeps_events:
            self._buffer.evict_front(int(self._counters.state.counters[Counter.OLDEST]), self._rebase)
        self._compact_codes()

    def _rebase(self, dead: int, used: int) -> None:
        self._counters.rebase(dead, used)

    def _compact_codes(self) -> None:
        """Drop the keys, groups and texts that no live event has."""
        if self._own_keys and self._stager.keys.is_sparse(self.held_events):
            renamed = self._buffer.compact(self._stager.keys, "key", also=[self._queued_keys()])
            assert renamed is not None, "the buffer holds no more events than the operator"
            self._rekey(renamed)
        self._compact_groups()
        if self._compact_texts():
            self._counters.forget_codes()

    def _compact_groups(self) -> None:
        """Drop the groups that no live event has, if events decide groups."""
        split = self._counted.split
        if split is None or not is_sparse(self._groups.count, self.held_events):
            return
        blocks = self._buffer.blocks()
        held = [block.group[block.component == split] for block in blocks]
        renamed = self._groups.keep_groups(np.unique(np.concatenate([*held, self._counters.queued_groups()])))
        for block in blocks:
            block.group[:] = renamed[block.group]
        self._counters.regroup(renamed)

    def _queued_keys(self) -> np.ndarray:
        """The keys of live counters whose events are no longer in the buffer."""
        # A negated start forbids for a window, even if there is nothing to forbid yet.
        return self._counters.queued_keys(max(EARLIEST, self._until - (self._plan.window_ticks or 0)))

    def live_keys(self) -> np.ndarray:
        """The keys of all events and counters that are held."""
        return np.unique(np.concatenate([self._queued_keys(), *(block.key for block in self._buffer.blocks())]))

    def _rekey(self, renamed: np.ndarray) -> None:
        renamed_groups = self._groups.keep_keys(np.flatnonzero(renamed > EVERY_KEY))
        self._counters.rekey(renamed, self._groups.key_group, renamed_groups)

    def rename_keys(self, renamed: np.ndarray, renamed_groups: np.ndarray) -> None:
        """Replace keys by `renamed[key]`; -1 if a key is gone. The groups are already renamed."""
        for block in self._buffer.blocks():
            block.key[:] = renamed[block.key]
        self._counters.rekey(renamed, self._groups.key_group, renamed_groups)

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which rows are due without a further event; None if there is none."""
        ticks = [] if self._buffer.deadline is None else [self._buffer.deadline]
        window = self._plan.window_ticks
        if self._on_change and window is not None and (oldest := self._oldest_tick()) is not None:
            ticks.append(min(LATEST, oldest + window))
        return min(ticks, default=None)

    def _oldest_tick(self) -> int | None:
        if self._counters.keeps_events:
            oldest = int(self._counters.state.counters[Counter.OLDEST])
            return int(self._buffer.events.tick[oldest]) if oldest < self._buffer.count else None
        _, ticks = self._counters.queued()
        return int(ticks[0]) if len(ticks) else None

    def open_by_key(self, watermark: int) -> list[OpenKey]:
        """Each key that has live events: its values, the number of its events (in some ways only of first events of
        patterns), and the tick of the oldest.
        """
        keys, ticks = ([getattr(block, name) for block in self._buffer.blocks()] for name in ("key", "tick"))
        queued_keys, queued_ticks = self._counters.queued()
        keys.append(queued_keys)
        ticks.append(queued_ticks)
        return open_by_key(keys, ticks, expiry_bound(watermark, self._plan.window_ticks), self._stager.keys)

    @property
    def held_events(self) -> int:
        """The number of events that are pending or still counted."""
        return self._buffer.entries + len(self._counters.queued()[1])

    @property
    def room(self) -> int:
        """At least this many events can be read before a limit must be checked, if they return no rows."""
        keys = 0 if self._plan.window_ticks is not None else max(self._stager.keys.count, self._groups.count)
        return self._limits.max_buffered_events - max(self.held_events, keys)

    @property
    def held_room(self) -> int:
        """At least this many events can be held before a limit must be checked."""
        return self.room

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the kernel."""
        shown = (Counter.INSTANCES, Counter.STARTS, Counter.EXPIRED, Counter.FLIPS, Counter.ROWS, Counter.WIDE)
        return {counter.name.lower(): int(self._counters.state.counters[counter]) for counter in shown}

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; returns what `load` needs."""
        return {
            **super().dump(writer),
            "state": dump_arrays(self._counters.state, writer),
            # Shared ones are stored where they come from.
            "groups": self._groups.dump(writer) if self._own_keys else None,
            "largest": [float(value) for value in self._largest],
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        super().load(reader, head)
        self._counters.state = load_arrays(self._counters.state, head["state"], reader)
        if self._own_keys:
            self._groups.load(reader, head["groups"])
        self._largest = np.array(head["largest"], np.float64)


def _counting_order(block: Block[CounterInstances]) -> np.ndarray | None:
    """The order in which events are counted: by tick, then the last component first, then by key. So no event extends
    another one of its own tick. None if events are in that order.
    """
    events = block.events
    is_sorted = first_disorder(events.tick) < 0
    order = np.arange(block.count, dtype=np.int32) if is_sorted else stable_order(events.tick)
    tied = ties(events.tick if is_sorted else events.tick[order])
    if not len(tied.positions):
        return None if is_sorted else order
    places = order[tied.positions]
    component = events.component[places].astype(np.int16)
    order[tied.positions] = places[np.lexsort((events.key[places], -component, tied.groups))]
    return order
