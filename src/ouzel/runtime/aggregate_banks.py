"""Counters of queries with one window that share a tree, a bank; and of each alone once 64 bits are not enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.errors import OuzelError, StateError
from ouzel.kernels.counters_shared import Expanded, SharedInstances, expand, scan_shared
from ouzel.kernels.counters_shared_tables import (
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
from ouzel.kernels.counters_tables import Counter, CounterInstances, enlarged, new_counter_instances
from ouzel.kernels.order import ties
from ouzel.plan.sharing import Bank, SharedPlan
from ouzel.runtime.aggregate import AggregateRunner, dump_arrays, load_arrays
from ouzel.runtime.aggregate_answer import answer, rows_to_tell
from ouzel.runtime.aggregate_groups import GroupBook
from ouzel.runtime.aggregate_pending import COMPACT_MIN, LATEST, chosen
from ouzel.runtime.aggregate_values import columns_of
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.snapshot import Reader, Writer

# What a query is told: its table and the moments of its rows.
Told = tuple[pa.Table, np.ndarray]


class BankCounters:
    """The counters of the queries with one window."""

    def __init__(
        self,
        shared: SharedPlan,
        bank: Bank,
        books: Mapping[str, GroupBook],
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
        # The queries one by one, once 64 bits are no longer enough for all of them together.
        self._apart: dict[str, AggregateRunner] = {}
        # Those that nobody asks for any more.
        self._silent: set[str] = set()

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

    def advance(self, ready: SharedInstances, until: int, heaviest: float) -> dict[str, Told | OuzelError]:
        """Count what is ready, whose weights go up to `heaviest`, and tell each query."""
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
        told = self._collect()
        if widen_at >= 0:
            return self._go_apart(told, widen_at, until, heaviest)
        self._forget()
        return told

    def _expanded(self, ready: SharedInstances) -> Expanded:
        """An instance for each element that an event may fill, later elements of a moment first."""
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

    def _collect(self) -> dict[str, Told | OuzelError]:
        output = self._output
        count = int(output.written[0])
        output.written[0] = 0
        # Of 16 bits, since numbers as short as that are sorted by counting.
        order = np.argsort(output.query[:count].astype(np.uint16), kind="stable")
        if self._sums:
            order = order[output.completed[order] != 0]
        bounds = np.searchsorted(output.query[order], np.arange(len(self._plans) + 1))
        told: dict[str, Told | OuzelError] = {}
        for number, name in enumerate(self._plans):
            if name in self._silent:
                continue
            try:
                told[name] = self._collect_one(name, order[bounds[number] : bounds[number + 1]])
            except OuzelError as error:
                told[name] = error
        return told

    def _collect_one(self, name: str, rows: np.ndarray) -> Told:
        output, plan = self._output, self._plans[name]
        sums = len(plan.measures)
        words = np.zeros((len(rows), 2 + 2 * sums), np.uint64)
        words[:, 0::2] = output.value[rows, : 1 + sums]
        words[:, 3::2] = (words[:, 2::2].view(np.int64) >> 63).view(np.uint64)
        # Nothing wider than 64 bits has got here.
        sizes = words[:, :1].astype(np.float64)
        values = columns_of(plan.query, plan.measures, words, sizes, [1.0] * sums)
        if self._bank.on_change:
            expiry = rows[output.completed[rows] == 0]
            earlier = np.zeros((len(expiry), 2), np.uint64)
            earlier[:, 0] = output.before[expiry]
            before = columns_of(plan.query, plan.measures, earlier, earlier[:, :1].astype(np.float64), [])
            told_places = rows_to_tell(plan.query, output.completed[rows], values, before)
            rows = rows[told_places]
            values = {column: value.take(pa.array(told_places)) for column, value in values.items()}
        groups = self._books[name].show(output.group[rows])
        return answer(plan.query, self._schemas[name], output.tick[rows], groups, values)

    # ── One by one ─────────────────────────────────────────────────────────────────────────────────

    def _go_apart(
        self, told: dict[str, Told | OuzelError], widen_at: int, until: int, heaviest: float
    ) -> dict[str, Told | OuzelError]:
        """Go on with a runner for each query, from the moment at `widen_at` on."""
        moment = int(self._live.tick[widen_at])
        if self._bank.window is None:
            return self._go_apart_from_counts(told, widen_at, until, heaviest)
        oldest = int(self.state.counters[Counter.OLDEST])
        if self._bank.on_change:
            # What leaves with the moment has to be told with it.
            assert self._bank.window.ticks is not None
            oldest = int(np.searchsorted(self._live.tick[:widen_at], moment - self._bank.window.ticks))
        window = SharedInstances._make(array[oldest:widen_at].copy() for array in self._live)
        rest = SharedInstances._make(array[widen_at : self._count].copy() for array in self._live)
        self._live, self._count = no_instances(), 0
        self._make_apart()
        # What the window told has been told.
        self._advance_apart(window, moment - 1)
        return {name: _together(told[name], more) for name, more in self._advance_apart(rest, until).items()}

    def _go_apart_from_counts(
        self, told: dict[str, Told | OuzelError], widen_at: int, until: int, heaviest: float
    ) -> dict[str, Told | OuzelError]:
        """The same where nothing ever leaves: there is no window to count again, but what was counted so far."""
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
            if name not in self._silent:
                runner.go_on_from(fields, heaviest)
        return {name: _together(told[name], more) for name, more in self._advance_apart(rest, until).items()}

    def _make_apart(self) -> None:
        for name in self._plans:
            self._apart[name] = self._runner_of(name)

    def _runner_of(self, name: str) -> AggregateRunner:
        runner = AggregateRunner(self._plans[name], self._event_layout, self._limits)
        runner.share_groups(self._books[name])
        return runner

    def silence(self, name: str) -> None:
        """Tell a query nothing any more: what it has in common with others is counted on, what it has alone is not."""
        if name not in self._plans:
            return
        self._silent.add(name)
        if self._apart:
            self._apart[name] = self._runner_of(name)

    def _paths_of(self, query: int) -> list[tuple[int, ...]]:
        """The elements of a query's count, and of each of its sums."""
        return [self._layout.paths[number] for number, (own, _) in enumerate(self._columns) if own == query]

    def _advance_apart(self, block: SharedInstances, until: int) -> dict[str, Told | OuzelError]:
        told: dict[str, Told | OuzelError] = {}
        for query, (name, runner) in enumerate(self._apart.items()):
            if name in self._silent:
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
                table = runner.advance(until)
                told[name] = table, runner.moments[0]
            except OuzelError as error:
                told[name] = error
        return told

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
        """Key `keys[k]` is now k + 1; the books know already."""
        for name, runner in self._apart.items():
            runner.rename_keys(keys, renamed, groups[name])
        if not self._apart:
            self._live.key[: self._count] = renamed[self._live.key[: self._count]]
            books = [self._books[name].key_group for name in self._plans]
            self.state = rekey_shared(self._layout.tables, self.state, keys, books)

    @property
    def next_deadline(self) -> int | None:
        """When the next event leaves, if that is told."""
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
            # Another version may cut out other segments: what has been counted stays as it was.
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
    """Instances of one query's components, which add nothing to its sums yet."""
    made = new_counter_instances(len(chosen), sums)
    return made._replace(tick=block.tick[chosen], key=block.key[chosen], component=component[block.element[chosen]])


def _together(first: Told | OuzelError, second: Told | OuzelError) -> Told | OuzelError:
    if isinstance(first, OuzelError) or isinstance(second, OuzelError):
        return first if isinstance(first, OuzelError) else second
    return pa.concat_tables([first[0], second[0]]), np.concatenate([first[1], second[1]])
