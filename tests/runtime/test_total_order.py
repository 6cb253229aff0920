"""The columns of order= order the events of one time, in every engine and however events come."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

import ouzel
from ouzel.runtime import moments
from tests.agreement import agree, case_count, matched, ways_of
from tests.generate import random_case
from tests.generate.ordered import with_order

CASES = case_count(600)
PARTS = 20
PROFILES = ("sase", "kleene", "readings", "aggregate", "lasting")


@pytest.mark.quick
@pytest.mark.parametrize("part", range(PARTS))
def test_random_cases_with_an_order(part: int) -> None:
    matching = tried = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"order {number}")
        case = with_order(random_case(rng, PROFILES[number // PARTS % len(PROFILES)]), rng)
        if "EMIT ON CHANGE" in case.text:
            continue
        tried += 1
        matching += agree(case, ways_of(case), rng, number)
    assert CASES < 600 or matching > 0.1 * tried, "too few cases match for their agreement to mean much"


def test_a_broken_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rngs = [random.Random(f"broken {number}") for number in range(40)]
    cases = [with_order(random_case(rng, "sase"), rng) for rng in rngs]
    monkeypatch.setattr(moments, "_dense", lambda groups, keys: np.zeros(len(groups), np.int64))
    assert any(case.difference(matched(case), case.expected()) for case in cases)


PAIR = "PATTERN SEQ(A a, B b) WITHIN 5 RETURN Pair(a.n AS a, b.n AS b)"


def _events(text: str) -> list[dict[str, Any]]:
    """`a1.2` is an A at time 1 with the order 2; `n` numbers the events."""
    found = []
    for number, word in enumerate(text.split()):
        time, _, seq = word[1:].partition(".")
        found.append({"type": word[0].upper(), "ts": int(time), "seq": int(seq or 0), "n": number})
    return found


def _pushed(engine: Any, events: list[dict[str, Any]], name: str = "query") -> list[list[tuple[int, int]]]:
    """The pairs that the push of each event returns."""
    found = []
    for event in events:
        answer = engine.push([event]).get(name)
        found.append([] if answer is None else [(row["a"], row["b"]) for row in answer.to_pylist()])
    return found


@pytest.mark.parametrize("order", ["arrival", ["seq"]])
def test_push_returns_what_its_events_complete(order: Any) -> None:
    engine = ouzel.Engine(PAIR, order=order)
    assert _pushed(engine, _events("a1.1 b1.2 a1.3 b1.4 b2.1")) == [
        [],
        [(0, 1)],
        [],
        [(2, 3), (0, 3)],
        [(2, 4), (0, 4)],
    ]
    assert engine.finish()["query"].num_rows == 0


def test_arrival_decides_whatever_the_columns_hold() -> None:
    events = _events("b1.9 a1.5 b1.1")
    assert [row["b"] for row in ouzel.match(events, PAIR, order="arrival").to_pylist()] == [2]
    assert [row["b"] for row in ouzel.match(events, PAIR, order=["seq"]).to_pylist()] == [0]


def test_an_event_before_the_last_time_is_late_by_arrival() -> None:
    engine = ouzel.Engine(PAIR, order="arrival", keep_late=True)
    assert _pushed(engine, _events("a5 b4 b5")) == [[], [], [(0, 2)]]
    assert engine.late == 1
    assert engine.take_late()["n"].to_pylist() == [1]


def test_an_event_at_or_before_the_last_order_is_late() -> None:
    engine = ouzel.Engine(PAIR, order=["seq"])
    assert _pushed(engine, _events("a5.2 b5.2 b5.1 b5.3")) == [[], [], [], [(0, 3)]]
    assert engine.late == 2


def test_with_a_delay_events_wait_for_their_order() -> None:
    engine = ouzel.Engine(PAIR, order=["seq"], max_delay=1)
    assert _pushed(engine, _events("b5.2 a5.1 b6.1 c7.1")) == [[], [], [], [(1, 0)]]
    assert engine.held_events > 0
    restored = ouzel.Engine.restore(engine.snapshot())
    assert [(row["a"], row["b"]) for row in restored.finish()["query"].to_pylist()] == [(1, 2)]


@pytest.mark.parametrize("order", ["arrival", ["seq"]])
def test_a_snapshot_keeps_the_last_order(order: Any) -> None:
    engine = ouzel.Engine(PAIR, order=order)
    assert _pushed(engine, _events("a1.1 b1.2")) == [[], [(0, 1)]]
    engine = ouzel.Engine.restore(engine.snapshot())
    late = _events("b1.2 b1.3")
    assert _pushed(engine, late) == ([[(0, 0)], [(0, 1)]] if order == "arrival" else [[], [(0, 1)]])
    assert engine.late == (0 if order == "arrival" else 1)


@pytest.mark.parametrize("order", ["arrival", ["seq"]])
def test_a_set_returns_what_its_events_complete(order: Any) -> None:
    queries = ouzel.QuerySet(order=order)
    queries.add("pair", PAIR)
    assert _pushed(queries, _events("a1.1 b1.2"), "pair") == [[], [(0, 1)]]
    queries = ouzel.QuerySet.restore(queries.snapshot())
    assert _pushed(queries, _events("b1.3 a2.1 b2.2"), "pair") == [[(0, 0)], [], [(1, 2), (0, 2)]]


def test_a_count_waits_for_its_time() -> None:
    engine = ouzel.Engine("PATTERN SEQ(A a, B b) AGG COUNT WITHIN 5", order="arrival")
    counts = [engine.push([event])["query"].to_pylist() for event in _events("a1 b1 b1 c2")]
    assert counts == [[], [], [], [{"end": 1, "count": 2}]]


def test_refused_orders() -> None:
    with pytest.raises(ouzel.InputError, match="reads events in the order of arrival, so max_delay=3 cannot apply"):
        ouzel.Engine(PAIR, order="arrival", max_delay=3).push(_events("a1"))
    with pytest.raises(ouzel.InputError, match="order='arrival' needs one input"):
        ouzel.match({"A": _events("a1"), "B": _events("b1")}, PAIR, order="arrival")
    with pytest.raises(ouzel.InputError, match="EMIT ON CHANGE, which reads the events of one time together"):
        ouzel.match(_events("a1"), "PATTERN SEQ(A a, B b) AGG COUNT WITHIN 5 EMIT ON CHANGE", order=["seq"])


def test_more_events_of_one_time_than_fit_are_refused() -> None:
    engine = ouzel.Engine(PAIR, order=["seq"])
    engine.push(_events("a1"))
    with pytest.raises(ouzel.InputError, match="must have at most 2,048 different values at one time"):
        engine.push([{"type": "A", "ts": 2, "seq": number, "n": 0} for number in range(3000)])
    # Nothing of the refused events was read, and the engine continues.
    assert engine.push(_events("b2.5"))["query"].num_rows == 1 and engine.late == 0
    many = [{"type": "A", "ts": 2, "seq": number, "n": 0} for number in range(3000)]
    assert ouzel.match([*many, *_events("b3")], PAIR, order=["seq"]).num_rows == 3000


def test_more_events_that_wait_at_one_time_than_fit_are_refused() -> None:
    engine = ouzel.Engine(PAIR, order=["seq"], max_delay=2)
    for time in range(1, 6):
        engine.push(_events(f"a{time}"))
    for _ in range(30):
        # More events, but of few orders.
        engine.push([{"type": "A", "ts": 6, "seq": number, "n": 0} for number in range(100)])
    with pytest.raises(ouzel.InputError, match="must have at most 2,048 different values at one time"):
        engine.push([{"type": "A", "ts": 6, "seq": number, "n": 0} for number in range(3000)])
    # The watermark passes the others.
    assert engine.push(_events("b6.100 c9"))["query"].num_rows == 3_004 and engine.late == 0


def test_times_too_far_from_the_first_are_refused() -> None:
    engine = ouzel.Engine(PAIR, order=["seq"])
    engine.push(_events("a1"))
    with pytest.raises(ouzel.InputError, match="ticks from its first ones"):
        engine.push(_events(f"a{2**52}"))
    assert engine.push(_events("b2"))["query"].num_rows == 1 and engine.late == 0


def test_why_follows_the_order() -> None:
    events = _events("b1.1 a1.2 b1.3")
    why = ouzel.why(events, PAIR, 1, order=["seq"])
    assert "match" in str(why) and "no match" not in str(why)


def _seconds(count: int, keys: int) -> list[dict[str, Any]]:
    """Four events in each second."""
    return [{"type": "AB"[n % 2], "ts": n // 4, "id": n % keys, "n": n} for n in range(count)]


def test_many_events_of_one_time_and_key_are_warned_of() -> None:
    keyed = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 2 RETURN a.n AS a"
    with pytest.warns(ouzel.OrderWarning, match="of the first 400 events 400 have the time and key of another event"):
        ouzel.match(_seconds(400, 2), keyed)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ouzel.OrderWarning)
        ouzel.match(_seconds(400, 4), keyed)
        ouzel.match(_seconds(400, 2), keyed, order=["n"])
        ouzel.match(_seconds(80, 2), keyed)
        ouzel.match(_seconds(400, 2), "PATTERN A a WITHIN 2 RETURN a.n AS a")
