"""What a session holds follows its window, however long the stream is and however many keys and texts it has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ouzel
from tests.runtime.explosive import resident_bytes
from tests.runtime.held import held_bytes

pytestmark = pytest.mark.compiled

PUSH = 1_000
MODEL = ouzel.LossModel(0.1, gaps={"b": ouzel.loss.Exponential(10)})
LACKING = "a type that lacks the key"
RISING = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match { [k] AND a[i].x > a[i-1].x } WITHIN 300"
ANY = "PATTERN SEQ(A+ a[], B b) WHERE [k] AND a[i].x > a[i-1].x AND b.x > 900 WITHIN 60"

# Every kind of query whose state the window bounds.
QUERIES: dict[str, Any] = {
    "sequence": "PATTERN SEQ(A a, B b) WHERE [k] WITHIN 300",
    "sequence, texts": "PATTERN SEQ(A a, B b) WHERE a.t <= b.t AND a.x = b.x WITHIN 300",
    "sequence, negated inside": "PATTERN SEQ(A a, !(C c), B b) WHERE [k] WITHIN 300",
    "sequence, negated end": "PATTERN SEQ(A a, !(B b)) WHERE [k] WITHIN 300",
    "next match": "PATTERN SEQ(A a, B b) WHERE skip_till_next_match { [k] } WITHIN 300",
    "next match, closure": RISING,
    "next match, texts": RISING.replace("a[i].x > a[i-1].x", "a[i].t >= a[i-1].t AND a.t = b.t"),
    "next match, negated inside": RISING.replace("B b)", "!(C c), B b)"),
    "next match, negated end": RISING.replace("B b)", "!(C c))"),
    "partition contiguity": "PATTERN SEQ(A+ a[], B b) WHERE partition_contiguity { [k] } WITHIN 300",
    "strict contiguity": "PATTERN SEQ(A+ a[], B b) WHERE strict_contiguity { [k] } WITHIN 300",
    "any match": ANY,
    "any match, by runs": ANY.replace("b.x > 900", "sum(a[..i-1].x) > 900"),
    "compressed": ANY + " OUTPUT COMPRESSED",
    "compressed, by runs": ANY.replace("b.x > 900", "sum(a[..i-1].x) > 900") + " OUTPUT COMPRESSED",
    LACKING: "PATTERN SEQ(A+ a[], C c) WHERE skip_till_next_match { [k] AND a[i].x > a[i-1].x } WITHIN 60",
    "first": RISING + " OUTPUT FIRST",
    "skip to first": RISING + " OUTPUT SKIP TO FIRST b",
    "skip to last": RISING + " OUTPUT SKIP TO LAST a",
    "non-overlapping": RISING + " OUTPUT NON_OVERLAPPING",
    "counted": "PATTERN SEQ(A a, B b) WHERE [k] AGG COUNT, SUM(b.x), MAX(b.x) WITHIN 300",
    "counted by key": "PATTERN SEQ(A a, B b) GROUP BY k AGG COUNT, MIN(a.x) WITHIN 300",
    "counted by a text": "PATTERN SEQ(A a, B b) WHERE [k] GROUP BY a.t AGG COUNT WITHIN 300",
    "counted by edges": "PATTERN SEQ(A a, B b) WHERE a.x < b.x GROUP BY k AGG COUNT WITHIN 300",
    "counted on change": "PATTERN SEQ(A a, B b) GROUP BY k AGG COUNT WITHIN 300 EMIT ON CHANGE",
    "built and counted": RISING.replace("WITHIN", "AGG COUNT, MIN(b.ts), MAX(b.t) WITHIN"),
    "read by another": ouzel.queries(
        "pairs: PATTERN SEQ(A a, B b) WHERE [k] WITHIN 300 RETURN P(a.k AS k, a.x AS x) INTO ps;"
        "later: PATTERN SEQ(P p, P q) FROM ps WHERE skip_till_next_match { [k] } WITHIN 300;"
    ),
    "missing events": "SEQUENCE (a, b) WHERE a.type = 'A' AND b.type = 'B' AND a.k[b.k] = b.k WITHIN 300 "
    "THRESHOLD 0.01",
    "next": ouzel.algebra.stream("A").next(ouzel.algebra.stream("B"), "t.last = t AND DUR < 300"),
    "fold": ouzel.algebra.stream("A").fold(ouzel.algebra.stream("B"), "k.last = k AND x.last < x AND DUR < 300"),
}
KEYS = ("few keys", "new keys", "new texts")
# One for each way in which something is held.
SHORT = (
    "sequence, texts",
    "next match, texts",
    "partition contiguity",
    "compressed",
    LACKING,
    "first",
    "counted by a text",
    "built and counted",
    "read by another",
    "missing events",
    "next",
    "fold",
)


def events(first: int, count: int, keys: str) -> pa.Table:
    """One event a tick: two of them in a row have a new key and text, or each has one of ten."""
    rng = np.random.default_rng(first)
    number = np.arange(first, first + count)
    code = number % 10 if keys == "few keys" else number // 2
    text = np.char.add("text ", code.astype(str))
    return pa.table(
        {
            "type": rng.choice(["A", "B", "C"], count, p=[0.8, 0.15, 0.05]),
            "ts": number,
            "k": text if keys == "new texts" else code,
            "x": rng.integers(0, 1000, count),
            "t": text,
        }
    )


def pushed(events: pa.Table, kind: str) -> Any:
    """A table, or one for each type, of which C has no key."""
    if kind != LACKING:
        return events
    tables = {name: events.filter(pc.equal(events["type"], name)).drop(["type"]) for name in ("A", "B", "C")}
    return {**tables, "C": tables["C"].drop(["k"])}


def engine_for(kind: str) -> ouzel.Engine:
    query = QUERIES[kind]
    return ouzel.Engine(query, max_delay=0, **({"model": MODEL} if kind == "missing events" else {}))


def most_held(engine: ouzel.Engine, kind: str, first: int, last: int, keys: str) -> dict[str, int]:
    """Push the events from one number to another; what is held where that is most."""
    most: dict[str, int] = {}
    for number in range(first, last, PUSH):
        engine.push(pushed(events(number, PUSH, keys), kind))
        held = held_bytes(engine._session)
        if sum(held.values()) > sum(most.values()):
            most = held
    return most


@pytest.mark.parametrize("kind", SHORT)
def test_what_is_held_does_not_grow_with_new_texts(kind: str) -> None:
    check_growth(kind, "new texts", 16_000)


@pytest.mark.long
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("kind", QUERIES)
def test_what_is_held_does_not_grow_with_the_stream(kind: str, keys: str) -> None:
    # Chunks of rows are merged and evicted in portions, so the most that is held swings by a fifth. Ten times as many
    # events have several of the peaks.
    check_growth(kind, keys, 400_000)


def check_growth(kind: str, keys: str, count: int) -> None:
    """After so many events, as many again may hold as much, and as many more hardly more."""
    engine = engine_for(kind)
    most_held(engine, kind, 0, count, keys)
    early = most_held(engine, kind, count, 2 * count, keys)
    late = most_held(engine, kind, 2 * count, 3 * count, keys)
    grown = sorted(((late[path] - early.get(path, 0), path) for path in late), reverse=True)[:3]
    # Buffers are compacted in portions, so sizes swing.
    assert sum(late.values()) <= 1.15 * sum(early.values()), grown


# ── Long streams ───────────────────────────────────────────────────────────────────────────────────

LONGEST = ("next match, closure", "sequence", "counted by key")


@pytest.mark.long
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("kind", QUERIES)
def test_memory_of_the_last_eighth_is_that_of_the_second(kind: str, keys: str) -> None:
    check_memory(kind, keys, 20_000_000 if kind in LONGEST else 4_000_000)


def check_memory(kind: str, keys: str, count: int) -> None:
    """The most that the process has resident in the second and in the last eighth of so many events."""
    engine = engine_for(kind)
    most = [0] * 8
    for number in range(0, count, PUSH):
        engine.push(pushed(events(number, PUSH, keys), kind))
        eighth = 8 * number // count
        most[eighth] = max(most[eighth], resident_bytes("VmRSS"))
    assert most[-1] <= 1.1 * most[1], most
