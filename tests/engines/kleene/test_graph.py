"""Bounded lengths, negation and the forms of output on the graph: they equal the oracle, and nothing else is tried."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from math import comb

import pyarrow as pa
import pytest

import ouzel
from ouzel.prepared import as_queries
from ouzel.runtime import codes
from ouzel.runtime.program import make_program
from ouzel.runtime.session import Session
from tests.agreement import case_count, matched, random_rules, streamed
from tests.engines.kleene.test_agreement import listed, listed_by_oracle
from tests.generate.cases import COLUMNS, RandomCase, counted
from tests.oracle import oracle
from tests.oracle.events import Event

CASES = case_count(500)
PARTS = 10
LENGTHS = (
    "{v}.LEN = 2",
    "{v}.LEN <= 2",
    "{v}.LEN < 4",
    "3 >= {v}.LEN",
    "{v}.LEN IN (1, 3)",
    "{v}.LEN BETWEEN 2 AND 3",
    "({v}.LEN = 1 OR {v}.LEN = 3)",
    "{v}.LEN < 4 AND {v}.LEN % 2 = 1",
    "{v}.LEN <= 3 AND {v}[LEN].x >= {v}.LEN",
    "count({v}[]) <= 2",
    "{v}.LEN >= 2",
    "{v}.LEN = 0",
)
FORMS = ("ALL", "NON_OVERLAPPING", "FIRST", "SKIP TO FIRST", "SKIP TO LAST", "COMPRESSED")


def random_graph_case(rng: random.Random) -> RandomCase:
    shape = rng.choice(
        ("+", "+.", "+.", ".+", ".+.", "++", "+.+", "+-.", ".-+", "+-+", "+-.-+", "..", ".-.", "...", ".")
    )
    names = dict(zip("abcde", shape, strict=False))
    positives = [name for name, kind in names.items() if kind != "-"]
    components, conditions = [], []
    for number, (name, kind) in enumerate(names.items()):
        type_name = rng.choice("AAABBC") if kind != "-" else rng.choice("BCC")
        components.append(
            {"+": f"{type_name}+ {name}[]", ".": f"{type_name} {name}", "-": f"!({type_name} {name})"}[kind]
        )
        if kind == "+" and rng.random() < 0.6:
            conditions.append(rng.choice(LENGTHS).format(v=name))
        if kind == "+" and rng.random() < 0.3:
            conditions.append(f"{name}[i].x {rng.choice(('>=', '!=', '<'))} {name}[i-1].x")
        before = [other for other in list(names)[:number] if names[other] != "-"]
        if kind == "-" and rng.random() < 0.5:
            after = list(names)[number + 1]
            other = rng.choice(
                (before[-1] + "[LEN]" * (names[before[-1]] == "+"), after + "[1]" * (names[after] == "+"))
            )
            conditions.append(f"{name}.x {rng.choice(('<', '=', '>='))} {other}.x")
        elif kind != "-" and before and rng.random() < 0.3:
            # Neighbours mostly; else runs have it.
            other = before[-1] if rng.random() < 0.8 else rng.choice(before)
            left = other + ("[LEN]" if names[other] == "+" else "")
            conditions.append(f"{name + ('[1]' if kind == '+' else '')}.x {rng.choice(('<', '>=', '!='))} {left}.x")
    if rng.random() < 0.3:
        conditions.append("[id]")
    text = f"PATTERN SEQ({', '.join(components)})"
    if conditions:
        text += f"\nWHERE {' AND '.join(conditions)}"
    text += f"\nWITHIN {rng.randint(2, 12)}{' EVENTS' * (rng.random() < 0.1)}"
    form = rng.choice(FORMS)
    text += f"\nOUTPUT {form}{' ' + rng.choice(positives) if form.startswith('SKIP') else ''}"
    events, time = [], 0
    for number in range(rng.randint(5, 10)):
        time += rng.choice((0, 1, 1, 1, 2))
        name = rng.choice("AAABBC")
        values = {"id": rng.choice((1, 1, 2)), "x": rng.choice((0, 1, 2, 3, None)), "y": None, "f": None, "s": None}
        events.append(Event(name, time, time, {"type": name, "time": time, "n": number, **values}))
    return RandomCase(text, events, None)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_graph_queries(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Dead events make room at every step.
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    matching = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"graph {number}")
        case = random_graph_case(rng)
        want = case.expected()
        matching += bool(want)
        assert matched(case) == want, f"case {number}, whole:\n{case.text}"
        off = random_rules(rng)
        assert matched(case, rules_off=off) == want, f"case {number}, without {off}:\n{case.text}"
        if "COMPRESSED" in case.text:
            assert listed(case) == listed_by_oracle(case), f"case {number}, listed:\n{case.text}"
        assert streamed(case, rng) == want, f"case {number}, streamed:\n{case.text}"
    assert CASES < 500 or matching > 0.2 * CASES / PARTS, "too few cases match for their agreement to mean much"


LASTING = """
pairs: PATTERN SEQ(A a, B b) WITHIN 6 INTO pairs RETURN P(a.n AS first, b.n AS last, a.x AS x);
chosen: PATTERN SEQ({pattern}) FROM pairs WITHIN 20 OUTPUT {form}{returned};
"""


def test_events_that_last() -> None:
    matching = 0
    for number in range(CASES // 5):
        rng = random.Random(f"lasting {number}")
        pattern = rng.choice(("P u, P v", "P+ u[], P v", "P u, P+ v[]", "P u, P v, P w"))
        form = rng.choice(("NON_OVERLAPPING", "FIRST", "SKIP TO FIRST v", "SKIP TO LAST v", "COMPRESSED", "ALL"))
        columns = [f"{v}.{n} AS {v}_{n}" for v in ("u", "v", *("w" * pattern.count("w"))) for n in ("first", "last")]
        returned = "" if form == "COMPRESSED" else f" RETURN R({', '.join(columns)})"
        script = LASTING.format(pattern=pattern, form=form, returned=returned)
        rows, time = [], 0
        for position in range(rng.randint(6, 11)):
            time += rng.choice((0, 1, 1, 2))
            rows.append({"type": rng.choice("AB"), "time": time, "n": position, "x": rng.choice((0, 1, 2))})
        events = [Event(row["type"], row["time"], row["time"], row) for row in rows]
        want = counted(result.row for result in oracle.answer(script, events)["chosen"])
        found = ouzel.match(rows, ouzel.queries(script), **COLUMNS)["chosen"].to_pylist()
        assert counted(found) == want, f"case {number}:\n{script}"
        matching += bool(want)
    assert CASES < 500 or matching > 0.3 * CASES / 5


# ── What must not be tried ─────────────────────────────────────────────────────────────────────────


def stream(types: str) -> pa.Table:
    return pa.table({"type": list(types), "ts": range(len(types)), "x": range(len(types))})


def statistics(table: pa.Table, text: str) -> dict[str, int]:
    session = Session(make_program(as_queries(text), table.schema, time="ts", type="type"))
    session.push(table)
    session.finish()
    return session.statistics["query"]


@pytest.mark.compiled  # thousands of matches
def test_a_match_of_bounded_length_takes_few_tests() -> None:
    text = "PATTERN SEQ(A+ a[], B b) WHERE a.LEN = 3 AND a[i].x > a[i-1].x WITHIN 1000"
    counted = statistics(stream("A" * 60 + "B"), text)
    assert counted["matches"] == comb(60, 3)
    assert counted["tests"] <= 4 * counted["matches"]


@pytest.mark.parametrize(
    ("condition", "lengths"),
    [("a.LEN = 3", (3,)), ("a.LEN <= 2", (1, 2)), ("a.LEN BETWEEN 2 AND 3", (2, 3)), ("a.LEN IN (1, 3)", (1, 3))],
)
def test_a_bounded_length_tries_nothing_longer(condition: str, lengths: tuple[int, ...]) -> None:
    text = f"PATTERN SEQ(A+ a[], B b) WHERE {condition}"
    # Of the longer ones there are 2 to the power of 40.
    assert ouzel.match(stream("A" * 40 + "B"), text).num_rows == sum(comb(40, n) for n in lengths)


@pytest.mark.parametrize("strategy", ["skip_till_next_match", "strict_contiguity", "skip_till_any_match"])
def test_runs_end_where_they_are_too_long(strategy: str) -> None:
    # The second condition looks at all events of a[], so there is no graph.
    text = f"PATTERN SEQ(A+ a[], B b) WHERE {strategy}(a[], b) {{ a.LEN <= 2 AND sum(a[].x) >= 0 }} WITHIN 1000"
    found = ouzel.match(stream("A" * 20 + "B"), text).num_rows
    assert found == (20 + comb(20, 2) if "any" in strategy else 2)


def test_compressed_with_negation_lists_no_matches() -> None:
    text = "PATTERN SEQ(A+ a[], !(C c), B b) WITHIN 10000 OUTPUT COMPRESSED"
    rows = ouzel.match(stream("A" * 100 + "C" + "A" * 2 + "B"), text)
    assert rows["count"].to_pylist() == [Decimal((2**2 - 1) * 2**100)]
    compared = "PATTERN SEQ(A+ a[], !(C c), B b) WHERE c.x > b.x WITHIN 10000 OUTPUT COMPRESSED"
    rows = ouzel.match(stream("A" * 100 + "C" + "A" * 2 + "B"), compared)
    assert rows["count"].to_pylist() == [Decimal(2**102 - 1)]


@pytest.mark.parametrize(
    ("pattern", "form", "starts"),
    [
        ("A+ a[], B b", "NON_OVERLAPPING", [0]),
        ("A+ a[], B b", "FIRST", range(300)),
        ("A+ a[], B b", "SKIP TO LAST b", [0]),
        ("A a, A+ b[], B c", "NON_OVERLAPPING", [0]),
        ("A a, A+ b[], B c", "FIRST", range(299)),
        # The second event of a match is its first b, where the next match may start.
        ("A a, A+ b[], B c", "SKIP TO FIRST b", range(299)),
        ("A a, A+ b[], B c", "SKIP TO LAST b", [0]),
    ],
)
def test_a_form_lists_no_other_matches(pattern: str, form: str, starts: Sequence[int]) -> None:
    text = f"PATTERN SEQ({pattern}) WITHIN 10000 OUTPUT {form}"
    found = ouzel.match(stream("A" * 300 + "B"), text)["start"].to_pylist()
    assert sorted(found) == list(starts)
