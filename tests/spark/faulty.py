"""The random streams of fault tests: every kind of query over events out of order, in many small micro-batches.

A folder has the whole stream: what it is (`stream.json`), its source, its checkpoint and its sink. So any process can
run it, be killed, and leave the rest to another one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException

import ouzel
from ouzel.loss import Exponential
from tests.spark.streams import FileStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 25
KEYS = 5
DELAY = 6
# Fixed, so that the number of shuffle partitions may change from one life of the stream to the next.
BUCKETS = 3
SCHEMA = pa.schema({"type": pa.string(), "ts": pa.int64(), "id": pa.int64(), "x": pa.int64(), "row": pa.int64()})
MODEL = ouzel.LossModel(0.1, gaps={"b": Exponential(2), "c": Exponential(2)}, priors={"a": 0.9})


@dataclass(frozen=True, slots=True)
class Faulty:
    """A random stream. Its kind is `queries`, each of the kinds of query, `rows`, row patterns, or `set`, a set of
    queries."""

    kind: str
    seed: int
    batches: int

    @classmethod
    def read(cls, folder: Path) -> Faulty:
        return cls(**json.loads((folder / "stream.json").read_text(encoding="utf-8")))

    def write(self, folder: Path) -> None:
        """Write the stream, with all its micro-batches as files."""
        folder.mkdir(parents=True, exist_ok=True)
        events = self.events()
        chance = random.Random(self.seed)
        arrival = [tick + chance.uniform(0, DELAY) for tick in events["ts"].to_pylist()]
        arrived = events.take(sorted(range(events.num_rows), key=arrival.__getitem__))
        end = pa.table([["Z"], [10**6], [0], [None], [-1]], schema=SCHEMA)
        stream = FileStream(None, folder, SCHEMA)
        stream.add([*(arrived.slice(first, BATCH_ROWS) for first in range(0, events.num_rows, BATCH_ROWS)), end])
        (folder / "stream.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    def events(self) -> pa.Table:
        chance = random.Random(self.seed)
        rows = self.batches * BATCH_ROWS
        columns = [
            chance.choices("AABBCD", k=rows),
            sorted(chance.randrange(rows // 2) for _ in range(rows)),
            [chance.randrange(KEYS) for _ in range(rows)],
            [chance.choice([None, 0, 1, 2, 3]) for _ in range(rows)],
            list(range(rows)),
        ]
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )

    def queries(self) -> dict[str, str]:
        """A query for each engine, strategy and way of distributing events, with random windows; or row patterns."""
        chance = random.Random(self.seed)

        def window() -> str:
            return f"WITHIN {chance.randint(3, 12)}"

        if self.kind == "rows":
            return {
                "dips": (
                    "MATCH_RECOGNIZE (PARTITION BY id ORDER BY ts "
                    "MEASURES FIRST(row) AS first, LAST(row) AS last, COUNT(*) AS n "
                    f"PATTERN (D+ U+) {window()} DEFINE D AS x < PREV(x), U AS x > PREV(x))"
                ),
                "bins": (
                    "MATCH_RECOGNIZE (PARTITION BY id ORDER BY ts MEASURES SUM(x) AS total "
                    "ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW "
                    f"PATTERN (P P+) {window()} DEFINE P AS SUM(P.x) <= 6)"
                ),
            }
        return {
            "sequence": f"PATTERN SEQ(A a, B b) WHERE [id] AND a.x < b.x {window()} RETURN S(a.row AS a, b.row AS b)",
            "lonely": f"PATTERN SEQ(A a, !(B b)) WHERE [id] {window()} RETURN L(a.row AS row)",
            "between": f"PATTERN SEQ(A a, !(C c), B b) WHERE [id] {window()} RETURN P(a.row AS a, b.row AS b)",
            "without_key": f"PATTERN SEQ(C a, D b) WHERE a.x = b.x {window()} RETURN W(a.row AS a, b.row AS b)",
            "next_match": (
                "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] AND a[i].x >= a[i-1].x } "
                f"{window()} RETURN C(a[1].row AS first, b.row AS last, a.LEN AS length)"
            ),
            "any_match": (
                "PATTERN SEQ(A+ a[], B b) WHERE skip_till_any_match(a[], b) { [id] AND a[i].x > a[i-1].x } "
                f"{window()} RETURN C(a[1].row AS first, b.row AS last, a.LEN AS length)"
            ),
            "contiguous": (
                f"PATTERN SEQ(A a, B b) WHERE partition_contiguity(a, b) {{ [id] }} {window()} "
                "RETURN N(a.row AS a, b.row AS b)"
            ),
            "optional": (
                f"PATTERN SEQ(A a, C? c, D d) WHERE [id] {window()} RETURN O(a.row AS a, c.row AS c, d.row AS d)"
            ),
            "incomplete": (
                f"PATTERN SEQ(A a, B b, C c) WHERE [id] {window()} THRESHOLD 0.01 OUTPUT BEST RETURN I(c.row AS c)"
            ),
            "groups": f"PATTERN SEQ(A a, C c) GROUP BY id AGG COUNT, SUM(c.x) {window()}",
            "total": f"PATTERN SEQ(A a, B b) AGG COUNT, MAX(b.x) WHERE [id] {window()}",
            "graph": f"PATTERN SEQ(A+ a[], B b) WHERE [id] AND a[i].x > a[i-1].x AGG COUNT {window()}",
            "pairs": f"PATTERN SEQ(A a, D d) WHERE [id] {window()} RETURN Pair(a.id AS id, a.row AS row) INTO found",
            "composed": "PATTERN SEQ(Pair p, Pair q) FROM found WHERE [id] WITHIN 30 RETURN T(p.row AS p, q.row AS q)",
        }

    def query_set(self) -> ouzel.QuerySet:
        """Algebra, merged and alone, patterns, an aggregate, a template; all agree on `id`."""
        source = ouzel.algebra.stream("A")
        pairs = source.rename({"x": "first"}).next(source, "id = id.last AND DUR <= 9")
        held = ouzel.QuerySet()
        for limit in range(4):
            held.add(f"pairs {limit}", pairs.select(f"x > {limit} * first"))
        held.add("single", source.select("x > 2"))
        for name in ("sequence", "lonely", "groups"):
            held.add(name, self.queries()[name])
        held.add_template("above", pairs.select("x > :limit"), [{"id": f"t{k}", "limit": k} for k in range(4)])
        return held

    def step(self, *, late: bool = False) -> Callable[[DataFrame], DataFrame]:
        """From events to answers."""
        import ouzel.spark

        if self.kind == "set":
            return lambda frame: ouzel.spark.match_set(frame, self.query_set(), max_delay=DELAY, buckets=BUCKETS)
        return lambda frame: ouzel.spark.match(
            frame, self.queries(), max_delay=DELAY, buckets=BUCKETS, model=MODEL, late=late
        )

    def stream(self, spark: SparkSession, folder: Path) -> FileStream:
        return FileStream(spark, folder, SCHEMA)

    def run_through(self, stream: FileStream, kills: Sequence[Callable[[], list[int]]], seconds: float) -> int:
        """Run the stream while a process of each kind is killed, one after the other, each a random time after the one
        before; restart the stream if it fails of that. Returns how many were killed before the stream ended."""
        chance = random.Random(self.seed)
        killed = 0
        stop = threading.Event()

        def kill() -> None:
            nonlocal killed
            while killed < len(kills) and not stop.wait(chance.uniform(0.1, seconds)):
                found = kills[killed]()
                if found:
                    os.kill(chance.choice(found), signal.SIGKILL)
                    killed += 1

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            while True:
                try:
                    stream.run(self.step())
                    return killed
                except StreamingQueryException as failure:
                    assert "Python worker" in str(failure) or "ExecutorLostFailure" in str(failure), str(failure)[:3000]
        finally:
            stop.set()
            killer.join()

    def differences(self, stream: FileStream) -> list[str]:
        """Where what is in the sink, read through Spark, is not the batch answer; empty if all is right."""
        found = stream.answers()
        if self.kind == "set":
            held = self.query_set()
            given = [held.push(self.events()), held.finish()]
            wanted = [_only_values(row) for answer in given for table in answer.values() for row in table.to_pylist()]
            rows = list(map(_only_values, found))
            same = bool(wanted) and sorted(map(repr, rows)) == sorted(map(repr, wanted))
            return [] if same else [_difference("set", rows, wanted)]
        different = []
        for name, table in ouzel.match(self.events(), self.queries(), model=MODEL).items():
            rows = [row[name] for row in found if row["query"] == name]
            if not table.num_rows or sorted(map(repr, rows)) != sorted(map(repr, table.to_pylist())):
                different.append(_difference(name, rows, table.to_pylist()))
        return different


def _only_values(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a set, without the columns that its query does not have."""
    return {name: row[name] for name in sorted(row) if row[name] is not None}


def _difference(name: str, found: list[Any], wanted: list[Any]) -> str:
    one, other = set(map(repr, found)), set(map(repr, wanted))
    return (
        f"{name}: {len(found)} rows, expected {len(wanted)}; more: {sorted(one - other)[:3]}, "
        f"missing: {sorted(other - one)[:3]}"
    )
