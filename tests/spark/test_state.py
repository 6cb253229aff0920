"""What `ouzel.spark.state` tells of stored buckets, for every kind of query; Spark itself is not needed for that."""

from __future__ import annotations

import pytest

from ouzel.spark.inspect import StoredBucket, describe_bucket
from ouzel.spark.versions import bucket_names
from tests.spark.test_steps import ORIGIN_US, Stream, job_for, table_of

QUERIES = {
    "stacks": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 9 ms",
    "waiting": "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 9 ms",
    "runs": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] } WITHIN 9 ms",
    "graph": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_any_match(a[], b) { [id] } WITHIN 9 ms",
    "counters": "PATTERN SEQ(A a, B b) GROUP BY id AGG COUNT WITHIN 9 ms",
    "counted edges": "PATTERN SEQ(A a, B b) WHERE a.row <= b.row GROUP BY id AGG COUNT WITHIN 9 ms",
    "built": "PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [id] } GROUP BY id AGG COUNT WITHIN 9 ms",
}
# Of key 1 two A, of key 2 one; then time moves, so that they are no longer only pending.
EVENTS = [("A", 0, 1), ("A", 1_000, 1), ("A", 2_000, 2), ("Z", 5_000, 1), ("Z", 5_500, 2)]


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("query", QUERIES)
def test_what_is_open_is_told_by_key(query: str, settled: bool) -> None:
    stream = Stream(job_for({"query": QUERIES[query]}, buckets=1), delay_ms=0)
    stream.micro_batch(table_of(EVENTS[:3]))
    if settled:
        stream.micro_batch(table_of(EVENTS[3:]))
        stream.micro_batch(table_of([("Z", 6_000, 1)]))
    (store,) = (store for name, store in stream.stores.items() if name >= 0)
    rows = describe_bucket(bucket_names(1)[0], StoredBucket(store.values, store.chunks))
    told = {row["key"]: (row["open_events"], row["oldest"]) for row in rows}
    assert told == {"1": (2, ORIGIN_US), "2": (1, ORIGIN_US + 2_000)}
    assert all(row["state_bytes"] > 0 for row in rows)
