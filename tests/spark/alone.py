"""Golden cases each in a stream of its own, through `ouzel.spark.match` as users call it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import ouzel.spark
from ouzel.runtime.layout import ticks_of, widen
from ouzel.runtime.program import Program, make_program
from tests.golden.answers import Answer, Answers
from tests.golden.embedded import _windowed, answer_of, options, prepared, stream_gap
from tests.golden.format import Case
from tests.spark.streams import FileStream
from tests.spark.ways import gap

# Spark's clock has milliseconds from 1970 to the year 294247; see `ouzel.spark.input`.
TICKS_MAX = 10**15


class SparkAlone:
    """Events out of order in two micro-batches, and an event that no query wants long after the last."""

    name = "spark streaming alone"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def gap(self, case: Case) -> str | None:
        if reason := gap(case) or (stream_gap(case) if case.is_expression else None):
            return reason
        if case.is_row_pattern:
            return "the row that ends the stream would be a row of the pattern"
        kinds = {table.schema.field(case.time_column).type for table in case.inputs.values()}
        if any(pa.types.is_date(kind) for kind in kinds):
            return "a stream on Spark wants moments, not dates"
        if not any(table.num_rows for table in case.inputs.values()):
            return "a stream without events has no micro-batches"
        ticks, windows = _extent(case, _program(case))
        if max(abs(ticks[0]), ticks[-1] + 4 * windows) > TICKS_MAX and not pa.types.is_timestamp(next(iter(kinds))):
            return "Spark's clock ends before the last event of the case"
        return None

    def run(self, case: Case) -> Answers:
        program = _program(case)
        ticks, windows = _extent(case, program)
        span = ticks[-1] - ticks[0]
        streams = {}
        for name, table in case.inputs.items():
            folder = self._folder / str(name)
            folder.mkdir()
            events = _with_zones(table)
            streams[name] = FileStream(self._spark, folder, events.schema)
            places = pa.array(range(events.num_rows), pa.int64())
            streams[name].add([events.take(places[first::2]) for first in (0, 1)])
        first = next(iter(streams))
        end = ticks[-1] + 2 * span + 4 * windows + 10_000_000
        streams[first].add([_end_of_time(case, _with_zones(case.inputs[first]), end)])
        queries = {name: _windowed(query) for name, query in prepared(case).items()}

        def step(_: object) -> Any:
            frames = {name: stream.events() for name, stream in streams.items()}
            return ouzel.spark.match(
                frames.get(None, frames),
                queries if case.is_script else queries["query"],
                max_delay=span,
                **options(case),
            )

        with ouzel.spark.unwrap_errors():
            streams[first].run(step)
        found = streams[first].answer_table()
        if not case.is_script:
            return {"query": _naive(answer_of(case, "query", [found]))}
        return {name: _naive(answer_of(case, name, [_rows_of(found, name)])) for name in queries}


def _program(case: Case) -> Program:
    tables = case.inputs
    schema = tables[None].schema if None in tables else {name: table.schema for name, table in tables.items()}
    queries = {name: _windowed(query) for name, query in prepared(case).items()}
    return make_program(queries, schema, streaming=True, **options(case))


def _extent(case: Case, program: Program) -> tuple[list[int], int]:
    """The ticks of all events in order, and all windows of the case together."""
    table = case.inputs[None] if None in case.inputs else widen(case.inputs, program.layout)
    if program.algebra:
        # Longer than the bounds on DUR of all cases.
        return sorted(ticks_of(table, program.layout).tolist()), 1_000
    windows = (plan.window_ticks for plan in program.plans().values())
    # Those that stand in for none are longer than any case.
    return sorted(ticks_of(table, program.layout).tolist()), sum(w for w in windows if w is not None and w < 2**50)


def _with_zones(table: pa.Table) -> pa.Table:
    """Spark's watermarks go by timestamps with a zone only."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is None:
            table = table.set_column(place, field.name, table.column(place).cast(pa.timestamp("us", "UTC")))
    return table


def _end_of_time(case: Case, like: pa.Table, tick: int) -> pa.Table:
    columns = []
    for field in like.schema:
        value: object = None
        if field.name == case.time_column:
            value = tick
        elif field.name == case.type_column and None in case.inputs:
            value = "nothing that any query wants"
        column = pa.array([value]) if value is not None else pa.nulls(1, field.type)
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=like.schema)


def _rows_of(found: pa.Table, name: str) -> pa.Table:
    own = found.filter(pc.equal(found["query"], name)).column(name).combine_chunks()
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(own)]) if len(own) else _empty(own.type)


def _empty(kind: pa.StructType) -> pa.Table:
    return pa.schema(list(kind)).empty_table()


def _naive(answer: Answer) -> Answer:
    """Moments as the case has them, without the zone that Spark wanted."""
    rows, matches = ([_without_zone(row) for row in part] for part in (answer.rows, answer.matches))
    return Answer(rows, matches)


def _without_zone(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, dict):
        return {key: _without_zone(one) for key, one in value.items()}
    return [_without_zone(one) for one in value] if isinstance(value, list) else value
