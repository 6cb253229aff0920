"""Runs found by their values, negation on merged runs and hashed equalities give the oracle's answers."""

from __future__ import annotations

import random

import pytest

import ouzel
from ouzel.engines.kleene import operator as runs
from ouzel.runtime.engine import match_without
from tests.agreement import case_count, matched, random_rules, streamed
from tests.generate import random_case
from tests.generate.cases import RandomCase, counted
from tests.generate.events import VALUES
from tests.oracle.events import Event

CASES = case_count(500) // 5

WRITTEN = (
    "PATTERN SEQ(A a, B b, C c) WHERE {s}(a, b, c) {{ a.id = b.id AND a.id = c.id }}",
    "PATTERN SEQ(A a, !(C c), B b) WHERE {s}(a, c, b) {{ a.id = b.id AND c.id = a.id }}",
    "PATTERN SEQ(A a, !(C c), B b) WHERE {s}(a, c, b) {{ a.id = b.id AND c.x > a.x }}",
    "PATTERN SEQ(A a, !(A c), B b) WHERE {s}(a, c, b) {{ a.id = b.id AND c.x > a.x }}",
    "PATTERN SEQ(A+ a[], B b) WHERE {s}(a[], b) {{ a[i].id = a[i-1].id AND b.id = a[1].id }}",
    "PATTERN SEQ(A+ a[], B b) WHERE {s}(a[], b) {{ a.id = b.id }}",
    "PATTERN SEQ(A+ a[], !(C c), B b) WHERE {s}(a[], c, b) "
    "{{ a[i].id = a[1].id AND b.id = a[a.LEN].id AND c.id = a[i].id }}",
    "PATTERN SEQ(A a, B+ b[]) WHERE {s}(a, b[]) {{ b.id = a.id AND b[i].x >= b[i-1].x }}",
    "PATTERN SEQ(A a, B b, A c) WHERE {s}(a, b, c) "
    "{{ [s] AND a.id = b.id AND c.id = b.id AND a.f = b.f AND c.f = a.f }}",
    "PATTERN SEQ(A a, B b) WHERE {s}(a, b) {{ a.id = b.id }} OUTPUT NON_OVERLAPPING",
)
NEGATIVES = (
    "PATTERN SEQ(A+ a[], !(C c), B b) WHERE {s}(a[], c, b) {{ {eq} }}",
    "PATTERN SEQ(!(C c), A+ a[], B b) WHERE {s}(c, a[], b) {{ {eq} }}",
    "PATTERN SEQ(A+ a[], !(C c), B b) WHERE {s}(a[], c, b) {{ {eq} AND c.x > a[1].x AND c.x >= b.x }}",
    "PATTERN SEQ(A+ a[], !(C c), B b) WHERE {s}(a[], c, b) {{ {eq} AND c.x > avg(a[].x) }}",
    "PATTERN SEQ(A a, !(C c), B+ b[], !(D d), A e) WHERE {s}(a, c, b[], d, e) {{ {eq} AND b[i].x > b[i-1].x }}",
    "PATTERN SEQ(A a, !(B c), A+ b[]) WHERE {s}(a, c, b[]) {{ {eq} AND b[i].x > a.x }}",
)


def _events(rng: random.Random) -> list[Event]:
    events, time = [], 0
    for number in range(rng.randint(6, 14)):
        time += rng.choice([0, 1, 1, 2])
        own = {name: rng.choice(values) for name, values in VALUES.items()}
        kind = rng.choice("AAABBCD")
        events.append(Event(kind, time, time, {**own, "n": number, "time": time, "type": kind}))
    return events


def _agrees(case: RandomCase, rng: random.Random) -> bool:
    want = case.expected()
    assert matched(case) == want, case.text
    off = random_rules(rng)
    assert matched(case, rules_off=off) == want, f"without {off}: {case.text}"
    assert streamed(case, rng) == want, f"streamed: {case.text}"
    return bool(want)


@pytest.mark.parametrize("templates", [WRITTEN, NEGATIVES], ids=["written", "negatives"])
def test_written_equalities_and_late_negation(templates: tuple[str, ...]) -> None:
    matching = 0
    for number in range(CASES):
        rng = random.Random(f"many runs {number}")
        strategy = rng.choice(["skip_till_next_match", "skip_till_next_match", "skip_till_any_match"])
        equal = rng.choice(["[id]", "a.x >= 0"])
        text = rng.choice(templates).format(s=strategy, eq=equal)
        form = " WITHIN 6 OUTPUT" if "OUTPUT" in text else ""
        text = text.replace(" OUTPUT", form) if form else f"{text} WITHIN 6"
        matching += _agrees(RandomCase(text, _events(rng), None), rng)
    assert matching > CASES / 5, "too few cases match for their agreement to mean much"


def test_runs_found_by_value_equal_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "INDEX_MIN", 1)
    for number in range(CASES):
        rng = random.Random(f"indexed {number}")
        case = random_case(rng, "kleene")
        want = case.expected()
        assert matched(case) == want, f"case {number}:\n{case.text}"
        if "WITHIN" in case.text:
            assert streamed(case, rng) == want, f"case {number}, streamed:\n{case.text}"


def test_runs_that_left_the_window_are_in_no_new_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees do not show them the event with which they leave it, and what they have bound is stored no more."""
    monkeypatch.setattr(runs, "INDEX_MIN", 2)
    query = (
        "PATTERN SEQ(B a, A b, A c) WHERE skip_till_next_match(a, b, c) "
        "{ b.x > a.x AND b.f > a.f AND c.f <= a.f } WITHIN 20"
    )
    engine = ouzel.Engine(query)
    engine.push([{"type": "B", "ts": ts, "x": 0, "f": 5.0} for ts in range(5)])
    engine.push([{"type": "A", "ts": 5, "x": 1, "f": 9.0}, {"type": "B", "ts": 15, "x": 0, "f": 5.0}])
    engine.push([{"type": "A", "ts": 30, "x": 1, "f": 9.0}])
    engine.push([{"type": "B", "ts": 31, "x": 0, "f": 5.0}])
    engine = ouzel.Engine.restore(engine.snapshot())
    engine.push([{"type": "C", "ts": 32, "x": 1, "f": 9.0}])
    session = engine._session
    assert session is not None and session.open_runs["query"] == 2


def test_written_equalities_are_hashed_under_next_match() -> None:
    types = {name: {"tag": "bigint"} for name in "ABC"}
    chain = (
        "PATTERN SEQ(A x, !(B y), C z) WHERE skip_till_next_match(x, y, z) { x.tag = y.tag AND x.tag = z.tag } WITHIN 9"
    )
    assert "hashed by x.tag = z.tag" in ouzel.explain(ouzel.query(chain, types))
    delayed = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a.tag = b.tag } WITHIN 9"
    assert "hashed by" not in ouzel.explain(ouzel.query(delayed, types))


def test_runs_are_merged_beside_a_negative() -> None:
    text = "PATTERN SEQ(A+ a[], !(C c), B b) WHERE skip_till_next_match(a[], c, b) { a.x > 0 } WITHIN 9"
    assert "merge_runs" in ouzel.explain(text)
    at_end = text.replace("!(C c), B b", "B b, !(C c)").replace("c, b)", "b, c)")
    assert "merge_runs" not in ouzel.explain(at_end)


def test_a_limit_counts_open_runs_only() -> None:
    """Runs that left the window while nothing looked for them do not count."""
    count = 3000
    events = [{"type": "A", "ts": ts, "x": 0} for ts in range(count)] + [{"type": "B", "ts": count, "x": 1}]
    query = "PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { a.x < b.x } WITHIN 500"
    found = ouzel.match(events, query, limits={"max_partial_matches": 1000})
    assert found.num_rows == 499


def random_choices(rng: random.Random) -> tuple[str, list[dict[str, object]]]:
    """A query under skip_till_any_match whose choices cannot share a graph, and few events for it."""
    taken = rng.choice(
        (
            "a[i].x > max(a[..i-1].x)",
            "a[i].x >= avg(a[..i-1].x)",
            "a[i].x + sum(a[..i-1].x) < 9",
            "count(a[..i-1].x) < 3",
            "a[i].x != a[1].x",
        )
    )
    last = rng.choice(("", " AND b.x < a[1].x", " AND b.x < max(a[].x)", " AND b.x > a[a.LEN].x"))
    steps = f"{rng.choice(('', 'C c, '))}A+ a[], {rng.choice(('', '', 'M m, ', 'M+ m[], '))}B b"
    query = f"PATTERN SEQ({steps}) WHERE skip_till_any_match {{ {taken}{last} }} WITHIN {rng.choice([5, 8, 12])}"
    events, ts = [], 0
    for _ in range(rng.randint(5, 14)):
        ts += rng.choice([0, 1, 1])
        events.append({"ts": ts, "type": rng.choice("AAABMC"), "x": rng.choice([None, 1, 2, 3])})
    return query, events


def test_choices_with_the_same_future_are_merged() -> None:
    for number in range(case_count(100)):
        query, events = random_choices(random.Random(f"choices {number}"))
        wanted = counted(match_without(["merge_runs"], events, query).to_pylist())
        assert counted(ouzel.match(events, query).to_pylist()) == wanted, f"case {number}: {query}"
    assert "merge_runs" in ouzel.explain(query)
