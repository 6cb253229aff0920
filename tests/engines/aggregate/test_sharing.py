"""Sets of aggregates answer as their queries do one by one, whatever they share, however they are fed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.bind import bind, catalog_for
from ouzel.engines.aggregate import sharing
from ouzel.engines.aggregate.shared import SharedOperator
from ouzel.engines.aggregate.sharing import choose_segments, plan_sharing, updates
from ouzel.engines.aggregate.tables import SegmentPart, build_shared_tables
from ouzel.errors import LimitError
from ouzel.lang import parse
from ouzel.plan.choose import make_plan
from ouzel.plan.model import Statistics
from ouzel.runtime import codes
from tests.agreement import case_count
from tests.generate.cases import counted
from tests.oracle import oracle
from tests.oracle.events import Event

CASES = case_count(500) // 5
PARTS = 10
TYPES = "ABCDEF"
SCHEMA = pa.schema(
    {"type": pa.string(), "ts": pa.int64(), "id": pa.int64(), "x": pa.int64(), "y": pa.int64(), "f": pa.float64()}
)


@pytest.fixture(autouse=True)
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever may be counted together is, however little that promises."""
    monkeypatch.setattr(sharing, "SHARED_MAX", 10.0)
    monkeypatch.setattr(sharing, "COMMON_MIN", 1)


def random_pattern(rng: random.Random, common: list[str]) -> list[str]:
    def some(most: int) -> list[str]:
        return [rng.choice(TYPES) for _ in range(rng.randint(1, most))]

    roll = rng.random()
    if roll < 0.35:
        return common[: rng.randint(1, len(common))] + some(2)
    if roll < 0.8:
        return some(2) + common + some(2)
    return some(4)


def random_query(rng: random.Random, pattern: list[str]) -> str:
    steps = [f"{name} v{place}" for place, name in enumerate(pattern)]
    if rng.random() < 0.3:
        # Between the first components, so that several queries of a set have the same.
        for place in range(len(steps) - 1):
            if rng.random() < 0.4:
                steps[place] += f", !({rng.choice('CF')} n{place})"
    components = ", ".join(steps)
    conjuncts = [rng.choice(("[id]", "[id]", "v0.x >= 0"))] if rng.random() < 0.5 else []
    conjuncts += [f"v{place}.x != 1" for place in range(len(pattern)) if rng.random() < 0.1]
    where = f" WHERE {' AND '.join(conjuncts)}" if conjuncts else ""
    group = " GROUP BY id" if rng.random() < 0.5 else ""
    summed = f"v{rng.randrange(len(pattern))}.{rng.choice(('x', 'x', 'y'))}"
    sums = (f"COUNT, SUM({summed}) AS total", f"AVG({summed} - 1) AS mean, COUNT({summed}) AS n, SUM(v0.x) AS total")
    others = (f"MIN({summed}), MAX(v0.f) AS most", f"SUM(v{rng.randrange(len(pattern))}.f) AS total, AVG(v0.f) AS mean")
    aggregates = rng.choice(("COUNT", "COUNT", "COUNT", "COUNT AS DECIMAL", "COUNT AS n", *sums, *sums, *others))
    having = rng.choice(("", "", "", " HAVING COUNT > 2")) if "DECIMAL" not in aggregates else ""
    change = " EMIT ON CHANGE" if rng.random() < 0.3 else ""
    within = rng.choice((" WITHIN 12", " WITHIN 12", " WITHIN 12", " WITHIN 30", "", ""))
    return f"PATTERN SEQ({components}){where}{group} AGG {aggregates}{having}{within}{change}"


def random_set(number: int) -> tuple[random.Random, dict[str, str], list[dict[str, Any]]]:
    rng = random.Random(f"sharing {number}")
    common = [rng.choice(TYPES) for _ in range(rng.randint(2, 4))]
    queries = {f"q{i}": random_query(rng, random_pattern(rng, common)) for i in range(rng.randint(2, 6))}
    time, events = 0, []
    for _ in range(rng.randint(20, 60)):
        time += rng.choice((0, 1, 1, 2))
        row = {"type": rng.choice(TYPES), "ts": time, "id": rng.choice((1, 2, 2, None)), "x": rng.randint(0, 2)}
        # Sums of these are exact, so the order in which they are added does not matter.
        row |= {"y": rng.choice((-3, 2, 5, None)), "f": rng.choice((0.5, -2.0, 1.25, None))}
        events.append(row)
    return rng, queries, events


def table_of(events: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(events, schema=SCHEMA)


def rows(table: Any) -> Counter[str]:
    return counted(table.to_pylist())


@pytest.mark.parametrize("part", range(PARTS))
def test_sets_answer_as_their_queries_do(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(part, CASES, PARTS):
        rng, queries, events = random_set(number)
        want = {name: rows(ouzel.match(table_of(events), text)) for name, text in queries.items()}
        # Every segment that could be cut out is, in one case of two.
        monkeypatch.setattr(sharing, "SEGMENT_MAX", rng.choice((0.85, 10.0)))
        together = ouzel.match(table_of(events), queries)
        assert {name: rows(table) for name, table in together.items()} == want, f"case {number}: {queries}"
        assert streamed(rng, queries, events) == want, f"case {number}, streamed: {queries}"
        if number % 10 == 0:
            given = [Event(row["type"], row["ts"], row["ts"], row | {"time": row["ts"]}) for row in events]
            for name, text in queries.items():
                ((_, results),) = oracle.answer(text, given, types=None).items()
                assert counted(result.row for result in results) == want[name], f"case {number}: {text}"


def random_uninvertible_set(number: int) -> tuple[random.Random, dict[str, str], list[dict[str, Any]]]:
    """Queries of which most have something that cannot be subtracted when it leaves the window."""
    rng = random.Random(f"uninvertible {number}")
    common = [rng.choice("ABCD") for _ in range(rng.randint(1, 2))]
    ending = f"WITHIN {rng.choice((12, 25))}{rng.choice(('', ' EMIT ON CHANGE'))}"
    queries = {}
    for name in range(rng.randint(2, 5)):
        pattern = common + [rng.choice("ABCD") for _ in range(rng.randint(0, 2))]
        steps = [f"{kind} v{place}" for place, kind in enumerate(pattern)]
        for place in range(len(steps) - 1):
            steps[place] += f", !({rng.choice('CDE')} n{place})" * (rng.random() < 0.4)
        one = f"v{rng.randrange(len(pattern))}"
        aggregates = rng.choice(
            (
                "COUNT",
                f"MIN({one}.x) AS least, COUNT",
                f"MAX({one}.f) AS most",
                f"SUM({one}.f) AS total, AVG(v0.f) AS mean",
                f"SUM({one}.x) AS total, AVG(v0.y) AS mean, MIN(v0.f) AS least, COUNT({one}.y) AS n",
            )
        )
        group = rng.choice(("", "", "GROUP BY id "))
        queries[f"q{name}"] = f"PATTERN SEQ({', '.join(steps)}) {group}AGG {aggregates} {ending}"
    _, _, events = random_set(number)
    return rng, queries, events


@pytest.mark.parametrize("part", range(PARTS))
def test_sets_without_inverses_answer_as_their_queries_do(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Keys and groups get new numbers often.
    monkeypatch.setattr(codes, "COMPACT_MIN", 1)
    for number in range(part, CASES, PARTS):
        rng, queries, events = random_uninvertible_set(number)
        want = {name: rows(ouzel.match(table_of(events), text)) for name, text in queries.items()}
        together = ouzel.match(table_of(events), queries)
        assert {name: rows(table) for name, table in together.items()} == want, f"case {number}: {queries}"
        assert streamed(rng, queries, events) == want, f"case {number}, streamed: {queries}"


def streamed(rng: random.Random, queries: dict[str, str], events: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    """In batches of random sizes, shuffled within an allowed delay, restored in between."""
    delay = rng.choice((0, 0, 4))
    arriving = sorted(events, key=lambda row: row["ts"] + rng.uniform(0, delay))
    engine = ouzel.Engine(queries, max_delay=delay)
    told: dict[str, Counter[str]] = {name: Counter() for name in queries}
    start = 0
    while start < len(arriving):
        size = rng.choice((1, 3, 10, 30))
        for name, table in engine.push(table_of(arriving[start : start + size])).items():
            told[name] += rows(table)
        start += size
        if rng.random() < 0.4:
            engine = ouzel.Engine.restore(engine.snapshot())
    for name, table in engine.finish().items():
        told[name] += rows(table)
    assert engine.late == 0
    return told


def assert_the_same(queries: dict[str, str], events: list[dict[str, Any]]) -> None:
    """Together, in one piece and restored after every batch, the queries tell what they do one by one."""
    want = {name: rows(ouzel.match(events, text)) for name, text in queries.items()}
    assert {name: rows(table) for name, table in ouzel.match(events, queries).items()} == want
    engine = ouzel.Engine(queries)
    told: dict[str, Counter[str]] = {name: Counter() for name in queries}
    for start in range(0, len(events), 90):
        for name, table in engine.push(events[start : start + 90]).items():
            told[name] += rows(table)
        engine = ouzel.Engine.restore(engine.snapshot())
    for name, table in engine.finish().items():
        told[name] += rows(table)
    assert told == want


def plans_of(queries: dict[str, str]) -> dict[str, Any]:
    return {name: make_plan(bind(parse(text), text, catalog_for(None), name=name)) for name, text in queries.items()}


def test_which_queries_share() -> None:
    queries = {
        "one": "PATTERN SEQ(A a, B b, C c) GROUP BY id AGG COUNT WITHIN 10",
        "total": "PATTERN SEQ(A a, B b, D d) WHERE [id] AGG COUNT HAVING COUNT > 5 WITHIN 10",
        "wider": "PATTERN SEQ(A x, B y) GROUP BY id AGG COUNT WITHIN 20",
        "keyless": "PATTERN SEQ(A a, B b) AGG COUNT WITHIN 10",
        "least": "PATTERN SEQ(A a, B b) GROUP BY id AGG MIN(a.x) WITHIN 10",
        "changes": "PATTERN SEQ(A a, B b) GROUP BY id AGG COUNT WITHIN 10 EMIT ON CHANGE",
        "falls": "PATTERN SEQ(A a, C c) WHERE [id] AGG COUNT WITHIN 10 EMIT ON CHANGE",
        "negated": "PATTERN SEQ(A a, !(C c), B b) GROUP BY id AGG COUNT WITHIN 10",
        "ever": "PATTERN SEQ(A a, B b) GROUP BY id AGG COUNT",
        "since": "PATTERN SEQ(A a, C c) WHERE [id] AGG COUNT EMIT ON CHANGE",
        "number": "PATTERN SEQ(A a, D d) WHERE [id] AGG COUNT(a.x)",
        "largest": "PATTERN SEQ(A a, C c) WHERE [id] AGG MAX(a.x)",
        "total of keys": "PATTERN SEQ(A a, B b) WHERE [id] AGG MIN(a.x) WITHIN 10",
        "negated too": "PATTERN SEQ(A a, !(C c), B b, D d) GROUP BY id AGG COUNT WITHIN 10",
        "negated start": "PATTERN SEQ(!(C c), A a, B b) GROUP BY id AGG COUNT WITHIN 10",
        "repeated": "PATTERN SEQ(A a, B+ b[]) GROUP BY id AGG COUNT WITHIN 10",
    }
    shared = plan_sharing(plans_of(queries))
    assert [each.names for each in shared] == [
        ("one", "total"),
        ("negated", "negated too"),
        ("changes", "falls"),
        ("ever", "since", "number"),
    ]
    assert plan_sharing(plans_of(queries), off=["share_counters"]) == ()


def test_sums_over_integers_share() -> None:
    catalog = catalog_for(schema=SCHEMA, time="ts")
    texts = {
        "count": "PATTERN SEQ(A a, B b, C c) GROUP BY id AGG COUNT WITHIN 10",
        "sum": "PATTERN SEQ(A a, B b, C c) GROUP BY id AGG SUM(c.x), AVG(c.y) WITHIN 10",
        "float": "PATTERN SEQ(A a, B b) GROUP BY id AGG SUM(b.x * 0.5) WITHIN 10",
    }
    plans = {name: make_plan(bind(parse(text), text, catalog, name=name)) for name, text in texts.items()}
    (shared,) = plan_sharing(plans)
    tree = shared.tree
    texts = {name: text.replace(" WITHIN 10", "") for name, text in texts.items()}
    endless = plan_sharing({name: make_plan(bind(parse(text), text, catalog)) for name, text in texts.items()})
    assert [each.names for each in endless] == [("count", "sum")]
    # The last component of the sums is four symbols with weights: of each column its values, and whether there are any.
    assert tree.names == ("count", "sum") and len(tree.patterns) == 6 and len(shared.weights) == 4
    assert tree.shared_updates < tree.alone_updates


def test_a_segment_is_cut_out_where_it_pays() -> None:
    rates = [2.0] * 6 + [1.0] * 34
    patterns = [(10 + i, 0, 1, 2, 3, 4, 5, 25 + i) for i in range(10)]
    parts, segments = choose_segments(patterns, rates)
    assert segments == ((0, 1, 2, 3, 4, 5),) and all(SegmentPart(0) in pattern for pattern in parts)
    assert updates(parts, segments, rates) < updates(patterns, (), rates)
    # Where the segment's own events are rare there is nothing to save.
    assert choose_segments(patterns, [0.01] * 6 + [1.0] * 34)[1] == ()


def test_common_ends_and_parts_that_touch_are_cut_out() -> None:
    """But for the component after them, which every query counts."""
    one, other = tuple(range(6)), tuple(range(6, 12))
    patterns = [(20 + i, *one, 30 + i) for i in range(4)] + [(40 + i, *other, 50 + i) for i in range(4)]
    patterns += [(60 + i, *one, *other, 70 + i) for i in range(3)]
    parts, segments = choose_segments(patterns, [0.05] * 12 + [0.4 / 68] * 68)
    assert segments == (one, other[1:])
    assert parts[-1] == (62, SegmentPart(0), 6, SegmentPart(1), 72)
    ends = [(10 + i, 20 + i, 0, 1, 2, 3) for i in range(8)]
    parts, segments = choose_segments(ends, [0.15] * 4 + [0.4 / 30] * 30)
    assert segments == ((0, 1, 2),) and parts[0] == (10, 20, SegmentPart(0), 3)


def test_segments_in_both_orders_are_not_both_cut_out() -> None:
    with pytest.raises(ValueError, match="both orders"):
        build_shared_tables(
            [[0, SegmentPart(0), 1, SegmentPart(1), 2], [0, SegmentPart(1), 1, SegmentPart(0), 2]],
            [[3, 4], [5, 6]],
            window=5,
            summed=[False, False],
        )


@pytest.mark.parametrize("worth", [0.8, 10.0])
def test_counts_beyond_64_bits_go_on_one_by_one(worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "SEGMENT_MAX", worth)
    events = [
        {"type": kind, "ts": 100 * step + n, "id": n % 2, "x": 7 * n - 90}
        for step, kind in enumerate("ABCDEFGHIJKLMN")
        for n in range(50)
    ]
    inner = ", ".join(f"{kind} {kind.lower()}" for kind in "CDEFGHIJKL")
    queries = {
        "first": f"PATTERN SEQ(A a, {inner}, M m) WHERE [id] AGG COUNT AS DECIMAL WITHIN 1250",
        "second": f"PATTERN SEQ(B b, {inner}, N n) GROUP BY id AGG COUNT AS DECIMAL WITHIN 1250",
        "third": "PATTERN SEQ(A a, C c) GROUP BY id AGG COUNT WITHIN 1250",
        "sums": "PATTERN SEQ(A a, C c, M m) WHERE [id] AGG SUM(c.x), AVG(a.x), COUNT(m.x) AS n WITHIN 1250",
    }
    assert max(int(row["count"]) for row in ouzel.match(events, queries)["second"].to_pylist()) > 2**54
    assert_the_same(queries, events)


@pytest.mark.parametrize("ending", ["", " WITHIN 1250 EMIT ON CHANGE"])
def test_counts_of_other_kinds_go_on_one_by_one(ending: str) -> None:
    """At the end of a batch, and in the middle of a moment with events of both queries."""
    inner = "CDEFGHIJKL"
    events = [
        {"type": kind, "ts": 100 * step + n // 3, "id": n % 2}
        for step, kind in enumerate(f"A{inner}MNMNA{inner}MN")
        for n in range(80)
    ]
    shown = ", ".join(f"{kind} {kind.lower()}" for kind in inner)
    queries = {
        "first": f"PATTERN SEQ(A a, {shown}, M m) WHERE [id] AGG COUNT AS DECIMAL{ending}",
        "second": f"PATTERN SEQ(A a, {shown}, N n) GROUP BY id AGG COUNT AS DECIMAL{ending}",
        "third": f"PATTERN SEQ(A a, C c) GROUP BY id AGG COUNT{ending}",
    }
    (shared,) = plan_sharing(plans_of(queries))
    assert shared.names == tuple(queries)
    assert max(int(row["count"]) for row in ouzel.match(events, queries)["first"].to_pylist()) > 2**64
    assert_the_same(queries, events)


@pytest.mark.parametrize("weight", [1, 10**10, 10**12])
def test_sums_since_the_start_go_on_one_by_one(weight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where parts of a sum might have outgrown 64 bits that fits them, and where a sum does that has a mean."""
    apart = []
    go_apart = SharedOperator._take_counts
    monkeypatch.setattr(SharedOperator, "_take_counts", lambda *all: apart.append(1) or go_apart(*all))
    rng = random.Random(f"sums {weight}")
    events = [
        {"type": rng.choice("ABCD"), "ts": n // 3, "id": n % 2, "x": rng.randint(-9, 9) * weight, "y": n % 3}
        for n in range(1500)
    ]
    sums = "SUM(b.x), " if weight < 10**12 else ""
    queries = {
        "first": f"PATTERN SEQ(A a, B b, C c, A d) WHERE [id] AGG COUNT, {sums}AVG(d.x), COUNT(a.y) AS n",
        "second": f"PATTERN SEQ(A a, B b, C c, D d) GROUP BY id AGG {sums}SUM(d.y)",
        "third": "PATTERN SEQ(A a, B b, C c) GROUP BY id AGG COUNT HAVING COUNT > 5",
    }
    assert_the_same(queries, events)
    assert bool(apart) == (weight > 1)


@pytest.mark.parametrize("before", [0.0, 10.0])
def test_a_snapshot_keeps_the_segments_that_were_cut_out(before: float, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = {f"q{i}": f"PATTERN SEQ(P p, S{i} s, A a, B b, Z{i} z) GROUP BY id AGG COUNT WITHIN 40" for i in range(3)}
    rng = random.Random("segments kept")
    types = [*"AABBPP", *(f"{kind}{i}" for kind in "SZ" for i in range(3))]
    events = [{"type": rng.choice(types), "ts": time, "id": time % 2} for time in range(400)]
    want = {name: rows(ouzel.match(events, text)) for name, text in queries.items()}
    monkeypatch.setattr(sharing, "SEGMENT_MAX", before)
    engine = ouzel.Engine(queries)
    told = {name: rows(table) for name, table in engine.push(events[:200]).items()}
    stored = engine.snapshot()
    monkeypatch.setattr(sharing, "SEGMENT_MAX", 10.0 - before)
    engine = ouzel.Engine.restore(stored)
    for tables in (engine.push(events[200:]), engine.finish()):
        for name, table in tables.items():
            told[name] += rows(table)
    assert told == want


@pytest.mark.compiled  # thousands of events
def test_a_total_over_keys_is_never_wrapped() -> None:
    """Each key's count fits 64 bits, and so does that of any few of them, but not the total of all."""
    events = [
        {"type": kind, "ts": 100 * step + n, "id": key}
        for step, kind in enumerate("ABCDEFGHIJK")
        for n in range(42)
        for key in range(40)
    ]
    inner = ", ".join(f"{kind} {kind.lower()}" for kind in "ABCDEFGHIJK")
    whole = f"PATTERN SEQ({inner}) WHERE [id] AGG COUNT AS DECIMAL WITHIN 5000"
    counts = [int(row["count"]) for row in ouzel.match(events, whole).to_pylist()]
    assert counts[-1] == 40 * 42**11 > 2**64
    both = ouzel.match(events, {"whole": whole, "part": "PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT WITHIN 5000"})
    assert [int(row["count"]) for row in both["whole"].to_pylist()] == counts
    with pytest.raises(LimitError, match="COUNT AS DECIMAL"):
        ouzel.match(events, {"whole": whole.replace("COUNT AS DECIMAL", "COUNT"), "part": whole})


@pytest.mark.compiled  # thousands of events
def test_keys_that_are_gone_are_forgotten() -> None:
    queries = [
        "PATTERN SEQ(A a, B b) GROUP BY id AGG COUNT WITHIN 50",
        "PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT WITHIN 50",
        "PATTERN SEQ(A a, C c) GROUP BY id AGG COUNT WITHIN 40",
    ]
    engine = ouzel.Engine(queries)
    told, sizes = Counter[str](), []
    for batch in range(30):
        events = [{"type": "AB"[n % 2], "ts": 1000 * batch + n, "id": 500 * batch + n // 2} for n in range(1000)]
        for name, table in engine.push(events).items():
            told[name] += table.num_rows
        sizes.append(len(engine.snapshot()))
    for name, table in engine.finish().items():
        told[name] += table.num_rows
    assert told == {"query": 15_000, "query_2": 15_000, "query_3": 0}
    assert max(sizes[-5:]) <= 2 * max(sizes[8:14]), sizes


def test_the_limit_of_events_is_for_each_query() -> None:
    queries = ["PATTERN SEQ(A a, B b) AGG COUNT WITHIN 9", "PATTERN SEQ(A a, C c) AGG COUNT WITHIN 9"]
    engine = ouzel.Engine(queries, limits={"max_buffered_events": 10})
    engine.push([{"type": "A", "ts": 5}] * 10)
    with pytest.raises(
        LimitError, match=r"the queries query, query_2 hold 25 events, .* max_buffered_events=10 for each"
    ):
        engine.push([{"type": "A", "ts": 5}] * 15)


def test_explain_tells_what_is_shared() -> None:
    queries = {f"q{i}": f"PATTERN SEQ(A a, B b, T{i} c) GROUP BY id AGG COUNT WITHIN 10 s" for i in range(3)}
    text = ouzel.explain(queries | {"repeated": "PATTERN SEQ(A+ a[], B b) AGG COUNT WITHIN 5 s"})
    text = text.partition("\nsharing\n")[2]
    assert "q0, q1 and q2 share counters, by id, within 10 s" in text
    assert "(A a, B b) is counted once for q0, q1 and q2" in text
    assert "56% of the counter updates without sharing" in text
    assert "repeated is answered alone: it has a +" in text


def test_queries_that_gain_nothing_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def together(*patterns: Sequence[str], windows: tuple[int, ...] = (10,)) -> list[str]:
        queries = {
            f"q{i}": f"PATTERN SEQ({', '.join(f'{kind} v{j}' for j, kind in enumerate(pattern))}) "
            f"AGG COUNT WITHIN {windows[i % len(windows)]}"
            for i, pattern in enumerate(patterns)
        }
        return sorted(name for shared in plan_sharing(plans_of(queries)) for name in shared.names)

    assert together("ABC", "DEF") == []
    assert together("ABC", "ABD", "ABE") == ["q0", "q1", "q2"]
    # One symbol in common is too little, and so are two of many.
    assert together("ABC", "ADE") == []
    assert together("ABCDEF", "ABGHIJ") == []
    # One that has nothing in common with the others, and one of another window.
    assert together("ABC", "ABD", "ABE", "FGH") == ["q0", "q1", "q2"]
    assert together("ABC", "ABD", "ABE", windows=(10, 10, 20)) == ["q0", "q1"]


def test_rates_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    patterns = {f"q{i}": f"PATTERN SEQ(S{i} a, A b, B c, C d, D e, Z{i} f) AGG COUNT WITHIN 10" for i in range(8)}
    plans = plans_of(patterns)
    own = {f"{kind}{i}": 0.06 for i in range(8) for kind in "SZ"}
    assert plan_sharing(plans, Statistics(rates=own | dict.fromkeys("ABCD", 0.01))) == ()
    (common,) = plan_sharing(plans, Statistics(rates=dict.fromkeys(own, 0.01) | dict.fromkeys("ABCD", 0.2)))
    assert len(common.tree.segments) == 1


@pytest.mark.parametrize("ending", ["", " EMIT ON CHANGE"])
def test_counts_with_negation_beyond_64_bits_go_on_one_by_one(ending: str) -> None:
    """Also the measures: their operators count the window again."""
    inner = "CDEFGHIJKL"
    events = [
        {"type": kind, "ts": 100 * step + n // 3, "id": n % 2, "x": 7 * n - 90, "f": n / 4}
        for step, kind in enumerate(f"A{inner}MNMNA{inner}MN")
        for n in range(80)
    ]
    shown = ", ".join(f"{kind} {kind.lower()}" for kind in inner)
    queries = {
        "first": f"PATTERN SEQ(A a, {shown}, !(N n), !(N o), M m) GROUP BY id AGG COUNT AS DECIMAL WITHIN 1250{ending}",
        "second": f"PATTERN SEQ(A a, {shown}, !(M m), N n) GROUP BY id AGG COUNT AS DECIMAL WITHIN 1250{ending}",
        "third": "PATTERN SEQ(A a, C c, !(E e), D d) GROUP BY id "
        f"AGG COUNT, MAX(c.x), SUM(a.f), SUM(c.x) WITHIN 1250{ending}",
    }
    events = pa.Table.from_pylist(events).to_pylist()
    (shared,) = plan_sharing(plans_of(queries))
    assert shared.names == tuple(queries)
    assert max(int(row["count"]) for row in ouzel.match(events, queries)["first"].to_pylist()) > 2**61
    assert_the_same(queries, events)


def test_explain_shows_the_prefix_tree_of_figure_9(monkeypatch: pytest.MonkeyPatch) -> None:
    """Example 6. What query 5 has in common begins and ends its part, so sharing it would save nothing."""
    monkeypatch.undo()
    patterns = {
        "q1": "VKindle, BKindle, VCase, BCase",
        "q2": "VKindle, BKindle, VKindleFire",
        "q3": "VKindle, BKindle, VCase, BCase, VeBook, BeBook",
        "q4": "VKindle, BKindle, VCase, BCase, VLight, BLight",
        "q5": "ViPad, VKindleFire, VKindle, BKindle",
    }
    text = ouzel.explain({name: f"PATTERN SEQ({one}) AGG COUNT WITHIN 1 hour" for name, one in patterns.items()})
    assert "(VKindle, BKindle) is counted once for q1, q2, q3 and q4" in text
    assert "(VKindle, BKindle, VCase, BCase) is counted once for q1, q3 and q4" in text
    assert "q5 is answered alone: it has too little in common with the others" in text


def test_explain_shows_what_shares_beside_negation() -> None:
    queries = {
        "dear": "PATTERN SEQ(A a, !(N n), B b, C c) AGG AVG(b.x * 0.5) WITHIN 10",
        "cheap": "PATTERN SEQ(A a, !(N n), B b, D d) AGG MIN(b.x) WITHIN 10",
    }
    explained = ouzel.explain(queries)
    assert "(A a, !(N n), B b) is counted once for dear and cheap" in explained
