"""`parse(format(tree)) == tree` for every tree."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings

from ouzel import lang
from ouzel.lang.stream_syntax import Pipeline
from ouzel.lang.syntax import Expr, Query, Script
from tests.lang import trees


@given(trees.expressions)
def test_expressions(expression: Expr) -> None:
    again = lang.parse_expression(lang.format_expression(expression))
    assert again == expression
    # 1 == 1.0 == True, so equality alone would let types slip.
    assert repr(again) == repr(expression)


@given(trees.queries())
def test_queries(query: Query) -> None:
    text = lang.format_query(query)
    again = lang.parse(text)
    assert again == query
    assert repr(again) == repr(query)
    assert hash(again) == hash(query)
    assert lang.format_query(again) == text
    assert pickle.loads(pickle.dumps(again)) == query


@settings(max_examples=settings.default.max_examples // 5)  # Each holds several queries.
@given(trees.scripts)
def test_scripts(script: Script) -> None:
    assert lang.parse_script(lang.format_script(script)) == script


@settings(max_examples=settings.default.max_examples // 2)
@given(trees.streams)
def test_streams(stream: Pipeline) -> None:
    text = lang.format_stream(stream)
    again = lang.parse_stream(text)
    assert again == stream
    assert repr(again) == repr(stream)
    assert lang.format_stream(again) == text


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("(a + b) * c", "(a + b) * c"),
        ("(a * b) + c", "a * b + c"),
        ("a - (b - c)", "a - (b - c)"),
        ("(a - b) - c", "a - b - c"),
        ("- ( - x )", "-(-x)"),
        ("a - -b", "a - -b"),
        ("5 % (-x)", "5 % (-x)"),
        ("(a AND b) OR c", "a AND b OR c"),
        ("a AND (b OR c)", "a AND (b OR c)"),
        ("(a AND b) AND c", "(a AND b) AND c"),
        ("not (a = b)", "NOT a = b"),
        ("(not a) = b", "(NOT a) = b"),
        ("a = b = c and d", "a = b AND b = c AND d"),
        ("[a, b] and c", "[a] AND [b] AND c"),
        ('"price" > "from"', 'price > "from"'),
        ("`tag id` = x.`from`", '"tag id" = x.from'),
        ("CASE WHEN end(v) > 3 THEN 1 END", "CASE WHEN end(v) > 3 THEN 1 END"),
        ("COUNT(*) > 3", "count(*) > 3"),
        ("INTERVAL '1' day", "1 day"),
    ],
)
def test_canonical_text(written: str, canonical: str) -> None:
    assert lang.format_expression(lang.parse_expression(written)) == canonical


def test_layout() -> None:
    long = " and ".join(f"a.attribute_{number} = b.attribute_{number}" for number in range(4))
    text = lang.format_query(
        lang.parse(f"theft: pattern SEQ(A+ a[], B b) where partition_contiguity(a[], b) {{{long}}}")
    )
    assert text == (
        "theft:\n"
        "PATTERN SEQ(A+ a[], B b)\n"
        "WHERE   partition_contiguity(a[], b) {\n"
        "            a.attribute_0 = b.attribute_0\n"
        "        AND a.attribute_1 = b.attribute_1\n"
        "        AND a.attribute_2 = b.attribute_2\n"
        "        AND a.attribute_3 = b.attribute_3\n"
        "        }"
    )


def test_return_of_a_single_call_is_not_an_event() -> None:
    query = lang.parse("PATTERN A a RETURN (abs(a.x))")
    assert query.returns is not None and query.returns.name is None
    assert lang.format_query(query).endswith("RETURN  (abs(a.x))")
