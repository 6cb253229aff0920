"""Merged queries as bytes: the live queries, the instances of their automata, and the rows of those.

Lanes and automata are not stored but built again, so that a snapshot has no trace of removed queries, and a newer
version may index differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ouzel.algebra.query import AlgebraQuery
from ouzel.algebra.streams import decode, encode
from ouzel.bind.codec import decode as decode_bound
from ouzel.bind.codec import encode as encode_bound
from ouzel.bind.model import BoundQuery
from ouzel.engines.automata.tables import Time
from ouzel.kernels.arrays import INT64_MAX
from ouzel.query_set.groups import Group, Origin, StoredGroup, objects
from ouzel.query_set.registry import stored_id
from ouzel.runtime.arrays import empty_table
from ouzel.runtime.snapshot import Reader, Writer

if TYPE_CHECKING:
    from ouzel.query_set.merged import Merged
    from ouzel.query_set.segments import Handover

# Instances are stored by these; their places in lists are computed again.
_INSTANCE_ARRAYS = ("times", "links", "slots", "ints", "floats", "nulls")


# ── Writing ────────────────────────────────────────────────────────────────────────────────────────


def dump_merged(merged: Merged, writer: Writer, watermark: int) -> dict[str, Any]:
    """What `load_merged` needs to find everything again."""
    kept = {id(group): np.flatnonzero(group.alive) for group in merged.groups}
    groups = [group for group in merged.groups if len(kept[id(group)])]
    numbers = {id(group): n for n, group in enumerate(groups)}
    handovers, events = _dump_instances(merged, watermark, writer, numbers)
    return {
        "next_row": merged.next_row,
        "coders": [coder.dump(writer) for coder in (merged.texts, merged.type_codes)],
        "groups": [_dump_group(group, kept[id(group)], writer) for group in groups],
        "segments": handovers,
        "events": events,
    }


def _dump_group(group: Group, rows: np.ndarray, writer: Writer) -> dict[str, Any]:
    origin = group.origin
    stored: dict[str, Any] = {"name": origin.name}
    if isinstance(origin, BoundQuery):
        stored["pattern"] = encode_bound(origin)
    else:
        # JSON has no dates and decimals.
        params = writer.add_table(pa.Table.from_pylist([dict(origin.params)])) if origin.params else None
        stored |= {"expression": encode(origin.expression), "params": params}
    integers = group.ids.dtype.kind in "iu"
    schema = group.parameter_schema
    return {
        "origin": stored,
        "parameter_schema": None if schema is None else writer.add_table(empty_table(schema)),
        "known": [[writer.add_array(array[rows]) for array in pair] for pair in group.known.values()],
        "parameter_columns": [
            writer.add_array(array[rows] if array.shape[1] else array) for array in group.parameter_columns
        ],
        "table": writer.add_table(group.table.take(pa.array(rows)) if group.table.num_columns else group.table),
        "ids": writer.add_array(group.ids[rows]) if integers else [stored_id(one) for one in group.ids[rows]],
        "owners": None if group.owners is None else [stored_id(one) for one in group.owners[rows]],
        "registered": writer.add_array(group.registered[rows]),
    }


def _dump_instances(
    merged: Merged, watermark: int, writer: Writer, numbers: Mapping[int, int]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The instances of the automata, and the events that they refer to."""
    expiry_bound = _expiry_bound(merged, watermark)
    handovers = [_waiting(segment.handover(), expiry_bound) for segment in merged.segments]
    slots = np.concatenate([one.instances["slots"].ravel() for one in handovers] or [np.empty(0, np.int32)])
    # A slot that an instance does not use yet may hold anything; evicted events are never read.
    used = np.unique(slots[(slots >= 0) & (slots < len(merged.rows))])
    used = used[merged.events.end[used] > expiry_bound]
    table, ticks, rows = merged.payload.fetch(merged.rows[used])
    events = {
        "table": writer.add_table(table.take(pa.array(rows)) if len(used) else empty_table(merged.schema)),
        "ticks": writer.add_array(ticks[rows]),
        "times": writer.add_array(merged.events.times[used]),
    }
    return [_dump_handover(one, used, writer, numbers) for one in handovers], events


def _waiting(one: Handover, expiry_bound: int) -> Handover:
    """The instances without those that have expired."""
    kept = one.instances["times"][:, Time.START] > expiry_bound
    return one._replace(instances={name: array[kept] for name, array in one.instances.items()})


def _expiry_bound(merged: Merged, watermark: int) -> int:
    """Rows up to this tick may have been evicted."""
    life = max((segment.life for segment in merged.segments), default=INT64_MAX)
    return merged.expiry_bound if life == INT64_MAX else max(merged.expiry_bound, watermark + 1 - life)


def _dump_handover(one: Handover, used: np.ndarray, writer: Writer, numbers: Mapping[int, int]) -> dict[str, Any]:
    # From now on the rows of live queries are contiguous.
    place = {id(group): np.cumsum(group.alive) - 1 for group, _ in one.members}
    members: list[list[int]] = []
    new_number: dict[int, int] = {}
    alive = [group.alive[rows] for group, rows in one.members]
    for number, (group, rows) in enumerate(one.members):
        if alive[number].any():
            new_number[number] = len(members)
            members.append([numbers[id(group)], writer.add_array(place[id(group)][rows[alive[number]]])])
    instances = dict(one.instances)
    slots = instances["slots"]
    found = np.searchsorted(used, slots).clip(0, max(0, len(used) - 1))
    instances["slots"] = (
        np.where(used[found] == slots, found, 0).astype(np.int32) if len(used) else np.zeros_like(slots)
    )
    return {
        "members": members,
        "nodes": [
            [new_number[number], branch, writer.add_array(nodes[:, alive[number]])]
            for (number, branch), nodes in zip(one.owners, one.node_of, strict=True)
            if number in new_number
        ],
        "node_count": one.node_count,
        "since": writer.add_array(one.since),
        "instances": [writer.add_array(instances[name]) for name in _INSTANCE_ARRAYS],
    }


# ── Reading ────────────────────────────────────────────────────────────────────────────────────────


def load_merged(merged: Merged, reader: Reader, head: Mapping[str, Any]) -> None:
    """Take back what `dump_merged` stored."""
    for coder, stored in zip((merged.texts, merged.type_codes), head["coders"], strict=True):
        coder.load(reader, stored)
    merged.next_row = head["next_row"]
    merged.groups = [_load_group(merged, reader, one) for one in head["groups"]]
    table, ticks, times = (head["events"][name] for name in ("table", "ticks", "times"))
    if len(reader.array(ticks)):
        merged.load_events(reader.table(table), reader.array(ticks), reader.array(times))
    handovers = [_load_handover(merged.groups, reader, one) for one in head["segments"]]
    if merged.groups:
        merged.segments = [merged.rebuilt(handovers, [])]


def _load_group(merged: Merged, reader: Reader, head: Mapping[str, Any]) -> Group:
    schema, ids, owners = head["parameter_schema"], head["ids"], head["owners"]
    ints, floats, nulls = reader.arrays(head["parameter_columns"])
    stored = StoredGroup(
        known=[(reader.array(values), reader.array(valid)) for values, valid in head["known"]],
        parameter_columns=(ints, floats, nulls),
        table=reader.table(head["table"]),
        ids=objects(ids) if isinstance(ids, list) else reader.array(ids),
        owners=None if owners is None else objects(owners),
        registered=reader.array(head["registered"]),
    )
    origin = _load_origin(reader, head["origin"])
    return merged.maker.restored(origin, None if schema is None else reader.table(schema).schema, stored)


def _load_origin(reader: Reader, head: Mapping[str, Any]) -> Origin:
    if "pattern" in head:
        found = decode_bound(head["pattern"])
        assert isinstance(found, BoundQuery)
        return found
    values = {} if head["params"] is None else reader.table(head["params"]).to_pylist()[0]
    return AlgebraQuery(head["name"], decode(head["expression"]), values)


def _load_handover(groups: Sequence[Group], reader: Reader, head: Mapping[str, Any]) -> Handover:
    from ouzel.query_set.segments import Handover

    return Handover(
        members=[(groups[number], reader.array(rows)) for number, rows in head["members"]],
        owners=[(number, branch) for number, branch, _ in head["nodes"]],
        node_of=[reader.array(nodes) for _, _, nodes in head["nodes"]],
        node_count=head["node_count"],
        since=reader.array(head["since"]),
        instances=dict(zip(_INSTANCE_ARRAYS, reader.arrays(head["instances"]), strict=True)),
    )
