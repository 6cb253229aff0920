"""Odd streams and patterns beside the oracle: nothing, one event, all at once, closures at either end, keys in turn."""

from __future__ import annotations

import itertools
import random
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import ouzel
from tests.agreement import matched, streamed
from tests.generate.cases import COLUMNS, RandomCase, counted
from tests.oracle import oracle
from tests.oracle.events import Event

# Letters are types, a digit behind one its time (else one tick after the event before), a mark the second key.
STREAMS = {
    "nothing": "",
    "one": "A",
    "only the last": "B",
    "one match": "AB",
    "all at once": "A1 A1' B1 B1' C1",
    "pairs at once": "A1 A1 B2 B2 C3 A3 B3",
    "the last twice": "A B B A B",
    "forbidden at once": "A1 C1 A2 C2 B2 C3 B3",
    "forbidden between": "A C A B C B",
    "keys in turn": "A A' A B' B A' C B' B",
    "a key falls silent": "A' A B A B A B A B B'",
    "only the first": "A A A A",
    "far apart": "A1 A9 B10 A18 B19 B27",
}
PATTERNS = {
    "loop": "SEQ(A+ a[], B b)",
    "alone": "A+ a[]",
    "at the end": "SEQ(A a, B+ b[])",
    "two": "SEQ(A+ a[], B+ b[])",
    "two and a gap": "SEQ(A+ a[], !(C c), B+ b[])",
    "gap behind": "SEQ(A+ a[], B b, !(C c))",
    "gap before": "SEQ(!(C c), A+ a[], B b)",
    "in the middle": "SEQ(A a, ANY(A, B)+ b[], B c)",
}
CONDITIONS = {
    "loop": ["[id]", "[id] AND a[i].x > a[i-1].x", "a[i].x >= min(a[..i-1].x) AND b.x != a[1].x", "a.LEN > 1"],
    "alone": ["[id]", "a[i].f >= a[i-1].f", "sum(a[].x) > 2"],
    "in the middle": ["[id]", "b[i].x >= first(b[..i-1].x)", "c.x >= a.x AND b.LEN <= 2"],
}
STRATEGIES = ("strict_contiguity", "partition_contiguity", "skip_till_next_match", "skip_till_any_match")
WINDOWS = ("WITHIN 4", "WITHIN 9", "WITHIN 3 EVENTS")
FORMS = ("ALL", "NON_OVERLAPPING", "FIRST", "SKIP TO FIRST a", "SKIP TO LAST a", "COMPRESSED")


def events(written: str, seed: int) -> list[Event]:
    rng = random.Random(seed)
    found: list[Event] = []
    marks = written.split() if " " in written else list(written)
    time = 0
    for number, mark in enumerate(marks):
        plain = mark.removesuffix("'")
        time = int(plain[1:]) if len(plain) > 1 else time + 1
        row = {"type": plain[0], "time": time, "n": number, "id": 1 + mark.endswith("'"), "x": rng.randrange(4)}
        row |= {"y": None, "f": rng.choice([0.0, -0.0, 1.5, float("nan"), None]), "s": None}
        found.append(Event(plain[0], time, time, row))
    return found


@cache
def odd_cases() -> list[tuple[str, RandomCase]]:
    """All of them; tests take every so many."""
    found = []
    for (stream, written), (pattern, seq), strategy, window, form in itertools.product(
        STREAMS.items(), PATTERNS.items(), STRATEGIES, WINDOWS, FORMS
    ):
        if "EVENTS" in window and pattern.startswith("gap"):
            continue
        for condition in CONDITIONS.get(pattern, ["[id]", "[id] AND a.x < 3"]):
            if "[id]" not in condition and strategy == "partition_contiguity":
                continue
            number = len(found)
            text = f"PATTERN {seq} WHERE {strategy} {{ {condition} }} {window} OUTPUT {form}"
            found.append((f"{stream}, {number}: {text}", RandomCase(text, events(written, number), None)))
    return found


# Every 101st: a prime, so that all streams, patterns and forms come together in turn.
STEP = 101


@pytest.mark.filterwarnings("ignore:query .query. found nothing")
@pytest.mark.parametrize("part", range(4))
def test_odd_cases(part: int) -> None:
    check_odd(odd_cases()[part * STEP :: 4 * STEP])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:query .query. found nothing")
@pytest.mark.parametrize("part", range(50))
def test_all_odd_cases(part: int) -> None:
    check_odd(odd_cases()[part::50])


def check_odd(cases: list[tuple[str, RandomCase]]) -> None:
    for name, case in cases:
        want = case.expected()
        assert matched(case) == want, name
        if case.events:
            assert streamed(case, random.Random(name)) == want, f"streamed: {name}"


@pytest.mark.filterwarnings("ignore:query .query. found nothing")
def test_compressed_rows_from_a_file_list_first_and_sampled_matches(tmp_path: Path) -> None:
    listed = 0
    for name, case in odd_cases()[::37]:
        if "COMPRESSED" not in case.text or not case.events:
            continue
        pq.write_table(ouzel.match(case.table, case.query, **COLUMNS), tmp_path / "rows.parquet")
        rows = pq.read_table(tmp_path / "rows.parquet")
        (results,) = oracle.answer(case.text, case.events).values()
        every = counted(m.row for r in results if isinstance(r, oracle.CompressedMatches) for m in r.matches)
        whole = ouzel.expand(rows, case.query, **COLUMNS)
        assert counted(whole.to_pylist()) == every, name
        total = sum(every.values())
        first = ouzel.expand(rows, case.query, first=2, **COLUMNS)
        assert repr(first.to_pylist()) == repr(whole.slice(0, 2).to_pylist()), name
        sampled = counted(ouzel.expand(rows, case.query, sample=3, seed=1, **COLUMNS).to_pylist())
        assert sampled <= every and sum(sampled.values()) == min(3, total), name
        listed += total
    assert listed > 20
