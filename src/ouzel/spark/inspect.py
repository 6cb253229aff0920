"""Shows what a stream does: `state` reads its open events from its checkpoint, and `Listener` follows the progress of
its queries after each micro-batch.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

from ouzel.bind.model import Kind, Type
from ouzel.errors import InputError
from ouzel.runtime.program import load
from ouzel.runtime.session import Session
from ouzel.spark.bucket import CONTROL, open_session, report
from ouzel.spark.compatibility import CheckpointSignature
from ouzel.spark.launch import session
from ouzel.spark.schema import spark_schema
from ouzel.spark.state_store import Manifest, restore
from ouzel.spark.streaming import OBSERVED
from ouzel.spark.tasks import on_workers
from ouzel.spark.versions import bucket_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.console import Console
    from rich.table import Table


def state(checkpoint: str | Path, spark: SparkSession | None = None) -> DataFrame:
    """The open state of a stream as a DataFrame: for each query and key the number of events, the time of the oldest,
    and the bytes.

    `checkpoint` is the location with which the stream was started. The state of its last micro-batch is read, also
    while the stream runs. The columns `query`, `key` and `open_events` say how many events are open. The key is null
    for events that may join every key, and for queries without separate keys. `oldest` is the time of the oldest open
    event, and `state_bytes` is the share of this key in the stored bytes. The other columns are about the bucket of the
    key: its id `bucket`, `bucket_runs` (open runs, and matches that wait for their end), `bucket_matches` and
    `bucket_late` (both counted since the stream began). Rows of totals over all keys are not counted here, because a
    second step merges them.

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
    """The number of the stateful operator that holds events. The operator that merges totals uses no event time."""
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
    """Rows of open state, from rows of (name of the bucket, manifest, signature, chunks)."""
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
    """A value of a key as users write it."""
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


# Spark reports the end of a stream within milliseconds, unless the machine is very busy.
REPORT_SECONDS_MAX = 10.0

COLUMNS = ("query", "matches", "open runs", "open events", "state", "late", "behind newest", "behind clock")


@dataclass
class QueryStatus:
    """The progress of one query of a stream. Numbers are counted since the start of the stream's checkpoint."""

    stream: str
    query: str
    matches: int = 0
    open_runs: int = 0
    open_events: int = 0
    state_bytes: int = 0
    late: int = 0
    # How far the watermark is behind the newest event, and behind the clock; None before the first event.
    behind_newest_seconds: float | None = None
    behind_clock_seconds: float | None = None


@dataclass
class _Stream:
    name: str
    # The last report of each bucket: (number of the record, counts by query).
    buckets: dict[int, tuple[int, dict[str, dict[str, int]]]] = field(default_factory=dict)
    newest: datetime | None = None
    behind_newest_seconds: float | None = None
    behind_clock_seconds: float | None = None


class Listener(StreamingQueryListener):
    """Follows all streams of a Spark session in which queries run: matches, open events and runs, their size, late
    events and lag.

    Add it before the stream starts, because it knows a bucket only after the bucket's first micro-batch. `progress()`
    gives a `QueryStatus` for each query, and `live()` shows them in the terminal.

    >>> listener = Listener()
    >>> spark.streams.addListener(listener)                                                   # doctest: +SKIP
    >>> listener.progress()
    []
    """

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        # Runs of streams whose end Spark has not reported yet.
        self._running: set[str] = set()
        # Spark calls from a thread of its own.
        self._lock = threading.Lock()

    # ── What Spark calls ───────────────────────────────────────────────────────────────────────────

    def onQueryStarted(self, event: Any) -> None:
        """A stream has started."""
        with self._lock:
            self._running.add(str(event.runId))

    def onQueryIdle(self, event: Any) -> None:
        """A stream has nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """A stream has ended. Its last progress is kept."""
        with self._lock:
            self._running.discard(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:
        """A micro-batch has ended."""
        progress = event.progress
        ours = [row for name, row in progress.observedMetrics.items() if name.startswith(f"{OBSERVED} ")]
        if ours:
            reports = [json.loads(report) for row in ours for report in json.loads(row["reports"] or "[]")]
            times = {name: _time(text) for name, text in dict(progress.eventTime or {}).items()}
            self._take(str(progress.id), progress.name or str(progress.id)[:8], reports, times, progress.timestamp)

    def _take(
        self, identity: str, name: str, reports: list[dict[str, Any]], times: dict[str, datetime], clock: str
    ) -> None:
        with self._lock:
            stream = self._streams.setdefault(identity, _Stream(name))
            for report in reports:
                known = stream.buckets.get(report["bucket"], (-1, {}))
                if report["record"] > known[0]:
                    stream.buckets[report["bucket"]] = (report["record"], report["queries"])
            newest = times.get("max")
            if newest is not None and (stream.newest is None or newest > stream.newest):
                stream.newest = newest
            watermark = times.get("watermark")
            # Spark's watermark is in 1970 until it has seen an event.
            if watermark is not None and watermark.timestamp() > 0:
                stream.behind_clock_seconds = (_time(clock) - watermark).total_seconds()
                if stream.newest is not None:
                    stream.behind_newest_seconds = (stream.newest - watermark).total_seconds()

    # ── What it knows ──────────────────────────────────────────────────────────────────────────────

    def progress(self) -> list[QueryStatus]:
        """The progress of each query of each stream, as of the last micro-batch that Spark has reported.

        Spark reports a micro-batch shortly after its end. This method waits for the reports of streams that have ended,
        so that nothing is missing directly after `awaitTermination`.
        """
        self._await_ended_streams()
        return self._progress()

    def _await_ended_streams(self) -> None:
        spark = SparkSession.getActiveSession()
        until = time.monotonic() + REPORT_SECONDS_MAX
        while spark is not None:
            active = {str(stream.runId) for stream in spark.streams.active}
            with self._lock:
                if time.monotonic() > until:
                    # A listener that was removed in the meantime gets no more reports.
                    self._running &= active
                if self._running <= active:
                    return
            time.sleep(0.01)

    def _progress(self) -> list[QueryStatus]:
        found: dict[tuple[str, str], QueryStatus] = {}
        with self._lock:
            for identity, stream in self._streams.items():
                for _, queries in stream.buckets.values():
                    for query, counts in queries.items():
                        status = found.setdefault((identity, query), QueryStatus(stream.name, query))
                        for name, value in counts.items():
                            setattr(status, name, getattr(status, name) + value)
                        status.behind_newest_seconds = stream.behind_newest_seconds
                        status.behind_clock_seconds = stream.behind_clock_seconds
        return list(found.values())

    def table(self) -> Table:
        """The progress as a table of the package rich."""
        from rich.table import Table

        table = Table(title="queries over streams")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "query" else "right")
        for one in self._progress():
            counts = (one.matches, one.open_runs, one.open_events)
            table.add_row(
                one.query,
                *(f"{count:,}" for count in counts),
                f"{one.state_bytes / 1e6:.1f} MB",
                f"{one.late:,}",
                *(_seconds(lag) for lag in (one.behind_newest_seconds, one.behind_clock_seconds)),
            )
        return table

    @contextmanager
    def live(self, console: Console | None = None) -> Iterator[None]:
        """Show the table in the terminal, four times a second, until the block ends.

        >>> with listener.live():                                                             # doctest: +SKIP
        ...     stream.awaitTermination()
        """
        from rich.live import Live

        with Live(get_renderable=self.table, console=console, refresh_per_second=4):
            yield
            # The table is drawn once more at the end.
            self._await_ended_streams()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _seconds(lag: float | None) -> str:
    return "–" if lag is None else f"{lag:,.1f} s"
