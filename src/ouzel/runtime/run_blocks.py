"""Blocks of events on their way into the run kernel: choosing, joining, buffering, storing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.kernels.run_tables import RunEvents, RunTables, new_events
from ouzel.runtime.run_stage import RunBlock
from ouzel.runtime.snapshot import Reader, Writer

# Of RunEvents, by the axis along which events lie.
_FLAT = ("end", "key", "roles", "position", "sequence")
_WIDE = ("codes", "int_lanes", "float_lanes", "lane_flags")


def chosen(block: RunBlock, places: np.ndarray) -> RunBlock:
    """Some events of a block, in a given order."""
    events = block.events
    arrays = {name: _taken(getattr(events, name), places) for name in _FLAT}
    arrays |= {name: np.ascontiguousarray(getattr(events, name)[:, places]) for name in _WIDE}
    arrays["start"] = arrays["end"] if events.start is events.end else events.start[places]
    return RunBlock(block.rows[places], events._replace(**arrays), block.deciding, block.deciding_rows[places])


def set_aside(block: RunBlock, places: np.ndarray) -> RunBlock:
    """Some events of a block, with their own rows of `deciding` only, so that the block's others can be freed."""
    kept = chosen(block, places)
    rows = np.arange(kept.count, dtype=np.int64)
    return RunBlock(kept.rows, kept.events, block.deciding.take(pa.array(kept.deciding_rows)), rows)


def cut(block: RunBlock, first: int, last: int) -> RunBlock:
    """The events of a block in a stretch of places, without copying them."""
    events = block.events
    arrays = {name: getattr(events, name)[first:last] for name in _FLAT}
    arrays |= {name: getattr(events, name)[:, first:last] for name in _WIDE}
    arrays["start"] = arrays["end"] if events.start is events.end else events.start[first:last]
    return RunBlock(block.rows[first:last], events._replace(**arrays), block.deciding, block.deciding_rows[first:last])


def _taken(array: np.ndarray, places: np.ndarray) -> np.ndarray:
    # Positions are given once events stand in order; before that there are none.
    return array[places] if array.size else array


def joined(blocks: list[RunBlock]) -> RunBlock:
    """Blocks one after the other."""
    parts = [block.events for block in blocks]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _FLAT}
    arrays |= {name: np.concatenate([getattr(part, name) for part in parts], axis=1) for name in _WIDE}
    points = all(part.start is part.end for part in parts)
    arrays["start"] = arrays["end"] if points else np.concatenate([part.start for part in parts])
    offsets = np.cumsum([0, *(block.deciding.num_rows for block in blocks)])
    return RunBlock(
        np.concatenate([block.rows for block in blocks]),
        parts[0]._replace(**arrays),
        pa.concat_tables([block.deciding for block in blocks]),
        np.concatenate([block.deciding_rows + offset for block, offset in zip(blocks, offsets, strict=False)]),
    )


class Buffer:
    """The live events in stream order, behind the slots that belong to the kernel, and the rows behind them."""

    def __init__(self, tables: RunTables, *, int_rows: int, float_rows: int, points: bool) -> None:
        self._tables = tables
        self._lanes = {"int_lanes": int_rows, "float_lanes": float_rows, "points": points}
        self.events = self._room(0)
        self.rows = np.full(tables.reserved, -1, np.int64)
        self.count = tables.reserved

    def _room(self, events: int) -> RunEvents:
        return new_events(self._tables, self._tables.reserved + events, **self._lanes)  # type: ignore[arg-type]

    @property
    def live(self) -> int:
        """How many events there are."""
        return self.count - self._tables.reserved

    def append(self, block: RunBlock) -> None:
        total = self.count + block.count
        if total > len(self.rows):
            self._move(0, max(total, 2 * self.count))
        self._write(block.events, 0, block.count, self.count)
        self.rows[self.count : total] = block.rows
        self.count = total

    def drop_front(self, dead: int) -> None:
        """Let go of the oldest events."""
        self._move(dead, self.count - dead)

    def keep(self, slots: np.ndarray) -> None:
        """Let go of all but some slots, those of the kernel among them."""
        old = self.events
        self.events = self._room(len(slots) - self._tables.reserved)
        for name in _FLAT:
            if getattr(old, name).size:
                getattr(self.events, name)[:] = getattr(old, name)[slots]
        if self.events.start is not self.events.end:
            self.events.start[:] = old.start[slots]
        for name in _WIDE:
            getattr(self.events, name)[:] = getattr(old, name)[:, slots]
        self.rows = self.rows[slots]
        self.count = len(slots)

    def _move(self, dead: int, capacity: int) -> None:
        reserved = self._tables.reserved
        old, rows, count = self.events, self.rows, self.count
        self.events = self._room(capacity - reserved)
        self._write(old, 0, reserved, 0)
        self._write(old, reserved + dead, count - reserved - dead, reserved)
        self.rows = np.full(capacity, -1, np.int64)
        self.rows[reserved : count - dead] = rows[reserved + dead : count]
        self.count = count - dead

    def _write(self, source: RunEvents, first: int, count: int, at: int) -> None:
        for name in _FLAT:
            if getattr(self.events, name).size:
                getattr(self.events, name)[at : at + count] = getattr(source, name)[first : first + count]
        if self.events.start is not self.events.end:
            self.events.start[at : at + count] = source.start[first : first + count]
        for name in _WIDE:
            getattr(self.events, name)[:, at : at + count] = getattr(source, name)[:, first : first + count]

    def dump(self, writer: Writer) -> dict[str, Any]:
        count = self.count
        arrays = {name: writer.add_array(getattr(self.events, name)[:count]) for name in ("start", *_FLAT)}
        arrays |= {name: writer.add_array(getattr(self.events, name)[:, :count]) for name in _WIDE}
        return {"arrays": arrays, "rows": writer.add_array(self.rows[:count])}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        self.rows = reader.array(head["rows"])
        self.count = len(self.rows)
        stored = {name: reader.array(number) for name, number in head["arrays"].items()}
        if self.events.start is self.events.end:
            stored["start"] = stored["end"]
        self.events = self.events._replace(**stored)


def dump_block(block: RunBlock, writer: Writer) -> dict[str, Any]:
    events = block.events
    arrays = {name: writer.add_array(getattr(events, name)) for name in (*_FLAT, *_WIDE, "flagged")}
    start = None if events.start is events.end else writer.add_array(events.start)
    deciding = block.deciding.take(pa.array(block.deciding_rows))
    return {
        "arrays": arrays,
        "start": start,
        "rows": writer.add_array(block.rows),
        "deciding": writer.add_table(deciding),
    }


def load_block(head: dict[str, Any], reader: Reader) -> RunBlock:
    arrays = {name: reader.array(number) for name, number in head["arrays"].items()}
    start = arrays["end"] if head["start"] is None else reader.array(head["start"])
    rows = reader.array(head["rows"])
    return RunBlock(
        rows, RunEvents(start=start, **arrays), reader.table(head["deciding"]), np.arange(len(rows), dtype=np.int64)
    )
