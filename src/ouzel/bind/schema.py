"""Event types from Python declarations, Arrow schemas and Spark schemas, and the catalog that they form."""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ouzel.bind.diagnostics import nearest, quoted
from ouzel.bind.model import (
    BINARY,
    BOOL,
    DATE,
    FLOAT,
    INT,
    NULL,
    NUMBERS,
    OTHER,
    STRING,
    UNKNOWN,
    Catalog,
    Kind,
    TimeDomain,
    Type,
    duration_type,
    list_type,
)
from ouzel.bind.typing import common_type
from ouzel.errors import InputError
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT, UNIT_OF_WORD

_TYPE_OF_NAME = {
    **dict.fromkeys(("bool", "boolean"), BOOL),
    **dict.fromkeys(("int", "integer", "bigint", "long", "smallint", "short", "tinyint", "byte"), INT),
    **dict.fromkeys((f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), INT),
    **dict.fromkeys(("float", "double", "real", "halffloat", "float16", "float32", "float64"), FLOAT),
    **dict.fromkeys(("string", "str", "text", "utf8", "large_string", "large_utf8", "string_view"), STRING),
    **dict.fromkeys(("binary", "bytes", "large_binary", "binary_view"), BINARY),
    **dict.fromkeys(("date", "date32", "date64"), DATE),
    **dict.fromkeys(("null", "void"), NULL),
    **dict.fromkeys(("variant", "interval", "time", "any", "other"), OTHER),
}
_TYPE_OF_PYTHON_TYPE: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: STRING,
    bytes: BINARY,
    datetime.date: DATE,
    datetime.datetime: Type(Kind.TIMESTAMP, unit="us"),
    datetime.timedelta: duration_type("us"),
    decimal.Decimal: Type(Kind.DECIMAL, precision=18, scale=6),
}
_LISTS = ("array", "list", "large_list", "list_view", "large_list_view")
_PLAIN = re.compile(r"\s*([A-Za-z_]\w*)\s*")
_DECIMAL = re.compile(
    r"(?:decimal|numeric|decimal32|decimal64|decimal128|decimal256)(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?", re.I
)
_TIMESTAMP = re.compile(r"timestamp(_ntz|_ltz)?(?:\[\s*(s|ms|us|ns)\s*(?:,\s*(?:tz=)?([^\]]+))?\])?", re.I)
# Spark writes its intervals as "interval day to second".
_DURATION = re.compile(
    r"duration(?:\[\s*(s|ms|us|ns)\s*\])?|interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?", re.I
)
_NESTED_MAX = 50

Declaration = Any  # a Type, a name such as "double", a Python type, an Arrow type, or a mapping for a struct


# ── Types ──────────────────────────────────────────────────────────────────────────────────────────


def timestamp_type(unit: str, zone: str | None) -> Type:
    """A timestamp type in Ouzel's units. Seconds and milliseconds become microseconds."""
    return Type(Kind.TIMESTAMP, unit="ns" if unit == "ns" else "us", zone=zone)


def struct_type(fields: Mapping[str, Type]) -> Type:
    return Type(Kind.STRUCT, fields=tuple(fields.items()))


def type_of(declaration: Declaration) -> Type:
    """The type that a declaration means.

    >>> str(type_of("decimal(10,2)")), str(type_of(int)), type_of({"city": "string"}).fields[0][0]
    ('decimal(10,2)', 'integer', 'city')
    """
    if isinstance(declaration, Type):
        return declaration
    if isinstance(declaration, str):
        return parse_type(declaration)
    if isinstance(declaration, type) and declaration in _TYPE_OF_PYTHON_TYPE:
        return _TYPE_OF_PYTHON_TYPE[declaration]
    if isinstance(declaration, Mapping):
        return struct_type({name: type_of(inner) for name, inner in declaration.items()})
    if type(declaration).__module__.partition(".")[0] == "pyarrow":
        return type_of_arrow(declaration)
    if hasattr(declaration, "simpleString"):
        return parse_type(declaration.simpleString(), spark=True)
    raise InputError(f"{declaration!r} is not a type; write for example 'string', 'double' or 'decimal(10,2)'")


def type_of_arrow(data_type: Any) -> Type:
    """The type of an Arrow column."""
    from pyarrow import types as arrow

    if arrow.is_dictionary(data_type) or arrow.is_run_end_encoded(data_type):
        return type_of_arrow(data_type.value_type)
    if arrow.is_timestamp(data_type):
        return timestamp_type(data_type.unit, data_type.tz)
    if arrow.is_duration(data_type):
        return duration_type("ns" if data_type.unit == "ns" else "us")
    if arrow.is_decimal(data_type):
        return _decimal(data_type.precision, data_type.scale)
    if _is_list(data_type):
        return list_type(type_of_arrow(data_type.value_type))
    if arrow.is_struct(data_type):
        fields = (data_type.field(i) for i in range(data_type.num_fields))
        return struct_type({inner.name: type_of_arrow(inner.type) for inner in fields})
    tests = (
        (arrow.is_boolean, BOOL),
        (arrow.is_integer, INT),
        (arrow.is_floating, FLOAT),
        (arrow.is_string, STRING),
        (arrow.is_large_string, STRING),
        (arrow.is_string_view, STRING),
        (arrow.is_binary, BINARY),
        (arrow.is_large_binary, BINARY),
        (arrow.is_binary_view, BINARY),
        (arrow.is_fixed_size_binary, BINARY),
        (arrow.is_date, DATE),
        (arrow.is_null, NULL),
    )
    return next((kind for test, kind in tests if test(data_type)), OTHER)


def _is_list(data_type: Any) -> bool:
    from pyarrow import types as arrow

    is_list = arrow.is_list(data_type) or arrow.is_large_list(data_type) or arrow.is_fixed_size_list(data_type)
    return bool(is_list or arrow.is_list_view(data_type) or arrow.is_large_list_view(data_type))


def _decimal(precision: int, scale: int) -> Type:
    # A negative scale (12 hundreds) is read as the integer 1,200.
    return Type(Kind.DECIMAL, precision=precision - min(scale, 0), scale=max(scale, 0))


def parse_type(text: str, *, spark: bool = False) -> Type:
    """The type with a name from Arrow or Spark. Spark's `timestamp` has a time zone, and Arrow's has none.

    >>> parse_type("struct<city:string,zip:int>").fields[1][0], parse_type("timestamp[ns, tz=UTC]").zone
    ('zip', 'UTC')
    """
    kind, rest = _parsed_type(text, text, spark, 0)
    if rest.strip():
        raise _bad_type(text)
    return kind


def _bad_type(text: str) -> InputError:
    hint = nearest(text.strip().lower(), _TYPE_OF_NAME)
    return InputError(f"there is no type {quoted(text)}" + (f"; {hint}" if hint else ""))


def _parsed_type(text: str, whole: str, spark: bool, depth: int) -> tuple[Type, str]:
    """(type, rest): the type at the start of the text, and the text after it."""
    text = text.lstrip()
    if depth > _NESTED_MAX:
        raise _bad_type(whole)
    if found := _DECIMAL.match(text):
        return _decimal(int(found[1] or 10), int(found[2] or 0)), text[found.end() :]
    if found := _TIMESTAMP.match(text):
        suffix = (found[1] or "").lower()
        is_zoned = suffix == "_ltz" or (spark and suffix != "_ntz")
        return timestamp_type(found[2] or "us", found[3] or ("UTC" if is_zoned else None)), text[found.end() :]
    if found := _DURATION.match(text):
        return duration_type("ns" if found[1] == "ns" else "us"), text[found.end() :]
    name = _PLAIN.match(text)
    if name is None:
        raise _bad_type(whole)
    word, rest = name[1].lower(), text[name.end() :]
    if word == "struct" and rest.startswith("<"):
        return _parsed_struct(rest[1:], whole, spark, depth)
    if word in _LISTS and rest.startswith("<"):
        # Arrow names the elements: list<item: string not null>.
        after = _after_brackets(rest, whole)
        inner = rest[1 : len(rest) - len(after) - 1]
        inner = re.sub(r"^\s*(?:item|element)\s*:|\s+not null\s*$", "", inner)
        element, left = _parsed_type(inner, whole, spark, depth + 1)
        return list_type(OTHER if left.strip() else element), after
    if rest.startswith(("<", "(", "[")):
        # Maps, varchar(20) and the like: the part in brackets does not matter.
        after = _after_brackets(rest, whole)
        return (STRING if word in ("varchar", "char") else BINARY if word == "fixed_size_binary" else OTHER), after
    if word not in _TYPE_OF_NAME:
        raise _bad_type(whole)
    return _TYPE_OF_NAME[word], rest


def _parsed_struct(rest: str, whole: str, spark: bool, depth: int) -> tuple[Type, str]:
    fields: dict[str, Type] = {}
    while not rest.lstrip().startswith(">"):
        name, colon, rest = rest.partition(":")
        name = name.strip().strip("`")
        if not colon or not name or name in fields:
            raise _bad_type(whole)
        fields[name], rest = _parsed_type(rest, whole, spark, depth + 1)
        rest = rest.lstrip()
        if not rest.startswith((",", ">")):
            raise _bad_type(whole)
        rest = rest.removeprefix(",")
    return struct_type(fields), rest.lstrip()[1:]


def _after_brackets(text: str, whole: str) -> str:
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "<([") - (character in ">)]")
        if depth == 0:
            return text[position + 1 :]
    raise _bad_type(whole)


# ── Schemas ────────────────────────────────────────────────────────────────────────────────────────


def attributes_of(schema: Any) -> dict[str, Type]:
    """The attributes of an event type, in column order.

    Accepts an Arrow schema, a Spark StructType, its `json()` or `simpleString()`, a mapping of names to types, or only
    names.

    >>> {name: str(kind) for name, kind in attributes_of({"tag_id": "string", "weight": "double"}).items()}
    {'tag_id': 'string', 'weight': 'double'}
    """
    if isinstance(schema, str):
        return _attributes_of_text(schema)
    if isinstance(schema, Mapping):
        if schema.get("type") == "struct" and isinstance(schema.get("fields"), list):
            return dict(_spark_type(schema, 0).fields)
        return _named((name, type_of(declaration)) for name, declaration in schema.items())
    if type(schema).__module__.partition(".")[0] == "pyarrow":
        return _named((column.name, type_of_arrow(column.type)) for column in schema)
    if hasattr(schema, "jsonValue"):
        return dict(_spark_type(schema.jsonValue(), 0).fields)
    if isinstance(schema, Iterable):
        return _named((name, UNKNOWN) for name in schema)
    raise InputError(
        f"{schema!r} is not a schema; give an Arrow or Spark schema, a mapping of names to types, or a list of names"
    )


def _named(pairs: Iterable[tuple[Any, Type]]) -> dict[str, Type]:
    attributes: dict[str, Type] = {}
    for name, kind in pairs:
        if not isinstance(name, str):
            raise InputError(f"{name!r} is not the name of an attribute")
        if name in attributes:
            raise InputError(f"there are two columns named {quoted(name)}")
        attributes[name] = kind
    return attributes


def _attributes_of_text(text: str) -> dict[str, Type]:
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InputError(f"the schema is not JSON: {error}") from None
        return attributes_of(value)
    kind = parse_type(text, spark=True)
    if kind.kind is not Kind.STRUCT:
        raise InputError(f"{quoted(text)} is not a schema; Spark writes one as struct<name:type,…>")
    return dict(kind.fields)


def _spark_type(value: Any, depth: int) -> Type:
    """A type in Spark's JSON: a name, or an object for structs, arrays, maps and user types."""
    if depth > _NESTED_MAX:
        raise InputError("the schema is nested too deep")
    if isinstance(value, str):
        return parse_type(value, spark=True)
    if isinstance(value, Mapping) and value.get("type") == "struct":
        fields = value.get("fields")
        if isinstance(fields, list) and all(isinstance(f, Mapping) and {"name", "type"} <= f.keys() for f in fields):
            return struct_type(_named((f["name"], _spark_type(f["type"], depth + 1)) for f in fields))
        raise InputError("the schema has a struct without a list of fields")
    if isinstance(value, Mapping) and value.get("type") == "array" and "elementType" in value:
        return list_type(_spark_type(value["elementType"], depth + 1))
    return OTHER


# ── Catalogs ───────────────────────────────────────────────────────────────────────────────────────


def catalog_for(
    types: Mapping[str, Any] | None = None,
    *,
    schema: Any = None,
    tables: Mapping[str, Any] | None = None,
    time: str | None = None,
    time_unit: str | None = None,
) -> Catalog:
    """The catalog of a query's input.

    `types` declares event types and their attributes. `schema` is the schema of one table with all events. If `types`
    is given too, that table must have the declared columns, and its column types are used. `tables` are separate tables
    for each event type, whose columns declare the types. `time` is the time column, and `time_unit` the unit of an
    integer time column.

    >>> catalog = catalog_for({"Shelf": {"tag_id": "string", "weight": "double"}, "Exit": {"tag_id": "string"}})
    >>> sorted(catalog.declared)
    ['Exit', 'Shelf']
    """
    if schema is not None and tables is not None:
        raise InputError("give one schema or separate tables, not both")
    declared = None if types is None else {name: attributes_of(attributes) for name, attributes in types.items()}
    if tables is not None:
        found = {name: attributes_of(columns) for name, columns in tables.items()}
        declared = found if declared is None else {n: _checked(n, a, found.get(n)) for n, a in declared.items()}
        return Catalog(declared=declared, time=time_domain(found.values(), time, time_unit))
    if schema is not None:
        columns = attributes_of(schema)
        domain = time_domain([columns], time, time_unit)
        if declared is None:
            return Catalog(common=columns, time=domain)
        return Catalog(declared={n: _checked(n, a, columns) for n, a in declared.items()}, time=domain)
    if declared is None:
        return Catalog()
    with_time = [attributes for attributes in declared.values() if time is not None and time in attributes]
    return Catalog(declared=declared, time=time_domain(with_time, time, time_unit) if with_time else TimeDomain())


def _checked(name: str, declared: Mapping[str, Type], columns: Mapping[str, Type] | None) -> dict[str, Type]:
    """Declared attributes with the types of the real columns."""
    if columns is None:
        raise InputError(f"there is no table for the event type {quoted(name)}")
    checked: dict[str, Type] = {}
    for attribute, kind in declared.items():
        if attribute not in columns:
            hint = nearest(attribute, columns)
            message = f"there is no column {quoted(attribute)}, which event type {quoted(name)} declares"
            raise InputError(message + (f"; {hint}" if hint else ""))
        real = columns[attribute]
        both_numbers = kind.kind in NUMBERS and real.kind in NUMBERS
        if kind.kind is not real.kind and not both_numbers and not {kind.kind, real.kind} & {Kind.UNKNOWN, Kind.NULL}:
            raise InputError(f"column {quoted(attribute)} is {real}, but event type {quoted(name)} declares it {kind}")
        checked[attribute] = real if real.kind not in (Kind.UNKNOWN, Kind.NULL) else kind
    return checked


def time_domain(schemas: Iterable[Mapping[str, Type]], time: str | None, time_unit: str | None = None) -> TimeDomain:
    """How time is counted, from the time column of one table or several.

    >>> time_domain([{"ts": timestamp_type("ms", None)}], "ts").tick_ns
    1000
    """
    tick_ns = None if time_unit is None else nanoseconds_of(time_unit)
    if time is None:
        return TimeDomain()
    kind: Type | None = None
    for columns in schemas:
        if time not in columns:
            hint = nearest(time, columns)
            raise InputError(f"there is no time column {quoted(time)}" + (f"; {hint}" if hint else ""))
        here = columns[time]
        if here.kind is Kind.UNKNOWN:
            return TimeDomain()
        if here.kind not in (Kind.INT, Kind.TIMESTAMP):
            raise InputError(f"the time column {quoted(time)} is {here}; it must be a timestamp or an integer")
        merged = here if kind is None else common_type(kind, here)
        if merged is None:
            raise InputError(f"the time columns {quoted(time)} of the tables are not of one type")
        kind = merged
    if kind is None:
        return TimeDomain()
    if kind.kind is Kind.TIMESTAMP:
        if time_unit is not None:
            raise InputError("time_unit cannot be used where the time column holds timestamps; leave it out")
        return TimeDomain(kind, NANOSECONDS_OF_UNIT[kind.unit or "us"])
    return TimeDomain(kind, tick_ns)


def nanoseconds_of(time_unit: str) -> int:
    """The number of nanoseconds in a unit of time, which may have any of its names."""
    unit = UNIT_OF_WORD.get(time_unit.lower(), time_unit)
    if unit not in NANOSECONDS_OF_UNIT:
        raise InputError(f"there is no unit of time {quoted(time_unit)}; units are {', '.join(NANOSECONDS_OF_UNIT)}")
    return NANOSECONDS_OF_UNIT[unit]
