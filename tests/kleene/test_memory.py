"""What runs and graphs hold follows the window, however long the stream is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import ouzel

WINDOW = 600
QUERIES = {
    "runs": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match { [k] AND a[i].x > a[i-1].x } WITHIN 600",
    "contiguous": "PATTERN SEQ(A+ a[], B b) WHERE partition_contiguity { [k] } WITHIN 600",
    "graph": "PATTERN SEQ(A+ a[], B b) WHERE [k] AND a[i].x > a[i-1].x AND b.x > 995 WITHIN 600 OUTPUT COMPRESSED",
    "in events": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match { [k] AND a[i].x > a[i-1].x } WITHIN 60 EVENTS",
}


def events(first: int, count: int) -> pa.Table:
    rng = np.random.default_rng(first)
    types = np.where(rng.random(count) < 0.9, "A", "B")
    columns = {"k": rng.integers(0, 10, count), "x": rng.integers(0, 1000, count)}
    return pa.table({"type": types, "ts": np.arange(first, first + count), **columns})


@pytest.mark.parametrize("kind", QUERIES)
def test_state_is_bounded_over_fifty_windows(kind: str) -> None:
    engine = ouzel.Engine(QUERIES[kind], max_delay=0)
    sizes = []
    for number in range(50):
        engine.push(events(number * WINDOW, WINDOW))
        sizes.append(len(engine.snapshot()))
    # The front of the buffers is let go in portions, so sizes swing; they do not grow.
    assert max(sizes[40:]) <= 1.2 * max(sizes[10:25])
