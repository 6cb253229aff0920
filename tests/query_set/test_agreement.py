"""A set answers exactly as its queries would one by one, also while queries come and go."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.algebra import stream
from ouzel.engines.automata import build, indexes, machine
from ouzel.query_set import merged as queryset_merged
from tests.agreement import case_count
from tests.generate.cases import counted
from tests.query_set.one_by_one import compare

pytestmark = pytest.mark.quick

SETS = max(1, case_count(500) // 80)


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("indexed", [True, False])
def test_random_sets_answer_as_one_by_one(merge: bool, indexed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small sets too should have several segments, and free removed queries.
    monkeypatch.setattr(queryset_merged, "DELTA_MIN", 3)
    monkeypatch.setattr(queryset_merged, "REMOVED_MIN", 3)
    if indexed:
        _index_everything(monkeypatch)
    answers = 0
    for number in range(SETS):
        answers += compare(random.Random(f"set {merge} {indexed} {number}"), 24, 60, merge=merge).answers
    assert answers > 10 * SETS


def _index_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search few edges and few ranges as if they were many."""
    monkeypatch.setattr(build, "FR_EDGES_MIN", 1)
    monkeypatch.setattr(indexes, "RANGES_MIN", 1)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::ouzel.ProblemWarning")
@pytest.mark.parametrize("limit", ["max_partial_matches", "max_matches_per_timestamp"])
def test_suspended_and_resumed_queries_answer_as_one_by_one(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queryset_merged, "DELTA_MIN", 3)
    # Limits are checked when there is no room left, so a small set must have little room.
    monkeypatch.setattr(machine, "ROOM_MIN", 4)
    _index_everything(monkeypatch)
    suspensions = resumed = answers = 0
    # A suspended query answers nothing, so one set may have hardly any answers.
    sets = max(5, SETS)
    for number in range(sets):
        rng = random.Random(f"suspended {limit} {number}")
        found = compare(rng, 16, 60, restored=0.2, limits={limit: rng.choice([2, 4, 8])})
        suspensions, resumed = suspensions + found.suspensions, resumed + found.resumed
        answers += found.answers
    assert suspensions > sets and 2 * resumed > sets and answers > 5 * sets


@pytest.mark.long
def test_a_thousand_random_queries_answer_as_one_by_one() -> None:
    found = compare(random.Random("a thousand"), 1_000, 200)
    assert found.queries > 500 and found.answers > 1_000


S = stream("Stock")
TEMPLATE = (
    S.select("(:name IS NULL OR name = :name) AND price BETWEEN :low AND :high")
    .rename({"price": "first"})
    .next(S, "name = name.last AND DUR <= :within")
    .select("price > :factor * first")
    .extend(factor=":factor")
)


def random_parameters(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "name": rng.choice(["IBM", "Dell", "MSFT", None]),
            "low": (low := rng.randint(0, 5)),
            "high": low + rng.randint(0, 5),
            "within": rng.choice([2, 5, 10]),
            "pattern": rng.choice(["%", "I%", "IBM%", "D%%", "Del%", "Dell%", "Dells%", None]),
            "start": rng.choice(["", "IB", "IBM", "IBM Corporation, Armonk", "IBM Corporation, A", "Dell", "\u00ff"]),
            "factor": rng.choice([0.5, 1.0, 1.5]),
        }
        for number in range(count)
    ]


def random_quotes(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "type": rng.choice(["Stock", "Stock", "Other"]),
            "ts": k // 2,
            "name": rng.choice(["IBM", "Dell", "IBM Corporation, Armonk", None]),
            "price": rng.randint(0, 9),
        }
        for k in range(count)
    ]


# Thresholds with one end and with two, at the start and where instances wait, with an equality and without.
RANGES = (
    S.select("price >= :low AND price < :high")
    .rename({"price": "first"})
    .next(S, "price > :high AND (:name IS NULL OR name = :name) AND DUR <= :within"),
    S.select("price > :high").rename({"price": "first"}).next(S, "price <= :low AND DUR <= :within"),
    S.select("name LIKE :pattern").rename({"name": "first"}).next(S, "startswith(name, :start) AND DUR <= :within"),
    S.select("price < :low OR price > :high").rename({"price": "first"}).fold(S, "price > :low AND DUR <= :within"),
)


@pytest.mark.parametrize("number", range(1 + len(RANGES)))
def test_a_template_answers_as_its_queries_one_by_one(number: int) -> None:
    template = (TEMPLATE, *RANGES)[number]
    rng = random.Random("template")
    parameters = random_parameters(rng, case_count(200))
    quotes = pa.Table.from_pylist(random_quotes(rng, 120))
    held = ouzel.QuerySet()
    held.add_template("moves", template, parameters)
    rows = [
        row
        for start in range(0, 120, 7)
        for part in held.push(quotes.slice(start, 7)).values()
        for row in part.to_pylist()
    ]
    rows += [row for part in held.finish().values() for row in part.to_pylist()]
    assert len(rows) > len(parameters)
    for given in parameters:
        values = {name: value for name, value in given.items() if name != "id"}
        alone = ouzel.match(quotes, ouzel.algebra.binding.AlgebraQuery("one", template, values)).to_pylist()
        mine = [{n: v for n, v in row.items() if n != "query"} for row in rows if row["query"] == given["id"]]
        assert counted(mine) == counted(alone), given


@pytest.mark.parametrize(
    ("condition", "value", "message"),
    [
        ("name LIKE :p", "a_%", "the only wildcard of LIKE must be % at the end, got 'a_%'"),
        ("name LIKE :p", "a", "the only wildcard"),
        ("startswith(name, :p)", "x" * 33, "at most 32 bytes"),
        ("startswith(name, :p)", "x\0", "must not contain"),
    ],
)
def test_beginnings_that_no_index_finds_are_refused_in_templates(condition: str, value: str, message: str) -> None:
    held = ouzel.QuerySet(type=None, schema=pa.schema({"ts": pa.int64(), "name": pa.string()}))
    with pytest.raises(ouzel.QueryError, match=message):
        held.add_template("t", stream().select(condition), [{"id": 1, "p": value}])
    # Alone it has no index, so it may be anything.
    held.add("one", stream().select(condition), params={"p": value})
    held.push([{"ts": 1, "name": value}])
    assert held.finish()["one"].num_rows == 1


def test_beginnings_of_texts_share_lanes() -> None:
    rng = random.Random("beginnings")
    count = min(case_count(300), 300)
    names = ["".join(rng.choices("ab\u00e9\U0001f40d", k=rng.randint(0, 14))) for _ in range(count)]
    held = ouzel.QuerySet(type=None, schema=pa.schema({"ts": pa.int64(), "name": pa.string()}))
    beginnings = [name[: rng.randint(0, 14)] for name in names]
    for number, beginning in enumerate(beginnings):
        held.add(number, stream().select(f"name LIKE '{beginning}%'"))
    rows = [{"ts": ts, "name": name} for ts, name in enumerate(names)]
    answers = [held.push(rows), held.finish()]
    found = {
        number: [end for part in answers if number in part for end in part[number]["end"].to_pylist()]
        for number in range(count)
    }
    for number, beginning in enumerate(beginnings):
        assert found[number] == [ts for ts, name in enumerate(names) if name.startswith(beginning)]
    # Equal ones are merged, and no other one is tested.
    assert held.statistics["static_matches"] <= sum(map(len, found.values()))


def test_a_bound_on_time_is_seen_beside_many_alternatives() -> None:
    """The alternatives of the operand's test and of theta are too many together; DUR <= 4 must not be lost in theta."""
    operand = stream().select("DUR = 5 OR price IN (1, 2) OR price < price OR NOT (price NOT IN (0, 3))")
    theta = "((price = 2 OR name IS NOT NULL) AND name <= 'x' OR (DUR < 1 OR 1 = price.last OR DUR >= 1) AND DUR <= 2)"
    held = ouzel.QuerySet(time="ts")
    held.add("q", S.next(operand, f"{theta} AND DUR <= 4"))
    rows = random_quotes(random.Random(1), 40)
    held.push(rows)
    assert held.finish()["q"].num_rows > 0
