"""RETURN followed by a name and parentheses: an event's name, unless it is an aggregate's and no column is named."""

from __future__ import annotations

import pytest

from ouzel.lang import format_query, parse

PATTERN = "PATTERN SEQ(A+ a[], B b) WITHIN 5 RETURN "


@pytest.mark.parametrize(
    ("returned", "name"),
    [
        ("count(a[].x)", None),
        ("max(a[].x), b.x", None),
        ("count(a[].x) AS n", None),
        ("count(a[1].x AS n)", "count"),
        ('"count"(a[1].x)', "count"),
        ("Count(a[1].x)", "Count"),
        ("Pair(a[1].x)", "Pair"),
    ],
)
def test_who_is_meant(returned: str, name: str | None) -> None:
    query = parse(PATTERN + returned)
    assert query.returns is not None and query.returns.name == name
    assert parse(format_query(query)) == query
