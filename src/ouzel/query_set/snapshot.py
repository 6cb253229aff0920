"""A query set as bytes: the live queries, the instances of their automata, and the rows of those.

Lanes and automata are not stored but built again, so that a snapshot has no trace of removed queries, and a newer
version may index differently.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ouzel.algebra.query import AlgebraQuery
from ouzel.algebra.streams import decode, encode
from ouzel.bind.codec import decode as decode_bound
from ouzel.bind.codec import encode as encode_bound
from ouzel.bind.model import BoundQuery
from ouzel.engines.automata.tables import Time
from ouzel.errors import InputError, StateError
from ouzel.kernels.arrays import INT64_MAX
from ouzel.query_set.groups import Group, Origin, StoredGroup, objects
from ouzel.query_set.registry import Pending, PendingQuery
from ouzel.runtime.arrays import empty_table
from ouzel.runtime.codes import Coder
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.problems import Problem
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.sealing import SNAPSHOT, decoding

if TYPE_CHECKING:
    from ouzel.query_set.api import QuerySet
    from ouzel.query_set.merged import Merged
    from ouzel.query_set.segments import Handover

KIND = "query set"

# Instances are stored by these; their places in lists are computed again.
_INSTANCE_ARRAYS = ("times", "links", "slots", "ints", "floats", "nulls")


# ── Writing ────────────────────────────────────────────────────────────────────────────────────────


def dump(held: QuerySet) -> bytes:
    """The set as bytes."""
    if held._layout is None:
        raise InputError("snapshot() must come after the first push(), unless the set was given schema=")
    held._must_be_open()
    merged, layout = held._merged, held._layout
    assert merged is not None
    merged.bring_up_to_date()
    writer = Writer()
    kept = {id(group): np.flatnonzero(group.alive) for group in merged.groups}
    groups = [group for group in merged.groups if len(kept[id(group)])]
    numbers = {id(group): n for n, group in enumerate(groups)}
    handovers, events = _dump_instances(merged, layout, held._watermark, writer, numbers)
    head = {
        "kind": KIND,
        "options": {**held._options, "order": list(held._options["order"])},
        "limits": asdict(held._limits),
        "bounded": held._bounded,
        "merge": held._merge,
        "schema": base64.b64encode(layout.schema.serialize().to_pybytes()).decode("ascii"),
        "only_type": layout.only_type,
        "watermark": held._watermark,
        "newest": held._newest,
        "delay_ticks": held._delay_ticks,
        "next_row": merged.next_row,
        "late": held.late,
        "problem": None if held._problem is None else held._problem.plain(),
        "owed": [[_plain(name), writer.add_table(table)] for name, table in held._calls.rows.items()],
        "coders": [coder.dump(writer) for coder in (merged.texts, merged.type_codes)],
        "groups": [_dump_group(group, kept[id(group)], writer) for group in groups],
        "segments": handovers,
        "events": events,
        "pending": [[writer.add_table(table), writer.add_array(ticks)] for table, ticks in held._pending_events],
        "unmerged": held._unmerged.dump(writer, _plain),
    }
    return writer.finish(head)


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
        "ids": writer.add_array(group.ids[rows]) if integers else [_plain(one) for one in group.ids[rows]],
        "owners": None if group.owners is None else [_plain(one) for one in group.owners[rows]],
        "registered": writer.add_array(group.registered[rows]),
    }


def _dump_instances(
    merged: Merged, layout: Layout, watermark: int, writer: Writer, numbers: Mapping[int, int]
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
        "table": writer.add_table(table.take(pa.array(rows)) if len(used) else empty_table(layout.schema)),
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


def _plain(value: Any) -> Any:
    """An id or an owner, if JSON can hold it."""
    if isinstance(value, np.integer):
        return int(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(
        f"{value!r} is a {type(value).__name__}, and a snapshot holds ids and owners that are texts or numbers; "
        "use such ones"
    )


def held_events(held: QuerySet) -> int:
    """The number of events held in memory, over all queries."""
    merged = 0 if held._merged is None else len(held._merged.rows)
    return merged + sum(len(ticks) for _, ticks in held._pending_events) + held._unmerged.held_events


# ── Reading ────────────────────────────────────────────────────────────────────────────────────────


def load(blob: bytes) -> QuerySet:
    """The set that `dump` stored; StateError if the bytes are something else."""
    reader = Reader(blob)
    if reader.head.get("kind") != KIND:
        raise StateError("this snapshot is not one of a QuerySet; try Engine.restore")
    with decoding(SNAPSHOT):
        return _loaded(reader, reader.head)


def _loaded(reader: Reader, head: Mapping[str, Any]) -> QuerySet:
    from ouzel.query_set.api import QuerySet

    held = QuerySet(
        **head["options"],
        max_delay=head["delay_ticks"],
        limits=Limits(**head["limits"]),
        bounded=head["bounded"],
        merge=head["merge"],
    )
    texts, type_codes = Coder(), Coder()
    for coder, stored in zip((texts, type_codes), head["coders"], strict=True):
        coder.load(reader, stored)
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(head["schema"])))
    held._bind_schema(schema, head["only_type"], (texts, type_codes))
    merged = held._merged
    assert merged is not None
    held._watermark, held._newest = head["watermark"], head["newest"]
    merged.next_row, held.late = head["next_row"], head["late"]
    merged.groups = [_load_group(merged, reader, one) for one in head["groups"]]
    for group in merged.groups:
        if not group.is_template:
            held._places |= {one: (group, row) for row, one in enumerate(group.ids.tolist())}
    table, ticks, times = (head["events"][name] for name in ("table", "ticks", "times"))
    if len(reader.array(ticks)):
        merged.load_events(reader.table(table), reader.array(ticks), reader.array(times))
    handovers = [_load_handover(merged.groups, reader, one) for one in head["segments"]]
    if merged.groups:
        merged.segments = [merged.rebuilt(handovers, [])]
    held._pending_events = [(reader.table(table), reader.array(ticks)) for table, ticks in head["pending"]]
    held._unmerged.load(reader, head["unmerged"])
    if head.get("problem") is not None:
        held._problem = Problem.from_plain(head["problem"])
    if head.get("owed"):
        held._calls.owe({name: reader.table(number) for name, number in head["owed"]})
    held._warned = len(held._problems())
    return held


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


# ── Spreading ──────────────────────────────────────────────────────────────────────────────────────


def spread(held: QuerySet, schema: pa.Schema, slices: int, *, bounded: bool) -> list[QuerySet]:
    """The queries of a set that has seen no event, distributed over several sets for an input with known columns."""
    from ouzel.query_set.api import QuerySet

    if held._layout is not None:
        raise InputError(
            "the schema of this QuerySet is already fixed, by schema= or by events; make a new one, which takes the "
            "schema of the DataFrame"
        )
    made = []
    only = next(iter(held.types_named()), None) if held._options["type"] is None else None
    for number in range(slices):
        part = QuerySet(**held._options, limits=held._limits, bounded=bounded, merge=held._merge)
        part._registrations = [
            cut for one in held._registrations if (cut := _share_of(one, number, slices)) is not None
        ]
        part._bind_schema(schema, only)
        made.append(part)
    return made


def _share_of(pending: Pending, number: int, slices: int) -> Pending | None:
    """The rows of a pending registration that belong to a slice."""
    if slices == 1:
        return pending
    rows = [row for row, one in enumerate(pending.ids) if slice_of(one, slices) == number]
    return pending.rows(rows) if rows else None


def ids_of(held: QuerySet) -> list[Any]:
    """The ids of all queries of a set that has seen no event yet."""
    return [id for one in held._registrations for id in one.ids]


def digest(held: QuerySet) -> str:
    """A digest of the queries of a set that has seen no event; equal queries have equal digests."""
    from ouzel.query_set.api import _prepared

    mark = sha256()
    for one in held._registrations:
        if isinstance(one, PendingQuery):
            prepared = _prepared(one.query, one.params)
            text = encode(prepared.expression) if isinstance(prepared, AlgebraQuery) else prepared.text
            parts = [one.id, text, one.owner, sorted(one.params.items())]
        else:
            parts = [one.name, encode(one.template), one.table.to_pylist(), one.ids, one.row_owners]
        mark.update(json.dumps(parts, default=repr).encode())
    return mark.hexdigest()[:32]


def slice_of(id: Any, slices: int) -> int:
    """The slice of a query, the same in every process and version.

    >>> slice_of(7, 4) == slice_of("7", 4)
    True
    """
    return zlib.crc32(str(id).encode("utf-8", "surrogatepass")) % slices
