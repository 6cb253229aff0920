"""Listing the matches of compressed rows, inside Spark's Python workers. Nothing here imports PySpark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ouzel.runtime.expand import listed, reading


def expand_rows(
    queries: Mapping[str, Any],
    compressed: pa.Schema,
    schema: pa.Schema | Mapping[str, pa.Schema] | None,
    options: Mapping[str, Any],
    max_matches: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The matches that rows of OUTPUT COMPRESSED stand for, row by row, since a row may hold very many."""
    bound, layout = reading(queries, compressed, schema, options)
    for batch in batches:
        table = pa.Table.from_batches([batch]).cast(compressed)
        for row in range(table.num_rows):
            yield from listed(bound, layout, table.slice(row, 1), max_matches=max_matches).to_batches(1 << 16)
