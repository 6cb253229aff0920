"""Totals over many keys that cannot be kept up by adding and subtracting: least values, floats, with expiry."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

import ouzel
from ouzel.runtime.engine import match_without
from tests.generate.cases import counted


def random_events(rng: random.Random, keys: int) -> pa.Table:
    ts, events = 0, []
    for _ in range(rng.choice((60, 150))):
        ts += rng.choice((0, 1, 1, 2))
        key = rng.randrange(keys)
        values = {"id": key, "g": key % 3, "x": rng.randint(-5, 5), "f": rng.choice((0.5, 1.25, -3.0))}
        events.append({"type": rng.choice("ABC"), "ts": ts, **values})
    return pa.Table.from_pylist(events)


@pytest.mark.parametrize("number", range(24))
def test_least_values_and_floats_over_many_keys(number: int) -> None:
    rng = random.Random(f"many keys {number}")
    events = random_events(rng, keys=rng.choice((1, 2, 3, 9, 33)))
    negative, group = rng.choice(("", "!(C c), ")), rng.choice(("", " GROUP BY g"))
    query = (
        f"PATTERN SEQ(A a, {negative}B b) WHERE [id]{group} AGG COUNT, MIN(a.x) AS least, MAX(b.x) AS most, "
        f"SUM(a.f) AS total WITHIN {rng.choice((4, 15, 60))}{rng.choice(('', ' EMIT ON CHANGE'))}"
    )
    built = counted(match_without(["count_without_matches"], events, query).to_pylist())
    assert counted(ouzel.match(events, query).to_pylist()) == built
    engine = ouzel.Engine({"query": query})
    told: Counter[str] = Counter()
    first = 0
    while first < events.num_rows:
        size = rng.choice((1, 5, 40))
        told += counted(engine.push(events.slice(first, size))["query"].to_pylist())
        first += size
        if rng.random() < 0.2:
            engine = ouzel.Engine.restore(engine.snapshot())
    assert told + counted(engine.finish()["query"].to_pylist()) == built
