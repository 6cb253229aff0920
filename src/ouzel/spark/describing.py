"""What stored buckets hold open, key by key. Runs on Spark's workers, for `ouzel.spark.state`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Kind, Type
from ouzel.runtime.program import load
from ouzel.runtime.session import Session
from ouzel.spark.buckets import bucket_names
from ouzel.spark.saved import Head, restore
from ouzel.spark.steps import report
from ouzel.spark.terms import Terms


@dataclass
class StoredBucket:
    """A bucket that was read from a checkpoint; see `ouzel.spark.saved.Store`."""

    values: dict[str, bytes]
    pieces: dict[int, bytes] = field(default_factory=dict)

    def get(self, name: str) -> bytes | None:
        return self.values.get(name)

    def put(self, name: str, value: bytes) -> None:
        self.values[name] = value

    def get_piece(self, number: int) -> bytes | None:
        return self.pieces.get(number)

    def put_piece(self, number: int, value: bytes) -> None:
        self.pieces[number] = value

    def remove_piece(self, number: int) -> None:
        self.pieces.pop(number, None)


def describe(schema: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of (name of the bucket, head, terms, pieces) as rows of what is open."""
    target = pa.ipc.read_schema(pa.py_buffer(schema))
    for batch in batches:
        for row in batch.to_pylist():
            pieces = {piece["number"]: piece["saved"] for piece in row["pieces"] or ()}
            stored = StoredBucket({"head": row["head"], "terms": row["terms"]}, pieces)
            found = describe_bucket(row["query"], stored)
            columns = [_column([one[name.name] for one in found], name.type) for name in target]
            yield pa.record_batch(columns, schema=target)


def describe_bucket(name: int, stored: StoredBucket) -> list[dict[str, Any]]:
    """What one bucket holds, for each query and key."""
    head = Head.load(stored.values["head"])
    terms = Terms.load(stored.values["terms"])
    place = bucket_names(terms.buckets * len(terms.programs)).index(name)
    session = restore(head, stored, load(terms.programs[place // terms.buckets]))
    rows = []
    for query, told in report(name, head, session)["queries"].items():
        bucket = {
            "query": query,
            "bucket": name,
            "bucket_runs": told["open_runs"],
            "bucket_matches": told["matches"],
            "bucket_late": told["late"],
            "bucket_dropped": told["dropped"],
        }
        # A row also where nothing is open, for what the bucket has counted.
        for key, events, oldest in _keys(session, query, told["open_events"]) or [(None, 0, None)]:
            share = told["state_bytes"] * events // max(1, told["open_events"])
            rows.append({**bucket, "key": key, "open_events": events, "oldest": oldest, "state_bytes": share})
    return rows


def _keys(session: Session, query: str, open_events: int) -> list[tuple[str | None, int, int | None]]:
    found = session.open_by_key(query)
    if found is None:
        return [(None, open_events, None)]
    parts = session.program.plans()[query].key
    return [
        (_rendered([_value(value, part.type) for value, part in zip(values, parts, strict=False)]), events, oldest)
        for values, events, oldest in found
    ]


def _rendered(values: list[Any]) -> str | None:
    if not values:
        return None
    return str(values[0]) if len(values) == 1 else json.dumps(values, default=str)


def _value(stored: int | str, kind: Type) -> Any:
    """A value of a key as people know it."""
    if not isinstance(stored, int):
        return stored
    if kind.kind is Kind.FLOAT:
        return float(np.array([stored], np.int64).view(np.float64)[0])
    if kind.kind is Kind.BOOL:
        return bool(stored)
    if kind.kind is Kind.DECIMAL:
        return stored / 10**kind.scale
    if kind.kind is Kind.TIMESTAMP:
        return pa.scalar(stored, pa.timestamp(kind.unit or "us", kind.zone))
    if kind.kind is Kind.DATE:
        return pa.scalar(stored, pa.int32()).cast(pa.date32())
    return stored


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    # Ticks are the numbers behind timestamps.
    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
