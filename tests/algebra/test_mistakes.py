"""What is wrong with an expression is told with its place in the text and a hint."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import ouzel
from ouzel.algebra import from_text, step, stream, to_text
from ouzel.algebra.streams import encode

S = stream("Stock", name="string", price="double", vol="int")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: S.select("prise > 3"), "did you mean 'price'"),
        (lambda: S.select("price > 'x'"), "cannot compare"),
        (lambda: S.select("price"), "a condition must be true or false"),
        (lambda: S.select("price >"), "column"),
        (lambda: S.select("price.last > 3"), r"\.last can be used in theta and step only"),
        (lambda: S.select("count(price) > 3"), "fold"),
        (lambda: S.select("time(price) > 3"), "DUR"),
        (lambda: S.project(["nme"]), "did you mean 'name'"),
        (lambda: S.rename({"price": "name"}), "has such an attribute already"),
        (lambda: S.union(S.project(["name"])), "have the same attributes"),
        (lambda: S.union(S.project(["name", "vol"]).extend(price="'x'")), "in one stream of the union"),
        (lambda: S.next(S, "low.last = price"), "no attribute 'low' before"),
        (lambda: S.project(["name"]).fold(S, None, "price > price.last"), "first="),
        (lambda: S.fold(S, first={"price": "1"}), "the stream has this attribute"),
        (
            lambda: S.fold(S.project(["name"]), None, step().select("vol.last > 0").project(["name"])),
            "no attribute 'vol' before",
        ),
        (lambda: S.fold(stream("B"), step=S), "the step of fold"),
        (lambda: S.next(7), "must be given a stream"),
        (lambda: S.select(7), "as text"),
        (lambda: S.rename(["price"]), "a dictionary like"),
        (lambda: S.rename({"price": 7}), "names as text"),
        (lambda: S.project(7), "a list of names"),
        (lambda: S.fold(S, first=["price"]), "a dictionary like"),
        (lambda: stream(7), "must be text"),
        (lambda: to_text("Stock"), "must be given a stream"),
        (lambda: ouzel.match([{"type": "A", "ts": 1, "since": 1}], stream("A", start="sinse")), "did you mean 'since'"),
    ],
)
def test_mistakes_are_told(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ouzel.OuzelError, match=message):
        make()


def test_undeclared_streams_are_checked_against_the_input() -> None:
    with pytest.raises(ouzel.QueryError, match="did you mean 'price'"):
        ouzel.match([{"type": "Stock", "ts": 1, "price": 3}], stream("Stock").select("prise > 3"))


def test_streams_need_a_bound_on_duration() -> None:
    unbounded = stream("Stock").next(stream("Stock"), "DUR > 3")
    engine = ouzel.Engine(unbounded)
    with pytest.raises(ouzel.QueryError, match="upper bound on DUR"):
        engine.push([{"type": "Stock", "ts": 1}])
    bounded = stream("Stock").next(stream("Stock")).select("DUR <= 5")
    assert ouzel.Engine(bounded).push([{"type": "Stock", "ts": 1}])["query"].num_rows == 0


def test_texts_of_several_events_cannot_be_computed_in_conditions() -> None:
    expression = stream("A").next(stream("A"), "concat(s, s.last) = 'xy'")
    with pytest.raises(ouzel.QueryError, match="texts of several events"):
        ouzel.match([{"type": "A", "ts": 1, "s": "x"}], expression)


def test_texts_cannot_be_computed_from_round_to_round() -> None:
    expression = stream("A").fold(stream("A"), None, step().extend(s="concat(s.last, 'x')"))
    with pytest.raises(ouzel.QueryError, match="to the next iteration"):
        ouzel.match([{"type": "A", "ts": 1, "s": "x"}], expression)


def test_a_result_may_compute_with_texts_of_several_events() -> None:
    rows = [{"type": "A", "ts": k, "s": s} for k, s in enumerate("xyz")]
    expression = stream("A").rename({"s": "r"}).next(stream("A")).extend(both="concat(r, '-', s)").project(["both"])
    assert ouzel.match(rows, expression)["both"].to_pylist() == ["x-y", "y-z"]


def test_expressions_are_values() -> None:
    assert S.select("price > 1") == S.select("price > 1")
    assert hash(S.next(S)) == hash(S.next(S))
    assert repr(S.next(S, "name = name.last").project(["name"])) == (
        "Stock.next(Stock, 'name = name.last').project(['name'])"
    )


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"operator": "eval"}',
        '{"operator": "iteration"}',
        '{"operator": "select", "input": 5, "condition": "x > 1"}',
        '{"operator": "select", "input": {"operator": "base", "type": "A"}, "condition": 7}',
        '{"operator": "select", "input": {"operator": "base", "type": "A"}, "condition": "x >"}',
        '{"operator": "base", "type": 7}',
        '{"operator": "base", "type": "A", "more": 7}',
        '{"operator": "select", "input": ' * 5_000,
    ],
)
def test_texts_that_are_no_expression(text: str) -> None:
    with pytest.raises(ouzel.OuzelError):
        from_text(text)


def test_expressions_as_texts() -> None:
    folded = S.fold(S.rename({"vol": "v"}), "name = name.last", step().extend(n="n.last + 1"), first={"n": "1"})
    for expression in (S, stream(start="begin").union(stream("B")), folded.next(S, "DUR < 5").project(["name"])):
        assert from_text(to_text(expression)) == expression


def test_texts_of_earlier_versions_can_be_read() -> None:
    folded = S.fold(S, "name = name.last", step().extend(n="n.last + 1"), first={"n": "1"})
    text = json.dumps(encode(folded))
    assert '"iteration"' in text
    assert from_text(text) == from_text(text.replace('"iteration"', '"round"')) == folded
