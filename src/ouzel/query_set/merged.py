"""The merged queries of a set: groups of queries of one shape, segments of merged automata, and their events.

Segments are ordered by size. New queries form a small segment, which absorbs the segments before it that are not much
larger. A query is rebuilt only when its segment has doubled, so the cost of adding a query hardly depends on the number
of queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.algebra.binding import AlgebraQuery
from ouzel.algebra.model import PARAMETERS, BoundStream, Source, may_repeat
from ouzel.algebra.streams import Stream
from ouzel.bind.model import Attribute, EventField
from ouzel.engines.automata import advance as cayuga_lists
from ouzel.engines.automata.machine import chosen_events, joined_events
from ouzel.engines.automata.output import ResultFrame, output_type_of, without_repetitions
from ouzel.engines.automata.plan import Planner
from ouzel.engines.automata.staging import Batch, LaneMaker, RowFrame, fingerprints
from ouzel.engines.automata.tables import Events, Results, Time, new_events
from ouzel.errors import QueryError
from ouzel.kernels.arrays import INT64_MAX
from ouzel.query_set.groups import Group, GroupMaker, Origin, merged_stream
from ouzel.query_set.registry import id_array, stored_id
from ouzel.query_set.segments import Handover, Members, Overload, Segment, with_lanes
from ouzel.runtime.buffer import RowStore
from ouzel.runtime.codes import Coder, is_mostly_dead
from ouzel.runtime.frames import ticks_to_time
from ouzel.runtime.layout import Layout, catalog_of
from ouzel.runtime.limits import Limits
from ouzel.runtime.output import output_schema
from ouzel.runtime.problems import Problem, shown_time
from ouzel.runtime.session import EARLIEST, LATEST
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import empty_table, one_array, to_engine

# The name under which the problem of merged queries is reported.
MERGED = "merged queries"
# A segment that is smaller than this is built anew as fast as a single query.
DELTA_MIN = 128
# Removed queries are freed when there are more than this, and than this share of all.
REMOVED_MIN = 64
_REMOVED_SHARE = 0.25


class Merged:
    """Merged queries, over an input whose columns are known."""

    def __init__(self, layout: Layout, limits: Limits, *, time_unit: str | None, merge: bool) -> None:
        self.groups: list[Group] = []
        self.segments: list[Segment] = []
        self.texts, self.type_codes = Coder(), Coder()
        catalog = catalog_of(layout, time_unit=time_unit)
        self.planner = Planner(catalog.time.type, indexed=True, many_types=layout.type is not None)
        self.maker = GroupMaker(catalog, layout.time, layout.type, self.planner, self.texts, self.type_codes)
        self.lane_maker = LaneMaker(self.planner.lanes, self.texts, self.type_codes)
        self.payload = RowStore()
        # Rows up to this tick may be evicted: queries added later see only later events, however long they wait.
        self.expiry_bound = EARLIEST
        self.events = new_events(0, 0, 0)
        self.rows = np.empty(0, np.int64)
        self.next_row = 0
        self._layout = layout
        self._limits = limits
        self._merge = merge
        self._is_stopped = False
        self.problems: dict[Any, Problem] = {}  # of suspended queries, by id
        self._fresh: Members = []  # queries that are in no segment yet
        self._removed = 0  # since removed queries were freed

    # ── Queries ────────────────────────────────────────────────────────────────────────────────────

    def add(self, group: Group, rows: np.ndarray, *, is_new: bool) -> None:
        """Add queries of a group. They read events from the next batch on."""
        if is_new:
            self.groups.append(group)
        self._fresh.append((group, rows))

    def template(
        self,
        name: str,
        template: Stream,
        table: pa.Table,
        ids: Sequence[Any],
        owners: Sequence[Any] | None,
        registered: int,
    ) -> Group | None:
        """The group of a template's queries; None if each must run by itself."""
        return None if self._is_stopped else self.maker.template(name, template, table, ids, owners, registered)

    def single(self, id: Any, query: Origin, owner: Any, registered: int) -> tuple[Group, bool] | None:
        """(group, is new): the group of a query's shape, with the query added. None if it must run unmerged."""
        if self._is_stopped:
            return None
        if isinstance(query, AlgebraQuery):
            return self.maker.single(id, query, owner, registered)
        stream = merged_stream(query, self._layout.time)
        if stream is None or self.schema_of(stream) != output_schema(query, self._layout):
            return None
        try:
            return self.maker.single(id, query, owner, registered)
        except QueryError:
            # It compares two events in a way that automata cannot compute, but stacks can.
            return None

    def find(self, id: Any) -> tuple[Group, int] | None:
        """The group and row of a query from a template or of one with a text or number as its id; None if there is
        none.
        """
        for group in self.groups:
            if group.is_template and (row := group.row_of(id)) is not None:
                return group, row
        return None

    def remove(self, group: Group, rows: Any) -> None:
        """Remove queries of a group. Their memory is freed later."""
        rows = np.atleast_1d(rows)
        group.alive[rows] = False
        self._removed += len(rows)
        if self.problems:
            for id in group.ids[rows].tolist():
                self.problems.pop(id, None)

    def remove_of(self, owner: Any) -> Iterator[Any]:
        """Remove the queries of an owner, and return their ids."""
        for group in self.groups:
            if group.owners is not None:
                # One by one, because arrays compare differently with a list or tuple.
                mine = np.fromiter((one == owner for one in group.owners), bool, len(group.owners))
                rows = np.flatnonzero(group.alive & mine)
                self.remove(group, rows)
                yield from group.ids[rows].tolist()

    def __len__(self) -> int:
        return sum(int(group.alive.sum()) for group in self.groups)

    @property
    def is_running(self) -> bool:
        """Whether some query is not suspended."""
        return any(bool(group.running().any()) for group in self.groups)

    def is_bounded(self, group: Group) -> bool:
        """Whether the time for which queries of a group wait is bounded."""
        if not any(branch.steps for branch in group.stream.branches):
            return True
        rows = np.arange(min(len(group.ids), 64))
        segment = Segment([(group, rows)], self.planner, self._limits, merge=False)
        return not (segment.automata.life[1:] == INT64_MAX).any()

    # ── Events ─────────────────────────────────────────────────────────────────────────────────────

    def read(self, table: pa.Table, ticks: np.ndarray) -> dict[Any, pa.Table]:
        """Read events in order of time. Returns the answers of queries, by template or by query."""
        answers: dict[Any, list[pa.Table]] = {}
        if not self.segments:
            return {}
        numbers = np.arange(self.next_row, self.next_row + len(ticks))
        self.next_row += len(ticks)
        events = self._events_of(table, ticks, fingerprints(numbers))
        base = self.payload.append(table, ticks)
        first = len(self.rows)
        self.events = joined_events([with_lanes(self.events, events), events]) if first else events
        self.rows = np.concatenate([self.rows, np.arange(base, base + len(ticks))])
        self.lane_maker.rank(self.events)
        for number in range(len(self.segments)):
            self._read_segment(number, first, answers)
        self.segments = [segment for segment in self.segments if segment.members]
        return {name: pa.concat_tables(parts) for name, parts in answers.items()}

    def _read_segment(self, number: int, first: int, answers: dict[Any, list[pa.Table]]) -> None:
        """Let a segment read the events from `first` on. A query that exceeds a limit is suspended. The other queries
        continue from the timestamp at which that happened.
        """
        while True:
            segment = self.segments[number]
            segment.machine.events = self.events
            overload = None
            try:
                segment.machine.read(first, len(self.rows), "of the set")
            except Overload as passed:
                overload = passed
            if segment.machine.results.count[0]:
                _collect(self, segment, segment.machine.results, answers)
            if overload is None:
                return
            first = segment.machine.position
            self._suspend(overload, int(self.events.end[first]))
            self.segments[number] = self.rebuilt([segment.handover()], [])

    def _suspend(self, overload: Overload, tick: int) -> None:
        time = shown_time(tick, self._layout)
        for group, rows in overload.queries:
            group.suspended[rows] = True
            for id in group.ids[rows].tolist():
                self.problems[id] = Problem.of(id, time, overload.error(self._limits, id))

    def resume(self, id: Any, group: Group, row: int, registered: int) -> None:
        """Continue a suspended query with the events after tick `registered`."""
        del self.problems[id]
        group.suspended[row] = False
        group.registered[row] = registered
        self._fresh.append((group, np.array([row])))

    def _events_of(self, table: pa.Table, ticks: np.ndarray, prints: np.ndarray) -> Events:
        batch = Batch(table, ticks, ticks, ticks, prints)
        types = None
        if self._layout.type is not None:
            types = pc.cast(one_array(table.column(self._layout.type)), pa.large_string())
        return self.lane_maker.events(batch, None, RowFrame(batch, lambda name: name), types)

    def stop(self) -> None:
        """Stop all queries. No further queries can be added."""
        self._is_stopped = True
        self.segments, self._fresh = [], []
        self.events = chosen_events(self.events, slice(0, 0))
        self.rows = self.rows[:0]

    def names(self) -> Iterator[Any]:
        """The names of answers: the names of templates, and the ids of other queries."""
        for group in self.groups:
            yield from [group.name] if group.is_template else group.ids[group.alive].tolist()

    def evict(self, until: int) -> None:
        """Evict events that no query needs after tick `until`."""
        if not self.segments:
            return
        life = max(segment.life for segment in self.segments)
        if life == INT64_MAX or until == LATEST:
            return
        self.expiry_bound = max(self.expiry_bound, until + 1 - life)
        self.payload.evict(self.expiry_bound)
        dead = int(np.searchsorted(self.events.end, self.expiry_bound, side="right"))
        if is_mostly_dead(dead, len(self.rows)):
            for segment in self.segments:
                cayuga_lists.sweep(segment.automata, segment.machine.state, until + 1)
                state = segment.machine.state
                np.maximum(state.slots - dead, 0, out=state.slots)
            self.events = chosen_events(self.events, slice(dead, None))
            self.rows = self.rows[dead:].copy()
            for segment in self.segments:
                segment.machine.events = self.events

    # ── The events of results ──────────────────────────────────────────────────────────

    def fetch(self, source: Source, events: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        """A table with the rows of some events, and for each event its row in the table."""
        table, _, rows = self.payload.fetch(self.rows[events])
        return table, rows

    def column_of(self, source: Source, name: str) -> str:
        """The column that holds an attribute in the table of `fetch`."""
        return name

    def times(self, events: np.ndarray, field: EventField) -> np.ndarray:
        """The start or end times of events."""
        found: np.ndarray = self.events.times[events, Time.START if field is EventField.START else Time.END]
        return found

    def column_type(self, source: Source, path: tuple[str, ...]) -> pa.DataType:
        """The type that an attribute has in the input."""
        found = self._layout.schema.field(path[0]).type
        for name in path[1:]:
            found = found.field(name).type
        return found

    def schema_of(self, stream: BoundStream) -> pa.Schema:
        """The columns of answers, after `query`."""
        first, time = stream.branches[0], self.time_type
        columns = [pa.field(n, output_type_of(first, n, self.column_type)) for n in stream.columns]
        return pa.schema([pa.field("start", time), pa.field("end", time), *columns])

    @property
    def schema(self) -> pa.Schema:
        """The columns of the input."""
        return self._layout.schema

    @property
    def time_type(self) -> pa.DataType:
        """The type of the column of times."""
        return self._layout.schema.field(self._layout.time).type

    # ── Segments ───────────────────────────────────────────────────────────────────────────────────

    def bring_up_to_date(self) -> None:
        """Put new queries into segments, and free removed queries if they are many."""
        self._free_removed()
        fresh, self._fresh = self._fresh, []
        if not fresh:
            return
        size, older = sum(len(rows) for _, rows in fresh), []
        while self.segments and self.segments[-1].size <= max(2 * size, DELTA_MIN):
            size += self.segments[-1].size
            older.append(self.segments.pop().handover())
        self.segments.append(self.rebuilt(older, fresh))

    def _free_removed(self) -> None:
        """If there are many removed queries, rebuild all segments as one, without them."""
        if self._removed <= max(REMOVED_MIN, _REMOVED_SHARE * sum(len(group.ids) for group in self.groups)):
            return
        self._removed = 0
        handovers = [segment.handover() for segment in self.segments]
        places = {id(group): np.cumsum(group.alive) - 1 for group in self.groups}
        handovers = [one.without_removed(places) for one in handovers]
        self._fresh = [(group, places[id(group)][rows[group.alive[rows]]]) for group, rows in self._fresh]
        for group in self.groups:
            if group.alive.all():
                continue
            if group.alive.any():
                group.compact()
            else:
                self.maker.discard(group)
        self.groups = [group for group in self.groups if group.alive.any()]
        self.segments = [self.rebuilt(handovers, [])] if self.groups else []

    def rebuilt(self, older: Sequence[Handover], fresh: Members) -> Segment:
        """A segment with the live queries of older segments, all their instances, and new queries."""
        members: dict[int, tuple[Group, list[np.ndarray]]] = {}
        for group, rows in [pair for segment in older for pair in segment.members] + fresh:
            kept = rows[group.running(rows)] if len(rows) else rows
            if len(kept):
                members.setdefault(id(group), (group, []))[1].append(kept)
        joined = [(group, np.concatenate(rows)) for group, rows in members.values()]
        segment = Segment(joined, self.planner, self._limits, merge=self._merge)
        segment.machine.events = with_lanes(self.events, self.planner.lanes)
        self.events = segment.machine.events
        segment.take_over(older)
        return segment

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer, watermark: int) -> dict[str, Any]:
        """Store the live queries, the instances of their automata, and the rows of these. Returns what `load` needs.

        Lanes and automata are not stored, but rebuilt. So a snapshot contains nothing of removed queries, and a newer
        version may have other indexes.
        """
        groups = [group for group in self.groups if group.alive.any()]
        numbers = {id(group): n for n, group in enumerate(groups)}
        life = max((segment.life for segment in self.segments), default=INT64_MAX)
        expired = self.expiry_bound if life == INT64_MAX else max(self.expiry_bound, watermark + 1 - life)
        handovers = [segment.handover().after(expired) for segment in self.segments]
        slots = np.concatenate([one.instances["slots"].ravel() for one in handovers] or [np.empty(0, np.int32)])
        # A slot that an instance does not use yet may hold anything; evicted events are never read.
        used = np.unique(slots[(slots >= 0) & (slots < len(self.rows))])
        used = used[self.events.end[used] > expired]
        table, ticks, rows = self.payload.fetch(self.rows[used])
        return {
            "next_row": self.next_row,
            "coders": [coder.dump(writer) for coder in (self.texts, self.type_codes)],
            "groups": [group.dump(writer) for group in groups],
            "problems": [[stored_id(id), problem.plain()] for id, problem in self.problems.items()],
            "segments": [one.dump(used, writer, numbers) for one in handovers],
            "events": {
                "table": writer.add_table(table.take(pa.array(rows)) if len(used) else empty_table(self.schema)),
                "ticks": writer.add_array(ticks[rows]),
                "times": writer.add_array(self.events.times[used]),
            },
        }

    def load(self, reader: Reader, head: Mapping[str, Any]) -> None:
        """Restore what `dump` stored."""
        for coder, stored in zip((self.texts, self.type_codes), head["coders"], strict=True):
            coder.load(reader, stored)
        self.next_row = head["next_row"]
        self.groups = [self.maker.load(reader, one) for one in head["groups"]]
        self.problems = {id: Problem.from_plain(plain) for id, plain in head.get("problems", [])}
        ticks, times = reader.array(head["events"]["ticks"]), reader.array(head["events"]["times"])
        if len(ticks):
            table = reader.table(head["events"]["table"])
            self.events = self._events_of(table, ticks, times[:, Time.PRINT :])
            self.events.times[:] = times
            self.lane_maker.rank(self.events)
            self.payload.append(table, ticks)
            self.rows = np.arange(len(ticks))
        handovers = [Handover.load(self.groups, reader, one) for one in head["segments"]]
        if self.groups:
            self.segments = [self.rebuilt(handovers, [])]


# ── Answers ────────────────────────────────────────────────────────────────────────────────────────


def _collect(host: Merged, segment: Segment, results: Results, answers: dict[Any, list[pa.Table]]) -> None:
    """Add the results of a segment to the answers, by template or by query."""
    places, tags = segment.expanded(results)
    for number in np.unique(tags[:, 0]).tolist():
        group, _ = segment.members[number]
        mine = tags[:, 0] == number
        rows, branches, where = tags[mine, 2], tags[mine, 1], places[mine]
        # Merged nodes have instances from before a younger query was registered.
        seen = group.running(rows) & (results.times[where, Time.FIRST_END] > group.registered[rows])
        rows, branches, where = rows[seen], branches[seen], where[seen]
        if not len(rows):
            continue
        if group.is_template:
            answers.setdefault(group.name, []).append(_answer(host, group, results, where, rows, branches))
            continue
        for alike in _of_one_type(group.ids[rows]):
            table = _answer(host, group, results, where[alike], rows[alike], branches[alike])
            for id, part in _by_query(table):
                answers.setdefault(id, []).append(part)


def _of_one_type(ids: np.ndarray) -> Iterable[slice | np.ndarray]:
    """The indexes of the ids of each type. 7 and '7' are different queries, which one column could not distinguish."""
    kinds = [type(id) for id in ids.tolist()]
    if len(set(kinds)) == 1:
        return [slice(None)]
    return [np.array([one is kind for one in kinds]) for kind in dict.fromkeys(kinds)]


def _answer(
    host: Merged, group: Group, results: Results, where: np.ndarray, rows: np.ndarray, branches: np.ndarray
) -> pa.Table:
    """The answers of a group's queries, in one table."""
    time = host.time_type
    parts = []
    for branch in np.unique(branches).tolist():
        mine = branches == branch
        bound = group.stream.branches[branch]
        frame = _TaggedFrame(host, bound, results, where[mine], group.table, rows[mine])
        columns = {
            name: frame.shown(value, output_type_of(bound, name, host.column_type))
            for name, value in ((n, bound.columns[n]) for n in group.stream.columns)
        }
        times = results.times[where[mine]]
        ids = id_array(group.ids[rows[mine]])
        made = {"query": ids, "start": ticks_to_time(times[:, Time.START].copy(), time)}
        made["end"] = ticks_to_time(times[:, Time.END].copy(), time)
        table = pa.table({**made, **columns})
        if not may_repeat(group.stream):
            return table
        parts.append((table, times, rows[mine]))
    schema = parts[0][0].schema
    whole = pa.concat_tables([t.cast(schema) for t, _, _ in parts]).combine_chunks()
    times = np.concatenate([t for _, t, _ in parts])
    # Two queries may have the same result; then each of them gets it.
    marks = fingerprints(np.concatenate([r for _, _, r in parts]).astype(np.int64))
    batch = Batch(whole, times[:, 0], times[:, 1], times[:, 2], times[:, Time.PRINT :] + marks)
    return without_repetitions(batch).table


class _TaggedFrame(ResultFrame):
    """A frame of results of a template's queries. RETURN may also name parameters of these queries."""

    def __init__(
        self, host: Merged, branch: Any, results: Results, places: np.ndarray, table: pa.Table, rows: np.ndarray
    ) -> None:
        super().__init__(host, branch, results, places)
        self._parameters = table
        self._rows = rows

    def attribute(self, reference: Attribute) -> pa.Array:
        if reference.component == PARAMETERS:
            return to_engine(self._parameters.column(reference.path[0]).take(pa.array(self._rows)), reference.type)
        return super().attribute(reference)


def _by_query(table: pa.Table) -> Iterable[tuple[Any, pa.Table]]:
    """The answers of each query, from a table with the answers of several."""
    coded = one_array(table.column("query")).dictionary_encode()
    codes = coded.indices.to_numpy()
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        table, codes = table.take(pa.array(order)), codes[order]
    first = np.searchsorted(codes, np.arange(len(coded.dictionary) + 1))
    for number, value in enumerate(coded.dictionary.to_pylist()):
        yield value, table.slice(first[number], first[number + 1] - first[number])
