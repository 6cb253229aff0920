"""Random queries over random streams: `ouzel.spark.match` answers as the embedded engine does.

Spark takes much longer to start a job than these take to answer, so the matches of many queries, over several streams,
come back from one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ouzel
import ouzel.spark
from ouzel.errors import LimitError
from ouzel.spark.schema import spark_schema
from tests.generate import random_case
from tests.generate.cases import COLUMNS, SCHEMA, RandomCase, counted
from tests.generate.events import TYPES, VALUES
from tests.spark.together import collect_together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

QUERIES_PER_STREAM = 8
# Twice as long as any window of the random queries, so that all that can be cut is.
SLICE_TICKS = 28
LIMITS = {"max_matches_per_timestamp": 300, "max_partial_matches": 20_000}


def random_stream(rng: random.Random) -> pa.Table:
    """Events at negative and positive times, many of them simultaneous, in any order."""
    rows, time = [], rng.choice([-40, 0, 7])
    for number in range(rng.choice([12, 40, 60])):
        time += rng.choice((0, 0, 1, 1, 1, 2, 5))
        values = {name: rng.choice(choices) for name, choices in VALUES.items()}
        if isinstance(values["f"], float) and values["f"] != values["f"]:
            values["f"] = 2.5  # An average with NaN in it says nothing of the others.
        rows.append({"type": rng.choice(TYPES), "time": time, "n": number, **values})
    rng.shuffle(rows)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def random_query(rng: random.Random) -> RandomCase:
    profile = rng.choice(["sase", "sase", "kleene", "kleene", "aggregate"])
    return random_case(rng, profile)


class Stream:
    """A random stream, queries over it, and the answers of the embedded engine."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(f"batch {seed}")
        table = random_stream(rng)
        # One input, or one for each event type with columns of its own.
        self.attributes = {name: ["n", *(a for a in VALUES if rng.random() < 0.8)] for name in TYPES}
        self.events: Any = table
        self.options: dict[str, Any] = {"limits": LIMITS, "order": rng.choice([(), (), ("n",)]), **COLUMNS}
        self.apart = rng.random() < 0.3
        if self.apart:
            self.options["type"] = None
            self.events = {
                name: table.filter(pa.compute.equal(table["type"], name)).select(["time", *self.attributes[name]])
                for name in TYPES
            }
        self.queries: dict[str, ouzel.Query] = {}
        self.expected: dict[str, pa.Table] = {}
        while len(self.queries) < QUERIES_PER_STREAM:
            self._add(random_query(rng))

    def _add(self, case: RandomCase) -> None:
        if case.types is not None:
            return  # Which type has which attribute is a matter of the stream, the same for all queries of a job.
        query = case.query
        if self.options["order"] and "EMIT ON CHANGE" in case.text:
            return  # A total order and EMIT ON CHANGE exclude each other.
        try:
            answer = ouzel.match(self.events, query, **self.options)
        except LimitError:
            return
        except ouzel.QueryError:
            assert self.apart, "some query names an attribute that a type lacks"
            return
        name = f"q{len(self.queries)}"
        self.queries[name], self.expected[name] = query, answer

    def matches(self, spark: SparkSession) -> dict[str, DataFrame]:
        """What Spark finds, by the number of the stream and the name of the query."""
        rng = self.rng

        def source(table: pa.Table) -> DataFrame:
            return spark.createDataFrame(table, spark_schema(table.schema)).coalesce(rng.choice([1, 2]))

        events = {n: source(t) for n, t in self.events.items()} if self.apart else source(self.events)
        hint = rng.choice([None, SLICE_TICKS, SLICE_TICKS, False])
        limit = rng.choice([None, None, 512])
        self.way = f"slices={hint}, memory_limit={limit}"
        found = ouzel.spark.match(events, self.queries, slices=hint, memory_limit=limit, **self.options)
        for name, frame in found.items():
            assert frame.columns == self.expected[name].column_names
        return {f"{self.seed} {name}": frame for name, frame in found.items()}

    def check(self, found: dict[str, list[pa.Table]]) -> int:
        """How many of the queries have matches; all of them as they should be."""
        for name, query in self.queries.items():
            rows = [row for table in found[f"{self.seed} {name}"] for row in table.to_pylist()]
            want: Counter[str] = counted(self.expected[name].to_pylist())
            assert counted(rows) == want, f"stream {self.seed}, {self.way}, {self.options}\n{query.text}"
        return sum(table.num_rows > 0 for table in self.expected.values())


def compare(spark: SparkSession, seeds: Iterable[int]) -> int:
    streams = [Stream(seed) for seed in seeds]
    frames = {name: frame for stream in streams for name, frame in stream.matches(spark).items()}
    found = collect_together(frames)
    spark.catalog.clearCache()
    return sum(stream.check(found) for stream in streams)


def test_random_queries_answer_as_embedded(spark: SparkSession) -> None:
    assert compare(spark, range(3)) >= 12


@pytest.mark.long
@pytest.mark.parametrize("part", range(100))
def test_many_random_queries_answer_as_embedded(spark: SparkSession, part: int) -> None:
    assert compare(spark, range(100 + 5 * part, 105 + 5 * part)) > 0
