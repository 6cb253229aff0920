"""What every runner over instances shares: events taken in, put in order and kept while they may still match.

Between calls a runner holds what is pending (staged, but something before it may still come), the live instances in
stream order, over which its kernel keeps a state of its own, and the rows behind both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.errors import LimitError
from ouzel.kernels.events import EVERY_KEY, Instances, new_instances
from ouzel.kernels.order import first_disorder, gather, stable_order
from ouzel.plan.lowering import Domain, Lanes
from ouzel.plan.model import KeyStrategy, Plan
from ouzel.runtime.frames import take
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.pruning import output_columns
from ouzel.runtime.rows import Payload
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.staging import Block, Stager
from ouzel.runtime.values import one_array

LATEST = 2**63 - 1
EARLIEST = -(2**63)
NO_MOMENTS = (np.empty(0, np.int64), np.empty(0, np.int64))
# Below this many the front of the buffer is not worth moving.
_COMPACT_MIN = 4096


class InstanceRunner(ABC):
    """Pending and live instances of one query. A kernel's runner says what happens to its state when they move."""

    def __init__(self, plan: Plan, layout: Layout, limits: Limits, lanes: Lanes) -> None:
        self._plan = plan
        self._query = plan.query
        self._layout = layout
        self._limits = limits
        self._lanes = lanes
        self._stager = Stager(plan, lanes, layout)
        self._ranked = [
            (position, number)
            for position, specs in lanes.ints.items()
            for number, spec in enumerate(specs)
            if spec.domain is Domain.RANK
        ]
        kept = output_columns(plan, layout)
        self._kept_columns = [name for name in layout.schema.names if name in kept]
        self._payload = Payload()
        self._pending: list[Block] = []
        self._live = Block(np.empty(0, np.int64), self._new_instances(0))
        self._live_count = 0
        # The live rows, numbered once for all matches of one call.
        self._numbered: tuple[pa.Table, np.ndarray, np.ndarray] | None = None

    @abstractmethod
    def _rebase(self, dead: int) -> None:
        """The first instances are about to be given up; the kernel's state moves down with the others."""

    @abstractmethod
    def _rekey(self, renamed: np.ndarray) -> None:
        """Codes of keys have changed."""

    @abstractmethod
    def _rekey_second(self, renamed: np.ndarray) -> None:
        """Codes of second keys, which only Multi-PAIS has, have changed."""

    def _new_instances(self, capacity: int) -> Instances:
        return new_instances(
            capacity,
            int_lanes=self._lanes.int_count,
            float_lanes=self._lanes.float_count,
            points=self._layout.start is None,
            second_key=self._plan.key_strategy is KeyStrategy.MULTI_PAIS and len(self._plan.key) > 1,
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
        most = self._limits.max_buffered_events
        # An event has an instance for each component that it may play, so there are no more events than instances.
        instances = self._live_count + sum(block.count for block in self._pending)
        if instances > most and self.held_events > most:
            raise LimitError(
                f"query '{self._query.name}' holds {self.held_events:,} events, more than "
                f"max_buffered_events={self._limits.max_buffered_events:,}; "
                "give it a smaller WITHIN window, a more selective WHERE, or a higher limit"
            )

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def _take_ready(self, until: int) -> Block | None:
        """What is pending at or before a tick, in stream order."""
        if not self._pending:
            return None
        block = self._pending[0] if len(self._pending) == 1 else _joined(self._pending)
        end = block.instances.end
        if until < LATEST and end.max() > until:
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

    # ── Letting go ─────────────────────────────────────────────────────────────────────────────────

    def _forget(self, until: int) -> None:
        window = self._plan.window_ticks
        if window is None:
            return
        # A match that completes after `until` starts later than this tick.
        dead_until = max(EARLIEST, until + 1 - window)
        ends = self._live.instances.end[: self._live_count]
        dead = int(np.searchsorted(ends, dead_until, side="right"))
        if (dead == self._live_count and dead) or dead > max(_COMPACT_MIN, self._live_count - dead):
            self._drop_front(dead)
        self._payload.forget(dead_until)
        self._forget_keys()

    def _drop_front(self, dead: int) -> None:
        self._rebase(dead)
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
        if self._stager.second_keys.count > 2 * max(_COMPACT_MIN, held):
            live = np.unique(np.concatenate([block.instances.second_key for block in blocks]))
            renamed = self._stager.second_keys.compact(live[live > EVERY_KEY])
            for block in blocks:
                block.instances.second_key[:] = renamed[block.instances.second_key]
            self._rekey_second(renamed)
        texts = self._stager.texts
        if texts.count > 2 * max(_COMPACT_MIN, held * max(1, self._lanes.int_count)):
            self._rename_texts(blocks)

    def _rename_keys(self, live: np.ndarray, blocks: list[Block]) -> None:
        renamed = self._stager.keys.compact(live)
        for block in blocks:
            block.instances.key[:] = renamed[block.instances.key]
        self._rekey(renamed)

    def _rename_texts(self, blocks: list[Block]) -> None:
        lanes = [
            (position, number)
            for position, specs in self._lanes.ints.items()
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

    # ── What is held ───────────────────────────────────────────────────────────────────────────────

    @property
    def held_events(self) -> int:
        """How many events are pending or live."""
        return _event_count(self._live.rows[: self._live_count]) + sum(_event_count(b.rows) for b in self._pending)

    def open_by_key(self, watermark: int) -> list[tuple[tuple[int | str, ...], int, int]]:
        """The keys of events that may still be part of a match: their values, how many events, the oldest one's end.

        Events that may join every key, and those of a query without keys, have the key ().
        """
        window = self._plan.window_ticks
        dead_until = EARLIEST if window is None else max(EARLIEST, watermark + 1 - window)
        blocks = [_cut(self._live.instances, self._live_count), *(block.instances for block in self._pending)]
        return open_by_key([block.key for block in blocks], [block.end for block in blocks], dead_until, self._stager)

    def _dump_events(self, writer: Writer) -> dict[str, Any]:
        """All but the kernel's state, for a snapshot."""
        following, bases, chunks = self._payload.dump()
        live = Block(self._live.rows[: self._live_count], _cut(self._live.instances, self._live_count))
        return {
            "payload": [following, bases, [[writer.add_table(t), writer.add_array(k)] for t, k in chunks]],
            "live": _dump_block(live, writer),
            "pending": [_dump_block(block, writer) for block in self._pending],
            "coders": [
                [is_text, [writer.add_array(array) for array in arrays]]
                for is_text, arrays in (coder.dump() for coder in self._stager.coders)
            ],
        }

    def _load_events(self, reader: Reader, head: dict[str, Any]) -> None:
        """Take back what `_dump_events` stored."""
        following, bases, chunks = head["payload"]
        parts = [(reader.table(table), reader.array(ticks)) for table, ticks in chunks]
        self._payload = Payload.load(following, bases, parts)
        self._live = _load_block(head["live"], reader)
        self._live_count = self._live.count
        self._pending = [_load_block(block, reader) for block in head["pending"]]
        self._stager.load_coders([(is_text, reader.arrays(numbers)) for is_text, numbers in head["coders"]])


def open_by_key(
    keys: list[np.ndarray], ends: list[np.ndarray], dead_until: int, stager: Stager
) -> list[tuple[tuple[int | str, ...], int, int]]:
    """For each key of events after a tick its values, how many events, and the oldest one's end."""
    key, end = np.concatenate(keys), np.concatenate(ends)
    key, end = key[end > dead_until], end[end > dead_until]
    codes, places, counts = np.unique(key, return_inverse=True, return_counts=True)
    oldest = np.full(len(codes), LATEST)
    np.minimum.at(oldest, places, end)
    own = codes > EVERY_KEY
    values: list[tuple[int | str, ...]] = [()] * int((~own).sum())
    values += stager.keys.values(codes[own]) if own.any() else []
    return list(zip(values, counts.tolist(), oldest.tolist(), strict=True))


def _event_count(rows: np.ndarray) -> int:
    """How many events stand behind instances; those of one event lie side by side."""
    return int(np.count_nonzero(rows[1:] != rows[:-1])) + 1 if len(rows) else 0


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
