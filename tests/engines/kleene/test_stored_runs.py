"""Runs that were stored before the plain reader came are taken on by the reader that made them."""

from __future__ import annotations

import random
from functools import partial

import pyarrow as pa
import pytest

import ouzel
from ouzel.engines.kleene import operator as runs

CLIMB = (
    "PATTERN SEQ(A+ a[], B b) WHERE {strategy}(a[], b) {{ [id] AND a[i].x > a[i-1].x AND b.x < a[1].x }} WITHIN 60 "
    "RETURN C(a[1].x AS first, b.x AS last, a.LEN AS length)"
)


def events(seed: int) -> pa.Table:
    rng = random.Random(seed)
    count = 400
    return pa.table(
        {
            "type": rng.choices("AAB", k=count),
            "ts": range(count),
            "id": rng.choices(range(3), k=count),
            "x": rng.choices(range(12), k=count),
        }
    )


@pytest.mark.parametrize("strategy", ["skip_till_next_match", "partition_contiguity", "skip_till_any_match"])
@pytest.mark.parametrize("seed", range(3))
def test_earlier_state_is_taken_on(strategy: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    query = CLIMB.format(strategy=strategy).replace("WITHIN 60", "WITHIN 20" if "any" in strategy else "WITHIN 60")
    table = events(seed)
    with monkeypatch.context() as before:
        before.setattr(runs, "run_tables", partial(runs.run_tables, plain=False))
        engine = ouzel.Engine(query)
        found = engine.push(table.slice(0, 200))["query"].to_pylist()
        stored = engine.snapshot()
    for first, end in ((200, 300), (300, 400)):
        engine = ouzel.Engine.restore(stored)
        found += engine.push(table.slice(first, end - first))["query"].to_pylist()
        stored = engine.snapshot()
    found += engine.finish()["query"].to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, ouzel.match(table, query).to_pylist()))
    assert len(found) > 3
