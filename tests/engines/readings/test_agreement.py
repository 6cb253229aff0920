"""Patterns with several readings equal the oracle, however they are fed, and queries that mean the same agree."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel.engines.readings import union
from ouzel.errors import InputError, LimitError
from ouzel.runtime.output import UnitedMatches
from tests.agreement import agree, case_count, matched, ways_of
from tests.generate import random_case
from tests.generate.cases import COLUMNS, counted
from tests.generate.events import random_events

pytestmark = pytest.mark.quick

CASES = case_count(800)
PARTS = 25


@pytest.mark.parametrize("part", range(PARTS))
def test_random_readings(part: int) -> None:
    matching = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"readings {number}")
        case = random_case(rng, "readings")
        matching += agree(case, ways_of(case), rng, number)
    assert CASES < 500 or matching > 0.1 * CASES / PARTS, "too few cases match for their agreement to mean much"


def test_a_broken_merge_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (random_case(random.Random(f"broken {number}"), "readings") for number in range(60))
    monkeypatch.setattr(UnitedMatches, "absent", lambda self, place: None)
    assert any(_disagrees(case) for case in cases)


def test_a_broken_form_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (random_case(random.Random(f"form {number}"), "readings") for number in range(200))
    monkeypatch.setattr(union, "list_ranks", lambda offsets, values: np.zeros(len(offsets) - 1, np.int64))
    assert any(_disagrees(case) for case in cases if "OUTPUT" in case.text)


def _disagrees(case: Any) -> bool:
    try:
        return bool(case.difference(matched(case), case.expected()))
    except Exception:
        return True


# The same meaning, written in two ways; a list is a union of queries.
SAME = [
    ("SEQ(A{1,} a[], B b)", ["SEQ(A+ a[], B b)"]),
    ("SEQ(A a, B{0,} b[], C c)", ["SEQ(A a, B* b[], C c)"]),
    ("SEQ(A a, SEQ(B b, C c))", ["SEQ(A a, B b, C c)"]),
    ("SEQ(A a, B* b[], C c)", ["SEQ(A a, B+ b[], C c)", "SEQ(A a, C c)"]),
    ("SEQ(A a, B? b, C c)", ["SEQ(A a, B b, C c)", "SEQ(A a, C c)"]),
    ("SEQ(A a, OR(B b, C c), D d)", ["SEQ(A a, B b, D d)", "SEQ(A a, C c, D d)"]),
    ("SEQ(A a, (B b | C c), D d)", ["SEQ(A a, OR(B b, C c), D d)"]),
    ("AND(A a, B b)", ["SEQ(A a, B b)", "SEQ(B b, A a)"]),
    ("AND(SEQ(A a, B b), C c)", ["SEQ(A a, B b, C c)", "SEQ(A a, C c, B b)", "SEQ(C c, A a, B b)"]),
    ("SEQ(A{2} a[], B b)", ["SEQ(A+ a[], B b) WHERE a.LEN = 2"]),
    ("SEQ(A{2,3} a[], B b)", ["SEQ(A+ a[], B b) WHERE a.LEN BETWEEN 2 AND 3"]),
    ("SEQ(A a, B b) WITHOUT C c", ["SEQ(A a, !(C c), B b)"]),
    ("SEQ(A a, SEQ(B b, D d) WITHOUT C c)", ["SEQ(A a, B b, !(C c), D d)"]),
    ("SEQ(A a, SEQ(B b, D d)? WITHOUT C c)", ["SEQ(A a, B b, !(C c), D d)", "A a"]),
    ("SEQ(AND(A a, B b) WITHOUT C c, D d)", ["SEQ(A a, !(C c), B b, D d)", "SEQ(B b, !(C c), A a, D d)"]),
    ("SEQ(A a, SEQ(B b, C c){2})", ["SEQ(A a, B b_1, C c_1, B b_2, C c_2)"]),
    ("SEQ(A a, OR(B b, C c){1,2})", ["SEQ(A a, OR(B b_1, C c_1), OR(B b_2, C c_2)?)"]),
    ("SEQ(A a, SEQ(B b, C c)?, D d)", ["SEQ(A a, B b, C c, D d)", "SEQ(A a, D d)"]),
]


@pytest.mark.parametrize(("one", "others"), SAME)
def test_equal_meanings(one: str, others: list[str]) -> None:
    for number in range(case_count(10)):
        rng = random.Random(f"equal {one} {number}")
        events = [dict(event.attributes) for event in random_events(rng, 12, list("ABCD"))]
        assert _found(events, [one]) == _found(events, others)


def _found(events: list[dict[str, Any]], patterns: list[str]) -> Any:
    rows = []
    for pattern in patterns:
        rows += ouzel.match(events, f"PATTERN {pattern} WITHIN 8", **COLUMNS).to_pylist()
    # Absent variables are null in one query, and no columns in several.
    return counted({name: value for name, value in row.items() if value not in (None, [])} for row in rows)


# Where no two events have one time, or an order divides them.
IN_EACH_GAP = [
    ("SEQ(A a, B b, D d) WITHOUT C c", "SEQ(A a, !(C c), B b, !(C e), D d)"),
    ("SEQ(A a, SEQ(B b, A e, D d) WITHOUT C c)", "SEQ(A a, B b, !(C c), A e, !(C f), D d)"),
    ("SEQ(A a, B? b, D d) WITHOUT C c", "OR(SEQ(A a, !(C c), B b, !(C e), D d), SEQ(A a, !(C f), D d))"),
]


@pytest.mark.parametrize(("one", "other"), IN_EACH_GAP)
@pytest.mark.parametrize("order", [(), ("n",)], ids=["different times", "one order"])
def test_without_is_a_negative_in_each_gap(one: str, other: str, order: tuple[str, ...]) -> None:
    for number in range(case_count(10)):
        rng = random.Random(f"gap {one} {number}")
        steps = (0, 0, 1) if order else (1, 1, 2)
        events = [dict(event.attributes) for event in random_events(rng, 14, list("ABCD"), steps=steps)]
        for where in ("", "WHERE skip_till_next_match { [id] }"):
            found = [
                counted(
                    {name: value for name, value in row.items() if value is not None}
                    for row in ouzel.match(
                        events, f"PATTERN {text} {where} WITHIN 9", **COLUMNS, order=order
                    ).to_pylist()
                )
                for text in (one, other)
            ]
            assert found[0] == found[1], (events, where)


def test_latest_is_a_filter_of_all_matches() -> None:
    for number in range(case_count(200)):
        rng = random.Random(f"latest {number}")
        events = [dict(event.attributes) for event in random_events(rng, 14, list("AB"), steps=(1, 1, 2))]
        strategy = rng.choice(("skip_till_next_match", "skip_till_any_match"))
        query = f"PATTERN SEQ(A a, A? b, B c) WHERE {strategy} {{ [id] }} WITHIN 9"
        every = ouzel.match(events, query, **COLUMNS).to_pylist()
        wanted: dict[int, Any] = {}
        for row in sorted(every, key=lambda row: (row["start"], -1 if row["b"] is None else row["b"]["time"])):
            wanted[row["c"]["n"]] = row
        found = ouzel.match(events, f"{query} OUTPUT LATEST", **COLUMNS).to_pylist()
        # Two of one start: the one whose event before the last is later, which is `b` if there is one.
        assert counted(found) == counted(wanted.values()), events


# A negated sequence, and the same by hand: the inner query, its negation, and the conditions of both.
BY_HAND = [
    ("SEQ(A a, !(SEQ(B b, C c)), D d)", "SEQ(B b, C c)", "SEQ(A a, !(N n), D d)", "", "", ""),
    ("SEQ(A a, !(SEQ(B b, C c)), D d)", "SEQ(B b, C c)", "SEQ(A a, !(N n), D d)", "c.x > b.x", "c.x > b.x", ""),
    ("SEQ(A a, !(SEQ(B b, C c)), D d)", "SEQ(B b, C c)", "SEQ(A a, !(N n), D d)", "b.x > a.x", "", "n.x > a.x"),
    ("SEQ(A a, !(SEQ(B b, C c)), D d)", "SEQ(B b, C c)", "SEQ(A a, !(N n), D d)", "b.x > d.x", "", "n.x > d.x"),
    ("SEQ(A a, !(B{2,} b[]), D d)", "B{2,} b[]", "SEQ(A a, !(N n), D d)", "", "", ""),
    ("SEQ(!(SEQ(B b, C c)), A a, D d)", "SEQ(B b, C c)", "SEQ(!(N n), A a, D d)", "", "", ""),
    ("SEQ(A a, D d, !(SEQ(B b, C c)))", "SEQ(B b, C c)", "SEQ(A a, D d, !(N n))", "", "", ""),
    ("SEQ(A+ a[], !(SEQ(B b, C c)))", "SEQ(B b, C c)", "SEQ(A+ a[], !(N n))", "", "", ""),
]


@pytest.mark.parametrize(("pattern", "inner", "outer", "where", "inside", "outside"), BY_HAND)
def test_negated_sequences_are_composed_queries(
    pattern: str, inner: str, outer: str, where: str, inside: str, outside: str
) -> None:
    def condition(text: str) -> str:
        return f"WHERE {text}" if text else ""

    returned = "b[1].x AS x" if "[]" in inner else "b.x AS x"
    script = (
        f"inner: PATTERN {inner} {condition(inside)} WITHIN 8 RETURN N({returned}) INTO found;"
        f"outer: PATTERN {outer} FROM input, found {condition(outside)} WITHIN 8"
    )
    for number in range(case_count(20)):
        rng = random.Random(f"by hand {pattern} {where} {number}")
        events = [dict(event.attributes) for event in random_events(rng, 12, list("ABCD"))]
        wanted = ouzel.match(events, ouzel.queries(script), **COLUMNS)["outer"].to_pylist()
        found = ouzel.match(events, f"PATTERN {pattern} {condition(where)} WITHIN 8", **COLUMNS).to_pylist()
        assert counted(found) == counted(wanted), (pattern, events)


def test_a_negated_repetition_asks_for_existence() -> None:
    """2^60 choices of the inner pattern are not tried."""
    kinds = ["A", *["B"] * 60, "D"]
    events = [{"type": kind, "time": time} for time, kind in enumerate(kinds)]
    limits = {"max_partial_matches": 1_000}
    for least, count in ((60, 0), (61, 1), (3, 0)):
        query = f"PATTERN SEQ(A a, !(B{{{least},}} b[]), D d) WITHIN 100"
        assert ouzel.match(events, query, **COLUMNS, limits=limits).num_rows == count


def test_a_count_near_the_number_of_events_needs_few_runs() -> None:
    events = [{"type": kind, "time": time} for time, kind in enumerate(["A"] * 60 + ["B"])]
    limits = {"max_partial_matches": 4_000}
    for pattern, readings in (("SEQ(A{58,60} a[], B b)", 1), ("SEQ(A{58,60} a[], B? b)", 2)):
        found = ouzel.match(events, f"PATTERN {pattern} RETURN R(a.LEN AS n)", **COLUMNS, limits=limits)
        assert found.num_rows == readings * (1_770 + 60 + 1)


@pytest.mark.parametrize("form", ["NON_OVERLAPPING", "FIRST", "LATEST", "SKIP TO FIRST a", "SKIP TO LAST a"])
def test_forms_over_many_matches_are_as_over_few(form: str) -> None:
    """Matches that cannot be kept are not ranked. The same events in small pushes leave few to be ranked at a time."""
    rng = random.Random(form)
    events = [{"type": rng.choice("ABC"), "time": time, "id": rng.randint(0, 3)} for time in range(120)]
    query = f"PATTERN SEQ(A+ a[], B? b, C c) WHERE [id] WITHIN 24 OUTPUT {form}"
    engine = ouzel.Engine(query, **COLUMNS)
    pushed = [row for event in events for row in engine.push([event])["query"].to_pylist()]
    pushed += engine.finish()["query"].to_pylist()
    assert ouzel.match(events, query, **COLUMNS).to_pylist() == pushed


def test_a_column_named_as_an_internal_one() -> None:
    events = pa.table({"type": ["A", "C"], "time": [1, 2], "position in stream order": ["x", "y"]})
    with pytest.raises(InputError, match="'position in stream order' has a name that"):
        ouzel.match(events, "PATTERN SEQ(A a, B? b, C c) OUTPUT FIRST", **COLUMNS)
    assert ouzel.match(events, "PATTERN SEQ(A a, B? b, C c)", **COLUMNS).num_rows == 1


def test_matches_come_in_order_of_end_and_reading() -> None:
    events = [{"type": kind, "time": time} for time, kind in enumerate("ABCBC")]
    found = ouzel.match(events, "PATTERN SEQ(A a, B? b, C c)", **COLUMNS).to_pylist()
    order = [(row["end"], row["b"] is None) for row in found]
    assert order == sorted(order) and len(order) == 5


@pytest.mark.parametrize("pattern", ["SEQ(A a, OR(B b, C c), C d)", "SEQ(A? a, B+ b[], C c)", "SEQ(A a, B? b, !(C c))"])
def test_matches_in_blocks_are_as_at_once(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(pattern)
    events = [{"type": rng.choice("ABC"), "time": n // 3, "id": rng.randint(0, 1), "n": n} for n in range(150)]
    script = (
        f"one: PATTERN {pattern} WHERE [id] WITHIN 6 RETURN P(c.n AS c, b.n AS b, [id]) INTO found;"
        "two: PATTERN P p FROM found RETURN R(p.b AS b);"
        f"all: PATTERN {pattern} WHERE [id] WITHIN 6"
    )
    if "!" in pattern:
        script = script.replace("c.n AS c, ", "")
    at_once = ouzel.match(events, ouzel.queries(script), **COLUMNS)
    assert at_once["all"].num_rows > 80
    monkeypatch.setattr(union, "_BLOCK_MATCHES", 64)
    in_blocks = ouzel.match(events, ouzel.queries(script), **COLUMNS)
    assert all(in_blocks[name].to_pylist() == at_once[name].to_pylist() for name in at_once)


def test_the_limit_of_matches_counts_all_readings() -> None:
    events = [{"type": kind, "time": time} for time, kind in enumerate("AABBC")]
    query = "PATTERN SEQ(A a, B? b, C c)"
    assert ouzel.match(events, query, **COLUMNS, limits={"max_matches_per_timestamp": 6}).num_rows == 6
    with pytest.raises(LimitError, match="over all its readings"):
        ouzel.match(events, query, **COLUMNS, limits={"max_matches_per_timestamp": 5})


def test_a_set_of_queries_answers_readings_as_alone() -> None:
    texts = {
        number: random_case(random.Random(f"set {number}"), "readings", declared=False).text
        for number in range(case_count(24))
    }
    streams = {number: text for number, text in texts.items() if "WITHIN" in text}
    case = random_case(random.Random("events"), "readings", declared=False)
    rows = case.table.sort_by("time")
    held = ouzel.QuerySet(schema=rows.schema, **COLUMNS)
    for number, text in streams.items():
        held.add(number, text)
    found: dict[int, list[Any]] = {number: [] for number in streams}
    for answer in (held.push(rows), held.finish()):
        for name, table in answer.items():
            for row in table.to_pylist():
                # Merged queries have their rows in one table.
                found[row.pop("query", name)].append(row)
    for number, text in streams.items():
        assert counted(found[number]) == counted(ouzel.match(rows, text, **COLUMNS).to_pylist()), text


def test_why_names_the_reading_that_got_furthest() -> None:
    events = [{"type": kind, "time": time} for time, kind in enumerate("AB")]
    said = ouzel.why(events, "PATTERN SEQ(A a, OR(B b, C c), D d) WITHIN 9", **COLUMNS)
    assert (said.reached, said.components) == (2, 3)
    assert "read as SEQ(A a, B b, D d)" in str(said)
    complete = ouzel.why(events, "PATTERN SEQ(A a, B? b) WITHIN 9", **COLUMNS)
    assert complete.complete


def test_a_picture_has_optional_ways() -> None:
    query = "PATTERN SEQ(A a, B? b, OR(C c, SEQ(D d, E+ e[])))"
    text = ouzel.explain(query)
    assert "(b or c or d) → (c or d)  begin B b" in text
    assert "(b or c or d) → ((F))  begin C c" in text
    assert (
        ouzel.explain(query, format="svg").count("<circle")
        == len({line.split("→")[0] for line in text.split("plan, in")[0].splitlines() if "→" in line}) + 2
    )


def test_composed_readings() -> None:
    script = (
        "one: PATTERN SEQ(A a, B? b) WITHIN 3 RETURN P(a.n AS a, b.n AS b) INTO pairs;"
        "two: PATTERN SEQ(P p, OR(P q, C c)) FROM pairs, input WITHIN 9 RETURN R(p.b AS p, q.a AS q, c.n AS c)"
    )
    events = [{"type": kind, "time": time, "n": time} for time, kind in enumerate("ABCAB")]
    found = ouzel.match(events, ouzel.queries(script), **COLUMNS)["two"].to_pylist()
    # Pairs (0, -), (0, 1), (3, -), (3, 4); C at 2.
    wanted = [(None, None, 2), (1, None, 2), (None, 3, None), (1, 3, None), (None, 3, None), (1, 3, None)]
    assert sorted(map(str, ((row["p"], row["q"], row["c"]) for row in found))) == sorted(map(str, wanted))
    assert np.all(np.diff([row["end"] for row in found]) >= 0)


@pytest.mark.parametrize(
    "days",
    [
        pa.array([1, 1], pa.date32()),
        pa.array([1, 1], pa.timestamp("ns")),
        pa.array([Decimal("1.5")] * 2),
        pa.array([b"x", b"x"]),
    ],
    ids=lambda days: str(days.type),
)
def test_forms_are_stored_for_keys_of_every_type(days: pa.Array) -> None:
    events = pa.table(
        {"type": ["A", "B"], "ts": [1, 2], "day": days, "until": pa.array([2**60] * 2, pa.timestamp("s"))}
    )
    text = "PATTERN SEQ(A? a, B b) WHERE [day] WITHIN 9 OUTPUT NON_OVERLAPPING"
    engine = ouzel.Engine(text)
    found = engine.push(events)["query"].num_rows
    engine = ouzel.Engine.restore(engine.snapshot())
    assert found + engine.finish()["query"].num_rows == 1


def test_any_event_of_declared_types() -> None:
    events = [{"type": "A", "ts": 1, "x": 1}, {"type": "C", "ts": 2, "y": 3}]
    query = ouzel.query("PATTERN ANY v RETURN R(v.x AS x)", {"A": {"x": "int64"}, "C": {"y": "int64"}})
    assert [row["x"] for row in ouzel.match(events, query).to_pylist()] == [1, None]


@pytest.mark.parametrize("pattern", ["ANY(A, B) v", "ANY(B, A) v", "ANY v", "ANY{1} v[]"])
@pytest.mark.parametrize(
    ("values", "common"),
    [
        (pa.array([1.5, 4.5]), pa.float64()),
        (pa.array([1, 4], pa.int32()), pa.int64()),
        (pa.array([Decimal("1.5"), Decimal("4.5")], pa.decimal128(9, 2)), pa.decimal128(21, 2)),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else str(value.type),
)
def test_an_attribute_of_two_types_is_shown_in_one(pattern: str, values: pa.Array, common: pa.DataType) -> None:
    tables = {"A": pa.table({"time": [1, 2], "x": [1, 5]}), "B": pa.table({"time": [3, 4], "x": values})}
    for returned in ("", "RETURN v.x AS v"):
        found = ouzel.match(tables, f"PATTERN {pattern} WITHIN 1 {returned}", time="time").column("v").combine_chunks()
        flat = found.flatten() if "[]" in pattern else found
        shown = flat if returned else flat.field("x")
        assert shown.type == common and shown.to_pylist() == [1, 5, *values.to_pylist()]


def test_an_attribute_without_a_common_type_is_refused() -> None:
    tables = {"A": pa.table({"time": [1], "x": [1]}), "B": pa.table({"time": [3], "x": ["one"]})}
    with pytest.raises(InputError, match="the attribute 'x' is of type int64 in events of one type and string"):
        ouzel.match(tables, "PATTERN ANY v WITHIN 1", time="time")
    assert ouzel.match(tables, "PATTERN ANY v WITHIN 1 RETURN v.time AS t", time="time").num_rows == 2


@pytest.mark.parametrize("count", ["{99999999999999999999}", "{1,9223372036854775808}", "{99999999999999999999,}"])
def test_counts_beyond_any_stream_are_refused(count: str) -> None:
    with pytest.raises(ouzel.QueryError, match="at most 1,000,000,000"):
        ouzel.query(f"PATTERN SEQ(A{count} a[], B b) WITHIN 9")


@pytest.mark.parametrize("seed", range(case_count(20)))
def test_graphs_of_readings_hold_all_matches(seed: int) -> None:
    """expand() of OUTPUT COMPRESSED is OUTPUT ALL."""
    rng = random.Random(f"graphs {seed}")
    pattern = rng.choice(
        ("SEQ(A a, B? b, C c)", "SEQ(A+ a[], OR(B b, SEQ(C p, B q)))", "SEQ(AND(A a, B* b[]), C c)", "SEQ(A a, B* b[])")
    )
    strategy = rng.choice(("skip_till_any_match", "skip_till_next_match"))
    text = f"PATTERN {pattern} WHERE {strategy} {{ [id] }} WITHIN 12"
    events = pa.Table.from_pylist([dict(one.attributes) for one in random_events(rng, 14, "ABC")])
    graphs = ouzel.match(events, f"{text} OUTPUT COMPRESSED", **COLUMNS)
    listed = ouzel.expand(graphs, f"{text} OUTPUT COMPRESSED", **COLUMNS)
    wanted = ouzel.match(events, f"{text} OUTPUT ALL", **COLUMNS)
    assert counted(listed.to_pylist()) == counted(wanted.to_pylist())
    assert sum(graphs["count"].to_pylist()) == wanted.num_rows
