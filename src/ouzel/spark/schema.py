"""Converts Spark's types to Arrow's and back, for every type that an event may have.

Spark has its own converters, but they are not part of its public interface.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import types as spark

from ouzel.errors import InputError
from ouzel.spark.payloads import PROBLEM_COLUMN

# Why a query stopped, null in rows of matches.
PROBLEM = pa.field(PROBLEM_COLUMN, pa.string())

# These map in both directions. Timestamps, decimals and nested types have parameters and are handled one by one.
_SIMPLE: tuple[tuple[type[spark.DataType], pa.DataType], ...] = (
    (spark.BooleanType, pa.bool_()),
    (spark.ByteType, pa.int8()),
    (spark.ShortType, pa.int16()),
    (spark.IntegerType, pa.int32()),
    (spark.LongType, pa.int64()),
    (spark.FloatType, pa.float32()),
    (spark.DoubleType, pa.float64()),
    (spark.BinaryType, pa.binary()),
    (spark.DateType, pa.date32()),
    (spark.TimestampNTZType, pa.timestamp("us")),
    (spark.TimestampType, pa.timestamp("us", tz="UTC")),
    (spark.DayTimeIntervalType, pa.duration("us")),
)


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema of a DataFrame.

    >>> arrow_schema(spark.StructType().add("ts", "timestamp").add("id", "long"))
    ts: timestamp[us, tz=UTC]
    id: int64
    """
    return pa.schema(_arrow_field(field, field.name) for field in schema.fields)


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """The Spark schema of a table.

    >>> spark_schema(pa.schema({"end": pa.int64(), "a": pa.struct({"x": pa.string()})})).simpleString()
    'struct<end:bigint,a:struct<x:string>>'
    """
    return spark.StructType([_spark_field(field) for field in schema])


def arrow_type(data_type: spark.DataType, column: str) -> pa.DataType:
    """The Arrow type of a column. `column` is its name, for the error message."""
    for spark_class, arrow in _SIMPLE:
        if type(data_type) is spark_class:
            return arrow
    if isinstance(data_type, spark.StringType):
        if data_type != spark.StringType():
            # Equality under a collation is not equality of bytes, neither here nor in the hash of partitions.
            raise InputError(
                f"the column '{column}' has a collation ({data_type.simpleString()}), which Ouzel does not support; "
                f"use the default one with collate({column}, 'UTF8_BINARY'), or lower-case it"
            )
        return pa.string()
    if isinstance(data_type, spark.DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, spark.StructType):
        return pa.struct([_arrow_field(field, f"{column}.{field.name}") for field in data_type.fields])
    if isinstance(data_type, spark.ArrayType):
        return pa.list_(pa.field("element", arrow_type(data_type.elementType, column), data_type.containsNull))
    if isinstance(data_type, spark.MapType):
        value = pa.field("value", arrow_type(data_type.valueType, column), data_type.valueContainsNull)
        return pa.map_(arrow_type(data_type.keyType, column), value)
    raise InputError(
        f"the column '{column}' has the type {data_type.simpleString()}, which Ouzel does not support; "
        "cast it to another type, or drop it from the DataFrame"
    )


def spark_type(arrow: pa.DataType) -> spark.DataType:
    """The Spark type of an Arrow type."""
    if pa.types.is_timestamp(arrow):
        return spark.TimestampNTZType() if arrow.tz is None else spark.TimestampType()
    for spark_class, simple in _SIMPLE:
        if arrow == simple:
            return spark_class()
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
        return spark.StringType()
    if pa.types.is_large_binary(arrow):
        return spark.BinaryType()
    if pa.types.is_decimal(arrow):
        return spark.DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_struct(arrow):
        return spark.StructType([_spark_field(arrow.field(index)) for index in range(arrow.num_fields)])
    if pa.types.is_map(arrow):
        return spark.MapType(spark_type(arrow.key_type), spark_type(arrow.item_type), arrow.item_field.nullable)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return spark.ArrayType(spark_type(arrow.value_type), arrow.value_field.nullable)
    raise InputError(f"Spark has no type for {arrow}")


def _arrow_field(field: spark.StructField, path: str) -> pa.Field:
    return pa.field(field.name, arrow_type(field.dataType, path), field.nullable)


def _spark_field(field: pa.Field) -> spark.StructField:
    return spark.StructField(field.name, spark_type(field.type), field.nullable)


def with_extra_columns(schema: pa.Schema, others: Sequence[pa.Field]) -> pa.Schema:
    """The columns of matches, and further columns. Columns of matches become nullable, for rows that are not
    matches.
    """
    return pa.schema([*(field.with_nullable(True) for field in schema), *others])


def quoted(name: str) -> str:
    """A column's name in quotes for Spark's column expressions, so that it may contain dots.

    >>> quoted("odd.name")
    '`odd.name`'
    """
    return "`" + name.replace("`", "``") + "`"
