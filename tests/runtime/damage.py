"""States of every kind of query, and every way in which stored bytes get damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import ouzel
from ouzel.algebra import step, stream
from ouzel.loss import Exponential

MODEL = ouzel.LossModel(0.1, gaps={"b": Exponential(5), "c": Exponential(5)}, priors={"a": 0.9})
A, B = stream("A"), stream("B")
PAIRS = A.rename({"x": "low"}).next(B, "id = id.last AND DUR <= 10")
CLIMBS = A.fold(A, "DUR <= 8", step().extend(before="name.last"), first={"before": "name"})
SHARED = {
    "count": "PATTERN SEQ(A a, B b, C c) GROUP BY id AGG COUNT WITHIN 9",
    "sum": "PATTERN SEQ(A a, B b) GROUP BY id AGG COUNT, SUM(b.x) WITHIN 9",
    "change": "PATTERN SEQ(A a, B b, C c) AGG COUNT WITHIN 7 EMIT ON CHANGE",
}
SEVERAL = {
    "lonely": "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 6",
    "climb": "PATTERN SEQ(A+ a[], B b) WHERE [id] AND a[i].x > a[i-1].x WITHIN 6",
    "mean": "PATTERN SEQ(A a, C c) GROUP BY id AGG COUNT, MAX(c.x) WITHIN 8",
    "pairs": PAIRS,
}
COMPOSED = {
    "ab": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 5 RETURN Pair(a.id AS id, b.x AS x) INTO pairs",
    "two": "PATTERN SEQ(Pair p, C c) FROM pairs, input WHERE [id] WITHIN 12",
    "more": "PATTERN SEQ(Pair p, Pair q) FROM pairs WHERE p.x < q.x WITHIN 12",
}
QUERIES: dict[str, Any] = {
    "sequence": "PATTERN SEQ(A a, B b, C c) WHERE [id] AND a.x < c.x WITHIN 12",
    "texts": "PATTERN SEQ(A a, B b) WHERE [name] AND a.name LIKE 'n%' WITHIN 9",
    "negation": "PATTERN SEQ(A a, !(C c), B b) WHERE [id] WITHIN 9",
    "negated end": "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 9",
    "any": "PATTERN SEQ(A+ a[], B b) WHERE [id] WITHIN 6",
    "next": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] AND a[i].x > a[i-1].x } WITHIN 9",
    "strict": "PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) { } WITHIN 9",
    "partition": "PATTERN SEQ(A+ a[], B b) WHERE partition_contiguity(a[], b) { [id] } WITHIN 9",
    "events": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 12 EVENTS",
    "compressed": "PATTERN SEQ(A+ a[], B b) WHERE [id] WITHIN 9 OUTPUT COMPRESSED",
    "first": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 9 OUTPUT FIRST",
    "apart": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 9 OUTPUT NON_OVERLAPPING",
    "skip": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 9 OUTPUT SKIP TO LAST b",
    "aggregate": "PATTERN SEQ(A a, B b) GROUP BY id AGG COUNT, SUM(b.x), MIN(a.x) WITHIN 9",
    "edges": "PATTERN SEQ(A a, B b) WHERE a.x < b.x GROUP BY id AGG COUNT WITHIN 9",
    "kleene count": "PATTERN SEQ(A+ a[], B b) WHERE [id] AGG COUNT WITHIN 7",
    "shared": SHARED,
    "algebra": PAIRS,
    "fold": CLIMBS.select("before != name"),
    "incomplete": "PATTERN SEQ(A a, !(B b), C c) WHERE [id] WITHIN 12 THRESHOLD 0.01 RETURN R(a.id AS a, c.id AS c)",
    "composition": COMPOSED,
    "several": SEVERAL,
}


def engine_of(kind: str) -> ouzel.Engine:
    return ouzel.Engine(QUERIES[kind], max_delay=3, keep_late=True, model=MODEL if kind == "incomplete" else None)


def query_set() -> ouzel.QuerySet:
    held = ouzel.QuerySet(max_delay=3)
    held.add_template("pairs", PAIRS.select("x > :least"), [{"id": n, "least": n} for n in range(6)])
    held.add("climbs", CLIMBS, owner="ann")
    for name in ("sequence", "negation", "next", "aggregate"):
        held.add(name, QUERIES[name], owner="bob")
    return held


MAKERS: dict[str, Callable[[], Any]] = {kind: (lambda kind=kind: engine_of(kind)) for kind in QUERIES}
MAKERS["query set"] = query_set


def events(seed: int, count: int = 60) -> pa.Table:
    """Events in an order of arrival that the delay mostly allows, some late."""
    chance = random.Random(seed)
    rows = []
    for place in range(count):
        late = chance.choice([0, 0, 0, 1, 2, 8])
        rows.append(
            {
                "type": chance.choice("AABBCD"),
                "ts": max(0, place // 2 - late),
                "id": chance.randrange(3),
                "x": chance.choice([None, 1, 2, 3, 4, 5]),
                "name": chance.choice(["no", "né", "yes", "", None]),
            }
        )
    schema = {"type": pa.string(), "ts": pa.int64(), "id": pa.int64(), "x": pa.int64(), "name": pa.string()}
    return pa.Table.from_pylist(rows, pa.schema(schema))


def snapshot_of(kind: str, seed: int) -> bytes:
    running = MAKERS[kind]()
    running.push(events(seed))
    return bytes(running.snapshot())


# ── Damage ─────────────────────────────────────────────────────────────────────────────────────────


def _cut(chance: random.Random, size: int) -> tuple[int, int]:
    first = chance.randrange(size + 1)
    return first, min(size, first + chance.choice([1, 1, 2, 8, 64, 500, size]))


def _flipped(chance: random.Random, blob: bytes, other: bytes) -> bytes:
    changed = bytearray(blob)
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        # Half of the time near the beginning, where the seal is.
        end = min(len(blob), chance.choice([48, len(blob)]))
        changed[chance.randrange(end)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _truncated(chance: random.Random, blob: bytes, other: bytes) -> bytes:
    at = chance.randrange(min(len(blob), chance.choice([48, len(blob)])))
    return blob[:at] if chance.random() < 0.8 else blob[at:]


def _doubled(chance: random.Random, blob: bytes, other: bytes) -> bytes:
    first, end = _cut(chance, len(blob))
    return blob[:end] + blob[first:end] + blob[end:]


def _removed(chance: random.Random, blob: bytes, other: bytes) -> bytes:
    first, end = _cut(chance, len(blob))
    return blob[:first] + blob[end:]


def _spliced(chance: random.Random, blob: bytes, other: bytes) -> bytes:
    """The beginning of one state and the end of another, or a piece of another in the place of one's own."""
    if chance.random() < 0.5:
        return blob[: chance.randrange(len(blob) + 1)] + other[chance.randrange(len(other)) :]
    first, end = _cut(chance, min(len(blob), len(other)))
    return blob[:first] + other[first:end] + blob[end:]


def _noisy(chance: random.Random, blob: bytes, other: bytes) -> bytes:
    first, end = _cut(chance, len(blob))
    return blob[:first] + chance.randbytes(end - first) + blob[end:]


def _zeroed(chance: random.Random, blob: bytes, other: bytes) -> bytes:
    first, end = _cut(chance, len(blob))
    return blob[:first] + bytes(end - first) + blob[end:]


def _swapped(chance: random.Random, blob: bytes, other: bytes) -> bytes:
    first, middle, end = sorted(chance.randrange(len(blob) + 1) for _ in range(3))
    return blob[:first] + blob[middle:end] + blob[first:middle] + blob[end:]


def _random(chance: random.Random, blob: bytes, other: bytes) -> bytes:
    return blob[: chance.choice([0, 8, 20])] + chance.randbytes(chance.randrange(200))


WAYS = (_flipped, _flipped, _truncated, _doubled, _removed, _spliced, _noisy, _zeroed, _swapped, _random)


def damaged(chance: random.Random, blob: bytes, other: bytes) -> bytes:
    """A state with its bytes changed in some way; `other` is another state, for splices."""
    while True:
        changed = chance.choice(WAYS)(chance, blob, other)
        if changed not in (blob, other):
            return changed
