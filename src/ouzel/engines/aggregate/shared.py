"""Runs several aggregates in one pass: events are staged once, and a tree of counters counts for all of them.

If 64 bits are no longer enough, the queries continue alone, with the same window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.engines.aggregate.groups import GroupIndex, chosen, ready_and_rest
from ouzel.engines.aggregate.operator import AggregateOperator
from ouzel.engines.aggregate.output import aggregate_schema, answer, columns_of, measured, rows_to_emit
from ouzel.engines.aggregate.sharing import Bank, SharedPlan
from ouzel.engines.aggregate.tables import Counter, CounterInstances, new_counter_instances
from ouzel.engines.aggregate.tree import Expanded, SharedInstances, expand, scan_shared
from ouzel.engines.aggregate.tree_tables import (
    ByElement,
    Part,
    SegmentPart,
    SharedLayout,
    SharedOutput,
    build_shared_tables,
    new_shared_output,
    new_shared_state,
    rekey_shared,
    reserve_shared,
)
from ouzel.errors import OuzelError, StateError
from ouzel.kernels.arrays import enlarged
from ouzel.kernels.events import EVERY_KEY, Instances
from ouzel.kernels.order import ties
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.plan.lowering import Domain, LaneSpec, lower
from ouzel.runtime.buffer import LATEST
from ouzel.runtime.codes import COMPACT_MIN
from ouzel.runtime.frames import EventFrame
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import Answer, Operator
from ouzel.runtime.snapshot import Reader, Writer, dump_arrays, load_arrays
from ouzel.runtime.staging import Stager

# The result of each query: its rows, or the error that stops it.
Answers = dict[str, Answer | OuzelError]


class BankCounters:
    """The counters of the queries with one window."""

    def __init__(
        self,
        shared: SharedPlan,
        bank: Bank,
        books: Mapping[str, GroupIndex],
        schemas: Mapping[str, pa.Schema],
        layout: Layout,
        limits: Limits,
    ) -> None:
        self._plans = {name: shared.plans[name] for name in bank.names}
        self._books = books
        self._schemas = schemas
        self._event_layout = layout
        self._limits = limits
        self._shared = shared
        self._bank = bank
        self._layout = self._laid_out()
        self._columns = bank.columns
        self._sums = any(column for _, column in bank.columns)
        self.state = new_shared_state(self._layout.tables)
        self._output = self._new_output(1024)
        self._live = no_instances()
        self._count = 0
        # The separate queries, once 64 bits are no longer enough for all of them together.
        self._apart: dict[str, AggregateOperator] = {}
        self._detached: set[str] = set()

    def _laid_out(self) -> SharedLayout:
        window = self._bank.window
        assert window is None or window.ticks is not None
        return build_shared_tables(
            self._bank.patterns,
            self._bank.segments,
            window=None if window is None else window.ticks,
            on_change=self._bank.on_change,
            summed=[plan.several_keys_a_group for plan in self._plans.values()],
            columns=self._bank.columns,
            weighted=self._shared.weights.keys(),
            symbols=len(self._shared.stage.query.components),
        )

    def _new_output(self, rows: int) -> SharedOutput:
        return new_shared_output(rows, self._layout.tables.columns, on_change=self._bank.on_change)

    def advance(self, ready: SharedInstances, until: int, heaviest: float) -> Answers:
        """Count the ready events, whose weights go up to `heaviest`, and return the rows of each query."""
        block, rows = self._expanded(ready)
        if self._apart:
            return self._advance_apart(block, until)
        if rows > len(self._output.tick):
            self._output = self._new_output(rows)
        first = self._count
        self._append(block)
        books = [self._books[name].key_group for name in self._plans]
        self.state = reserve_shared(self._layout.tables, self.state, books)
        weights = np.array([heaviest if plan.measures else 1.0 for plan in self._plans.values()])
        self._output, widen_at = scan_shared(
            self._layout.tables,
            self.state,
            self._live,
            first,
            self._count,
            until,
            len(books[0]),
            self._output,
            weights,
        )
        answers = self._collect()
        if widen_at >= 0:
            return self._go_apart(answers, widen_at, until, heaviest)
        self._forget()
        return answers

    def _expanded(self, ready: SharedInstances) -> Expanded:
        """An instance for each element that an event may fill, later elements of a timestamp first."""
        if not self._sums:
            ready = ready._replace(weight=ready.weight[:0])
        block, rows = expand(self._layout, ready)
        if len(ties(ready.tick).positions):
            tied = ties(block.tick)
            rank = self._layout.rank[block.element[tied.positions]]
            inner = np.lexsort((block.key[tied.positions], -rank, tied.groups))
            order = np.arange(len(block.tick))
            order[tied.positions] = tied.positions[inner]
            block = chosen(block, order)
        return Expanded(block, rows)

    def _append(self, block: SharedInstances) -> None:
        total = self._count + len(block.tick)
        live = self._live
        if total > len(live.tick):
            room = max(total, 2 * self._count)
            live = SharedInstances._make(enlarged(array[: self._count], room, 0) for array in live)
        for added, array in ((block.tick, live.tick), (block.key, live.key), (block.element, live.element)):
            array[self._count : total] = added
        if self._sums:
            live.weight[self._count : total] = block.weight
        self._live, self._count = live, total

    # ── Telling ────────────────────────────────────────────────────────────────────────────────────

    def _collect(self) -> Answers:
        output = self._output
        count = int(output.written[0])
        output.written[0] = 0
        # Of 16 bits, because short integers are sorted by counting.
        order = np.argsort(output.query[:count].astype(np.uint16), kind="stable")
        if self._sums:
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
        # Nothing wider than 64 bits gets here.
        sizes = words[:, :1].astype(np.float64)
        values = columns_of(plan.query, plan.measures, words, sizes, [1.0] * sums)
        if self._bank.on_change:
            expiry = rows[output.completed[rows] == 0]
            earlier = np.zeros((len(expiry), 2), np.uint64)
            earlier[:, 0] = output.before[expiry]
            before = columns_of(plan.query, plan.measures, earlier, earlier[:, :1].astype(np.float64), [])
            told_places = rows_to_emit(plan.query, output.completed[rows], values, before)
            rows = rows[told_places]
            values = {column: value.take(pa.array(told_places)) for column, value in values.items()}
        groups = self._books[name].show(output.group[rows])
        return answer(plan.query, self._schemas[name], output.tick[rows], groups, values)

    # ── One by one ─────────────────────────────────────────────────────────────────────────────────

    def _go_apart(self, answers: Answers, widen_at: int, until: int, heaviest: float) -> Answers:
        """Continue with an operator for each query, from the timestamp at `widen_at` on."""
        moment = int(self._live.tick[widen_at])
        if self._bank.window is None:
            return self._go_apart_from_counts(answers, widen_at, until, heaviest)
        oldest = int(self.state.counters[Counter.OLDEST])
        if self._bank.on_change:
            # What leaves at the timestamp must be emitted with it.
            assert self._bank.window.ticks is not None
            oldest = int(np.searchsorted(self._live.tick[:widen_at], moment - self._bank.window.ticks))
        window = SharedInstances._make(array[oldest:widen_at].copy() for array in self._live)
        rest = SharedInstances._make(array[widen_at : self._count].copy() for array in self._live)
        self._live, self._count = no_instances(), 0
        self._make_apart()
        # The rows of the window were already emitted.
        self._advance_apart(window, moment - 1)
        return {name: _together(answers[name], more) for name, more in self._advance_apart(rest, until).items()}

    def _go_apart_from_counts(self, answers: Answers, widen_at: int, until: int, heaviest: float) -> Answers:
        """The same if nothing ever leaves: continue from the counts so far."""
        rest = SharedInstances._make(array[widen_at : self._count].copy() for array in self._live)
        self._live, self._count = no_instances(), 0
        self._make_apart()
        keys = int(self.state.opened[0])
        words = self.state.words[: keys * self._layout.tables.block].reshape(keys, self._layout.tables.block)
        coordinates = self._layout.tables.by_element[:, ByElement.COORDINATE]
        for query, (name, runner) in enumerate(self._apart.items()):
            paths = self._paths_of(query)
            fields = np.stack([words[:, [0, *coordinates[list(path)]]] for path in paths], axis=1)
            for field, measure in enumerate(self._plans[name].measures, start=1):
                # Up to the component that it is over, a sum has the prefixes of the count.
                fields[:, field, : 1 + measure.component] = 0
            if name not in self._detached:
                runner.go_on_from(fields, heaviest)
        return {name: _together(answers[name], more) for name, more in self._advance_apart(rest, until).items()}

    def _make_apart(self) -> None:
        for name in self._plans:
            self._apart[name] = self._runner_of(name)

    def _runner_of(self, name: str) -> AggregateOperator:
        runner = AggregateOperator(self._plans[name], self._event_layout, self._limits)
        runner.share_groups(self._books[name])
        return runner

    def detach(self, name: str) -> None:
        """Remove one query: shared parts are still counted, its own are not."""
        self._detached.add(name)
        if self._apart:
            self._apart[name] = self._runner_of(name)

    def _paths_of(self, query: int) -> list[tuple[int, ...]]:
        """The elements of a query's count, and of each of its sums."""
        return [self._layout.paths[number] for number, (own, _) in enumerate(self._columns) if own == query]

    def _advance_apart(self, block: SharedInstances, until: int) -> Answers:
        answers: Answers = {}
        for query, (name, runner) in enumerate(self._apart.items()):
            if name in self._detached:
                continue
            path, *sums = self._paths_of(query)
            component = np.full(len(self._layout.symbol), 255, np.uint8)
            component[list(path)] = np.arange(len(path))
            chosen = np.flatnonzero(component[block.element] != 255)
            instances = _counter_instances(block, component, chosen, len(sums))
            for values, measure, own in zip(instances.ints, self._plans[name].measures, sums, strict=True):
                # The same events fill both, in the same order.
                values[instances.component == measure.component] = block.weight[block.element == own[measure.component]]
            try:
                runner.take(instances)
                answers[name] = runner.answer(until)
            except OuzelError as error:
                answers[name] = error
        return answers

    # ── Letting go ─────────────────────────────────────────────────────────────────────────────────

    def _forget(self) -> None:
        dead = int(self.state.counters[Counter.OLDEST])
        if self._bank.window is None:
            self._live, self._count = no_instances(), 0
        if (dead == self._count and dead) or dead > max(COMPACT_MIN, self._count - dead):
            self._live = SharedInstances._make(array[dead : self._count].copy() for array in self._live)
            self._count -= dead
            self.state.counters[Counter.OLDEST] = 0

    def live_keys(self) -> np.ndarray:
        if self._apart:
            return np.unique(np.concatenate([runner.live_keys() for runner in self._apart.values()]))
        return np.unique(self._live.key[: self._count])

    def rename_keys(self, keys: np.ndarray, renamed: np.ndarray, groups: dict[str, np.ndarray]) -> None:
        """Key `keys[k]` is now k + 1; the group indexes are renamed already."""
        for name, runner in self._apart.items():
            runner.rename_keys(keys, renamed, groups[name])
        if not self._apart:
            self._live.key[: self._count] = renamed[self._live.key[: self._count]]
            books = [self._books[name].key_group for name in self._plans]
            self.state = rekey_shared(self._layout.tables, self.state, keys, books)

    @property
    def next_deadline(self) -> int | None:
        """When the next event leaves, if that is emitted."""
        if self._apart:
            return min((d for r in self._apart.values() if (d := r.next_deadline) is not None), default=None)
        oldest = int(self.state.counters[Counter.OLDEST])
        if not self._bank.on_change or oldest >= self._count:
            return None
        assert self._bank.window is not None and self._bank.window.ticks is not None
        return min(LATEST, int(self._live.tick[oldest]) + self._bank.window.ticks)

    @property
    def held(self) -> int:
        return self._count + sum(runner.held_events for runner in self._apart.values())

    def dump(self, writer: Writer) -> dict[str, Any]:
        live = SharedInstances._make(array[: self._count] for array in self._live)
        return {
            "state": dump_arrays(self.state, writer),
            "live": dump_arrays(live, writer),
            "apart": [runner.dump(writer) for runner in self._apart.values()],
            "tree": _parts_as_json(self._bank.patterns),
            "segments": self._bank.segments,
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        if "tree" in head:
            # Another version may choose other segments: the stored counters keep theirs.
            segments = tuple(map(tuple, head["segments"]))
            self._bank = replace(self._bank, patterns=_parts_of_json(head["tree"]), segments=segments)
            self._layout = self._laid_out()
        self.state = load_arrays(self.state, head["state"], reader)
        if self.state.words.size != len(self.state.bound) * self._layout.tables.block:
            raise StateError("this snapshot has counters of another form: restore it with the version that made it")
        self._live = load_arrays(self._live, head["live"], reader)
        self._count = len(self._live.tick)
        if head["apart"]:
            self._make_apart()
            for (name, runner), stored in zip(self._apart.items(), head["apart"], strict=True):
                runner.load(reader, stored)
                runner.share_groups(self._books[name])


def _parts_as_json(patterns: Sequence[Sequence[Part]]) -> list[list[Any]]:
    """A segment is a list of its number."""
    return [[[part.segment] if isinstance(part, SegmentPart) else part for part in pattern] for pattern in patterns]


def _parts_of_json(stored: list[list[Any]]) -> tuple[tuple[Part, ...], ...]:
    return tuple(tuple(SegmentPart(*part) if isinstance(part, list) else part for part in one) for one in stored)


def no_instances() -> SharedInstances:
    return SharedInstances(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.uint16), np.empty(0, np.int64))


def _counter_instances(
    block: SharedInstances, component: np.ndarray, chosen: np.ndarray, sums: int
) -> CounterInstances:
    """Instances of one query's components, without values for its sums yet."""
    made = new_counter_instances(len(chosen), sums)
    return made._replace(tick=block.tick[chosen], key=block.key[chosen], component=component[block.element[chosen]])


def _together(first: Answer | OuzelError, second: Answer | OuzelError) -> Answer | OuzelError:
    if isinstance(first, OuzelError) or isinstance(second, OuzelError):
        return first if isinstance(first, OuzelError) else second
    ticks = np.concatenate([first.ends, second.ends])
    return Answer(pa.concat_tables([first.table, second.table]), ticks, ticks)


class SharedOperator(Operator):
    """Several queries that are counted together."""

    def __init__(self, shared: SharedPlan, layout: Layout, limits: Limits) -> None:
        self._shared = shared
        self._layout = layout
        self._limits = limits
        lanes = lower(shared.stage).lanes
        self._weights = [
            (measure, lanes.lane(symbol, LaneSpec(measure.expression, Domain.INT)))
            for symbol, measure in shared.weights.items()
        ]
        self._stager = Stager(shared.stage, lanes, layout)
        self._schemas = {name: aggregate_schema(plan.query, layout) for name, plan in shared.plans.items()}
        # Queries with the same groups share one index.
        alike: dict[object, GroupIndex] = {}
        self.books: dict[str, GroupIndex] = {}
        for name, plan in shared.plans.items():
            kinds = tuple((key.path, self._schemas[name].field(key.name).type) for key in plan.query.group_by)
            if kinds not in alike:
                alike[kinds] = GroupIndex(shared.of(name), layout, self._schemas[name])
            self.books[name] = alike[kinds]
        self._book_of = {book: name for name, book in reversed(self.books.items())}
        self._banks = [BankCounters(shared, bank, self.books, self._schemas, layout, limits) for bank in shared.banks]
        # The largest absolute weight so far.
        self.heaviest = 1.0
        self._pending: list[SharedInstances] = []

    # ── Taking events in ───────────────────────────────────────────────────────────────────────────

    def stage(self, table: pa.Table, ticks: np.ndarray, *, zero_copy: bool = False) -> None:
        """Take in rows, in any order."""
        rows, block = self._stager.stage(table, ticks)
        if not block.count:
            return

        def frame_of(places: np.ndarray) -> EventFrame:
            chosen = rows[places]
            return EventFrame(
                self._shared.stage.query, self._layout, table, ticks, lambda component: chosen, len(chosen)
            )

        instances = block.events
        for book in self._book_of:
            book.note_keys(frame_of, block.rows, instances, self.key_count)
        element = instances.component.astype(np.uint16)
        self._pending.append(SharedInstances(instances.end, instances.key, element, self._weighed(instances)))
        if any(bank.window is None for bank in self._shared.banks):
            self._limits.check_keys(f"one of the queries {', '.join(self._shared.names)}", self._stager.keys.count - 1)
        self._limits.check_held(self._shared.names, self.held_events)

    def _weighed(self, instances: Instances) -> np.ndarray:
        """The weight of each instance; nothing if no query sums."""
        if not self._weights:
            return np.empty(0, np.int64)
        weight = np.zeros(len(instances.end), np.int64)
        for measure, lane in self._weights:
            present = (instances.lane_flags[lane.lane] == LaneFlag.VALUE) & (instances.component == measure.component)
            weight += measured(measure, instances.int_lanes[lane.lane], present)
        # In floating point, because the smallest int64 has no absolute value.
        self.heaviest = max(self.heaviest, float(np.abs(weight.astype(np.float64)).max(initial=1.0)))
        return weight

    @property
    def key_count(self) -> int:
        """The number of keys, at least one."""
        return max(1, self._stager.keys.count)

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def advance(self, until: int) -> Answers:
        """Count the ready events and return the result of each query."""
        ready = self._take_ready(until)
        answers: Answers = {}
        for bank in self._banks:
            answers |= bank.advance(ready, until, self.heaviest)
        self._forget_keys()
        return answers

    def detach(self, query: str) -> None:
        """Remove one query; shared parts are still counted."""
        for bank in self._banks:
            bank.detach(query)

    def _take_ready(self, until: int) -> SharedInstances:
        """The pending events at or before a tick, in order of time."""
        if not self._pending:
            return no_instances()
        ready, self._pending = ready_and_rest(self._pending, until)
        return ready

    # ── Letting go ─────────────────────────────────────────────────────────────────────────────────

    def _forget_keys(self) -> None:
        """Drop keys and groups that no live event has: memory follows the window."""
        if any(bank.window is None for bank in self._shared.banks):
            return
        if self._stager.keys.count <= 2 * max(COMPACT_MIN, self.held_events):
            return
        live = [block.key for block in self._pending] + [bank.live_keys() for bank in self._banks]
        keys = np.unique(np.concatenate(live))
        keys = keys[keys > EVERY_KEY]
        renamed = self._stager.keys.compact(keys)
        for block in self._pending:
            block.key[:] = renamed[block.key]
        renamed_groups = {book: book.keep_keys(keys) for book in self._book_of}
        groups = {name: renamed_groups[book] for name, book in self.books.items()}
        for bank in self._banks:
            bank.rename_keys(keys, renamed, groups)

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each query's answer."""
        return self._schemas

    @property
    def next_deadline(self) -> int | None:
        ticks = [int(block.tick.min()) for block in self._pending]
        ticks += [deadline for bank in self._banks if (deadline := bank.next_deadline) is not None]
        return min(ticks, default=None)

    @property
    def held_events(self) -> int:
        return sum(len(block.tick) for block in self._pending) + sum(bank.held for bank in self._banks)

    @property
    def room(self) -> int:
        """A lower bound of the events without an answer that may come before a limit must be checked."""
        keys = self._stager.keys.count if any(bank.window is None for bank in self._shared.banks) else 0
        return self._limits.max_buffered_events - max(self.held_events, keys)

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the kernels, over all banks."""
        shown = (Counter.INSTANCES, Counter.EXPIRED, Counter.ROWS)
        return {c.name.lower(): sum(int(bank.state.counters[c]) for bank in self._banks) for c in shown}

    def dump(self, writer: Writer) -> dict[str, Any]:
        return {
            "pending": [dump_arrays(block, writer) for block in self._pending],
            "heaviest": self.heaviest,
            "books": {name: book.dump(writer) for book, name in self._book_of.items()},
            "banks": [bank.dump(writer) for bank in self._banks],
            "coders": self._stager.dump(writer),
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        self._pending = [load_arrays(no_instances(), block, reader) for block in head["pending"]]
        self.heaviest = head.get("heaviest", 1.0)
        for book, name in self._book_of.items():
            book.load(reader, head["books"][name])
        self._stager.load(reader, head["coders"])
        for bank, stored in zip(self._banks, head["banks"], strict=True):
            bank.load(reader, stored)
