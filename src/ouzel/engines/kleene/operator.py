"""Runs one query on NFA^b over one stream: numbers events, passes them to the kernel, and evicts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import EventWindow
from ouzel.engines.kleene.compressed import compressed_schema, compressed_table
from ouzel.engines.kleene.kernels import Found as KernelFound
from ouzel.engines.kleene.kernels import FoundCompressed, GraphKernel, Kernel, RunsKernel
from ouzel.engines.kleene.lowering import RunLowered, lower_runs
from ouzel.engines.kleene.matches import latest_matches
from ouzel.engines.kleene.plan import RunKernel, RunPlan
from ouzel.engines.kleene.staging import RunStager
from ouzel.engines.kleene.state import Status, number_events
from ouzel.engines.kleene.tables import INDEX_MIN, Form, RunEvents, RunTables, Selection, build_run_tables, new_events
from ouzel.errors import LimitError
from ouzel.kernels.events import EVERY_KEY, NO_LIMIT
from ouzel.kernels.groups import first_of_each
from ouzel.kernels.order import gather
from ouzel.kernels.staging import IN_ORDER, write_events
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.lowering import Domain
from ouzel.runtime import codes
from ouzel.runtime.buffer import LATEST, Block, StreamBuffer, chosen, cut, expiry_bound
from ouzel.runtime.inbox import SmallBatch
from ouzel.runtime.layout import Layout, output_columns
from ouzel.runtime.limits import Limits, report_many
from ouzel.runtime.moments import stream_order
from ouzel.runtime.operator import NO_TICKS, Answer, Found, MatchOperator, StreamOperator
from ouzel.runtime.output import Matches, Output, joined_matches
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.staging import SmallStager

# Events to read before expired ones are evicted: few enough for their arrays to stay in the processor's cache, and
# enough for a call to cost little.
_PIECE = 65_536

_SELECTIONS = {
    Strategy.STRICT_CONTIGUITY: Selection.STRICT,
    Strategy.PARTITION_CONTIGUITY: Selection.PARTITION,
    Strategy.SKIP_TILL_NEXT_MATCH: Selection.NEXT_MATCH,
    Strategy.SKIP_TILL_ANY_MATCH: Selection.ANY_MATCH,
    Strategy.CONTIGUITY: Selection.BY_STEP,
}
_FORMS = {
    OutputForm.ALL: Form.ALL,
    OutputForm.NON_OVERLAPPING: Form.NON_OVERLAPPING,
    OutputForm.FIRST: Form.FIRST,
    OutputForm.SKIP_TO_FIRST: Form.SKIP_TO_FIRST,
    OutputForm.SKIP_TO_LAST: Form.SKIP_TO_LAST,
    OutputForm.COMPRESSED: Form.ALL,
    OutputForm.LATEST: Form.ALL,
}


class KleeneOperator(StreamOperator[RunEvents], MatchOperator):
    """The state of one query. `stage` adds events; `advance` moves time and returns the matches."""

    _stager: RunStager

    def __init__(self, plan: RunPlan, layout: Layout, limits: Limits) -> None:
        self._run_plan = plan
        lowered = lower_runs(plan)
        tables = run_tables(plan, lowered, limits, points=layout.start is None)
        stager = RunStager(plan, lowered, layout)
        kept = output_columns(plan, layout)
        buffer = StreamBuffer(
            lambda capacity: new_events(
                tables,
                capacity,
                int_lanes=lowered.int_rows,
                float_lanes=lowered.float_rows,
                points=layout.start is None,
            ),
            reserved=tables.reserved,
            order=self._stream_order,
            columns=[name for name in layout.schema.names if name in kept],
        )
        ints, floats, flags = stager.null_lanes()
        buffer.events.int_lanes[:, 0] = ints
        buffer.events.float_lanes[:, 0] = floats
        buffer.events.lane_flags[:, 0] = flags
        texts: dict[tuple[int, int | None], Domain] = {
            (row, None): spec.domain for row, spec in enumerate(lowered.lanes.int_specs)
        }
        super().__init__(plan, layout, limits, stager, buffer, texts)
        self._tables = tables
        self._is_compressed = self._query.output.form is OutputForm.COMPRESSED
        kernel = GraphKernel if plan.kernel is RunKernel.GRAPH else RunsKernel
        is_any = self._query.strategy is Strategy.SKIP_TILL_ANY_MATCH
        self._kernel: Kernel = kernel(
            tables,
            lowered.number_slots,
            limits,
            listed=not self._is_compressed,
            on_many=self._report_many if is_any else None,
        )
        # The number of events of each partition so far, and of the whole stream.
        self._counts = np.zeros(1, np.int64)
        self._total = np.zeros(1, np.int64)
        self._swept_at = codes.COMPACT_MIN
        # Events have left the buffer, but their rows and codes are still there.
        self._has_evicted = False
        self._composite = Output(self._query, layout)
        self.schema = compressed_schema(plan, layout) if self._is_compressed else self._composite.schema
        # The events of the matches that this call of `advance` has found.
        self._answer_events = 0

    def _stream_order(self, block: Block[RunEvents]) -> np.ndarray | None:
        events = block.events
        assert block.ties is not None
        return stream_order(
            events.end, events.start, events.roles != 0, block.ties, block.tie_rows, len(self._layout.order)
        )

    def _check_held(self) -> None:
        of_keys = ""
        if self._tables.in_events and self._run_plan.key:
            keys = self._stager.keys.count - 1
            of_keys = f" of {keys:,} keys, each of which keeps the last events of its WITHIN n EVENTS"
        self._limits.check_held([self._query.name], self.held_events, of_keys=of_keys)

    # Events out of order are sorted by their tie-break columns, too.
    _order_max = IN_ORDER
    _sorts_small = False

    def _write_small(self, batch: SmallBatch, small: SmallStager, codes: np.ndarray, count: int, base: int) -> int:
        events = self._buffer.events
        last: int = write_events(
            batch.source.rows, small.chosen, small.roles, codes, count, self._stager.free_roles, small.lanes, base,
            self._staged(events.end), events.roles, self._buffer.count,
        )  # fmt: skip
        return last

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def answer(self, until: int) -> Answer:
        """Read the events that are ready, up to `until`, and return the matches that they complete."""
        found = [self._collect_compressed() if self._is_compressed else self._collect() for _ in self._steps(until)]
        if len(found) == 1:
            return found[0]
        tables, starts, ends = zip(*found, strict=True)
        return Answer(pa.concat_tables(tables), np.concatenate(starts), np.concatenate(ends))

    def _steps(self, until: int) -> Iterator[None]:
        """Read the ready events piece by piece. The caller collects matches after each piece."""
        ready = self._buffer.take_ready(until)
        self._answer_events = 0
        pieces = self._pieces(ready) if ready is not None else [None]
        for piece in pieces:
            reached = until if piece is None or piece is pieces[-1] else int(piece.events.end[-1])
            self._advance_kernel(piece, reached)
            yield
            self._evict_events(reached)
        self._evict_rest(until)

    def _pieces(self, ready: Block[RunEvents]) -> Sequence[Block[RunEvents] | None]:
        """The events in stream order, split between timestamps. Between two pieces, expired events can be evicted."""
        # Without a window nothing expires.
        bounded = self._plan.window_ticks is not None or self._tables.in_events
        if ready.count <= _PIECE or not bounded:
            return [ready]
        ends = ready.events.end
        firsts = [0]
        while ready.count - firsts[-1] > _PIECE:
            firsts.append(int(np.searchsorted(ends, ends[firsts[-1] + _PIECE - 1], side="right")))
        return [cut(ready, a, b) for a, b in zip(firsts, [*firsts[1:], ready.count], strict=True) if a < b]

    def _read(self, ready: Block[RunEvents] | None, until: int) -> Answer:
        raise AssertionError("this operator reads events in _steps")

    def _advance_kernel(self, ready: Block[RunEvents] | None, until: int) -> None:
        buffer = self._buffer
        if ready is not None:
            first = buffer.count
            buffer.append(self._numbered(ready))
            self._check(self._kernel.read(self._kernel_events(), first, buffer.count, self._stager.keys.capacity))
        self._kernel.release(self._kernel_events(), until)

    def _numbered(self, block: Block[RunEvents]) -> Block[RunEvents]:
        """Events with their positions, in stream order. Events that only advance positions are left out."""
        if not self._run_plan.needs_positions:
            return block
        keys = self._stager.keys.count
        if keys > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(keys, np.int64)])
        key = block.events.key
        # If there are partitions, an event whose type lacks the attribute is in none of them.
        counted = np.where(key == EVERY_KEY, -1, key) if self._plan.key else key
        position = np.zeros(block.count if self._tables.numbers_keys else 0, np.int64)
        number_events(counted[: len(position)], self._counts, position)
        sequence = np.arange(block.count if self._tables.numbers_stream else 0) + self._total
        self._total += len(sequence)
        block = replace(block, events=block.events._replace(position=position, sequence=sequence))
        playing = np.flatnonzero(block.events.roles)
        return block if len(playing) == block.count else chosen(block, playing)

    def _report_many(self, what: str) -> None:
        report_many(self._query.name, what)

    def _check(self, status: Status) -> None:
        if status is Status.MATCH_LIMIT:
            raise LimitError(
                f"query '{self._query.name}' found more than "
                f"max_matches_per_timestamp={self._limits.max_matches_per_timestamp:,} "
                "matches that complete at one timestamp; "
                "use OUTPUT NON_OVERLAPPING for one match per incident or OUTPUT COMPRESSED for all, count "
                "them with AGG COUNT, give a smaller WITHIN window or a more selective WHERE, or raise the limit"
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

    # ── Giving matches out ─────────────────────────────────────────────────────────────────────────

    def _collect(self) -> Answer:
        found = self._found()
        if found is None:
            return self.nothing
        read = self._buffer.store.open_rows if self._query.into is None else None
        if read is not None and self._query.output.form is not OutputForm.LATEST:
            made = self._composite.of_slot_lists(*read, self._buffer.rows, found.slots, found.lengths)
            if made is not None:
                return Answer(made, NO_TICKS, NO_TICKS)
        matches = self._matches(found)
        return Answer(self._composite.of_matches(matches), matches.starts, matches.ends)

    def _found(self) -> KernelFound | None:
        """What the kernel has found since the last call; None if it has found nothing."""
        found = self._kernel.take(self._kernel_events() if self._tables.late else self._buffer.events)
        if isinstance(found, Status):
            self._check(found)
        if not isinstance(found, KernelFound):
            return None
        self._count_answer(len(found.slots))
        return found

    def matches(self, until: int) -> list[Matches]:
        """The matches that events up to tick `until` complete, as rows of tables."""
        parts = []
        for _ in self._steps(until):
            found = self._found()
            if found is not None:
                matches = self._matches(found)
                # The kernel writes the next ones to the same memory.
                parts.append(replace(matches, lengths=matches.lengths.copy(), ends=matches.ends.copy()))
        return parts

    def _matches(self, found: KernelFound) -> Matches:
        table, ticks, rows = self._fetch(found.slots)
        starts = gather(self._buffer.events.start, first_of_each(found.slots, found.lengths))
        matches = Matches(table, ticks, found.lengths, rows, starts, found.ends)
        if self._query.output.form is OutputForm.LATEST:
            return matches.picked(latest_matches(found.lengths, found.slots))
        return matches

    def _fetch(self, slots: np.ndarray) -> tuple[pa.Table, np.ndarray, np.ndarray]:
        """(table, ticks, places): a table with the rows of some slots, their event times, and for each slot its row in
        the table.
        """
        held = self._buffer
        if len(slots) < held.count:
            return held.store.fetch(gather(held.rows, slots))
        # Looked up once for each event, for all its matches.
        table, ticks, rows = held.store.fetch(held.rows[self._tables.reserved : held.count])
        by_slot = np.concatenate([np.zeros(self._tables.reserved, np.int32), rows])
        return table, ticks, gather(by_slot, slots)

    def _count_answer(self, events: int) -> None:
        """Raise an error if an answer has too many events, before its columns are built. An answer may come in several
        pieces.
        """
        self._answer_events += events
        self._limits.check_answer(self._query.name, self._answer_events)

    def _collect_compressed(self) -> Answer:
        found = self._kernel.take_compressed(self._kernel_events())
        if isinstance(found, Status):
            self._check(found)
        if not isinstance(found, FoundCompressed):
            return self.nothing
        self._count_answer(len(found.graph.cell_event) + len(found.graph.link_cell))
        table, _, rows = self._buffer.store.fetch(self._buffer.rows[found.graph.event_slot])
        made = compressed_table(self._run_plan, self._layout, self.schema, found, table, rows)
        return Answer(made, NO_TICKS, NO_TICKS)

    # ── A part of the stream ───────────────────────────────────────────────────────────────────────

    def search(self) -> Found:
        """The matches that all staged events complete."""
        parts = self.matches(LATEST)
        if not parts:
            return Found(NO_TICKS, NO_TICKS, None)
        matches = joined_matches([(one, 0, one.count) for one in parts])
        return Found(matches.ends, matches.last_rows(len(self._plan.positives) - 1), matches)

    def rows_of(self, slices: Sequence[tuple[Matches, int, int]], order: np.ndarray | None) -> pa.Table:
        """The rows of slices of several parts, in the given order."""
        matches = joined_matches(slices)
        return self._composite.of_matches(matches if order is None else matches.picked(order))

    def tie_ranks(self, table: pa.Table, ticks: np.ndarray, ties: np.ndarray) -> np.ndarray:
        """Ranks of simultaneous events: their order in the stream."""
        rows, places = np.unique(ties, return_inverse=True)
        deciding = table.select(self._stager.tie_breaks)
        end = ticks[rows]
        order = stream_order(end, end, np.ones(len(rows), bool), deciding, rows, len(self._layout.order))
        ranks = np.arange(len(rows))
        if order is not None:
            ranks[order] = np.arange(len(rows))
        return ranks[places]

    # ── Eviction ───────────────────────────────────────────────────────────────────────────────────

    def _rebase(self, dead: int, used: int) -> None:
        self._kernel.drop_front(dead, used)

    def _rekey(self, renamed: np.ndarray) -> None:
        self._kernel.rekey(renamed)
        known = renamed[: len(self._counts)]
        counts = np.zeros_like(self._counts)
        counts[known[known >= 0]] = self._counts[: len(renamed)][known >= 0]
        self._counts = counts

    def _evict_events(self, until: int) -> None:
        """Evict events that can be in no future match. `_evict_rest` removes their rows and codes."""
        buffer, window = self._buffer, self._plan.window_ticks
        if window is not None:
            bound = expiry_bound(until, window)

            def rebase(dead: int, used: int) -> None:
                self._kernel.sweep(bound + 1, self._counts)
                self._rebase(dead, used)

            self._has_evicted |= buffer.evict_front(buffer.expired(bound), rebase)
        elif self._tables.in_events and buffer.live >= self._swept_at:
            # A partition may get no more events, so expired events are between others.
            needed = self._kernel.sweep_positions(self._kernel_events(), self._counts, buffer.count)
            buffer.keep(np.flatnonzero(needed))
            # SKIP TO may name the slot after the last one.
            before = np.concatenate([[0], np.cumsum(needed)])
            self._kernel.renumber(self._kernel_events(), needed, before.astype(np.int32))
            self._swept_at = 2 * max(codes.COMPACT_MIN, buffer.live)
            self._has_evicted = True

    def _evict_rest(self, until: int) -> None:
        """Remove the rows, keys and texts that belonged only to evicted events."""
        if not self._has_evicted:
            return
        self._has_evicted = False
        bound = expiry_bound(until, self._plan.window_ticks)
        if self._plan.window_ticks is not None:
            self._buffer.store.evict(bound)
        else:
            self._buffer.keep_rows()
        marked: list[np.ndarray] = []
        if self._layout.start is not None and self._tables.form == Form.NON_OVERLAPPING:
            # A future event that lasts may have started before the last match ended.
            marked = [self._kernel.marked_keys(bound).astype(np.int32)]
        renamed = self._buffer.compact(self._stager.keys, "key", also=marked)
        if renamed is not None:
            self._rekey(renamed)
        for test, coder in enumerate(self._stager.coded):
            renamed = self._buffer.compact(coder, "codes", row=test)
            if renamed is not None:
                self._kernel.recode(test, renamed)
        self._compact_texts()

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def timer(self) -> int | None:
        """The tick at which the kernel returns matches even if no event comes; None if there is none."""
        return self._kernel.deadline

    @property
    def room(self) -> int:
        """At least this many events can be read before a limit must be checked, if they return no matches."""
        return min(super().room, self._kernel.room)

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the kernel."""
        return self._kernel.statistics

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; `load` takes what this returns."""
        return {
            **super().dump(writer),
            "kernel": self._kernel.dump(writer),
            "counts": [writer.add_array(self._counts), writer.add_array(self._total)],
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        super().load(reader, head)
        self._counts, self._total = reader.arrays(head["counts"])
        self._kernel.load(reader, head["kernel"], self._buffer.capacity, self._stager.keys.count)


def text_rows(lowered: RunLowered) -> list[int]:
    """The int64 lanes with codes or ranks of texts, which change over time."""
    specs = lowered.lanes.int_specs
    return [row for row, spec in enumerate(specs) if spec.domain in (Domain.RANK, Domain.CODE)]


def run_tables(plan: RunPlan, lowered: RunLowered, limits: Limits, *, points: bool = True) -> RunTables:
    """The kernel's tables for a plan. `points`: every event starts and ends at one time, so later events start
    later.
    """
    query = plan.query
    form = _FORMS[query.output.form]
    if query.output.form is OutputForm.LATEST and plan.kernel is RunKernel.GRAPH and points:
        form = Form.LATEST
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
        form=form,
        form_place=0 if query.output.component is None else places.index(query.output.component),
        merge=plan.merge,
        late=query.output.form in (OutputForm.ALL, OutputForm.LATEST),
        index_min=INDEX_MIN,
        renumbered_lanes=text_rows(lowered),
        max_matches_per_timestamp=min(limits.max_matches_per_timestamp, NO_LIMIT),
        max_runs=min(limits.max_partial_matches, NO_LIMIT),
        max_events=min(limits.max_answer_events, NO_LIMIT),
    )
