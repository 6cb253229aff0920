"""Runs several aggregates in one pass. Events are staged once, and one tree of counters counts for all queries.

If 64 bits are no longer enough, each query continues on an operator of its own, with the events of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.engines.aggregate.groups import GroupIndex
from ouzel.engines.aggregate.operator import AggregateOperator
from ouzel.engines.aggregate.output import aggregate_schema, answer, emitted, measured
from ouzel.engines.aggregate.plan import needed_measures
from ouzel.engines.aggregate.sharing import SharedPlan
from ouzel.engines.aggregate.stacked import StackedCounters, WidenError, build_stacked_tables
from ouzel.engines.aggregate.tables import (
    ByElement,
    Counter,
    CounterInstances,
    MeasureKind,
    Part,
    SegmentPart,
    SharedLayout,
    SharedOutput,
    build_shared_tables,
    new_counter_instances,
    new_shared_output,
    new_shared_state,
    rekey_shared,
    reserve_shared,
)
from ouzel.engines.aggregate.tree import Expanded, SharedInstances, expand, scan_shared
from ouzel.errors import LimitError, OuzelError, StateError
from ouzel.kernels.events import EVERY_KEY, Instances
from ouzel.kernels.order import first_disorder, stable_order, ties
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.plan.lowering import Domain, LaneSpec, lower
from ouzel.runtime.buffer import LATEST, NO_ROWS, Block, StreamBuffer, chosen, part
from ouzel.runtime.frames import EventFrame
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import Answer, Operator
from ouzel.runtime.snapshot import Reader, Writer, dump_arrays, load_arrays
from ouzel.runtime.staging import Stager

# The rows of each query, or the error that stops it.
Answers = dict[str, Answer | OuzelError]


class SharedOperator(Operator):
    """Several queries that are counted together.

    In pending events, `element` is the number of a symbol. When an event becomes live, it has one instance for each
    element of the tree that it may fill.
    """

    def __init__(self, shared: SharedPlan, layout: Layout, limits: Limits) -> None:
        self._shared = shared
        self._plans = shared.plans
        self._needed = {name: needed_measures(plan) for name, plan in shared.plans.items()}
        self._tree = shared.tree
        self._layout = layout
        self._limits = limits
        lanes = lower(shared.stage).lanes
        self._weights = [
            (
                measure,
                lanes.lane(symbol, LaneSpec(measure.expression, Domain.FLOAT if measure.floating else Domain.INT)),
            )
            for symbol, measure in shared.weights.items()
        ]
        self._stager = Stager(shared.stage, lanes, layout)
        self._schemas = {name: aggregate_schema(plan.query, layout) for name, plan in shared.plans.items()}
        # Queries with the same groups share one index.
        alike: dict[object, GroupIndex] = {}
        self._groups: dict[str, GroupIndex] = {}
        for name, plan in shared.plans.items():
            kinds = tuple((key.path, self._schemas[name].field(key.name).type) for key in plan.query.group_by)
            if kinds not in alike:
                alike[kinds] = GroupIndex(shared.of(name), layout, self._schemas[name])
            self._groups[name] = alike[kinds]
        self._index_of = {index: name for name, index in reversed(self._groups.items())}
        self._buffer = StreamBuffer(self._room, time="tick", order=_by_tick)
        self._tables = self._laid_out()
        self._state = new_shared_state(self._tables.tables)
        self._output = self._new_output(1024)
        # Instead of the tree's state and output, if something cannot be subtracted when it leaves the window.
        self._stacks = self._new_stacks() if shared.by_stacks else None
        # The largest absolute weight so far.
        self._heaviest = 1.0
        # The separate queries, once 64 bits are no longer enough for all of them together.
        self._apart: dict[str, AggregateOperator] = {}
        self._detached: set[str] = set()

    def _laid_out(self) -> SharedLayout:
        tree = self._tree
        assert tree.window is None or tree.window.ticks is not None
        return build_shared_tables(
            tree.patterns,
            tree.segments,
            window=None if tree.window is None else tree.window.ticks,
            on_change=tree.on_change,
            summed=[bool(plan.readings) or plan.several_keys_a_group for plan in self._plans.values()],
            united=any(plan.readings for plan in self._plans.values()),
            columns=tree.columns,
            weighted=self._shared.weights.keys(),
            symbols=len(self._shared.stage.query.components),
            closes=self._shared.closes,
        )

    def _new_stacks(self) -> StackedCounters:
        kinds = {symbol: measure.kind for symbol, measure in self._shared.weights.items()}
        return StackedCounters(build_stacked_tables(self._tables, len(self._plans), kinds))

    @property
    def _counters(self) -> np.ndarray:
        return self._state.counters if self._stacks is None else self._stacks.state.counters

    def _new_output(self, rows: int) -> SharedOutput:
        return new_shared_output(rows, self._tables.tables.columns, on_change=self._tree.on_change)

    def _room(self, capacity: int) -> SharedInstances:
        return SharedInstances(
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.int32),
            np.zeros(capacity, np.uint16),
            np.zeros(capacity if self._weights else 0, np.int64),
        )

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each query's answer."""
        return self._schemas

    # ── Taking events in ───────────────────────────────────────────────────────────────────────────

    def stage(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool = False) -> None:
        """Add rows, in any order. The rows themselves are not kept."""
        rows, block = self._stager.stage(table, ticks)
        if not block.count:
            return

        def frame_of(places: np.ndarray) -> EventFrame:
            chosen = rows[places]
            return EventFrame(
                self._shared.stage.query, self._layout, table, ticks, lambda component: chosen, len(chosen)
            )

        instances = block.events
        for index in self._index_of:
            index.note_keys(frame_of, block.rows, instances, max(1, self._stager.keys.count))
        element = instances.component.astype(np.uint16)
        self._buffer.add_counted(SharedInstances(instances.end, instances.key, element, self._weighed(instances)))
        if self._tree.window is None:
            self._limits.check_keys(f"one of the queries {', '.join(self._shared.names)}", self._stager.keys.count - 1)
        self._limits.check_held(self._shared.names, self.held_events)

    def _weighed(self, instances: Instances) -> np.ndarray:
        """The weight of each instance, which is what it adds to sums; empty if no query sums."""
        if not self._weights:
            return np.empty(0, np.int64)
        weight = np.zeros(len(instances.end), np.int64)
        for measure, lane in self._weights:
            values = (instances.float_lanes if lane.floating else instances.int_lanes)[lane.lane]
            flags = instances.lane_flags[lane.lane + (instances.int_lanes.shape[0] if lane.floating else 0)]
            own = instances.component == measure.component
            made = measured(measure, values, (flags == LaneFlag.VALUE) & own)[own]
            if measure.kind is MeasureKind.INTEGER:
                # In floating point, because the smallest int64 has no absolute value.
                self._heaviest = max(self._heaviest, float(np.abs(made.astype(np.float64)).max(initial=1.0)))
            # Floats are stored by their bits.
            weight[own] = made.view(np.int64)
        return weight

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def advance(self, until: int) -> Answers:
        """Count the events up to `until`: no earlier event can come any more. Returns the rows of each query, or its
        error.
        """
        ready = self._buffer.take_ready(until)
        block, rows = self._expanded(self._room(0) if ready is None else ready.events)
        answers = self._advance_apart(block, until) if self._apart else self._advance_tree(block, rows, until)
        self._compact_codes()
        return answers

    def _expanded(self, ready: SharedInstances) -> Expanded:
        """One instance for each element that an event may fill. Within a tick, later elements come first."""
        block, rows = expand(self._tables, ready)
        if len(ties(ready.tick).positions):
            tied = ties(block.tick)
            # One number for both, because a sort of numbers that are almost in order is fast.
            by_rank = (
                tied.groups.astype(np.int64) * len(self._tables.rank) - self._tables.rank[block.element[tied.positions]]
            )
            order = np.arange(len(block.tick))
            order[tied.positions] = tied.positions[np.argsort(by_rank, kind="stable")]
            block = chosen(Block(NO_ROWS, block), order).events
        return Expanded(block, rows)

    def _advance_tree(self, block: SharedInstances, rows: int, until: int) -> Answers:
        if rows > len(self._output.tick):
            self._output = self._new_output(rows)
        buffer = self._buffer
        first = buffer.count
        if len(block.tick):
            buffer.append(Block(NO_ROWS, block))
        key_groups = [self._groups[name].key_group for name in self._plans]
        if self._stacks is not None:
            return self._advance_stacks(self._stacks, first, until)
        self._state = reserve_shared(self._tables.tables, self._state, key_groups)
        weights = np.array([self._heaviest if plan.measures else 1.0 for plan in self._plans.values()])
        self._output, widen_at = scan_shared(
            self._tables.tables,
            self._state,
            buffer.events,
            first,
            buffer.count,
            until,
            len(key_groups[0]),
            self._output,
            weights,
        )
        return self._advanced(self._collect(), widen_at, until)

    def _advanced(self, answers: Answers, widen_at: int, until: int) -> Answers:
        """The rows of the tree. If an instance is too much for the tree, the rows of separate operators follow from
        this instance on.
        """
        if widen_at >= 0:
            later = self._part_ways(widen_at, until)
            return {name: _concatenated(answers[name], more) for name, more in later.items()}
        if self._tree.window is None:
            self._buffer.clear()
        else:
            self._buffer.evict_front(int(self._counters[Counter.OLDEST]), self._rebase)
        return answers

    def _advance_stacks(self, stacks: StackedCounters, first: int, until: int) -> Answers:
        buffer, widen_at = self._buffer, -1
        stacks.reserve_all(buffer.capacity, [self._groups[name].key_group for name in self._plans])
        try:
            stacks.count(buffer.events, first, buffer.count, until, self._heaviest)
        except WidenError as error:
            widen_at = error.position
        output, queries = stacks.output, len(self._plans)
        count = int(output.written[0])
        output.written[0] = 0
        # Of 16 bits, because short integers are sorted by counting.
        own = (output.group[:count] % queries).astype(np.uint16)
        order = np.argsort(own, kind="stable")
        bounds = np.searchsorted(own[order], np.arange(queries + 1))
        answers: Answers = {}
        for query, (name, plan) in enumerate(self._plans.items()):
            if name in self._detached:
                continue
            rows = order[bounds[query] : bounds[query + 1]]
            earlier = (output.words[:0], output.reals[:0])
            if self._tree.on_change:
                earlier = (output.before_words[rows], output.before_reals[rows])
            try:
                shown, values = emitted(
                    plan,
                    self._needed[name],
                    (output.words[rows], output.reals[rows]),
                    earlier,
                    output.completed[rows],
                    [1.0] * len(plan.measures),
                )
                rows = rows[shown]
                groups = self._groups[name].show(output.group[rows] // queries)
                answers[name] = answer(
                    plan.query, self._schemas[name], output.tick[rows], groups, values, scale=self._layout.scale
                )
            except OuzelError as error:
                answers[name] = error
        return self._advanced(answers, widen_at, until)

    def _rebase(self, dead: int, used: int) -> None:
        if self._stacks is None:
            self._state.counters[Counter.OLDEST] -= dead
        else:
            self._stacks.rebase(dead, used)

    # ── Rows ───────────────────────────────────────────────────────────────────────────────────────

    def _collect(self) -> Answers:
        output = self._output
        count = int(output.written[0])
        output.written[0] = 0
        # Of 16 bits, because short integers are sorted by counting.
        order = np.argsort(output.query[:count].astype(np.uint16), kind="stable")
        if self._weights:
            order = order[output.completed[order] != 0]
        bounds = np.searchsorted(output.query[order], np.arange(len(self._plans) + 1))
        answers: Answers = {}
        for number, name in enumerate(self._plans):
            if name in self._detached:
                continue
            try:
                answers[name] = self._collect_one(name, order[bounds[number] : bounds[number + 1]])
            except OuzelError as error:
                answers[name] = error
        return answers

    def _collect_one(self, name: str, rows: np.ndarray) -> Answer:
        output, plan = self._output, self._plans[name]
        sums = len(plan.measures)
        words = np.zeros((len(rows), 2 + 2 * sums), np.uint64)
        words[:, 0::2] = output.value[rows, : 1 + sums]
        words[:, 3::2] = (words[:, 2::2].view(np.int64) >> 63).view(np.uint64)
        earlier = np.zeros((len(rows), 2), np.uint64)
        if self._tree.on_change:
            earlier[:, 0] = output.before[rows]
        # Nothing wider than 64 bits gets here.
        after, before = ((some, some[:, :1].astype(np.float64)) for some in (words, earlier))
        shown, values = emitted(plan, self._needed[name], after, before, output.completed[rows], [1.0] * sums)
        rows = rows[shown]
        groups = self._groups[name].show(output.group[rows])
        return answer(plan.query, self._schemas[name], output.tick[rows], groups, values, scale=self._layout.scale)

    # ── One by one ─────────────────────────────────────────────────────────────────────────────────

    def _part_ways(self, widen_at: int, until: int) -> Answers:
        """Replace the tree by one operator for each query, from the tick of the instance at `widen_at` on. Returns the
        rows of these operators.
        """
        if any(plan.readings for plan in self._plans.values()):
            return {name: _too_many(name) for name in self._plans}
        events, count = self._buffer.events, self._buffer.count
        rest = part(events, widen_at, count)
        self._buffer.clear()
        self._make_apart()
        if self._tree.window is None:
            self._take_counts()
            return self._advance_apart(rest, until)
        tick = int(events.tick[widen_at])
        oldest = int(self._counters[Counter.OLDEST])
        if self._tree.on_change:
            # What expires with the tick is emitted with it.
            assert self._tree.window.ticks is not None
            oldest = int(np.searchsorted(events.tick[:widen_at], tick - self._tree.window.ticks))
        # The rows of what is in the window were emitted before.
        self._advance_apart(part(events, oldest, widen_at), tick - 1)
        return self._advance_apart(rest, until)

    def _take_counts(self) -> None:
        """Give each operator the counts of the tree. Needed without a window, because events are not kept to be counted
        again.
        """
        keys, block = int(self._state.opened[0]), self._tables.tables.block
        words = self._state.words[: keys * block].reshape(keys, block)
        coordinates = self._tables.tables.by_element[:, ByElement.COORDINATE]
        for query, (name, operator) in enumerate(self._apart.items()):
            fields = np.stack([words[:, [0, *coordinates[list(path)]]] for path in self._paths_of(query)], axis=1)
            for field, measure in enumerate(self._plans[name].measures, start=1):
                # Up to the component that it is over, a sum has the prefixes of the count.
                fields[:, field, : 1 + measure.component] = 0
            if name not in self._detached:
                operator.continue_from(fields, self._heaviest)

    def _make_apart(self) -> None:
        self._apart = {name: self._operator_of(name) for name in self._plans}

    def _operator_of(self, name: str) -> AggregateOperator:
        operator = AggregateOperator(self._plans[name], self._layout, self._limits)
        operator.share_groups(self._groups[name])
        return operator

    def detach(self, query: str) -> None:
        """Remove one query. Parts that it shared with others are still counted."""
        self._detached.add(query)
        if self._apart:
            self._apart[query] = self._operator_of(query)

    def _paths_of(self, query: int) -> list[tuple[int, ...]]:
        """The paths of elements that give a query's count and each of its sums."""
        return [self._tables.paths[number] for number, (own, _) in enumerate(self._tree.columns) if own == query]

    def _advance_apart(self, block: SharedInstances, until: int) -> Answers:
        answers: Answers = {}
        for query, (name, operator) in enumerate(self._apart.items()):
            if name in self._detached:
                continue
            path, *sums = self._paths_of(query)
            plan = self._plans[name]
            places = {one.position: place for place, one in enumerate(plan.positives)}
            component = np.full(len(self._tables.symbol), 255, np.uint8)
            component[list(path)] = list(places)
            before = -1
            for one in plan.query.components:
                if one.negated:
                    # Of negative components that are the same symbol there is one element.
                    closers = self._tables.closers[path[before]]
                    component[closers[self._shared.number_of(name, one)]] = one.position
                else:
                    before += 1
            own = np.flatnonzero(component[block.element] != 255)
            floats = sum(measure.kind is MeasureKind.FLOAT for measure in plan.measures)
            instances = _counter_instances(block, component, own, len(sums) - floats, floats)
            ints, reals = iter(instances.ints), iter(instances.floats)
            for measure, over in zip(plan.measures, sums, strict=True):
                # The same events fill both, in the same order.
                summed = block.weight[block.element == over[places[measure.component]]]
                filled = instances.component == measure.component
                if measure.kind is MeasureKind.FLOAT:
                    next(reals)[filled] = summed.view(np.float64)
                else:
                    next(ints)[filled] = summed
            try:
                operator.take(instances)
                answers[name] = operator.answer(until)
            except OuzelError as error:
                answers[name] = error
        return answers

    # ── Eviction ───────────────────────────────────────────────────────────────────────────────────

    def _compact_codes(self) -> None:
        """Drop the keys, and groups that keys decide, that no live event has."""
        if self._tree.window is None or not self._stager.keys.is_sparse(self.held_events):
            return
        apart = [operator.live_keys() for operator in self._apart.values()]
        renamed = self._buffer.compact(self._stager.keys, "key", also=apart)
        assert renamed is not None, "the buffer holds no more events than the operator"
        live = np.flatnonzero(renamed > EVERY_KEY)
        renamed_groups = {index: index.keep_keys(live) for index in self._index_of}
        for name, operator in self._apart.items():
            operator.rename_keys(renamed, renamed_groups[self._groups[name]])
        if not self._apart and self._stacks is not None:
            self._stacks.rekey(renamed, self._stacks.state.key_group, live.astype(np.int32))
        elif not self._apart:
            key_groups = [self._groups[name].key_group for name in self._plans]
            self._state = rekey_shared(self._tables.tables, self._state, live.astype(np.int32), key_groups)

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which rows are due without a further event; None if there is none."""
        ticks = [self._buffer.deadline, *(operator.next_deadline for operator in self._apart.values())]
        oldest = int(self._counters[Counter.OLDEST])
        if self._tree.on_change and not self._apart and oldest < self._buffer.count:
            assert self._tree.window is not None and self._tree.window.ticks is not None
            ticks.append(min(LATEST, int(self._buffer.events.tick[oldest]) + self._tree.window.ticks))
        return min((tick for tick in ticks if tick is not None), default=None)

    @property
    def held_events(self) -> int:
        """The number of pending and live events."""
        return self._buffer.entries + sum(operator.held_events for operator in self._apart.values())

    @property
    def room(self) -> int:
        """At least this many events can be read before a limit must be checked, if they return no rows."""
        keys = self._stager.keys.count if self._tree.window is None else 0
        return self._limits.max_buffered_events - max(self.held_events, keys)

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the tree."""
        shown = (Counter.INSTANCES, Counter.EXPIRED, Counter.ROWS)
        return {counter.name.lower(): int(self._counters[counter]) for counter in shown}

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; returns what `load` needs."""
        return {
            "buffer": self._buffer.dump(writer),
            "coders": self._stager.dump(writer),
            "heaviest": self._heaviest,
            "groups": {name: index.dump(writer) for index, name in self._index_of.items()},
            "patterns": _parts_as_json(self._tree.patterns),
            "segments": self._tree.segments,
            "state": dump_arrays(self._state if self._stacks is None else self._stacks.state, writer),
            "apart": [operator.dump(writer) for operator in self._apart.values()],
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        self._buffer.load(reader, head["buffer"])
        self._stager.load(reader, head["coders"])
        self._heaviest = head["heaviest"]
        for index, name in self._index_of.items():
            index.load(reader, head["groups"][name])
        # Another version may choose other segments: the stored counters keep theirs.
        segments = tuple(map(tuple, head["segments"]))
        self._tree = replace(self._tree, patterns=_parts_of_json(head["patterns"]), segments=segments)
        self._tables = self._laid_out()
        self._output = self._new_output(1024)
        if self._stacks is not None:
            self._stacks = self._new_stacks()
            self._stacks.state = load_arrays(self._stacks.state, head["state"], reader)
        else:
            self._state = load_arrays(self._state, head["state"], reader)
        if self._state.words.size != len(self._state.bound) * self._tables.tables.block:
            raise StateError("this snapshot has another form of counters; restore it with the version that made it")
        if head["apart"]:
            self._make_apart()
            for operator, stored in zip(self._apart.values(), head["apart"], strict=True):
                operator.load(reader, stored)


def _by_tick(block: Block[SharedInstances]) -> np.ndarray | None:
    """The order by tick; None if events are already in that order."""
    ticks = block.events.tick
    return None if first_disorder(ticks) < 0 else stable_order(ticks)


def _parts_as_json(patterns: Sequence[Sequence[Part]]) -> list[list[Any]]:
    """The parts of patterns for JSON. A segment becomes a list that contains its number."""
    return [[[part.segment] if isinstance(part, SegmentPart) else part for part in pattern] for pattern in patterns]


def _parts_of_json(stored: list[list[Any]]) -> tuple[tuple[Part, ...], ...]:
    return tuple(tuple(SegmentPart(*part) if isinstance(part, list) else part for part in one) for one in stored)


def _counter_instances(
    block: SharedInstances, component: np.ndarray, own: np.ndarray, ints: int, floats: int
) -> CounterInstances:
    """The instances of one query, numbered by its own components. Values for measures are not set yet."""
    made = new_counter_instances(len(own), ints, floats)
    return made._replace(tick=block.tick[own], key=block.key[own], component=component[block.element[own]])


def _too_many(name: str) -> LimitError:
    return LimitError(
        f"query '{name}' has more matches in its window than 64 bits can count, over all its readings; give a smaller "
        "WITHIN window, a more selective WHERE, or a query for each alternative"
    )


def _concatenated(first: Answer | OuzelError, second: Answer | OuzelError) -> Answer | OuzelError:
    if isinstance(first, OuzelError) or isinstance(second, OuzelError):
        return first if isinstance(first, OuzelError) else second
    ticks = np.concatenate([first.ends, second.ends])
    return Answer(pa.concat_tables([first.table, second.table]), ticks, ticks)
