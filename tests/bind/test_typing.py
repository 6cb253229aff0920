"""Types of expressions: what goes together, what comes out, which casts and constants stand in the bound tree."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from ouzel.bind.model import (
    DURATION,
    FLOAT,
    INT,
    STRING,
    UNKNOWN,
    Constant,
    Kind,
    Operation,
    TimeDomain,
    Type,
    duration_type,
    parts,
)
from ouzel.errors import QueryError
from tests.bind.shop import OPEN, SHOP, bound, condition, value

NANOSECONDS = replace(SHOP, time=TimeDomain(Type(Kind.TIMESTAMP, unit="ns"), 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.n + 1", "integer"),
        ("a.n + 1.0", "double"),
        ("a.n / 2", "double"),
        ("a.n % 2", "integer"),
        ("-a.n", "integer"),
        ("a.n + null", "integer"),
        ("80% * a.n", "double"),
        ("80% * a.price", "decimal(13,4)"),
        ("a.price + 1", "decimal(11,2)"),
        ("a.price + 1.234", "decimal(12,3)"),
        ("a.price * 1.1", "decimal(13,3)"),
        ("a.price * a.price", "decimal(18,4)"),
        ("a.price + a.n", "decimal(18,2)"),
        ("a.price % 3", "decimal(10,2)"),
        ("a.price / 2", "double"),
        ("a.price + a.weight", "double"),
        ("1.1 * 2 * a.price", "double"),
        ("a.at - b.at", "duration"),
        ("a.at - null", "timestamp"),
        ("null - a.at", "duration"),
        ("-(a.at - b.at)", "duration"),
        ("abs(a.at - b.at)", "duration"),
        ("a.at - b.at + 5 s", "duration"),
        ("5 s - (a.at - b.at)", "duration"),
        ("3 * (a.at - b.at)", "duration"),
        ("(a.at - b.at) * a.n", "duration"),
        ("(a.at - b.at) % 1 min", "duration"),
        ("a.at + (a.at - b.at)", "timestamp"),
        ("(a.at - b.at) + a.at", "timestamp"),
        ("coalesce(a.at - b.at, 5 min)", "duration"),
        ("CASE WHEN a.ok THEN a.at - b.at ELSE 1 s END", "duration"),
        ("5 min", "duration"),
        ("a.at + 5 s", "timestamp"),
        ("5 s + a.at", "timestamp"),
        ("a.at - 1", "timestamp"),
        ("a.day - DATE '2024-01-01'", "integer"),
        ("a.day + 1", "date"),
        ("a.day + 2 days", "date"),
        ("(b.time - a.time) / 1 s", "double"),
        ("CASE WHEN a.ok THEN 1 ELSE 2.5 END", "double"),
        ("CASE a.n WHEN 1 THEN 'x' END", "string"),
        ("coalesce(a.n, 0)", "integer"),
        ("coalesce(null, a.tag)", "string"),
        ("if(a.ok, a.price, 1)", "decimal(10,2)"),
        ("nullif(a.n, 1.5)", "double"),
        ("greatest(a.n, a.weight, 3)", "double"),
        ("round(a.price, 1)", "decimal(10,1)"),
        ("round(a.weight)", "double"),
        ("floor(a.weight)", "integer"),
        ("ceil(a.price)", "decimal(9,0)"),
        ("sqrt(a.n)", "double"),
        ("abs(a.price)", "decimal(10,2)"),
        ("length(concat(a.tag, 'x'))", "integer"),
        ("substr(a.tag, 2)", "string"),
        ("hour(a.at) + year(a.day)", "integer"),
        ("to_date(a.at)", "date"),
        ("a.n > 3 AND a.ok", "boolean"),
        ("a.tags", "list"),
        ("a.address", "struct"),
        ("1.5", "double"),
    ],
)
def test_types(text: str, expected: str) -> None:
    assert str(value(text).type) == expected


def constants(text: str, catalog: Any = SHOP, params: Any = None) -> list[Any]:
    return [part.value for part in parts(condition(text, catalog, params)) if isinstance(part, Constant)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.n > 1", [1]),
        ("a.weight > 1", [1.0]),
        ("a.weight > 1.5", [1.5]),
        ("a.price > 1.5", [Decimal("1.50")]),
        ("a.price > 1", [Decimal("1.00")]),
        ("a.price > -1.234", [Decimal("-1.234")]),
        ("a.n > -9223372036854775808", [-(2**63)]),
        ("a.weight IN (1, 2.5, null)", [1.0, 2.5, None]),
        ("b.time - a.time < 5 min", [300_000_000]),
        ("b.time - a.time < 5 min + 30 s", [330_000_000]),
        ("b.time - a.time < 2 * 5 min", [600_000_000]),
        ("b.n < 1.5 s", [1_500_000]),
        ("a.exact_at - a.exact_at < 1 us", [1_000]),
        ("a.at > TIMESTAMP '1970-01-01 00:00:01.5'", [1_500_000]),
        ("a.exact_at > TIMESTAMP '1970-01-01 00:00:01.5'", [1_500_000_000]),
        ("a.exact_at > TIMESTAMP '1970-01-01 00:00:00.000000001'", [1]),
        ("a.zoned_at > TIMESTAMP '1970-01-01 02:00:00+02:00'", [0]),
        ("a.zoned_at > TIMESTAMP '1970-01-01 00:00:00Z'", [0]),
        ("a.zoned_at > TIMESTAMP '1970-01-01 00:00:00-05:30'", [19_800 * 10**6]),
        ("a.at > DATE '1970-01-02'", [86_400 * 10**6]),
        ("a.day > DATE '1969-12-31'", [-1]),
        ("a.day > b.at", []),
        ("a.tag LIKE 'x%'", ["x%", "\\"]),
        ("a.tag LIKE 'x!%%' ESCAPE '!'", ["x!%%", "!"]),
    ],
)
def test_constants(text: str, expected: list[Any]) -> None:
    found = constants(text)
    assert found == expected
    assert [type(v) for v in found] == [type(v) for v in expected]


def test_casts_are_explicit() -> None:
    comparison = condition("a.n > a.weight")
    assert isinstance(comparison, Operation)
    left, right = comparison.operands
    assert isinstance(left, Operation) and (left.operator, left.type) == ("cast", FLOAT)
    assert right.type == FLOAT and not isinstance(right, Operation)
    assert not any(isinstance(part, Operation) and part.operator == "cast" for part in parts(condition("a.at = b.at")))
    assert any(
        isinstance(part, Operation) and part.operator == "cast" for part in parts(condition("a.at = a.exact_at"))
    )


def test_differences_count_ticks_of_time_column() -> None:
    assert [
        part.value for part in parts(condition("a.at - b.at < 1 us", NANOSECONDS)) if isinstance(part, Constant)
    ] == [1_000]
    assert [part.value for part in parts(condition("a.n < 1 us", NANOSECONDS)) if isinstance(part, Constant)] == [1_000]


def test_durations_wait_while_nothing_is_known_of_time() -> None:
    (constant,) = (part for part in parts(condition("b.time - a.time < 5 s", OPEN)) if isinstance(part, Constant))
    assert (constant.type, constant.value) == (DURATION, 5 * 10**9)
    assert value("b.time - a.time", OPEN).type == UNKNOWN
    without_time = replace(SHOP, time=TimeDomain())
    assert condition("a.at - b.at < 5 s", without_time)
    assert condition("a.n IN (3, 5 s)", without_time)


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        (3, INT, 3),
        (3.5, FLOAT, 3.5),
        ("x", STRING, "x"),
        (True, Type(Kind.BOOL), True),
        (None, Type(Kind.NULL), None),
        (b"x", Type(Kind.BINARY), b"x"),
        (Decimal("1.50"), Type(Kind.DECIMAL, 3, 2), Decimal("1.50")),
        (datetime.date(1970, 1, 2), Type(Kind.DATE), 1),
        (datetime.datetime(1970, 1, 1, 0, 0, 1), Type(Kind.TIMESTAMP, unit="us"), 1_000_000),
        (datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), Type(Kind.TIMESTAMP, unit="us", zone="UTC"), 0),
        (datetime.timedelta(seconds=1), duration_type("us"), 1_000_000),
    ],
)
def test_parameters(given: Any, kind: Type, expected: Any) -> None:
    constant = value(":p", params={"p": given})
    assert isinstance(constant, Constant)
    assert (constant.type, constant.value) == (kind, expected)


def test_parameters_of_other_libraries() -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    assert value(":p", params={"p": numpy.int64(3)}) == Constant(3, type=INT)
    assert value(":p", params={"p": numpy.float64(1.5)}) == Constant(1.5, type=FLOAT)
    moment = value(":p", params={"p": pandas.Timestamp("1970-01-01 00:00:00.000000001")})
    assert isinstance(moment, Constant) and (moment.type.unit, moment.value) == ("ns", 1)
    with pytest.raises(QueryError, match="NaTType"):
        value(":p", params={"p": pandas.NaT})


def test_every_value_can_be_returned() -> None:
    query = bound("PATTERN Shelf s RETURN P(s.tags, s.address, s.huge, s.raw, null AS nothing)")
    assert [str(column.expression.type) for column in query.returns or ()] == [
        "list",
        "struct",
        "decimal(38,2)",
        "binary",
        "null",
    ]
