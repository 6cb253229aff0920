"""Running one query on NFA^b over one stream: events are put in order and numbered, read by runs, and let go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import EventWindow
from ouzel.engines.kleene.compressed import compressed_schema, compressed_table
from ouzel.engines.kleene.kernels import Found, FoundCompressed, GraphKernel, Kernel, RunsKernel
from ouzel.engines.kleene.lowering import RunLowered, lower_runs
from ouzel.engines.kleene.plan import RunKernel, RunPlan, build_runs
from ouzel.engines.kleene.staging import (
    Buffer,
    RunBlock,
    RunStager,
    chosen,
    cut,
    dump_block,
    joined,
    load_block,
    set_aside,
)
from ouzel.engines.kleene.state import Status, number_events
from ouzel.engines.kleene.tables import Form, RunEvents, RunTables, Selection, build_run_tables
from ouzel.errors import LimitError
from ouzel.kernels.events import EVERY_KEY, NO_LIMIT
from ouzel.kernels.order import gather
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.lowering import Domain
from ouzel.plan.rules import WRITTEN_EQUALITIES
from ouzel.runtime.arrays import empty_table
from ouzel.runtime.buffer import open_by_key
from ouzel.runtime.frames import take
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.output import Matches, output_schema, transform_matches
from ouzel.runtime.pruning import output_columns
from ouzel.runtime.rows import RowStore
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.stream_order import stream_order
from ouzel.runtime.values import one_array

_LATEST = 2**63 - 1
_EARLIEST = -(2**63)
_NO_MOMENTS = (np.empty(0, np.int64), np.empty(0, np.int64))
# Below this many the front of the buffer is not worth moving.
_COMPACT_MIN = 4096
# So many events are read before those that are dead make room: few enough for their arrays to stay in the processor's
# cache, and many enough for a call to cost little.
_PIECE = 65_536

_SELECTIONS = {
    Strategy.STRICT_CONTIGUITY: Selection.CONTIGUITY,
    Strategy.PARTITION_CONTIGUITY: Selection.CONTIGUITY,
    Strategy.SKIP_TILL_NEXT_MATCH: Selection.NEXT_MATCH,
    Strategy.SKIP_TILL_ANY_MATCH: Selection.ANY_MATCH,
}
_FORMS = {
    OutputForm.ALL: Form.ALL,
    OutputForm.NON_OVERLAPPING: Form.NON_OVERLAPPING,
    OutputForm.FIRST: Form.FIRST,
    OutputForm.SKIP_TO_FIRST: Form.SKIP_TO_FIRST,
    OutputForm.SKIP_TO_LAST: Form.SKIP_TO_LAST,
    OutputForm.COMPRESSED: Form.ALL,
}


class RunsRunner:
    """The state of one query. `stage` takes events in, `advance` moves time on and gives the matches."""

    def __init__(self, plan: RunPlan, layout: Layout, limits: Limits) -> None:
        self._plan = plan
        self._query = plan.query
        self._layout = layout
        self._limits = limits
        self._lowered = lower_runs(plan)
        self._tables = run_tables(plan, self._lowered, limits)
        self._stager = RunStager(plan, self._lowered, layout)
        specs = self._lowered.lanes.int_specs
        self._ranked = [row for row, spec in enumerate(specs) if spec.domain is Domain.RANK]
        self._texts = text_rows(self._lowered)
        kept = output_columns(plan, layout)
        self._kept_columns = [name for name in layout.schema.names if name in kept]
        self._payload = RowStore()
        self._pending: list[RunBlock] = []
        self._live = Buffer(
            self._tables,
            int_rows=self._lowered.int_rows,
            float_rows=self._lowered.float_rows,
            points=layout.start is None,
        )
        ints, floats, flags = self._stager.null_lanes()
        self._live.events.int_lanes[:, 0] = ints
        self._live.events.float_lanes[:, 0] = floats
        self._live.events.lane_flags[:, 0] = flags
        self._is_compressed = self._query.output.form is OutputForm.COMPRESSED
        self._kernel: Kernel
        if plan.kernel is RunKernel.GRAPH:
            self._kernel = GraphKernel(self._tables, self._lowered.number_slots, limits, listed=not self._is_compressed)
        else:
            self._kernel = self._runs_kernel()
        # How many events each partition has had, and how many the whole stream.
        self._counts = np.zeros(1, np.int64)
        self._total = np.zeros(1, np.int64)
        self._swept_at = _COMPACT_MIN
        # Events have left `_live`, and what they refer to is still there.
        self._has_dropped = False
        self.schema = output_schema(self._query, layout)
        if self._is_compressed:
            self.schema = compressed_schema(plan, layout)
        self.moments = _NO_MOMENTS
        # The events of the matches that this call of `advance` has found.
        self._answer_events = 0

    def _runs_kernel(self) -> RunsKernel:
        return RunsKernel(self._tables, self._lowered.number_slots, self._limits, listed=not self._is_compressed)

    # ── Taking events in ───────────────────────────────────────────────────────────────────────────

    def stage(self, table: pa.Table, ticks: np.ndarray, *, keep_whole: bool = False) -> None:
        """Take rows in, in any order. `keep_whole`: refer to the table as it is instead of copying what matters."""
        places, block = self._stager.stage_runs(table, ticks)
        if not block.count:
            return
        if keep_whole:
            base = self._payload.append(table, ticks)
            numbers = places.astype(np.int64) + base
        else:
            columns = [take(one_array(table.column(name)), places) for name in self._kept_columns]
            base = self._payload.append(pa.table(columns, names=self._kept_columns), gather(ticks, places))
            numbers = np.arange(base, base + len(places))
        rows = numbers
        if block.count > len(places):
            rows = np.full(block.count, -1, np.int64)
            playing = block.rows >= 0
            rows[playing] = numbers[block.rows[playing]]
        self._pending.append(RunBlock(rows, block.events, block.deciding, block.deciding_rows))
        if self.held_events > self._limits.max_buffered_events:
            of_keys = ""
            if self._tables.in_events and self._plan.key:
                keys = self._stager.keys.count - 1
                of_keys = f" of {keys:,} keys, each of which keeps the last events of its WITHIN n EVENTS"
            raise LimitError(
                f"query '{self._query.name}' holds {self.held_events:,} events{of_keys}, more than "
                f"max_buffered_events={self._limits.max_buffered_events:,}; "
                "give it a smaller WITHIN window, a more selective WHERE, or a higher limit"
            )

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def advance(self, until: int) -> pa.Table:
        """No event at or before `until` can come any more: match what is ready and give what completed."""
        ready = self._take_ready(until)
        self._answer_events = 0
        tables, moments = [], []
        pieces = self._pieces(ready) if ready is not None else [None]
        for piece in pieces:
            reached = until if piece is None or piece is pieces[-1] else int(piece.events.end[-1])
            tables.append(self._read(piece, reached))
            moments.append(self.moments)
            self._forget(reached)
        self._forget_rest(until)
        if len(tables) == 1:
            return tables[0]
        self.moments = (np.concatenate([one[0] for one in moments]), np.concatenate([one[1] for one in moments]))
        return pa.concat_tables(tables)

    def _pieces(self, ready: RunBlock) -> Sequence[RunBlock | None]:
        """Events in stream order, cut between moments, so that what is dead makes room before all of them are read."""
        # Without a window nothing dies.
        bounded = self._plan.window_ticks is not None or self._tables.in_events
        if ready.count <= _PIECE or not bounded:
            return [ready]
        ends = ready.events.end
        firsts = [0]
        while ready.count - firsts[-1] > _PIECE:
            firsts.append(int(np.searchsorted(ends, ends[firsts[-1] + _PIECE - 1], side="right")))
        return [cut(ready, a, b) for a, b in zip(firsts, [*firsts[1:], ready.count], strict=True) if a < b]

    def _read(self, block: RunBlock | None, until: int) -> pa.Table:
        """What events complete, or time alone."""
        first = self._live.count
        if block is not None:
            self._live.append(self._numbered(block))
            self._check(self._kernel.read(self._kernel_events(), first, self._live.count, self._stager.keys.count))
        self._kernel.release(self._kernel_events(), until)
        return self._collect_compressed() if self._is_compressed else self._collect()

    def _take_ready(self, until: int) -> RunBlock | None:
        """What is pending at or before a tick, in stream order."""
        if not self._pending:
            return None
        block = self._pending[0] if len(self._pending) == 1 else joined(self._pending)
        end = block.events.end
        if until < _LATEST and end.max() > until:
            ready = np.flatnonzero(end <= until)
            self._pending = [set_aside(block, np.flatnonzero(end > until))]
            if not len(ready):
                return None
            block = chosen(block, ready)
        else:
            self._pending = []
        events = block.events
        order = stream_order(
            events.end, events.start, events.roles != 0, block.deciding, block.deciding_rows, len(self._layout.order)
        )
        return block if order is None else chosen(block, order)

    def _numbered(self, block: RunBlock) -> RunBlock:
        """Events in stream order with their positions, and without those that only count."""
        if not self._plan.needs_positions:
            return block
        keys = self._stager.keys.count
        if keys > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(keys, np.int64)])
        key = block.events.key
        # Where there are partitions, an event whose type lacks the attribute is in none of them.
        counted = np.where(key == EVERY_KEY, -1, key) if self._plan.key else key
        position = np.zeros(block.count, np.int64)
        number_events(counted, self._counts, position)
        sequence = position
        if self._query.strategy is Strategy.STRICT_CONTIGUITY:
            sequence = np.zeros(block.count, np.int64)
            number_events(np.zeros(block.count, np.int32), self._total, sequence)
        numbered = block.events._replace(
            position=position if self._tables.in_events else block.events.position,
            sequence=sequence if self._plan.is_contiguous else block.events.sequence,
        )
        block = RunBlock(block.rows, numbered, block.deciding, block.deciding_rows)
        playing = np.flatnonzero(numbered.roles)
        return block if len(playing) == block.count else chosen(block, playing)

    def _check(self, status: Status) -> None:
        if status is Status.MATCH_LIMIT:
            raise LimitError(
                f"query '{self._query.name}' found more than "
                f"max_matches_per_moment={self._limits.max_matches_per_moment:,} matches that complete at one moment; "
                "ask for them with OUTPUT COMPRESSED, count them with AGG COUNT, give a smaller WITHIN window or a "
                "more selective WHERE, or raise the limit"
            )
        if status is Status.LENGTH_LIMIT:
            self._limits.check_answer(self._query.name, self._limits.max_answer_events + 1)
        if status is Status.NODE_LIMIT:
            raise LimitError(
                f"the partial matches of query '{self._query.name}' have more events together than "
                f"max_partial_matches={self._limits.max_partial_matches:,} allows; give a smaller WITHIN window or a "
                "more selective WHERE, or raise the limit"
            )
        if status is Status.RUN_LIMIT:
            raise LimitError(
                f"query '{self._query.name}' has more than max_partial_matches={self._limits.max_partial_matches:,} "
                "partial matches at once; give a smaller WITHIN window or a more selective WHERE, ask for fewer "
                "matches with skip_till_next_match, or raise the limit"
            )
        assert status is Status.DONE

    def _kernel_events(self) -> RunEvents:
        """The live events as the kernel reads them: texts that are ordered by rank get their rank of today."""
        events = self._live.events
        if not self._ranked:
            return events
        ranks = self._stager.texts.ranks()
        lanes = events.int_lanes.copy()
        for row in self._ranked:
            codes = lanes[row, self._tables.reserved : self._live.count]
            codes[:] = np.where(codes >= 0, ranks[np.maximum(codes, 0)], 0) if len(ranks) else 0
        return events._replace(int_lanes=lanes)

    # ── Giving matches out ─────────────────────────────────────────────────────────────────────────

    def _collect(self) -> pa.Table:
        found = self._kernel.take(self._kernel_events() if self._tables.late else self._live.events)
        if isinstance(found, Status):
            self._check(found)
        if not isinstance(found, Found):
            self.moments = _NO_MOMENTS
            return empty_table(self.schema)
        self._count_answer(len(found.slots))
        table, ticks, rows = self._payload.fetch(self._live.rows[found.slots])
        lengths = found.lengths.sum(axis=1)
        firsts = np.cumsum(lengths) - lengths
        starts = self._live.events.start[found.slots[firsts]]
        self.moments = (starts, found.ends)
        matches = Matches(table, ticks, found.lengths, rows, starts, found.ends)
        return transform_matches(self._query, self._layout, matches)

    def _count_answer(self, events: int) -> None:
        """Refuse an answer that is too large, before its columns are made; it may come in several pieces."""
        self._answer_events += events
        self._limits.check_answer(self._query.name, self._answer_events)

    def _collect_compressed(self) -> pa.Table:
        found = self._kernel.take_compressed(self._kernel_events())
        self.moments = _NO_MOMENTS
        if isinstance(found, Status):
            self._check(found)
        if not isinstance(found, FoundCompressed):
            return empty_table(self.schema)
        self._count_answer(len(found.graph.cell_event) + len(found.graph.link_cell))
        table, _, rows = self._payload.fetch(self._live.rows[found.graph.event_slot])
        return compressed_table(self._plan, self._layout, self.schema, found, table, rows)

    # ── Letting go ─────────────────────────────────────────────────────────────────────────────────

    def _forget(self, until: int) -> None:
        """Let go of events that no match to come can have; what they refer to stays until `_forget_rest`."""
        window = self._plan.window_ticks
        if window is not None:
            dead_until = self._dead_until(until, window)
            ends = self._live.events.end[self._tables.reserved : self._live.count]
            dead = int(np.searchsorted(ends, dead_until, side="right"))
            if (dead == self._live.live and dead) or dead > max(_COMPACT_MIN, self._live.live - dead):
                self._kernel.sweep(dead_until + 1, self._counts)
                self._kernel.drop_front(dead, self._live.count)
                self._live.drop_front(dead)
                self._has_dropped = True
        elif self._tables.in_events and self._live.live >= self._swept_at:
            # Any partition may fall silent, so what is dead lies between what is not.
            needed = self._kernel.sweep_positions(self._kernel_events(), self._counts, self._live.count)
            self._live.keep(np.flatnonzero(needed))
            before = np.cumsum(needed) - needed
            self._kernel.renumber(self._kernel_events(), needed, before.astype(np.int32))
            self._swept_at = 2 * max(_COMPACT_MIN, self._live.live)
            self._has_dropped = True

    def _dead_until(self, until: int, window: int) -> int:
        # A match that completes after `until` starts later than this tick; the one after it fits 64 bits, too.
        return min(_LATEST - 1, max(_EARLIEST, until + 1 - window))

    def _forget_rest(self, until: int) -> None:
        """Let go of the rows, keys and texts of events that are gone."""
        if not self._has_dropped:
            return
        self._has_dropped = False
        window = self._plan.window_ticks
        if window is not None:
            dead_until = self._dead_until(until, window)
            self._payload.evict(dead_until)
            self._forget_codes(dead_until)
            return
        # There is room for more events behind the live ones, and those that only count have no rows.
        live = self._live.rows[self._tables.reserved : self._live.count]
        rows = np.concatenate([live, *(block.rows for block in self._pending)])
        rows[rows >= 0] = self._payload.keep(rows[rows >= 0])
        ends = np.cumsum([self._live.live, *(block.count for block in self._pending)])
        live[:], *parts = np.split(rows, ends[:-1])
        self._pending = [
            RunBlock(part, block.events, block.deciding, block.deciding_rows)
            for part, block in zip(parts, self._pending, strict=True)
        ]
        self._forget_codes(_EARLIEST)

    def _forget_codes(self, dead_until: int) -> None:
        """Codes of keys and texts that no live event has are given up, so that memory follows the window."""
        held = max(_COMPACT_MIN, self.held_events)
        live = slice(self._tables.reserved, self._live.count)
        if self._stager.keys.count > 2 * held:
            keys = [self._live.events.key[live], *(block.events.key for block in self._pending)]
            if self._layout.start is not None and self._tables.form == Form.NON_OVERLAPPING:
                # An event to come that lasts may have started before the last match ended.
                keys.append(self._kernel.marked_keys(dead_until).astype(np.int32))
            used = np.unique(np.concatenate(keys))
            renamed = self._stager.keys.compact(used[used > EVERY_KEY])
            self._kernel.rekey(renamed)
            self._live.events.key[live] = renamed[self._live.events.key[live]]
            for block in self._pending:
                known = block.events.key >= 0
                block.events.key[known] = renamed[block.events.key[known]]
            counts = np.zeros_like(self._counts)
            gone = renamed[: len(self._counts)] < 0
            counts[renamed[: len(self._counts)][~gone]] = self._counts[: len(renamed)][~gone]
            self._counts = counts
        for test, coder in enumerate(self._stager.coded):
            if coder.count > 2 * held:
                lanes = [self._live.events.codes[test, live], *(block.events.codes[test] for block in self._pending)]
                used = np.unique(np.concatenate(lanes))
                renamed = coder.compact(used[used >= 0])
                for lane in lanes:
                    lane[:] = np.where(lane >= 0, renamed[np.maximum(lane, 0)], lane)
                self._kernel.recode(test, renamed)
        texts = self._stager.texts
        if self._texts and texts.count > 2 * held * len(self._texts):
            lanes = [self._live.events.int_lanes[row, live] for row in self._texts]
            lanes += [block.events.int_lanes[row] for block in self._pending for row in self._texts]
            used = np.unique(np.concatenate(lanes)).astype(np.int32)
            renamed = texts.compact(used[used >= 0])
            for lane in lanes:
                lane[:] = np.where(lane >= 0, renamed[np.maximum(lane, 0)], lane)

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which something that is held could lead to an answer by time alone."""
        ticks = [int(block.events.end.min()) for block in self._pending if block.count]
        if self._kernel.deadline is not None:
            ticks.append(self._kernel.deadline)
        return min(ticks, default=None)

    @property
    def held_events(self) -> int:
        """How many events are pending or live."""
        return self._live.live + sum(block.count for block in self._pending)

    def open_by_key(self, watermark: int) -> list[tuple[tuple[int | str, ...], int, int]]:
        """The keys of events that may still be part of a match, as `InstanceRunner` tells them."""
        window = self._plan.window_ticks
        dead_until = _EARLIEST if window is None else max(_EARLIEST, watermark + 1 - window)
        live = slice(self._tables.reserved, self._live.count)
        blocks = [block.events for block in self._pending]
        keys = [self._live.events.key[live], *(block.key for block in blocks)]
        ends = [self._live.events.end[live], *(block.end for block in blocks)]
        return open_by_key(keys, ends, dead_until, self._stager.keys)

    @property
    def statistics(self) -> dict[str, int]:
        """What the kernel counted."""
        return self._kernel.statistics

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; gives what `load` needs to find it again."""
        return {
            "store": self._payload.dump(writer),
            "hashed": len(self._plan.hashed),
            "kernel": self._kernel.dump(writer),
            "live": self._live.dump(writer),
            "pending": [dump_block(block, writer) for block in self._pending],
            "counts": [writer.add_array(self._counts), writer.add_array(self._total)],
            "coders": self._stager.dump(writer),
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Take the place of the runner that `dump` stored."""
        if self._plan.hashed and not head.get("hashed"):
            # Stored before equalities written out were hashed, or by one that went on from there.
            unhashed = build_runs(self._query, self._plan.reason, [WRITTEN_EQUALITIES])
            self.__init__(replace(unhashed, merge=self._plan.merge), self._layout, self._limits)  # type: ignore[misc]
        self._payload = RowStore.load(reader, head["store"])
        self._live.load(reader, head["live"])
        self._pending = [load_block(block, reader) for block in head["pending"]]
        self._counts, self._total = reader.arrays(head["counts"])
        self._stager.load(reader, head["coders"])
        is_plain = isinstance(self._kernel, RunsKernel) and self._kernel.is_plain
        on_graph = isinstance(self._kernel, GraphKernel)
        if (is_plain and not head["kernel"].get("is_plain")) or (on_graph and "arena" in head["kernel"]):
            # Stored before there was a plain reader, or a graph for this query, or by one that took over from there.
            self._tables = run_tables(self._plan, self._lowered, self._limits, plain=False)
            self._kernel = self._runs_kernel()
        self._kernel.load(reader, head["kernel"], len(self._live.rows), self._stager.keys.count)


def text_rows(lowered: RunLowered) -> list[int]:
    """The int64 lanes that hold codes or ranks of texts, which change as texts come and go."""
    specs = lowered.lanes.int_specs
    return [row for row, spec in enumerate(specs) if spec.domain in (Domain.RANK, Domain.CODE)]


def run_tables(plan: RunPlan, lowered: RunLowered, limits: Limits, *, plain: bool = True) -> RunTables:
    """The kernel's tables for a plan."""
    query = plan.query
    in_events = isinstance(query.window, EventWindow)
    window = query.window.count if isinstance(query.window, EventWindow) else plan.window_ticks
    places = [component.position for component in plan.positives]
    return build_run_tables(
        lowered.places,
        lowered.negatives,
        selection=_SELECTIONS[query.strategy],
        window=window,
        in_events=in_events,
        reserved=lowered.reserved_slots,
        codes=len(plan.coded),
        form=_FORMS[query.output.form],
        form_place=0 if query.output.component is None else places.index(query.output.component),
        merge=plan.merge,
        late=query.output.form is OutputForm.ALL,
        plain=plain,
        renumbered_lanes=text_rows(lowered),
        max_matches_per_moment=min(limits.max_matches_per_moment, NO_LIMIT),
        max_runs=min(limits.max_partial_matches, NO_LIMIT),
        max_events=min(limits.max_answer_events, NO_LIMIT),
    )
