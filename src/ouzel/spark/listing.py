"""`ouzel.spark.expand`: lists the matches in rows of OUTPUT COMPRESSED, on the workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ouzel.engines.kleene.compressed import GRAPH
from ouzel.engines.kleene.expand import MATCHES_MAX, check_numbers, listed, reading
from ouzel.errors import InputError
from ouzel.prepared import Query, as_queries
from ouzel.runtime.output import output_schema
from ouzel.spark.schema import arrow_schema, spark_schema
from ouzel.spark.tasks import in_arrow
from ouzel.spark.versions import from_arrow, to_arrow

SparkSchema = StructType | DataFrame


def expand(
    frame: DataFrame,
    query: Query | str | Mapping[str, Query | str],
    *,
    params: Mapping[str, Any] | None = None,
    first: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
    schema: SparkSchema | Mapping[str, SparkSchema] | None = None,
    max_matches: int = MATCHES_MAX,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
) -> DataFrame:
    """List the matches in the rows of a DataFrame of OUTPUT COMPRESSED, as `ouzel.expand` does.

    The workers list all matches, where the rows are; `max_matches` applies to each row. The first matches (by the end
    of their rows) and samples are chosen on the driver. It collects the compressed rows: as many as there are matches
    to list, or, for a sample, all of them.

        rows = ouzel.spark.match(events, text)          # … OUTPUT COMPRESSED …
        ouzel.spark.expand(rows, text).write.parquet("matches")
        ouzel.spark.expand(rows, text, sample=10, seed=1).show()
    """
    check_numbers(first, sample, seed)
    if GRAPH not in frame.columns:
        raise InputError("this DataFrame has no column 'graph'; expand() needs the answer of OUTPUT COMPRESSED")
    queries = as_queries(query, params)
    options = {"time": time, "type": type, "order": tuple(order), "time_unit": time_unit}
    inputs: pa.Schema | dict[str, pa.Schema] | None
    if isinstance(schema, Mapping):
        inputs = {name: _arrow(one) for name, one in schema.items()}
    else:
        inputs = None if schema is None else _arrow(schema)
    compressed = arrow_schema(frame.schema)
    bound, layout = reading(queries, compressed, inputs, options)
    answer = spark_schema(output_schema(bound, layout))
    if first is None and sample is None:
        return in_arrow(frame, answer, expand_rows, queries, compressed, inputs, options, max_matches)
    if first is not None:
        # Each row holds at least one match.
        others = [name for name in frame.columns if name not in ("end", GRAPH)]
        frame = frame.orderBy("end", *others).limit(first)
    rows = to_arrow(frame).cast(compressed)
    table = listed(bound, layout, rows, first=first, sample=sample, seed=seed)
    return from_arrow(frame.sparkSession, table)


def _arrow(schema: SparkSchema) -> pa.Schema:
    return arrow_schema(schema.schema if isinstance(schema, DataFrame) else schema)


def expand_rows(
    queries: Mapping[str, Any],
    compressed: pa.Schema,
    schema: pa.Schema | Mapping[str, pa.Schema] | None,
    options: Mapping[str, Any],
    max_matches: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The matches in rows of OUTPUT COMPRESSED, row by row, because a row may hold very many."""
    bound, layout = reading(queries, compressed, schema, options)
    for batch in batches:
        table = pa.Table.from_batches([batch]).cast(compressed)
        for row in range(table.num_rows):
            yield from listed(bound, layout, table.slice(row, 1), max_matches=max_matches).to_batches(1 << 16)
