"""Streams for tests: tables become files, one micro-batch each, and answers are read back from a sink."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

FIRST_FILE_SECONDS = 1_700_000_000
# Spark gives a Python process ten seconds to start, which a busy machine may exceed; the stream is then started again.
TOO_BUSY = "Python worker failed to connect back"
STARTS_MAX = 4


class FileStream:
    """A source of files, a checkpoint and a sink in one folder. `run` can be called again: it goes on from there."""

    def __init__(self, spark: SparkSession | None, folder: Path, schema: pa.Schema) -> None:
        """Without a session, micro-batches can be added and nothing else."""
        self._spark = spark
        self._source = folder / "source"
        self._source.mkdir(exist_ok=True)
        self._answers = folder / "answers"
        self.checkpoint = folder / "checkpoint"
        self._files = 0
        self._schema_path = folder / "schema.parquet"
        pq.write_table(schema.empty_table(), self._schema_path)

    def add(self, tables: Sequence[pa.Table]) -> None:
        """Each table is a micro-batch to come."""
        for table in tables:
            path = self._source / f"{self._files:05d}.parquet"
            pq.write_table(table, path)
            # Spark takes files in the order of their times, and these may be written within one tick of the clock.
            os.utime(path, (FIRST_FILE_SECONDS + self._files,) * 2)
            self._files += 1

    def events(self) -> DataFrame:
        """The tables as a stream."""
        assert self._spark is not None
        schema = self._spark.read.parquet(str(self._schema_path)).schema
        return self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self._source))

    def run(self, step: Callable[[DataFrame], DataFrame]) -> None:
        """Start the query, or start it again from its checkpoint, and run until all files are read."""
        for tries_left in reversed(range(STARTS_MAX)):
            writer = step(self.events()).writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
            writer = writer.option("path", str(self._answers)).option("checkpointLocation", str(self.checkpoint))
            query = writer.start()
            try:
                query.awaitTermination()
                return
            except StreamingQueryException as failure:
                if TOO_BUSY not in str(failure) or not tries_left:
                    raise
            finally:
                query.stop()

    def answers(self) -> list[dict[str, Any]]:
        return self.answer_table().to_pylist()

    def answer_table(self) -> pa.Table:
        assert self._spark is not None
        return self._spark.read.parquet(str(self._answers)).toArrow()
