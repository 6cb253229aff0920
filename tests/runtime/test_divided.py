"""`match` on several threads: the rows of one thread, in the same order, with its errors and limits."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel.engines.kleene import operator as repetitions
from ouzel.engines.sequence import operator as sequences
from ouzel.kernels import pauses
from ouzel.runtime import calls, session, threads
from ouzel.runtime.limits import Limits
from tests.agreement import case_count
from tests.generate import PROFILES, random_case

# Kernels run beside each other only as machine code, which does not hold the lock of the interpreter.
pytestmark = [pytest.mark.compiled, pytest.mark.filterwarnings("ignore::UserWarning")]

KEYED = {
    "stacks": "PATTERN SEQ(A a, B b, C c) WHERE [id] WITHIN 12",
    "two keys": "PATTERN SEQ(A a, B b, C c) WHERE [id, s] WITHIN 90 RETURN R(a.n AS a, c.n AS c)",
    "negation": "PATTERN SEQ(A a, !(B b), C c) WHERE [id] WITHIN 12",
    "residual": "PATTERN SEQ(A a, B b, C c) WHERE [id] AND a.x * b.x < c.x + a.n WITHIN 12",
    "text key": "PATTERN SEQ(A a, ANY(B, C) b) WHERE [s] WITHIN 6 RETURN R(a.n AS a, b.n AS b)",
    "next match": "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { [id] } WITHIN 20",
    "any match": "PATTERN SEQ(A a, B+ b[], C c) WHERE [id] WITHIN 9",
    "last repeats": "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { [id] } WITHIN 9 RETURN R(b.n AS n)",
    "counts": "PATTERN SEQ(A a, B b, C c) WHERE [id] AGG COUNT(*) GROUP BY id WITHIN 12",
    "sums": "PATTERN SEQ(A a, B+ b[]) WHERE [id] AGG SUM(b.x), MAX(a.x) GROUP BY id HAVING sum_b_x > 3 WITHIN 12",
    "no window": "PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT(*) GROUP BY id",
}
# These are divided by time only.
UNKEYED = {
    "no key": "PATTERN SEQ(A a, B b) WHERE a.x = 3 WITHIN 2",
    "floats": "PATTERN SEQ(A a, B b) WHERE [f] WITHIN 6",
    "contiguity": "PATTERN SEQ(A a, B b) WHERE partition_contiguity(a, b) { [id] } WITHIN 9",
    "strict": "PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) { a.x >= 0 } WITHIN 9",
    "negated start": "PATTERN SEQ(!(A a), B b, C c) WHERE [id] WITHIN 9",
    "total": "PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT(*), SUM(a.x) WITHIN 6",
    "several keys": "PATTERN SEQ(A a, B b) WHERE [id, s] AGG COUNT(*) GROUP BY id WITHIN 30",
}
WHOLE = {
    "negated end": "PATTERN SEQ(A a, B b, !(C c)) WHERE [id] WITHIN 6",
    "sum of floats": "PATTERN SEQ(A a, B b) AGG SUM(a.f) WITHIN 6",
    "non-overlapping": "PATTERN SEQ(A a, B+ b[]) WHERE [id] WITHIN 6 OUTPUT NON_OVERLAPPING",
    "compared": "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { [id] AND b[i].x > a.x } WITHIN 9",
    "on change": "PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT(*) GROUP BY id EMIT ON CHANGE WITHIN 6",
}


@pytest.fixture(autouse=True)
def small_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "EVENTS_MIN", 1)
    monkeypatch.setattr(session, "EVENTS_MIN", 1)
    monkeypatch.setattr(threads, "_CHUNK_ROWS", 64)
    monkeypatch.setattr(threads, "OVERLAP_MAX", 100.0)
    # Kernels write to the same memory piece by piece.
    monkeypatch.setattr(sequences, "_OUTPUT_MATCHES", 32)
    monkeypatch.setattr(repetitions, "_PIECE", 32)


@pytest.fixture
def by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the rows of a window were too many to be read twice."""
    monkeypatch.setattr(threads, "OVERLAP_MAX", -1.0)


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of slices of each input that is divided by time; a slice that fails is an error."""
    slices: list[int] = []
    in_threads = threads._in_threads

    def counted(program: Any, table: Any, count: Any, found: Any) -> Any:
        rows = in_threads(program, table, count, found)
        if found is not None:
            slices.append(len(found.bounds))
        return rows

    monkeypatch.setattr(threads, "_in_threads", counted)
    return slices


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of parts of each divided query; a part that fails is an error."""
    parts: list[int] = []
    rows = threads._rows

    def counted(operator: Any, found: Any, *rest: Any) -> Any:
        parts.append(len(found))
        return rows(operator, found, *rest)

    monkeypatch.setattr(threads, "_rows", counted)
    return parts


def events(count: int, seed: int, *, ticks_per_event: float | None = 1.0, dictionaries: bool = False) -> pa.Table:
    drawn = np.random.default_rng(seed)
    texts = pa.array([f"key {n}" * (n % 4 + 1) for n in range(7)] + [None])
    kinds = pa.array(["A", "B", "C", "D"])
    text = pa.DictionaryArray.from_arrays(drawn.integers(0, 8, count).astype(np.int32), texts)
    kind = pa.DictionaryArray.from_arrays(drawn.integers(0, 4, count).astype(np.int32), kinds)
    ticks = drawn.integers(0, max(1, int(count * (ticks_per_event or 1))), count)
    return pa.table(
        {
            "type": kind if dictionaries else kind.cast(pa.string()),
            "ts": np.arange(count) if ticks_per_event is None else np.sort(ticks),
            "n": np.arange(count),
            "id": pa.array(drawn.integers(0, 5, count), mask=drawn.random(count) < 0.02),
            "x": drawn.integers(0, 9, count),
            "f": drawn.integers(0, 3, count) / 2,
            "s": text if dictionaries else text.cast(pa.string()),
        }
    )


@pytest.mark.parametrize("text", KEYED.values(), ids=KEYED)
@pytest.mark.parametrize("ticks_per_event", [0.2, None], ids=["simultaneous", "apart"])
@pytest.mark.usefixtures("by_key")
def test_divided_rows_are_those_of_one_thread(text: str, ticks_per_event: float | None, divided: list[int]) -> None:
    for seed, dictionaries in ((1, False), (2, True)):
        table = events(250, seed, ticks_per_event=ticks_per_event, dictionaries=dictionaries)
        for given in (table, table.take(np.random.default_rng(seed).permutation(len(table)))):
            one = ouzel.match(given, text, threads=1)
            assert one.num_rows
            for count in (2, 3, 5):
                assert ouzel.match(given, text, threads=count).equals(one), (count, seed)
                assert divided.pop() == count
                assert not divided


@pytest.mark.parametrize("name", [name for name in (*KEYED, *UNKEYED) if name != "no window"])
@pytest.mark.parametrize("ticks_per_event", [0.2, None], ids=["simultaneous", "apart"])
def test_rows_of_slices_are_those_of_one_thread(
    name: str, ticks_per_event: float | None, sliced: list[int], divided: list[int]
) -> None:
    text = (KEYED | UNKEYED)[name]
    # Groups that end together have the order of the whole stream.
    in_order = "GROUP BY" not in text or ticks_per_event is None
    for seed, dictionaries in ((1, False), (2, True)):
        table = events(250, seed, ticks_per_event=ticks_per_event, dictionaries=dictionaries)
        one = ouzel.match(table, text, threads=1)
        # Simultaneous events do not follow each other strictly.
        assert one.num_rows or name == "strict"
        for count in (2, 3, 5):
            assert ouzel.match(table, text, threads=count).equals(one), (count, seed)
            assert sliced == [count] * in_order
            assert divided == [count] * (not in_order and name in KEYED)
            sliced.clear()
            divided.clear()
        pieces = pa.concat_tables([table.slice(0, 33), table.slice(33, 100), table.slice(133)])
        assert ouzel.match(pieces, text, threads=3).equals(one)
        sliced.clear()
        divided.clear()


@pytest.mark.parametrize("row", [1, 60, 61, 62, 119, 120, 179])
def test_unordered_input_is_not_sliced(row: int, sliced: list[int], divided: list[int]) -> None:
    table = events(180, 3, ticks_per_event=None)
    order = np.arange(180)
    order[[row - 1, row]] = row, row - 1
    table = table.take(order)
    assert ouzel.match(table, KEYED["stacks"], threads=3).equals(ouzel.match(table, KEYED["stacks"], threads=1))
    assert not sliced
    assert divided == [3]


def test_wide_windows_are_not_sliced(monkeypatch: pytest.MonkeyPatch, sliced: list[int], divided: list[int]) -> None:
    monkeypatch.setattr(threads, "OVERLAP_MAX", 0.1)
    table = events(400, 3, ticks_per_event=None)
    for window, is_wide in ((15, False), (60, True)):
        text = KEYED["stacks"].replace("WITHIN 12", f"WITHIN {window}")
        assert ouzel.match(table, text, threads=3).equals(ouzel.match(table, text, threads=1))
        assert (sliced, divided) == (([], [3]) if is_wide else ([3], []))
        sliced.clear()


def test_few_relevant_events_are_not_sliced(monkeypatch: pytest.MonkeyPatch, sliced: list[int]) -> None:
    table = events(200, 6)
    relevant = len(table) - table["type"].to_pylist().count("D")
    for least, expected in ((relevant, [3]), (relevant + 1, [])):
        monkeypatch.setattr(threads, "EVENTS_MIN", least)
        assert ouzel.match(table, KEYED["stacks"], threads=3).equals(ouzel.match(table, KEYED["stacks"], threads=1))
        assert sliced == expected
        sliced.clear()


def test_rows_of_one_tick_are_in_one_slice(sliced: list[int]) -> None:
    table = pa.table({"type": ["A"] * 5 + ["B"] * 40, "ts": [0] * 5 + [1] * 40, "id": [n % 5 for n in range(45)]})
    text = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 6"
    assert ouzel.match(table, text, threads=9).equals(ouzel.match(table, text, threads=1))
    assert sliced == [2]
    assert ouzel.match(table.slice(5), text, threads=9).num_rows == 0
    assert sliced == [2]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_slices_of_timestamps(unit: str, sliced: list[int]) -> None:
    table = events(120, 3)
    written = "us" if unit == "ns" else unit
    table = table.set_column(1, "ts", table["ts"].cast(pa.timestamp(written)).cast(pa.timestamp(unit)))
    text = KEYED["stacks"].replace("WITHIN 12", f"WITHIN 12 {written}")
    one = ouzel.match(table, text, threads=1)
    assert one.num_rows
    assert ouzel.match(table, text, threads=3).equals(one)
    assert sliced == [3]


def test_smallest_time_is_refused_as_in_one_thread() -> None:
    table = events(100, 3)
    ticks = table["ts"].to_numpy().copy()
    ticks[0] = -(2**63)
    table = table.set_column(1, "ts", pa.array(ticks))
    error = outcome(table, KEYED["stacks"], 1)
    assert "smallest number" in error
    assert outcome(table, KEYED["stacks"], 3) == error


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_other_queries_are_not_divided(text: str, sliced: list[int], divided: list[int]) -> None:
    table = events(150, 3)
    assert ouzel.match(table, text, threads=3).equals(ouzel.match(table, text, threads=1))
    assert not divided
    assert not sliced


@pytest.mark.parametrize("overlap", [-1.0, 100.0], ids=["by key", "by time"])
@pytest.mark.parametrize("profile", PROFILES)
def test_random_queries(profile: str, overlap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "OVERLAP_MAX", overlap)
    for number in range(case_count(150)):
        case = random_case(random.Random(f"threads {profile} {number}"), profile)
        table = case.table.sort_by(case.options["time"]) if overlap > 0 and number % 3 else case.table
        one = outcome(table, case.query, 1, **case.options)
        for count in (2, 3, 5):
            assert outcome(table, case.query, count, **case.options) == one, f"{number}\n{case}"


def outcome(table: pa.Table, query: Any, count: int, **options: Any) -> str:
    """The answer or the error as text, in which two NaN are equal."""
    try:
        found = ouzel.match(table, query, threads=count, **options)
    except ouzel.OuzelError as error:
        return repr(error)
    tables = found if isinstance(found, dict) else {"": found}
    return repr([(name, rows.schema, rows.to_pylist()) for name, rows in tables.items()])


@pytest.mark.parametrize("count", [2, 3, 20])
def test_several_queries(count: int) -> None:
    table = events(200, 4)
    queries = {**KEYED, **UNKEYED, **WHOLE}
    one, found = (ouzel.match(table, queries, threads=number) for number in (1, count))
    assert list(found) == list(one)
    assert all(found[name].equals(one[name]) for name in one)


def test_composed_queries_are_answered_together() -> None:
    text = (
        "pairs: PATTERN SEQ(A a, B b) WHERE [id] WITHIN 6 INTO pairs RETURN P(a.id AS id);"
        "query: PATTERN SEQ(P x, P y) WHERE [id] WITHIN 9 FROM pairs RETURN R(x.id AS id);"
    )
    table = events(100, 5)
    queries = ouzel.queries(text)
    one, found = (ouzel.match(table, queries, threads=number) for number in (1, 4))
    assert all(found[name].equals(one[name]) for name in one)


@pytest.mark.usefixtures("by_key")
def test_rows_of_one_tick_are_merged_though_nothing_is_before_it(
    monkeypatch: pytest.MonkeyPatch, divided: list[int]
) -> None:
    table = pa.table({"type": ["A"] * 5 + ["B"] * 40, "ts": [0] * 5 + [1] * 40, "id": [n % 5 for n in range(45)]})
    text = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 6"
    one = ouzel.match(table, text, threads=1)
    monkeypatch.setattr(threads, "_CHUNK_ROWS", 8)
    # Errors are not silent.
    monkeypatch.setattr(threads, "_in_one_thread", None)
    assert ouzel.match(table, text, threads=3).equals(one)
    assert divided == [3]


@pytest.mark.usefixtures("by_key")
def test_few_relevant_events_are_read_in_one_part(monkeypatch: pytest.MonkeyPatch, divided: list[int]) -> None:
    monkeypatch.setattr(threads, "EVENTS_MIN", 170)
    table = events(200, 6)
    assert ouzel.match(table, KEYED["stacks"], threads=3).equals(ouzel.match(table, KEYED["stacks"], threads=1))
    assert divided == [1]
    ouzel.match(table.slice(0, 100), KEYED["stacks"], threads=3)
    assert divided == [1]


# ── Limits and errors ──────────────────────────────────────────────────────────────────────────────

LIMITED = (
    ("stacks", {"max_matches_per_timestamp": 400_000}, 0.01),
    ("stacks", {"max_matches_per_timestamp": 20}, 0.05),
    ("stacks", {"max_buffered_events": 60}, 1.0),
    ("stacks", {"max_buffered_events": 40}, 1.0),
    ("any match", {"max_partial_matches": 5}, 1.0),
    ("no window", {"max_buffered_events": 3}, 1.0),
)


@pytest.mark.parametrize("overlap", [-1.0, 100.0], ids=["by key", "by time"])
@pytest.mark.parametrize(("name", "limits", "ticks_per_event"), LIMITED)
def test_limits_hold_as_in_one_thread(
    name: str, limits: dict[str, int], ticks_per_event: float, overlap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "OVERLAP_MAX", overlap)
    table = events(100, 7, ticks_per_event=ticks_per_event)

    query = ouzel.query(KEYED[name], name=name)
    one = outcome(table, query, 1, limits=limits)
    for count in (2, 3, 5):
        assert outcome(table, query, count, limits=limits) == one


def test_shares_of_limits_are_kept_by_the_whole() -> None:
    limits = Limits(10_000_000, 10_000_000, 100_000_000)
    for parts in (1, 2, 3, 16, 64):
        share = limits.share(parts)
        assert share is not None
        assert parts * share.max_answer_events <= limits.max_answer_events
        assert parts * share.max_partial_matches <= limits.max_partial_matches
    assert limits.share(1) == limits
    assert Limits(1000, 1, 1).share(2) is None


def test_error_of_one_part_is_that_of_one_thread() -> None:
    table = events(100, 8).append_column("big", pa.array([2**62] * 100))
    text = "PATTERN SEQ(A a, B b) WHERE [id] AND a.big + b.big > 5 WITHIN 9"
    assert outcome(table, text, 3) == outcome(table, text, 1)


@pytest.mark.usefixtures("by_key")
def test_error_names_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> Any:
        raise ouzel.LimitError("a part has failed")

    monkeypatch.setattr(threads, "_search", fail)
    table = events(100, 9)
    assert ouzel.match(table, KEYED["stacks"], threads=2).equals(ouzel.match(table, KEYED["stacks"], threads=1))
    with pytest.raises(ouzel.LimitError, match="query 'pairs' holds"):
        ouzel.match(table, ouzel.query(KEYED["stacks"], name="pairs"), limits={"max_buffered_events": 2}, threads=2)


def test_first_error_is_raised_and_others_stop() -> None:
    stopped = []

    def fail() -> None:
        raise ValueError("first")

    def wait() -> None:
        try:
            for _ in range(500):
                time.sleep(0.01)
                pauses.pause()
        except BaseException:
            stopped.append(True)
            raise

    with pytest.raises(ValueError, match="first"):
        calls.run_tasks([fail, wait], 2)
    with pytest.raises(ValueError, match="first"):
        calls.run_tasks([wait, fail], 2)
    # The caller's own task has no pause to stop at.
    assert stopped == [True]


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


def streamed(make: Any, batches: list[pa.Table]) -> list[dict[Any, Any]]:
    made = make()
    answers = [made.push(batch) for batch in batches[:3]]
    made = type(made).restore(made.snapshot())
    answers += [made.push(batch) for batch in batches[3:]]
    answers.append(made.finish())
    return [{name: rows.to_pylist() for name, rows in answer.items() if rows.num_rows} for answer in answers]


def an_engine() -> ouzel.Engine:
    return ouzel.Engine({name: text for name, text in (KEYED | UNKEYED | WHOLE).items() if name != "no window"})


def a_set() -> ouzel.QuerySet:
    made = ouzel.QuerySet()
    for name, text in (KEYED | UNKEYED).items():
        if name != "no window":
            made.add(name, text)
    return made


@pytest.mark.parametrize("make", [an_engine, a_set])
def test_queries_of_a_stream_run_beside_each_other(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = events(240, 11)
    batches = [table.slice(first, 40) for first in range(0, 240, 40)]
    monkeypatch.setenv("OUZEL_THREADS", "1")
    one = streamed(make, batches)
    assert any(one)
    ran: list[int] = []
    run_tasks = session.run_tasks

    def counted(tasks: Any, count: int) -> Any:
        ran.append(count)
        return run_tasks(tasks, count)

    monkeypatch.setattr(session, "run_tasks", counted)
    monkeypatch.setenv("OUZEL_THREADS", "3")
    assert streamed(make, batches) == one
    assert set(ran) == {3}
    monkeypatch.setattr(session, "EVENTS_MIN", 1000)
    ran.clear()
    assert streamed(make, batches) == one
    assert not ran


def test_query_that_fails_beside_others_stops_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUZEL_THREADS", "3")
    table = events(240, 11).append_column("big", pa.array([2**62] * 240))
    queries = {
        "counts": KEYED["counts"],
        "fails": "PATTERN SEQ(A a, B b) WHERE [id] AGG SUM(a.big) GROUP BY id WITHIN 90",
        "stacks": KEYED["stacks"],
    }
    engine = ouzel.Engine(queries)
    found = [engine.push(table), engine.finish()]
    assert [problem.query for problem in engine.problems()] == ["fails"]
    for name in ("counts", "stacks"):
        rows = pa.concat_tables([answer[name] for answer in found])
        assert rows.equals(ouzel.match(table, queries[name], threads=1))


# ── Options ────────────────────────────────────────────────────────────────────────────────────────


def test_thread_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUZEL_THREADS", raising=False)
    assert calls.thread_count(None) == len(os.sched_getaffinity(0))
    assert calls.thread_count(3) == 3
    monkeypatch.setenv("OUZEL_THREADS", "5")
    assert calls.thread_count(None) == 5
    assert calls.thread_count(2) == 2
    monkeypatch.setattr(calls, "_is_in_spark_task", lambda: True)
    assert calls.thread_count(None) == 5
    monkeypatch.delenv("OUZEL_THREADS")
    assert calls.thread_count(None) == 1


@pytest.mark.parametrize("given", [0, -1, "2", True, 1.5])
def test_wrong_thread_counts(given: Any) -> None:
    with pytest.raises(ouzel.InputError, match="threads= must be an integer >= 1"):
        ouzel.match(events(10, 1), KEYED["stacks"], threads=given)


@pytest.mark.parametrize("given", ["0", "two", ""])
def test_wrong_environment(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUZEL_THREADS", given)
    with pytest.raises(ouzel.InputError, match="OUZEL_THREADS must be an integer >= 1"):
        ouzel.match(events(10, 1), KEYED["stacks"])


def test_explain_shows_how_events_are_divided() -> None:
    assert "threads: by time, else by id\n" in ouzel.explain(KEYED["stacks"])
    assert "threads: by time, else by id, s\n" in ouzel.explain(KEYED["two keys"])
    assert "threads: by id\n" in ouzel.explain(KEYED["no window"])
    assert "threads: by time\n" in ouzel.explain(UNKEYED["no key"])
    assert "threads: by time\n" in ouzel.explain(UNKEYED["total"].replace(", SUM(a.x)", ""))
    assert "threads: one: matches wait for the end of their window" in ouzel.explain(WHOLE["negated end"])
    assert "threads: one: no column is the same in all events of a match" in ouzel.explain(WHOLE["sum of floats"])


# ── Ctrl-C ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("overlap", "task"), [(-1.0, "_search"), (100.0, "_operators")], ids=["by key", "by time"])
@pytest.mark.usefixtures("interruptible")
def test_interrupt_ends_all_threads(overlap: float, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "OVERLAP_MAX", overlap)
    search = getattr(threads, task)
    began = threading.Event()
    running = threading.active_count()

    def slow(*arguments: Any) -> Any:
        began.set()
        for _ in range(1000):
            time.sleep(0.01)
            pauses.pause()
        return search(*arguments)

    monkeypatch.setattr(threads, task, slow)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        began.wait()
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        ouzel.match(events(100, 1), KEYED["stacks"], threads=3)
    assert time.perf_counter() - started < 5
    while threading.active_count() > running + 1:
        assert time.perf_counter() - started < 9, "threads go on after Ctrl-C"
        time.sleep(0.02)
