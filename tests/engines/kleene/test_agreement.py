"""Kleene closure, the strategies, windows in events and the forms of output equal the oracle, however they are fed."""

from __future__ import annotations

import random

import pytest

import ouzel
from ouzel.engines.kleene import operator as runs
from ouzel.runtime import codes
from tests.agreement import agree, case_count, matched, ways_of
from tests.generate import random_case
from tests.generate.cases import COLUMNS, RandomCase, counted
from tests.oracle import oracle

pytestmark = pytest.mark.quick

CASES = case_count(500)
PARTS = 25


@pytest.mark.parametrize("part", range(PARTS))
def test_random_kleene_queries(part: int) -> None:
    matching = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"kleene {number}")
        case = random_case(rng, "kleene")
        matching += agree(case, ways_of(case), rng, number)
        if "COMPRESSED" in case.text:
            assert listed(case) == listed_by_oracle(case), f"case {number}, listed:\n{case.text}"
    assert CASES < 500 or matching > 0.1 * CASES / PARTS, "too few cases match for their agreement to mean much"


@pytest.mark.parametrize("piece", [1, 2, 5])
def test_reading_in_pieces_changes_nothing(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_PIECE", piece)
    # Dead events make room after every piece, not only after thousands.
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    for number in range(CASES // 10):
        case = random_case(random.Random(f"pieces {piece} {number}"), "kleene")
        assert matched(case) == case.expected(), f"case {number}:\n{case.text}"


def test_events_that_follow_a_sweep_and_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room that they leave behind them holds no rows."""
    monkeypatch.setattr(runs, "_PIECE", 8)
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    events = [{"type": "AB"[n % 2], "time": n} for n in range(11)]
    query = "PATTERN SEQ(A a, B b) WITHIN 6 EVENTS RETURN P(a.time AS a, b.time AS b)"
    engine = ouzel.Engine(query, **COLUMNS)
    found = engine.push(events)["query"].num_rows + engine.finish()["query"].num_rows
    # Each B with every A that is at most five events before it.
    assert found == 1 + 2 + 3 * 3


def listed(case: RandomCase) -> list[tuple[str, int]]:
    rows = ouzel.match(case.table, case.query, **COLUMNS)
    return sorted(counted(ouzel.expand(rows, case.query, **COLUMNS).to_pylist()).items())


def listed_by_oracle(case: RandomCase) -> list[tuple[str, int]]:
    (results,) = oracle.answer(case.text, case.events, types=case.types).values()
    compressed = [result for result in results if isinstance(result, oracle.CompressedMatches)]
    return sorted(counted(match.row for result in compressed for match in result.matches).items())
