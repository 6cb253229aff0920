"""Event types from declarations, Arrow schemas and Spark schemas, and the catalogs made of them."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest

from ouzel.bind import catalog_for
from ouzel.bind.model import (
    BINARY,
    BOOL,
    DATE,
    FLOAT,
    INT,
    NULL,
    OTHER,
    STRING,
    UNKNOWN,
    Kind,
    TimeDomain,
    Type,
    duration_type,
    list_type,
)
from ouzel.bind.schema import attributes_of, parse_type, struct_type, time_domain, type_of, type_of_arrow
from ouzel.errors import InputError

MICROSECONDS = Type(Kind.TIMESTAMP, unit="us")
UTC = Type(Kind.TIMESTAMP, unit="us", zone="UTC")


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.bool_(), BOOL),
        (pa.int8(), INT),
        (pa.uint64(), INT),
        (pa.float16(), FLOAT),
        (pa.float64(), FLOAT),
        (pa.string(), STRING),
        (pa.large_string(), STRING),
        (pa.string_view(), STRING),
        (pa.dictionary(pa.int8(), pa.string()), STRING),
        (pa.run_end_encoded(pa.int32(), pa.int64()), INT),
        (pa.binary(4), BINARY),
        (pa.large_binary(), BINARY),
        (pa.date32(), DATE),
        (pa.null(), NULL),
        (pa.decimal128(10, 2), Type(Kind.DECIMAL, 10, 2)),
        (pa.decimal128(5, -2), Type(Kind.DECIMAL, 7, 0)),
        (pa.timestamp("s"), MICROSECONDS),
        (pa.timestamp("ns", "UTC"), Type(Kind.TIMESTAMP, unit="ns", zone="UTC")),
        (pa.list_(pa.int64()), list_type(INT)),
        (pa.large_list(pa.string()), list_type(STRING)),
        (pa.list_(pa.list_(pa.bool_()), 2), list_type(list_type(BOOL))),
        (pa.map_(pa.string(), pa.int64()), OTHER),
        (pa.duration("s"), duration_type("us")),
        (pa.duration("ns"), duration_type("ns")),
        (pa.time64("us"), OTHER),
        (pa.struct([("city", pa.string())]), Type(Kind.STRUCT, fields=(("city", STRING),))),
    ],
)
def test_arrow_types(arrow: pa.DataType, expected: Type) -> None:
    assert type_of_arrow(arrow) == expected
    assert type_of(arrow) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string", STRING),
        (" Double ", FLOAT),
        ("uint8", INT),
        ("decimal(10, 2)", Type(Kind.DECIMAL, 10, 2)),
        ("decimal", Type(Kind.DECIMAL, 10, 0)),
        ("timestamp", MICROSECONDS),
        ("timestamp[ms]", MICROSECONDS),
        ("timestamp[ns, tz=Europe/Zurich]", Type(Kind.TIMESTAMP, unit="ns", zone="Europe/Zurich")),
        ("timestamp_ltz", UTC),
        ("timestamp_ntz", MICROSECONDS),
        ("list<item: string>", list_type(STRING)),
        ("list<element: bigint not null>", list_type(INT)),
        ("array<struct<a:int>>", list_type(struct_type({"a": INT}))),
        ("array<map<string,int>>", list_type(OTHER)),
        ("map<string,int>", OTHER),
        ("varchar(20)", STRING),
        ("fixed_size_binary[4]", BINARY),
        ("struct<>", Type(Kind.STRUCT)),
        (
            "struct<a: int, `b`: struct<c: string>>",
            Type(Kind.STRUCT, fields=(("a", INT), ("b", Type(Kind.STRUCT, fields=(("c", STRING),))))),
        ),
    ],
)
def test_types_by_name(text: str, expected: Type) -> None:
    assert parse_type(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "strng",
        "int int",
        "struct<a>",
        "struct<a:int",
        "list<",
        "struct<a:int,a:int>",
        "struct<" * 60,
        "decimal(",
        "(",
        "struct<a:int;b:int>",
    ],
)
def test_types_that_do_not_exist(text: str) -> None:
    with pytest.raises(InputError):
        parse_type(text)


def test_a_near_type_is_named() -> None:
    with pytest.raises(InputError, match="there is no type 'strng'; did you mean 'string'"):
        type_of("strng")


def test_declarations() -> None:
    expected = {"a": INT, "b": STRING, "c": Type(Kind.STRUCT, fields=(("d", FLOAT),)), "e": MICROSECONDS, "f": BOOL}
    assert attributes_of({"a": int, "b": "string", "c": {"d": float}, "e": datetime.datetime, "f": bool}) == expected
    assert attributes_of(["x", "y"]) == {"x": UNKNOWN, "y": UNKNOWN}
    assert attributes_of(pa.schema([("x", pa.int64())])) == {"x": INT}
    for wrong in (7, {"a": object()}, {3: "int"}, pa.schema([("x", pa.int64()), ("x", pa.int64())]), ["x", "x"]):
        with pytest.raises(InputError):
            attributes_of(wrong)


SPARK = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "price", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
        {"name": "ts", "type": "timestamp", "nullable": True, "metadata": {}},
        {"name": "local", "type": "timestamp_ntz", "nullable": True, "metadata": {}},
        {
            "name": "tags",
            "type": {"type": "array", "elementType": "string", "containsNull": True},
            "nullable": True,
            "metadata": {},
        },
        {
            "name": "at",
            "type": {"type": "struct", "fields": [{"name": "x", "type": "double"}]},
            "nullable": True,
            "metadata": {},
        },
    ],
}
SPARK_ATTRIBUTES = {
    "id": INT,
    "price": Type(Kind.DECIMAL, 10, 2),
    "ts": UTC,
    "local": MICROSECONDS,
    "tags": list_type(STRING),
    "at": Type(Kind.STRUCT, fields=(("x", FLOAT),)),
}


def test_spark_schemas() -> None:
    simple = (
        "struct<id:bigint,price:decimal(10,2),ts:timestamp,local:timestamp_ntz,tags:array<string>,at:struct<x:double>>"
    )
    assert attributes_of(SPARK) == attributes_of(json.dumps(SPARK)) == attributes_of(simple) == SPARK_ATTRIBUTES

    class StructType:
        def jsonValue(self) -> Any:
            return SPARK

    assert attributes_of(StructType()) == SPARK_ATTRIBUTES
    for wrong in ("{", "bigint", '{"type": "struct", "fields": [1]}', '{"a": 1}'):
        with pytest.raises(InputError):
            attributes_of(wrong)


def test_spark_schemas_of_spark_itself() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    struct = types.StructType(
        [types.StructField("id", types.LongType()), types.StructField("ts", types.TimestampType())]
    )
    assert (
        attributes_of(struct)
        == attributes_of(struct.simpleString())
        == attributes_of(struct.json())
        == {"id": INT, "ts": UTC}
    )
    assert type_of(types.TimestampNTZType()) == MICROSECONDS


# ── Catalogs ───────────────────────────────────────────────────────────────────────────────────────


def test_catalogs() -> None:
    assert catalog_for().open
    one = catalog_for(schema={"n": "int", "ts": "timestamp[ns]"}, time="ts")
    assert one.declared is None and one.common is not None and one.time.tick_ns == 1
    declared = catalog_for({"A": ["n"]}, schema={"n": "int", "m": "int", "ts": "int"}, time="ts", time_unit="ms")
    assert declared.declared == {"A": {"n": INT}} and declared.time == TimeDomain(INT, 1_000_000)
    tables = catalog_for(tables={"A": {"n": "int", "ts": "timestamp[us]"}, "B": {"ts": "timestamp[ns]"}}, time="ts")
    assert tables.declared is not None and set(tables.declared) == {"A", "B"} and tables.time.tick_ns == 1
    alone = catalog_for({"A": {"n": "int", "ts": "timestamp[us]"}, "B": {"n": "int"}}, time="ts")
    assert alone.time.tick_ns == 1_000
    assert not catalog_for({"A": {"n": "int"}}).time.known


def test_declared_types_give_way_to_those_of_the_columns() -> None:
    catalog = catalog_for({"A": {"x": "double", "t": "timestamp"}}, schema={"x": "int", "t": "timestamp[us, tz=UTC]"})
    assert catalog.declared == {"A": {"x": INT, "t": UTC}}
    with pytest.raises(InputError, match="column 'x' is string, but event type 'A' declares it double"):
        catalog_for({"A": {"x": "double"}}, schema={"x": "string"})
    with pytest.raises(
        InputError, match="there is no column 'wieght', which event type 'A' declares; did you mean 'weight'"
    ):
        catalog_for({"A": ["wieght"]}, schema={"weight": "double"})
    with pytest.raises(InputError, match="there is no table for the event type 'B'"):
        catalog_for({"B": ["n"]}, tables={"A": {"n": "int"}})
    with pytest.raises(InputError, match="not both"):
        catalog_for(schema={}, tables={})


@pytest.mark.parametrize(
    ("schemas", "time_unit", "message"),
    [
        ([{"n": "int"}], None, "there is no time column 'ts'"),
        ([{"Ts": "int"}], None, "did you mean 'Ts'"),
        ([{"ts": "string"}], None, "the time column 'ts' is string; it must be a timestamp or an integer"),
        ([{"ts": "int"}, {"ts": "timestamp"}], None, "are not of one type"),
        ([{"ts": "timestamp"}, {"ts": "timestamp_ltz"}], None, "are not of one type"),
        ([{"ts": "timestamp"}], "s", "time_unit cannot be used where the time column holds timestamps"),
        ([{"ts": "int"}], "fortnight", "there is no unit of time 'fortnight'"),
    ],
)
def test_time_columns_that_cannot_be_used(schemas: list[dict[str, str]], time_unit: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        time_domain([attributes_of(schema) for schema in schemas], "ts", time_unit)


def test_units_of_integer_time() -> None:
    for unit, tick_ns in (("ns", 1), ("s", 10**9), ("seconds", 10**9), ("hours", 3_600 * 10**9)):
        assert time_domain([{"ts": INT}], "ts", unit).tick_ns == tick_ns
