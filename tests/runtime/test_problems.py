"""One query's error stops that query, and those that read its matches; the others run on."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
import pytest

import ouzel

PAIR = "PATTERN SEQ(A a, B b) WITHIN 5 RETURN Pair(a.ts AS a, b.ts AS b)"
# So many pairs of A's before one B are too many, while those of PAIR are few.
MANY = "PATTERN SEQ(A a, A b, B c) WITHIN 1000"
KLEENE = "PATTERN SEQ(A+ a[], B b) WITHIN 1000"
FEW = {"max_matches_per_timestamp": 40}
BATCHES = [
    [{"type": "A", "ts": ts, "x": 1} for ts in range(1, 15)] + [{"type": "B", "ts": 15, "x": 1}],
    [{"type": "A", "ts": ts, "x": 1} for ts in range(16, 18)] + [{"type": "B", "ts": 18, "x": 1}],
    [{"type": "A", "ts": 19, "x": 1}, {"type": "B", "ts": 20, "x": 1}],
]


def rows(answers: list[dict[Any, pa.Table]], name: Any) -> list[Any]:
    return [row for answer in answers if name in answer for row in answer[name].to_pylist()]


def run(engine: Any) -> list[dict[Any, pa.Table]]:
    return [*(engine.push(batch) for batch in BATCHES), engine.finish()]


def wanted() -> list[Any]:
    return rows(run(ouzel.Engine({"pair": PAIR})), "pair")


@pytest.mark.parametrize("bad", [MANY, KLEENE], ids=["stacks", "graph"])
def test_a_limit_stops_one_query(bad: str) -> None:
    engine = ouzel.Engine({"bad": bad, "pair": PAIR}, limits=FEW)
    answers = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        answers = run(engine)
    assert rows(answers, "pair") == wanted() != []
    assert rows(answers, "bad") == []
    (warning,) = warned
    assert warning.category is ouzel.ProblemWarning and warning.filename == __file__
    (problem,) = engine.problems()
    assert (problem.query, problem.time) == ("bad", 18)
    assert "max_matches_per_timestamp=40" in problem.reason and problem.reason in str(warning.message)
    with pytest.raises(ouzel.LimitError, match=r"max_matches_per_timestamp=40 .*stopped at time 18"):
        answers[1]["bad"]
    with pytest.raises(KeyError):
        answers[1]["worse"]


def test_a_count_stops_alone_though_it_is_counted_with_others() -> None:
    """The counts of all sequences of 80 A's do not fit 64 bits; those of few components do."""
    events = [{"type": "A", "ts": ts} for ts in range(1, 80)] + [{"type": "B", "ts": 90}, {"type": "B", "ts": 91}]
    counts = {
        "all": "PATTERN SEQ(A+ a[], B b) AGG COUNT(*) AS n WITHIN 1000",
        "two": "PATTERN SEQ(A a, B b) AGG COUNT(*) AS n WITHIN 1000",
        "three": "PATTERN SEQ(A a, A c, B b) AGG COUNT(*) AS n WITHIN 1000",
    }
    alone = {name: ouzel.match(events, counts[name]).to_pylist() for name in ("two", "three")}
    engine = ouzel.Engine(counts)
    with pytest.warns(ouzel.ProblemWarning, match="COUNT AS DECIMAL"):
        first = engine.push(events)
    answers = [first, engine.finish()]
    assert {name: rows(answers, name) for name in alone} == alone
    assert [problem.query for problem in engine.problems()] == ["all"]


def test_readers_of_a_stopped_query_stop_with_it() -> None:
    queries = {
        "source": "PATTERN SEQ(A a, A b, B c) WITHIN 1000 RETURN Found(c.ts AS x) INTO Found",
        "reader": "FROM Found PATTERN SEQ(Found f, Found g) WITHIN 1000 RETURN Two(f.x AS x)",
        "pair": PAIR,
    }
    engine = ouzel.Engine(queries, limits=FEW)
    with pytest.warns(ouzel.ProblemWarning):
        answers = run(engine)
    assert rows(answers, "pair") == wanted()
    assert {problem.query for problem in engine.problems()} == {"source", "reader"}
    with pytest.raises(ouzel.LimitError, match="reads 'Found', which query 'source' no longer writes"):
        answers[-1]["reader"]


def test_a_query_stops_that_reads_another_which_cannot_take_the_events_in() -> None:
    queries = {
        "source": "PATTERN SEQ(A a, B b) WITHIN 1000 RETURN Found(b.ts AS x) INTO Found",
        "reader": "FROM Found, input PATTERN SEQ(Found f, C c) WITHIN 1000 RETURN Two(f.x AS x)",
        "single": "PATTERN SEQ(C c) WITHIN 5 RETURN One(c.ts AS x)",
    }
    engine = ouzel.Engine(queries, limits={"max_buffered_events": 5})
    with pytest.warns(ouzel.ProblemWarning):
        first = engine.push(BATCHES[0])
    assert [problem.query for problem in engine.problems()] == ["source", "reader"]
    answers = [first, engine.push([{"type": "C", "ts": 30, "x": 1}]), engine.finish()]
    assert rows(answers, "single") == [{"start": 30, "end": 30, "x": 30}]


def test_a_single_query_raises_and_stays_stopped() -> None:
    engine = ouzel.Engine(MANY, limits=FEW)
    engine.push(BATCHES[0])
    with pytest.raises(ouzel.LimitError, match="max_matches_per_timestamp=40"):
        engine.push(BATCHES[1])
    with pytest.raises(ouzel.LimitError, match="stopped at time 18"):
        engine.push(BATCHES[2])
    with pytest.raises(ouzel.LimitError, match="stopped at time 18"):
        engine.advance(100)
    with pytest.raises(ouzel.LimitError, match="stopped at time 18"):
        engine.finish()
    assert [problem.query for problem in engine.problems()] == ["query"]


def test_snapshots_keep_problems() -> None:
    engine = ouzel.Engine({"bad": MANY, "pair": PAIR}, limits=FEW)
    engine.push(BATCHES[0])
    with pytest.warns(ouzel.ProblemWarning):
        engine.push(BATCHES[1])
    restored = ouzel.Engine.restore(engine.snapshot())
    assert restored.problems() == engine.problems() != []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # It was reported before.
        later = [restored.push(BATCHES[2]), restored.finish()]
    assert rows(later, "pair") == rows([engine.push(BATCHES[2]), engine.finish()], "pair")
    with pytest.raises(ouzel.LimitError, match="stopped"):
        later[0]["bad"]


@pytest.mark.parametrize("bad", ["first", "second"])
def test_queries_counted_together_stop_one_by_one(bad: str) -> None:
    sums = "PATTERN SEQ(A a, B b, C c) WITHIN 1000 AGG SUM(c.x) AS total"
    counts = "PATTERN SEQ(A a, B b, C c) WITHIN 1000 AGG COUNT AS total"
    queries = {name: sums if name == bad else counts for name in ("first", "second")}
    (other,) = {"first", "second"} - {bad}
    engine = ouzel.Engine(queries)
    answers = []
    with pytest.warns(ouzel.ProblemWarning):
        for k, x in enumerate([1, 2**62, 2**62, 1, 1]):
            answers.append(engine.push([{"type": t, "ts": 10 * k + i, "x": x} for i, t in enumerate("ABC")]))
            if k == 3:
                engine = ouzel.Engine.restore(engine.snapshot())
    assert engine._session is not None and len(engine._session._operators) == 1
    assert [problem.query for problem in engine.problems()] == [bad]
    answers.append(engine.finish())
    assert [row["total"] for row in rows(answers, other)] == [1, 4, 10, 20, 35]


def test_match_of_several_raises_and_names_the_query() -> None:
    events = [event for batch in BATCHES for event in batch]
    with pytest.raises(ouzel.LimitError, match="query 'bad'"):
        ouzel.match(events, {"bad": MANY, "pair": PAIR}, limits=FEW)


def test_a_set_runs_on() -> None:
    held = ouzel.QuerySet(limits=FEW)
    held.add("pair", PAIR)
    for id in ("bad", "as bad"):
        held.add(id, KLEENE)
    with pytest.warns(ouzel.ProblemWarning):
        answers = [held.push(batch) for batch in BATCHES[:2]]
    assert {problem.query for problem in held.problems()} == {"bad", "as bad"}
    with pytest.raises(ouzel.LimitError, match="stopped"):
        answers[-1]["bad"]
    held.add("new", KLEENE.replace("1000", "4"))  # It starts with what comes.
    restored = ouzel.QuerySet.restore(held.snapshot())
    assert restored.problems() == held.problems()
    later = [held.push(BATCHES[2]), held.finish()]
    assert [r | {"query": None} for r in rows(answers + later, "pair")] == [r | {"query": None} for r in wanted()]
    assert rows(later, "new") == rows([restored.push(BATCHES[2]), restored.finish()], "new") != []
    held = ouzel.QuerySet(limits=FEW)
    held.add("bad", KLEENE)
    held.push(BATCHES[0])
    with pytest.raises(ouzel.LimitError, match="max_matches_per_timestamp=40"):
        held.push(BATCHES[1])
