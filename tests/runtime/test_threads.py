"""One engine called from many threads: as if the calls came one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import ouzel

pytestmark = pytest.mark.compiled

QUERIES = {
    "stacks": "PATTERN SEQ(A a, B b) WHERE [k] WITHIN 50 RETURN Pair(a.n AS a, b.n AS b)",
    "runs": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [k] } WITHIN 50 RETURN Run(b.n AS b)",
    "counts": "PATTERN SEQ(A a, B b) WHERE [k] AGG COUNT(*) AS n WITHIN 50",
}
THREADS = 4
PUSHES = 12


def batches() -> list[pa.Table]:
    made = []
    for number in range(THREADS * PUSHES):
        first = number * 20
        names = ["A" if n % 3 else "B" for n in range(first, first + 20)]
        ticks = list(range(first, first + 20))
        made.append(pa.table({"type": names, "ts": ticks, "n": ticks, "k": [n % 7 for n in ticks]}))
    return made


def engine() -> ouzel.Engine:
    return ouzel.Engine(QUERIES, max_delay=100_000)


def query_set() -> ouzel.QuerySet:
    made = ouzel.QuerySet(max_delay=100_000)
    for name, text in QUERIES.items():
        made.add(name, text)
    return made


def total(answers: list[dict[Any, pa.Table]], name: str) -> list[Any]:
    return sorted(map(repr, (row for answer in answers if name in answer for row in answer[name].to_pylist())))


@pytest.mark.parametrize("make", [engine, query_set])
def test_threads_share_one_engine(make: Callable[[], Any]) -> None:
    """Events may come in any order, so whichever thread is first, the answer is one."""
    given = batches()
    reference = make()
    wanted = [reference.push(batch) for batch in given] + [reference.finish()]
    shared = make()
    shared.push(given[0])
    answers: list[dict[Any, pa.Table]] = []
    failures: list[BaseException] = []

    def work(own: list[pa.Table]) -> None:
        try:
            for number, batch in enumerate(own):
                answers.append(shared.push(batch))
                if number % 10 == 0:
                    shared.snapshot()
                    shared.problems()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(given[1:][number::THREADS],)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.append(shared.finish())
    assert not failures
    assert shared.late == 0
    for name in QUERIES:
        assert total(answers, name) == total(wanted, name) != [], name


def test_queries_are_added_and_removed_while_events_flow() -> None:
    held = query_set()
    given = batches()[:30]
    held.push(given[0])
    failures: list[BaseException] = []

    def change() -> None:
        try:
            for number in range(14):
                held.add(number, QUERIES["stacks"].replace("50", str(number + 60)))
                if number % 2:
                    assert held.remove(number) == 1
        except BaseException as error:
            failures.append(error)

    changes = threading.Thread(target=change)
    changes.start()
    for batch in given[1:]:
        held.push(batch)
    changes.join()
    held.finish()
    assert not failures
    assert len(held) == len(QUERIES) + 7
