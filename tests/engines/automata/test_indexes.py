"""The cost of an event follows what it affects: who is looked at in vain is counted."""

from __future__ import annotations

import random

import pyarrow as pa

import ouzel
from ouzel.algebra import stream

S = stream()
LANES = ("a", "b", "c")
VALUES = 40


def test_events_look_only_at_nodes_that_wait_for_their_values() -> None:
    rng = random.Random("indexes")
    events = pa.table({"ts": list(range(2_000)), **{n: [rng.randrange(VALUES) for _ in range(2_000)] for n in LANES}})
    held = ouzel.QuerySet(type=None, schema=events.schema)
    for name in LANES:
        first = S.select(f"{name} = :value").rename({one: f"{one}_1" for one in LANES})
        waiting = first.next(S, f"{name} = :value AND DUR <= 30")
        held.add_template(name, waiting, [{"id": f"{name} {k}", "value": k} for k in range(VALUES)])
    answers = [held.push(events), held.finish()]
    assert sum(part.num_rows for one in answers for part in one.values()) > 500
    counted = held.statistics
    assert counted["instances_read"] > 500
    # A value of one attribute that is taken for the same value of another would be looked at two times in three.
    assert counted["waits_read"] <= 1.1 * counted["instances_read"]
