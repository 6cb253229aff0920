"""The rows of many DataFrames out of one Spark job: starting a job takes Spark longer than most of them take to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from ouzel.spark.payloads import from_payload, to_payload

ANSWER = "name STRING, payload BINARY"


def collect_together(frames: Mapping[str, DataFrame]) -> dict[str, list[pa.Table]]:
    """The rows of each DataFrame, by its name."""
    found: dict[str, list[pa.Table]] = {name: [] for name in frames}
    packed = [
        # mapInArrow of Spark finds no column with a point in its name.
        frame.toDF(*map(str, range(len(frame.columns)))).mapInArrow(_packing(name, frame.columns), ANSWER)
        for name, frame in frames.items()
    ]
    for row in _union(packed).collect():
        found[row["name"]].append(from_payload(row["payload"]))
    return found


def _packing(name: str, columns: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            payload = to_payload(pa.Table.from_batches([batch]).rename_columns(columns))
            yield pa.record_batch([pa.array([name]), pa.array([payload], pa.binary())], names=["name", "payload"])

    return pack


def _union(frames: list[DataFrame]) -> DataFrame:
    """As a tree with few levels: plans that travel may not be nested deeply."""
    while len(frames) > 1:
        pairs = [frames[place : place + 2] for place in range(0, len(frames), 2)]
        frames = [pair[0].union(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return frames[0]
