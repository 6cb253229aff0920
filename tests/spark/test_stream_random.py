"""Random streams on Spark: out of order, at the same moments, too late; the answers are those of what was on time.

Thirty inputs group one stream, each with ids of its own, so that one start of Spark's serves them all.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from tests.spark.streams import FileStream
from tests.spark.test_batch import as_set

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

INPUTS, EVENTS, BATCHES, DELAY = 30, 24, 8, 6
SCHEMA = pa.schema({"type": pa.string(), "ts": pa.int64(), "id": pa.int64(), "x": pa.int64(), "row": pa.int64()})
QUERIES = {
    "lonely": "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 5 RETURN L(a.row AS row)",
    "between": "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.x <= b.x WITHIN 9 RETURN P(a.row AS a, b.row AS b)",
    "climb": (
        "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] AND a[i].x >= a[i-1].x } "
        "WITHIN 8 RETURN C(a[1].row AS first, b.row AS last, a.LEN AS length)"
    ),
    "count": "PATTERN SEQ(A a, C c) GROUP BY id AGG COUNT, SUM(c.x) WITHIN 7",
    "pairs": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 4 RETURN Pair(a.id AS id, a.row AS row) INTO found",
    "twice": "PATTERN SEQ(Pair p, Pair q) FROM found WHERE [id] WITHIN 12 RETURN T(p.row AS p, q.row AS q)",
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_what_was_on_time_is_answered_and_the_rest_is_late(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    # One moment in three has several events; x has ties and nulls.
    events = [
        ("ABCD"[chance.randrange(4)], chance.randrange(60), number, chance.choice([None, 0, 1, 2, 3]))
        for number in range(INPUTS)
        for _ in range(EVENTS)
    ]
    events = [(*event, row) for row, event in enumerate(events)]
    # Most come within the delay, one in eight much later.
    arrival = sorted(events, key=lambda event: event[1] + chance.uniform(0, 40 if chance.random() < 0.125 else DELAY))
    size = -(-len(arrival) // BATCHES)
    batches = [arrival[first : first + size] for first in range(0, len(arrival), size)]
    late: list[tuple] = []
    newest = watermark = None
    for batch in batches:
        # Spark's watermark moves between micro-batches; it stays 1 ms, here a tick, behind what max_delay allows.
        watermark = watermark if newest is None else newest - DELAY - 1
        late += [event for event in batch if watermark is not None and event[1] <= watermark]
        newest = max([event[1] for event in batch] + ([] if newest is None else [newest]))
    assert 0 < len(late) < len(events) // 4
    stream = FileStream(spark, tmp_path, SCHEMA)
    stream.add([_table(batch) for batch in batches] + [_table([("Z", 10**6, 0, None, -1)])])
    stream.run(lambda frame: ouzel.spark.match(frame, QUERIES, max_delay=DELAY, late=True))
    found = stream.answers()
    expected = ouzel.match(_table([event for event in events if event not in late]), QUERIES)
    for name, table in expected.items():
        rows = [row[name] for row in found if row["query"] == name and row["late"] is None]
        assert sorted(map(repr, rows)) == as_set(table) != [], name
    wanted = {"lonely": "AB", "between": "ABC", "climb": "AB", "count": "AC", "pairs": "AB"}
    for name, kinds in wanted.items():
        told = sorted(row["late"]["row"] for row in found if row["query"] == name and row["late"] is not None)
        assert told == sorted(event[4] for event in late if event[0] in kinds), name


def _table(events: list[tuple]) -> pa.Table:
    columns = zip(*events, strict=True)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)
