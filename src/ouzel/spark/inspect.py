"""`state`: the open events of a stream, read from its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from ouzel.bind.model import Kind, Type
from ouzel.errors import InputError
from ouzel.runtime.program import load
from ouzel.runtime.session import Session
from ouzel.spark.bucket import CONTROL, open_session, report
from ouzel.spark.compatibility import CheckpointSignature
from ouzel.spark.launch import session
from ouzel.spark.schema import spark_schema
from ouzel.spark.state_store import Manifest, restore
from ouzel.spark.tasks import on_workers
from ouzel.spark.versions import bucket_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def state(checkpoint: str | Path, spark: SparkSession | None = None) -> DataFrame:
    """The open state of a stream as a DataFrame: for each query and key the events, the oldest of them, and the bytes.

    `checkpoint` is the location that the stream was started with. Its last micro-batch is read, whether the stream runs
    or not. Columns: `query`; `key`, null for events that may join every key and for queries without separate keys;
    `open_events`; `oldest`, the time of the oldest of them; `state_bytes`, this key's part of the stored bytes. For the
    bucket of the key: `bucket`, `bucket_runs` (open runs, and matches that wait for their end), `bucket_matches` and
    `bucket_late` (counted since the stream began). A second step merges totals over all keys; its rows are not counted
    here.

    >>> state("/checkpoints/thefts").orderBy("oldest").show()                                 # doctest: +SKIP
    """
    spark = spark or session()

    def variable(name: str) -> DataFrame:
        reader = spark.read.format("statestore").option("path", str(checkpoint)).option("operatorId", operator)
        return reader.option("stateVarName", name).load()

    try:
        operator = _operator_of_buckets(spark, checkpoint)
        signatures = variable("signature").select("key.query", F.col("value.saved").alias("signature"))
        first = signatures.where(F.col("query") == CONTROL).head()
    except PySparkException as failure:
        raise InputError(f"'{checkpoint}' is not a checkpoint of ouzel.spark.match: {_first_line(failure)}") from None
    if first is None:
        raise InputError(f"no micro-batch has ended in the checkpoint '{checkpoint}'; wait for the first one")
    signature = CheckpointSignature.load(bytes(first["signature"]))
    if signature.query_set is not None:
        raise InputError(
            f"'{checkpoint}' is a checkpoint of ouzel.spark.match_set, whose state has no keys; "
            "ouzel.spark.Listener shows its size"
        )
    layout = load(signature.programs[0]).layout
    schema = state_schema(layout.schema.field(layout.time).type)
    manifests = variable("manifest").select("key.query", F.col("value.saved").alias("manifest"))
    chunk = F.struct(F.col("user_map_key.number").alias("number"), F.col("user_map_value.saved").alias("saved"))
    chunks = variable("chunks").groupBy(F.col("key.query").alias("query")).agg(F.collect_list(chunk).alias("chunks"))
    stored = manifests.where(F.col("query") != CONTROL).join(signatures, "query").join(chunks, "query", "left")
    return stored.select("query", "manifest", "signature", "chunks").mapInArrow(
        on_workers(describe, schema.serialize().to_pybytes()), spark_schema(schema)
    )


def state_schema(time: pa.DataType) -> pa.Schema:
    """The columns of `state` for a type of time."""
    return pa.schema(
        {
            "query": pa.string(),
            "key": pa.string(),
            "open_events": pa.int64(),
            "oldest": time,
            "state_bytes": pa.int64(),
            "bucket": pa.int32(),
            "bucket_runs": pa.int64(),
            "bucket_matches": pa.int64(),
            "bucket_late": pa.int64(),
        }
    )


def _operator_of_buckets(spark: SparkSession, checkpoint: str | Path) -> int:
    """The number of the stateful operator that keeps events; the one that merges totals uses no event time."""
    operators = spark.read.format("state-metadata").load(str(checkpoint))
    keeping = operators.where(F.get_json_object("operatorProperties", "$.timeMode") == "EventTime")
    found = keeping.agg(F.max("operatorId")).first()
    return 0 if found is None or found[0] is None else int(found[0])


def _first_line(failure: PySparkException) -> str:
    return str(failure).strip().splitlines()[0]


@dataclass
class StoredBucket:
    """A bucket that was read from a checkpoint; see `ouzel.spark.state_store.Store`."""

    values: dict[str, bytes]
    chunks: dict[int, bytes] = field(default_factory=dict)

    def get(self, name: str) -> bytes | None:
        return self.values.get(name)

    def put(self, name: str, value: bytes) -> None:
        self.values[name] = value

    def get_chunk(self, number: int) -> bytes | None:
        return self.chunks.get(number)

    def put_chunk(self, number: int, value: bytes) -> None:
        self.chunks[number] = value

    def remove_chunk(self, number: int) -> None:
        self.chunks.pop(number, None)


def describe(schema: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of (name of the bucket, manifest, signature, chunks) as rows of open state."""
    target = pa.ipc.read_schema(pa.py_buffer(schema))
    for batch in batches:
        for row in batch.to_pylist():
            chunks = {chunk["number"]: chunk["saved"] for chunk in row["chunks"] or ()}
            stored = StoredBucket({"manifest": row["manifest"], "signature": row["signature"]}, chunks)
            found = describe_bucket(row["query"], stored)
            columns = [_column([one[name.name] for one in found], name.type) for name in target]
            yield pa.record_batch(columns, schema=target)


def describe_bucket(name: int, stored: StoredBucket) -> list[dict[str, Any]]:
    """What one bucket holds, for each query and key."""
    manifest = Manifest.load(stored.values["manifest"])
    signature = CheckpointSignature.load(stored.values["signature"])
    place = bucket_names(signature.buckets * len(signature.programs)).index(name)
    program = signature.programs[place // signature.buckets]
    session = restore(manifest, stored, lambda snapshot: open_session(program, snapshot))
    rows = []
    for query, counts in report(session, manifest).items():
        bucket = {
            "query": query,
            "bucket": name,
            "bucket_runs": counts["open_runs"],
            "bucket_matches": counts["matches"],
            "bucket_late": counts["late"],
        }
        # A row even if nothing is open, for the counts of the bucket.
        for key, events, oldest in _keys(session, query, counts["open_events"]) or [(None, 0, None)]:
            bytes_of_key = counts["state_bytes"] * events // max(1, counts["open_events"])
            rows.append({**bucket, "key": key, "open_events": events, "oldest": oldest, "state_bytes": bytes_of_key})
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
    """A value of a key as users know it."""
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
    if kind.kind is Kind.DURATION:
        return pa.scalar(stored, pa.duration(kind.unit or "us"))
    if kind.kind is Kind.DATE:
        return pa.scalar(stored, pa.int32()).cast(pa.date32())
    return stored


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    # Ticks are the numbers behind timestamps.
    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
