"""Limits: passing one is an error that names it or, where asked for, a counted drop of the newest."""

from __future__ import annotations

import resource
import warnings
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.errors import InputError, LimitError, LimitWarning

# Ten A at 0 … 9, then a B: what is dropped can be counted by hand.
EVENTS = pa.table({"type": ["A"] * 10 + ["B"], "ts": range(11), "id": [1] * 11, "x": [1.0] * 11})
MODEL = ouzel.LossModel(0.1, gaps={"b": ouzel.loss.Exponential(10)})

SEQUENCE = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 100 RETURN P(a.ts AS a)"
LONELY = "PATTERN SEQ(A a, !(C c)) WHERE [id] WITHIN 100 RETURN L(a.ts AS a)"
RUNS = "PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [id] } WITHIN 100 RETURN P(a.ts AS a)"
RUNS_LONELY = "PATTERN SEQ(A+ a[], !(C c)) WHERE skip_till_next_match(a[], c) { [id] } WITHIN 100 RETURN L(a.LEN AS n)"
KLEENE = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_any_match(a[], b) { [id] } WITHIN 100 RETURN K(a.LEN AS n)"
LONG = KLEENE.replace("[id]", "[id] AND a.LEN > 1")
COUNT = "PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT WITHIN 100"
SUMS = "PATTERN SEQ(A a, B b) WHERE a.x <= b.x GROUP BY id AGG COUNT WITHIN 100"
LAST = "PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [id] } AGG COUNT WITHIN 100"
MISSING = "SEQUENCE (a, b) WHERE a.type = 'A' AND b.type = 'B' AND a.id[b.id] = b.id WITHIN 100 THRESHOLD 0.01"


@pytest.mark.parametrize(
    ("query", "limit", "most", "dropped", "rows"),
    [
        # The B is the newest, and there is no room for it.
        (SEQUENCE, "max_buffered_events", 10, 1, 0),
        (RUNS, "max_buffered_events", 10, 1, 0),
        (COUNT, "max_buffered_events", 10, 1, 0),
        (SUMS, "max_buffered_events", 10, 1, 0),
        (LAST, "max_buffered_events", 10, 1, 0),
        (MISSING, "max_buffered_events", 10, 1, 0),
        (LONELY, "max_buffered_events", 4, 6, 4),
        (SEQUENCE, "max_matches_per_moment", 4, 6, 4),
        (RUNS, "max_matches_per_moment", 4, 6, 4),
        # Of 1023 choices of some A.
        (KLEENE, "max_matches_per_moment", 4, 1019, 4),
        (LONG, "max_matches_per_moment", 4, 1009, 4),
        (MISSING, "max_matches_per_moment", 4, 7, 4),
        (LONELY, "max_partial_matches", 4, 6, 4),
        (RUNS, "max_partial_matches", 4, 6, 4),
    ],
)
def test_the_newest_are_dropped_and_counted(query: str, limit: str, most: int, dropped: int, rows: int) -> None:
    options: dict[str, Any] = {"model": MODEL} if query == MISSING else {}
    with pytest.raises(LimitError, match=limit):
        ouzel.match(EVENTS, query, limits={limit: most}, **options)
    engine = ouzel.Engine(query, limits={limit: most, "when_passed": "drop"}, **options)
    found = engine.push(EVENTS)["query"].num_rows + engine.finish()["query"].num_rows
    assert engine.dropped == {"query": {limit: dropped}}
    assert found == rows
    told = f"query 'query' dropped {dropped:,} because of {limit}={most:,}"
    with pytest.warns(LimitWarning, match=told):
        assert ouzel.match(EVENTS, query, limits={limit: most, "when_passed": "drop"}, **options).num_rows == rows


def test_partial_matches_with_closure_stay_within_the_limit() -> None:
    """Runs double with every event; with a negated end those that wait count too."""
    for query in (LONG, RUNS_LONELY):
        engine = ouzel.Engine(query, limits={"max_partial_matches": 20, "when_passed": "drop"})
        later = [{"type": "A", "ts": tick, "id": 1, "x": 1.0} for tick in range(20, 40)]
        found = [engine.push(EVENTS), engine.push(later)]
        session = engine._session
        assert session is not None and session.open_runs["query"] <= 20
        assert engine.dropped["query"]["max_partial_matches"] > 0
        assert sum(answer["query"].num_rows for answer in [*found, engine.finish()]) > 0


def test_what_was_dropped_survives_a_restart() -> None:
    engine = ouzel.Engine(LONELY, limits={"max_buffered_events": 4, "when_passed": "drop"})
    engine.push(EVENTS)
    restored = ouzel.Engine.restore(engine.snapshot())
    assert restored.dropped == engine.dropped == {"query": {"max_buffered_events": 6}}
    restored.push(pa.table({"type": ["A"], "ts": [50], "id": [1], "x": [1.0]}))
    assert restored.dropped == {"query": {"max_buffered_events": 7}}


def test_there_is_room_again_when_time_has_passed() -> None:
    engine = ouzel.Engine(LONELY, limits={"max_buffered_events": 4, "when_passed": "drop"})
    engine.push(EVENTS)
    first = engine.push([{"type": "Z", "ts": 500, "id": 9, "x": 1.0}])["query"]
    engine.push([{"type": "A", "ts": 501, "id": 1, "x": 1.0}])
    assert (first.num_rows, engine.finish()["query"].num_rows) == (4, 1)
    assert engine.dropped == {"query": {"max_buffered_events": 6}}


def test_counts_that_are_shared_drop_together() -> None:
    queries = {"one": COUNT, "other": COUNT.replace("[id]", "[id] AND a.x > 0")}
    engine = ouzel.Engine(queries, limits={"max_buffered_events": 3, "when_passed": "drop"})
    engine.push(EVENTS)
    engine.finish()
    assert all(dropped["max_buffered_events"] > 0 for dropped in engine.dropped.values())


@pytest.mark.parametrize("limit", ["max_matches_per_moment", "max_partial_matches"])
def test_expressions_drop_the_events_of_a_moment_for_which_there_is_no_room(limit: str) -> None:
    left = ouzel.algebra.stream("A").select("id = 1")
    pairs = left.next(ouzel.algebra.stream("B"), "DUR < 10000")
    events = pa.table({"type": ["A"] * 3000 + ["B"], "ts": range(3001), "id": [1] * 3001})
    complete = ouzel.match(events, pairs)
    with pytest.warns(LimitWarning, match=f"dropped .* because of {limit}=5"):
        found = ouzel.match(events, pairs, limits={limit: 5, "when_passed": "drop"})
    assert found.num_rows < complete.num_rows == 3000


def test_nothing_is_said_where_nothing_is_dropped() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ouzel.match(EVENTS, KLEENE, limits={"when_passed": "drop"})
    assert found.num_rows == 1023


def test_wrong_wishes_are_told() -> None:
    with pytest.raises(InputError, match="when_passed is 'stop' or 'drop', not 'ignore'"):
        ouzel.match(EVENTS, SEQUENCE, limits={"when_passed": "ignore"})
    with pytest.raises(InputError, match="a QuerySet stops where a limit is passed"):
        ouzel.QuerySet(limits={"when_passed": "drop"})


@pytest.mark.parametrize(
    ("events", "reason"),
    [(60, "max_matches_per_moment=10,000,000"), (2_000, "more than 81,048,576 events together")],
)
def test_what_explodes_is_counted_before_it_is_given_room(events: int, reason: str) -> None:
    """2 to the power of 60 and of 2,000 matches: each would take all memory there is if it were written out."""
    stream = [{"type": "A", "ts": ts} for ts in range(events)] + [{"type": "B", "ts": events}]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ouzel.LimitError, match=f"{reason}.*OUTPUT COMPRESSED"):
        ouzel.match(stream, "PATTERN SEQ(A+ a[], B b) WITHIN 100000")
    grown_bytes = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown_bytes < 1_000_000_000


@pytest.mark.parametrize(
    ("query", "reason", "explained"),
    [
        ("PATTERN SEQ(A a, B b) GROUP BY id AGG COUNT", "each of 11 keys, and no key expires", "no key expires"),
        (RUNS.replace("WITHIN 100", "WITHIN 5 EVENTS"), "11 events of 11 keys", "every key seen keeps its last ones"),
    ],
)
def test_state_for_every_key_is_limited_by_name_and_explained(query: str, reason: str, explained: str) -> None:
    """Events come one by one, so that hardly any is held but by its key."""
    engine = ouzel.Engine(query, limits={"max_buffered_events": 10})
    with pytest.raises(LimitError, match=f"{reason}.*max_buffered_events=10"):
        for number in range(30):
            engine.push([{"type": "A", "ts": number, "id": number, "x": 1.0}])
    columns = {"ts": "int64", "id": "int64", "x": "float64"}
    assert explained in str(ouzel.explain(query, types={"A": columns, "B": columns}))
