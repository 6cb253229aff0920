"""Scripts: derived streams, their types, and the order of queries."""

from __future__ import annotations

import pytest

from ouzel.bind import Catalog, output_attributes
from ouzel.bind.model import INT, OTHER, STRING, UNKNOWN, Attribute, Kind, list_type
from ouzel.errors import QueryError
from tests.bind.shop import MICROSECONDS, OPEN, SHOP, bound, bound_script

PAIRS = "pairs: PATTERN SEQ(Shelf a, Exit b) WHERE [tag] WITHIN 5 RETURN Pair(a.tag, b.n AS n) INTO s; "


def test_streams_come_before_their_readers() -> None:
    late = "last: PATTERN P FROM t; middle: PATTERN Pair FROM s RETURN P(n) INTO t; " + PAIRS + "other: PATTERN Exit;"
    assert [query.name for query in bound_script(late)] == ["pairs", "middle", "last", "other"]
    (alone,) = bound_script("PATTERN Shelf;")
    assert (alone.name, alone.sources) == ("query", ("input",))


def test_a_derived_stream_declares_its_type_by_its_columns() -> None:
    _, reader = bound_script(
        PAIRS + "reader: PATTERN SEQ(Pair p, Pair q) FROM s WHERE [tag] AND p.n < q.n AND q.start > p.end"
    )
    assert reader.catalog.declared == {"Pair": {"tag": STRING, "n": INT}}
    assert reader.catalog.time == MICROSECONDS
    for wrong, message in (
        ("PATTERN Shelf FROM s", "'Shelf'"),
        ("PATTERN Pair p FROM s WHERE p.weight > 1", "'weight'"),
    ):
        with pytest.raises(QueryError, match=f"no.*{message}"):
            bound_script(PAIRS + f"reader: {wrong};")


def test_the_union_of_streams() -> None:
    _, reader = bound_script(PAIRS + "reader: PATTERN SEQ(Pair p, Alarm x) FROM s, input WHERE p.n = x.n;")
    assert set(reader.catalog.declared or ()) == {"Pair", "Shelf", "Register", "Exit", "Alarm", "Odd"}
    one_table = Catalog(common={"tag": STRING, "n": INT})
    _, reader = bound_script(
        PAIRS + "reader: PATTERN SEQ(Pair p, Anything x) FROM s, input WHERE p.n = x.n;", one_table
    )
    assert reader.catalog.attributes("Anything") == one_table.common
    with pytest.raises(QueryError, match="event type 'Pair' has no attribute 'm'"):
        bound_script(PAIRS + "reader: PATTERN SEQ(Pair p, Anything x) FROM s, input WHERE p.m = x.n;", one_table)
    _, reader = bound_script(PAIRS + "reader: PATTERN SEQ(Pair p, Anything x) FROM s, input WHERE p.m = x.n;", OPEN)
    assert reader.catalog.open


def test_events_of_the_default_output_are_structs() -> None:
    text = "one: PATTERN SEQ(Shelf a, !(Exit c), Exit+ b[]) INTO s; "
    text += "two: PATTERN s x FROM s WHERE x.a.weight > 3 AND x.start < x.end;"
    _, reader = bound_script(text)
    attributes = (reader.catalog.declared or {})["s"]
    assert list(attributes) == ["a", "b"]
    assert attributes["a"].kind is Kind.STRUCT and attributes["b"].kind is Kind.LIST
    first, _ = reader.conjuncts
    assert any(isinstance(part, Attribute) and part.path == ("a", "weight") for part in first.comparisons[0].operands)  # type: ignore[attr-defined]
    _, unknown = bound_script(text, OPEN)
    assert (unknown.catalog.declared or {})["s"]["a"] == UNKNOWN


def test_columns_of_results() -> None:
    assert output_attributes(bound("PATTERN SEQ(Shelf+ a[], Exit b) RETURN P(a.n AS ns, b.n)")) == {
        "ns": list_type(INT),
        "n": INT,
    }
    grouped = bound("PATTERN SEQ(Shelf a, Exit b) GROUP BY tag AGG COUNT HAVING sum(a.n) > 3")
    assert output_attributes(grouped) == {"tag": STRING, "count": INT}
    mixed = output_attributes(bound("PATTERN ANY(Shelf, Odd) v"))["v"]
    assert dict(mixed.fields)["n"] == OTHER and dict(mixed.fields)["weight"].kind is Kind.FLOAT


def test_parameters_are_shared_by_a_script() -> None:
    script = "one: PATTERN Shelf WHERE n > :low; two: PATTERN Exit WHERE n > :high;"
    assert len(bound_script(script, params={"low": 1, "high": 2})) == 2
    with pytest.raises(QueryError, match="the parameter 'middle' is given but not used"):
        bound_script(script, params={"low": 1, "high": 2, "middle": 3})


def test_names_of_unnamed_queries() -> None:
    from ouzel.bind import bind_script
    from ouzel.lang import parse, syntax

    script = syntax.Script((parse("PATTERN Shelf"), parse("PATTERN Exit")))
    assert [query.name for query in bind_script(script, "", SHOP)] == ["query_1", "query_2"]
