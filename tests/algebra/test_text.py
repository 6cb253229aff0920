"""Expressions as text: what a text means is what the operators mean, and every expression has a text."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.algebra import Stream, from_text, step, stream, to_text
from ouzel.algebra.streams import inputs_of
from tests.agreement import answered
from tests.generate import random_case
from tests.generate.cases import AlgebraCase, counted

S = stream("Stock")


def test_every_random_expression_has_a_text() -> None:
    for number in range(300):
        case = random_case(random.Random(f"text {number}"), "algebra")
        assert isinstance(case, AlgebraCase)
        text = to_text(case.expression)
        again = from_text(text)
        # Conditions are written as the formatter writes them, and stay so.
        assert to_text(again) == text
        assert from_text(to_text(again)) == again
        assert shape(again) == shape(case.expression)


def shape(expression: Stream) -> tuple[object, ...]:
    return (type(expression), *map(shape, inputs_of(expression)))


def test_a_text_gives_the_answers_of_its_expression() -> None:
    for number in range(15):
        case = random_case(random.Random(f"answers of text {number}"), "algebra")
        assert isinstance(case, AlgebraCase)
        again = from_text(to_text(case.expression))
        assert counted(answered(again, case.table)) == counted(answered(case.expression, case.table))


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("STREAM Stock", S),
        ("stream any start began", stream(start="began")),
        (
            "STREAM Call (began int, id 'list<int>') START began",
            stream("Call", start="began", began="int", id="list<int>"),
        ),
        ('STREAM Stock "next" WHERE next.x > 3', S.alias("next").select("next.x > 3")),
        ("STREAM Stock a NEXT (Stock WHERE x > 3) b", S.alias("a").next(S.select("x > 3").alias("b"))),
        (
            "STREAM (Stock a NEXT Stock b) c WHERE c.a.x > 3",
            S.alias("a").next(S.alias("b")).alias("c").select("c.a.x > 3"),
        ),
        ("STREAM (Stock WHERE x > 3) WHERE y > 4", S.select("x > 3").select("y > 4")),
        ("STREAM Stock FOLD Stock ON x = x.last WHILE y > y.last", S.fold(S, "x = x.last", "y > y.last")),
        (
            "STREAM Stock FOLD Stock FIRST 1 AS n STEP (EXTEND n.last + 1 AS n WHERE n < 9) PROJECT n",
            S.fold(S, None, step().extend(n="n.last + 1").select("n < 9"), first={"n": "1"}).project(["n"]),
        ),
        ("STREAM Stock PROJECT ()", S.project([])),
        ("STREAM Stock RENAME first AS step, step AS first", S.rename({"first": "step", "step": "first"})),
        (
            "STREAM Stock WHERE DUR < 10 UNION B WHERE next = 80% -- more\n",
            S.select("DUR < 10").union(stream("B")).select("next = 80%"),
        ),
    ],
)
def test_texts(text: str, expression: Stream) -> None:
    assert from_text(text) == expression
    assert from_text(to_text(expression)) == expression
    assert pickle.loads(pickle.dumps(from_text(text))) == expression


def rows_of(*answers: Mapping[str, pa.Table]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in answers:
        for name, table in each.items():
            found.setdefault(name, []).extend(table.to_pylist())
    return found


def test_a_text_is_taken_wherever_an_expression_is() -> None:
    rows = [{"type": "Stock", "ts": k, "price": price} for k, price in enumerate((3, 5, 4), 1)]
    text = "STREAM Stock a NEXT Stock b ON b.price > a.price AND DUR <= :most PROJECT a.price, b.price"
    expected = [{"start": 1, "end": 2, "a.price": 3, "b.price": 5}]
    assert ouzel.match(rows, text, params={"most": 3}).to_pylist() == expected
    assert ouzel.match(rows, {"rise": text}, params={"most": 3})["rise"].to_pylist() == expected
    engine = ouzel.Engine(text, params={"most": 3})
    assert rows_of(engine.push(rows), engine.finish()) == {"query": expected}
    alerts = ouzel.QuerySet()
    alerts.add("rise", text, params={"most": 3})
    alerts.add_template("steep", text, [{"id": 1, "most": 3}, {"id": 2, "most": 1}])
    alerts.add_table([{"id": "high", "query": "STREAM Stock WHERE price > 4"}])
    found = rows_of(alerts.push(rows), alerts.finish())
    assert found["rise"] == [{"query": "rise", **expected[0]}]
    assert found["steep"] == [{"query": 1, **expected[0]}]
    assert [row["price"] for row in found["high"]] == [5]
    assert "rebind" in ouzel.explain("STREAM A a FOLD A b ON DUR < 9")


def test_a_long_chain_is_refused() -> None:
    with pytest.raises(ouzel.QueryError, match="more than 100 operators"):
        from_text("STREAM A" + " UNION A" * 5_000)
    with pytest.raises(ouzel.QueryError, match="nested too deep"):
        from_text("STREAM A" + " UNION (A" * 5_000 + ")" * 5_000)


def test_an_expression_is_not_a_query() -> None:
    with pytest.raises(ouzel.QueryError, match="from_text"):
        ouzel.query("STREAM Stock a")
