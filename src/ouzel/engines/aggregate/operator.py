"""Runs aggregates over matches without building the matches: orders events, counts them, and evicts them.

Between calls the operator holds the pending events, the counters and, if events leave the window one by one, the live
instances in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.engines.aggregate.edges import (
    GraphState,
    build_graph_tables,
    new_graph_state,
    rebase_graph,
    regroup_graph,
    rekey_graph,
    reserve_graph,
    scan_graph,
)
from ouzel.engines.aggregate.groups import GroupIndex, chosen, ready_and_rest
from ouzel.engines.aggregate.matrix import rekey_matrix, scan_matrix, take_over
from ouzel.engines.aggregate.matrix_state import MatrixState, new_matrix_state, rebase_matrix, reserve_matrix
from ouzel.engines.aggregate.output import aggregate_schema, answer, columns_of, measured, rows_to_emit
from ouzel.engines.aggregate.partial import changes_schema, changes_table
from ouzel.engines.aggregate.per_start import (
    Cell,
    RowState,
    new_row_state,
    regroup_rows,
    rekey_rows,
    reserve_rows,
    scan_rows,
)
from ouzel.engines.aggregate.plan import AggregatePlan
from ouzel.engines.aggregate.tables import (
    Counter,
    CounterInstances,
    Measure,
    MeasureKind,
    TooManyRowsError,
    Way,
    build_counter_tables,
    new_counter_instances,
    new_counter_output,
)
from ouzel.errors import LimitError
from ouzel.kernels.events import EVERY_KEY, Instances
from ouzel.kernels.order import ties
from ouzel.kernels.predicate_tables import Alternative, LaneFlag
from ouzel.plan.lowering import Domain, LaneSpec, lower
from ouzel.runtime.buffer import EARLIEST, LATEST, open_by_key
from ouzel.runtime.codes import COMPACT_MIN
from ouzel.runtime.frames import EventFrame
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import Answer, QueryOperator
from ouzel.runtime.snapshot import Reader, Writer, dump_arrays, load_arrays
from ouzel.runtime.staging import Stager


class AggregateOperator(QueryOperator):
    """The state of one query. `stage` takes in events; `advance` moves time and returns the rows."""

    def __init__(self, plan: AggregatePlan, layout: Layout, limits: Limits, *, partial: bool = False) -> None:
        assert plan.way is not None
        self._plan = plan
        # Whether only a part of the stream is seen here: then every change is emitted, because totals over all parts
        # need it.
        self._partial = partial
        self._on_change = partial or plan.query.emit_on_change
        self._query = plan.query
        self.name = plan.query.name
        self._layout = layout
        self._limits = limits
        # Predicates between events come first, so that their lowering still fits.
        self._lowered = lower(plan)
        self._lanes = self._lowered.lanes
        self._sources = [
            self._lanes.lane(
                measure.component,
                LaneSpec(measure.expression, Domain.FLOAT if measure.floating else Domain.INT),
            )
            for measure in plan.measures
        ]
        self._stager = Stager(plan, self._lanes, layout)
        shown = aggregate_schema(self._query, layout)
        self._groups = GroupIndex(plan, layout, shown)
        self.schema = changes_schema(plan, shown) if partial else shown
        self._tables = build_counter_tables(
            [c.negated for c in self._query.components],
            [c.kleene for c in self._query.components],
            plan.window_ticks,
            self._measures(),
            way=plan.way,
            on_change=self._on_change,
            split=plan.split,
        )
        self._integers = sum(measure.kind is not MeasureKind.FLOAT for measure in plan.measures)
        self._floats = len(plan.measures) - self._integers
        # The largest absolute value of each measure so far.
        self._largest = np.ones(len(plan.measures), np.float64)
        self._keeps_events = plan.way in (Way.INVERSE, Way.STACKS, Way.GRAPH)
        self._pending: list[CounterInstances] = []
        self._live = self._room(0)
        self._live_count = 0
        self._rows_state = new_row_state(self._tables)
        self._matrix_state = new_matrix_state(self._tables)
        self._graph = build_graph_tables(self._tables, self._edges())
        self._graph_state = new_graph_state(self._graph)
        self._output = new_counter_output(self._tables)
        self._own_keys = True
        self._until = EARLIEST

    def _measures(self) -> list[Measure]:
        made = []
        lanes = {MeasureKind.FLOAT: 0, MeasureKind.INTEGER: 0}
        for measure in self._plan.measures:
            store = MeasureKind.FLOAT if measure.kind is MeasureKind.FLOAT else MeasureKind.INTEGER
            made.append(Measure(measure.kind, measure.component, lanes[store], measure.over))
            lanes[store] += 1
        return made

    def _edges(self) -> list[tuple[int, tuple[Alternative, ...]]]:
        """Predicates between neighbours, by the place of the earlier one."""
        place = {component.position: number for number, component in enumerate(self._query.positives)}
        return [(min(place[c] for c in one.components), one.alternatives) for one in self._lowered.construction]

    def _room(self, capacity: int) -> CounterInstances:
        graph = self._plan.way is Way.GRAPH
        return new_counter_instances(
            capacity,
            self._integers,
            self._floats,
            grouped=self._plan.split is not None,
            int_lanes=self._lanes.int_count if graph else 0,
            float_lanes=self._lanes.float_count if graph else 0,
        )

    @property
    def _state(self) -> MatrixState | RowState | GraphState:
        if self._plan.way is Way.GRAPH:
            return self._graph_state
        return self._rows_state if self._plan.way is Way.PER_START else self._matrix_state

    # ── Taking events in ───────────────────────────────────────────────────────────────────────────

    def stage(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool = False) -> None:
        """Take in rows, in any order."""
        rows, block = self._stager.stage(table, ticks)
        if not block.count:
            return

        def frame_of(places: np.ndarray) -> EventFrame:
            chosen = rows[places]
            return EventFrame(self._query, self._layout, table, ticks, lambda component: chosen, len(chosen))

        instances = block.events
        self._groups.note_keys(frame_of, block.rows, instances, max(1, self._stager.keys.count))
        groups = np.empty(0, np.int32)
        if self._plan.split is not None:
            groups = self._groups.of_events(frame_of(np.arange(len(rows))), block.rows, instances)
        ints, floats = self._measured(instances)
        lanes = (instances.int_lanes, instances.float_lanes, instances.lane_flags)
        if self._plan.way is not Way.GRAPH:
            lanes = (instances.int_lanes[:0], instances.float_lanes[:0], instances.lane_flags[:0])
        self._pending.append(
            CounterInstances(instances.end, instances.key, instances.component, groups, ints, floats, *lanes)
        )
        self._check_held()

    def share_groups(self, groups: GroupIndex) -> None:
        """Another operator stages the instances, and knows the keys and their groups."""
        self._groups = groups
        self._own_keys = False

    def go_on_from(self, counts: np.ndarray, heaviest: float) -> None:
        """Start from the counts of another operator since the start, [key, field, column]: a count and integer sums,
        over values up to `heaviest`. That operator also stages the instances."""
        self._largest[:] = heaviest
        groups = self._groups.key_group
        state = reserve_matrix(self._tables, self._matrix_state, 0, max(len(counts), len(groups)), groups)
        take_over(self._tables, state, counts)
        self._matrix_state = state

    def take(self, instances: CounterInstances) -> None:
        """Take in instances, in order, whose keys the groups know. Their measures are integers."""
        if len(instances.tick):
            for number, values in enumerate(instances.ints):
                self._note_largest(number, values)
            self._pending.append(instances)
            self._check_held()

    def _check_held(self) -> None:
        if self._plan.window_ticks is None:
            self._limits.check_keys(f"query '{self._query.name}'", max(self._stager.keys.count - 1, self._groups.count))
        self._limits.check_held([self._query.name], self.held_events)

    def _measured(self, instances: Instances) -> tuple[np.ndarray, np.ndarray]:
        """What each instance adds to each measure."""
        count = len(instances.end)
        ints, floats = np.zeros((self._integers, count), np.int64), np.zeros((self._floats, count), np.float64)
        next_int = next_float = 0
        for number, (measure, lane) in enumerate(zip(self._plan.measures, self._sources, strict=True)):
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
            # In floating point, because the smallest int64 has no absolute value.
            self._largest[number] = max(self._largest[number], float(np.abs(values.astype(np.float64)).max()))

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def answer(self, until: int) -> Answer:
        """Count what is ready, and give what has changed."""
        self._until = max(self._until, until)
        ready = self._take_ready(until)
        # One event may change many groups. At least as many rows as events are always allowed.
        most = self._limits.max_answer_events // 4
        self._output.written[1] = most + 2 * (self._live_count + len(ready.tick))
        try:
            if self._plan.way is Way.PER_START:
                self._count_in_rows(ready, until)
            else:
                self._count_in_matrices(ready, until)
        except TooManyRowsError:
            raise LimitError(
                f"the counts of query '{self._query.name}' that one call returns have more than {most:,} rows, the "
                f"most that max_matches_per_timestamp={self._limits.max_matches_per_timestamp:,} allows; "
                "push fewer events "
                "at a time, group by an attribute with fewer values, give a smaller WITHIN window, or raise the limit"
            ) from None
        answer = self._collect()
        self._forget()
        return answer

    def _take_ready(self, until: int) -> CounterInstances:
        """The pending instances at or before a tick, in the order of the counters."""
        if not self._pending:
            return self._room(0)
        block, self._pending = ready_and_rest(self._pending, until)
        tied = ties(block.tick)
        if len(tied.positions):
            # Within a timestamp the last component comes first, so that no event extends another one of its own
            # timestamp.
            component = block.component[tied.positions].astype(np.int16)
            inner = np.lexsort((block.key[tied.positions], -component, tied.groups))
            order = np.arange(len(block.tick))
            order[tied.positions] = tied.positions[inner]
            block = chosen(block, order)
        return block

    @property
    def _largest_weight(self) -> float:
        return float(self._largest.max(initial=1.0))

    def _count_in_rows(self, ready: CounterInstances, until: int) -> None:
        groups = self._groups
        state = reserve_rows(self._tables, self._rows_state, len(groups.key_group), groups.count)
        state.key_group[: len(groups.key_group)] = groups.key_group
        self._rows_state, self._output = scan_rows(
            self._tables, state, ready, 0, len(ready.tick), until, self._output, self._largest_weight
        )

    def _count_in_matrices(self, ready: CounterInstances, until: int) -> None:
        first = self._live_count
        if self._keeps_events:
            self._append(ready)
        else:
            self._live, self._live_count, first = ready, len(ready.tick), 0
        groups = self._groups
        if self._plan.way is Way.GRAPH:
            graph_state = reserve_graph(
                self._graph, self._graph_state, len(self._live.tick), groups.key_group, groups.count
            )
            self._graph_state, self._output = scan_graph(
                self._graph, graph_state, self._live, first, self._live_count, until, self._output
            )
            return
        state = reserve_matrix(
            self._tables, self._matrix_state, len(self._live.tick), len(groups.key_group), groups.key_group
        )
        self._matrix_state, self._output = scan_matrix(
            self._tables,
            state,
            self._live,
            first,
            self._live_count,
            until,
            self._output,
            self._largest_weight,
            several=self._plan.several_keys_a_group,
        )
        if not self._keeps_events:
            self._live, self._live_count = self._room(0), 0

    def _append(self, block: CounterInstances) -> None:
        if not self._live_count:
            self._live, self._live_count = block, len(block.tick)
            return
        total = self._live_count + len(block.tick)
        if total > len(self._live.tick):
            grown = self._room(max(total, 2 * self._live_count))
            _copy(self._live, 0, self._live_count, grown, 0)
            self._live = grown
        _copy(block, 0, len(block.tick), self._live, self._live_count)
        self._live_count = total

    # ── Telling ────────────────────────────────────────────────────────────────────────────────────

    def _collect(self) -> Answer:
        output = self._output
        count = int(output.written[0])
        output.written[0] = 0
        if self._partial:
            ticks = output.tick[:count].copy()
            groups = self._groups.show(output.group[:count])
            return Answer(changes_table(self.schema, output, count, groups, self._adds_at_most()), ticks, ticks)
        emitted = np.arange(count)
        values = self._columns(output.words[:count], output.reals[:count])
        if self._on_change and count:
            expiry = np.flatnonzero(output.completed[:count] == 0)
            before = self._columns(output.before_words[expiry], output.before_reals[expiry])
            emitted = rows_to_emit(self._query, output.completed[:count], values, before)
            places = pa.array(emitted)
            values = {name: column.take(places) for name, column in values.items()}
        groups = self._groups.show(output.group[emitted])
        return answer(self._query, self.schema, output.tick[emitted], groups, values)

    def _columns(self, words: np.ndarray, reals: np.ndarray) -> dict[str, pa.Array]:
        return columns_of(self._query, self._plan.measures, words, reals, self._adds_at_most())

    def _adds_at_most(self) -> list[float]:
        """For each measure a bound on what one match may add to it."""
        # Over a component with + one match may hold many values.
        several = 2.0**32 if any(c.kleene for c in self._query.components) else 1.0
        return [float(most) * several for most in self._largest]

    # ── Letting go ─────────────────────────────────────────────────────────────────────────────────

    def _forget(self) -> None:
        if self._plan.window_ticks is None:
            return
        if self._keeps_events:
            dead = int(self._state.counters[Counter.OLDEST])
            if (dead == self._live_count and dead) or dead > max(COMPACT_MIN, self._live_count - dead):
                if self._plan.way is Way.GRAPH:
                    rebase_graph(self._graph_state, dead, self._live_count)
                else:
                    rebase_matrix(self._matrix_state, dead, self._live_count)
                kept = self._room(self._live_count - dead)
                _copy(self._live, dead, self._live_count - dead, kept, 0)
                self._live, self._live_count = kept, self._live_count - dead
        self._forget_keys()
        self._forget_groups()

    def _forget_groups(self) -> None:
        """Drop unused groups, if events decide the groups."""
        split = self._plan.split
        if split is None or self._groups.count <= 2 * max(COMPACT_MIN, self.held_events):
            return
        blocks = [*self._pending, _cut(self._live, self._live_count)]
        # None at all after a pause in which everything has expired.
        held: list[np.ndarray] = [self._live.group[:0]]
        held += [block.group[block.component == split] for block in blocks if len(block.group)]
        if self._plan.way is Way.PER_START:
            held.append(self._rows_state.live_groups(self._tables))
        live = np.unique(np.concatenate(held))
        renamed = self._groups.keep_groups(live)
        for block in blocks:
            if len(block.group):
                block.group[:] = renamed[block.group]
        if self._plan.way is Way.GRAPH:
            self._graph_state = regroup_graph(self._graph, self._graph_state, renamed)
        else:
            self._rows_state = regroup_rows(self._tables, self._rows_state, renamed)

    def _forget_keys(self) -> None:
        """Drop keys, and groups that keys decide, if no live event has them: memory follows the window."""
        if not self._own_keys or self._stager.keys.count <= 2 * max(COMPACT_MIN, self.held_events):
            return
        keys = self.live_keys()
        keys = keys[keys > EVERY_KEY]
        renamed = self._stager.keys.compact(keys)
        renamed_groups = self._groups.keep_keys(keys)
        self.rename_keys(keys, renamed, renamed_groups)

    def live_keys(self) -> np.ndarray:
        """The keys of everything that is held."""
        live: list[np.ndarray] = [block.key for block in self._pending]
        if self._keeps_events:
            live.append(self._live.key[: self._live_count])
        else:
            # A negated start forbids for a window, even if there is nothing to forbid yet.
            live.append(self._rows_state.live_keys(max(EARLIEST, self._until - (self._plan.window_ticks or 0))))
        return np.unique(np.concatenate(live))

    def rename_keys(self, keys: np.ndarray, renamed: np.ndarray, renamed_groups: np.ndarray) -> None:
        """Key `keys[k]` is now k + 1; `renamed` has the new code of every old one. The groups are renamed already."""
        for block in (*self._pending, _cut(self._live, self._live_count)):
            block.key[:] = renamed[block.key]
        groups = self._groups
        if self._plan.way is Way.GRAPH:
            self._graph_state = rekey_graph(self._graph, self._graph_state, keys, groups.key_group, renamed_groups)
        elif self._keeps_events:
            self._matrix_state = rekey_matrix(self._tables, self._matrix_state, keys, groups.key_group)
        else:
            self._rows_state = rekey_rows(self._tables, self._rows_state, renamed, groups.key_group, renamed_groups)

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which time alone can complete something."""
        ticks = [int(block.tick.min()) for block in self._pending if len(block.tick)]
        window = self._plan.window_ticks
        if self._on_change and window is not None:
            oldest = self._oldest_tick()
            if oldest is not None:
                ticks.append(min(LATEST, oldest + window))
        return min(ticks, default=None)

    def _oldest_tick(self) -> int | None:
        counters = self._state.counters
        oldest = int(counters[Counter.OLDEST])
        if self._keeps_events:
            return int(self._live.tick[oldest]) if oldest < self._live_count else None
        waiting = oldest < int(counters[Counter.QUEUED])
        return int(self._rows_state.queue_tick[oldest]) if waiting else None

    def open_by_key(self, watermark: int) -> list[tuple[tuple[int | str, ...], int, int]]:
        """The keys of what is counted: their values, the number of events (for some ways only first events of
        patterns), and the tick of the oldest."""
        window = self._plan.window_ticks
        keys, ticks = ([getattr(block, name) for block in self._pending] for name in ("key", "tick"))
        if self._keeps_events:
            keys.append(self._live.key[: self._live_count])
            ticks.append(self._live.tick[: self._live_count])
        elif self._plan.way is Way.PER_START:
            state = self._rows_state
            queued = slice(state.counters[Counter.OLDEST], state.counters[Counter.QUEUED])
            keys.append(state.cells[state.queue_cell[queued], Cell.KEY])
            ticks.append(state.queue_tick[queued])
        dead_until = EARLIEST if window is None else max(EARLIEST, watermark + 1 - window)
        return open_by_key(keys, ticks, dead_until, self._stager.keys)

    @property
    def held_events(self) -> int:
        """The number of events that are pending, or live in any form."""
        pending = sum(len(block.tick) for block in self._pending)
        counters = self._state.counters
        if self._plan.way is Way.PER_START:
            return pending + int(counters[Counter.QUEUED] - counters[Counter.OLDEST])
        return pending + self._live_count

    @property
    def room(self) -> int:
        """A lower bound of the events without an answer that may come before a limit must be checked."""
        keys = 0 if self._plan.window_ticks is not None else max(self._stager.keys.count, self._groups.count)
        return self._limits.max_buffered_events - max(self.held_events, keys)

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the kernel."""
        shown = (Counter.INSTANCES, Counter.STARTS, Counter.EXPIRED, Counter.FLIPS, Counter.ROWS, Counter.WIDE)
        return {counter.name.lower(): int(self._state.counters[counter]) for counter in shown}

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; `load` takes what this returns."""
        return {
            "state": dump_arrays(self._state, writer),
            "live": dump_arrays(_cut(self._live, self._live_count), writer),
            "pending": [dump_arrays(block, writer) for block in self._pending],
            "groups": self._groups.dump(writer),
            "largest": [float(value) for value in self._largest],
            "coders": self._stager.dump(writer),
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Take back what `dump` stored."""
        if self._plan.way is Way.GRAPH:
            self._graph_state = load_arrays(self._graph_state, head["state"], reader)
        elif self._plan.way is Way.PER_START:
            self._rows_state = load_arrays(self._rows_state, head["state"], reader)
        else:
            self._matrix_state = load_arrays(self._matrix_state, head["state"], reader)
        self._live = load_arrays(self._live, head["live"], reader)
        self._live_count = len(self._live.tick)
        self._pending = [load_arrays(self._room(0), block, reader) for block in head["pending"]]
        self._groups.load(reader, head["groups"])
        self._largest = np.array(head["largest"], np.float64)
        self._stager.load(reader, head["coders"])


def _cut(block: CounterInstances, count: int) -> CounterInstances:
    """The first instances, as views."""
    return CounterInstances._make(array[..., :count] for array in block)


def _copy(source: CounterInstances, first: int, count: int, target: CounterInstances, at: int) -> None:
    arrays: Any = zip(source, target, strict=True)
    for read, written in arrays:
        if written.shape[-1]:
            written[..., at : at + count] = read[..., first : first + count]
