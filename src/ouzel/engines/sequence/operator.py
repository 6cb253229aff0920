"""Runs one sequence query over one stream: keeps instances on stacks and searches them backwards from the last
component.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.engines.sequence.stacks import rebase, rekey, release, scan
from ouzel.engines.sequence.tables import (
    Counter,
    Push,
    StackConjunct,
    StackTables,
    build_tables,
    new_output,
    new_state,
    reserve,
)
from ouzel.errors import LimitError
from ouzel.kernels.events import NO_LIMIT, Instances, Status
from ouzel.kernels.order import gather
from ouzel.plan.lowering import Lowered, lower
from ouzel.plan.model import KeyStrategy, NegationStrategy, Plan
from ouzel.runtime.buffer import LATEST, Block
from ouzel.runtime.expressions import any_holds
from ouzel.runtime.frames import EventFrame
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import NO_TICKS, Answer, Found, InstanceOperator, MatchOperator
from ouzel.runtime.output import Output, Places
from ouzel.runtime.snapshot import Reader, Writer

# Matches of one piece of an answer.
_OUTPUT_MATCHES = 1 << 18


class SequenceOperator(InstanceOperator, MatchOperator):
    """The state of one query. `stage` adds events; `advance` moves time and returns the matches."""

    def __init__(self, plan: Plan, layout: Layout, limits: Limits) -> None:
        self._lowered = lower(plan)
        super().__init__(plan, layout, limits, self._lowered.lanes)
        self._tables = _tables(plan, self._lowered, limits)
        self._state = new_state(self._tables, 0, 1, second_keys=1)
        self._output = new_output(self._tables, _OUTPUT_MATCHES)
        # The number of matches of one call of `advance`.
        self._found_count = 0
        self._composite = Output(self._query, layout)
        self.schema = self._composite.schema
        # Whether a match starts and ends at the times of its first and last events, and no query reads it.
        ends_later = self._query.negated_end or layout.start is not None
        self._ends_with_events = self._query.into is None and not ends_later

    def _rebase(self, dead: int, used: int) -> None:
        rebase(self._state, dead, used)

    def _rekey(self, renamed: np.ndarray) -> None:
        # The array `head` keeps its size; codes that are used again find their stacks empty.
        rekey(self._state.head, self._tables.components, renamed)

    def _compact_codes(self) -> None:
        super()._compact_codes()
        renamed = self._buffer.compact(self._stager.second_keys, "second_key")
        if renamed is not None:
            rekey(self._state.second_head, self._tables.components, renamed)

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def _read(self, ready: Block[Instances] | None, until: int) -> Answer:
        found = [self._answer(count) for count in self._pieces(ready, until)]
        if not found:
            return self.nothing
        if len(found) == 1:
            return found[0]
        tables, starts, ends = zip(*found, strict=True)
        return Answer(pa.concat_tables(tables), np.concatenate(starts), np.concatenate(ends))

    def _pieces(self, ready: Block[Instances] | None, until: int) -> Iterator[int]:
        """The number of matches in the kernel's output, piece by piece. The caller must read a piece before it asks for
        the next.
        """
        self._found_count = 0
        if ready is not None:
            yield from self._scan(ready)
        self._release(until)
        yield from self._collect()

    def _scan(self, ready: Block[Instances]) -> Iterator[int]:
        position = self._buffer.count
        self._buffer.append(ready)
        self._state = reserve(
            self._tables,
            self._state,
            self._buffer.capacity,
            self._stager.keys.capacity,
            second_keys=self._stager.second_keys.capacity,
        )
        instances = self._kernel_events()
        status = Status.OUTPUT_FULL
        while status is Status.OUTPUT_FULL:
            # One piece at a time: the kernel's output is still in the cache when it is read, and no large array is
            # written that is not part of the answer.
            yield from self._collect()
            status, position, self._state, self._output = scan(
                self._tables, self._state, instances, position, self._buffer.count, self._output, stop_when_full=True
            )
        self._raise_if_limited(status)

    def _release(self, until: int) -> None:
        if not self._query.negated_end:
            return
        progress = release(self._tables, self._state, self._kernel_events(), until, self._output)
        self._state, self._output = progress.state, progress.output
        self._raise_if_limited(progress.status)

    def _raise_if_limited(self, status: Status) -> None:
        if status is Status.MATCH_LIMIT:
            raise LimitError(
                f"query '{self._query.name}' found more than "
                f"max_matches_per_timestamp={self._limits.max_matches_per_timestamp:,} "
                "matches that complete at one timestamp; "
                "count them with AGG COUNT, give a smaller WITHIN window or a more selective WHERE, or raise the limit"
            )
        if status is Status.WAITING_LIMIT:
            raise LimitError(
                f"query '{self._query.name}' has more than max_partial_matches={self._limits.max_partial_matches:,} "
                "matches that wait for the end of their window; give a smaller WITHIN window or a more selective "
                "WHERE, or raise the limit"
            )
        assert status is Status.DONE

    def matches(self, until: int) -> list[Places]:
        """The matches that events up to tick `until` complete, as rows of tables."""
        self._numbered = None
        ready = self._buffer.take_ready(until)
        found = [self._places(count) for count in self._pieces(ready, until)]
        self._evict(until)
        return found

    # ── Giving matches out ─────────────────────────────────────────────────────────────────────────

    def _collect(self) -> Iterator[int]:
        """The number of matches in the kernel's output. After the caller has read them, the output is cleared."""
        count = int(self._output.written[0])
        if not count:
            return
        yield count
        self._output.written[0] = 0
        if self._output.match_end.size > 2 * _OUTPUT_MATCHES:
            self._output = new_output(self._tables, _OUTPUT_MATCHES)

    def _answer(self, count: int) -> Answer:
        """The rows of the answer for the matches in the kernel's output."""
        read = self._buffer.store.open_rows if self._ends_with_events and not self._lowered.residual else None
        if read is not None:
            made = self._composite.of_slots(*read, self._buffer.rows, self._output.slots, count)
            if made is not None:
                self._note_found(count)
                return Answer(made, NO_TICKS, NO_TICKS)
        matches = self._places(count)
        first, last = (NO_TICKS if ticks is None else ticks for ticks in (matches.starts, matches.ends))
        return Answer(self._composite.of_places(matches), first, last)

    def _places(self, count: int) -> Places:
        """The matches in the kernel's output, as rows of tables."""
        slots = [self._output.slots[position, :count] for position in range(self._tables.length)]
        table, ticks, places = self._fetch(slots)
        instances = self._buffer.events
        starts = ends = None
        if not self._ends_with_events:
            starts = gather(instances.start, slots[0])
            ends = self._output.match_end[:count].copy()
        if self._lowered.residual:
            kept = self._residual(table, ticks, places, count)
            places = [rows[kept] for rows in places]
            if starts is not None and ends is not None:
                starts, ends = starts[kept], ends[kept]
        self._note_found(len(places[0]))
        return Places(table, ticks, places, starts, ends)

    def _note_found(self, count: int) -> None:
        self._found_count += count
        self._limits.check_answer(self._query.name, self._found_count * self._tables.length)

    def _residual(self, table: pa.Table, ticks: np.ndarray, places: list[np.ndarray], count: int) -> np.ndarray:
        """Which matches satisfy the predicates that kernels cannot express."""
        position = {c.position: i for i, c in enumerate(self._query.positives)}
        frame = EventFrame(self._query, self._layout, table, ticks, lambda c: places[position[c]], count)
        kept = np.ones(count, bool)
        for conjunct in self._lowered.residual:
            kept &= any_holds(conjunct.comparisons, frame)
        return np.flatnonzero(kept)

    # ── A part of the stream ───────────────────────────────────────────────────────────────────────

    def search(self) -> Found:
        """The matches that all staged events complete."""
        found = [self._places(count) for count in self._pieces(self._buffer.take_ready(LATEST), LATEST)]
        if not found:
            return Found(NO_TICKS, NO_TICKS, None)
        table, ticks = found[0].table, found[0].ticks
        rows = [np.concatenate(places) for places in zip(*(matches.rows for matches in found), strict=True)]
        return Found(gather(ticks, rows[-1]), rows[-1], Places(table, ticks, rows))

    def rows_of(self, slices: Sequence[tuple[Places, int, int]], order: np.ndarray | None) -> pa.Table:
        """The rows of slices of several parts, in the given order."""
        places = zip(*([rows[a:b] for rows in matches.rows] for matches, a, b in slices), strict=True)
        joined = [np.concatenate(rows) if len(rows) > 1 else rows[0] for rows in places]
        rows = joined if order is None else [gather(one, order) for one in joined]
        return self._composite.of_places(Places(slices[0][0].table, slices[0][0].ticks, rows))

    def tie_ranks(self, table: pa.Table, ticks: np.ndarray, ties: np.ndarray) -> np.ndarray:
        """Ranks of simultaneous events: their order in the input."""
        return ties

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def timer(self) -> int | None:
        """The tick at which the kernel returns matches even if no event comes; None if there is none."""
        if not self._state.counters[Counter.WAITING]:
            return None
        first, window = self._state.waiting_heap[0], self._plan.window_ticks
        assert window is not None
        return min(LATEST, int(self._buffer.events.start[first]) + window - 1)

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; `load` takes what this returns."""
        state = {name: writer.add_array(getattr(self._state, name)) for name in _WHOLE}
        for name in _PER_SLOT:
            state[name] = writer.add_array(getattr(self._state, name)[..., : self._buffer.count])
        return {**super().dump(writer), "state": state}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        super().load(reader, head)
        stored: dict[str, Any] = {name: reader.array(number) for name, number in head["state"].items()}
        self._state = reserve(
            self._tables,
            self._state._replace(**stored),
            self._buffer.count,
            self._stager.keys.count,
            second_keys=self._stager.second_keys.count,
        )

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the kernel, by the names of `Counter`."""
        return {counter.name.lower(): int(self._state.counters[counter]) for counter in Counter}


# The parts of the kernel's state in a snapshot: arrays whose last axis is slots, of which only those in use are stored,
# and the others. The rest is scratch.
_PER_SLOT = ("links", "marks", "waiting_tail")
_WHOLE = ("head", "second_head", "waiting_slots", "waiting_next", "waiting_heap", "counters")


def _tables(plan: Plan, lowered: Lowered, limits: Limits) -> StackTables:
    push = Push(0)
    if plan.window_in_scan:
        push |= Push.WINDOW_INTO_SCAN
    if plan.window_in_construction:
        push |= Push.WINDOW_INTO_CONSTRUCTION
    if plan.negation is NegationStrategy.CONSTRUCTION:
        push |= Push.NEGATION
    conjuncts = [StackConjunct(c.alternatives) for c in lowered.construction]
    conjuncts += [StackConjunct(c.alternatives, early=False) for c in lowered.selection]
    conjuncts += [StackConjunct(c.alternatives) for group in lowered.forbidding.values() for c in group]
    places = {c.position: place for place, c in enumerate(plan.positives)}
    return build_tables(
        [c.negated for c in plan.query.components],
        plan.window_ticks,
        conjuncts,
        across={c.position: (places[c.across[0]], places[c.across[-1]]) for c in plan.negatives if c.across},
        everywhere=[c.position for c in plan.unguarded],
        push=push,
        second_equivalence=plan.key_strategy is KeyStrategy.MULTI_PAIS and len(plan.key) > 1,
        max_matches_per_timestamp=min(limits.max_matches_per_timestamp, NO_LIMIT),
        max_waiting=min(limits.max_partial_matches, NO_LIMIT),
    )
