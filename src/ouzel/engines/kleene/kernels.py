"""One interface for two kernels: runs, which keep each partial match, and the graph, which shares them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ouzel.engines.kleene.graph import scan_graph
from ouzel.engines.kleene.graph_paths import Compressed, compress_graph, compress_runs
from ouzel.engines.kleene.graph_state import (
    Cells,
    GraphCounter,
    cells_per_event,
    drop_cells,
    drop_expired,
    new_graph_output,
    new_graph_state,
    rekey_chains,
    renumber_cells,
    reserve_cells,
    reserve_graph,
)
from ouzel.engines.kleene.matches import Expanded, allowed_matches, expand_matches
from ouzel.engines.kleene.runs import nodes_max, release, scan
from ouzel.engines.kleene.state import (
    MANY,
    Arena,
    Counter,
    RunOutput,
    Runs,
    Status,
    Waiting,
    mark_needed,
    new_run_output,
    new_run_state,
    rebase,
    reclaim_nodes,
    rekey,
    renumber,
    reserve,
    reserve_nodes,
    sweep,
)
from ouzel.engines.kleene.tables import RunEvents, RunTables
from ouzel.kernels.events import NO_LIMIT
from ouzel.runtime.limits import Limits
from ouzel.runtime.snapshot import Reader, Writer


@dataclass(frozen=True, slots=True)
class Found:
    """Matches as slots of events: the number of events at each place of the pattern, and all slots concatenated."""

    ends: np.ndarray
    keys: np.ndarray
    lengths: np.ndarray
    slots: np.ndarray


@dataclass(frozen=True, slots=True)
class FoundCompressed:
    """Rows of OUTPUT COMPRESSED, one per timestamp and partition."""

    ends: np.ndarray
    keys: np.ndarray
    graph: Compressed


class Kernel(Protocol):
    """The interface of a kernel for its operator."""

    @property
    def deadline(self) -> int | None:
        """The tick after which some match that waits for a negated end is complete; None if none waits."""

    @property
    def room(self) -> int:
        """At least this many events can be read before a limit must be checked, if they return no matches."""

    @property
    def statistics(self) -> dict[str, int]:
        """The counters."""

    def read(self, events: RunEvents, first: int, last: int, keys: int) -> Status:
        """Read the events in slots first to last - 1, whose keys are below `keys`."""

    def release(self, events: RunEvents, until: int) -> None:
        """Complete waiting matches, given that no event at or before `until` can come any more."""

    def take(self, events: RunEvents) -> Found | Status | None:
        """The matches since the last call, or the limit that they exceed."""

    def take_compressed(self, events: RunEvents) -> FoundCompressed | Status | None:
        """The matches since the last call, compressed, or the limit that they exceed."""

    def sweep(self, oldest_start: int, counts: np.ndarray) -> None:
        """Drop partial matches that started before tick `oldest_start`."""

    def sweep_positions(self, events: RunEvents, counts: np.ndarray, used: int) -> np.ndarray:
        """For windows that count events: drop expired partial matches, and return which slots are still needed.
        `counts[key]` is the position of the next event of a key.
        """

    def renumber(self, events: RunEvents, needed: np.ndarray, renamed: np.ndarray) -> None:
        """Give slots new numbers after those not `needed` were removed."""

    def drop_front(self, dead: int, used: int) -> None:
        """Adjust to the removal of the `dead` oldest events: all others have moved down by as many slots."""

    def rekey(self, renamed: np.ndarray) -> None:
        """Replace keys by `renamed[key]`."""

    def recode(self, test: int, renamed: np.ndarray) -> None:
        """Replace the values of an [attr] test by `renamed[value]`. Only for attributes that some type lacks."""

    def marked_keys(self, after: int) -> np.ndarray:
        """The keys whose mark is after a tick. A mark is what new matches of a key must start after."""

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything."""

    def load(self, reader: Reader, head: dict[str, Any], slots: int, keys: int) -> None:
        """Restore what `dump` stored."""


class RunsKernel:
    """Keeps each partial match as a run of NFA^b."""

    def __init__(
        self,
        tables: RunTables,
        number_slots: tuple[int, ...],
        limits: Limits,
        *,
        listed: bool,
        on_many: Callable[[str], None] | None = None,
    ) -> None:
        self._tables = tables
        self._limits = limits
        self._listed = listed
        self._on_many = on_many
        # Matches that were listed early, to make room for the nodes of runs.
        self._found: list[Found] = []
        self._state = new_run_state(tables, len(number_slots), 1, 1, number_slots=number_slots)
        self._output = new_run_output()

    @property
    def deadline(self) -> int | None:
        return int(self._state.waiting.deadline[0]) if self._state.counters[Counter.WAITING] else None

    @property
    def room(self) -> int:
        # Of a run an event makes three at most, if it may be taken, begin the next component and be skipped.
        nodes = nodes_max(self._tables, self._state) * 7 // 8 - int(self._state.counters[Counter.NODES])
        runs = int(self._state.counters[Counter.RUNS]) + int(self._state.counters[Counter.WAITING])
        times = min(self._tables.max_runs, nodes // 2) // (runs + 1)
        return max(0, times.bit_length() - 1) // 2

    @property
    def statistics(self) -> dict[str, int]:
        return {counter.name.lower(): int(self._state.counters[counter]) for counter in Counter}

    def read(self, events: RunEvents, first: int, last: int, keys: int) -> Status:
        self._state = reserve(self._tables, self._state, len(events.end), keys)
        while True:
            progress = scan(self._tables, self._state, events, first, last, self._output, self._on_many)
            self._state, self._output, first = progress.state, progress.output, progress.position
            if progress.status is Status.NODE_LIMIT and self._may_write_out(int(events.end[first])):
                found = self._written_out(events)
                if isinstance(found, Status):
                    return found
                self._found.append(found)
                continue
            return progress.status

    def release(self, events: RunEvents, until: int) -> None:
        if self._tables.at_end:
            progress = release(self._tables, self._state, events, until, self._output)
            self._state, self._output = progress.state, progress.output

    def _may_write_out(self, moment: int) -> bool:
        """Whether the matches found so far are all of earlier timestamps, so that their nodes can be freed once they
        are written.
        """
        count = int(self._output.written[0])
        return self._listed and count > 0 and int(self._output.end[count - 1]) < moment

    def take(self, events: RunEvents) -> Found | Status | None:
        if self._state.counters[Counter.TOO_LONG]:
            return Status.LENGTH_LIMIT
        parts, self._found = self._found, []
        if self._output.written[0]:
            found = self._written_out(events)
            if isinstance(found, Status):
                return found
            parts.append(found)
        if sum(len(part.slots) for part in parts) > self._tables.max_events:
            return Status.LENGTH_LIMIT
        # Negation may have removed all of them.
        return _joined(parts) if any(len(part.ends) for part in parts) else None

    def _written_out(self, events: RunEvents) -> Found | Status:
        """The matches of the output, by slots. Empties the output."""
        if self._tables.late and (self._state.negative_head >= 0).any():
            return self._allowed(events)
        expanded = self._expanded()
        if isinstance(expanded, Status):
            return expanded
        ends, keys = self._output.end[expanded.row], self._output.key[expanded.row]
        self._forget_output()
        return Found(ends, keys, expanded.lengths, expanded.slots)

    def _expanded(self) -> Expanded | Status:
        limit = self._tables.max_matches_per_timestamp
        if self._on_many is not None and self._tables.merge and limit > MANY:
            # One merged run may have very many matches.
            expanded = expand_matches(self._tables._replace(max_matches_per_timestamp=MANY), self._state, self._output)
            if expanded is not Status.MATCH_LIMIT:
                return expanded
            self._on_many(f"more than {MANY:,} matches that end with one event")
        return expand_matches(self._tables, self._state, self._output)

    def _allowed(self, events: RunEvents) -> Found | Status:
        """Like `_written_out`, without the matches that negation forbids. It expands as many matches at once as a
        timestamp may have.
        """
        limit = min(self._limits.max_matches_per_timestamp, NO_LIMIT)
        parts: list[Found] = []
        open_rows = [(0, int(self._output.written[0]))]
        while open_rows:
            first, last = open_rows.pop()
            node, end = self._output.node[first:last], self._output.end[first:last]
            key, oldest = self._output.key[first:last], self._output.oldest[first:last]
            output = RunOutput(node, end, key, oldest, self._output.first[first:last], np.array([last - first]))
            # The matches of one event have at least one row per run.
            tables = self._tables._replace(max_matches_per_timestamp=limit if last - first > 1 else NO_LIMIT)
            expanded = expand_matches(tables, self._state, output)
            if isinstance(expanded, Status):
                if last - first == 1:
                    return expanded
                middle = (first + last) // 2
                open_rows += [(middle, last), (first, middle)]
                continue
            allowed = allowed_matches(self._tables, self._state, events, expanded, output)
            row, lengths, slots = expanded.row, expanded.lengths, expanded.slots
            if not allowed.all():
                slots = slots[np.repeat(allowed, lengths.sum(axis=1))]
                row, lengths = row[allowed], lengths[allowed]
            parts.append(Found(end[row], key[row], lengths, slots))
            if sum(len(part.slots) for part in parts) > self._tables.max_events:
                return Status.LENGTH_LIMIT
        self._forget_output()
        found = _joined(parts)
        # Matches come in order of their end.
        if len(found.ends) > limit and (found.ends[limit:] == found.ends[:-limit]).any():
            return Status.MATCH_LIMIT
        return found

    def take_compressed(self, events: RunEvents) -> FoundCompressed | Status | None:
        count = int(self._output.written[0])
        if not count:
            return None
        ends, keys, order, bounds = _grouped(self._output.end[:count], self._output.key[:count])
        oldest = self._output.oldest[:count][order]
        graph = compress_runs(self._tables, self._state, events, bounds, self._output.node[:count][order], oldest)
        self._forget_output()
        return Status.LENGTH_LIMIT if graph is None else FoundCompressed(ends, keys, graph)

    def _forget_output(self) -> None:
        self._output.written[0] = 0
        self._state.counters[Counter.CHOSEN] = 0

    def sweep(self, oldest_start: int, counts: np.ndarray) -> None:
        sweep(self._tables, self._state, oldest_start, counts)
        reclaim_nodes(self._tables, self._state, self._output)

    def sweep_positions(self, events: RunEvents, counts: np.ndarray, used: int) -> np.ndarray:
        self.sweep(0, counts)
        needed = _own_slots(self._tables, used)
        mark_needed(self._tables, self._state, events, needed)
        return needed

    def renumber(self, events: RunEvents, needed: np.ndarray, renamed: np.ndarray) -> None:
        renumber(self._tables, self._state, events, needed, renamed)

    def drop_front(self, dead: int, used: int) -> None:
        rebase(self._tables, self._state, dead, used)

    def rekey(self, renamed: np.ndarray) -> None:
        rekey(self._state, renamed)

    def recode(self, test: int, renamed: np.ndarray) -> None:
        # Dead nodes that are not reclaimed yet may have any code.
        codes = self._state.arena.codes[: self._state.counters[Counter.NODES], test]
        codes[:] = np.where((codes >= 0) & (codes < len(renamed)), renamed[np.clip(codes, 0, len(renamed) - 1)], -1)

    def marked_keys(self, after: int) -> np.ndarray:
        return np.flatnonzero(self._state.key_mark > after)

    def dump(self, writer: Writer) -> dict[str, Any]:
        nodes = reclaim_nodes(self._tables, self._state, self._output)
        waiting = int(self._state.counters[Counter.WAITING])
        return {
            "plain": {name: writer.add_array(getattr(self._state, name)) for name in _PLAIN},
            "arena": [writer.add_array(array[:nodes]) for array in self._state.arena],
            "runs": [writer.add_array(array) for array in self._state.runs],
            "waiting": [writer.add_array(array[:waiting]) for array in self._state.waiting],
        }

    def load(self, reader: Reader, head: dict[str, Any], slots: int, keys: int) -> None:
        fresh = self._state
        plain: dict[str, Any] = {name: reader.array(number) for name, number in head["plain"].items()}
        state = fresh._replace(
            **plain,
            arena=Arena(*reader.arrays_like(head["arena"], fresh.arena)),
            runs=Runs(*reader.arrays_like(head["runs"], fresh.runs)),
            waiting=Waiting(*reader.arrays_like(head["waiting"], fresh.waiting)),
        )
        self._state = reserve(self._tables, reserve_nodes(state, len(state.arena.event) + 256), slots, keys)


def _joined(parts: list[Found]) -> Found:
    if len(parts) == 1:
        return parts[0]
    return Found(*(np.concatenate([getattr(part, name) for part in parts]) for name in Found.__slots__))


_PLAIN = ("key_head", "key_runs", "key_oldest", "key_mark", "started", "negative_head", "links", "marks", "counters")


class GraphKernel:
    """Keeps all partial matches in one graph."""

    def __init__(
        self,
        tables: RunTables,
        number_slots: tuple[int, ...],
        limits: Limits,
        *,
        listed: bool,
        on_many: Callable[[str], None] | None = None,
    ) -> None:
        self._tables = tables
        self._limits = limits
        self._listed = listed
        self._on_many = on_many
        self._state = new_graph_state(tables, len(number_slots), number_slots=number_slots)
        self._output = new_graph_output(tables)

    @property
    def deadline(self) -> int | None:
        return None

    @property
    def room(self) -> int:
        return NO_LIMIT

    @property
    def statistics(self) -> dict[str, int]:
        return {counter.name.lower(): int(self._state.counters[counter]) for counter in GraphCounter}

    def read(self, events: RunEvents, first: int, last: int, keys: int) -> Status:
        self._state = reserve_graph(self._tables, self._state, len(events.end), keys)
        cells = int(self._state.counters[GraphCounter.CELLS]) + last - first + cells_per_event(self._tables)
        if cells > len(self._state.cells.event):
            # Most events make one cell, and the next call may still find some of them.
            cells = max(cells + cells // 4, 2 * len(self._state.cells.event))
            self._state = reserve_cells(self._tables, self._state, cells)
        progress = scan_graph(
            self._tables, self._state, events, first, last, self._output, listed=self._listed, on_many=self._on_many
        )
        self._state, self._output = progress.state, progress.output
        return progress.status

    def release(self, events: RunEvents, until: int) -> None:
        """Do nothing: in a graph no match waits."""

    def take(self, events: RunEvents) -> Found | Status | None:
        rows, used = self._output.found[:2].tolist()
        if not rows:
            return None
        output = self._output
        # Times become a column of the answer, so they are copied; the next call of `read` overwrites everything else.
        found = Found(output.end[:rows].copy(), output.key[:rows], output.lengths[:rows], output.slots[:used])
        if len(output.slots) > _OUTPUT_SLOTS_MAX:
            self._output = new_graph_output(self._tables)
        output.found[:] = 0
        return found

    def take_compressed(self, events: RunEvents) -> FoundCompressed | Status | None:
        rows = int(self._output.found[0])
        if not rows:
            return None
        ends, keys, order, bounds = _grouped(self._output.end[:rows], self._output.key[:rows])
        oldest = self._output.oldest[:rows][order]
        graph = compress_graph(self._tables, self._state, events, bounds, self._output.root[:rows][order], oldest)
        self._output.found[:] = 0
        return Status.LENGTH_LIMIT if graph is None else FoundCompressed(ends, keys, graph)

    def sweep(self, oldest_start: int, counts: np.ndarray) -> None:
        """Do nothing: cells are dropped with their events."""

    def sweep_positions(self, events: RunEvents, counts: np.ndarray, used: int) -> np.ndarray:
        needed = _own_slots(self._tables, used)
        drop_expired(self._tables, self._state, events, counts, needed)
        return needed

    def renumber(self, events: RunEvents, needed: np.ndarray, renamed: np.ndarray) -> None:
        renumber_cells(self._state, renamed)

    def drop_front(self, dead: int, used: int) -> None:
        drop_cells(self._tables, self._state, dead, used)

    def rekey(self, renamed: np.ndarray) -> None:
        rekey_chains(self._tables, self._state, renamed)

    def recode(self, test: int, renamed: np.ndarray) -> None:
        """Do nothing: cells store no codes, because queries with such tests use runs."""

    def marked_keys(self, after: int) -> np.ndarray:
        return np.flatnonzero(self._state.key_mark > after)

    def dump(self, writer: Writer) -> dict[str, Any]:
        count = int(self._state.counters[GraphCounter.CELLS])
        return {
            "cells": [writer.add_array(array[:count]) for array in self._state.cells],
            **{name: writer.add_array(getattr(self._state, name)) for name in _GRAPH_PLAIN},
        }

    def load(self, reader: Reader, head: dict[str, Any], slots: int, keys: int) -> None:
        fresh = self._state
        cells = Cells(*reader.arrays_like(head["cells"], fresh.cells))
        plain: dict[str, Any] = {name: reader.array(head[name]) for name in _GRAPH_PLAIN}
        state = reserve_cells(self._tables, fresh._replace(**plain, cells=cells), len(cells.event) + 256)
        self._state = reserve_graph(self._tables, state, slots, keys)


# Output buffers up to this size are kept: new pages cost more than writing.
_OUTPUT_SLOTS_MAX = 1 << 19
_GRAPH_PLAIN = ("head", "counters", "key_mark", "started", "negative_head", "links", "marks")


def _own_slots(tables: RunTables, used: int) -> np.ndarray:
    """Which of the first `used` slots are reserved for the kernel."""
    return np.arange(used) < tables.reserved


def _grouped(ends: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(ends, keys, order, bounds): matches grouped by timestamp and partition."""
    order = np.lexsort((keys, ends))
    ends, keys = ends[order], keys[order]
    is_new = np.ones(len(ends), bool)
    is_new[1:] = (ends[1:] != ends[:-1]) | (keys[1:] != keys[:-1])
    firsts = np.flatnonzero(is_new)
    return ends[firsts], keys[firsts], order, np.append(firsts, len(ends))
