"""Comparing the embedded engine with the oracle on random cases, in every way of feeding it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Iterable
from typing import Any

import ouzel
from ouzel.algebra import Stream
from ouzel.plan.choose import all_rules
from ouzel.runtime.engine import match_without
from tests.generate.cases import Case
from tests.oracle.values import sort_key

Way = Callable[[Case, random.Random], Any]


def case_count(usual: int) -> int:
    """How many random cases a suite runs: all of OUZEL_RANDOM_CASES, or a share of the usual number."""
    given = os.environ.get("OUZEL_RANDOM_CASES")
    return int(given) if given else max(1, round(usual * float(os.environ.get("OUZEL_RANDOM_SHARE", "1"))))


def agree(case: Case, ways: Iterable[Way], rng: random.Random, name: object = "") -> bool:
    """Assert that each way of running gives the oracle's answer; true if that answer has rows."""
    want = case.expected()
    for way in ways:
        wrong = case.difference(way(case, rng), want)
        assert wrong is None, f"case {name}, {way.__name__}: {wrong}\n{case}"
    return bool(want)


# ── Ways of running ────────────────────────────────────────────────────────────────────────────────


def matched(case: Case, rules_off: Collection[str] = (), **options: Any) -> Any:
    found = match_without(rules_off, case.table, case.query, **case.options, **options)
    return case.read((found["query"] if isinstance(found, dict) else found).to_pylist())


def whole(case: Case, rng: random.Random) -> Any:
    return matched(case)


def rules_off(case: Case, rng: random.Random) -> Any:
    """Without some of the planner's rules."""
    return matched(case, rules_off=random_rules(rng))


def random_rules(rng: random.Random) -> list[str]:
    return [rule.name for rule in all_rules() if rng.random() < 0.4]


def streamed(case: Case, rng: random.Random, **options: Any) -> Any:
    """In batches of random sizes, shuffled within an allowed delay, restored from snapshots in between."""
    table = case.table
    times = table["time"].to_pylist()
    order = case.options.get("order", ())
    by_arrival = order == "arrival"
    delay = 0 if by_arrival else rng.choice([0, 0, 1, 3, 100])
    # An event may come after one that is at most `delay` later: sort by time plus a random part of the delay.
    arrival = sorted(range(len(times)), key=lambda row: (times[row] + rng.uniform(0, delay), rng.random()))
    names = () if by_arrival else order
    moments = [
        (times[row], row if by_arrival else [sort_key(table[name][row].as_py()) for name in names])
        for row in range(len(times))
    ]
    if order and not delay:
        # An event at or before the last time and order is late.
        arrival.sort(key=lambda row: moments[row])
    engine = ouzel.Engine(case.query, max_delay=delay, **case.options, **options)
    rows: list[Any] = []
    start = 0
    while start < len(arrival):
        size = rng.choice([1, 1, 2, 3, 8])
        while order and not delay and _divides(arrival, start + size, moments):
            size += 1
        rows += engine.push(table.take(arrival[start : start + size]))["query"].to_pylist()
        start += size
        if rng.random() < 0.4:
            engine = ouzel.Engine.restore(engine.snapshot())
        if rng.random() < 0.1 and engine.watermark is not None:
            rows += engine.advance(engine.watermark)["query"].to_pylist()
    assert engine.late == 0
    finished = engine.finish()
    return case.read([*rows, *finished["query"].to_pylist()] if finished else rows)


def _divides(arrival: list[int], place: int, moments: list[Any]) -> bool:
    """Whether events before and after a place are simultaneous."""
    return place < len(arrival) and moments[arrival[place - 1]] == moments[arrival[place]]


def ways_of(case: Case) -> tuple[Way, ...]:
    """Whole, with rules off and, if the query can run on a stream, streamed."""
    return (whole, rules_off, streamed) if case.can_stream else (whole, rules_off)


def answered(expression: Stream, events: Any) -> list[dict[str, Any]]:
    """The rows of an algebra expression over a whole stream."""
    return ouzel.match(events, expression, time="time").to_pylist()
