"""Ouzel from SQL: table functions over TABLE(events), partitioned by the query's keys or by PARTITION BY.

Spark passes a table function its input row by row, which costs far more CPU than `ouzel.spark.match` (docs/spark.md).
So use it at a SQL prompt, not in pipelines. Spark's table functions over Arrow batches need one fixed schema, but the
columns of a match depend on the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import udtf
from pyspark.sql.types import StructType, TimestampType
from pyspark.sql.udtf import (
    AnalyzeArgument,
    AnalyzeResult,
    PartitioningColumn,
    SelectedColumn,
    UserDefinedTableFunction,
)

from ouzel.errors import InputError
from ouzel.prepared import as_queries
from ouzel.runtime.program import make_program
from ouzel.runtime.session import Session
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.query_group import Clock
from ouzel.spark.schema import arrow_schema, quoted, spark_schema
from ouzel.spark.tasks import hide_traceback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Keys are combined into this many partitions: a call for each of many small keys would cost more than its rows.
PARTITIONS = 64


def register(spark: SparkSession) -> None:
    """Register two table functions with the SQL of a Spark session.

    `ouzel_match(TABLE(events), query)` gives the matches of a query. Its events are partitioned by the query's
    equivalence tests; without any, one task sees all of them. `ouzel_match_within(TABLE(events) PARTITION BY …, query)`
    answers the query within each of your partitions. Both take names of columns: `time => 'ts'`, `type => 'type'`.

    >>> register(spark)                                                                       # doctest: +SKIP
    >>> spark.sql("SELECT * FROM ouzel_match(TABLE(readings), 'PATTERN SEQ(A a, B b) WHERE [id] WITHIN 1 hour')")
    ... # doctest: +SKIP
    """
    for name, function in (("ouzel_match", OuzelMatch), ("ouzel_match_within", OuzelMatchWithin)):
        made = udtf(function)
        assert isinstance(made, UserDefinedTableFunction)
        spark.udtf.register(name, made)


@dataclass
class Analysed(AnalyzeResult):
    """The results of the driver's analysis, for the workers."""

    program: bytes = b""
    columns: bytes = b""  # the Arrow schema of the rows that Spark passes


class OuzelMatch:
    """`ouzel_match`. Spark makes one for each partition."""

    def __init__(self, analysed: Analysed) -> None:
        self._analysed = analysed
        self._rows: list[Sequence[Any]] = []

    @staticmethod
    def analyze(
        events: AnalyzeArgument,
        query: AnalyzeArgument,
        time: AnalyzeArgument | None = None,
        type: AnalyzeArgument | None = None,
    ) -> Analysed:
        """The columns of the answer, and how the events are partitioned."""
        with hide_traceback():
            analysed, keys = _analysed(events, query, time, type)
        if keys:
            hashed = ", ".join(".".join(map(quoted, path)) for path in keys)
            analysed.partitionBy = [PartitioningColumn(f"pmod(hash({hashed}), {PARTITIONS})")]
        else:
            analysed.withSinglePartition = True
        return analysed

    def eval(self, events: Sequence[Any], query: str, time: str | None = None, type: str | None = None) -> None:
        """Take in one event; the analysis knows the rest."""
        self._rows.append(tuple(events))

    def terminate(self) -> Iterator[tuple[Any, ...]]:
        """Answer the query over the events of the partition."""
        if not self._rows:
            return
        schema = pa.ipc.read_schema(pa.py_buffer(self._analysed.columns))
        columns = [
            _column(values, field.type) for values, field in zip(zip(*self._rows, strict=True), schema, strict=True)
        ]
        self._rows.clear()
        session = Session.open(self._analysed.program)
        session.push(pa.table(columns, schema=schema), zero_copy=True)
        for answer in session.finish().values():
            for row in answer.to_pylist():
                yield tuple(map(_as_row, row.values()))


class OuzelMatchWithin(OuzelMatch):
    """`ouzel_match_within`: answers the query within each partition that the SQL defines by PARTITION BY."""

    @staticmethod
    def analyze(
        events: AnalyzeArgument,
        query: AnalyzeArgument,
        time: AnalyzeArgument | None = None,
        type: AnalyzeArgument | None = None,
    ) -> Analysed:
        """The columns of the answer; PARTITION BY of the SQL decides the partitions."""
        with hide_traceback():
            return _analysed(events, query, time, type)[0]


def _analysed(
    events: AnalyzeArgument, query: AnalyzeArgument, time: AnalyzeArgument | None, type: AnalyzeArgument | None
) -> tuple[Analysed, tuple[tuple[str, ...], ...]]:
    if not events.isTable or not isinstance(events.dataType, StructType):
        raise InputError("the first argument is a table, as in ouzel_match(TABLE(events), 'PATTERN …')")
    names = [_text(argument, name) for argument, name in ((query, "query"), (time, "time"), (type, "type"))]
    if names[0] is None:
        raise InputError("the query is missing: ouzel_match(TABLE(events), 'PATTERN …')")
    program = make_program(
        as_queries(names[0]), arrow_schema(events.dataType), time=names[1] or "ts", type=names[2] or "type"
    )
    (plan,) = plan_query_groups(program, Clock(1))
    (schema,) = plan.outputs.values()
    analysed = Analysed(
        schema=spark_schema(schema),
        # As ticks: rows would have timestamps in the time zone of the reading machine.
        select=[
            SelectedColumn(f"unix_micros({quoted(name)})", quoted(name))
            if isinstance(events.dataType[name].dataType, TimestampType)
            else SelectedColumn(quoted(name))
            for name in plan.columns
        ],
        program=plan.group.program,
        columns=plan.group.columns,
    )
    return analysed, plan.keys


def _text(argument: AnalyzeArgument | None, name: str) -> str | None:
    if argument is None:
        return None
    if not isinstance(argument.value, str):
        raise InputError(f"the argument {name} must be a constant string")
    return argument.value


def _column(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(map(_as_value, values), kind)


def _as_value(value: Any) -> Any:
    """A value of Spark's rows as Arrow takes it: rows as dictionaries, timestamps with their zone."""
    if hasattr(value, "asDict"):
        return {name: _as_value(inner) for name, inner in value.asDict().items()}
    if isinstance(value, list):
        return [_as_value(inner) for inner in value]
    return value


def _as_row(value: Any) -> Any:
    """A value of Arrow's as Spark takes it: structs as tuples."""
    if isinstance(value, dict):
        return tuple(map(_as_row, value.values()))
    if isinstance(value, list):
        return [_as_row(inner) for inner in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value
