"""Sets of standing queries as users hold them."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel import LossModel, ModelWarning, QuerySet
from ouzel.algebra import stream
from ouzel.loss import Exponential

S = stream("Stock")


def quote(ts: int, name: str, price: int) -> dict[str, Any]:
    return {"type": "Stock", "ts": ts, "name": name, "price": price}


def test_equal_patterns_with_other_variables_read_their_own_part_of_the_model() -> None:
    """A loss model names variables, so that such queries do not run as one."""
    gaps = {"b": Exponential(3), "y": Exponential(3)}
    model = LossModel(0.1, component_loss={"x": 0.4}, gaps=gaps, priors={"a": 0.5, "x": 0.5})
    events = [{"ts": 1, "type": "S"}, {"ts": 5, "type": "T"}]
    texts = [
        f"PATTERN SEQ(S {one}, T {two}) WITHIN 9 THRESHOLD 0 RETURN P({two}.ts AS at)" for one, two in ("ab", "xy")
    ]
    held = QuerySet(model=model)
    for number, text in enumerate(texts):
        held.add(number, text)
    held.push(events)
    answers = QuerySet.restore(held.snapshot()).finish()
    for number, text in enumerate(texts):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelWarning)
            want = ouzel.match(events, text, model=model).to_pylist()
        assert answers[number].drop_columns("query").to_pylist() == want


def test_a_query_sees_events_from_its_registration_on() -> None:
    pairs = S.rename({"price": "low"}).next(S, "name = name.last AND DUR <= 10")
    held = ouzel.QuerySet()
    held.add("old", pairs)
    held.push([quote(1, "IBM", 10)])
    held.push([quote(2, "Dell", 10)])
    held.add("new", pairs)
    held.push([quote(3, "IBM", 11)])
    held.push([quote(4, "IBM", 12)])
    answers = held.finish()
    assert set(answers) <= {"old", "new"}
    held_back = [row["start"] for row in answers["new"].to_pylist()]
    assert held_back == [3]


def test_removing_keeps_what_others_share() -> None:
    expression = S.rename({"price": "low"}).next(S, "name = name.last AND DUR <= 10")
    held = ouzel.QuerySet()
    for number in range(3):
        held.add(number, expression.select(f"price > {number}"), owner="ann" if number < 2 else "bob")
    held.push([quote(1, "IBM", 5)])
    assert held.remove(0) == 1
    assert held.remove(owner="ann") == 1
    held.push([quote(2, "IBM", 6)])
    assert list(held.finish()) == [2]
    assert len(held) == 1


def test_texts_algebra_and_aggregates_in_one_set() -> None:
    held = ouzel.QuerySet()
    held.add_table(
        [
            {"id": "pairs", "query": "PATTERN SEQ(Stock a, Stock b) WHERE [name] WITHIN 5 RETURN P(b.price AS price)"},
            {"id": "high", "query": "PATTERN Stock s WHERE s.price > 11 WITHIN 5 RETURN H(s.price AS price)"},
        ]
    )
    held.add("algebra", S.select("price > 11"))
    answers = held.push([quote(1, "IBM", 10), quote(2, "IBM", 12), quote(3, "Dell", 13)])
    assert {name: table["query"].to_pylist() for name, table in answers.items()} == {
        "pairs": ["pairs"],
        "high": ["high"],
        "algebra": ["algebra"],
    }
    assert {name: table.num_rows for name, table in held.finish().items()} == {"high": 1, "algebra": 1}


def test_explain_names_the_indexes_and_their_sizes() -> None:
    held = ouzel.QuerySet(bounded=True)
    rows = [{"id": k, "name": f"n{k % 7}", "limit": k % 11} for k in range(300)]
    held.add_template("above", S.select("name = :name AND price > :limit").next(S, "name = name.last"), rows)
    held.push([quote(1, "n1", 5)])
    held.add("single", S.select("price > 3"))
    held.push([quote(2, "n1", 5)])
    text = held.explain()
    for word in ("301 queries", "FR index", "AN index", "AI index", "segment 2", "merged prefixes: 154 nodes"):
        assert word in text, text


def test_cost_follows_what_is_affected_not_the_number_of_queries() -> None:
    held = ouzel.QuerySet(bounded=True)
    rows = [{"id": k, "name": f"n{k}"} for k in range(5_000)]
    held.add_template("pairs", S.select("name = :name").next(S.rename({"price": "p2"}), "name = :name"), rows)
    held.push([quote(k, f"n{k % 100}", k) for k in range(1_000)])
    counted = held.statistics
    assert counted["static_matches"] < 2_100 and counted["instances_read"] < 1_100


def test_thresholds_are_searched_not_scanned() -> None:
    held = ouzel.QuerySet(bounded=True)
    rows = [{"id": k, "low": 10 * k, "high": 10 * k + 5} for k in range(500)]
    held.add_template("above", S.select("price > :low"), [{"id": f"a{k}", "low": 10 * k} for k in range(499, -1, -1)])
    held.add_template("waits", S.select("price = 1").next(S.rename({"price": "p"}), "p BETWEEN :low AND :high"), rows)
    held.push([quote(0, "IBM", 1), quote(1, "IBM", 33)])
    held.push([quote(2, "IBM", 2_002)])
    held.finish()
    counted = held.statistics
    # The prices are above 1, 4 and 201 thresholds. The first one starts 500 instances, and the others end one each.
    assert counted["static_matches"] == 1 + 4 + 201 + 500 + 2 and counted["waits_read"] == 2


def test_adding_and_removing_queries_costs_the_same_among_many() -> None:
    held = ouzel.QuerySet(bounded=True)
    held.add_template("above", S.select("price > :limit"), [{"id": k, "limit": k} for k in range(2_000)])
    held.push([quote(0, "IBM", 0)])
    before = held.bytes
    for number in range(400):
        held.add(f"one {number}", S.select(f"price > {number}"))
        held.push([quote(1 + number, "IBM", 0)])
    assert held.statistics["segments"] <= 5
    grown = held.bytes
    for number in range(400):
        held.remove(f"one {number}")
    for number in range(1_000):
        held.remove(number)
    held.push([quote(500, "IBM", 1_003)])
    assert held.bytes < 0.6 * before < 0.6 * grown
    assert held.finish()["above"]["query"].to_pylist() == [1000, 1001, 1002]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda held: held.add("one", S.select("price > 2")), "already"),
        (lambda held: held.remove("two"), "no query 'two'"),
        (lambda held: held.remove(), "takes the id"),
        (lambda held: held.add("two", S.select("prise > 2")), "did you mean 'price'"),
        (lambda held: held.add("two", S.next(S)), "upper bound on DUR"),
        (lambda held: held.add_template("t", S, [{"name": 1}]), "no column 'id'"),
        (lambda held: held.add_template("t", S, [{"id": 1}, {"id": 1}]), "duplicate id"),
        (lambda held: held.add_template("t", S.select("price > :low"), [{"id": 1, "lov": 3}]), "did you mean 'lov'"),
        (lambda held: held.add_table([{"id": 1, "query": "PATTERN SEQ("}]), "query '1'"),
        (
            lambda held: held.add("two", "PATTERN SEQ(S a, S b) WITHIN 5 THRESHOLD 0.1"),
            "must know what the stream loses",
        ),
        (lambda held: held.add("two", "PATTERN S+ a[] WITHIN 5 RETURN P(a.LEN AS query)"), "query 'two' gives another"),
        (lambda held: held.add("two", "PATTERN S query WITHIN 5"), "query 'two' gives another"),
        (lambda held: held.add("two", "PATTERN S a AGG COUNT AS query WITHIN 5"), "query 'two' gives another"),
        (lambda held: held.add("two", S.rename({"price": "start"})), "a column 'start' of their own"),
        (lambda held: held.add(["two"], S), "a text or a number"),
        (lambda held: held.add(None, S), "a text or a number"),
        (lambda held: held.add_template("t", 5, [{"id": 1}]), "an expression of ouzel.algebra"),
        (lambda held: held.add_template("t", S, [{"id": 1}], owner="who"), "no column 'who'"),
        (lambda held: held.add_template("t", S, [{"id": [1]}]), "a text or a number"),
        (lambda held: held.add_template("one", S, [{"id": 1}]), "another name"),
        (
            lambda held: held.add_table([{"id": 1, "query": "{"}]),
            "query '1': this text is not the JSON of an expr",
        ),
        (lambda held: held.advance("noon"), "must be given a time of type int64, got 'noon'"),
        (lambda held: (held.finish(), held.add("two", S)), "finished"),
    ],
)
def test_mistakes_are_told(act: Any, message: str) -> None:
    held = ouzel.QuerySet()
    held.add("one", S.select("price > 1"))
    held.push([quote(1, "IBM", 3)])
    with pytest.raises(ouzel.OuzelError, match=message):
        act(held)


ABOVE = S.select("name = :name AND price > :limit")
ROWS = [{"id": 1, "name": "IBM", "limit": 2, "who": "ann"}, {"id": 2, "name": "Dell", "limit": 2, "who": "bob"}]


@pytest.mark.parametrize("began", [False, True])
def test_queries_come_and_go_before_the_first_event_as_after(began: bool) -> None:
    held = ouzel.QuerySet()
    if began:
        held.push([quote(0, "IBM", 0)])
    held.add_template("above", ABOVE, ROWS, owner="who")
    held.add("single", S, owner="ann")
    for again in (lambda: held.add(1, S), lambda: held.add_template("more", ABOVE, ROWS, owner="who")):
        with pytest.raises(ouzel.InputError, match="a query 1 in the set already"):
            again()
    assert held.remove(owner="ann") == 2 and len(held) == 1
    assert held.remove(2) == 1 and len(held) == 0
    held.add_template("above", ABOVE, ROWS, owner="who")
    held.add_template("none", ABOVE, [])
    held.push([quote(1, "IBM", 3), quote(1, "Dell", 3)])
    assert held.finish()["above"]["query"].to_pylist() == [1, 2]


def test_query_that_does_not_fit_schema_can_be_removed() -> None:
    held = ouzel.QuerySet()
    held.add("good", S.select("price > 1"))
    held.add("bad", S.select("prise > 1"))
    held.add("other", "PATTERN Stock s WITHIN 5")
    with pytest.raises(ouzel.QueryError, match="query 'bad': the stream has no attribute 'prise'"):
        held.push([quote(1, "IBM", 3)])
    assert held.remove("bad") == 1
    held.push([quote(1, "IBM", 3)])
    assert sorted(held.finish()) == ["good", "other"]


@pytest.mark.parametrize("began", [False, True])
def test_a_table_of_queries_is_added_whole_or_not_at_all(began: bool) -> None:
    held = ouzel.QuerySet()
    if began:
        held.push([quote(0, "IBM", 0)])
    rows = [{"id": 1, "query": "PATTERN Stock s WITHIN 5"}, {"id": 2, "query": "PATTERN SEQ(Stock s"}]
    with pytest.raises(ouzel.QueryError, match="query '2'"):
        held.add_table(rows)
    assert len(held) == 0
    held.add_table(rows[:1])
    assert len(held) == 1


def test_a_query_that_was_refused_is_refused_again() -> None:
    held = ouzel.QuerySet()
    held.push([quote(0, "IBM", 0)])
    for _ in range(2):
        with pytest.raises(ouzel.QueryError, match="upper bound on DUR"):
            held.add("pairs", S.next(S))
    assert len(held) == 0


def test_answers_of_one_name_have_the_same_columns() -> None:
    held = ouzel.QuerySet()
    held.push([quote(0, "IBM", 0)])
    held.add_template("above", ABOVE, ROWS)
    more = [{"id": 3, "name": "IBM", "limit": 2.5}]
    held.add_template("above", ABOVE, more)
    for ids, template in (([4], ABOVE.project(["name"])), (["four"], ABOVE)):
        with pytest.raises(ouzel.InputError, match="a template 'above' in the set already"):
            held.add_template("above", template, [{**more[0], "id": id} for id in ids])
    with pytest.raises(ouzel.InputError, match="choose another id"):
        held.add("above", S)
    held.push([quote(1, "IBM", 3)])
    assert held.finish()["above"]["query"].to_pylist() == [1, 3]


def test_ids_of_several_types_are_kept_apart() -> None:
    held = ouzel.QuerySet()
    for id in (7, "7", 8):
        held.add(id, S)
    held.push([quote(1, "IBM", 3)])
    answers = held.finish()
    assert {id: table["query"].to_pylist() for id, table in answers.items()} == {7: [7], "7": ["7"], 8: [8]}


def test_batches_of_dictionaries_need_not_name_what_they_do_not_have() -> None:
    held = ouzel.QuerySet()
    held.add("all", S)
    held.push([quote(1, "IBM", 3)])
    assert held.push([]) == {}
    held.push([{"type": "Stock", "ts": 2, "name": "Dell"}])
    assert held.finish()["all"]["price"].to_pylist() == [None]
    held = ouzel.QuerySet()
    held.push([{"type": "Stock", "ts": 1, "price": None}])
    with pytest.raises(ouzel.InputError, match=r"the first batch had only nulls.*schema="):
        held.push([{"type": "Stock", "ts": 2, "price": 3}])


def test_what_runs_beside_automata_is_told() -> None:
    held = ouzel.QuerySet()
    held.add("lasting", stream("Stock", start="since"))
    assert held.explain() == "1 query, not bound to columns before the first batch"
    held.push([{"type": "Stock", "ts": 2, "since": 1}])
    assert "1 of them are expressions over other expressions, or over events that last" in held.explain()


def test_owners_may_be_of_any_type() -> None:
    held = ouzel.QuerySet()
    held.push([quote(0, "IBM", 0)])
    held.add("one", S, owner=("ann", 1))
    assert held.remove(owner=("ann", 1)) == 1 and len(held) == 0


def test_advance_takes_a_moment() -> None:
    noon = datetime(2026, 11, 16, 12)
    held = ouzel.QuerySet()
    held.add("all", S)
    held.push([{"type": "Stock", "ts": noon, "price": 3}])
    assert held.advance(noon)["all"]["end"].to_pylist() == [noon]


def test_limits_name_the_limit() -> None:
    held = ouzel.QuerySet(bounded=True, limits={"max_partial_matches": 1_000})
    held.add("pairs", S.next(S, "price > 1000000"))
    with pytest.raises(ouzel.LimitError, match="max_partial_matches"):
        held.push([quote(k, "IBM", k) for k in range(5_000)])


EXPLOSIVE = "PATTERN SEQ(Stock a, Stock b, Stock c) WHERE [name] WITHIN 1000 RETURN All(a.price AS price)"


@pytest.mark.parametrize("limit", ["max_partial_matches", "max_matches_per_timestamp"])
def test_an_explosive_query_is_suspended_and_the_others_are_complete(limit: str) -> None:
    rows = [quote(k, f"n{k % 3}" if k < 30 else "n0", k % 50) for k in range(120)]
    held, calm = (ouzel.QuerySet(bounded=True, limits={limit: 1_500}) for _ in range(2))
    for one in (held, calm):
        one.add_template("above", ABOVE, [{"id": k, "name": f"n{k % 3}", "limit": k} for k in range(40)])
        one.add("pairs", S.rename({"price": "first"}).next(S, "name = name.last"))
        one.add("count", "PATTERN Stock s AGG COUNT WITHIN 5")
    held.add("explosive", EXPLOSIVE)
    with pytest.warns(ouzel.ProblemWarning, match=f"'explosive'.*{limit}=1,500.*the other queries"):
        answers = held.push(rows)
    wanted = calm.push(rows)
    assert {name: answers[name].to_pylist() for name in wanted} == {n: t.to_pylist() for n, t in wanted.items()}
    (problem,) = held.problems()
    assert problem.query == "explosive" and 30 < problem.time < 110 and limit in problem.reason
    assert held.statistics["instances"] == calm.statistics["instances"]
    for _ in range(2):
        assert len(held) == 43 and [one.query for one in held.problems()] == ["explosive"]
        held = ouzel.QuerySet.restore(held.snapshot())
    # It sees the events after the watermark: the one at 119 has not been read yet.
    held.resume("explosive")
    assert held.problems() == []
    answers = held.push([quote(200, "n0", 1), quote(201, "n0", 1)])
    wanted = calm.push([quote(200, "n0", 1), quote(201, "n0", 1)])
    assert {name: answers[name].to_pylist() for name in wanted} == {n: t.to_pylist() for n, t in wanted.items()}
    assert held.finish()["explosive"]["start"].to_pylist() == [119]


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(4))
def test_a_resumed_query_answers_as_one_that_is_added_then(seed: int) -> None:
    rng = random.Random(f"resumed {seed}")
    texts = {
        "explosive": EXPLOSIVE,
        "pairs": "STREAM Stock a NEXT Stock b ON b.name = a.name AND DUR < 9",
        "count": "PATTERN Stock s AGG COUNT WITHIN 5",
    }
    # The limit stops the first one, and no query of the other two.
    resumed = ouzel.QuerySet(limits={"max_partial_matches": 1_500})
    added, calm = ouzel.QuerySet(), ouzel.QuerySet()
    for name, text in texts.items():
        resumed.add(name, text)
        if name != "explosive":
            added.add(name, text)
            calm.add(name, text)
    found, wanted, now = Counter[str](), Counter[str](), 0
    is_stopped, suspensions = False, 0
    for _ in range(8):
        is_burst = not suspensions or rng.random() < 0.3
        rows = [
            quote(now := now + 1 if is_burst else now + rng.randint(1, 90), rng.choice(["n0", "n1"]), rng.randint(0, 9))
            for _ in range(90 if is_burst else rng.randint(1, 12))
        ]
        with warnings.catch_warnings(action="ignore"):
            answers = resumed.push(rows)
        expected, others = added.push(rows), calm.push(rows)
        for name in ("pairs", "count"):
            assert _rows(answers, name) == _rows(others, name) == _rows(expected, name)
        if suspensions and not is_stopped and not resumed.problems():
            found.update(_rows(answers, "explosive"))
            wanted.update(_rows(expected, "explosive"))
        is_stopped = bool(resumed.problems())
        if is_stopped and rng.random() < 0.7:
            suspensions += 1
            if suspensions > 1:
                added.remove("explosive")
            resumed.resume("explosive")
            added.add("explosive", EXPLOSIVE)
            is_stopped = False
        if rng.random() < 0.3:
            resumed = ouzel.QuerySet.restore(resumed.snapshot())
    assert suspensions and found == wanted


def _rows(answers: Any, name: str) -> list[str]:
    return sorted(map(repr, answers[name].to_pylist())) if name in answers else []


def test_a_suspended_query_can_be_removed() -> None:
    held = ouzel.QuerySet(bounded=True, limits={"max_partial_matches": 1_000})
    held.add("explosive", EXPLOSIVE)
    held.add("high", S.select("price > 48"))
    with pytest.warns(ouzel.ProblemWarning):
        held.push([quote(k, "IBM", 1) for k in range(100)])
    with pytest.raises(ouzel.InputError, match="the set has no suspended query 'high'"):
        held.resume("high")
    assert held.remove("explosive") == 1 and held.problems() == []
    held.push([quote(160, "IBM", 49)])
    assert held.finish()["high"].num_rows == 1


def test_a_node_is_complete_from_the_first_registration_of_its_queries_on() -> None:
    held = ouzel.QuerySet(bounded=True)
    for k in range(30):
        held.push([quote(k, f"n{k % 3}", k)])
        held.add(k, S.select(f"price > {k % 7}").next(S, f"name = name.last AND price > {k % 5}"))
    held.push([quote(30, "n0", 1)])
    assert held._session is not None
    (segment,) = held._session.merged.segments
    wanted: dict[int, int] = {}
    for (number, _), node_of in zip(segment._owners, segment._node_of, strict=True):
        group, rows = segment.members[number]
        assert len(node_of) > 2 and len(set(group.registered[rows].tolist())) > 20
        for nodes in node_of:
            for node, tick in zip(nodes.tolist(), group.registered[rows].tolist(), strict=True):
                wanted[node] = min(wanted.get(node, tick), tick)
    assert {node: int(segment.since[node]) for node in wanted} == wanted


def test_a_stopped_unmerged_query_can_be_resumed() -> None:
    text = "PATTERN SEQ(Stock a, !(Bid b), Stock c) WITHIN {} RETURN R(a.price AS p)"
    held = ouzel.QuerySet(limits={"max_buffered_events": 20})
    held.add("wide", text.format(1_000))
    held.add("high", S.select("price > 38"))
    with pytest.warns(ouzel.ProblemWarning, match="wide"):
        held.push([quote(k, "IBM", k) for k in range(40)])
    assert "wide" in [problem.query for problem in held.suspended()]
    held.resume("wide")
    assert held.suspended() == []
    held.push([quote(k, "IBM", k) for k in range(100, 102)])
    # The one that ends at 100 came before.
    assert sorted(held.finish()["wide"]["p"].to_pylist()) == [39, 100]


def test_problems_list_queries_that_name_what_never_came() -> None:
    held = ouzel.QuerySet(bounded=True, schema=pa.schema(SCHEMA_WITH_VOLUME))
    held.add("typo", stream("Stok").select("price > 1"))
    held.add("empty", S.select("volume > 1"))
    held.add("fine", S.select("price > 1"))
    held.add("unmerged", "PATTERN SEQ(Stock a, Oder+ b[], Stock c) WITHIN 5")
    held.add_template("table", stream("Bid").select("price > :limit"), [{"id": 1, "limit": 2}])
    assert held.problems() == []
    held.push([quote(1, "IBM", 2)])
    for _ in range(2):
        assert {problem.query: problem.reason.split(": ")[1] for problem in held.problems()} == {
            "typo": "no event of type 'Stok' has come; did you mean 'Stock'?",
            "empty": "no event has had a value in column 'volume'",
            "table": "no event of type 'Bid' has come",
            "unmerged": "no event of type 'Oder' has come",
        }
        held = ouzel.QuerySet.restore(held.snapshot())
    held.push([{**quote(2, "IBM", 2), "type": "Bid", "volume": 5}])
    assert [problem.query for problem in held.problems()] == ["typo", "unmerged"]


SCHEMA_WITH_VOLUME = {
    "type": pa.string(), "ts": pa.int64(), "name": pa.string(), "price": pa.int64(), "volume": pa.int64()
}  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("as_text", [False, True])
def test_a_condition_between_events_keeps_queries_apart(turned: bool, as_text: bool) -> None:
    if as_text:
        every = "PATTERN SEQ(A a, A b) WITHIN 3 RETURN M(b.x AS x)"
        rising: Any = "PATTERN SEQ(A a, A b) WHERE a.x < b.x WITHIN 3 RETURN M(b.x AS x)"
    else:
        every = stream("A").rename({"x": "l"}).next(stream("A"), "DUR <= 3")
        rising = every.select("x > l")
    held = ouzel.QuerySet()
    for name in ("every", "rising") if turned else ("rising", "every"):
        held.add(name, every if name == "every" else rising)
    answers = [
        held.push([{"type": "A", "ts": ts, "x": x} for ts, x in ((1, 3), (2, 1), (6, 1), (7, 3))]),
        held.finish(),
    ]
    found = [(row["query"], row["end"]) for given in answers for part in given.values() for row in part.to_pylist()]
    assert sorted(found) == [("every", 2), ("every", 7), ("rising", 7)]


def test_a_template_may_be_the_text_of_a_pattern() -> None:
    text = "PATTERN SEQ(A a, B b) WHERE [id] AND b.x > :limit WITHIN 9 RETURN Out(b.x AS x)"
    table = [{"id": "low", "limit": 1, "other": 0}, {"id": "high", "limit": 5, "other": 0}]
    events = [{"type": "A", "ts": 1, "id": 7, "x": 0}, {"type": "B", "ts": 2, "id": 7, "x": 3}]
    for schema in (None, pa.Table.from_pylist(events).schema):
        alerts = ouzel.QuerySet(schema=schema)
        alerts.add_template("above", text, table)
        assert len(alerts) == 2
        assert alerts.push(events) == {}
        assert {name: rows.to_pylist() for name, rows in alerts.finish().items()} == {
            "low": [{"query": "low", "start": 1, "end": 2, "x": 3}]
        }
    with pytest.raises(ouzel.QueryError, match="limit"):
        ouzel.QuerySet().add_template("above", text, [{"id": 1}])
    with pytest.raises(ouzel.InputError, match="must be an expression"):
        ouzel.QuerySet().add_template("above", 7, table)  # type: ignore[arg-type]
