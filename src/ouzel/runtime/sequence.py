"""Running one sequence query over one stream: pending events are put in order, scanned, and let go.

Between calls the runner holds what is pending (staged, but something before it may still come), the live instances in
stream order with the kernel's state over them, and the rows behind both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.errors import LimitError
from ouzel.kernels.order import first_disorder, gather, stable_order
from ouzel.kernels.stack_tables import (
    EVERY_KEY,
    NO_LIMIT,
    Counter,
    Instances,
    Push,
    StackConjunct,
    StackTables,
    Status,
    build_tables,
    new_instances,
    new_output,
    new_state,
    reserve,
)
from ouzel.kernels.stack_upkeep import rebase, rekey
from ouzel.kernels.stacks import release, scan
from ouzel.plan.lower import Domain, Lowered, lower
from ouzel.plan.model import KeyWay, NegationWay, Plan
from ouzel.runtime.frames import EventFrame, take
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.needs import output_columns
from ouzel.runtime.payload import Payload
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.stage import Block, Stager
from ouzel.runtime.transform import output_schema, transform
from ouzel.runtime.values import one_array
from ouzel.runtime.vectors import holds

_LATEST = 2**63 - 1
_EARLIEST = -(2**63)
_NO_MOMENTS = (np.empty(0, np.int64), np.empty(0, np.int64))
# Below this many the front of the buffer is not worth moving.
_COMPACT_MIN = 4096
# Matches of one piece of an answer.
_OUTPUT_MATCHES = 1 << 18


class SequenceRunner:
    """The state of one query. `stage` takes events in, `advance` moves time on and gives the matches."""

    def __init__(self, plan: Plan, layout: Layout, limits: Limits) -> None:
        self._plan = plan
        self._query = plan.query
        self._layout = layout
        self._limits = limits
        self._lowered = lower(plan)
        self._tables = _tables(plan, self._lowered, limits)
        self._stager = Stager(plan, self._lowered.lanes, layout)
        self._ranked = [
            (position, number)
            for position, specs in self._lowered.lanes.ints.items()
            for number, spec in enumerate(specs)
            if spec.domain is Domain.RANK
        ]
        kept = output_columns(plan, layout)
        self._kept_columns = [name for name in layout.schema.names if name in kept]
        self._payload = Payload()
        self._pending: list[Block] = []
        self._live = Block(np.empty(0, np.int64), self._new_instances(0))
        self._live_count = 0
        self._state = new_state(self._tables, 0, 1, second_keys=1)
        self._output = new_output(self._tables, _OUTPUT_MATCHES)
        # What one call of `advance` finds, piece by piece.
        self._found: list[pa.Table] = []
        self._moments: list[tuple[np.ndarray, np.ndarray]] = []
        self._numbered: tuple[pa.Table, np.ndarray, np.ndarray] | None = None
        self.schema = output_schema(self._query, layout)

    def _new_instances(self, capacity: int) -> Instances:
        lanes = self._lowered.lanes
        return new_instances(
            capacity,
            int_lanes=lanes.int_count,
            float_lanes=lanes.float_count,
            points=self._layout.start is None,
            second_key=self._plan.key_way is KeyWay.MULTI_PAIS and len(self._plan.key) > 1,
        )

    # ── Taking events in ───────────────────────────────────────────────────────────────────────────

    def stage(self, table: pa.Table, ticks: np.ndarray, *, keep_whole: bool = False) -> None:
        """Take rows in, in any order. `keep_whole`: refer to the table as it is instead of copying what matters."""
        places, block = self._stager.stage(table, ticks)
        if not block.count:
            return
        if keep_whole:
            base = self._payload.append(table, ticks)
            rows = places.astype(np.int64)[block.rows] + base
        else:
            columns = [take(one_array(table.column(name)), places) for name in self._kept_columns]
            base = self._payload.append(pa.table(columns, names=self._kept_columns), gather(ticks, places))
            rows = block.rows.astype(np.int64) + base
        self._pending.append(Block(rows, block.instances))
        held = self._live_count + sum(block.count for block in self._pending)
        if held > self._limits.max_buffered_events:
            raise LimitError(
                f"query '{self._query.name}' holds {held:,} events, more than "
                f"max_buffered_events={self._limits.max_buffered_events:,}; "
                "give it a smaller WITHIN window, a more selective WHERE, or a higher limit"
            )

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def advance(self, until: int) -> pa.Table:
        """No event at or before `until` can come any more: match what is ready and give what completed."""
        ready = self._take_ready(until)
        first = self._live_count
        if ready is not None:
            self._append(ready)
        self._found = []
        self._moments = []
        self._scan(first)
        self._release(until)
        self._collect()
        self._numbered = None
        self._forget(until)
        return pa.concat_tables(self._found) if self._found else self.schema.empty_table()

    def _take_ready(self, until: int) -> Block | None:
        """What is pending at or before a tick, in stream order."""
        if not self._pending:
            return None
        block = self._pending[0] if len(self._pending) == 1 else _joined(self._pending)
        end = block.instances.end
        if until < _LATEST and end.max() > until:
            ready = np.flatnonzero(end <= until)
            later = np.flatnonzero(end > until)
            self._pending = [_chosen(block, later)]
            if not len(ready):
                return None
            block = _chosen(block, ready)
        else:
            self._pending = []
        instances = block.instances
        if instances.start is not instances.end:
            return _chosen(block, np.lexsort((instances.start, instances.end)).astype(np.int32))
        if first_disorder(instances.end) < 0:
            return block
        return _chosen(block, stable_order(instances.end))

    def _append(self, block: Block) -> None:
        if not self._live_count:
            self._live, self._live_count = block, block.count
            return
        total = self._live_count + block.count
        if total > len(self._live.rows):
            capacity = max(total, 2 * self._live_count)
            grown = Block(np.empty(capacity, np.int64), self._new_instances(capacity))
            _copy(self._live, 0, self._live_count, grown, 0)
            self._live = grown
        _copy(block, 0, block.count, self._live, self._live_count)
        np.maximum(self._live.instances.flagged, block.instances.flagged, out=self._live.instances.flagged)
        self._live_count = total

    def _scan(self, first: int) -> None:
        if first == self._live_count:
            return
        self._state = reserve(
            self._tables,
            self._state,
            len(self._live.rows),
            self._stager.keys.count,
            second_keys=self._stager.second_keys.count,
        )
        instances = self._kernel_instances()
        status, position = Status.OUTPUT_FULL, first
        while status is Status.OUTPUT_FULL:
            # A piece at a time: what the kernel wrote is still in the cache when it is read, and nothing large is
            # written that is not part of the answer.
            self._collect()
            status, position, self._state, self._output = scan(
                self._tables, self._state, instances, position, self._live_count, self._output, stop_when_full=True
            )
        self._raise_if_limited(status)

    def _release(self, until: int) -> None:
        if not self._query.components[-1].negated:
            return
        progress = release(self._tables, self._state, self._kernel_instances(), until, self._output)
        self._state, self._output = progress.state, progress.output
        self._raise_if_limited(progress.status)

    def _kernel_instances(self) -> Instances:
        """The live instances as the kernel reads them: texts that are ordered by rank get their rank of today."""
        instances = self._live.instances
        if not self._ranked:
            return instances
        ranks = self._stager.texts.ranks()
        lanes = instances.int_lanes.copy()
        for position, number in self._ranked:
            chosen = np.flatnonzero(instances.component[: self._live_count] == position)
            codes = lanes[number, chosen]
            lanes[number, chosen] = np.where(codes >= 0, ranks[np.maximum(codes, 0)], 0) if len(ranks) else 0
        return instances._replace(int_lanes=lanes)

    def _raise_if_limited(self, status: Status) -> None:
        if status is Status.MATCH_LIMIT:
            raise LimitError(
                f"query '{self._query.name}' found more than "
                f"max_matches_per_moment={self._limits.max_matches_per_moment:,} matches that complete at one moment; "
                "count them with AGG COUNT, give a smaller WITHIN window or a more selective WHERE, or raise the limit"
            )
        if status is Status.WAITING_LIMIT:
            raise LimitError(
                f"query '{self._query.name}' has more than max_partial_matches={self._limits.max_partial_matches:,} "
                "matches that wait for the end of their window; give a smaller WITHIN window or a more selective "
                "WHERE, or raise the limit"
            )
        assert status is Status.DONE

    # ── Giving matches out ─────────────────────────────────────────────────────────────────────────

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and end, in ticks, of the rows that the last `advance` gave, if some other query may read them."""
        if not self._moments:
            return _NO_MOMENTS
        starts, ends = zip(*self._moments, strict=True)
        return np.concatenate(starts), np.concatenate(ends)

    def _collect(self) -> None:
        """Make an answer of the matches that the kernel has written, and its buffers free again."""
        count = int(self._output.written[0])
        if not count:
            return
        slots = [self._output.slots[position, :count] for position in range(self._tables.length)]
        table, ticks, places = self._fetch(slots)
        instances = self._live.instances
        starts = ends = None
        if self._query.into is not None or instances.start is not instances.end or self._query.components[-1].negated:
            starts = gather(instances.start, slots[0])
            ends = self._output.match_end[:count].copy()
        if self._lowered.residual:
            kept = self._residual(table, ticks, places, count)
            places = [rows[kept] for rows in places]
            if starts is not None and ends is not None:
                starts, ends = starts[kept], ends[kept]
        self._found.append(transform(self._query, self._layout, table, ticks, places, starts, ends))
        if starts is not None and ends is not None:
            self._moments.append((starts, ends))
        self._output.written[0] = 0
        if self._output.match_end.size > 2 * _OUTPUT_MATCHES:
            self._output = new_output(self._tables, _OUTPUT_MATCHES)

    def _fetch(self, slots: list[np.ndarray]) -> tuple[pa.Table, np.ndarray, list[np.ndarray]]:
        """A table with the rows of matches, their event times, and for each component where its rows stand."""
        if self._payload.is_whole:
            # All live rows lie in one table: number them once instead of once for each match.
            if self._numbered is None:
                self._numbered = self._payload.fetch(self._live.rows[: self._live_count])
            table, ticks, local = self._numbered
            return table, ticks, [gather(local, one) for one in slots]
        table, ticks, places = self._payload.fetch(self._live.rows[np.stack(slots)])
        return table, ticks, list(places)

    def _residual(self, table: pa.Table, ticks: np.ndarray, places: list[np.ndarray], count: int) -> np.ndarray:
        """Which matches satisfy the predicates that kernels cannot express."""
        position = {c.position: i for i, c in enumerate(self._query.positives)}
        frame = EventFrame(self._query, self._layout, table, ticks, lambda c: places[position[c]], count)
        kept = np.ones(count, bool)
        for conjunct in self._lowered.residual:
            kept &= np.logical_or.reduce([holds(comparison, frame) for comparison in conjunct.comparisons])
        return np.flatnonzero(kept)

    # ── Letting go ─────────────────────────────────────────────────────────────────────────────────

    def _forget(self, until: int) -> None:
        window = self._plan.window_ticks
        if window is None:
            return
        # A match that completes after `until` starts later than this tick.
        dead_until = max(_EARLIEST, until + 1 - window)
        ends = self._live.instances.end[: self._live_count]
        dead = int(np.searchsorted(ends, dead_until, side="right"))
        if (dead == self._live_count and dead) or dead > max(_COMPACT_MIN, self._live_count - dead):
            self._drop_front(dead)
        self._payload.forget(dead_until)
        self._forget_keys()

    def _drop_front(self, dead: int) -> None:
        rebase(self._state, dead, self._live_count)
        left = self._live_count - dead
        kept = Block(np.empty(left, np.int64), self._new_instances(left))
        _copy(self._live, dead, left, kept, 0)
        self._live, self._live_count = kept, left

    def _forget_keys(self) -> None:
        """Codes of keys and texts that no live event has are given up, so that memory follows the window."""
        held = self._live_count + sum(block.count for block in self._pending)
        blocks = [Block(self._live.rows[: self._live_count], _cut(self._live.instances, self._live_count))]
        blocks += self._pending
        if self._stager.keys.count > 2 * max(_COMPACT_MIN, held):
            live = np.unique(np.concatenate([block.instances.key for block in blocks]))
            self._rename_keys(live[live > EVERY_KEY], blocks)
        texts = self._stager.texts
        if texts.count > 2 * max(_COMPACT_MIN, held * max(1, self._lowered.lanes.int_count)):
            self._rename_texts(blocks)

    def _rename_keys(self, live: np.ndarray, blocks: list[Block]) -> None:
        renamed = self._stager.keys.compact(live)
        for block in blocks:
            block.instances.key[:] = renamed[block.instances.key]
        # Head keeps its room; codes that come again find their stacks empty.
        rekey(self._state.head, self._tables.components, renamed)

    def _rename_texts(self, blocks: list[Block]) -> None:
        lanes = [
            (position, number)
            for position, specs in self._lowered.lanes.ints.items()
            for number, spec in enumerate(specs)
            if spec.domain in (Domain.CODE, Domain.RANK)
        ]
        chosen = [
            (block.instances.int_lanes[number], np.flatnonzero(block.instances.component == position))
            for block in blocks
            for position, number in lanes
        ]
        live = np.unique(np.concatenate([lane[where] for lane, where in chosen])).astype(np.int32)
        renamed = self._stager.texts.compact(live[live >= 0])
        for lane, where in chosen:
            codes = lane[where]
            lane[where] = np.where(codes >= 0, renamed[np.maximum(codes, 0)], codes)

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which something that is held could lead to an answer by time alone."""
        ticks = [int(block.instances.end.min()) for block in self._pending if block.count]
        if self._state.counters[Counter.WAITING]:
            first = self._state.waiting_heap[0]
            window = self._plan.window_ticks
            assert window is not None
            ticks.append(min(_LATEST, int(self._live.instances.start[first]) + window - 1))
        return min(ticks, default=None)

    @property
    def held_events(self) -> int:
        """How many events are pending or live."""
        return self._live_count + sum(block.count for block in self._pending)

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; gives what `load` needs to find it again."""
        following, bases, chunks = self._payload.dump()
        state = {name: writer.add_array(getattr(self._state, name)) for name in _WHOLE}
        for name in _PER_SLOT:
            state[name] = writer.add_array(getattr(self._state, name)[..., : self._live_count])
        live = Block(self._live.rows[: self._live_count], _cut(self._live.instances, self._live_count))
        return {
            "payload": [following, bases, [[writer.add_table(t), writer.add_array(k)] for t, k in chunks]],
            "state": state,
            "live": _dump_block(live, writer),
            "pending": [_dump_block(block, writer) for block in self._pending],
            "coders": [
                [is_text, [writer.add_array(array) for array in arrays]]
                for is_text, arrays in (coder.dump() for coder in self._stager.coders)
            ],
        }

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Take the place of the runner that `dump` stored."""
        following, bases, chunks = head["payload"]
        parts = [(reader.table(table), reader.array(ticks)) for table, ticks in chunks]
        self._payload = Payload.load(following, bases, parts)
        stored: dict[str, Any] = {name: reader.array(number) for name, number in head["state"].items()}
        self._live = _load_block(head["live"], reader)
        self._live_count = self._live.count
        self._pending = [_load_block(block, reader) for block in head["pending"]]
        self._stager.load_coders([(is_text, reader.arrays(numbers)) for is_text, numbers in head["coders"]])
        self._state = reserve(
            self._tables,
            self._state._replace(**stored),
            self._live_count,
            self._stager.keys.count,
            second_keys=self._stager.second_keys.count,
        )

    @property
    def statistics(self) -> dict[str, int]:
        """What the kernel counted, by the names of `Counter`."""
        return {counter.name.lower(): int(self._state.counters[counter]) for counter in Counter}


# What a snapshot holds of the kernel's state: arrays whose last axis is slots, of which only those in use are stored,
# and the others. The rest is scratch.
_PER_SLOT = ("links", "marks", "waiting_tail")
_WHOLE = ("head", "second_head", "waiting_slots", "waiting_next", "waiting_heap", "counters")


def _tables(plan: Plan, lowered: Lowered, limits: Limits) -> StackTables:
    push = Push(0)
    if plan.window_in_scan:
        push |= Push.WINDOW_INTO_SCAN
    if plan.window_in_construction:
        push |= Push.WINDOW_INTO_CONSTRUCTION
    if plan.negation is NegationWay.CONSTRUCTION:
        push |= Push.NEGATION
    conjuncts = [StackConjunct(c.alternatives) for c in lowered.construction]
    conjuncts += [StackConjunct(c.alternatives, early=False) for c in lowered.selection]
    conjuncts += [StackConjunct(c.alternatives) for group in lowered.forbidding.values() for c in group]
    return build_tables(
        [c.negated for c in plan.query.components],
        plan.window_ticks,
        conjuncts,
        everywhere=[c.position for c in plan.unguarded],
        push=push,
        second_equivalence=plan.key_way is KeyWay.MULTI_PAIS and len(plan.key) > 1,
        max_matches_per_moment=min(limits.max_matches_per_moment, NO_LIMIT),
        max_waiting=min(limits.max_partial_matches, NO_LIMIT),
    )


def _dump_block(block: Block, writer: Writer) -> dict[str, Any]:
    instances = block.instances
    fields = {name: writer.add_array(array) for name, array in instances._asdict().items() if name != "start"}
    start = None if instances.start is instances.end else writer.add_array(instances.start)
    return {"rows": writer.add_array(block.rows), "fields": fields, "start": start}


def _load_block(head: dict[str, Any], reader: Reader) -> Block:
    fields = {name: reader.array(number) for name, number in head["fields"].items()}
    start = fields["end"] if head["start"] is None else reader.array(head["start"])
    return Block(reader.array(head["rows"]), Instances(start=start, **fields))


def _chosen(block: Block, places: np.ndarray) -> Block:
    """Some instances of a block, in a given order."""
    instances = block.instances
    end = instances.end[places]
    return Block(
        block.rows[places],
        instances._replace(
            start=end if instances.start is instances.end else instances.start[places],
            end=end,
            key=instances.key[places],
            second_key=instances.second_key[places] if instances.second_key.size else instances.second_key,
            component=instances.component[places],
            int_lanes=np.ascontiguousarray(instances.int_lanes[:, places]),
            float_lanes=np.ascontiguousarray(instances.float_lanes[:, places]),
            lane_flags=np.ascontiguousarray(instances.lane_flags[:, places]),
        ),
    )


def _joined(blocks: list[Block]) -> Block:
    """Blocks one after the other."""
    parts = [block.instances for block in blocks]
    end = np.concatenate([p.end for p in parts])
    points = all(p.start is p.end for p in parts)
    return Block(
        np.concatenate([block.rows for block in blocks]),
        Instances(
            start=end if points else np.concatenate([p.start for p in parts]),
            end=end,
            key=np.concatenate([p.key for p in parts]),
            second_key=np.concatenate([p.second_key for p in parts]),
            component=np.concatenate([p.component for p in parts]),
            int_lanes=np.concatenate([p.int_lanes for p in parts], axis=1),
            float_lanes=np.concatenate([p.float_lanes for p in parts], axis=1),
            lane_flags=np.concatenate([p.lane_flags for p in parts], axis=1),
            flagged=np.maximum.reduce([p.flagged for p in parts]),
        ),
    )


def _cut(instances: Instances, count: int) -> Instances:
    """The first instances, as views."""
    end = instances.end[:count]
    return instances._replace(
        start=end if instances.start is instances.end else instances.start[:count],
        end=end,
        key=instances.key[:count],
        second_key=instances.second_key[:count],
        component=instances.component[:count],
        int_lanes=instances.int_lanes[:, :count],
        float_lanes=instances.float_lanes[:, :count],
        lane_flags=instances.lane_flags[:, :count],
    )


def _copy(source: Block, first: int, count: int, target: Block, at: int) -> None:
    target.rows[at : at + count] = source.rows[first : first + count]
    for name in ("end", "key", "component"):
        getattr(target.instances, name)[at : at + count] = getattr(source.instances, name)[first : first + count]
    if target.instances.start is not target.instances.end:
        target.instances.start[at : at + count] = source.instances.start[first : first + count]
    if target.instances.second_key.size:
        target.instances.second_key[at : at + count] = source.instances.second_key[first : first + count]
    for name in ("int_lanes", "float_lanes", "lane_flags"):
        getattr(target.instances, name)[:, at : at + count] = getattr(source.instances, name)[:, first : first + count]
    np.maximum(target.instances.flagged, source.instances.flagged, out=target.instances.flagged)
