"""The sizes of merged automata and their indexes, and the counters of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ouzel.bind.model import BoundQuery
from ouzel.engines.automata.tables import Counter, Finding, FrSlot, Wait
from ouzel.query_set.segments import Segment

# Internal counters of the kernel that say nothing about queries and events.
_PRIVATE_COUNTERS = frozenset(
    {Counter.FREE, Counter.SERIAL, Counter.SWEEP_AT, Counter.EVERY_HEAD, Counter.FIRED, Counter.MEMBERS}
)


def counted(segments: Sequence[Segment]) -> dict[str, int]:
    """The counters of the kernel, and the number of instances, nodes and edges, over all segments."""
    total: dict[str, int] = {}
    for segment in segments:
        for counter in Counter:
            if counter not in _PRIVATE_COUNTERS:
                name = counter.name.lower()
                total[name] = total.get(name, 0) + int(segment.machine.state.counters[counter])
        total["instances"] = total.get("instances", 0) + segment.machine.live
        total["nodes"] = total.get("nodes", 0) + segment.automata.node_count
        total["edges"] = total.get("edges", 0) + segment.automata.edge_count
    return total


def bytes_of(segments: Sequence[Segment]) -> int:
    """The memory of automata and indexes in bytes."""
    tables: list[Any] = [table for s in segments for table in (*s.automata, *s.automata.code)]
    for s in segments:
        tables += [s.machine.state.places, s.machine.state.edge_stamps]
        tables += [s._tags, s._tag_first, s.since, *s._node_of]
    sizes = [int(table.nbytes) for table in tables if isinstance(table, np.ndarray)]
    return sum(sizes)


def explained(segment: Segment) -> list[str]:
    """The indexes of a segment and their sizes, as lines."""
    automata = segment.automata
    patterns = sum(len(group.planned) for group, _ in segment.members)
    separate = sum(len(rows) * sum(len(b.nodes) - 1 for b in g.planned) for g, rows in segment.members)
    sequences = sum(len(rows) for group, rows in segment.members if isinstance(group.origin, BoundQuery))
    dynamic = int((automata.waits[:-1, Wait.FINDING] == Finding.DYNAMIC).sum())
    active = int(segment.machine.state.counters[Counter.ACTIVE_WAITS])
    keys = int((automata.fr_table[:, FrSlot.SIGNATURE] != 0).sum())
    return [
        f"  {some(segment.size, 'query')} of {some(patterns, 'shape')}, {sequences:,} of them patterns",
        f"  merged prefixes: {some(automata.node_count - 1, 'node')}, {some(automata.edge_count, 'edge')}, "
        f"for {some(separate, 'node')} of single automata",
        f"  FR index over forward and rebind edges: {some(len(automata.fr_entries), 'conjunct')}, {some(keys, 'key')}",
        f"  {some(automata.wait_count - 1, 'distinct wait condition')}",
        f"  AN index over active nodes: {some(len(automata.an_entries), 'entry')} by "
        f"{some(len(automata.an_lanes), 'attribute')}, {some(active, 'active wait condition')}",
        f"  AI index over instances: {some(dynamic, 'wait condition')} by {some(len(automata.ai_lanes), 'attribute')}, "
        f"{some(segment.machine.live, 'instance')}",
    ]


def some(number: int, what: str) -> str:
    """
    >>> some(1, "query"), some(2_000, "query"), some(0, "key")
    ('1 query', '2,000 queries', '0 keys')
    """
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what[:-1]}ies" if what.endswith("ry") else f"{number:,} {what}s"
