"""Limits: a query that passes one is stopped with an error that names the limit; the others continue."""

from __future__ import annotations

import resource
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.errors import InputError, LimitError

# Ten A at 0 … 9, then a B.
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
    ("query", "limit", "most"),
    [
        (SEQUENCE, "max_buffered_events", 10),
        (RUNS, "max_buffered_events", 10),
        (COUNT, "max_buffered_events", 10),
        (SUMS, "max_buffered_events", 10),
        (LAST, "max_buffered_events", 10),
        (MISSING, "max_buffered_events", 10),
        (LONELY, "max_buffered_events", 4),
        (SEQUENCE, "max_matches_per_timestamp", 4),
        (RUNS, "max_matches_per_timestamp", 4),
        (KLEENE, "max_matches_per_timestamp", 4),
        (LONG, "max_matches_per_timestamp", 4),
        (MISSING, "max_matches_per_timestamp", 4),
        (LONELY, "max_partial_matches", 4),
        (RUNS, "max_partial_matches", 4),
        (RUNS_LONELY, "max_partial_matches", 4),
    ],
)
def test_limit_stops_query_and_others_continue(query: str, limit: str, most: int) -> None:
    options: dict[str, Any] = {"model": MODEL} if query == MISSING else {}
    with pytest.raises(LimitError, match=f"{limit}={most}"):
        ouzel.match(EVENTS, query, limits={limit: most}, **options)
    small = "PATTERN SEQ(A a, B b) WHERE a.ts = 9 WITHIN 100"
    engine = ouzel.Engine({"large": query, "small": small}, limits={limit: most}, **options)
    with pytest.warns(ouzel.ProblemWarning, match=limit):
        answers = [engine.push(EVENTS), engine.finish()]
    assert sum(answer["small"].num_rows for answer in answers) == 1
    (problem,) = engine.problems()
    assert problem.query == "large" and f"{limit}={most}" in problem.reason


@pytest.mark.parametrize("limit", ["max_matches_per_timestamp", "max_partial_matches"])
def test_limit_stops_algebra_expression(limit: str) -> None:
    left = ouzel.algebra.stream("A").select("id = 1")
    pairs = left.next(ouzel.algebra.stream("B"), "DUR < 10000")
    events = pa.table({"type": ["A"] * 3000 + ["B"], "ts": range(3001), "id": [1] * 3001})
    assert ouzel.match(events, pairs).num_rows == 3000
    with pytest.raises(LimitError, match=f"{limit}=5"):
        ouzel.match(events, pairs, limits={limit: 5})


def test_unknown_limit_is_refused() -> None:
    with pytest.raises(InputError, match="there is no limit 'when_passed'; there are max_matches_per_timestamp, "):
        ouzel.match(EVENTS, SEQUENCE, limits={"when_passed": "drop"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        pytest.param(60, "max_matches_per_timestamp=10,000,000", marks=pytest.mark.compiled),  # it takes many steps
        (2_000, "more than 81,048,576 events in total"),
    ],
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
        ("PATTERN SEQ(A a, B b) GROUP BY id AGG COUNT", "each of 11 keys, more than", "no key expires"),
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
