"""Ctrl-C: honoured soon, and the interrupted call is completed by the next one; no row is lost or given twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.kernels import pauses
from ouzel.runtime import calls
from ouzel.runtime import engine as engines

pytestmark = pytest.mark.compiled

QUERIES = {
    "stacks": "PATTERN SEQ(A a, B b, C c) WHERE [k] WITHIN 30 RETURN R(a.n AS a, b.n AS b, c.n AS c)",
    "negated end": "PATTERN SEQ(A a, B b, !(C c)) WHERE [k] WITHIN 6 RETURN R(a.n AS a, b.n AS b)",
    "next match": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [k] } WITHIN 30 RETURN R(b.n AS b)",
    "contiguity": "PATTERN SEQ(A+ a[], B b) WHERE partition_contiguity(a[], b) { [k] } WITHIN 30 RETURN R(b.n AS b)",
    "graph": "PATTERN SEQ(A+ a[], B b) WITHIN 8 RETURN R(COUNT(a[]) AS n, b.n AS b)",
    "compressed": "PATTERN SEQ(A+ a[], B b) WITHIN 8 OUTPUT COMPRESSED",
    "first": "PATTERN SEQ(A+ a[], B b) WITHIN 8 OUTPUT NON_OVERLAPPING",
    "counts": "PATTERN SEQ(A a, B+ b[], C c) WHERE [k] AGG COUNT(*) AS n, SUM(b.n) AS s WITHIN 30",
    "algebra": ouzel.algebra.stream("A").next(ouzel.algebra.stream("B").rename({"n": "m"}), "DUR <= 10"),
}  # fmt: skip


def batches() -> list[pa.Table]:
    draw = random.Random(7)
    made = []
    for number in range(3):
        ticks = sorted(draw.randrange(20 * number, 20 * number + 20) for _ in range(14))
        columns = {"type": [draw.choice("ABC") for _ in ticks], "ts": ticks}
        made.append(pa.table({**columns, "n": list(range(len(ticks))), "k": [draw.randrange(2) for _ in ticks]}))
    return made


def engine(queries: dict[str, Any]) -> ouzel.Engine:
    return ouzel.Engine(queries, max_delay=3)


def query_set(queries: dict[str, Any]) -> ouzel.QuerySet:
    made = ouzel.QuerySet(max_delay=3)
    for name, query in queries.items():
        made.add(name, query)
    return made


def rows(answers: list[dict[Any, pa.Table]]) -> dict[Any, list[Any]]:
    names = {name for answer in answers for name in answer}
    found = {name: [row for answer in answers if name in answer for row in answer[name].to_pylist()] for name in names}
    return {name: listed for name, listed in found.items() if listed}


def any_order_at_one_end(found: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
    """A restored set may list the matches of one end in another order. Rows of different ends keep their order."""
    return {
        name: [row for _, alike in groupby(listed, lambda row: row["end"]) for row in sorted(alike, key=str)]
        for name, listed in found.items()
    }


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Shells let background jobs ignore SIGINT, and so would the processes that these tests start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Interruptions:
    """SIGINT for the main thread at one of the places where work may be interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        main = threading.main_thread().ident
        assert main is not None
        pause = calls._Job.pause

        def interrupting(job: Any) -> None:
            self.left -= 1
            if self.left == 0:
                signal.pthread_kill(main, signal.SIGINT)
                while not job.stop:
                    os.sched_yield()
            pause(job)

        monkeypatch.setattr(calls._Job, "pause", interrupting)
        # Ctrl-C waits for small pushes.
        monkeypatch.setattr(engines, "SMALL_ROWS", -1)
        # Small pieces, whatever time they take.
        monkeypatch.setattr(pauses, "_EVENTS_FIRST", 3)
        monkeypatch.setattr(pauses, "_SHORT_SECONDS", 0)
        monkeypatch.setattr(pauses, "_LONG_SECONDS", float("inf"))


def run(running: Any, *, restores: bool = False) -> tuple[list[dict[Any, pa.Table]], int]:
    """The answers, and how many calls were interrupted. An interrupted push is not repeated."""
    answers, interrupted = [], 0
    for batch in batches():
        try:
            answers.append(running.push(batch))
        except KeyboardInterrupt:
            interrupted += 1
            assert running.interrupted
            if restores:
                running = type(running).restore(running.snapshot())
    try:
        answers.append(running.finish())
    except KeyboardInterrupt:
        interrupted += 1
        assert running.interrupted
        answers.append(running.finish())
    assert not running.interrupted
    with pytest.raises(ouzel.InputError, match="finished"):
        running.finish()
    return answers, interrupted


@pytest.mark.parametrize("make", [engine, query_set])
@pytest.mark.parametrize("kind", QUERIES)
def test_an_interrupted_call_is_completed_by_the_next(
    make: Callable[..., Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = {kind: QUERIES[kind], "beside": QUERIES["stacks"]}
    wanted = rows(run(make(queries))[0])
    assert wanted[kind]
    interruptions = Interruptions(monkeypatch)
    for place in range(1, 1000):
        interruptions.left = place
        answers, interrupted = run(make(queries), restores=place % 3 == 0)
        if make is query_set:
            assert any_order_at_one_end(rows(answers)) == any_order_at_one_end(wanted), place
        else:
            assert rows(answers) == wanted, place
        if not interrupted:
            break
    assert place > 5, "nothing was interrupted"


def test_threads_complete_what_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = {"stacks": QUERIES["stacks"]}
    wanted = rows(run(engine(queries))[0])
    interruptions = Interruptions(monkeypatch)
    running = engine(queries)
    first, second, third = batches()
    answers = [running.push(first)]
    interruptions.left = 3
    with pytest.raises(KeyboardInterrupt):
        running.push(second)
    thread = threading.Thread(target=lambda: answers.extend([running.push(third), running.finish()]))
    thread.start()
    thread.join()
    assert rows(answers) == wanted


EXPLOSIVE = """
import os, signal, sys, time
import pyarrow as pa
import ouzel

def events(count):
    # No three A's have this sum, and all of them are tried when the B comes.
    return pa.table({"type": ["A"] * count + ["B"], "ts": list(range(count + 1)), "x": [2] * (count + 1)})

query = sys.argv[2]
def start(count):
    if sys.argv[1] == "match":
        return ouzel.match(events(count), query)
    engine = ouzel.Engine(query)
    engine.push(events(count))
    return engine.finish()

start(5)  # Compile first.
signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), signal.SIGINT))
began = time.process_time()
signal.setitimer(signal.ITIMER_PROF, 0.5)
try:
    while True:  # A query that ends early is run again.
        try:
            start(100_000)
        except ouzel.LimitError:
            pass
except KeyboardInterrupt:
    print("interrupted", time.process_time() - began)
"""


@pytest.mark.parametrize("door", ["match", "engine"])
@pytest.mark.parametrize(
    "query",
    [
        "PATTERN SEQ(A a, A b, A c, B d) WHERE a.x + b.x + c.x = 7 WITHIN 1000000",
        "PATTERN SEQ(A+ a[], B b) WHERE a[i].x + b.x = 7 WITHIN 1000000",
        "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a[i].x = a[i-1].x } WITHIN 1000000",
    ],
    ids=["stacks", "graph", "runs"],
)
def test_ctrl_c_ends_an_explosive_query(door: str, query: str) -> None:
    """The helper may be within a kernel when the process ends."""
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EXPLOSIVE, door, query], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    word, seconds = child.stdout.split()
    assert word == "interrupted"
    assert float(seconds) < 2.5
