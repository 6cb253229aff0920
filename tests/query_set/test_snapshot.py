"""A set that is restored goes on as if nothing had happened, also where queries come and go afterwards."""

from __future__ import annotations

import random
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.algebra import step, stream
from ouzel.query_set import merged as queryset_merged
from tests.generate.cases import counted
from tests.query_set.one_by_one import compare
from tests.query_set.test_agreement import TEMPLATE, random_parameters, random_quotes

S = stream("Stock")
PAIRS = S.rename({"price": "low"}).next(S, "name = name.last AND DUR <= 10")


def test_random_sets_restored_at_random_points_answer_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queryset_merged, "DELTA_MIN", 6)
    answers = 0
    for number in range(4):
        answers += compare(random.Random(f"restored {number}"), 20, 60, restored=0.4).answers
    assert answers > 40


def run(restored_after: set[int], quotes: pa.Table, parameters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A template, patterns, an aggregate and texts in registers, with additions and removals on the way."""
    held = ouzel.QuerySet(max_delay=2)
    held.add_template("moves", TEMPLATE, parameters[:60], owner="whose")
    held.add("pairs", "PATTERN SEQ(Stock a, Stock b) WHERE [name] WITHIN 5 RETURN P(b.price AS price)", owner="ann")
    held.add("count", "PATTERN SEQ(Stock a, Other b) AGG COUNT WITHIN 6")
    names = S.fold(S, "DUR <= 8", step().extend(before="name.last"), first={"before": "name"})
    held.add("names", names.select("before != name"))
    rows: list[dict[str, Any]] = []
    for number, start in enumerate(range(0, quotes.num_rows, 8)):
        for part in held.push(quotes.slice(start, 8)).values():
            rows += part.to_pylist()
        if number in restored_after:
            held = ouzel.QuerySet.restore(held.snapshot())
        if number == 3:
            held.add("late comer", PAIRS.select("price > :low"), params={"low": 2}, owner="ann")
            held.add_template("more", TEMPLATE, parameters[60:], owner="whose")
        if number == 6:
            held.remove(7)
            held.remove("pairs")
            held.remove(owner="bob")
            held.add("pairs", PAIRS)
        if number == 9:
            held.add("twin", PAIRS.select("price > :low"), params={"low": 4})
    return rows + [row for part in held.finish().values() for row in part.to_pylist()]


def test_cut_anywhere_the_answers_are_the_same() -> None:
    rng = random.Random("cut")
    parameters = [{**row, "whose": rng.choice(["ann", "bob"])} for row in random_parameters(rng, 90)]
    quotes = pa.Table.from_pylist(random_quotes(rng, 110))
    wanted = run(set(), quotes, parameters)
    assert {row["query"] for row in wanted} >= {"pairs", "count", "names", "late comer", "twin"}
    for _ in range(4):
        after = set(rng.sample(range(14), rng.choice([1, 2, 5])))
        assert counted(run(after, quotes, parameters)) == counted(wanted), after


def test_snapshot_omits_removed_queries_and_their_events() -> None:
    held = ouzel.QuerySet()
    for number in range(200):
        held.add(number, PAIRS.select(f"price > {number} AND vol > {number}"))
    held.push([{"type": "Stock", "ts": 1, "name": "IBM", "price": 3, "vol": 1}])
    full = len(held.snapshot())
    for number in range(199):
        held.remove(number)
    held.push([{"type": "Stock", "ts": 500, "name": "IBM", "price": 3, "vol": 1}])
    held.advance(1_000)
    small = held.snapshot()
    assert len(small) < full / 2
    assert len(ouzel.QuerySet.restore(small)) == 1


def test_removed_aggregates_leave_the_set_with_the_last_one_that_is_counted_with_them() -> None:
    held = ouzel.QuerySet()
    held.push([{"type": "Stock", "ts": 1, "name": "IBM", "price": 3}])
    empty = len(held.snapshot())
    for number in range(8):
        held.add(number, f"PATTERN SEQ(Stock, Order, Sale{number}) WITHIN 9 AGG COUNT")
    held.push([{"type": "Stock", "ts": 2, "name": "IBM", "price": 3}])
    assert "share counters" in held.explain()
    for number in (3, 0, 1, 2, 7, 6, 5):
        held.remove(number)
        assert len(held.snapshot()) > 1.5 * empty
    held = ouzel.QuerySet.restore(held.snapshot())
    assert len(held) == 1
    held.remove(4)
    assert len(held) == 0 and len(held.snapshot()) < 1.1 * empty


def test_a_set_in_which_nothing_waits_has_a_snapshot() -> None:
    held = ouzel.QuerySet()
    held.add("pairs", S.select("price > 3").next(S, "name = name.last AND DUR <= 10"))
    held.push([{"type": "Stock", "ts": ts, "name": "IBM", "price": 3} for ts in (1, 2, 3)])
    held = ouzel.QuerySet.restore(held.snapshot())
    held.push([{"type": "Stock", "ts": ts, "name": "IBM", "price": 4} for ts in (4, 5)])
    assert [row["end"] for part in held.finish().values() for row in part.to_pylist()] == [5]


def test_what_was_let_go_is_not_stored_for_a_query_that_waits_longer() -> None:
    held = ouzel.QuerySet()
    held.add("short", S.next(S, "name = name.last AND DUR <= 3"))
    for ts in range(1, 40, 5):
        held.push([{"type": "Stock", "ts": ts, "name": f"n{ts}", "price": 3}])
    held.add("long", S.next(S, "name = name.last AND DUR <= 30"))
    held = ouzel.QuerySet.restore(held.snapshot())
    answers = [held.push([{"type": "Stock", "ts": ts, "name": "n36", "price": 4} for ts in (37, 45)]), held.finish()]
    found = [(row["query"], row["end"]) for given in answers for part in given.values() for row in part.to_pylist()]
    assert sorted(found) == [("long", 37), ("long", 45), ("short", 37)]


def test_parameters_and_parameters_of_a_template_of_every_kind() -> None:
    day, moment = date(2024, 1, 2), datetime(2024, 1, 2, 12)
    rows = [{"type": "A", "ts": k, "day": day, "moment": moment, "s": "x", "n": k} for k in range(6)]
    base = stream("A")
    condition = "day = :day AND moment <= :moment AND s = :s AND n >= :n"
    held = ouzel.QuerySet()
    held.add("one", base.select(condition), params={"day": day, "moment": moment, "s": "x", "n": 2})
    held.add_template("t", base.select(condition), [{"id": 9, "day": day, "moment": moment, "s": "x", "n": 3}])
    answers = [held.push(rows[:2])]
    held = ouzel.QuerySet.restore(held.snapshot())
    held.add("two", base.select(condition), params={"day": day, "moment": moment, "s": "y", "n": 1})
    answers += [held.push(rows[2:]), held.finish()]
    found = [(row["query"], row["n"]) for given in answers for part in given.values() for row in part.to_pylist()]
    assert sorted(found, key=repr) == [("one", 2), ("one", 3), ("one", 4), ("one", 5), (9, 3), (9, 4), (9, 5)]


def test_id_is_free_after_removal_or_restore() -> None:
    held = ouzel.QuerySet()
    held.add("one", PAIRS, owner="ann")
    held.push([{"type": "Stock", "ts": 1, "name": "IBM", "price": 3}])
    held = ouzel.QuerySet.restore(held.snapshot())
    with pytest.raises(ouzel.InputError, match="already"):
        held.add("one", PAIRS)
    assert held.remove(owner="ann") == 1
    held.add("one", PAIRS)
    assert len(held) == 1


def test_mistakes_are_told() -> None:
    held = ouzel.QuerySet()
    with pytest.raises(ouzel.InputError, match="after the first push"):
        held.snapshot()
    held.add((1, 2), PAIRS)
    held.push([{"type": "Stock", "ts": 1, "name": "IBM", "price": 3}])
    with pytest.raises(ouzel.InputError, match="texts or numbers"):
        held.snapshot()
    engine = ouzel.Engine(PAIRS)
    engine.push([{"type": "Stock", "ts": 1, "name": "IBM", "price": 3}])
    with pytest.raises(ouzel.StateError, match="not one of a QuerySet"):
        ouzel.QuerySet.restore(engine.snapshot())
    held.remove((1, 2))
    blob = held.snapshot()
    with pytest.raises(ouzel.StateError, match="not of an Engine"):
        ouzel.Engine.restore(blob)
    for damaged in (blob[:-3], blob[:40] + b"x" + blob[41:], b""):
        with pytest.raises(ouzel.StateError):
            ouzel.QuerySet.restore(damaged)
    with pytest.raises(ouzel.StateError, match="bytes, got a str"):
        ouzel.QuerySet.restore("x")  # type: ignore[arg-type]
