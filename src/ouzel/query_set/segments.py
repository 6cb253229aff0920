"""Segments of a query set. A segment has the merged automata of some queries, with their instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ouzel.bind.model import BoundQuery
from ouzel.engines.automata.build import build
from ouzel.engines.automata.indexes import first_of, places_of
from ouzel.engines.automata.machine import (
    LimitMessage,
    Machine,
    instances_of,
    longest_life,
    put_instances,
)
from ouzel.engines.automata.plan import EventLanes, Planner
from ouzel.engines.automata.tables import (
    Counter,
    Events,
    Finding,
    Link,
    Results,
    Signature,
    Slot,
    Time,
    Wait,
    new_events,
)
from ouzel.query_set.groups import Group
from ouzel.runtime.limits import Limits
from ouzel.runtime.session import LATEST
from ouzel.runtime.snapshot import Reader, Writer

Members = list[tuple[Group, np.ndarray]]

# Instances are stored by these; their places in lists are computed again.
_INSTANCE_ARRAYS = ("times", "links", "slots", "ints", "floats", "nulls")

# Internal counters of the kernel that say nothing about queries and events.
_PRIVATE_COUNTERS = frozenset({Counter.FREE, Counter.SERIAL, Counter.SWEEP_AT, Counter.FIRED, Counter.MEMBERS})


class Overload(Exception):
    """Queries of a segment have exceeded a limit. They must be suspended before the segment can continue."""

    def __init__(self, queries: Members, error: LimitMessage) -> None:
        super().__init__()
        self.queries = queries
        self.error = error


class _SharedMachine(Machine):
    """A machine for many queries. Each query may have as many results and instances as it could by itself."""

    counted: Callable[[np.ndarray, int], Members]

    def _passed(self, name: str, nodes: np.ndarray, most: int, error: LimitMessage) -> None:
        found = self.counted(nodes, most)
        if found:
            raise Overload(found, error)


class Handover(NamedTuple):
    """The state that a segment passes to the segment that replaces it."""

    members: Members
    owners: list[tuple[int, int]]  # member and branch
    node_of: list[np.ndarray]  # for each of these, [node of the branch, query]
    node_count: int
    since: np.ndarray
    instances: Mapping[str, np.ndarray]

    def after(self, expiry_bound: int) -> Handover:
        """The same state without expired instances."""
        kept = self.instances["times"][:, Time.START] > expiry_bound
        return self._replace(instances={name: array[kept] for name, array in self.instances.items()})

    def without_removed(self, places: Mapping[int, np.ndarray]) -> Handover:
        """The same state without removed queries. `places` has the new rows of queries, by id of their group."""
        alive = [group.alive[rows] for group, rows in self.members]
        members = [
            (group, places[id(group)][rows[kept]]) for (group, rows), kept in zip(self.members, alive, strict=True)
        ]
        node_of = [nodes[:, alive[number]] for (number, _), nodes in zip(self.owners, self.node_of, strict=True)]
        return self._replace(members=members, node_of=node_of)

    def dump(self, used: np.ndarray, writer: Writer, numbers: Mapping[int, int]) -> dict[str, Any]:
        """Store the live queries and their instances. `used` are the events that are stored; `numbers` has a number for
        each group, by its id.
        """
        # From now on the rows of live queries are contiguous.
        place = {id(group): np.cumsum(group.alive) - 1 for group, _ in self.members}
        members: list[list[int]] = []
        new_number: dict[int, int] = {}
        alive = [group.alive[rows] for group, rows in self.members]
        for number, (group, rows) in enumerate(self.members):
            if alive[number].any():
                new_number[number] = len(members)
                members.append([numbers[id(group)], writer.add_array(place[id(group)][rows[alive[number]]])])
        instances = dict(self.instances)
        slots = instances["slots"]
        found = np.searchsorted(used, slots).clip(0, max(0, len(used) - 1))
        instances["slots"] = (
            np.where(used[found] == slots, found, 0).astype(np.int32) if len(used) else np.zeros_like(slots)
        )
        return {
            "members": members,
            "nodes": [
                [new_number[number], branch, writer.add_array(nodes[:, alive[number]])]
                for (number, branch), nodes in zip(self.owners, self.node_of, strict=True)
                if number in new_number
            ],
            "node_count": self.node_count,
            "since": writer.add_array(self.since),
            "instances": [writer.add_array(instances[name]) for name in _INSTANCE_ARRAYS],
        }

    @classmethod
    def load(cls, groups: Sequence[Group], reader: Reader, head: Mapping[str, Any]) -> Handover:
        """The state that `dump` has stored."""
        return cls(
            members=[(groups[number], reader.array(rows)) for number, rows in head["members"]],
            owners=[(number, branch) for number, branch, _ in head["nodes"]],
            node_of=[reader.array(nodes) for _, _, nodes in head["nodes"]],
            node_count=head["node_count"],
            since=reader.array(head["since"]),
            instances=dict(zip(_INSTANCE_ARRAYS, reader.arrays(head["instances"]), strict=True)),
        )


class Segment:
    """Merged automata of some queries, with their instances."""

    def __init__(self, members: Members, planner: Planner, limits: Limits, *, merge: bool) -> None:
        self.members = members
        patterns, owners = [], []
        for number, (group, rows) in enumerate(members):
            for branch, pattern in enumerate(group.patterns(planner, rows)):
                patterns.append(pattern)
                owners.append((number, branch))
        built = build(patterns, planner.programs, merge=merge)
        self.automata = built.automata
        self._node_of = built.node_of
        self._owners = owners
        steps = [len(b.steps) for g, _ in members for b in g.stream.branches]
        registers = [len(b.register_types) for g, _ in members for b in g.stream.branches]
        self.machine = _SharedMachine(
            built.automata,
            planner.lanes,
            slots=max(steps, default=0) + 1,
            registers=max(registers, default=0),
            limits=limits,
        )
        self.machine.counted = self._with_more_than
        self.life = longest_life(built.automata)
        self._index_queries()
        self.since = self._since()

    @property
    def size(self) -> int:
        return sum(len(rows) for _, rows in self.members)

    def _index_queries(self) -> None:
        """Make a table of the queries that each final node answers: [row, (member, branch, row of the group)], sorted
        by node.
        """
        node = np.concatenate([one[-1] for one in self._node_of] or [np.empty(0, np.int32)])
        first = first_of(node, self.automata.node_count)
        place = places_of(node, first)
        self._tags = np.empty((len(node), 3), np.int32)
        begin = 0
        for number, branch in self._owners:
            rows = self.members[number][1]
            mine = place[begin : begin + len(rows)]
            begin += len(rows)
            self._tags[mine, 0], self._tags[mine, 1], self._tags[mine, 2] = number, branch, rows
        self._tag_first = first.astype(np.int64)

    def _since(self) -> np.ndarray:
        """For each node, the tick after which it has all its instances: the earliest registration among its queries."""
        registered = [group.registered[rows] for group, rows in self.members]
        begun = {int(one) for ticks in registered if len(ticks) for one in (ticks.min(), ticks.max())}
        if len(begun) == 1:
            return np.full(self.automata.node_count, begun.pop(), np.int64)
        since = np.full(self.automata.node_count, LATEST, np.int64)
        for (number, _), node_of in zip(self._owners, self._node_of, strict=True):
            ticks = registered[number]
            if len(ticks) and (ticks == ticks[0]).all():
                since[node_of] = np.minimum(since[node_of], ticks[0])
            else:
                # One step at a time: numpy's `at` reads beyond `ticks` where it should repeat them for each row.
                for nodes in node_of:
                    np.minimum.at(since, nodes, ticks)
        return since

    def expanded(self, results: Results) -> tuple[np.ndarray, np.ndarray]:
        """(indexes of results, [row, (member, branch, row)]): each result, repeated for each query that it answers."""
        count = int(results.count[0])
        nodes = results.node[:count]
        first, last = self._tag_first[nodes], self._tag_first[nodes + 1]
        places = np.repeat(np.arange(count), last - first)
        offsets = np.arange(len(places)) - np.repeat(np.cumsum(last - first) - (last - first), last - first)
        return places, self._tags[np.repeat(first, last - first) + offsets]

    def _with_more_than(self, nodes: np.ndarray, most: int) -> Members:
        """The queries that have more than `most` results or instances, which are at these nodes."""
        counts = np.bincount(nodes, minlength=self.automata.node_count)
        totals = [np.zeros(len(rows), np.int64) for _, rows in self.members]
        for (number, _), node_of in zip(self._owners, self._node_of, strict=True):
            totals[number] += counts[node_of].sum(axis=0)
        found = [(group, rows[total > most]) for (group, rows), total in zip(self.members, totals, strict=True)]
        return [(group, rows) for group, rows in found if len(rows)]

    def handover(self) -> Handover:
        state = self.machine.state
        instances = instances_of(state, np.flatnonzero(state.links[:, Link.NODE] >= 0))
        return Handover(self.members, self._owners, self._node_of, self.automata.node_count, self.since, instances)

    def take_over(self, older: Sequence[Handover]) -> None:
        """Add the instances of older segments whose queries are now in this one."""
        if not older:
            return
        parts: list[dict[str, np.ndarray]] = []
        claimed = np.full(self.automata.node_count, -1, np.int64)
        best = np.full(self.automata.node_count, LATEST, np.int64)
        maps = [self._mapping(segment) for segment in older]
        for number, (segment, mapping) in enumerate(zip(older, maps, strict=True)):
            # If two segments had equal nodes, the instances of the older one include those of the younger.
            mine = np.flatnonzero(mapping >= 0)
            target = mapping[mine]
            better = (segment.since[mine] < best[target]) | (claimed[target] < 0)
            claimed[target[better]] = number
            best[target[better]] = segment.since[mine[better]]
        for number, (segment, mapping) in enumerate(zip(older, maps, strict=True)):
            target = mapping[segment.instances["links"][:, Link.NODE]]
            kept = (target >= 0) & (claimed[np.maximum(target, 0)] == number)
            part = {name: array[kept] for name, array in segment.instances.items()}
            part["links"][:, Link.NODE] = target[kept]
            parts.append(part)
        merged = {}
        for name in parts[0] if parts else ():
            width = max(part[name].shape[1] for part in parts)
            merged[name] = np.concatenate([_widened(part[name], width) for part in parts])
        if merged:
            put_instances(self.machine, merged)
        np.minimum(self.since, best, out=self.since)

    def _mapping(self, older: Handover) -> np.ndarray:
        """For each node of an older segment, the node of this segment; -1 if none of its queries is here."""
        mapping = np.full(older.node_count, -1, np.int64)
        here = {id(group): number for number, (group, _) in enumerate(self.members)}
        node_of = dict(zip(self._owners, self._node_of, strict=True))
        for (number, branch), nodes in zip(older.owners, older.node_of, strict=True):
            group, rows = older.members[number]
            if id(group) not in here:
                continue
            mine = self.members[here[id(group)]][1]
            # By search: a group may have far more queries than both segments.
            order = np.argsort(mine)
            place = order[np.searchsorted(mine, rows, sorter=order).clip(0, len(mine) - 1)]
            kept = mine[place] == rows
            mapping[nodes[:, kept]] = node_of[here[id(group)], branch][:, place[kept]]
        mapping[0] = -1
        return mapping

    @property
    def counters(self) -> dict[str, int]:
        """The counters of the kernel, and the number of instances, nodes and edges."""
        counters = self.machine.state.counters
        found = {one.name.lower(): int(counters[one]) for one in Counter if one not in _PRIVATE_COUNTERS}
        automata = self.automata
        return found | {"instances": self.machine.live, "nodes": automata.node_count, "edges": automata.edge_count}

    @property
    def bytes(self) -> int:
        """The memory of automata and indexes."""
        tables: list[Any] = [
            *self.automata,
            *self.automata.code,
            *self.automata.fr,
            *self.automata.an,
            self._tags,
            self._tag_first,
            self.since,
        ]
        tables += [*self._node_of, self.machine.state.places, self.machine.state.edge_stamps]
        return sum(int(table.nbytes) for table in tables if isinstance(table, np.ndarray))

    def explained(self) -> list[str]:
        """The indexes with their sizes, as lines of text."""
        automata = self.automata
        patterns = sum(len(group.planned) for group, _ in self.members)
        separate = sum(len(rows) * sum(len(b.nodes) - 1 for b in g.planned) for g, rows in self.members)
        sequences = sum(len(rows) for group, rows in self.members if isinstance(group.origin, BoundQuery))
        dynamic = int((automata.waits[:-1, Wait.FINDING] == Finding.DYNAMIC).sum())
        lanes = automata.an.signatures[:, [Signature.LANE, Signature.OTHER_LANE, Signature.RANGE_LANE]]
        attributes = len(np.unique(lanes[lanes >= 0]))
        active = int(self.machine.state.counters[Counter.ACTIVE_WAITS])
        keys = int((automata.fr.table[:, Slot.SIGNATURE] != 0).sum())
        return [
            f"  {some(self.size, 'query')} of {some(patterns, 'shape')}, {sequences:,} of them patterns",
            f"  merged prefixes: {some(automata.node_count - 1, 'node')}, {some(automata.edge_count, 'edge')}, "
            f"for {some(separate, 'node')} of single automata",
            f"  FR index over forward and rebind edges: {some(len(automata.fr_entries), 'conjunct')}, "
            f"{some(keys, 'key')}, {some(len(automata.fr.lows), 'range')}",
            f"  {some(automata.wait_count - 1, 'distinct wait condition')}",
            f"  AN index over active nodes: {some(len(automata.an_entries), 'entry')} by "
            f"{some(attributes, 'attribute')}, {some(len(automata.an.lows), 'range')}, "
            f"{some(active, 'active wait condition')}",
            f"  AI index over instances: {some(dynamic, 'wait condition')} by "
            f"{some(len(automata.ai_lanes), 'attribute')}, {some(self.machine.live, 'instance')}",
        ]


def _widened(array: np.ndarray, width: int) -> np.ndarray:
    wider = np.zeros((len(array), width), array.dtype)
    wider[:, : array.shape[1]] = array
    return wider


def with_lanes(events: Events, like: Events | EventLanes) -> Events:
    """Events with as many lanes as others have. Added lanes are null."""
    ints, floats = len(like.ints), len(like.floats)
    if events.ints.shape[0] == ints and events.floats.shape[0] == floats:
        return events
    wider = new_events(len(events.times), ints, floats)
    wider.times[:] = events.times
    wider.int_nulls[:], wider.float_nulls[:] = 1, 1
    for name in ("ints", "floats", "int_nulls", "float_nulls"):
        array = getattr(events, name)
        getattr(wider, name)[: array.shape[0]] = array
    return wider


def some(number: int, what: str) -> str:
    """
    >>> some(1, "query"), some(2_000, "query"), some(0, "key")
    ('1 query', '2,000 queries', '0 keys')
    """
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what[:-1]}ies" if what.endswith("ry") else f"{number:,} {what}s"
