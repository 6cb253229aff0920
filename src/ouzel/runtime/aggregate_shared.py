"""Running several aggregates in one pass: events are staged once, and each bank of counters reads what it needs.

For a session every query has a runner of its own. The first of those that share does the work; the others fetch their
rows. Where 64 bits are no longer enough for a bank, its queries go on alone, with the same window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.errors import LimitError, OuzelError
from ouzel.kernels.counters_shared import SharedInstances
from ouzel.kernels.counters_tables import Counter
from ouzel.kernels.predicate_tables import LaneFlag
from ouzel.kernels.stack_tables import EVERY_KEY, Instances
from ouzel.plan.lower import Domain, LaneSpec, lower
from ouzel.plan.sharing import SharedPlan
from ouzel.runtime.aggregate import dump_arrays, load_arrays
from ouzel.runtime.aggregate_banks import BankCounters, Told, no_instances
from ouzel.runtime.aggregate_groups import GroupBook
from ouzel.runtime.aggregate_pending import COMPACT_MIN, ready_and_rest
from ouzel.runtime.aggregate_values import measured
from ouzel.runtime.arrays import empty_table
from ouzel.runtime.frames import EventFrame
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.stage import Stager
from ouzel.runtime.transform import output_schema


class SharedCounters:
    """The state of several queries that are counted together."""

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
        self.schemas = {name: output_schema(plan.query, layout) for name, plan in shared.plans.items()}
        # Queries that group alike have one book.
        alike: dict[object, GroupBook] = {}
        self.books: dict[str, GroupBook] = {}
        for name, plan in shared.plans.items():
            kinds = tuple((key.path, self.schemas[name].field(key.name).type) for key in plan.query.group_by)
            if kinds not in alike:
                alike[kinds] = GroupBook(shared.of(name), layout, self.schemas[name])
            self.books[name] = alike[kinds]
        self._book_of = {book: name for name, book in reversed(self.books.items())}
        self._banks = [BankCounters(shared, bank, self.books, self.schemas, layout, limits) for bank in shared.banks]
        # The largest absolute weight so far.
        self.heaviest = 1.0
        self._pending: list[SharedInstances] = []
        self._told: dict[str, Told | OuzelError] = {}
        # What stopped all of the queries at once.
        self._error: OuzelError | None = None

    # ── Taking events in ───────────────────────────────────────────────────────────────────────────

    def stage(self, table: pa.Table, ticks: np.ndarray) -> None:
        """Take rows in, in any order."""
        rows, block = self._stager.stage(table, ticks)
        if not block.count or self._error is not None:
            return
        fitting = self._limits.fitting(rows[block.rows], ticks, self.held_events, len(self._shared.names))
        if fitting is not None:
            self.stage(table.take(fitting), ticks[fitting])
            return

        def frame_of(places: np.ndarray) -> EventFrame:
            chosen = rows[places]
            return EventFrame(
                self._shared.stage.query, self._layout, table, ticks, lambda component: chosen, len(chosen)
            )

        instances = block.instances
        for book in self._book_of:
            book.note_keys(frame_of, block.rows, instances, self.key_count)
        element = instances.component.astype(np.uint16)
        self._pending.append(SharedInstances(instances.end, instances.key, element, self._weighed(instances)))
        if any(bank.window is None for bank in self._shared.banks):
            self._limits.check_keys(f"one of the queries {', '.join(self._shared.names)}", self._stager.keys.count - 1)
        held = self.held_events
        # The limit is for each query, and none may meet it here that would not meet it alone.
        most = self._limits.max_buffered_events * len(self._shared.names)
        if not self._limits.drops and held > most:
            self._pending = []
            self._error = LimitError(
                f"the queries {', '.join(self._shared.names)} hold {held:,} events, more than {most:,}, which is "
                f"max_buffered_events={self._limits.max_buffered_events:,} for each; "
                "give them smaller WITHIN windows, a more selective WHERE, or a higher limit"
            )

    def _weighed(self, instances: Instances) -> np.ndarray:
        """What each instance weighs; nothing at all where no query sums."""
        if not self._weights:
            return np.empty(0, np.int64)
        weight = np.zeros(len(instances.end), np.int64)
        for measure, lane in self._weights:
            present = (instances.lane_flags[lane.lane] == LaneFlag.VALUE) & (instances.component == measure.component)
            weight += measured(measure, instances.int_lanes[lane.lane], present)
        # In floating point, since the smallest int64 has no absolute value.
        self.heaviest = max(self.heaviest, float(np.abs(weight.astype(np.float64)).max(initial=1.0)))
        return weight

    @property
    def key_count(self) -> int:
        """How many keys there are, one at least."""
        return max(1, self._stager.keys.count)

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def advance(self, until: int) -> None:
        """Count what is ready, and keep what each query is to be told, or the error that stops it."""
        if self._error is not None:
            self._told = dict.fromkeys(self._shared.names, self._error)
            return
        ready = self._take_ready(until)
        self._told = {}
        for bank in self._banks:
            self._told |= bank.advance(ready, until, self.heaviest)
        self._forget_keys()

    def take(self, name: str) -> Told:
        """What the last `advance` told a query; raises the error that stops it."""
        told = self._told.pop(name)
        if isinstance(told, OuzelError):
            raise told
        return told

    def silence(self, name: str) -> None:
        """Tell a query nothing any more."""
        for bank in self._banks:
            bank.silence(name)

    def _take_ready(self, until: int) -> SharedInstances:
        """What is pending at or before a tick, in order of time."""
        if not self._pending:
            return no_instances()
        ready, self._pending = ready_and_rest(self._pending, until)
        return ready

    # ── Letting go ─────────────────────────────────────────────────────────────────────────────────

    def _forget_keys(self) -> None:
        """Keys and groups are given up when nothing live has them: memory follows the window."""
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
    def next_deadline(self) -> int | None:
        ticks = [int(block.tick.min()) for block in self._pending]
        ticks += [deadline for bank in self._banks if (deadline := bank.next_deadline) is not None]
        return min(ticks, default=None)

    @property
    def held_events(self) -> int:
        return sum(len(block.tick) for block in self._pending) + sum(bank.held for bank in self._banks)

    @property
    def statistics(self) -> dict[str, int]:
        """What the kernels counted, over all banks."""
        shown = (Counter.INSTANCES, Counter.EXPIRED, Counter.ROWS)
        return {c.name.lower(): sum(int(bank.state.counters[c]) for bank in self._banks) for c in shown}

    def dump(self, writer: Writer) -> dict[str, Any]:
        return {
            "pending": [dump_arrays(block, writer) for block in self._pending],
            "heaviest": self.heaviest,
            "books": {name: book.dump(writer) for book, name in self._book_of.items()},
            "banks": [bank.dump(writer) for bank in self._banks],
            "coders": [
                [is_text, [writer.add_array(array) for array in arrays]]
                for is_text, arrays in (coder.dump() for coder in self._stager.coders)
            ],
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        self._pending = [load_arrays(no_instances(), block, reader) for block in head["pending"]]
        self.heaviest = head.get("heaviest", 1.0)
        for book, name in self._book_of.items():
            book.load(reader, head["books"][name])
        self._stager.load_coders([(is_text, reader.arrays(stored)) for is_text, stored in head["coders"]])
        for bank, stored in zip(self._banks, head["banks"], strict=True):
            bank.load(reader, stored)


class SharedRunner:
    """One of the queries that share. The one that `leads` comes first, stages for all and counts for all."""

    def __init__(self, counters: SharedCounters, name: str, *, leads: bool) -> None:
        self._counters = counters
        self._name = name
        self._leads = leads
        self._is_silent = False
        self._ticks = np.empty(0, np.int64)
        self.schema = counters.schemas[name]

    def stage(self, table: pa.Table, ticks: np.ndarray, *, keep_whole: bool = False) -> None:
        """Take rows in, in any order."""
        if self._leads:
            self._counters.stage(table, ticks)

    def advance(self, until: int) -> pa.Table:
        """No event at or before `until` can come any more: what this query is told."""
        if self._leads:
            self._counters.advance(until)
        if self._is_silent:
            return empty_table(self.schema)
        table, self._ticks = self._counters.take(self._name)
        return table

    def silence(self) -> None:
        """Nobody asks for this query any more: it must tell nothing, nor fail where its own numbers get too large."""
        self._is_silent = True
        self._ticks = np.empty(0, np.int64)
        self._counters.silence(self._name)

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """The moments of the rows that the last `advance` gave."""
        return self._ticks, self._ticks

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which something that is held could lead to an answer by time alone."""
        return self._counters.next_deadline if self._leads else None

    @property
    def held_events(self) -> int:
        """How many events are held; those of all queries count for the one that leads."""
        return self._counters.held_events if self._leads else 0

    @property
    def statistics(self) -> dict[str, int]:
        """What the kernels counted, likewise."""
        return self._counters.statistics if self._leads else {}

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; gives what `load` needs to find it again."""
        return self._counters.dump(writer) if self._leads else {}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Take the place of the runner that `dump` stored."""
        if self._leads:
            self._counters.load(reader, head)


def shared_runners(shared: SharedPlan, layout: Layout, limits: Limits) -> dict[str, SharedRunner]:
    """The runners of queries that share, before their first event."""
    counters = SharedCounters(shared, layout, limits)
    return {name: SharedRunner(counters, name, leads=not number) for number, name in enumerate(shared.names)}
