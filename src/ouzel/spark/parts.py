"""Values that remain on Spark's workers, and sums over them. Loss models need this, because there are many bindings."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ouzel.errors import InputError
from ouzel.prepared import Query
from ouzel.runtime.program import Program
from ouzel.spark.api import match
from ouzel.spark.input import bind_events
from ouzel.spark.tasks import in_arrow, unwrap_errors

_PARTS = "payload BINARY"


def numbered_matches(
    events: DataFrame | Mapping[str, DataFrame], query: Query, number: str, options: Mapping[str, Any]
) -> tuple[Program, DataFrame]:
    """The program of a query, and its matches. The events get a column `number` that numbers them, which the query
    returns. Matches with the same number are in one task.
    """
    made: Any
    if isinstance(events, Mapping):
        made = {
            kind: frame.withColumn(number, F.monotonically_increasing_id() * len(events) + place)
            for place, (kind, frame) in enumerate(events.items())
        }
    else:
        made = events.withColumn(number, F.monotonically_increasing_id())
    bound = bind_events(made, {"query": query}, **options)
    if bound.frame.isStreaming:
        raise InputError("these events are a stream, which has no end; give a DataFrame of its past")
    return bound.program, match(made, query, **options).repartition(number)


class Parts:
    """The values that `function(*arguments, table)` yields for the rows of each task. Workers keep them until
    `close`.
    """

    def __init__(self, rows: DataFrame, function: Callable[..., Iterable[Any]], *arguments: Any) -> None:
        self._held = in_arrow(rows, _PARTS, parts_of_task, function, arguments).persist()

    def count(self) -> int:
        """The number of parts."""
        with unwrap_errors():
            return self._held.count()

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of `function(*arguments, part)` over all parts, added up on the driver in the order of the parts."""
        with unwrap_errors():
            rows = in_arrow(self._held, _PARTS, of_parts, function, arguments).collect()
        first, *others = (pickle.loads(bytes(payload)) for (payload,) in rows)
        for other in others:
            first += other
        return first

    def close(self) -> None:
        """Drop the parts."""
        self._held.unpersist()


# ── On the worker ──────────────────────────────────────────────────────────────────────────────────


def parts_of_task(
    function: Callable[..., Iterable[Any]], arguments: tuple[Any, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The parts that a function yields for the rows of a task."""
    received = list(batches)
    if received:
        for part in function(*arguments, pa.Table.from_batches(received)):
            yield _packed(part)


def of_parts(
    function: Callable[..., Any], arguments: tuple[Any, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The result of a function for each part."""
    for batch in batches:
        for payload in batch.column(0):
            yield _packed(function(*arguments, pickle.loads(payload.as_buffer())))


def _packed(value: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array([pickle.dumps(value)], pa.binary())], names=["payload"])
