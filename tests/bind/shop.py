"""The event types that the binder's tests share, and short ways to bind a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ouzel.bind import bind, bind_script, catalog_for
from ouzel.bind.model import INT, Bound, BoundQuery, Catalog, Kind, TimeDomain, Type
from ouzel.errors import QueryError
from ouzel.lang import parse, parse_script

MICROSECONDS = TimeDomain(Type(Kind.TIMESTAMP, unit="us"), 1_000)
BARE_TICKS = TimeDomain(INT, None)
TYPES = {
    "Shelf": {
        "tag": "string",
        "n": "int",
        "weight": "double",
        "price": "decimal(10,2)",
        "ok": "bool",
        "at": "timestamp[us]",
        "exact_at": "timestamp[ns]",
        "zoned_at": "timestamp[us, tz=UTC]",
        "day": "date",
        "raw": "binary",
        "tags": "list<string>",
        "odd": "map<string,int>",
        "huge": "decimal(38,2)",
        "address": {"city": "string", "zip": "int"},
    },
    "Register": {"tag": "string", "n": "int"},
    "Exit": {"tag": "string", "n": "int", "at": "timestamp[us]"},
    "Alarm": {"n": "int", "type": "string", "code": "string"},
    "Odd": {"n": "string", "tag": "int"},
}
SHOP = replace(catalog_for(TYPES), time=MICROSECONDS)
OPEN = Catalog()


def bound(text: str, catalog: Catalog = SHOP, params: Mapping[str, Any] | None = None, **options: Any) -> BoundQuery:
    return bind(parse(text), text, catalog, params, **options)


def bound_script(text: str, catalog: Catalog = SHOP, **options: Any) -> tuple[BoundQuery, ...]:
    return bind_script(parse_script(text), text, catalog, **options)


def refusal(text: str, catalog: Catalog = SHOP, params: Mapping[str, Any] | None = None, **options: Any) -> QueryError:
    with pytest.raises(QueryError) as caught:
        bound(text, catalog, params, **options)
    return caught.value


def condition(text: str, catalog: Catalog = SHOP, params: Mapping[str, Any] | None = None) -> Bound:
    """The one comparison of a WHERE clause over a Shelf `a` and an Exit `b`."""
    ((comparison,),) = (
        c.comparisons for c in bound(f"PATTERN SEQ(Shelf a, Exit b) WHERE {text}", catalog, params).conjuncts
    )
    return comparison


def value(text: str, catalog: Catalog = SHOP, params: Mapping[str, Any] | None = None) -> Bound:
    """The one RETURN column over a Shelf `a` and an Exit `b`."""
    returns = bound(f"PATTERN SEQ(Shelf a, Exit b) RETURN {text} AS x", catalog, params).returns
    assert returns is not None
    return returns[0].expression
