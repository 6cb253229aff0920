"""Queries over incomplete streams by the public API: what is refused, what is reported, and that nothing depends on how
the engine is fed or what it prunes."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel import InputError, LimitError, LossModel, QueryError
from ouzel.loss import Exponential, Gamma
from ouzel.runtime.engine import match_without
from ouzel.runtime.program import dump, load, make_program
from ouzel.runtime.session import Session

THEFT = """
SEQUENCE (x, !y, z)
WHERE x.reader = 'shelf' AND y.reader = 'counter' AND z.reader = 'exit' AND x.id[z.id] = z.id AND y.id = z.id
WITHIN 500 THRESHOLD 0.01
"""
MODEL = LossModel(0.1, gaps={"y": Exponential(400), "z": Gamma(3, 50)}, priors={"x": 0.8})


def readings(count: int, tags: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    readers = np.array(["shelf", "counter", "exit"])[rng.choice(3, count, p=[0.5, 0.15, 0.35])]
    return pa.table(
        {
            "ts": np.cumsum(rng.integers(0, 4, count)),
            "reader": readers,
            "id": rng.integers(0, tags, count),
        }
    )


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


# ── Refusals ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("query", "model", "error"),
    [
        (THEFT, None, "must know what the stream loses"),
        (THEFT, "0.1", "must be an ouzel.LossModel"),
        (THEFT, LossModel(0.1), "the distribution of the gap before 'y'"),
        (
            THEFT.replace("0.01", "0.01 ON probability"),
            LossModel(0.1, gaps={"y": Exponential(4)}),
            "needs a prior of 'x'",
        ),
        (
            THEFT.replace("0.01", "0.01 ON probability"),
            LossModel(0.1, gaps={"y": Exponential(4)}, priors={"x": 0.5}),
            "needs the gap before 'z'",
        ),
        (THEFT, LossModel(0.1, gaps={"y": Exponential("4 min")}), "holds bare numbers"),
    ],
)
def test_models_that_do_not_say_enough(query: str, model: LossModel | None, error: str) -> None:
    with pytest.raises(InputError, match=error):
        ouzel.match(readings(10, 2), query, type=None, model=model)


def test_names_that_no_component_has_are_reported() -> None:
    model = LossModel(0.1, gaps={"y": Exponential(400), "z": Gamma(3, 50)}, component_loss={"zz": 0.2})
    warning = "component_loss of the loss model has 'zz', which is not a component of these queries; did you mean 'z'?"
    with pytest.warns(ouzel.ModelWarning, match=warning):
        ouzel.match(readings(10, 2), THEFT, type=None, model=model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ouzel.match(readings(10, 2), {"a": THEFT, "b": THEFT.replace("z", "zz")}, type=None, model=model)


def test_an_engine_asks_for_its_model_before_the_first_event() -> None:
    with pytest.raises(InputError, match="must know what the stream loses"):
        ouzel.Engine(THEFT, type=None)


def test_a_default_cannot_come_from_a_negative() -> None:
    query = THEFT.replace("x.id[z.id]", "x.id[y.id]")
    with pytest.raises(QueryError, match="which is negated"):
        ouzel.match(readings(10, 2), query, type=None, model=MODEL)


def test_text_of_several_events_is_refused_with_a_hint() -> None:
    query = "SEQUENCE (x, z) WHERE x.reader = 'a' AND z.reader = 'b' AND concat(x.reader['c'], z.reader) = 'ab'"
    with pytest.raises(QueryError, match="combines text"):
        ouzel.match(readings(10, 2), f"{query} WITHIN 9 THRESHOLD 0.1", type=None, model=MODEL)


def test_a_variable_may_not_be_named_as_a_column_of_the_answer() -> None:
    with pytest.raises(QueryError, match="cannot have the name of a column"):
        ouzel.query("PATTERN SEQ(A missing, B b) WITHIN 5 THRESHOLD 0.1")


def test_the_limit_is_named() -> None:
    with pytest.raises(LimitError, match="max_matches_per_timestamp=3"):
        ouzel.match(readings(500, 1), THEFT, type=None, model=MODEL, limits={"max_matches_per_timestamp": 3})


# ── The same answer, whatever way ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("query", [THEFT, THEFT.replace("0.01", "0.02 ON probability")])
def test_bounds_never_change_the_answer(query: str) -> None:
    events = readings(3_000, 20)
    pruned = ouzel.match(events, query, type=None, model=MODEL)
    assert pruned.num_rows > 50
    assert rows(pruned) == rows(match_without(["upper_bounds"], events, query, type=None, model=MODEL))


@pytest.mark.compiled  # thousands of events
def test_a_long_stream_in_batches_with_snapshots() -> None:
    """Long enough for the front of the buffer to be given up, and with keys that come and go."""
    events = readings(40_000, 300)
    moved = pa.table(
        [events["ts"], events["reader"], pa.array(events["id"].to_numpy() + events["ts"].to_numpy() // 1_000 * 300)],
        names=["ts", "reader", "id"],
    )
    want = rows(ouzel.match(moved, THEFT, type=None, model=MODEL))
    engine = ouzel.Engine(THEFT, type=None, model=MODEL)
    found = []
    held = 0
    for number, start in enumerate(range(0, moved.num_rows, 700)):
        found += engine.push(moved.slice(start, 700))["query"].to_pylist()
        held = max(held, engine.held_events)
        if number % 20 == 7:
            engine = ouzel.Engine.restore(engine.snapshot())
    found += engine.finish()["query"].to_pylist()
    assert sorted(map(repr, found)) == want and len(want) > 1_000
    assert held < 12_000


def test_a_model_travels_with_its_program() -> None:
    events = readings(500, 5)
    program = make_program({"query": ouzel.query(THEFT)}, events.schema, time="ts", type=None, model=MODEL)
    session = Session(load(dump(program)))
    session.push(events)
    assert rows(session.finish()["query"]) == rows(ouzel.match(events, THEFT, type=None, model=MODEL))


def test_the_table_of_curves_serves_wide_windows() -> None:
    """The same stream on a scale a million times finer: pieces of polynomials in place of listed values."""
    events = readings(400, 4)
    fine = events.set_column(0, "ts", pa.array(events["ts"].to_numpy() * 1_000_000))
    finer = LossModel(0.1, gaps={"y": Exponential(4e8), "z": Gamma(3, 5e7)}, priors={"x": 0.8})
    coarse = ouzel.match(events, THEFT, type=None, model=MODEL).to_pylist()
    found = ouzel.match(fine, THEFT.replace("500", "500000000"), type=None, model=finer).to_pylist()
    assert len(found) == len(coarse) > 100
    for one, other in zip(found, coarse, strict=True):
        assert one["missing"] == other["missing"]
        assert one["score"] == pytest.approx(other["score"], rel=1e-7)
        assert (one["probability"] is None) == (other["probability"] is None)
        if one["probability"] is not None:
            assert one["probability"] == pytest.approx(other["probability"], rel=1e-6)


def test_timestamps_and_durations() -> None:
    events = pa.table(
        {"ts": pa.array([0, 600_000_000], pa.timestamp("us")), "type": ["A", "B"], "id": [1, 2]},
    )
    model = LossModel(0.1, gaps={"b": Exponential("10 min")}, priors={"a": 0.5})
    query = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 1 hour THRESHOLD 0.05"
    (found,) = ouzel.match(events, query, model=model).to_pylist()
    assert (found["a"], found["missing"], found["score"]) == (None, ["a"], 0.1)
    # Lost in the window, against: did not happen, or happened before the window.
    lost = 0.05 * (1 - np.exp(-6))
    assert found["probability"] == pytest.approx(lost / (lost + 0.5 + 0.5 * np.exp(-6)))


def test_explain_tells_the_kernel_the_queues_and_the_threshold() -> None:
    explained = ouzel.explain("PATTERN SEQ(A a, !(B b), C c) WHERE [id] WITHIN 10 THRESHOLD 0.1 ON probability")
    for line in ("kernel arrivals", "hashed by id", "a may be missing", "probability of 0.1 or more", "upper_bounds"):
        assert line in explained
