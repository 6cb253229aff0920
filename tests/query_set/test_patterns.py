"""Pattern queries and aggregates in a set: what can share does, and answers stay those of one by one."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ouzel
from tests.agreement import case_count
from tests.generate import random_case
from tests.generate.cases import COLUMNS, SCHEMA, counted

SETS = max(4, case_count(500) // 80)
FOREVER = 2**63 - 1


def widened(rng: random.Random, text: str) -> str:
    """The same pattern with other columns, or with another constant."""
    if "RETURN" in text and rng.random() < 0.5:
        head, _ = text.split("RETURN")
        name = rng.choice(["z", "y"])
        return f"{head}RETURN Other({rng.choice(['a.n', 'a.x', 'a.time'])} AS {name}{rng.randint(0, 2)})"
    if rng.random() < 0.4 and (within := re.search(r"WITHIN \d+", text)):
        return text.replace(within[0], f"WITHIN {rng.choice([1, 2, 9, 20])}")
    if rng.random() < 0.3 and (test := re.search(r" AND b\.n > a\.n| AND b\.x <= 1", text)):
        # The same query without a condition, or with one between events.
        return text.replace(test[0], rng.choice(["", " AND b.n > a.n", " AND a.x <= b.x"]))
    return text.replace(" 1", f" {rng.randint(0, 2)}", 1)


def random_text(rng: random.Random, known: list[str]) -> str:
    if known and rng.random() < 0.4:
        return widened(rng, rng.choice(known))
    kind = rng.choice(["pairs", "pairs", "sase", "kleene", "aggregate"])
    if kind == "aggregate":
        return random_case(rng, "aggregate").text
    if kind != "pairs":
        return random_case(rng, kind).text
    where = [
        rng.choice(["[id]", "[s]", "[id = 1]", "a.s = b.s", "a.x < b.y", "a.f >= b.f", "b.s = 'u'", "a.x + b.x > 2"])
    ]
    where += rng.sample(["a.x > 1", "b.x <= 1", "a.f < 1", "(a.x = 1 OR b.x = 1)", "a.s IN ('u', 'v')", "b.n > a.n"], 1)
    types = [rng.choice("ABC") for _ in range(4)]
    components = f"{types[0]} a, {types[1]} b"
    if rng.random() < 0.5:
        negated = rng.choice(["", f"!({types[2]} d), "])
        components += f", {negated}{types[3]} c"
        where.append(rng.choice(["c.x <= 1", "c.f > 1", "0 < c.y", "c.s = a.s", "c.x = b.y"]))
    return (
        f"PATTERN SEQ({components}) WHERE {' AND '.join(where)} WITHIN {rng.randint(1, 9)} "
        "RETURN R(a.n AS a_n, b.n AS b_n, b.x / 1 AS value, b.time AS at)"
    )


def random_events(rng: random.Random, count: int) -> pa.Table:
    parts: list[pa.Table] = []
    last = 0
    while sum(part.num_rows for part in parts) < count:
        part = random_case(rng, "sase").table.sort_by("time")
        part = part.set_column(1, "time", pc.add(part["time"], last))
        last = pc.max(part["time"]).as_py() + rng.choice([0, 1])
        parts.append(part)
    return pa.concat_tables(parts).combine_chunks()


def is_streamable(text: str) -> bool:
    held = ouzel.QuerySet(schema=SCHEMA, **COLUMNS)
    try:
        held.add(0, text)
    except ouzel.OuzelError:
        return False
    return True


def test_random_patterns_and_aggregates_answer_as_one_by_one() -> None:
    assert sum(compare(random.Random(f"patterns {number}")) for number in range(SETS)) > 20 * SETS


def compare(rng: random.Random) -> int:
    """Run a set and its queries alone; gives how many answers there were."""
    table = random_events(rng, 40)
    held = ouzel.QuerySet(**COLUMNS)
    engines: dict[int, ouzel.Engine] = {}
    texts: list[str] = []
    removed: set[int] = set()
    ours: dict[int, list[dict[str, Any]]] = {}
    theirs: dict[int, list[dict[str, Any]]] = {}

    def add(count: int) -> None:
        for _ in range(count):
            text = random_text(rng, texts)
            while not is_streamable(text):
                text = random_text(rng, texts)
            held.add(len(texts), text)
            engines[len(texts)] = ouzel.Engine(text, **COLUMNS)
            # Events that wait until no earlier one can come are seen, too.
            seen = table.slice(0, start)
            waiting = seen if held.watermark is None else seen.filter(pc.greater(seen["time"], held.watermark))
            if waiting.num_rows:
                theirs[len(texts)] = next(iter(engines[len(texts)].push(waiting).values())).to_pylist()
            texts.append(text)

    def keep(answers: dict[int, pa.Table]) -> None:
        for id, answer in answers.items():
            for row in answer.to_pylist():
                assert row.pop("query") == id
                ours.setdefault(id, []).append(row)

    def step(act: Any) -> None:
        for id, engine in engines.items():
            if id not in removed:
                theirs.setdefault(id, []).extend(next(iter(act(engine).values()), pa.table({})).to_pylist())

    start = 0
    add(10)
    while start < table.num_rows:
        batch = table.slice(start, rng.choice([1, 4, 12]))
        start += batch.num_rows
        # A query that was added between batches takes later events only: those that are not late for the set.
        watermark = held.watermark if held.watermark is not None else -(2**63)
        keep(held.push(batch))
        seen = batch.filter(pc.greater(batch["time"], watermark))
        if seen.num_rows:
            step(lambda engine, seen=seen: engine.push(seen))
        if rng.random() < 0.2:
            held = ouzel.QuerySet.restore(held.snapshot())
        if rng.random() < 0.5:
            add(rng.randint(1, 3))
        if rng.random() < 0.3:
            for id in rng.sample([id for id in engines if id not in removed], 2):
                held.remove(id)
                removed.add(id)
    keep(held.finish())
    step(lambda engine: engine.finish())
    for id, text in enumerate(texts):
        assert counted(ours.get(id, ())) == counted(theirs.get(id, ())), f"query {id}: {text}"
    return sum(map(len, ours.values()))


def quote(ts: int, name: str, price: float) -> dict[str, Any]:
    return {"type": "Stock", "ts": ts, "name": name, "price": price}


def test_explain_says_what_patterns_share() -> None:
    held = ouzel.QuerySet()
    rises = "PATTERN SEQ(Stock a, Stock b) WHERE [name] AND a.price > {} WITHIN 9 RETURN Rise(b.price AS price)"
    longer = "PATTERN SEQ(Stock a, Stock b, !(Stock c), Stock d) WHERE [name] WITHIN 9 RETURN {}"
    counts = "PATTERN SEQ(Stock, Order, Sale{}) WITHIN 9 AGG COUNT"
    for number in range(3):
        held.add(f"rise {number}", rises.format(2 * number))
    for name, columns in (
        ("one", "R(a.price AS p)"),
        ("two", "S(x.price AS q, d.price AS p)"),
        ("three", "T(d.price AS d)"),
    ):
        text = longer.format(columns)
        held.add(name, text.replace("Stock a", "Stock x") if name == "two" else text)
    for number in range(8):
        held.add(f"count {number}", counts.format(number))
    held.push([quote(1, "IBM", 5.0)])
    shown = held.explain()
    assert "3 queries of 1 shape, 3 of them patterns" in shown
    assert "11 unmerged queries, run as 9, which read events once" in shown
    assert "3 of them differ in names and RETURN only, and run as 1" in shown
    assert "share counters" in shown
    held.push([quote(2, "IBM", 6.0), quote(3, "IBM", 7.5)])
    found = held.finish()
    assert found["two"].column_names == ["query", "start", "end", "q", "p"]
    assert [found[f"rise {number}"].num_rows for number in range(3)] == [2, 2, 2]


def test_a_pattern_that_joins_an_equal_one_sees_later_events_only() -> None:
    text = "PATTERN SEQ(Stock a, Stock b, Stock c) WHERE skip_till_next_match(a, b, c) { [name] } WITHIN 9 RETURN "
    held = ouzel.QuerySet()
    held.add("old", text + "R(a.price AS p)")
    held.push([quote(1, "IBM", 1.0), quote(2, "IBM", 2.0), quote(3, "IBM", 3.0)])
    held.add("new", text + "S(a.price AS q)")
    held.push([quote(4, "IBM", 4.0), quote(5, "IBM", 5.0)])
    assert "run as 1" in held.explain()
    assert held.remove("old") == 1
    assert held.finish()["new"].to_pylist() == [{"query": "new", "start": 3, "end": 5, "q": 3.0}]


def test_long_patterns_that_differ_in_constants_are_merged() -> None:
    where = "[name] AND a.price > {} AND 9 >= c.price"
    text = f"PATTERN SEQ(Stock a, Stock b, Stock c) WHERE {where} WITHIN 9 RETURN R(c.ts AS t)"
    held = ouzel.QuerySet()
    for limit in (2, 1, 3):
        held.add(limit, text.format(limit))
    held.push([quote(1, "IBM", 1.5), quote(2, "IBM", 2.5)])
    held.add("more", text.format(2))
    held.add("less", text.format(0))
    found = held.push([quote(3, "IBM", 3.5), quote(4, "IBM", 9.0), quote(5, "IBM", 9.5)])
    starts = {id: sorted(answer["start"].to_pylist()) for id, answer in found.items()}
    # 9.5 at the end is too much. The younger ones saw the event at 2, which waited, and no earlier one.
    assert starts == {1: [1, 1, 1, 2], 2: [2], "more": [2], "less": [2]}
    assert "5 queries of 1 shape, 5 of them patterns" in held.explain()


def test_long_patterns_without_an_equality_are_not_merged() -> None:
    held = ouzel.QuerySet()
    held.add(
        1, "PATTERN SEQ(Stock a, Stock b, Stock c) WHERE [name] AND a.price > c.price WITHIN 9 RETURN R(c.ts AS t)"
    )
    held.add(2, "PATTERN SEQ(Stock a, Stock b, Stock c) WHERE a.name = c.name WITHIN 9 RETURN R(c.ts AS t)")
    held.push([quote(1, "IBM", 1.5)])
    assert held.statistics["alone"] == 1


@pytest.mark.parametrize("tail", ["", " WITHIN 1000", " WITHIN 1000 EMIT ON CHANGE"])
@pytest.mark.parametrize("removed_at", [50, 80])
def test_an_aggregate_that_was_removed_can_no_longer_fail(tail: str, removed_at: int) -> None:
    """All but `kept` pass what 64 bits hold, together with others or alone; at 80 events they are apart already."""

    def text(length: int, aggregate: str) -> str:
        return f"PATTERN SEQ({', '.join(f'A a{k}' for k in range(length))}) AGG {aggregate}{tail}"

    def events(first: int, last: int) -> list[dict[str, Any]]:
        return [{"type": "A", "ts": ts, "x": 1} for ts in range(first, last)]

    held = ouzel.QuerySet()
    held.add("long", text(20, "COUNT"))
    held.add("kept", text(12, "COUNT"))
    held.add("wide", text(24, "COUNT AS DECIMAL"))
    held.add("alone", text(20, "MAX(a3.x), COUNT"))
    counts: list[int] = []
    for first in range(0, 100, 10):
        if first == removed_at:
            for id in ("long", "wide", "alone"):
                held.remove(id)
        if first == 90:
            held = ouzel.QuerySet.restore(held.snapshot())
        found = held.push(events(first, first + 10))
        assert first < removed_at or found.keys() <= {"kept"}
        counts += found["kept"]["count"].to_pylist() if "kept" in found else []
    counts += [row["count"] for row in held.finish()["kept"].to_pylist() if row["end"] < 100]
    assert counts == [math.comb(ts + 1, 12) for ts in range(11, 100)]
