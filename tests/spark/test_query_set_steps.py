"""Sets of queries on streams without Spark: its micro-batches are played here, and every step restores its state."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.algebra import to_text
from ouzel.errors import StateError
from ouzel.spark import bucket
from ouzel.spark.bucket import CONTROL
from ouzel.spark.compatibility import CheckpointSignature, digest_of
from ouzel.spark.partitioning import shared_key
from ouzel.spark.payloads import Clock, QueryGroup, from_payload
from ouzel.spark.query_set_worker import SetJob, pack_changes, pack_set_events
from tests.spark.test_query_sets import (
    END,
    KEYED_TEXTS,
    PAIRS,
    SCHEMA,
    Reference,
    S,
    keyed_set,
    mixed_set,
    random_quotes,
    rows_of,
    same,
)
from tests.spark.test_steps import MemoryStore

ORIGIN_MS = 1 << 42
ANSWERS = pa.schema(
    {n: pa.int64() for n in ("start", "end", "price", "first", "limit", "count", "p2")}
    | {n: pa.string() for n in ("query", "name", "other", "n2", "problem")}
)


def job_for(held: ouzel.QuerySet, keys: tuple[str, ...], **options: Any) -> SetJob:
    sets = held.slices(SCHEMA, 1 if keys else 2, bounded=False)
    return SetJob(
        group=QueryGroup(b"", SCHEMA.serialize().to_pybytes(), "ts", ("query",), 0, Clock(1_000_000, ORIGIN_MS)),
        answers=ANSWERS.serialize().to_pybytes(),
        parts=2,
        sets=tuple(one.snapshot() for one in sets),
        keys=keys,
        names=(5, 6),
        signature=CheckpointSignature(2, (0,), query_set={"key": list(keys)}).dump(),
        **options,
    )


class Stream:
    """Spark's part: the watermark, the stores, and who gets which payload."""

    def __init__(self, job: SetJob, *, forgetful: bool) -> None:
        self.job = job
        self._forgetful = forgetful
        self._stores = {name: MemoryStore() for name in (*job.names, CONTROL)}
        self._newest: int | None = None
        self.rows: list[dict[str, Any]] = []

    def step(self, events: pa.Table, changes: Mapping[str, str | None] | None = None) -> None:
        buckets = [0 if name is None else len(name) % 2 for name in events["name"].to_pylist()]
        placed = events.append_column("bucket", pa.array(buckets, pa.int32()))
        packed = [*pack_set_events(self.job, "bucket", placed.to_batches())]
        if changes:
            table = pa.table({"id": list(changes), "query": list(changes.values())})
            nothing = pa.nulls(table.num_rows, pa.string())
            table = table.append_column("owner", nothing).append_column("version", nothing.cast(pa.int64()))
            packed += [*pack_changes(self.job, table.to_batches())]
        payloads: dict[int, list[bytes]] = {name: [] for name in self.job.names}
        for batch in packed:
            for name, payload in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                payloads.setdefault(name, []).append(payload)
        watermark_ms = 0 if self._newest is None else ORIGIN_MS + self._newest - 3
        for name, brought in payloads.items():
            if self._forgetful:
                bucket._sessions.take(digest_of(self.job.signature), name)
            # Spark does not say in which order payloads come.
            for _, payload in bucket.step(self.job, name, self._stores[name], watermark_ms, reversed(brought)).answers:
                self.rows += rows_of(from_payload(payload))
        self._newest = max([self._newest or 0, *events["ts"].to_pylist()])


@pytest.mark.parametrize(("make", "keys"), [(keyed_set, ("name",)), (mixed_set, ())])
@pytest.mark.parametrize("log_bytes_min", [0, 1 << 20])
def test_micro_batches_answer_as_the_embedded_set(make: Any, keys: tuple[str, ...], log_bytes_min: int) -> None:
    (whole,) = make().slices(SCHEMA, 1, bounded=False)
    assert shared_key([whole]) == frozenset(keys)
    quotes = random_quotes(5, 90)
    stream = Stream(job_for(make(), keys, log_bytes_min=log_bytes_min), forgetful=True)
    for first in range(0, 90, 30):
        stream.step(quotes.slice(first, 30))
    stream.step(END)
    stream.step(END.slice(0, 0))
    held = make()
    given = [held.push(quotes), held.finish()]
    same(stream.rows, [row for answers in given for part in answers.values() for row in part.to_pylist()])


TEXTS = {
    "pairs": to_text(PAIRS),
    "rising": KEYED_TEXTS["pattern"],
    "high": to_text(S.select("price > 7")),
    "low": to_text(PAIRS.select("price < first")),
    "lonely": KEYED_TEXTS["lonely"],
}


@pytest.mark.parametrize("keys", [("name",), ()])
def test_changes_at_random(keys: tuple[str, ...]) -> None:
    for seed in range(3):
        rng = random.Random(f"changes {seed}")
        quotes = random_quotes(seed, 120)
        stream = Stream(job_for(ouzel.QuerySet(), keys), forgetful=rng.random() < 0.5)
        reference = Reference({}, delay=2)
        present: set[str] = set()
        for first in range(0, 120, 20):
            chosen = rng.sample(sorted(TEXTS), rng.randint(0, 3))
            changes = {one: None if one in present else TEXTS[one] for one in chosen}
            present ^= set(chosen)
            # What is there already, as it is, is no change.
            again = {one: TEXTS[one] for one in present - set(chosen) if rng.random() < 0.3}
            stream.step(quotes.slice(first, 20), {**changes, **again})
            reference.step(changes, quotes.slice(first, 20))
        for events in (END, END.slice(0, 0)):
            stream.step(events)
            reference.step({}, events)
        same(stream.rows, reference.answers)


def test_a_changed_text_replaces_the_query() -> None:
    stream = Stream(job_for(ouzel.QuerySet(), ("name",)), forgetful=True)
    rows = [{"type": "Stock", "ts": ts, "name": "IBM", "price": ts} for ts in range(1, 9)]
    quotes = pa.Table.from_pylist(rows, SCHEMA)
    stream.step(quotes.slice(0, 4), {"one": to_text(S.select("price > 0"))})
    stream.step(quotes.slice(4), {"one": to_text(S.select("price > 6"))})
    stream.step(END)
    stream.step(END.slice(0, 0))
    # The watermark of the second micro-batch stood at 1.
    assert [row["end"] for row in stream.rows] == [1, 7, 8]


def test_what_is_wrong_with_a_query_disturbs_no_other() -> None:
    stream = Stream(job_for(ouzel.QuerySet(), ("name",)), forgetful=False)
    changes = {
        "syntax": "PATTERN SEQ(",
        "json": "{",
        "name": to_text(S.select("prise > 1")),
        "unbounded": to_text(S.next(S, "name = name.last")),
        "key": to_text(S.next(S, "price = price.last AND DUR <= 5")),
        "column": to_text(S.extend(more="price + 1")),
        "type": to_text(S.project(["name"]).rename({"name": "price"})),
        "gone": None,
        "fine": to_text(S.select("price >= 0")),
    }
    stream.step(random_quotes(1, 20), changes)
    stream.step(END)
    stream.step(END.slice(0, 0))
    problems = {row["query"]: row["problem"] for row in stream.rows if "problem" in row}
    assert set(problems) == set(changes) - {"fine"}
    told = {
        "name": "did you mean 'price'",
        "unbounded": "upper bound on DUR",
        "key": "distributed by name",
        "column": "'more'",
        "type": "another name",
        "gone": "no query 'gone'",
    }
    for name, words in told.items():
        assert words in problems[name]
    assert len(problems) == sum("problem" in row for row in stream.rows)
    assert {row["query"] for row in stream.rows if "problem" not in row} == {"fine"}


def test_versions_tell_which_row_is_newer() -> None:
    job = job_for(ouzel.QuerySet(), ())
    table = pa.table(
        {
            "id": ["a", "a", "b", "b", "c", None],
            "query": ["new", "old", None, "x", "same", "y"],
            "owner": pa.nulls(6, pa.string()),
            "version": pa.array([2, 1, None, None, 1, 1], pa.int64()),
        }
    )
    found = [
        row
        for batch in pack_changes(job, table.to_batches())
        for payload in batch.column(1).to_pylist()
        for row in from_payload(payload).to_pylist()
    ]
    texts = {row["id"]: row["problem"] or row["query"] for row in found}
    assert texts["a"] == "new" and texts["c"] == "same"
    assert "duplicate id" in texts["b"] and "has no id" in texts[None]


def test_another_set_at_the_start_is_refused() -> None:
    job = job_for(keyed_set(), ("name",))
    stream = Stream(job, forgetful=True)
    stream.step(random_quotes(1, 20))
    stream.job = replace(job, signature=CheckpointSignature(2, (0,), query_set={"key": ["price"]}).dump())
    with pytest.raises(StateError, match=r"another key: \['name'\] then, \['price'\] now"):
        stream.step(random_quotes(1, 20))
