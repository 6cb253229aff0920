"""The paper's queries with data: Queries 1 to 8, the worked example of Table 1, and Double-Top in both formulations."""

from __future__ import annotations

from typing import Any

import pytest

import ouzel
from ouzel.algebra import Stream
from tests.engines.automata import paper
from tests.generate.cases import counted
from tests.oracle.algebra import World, answer


def quotes(*rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    """(minute, name, price) or (minute, name, price, volume)."""
    return [
        {"type": "Stock", "ts": row[0], "name": row[1], "price": row[2], "vol": row[3] if len(row) > 3 else 100}
        for row in rows
    ]


def results(expression: Stream, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the engine gives, which the oracle must confirm."""
    found = ouzel.match(rows, expression).to_pylist()
    confirmed = answer(expression, World(rows, time="ts"))
    assert counted(found) == counted({"start": e.start, "end": e.end, **e.values} for e in confirmed)
    return found


def brief(found: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in found)


IBM = quotes((1, "IBM", 99), (2, "IBM", 101), (3, "MSFT", 26), (4, "MSFT", 24), (5, "IBM", 120), (6, "MSFT", 20))
# The stream of the paper's section 2.3.
RISING = quotes((1, "IBM", 10), (2, "Dell", 22), (3, "IBM", 19), (4, "Dell", 24), (5, "IBM", 22), (6, "Dell", 22))


def test_query_1() -> None:
    assert brief(results(paper.query_1(), IBM), "end", "price") == [(2, 101), (5, 120)]


def test_query_2_looks_at_the_first_msft_only() -> None:
    assert brief(results(paper.query_2(), IBM), "start", "end", "other_price") == [(5, 6, 20)]


def test_query_3() -> None:
    assert brief(results(paper.query_3(), RISING), "start", "end") == [(1, 3), (2, 4), (3, 5)]


def test_query_4() -> None:
    assert brief(results(paper.query_4(4), RISING), "start", "end", "price") == [(1, 5, 22)]


def test_query_5_is_the_worked_example_of_section_2() -> None:
    every_round = results(paper.query_5(1), RISING)
    assert brief(every_round, "name", "price", "start", "end") == [
        ("Dell", 24, 2, 4),
        ("IBM", 19, 1, 3),
        ("IBM", 22, 1, 5),
        ("IBM", 22, 3, 5),
    ]
    assert brief(results(paper.query_5(5), RISING), "start", "end") == [(1, 5)]


def test_query_6() -> None:
    rows = quotes((1, "IBM", 10), (2, "IBM", 20), (3, "Dell", 99), (4, "IBM", 60), (5, "IBM", 31), (6, "IBM", 29))
    found = results(paper.query_6(4), rows)
    assert [(row["start"], row["n"], row["avg"], row["following"]) for row in found] == [(1, 3, 30.0, 31)]


TABLE_1 = quotes(
    (550, "IBM", 90, 15000), (555, "IBM", 85, 7000), (557, "Dell", 40, 11000), (561, "IBM", 81, 8000),
    (563, "MSFT", 25, 6000), (564, "IBM", 91, 9000),
)  # fmt: skip


def test_query_7_gives_the_result_of_table_1() -> None:
    (row,) = results(paper.query_7(), TABLE_1)
    assert row == {"start": 550, "end": 564, "company": "IBM", "maxP": 90, "minP": 81, "finalP": 91}


def test_query_7_with_a_simultaneous_quote_that_fails() -> None:
    """ "Even though this event fails θ5, the automaton should still produce the output result with e6." """
    (row,) = results(paper.query_7(), [*TABLE_1, *quotes((564, "IBM", 80, 8000))])
    assert row["finalP"] == 91


def test_query_7_with_a_simultaneous_quote_that_ends_the_decrease() -> None:
    """ "The arrival of an additional event e'3 at the same time as e3 would cause I1 to be deleted." """
    assert results(paper.query_7(), [*TABLE_1, *quotes((557, "IBM", 99, 8000))]) == []


def test_query_8() -> None:
    rows = quotes((1, "IBM", 9), (2, "IBM", 16), (3, "IBM", 14), (4, "IBM", 9), (5, "Dell", 1), (6, "IBM", 16))
    assert brief(results(paper.query_8(), rows), "start", "end") == [(1, 3)]


def test_the_example_that_no_single_automaton_answers() -> None:
    """Section 3.5: S1 ;θ (S2 ; S3) takes resubscription."""
    stock = paper.QUOTES.project(["name", "price"])
    third = stock.rename({"name": "n3", "price": "p3"})
    pairs = stock.rename({"name": "n2", "price": "p2"}).next(third)
    expression = stock.next(pairs, "p3 > price")
    rows = quotes((1, "IBM", 10), (2, "Dell", 22), (3, "IBM", 9), (4, "Dell", 24), (5, "IBM", 11))
    found = results(expression, rows)
    assert (1, 4, "IBM", 9, 24) in brief(found, "start", "end", "n2", "p2", "p3")
    simultaneous = results(expression, [*rows, *quotes((3, "Dell", 23))])
    assert ("Dell", 23, 1, 4) not in brief(simultaneous, "n2", "p2", "start", "end")


SHAPE = (12, 11, 10, 11, 12, 13, 12, 11, 10, 11, 12, 13, 12, 11, 9, 10, 11)


@pytest.mark.parametrize("make", [paper.double_top_by_fold, paper.double_top_by_resubscription])
def test_double_top_in_both_formulations(make: Any) -> None:
    rows = quotes(*((2 * k, "Dell", price) for k, price in enumerate(SHAPE)))
    rows += quotes(*((2 * k + 1, "IBM", price + (k == 8) * 5) for k, price in enumerate(SHAPE)))
    (row,) = results(make(), rows)
    assert [row[name] for name in ("name", "a", "b", "c", "d", "e")] == ["Dell", 10, 13, 10, 13, 9]


def test_explain_draws_the_edges_of_the_paper() -> None:
    text = ouzel.explain(paper.query_7(), types={"Stock": {"name": "string", "price": "double", "vol": "int"}})
    for edge in ("(start) → (A)  forward", "(A)  filter", "(A)  rebind", "(A) → (B)  forward", "(B) → ((C))  forward"):
        assert edge in text
    for form in ("json", "svg"):
        assert "rebind" in ouzel.explain(paper.query_7(), form)
    assert "resubscription" in ouzel.explain(paper.double_top_by_resubscription())
