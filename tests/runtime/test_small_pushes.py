"""Small pushes give what large ones give: the same rows, late events and problems, each in the same push."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.runtime import engine as engines
from ouzel.runtime import inbox
from ouzel.runtime.inbox import GrowingRows
from ouzel.runtime.session import Session
from tests.agreement import case_count
from tests.runtime.damage import MODEL, QUERIES

SCHEMA = pa.schema(
    {"type": pa.string(), "ts": pa.int64(), "id": pa.int64(), "x": pa.float64(), "name": pa.string(), "ok": pa.bool_()}
)
Answer = dict[str, list[dict[str, Any]]]


def events(draw: random.Random, count: int) -> list[dict[str, Any]]:
    """Events in order, out of it, simultaneous and late; some do not name what they do not have."""
    tick, rows = 100, []
    for _ in range(count):
        tick += draw.choice((0, 1, 1, 2, 5))
        row = {
            "type": draw.choice("AAABBCCDD"),
            "ts": tick - draw.choice((0, 0, 0, 0, 2, 3, 9)),
            "id": draw.randrange(3),
            "x": draw.choice((0.5, 1.0, 2.5, None)),
            "name": draw.choice(("n", "né", "o", None)),
            "ok": draw.random() < 0.5,
        }
        rows.append({name: value for name, value in row.items() if value is not None or draw.random() < 0.5})
    return rows


def pushes(draw: random.Random, rows: list[dict[str, Any]]) -> Iterator[Any]:
    """A stream cut into small and large pushes, in all forms."""
    first = 0
    while first < len(rows):
        part = rows[first : first + draw.choice((1, 1, 1, 1, 2, 3, 20, 60))]
        first += len(part)
        form = draw.random()
        if form < 0.6:
            yield part
        elif form < 0.9:
            yield pa.RecordBatch.from_pylist(part, schema=SCHEMA)
        else:
            yield pa.Table.from_pylist(part, schema=SCHEMA)


def run(kind: str, seed: int, *, looks: bool) -> tuple[list[Answer], list[Any]]:
    """The rows of each call, and what was seen of the engine on the way. `looks`: snapshots and figures in between."""
    draw = random.Random(seed)
    options = {"model": MODEL} if kind == "incomplete" else {}
    delay = draw.choice((0, 0, 2, 4))
    running = ouzel.Engine(QUERIES[kind], schema=SCHEMA, max_delay=delay, keep_late=True, **options)
    answers, seen = [], []
    other = random.Random(seed)
    for events_ in pushes(draw, events(draw, 150)):
        answers.append(running.push(events_))
        if other.random() < 0.1 and looks:
            running = ouzel.Engine.restore(running.snapshot())
        if other.random() < 0.1:
            answers.append(running.advance(running.watermark or 0))
        if other.random() < 0.05:
            late = running.take_late()
            assert late is not None
            assert running.held_events >= 0
            seen.append((running.late, running.watermark, late.to_pylist()))
    answers.append(running.finish())
    # Matches that complete at one timestamp come in any order.
    return [{name: sorted(table.to_pylist(), key=repr) for name, table in one.items()} for one in answers], seen


@pytest.mark.parametrize("kind", QUERIES)
def test_small_pushes_answer_like_staged_ones(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    for seed in range(case_count(10)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            small = run(kind, seed, looks=False)
            looked_at = run(kind, seed, looks=True)
            with monkeypatch.context() as patched:
                patched.setattr(engines, "SMALL_ROWS", -1)
                wanted = run(kind, seed, looks=False)
        assert small == wanted
        assert looked_at[0] == wanted[0]
        found += sum(len(rows) for answer in wanted[0] for rows in answer.values())
    assert found


ORDERED = SCHEMA.append(pa.field("seq", pa.int64()))


def ordered_run(kind: str, order: Any, seed: int) -> list[Answer]:
    """The rows of each push of an ordered stream with simultaneous events, some of them late or equal."""
    draw = random.Random(seed)
    options = {"model": MODEL} if kind == "incomplete" else {}
    running = ouzel.Engine(QUERIES[kind], schema=ORDERED, order=order, **options)
    answers: list[Answer] = []
    rows = sorted(events(draw, 150), key=lambda row: int(row["ts"]))
    for number, row in enumerate(rows):
        row["seq"] = number - draw.choice((0,) * 20 + (1, 3))
    first = 0
    while first < len(rows):
        last = first + draw.choice((1, 1, 2, 3, 20))
        part = rows[first:last]
        as_batch = draw.random() < 0.3
        answers.append(running.push(pa.RecordBatch.from_pylist(part, schema=ORDERED) if as_batch else part))
        if draw.random() < 0.05:
            running = ouzel.Engine.restore(running.snapshot())
        first = last
    answers += [{"late": [{"late": running.late}]}, running.finish()]
    return [
        {name: sorted(rows if isinstance(rows, list) else rows.to_pylist(), key=repr) for name, rows in one.items()}
        for one in answers
    ]


@pytest.mark.parametrize("order", ["arrival", ["seq"]], ids=str)
# EMIT ON CHANGE, which one of the shared queries has, is refused with order=.
@pytest.mark.parametrize("kind", [kind for kind in QUERIES if kind != "shared"])
def test_ordered_small_pushes_answer_like_staged_ones(kind: str, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[int] = []
    push = Session.push

    def counted(session: Session, table: pa.Table, zero_copy: bool = False) -> None:
        converted.append(table.num_rows)
        push(session, table, zero_copy)

    for seed in range(case_count(4)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with monkeypatch.context() as patched:
                patched.setattr(Session, "push", counted)
                small = ordered_run(kind, order, seed)
            with monkeypatch.context() as patched:
                patched.setattr(engines, "SMALL_ROWS", -1)
                wanted = ordered_run(kind, order, seed)
        assert small == wanted
        # The scale comes with the first push, and pushes are looked at until every column has had a value.
        assert sum(converted) < (75 if order == "arrival" else 140)
        converted.clear()


@pytest.mark.parametrize("size", [3, 8])
def test_rows_of_a_small_push_may_be_out_of_order_within_the_delay(size: int) -> None:
    query = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 20"
    for seed in range(5):
        draw = random.Random(seed)
        rows = [{"type": draw.choice("AB"), "ts": tick, "id": draw.randrange(2)} for tick in range(60)]
        arrived = sorted(rows, key=lambda row: row["ts"] + draw.uniform(0, 6))
        running = ouzel.Engine(query, max_delay=6)
        answers = [running.push(arrived[first : first + size]) for first in range(0, len(rows), size)]
        found = [row for answer in (*answers, running.finish()) for row in answer["query"].to_pylist()]
        assert sorted(found, key=repr) == sorted(ouzel.match(rows, query).to_pylist(), key=repr)


COLUMNS = (
    "RETURN R(a.id AS id, a.x AS x, a.name AS name, b.ok AS ok, b.ts AS at, b.x AS y, a.type AS kind, "
    "a.day AS day, b.size AS size, b.tiny AS tiny, a.note AS note)"
)
ALL_WIDTHS = pa.schema(
    [*SCHEMA, ("day", pa.date32()), ("size", pa.int16()), ("tiny", pa.int8()), ("note", pa.large_string())]
)


@pytest.mark.parametrize("has_nulls", [False, True])
@pytest.mark.parametrize(
    ("where", "threshold"),
    [("[id]", ""), ("[id] AND a.x <= b.x", ""), ("a.x <= b.x + 1.0", ""), ("[id]", "THRESHOLD 0.01 ")],
)
def test_columns_of_answers_are_those_of_the_input(where: str, threshold: str, has_nulls: bool) -> None:
    query = f"PATTERN SEQ(A a, B b) WHERE {where} WITHIN 20 {threshold}{COLUMNS}"
    options = {"model": ouzel.LossModel(0.4, gaps={"b": ouzel.loss.Exponential(5)})} if threshold else {}
    draw = random.Random(1)
    rows = sorted(events(draw, 300), key=lambda row: int(row["ts"]))
    if not has_nulls:
        rows = [
            {"x": 0.5, "name": "n", **{name: value for name, value in row.items() if value is not None}} for row in rows
        ]
    for number, row in enumerate(rows):
        if not has_nulls or draw.random() < 0.7:
            row |= {
                "day": date(2000, 1, 1 + number % 9),
                "size": -number,
                "tiny": number % 99 - 49,
                "note": "ü" * (number % 4),
            }
    table = pa.Table.from_pylist(rows, ALL_WIDTHS)
    running = ouzel.Engine(query, schema=ALL_WIDTHS, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Slices of one batch begin within its bytes of bits.
        (batch,) = table.to_batches()
        answers = [running.push(batch.slice(first, 30))["query"] for first in range(0, len(rows), 30)]
        wanted = ouzel.match(table, query, **options)
    found = pa.concat_tables([*answers, running.finish()["query"]])
    assert found.schema == wanted.schema
    assert sorted(found.to_pylist(), key=repr) == sorted(wanted.to_pylist(), key=repr)
    assert found.num_rows > 20
    found.validate(full=True)


@pytest.mark.parametrize(
    "time",
    [pa.int32(), pa.uint16(), pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ns")],
    ids=str,
)
def test_matches_start_and_end_at_the_times_of_their_events(time: pa.DataType) -> None:
    times = pa.array([1, 2, 3, 4], pa.int64()).cast(time)
    table = pa.table({"type": ["A", "B", "A", "B"], "ts": times, "x": [1, 2, 3, 4]})
    query = "PATTERN SEQ(A a, B b) WITHIN :window RETURN R(a.ts AS a, b.ts AS b, b.x AS x)"
    found = ouzel.match(table, query, params={"window": 2 if pa.types.is_integer(time) else "2 s"})
    assert found.num_rows >= 2
    assert found["start"].equals(found["a"]) and found["end"].equals(found["b"])


def test_rows_are_gathered_until_one_may_complete_a_match() -> None:
    running = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 100 RETURN R(a.ts AS a, b.ts AS b)", schema=SCHEMA)
    running.push([{"type": "A", "ts": 0}])
    assert running._session is not None
    for tick in range(1, 9):
        assert running.push([{"type": "A", "ts": tick}])["query"].num_rows == 0
    assert running._session._inbox.rows > 5
    running.push([{"type": "B", "ts": 9}])
    assert running.push([{"type": "A", "ts": 10}])["query"].num_rows == 9
    assert running.held_events == 11
    assert running._session._inbox.rows == 0


PLAIN: dict[str, Any] = {
    "sequence": "PATTERN SEQ(A a, !(B b), C c) WHERE [id] AND a.x < c.x WITHIN 9 RETURN R(a.id AS id, c.name AS name)",
    "texts": "PATTERN SEQ(A a, B b) WHERE [name, id] WITHIN 9 RETURN R(b.ok AS ok, a.name AS name, a.ts AS ts)",
    "kleene": "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { [id] AND b[i].x >= b[i-1].x } "
    "WITHIN 20 RETURN R(a.id AS id, COUNT(b[]) AS n)",
    "aggregate": "PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT(*) AS n, SUM(b.x) AS s WITHIN 9",
    "automata": ouzel.algebra.stream("A").next(
        ouzel.algebra.stream("C").rename({"id": "other", "x": "y", "name": "n", "ok": "o"}),
        "id = other AND x < y AND DUR <= 9",
    ),
    "incomplete": "PATTERN SEQ(A a, B b, C c) WHERE [id] WITHIN 9 THRESHOLD 0.3 RETURN R(a.id AS id, c.x AS x)",
}  # fmt: skip


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_queries_are_staged_without_tables(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in order, without nulls in keys, are written straight behind the live events."""
    options = {}
    if kind == "incomplete":
        gaps: Any = {name: ouzel.loss.Exponential(5) for name in "bc"}
        options["model"] = ouzel.LossModel(0.1, gaps=gaps)
    draw = random.Random(3)
    rows = [
        {"type": "ABCDBAB"[tick % 7], "ts": tick, "id": draw.randrange(2), "x": draw.choice((1.0, 2.5, None)),
         "name": draw.choice(("p", "q")), "ok": True}
        for tick in range(400)
    ]  # fmt: skip
    found = {}
    for is_small in (False, True):
        running = ouzel.Engine(PLAIN[kind], schema=SCHEMA, **options)
        answers = []
        with monkeypatch.context() as patched:
            if not is_small:
                patched.setattr(engines, "SMALL_ROWS", -1)
            for first in range(0, 400, 7):
                if is_small and first == 70:
                    # By now all columns have had values, and nothing is pending.
                    patched.setattr(GrowingRows, "table", None)
                part = pa.RecordBatch.from_pylist(rows[first : first + 7], schema=SCHEMA)
                answers.append(running.push(part if first % 2 else rows[first : first + 7])["query"])
            answers.append(running.finish()["query"])
        found[is_small] = [sorted(answer.to_pylist(), key=repr) for answer in answers]
    assert found[True] == found[False]
    assert sum(map(len, found[True])) > 0


def test_large_lists_are_read_as_arrow_reads_them() -> None:
    rows = [{"type": "AB"[tick % 2], "ts": tick, "name": None if tick % 3 else "é"} for tick in range(3_000)]
    query = "PATTERN SEQ(A a, B b) WITHIN 2 RETURN R(a.ts AS a, b.name AS name)"
    answers = []
    for form in (rows, pa.RecordBatch.from_pylist(rows, schema=SCHEMA)):
        running = ouzel.Engine(query, schema=SCHEMA)
        answers.append([running.push(form)["query"], running.finish()["query"]])
    assert answers[0] == answers[1]
    assert answers[0][0].num_rows == 1_499
    running = ouzel.Engine(query, schema=SCHEMA)
    with pytest.raises(ouzel.InputError, match="'type'"):
        running.push([{"ts": tick} for tick in range(3_000)])


def test_gathered_rows_are_copies() -> None:
    running = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 100 RETURN R(a.id AS a)", schema=SCHEMA)
    running.push([{"type": "C", "ts": 0}])
    row = {"type": "A", "ts": 1, "id": 1}
    for number in (1, 2):
        row.update(ts=number, id=number)
        running.push([row])
    running.push([{"type": "B", "ts": 3}])
    assert sorted(found["a"] for found in running.finish()["query"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "A", "ts": 2.5},
        {"type": "A", "ts": "2"},
        {"type": "A", "ts": None},
        {"type": "A"},
        {"type": "A", "ts": 2**63},
        {"type": "A", "ts": 2, "id": 2**63},
        {"type": "A", "ts": 2, "id": "one"},
        {"type": "A", "ts": 2, "name": "\ud800"},
        {"type": "A", "ts": 2, 7: 7},
        ["type", "A"],
    ],
)
@pytest.mark.parametrize("before", [0, 1])
def test_wrong_input_is_refused_by_the_push_that_brings_it(bad: Any, before: int) -> None:
    running = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 100 RETURN R(a.id AS a)", schema=SCHEMA)
    running.push([{"type": "A", "ts": 0, "id": 5}])
    good = [{"type": "A", "ts": 1, "id": 6, "name": "x"}] * before
    with pytest.raises(ouzel.InputError):
        running.push([*good, bad])
    assert running.held_events == 1
    running.push([{"type": "B", "ts": 3}])
    assert [row["a"] for row in running.finish()["query"].to_pylist()] == [5]


def test_other_types_are_converted_as_in_large_pushes() -> None:
    running = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 100 RETURN R(a.id AS i, a.x AS x)", schema=SCHEMA)
    running.push([{"type": "C", "ts": 0}])
    running.push([{"type": "A", "ts": 1, "id": 1, "x": 2}])
    running.push([{"type": "A", "ts": 2, "id": True, "x": 2.5}])
    running.push([{"type": "A", "ts": 3, "id": 3, "x": 1.0, "extra": "dropped"}])
    running.push(pa.table({"ts": pa.array([4], pa.int32()), "type": ["A"]}).append_column("id", pa.array([4])).select(
        ["type", "ts", "id"]).append_column("x", pa.array([0.5])).append_column("name", pa.array(["x"])).append_column(
        "ok", pa.array([True])))  # fmt: skip
    running.push([{"type": "B", "ts": 5}])
    found = [(row["i"], row["x"]) for row in running.finish()["query"].to_pylist()]
    assert sorted(found) == [(1, 2.0), (1, 2.5), (3, 1.0), (4, 0.5)]


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=2))])
def test_times_are_read_as_arrow_reads_them(zone: timezone | None, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema({"type": pa.string(), "ts": pa.timestamp("us", None if zone is None else "UTC")})
    began = datetime(2026, 3, 29, 1, 59, 59, 999_999, tzinfo=zone)
    rows = [{"type": "AB"[n % 2], "ts": began + timedelta(microseconds=7 * n)} for n in range(8)]
    answers = []
    for small in (-1, inbox.SMALL_ROWS):
        monkeypatch.setattr(engines, "SMALL_ROWS", small)
        running = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 1 s", schema=schema)
        answers.append([running.push([row])["query"].to_pylist() for row in rows] + [running.finish()["query"]])
        with pytest.raises(ouzel.InputError, match="finished"):
            running.push([rows[0]])
    assert answers[0] == answers[1]
    assert answers[0][-1].num_rows == 4
    mixed = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 1 s", schema=schema)
    mixed.push([rows[0]])
    other = rows[1]["ts"].replace(tzinfo=None if zone is not None else UTC)
    with pytest.raises(ouzel.InputError, match="zone"):
        mixed.push([{"type": "A", "ts": other}])


@pytest.mark.parametrize(
    ("query", "limits"),
    [
        ("PATTERN SEQ(A a, B b) WITHIN 1000", {"max_buffered_events": 7}),
        ("PATTERN SEQ(A a, B b) AGG COUNT WITHIN 1000", {"max_buffered_events": 7}),
        ("PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT", {"max_buffered_events": 7}),
        ("PATTERN SEQ(A+ a[], B b) WHERE sum(a[..i-1].x) >= 0 WITHIN 1000", {"max_partial_matches": 100}),
        ("PATTERN SEQ(A a, B b) WHERE skip_till_next_match { [ok] } WITHIN 1000", {"max_partial_matches": 9}),
        (ouzel.algebra.stream("A").next(ouzel.algebra.stream("B"), "DUR < 1000"), {"max_partial_matches": 9}),
        (ouzel.algebra.stream("A").fold(ouzel.algebra.stream("B"), "DUR < 999"), {"max_partial_matches": 9}),
    ],
)
def test_limits_stop_a_query_in_the_push_that_passes_them(
    query: Any, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = []
    for small in (-1, inbox.SMALL_ROWS):
        monkeypatch.setattr(engines, "SMALL_ROWS", small)
        running = ouzel.Engine(query, schema=SCHEMA, limits=limits)
        with pytest.raises(ouzel.LimitError) as raised:
            for tick in range(2000):
                running.push([{"type": "A", "ts": tick, "id": tick, "x": 1.0, "name": "n", "ok": True}])
        stopped.append((tick, str(raised.value), running.problems()))
    assert stopped[0] == stopped[1]


def test_expired_events_are_evicted_before_a_limit_is_checked() -> None:
    query = "PATTERN SEQ(A a, B b) WITHIN 2"
    running = ouzel.Engine(query, schema=SCHEMA, limits={"max_buffered_events": 7})
    draw = random.Random(7)
    tick = 0
    for _ in range(200):
        tick += 10
        running.push([{"type": "A", "ts": tick} for _ in range(draw.choice((1, 1, 2, 3)))])
    assert not running.problems()


class Interrupting(dict[str, Any]):
    """Not a plain dictionary: reading it brings Ctrl-C."""

    def get(self, *args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return super().get(*args)


def test_ctrl_c_waits_for_a_small_push_and_loses_no_row() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        running = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 100 RETURN R(a.ts AS a)", schema=SCHEMA)
        running.push([{"type": "A", "ts": 0}])
        running.push([{"type": "B", "ts": 1}])
        with pytest.raises(KeyboardInterrupt):
            running.push([Interrupting(type="A", ts=2)])
        assert running.interrupted
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert running.watermark == 1
        restored = ouzel.Engine.restore(running.snapshot())
        for engine in (running, restored):
            assert engine.push([{"type": "B", "ts": 3}])["query"].to_pylist() == [{"start": 0, "end": 1, "a": 0}]
            assert not engine.interrupted
            assert sorted(row["a"] for row in engine.finish()["query"].to_pylist()) == [0, 2]
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("kept", [signal.SIG_DFL, signal.SIG_IGN])
def test_what_the_system_does_on_ctrl_c_stays_during_a_small_push(kept: signal.Handlers) -> None:
    seen = []

    class Looking(dict[str, Any]):
        def get(self, *args: Any) -> Any:
            seen.append(signal.getsignal(signal.SIGINT))
            return super().get(*args)

    running = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 100", schema=SCHEMA)
    running.push([{"type": "A", "ts": 0}])
    before = signal.signal(signal.SIGINT, kept)
    try:
        running.push([Looking(type="A", ts=1)])
        assert signal.getsignal(signal.SIGINT) is kept
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(seen) == {kept}
